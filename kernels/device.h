/* device: memory, streams and operations behind one table of functions.   Thread: the rank thread that opened it.
 *
 * dev_open -> alloc / weight_* while loading -> ops, step after step -> dev_close.
 * dev_open reserves one bounded arena (on the cpu device it plays the GPU's memory). After loading no function
 * allocates.
 *
 * Shapes are row-major, leading dimension first. "act" is dev->act (F32 on ref and cpu; BF16 on cuda).
 * THE EXACT PROMISE: each output row is a function of that row's inputs alone. GEMM walks K in one fixed order for
 * every m; attention walks KV in tiles of fixed size from position 0; reductions are fixed trees. So a row gives the
 * same bits alone, in any batch, in any chunk and at any place of the batch (tests/op compares with memcmp).
 * Ops run in order on the device's compute stream and may return before they are done; `sync` waits for them.
 *
 * A step: step_begin takes the arrays as the host wrote them and returns them as the device reads them. The ops of the
 * forward follow, then step_end; step_wait brings the results. DEV_STEPS_MAX steps may lie between begin and wait, so
 * step n + 1 can be enqueued before the host reads the tokens of n. Patches name the ids that only the device knows
 * then. A late step is cut in two: its layers run while the host still writes what the draws read.
 * Over 500 lines: one table of functions, and the types that its rows speak of. */
#pragma once
#include "base/dtype.h"
#include "base/status.h"
#include "kernels/arrays.h"
#include "kernels/tree.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct device;

/* Weights as small codes with scales: w = (code - zero) * scale. I8: codes -127 .. 127, with `full` also -128. I4:
 * codes 0 .. 15 and scales rounded to f16; the zero is 8, with `zero` there is one per group (0 .. 16). F8E4M3: the
 * numbers of that type. F4E2M1: the same, codes 0 .. 15; scales of 32 inputs are powers of two (MXFP4), those of 16 are
 * numbers of E4M3 times a factor of the output (NVFP4). */
struct dev_quant {
    enum dtype code;  /* DT_I8, DT_I4, DT_F8E4M3, DT_F4E2M1 */
    uint32_t   group; /* inputs of one output that share a scale: 32, 64, 128, 256, 512, 1024; F4E2M1: 16; 0: all */
    bool       zero;  /* I4 alone */
    bool
         act8; /* activations in 8 bits with one scale per row, products of integers: I8, group 0 or from 64 on; I4 without zeros */
    bool full; /* I8 alone: codes may be -128 as well */
};

/* A matrix [n_out, n_in] in the device's own layout (packed as its GEMM likes it). */
struct dev_weight {
    void            *data;
    enum dtype       dtype; /* of the numbers, or of the codes */
    uint32_t         n, k;  /* outputs (rows of the checkpoint), inputs */
    uint64_t         bytes;
    struct dev_quant q;                     /* q.code F32 (0): the weight is plain */
    void            *scale, *zero, *factor; /* private to the device, like `how` */
    const void      *how;
};

/* Rows of codes, the input of quant_set. */
struct dev_codes {
    const uint8_t *code; /* [n_row] rows of k bytes, code_stride apart: int8, 0 .. 15, or F8E4M3 */
    size_t         code_stride;
    const float   *scale; /* [n_row] rows of one per group, scale_stride elements apart (0: all rows share them) */
    const uint8_t *zero;  /* as scale; NULL: none */
    size_t         scale_stride;
    const float   *factor; /* [n_row] of NVFP4: what a row's scales are multiplied by, factor_stride apart; NULL: 1 */
    size_t         factor_stride;
};

/* Which bytes of every KV block belong to one layer. How they are laid out inside is told by the operation that reads
 * and writes them. */
struct dev_kv_layer {
    uint64_t offset; /* from the block's first byte */
    uint64_t bytes;  /* for all tokens of the block */
};
/* The KV pool: block b begins at base + b * block_bytes and holds all layers (docs/ARCHITECTURE.md, "How KV lies in
 * memory"). Blocks from n_block on are guests: they lie in host memory that the device can address, the first at guest,
 * and are read by attention and copied from, never written. */
struct dev_kv {
    void                      *base;
    enum dtype                 dtype; /* F32, BF16, F16, or F8E4M3 with a scale for each row (ref and cpu) */
    uint32_t                   n_block, n_layer, block_tokens;
    uint64_t                   block_bytes;
    const char                *guest;
    uint64_t                   guest_step; /* bytes from one guest to the next */
    uint32_t                   n_guest;    /* 0: none */
    const struct dev_kv_layer *layer;      /* [n_layer], in the host's memory; outlives the pool */
};
/* Where a block begins. */
static inline const char *dev_kv_block(const struct dev_kv *kv, uint32_t block)
{
    if (block < kv->n_block) return (const char *)kv->base + block * kv->block_bytes;
    return kv->guest + (block - kv->n_block) * kv->guest_step;
}
/* Bytes that op_qkv and op_attn keep of one token in a layer, whose bytes are [k,v][kv_head][token][head_dim]; of
 * F8E4M3 [k,v][kv_head], and in each the codes [token][head_dim] and a byte for each row's scale [token]
 * (kernels/kv8.h). */
static inline uint64_t dev_kv_heads_bytes(enum dtype t, uint32_t n_kv_head, uint32_t head_dim)
{
    uint32_t scale = t == DT_F8E4M3 ? 1 : 0;
    return (uint64_t)2 * n_kv_head * (head_dim * dtype_bytes(t) + scale);
}

/* What a step looks like to the device: arrays readable by it, listed in kernels/arrays.h. Rows of one sequence are
 * adjacent and rise in position. */
