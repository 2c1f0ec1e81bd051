/* names: maps the names of a checkpoint's tensors to slots, with one small table per naming scheme.   Thread: any,
 * constant. In a pattern {l} stands for the layer's number and {e} for the expert's. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

/* All tensors that a layer or the model can need; bind.c has their shapes. */
enum slot {
    /* once */
    SLOT_EMBED,
    SLOT_NORM,
    SLOT_HEAD,
    SLOT_NORM_BIAS,
    SLOT_SCORE,     /* of classes (spec.n_label) */
    SLOT_PLE_EMBED, /* [vocab, layers * ple_dim] of each token, an input of every layer */
    SLOT_PLE_PROJ,  /* [layers * ple_dim, hidden] the same of the embedding */
    SLOT_PLE_NORM,
    SLOT_SCORE_BIAS,
    SLOT_SCORE_DENSE, /* what an encoder's state goes through before */
    SLOT_SCORE_DENSE_BIAS,
    SLOT_EMBED_NORM, /* of the sum of the embeddings */
    SLOT_EMBED_NORM_BIAS,
    SLOT_POS_EMBED,  /* of positions */
    SLOT_TYPE_EMBED, /* of the first text of a pair and of the second */
    /* per layer */
    SLOT_MIX_NORM, /* before attention */
    SLOT_Q,
    SLOT_K,
    SLOT_V,
    SLOT_O,
    SLOT_Q_BIAS,
    SLOT_K_BIAS,
    SLOT_V_BIAS,
    SLOT_O_BIAS,
    SLOT_Q_NORM,
    SLOT_K_NORM,
    SLOT_FFN_NORM,
    SLOT_GATE,
    SLOT_UP,
    SLOT_DOWN,
    SLOT_GATE_BIAS,
    SLOT_UP_BIAS,
    SLOT_DOWN_BIAS,
    SLOT_ROUTER,
    SLOT_MIX_POST, /* of what attention made, before it is added */
    SLOT_FFN_POST,
    SLOT_MIX_NORM_BIAS,
    SLOT_FFN_NORM_BIAS,
    SLOT_ROUTER_BIAS, /* added to the scores by which experts are chosen */
    SLOT_S_GATE,      /* of the expert that all rows share */
    SLOT_S_UP,
    SLOT_S_DOWN,
    SLOT_S_WEIGHT, /* [1, hidden]: how much of the shared expert a row takes */
    SLOT_SINKS,    /* of each head */
    SLOT_ROUTER_LOGIT_BIAS,
    SLOT_X_GATE_UP_BIAS, /* of all experts: a gate's, an up's, a gate's ... of each */
    SLOT_X_DOWN_BIAS,
    SLOT_SCALAR,   /* [1] of the whole stream behind a layer */
    SLOT_PLE_GATE, /* [ple_dim, hidden] */
    SLOT_PLE_BACK, /* [hidden, ple_dim] */
    SLOT_PLE_POST,
    SLOT_ROUTER_SCALE, /* [hidden] of what the router reads */
    SLOT_EXPERT_SCALE, /* [experts] of their weights */
    SLOT_DENSE_POST,   /* norms of a feed-forward that has experts beside it: of what it made, */
    SLOT_MOE_NORM,     /* of what the experts read, */
    SLOT_MOE_POST,     /* and made */
    SLOT_MIX_POST_BIAS,
    SLOT_FFN_POST_BIAS,
    /* per layer and expert */
    SLOT_X_GATE,
    SLOT_X_UP,
    SLOT_X_DOWN,
    SLOT_X_GATE_BIAS, /* where an expert has tensors of its own, instead of SLOT_X_GATE_UP_BIAS and SLOT_X_DOWN_BIAS */
    SLOT_X_UP_BIAS,
    SLOT_X_OUT_BIAS,
    SLOT_COUNT,
    SLOT_LAYER_FIRST = SLOT_MIX_NORM,
    SLOT_EXPERT_FIRST = SLOT_X_GATE
};

/* A bit of a set of slots. */
#define SLOT_BIT(slot) (UINT64_C(1) << (slot))

