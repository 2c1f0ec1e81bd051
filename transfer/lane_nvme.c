/* lane_nvme: between host memory and files. One io_uring that its own thread alone feeds (IORING_SETUP_SINGLE_ISSUER where the
 * kernel knows it), with O_DIRECT where the file was opened so; a pool of threads with pread and pwrite where the kernel refuses
 * the ring (seccomp, gVisor, io_uring_disabled). A short transfer goes on with the rest; a file that ends is an error. */
#include "base/check.h"
#include "base/log.h"
#include "base/thread.h"
#include "transfer/lane.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef WITH_URING
#include <liburing.h>
#endif

enum { TRIES_MAX = 16, DEPTH_MAX = 64, THREADS_MAX = 16, BOUNCES = 8 }; /* BOUNCES: sealed blobs on their way at a time */

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

static bool           is_write(const struct xfer_item *it) { return it->dst.kind == XFER_FILE; }
static int            file_of(const struct xfer_item *it) { return is_write(it) ? it->dst.fd : it->src.fd; }
static uint64_t       file_off(const struct xfer_item *it) { return is_write(it) ? it->job.dst_off : it->job.src_off; }
static unsigned char *host_of(const struct xfer_item *it)
{
    if (it->bounce) return it->bounce;
    return is_write(it) ? it->src.base + it->job.src_off : it->dst.base + it->job.dst_off;
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
    if (it->src.seal && !seal_blob_open(s, it->src.seal, it->job.src_off, host_of(it), it->job.skip, it->job.bytes)) return ST_INVALID;
    return lane_digest(it, host_of(it)) ? ST_OK : ST_INVALID;
}

static void nvme_seal(struct sealer *s, struct xfer_item *it, unsigned char *bounce)
{
    seal_blob(s, it->dst.seal, it->job.dst_off, host_of(it), it->job.skip, it->job.bytes, bounce);
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
        if (is_write(it) && it->dst.seal) nvme_seal(sealer, it, bounce);
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
    for (uint32_t i = 0; i < l->n_thread; i++) ring_free(&l->todo[i]), seal_close(l->pool_sealer[i]);
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
static void uring_put(struct lane_nvme *l, struct xfer_item *it)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&l->ring);
    CHECK(sqe); /* as many as may be begun */
    uint32_t at = it->job.bytes - it->left;
    if (is_write(it))
        io_uring_prep_write(sqe, file_of(it), host_of(it) + at, it->left, file_off(it) + at);
    else
        io_uring_prep_read(sqe, file_of(it), host_of(it) + at, it->left, file_off(it) + at);
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
    return error;
}
#else
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
    LOG_INFO("xfer: no io_uring (%s), files are read and written by %u threads", l->no_uring ? "off by option" : strerror(-error),
             l->n_thread);
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
        CHECK(!item[i]->dst.seal || item[i]->job.bytes <= l->bounce_bytes);
#ifdef WITH_URING
        if (l->uring && item[i]->dst.seal) {
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
    for (; l->n_bounce < BOUNCES; l->n_bounce++) l->bounce[l->n_bounce] = l->bounces + (size_t)l->n_bounce * l->bounce_bytes;
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
                                .free = nvme_free };
    l->n_thread = n_thread && n_thread < THREADS_MAX ? n_thread : 4;
    l->no_uring = no_uring;
    l->done.fd = -1;
    list_init(&l->in_line);
    lane_init(&l->lane, &l->ops);
    return &l->lane;
}
