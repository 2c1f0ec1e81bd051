#include "engine/model/names.h"
#include <stdio.h>
#include <string.h>

static const struct name_row rows_llama[] = {
    { SLOT_EMBED, "model.embed_tokens.weight", 0 },
    { SLOT_NORM, "model.norm.weight", 0 },
    { SLOT_HEAD, "lm_head.weight", 0 },
    { SLOT_SCORE, "score.weight", 0 },
    { SLOT_MIX_NORM, "model.layers.{l}.input_layernorm.weight", 0 },
    { SLOT_Q, "model.layers.{l}.self_attn.q_proj.weight", 0 },
    { SLOT_K, "model.layers.{l}.self_attn.k_proj.weight", 0 },
    { SLOT_V, "model.layers.{l}.self_attn.v_proj.weight", 0 },
    { SLOT_O, "model.layers.{l}.self_attn.o_proj.weight", 0 },
    { SLOT_Q_BIAS, "model.layers.{l}.self_attn.q_proj.bias", 0 },
    { SLOT_K_BIAS, "model.layers.{l}.self_attn.k_proj.bias", 0 },
    { SLOT_V_BIAS, "model.layers.{l}.self_attn.v_proj.bias", 0 },
    { SLOT_O_BIAS, "model.layers.{l}.self_attn.o_proj.bias", 0 },
    { SLOT_Q_NORM, "model.layers.{l}.self_attn.q_norm.weight", 0 },
    { SLOT_K_NORM, "model.layers.{l}.self_attn.k_norm.weight", 0 },
    { SLOT_FFN_NORM, "model.layers.{l}.post_attention_layernorm.weight", 0 },
    { SLOT_GATE, "model.layers.{l}.mlp.gate_proj.weight", 0 },
    { SLOT_UP, "model.layers.{l}.mlp.up_proj.weight", 0 },
    { SLOT_DOWN, "model.layers.{l}.mlp.down_proj.weight", 0 },
    { SLOT_GATE_BIAS, "model.layers.{l}.mlp.gate_proj.bias", 0 },
    { SLOT_UP_BIAS, "model.layers.{l}.mlp.up_proj.bias", 0 },
    { SLOT_DOWN_BIAS, "model.layers.{l}.mlp.down_proj.bias", 0 },
};
static const struct name_row rows_mixtral[] = {
    { SLOT_ROUTER, "model.layers.{l}.block_sparse_moe.gate.weight", 0 },
    { SLOT_X_GATE, "model.layers.{l}.block_sparse_moe.experts.{e}.w1.weight", 0 },
    { SLOT_X_UP, "model.layers.{l}.block_sparse_moe.experts.{e}.w3.weight", 0 },
    { SLOT_X_DOWN, "model.layers.{l}.block_sparse_moe.experts.{e}.w2.weight", 0 },
};
static const struct name_row rows_mlp_experts[] = {
    { SLOT_X_GATE, "model.layers.{l}.mlp.experts.{e}.gate_proj.weight", 0 },
    { SLOT_X_UP, "model.layers.{l}.mlp.experts.{e}.up_proj.weight", 0 },
    { SLOT_X_DOWN, "model.layers.{l}.mlp.experts.{e}.down_proj.weight", 0 },
};
static const struct name_row rows_qwen_moe[] = {
    { SLOT_ROUTER, "model.layers.{l}.mlp.gate.weight", 0 },
};
static const struct name_row rows_qwen2_moe[] = {
    { SLOT_S_GATE, "model.layers.{l}.mlp.shared_expert.gate_proj.weight", 0 },
    { SLOT_S_UP, "model.layers.{l}.mlp.shared_expert.up_proj.weight", 0 },
    { SLOT_S_DOWN, "model.layers.{l}.mlp.shared_expert.down_proj.weight", 0 },
    { SLOT_S_WEIGHT, "model.layers.{l}.mlp.shared_expert_gate.weight", 0 },
};
static const struct name_row rows_glm_moe[] = {
    { SLOT_ROUTER_BIAS, "model.layers.{l}.mlp.gate.e_score_correction_bias", 0 },
    { SLOT_S_GATE, "model.layers.{l}.mlp.shared_experts.gate_proj.weight", 0 },
    { SLOT_S_UP, "model.layers.{l}.mlp.shared_experts.up_proj.weight", 0 },
    { SLOT_S_DOWN, "model.layers.{l}.mlp.shared_experts.down_proj.weight", 0 },
};
/* as published; transformers 5 writes rows_glm_moe's */
static const struct name_row rows_exaone_moe[] = {
    { SLOT_ROUTER_BIAS, "model.layers.{l}.mlp.e_score_correction_bias", 0 },
};
static const char *const     ignored_mtp[] = { "mtp.", NULL };
static const struct name_row rows_ernie_moe[] = {
    { SLOT_ROUTER_BIAS, "model.layers.{l}.mlp.moe_statics.e_score_correction_bias", 0 },
};
static const struct name_row rows_minimax[] = {
    { SLOT_ROUTER_BIAS, "model.layers.{l}.block_sparse_moe.e_score_correction_bias", 0 },
};
/* What quantises takes the tensors of all experts apart, in this family and in others. */
static const struct name_row rows_granite_moe[] = {
    { SLOT_ROUTER, "model.layers.{l}.block_sparse_moe.router.layer.weight", 0 },
    { SLOT_X_GATE, "model.layers.{l}.block_sparse_moe.input_linear.weight", 1 },
    { SLOT_X_DOWN, "model.layers.{l}.block_sparse_moe.output_linear.weight", 0 },
    { SLOT_X_GATE, "model.layers.{l}.block_sparse_moe.experts.{e}.gate_proj.weight", 0 },
    { SLOT_X_UP, "model.layers.{l}.block_sparse_moe.experts.{e}.up_proj.weight", 0 },
    { SLOT_X_DOWN, "model.layers.{l}.block_sparse_moe.experts.{e}.down_proj.weight", 0 },
};
static const struct name_row rows_gpt_oss[] = {
    { SLOT_SINKS, "model.layers.{l}.self_attn.sinks", 0 },
    { SLOT_ROUTER, "model.layers.{l}.mlp.router.weight", 0 },
    { SLOT_ROUTER_LOGIT_BIAS, "model.layers.{l}.mlp.router.bias", 0 },
    { SLOT_X_GATE_UP_BIAS, "model.layers.{l}.mlp.experts.gate_up_proj_bias", 0 },
    { SLOT_X_DOWN_BIAS, "model.layers.{l}.mlp.experts.down_proj_bias", 0 },
    { SLOT_X_GATE_BIAS, "model.layers.{l}.mlp.experts.{e}.gate_proj.bias", 0 },
    { SLOT_X_UP_BIAS, "model.layers.{l}.mlp.experts.{e}.up_proj.bias", 0 },
    { SLOT_X_OUT_BIAS, "model.layers.{l}.mlp.experts.{e}.down_proj.bias", 0 },
};
static const struct name_stack stacks_gpt_oss[] = {
    { "model.layers.{l}.mlp.experts.gate_up_proj", SLOT_X_GATE, 2, STACK_COLUMNS, true },
    { "model.layers.{l}.mlp.experts.gate_up_proj_blocks", SLOT_X_GATE, 2, STACK_BLOCKS, true },
    { "model.layers.{l}.mlp.experts.gate_up_proj_scales", SLOT_X_GATE, 2, STACK_SCALES, true },
    { "model.layers.{l}.mlp.experts.down_proj", SLOT_X_DOWN, 1, STACK_COLUMNS, true },
    { "model.layers.{l}.mlp.experts.down_proj_blocks", SLOT_X_DOWN, 1, STACK_BLOCKS, true },
    { "model.layers.{l}.mlp.experts.down_proj_scales", SLOT_X_DOWN, 1, STACK_SCALES, true },
};
/* Published files have columns, and what transformers 5 writes of other layouts has rows. */
static const struct name_row rows_qwen_vl_moe[] = {
    { SLOT_X_GATE, "model.layers.{l}.mlp.experts.gate_up_proj", 1 },
    { SLOT_X_DOWN, "model.layers.{l}.mlp.experts.down_proj", 0 },
};
static const struct name_stack stacks_qwen_vl_moe[] = {
    { "model.layers.{l}.mlp.experts.gate_up_proj", SLOT_X_GATE, 2, STACK_COLUMNS, false },
    { "model.layers.{l}.mlp.experts.down_proj", SLOT_X_DOWN, 1, STACK_COLUMNS, false },
};
static const struct name_row rows_llama4[] = {
    { SLOT_GATE, "model.layers.{l}.feed_forward.gate_proj.weight", 0 },
    { SLOT_UP, "model.layers.{l}.feed_forward.up_proj.weight", 0 },
    { SLOT_DOWN, "model.layers.{l}.feed_forward.down_proj.weight", 0 },
    { SLOT_ROUTER, "model.layers.{l}.feed_forward.router.weight", 0 },
    { SLOT_S_GATE, "model.layers.{l}.feed_forward.shared_expert.gate_proj.weight", 0 },
    { SLOT_S_UP, "model.layers.{l}.feed_forward.shared_expert.up_proj.weight", 0 },
    { SLOT_S_DOWN, "model.layers.{l}.feed_forward.shared_expert.down_proj.weight", 0 },
    { SLOT_X_GATE, "model.layers.{l}.feed_forward.experts.{e}.gate_proj.weight", 0 },
    { SLOT_X_UP, "model.layers.{l}.feed_forward.experts.{e}.up_proj.weight", 0 },
    { SLOT_X_DOWN, "model.layers.{l}.feed_forward.experts.{e}.down_proj.weight", 0 },
};
static const struct name_stack stacks_llama4[] = {
    { "model.layers.{l}.feed_forward.experts.gate_up_proj", SLOT_X_GATE, 2, STACK_COLUMNS, false },
    { "model.layers.{l}.feed_forward.experts.down_proj", SLOT_X_DOWN, 1, STACK_COLUMNS, false },
};
static const struct name_row rows_phi3[] = {
    { SLOT_EMBED, "model.embed_tokens.weight", 0 },
    { SLOT_NORM, "model.norm.weight", 0 },
    { SLOT_HEAD, "lm_head.weight", 0 },
    { SLOT_SCORE, "score.weight", 0 },
    { SLOT_MIX_NORM, "model.layers.{l}.input_layernorm.weight", 0 },
    { SLOT_Q, "model.layers.{l}.self_attn.qkv_proj.weight", 2 },
    { SLOT_O, "model.layers.{l}.self_attn.o_proj.weight", 0 },
    { SLOT_FFN_NORM, "model.layers.{l}.post_attention_layernorm.weight", 0 },
    { SLOT_GATE, "model.layers.{l}.mlp.gate_up_proj.weight", 1 },
    { SLOT_DOWN, "model.layers.{l}.mlp.down_proj.weight", 0 },
};
static const struct name_row rows_olmo[] = {
    { SLOT_MIX_POST, "model.layers.{l}.post_attention_layernorm.weight", 0 },
    { SLOT_FFN_POST, "model.layers.{l}.post_feedforward_layernorm.weight", 0 },
};
static const struct name_row rows_gemma[] = {
    { SLOT_MIX_POST, "model.layers.{l}.post_attention_layernorm.weight", 0 },
    { SLOT_FFN_NORM, "model.layers.{l}.pre_feedforward_layernorm.weight", 0 },
    { SLOT_FFN_POST, "model.layers.{l}.post_feedforward_layernorm.weight", 0 },
};
static const struct name_row rows_gemma4[] = {
    { SLOT_PLE_EMBED, "model.embed_tokens_per_layer.weight", 0 },
    { SLOT_PLE_PROJ, "model.per_layer_model_projection.weight", 0 },
    { SLOT_PLE_NORM, "model.per_layer_projection_norm.weight", 0 },
    { SLOT_SCALAR, "model.layers.{l}.layer_scalar", 0 },
    { SLOT_PLE_GATE, "model.layers.{l}.per_layer_input_gate.weight", 0 },
    { SLOT_PLE_BACK, "model.layers.{l}.per_layer_projection.weight", 0 },
    { SLOT_PLE_POST, "model.layers.{l}.post_per_layer_input_norm.weight", 0 },
    { SLOT_ROUTER, "model.layers.{l}.router.proj.weight", 0 },
    { SLOT_ROUTER_SCALE, "model.layers.{l}.router.scale", 0 },
    { SLOT_EXPERT_SCALE, "model.layers.{l}.router.per_expert_scale", 0 },
    { SLOT_DENSE_POST, "model.layers.{l}.post_feedforward_layernorm_1.weight", 0 },
    { SLOT_MOE_NORM, "model.layers.{l}.pre_feedforward_layernorm_2.weight", 0 },
    { SLOT_MOE_POST, "model.layers.{l}.post_feedforward_layernorm_2.weight", 0 },
    { SLOT_X_GATE, "model.layers.{l}.experts.gate_up_proj", 1 },
    { SLOT_X_DOWN, "model.layers.{l}.experts.down_proj", 0 },
    { SLOT_X_GATE, "model.layers.{l}.experts.{e}.gate_proj.weight", 0 },
    { SLOT_X_UP, "model.layers.{l}.experts.{e}.up_proj.weight", 0 },
    { SLOT_X_DOWN, "model.layers.{l}.experts.{e}.down_proj.weight", 0 },
};
static const struct name_row rows_hunyuan[] = {
    { SLOT_Q_NORM, "model.layers.{l}.self_attn.query_layernorm.weight", 0 },
    { SLOT_K_NORM, "model.layers.{l}.self_attn.key_layernorm.weight", 0 },
};
static const struct name_row rows_glm[] = {
    { SLOT_GATE, "model.layers.{l}.mlp.gate_up_proj.weight", 1 },
};
/* post_attention_layernorm is the norm before the feed-forward, as in Llama. */
static const struct name_row rows_glm4[] = {
    { SLOT_MIX_POST, "model.layers.{l}.post_self_attn_layernorm.weight", 0 },
    { SLOT_FFN_POST, "model.layers.{l}.post_mlp_layernorm.weight", 0 },
};
static const struct name_row rows_starcoder2[] = {
    { SLOT_NORM_BIAS, "model.norm.bias", 0 },
    { SLOT_MIX_NORM_BIAS, "model.layers.{l}.input_layernorm.bias", 0 },
    { SLOT_FFN_NORM_BIAS, "model.layers.{l}.post_attention_layernorm.bias", 0 },
    { SLOT_UP, "model.layers.{l}.mlp.c_fc.weight", 0 },
    { SLOT_UP_BIAS, "model.layers.{l}.mlp.c_fc.bias", 0 },
    { SLOT_DOWN, "model.layers.{l}.mlp.c_proj.weight", 0 },
    { SLOT_DOWN_BIAS, "model.layers.{l}.mlp.c_proj.bias", 0 },
};
/* The first names are those of today, and LayerNorm's gamma and beta are those of the oldest files. */
static const struct name_row rows_bert[] = {
    { SLOT_EMBED, "embeddings.word_embeddings.weight", 0 },
    { SLOT_POS_EMBED, "embeddings.position_embeddings.weight", 0 },
    { SLOT_TYPE_EMBED, "embeddings.token_type_embeddings.weight", 0 },
    { SLOT_EMBED_NORM, "embeddings.LayerNorm.weight", 0 },
    { SLOT_EMBED_NORM, "embeddings.LayerNorm.gamma", 0 },
    { SLOT_EMBED_NORM_BIAS, "embeddings.LayerNorm.bias", 0 },
    { SLOT_EMBED_NORM_BIAS, "embeddings.LayerNorm.beta", 0 },
    { SLOT_Q, "encoder.layer.{l}.attention.self.query.weight", 0 },
    { SLOT_K, "encoder.layer.{l}.attention.self.key.weight", 0 },
    { SLOT_V, "encoder.layer.{l}.attention.self.value.weight", 0 },
    { SLOT_O, "encoder.layer.{l}.attention.output.dense.weight", 0 },
    { SLOT_Q_BIAS, "encoder.layer.{l}.attention.self.query.bias", 0 },
    { SLOT_K_BIAS, "encoder.layer.{l}.attention.self.key.bias", 0 },
    { SLOT_V_BIAS, "encoder.layer.{l}.attention.self.value.bias", 0 },
    { SLOT_O_BIAS, "encoder.layer.{l}.attention.output.dense.bias", 0 },
    { SLOT_MIX_POST, "encoder.layer.{l}.attention.output.LayerNorm.weight", 0 },
    { SLOT_MIX_POST, "encoder.layer.{l}.attention.output.LayerNorm.gamma", 0 },
    { SLOT_MIX_POST_BIAS, "encoder.layer.{l}.attention.output.LayerNorm.bias", 0 },
    { SLOT_MIX_POST_BIAS, "encoder.layer.{l}.attention.output.LayerNorm.beta", 0 },
    { SLOT_UP, "encoder.layer.{l}.intermediate.dense.weight", 0 },
    { SLOT_UP_BIAS, "encoder.layer.{l}.intermediate.dense.bias", 0 },
    { SLOT_DOWN, "encoder.layer.{l}.output.dense.weight", 0 },
    { SLOT_DOWN_BIAS, "encoder.layer.{l}.output.dense.bias", 0 },
    { SLOT_FFN_POST, "encoder.layer.{l}.output.LayerNorm.weight", 0 },
    { SLOT_FFN_POST, "encoder.layer.{l}.output.LayerNorm.gamma", 0 },
    { SLOT_FFN_POST_BIAS, "encoder.layer.{l}.output.LayerNorm.bias", 0 },
    { SLOT_FFN_POST_BIAS, "encoder.layer.{l}.output.LayerNorm.beta", 0 },
};
static const struct name_row rows_bert_head[] = {
    { SLOT_SCORE_DENSE, "pooler.dense.weight", 0 },
    { SLOT_SCORE_DENSE_BIAS, "pooler.dense.bias", 0 },
    { SLOT_SCORE, "classifier.weight", 0 },
    { SLOT_SCORE_BIAS, "classifier.bias", 0 },
};
static const struct name_row rows_roberta_head[] = {
    { SLOT_SCORE_DENSE, "classifier.dense.weight", 0 },
    { SLOT_SCORE_DENSE_BIAS, "classifier.dense.bias", 0 },
    { SLOT_SCORE, "classifier.out_proj.weight", 0 },
    { SLOT_SCORE_BIAS, "classifier.out_proj.bias", 0 },
};
/* Numbers that are counted anyway, and the heads of what the model was trained for. */
static const char *const     ignored_bert[] = { "embeddings.position_ids", "pooler.", "cls.", "lm_head.", NULL };
static const struct name_row rows_modernbert[] = {
    { SLOT_EMBED, "embeddings.tok_embeddings.weight", 0 },
    { SLOT_EMBED_NORM, "embeddings.norm.weight", 0 },
    { SLOT_NORM, "final_norm.weight", 0 },
    { SLOT_MIX_NORM, "layers.{l}.attn_norm.weight", 0 },
    { SLOT_Q, "layers.{l}.attn.Wqkv.weight", 2 },
    { SLOT_O, "layers.{l}.attn.Wo.weight", 0 },
    { SLOT_FFN_NORM, "layers.{l}.mlp_norm.weight", 0 },
    { SLOT_GATE, "layers.{l}.mlp.Wi.weight", 1 },
    { SLOT_DOWN, "layers.{l}.mlp.Wo.weight", 0 },
};
static const char *const ignored_modernbert[] = { "head.", "decoder.", NULL };
/* Encoders that rotate and norm behind each part, as transformers names their tensors. */
static const struct name_row rows_turned[] = {
    { SLOT_EMBED, "embeddings.word_embeddings.weight", 0 },
    { SLOT_TYPE_EMBED, "embeddings.token_type_embeddings.weight", 0 },
    { SLOT_EMBED_NORM, "embeddings.LayerNorm.weight", 0 },
    { SLOT_EMBED_NORM_BIAS, "embeddings.LayerNorm.bias", 0 },
    { SLOT_Q, "layers.{l}.self_attn.q_proj.weight", 0 },
    { SLOT_K, "layers.{l}.self_attn.k_proj.weight", 0 },
    { SLOT_V, "layers.{l}.self_attn.v_proj.weight", 0 },
    { SLOT_O, "layers.{l}.self_attn.o_proj.weight", 0 },
    { SLOT_Q_BIAS, "layers.{l}.self_attn.q_proj.bias", 0 },
    { SLOT_K_BIAS, "layers.{l}.self_attn.k_proj.bias", 0 },
    { SLOT_V_BIAS, "layers.{l}.self_attn.v_proj.bias", 0 },
    { SLOT_O_BIAS, "layers.{l}.self_attn.o_proj.bias", 0 },
    { SLOT_MIX_POST, "layers.{l}.post_attention_layernorm.weight", 0 },
    { SLOT_MIX_POST_BIAS, "layers.{l}.post_attention_layernorm.bias", 0 },
    { SLOT_GATE, "layers.{l}.mlp.gate_proj.weight", 0 },
    { SLOT_UP, "layers.{l}.mlp.up_proj.weight", 0 },
    { SLOT_DOWN, "layers.{l}.mlp.down_proj.weight", 0 },
    { SLOT_DOWN_BIAS, "layers.{l}.mlp.down_proj.bias", 0 },
    { SLOT_FFN_POST, "layers.{l}.post_mlp_layernorm.weight", 0 },
    { SLOT_FFN_POST_BIAS, "layers.{l}.post_mlp_layernorm.bias", 0 },
};
/* The same as they were first published. */
static const struct name_row rows_nomic[] = {
    { SLOT_EMBED_NORM, "emb_ln.weight", 0 },
    { SLOT_EMBED_NORM_BIAS, "emb_ln.bias", 0 },
    { SLOT_Q, "encoder.layers.{l}.attn.Wqkv.weight", 2 },
    { SLOT_O, "encoder.layers.{l}.attn.out_proj.weight", 0 },
    { SLOT_MIX_POST, "encoder.layers.{l}.norm1.weight", 0 },
    { SLOT_MIX_POST_BIAS, "encoder.layers.{l}.norm1.bias", 0 },
    { SLOT_GATE, "encoder.layers.{l}.mlp.fc12.weight", 0 },
    { SLOT_UP, "encoder.layers.{l}.mlp.fc11.weight", 0 },
    { SLOT_DOWN, "encoder.layers.{l}.mlp.fc2.weight", 0 },
    { SLOT_FFN_POST, "encoder.layers.{l}.norm2.weight", 0 },
    { SLOT_FFN_POST_BIAS, "encoder.layers.{l}.norm2.bias", 0 },
};
static const struct name_row rows_gte[] = {
    { SLOT_Q, "encoder.layer.{l}.attention.qkv_proj.weight", 2 },
    { SLOT_Q_BIAS, "encoder.layer.{l}.attention.qkv_proj.bias", 2 },
    { SLOT_O, "encoder.layer.{l}.attention.o_proj.weight", 0 },
    { SLOT_O_BIAS, "encoder.layer.{l}.attention.o_proj.bias", 0 },
    { SLOT_MIX_POST, "encoder.layer.{l}.attn_ln.weight", 0 },
    { SLOT_MIX_POST_BIAS, "encoder.layer.{l}.attn_ln.bias", 0 },
    { SLOT_GATE, "encoder.layer.{l}.mlp.up_gate_proj.weight", 1 },
    { SLOT_DOWN, "encoder.layer.{l}.mlp.down_proj.weight", 0 },
    { SLOT_DOWN_BIAS, "encoder.layer.{l}.mlp.down_proj.bias", 0 },
    { SLOT_FFN_POST, "encoder.layer.{l}.mlp_ln.weight", 0 },
    { SLOT_FFN_POST_BIAS, "encoder.layer.{l}.mlp_ln.bias", 0 },
};
/* Under both names: transformers', then those of the first files. */
static const struct name_row rows_jina[] = {
    { SLOT_UP, "layers.{l}.mlp.fc1.weight", 0 },
    { SLOT_UP_BIAS, "layers.{l}.mlp.fc1.bias", 0 },
    { SLOT_DOWN, "layers.{l}.mlp.fc2.weight", 0 },
    { SLOT_DOWN_BIAS, "layers.{l}.mlp.fc2.bias", 0 },
    { SLOT_EMBED_NORM, "emb_ln.weight", 0 },
    { SLOT_EMBED_NORM_BIAS, "emb_ln.bias", 0 },
    { SLOT_Q, "encoder.layers.{l}.mixer.Wqkv.weight", 2 },
    { SLOT_Q_BIAS, "encoder.layers.{l}.mixer.Wqkv.bias", 2 },
    { SLOT_O, "encoder.layers.{l}.mixer.out_proj.weight", 0 },
    { SLOT_O_BIAS, "encoder.layers.{l}.mixer.out_proj.bias", 0 },
    { SLOT_MIX_POST, "encoder.layers.{l}.norm1.weight", 0 },
    { SLOT_MIX_POST_BIAS, "encoder.layers.{l}.norm1.bias", 0 },
    { SLOT_UP, "encoder.layers.{l}.mlp.fc1.weight", 0 },
    { SLOT_UP_BIAS, "encoder.layers.{l}.mlp.fc1.bias", 0 },
    { SLOT_DOWN, "encoder.layers.{l}.mlp.fc2.weight", 0 },
    { SLOT_DOWN_BIAS, "encoder.layers.{l}.mlp.fc2.bias", 0 },
    { SLOT_FFN_POST, "encoder.layers.{l}.norm2.weight", 0 },
    { SLOT_FFN_POST_BIAS, "encoder.layers.{l}.norm2.bias", 0 },
};
static const char *const ignored_turned[] = { "pooler.", "classifier.", "cls.", "lm_head.", NULL };
#define ROWS(r)   .row = (r), .n_row = sizeof(r) / sizeof *(r)
#define STACKS(s) .stack = (s), .n_stack = sizeof(s) / sizeof *(s)
const struct model_names        names_llama = { ROWS(rows_llama) };
const struct model_names        names_mixtral = { ROWS(rows_mixtral), .base = &names_llama };
const struct model_names        names_olmo = { ROWS(rows_olmo), .base = &names_llama };
const struct model_names        names_gemma = { ROWS(rows_gemma), .base = &names_llama };
const struct model_names        names_gemma4 = { ROWS(rows_gemma4), .base = &names_gemma };
const struct model_names        names_hunyuan = { ROWS(rows_hunyuan), .base = &names_llama };
static const struct model_names names_mlp_experts = { ROWS(rows_mlp_experts), .base = &names_llama };
const struct model_names        names_qwen_moe = { ROWS(rows_qwen_moe), .base = &names_mlp_experts };
const struct model_names        names_qwen2_moe = { ROWS(rows_qwen2_moe), .base = &names_qwen_moe };
const struct model_names        names_glm_moe = { ROWS(rows_glm_moe), .base = &names_qwen_moe };
const struct model_names        names_mellum = { .base = &names_qwen_moe, .ignored = ignored_mtp };
const struct model_names names_exaone_moe = { ROWS(rows_exaone_moe), .base = &names_glm_moe, .ignored = ignored_mtp };
const struct model_names names_ernie_moe = { ROWS(rows_ernie_moe), .base = &names_glm_moe };
const struct model_names names_minimax = { ROWS(rows_minimax), .base = &names_mixtral };
const struct model_names names_gpt_oss = { ROWS(rows_gpt_oss), STACKS(stacks_gpt_oss), .base = &names_mlp_experts };
const struct model_names names_qwen_vl_moe = { ROWS(rows_qwen_vl_moe), STACKS(stacks_qwen_vl_moe),
                                               .base = &names_qwen_moe };
