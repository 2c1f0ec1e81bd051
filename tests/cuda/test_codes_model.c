/* Whole models whose matrices are codes on the CUDA device: each kind of checkpoint against ref, on one rank and on
 * two, and the same bits where kernels begin early. */
#include "cuda/join_test.h"
#include "kernels/cuda/cuda.h"
#include "model/quant_folder.h"
#include "test.h"

/* Activations are rounded three times in each layer; ref has the codes' own numbers too. Zeros at random make weights
 * that do not cancel as trained ones do. Activations of f16 have 3 bits more. */
static const double BOUND = 5e-2, FP8_BOUND = 1e-2;

static void assert_near_ref(const char *how, const char *config, uint32_t n_rank, enum dtype act)
{
    static float         want[3 * VOCAB], got[3 * VOCAB];
    struct memory_source coded;
    folder(&coded, how, true, config);
    logits(&coded, DEV_REF, 1, want);
    folder_act = act;
    logits(&coded, DEV_CUDA, n_rank, got);
    folder_act = DT_BF16;
    double e = error(got, want, ARRAY_N(want));
    printf("    %-18s %u rank%s %-5s %.2e\n", how, n_rank, n_rank == 1 ? "" : "s", dtype_name(act), e);
    if (!(e > 0 && e < (act == DT_F16 ? BOUND / 8 : BOUND))) fail_msg("%s, %u ranks: %g", how, n_rank, e);
    memory_free(&coded);
}

static void checkpoints_of_codes_are_near_ref(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_N(checkpoints); i += (size_t)test_size(1, 2))
        assert_near_ref(checkpoints[i].how, checkpoints[i].config, 1, DT_F16);
}

/* Codes beside plain floats, of which some become floats because they lie in one matrix with those. */
static void any_projection_may_be_left_out_of_the_codes(void **state)
{
    (void)state;
    static const char *const left_out[] = { "v_proj", "down_proj", "layers.1." };
    for (size_t i = 0; i < ARRAY_N(left_out); i++) {
        folder_plain = left_out[i];
        assert_near_ref(checkpoints[i].how, checkpoints[i].config, 1, DT_BF16);
    }
    folder_plain = NULL;
}

/* Experts are a matrix each, and stay codes. */
static void experts_of_codes_are_near_ref(void **state)
{
    (void)state;
    folder_experts = true;
    assert_near_ref("awq", checkpoints[0].config, 1, DT_BF16);
    assert_near_ref("fp8 block", checkpoints[6].config, 1, DT_BF16);
    assert_near_ref("nvfp4 modelopt", checkpoints[ARRAY_N(checkpoints) - 1].config, 1, DT_BF16);
    folder_experts = false;
}

/* Matrices of floats are rounded while they are read, the embedding that is the head too, as on every device. */
static void what_is_rounded_at_load_is_near_ref(void **state)
{
    (void)state;
    static const char *const formats[] = { "int8", "int4-all", "fp8" };
    static float             want[3 * VOCAB], got[3 * VOCAB];
    for (size_t i = 0; i < ARRAY_N(formats); i++) {
        struct memory_source plain;
        folder(&plain, "awq", false, "");
        assert_true(model_quant_named(formats[i], &gold_quant, &gold_quant_head));
        logits(&plain, DEV_REF, 1, want);
        logits(&plain, DEV_CUDA, 1, got);
        gold_quant = (struct dev_quant){ .code = DT_F32 };
        double e = error(got, want, ARRAY_N(want));
        printf("    %-18s %.2e\n", formats[i], e);
        if (!(e > 0 && e < BOUND)) fail_msg("%s: %g", formats[i], e);
        memory_free(&plain);
    }
}

/* Prompts whose products go by warp groups, where a GPU has them. */
static void long_prompts_are_near_ref_with_wgmma(void **state)
{
    (void)state;
    static const char *const hows[] = { "awq", "fp8", "fp8 block", "int8", "nvfp4" };
    folder_rows = 70;
    gold_cuda.wgmma = true;
    for (size_t h = 0; h < ARRAY_N(hows); h++) {
        size_t c = 0;
        while (strcmp(checkpoints[c].how, hows[h])) c++;
        assert_near_ref(hows[h], checkpoints[c].config, 1, h % 2 ? DT_F16 : DT_BF16);
    }
    gold_cuda.wgmma = false;
    folder_rows = 20;
}

