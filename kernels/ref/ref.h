/* ref: the truth. Every op in plain scalar C with double accumulators, no cleverness, one thread.   Private to
 * kernels/. */
#pragma once
#include "kernels/elem.h"
#include "kernels/host.h"
#include "kernels/quant.h"

/* Each is the operation of that name in struct dev_ops, and kernels/device.h gives its shapes and types: */
void ref_embed(struct device *d, void *out, const uint32_t *id, const struct dev_weight *w, uint32_t n);
void ref_linear(struct device *d, void *out, const void *x, const struct dev_weight *w, const float *bias, uint32_t m);
void ref_logits(struct device *d, float *out, const void *x, const struct dev_weight *w, uint32_t m);
void ref_rmsnorm(struct device *d, void *out, const void *x, const float *w, uint32_t n, uint32_t dim, float eps);
void ref_add_rmsnorm(struct device *d, void *out, void *x, const void *delta, const float *w, uint32_t n, uint32_t dim,
                     float eps);
void ref_layernorm(struct device *d, void *out, const void *x, const float *w, const float *bias, uint32_t n,
                   uint32_t dim, float eps);
void ref_squares(struct device *d, float *out, const struct op_qkv *o, uint32_t n);
void ref_qkv(struct device *d, const struct op_qkv *o, const struct dev_batch *b, const struct dev_kv *kv);
void ref_attention(struct device *d, const struct op_attn *o, const struct dev_batch *b, const struct dev_kv *kv);
void ref_mutual(struct device *d, const struct op_attn *o, const struct dev_batch *b);
void ref_ungated(struct device *d, void *x, size_t n, enum op_act act);
void ref_act_mul(struct device *d, void *x, const void *y, size_t y_stride, const uint32_t *row, uint32_t n,
                 uint32_t dim, enum op_act act);
void ref_glu(struct device *d, void *out, const void *gate_up, uint32_t n, uint32_t inter, enum op_act act);
void ref_scale(struct device *d, void *x, size_t n, float by);
void ref_add_gated(struct device *d, void *x, const void *y, const void *gate, uint32_t n, uint32_t dim);
void ref_cap(struct device *d, float *x, size_t n, float by, float cap);
void ref_lora(struct device *d, const struct op_lora *o);
void ref_moe(struct device *d, const struct op_moe *o);
void ref_sample(struct device *d, const struct op_sample *o);
void ref_logprob(struct device *d, const struct op_logprob *o);

/* weight.c has the operations of struct dev_ops on matrices: */
uint64_t    ref_weight_bytes(enum dtype t, uint32_t n, uint32_t k);
enum status ref_weight_alloc(struct device *d, enum dtype t, uint32_t n, uint32_t k, struct dev_weight *w_out);
void        ref_weight_set(struct device *d, struct dev_weight *w, uint32_t row0, uint32_t n_row, const void *src,
                           size_t src_stride, enum dtype src_t);
uint64_t    ref_quant_bytes(const struct dev_quant *q, uint32_t n, uint32_t k);
enum status ref_quant_alloc(struct device *d, const struct dev_quant *q, uint32_t n, uint32_t k,
                            struct dev_weight *w_out);
void ref_quant_set(struct device *d, struct dev_weight *w, uint32_t row0, uint32_t n_row, const struct dev_codes *c);

/* The activation of one gate of a feed-forward. */
float ref_gated(enum op_act act, float gate, float up); /* act(gate) * up */
/* cap * tanh(x / cap); x itself where cap is 0 */
double ref_soft_cap(double x, float cap);
/* Row n as floats, codes with their scales and zeros, to every stride-th place of out. */
void ref_weight_row(const struct dev_weight *w, uint32_t n, float *out, size_t stride);
/* x [w->k], or where the format says so, rounded to 8 bits: then it lies in `rounded`. Returns one of the two. */
const float *ref_act(const float *x, const struct dev_weight *w, float *rounded);
/* out [m][w->n]: x [m][w->k] times each row of w, summed in double from the first element to the last. */
void ref_dots(const float *x, uint32_t m, const struct dev_weight *w, double *out);
