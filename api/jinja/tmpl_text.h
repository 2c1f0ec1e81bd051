/* tmpl_text: operations of Python's str on UTF-8 bytes.   Thread: any.
 * All text is well-formed UTF-8. Offsets are in bytes, except where a comment says code point. */
#pragma once
#include "base/buf.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool text_is_space(uint32_t cp); /* str.isspace, and re's \s */
/* Number of bytes of s that remain without the white space at one end. After text_lstrip_len these are the last bytes
 * of s, after text_rstrip_len the first. */
size_t text_lstrip_len(const char *s, size_t n);
size_t text_rstrip_len(const char *s, size_t n);
size_t text_put_cp(char *dst, uint32_t cp);            /* returns the bytes written, 1..4 */
void   text_put_escape(struct buf *b, uint32_t cp);    /* as Python does: \xe9, \u20ac, \U0001f600 */
size_t text_count(const char *s, size_t n);            /* number of code points */
size_t text_offset(const char *s, size_t n, size_t i); /* byte offset of code point i; n if s has fewer */
/* Number of bytes of the code point at s. */
static inline size_t text_step(const char *s)
{
    unsigned char c = (unsigned char)*s;
    if (c < 0x80) return 1;
    if (c < 0xe0) return 2;
    return c < 0xf0 ? 3 : 4;
}
/* Offset of the first occurrence at or after from, in linear time; n if there is none. text_rfind: of the last one. */
size_t text_find(const char *s, size_t n, size_t from, const char *what, size_t n_what);
size_t text_rfind(const char *s, size_t n, const char *what, size_t n_what);

enum text_case { TEXT_UPPER, TEXT_LOWER, TEXT_CAPITALIZE, TEXT_TITLE };
/* Appends s with the letters of each word in the given case, as str.upper, lower, capitalize and title do. */
void text_put_case(struct buf *b, const char *s, size_t n, enum text_case how);
/* Properties of a code point, as Python's str has them: isalpha, isupper, islower, isprintable for one character: */
bool     text_is_alpha(uint32_t cp);
bool     text_is_alnum(uint32_t cp);   /* str.isalnum; re's \w without "_" */
bool     text_is_decimal(uint32_t cp); /* str.isdecimal, re's \d */
bool     text_is_upper(uint32_t cp);
bool     text_is_lower(uint32_t cp);
bool     text_is_printable(uint32_t cp);
uint32_t text_cp(const char *s); /* code point at s */
