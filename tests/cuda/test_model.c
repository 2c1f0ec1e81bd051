/* Whole models on the CUDA device: logits of every family against transformers' within what 16-bit activations round,
 * and the tokens of the embedded model. Activations are rounded after every op, so a token may differ where two logits
 * were nearly the same: such near-ties are counted, and the recorded token is what goes on. */
#include "model/golden.h"
#include "models/embed.h"
#include "test.h"
#include "tests_root.h"
#ifdef CUDA_EMU
#include <emu.h>
#endif

static const char *const names[] = {
    "llama3",       "llama2",        "llama-linear", "llama-yarn",     "llama-bias",    "mistral",
    "qwen2",        "qwen3",         "mixtral",      "qwen3-moe",      "qwen3-moe-raw", "llama-gelu",
    "mistral-gelu", "qwen3-relu",    "llama-untied", "glm4",           "cohere2",       "starcoder2",
    "qwen2-moe",    "glm4-moe",      "glm4-moe-air", "ernie4-5-moe",   "minimax-m2",    "granite-moe",
    "gpt-oss",      "gpt-oss-mxfp4", "qwen3-vl-moe", "cohere-qk-norm", "llama4",        "llama4-wrapped",
    "gemma4",       "gemma4-small",  "gemma4-moe",   "gemma4-unified", "exaone-moe"
};
#ifdef CUDA_EMU
enum { PROMPT_MAX = 200, CASES = 6 }; /* what an emulator does in time */
#else
enum { PROMPT_MAX = GOLD_TOKENS_MAX, CASES = 20 };
#endif

/* As in test_golden.c: max |a - b| over the recorded rows, relative to the largest recorded logit. */
static double logits_error(const struct gold *g, struct gold_run *r)
{
    struct device *d = rank_team_device(r->team);
    double         worst = 0;
    float         *got = malloc(4 * (size_t)g->spec.vocab * sizeof *got);
    for (uint32_t p = 0; p < g->n_prompt; p++) {
        uint32_t rows[4], first = UINT32_MAX, n = 0;
        if (g->n[p] > PROMPT_MAX) continue;
        for (uint32_t i = 0; i < g->n_row; i++)
            if (g->row[i][0] == p) {
                if (first == UINT32_MAX) first = i;
                assert_true(n < 4);
                rows[n++] = g->row[i][1];
            }
        gold_step(r, g->prompt[p], 0, g->n[p], rows, n, false);
        d->ops->to_host(d, got, rank_team_logits(r->team), (size_t)n * g->spec.vocab * sizeof *got);
        const float *want = g->logits + (size_t)first * g->spec.vocab;
        for (size_t i = 0; i < (size_t)n * g->spec.vocab; i++) {
            assert_true(isfinite(got[i]));
            worst = fmax(worst, fabs((double)got[i] - want[i]) / g->max_abs);
        }
        double sum = 0;
        for (uint32_t i = 0; i < g->spec.vocab; i++) sum += exp(want[i] - want[7]);
        assert_true(fabs(r->b.out.lp[0] + log(sum)) < worst * g->max_abs * 4 + 1e-4);
    }
    free(got);
    assert_true(worst > 0);
    return worst;
}

/* bound: of up to three layers. Roundings of more add up like a random walk. whole: ranks have whole experts, and
 * families whose experts do not divide are left out. */
static void every_family(uint32_t n_rank, enum dtype weights, double bound, bool whole)
{
    gold_expert_parallel = whole;
    for (size_t i = 0; i < ARRAY_N(names); i++) {
        struct gold     g;
        struct gold_run r;
        gold_open(&g, names[i]);
        if (whole && (!g.spec.n_expert || g.spec.n_expert % n_rank)) {
            gold_close(&g);
            continue;
        }
        gold_run_open(&r, &g.spec, &g.src, DEV_CUDA, n_rank, weights, DT_COUNT);
        assert_int_equal(rank_team_device(r.team)->act, weights);
        double e = logits_error(&g, &r), most = bound * sqrt(fmax(1, g.spec.n_layer / 3.0));
        printf("    %-14s %u rank%s %-5s %.2e%s\n", names[i], n_rank, n_rank == 1 ? "" : "s", dtype_name(weights), e,
               whole ? ", whole experts" : "");
        if (!(e < most)) fail_msg("%s: relative error %.3g, bound %.3g", names[i], e, most);
        gold_run_close(&r);
        gold_close(&g);
    }
    gold_expert_parallel = false;
}

/* Weights, KV and every activation are rounded to 8 bits (2^-9 of a value at most). In the residual stream that is
 * three roundings a layer, which add up like a random walk. */
