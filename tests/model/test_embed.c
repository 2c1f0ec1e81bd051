/* Models that pool: vectors against those of transformers (tools/golden/make_pooled_golden.py), and the first promise:
 * a prompt gives the same vector alone, in any batch, in any chunks, on a cached prefix, after a preemption. By
 * memcmp. */
#include "base/rng.h"
#include "states.h"
#include "tests_root.h"

/* tests/cuda/test_embed.c includes this file with another device. */
#ifndef EMBED_DEVICES
#define EMBED_DEVICES    \
    {                    \
        DEV_REF, DEV_CPU \
    }
#define EMBED_COSINE 0.999999
#endif

enum { N_ASK = 7, PROMPT_MAX = 120, BLOCKS_FEW = 14, PREEMPT_EVERY = 3 };
static const enum dev_kind devices[] = EMBED_DEVICES;
static const char *const   models[] = { "qwen3", "mistral", "gemma2" };
static const struct {
    enum model_pool pool;
    const char     *name;
} pools[] = { { POOL_LAST, "last" }, { POOL_MEAN, "mean" }, { POOL_CLS, "cls" } };
enum { N_POOL = sizeof pools / sizeof *pools };

/* ---- against transformers */

static double cosine(const double *a, const float *b, uint32_t n)
{
    double ab = 0, aa = 0, bb = 0;
    for (uint32_t i = 0; i < n; i++) {
        ab += a[i] * (double)b[i];
        aa += a[i] * a[i];
        bb += (double)b[i] * (double)b[i];
    }
    return ab / sqrt(aa * bb);
}

static void golden_vectors(struct gold *g, enum dev_kind device, uint32_t n_rank, size_t pool, enum dtype type,
                           double least)
{
    static struct ask  a;
    struct source_file f;
    size_t             dim = g->spec.hidden;
    float             *want = calloc((size_t)g->n_prompt * N_POOL * dim, sizeof *want);
    assert_non_null(want);
    assert_int_equal(source_open(&g->src, "pooled.f32", &f), ST_OK);
    assert_int_equal(f.bytes, g->n_prompt * N_POOL * dim * sizeof *want);
    assert_int_equal(source_read(&f, 0, want, f.bytes), ST_OK);
    source_close(&f);
    g->spec.pool = pools[pool].pool;
    struct rank_team *t = team_open(g, device, n_rank, 4, 1, type);
    struct engine    *e = engine_open(g, t, 0, BLOCKS, 0);
    double            worst = 1;
    for (uint32_t p = 0; p < g->n_prompt; p++) {
        a.n = g->n[p];
        memcpy(a.prompt, g->prompt[p], a.n * sizeof *a.prompt);
        run(e, &a, 1, g->spec.pool);
        worst = fmin(worst, cosine(a.got, want + (N_POOL * p + pool) * dim, (uint32_t)dim));
    }
    printf("    %-8s %-5s device %d, %u ranks: cosine %.9f\n", g->dir + strlen(TESTS_DATA "/golden/"), pools[pool].name,
           (int)device, n_rank, worst);
    if (!(worst >= least)) fail_msg("%s %s: cosine %.9f, least %.9f", g->dir, pools[pool].name, worst, least);
    eng_free(e);
    rank_team_free(t);
    free(want);
}

static void vectors_are_those_of_transformers(void **state)
{
    (void)state;
    for (size_t m = 0; m < ARRAY_N(models); m++)
        for (size_t d = 0; d < ARRAY_N(devices); d++)
            for (size_t p = 0; p < ARRAY_N(pools); p++) {
                static struct gold g;
                enum dtype         type = devices[d] == DEV_CUDA ? DT_COUNT : DT_F32;
                gold_open(&g, models[m]);
                golden_vectors(&g, devices[d], 1, p, type, EMBED_COSINE);
                if (devices[d] == DEV_CPU) golden_vectors(&g, DEV_CPU, 2, p, type, EMBED_COSINE);
                if (devices[d] == DEV_CPU) golden_vectors(&g, DEV_CPU, 1, p, DT_BF16, 0.9999);
                if (devices[d] == DEV_CUDA) golden_vectors(&g, DEV_CUDA, 1, p, DT_F16, 0.99995);
                gold_close(&g);
            }
}

/* ---- exact */

static void asks_make(struct ask *a, uint32_t vocab)
{
    static const uint32_t n[N_ASK] = { 1, 120, 37, 16, 17, 96, 113 };
    for (uint32_t i = 0; i < N_ASK; i++) {
        a[i].n = n[i];
        for (uint32_t k = 0; k < n[i]; k++) {
            bool shared = i >= 4 && k < 64; /* the last three begin alike */
            a[i].prompt[k] = rng_philox(7, shared ? 99 : i, k).x[0] % vocab;
        }
    }
}

static void same(const struct ask *a, const char *how)
{
    for (uint32_t i = 0; i < N_ASK; i++)
        if (memcmp(a[i].want, a[i].got, sizeof a[i].want))
            fail_msg("prompt %u of %u tokens, %s: another vector than alone", i, a[i].n, how);
}