struct dev_batch {
    DEV_BATCH_SIZES(DEV_SIZE_MEMBER)
    DEV_BATCH_ARRAYS(DEV_ARRAY_VIEW)
    /* [n_row], or NULL: no sequence has a tree. The word of a row (kernels/tree.h), 0 where it has none. Rows of a tree
     * rise in slot, their positions do not fall, and all words of a sequence have one base; of such a sequence rows
     * without a tree stand in front and below it. qkv turns a row by its position and keeps its key in its slot; page
     * reaches to the last row's slot. */
    const uint64_t *tree;
};
static inline uint64_t dev_tree(const struct dev_batch *b, uint32_t row) { return b->tree ? b->tree[row] : 0; }

/* Gates of a feed-forward: silu(x) = x / (1 + e^-x); gelu(x) = x (1 + erf(x / sqrt 2)) / 2; its approximation by tanh;
 * x / (1 + e^(-1.702 x)); max(x, 0); the square of that. The last clamps both factors: the gate min(x, 7) goes through
 * the fourth, and what it is multiplied with is 1 + up, up being kept within -7 and 7. */
enum op_act { OP_SILU, OP_GELU, OP_GELU_TANH, OP_QUICK_GELU, OP_RELU, OP_RELU2, OP_CLAMPED, OP_ACTS };

/* A product of few rows with what stands around it, y = rmsnorm(x) * w^T + bias, and then: out [m, n] = y; out [m, n] += y;
 * out [m, n / 2] = act(gate) * up of the halves of y, as op glu; out [m, n] = y, and op qkv with it. The bits are those of
 * the ops one after another, except where a device uses a library that may round a sum once instead of twice (cuda without
 * `deterministic`). */
enum op_end { OP_END_STORE, OP_END_ADD, OP_END_GLU, OP_END_QKV };
struct op_fused {
    void                    *out;
    const void              *x; /* act [m, k] */
    const struct dev_weight *w; /* [n, k] */
    const float             *bias;
    const float             *norm; /* F32 [k], weights of the norm; NULL: x as it is */
    float                    eps;
    uint32_t                 m;
    enum op_end              end;
    enum op_act              act; /* of the gate */
    /* The operands of op qkv: heads->qkv is out, and the batch has m rows. */
    const struct op_qkv    *heads;
    const struct dev_batch *b;
    const struct dev_kv    *kv;
};

enum rope_type { ROPE_NONE, ROPE_NEOX }; /* NEOX: pairs (i, i + rot/2) */

struct op_qkv {       /* qk-norm (optional), RoPE, KV append (not with kv NULL): one pass over the fused projection */
    void        *qkv; /* act [n_row, (n_head + 2 * n_kv_head) * head_dim]: q heads, k heads, v heads; in place */
    const float *q_norm, *k_norm; /* [head_dim] RMSNorm weights, or NULL                                       */
    float        eps;
    const float *inv_freq;   /* [rot / 2]; NULL with ROPE_NONE                                                   */
    float        rope_scale; /* multiplies cos and sin (yarn attention factor), else 1                          */
    uint32_t     n_head, n_kv_head, head_dim, rot; /* rot <= head_dim: partial rotary                            */
    uint32_t     layer;  /* of the KV pool                                                                    */
    float        q_beta; /* at last, q *= 1 + q_beta * ln(1 + floor(pos / q_period)); 0: not          */
    uint32_t     q_period, q_shift; /* .. of pos + q_shift instead of pos */
    bool         norm_late;         /* the norms follow RoPE instead of preceding it                                */
    /* NULL: each head has a norm of its own. Else one norm spans all q heads and one all k heads, of all ranks
     * together: sums of squares as op `squares` makes them, [n_row][n_square][2]; q_norm and k_norm are then as long as
     * this rank's heads, [n_head * head_dim] and [n_kv_head * head_dim], and norm_late is not allowed. */
    const float *square;
    uint32_t     n_square; /* ranks */
    const float *v_norm;   /* [head_dim] the same of values, or NULL */
    /* The norm of a head takes its mean off first (LayerNorm), and each head has weights of its own: q_norm and k_norm
     * are [n_head * head_dim] and [n_kv_head * head_dim]. Not with square or norm_late. */
    bool norm_mean;
};
/* Paged GQA attention, causal, ragged: prefill chunks, decode rows and trees of drafts in one call. A row at position p
 * sees the tokens at positions 0 .. p of its sequence; a row of a tree (dev_batch.tree) those of the path that ends with
 * it, wherever their slots are. Windows count positions, so siblings see equally far back. */
struct op_attn {
    void       *out; /* act [n_row, n_head * head_dim]                                                    */
    const void *qkv; /* act [n_row, (n_head + 2 * n_kv_head) * head_dim] after op_qkv; q heads first         */
    uint32_t    n_head, n_kv_head, head_dim, layer;
    float       scale;  /* usually 1 / sqrt(head_dim)                                                        */
    uint32_t    window; /* sliding window: a row at p sees keys p - window + 1 .. p; 0: all                   */
    float       cap;    /* scores x become cap * tanh(x / cap), after the scale; 0: they do not        */
    /* F32 [n_head] or NULL. A sink is one more score of each row of its head, neither scaled nor capped, whose value is
     * 0: the weights of the keys sum to less than 1. */
    const float *sinks;
    bool         q_only;  /* qkv holds q heads alone: the layer reads the KV of another */
    bool         chunked; /* the window does not slide: a row at p sees keys p - p % window .. p */
};
/* How a router chooses experts and weighs them, in fp32: scores s of all logits; the top_k experts with the largest s +
 * bias, ties to the lower id; their weights s, without bias. With groups, only experts of the group_keep groups whose
 * two largest s + bias have the largest sums. */
