/* Every family against what transformers computed in float32 (tests/data/golden, tools/golden/make_golden.py). */
#include "golden_names.h"
#include "shard.h"

/* max |a - b| over all recorded rows, relative to the largest recorded logit */
static double logits_error(const struct gold *g, struct gold_run *r)
{
    double worst = 0;
    for (uint32_t p = 0; p < g->n_prompt; p++) {
        uint32_t rows[4], first = UINT32_MAX, n = 0;
        for (uint32_t i = 0; i < g->n_row; i++)
            if (g->row[i][0] == p) {
                if (first == UINT32_MAX) first = i;
                assert_true(n < 4);
                rows[n++] = g->row[i][1];
            }
        gold_step(r, g->prompt[p], 0, g->n[p], rows, n, false);
        const float *got = rank_team_logits(r->team), *want = g->logits + (size_t)first * g->spec.vocab;
        for (size_t i = 0; i < (size_t)n * g->spec.vocab; i++) {
            assert_true(isfinite(got[i]));
            worst = fmax(worst, fabs((double)got[i] - want[i]) / g->max_abs);
        }
        /* the logprob of id 7 in the first row, from the same logits */
        double sum = 0;
        for (uint32_t i = 0; i < g->spec.vocab; i++) sum += exp(want[i] - want[7]);
        assert_true(fabs(r->b.out.lp[0] + log(sum)) < (double)(worst * g->max_abs * 4 + 1e-4));
    }
    return worst;
}

static void greedy_is_equal(const struct gold *g, struct gold_run *r)
{
    uint32_t ids[GOLD_TOKENS_MAX];
    for (uint32_t p = 0; p < g->n_prompt; p++) {
        uint32_t n = g->n[p];
        memcpy(ids, g->prompt[p], n * sizeof *ids);
        ids[n] = gold_step(r, ids, 0, n, NULL, 0, true);
        for (uint32_t i = 0; i < g->n_greedy; i++) {
            if (ids[n + i] != g->greedy[p][i])
                fail_msg("%s: prompt %u, token %u is %u, not %u", g->dir, p, i, ids[n + i], g->greedy[p][i]);
            if (i + 1 < g->n_greedy) ids[n + i + 1] = gold_step(r, ids, n + i, 1, NULL, 0, true);
        }
    }
}

static double check(const struct gold *g, enum dev_kind device, uint32_t n_rank, enum dtype weights, enum dtype kv,
                    double bound, bool greedy)
{
    struct gold_run r;
    gold_run_open(&r, &g->spec, &g->src, device, n_rank, weights, kv);
    double e = logits_error(g, &r);
    if (!(e < bound)) fail_msg("%s: relative error %.3g, bound %.3g", g->dir, e, bound);
    if (greedy) greedy_is_equal(g, &r);
    gold_run_close(&r);
    return e;
}

enum { N_DEVICE = 2 };
static const struct {
    enum dev_kind kind;
    const char   *name;
} devices[N_DEVICE] = { { DEV_REF, "ref" }, { DEV_CPU, "cpu" } };

static void each(double (*fn)(const struct gold *g, enum dev_kind device), const char *what)
{
    for (size_t i = 0; i < ARRAY_N(gold_names); i++) {
        if (!shard_next()) continue;
        for (int d = 0; d < N_DEVICE; d++) {
            struct gold g;
            gold_open(&g, gold_names[i]);
            double e = fn(&g, devices[d].kind);
            printf("    %-14s %-4s %-34s %.2e\n", gold_names[i], devices[d].name, what, e);
            gold_close(&g);
        }
    }
}

static double f32(const struct gold *g, enum dev_kind d) { return check(g, d, 1, DT_F32, DT_F32, 1e-4, true); }
static void   logits_and_64_greedy_tokens_are_those_of_transformers(void **state)
{
    (void)state;
    each(f32, "f32 weights, f32 kv");
}

