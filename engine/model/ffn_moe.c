/* ffn_moe: a router picks top_k experts per row, each a small dense ffn; their weighted sum.
 * Tensor parallel: every rank holds its slice of every expert, so all ranks route alike and one sum at the end is
 * enough. */
#include "engine/model/parts.h"
#include <stdlib.h>

void ffn_moe_place(struct place *p, struct layer *layer, uint32_t l)
{
    const struct model_spec *s = p->spec;
    uint32_t                 n = p->m->moe_inter, n0 = p->rank * n;
    place_matrix(p, &layer->moe.router, s->n_expert, s->hidden, SLOT_ROUTER, l);
    place_rows(p, &layer->moe.router, 0, SLOT_ROUTER, l, 0, 0, s->n_expert, 0);
    if (p->bind && !p->st) {
        layer->moe.gate_up = calloc(s->n_expert, sizeof *layer->moe.gate_up);
        layer->moe.down = calloc(s->n_expert, sizeof *layer->moe.down);
        if (!layer->moe.gate_up || !layer->moe.down) p->st = ST_NOMEM;
    }
    struct dev_weight none[2];
    for (uint32_t e = 0; e < s->n_expert && !p->st; e++) {
        struct dev_weight *gate_up = p->bind ? &layer->moe.gate_up[e] : &none[0],
                          *down = p->bind ? &layer->moe.down[e] : &none[1];
        place_matrix(p, gate_up, 2 * n, s->hidden, SLOT_X_GATE, l);
        place_rows(p, gate_up, 0, SLOT_X_GATE, l, e, n0, n, 0);
        place_rows(p, gate_up, n, SLOT_X_UP, l, e, n0, n, 0);
        place_matrix(p, down, s->hidden, n, SLOT_X_DOWN, l);
        place_rows(p, down, 0, SLOT_X_DOWN, l, e, 0, s->hidden, n0);
    }
}

void ffn_moe(struct model *m, uint32_t n_row, uint32_t l)
{
    const struct dev_ops *op = m->dev->ops;
    const struct layer   *y = &m->layer[l];
    struct op_moe         moe = { .out = m->delta,
                                  .x = m->h,
                                  .router_logits = m->router,
                                  .gate_up = y->moe.gate_up,
                                  .down = y->moe.down,
                                  .n_row = n_row,
                                  .n_expert = m->n_expert,
                                  .top_k = m->top_k_expert,
                                  .hidden = m->hidden,
                                  .inter = m->moe_inter,
                                  .renorm = m->norm_topk,
                                  .act = m->act };
    op->linear(m->dev, m->router, m->h, &y->moe.router, NULL, n_row);
    op->moe(m->dev, &moe);
    op->allreduce(m->dev, m->delta, (size_t)n_row * m->hidden);
}
