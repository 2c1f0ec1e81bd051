/* mask_impl: a part of a mask with what its caches need of it. Private to engine/grammar/.   Thread: any; one that is
 * known to others is not changed. */
#pragma once
#include "engine/grammar/mask.h"
#include "engine/grammar/vocab_impl.h"
#include <stdatomic.h>

enum { FEW_TOKENS = 64 };

/* A part, and who knows it: the caches, and those who read it. It goes with the last of them. */
struct mask_entry {
    struct mask_part   part; /* first: mask_release finds the entry by it */
    uint64_t           sign[2];
    uint32_t           n_seen;
    bool               apart, stays; /* stays: with its state (lex_state.few), as long as the cache */
    size_t             bytes;
    _Atomic uint32_t   n_user;
    struct mask_entry *next;            /* of those that stay */
    uint32_t           few[FEW_TOKENS]; /* part.few while it is made */
};

/* What a part of a state says, as lex_state.sign. */
void mask_sign(struct lex *l, uint32_t state, bool apart, uint64_t sign_out[2]);
/* The part of a state, with one reference. NULL: no memory, or over the lexer's bounds. */
struct mask_entry *mask_entry_make(struct lex *l, const struct gr_vocab *v, uint32_t state, bool apart);
/* Gives back the room that the arrays of a new part have beyond what is used. */
void mask_trim(struct mask_walk *w);
/* Gives a reference back; the last frees the part. NULL, and one that stays, are left alone. */
void mask_entry_free(struct mask_entry *e);
