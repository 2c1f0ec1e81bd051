#include "server/inner.h"
#include "base/clock.h"
#include "server/server.h"
#include <stdlib.h>
#include <string.h>

/* What a handler answers, as conn_respond hands it on. */
static void inner_answer(struct conn *c, int status, const void *body, size_t n)
{
    struct inner *r = LIST_ENTRY(c, struct inner, conn);
    conn_release_body(c);
    free(c->req.arg);
    free(c->req.answer_head);
    free(c->req.trace_state);
    c->req.arg = c->req.answer_head = c->req.trace_state = NULL;
    c->req.open = false;
    c->work = NULL;
    r->answer(r, status, body, n);
}

static void begin(struct text_job *j)
{
    struct inner  *r = LIST_ENTRY(j, struct inner, start);
    struct conn   *c = &r->conn;
    struct server *s = j->io->srv;
    uint64_t       limit = r->route->flags & ROUTE_GEN ? s->body_max : r->route->body_max;
    memset(c, 0, sizeof *c);
    c->io = j->io;
    c->answer = inner_answer;
    c->state = CONN_WAIT;
    c->req = (struct request){ .route = r->route,
                               .method = M_POST,
                               .minor = 1,
                               .keep_alive = true,
                               .open = true,
                               .let_in = true,
                               .cors = -1,
                               .t_start_us = clock_us(),
                               .body_bytes = r->body.n };
    io_request_id(j->io, c->req.id);
    c->body = r->body;
    buf_init(&r->body, 0);
    if (server_state(s) == SRV_LOADING || server_state(s) >= SRV_DRAINING) {
        conn_fail(c, 503, "", "the server is shutting down");
    } else if (c->body.n > limit) {
        conn_fail(c, 413, "", "the body is larger than %llu bytes", (unsigned long long)limit);
    } else if (!budget_take(&s->bodies, c->body.cap)) {
        conn_fail(c, 503, "", "too many large bodies are being read");
    } else {
        c->body_charge = c->body.cap;
        r->route->handle(c); /* r may be its owner's again */
    }
}

bool inner_ask(struct io *io, struct inner *r)
{
    r->start = (struct text_job){ .io = io, .done = begin };
    return ring_push(&io->inbox, &r->start);
}
