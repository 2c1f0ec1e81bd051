/* chars: sets of characters, and how they are spelled: as they are, or within a JSON string.
 * Thread and errors: as in engine/grammar/rx.h. */
#pragma once
#include "engine/grammar/rx_utf8.h"

enum { CHARS_RANGES = 256 };

struct chars {
    uint32_t n;
    bool     full; /* more ranges were added than fit */
    struct {
        uint32_t from, to; /* both belong to it */
    } range[CHARS_RANGES];
};

void chars_add(struct chars *c, uint32_t from, uint32_t to);
void chars_join(struct chars *c, const struct chars *more);
void chars_invert(struct chars *c); /* all other characters; surrogates are none */
/* One of the set. json: as it stands within the quotes of a JSON string: raw, but for '"', '\\' and control characters, which
 * have one spelling each: the short escape where there is one, else \u00XX. */
uint32_t chars_rx(struct rx *x, const struct chars *c, bool json);
/* Any character. */
uint32_t chars_any(struct rx *x, bool json);
/* These characters one after the other; ill-formed UTF-8 is taken byte by byte. */
uint32_t chars_text(struct rx *x, const char *s, size_t n, bool json);
