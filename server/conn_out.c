#include "server/conn_impl.h"
#include "api/answer.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "server/hangup.h"
#include "server/metrics.h"
#include "server/tls_wire.h"
#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

size_t conn_pending(const struct conn *c) { return evbuffer_get_length(c->out); }

/* What the socket took since the last look restarts the stall clock. */
void conn_note_drain(struct conn *c, uint64_t now_us)
{
    uint64_t drained = c->out_bytes - conn_pending(c);
    if (drained == c->out_drained && drained != c->out_bytes) return;
    c->out_drained = drained;
    c->t_drain_us = now_us;
}

/* Parts one behind the other, as one piece: what libevent does per piece costs more than a token's text. */
static bool add_parts(struct evbuffer *out, const struct slice *part, uint32_t n_part, size_t n)
{
    struct evbuffer_iovec v;
    if (evbuffer_reserve_space(out, (ev_ssize_t)n, &v, 1) != 1) return false;
    char *to = v.iov_base;
    for (uint32_t i = 0; i < n_part; to += part[i++].n) memcpy(to, part[i].p, part[i].n);
    v.iov_len = n;
    return !evbuffer_commit_space(out, &v, 1);
}

static void out_parts(struct conn *c, const struct slice *part, uint32_t n_part)
{
    size_t n = 0;
    for (uint32_t i = 0; i < n_part; i++) n += part[i].n;
    if (c->eof && c->state == CONN_LINGER) return;
    if (!conn_pending(c)) {
        conn_note_drain(c, clock_us());
        wheel_set(&c->io->wheel, &c->timer, c->t_drain_us + CONN_WATCH_US);
    }
    if (!add_parts(c->out, part, n_part, n)) {
        LOG_WARN_LIMITED("conn: out of memory for an answer, closing");
        c->close_after = c->cut = true;
        return;
    }
    c->out_bytes += n;
    c->io->untried_bytes += n;
    if (c->writing || !list_empty(&c->unsent)) return;
    list_add_tail(&c->io->unsent, &c->unsent);
    io_flush_soon(c->io);
}

void conn_out(struct conn *c, const void *p, size_t n)
{
    struct slice one = { p, n };
    if (n) out_parts(c, &one, 1);
}

/* False: the connection is broken. */
static bool write_plain(struct conn *c)
{
    evbuffer_unfreeze(c->out, 1); /* as libevent does it around its own writes */
    int n = evbuffer_write_atmost(c->out, c->fd, OUT_PAUSE), error = errno;
    evbuffer_freeze(c->out, 1);
    return n >= 0 || error == EAGAIN || error == EINTR;
}

/* At once, without waiting for the socket to say that it can be written: nearly always it can, and the question costs
 * an epoll_ctl before and another one behind each write. What it does not take is libevent's until it is gone. */
void conn_flush(struct conn *c)
{
    list_del(&c->unsent);
    if (c->writing || !conn_pending(c)) return;
    if (!(c->tls ? tls_wire_flush(c->tls) : write_plain(c))) {
        conn_free(c);
        return;
    }
    unread_note(c);
    if (!conn_pending(c)) {
        conn_drained(c);
        return;
    }
    c->writing = true;
    if (c->bev) bufferevent_enable(c->bev, EV_WRITE);
}

void conn_flush_now(struct conn *c)
{
    struct io *io = c->io;
    io->flushing = true;
    conn_flush(c);
    io->flushing = false;
    io_flush_soon(io); /* for what came meanwhile, and to look at what is not read */
}

