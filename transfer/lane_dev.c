/* lane_dev: between devices and host memory. A block may lie in slices on several ranks: its job is split over them,
 * and is done when all are. A device that copies by itself (a GPU) gets groups of jobs, several on their way at a time:
 * blocks that are neighbours there and evenly spaced on the host go as one run, so small slices cost no command each;
 * groups are small enough that one moves while the next is checked. Their digests are made by a crew of threads, for a
 * link is faster than a core; before a block goes up, when it has come down. Other devices are copied by this thread,
 * job by job, digest and all.
 *
 * Order against steps is not the lane's affair: a job is posted when no step in flight writes or may still touch its
 * block. That, and why there are no events for layers: docs/design/tiers.md. */
#include "base/check.h"
#include "base/thread.h"
#include "kernels/device.h"
#include "transfer/crew.h"
#include "transfer/lanes.h"
#include "transfer/xfer_impl.h"
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

enum {
    DEPTH = 8, /* what this thread has taken no cancel and no better priority can overtake */
    GROUP_ITEMS = 32,
    GROUP_BYTES = 2 << 20,   /* 40 us of a link of 50 GB/s: several commands' worth, little to wait for */
    WINDOW_BYTES = 64 << 20, /* on their way, each way: 1.3 ms that a more urgent job may have to wait */
    POLL_US = 20,
    CREW_AUTO = INT32_MAX,
    CREW_CORES = 4, /* of so many one makes digests */
};

struct copy_group { /* jobs whose copies were begun together */
    struct xfer_item        *item[GROUP_ITEMS];
    uint32_t                 n, rank; /* rank: all before it have done their part */
    const struct xfer_ranks *ranks;
    uint64_t                 bytes;
    enum status              st;
};
struct flow {
    struct list       waiting; /* begun as far as lane.c knows, not yet on a device */
    struct copy_group group[DEV_COPIES_MAX];
    uint32_t          first, n;
    uint64_t          bytes;
};
struct lane_dev {
    struct xfer_lane lane; /* first */
    struct lane_ops  ops;
    struct flow      flow[DEV_WAYS];
    struct list      finished;
    struct device   *dev;      /* the owner's: of the first rank there is */
    uint32_t         n_digest; /* CREW_AUTO; set before the start */
    struct crew     *crew;     /* NULL: digests are made by this thread */
};

static struct lane_dev *dev_of(struct xfer_lane *l) { return (struct lane_dev *)l; }

static bool dev_can(const struct xfer_lane *l, enum xfer_kind src, enum xfer_kind dst)
{
    (void)l;
    return (src == XFER_DEVICE || src == XFER_HOST) && (dst == XFER_DEVICE || dst == XFER_HOST);
}

static enum dev_way   way_of(const struct xfer_item *it) { return it->dst->kind == XFER_DEVICE ? DEV_UP : DEV_DOWN; }
static unsigned char *host_of(const struct xfer_item *it)
{
    return way_of(it) == DEV_UP ? it->src->base + it->job.src_off : it->dst->base + it->job.dst_off;
}
static uint64_t place_of(const struct xfer_item *it)
{
    return way_of(it) == DEV_UP ? it->job.dst_off : it->job.src_off;
}
static const struct xfer_ranks *ranks_of(const struct xfer_item *it)
{
    return way_of(it) == DEV_UP ? it->dst->ranks : it->src->ranks;
}

static bool is_async(const struct xfer_ranks *r)
{
    return r->rank[0].dev->async;
} /* else dev_copy_begin does the work */

static void finish(struct lane_dev *l, struct xfer_item *it, enum status st)
{
    it->done.st = st;
    list_add_tail(&l->finished, &it->link);
}

/* Together: a sleeping owner is woken once, not n times; and by the last of them, for the quiet ones wake nobody. */
static void tell(struct lane_dev *l)
{
    for (int loud = 0; loud < 2; loud++)
        LIST_EACH(at, &l->finished) {
            struct xfer_item *it = LIST_ENTRY(at, struct xfer_item, link);
            if (!loud && !it->job.quiet) continue;
            list_del(&it->link);
            lane_done(it, it->done.st);
        }
}

/* ---- segments */