/* The option changes products of fp8 weights with many rows, by what rounding activations to three digits makes of them,
 * and nothing else: codes of another kind, small groups, fewer rows and --deterministic have the bits that they had. */
static void prompts_with_fp8_activations_are_near_ref(void **state)
{
    (void)state;
    static const struct {
        const char *how;
        uint32_t    rows;
        bool        exact, changes;
    } cases[] = { { "fp8", 150, false, true },           { "fp8 one", FP8_ROWS, false, true },
                  { "fp8", FP8_ROWS - 1, false, false }, { "fp8", 150, true, false },
                  { "fp8 block", 150, false, false }, /* of 32 inputs */
                  { "int8", 150, false, false } };
    static float want[3 * VOCAB], plain[3 * VOCAB], got[3 * VOCAB];
    for (size_t i = 0; i < ARRAY_N(cases); i++) {
        struct memory_source coded;
        size_t               c = 0;
        while (strcmp(checkpoints[c].how, cases[i].how)) c++;
        folder(&coded, cases[i].how, true, checkpoints[c].config);
        folder_rows = cases[i].rows;
        gold_cuda.deterministic = cases[i].exact;
        logits(&coded, DEV_CUDA, 1, plain);
        gold_cuda.fp8_prefill = true;
        logits(&coded, DEV_CUDA, 1, got);
        gold_cuda.fp8_prefill = gold_cuda.deterministic = false;
        if (cases[i].changes) {
            logits(&coded, DEV_REF, 1, want);
            double e = error(got, want, ARRAY_N(want)), was = error(plain, want, ARRAY_N(want));
            printf("    %-18s %u rows %.2e, plain %.2e\n", cases[i].how, cases[i].rows, e, was);
            if (!(e > was && e < FP8_BOUND)) fail_msg("%s: %g", cases[i].how, e);
        } else if (memcmp(got, plain, sizeof got)) {
            fail_msg("%s, %u rows: other bits", cases[i].how, cases[i].rows);
        }
        folder_rows = 20;
        memory_free(&coded);
    }
}

/* Checkpoints of each kind of codes, with columns in an order of their own, with biases, and with a matrix that is none:
 * of q, k and v, or of gate and up, one of floats makes floats of all. */
static const struct {
    const char *how, *plain;
    bool        biases;
    uint32_t    saved; /* kernels of a layer */
} joins[] = { { "awq", NULL, false, 4 },      { "fp8 block", NULL, false, 4 },  { "int8", NULL, true, 4 },
              { "nvfp4", NULL, false, 4 },    { "gptq order", NULL, false, 0 }, { "packed", "v_proj", false, 4 },
              { "awq", "up_proj", false, 4 }, { "fp8", "down_proj", false, 4 } };

static void join_folder(struct memory_source *s, size_t i)
{
    size_t c = 0;
    while (strcmp(checkpoints[c].how, joins[i].how)) c++;
    folder_plain = joins[i].plain;
    folder_biases = joins[i].biases;
    folder(s, joins[i].how, true, checkpoints[c].config);
    folder_plain = NULL;
    folder_biases = false;
}

/* Logits of the last row of steps of 20, 8 and 1 rows. */
static void join_logits(const struct memory_source *s, bool join, float *out)
{
    static const uint32_t rows[] = { 20, 8, 1 };
    struct gold           g = { .src = s->src };
    struct gold_run       r;
    uint32_t              ids[29], at = 0;
    for (uint32_t i = 0; i < ARRAY_N(ids); i++) ids[i] = i * 31 % VOCAB;
    if (model_spec_load(&s->src, &g.spec, err, sizeof err)) fail_msg("%s", err);
    open_run(&r, &g, 1, DT_COUNT, join);
    struct device *d = rank_team_device(r.team);
    for (size_t i = 0; i < ARRAY_N(rows); at += rows[i++]) {
        gold_step(&r, ids, at, rows[i], NULL, 0, true);
        d->ops->to_host(d, out + i * VOCAB, rank_team_logits(r.team), VOCAB * sizeof *out);
    }
    gold_run_close(&r);
    model_spec_free(&g.spec);
}

