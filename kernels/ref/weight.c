/* weight: the ref device's matrices, row by row as the checkpoint has them, and codes with their scales. */
#include "kernels/ref/ref.h"
#include <stdlib.h>
#include <string.h>

uint64_t ref_weight_bytes(enum dtype t, uint32_t n, uint32_t k)
{
    return ((uint64_t)n * k * dtype_bytes(t) + 63) / 64 * 64;
}

enum status ref_weight_alloc(struct device *d, enum dtype t, uint32_t n, uint32_t k, struct dev_weight *w_out)
{
    struct dev_weight w = { .dtype = t, .n = n, .k = k, .bytes = ref_weight_bytes(t, n, k) };
    if (!elem_is_float(t)) return weight_refuse("ref", t, NULL);
    enum status st = host_alloc(d, w.bytes, &w.data);
    if (st == ST_OK) *w_out = w;
    return st;
}

/* Codes: a byte each, [n][k]; scales, then zeros: floats, [n][group]. */
uint64_t ref_quant_bytes(const struct dev_quant *q, uint32_t n, uint32_t k)
{
    uint64_t groups = (uint64_t)n * quant_n_group(q, k);
    return ((uint64_t)n * k + 63) / 64 * 64 + groups * sizeof(float) * (q->zero ? 2 : 1);
}

enum status ref_quant_alloc(struct device *d, const struct dev_quant *q, uint32_t n, uint32_t k,
                            struct dev_weight *w_out)
{
    if (!quant_ok(q, k)) return weight_refuse("ref", q->code, q);
    struct dev_weight w = { .dtype = q->code, .n = n, .k = k, .bytes = ref_quant_bytes(q, n, k), .q = *q };
    enum status       st = host_alloc(d, w.bytes, &w.data);
    if (st) return st;
    w.scale = (char *)w.data + ((uint64_t)n * k + 63) / 64 * 64;
    if (q->zero) w.zero = (float *)w.scale + (size_t)n * quant_n_group(q, k);
    *w_out = w;
    return ST_OK;
}

void ref_quant_set(struct device *d, struct dev_weight *w, uint32_t row0, uint32_t n_row, const struct dev_codes *c)
{
    (void)d;
    uint32_t n_group = quant_n_group(&w->q, w->k);
    CHECK(row0 <= w->n && n_row <= w->n - row0);
    for (uint32_t i = 0; i < n_row; i++) {
        memcpy((char *)w->data + (size_t)(row0 + i) * w->k, c->code + i * c->code_stride, w->k);
        for (uint32_t g = 0; g < n_group; g++) {
            float  s = c->scale[i * c->scale_stride + g];
            size_t at = (size_t)(row0 + i) * n_group + g;
            ((float *)w->scale)[at] = w->dtype == DT_I4 ? f16_to_f32(f32_to_f16(s)) : s * quant_factor(c, i);
            if (w->zero) ((float *)w->zero)[at] = c->zero ? (float)c->zero[i * c->scale_stride + g] : 8.0f;
        }
    }
}

static void ref_quantise(struct device *d, struct dev_weight *w, uint32_t row, const char *src, enum dtype t)
{
    uint32_t         n_group = quant_n_group(&w->q, w->k);
    uint8_t         *code = malloc(w->k);
    float           *scale = malloc(n_group * sizeof *scale);
    float            factor = 1;
    struct dev_codes c = { .code = code, .scale = scale, .factor = &factor };
    CHECK(code && scale);
    factor = quant_row(&w->q, w->k, src, t, code, scale);
    ref_quant_set(d, w, row, 1, &c);
    free(code);
    free(scale);
}

void ref_weight_set(struct device *d, struct dev_weight *w, uint32_t row0, uint32_t n_row, const void *src,
                    size_t src_stride, enum dtype src_t)
{
    CHECK(row0 <= w->n && n_row <= w->n - row0);
    CHECK(elem_is_float(src_t));
    for (uint32_t i = 0; i < n_row; i++) {
        const char *row = (const char *)src + i * src_stride;
        if (dev_weight_is_quant(w))
            ref_quantise(d, w, row0 + i, row, src_t);
        else
            for (uint32_t j = 0; j < w->k; j++)
                elem_store(w->data, w->dtype, (size_t)(row0 + i) * w->k + j, elem_load(row, src_t, j));
    }
}

static void codes_row(const struct dev_weight *w, uint32_t n, float *out, size_t stride)
{
    const uint8_t *code = (const uint8_t *)w->data + (size_t)n * w->k;
    uint32_t       n_group = quant_n_group(&w->q, w->k), group = w->q.group ? w->q.group : w->k;
    for (uint32_t g = 0; g < n_group; g++) {
        float scale = ((const float *)w->scale)[(size_t)n * n_group + g], zero = w->dtype == DT_I4 ? 8.0f : 0.0f;
        if (w->zero) zero = ((const float *)w->zero)[(size_t)n * n_group + g];
        for (uint32_t k = g * group; k < w->k && k < (g + 1) * group; k++)
            out[k * stride] = (quant_code(w->dtype, code[k]) - zero) * scale;
    }
}

void ref_weight_row(const struct dev_weight *w, uint32_t n, float *out, size_t stride)
{
    size_t at = (size_t)n * w->k;
    CHECK(n < w->n);
    switch (w->dtype) { /* loops in which nothing is left to choose */
    case DT_F32:
        for (uint32_t k = 0; k < w->k; k++) out[k * stride] = elem_load(w->data, DT_F32, at + k);
        break;
    case DT_BF16:
        for (uint32_t k = 0; k < w->k; k++) out[k * stride] = elem_load(w->data, DT_BF16, at + k);
        break;
    case DT_F16:
        for (uint32_t k = 0; k < w->k; k++) out[k * stride] = elem_load(w->data, DT_F16, at + k);
        break;
    default: codes_row(w, n, out, stride);
    }
}
