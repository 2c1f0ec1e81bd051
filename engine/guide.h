/* guide: the grammar of one choice at work: the mask of its next token, made beside the steps of others.
 *   guide_create (the first mask is made) -> by the engine: (read the mask -> guide_post the token that was drawn)* -> guide_drop
 * While a mask is made the choice sits out, and nobody waits for it. A mask depends on the choice's own tokens alone, so a
 * request gets the same tokens alone and in any batch.
 * The engine reads the mask while the guide is ready and posts one token; a thread of the guides then works on it until it is
 * ready again. A guide lives until its submitter has dropped it and no thread works on it. */
#pragma once
#include "base/ring.h"
#include "engine/grammar/match.h"

struct guide;
struct guides;

enum guide_state {
    GUIDE_READY,  /* the mask is that of the next token */
    GUIDE_BUSY,   /* it is being made */
    GUIDE_FAILED, /* there is none: over a bound of the grammar, or no token of the vocabulary goes on */
};

/* eos_id: [n_eos] they are allowed where the text may end, and nowhere else; copied. The vocabulary outlives the guide; the
 * grammar is kept by it (gr_keep). Any thread; the first mask may take milliseconds. ST_NOMEM, ST_TOO_LARGE; ST_INVALID: no
 * token of the vocabulary begins a text of the grammar. */
enum status guide_create(struct grammar *g, const struct gr_vocab *v, const uint32_t *eos_id, uint32_t n_eos,
                         struct guide **guide_out);
/* Another one at the same place, for another choice of the request. NULL: no memory. Only while it is ready. */
struct guide *guide_fork(const struct guide *guide);
/* The submitter's: after the final message, or when it never submits. Any thread. NULL is fine. */
void guide_drop(struct guide *guide);

/* ---- the engine's */

enum guide_state guide_state(const struct guide *guide);
/* [n_words] of 32 bits, while it is ready. */
const uint32_t *guide_mask(const struct guide *guide, uint32_t *n_words_out);

/* n_thread threads that make masks; 0: guide_post makes them itself (tests, the simulator). wake: whoever reads it is woken when
 * a mask is ready. n_guide: most guides that are busy at once. ST_NOMEM. */
enum status guides_create(uint32_t n_thread, uint32_t n_guide, struct ring *wake, struct guides **g_out);
/* Joins the threads; guides that were posted and not begun are left as they are. NULL is fine. */
void guides_free(struct guides *g);
/* The choice has drawn a token: the guide, which is ready, becomes busy. Engine thread. */
void guide_post(struct guides *g, struct guide *guide, uint32_t token);
