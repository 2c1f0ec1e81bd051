/* plan: sizes, the walk over weights and workspaces, and the public functions that only sum it up. */
#include "engine/model/plan.h"
#include "engine/model/adapt.h"
#include "engine/model/join.h"
#include "engine/model/mxfp4.h"
#include "engine/model/parts.h"

/* Whether ranks divide the experts among them, and not each expert. */
static bool whole_experts(const struct model_load_cfg *cfg, const struct device *dev)
{
    return cfg->expert_parallel && dev->n_rank > 1;
}

/* How experts are chosen and weighed, and which of them this rank has: neighbours, as vLLM's linear placement deals
 * them out. */
static struct op_moe model_route(const struct model_spec *s, const struct model_load_cfg *cfg, const struct device *dev)
{
    const struct model_moe_keys *k = s->family->moe;
    struct op_moe                o = { .n_expert = s->n_expert, .top_k = s->top_k_expert, .renorm = s->norm_topk };
    if (whole_experts(cfg, dev)) {
        o.n_here = s->n_expert / dev->n_rank;
        o.first_here = dev->rank * o.n_here;
    }
    if (!k) return o;
    o.score = k->score;
    o.router_f32 = k->f32;
    o.n_group = s->n_group;
    o.group_keep = s->group_keep;
    o.scale = s->route_scale;
    o.sum_min = s->route_sum_min;
    o.sum_add = k->sum_add;
    o.weigh_input = k->weigh_input;
    return o;
}

/* The sizes of one rank. */
static void model_sizes(struct model *m, const struct model_spec *s, const struct model_load_cfg *cfg,
                        struct device *dev)
{
    *m = (struct model){ .dev = dev,
                         .n_layer = s->n_layer,
                         .hidden = s->hidden,
                         .n_head = s->n_head / dev->n_rank,
                         .inter = s->inter / dev->n_rank,
                         .moe_inter = s->moe_inter / (whole_experts(cfg, dev) ? 1 : dev->n_rank),
                         .shared_inter = s->shared_inter / dev->n_rank,
                         .ple_dim = s->ple_dim,
                         .scalars = s->layer_scalar,
                         .vocab = s->vocab,
                         .n_expert = s->n_expert,
                         .top_k_expert = s->top_k_expert,
                         .q_period = s->q_period,
                         .q_shift = s->q_shift,
                         .chunked = s->chunked,
                         .qk_norm_late = s->family->qk_norm_late,
                         .qk_norm_mean = s->qk_norm && s->family->qk_norm_mean,
                         .layernorm = s->family->norm != NORM_RMS,
                         .parallel = s->family->parallel,
                         .norm_stream = s->family->norm_stream,
                         .act = s->act,
                         .route = model_route(s, cfg, dev),
                         .eps = s->rms_eps,
                         .embed_scale = s->embed_scale,
                         .ple_scale = s->ple_scale,
                         .attn_cap = s->attn_cap,
                         .logit_cap = s->logit_cap,
                         .attn_scale = s->attn_scale,
                         .residual_scale = s->residual_scale,
                         .logit_scale = s->logit_scale,
                         .pools = s->pool != POOL_NONE,
                         .head_split = s->pool == POOL_NONE && dev->n_rank > 1 && s->vocab % dev->n_rank == 0,
                         .rows_max = cfg->batch_rows_max,
                         .logit_rows_max = cfg->logit_rows_max };
}

static struct dev_quant weight_quant(const struct model_spec *s, const struct model_load_cfg *cfg)
{
    return s->quant.method ? s->quant.q : cfg->quant;
}

/* A device whose activations have 16 bits multiplies them with weights of the same type. */
static enum dtype weight_dtype(const struct model_spec *s, const struct model_load_cfg *cfg, enum dtype act)
{
    if (act != DT_F32) return act;
    if (cfg->weight_dtype != DT_COUNT) return cfg->weight_dtype;
    return s->dtype != DT_COUNT ? s->dtype : DT_F32;
}

enum dtype model_kv_dtype(const struct model_spec *spec, const struct model_load_cfg *cfg, enum dtype act)
{
    if (cfg->kv_dtype != DT_COUNT) return cfg->kv_dtype;
    if (act == DT_F16) return act; /* a GPU multiplies queries and keys as they are */
    return weight_dtype(spec, cfg, act) == DT_F32 ? DT_F32 : DT_BF16;
}

