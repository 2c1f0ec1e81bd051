/* embeddings: what dialects share whose prompts become states of a model: vectors, labels, scores.   Thread: the call's
 * owner. */
#pragma once
#include "api/dialect.h"

/* The fields of texts, and the bits of struct param's `on`. */
enum { EMBED_ON_INPUT = 1, EMBED_ON_MESSAGES = 2, EMBED_ON_CLASS = 4, EMBED_ON_CLASS_MESSAGES = 8 };
extern const struct param_fields embedding_fields;

/* dialect.parse and dialect.prepare of texts, and of messages: tokenizes c->prompt and cuts what is to be cut; together
 * at most EMBED_TOKENS_MAX. Texts may go away afterwards. ST_INVALID with *e, ST_NOMEM. */
enum status embedding_parse(struct call *c, struct api_error *e);
enum status embedding_prepare(struct call *c, struct api_error *e);
enum status embedding_chat_parse(struct call *c, struct api_error *e);
enum status embedding_chat_prepare(struct call *c, struct api_error *e);
/* The end of prepare: sets what the engine is asked for. total: tokens of all prompts. ST_INVALID with *e: too many. */
enum status embedding_prepared(struct call *c, uint64_t total, struct api_error *e);
/* For a dialect.pick: whether the body has messages. ST_INVALID with *e. */
enum status embedding_pick(const struct call_shape *s, const struct dialect *texts, const struct dialect *chat,
                           const struct dialect **d_out, struct api_error *e);
/* The error for a text of at least n tokens that does not fit (dialect.too_long). Returns ST_INVALID. */
enum status embedding_too_long(const struct call *c, uint64_t n, struct api_error *e);
uint32_t    embedding_width(const struct api_model *m); /* numbers of a vector */
/* dialect.settle: where a model has layers behind its pooling, a state becomes what they make of it; else it stays. */
void embedding_settle(struct call *c, uint32_t i);
/* dialect.whole.text: prompts that become states have none. */
void embedding_no_text(struct call *c, uint32_t i, const struct answer_piece *p, struct buf *out);
/* dialect.whole.usage: the body, whose data are the texts of the choices. */
void embedding_body(struct call *c, struct buf *out);
/* dialect.error_stream of rows none of whose requests is a stream: their tables have no such field. */
void embedding_error(struct call *c, struct buf *out, const struct api_error *e);
