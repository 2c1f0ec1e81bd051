/* grammar_impl: the structs of a grammar. Private to engine/grammar/.   Thread: as in grammar.h. */
#pragma once
#include "engine/grammar/grammar.h"
#include "engine/grammar/lex.h"
#include <stdatomic.h>

enum { ROW_ITEMS_MAX = 2000 }; /* places of rules that one place of a text may have come to */

/* The upper bits of a symbol are its kind. GR_TAIL: a rule that ends an alternative and goes on in its place. GR_COUNT: a
 * range of counts, gr_range_of its number; 0: one more. */
enum gr_kind { GR_RULE, GR_TERMINAL, GR_TOKEN, GR_END, GR_TAIL, GR_COUNT };
enum { GR_KIND_SHIFT = 29, GR_RULES_MAX = 1 << 21, GR_SYMBOLS_MAX = 1 << 21 };
enum { GR_COUNT_BITS = 11, GR_COUNT_MANY = (1 << GR_COUNT_BITS) - 1 }; /* GR_COUNT_MANY: so many or more */

#define GR_NUMBER_MASK ((1u << GR_KIND_SHIFT) - 1)
static inline enum gr_kind gr_kind_of(uint32_t symbol) { return (enum gr_kind)(symbol >> GR_KIND_SHIFT); }
static inline uint32_t     gr_number(uint32_t symbol) { return symbol & GR_NUMBER_MASK; }
static inline uint32_t     gr_symbol(enum gr_kind kind, uint32_t number)
{
    return (uint32_t)kind << GR_KIND_SHIFT | number;
}
static inline bool gr_is_rule(uint32_t symbol)
{
    return gr_kind_of(symbol) == GR_RULE || gr_kind_of(symbol) == GR_TAIL;
}

/* Counts; none if lo > hi. hi may be GR_COUNT_MANY. */
struct gr_range {
    uint16_t lo, hi;
};
static inline struct gr_range gr_range_of(uint32_t number)
{
    return (struct gr_range){ number >> GR_COUNT_BITS & GR_COUNT_MANY, number & GR_COUNT_MANY };
}
static inline bool     gr_range_has(struct gr_range r, uint32_t count) { return count >= r.lo && count <= r.hi; }
static inline uint32_t gr_count_more(uint32_t count) { return count < GR_COUNT_MANY ? count + 1 : count; }

struct mask_cache;

struct grammar {
    struct lex *lex;
    /* All alternatives in a row, each ended by GR_END and the number of its rule. A dotted rule is an index into it. */
    uint32_t          *symbol;
    uint32_t           n_symbol;
    uint32_t          *alt_first; /* [n_rule + 1] alternatives of a rule in alt[] */
    uint32_t          *alt;       /* where each begins in symbol[] */
    struct gr_range   *range;     /* of each: with what count it can be ended; NULL: nothing is counted */
    uint32_t           n_rule, n_token;
    uint32_t          *token;    /* [n_token] the tokens that are terminals by their number */
    bool              *nullable; /* [n_rule] */
    uint32_t           start;    /* a rule */
    struct mask_cache *cache;
    _Atomic uint32_t   n_user;
};

/* count.c: makes g->range. ST_INVALID: the start has no range; ST_NOMEM, ST_TOO_LARGE. */
enum status count_ranges(struct grammar *g);
