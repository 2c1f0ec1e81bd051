/* Over 500 lines: the states of a connection from its first byte to its last; conn_out.c has what is written. */
#include "server/conn_impl.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "server/door.h"
#include "server/hangup.h"
#include "server/metrics.h"
#include "server/sagemaker.h"
#include "server/tls.h"
#include "server/tls_wire.h"
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    HEAD_US = 10000000,       /* for a whole head; a connection that says nothing lives as long */
    KEEP_ALIVE_US = 75000000, /* longer than the 60 s of load balancers */
    BODY_IDLE_US = 10000000,  /* between two pieces of a body, and the start-up allowance of the minimum rate */
    BODY_RATE = 16384,        /* bytes per second */
    STALL_US = 60000000,      /* nothing of a pending answer was taken */
    STALL_SSE_US = 30000000,
    LINGER_US = 2000000,        /* without a byte from the client */
    LINGER_WHOLE_US = 30000000, /* in all: a client that goes on sending reads the answer when its body is through */
    LINGER_BYTES = 256 << 20,
    FRESH_US = 1000000,        /* a connection without a whole head that is older makes room for others */
    REQUESTS_MAX = 10000,      /* per connection */
    HANDSHAKES_MAX = 1024,     /* of TLS at one time in an io thread */
    BODY_FIRST = 64 << 10,     /* taken from the budget at once; more as it comes */
    NOTSENT_LOWAT = 128 << 10, /* the kernel holds this much for a slow reader, not megabytes */
};

static bool open_plain(struct conn *c);
static bool open_tls(struct conn *c);
static void want_input(struct conn *c, bool on);
static void conn_watch(struct conn *c, uint64_t now_us);

/* ---- life ---- */

static void body_is_over(struct conn *c)
{
    if (!c->in_body) return;
    c->in_body = false;
    atomic_fetch_sub(&c->io->srv->n_body, 1);
}

void conn_enter(struct conn *c, enum conn_state st)
{
    if (st != CONN_BODY) body_is_over(c);
    c->state = st;
    c->t_state_us = clock_us();
    conn_watch(c, c->t_state_us);
}

/* The connection that has been idle for longest. */
static bool close_oldest_idle(struct io *io)
{
    LIST_EACH(it, &io->idle) {
        struct conn *c = LIST_ENTRY(it, struct conn, idle);
        if (conn_pending(c)) continue;
        conn_free(c);
        return true;
    }
    return false;
}

/* The connection that has sent no whole head for longest. One that is new may be about to: it stays. */
static bool close_oldest_fresh(struct io *io)
{
    if (list_empty(&io->fresh)) return false;
    struct conn *c = LIST_ENTRY(io->fresh.next, struct conn, fresh);
    if (clock_us() - c->t_state_us < FRESH_US) return false;
    conn_free(c);
    return true;
}

/* The connection whose TLS handshake has lasted for longest, likewise. */
static bool close_oldest_shaking(struct io *io)
{
    LIST_EACH(it, &io->fresh) {
        struct conn *c = LIST_ENTRY(it, struct conn, fresh);
        if (clock_us() - c->t_state_us < FRESH_US) return false;
        if (!c->tls || !tls_wire_shaking(c->tls)) continue;
        conn_free(c);
        return true;
    }
    return false;
}

/* Whether one more TLS handshake may begin. */
static bool may_shake(struct io *io) { return io->n_shaking < HANDSHAKES_MAX || close_oldest_shaking(io); }

/* Soft cap: who waits for nothing makes room for a newcomer. */
static bool make_room(struct io *io) { return close_oldest_idle(io) || close_oldest_fresh(io); }

