/* Models without a checkpoint: known by name, made up, the same however many ranks share them. */
#include "golden.h"
#include <math.h>

static char err[512];

enum { ROWS = 12, VOCAB = 331 };

/* Logits of the last of ROWS tokens of the tiny shape, whose weights n_load threads make. */
static void forward(uint32_t n_rank, uint32_t n_load, struct dev_quant quant, float *logits)
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
                                        .quant = quant,
                                        .quant_head = quant.code != DT_F32,
                                        .n_thread = n_load,
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
    forward(1, 0, (struct dev_quant){ .code = DT_F32 }, one);
    forward(2, 0, (struct dev_quant){ .code = DT_F32 }, two);
    for (int i = 0; i < VOCAB; i++) {
        sum += (double)one[i];
        square += (double)one[i] * (double)one[i];
        assert_true(fabs((double)one[i] - (double)two[i]) < 1e-5); /* the sum over ranks has another order */
    }
    double std = sqrt(square / VOCAB - sum / VOCAB * sum / VOCAB);
    assert_true(std > 0.05 && std < 0.5); /* a norm of ones, times 64 weights of 0.02 */
}

/* A head of 331 rows is two pieces: every row is its own, and none is missing. */
static void threads_make_the_model_of_one(void **state)
{
    (void)state;
    static const struct dev_quant kinds[] = { { .code = DT_F32 }, { .code = DT_I8 }, { .code = DT_I4, .group = 32 } };
    for (size_t i = 0; i < ARRAY_N(kinds); i++) {
        float one[VOCAB], four[VOCAB];
        forward(1, 1, kinds[i], one);
        forward(1, 4, kinds[i], four);
        assert_memory_equal(one, four, sizeof one);
        for (int v = 0; v < VOCAB; v++) {
            assert_true(one[v] < 0 || one[v] > 0);
            for (int w = 0; w < v; w++) assert_true(one[v] < one[w] || one[v] > one[w]);
        }
    }
}

static void every_known_shape_is_a_config_that_can_be_served(void **state)
{
    (void)state;
    static const char *const name[] = {
        "qwen3-8b", "qwen3-30b-a3b", "llama-3.1-8b", "llama-3.2-1b", "tiny", "tiny-moe"
    };
    struct source src;
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
    static const struct dev_matrix want[] = { { 151936, 4096, true, false, OP_END_STORE, 0 },
                                              { 6144, 4096, false, true, OP_END_STORE, 0 },
                                              { 4096, 4096, false, false, OP_END_ADD, 0 },
                                              { 24576, 4096, false, true, OP_END_GLU, 0 },
                                              { 4096, 12288, false, false, OP_END_ADD, 0 } },
                                   half[] = { { 75968, 4096, true, false, OP_END_STORE, 0 },
                                              { 3072, 4096, false, false, OP_END_STORE, 0 },
                                              { 4096, 2048, false, false, OP_END_STORE, 0 },
                                              { 12288, 4096, false, false, OP_END_GLU, 0 },
                                              { 4096, 6144, false, false, OP_END_STORE, 0 } };
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

/* Routers are timed with the choice behind them; where a family routes by floats, so does the product. */
static void a_router_is_listed_with_what_it_chooses(void **state)
{
    (void)state;
#define CONFIG(arch, type, experts)                                                                                 \
    "{\"architectures\": [\"" arch "\"], \"model_type\": \"" type "\", \"hidden_size\": 64, \"vocab_size\": 331, "  \
    "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 16, "          \
    "\"intermediate_size\": 96, \"moe_intermediate_size\": 32, \"max_position_embeddings\": 4096, "                 \
    "\"rms_norm_eps\": 1e-6, \"rope_theta\": 10000, \"hidden_act\": \"silu\", \"num_experts_per_tok\": 3, " experts \
    ": 12, \"torch_dtype\": \"bfloat16\"}"
    static const char *const config[] = { CONFIG("Qwen3MoeForCausalLM", "qwen3_moe", "\"num_experts\""),
                                          CONFIG("Glm4MoeForCausalLM", "glm4_moe", "\"n_routed_experts\"") };
#undef CONFIG
    for (int f32 = 0; f32 < 2; f32++) {
        struct source_embed file = { "config.json", (const unsigned char *)config[f32], strlen(config[f32]) };
        struct source       src = { .embed = &file, .n_embed = 1, .dummy = true };
        struct model_spec   spec;
        struct dev_matrix   got[16];
        uint32_t            n_router = 0;
        if (model_spec_load(&src, &spec, err, sizeof err)) fail_msg("%s", err);
        for (uint32_t i = 0, n = model_matrices(&spec, 1, false, got, 16); i < n; i++) {
            bool router = got[i].n == 12 && got[i].k == 64;
            assert_int_equal(got[i].top_k, router ? 3 : 0);
            if (router) assert_int_equal(got[i].logits, f32);
            n_router += router;
        }
        assert_int_equal(n_router, 1);
        model_spec_free(&spec);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_share_one_made_up_model),
        cmocka_unit_test(threads_make_the_model_of_one),
        cmocka_unit_test(every_known_shape_is_a_config_that_can_be_served),
        cmocka_unit_test(the_matrices_of_a_model_are_listed_once),
        cmocka_unit_test(a_router_is_listed_with_what_it_chooses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
