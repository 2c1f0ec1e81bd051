/* What is read from a config.json about layers that differ from each other, and which values are refused. */
#include "base/log.h"
#include "engine/model/model.h"
#include "unit/engine/hf_load.h"
#include <fcntl.h>

static const char arch[] = "Gemma4ForCausalLM";

static void absent_keys_mean_what_transformers_means(void **state)
{
    (void)state;
    struct model_spec s;
    load(arch, "{\"num_key_value_heads\": \"-\", \"num_hidden_layers\": 7, \"hidden_size\": 256}", &s);
    assert_int_equal(s.n_kv_head, 4);
    assert_int_equal(s.head_dim, 256);
    assert_int_equal(s.full_head_dim, 512);
    assert_int_equal(s.full_n_kv_head, 4);
    assert_int_equal(s.window, 512);
    assert_memory_equal(s.layer_windowed, "\1\1\1\1\1\0\0", 7); /* the last is full, whatever the pattern says */
    assert_int_equal(s.rot, 512);
    assert_int_equal(s.rot_local, 256);
    assert_int_equal(s.rope_turned, 64);
    assert_int_equal(s.rope_scaling, ROPE_SCALE_PROPORTIONAL);
    assert_true(s.rope_theta == 1e6 && s.rope_local_theta == 1e4);
    assert_int_equal(s.ple_dim, 256);
    assert_int_equal(s.ple_vocab, 262144);
    assert_true(s.tied && s.qk_norm && s.v_norm && s.layer_scalar && s.embed_scale == 16 && s.attn_scale == 1);
    assert_true(s.logit_cap == 0 && s.attn_cap == 0 && s.act == OP_GELU_TANH && s.n_expert == 0);
    assert_false(s.k_is_v || s.n_shared || s.moe_beside || s.qkv_bias);
    model_spec_free(&s);
}

/* Gemma 4 12B: without inputs per layer, and with a wider window. */
static void a_family_with_heads_of_its_own_has_its_own_defaults(void **state)
{
    (void)state;
    struct model_spec s;
    load("Gemma4UnifiedForConditionalGeneration",
         "{\"text_config\": {\"model_type\": \"gemma4_unified_text\", \"hidden_size\": 64, \"num_hidden_layers\": 6, "
         "\"num_attention_heads\": 8, \"intermediate_size\": 96, \"vocab_size\": 320}}",
         &s);
    assert_true(s.wrapper && s.tied && s.v_norm && s.layer_scalar && s.qk_norm && s.attn_scale == 1);
    assert_string_equal(s.family->arch, "Gemma4UnifiedForCausalLM");
    assert_int_equal(s.ple_dim, 0);
    assert_int_equal(s.window, 1024);
    assert_int_equal(s.context, 262144);
    assert_int_equal(s.n_kv_head, 4);
    assert_int_equal(s.full_head_dim, 512);
    assert_int_equal(s.n_expert, 0);
    assert_int_equal(s.bos_id, 2);
    assert_int_equal(s.eos_id[0], 1);
    model_spec_free(&s);
}

#define HEADS \
    "\"head_dim\": 16, \"layer_types\": [\"sliding_attention\", \"full_attention\", \"sliding_attention\", \"full_attention\"]"