static void joined_products_of_codes_give_the_same_bits(void **state)
{
    (void)state;
    static float want[3 * VOCAB], got[3 * VOCAB];
    for (size_t i = 0; i < ARRAY_N(joins); i++) {
        struct memory_source coded;
        join_folder(&coded, i);
        join_logits(&coded, false, want);
        join_logits(&coded, true, got);
        if (memcmp(got, want, sizeof want)) fail_msg("%s: other bits", joins[i].how);
        memory_free(&coded);
    }
}

#ifdef CUDA_EMU
static void a_layer_of_codes_has_four_kernels_less(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_N(joins); i++) {
        struct memory_source coded;
        struct model_spec    spec;
        join_folder(&coded, i);
        if (model_spec_load(&coded.src, &spec, err, sizeof err)) fail_msg("%s", err);
        uint64_t apart = launches(&spec, &coded.src, false), joined = launches(&spec, &coded.src, true);
        if (apart - joined != LAYERS * joins[i].saved)
            fail_msg("%s: %u kernels, joined %u", joins[i].how, (unsigned)apart, (unsigned)joined);
        model_spec_free(&spec);
        memory_free(&coded);
    }
}

static void two_ranks_are_near_ref(void **state)
{
    (void)state;
    static const char *const hows[] = {
        "awq", "gptq sym", "fp8", "fp8 block", "packed", "packed 8 sym", "nvfp4", "int8"
    };
    emu_set_devices(2);
    for (size_t h = 0; h < ARRAY_N(hows); h += (size_t)test_size(1, 2)) {
        size_t c = 0;
        while (strcmp(checkpoints[c].how, hows[h])) c++;
        assert_near_ref(hows[h], checkpoints[c].config, 2, h % 2 ? DT_F16 : DT_BF16);
    }
    emu_reset();
}

static void kernels_that_begin_early_give_the_same_bits(void **state)
{
    (void)state;
    static const char *const hows[] = { "awq", "gptq order", "fp8 block", "int8", "nvfp4" };
    static float             want[3 * VOCAB], got[3 * VOCAB];
    struct emu_schedule      early = emu_schedule_at(EMU_SCHEDULES - 1);
    for (size_t h = 0; h < ARRAY_N(hows); h++) {
        struct memory_source coded;
        size_t               c = 0;
        while (strcmp(checkpoints[c].how, hows[h])) c++;
        folder(&coded, hows[h], true, checkpoints[c].config);
        gold_cuda.pdl = true;
        logits(&coded, DEV_CUDA, 1, want);
        emu_set_schedule(&early);
        logits(&coded, DEV_CUDA, 1, got);
        emu_set_schedule(NULL);
        gold_cuda.pdl = false;
        assert_memory_equal(got, want, sizeof want);
        memory_free(&coded);
    }
}
#endif

int main(void)
{
    char why[200];
    log_init(LOG_LEVEL_ERROR, 2, false);
    if (!dev_serves(DEV_CUDA, why, sizeof why)) {
        printf("%s, skipped\n", why);
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checkpoints_of_codes_are_near_ref),
        cmocka_unit_test(any_projection_may_be_left_out_of_the_codes),
        cmocka_unit_test(experts_of_codes_are_near_ref),
        cmocka_unit_test(what_is_rounded_at_load_is_near_ref),
        cmocka_unit_test(long_prompts_are_near_ref_with_wgmma),
        cmocka_unit_test(prompts_with_fp8_activations_are_near_ref),
        cmocka_unit_test(joined_products_of_codes_give_the_same_bits),
#ifdef CUDA_EMU
        cmocka_unit_test(a_layer_of_codes_has_four_kernels_less),
        cmocka_unit_test(two_ranks_are_near_ref),
        cmocka_unit_test(kernels_that_begin_early_give_the_same_bits),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
