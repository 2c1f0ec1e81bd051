/* What the GPU draws is what the cpu device draws, id for id and logprob for logprob: compared with memcmp. */
#include "cuda_test.h"
#include "kernels/cuda/cuda.h"

enum { ROWS = 24, LISTS = 600, MASK_WORDS = 5000, TOP = OP_SAMPLE_TOP_MAX };

struct out {
    uint32_t id[ROWS], rank[ROWS], top_id[ROWS * TOP];
    float    logprob[ROWS], top_logprob[ROWS * TOP];
};
struct lists {
    uint32_t       hist[LISTS], ban[LISTS], allow[LISTS], mask[MASK_WORDS];
    struct op_bias bias[LISTS];
};
/* Both devices and what the GPU reads and writes. */
struct pair {
    struct device       *cpu, *gpu;
    uint32_t             vocab, n; /* n rows of ROWS are used */
    float               *logits, *dlogits;
    struct lists         list, *dlist;
    struct op_sample_row row[ROWS], *drow;
    struct out           want, got, *dout;
};

static uint32_t random32(uint64_t stream, uint64_t i) { return rng_philox(99, stream, i).x[0]; }

static struct pair *pair_open(uint32_t vocab, uint32_t n)
{
    struct pair      *p = calloc(1, sizeof *p);
    struct dev_limits lim = { .rows_max = ROWS,
                              .seqs_max = ROWS,
                              .pages_max = ROWS,
                              .hist_max = 1,
                              .ban_max = 1,
                              .allow_max = 1,
                              .bias_max = 1,
                              .mask_max = 1,
                              .logit_rows_max = ROWS,
                              .vocab = vocab };
    p->vocab = vocab;
    p->n = n;
    p->cpu = op_open(DEV_CPU, NULL, 1);
    p->gpu = ct_open(DT_BF16, OP_ARENA + (size_t)3 * ROWS * vocab * sizeof(float));
    assert_int_equal(p->gpu->ops->step_init(p->gpu, &lim), ST_OK);
    p->logits = calloc((size_t)ROWS * vocab, sizeof *p->logits);
    p->dlogits = ct_alloc(p->gpu, (size_t)ROWS * vocab * sizeof *p->logits);
    p->dlist = ct_alloc(p->gpu, sizeof p->list);
    p->drow = ct_alloc(p->gpu, sizeof p->row);
    p->dout = ct_alloc(p->gpu, sizeof p->got);
    return p;
}
static void pair_close(struct pair *p)
{
    dev_close(p->cpu);
    dev_close(p->gpu);
    free(p->logits);
    free(p);
}

/* Rows of every kind: a bulk with peaks, flat, full of ties, all alike, mostly -inf, rising, zeros of both signs, and a
 * few that are not sane. */
static void fill_logits(struct pair *p, uint64_t seed)
{
    uint32_t n = p->vocab;
    for (uint32_t r = 0; r < ROWS; r++) {
        float   *l = p->logits + (size_t)r * n;
        uint32_t kind = random32(seed, r) % 12;
        for (uint32_t i = 0; i < n; i++) {
            float x = op_normal(seed * ROWS + r, i);
            switch (kind) {
            case 0: x = x * 0.05f; break;
            case 1: x = roundf(x * 2) / 2; break;
            case 2: x = 1.5f; break;
            case 3: x = i % 7 == r % 7 ? x * 4 : -INFINITY; break;
            case 4: x = (float)i * 0.001f; break;
            case 5: x = i % 3 ? 0.0f : -0.0f; break;
            case 6: x = x * 1e-3f - 5; break;
            case 7: x = x * 30; break;
            default: x = x * 2.5f + (i % 499 == 7 ? (float)(i % 13) : 0); break;
            }
            l[i] = x;
        }
        if (random32(seed, 100 + r) % 16 == 0)
            l[random32(seed, 200 + r) % n] = random32(seed, 300 + r) % 2 ? NAN : INFINITY;
        if (random32(seed, 400 + r) % 24 == 0)
            for (uint32_t i = 0; i < n; i++) l[i] = -INFINITY;
    }
    ct_put(p->gpu, p->dlogits, p->logits, (size_t)ROWS * n * sizeof *p->logits);
}

