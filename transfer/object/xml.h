/* xml: reads the small XML answers of S3 and STS: elements and their text.   Thread: any.
 * Not all of XML: attributes, comments and processing instructions are skipped, document types are refused, names lose
 * their prefix. Input is bytes from outside; nothing is allocated. */
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
    bool        shut;           /* it was <name/>: its end comes next */
    size_t      from, bytes;    /* TEXT: where it lies, as it is written */
};

void          xml_begin(struct xml *x, const char *text, size_t n);
enum xml_kind xml_next(struct xml *x); /* after XML_END or XML_BAD the same again */
/* The text of the last XML_TEXT with its entities resolved, as a string. false: it does not fit, or holds NUL or an
 * unknown entity. */
bool xml_text(const struct xml *x, char *out, size_t out_bytes);
/* The text of the first element of that name; false: there is none, or it does not fit. */
bool xml_find(const char *text, size_t n, const char *name, char *out, size_t out_bytes);
