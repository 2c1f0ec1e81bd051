/* io: one io thread, and what all of them share. Data, and the small functions that need no other file of the server:
 * whatever works on a connection may include this one.   Thread: struct io belongs to its io thread; struct server is
 * const after server_listen but for the atomics. */
#pragma once
#include "api/call.h"
#include "base/list.h"
#include "base/ring.h"
#include "base/thread.h"
#include "engine/engine.h"
#include "server/auth.h"
#include "server/budget.h"
#include "server/config.h"
#include "server/crowd.h"
#include "server/strikes.h"
#include "server/text.h"
#include "server/unread.h"
#include "server/wheel.h"

struct conn;
struct event;
struct event_base;
struct metrics;
struct trace;
struct routes;
struct sessions;

/* What the server needs of an engine: production is engine.h, tests and bench_sse have their own. */
struct gen_engine {
    void *ctx;
    enum status (*submit)(void *ctx, struct eng_request *r);
    void (*cancel)(void *ctx, struct eng_request *r);
    bool (*alive)(void *ctx, uint64_t now_us);
    void (*stats)(void *ctx, struct eng_stats *out);
    bool (*tiers)(void *ctx, struct kv_tiers_stats *out); /* NULL, or false: there are none */
};

/* SRV_HANDED: another process accepts; whoever is connected is served, and told to connect anew for the next
 * request. SRV_LEAVING: the same, and it accepts, but /ready says no: a balancer gets the time to notice. */
enum server_state { SRV_LOADING, SRV_READY, SRV_HANDED, SRV_LEAVING, SRV_DRAINING, SRV_STOPPING };

enum {
    OUT_PAUSE = 256 << 10, /* bytes waiting for a slow reader: above, its tokens stay in the engine's arrays */
    OUT_RESUME = 64 << 10,
    OUT_NEXT = 16 << 10,   /* bytes of earlier answers that wait: above, the next request of the connection waits too */
    OUT_UNTRIED = 1 << 20, /* bytes of all connections that no write was tried for: above, each is tried at once */
    IN_MAX = 64 << 10,     /* bytes of pipelined requests that are held while one is answered */
    GEN_FEED_TOKENS = 64,  /* between two looks at OUT_PAUSE */
    IO_MESSAGES_MAX = 1024, /* of the engine before other events get their turn */
    GIVE_BACK_US = 1000000,
    GIVE_BACK_BYTES = 1 << 20, /* less is not worth the look through the heaps */
};

/* One io thread. */
struct io {
    struct server     *srv;
    uint32_t           index;
    pthread_t          thread;
    bool               started, stopping, tick_on, flushing;
    struct event_base *base;
    struct event      *ev_inbox, *ev_outbox, *ev_tick, *ev_listen, *ev_accept_again, *ev_flush, *ev_hangup;
    int                hangup_fd;
    void (*gone)(struct conn *c); /* of hangup.h */
    struct ring      inbox;       /* from other threads: accepted sockets (fd * 2 + 1), finished text jobs */
    struct ring      outbox;      /* from the engine: eng_request messages */
    struct wheel     wheel;
    struct list      conns, idle, gens; /* idle: keep-alive between requests, the longest first */
    struct list      fresh;             /* no whole head has come yet, the longest first */
    struct list      unsent;            /* connections with output that no write was tried for */
    uint64_t         untried_bytes;     /* of those */
    struct unread    unread[UNREAD_CLASSES];
    _Atomic uint32_t n_conn;
    uint32_t         n_reject;                 /* connections over the cap that are being told so */
    uint32_t         n_request, n_request_max; /* engine requests of ours: bounded by the outbox */
    struct buf       frames;                   /* scratch: what one message becomes */
    struct http_head head;                     /* scratch: the head being read */
    uint64_t         stop_us;
    char             date[40];
    int64_t          date_s;
    uint64_t         id_seed, id_next;
    uint64_t         cpu_us; /* measured by tests */
};

struct server {
    const struct config    *cfg;
    const struct routes    *routes;
    struct auth            *auth;
    struct metrics         *metrics;
    struct trace           *trace; /* NULL: no traces */
    const struct api_model *model; /* valid from SRV_READY on */
    struct gen_engine       eng;   /* likewise */
    struct text_pool       *text;
    struct strikes         *strikes;
    struct sessions        *sessions;       /* NULL: there are none */
    char                    host_name[256]; /* of this machine */
    struct crowd           *crowd;          /* NULL: an address may have as many connections as it likes */
    struct io              *io;
    uint32_t                n_io;
    int                     listen_fd, reserve_fd;
    uint16_t                port;
    char                    address[80]; /* "127.0.0.1:8080" as bound */
    bool                    loopback, half_close_serve;
    uint32_t                conns_per_io;
    uint64_t                body_max;
    struct budget           bodies; /* request bodies that are read, wait or are prepared, and what is parsed of them */
    _Atomic uint64_t        n_freed;   /* bytes of large pieces that were freed since memory was last given back */
    _Atomic int             state;     /* enum server_state */
    _Atomic bool            fail_all;  /* every running request gets its error now */
    _Atomic bool            accepting; /* what the first io thread is to do with the listening socket */
    _Atomic bool            listening; /* what it does */
    _Atomic bool            shut_idle; /* connections that wait for nothing are closed now */
    _Atomic uint32_t        n_moving;  /* accepted sockets on their way to another io thread */
    _Atomic uint32_t        n_gen;     /* generations whose last byte is not written */
    _Atomic uint32_t        n_body;    /* requests that were let in and whose body is on its way */
    _Atomic uint64_t        n_accept_paused;
    uint64_t                t_given_back_us; /* main's */
};

static inline enum server_state server_state(const struct server *s)
{
    return (enum server_state)atomic_load_explicit(&s->state, memory_order_acquire);
}

const char *io_date(struct io *io);                     /* "Sun, 06 Nov 1994 08:49:37 GMT" */
void        io_flush_soon(struct io *io);               /* io->unsent is not empty any more */
void        io_request_id(struct io *io, char out[25]); /* fresh, 24 hex digits */
