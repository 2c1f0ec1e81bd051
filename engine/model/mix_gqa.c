/* mix_gqa: attention with grouped KV heads, optional biases, optional RMSNorm per head, optional sliding window.
 * Tensor parallel: q, k and v by heads, o by the same heads' columns; one sum over the ranks at the end. */
#include "engine/model/parts.h"

/* The number of tokens that a row of layer l sees, itself included; 0: all tokens up to it. */
static uint32_t gqa_window(const struct model_spec *s, uint32_t l)
{
    return s->layer_windowed && s->layer_windowed[l] ? s->window : 0;
}

struct kv_need mix_gqa_kv(const struct model_spec *spec, uint32_t l, uint32_t n_rank, enum dtype kv)
{
    uint32_t window = gqa_window(spec, l);
    bool     own = spec_kv_layer(spec, l) == l;
    return (struct kv_need){
        .life = window ? KV_LIFE_WINDOW : KV_LIFE_ALL,
        .window = window,
        .bytes = own ? dev_kv_heads_bytes(kv, model_kv_heads(spec, l, n_rank), spec_head_dim(spec, l)) : 0
    };
}

void mix_gqa_place(struct place *p, struct layer *layer, uint32_t l)
{
    const struct model_spec *s = p->spec;
    uint32_t                 hd = spec_head_dim(s, l), q = p->m->n_head * hd, heads = spec_n_kv_head(s, l);
    bool                     own = spec_kv_layer(s, l) == l;
    uint32_t                 kv = own ? model_kv_heads(s, l, p->n_rank) * hd : 0;
    uint32_t                 q0 = p->rank * q, kv0 = p->rank * heads / p->n_rank *
                                     hd; /* with more ranks than KV heads, several ranks have the same head */
    enum slot v = spec_k_is_v(s, l) ? SLOT_K : SLOT_V, v_bias = spec_k_is_v(s, l) ? SLOT_K_BIAS : SLOT_V_BIAS;
    place_matrix(p, &layer->gqa.qkv, q + 2 * kv, s->hidden, SLOT_Q, l);
    place_order(p, &layer->gqa.qkv_order, s->hidden, SLOT_Q, l);
    place_rows(p, &layer->gqa.qkv, 0, SLOT_Q, l, 0, q0, q, 0);
    if (own) place_rows(p, &layer->gqa.qkv, q, SLOT_K, l, 0, kv0, kv, 0);
    if (own) place_rows(p, &layer->gqa.qkv, q + kv, v, l, 0, kv0, kv, 0);
    place_matrix(p, &layer->gqa.o, s->hidden, q, SLOT_O, l);
    place_order(p, &layer->gqa.o_order, q, SLOT_O, l);
    place_rows(p, &layer->gqa.o, 0, SLOT_O, l, 0, 0, s->hidden, q0);
    if (s->qkv_bias) {
        place_vector(p, &layer->gqa.qkv_bias, q + 2 * kv);
        place_elements(p, layer->gqa.qkv_bias, 0, SLOT_Q_BIAS, l, q0, q);
        if (own) place_elements(p, layer->gqa.qkv_bias, q, SLOT_K_BIAS, l, kv0, kv);
        if (own) place_elements(p, layer->gqa.qkv_bias, q + kv, v_bias, l, kv0, kv);
    }
    if (s->o_bias && p->rank == 0) {
        place_vector(p, &layer->gqa.o_bias, s->hidden);
        place_elements(p, layer->gqa.o_bias, 0, SLOT_O_BIAS, l, 0, s->hidden);
    }
    if (s->family->sinks) {
        place_vector(p, &layer->gqa.sinks, p->m->n_head);
        place_elements(p, layer->gqa.sinks, 0, SLOT_SINKS, l, p->rank * p->m->n_head, p->m->n_head);
    }
    if (s->qk_norm) {
        bool whole = s->family->qk_norm_whole || s->family->qk_norm_mean; /* this rank's heads of it */
        place_vector(p, &layer->gqa.q_norm, whole ? q : hd);
        place_elements(p, layer->gqa.q_norm, 0, SLOT_Q_NORM, l, whole ? q0 : 0, whole ? q : hd);
        if (own) place_vector(p, &layer->gqa.k_norm, whole ? kv : hd);
        if (own) place_elements(p, layer->gqa.k_norm, 0, SLOT_K_NORM, l, whole ? kv0 : 0, whole ? kv : hd);
    }
    layer->gqa.window = gqa_window(s, l);
    layer->gqa.n_kv_head = model_kv_heads(s, l, p->n_rank);
    layer->gqa.head_dim = hd;
    layer->gqa.kv_layer = spec_kv_layer(s, l);
    if (s->v_norm && own) layer->gqa.v_norm = p->m->ones;
    layer->gqa.local = layer->gqa.window && p->m->inv_freq_local;
    layer->gqa.inv_freq = layer->gqa.local ? p->m->inv_freq_local : p->m->inv_freq;
    layer->gqa.rot = layer->gqa.local ? s->rot_local : s->rot;
    bool nope = !layer->gqa.window && (s->family->nope_rest || (s->family->nope_full && s->window));
    nope = nope || (s->layer_nope && s->layer_nope[l]);
    if (nope) layer->gqa.inv_freq = NULL;
    if (s->qk_norm_unit && !nope) layer->gqa.q_norm = layer->gqa.k_norm = p->m->ones;
    layer->gqa.q_beta = s->q_nope && !nope ? 0 : (float)s->q_beta;
}

