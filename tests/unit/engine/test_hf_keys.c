/* No key of config.json that changes mathematics is overlooked: of those that each family's configuration class has
 * (transformers 5.23), another value makes another model or is refused. Keys that matter to training alone are not
 * listed, nor is hidden_act of gpt-oss, which transformers does not look at either. */
#include "base/log.h"
#include "engine/model/model.h"
#include "unit/engine/hf_load.h"
#include <fcntl.h>

/* of every family that generates */
static const char usual[] = "hidden_size num_hidden_layers num_attention_heads num_key_value_heads intermediate_size "
                            "vocab_size max_position_embeddings rope_parameters bos_token_id eos_token_id";
static const char usual_encoder[] =
    "hidden_size num_hidden_layers num_attention_heads intermediate_size vocab_size max_position_embeddings eos_token_id";

/* with: further keys, in whose company the keys matter; "": none */
static const struct row {
    const char *arch, *with, *keys;
} rows[] = {
    { "LlamaForCausalLM", "", "attention_bias head_dim hidden_act mlp_bias rms_norm_eps tie_word_embeddings" },
    { "MistralForCausalLM", "", "head_dim hidden_act rms_norm_eps sliding_window tie_word_embeddings" },
    { "Qwen2ForCausalLM", ", \"use_sliding_window\": true, \"max_window_layers\": 2",
      "hidden_act layer_types max_window_layers rms_norm_eps sliding_window use_sliding_window tie_word_embeddings" },
    { "Qwen3ForCausalLM", ", \"use_sliding_window\": true, \"max_window_layers\": 2",
      "attention_bias head_dim hidden_act layer_types max_window_layers rms_norm_eps sliding_window use_sliding_window "
      "tie_word_embeddings" },
    { "MixtralForCausalLM", "",
      "head_dim hidden_act num_experts_per_tok num_local_experts rms_norm_eps sliding_window tie_word_embeddings" },
    { "Qwen3MoeForCausalLM", ", \"use_sliding_window\": true",
      "attention_bias decoder_sparse_step hidden_act mlp_only_layers moe_intermediate_size norm_topk_prob "
      "num_experts_per_tok num_experts rms_norm_eps sliding_window use_sliding_window tie_word_embeddings" },
    { "SeedOssForCausalLM", "",
      "attention_bias attention_out_bias head_dim hidden_act mlp_bias rms_norm_eps tie_word_embeddings" },
    { "SmolLM3ForCausalLM", ", \"use_sliding_window\": true, \"sliding_window\": 8",
      "attention_bias hidden_act layer_types mlp_bias no_rope_layer_interval no_rope_layers rms_norm_eps sliding_window "
      "use_sliding_window tie_word_embeddings" },
    { "Ministral3ForCausalLM", "", "head_dim hidden_act rms_norm_eps sliding_window tie_word_embeddings" },
    { "Ernie4_5ForCausalLM", "", "head_dim hidden_act rms_norm_eps tie_word_embeddings use_bias" },
    { "Phi3ForCausalLM", "", "hidden_act rms_norm_eps sliding_window tie_word_embeddings partial_rotary_factor" },
    { "GraniteForCausalLM", "",
      "attention_bias attention_multiplier embedding_multiplier hidden_act logits_scaling mlp_bias residual_multiplier "
      "rms_norm_eps tie_word_embeddings" },
    { "Olmo2ForCausalLM", "", "attention_bias hidden_act rms_norm_eps tie_word_embeddings" },
    { "HunYuanDenseV1ForCausalLM", "", "attention_bias head_dim hidden_act rms_norm_eps tie_word_embeddings" },
    { "Gemma2ForCausalLM", "",
      "attention_bias attn_logit_softcapping final_logit_softcapping head_dim hidden_activation layer_types "
      "query_pre_attn_scalar rms_norm_eps sliding_window tie_word_embeddings use_bidirectional_attention" },
    { "Gemma3ForCausalLM", "",
      "attention_bias attn_logit_softcapping final_logit_softcapping head_dim hidden_activation layer_types "
      "query_pre_attn_scalar rms_norm_eps sliding_window sliding_window_pattern tie_word_embeddings "
      "use_bidirectional_attention" },
    { "Olmo3ForCausalLM", "", "attention_bias hidden_act layer_types rms_norm_eps sliding_window tie_word_embeddings" },
    { "Exaone4ForCausalLM", "",
      "hidden_act layer_types rms_norm_eps sliding_window sliding_window_pattern tie_word_embeddings" },
    { "Glm4ForCausalLM", "",
      "attention_bias head_dim hidden_act rms_norm_eps tie_word_embeddings partial_rotary_factor" },
    { "GlmForCausalLM", "",
      "attention_bias head_dim hidden_act rms_norm_eps tie_word_embeddings partial_rotary_factor" },
    { "CohereForCausalLM", "", "attention_bias hidden_act layer_norm_eps logit_scale tie_word_embeddings use_qk_norm" },
    { "Cohere2ForCausalLM", "",
      "attention_bias head_dim hidden_act layer_norm_eps layer_types logit_scale sliding_window tie_word_embeddings" },
    { "Starcoder2ForCausalLM", "", "hidden_act norm_epsilon sliding_window tie_word_embeddings use_bias" },
    { "Qwen2MoeForCausalLM", ", \"use_sliding_window\": true, \"max_window_layers\": 2",
      "decoder_sparse_step hidden_act layer_types max_window_layers mlp_only_layers moe_intermediate_size norm_topk_prob "
      "num_experts num_experts_per_tok qkv_bias rms_norm_eps shared_expert_intermediate_size sliding_window "
      "use_sliding_window tie_word_embeddings" },
    { "Glm4MoeForCausalLM", ", \"n_group\": 2, \"topk_group\": 1",
      "attention_bias first_k_dense_replace hidden_act moe_intermediate_size n_group n_routed_experts n_shared_experts "
      "norm_topk_prob num_experts_per_tok num_nextn_predict_layers rms_norm_eps routed_scaling_factor topk_group "
      "tie_word_embeddings use_qk_norm partial_rotary_factor" },
    { "Ernie4_5_MoeForCausalLM", "",
      "hidden_act moe_intermediate_size moe_k moe_layer_end_index moe_layer_interval moe_layer_start_index moe_norm_min "
      "moe_num_experts moe_num_shared_experts rms_norm_eps tie_word_embeddings use_bias" },
    { "MiniMaxM2ForCausalLM", "",
      "head_dim hidden_act num_experts_per_tok num_local_experts rms_norm_eps tie_word_embeddings rotary_dim" },
    { "GraniteMoeForCausalLM", "",
      "attention_bias attention_multiplier embedding_multiplier hidden_act logits_scaling num_experts_per_tok "
      "num_local_experts residual_multiplier rms_norm_eps tie_word_embeddings" },
    { "OlmoeForCausalLM", "",
      "attention_bias clip_qkv hidden_act norm_topk_prob num_experts num_experts_per_tok rms_norm_eps tie_word_embeddings" },
    { "Dots1ForCausalLM",
      ", \"n_routed_experts\": 8, \"num_experts_per_tok\": 2, \"n_group\": 2, \"topk_group\": 1, \"max_window_layers\": 2",
      "attention_bias first_k_dense_replace hidden_act layer_types max_window_layers moe_intermediate_size n_group "
      "n_routed_experts n_shared_experts norm_topk_prob num_experts_per_tok rms_norm_eps routed_scaling_factor "
      "sliding_window tie_word_embeddings topk_group" },
    { "SolarOpenForCausalLM", ", \"n_group\": 2, \"topk_group\": 1",
      "attention_bias head_dim hidden_act moe_intermediate_size n_group n_routed_experts n_shared_experts norm_topk_prob "
      "num_experts_per_tok rms_norm_eps routed_scaling_factor tie_word_embeddings topk_group" },
    { "ExaoneMoeForCausalLM", ", \"n_group\": 2, \"topk_group\": 1",
      "first_k_dense_replace hidden_act layer_types mlp_layer_types moe_intermediate_size n_group norm_topk_prob num_experts "
      "num_experts_per_tok num_shared_experts rms_norm_eps routed_scaling_factor sliding_window sliding_window_pattern "
      "tie_word_embeddings topk_group" },
    { "MellumForCausalLM",
      ", \"layer_types\": [\"sliding_attention\", \"full_attention\", \"sliding_attention\", "
      "\"full_attention\", \"sliding_attention\", \"full_attention\"]",
      "attention_bias hidden_act layer_types mlp_layer_types moe_intermediate_size norm_topk_prob num_experts "
      "num_experts_per_tok num_nextn_predict_layers rms_norm_eps sliding_window tie_word_embeddings" },
    { "GptOssForCausalLM", "",
      "attention_bias head_dim layer_types num_experts_per_tok num_local_experts rms_norm_eps sliding_window swiglu_alpha "
      "swiglu_limit tie_word_embeddings" },
    { "Gemma4ForCausalLM", ", \"enable_moe_block\": true, \"num_experts\": 4, \"moe_intermediate_size\": 32",
      "attention_bias attention_k_eq_v enable_moe_block final_logit_softcapping head_dim hidden_activation "
      "hidden_size_per_layer_input layer_types moe_intermediate_size num_experts num_kv_shared_layers per_layer_config "
      "global_head_dim rms_norm_eps sliding_window tie_word_embeddings top_k_experts use_bidirectional_attention "
      "use_double_wide_mlp vocab_size_per_layer_input" },
    { "Gemma4UnifiedForCausalLM", ", \"attention_k_eq_v\": true",
      "attention_bias attention_k_eq_v final_logit_softcapping head_dim hidden_activation layer_types "
      "num_global_key_value_heads num_kv_shared_layers per_layer_config rms_norm_eps sliding_window tie_word_embeddings "
      "use_bidirectional_attention use_double_wide_mlp" },
    { "Llama4ForCausalLM", "",
      "attention_bias attention_chunk_size attn_scale attn_temperature_tuning floor_scale head_dim hidden_act "
      "interleave_moe_layer_step intermediate_size_mlp layer_types moe_layers no_rope_layer_interval no_rope_layers "
      "num_experts_per_tok num_local_experts rms_norm_eps tie_word_embeddings use_qk_norm" },
    { "BertModel", "", "add_cross_attention hidden_act is_decoder layer_norm_eps type_vocab_size" },
    { "XLMRobertaModel", "", "add_cross_attention hidden_act is_decoder layer_norm_eps type_vocab_size" },
    { "RobertaModel", "", "add_cross_attention hidden_act is_decoder layer_norm_eps type_vocab_size" },
    { "ModernBertModel", "",
      "attention_bias hidden_activation layer_types local_attention mlp_bias norm_bias norm_eps rope_parameters" },
    { "NomicBertModel", "", "head_dim hidden_act layer_norm_eps rope_parameters type_vocab_size" },
    { "GteModel", "", "hidden_act layer_norm_eps rope_parameters type_vocab_size" },
    { "JinaEmbeddingsV3Model", "", "hidden_act layer_norm_eps rope_parameters type_vocab_size" },
    { "Gemma3TextModel", ", \"use_bidirectional_attention\": true",
      "attention_bias attn_logit_softcapping head_dim hidden_activation layer_types num_key_value_heads "
      "query_pre_attn_scalar rms_norm_eps rope_parameters sliding_window sliding_window_pattern "
      "use_bidirectional_attention" },
};

