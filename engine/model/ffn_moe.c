/* ffn_moe: a router picks top_k experts per row, each a small dense ffn; their weighted sum, and perhaps an expert more
 * that all rows share.
 * Tensor parallel: every rank holds its slice of every expert, or with expert_parallel some experts whole
 * (docs/design/ranks.md). All ranks have all rows and the whole router, so they route alike, and one sum at the end is
 * enough. */
#include "engine/model/parts.h"
#include <stdlib.h>

/* What this rank has of a layer's experts: n of them, and of each `inter` of its inner numbers. */
struct moe_share {
    uint32_t first, n, inter0, inter;
    bool     down_bias; /* of slices rank 0 alone has it, so that the sum contains it once */
};

static struct moe_share moe_share(const struct place *p)
{
    const struct op_moe *r = &p->m->route;
    struct moe_share     s = { .first = r->first_here, .n = op_moe_here(r), .inter = p->m->moe_inter };
    bool                 whole = s.inter == p->spec->moe_inter;
    s.inter0 = whole ? 0 : p->rank * s.inter;
    s.down_bias = whole || !p->rank;
    return s;
}

/* The same of tensors that each expert has for itself. */
static void moe_own_biases_place(struct place *p, struct layer *layer, uint32_t l, const struct moe_share *x)
{
    uint32_t n = x->inter, hidden = p->spec->hidden;
    for (uint32_t i = 0; i < x->n; i++) {
        uint32_t e = x->first + i;
        place_expert_elements(p, layer->moe.gate_up_bias, i * 2 * n, SLOT_X_GATE_BIAS, l, e, x->inter0, n);
        place_expert_elements(p, layer->moe.gate_up_bias, i * 2 * n + n, SLOT_X_UP_BIAS, l, e, x->inter0, n);
        if (x->down_bias) place_expert_elements(p, layer->moe.down_bias, i * hidden, SLOT_X_OUT_BIAS, l, e, 0, hidden);
    }
}

/* Biases of router and experts. Of an expert's outputs, gates and ups lie by turns in the checkpoint. */
static void moe_biases_place(struct place *p, struct layer *layer, uint32_t l, const struct moe_share *x)
{
    const struct model_spec *s = p->spec;
    uint32_t                 n = x->inter;
    place_vector(p, &layer->moe.logit_bias, s->n_expert);
    place_elements(p, layer->moe.logit_bias, 0, SLOT_ROUTER_LOGIT_BIAS, l, 0, s->n_expert);
    place_vector(p, &layer->moe.gate_up_bias, x->n * 2 * n);
    if (x->down_bias) place_vector(p, &layer->moe.down_bias, x->n * s->hidden);
    if (s->own_biases) {
        moe_own_biases_place(p, layer, l, x);
        return;
    }
    for (uint32_t up = 0; up < 2; up++)
        place_table(p, layer->moe.gate_up_bias, 2 * n, SLOT_X_GATE_UP_BIAS, l, x->first, x->n,
                    (struct place_run){ .src = 2 * x->inter0 + up, .dst = up * n, .n = n, .step = 2 });
    if (!x->down_bias) return;
    place_table(p, layer->moe.down_bias, s->hidden, SLOT_X_DOWN_BIAS, l, x->first, x->n,
                (struct place_run){ .n = s->hidden, .step = 1 });
}

