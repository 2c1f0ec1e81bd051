/* forward: one step of one rank. Residual stream x, its norm h, and what each part adds, delta:
 *   h = norm(x);  per layer: delta = mix(h), x += delta, h = norm(x), delta = ffn(h), x += delta, h = norm(x)
 * Every addition is one pass with the norm that follows it; or the device has it in the product that makes delta, and
 * the norm in the product that reads h (join.c). From the last layer's attention on, only for rows whose
 * logits are wanted. Families may put more around a part (model_weigh). Where the stream becomes its norm (norm_stream)
 * x and h are one: x = norm(x + delta), and the last of them is the result. */
#include "base/check.h"
#include "engine/model/adapt.h"
#include "engine/model/join.h"
#include <math.h>
#include <stdio.h>

static void at_part(struct model *m, const char *part, uint32_t layer)
{
    atomic_store_explicit(&m->at_layer, layer, memory_order_relaxed);
    atomic_store_explicit(&m->at_part, part, memory_order_relaxed);
}

size_t model_where(const struct model *m, char *text, size_t text_bytes)
{
    const char *part = atomic_load_explicit(&m->at_part, memory_order_relaxed);
    int         n = snprintf(text, text_bytes, "%s, layer %u of %u", part ? part : "no step yet",
                             atomic_load_explicit(&m->at_layer, memory_order_relaxed), m->n_layer);
    return n > 0 && (size_t)n < text_bytes ? (size_t)n : 0;
}

static uint32_t min_u32(uint32_t a, uint32_t b) { return a < b ? a : b; }

/* Makes the outputs of rows [at, at + n) of the wanted logits. Tokens are drawn from the first n_sample rows of all;
 * the other rows are for logprobs. */
static void model_outputs(struct model *m, const struct dev_step *s, uint32_t at, uint32_t n)
{
    const struct dev_ops *op = m->dev->ops;
    uint32_t              n_draw = at < s->n_sample ? min_u32(n, s->n_sample - at) : 0;
    if (n_draw) {
        struct op_sample o = { .logits = m->logits,
                               .n = n_draw,
                               .vocab = m->vocab,
                               .row = s->sample + at,
                               .id = s->out.id + at,
                               .logprob = s->out.logprob + at,
                               .rank = s->out.rank + at,
                               .top_id = s->out.top_id + (size_t)at * OP_SAMPLE_TOP_MAX,
                               .top_logprob = s->out.top_logprob + (size_t)at * OP_SAMPLE_TOP_MAX };
#define GIVE(name, ...) o.name = s->name;
        DEV_LISTS(GIVE)
#undef GIVE
        op->sample(m->dev, &o);
    }
    if (n_draw == n) return;
    uint32_t          i = at + n_draw - s->n_sample; /* of the prompt logprobs */
    struct op_logprob p = { .logits = m->logits + (size_t)n_draw * m->vocab,
                            .n = n - n_draw,
                            .vocab = m->vocab,
                            .n_top = s->lp_top,
                            .id = s->lp_id + i,
                            .logprob = s->out.lp + i,
                            .rank = s->out.lp_rank + i,
                            .top_id = s->out.lp_top_id + (size_t)i * OP_SAMPLE_TOP_MAX,
                            .top_logprob = s->out.lp_top + (size_t)i * OP_SAMPLE_TOP_MAX };
    op->logprob(m->dev, &p);
}

/* Does more than an addition follow the feed-forward of a layer? (model_tail) */
static bool has_tail(const struct model *m) { return m->scalars; }

/* Lets the part that follows add what it makes to x. post: its norm, if any; next: the one of what comes behind it. */
static void model_offer(struct model *m, void *x, const float *post, const float *next)
{
    m->sum = m->joins && !post && next ? x : NULL;
    m->summed = false;
}

/* h is to be the norm of x. */
static void model_due(struct model *m, void *x, const float *norm)
{
    m->stream = x;
    m->norm_due = norm;
}

