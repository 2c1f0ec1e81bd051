#include "base/log.h"
#include "unit/engine/hf_load.h"
#include <fcntl.h>
#include <math.h>

static void the_factors_of_granite_are_read_and_default_to_one(void **state)
{
    (void)state;
    struct model_spec s;
    load("GraniteForCausalLM", "{}", &s);
    assert_true(s.embed_scale == 1 && s.residual_scale == 1 && s.logit_scale == 1);
    assert_true(s.attn_scale == 1); /* not 1 / sqrt(head_dim) */
    model_spec_free(&s);
    load("GraniteForCausalLM",
         "{\"embedding_multiplier\": 12, \"attention_multiplier\": 0.0078125, \"residual_multiplier\": 0.25, "
         "\"logits_scaling\": 8}",
         &s);
    assert_true(s.embed_scale == 12 && s.attn_scale == 0.0078125f && s.residual_scale == 0.25f);
    assert_true(s.logit_scale == 0.125f);
    model_spec_free(&s);
    /* other families have no such keys in transformers, and look at none */
    load("LlamaForCausalLM", "{\"residual_multiplier\": 0.25, \"logits_scaling\": 8}", &s);
    assert_true(s.residual_scale == 1 && s.logit_scale == 1 && s.attn_scale == 0.25f);
    model_spec_free(&s);
}

static void factors_that_cannot_be_are_refused_by_name(void **state)
{
    (void)state;
    static const char *const keys[] = { "embedding_multiplier", "attention_multiplier", "residual_multiplier",
                                        "logits_scaling" };
    static const char *const values[] = { "0", "-1", "1e300", "\"1\"", "[]", "true" };
    char                     over[128];
    for (size_t k = 0; k < ARRAY_N(keys); k++)
        for (size_t v = 0; v < ARRAY_N(values); v++) {
            snprintf(over, sizeof over, "{\"%s\": %s}", keys[k], values[v]);
            refused("GraniteForCausalLM", over, keys[k]);
        }
}

static void alpha_of_hunyuan_stretches_the_base(void **state)
{
    (void)state;
    static const char *const over =
        "{\"rope_theta\": 10000, \"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 1.0, \"alpha\": 1000}}";
    struct model_spec s;
    load("HunYuanDenseV1ForCausalLM", over, &s); /* head_dim 16 */
    assert_true(fabs(s.rope_theta / (1e4 * pow(1000, 16.0 / 14)) - 1) < 1e-12);
    model_spec_free(&s);
    load("LlamaForCausalLM", over, &s); /* has no such key */
    assert_true(s.rope_theta == 1e4);
    model_spec_free(&s);
    refused("HunYuanDenseV1ForCausalLM", "{\"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 1.0, \"alpha\": -1}}",
            "alpha is -1");
}

static void gemma_has_soft_caps_and_a_scalar_for_its_scores(void **state)
{
    (void)state;
    struct model_spec s;
    load("Gemma2ForCausalLM", "{\"hidden_size\": 3072, \"hidden_act\": \"gelu\"}", &s);
    assert_true(s.attn_cap == 50 && s.logit_cap == 30 && s.attn_scale == 0.0625f);
    assert_true(s.embed_scale == 55.5f); /* sqrt(3072) in bf16 */
    assert_int_equal(s.act, OP_GELU_TANH);
    assert_int_equal(s.head_dim, 256);
    assert_true(s.tied);
    model_spec_free(&s);
    load("Gemma2ForCausalLM",
         "{\"query_pre_attn_scalar\": 64, \"attn_logit_softcapping\": null, \"final_logit_softcapping\": 20, "
         "\"torch_dtype\": \"float32\", \"hidden_size\": 3072, \"hidden_activation\": \"silu\"}",
         &s);
    assert_true(s.attn_cap == 0 && s.logit_cap == 20 && s.attn_scale == 0.125f && s.embed_scale == sqrtf(3072));
    assert_int_equal(s.act, OP_SILU);
    model_spec_free(&s);
    load("Gemma3ForCausalLM", "{}", &s);
    assert_true(s.attn_cap == 0 && s.logit_cap == 0);
    model_spec_free(&s);
    refused("Gemma2ForCausalLM", "{\"use_bidirectional_attention\": true}", "use_bidirectional_attention is true");
    refused("Gemma2ForCausalLM", "{\"attn_logit_softcapping\": 0}", "attn_logit_softcapping is 0");
    refused("Gemma2ForCausalLM", "{\"final_logit_softcapping\": -1}", "final_logit_softcapping is -1");
    refused("Gemma2ForCausalLM", "{\"query_pre_attn_scalar\": 0}", "query_pre_attn_scalar is 0");
}

