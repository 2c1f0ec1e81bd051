/* Whole models whose products are joined with what stands around them: how many kernels a layer of a decode step is,
 * and the same bits as with every op by itself, for steps of all sizes. */
#include "cuda/join_test.h"
#include "test.h"

/* Biases, gates, norms behind parts, parallel parts, norms with a mean, experts beside and in place of a dense part. */
static const char *const names[] = { "llama3",     "qwen2",      "qwen3",          "llama-bias", "llama-gelu",
                                     "qwen3-relu", "glm4",       "cohere2",        "starcoder2", "mixtral",
                                     "qwen2-moe",  "glm4-moe",   "granite-moe",    "gpt-oss",    "gemma4",
                                     "llama4",     "gemma4-moe", "cohere-qk-norm", "ministral3", "hunyuan",
                                     "olmo2" };
/* Of all: the first ones also on two ranks, and with KV in 8 bits. */
enum { RANKED = 2, CODED = 3 };
/* Rows of steps, one after another: too many for a kernel that joins, few, with norms, alone. */
static const uint32_t steps[] = { 33, 20, 8, 5, 1, 1 };
enum { LOGITS = 2 };

/* Logits of two rows of every step, [ARRAY_N(steps)][LOGITS][vocab]; the caller frees them. */
static float *logits(const struct gold *g, uint32_t n_rank, enum dtype kv, bool joins)
{
    struct gold_run r;
    uint32_t        at = 0, ids[GOLD_TOKENS_MAX];
    float          *got = calloc((size_t)ARRAY_N(steps) * LOGITS * g->spec.vocab, sizeof *got);
    open_run(&r, g, n_rank, kv, joins);
    struct device *d = rank_team_device(r.team);
    for (uint32_t i = 0; i < GOLD_TOKENS_MAX; i++) ids[i] = g->prompt[0][i % g->n[0]];
    for (size_t i = 0; i < ARRAY_N(steps); at += steps[i++]) {
        uint32_t n = steps[i] < LOGITS ? 1 : LOGITS, first = at; /* the last row, and the first of several */
        gold_step(&r, ids, at, steps[i], &first, n - 1, true);
        d->ops->to_host(d, got + i * LOGITS * g->spec.vocab, rank_team_logits(r.team), (size_t)n * g->spec.vocab * 4);
    }
    gold_run_close(&r);
    return got;
}

static void assert_same_joined(const char *name, uint32_t n_rank, enum dtype kv)
{
    struct gold g;
#ifdef CUDA_EMU
    emu_set_devices((int)n_rank);
#else
    if (n_rank > 1) return;
#endif
    gold_open(&g, name);
    float *want = logits(&g, n_rank, kv, false), *got = logits(&g, n_rank, kv, true);
    if (memcmp(got, want, ARRAY_N(steps) * LOGITS * g.spec.vocab * sizeof *got) != 0)
        fail_msg("%s, %u ranks%s: other bits", name, n_rank, kv == DT_F8E4M3 ? ", KV in 8 bits" : "");
    free(want);
    free(got);
    gold_close(&g);
#ifdef CUDA_EMU
    emu_reset();
#endif
}

static void joined_steps_have_the_bits_of_ops_one_after_another(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_N(names); i++) {
        assert_same_joined(names[i], 1, DT_COUNT);
        if (i < RANKED) assert_same_joined(names[i], 2, DT_COUNT);
        if (i < CODED) assert_same_joined(names[i], 1, DT_F8E4M3);
    }
}

/* Matrices that are rounded to codes while they are read, biases and gates and experts of codes beside them. */
static void joined_steps_of_codes_have_the_same_bits(void **state)
{
    (void)state;
    static const struct {
        const char *format, *name;
    } cases[] = { { "fp8", "qwen3" },
                  { "int8", "qwen2" },
                  { "int4", "llama-bias" },
                  { "fp8", "llama-gelu" },
                  { "int8", "mixtral" } };
    for (size_t i = 0; i < ARRAY_N(cases); i++) {
        assert_true(model_quant_named(cases[i].format, &gold_quant, &gold_quant_head));
        assert_same_joined(cases[i].name, 1, DT_COUNT);
        if (i < RANKED) assert_same_joined(cases[i].name, 2, DT_COUNT);
        if (i < RANKED) assert_same_joined(cases[i].name, 1, DT_F8E4M3);
    }
    gold_quant = (struct dev_quant){ .code = DT_F32 };
}

