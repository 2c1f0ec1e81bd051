/* lane: one way of moving bytes: a table of functions and a thread. Include it to write a lane (transfer/ and the
 * simulator's fakes do); to use the existing lanes include lanes.h.   Thread: each lane's own, except where a comment
 * says otherwise.
 * The thread takes up to ops->depth items, best priority first, and passes them to begin. A lane that works on several
 * items at a time completes them in reap. It calls lane_done once per item. */
#pragma once
#include "base/list.h"
#include "base/ring.h"
#include "transfer/xfer.h"
#include <pthread.h>
#include <stdatomic.h>

/* In this order: the owner reads one line of the cache when the item has come back, and the lane writes two. */
struct xfer_item {
    struct xfer_done       done;
    const struct xfer_seg *src, *dst; /* of xfer; they stay as they are while the job is open */
    struct list            link;
    uint64_t               begin_us;
    uint32_t               left, tried; /* for the lane: bytes still to move, attempts */
    const void            *host;        /* for the crew: the item's bytes on the host */
    bool                   checking;    /* for lane_dev: the item is with the crew */
    unsigned char  *bounce; /* for the lane: a sealed copy that is written instead of the host's bytes; NULL: no copy */
    struct xfer_job job;
    struct xfer_lane *lane;
    _Atomic bool      canceled;
    uint64_t          ticket, post_us;
};

struct lane_ops {
    const char *name;
    uint32_t    depth; /* items begun and not done */
    bool (*can)(const struct xfer_lane *l, enum xfer_kind src, enum xfer_kind dst);
    enum status (*open)(struct xfer_lane *l); /* on the lane's thread, before the first item */
    void (*begin)(struct xfer_lane *l, struct xfer_item **item, uint32_t n);
    void (*reap)(struct xfer_lane *l, bool wait); /* wait: until at least one begun item is done */
    void (*close)(struct xfer_lane *l);           /* on the lane's thread, after the last item */
    void (*free)(struct xfer_lane *l);
    /* The owner's thread; either may be NULL. seg_add: a new segment, before any job names it. seg_drop: a segment that
     * no later job names. */
    enum status (*seg_add)(struct xfer_lane *l, const struct xfer_seg *seg);
    void (*seg_drop)(struct xfer_lane *l, const struct xfer_seg *seg);
    bool (*seg_unpin)(struct xfer_lane *l, const struct xfer_seg *seg); /* as xfer_seg_unpin; NULL: holds none */
    /* NULL, or: waits instead of the lane's own sleep while nothing is begun, until there is something in the inbox or
     * of the lane's own to do. The lane's reap then waits for both as well. */
    void (*sleep)(struct xfer_lane *l);
    bool (*idle)(
        struct xfer_lane *
            l); /* on the lane's thread, or NULL: a bounded piece of what is done when nothing new is to be moved; true: there is more */
};
enum { LANE_BATCH_MAX = 64 };
/* Measurements of one direction: towards the host, or away from it. Their speeds differ, and on many lanes both run at
 * once. */
struct lane_rate {
    _Atomic uint64_t done_bytes, busy_ns, busy_bytes, latency_ns;
    uint64_t         last_done_us; /* the thread's */
    bool             learns;       /* the thread's: one has been moved, the next ones tell the bandwidth */
};
enum { LANE_RATES = 2 };
/* Index into xfer_lane.rate: what comes to the host is measured apart from what leaves it. */
static inline int lane_rate_of(enum xfer_kind dst) { return dst == XFER_HOST; }
struct xfer_lane {
    const struct lane_ops *ops;
    struct xfer           *x;
    struct ring            inbox;
    pthread_t              thread;
    bool                   started;
    enum status            st; /* of open; the thread's, as are the next two */
    uint32_t               n_begun;
    struct list            queue[XFER_PRIOS];
    _Atomic bool           stop;
    _Atomic uint64_t       n_done, n_failed, bytes; /* n_done: also of the failed ones */
    struct lane_rate       rate[LANE_RATES];
    /* What the owner has posted, ever. Apart from what the thread writes: a line that two cores write costs each of
     * them 100 ns. */
    char             pad[64];
    _Atomic uint64_t n_posted, posted_bytes[LANE_RATES];
    uint32_t         n_untold; /* posted, and a lane that sleeps does not know of them */
};

/* Adds to a counter that only the calling thread writes. */
static inline void lane_count(_Atomic uint64_t *c, uint64_t n)
{
    atomic_store_explicit(c, atomic_load_explicit(c, memory_order_relaxed) + n, memory_order_relaxed);
}

/* The common part of a lane, not started. ops must live as long as the lane. */
void lane_init(struct xfer_lane *l, const struct lane_ops *ops);
/* Finishes the item. Before that the lane has computed or checked its digest where its bytes lay on the host
 * (lane_digest). */
void lane_done(struct xfer_item *it, enum status st);
/* Does the item's MAKE or CHECK over its payload at p. false: CHECK has failed. Any thread, one at a time for an
 * item. */
bool lane_digest(struct xfer_item *it, const void *p);
