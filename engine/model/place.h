/* place: the places of a checkpoint's tensors in the arena of a device. A part of a model (a mix, an ffn, the head)
 * names its matrices and vectors, and the tensors that fill each of them; the names become jobs, which read.c or
 * dummy.c carry out. The same calls plan and load: without a checkpoint (bind NULL) they only sum up bytes, so a plan
 * always equals what loading takes. Private to engine/model/.   Thread: the one that loads. */
#pragma once
#include "engine/model/bind.h"

struct ident;
struct model;

/* A copy of a tensor or a part of it: rows [src_row, + n_row), columns [src_col, + w->k) to rows [dst_row, + n_row) of
 * w; or, for a vector, elements [src_row, + n_row) to vec + dst_row. */
struct place_job {
    const struct st_tensor  *tensor; /* NULL: dummy */
    enum slot                slot;
    uint32_t                 layer, expert;
    struct dev_weight       *w;
    float                   *vec;
    uint32_t                *order; /* [n_row] or NULL: destination of a PART_INDEX, as one row */
    uint32_t                 dst_row, src_row, n_row, src_col;
    uint32_t                 head, rot; /* rows change places within each `head` rows (place_runs); head 0: none do */
    float                    plus;      /* added to each element of a vector */
    const struct name_stack *stack; /* tensor is one: the outputs of its further slots go behind those of the first */
    /* Of a vector that is a table: of each of n_row rows of the tensor, n_col elements from src_col on, `step` apart,
     * to vec + dst_row + row * pitch. n_col 0: an ordinary vector. */
    uint32_t n_col, step, pitch;
};
/* Rows of a job whose places in the device follow each other: src, src + step, ... to dst, dst + 1, ...; both count
 * from the job's first row. */
struct place_run {
    uint32_t src, dst, n, step;
};
struct place {
    const struct model_spec *spec;
    struct device           *dev;
    uint32_t                 rank, n_rank;
    enum dtype               weight_dtype;
    struct dev_quant         quant;           /* of linear matrices; code F32: none are codes */
    bool                     quant_head;      /* embedding and head get quant too */
    struct dev_quant         experts;         /* of the checkpoint's MXFP4; code F32: they become floats, or quant */
    uint64_t                 expert_bytes[2]; /* of experts that are MXFP4 in the file: here as well; not here */
    struct model            *m;               /* the sizes of this rank; without weights while planning */
    const struct bind       *bind;            /* NULL: planning */
    uint64_t                 bytes, reduced;  /* bytes: sum of all; reduced: part of it, from place_reduced */
    void                    *at;              /* address of the last place_align */
    struct ident            *ident;           /* digests what is read; NULL: none */
    struct place_job        *job;
    uint32_t                 n_job, cap_job;
    enum status              st; /* the first failure sticks */
    /* NULL, or called for each matrix of linear and logits; nothing is then allocated from dev. slot: of its first
     * rows */
    void (*matrix)(void *ctx, uint32_t n, uint32_t k, enum slot slot);
    void *matrix_ctx;
};
/* Allocates a matrix [n, k] in the device's form; place_rows fills it. slot: of its first rows. The slot and the
 * checkpoint's tensor there decide whether it is kept as codes. */
void place_matrix(struct place *p, struct dev_weight *w_out, uint32_t n, uint32_t k, enum slot slot, uint32_t layer);
/* The order of a matrix's inputs [k], if the checkpoint sorts them; otherwise *order_out is unchanged. */
void place_order(struct place *p, uint32_t **order_out, uint32_t k, enum slot slot, uint32_t layer);
/* Rows [dst_row, + n_row) of w are rows [src_row, + n_row) of a tensor, from its column src_col on. more than eight: a
 * place in the matrix, a name of a tensor and a place in it; each part of a layer writes one line for each of them. */
void place_rows(struct place *p, struct dev_weight *w, uint32_t dst_row, enum slot slot, uint32_t layer,
                uint32_t expert, uint32_t src_row, uint32_t n_row, uint32_t src_col);
/* Allocates a vector [n] of F32. place_elements fills elements [dst, + n) of v with elements [src, + n) of a tensor. */
void place_vector(struct place *p, float **v_out, uint32_t n);
void place_elements(struct place *p, float *v, uint32_t dst, enum slot slot, uint32_t layer, uint32_t src, uint32_t n);
/* The same from a tensor of an expert. Seven parameters and one more: the place in v, the tensor's name, the place in
 * it. */
void place_expert_elements(struct place *p, float *v, uint32_t dst, enum slot slot, uint32_t layer, uint32_t expert,
                           uint32_t src, uint32_t n);
/* A table from a matrix of floats: row r of n_row has, at v + r * pitch, the n elements src, src + step, ... of the
 * tensor's row src_row + r. Seven parameters and one more: the place in v, the tensor's name, the rows and columns in
 * it. */
void place_table(struct place *p, float *v, uint32_t pitch, enum slot slot, uint32_t layer, uint32_t src_row,
                 uint32_t n_row, struct place_run cols);
/* Allocates memory for any use, aligned to PLACE_ALIGN; *out is written only while loading. */
void place_bytes(struct place *p, void **out, uint64_t bytes);
/* The same for memory that ranks add up or gather. All ranks must place the same sizes in the same order. */
void place_reduced(struct place *p, void **out, uint64_t bytes);
/* The next place begins at a multiple of DEV_MAP_ALIGN, where a file can be mapped (p->at). */
void place_align(struct place *p);

/* The runs of rows [row, + n) of a job, or of the first of them: at most three. Returns how many rows they are. Where q
 * and k rotate in pairs (0, 1), (2, 3) ..., the even rows of a head's rotating part come first and then the odd ones:
 * rotating in pairs (i, i + rot / 2) then gives the same scores, because q and k change alike. */
uint32_t place_runs(const struct place_job *job, uint32_t row, uint32_t n, struct place_run run_out[3],
                    uint32_t *n_run_out);

enum { PLACE_ALIGN = 256 }; /* as devices align: the plan is what loading takes */
/* Bytes of the arena for an allocation of n bytes. */
static inline uint64_t place_arena_bytes(uint64_t n) { return (n + PLACE_ALIGN - 1) / PLACE_ALIGN * PLACE_ALIGN; }
