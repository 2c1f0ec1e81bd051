/* fused_test: products of plain weights and of codes, by themselves and joined with what stands around them: what the tests of
 * joined products share. */
#pragma once
#include "cuda/codes_given.h"
#include "kernels/cuda/gemm.h"

enum { ROWS = 40, ROWS_JOINED = 32, ROWS_NORMED = 8 };
static const float eps = 1e-5f;

/* Each kind of codes, with groups and without. */
static const struct dev_quant formats[] = {
    { .code = DT_F8E4M3, .group = 128 }, { .code = DT_I4, .group = 32, .zero = true },
    { .code = DT_F4E2M1, .group = 16 },  { .code = DT_I8 },
    { .code = DT_I4, .group = 128 },     { .code = DT_F8E4M3 },
    { .code = DT_I8, .group = 64 },
};
static const struct dev_quant plain = { .code = DT_F32 };

/* [n, k] of random numbers, about as large as std, or of random codes. */
static inline struct dev_weight weight(struct device *d, const struct dev_quant *q, uint32_t n, uint32_t k, float std)
{
    if (q->code != DT_F32) return given_weight(d, q, n, k);
    float            *w = op_random((size_t)n * k, n * 7 + k, std);
    struct dev_weight out = { .data = ct_act(d, w, (size_t)n * k), .dtype = d->act, .n = n, .k = k };
    free(w);
    return out;
}

/* The plain product, and the joined one. */
static inline void product(struct device *d, void *out, const void *x, const struct dev_weight *w, uint32_t m)
{
    const struct gemm_product p = { .out = out, .out_t = d->act, .x = x, .w = w, .m = m };
    if (w->q.code == DT_F32)
        cuda_gemm_rows(cuda_of(d), out, d->act, x, w->data, m, w->n, w->k);
    else
        cuda_gemm_codes(cuda_of(d), &p);
}
static inline bool join(struct device *d, const struct op_fused *o)
{
    return o->w->q.code == DT_F32 ? cuda_gemm_fused(cuda_of(d), o) : cuda_codes_fused(cuda_of(d), o);
}
/* By one kernel, or as much of it as one does. h: room for m normalised rows. */
static inline void joined(struct device *d, const struct op_fused *o, void *h)
{
    struct op_fused rest = *o;
    if (join(d, o)) return;
    assert_non_null(o->norm);
    cuda_rmsnorm(d, h, o->x, o->norm, o->m, o->w->k, o->eps);
    rest.x = h;
    rest.norm = NULL;
    assert_true(join(d, &rest));
}