void conn_open(struct io *io, int fd)
{
    struct server *s = io->srv;
    int            one = 1, lowat = NOTSENT_LOWAT;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &lowat, sizeof lowat);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);

    bool full = atomic_load_explicit(&io->n_conn, memory_order_relaxed) >= s->conns_per_io;
    if (full && make_room(io)) full = false;
    struct peer peer = peer_of(fd);
    bool        crowded = !crowd_enter(s->crowd, peer);
    /* Over TLS a refusal would cost a handshake, which is most of what a request costs. */
    const char *why = NULL;
    if ((full || crowded) && (s->tls || io->n_reject >= 64))
        why = "over --max-connections";
    else if (s->tls && !may_shake(io))
        why = "too many TLS handshakes at one time";
    struct conn *c = why ? NULL : calloc(1, sizeof *c);
    if (c) {
        c->io = io;
        c->fd = fd;
    }
    if (!c || !(s->tls ? open_tls(c) : open_plain(c))) {
        LOG_WARN_LIMITED("conn: %s, closing a new connection", why ? why : "out of memory");
        if (s->tls) tls_count(s->tls, TLS_UNFINISHED);
        if (!crowded) crowd_leave(s->crowd, peer);
        free(c);
        close(fd);
        return;
    }
    c->peer = peer;
    c->counted = !crowded;
    c->req.cors = -1;
    list_add_tail(&io->conns, &c->node);
    list_init(&c->idle);
    list_init(&c->unsent);
    list_init(&c->still);
    list_add_tail(&io->fresh, &c->fresh);
    wheel_node_init(&c->timer);
    buf_init(&c->body, s->body_max);
    http_begin(&c->http);
    atomic_fetch_add_explicit(&io->n_conn, 1, memory_order_relaxed);
    conn_enter(c, CONN_HEAD);
    if (full || crowded) {
        c->rejected = true;
        c->linger_after = true;
        c->close_after = true;
        io->n_reject++;
        conn_fail(c, 503, "", "%s", crowded ? "too many connections from this address" : "too many connections");
        return;
    }
    want_input(c, true);
}

void conn_release_body(struct conn *c)
{
    buf_free(&c->body);
    budget_give(&c->io->srv->bodies, c->body_charge);
    c->body_charge = 0;
}

uint64_t conn_take_body(struct conn *c, struct buf *body_out)
{
    uint64_t charge = c->body_charge;
    *body_out = c->body;
    buf_init(&c->body, 0);
    c->body_charge = 0;
    return charge;
}

void conn_give_body(struct server *s, struct buf *body, uint64_t charge)
{
    atomic_fetch_add_explicit(&s->n_freed, body->cap, memory_order_relaxed);
    buf_free(body);
    budget_give(&s->bodies, charge);
}

uint64_t conn_who(const struct conn *c)
{
    return c->req.tenant ? c->req.tenant : peer_hash(peer_net(c->peer), c->io->id_seed);
}

void conn_free(struct conn *c)
{
    struct io *io = c->io;
    if (c->work) c->work->gone(c->work);
    c->work = NULL;
    body_is_over(c);
    if (c->req.open && c->req.route && c->state == CONN_WAIT)
        metrics_http(io->srv->metrics, &c->req, 499, c->out_bytes - c->req.out_begin);
    conn_release_body(c);
    free(c->req.arg);
    free(c->req.query);
    free(c->req.adapter);
    free(c->req.answer_head);
    wheel_clear(&io->wheel, &c->timer);
    list_del(&c->node);
    list_del(&c->idle);
    list_del(&c->fresh);
    list_del(&c->unsent);
    unread_forget(c);
    hangup_forget(c);
    if (c->rejected) io->n_reject--;
    if (c->counted) crowd_leave(io->srv->crowd, c->peer);
    atomic_fetch_sub_explicit(&io->n_conn, 1, memory_order_relaxed);
    bool whole = c->state != CONN_WAIT && !conn_pending(c) && !c->cut;
    if (c->tls)
        tls_wire_free(c->tls, whole);
    else
        bufferevent_free(c->bev);
    free(c);
}

void conn_reset(struct conn *c)
{
    struct linger now = { .l_onoff = 1, .l_linger = 0 };
    setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    c->cut = true;
    conn_free(c);
}

void conn_close_idle(struct io *io)
{
    while (close_oldest_idle(io)) {}
}

/* ---- requests ---- */

/* A refusal that ends the connection: what the client still sends is read and dropped for a while, so that it sees the
 * answer. */
static void refuse(struct conn *c, const struct api_error *e)
{
    c->close_after = c->linger_after = true;
    conn_error(c, e);
}

