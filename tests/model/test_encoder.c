/* Encoders: vectors against those of transformers (tools/golden/make_encoder_golden.py), and the first promise: a text
 * gives the same vector alone and beside any others in a step. By memcmp, on every instruction set. */
#include "base/rng.h"
#include "engine/model/pooling.h"
#include "finish.h"
#include "golden.h"

/* tests/cuda/test_encoder.c includes this file with another device. A way to compute vectors, and how near to those of
 * transformers they must be: the largest difference, and the cosine. */
#ifndef ENCODER_DEVICE
#define ENCODER_DEVICE DEV_CPU
#define ENCODER_WAYS                                                                \
    { DEV_REF, 1, DT_F32, 1e-4, 0.999999 }, { DEV_CPU, 1, DT_F32, 1e-4, 0.999999 }, \
        { DEV_CPU, 2, DT_F32, 1e-4, 0.999999 },                                     \
    {                                                                               \
        DEV_CPU, 1, DT_BF16, 1, 0.998                                               \
    } /* weights that nobody trained, rounded */
#endif
static const struct way {
    enum dev_kind device;
    uint32_t      n_rank;
    enum dtype    type;
    double        tolerance, least;
} ways[] = { ENCODER_WAYS };

enum { TEXTS_MAX = 48, DIM_MAX = 64, ROWS = 200, SEQS = 12, BLOCK = 16, POOLS = 2 };
static const char *const     models[] = { "bert",           "xlm-roberta", "roberta", "modernbert", "nomic-bert",
                                          "nomic-bert-old", "gte",         "gte-old", "jina-v3",    "embedding-gemma" };
static const enum model_pool pools[POOLS] = { POOL_CLS, POOL_MEAN };

static struct ring outbox;

struct text {
    uint32_t id[GOLD_TOKENS_MAX], n, second;
    double   want[DIM_MAX], got[DIM_MAX];
};

struct encoder {
    char              dir[512];
    struct source     src;
    struct model_spec spec;
};

static void encoder_open(struct encoder *g, const char *name)
{
    char err[512] = "";
    snprintf(g->dir, sizeof g->dir, "%s/golden/%s", TESTS_DATA, name);
    g->src = (struct source){ .dir = g->dir };
    if (model_spec_load(&g->src, &g->spec, err, sizeof err)) fail_msg("%s: %s", name, err);
    assert_true(model_is_encoder(&g->spec));
    assert_true(g->spec.hidden <= DIM_MAX && g->spec.context <= ROWS);
}

static uint32_t blocks_of(const struct encoder *g) { return ((g->spec.context + BLOCK) / BLOCK + 1) * SEQS; }

static struct rank_team *team_open(const struct encoder *g, enum dev_kind device, const char *isa, uint32_t n_rank,
                                   uint32_t logit_rows, enum dtype type)
{
    struct rank_team *t;
    uint32_t          n_block;
    char              err[512] = "";
    struct rank_cfg   cfg = { .n_rank = n_rank,
                              .device = device,
                              .n_thread = 2,
                              .simd = isa,
                              .deterministic = device == DEV_CUDA,
                              .load = { .weight_dtype = type,
                                        .kv_dtype = DT_COUNT,
                                        .batch_rows_max = ROWS,
                                        .logit_rows_max = logit_rows,
                                        .n_block = blocks_of(g),
                                        .block_tokens = BLOCK,
                                        .step.states_max = g->spec.hidden * (SEQS + ROWS) } };
    if (rank_team_create(&g->spec, &g->src, &cfg, &n_block, &t, err, sizeof err)) fail_msg("%s", err);
    assert_int_equal(model_kv_block_bytes(&g->spec, n_rank, DT_F32, BLOCK), 0); /* nothing is kept of a token */
    return t;
}

static enum eng_state_of rows_of(enum model_pool pool) { return pool == POOL_MEAN ? ENG_STATE_SUM : ENG_STATE_FIRST; }

static struct eng_cfg engine_cfg(const struct encoder *g)
{
    return (struct eng_cfg){ .seqs_max = SEQS,
                             .batch_tokens_max = ROWS,
                             .queue_requests_max = TEXTS_MAX,
                             .queue_tokens_max = 1 << 20,
                             .context_max = g->spec.context + 1,
                             .vocab = g->spec.vocab,
                             .n_block = blocks_of(g),
                             .block_tokens = BLOCK,
                             .n_type = g->spec.n_type,
                             .whole = true,
                             .state_dim = g->spec.hidden,
                             .state_of = rows_of(g->spec.pool) };
}

static struct engine *engine_open(const struct encoder *g, struct rank_team *t)
{
    struct engine    *e;
    struct eng_runner runner = rank_team_runner(t);
    struct eng_cfg    cfg = engine_cfg(g);
    assert_int_equal(eng_create(&cfg, &runner, &e), ST_OK);
    return e;
}