static enum status dev_seg_add(struct xfer_lane *lane, const struct xfer_seg *seg)
{
    struct lane_dev         *l = dev_of(lane);
    const struct xfer_ranks *r = seg->ranks;
    enum status              st = ST_OK;
    if (seg->kind == XFER_HOST && l->dev) dev_pin(l->dev, seg->base, seg->bytes); /* where not, it is slower */
    if (seg->kind != XFER_DEVICE || !r) return ST_OK;
    CHECK(r->n > 0 && r->n <= XFER_RANKS_MAX);
    for (uint32_t i = 0; i < r->n && !st; i++) st = dev_copy_open(r->rank[i].dev);
    if (st) return st;
    if (!l->dev) l->dev = r->rank[0].dev;
    if (is_async(r)) {
        CHECK(!lane->started);
        if (l->n_digest == CREW_AUTO) l->n_digest = thread_cpu_count() / CREW_CORES;
        /* Small blocks need so many to keep a link busy; large ones are held back by WINDOW_BYTES. */
        l->ops.depth = LANE_BATCH_MAX;
    }
    return ST_OK;
}

static void dev_seg_drop(struct xfer_lane *lane, const struct xfer_seg *seg)
{
    struct lane_dev *l = dev_of(lane);
    if (seg->kind == XFER_HOST && l->dev) dev_unpin(l->dev, seg->base);
}

static bool dev_seg_unpin(struct xfer_lane *lane, const struct xfer_seg *seg)
{
    struct lane_dev *l = dev_of(lane);
    return seg->kind != XFER_HOST || !l->dev || !l->dev->async; /* a device that copies by itself has it pinned */
}

/* ---- groups of jobs for devices */

/* Appends where the next piece continues the last run, else begins one. Pieces come in the order of their places on the
 * device. */
static uint32_t run_add(struct dev_run *run, uint32_t n, unsigned char *dev, unsigned char *host, size_t bytes)
{
    enum { STEP_MAX = 1 << 30 };
    if (n) {
        struct dev_run *r = run + n - 1;
        unsigned char  *dev_last = (unsigned char *)r->dev + (r->n - 1) * r->dev_step,
                      *host_last = (unsigned char *)r->host;
        host_last += (r->n - 1) * r->host_step;
        size_t step = (uintptr_t)host > (uintptr_t)host_last ? (size_t)(host - host_last) : 0;
        if (dev == dev_last + bytes && step >= bytes && step <= STEP_MAX && (r->n == 1 || step == r->host_step)) {
            r->host_step = step;
            r->n++;
            return n;
        }
    }
    run[n] =
        (struct dev_run){ .dev = dev, .host = host, .bytes = bytes, .dev_step = bytes, .host_step = bytes, .n = 1 };
    return n + 1;
}

/* What a job moves of this rank's slice, and where that begins. */
static uint64_t part_bytes(const struct xfer_ranks *r, uint32_t k)
{
    return r->piece_bytes ? r->rank[k].piece : r->rank[k].bytes;
}
static unsigned char *part_of(const struct xfer_ranks *r, uint32_t k, uint64_t place)
{
    const struct xfer_rank *rank = &r->rank[k];
    unsigned char          *slice = rank->base + place / r->block_bytes * rank->bytes;
    if (!r->piece_bytes) return slice;
    uint64_t n = (place % r->block_bytes + r->piece_bytes - 1) / r->piece_bytes; /* the last begins before its place */
    uint64_t at = n * rank->piece, last = rank->bytes - rank->piece;
    return slice + (at < last ? at : last);
}

static void group_begin(struct copy_group *g, enum dev_way way)
{
    const struct xfer_ranks *r = g->ranks;
    uint64_t                 at = 0; /* of this rank's slice in a block */
    for (uint32_t k = 0; k < r->n; at += part_bytes(r, k++)) {
        struct dev_run run[GROUP_ITEMS];
        uint32_t       n = 0;
        for (uint32_t i = 0; i < g->n; i++)
            n = run_add(run, n, part_of(r, k, place_of(g->item[i])), host_of(g->item[i]) + at, part_bytes(r, k));
        dev_copy_begin(r->rank[k].dev, way, run, n);
    }
}

/* true: the crew has it now; crew_turn hears of it. Else *bad_out says whether CHECK has failed. */
static bool digest_begin(struct lane_dev *l, struct xfer_item *it, bool *bad_out)
{
    *bad_out = false;
    if (l->crew && it->job.digest_mode != XFER_DIGEST_NONE) {
        it->checking = true;
        crew_give(l->crew, it, host_of(it));
        return true;
    }
    *bad_out = !lane_digest(it, host_of(it));
    return false;
}

