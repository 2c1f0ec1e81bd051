/* Blocks in slices on several ranks, with devices of memory whose copies take their time, fail, and end in their own
 * order. */
#include "base/rng.h"
#include "kernels/impl.h"
#include "test.h"
#include "transfer/lanes.h"
#include "transfer/xfer_impl.h"
#include <poll.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 3, BLOCKS = 48, SLOTS = 40, GAP = 512, JOBS = 256 };
static const uint64_t slice[RANKS] = { 4096, 1536, 640 };
enum { BLOCK = 4096 + 1536 + 640, STRIDE = BLOCK + GAP };

/* ---- a device that copies by itself */

struct fake {
    struct dev_impl impl; /* first */
    unsigned char   pool[BLOCKS * 4096];
    struct {
        struct dev_run run[64];
        uint32_t       n;
    } copy[DEV_WAYS][DEV_COPIES_MAX];
    uint64_t    begun[DEV_WAYS], ended[DEV_WAYS], n_run, n_draw;
    bool        slow, held, opened; /* slow: a question is often too early; held: always */
    uint64_t    fail_at;            /* the copy of that number ends with fail_st, and leaves rubbish */
    enum status fail_st;
};
static struct fake fake[RANKS], one;
static uint32_t    n_pinned;
static bool        pin_fails;

static struct fake *fake_of(struct device *d) { return (struct fake *)d; }
static enum status  fake_open(struct device *d)
{
    fake_of(d)->opened = true;
    return ST_OK;
}
static void fake_begin(struct device *d, enum dev_way way, const struct dev_run *run, uint32_t n)
{
    struct fake *f = fake_of(d);
    assert_true(f->opened && n > 0 && n <= 64);
    assert_true(f->begun[way] - f->ended[way] < DEV_COPIES_MAX);
    uint64_t i = f->begun[way]++ % DEV_COPIES_MAX;
    memcpy(f->copy[way][i].run, run, n * sizeof *run);
    f->copy[way][i].n = n;
    f->n_run += n;
}
static enum status fake_done(struct device *d, enum dev_way way)
{
    struct fake *f = fake_of(d);
    assert_true(f->ended[way] < f->begun[way]);
    if (f->held) return ST_AGAIN;
    if (f->slow && rng_philox(9, (uint64_t)(f - fake), f->n_draw++).x[0] % 3) return ST_AGAIN;
    uint64_t i = f->ended[way]++ % DEV_COPIES_MAX;
    bool     fails = f->fail_at && f->ended[DEV_UP] + f->ended[DEV_DOWN] == f->fail_at;
    for (uint32_t k = 0; k < f->copy[way][i].n; k++) {
        struct dev_run *r = &f->copy[way][i].run[k];
        for (size_t p = 0; p < r->n; p++) {
            unsigned char *dev = (unsigned char *)r->dev + p * r->dev_step,
                          *host = (unsigned char *)r->host + p * r->host_step;
            assert_true(f == &one || (dev >= f->pool && dev + r->bytes <= f->pool + sizeof f->pool));
            if (fails)
                memset(way == DEV_UP ? dev : host, 0xdd, r->bytes);
            else
                memcpy(way == DEV_UP ? dev : host, way == DEV_UP ? host : dev, r->bytes);
        }
    }
    return fails ? f->fail_st : ST_OK;
}
static bool fake_pin(struct device *d, void *host, size_t bytes)
{
    (void)d;
    (void)host;
    (void)bytes;
    return !pin_fails && ++n_pinned;
}
static void fake_unpin(struct device *d, void *host)
{
    (void)d;
    (void)host;
    n_pinned -= !pin_fails;
}
static bool fake_reaches(struct device *d, const void *host)
{
    (void)d;
    return host != NULL;
}
static const struct dev_copy_ops fake_copy = { fake_open, fake_begin, fake_done, fake_pin, fake_unpin, fake_reaches };

/* ---- the world: three pools and a slab with a gap before each slot */

struct world {
    struct xfer      *x;
    struct xfer_ranks ranks;
    unsigned char    *slab;
    uint32_t          dev, host;
};

