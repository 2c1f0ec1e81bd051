/* lex: the terminals of a grammar, stepped through a text together. A state is what is left of each terminal that may still be
 * the one that stands there; it is made when it is first met, and stays.
 *   create -> lex_start, lex_step ... -> free
 * Thread: any, several at a time. Steps between states that are known take no lock; making one does. */
#pragma once
#include "engine/grammar/rx.h"
#include <stdatomic.h>

enum { LEX_DEAD = 0 }; /* the state without terminals */
#define LEX_UNKNOWN UINT32_MAX

/* One terminal, and what is left of it. */
struct lex_item {
    uint32_t terminal, rest;
};

struct lex_state {
    uint32_t               n_item;
    uint32_t               n_accept;
    const struct lex_item *item;   /* in order of terminals */
    const uint32_t        *accept; /* the terminals that may end here, in order */
    bool                   more;   /* a terminal may go on here */
    uint64_t               hash;
    _Atomic uint32_t       next[]; /* by kind of byte; LEX_UNKNOWN: not asked yet */
};

struct lex {
    struct lex_state **state; /* [state_max]; those below n_state are there */
    uint8_t            kind[256];
    uint32_t           n_kind;
    /* the rest is lex.c's */
    struct lex_made *made;
};

struct lex_limits {
    uint32_t state_max;
    size_t   bytes_max; /* of states */
};

/* rx: the terminals' set, which becomes the lexer's, also on error; rest: [n_terminal] each one's expression. ST_NOMEM,
 * ST_TOO_LARGE. */
enum status lex_create(struct rx *x, const uint32_t *rest, uint32_t n_terminal, const struct lex_limits *limits,
                       struct lex **lex_out);
void        lex_free(struct lex *l);
size_t      lex_bytes(struct lex *l);
uint32_t    lex_n_state(struct lex *l);
struct rx  *lex_rx(struct lex *l);    /* to be read under lex_lock */
uint32_t    lex_plain(struct lex *l); /* rx_json_plain in it */
void        lex_lock(struct lex *l);
void        lex_unlock(struct lex *l);

/* The state in which these terminals are about to begin: in ascending order, each once. LEX_UNKNOWN: over a bound. */
uint32_t lex_start(struct lex *l, const uint32_t *terminal, uint32_t n);
/* The slow half of lex_step. */
uint32_t lex_make(struct lex *l, uint32_t from, uint8_t kind);

/* After one more byte: LEX_DEAD, a state, or LEX_UNKNOWN when a bound is reached. */
static inline uint32_t lex_step(struct lex *l, uint32_t from, uint8_t byte)
{
    uint8_t  kind = l->kind[byte];
    uint32_t to = atomic_load_explicit(&l->state[from]->next[kind], memory_order_acquire);
    return to == LEX_UNKNOWN ? lex_make(l, from, kind) : to;
}
