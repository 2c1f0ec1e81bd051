/* conn: one client socket: bytes in within limits, requests one at a time, answers out in order, timeouts.
 * Thread: its io thread.
 *
 *   HEAD --head complete--> BODY --body complete--> WAIT --answer written--> HEAD ...
 *      \________ refused _____\______ refused _______\--- close --> FLUSH --written--> LINGER --done or 2 s--> freed
 *
 * A request that arrives while one is answered stays in the input buffer (at most IN_MAX; then the socket is not read).
 * Handlers run in WAIT and end in exactly one conn_respond / conn_error, or conn_stream_begin ... conn_stream_end. */
#pragma once
#include "server/http.h"
#include "server/io.h"
#include "server/orca.h"
#include "server/peer.h"
#include "server/router.h"
#include "server/sessions.h"
#include "server/trace.h"

struct bufferevent;
struct evbuffer;
struct tls_wire;

/* The work behind a request that takes time. Embedded in the struct of that work; conn.work points to it from the
 * handler until the answer is complete. */
struct conn_work {
    void (*gone)(struct conn_work *w);     /* the connection has closed: cancel the work and drop the pointer to it */
    void (*writable)(struct conn_work *w); /* the pending output fell to the low-water mark; may be NULL */
    void (*tick)(struct conn_work *w,
                 uint64_t          now_us); /* called every few seconds; must not end the answer; may be NULL */
};

/* Takes the whole answer of a connection without a socket; the connection may be gone then. */
typedef void conn_answer(struct conn *c, int status, const void *body, size_t n);

enum conn_state { CONN_HEAD, CONN_BODY, CONN_WAIT, CONN_FLUSH, CONN_LINGER };

/* The request being read or answered. */
struct request {
    const struct route *route; /* NULL: refused before the route was known */
    unsigned            method, minor;
    bool                keep_alive, id_given, open; /* open: a request is being read or answered */
    bool                let_in;                     /* its route needs authorization, and it has it */
    char                id[129];                    /* X-Request-Id, from the client or made here */
    uint64_t            tenant;                     /* 0: anonymous */
    uint64_t            t_start_us;                 /* time at which its head was complete */
    char               *arg;                        /* rest of the path of a ROUTE_PREFIX row; malloc'd */
    char               *query;                      /* likewise: what is behind '?', or NULL; malloc'd */
    char               *answer_head;                /* header lines for any answer to it, or NULL; malloc'd */
    bool                events;                     /* it accepts text/event-stream */
    char                session[SESSION_ID_BYTES];  /* of SageMaker, open; "": none */
    char               *adapter;       /* SageMaker's name of the adapter that answers, or NULL; malloc'd */
    bool                adapter_given; /* by its identifier, beside which an alias does not count */
    int16_t             cors;          /* index into --cors-origin; -1: none */
    int                 status;        /* of the answer; 0: none yet */
    uint64_t body_bytes, out_begin;    /* body_bytes: size of its body; out_begin: conn.out_bytes before the answer */
    enum orca_format     orca;         /* form of the load report that it asks for */
    struct trace_context trace;
    char                *trace_state; /* malloc'd, or NULL */
};

struct conn {
    struct io          *io;
    int                 fd;
    struct bufferevent *bev;      /* of a plain connection, or NULL */
    struct tls_wire    *tls;      /* of one over TLS, or NULL */
    struct evbuffer    *in, *out; /* of either: bytes from the client, and bytes that the socket has not taken */
    conn_answer        *answer;   /* of a request of this process's own (inner.h), which has no socket; else NULL */
    struct peer         peer;
    uint64_t            tenant_seen; /* tenant of the last valid key on this connection; 0: none */
    struct list         node, unsent;
    struct list         still;       /* in io.unread: has bytes that its client does not read */
    struct list         idle, fresh; /* links of io.idle (between requests) and io.fresh (no complete head yet) */
    struct wheel_node   timer;
    struct http         http;
    struct request      req;
    struct buf          body;
    uint64_t            body_charge; /* taken from server.bodies */
    uint64_t            body_read;
    struct conn_work   *work; /* in WAIT: the work behind the answer, if it takes time */
    enum conn_state     state;
    uint64_t            t_state_us, t_read_us, t_drain_us;
    uint64_t            out_bytes, out_drained; /* bytes ever queued for the socket; those that were written */
    uint64_t            held, held_drained;     /* for unread.h: the counted bytes, and out_drained at that time */
    enum unread_class   held_class;
    uint64_t            n_linger;
    uint32_t            n_request;
    bool                writing; /* the socket was full; libevent writes until the output is empty */
    bool stream, chunked_out, close_after, linger_after, eof, in_loop, rejected, partial, counted, watched;
    bool in_body; /* counted in server.n_body */
    bool cut;     /* its last answer is not complete */
};

/* Takes over an accepted socket. Where there are too many connections the client gets a 503, or the socket is closed
 * at once. Io thread. */
void conn_open(struct io *io, int fd);
void conn_free(struct conn *c);      /* at once; cancels its work */
void conn_reset(struct conn *c);     /* the same, with RST: for a client that does not read */
void conn_flush(struct conn *c);     /* tries to write the pending output; may free c */
void conn_close_idle(struct io *io); /* closes all idle connections (drain) */
/* What the timer wheel calls when a connection has been silent for its time; it may free the connection. */
void conn_timer(struct wheel_node *n, uint64_t now_us);

/* ---- for handlers ---- */
void conn_respond(struct conn *c, int status, const char *content_type, const void *body, size_t n);
void conn_respond_with(struct conn *c, int status, const char *content_type, const char *more_headers, const void *body,
                       size_t n);
void conn_error(struct conn *c, const struct api_error *e);          /* also logs it with its reason, rate-limited */
void conn_error_unlogged(struct conn *c, const struct api_error *e); /* for callers that log it themselves */
/* " param=.. reason=\"..\"" for a log line, without the client's words. Returns out. */
enum { ERROR_WHY_MAX = 1000, ERROR_LINES_PER_SECOND = 20 };
const char *conn_error_why(const struct api_error *e, char *out, size_t bytes);
void conn_fail(struct conn *c, int http, const char *param, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
void conn_stream_begin(struct conn *c, const char *content_type);
/* Appends n bytes to the body of a stream, as one chunk where the client knows chunks; n 0: nothing. */
void   conn_stream_put(struct conn *c, const char *p, size_t n);
void   conn_stream_end(struct conn *c, bool clean);    /* clean false: sends no last chunk and closes the connection */
size_t conn_pending(const struct conn *c);             /* bytes not yet taken by the socket */
void   conn_set_low_water(struct conn *c, size_t low); /* work->writable is called when conn_pending falls to it */
/* Frees the body and gives its share of server.bodies back; a second call does nothing. */
void conn_release_body(struct conn *c);
/* Moves the body and its share of server.bodies to the handler, which returns the share with conn_give_body, on any
 * thread. */
uint64_t conn_take_body(struct conn *c, struct buf *body_out);
void     conn_give_body(struct server *s, struct buf *body, uint64_t charge);
uint64_t conn_who(const struct conn *c); /* for text_job: a number for the request's key, or for its address */
