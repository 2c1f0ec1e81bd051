/* chars: sets of characters, and expressions (rx.h) of their two spellings: plain UTF-8, or inside a JSON string.
 * Thread and errors: as in engine/grammar/rx.h. */
#pragma once
#include "engine/grammar/rx_utf8.h"

enum { CHARS_RANGES = 256 };

struct chars {
    uint32_t n;
    bool     full; /* more ranges were added than fit */
    struct {
        uint32_t from, to; /* both ends included */
    } range[CHARS_RANGES];
};

/* Adds the code points from .. to, both included; those of another set. */
void chars_add(struct chars *c, uint32_t from, uint32_t to);
void chars_join(struct chars *c, const struct chars *more);
void chars_invert(struct chars *c); /* c becomes the set of all other characters; surrogates are not characters */
/* Expression of one character of the set. json: spelled as inside the quotes of a JSON string: raw, except '"', '\\'
 * and control characters, which have one spelling each: the short escape if there is one, else \u00XX. */
uint32_t chars_rx(struct rx *x, const struct chars *c, bool json);
/* The same of the characters from .. to, both included. */
uint32_t chars_range_rx(struct rx *x, uint32_t from, uint32_t to, bool json);
/* The escape of a character that a JSON string may not hold as it is; NULL: it may. */
const char *chars_escape(uint32_t cp, char out[8]);
/* Expression of any one character. */
uint32_t chars_any(struct rx *x, bool json);
/* Expression of these characters in a row; ill-formed UTF-8 is taken byte by byte. */
uint32_t chars_text(struct rx *x, const char *s, size_t n, bool json);