/* The sums for norms over whole projections, of all ranks. With more ranks than KV heads each head is counted as often
 * as it is there, in the sum and in the width that it is divided by. */
static void gqa_squares(struct model *m, struct op_qkv *qkv, uint32_t n_row)
{
    const struct dev_ops *op = m->dev->ops;
    op->squares(m->dev, m->square, qkv, n_row);
    if (m->square_all) op->allgather(m->dev, m->square_all, m->square, n_row, 2);
    qkv->square = m->square_all ? m->square_all : m->square;
    qkv->n_square = m->dev->n_rank;
}

/* Adapters of q, k and v, in the order of the heads. Where values are made of what keys are made of, so is what an
 * adapter adds to them. */
static void gqa_adapt(struct model *m, const struct layer *y, uint32_t n_row, uint32_t n_kv_head)
{
    uint32_t         q = m->n_head * y->gqa.head_dim, kv = n_kv_head * y->gqa.head_dim, all = q + 2 * kv;
    enum lora_target v = m->lora.any && y->lora[LORA_V].n ? LORA_V : LORA_K;
    model_lora(m, y, LORA_Q, m->wide, all, 0, m->h, n_row);
    model_lora(m, y, LORA_K, m->wide, all, q, m->h, n_row);
    model_lora(m, y, v, m->wide, all, q + kv, m->h, n_row);
}

void mix_gqa(struct model *m, const struct dev_batch *b, uint32_t l, const struct kept_rows *keep)
{
    const struct dev_ops *op = m->dev->ops;
    const struct layer   *y = &m->layer[l];
    uint32_t              heads = y->gqa.kv_layer == l ? y->gqa.n_kv_head : 0; /* whose keys and values are made */
    uint32_t              q_dim = m->n_head * y->gqa.head_dim;
    struct op_qkv         qkv = { .qkv = m->wide,
                                  .q_norm = y->gqa.q_norm,
                                  .k_norm = y->gqa.k_norm,
                                  .eps = m->eps,
                                  .inv_freq = y->gqa.inv_freq,
                                  .rope_scale = y->gqa.local ? 1 : m->rope_scale,
                                  .v_norm = y->gqa.v_norm,
                                  .n_head = m->n_head,
                                  .n_kv_head = heads,
                                  .head_dim = y->gqa.head_dim,
                                  .rot = y->gqa.rot,
                                  .layer = l,
                                  .q_beta = y->gqa.q_beta,
                                  .q_period = m->q_period,
                                  .q_shift = m->q_shift,
                                  .norm_late = m->qk_norm_late,
                                  .norm_mean = m->qk_norm_mean };
    struct op_attn        attn = { .out = m->narrow,
                                   .qkv = m->wide,
                                   .n_head = m->n_head,
                                   .n_kv_head = y->gqa.n_kv_head,
                                   .head_dim = y->gqa.head_dim,
                                   .layer = y->gqa.kv_layer,
                                   .q_only = heads == 0,
                                   .scale = m->attn_scale,
                                   .window = y->gqa.window,
                                   .cap = m->attn_cap,
                                   .sinks = y->gqa.sinks,
                                   .chunked = m->chunked && y->gqa.window };
    struct dev_batch      view = *b;
    const struct dev_kv  *kv = y->gqa.window ? model_windows(m) : &m->kv;
    if (y->gqa.window) view.page_start = b->win_start;
    if (!model_join_qkv(m, &y->gqa.qkv, y->gqa.qkv_order, y->gqa.qkv_bias, &qkv, &view, kv)) {
        model_product(m, m->wide, &y->gqa.qkv, y->gqa.qkv_order, y->gqa.qkv_bias, b->n_row);
        gqa_adapt(m, y, b->n_row, heads);
        if (m->square) gqa_squares(m, &qkv, b->n_row);
        op->qkv(m->dev, &qkv, &view, kv);
    }
    if (keep && !keep->n) return;
    op->attention(m->dev, &attn, &view, kv);
    void    *out = m->narrow;
    uint32_t n = b->n_row;
    if (keep) {
        out = m->wide;
        n = keep->n;
        m->lora.row = keep->row;
        op->gather(m->dev, out, m->narrow, keep->row, n, q_dim);
    }
    const void *in = model_in_order(m, out, y->gqa.o_order, n, q_dim);
    if (model_join_sum(m, in, &y->gqa.o, y->gqa.o_bias, n)) return;
    op->linear(m->dev, m->delta, in, &y->gqa.o, y->gqa.o_bias, n);
    model_lora(m, y, LORA_O, m->delta, m->hidden, 0, out, n);
    op->allreduce(m->dev, m->delta, (size_t)n * m->hidden);
}