/* For an answer to what never became a request. */
static void request_unknown(struct conn *c)
{
    list_del(&c->idle);
    list_del(&c->fresh);
    memset(&c->req, 0, sizeof c->req);
    c->req.cors = -1;
    c->req.minor = 1;
    c->req.open = true;
    io_request_id(c->io, c->req.id);
}

/* malloc'd; NULL: no memory. Not by strndup: no byte of zero need stand behind a head in its buffer, and
 * AddressSanitizer's strict checks look for one. */
static char *text_of(struct slice s)
{
    char *text = malloc(s.n + 1);
    if (!text) return NULL;
    memcpy(text, s.p, s.n);
    text[s.n] = 0;
    return text;
}

static void begin_request(struct conn *c, const struct http_head *d)
{
    struct request *r = &c->req;
    list_del(&c->idle);
    list_del(&c->fresh);
    memset(r, 0, sizeof *r);
    r->open = true;
    r->method = d->method;
    r->minor = d->minor;
    r->keep_alive = d->keep_alive && ++c->n_request < REQUESTS_MAX && server_state(c->io->srv) < SRV_HANDED;
    r->t_start_us = clock_us();
    r->out_begin = c->out_bytes;
    r->orca = orca_format_of(d->orca.p, d->orca.n);
    r->trace = trace_context(c->io->srv->trace, d->traceparent.p, d->traceparent.n, d->n_traceparent);
    if (r->trace.on && d->tracestate.n && d->tracestate.n <= TRACE_STATE_MAX) r->trace_state = text_of(d->tracestate);
    r->cors = -1;
    if (d->n_request_id == 1 && slice_is_id(d->request_id)) {
        memcpy(r->id, d->request_id.p, d->request_id.n);
        r->id_given = true;
    } else {
        io_request_id(c->io, r->id);
    }
    const struct str_list *cors = &c->io->srv->cfg->cors_origin;
    for (uint32_t i = 0; d->origin.n && i < cors->n; i++) {
        size_t n = strlen(cors->s[i]);
        if ((n == 1 && cors->s[i][0] == '*') || (n == d->origin.n && !memcmp(cors->s[i], d->origin.p, n)))
            r->cors = (int16_t)i;
    }
}

static bool is_json(struct slice type)
{
    const char *semi = type.n ? memchr(type.p, ';', type.n) : NULL;
    if (semi) type.n = (size_t)(semi - type.p);
    while (type.n && (type.p[type.n - 1] == ' ' || type.p[type.n - 1] == '\t')) type.n--;
    return slice_is(type, "application/json");
}

static uint64_t body_limit(const struct conn *c)
{
    return c->req.route->flags & ROUTE_GEN ? c->io->srv->body_max : c->req.route->body_max;
}

/* The client libraries of both APIs send these from a browser too; a wildcard would not hold for authorization. */
#define CORS_HEADERS                                                                                         \
    "authorization, content-type, x-api-key, x-request-id, idempotency-key, "                                \
    "anthropic-version, anthropic-beta, anthropic-dangerous-direct-browser-access, "                         \
    "openai-organization, openai-project, openai-beta, "                                                     \
    "x-stainless-lang, x-stainless-package-version, x-stainless-os, x-stainless-arch, x-stainless-runtime, " \
    "x-stainless-runtime-version, x-stainless-retry-count, x-stainless-timeout, x-stainless-helper, "        \
    "x-stainless-helper-method, x-stainless-poll-helper, x-stainless-custom-poll-interval"

static void preflight(struct conn *c)
{
    char allow[ROUTE_ALLOW_BYTES], more[ROUTE_ALLOW_BYTES + sizeof CORS_HEADERS + 200];
    snprintf(more, sizeof more,
             "Access-Control-Allow-Methods: %s\r\nAccess-Control-Allow-Headers: " CORS_HEADERS
             "\r\nAccess-Control-Max-Age: 600\r\n",
             route_allow(route_methods(c->io->srv->routes) & ~(unsigned)M_HEAD,
                         allow)); /* HEAD is allowed without being named */
    conn_respond_with(c, 204, NULL, more, NULL, 0);
}

