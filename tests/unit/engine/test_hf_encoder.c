/* What is read from the config.json of an encoder, and which values are refused. */
#include "engine/model/model.h"
#include "unit/engine/hf_load.h"
#include <math.h>

static void encoders_have_the_defaults_of_their_classes(void **state)
{
    (void)state;
    struct model_spec s;
    load("BertModel", "{\"num_key_value_heads\": \"-\"}", &s);
    assert_true(model_is_encoder(&s) && s.qkv_bias && s.o_bias && s.mlp_bias);
    assert_int_equal(s.context, 512);
    assert_int_equal(s.pos_first, 0);
    assert_int_equal(s.n_type, 2);
    assert_int_equal(s.act, OP_GELU);
    assert_true(s.rms_eps == 1e-12f);
    assert_int_equal(s.pool, POOL_CLS);
    assert_int_equal(s.n_eos, 0);
    model_spec_free(&s);
    load("BertForMaskedLM", "{\"num_key_value_heads\": \"-\"}", &s);
    assert_string_equal(s.family->arch, "BertModel");
    model_spec_free(&s);
    load("XLMRobertaModel",
         "{\"num_key_value_heads\": \"-\", \"max_position_embeddings\": 514, \"type_vocab_size\": 1}", &s);
    assert_int_equal(s.context, 512);
    assert_int_equal(s.pos_first, 2);
    assert_int_equal(s.n_type, 1);
    model_spec_free(&s);
    load("RobertaModel", "{\"num_key_value_heads\": \"-\", \"pad_token_id\": 5}", &s);
    assert_int_equal(s.context, 506);
    model_spec_free(&s);
    refused("BertModel", "{\"is_decoder\": true}", "is_decoder is true, must be false");
    refused("BertModel", "{\"add_cross_attention\": true}", "add_cross_attention is true");
    refused("BertModel", "{\"position_embedding_type\": \"relative_key\"}",
            "position_embedding_type is \"relative_key\"");
    refused("XLMRobertaModel", "{\"max_position_embeddings\": 2}", "pad_token_id is 1");
    refused("BertModel", "{\"type_vocab_size\": -1}", "type_vocab_size");
}

static void modernbert_says_which_layers_see_how_far(void **state)
{
    (void)state;
    struct model_spec s;
    load(
        "ModernBertModel",
        "{\"num_key_value_heads\": \"-\", \"num_hidden_layers\": 7, \"global_rope_theta\": 1e5, \"local_rope_theta\": 2e4}",
        &s);
    assert_int_equal(s.window, 65);
    for (uint32_t l = 0; l < 7; l++) assert_int_equal(s.layer_windowed[l], l % 3 != 0);
    assert_true(s.rope_theta == 1e5 && s.rope_local_theta == 2e4);
    assert_int_equal(s.n_type, 0);
    model_spec_free(&s);
    load(
        "ModernBertForMaskedLM",
        "{\"num_key_value_heads\": \"-\", \"num_hidden_layers\": 3, \"local_attention\": 20, \"layer_types\": [\"sliding_attention\", "
        "\"full_attention\", \"sliding_attention\"]}",
        &s);
    assert_int_equal(s.window, 11);
    assert_true(s.layer_windowed[0] && !s.layer_windowed[1] && s.layer_windowed[2]);
    assert_true(s.rope_theta == 160000 && s.rope_local_theta == 1e4);
    model_spec_free(&s);
    refused("ModernBertModel", "{\"norm_bias\": true}", "norm_bias is true");
    refused("ModernBertModel", "{\"attention_bias\": true}", "attention_bias is true");
    refused("ModernBertModel", "{\"local_attention\": 0}", "local_attention");
}

static void the_first_files_of_nomic_bert_have_keys_of_their_own(void **state)
{
    (void)state;
    struct model_spec s;
    load(
        "NomicBertModel",
        "{\"num_key_value_heads\": \"-\", \"num_hidden_layers\": \"-\", \"n_layer\": 2, \"n_positions\": 8192, \"rotary_emb_base\": 1000, "
        "\"activation_function\": \"swiglu\", \"rotary_scaling_factor\": null, \"layer_norm_epsilon\": 1e-6}",
        &s);
    assert_int_equal(s.n_layer, 2);
    assert_int_equal(s.context, 8192);
    assert_true(s.rope_theta == 1000 && s.rms_eps == 1e-6f);
    assert_int_equal(s.act, OP_SILU);
    model_spec_free(&s);
    refused("NomicBertModel", "{\"prenorm\": true}", "prenorm is true, must be false");
    refused("NomicBertModel", "{\"rotary_scaling_factor\": 2}", "rotary_scaling_factor is 2");
    refused("NomicBertModel", "{\"rotary_emb_fraction\": 0.5}", "rotary_emb_fraction is 0.5");
    refused("NomicBertModel", "{\"activation_function\": \"gelu\"}", "activation_function is \"gelu\"");
    refused("NomicBertModel", "{\"num_experts\": 8}", "num_experts is 8");
    refused("NomicBertModel", "{\"n_layer\": 0, \"num_hidden_layers\": \"-\"}", "n_layer");
}

