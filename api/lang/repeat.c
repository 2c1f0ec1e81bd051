#include "api/lang/repeat.h"

enum { POWERS = 32 };

/* A unit, and rules of two to the power of k of it. */
struct powers {
    struct gr_rules *r;
    uint32_t         exact[POWERS]; /* 2^k times */
    uint32_t         below[POWERS]; /* 0 to 2^k - 1 times */
    uint32_t         n_exact, n_below;
};

static uint32_t exact(struct powers *p, uint32_t k)
{
    for (; p->n_exact <= k; p->n_exact++) {
        uint32_t half = p->exact[p->n_exact - 1], rule = gr_rule(p->r);
        gr_alt(p->r, rule, (uint32_t[]){ half, half }, 2);
        p->exact[p->n_exact] = rule;
    }
    return p->exact[k];
}

static uint32_t below(struct powers *p, uint32_t k)
{
    for (; p->n_below <= k; p->n_below++) {
        uint32_t rule = gr_rule(p->r), at = p->n_below;
        if (at == 0) {
            gr_alt(p->r, rule, NULL, 0);
        } else {
            gr_alt(p->r, rule, &p->below[at - 1], 1);
            gr_alt(p->r, rule, (uint32_t[]){ exact(p, at - 1), p->below[at - 1] }, 2);
        }
        p->below[at] = rule;
    }
    return p->below[k];
}

/* 0 to n times. */
static uint32_t up_to(struct powers *p, uint32_t n)
{
    uint32_t k = 0;
    while (k + 1 < POWERS && (2u << k) - 1 <= n) k++; /* the greatest with 2^k - 1 <= n */
    uint32_t few = below(p, k);
    if (n == (1u << k) - 1) return few;
    uint32_t rule = gr_rule(p->r);
    gr_alt(p->r, rule, &few, 1);
    gr_alt(p->r, rule, (uint32_t[]){ exact(p, k), up_to(p, n - (1u << k)) }, 2);
    return rule;
}

uint32_t repeat_symbol(struct gr_rules *r, uint32_t unit, uint32_t min, uint32_t max)
{
    struct powers p = { .r = r, .exact = { unit }, .n_exact = 1 };
    uint32_t      part[POWERS + 1], n = 0, rule;
    if (min == 1 && max == 1) return unit;
    if (min >= 1u << 30 || (max != RX_MANY && (max >= 1u << 30 || max < min))) max = min = 0;
    for (uint32_t k = POWERS; k-- > 0;)
        if (min >> k & 1) part[n++] = exact(&p, k);
    if (max == RX_MANY) {
        uint32_t list = gr_rule(r);
        gr_alt(r, list, NULL, 0);
        gr_alt(r, list, (uint32_t[]){ list, unit }, 2);
        part[n++] = list;
    } else if (max > min) {
        part[n++] = up_to(&p, max - min);
    }
    if (n == 1) return part[0];
    rule = gr_rule(r);
    gr_alt(r, rule, part, n);
    return rule;
}
