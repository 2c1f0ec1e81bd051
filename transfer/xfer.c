#include "transfer/xfer.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/pool.h"
#include "transfer/xfer_impl.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { UNTOLD_MAX = 16 };

enum status xfer_create(const struct xfer_cfg *cfg, struct xfer **x_out)
{
    struct xfer *x = calloc(1, sizeof *x);
    if (!x) return ST_NOMEM;
    x->cfg = *cfg;
    if (!x->cfg.clock) x->cfg.clock = clock_us;
    x->done.fd = -1;
    x->ticket = calloc(cfg->jobs_max, sizeof *x->ticket);
    enum status st = x->ticket ? pool_init(&x->items, "transfers", cfg->jobs_max, sizeof(struct xfer_item)) : ST_NOMEM;
    if (!st) st = ring_init(&x->done, cfg->jobs_max);
    if (st) {
        xfer_free(x);
        return st;
    }
    *x_out = x;
    return ST_OK;
}

enum status xfer_lane_add(struct xfer *x, struct xfer_lane *lane)
{
    CHECK(x->n_lane < XFER_LANES_MAX);
    lane->x = x;
    x->lane[x->n_lane++] = lane;
    return ring_init(&lane->inbox, x->cfg.jobs_max);
}

enum status xfer_start(struct xfer *x)
{
    for (uint32_t i = 0; i < x->n_lane; i++) {
        enum status st = lane_start(x->lane[i]);
        if (st) return st;
    }
    return ST_OK;
}

void xfer_free(struct xfer *x)
{
    if (!x) return;
    for (uint32_t i = 0; i < x->n_lane; i++) lane_stop(x->lane[i]);
    struct xfer_done done;
    while (x->items.mem && xfer_poll(x, &done, 1)) continue;
    for (uint32_t i = 0; i < x->n_lane; i++) {
        ring_free(&x->lane[i]->inbox);
        x->lane[i]->ops->free(x->lane[i]);
    }
    if (x->done.fd >= 0) ring_free(&x->done);
    if (x->items.mem) pool_free(&x->items);
    free(x->ticket);
    free(x);
}

/* ---- segments */

static void lanes_forget(struct xfer *x, const struct xfer_seg *seg, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (x->lane[i]->ops->seg_drop) x->lane[i]->ops->seg_drop(x->lane[i], seg);
}

enum status xfer_seg_add(struct xfer *x, const struct xfer_seg *seg, uint32_t *id_out)
{
    uint32_t    id = 1;
    enum status st = ST_OK;
    while (id < SEGS_MAX && x->used[id]) id++;
    if (id == SEGS_MAX) return ST_AGAIN;
    uint32_t n = 0; /* lanes that know it */
    for (; n < x->n_lane && !st; n++)
        if (x->lane[n]->ops->seg_add) st = x->lane[n]->ops->seg_add(x->lane[n], seg);
    if (st) {
        lanes_forget(x, seg, n - 1); /* the last of them has refused */
        return st;
    }
    x->used[id] = true;
    x->seg[id] = *seg;
    *id_out = id;
    return ST_OK;
}

void xfer_seg_drop(struct xfer *x, uint32_t id)
{
    CHECK(id < SEGS_MAX && x->used[id]);
    CHECK(x->refs[id] == 0);
    lanes_forget(x, &x->seg[id], x->n_lane);
    x->used[id] = false;
}

bool xfer_seg_unpin(struct xfer *x, uint32_t id)
{
    bool all = true;
    CHECK(id < SEGS_MAX && x->used[id]);
    for (uint32_t i = 0; i < x->n_lane; i++)
        if (x->lane[i]->ops->seg_unpin) all &= x->lane[i]->ops->seg_unpin(x->lane[i], &x->seg[id]);
    return all;
}

/* ---- jobs */

static uint64_t count(const _Atomic uint64_t *c) { return atomic_load_explicit(c, memory_order_relaxed); }

/* Any thread; by another thread than the owner's the two may be read in any order. */
static uint64_t queued_bytes(const struct xfer_lane *l, int rate)
{
    uint64_t done = count(&l->rate[rate].done_bytes), posted = count(&l->posted_bytes[rate]);
    return posted > done ? posted - done : 0;
}
static uint64_t to_do(const struct xfer_lane *l) { return queued_bytes(l, 0) + queued_bytes(l, 1); }

/* Somebody waits for a load: it goes where the least is queued. All else keeps to the first lane that can. */
static struct xfer_lane *lane_for(const struct xfer *x, enum xfer_kind src, enum xfer_kind dst, enum xfer_prio prio)
{
    struct xfer_lane *best = NULL;
    for (uint32_t i = 0; i < x->n_lane; i++) {
        struct xfer_lane *l = x->lane[i];
        if (!l->ops->can(l, src, dst)) continue;
        if (!best || to_do(l) < to_do(best)) best = l;
        if (prio != XFER_LOAD) break;
    }
    return best;
}

static const struct xfer_seg *seg_of(const struct xfer *x, uint32_t id, uint64_t off, uint64_t bytes)
{
    CHECK(id < SEGS_MAX && x->used[id]);
    CHECK(off <= x->seg[id].bytes && bytes <= x->seg[id].bytes - off);
    return &x->seg[id];
}

static void tell(struct xfer_lane *l)
{
    l->n_untold = 0;
    ring_tell(&l->inbox);
}

