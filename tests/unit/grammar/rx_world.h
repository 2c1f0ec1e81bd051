/* rx_world: random expressions over two letters, and their languages by brute force: a bit for each text of up to
 * TEXT_MAX letters. */
#pragma once
#include "base/rng.h"
#include "engine/grammar/rx.h"
#include <string.h>

enum { TEXT_MAX = 7, TEXTS = 1 << (TEXT_MAX + 1) }; /* text number: a leading 1, then its letters as bits */

struct language {
    unsigned char has[TEXTS]; /* [0] is no text; [1] is the empty one */
};

struct dice {
    uint64_t seed, n;
};
static inline uint32_t dice_below(struct dice *d, uint32_t n) { return rng_philox(d->seed, 0, d->n++).x[0] % n; }

static inline int      text_len(uint32_t text) { return 31 - __builtin_clz(text); }
static inline uint32_t text_cat(uint32_t a, uint32_t b)
{
    int n = text_len(b);
    return a << n | (b & ((1u << n) - 1));
}
static inline char text_letter(uint32_t text, int i) { return text >> (text_len(text) - 1 - i) & 1 ? 'b' : 'a'; }

static inline void language_cat(const struct language *a, const struct language *b, struct language *out)
{
    struct language r = { { 0 } };
    for (uint32_t x = 1; x < TEXTS; x++)
        for (uint32_t y = 1; a->has[x] && y < TEXTS; y++)
            if (b->has[y] && text_len(x) + text_len(y) <= TEXT_MAX) r.has[text_cat(x, y)] = 1;
    *out = r;
}

static inline void language_join(const struct language *a, struct language *out)
{
    for (int i = 1; i < TEXTS; i++) out->has[i] |= a->has[i];
}

/* A random expression; its language goes to *l. bools: with intersections and complements. */
static inline uint32_t rx_random(struct rx *x, struct dice *d, int depth, bool bools, struct language *l)
{
    struct language a, b;
    uint32_t        p, q, r = RX_NONE;
    memset(l, 0, sizeof *l);
    uint32_t n_kind = bools ? 9 : 7;
    if (depth == 0) n_kind = 3;
    switch (dice_below(d, n_kind)) {
    case 0: { /* a class */
        struct rx_class c = { { 0 } };
        uint32_t        which = 1 + dice_below(d, 3);
        for (unsigned k = 0; k < 2; k++) {
            if (!(which >> k & 1)) continue;
            rx_class_add(&c, 'a' + k, 'a' + k);
            l->has[2 + k] = 1;
        }
        return rx_of_class(x, &c);
    }
    case 1: { /* a few letters */
        char     text[3];
        uint32_t n = dice_below(d, 4), t = 1;
        for (uint32_t i = 0; i < n; i++) {
            uint32_t bit = dice_below(d, 2);
            text[i] = bit ? 'b' : 'a';
            t = t << 1 | bit;
        }
        l->has[t] = 1;
        return rx_of_bytes(x, text, n);
    }
    case 2: /* one letter */ l->has[2] = 1; return rx_of_byte(x, 'a');
    case 3:
    case 4:
        p = rx_random(x, d, depth - 1, bools, &a);
        q = rx_random(x, d, depth - 1, bools, &b);
        language_cat(&a, &b, l);
        return rx_cat(x, p, q);
    case 5:
        p = rx_random(x, d, depth - 1, bools, &a);
        q = rx_random(x, d, depth - 1, bools, &b);
        *l = a;
        language_join(&b, l);
        return rx_or2(x, p, q);
    case 6: {
        uint32_t        min = dice_below(d, 3), max = dice_below(d, 4) ? min + dice_below(d, 3) : RX_MANY;
        struct language power = { { 0 } };
        p = rx_random(x, d, depth - 1, bools, &a);
        power.has[1] = 1;
        for (uint32_t i = 0; i <= (max == RX_MANY ? min + TEXT_MAX : max); i++) {
            if (i >= min) language_join(&power, l);
            language_cat(&power, &a, &power);
        }
        return rx_repeat(x, p, min, max);
    }
    case 7:
        p = rx_random(x, d, depth - 1, bools, &a);
        q = rx_random(x, d, depth - 1, bools, &b);
        for (int i = 1; i < TEXTS; i++) l->has[i] = a.has[i] && b.has[i];
        return rx_and2(x, p, q);
    default:
        /* within the alphabet of two letters, as the tests know no other */
        p = rx_random(x, d, depth - 1, bools, &a);
        for (int i = 1; i < TEXTS; i++) l->has[i] = !a.has[i];
        {
            struct rx_class c = { { 0 } };
            rx_class_add(&c, 'a', 'b');
            r = rx_and2(x, rx_not(x, p), rx_repeat(x, rx_of_class(x, &c), 0, RX_MANY));
        }
        return r;
    }
}
