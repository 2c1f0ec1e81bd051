/* parts: splits an answer into text, reasoning and tool calls while its tokens arrive, for the writer of the call's
 * dialect.   Thread: the call's owner.
 *
 * Tokens go through the detokenizer into the automaton of api/calls/calls.h, and tokens that are markers go there
 * directly. The automaton's events become the columns text, reason and tool of the writer. Stop strings are looked for
 * only in text. A token is reported with the first event that it leads to. A token that is only markup is not
 * reported, unless the request wants the ids of all tokens. */
#pragma once
#include "api/answer.h"

/* Makes parts for every choice, if the call's model and request need them. ST_NOMEM. */
enum status parts_prepare(struct call *c);
/* Takes token k of choice i and appends to out what it leads to. True: the choice is over, because of a stop string or
 * because the only call that was asked for is complete. */
bool parts_push(struct call *c, uint32_t i, uint32_t k, struct buf *out);
/* Ends choice i: appends held text to out. *from_out: the first token that was reported with no event. */
void parts_end(struct call *c, uint32_t i, uint32_t *from_out, struct buf *out);
/* The choice is over: parts_push has said so. */
bool parts_over(const struct parts *p);
void parts_free(struct parts *p);
