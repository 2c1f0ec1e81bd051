/* ref device: opening and closing, and the table of ops. */
#include "base/log.h"
#include "kernels/ref/ref.h"
#include <stdio.h>
#include <stdlib.h>

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
    .step_cut = host_step_cut,
    .step_end = host_step_end,
    .step_wait = host_step_wait,
    .embed = ref_embed,
    .rmsnorm = ref_rmsnorm,
    .add_rmsnorm = ref_add_rmsnorm,
    .layernorm = ref_layernorm,
    .scale = ref_scale,
    .cap = ref_cap,
    .add_gated = ref_add_gated,
    .linear = ref_linear,
    .logits = ref_logits,
    .state = host_state,
    .squares = ref_squares,
    .qkv = ref_qkv,
    .attention = ref_attention,
    .mutual = ref_mutual,
    .glu = ref_glu,
    .ungated = ref_ungated,
    .act_mul = ref_act_mul,
    .moe = ref_moe,
    .lora = ref_lora,
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