/* Each rank routes all rows, for lists of its own experts; the ops are apart on one rank alone. */
static void ranks_with_whole_experts_route_alike(void **state)
{
    (void)state;
    static const char *const name[] = { "mixtral", "glm4-moe" };
    gold_expert_parallel = true;
    for (size_t i = 0; i < ARRAY_N(name); i++) assert_same_joined(name[i], 2, DT_COUNT);
    gold_expert_parallel = false;
}

#ifdef CUDA_EMU
/* Models of three layers with random weights. more: keys of config.json. */
#define CONFIG(arch, type, more)                                                                                        \
    "{\"architectures\": [\"" arch "\"], \"model_type\": \"" type                                                       \
    "\", \"hidden_size\": 64, \"intermediate_size\": 96, "                                                              \
    "\"num_hidden_layers\": 3, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"vocab_size\": 331, "           \
    "\"max_position_embeddings\": 4096, \"rms_norm_eps\": 1e-6, \"rope_theta\": 10000, \"hidden_act\": \"silu\", " more \
    "\"tie_word_embeddings\": false, \"torch_dtype\": \"bfloat16\", \"bos_token_id\": 1, \"eos_token_id\": 2}"
static const struct {
    const char *config;
    uint32_t    joined, apart; /* kernels of a layer */
} counts[] = { { CONFIG("LlamaForCausalLM", "llama", ""), 5, 9 },
               { CONFIG("Qwen3ForCausalLM", "qwen3", "\"head_dim\": 32, "), 5, 9 },
               { CONFIG("Qwen2ForCausalLM", "qwen2", ""), 5, 10 },
               { CONFIG("LlamaForCausalLM", "llama", "\"attention_bias\": true, \"mlp_bias\": true, "), 5, 13 },
               /* heads whose pairs do not come eight at a time are finished by a kernel of their own */
               { CONFIG("LlamaForCausalLM", "llama", "\"head_dim\": 24, "), 6, 9 },
               { CONFIG("Qwen3MoeForCausalLM", "qwen3_moe",
                        "\"head_dim\": 32, \"num_experts\": 12, \"num_experts_per_tok\": 3, "
                        "\"moe_intermediate_size\": 32, \"norm_topk_prob\": true, "),
                 9, 12 },
               { CONFIG("Glm4MoeForCausalLM", "glm4_moe",
                        "\"head_dim\": 32, \"n_routed_experts\": 12, \"num_experts_per_tok\": 3, \"n_group\": 2, "
                        "\"topk_group\": 1, \"first_k_dense_replace\": 0, \"n_shared_experts\": 1, "
                        "\"moe_intermediate_size\": 32, "),
                 12, 16 } };

static void a_layer_of_a_decode_step_is_five_kernels(void **state)
{
    (void)state;
    static const char *const formats[] = { "fp8", "int8", "int4" };
    for (size_t i = 0; i < ARRAY_N(counts); i++) {
        struct source_embed file = { "config.json", (const unsigned char *)counts[i].config, strlen(counts[i].config) };
        struct source       src = { .embed = &file, .n_embed = 1, .dummy = true };
        struct model_spec   spec;
        char                err[400] = "";
        if (model_spec_load(&src, &spec, err, sizeof err)) fail_msg("%s", err);
        for (int joins = 0; joins < 2; joins++)
            assert_int_equal(layer_launches(&spec, &src, joins), joins ? counts[i].joined : counts[i].apart);
        for (size_t f = 0; f < ARRAY_N(formats) && !spec.n_expert; f++) { /* codes as plain weights */
            assert_true(model_quant_named(formats[f], &gold_quant, &gold_quant_head));
            assert_int_equal(layer_launches(&spec, &src, true), counts[i].joined);
        }
        gold_quant = (struct dev_quant){ .code = DT_F32 };
        model_spec_free(&spec);
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
        cmocka_unit_test(joined_steps_have_the_bits_of_ops_one_after_another),
        cmocka_unit_test(joined_steps_of_codes_have_the_same_bits),
        cmocka_unit_test(ranks_with_whole_experts_route_alike),
#ifdef CUDA_EMU
        cmocka_unit_test(a_layer_of_a_decode_step_is_five_kernels),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
