/* place: where each part of a checkpoint goes in the arena of a device. A part of a model (a mix, an ffn, the head)
 * names its matrices and vectors, and for each the tensors that fill it; the names become jobs, which read.c or dummy.c
 * carry out. The same calls plan and load: without a checkpoint (bind NULL) they only sum up bytes, so the plan is what
 * loading takes, by construction.
 * Private to engine/model/.   Thread: the one that loads. */
#pragma once
#include "engine/model/bind.h"

struct ident;
struct model;

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
/* A matrix [n, k] as the device keeps weights, empty until place_rows fills it. slot: of its first rows; the slot and
 * what the checkpoint has there decide whether it is kept as codes. */
void place_matrix(struct place *p, struct dev_weight *w_out, uint32_t n, uint32_t k, enum slot slot, uint32_t layer);
/* The order of the inputs of a matrix, [k], where the checkpoint has another than their own; else order_out stays as it
 * is. */
void place_order(struct place *p, uint32_t **order_out, uint32_t k, enum slot slot, uint32_t layer);
/* Rows [dst_row, + n_row) of w are rows [src_row, + n_row) of a tensor, from its column src_col on. more than eight:
 * a place in the matrix, a name of a tensor and a place in it; each part of a layer writes one line for each of them. */
void place_rows(struct place *p, struct dev_weight *w, uint32_t dst_row, enum slot slot, uint32_t layer,
                uint32_t expert, uint32_t src_row, uint32_t n_row, uint32_t src_col);
/* A vector [n] of F32, empty until place_elements fills it: elements [dst, + n) of v are [src, + n) of a tensor. */
void place_vector(struct place *p, float **v_out, uint32_t n);
void place_elements(struct place *p, float *v, uint32_t dst, enum slot slot, uint32_t layer, uint32_t src, uint32_t n);
/* Memory of any use, aligned to PLACE_ALIGN; out is written when loading only. */
void place_bytes(struct place *p, void **out, uint64_t bytes);
/* The same, for what the ranks add up or gather. Every rank places the same, in the same order. */
void place_reduced(struct place *p, void **out, uint64_t bytes);
/* What is placed next begins where a file's pages may stand (p->at). */
void place_align(struct place *p);

enum { PLACE_ALIGN = 256 }; /* as devices align: the plan is what loading takes */
/* What n bytes take of the arena. */
static inline uint64_t place_arena_bytes(uint64_t n) { return (n + PLACE_ALIGN - 1) / PLACE_ALIGN * PLACE_ALIGN; }
