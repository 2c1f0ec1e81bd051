/* dialect: what differs between the endpoints that generate.   Thread: the call's owner.
 * call.c reads a request with parse and prepare; reply.c writes what the engine says with the rest. */
#pragma once
#include "api/call.h"

struct call_dialect {
    const char *id_prefix;             /* "chatcmpl-"                          */
    const char *object, *chunk_object; /* "chat.completion", "chat.completion.chunk" */
    const char *open, *close, *empty;  /* around a chunk's text: ,"delta":{"content":"  and  "}; a chunk without text */
    enum status (*parse)(struct call *c, struct api_error *e);   /* its own fields, after the table */
    enum status (*prepare)(struct call *c, struct api_error *e); /* prompts -> ids */
    void (*begin)(struct call *c, uint32_t i, struct buf *out);  /* stream: what comes before the first text of a choice */
    /* logprobs of tokens [from, to) of choice i, as a JSON value */
    void (*logprobs)(struct call *c, uint32_t i, uint32_t from, uint32_t to, struct buf *out);
    void (*step)(struct call *c, uint32_t i, uint32_t k, struct buf *lp); /* not streaming: logprobs of token k, kept for choice */
    void (*choice)(struct call *c, uint32_t i, struct buf *out); /* not streaming: what follows "index" in a choice, up to how it ended */
    void (*extra)(struct call *c, uint32_t i, struct buf *out);  /* ... and what follows that; may be NULL */
};
extern const struct call_dialect dialect_chat, dialect_completion;

/* call.c. Appends the ids of text; ST_INVALID with *e when it is longer than the context can hold. */
enum status call_encode(struct call *c, const char *text, size_t n, unsigned flags, struct call_prompt *p, struct api_error *e);
enum status call_too_long(const struct call *c, struct api_error *e); /* text that is refused before it is tokenised */
bool        call_text_fits(const struct api_model *m, size_t bytes);
uint32_t    call_room(const struct call *c, uint32_t prompt); /* tokens that one choice of this prompt may get */
static inline const char               *text_of(const struct buf *b) { return b->data ? b->data : ""; }
static inline const struct call_prompt *call_prompt_of(const struct call *c, uint32_t i) { return &c->prompt[i / c->n]; }

/* reply.c */
void reply_begin(struct call *c);                                    /* head and tail */
void reply_chunk_open(struct call *c, uint32_t i, struct buf *out);  /* ... "choices":[{"index":i */
void reply_chunk_close(struct call *c, uint32_t i, struct buf *out); /* behind "choices":[..]: usage and the end of the frame */
void reply_ids(const uint32_t *id, size_t n, struct buf *out);       /* [1,2,3] */

/* call.c: what is wrong with a body as JSON, as an answer. */
enum status call_body_wrong(const struct json_error *je, struct api_error *e);
/* messages.c: the body's messages, checked; then the prompt as text into c->rendered. */
enum status messages_check(struct call *c, struct api_error *e);
enum status messages_render(struct call *c, struct api_error *e);

/* logprob.c */
void logprob_chat_entry(struct call *c, uint32_t i, uint32_t k, struct buf *out);
void logprob_chat(struct call *c, uint32_t i, uint32_t from, uint32_t to, struct buf *out);
void logprob_legacy_top(struct call *c, uint32_t i, uint32_t k, struct buf *out); /* the map of token k */
/* The four arrays: the prompt's tokens when asked, then tokens [from, to). tops: maps of the latter, when they are there already. */
void logprob_legacy(struct call *c, uint32_t i, bool prompt, uint32_t from, uint32_t to, const struct buf *tops, struct buf *out);
void logprob_prompt(struct call *c, const struct call_prompt *p, struct buf *out); /* vLLM's prompt_logprobs */