void xfer_gather(struct xfer *x, bool on)
{
    x->gathers = on;
    for (uint32_t i = 0; i < x->n_lane; i++)
        if (x->lane[i]->n_untold) tell(x->lane[i]);
}

enum status xfer_post(struct xfer *x, const struct xfer_job *job, uint64_t *ticket_out)
{
    const struct xfer_seg *src = seg_of(x, job->src, job->src_off, job->bytes),
                          *dst = seg_of(x, job->dst, job->dst_off, job->bytes);
    struct xfer_lane *lane = lane_for(x, src->kind, dst->kind, job->prio);
    if (!lane) return ST_CONFIG;
    struct xfer_item *it = pool_get(&x->items);
    if (!it) return ST_AGAIN;
    it->job = *job;
    it->src = src;
    it->dst = dst;
    it->lane = lane;
    uint32_t index = pool_index(&x->items, it);
    it->ticket = x->ticket[index] = ++x->n_posted << 24 | index;
    it->post_us = job->post_us ? job->post_us : x->cfg.clock();
    it->done.cookie = job->cookie;
    it->done.bytes = job->bytes;
    x->refs[job->src]++;
    x->refs[job->dst]++;
    lane_count(&lane->n_posted, 1);
    lane_count(&lane->posted_bytes[lane_rate_of(dst->kind)], job->bytes);
    CHECK(ring_push_alone(&lane->inbox, it)); /* as long as the pool */
    if (++lane->n_untold == UNTOLD_MAX || !x->gathers) tell(lane);
    if (ticket_out) *ticket_out = it->ticket;
    return ST_OK;
}

void xfer_cancel(struct xfer *x, uint64_t ticket)
{
    uint32_t          index = ticket & 0xffffff;
    struct xfer_item *it = (struct xfer_item *)(void *)(x->items.mem + index * x->items.size);
    if (x->ticket[index] == ticket) atomic_store_explicit(&it->canceled, true, memory_order_release);
}

uint32_t xfer_poll(struct xfer *x, struct xfer_done *done, uint32_t max)
{
    enum { AHEAD = 32 };
    struct xfer_item *it[AHEAD];
    uint32_t          n = 0;
    for (uint32_t i = 0; x->cfg.pumped && i < x->n_lane; i++) lane_pump(x->lane[i]);
    for (; n < max && n < AHEAD && (it[n] = ring_pop(&x->done)); n++) __builtin_prefetch(&it[n]->done);
    for (uint32_t i = 0; i < n; i++) { /* what other cores wrote has come by now, all of it in the time of one */
        done[i] = it[i]->done;
        x->refs[it[i]->src - x->seg]--;
        x->refs[it[i]->dst - x->seg]--;
        x->ticket[pool_index(&x->items, it[i])] = 0;
        pool_put(&x->items, it[i]);
    }
    return n;
}

void xfer_wake(struct xfer *x) { ring_wake(&x->done); }
int  xfer_fd(const struct xfer *x) { return ring_fd(&x->done); }
bool xfer_arm(struct xfer *x) { return ring_arm(&x->done); }
void xfer_ack(struct xfer *x) { ring_ack(&x->done); }

/* ---- what it is like */

static double bytes_per_s(const struct lane_rate *r)
{
    uint64_t ns = count(&r->busy_ns), bytes = count(&r->busy_bytes);
    return ns ? (double)bytes * 1e9 / (double)ns : 0;
}
static double latency_us(const struct lane_rate *r) { return (double)count(&r->latency_ns) / 1e3; }

uint32_t xfer_stats(const struct xfer *x, struct xfer_stats *out, uint32_t max)
{
    uint32_t n = x->n_lane < max ? x->n_lane : max;
    for (uint32_t i = 0; i < n; i++) {
        const struct xfer_lane *l = x->lane[i];
        uint64_t                n_done = count(&l->n_done), n_posted = count(&l->n_posted);
        out[i] = (struct xfer_stats){ .lane = l->ops->name,
                                      .n_done = n_done,
                                      .n_failed = count(&l->n_failed),
                                      .bytes = count(&l->bytes),
                                      .n_queued = n_posted > n_done ? n_posted - n_done : 0 };
        for (int k = 0; k < LANE_RATES; k++) {
            const struct lane_rate *r = &l->rate[k];
            out[i].to_host[k] = (struct xfer_rate){ .queued_bytes = queued_bytes(l, k),
                                                    .bytes_per_s = bytes_per_s(r),
                                                    .latency_us = latency_us(r) };
        }
    }
    return n;
}

double xfer_estimate_us(const struct xfer *x, enum xfer_kind src, enum xfer_kind dst, uint64_t bytes)
{
    double rate = 0, queued = 0, wait = 0; /* of all lanes that share a load */
    for (uint32_t i = 0; i < x->n_lane; i++) {
        const struct xfer_lane *l = x->lane[i];
        if (!l->ops->can(l, src, dst)) continue;
        const struct lane_rate *r = &l->rate[lane_rate_of(dst)], *other = &l->rate[!lane_rate_of(dst)];
        double                  mine = bytes_per_s(r);
        rate += mine > 0 ? mine : bytes_per_s(other); /* nothing came this way yet: the best guess there is */
        queued += (double)queued_bytes(l, lane_rate_of(dst));
        if (latency_us(r) > wait) wait = latency_us(r);
    }
    return rate > 0 ? wait + (queued + (double)bytes) / rate * 1e6 : wait;
}
