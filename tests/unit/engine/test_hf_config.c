/* What is read from a config.json, and which values are refused. Over 500 lines: one reader; a test for each part of
 * a config.json. */
#include "base/log.h"
#include "engine/model/model.h"
#include "unit/engine/hf_load.h"
#include <fcntl.h>
#include <math.h>

static void absent_keys_mean_what_each_family_of_transformers_means(void **state)
{
    (void)state;
    struct model_spec s;
    load("LlamaForCausalLM", "{\"num_key_value_heads\": \"-\"}", &s);
    assert_int_equal(s.n_kv_head, 4);
    assert_int_equal(s.head_dim, 16);
    assert_int_equal(s.rot, 16);
    assert_int_equal(s.context, 2048);
    assert_true(s.rms_eps == 1e-6f);
    assert_true(s.rope_theta == 1e4);
    assert_false(s.tied || s.qkv_bias || s.o_bias || s.mlp_bias);
    assert_int_equal(s.bos_id, 1);
    assert_int_equal(s.n_eos, 1);
    assert_int_equal(s.eos_id[0], 2);
    assert_int_equal(s.window, 0);
    assert_int_equal(s.dtype, DT_BF16);
    assert_true(isnan(s.gen_temperature));
    assert_int_equal(s.gen_top_k, -1);
    model_spec_free(&s);

    load("MistralForCausalLM", "{}", &s);
    assert_int_equal(s.window, 4096);
    assert_int_equal(s.context, 131072);
    for (int l = 0; l < 4; l++) assert_int_equal(s.layer_windowed[l], 1);
    model_spec_free(&s);

    load("Qwen3ForCausalLM", "{}", &s);
    assert_int_equal(s.head_dim, 128);
    assert_int_equal(s.window, 0); /* use_sliding_window is false */
    assert_int_equal(s.n_eos, 0);
    assert_int_equal(s.bos_id, UINT32_MAX);
    model_spec_free(&s);

    load("MixtralForCausalLM", "{}", &s);
    assert_int_equal(s.n_expert, 8);
    assert_int_equal(s.top_k_expert, 2);
    assert_int_equal(s.moe_inter, 96);
    assert_true(s.norm_topk);
    assert_int_equal(s.window, 0);
    assert_true(s.rope_theta == 1e6);
    assert_true(s.rms_eps == 1e-5f);
    model_spec_free(&s);

    load("Qwen3MoeForCausalLM", "{}", &s);
    assert_int_equal(s.n_expert, 128);
    assert_int_equal(s.top_k_expert, 8);
    assert_int_equal(s.moe_inter, 768);
    assert_int_equal(s.head_dim, 16);
    assert_false(s.norm_topk);
    model_spec_free(&s);

    load("SeedOssForCausalLM", "{}", &s);
    assert_int_equal(s.head_dim, 128);
    assert_int_equal(s.context, 524288);
    assert_true(s.qkv_bias);
    assert_false(s.o_bias || s.mlp_bias || s.tied);
    assert_int_equal(s.bos_id, 0);
    model_spec_free(&s);

    load("Ernie4_5ForCausalLM", "{\"num_key_value_heads\": \"-\", \"rope_interleave\": true}", &s);
    assert_int_equal(s.head_dim, 128);
    assert_int_equal(s.n_kv_head, 2);
    assert_int_equal(s.context, 131072);
    assert_true(s.tied);
    assert_true(s.rope_theta == 5e5);
    assert_true(s.rms_eps == 1e-5f);
    model_spec_free(&s);
}

static void each_family_has_its_own_keys_of_biases(void **state)
{
    (void)state;
    static const struct {
        const char *arch, *over;
        bool        qkv, o, mlp;
    } cases[] = {
        { "LlamaForCausalLM", "{\"attention_bias\": true}", true, true, false },
        { "LlamaForCausalLM", "{\"attention_out_bias\": true, \"use_bias\": true}", false, false, false },
        { "Qwen2ForCausalLM", "{\"attention_bias\": false}", true, false, false },
        { "SeedOssForCausalLM", "{\"attention_bias\": false, \"attention_out_bias\": true}", false, true, false },
        { "SeedOssForCausalLM", "{\"mlp_bias\": true}", true, false, true },
        { "Ernie4_5ForCausalLM", "{}", false, false, false },
        { "Ernie4_5ForCausalLM", "{\"use_bias\": true}", true, true, true },
    };
    for (size_t i = 0; i < ARRAY_N(cases); i++) {
        struct model_spec s;
        load(cases[i].arch, cases[i].over, &s);
        if (s.qkv_bias != cases[i].qkv || s.o_bias != cases[i].o || s.mlp_bias != cases[i].mlp)
            fail_msg("%s %s: biases %d %d %d", cases[i].arch, cases[i].over, s.qkv_bias, s.o_bias, s.mlp_bias);
        model_spec_free(&s);
    }
    refused("SeedOssForCausalLM", "{\"attention_out_bias\": 1}", "attention_out_bias is 1, must be true or false");
}

