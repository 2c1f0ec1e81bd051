/* match: follows one text through a grammar: says which tokens may come next, and takes the token that came.
 *   gr_match_create -> (gr_mask, gr_accept, gr_rollback, gr_fork ...)* -> gr_match_free
 * A matcher allocates gr_match_bytes once and never more. A text that would need more ends in ST_TOO_LARGE, which ends
 * only its own request.
 * The method is Earley's (1970, "An efficient context-free parsing algorithm"; nullable rules as in Aycock and
 * Horspool 2002) over terminals, with a row for each place where a terminal ends, and the terminals between two rows
 * stepped through by the shared automaton of lex.h.
 * Thread: one at a time for a matcher; matchers of one grammar may be used by several threads at once. */
#pragma once
#include "engine/grammar/grammar.h"
#include "engine/grammar/vocab.h"
#include <stdbool.h>

enum { GR_BACK = 16 }; /* how many tokens can be taken back */

struct gr_match;

/* A matcher at the beginning of a text. The grammar and the vocabulary must outlive it. ST_NOMEM; ST_TOO_LARGE: what may
 * come first is over a bound. gr_match_create: NULL for either. */
enum status      gr_match_make(struct grammar *g, const struct gr_vocab *v, struct gr_match **m_out);
struct gr_match *gr_match_create(struct grammar *g, const struct gr_vocab *v);
void             gr_match_free(struct gr_match *m);
/* A new matcher, of the caller's, at the same place of a text of its own. NULL: no memory. */
struct gr_match *gr_fork(const struct gr_match *m);
size_t           gr_match_bytes(void);
/* Goes back to the beginning of a text; nothing can be taken back then. */
void gr_restart(struct gr_match *m);

/* Writes [gr_words(n_token)] words: bit t is 1 if the text may go on with token t. The end of the text is no token
 * here:
 * gr_is_end. ST_TOO_LARGE: over a bound; the mask is then all zero. */
enum status gr_mask(struct gr_match *m, uint32_t *bits);
/* The same of the tokens that begin with these n > 0 bytes, as if the bytes had come already: it sets and clears their
 * bits, and leaves those of other tokens. */
enum status gr_mask_behind(struct gr_match *m, const void *bytes, size_t n, uint32_t *bits);
/* Takes a token. ST_INVALID: it is not allowed, and the matcher is where it was; ST_TOO_LARGE: likewise. */
enum status gr_accept(struct gr_match *m, uint32_t token);
/* Takes some bytes as if they were one token. */
enum status gr_accept_bytes(struct gr_match *m, const void *bytes, size_t n);
/* Takes back the last n gr_accept that returned ST_OK. ST_INVALID: fewer than n are remembered. */
enum status gr_rollback(struct gr_match *m, uint32_t n);
/* May the text end here? */
bool gr_is_end(const struct gr_match *m);
/* Writes the bytes with which every continuation begins, at most n, and returns how many. They stop where the text may
 * end. */
size_t gr_forced(struct gr_match *m, unsigned char *out, size_t n);
