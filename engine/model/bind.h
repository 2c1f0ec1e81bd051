/* bind: the checkpoint's tensors by slot, checked against the spec.   Thread: one while opening, any after.
 * bind_open -> bind_get_part* -> bind_close. After bind_open every tensor that the spec needs is present once, with the
 * right shape. A source without weights (dummy) has none. */
#pragma once
#include "engine/model/model.h"
#include "engine/model/names.h"
#include "engine/model/safetensors.h"
#include <string.h>

/* The tensors of a matrix of codes. Any other weight is a single PART_WEIGHT. */
enum part { PART_WEIGHT, PART_SCALE, PART_ZERO, PART_INDEX, PART_FACTOR /* of all scales */, PART_COUNT };
struct bind_row;
struct bind {
    struct st_set   *set;
    struct bind_row *row; /* sorted by slot, layer, expert */
    uint32_t         n_row;
};

/* Opens the checkpoint and finds the tensor of each weight that the spec names. src is borrowed until bind_close.
 * ST_CONFIG, ST_IO or ST_NOMEM, with a line in err. */
enum status bind_open(const struct model_spec *spec, const struct source *src, struct bind *b_out, char *err,
                      size_t err_bytes);
void        bind_close(struct bind *b);
/* NULL: the checkpoint has no such tensor (never for a tensor that the spec needs) */
const struct st_tensor *bind_get_part(const struct bind *b, enum slot slot, uint32_t layer, uint32_t expert,
                                      enum part part);
/* The row of its tensor at which a slot begins: a tensor may hold several (struct model_names). */
uint32_t bind_first_row(const struct bind *b, enum slot slot, uint32_t layer, uint32_t expert);
/* The stack that a matrix of experts lies in, with which of its outputs are the matrix's own; NULL: it has a tensor of
 * its own. */
const struct name_stack *bind_stacked(const struct bind *b, enum slot slot, uint32_t layer, uint32_t expert);
/* bind_stack.c: checks type and shape of a stack of layer l, or of its scales. ST_CONFIG: the fault in why. */
enum status bind_stack_check(const struct model_spec *s, const struct name_stack *stack, uint32_t layer, enum part part,
                             const struct st_tensor *t, char *why, size_t why_bytes);
/* The same of codes of all experts, rows of outputs: a matrix of shape for each, of more slots than one. */
enum status bind_all_check(const struct model_spec *s, enum part part, const struct st_tensor *t,
                           const uint64_t shape[2], uint32_t more, char *why, size_t why_bytes);
/* bind_quant.c: bit mask of the slots that rounding at load makes codes of, and of those that can be codes in a
 * checkpoint: also the projections of the layers' own inputs. */
uint64_t bind_linear_slots(void);
uint64_t bind_code_slots(void);
/* True if the spec's checkpoint stores this slot as codes. */
bool bind_is_codes(const struct model_spec *s, enum slot slot, uint32_t layer);
/* True if a tensor that bind_part_name identified as a PART_WEIGHT of a linear slot holds codes. name: bind_part_name's
 * input; plain: its output. */
bool bind_weight_is_codes(const struct model_spec *s, const struct st_tensor *t, const char *name, const char *plain);
/* Maps the name of a part to the name of the plain weight, and to the part. false: the checkpoint's method does not
 * need this tensor. */
bool bind_part_name(const struct model_spec *s, const char *tensor, char *plain, size_t plain_bytes,
                    enum part *part_out);
/* The reverse mapping, for messages. Returns text. */
const char *bind_part_text(const struct model_spec *s, enum part part, const char *plain, char *text,
                           size_t text_bytes);
/* Checks type and shape of a part of codes of a matrix [n, k]. ST_CONFIG: the fault in why. */
enum status bind_part_check(const struct model_spec *s, enum part part, const struct st_tensor *t, uint64_t n,
                            uint64_t k, char *why, size_t why_bytes);
bool        bind_part_needed(const struct model_spec *s, enum part part);
/* bind_want.c: true if the layer needs this slot; then also its shape (rank_out dimensions) and the keys of
 * config.json that determine the shape. */
bool bind_want(const struct model_spec *spec, enum slot slot, uint32_t layer, uint64_t shape_out[2], uint32_t *rank_out,
               const char **keys_out);
enum dtype bind_dtype(enum st_dtype t);
/* The tensor of a slot outside the layers; NULL: none. */
const struct st_tensor *bind_find(const struct model_spec *spec, const struct st_set *set, enum slot slot);

/* Element i of unaligned F32, BF16, F16 or E4M3 numbers. */
static inline float bind_float(const unsigned char *src, enum dtype t, size_t i)
{
    uint16_t h;
    float    f;
    if (t == DT_F32) {
        memcpy(&f, src + 4 * i, 4);
        return f;
    }
    if (t == DT_F8E4M3) return f8e4m3_to_f32(src[i]);
    memcpy(&h, src + 2 * i, 2);
    return t == DT_BF16 ? bf16_to_f32(h) : f16_to_f32(h);
}

/* True if codes of this slot are expanded to floats; if its inputs are sorted by group (struct model_layer_codes). */
static inline bool spec_floats(const struct model_spec *s, enum slot slot, uint32_t l)
{
    return s->layer_codes && s->layer_codes[l].floats >> slot & 1;
}
static inline bool spec_sorted(const struct model_spec *s, enum slot slot, uint32_t l)
{
    return s->layer_codes && s->layer_codes[l].sorted >> slot & 1;
}

/* True if the feed-forward of layer l has experts. */
static inline bool spec_layer_moe(const struct model_spec *s, uint32_t l)
{
    return s->layer_moe ? s->layer_moe[l] : s->family->ffn == FFN_MOE;
}

/* Does attention of layer l take a norm of the stream? Where the stream begins as a norm the first layer has none. */
static inline bool spec_pre_norm(const struct model_spec *s, uint32_t l)
{
    return !s->family->no_pre_norm && !(s->family->embed_norm && l == 0);
}
