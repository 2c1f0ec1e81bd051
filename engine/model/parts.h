/* parts: the tables of what a layer can be made of. A layer is a mix (rows of a sequence look at each other) and an ffn
 * (each row by itself). A part has one row here and a file of its own. place names its weights and where each comes
 * from, run computes with them, kv says which memory of the sequence it needs.
 * Private to engine/model/.   Thread: place: the one that loads; kv: any; run: the rank's. */
#pragma once
#include "engine/model/model_impl.h"
#include "engine/model/place.h"

/* How long KV is needed. */
enum kv_life {
    KV_LIFE_ALL,    /* of every token, as long as its sequence */
    KV_LIFE_WINDOW, /* of a token, until its sequence is `window` tokens further */
    KV_LIFE_STATE,  /* one state for a sequence, which each of its tokens changes */
};
struct kv_need {
    enum kv_life life;
    uint32_t     window; /* KV_LIFE_WINDOW: a token sees itself and the window - 1 before it; else 0 */
    uint64_t     bytes;  /* on one rank: of a token; KV_LIFE_STATE: of a sequence */
};

struct mix_part {
    /* The weights of layer l into `layer`. */
    void (*place)(struct place *p, struct layer *layer, uint32_t l);
    void (*run)(struct model *m, const struct dev_batch *b, uint32_t l,
                const struct kept_rows *keep); /* struct layer: mix */
    /* What layer l keeps, on each of n_rank ranks, in numbers of type `kv`. */
    struct kv_need (*kv)(const struct model_spec *spec, uint32_t l, uint32_t n_rank, enum dtype kv);
};
struct ffn_part {
    void (*place)(struct place *p, struct layer *layer, uint32_t l);
    void (*run)(struct model *m, uint32_t n_row, uint32_t l); /* struct layer: ffn */
};

/* What layer l of a model is made of. */
const struct mix_part *parts_mix(const struct model_spec *spec, uint32_t l);
const struct ffn_part *parts_ffn(const struct model_spec *spec, uint32_t l);

/* The bytes of one KV block on each of n_rank ranks: what the mixes of all layers keep of block_tokens tokens, in order
 * of the layers and without gaps. layer_out: where each layer's bytes are in the block, [n_layer]; or NULL. */
uint64_t parts_kv(const struct model_spec *spec, uint32_t n_rank, enum dtype kv, uint32_t block_tokens,
                  struct dev_kv_layer *layer_out);

/* mix_gqa.c, ffn_dense.c, ffn_moe.c: the functions of the rows */
void           mix_gqa_place(struct place *p, struct layer *layer, uint32_t l);
void           mix_gqa(struct model *m, const struct dev_batch *b, uint32_t l, const struct kept_rows *keep);
struct kv_need mix_gqa_kv(const struct model_spec *spec, uint32_t l, uint32_t n_rank, enum dtype kv);
void           ffn_dense_place(struct place *p, struct layer *layer, uint32_t l);
void           ffn_dense(struct model *m, uint32_t n_row, uint32_t l);
void           ffn_moe_place(struct place *p, struct layer *layer, uint32_t l);
void           ffn_moe(struct model *m, uint32_t n_row, uint32_t l);
