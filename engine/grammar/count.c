/* count: with what counts the alternatives of a grammar can be ended, so that no text is led to where it cannot (gr_more,
 * gr_counted). For each alternative and each rule a range: it grows from nothing until it is that of what stands behind. A
 * rule's range covers those of its alternatives. */
#include "engine/grammar/grammar_impl.h"
#include <stdlib.h>

enum { COUNT_FUEL = 50000000 }; /* symbols that are looked at */

struct ranges {
    struct grammar  *g;
    struct gr_range *rule;           /* [n_rule] */
    uint32_t        *user_first;     /* [n_rule + 2] alternatives in which a rule stands, in user[] */
    uint32_t        *user;           /* [n_symbol] */
    uint32_t        *stack, n_stack; /* [n_rule] rules whose range has grown since their users were looked at */
    bool            *waits;          /* [n_rule] is it in stack[]? */
    uint64_t         fuel;
};

static const struct gr_range nothing = { 1, 0 };

/* What is in range a and, once n more are counted, in b. */
static struct gr_range both(struct gr_range a, struct gr_range b, uint32_t n)
{
    uint32_t lo = b.lo > n ? b.lo - n : 0, hi = b.hi;
    if (b.lo > b.hi || hi < n) return nothing;
    if (hi != GR_COUNT_MANY) hi -= n;
    if (lo < a.lo) lo = a.lo;
    if (hi > a.hi) hi = a.hi;
    return (struct gr_range){ (uint16_t)lo, (uint16_t)hi };
}

/* Of the alternative at `at`. A rule that begins in it counts from 0. */
static struct gr_range of_alt(struct ranges *w, uint32_t at)
{
    const struct grammar *g = w->g;
    struct gr_range       range = { 0, GR_COUNT_MANY };
    uint32_t              n = 0;
    for (; gr_kind_of(g->symbol[at]) != GR_END; at++) {
        uint32_t number = gr_number(g->symbol[at]);
        w->fuel -= w->fuel > 0;
        switch (gr_kind_of(g->symbol[at])) {
        case GR_COUNT:
            if (number)
                range = both(range, gr_range_of(number), n);
            else
                n = gr_count_more(n);
            break;
        case GR_TAIL: range = both(range, w->rule[number], n); break;
        case GR_RULE:
            if (!gr_range_has(w->rule[number], 0)) range = nothing;
            break;
        default: break;
        }
    }
    return range;
}

/* Looks at alternative a of `rule`, and lets the rule's range grow. */
static void look(struct ranges *w, uint32_t rule, uint32_t a)
{
    struct gr_range *all = &w->rule[rule], was = *all, one = of_alt(w, w->g->alt[a]);
    w->g->range[a] = one;
    if (one.lo > one.hi) return;
    bool empty = was.lo > was.hi;
    if (empty || one.lo < all->lo) all->lo = one.lo;
    if (empty || one.hi > all->hi) all->hi = one.hi;
    if ((was.lo == all->lo && was.hi == all->hi) || w->waits[rule]) return;
    w->waits[rule] = true;
    w->stack[w->n_stack++] = rule;
}

static uint32_t rule_of(const struct grammar *g, uint32_t at)
{
    while (gr_kind_of(g->symbol[at]) != GR_END) at++;
    return gr_number(g->symbol[at]);
}

static void find_users(struct ranges *w)
{
    const struct grammar *g = w->g;
    for (int pass = 0; pass < 2; pass++) { /* counts, then places */
        for (uint32_t a = 0; a < g->alt_first[g->n_rule]; a++) {
            for (uint32_t at = g->alt[a]; gr_kind_of(g->symbol[at]) != GR_END; at++) {
                uint32_t rule = gr_number(g->symbol[at]);
                if (!gr_is_rule(g->symbol[at])) continue;
                if (pass == 0)
                    w->user_first[rule + 2]++;
                else
                    w->user[w->user_first[rule + 1]++] = a;
            }
        }
        for (uint32_t i = 0; pass == 0 && i < g->n_rule; i++) w->user_first[i + 2] += w->user_first[i + 1];
    }
}

static enum status grow(struct ranges *w)
{
    const struct grammar *g = w->g;
    find_users(w);
    for (uint32_t r = 0; r < g->n_rule; r++) w->rule[r] = nothing;
    for (uint32_t r = 0; r < g->n_rule; r++) /* rules that stand in others mostly come first */
        for (uint32_t a = g->alt_first[r]; a < g->alt_first[r + 1]; a++) look(w, r, a);
    while (w->n_stack > 0) {
        uint32_t r = w->stack[--w->n_stack];
        w->waits[r] = false;
        for (uint32_t i = w->user_first[r]; i < w->user_first[r + 1]; i++)
            look(w, rule_of(g, g->alt[w->user[i]]), w->user[i]);
        if (!w->fuel) return ST_TOO_LARGE;
    }
    return gr_range_has(w->rule[g->start], 0) ? ST_OK : ST_INVALID;
}

enum status count_ranges(struct grammar *g)
{
    size_t        n = g->n_rule + 1;
    struct ranges w = { .g = g, .fuel = COUNT_FUEL };
    g->range = calloc(g->alt_first[g->n_rule] + 1, sizeof *g->range);
    w.rule = calloc(n, sizeof *w.rule);
    w.user_first = calloc(n + 1, sizeof *w.user_first);
    w.user = calloc(g->n_symbol + 1, sizeof *w.user);
    w.stack = calloc(n, sizeof *w.stack);
    w.waits = calloc(n, sizeof *w.waits);
    enum status st = ST_NOMEM;
    if (g->range && w.rule && w.user_first && w.user && w.stack && w.waits) st = grow(&w);
    free(w.rule);
    free(w.user_first);
    free(w.user);
    free(w.stack);
    free(w.waits);
    return st;
}
