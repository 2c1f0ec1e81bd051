/* xfer: moves bytes between memories and files; its user does not know which lane moved them.
 * xfer_create -> xfer_lane (each) -> xfer_seg (each) -> xfer_start -> post / cancel / poll ... -> xfer_free.
 * Thread: one owner posts, cancels and polls; each lane has a thread of its own. Nothing is allocated after
 * xfer_create.
 *
 * Memory is registered as segments. A job moves `bytes` from a place in one segment to a place in another. A job of the
 * host whose two places are one writes nothing: only its digest is made or checked. The first
 * lane that handles this pair of kinds takes the job; a load goes to the least busy of these lanes. Every accepted job
 * completes exactly once: done, failed, canceled or too late. Until then the owner must not touch the job's memory. A
 * cancel is a request: only the completion frees the memory. Loads go before prefetches, prefetches before stores. A
 * job that has waited long rises in priority, so that no job starves. In the spirit of NIXL (agents, registered
 * segments, descriptors, notifications). */
#pragma once
#include "base/status.h"
#include "transfer/digest.h"
#include "transfer/seal.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum xfer_kind { XFER_DEVICE, XFER_HOST, XFER_FILE, XFER_OBJECT, XFER_REMOTE, XFER_KINDS };
enum xfer_prio { XFER_LOAD, XFER_PREFETCH, XFER_STORE, XFER_PRIOS };
/* MAKE: the lane computes the digest of the bytes on the host side and returns it in xfer_done. CHECK: the digest must
 * equal the job's. If not, the job fails with ST_INVALID, and nothing is written if the host is the source. The lane's
 * thread does both. */
enum xfer_digest { XFER_DIGEST_NONE, XFER_DIGEST_MAKE, XFER_DIGEST_CHECK };
enum { XFER_SEG_NONE = 0, XFER_LANES_MAX = 8 };

struct xfer;
struct xfer_lane;
struct device;
/* A pool of blocks that are divided into slices on the devices of all ranks: the slice of block b on rank r begins at
 * base + b * bytes there. As a segment the pool is a row of whole blocks, each of them its slices in order of rank. A
 * job moves one block.
 * With piece_bytes a job moves a piece of one: piece p begins at p * piece_bytes of the block, the last one so that it
 * ends with the block, and overlaps the one before. It is made of as many pieces of the ranks' slices, cut alike. */
struct xfer_rank {
    struct device *dev;
    unsigned char *base;  /* on it */
    uint64_t       bytes; /* of a block: this rank's slice */
    uint64_t       piece; /* of a piece: this rank's part; at most bytes */
};
enum { XFER_RANKS_MAX = 64 };
struct xfer_ranks {
    uint32_t         n;
    uint64_t         block_bytes; /* sum of the slices */
    uint64_t         piece_bytes; /* sum of the pieces; 0: blocks move whole */
    struct xfer_rank rank[XFER_RANKS_MAX];
};
/* How the places of a segment of objects are named: a place is the number of an object << XFER_OBJECT_SHIFT, and a byte
 * in it. name: the lane's thread; what it gives does not change while a job names the object. */
