/* A prefix that went down and came back gives the same bits: test_tiers [requests [seed]]; EXACT_ALL=1: on every
 * instruction set after the other, or on those that OP_SIMD names. Other devices and several ranks include this file.
 * Random talks (turns that grow by their answers, shared beginnings, several choices, cancels) run through an engine
 * with 64 blocks of device, few on the host and few in a folder, where everything is evicted, preempted, loaded,
 * abandoned and restarted all the time. Each request then runs again without any cache; tokens, logprobs and
 * alternatives are compared by memcmp.
 * Over 500 lines: one world; those who include it choose its device, its models and its troubles. */
#include "base/clock.h"
#include "base/rng.h"
#include "engine/step.h"
#include "golden.h"
#define flight tier_flight /* the engine has one too */
#include "kvcache/tier_impl.h"
#undef flight
#include "kvcache/device/seq.h"
#include "op/op_test.h"
#include "transfer/lanes.h"
#include <ftw.h>

#ifndef TIERS_DEVICE
#define TIERS_DEVICE DEV_CPU
#endif
#ifndef TIERS_RANKS
#define TIERS_RANKS 1
#endif
#ifndef TIERS_REQUESTS
#define TIERS_REQUESTS 8000
#endif
#ifndef TIERS_SMALL /* for devices that take long */
#define TIERS_SMALL 0
#endif
#ifndef TIERS_TROUBLE /* called before each wave: lets copies fail, which is to be a miss */
#define TIERS_TROUBLE() (void)0
#define TIERS_FAILS     0
#endif
#ifndef TIERS_POISON /* what is free on the device is not a number, at every step */
#define TIERS_POISON 0
#endif
#ifndef TIERS_IN_PLACE /* the device reads the host's blocks where they are */
#define TIERS_IN_PLACE 0
#endif
#ifndef TIERS_KV_TYPES /* one after the other; DT_COUNT: as the weights */
#define TIERS_KV_TYPES \
    {                  \
        DT_COUNT       \
    }
#endif
#ifndef TIERS_GOLDS /* one after the other */
#define TIERS_GOLDS    \
    {                  \
        "llama-linear" \
    }
#endif
#ifndef TIERS_WINDOWS /* blocks of the pool of layers with a window; without tiers all layers have one */
#define TIERS_WINDOWS 0
#endif
#ifndef TIERS_TEST
#define TIERS_TEST whatever_the_tiers_did_the_answer_is_the_same
#endif
#define TIERS_UNIT(test) cmocka_unit_test(test)
enum {
    WAVE = TIERS_SMALL ? 5 : 16,
    TALKS = TIERS_SMALL ? 4 : 24,
    STEMS = 4,
    CHOICES_MAX = 3,
    OUT_MAX = 16,
    TOP_MAX = 3,
    CONTEXT = TIERS_SMALL ? 112 : 256,
    BLOCKS = 64,
    HOST_BLOCKS = TIERS_WINDOWS ? 120 : 40,
    RESTART_WAVES = TIERS_SMALL ? 5 : 10
};
/* A restart is asked of runs of 100 requests and more: though all waves be as large as they may, one comes. */
_Static_assert(TIERS_REQUESTS < 100 || (RESTART_WAVES - 1) * WAVE < TIERS_REQUESTS, "a run may end before a restart");

static uint64_t n_want = TIERS_REQUESTS, seed = 1, n_drawn;
static uint32_t draw(uint32_t n) { return rng_philox(seed, 7, n_drawn++).x[0] % n; }

/* ---- requests */

struct outcome {
    uint32_t       n_out[CHOICES_MAX], id[CHOICES_MAX][OUT_MAX];
    int            finish[CHOICES_MAX];
    float          logprob[CHOICES_MAX][OUT_MAX];
    struct eng_top top[CHOICES_MAX][OUT_MAX * TOP_MAX];
};
struct job {
    uint32_t            prompt[CONTEXT], n_prompt, n_choice;
    struct eng_sampling s;
    struct kv_salt      salt;
    bool                cancels, submitted, done;
    struct eng_request  r;
    struct eng_choice   choice[CHOICES_MAX];
    struct outcome      got, want;
};
struct talk {
    uint32_t       id[CONTEXT], n;
    struct kv_salt salt;
};