enum op_route { OP_ROUTE_SOFTMAX, OP_ROUTE_SIGMOID };
enum { OP_ROUTE_GROUPS_MAX = 32 };
struct op_moe {                   /* router, SwiGLU experts, weighted sum */
    void                    *out; /* act [n_row, hidden]                                                       */
    const void              *x;   /* act [n_row, hidden]                                                       */
    const void              *router_logits; /* act, or F32 with router_f32 [n_row, n_expert]                    */
    const struct dev_weight *gate_up; /* [n_here] each [2 * inter, hidden]: gate rows, then up rows              */
    const struct dev_weight *down;    /* [n_here] each [hidden, inter]                                           */
    uint32_t                 n_row, n_expert, top_k, hidden, inter;
    bool                     renorm; /* weights are divided by max(their sum, sum_min) + sum_add */
    enum op_act              act;    /* of the experts */
    enum op_route            score;
    bool                     router_f32;
    const float             *bias; /* F32 [n_expert], finite; NULL: 0                                              */
    uint32_t n_group, group_keep;  /* equal groups of neighbours, of 2 experts at least; n_group 0: none */
    float    sum_min, sum_add;
    float    scale; /* factor of the weights; 0: 1 */
    /* F32 [n_here, 2 * inter] and [n_here, hidden], added to the experts' products before gate and weight; or NULL */
    const float *gate_up_bias, *down_bias;
    /* The weights multiply what the experts read instead of what they make: in the products of gate and up, before
     * biases. */
    bool weigh_input;
    /* F32 [n_expert] or NULL: factors of the weights, at last */
    const float *expert_scale;
    /* Of all experts, [first_here, + n_here) are on this device: it routes among all and leaves out of the sum what
     * others would add. A row that chose none of them gets zeros. n_here 0: all are. */
    uint32_t first_here, n_here;
};
/* The product whose result routes the rows of an op_moe: out = x * w^T + bias, by which it replaces router_logits. */
struct op_router {
    void                    *out;  /* of type and shape of router_logits */
    const void              *x;    /* act [n_row, w->k]; may be op_moe.out */
    const struct dev_weight *w;    /* [n_expert, k] */
    const float             *bias; /* F32 [n_expert] or NULL; NULL with router_f32 */
};
/* How many experts' matrices `gate_up` and `down` have. */
static inline uint32_t op_moe_here(const struct op_moe *o) { return o->n_here ? o->n_here : o->n_expert; }

/* Low-rank adapters (LoRA) of a matrix [n, k], or of n neighbouring rows of it: B A of slot s adds scale[s] * B (A x).
 * An adapter of a lower rank fills up with zeros. */
struct dev_lora {
    struct dev_weight *a, *b; /* [n_slot], in the host's memory: [rank, k] and [n, rank], of type act */
    float             *scale; /* F32 [n_slot] in device memory; 0: the slot's adapter does not change this matrix */
    void              *at;    /* device memory: [2][n_slot] where the data of a and b lie */
    uint32_t           n_slot, rank, n, k;
};
/* One product of rows with their own adapters: out[i, first + j] += scale * (B (A x[i]))[j], summed in F32, for each
 * row i whose adapter is not 0. No other row is touched: its bits are those of a run without adapters. */
struct op_lora {
    void                  *out; /* act [n_row, out_dim] */
    const void            *x;   /* act [n_row, w->k] */
    const struct dev_lora *w;
    const uint32_t        *adapter; /* dev_batch.adapter */
    const uint32_t        *row;     /* [n_row] where in `adapter` a row stands; UINT32_MAX: padding; NULL: row i at i */
    float                 *mid;     /* scratch, F32 [dev_lora_floats] */
    uint32_t               n_row, out_dim, first;
};
enum { OP_LORA_ROWS = 64 }; /* rows that a device on the host takes at a time */
/* Numbers of op_lora.mid for steps of rows_max rows and matrices of at most n outputs. */
static inline uint64_t dev_lora_floats(uint32_t rows_max, uint32_t rank, uint32_t n)
{
    uint64_t all = (uint64_t)rows_max * rank, part = (uint64_t)OP_LORA_ROWS * (rank + (uint64_t)n);
    return all > part ? all : part;
}

/* Sampling of n rows of logits. Per row, in vLLM's order (v1/sample/sampler.py):
 *   mask (a bit for each id, allowed, banned); bias; repetition, frequency, presence penalties; temperature (below
 *   1e-5: argmax, done);
 *   min-p against the most likely id; top-k; top-p over what is left: the fewest ids, most likely first, whose
 *   probabilities reach top_p, at least one; a draw by inverse CDF over the survivors in order of id, at
 *   rng_unit(rng_philox(seed, stream, counter).x[0]).
 * In fp32. Ties go to the lowest id, everywhere: top-k keeps exactly k. Repetition counts prompt and answer, frequency
 * and presence the answer only. Logprobs and ranks are of the raw logits, before all that. Ids of the lists that are
 * not in the vocabulary change nothing. n_hist UINT32_MAX: a row of padding, nothing is written.
 *
 * cpu and cuda give the same bits for the same logits, for every split over threads and blocks. Each step is one
 * rounded operation,
 *   z += bias, entry by entry; z > 0 ? z / repetition : z * repetition; z - (frequency * count + presence); z /
 *   temperature
 * and e = exp(z - max) is one polynomial. All later steps use whole numbers (kernels/weigh.h). An id weighs e * 2^42,
 * rounded, or 0 if e < min_p. top-p keeps the fewest ids whose weights reach ceil(top_p * the sum that top-k left). The
 * drawn id is the first, in order of id, whose cumulative weight is above floor(u * the remaining sum). A logprob is z
 * - max - ln(sum of weights) in double, rounded once. Compared with exact arithmetic a probability is off by at most
 * 2^-23 (2^20 ids, each half a unit too light) and the error of exp. min_p above 1 counts as 1. vocab: at most 2^20. */