/* The numbers of a model that were read, whatever the addresses of its arrays. */
struct read {
    enum status       st;
    struct model_spec spec;
    unsigned char     layer[3][8];
};

static void read_config(const struct row *row, const char *more, struct read *out)
{
    char over[1024];
    memset(out, 0, sizeof *out);
    assert_true((size_t)snprintf(over, sizeof over, "{\"num_hidden_layers\": 6%s%s}", row->with, more) < sizeof over);
    if ((out->st = load2(row->arch, over, NULL, &out->spec))) return;
    const unsigned char *layer[3] = { out->spec.layer_windowed, out->spec.layer_nope, out->spec.layer_moe };
    for (int i = 0; i < 3; i++)
        if (layer[i]) memcpy(out->layer[i], layer[i], out->spec.n_layer < 8 ? out->spec.n_layer : 8);
    model_spec_free(&out->spec);
    memset(out->spec.config, 0, sizeof out->spec.config); /* the digest of the text */
}

/* Is another value of the key another model, or refused? */
static bool is_looked_at(const struct row *row, const struct read *before, const char *key)
{
    static const char *const values[] = { "true", "false",     "3",   "8",
                                          "0.37", "\"other\"", "[0]", "{\"3\": {\"head_dim\": 8}}" };
    for (size_t i = 0; i < ARRAY_N(values); i++) {
        char        more[256];
        struct read after;
        snprintf(more, sizeof more, ", \"%s\": %s", key, values[i]);
        read_config(row, more, &after);
        if (after.st || memcmp(&after.spec, &before->spec, sizeof after.spec) != 0 ||
            memcmp(after.layer, before->layer, sizeof after.layer) != 0)
            return true;
    }
    return false;
}