void ffn_moe_place(struct place *p, struct layer *layer, uint32_t l)
{
    const struct model_spec *s = p->spec;
    const struct moe_share   x = moe_share(p);
    uint32_t                 n = x.inter;
    place_matrix(p, &layer->moe.router, s->n_expert, s->hidden, SLOT_ROUTER, l);
    place_rows(p, &layer->moe.router, 0, SLOT_ROUTER, l, 0, 0, s->n_expert, 0);
    if (s->router_bias) {
        place_vector(p, &layer->moe.bias, s->n_expert);
        place_elements(p, layer->moe.bias, 0, SLOT_ROUTER_BIAS, l, 0, s->n_expert);
    }
    if (s->shared_inter) ffn_shared_place(p, layer, l);
    if (s->shared_inter && s->family->shared_gate) {
        place_matrix(p, &layer->moe.shared, 1, s->hidden, SLOT_S_WEIGHT, l);
        place_rows(p, &layer->moe.shared, 0, SLOT_S_WEIGHT, l, 0, 0, 1, 0);
    }
    if (s->family->expert_bias) moe_biases_place(p, layer, l, &x);
    if (p->bind && !p->st) {
        layer->moe.gate_up = calloc(x.n, sizeof *layer->moe.gate_up);
        layer->moe.down = calloc(x.n, sizeof *layer->moe.down);
        if (!layer->moe.gate_up || !layer->moe.down) p->st = ST_NOMEM;
    }
    struct dev_weight none[2];
    for (uint32_t i = 0; i < x.n && !p->st; i++) {
        struct dev_weight *gate_up = p->bind ? &layer->moe.gate_up[i] : &none[0],
                          *down = p->bind ? &layer->moe.down[i] : &none[1];
        uint32_t e = x.first + i;
        place_matrix(p, gate_up, 2 * n, s->hidden, SLOT_X_GATE, l);
        place_rows(p, gate_up, 0, SLOT_X_GATE, l, e, x.inter0, n, 0);
        place_rows(p, gate_up, n, SLOT_X_UP, l, e, x.inter0, n, 0);
        place_matrix(p, down, s->hidden, n, SLOT_X_DOWN, l);
        place_rows(p, down, 0, SLOT_X_DOWN, l, e, 0, s->hidden, x.inter0);
    }
}

/* delta += what the shared expert makes of h, as much of it as each row's weight says. The router's logits have been
 * used: their memory takes the weights. */
static void moe_add_shared(struct model *m, uint32_t n_row, uint32_t l)
{
    const struct dev_ops    *op = m->dev->ops;
    const struct dev_weight *by = &m->layer[l].moe.shared;
    ffn_shared(m, n_row, l);
    if (by->data) op->linear(m->dev, m->router, m->h, by, NULL, n_row);
    op->add_gated(m->dev, m->delta, m->shared, by->data ? m->router : NULL, n_row, m->hidden);
}

/* The router's product and the experts, by one op where the device has it and says that it is worth it (join.h). */
static void moe_routed(struct model *m, const struct op_router *r, const struct op_moe *moe)
{
    const struct dev_ops *op = m->dev->ops;
    if (op->routed && op->routed(m->dev, r, moe)) return;
    if (moe->router_f32)
        op->logits(m->dev, r->out, r->x, r->w, moe->n_row);
    else
        op->linear(m->dev, r->out, r->x, r->w, r->bias, moe->n_row);
    op->moe(m->dev, moe);
}

void ffn_moe_experts(struct model *m, const void *in, const void *x, uint32_t n_row, uint32_t l)
{
    const struct layer    *y = &m->layer[l];
    const struct op_router router = {
        .out = m->router, .x = in, .w = &y->moe.router, .bias = m->route.router_f32 ? NULL : y->moe.logit_bias
    };
    struct op_moe moe = m->route;
    moe.out = m->delta;
    moe.x = x;
    moe.router_logits = m->router;
    moe.gate_up = y->moe.gate_up;
    moe.down = y->moe.down;
    moe.bias = y->moe.bias;
    moe.n_row = n_row;
    moe.hidden = m->hidden;
    moe.inter = m->moe_inter;
    moe.act = m->act;
    moe.gate_up_bias = y->moe.gate_up_bias;
    moe.down_bias = y->moe.down_bias;
    moe.expert_scale = y->moe.expert_scale;
    moe_routed(m, &router, &moe);
}

void ffn_moe(struct model *m, uint32_t n_row, uint32_t l)
{
    m->sum = NULL; /* what is added to delta needs it */
    model_h(m, n_row);
    ffn_moe_experts(m, m->h, m->h, n_row, l);
    if (m->shared) moe_add_shared(m, n_row, l);
    m->dev->ops->allreduce(m->dev, m->delta, (size_t)n_row * m->hidden);
}