struct op_sample_row {
#define FLOAT(name) float name;
#define WORD(name)  uint32_t name;
#define LONG(name)  uint64_t name;
    OP_SAMPLE_FIELDS(FLOAT, WORD, LONG)
#undef FLOAT
#undef WORD
#undef LONG
};
enum { OP_SAMPLE_TOP_MAX = 20 };
struct op_bias {
    uint32_t id;
    float    bias;
};
struct op_sample {
    const float                *logits; /* F32 [n, vocab]; not changed */
    uint32_t                    n, vocab;
    const struct op_sample_row *row; /* [n] */
    DEV_LISTS(DEV_ARRAY_VIEW)        /* of the step; a row's pieces begin at its starts */
    /* out, host-readable after sync */
    uint32_t *id;      /* [n] the drawn id; UINT32_MAX: a NaN or +inf among the raw logits, or nothing finite to draw */
    float    *logprob; /* [n] raw log-softmax of it; -inf where there is no id */
    uint32_t *rank;    /* [n] 1 + number of ids with a higher raw logit; 0 where there is no id */
    uint32_t
        *top_id; /* [n, OP_SAMPLE_TOP_MAX] best first; UINT32_MAX and -inf where there are fewer (or logits of -inf) */
    float *top_logprob;
};
/* Logprobs of given ids (prompt_logprobs, echo): as above without drawing. */
struct op_logprob {
    const float    *logits; /* F32 [n, vocab] */
    uint32_t        n, vocab, n_top;
    const uint32_t *id;      /* [n] */
    float          *logprob; /* [n] */
    uint32_t       *rank;    /* [n] */
    uint32_t       *top_id;  /* [n, OP_SAMPLE_TOP_MAX] */
    float          *top_logprob;
};

/* Results of a step: sample and logprob write them, shapes as there. */
struct dev_out {
    DEV_RESULTS(DEV_ARRAY_MEMBER)
};
/* Entry `at` of an array of this step is the id that sample `from` of the step before draws. If that sample drew no id
 * (UINT32_MAX), entry `at` becomes 0. The row is computed all the same, and the host drops its result. */
struct dev_patch {
    uint32_t at, from;
};
/* All inputs of one step. UINT32_MAX in logit_row or in row_seq marks padding, which the device skips. */
struct dev_step {
    struct dev_batch b;
    DEV_STEP_SIZES(DEV_SIZE_MEMBER)
    DEV_STEP_ARRAYS(DEV_ARRAY_VIEW)
    struct dev_out out;
    bool           late; /* sample, ban and mask may change until step_cut */
};
/* The sizes of a step, or the most that they may be, by themselves. */
struct dev_sizes {
    DEV_SIZES(DEV_SIZE_MEMBER)
};
/* The largest possible step, for which a device reserves memory. */
struct dev_limits {
    DEV_BOUNDS(DEV_SIZE_MEMBER)
    uint32_t logit_rows_max, vocab;          /* vocab: of one row of logits as sample reads them */
    uint32_t n_head, n_kv_head, head_dim;    /* of this rank */
    uint32_t hidden, n_expert, top_k, inter; /* moe; 0 where there is none */
};
enum { DEV_STEPS_MAX = 2, DEV_GRAPHS_MAX = 32 };
/* The answer of step_begin. EAGER: call the ops, they run. RECORD: call the ops, the device records them and runs them
 * at step_end. REPLAY: call no ops, the device runs an earlier recording. All ranks get the same answer. With every
 * answer the returned step may be padded with rows that are skipped. */
enum dev_graph { DEV_EAGER, DEV_RECORD, DEV_REPLAY };

/* One entry per op. m, n: rows. Ops return nothing; a device that fails reports it at sync (ST_DEVICE). */
struct dev_ops {
    const char *name; /* "ref", "cpu avx512", ... */
    void (*close)(struct device *d);

    /* memory. dst and src are device addresses, `host` is a host address */
    enum status (*alloc)(struct device *d, size_t bytes,
                         void **out); /* from the arena, 64-byte aligned; ST_NOMEM names nothing */
    /* The same for activations that ranks add up or gather. Every rank allocates the same sizes in the same order. With
     * NCCL such memory lies at the same offset on all ranks (dev_cfg.reduced_bytes); elsewhere it is ordinary
     * memory. */
    enum status (*alloc_reduced)(struct device *d, size_t bytes, void **out);
    size_t (*free_bytes)(const struct device *d); /* of both kinds */
    enum status (*weight_alloc)(struct device *d, enum dtype t, uint32_t n, uint32_t k, struct dev_weight *w_out);
    /* Sets rows [row0, row0 + n_row) from host memory: row i starts at src + i * src_stride bytes and has k elements of
     * src_t, at any alignment. Any thread, several at a time on distinct rows. */
    void (*weight_set)(struct device *d, struct dev_weight *w, uint32_t row0, uint32_t n_row, const void *src,
                       size_t src_stride, enum dtype src_t);
    /* Codes; NULL on a device with plain weights only. weight_set on such a weight rounds whole rows, as
     * kernels/quant.h describes, so every device makes the same codes. quant_set copies codes unchanged; threads as
     * weight_set. */
    enum status (*quant_alloc)(struct device *d, const struct dev_quant *q, uint32_t n, uint32_t k,
                               struct dev_weight *w_out);
    void (*quant_set)(struct device *d, struct dev_weight *w, uint32_t row0, uint32_t n_row, const struct dev_codes *c);
    void (*to_device)(struct device *d, void *dst, const void *host, size_t bytes);
    void (*to_host)(struct device *d, void *host, const void *src, size_t bytes);
    enum status (*sync)(struct device *d); /* all enqueued work done; ST_DEVICE: it is lost */

