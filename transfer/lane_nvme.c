/* lane_nvme: between host memory and files. One io_uring that its own thread alone feeds (IORING_SETUP_SINGLE_ISSUER
 * where the kernel knows it), with O_DIRECT where the file was opened so; a pool of threads with pread and pwrite where
 * the kernel refuses the ring (seccomp, gVisor, sysctl kernel.io_uring_disabled). A short transfer goes on with the
 * rest; a file that ends is an error.
 *
 * Host memory is registered with the ring piece by piece while the lane has nothing to move, so that the kernel need
 * not pin a record's pages each time; what is not registered (RLIMIT_MEMLOCK refuses, or a record lies across two
 * pieces) moves without. Files are not: a registered file would hold the disk of a segment that was removed, and at 1
 * MiB a piece looking it up costs nothing.
 * Over 500 lines: one lane with two ways to carry a job, which share its pieces, limits and completions. */
#include "base/check.h"
#include "base/log.h"
#include "base/thread.h"
#include "transfer/lane.h"
#include "transfer/lanes.h"
#include <errno.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#ifdef WITH_URING
#include <liburing.h>
#endif

enum {
    TRIES_MAX = 16,
    DEPTH_MAX = 64,
    THREADS_MAX = 16,
    BOUNCES = 8
}; /* BOUNCES: sealed blobs on their way at a time */

/* Registered memory: FREE -seg_add (owner)-> KEEP -seg_drop, seg_unpin (owner)-> DROP -let go of (lane)-> FREE */
enum { FIXED_SEGS = 8, FIXED_PIECES = 2048, FIXED_PIECE_MIN = 32 << 20, FIXED_PIECE_MAX = 1 << 30 };
enum fixed_state { FIXED_FREE, FIXED_KEEP, FIXED_DROP };
struct fixed {
    _Atomic int    state;
    unsigned char *base;
    uint64_t       bytes, piece;
    uint32_t       n, n_piece; /* pieces that are registered, of how many */
};

struct lane_nvme {
    struct xfer_lane lane; /* first */
    struct lane_ops  ops;
    uint32_t         n_thread;
    bool             no_uring, uring;
    /* sealed files: the host keeps its bytes, the file gets a copy. What waits for a bounce stands in line. */
    uint32_t       bounce_bytes;
    unsigned char *bounces, *bounce[BOUNCES];
    uint32_t       n_bounce;
    struct list    in_line;
    struct sealer *sealer; /* the lane's thread */
#ifdef WITH_URING
    struct io_uring ring;
    bool            fixed_on;
    struct fixed    fixed[FIXED_SEGS];
#endif
    /* the pool */
    struct ring    todo[THREADS_MAX], done;
    pthread_t      thread[THREADS_MAX];
    struct sealer *pool_sealer[THREADS_MAX];
    uint32_t       n_started, turn;
    _Atomic bool   stop;
    struct pool_arg {
        struct lane_nvme *l;
        uint32_t          index;
    } arg[THREADS_MAX];
};

static struct lane_nvme *nvme_of(struct xfer_lane *l) { return (struct lane_nvme *)l; }

static bool nvme_can(const struct xfer_lane *l, enum xfer_kind src, enum xfer_kind dst)
{
    (void)l;
    return (src == XFER_HOST && dst == XFER_FILE) || (src == XFER_FILE && dst == XFER_HOST);
}

static bool           is_write(const struct xfer_item *it) { return it->dst->kind == XFER_FILE; }
static int            file_of(const struct xfer_item *it) { return is_write(it) ? it->dst->fd : it->src->fd; }
static uint64_t       file_off(const struct xfer_item *it) { return is_write(it) ? it->job.dst_off : it->job.src_off; }
static unsigned char *host_of(const struct xfer_item *it)
{
    if (it->bounce) return it->bounce;
    return is_write(it) ? it->src->base + it->job.src_off : it->dst->base + it->job.dst_off;
}

static enum status status_of(int error)
{
    switch (error) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG: return ST_TOO_LARGE;
    case ECANCELED: return ST_CANCELED;
    default: return ST_IO;
    }
}

