/* The device on paper, which plans are made with where no GPU is, against the one that serves. */
#include "base/log.h"
#include "engine/model/model.h"
#include "test.h"

static void weights_are_those_of_the_device_and_the_rest_is_near(void **state)
{
    (void)state;
    static const char *const      shapes[] = { "tiny", "llama-3.2-1b", "qwen3-8b" };
    static const struct dev_quant codes = { .code = DT_I4, .group = 128, .zero = true };
    for (size_t i = 0; i < 2 * ARRAY_N(shapes); i++) { /* the second half: as codes */
        struct source         src;
        struct model_spec     spec;
        struct device        *real, *paper;
        struct model_plan     a, b;
        char                  err[400];
        struct model_load_cfg load = { .weight_dtype = DT_COUNT,
                                       .kv_dtype = DT_COUNT,
                                       .batch_rows_max = 512,
                                       .logit_rows_max = 64,
                                       .block_tokens = 16 };
        if (i >= ARRAY_N(shapes)) load.quant = codes;
        struct dev_cfg cfg = { .kind = DEV_CUDA,
                               .arena_bytes = (size_t)1 << 30,
                               .n_rank = 1,
                               .ordinal = -1,
                               .plan_only = true,
                               .act = DT_BF16 };
        assert_true(model_shape(shapes[i % ARRAY_N(shapes)], &src));
        assert_int_equal(model_spec_load(&src, &spec, err, sizeof err), ST_OK);
        assert_int_equal(dev_open(&cfg, &real), ST_OK);
        assert_int_equal(dev_paper(DEV_CUDA, 0, 1, DT_BF16, &paper), ST_OK);
        assert_int_equal(model_plan(&spec, &load, real, &a), ST_OK);
        assert_int_equal(model_plan(&spec, &load, paper, &b), ST_OK);
        assert_int_equal(a.weight_bytes, b.weight_bytes);
        assert_int_equal(a.block_bytes, b.block_bytes);
        printf("    %-14s workspace %.1f MiB, on paper %.1f\n", shapes[i % ARRAY_N(shapes)],
               (double)a.work_bytes / 1048576, (double)b.work_bytes / 1048576);
        double ratio = (double)b.work_bytes / (double)a.work_bytes;
        assert_true(ratio > 0.9 && ratio < 1.15);
        dev_close(real);
        dev_close(paper);
        model_spec_free(&spec);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(weights_are_those_of_the_device_and_the_rest_is_near) };
    log_init(LOG_LEVEL_ERROR, 2, false);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
