#include "transfer/lane.h"
#include "base/check.h"
#include "base/ewma.h"
#include "base/thread.h"
#include "transfer/xfer_impl.h"
#include <string.h>

enum { AGE_US = 500000 }; /* what has waited so long goes before a better priority */

void lane_init(struct xfer_lane *l, const struct lane_ops *ops)
{
    l->ops = ops;
    l->inbox.fd = -1;
    for (int p = 0; p < XFER_PRIOS; p++) list_init(&l->queue[p]);
}

/* ---- completion */

/* Bandwidth: bytes over the time in which the lane had work of this direction, both halved now and then so that old
 * times fade. The first of all says nothing of it: its time is that of files and caches that nobody has touched yet,
 * and a price of many that follows from it alone would keep them from ever being moved. Latency: what small ones take
 * that find the lane idle; one that comes after a long pause weighs as much as all before it, because much may have
 * changed meanwhile. */
static void lane_learn(struct lane_rate *l, uint64_t bytes, uint64_t begin_us, uint64_t now_us)
{
    enum { SMALL = 64 << 10, FADE_NS = 200000000, PAUSE_US = 500000 };
    bool     idle = begin_us >= l->last_done_us, paused = idle && begin_us - l->last_done_us > PAUSE_US;
    uint64_t ns = (now_us - (idle ? begin_us : l->last_done_us)) * 1000;
    uint64_t busy = atomic_load_explicit(&l->busy_ns, memory_order_relaxed) + ns;
    uint64_t sum = atomic_load_explicit(&l->busy_bytes, memory_order_relaxed) + bytes;
    if (l->learns) {
        atomic_store_explicit(&l->busy_ns, busy > FADE_NS ? busy / 2 : busy, memory_order_relaxed);
        atomic_store_explicit(&l->busy_bytes, busy > FADE_NS ? sum / 2 : sum, memory_order_relaxed);
    }
    l->learns = true;
    if (idle && bytes < SMALL) {
        uint64_t old = atomic_load_explicit(&l->latency_ns, memory_order_relaxed);
        uint64_t latency = old && paused ? (old + ns + 1) / 2 : ewma_u64(old, ns + 1);
        atomic_store_explicit(&l->latency_ns, latency, memory_order_relaxed);
    }
}

static void finish(struct xfer_item *it, enum status st)
{
    struct xfer_lane *l = it->lane;
    struct lane_rate *rate = &l->rate[lane_rate_of(it->dst->kind)];
    uint64_t          now = l->x->cfg.clock(), begin = it->begin_us ? it->begin_us : now;
    it->done.st = st;
    it->done.wait_us = (uint32_t)(begin - it->post_us);
    it->done.run_us = (uint32_t)(now - begin);
    if (st == ST_OK) {
        lane_count(&l->bytes, it->job.bytes);
        if (it->begin_us) lane_learn(rate, it->job.bytes, begin, now);
    } else {
        lane_count(&l->n_failed, 1);
    }
    rate->last_done_us = now;
    lane_count(&l->n_done, 1);
    lane_count(&rate->done_bytes, it->job.bytes);
    bool quiet = it->job.quiet && st == ST_OK;
    CHECK(quiet ? ring_push_quiet(&l->x->done, it)
                : ring_push(&l->x->done, it)); /* the owner may free it from here on */
}

void lane_done(struct xfer_item *it, enum status st)
{
    struct xfer_lane *l = it->lane;
    CHECK(l->n_begun > 0);
    l->n_begun--;
    finish(it, st);
}

/* As xfer_job.head says. */
static bool head_is_sound(struct xfer_item *it, const unsigned char *p)
{
    const struct xfer_job   *j = &it->job;
    const struct digest_key *key = j->check_key ? j->check_key : &it->lane->x->cfg.key;
    struct digest            said;
    if (!j->head) return true;
    CHECK(j->head + sizeof said <= j->skip);
    memcpy(&said, p + j->head, sizeof said);
    it->done.bad_head = !digest_equal(said, digest_of(key, p, j->head));
    return !it->done.bad_head;
}

bool lane_digest(struct xfer_item *it, const void *p)
{
    if (it->job.digest_mode == XFER_DIGEST_NONE) return true;
    CHECK(it->job.skip <= it->job.bytes && it->job.tail <= it->job.bytes - it->job.skip);
    const char *payload = (const char *)p + it->job.skip;
    size_t      bytes = it->job.bytes - it->job.skip - it->job.tail;
    bool        check = it->job.digest_mode == XFER_DIGEST_CHECK;
    if (check && it->job.check_key && !digest_equal(it->job.digest, digest_of(it->job.check_key, payload, bytes)))
        return false;
    it->done.digest = digest_of(&it->lane->x->cfg.key, payload, bytes);
    if (!check) return true;
    return (it->job.check_key || digest_equal(it->done.digest, it->job.digest)) && head_is_sound(it, p);
}