/* x += delta, unless the part did that; h is a norm of x, or x itself where norm is NULL. */
static void model_add_norm(struct model *m, void *x, void *delta, const float *norm, const float *bias, uint32_t n)
{
    const struct dev_ops *op = m->dev->ops;
    if (m->summed) {
        model_due(m, x, norm);
        return;
    }
    if (m->norm_stream) {
        op->add_rmsnorm(m->dev, delta, x, delta, NULL, n, m->hidden, m->eps);
        op->layernorm(m->dev, x, x, norm, bias, n, m->hidden, m->eps);
        m->h = x;
        return;
    }
    bool mean = norm && m->layernorm;
    op->add_rmsnorm(m->dev, m->h, x, delta, mean ? NULL : norm, n, m->hidden, m->eps);
    if (mean) op->layernorm(m->dev, m->h, m->h, norm, bias, n, m->hidden, m->eps);
}

/* x += delta between attention and feed-forward; where they are parallel, h stays as attention had it. */
static void model_between(struct model *m, const struct layer *y, void *x, uint32_t n)
{
    m->stream = x;
    if (m->parallel)
        m->dev->ops->add_rmsnorm(m->dev, m->delta, x, m->delta, NULL, n, m->hidden, m->eps); /* delta is done with */
    else
        model_add_norm(m, x, m->delta, y->ffn_norm, y->ffn_bias, n);
}

/* Computes the last hidden states, m->h [n, hidden], of rows [at, at + n) of the wanted rows. x and delta hold only the
 * wanted rows, or all rows of the step. */
static void model_top(struct model *m, const struct dev_step *s, uint32_t at, uint32_t n, bool kept)
{
    const struct dev_ops *op = m->dev->ops;
    size_t                skip = (size_t)at * m->hidden * dtype_bytes(m->dev->act);
    void                 *x = m->top_x, *delta = kept ? m->delta : m->top_delta;
    bool                  gathers = !kept && !m->direct;
    if (m->direct) { /* nobody reads the stream behind this */
        x = (char *)m->x + skip;
        delta = (char *)m->delta + skip;
    }
    if (gathers) op->gather(m->dev, x, m->x, s->logit_row + at, n, m->hidden);
    if (has_tail(m)) {
        op->rmsnorm(m->dev, m->h, x, m->norm, n, m->hidden, m->eps);
        return;
    }
    if (gathers) op->gather(m->dev, delta, m->delta, s->logit_row + at, n, m->hidden);
    model_add_norm(m, x, delta, m->norm, m->norm_bias, n);
}

/* The logits of n rows, from m->h. */
static void model_head(struct model *m, uint32_t n)
{
    const struct dev_ops *op = m->dev->ops;
    if (m->head_split) {
        op->logits(m->dev, m->logits_part, m->h, &m->head, n);
        op->allgather(m->dev, m->logits, m->logits_part, n, m->head.n);
    } else {
        op->logits(m->dev, m->logits, m->h, m->head.data ? &m->head : &m->embed, n);
    }
    if (m->dev->rank == 0 && (m->logit_scale != 1 || m->logit_cap != 0))
        op->cap(m->dev, m->logits, (size_t)n * m->vocab, m->logit_scale, m->logit_cap);
}

/* What a part made [n, hidden], as it is added to the stream. post: weights of a norm, or NULL. */
static void model_weigh(struct model *m, const float *post, uint32_t n)
{
    if (post) m->dev->ops->rmsnorm(m->dev, m->delta, m->delta, post, n, m->hidden, m->eps);
    if (m->residual_scale != 1) m->dev->ops->scale(m->dev, m->delta, (size_t)n * m->hidden, m->residual_scale);
}

/* Do top_x and delta hold only the wanted rows behind the last layer? */
static bool model_keeps(const struct model *m, const struct dev_step *s)
{
    return s->n_logit < s->b.n_row && s->n_logit <= m->logit_rows_max;
}

