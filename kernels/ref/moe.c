#include "kernels/ref/ref.h"
#include <math.h>
#include <stdlib.h>

/* out += weight * down(act(gate(x)) * up(x)) of the e-th expert here, or down(act(weight * gate(x)) * weight *
 * up(x)) */
static void expert(const struct op_moe *o, float *out, const float *x, uint32_t e, double weight)
{
    const struct dev_weight *gate_up = &o->gate_up[e], *down = &o->down[e];
    const float             *gu_bias = o->gate_up_bias ? o->gate_up_bias + (size_t)e * 2 * o->inter : NULL;
    const float             *down_bias = o->down_bias ? o->down_bias + (size_t)e * o->hidden : NULL;
    enum { INTER_MAX = 1 << 15 };
    static _Thread_local float act[INTER_MAX], rounded[INTER_MAX];
    uint32_t                   inter = down->k;
    double                     in = o->weigh_input ? weight : 1, by = o->weigh_input ? 1 : weight;
    CHECK(inter <= INTER_MAX && gate_up->k <= INTER_MAX);
    double *sum = malloc(sizeof *sum * (gate_up->n > down->n ? gate_up->n : down->n));
    CHECK(sum);
    ref_dots(ref_act(x, gate_up, rounded), 1, gate_up, sum);
    for (uint32_t j = 0; j < inter; j++) {
        double gate = sum[j] * in, up = sum[inter + j] * in;
        if (gu_bias) {
            gate += (double)gu_bias[j];
            up += (double)gu_bias[inter + j];
        }
        act[j] = ref_gated(o->act, (float)gate, (float)up);
    }
    ref_dots(ref_act(act, down, rounded), 1, down, sum);
    for (uint32_t j = 0; j < down->n; j++) out[j] += (float)(by * (sum[j] + (down_bias ? (double)down_bias[j] : 0)));
    free(sum);
}

enum { EXPERTS_MAX = 4096 };

/* The scores of a row's logits. */
static void route_scores(double *score, const float *logit, const struct op_moe *o)
{
    double max = -INFINITY, all = 0;
    for (uint32_t e = 0; e < o->n_expert; e++) max = fmax(max, (double)logit[e]);
    for (uint32_t e = 0; e < o->n_expert; e++) all += exp((double)logit[e] - max);
    for (uint32_t e = 0; e < o->n_expert; e++)
        score[e] = o->score == OP_ROUTE_SIGMOID ? 1 / (1 + exp(-(double)logit[e])) : exp((double)logit[e] - max) / all;
}

/* The sum of the two largest of n numbers. */
static double route_best_two(const double *choice, uint32_t n)
{
    double first = -INFINITY, second = -INFINITY;
    for (uint32_t e = 0; e < n; e++)
        if (choice[e] > first) {
            second = first;
            first = choice[e];
        } else if (choice[e] > second) {
            second = choice[e];
        }
    return first + second;
}

/* The numbers by which experts are chosen; -inf in groups that are not kept. */
static void route_choice(double *choice, const double *score, const struct op_moe *o)
{
    double   group[OP_ROUTE_GROUPS_MAX];
    uint32_t each = o->n_group ? o->n_expert / o->n_group : o->n_expert;
    for (uint32_t e = 0; e < o->n_expert; e++) choice[e] = score[e] + (o->bias ? (double)o->bias[e] : 0);
    for (uint32_t g = 0; g < o->n_group; g++) group[g] = route_best_two(choice + g * each, each);
    for (uint32_t g = 0; g < o->n_group; g++) {
        uint32_t before = 0; /* groups that are better, or as good and earlier */
        for (uint32_t i = 0; i < o->n_group; i++) before += group[i] > group[g] || (group[i] == group[g] && i < g);
        for (uint32_t e = g * each; before >= o->group_keep && e < (g + 1) * each; e++) choice[e] = -INFINITY;
    }
}

void ref_moe(struct device *d, const struct op_moe *o)
{
    (void)d;
    static _Thread_local double score[EXPERTS_MAX], choice[EXPERTS_MAX];
    CHECK(o->top_k >= 1 && o->top_k <= o->n_expert && o->n_expert <= EXPERTS_MAX);
    CHECK(o->n_group <= OP_ROUTE_GROUPS_MAX && o->first_here + op_moe_here(o) <= o->n_expert);
    bool plain = !o->bias && !o->n_group; /* the largest logits, also where scores tie */
    for (uint32_t r = 0; r < o->n_row; r++) {
        const float *logit = (const float *)o->router_logits + (size_t)r * o->n_expert,
                    *x = (const float *)o->x + (size_t)r * o->hidden;
        float *out = (float *)o->out + (size_t)r * o->hidden;
        double chosen = 0;
        route_scores(score, logit, o);
        route_choice(choice, score, o);
        for (uint32_t e = 0; plain && e < o->n_expert; e++) choice[e] = (double)logit[e];
        for (uint32_t i = 0; i < o->hidden; i++) out[i] = 0;
        for (int pass = 0; pass < 2; pass++) { /* the sum of those chosen comes first: renorm divides by it */
            double   last = INFINITY, by = o->scale != 0 ? (double)o->scale : 1;
            uint32_t last_id = 0;
            if (o->renorm) by /= fmax(chosen, (double)o->sum_min) + (double)o->sum_add;
            for (uint32_t k = 0; k < o->top_k; k++) {
                uint32_t best = UINT32_MAX; /* the next after `last` in order of (choice descending, id ascending) */
                for (uint32_t e = 0; e < o->n_expert; e++) {
                    bool after = k == 0 || choice[e] < last || (choice[e] == last && e > last_id);
                    if (after && (best == UINT32_MAX || choice[e] > choice[best])) best = e;
                }
                if (best == UINT32_MAX) break; /* NaN */
                last = choice[best];
                last_id = best;
                if (pass == 0)
                    chosen += score[best];
                else if (best >= o->first_here && best - o->first_here < op_moe_here(o))
                    expert(o, out, x, best - o->first_here,
                           score[best] * by * (o->expert_scale ? (double)o->expert_scale[best] : 1));
            }
        }
    }
}