static void world_open(struct world *w, bool async, bool pumped, uint32_t n_digest)
{
    struct xfer_cfg cfg = { .jobs_max = JOBS, .pumped = pumped };
    *w = (struct world){ .slab = calloc(SLOTS, STRIDE), .ranks = { .n = RANKS, .block_bytes = BLOCK } };
    for (uint32_t r = 0; r < RANKS; r++) {
        memset(&fake[r], 0, sizeof fake[r]);
        for (size_t i = 0; i < sizeof fake[r].pool; i += 4) {
            struct rng_block x = rng_philox(3, r, i / 4);
            for (size_t k = 0; k < 4; k++) fake[r].pool[i + k] = (unsigned char)x.x[k];
        }
        fake[r].impl = (struct dev_impl){ .dev = { .async = async }, .copy = async ? &fake_copy : NULL };
        w->ranks.rank[r] = (struct xfer_rank){ .dev = &fake[r].impl.dev, .base = fake[r].pool, .bytes = slice[r] };
    }
    assert_int_equal(xfer_create(&cfg, &w->x), ST_OK);
    assert_int_equal(xfer_lane_add(w->x, lane_dev_create_with(n_digest)), ST_OK);
    assert_int_equal(
        xfer_seg_add(w->x, &(struct xfer_seg){ .kind = XFER_DEVICE, .bytes = BLOCKS * BLOCK, .ranks = &w->ranks },
                     &w->dev),
        ST_OK);
    assert_int_equal(
        xfer_seg_add(w->x, &(struct xfer_seg){ .kind = XFER_HOST, .base = w->slab, .bytes = SLOTS * STRIDE }, &w->host),
        ST_OK);
    assert_int_equal(n_pinned, async && !pin_fails);
    assert_int_equal(xfer_start(w->x), ST_OK);
}
static void world_close(struct world *w)
{
    xfer_seg_drop(w->x, w->host);
    assert_int_equal(n_pinned, 0);
    xfer_free(w->x);
    for (uint32_t r = 0; r < RANKS; r++)
        for (int k = 0; k < DEV_WAYS; k++) assert_int_equal(fake[r].begun[k], fake[r].ended[k]);
    free(w->slab);
}

static struct xfer_job job(const struct world *w, enum dev_way way, uint32_t block, uint32_t slot)
{
    struct xfer_job j = { .bytes = BLOCK, .prio = way == DEV_UP ? XFER_LOAD : XFER_STORE };
    *(way == DEV_UP ? &j.dst : &j.src) = w->dev;
    *(way == DEV_UP ? &j.src : &j.dst) = w->host;
    *(way == DEV_UP ? &j.dst_off : &j.src_off) = (uint64_t)block * BLOCK;
    *(way == DEV_UP ? &j.src_off : &j.dst_off) = (uint64_t)slot * STRIDE + GAP;
    return j;
}
static uint32_t wait_some(struct world *w, struct xfer_done *d, uint32_t max)
{
    for (uint32_t n;;) {
        if ((n = xfer_poll(w->x, d, max))) return n;
        if (!xfer_arm(w->x)) continue;
        struct pollfd p = { .fd = xfer_fd(w->x), .events = POLLIN };
        poll(&p, 1, 1);
        xfer_ack(w->x);
    }
}
static void read_block(uint32_t b, unsigned char out[BLOCK]) /* as a row of slices, rank 0 first */
{
    for (uint32_t r = 0; r < RANKS; out += slice[r++]) memcpy(out, fake[r].pool + b * slice[r], slice[r]);
}