static void fill_lists(struct pair *p, uint64_t seed)
{
    uint32_t n = p->vocab + p->vocab / 8 + 2; /* some are no ids of this vocabulary */
    for (uint32_t i = 0; i < LISTS; i++) {
        p->list.hist[i] = random32(seed + 1, i) % (i % 2 ? n : n / 8 + 1);
        p->list.ban[i] = i % 50 ? random32(seed + 2, i) % n : UINT32_MAX;
        p->list.allow[i] = i % 50 ? random32(seed + 3, i) % n : UINT32_MAX;
        p->list.bias[i] = (struct op_bias){ random32(seed + 4, i) % (i % 3 ? n : 5), op_normal(seed + 5, i) * 3 };
        if (i % 97 == 96) p->list.bias[i].bias = -INFINITY;
    }
    for (uint32_t i = 0; i < MASK_WORDS; i++) { /* words of all, of none, of some */
        uint32_t word = random32(seed + 6, i), kind = random32(seed + 7, i) % 4;
        if (kind < 2) word = kind == 0 ? 0 : UINT32_MAX;
        p->list.mask[i] = word;
    }
    ct_put(p->gpu, p->dlist, &p->list, sizeof p->list);
}

#define PICK(a, i) ((a)[random32(seed, i) % (sizeof(a) / sizeof *(a))])

static void fill_rows(struct pair *p, uint64_t seed)
{
    static const float temperature[] = { 0, 1e-6f, 1e-5f, 0.01f, 0.6f, 1, 1, 1.7f, 100 };
    static const float top_p[] = { 1, 1, 0.95f, 0.9f, 0.5f, 0.01f, 1e-9f, 0, 0.99999994f },
                       min_p[] = { 0, 0, 0, 0.05f, 0.3f, 1 };
    for (uint32_t r = 0; r < ROWS; r++, seed += 7919) {
        const uint32_t top_k[] = { 0, 0, 0, 1, 2, 5, 20, 50, 3000, p->vocab / 2, p->vocab - 1, p->vocab, UINT32_MAX };
        struct op_sample_row row = { .temperature = PICK(temperature, 1),
                                     .top_p = PICK(top_p, 2),
                                     .min_p = PICK(min_p, 3),
                                     .top_k = PICK(top_k, 4),
                                     .repetition = 1,
                                     .seed = seed,
                                     .stream = r,
                                     .counter = random32(seed, 5) };
        if (random32(seed, 6) % 4 == 0) row.repetition = random32(seed, 7) % 2 ? 1.3f : 0.8f;
        if (random32(seed, 8) % 4 == 0) row.frequency = 0.37f;
        if (random32(seed, 9) % 4 == 0) row.presence = -0.7f;
        if (random32(seed, 10) % 2) {
            row.hist_start = random32(seed, 11) % 100;
            row.n_hist = random32(seed, 12) % (LISTS - 100);
            row.n_prompt = row.n_hist ? random32(seed, 13) % (row.n_hist + 1) : 0;
        }
        if (random32(seed, 14) % 4 == 0) {
            row.bias_start = random32(seed, 15) % 100;
            row.n_bias = random32(seed, 16) % 300;
        }
        if (random32(seed, 17) % 4 == 0) {
            row.ban_start = random32(seed, 18) % 100;
            row.n_ban = random32(seed, 19) % 300;
        }
        if (random32(seed, 20) % 6 == 0) {
            row.allow_start = random32(seed, 21) % 100;
            row.n_allow = random32(seed, 22) % 500;
        }
        if (random32(seed, 26) % 4 == 0) {
            row.mask_start = random32(seed, 27) % 100;
            row.n_mask = 1 + random32(seed, 28) % (MASK_WORDS - 100);
        }
        if (random32(seed, 23) % 3 == 0) row.n_top = random32(seed, 24) % (TOP + 1);
        if (random32(seed, 25) % 12 == 0) {
            row.n_hist = UINT32_MAX;
            row.hist_start = UINT32_MAX;
        } /* padding */
        p->row[r] = row;
    }
    ct_put(p->gpu, p->drow, p->row, sizeof p->row);
}

