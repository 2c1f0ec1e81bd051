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
        { "Ernie4_5_MoeForCausalLM", "{\"use_bias\": true}", "use_bias is true, which is not supported beside shared" },
        { "Ernie4_5_MoeForCausalLM", "{\"moe_num_experts\": [64, 64]}", "moe_num_experts is" },
        { "Ernie4_5_MoeForCausalLM", "{\"moe_norm_min\": -1}", "moe_norm_min is -1" },
        { "Ernie4_5_MoeForCausalLM", "{\"moe_k\": 65}", "moe_k is 65, at most num_experts" },
        { "Qwen2MoeForCausalLM", "{\"shared_expert_intermediate_size\": 0}", "shared_expert_intermediate_size is 0" },
        { "Qwen2MoeForCausalLM", "{\"scoring_func\": \"sigmoid\"}", "scoring_func is \"sigmoid\", supported of" },
    };
    for (size_t i = 0; i < ARRAY_N(cases); i++) refused(cases[i].arch, cases[i].over, cases[i].says);
}

int main(void)
{
    log_init(LOG_LEVEL_ERROR, open("/dev/null", O_WRONLY | O_CLOEXEC), false);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(absent_keys_mean_what_each_family_of_transformers_means),
        cmocka_unit_test(routers_that_are_not_served_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