static void no_route(const struct routes *routes, struct api_error *e, const struct http_head *d)
{
    char        path[120], list[560]; /* of all routes */
    const char *hint = route_hint(routes, d->path), *method = http_method_name(d->method);
    api_excerpt(path, sizeof path, d->path.p, d->path.n);
    route_list(routes, list, sizeof list);
    if (hint)
        api_fail(e, 404, "", "no such route: %s %s; did you mean %s? Here are %s", method, path, hint, list);
    else
        api_fail(e, 404, "", "no such route: %s %s; here are %s", method, path, list);
}

/* Everything that can be said from the head alone. False: answered. */
static bool admit(struct conn *c, const struct http_head *d)
{
    struct server      *s = c->io->srv;
    struct request     *r = &c->req;
    const struct route *rt;
    struct api_error    e = { 0 };
    bool                body = http_has_body(&c->http);
    char                allow[ROUTE_ALLOW_BYTES];
    if (d->expect_unknown)
        api_fail(&e, 417, "", "only 'Expect: 100-continue' is known");
    else if (!door_takes_host(s, d->host))
        api_fail(&e, 403, "", "the Host header is not one of this server's names; see --allowed-host");
    else if (!(rt = r->route = route_find(s->routes, d->path)))
        no_route(s->routes, &e, d);
    else if (r->cors >= 0 && d->method == M_OPTIONS) {
        preflight(c);
        return false;
    } else if (!(rt->methods & d->method))
        api_fail(&e, 405, "", "this route takes %s", route_allow(rt->methods, allow));
    else if (!door_takes_key(c, rt, d, &e))
        CHECK(e.http);
    else if (rt->flags & ROUTE_MODEL && server_state(s) == SRV_LOADING)
        api_fail(&e, 503, "", "the model is still being loaded");
    else if (rt->flags & ROUTE_MODEL && server_state(s) >= SRV_DRAINING)
        api_fail(&e, 503, "", "the server is shutting down");
    else if (rt->flags & ROUTE_JSON && !body)
        api_fail(&e, 400, "", "a body is required");
    else if (rt->flags & ROUTE_JSON && (d->n_content_type != 1 || !is_json(d->content_type)))
        api_fail(&e, 415, "",
                 "Unsupported Media Type: Only 'application/json' is allowed; send the header 'Content-Type: "
                 "application/json' (curl: --json)");
    else if (d->n_content_encoding > 1 || (d->content_encoding.n && !slice_is(d->content_encoding, "identity")))
        api_fail(&e, 415, "", "Content-Encoding is not supported");
    else if (d->length > body_limit(c))
        api_fail(&e, 413, "", "the body is larger than %llu bytes", (unsigned long long)body_limit(c));
    else if (rt->flags & ROUTE_PLATFORM && !sagemaker_head(c, d, &e))
        CHECK(e.http);
    else {
        size_t n = strlen(rt->path);
        if (rt->flags & ROUTE_PREFIX && !(r->arg = text_of((struct slice){ d->path.p + n, d->path.n - n })))
            api_fail(&e, 503, "", "out of memory");
        else if (rt->flags & ROUTE_PREFIX && d->query.n && !(r->query = text_of(d->query)))
            api_fail(&e, 503, "", "out of memory");
    }
    if (!e.http) {
        r->let_in = r->route->auth == AUTH_KEY;
        return true;
    }
    if (server_state(s) >= SRV_DRAINING || e.http == 401 || e.http == 403) c->close_after = true;
    if (body) c->close_after = c->linger_after = true; /* its body is not read */
    conn_error(c, &e);
    return false;
}

/* Takes from the common budget for bodies in steps. False: over it, and answered. */
static bool charge_body(struct conn *c)
{
    struct server *s = c->io->srv;
    uint64_t       need = c->body.cap > BODY_FIRST ? c->body.cap : BODY_FIRST;
    if (need <= c->body_charge) return true;
    uint64_t more = need - c->body_charge;
    if (!budget_take(&s->bodies, more)) {
        struct api_error e;
        api_fail(&e, 503, "", "too many large bodies are being read");
        refuse(c, &e);
        return false;
    }
    c->body_charge = need;
    return true;
}

static void request_complete(struct conn *c)
{
    struct server *s = c->io->srv;
    bool           in_body = c->in_body;
    c->in_body = false; /* but counted until the handler has counted the generation: a drain finds one of them */
    conn_enter(c, CONN_WAIT);
    c->req.route->handle(c); /* may free c */
    if (in_body) atomic_fetch_sub(&s->n_body, 1);
}

