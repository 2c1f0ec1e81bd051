/* load: one rank's memory taken, its weights read or mapped, its identity made. */
#include "base/hash.h"
#include "base/log.h"
#include "engine/model/adapt.h"
#include "engine/model/packed.h"
#include "engine/model/parts.h"
#include "engine/model/plan.h"
#include "engine/model/read.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Where the weights lie; multiples of DEV_MAP_ALIGN if they may come from a file of packed ones. */
struct span {
    char *base, *end;
};

static enum status model_take(struct place *p, struct model *m, const struct model_load_cfg *cfg, struct span *span_out,
                              char *err, size_t err_bytes)
{
    struct model_plan     plan;
    struct model_load_cfg sizes = { .batch_rows_max = m->rows_max,
                                    .logit_rows_max = m->logit_rows_max,
                                    .block_tokens = m->kv.block_tokens,
                                    .n_window = m->kv_window.n_block,
                                    .weight_dtype = p->weight_dtype,
                                    .quant = cfg->quant,
                                    .quant_head = cfg->quant_head,
                                    .expert_parallel = cfg->expert_parallel,
                                    .kv_dtype = m->kv.dtype,
                                    .step = cfg->step,
                                    .packed_dir = cfg->packed_dir,
                                    .lora_slots = cfg->lora_slots,
                                    .lora_rank = cfg->lora_rank };
    model_plan(p->spec, &sizes, p->dev, &plan);
    uint64_t kv = place_arena_bytes(m->kv.block_bytes * m->kv.n_block) +
                  place_arena_bytes(m->kv_window.block_bytes * m->kv_window.n_block);
    uint64_t need = plan.weight_bytes + plan.work_bytes + kv;
    if (need > p->dev->ops->free_bytes(p->dev)) {
        snprintf(err, err_bytes,
                 "model: %" PRIu64 " bytes of device memory needed (weights %" PRIu64 ", workspace %" PRIu64
                 ", KV %" PRIu64 "), %zu are free",
                 need, plan.weight_bytes, plan.work_bytes, kv, p->dev->ops->free_bytes(p->dev));
        return ST_CONFIG;
    }
    bool aligned = cfg->packed_dir && *cfg->packed_dir;
    if (aligned) place_align(p);
    span_out->base = p->at;
    plan_weights(p);
    if (aligned) place_align(p);
    span_out->end = p->at;
    plan_work(p);
    adapt_place(p, cfg);
    struct dev_limits lim = plan_limits(p, cfg);
    if (!p->st) p->st = p->dev->ops->step_init(p->dev, &lim);
    place_bytes(p, &m->kv.base, m->kv.block_bytes * m->kv.n_block);
    if (m->kv_window.n_block) place_bytes(p, &m->kv_window.base, m->kv_window.block_bytes * m->kv_window.n_block);
    if (p->st) snprintf(err, err_bytes, "model: the device refuses memory: %s", status_name(p->st));
    return p->st;
}

static void tell_experts(const struct place *p)
{
    const double gib = 1 << 30, kept = (double)p->expert_bytes[0] / gib, other = (double)p->expert_bytes[1] / gib;
    if (p->rank || !p->spec->mxfp4) return;
    if (p->expert_bytes[1])
        LOG_INFO(
            "model: experts are MXFP4 in the checkpoint: %.2f GiB stay so, the rest becomes %.2f GiB of wider numbers",
            kept, other);
    else
        LOG_INFO("model: experts stay MXFP4, as in the checkpoint: %.2f GiB", kept);
}

/* Which part of a checkpoint this rank reads. */
static uint64_t share_of(const struct place *p)
{
    uint64_t h = hash_combine(hash_combine(p->rank, p->n_rank), p->n_job);
    for (uint32_t i = 0; i < p->n_job; i++) {
        const struct place_job *j = &p->job[i];
        h = hash_combine(h, (uint64_t)(j->tensor - p->bind->set->tensor));
        h = hash_combine(hash_combine(h, j->src_row), j->n_row);
    }
    return h;
}

