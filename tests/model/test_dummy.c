/* Models without a checkpoint: known by name, made up, the same however many ranks share them. */
#include "golden.h"
#include <math.h>

static char err[512];

enum { ROWS = 12, VOCAB = 331 };

/* Logits of the last of ROWS tokens of the tiny shape. */
static void forward(uint32_t n_rank, float *logits)
{
    struct source     src;
    struct model_spec spec;
    struct rank_team *t;
    uint32_t          n_block, id[ROWS], page[1] = { 1 };
    struct batch_cfg  bc = { .rows_max = 16,
                             .seqs_max = 2,
                             .pages_max = 8,
                             .hist_max = 64,
                             .ban_max = 8,
                             .allow_max = 8,
                             .bias_max = 8,
                             .mask_max = 8 };
    struct rank_cfg   cfg = { .n_rank = n_rank,
                              .device = DEV_CPU,
                              .n_thread = n_rank,
                              .load = { .weight_dtype = DT_COUNT,
                                        .kv_dtype = DT_F32,
                                        .batch_rows_max = 16,
                                        .logit_rows_max = 2,
                                        .n_block = 4,
                                        .block_tokens = 16,
                                        .step = bc } };
    struct batch      b;
    assert_true(model_shape("tiny", &src));
    assert_int_equal(model_spec_load(&src, &spec, err, sizeof err), ST_OK);
    assert_int_equal(spec.vocab, VOCAB);
    if (rank_team_create(&spec, &src, &cfg, &n_block, &t, err, sizeof err)) fail_msg("%s", err);
    assert_int_equal(batch_init(&b, &bc), ST_OK);
    for (uint32_t i = 0; i < ROWS; i++) id[i] = (i * 37 + 5) % VOCAB;
    batch_add(&b, id, ROWS, 0, page, 1);
    *batch_add_sample(&b, ROWS - 1) = (struct op_sample_row){ .top_p = 1, .repetition = 1 };
    struct eng_runner run = rank_team_runner(t);
    assert_int_equal(eng_run(&run, &b), ST_OK);
    assert_true(b.out.id[0] < VOCAB);
    memcpy(logits, rank_team_logits(t), VOCAB * sizeof *logits);
    batch_free(&b);
    rank_team_free(t);
    model_spec_free(&spec);
}

static void ranks_share_one_made_up_model(void **state)
{
    (void)state;
    float  one[VOCAB], two[VOCAB];
    double sum = 0, square = 0;
    forward(1, one);
    forward(2, two);
    for (int i = 0; i < VOCAB; i++) {
        sum += (double)one[i];
        square += (double)one[i] * (double)one[i];
        assert_true(fabs((double)one[i] - (double)two[i]) < 1e-5); /* the sum over ranks has another order */
    }
    double std = sqrt(square / VOCAB - sum / VOCAB * sum / VOCAB);
    assert_true(std > 0.05 && std < 0.5); /* a norm of ones, times 64 weights of 0.02 */
}

static void every_known_shape_is_a_config_that_can_be_served(void **state)
{
    (void)state;
    static const char *const name[] = { "qwen3-8b", "llama-3.1-8b", "llama-3.2-1b", "tiny" };
    struct source            src;
    assert_false(model_shape("qwen", &src));
    for (size_t i = 0; i < ARRAY_N(name); i++) {
        struct model_spec spec;
        assert_true(model_shape(name[i], &src));
        assert_non_null(strstr(model_shape_names(), name[i]));
        if (model_spec_load(&src, &spec, err, sizeof err)) fail_msg("%s: %s", name[i], err);
        assert_int_equal(spec.dtype, DT_BF16);
        assert_int_equal(model_check(&spec, &src, 1, false, err, sizeof err), ST_OK);
        assert_int_equal(model_check(&spec, &src, 3, false, err, sizeof err), ST_CONFIG);
        model_spec_free(&spec);
    }
}

static void the_matrices_of_a_model_are_listed_once(void **state)
{
    (void)state;
    static const struct dev_matrix want[] = { { 151936, 4096, true, false, OP_END_STORE },
                                              { 6144, 4096, false, true, OP_END_STORE },
                                              { 4096, 4096, false, false, OP_END_ADD },
                                              { 24576, 4096, false, true, OP_END_GLU },
                                              { 4096, 12288, false, false, OP_END_ADD } },
                                   half[] = { { 75968, 4096, true, false, OP_END_STORE },
                                              { 3072, 4096, false, false, OP_END_STORE },
                                              { 4096, 2048, false, false, OP_END_STORE },
                                              { 12288, 4096, false, false, OP_END_GLU },
                                              { 4096, 6144, false, false, OP_END_STORE } };
    struct source     src;
    struct model_spec spec;
    struct dev_matrix got[16];
    assert_true(model_shape("qwen3-8b", &src));
    assert_int_equal(model_spec_load(&src, &spec, err, sizeof err), ST_OK);
    for (uint32_t n_rank = 1; n_rank <= 2; n_rank++) {
        assert_int_equal(model_matrices(&spec, n_rank, false, got, 16), 5);
        for (int i = 0; i < 5; i++) {
            const struct dev_matrix *w = n_rank == 1 ? &want[i] : &half[i];
            assert_true(got[i].n == w->n && got[i].k == w->k && got[i].logits == w->logits);
            assert_true(got[i].norm == w->norm && got[i].end == w->end);
        }
    }
    model_spec_free(&spec);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_share_one_made_up_model),
        cmocka_unit_test(every_known_shape_is_a_config_that_can_be_served),
        cmocka_unit_test(the_matrices_of_a_model_are_listed_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
