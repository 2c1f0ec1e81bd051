/* text_task: a request whose answer is one text that takes some time to make: a text thread makes it while the
 * connection waits. Nothing of it outlives the answer, or the connection's end.   Thread: the connection's io thread;
 * text_ask_fn: a text thread, or that io thread. */
#pragma once
#include "api/error.h"
#include "base/buf.h"

struct conn;
struct server;

/* What is asked. */
struct text_ask {
    struct server *srv;
    uint64_t       tenant;
    const char    *body; /* [n_body] */
    size_t         n_body;
    const char    *arg; /* rest of the path of a prefix route; NULL: the route is none */
};
/* Writes the answer to out, or fails with *e. */
typedef enum status text_ask_fn(const struct text_ask *ask, struct buf *out, struct api_error *e);

/* Answers c's request with what fn writes, of this content type (static text). bytes: how dear it is, counted in bytes
 * of text; below TEXT_INLINE_MAX the io thread does it at once. Takes c's body. */
void text_task_begin(struct conn *c, text_ask_fn *fn, const char *type, size_t bytes);
/* Answers with out, as text_task_begin does, and frees it. st: what made it. */
void text_task_respond(struct conn *c, enum status st, const char *type, struct buf *out, const struct api_error *e);
