/* ffn_beside: a dense feed-forward and experts that read the same stream, each with norms of its own:
 * delta = norm(dense(h)) + norm(experts(norm(stream))); a router reads the stream too, by a norm without weights and a
 * scale. Tensor parallel: as ffn_dense.c and ffn_moe.c; the norms of what was made want whole sums, so there are
 * two. */
#include "engine/model/parts.h"
#include <math.h>

static void place_norm(struct place *p, float **v, uint32_t n, enum slot slot, uint32_t l)
{
    place_vector(p, v, n);
    place_elements(p, *v, 0, slot, l, 0, n);
}

void ffn_beside_place(struct place *p, struct layer *layer, uint32_t l)
{
    const struct model_spec *s = p->spec;
    ffn_dense_place(p, layer, l);
    ffn_moe_place(p, layer, l);
    place_norm(p, &layer->dense.post, s->hidden, SLOT_DENSE_POST, l);
    place_norm(p, &layer->moe.norm, s->hidden, SLOT_MOE_NORM, l);
    place_norm(p, &layer->moe.post, s->hidden, SLOT_MOE_POST, l);
    place_norm(p, &layer->moe.router_scale, s->hidden, SLOT_ROUTER_SCALE, l);
    place_norm(p, &layer->moe.expert_scale, s->n_expert, SLOT_EXPERT_SCALE, l);
}

void ffn_beside(struct model *m, uint32_t n_row, uint32_t l)
{
    const struct dev_ops *op = m->dev->ops;
    const struct layer   *y = &m->layer[l];
    size_t                all = (size_t)n_row * m->hidden;
    m->sum = NULL; /* norms of what was made stand between */
    model_h(m, n_row);
    op->rmsnorm(m->dev, m->delta, m->stream, y->moe.router_scale, n_row, m->hidden, m->eps);
    op->scale(m->dev, m->delta, all, 1 / sqrtf((float)m->hidden));
    op->rmsnorm(m->dev, m->shared, m->stream, y->moe.norm, n_row, m->hidden, m->eps);
    ffn_moe_experts(m, m->delta, m->shared, n_row, l);
    op->allreduce(m->dev, m->delta, all);
    op->rmsnorm(m->dev, m->shared, m->delta, y->moe.post, n_row, m->hidden, m->eps);
    ffn_dense(m, n_row, l);
    op->rmsnorm(m->dev, m->delta, m->delta, y->dense.post, n_row, m->hidden, m->eps);
    op->add_gated(m->dev, m->delta, m->shared, NULL, n_row, m->hidden);
}