/* Blocks go down and come up again, anywhere, a thousand times: what is where follows a simple book. */
static void shuffle(bool async, bool pumped, uint32_t n_digest)
{
    enum { ROUNDS = 12 };
    struct world w;
    world_open(&w, async, pumped, n_digest);
    for (uint32_t r = 0; r < RANKS; r++) fake[r].slow = true;
    static unsigned char in_block[BLOCKS][BLOCK], in_slot[SLOTS][BLOCK];
    struct digest        digest[SLOTS] = { 0 };
    bool                 full[SLOTS] = { false };
    for (uint32_t b = 0; b < BLOCKS; b++) read_block(b, in_block[b]);
    for (uint32_t k = 0; k < ROUNDS; k++) {
        struct xfer_done d[JOBS];
        bool             block_used[BLOCKS] = { false }, slot_used[SLOTS] = { false }, wrong[SLOTS] = { false };
        uint32_t         n = 0, from[SLOTS];
        for (uint32_t i = 0; i < SLOTS; i++) {
            uint32_t x = rng_philox(5, k, i).x[0], b = x % BLOCKS, s = x / BLOCKS % SLOTS;
            if (block_used[b] || slot_used[s]) continue;
            enum dev_way    way = full[s] && x >> 31 ? DEV_UP : DEV_DOWN;
            struct xfer_job j = job(&w, way, b, s);
            block_used[b] = slot_used[s] = true;
            from[s] = b;
            j.cookie = s << 1 | way;
            j.digest_mode = way == DEV_UP ? XFER_DIGEST_CHECK : XFER_DIGEST_MAKE;
            j.digest = digest[s];
            if (way == DEV_UP && x % 7 == 0) {
                j.digest.hi ^= 1;
                wrong[s] = true;
            } /* not what it was: the device must not get it */
            assert_int_equal(xfer_post(w.x, &j, NULL), ST_OK);
            n++;
        }
        while (n) {
            uint32_t got = wait_some(&w, d, JOBS);
            for (uint32_t i = 0; i < got; i++, n--) {
                uint32_t s = (uint32_t)(d[i].cookie >> 1);
                assert_int_equal(d[i].st, wrong[s] ? ST_INVALID : ST_OK);
                if (wrong[s]) continue;
                if ((d[i].cookie & 1) == DEV_UP) {
                    memcpy(in_block[from[s]], in_slot[s], BLOCK);
                } else {
                    memcpy(in_slot[s], in_block[from[s]], BLOCK);
                    digest[s] = d[i].digest;
                    full[s] = true;
                }
            }
        }
        for (uint32_t b = 0; b < BLOCKS; b++) {
            unsigned char now[BLOCK];
            read_block(b, now);
            assert_memory_equal(now, in_block[b], BLOCK);
        }
        for (uint32_t s = 0; s < SLOTS; s++) {
            if (full[s]) assert_memory_equal(w.slab + s * STRIDE + GAP, in_slot[s], BLOCK);
            for (uint32_t i = 0; i < GAP; i++) assert_int_equal(w.slab[s * STRIDE + i], 0);
        }
    }
    world_close(&w);
}
static void slices_of_a_block_lie_one_behind_the_other(void **state)
{
    (void)state;
    shuffle(false, false, 0);
}
static void devices_that_take_their_time_lose_nothing(void **state)
{
    (void)state;
    shuffle(true, false, 0);
    shuffle(true, false, 3); /* the digests by others */
    shuffle(true, true, 0);
}

/* Blocks that go down and come up in three pieces, each of them as many of the ranks' slices: the last of a slice ends
 * with it, and overlaps the one before. */
static void a_block_may_move_in_pieces(void **state)
{
    enum { PIECES = 3, PIECE = 1700 + 620 + 260 };
    static const uint64_t piece[RANKS] = { 1700, 620, 260 };
    (void)state;
    for (int async = 0; async < 2; async++) {
        struct world     w;
        struct xfer_done d[JOBS];
        world_open(&w, async, true, 0);
        w.ranks.piece_bytes = PIECE;
        for (uint32_t r = 0; r < RANKS; r++) w.ranks.rank[r].piece = piece[r];
        for (uint32_t b = 0; b < 12; b++)
            for (int way = DEV_DOWN; way < DEV_WAYS; way++) { /* block b to slots, and from there to block b + 20 */
                for (uint32_t p = 0; p < PIECES; p++) {
                    struct xfer_job j = job(&w, (enum dev_way)way, way == DEV_UP ? b + 20 : b, b * PIECES + p);
                    j.bytes = PIECE;
                    *(way == DEV_UP ? &j.dst_off : &j.src_off) += p + 1 < PIECES ? p * PIECE : BLOCK - PIECE;
                    assert_int_equal(xfer_post(w.x, &j, NULL), ST_OK);
                }
                for (uint32_t n = 0; n < PIECES; n += wait_some(&w, d, JOBS)) continue;
            }
        for (uint32_t b = 0; b < 12; b++) {
            unsigned char from[BLOCK], to[BLOCK];
            read_block(b, from);
            read_block(b + 20, to);
            assert_memory_equal(to, from, BLOCK);
        }
        world_close(&w);
    }
}