static void both_generations_of_keys_are_read(void **state)
{
    (void)state;
    struct model_spec a, b;
    load(
        "LlamaForCausalLM",
        "{\"rope_theta\": 500000.0, \"max_position_embeddings\": 131072, \"rope_scaling\": {\"type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 1,"
        "\"high_freq_factor\": 4, \"original_max_position_embeddings\": 8192}, \"torch_dtype\": \"bfloat16\"}",
        &a);
    load(
        "LlamaForCausalLM",
        "{\"rope_parameters\": {\"rope_theta\": 500000.0, \"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 1,"
        "\"high_freq_factor\": 4, \"original_max_position_embeddings\": 8192}, \"max_position_embeddings\": 131072, \"torch_dtype\": \"-\", \"dtype\": \"bfloat16\"}",
        &b);
    assert_int_equal(a.rope_scaling, ROPE_SCALE_LLAMA3);
    assert_int_equal(a.context, 131072);
    assert_int_equal(a.rope_orig_context, 8192);
    float f[2][8];
    assert_true(model_rope(&a, f[0]) == model_rope(&b, f[1]));
    assert_memory_equal(f[0], f[1], sizeof f[0]);
    assert_int_equal(a.dtype, b.dtype);
    model_spec_free(&a);
    model_spec_free(&b);

    /* nested per layer type, all the same */
    load(
        "Qwen3ForCausalLM",
        "{\"rope_parameters\": {\"full_attention\": {\"rope_type\": \"default\", \"rope_theta\": 7}, \"sliding_attention\": {\"rope_type\": \"default\", \"rope_theta\": 7}}}",
        &a);
    assert_true(a.rope_theta == 7);
    model_spec_free(&a);
    refused(
        "Qwen3ForCausalLM",
        "{\"rope_parameters\": {\"full_attention\": {\"rope_theta\": 7}, \"sliding_attention\": {\"rope_theta\": 8}}}",
        "rope_parameters differs");
}

static void the_context_follows_from_the_rope_scaling(void **state)
{
    (void)state;
    static const struct {
        const char *rope;
        uint32_t    context;
    } cases[] = {
        { "{\"rope_type\": \"default\"}", 4096 },
        { "{\"rope_type\": \"linear\", \"factor\": 2.5}", 10240 },
        { "{\"rope_type\": \"yarn\", \"factor\": 4.0, \"original_max_position_embeddings\": 1024}", 4096 },
        { "{\"rope_type\": \"yarn\", \"factor\": 4.0}", 16384 },
        { "{\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 1, \"high_freq_factor\": 4, \"original_max_position_embeddings\": 1024}",
          4096 },
        { "{\"rope_type\": \"dynamic\", \"factor\": 4.0}", 4096 },
        { "{\"type\": \"dynamic\", \"factor\": 2, \"original_max_position_embeddings\": 1024}",
          4096 }, /* which transformers ignores */
    };
    for (size_t i = 0; i < ARRAY_N(cases); i++) {
        char              over[300];
        struct model_spec s;
        snprintf(over, sizeof over, "{\"max_position_embeddings\": 4096, \"rope_scaling\": %s}", cases[i].rope);
        load("LlamaForCausalLM", over, &s);
        assert_int_equal(s.context, cases[i].context);
        model_spec_free(&s);
    }
}

static void sliding_layers_follow_the_rule_of_the_family(void **state)
{
    (void)state;
    static const struct {
        const char *arch, *over;
        uint32_t    window;
        unsigned    layers; /* bit l */
    } cases[] = {
        { "MistralForCausalLM", "{\"sliding_window\": null}", 0, 0 },
        { "MistralForCausalLM", "{\"sliding_window\": 16}", 16, 15 },
        { "MixtralForCausalLM", "{\"sliding_window\": 16}", 16, 15 },
        { "LlamaForCausalLM", "{\"sliding_window\": 16}", 0, 0 },
        { "Qwen2ForCausalLM", "{\"sliding_window\": 16, \"use_sliding_window\": false}", 0, 0 },
        { "Qwen2MoeForCausalLM", "{\"sliding_window\": 0, \"use_sliding_window\": false}", 0, 0 }, /* transformers 5 */
        { "Qwen2ForCausalLM", "{\"sliding_window\": 16, \"use_sliding_window\": true, \"max_window_layers\": 3}", 16,
          8 },
        { "Qwen2ForCausalLM", "{\"sliding_window\": 16, \"use_sliding_window\": true}", 16, 0 }, /* from layer 28 on */
        { "Qwen3MoeForCausalLM", "{\"sliding_window\": 16, \"use_sliding_window\": true, \"max_window_layers\": 3}", 16,
          15 },
        { "Qwen3ForCausalLM",
          "{\"sliding_window\": 16, \"use_sliding_window\": true, \"max_window_layers\": 0,"
          "\"layer_types\": [\"full_attention\", \"sliding_attention\", \"full_attention\", \"sliding_attention\"]}",
          16, 10 },
    };
    for (size_t i = 0; i < ARRAY_N(cases); i++) {
        struct model_spec s;
        load(cases[i].arch, cases[i].over, &s);
        assert_int_equal(s.window, cases[i].window);
        for (unsigned l = 0; l < 4; l++) assert_int_equal(s.layer_windowed[l], cases[i].layers >> l & 1);
        model_spec_free(&s);
    }
    refused("Qwen3ForCausalLM",
            "{\"layer_types\": [\"sliding_attention\", \"full_attention\", \"full_attention\", \"full_attention\"]}",
            "layer_types[0] is sliding_attention");
    refused("LlamaForCausalLM",
            "{\"layer_types\": [\"sliding_attention\", \"full_attention\", \"full_attention\", \"full_attention\"]}",
            "no sliding window");
    refused("LlamaForCausalLM",
            "{\"layer_types\": [\"full_attention\", \"linear_attention\", \"full_attention\", \"full_attention\"]}",
            "layer_types[1] is \"linear_attention\"");
    refused("LlamaForCausalLM", "{\"layer_types\": [\"full_attention\"]}", "layer_types");
}