/* Reads a head from the input. False: nothing more to do now. */
static bool read_head(struct conn *c)
{
    struct evbuffer *in = c->in;
    size_t           n = evbuffer_get_length(in), used = 0;
    if (!n) return false;
    if (n > HTTP_HEAD_MAX) n = HTTP_HEAD_MAX;
    const char *p = (const char *)evbuffer_pullup(in, (ev_ssize_t)n);
    if (!c->partial) { /* the first byte of a request */
        c->partial = true;
        list_del(&c->idle);
        list_del(&c->fresh);
        list_add_tail(&c->io->fresh, &c->fresh); /* in order of t_state_us */
        conn_enter(c, CONN_HEAD);
    }
    struct http_head *d = &c->io->head;
    struct api_error  e = { 0 };
    int               got = p ? http_head(&c->http, p, n, d, &used, &e) : -1;
    if (got == 0) return false;
    if (got < 0) {
        if (!e.http) api_fail(&e, 503, "", "out of memory");
        request_unknown(c);
        refuse(c, &e);
        return false;
    }
    begin_request(c, d);
    bool expect = d->expect, go = admit(c, d);
    evbuffer_drain(in, used);
    if (!go) return true;
    if (!http_has_body(&c->http)) {
        request_complete(c);
        return true;
    }
    c->body_read = 0;
    c->t_read_us = clock_us();
    c->in_body = true;
    atomic_fetch_add(&c->io->srv->n_body, 1);
    conn_enter(c, CONN_BODY);
    if (!charge_body(c)) return false;
    if (expect && !evbuffer_get_length(in)) conn_out(c, "HTTP/1.1 100 Continue\r\n\r\n", 25);
    return true;
}

static bool read_body(struct conn *c)
{
    struct evbuffer *in = c->in;
    struct buf      *body = c->req.route->flags & ROUTE_JSON ? &c->body : NULL;
    size_t           n;
    c->t_read_us = clock_us();
    c->body.bytes_max = body_limit(c);
    while ((n = evbuffer_get_contiguous_space(in)) > 0) {
        struct api_error e = { 0 };
        const char      *p = (const char *)evbuffer_pullup(in, (ev_ssize_t)n);
        size_t           used = 0;
        int              got = http_body(&c->http, p, n, body_limit(c), body, &used, &e);
        c->body_read += used;
        c->req.body_bytes = c->body_read;
        if (got < 0) {
            refuse(c, &e);
            return false;
        }
        evbuffer_drain(in, used);
        if (!charge_body(c)) return false;
        if (!got) continue;
        if (body && !body->n) {
            conn_fail(c, 400, "", "a body is required");
            return true;
        }
        request_complete(c);
        return true;
    }
    return false;
}

static void read_linger(struct conn *c)
{
    struct evbuffer *in = c->in;
    size_t           n = evbuffer_get_length(in);
    c->n_linger += n;
    if (n) c->t_read_us = clock_us();
    evbuffer_drain(in, n);
    if (c->n_linger > LINGER_BYTES) want_input(c, false);
}

static void on_readable(void *arg)
{
    struct conn *c = arg;
    c->in_loop = true;
    for (bool more = true; more;) {
        if (conn_pending(c) > OUT_NEXT) break; /* answers wait for a slow reader: its next requests wait too */
        switch (c->state) {
        case CONN_HEAD: more = read_head(c); break;
        case CONN_BODY: more = read_body(c); break;
        case CONN_WAIT: more = false; break;
        case CONN_FLUSH:
        case CONN_LINGER:
            read_linger(c);
            more = false;
            break;
        }
    }
    c->in_loop = false;
    unread_note(c);
    if (c->state == CONN_WAIT && evbuffer_get_length(c->in) >= IN_MAX) hangup_watch(c);
    if (c->io->untried_bytes > OUT_UNTRIED && !c->io->flushing && !list_empty(&c->unsent)) {
        conn_flush_now(c); /* goes on with it when all is written, or frees it */
        return;
    }
    if (c->state != CONN_HEAD || conn_pending(c) > OUT_NEXT) return;
    const struct server *s = c->io->srv;
    if (c->eof || (!c->partial && c->n_request && (server_state(s) >= SRV_DRAINING || atomic_load(&s->shut_idle)))) {
        if (conn_pending(c))
            conn_enter(c, CONN_FLUSH);
        else
            conn_free(c);
    } else if (!c->partial && c->n_request && list_empty(&c->idle)) {
        list_add_tail(&c->io->idle, &c->idle);
    }
}

