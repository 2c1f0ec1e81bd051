/* lora: rows that follow each other and have the same adapter go through the device's own product, twice: t = A x,
 * y = B t. A product's row has the same bits in any number of rows (gemm.c), and so have these. */
#include "kernels/cpu/cpu.h"

struct lora_add {
    const struct simd *v;
    float             *out;
    float             *y;
    uint32_t           out_dim, n;
    float              scale;
};

static void add_row(void *arg, uint32_t row, uint32_t thread)
{
    (void)thread;
    const struct lora_add *j = arg;
    float                 *y = j->y + (size_t)row * j->n;
    j->v->norm(y, y, NULL, j->scale, j->n);
    j->v->add(j->out + (size_t)row * j->out_dim, y, j->n);
}

/* Rows [at, at + m), all of this slot. */
static void lora_rows(struct cpu_dev *c, const struct op_lora *o, uint32_t slot, uint32_t at, uint32_t m)
{
    const struct dev_lora *w = o->w;
    struct device         *d = &c->host.impl.dev;
    float                 *t = o->mid, *y = o->mid + (size_t)OP_LORA_ROWS * w->rank;
    struct lora_add        add = { .v = c->v,
                                   .out = (float *)o->out + (size_t)at * o->out_dim + o->first,
                                   .y = y,
                                   .out_dim = o->out_dim,
                                   .n = w->n,
                                   .scale = w->scale[slot] };
    cpu_linear(d, t, (const float *)o->x + (size_t)at * w->k, &w->a[slot], NULL, m);
    cpu_linear(d, y, t, &w->b[slot], NULL, m);
    team_run(c->team, m, (uint64_t)m * w->n / 2, add_row, &add);
}

void cpu_lora(struct device *d, const struct op_lora *o)
{
    for (uint32_t at = 0, n; at < o->n_row; at += n) {
        uint32_t slot = host_lora_slot(o, at);
        n = 1;
        while (at + n < o->n_row && n < OP_LORA_ROWS && host_lora_slot(o, at + n) == slot) n++;
        if (slot != HOST_LORA_NONE) lora_rows(cpu_of(d), o, slot, at, n);
    }
}
