/* load: what one rank holds, where each part of it comes from, and how much that is. */
#include "base/hash.h"
#include "base/log.h"
#include "engine/model/packed.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ARENA_ALIGN = 256 }; /* as devices align: the plan is what loading takes */

static uint64_t arena_bytes(uint64_t n) { return (n + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN; }

/* ---------------------------------------------------------------- placing */

void place_bytes(struct place *p, void **out, uint64_t bytes)
{
    p->bytes += arena_bytes(bytes);
    if (p->bind && !p->st) p->st = p->dev->ops->alloc(p->dev, (size_t)bytes, out);
}

/* What is placed next begins where a file's pages may stand. */
static void place_align(struct place *p)
{
    void *at = NULL;
    if (!p->bind) {
        p->bytes += DEV_MAP_ALIGN;
    } else if (!p->st && !(p->st = p->dev->ops->alloc(p->dev, 0, &at))) {
        size_t past = (uintptr_t)at % DEV_MAP_ALIGN;
        p->st = p->dev->ops->alloc(p->dev, past ? DEV_MAP_ALIGN - past : 0, &p->at);
        p->at = (char *)at + (past ? DEV_MAP_ALIGN - past : 0);
    }
}

/* For what the ranks add up or gather. Every rank places the same, in the same order. */
static void place_reduced(struct place *p, void **out, uint64_t bytes)
{
    p->bytes += arena_bytes(bytes), p->reduced += arena_bytes(bytes);
    if (p->bind && !p->st) p->st = p->dev->ops->alloc_reduced(p->dev, (size_t)bytes, out);
}

/* Rounding at load takes embedding and head to 8 bits, unless they are to have the same codes; codes of a checkpoint are of the linear ones
 * alone. An embedding that is only looked up stays as it is: nothing is multiplied with it. */
static bool matrix_quant(const struct place *p, enum slot slot, uint32_t layer, struct dev_quant *q_out)
{
    static const struct dev_quant int8 = { .code = DT_I8 };
    *q_out = p->quant;
    if (p->quant.code == DT_F32 || slot == SLOT_ROUTER) return false;
    if (p->spec->quant.method) return bind_is_codes(p->spec, slot, layer) && !spec_floats(p->spec, slot, layer);
    if (bind_linear_slots() >> slot & 1) return true;
    if (!p->quant_head) *q_out = int8;
    return slot == SLOT_HEAD || (p->spec->tied && !p->m->head_split);
}

void place_matrix(struct place *p, struct dev_weight *w_out, uint32_t n, uint32_t k, enum slot slot, uint32_t layer)
{
    struct dev_quant q;
    if (p->matrix) {
        p->matrix(p->matrix_ctx, n, k);
        return;
    }
    bool       codes = matrix_quant(p, slot, layer, &q);
    enum dtype type = spec_floats(p->spec, slot, layer) ? DT_F32 : p->weight_dtype;
    p->bytes += arena_bytes(codes ? dev_quant_bytes(p->dev, &q, n, k) : dev_weight_bytes(p->dev, type, n, k));
    if (!p->bind || p->st) return;
    p->st = codes ? p->dev->ops->quant_alloc(p->dev, &q, n, k, w_out) : p->dev->ops->weight_alloc(p->dev, type, n, k, w_out);
}

void place_vector(struct place *p, float **v_out, uint32_t n)
{
    void *v = NULL;
    place_bytes(p, &v, n * sizeof(float));
    *v_out = v;
}

static void place_job(struct place *p, enum slot slot, uint32_t layer, uint32_t expert, struct place_job job)
{
    if (!p->bind || p->st) return;
    if (p->n_job == p->cap_job) {
        uint32_t          cap = p->cap_job ? 2 * p->cap_job : 256;
        struct place_job *more = realloc(p->job, cap * sizeof *more);
        if (!more) {
            p->st = ST_NOMEM;
            return;
        }
        p->job = more, p->cap_job = cap;
    }
    /* bind_open has seen to it that what the spec wants is there */
    job.tensor = bind_get_part(p->bind, slot, layer, expert, job.order ? PART_INDEX : PART_WEIGHT);
    job.slot = slot, job.layer = layer, job.expert = expert;
    p->job[p->n_job++] = job;
}

void place_rows(struct place *p, struct dev_weight *w, uint32_t dst_row, enum slot slot, uint32_t layer, uint32_t expert, uint32_t src_row,
                uint32_t n_row, uint32_t src_col)
{
    place_job(p, slot, layer, expert,
              (struct place_job){ .w = w, .dst_row = dst_row, .src_row = src_row, .n_row = n_row, .src_col = src_col });
}

void place_elements(struct place *p, float *v, uint32_t dst, enum slot slot, uint32_t layer, uint32_t src, uint32_t n)
{
    place_job(p, slot, layer, 0, (struct place_job){ .vec = v, .dst_row = dst, .src_row = src, .n_row = n });
}

void place_order(struct place *p, uint32_t **order_out, uint32_t k, enum slot slot, uint32_t layer)
{
    void *order = NULL;
    if (!spec_sorted(p->spec, slot, layer)) return;
    place_bytes(p, &order, k * sizeof(uint32_t));
    *order_out = order;
    if (order) place_job(p, slot, layer, 0, (struct place_job){ .order = order, .n_row = k });
}

/* ---------------------------------------------------------------- the model */

static const struct {
    void (*place)(struct place *p, struct layer *layer, uint32_t l);
    void (*run)(struct model *m, const struct dev_batch *b, uint32_t l, const struct kept_rows *keep);
} mixes[] = { [MIX_GQA] = { mix_gqa_place, mix_gqa } };
static const struct {
    void (*place)(struct place *p, struct layer *layer, uint32_t l);
    void (*run)(struct model *m, uint32_t n_row, uint32_t l);
} ffns[] = { [FFN_GLU] = { ffn_dense_place, ffn_dense }, [FFN_MOE] = { ffn_moe_place, ffn_moe } };

/* The sizes of one rank. KV heads that are fewer than the ranks lie on several of them. */
static void model_sizes(struct model *m, const struct model_spec *s, const struct model_load_cfg *cfg, struct device *dev)
{
    *m = (struct model){ .dev = dev,
                         .n_layer = s->n_layer,
                         .hidden = s->hidden,
                         .n_head = s->n_head / dev->n_rank,
                         .n_kv_head = s->n_kv_head > dev->n_rank ? s->n_kv_head / dev->n_rank : 1,
                         .head_dim = s->head_dim,
                         .inter = s->inter / dev->n_rank,
                         .moe_inter = s->moe_inter / dev->n_rank,
                         .vocab = s->vocab,
                         .n_expert = s->n_expert,
                         .top_k_expert = s->top_k_expert,
                         .rot = s->rot,
                         .norm_topk = s->norm_topk,
                         .act = s->act,
                         .eps = s->rms_eps,
                         .head_split = dev->n_rank > 1 && s->vocab % dev->n_rank == 0,
                         .rows_max = cfg->batch_rows_max,
                         .logit_rows_max = cfg->logit_rows_max };
}

static struct dev_quant weight_quant(const struct model_spec *s, const struct model_load_cfg *cfg)
{
    return s->quant.method ? s->quant.q : cfg->quant;
}

/* A device whose activations have 16 bits multiplies them with weights of the same type. */
static enum dtype weight_dtype(const struct model_spec *s, const struct model_load_cfg *cfg, const struct device *dev)
{
    if (dev->act != DT_F32) return dev->act;
    if (cfg->weight_dtype != DT_COUNT) return cfg->weight_dtype;
    return s->dtype != DT_COUNT ? s->dtype : DT_F32;
}

static void set_kv(struct model *m, const struct model_spec *s, const struct model_load_cfg *cfg, enum dtype wt)
{
    enum dtype t = cfg->kv_dtype != DT_COUNT ? cfg->kv_dtype : wt == DT_F32 ? DT_F32 : DT_BF16;
    m->kv = (struct dev_kv){ .dtype = t,
                             .n_block = cfg->n_block,
                             .n_layer = s->n_layer,
                             .n_kv_head = m->n_kv_head,
                             .block_tokens = cfg->block_tokens,
                             .head_dim = s->head_dim,
                             .block_bytes = dev_kv_block_bytes(t, s->n_layer, m->n_kv_head, cfg->block_tokens, s->head_dim) };
}

/* Every weight. The head is a matrix of its own unless it is tied and whole: then the embedding is read for both. */
static void model_place_weights(struct place *p)
{
    struct model            *m = p->m;
    const struct model_spec *s = p->spec;
    place_matrix(p, &m->embed, s->vocab, s->hidden, SLOT_EMBED, 0);
    place_rows(p, &m->embed, 0, SLOT_EMBED, 0, 0, 0, s->vocab, 0);
    if (m->head_split || (!s->tied && p->rank == 0)) {
        uint32_t n = m->head_split ? s->vocab / p->n_rank : s->vocab;
        place_matrix(p, &m->head, n, s->hidden, SLOT_HEAD, 0);
        place_rows(p, &m->head, 0, s->tied ? SLOT_EMBED : SLOT_HEAD, 0, 0, m->head_split ? p->rank * n : 0, n, 0);
    }
    place_vector(p, &m->norm, s->hidden);
    place_elements(p, m->norm, 0, SLOT_NORM, 0, 0, s->hidden);
    place_vector(p, &m->inv_freq, s->rot / 2);
    for (uint32_t l = 0; l < s->n_layer && !p->st; l++) {
        struct layer   scratch = { .mix = NULL }, *y = p->bind ? &m->layer[l] : &scratch;
        enum model_ffn ffn = spec_layer_moe(s, l) ? FFN_MOE : FFN_GLU;
        y->mix = mixes[s->family->mix].run;
        y->ffn = ffns[ffn].run;
        place_vector(p, &y->mix_norm, s->hidden);
        place_elements(p, y->mix_norm, 0, SLOT_MIX_NORM, l, 0, s->hidden);
        place_vector(p, &y->ffn_norm, s->hidden);
        place_elements(p, y->ffn_norm, 0, SLOT_FFN_NORM, l, 0, s->hidden);
        mixes[s->family->mix].place(p, y, l);
        ffns[ffn].place(p, y, l);
    }
}

static uint32_t or_else(uint32_t n, uint32_t ample) { return n ? n : ample; }

static struct dev_limits model_limits(const struct model *m, const struct model_load_cfg *cfg)
{
    const struct batch_cfg *c = &cfg->step;
    return (struct dev_limits){ .rows_max = m->rows_max,
                                .seqs_max = or_else(c->seqs_max, m->rows_max),
                                .pages_max = or_else(c->pages_max, 1 << 14),
                                .hist_max = or_else(c->hist_max, 1 << 16),
                                .ban_max = or_else(c->ban_max, 1 << 14),
                                .allow_max = or_else(c->allow_max, 1 << 14),
                                .bias_max = or_else(c->bias_max, 1 << 14),
                                .logit_rows_max = m->logit_rows_max,
                                .vocab = m->vocab,
                                .n_head = m->n_head,
                                .n_kv_head = m->n_kv_head,
                                .head_dim = m->head_dim,
                                .hidden = m->hidden,
                                .n_expert = m->n_expert,
                                .top_k = m->top_k_expert,
                                .inter = m->moe_inter };
}

static uint64_t max_u64(uint64_t a, uint64_t b) { return a > b ? a : b; }

static void model_place_reduced(struct place *p)
{
    struct model *m = p->m;
    void         *part = NULL;
    place_reduced(p, &m->delta, (uint64_t)m->rows_max * m->hidden * dtype_bytes(p->dev->act));
    if (m->head_split) place_reduced(p, &part, (uint64_t)m->logit_rows_max * (m->vocab / p->n_rank) * sizeof(float));
    m->logits_part = part;
}

static bool has_sorted(const struct model_spec *s)
{
    bool any = false;
    for (uint32_t l = 0; s->layer_codes && l < s->n_layer; l++) any = any || s->layer_codes[l].sorted;
    return any;
}

static void model_place_work(struct place *p)
{
    struct model *m = p->m;
    uint64_t      act = dtype_bytes(p->dev->act), rows = m->rows_max, top = m->logit_rows_max, q = (uint64_t)m->n_head * m->head_dim;
    void         *logits = NULL;
    model_place_reduced(p);
    place_bytes(p, &m->x, rows * m->hidden * act);
    place_bytes(p, &m->h, max_u64(rows, top) * m->hidden * act);
    place_bytes(p, &m->wide, rows * max_u64(q + 2 * (uint64_t)m->n_kv_head * m->head_dim, 2 * (uint64_t)m->inter) * act);
    place_bytes(p, &m->narrow, rows * max_u64(q, m->inter) * act);
    if (has_sorted(p->spec)) place_bytes(p, &m->sorted, rows * max_u64(m->hidden, max_u64(q, m->inter)) * act);
    place_bytes(p, &m->router, rows * m->n_expert * act);
    place_bytes(p, &m->top_x, top * m->hidden * act);
    place_bytes(p, &m->top_delta, top * m->hidden * act);
    place_bytes(p, &logits, top * m->vocab * sizeof(float));
    m->logits = logits;
}

enum status model_plan(const struct model_spec *spec, const struct model_load_cfg *cfg, const struct device *dev,
                       struct model_plan *plan_out)
{
    struct model   m;
    struct device *d = (struct device *)(uintptr_t)dev; /* planning asks it for sizes only */
    struct place   p = {
          .spec = spec, .dev = d, .rank = dev->rank, .n_rank = dev->n_rank, .weight_dtype = weight_dtype(spec, cfg, dev), .m = &m
    };
    p.quant = weight_quant(spec, cfg), p.quant_head = cfg->quant_head;
    model_sizes(&m, spec, cfg, d);
    set_kv(&m, spec, cfg, p.weight_dtype);
    model_place_weights(&p);
    if (cfg->packed_dir && *cfg->packed_dir) place_align(&p), place_align(&p); /* before and after */
    plan_out->weight_bytes = p.bytes;
    model_place_work(&p);
    struct dev_limits lim = model_limits(&m, cfg);
    p.bytes += arena_bytes(dev_step_bytes(d, &lim));
    plan_out->work_bytes = p.bytes - plan_out->weight_bytes;
    plan_out->block_bytes = m.kv.block_bytes;
    return p.st;
}

uint64_t model_reduced_bytes(const struct model_spec *spec, const struct model_load_cfg *cfg, uint32_t n_rank, enum dtype act)
{
    struct device nobody = { .n_rank = n_rank, .act = act };
    struct model  m;
    struct place  p = { .spec = spec, .dev = &nobody, .n_rank = n_rank, .m = &m };
    model_sizes(&m, spec, cfg, &nobody);
    model_place_reduced(&p);
    return p.reduced;
}

struct matrices {
    struct dev_matrix *out;
    uint32_t           n, max;
};

static void matrices_add(void *ctx, uint32_t n, uint32_t k)
{
    struct matrices *x = ctx;
    for (uint32_t i = 0; i < x->n; i++)
        if (x->out[i].n == n && x->out[i].k == k) return;
    if (x->n < x->max) x->out[x->n++] = (struct dev_matrix){ .n = n, .k = k };
}

/* What place_* would take. The embedding is looked up, not multiplied with, unless it is the head as well; the experts of a layer
 * go by the device's own op, but a layer of them is dense in some models, so their sizes are listed too. */
uint32_t model_matrices(const struct model_spec *spec, uint32_t n_rank, struct dev_matrix *out, uint32_t max)
{
    struct device         nobody = { .n_rank = n_rank, .act = DT_BF16 };
    struct model_load_cfg cfg = { .batch_rows_max = 1, .logit_rows_max = 1, .block_tokens = 16 };
    struct model          m;
    struct matrices       all = { .out = out, .max = max };
    struct place          p = { .spec = spec, .dev = &nobody, .n_rank = n_rank, .weight_dtype = DT_BF16, .m = &m, .matrix = matrices_add };
    p.matrix_ctx = &all;
    model_sizes(&m, spec, &cfg, &nobody);
    uint32_t head = m.head_split ? spec->vocab / n_rank : spec->vocab, n = 0;
    model_place_weights(&p);
    for (uint32_t i = 0; i < all.n; i++) {
        if (out[i].n == head && out[i].k == spec->hidden) out[i].logits = true;
        if (out[i].n != spec->vocab || out[i].logits) out[n++] = out[i];
    }
    return n;
}

/* Where the weights lie; multiples of DEV_MAP_ALIGN if they may come from a file of packed ones. */
struct span {
    char *base, *end;
};

static enum status model_take(struct place *p, struct model *m, const struct model_load_cfg *cfg, struct span *span_out, char *err,
                              size_t err_bytes)
{
    struct model_plan     plan;
    struct model_load_cfg sizes = { .batch_rows_max = m->rows_max,
                                    .logit_rows_max = m->logit_rows_max,
                                    .block_tokens = m->kv.block_tokens,
                                    .weight_dtype = p->weight_dtype,
                                    .quant = cfg->quant,
                                    .quant_head = cfg->quant_head,
                                    .kv_dtype = m->kv.dtype,
                                    .step = cfg->step,
                                    .packed_dir = cfg->packed_dir };
    model_plan(p->spec, &sizes, p->dev, &plan);
    uint64_t kv = arena_bytes(m->kv.block_bytes * m->kv.n_block), need = plan.weight_bytes + plan.work_bytes + kv;
    if (need > p->dev->ops->free_bytes(p->dev)) {
        snprintf(err, err_bytes,
                 "model: %" PRIu64 " bytes of device memory needed (weights %" PRIu64 ", workspace %" PRIu64 ", KV %" PRIu64
                 "), %zu are free",
                 need, plan.weight_bytes, plan.work_bytes, kv, p->dev->ops->free_bytes(p->dev));
        return ST_CONFIG;
    }
    bool aligned = cfg->packed_dir && *cfg->packed_dir;
    if (aligned) place_align(p);
    span_out->base = p->at;
    model_place_weights(p);
    if (aligned) place_align(p);
    span_out->end = p->at;
    model_place_work(p);
    struct dev_limits lim = model_limits(m, cfg);
    if (!p->st) p->st = p->dev->ops->step_init(p->dev, &lim);
    place_bytes(p, &m->kv.base, m->kv.block_bytes * m->kv.n_block);
    if (p->st) snprintf(err, err_bytes, "model: the device refuses memory: %s", status_name(p->st));
    return p->st;
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

/* The digest of what was read, and whether the files stayed as they were. files: NULL where nobody asks for that. */
static enum status read_root(struct place *p, const struct ident_file *files, uint64_t share, unsigned char root_out[IDENT_BYTES],
                             bool *stayed_out)
{
    struct ident_file now;
    *stayed_out = true;
    ident_root(p->ident, root_out);
    if (!files) return ST_OK;
    enum status st = ident_file_key(p->bind->set, share, &now);
    if (st) return st;
    *stayed_out = ident_file_same(files, &now);
    if (*stayed_out) return ST_OK;
    LOG_WARN("model: the checkpoint changed while it was read: weights are not kept, and KV is shared with no other start");
    ident_root_random(root_out);
    return ST_OK;
}

static void set_ident(const struct place *p, const float *inv_freq, const unsigned char root[IDENT_BYTES])
{
    char arith[2 * DEV_ARITH];
    dev_arith(p->dev, p->weight_dtype, &p->quant, p->m->kv.dtype, arith);
    bool floats = false; /* codes that became F32 are multiplied as such */
    for (uint32_t i = 0; p->spec->layer_codes && i < p->spec->n_layer; i++) floats = floats || p->spec->layer_codes[i].floats;
    if (floats) dev_arith(p->dev, DT_F32, NULL, p->m->kv.dtype, arith + strlen(arith));
    struct ident_loaded l = { .spec = p->spec,
                              .root = root,
                              .inv_freq = inv_freq,
                              .rope_scale = p->m->rope_scale,
                              .arith = arith,
                              .weights = p->weight_dtype,
                              .quant = p->quant,
                              .quant_head = p->quant_head };
    ident_model(&l, p->m->ident);
}

static enum status model_fill(struct place *p, struct model *m, const struct model_load_cfg *cfg, const struct source *src,
                              const float *inv_freq, char *err, size_t err_bytes)
{
    p->dev->ops->to_device(p->dev, m->inv_freq, inv_freq, p->spec->rot / 2 * sizeof *inv_freq);
    if (!src->dummy) return model_read(p, cfg, err, err_bytes);
    model_dummy(p, cfg);
    return ST_OK;
}

enum status model_load(const struct model_spec *spec, const struct source *src, const struct model_load_cfg *cfg, struct device *dev,
                       struct model **m_out, char *err, size_t err_bytes)
{
    struct bind bind = { .n_row = 0 };
    enum status st = model_check(spec, src, dev->n_rank, err, err_bytes);
    if (st || (st = bind_open(spec, src, &bind, err, err_bytes))) return st;

    struct model     *m = calloc(1, sizeof *m);
    struct place      p = { .spec = spec,
                            .dev = dev,
                            .rank = dev->rank,
                            .n_rank = dev->n_rank,
                            .weight_dtype = weight_dtype(spec, cfg, dev),
                            .quant = weight_quant(spec, cfg),
                            .quant_head = cfg->quant_head,
                            .m = m,
                            .bind = &bind };
    struct span       span;
    struct packed     packed = { .cfg = cfg };
    bool              pack = packed_wanted(cfg, src), watch = (pack || cfg->ident) && !src->dummy, hit = false, stayed = true;
    unsigned char     root[IDENT_BYTES];
    struct ident_file files;
    uint64_t          share;
    float            *inv_freq = calloc(spec->rot / 2, sizeof *inv_freq);
    if (m) model_sizes(m, spec, cfg, dev);
    if (!m || !inv_freq || !(m->layer = calloc(spec->n_layer, sizeof *m->layer))) {
        snprintf(err, err_bytes, "model: no memory for %u layers", spec->n_layer);
        st = ST_NOMEM;
        goto out;
    }
    set_kv(m, spec, cfg, p.weight_dtype);
    if (!src->dummy && (st = ident_open(bind.set, &p.ident))) {
        snprintf(err, err_bytes, "model: no memory for the digests of %u tensors", bind.set->n_tensor);
        goto out;
    }
    if (pack) packed_begin(&packed, &p, cfg, src);
    if ((st = model_take(&p, m, cfg, &span, err, err_bytes))) goto out;
    m->rope_scale = model_rope(spec, inv_freq);
    share = watch ? share_of(&p) : 0; /* reading sorts the jobs */
    if (watch && (st = ident_file_key(bind.set, share, &files))) {
        snprintf(err, err_bytes, "model: the checkpoint's files cannot be read: %s", status_name(st));
        goto out;
    }
    if (pack && (st = packed_take(&packed, inv_freq, span.base, (uint64_t)(span.end - span.base), &files, root, &hit))) {
        snprintf(err, err_bytes, "model: the memory of the weights is lost: %s", status_name(st));
        goto out;
    }
    if (!hit && (st = model_fill(&p, m, cfg, src, inv_freq, err, err_bytes))) goto out;
    if (src->dummy)
        ident_root_dummy(root);
    else if (!hit)
        st = read_root(&p, watch ? &files : NULL, share, root, &stayed);
    if (st) {
        snprintf(err, err_bytes, "model: the checkpoint's files cannot be read again: %s", status_name(st));
        goto out;
    }
    if (pack && !hit && stayed) packed_keep(&packed, root);
    set_ident(&p, inv_freq, root);
    uint64_t pool = m->kv.block_bytes * m->kv.n_block; /* block 0 is given out first */
    dev_touch(dev, m->kv.base, (size_t)(pool < cfg->kv_touch ? pool : cfg->kv_touch));
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
    free(m->layer);
    free(m);
}
