/* cuda: one GPU, one rank.   Thread: its rank thread; weight_set: any.   Private to kernels/cuda/. C17 and C++17 (.cu).
 * Memory is one reserved extent (arena); nothing is allocated after step_init. Kernels and copies run in order on one
 * stream. Activations are BF16 (or F16, cfg.act), KV is BF16, norm weights, biases and logits are F32.
 * Each entry of dev_ops lies in the file of its kernel; kernel launches go through LAUNCH (common.cuh) so that the same
 * file compiles for the emulator (tests/emu). Padding: row_seq, logit_row or page UINT32_MAX means skip, in every
 * kernel. */
#pragma once
#ifdef __cplusplus
extern "C" {
#endif
#include "kernels/cuda/attn_plan.h"
#include "kernels/impl.h"
#include <cuda_runtime_api.h>

enum {
    PDL_ARCH_MIN = 90, /* from here on a launch may depend on the one before by program */
    WGMMA_ARCH = 90,   /* the one that has it */
    WGMMA_CODES = 65,  /* rows of a product with codes: up to here one tile of k_codes_many has them */
    WGMMA_MOE = 33,    /* moe.cu's grouped products of fewer rows an expert are bound by the weights' bytes */
    FP8_ROWS = 129,    /* rows from which on --fp8-prefill rounds them: below, weights' bytes bound a product */
    CODES_WIDE = 384   /* rows for which making codes to numbers takes what the library's product saves */
};
enum {
    CUDA_ALIGN = 256
}; /* of everything in the arena: whole sectors, and what the fastest GEMMs ask of their operands */

struct cuda_step;   /* step.c: staging, results, graphs            */
struct cuda_blas;   /* gemm.c: cuBLASLt, its workspace, algorithms */
struct cuda_comm;   /* comm.c: peers, NCCL                         */
struct cuda_times;  /* times.c: events around steps */
struct cuda_load;   /* load.c: pinned buffers                      */
struct cuda_copy;   /* copy.c: a stream for each way               */
struct cuda_window; /* window.h: memory of what ranks add up */

/* The work of attention in the step that is being enqueued: written by step.c (cuda_attn_fill), read by attn.cu's host
 * side. Device addresses. The leading n_decode sequences have one row each, row s being sequence s, and are split along
 * KV; the rest goes by tiles of query rows. So a step of single rows is planned; of one in which a sequence has 2 to 8
 * rows see n_run. The lists, pos, tree, row_start, page_start and page are copied to the device
 * before the first kernel of the step and no kernel changes them: attention reads them ahead of its predecessor's end.
 * The length of a sequence is pos[its last row] + 1. */
struct cuda_attn_plan {
    uint32_t        n_decode;
    uint32_t        n_tile;   /* 0: decode rows alone                                     */
    const uint32_t *tile_seq; /* [n_tile] sequence, or UINT32_MAX: skip                   */
    const uint32_t
            *tile_row; /* [n_tile] first row (of the batch); to the end of the sequence, at most CUDA_ATTN_ROWS */
    uint32_t n_item;   /* launch bound of items (a graph's bucket may have more than the step needs) */
    const uint32_t *item_seq;   /* [n_item] sequence, of the longest items first; UINT32_MAX: padding from here on */
    const uint32_t *item_chunk; /* [n_item] which chunk of its KV: 0, 1, 2, ... of each sequence */
    const uint32_t *seq_item;   /* [n_decode + 1] how many items the sequences before have: where its parts lie */
    const uint32_t
          *chunk; /* [1] tokens per chunk, a multiple of CUDA_ATTN_KV; 0: cuda_attn_chunk_fixed of each row's length */
    float *partial; /* [n_part][n_head][cuda_attn_part(head_dim)]; 16-byte aligned */
    uint32_t n_part;
    /* [seqs_max][n_head], or of runs [n_run][2][n_head]: zero between launches. step_init zeroes it once, the kernel
     * restores it */
    uint32_t *arrived;
    /* n_run > 0: a step in which some sequence has several decode rows, or a tree: 2 to 8 rows that have words
     * (dev_batch.tree), or with the fixed split any 2 to 8. Runs take the place of the leading
     * sequences: item_seq names runs, and n_decode and seq_item say nothing. A sequence's rows are in runs or in
     * tiles. */
    uint32_t                    n_run, n_run_row; /* n_run_row: rows of all runs */
    uint32_t                    run_most;         /* rows of the longest one */
    uint32_t                    run_spread; /* most tokens by which a run reaches further than its first row's window */
    const struct cuda_attn_run *run;
};

struct cuda_dev {
    struct dev_impl       impl; /* first */
    int                   ordinal, arch, n_sm;
    struct dev_place      place;
    bool                  deterministic, eager, pdl;
    bool                  wgmma; /* prompts by attn_hopper.cu, moe_hopper.cu and codes_hopper.cu, where they can */
    uint32_t              wgmma_codes; /* rows of a product with codes from which on it is codes_hopper.cu's */
    uint32_t              wgmma_moe; /* rows of an expert, on average, from which on its products are moe_hopper.cu's */
    bool                  fp8_prefill; /* products of codes_fp8.cu, where it can */
    uint32_t              fp8_rows;    /* from so many rows on */
    uint32_t              codes_wide;  /* most rows of a product with codes that is not codes_wide.c's */
    size_t                codes_slab;  /* bytes that codes_wide.c or codes_fp8.cu makes at once: GEMM_WORKSPACE */
    uint32_t              rows_max;    /* of a step; 0: not told */
    cudaStream_t          stream;
    char                 *arena;
    size_t                used, size;
    struct dev_limits     lim;
    struct cuda_attn_plan attn;       /* of this step */
    uint32_t              attn_warps; /* decode warps of attention that an SM runs at a time; 0: as many as planned */
    const uint32_t       *row_seq;    /* of this step, device: UINT32_MAX is padding; NULL between steps */
    struct cuda_step     *step;
    struct cuda_blas     *blas;
    struct cuda_comm     *comm;
    struct cuda_window   *window; /* NULL: alloc_reduced is alloc */
    struct cuda_load     *load;
    struct cuda_copy     *copy;  /* NULL: nobody copies beside the steps */
    struct cuda_times    *times; /* NULL: nobody asked */
    char                 *work;  /* scratch of the ops of one step: moe, sample; [work_bytes] */
    size_t                work_bytes;
    uint32_t             *moe_arrived; /* [1], of moe_route_few.cu: zero between launches, as attn.arrived */
    struct dev_group     *group;
    const char           *gemm_file, *cublaslt; /* as in dev_cfg; may be NULL */
    bool                  skip;                 /* a launch of this step has failed: what follows it is not launched */
    bool     relaunch;         /* a step of several ranks is being enqueued: what is refused is launched once more */
    bool     broken;           /* lost, and not by what a kernel did: the GPU itself, or a link of it */
    bool     lost;             /* a sticky error, or the group was aborted: every wait says ST_DEVICE from here on */
    uint64_t wait_limit_us;    /* longest wait: a device that hangs is given up then */
    bool     hung;             /* ... and it does not answer: calls would wait for ever */
    struct {                   /* for cuda_doing, atomic */
        const char *op, *wait; /* enqueued last; what is waited for, NULL: nothing */
        uint64_t    n_op, wait_us; /* so far; since when */
    } doing;
};
/* The struct behind a device that cuda_open made. */
static inline struct cuda_dev *cuda_of(struct device *d) { return (struct cuda_dev *)d; }

/* device.c */
void        cuda_bind(struct cuda_dev *d); /* the calling thread works with this GPU from here on */
enum status cuda_take(struct cuda_dev *d, size_t bytes,
                      void **out); /* as cuda_alloc, but what lies there is not cleared */
/* Until the event (NULL: all of the stream) is reached; false: the device is lost, which has been logged. */
bool cuda_wait(struct cuda_dev *d, cudaEvent_t e, const char *what);
bool cuda_ok(struct cuda_dev *d, cudaError_t e, const char *what); /* false: logged once, d->lost; or as step.c says */
/* sets d->lost; true: no rank of the process has said why yet, so the caller does */
bool cuda_lose(struct cuda_dev *d);
void cuda_give_up(struct cuda_dev *d, cudaError_t e, const char *what); /* the same for an error, from any thread */
const char               *cuda_meaning(cudaError_t e);
static inline enum status cuda_loss(const struct cuda_dev *d)
{
    return d->broken ? ST_BROKEN : ST_DEVICE;
} /* when d->lost */
static inline void cuda_did(struct cuda_dev *d, const char *op) /* op: static */
{
    __atomic_store_n(&d->doing.op, op, __ATOMIC_RELAXED);
    __atomic_fetch_add(&d->doing.n_op, 1, __ATOMIC_RELAXED);
}
static inline void cuda_launched(struct cuda_dev *d, const char *op) /* after every launch */
{
    cudaError_t e = cudaPeekAtLastError();
    cuda_did(d, op);
    if (e != cudaSuccess) cuda_ok(d, e, op);
}
enum status cuda_alloc(struct device *d, size_t bytes, void **out);
enum status cuda_alloc_reduced(struct device *d, size_t bytes, void **out); /* window.c */
size_t      cuda_free_bytes(const struct device *d);
void        cuda_to_device(struct device *d, void *dst, const void *host, size_t bytes);
void        cuda_to_host(struct device *d, void *host, const void *src, size_t bytes);
enum status cuda_sync(struct device *d);
/* load.c */
uint64_t    cuda_weight_bytes(enum dtype t, uint32_t n, uint32_t k);
enum status cuda_weight_alloc(struct device *d, enum dtype t, uint32_t n, uint32_t k, struct dev_weight *w_out);
void        cuda_weight_set(struct device *d, struct dev_weight *w, uint32_t row0, uint32_t n_row, const void *src,
                            size_t src_stride, enum dtype src_t);
void        cuda_weight_fill(struct device *d, struct dev_weight *w, uint32_t row0, uint32_t n_row, uint64_t seed,
                             uint64_t src_row, uint64_t src_col, uint64_t src_len, float std); /* fill.cu */
enum status cuda_load_init(struct cuda_dev *d);
bool        cuda_load_sync(struct cuda_dev *d); /* every weight_set has arrived; false: lost */
void        cuda_load_free(struct cuda_dev *d); /* at the first step: weight_set works after it too, slowly */
/* step.c */
uint64_t       cuda_step_bytes(const struct device *d, const struct dev_limits *lim);
enum status    cuda_step_init(struct device *d, const struct dev_limits *lim);
enum dev_graph cuda_step_begin(struct device *d, const struct dev_step *s, struct dev_step *on);
bool           cuda_step_end(struct device *d, const struct dev_step *s, const struct dev_step *on);
enum status    cuda_step_wait(struct device *d, const struct dev_step *s);
void           cuda_step_free(struct cuda_dev *d);
void           cuda_graphs(const struct device *d, struct dev_graphs *out);
bool cuda_step_excuse(struct cuda_dev *d); /* true: a graph was being captured, which has failed now, without harm */
/* true: e ended a launch of the step that is being enqueued and nothing else: that step is run again, or given up
 * alone */
bool cuda_step_fault(struct cuda_dev *d, cudaError_t e, const char *what);
/* true: the last error has ended a launch and nothing else; it is taken back */
bool cuda_relaunch(const struct cuda_dev *d);
/* Before a launch: is it made once more if it is refused? Not where an error stands: what that one ended is missing,
 * whatever follows. */
static inline bool cuda_may_relaunch(const struct cuda_dev *d)
{
    return d->relaunch && cudaPeekAtLastError() == cudaSuccess;
}
/* times.c, probe.cu */
void   cuda_times_begin(struct cuda_dev *d);
void   cuda_times_end(struct cuda_dev *d);
void   cuda_times_wait(struct cuda_dev *d);
void   cuda_times_free(struct cuda_dev *d);
bool   cuda_step_times(struct device *d, struct dev_times *out);
double cuda_time(struct device *d, uint32_t n, void (*fn)(void *arg, uint32_t i), void *arg);
double cuda_probe(struct device *d, enum dev_probe what);
/* copy.c */
extern const struct dev_copy_ops cuda_copy_ops;
void                             cuda_copy_free(struct cuda_dev *d);
/* gemm.c */
enum status cuda_blas_init(struct cuda_dev *d); /* takes cuda_blas_bytes() of the arena */
uint64_t    cuda_blas_bytes(void);
void        cuda_blas_free(struct cuda_dev *d);
/* weight_alloc tells of every matrix before anything is in it: its algorithms are chosen now, and tried on it.
 * Overwrites w->data and the arena beyond d->used; done when it returns. */
void cuda_blas_seen(struct cuda_dev *d, const struct dev_weight *w);
void cuda_linear(struct device *d, void *out, const void *x, const struct dev_weight *w, const float *bias, uint32_t m);
bool cuda_fused(struct device *d, const struct op_fused *o);
void cuda_logits(struct device *d, float *out, const void *x, const struct dev_weight *w, uint32_t m);
/* norm.cu */
void cuda_rmsnorm(struct device *d, void *out, const void *x, const float *w, uint32_t n, uint32_t dim, float eps);
void cuda_add_rmsnorm(struct device *d, void *out, void *x, const void *delta, const float *w, uint32_t n, uint32_t dim,
                      float eps);
/* mlp.cu */
void cuda_embed(struct device *d, void *out, const uint32_t *id, const struct dev_weight *w, uint32_t n);
void cuda_ungated(struct device *d, void *x, size_t n, enum op_act act);
void cuda_act_mul(struct device *d, void *x, const void *y, size_t y_stride, const uint32_t *row, uint32_t n,
                  uint32_t dim, enum op_act act);
void cuda_glu(struct device *d, void *out, const void *gate_up, uint32_t n, uint32_t inter, enum op_act act);
void cuda_scale(struct device *d, void *x, size_t n, float by);
void cuda_add_gated(struct device *d, void *x, const void *y, const void *gate, uint32_t n, uint32_t dim);
void cuda_state(struct device *d, float *out, const void *x, size_t n);
void cuda_cap(struct device *d, float *x, size_t n, float by, float cap);
void cuda_gather(struct device *d, void *out, const void *x, const uint32_t *row, uint32_t n, uint32_t dim);
void cuda_add_bias(struct cuda_dev *d, void *x, const float *bias, uint32_t m, uint32_t n); /* act [m, n] += bias[n] */
/* x[p.at] = from[p.from], 0 where that is UINT32_MAX; n: launch bound, patches whose at is UINT32_MAX are skipped */
void cuda_patch(struct cuda_dev *d, uint32_t *x, const struct dev_patch *p, const uint32_t *from, uint32_t n);
/* norm.cu, rope_kv.cu, attn.cu, mutual.cu */
void cuda_layernorm(struct device *d, void *out, const void *x, const float *w, const float *bias, uint32_t n,
                    uint32_t dim, float eps);
void cuda_squares(struct device *d, float *out, const struct op_qkv *o, uint32_t n);
void cuda_qkv(struct device *d, const struct op_qkv *o, const struct dev_batch *b, const struct dev_kv *kv);
void cuda_attention(struct device *d, const struct op_attn *o, const struct dev_batch *b, const struct dev_kv *kv);
void cuda_mutual(struct device *d, const struct op_attn *o, const struct dev_batch *b);
/* attn_plan.c: pure functions of their arguments, any thread. How decode attention is split, for one shape of
 * attention. */
struct cuda_attn_split {
    uint32_t n_unit; /* warps that share the work on one chunk: KV heads, times groups of CUDA_ATTN_HEADS heads */
    uint32_t n_slot; /* decode warps that the GPU runs at a time                                                */
    bool     fixed;  /* chunks of fixed length: d->deterministic                                                */
    uint32_t n_kv_head, group; /* heads of a KV head */
};
/* attn.cu. Gives the decode kernel all shared memory that an SM has: how many of its blocks run there at a time then;
 * 0: the driver does not say. */
uint32_t cuda_attn_resident(struct cuda_dev *d, uint32_t head_dim);
uint32_t cuda_attn_kv8_resident(const struct cuda_dev *d, uint32_t head_dim); /* attn_kv8.cu: of a pool of 8 bits */
/* Types of KV that the kernels of this device read: bf16, rows of kv8.h, and act. */
static inline bool cuda_holds_kv(const struct device *d, enum dtype t)
{
    return t == DT_BF16 || t == DT_F8E4M3 || t == d->act;
}
/* step.c, before steps are planned: compares that with what cuda_attn_warps says. Where it is less, that is logged, and
 * holds for all plans of this device. */
void                   cuda_attn_prepare(struct cuda_dev *d, uint32_t head_dim);
struct cuda_attn_split cuda_attn_split(const struct cuda_dev *d, uint32_t n_head, uint32_t n_kv_head,
                                       uint32_t head_dim);
/* Whether tiles of rows of this shape are attn_hopper.cu's. By the shape of a model, never by a batch: its products may
 * round in another way than those of the other kernels. */
bool     cuda_attn_wgmma(const struct cuda_dev *d, uint32_t n_head, uint32_t n_kv_head, uint32_t head_dim,
                         uint32_t block_tokens);
uint32_t cuda_attn_smem(int arch); /* bytes of shared memory that one block may have */
uint32_t cuda_attn_warps(int      arch,
                         uint32_t head_dim); /* decode warps that one SM holds: bounded by its shared memory */
/* plan.chunk for sequences of len[n_seq] tokens: the smallest multiple of CUDA_ATTN_KV, from CUDA_ATTN_CHUNK_MIN and
 * from where more parts cost more than they save, whose items still run all at a time; with more sequences than that,
 * one that leaves most of them whole. 0 with a fixed split. */
uint32_t cuda_attn_chunk(const struct cuda_attn_split *s, const uint32_t *len, uint32_t n_seq);
/* How layers with a window are cut: the window alone matters, so items are not listed. Sequence s has chunks
 * s * each .. of those that its window touches. n_part: parts that there is room for, at least cuda_attn_items_max of
 * the step's split, which may be that of layers with other heads. Of runs n_seq is the number of their rows, and spread
 * is the plan's run_spread; else it is 0. */
struct cuda_attn_cut {
    uint32_t each;  /* chunks that a window may touch; each times n_seq is at most n_part, or it is 1 */
    uint32_t chunk; /* tokens, a multiple of CUDA_ATTN_KV; 0: cuda_attn_chunk_fixed of each row's length */
};
struct cuda_attn_cut cuda_attn_window(const struct cuda_attn_split *s, uint32_t n_seq, uint32_t n_part, uint32_t window,
                                      uint32_t spread);
/* Bound of the runs of a step; 0: its decode rows are single. Of any step within the limits. */
uint32_t cuda_attn_runs(const struct cuda_attn_split *s, const struct dev_batch *b);
uint32_t cuda_attn_runs_max(uint32_t rows_max, uint32_t seqs_max);
/* Parts to make room for. */
uint32_t cuda_attn_parts(const struct cuda_attn_split *s, uint32_t seqs_max);
/* Any plan's bound of items; it rises with n_seq, so it is a bucket's too. */
uint32_t cuda_attn_items_max(const struct cuda_attn_split *s, uint32_t n_seq);
uint32_t cuda_attn_tiles_max(uint32_t rows_max, uint32_t seqs_max); /* any plan's bound of tiles */
/* Host arrays of a plan, where the caller wants them (pinned memory). */
struct cuda_attn_lists {
    uint32_t *tile_seq, *tile_row;   /* [cuda_attn_tiles_max]                                        */
    uint32_t *item_seq, *item_chunk; /* [n_item_pad]                                             */
    uint32_t *seq_item;              /* [n_decode_pad + 1]                                       */
    uint32_t *chunk;                 /* [1]                                                      */
    uint32_t  n_decode_pad,
        n_item_pad; /* in: at least what the step has, e.g. a bucket and cuda_attn_items_max of it; entries behind
                                          the step's own are written as padding */
    uint32_t              n_decode, n_tile, n_item; /* out: of this step alone                                  */
    struct cuda_attn_run *run;                      /* [n_run_pad]                                              */
    uint32_t              n_run_pad;                /* in: at least cuda_attn_runs of the step; 0: no runs      */
    uint32_t              n_part;                   /* in: plan.n_part                                          */
    uint32_t              n_run, n_run_row, run_most, run_spread; /* out, as in the plan                */
};
/* Plans a step from host arrays: b->n_seq, row_seq, row_start and pos are read. Sequences without rows and rows whose
 * row_seq is UINT32_MAX have no work; they stand behind the others. len: scratch [b->n_seq], or [n_run_pad] if that is
 * more. Tiles come longest first. Where parts for all runs are not there, the last sequences become tiles; not those
 * with a tree, for which there must be room. */
void cuda_attn_fill(const struct cuda_attn_split *s, const struct dev_batch *b, uint32_t *len,
                    struct cuda_attn_lists *l);
/* moe.cu, sample.cu: what they need of d->work */
uint64_t cuda_moe_work_bytes(const struct cuda_dev *d, const struct dev_limits *lim);
void     cuda_moe(struct device *d, const struct op_moe *o);
bool     cuda_routed(struct device *d, const struct op_router *r, const struct op_moe *o);
uint64_t cuda_sample_work_bytes(const struct cuda_dev *d, const struct dev_limits *lim);
void     cuda_sample(struct device *d, const struct op_sample *o);
void     cuda_logprob(struct device *d, const struct op_logprob *o);
/* lora.cu; load.c */
void        cuda_lora(struct device *d, const struct op_lora *o);
enum status cuda_lora_alloc(struct device *d, enum dtype t, uint32_t n, uint32_t k, struct dev_weight *w_out);
/* kv_copy.cu */
void cuda_block_copy(struct device *d, const struct dev_kv *kv, const uint32_t *src, const uint32_t *dst, uint32_t n);
/* comm.c, allreduce.cu */
enum status cuda_comm_init(struct cuda_dev      *d,
                           const struct dev_cfg *cfg);  /* all ranks of the process at a time; may set d->eager */
uint64_t    cuda_comm_bytes(const struct dev_cfg *cfg); /* that it takes of the arena, at most */
void        cuda_comm_free(struct cuda_dev *d);
void        cuda_allreduce(struct device *d, void *x, size_t n);
void        cuda_broadcast(struct device *d, void *x, size_t bytes);
void        cuda_allgather(struct device *d, float *out, const float *x, uint32_t m, uint32_t n_local);
#ifdef __cplusplus
}
#endif