/* A tensor of a matrix, or of the rows of `more` slots after the first as well. Of experts: without {e} in the pattern
 * it has those of all experts of a layer, [experts, rows, columns]. */
struct name_row {
    enum slot   slot;
    const char *pattern;
    uint32_t    more;
};
/* A tensor that holds a matrix of every expert of a layer, and in it the outputs of n_slot slots. By turns: the first
 * of `slot`, the first of the next slot, the second of `slot` ...; else all of `slot`, then all of the next. If a row
 * of the scheme has the same pattern, the shape tells which of them a tensor is.
 * e experts, n outputs of all slots, k inputs: */
enum stack_form {
    STACK_COLUMNS, /* [e, k, n] floats: an output is a column */
    STACK_BLOCKS,  /* [e, n, k / 32, 16] U8: MXFP4, two inputs a byte, the even one in the low half */
    STACK_SCALES   /* [e, n, k / 32] U8: of the blocks, powers of two, 127 above what they mean */
};
struct name_stack {
    const char     *pattern;
    enum slot       slot;
    uint32_t        n_slot;
    enum stack_form form;
    bool            turns;
};
struct model_names {
    const struct model_names *base; /* scheme whose rows this one shares; NULL: none */
    const struct name_row    *row;
    uint32_t                  n_row;
    const struct name_stack  *stack; /* [n_stack] */
    uint32_t                  n_stack;
    const char               *prefix;     /* may stand before each name; NULL: "model.", which patterns have */
    const char               *prefix_old; /* ... in files as they were first published; NULL: the same */
    bool                      up_first;   /* a tensor of gate and up has the rows of up before those of gate */
    const char *const *ignored; /* beginnings of names behind the prefix that nothing needs, to a NULL; or NULL */
};
extern const struct model_names names_llama, names_mixtral, names_qwen_moe, names_phi3, names_olmo, names_hunyuan,
    names_gemma, names_glm, names_glm4, names_starcoder2, names_qwen2_moe, names_glm_moe, names_exaone_moe,
    names_mellum, names_ernie_moe, names_minimax, names_granite_moe, names_gpt_oss, names_qwen_vl_moe, names_llama4,
    names_gemma4, names_bert, names_roberta, names_modernbert, names_nomic, names_gte, names_jina;

/* The row of a tensor, its layer and its expert (0 if the slot has none). A pattern's "model." may be missing in the
 * tensor's name. NULL: no pattern matches. */
const struct name_row *names_row(const struct model_names *names, const char *tensor, uint32_t *layer_out,
                                 uint32_t *expert_out);
/* The same of its slot alone: the first of those that the tensor holds. */
bool names_match(const struct model_names *names, const char *tensor, enum slot *slot_out, uint32_t *layer_out,
                 uint32_t *expert_out);
/* True if the tensors of a row hold the matrices of all experts of a layer. */
bool name_row_all_experts(const struct name_row *row);
/* The stack that a tensor is, and its layer; NULL: it is none. */
const struct name_stack *names_stack(const struct model_names *names, const char *tensor, uint32_t *layer_out);
/* The reverse mapping. Returns text; NULL: the scheme has no such slot. own: the name of a tensor that an expert has
 * for itself, where the scheme has names of both kinds. */
const char *names_of(const struct model_names *names, enum slot slot, uint32_t layer, uint32_t expert, bool own,
                     char *text, uint64_t text_bytes);
/* True for tensors that are not needed. wrapper: also the other parts of a larger model. */
bool names_ignorable(const struct model_names *names, const char *tensor, bool wrapper);
/* True for the weights of norms. */
static inline bool names_is_norm(enum slot s)
{
    return s == SLOT_NORM || s == SLOT_EMBED_NORM || s == SLOT_MIX_NORM || s == SLOT_MIX_POST || s == SLOT_FFN_NORM ||
           s == SLOT_FFN_POST || s == SLOT_Q_NORM || s == SLOT_K_NORM;
}
/* Removes a wrapper's prefix: "language_model.model.x", "model.language_model.x" -> "model.x". Returns text or
 * tensor. */
const char *names_unwrap(const char *tensor, char *text, uint64_t text_bytes);