/* Checkpoints as compressed-tensors, AutoAWQ, ModelOpt (NVFP4) and transformers (FP8) write them, of MXFP4 as published, and of GPTQ whose
 * inputs have their groups in another order. The best instruction set multiplies codes with activations of 16 bits;
 * rounded to 8 bits (ct-w8a8), a difference of one rounding may move a code by one, and transformers divides by 127.5
 * where we do by 127. */
static void checkpoints_of_codes_give_the_logits_of_transformers(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double      floats, best; /* bounds: where arithmetic is of floats, and on the best instruction set */
        bool        divides;      /* among two ranks */
    } codes[] = { { "ct-pack", 1e-4, 5e-2, false },         { "ct-pack-sym", 1e-4, 5e-2, false },
                  { "ct-pack8", 1e-4, 5e-2, false },        { "gptq-order", 1e-4, 5e-2, false },
                  { "ernie-pack", 1e-4, 5e-2, false },      { "ernie-w8", 1e-4, 5e-2, false },
                  { "ct-w8a8", 5e-2, 5e-2, false },         { "phi3-gptq-order", 1e-4, 5e-2, false },
                  { "phi3-awq", 1e-4, 5e-2, true },         { "glm4-fp8", 1e-4, 5e-2, true },
                  { "qwen3-vl-moe-awq", 1e-4, 5e-2, true }, { "llama4-fp8", 1e-4, 5e-2, false },
                  { "gemma4-awq", 1e-4, 5e-2, false },      { "gemma4-small-awq", 1e-4, 5e-2, false },
                  { "gemma3-awq", 1e-4, 5e-2, false },      { "cohere2-gptq-order", 1e-4, 5e-2, false },
                  { "gpt-oss-mxfp4", 1e-4, 5e-2, true },    { "llama3-nvfp4", 1e-4, 5e-2, true },
                  { "qwen3-moe-nvfp4", 1e-4, 5e-2, true } };
    for (size_t i = 0; i < ARRAY_N(codes); i++) {
        if (!shard_next()) continue;
        struct gold g;
        gold_open(&g, codes[i].name);
        bool   same = codes[i].floats < 1e-3;
        double ref = check(&g, DEV_REF, 1, DT_F32, DT_F32, codes[i].floats, same);
        if (codes[i].divides) check(&g, DEV_REF, 2, DT_F32, DT_F32, codes[i].floats, same);
        gold_isa = "scalar";
        double scalar = check(&g, DEV_CPU, 1, DT_F32, DT_F32, codes[i].floats, same);
        if (codes[i].divides) check(&g, DEV_CPU, 2, DT_F32, DT_F32, codes[i].floats, same);
        gold_isa = NULL;
        double best = check(&g, DEV_CPU, 1, DT_F32, DT_F32, codes[i].best, false);
        printf("    %-14s ref %.2e, cpu scalar %.2e, cpu %.2e\n", codes[i].name, ref, scalar, best);
        gold_close(&g);
    }
}

/* bf16 keeps 8 bits: one rounding is at most 2^-9 of a value. Weights are rounded once and so is the KV; with sums that
 * stay in float the error of a logit is a random walk over the layers' roundings, well below 8 of them. Instruction sets
 * that multiply bf16 by bf16 round activations too, as transformers does: a model that this moves further there may be
 * moved as far here, and half as far again, for other sums are rounded. */
static double bf16_all(const struct gold *g, enum dev_kind d)
{
    char isas[200];
    bool rounds = d == DEV_CPU && strstr(dev_cpu_isas(isas, sizeof isas), "bf16");
    assert_true(g->bf16 > 0);
    return check(g, d, 1, DT_BF16, DT_BF16, rounds ? fmax(8 * 0x1p-9, 1.5 * g->bf16) : 8 * 0x1p-9, false);
}
static void bf16_stays_within_its_rounding(void **state)
{
    (void)state;
    each(bf16_all, "bf16 weights, bf16 kv");
}