static struct job  job[WAVE];
static struct talk talk[TALKS];
static uint32_t    stem[STEMS][CONTEXT];

/* What it says next: on top of what was said, or something new over a shared beginning. */
static void job_draw(struct job *j, struct talk *t, uint32_t vocab)
{
    memset(j, 0, sizeof *j);
    uint32_t more = 1 + draw(24);
    if (!t->n || t->n + more + OUT_MAX > CONTEXT || draw(7) == 0) {
        t->n = draw(4) ? draw(CONTEXT * 3 / 4) : 0;
        memcpy(t->id, stem[draw(STEMS)], t->n * sizeof *t->id);
        t->salt = (struct kv_salt){ draw(5) ? 0 : 1 + draw(2), 0 };
    }
    for (; more && t->n + OUT_MAX < CONTEXT; more--) t->id[t->n++] = draw(vocab);
    j->n_prompt = t->n;
    j->salt = t->salt;
    memcpy(j->prompt, t->id, t->n * sizeof *t->id);
    j->n_choice = draw(4) ? 1 : 2 + draw(CHOICES_MAX - 1);
    j->cancels = draw(12) == 0;
    j->s = (struct eng_sampling){ .temperature = draw(3) ? 0.5f + 0.1f * (float)draw(10) : 0,
                                  .top_p = draw(2) ? 1 : 0.9f,
                                  .repetition = draw(4) ? 1 : 1.2f,
                                  .top_k = draw(2) ? 0 : 20,
                                  .seed = n_drawn,
                                  .max_tokens = 1 + draw(draw(3) ? 16 : OUT_MAX),
                                  .ignore_eos = draw(2),
                                  .logprobs = true,
                                  .n_top = draw(TOP_MAX + 1) };
}

static void job_fill(struct job *j, struct ring *outbox)
{
    memset((void *)j->choice, 0, sizeof j->choice);
    memset(&j->got, 0, sizeof j->got);
    j->submitted = j->done = false;
    j->r = (struct eng_request){ .prompt = j->prompt,
                                 .n_prompt = j->n_prompt,
                                 .s = j->s,
                                 .n_choice = j->n_choice,
                                 .choice = j->choice,
                                 .salt = j->salt,
                                 .outbox = outbox,
                                 .user = j };
    for (uint32_t c = 0; c < j->n_choice; c++) {
        j->choice[c].id = j->got.id[c];
        j->choice[c].logprob = j->got.logprob[c];
        j->choice[c].top = j->got.top[c];
    }
}

static void job_end(struct job *j)
{
    assert_int_equal(j->r.status, ST_OK);
    for (uint32_t c = 0; c < j->n_choice; c++) {
        j->got.n_out[c] = atomic_load(&j->choice[c].n_out);
        j->got.finish[c] = atomic_load(&j->choice[c].finish);
    }
}

/* ---- an engine with tiers, and one without any cache */

static struct gold              gold;
static struct ring              outbox;
static struct rank_team        *team, *plain_team;
static struct engine           *e, *plain;
static struct xfer             *xfer;
static char                     dir[64];
static struct kv_tiers_cfg      tc;
static const struct xfer_ranks *dev_pool, *win_pool;
static uint32_t                 window; /* tokens */

static const char *isa; /* NULL: the best */
static enum dtype  kv_dtype;

static struct rank_team *team_open(uint32_t n_block, uint32_t n_window, uint32_t depth)
{
    struct rank_team *t;
    uint32_t          n;
    char              err[512] = "";
    struct rank_cfg   cfg = { .n_rank = TIERS_RANKS,
                              .device = TIERS_DEVICE,
                              .deterministic = true,
                              .n_thread = TIERS_RANKS,
                              .depth = depth,
                              .simd = isa,
                              .load = { .weight_dtype = DT_COUNT,
                                        .kv_dtype = kv_dtype,
                                        .batch_rows_max = 96,
                                        .logit_rows_max = 8,
                                        .n_block = n_block,
                                        .n_window = n_window,
                                        .block_tokens = 16 } };
    if (rank_team_create(&gold.spec, &gold.src, &cfg, &n, &t, err, sizeof err)) fail_msg("%s", err);
    return t;
}