static struct eng_request request_of(struct text *a, struct eng_choice *choice, enum model_pool pool)
{
    return (struct eng_request){ .prompt = a->id,
                                 .n_prompt = a->n,
                                 .second = a->second,
                                 .s = { .top_p = 1, .repetition = 1, .max_tokens = 1, .state_of = rows_of(pool) },
                                 .n_choice = 1,
                                 .choice = choice,
                                 .outbox = &outbox,
                                 .state = a->got };
}

/* All at once, to their end. Returns the number of steps that had rows. */
static uint64_t run(struct engine *e, struct text *a, uint32_t n, enum model_pool pool)
{
    static struct eng_request r[TEXTS_MAX];
    static struct eng_choice  choice[TEXTS_MAX];
    uint32_t                  id = 0;
    struct eng_stats          before, after;
    eng_stats(e, &before);
    memset(choice, 0, sizeof choice);
    for (uint32_t i = 0; i < n; i++) {
        choice[i].id = &id;
        memset(a[i].got, 0, sizeof a[i].got);
        r[i] = request_of(&a[i], &choice[i], pool);
        assert_int_equal(eng_submit(e, &r[i]), ST_OK);
    }
    finish_requests(e, &outbox, n);
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(r[i].status, ST_OK);
        assert_int_equal(atomic_load(&choice[i].finish), ENG_STOP);
        assert_int_equal(r[i].n_cached, 0);
        assert_int_equal(r[i].n_preempted, 0);
    }
    assert_int_equal(kv_check(eng_kv(e)), ST_OK);
    eng_stats(e, &after);
    return after.n_step - before.n_step;
}

/* ---- against transformers */

static uint32_t golden_texts(const struct encoder *g, struct text *a)
{
    char  *text = NULL;
    size_t n;
    assert_int_equal(source_text(&g->src, "golden.json", 1 << 20, &text, &n), ST_OK);
    json_t *root = json_parse(text, n, 0, NULL);
    free(text);
    assert_non_null(root);
    const json_t *prompts = json_object_get(root, "prompts"), *types = json_object_get(root, "types");
    uint32_t      n_text = (uint32_t)json_array_size(prompts);
    assert_in_range(n_text, 1, TEXTS_MAX);
    for (uint32_t i = 0; i < n_text; i++) {
        a[i].n = gold_ids(json_array_get(prompts, i), a[i].id, GOLD_TOKENS_MAX);
        a[i].second = (uint32_t)json_integer_value(json_array_get(types, i)); /* null: 0 */
    }
    json_decref(root);
    return n_text;
}

/* What the worst of some vectors are: the largest difference divided by the largest number, and the cosine. */
struct worst {
    double far, cosine;
};
static void compare(const struct encoder *g, const struct text *a, uint32_t pool, const float *want,
                    const struct way *w, struct worst *worst)
{
    double ab = 0, aa = 0, bb = 0, scale = pools[pool] == POOL_MEAN ? 1.0 / a->n : 1, far = 0, most = 0;
    for (uint32_t i = 0; i < g->spec.hidden; i++) {
        double x = a->got[i] * scale, y = (double)want[i];
        ab += x * y;
        aa += x * x;
        bb += y * y;
        far = fmax(far, fabs(x - y));
        most = fmax(most, fabs(y));
    }
    double cosine = ab / sqrt(aa * bb);
    if (!(far <= w->tolerance && cosine >= w->least))
        fail_msg("%s, a text of %u tokens, pooling %u: off by %g (at most %g), cosine %.9f (at least %.9f)", g->dir,
                 a->n, pool, far, w->tolerance, cosine, w->least);
    worst->far = fmax(worst->far, far / most);
    worst->cosine = fmin(worst->cosine, cosine);
}

static void golden_vectors(struct encoder *g, const struct way *w, uint32_t pool)
{
    static struct text a[TEXTS_MAX];
    uint32_t           n = golden_texts(g, a);
    struct source_file f;
    size_t             dim = g->spec.hidden;
    float             *want = calloc(n * POOLS * dim, sizeof *want);
    assert_non_null(want);
    assert_int_equal(source_open(&g->src, "vectors.f32", &f), ST_OK);
    assert_int_equal(f.bytes, n * POOLS * dim * sizeof *want);
    assert_int_equal(source_read(&f, 0, want, f.bytes), ST_OK);
    source_close(&f);
    g->spec.pool = pools[pool];
    struct rank_team *t = team_open(g, w->device, NULL, w->n_rank, SEQS, w->type);
    struct engine    *e = engine_open(g, t);
    run(e, a, n, g->spec.pool);
    struct worst worst = { 0, 1 };
    for (uint32_t i = 0; i < n; i++) compare(g, &a[i], pool, want + (POOLS * i + pool) * dim, w, &worst);
    printf("    %-12s pooling %u, device %d, %u ranks, type %d: %.2g, cosine %.6f\n",
           g->dir + strlen(TESTS_DATA "/golden/"), pool, (int)w->device, w->n_rank, (int)w->type, worst.far,
           worst.cosine);
    eng_free(e);
    rank_team_free(t);
    free(want);
}