/* What n (bytes, or -errno) means for the item. true: it goes on with what is left. */
static bool nvme_goes_on(struct xfer_item *it, int64_t n, enum status *st_out)
{
    if (n == -EINTR || n == -EAGAIN)
        n = 0;
    else if (n == 0)
        n = -EIO; /* the end of the file: what is registered must be there */
    if (n < 0 || ++it->tried > TRIES_MAX) {
        *st_out = n < 0 ? status_of((int)-n) : ST_IO;
        return false;
    }
    it->left -= (uint32_t)n;
    *st_out = ST_OK;
    return it->left > 0;
}

static enum status nvme_end(struct sealer *s, struct xfer_item *it, enum status st)
{
    if (st || is_write(it)) return st;
    if (it->src->seal && !seal_blob_open(s, it->src->seal, it->job.src_off, host_of(it), it->job.skip, it->job.bytes))
        return ST_INVALID;
    return lane_digest(it, host_of(it)) ? ST_OK : ST_INVALID;
}

static void nvme_seal(struct sealer *s, struct xfer_item *it, unsigned char *bounce)
{
    seal_blob(s, it->dst->seal, it->job.dst_off, host_of(it), it->job.skip, it->job.bytes, bounce);
    it->bounce = bounce;
}

/* ---- threads */

static int64_t nvme_io(struct xfer_item *it)
{
    uint32_t at = it->job.bytes - it->left;
    ssize_t  n = is_write(it) ? pwrite(file_of(it), host_of(it) + at, it->left, (off_t)(file_off(it) + at))
                              : pread(file_of(it), host_of(it) + at, it->left, (off_t)(file_off(it) + at));
    return n < 0 ? -errno : n;
}

static void *pool_main(void *arg)
{
    struct pool_arg  *a = arg;
    struct lane_nvme *l = a->l;
    struct ring      *todo = &l->todo[a->index];
    unsigned char    *bounce = l->bounces ? l->bounces + (size_t)a->index * l->bounce_bytes : NULL; /* of its own */
    struct sealer    *sealer = l->pool_sealer[a->index];
    while (!atomic_load(&l->stop)) {
        struct xfer_item *it = ring_pop(todo);
        if (!it) {
            ring_wait(todo, -1);
            continue;
        }
        enum status st;
        if (is_write(it) && it->dst->seal) nvme_seal(sealer, it, bounce);
        while (nvme_goes_on(it, nvme_io(it), &st)) continue;
        it->done.st = nvme_end(sealer, it, st);
        CHECK(ring_push(&l->done, it));
    }
    return NULL;
}

static enum status pool_open(struct lane_nvme *l)
{
    enum status st = ring_init(&l->done, DEPTH_MAX);
    for (uint32_t i = 0; i < l->n_thread && !st; i++) {
        if ((st = ring_init(&l->todo[i], DEPTH_MAX)) || (l->bounces && (st = seal_open(&l->pool_sealer[i])))) break;
        l->arg[i] = (struct pool_arg){ l, i };
        if (!(st = thread_start(&l->thread[i], THREAD_XFER, "file", pool_main, &l->arg[i]))) l->n_started++;
    }
    return l->n_started ? ST_OK : st;
}

static void pool_close(struct lane_nvme *l)
{
    atomic_store(&l->stop, true);
    for (uint32_t i = 0; i < l->n_started; i++) {
        ring_wake(&l->todo[i]);
        pthread_join(l->thread[i], NULL);
    }
    for (uint32_t i = 0; i < l->n_thread; i++) {
        ring_free(&l->todo[i]);
        seal_close(l->pool_sealer[i]);
    }
    ring_free(&l->done);
}

static void pool_reap(struct lane_nvme *l, bool wait)
{
    struct xfer_item *it = ring_pop(&l->done);
    while (wait && !it) {
        ring_wait(&l->done, -1);
        it = ring_pop(&l->done);
    }
    for (; it; it = ring_pop(&l->done)) lane_done(it, it->done.st);
}

/* ---- the ring */