static void layers_without_rotation_are_those_of_the_list_or_of_the_interval(void **state)
{
    (void)state;
    static const struct {
        const char *over;
        unsigned    nope, windowed; /* bit l */
    } cases[] = {
        { "{}", 8, 0 },
        { "{\"no_rope_layer_interval\": 2}", 10, 0 },
        { "{\"no_rope_layers\": [0, 1, 1, 0, 1]}", 9, 0 },
        { "{\"no_rope_layers\": [1, 1, 1, 1], \"no_rope_layer_interval\": 2}", 0, 0 },
        { "{\"sliding_window\": 16}", 8, 0 },
        { "{\"sliding_window\": 16, \"use_sliding_window\": true}", 8, 8 },
        { "{\"sliding_window\": 16, \"use_sliding_window\": true, \"layer_types\": [\"sliding_attention\", \"full_attention\","
          "\"full_attention\", \"full_attention\"]}",
          8, 1 },
    };
    for (size_t i = 0; i < ARRAY_N(cases); i++) {
        struct model_spec s;
        load("SmolLM3ForCausalLM", cases[i].over, &s);
        assert_true(s.tied);
        for (unsigned l = 0; l < 4; l++) {
            assert_int_equal(s.layer_nope[l], cases[i].nope >> l & 1);
            assert_int_equal(s.layer_windowed[l], cases[i].windowed >> l & 1);
        }
        model_spec_free(&s);
    }
    refused("SmolLM3ForCausalLM", "{\"no_rope_layers\": [1, 1]}",
            "no_rope_layers must be a list of num_hidden_layers, 4");
    refused("SmolLM3ForCausalLM", "{\"no_rope_layers\": 1}", "no_rope_layers must be a list");
    refused("SmolLM3ForCausalLM", "{\"no_rope_layers\": [1, 2, 1, 1]}", "no_rope_layers[1] is 2");
    refused("SmolLM3ForCausalLM", "{\"no_rope_layers\": [1, true, 1, 1]}", "no_rope_layers[1] is true");
    refused("SmolLM3ForCausalLM", "{\"no_rope_layer_interval\": 0}", "no_rope_layer_interval is 0");
}

static void queries_grow_where_the_family_says_so(void **state)
{
    (void)state;
    struct model_spec s;
    load("Ministral3ForCausalLM", "{}", &s); /* the class has parameters of its own for a file without any */
    assert_int_equal(s.rope_scaling, ROPE_SCALE_YARN);
    assert_true(s.rope_theta == 1e6);
    assert_int_equal(s.context, 262144);
    assert_int_equal(s.window, 0);
    assert_true(s.q_beta == 0.1);
    assert_int_equal(s.q_period, 16384);
    model_spec_free(&s);
    load(
        "Ministral3ForCausalLM",
        "{\"rope_parameters\": {\"rope_type\": \"yarn\", \"factor\": 4, \"original_max_position_embeddings\": 64}, \"sliding_window\": 16}",
        &s);
    assert_true(s.q_beta == 0);
    assert_int_equal(s.context, 256);
    assert_int_equal(s.window, 16);
    model_spec_free(&s);
    refused("Ministral3ForCausalLM",
            "{\"rope_parameters\": {\"rope_type\": \"default\", \"llama_4_scaling_beta\": 0.1}}",
            "original_max_position_embeddings is missing beside llama_4_scaling_beta");
    refused("Ministral3ForCausalLM",
            "{\"rope_parameters\": {\"rope_type\": \"default\", \"llama_4_scaling_beta\": \"x\"}}",
            "llama_4_scaling_beta is \"x\"");
    refused("MistralForCausalLM", "{\"rope_parameters\": {\"rope_type\": \"default\", \"llama_4_scaling_beta\": 0.1}}",
            "llama_4_scaling_beta of the RoPE parameters is 0.1");
}

static void a_part_of_each_head_rotates_where_the_family_says_so(void **state)
{
    (void)state;
    struct model_spec s;
    load("Phi3ForCausalLM", "{\"partial_rotary_factor\": 0.75, \"rope_scaling\": null}", &s);
    assert_int_equal(s.rot, 12);
    assert_int_equal(s.context, 4096);
    assert_int_equal(s.window, 0);
    model_spec_free(&s);
    load("Phi3ForCausalLM", "{}", &s);
    assert_int_equal(s.rot, 16);
    model_spec_free(&s);
    refused("Phi3ForCausalLM", "{\"partial_rotary_factor\": 0.2}",
            "partial_rotary_factor 0.2 makes 3 of 16 dimensions");
    refused("Phi3ForCausalLM", "{\"partial_rotary_factor\": 0}", "partial_rotary_factor 0 makes 0 of 16 dimensions");
    static const char *const types[] = { "linear", "dynamic", "llama3" };
    for (size_t i = 0; i < ARRAY_N(types); i++) {
        char over[200], says[100];
        snprintf(over, sizeof over, "{\"rope_scaling\": {\"type\": \"%s\", \"factor\": 4}}", types[i]);
        snprintf(says, sizeof says, "rope_type is \"%s\", supported of Phi3ForCausalLM are default and longrope",
                 types[i]);
        refused("Phi3ForCausalLM", over, says);
    }
}

static void half_of_each_head_of_glm_4_rotates_and_its_ends_are_three(void **state)
{
    (void)state;
    static const char *const archs[] = { "Glm4ForCausalLM", "GlmForCausalLM" };
    for (int i = 0; i < 2; i++) {
        struct model_spec s;
        load(archs[i], "{\"vocab_size\": 151552}", &s);
        assert_int_equal(s.rot, s.head_dim / 2);
        assert_true(s.qkv_bias && !s.o_bias && !s.mlp_bias && !s.tied);
        assert_true(s.rms_eps == 1.5625e-7f);
        assert_int_equal(s.n_eos, 3);
        assert_int_equal(s.eos_id[0], 151329);
        assert_int_equal(s.eos_id[1], 151336);
        assert_int_equal(s.eos_id[2], 151338);
        model_spec_free(&s);
        load(archs[i], "{\"eos_token_id\": 7, \"attention_bias\": false, \"partial_rotary_factor\": 0.25}", &s);
        assert_int_equal(s.rot, s.head_dim / 4);
        assert_false(s.qkv_bias);
        assert_int_equal(s.n_eos, 1);
        model_spec_free(&s);
        refused(archs[i], "{\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4}}", "supported of Glm");
    }
}