const struct model_names names_starcoder2 = { ROWS(rows_starcoder2), .base = &names_llama };
const struct model_names names_glm = { ROWS(rows_glm), .base = &names_llama };
const struct model_names names_glm4 = { ROWS(rows_glm4), .base = &names_glm };
const struct model_names names_granite_moe = { ROWS(rows_granite_moe), .base = &names_llama };
const struct model_names names_llama4 = { ROWS(rows_llama4), STACKS(stacks_llama4), .base = &names_llama };
const struct model_names names_phi3 = { ROWS(rows_phi3) };
static const struct model_names names_bert_layers = { ROWS(rows_bert) };
const struct model_names        names_bert = { ROWS(rows_bert_head), .base = &names_bert_layers, .prefix = "bert.",
                                               .ignored = ignored_bert };
const struct model_names names_roberta = { ROWS(rows_roberta_head), .base = &names_bert_layers, .prefix = "roberta.",
                                           .ignored = ignored_bert };
const struct model_names names_modernbert = { ROWS(rows_modernbert), .prefix = "model.",
                                              .ignored = ignored_modernbert };
static const struct model_names names_turned = { ROWS(rows_turned) };
static const struct model_names names_turned_bert = { ROWS(rows_bert_head), .base = &names_turned };
static const struct model_names names_turned_roberta = { ROWS(rows_roberta_head), .base = &names_turned };
const struct model_names        names_nomic = { ROWS(rows_nomic), .base = &names_turned_bert, .prefix = "nomic_bert.",
                                                .ignored = ignored_turned };
