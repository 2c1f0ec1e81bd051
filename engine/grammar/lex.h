/* lex: an automaton that steps all terminals of a grammar through a text together. A state is the set of terminals
 * that may still match, with the rest of each that is still to match. It is made when a text first reaches it, and is
 * kept.
 *   create -> lex_start, lex_step ... -> free
 * Thread: any, several at a time. Steps between states that are known take no lock; making one does. */
#pragma once
#include "engine/grammar/rx.h"
#include <stdatomic.h>

enum { LEX_DEAD = 0 }; /* the state without terminals */
#define LEX_UNKNOWN UINT32_MAX

/* A terminal, and the expression that is still to match. */
struct lex_item {
    uint32_t terminal, rest;
};

struct lex_state {
    uint32_t               n_item;
    uint32_t               n_accept;
    const struct lex_item *item;       /* in order of terminals */
    const uint32_t        *accept;     /* the terminals that may end here, in order */
    bool                   more;       /* a terminal may go on here */
    _Atomic bool           open;       /* next[] has LEX_DEAD wherever no terminal goes on; see lex_open */
    _Atomic uint8_t        plain;      /* of mask_asks; 0: not known yet */
    _Atomic uint32_t       settled[2]; /* of mask_cache.c, without `apart` and with it; 0: not known yet */
    const void *_Atomic    few;        /* of mask_cache.c: the part of a mask; NULL: not kept here */
    uint64_t               hash;
    uint64_t               sign[2]; /* equal where states of any grammars say the same */
    _Atomic uint32_t       next[];  /* by kind of byte; LEX_UNKNOWN: not made yet */
};

struct lex {
    struct lex_state **state; /* [state_max]; the first lex_n_state are set */
    uint8_t            kind[256];
    uint32_t           n_kind;
    /* private to lex.c */
    struct lex_made *made;
};

struct lex_limits {
    uint32_t state_max;
    size_t   bytes_max; /* of states */
    uint64_t fuel_max;  /* of expressions, after each lex_allow */
};

/* Takes over rx, the set of the terminals' expressions, also on error. rest: [n_terminal] the expression of each,
 * copied.
 * ST_NOMEM, ST_TOO_LARGE. */
enum status lex_create(struct rx *x, const uint32_t *rest, uint32_t n_terminal, const struct lex_limits *limits,
                       struct lex **lex_out);
void        lex_free(struct lex *l);
size_t      lex_bytes(struct lex *l);
uint32_t    lex_n_state(struct lex *l);
bool        lex_is_worn(struct lex *l); /* texts have used up half of what states may take */
struct rx  *lex_rx(struct lex *l);      /* the set of expressions; read it under lex_lock */
uint32_t    lex_plain(struct lex *l);   /* rx_json_plain in that set */
/* Held around every use of the set of expressions, which threads share. Locking also refills its budget of work for
 * one step. */
void lex_lock(struct lex *l);
void lex_unlock(struct lex *l);

/* The state in which these terminals begin. terminal: [n] in ascending order, each once. LEX_UNKNOWN: over a bound. */
uint32_t lex_start(struct lex *l, const uint32_t *terminal, uint32_t n);
/* The state of those items i of a state for which in[i] is `want`; there are some. LEX_UNKNOWN: over a bound. */
uint32_t lex_some(struct lex *l, uint32_t state, const bool *in, bool want);
/* Fills what the calling thread may spend on states that are not made yet, in the steps that follow (lex_limits). Before
 * each mask, and before each text: where every state is dear, a mask would else take minutes. */
void lex_allow(const struct lex *l);
/* Finds the bytes behind which a state does not go on, all at once. lex_ends: is this one of them? (It may say no though
 * it is.) */
void               lex_open(struct lex *l, uint32_t state);
static inline bool lex_ends(const struct lex *l, uint32_t state, uint8_t byte)
{
    return atomic_load_explicit(&l->state[state]->next[l->kind[byte]], memory_order_relaxed) == LEX_DEAD;
}
/* The slow half of lex_step: makes the next state, under the lock. */
uint32_t lex_make(struct lex *l, uint32_t from, uint8_t kind);

/* The state after one more byte: LEX_DEAD, a state, or LEX_UNKNOWN if a bound is reached. */
static inline uint32_t lex_step(struct lex *l, uint32_t from, uint8_t byte)
{
    uint8_t  kind = l->kind[byte];
    uint32_t to = atomic_load_explicit(&l->state[from]->next[kind], memory_order_acquire);
    return to == LEX_UNKNOWN ? lex_make(l, from, kind) : to;
}