static void vectors_are_those_of_transformers(void **state)
{
    (void)state;
    for (size_t m = 0; m < ARRAY_N(models); m++)
        for (uint32_t p = 0; p < POOLS; p++) {
            static struct encoder g;
            encoder_open(&g, models[m]);
            for (size_t w = 0; w < ARRAY_N(ways); w++) golden_vectors(&g, &ways[w], p);
            model_spec_free(&g.spec);
        }
}

/* ---- against sentence-transformers */

/* The vector of a text as the folder's modules make it of the mean of all states. */
static void pass_modules(const struct model_pooling *p, const struct text *a, uint32_t dim, double *out)
{
    double state[DIM_MAX], sum = 0;
    for (uint32_t i = 0; i < dim; i++) state[i] = a->got[i] / a->n;
    model_dense_apply(p->dense, state, out);
    for (uint32_t i = 0; i < model_dense_width(p->dense); i++) sum += out[i] * out[i];
    for (uint32_t i = 0; i < model_dense_width(p->dense); i++) out[i] /= sqrt(sum);
}

static void modules_make_the_vectors_of_sentence_transformers(void **state)
{
    (void)state;
    static struct encoder g;
    static struct text    a[TEXTS_MAX];
    struct model_pooling  p;
    struct source_file    f;
    char                  err[512] = "";
    encoder_open(&g, "embedding-gemma");
    uint32_t n = golden_texts(&g, a);
    if (model_pooling_load(&g.src, &g.spec, false, &p, err, sizeof err)) fail_msg("%s", err);
    assert_true(p.found && p.normalize && p.pool == POOL_MEAN && p.dense && p.dense->n_layer == 2);
    if (model_dense_load(p.dense, &g.src, err, sizeof err)) fail_msg("%s", err);
    uint32_t dim = model_dense_width(p.dense);
    float   *want = calloc((size_t)n * dim, sizeof *want);
    assert_non_null(want);
    assert_int_equal(source_open(&g.src, "embeddings.f32", &f), ST_OK);
    assert_int_equal(f.bytes, (size_t)n * dim * sizeof *want);
    assert_int_equal(source_read(&f, 0, want, f.bytes), ST_OK);
    source_close(&f);
    g.spec.pool = p.pool;
    for (size_t w = 0; w < ARRAY_N(ways); w++) {
        struct rank_team *t = team_open(&g, ways[w].device, NULL, ways[w].n_rank, SEQS, ways[w].type);
        struct engine    *e = engine_open(&g, t);
        run(e, a, n, p.pool);
        for (uint32_t i = 0; i < n; i++) {
            double got[DIM_MAX], cosine = 0;
            pass_modules(&p, &a[i], g.spec.hidden, got);
            for (uint32_t k = 0; k < dim; k++) cosine += got[k] * (double)want[i * dim + k];
            if (!(cosine >= ways[w].least && cosine < 1 + 1e-6))
                fail_msg("a text of %u tokens, way %zu: cosine %.9f, at least %.9f", a[i].n, w, cosine, ways[w].least);
        }
        eng_free(e);
        rank_team_free(t);
    }
    free(want);
    model_dense_free(p.dense);
    model_spec_free(&g.spec);
}

/* ---- exact */

static uint32_t texts_make(struct text *a, const struct encoder *g)
{
    for (uint32_t i = 0; i < TEXTS_MAX; i++) {
        a[i].n = 1 + rng_philox(3, i, 0).x[0] % (i % 4 ? 40 : g->spec.context);
        if (i == 7) a[i].n = g->spec.context;
        a[i].second = g->spec.n_type > 1 && i % 3 == 2 && a[i].n > 2 ? a[i].n / 2 : 0;
        for (uint32_t k = 0; k < a[i].n; k++) a[i].id[k] = rng_philox(7, i, k).x[0] % g->spec.vocab;
    }
    return TEXTS_MAX;
}