static void bf16_stays_within_its_roundings(void **state)
{
    (void)state;
    every_family(1, DT_BF16, 12 * 0x1p-9, false);
}
/* 11 bits, the KV too */
static void f16_is_closer(void **state)
{
    (void)state;
    every_family(1, DT_F16, 5 * 0x1p-9, false);
}

#ifdef CUDA_EMU
static void two_ranks_say_the_same(void **state)
{
    (void)state;
    emu_set_devices(2);
    every_family(2, DT_BF16, 12 * 0x1p-9, false);
    emu_reset();
}
static void two_ranks_with_whole_experts_say_the_same(void **state)
{
    (void)state;
    emu_set_devices(2);
    every_family(2, DT_BF16, 12 * 0x1p-9, true);
    emu_reset();
}
#endif

#ifdef CUDA_EMU
/* The logits of a prompt of each family, kernel by kernel, and with each kernel that may begin early as early as can
 * be: the same bits. */
static void kernels_that_begin_early_give_the_same_bits(void **state)
{
    (void)state;
    enum { ROWS = 11 };
    struct emu_schedule early = emu_schedule_at(EMU_SCHEDULES - 1);
    for (size_t i = 0; i < ARRAY_N(names); i++) {
        struct gold g;
        float      *got[2];
        gold_open(&g, names[i]);
        for (int e = 0; e < 2; e++) {
            struct gold_run r;
            uint32_t        last[] = { ROWS - 1, ROWS };
            gold_cuda.pdl = true;
            gold_run_open(&r, &g.spec, &g.src, DEV_CUDA, 1, DT_BF16, DT_COUNT);
            gold_cuda.pdl = false;
            got[e] = calloc(g.spec.vocab, 2 * sizeof **got);
            struct device *d = rank_team_device(r.team);
            if (e) emu_set_schedule(&early);
            gold_step(&r, g.prompt[0], 0, ROWS, last, 1, false);
            d->ops->to_host(d, got[e], rank_team_logits(r.team), g.spec.vocab * sizeof **got);
            gold_step(&r, g.prompt[0], ROWS, 1, last + 1, 1, false);
            d->ops->to_host(d, got[e] + g.spec.vocab, rank_team_logits(r.team), g.spec.vocab * sizeof **got);
            emu_set_schedule(NULL);
            gold_run_close(&r);
        }
        if (memcmp(got[0], got[1], 2 * g.spec.vocab * sizeof **got)) fail_msg("%s: other bits", names[i]);
        free(got[0]);
        free(got[1]);
        gold_close(&g);
    }
}
#endif

/* Logits of the row that was sampled last. */
static void sampled_logits(struct gold_run *r, float *to)
{
    struct device *d = rank_team_device(r->team);
    d->ops->to_host(d, to, rank_team_logits(r->team), r->vocab * sizeof *to);
}

/* Two ranks as two streams of one GPU, our own kernels between them, beside two ranks of the cpu device: logits within
 * the roundings of both, and the same greedy tokens but where the cpu's own two best are nearly the same. */
static void two_ranks_on_one_gpu_give_the_answer_of_two_ranks_on_the_cpu(void **state)
{
    (void)state;
    enum { N = 10 };
    static const char *const family[] = { "llama3", "qwen3", "qwen3-moe" };
    static const double      NEAR_TIE = 0.5; /* nat */
    for (size_t f = 0; f < ARRAY_N(family); f++) {
        struct gold     g;
        struct gold_run gpu, cpu;
        uint32_t        n_equal = 0, n_tie = 0;
        double          worst = 0;
        gold_open(&g, family[f]);
        gold_run_open(&gpu, &g.spec, &g.src, DEV_CUDA, 2, DT_BF16, DT_BF16);
        gold_run_open(&cpu, &g.spec, &g.src, DEV_CPU, 2, DT_BF16, DT_BF16);
        float *a = malloc(g.spec.vocab * sizeof *a), *b = malloc(g.spec.vocab * sizeof *b);
        for (uint32_t p = 0; p < g.n_prompt; p++) {
            static uint32_t ids[GOLD_TOKENS_MAX];
            uint32_t        n = g.n[p];
            if (n + N > PROMPT_MAX) continue;
            memcpy(ids, g.prompt[p], n * sizeof *ids);
            for (uint32_t k = 0; k < N; k++) {
                uint32_t at = k ? n + k - 1 : 0, rows = k ? 1 : n;
                uint32_t got = gold_step(&gpu, ids, at, rows, NULL, 0, true),
                         want = gold_step(&cpu, ids, at, rows, NULL, 0, true);
                sampled_logits(&gpu, a);
                sampled_logits(&cpu, b);
                for (uint32_t i = 0; i < g.spec.vocab; i++) worst = fmax(worst, fabs((double)a[i] - b[i]) / g.max_abs);
                double gap = (double)b[want] - b[got];
                if (gap >= NEAR_TIE)
                    fail_msg("%s prompt %u token %u: %u, not %u (%g nat below)", family[f], p, k, got, want, gap);
                n_tie += got != want;
                n_equal += got == want;
                ids[n + k] = want;
            }
        }
        printf("    %-14s 2 ranks: %u tokens equal, %u near-ties, logits %.2e\n", family[f], n_equal, n_tie, worst);
        assert_true(n_equal > 10 * n_tie);
        if (!(worst < 2 * 12 * 0x1p-9)) fail_msg("%s: relative error %.3g", family[f], worst);
        free(a);
        free(b);
        gold_run_close(&gpu);
        gold_run_close(&cpu);
        gold_close(&g);
    }
}