/* x += delta; then the layer's own inputs go through a gate of x, a norm and into x; then x is scaled. row: which rows
 * of the step these are; NULL: all. */
static void model_tail(struct model *m, uint32_t l, void *x, const uint32_t *row, uint32_t n)
{
    const struct dev_ops *op = m->dev->ops;
    const struct layer   *y = &m->layer[l];
    size_t                all = (size_t)m->n_layer * m->ple_dim, at = (size_t)l * m->ple_dim * dtype_bytes(m->dev->act);
    op->add_rmsnorm(m->dev, m->delta, x, m->delta, NULL, n, m->hidden, m->eps);
    if (m->ple) {
        op->linear(m->dev, m->narrow, x, &y->ple.gate, NULL, n);
        op->act_mul(m->dev, m->narrow, (const char *)m->ple + at, all, row, n, m->ple_dim, m->act);
        op->linear(m->dev, m->delta, m->narrow, &y->ple.back, NULL, n);
        op->rmsnorm(m->dev, m->delta, m->delta, y->ple.post, n, m->hidden, m->eps);
        op->add_rmsnorm(m->dev, m->delta, x, m->delta, NULL, n, m->hidden, m->eps);
    }
    op->scale(m->dev, x, (size_t)n * m->hidden, y->by);
}

/* The last layer. Once its keys and values are made, rows without wanted logits need no further work. A prompt has many
 * such rows, so this saves all products of one layer except the projection that makes the keys. */
static void model_last(struct model *m, const struct dev_step *s)
{
    const struct dev_ops *op = m->dev->ops;
    const struct layer   *y = &m->layer[m->n_layer - 1];
    struct kept_rows      keep = { s->logit_row, s->n_logit };
    bool                  kept = model_keeps(m, s);
    uint32_t              n = kept ? s->n_logit : s->b.n_row;
    void                 *x = m->x;
    at_part(m, "attention", m->n_layer - 1);
    model_offer(m, kept ? NULL : x, y->mix_post, y->ffn_norm);
    y->mix(m, &s->b, m->n_layer - 1, kept ? &keep : NULL);
    if (!n) return;
    model_weigh(m, y->mix_post, n);
    if (kept) op->gather(m->dev, x = m->top_x, m->x, s->logit_row, n, m->hidden);
    void *h = m->h;
    if (kept && m->parallel) { /* of h too only the wanted rows; top_delta is free until the logits */
        op->gather(m->dev, m->top_delta, h, s->logit_row, n, m->hidden);
        m->h = m->top_delta;
    }
    model_between(m, y, x, n);
    model_offer(m, NULL, NULL, NULL); /* model_top adds delta */
    at_part(m, "feed forward", m->n_layer - 1);
    y->ffn(m, n, m->n_layer - 1);
    m->h = h;
    model_weigh(m, y->ffn_post, n);
    if (has_tail(m)) model_tail(m, m->n_layer - 1, x, kept ? s->logit_row : NULL, n);
}

/* out [n, hidden] += rows of a table. */
static void model_embed_more(struct model *m, void *out, const uint32_t *id, const struct dev_weight *table, uint32_t n)
{
    m->dev->ops->embed(m->dev, m->delta, id, table, n);
    m->dev->ops->add_gated(m->dev, out, m->delta, NULL, n, m->hidden);
}

/* The rows of the step's tokens -> out [n_row, hidden]. */
static void model_embed(struct model *m, const struct dev_step *s, void *out)
{
    const struct dev_ops *op = m->dev->ops;
    op->embed(m->dev, out, s->b.id, &m->embed, s->b.n_row);
    if (m->embed_scale != 1) op->scale(m->dev, out, (size_t)s->b.n_row * m->hidden, m->embed_scale);
    if (m->type_embed.data) model_embed_more(m, out, s->b.type, &m->type_embed, s->b.n_row);
    if (m->pos_embed.data) model_embed_more(m, out, s->b.pos, &m->pos_embed, s->b.n_row);
    if (m->embed_norm) op->layernorm(m->dev, out, out, m->embed_norm, m->embed_bias, s->b.n_row, m->hidden, m->eps);
}