#ifdef WITH_URING
/* The registered piece that holds all of it; -1: none. */
static int fixed_find(const struct lane_nvme *l, const unsigned char *p, uint32_t bytes)
{
    for (int i = 0; l->fixed_on && i < FIXED_SEGS; i++) {
        const struct fixed *f = &l->fixed[i];
        if (atomic_load_explicit(&f->state, memory_order_acquire) != FIXED_KEEP || p < f->base ||
            p >= f->base + f->bytes)
            continue;
        uint64_t off = (uint64_t)(p - f->base), k = off / f->piece;
        return k < f->n && (off + bytes - 1) / f->piece == k ? i * FIXED_PIECES + (int)k : -1;
    }
    return -1;
}

static void fixed_open(struct lane_nvme *l)
{
    int error = io_uring_register_buffers_sparse(&l->ring, FIXED_SEGS * FIXED_PIECES);
    l->fixed_on = error == 0;
    if (error)
        LOG_INFO("xfer: memory cannot be registered for io_uring (%s), it is pinned at each transfer",
                 strerror(-error));
}

static int fixed_update(struct lane_nvme *l, int at, struct iovec *io)
{
    int n = io_uring_register_buffers_update_tag(&l->ring, (unsigned)at, io, NULL, 1);
    if (n == 1) return 0;
    return n < 0 ? n : -ENOMEM;
}

/* One piece more, or one piece fewer: the lane is soon back where it is needed. */
static bool fixed_step(struct lane_nvme *l, int i)
{
    struct fixed *f = &l->fixed[i];
    int           state = atomic_load_explicit(&f->state, memory_order_acquire);
    if (state == FIXED_DROP && f->n) {
        fixed_update(l, i * FIXED_PIECES + (int)--f->n, &(struct iovec){ 0 });
    } else if (state == FIXED_DROP) {
        atomic_store_explicit(&f->state, FIXED_FREE, memory_order_release);
    } else if (state == FIXED_KEEP && f->n < f->n_piece) {
        uint64_t off = f->n * f->piece, left = f->bytes - off;
        int      error = fixed_update(l, i * FIXED_PIECES + (int)f->n,
                                      &(struct iovec){ f->base + off, left < f->piece ? left : f->piece });
        f->n++;
        if (error) {
            LOG_INFO(
                "xfer: %llu of %llu MiB are registered for io_uring, no more (%s; ulimit -l): the rest is pinned at each transfer",
                (unsigned long long)(off >> 20), (unsigned long long)(f->bytes >> 20), strerror(-error));
            f->n--;
            f->n_piece = f->n;
        }
    } else {
        return false;
    }
    return true;
}

static void uring_put(struct lane_nvme *l, struct xfer_item *it)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&l->ring);
    CHECK(sqe); /* as many as may be begun */
    uint32_t       at = it->job.bytes - it->left;
    unsigned char *p = host_of(it) + at;
    int            fixed = fixed_find(l, p, it->left);
    if (fixed >= 0 && is_write(it))
        io_uring_prep_write_fixed(sqe, file_of(it), p, it->left, file_off(it) + at, fixed);
    else if (fixed >= 0)
        io_uring_prep_read_fixed(sqe, file_of(it), p, it->left, file_off(it) + at, fixed);
    else if (is_write(it))
        io_uring_prep_write(sqe, file_of(it), p, it->left, file_off(it) + at);
    else
        io_uring_prep_read(sqe, file_of(it), p, it->left, file_off(it) + at);
    io_uring_sqe_set_data(sqe, it);
}

/* Seals what stands in line as long as there are bounces. true: something was put. */
static bool uring_line(struct lane_nvme *l)
{
    bool any = false;
    for (; l->n_bounce && !list_empty(&l->in_line); any = true) {
        struct xfer_item *it = LIST_ENTRY(l->in_line.next, struct xfer_item, link);
        list_del(&it->link);
        nvme_seal(l->sealer, it, l->bounce[--l->n_bounce]);
        uring_put(l, it);
    }
    return any;
}