/* The recorded text is fed whatever the device says, so every token of it is compared. */
static void pebble_continues_a_prompt_as_transformers_does(void **state)
{
    (void)state;
    static struct source_embed files[16];
    static const double        NEAR_TIE = 0.25; /* a gap of two logits; they reach about 20 */
    struct source              pebble = { .embed = files, .n_embed = embed_pebble_n };
    struct model_spec          spec;
    struct gold_run            r;
    char                       err[512] = "", *text;
    size_t                     n_text, i, n_equal = 0, n_tie = 0;
    json_t                    *golden, *c;
    if (embed_pebble_n == 0 || embed_pebble_n > ARRAY_N(files)) test_skip("no embedded model");
    for (unsigned k = 0; k < embed_pebble_n; k++)
        files[k] = (struct source_embed){ embed_pebble[k].name, embed_pebble[k].data, embed_pebble[k].n };
    if (source_text(&(struct source){ .dir = TESTS_DATA }, "pebble_golden.json", 16 << 20, &text, &n_text))
        test_skip("no pebble_golden.json");
    golden = json_parse(text, n_text, 0, NULL);
    free(text);
    assert_non_null(golden);
    if (model_spec_load(&pebble, &spec, err, sizeof err)) fail_msg("%s", err);
    gold_run_open(&r, &spec, &pebble, DEV_CUDA, 1, DT_COUNT, DT_COUNT);
    json_array_foreach(json_object_get(golden, "cases"), i, c)
    {
        static uint32_t ids[GOLD_TOKENS_MAX + 64], want[64];
        const json_t   *gaps = json_object_get(c, "gaps");
        if (i >= CASES) break;
        uint32_t n = gold_ids(json_object_get(c, "prompt_ids"), ids, GOLD_TOKENS_MAX - 64),
                 n_want = gold_ids(json_object_get(c, "greedy_ids"), want, 64);
        for (uint32_t k = 0; k < n_want; k++) {
            uint32_t id = k ? gold_step(&r, ids, n + k - 1, 1, NULL, 0, true) : gold_step(&r, ids, 0, n, NULL, 0, true);
            double   gap = json_number_value(json_array_get(gaps, k));
            if (id != want[k] && gap >= NEAR_TIE)
                fail_msg("case %zu, token %u: %u, not %u (gap %g)", i, k, id, want[k], gap);
            n_tie += id != want[k];
            n_equal += id == want[k];
            ids[n + k] = want[k];
        }
    }
    printf("    %zu tokens equal, %zu others at a gap below %.2f\n", n_equal, n_tie, NEAR_TIE);
    assert_true(n_equal > 50 * n_tie);
    gold_run_close(&r);
    model_spec_free(&spec);
    json_decref(golden);
}

int main(void)
{
    char why[200];
    log_init(LOG_LEVEL_ERROR, 2, false);
    if (!dev_serves(DEV_CUDA, why, sizeof why)) {
        printf("%s, skipped\n", why);
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bf16_stays_within_its_roundings),
        cmocka_unit_test(f16_is_closer),
#ifdef CUDA_EMU
        cmocka_unit_test(two_ranks_say_the_same),
        cmocka_unit_test(two_ranks_with_whole_experts_say_the_same),
        cmocka_unit_test(kernels_that_begin_early_give_the_same_bits),
#endif
        cmocka_unit_test(two_ranks_on_one_gpu_give_the_answer_of_two_ranks_on_the_cpu),
        cmocka_unit_test(pebble_continues_a_prompt_as_transformers_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