static void both_forms_of_the_file_mean_the_same_heads(void **state)
{
    (void)state;
    static const char *const forms[] = {
        "{" HEADS ", \"attention_k_eq_v\": true, \"global_head_dim\": 32, \"num_global_key_value_heads\": 1}",
        "{" HEADS
        ", \"attention_k_eq_v\": true, \"per_layer_config\": {\"1\": {\"head_dim\": 32, \"num_key_value_heads\": 1}, "
        "\"3\": {\"head_dim\": 32, \"num_key_value_heads\": 1}}}"
    };
    for (size_t i = 0; i < ARRAY_N(forms); i++) {
        struct model_spec s;
        load(arch, forms[i], &s);
        for (uint32_t l = 0; l < 4; l++) {
            assert_int_equal(spec_head_dim(&s, l), l % 2 ? 32 : 16);
            assert_int_equal(spec_n_kv_head(&s, l), l % 2 ? 1 : 2);
            assert_int_equal(spec_k_is_v(&s, l), l % 2);
        }
        model_spec_free(&s);
    }
    struct model_spec s; /* as transformers writes numbers of two digits */
    load(arch,
         "{\"num_hidden_layers\": 12, \"head_dim\": 16, \"per_layer_config\": {\"05\": {\"head_dim\": 32}, \"11\": "
         "{\"head_dim\": 32}}}",
         &s);
    for (uint32_t l = 0; l < 12; l++) assert_int_equal(spec_head_dim(&s, l), l % 6 == 5 ? 32 : 16);
    model_spec_free(&s);
    load(arch, "{" HEADS ", \"per_layer_config\": {}}", &s); /* no layer differs */
    assert_int_equal(spec_head_dim(&s, 1), 16);
    model_spec_free(&s);
    /* without attention_k_eq_v that key does nothing */
    load(arch, "{" HEADS ", \"global_head_dim\": 32, \"num_global_key_value_heads\": 1}", &s);
    assert_int_equal(spec_n_kv_head(&s, 1), 2);
    model_spec_free(&s);
    load(arch,
         "{\"enable_moe_block\": true, \"num_experts\": 8, \"top_k_experts\": 2, \"moe_intermediate_size\": 24, "
         "\"use_bidirectional_attention\": \"vision\"}",
         &s);
    assert_true(s.moe_beside && s.n_expert == 8 && s.top_k_expert == 2 && s.moe_inter == 24 && s.norm_topk);
    model_spec_free(&s);
}

static void what_is_not_served_is_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *over, *says;
    } cases[] = {
        { "{\"use_bidirectional_attention\": \"all\"}", "use_bidirectional_attention is \"all\", supported is" },
        { "{\"num_kv_shared_layers\": 4}", "num_kv_shared_layers is 4 of 4 layers: no layer before them has KV" },
        { "{\"num_kv_shared_layers\": 1}", "no layer before them has KV of full attention" },
        { "{\"global_head_dim\": 31}", "global_head_dim is 31, must be even" },
        { "{\"attention_k_eq_v\": true, \"num_global_key_value_heads\": 3}",
          "num_global_key_value_heads is 3, must divide" },
        { "{\"per_layer_config\": {\"3\": {\"rope_theta\": 1}}}", "per_layer_config[3] has rope_theta, supported are" },
        { "{\"per_layer_config\": {\"0\": {\"head_dim\": 32}}}", "per_layer_config[0] has heads of 32" },
        { "{\"per_layer_config\": {\"4\": {\"head_dim\": 32}}}", "per_layer_config has \"4\", supported are layers" },
        { "{\"per_layer_config\": {\"x\": {\"head_dim\": 32}}}", "per_layer_config has \"x\", supported are layers" },
        { "{\"per_layer_config\": [1]}", "per_layer_config is [1], must be an object" },
        { "{\"vocab_size_per_layer_input\": 100}",
          "vocab_size_per_layer_input is 100, must not be less than vocab_size" },
        { "{\"enable_moe_block\": true}", "num_experts is missing beside enable_moe_block" },
        { "{\"rope_parameters\": {\"full_attention\": {\"rope_type\": \"yarn\", \"factor\": 4}}}",
          "rope_type is \"yarn\", supported of Gemma4ForCausalLM are default and proportional" },
    };
    for (size_t i = 0; i < ARRAY_N(cases); i++) refused(arch, cases[i].over, cases[i].says);
    refused("LlamaForCausalLM", "{\"rope_scaling\": {\"rope_type\": \"proportional\"}}",
            "rope_type is \"proportional\"");
}

int main(void)
{
    log_init(LOG_LEVEL_ERROR, open("/dev/null", O_WRONLY | O_CLOEXEC), false);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(absent_keys_mean_what_transformers_means),
        cmocka_unit_test(a_family_with_heads_of_its_own_has_its_own_defaults),
        cmocka_unit_test(both_forms_of_the_file_mean_the_same_heads),
        cmocka_unit_test(what_is_not_served_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