void conn_resume(struct conn *c) { on_readable(c); }

/* Everything is written and the connection ends. */
static void flushed(struct conn *c)
{
    if (!c->linger_after || c->eof) {
        conn_free(c);
        return;
    }
    if (c->tls && !c->cut) tls_wire_shut(c->tls);
    shutdown(c->fd, SHUT_WR);
    c->t_read_us = clock_us();
    conn_enter(c, CONN_LINGER);
    want_input(c, true);
    read_linger(c);
}

void conn_drained(struct conn *c)
{
    conn_note_drain(c, clock_us());
    if (c->work) {
        if (c->work->writable) c->work->writable(c->work);
        return;
    }
    if (conn_pending(c)) return;
    if (c->state == CONN_FLUSH)
        flushed(c);
    else if (c->state != CONN_WAIT && c->state != CONN_LINGER)
        conn_resume(c); /* what waited for the output to drain, or for the end */
}

static void on_writable(void *arg)
{
    struct conn *c = arg;
    unread_note(c);
    if (c->writing && !conn_pending(c)) {
        c->writing = false;
        if (c->bev) bufferevent_disable(c->bev, EV_WRITE);
    }
    conn_drained(c);
}

/* The client sends no more. */
static void input_ended(struct conn *c)
{
    c->eof = true;
    struct api_error e;
    switch (c->state) {
    case CONN_HEAD:
        if (c->io->srv->half_close_serve && conn_pending(c))
            break; /* whole requests may wait for the output: conn_drained */
        if (c->partial && evbuffer_get_length(c->in)) {
            request_unknown(c);
            api_fail(&e, 400, "", "the request ended in its head");
            refuse(c, &e);
        } else if (conn_pending(c)) {
            conn_enter(c, CONN_FLUSH);
        } else {
            conn_free(c);
        }
        break;
    case CONN_BODY:
        api_fail(&e, 400, "", "the request ended in its body");
        refuse(c, &e);
        break;
    case CONN_WAIT:
        if (!c->io->srv->half_close_serve) conn_free(c);
        break;
    case CONN_FLUSH: break;
    case CONN_LINGER: conn_free(c); break;
    }
}

/* ---- the socket: plain, or over TLS ---- */

static void on_plain_read(struct bufferevent *bev, void *arg)
{
    (void)bev;
    on_readable(arg);
}

static void on_plain_write(struct bufferevent *bev, void *arg)
{
    (void)bev;
    on_writable(arg);
}

static void on_plain_event(struct bufferevent *bev, short what, void *arg)
{
    (void)bev;
    if (what & BEV_EVENT_ERROR)
        conn_free(arg);
    else if (what & BEV_EVENT_EOF)
        input_ended(arg);
}

/* False: no memory; the socket stays open. */
static bool open_plain(struct conn *c)
{
    c->bev = bufferevent_socket_new(c->io->base, c->fd, BEV_OPT_CLOSE_ON_FREE);
    if (!c->bev) return false;
    c->in = bufferevent_get_input(c->bev);
    c->out = bufferevent_get_output(c->bev);
    bufferevent_setcb(c->bev, on_plain_read, on_plain_write, on_plain_event, c);
    bufferevent_setwatermark(c->bev, EV_READ, 0, IN_MAX);
    bufferevent_set_max_single_write(c->bev, OUT_PAUSE);
    bufferevent_disable(c->bev, EV_WRITE); /* conn_flush writes */
    return true;
}