/* The inputs that each layer has for itself: of the embedding x, and of the tokens. */
static void model_ple(struct model *m, const struct dev_step *s)
{
    const struct dev_ops *op = m->dev->ops;
    uint32_t              n = s->b.n_row;
    size_t                all = (size_t)n * m->n_layer * m->ple_dim;
    op->linear(m->dev, m->ple, m->x, &m->ple_proj, NULL, n);
    op->scale(m->dev, m->ple, all, 1 / sqrtf((float)m->hidden));
    op->rmsnorm(m->dev, m->ple, m->ple, m->ple_norm, n * m->n_layer, m->ple_dim, m->eps);
    op->embed(m->dev, m->ple_token, s->b.id, &m->ple_embed, n);
    op->scale(m->dev, m->ple_token, all, m->ple_scale);
    op->add_gated(m->dev, m->ple, m->ple_token, NULL, n, m->n_layer * m->ple_dim);
    op->scale(m->dev, m->ple, all, sqrtf(0.5f));
}

/* The stream at its begin, and the input of the first part. */
static void model_begin(struct model *m, const struct dev_step *s)
{
    const float *norm = m->layer[0].mix_norm;
    model_embed(m, s, m->x);
    if (m->ple) model_ple(m, s);
    if (m->norm_stream) {
        m->h = m->x;
        return;
    }
    if (norm && m->layernorm)
        m->dev->ops->layernorm(m->dev, m->h, m->x, norm, m->layer[0].mix_bias, s->b.n_row, m->hidden, m->eps);
    else if (norm)
        model_due(m, m->x, norm);
    else
        model_embed(m, s, m->h);
}

/* All of a step but its logits and what is made of them. */
static void model_layers(struct model *m, const struct dev_step *s)
{
    uint32_t n = s->b.n_row;
    at_part(m, "embedding", 0);
    m->lora.adapter = s->b.adapter;
    m->lora.row = NULL;
    m->joins = m->dev->ops->fused && !m->lora.any && model_may_join(m);
    model_begin(m, s);
    if (!m->joins) model_h(m, n);
    for (uint32_t l = 0; l + 1 < m->n_layer; l++) {
        at_part(m, "attention", l);
        model_offer(m, m->x, m->layer[l].mix_post, m->layer[l].ffn_norm);
        m->layer[l].mix(m, &s->b, l, NULL);
        model_weigh(m, m->layer[l].mix_post, n);
        model_between(m, &m->layer[l], m->x, n);
        at_part(m, "feed forward", l);
        model_offer(m, m->x, m->layer[l].ffn_post, m->layer[l + 1].mix_norm);
        m->layer[l].ffn(m, n, l);
        model_weigh(m, m->layer[l].ffn_post, n);
        if (has_tail(m)) {
            model_tail(m, l, m->x, NULL, n);
            m->dev->ops->rmsnorm(m->dev, m->h, m->x, m->layer[l + 1].mix_norm, n, m->hidden, m->eps);
        } else {
            model_add_norm(m, m->x, m->delta, m->layer[l + 1].mix_norm, m->layer[l + 1].mix_bias, n);
        }
    }
    model_last(m, s);
}