    /* steps. step_init once, before the first step: takes dev_step_bytes from the arena (ST_NOMEM).
     * s: the host's step, unchanged until step_wait, which fills its out arrays. on: the same step with arrays that the
     * device reads. */
    enum status (*step_init)(struct device *d, const struct dev_limits *lim);
    enum dev_graph (*step_begin)(struct device *d, const struct dev_step *s, struct dev_step *on);
    /* Of a step that is late, between the layers and the logits: the device gets sample, ban and mask, which may have
     * changed in place. The answer is for the ops that follow. NULL: the device has no late steps. */
    enum dev_graph (*step_cut)(struct device *d, const struct dev_step *s, struct dev_step *on);
    /* false: the recording cannot be run, or a launch was refused; begin the step again and call all ops. At most
     * twice */
    bool (*step_end)(struct device *d, const struct dev_step *s, const struct dev_step *on);
    enum status (*step_wait)(
        struct device         *d,
        const struct dev_step *s); /* of the oldest begun. ST_STEP: it was not done, what it was to compute
                                                                           * is not there, the device goes on.
                                                                           * ST_DEVICE, ST_BROKEN: lost */

    /* ops */
    void (*embed)(struct device *d, void *out, const uint32_t *id, const struct dev_weight *w,
                  uint32_t n); /* out act [n, w->k] */
    void (*rmsnorm)(struct device *d, void *out, const void *x, const float *w, uint32_t n, uint32_t dim, float eps);
    /* x += delta, then out = rmsnorm(x); w NULL: out = x, and out may be delta */
    void (*add_rmsnorm)(struct device *d, void *out, void *x, const void *delta, const float *w, uint32_t n,
                        uint32_t dim, float eps);
    /* out = (x - mean) / sqrt(mean((x - mean)^2) + eps) * w + bias, by rows; bias F32 [dim] or NULL; out may be x */
    void (*layernorm)(struct device *d, void *out, const void *x, const float *w, const float *bias, uint32_t n,
                      uint32_t dim, float eps);
    void (*scale)(struct device *d, void *x, size_t n, float by); /* act [n] *= by, in place */
    /* act [n, dim]: x[i] += sigmoid(gate[i]) * y[i]; gate act [n], or NULL: x += y */
    void (*add_gated)(struct device *d, void *x, const void *y, const void *gate, uint32_t n, uint32_t dim);
    /* F32 [n], in place: x *= by, and then, if cap is not 0, x = cap * tanh(x / cap): a cap that no logit exceeds */
    void (*cap)(struct device *d, float *x, size_t n, float by, float cap);
    /* out[m, w->n] = x[m, w->k] * w^T + bias; fp32 accumulate; out act; bias F32 [w->n] or NULL */
    void (*linear)(struct device *d, void *out, const void *x, const struct dev_weight *w, const float *bias,
                   uint32_t m);
    /* false: nothing is done, the device has no such pass for these sizes and this matrix, or ops one after another are
     * faster; NULL: it has none. The answer hangs on m and on what was known at load. */
    bool (*fused)(struct device *d, const struct op_fused *o);
    void (*logits)(struct device *d, float *out, const void *x, const struct dev_weight *w,
                   uint32_t m); /* linear with F32 out, no bias */
    /* out F32 [n] = x, act [n]: a result of the step, which the host reads after step_wait (models that pool) */
    void (*state)(struct device *d, float *out, const void *x, size_t n);
    /* out F32 [n, 2]: the sum of the squares of a row's q heads, and of its k heads; qkv as in op_qkv */
    void (*squares)(struct device *d, float *out, const struct op_qkv *o, uint32_t n);
    void (*qkv)(struct device *d, const struct op_qkv *o, const struct dev_batch *b, const struct dev_kv *kv);
    void (*attention)(struct device *d, const struct op_attn *o, const struct dev_batch *b, const struct dev_kv *kv);
    /* Attention without KV: the rows of a sequence in this step see each other, before and behind them, within less
     * than `window` of the row where that is not 0. Reads of b the rows of each sequence alone; keys and values are
     * those of qkv. Without sinks. */
    void (*mutual)(struct device *d, const struct op_attn *o, const struct dev_batch *b);
    /* [n, 2 * inter] -> [n, inter]: act(gate) * up; OP_CLAMPED: as enum op_act says */
    void (*glu)(struct device *d, void *out, const void *gate_up, uint32_t n, uint32_t inter, enum op_act act);
    /* act [n], in place: act(x); not OP_CLAMPED, which needs both factors */
    void (*ungated)(struct device *d, void *x, size_t n, enum op_act act);
    /* act [n, dim], in place: x[i] = act(x[i]) * y[row[i]], where rows of y are y_stride numbers apart; row NULL: y[i];
     * of row UINT32_MAX: 0. Not OP_CLAMPED. */
    void (*act_mul)(struct device *d, void *x, const void *y, size_t y_stride, const uint32_t *row, uint32_t n,
                    uint32_t dim, enum op_act act);
    void (*moe)(struct device *d, const struct op_moe *o);
    /* r by `linear`, or with router_f32 by `logits`, and then o by `moe`: the bits are those of the ops one after
     * another. false, NULL: as `fused`. */
    bool (*routed)(struct device *d, const struct op_router *r, const struct op_moe *o);
    void (*lora)(struct device *d, const struct op_lora *o); /* NULL: the device has no adapters */
    /* weight_alloc of a matrix of struct dev_lora, all zero; NULL: weight_alloc does it */
    enum status (*lora_alloc)(struct device *d, enum dtype t, uint32_t n, uint32_t k, struct dev_weight *w_out);
    void (*gather)(struct device *d, void *out, const void *x, const uint32_t *row, uint32_t n,
                   uint32_t dim); /* out[i] = x[row[i]], act; row UINT32_MAX: 0 */
    /* out[i, j] = x[i, column[j]], act [n, k]; NULL where the device has plain weights only */
    void (*columns)(struct device *d, void *out, const void *x, const uint32_t *column, uint32_t n, uint32_t k);
    void (*sample)(struct device *d, const struct op_sample *o);
    void (*logprob)(struct device *d, const struct op_logprob *o);
    /* whole blocks; src and dst in host memory; not between step_begin and step_end */
    void (*block_copy)(struct device *d, const struct dev_kv *kv, const uint32_t *src, const uint32_t *dst, uint32_t n);

