#include "kernels/ref/ref.h"
#include <math.h>

/* out += weight * down(act(gate(x)) * up(x)); nothing is stored between, so up to inter dot products are taken again
 * per output */
static void expert(float *out, const float *x, const struct dev_weight *gate_up, const struct dev_weight *down,
                   enum op_act gate, double weight)
{
    enum { INTER_MAX = 1 << 15 };
    static _Thread_local float act[INTER_MAX], rounded[INTER_MAX];
    uint32_t                   inter = down->k;
    CHECK(inter <= INTER_MAX && gate_up->k <= INTER_MAX);
    x = ref_act(x, gate_up, rounded);
    for (uint32_t j = 0; j < inter; j++)
        act[j] = ref_gate(gate, (float)ref_dot(x, gate_up, j)) * (float)ref_dot(x, gate_up, inter + j);
    const float *a = ref_act(act, down, rounded);
    for (uint32_t j = 0; j < down->n; j++) out[j] += (float)(weight * ref_dot(a, down, j));
}

void ref_moe(struct device *d, const struct op_moe *o)
{
    (void)d;
    CHECK(o->top_k >= 1 && o->top_k <= o->n_expert);
    for (uint32_t r = 0; r < o->n_row; r++) {
        const float *logit = (const float *)o->router_logits + (size_t)r * o->n_expert,
                    *x = (const float *)o->x + (size_t)r * o->hidden;
        float *out = (float *)o->out + (size_t)r * o->hidden;
        double max = -INFINITY, all = 0, chosen = 0;
        for (uint32_t e = 0; e < o->n_expert; e++) max = fmax(max, (double)logit[e]);
        for (uint32_t e = 0; e < o->n_expert; e++) all += exp((double)logit[e] - max);
        for (uint32_t i = 0; i < o->hidden; i++) out[i] = 0;
        for (int pass = 0; pass < 2; pass++) { /* the sum of those chosen comes first: renorm divides by it */
            double   last = INFINITY;
            uint32_t last_id = 0;
            for (uint32_t k = 0; k < o->top_k; k++) {
                uint32_t best = UINT32_MAX; /* the next after `last` in order of (logit descending, id ascending) */
                for (uint32_t e = 0; e < o->n_expert; e++) {
                    bool after = k == 0 || (double)logit[e] < last || ((double)logit[e] == last && e > last_id);
                    if (after && (best == UINT32_MAX || logit[e] > logit[best])) best = e;
                }
                if (best == UINT32_MAX) break; /* NaN */
                last = (double)logit[best];
                last_id = best;
                double p = exp(last - max) / all;
                if (pass == 0)
                    chosen += p;
                else
                    expert(out, x, &o->gate_up[best], &o->down[best], o->act, o->renorm ? p / chosen : p);
            }
        }
    }
}
