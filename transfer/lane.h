/* lane: one way of moving bytes: a table of functions and a thread.   For transfer/ and for those who bring a lane of their own (the
 * simulator's fakes); who only wants the lanes that there are includes lanes.h.
 * The thread takes up to ops->depth items, best priority first, and hands them to begin; a lane that works on several at a time
 * completes them in reap. lane_done is called once per item, on the lane's thread. */
#pragma once
#include "base/list.h"
#include "base/ring.h"
#include "transfer/xfer.h"
#include <pthread.h>
#include <stdatomic.h>

struct xfer_item {
    struct list       link;
    struct xfer_job   job;
    struct xfer_seg   src, dst; /* as they were when it was posted */
    struct xfer_lane *lane;
    _Atomic bool      canceled;
    uint64_t          ticket, post_us, begin_us;
    uint32_t          left, tried; /* for the lane: bytes still to move, attempts */
    const void       *host;        /* for the crew: where its bytes lie */
    bool              checking;    /* for lane_dev: the crew has it */
    unsigned char    *bounce;      /* for the lane: what is written instead of the host's bytes; NULL: those */
    struct xfer_done  done;
};

struct lane_ops {
    const char *name;
    uint32_t    depth; /* items begun and not done */
    bool (*can)(const struct xfer_lane *l, enum xfer_kind src, enum xfer_kind dst);
    enum status (*open)(struct xfer_lane *l); /* on the lane's thread, before the first item */
    void (*begin)(struct xfer_lane *l, struct xfer_item **item, uint32_t n);
    void (*reap)(struct xfer_lane *l, bool wait); /* wait: at least one of those begun */
    void (*close)(struct xfer_lane *l);           /* on the lane's thread, nothing is begun any more */
    void (*free)(struct xfer_lane *l);
    /* The owner's thread; either may be NULL. A segment that is new, before a job names it; one that no job will name again. */
    enum status (*seg_add)(struct xfer_lane *l, const struct xfer_seg *seg);
    void (*seg_drop)(struct xfer_lane *l, const struct xfer_seg *seg);
    bool (*seg_unpin)(struct xfer_lane *l, const struct xfer_seg *seg); /* as xfer_seg_unpin; NULL: holds none */
    bool (*idle)(
        struct xfer_lane
            *l); /* on the lane's thread, or NULL: a bounded piece of what is done when nothing new is to be moved; true: there is more */
};
enum { LANE_BATCH_MAX = 64 };
/* What one direction is like: towards the host, or away from it. They are not alike, and on many lanes they run side by side. */
struct lane_rate {
    _Atomic uint64_t queued_bytes, busy_ns, busy_bytes, latency_ns;
    uint64_t         last_done_us; /* the thread's */
};
enum { LANE_RATES = 2 };
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
    _Atomic uint64_t       n_done, n_failed, bytes, n_queued;
    struct lane_rate       rate[LANE_RATES];
};

void lane_init(struct xfer_lane *l, const struct lane_ops *ops);
/* The item is finished. Its digest has been made or checked by the lane where the bytes lay on the host (lane_digest). */
void lane_done(struct xfer_item *it, enum status st);
/* MAKE or CHECK over the payload that lies at p; false: CHECK has failed. Any thread, one at a time for an item. */
bool lane_digest(struct xfer_item *it, const void *p);
