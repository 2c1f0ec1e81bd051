/* inner: a request that this process asks of itself: a connection without a socket, whose answer goes to a function. It
 * takes the way of a request from a socket from its whole body on: the route's handler, dialect, engine. Its answer is
 * whole: what would be a stream is refused with a 400. inner_ask (any thread) -> the route's handler -> answer (both on
 * the io thread), exactly once for each inner_ask. */
#pragma once
#include "server/conn.h"

struct inner {
    struct text_job     start; /* what the io thread's inbox carries */
    const struct route *route; /* with ROUTE_JSON and POST; set by the caller */
    struct buf          body;  /* set by the caller; inner_ask takes its bytes */
    /* The answer; body is valid during the call, and conn.req.id is the request's id. r is the caller's again. */
    void (*answer)(struct inner *r, int status, const void *body, size_t n);
    struct conn conn;
};

/* False: the io thread's inbox is full, and nothing has happened. r must stay until its answer. */
bool inner_ask(struct io *io, struct inner *r);