static void uring_reap(struct lane_nvme *l, bool wait)
{
    struct io_uring_cqe *cqe;
    int                  error = wait ? io_uring_wait_cqe(&l->ring, &cqe) : io_uring_peek_cqe(&l->ring, &cqe);
    bool                 more = false;
    for (; error == 0; error = io_uring_peek_cqe(&l->ring, &cqe)) {
        struct xfer_item *it = io_uring_cqe_get_data(cqe);
        enum status       st;
        bool              on = nvme_goes_on(it, cqe->res, &st);
        io_uring_cqe_seen(&l->ring, cqe);
        if (on) {
            uring_put(l, it);
            more = true;
        } else {
            if (it->bounce) l->bounce[l->n_bounce++] = it->bounce;
            lane_done(it, nvme_end(l->sealer, it, st));
        }
    }
    if (uring_line(l) || more) io_uring_submit(&l->ring);
}

static int uring_open(struct lane_nvme *l)
{
    if (l->no_uring) return -EPERM;
    int error = -EINVAL;
#ifdef IORING_SETUP_SINGLE_ISSUER
    struct io_uring_params p = { .flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_COOP_TASKRUN };
    error = io_uring_queue_init_params(2 * l->ops.depth, &l->ring, &p);
#endif
    if (error == -EINVAL) error = io_uring_queue_init(2 * l->ops.depth, &l->ring, 0); /* a kernel before 6.0 */
    if (!error) fixed_open(l);
    return error;
}

bool lane_uring_works(char *why, size_t why_bytes)
{
    struct io_uring ring;
    int             error = io_uring_queue_init(4, &ring, 0);
    if (!error) io_uring_queue_exit(&ring);
    snprintf(why, why_bytes, "%s", error ? strerror(-error) : "");
    return !error;
}
#else
bool lane_uring_works(char *why, size_t why_bytes)
{
    snprintf(why, why_bytes, "this binary was built without it");
    return false;
}

static int uring_open(struct lane_nvme *l)
{
    (void)l;
    return -ENOSYS;
}
#endif

/* ---- the lane */

static enum status nvme_open(struct xfer_lane *lane)
{
    struct lane_nvme *l = nvme_of(lane);
    int               error = uring_open(l);
    l->uring = error == 0;
    if (l->uring) return l->bounces ? seal_open(&l->sealer) : ST_OK;
    LOG_INFO("xfer: no io_uring (%s), files are read and written by %u threads",
             l->no_uring ? "off by option" : strerror(-error), l->n_thread);
    return pool_open(l);
}

static void nvme_begin(struct xfer_lane *lane, struct xfer_item **item, uint32_t n)
{
    struct lane_nvme *l = nvme_of(lane);
    for (uint32_t i = 0; i < n; i++) {
        if (is_write(item[i]) && !lane_digest(item[i], host_of(item[i]))) {
            lane_done(item[i], ST_INVALID);
            continue;
        }
        CHECK(!item[i]->dst->seal || item[i]->job.bytes <= l->bounce_bytes);
#ifdef WITH_URING
        if (l->uring && item[i]->dst->seal) {
            list_add_tail(&l->in_line, &item[i]->link);
            continue;
        }
        if (l->uring) {
            uring_put(l, item[i]);
            continue;
        }
#endif
        CHECK(ring_push(&l->todo[l->turn++ % l->n_started], item[i]));
    }
#ifdef WITH_URING
    if (!l->uring) return;
    uring_line(l);
    io_uring_submit(&l->ring);
#endif
}

static void nvme_reap(struct xfer_lane *lane, bool wait)
{
    struct lane_nvme *l = nvme_of(lane);
#ifdef WITH_URING
    if (l->uring) {
        uring_reap(l, wait);
        return;
    }
#endif
    pool_reap(l, wait);
}

static void nvme_close(struct xfer_lane *lane)
{
    struct lane_nvme *l = nvme_of(lane);
#ifdef WITH_URING
    if (l->uring) {
        io_uring_queue_exit(&l->ring);
        seal_close(l->sealer);
        return;
    }
#endif
    pool_close(l);
}

#ifdef WITH_URING
static enum status nvme_keep(struct lane_nvme *l, unsigned char *base, uint64_t bytes)
{
    uint64_t piece = FIXED_PIECE_MIN;
    while (piece < FIXED_PIECE_MAX && bytes / piece >= FIXED_PIECES) piece *= 2;
    uint64_t n = (bytes + piece - 1) / piece;
    for (int i = 0; i < FIXED_SEGS; i++) {
        struct fixed *f = &l->fixed[i];
        if (atomic_load_explicit(&f->state, memory_order_acquire) != FIXED_FREE) continue;
        f->base = base;
        f->bytes = bytes;
        f->piece = piece;
        f->n = 0;
        f->n_piece = n < FIXED_PIECES ? (uint32_t)n : FIXED_PIECES;
        atomic_store_explicit(&f->state, FIXED_KEEP, memory_order_release);
        break;
    }
    return ST_OK; /* no place: it moves unregistered */
}

