/* cuda: one GPU, one rank.   Thread: its rank thread; weight_set: any.   Private to kernels/cuda/. C17 and C++17 (.cu).
 * Memory is one reserved extent (arena); nothing is allocated after step_init. Kernels and copies run in order on one stream.
 * Activations are BF16 (or F16, cfg.act), KV is BF16, norm weights, biases and logits are F32.
 * Each entry of dev_ops lies in the file of its kernel; kernel launches go through LAUNCH (common.cuh) so that the same file
 * compiles for the emulator (tests/emu). Padding: row_seq, logit_row or page UINT32_MAX means skip, in every kernel. */
#pragma once
#ifdef __cplusplus
extern "C" {
#endif
#include "kernels/impl.h"
#include <cuda_runtime_api.h>

struct cuda_step; /* step.c: staging, results, graphs            */
struct cuda_blas; /* gemm.c: cuBLASLt, its workspace, algorithms */
struct cuda_comm; /* comm.c: peers, NCCL                         */
struct cuda_load; /* load.c: pinned buffers                      */

enum { CUDA_ATTN_KV = 64, CUDA_ATTN_ROWS = 64 }; /* tokens of KV and query rows of one sequence in a tile: plan and kernel mean the same */

/* The work of attention in the step that is being enqueued: written by step.c, read by attn.cu's host side. Device addresses.
 * The leading n_decode sequences have one row each and are split along KV; the rest goes by tiles of query rows. */
struct cuda_attn_plan {
    uint32_t        n_decode;
    uint32_t        n_tile;     /* 0: decode rows alone                                     */
    const uint32_t *tile_seq;   /* [n_tile] sequence                                        */
    const uint32_t *tile_row;   /* [n_tile] first row (of the batch); to the end of the sequence, at most CUDA_ATTN_ROWS */
    uint32_t        n_item;     /* launch bound of items (a graph's bucket may have more than the step needs) */
    const uint32_t *item_seq;   /* [n_item] sequence, or UINT32_MAX: skip          */
    const uint32_t *item_chunk; /* [n_item] which chunk of its KV                   */
    const uint32_t *seq_item;   /* [n_seq + 1] first item of each sequence          */
    const uint32_t *chunk;      /* [1] tokens per chunk, a multiple of 64           */
    float          *partial;    /* [items_max][n_head][2 + head_dim]: max, sum, o   */
    uint32_t       *arrived;    /* [seqs_max][n_kv_head] zero between launches      */
};

struct cuda_dev {
    struct dev_impl       impl; /* first */
    int                   ordinal, arch, n_sm;
    bool                  deterministic, eager, pdl;
    cudaStream_t          stream;
    char                 *arena;
    size_t                used, size;
    struct dev_limits     lim;
    struct cuda_attn_plan attn; /* of this step */
    struct cuda_step     *step;
    struct cuda_blas     *blas;
    struct cuda_comm     *comm;
    struct cuda_load     *load;
    char                 *work; /* scratch of the ops of one step: moe, sample; [work_bytes] */
    size_t                work_bytes;
    struct dev_group     *group;
    bool                  lost; /* a sticky error, or the group was aborted: every wait says ST_DEVICE from here on */
};
static inline struct cuda_dev *cuda_of(struct device *d) { return (struct cuda_dev *)d; }

/* device.c */
bool               cuda_ok(struct cuda_dev *d, cudaError_t e, const char *what); /* false: logged once, d->lost */
static inline void cuda_launched(struct cuda_dev *d, const char *op)             /* after every launch */
{
    cudaError_t e = cudaPeekAtLastError();
    if (e != cudaSuccess) cuda_ok(d, e, op);
}
enum status cuda_alloc(struct device *d, size_t bytes, void **out);
size_t      cuda_free_bytes(const struct device *d);
void        cuda_to_device(struct device *d, void *dst, const void *host, size_t bytes);
void        cuda_to_host(struct device *d, void *host, const void *src, size_t bytes);
enum status cuda_sync(struct device *d);
/* load.c */
uint64_t    cuda_weight_bytes(enum dtype t, uint32_t n, uint32_t k);
enum status cuda_weight_alloc(struct device *d, enum dtype t, uint32_t n, uint32_t k, struct dev_weight *w_out);
void        cuda_weight_set(struct device *d, struct dev_weight *w, uint32_t row0, uint32_t n_row, const void *src, size_t src_stride,
                            enum dtype src_t);
enum status cuda_load_init(struct cuda_dev *d);
void        cuda_load_free(struct cuda_dev *d);
/* step.c */
uint64_t       cuda_step_bytes(const struct device *d, const struct dev_limits *lim);
enum status    cuda_step_init(struct device *d, const struct dev_limits *lim);
enum dev_graph cuda_step_begin(struct device *d, const struct dev_step *s, struct dev_step *on);
void           cuda_step_end(struct device *d, const struct dev_step *s, const struct dev_step *on);
enum status    cuda_step_wait(struct device *d, const struct dev_step *s);
void           cuda_step_free(struct cuda_dev *d);
/* gemm.c */
enum status cuda_blas_init(struct cuda_dev *d);
void        cuda_blas_free(struct cuda_dev *d);
void        cuda_linear(struct device *d, void *out, const void *x, const struct dev_weight *w, const float *bias, uint32_t m);
void        cuda_logits(struct device *d, float *out, const void *x, const struct dev_weight *w, uint32_t m);
/* norm.cu */
void cuda_rmsnorm(struct device *d, void *out, const void *x, const float *w, uint32_t n, uint32_t dim, float eps);
void cuda_add_rmsnorm(struct device *d, void *out, void *x, const void *delta, const float *w, uint32_t n, uint32_t dim, float eps);
/* mlp.cu */
void cuda_embed(struct device *d, void *out, const uint32_t *id, const struct dev_weight *w, uint32_t n);
void cuda_swiglu(struct device *d, void *out, const void *gate_up, uint32_t n, uint32_t inter);
void cuda_gather(struct device *d, void *out, const void *x, const uint32_t *row, uint32_t n, uint32_t dim);
void cuda_add_bias(struct cuda_dev *d, void *x, const float *bias, uint32_t m, uint32_t n); /* act [m, n] += bias[n] */
/* x[p.at] = from[p.from], 0 where that is UINT32_MAX; n: launch bound, patches whose at is UINT32_MAX are skipped */
void cuda_patch(struct cuda_dev *d, uint32_t *x, const struct dev_patch *p, const uint32_t *from, uint32_t n);
/* rope_kv.cu, attn.cu */
void cuda_qkv(struct device *d, const struct op_qkv *o, const struct dev_batch *b, const struct dev_kv *kv);
void cuda_attention(struct device *d, const struct op_attn *o, const struct dev_batch *b, const struct dev_kv *kv);
/* How decode attention is split (plain C, attn_plan.c): tokens per chunk for kv lengths len[n_seq]. */
uint32_t cuda_attn_chunk(const uint32_t *len, uint32_t n_seq, uint32_t n_kv_head, uint32_t n_sm, bool deterministic);
uint32_t cuda_attn_items_max(uint32_t seqs_max, uint32_t n_kv_head, uint32_t n_sm, uint32_t pages_max); /* any plan's bound of items */
/* moe.cu, sample.cu: what they need of d->work */
uint64_t cuda_moe_work_bytes(const struct cuda_dev *d, const struct dev_limits *lim);
void     cuda_moe(struct device *d, const struct op_moe *o);
uint64_t cuda_sample_work_bytes(const struct cuda_dev *d, const struct dev_limits *lim);
void     cuda_sample(struct device *d, const struct op_sample *o);
void     cuda_logprob(struct device *d, const struct op_logprob *o);
/* kv_copy.cu */
void cuda_block_copy(struct device *d, const struct dev_kv *kv, const uint32_t *src, const uint32_t *dst, uint32_t n);
/* comm.c, allreduce.cu */
enum status cuda_comm_init(struct cuda_dev *d, const struct dev_cfg *cfg);
void        cuda_comm_free(struct cuda_dev *d);
void        cuda_allreduce(struct device *d, void *x, size_t n);
void        cuda_broadcast(struct device *d, void *x, size_t bytes);
void        cuda_allgather(struct device *d, float *out, const float *x, uint32_t m, uint32_t n_local);
#ifdef __cplusplus
}
#endif