static struct engine *engine_open(struct rank_team *t, uint32_t n_block, const struct kv_tiers_cfg *tiers)
{
    struct engine    *x;
    struct eng_runner runner = rank_team_runner(t);
    struct eng_cfg    cfg = { .seqs_max = 16,
                              .batch_tokens_max = 96,
                              .prefill_chunk_max = tiers ? 8 + draw(80) : 0,
                              .queue_requests_max = 2 * WAVE,
                              .queue_tokens_max = 1 << 20,
                              .context_max = CONTEXT,
                              .vocab = gold.spec.vocab,
                              .n_block = n_block,
                              .n_window = tiers ? TIERS_WINDOWS : 0,
                              .window = window,
                              .block_tokens = 16,
                              .prefix_cache = tiers != NULL,
                              .eos_id = gold.spec.eos_id,
                              .n_eos = gold.spec.n_eos,
                              .preempt_every = tiers ? 12 : 0,
                              .tiers = tiers,
                              .tiers_flush_us = 3000000 };
    assert_int_equal(eng_create(&cfg, &runner, &x), ST_OK);
    return x;
}

/* Their pool is a segment of its own. */
static void windows_add(void)
{
    uint32_t n;
    win_pool = rank_team_kv_windows(team, &n);
    assert_int_equal(win_pool != NULL, TIERS_WINDOWS > 0);
    if (!win_pool) return;
    struct xfer_seg seg = { .kind = XFER_DEVICE, .bytes = n * win_pool->block_bytes, .ranks = win_pool };
    assert_int_equal(n, TIERS_WINDOWS);
    assert_int_equal(win_pool->piece_bytes, tc.block_bytes);
    assert_int_equal(xfer_seg_add(xfer, &seg, &tc.win_seg), ST_OK);
    tc.win_bytes = tc.ident.window_bytes = win_pool->block_bytes;
    tc.ident.window = window;
}

static void lanes_open(void)
{
    uint32_t                 n_block;
    const struct xfer_ranks *pool = rank_team_kv(team, &n_block);
    struct xfer_cfg          xc = { .jobs_max = 1024 };
    assert_non_null(pool);
    dev_pool = pool;
    assert_int_equal(pool->n, TIERS_RANKS);
    assert_int_equal(n_block, BLOCKS);
    tc.block_bytes = pool->block_bytes;
    snprintf(dir, sizeof dir, "/tmp/spillway-exact-XXXXXX");
    assert_non_null(mkdtemp(dir));
    tc.key.seed = xc.key.seed = 77;
    tc.host_bytes = HOST_BLOCKS * kv_record_bytes(tc.block_bytes);
    tc.load_min_tokens = 16;
    tc.keep_hits = 1;
    tc.in_place = TIERS_IN_PLACE;
    tc.in_place_reads = 6;
    tc.ident = (struct kv_identity){ .block_bytes = tc.block_bytes, .block_tokens = 16, .layout = KV_LAYOUT };
    tc.n_store = 1;
    tc.store[0].dir = dir;
    tc.store[0].bytes = 400 * kv_record_bytes(tc.block_bytes);
    assert_int_equal(xfer_create(&xc, &xfer), ST_OK);
    assert_int_equal(xfer_lane_add(xfer, lane_dev_create()), ST_OK);
    assert_int_equal(xfer_lane_add(xfer, lane_nvme_create(8, 2, false)), ST_OK);
    assert_int_equal(
        xfer_seg_add(xfer,
                     &(struct xfer_seg){ .kind = XFER_DEVICE, .bytes = n_block * pool->block_bytes, .ranks = pool },
                     &tc.dev_seg),
        ST_OK);
    windows_add();
    assert_int_equal(xfer_start(xfer), ST_OK);
    tc.xfer = xfer;
}

/* ---- a wave of requests */

static struct {
    uint64_t n_request, n_choice, n_token, n_canceled, n_preempted, n_cached, n_host, n_store, n_restart, n_borrowed,
        n_again;
    uint64_t n_window, n_load, n_abandoned, n_recompute, n_doubt, n_store_blocks, n_failed, n_in_place, n_moved;
} sum;

