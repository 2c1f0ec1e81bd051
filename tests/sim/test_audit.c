/* KV that was computed by another arithmetic under the same identity: found in a folder, handed over in a slab, or
 * noticed when it was already in use. The fake device writes beside each token what its arithmetic makes of it, and
 * counts positions that it attends and that came from another (fake.h), so "no such block was used" is a number. */
#define flight tier_flight /* the engine has one too */
#include "kvcache/tier_impl.h"
#undef flight
#include "sim/world.h"
#include "base/clock.h"
#include "test.h"
#include "transfer/lane.h"
#include "transfer/lanes.h"
#include "transfer/xfer_impl.h"
#include <ftw.h>

enum { BT = 4, N_BLOCK = 40, CONTEXT = 64, VOCAB = 48, PROMPT = 30, PROMPTS = 12, SLOTS = 200, SEGMENT = 128 << 10 };

static struct world world; /* large */
static uint64_t     sim_clock(void) { return world.now_us; }

/* ---- a lane between the device and the host whose copies end when they are told to */

static struct {
    struct xfer_item *it[64];
    uint32_t          n;
    bool              holds;
} lane;

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
    for (uint32_t i = 0; i < n; i++) lane.it[lane.n++] = item[i];
}
static void lane_reap(struct xfer_lane *l, bool wait)
{
    (void)l;
    if (lane.holds && !wait) return;
    while (lane.n > 0) {
        struct xfer_item *it = lane.it[--lane.n];
        unsigned char    *src = it->src->base + it->job.src_off, *dst = it->dst->base + it->job.dst_off;
        bool              sound = it->src->kind != XFER_HOST || lane_digest(it, src);
        if (sound) memcpy(dst, src, it->job.bytes);
        if (sound && it->src->kind != XFER_HOST) lane_digest(it, dst);
        lane_done(it, sound ? ST_OK : ST_INVALID);
    }
}
static void                  lane_nothing(struct xfer_lane *l) { (void)l; }
static void                  lane_free(struct xfer_lane *l) { free(l); }
static const struct lane_ops ops = { .name = "sim",
                                     .depth = 64,
                                     .can = lane_can,
                                     .open = lane_open,
                                     .begin = lane_begin,
                                     .reap = lane_reap,
                                     .close = lane_nothing,
                                     .free = lane_free };

/* ---- one server's life */

struct life {
    uint64_t         twist;
    uint32_t         twist_from, audit_every;
    const char      *dir; /* NULL: no folder */
    struct kv_handed hand;
};
static struct xfer *movers;

static void begin(const struct life *x)
{
    struct eng_cfg cfg = { .vocab = VOCAB,
                           .queue_requests_max = 64,
                           .prefix_cache = true,
                           .block_tokens = BT,
                           .context_max = CONTEXT,
                           .seqs_max = 4,
                           .batch_tokens_max = 32,
                           .n_block = N_BLOCK,
                           .preempt_max = 3,
                           .tiers_flush_us = 100000000 };
    memset((void *)&lane, 0, sizeof lane);
    world_prepare(&world, &cfg, 1, false);
    world.fake.twist = x->twist;
    world.fake.twist_from = x->twist_from;
    uint32_t            bytes = fake_block_bytes(&world.fake);
    struct kv_tiers_cfg tc = { .block_bytes = bytes,
                               .host_bytes = SLOTS * kv_record_bytes(bytes),
                               .load_min_tokens = BT,
                               .keep_hits = 1,
                               .audit = true,
                               .audit_every = x->audit_every,
                               .hand = x->hand,
                               .ident = { .block_bytes = bytes, .block_tokens = BT, .layout = KV_LAYOUT },
                               .clock = sim_clock };
    tc.key.seed = 5;
    if (x->dir) {
        tc.n_store = 1;
        tc.store[0].dir = x->dir;
        tc.store[0].bytes = 16 * SEGMENT;
        tc.store[0].segment_bytes = SEGMENT;
    }
    struct xfer_cfg   xc = { .jobs_max = 512, .clock = sim_clock, .pumped = true, .key = tc.key };
    struct xfer_seg   seg = { .kind = XFER_DEVICE,
                              .base = (unsigned char *)world.fake.cell,
                              .bytes = (uint64_t)N_BLOCK * bytes };
    struct xfer_lane *l = calloc(1, sizeof *l);
    lane_init(l, &ops);
    assert_int_equal(xfer_create(&xc, &movers), ST_OK);
    assert_int_equal(xfer_lane_add(movers, l), ST_OK);
    assert_int_equal(xfer_lane_add(movers, lane_nvme_create(8, 1, false)), ST_OK);
    assert_int_equal(xfer_seg_add(movers, &seg, &tc.dev_seg), ST_OK);
    assert_int_equal(xfer_start(movers), ST_OK);
    tc.xfer = movers;
    world.cfg.tiers = &tc;
    world_begin(&world, 64);
    world.cfg.tiers = NULL;
    assert_non_null(world.e);
}