static void set_kv(struct model *m, const struct model_spec *s, const struct model_load_cfg *cfg)
{
    enum dtype t = model_kv_dtype(s, cfg, m->dev->act);
    m->kv = (struct dev_kv){
        .dtype = t, .n_block = cfg->n_block, .n_layer = s->n_layer, .block_tokens = cfg->block_tokens
    };
    m->kv_window = m->kv;
    m->kv_window.n_block = cfg->n_window;
    m->kv.block_bytes =
        parts_kv(s, m->dev->n_rank, t, cfg->block_tokens, NULL, cfg->n_window ? &m->kv_window.block_bytes : NULL);
}

static const struct dev_quant plan_mxfp4 = { .code = DT_F4E2M1, .group = MXFP4_BLOCK };

/* Nobody, who is asked for sizes of other things, has none. */
static bool plan_has_mxfp4(const struct device *dev)
{
    return dev->ops && dev_quant_bytes(dev, &plan_mxfp4, 1, MXFP4_BLOCK);
}

/* The checkpoint's MXFP4 stays as it is on a device that multiplies with it. */
static struct dev_quant plan_experts(const struct model_spec *s, const struct device *dev)
{
    static const struct dev_quant none = { .code = DT_F32 };
    return s->mxfp4 && plan_has_mxfp4(dev) ? plan_mxfp4 : none;
}

void plan_begin(struct place *p_out, struct model *m, const struct model_spec *spec, const struct model_load_cfg *cfg,
                struct device *dev)
{
    *p_out = (struct place){ .spec = spec,
                             .dev = dev,
                             .rank = dev->rank,
                             .n_rank = dev->n_rank,
                             .weight_dtype = weight_dtype(spec, cfg, dev->act),
                             .quant = weight_quant(spec, cfg),
                             .quant_head = cfg->quant_head,
                             .experts = plan_experts(spec, dev),
                             .m = m };
    model_sizes(m, spec, cfg, dev);
    set_kv(m, spec, cfg);
}

struct plan_norm {
    enum slot slot;
    uint32_t  layer;
    float   **at;
    bool      is;
};

static void plan_vectors(struct place *p, const struct plan_norm *norm, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!norm[i].is) continue;
        place_vector(p, norm[i].at, p->spec->hidden);
        place_elements(p, *norm[i].at, 0, norm[i].slot, norm[i].layer, 0, p->spec->hidden);
    }
}

/* The norms of a stream that becomes its norm: that of the layer before, and behind attention. */
static void plan_stream(struct place *p, struct layer *y, uint32_t l)
{
    bool                   bias = p->spec->family->norm == NORM_LAYER_BIAS;
    const struct plan_norm norms[] = { { SLOT_FFN_POST, l - 1, &y->mix_norm, l > 0 },
                                       { SLOT_FFN_POST_BIAS, l - 1, &y->mix_bias, l > 0 && bias },
                                       { SLOT_MIX_POST, l, &y->ffn_norm, true },
                                       { SLOT_MIX_POST_BIAS, l, &y->ffn_bias, bias } };
    plan_vectors(p, norms, sizeof norms / sizeof *norms);
}

/* The norms around the parts of a layer. */
static void plan_norms(struct place *p, struct layer *y, uint32_t l)
{
    const struct model_family *f = p->spec->family;
    const struct plan_norm     norms[] = {
            { SLOT_MIX_NORM, l, &y->mix_norm, spec_pre_norm(p->spec, l) },
            { SLOT_FFN_NORM, l, &y->ffn_norm, !f->no_pre_norm && !f->parallel },
            { SLOT_MIX_NORM_BIAS, l, &y->mix_bias, f->norm == NORM_LAYER_BIAS && spec_pre_norm(p->spec, l) },
            { SLOT_FFN_NORM_BIAS, l, &y->ffn_bias, f->norm == NORM_LAYER_BIAS && !f->parallel },
            { SLOT_MIX_POST, l, &y->mix_post, f->post_norm },
            { SLOT_FFN_POST, l, &y->ffn_post, f->post_norm }
    };
    plan_vectors(p, norms, sizeof norms / sizeof *norms);
}

/* Embeddings beside those of tokens, and the norm of their sum. */
static void plan_embeds(struct place *p)
{
    struct model            *m = p->m;
    const struct model_spec *s = p->spec;
    if (s->family->learned_pos) {
        place_matrix(p, &m->pos_embed, s->context, s->hidden, SLOT_POS_EMBED, 0);
        place_rows(p, &m->pos_embed, 0, SLOT_POS_EMBED, 0, 0, s->pos_first, s->context, 0);
    }
    const struct plan_norm norms[] = { { SLOT_EMBED_NORM, 0, &m->embed_norm, s->family->embed_norm },
                                       { SLOT_EMBED_NORM_BIAS, 0, &m->embed_bias,
                                         s->family->embed_norm && s->family->norm == NORM_LAYER_BIAS } };
    plan_vectors(p, norms, sizeof norms / sizeof *norms);
    if (s->n_type) {
        place_matrix(p, &m->type_embed, s->n_type, s->hidden, SLOT_TYPE_EMBED, 0);
        place_rows(p, &m->type_embed, 0, SLOT_TYPE_EMBED, 0, 0, 0, s->n_type, 0);
    }
}