static struct op_sample op_of(const float *logits, const struct pair *p, const struct op_sample_row *row,
                              const struct lists *l, struct out *o)
{
    return (struct op_sample){ .logits = logits,
                               .n = p->n,
                               .vocab = p->vocab,
                               .row = row,
                               .hist = l->hist,
                               .ban = l->ban,
                               .allow = l->allow,
                               .bias = l->bias,
                               .mask = l->mask,
                               .id = o->id,
                               .logprob = o->logprob,
                               .rank = o->rank,
                               .top_id = o->top_id,
                               .top_logprob = o->top_logprob };
}
static struct op_sample cpu_op(struct pair *p) { return op_of(p->logits, p, p->row, &p->list, &p->want); }
static struct op_sample gpu_op(struct pair *p) { return op_of(p->dlogits, p, p->drow, p->dlist, p->dout); }
static void             poison(struct pair *p) /* results and scratch */
{
    ct_poison(p->gpu, p->dout, sizeof p->got);
    ct_poison(p->gpu, cuda_of(p->gpu)->work, cuda_of(p->gpu)->work_bytes);
}
static void run_cpu(struct pair *p)
{
    struct op_sample o = cpu_op(p);
    memset(&p->want, 0xff, sizeof p->want);
    p->cpu->ops->sample(p->cpu, &o);
}
static void compare(struct pair *p, const char *what)
{
    ct_get(p->gpu, &p->got, p->dout, sizeof p->got);
    for (uint32_t r = 0; r < p->n; r++) {
        const struct op_sample_row *w = &p->row[r];
        if (p->got.id[r] != p->want.id[r] || p->got.rank[r] != p->want.rank[r] ||
            memcmp(&p->got.logprob[r], &p->want.logprob[r], 4))
            fail_msg(
                "%s: vocab %u row %u: id %u rank %u logprob %.9g, should be %u %u %.9g: temperature %g top-k %u top-p %.9g min-p %g "
                "repetition %g frequency %g presence %g history %u bias %u ban %u allow %u",
                what, p->vocab, r, p->got.id[r], p->got.rank[r], (double)p->got.logprob[r], p->want.id[r],
                p->want.rank[r], (double)p->want.logprob[r], (double)w->temperature, w->top_k, (double)w->top_p,
                (double)w->min_p, (double)w->repetition, (double)w->frequency, (double)w->presence, w->n_hist,
                w->n_bias, w->n_ban, w->n_allow);
    }
    ct_assert_same(p->got.top_id, p->want.top_id, sizeof p->want.top_id, what);
    ct_assert_same(p->got.top_logprob, p->want.top_logprob, sizeof p->want.top_logprob, what);
}
static void run_gpu(struct pair *p, const char *what)
{
    struct op_sample o = gpu_op(p);
    poison(p);
    p->gpu->ops->sample(p->gpu, &o);
    assert_int_equal(p->gpu->ops->sync(p->gpu), ST_OK);
    compare(p, what);
}

static void every_row_draws_the_same_token_as_on_the_cpu(void **state)
{
    (void)state;
    static const uint32_t vocab[] = { 1, 2, 31, 257, 1024, 4096, 5000, 13001 };
    for (size_t v = 0; v < sizeof vocab / sizeof *vocab; v++) {
        struct pair *p = pair_open(vocab[v], ROWS);
        uint32_t     n_round = vocab[v] < 1000 ? 16 : 4;
        if (ct_quick()) n_round = 1;
        for (uint32_t round = 0; round < n_round; round++) {
            fill_logits(p, 10 * v + round);
            fill_lists(p, round);
            for (uint32_t again = 0; again < 2; again++) {
                fill_rows(p, 1000003 * v + 1009 * round + again);
                run_cpu(p);
                run_gpu(p, "sample");
            }
        }
        pair_close(p);
    }
}