const struct model_names        names_gte = { ROWS(rows_gte),       .base = &names_turned_bert, .prefix = "gte.",
                                              .prefix_old = "new.", .up_first = true,           .ignored = ignored_turned };
const struct model_names        names_jina = { ROWS(rows_jina), .base = &names_turned_roberta, .prefix = "roberta.",
                                               .ignored = ignored_turned };

/* What embedders leave out, which were saved without a head. */
static const char before_model[] = "model.";

/* A number as checkpoints write it: no sign, no leading zero, at most 6 digits. NULL: not one. */
static const char *name_number(const char *s, uint32_t *out)
{
    uint32_t v = 0, n = 0;
    for (; n < 7 && s[n] >= '0' && s[n] <= '9'; n++) v = v * 10 + (uint32_t)(s[n] - '0');
    if (n == 0 || n > 6 || (n > 1 && s[0] == '0')) return NULL;
    *out = v;
    return s + n;
}

static bool name_row_match(const char *p, const char *s, uint32_t *layer, uint32_t *expert)
{
    while (*p && s) {
        if (*p == '{') {
            s = name_number(s, p[1] == 'l' ? layer : expert);
            p += 3;
        } else if (*p++ != *s++) {
            return false;
        }
    }
    return s && !*p && !*s;
}

static bool has_prefix(const char *s, const char *p) { return !strncmp(s, p, strlen(p)); }

