/* quant: formats that matrices are rounded to while loading, by name, and where codes may be at all. */
#include "engine/model/bind.h"
#include <stdio.h>
#include <string.h>

static const struct {
    const char      *name;
    bool             head; /* embedding and head too */
    struct dev_quant q;
} formats[] = {
#define FORMAT(id, name, head, ...) { name, head, { __VA_ARGS__ } },
    MODEL_FORMAT_LIST(FORMAT)
};

void model_quant_of(enum model_format f, struct dev_quant *q_out, bool *head_out)
{
    *q_out = formats[f].q;
    *head_out = formats[f].head;
}

bool model_quant_named(const char *name, struct dev_quant *q_out, bool *head_out)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (!strcmp(name, formats[i].name)) {
            model_quant_of((enum model_format)i, q_out, head_out);
            return true;
        }
    return false;
}

/* The inputs that one rank has of a matrix that is cut by columns: whole groups, and whole words of codes. */
static bool slice_ok(const struct model_quant *q, uint32_t k)
{
    uint32_t unit = q->method == QUANT_FP8 || q->method == QUANT_INT8 ? 1 : 8;
    if (q->q.group) unit = q->q.group;
    return k % unit == 0;
}

/* Is there a feed-forward without experts? */
static bool has_dense(const struct model_spec *spec)
{
    for (uint32_t l = 0; l < spec->n_layer; l++)
        if (!spec_layer_moe(spec, l)) return true;
    return spec->moe_beside;
}

enum status model_quant_check(const struct model_spec *spec, const struct model_load_cfg *cfg, enum dev_kind kind,
                              uint32_t n_rank, char *err, size_t err_bytes)
{
    const struct model_quant *q = &spec->quant;
    uint32_t                  o = spec->n_head * spec->head_dim / n_rank, inter = spec->inter / n_rank,
             expert = spec->moe_inter / n_rank;
    if (cfg->expert_parallel) {
        expert = 0; /* they are whole, and nothing is left to cut where all layers have them */
        if (!has_dense(spec)) inter = 0;
    } else if (!spec->inter) {
        inter = expert;
    }
    if (!q->method && cfg->quant.code == DT_F32) return ST_OK;
    if (kind == DEV_CUDA && cfg->quant.act8) {
        snprintf(
            err, err_bytes,
            "--quantization: a GPU multiplies codes with activations of 16 bits, allowed are auto, int8, int8-g128, "
            "int4, int4-all, int4-g128 and fp8");
        return ST_CONFIG;
    }
    if (q->method && cfg->quant.code != DT_F32) {
        snprintf(err, err_bytes,
                 "--quantization: the checkpoint is quantised already (quantization_config), allowed is auto");
        return ST_CONFIG;
    }
    if (!q->method || n_rank == 1) return ST_OK;
    for (uint32_t l = 0; spec->layer_codes && l < spec->n_layer; l++)
        if (spec->layer_codes[l].sorted) {
            snprintf(
                err, err_bytes,
                "config.json: quantization_config.desc_act (actorder): inputs of a matrix lie group by group in another order than "
                "activations, and cannot be cut among %u tensor-parallel ranks, allowed is 1",
                n_rank);
            return ST_CONFIG;
        }
    if (!slice_ok(q, expert)) inter = expert;
    if (spec->shared_inter && !slice_ok(q, spec->shared_inter / n_rank)) inter = spec->shared_inter / n_rank;
    if (slice_ok(q, o) && slice_ok(q, inter)) return ST_OK;
    snprintf(
        err, err_bytes,
        "config.json: %u of %u inputs of a matrix on each of %u ranks are no whole number of its groups of %u codes",
        slice_ok(q, o) ? inter : o, (slice_ok(q, o) ? inter : o) * n_rank, n_rank, q->q.group);
    return ST_CONFIG;
}