    /* tensor parallel: every rank of the group calls with the same sizes. Sums add in rank order 0, 1, 2, ... */
    void (*allreduce)(struct device *d, void *x, size_t n);     /* act, in place */
    void (*broadcast)(struct device *d, void *x, size_t bytes); /* rank 0's */
    void (*allgather)(struct device *d, float *out, const float *x, uint32_t m,
                      uint32_t n_local); /* F32 [m, n_local] -> [m, n_rank * n_local] */
};

struct dev_group; /* ranks of this process that reduce together */
struct device {
    const struct dev_ops *ops;
    enum dtype            act;
    uint32_t              rank, n_rank;
    bool async; /* true: the device works by itself between step_end and step_wait; false: the calls do the work */
};

enum dev_kind { DEV_AUTO, DEV_REF, DEV_CPU, DEV_CUDA };
enum dev_comm {
    DEV_COMM_AUTO,
    DEV_COMM_OWN,
    DEV_COMM_NCCL
}; /* cuda: who moves what ranks exchange; AUTO: by size and place */
enum dev_symmetric {
    DEV_SYMMETRIC_AUTO,
    DEV_SYMMETRIC_ON,
    DEV_SYMMETRIC_OFF
}; /* cuda: alloc_reduced in a window of NCCL; ON: or not open */
enum { DEV_COMM_ID = 128 };
/* A vote of the ranks of several processes while they are opened. Each process casts the result of its ranks. */
enum dev_ballot { DEV_BALLOT_OPEN, DEV_BALLOT_FAILED, DEV_BALLOT_NONE, DEV_BALLOT_HAVE };
struct dev_vote { /* its functions never wait; the thread of the process's first rank calls them */
    void *ctx;
    void (*cast)(void *ctx, enum dev_ballot mine); /* once */
    /* OPEN until all processes have cast. FAILED if two votes differ; then id_out names a group that replaces the first
     * one. A lost process ends the vote by the abort of the group. */
    enum dev_ballot (*result)(void *ctx, unsigned char id_out[DEV_COMM_ID]);
};
struct dev_cfg {
    enum dev_kind     kind;
    size_t            arena_bytes; /* reserved at open, never exceeded           */
    uint32_t          n_thread;    /* cpu: team size incl. the caller; 0: auto    */
    uint32_t          rank, n_rank;
    struct dev_group *group; /* of the ranks of this process; NULL when n_rank is 1 */
    uint32_t first, n_local; /* this process has ranks [first, first + n_local); n_local 0: all. Others only on cuda */
    const char *simd;        /* cpu: NULL or "auto" picks the best; a name of dev_cpu_isas forces that one */
    /* cuda */
    enum dtype act;           /* BF16, or F16 for f16 checkpoints; F32 (0) means BF16 */
    int        ordinal;       /* which GPU; below 0: rank modulo the GPUs there are                     */
    bool       deterministic; /* the exact promise in full: fixed splits, one GEMM algorithm per matrix */
    uint32_t   rows_max; /* of a step, as in dev_limits: up to there algorithms are compared; 0: as far as can be */
    bool       eager;    /* no graphs                                                              */
    bool       pdl;      /* kernels may begin before the one ahead has ended; sm_90 and later, else nothing changes */
    bool       wgmma;    /* prompts by products of warp groups; sm_90 without `deterministic`, else nothing changes */
    /* likewise, whatever wgmma is: activations of prompts become fp8 where they meet fp8 weights */
    bool fp8_prefill;
    bool plan_only; /* for free_bytes and the sizes below alone: nothing is reserved */
    double
        utilization; /* with arena_bytes 0: that share of the GPU's memory, less what is used already; 0: DEV_UTILIZATION */
    const char          *gemm_file; /* of dev_tune; NULL or "": where dev_tune writes when it is not told      */
    const char          *cublaslt;  /* the library's file; NULL or "": by its usual names; "none": do without  */
    const unsigned char *comm_id;   /* [DEV_COMM_ID] of dev_comm_id, the same on all nodes; NULL: all ranks are here */
    enum dev_comm        comm;
    enum dev_symmetric   symmetric;
    uint64_t
        reduced_bytes; /* of all alloc_reduced, each rounded up to 256; the same on every rank; part of arena_bytes */
    const struct dev_vote *vote; /* where ranks are in other processes (comm_id): else NULL */
};
#define DEV_UTILIZATION 0.9
/* The device that AUTO means on this machine, logged once at info if it is the cpu. Other kinds are returned
 * unchanged. */
enum dev_kind dev_resolve(enum dev_kind kind);
/* Instruction sets of the cpu device, of every architecture, the best first: identifier, name on the command line. */
#define DEV_CPU_ISA_LIST(X)       \
    X(AMX, "amx")                 \
    X(AVX512_BF16, "avx512-bf16") \
    X(AVX512_VNNI, "avx512-vnni") \
    X(AVX512, "avx512")           \
    X(AVX_VNNI, "avx-vnni")       \
    X(AVX2, "avx2")               \
    X(NEON_BF16, "neon-bf16")     \
    X(NEON, "neon")               \
    X(SCALAR, "scalar")