static void read_outbox(uint32_t *left)
{
    for (void *msg; (msg = ring_pop(&outbox));) {
        struct eng_request *r = eng_msg_request(msg);
        struct job         *j = r->user;
        if (!eng_msg_is_final(msg)) {
            atomic_store(&r->notified, false);
            continue;
        }
        j->done = true;
        --*left;
    }
}

/* Blocks that nobody may read any more: who does gets NaN, in every type of KV, and from there in its logits. Between
 * steps: one that is in flight may still name a block that was freed behind it, and reads it before the next can write
 * there. */
static uint64_t n_poisoned;
static void     poison_pool(const struct kv_pool *pool, const struct xfer_ranks *r)
{
    for (uint32_t i = 0; i < pool->n_free; i++)
        for (uint32_t k = 0; k < r->n; k++)
            memset(r->rank[k].base + pool->free_id[i] * r->rank[k].bytes, 0xff, r->rank[k].bytes);
    n_poisoned += pool->n_free;
}
static void poison_free(void)
{
    if (e->n_flight) return;
    poison_pool(&eng_kv(e)->pool, dev_pool);
    if (TIERS_WINDOWS) poison_pool(&eng_kv(e)->win.pool, win_pool);
    const struct kv_host *h = &e->tiers->host;
    for (uint32_t i = 0; TIERS_IN_PLACE && i < h->n_slot; i++)
        if (h->slot[i].state == SLOT_FREE) memset(slot_page(h, (int32_t)i), 0xff, h->stride);
}

static uint64_t now_us = 1000;
/* us: what a step is said to take: 0 nothing is known, little: loads are given up or not begun, much: loads are worth
 * it. */
static void run_tiers(uint32_t n, uint64_t us)
{
    uint32_t left = n, sent = 0;
    bool     did = true;
    for (uint32_t step = 0; left || did; step++, now_us += us) {
        assert_true(step < 2000000);
        if (sent < n && (!did || draw(3) == 0)) {
            job_fill(&job[sent], &outbox);
            assert_int_equal(eng_submit(e, &job[sent].r), ST_OK);
            job[sent++].submitted = true;
        }
        struct job *x = &job[draw(n)];
        if (x->cancels && x->submitted && !x->done && draw(6) == 0) eng_cancel(e, &x->r);
        if (draw(TIERS_SMALL ? 5 : 24) == 0) kv_evict_all(eng_kv(e));
        assert_int_equal(eng_step(e, now_us, &did), ST_OK);
        if (TIERS_POISON) poison_free();
        if (!did) usleep(20); /* the lanes are at work */
        if (step % 8 == 0) assert_int_equal(kv_check(eng_kv(e)), ST_OK);
        if (step % 8 == 0) assert_int_equal(kv_tiers_check(e->tiers), ST_OK);
        read_outbox(&left);
    }
}

static void run_plain(uint32_t n)
{
    uint32_t left = n;
    bool     did = true;
    for (uint32_t i = 0; i < n; i++) {
        job_fill(&job[i], &outbox);
        assert_int_equal(eng_submit(plain, &job[i].r), ST_OK);
    }
    for (uint64_t step = 0; left || did; step++) {
        assert_true(step < 100000);
        assert_int_equal(eng_step(plain, 1000 * step, &did), ST_OK);
        read_outbox(&left);
    }
}

static void compare(const struct job *j)
{
    const struct outcome *a = &j->want, *b = &j->got; /* a: through the tiers; it may have been canceled on its way */
    for (uint32_t c = 0; c < j->n_choice; c++) {
        bool   whole = a->finish[c] == ENG_STOP || a->finish[c] == ENG_LENGTH;
        size_t n = a->n_out[c];
        if (!whole) assert_true(j->cancels && a->finish[c] == ENG_CANCELED);
        if (whole ? n != b->n_out[c] || a->finish[c] != b->finish[c] : n > b->n_out[c])
            fail_msg("request %llu choice %u: %zu tokens, %u without a cache", (unsigned long long)sum.n_request, c, n,
                     b->n_out[c]);
        if (memcmp(a->id[c], b->id[c], n * sizeof **a->id) ||
            memcmp(a->logprob[c], b->logprob[c], n * sizeof **a->logprob) ||
            memcmp(a->top[c], b->top[c], n * j->s.n_top * sizeof **a->top))
            fail_msg("request %llu choice %u is another one than without a cache", (unsigned long long)sum.n_request,
                     c);
        sum.n_choice++;
        sum.n_token += n;
        sum.n_canceled += !whole;
    }
    sum.n_request++;
}