static const char *names_strip(const struct model_names *names, const char *tensor)
{
    const char *const prefix[] = { names->prefix, names->prefix_old };
    for (int i = 0; i < 2; i++)
        if (prefix[i] && has_prefix(tensor, prefix[i])) return tensor + strlen(prefix[i]);
    return tensor;
}

const struct name_row *names_row(const struct model_names *names, const char *tensor, uint32_t *layer_out,
                                 uint32_t *expert_out)
{
    tensor = names_strip(names, tensor);
    for (; names; names = names->base)
        for (uint32_t i = 0; i < names->n_row; i++) {
            uint32_t    l = 0, e = 0;
            const char *pattern = names->row[i].pattern;
            bool        matches = name_row_match(pattern, tensor, &l, &e);
            if (!matches && has_prefix(pattern, before_model)) {
                l = e = 0;
                matches = name_row_match(pattern + strlen(before_model), tensor, &l, &e);
            }
            if (!matches) continue;
            *layer_out = l;
            *expert_out = e;
            return &names->row[i];
        }
    return NULL;
}

bool names_match(const struct model_names *names, const char *tensor, enum slot *slot_out, uint32_t *layer_out,
                 uint32_t *expert_out)
{
    const struct name_row *row = names_row(names, tensor, layer_out, expert_out);
    if (row) *slot_out = row->slot;
    return row != NULL;
}

