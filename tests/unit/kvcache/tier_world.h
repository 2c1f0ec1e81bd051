/* tier_world: the tiers over a device of bytes and lanes that fail as they are told. A block's content follows from the
 * tokens before and in it, so that whatever is served can be compared with what it must be. */
#pragma once
#include "kvcache/tier.h"
#include "base/clock.h"
#include "base/rng.h"
#include "kvcache/device/seq.h"
#include "kvcache/folder/store.h"
#include "kvcache/tier_impl.h"
#include "test.h"
#include "transfer/lane.h"
#include "transfer/lanes.h"
#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>
#include <sys/mman.h>

enum { BT = 4, BLOCK = 600, N_BLOCK = 48, CONTEXT = 128, SEQS = 6, HOST_SLOTS = 24 };
/* Layers with a window, where world_window is not 0: their blocks are stored in three pieces, of which the last
 * overlaps. */
enum { WIN_BLOCK = 2 * BLOCK + 100, N_WINDOW = 80, PIECES = 3 };

struct world {
    struct xfer     *x;
    struct kv       *kv;
    struct kv_tiers *t;
    unsigned char   *dev, *win;
    uint32_t         dev_seg, win_seg;
    uint64_t         now, seed, counter;
    uint64_t         wall; /* seconds */
    char             dir[64];
};
static struct world *now_of;
static uint64_t      world_clock(void) { return now_of->now; }
static uint64_t      world_wall(void) { return now_of->wall; }
static uint32_t      draw(struct world *w, uint32_t n) { return rng_philox(w->seed, 1, w->counter++).x[0] % n; }

/* ---- a lane for everything that is not a file: late, failing, canceled ones, as drawn */
static struct {
    uint32_t         fail_in;
    _Atomic uint32_t stall_us; /* one in so many fails; each takes so long on the world's clock */
    struct {
        struct xfer_item *it;
        uint64_t          at;
    } held[64];
    uint32_t n_held, n_moved, n_failed;
} lane;
static unsigned char *remote_bytes; /* what segments of peers hold */
static uint32_t       nap_us; /* passes on the world's clock when the lane is asked next; for lanes of this thread */

static bool lane_can(const struct xfer_lane *l, enum xfer_kind src, enum xfer_kind dst)
{
    (void)l;
    return src != XFER_FILE && dst != XFER_FILE;
}
static enum status lane_open(struct xfer_lane *l)
{
    (void)l;
    return ST_OK;
}
static void lane_begin(struct xfer_lane *l, struct xfer_item **item, uint32_t n)
{
    (void)l;
    for (uint32_t i = 0; i < n; i++) {
        lane.held[lane.n_held].it = item[i];
        lane.held[lane.n_held++].at = lane.stall_us ? now_of->now + lane.stall_us : 0;
    }
}
static void lane_reap(struct xfer_lane *l, bool wait)
{
    (void)l;
    if (lane.n_held && nap_us) {
        now_of->now += nap_us;
        nap_us = 0;
    }
    for (uint32_t i = 0; i < lane.n_held;) {
        struct xfer_item *it = lane.held[i].it;
        if (!wait && lane.held[i].at && lane.held[i].at > now_of->now) {
            i++;
            continue;
        }
        lane.held[i] = lane.held[--lane.n_held];
        unsigned char *from = it->src->kind == XFER_REMOTE ? remote_bytes : it->src->base;
        unsigned char *src = from + it->job.src_off, *dst = it->dst->base + it->job.dst_off;
        enum status    st = ST_OK;
        if (lane.fail_in && draw(now_of, lane.fail_in) == 0) {
            if (dst != src) memset(dst, 0xbd, it->job.bytes / 2); /* half of it, and wrong */
            st = ST_IO;
            lane.n_failed++;
        } else if (it->src->kind == XFER_HOST && !lane_digest(it, src)) {
            st = ST_INVALID;
        } else {
            if (dst != src) memcpy(dst, src, it->job.bytes);
            if (it->src->kind != XFER_HOST && !lane_digest(it, dst)) st = ST_INVALID;
            lane.n_moved++;
        }
        lane_done(it, st);
    }
}
static void                  lane_nothing(struct xfer_lane *l) { (void)l; }
static void                  lane_free(struct xfer_lane *l) { free(l); }
static const struct lane_ops test_lane = { .name = "test",
                                           .depth = 64,
                                           .can = lane_can,
                                           .open = lane_open,
                                           .begin = lane_begin,
                                           .reap = lane_reap,
                                           .close = lane_nothing,
                                           .free = lane_free };

/* ---- the world */

static int hand_slab = -1, hand_index = -1; /* of the process before, moved by open_tiers */