static enum status nvme_seg_add(struct xfer_lane *lane, const struct xfer_seg *seg)
{
    if (seg->kind != XFER_HOST) return ST_OK;
    nvme_keep(nvme_of(lane), seg->base, seg->bytes);
    if (lane->started) ring_wake(&lane->inbox);
    return ST_OK;
}

static bool nvme_seg_unpin(struct xfer_lane *lane, const struct xfer_seg *seg)
{
    struct lane_nvme *l = nvme_of(lane);
    bool              held = false;
    for (int i = 0; seg->kind == XFER_HOST && i < FIXED_SEGS; i++) {
        struct fixed *f = &l->fixed[i];
        int           state = atomic_load_explicit(&f->state, memory_order_acquire);
        if (state == FIXED_FREE || f->base != seg->base) continue;
        held = true;
        atomic_store_explicit(&f->state, FIXED_DROP, memory_order_release);
        if (lane->started) ring_wake(&lane->inbox);
    }
    return !held;
}
static void nvme_seg_drop(struct xfer_lane *lane, const struct xfer_seg *seg) { nvme_seg_unpin(lane, seg); }

static bool nvme_idle(struct xfer_lane *lane)
{
    struct lane_nvme *l = nvme_of(lane);
    bool              any = false;
    for (int i = 0; i < FIXED_SEGS && !any; i++) {
        int drop = FIXED_DROP;
        if (l->uring && l->fixed_on)
            any = fixed_step(l, i);
        else
            atomic_compare_exchange_strong(&l->fixed[i].state, &drop, FIXED_FREE);
    }
    return any;
}
#endif

static void nvme_free(struct xfer_lane *lane)
{
    free(nvme_of(lane)->bounces);
    free(lane);
}

enum status lane_nvme_seals(struct xfer_lane *lane, uint32_t bytes)
{
    struct lane_nvme *l = nvme_of(lane);
    uint32_t          n = l->n_thread > BOUNCES ? l->n_thread : BOUNCES;
    l->bounce_bytes = (bytes + 4095) / 4096 * 4096;
    l->bounces = aligned_alloc(4096, (size_t)n * l->bounce_bytes);
    if (!l->bounces) return ST_NOMEM;
    memset(l->bounces, 0, (size_t)n * l->bounce_bytes); /* taken now, not when it is first needed */
#ifdef WITH_URING
    nvme_keep(l, l->bounces, (uint64_t)n * l->bounce_bytes);
#endif
    for (; l->n_bounce < BOUNCES; l->n_bounce++)
        l->bounce[l->n_bounce] = l->bounces + (size_t)l->n_bounce * l->bounce_bytes;
    return ST_OK;
}

struct xfer_lane *lane_nvme_create(uint32_t depth, uint32_t n_thread, bool no_uring)
{
    struct lane_nvme *l = calloc(1, sizeof *l);
    if (!l) return NULL;
    l->ops = (struct lane_ops){ .name = "lane-nvme",
                                .depth = depth && depth < DEPTH_MAX ? depth : DEPTH_MAX,
                                .can = nvme_can,
                                .open = nvme_open,
                                .begin = nvme_begin,
                                .reap = nvme_reap,
                                .close = nvme_close,
#ifdef WITH_URING
                                .seg_add = nvme_seg_add,
                                .seg_drop = nvme_seg_drop,
                                .seg_unpin = nvme_seg_unpin,
                                .idle = nvme_idle,
#endif
                                .free = nvme_free };
    l->n_thread = n_thread && n_thread < THREADS_MAX ? n_thread : 4;
    l->no_uring = no_uring;
    l->done.fd = -1;
    list_init(&l->in_line);
    lane_init(&l->lane, &l->ops);
    return &l->lane;
}