static void look(const struct row *row, const struct read *before, const char *keys)
{
    char key[64];
    for (int n; sscanf(keys, " %63s%n", key, &n) == 1; keys += n)
        if (!is_looked_at(row, before, key)) fail_msg("%s: %s is not looked at", row->arch, key);
}

static void no_key_that_changes_mathematics_is_overlooked(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_N(rows); i++) {
        struct read before, again;
        read_config(&rows[i], "", &before);
        if (before.st) fail_msg("%s: %s", rows[i].arch, err);
        read_config(&rows[i], ", \"initializer_range\": 0.5", &again); /* what is not looked at makes no difference */
        assert_memory_equal(&before.spec, &again.spec, sizeof before.spec);
        bool encoder = model_is_encoder(&before.spec);
        look(&rows[i], &before, rows[i].keys);
        look(&rows[i], &before, encoder ? usual_encoder : usual);
    }
}

/* Each family but the wrapped ones, whose text part is Qwen3's and Qwen3-MoE's. */
static void every_family_is_asked(void **state)
{
    (void)state;
    const struct model_family *f;
    for (uint32_t i = 0; (f = model_family_at(i)); i++) {
        size_t k = 0;
        while (k < ARRAY_N(rows) && strcmp(rows[k].arch, f->arch) != 0) k++;
        if (k == ARRAY_N(rows) && !f->wrapper) fail_msg("%s has no row here", f->arch);
    }
}

int main(void)
{
    log_init(LOG_LEVEL_ERROR, open("/dev/null", O_WRONLY | O_CLOEXEC), false);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_key_that_changes_mathematics_is_overlooked),
        cmocka_unit_test(every_family_is_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
