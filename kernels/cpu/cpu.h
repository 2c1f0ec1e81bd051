/* cpu: the device of this machine's cores. One rank thread plus a team; memory is the arena.   Private to kernels/cpu/.
 * A product is summed over k in one order, which the matrix alone decides (gemm.h): the same for every number of rows,
 * every split over threads and every place in a batch; a weight is read once, forwards.
 * Scratch is taken at open: per thread, for sampling, and shared (MoE). An op that does not fit works in smaller
 * parts. */
#pragma once
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/team.h"
#include "kernels/elem.h"
#include "kernels/host.h"

struct cpu_dev {
    struct host_dev       host; /* first */
    struct dev_ops        ops;  /* with the name of the variant */
    const struct cpu_isa *isa;
    const struct simd    *v; /* isa's */
    struct team          *team;
    struct rope_cache    *rope;
    char                 *scratch; /* [n_thread][scratch_bytes] */
    char                 *shared;
    char                 *sample; /* [n_sample][sample_bytes] */
    size_t                scratch_bytes, shared_bytes, sample_bytes;
    uint32_t              n_thread, n_sample;
};

/* The struct behind a device, and the scratch memory of one thread of its team (scratch_bytes). */
static inline struct cpu_dev *cpu_of(struct device *d) { return (struct cpu_dev *)d; }
static inline void *cpu_scratch(struct cpu_dev *d, uint32_t thread) { return d->scratch + thread * d->scratch_bytes; }

/* gemm.c has the entries of dev_ops on matrices, which kernels/device.h describes: */
uint64_t    cpu_weight_bytes(enum dtype t, uint32_t n, uint32_t k);
enum status cpu_weight_alloc(struct device *d, enum dtype t, uint32_t n, uint32_t k, struct dev_weight *w_out);
void        cpu_weight_set(struct device *d, struct dev_weight *w, uint32_t row0, uint32_t n_row, const void *src,
                           size_t src_stride, enum dtype src_t);
void        cpu_embed(struct device *d, void *out, const uint32_t *id, const struct dev_weight *w, uint32_t n);
void cpu_linear(struct device *d, void *out, const void *x, const struct dev_weight *w, const float *bias, uint32_t m);
void cpu_logits(struct device *d, float *out, const void *x, const struct dev_weight *w, uint32_t m);
uint64_t    cpu_quant_bytes(const struct dev_quant *q, uint32_t n, uint32_t k);
enum status cpu_quant_alloc(struct device *d, const struct dev_quant *q, uint32_t n, uint32_t k,
                            struct dev_weight *w_out);
void cpu_quant_set(struct device *d, struct dev_weight *w, uint32_t row0, uint32_t n_row, const struct dev_codes *c);
/* A product by one thread of the team. x: rows as gemm_of(w) wants them, x_stride bytes apart. */
struct cpu_mul {
    struct cpu_dev          *d;
    float                   *out;
    size_t                   ldo, x_stride;
    const void              *x;
    const struct dev_weight *w;
    const float             *bias; /* or NULL */
    uint32_t                 thread;
};
/* Rows [row, row + m) of panels [panel0, panel0 + n_panel): what a piece of a job does. */
void cpu_mul_panels(const struct cpu_mul *p, uint32_t row, uint32_t m, uint32_t panel0, uint32_t n_panel);
/* arith.c: as dev_arith */
void cpu_arith(const struct device *d, enum dtype weights, const struct dev_quant *q, enum dtype kv, char *text,
               size_t bytes);
/* norm.c */
void cpu_rmsnorm(struct device *d, void *out, const void *x, const float *w, uint32_t n, uint32_t dim, float eps);
void cpu_add_rmsnorm(struct device *d, void *out, void *x, const void *delta, const float *w, uint32_t n, uint32_t dim,
                     float eps);
void cpu_norm_row(const struct simd *v, float *out, const float *x, const float *w, uint32_t dim, float eps);
/* rope.c */
struct rope_cache *rope_cache_init(void *memory, size_t bytes);
void cpu_layernorm(struct device *d, void *out, const void *x, const float *w, const float *bias, uint32_t n,
                   uint32_t dim, float eps);
void cpu_squares(struct device *d, float *out, const struct op_qkv *o, uint32_t n);
void cpu_qkv(struct device *d, const struct op_qkv *o, const struct dev_batch *b, const struct dev_kv *kv);
/* Entries of dev_ops in attn.c, mlp.c, moe.c, lora.c, sample.c: */
void cpu_attention(struct device *d, const struct op_attn *o, const struct dev_batch *b, const struct dev_kv *kv);
void cpu_mutual(struct device *d, const struct op_attn *o, const struct dev_batch *b);
void cpu_columns(struct device *d, void *out, const void *x, const uint32_t *column, uint32_t n, uint32_t k);
void cpu_ungated(struct device *d, void *x, size_t n, enum op_act act);
void cpu_act_mul(struct device *d, void *x, const void *y, size_t y_stride, const uint32_t *row, uint32_t n,
                 uint32_t dim, enum op_act act);
void cpu_glu(struct device *d, void *out, const void *gate_up, uint32_t n, uint32_t inter, enum op_act act);
void cpu_scale(struct device *d, void *x, size_t n, float by);
void cpu_add_gated(struct device *d, void *x, const void *y, const void *gate, uint32_t n, uint32_t dim);
void cpu_cap(struct device *d, float *x, size_t n, float by, float cap);
void cpu_lora(struct device *d, const struct op_lora *o);
void cpu_moe(struct device *d, const struct op_moe *o);
void cpu_sample(struct device *d, const struct op_sample *o);
void cpu_logprob(struct device *d, const struct op_logprob *o);
