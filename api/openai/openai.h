/* openai: what the dialects of this folder share: fields, parts of bodies.   Thread: the call's owner. */
#pragma once
#include "api/dialect.h"

/* The fields of generation requests; the bits of struct param's `on` (fields.c). */
enum { ON_CHAT = 1, ON_COMPLETION = 2, ON_BOTH = 3 };
extern const struct param_fields openai_fields;

/* [1,2,3] */
void openai_put_ids(const uint32_t *id, size_t n, struct buf *out);
/* {"prompt_tokens":..} */
void openai_put_usage(const struct answer_usage *u, struct buf *out);
/* ,"timings":{..} where the request asked for it: an extension with the names of llama.cpp's server */
void openai_put_timings(const struct call *c, const struct answer_usage *u, struct buf *out);
/* ,"finish_reason":"..","stop_reason":.. of choice i, which has ended */
void openai_put_finish(const struct call *c, uint32_t i, struct buf *out);
/* ,"prompt_text":".." where the request asked for it */
void openai_put_prompt_text(const struct call *c, struct buf *out);

/* A body that is not streamed: {"id":.. up to "choices":[ ; a choice's end, from how it finished to its ids; and from ]
 * to service_tier. What follows, and the last brace, are the dialect's. */
void openai_body_open(const struct call *c, const char *object, struct buf *out);
void openai_choice_finish(const struct call *c, uint32_t i, struct buf *out);
void openai_body_close(const struct call *c, struct buf *out);