enum { XFER_OBJECT_SHIFT = 40, XFER_OBJECT_NAME = 256 };
struct xfer_objects {
    void (*name)(const struct xfer_objects *o, uint64_t object, char *name_out); /* [XFER_OBJECT_NAME] */
    const void *ctx;
};
struct xfer_seg {
    enum xfer_kind kind;
    unsigned char *base;   /* HOST; DEVICE without ranks, which is memory of this process */
    int            fd;     /* FILE; stays open until xfer_seg_drop has returned */
    bool           lent;   /* HOST, mapped from fd: a lane to other machines may let their servers read it */
    bool           direct; /* FILE: opened with O_DIRECT: places, lengths and memory are multiples of 4096 */
    uint64_t       bytes;
    uint64_t       epoch; /* REMOTE: of the connection to the peer, whose number is in fd (peer/lane_ucx.h) */
    /* FILE: the lane's thread seals what it writes and opens what it reads. A sealed blob's head has job.skip bytes. A
     * blob that does not open gives ST_INVALID. NULL: the file is plain. The key outlives the segment's jobs. */
    const struct seal_key     *seal;
    const struct xfer_ranks   *ranks;   /* DEVICE: or NULL; outlives the segment's jobs */
    const struct xfer_objects *objects; /* OBJECT: outlives the segment's jobs */
};
struct xfer_job {
    uint32_t src, dst; /* segments */
    uint64_t src_off, dst_off;
    uint32_t bytes;
    uint32_t skip,
        tail; /* first and last bytes that the digest leaves out (a record's head, the padding of its last page) */
    enum xfer_prio   prio;
    enum xfer_digest digest_mode;
    struct digest    digest; /* CHECK */
    /* CHECK: the key of the job's digest, if it is not xfer's. On success xfer_done returns the digest under xfer's
     * key. NULL: xfer's key. It outlives the job. */
    const struct digest_key *check_key;
    /* CHECK: after the job's digest has proven right, the first `head` bytes must have the digest (under the same key)
     * that follows them. 0: nothing is checked. */
    uint32_t head;
    uint64_t deadline_us; /* a job that has not begun by then gets ST_TIMEOUT; 0: none */
    uint64_t cookie;
    uint64_t post_us; /* the time, where the owner has just asked for it; 0: xfer asks */
    bool     quiet;   /* success does not wake the owner; a later job will */
};
struct xfer_done {
    uint64_t    cookie;
    enum status st; /* ST_OK, ST_CANCELED, ST_TIMEOUT, ST_IO, ST_INVALID (digest), ST_TOO_LARGE (no space), ST_DEVICE */
    struct digest digest;                 /* MAKE; CHECK under check_key */
    uint32_t      bytes, wait_us, run_us; /* in the queue, in the lane */
    bool          bad_head;               /* ST_INVALID for xfer_job.head, not for the digest */
};
/* Per lane, since start; any thread. bytes_per_s and latency_us: moving averages over completed jobs. */
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
    uint32_t          jobs_max; /* jobs that are posted and not yet polled */
    struct digest_key key;
    uint64_t (*clock)(void); /* NULL: the monotonic clock */
    bool pumped;             /* no threads: xfer_poll does the work (the simulator) */
};

/* Makes it with all its memory. cfg is copied. ST_NOMEM. */
enum status xfer_create(const struct xfer_cfg *cfg, struct xfer **x_out);
enum status xfer_lane_add(struct xfer      *x,
                          struct xfer_lane *lane); /* takes it over; before xfer_start; order is preference */
/* Starts the threads of the lanes, once, after all lanes were added. The status of the first lane that could not
 * start. */
enum status xfer_start(struct xfer *x);
void        xfer_free(struct xfer *x); /* cancels queued jobs, waits for running ones */

/* Callable any time, but add DEVICE segments before xfer_start: lanes pin HOST memory for the devices that they know.
 * ST_AGAIN: too many segments. Other errors: a lane has refused the segment and has logged why. */
enum status xfer_seg_add(struct xfer *x, const struct xfer_seg *seg, uint32_t *id_out);
void        xfer_seg_drop(struct xfer *x, uint32_t id); /* CHECKs that no open job names it */
/* HOST: before pages of the segment are returned to the system, lanes must unpin them; afterwards they move these bytes
 * without pinned memory. false: a lane has not unpinned them yet, or cannot; ask again. */
bool xfer_seg_unpin(struct xfer *x, uint32_t id);
/* ST_AGAIN: jobs_max are out. ST_CONFIG: no lane moves between these kinds. ticket_out (may be NULL): for
 * xfer_cancel. */
enum status xfer_post(struct xfer *x, const struct xfer_job *job, uint64_t *ticket_out);
/* on: until it is off again, a lane that sleeps is woken for every 16th job that is posted to it. Either call wakes those
 * that have jobs. Each wake-up is a system call, and the lane may be done with a job before the next one is posted. */
void     xfer_gather(struct xfer *x, bool on);
void     xfer_cancel(struct xfer *x, uint64_t ticket); /* no-op when it has completed */
uint32_t xfer_poll(struct xfer *x, struct xfer_done *done, uint32_t max);
void     xfer_wake(struct xfer *x);     /* any thread: the owner has something to look at beside jobs */
int      xfer_fd(const struct xfer *x); /* readable when a job may be done; call xfer_arm before sleeping on it */
bool     xfer_arm(struct xfer *x);      /* false: poll again first */
void     xfer_ack(struct xfer *x);      /* after a wake */
uint32_t xfer_stats(const struct xfer *x, struct xfer_stats *out, uint32_t max); /* lanes */
/* Estimated time in us for a job of `bytes` bytes that is posted now, including the queue before it in the same
 * direction. 0: no lane, or no measurement yet. */
double xfer_estimate_us(const struct xfer *x, enum xfer_kind src, enum xfer_kind dst, uint64_t bytes);
