/* utf8: one strict decoder for everyone: no overlong form, no surrogate, nothing above U+10FFFF (RFC 3629).   Thread:
 * any. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The length 1..4 of a sequence by its first byte; 0: none begins so. */
static inline uint32_t utf8_length(uint32_t first)
{
    if (first < 0x80) return 1;
    if (first < 0xc2) return 0;
    if (first < 0xe0) return 2;
    if (first < 0xf0) return 3;
    return first < 0xf5 ? 4 : 0;
}

/* Writes the sequence of a code point up to 0x1fffff to out (4 bytes): its length, 1..4. Surrogates are written too. */
static inline uint32_t utf8_encode(uint32_t cp, char *out)
{
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xc0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3f));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (char)(0xe0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 0x3f));
        out[2] = (char)(0x80 | (cp & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 0x3f));
    out[2] = (char)(0x80 | (cp >> 6 & 0x3f));
    out[3] = (char)(0x80 | (cp & 0x3f));
    return 4;
}

/* The length 1..4 of the well-formed sequence at s (n bytes are there, at least 1) and its code point; 0: not
 * well-formed. */
static inline uint32_t utf8_decode(const char *s, size_t n, uint32_t *cp_out)
{
    const unsigned char *p = (const unsigned char *)s;
    uint32_t             c = p[0], len = utf8_length(c);
    if (len <= 1) {
        *cp_out = c;
        return len;
    }
    if (n < len) return 0;
    uint32_t cp = c & (0x7fu >> len);
    for (uint32_t i = 1; i < len; i++) {
        if ((p[i] & 0xc0) != 0x80) return 0;
        cp = cp << 6 | (p[i] & 0x3fu);
    }
    if ((len == 3 && (cp < 0x800 || (cp >= 0xd800 && cp < 0xe000))) || (len == 4 && (cp < 0x10000 || cp > 0x10ffff)))
        return 0;
    *cp_out = cp;
    return len;
}

/* The number of bytes to replace by one U+FFFD when utf8_decode returns 0: the longest prefix of a well-formed
 * sequence, at least 1 (Unicode 15, section 3.9, "substitution of maximal subparts", as browsers and Python do). */
static inline uint32_t utf8_bad(const char *s, size_t n)
{
    const unsigned char *p = (const unsigned char *)s;
    uint32_t             c = p[0], len = utf8_length(c);
    if (len <= 1 || n < 2) return 1;
    unsigned lo = 0x80, hi = 0xbf; /* of the second byte: no overlong form, no surrogate, nothing above U+10FFFF */
    if (c == 0xe0) lo = 0xa0;
    if (c == 0xed) hi = 0x9f;
    if (c == 0xf0) lo = 0x90;
    if (c == 0xf4) hi = 0x8f;
    if (p[1] < lo || p[1] > hi) return 1;
    uint32_t i = 2;
    while (i < len && i < n && (p[i] & 0xc0) == 0x80) i++;
    return i;
}

/* Whether all n bytes are well-formed; U+0000 is. Eight bytes of ASCII at a time. */
bool utf8_valid(const char *s, size_t n);