/* The norm behind the last layer: of a stream that becomes its norm, the last of those. */
static void plan_last_norm(struct place *p)
{
    struct model          *m = p->m;
    bool                   stream = p->spec->family->norm_stream, bias = p->spec->family->norm == NORM_LAYER_BIAS;
    uint32_t               l = stream ? p->spec->n_layer - 1 : 0;
    const struct plan_norm norms[] = { { stream ? SLOT_FFN_POST : SLOT_NORM, l, &m->norm, true },
                                       { stream ? SLOT_FFN_POST_BIAS : SLOT_NORM_BIAS, l, &m->norm_bias, bias } };
    plan_vectors(p, norms, sizeof norms / sizeof *norms);
}

static uint32_t head_dim_max(const struct model_spec *s)
{
    return s->full_head_dim > s->head_dim ? s->full_head_dim : s->head_dim;
}

/* The fewest of a layer: what a step's plan of attention is made for. Layers with a window may have more, and cut their
 * window by themselves. */
static uint32_t kv_heads_min(const struct model_spec *s, uint32_t n_rank)
{
    uint32_t n = model_kv_heads(s, 0, n_rank);
    for (uint32_t l = 1; l < s->n_layer; l++)
        if (model_kv_heads(s, l, n_rank) < n) n = model_kv_heads(s, l, n_rank);
    return n;
}

/* A matrix that every rank has whole. */
static void plan_whole(struct place *p, struct dev_weight *w, uint32_t n, uint32_t k, enum slot slot, uint32_t l)
{
    place_matrix(p, w, n, k, slot, l);
    place_rows(p, w, 0, slot, l, 0, 0, n, 0);
}

/* What makes the inputs that each layer has for itself. */
static void plan_ple(struct place *p)
{
    const struct model_spec *s = p->spec;
    uint32_t                 all = s->n_layer * s->ple_dim;
    plan_whole(p, &p->m->ple_embed, s->ple_vocab, all, SLOT_PLE_EMBED, 0);
    plan_whole(p, &p->m->ple_proj, all, s->hidden, SLOT_PLE_PROJ, 0);
    place_vector(p, &p->m->ple_norm, s->ple_dim);
    place_elements(p, p->m->ple_norm, 0, SLOT_PLE_NORM, 0, 0, s->ple_dim);
}

/* What follows the feed-forward of a layer. */
static void plan_tail(struct place *p, struct layer *y, uint32_t l)
{
    const struct model_spec *s = p->spec;
    if (s->layer_scalar) {
        place_vector(p, &y->scalar, 1);
        place_elements(p, y->scalar, 0, SLOT_SCALAR, l, 0, 1);
    }
    if (!s->ple_dim) return;
    plan_whole(p, &y->ple.gate, s->ple_dim, s->hidden, SLOT_PLE_GATE, l);
    plan_whole(p, &y->ple.back, s->hidden, s->ple_dim, SLOT_PLE_BACK, l);
    place_vector(p, &y->ple.post, s->hidden);
    place_elements(p, y->ple.post, 0, SLOT_PLE_POST, l, 0, s->hidden);
}

/* The head is a matrix of its own unless it is tied and whole: then the embedding is read for both. */
void plan_weights(struct place *p)
{
    struct model            *m = p->m;
    const struct model_spec *s = p->spec;
    place_matrix(p, &m->embed, s->vocab, s->hidden, SLOT_EMBED, 0);
    place_rows(p, &m->embed, 0, SLOT_EMBED, 0, 0, 0, s->vocab, 0);
    if (m->head_split || (!m->pools && !s->tied && p->rank == 0)) {
        uint32_t n = m->head_split ? s->vocab / p->n_rank : s->vocab;
        place_matrix(p, &m->head, n, s->hidden, SLOT_HEAD, 0);
        place_rows(p, &m->head, 0, s->tied ? SLOT_EMBED : SLOT_HEAD, 0, 0, m->head_split ? p->rank * n : 0, n, 0);
    }
    plan_embeds(p);
    plan_last_norm(p);
    place_vector(p, &m->inv_freq, s->rot / 2);
    if (s->rope_local_theta != 0) place_vector(p, &m->inv_freq_local, s->rot_local / 2);
    if (s->qk_norm_unit || s->v_norm) place_vector(p, &m->ones, m->n_one = head_dim_max(s));
    if (s->ple_dim) plan_ple(p);
    for (uint32_t l = 0; l < s->n_layer && !p->st; l++) {
        struct layer           scratch = { .mix = NULL }, *y = p->bind ? &m->layer[l] : &scratch;
        const struct mix_part *mix = parts_mix(s, l);
        const struct ffn_part *ffn = parts_ffn(s, l);
        y->mix = mix->run;
        y->ffn = ffn->run;
        s->family->norm_stream ? plan_stream(p, y, l) : plan_norms(p, y, l);
        plan_tail(p, y, l);
        mix->place(p, y, l);
        ffn->place(p, y, l);
    }
}