bool name_row_all_experts(const struct name_row *row)
{
    return row->slot >= SLOT_EXPERT_FIRST && !strstr(row->pattern, "{e}");
}

const struct name_stack *names_stack(const struct model_names *names, const char *tensor, uint32_t *layer_out)
{
    for (; names; names = names->base)
        for (uint32_t i = 0; i < names->n_stack; i++) {
            uint32_t l = 0, none = 0;
            if (!name_row_match(names->stack[i].pattern, tensor, &l, &none)) continue;
            *layer_out = l;
            return &names->stack[i];
        }
    return NULL;
}

static const char *name_of(const char *pattern, uint32_t layer, uint32_t expert, char *text, uint64_t text_bytes)
{
    uint64_t n = 0;
    for (const char *p = pattern; *p && n < text_bytes; p++)
        if (*p == '{') {
            n += (uint64_t)snprintf(text + n, text_bytes - n, "%u", p[1] == 'l' ? layer : expert);
            p += 2;
        } else {
            n += (uint64_t)snprintf(text + n, text_bytes - n, "%c", *p);
        }
    return text;
}

const char *names_of(const struct model_names *names, enum slot slot, uint32_t layer, uint32_t expert, bool own,
                     char *text, uint64_t text_bytes)
{
    for (; names; names = names->base) {
        for (uint32_t i = 0; i < names->n_row; i++) {
            const struct name_row *row = &names->row[i];
            if (slot >= row->slot && slot <= row->slot + row->more && !(own && name_row_all_experts(row)))
                return name_of(row->pattern, layer, expert, text, text_bytes);
        }
        for (uint32_t i = 0; i < names->n_stack && !own; i++)
            if (slot >= names->stack[i].slot && slot < names->stack[i].slot + names->stack[i].n_slot)
                return name_of(names->stack[i].pattern, layer, expert, text, text_bytes);
    }
    return NULL;
}

