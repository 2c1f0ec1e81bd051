#include "api/schema/chars.h"
#include "base/utf8.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void chars_add(struct chars *c, uint32_t from, uint32_t to)
{
    if (from > to) return;
    if (c->n == CHARS_RANGES) {
        c->full = true;
        return;
    }
    c->range[c->n].from = from;
    c->range[c->n].to = to;
    c->n++;
}

void chars_join(struct chars *c, const struct chars *more)
{
    for (uint32_t i = 0; i < more->n; i++) chars_add(c, more->range[i].from, more->range[i].to);
}

static int by_from(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

void chars_invert(struct chars *c)
{
    struct chars out = { .full = c->full };
    uint32_t     next = 0;
    qsort(c->range, c->n, sizeof c->range[0], by_from);
    for (uint32_t i = 0; i < c->n; i++) {
        if (c->range[i].from > next) chars_add(&out, next, c->range[i].from - 1);
        if (c->range[i].to >= next) next = c->range[i].to + 1;
    }
    if (next <= RX_CODE_POINT_MAX) chars_add(&out, next, RX_CODE_POINT_MAX);
    *c = out;
}

const char *chars_escape(uint32_t cp, char out[8])
{
    static const char shorts[] = "\"\"\\\\\nn\rr\tt\bb\ff";
    for (size_t i = 0; i + 1 < sizeof shorts; i += 2) {
        if ((unsigned char)shorts[i] != cp) continue;
        snprintf(out, 8, "\\%c", shorts[i + 1]);
        return out;
    }
    if (cp >= ' ') return NULL;
    snprintf(out, 8, "\\u%04x", (unsigned)cp);
    return out;
}

/* A range within a JSON string. */
static uint32_t range_json(struct rx *x, uint32_t from, uint32_t to)
{
    uint32_t r = RX_NONE, plain = from;
    for (uint32_t cp = from; cp <= to && cp <= '\\'; cp++) {
        char        text[8];
        const char *escape = chars_escape(cp, text);
        if (!escape) continue;
        if (cp > plain) r = rx_or2(x, r, rx_of_chars(x, plain, cp - 1));
        r = rx_or2(x, r, rx_of_bytes(x, escape, strlen(escape)));
        plain = cp + 1;
    }
    return plain <= to ? rx_or2(x, r, rx_of_chars(x, plain, to)) : r;
}

uint32_t chars_range_rx(struct rx *x, uint32_t from, uint32_t to, bool json)
{
    return json ? range_json(x, from, to) : rx_of_chars(x, from, to);
}

uint32_t chars_rx(struct rx *x, const struct chars *c, bool json)
{
    uint32_t r = RX_NONE;
    for (uint32_t i = 0; i < c->n; i++) r = rx_or2(x, r, chars_range_rx(x, c->range[i].from, c->range[i].to, json));
    return r;
}

uint32_t chars_any(struct rx *x, bool json)
{
    struct chars all = { .n = 0 };
    chars_add(&all, 0, RX_CODE_POINT_MAX);
    return chars_rx(x, &all, json);
}

uint32_t chars_text(struct rx *x, const char *s, size_t n, bool json)
{
    uint32_t r = RX_EMPTY;
    while (n > 0) { /* from the end, so that the expression nests to the right */
        size_t at = n - 1;
        while (at > 0 && n - at < 4 && ((unsigned char)s[at] & 0xC0) == 0x80) at--;
        uint32_t cp = UINT32_MAX, len = utf8_decode(s + at, n - at, &cp);
        char     text[8];
        if (len != n - at) {
            at = n - 1;
            cp = UINT32_MAX;
        }
        const char *escape = json && cp != UINT32_MAX ? chars_escape(cp, text) : NULL;
        uint32_t    one = escape ? rx_of_bytes(x, escape, strlen(escape)) : rx_of_bytes(x, s + at, n - at);
        r = rx_cat(x, one, r);
        n = at;
    }
    return r;
}
