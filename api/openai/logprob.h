/* logprob: log probabilities as JSON, in the three forms that clients know.   Thread: the call's owner.
 * Values below -9999 are written as that. All values are read from the arrays that the engine filled for tokens that
 * were told. */
#pragma once
#include "api/dialect.h"

/* Chat: token k of choice i as one entry of "content"; tokens [from, to) as the whole object. */
void logprob_chat_entry(struct call *c, uint32_t i, uint32_t k, struct buf *out);
void logprob_chat(struct call *c, uint32_t i, uint32_t from, uint32_t to, struct buf *out);

/* Completions: the map {token: logprob, ..} of token k, and the four arrays: of the prompt's tokens when asked, then of
 * tokens [from, to). tops: maps of the latter, joined by commas, when they are there already; else NULL. Counts
 * characters in call_choice.text_chars. */
void logprob_legacy_top(struct call *c, uint32_t i, uint32_t k, struct buf *out);
void logprob_legacy(struct call *c, uint32_t i, bool prompt, uint32_t from, uint32_t to, const struct buf *tops,
                    struct buf *out);

/* vLLM's prompt_logprobs, of one prompt. */
void logprob_prompt(struct call *c, const struct call_prompt *p, struct buf *out);
