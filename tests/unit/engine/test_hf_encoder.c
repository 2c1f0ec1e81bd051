/* What is read from the config.json of an encoder, and which values are refused. */
#include "engine/model/model.h"
#include "unit/engine/hf_load.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(encoders_have_the_defaults_of_their_classes),
                                        cmocka_unit_test(modernbert_says_which_layers_see_how_far),
                                        cmocka_unit_test(the_first_files_of_nomic_bert_have_keys_of_their_own) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