static bool crew_turn(struct lane_dev *l) /* false: it has nothing for us */
{
    bool any = false;
    for (struct xfer_item *it; l->crew && (it = crew_take(l->crew)); any = true) {
        it->checking = false;
        if (way_of(it) == DEV_DOWN)
            finish(l, it, it->done.st); /* what goes up stands in its queue, and is looked at there */
    }
    return any;
}

/* false: it has waited too long, is not wanted any more, or is not what it should be; then it is finished. */
static bool still_good(struct lane_dev *l, struct xfer_item *it)
{
    enum status st = ST_OK;
    if (atomic_load_explicit(&it->canceled, memory_order_acquire))
        st = ST_CANCELED;
    else if (it->job.deadline_us && it->job.deadline_us < l->lane.x->cfg.clock())
        st = ST_TIMEOUT;
    else if (way_of(it) == DEV_UP && (l->crew ? it->done.st == ST_INVALID : !lane_digest(it, host_of(it))))
        st = ST_INVALID; /* a doubt: the device does not get it */
    if (st) finish(l, it, st);
    return !st;
}

static void group_add(struct copy_group *g, struct xfer_item *it) /* in order of places on the device */
{
    uint32_t i = g->n++;
    for (; i > 0 && place_of(g->item[i - 1]) > place_of(it); i--) g->item[i] = g->item[i - 1];
    g->item[i] = it;
    g->bytes += it->job.bytes;
}

/* The next group, as long as there is room for one. false: nothing was begun. */
static bool flow_begin(struct lane_dev *l, enum dev_way way)
{
    struct flow       *f = &l->flow[way];
    struct copy_group *g = &f->group[(f->first + f->n) % DEV_COPIES_MAX];
    if (list_empty(&f->waiting) || f->n == DEV_COPIES_MAX) return false;
    *g = (struct copy_group){ .ranks = ranks_of(LIST_ENTRY(f->waiting.next, struct xfer_item, link)) };
    uint64_t most = is_async(g->ranks) ? GROUP_BYTES : 0; /* one by one: its digest is made while the caches hold it */
    while (!list_empty(&f->waiting) && g->n < GROUP_ITEMS) {
        struct xfer_item *it = LIST_ENTRY(f->waiting.next, struct xfer_item, link);
        if (ranks_of(it) != g->ranks || (g->n && g->bytes + it->job.bytes > most)) break;
        if (it->checking) break;
        if (f->n && f->bytes + g->bytes + it->job.bytes > WINDOW_BYTES) break;
        list_del(&it->link);
        if (still_good(l, it)) group_add(g, it);
    }
    if (!g->n) return false;
    group_begin(g, way);
    f->bytes += g->bytes;
    f->n++;
    return true;
}

/* Of the oldest group. false: it is not done. */
static bool flow_end(struct lane_dev *l, enum dev_way way)
{
    struct flow       *f = &l->flow[way];
    struct copy_group *oldest = &f->group[f->first];
    if (!f->n) return false;
    for (; oldest->rank < oldest->ranks->n; oldest->rank++) {
        enum status st = dev_copy_done(oldest->ranks->rank[oldest->rank].dev, way);
        if (st == ST_AGAIN) return false;
        if (st && !oldest->st)
            oldest->st = st; /* any rank's failure is the block's; the others are waited for all the same */
    }
    struct copy_group g = *oldest;
    f->first = (f->first + 1) % DEV_COPIES_MAX;
    f->n--;
    f->bytes -= g.bytes;
    if (is_async(g.ranks))
        while (flow_begin(l, way)) continue; /* moves while the digests of this one are made */
    for (uint32_t i = 0; i < g.n; i++) {
        bool bad = false;
        if (g.st || way == DEV_UP || !digest_begin(l, g.item[i], &bad)) finish(l, g.item[i], bad ? ST_INVALID : g.st);
    }
    return true;
}

