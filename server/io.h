/* io: the data of one io thread and of the server, and small functions without further dependencies, for all files that
 * work on connections.   Thread: struct io belongs to its io thread; struct server is constant after server_listen,
 * except its atomics. */
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
struct nvml;
struct trace;
struct routes;
struct sessions;
struct tls;

/* The engine as the server calls it. boot_gen.c has the real one; tests and benches have their own. */
struct gen_engine {
    void *ctx;
    enum status (*submit)(void *ctx, struct eng_request *r);
    void (*cancel)(void *ctx, struct eng_request *r);
    void (*refuse)(void *ctx, const struct eng_request *r); /* as eng_refuse; NULL: nobody is told */
    bool (*alive)(void *ctx, uint64_t now_us);
    void (*stats)(void *ctx, struct eng_stats *out);
    bool (*tiers)(void *ctx, struct kv_tiers_stats *out);   /* NULL, or returns false: no tiers */
    bool (*events)(void *ctx, struct kv_events_stats *out); /* NULL, or returns false: no KV events */
};

/* SRV_HANDED: another process accepts connections. This one serves its connections and tells each client to reconnect
 * for the next request. SRV_LEAVING: the same, but this process still accepts, and /ready fails, so that a balancer has
 * time to notice. */
enum server_state { SRV_LOADING, SRV_READY, SRV_HANDED, SRV_LEAVING, SRV_DRAINING, SRV_STOPPING };

enum {
    OUT_PAUSE = 256 << 10, /* bytes pending for a slow reader; above it, tokens stay in the engine's arrays */
    OUT_RESUME = 64 << 10,
    OUT_NEXT = 16 << 10,   /* pending bytes of earlier answers; above it, the connection's next request waits */
    OUT_UNTRIED = 1 << 20, /* bytes of all connections without an attempt to write; above it, each is written at once */
    IN_MAX = 64 << 10,     /* most bytes of pipelined requests held while one is answered */
    GEN_FEED_TOKENS = 64,  /* tokens between two checks of OUT_PAUSE */
    IO_MESSAGES_MAX = 1024, /* messages of the engine handled before other events */
    GIVE_BACK_US = 1000000,
    GIVE_BACK_BYTES =
        1 << 20, /* least bytes freed before memory is given back; less is not worth the search of the heaps */
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
    struct list      conns, idle, gens; /* idle: keep-alive connections between requests, the longest idle first */
    struct list      fresh;             /* connections without a complete head so far, the oldest first */
    struct list      unsent;            /* connections with output and no attempt to write it yet */
    uint64_t         untried_bytes;     /* bytes of unsent */
    struct unread    unread[UNREAD_CLASSES];
    _Atomic uint32_t n_conn;
    uint32_t         n_reject;           /* connections over the limit that are being refused */
    uint32_t         n_shaking;          /* connections in their TLS handshake */
    struct list      to_shake;           /* those of them of which bytes have come, in that order (tls_wire.c) */
    struct event    *ev_shake;           /* made with the first of them */
    uint32_t   n_request, n_request_max; /* engine requests of this thread; their number is bounded by the outbox */
    struct buf frames;                   /* scratch: the frames of one message */
    struct http_head head;               /* scratch: the head being read */
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
    struct tls             *tls;   /* of the owner; NULL: plain HTTP; set before server_listen */
    struct nvml            *nvml;  /* likewise */
    const struct api_model *model; /* valid from SRV_READY on */
    struct gen_engine       eng;   /* valid from SRV_READY on */
    struct text_pool       *text;
    struct strikes         *strikes;
    struct sessions        *sessions;       /* NULL: there are none */
    char                    host_name[256]; /* of this machine */
    struct crowd           *crowd;          /* NULL: no limit of connections per address */
    struct io              *io;
    uint32_t                n_io;
    int                     listen_fd, reserve_fd;
    uint16_t                port;
    char                    address[80]; /* "127.0.0.1:8080" as bound */
    bool                    loopback, half_close_serve;
    uint32_t                conns_per_io;
    uint64_t                body_max;
    struct budget
        bodies; /* memory of request bodies being read, waiting or being prepared, and of their parsed trees */
    _Atomic uint64_t n_freed;   /* bytes of large pieces freed since memory was last returned to the system */
    _Atomic int      state;     /* enum server_state */
    _Atomic bool     fail_all;  /* all running requests end with an error now */
    _Atomic bool     accepting; /* the first io thread should accept on the listening socket */
    _Atomic bool     listening; /* it does accept */
    _Atomic bool     shut_idle; /* idle connections are closed now */
    _Atomic uint32_t n_moving;  /* accepted sockets in transit to another io thread */
    _Atomic uint32_t n_gen;     /* generations whose last byte is not written yet */
    _Atomic uint32_t n_body;    /* admitted requests whose body is still arriving */
    _Atomic uint64_t n_accept_paused;
    uint64_t         t_given_back_us; /* used by the main thread */
};

/* The state now; any thread. */
static inline enum server_state server_state(const struct server *s)
{
    return (enum server_state)atomic_load_explicit(&s->state, memory_order_acquire);
}

const char *io_date(struct io *io);                     /* "Sun, 06 Nov 1994 08:49:37 GMT" */
void        io_flush_soon(struct io *io);               /* call after adding to io->unsent */
void        io_request_id(struct io *io, char out[25]); /* fresh, 24 hex digits */
