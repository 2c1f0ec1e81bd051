/* codes_given: matrices of random codes, as a checkpoint gives them to a device. */
#pragma once
#include "base/rng.h"
#include "cuda/cuda_test.h"

enum { SPARE = 3 };

/* Codes with scales, zeros and factors; rows of codes lie SPARE bytes apart. */
struct given {
    uint8_t         *code, *zero;
    float           *scale, *factor;
    struct dev_codes c;
};
static inline uint32_t draw(uint64_t seed, uint64_t i) { return rng_philox(seed, 7, i).x[0]; }

static inline struct given given_make(const struct dev_quant *q, uint32_t n, uint32_t k)
{
    uint32_t     groups = q->group ? (k + q->group - 1) / q->group : 1;
    struct given g = { malloc((size_t)n * (k + SPARE)), malloc((size_t)n * groups), malloc(4 * (size_t)n * groups),
                       malloc(4 * (size_t)n), .c = { .code_stride = k + SPARE, .scale_stride = groups } };
    for (size_t i = 0; i < (size_t)n * (k + SPARE); i++) {
        g.code[i] = (uint8_t)(draw(1, i) & (dtype_is_half_byte(q->code) ? 15 : 255));
        if (q->code == DT_F8E4M3 && (g.code[i] & 0x7f) == 0x7f) g.code[i] = 0x81;
    }
    float unit = q->code == DT_F8E4M3 ? 0.001f : 0.02f;
    for (size_t i = 0; i < (size_t)n * groups; i++) {
        g.scale[i] = unit * (1 + (float)(draw(2, i) % 1000) / 700) * (i % 5 ? 1 : -1);
        g.zero[i] = (uint8_t)(draw(3, i) % 17);
        if (q->group == 16) g.scale[i] = f8e4m3_to_f32((uint8_t)(draw(2, i) % 0x7f)); /* each there is, of one sign */
    }
    for (uint32_t i = 0; i < n; i++) g.factor[i] = q->group == 16 ? 0.001f * (1 + (float)(draw(4, i) % 100) / 90) : 1;
    g.c.factor = g.factor;
    g.c.factor_stride = 1;
    g.c.code = g.code;
    g.c.scale = g.scale;
    g.c.zero = q->zero ? g.zero : NULL;
    return g;
}
static inline void given_free(struct given *g)
{
    free(g->code);
    free(g->zero);
    free(g->scale);
    free(g->factor);
}

/* Such a matrix on the device. */
static inline struct dev_weight given_weight(struct device *d, const struct dev_quant *q, uint32_t n, uint32_t k)
{
    struct dev_weight w;
    struct given      g = given_make(q, n, k);
    assert_int_equal(d->ops->quant_alloc(d, q, n, k, &w), ST_OK);
    d->ops->quant_set(d, &w, 0, n, &g.c);
    assert_int_equal(d->ops->sync(d), ST_OK);
    given_free(&g);
    return w;
}