static uint32_t or_else(uint32_t n, uint32_t ample) { return n ? n : ample; }

struct dev_limits plan_limits(const struct place *p, const struct model_load_cfg *cfg)
{
    const struct model *m = p->m;
    struct dev_limits   lim = { .logit_rows_max = m->logit_rows_max,
                                .vocab = m->vocab,
                                .n_head = m->n_head,
                                .n_kv_head = kv_heads_min(p->spec, p->n_rank),
                                .head_dim = head_dim_max(p->spec),
                                .hidden = m->hidden,
                                .n_expert = m->n_expert,
                                .top_k = m->top_k_expert,
                                .inter = m->moe_inter };
#define BOUND(name, enough) lim.name = or_else(cfg->step.name, or_else((enough), m->rows_max));
    DEV_BOUNDS(BOUND)
#undef BOUND
    lim.rows_max = m->rows_max;
    return lim;
}

static uint64_t max_u64(uint64_t a, uint64_t b) { return a > b ? a : b; }

static void plan_reduced(struct place *p)
{
    struct model *m = p->m;
    void         *part = NULL;
    place_reduced(p, &m->delta, (uint64_t)m->rows_max * m->hidden * dtype_bytes(p->dev->act));
    if (m->head_split) place_reduced(p, &part, (uint64_t)m->logit_rows_max * (m->vocab / p->n_rank) * sizeof(float));
    m->logits_part = part;
    part = NULL;
    if (p->spec->family->qk_norm_whole) place_reduced(p, &part, (uint64_t)m->rows_max * 2 * sizeof(float));
    m->square = part;
}

static bool has_sorted(const struct model_spec *s)
{
    bool any = false;
    for (uint32_t l = 0; s->layer_codes && l < s->n_layer; l++) any = any || s->layer_codes[l].sorted;
    return any;
}

void plan_work(struct place *p)
{
    struct model *m = p->m;
    uint64_t      act = dtype_bytes(p->dev->act), rows = m->rows_max, top = m->logit_rows_max, q = 0, qkv = 0,
             inter = max_u64(max_u64(m->inter, m->shared_inter), m->ple_dim);
    for (uint32_t l = 0; l < m->n_layer; l++) {
        uint64_t dim = spec_head_dim(p->spec, l);
        q = max_u64(q, m->n_head * dim);
        qkv = max_u64(qkv, (m->n_head + UINT64_C(2) * model_kv_heads(p->spec, l, p->n_rank)) * dim);
        inter = max_u64(inter, spec_inter(p->spec, l) / p->n_rank);
    }
    void *logits = NULL, *square = NULL;
    plan_reduced(p);
    place_bytes(p, &m->x, rows * m->hidden * act);
    if (!m->norm_stream) place_bytes(p, &m->h, max_u64(rows, top) * m->hidden * act);
    place_bytes(p, &m->wide, rows * max_u64(qkv, 2 * inter) * act);
    place_bytes(p, &m->narrow, rows * max_u64(q, inter) * act);
    if (has_sorted(p->spec)) place_bytes(p, &m->sorted, rows * max_u64(m->hidden, max_u64(q, inter)) * act);
    if (m->shared_inter || p->spec->moe_beside) place_bytes(p, &m->shared, rows * m->hidden * act);
    if (m->ple_dim) place_bytes(p, &m->ple, rows * m->n_layer * m->ple_dim * act);
    if (m->ple_dim) place_bytes(p, &m->ple_token, rows * m->n_layer * m->ple_dim * act);
    place_bytes(p, &m->router, rows * m->n_expert * (m->route.router_f32 ? sizeof(float) : act));
    place_bytes(p, &m->top_x, top * m->hidden * act);
    place_bytes(p, &m->top_delta, top * m->hidden * act);
    if (m->dev->n_rank > 1 && p->spec->family->qk_norm_whole)
        place_bytes(p, &square, rows * m->dev->n_rank * 2 * sizeof(float));
    m->square_all = square;
    if (!m->pools) place_bytes(p, &logits, top * m->vocab * sizeof(float));
    m->logits = logits;
}