static void wave(void)
{
    static const uint64_t slow[] = { 0, 20000000 }, quick[] = { 0, 50, 2000, 20000, 20000 };
    const uint64_t       *pace = TIERS_SMALL ? slow : quick;
    uint32_t              n = 1 + draw(WAVE), who[WAVE];
    TIERS_TROUBLE();
    for (uint32_t i = 0; i < n; i++) job_draw(&job[i], &talk[who[i] = draw(TALKS)], gold.spec.vocab);
    run_tiers(n, pace[draw(TIERS_SMALL ? ARRAY_N(slow) : ARRAY_N(quick))]);
    for (uint32_t i = 0; i < n; i++) {
        struct job  *j = &job[i];
        struct talk *t = &talk[who[i]];
        job_end(j);
        sum.n_cached += j->r.n_cached;
        sum.n_host += j->r.n_cached_from[KV_TIER_HOST];
        sum.n_store += j->r.n_cached_from[KV_TIER_STORE];
        sum.n_preempted += j->r.n_preempted;
        j->want = j->got;
        uint32_t c = draw(j->n_choice);
        if (t->n != j->n_prompt || memcmp(t->id, j->prompt, t->n * sizeof *t->id))
            continue; /* it was asked twice in this wave */
        for (uint32_t k = 0; k < j->want.n_out[c] && t->n < CONTEXT; k++) t->id[t->n++] = j->want.id[c][k];
    }
    run_plain(n);
    for (uint32_t i = 0; i < n; i++) {
        job_end(&job[i]);
        compare(&job[i]);
    }
}

static void engine_close(void)
{
    struct kv_tiers_stats k;
    struct kv_stats       d;
    kv_tiers_stats(e->tiers, &k);
    kv_stats(eng_kv(e), &d);
    sum.n_borrowed += d.n_borrowed;
    sum.n_again += e->sched.n_resumed_tokens;
    sum.n_load += k.n_load;
    sum.n_window += k.n_window_loaded;
    sum.n_abandoned += k.n_abandoned;
    sum.n_recompute += k.n_recompute;
    sum.n_failed += k.n_failed_io;
    sum.n_in_place += k.n_in_place;
    sum.n_moved += k.n_moved;
    sum.n_store_blocks += k.tier[KV_TIER_STORE].hit_blocks;
    for (int i = 0; i < KV_DOUBTS; i++) sum.n_doubt += k.doubt[i];
    assert_true(k.tier[KV_TIER_HOST].used_bytes <= k.tier[KV_TIER_HOST].reserved_bytes);
    assert_true(k.tier[KV_TIER_STORE].used_bytes <= k.tier[KV_TIER_STORE].reserved_bytes);
    eng_free(e);
}

