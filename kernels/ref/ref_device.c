/* ref device: the arena, weights row by row as the checkpoint has them, and the table of ops. */
#include "base/log.h"
#include "kernels/ref/ref.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ref_dev {
    struct host_dev host; /* first */
};

static void ref_close(struct device *d)
{
    host_free((struct host_dev *)d);
    free(d);
}

/* As dev_arith: one number for all, which rises when any bits change. */
static void ref_arith(const struct device *d, enum dtype weights, const struct dev_quant *q, enum dtype kv, char *text,
                      size_t bytes)
{
    (void)d;
    (void)weights;
    (void)q;
    (void)kv;
    snprintf(text, bytes, "ref.1");
}

static uint64_t ref_weight_bytes(enum dtype t, uint32_t n, uint32_t k)
{
    return ((uint64_t)n * k * dtype_bytes(t) + 63) / 64 * 64;
}

static enum status ref_weight_alloc(struct device *d, enum dtype t, uint32_t n, uint32_t k, struct dev_weight *w_out)
{
    struct dev_weight w = { .dtype = t, .n = n, .k = k, .bytes = ref_weight_bytes(t, n, k) };
    if (!elem_is_float(t)) return weight_refuse("ref", t, NULL);
    enum status st = host_alloc(d, w.bytes, &w.data);
    if (st == ST_OK) *w_out = w;
    return st;
}

/* Codes: a byte each, [n][k]; scales, then zeros: floats, [n][group]. */
static uint64_t ref_quant_bytes(const struct dev_quant *q, uint32_t n, uint32_t k)
{
    uint64_t groups = (uint64_t)n * quant_n_group(q, k);
    return ((uint64_t)n * k + 63) / 64 * 64 + groups * sizeof(float) * (q->zero ? 2 : 1);
}

static enum status ref_quant_alloc(struct device *d, const struct dev_quant *q, uint32_t n, uint32_t k,
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

static void ref_quant_set(struct device *d, struct dev_weight *w, uint32_t row0, uint32_t n_row,
                          const struct dev_codes *c)
{
    (void)d;
    uint32_t n_group = quant_n_group(&w->q, w->k);
    CHECK(row0 <= w->n && n_row <= w->n - row0);
    for (uint32_t i = 0; i < n_row; i++) {
        memcpy((char *)w->data + (size_t)(row0 + i) * w->k, c->code + i * c->code_stride, w->k);
        for (uint32_t g = 0; g < n_group; g++) {
            float  s = c->scale[i * c->scale_stride + g];
            size_t at = (size_t)(row0 + i) * n_group + g;
            ((float *)w->scale)[at] = w->dtype == DT_I4 ? f16_to_f32(f32_to_f16(s)) : s;
            if (w->zero) ((float *)w->zero)[at] = c->zero ? (float)c->zero[i * c->scale_stride + g] : 8.0f;
        }
    }
}

static void ref_quantise(struct device *d, struct dev_weight *w, uint32_t row, const char *src, enum dtype t)
{
    uint32_t         n_group = quant_n_group(&w->q, w->k);
    uint8_t         *code = malloc(w->k);
    float           *scale = malloc(n_group * sizeof *scale);
    struct dev_codes c = { .code = code, .scale = scale };
    CHECK(code && scale);
    quant_row(&w->q, w->k, src, t, code, scale);
    ref_quant_set(d, w, row, 1, &c);
    free(code);
    free(scale);
}

static void ref_weight_set(struct device *d, struct dev_weight *w, uint32_t row0, uint32_t n_row, const void *src,
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

/* w[n, k], codes with their scales and zeros applied */
float ref_weight(const struct dev_weight *w, uint32_t n, uint32_t k)
{
    size_t at = (size_t)n * w->k + k, g = (size_t)n * quant_n_group(&w->q, w->k) + (w->q.group ? k / w->q.group : 0);
    if (!dev_weight_is_quant(w)) return elem_load(w->data, w->dtype, at);
    float zero = w->zero ? ((const float *)w->zero)[g] : w->dtype == DT_I4 ? 8.0f : 0.0f;
    return (quant_code(w->dtype, ((const uint8_t *)w->data)[at]) - zero) * ((const float *)w->scale)[g];
}

static const struct dev_ops ref_ops = {
    .name = "ref",
    .close = ref_close,
    .alloc = host_alloc,
    .alloc_reduced = host_alloc,
    .free_bytes = host_free_bytes,
    .weight_alloc = ref_weight_alloc,
    .weight_set = ref_weight_set,
    .quant_alloc = ref_quant_alloc,
    .quant_set = ref_quant_set,
    .to_device = host_to_device,
    .to_host = host_to_host,
    .sync = host_sync,
    .step_init = host_step_init,
    .step_begin = host_step_begin,
    .step_end = host_step_end,
    .step_wait = host_step_wait,
    .embed = ref_embed,
    .rmsnorm = ref_rmsnorm,
    .add_rmsnorm = ref_add_rmsnorm,
    .linear = ref_linear,
    .logits = ref_logits,
    .qkv = ref_qkv,
    .attention = ref_attention,
    .glu = ref_glu,
    .moe = ref_moe,
    .gather = host_gather,
    .columns = host_columns,
    .sample = ref_sample,
    .logprob = ref_logprob,
    .block_copy = host_block_copy,
    .allreduce = host_allreduce,
    .broadcast = host_broadcast,
    .allgather = host_allgather,
};

enum status ref_open(const struct dev_cfg *cfg, struct device **d_out)
{
    struct ref_dev *d = calloc(1, sizeof *d);
    if (!d) {
        LOG_ERROR("dev: no memory for the ref device");
        return ST_NOMEM;
    }
    enum status st = host_init(&d->host, cfg, &ref_ops, ref_weight_bytes);
    if (st) {
        free(d);
        return st;
    }
    d->host.impl.quant_bytes = ref_quant_bytes;
    d->host.impl.arith = ref_arith;
    *d_out = &d->host.impl.dev;
    return ST_OK;
}
