/* guide: applies a grammar to one choice: computes the mask of its next token, in parallel to the engine's steps.
 *   guide_create (the first mask is made) -> by the engine: (read the mask -> guide_post the token that was drawn)* ->
 * guide_drop While a mask is computed the choice takes part in no step, and no other choice waits for it. A mask
 * depends only on the choice's own tokens, so a request gets the same tokens alone and in any batch.
 * The engine reads the mask while the guide is ready and posts one token; a thread of the guides then works on it
 * until it is ready again. A guide lives until its submitter has dropped it and no thread works on it.
 * A guide with a gate (gate.h) has no mask while the choice writes freely; then only the ends of a sequence are
 * forbidden. Where the gate forces a token, the mask has no other. */
#pragma once
#include "base/ring.h"
#include "engine/gate.h"
#include "engine/grammar/match.h"

struct guide;
struct guides;

enum guide_state {
    GUIDE_READY,  /* the mask is that of the next token */
    GUIDE_BUSY,   /* the mask is being computed */
    GUIDE_FAILED, /* there is no mask: a bound of the grammar is reached, or no token of the vocabulary is allowed */
};

/* Computes the first mask in the caller, which may take milliseconds. eos_id: [n_eos] copied; these tokens are allowed
 * only where the text may end. The vocabulary must outlive the guide; the guide keeps a reference to the grammar
 * (gr_keep). g NULL: nothing is bound but what the gate forces, and the gate leaves all text free. gate: NULL, or taken
 * over, also on error. Any thread. ST_NOMEM, ST_TOO_LARGE; ST_INVALID: no token of the vocabulary begins a text of the
 * grammar, or none goes on behind the gate. */
enum status guide_create(struct grammar *g, const struct gr_vocab *v, const uint32_t *eos_id, uint32_t n_eos,
                         struct gate *gate, struct guide **guide_out);
/* A new guide, of the caller's, for another choice of the request. `guide` is at the beginning of its text. NULL: no
 * memory. */
struct guide *guide_fork(const struct guide *guide);
/* Called by the submitter after the final message, or if it never submits. Any thread. NULL is allowed. */
void guide_drop(struct guide *guide);

/* ---- called by the engine */

/* The state now. Reading it makes what the computing thread wrote before visible. */
enum guide_state guide_state(const struct guide *guide);
/* [n_words] of 32 bits, while it is ready. n_words 0: the choice writes freely (guide_may_end, guide_refused). */
const uint32_t *guide_mask(const struct guide *guide, uint32_t *n_words_out);
/* Whether the choice may end while there is no mask. */
bool guide_may_end(const struct guide *guide);
/* Tokens that may not come while there is no mask: [n] at most GATE_MARKS. */
const uint32_t *guide_refused(const struct guide *guide, uint32_t *n_out);
/* Words of its masks. */
uint32_t guide_words(const struct guide *guide);

/* n_thread: number of threads that compute masks; 0: guide_post computes them itself (tests, the simulator). wake: the
 * ring whose reader is woken when a mask is ready. n_guide: bound of guides that are busy at once. ST_NOMEM. */
enum status guides_create(uint32_t n_thread, uint32_t n_guide, struct ring *wake, struct guides **g_out);
/* Joins the threads; guides that were posted and not begun stay busy. NULL is allowed. */
void guides_free(struct guides *g);
/* The choice has drawn a token: the guide, which is ready, becomes busy. Engine thread. */
void guide_post(struct guides *g, struct guide *guide, uint32_t token);
/* Sleeps until no more than `enough` guides are busy, or until timeout_us have passed. Engine thread. */
void guides_await(struct guides *g, uint32_t enough, uint64_t timeout_us, uint64_t (*clock)(void));