/* Status line and headers. n_body: -1: chunked, or until close on HTTP/1.0. */
static void put_head(struct conn *c, int status, const char *content_type, const char *more, int64_t n_body)
{
    struct io *io = c->io;
    char       h[1024];
    bool       old = c->req.minor == 0 && c->req.open;
    int n = snprintf(h, sizeof h, "HTTP/1.1 %d %s\r\nDate: %s\r\n", status, http_status_text(status), io_date(io));
    if (content_type) n += snprintf(h + n, sizeof h - (size_t)n, "Content-Type: %s\r\n", content_type);
    if (n_body >= 0 && status != 204)
        n += snprintf(h + n, sizeof h - (size_t)n, "Content-Length: %lld\r\n", (long long)n_body);
    else if (n_body < 0 && !old)
        n += snprintf(h + n, sizeof h - (size_t)n, "Transfer-Encoding: chunked\r\n");
    if (c->close_after)
        n += snprintf(h + n, sizeof h - (size_t)n, "Connection: close\r\n");
    else if (old)
        n += snprintf(h + n, sizeof h - (size_t)n, "Connection: keep-alive\r\n");
    if (*c->req.id) n += snprintf(h + n, sizeof h - (size_t)n, "x-request-id: %s\r\n", c->req.id);
    const char *also = c->req.route ? answer_id_header(c->req.route->dialect) : NULL;
    if (*c->req.id && also) n += snprintf(h + n, sizeof h - (size_t)n, "%s: %s\r\n", also, c->req.id);
    n += snprintf(h + n, sizeof h - (size_t)n, "X-Content-Type-Options: nosniff\r\n");
    CHECK(n < (int)sizeof h);
    conn_out(c, h, (size_t)n);
    if (c->req.cors >= 0) {
        const char *origin = io->srv->cfg->cors_origin.s[c->req.cors];
        static const char
            a[] = "Access-Control-Allow-Origin: ",
            b[] = "\r\nAccess-Control-Expose-Headers: x-request-id, request-id, retry-after\r\nVary: Origin\r\n";
        conn_out(c, a, sizeof a - 1);
        conn_out(c, origin, strlen(origin));
        conn_out(c, b, sizeof b - 1);
    }
    if (c->req.answer_head) conn_out(c, c->req.answer_head, strlen(c->req.answer_head));
    if (more && *more) conn_out(c, more, strlen(more));
    if (c->req.orca && c->req.route && c->req.route->flags & ROUTE_GEN) {
        char report[ORCA_BYTES];
        conn_out(c, report, orca_header(io->srv, c->req.orca, report, sizeof report));
    }
    conn_out(c, "\r\n", 2);
}

/* The answer is in the output buffer; on to the next request, or to the end. */
static void request_done(struct conn *c)
{
    metrics_http(c->io->srv->metrics, &c->req, c->req.status, c->out_bytes - c->req.out_begin);
    LOG_DEBUG("http: id=%s route=%s status=%d", c->req.id, c->req.route ? c->req.route->label : "none", c->req.status);
    hangup_forget(c);
    c->work = NULL;
    c->stream = false;
    c->req.open = false;
    conn_release_body(c);
    free(c->req.arg);
    c->req.arg = NULL;
    free(c->req.query);
    c->req.query = NULL;
    free(c->req.adapter);
    c->req.adapter = NULL;
    free(c->req.trace_state);
    c->req.trace_state = NULL;
    free(c->req.answer_head);
    c->req.answer_head = NULL;
    conn_set_low_water(c, 0);
    if (c->close_after) {
        conn_enter(c, CONN_FLUSH);
        return;
    }
    http_begin(&c->http);
    c->partial = false;
    conn_enter(c, CONN_HEAD);
    if (!c->in_loop) conn_resume(c); /* a pipelined request may wait in the input */
}

void conn_respond_with(struct conn *c, int status, const char *content_type, const char *more, const void *body,
                       size_t n)
{
    bool head = c->req.method == M_HEAD;
    c->req.status = status;
    if (c->answer) {
        c->answer(c, status, body, n);
        return;
    }
    if (!c->req.keep_alive || server_state(c->io->srv) >= SRV_HANDED) c->close_after = true;
    put_head(c, status, content_type, more, (int64_t)n);
    if (n && !head) conn_out(c, body, n);
    request_done(c);
}

