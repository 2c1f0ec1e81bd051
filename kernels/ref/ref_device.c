/* ref device: the arena, weights row by row as the checkpoint has them, and the table of ops. */
#include "base/log.h"
#include "kernels/ref/ref.h"
#include <stdlib.h>

struct ref_dev {
    struct host_dev host; /* first */
};

static void ref_close(struct device *d)
{
    host_free((struct host_dev *)d);
    free(d);
}

static uint64_t ref_weight_bytes(enum dtype t, uint32_t n, uint32_t k) { return ((uint64_t)n * k * dtype_bytes(t) + 63) / 64 * 64; }

static enum status ref_weight_alloc(struct device *d, enum dtype t, uint32_t n, uint32_t k, struct dev_weight *w_out)
{
    struct dev_weight w = { .dtype = t, .n = n, .k = k, .bytes = ref_weight_bytes(t, n, k) };
    if (!elem_is_float(t)) {
        LOG_ERROR("dev: the ref device has no weights of type %s", dtype_name(t));
        return ST_CONFIG;
    }
    enum status st = host_alloc(d, w.bytes, &w.data);
    if (st == ST_OK) *w_out = w;
    return st;
}

static void ref_weight_set(struct device *d, struct dev_weight *w, uint32_t row0, uint32_t n_row, const void *src, size_t src_stride,
                           enum dtype src_t)
{
    (void)d;
    CHECK(row0 <= w->n && n_row <= w->n - row0);
    CHECK(elem_is_float(src_t));
    for (uint32_t i = 0; i < n_row; i++)
        for (uint32_t j = 0; j < w->k; j++)
            elem_store(w->data, w->dtype, (size_t)(row0 + i) * w->k + j, elem_load((const char *)src + i * src_stride, src_t, j));
}

static const struct dev_ops ref_ops = {
    .name = "ref",
    .close = ref_close,
    .alloc = host_alloc,
    .free_bytes = host_free_bytes,
    .weight_alloc = ref_weight_alloc,
    .weight_set = ref_weight_set,
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
    .swiglu = ref_swiglu,
    .moe = ref_moe,
    .gather = host_gather,
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
    *d_out = &d->host.impl.dev;
    return ST_OK;
}
