/* parts: the tables of the parts of layers. A layer consists of a mix, in which the rows of a sequence see each other,
 * and an ffn, which treats each row by itself. Each part has one row here and a file of its own. place names its
 * weights and their tensors, run computes, and kv states the memory that it needs per token or sequence. Private to
 * engine/model/.   Thread: place: the one that loads; kv: any; run: the rank's. */
#pragma once
#include "engine/model/join.h"
#include "engine/model/place.h"

/* The lifetime of KV. */
enum kv_life {
    KV_LIFE_ALL,    /* a token's KV is kept as long as its sequence */
    KV_LIFE_WINDOW, /* a token's KV is kept until its sequence is `window` tokens further */
    KV_LIFE_STATE,  /* one state per sequence, changed by each of its tokens */
};
struct kv_need {
    enum kv_life life;
    uint32_t     window; /* KV_LIFE_WINDOW: a token sees itself and the window - 1 before it; else 0 */
    uint64_t     bytes;  /* on one rank: per token; KV_LIFE_STATE: per sequence */
};

struct mix_part {
    /* Places the weights of layer l into `layer`. */
    void (*place)(struct place *p, struct layer *layer, uint32_t l);
    void (*run)(struct model *m, const struct dev_batch *b, uint32_t l,
                const struct kept_rows *keep); /* struct layer: mix */
    /* The need of layer l on each of n_rank ranks, in numbers of type `kv`. */
    struct kv_need (*kv)(const struct model_spec *spec, uint32_t l, uint32_t n_rank, enum dtype kv);
};
struct ffn_part {
    void (*place)(struct place *p, struct layer *layer, uint32_t l);
    void (*run)(struct model *m, uint32_t n_row, uint32_t l); /* struct layer: ffn */
};

/* The parts of layer l. */
const struct mix_part *parts_mix(const struct model_spec *spec, uint32_t l);
const struct ffn_part *parts_ffn(const struct model_spec *spec, uint32_t l);

/* Bytes of one KV block on each of n_rank ranks: the needs of the mixes of all layers for block_tokens tokens, in the
 * order of the layers, without gaps. window_out NULL: one block holds all layers. Else layers with a window have blocks
 * of their own, of *window_out bytes. layer_out [n_layer] or NULL: the offset of each layer's bytes in its block. */
uint64_t parts_kv(const struct model_spec *spec, uint32_t n_rank, enum dtype kv, uint32_t block_tokens,
                  struct dev_kv_layer *layer_out, uint64_t *window_out);

/* mix_gqa.c, mix_mutual.c, ffn_dense.c, ffn_mlp.c, ffn_moe.c: the functions of the rows */
void           mix_gqa_place(struct place *p, struct layer *layer, uint32_t l);
void           mix_gqa(struct model *m, const struct dev_batch *b, uint32_t l, const struct kept_rows *keep);
struct kv_need mix_gqa_kv(const struct model_spec *spec, uint32_t l, uint32_t n_rank, enum dtype kv);
void           ffn_dense_place(struct place *p, struct layer *layer, uint32_t l);
/* The mix of encoders, whose weights mix_gqa_place names. */
void           mix_mutual(struct model *m, const struct dev_batch *b, uint32_t l, const struct kept_rows *keep);
struct kv_need mix_mutual_kv(const struct model_spec *spec, uint32_t l, uint32_t n_rank, enum dtype kv);
/* The feed-forwards. ffn_*_place names the weights of a layer; the others compute m->delta, [n_row, hidden], of
 * m->h. */
void ffn_dense(struct model *m, uint32_t n_row, uint32_t l);
void ffn_mlp_place(struct place *p, struct layer *layer, uint32_t l);
void ffn_mlp(struct model *m, uint32_t n_row, uint32_t l);
/* The expert that all rows share: its weights; this rank's part of what it makes of m->h, in m->shared [n_row,
 * hidden]. */
void ffn_shared_place(struct place *p, struct layer *layer, uint32_t l);
void ffn_shared(struct model *m, uint32_t n_row, uint32_t l);
/* The same for experts. */
void ffn_moe_place(struct place *p, struct layer *layer, uint32_t l);
void ffn_moe(struct model *m, uint32_t n_row, uint32_t l);
/* m->delta of the experts: the router reads `in` and leaves logits in m->router, the experts read x. Both are [n_row,
 * hidden]; `in` may be m->delta. */
void ffn_moe_experts(struct model *m, const void *in, const void *x, uint32_t n_row, uint32_t l);
void ffn_beside_place(struct place *p, struct layer *layer, uint32_t l);
void ffn_beside(struct model *m, uint32_t n_row, uint32_t l);