static void logits_of_cohere_have_a_factor_and_its_layers_without_a_window_do_not_rotate(void **state)
{
    (void)state;
    struct model_spec s;
    load("CohereForCausalLM", "{}", &s);
    assert_true(s.logit_scale == 0.0625f && s.embed_scale == 1 && s.residual_scale == 1);
    assert_true(s.rms_eps == 1e-5f && s.rope_theta == 5e5 && s.tied && !s.qkv_bias && !s.mlp_bias);
    assert_int_equal(s.window, 0);
    model_spec_free(&s);
    load("Cohere2ForCausalLM", "{\"logit_scale\": 0.25, \"layer_norm_eps\": 1e-4, \"attention_bias\": true}", &s);
    assert_true(s.logit_scale == 0.25f && s.rms_eps == 1e-4f && s.qkv_bias && s.o_bias);
    for (int l = 0; l < 4; l++) assert_int_equal(s.layer_windowed[l], l < 3);
    model_spec_free(&s);
    refused("CohereForCausalLM", "{\"use_qk_norm\": 1}", "use_qk_norm is 1, must be");
    refused("Cohere2ForCausalLM", "{\"use_qk_norm\": true}", "use_qk_norm is true, which Cohere2ForCausalLM does not");
    refused("CohereForCausalLM", "{\"logit_scale\": 0}", "logit_scale is 0");
    refused("Cohere2ForCausalLM", "{\"logit_scale\": \"a\"}", "logit_scale is \"a\"");
}

static void starcoder_2_has_biases_everywhere_and_a_gelu(void **state)
{
    (void)state;
    struct model_spec s;
    load("Starcoder2ForCausalLM", "{\"num_key_value_heads\": \"-\", \"norm_epsilon\": 1e-3, \"rms_norm_eps\": \"-\"}",
         &s);
    assert_int_equal(s.act, OP_GELU_TANH);
    assert_true(s.qkv_bias && s.o_bias && s.mlp_bias && s.tied);
    assert_true(s.rms_eps == 1e-3f);
    assert_int_equal(s.n_kv_head, 2);
    assert_int_equal(s.window, 0);
    model_spec_free(&s);
    load("Starcoder2ForCausalLM", "{\"use_bias\": false, \"hidden_act\": \"silu\", \"sliding_window\": 16}", &s);
    assert_int_equal(s.act, OP_SILU);
    assert_false(s.qkv_bias || s.o_bias || s.mlp_bias);
    assert_int_equal(s.window, 16);
    model_spec_free(&s);
    refused("Starcoder2ForCausalLM", "{\"hidden_act\": \"mish\"}", "hidden_act is \"mish\"");
    refused(
        "Starcoder2ForCausalLM",
        "{\"quantization_config\": {\"quant_method\": \"gptq\", \"bits\": 4, \"group_size\": 32, \"desc_act\": true}}",
        "desc_act (actorder) is set, which is not supported of Starcoder2ForCausalLM");
}

static void the_gate_of_gpt_oss_clamps_at_what_the_kernels_have(void **state)
{
    (void)state;
    struct model_spec s;
    load("GptOssForCausalLM", "{\"num_local_experts\": 32}", &s);
    assert_int_equal(s.act, OP_CLAMPED);
    assert_true(s.qkv_bias && s.o_bias && !s.mlp_bias && s.norm_topk && !s.tied);
    assert_int_equal(s.n_expert, 32);
    assert_int_equal(s.top_k_expert, 4);
    assert_int_equal(s.window, 128);
    assert_int_equal(s.context, 131072);
    assert_true(s.rope_theta == 150000 && s.rope_factor == 32 && !s.rope_truncate);
    model_spec_free(&s);
    load("GptOssForCausalLM", "{\"swiglu_limit\": 7.0, \"swiglu_alpha\": 1.702, \"attention_bias\": false}", &s);
    assert_true(!s.qkv_bias && !s.o_bias);
    model_spec_free(&s);
    refused("GptOssForCausalLM", "{\"swiglu_limit\": 10}", "swiglu_limit is 10, supported is 7");
    refused("GptOssForCausalLM", "{\"swiglu_alpha\": 1.5}", "swiglu_alpha is 1.5, supported is 1.702");
    refused("GptOssForCausalLM", "{\"swiglu_alpha\": \"x\"}", "swiglu_alpha");
}

