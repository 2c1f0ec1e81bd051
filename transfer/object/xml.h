/* xml: reads the small XML answers of S3 and STS: elements and their text.   Thread: any.
 * It reads a part of XML: it skips attributes, comments and processing instructions, refuses document types, and drops
 * the prefixes of names. The input is untrusted and must outlive struct xml; nothing is allocated. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

enum { XML_DEPTH_MAX = 16, XML_NAME = 48 };
enum xml_kind { XML_OPEN, XML_TEXT, XML_CLOSE, XML_END, XML_BAD };

struct xml {
    const char *text;
    size_t      n, at;
    int         depth;
    char        name[XML_NAME]; /* of the element that opened or closed last */
    bool        shut;           /* the element was <name/>: XML_CLOSE comes next */
    size_t      from, bytes;    /* XML_TEXT: its raw bytes, text[from, from + bytes) */
};

/* Begins to read text[0..n), which is borrowed and need not end with a 0. */
void          xml_begin(struct xml *x, const char *text, size_t n);
enum xml_kind xml_next(struct xml *x); /* after XML_END or XML_BAD it returns the same again */
/* Writes the text of the last XML_TEXT as a string, with its entities resolved. false: it does not fit, or has a NUL
 * or an unknown entity. */
bool xml_text(const struct xml *x, char *out, size_t out_bytes);
/* Writes the text of the first element of that name. false: there is none, or its text does not fit. */
bool xml_find(const char *text, size_t n, const char *name, char *out, size_t out_bytes);
