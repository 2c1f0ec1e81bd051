#include "kernels/ref/ref.h"
#include <stdlib.h>

/* What one row's adapter adds to it: t = A x, then out += scale * B t. */
static void lora_row(const struct op_lora *o, uint32_t slot, const float *x, float *out)
{
    const struct dev_lora   *w = o->w;
    const struct dev_weight *a = &w->a[slot], *b = &w->b[slot];
    double                  *sum = malloc(sizeof *sum * (w->n > w->rank ? w->n : w->rank));
    CHECK(sum);
    ref_dots(x, 1, a, sum);
    for (uint32_t p = 0; p < w->rank; p++) o->mid[p] = (float)sum[p];
    ref_dots(o->mid, 1, b, sum);
    for (uint32_t j = 0; j < w->n; j++) out[j] = (float)((double)out[j] + (double)w->scale[slot] * sum[j]);
    free(sum);
}

void ref_lora(struct device *d, const struct op_lora *o)
{
    (void)d;
    for (uint32_t i = 0; i < o->n_row; i++) {
        uint32_t slot = host_lora_slot(o, i);
        if (slot == HOST_LORA_NONE) continue;
        lora_row(o, slot, (const float *)o->x + (size_t)i * o->w->k,
                 (float *)o->out + (size_t)i * o->out_dim + o->first);
    }
}