static void moe_layers_follow_the_rule_of_the_family(void **state)
{
    (void)state;
    struct model_spec s;
    load("Qwen3MoeForCausalLM", "{\"num_experts\": 8, \"num_experts_per_tok\": 2, \"decoder_sparse_step\": 2}", &s);
    for (int l = 0; l < 4; l++) assert_int_equal(s.layer_moe[l], l & 1);
    model_spec_free(&s);
    load("Qwen3MoeForCausalLM", "{\"num_experts\": 8, \"num_experts_per_tok\": 2, \"mlp_only_layers\": [0, 2]}", &s);
    for (int l = 0; l < 4; l++) assert_int_equal(s.layer_moe[l], l & 1);
    model_spec_free(&s);
    load("Qwen3MoeForCausalLM", "{\"num_local_experts\": 0}", &s);
    for (int l = 0; l < 4; l++) assert_int_equal(s.layer_moe[l], 0);
    model_spec_free(&s);
    refused("Qwen3MoeForCausalLM", "{\"num_experts\": 8, \"num_experts_per_tok\": 9}",
            "num_experts_per_tok is 9, at most num_experts, which is 8");
    refused("Qwen3MoeForCausalLM", "{\"mlp_only_layers\": [4]}", "mlp_only_layers[0] is 4");
    refused("Qwen3MoeForCausalLM", "{\"mlp_only_layers\": 1}", "mlp_only_layers");
    refused("Qwen3MoeForCausalLM", "{\"decoder_sparse_step\": 0}", "decoder_sparse_step");
}

/* D9 */
static void sizes_that_cannot_be_are_refused_by_name(void **state)
{
    (void)state;
    static const char *const keys[] = {
        "hidden_size", "num_hidden_layers", "num_attention_heads",    "num_key_value_heads", "intermediate_size",
        "vocab_size",  "head_dim",          "max_position_embeddings"
    };
    static const char *const values[] = { "0", "-1", "1000000000000", "1e300", "1.5", "\"64\"", "[]", "true" };
    char                     over[128];
    for (size_t k = 0; k < ARRAY_N(keys); k++)
        for (size_t v = 0; v < ARRAY_N(values); v++) {
            snprintf(over, sizeof over, "{\"%s\": %s}", keys[k], values[v]);
            refused("LlamaForCausalLM", over, keys[k]);
        }
    for (size_t k = 0; k < 6; k++) {
        if (k == 3) continue; /* may be absent */
        snprintf(over, sizeof over, "{\"%s\": \"-\"}", keys[k]);
        refused("LlamaForCausalLM", over, keys[k]);
    }
    refused("LlamaForCausalLM", "{\"num_attention_heads\": 6}", "num_attention_heads is 6, must divide hidden_size");
    refused("LlamaForCausalLM", "{\"num_key_value_heads\": 3}",
            "num_key_value_heads is 3, must divide num_attention_heads");
    refused("LlamaForCausalLM", "{\"head_dim\": 15}", "head_dim is 15, must be even");
    refused("LlamaForCausalLM", "{\"rms_norm_eps\": -1}", "rms_norm_eps");
    refused("LlamaForCausalLM", "{\"rms_norm_eps\": \"small\"}", "rms_norm_eps");
    refused("LlamaForCausalLM", "{\"num_attention_heads\": 65536, \"num_key_value_heads\": 1, \"head_dim\": 4096}",
            "num_attention_heads x head_dim");
}

#define COMPRESSED(format, weights)                                                              \
    "{\"quantization_config\": {\"quant_method\": \"compressed-tensors\", \"format\": \"" format \
    "\", \"config_groups\": {\"group_0\": "                                                      \
    "{\"targets\": [\"Linear\"], \"weights\": {" weights "}}}}}"

