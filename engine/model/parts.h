/* parts: the tables of what a layer can be made of. A layer is a mix (rows of a sequence look at each other) and an ffn (each row by itself).
 * A part has one row here and a file of its own. place names its weights and where each comes from, run computes with them.
 * Private to engine/model/.   Thread: place: the one that loads; run: the rank's. */
#pragma once
#include "engine/model/model_impl.h"
#include "engine/model/place.h"

struct mix_part {
    /* The weights of layer l into `layer`. */
    void (*place)(struct place *p, struct layer *layer, uint32_t l);
    void (*run)(struct model *m, const struct dev_batch *b, uint32_t l, const struct kept_rows *keep); /* struct layer: mix */
};
struct ffn_part {
    void (*place)(struct place *p, struct layer *layer, uint32_t l);
    void (*run)(struct model *m, uint32_t n_row, uint32_t l); /* struct layer: ffn */
};

/* What layer l of a model is made of. */
const struct mix_part *parts_mix(const struct model_spec *spec, uint32_t l);
const struct ffn_part *parts_ffn(const struct model_spec *spec, uint32_t l);

/* mix_gqa.c, ffn_dense.c, ffn_moe.c: the functions of the rows */
void mix_gqa_place(struct place *p, struct layer *layer, uint32_t l);
void mix_gqa(struct model *m, const struct dev_batch *b, uint32_t l, const struct kept_rows *keep);
void ffn_dense_place(struct place *p, struct layer *layer, uint32_t l);
void ffn_dense(struct model *m, uint32_t n_row, uint32_t l);
void ffn_moe_place(struct place *p, struct layer *layer, uint32_t l);
void ffn_moe(struct model *m, uint32_t n_row, uint32_t l);
