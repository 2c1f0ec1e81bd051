/* What is read from a config.json about routers and shared experts, and which values are refused. */
#include "base/log.h"
#include "engine/model/model.h"
#include "unit/engine/hf_load.h"
#include <fcntl.h>

static void absent_keys_mean_what_each_family_of_transformers_means(void **state)
{
    (void)state;
    struct model_spec s;
    load("Qwen2MoeForCausalLM", "{\"num_key_value_heads\": \"-\", \"num_attention_heads\": 16}", &s);
    assert_int_equal(s.n_kv_head, 16);
    assert_int_equal(s.n_expert, 60);
    assert_int_equal(s.top_k_expert, 4);
    assert_int_equal(s.moe_inter, 1408);
    assert_int_equal(s.shared_inter, 5632);
    assert_int_equal(s.window, 0);
    assert_true(s.qkv_bias);
    assert_false(s.norm_topk || s.o_bias || s.router_bias);
    model_spec_free(&s);

    load("Qwen2MoeForCausalLM", "{\"use_sliding_window\": true, \"max_window_layers\": 3}", &s);
    assert_memory_equal(s.layer_windowed, "\1\0\1\0", 4);
    model_spec_free(&s);

    load("Glm4MoeForCausalLM", "{}", &s);
    assert_int_equal(s.n_expert, 128);
    assert_int_equal(s.top_k_expert, 8);
    assert_int_equal(s.shared_inter, 1408);
    assert_int_equal(s.n_extra_layer, 1);
    assert_int_equal(s.rot, 8);
    assert_int_equal(s.n_group, 0);
    assert_true(s.norm_topk && s.router_bias && s.rms_eps == 1e-5f);
    assert_false(s.qk_norm || s.qkv_bias || s.o_bias);
    assert_memory_equal(s.layer_moe, "\0\1\1\1", 4);
    model_spec_free(&s);

    load("Glm4MoeForCausalLM", "{\"attention_bias\": true, \"use_qk_norm\": true, \"num_nextn_predict_layers\": 0}",
         &s);
    assert_true(s.qkv_bias && s.qk_norm);
    assert_false(s.o_bias || s.n_extra_layer);
    model_spec_free(&s);

    load("Ernie4_5_MoeForCausalLM", "{\"moe_layer_end_index\": 2, \"moe_layer_interval\": 2}", &s);
    assert_int_equal(s.n_expert, 64);
    assert_int_equal(s.top_k_expert, 6);
    assert_int_equal(s.shared_inter, 3072);
    assert_true(s.tied && s.norm_topk && s.route_sum_min == 1e-12f && s.rope_theta == 5e5);
    assert_memory_equal(s.layer_moe, "\0\1\0\0", 4);
    model_spec_free(&s);

    load("GraniteMoeForCausalLM", "{\"num_key_value_heads\": \"-\"}", &s);
    assert_int_equal(s.n_expert, 8);
    assert_int_equal(s.top_k_expert, 2);
    assert_int_equal(s.moe_inter, 96);
    assert_int_equal(s.n_kv_head, 4);
    assert_true(s.norm_topk && s.attn_scale == 1 && s.rms_eps == 1e-6f);
    model_spec_free(&s);

    load("OlmoeForCausalLM", "{\"num_key_value_heads\": \"-\", \"vocab_size\": 50304}", &s);
    assert_int_equal(s.n_expert, 64);
    assert_int_equal(s.moe_inter, 96);
    assert_int_equal(s.n_kv_head, 4);
    assert_true(s.qk_norm && s.rms_eps == 1e-5f && s.eos_id[0] == 50279);
    assert_false(s.norm_topk || s.router_bias || s.qkv_bias || s.o_bias);
    model_spec_free(&s);

    load("Dots1ForCausalLM", "{\"n_routed_experts\": 8, \"num_experts_per_tok\": 2, \"max_window_layers\": 2}", &s);
    assert_int_equal(s.shared_inter, 0);
    assert_true(s.qk_norm && s.router_bias && !s.norm_topk && s.window == 4096);
    assert_memory_equal(s.layer_windowed, "\0\0\1\1", 4);
    assert_memory_equal(s.layer_moe, "\1\1\1\1", 4);
    model_spec_free(&s);

    load("SolarOpenForCausalLM", "{\"intermediate_size\": \"-\", \"attention_bias\": true}", &s);
    assert_int_equal(s.n_expert, 128);
    assert_int_equal(s.shared_inter, 1280);
    assert_int_equal(s.head_dim, 128);
    assert_true(s.norm_topk && s.router_bias && s.qkv_bias && s.rope_theta == 1e6);
    assert_false(s.qk_norm || s.o_bias);
    assert_memory_equal(s.layer_moe, "\1\1\1\1", 4);
    model_spec_free(&s);

    load("ExaoneMoeForCausalLM", "{}", &s);
    assert_int_equal(s.n_expert, 64);
    assert_int_equal(s.shared_inter, 1024);
    assert_true(s.norm_topk && s.router_bias && s.qk_norm && s.route_scale == 2.5f && s.eos_id[0] == 53);
    assert_memory_equal(s.layer_moe, "\0\1\1\1", 4);
    assert_memory_equal(s.layer_windowed, "\1\1\1\0", 4);
    model_spec_free(&s);

    /* As published: the pattern's letters stand beside the list that counts. */
    load("ExaoneMoeForCausalLM",
         "{\"mlp_layer_types\": [\"sparse\", \"dense\", \"dense\", \"sparse\"], \"sliding_window_pattern\": \"LLLG\", "
         "\"layer_types\": [\"sliding_attention\", \"full_attention\", \"sliding_attention\", \"full_attention\"]}",
         &s);
    assert_memory_equal(s.layer_moe, "\1\0\0\1", 4);
    assert_memory_equal(s.layer_windowed, "\1\0\1\0", 4);
    model_spec_free(&s);

    load("MellumForCausalLM", "{}", &s);
    assert_int_equal(s.n_expert, 64);
    assert_int_equal(s.moe_inter, 896);
    assert_true(s.norm_topk && s.qk_norm && s.window == 1024 && s.rope_theta == 5e5 && s.rope_local_theta == 1e4);
    assert_memory_equal(s.layer_windowed, "\0\0\0\0", 4);
    assert_memory_equal(s.layer_moe, "\1\1\1\1", 4);
    model_spec_free(&s);

    load("MiniMaxM2ForCausalLM", "{\"rotary_dim\": 64, \"num_key_value_heads\": \"-\", \"num_attention_heads\": 8}",
         &s);
    assert_int_equal(s.n_expert, 256);
    assert_int_equal(s.top_k_expert, 8);
    assert_int_equal(s.moe_inter, 96);
    assert_int_equal(s.n_kv_head, 8);
    assert_int_equal(s.head_dim, 128);
    assert_int_equal(s.rot, 64);
    assert_int_equal(s.shared_inter, 0);
    assert_true(s.norm_topk && s.router_bias && s.qk_norm && s.rope_theta == 5e6);
    model_spec_free(&s);
}