/* team[0] has room for the states of all sequences, team[1] for those of one at a time. */
static void exact(struct encoder *g, const char *isa, uint32_t n_rank, uint32_t pool)
{
    static struct text a[TEXTS_MAX];
    g->spec.pool = pools[pool];
    struct rank_team *team[] = { team_open(g, ENCODER_DEVICE, isa, n_rank, SEQS, DT_COUNT),
                                 team_open(g, ENCODER_DEVICE, isa, n_rank, 1, DT_COUNT) };
    struct engine    *alone = engine_open(g, team[0]);
    uint32_t          n = texts_make(a, g), n_row = 0;
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(run(alone, &a[i], 1, g->spec.pool), 1);
        memcpy(a[i].want, a[i].got, sizeof a[i].want);
        n_row += a[i].n;
    }
    eng_free(alone);
    for (size_t t = 0; t < ARRAY_N(team); t++) {
        struct engine *e = engine_open(g, team[t]);
        uint64_t       n_step = run(e, a, n, g->spec.pool);
        assert_true(n_step < n && n_step * ROWS >= n_row);
        for (uint32_t i = 0; i < n; i++)
            if (memcmp(a[i].want, a[i].got, sizeof a[i].want))
                fail_msg("%s, %s, %u ranks, way %zu: text %u of %u tokens has another vector than alone", g->dir, isa,
                         n_rank, t, i, a[i].n);
        eng_free(e);
        rank_team_free(team[t]);
    }
}

static void a_vector_depends_on_its_text_alone(void **state)
{
    (void)state;
    char isas[200] = "", *next = isas; /* of the cpu; other devices have one */
    if (ENCODER_DEVICE == DEV_CPU) dev_cpu_isas(isas, sizeof isas);
    for (char *isa; (isa = strsep(&next, ","));) {
        if (*isa == ' ') isa++;
        for (size_t m = 0; m < ARRAY_N(models); m++) {
            static struct encoder g;
            encoder_open(&g, models[m]);
            exact(&g, isa, 1 + m % 2, m % POOLS);
            model_spec_free(&g.spec);
        }
    }
}

/* ---- bounds */

static void a_text_may_fill_the_context_and_not_be_longer(void **state)
{
    (void)state;
    static struct encoder g;
    static struct text    a;
    struct eng_choice     choice = { .id = &(uint32_t){ 0 } };
    encoder_open(&g, "xlm-roberta");
    assert_int_equal(g.spec.context, 130); /* two rows of the table are before the first position */
    struct rank_team *t = team_open(&g, ENCODER_DEVICE, NULL, 1, SEQS, DT_COUNT);
    struct engine    *e = engine_open(&g, t);
    a.n = g.spec.context;
    assert_int_equal(run(e, &a, 1, POOL_CLS), 1);
    a.n++;
    struct eng_request r = request_of(&a, &choice, POOL_CLS);
    assert_int_equal(eng_submit(e, &r), ST_TOO_LARGE);
    r.n_prompt = 0;
    assert_int_equal(eng_submit(e, &r), ST_INVALID);
    r.n_prompt = 4;
    r.second = 2; /* it has one type */
    assert_int_equal(eng_submit(e, &r), ST_INVALID);
    eng_free(e);
    rank_team_free(t);
    model_spec_free(&g.spec);
}

static void an_engine_of_whole_texts_refuses_what_would_cut_them(void **state)
{
    (void)state;
    static struct encoder g;
    struct engine        *e = NULL;
    encoder_open(&g, "bert");
    struct rank_team *t = team_open(&g, ENCODER_DEVICE, NULL, 1, SEQS, DT_COUNT);
    struct eng_runner runner = rank_team_runner(t);
    for (int i = 0; i < 4; i++) {
        struct eng_cfg cfg = engine_cfg(&g);
        if (i == 0) cfg.batch_tokens_max = g.spec.context - 1;
        if (i == 1) cfg.prefix_cache = true;
        if (i == 2) cfg.n_block = SEQS;
        if (i == 3) cfg.state_dim = 0;
        assert_int_equal(eng_create(&cfg, &runner, &e), ST_CONFIG);
    }
    rank_team_free(t);
    model_spec_free(&g.spec);
}

int main(void)
{
    char why[200];
    log_init(LOG_LEVEL_ERROR, 2, false);
    if (!dev_serves(ENCODER_DEVICE, why, sizeof why)) {
        printf("%s, skipped\n", why);
        return 77;
    }
    if (ring_init(&outbox, 2 * TEXTS_MAX)) return 1;
    const struct CMUnitTest tests[] = { cmocka_unit_test(vectors_are_those_of_transformers),
                                        cmocka_unit_test(modules_make_the_vectors_of_sentence_transformers),
                                        cmocka_unit_test(a_vector_depends_on_its_text_alone),
                                        cmocka_unit_test(a_text_may_fill_the_context_and_not_be_longer),
                                        cmocka_unit_test(an_engine_of_whole_texts_refuses_what_would_cut_them) };
    int                     failed = cmocka_run_group_tests(tests, NULL, NULL);
    ring_free(&outbox);
    return failed;
}
