/* model_impl: the inside of struct model, and how its parts are placed.   Private to engine/model/.
 * Every part (a mix, an ffn) has two functions: place names its weights and where each comes from, run computes with them.
 * model_plan and model_load walk the same place functions, so the plan is what loading takes, by construction. */
#pragma once
#include "engine/model/ident.h"
#include "engine/model/model.h"
#include <stdatomic.h>

struct model;
struct place;
struct kept_rows {
    const uint32_t *row; /* [n], as dev_step.logit_row: the device reads it, UINT32_MAX is padding */
    uint32_t        n;
};
struct layer {
    /* m->h [n_row, hidden] -> m->delta [n_row, hidden], summed over the ranks. keep, or NULL: the KV of all rows, but delta is
     * [keep->n, hidden], of those rows alone; with none of them it is left as it is */
    void (*mix)(struct model *m, const struct dev_batch *b, uint32_t l, const struct kept_rows *keep);
    void (*ffn)(struct model *m, uint32_t n_row, uint32_t l);
    float *mix_norm, *ffn_norm; /* [hidden] */
    struct {
        struct dev_weight qkv;                                 /* [(n_head + 2 n_kv_head) head_dim, hidden]: q, k, v rows of this rank */
        struct dev_weight o;                                   /* [hidden, n_head head_dim]: columns of this rank */
        float            *qkv_bias, *o_bias, *q_norm, *k_norm; /* or NULL; o_bias on rank 0 alone, the sum has it once */
        uint32_t         *qkv_order, *o_order;                 /* [k] which input comes at each place of the matrix's; NULL: its own */
        uint32_t          window;
    } gqa;
    struct {
        struct dev_weight gate_up, down; /* [2 inter, hidden]: gate rows, then up rows; [hidden, inter] */
        float            *gate_up_bias, *down_bias;
        uint32_t         *gate_up_order, *down_order; /* as above */
    } dense;
    struct {
        struct dev_weight  router;         /* [n_expert, hidden], whole on every rank */
        struct dev_weight *gate_up, *down; /* [n_expert] of [2 inter, hidden] and [hidden, inter] */
    } moe;
};

struct model {
    struct device *dev;
    /* of this rank */
    uint32_t          n_layer, hidden, n_head, n_kv_head, head_dim, inter, moe_inter, vocab, n_expert, top_k_expert, rot;
    bool              norm_topk;
    enum op_act       act;
    float             eps, rope_scale;
    float            *inv_freq; /* [rot / 2] */
    struct layer     *layer;
    struct dev_weight embed;      /* [vocab, hidden], whole on every rank */
    struct dev_weight head;       /* [vocab or vocab / n_rank, hidden]; no data: tied, and embed serves */
    bool              head_split; /* head holds this rank's rows of the vocabulary only */
    float            *norm;
    struct dev_kv     kv;
    uint32_t          rows_max, logit_rows_max;
    /* workspaces, act: [rows_max, .] and [logit_rows_max, .]. wide: qkv, then gate_up; narrow: attention out, then the gated */
    void                 *x, *h, *delta, *wide, *narrow, *router, *top_x, *top_delta;
    void                 *sorted;               /* inputs of a matrix in another order; no place where no matrix has one */
    float                *logits, *logits_part; /* F32 [logit_rows_max, vocab], [logit_rows_max, vocab / n_rank] */
    unsigned char         ident[IDENT_BYTES];
    _Atomic(const char *) at_part; /* for model_where: static text */
    _Atomic uint32_t      at_layer;
};

/* Where one (part of a) tensor goes: rows [src_row, + n_row) and columns [src_col, + w->k) to rows dst_row of w;
 * or of a vector elements [src_row, + n_row) to vec + dst_row. */
struct place_job {
    const struct st_tensor *tensor; /* NULL: dummy */
    enum slot               slot;
    uint32_t                layer, expert;
    struct dev_weight      *w;
    float                  *vec;
    uint32_t               *order; /* [n_row]: what a PART_INDEX says, as one row */
    uint32_t                dst_row, src_row, n_row, src_col;
};
struct place {
    const struct model_spec *spec;
    struct device           *dev;
    uint32_t                 rank, n_rank;
    enum dtype               weight_dtype;
    struct dev_quant         quant;          /* of the linear ones; code F32: none are codes */
    bool                     quant_head;     /* of embedding and head too */
    struct model            *m;              /* the sizes of this rank; when planning no weights in it */
    const struct bind       *bind;           /* NULL: planning */
    uint64_t                 bytes, reduced; /* reduced: of alloc_reduced, in bytes too */
    void                    *at;             /* of the last place_align */
    struct ident            *ident;          /* takes what is read; NULL: nobody wants to know */
    struct place_job        *job;
    uint32_t                 n_job, cap_job;
    enum status              st; /* the first failure sticks */
    /* NULL, or: told of each matrix that linear or logits multiplies with; then dev is not asked for anything */
    void (*matrix)(void *ctx, uint32_t n, uint32_t k);
    void *matrix_ctx;
};
/* slot: of the matrix's first rows; what it is and what the checkpoint has there decide whether it may be codes. */
void place_matrix(struct place *p, struct dev_weight *w_out, uint32_t n, uint32_t k, enum slot slot, uint32_t layer);
/* The order of its inputs, where they have another: [k]. */
void place_order(struct place *p, uint32_t **order_out, uint32_t k, enum slot slot, uint32_t layer);
void place_rows(struct place *p, struct dev_weight *w, uint32_t dst_row, enum slot slot, uint32_t layer, uint32_t expert, uint32_t src_row,
                uint32_t n_row, uint32_t src_col);
void place_vector(struct place *p, float **v_out, uint32_t n);
void place_elements(struct place *p, float *v, uint32_t dst, enum slot slot, uint32_t layer, uint32_t src, uint32_t n);
void place_bytes(struct place *p, void **out, uint64_t bytes);

/* x [n_row, k], act, as a matrix of this order takes it: in m->sorted, or x itself. */
static inline const void *model_in_order(struct model *m, const void *x, const uint32_t *order, uint32_t n_row, uint32_t k)
{
    if (!order) return x;
    m->dev->ops->columns(m->dev, m->sorted, x, order, n_row, k);
    return m->sorted;
}

/* parts; layer is where the weights go */
void mix_gqa_place(struct place *p, struct layer *layer, uint32_t l);
void mix_gqa(struct model *m, const struct dev_batch *b, uint32_t l, const struct kept_rows *keep);
void ffn_dense_place(struct place *p, struct layer *layer, uint32_t l);
void ffn_dense(struct model *m, uint32_t n_row, uint32_t l);
void ffn_moe_place(struct place *p, struct layer *layer, uint32_t l);
void ffn_moe(struct model *m, uint32_t n_row, uint32_t l);

/* read.c: every job's bytes to the device, by several threads. */
enum status model_read(struct place *p, const struct model_load_cfg *cfg, char *err, size_t err_bytes);
/* dummy.c: numbers for every job instead: the same ones whatever the device and the number of ranks. */
void model_dummy(struct place *p, const struct model_load_cfg *cfg);