static void llama_4_has_experts_chunks_and_two_widths(void **state)
{
    (void)state;
    struct model_spec s;
    load("Llama4ForCausalLM", "{\"num_key_value_heads\": \"-\", \"num_attention_heads\": 16}", &s);
    assert_int_equal(s.n_kv_head, 8);
    assert_int_equal(s.head_dim, 128);
    assert_int_equal(s.n_expert, 16);
    assert_int_equal(s.top_k_expert, 1);
    assert_int_equal(s.moe_inter, 96);
    assert_int_equal(s.shared_inter, 96);
    assert_int_equal(s.inter, 16384);
    assert_int_equal(s.window, 8192);
    assert_true(s.chunked && s.qk_norm_unit && s.q_nope && s.q_beta == 0.1);
    assert_int_equal(s.q_period, 8192);
    assert_int_equal(s.q_shift, 1);
    assert_false(s.tied || s.qkv_bias || s.o_bias || s.norm_topk || s.router_bias);
    assert_memory_equal(s.layer_moe, "\1\1\1\1", 4);
    assert_memory_equal(s.layer_nope, "\0\0\0\1", 4);
    assert_memory_equal(s.layer_windowed, "\1\1\1\0", 4);
    model_spec_free(&s);

    load(
        "Llama4ForCausalLM",
        "{\"no_rope_layers\": [], \"interleave_moe_layer_step\": 2, \"attn_temperature_tuning\": false, \"use_qk_norm\": "
        "false, \"attention_bias\": true, \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 16, "
        "\"low_freq_factor\": 1, \"high_freq_factor\": 1, \"original_max_position_embeddings\": 8192}}",
        &s);
    assert_memory_equal(s.layer_moe, "\0\1\0\1", 4);
    assert_memory_equal(s.layer_nope, "\0\0\0\1", 4);
    assert_true(s.q_beta == 0 && s.qkv_bias && s.o_bias && !s.qk_norm_unit);
    model_spec_free(&s);

    load("Llama4ForCausalLM",
         "{\"moe_layers\": [2], \"no_rope_layers\": [0, 1, 1, 1], \"layer_types\": [\"chunked_attention\", "
         "\"full_attention\", \"full_attention\", \"chunked_attention\"], \"attn_temperature_tuning\": 4}",
         &s);
    assert_memory_equal(s.layer_moe, "\0\0\1\0", 4);
    assert_memory_equal(s.layer_nope, "\1\0\0\0", 4);
    assert_memory_equal(s.layer_windowed, "\1\0\0\1", 4);
    assert_true(s.q_beta == 0.1);
    model_spec_free(&s);
}

