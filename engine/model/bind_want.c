/* bind_want: which tensors a model has by its configuration: the shape of each slot, and the types of numbers. */
#include "engine/model/bind.h"

enum dtype bind_dtype(enum st_dtype t)
{
    switch (t) {
    case ST_DT_F32: return DT_F32;
    case ST_DT_BF16: return DT_BF16;
    case ST_DT_F16: return DT_F16;
    case ST_DT_F8E4M3: return DT_F8E4M3;
    case ST_DT_I32:
    case ST_DT_I8:
    case ST_DT_U8:
    case ST_DT_OTHER: break;
    }
    return DT_COUNT;
}

bool bind_want(const struct model_spec *s, enum slot slot, uint32_t layer, uint64_t shape[2], uint32_t *rank,
               const char **keys)
{
    if (slot < SLOT_LAYER_FIRST) layer = 0;
    uint64_t hd = spec_head_dim(s, layer), q = s->n_head * hd, kv = spec_n_kv_head(s, layer) * hd,
             inter = spec_inter(s, layer), ple = (uint64_t)s->n_layer * s->ple_dim;
    bool moe = slot >= SLOT_LAYER_FIRST && spec_layer_moe(s, layer), mlp = s->family->ffn == FFN_MLP;
    bool biased = moe && s->family->expert_bias, dense = !moe || s->moe_beside, beside = moe && s->moe_beside,
         own = spec_kv_layer(s, layer) == layer;
    bool stream = s->family->norm_stream, bias = s->family->norm == NORM_LAYER_BIAS,
         pre = !stream && spec_pre_norm(s, layer);
#define VECTOR(cond, n, k)    return shape[0] = (n), *rank = 1, *keys = (k), (cond)
#define MATRIX(cond, n, m, k) return shape[0] = (n), shape[1] = (m), *rank = 2, *keys = (k), (cond)
    switch (slot) {
    case SLOT_EMBED: MATRIX(true, s->vocab, s->hidden, "vocab_size x hidden_size");
    case SLOT_POS_EMBED:
        MATRIX(s->family->learned_pos, s->pos_first + (uint64_t)s->context, s->hidden,
               "max_position_embeddings x hidden_size");
    case SLOT_TYPE_EMBED: MATRIX(s->n_type > 0, s->n_type, s->hidden, "type_vocab_size x hidden_size");
    case SLOT_EMBED_NORM: VECTOR(s->family->embed_norm, s->hidden, "hidden_size");
    case SLOT_EMBED_NORM_BIAS: VECTOR(s->family->embed_norm && bias, s->hidden, "hidden_size");
    case SLOT_NORM: VECTOR(!stream, s->hidden, "hidden_size");
    case SLOT_NORM_BIAS: VECTOR(bias && !stream, s->hidden, "hidden_size");
    case SLOT_MIX_NORM_BIAS: VECTOR(bias && pre, s->hidden, "hidden_size");
    case SLOT_FFN_NORM_BIAS: VECTOR(bias && !stream && !s->family->parallel, s->hidden, "hidden_size");
    case SLOT_HEAD:
        MATRIX(!s->tied && !s->pool, s->vocab, s->hidden, "vocab_size x hidden_size, tie_word_embeddings false");
    case SLOT_SCORE_BIAS: VECTOR(s->n_label && s->family->dense_head, s->n_label, "labels of id2label");
    case SLOT_SCORE_DENSE:
        MATRIX(s->n_label && s->family->dense_head, s->hidden, s->hidden, "hidden_size x hidden_size");
    case SLOT_SCORE_DENSE_BIAS: VECTOR(s->n_label && s->family->dense_head, s->hidden, "hidden_size");
    case SLOT_SCORE: MATRIX(s->n_label, s->n_label, s->hidden, "labels of id2label x hidden_size");
    case SLOT_MIX_NORM: VECTOR(pre, s->hidden, "hidden_size");
    case SLOT_FFN_NORM: VECTOR(!s->family->no_pre_norm && !stream && !s->family->parallel, s->hidden, "hidden_size");
    case SLOT_MIX_POST:
    case SLOT_FFN_POST: VECTOR(s->family->post_norm || stream, s->hidden, "hidden_size");
    case SLOT_MIX_POST_BIAS:
    case SLOT_FFN_POST_BIAS: VECTOR(stream && bias, s->hidden, "hidden_size");
    case SLOT_Q: MATRIX(true, q, s->hidden, "num_attention_heads * head_dim x hidden_size");
    case SLOT_K: MATRIX(own, kv, s->hidden, "num_key_value_heads * head_dim x hidden_size");
    case SLOT_V: MATRIX(own && !spec_k_is_v(s, layer), kv, s->hidden, "num_key_value_heads * head_dim x hidden_size");
    case SLOT_O: MATRIX(true, s->hidden, q, "hidden_size x num_attention_heads * head_dim");
    case SLOT_Q_BIAS: VECTOR(s->qkv_bias, q, "num_attention_heads * head_dim, attention_bias");
    case SLOT_K_BIAS: VECTOR(s->qkv_bias && own, kv, "num_key_value_heads * head_dim, attention_bias");
    case SLOT_V_BIAS:
        VECTOR(s->qkv_bias && own && !spec_k_is_v(s, layer), kv, "num_key_value_heads * head_dim, attention_bias");
    case SLOT_O_BIAS: VECTOR(s->o_bias, s->hidden, "hidden_size, attention_bias");
    case SLOT_Q_NORM:
        if (s->family->qk_norm_mean)
            MATRIX(s->qk_norm, s->n_head, s->head_dim, "num_attention_heads x head_dim, use_qk_norm");
        VECTOR(s->qk_norm, s->family->qk_norm_whole ? q : hd, "num_attention_heads, head_dim");
    case SLOT_K_NORM:
        if (s->family->qk_norm_mean)
            MATRIX(s->qk_norm, s->n_kv_head, s->head_dim, "num_key_value_heads x head_dim, use_qk_norm");
        VECTOR(s->qk_norm && own, s->family->qk_norm_whole ? kv : hd, "num_key_value_heads, head_dim");
    case SLOT_GATE: MATRIX(dense && !mlp, inter, s->hidden, "intermediate_size x hidden_size");
    case SLOT_UP: MATRIX(dense, inter, s->hidden, "intermediate_size x hidden_size");
    case SLOT_DOWN: MATRIX(dense, s->hidden, inter, "hidden_size x intermediate_size");
    case SLOT_GATE_BIAS:
        VECTOR(!moe && !mlp && s->mlp_bias && !s->family->down_bias, s->inter, "intermediate_size, mlp_bias");
    case SLOT_UP_BIAS: VECTOR(!moe && s->mlp_bias && !s->family->down_bias, s->inter, "intermediate_size, mlp_bias");
    case SLOT_DOWN_BIAS: VECTOR(!moe && s->mlp_bias, s->hidden, "hidden_size, mlp_bias");
    case SLOT_ROUTER: MATRIX(moe, s->n_expert, s->hidden, "num_experts x hidden_size");
    case SLOT_ROUTER_BIAS: VECTOR(moe && s->router_bias, s->n_expert, "num_experts");
    case SLOT_S_GATE:
    case SLOT_S_UP:
        MATRIX(moe && s->shared_inter, s->shared_inter, s->hidden, "the shared expert's size x hidden_size");
    case SLOT_S_DOWN:
        MATRIX(moe && s->shared_inter, s->hidden, s->shared_inter, "hidden_size x the shared expert's size");
    case SLOT_S_WEIGHT: MATRIX(moe && s->shared_inter && s->family->shared_gate, 1, s->hidden, "1 x hidden_size");
    case SLOT_SINKS: VECTOR(s->family->sinks, s->n_head, "num_attention_heads");
    case SLOT_ROUTER_LOGIT_BIAS: VECTOR(biased, s->n_expert, "num_experts");
    case SLOT_X_GATE_UP_BIAS:
        MATRIX(biased && !s->own_biases, s->n_expert, 2 * (uint64_t)s->moe_inter,
               "num_experts x 2 * intermediate_size");
    case SLOT_X_DOWN_BIAS: MATRIX(biased && !s->own_biases, s->n_expert, s->hidden, "num_experts x hidden_size");
    case SLOT_X_GATE_BIAS:
    case SLOT_X_UP_BIAS: VECTOR(biased && s->own_biases, s->moe_inter, "intermediate_size");
    case SLOT_X_OUT_BIAS: VECTOR(biased && s->own_biases, s->hidden, "hidden_size");
    case SLOT_PLE_EMBED:
        MATRIX(ple > 0, s->ple_vocab, ple,
               "vocab_size_per_layer_input x num_hidden_layers * hidden_size_per_layer_input");
    case SLOT_PLE_PROJ:
        MATRIX(ple > 0, ple, s->hidden, "num_hidden_layers * hidden_size_per_layer_input x hidden_size");
    case SLOT_PLE_NORM: VECTOR(ple > 0, s->ple_dim, "hidden_size_per_layer_input");
    case SLOT_PLE_GATE: MATRIX(ple > 0, s->ple_dim, s->hidden, "hidden_size_per_layer_input x hidden_size");
    case SLOT_PLE_BACK: MATRIX(ple > 0, s->hidden, s->ple_dim, "hidden_size x hidden_size_per_layer_input");
    case SLOT_PLE_POST: VECTOR(ple > 0, s->hidden, "hidden_size");
    case SLOT_SCALAR: VECTOR(s->layer_scalar, 1, "one number");
    case SLOT_ROUTER_SCALE: VECTOR(beside, s->hidden, "hidden_size");
    case SLOT_EXPERT_SCALE: VECTOR(beside, s->n_expert, "num_experts");
    case SLOT_DENSE_POST:
    case SLOT_MOE_NORM:
    case SLOT_MOE_POST: VECTOR(beside, s->hidden, "hidden_size");
    case SLOT_X_GATE:
    case SLOT_X_UP: MATRIX(moe, s->moe_inter, s->hidden, "moe_intermediate_size x hidden_size");
    case SLOT_X_DOWN: MATRIX(moe, s->hidden, s->moe_inter, "hidden_size x moe_intermediate_size");
    case SLOT_COUNT: break;
    }
    return false;
}