static int rm_one(const char *path, const struct stat *s, int flag, struct FTW *f)
{
    (void)s;
    (void)flag;
    (void)f;
    return remove(path);
}
static void talk_it_through(const char *name)
{
    uint64_t               t0 = clock_us();
    struct model_kv_groups groups = { 0 };
    gold_open(&gold, name);
    if (TIERS_WINDOWS) assert_true(model_kv_groups(&gold.spec, TIERS_RANKS, DT_BF16, 16, &groups));
    window = groups.window;
    team = team_open(BLOCKS, TIERS_WINDOWS, TIERS_POISON ? 1 : 2);
    plain_team = team_open(2 * BLOCKS, 0, 1);
    lanes_open();
    plain = engine_open(plain_team, 2 * BLOCKS, NULL);
    e = engine_open(team, BLOCKS, &tc);
    for (uint32_t s = 0; s < STEMS; s++)
        for (uint32_t i = 0; i < CONTEXT; i++) stem[s][i] = s && i < 40 ? stem[0][i] : draw(gold.spec.vocab);
    for (uint64_t w = 1; sum.n_request < n_want; w++) {
        wave();
        if (w % RESTART_WAVES) continue;
        engine_close(); /* what is on the host goes to the folder; the next one begins with that */
        e = engine_open(team, BLOCKS, &tc);
        sum.n_restart++;
    }
    engine_close();
    print_message(
        "    %s: %llu requests (%llu choices, %llu tokens, %llu choices canceled) in %.1f s: %llu preemptions (%llu tokens of theirs came back), %llu restarts; cached: "
        "%llu tokens, of them %llu from the host, %llu from the folder (%llu blocks), %llu blocks borrowed; %llu loads, %llu abandoned, %llu not begun; "
        "%llu blocks read in place, %llu of them moved up, %llu of windows loaded; %llu doubts; wrong: 0\n",
        name, (unsigned long long)sum.n_request, (unsigned long long)sum.n_choice, (unsigned long long)sum.n_token,
        (unsigned long long)sum.n_canceled, (double)(clock_us() - t0) / 1e6, (unsigned long long)sum.n_preempted,
        (unsigned long long)sum.n_again, (unsigned long long)sum.n_restart, (unsigned long long)sum.n_cached,
        (unsigned long long)sum.n_host, (unsigned long long)sum.n_store, (unsigned long long)sum.n_store_blocks,
        (unsigned long long)sum.n_borrowed, (unsigned long long)sum.n_load, (unsigned long long)sum.n_abandoned,
        (unsigned long long)sum.n_recompute, (unsigned long long)sum.n_in_place, (unsigned long long)sum.n_moved,
        (unsigned long long)sum.n_window, (unsigned long long)sum.n_doubt);
    bool some = sum.n_load && sum.n_host + sum.n_store, most = some && sum.n_host && sum.n_store && sum.n_restart;
    bool all = most && sum.n_borrowed && sum.n_preempted && sum.n_again &&
               sum.n_canceled; /* few requests do not meet all of it */
    if (TIERS_REQUESTS < 1000) all = TIERS_REQUESTS < 100 ? some : most;
    assert_true(n_want < TIERS_REQUESTS || all);
    assert_true(!TIERS_POISON || n_poisoned > 20 * sum.n_request);
    assert_int_equal(sum.n_in_place > 0, TIERS_IN_PLACE);
    if (n_want >= TIERS_REQUESTS) assert_int_equal(sum.n_window > 0, TIERS_WINDOWS > 0);
    if (TIERS_IN_PLACE && TIERS_REQUESTS > 100) assert_true(sum.n_moved);
    assert_int_equal(sum.n_doubt, 0); /* nothing was damaged */
    if (n_want >= TIERS_REQUESTS) assert_int_equal(sum.n_failed > 0, TIERS_FAILS);
    eng_free(plain);
    xfer_free(xfer);
    rank_team_free(team);
    rank_team_free(plain_team);
    gold_close(&gold);
    nftw(dir, rm_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* Of the cpu device: with EXACT_ALL every instruction set after each other, from the same seed. */
static void TIERS_TEST(void **state)
{
    (void)state;
    char have[128] = "", *rest = have;
    if (getenv("EXACT_ALL") && TIERS_DEVICE == DEV_CPU) dev_cpu_isas(have, sizeof have);
    while (rest) {
        isa = strsep(&rest, ",");
        isa += *isa == ' ';
        if (!*isa) isa = NULL;
        if (isa && !op_wants(isa)) continue;
        if (isa) print_message("    %s\n", isa);
        static const enum dtype  types[] = TIERS_KV_TYPES;
        static const char *const golds[] = TIERS_GOLDS;
        for (size_t i = 0; i < ARRAY_N(types) * ARRAY_N(golds); i++) {
            kv_dtype = types[i % ARRAY_N(types)];
            memset(&sum, 0, sizeof sum);
            memset(talk, 0, sizeof talk);
            n_drawn = n_poisoned = 0;
            talk_it_through(golds[i / ARRAY_N(types)]);
        }
    }
}

int main(int argc, char **argv)
{
    if (argc > 1) n_want = strtoull(argv[1], NULL, 10);
    if (argc > 2) seed = strtoull(argv[2], NULL, 10);
    log_init(LOG_LEVEL_WARN, 2, false);
    if (ring_init(&outbox, 4 * WAVE)) return 1;
    const struct CMUnitTest tests[] = { TIERS_UNIT(TIERS_TEST) };
    int                     failed = cmocka_run_group_tests(tests, NULL, NULL);
    ring_free(&outbox);
    return failed;
}