/* The client speaks plain HTTP. It hears so in a plain answer, on the same socket. */
static void no_tls(struct conn *c)
{
    struct api_error e;
    struct tls_wire *wire = c->tls;
    if (!open_plain(c)) {
        conn_free(c);
        return;
    }
    c->tls = NULL;
    tls_wire_give_up(wire);
    request_unknown(c);
    api_fail(&e, 400, "", "plain HTTP was sent to a port that takes TLS alone: use https://");
    refuse(c, &e);
}

static void on_tls_ended(void *arg, enum tls_end end)
{
    switch (end) {
    case TLS_END_CLOSED: input_ended(arg); break;
    case TLS_END_BROKEN: conn_free(arg); break;
    case TLS_END_PLAIN: no_tls(arg); break;
    }
}

/* As open_plain. */
static bool open_tls(struct conn *c)
{
    static const struct tls_wire_calls calls = { on_readable, on_writable, on_tls_ended };
    c->tls = tls_wire_open(c->io, c->fd, &calls, c);
    if (!c->tls) return false;
    c->in = tls_wire_input(c->tls);
    c->out = tls_wire_output(c->tls);
    return true;
}

static void want_input(struct conn *c, bool on)
{
    if (c->tls)
        tls_wire_read(c->tls, on);
    else if (on)
        bufferevent_enable(c->bev, EV_READ);
    else
        bufferevent_disable(c->bev, EV_READ);
}

/* ---- time ---- */

/* A newcomer over the cap gets the shorter time: its place is one of few. */
static uint64_t linger_end(const struct conn *c)
{
    uint64_t quiet = c->t_read_us + LINGER_US;
    uint64_t whole = c->t_state_us + (c->rejected ? LINGER_US : LINGER_WHOLE_US);
    return quiet < whole ? quiet : whole;
}

/* When something may be due: looked at then, so too early is harmless. */
static void conn_watch(struct conn *c, uint64_t now_us)
{
    uint64_t due = 0;
    switch (c->state) {
    case CONN_HEAD: due = c->t_state_us + (c->n_request && !c->partial ? KEEP_ALIVE_US : HEAD_US); break;
    case CONN_BODY: due = now_us + CONN_WATCH_US; break;
    case CONN_WAIT: due = now_us + 3 * CONN_WATCH_US; break;
    case CONN_FLUSH: due = now_us + CONN_WATCH_US; break;
    case CONN_LINGER: due = linger_end(c); break;
    }
    if (conn_pending(c) && due > now_us + CONN_WATCH_US) due = now_us + CONN_WATCH_US;
    wheel_set(&c->io->wheel, &c->timer, due);
}

static void timeout_request(struct conn *c, const char *what)
{
    struct api_error e;
    if (c->state == CONN_HEAD) request_unknown(c);
    api_fail(&e, 408, "", "%s", what);
    refuse(c, &e);
}

void conn_timer(struct wheel_node *node, uint64_t now)
{
    struct conn *c = LIST_ENTRY(node, struct conn, timer);
    conn_note_drain(c, now);
    if (conn_pending(c) && now - c->t_drain_us >= (c->stream ? STALL_SSE_US : STALL_US)) {
        LOG_DEBUG("conn: nothing was read for %d s, closing", c->stream ? STALL_SSE_US / 1000000 : STALL_US / 1000000);
        conn_reset(c);
        return;
    }
    switch (c->state) {
    case CONN_HEAD:
        if (!c->partial && now - c->t_state_us >= (c->n_request ? KEEP_ALIVE_US : HEAD_US)) {
            conn_free(c);
            return;
        }
        if (c->partial && now - c->t_state_us >= HEAD_US) {
            timeout_request(c, "the request head took longer than 10 s");
            return;
        }
        break;
    case CONN_BODY:
        if (now - c->t_read_us >= BODY_IDLE_US ||
            now - c->t_state_us >= BODY_IDLE_US + c->body_read * 1000000 / BODY_RATE) {
            timeout_request(c, "the request body came too slowly");
            return;
        }
        break;
    case CONN_WAIT:
        if (c->work && c->work->tick) c->work->tick(c->work, now);
        break;
    case CONN_FLUSH:
        if (!conn_pending(c)) {
            flushed(c);
            return;
        }
        break;
    case CONN_LINGER:
        if (now >= linger_end(c)) {
            conn_free(c);
            return;
        }
        break;
    }
    conn_watch(c, now);
}