static void end(void)
{
    if (world.fault[0]) fail_msg("%s", world.fault);
    world_close(&world);
    xfer_free(movers);
}

static void step(void)
{
    if (!world_step(&world)) usleep(50); /* the folder's thread is a real one */
    world.now_us += 100;
    if (kv_tiers_check(world.e->tiers)) fail_msg("kv_tiers_check");
    if (world.fault[0]) fail_msg("%s", world.fault);
}

static struct client *submit(uint32_t number, uint32_t max_tokens)
{
    uint32_t ids[PROMPT];
    for (uint32_t i = 0; i < PROMPT; i++) ids[i] = (number * 7 + i * 5 + i * i * number) % VOCAB;
    struct client *c = client_new(&world, ids, PROMPT, 1, max_tokens);
    c->r.s.ignore_eos = true;
    c->r.s.logprobs = true;
    assert_int_equal(world_submit(&world, c), ST_OK);
    return c;
}

static void finish(struct client *c)
{
    for (uint64_t end_us = clock_us() + PATIENCE_S * 1000000u; !c->done; step()) assert_true(clock_us() < end_us);
    world_verify(&world, c);
    if (world.fault[0]) fail_msg("%s", world.fault);
    client_free(c);
}

static void ask_all(void)
{
    for (uint32_t i = 0; i < PROMPTS; i++) finish(submit(i, 3));
}

static struct kv_tiers_stats stats(void)
{
    struct kv_tiers_stats s;
    kv_tiers_stats(world.e->tiers, &s);
    return s;
}

