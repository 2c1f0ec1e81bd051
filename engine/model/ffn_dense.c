/* ffn_dense: down(act(gate(x)) * up(x)), of a layer or of the expert that all rows share. Tensor parallel: gate and up
 * by rows, down by columns, one sum at the end. */
#include "engine/model/parts.h"

/* The matrices, n wide on this rank. gate: the slot of the first of three that follow each other. */
static void dense_matrices(struct place *p, struct layer *layer, uint32_t l, enum slot gate, uint32_t n)
{
    uint32_t  n0 = p->rank * n, hidden = p->spec->hidden;
    enum slot up = (enum slot)(gate + 1), down = (enum slot)(gate + 2);
    place_matrix(p, &layer->dense.gate_up, 2 * n, hidden, gate, l);
    place_order(p, &layer->dense.gate_up_order, hidden, gate, l);
    place_rows(p, &layer->dense.gate_up, 0, gate, l, 0, n0, n, 0);
    place_rows(p, &layer->dense.gate_up, n, up, l, 0, n0, n, 0);
    place_matrix(p, &layer->dense.down, hidden, n, down, l);
    place_order(p, &layer->dense.down_order, n, down, l);
    place_rows(p, &layer->dense.down, 0, down, l, 0, 0, hidden, n0);
}

void ffn_shared_place(struct place *p, struct layer *layer, uint32_t l)
{
    dense_matrices(p, layer, l, SLOT_S_GATE, p->m->shared_inter);
}

void ffn_dense_place(struct place *p, struct layer *layer, uint32_t l)
{
    const struct model_spec *s = p->spec;
    uint32_t                 n = spec_inter(s, l) / p->n_rank, n0 = p->rank * n;
    layer->dense.inter = n;
    dense_matrices(p, layer, l, SLOT_GATE, n);
    if (!s->mlp_bias) return;
    if (!s->family->down_bias) {
        place_vector(p, &layer->dense.gate_up_bias, 2 * n);
        place_elements(p, layer->dense.gate_up_bias, 0, SLOT_GATE_BIAS, l, n0, n);
        place_elements(p, layer->dense.gate_up_bias, n, SLOT_UP_BIAS, l, n0, n);
    }
    if (p->rank) return; /* the sum over the ranks has it once */
    place_vector(p, &layer->dense.down_bias, s->hidden);
    place_elements(p, layer->dense.down_bias, 0, SLOT_DOWN_BIAS, l, 0, s->hidden);
}

/* m->narrow [n_row, inter]: what the gate lets through. */
static void dense_gated(struct model *m, uint32_t n_row, uint32_t l, uint32_t inter)
{
    const struct layer *y = &m->layer[l];
    if (!y->dense.gate_up_order &&
        model_join(m, m->narrow, &y->dense.gate_up, y->dense.gate_up_bias, OP_END_GLU, n_row))
        return;
    model_product(m, m->wide, &y->dense.gate_up, y->dense.gate_up_order, y->dense.gate_up_bias, n_row);
    model_lora(m, y, LORA_GATE, m->wide, 2 * inter, 0, m->h, n_row);
    model_lora(m, y, LORA_UP, m->wide, 2 * inter, inter, m->h, n_row);
    m->dev->ops->glu(m->dev, m->narrow, m->wide, n_row, inter, m->act);
}

/* This rank's part of out [n_row, hidden]; or the stream has it (m->summed). */
static void dense_run(struct model *m, void *out, uint32_t n_row, uint32_t l, uint32_t inter)
{
    const struct layer *y = &m->layer[l];
    dense_gated(m, n_row, l, inter);
    const void *in = model_in_order(m, m->narrow, y->dense.down_order, n_row, inter);
    if (model_join_sum(m, in, &y->dense.down, y->dense.down_bias, n_row)) return;
    m->dev->ops->linear(m->dev, out, in, &y->dense.down, y->dense.down_bias, n_row);
    model_lora(m, y, LORA_DOWN, out, m->hidden, 0, m->narrow, n_row);
}

void ffn_shared(struct model *m, uint32_t n_row, uint32_t l) { dense_run(m, m->shared, n_row, l, m->shared_inter); }

void ffn_dense(struct model *m, uint32_t n_row, uint32_t l)
{
    dense_run(m, m->delta, n_row, l, m->layer[l].dense.inter);
    if (m->summed) return;
    m->dev->ops->allreduce(m->dev, m->delta, (size_t)n_row * m->hidden);
}