/* Keys that would make another router, other groups or another shared expert. */
static void routers_that_are_not_served_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *arch, *over, *says;
    } cases[] = {
        { "Glm4MoeForCausalLM", "{\"n_group\": 3}", "n_group is 3, must divide the number of experts, which is 128" },
        { "Glm4MoeForCausalLM", "{\"n_group\": 64}", "n_group is 64" },
        { "Glm4MoeForCausalLM", "{\"n_group\": 4, \"topk_group\": 5}", "topk_group is 5, at most n_group, which is 4" },
        { "Glm4MoeForCausalLM", "{\"n_group\": 32, \"topk_group\": 1}",
          "topk_group is 1 of 32 groups: they have 4 experts, and each token takes 8" },
        { "Glm4MoeForCausalLM", "{\"routed_scaling_factor\": 0}", "routed_scaling_factor is 0" },
        { "Glm4MoeForCausalLM", "{\"scoring_func\": \"softmax\"}", "scoring_func is \"softmax\", supported of" },
        { "Glm4MoeForCausalLM", "{\"topk_method\": \"greedy\"}", "topk_method is \"greedy\", supported of" },
        { "Glm4MoeForCausalLM", "{\"n_shared_experts\": -1}", "n_shared_experts is -1" },
        { "Glm4MoeForCausalLM", "{\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 2}}",
          "rope_type is \"yarn\"" },
        { "MiniMaxM2ForCausalLM", "{\"scoring_func\": \"softmax\"}", "scoring_func is \"softmax\", supported of" },
        { "MiniMaxM2ForCausalLM", "{\"use_routing_bias\": false}", "use_routing_bias is false, supported of" },
        { "MiniMaxM2ForCausalLM", "{\"shared_intermediate_size\": 8}", "shared_intermediate_size is 8, supported of" },
        { "MiniMaxM2ForCausalLM", "{\"attn_type_list\": [1, 1, 0, 1]}", "attn_type_list[2] is 0, supported is 1" },
        { "MiniMaxM2ForCausalLM", "{\"rotary_dim\": 500}", "rotary_dim is 500" },
        { "OlmoeForCausalLM", "{\"clip_qkv\": 8.0}", "clip_qkv is 8.0, supported is null" },
        { "ExaoneMoeForCausalLM", "{\"mlp_layer_types\": [\"sparse\"]}",
          "mlp_layer_types is [\"sparse\"], must be a list" },
        { "ExaoneMoeForCausalLM", "{\"mlp_layer_types\": [\"dense\", \"sparse\", \"moe\", \"sparse\"]}",
          "mlp_layer_types[2] is \"moe\", supported are \"sparse\" and \"dense\"" },
        { "Dots1ForCausalLM", "{\"n_routed_experts\": 8, \"num_experts_per_tok\": 9}",
          "num_experts_per_tok is 9, at most" },
        { "Ernie4_5_MoeForCausalLM", "{\"use_bias\": true}", "use_bias is true, which is not supported beside shared" },
        { "Ernie4_5_MoeForCausalLM", "{\"moe_num_experts\": [64, 64]}", "moe_num_experts is" },
        { "Ernie4_5_MoeForCausalLM", "{\"moe_norm_min\": -1}", "moe_norm_min is -1" },
        { "Ernie4_5_MoeForCausalLM", "{\"moe_k\": 65}", "moe_k is 65, at most num_experts" },
        { "Qwen2MoeForCausalLM", "{\"shared_expert_intermediate_size\": 0}", "shared_expert_intermediate_size is 0" },
        { "Qwen2MoeForCausalLM", "{\"scoring_func\": \"sigmoid\"}", "scoring_func is \"sigmoid\", supported of" },
        { "Llama4ForCausalLM", "{\"attention_chunk_size\": null}", "attention_chunk_size is null, must be a whole" },
        { "Llama4ForCausalLM", "{\"attention_chunk_size\": 0}", "attention_chunk_size is 0" },
        { "Llama4ForCausalLM", "{\"floor_scale\": 0}", "floor_scale is 0" },
        { "Llama4ForCausalLM", "{\"attn_scale\": -1}", "attn_scale is -1" },
        { "Llama4ForCausalLM", "{\"attn_temperature_tuning\": \"yes\"}", "attn_temperature_tuning is \"yes\"" },
        { "Llama4ForCausalLM", "{\"use_qk_norm\": 1}", "use_qk_norm is 1, must be true or false" },
        { "Llama4ForCausalLM", "{\"moe_layers\": [4]}", "moe_layers[0] is 4, must be a layer from 0 to 3" },
        { "Llama4ForCausalLM", "{\"moe_layers\": 1}", "moe_layers is 1, must be a list of layer numbers" },
        { "Llama4ForCausalLM", "{\"intermediate_size_mlp\": 0}", "intermediate_size_mlp is 0" },
        { "Llama4ForCausalLM", "{\"num_experts_per_tok\": 17}", "num_experts_per_tok is 17, at most" },
        { "Llama4ForCausalLM",
          "{\"layer_types\": [\"sliding_attention\", \"full_attention\", \"full_attention\", "
          "\"full_attention\"]}",
          "layer_types[0] is \"sliding_attention\", supported are full_attention and chunked_attention" },
    };
    for (size_t i = 0; i < ARRAY_N(cases); i++) refused(cases[i].arch, cases[i].over, cases[i].says);
}

int main(void)
{
    log_init(LOG_LEVEL_ERROR, open("/dev/null", O_WRONLY | O_CLOEXEC), false);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(absent_keys_mean_what_each_family_of_transformers_means),
        cmocka_unit_test(llama_4_has_experts_chunks_and_two_widths),
        cmocka_unit_test(routers_that_are_not_served_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
