/* ffn_mlp: down(act(up(x))), without a gate. Tensor parallel: up by rows, down by columns, one sum at the end. The
 * matrix and the bias of `up` lie where other families have gate and up. */
#include "engine/model/parts.h"

void ffn_mlp_place(struct place *p, struct layer *layer, uint32_t l)
{
    const struct model_spec *s = p->spec;
    uint32_t                 n = p->m->inter, n0 = p->rank * n;
    place_matrix(p, &layer->dense.gate_up, n, s->hidden, SLOT_UP, l);
    place_order(p, &layer->dense.gate_up_order, s->hidden, SLOT_UP, l);
    place_rows(p, &layer->dense.gate_up, 0, SLOT_UP, l, 0, n0, n, 0);
    place_matrix(p, &layer->dense.down, s->hidden, n, SLOT_DOWN, l);
    place_order(p, &layer->dense.down_order, n, SLOT_DOWN, l);
    place_rows(p, &layer->dense.down, 0, SLOT_DOWN, l, 0, 0, s->hidden, n0);
    if (!s->mlp_bias) return;
    place_vector(p, &layer->dense.gate_up_bias, n);
    place_elements(p, layer->dense.gate_up_bias, 0, SLOT_UP_BIAS, l, n0, n);
    if (p->rank) return; /* the sum over the ranks has it once */
    place_vector(p, &layer->dense.down_bias, s->hidden);
    place_elements(p, layer->dense.down_bias, 0, SLOT_DOWN_BIAS, l, 0, s->hidden);
}

void ffn_mlp(struct model *m, uint32_t n_row, uint32_t l)
{
    const struct dev_ops *op = m->dev->ops;
    const struct layer   *y = &m->layer[l];
    model_product(m, m->narrow, &y->dense.gate_up, y->dense.gate_up_order, y->dense.gate_up_bias, n_row);
    model_lora(m, y, LORA_UP, m->narrow, m->inter, 0, m->h, n_row);
    op->ungated(m->dev, m->narrow, (size_t)n_row * m->inter, m->act);
    const void *in = model_in_order(m, m->narrow, y->dense.down_order, n_row, m->inter);
    if (model_join_sum(m, in, &y->dense.down, y->dense.down_bias, n_row)) return;
    op->linear(m->dev, m->delta, in, &y->dense.down, y->dense.down_bias, n_row);
    model_lora(m, y, LORA_DOWN, m->delta, m->hidden, 0, m->narrow, n_row);
    op->allreduce(m->dev, m->delta, (size_t)n_row * m->hidden);
}