/* The digest of what was read; one that agrees with nothing if the files did not stay as they were. */
static enum status read_root(struct place *p, const struct ident_file *files, uint64_t share,
                             unsigned char root_out[IDENT_BYTES], bool *stayed_out)
{
    struct ident_file now;
    enum status       st = ident_file_key(p->bind->set, share, &now);
    if (st) return st;
    *stayed_out = ident_file_same(files, &now);
    if (*stayed_out) {
        ident_root(p->ident, root_out);
        return ST_OK;
    }
    LOG_WARN(
        "model: the checkpoint changed while it was read: weights are not kept, and KV is shared with no other start");
    ident_root_random(root_out);
    return ST_OK;
}

/* The pages of a pool, as many as are to be there at once. Block 0 is given out first. */
static void touch(const struct dev_kv *kv, const struct model_load_cfg *cfg, struct device *dev)
{
    uint64_t pool = kv->block_bytes * kv->n_block;
    if (pool) dev_touch(dev, kv->base, (size_t)(pool < cfg->kv_touch ? pool : cfg->kv_touch));
}

static void set_ident(const struct place *p, const float *inv_freq, const unsigned char root[IDENT_BYTES])
{
    char arith[3 * DEV_ARITH];
    dev_arith(p->dev, p->weight_dtype, &p->quant, p->m->kv.dtype, arith);
    bool floats = false; /* codes that became F32 are multiplied as such */
    for (uint32_t i = 0; p->spec->layer_codes && i < p->spec->n_layer; i++)
        floats = floats || p->spec->layer_codes[i].floats;
    if (floats) dev_arith(p->dev, DT_F32, NULL, p->m->kv.dtype, arith + strlen(arith));
    if (p->experts.code != DT_F32)
        dev_arith(p->dev, p->weight_dtype, &p->experts, p->m->kv.dtype, arith + strlen(arith));
    struct ident_loaded l = { .spec = p->spec,
                              .root = root,
                              .inv_freq = inv_freq,
                              .rope_scale = p->m->rope_scale,
                              .arith = arith,
                              .weights = p->weight_dtype,
                              .quant = p->quant,
                              .quant_head = p->quant_head,
                              .whole_experts = p->m->route.n_here > 0 };
    ident_model(&l, p->m->ident);
}

static enum status model_fill(struct place *p, struct model *m, const struct model_load_cfg *cfg,
                              const struct source *src, const float *inv_freq, char *err, size_t err_bytes)
{
    size_t bytes = p->spec->rot / 2 * sizeof *inv_freq, local = p->spec->rot_local / 2 * sizeof *inv_freq;
    p->dev->ops->to_device(p->dev, m->inv_freq, inv_freq, bytes);
    if (m->inv_freq_local) p->dev->ops->to_device(p->dev, m->inv_freq_local, inv_freq + p->spec->rot / 2, local);
    for (uint32_t i = 0; i < m->n_one; i++) p->dev->ops->to_device(p->dev, m->ones + i, &(float){ 1 }, sizeof *m->ones);
    if (!src->dummy) return model_read(p, cfg, err, err_bytes);
    model_dummy(p, cfg);
    return ST_OK;
}

enum status model_load(const struct model_spec *spec, const struct source *src, const struct model_load_cfg *cfg,
                       struct device *dev, struct model **m_out, char *err, size_t err_bytes)
{
    struct bind bind = { .n_row = 0 };
    enum status st = model_check(spec, src, dev->n_rank, cfg->expert_parallel, err, err_bytes);
    if (st || (st = bind_open(spec, src, &bind, err, err_bytes))) return st;