/* the order of threads and blocks shows nowhere; the vocabulary has several chunks, the last with one id */
static void every_schedule_draws_the_same(void **state)
{
    (void)state;
    static const uint32_t vocab[] = { 300, 8193 };
    for (size_t v = 0; v < 2; v++) {
        struct pair *p = pair_open(vocab[v], 8);
        for (uint32_t round = 0; round < 2; round++) {
            fill_logits(p, 500 + round);
            fill_lists(p, 50 + round);
            fill_rows(p, 77 * round + v);
            run_cpu(p);
            for (CT_SCHEDULES(i)) run_gpu(p, ct_schedule_name(i));
        }
        pair_close(p);
    }
}

/* 38 chunks, and the bars that they give */
static void a_large_vocabulary(void **state)
{
    (void)state;
    struct pair *p = pair_open(151936, 12);
    for (uint32_t round = 0; round < (ct_quick() ? 1 : 2); round++) {
        fill_logits(p, 900 + round);
        fill_lists(p, 90 + round);
        fill_rows(p, 4242 + round);
        run_cpu(p);
        run_gpu(p, "large");
    }
    pair_close(p);
}

/* more candidates than are sorted: the radix select, by count, by weight, and by both; in flat rows and where all
 * tie */
static void many_survivors(void **state)
{
    (void)state;
    static const struct {
        uint32_t top_k;
        float    top_p;
    } how[] = { { 0, 0.9f },  { 0, 0.5f },    { 0, 0.99999994f }, { 3000, 1 },
                { 12288, 1 }, { 2500, 0.7f }, { 9000, 0.999f },   { 2, 0.6f } };
    struct pair *p = pair_open(12289, 8);
    for (uint32_t kind = 0; kind < 4; kind++) {
        for (size_t i = 0; i < (size_t)ROWS * p->vocab; i++) {
            float x = op_normal(kind, i), of_kind[] = { x * 0.3f, 2, roundf(x), -0.01f * (float)(i % 2999) };
            p->logits[i] = of_kind[kind < 3 ? kind : 3];
        }
        ct_put(p->gpu, p->dlogits, p->logits, (size_t)ROWS * p->vocab * sizeof *p->logits);
        for (uint32_t r = 0; r < ROWS; r++)
            p->row[r] = (struct op_sample_row){ .temperature = r % 2 ? 1 : 1.3f,
                                                .top_p = how[r % 8].top_p,
                                                .top_k = how[r % 8].top_k,
                                                .repetition = 1,
                                                .seed = kind,
                                                .stream = r };
        ct_put(p->gpu, p->drow, p->row, sizeof p->row);
        run_cpu(p);
        for (CT_SCHEDULES_FEW(i)) run_gpu(p, "many");
    }
    pair_close(p);
}

/* A row alone gives what it gives between others. */
static void a_row_stands_alone(void **state)
{
    (void)state;
    struct pair *p = pair_open(5001, ROWS);
    fill_logits(p, 31);
    fill_lists(p, 32);
    fill_rows(p, 33);
    run_cpu(p);
    run_gpu(p, "together");
    for (uint32_t r = 0; r < ROWS; r++) {
        struct op_sample o = gpu_op(p);
        struct out       alone;
        o.n = 1;
        o.logits += (size_t)r * p->vocab;
        o.row += r;
        poison(p);
        p->gpu->ops->sample(p->gpu, &o);
        ct_get(p->gpu, &alone, p->dout, sizeof alone);
        ct_assert_same(&alone.id[0], &p->want.id[r], 4, "alone");
        ct_assert_same(&alone.rank[0], &p->want.rank[r], 4, "alone");
        ct_assert_same(&alone.logprob[0], &p->want.logprob[r], 4, "alone");
        ct_assert_same(alone.top_id, p->want.top_id + r * TOP, TOP * 4, "alone");
        ct_assert_same(alone.top_logprob, p->want.top_logprob + r * TOP, TOP * 4, "alone");
    }
    pair_close(p);
}