static void exact(struct gold *g, enum dev_kind device, enum model_pool pool)
{
    static struct ask a[N_ASK];
    static const struct {
        const char *how;
        uint32_t    chunk, n_block, team;
    } ways[] = { { "batched", 0, BLOCKS, 0 },        { "in chunks of 1", 1, BLOCKS, 0 },
                 { "in chunks of 7", 7, BLOCKS, 0 }, { "in chunks of 16", 16, BLOCKS, 0 },
                 { "preempted", 7, BLOCKS_FEW, 0 },  { "one row a round", 0, BLOCKS, 1 },
                 { "overlapped", 7, BLOCKS, 2 } };
    bool every_row = pool != POOL_LAST;
    g->spec.pool = pool;
    struct rank_team *team[] = { team_open(g, device, 1, 5, 1, DT_COUNT), team_open(g, device, 1, 1, 1, DT_COUNT),
                                 team_open(g, device, 1, 5, 2, DT_COUNT) };
    struct engine    *alone = engine_open(g, team[0], 0, BLOCKS, 0);
    asks_make(a, g->spec.vocab);
    for (uint32_t i = 0; i < N_ASK; i++) {
        kv_evict_all(eng_kv(alone));
        run(alone, &a[i], 1, pool);
        memcpy(a[i].want, a[i].got, sizeof a[i].want);
    }
    eng_free(alone);
    for (size_t w = 0; w < ARRAY_N(ways); w++) {
        uint32_t       every = ways[w].n_block == BLOCKS_FEW ? PREEMPT_EVERY : 0;
        struct engine *e = engine_open(g, team[ways[w].team], ways[w].chunk, ways[w].n_block, every);
        n_preempted = 0;
        run(e, a, N_ASK, pool);
        same(a, ways[w].how);
        if (ways[w].n_block == BLOCKS_FEW) assert_true(n_preempted > 0);
        run(e, a, N_ASK, pool);
        same(a, "a second time");
        uint32_t n_cached = 0;
        for (uint32_t i = 0; i < N_ASK; i++) n_cached += a[i].n_cached;
        if (every_row && ways[w].n_block == BLOCKS)
            assert_int_equal(n_cached, 0); /* other rows than the last are needed */
        if (!every_row && ways[w].n_block == BLOCKS) assert_true(n_cached > 0);
        eng_free(e);
    }
    for (size_t t = 0; t < ARRAY_N(team); t++) rank_team_free(team[t]);
}

static void a_vector_depends_on_its_prompt_alone(void **state)
{
    (void)state;
    for (size_t p = 0; p < ARRAY_N(pools); p++) {
        static struct gold g;
        gold_open(&g, models[p]);
        exact(&g, devices[ARRAY_N(devices) - 1], pools[p].pool);
        gold_close(&g);
    }
}

static void a_prompt_may_fill_the_context_and_not_be_longer(void **state)
{
    (void)state;
    static struct gold g;
    static struct ask  a;
    static uint32_t    long_prompt[CONTEXT + 1];
    struct eng_choice  choice = { .id = &(uint32_t){ 0 } };
    gold_open(&g, "qwen3");
    g.spec.pool = POOL_LAST;
    struct rank_team *t = team_open(&g, devices[ARRAY_N(devices) - 1], 1, 4, 1, DT_COUNT);
    struct engine    *e = engine_open(&g, t, 0, BLOCKS, 0);
    a.n = CONTEXT;
    run(e, &a, 1, POOL_LAST);
    struct eng_request r = { .prompt = long_prompt,
                             .n_prompt = CONTEXT + 1,
                             .s = { .top_p = 1, .repetition = 1, .max_tokens = 1 },
                             .n_choice = 1,
                             .choice = &choice,
                             .outbox = &outbox,
                             .state = a.got };
    assert_int_equal(eng_submit(e, &r), ST_TOO_LARGE);
    r.n_prompt = 1;
    r.s.max_tokens = 2; /* nothing is drawn here */
    assert_int_equal(eng_submit(e, &r), ST_INVALID);
    eng_free(e);
    rank_team_free(t);
    gold_close(&g);
}

int main(void)
{
    char why[200];
    log_init(LOG_LEVEL_ERROR, 2, false);
    if (!dev_serves(devices[0], why, sizeof why)) {
        printf("%s, skipped\n", why);
        return 77;
    }
    if (ring_init(&outbox, 64)) return 1;
    const struct CMUnitTest tests[] = { cmocka_unit_test(vectors_are_those_of_transformers),
                                        cmocka_unit_test(a_vector_depends_on_its_prompt_alone),
                                        cmocka_unit_test(a_prompt_may_fill_the_context_and_not_be_longer) };
    int                     failed = cmocka_run_group_tests(tests, NULL, NULL);
    ring_free(&outbox);
    return failed;
}