static void gte_is_known_under_both_of_its_names(void **state)
{
    (void)state;
    static const char *const archs[] = { "GteModel",
                                         "GteForMaskedLM",
                                         "GteForSequenceClassification",
                                         "NewModel",
                                         "NewForMaskedLM",
                                         "NewForSequenceClassification",
                                         "NewForTokenClassification" };
    struct model_spec        s;
    for (size_t i = 0; i < ARRAY_N(archs); i++) {
        load(archs[i], "{\"num_key_value_heads\": \"-\"}", &s);
        assert_string_equal(s.family->arch, "GteModel");
        assert_int_equal(s.context, 8192);
        assert_int_equal(s.n_type, 1);
        assert_true(s.rope_theta == 160000 && s.qkv_bias && s.o_bias && s.mlp_bias);
        assert_true(s.classifies == (i == 2 || i == 5));
        model_spec_free(&s);
    }
    load(
        "NewModel",
        "{\"num_key_value_heads\": \"-\", \"type_vocab_size\": 0, \"rope_theta\": 20000, \"rope_scaling\": {\"type\": \"ntk\", "
        "\"factor\": 8}, \"position_embedding_type\": \"rope\", \"layer_norm_type\": \"layer_norm\"}",
        &s);
    assert_int_equal(s.n_type, 0);
    assert_int_equal(s.context, 8192); /* the stretched one */
    assert_true(s.rope_theta == 160000 && fabs(s.rope_factor - pow(8, 2.0 / s.head_dim)) < 1e-12);
    model_spec_free(&s);
    refused("NewModel", "{\"rope_scaling\": {\"type\": \"ntk\"}}", "factor of rope type ntk is missing");
    refused("NewModel", "{\"rope_scaling\": {\"type\": \"ntk\", \"factor\": 2, \"mixed_b\": 0.625}}", "mixed_b");
    refused("NewModel", "{\"position_embedding_type\": \"absolute\"}", "position_embedding_type is \"absolute\"");
    refused("NewModel", "{\"layer_norm_type\": \"rms_norm\"}", "layer_norm_type is \"rms_norm\"");
    refused("NewModel", "{\"logn_attention_scale\": true}", "logn_attention_scale is true");
    refused("BertForTokenClassification", "{}", "architectures[0] is \"BertForTokenClassification\"");
    refused("NomicBertModel", "{\"rope_scaling\": {\"type\": \"ntk\", \"factor\": 8}}", "rope_type is \"ntk\"");
}

static void jina_v3_rotates_and_its_adapters_are_refused(void **state)
{
    (void)state;
    struct model_spec s;
    load("JinaEmbeddingsV3Model", "{\"num_key_value_heads\": \"-\"}", &s);
    assert_int_equal(s.context, 8194);
    assert_int_equal(s.n_type, 1);
    assert_true(s.rope_theta == 20000 && s.rms_eps == 1e-5f);
    model_spec_free(&s);
    refused("XLMRobertaModel",
            "{\"position_embedding_type\": \"rotary\", \"lora_adaptations\": [\"retrieval.query\", \"separation\"]}",
            "lora_adaptations is [\"retrieval.query\",\"separation\"]");
    refused("XLMRobertaModel", "{\"position_embedding_type\": \"rotary\"}", "position_embedding_type is \"rotary\"");
}

static void alibi_is_refused_by_name(void **state)
{
    (void)state;
    refused("JinaBertForMaskedLM", "{\"position_embedding_type\": \"alibi\"}", "ALiBi");
    refused("BertModel", "{\"position_embedding_type\": \"alibi\"}", "position_embedding_type is \"alibi\"");
    refused("BertForMaskedLM", "{\"alibi_starting_size\": 512}", "alibi_starting_size is 512");
}

/* Of Gemma 3 a flag says which way a model looks; its window counts both sides. */
static void gemma_3_is_an_encoder_where_it_looks_both_ways(void **state)
{
    (void)state;
    static const char *const arch[] = { "Gemma3TextModel", "Gemma3ForCausalLM", "Gemma3Model" };
    struct model_spec        s;
    for (size_t i = 0; i < ARRAY_N(arch); i++) {
        load(arch[i], "{\"use_bidirectional_attention\": true, \"sliding_window\": 512, \"num_hidden_layers\": 12}",
             &s);
        assert_true(model_is_encoder(&s) && s.qk_norm && s.family->norm_plus_1);
        assert_int_equal(s.window, 257); /* 256 before a token, and as many behind */
        for (uint32_t l = 0; l < 12; l++) assert_int_equal(s.layer_windowed[l], l % 6 != 5);
        assert_true(s.rope_theta == 1e6 && s.rope_local_theta == 1e4 && s.attn_scale == 0.0625f);
        model_spec_free(&s);
        load(arch[i], "{\"use_bidirectional_attention\": false, \"sliding_window\": 512}", &s);
        assert_true(!model_is_encoder(&s));
        assert_int_equal(s.window, 512);
        model_spec_free(&s);
    }
    load("Gemma3TextModel",
         "{\"use_bidirectional_attention\": true, \"sliding_window\": null, \"layer_types\": [\"full_attention\", "
         "\"full_attention\", \"full_attention\", \"full_attention\"]}",
         &s);
    assert_int_equal(s.window, 0);
    model_spec_free(&s);
    refused("Gemma3TextModel", "{\"use_bidirectional_attention\": \"all\"}", "use_bidirectional_attention");
    refused("Gemma3ForSequenceClassification", "{\"use_bidirectional_attention\": true}", "makes vectors alone");
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(encoders_have_the_defaults_of_their_classes),
                                        cmocka_unit_test(gemma_3_is_an_encoder_where_it_looks_both_ways),
                                        cmocka_unit_test(modernbert_says_which_layers_see_how_far),
                                        cmocka_unit_test(the_first_files_of_nomic_bert_have_keys_of_their_own),
                                        cmocka_unit_test(gte_is_known_under_both_of_its_names),
                                        cmocka_unit_test(jina_v3_rotates_and_its_adapters_are_refused),
                                        cmocka_unit_test(alibi_is_refused_by_name) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