/* On an emulated GPU: tests/cuda/test_copy.c. */
static void F20_memory_that_cannot_be_pinned_serves_too(void **state)
{
    (void)state;
    pin_fails = true;
    shuffle(true, true, 0);
    pin_fails = false;
}

/* Neighbours there, evenly spaced here: one command for each rank, whatever the order in which they were asked for. */
static void neighbours_are_one_run(void **state)
{
    (void)state;
    struct world     w;
    struct xfer_done d[JOBS];
    world_open(&w, true, true, 0);
    for (uint32_t i = 0; i < 16; i++) {
        struct xfer_job j = job(&w, DEV_DOWN, 20 + (i * 5) % 16, 3 + (i * 5) % 16);
        assert_int_equal(xfer_post(w.x, &j, NULL), ST_OK);
    }
    for (uint32_t n = 0; n < 16;) n += xfer_poll(w.x, d, JOBS);
    for (uint32_t r = 0; r < RANKS; r++) {
        assert_int_equal(fake[r].begun[DEV_DOWN], 1);
        assert_int_equal(fake[r].n_run, 1);
    }
    for (uint32_t i = 0; i < 16; i++) {
        unsigned char want[BLOCK];
        read_block(20 + i, want);
        assert_memory_equal(w.slab + (3 + i) * STRIDE + GAP, want, BLOCK);
    }
    /* a hole among the blocks, and slots that go backwards: not one run */
    for (uint32_t i = 0; i < 4; i++) {
        struct xfer_job j = job(&w, DEV_UP, i < 2 ? i : i + 1, 9 - i);
        assert_int_equal(xfer_post(w.x, &j, NULL), ST_OK);
    }
    for (uint32_t n = 0; n < 4;) n += xfer_poll(w.x, d, JOBS);
    assert_int_equal(fake[0].n_run, 1 + 4);
    world_close(&w);
}

/* The block is lost, on whichever rank it was; the others have ended before anybody hears of it. */
static void a_rank_that_fails_fails_the_block(void **state)
{
    (void)state;
    struct world     w;
    struct xfer_done d[JOBS];
    for (uint32_t bad = 0; bad < RANKS; bad++)
        for (int way = 0; way < DEV_WAYS; way++) {
            world_open(&w, true, true, 0);
            for (uint32_t r = 0; r < RANKS; r++) fake[r].slow = true;
            fake[bad].fail_at = 1;
            fake[bad].fail_st = bad == 1 ? ST_DEVICE : ST_IO;
            struct xfer_job j = job(&w, (enum dev_way)way, 7, 7);
            assert_int_equal(xfer_post(w.x, &j, NULL), ST_OK);
            while (!xfer_poll(w.x, d, 1)) continue;
            assert_int_equal(d[0].st, fake[bad].fail_st);
            for (uint32_t r = 0; r < RANKS; r++) assert_int_equal(fake[r].ended[way], 1);
            assert_int_equal(xfer_post(w.x, &j, NULL), ST_OK); /* the next one goes well */
            while (!xfer_poll(w.x, d, 1)) continue;
            assert_int_equal(d[0].st, ST_OK);
            world_close(&w);
        }
}