static bool                       reads_in_place;    /* the next world's device reads the slab */
static uint32_t                   reads_before_copy; /* of it: kv_tiers_cfg.in_place_reads */
static const char                *group_dir;
static const struct kv_below_row *below_rows[2]; /* of the next tiers, where they have no folder; NULL: none */
static struct peer_net           *below_peers;   /* of a row of peers among them */
static uint32_t                   world_window; /* tokens that layers with a pool of their own see; 0: there are none */
static void                       open_tiers(struct world *w, uint32_t n_store)
{
    char                err[300];
    struct kv_tiers_cfg tc = { .kv = w->kv,
                               .xfer = w->x,
                               .dev_seg = w->dev_seg,
                               .block_bytes = BLOCK,
                               .host_bytes = HOST_SLOTS * 8192,
                               .n_block = N_BLOCK,
                               .block_tokens = BT,
                               .seq_tokens_max = CONTEXT,
                               .load_min_tokens = BT,
                               .keep_hits = 1,
                               .in_place = reads_in_place,
                               .in_place_reads = reads_before_copy,
                               .ident = { .block_bytes = BLOCK, .block_tokens = BT, .layout = KV_LAYOUT },
                               .clock = world_clock,
                               .wall = world_wall,
                               .cgroup = group_dir };
    tc.key.seed = 5;
    tc.peers = below_peers;
    if (world_window) {
        tc.n_window = N_WINDOW;
        tc.win_bytes = tc.ident.window_bytes = WIN_BLOCK;
        tc.ident.window = world_window;
        tc.win_seg = w->win_seg;
    }
    tc.hand.given = hand_slab >= 0;
    tc.hand.slab_fd = hand_slab;
    tc.hand.index_fd = hand_index;
    if (n_store) {
        tc.n_store = 1;
        tc.store[0].dir = w->dir;
        tc.store[0].bytes = 16 * 65536;
    }
    for (uint32_t i = 0; !n_store && i < 2 && below_rows[i]; i++) {
        tc.store[i].row = below_rows[i];
        tc.store[i].dir = "somewhere";
        tc.n_store = i + 1;
    }
    if (kv_tiers_open(&tc, &w->t, err, sizeof err)) fail_msg("%s", err);
}

static void open_world(struct world *w, uint64_t seed, bool store)
{
    *w = (struct world){ .now = 1000000, .wall = 1800000000, .seed = seed, .dir = "/tmp/spillway-tier-XXXXXX" };
    now_of = w;
    memset((void *)&lane, 0, sizeof lane);
    struct xfer_cfg   xc = { .jobs_max = 512, .clock = store ? NULL : world_clock, .pumped = !store };
    struct xfer_lane *l = calloc(1, sizeof *l);
    xc.key.seed = 5;
    lane_init(l, &test_lane);
    assert_int_equal(xfer_create(&xc, &w->x), ST_OK);
    assert_int_equal(xfer_lane_add(w->x, l), ST_OK);
    if (store) assert_int_equal(xfer_lane_add(w->x, lane_nvme_create(8, 1, false)), ST_OK);
    w->dev = malloc(N_BLOCK * BLOCK);
    memset(w->dev, 0xff, N_BLOCK * BLOCK);
    assert_int_equal(xfer_seg_add(w->x,
                                  &(struct xfer_seg){ .kind = XFER_DEVICE, .base = w->dev, .bytes = N_BLOCK * BLOCK },
                                  &w->dev_seg),
                     ST_OK);
    w->win = malloc(N_WINDOW * WIN_BLOCK);
    memset(w->win, 0xff, N_WINDOW * WIN_BLOCK);
    struct xfer_seg windows = { .kind = XFER_DEVICE, .base = w->win, .bytes = N_WINDOW * WIN_BLOCK };
    assert_int_equal(xfer_seg_add(w->x, &windows, &w->win_seg), ST_OK);
    assert_int_equal(xfer_start(w->x), ST_OK);
    struct kv_cfg kc = { .n_block = N_BLOCK,
                         .n_guest = reads_in_place ? HOST_SLOTS : 0,
                         .block_tokens = BT,
                         .n_seq_max = SEQS + KV_LOADS_MAX + KV_OFFERS_MAX + KV_MOVES + KV_PINS_MAX,
                         .seq_tokens_max = CONTEXT,
                         .prefix_cache = true,
                         .n_window = world_window ? N_WINDOW : 0,
                         .window = world_window,
                         .window_ahead = CONTEXT,
                         .pin_percent = 50 };
    assert_int_equal(kv_create(&kc, &w->kv), ST_OK);
    if (store) assert_non_null(mkdtemp(w->dir));
    open_tiers(w, store);
}
static int rm_one(const char *path, const struct stat *s, int flag, struct FTW *f)
{
    (void)s;
    (void)flag;
    (void)f;
    return remove(path);
}
static void close_world(struct world *w, bool store)
{
    lane.stall_us = 0;
    w->now += 100000000; /* what is held comes */
    kv_tiers_close(w->t, 0);
    kv_free(w->kv);
    xfer_free(w->x);
    free(w->dev);
    free(w->win);
    if (store) nftw(w->dir, rm_one, 8, FTW_DEPTH | FTW_PHYS);
}
static void turn(struct world *w, uint64_t us)
{
    w->now += us;
    kv_tick(w->kv, w->now);
    kv_tiers_turn(w->t);
    assert_int_equal(kv_tiers_check(w->t), ST_OK);
    assert_int_equal(kv_check(w->kv), ST_OK);
}