enum dev_cpu_isa {
    DEV_ISA_AUTO,
#define DEV_ISA_ID(id, name) DEV_ISA_##id,
    DEV_CPU_ISA_LIST(DEV_ISA_ID)
#undef DEV_ISA_ID
};
/* "avx512-bf16, avx512-vnni, avx512, avx2, scalar": the instruction sets of dev_cfg.simd that this machine has, best
 * first; returns text. */
const char *dev_cpu_isas(char *text, size_t text_bytes);
bool        dev_cpu_has_isa(const char *name); /* or "auto" */
/* The speed-up from activations of 8 bits for codes of type t on that instruction set (or "auto"), in prompts and
 * batches; 1: none, or not measured. */
double dev_cpu_act8_gain(const char *isa, enum dtype t);
/* True if this machine has a usable device of that kind. false: one line in why. Allocates nothing. */
bool dev_serves(enum dev_kind kind, char *why, size_t why_bytes);
/* Logs why when it fails (ST_NOMEM, ST_CONFIG). */
enum status dev_open(const struct dev_cfg *cfg, struct device **d_out);
void        dev_close(struct device *d);
enum status dev_group_create(uint32_t n_rank, struct dev_group **g_out);
void        dev_group_abort(struct dev_group *g); /* a rank failed: waiters return, their next sync says ST_DEVICE */
void        dev_group_free(struct dev_group *g);  /* after all its devices are closed */
/* Makes the name of a group of ranks in several processes, for dev_cfg.comm_id. The process of rank 0 calls it once.
 * ST_CONFIG, logged: ranks of several processes cannot reach each other on this kind of device, or its library is
 * missing. */
enum status dev_comm_id(enum dev_kind kind, unsigned char id_out[DEV_COMM_ID]);

/* Bytes that weight_alloc takes for such a matrix on this device (for the memory plan before loading). */
uint64_t dev_weight_bytes(const struct device *d, enum dtype t, uint32_t n, uint32_t k);
uint64_t dev_quant_bytes(const struct device *d, const struct dev_quant *q, uint32_t n,
                         uint32_t k); /* 0: quant_alloc refuses it */
/* A device that only tells sizes (dev_weight_bytes, dev_quant_bytes, dev_step_bytes), for model_plan on a machine
 * without one: rank of n_rank, activations of type act on a GPU. What a step takes of a GPU is an estimate.
 * dev_close. */
enum status dev_paper(enum dev_kind kind, uint32_t rank, uint32_t n_rank, enum dtype act, struct device **d_out);
uint64_t    dev_step_bytes(const struct device *d, const struct dev_limits *lim); /* what step_init takes */
/* The decode steps that a device records, after step_init: numbers of rows, rising, of which each gets a recording of
 * its own when it is met the second time. */
struct dev_graphs {
    uint32_t rows[DEV_GRAPHS_MAX], n; /* n 0: the device records nothing */
    uint32_t n_recorded;              /* by now; up to twice n: steps with adapters (op lora) are recorded apart */
    uint64_t bytes;                   /* device memory that recording took, as far as the device can tell */
};
void dev_graphs(const struct device *d, struct dev_graphs *out);

/* Fills rows of a weight with random numbers like a trained matrix's. Row r and column c of [row0, + n_row) x [0, k)
 * get element (src_row + r) * src_len + src_col + c of an endless sequence of roughly normal numbers for `seed`, times
 * std, rounded to the weight's type. The numbers are the same on every device and for every division among ranks.
 * Loading only. Threads: where dev_fills says that the device makes them, one; else several at a time on distinct rows,
 * and it is they who compute. more than eight: rows of a matrix, and the place of their numbers in the sequence. */
void dev_weight_fill(struct device *d, struct dev_weight *w, uint32_t row0, uint32_t n_row, uint64_t seed,
                     uint64_t src_row, uint64_t src_col, uint64_t src_len, float std);
bool dev_fills(const struct device *d, const struct dev_weight *w);

/* Weights as bytes in a file (engine/model/packed.h), on devices whose memory belongs to the process. Loading thread.
 * form: a number for the device's layout of weights of type t or, if q is not NULL, of codes q. It is the digest of a
 * small packed matrix, so another instruction set, or a build that packs or rounds in another way, has another number.
 * The arena is free and zero again afterwards. 0: this device's weights cannot be kept in a file.
 * map: maps the file's bytes [offset, + bytes) at `at`, read only and shared with other processes; all three are
 * multiples of DEV_MAP_ALIGN. False: mapping is impossible or unwise (memory of several nodes); read the bytes instead.
 * unmap: replaces the mapping by writable zeros. */
enum { DEV_MAP_ALIGN = 2 << 20 };
uint64_t    dev_weight_form(struct device *d, enum dtype t, const struct dev_quant *q);
bool        dev_map(struct device *d, void *at, size_t bytes, int fd, uint64_t offset);
enum status dev_unmap(struct device *d, void *at, size_t bytes); /* ST_NOMEM: the range is unusable now */

/* Asks the system for the pages of [at, + bytes) now, not at the first write; their content stays. Loading thread; all
 * threads of the device help. No-op if the memory was reserved at open. */
void dev_touch(struct device *d, void *at, size_t bytes);

/* Describes how the device computes: a text with a name and a number for each part of a forward with plain weights of
 * this type, codes q (NULL or code F32: none) and KV of type kv. Devices with the same text make the same bits. A
 * number rises when its part's bits change (kernels/cpu/arith.c). */
