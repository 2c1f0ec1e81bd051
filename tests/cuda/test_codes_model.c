/* Whole models whose matrices are codes on the CUDA device: each kind of checkpoint against ref, on one rank and on
 * two, and the same bits where kernels begin early. */
#include "model/quant_folder.h"
#include "test.h"
#ifdef CUDA_EMU
#include <emu.h>
#endif

/* Activations are rounded three times in each layer; ref has the codes' own numbers too. Zeros at random make weights
 * that do not cancel as trained ones do. Activations of f16 have 3 bits more. */
static const double BOUND = 5e-2;

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

#ifdef CUDA_EMU
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
#ifdef CUDA_EMU
        cmocka_unit_test(two_ranks_are_near_ref),
        cmocka_unit_test(kernels_that_begin_early_give_the_same_bits),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