void conn_respond(struct conn *c, int status, const char *content_type, const void *body, size_t n)
{
    conn_respond_with(c, status, content_type, NULL, body, n);
}

void conn_error(struct conn *c, const struct api_error *e)
{
    char why[ERROR_WHY_MAX];
    /* Keys are auth.c's to tell of. */
    if (e->http != 401)
        LOG_INFO_BURST(ERROR_LINES_PER_SECOND, "http: id=%s route=%s status=%d%s", c->req.id,
                       c->req.route ? c->req.route->label : "none", e->http, conn_error_why(e, why, sizeof why));
    conn_error_unlogged(c, e);
}

const char *conn_error_why(const struct api_error *e, char *out, size_t bytes)
{
    size_t n = e->n_public ? e->n_public : strlen(e->message);
    snprintf(out, bytes, "%s%s reason=\"%.*s\"", *e->param ? " param=" : "", e->param, (int)n, e->message);
    return out;
}

void conn_error_unlogged(struct conn *c, const struct api_error *e)
{
    struct buf       b;
    struct api_error told = *e;
    snprintf(told.request_id, sizeof told.request_id, "%s", c->req.id);
    buf_init(&b, 8192);
    answer_error(c->req.route ? c->req.route->dialect : NULL, &told, &b);
    char more[ROUTE_ALLOW_BYTES + 16] = "", allow[ROUTE_ALLOW_BYTES];
    switch (e->http) {
    case 401: snprintf(more, sizeof more, "WWW-Authenticate: Bearer\r\n"); break;
    case 405:
        if (c->req.route) snprintf(more, sizeof more, "Allow: %s\r\n", route_allow(c->req.route->methods, allow));
        break;
    case 429: snprintf(more, sizeof more, "Retry-After: 1\r\n"); break;
    case 503: snprintf(more, sizeof more, "Retry-After: 5\r\n"); break;
    default: break;
    }
    bool bare = c->req.method == M_HEAD || c->req.method == M_OPTIONS;
    conn_respond_with(c, e->http, bare ? NULL : "application/json", more, b.data, bare ? 0 : b.n);
    buf_free(&b);
}

void conn_fail(struct conn *c, int http, const char *param, const char *fmt, ...)
{
    struct api_error e;
    char             text[300];
    va_list          ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    api_fail(&e, http, param, "%s", text);
    conn_error(c, &e);
}

void conn_stream_begin(struct conn *c, const char *content_type)
{
    c->stream = true;
    c->chunked_out = c->req.minor == 1;
    c->req.status = 200;
    if (!c->req.keep_alive || server_state(c->io->srv) >= SRV_HANDED || !c->chunked_out) c->close_after = true;
    put_head(c, 200, content_type, "Cache-Control: no-cache\r\nX-Accel-Buffering: no\r\n", -1);
}

void conn_stream_put(struct conn *c, const char *p, size_t n)
{
    if (!n) return;
    if (!c->chunked_out) {
        conn_out(c, p, n);
        return;
    }
    char size[18] = { [16] = '\r', [17] = '\n' }, *at = size + 16; /* in hex, ahead of the end of its line */
    for (size_t left = n; left; left >>= 4) *--at = "0123456789abcdef"[left & 15];
    struct slice part[3] = { { at, (size_t)(size + 18 - at) }, { p, n }, { "\r\n", 2 } };
    out_parts(c, part, 3);
}

void conn_stream_end(struct conn *c, bool clean)
{
    if (clean && c->chunked_out) conn_out(c, "0\r\n\r\n", 5);
    if (!clean) c->close_after = c->cut = true;
    request_done(c);
}

void conn_set_low_water(struct conn *c, size_t low)
{
    if (c->tls)
        tls_wire_low_water(c->tls, low);
    else
        bufferevent_setwatermark(c->bev, EV_WRITE, low, 0);
}