static void an_unsupported_value_in_config_json_is_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *over, *says;
    } cases[] = {
        { "{\"hidden_act\": \"xielu\"}", "hidden_act is \"xielu\", supported are silu, gelu (also gelu_new" },
        { "{\"hidden_act\": 3}", "hidden_act is 3, supported are silu" },
        { "{\"rope_scaling\": {\"rope_type\": \"ntk\", \"factor\": 2}}",
          "rope_type is \"ntk\", supported are default, linear, llama3, yarn and dynamic" },
        { "{\"rope_scaling\": {\"rope_type\": \"dynamic\"}}", "factor of rope type dynamic is missing" },
        { "{\"rope_scaling\": {\"type\": \"longrope\", \"factor\": 2}}", "rope_type is \"longrope\"" },
        { "{\"rope_scaling\": {\"rope_type\": \"default\", \"mrope_section\": [1, 2, 3]}}", "mrope_section" },
        { "{\"rope_scaling\": {\"rope_type\": \"linear\"}}", "factor" },
        { "{\"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 0}}", "factor is 0" },
        { "{\"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 1e6, \"x\": 1}, \"max_position_embeddings\": 100000}",
          "context" },
        { "{\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8}}", "low_freq_factor" },
        { "{\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 5, \"high_freq_factor\": 4}}",
          "high_freq_factor is 4" },
        { "{\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 8, \"truncate\": 1}}", "truncate" },
        { "{\"rope_scaling\": {\"rope_type\": 3}}", "rope_type" },
        { "{\"rope_scaling\": \"linear\"}", "rope_scaling is \"linear\", must be an object" },
        { "{\"rope_parameters\": [1]}", "rope_parameters" },
        { "{\"rope_theta\": 0}", "rope_theta is 0" },
        { "{\"rope_theta\": 1}", "rope_theta is 1" },
        { "{\"rope_theta\": \"NaN\"}", "rope_theta" },
        { "{\"partial_rotary_factor\": 2}", "partial_rotary_factor" },
        { "{\"partial_rotary_factor\": 0.5, \"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 2}}",
          "partial_rotary_factor is 0.5 beside a rope_type other than default: LlamaForCausalLM rotates whole heads" },
        { "{\"rope_parameters\": {\"rope_type\": \"dynamic\", \"factor\": 2, \"partial_rotary_factor\": 0.25}}",
          "partial_rotary_factor is 0.25 beside a rope_type other than default" },
        { "{\"rope_interleave\": true}", "rope_interleave" },
        { "{\"quantization_config\": {\"quant_method\": \"hqq\"}}",
          "quant_method is \"hqq\", supported are fp8, compressed-tensors" },
        { "{\"quantization_config\": {\"quant_method\": \"mxfp4\"}}",
          "quant_method is \"mxfp4\", which is not supported for LlamaForCausalLM" },
        { "{\"swiglu_limit\": 7.0}", "swiglu_limit is 7.0, which LlamaForCausalLM does not support" },
        { "{\"quantization_config\": {\"bits\": 4}}", "quantization_config.quant_method" },
        { "{\"quantization_config\": {\"quant_method\": \"gptq\"}}", "quantization_config.bits" },
        { "{\"quantization_config\": {\"quant_method\": \"gptq\", \"bits\": 8, \"group_size\": 128}}",
          "quantization_config.bits is 8, supported is 4" },
        { "{\"quantization_config\": {\"quant_method\": \"gptq\", \"bits\": 4, \"group_size\": 100}}",
          "group_size is 100, supported are 32" },
        { "{\"quantization_config\": {\"quant_method\": \"gptq\", \"bits\": 4, \"group_size\": 128, \"desc_act\": \"yes\"}}",
          "desc_act is \"yes\"" },
        { "{\"quantization_config\": {\"quant_method\": \"gptq\", \"bits\": 4, \"group_size\": 128, \"dynamic\": {\"-:.*down.*\": {}, "
          "\"+:.*up.*\": {\"bits\": 8}}}}",
          "dynamic has settings of its own for \"+:.*up.*\"" },
        { "{\"quantization_config\": {\"quant_method\": \"gptq\", \"bits\": 4, \"group_size\": 128, \"checkpoint_format\": \"marlin\"}}",
          "checkpoint_format is \"marlin\"" },
        { "{\"quantization_config\": {\"quant_method\": \"awq\", \"bits\": 4, \"group_size\": 128, \"version\": \"gemv\"}}",
          "version is \"gemv\"" },
        { "{\"quantization_config\": {\"quant_method\": \"fp8\", \"fmt\": \"e5m2\"}}",
          "fmt is \"e5m2\", supported is e4m3" },
        { "{\"quantization_config\": {\"quant_method\": \"fp8\", \"weight_block_size\": [128]}}",
          "weight_block_size is [128]" },
        { "{\"quantization_config\": {\"quant_method\": \"compressed-tensors\", \"format\": \"pack-quantized\"}}",
          "config_groups is missing, must hold a group with weights" },
        { COMPRESSED("mxfp4-pack-quantized", "\"num_bits\": 4, \"type\": \"float\""),
          "format is \"mxfp4-pack-quantized\", supported of compressed-tensors are float-quantized, int-quantized, "
          "pack-quantized and nvfp4-pack-quantized" },
        { COMPRESSED("pack-quantized", "\"num_bits\": 3, \"type\": \"int\", \"strategy\": \"channel\""),
          "supported of pack-quantized are 4-bit whole numbers, and 8-bit symmetric ones" },
        { COMPRESSED("pack-quantized",
                     "\"num_bits\": 8, \"type\": \"int\", \"strategy\": \"channel\", \"symmetric\": false"),
          "supported of pack-quantized are 4-bit whole numbers, and 8-bit symmetric ones" },
        { COMPRESSED("int-quantized",
                     "\"num_bits\": 8, \"type\": \"int\", \"strategy\": \"channel\", \"symmetric\": false"),
          "supported of int-quantized are 8-bit whole numbers, symmetric" },
        { COMPRESSED("int-quantized", "\"num_bits\": 8, \"type\": \"int\", \"strategy\": \"block\""),
          "strategy is \"block\", supported are tensor, channel and group" },
        { COMPRESSED("pack-quantized",
                     "\"num_bits\": 4, \"type\": \"int\", \"strategy\": \"group\", \"group_size\": 48"),
          "group_size is 48, supported are 32" },
        { "{\"quantization_config\": {\"quant_method\": \"compressed-tensors\", \"format\": \"float-quantized\", \"config_groups\": "
          "{\"a\": {\"weights\": {\"num_bits\": 8}}, \"b\": {\"weights\": {\"num_bits\": 4}}}}}",
          "groups whose weights differ (b)" },
        { "{\"attention_bias\": 1}", "attention_bias is 1, must be true or false" },
        { "{\"tie_word_embeddings\": \"yes\"}", "tie_word_embeddings" },
        { "{\"torch_dtype\": \"float64\"}", "torch_dtype is \"float64\", supported are bfloat16, float16 and float32" },
        { "{\"eos_token_id\": \"</s>\"}", "eos_token_id" },
        { "{\"eos_token_id\": [2, \"x\"]}", "eos_token_id" },
        { "{\"eos_token_id\": [1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]}", "eos_token_id has more than 16 ids" },
    };
    for (size_t i = 0; i < ARRAY_N(cases); i++) refused("LlamaForCausalLM", cases[i].over, cases[i].says);
}