/* What was recorded for some rows serves any others, padded ones too. */
static void a_graph_serves_other_settings(void **state)
{
    (void)state;
    struct pair    *p = pair_open(4500, ROWS);
    cudaStream_t    s = cuda_of(p->gpu)->stream;
    cudaGraph_t     g;
    cudaGraphExec_t x;
    fill_logits(p, 61);
    fill_lists(p, 62);
    fill_rows(p, 63);
    for (uint32_t r = 0; r < ROWS; r++)
        p->row[r] = (struct op_sample_row){ .top_p = 1, .repetition = 1 }; /* greedy, all of them */
    ct_put(p->gpu, p->drow, p->row, sizeof p->row);
    poison(p);
    struct op_sample o = gpu_op(p);
    assert_int_equal(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    p->gpu->ops->sample(p->gpu, &o);
    assert_int_equal(cudaStreamEndCapture(s, &g), cudaSuccess);
    assert_int_equal(cudaGraphInstantiate(&x, g, 0), cudaSuccess);
    for (uint32_t round = 0; round < 12; round++) {
        if (round) {
            fill_logits(p, 70 + round);
            fill_lists(p, 80 + round);
            fill_rows(p, 90 + round);
        }
        run_cpu(p);
        if (round % 3 == 0)
            poison(p);
        else
            ct_poison(p->gpu, p->dout, sizeof p->got); /* on what the replay before left */
        assert_int_equal(cudaGraphLaunch(x, s), cudaSuccess);
        assert_int_equal(p->gpu->ops->sync(p->gpu), ST_OK);
        compare(p, "replay");
    }
    cudaGraphExecDestroy(x);
    cudaGraphDestroy(g);
    pair_close(p);
}

static void logprobs_of_given_ids(void **state)
{
    (void)state;
    static const uint32_t vocab[] = { 1, 40, 4097, 20000 };
    for (size_t v = 0; v < 4; v++)
        for (uint32_t n_top = 0; n_top <= TOP; n_top += 5) {
            struct pair      *p = pair_open(vocab[v], ROWS);
            uint32_t          id[ROWS];
            struct op_logprob o = { p->logits,    ROWS,           p->vocab,           n_top, id, p->want.logprob,
                                    p->want.rank, p->want.top_id, p->want.top_logprob };
            fill_logits(p, 7 * v + n_top);
            for (uint32_t r = 0; r < ROWS; r++) id[r] = r % 9 == 4 ? UINT32_MAX : random32(v, r) % p->vocab;
            memset(&p->want, 0xff, sizeof p->want);
            p->cpu->ops->logprob(p->cpu, &o);
            poison(p);
            o = (struct op_logprob){ p->dlogits,
                                     ROWS,
                                     p->vocab,
                                     n_top,
                                     ct_bytes(p->gpu, id, sizeof id),
                                     p->dout->logprob,
                                     p->dout->rank,
                                     p->dout->top_id,
                                     p->dout->top_logprob };
            p->gpu->ops->logprob(p->gpu, &o);
            assert_int_equal(p->gpu->ops->sync(p->gpu), ST_OK);
            compare(p, "logprob");
            pair_close(p);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_draws_the_same_token_as_on_the_cpu),
        cmocka_unit_test(every_schedule_draws_the_same),
        cmocka_unit_test(many_survivors),
        cmocka_unit_test(a_row_stands_alone),
        cmocka_unit_test(a_graph_serves_other_settings),
        cmocka_unit_test(logprobs_of_given_ids),
        cmocka_unit_test(a_large_vocabulary),
    };
    return ct_run(tests);
}