enum { DEV_ARITH = 200 };
void dev_arith(const struct device *d, enum dtype weights, const struct dev_quant *q, enum dtype kv,
               char text[DEV_ARITH]);

/* Describes the device's current work, for a dump while it hangs. Any thread. One line without its end; returns its
 * bytes. 0: unknown. */
size_t dev_doing(const struct device *d, uint64_t now_us, char *text, size_t text_bytes);

/* Where the device's GPU is on the machine's PCI bus. False: the device is no GPU. Any thread. */
struct dev_place {
    uint32_t domain, bus, slot;
};
bool dev_place(const struct device *d, struct dev_place *out);

/* The time for which steps kept the device busy, and the idle time between them, since the last call. The first call
 * starts the count. Rank thread, no step in flight. False: this device does not measure it. */
struct dev_times {
    double   busy_us, idle_us;
    uint64_t n_step;
};
bool dev_step_times(struct device *d, struct dev_times *out);

/* Device seconds of one fn(arg, i), the mean over i = 0 .. n - 1, without the host's time to enqueue. The calls, each
 * of which runs ops, are recorded once and replayed; the result is the median of several replays. NAN: this device
 * cannot record. */
double dev_time(struct device *d, uint32_t n, void (*fn)(void *arg, uint32_t i), void *arg);

/* Measures limits of the machine. READ, COPY, TRIAD: GB/s of device memory, read and written bytes both counted. GAP,
 * GAP_PDL: us from one empty kernel of a graph to the next, without and with programmatic dependent launch. NAN:
 * unknown. It uses the free part of the arena. */
enum dev_probe { DEV_PROBE_READ, DEV_PROBE_COPY, DEV_PROBE_TRIAD, DEV_PROBE_GAP, DEV_PROBE_GAP_PDL };
double dev_probe(struct device *d, enum dev_probe what);

/* Copies of KV between the device and host memory, while steps run. Copies of one direction run in order; the two
 * directions run at once. Thread: any except the rank's, one at a time for each direction; open, pin, unpin: before and
 * after all copies.
 * The device does not order copies against steps. The caller begins a copy after it has waited for all steps that write
 * or may still touch its memory, and begins steps that use the copied bytes after the copy is done. Meanwhile nobody
 * else may touch the memory. */
enum dev_way { DEV_DOWN, DEV_UP, DEV_WAYS }; /* from the device; to it */
enum { DEV_COPIES_MAX = 16 };                /* begun and not done, for each way (CHECK) */
struct dev_run { /* n pieces of `bytes`, dev_step bytes apart on the device and host_step apart on the host */
    void  *dev, *host;
    size_t bytes, dev_step, host_step; /* steps: at least bytes, below 2 GiB */
    size_t n;
};
/* True if the device's operations read the host memory at this address, so that guests may lie there (struct dev_kv).
 * NULL: any memory of the process, through the host's page tables (GH200, GB200: over NVLink-C2C); devices that use the
 * process's own memory. An address: this one, because of the former or because it is pinned (over PCIe, slowly). */
bool        dev_reaches(struct device *d, const void *host);
enum status dev_copy_open(struct device *d); /* once; allocates streams and buffers of copies. ST_DEVICE, logged */
/* Begins a copy of n runs; dev_copy_done tells of its end. */
void dev_copy_begin(struct device *d, enum dev_way way, const struct dev_run *run, uint32_t n);
/* The state of the oldest copy. ST_AGAIN: not done yet. ST_IO: it failed, was logged, and no longer touches memory.
 * ST_DEVICE: the device is lost. */
enum status dev_copy_done(struct device *d, enum dev_way way);
/* Pins host memory for the copies of every device of this kind. false, logged: it stays unpinned, and copies are
 * slower. */
bool dev_pin(struct device *d, void *host, size_t bytes);
void dev_unpin(struct device *d, void *host); /* no-op where it is not pinned */

/* Finds the fastest algorithms of the GPU's library for these matrices, checks their results, and writes them to a file
 * for dev_cfg.gemm_file. out_path: the file's path. line: gets one line of text per result. ST_CONFIG and ST_DEVICE
 * have been logged. */
struct dev_matrix {
    uint32_t    n, k;
    bool        logits; /* F32 out */
    bool        norm;   /* as in struct op_fused: what stands around the matrix in a forward, and is timed with it */
    enum op_end end;
    uint32_t    top_k; /* of a router: experts of a row, whose choice is timed with it; 0: it is none */
};
struct dev_tune_cfg {
    enum dtype               act;
    int                      ordinal;
    const struct dev_matrix *matrix;
    uint32_t                 n_matrix, n_candidate, rows_max; /* rows_max 0: all buckets; n_candidate 0: 16 */
    uint32_t                 runs;                            /* timed runs per candidate; 0: 20 */
    const char              *output, *cublaslt;               /* NULL or "": the usual place */
    void (*line)(void *ctx, const char *text);
    void *ctx;
};
/* Measures which algorithm multiplies each matrix fastest and writes the table that later starts read; its path is
 * copied to out_path. ST_CONFIG: this build has no GPU; ST_IO; ST_DEVICE. */
enum status dev_tune(const struct dev_tune_cfg *cfg, char *out_path, size_t out_path_bytes);

/* The GPUs of this machine. why: one line when there is none that can serve (no driver, too old, not in this build). */
struct dev_info {
    char     name[96];
    int      ordinal, arch; /* arch: 90 for sm_90 */
    uint64_t total_bytes, free_bytes;
    uint32_t n_sm;
    char     refused[160]; /* why this one cannot serve; "" when it can */
};
uint32_t dev_list(struct dev_info *out, uint32_t max, char *why, size_t why_bytes);
