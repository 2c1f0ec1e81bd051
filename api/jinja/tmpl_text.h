/* tmpl_text: Python's str, on UTF-8 bytes.   Thread: any.
 * Text is well-formed UTF-8; positions that templates see are code points. */
#pragma once
#include "base/buf.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool text_is_space(uint32_t cp); /* str.isspace, and re's \s */
/* What is left of s when whitespace is taken from one end; the left one's text is the last bytes of s. */
size_t text_lstrip_len(const char *s, size_t n);
size_t text_rstrip_len(const char *s, size_t n);
size_t text_put_cp(char *dst, uint32_t cp);            /* 1..4 bytes */
size_t text_count(const char *s, size_t n);            /* code points */
size_t text_offset(const char *s, size_t n, size_t i); /* byte offset of code point i; n when there are fewer */
/* Bytes of the code point at s. */
static inline size_t text_step(const char *s)
{
    unsigned char c = (unsigned char)*s;
    return c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
}
/* First occurrence at or after from, in linear time; n when there is none. */
size_t text_find(const char *s, size_t n, size_t from, const char *what, size_t n_what);
size_t text_rfind(const char *s, size_t n, const char *what, size_t n_what);

enum text_case { TEXT_UPPER, TEXT_LOWER, TEXT_CAPITALIZE, TEXT_TITLE };
void     text_put_case(struct buf *b, const char *s, size_t n, enum text_case how);
bool     text_is_alpha(uint32_t cp);
bool     text_is_alnum(uint32_t cp);   /* str.isalnum, and but for "_" re's \w */
bool     text_is_decimal(uint32_t cp); /* str.isdecimal, re's \d */
bool     text_is_upper(uint32_t cp);
bool     text_is_lower(uint32_t cp);
bool     text_is_printable(uint32_t cp);
uint32_t text_cp(const char *s); /* code point at s */
