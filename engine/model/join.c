#include "engine/model/join.h"

bool model_may_join(const struct model *m)
{
    return m->dev->n_rank == 1 && !m->layernorm && !m->norm_stream && !m->parallel && m->residual_scale == 1 &&
           !m->scalars;
}

const void *model_h(struct model *m, uint32_t n_row)
{
    if (m->norm_due) m->dev->ops->rmsnorm(m->dev, m->h, m->stream, m->norm_due, n_row, m->hidden, m->eps);
    m->norm_due = NULL;
    return m->h;
}

/* With the norm that is due, or of m->h. */
static bool join(struct model *m, struct op_fused o)
{
    const struct dev_ops *op = m->dev->ops;
    o.x = m->stream;
    o.norm = m->norm_due;
    o.eps = m->eps;
    if (!op->fused || m->lora.any) return false;
    if (m->norm_due && op->fused(m->dev, &o)) {
        m->norm_due = NULL;
        return true;
    }
    if (o.end == OP_END_STORE && !o.bias) return false; /* what is left is the product alone */
    o.x = model_h(m, o.m);
    o.norm = NULL;
    return op->fused(m->dev, &o);
}

bool model_join(struct model *m, void *out, const struct dev_weight *w, const float *bias, enum op_end end,
                uint32_t n_row)
{
    return join(m, (struct op_fused){ .out = out, .w = w, .bias = bias, .m = n_row, .end = end, .act = m->act });
}

bool model_join_qkv(struct model *m, const struct dev_weight *w, const uint32_t *order, const float *bias,
                    const struct op_qkv *qkv, const struct dev_batch *b, const struct dev_kv *kv)
{
    if (order || m->square) return false;
    return join(
        m,
        (struct op_fused){
            .out = qkv->qkv, .w = w, .bias = bias, .m = b->n_row, .end = OP_END_QKV, .heads = qkv, .b = b, .kv = kv });
}

bool model_join_sum(struct model *m, const void *x, const struct dev_weight *w, const float *bias, uint32_t n_row)
{
    const struct op_fused o = { .out = m->sum, .x = x, .w = w, .bias = bias, .m = n_row, .end = OP_END_ADD };
    if (!m->sum) return false;
    m->summed = m->dev->ops->fused(m->dev, &o);
    return m->summed;
}

void model_product(struct model *m, void *out, const struct dev_weight *w, const uint32_t *order, const float *bias,
                   uint32_t n_row)
{
    if (!order && model_join(m, out, w, bias, OP_END_STORE, n_row)) return;
    const void *in = model_in_order(m, model_h(m, n_row), order, n_row, m->hidden);
    m->dev->ops->linear(m->dev, out, in, w, bias, n_row);
}