/* More bytes than may be on their way: what is canceled or late before its turn never begins. */
static void waiting_jobs_can_be_canceled(void **state)
{
    (void)state;
    enum { BIG = 8 << 20, N = 24, ROOM = (64 << 20) / BIG };
    struct xfer_cfg  cfg = { .jobs_max = JOBS, .pumped = true };
    struct xfer     *x;
    struct xfer_done d[JOBS];
    uint32_t         dev, host, n_not = 0, n_ok = 0;
    uint64_t         ticket[N];
    unsigned char   *slab = calloc(2, BIG);
    one.impl = (struct dev_impl){ .dev = { .async = true }, .copy = &fake_copy };
    one.held = true;
    struct xfer_ranks ranks = { .n = 1,
                                .block_bytes = BIG,
                                .rank = { { .dev = &one.impl.dev, .base = slab + BIG, .bytes = BIG } } };
    assert_int_equal(xfer_create(&cfg, &x), ST_OK);
    assert_int_equal(xfer_lane_add(x, lane_dev_create()), ST_OK);
    assert_int_equal(xfer_seg_add(x, &(struct xfer_seg){ .kind = XFER_DEVICE, .bytes = BIG, .ranks = &ranks }, &dev),
                     ST_OK);
    assert_int_equal(xfer_seg_add(x, &(struct xfer_seg){ .kind = XFER_HOST, .base = slab, .bytes = BIG }, &host),
                     ST_OK);
    assert_int_equal(xfer_start(x), ST_OK);
    for (uint32_t i = 0; i < N; i++) {
        struct xfer_job j = { .src = host, .dst = dev, .bytes = BIG, .cookie = i };
        assert_int_equal(xfer_post(x, &j, &ticket[i]), ST_OK);
    }
    for (int i = 0; i < 3; i++) assert_int_equal(xfer_poll(x, d, JOBS), 0);
    assert_int_equal(one.begun[DEV_UP], ROOM);
    for (uint32_t i = 1; i < N; i += 2) xfer_cancel(x, ticket[i]);
    one.held = false;
    while (n_not + n_ok < N) {
        uint32_t n = xfer_poll(x, d, JOBS);
        for (uint32_t i = 0; i < n; i++) {
            assert_int_equal(d[i].st,
                             d[i].cookie % 2 && d[i].cookie >= ROOM ? ST_CANCELED : ST_OK); /* what moves ends */
            n_not += d[i].st == ST_CANCELED;
            n_ok += d[i].st == ST_OK;
        }
    }
    assert_int_equal(n_not, (N - ROOM) / 2);
    assert_int_equal(one.begun[DEV_UP], n_ok);
    xfer_seg_drop(x, host);
    xfer_free(x);
    free(slab);
}

/* Down takes a hundred times as long: nobody who asks what a load costs is told of that. */
static uint64_t now_us;
static uint64_t stepped(void) { return now_us; }
static void     each_direction_has_its_own_rate(void **state)
{
    (void)state;
    struct world     w;
    struct xfer_done d[JOBS];
    world_open(&w, true, true, 0);
    w.x->cfg.clock = stepped;
    now_us = 1000000;
    assert_true(xfer_estimate_us(w.x, XFER_HOST, XFER_DEVICE, BLOCK) == 0); /* nothing is known */
    for (uint32_t i = 0; i < 40; i++) {
        enum dev_way    way = i % 2 ? DEV_UP : DEV_DOWN;
        struct xfer_job j = job(&w, way, i % BLOCKS, i % SLOTS);
        for (uint32_t r = 0; r < RANKS; r++) fake[r].held = true;
        assert_int_equal(xfer_post(w.x, &j, NULL), ST_OK);
        assert_int_equal(xfer_poll(w.x, d, JOBS), 0);
        now_us += way == DEV_UP ? 10 : 1000;
        for (uint32_t r = 0; r < RANKS; r++) fake[r].held = false;
        assert_int_equal(xfer_poll(w.x, d, JOBS), 1);
        /* The first one's time is no reason to leave a hundred where they are. */
        if (i == 0) assert_true(xfer_estimate_us(w.x, XFER_DEVICE, XFER_HOST, 100 * BLOCK) < 2000);
        if (i == 2) assert_true(xfer_estimate_us(w.x, XFER_HOST, XFER_DEVICE, BLOCK) > 900); /* the best guess */
    }
    double up = xfer_estimate_us(w.x, XFER_HOST, XFER_DEVICE, BLOCK),
           down = xfer_estimate_us(w.x, XFER_DEVICE, XFER_HOST, BLOCK);
    assert_true(up >= 10 && up < 40);
    assert_true(down >= 1000 && down < 4000);
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slices_of_a_block_lie_one_behind_the_other),
        cmocka_unit_test(devices_that_take_their_time_lose_nothing),
        cmocka_unit_test(a_block_may_move_in_pieces),
        cmocka_unit_test(F20_memory_that_cannot_be_pinned_serves_too),
        cmocka_unit_test(neighbours_are_one_run),
        cmocka_unit_test(a_rank_that_fails_fails_the_block),
        cmocka_unit_test(waiting_jobs_can_be_canceled),
        cmocka_unit_test(each_direction_has_its_own_rate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
