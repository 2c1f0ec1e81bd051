/* parts: an answer that holds more than text: reasoning and tool calls, told from text while tokens come, for the
 * writer of the call's dialect.   Thread: the call's owner.
 *
 * Tokens go through the detokenizer, markers among them as such, into the automaton of api/calls; its events become
 * the columns text, reason and tool of the writer. Stop strings are looked for in text alone. A token is told with the
 * first event that it leads to; one that is markup alone with none, unless the request wants the ids of all tokens. */
#pragma once
#include "api/answer.h"

/* Where the call's model and request ask for it: makes parts for every choice. ST_NOMEM. */
enum status parts_prepare(struct call *c);
/* Token k of choice i. True: the choice is over, by a stop string or behind the one call that was asked for. */
bool parts_push(struct call *c, uint32_t i, uint32_t k, struct buf *out);
/* No more tokens come; held text is told. *from_out: the first token that was told with no event. */
void parts_end(struct call *c, uint32_t i, uint32_t *from_out, struct buf *out);
/* The choice is over: parts_push has said so. */
bool parts_over(const struct parts *p);
void parts_free(struct parts *p);