enum status model_plan(const struct model_spec *spec, const struct model_load_cfg *cfg, const struct device *dev,
                       struct model_plan *plan_out)
{
    struct model   m;
    struct device *d = (struct device *)(uintptr_t)dev; /* planning asks it for sizes only */
    struct place   p;
    plan_begin(&p, &m, spec, cfg, d);
    plan_weights(&p);
    if (cfg->packed_dir && *cfg->packed_dir) { /* before and after */
        place_align(&p);
        place_align(&p);
    }
    plan_out->weight_bytes = p.bytes;
    plan_work(&p);
    uint64_t before = p.bytes;
    adapt_place(&p, cfg);
    plan_out->lora_bytes = p.bytes - before;
    struct dev_limits lim = plan_limits(&p, cfg);
    p.bytes += place_arena_bytes(dev_step_bytes(d, &lim));
    plan_out->work_bytes = p.bytes - plan_out->weight_bytes;
    plan_out->block_bytes = m.kv.block_bytes;
    plan_out->window_bytes = m.kv_window.block_bytes;
    return p.st;
}

uint64_t model_reduced_bytes(const struct model_spec *spec, const struct model_load_cfg *cfg, uint32_t n_rank,
                             enum dtype act)
{
    struct device nobody = { .n_rank = n_rank, .act = act };
    struct model  m;
    struct place  p;
    plan_begin(&p, &m, spec, cfg, &nobody);
    plan_reduced(&p);
    return p.reduced;
}

struct matrices {
    struct dev_matrix *out;
    uint32_t           n, max;
    bool               norm, sum; /* norms are joined with products, and sums of the stream */
    uint32_t           top_k;     /* of a router */
    bool               route_f32; /* its logits are F32 */
};

static struct dev_matrix matrix_of(const struct matrices *x, uint32_t n, uint32_t k, enum slot first)
{
    struct dev_matrix w = { .n = n, .k = k, .end = OP_END_STORE };
    w.norm = x->norm && (first == SLOT_Q || first == SLOT_GATE || first == SLOT_UP);
    if (first == SLOT_GATE || first == SLOT_S_GATE) w.end = OP_END_GLU;
    if (x->sum && (first == SLOT_O || first == SLOT_DOWN)) w.end = OP_END_ADD;
    if (first == SLOT_ROUTER) w.top_k = x->top_k;
    w.logits = w.top_k && x->route_f32;
    return w;
}

static void matrices_add(void *ctx, uint32_t n, uint32_t k, enum slot slot)
{
    struct matrices *x = ctx;
    for (uint32_t i = 0; i < x->n; i++)
        if (x->out[i].n == n && x->out[i].k == k) return;
    if (x->n < x->max) x->out[x->n++] = matrix_of(x, n, k, slot);
}

/* What plan_weights would take. The embedding is looked up, not multiplied with, unless it is the head as well; the
 * experts of a layer go by the device's own op, but a layer of them is dense in some models, so their sizes are listed
 * too. What stands around a matrix is that of the first of its size. */
uint32_t model_matrices(const struct model_spec *spec, uint32_t n_rank, bool expert_parallel, struct dev_matrix *out,
                        uint32_t max)
{
    struct device         nobody = { .n_rank = n_rank, .act = DT_BF16 };
    struct model_load_cfg cfg = {
        .batch_rows_max = 1, .logit_rows_max = 1, .block_tokens = 16, .expert_parallel = expert_parallel
    };
    struct model    m;
    struct matrices all = { .out = out, .max = max };
    struct place    p;
    plan_begin(&p, &m, spec, &cfg, &nobody);
    all.sum = model_may_join(&m) && !spec->family->post_norm;
    all.norm = all.sum && !spec->family->no_pre_norm;
    all.top_k = m.route.top_k;
    all.route_f32 = m.route.router_f32;
    p.matrix = matrices_add;
    p.matrix_ctx = &all;
    uint32_t head = m.head_split ? spec->vocab / n_rank : spec->vocab, n = 0;
    plan_weights(&p);
    for (uint32_t i = 0; i < all.n; i++) {
        if (out[i].n == head && out[i].k == spec->hidden) out[i].logits = true;
        if (out[i].n != spec->vocab || out[i].logits) out[n++] = out[i];
    }
    return n;
}