/* The logits, the draws from them, and the logprobs of the prompt. */
static void model_draws(struct model *m, const struct dev_step *s)
{
    const struct dev_ops *op = m->dev->ops;
    bool                  kept = model_keeps(m, s);
    at_part(m, "logits and sampling", m->n_layer);
    /* Rank 0 computes a head that is not split. Every rank computes its part of a head that is split, and rank 0 reads
     * the result. */
    if (m->dev->rank == 0 || m->head_split) {
        for (uint32_t at = 0; at < s->n_logit; at += m->logit_rows_max) {
            uint32_t k = min_u32(m->logit_rows_max, s->n_logit - at);
            model_top(m, s, at, k, kept);
            if (m->pools) {
                op->state(m->dev, s->out.state + (size_t)at * m->hidden, m->h, (size_t)k * m->hidden);
                continue;
            }
            model_head(m, k);
            if (m->dev->rank == 0) model_outputs(m, s, at, k);
        }
    }
    if (m->dev->n_rank > 1 && s->n_sample && !m->pools)
        op->broadcast(m->dev, s->out.id, s->n_sample * sizeof *s->out.id); /* for the next step's patches */
}

/* Are the wanted rows all rows of the step, in their order? Every decode step is so. */
static bool wants_all(const struct batch *b)
{
    uint32_t i = 0;
    while (i < b->n_logit && b->logit_row[i] == i) i++;
    return i == b->n_logit && b->n_logit == b->n_row;
}

static bool has_adapters(const struct model *m, const struct batch *b)
{
    bool any = false;
    for (uint32_t i = 0; m->lora.n_slot && i < b->n_row; i++) any = any || b->adapter[i];
    return any;
}

void model_submit(struct model *m, const struct batch *b)
{
    const struct dev_ops *op = m->dev->ops;
    struct dev_step       s = batch_step(b), on;
    CHECK(s.b.n_row <= m->rows_max);
    at_part(m, "begin of a step", 0);
    for (uint32_t i = 0; i < b->n_adapt; i++) adapt_set(m, b->adapt[i].slot, b->adapt[i].adapter);
    m->lora.any = has_adapters(m, b);
    m->direct = wants_all(b);
    if (b->n_copy) op->block_copy(m->dev, &m->kv, b->copy_src, b->copy_dst, b->n_copy);
    if (b->n_copy && m->kv_window.n_block) op->block_copy(m->dev, &m->kv_window, b->win_src, b->win_dst, b->n_copy);
    do {
        bool calls = op->step_begin(m->dev, &s, &on) != DEV_REPLAY && on.b.n_row;
        if (calls) model_layers(m, &on);
        if (calls && !b->late) model_draws(m, &on);
        m->on = on;
    } while (!b->late && !op->step_end(m->dev, &s, &on));
    at_part(m, b->late ? "the layers of a step are enqueued" : "all of a step is enqueued", m->n_layer);
}

bool model_can_draw_late(const struct model *m) { return m->dev->ops->step_cut != NULL; }

void model_draw(struct model *m, const struct batch *b)
{
    const struct dev_ops *op = m->dev->ops;
    struct dev_step       s = batch_step(b), *on = &m->on;
    CHECK(b->late);
    if (op->step_cut(m->dev, &s, on) != DEV_REPLAY && on->b.n_row) model_draws(m, on);
    while (!op->step_end(m->dev, &s, on)) {
        bool calls = op->step_begin(m->dev, &s, on) != DEV_REPLAY && on->b.n_row;
        if (calls) model_layers(m, on);
        if (op->step_cut(m->dev, &s, on) != DEV_REPLAY && on->b.n_row) model_draws(m, on);
    }
    at_part(m, "all of a step is enqueued", m->n_layer);
}

enum status model_wait(struct model *m, const struct batch *b)
{
    struct dev_step s = batch_step(b);
    return m->dev->ops->step_wait(m->dev, &s);
}

const float *model_logits(const struct model *m) { return m->logits; }

const struct dev_kv *model_kv(const struct model *m) { return &m->kv; }
const struct dev_kv *model_kv_window(const struct model *m) { return model_windows(m); }

void model_kv_guests(struct model *m, const unsigned char *first, uint64_t step, uint32_t n)
{
    m->kv.guest = (const char *)first;
    m->kv.guest_step = step;
    m->kv.n_guest = n;
}
