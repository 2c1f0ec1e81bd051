#include "engine/model/names.h"
#include "test.h"

static const struct model_names *const schemes[] = { &names_llama,  &names_mixtral,     &names_qwen_moe,
                                                     &names_phi3,   &names_qwen_vl_moe, &names_llama4,
                                                     &names_gemma4, &names_granite_moe, &names_gpt_oss };

static void every_name_comes_back_as_its_slot(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_N(schemes); i++)
        for (const struct model_names *n = schemes[i]; n; n = n->base)
            for (uint32_t r = 0; r < n->n_row; r++) {
                enum slot slot = n->row[r].slot, got;
                bool      all = name_row_all_experts(&n->row[r]);
                uint32_t  layer = slot >= SLOT_LAYER_FIRST ? 31 : 0, l, e;
                uint32_t  expert = slot >= SLOT_EXPERT_FIRST && !all ? 107 : 0;
                char      name[128];
                assert_non_null(names_of(schemes[i], slot, layer, expert, !all, name, sizeof name));
                assert_null(strchr(name, '{'));
                assert_true(names_match(schemes[i], name, &got, &l, &e));
                assert_int_equal(got, slot);
                assert_int_equal(l, layer);
                assert_int_equal(e, expert);
            }
}

static void a_tensor_name_that_only_resembles_a_pattern_does_not_match(void **state)
{
    (void)state;
    static const char *const bad[] = { "",
                                       "model",
                                       "model.layers.0.self_attn.q_proj.weight.scale",
                                       "xmodel.layers.0.self_attn.q_proj.weight",
                                       "model.layers..self_attn.q_proj.weight",
                                       "model.layers.01.self_attn.q_proj.weight",
                                       "model.layers.-1.self_attn.q_proj.weight",
                                       "model.layers.1e2.self_attn.q_proj.weight",
                                       "model.layers.4294967296.self_attn.q_proj.weight",
                                       "model.layers.1234567.self_attn.q_proj.weight",
                                       "model.layers.{l}.self_attn.q_proj.weight",
                                       "model.layers.0",
                                       "model.layers.0.self_attn.q_proj.weigh" };
    enum slot                s;
    uint32_t                 l, e;
    for (size_t i = 0; i < ARRAY_N(bad); i++) assert_false(names_match(&names_llama, bad[i], &s, &l, &e));
    assert_false(names_match(&names_llama, "model.layers.0.mlp.experts.0.gate_proj.weight", &s, &l, &e));
    assert_true(names_match(&names_qwen_moe, "model.layers.0.mlp.experts.0.gate_proj.weight", &s, &l, &e));
    assert_true(names_match(&names_qwen_moe, "model.layers.0.mlp.gate_proj.weight", &s, &l, &e)); /* its dense layers */
}

static void a_tensor_of_two_slots_goes_before_the_names_of_the_base(void **state)
{
    (void)state;
    char     name[128];
    uint32_t l, e;
    assert_string_equal(names_of(&names_glm4, SLOT_UP, 3, 0, false, name, sizeof name),
                        "model.layers.3.mlp.gate_up_proj.weight");
    const struct name_row *row = names_row(&names_glm4, name, &l, &e);
    assert_non_null(row);
    assert_int_equal(row->slot, SLOT_GATE);
    assert_int_equal(row->more, 1);
    assert_int_equal(names_row(&names_glm4, "model.layers.3.self_attn.q_proj.weight", &l, &e)->more, 0);
}

static void experts_have_tensors_together_or_their_own(void **state)
{
    (void)state;
    char                   name[128];
    uint32_t               l, e;
    const struct name_row *row = names_row(&names_qwen_vl_moe, "model.layers.3.mlp.experts.gate_up_proj", &l, &e);
    assert_non_null(row);
    assert_true(name_row_all_experts(row) && row->slot == SLOT_X_GATE && row->more == 1);
    row = names_row(&names_qwen_vl_moe, "model.layers.3.mlp.experts.5.up_proj.weight", &l, &e);
    assert_non_null(row);
    assert_true(!name_row_all_experts(row) && row->slot == SLOT_X_UP && e == 5);
    assert_string_equal(names_of(&names_qwen_vl_moe, SLOT_X_UP, 3, 5, false, name, sizeof name),
                        "model.layers.3.mlp.experts.gate_up_proj");
    assert_string_equal(names_of(&names_qwen_vl_moe, SLOT_X_UP, 3, 5, true, name, sizeof name),
                        "model.layers.3.mlp.experts.5.up_proj.weight");
}