static double tp2(const struct gold *g, enum dev_kind d) { return check(g, d, 2, DT_F32, DT_F32, 1e-4, true); }
static void   two_ranks_give_the_same_tokens(void **state)
{
    (void)state;
    each(tp2, "2 ranks, f32 weights, f32 kv");
}

/* 4 ranks and 2 KV heads: each of them lies on two ranks */
static double tp4(const struct gold *g, enum dev_kind d) { return check(g, d, 4, DT_F32, DT_F32, 1e-4, true); }
static void   four_ranks_share_two_kv_heads(void **state)
{
    (void)state;
    each(tp4, "4 ranks, f32 weights, f32 kv");
}

/* Each rank has some experts whole. Every family that has experts, beside shared ones, biases of experts, routers with
 * groups, weights of inputs, and a dense feed-forward beside them; those of 6 divide among two ranks only. */
static void whole_experts(uint32_t n_rank)
{
    uint32_t n = 0;
    gold_expert_parallel = true;
    for (size_t i = 0; i < ARRAY_N(gold_names); i++) {
        struct gold g;
        gold_open(&g, gold_names[i]);
        bool divides = g.spec.n_expert && g.spec.n_expert % n_rank == 0;
        for (int d = 0; d < N_DEVICE && divides && (d || shard_next()); d++) {
            double e = check(&g, devices[d].kind, n_rank, DT_F32, DT_F32, 1e-4, true);
            printf("    %-14s %-4s %u of %2u experts on each rank %.2e\n", gold_names[i], devices[d].name,
                   g.spec.n_expert / n_rank, g.spec.n_expert, e);
        }
        n += divides;
        gold_close(&g);
    }
    gold_expert_parallel = false;
    assert_true(n >= 14);
}
static void two_ranks_with_whole_experts_give_the_same_tokens(void **state)
{
    (void)state;
    whole_experts(2);
}
static void four_ranks_with_whole_experts_give_the_same_tokens(void **state)
{
    (void)state;
    whole_experts(4);
}

/* The same of experts that the checkpoint keeps as codes, also where slices would cut a group. */
static void whole_experts_of_codes_give_the_same_tokens(void **state)
{
    (void)state;
    static const char *const names[] = { "gpt-oss-mxfp4", "qwen3-moe-nvfp4", "qwen3-vl-moe-awq" };
    gold_expert_parallel = true;
    for (size_t i = 0; i < ARRAY_N(names); i++) {
        if (!shard_next()) continue;
        struct gold g;
        gold_open(&g, names[i]);
        double ref = check(&g, DEV_REF, 2, DT_F32, DT_F32, 1e-4, true);
        gold_isa = "scalar";
        double scalar = check(&g, DEV_CPU, 2, DT_F32, DT_F32, 1e-4, true);
        gold_isa = NULL;
        double best = check(&g, DEV_CPU, 2, DT_F32, DT_F32, 5e-2, false);
        printf("    %-16s ref %.2e, cpu scalar %.2e, cpu %.2e\n", names[i], ref, scalar, best);
        gold_close(&g);
    }
    gold_expert_parallel = false;
}

int main(void)
{
    log_init(LOG_LEVEL_WARN, 2, false);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_and_64_greedy_tokens_are_those_of_transformers),
        cmocka_unit_test(checkpoints_of_codes_give_the_logits_of_transformers),
        cmocka_unit_test(bf16_stays_within_its_rounding),
        cmocka_unit_test(two_ranks_give_the_same_tokens),
        cmocka_unit_test(four_ranks_share_two_kv_heads),
        cmocka_unit_test(two_ranks_with_whole_experts_give_the_same_tokens),
        cmocka_unit_test(four_ranks_with_whole_experts_give_the_same_tokens),
        cmocka_unit_test(whole_experts_of_codes_give_the_same_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