static void the_error_for_an_unknown_architecture_lists_the_supported_ones(void **state)
{
    (void)state;
    refused(
        "FooForCausalLM", "{}",
        "architectures[0] is \"FooForCausalLM\", supported are LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM, MixtralForCausalLM, Qwen3MoeForCausalLM");
    refused(
        "FooForCausalLM", "{\"auto_map\": {\"AutoModelForCausalLM\": \"modeling_foo.FooForCausalLM\"}}",
        "\"FooForCausalLM\" (auto_map names code that comes with the checkpoint, which is never run), supported are");
    refused("x", "{\"architectures\": \"-\"}", "architectures is missing and model_type is missing, supported are");
    refused("x", "{\"architectures\": [], \"model_type\": \"gpt2\"}", "model_type is \"gpt2\"");
    refused("x", "{\"architectures\": 7}", "supported are");
    refused("x", "{\"text_config\": {\"model_type\": \"gemma9_text\"}}", "architectures[0] is \"x\"");
    struct model_spec s;
    load("LlamaForCausalLM", "{\"auto_map\": {\"AutoModelForCausalLM\": \"modeling_foo.FooForCausalLM\"}}",
         &s); /* known without it */
    model_spec_free(&s);
    load("x", "{\"architectures\": \"-\", \"model_type\": \"qwen2\"}", &s);
    assert_string_equal(s.family->arch, "Qwen2ForCausalLM");
    assert_true(s.qkv_bias);
    assert_false(s.o_bias);
    model_spec_free(&s);
}

static void every_row_is_found_by_its_names_and_says_what_it_serves(void **state)
{
    (void)state;
    const struct model_family *f;
    uint32_t                   n = 0;
    for (; (f = model_family_at(n)); n++) {
        assert_ptr_equal(model_family_find(f->arch, NULL), f);
        const struct model_family *typed = model_family_find(NULL, f->model_type); /* of two that share it the first */
        assert_ptr_equal(model_family_facing(typed, f->mix == MIX_MUTUAL), f);
        if (!f->served || !*f->served || strchr(f->served, ':')) fail_msg("%s does not say what it serves", f->arch);
        if (!f->variants || !*f->variants) fail_msg("%s does not say which variants it serves", f->arch);
    }
    assert_true(n > 10);
    assert_null(model_family_at(UINT32_MAX));
}

static void the_text_part_of_a_wrapper_is_read(void **state)
{
    (void)state;
    struct model_spec s;
    load(
        "Mistral3ForConditionalGeneration",
        "{\"hidden_size\": 7, \"eos_token_id\": 9, \"tie_word_embeddings\": true, \"text_config\": {\"model_type\": \"mistral\", \"hidden_size\": 128, \"num_hidden_layers\": 2,"
        "\"num_attention_heads\": 8, \"num_key_value_heads\": 4, \"intermediate_size\": 32, \"vocab_size\": 10, \"sliding_window\": null}}",
        &s);
    assert_true(s.wrapper);
    assert_string_equal(s.family->arch, "MistralForCausalLM");
    assert_int_equal(s.hidden, 128);
    assert_true(s.tied);
    assert_int_equal(s.eos_id[0], 9);
    assert_int_equal(s.dtype, DT_BF16);
    model_spec_free(&s);
}

#define VL_TEXT                                                                                                      \
    "{\"model_type\": \"qwen3_vl_text\", \"hidden_size\": 128, \"num_hidden_layers\": 2, \"intermediate_size\": 32," \
    "\"num_attention_heads\": 32, \"vocab_size\": 10, \"rope_scaling\": {\"rope_type\": \"default\", \"mrope_section\": [24, 20, 20]}}"
static void a_row_may_be_the_text_part_of_one_wrapper(void **state)
{
    (void)state;
    struct model_spec s;
    load("Qwen3VLForConditionalGeneration", "{\"text_config\": " VL_TEXT "}", &s);
    assert_true(s.wrapper);
    assert_int_equal(s.hidden, 128);
    assert_int_equal(s.head_dim, 128);
    assert_int_equal(s.n_kv_head, 32);
    assert_int_equal(s.context, 128000);
    assert_true(s.rope_theta == 5e5);
    model_spec_free(&s);
    load("SomeOtherWrapper", "{\"text_config\": " VL_TEXT "}", &s); /* found by model_type */
    assert_true(s.wrapper);
    assert_string_equal(s.family->model_type, "qwen3_vl_text");
    model_spec_free(&s);
    refused("Qwen3VLForConditionalGeneration", "{}", "text_config is missing, must be an object");
    refused("Qwen3VLForConditionalGeneration", "{\"text_config\": 3}", "text_config is 3, must be an object");
    refused("Qwen3ForCausalLM", "{\"rope_scaling\": {\"rope_type\": \"default\", \"mrope_section\": [1, 2, 3]}}",
            "mrope_section");
}

static void the_text_part_of_qwen3_vl_moe_has_the_defaults_of_its_class(void **state)
{
    (void)state;
    static const char text[] =
        "{\"text_config\": {\"model_type\": \"qwen3_vl_moe_text\", \"hidden_size\": 128, \"num_hidden_layers\": 3, "
        "\"intermediate_size\": 32, \"num_attention_heads\": 32, \"vocab_size\": 10, \"mlp_only_layers\": [1], "
        "\"norm_topk_prob\": false}}";
    struct model_spec s;
    load("Qwen3VLMoeForConditionalGeneration", text, &s);
    assert_true(s.wrapper && s.qk_norm && s.norm_topk); /* whatever norm_topk_prob says */
    assert_int_equal(s.n_expert, 60);
    assert_int_equal(s.top_k_expert, 4);
    assert_int_equal(s.moe_inter, 1408);
    assert_int_equal(s.n_kv_head, 16);
    assert_int_equal(s.head_dim, 4);
    assert_int_equal(s.context, 128000);
    assert_true(s.layer_moe[0] && !s.layer_moe[1] && s.layer_moe[2]);
    model_spec_free(&s);
    load("SomeOtherWrapper", text, &s);
    assert_string_equal(s.family->arch, "Qwen3VLMoeForConditionalGeneration");
    model_spec_free(&s);
    refused("Qwen3VLMoeForConditionalGeneration", "{}", "text_config is missing, must be an object");
}