static bool advance(struct lane_dev *l) /* false: nothing has moved */
{
    static const enum dev_way ways[] = { DEV_UP, DEV_DOWN }; /* somebody waits for what goes up */
    bool                      any = crew_turn(l);
    for (int w = 0; w < DEV_WAYS; w++)
        for (bool more = true; more; any |= more) {
            more = flow_begin(l, ways[w]);
            more |= flow_end(l, ways[w]);
        }
    return any;
}

/* ---- the lane */

/* Only the digest of a place on the host is wanted. */
static bool is_look(const struct xfer_item *it)
{
    return it->src->kind == XFER_HOST && it->dst->base &&
           it->dst->base + it->job.dst_off == it->src->base + it->job.src_off;
}

static enum status memory_move(struct xfer_item *it)
{
    unsigned char       *dst = it->dst->base + it->job.dst_off;
    const unsigned char *src = it->src->base + it->job.src_off;
    if (it->src->kind == XFER_HOST && !lane_digest(it, src)) return ST_INVALID;
    if (is_look(it)) return ST_OK;
    memcpy(dst, src, it->job.bytes);
    if (it->src->kind != XFER_HOST && !lane_digest(it, dst)) return ST_INVALID;
    return ST_OK;
}

static enum status dev_open_lane(struct xfer_lane *lane)
{
    struct lane_dev *l = dev_of(lane);
    uint32_t         n = l->n_digest < CREW_MAX ? l->n_digest : CREW_MAX;
    if (lane->ops->depth != LANE_BATCH_MAX || lane->x->cfg.pumped) return ST_OK; /* nothing happens by itself */
    (void)prctl(PR_SET_TIMERSLACK, 1000UL); /* else the kernel adds 50 us to each short sleep of this thread */
    return n ? crew_open(n, &l->crew) : ST_OK;
}

static void dev_begin(struct xfer_lane *lane, struct xfer_item **item, uint32_t n)
{
    struct lane_dev *l = dev_of(lane);
    for (uint32_t i = 0; i < n; i++) {
        const struct xfer_ranks *r = item[i]->src->kind == item[i]->dst->kind ? NULL : ranks_of(item[i]);
        if (l->crew && is_look(item[i])) {
            item[i]->checking = true;
            crew_give(l->crew, item[i], host_of(item[i])); /* crew_turn hears of it */
            continue;
        }
        if (!r) {
            finish(l, item[i], memory_move(item[i]));
            continue;
        }
        CHECK(item[i]->job.bytes == (r->piece_bytes ? r->piece_bytes : r->block_bytes));
        CHECK(r->piece_bytes || place_of(item[i]) % r->block_bytes == 0);
        bool bad;
        item[i]->checking = false;
        item[i]->done.st = ST_OK;
        if (l->crew && way_of(item[i]) == DEV_UP) digest_begin(l, item[i], &bad);
        list_add_tail(&l->flow[way_of(item[i])].waiting, &item[i]->link);
    }
    advance(l);
    tell(l);
}

static void dev_reap(struct xfer_lane *lane, bool wait)
{
    struct lane_dev *l = dev_of(lane);
    if (!advance(l) && wait) ring_wait(&lane->inbox, POLL_US); /* a new job may be a more urgent one */
    tell(l);
}

static void dev_close_lane(struct xfer_lane *lane)
{
    crew_close(dev_of(lane)->crew);
    dev_of(lane)->crew = NULL;
}
static void dev_free(struct xfer_lane *l) { free(l); }

static const struct lane_ops dev_ops_table = { .name = "lane-dev",
                                               .depth = DEPTH,
                                               .can = dev_can,
                                               .seg_add = dev_seg_add,
                                               .seg_drop = dev_seg_drop,
                                               .seg_unpin = dev_seg_unpin,
                                               .open = dev_open_lane,
                                               .begin = dev_begin,
                                               .reap = dev_reap,
                                               .close = dev_close_lane,
                                               .free = dev_free };

struct xfer_lane *lane_dev_create(void) { return lane_dev_create_with(CREW_AUTO); }

struct xfer_lane *lane_dev_create_with(uint32_t n_digest)
{
    struct lane_dev *l = calloc(1, sizeof *l);
    if (!l) return NULL;
    l->n_digest = n_digest;
    l->ops = dev_ops_table;
    lane_init(&l->lane, &l->ops);
    list_init(&l->finished);
    for (int w = 0; w < DEV_WAYS; w++) list_init(&l->flow[w].waiting);
    return &l->lane;
}
