/* codes_rig: what the tests of products with codes share: formats, a matrix of codes on the cuda device and on ref, its
 * products and what they may differ by. */
#pragma once
#include "cuda/codes_given.h"
#include "test.h"

static const struct dev_quant formats[] = {
    { .code = DT_I4, .group = 32, .zero = true },
    { .code = DT_I4, .group = 128 },
    { .code = DT_F8E4M3 },
    { .code = DT_I8 },
    { .code = DT_F4E2M1, .group = 16 },
    { .code = DT_I4, .group = 64, .zero = true },
    { .code = DT_F8E4M3, .group = 128 },
    { .code = DT_I8, .group = 32 },
    { .code = DT_I4 },
    { .code = DT_I4, .group = 256, .zero = true },
    { .code = DT_F8E4M3, .group = 32 },
};

/* The same matrix [n, k] and rows x [rows, k] on both devices, and room for results on the one. */
struct rig {
    struct device    *d, *ref;
    struct dev_quant  q;
    uint32_t          n, k, rows;
    struct dev_weight w, wr;
    struct given      given;
    float            *x;
    char             *dx, *out;
};

static inline void rig_open(struct rig *r, enum dtype act, const struct dev_quant *q, uint32_t n, uint32_t k,
                            uint32_t rows)
{
    *r = (struct rig){ .d = ct_open(act, 96 << 20), .ref = ct_open_ref(), .q = *q, .n = n, .k = k, .rows = rows };
    assert_int_equal(r->d->ops->quant_alloc(r->d, q, n, k, &r->w), ST_OK);
    assert_int_equal(r->ref->ops->quant_alloc(r->ref, q, n, k, &r->wr), ST_OK);
    assert_true(r->w.bytes == dev_quant_bytes(r->d, q, n, k) && r->w.bytes > 0);
    r->given = given_make(q, n, k);
    r->d->ops->quant_set(r->d, &r->w, 0, n, &r->given.c);
    r->ref->ops->quant_set(r->ref, &r->wr, 0, n, &r->given.c);
    r->x = op_random((size_t)rows * k, n + k, 1);
    ct_round(r->x, (size_t)rows * k, act);
    r->dx = ct_act(r->d, r->x, (size_t)rows * k);
    r->out = ct_alloc(r->d, (size_t)(rows + 1) * n * 4);
    assert_int_equal(r->d->ops->sync(r->d), ST_OK);
}
static inline void rig_close(struct rig *r)
{
    free(r->x);
    given_free(&r->given);
    dev_close(r->d);
    dev_close(r->ref);
}
static inline size_t row_bytes(const struct rig *r, bool logits)
{
    return r->n * (logits ? 4 : dtype_bytes(r->d->act));
}

/* The product of rows [m0, + m); the caller frees it. Nothing behind it is written. */
static inline char *run(struct rig *r, bool logits, uint32_t m0, uint32_t m)
{
    size_t row = row_bytes(r, logits);
    char  *got = malloc((m + 1) * row);
    ct_poison(r->d, r->out, (m + 1) * row);
    if (logits)
        r->d->ops->logits(r->d, (float *)(void *)r->out, r->dx + (size_t)m0 * r->k * 2, &r->w, m);
    else
        r->d->ops->linear(r->d, r->out, r->dx + (size_t)m0 * r->k * 2, &r->w, NULL, m);
    ct_get(r->d, got, r->out, (m + 1) * row);
    for (size_t i = m * row; i < (m + 1) * row; i++) assert_int_equal((uint8_t)got[i], 0xff);
    return got;
}
static inline float number(const struct rig *r, bool logits, const char *got, size_t i)
{
    uint16_t h;
    float    f;
    if (logits) {
        memcpy(&f, got + i * sizeof f, sizeof f);
        return f;
    }
    memcpy(&h, got + i * sizeof h, sizeof h);
    return r->d->act == DT_F16 ? f16_to_f32(h) : bf16_to_f32(h);
}

/* Within what rounding the result takes, and fp32 sums; the largest product is below `most`. */
static inline void assert_right(struct rig *r, bool logits, const char *got, uint32_t m)
{
    float *want = malloc((size_t)m * r->n * sizeof *want);
    double unit = r->d->act == DT_F16 ? 0x1p-11 : 0x1p-8, most = r->q.code == DT_F8E4M3 ? 448 * 0.0025 : 128 * 0.05;
    if (logits) unit = 1e-6;
    r->ref->ops->linear(r->ref, want, r->x, &r->wr, NULL, m);
    for (size_t i = 0; i < (size_t)m * r->n; i++) {
        double x = (double)number(r, logits, got, i), bound = unit * fabs((double)want[i]) + 2e-7 * most * r->k;
        if (!(fabs(x - (double)want[i]) <= bound))
            fail_msg("%s group %u: [%zu, %zu] of %u rows, n %u, k %u is %.9g, should be %.9g", dtype_name(r->q.code),
                     r->q.group, i / r->n, i % r->n, m, r->n, r->k, x, (double)want[i]);
    }
    free(want);
}

/* m rows by the matrix, which is square, and those by it again: x of the second product is what the first makes. */
static inline void assert_the_same_in_every_order(struct rig *r, uint32_t m)
{
    size_t n = (size_t)m * r->n, bytes = n * 2;
    char  *mid = ct_alloc(r->d, bytes), *want = malloc(bytes), *got = malloc(bytes);
    assert_int_equal(r->n, r->k);
    for (CT_SCHEDULES(schedule)) {
        ct_poison(r->d, mid, bytes);
        r->d->ops->linear(r->d, mid, r->dx, &r->w, NULL, m);
        r->d->ops->linear(r->d, r->out, mid, &r->w, NULL, m);
        ct_get(r->d, got, r->out, bytes);
        if (!schedule) memcpy(want, got, bytes);
        ct_assert_same(got, want, bytes, ct_schedule_name(schedule));
    }
    for (size_t j = 0; j < n; j++) assert_true(isfinite(number(r, false, got, j)));
    free(want);
    free(got);
}