/* As LlavaForConditionalGeneration and its kind: the head is the wrapper's, so is the flag. */
static void the_flag_of_a_wrapper_goes_before_that_of_its_text_part(void **state)
{
    (void)state;
    static const struct {
        const char *outer, *inner;
        bool        tied;
    } cases[] = { { "false", "true", false },  { "true", "false", true },  { "\"-\"", "true", true },
                  { "\"-\"", "false", false }, { "false", "null", false }, { "\"-\"", "null", true } };
    for (size_t i = 0; i < ARRAY_N(cases); i++) {
        char              over[512];
        struct model_spec s;
        snprintf(
            over, sizeof over,
            "{\"tie_word_embeddings\": %s, \"text_config\": {\"model_type\": \"mistral\", \"hidden_size\": 128, "
            "\"num_hidden_layers\": 2, \"num_attention_heads\": 8, \"num_key_value_heads\": 4, \"intermediate_size\": 32, "
            "\"vocab_size\": 10, \"tie_word_embeddings\": %s}}",
            cases[i].outer, cases[i].inner);
        load("Mistral3ForConditionalGeneration", over, &s);
        if (s.tied != cases[i].tied) fail_msg("%s: tied is %d", over, s.tied);
        model_spec_free(&s);
    }
}

/* With the default type transformers rotates whole heads, whatever the factor; a factor of 1 is none with the other
 * types too. */
static void whole_heads_rotate_whatever_the_factor(void **state)
{
    (void)state;
    static const char *const archs[] = { "LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM",
                                         "Qwen3ForCausalLM", "MixtralForCausalLM", "Qwen3MoeForCausalLM" };
    static const char *const over[] = {
        "{\"partial_rotary_factor\": 0.5, \"head_dim\": 16}",
        "{\"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 9, "
        "\"partial_rotary_factor\": 0.25}, \"head_dim\": 16}",
        "{\"rotary_dim\": 8, \"rotary_pct\": 0.5, \"head_dim\": 16}",
        "{\"partial_rotary_factor\": 1.0, \"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 2}, "
        "\"head_dim\": 16}"
    };
    for (size_t i = 0; i < ARRAY_N(archs); i++)
        for (size_t k = 0; k < ARRAY_N(over); k++) {
            struct model_spec s;
            load(archs[i], over[k], &s);
            assert_int_equal(s.rot, 16);
            model_spec_free(&s);
        }
}

static void generation_config_adds_stop_ids_and_defaults(void **state)
{
    (void)state;
    struct model_spec s;
    assert_int_equal(
        load2(
            "LlamaForCausalLM", "{\"eos_token_id\": [9, 11]}",
            "{\"eos_token_id\": [11, 7, 5000, -1], \"temperature\": 0.6, \"top_p\": 0.9, \"top_k\": 20, \"min_p\": 0.1, \"repetition_penalty\": 1.05,"
            "\"max_new_tokens\": 512, \"do_sample\": false}",
            &s),
        ST_OK);
    assert_int_equal(s.n_eos, 3);
    assert_int_equal(s.eos_id[0], 9);
    assert_int_equal(s.eos_id[1], 11);
    assert_int_equal(s.eos_id[2], 7);
    assert_true(s.gen_temperature == 0.6f && s.gen_top_p == 0.9f && s.gen_min_p == 0.1f && s.gen_repetition == 1.05f);
    assert_int_equal(s.gen_top_k, 20);
    assert_int_equal(s.gen_max_new_tokens, 512);
    model_spec_free(&s);

    assert_int_equal(
        load2("LlamaForCausalLM", "{\"eos_token_id\": null}", "{\"temperature\": null, \"top_k\": null}", &s), ST_OK);
    assert_int_equal(s.n_eos, 0);
    assert_true(isnan(s.gen_temperature));
    model_spec_free(&s);

    static const char *const bad[] = { "{\"temperature\": -1}",  "{\"top_p\": 2}", "{\"top_k\": \"x\"}", "[]", "{",
                                       "{\"max_new_tokens\": 0}" };
    for (size_t i = 0; i < ARRAY_N(bad); i++) {
        assert_int_equal(load2("LlamaForCausalLM", "{}", bad[i], &s), ST_CONFIG);
        assert_int_equal(strncmp(err, "generation_config.json: ", 24), 0);
    }
}

static enum status load_text(const char *text)
{
    struct memory_source m = { .src.n_embed = 0 };
    struct model_spec    s;
    if (text) memory_add_text(&m, "config.json", text);
    enum status st = model_spec_load(&m.src, &s, err, sizeof err);
    memory_free(&m);
    return st;
}