static void windows_alternate_as_each_family_has_it(void **state)
{
    (void)state;
    static const struct {
        const char *arch, *over;
        unsigned    layers; /* bit l: a window */
    } cases[] = { { "Gemma2ForCausalLM", "{\"num_hidden_layers\": 8}", 0x55 },
                  { "Gemma3ForCausalLM", "{\"num_hidden_layers\": 8}", 0xdf },
                  { "Gemma3ForCausalLM", "{\"num_hidden_layers\": 8, \"sliding_window_pattern\": 3}", 0xdb },
                  { "Olmo3ForCausalLM", "{\"num_hidden_layers\": 8}", 0x77 },
                  { "Olmo3ForCausalLM", "{\"num_hidden_layers\": 8, \"sliding_window_pattern\": 3}", 0x77 },
                  { "Exaone4ForCausalLM", "{\"num_hidden_layers\": 8}", 0x77 },
                  { "Exaone4ForCausalLM", "{\"num_hidden_layers\": 8, \"sliding_window\": null}", 0 } };
    for (size_t i = 0; i < ARRAY_N(cases); i++) {
        struct model_spec s;
        load2(cases[i].arch, cases[i].over, NULL, &s);
        for (unsigned l = 0; l < 8; l++)
            if (s.layer_windowed[l] != (cases[i].layers >> l & 1))
                fail_msg("%s %s: layer %u", cases[i].arch, cases[i].over, l);
        model_spec_free(&s);
    }
    refused("Exaone4ForCausalLM", "{\"sliding_window_pattern\": \"LLLG\"}", "sliding_window_pattern is \"LLLG\"");
}

static void layers_with_a_window_have_a_base_of_their_own(void **state)
{
    (void)state;
    struct model_spec s;
    load("Gemma3ForCausalLM", "{\"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 8.0}}", &s);
    assert_true(s.rope_theta == 1e6 && s.rope_local_theta == 1e4);
    assert_int_equal(s.rope_scaling, ROPE_SCALE_LINEAR);
    assert_int_equal(s.context, 131072); /* the length after stretching */
    model_spec_free(&s);
    load("Gemma3ForCausalLM", "{\"rope_theta\": 5000, \"rope_local_base_freq\": 300}", &s);
    assert_true(s.rope_theta == 5000 && s.rope_local_theta == 300);
    float local[128], plain[128];
    model_rope_local(&s, local);
    s.rope_theta = 300;
    assert_true(model_rope(&s, plain) == 1);
    assert_memory_equal(local, plain, sizeof local);
    model_spec_free(&s);
    load("Olmo3ForCausalLM", "{\"rope_theta\": 7e5}", &s);
    assert_true(s.rope_theta == 7e5 && s.rope_local_theta == 7e5);
    model_spec_free(&s);
    load("Olmo3ForCausalLM",
         "{\"rope_parameters\": {\"full_attention\": {\"rope_type\": \"linear\", \"factor\": 2, \"rope_theta\": 9000}, "
         "\"sliding_attention\": {\"rope_type\": \"default\", \"rope_theta\": 70}}}",
         &s);
    assert_true(s.rope_theta == 9000 && s.rope_local_theta == 70 && s.rope_factor == 2);
    model_spec_free(&s);
    refused("Gemma3ForCausalLM", "{\"rope_parameters\": {\"sliding_attention\": {\"rope_type\": \"linear\"}}}",
            "rope_type of sliding_attention is \"linear\"");
    refused("Gemma3ForCausalLM", "{\"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 5}}",
            "must hold full_attention and sliding_attention");
    refused("Gemma3ForCausalLM", "{\"rope_scaling\": 8}", "rope_scaling is 8");
    refused("Gemma3ForCausalLM", "{\"rope_local_base_freq\": 0}", "rope_theta of sliding_attention is 0");
}

int main(void)
{
    log_init(LOG_LEVEL_ERROR, open("/dev/null", O_WRONLY | O_CLOEXEC), false);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_gate_of_gpt_oss_clamps_at_what_the_kernels_have),
        cmocka_unit_test(the_factors_of_granite_are_read_and_default_to_one),
        cmocka_unit_test(gemma_has_soft_caps_and_a_scalar_for_its_scores),
        cmocka_unit_test(logits_of_cohere_have_a_factor_and_its_layers_without_a_window_do_not_rotate),
        cmocka_unit_test(starcoder_2_has_biases_everywhere_and_a_gelu),
        cmocka_unit_test(windows_alternate_as_each_family_has_it),
        cmocka_unit_test(layers_with_a_window_have_a_base_of_their_own),
        cmocka_unit_test(alpha_of_hunyuan_stretches_the_base),
        cmocka_unit_test(factors_that_cannot_be_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
