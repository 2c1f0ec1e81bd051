/* mix_mutual: attention of encoders. The rows of a text see each other before and behind them, and nothing is kept of
 * them. Weights, and how ranks divide them, are those of mix_gqa. */
#include "engine/model/parts.h"

struct kv_need mix_mutual_kv(const struct model_spec *spec, uint32_t l, uint32_t n_rank, enum dtype kv)
{
    (void)spec;
    (void)l;
    (void)n_rank;
    (void)kv;
    return (struct kv_need){ .life = KV_LIFE_ALL, .bytes = 0 };
}

void mix_mutual(struct model *m, const struct dev_batch *b, uint32_t l, const struct kept_rows *keep)
{
    const struct dev_ops *op = m->dev->ops;
    const struct layer   *y = &m->layer[l];
    struct op_attn        attn = { .out = m->narrow,
                                   .qkv = m->wide,
                                   .n_head = m->n_head,
                                   .n_kv_head = y->gqa.n_kv_head,
                                   .head_dim = y->gqa.head_dim,
                                   .scale = m->attn_scale,
                                   .window = y->gqa.window,
                                   .cap = m->attn_cap };
    model_product(m, m->wide, &y->gqa.qkv, y->gqa.qkv_order, y->gqa.qkv_bias, b->n_row);
    if (keep && !keep->n) return;
    if (!m->pos_embed.data) {
        struct op_qkv turn = { .qkv = m->wide,
                               .q_norm = y->gqa.q_norm,
                               .k_norm = y->gqa.k_norm,
                               .eps = m->eps,
                               .inv_freq = y->gqa.inv_freq,
                               .rope_scale = y->gqa.local ? 1 : m->rope_scale,
                               .n_head = m->n_head,
                               .n_kv_head = y->gqa.n_kv_head,
                               .head_dim = y->gqa.head_dim,
                               .rot = y->gqa.rot };
        op->qkv(m->dev, &turn, b, NULL);
    }
    op->mutual(m->dev, &attn, b);
    void    *out = m->narrow;
    uint32_t n = b->n_row;
    if (keep) {
        out = m->wide;
        n = keep->n;
        op->gather(m->dev, out, m->narrow, keep->row, n, m->n_head * y->gqa.head_dim);
    }
    const void *in = model_in_order(m, out, y->gqa.o_order, n, m->n_head * y->gqa.head_dim);
    if (model_join_sum(m, in, &y->gqa.o, y->gqa.o_bias, n)) return;
    op->linear(m->dev, m->delta, in, &y->gqa.o, y->gqa.o_bias, n);
    op->allreduce(m->dev, m->delta, (size_t)n * m->hidden);
}
