/* forward: one step of one rank. Residual stream x, its norm h, and what each part adds, delta:
 *   h = norm(x);  per layer: delta = mix(h), x += delta, h = norm(x), delta = ffn(h), x += delta, h = norm(x)
 * so every addition is one pass with the norm that follows it. The last one is done for the rows that need logits alone. */
#include "base/check.h"
#include "engine/model/model_impl.h"

static uint32_t min_u32(uint32_t a, uint32_t b) { return a < b ? a : b; }

/* Rows [at, at + n) of the wanted logits: the first n_sample of all are drawn from, the rest are asked for logprobs. */
static void model_outputs(struct model *m, struct batch *b, uint32_t at, uint32_t n)
{
    const struct dev_ops *op = m->dev->ops;
    uint32_t              n_draw = at < b->n_sample ? min_u32(n, b->n_sample - at) : 0;
    if (n_draw) {
        struct op_sample s = { .logits = m->logits,
                               .n = n_draw,
                               .vocab = m->vocab,
                               .row = b->sample + at,
                               .hist = b->hist,
                               .ban = b->ban,
                               .allow = b->allow,
                               .bias = b->bias,
                               .id = b->out.id + at,
                               .logprob = b->out.logprob + at,
                               .rank = b->out.rank + at,
                               .top_id = b->out.top_id + (size_t)at * OP_SAMPLE_TOP_MAX,
                               .top_logprob = b->out.top_logprob + (size_t)at * OP_SAMPLE_TOP_MAX };
        op->sample(m->dev, &s);
    }
    if (n_draw == n) return;
    uint32_t          i = at + n_draw - b->n_sample; /* of the prompt logprobs */
    struct op_logprob p = { .logits = m->logits + (size_t)n_draw * m->vocab,
                            .n = n - n_draw,
                            .vocab = m->vocab,
                            .n_top = b->prompt_top,
                            .id = b->lp_id + i,
                            .logprob = b->out.lp + i,
                            .rank = b->out.lp_rank + i,
                            .top_id = b->out.lp_top_id + (size_t)i * OP_SAMPLE_TOP_MAX,
                            .top_logprob = b->out.lp_top + (size_t)i * OP_SAMPLE_TOP_MAX };
    op->logprob(m->dev, &p);
}

static void model_head(struct model *m, struct batch *b, uint32_t at, uint32_t n)
{
    const struct dev_ops *op = m->dev->ops;
    op->gather(m->dev, m->top_x, m->x, b->logit_row + at, n, m->hidden);
    op->gather(m->dev, m->top_delta, m->delta, b->logit_row + at, n, m->hidden);
    op->add_rmsnorm(m->dev, m->h, m->top_x, m->top_delta, m->norm, n, m->hidden, m->eps);
    if (m->head_split) {
        op->linear(m->dev, m->logits_part, m->h, &m->head, NULL, n);
        op->allgather(m->dev, m->logits, m->logits_part, n, m->head.n);
    } else {
        op->linear(m->dev, m->logits, m->h, m->head.data ? &m->head : &m->embed, NULL, n);
    }
}

enum status model_forward(struct model *m, struct batch *b)
{
    const struct dev_ops *op = m->dev->ops;
    uint32_t              n = b->d.n_row;
    CHECK(n <= m->rows_max);
    CHECK(b->n_logit == b->n_sample + b->n_prompt_lp);
    if (b->n_copy) op->block_copy(m->dev, &m->kv, b->copy_src, b->copy_dst, b->n_copy);
    if (n == 0) return op->sync(m->dev);

    op->embed(m->dev, m->x, b->d.id, &m->embed, n);
    op->rmsnorm(m->dev, m->h, m->x, m->layer[0].mix_norm, n, m->hidden, m->eps);
    for (uint32_t l = 0;;) {
        m->layer[l].mix(m, b, l);
        op->add_rmsnorm(m->dev, m->h, m->x, m->delta, m->layer[l].ffn_norm, n, m->hidden, m->eps);
        m->layer[l].ffn(m, b, l);
        if (++l == m->n_layer) break;
        op->add_rmsnorm(m->dev, m->h, m->x, m->delta, m->layer[l].mix_norm, n, m->hidden, m->eps);
    }
    /* A head that is whole is rank 0's work; one that is split is everybody's, and rank 0 alone looks at the result. */
    if (m->dev->rank > 0 && !m->head_split) return op->sync(m->dev);
    for (uint32_t at = 0; at < b->n_logit; at += m->logit_rows_max) {
        uint32_t k = min_u32(m->logit_rows_max, b->n_logit - at);
        model_head(m, b, at, k);
        if (m->dev->rank == 0) model_outputs(m, b, at, k);
    }
    return op->sync(m->dev);
}

const float *model_logits(const struct model *m) { return m->logits; }