    struct model *m = calloc(1, sizeof *m);
    struct place  p = { .bind = NULL };
    struct span   span;
    struct packed packed = { .cfg = cfg };
    /* A digest costs up to a twentieth of a load that only copies: it is made where somebody asks for it. */
    bool pack = packed_wanted(cfg, src), watch = (pack || cfg->ident) && !src->dummy, hit = false, stayed = true;
    unsigned char     root[IDENT_BYTES];
    struct ident_file files;
    uint64_t          share;
    float            *inv_freq = calloc(spec->rot + spec->rot_local, sizeof *inv_freq); /* [rot / 2], [rot_local / 2] */
    if (m) {
        plan_begin(&p, m, spec, cfg, dev);
        p.bind = &bind;
        m->layer = calloc(spec->n_layer, sizeof *m->layer);
        m->kv_layer = calloc(spec->n_layer, sizeof *m->kv_layer);
    }
    if (!m || !inv_freq || !m->layer || !m->kv_layer) {
        snprintf(err, err_bytes, "model: no memory for %u layers", spec->n_layer);
        st = ST_NOMEM;
        goto out;
    }
    parts_kv(spec, dev->n_rank, m->kv.dtype, m->kv.block_tokens, m->kv_layer,
             m->kv_window.n_block ? &m->kv_window.block_bytes : NULL);
    m->kv.layer = m->kv_window.layer = m->kv_layer;
    if (watch && (st = ident_open(bind.set, &p.ident))) {
        snprintf(err, err_bytes, "model: no memory for the digests of %u tensors", bind.set->n_tensor);
        goto out;
    }
    if (pack) packed_begin(&packed, &p, cfg, src);
    if ((st = model_take(&p, m, cfg, &span, err, err_bytes))) goto out;
    tell_experts(&p);
    m->rope_scale = model_rope(spec, inv_freq);
    if (spec->rope_local_theta != 0) model_rope_local(spec, inv_freq + spec->rot / 2);
    share = watch ? share_of(&p) : 0; /* reading sorts the jobs */
    if (watch && (st = ident_file_key(bind.set, share, &files))) {
        snprintf(err, err_bytes, "model: the checkpoint's files cannot be read: %s", status_name(st));
        goto out;
    }
    if (pack &&
        (st = packed_take(&packed, inv_freq, span.base, (uint64_t)(span.end - span.base), &files, root, &hit))) {
        snprintf(err, err_bytes, "model: the memory of the weights is lost: %s", status_name(st));
        goto out;
    }
    if (!hit && (st = model_fill(&p, m, cfg, src, inv_freq, err, err_bytes))) goto out;
    if (src->dummy)
        ident_root_dummy(root);
    else if (!watch)
        ident_root_random(root);
    else if (!hit)
        st = read_root(&p, &files, share, root, &stayed);
    if (st) {
        snprintf(err, err_bytes, "model: the checkpoint's files cannot be read again: %s", status_name(st));
        goto out;
    }
    if (pack && !hit && stayed) packed_keep(&packed, root);
    set_ident(&p, inv_freq, root);
    touch(&m->kv, cfg, dev);
    touch(&m->kv_window, cfg, dev);
    for (uint32_t l = 0; m->scalars && l < m->n_layer; l++)
        dev->ops->to_host(dev, &m->layer[l].by, m->layer[l].scalar, sizeof m->layer[l].by);
    if ((st = dev->ops->sync(dev))) snprintf(err, err_bytes, "model: the device failed while loading");
out:
    if (pack) packed_end(&packed);
    ident_close(p.ident);
    free(inv_freq);
    free(p.job);
    bind_close(&bind);
    if (st)
        model_free(m);
    else
        *m_out = m;
    return st;
}

const unsigned char *model_ident(const struct model *m) { return m->ident; }

void model_free(struct model *m)
{
    if (!m) return;
    for (uint32_t l = 0; m->layer && l < m->n_layer; l++) {
        free(m->layer[l].moe.gate_up);
        free(m->layer[l].moe.down);
    }
    adapt_free(m);
    free(m->layer);
    free(m->kv_layer);
    free(m);
}