/* The class of a family has an id of its own for files that name none; what generation_config.json names is added. */
static void ends_of_families_are_those_of_class_and_generation_config(void **state)
{
    (void)state;
    static const struct {
        const char *arch, *config, *generation;
        uint32_t    n, id[3];
    } cases[] = {
        { "Gemma2ForCausalLM", "{}", "{\"eos_token_id\": [1, 107]}", 2, { 1, 107 } },
        { "Gemma3ForCausalLM", "{}", "{\"eos_token_id\": [1, 106]}", 2, { 1, 106 } },
        { "Phi3ForCausalLM",
          "{\"vocab_size\": 32064}",
          "{\"eos_token_id\": [32000, 32001, 32007]}",
          3,
          { 32000, 32001, 32007 } },
        { "Glm4ForCausalLM",
          "{\"vocab_size\": 151552, \"eos_token_id\": [151329, 151336]}",
          "{\"eos_token_id\": [151329, 151336, 151338]}",
          3,
          { 151329, 151336, 151338 } },
        { "Cohere2ForCausalLM", "{\"vocab_size\": 256000}", "{}", 1, { 255001 } },
        { "Starcoder2ForCausalLM", "{\"vocab_size\": 51200, \"eos_token_id\": 0}", "{\"eos_token_id\": 0}", 1, { 0 } },
        { "Olmo2ForCausalLM",
          "{\"vocab_size\": 100352, \"eos_token_id\": 100257}",
          "{\"eos_token_id\": 100265}",
          2,
          { 100257, 100265 } },
        { "Exaone4ForCausalLM", "{\"vocab_size\": 400}", "{\"eos_token_id\": 361}", 2, { 2, 361 } },
        { "GptOssForCausalLM",
          "{\"vocab_size\": 201088, \"num_local_experts\": 4, \"eos_token_id\": 200002}",
          "{\"eos_token_id\": [200002, 199999, 200012]}",
          3,
          { 200002, 199999, 200012 } },
        { "Gemma4ForCausalLM", "{\"eos_token_id\": [1, 106]}", "{\"eos_token_id\": [1, 106, 50]}", 3, { 1, 106, 50 } },
        { "Llama4ForCausalLM",
          "{\"vocab_size\": 202048, \"eos_token_id\": [200001, 200007, 200008]}",
          "{\"eos_token_id\": [200001, 200007, 200008]}",
          3,
          { 200001, 200007, 200008 } },
    };
    for (size_t i = 0; i < ARRAY_N(cases); i++) {
        struct model_spec s;
        if (load2(cases[i].arch, cases[i].config, cases[i].generation, &s)) fail_msg("%s: %s", cases[i].arch, err);
        if (s.n_eos != cases[i].n || memcmp(s.eos_id, cases[i].id, s.n_eos * sizeof *s.eos_id) != 0)
            fail_msg("%s: %u ids, the first is %u", cases[i].arch, s.n_eos, s.eos_id[0]);
        model_spec_free(&s);
    }
}

static void a_file_that_is_no_json_says_where(void **state)
{
    (void)state;
    assert_int_equal(load_text(NULL), ST_NOT_FOUND);
    assert_non_null(strstr(err, "config.json: no such file"));
    assert_int_equal(load_text("{\"architectures\": [\"LlamaForCausalLM\"], \"rope_theta\": NaN}"), ST_CONFIG);
    assert_non_null(strstr(err, "near key rope_theta"));
    assert_int_equal(load_text("{\"rms_norm_eps\": 1e999}"), ST_CONFIG);
    assert_non_null(strstr(err, "near key rms_norm_eps"));
    assert_int_equal(load_text("[]"), ST_CONFIG);
    assert_non_null(strstr(err, "not a JSON object"));
    assert_int_equal(load_text(""), ST_CONFIG);
    assert_int_equal(load_text("version https://git-lfs.github.com/spec/v1\n"), ST_CONFIG);
    assert_non_null(strstr(err, "git-lfs pointer"));
}

/* a config.json that does not name its type: that of the embedding */
static void the_type_of_the_weights_is_looked_up_where_the_config_is_silent(void **state)
{
    (void)state;
    struct memory_source m = { .src.n_embed = 0 };
    struct model_spec    s;
    memory_add_text(
        &m, "config.json",
        "{\"architectures\": [\"LlamaForCausalLM\"], \"hidden_size\": 2, \"num_hidden_layers\": 1, \"num_attention_heads\": 1, \"intermediate_size\": 2, \"vocab_size\": 2}");
    memory_add_safetensors(&m, "model.safetensors",
                           "{\"model.embed_tokens.weight\":{\"dtype\":\"F16\",\"shape\":[2,2],\"data_offsets\":[0,8]}}",
                           8);
    assert_int_equal(model_spec_load(&m.src, &s, err, sizeof err), ST_OK);
    assert_int_equal(s.dtype, DT_F16);
    model_spec_free(&s);
    memory_free(&m);
}

int main(void)
{
    log_init(LOG_LEVEL_ERROR, open("/dev/null", O_WRONLY | O_CLOEXEC), false);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(absent_keys_mean_what_each_family_of_transformers_means),
        cmocka_unit_test(each_family_has_its_own_keys_of_biases),
        cmocka_unit_test(both_generations_of_keys_are_read),
        cmocka_unit_test(the_context_follows_from_the_rope_scaling),
        cmocka_unit_test(sliding_layers_follow_the_rule_of_the_family),
        cmocka_unit_test(layers_without_rotation_are_those_of_the_list_or_of_the_interval),
        cmocka_unit_test(queries_grow_where_the_family_says_so),
        cmocka_unit_test(a_part_of_each_head_rotates_where_the_family_says_so),
        cmocka_unit_test(half_of_each_head_of_glm_4_rotates_and_its_ends_are_three),
        cmocka_unit_test(moe_layers_follow_the_rule_of_the_family),
        cmocka_unit_test(sizes_that_cannot_be_are_refused_by_name),
        cmocka_unit_test(an_unsupported_value_in_config_json_is_refused_by_name),
        cmocka_unit_test(the_error_for_an_unknown_architecture_lists_the_supported_ones),
        cmocka_unit_test(every_row_is_found_by_its_names_and_says_what_it_serves),
        cmocka_unit_test(the_text_part_of_a_wrapper_is_read),
        cmocka_unit_test(a_row_may_be_the_text_part_of_one_wrapper),
        cmocka_unit_test(the_text_part_of_qwen3_vl_moe_has_the_defaults_of_its_class),
        cmocka_unit_test(the_flag_of_a_wrapper_goes_before_that_of_its_text_part),
        cmocka_unit_test(whole_heads_rotate_whatever_the_factor),
        cmocka_unit_test(generation_config_adds_stop_ids_and_defaults),
        cmocka_unit_test(ends_of_families_are_those_of_class_and_generation_config),
        cmocka_unit_test(a_file_that_is_no_json_says_where),
        cmocka_unit_test(the_type_of_the_weights_is_looked_up_where_the_config_is_silent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