/* n turns in which nothing is asked for: the invariants are checked after the first and the last of them, and after one
 * in eight between. */
static inline void idle(struct world *w, int n, uint64_t us)
{
    for (int i = 0; i < n; i++) {
        if (i % 8 == 0 || i == n - 1) {
            turn(w, us);
            continue;
        }
        w->now += us;
        kv_tick(w->kv, w->now);
        kv_tiers_turn(w->t);
    }
}

/* Until the store's folder is known and a segment to write to is prepared. The world's clock stands: the disk is of the
 * real one. */
static inline void wait_for_store(struct world *w)
{
    struct kv_store_stats st = { 0 };
    for (uint64_t end = clock_us() + PATIENCE_S * 1000000u;
         kv_store_recovering(kv_store_of(w->t->below[0])) || !st.n_segment; usleep(100)) {
        assert_true(clock_us() < end);
        turn(w, 0);
        kv_store_stats(kv_store_of(w->t->below[0]), &st);
    }
}

/* ---- sequences: "computing" writes what a block must be */

static void content(const struct kv_salt salt, const uint32_t *ids, uint32_t block, unsigned char *out)
{
    uint64_t h = salt.lo * 31 + salt.hi;
    for (uint32_t i = 0; i < (block + 1) * BT; i++) h = (h ^ ids[i]) * 0x9e3779b97f4a7c15u;
    for (uint32_t i = 0; i < BLOCK; i++) out[i] = (unsigned char)((h >> (i % 56)) + i * (h & 7));
}
/* The same of the window's pool. */
static void win_content(const struct kv_salt salt, const uint32_t *ids, uint32_t block, unsigned char *out)
{
    unsigned char page[BLOCK];
    content(salt, ids, block, page);
    for (uint32_t i = 0; i < WIN_BLOCK; i++) out[i] = (unsigned char)(page[i % BLOCK] + 1 + i / BLOCK);
}
static void assert_block(struct world *w, const struct kv_seq *s, const uint32_t *ids, uint32_t block)
{
    unsigned char want[BLOCK], want_win[WIN_BLOCK];
    if (block < s->n_win && s->win[block] != KV_NONE) {
        win_content(s->salt, ids, block, want_win);
        if (memcmp(w->win + s->win[block] * WIN_BLOCK, want_win, WIN_BLOCK))
            fail_msg("block %u of a window is not what its tokens say", block);
    }
    content(s->salt, ids, block, want);
    const unsigned char *at = w->dev + s->block[block] * BLOCK;
    if (s->block[block] >= N_BLOCK) at = slot_page(&w->t->host, (int32_t)(s->block[block] - N_BLOCK)) + KV_RECORD_HEAD;
    if (memcmp(at, want, BLOCK)) fail_msg("block %u of a prefix is not what its tokens say", block);
}

struct user {
    bool           active, running;
    struct kv_seq  s;
    struct kv_want want;
    struct kv_salt salt;
    uint32_t       ids[CONTEXT], n, n_hit;
    double         us_per_token;
    struct kv_keep keep;
};

/* Asks until it may go; true: it runs, and everything that it found cached is right. */
static bool try_admit(struct world *w, struct user *u)
{
    struct kv_cursor hit = { 0 };
    kv_peek_more(w->kv, u->salt, u->ids, u->n, &hit);
    if (!kv_tiers_ask(w->t, &u->want, u->salt, u->ids, u->n, &hit, u->us_per_token)) return false;
    if (kv_seq_open(w->kv, u->salt, &u->s)) return false;
    u->n_hit = kv_seq_match(w->kv, &u->s, u->ids, u->n);
    struct kv_copy copy[1];
    uint32_t       n_copy = 0;
    if (kv_seq_reserve(w->kv, &u->s, u->n, copy, &n_copy)) {
        kv_seq_release(w->kv, &u->s);
        return false;
    }
    kv_tiers_forget(w->t, &u->want);
    for (uint32_t b = 0; b < u->n_hit / BT; b++) assert_block(w, &u->s, u->ids, b);
    for (uint32_t b = u->n_hit / BT; b < u->n / BT; b++) {
        content(u->salt, u->ids, b, w->dev + u->s.block[b] * BLOCK);
        if (world_window) win_content(u->salt, u->ids, b, w->win + u->s.win[b] * WIN_BLOCK);
    }
    kv_seq_commit(w->kv, &u->s, u->ids, u->n);
    u->running = true;
    return true;
}
/* Until it runs. With a store the world's clock stands, so that a load is not given up because the disk's thread was
 * not on. */
