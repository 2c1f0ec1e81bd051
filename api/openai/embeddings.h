/* embeddings: what dialects share whose prompts become vectors.   Thread: the call's owner. */
#pragma once
#include "api/call.h"

/* Tokenizes c->prompt and cuts what is to be cut; together at most EMBED_TOKENS_MAX. Texts may go away afterwards. ST_INVALID
 * with *e, ST_NOMEM. */
enum status embedding_prepare(struct call *c, struct api_error *e);
/* The error for a text of at least n tokens that does not fit (dialect.too_long). Returns ST_INVALID. */
enum status embedding_too_long(const struct call *c, uint64_t n, struct api_error *e);
/* dialect.error_stream of rows none of whose requests is a stream: their tables have no such field. */
void embedding_error(struct call *c, struct buf *out, const struct api_error *e);