#define UNTIL(cond)                                                             \
    for (uint64_t end_us = clock_us() + PATIENCE_S * 1000000u; !(cond); step()) \
        if (clock_us() > end_us) fail_msg("never: %s", #cond)

static bool known(void)
{
    const struct kv_tiers *t = world.e->tiers;
    return t->n_below && below_takes(t, 0) && !below_busy(t);
}
static bool comes_from_below(void)
{
    struct kv_tiers_stats s = stats();
    return s.tier[KV_TIER_HOST].hit_blocks + s.tier[KV_TIER_STORE].hit_blocks > 0;
}

/* ---- a folder */

static int rm_one(const char *path, const struct stat *s, int flag, struct FTW *f)
{
    (void)s;
    (void)flag;
    (void)f;
    return remove(path);
}
static void new_folder(char *dir)
{
    snprintf(dir, 64, "/tmp/spillway-audit-XXXXXX");
    assert_non_null(mkdtemp(dir));
}

static void fill(const struct life *x)
{
    begin(x);
    UNTIL(known());
    ask_all();
    ask_all();
    assert_int_equal(stats().n_audit_mismatch, 0);
    end();
}

static void F41_a_folder_of_another_arithmetic_gives_no_block(void **state)
{
    (void)state;
    char dir[64];
    new_folder(dir);
    fill(&(struct life){ .twist = 7, .dir = dir });
    begin(&(struct life){ .dir = dir });
    UNTIL(known());
    assert_true(stats().store.n_recovered >
                0); /* the canary may come before all of it is read, and then the rest goes unread */
    ask_all();
    assert_int_equal(world.fake.n_alien, 0);
    assert_int_equal(stats().n_audit, 1);
    assert_int_equal(stats().n_audit_mismatch, 1);
    assert_int_equal(stats().tier[KV_TIER_STORE].hit_blocks, 0);
    ask_all();
    ask_all();
    assert_int_equal(world.fake.n_alien, 0);
    end();
    begin(&(struct life){ .dir = dir }); /* what was written since is its own */
    UNTIL(known());
    ask_all();
    assert_true(comes_from_below());
    assert_int_equal(stats().n_audit, 1);
    assert_int_equal(stats().n_audit_mismatch, 0);
    assert_int_equal(world.fake.n_alien, 0);
    end();
    nftw(dir, rm_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* The first block is the same, the later ones are not: the canary passes, samples find it while a request runs on top
 * of such blocks. */
static void F41_a_sample_finds_what_the_canary_could_not(void **state)
{
    (void)state;
    char dir[64];
    new_folder(dir);
    fill(&(struct life){ .twist = 7, .twist_from = BT, .dir = dir });
    begin(&(struct life){ .dir = dir, .audit_every = 1 });
    UNTIL(known());
    UNTIL(stats().n_audit == 1);
    assert_int_equal(stats().n_audit_mismatch, 0);
    const struct audit *audit = &world.e->tiers->audit;
    uint32_t            n = 0;
    struct client      *c = NULL;
    while (!c) { /* until a copy of what was computed again is held up, with a request running meanwhile */
        assert_true(n < PROMPTS);
        finish(submit(n++, 1));
        if (audit->state != AUDIT_NOTED) continue;
        lane.holds = true;
        UNTIL(audit->state == AUDIT_COPYING);
        c = submit(n - 1, 20);
    }
    assert_non_null(c);
    for (int i = 0; i < 6; i++) step();
    assert_int_equal(world.e->sched.n_running, 1);
    assert_int_equal(stats().n_audit_mismatch, 0);
    assert_true(world.fake.n_alien > 0); /* so much for what no canary can see */
    lane.holds = false;
    UNTIL(stats().n_audit_mismatch == 1);
    UNTIL(!audit->purge);
    assert_int_equal(stats().tier[KV_TIER_HOST].n_block, 0);
    assert_int_equal(stats().tier[KV_TIER_STORE].n_block, 0);
    uint64_t before = world.fake.n_alien;
    finish(c); /* it has computed its prefix anew, and says the same */
    ask_all();
    ask_all();
    assert_int_equal(world.fake.n_alien, before);
    UNTIL(!kv_tiers_busy(world.e->tiers) && audit->state == AUDIT_NONE);
    world_ledger(&world);
    end();
    begin(&(struct life){ .dir = dir, .audit_every = 1 });
    UNTIL(known());
    ask_all();
    ask_all();
    assert_true(comes_from_below());
    assert_int_equal(world.fake.n_alien, 0);
    assert_int_equal(stats().n_audit_mismatch, 0);
    end();
    nftw(dir, rm_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* ---- a slab */

static void hand_over(uint64_t twist)
{
    int slab = -1, index = -1;
    begin(&(struct life){ .twist = twist });
    ask_all();
    ask_all();
    eng_tiers_hand(world.e, KV_FROZEN);
    UNTIL(eng_tiers_hand_is(world.e, &slab, &index) == KV_FROZEN);
    slab = dup(slab);
    index = dup(index);
    assert_true(slab >= 0 && index >= 0);
    end();
    begin(&(struct life){ .hand = { true, slab, index } });
    eng_tiers_hand(world.e, KV_SERVES); /* it has the right to */
    assert_true(stats().tier[KV_TIER_HOST].n_block > 20);
    ask_all();
    assert_int_equal(world.fake.n_alien, 0);
    assert_int_equal(stats().n_audit, 1);
    assert_int_equal(stats().n_audit_mismatch, twist != 0);
    if (twist)
        assert_int_equal(stats().tier[KV_TIER_HOST].hit_blocks, 0);
    else
        assert_true(comes_from_below());
    ask_all();
    assert_int_equal(world.fake.n_alien, 0);
    end();
}

static void F41_a_slab_of_another_arithmetic_gives_no_block(void **state)
{
    (void)state;
    hand_over(7);
}
static void a_sound_slab_is_used_when_one_block_was_computed_again(void **state)
{
    (void)state;
    hand_over(0);
}

int main(void)
{
    log_init(LOG_LEVEL_ERROR, 2, false);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(F41_a_folder_of_another_arithmetic_gives_no_block),
        cmocka_unit_test(F41_a_sample_finds_what_the_canary_could_not),
        cmocka_unit_test(F41_a_slab_of_another_arithmetic_gives_no_block),
        cmocka_unit_test(a_sound_slab_is_used_when_one_block_was_computed_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