static bool has_suffix(const char *s, const char *p)
{
    size_t n = strlen(s), k = strlen(p);
    return n >= k && !strcmp(s + n - k, p);
}

bool names_ignorable(const struct model_names *names, const char *tensor, bool wrapper)
{
    static const char *const parts[] = { "vision_tower.",          "vision_model.",   "visual.",
                                         "multi_modal_projector.", "vision_encoder.", "vision_language_adapter.",
                                         "patch_merger.",          "image_newline",   "audio_tower.",
                                         "vision_embedder.",       "embed_vision.",   "embed_audio." };
    if (has_suffix(tensor, ".rotary_emb.inv_freq")) return true;
    for (const char *const *p = names->ignored; p && *p; p++)
        if (has_prefix(names_strip(names, tensor), *p)) return true;
    if (!wrapper) return false;
    if (has_prefix(tensor, "model.")) tensor += strlen("model.");
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (has_prefix(tensor, parts[i])) return true;
    return false;
}

const char *names_unwrap(const char *tensor, char *text, uint64_t text_bytes)
{
    static const char before[] = "language_model.", after[] = "model.language_model.";
    if (has_prefix(tensor, before)) return tensor + strlen(before);
    if (!has_prefix(tensor, after)) return tensor;
    int n = snprintf(text, text_bytes, "model.%s", tensor + strlen(after));
    return n >= 0 && (uint64_t)n < text_bytes ? text : tensor;
}