static inline void admit(struct world *w, struct user *u)
{
    bool store = w->t->cfg.n_store > 0;
    for (uint64_t end = clock_us() + PATIENCE_S * 1000000u; !try_admit(w, u);) {
        assert_true(clock_us() < end);
        turn(w, store ? 0 : 10);
        if (store) usleep(100);
    }
}
static void finish_user(struct world *w, struct user *u)
{
    kv_seq_keep(w->kv, &u->s, &u->keep);
    kv_tiers_offer(w->t, &u->s, u->n);
    kv_seq_release(w->kv, &u->s);
    u->active = u->running = false;
}
static void ask_for(struct user *u, uint32_t family, uint32_t n, double us_per_token)
{
    *u = (struct user){ .active = true, .n = n, .us_per_token = us_per_token, .salt = { family % 3, 7 } };
    for (uint32_t i = 0; i < n; i++) u->ids[i] = i < 40 ? family * 100 + i : family * 7919 + n * 31 + i;
}
static inline void run_alone(struct world *w, uint32_t family, uint32_t n, struct user *u)
{
    ask_for(u, family, n, 100);
    for (int i = 0; !try_admit(w, u); i++) {
        assert_true(i < 10000);
        turn(w, 100);
    }
    finish_user(w, u);
    idle(w, 50, 100);
}

/* A group of files in a folder says how much memory there is, and that most of it is used. */
static void group_says(const char *dir, uint64_t current, uint64_t idle)
{
    const struct {
        const char *name, *format;
        uint64_t    v;
    } file[] = { { "memory.max", "%llu\n", 1000 << 20 },
                 { "memory.current", "%llu\n", current },
                 { "memory.stat", "anon 5\nfile 7\ninactive_file %llu\nactive_file 3\n", idle } };
    for (int i = 0; i < 3; i++) {
        char path[128];
        snprintf(path, sizeof path, "%s/%s", dir, file[i].name);
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        fprintf(f, file[i].format, (unsigned long long)file[i].v);
        fclose(f);
    }
}
/* Everything at once, and whatever is matched is what its tokens say. */
static inline void storm(uint64_t seed, bool store)
{
    struct world w;
    struct user  u[SEQS] = { { .active = false } };
    open_world(&w, seed, store);
    if (!store) { /* its lane runs in this thread, and so may draw and read the clock */
        lane.fail_in = draw(&w, 3) ? 0 : 7;
        lane.stall_us = draw(&w, 2) ? 0 : draw(&w, 800);
    }
    uint64_t n_hit = 0, n_run = 0;
    for (uint32_t step = 0; step < (store ? 1500 : 600); step++) {
        struct user *x = &u[draw(&w, SEQS)];
        if (!x->active) {
            ask_for(x, draw(&w, 6), 8 + draw(&w, 80), draw(&w, 4) ? 200 : 3);
        } else if (!x->running) {
            if (draw(&w, 12) == 0) { /* gone while it waited */
                kv_tiers_forget(w.t, &x->want);
                x->active = false;
            } else if (try_admit(&w, x)) {
                n_hit += x->n_hit;
                n_run++;
            }
        } else {
            finish_user(&w, x);
        }
        if (draw(&w, 9) == 0) kv_evict_all(w.kv);
        if (group_dir) group_says(group_dir, (draw(&w, 3) ? 880 : 952 + draw(&w, 40)) * (uint64_t)(1 << 20), 0);
        if (group_dir && draw(&w, 60) == 0) { /* room, for long enough */
            group_says(group_dir, 1 << 20, 0);
            idle(&w, 60, 260000);
        }
        turn(&w, group_dir ? draw(&w, 100000) : draw(&w, 300));
        if (store && step % 8 == 0) usleep(100);
    }
    assert_true(n_run > 30);
    for (int i = 0; i < SEQS; i++) {
        if (u[i].running)
            finish_user(&w, &u[i]);
        else if (u[i].active)
            kv_tiers_forget(w.t, &u[i].want);
    }
    if (!lane.fail_in && !store && !group_dir) assert_true(n_hit > 0);
    struct kv_tiers_stats st;
    kv_tiers_stats(w.t, &st);
    assert_true(st.tier[KV_TIER_HOST].used_bytes <= st.tier[KV_TIER_HOST].reserved_bytes);
    close_world(&w, store);
}