/* ---- the thread */

static void drain_inbox(struct xfer_lane *l)
{
    for (struct xfer_item *it; (it = ring_pop(&l->inbox));) list_add_tail(&l->queue[it->job.prio], &it->link);
}

static struct xfer_item *head(struct xfer_lane *l, int prio)
{
    return list_empty(&l->queue[prio]) ? NULL : LIST_ENTRY(l->queue[prio].next, struct xfer_item, link);
}

static struct xfer_item *next(struct xfer_lane *l, uint64_t now)
{
    struct xfer_item *best = NULL;
    for (int p = XFER_PRIOS; p-- > 0;) {
        struct xfer_item *it = head(l, p);
        if (!it) continue;
        bool old = best && now - best->post_us > AGE_US && best->post_us < it->post_us;
        if (!best || !old) best = it;
    }
    if (best) list_del(&best->link);
    return best;
}

/* Takes what may begin; what was canceled or came too late completes here. */
static uint32_t take(struct xfer_lane *l, struct xfer_item **item, uint32_t max)
{
    uint64_t now = l->x->cfg.clock();
    uint32_t n = 0;
    for (struct xfer_item *it; n < max && (it = next(l, now));) {
        if (atomic_load_explicit(&it->canceled, memory_order_acquire)) {
            finish(it, ST_CANCELED);
        } else if (it->job.deadline_us && it->job.deadline_us < now) {
            finish(it, ST_TIMEOUT);
        } else {
            it->begin_us = now;
            it->left = it->job.bytes;
            item[n++] = it;
        }
    }
    return n;
}

static bool queued(const struct xfer_lane *l)
{
    return !list_empty(&l->queue[XFER_LOAD]) || !list_empty(&l->queue[XFER_PREFETCH]) ||
           !list_empty(&l->queue[XFER_STORE]);
}

static void lane_turn(struct xfer_lane *l, bool may_sleep)
{
    struct xfer_item *item[LANE_BATCH_MAX];
    drain_inbox(l);
    uint32_t room = l->ops->depth - l->n_begun, n = take(l, item, room < LANE_BATCH_MAX ? room : LANE_BATCH_MAX);
    l->n_begun += n;
    if (l->st) {
        for (uint32_t i = 0; i < n; i++) lane_done(item[i], l->st);
    } else if (n) {
        l->ops->begin(l, item, n);
    }
    bool more = n == 0 && !l->st && l->ops->idle && l->ops->idle(l);
    if (l->n_begun)
        l->ops->reap(l, may_sleep && n == 0 && !more);
    else if (may_sleep && !queued(l) && !more) {
        if (l->ops->sleep)
            l->ops->sleep(l);
        else
            ring_wait(&l->inbox, -1);
    }
}

static void lane_end(struct xfer_lane *l)
{
    while (l->n_begun) l->ops->reap(l, true);
    drain_inbox(l);
    for (int p = 0; p < XFER_PRIOS; p++)
        LIST_EACH(it, &l->queue[p]) finish(LIST_ENTRY(it, struct xfer_item, link), ST_CANCELED);
    if (!l->st) l->ops->close(l);
}

static void *lane_main(void *arg)
{
    struct xfer_lane *l = arg;
    l->st = l->ops->open(l);
    while (!atomic_load_explicit(&l->stop, memory_order_acquire)) lane_turn(l, true);
    lane_end(l);
    return NULL;
}

void lane_pump(struct xfer_lane *l)
{
    if (l->started) lane_turn(l, false);
}

enum status lane_start(struct xfer_lane *l)
{
    if (l->x->cfg.pumped) {
        l->st = l->ops->open(l);
        l->started = true;
        return ST_OK;
    }
    enum status st = thread_start(&l->thread, THREAD_XFER, l->ops->name, lane_main, l);
    l->started = st == ST_OK;
    return st;
}

void lane_stop(struct xfer_lane *l)
{
    if (!l->started) return;
    l->started = false;
    if (l->x->cfg.pumped) {
        lane_end(l);
        return;
    }
    atomic_store_explicit(&l->stop, true, memory_order_release);
    ring_wake(&l->inbox);
    pthread_join(l->thread, NULL);
}
