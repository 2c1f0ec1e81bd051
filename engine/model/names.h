/* names: checkpoint names -> our slots, one small table per naming scheme.   Thread: any, constant.
 * A pattern holds {l} where the layer's number stands and {e} where the expert's does. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

/* Everything that a layer or the model can want from a checkpoint; shapes in bind.c. */
enum slot {
    /* once */
    SLOT_EMBED,
    SLOT_NORM,
    SLOT_HEAD,
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
    /* per layer and expert */
    SLOT_X_GATE,
    SLOT_X_UP,
    SLOT_X_DOWN,
    SLOT_COUNT,
    SLOT_LAYER_FIRST = SLOT_MIX_NORM,
    SLOT_EXPERT_FIRST = SLOT_X_GATE
};

struct name_row {
    enum slot   slot;
    const char *pattern;
};
struct model_names {
    const struct model_names *base; /* rows that this scheme shares; NULL: none */
    const struct name_row    *row;
    uint32_t                  n_row;
};
extern const struct model_names names_llama, names_mixtral, names_qwen_moe;

/* Which slot of which layer and expert (0 where the slot has none) a checkpoint's tensor is. */
bool names_match(const struct model_names *names, const char *tensor, enum slot *slot_out, uint32_t *layer_out,
                 uint32_t *expert_out);
/* The other way; returns text, or NULL when the scheme has no such slot. */
const char *names_of(const struct model_names *names, enum slot slot, uint32_t layer, uint32_t expert, char *text,
                     uint64_t text_bytes);
/* Tensors that some checkpoints hold and nobody needs. wrapper: the other parts of a larger model too. */
bool names_ignorable(const char *tensor, bool wrapper);
/* Where a wrapper keeps its text part: "language_model.model.x", "model.language_model.x" -> "model.x". Returns text or
 * tensor. */
const char *names_unwrap(const char *tensor, char *text, uint64_t text_bytes);
