/* xfer: moves bytes between memories, and nobody above knows which lane moved them.
 * xfer_create -> xfer_lane (each) -> xfer_seg (each) -> xfer_start -> post / cancel / poll ... -> xfer_free.
 * Thread: one owner posts, cancels and polls; each lane has a thread of its own. Nothing is allocated after xfer_create.
 *
 * Memory is registered as segments. A job moves `bytes` from a place in one segment to a place in another; the first lane that
 * can do this pair of kinds takes it (a load: of all that can, the one with the least to do). Every accepted job completes exactly once, whatever happens to it: done, failed, canceled or
 * too late. Until then its memory is not touched by the owner; a cancel asks, and the completion says that the memory is free.
 * Loads go before prefetches, prefetches before stores; what has waited long rises, so that nothing starves.
 * In the spirit of NIXL (agents, registered segments, descriptors, notifications). */
#pragma once
#include "base/status.h"
#include "transfer/digest.h"
#include "transfer/seal.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum xfer_kind { XFER_DEVICE, XFER_HOST, XFER_FILE, XFER_OBJECT, XFER_REMOTE, XFER_KINDS };
enum xfer_prio { XFER_LOAD, XFER_PREFETCH, XFER_STORE, XFER_PRIOS };
/* MAKE: digest of the bytes on the host side goes into xfer_done. CHECK: they must have that of the job, or the job fails with
 * ST_INVALID and, where the host is the source, nothing is written. On the lane's thread. */
enum xfer_digest { XFER_DIGEST_NONE, XFER_DIGEST_MAKE, XFER_DIGEST_CHECK };
enum { XFER_SEG_NONE = 0, XFER_LANES_MAX = 8 };

struct xfer;
struct xfer_lane;
struct device;
/* A pool of blocks that lies in slices on the devices of all ranks: block b of rank r at base + b * bytes there. As a segment it is one
 * row of whole blocks, each the slices of it in order of rank; a job moves one of them. */
struct xfer_rank {
    struct device *dev;
    unsigned char *base;  /* on it */
    uint64_t       bytes; /* of a block: this rank's slice */
};
enum { XFER_RANKS_MAX = 64 };
struct xfer_ranks {
    uint32_t         n;
    uint64_t         block_bytes; /* sum of the slices */
    struct xfer_rank rank[XFER_RANKS_MAX];
};
struct xfer_seg {
    enum xfer_kind kind;
    unsigned char *base;   /* HOST; DEVICE without ranks, which is memory of this process */
    int            fd;     /* FILE; stays open until xfer_seg_drop has returned */
    bool           direct; /* FILE: opened with O_DIRECT: places, lengths and memory are multiples of 4096 */
    uint64_t       bytes;
    /* FILE: what is written there is sealed, what is read is opened, on the lane's thread, as a blob whose head is the job's skip; what
     * does not open is ST_INVALID. NULL: plain. Outlives the segment's jobs. */
    const struct seal_key   *seal;
    const struct xfer_ranks *ranks; /* DEVICE: or NULL; outlives them too */
};
struct xfer_job {
    uint32_t         src, dst; /* segments */
    uint64_t         src_off, dst_off;
    uint32_t         bytes;
    uint32_t         skip, tail; /* leading and last bytes that the digest leaves out (a record's head, what fills its last page) */
    enum xfer_prio   prio;
    enum xfer_digest digest_mode;
    struct digest    digest; /* CHECK */
    /* CHECK: the digest of the job is under this key, not xfer's; when it fits, xfer_done has the one under xfer's. NULL: xfer's. Outlives
     * the job. */
    const struct digest_key *check_key;
    uint64_t                 deadline_us; /* not begun by then: ST_TIMEOUT; 0: none */
    uint64_t                 cookie;
    bool                     quiet; /* done well it wakes nobody: another one of the owner's will */
};
struct xfer_done {
    uint64_t      cookie;
    enum status   st;     /* ST_OK, ST_CANCELED, ST_TIMEOUT, ST_IO, ST_INVALID (digest), ST_TOO_LARGE (no space), ST_DEVICE */
    struct digest digest; /* MAKE; CHECK under check_key */
    uint32_t      bytes, wait_us, run_us; /* in the queue, in the lane */
};
/* Per lane, since start; any thread. bytes_per_s and latency_us: moving averages of what completed. */
struct xfer_rate {
    uint64_t queued_bytes;
    double   bytes_per_s, latency_us;
};
struct xfer_stats {
    const char      *lane;
    uint64_t         n_done, n_failed, bytes, n_queued;
    struct xfer_rate to_host[2]; /* [0]: away from the host */
};
struct xfer_cfg {
    uint32_t          jobs_max; /* posted and not polled */
    struct digest_key key;
    uint64_t (*clock)(void); /* NULL: the monotonic clock */
    bool pumped;             /* no threads: xfer_poll does the work (the simulator) */
};

enum status xfer_create(const struct xfer_cfg *cfg, struct xfer **x_out);
enum status xfer_lane_add(struct xfer *x, struct xfer_lane *lane); /* takes it over; before xfer_start; order is preference */
enum status xfer_start(struct xfer *x);
void        xfer_free(struct xfer *x); /* cancels what is queued, waits for what runs */

/* ST_AGAIN: no room. Any time; devices before xfer_start, for lanes prepare HOST memory for those that they know. Else: a lane has refused and logged. */
enum status xfer_seg_add(struct xfer *x, const struct xfer_seg *seg, uint32_t *id_out);
void        xfer_seg_drop(struct xfer *x, uint32_t id); /* no job may name it any more (CHECK) */
/* HOST: pages of it are to be given back to the system: lanes let go of them, and move what lies there without. false: not yet, or one
 * cannot; ask again. */
bool xfer_seg_unpin(struct xfer *x, uint32_t id);
/* ST_AGAIN: jobs_max are out. ST_CONFIG: no lane moves between these kinds. ticket_out (may be NULL): for xfer_cancel. */
enum status xfer_post(struct xfer *x, const struct xfer_job *job, uint64_t *ticket_out);
void        xfer_cancel(struct xfer *x, uint64_t ticket); /* no-op when it has completed */
uint32_t    xfer_poll(struct xfer *x, struct xfer_done *done, uint32_t max);
int         xfer_fd(const struct xfer *x); /* readable when something may be done; xfer_arm before sleeping on it */
bool        xfer_arm(struct xfer *x);      /* false: poll again first */
void        xfer_ack(struct xfer *x);      /* after a wake */
uint32_t    xfer_stats(const struct xfer *x, struct xfer_stats *out, uint32_t max); /* lanes */
/* What a job of so many bytes between these kinds takes when posted now, in us, what waits before it for the same direction included; 0: no lane, or nothing is known of it. */
double xfer_estimate_us(const struct xfer *x, enum xfer_kind src, enum xfer_kind dst, uint64_t bytes);