static void a_slot_without_a_name_has_none(void **state)
{
    (void)state;
    char name[64];
    assert_null(names_of(&names_llama, SLOT_ROUTER, 0, 0, false, name, sizeof name));
    assert_non_null(names_of(&names_llama, SLOT_Q_NORM, 3, 0, false, name, 16)); /* cut, not overrun */
    assert_int_equal(strlen(name), 15);
}

static void only_tensors_that_no_layer_needs_are_ignorable(void **state)
{
    (void)state;
    assert_true(names_ignorable(&names_llama, "model.layers.3.self_attn.rotary_emb.inv_freq", false));
    assert_false(names_ignorable(&names_llama, "model.layers.3.self_attn.q_proj.weight_scale", true));
    assert_false(names_ignorable(&names_llama, "vision_tower.x", false));
    assert_true(names_ignorable(&names_llama, "vision_tower.x", true));
    assert_true(names_ignorable(&names_llama, "model.multi_modal_projector.x", true));
}

static void encoders_names_may_have_a_prefix_and_heads_that_nothing_needs(void **state)
{
    (void)state;
    static const char *const spelt[] = { "encoder.layer.11.output.LayerNorm.weight",
                                         "bert.encoder.layer.11.output.LayerNorm.weight",
                                         "bert.encoder.layer.11.output.LayerNorm.gamma" };
    enum slot                slot;
    uint32_t                 l, e;
    for (size_t i = 0; i < ARRAY_N(spelt); i++) {
        assert_true(names_match(&names_bert, spelt[i], &slot, &l, &e));
        assert_int_equal(slot, SLOT_FFN_POST);
        assert_int_equal(l, 11);
    }
    assert_false(names_match(&names_bert, "roberta.encoder.layer.1.output.dense.weight", &slot, &l, &e));
    assert_true(names_match(&names_roberta, "roberta.encoder.layer.1.output.dense.weight", &slot, &l, &e));
    assert_true(names_match(&names_gte, "new.encoder.layer.2.attn_ln.bias", &slot, &l, &e) && l == 2);
    assert_int_equal(slot, SLOT_MIX_POST_BIAS);
    assert_true(names_match(&names_gte, "gte.layers.2.post_attention_layernorm.bias", &slot, &l, &e));
    assert_int_equal(slot, SLOT_MIX_POST_BIAS);
    assert_true(names_match(&names_jina, "roberta.layers.1.mlp.fc2.bias", &slot, &l, &e));
    assert_int_equal(slot, SLOT_DOWN_BIAS);
    assert_true(names_ignorable(&names_bert, "bert.embeddings.position_ids", false));
    assert_true(names_ignorable(&names_bert, "cls.predictions.bias", false));
    assert_true(names_ignorable(&names_roberta, "lm_head.dense.weight", false));
    assert_false(names_ignorable(&names_bert, "classifier.weight", false));
    assert_false(names_ignorable(&names_llama, "lm_head.dense.weight", false));
}

static void a_wrappers_names_are_unwrapped(void **state)
{
    (void)state;
    char text[32];
    assert_string_equal(names_unwrap("language_model.model.norm.weight", text, sizeof text), "model.norm.weight");
    assert_string_equal(names_unwrap("model.language_model.norm.weight", text, sizeof text), "model.norm.weight");
    assert_string_equal(names_unwrap("language_model.lm_head.weight", text, sizeof text), "lm_head.weight");
    assert_string_equal(names_unwrap("lm_head.weight", text, sizeof text), "lm_head.weight");
    assert_string_equal(names_unwrap("model.language_model.a_name_that_does_not_fit", text, 16),
                        "model.language_model.a_name_that_does_not_fit");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_name_comes_back_as_its_slot),
        cmocka_unit_test(a_tensor_name_that_only_resembles_a_pattern_does_not_match),
        cmocka_unit_test(a_tensor_of_two_slots_goes_before_the_names_of_the_base),
        cmocka_unit_test(experts_have_tensors_together_or_their_own),
        cmocka_unit_test(a_slot_without_a_name_has_none),
        cmocka_unit_test(only_tensors_that_no_layer_needs_are_ignorable),
        cmocka_unit_test(encoders_names_may_have_a_prefix_and_heads_that_nothing_needs),
        cmocka_unit_test(a_wrappers_names_are_unwrapped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
