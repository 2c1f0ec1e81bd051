/* moe: rows are sorted by expert, so that an expert's weights are read once for all of them; what each row gets is
 * computed as if it were alone and summed in the order of its own list. As many rows at a time as scratch holds. */
#include "kernels/cpu/cpu.h"
#include <math.h>

struct moe_slot {           /* one expert of one row's list */
    uint32_t expert, place; /* expert: among those here; n_here: it is elsewhere. place: where it stands when sorted */
    float    weight;
};
struct moe_job {
    struct cpu_dev      *d;
    const struct simd   *v;
    const struct op_moe *o;
    uint32_t             row0, n_row, n_here;
    struct moe_slot     *slot;   /* [n_row][top_k] */
    uint32_t            *start;  /* [n_here + 1] first place of each expert here; then of those elsewhere */
    uint32_t            *fours;  /* [n_here + 1] pieces before each expert, of the product under way */
    float               *x;      /* [place][hidden], inputs, then outputs */
    float               *h;      /* [place][2 * inter] */
    float               *p;      /* [n_expert] scores */
    float               *choice; /* [n_expert] by which experts are chosen */
    char    *px, *ph; /* [place] inputs and activations as their products want them; x and h where those are floats */
    size_t   px_stride, ph_stride;
    uint32_t n_slot;
};

/* choice [n_expert] becomes -inf in the groups that are not kept. */
static void moe_groups(const struct op_moe *o, float *choice)
{
    float    group[OP_ROUTE_GROUPS_MAX];
    uint32_t each = o->n_expert / o->n_group;
    for (uint32_t g = 0; g < o->n_group; g++) {
        float first = -INFINITY, second = -INFINITY;
        for (uint32_t e = g * each; e < (g + 1) * each; e++)
            if (choice[e] > first) {
                second = first;
                first = choice[e];
            } else if (choice[e] > second) {
                second = choice[e];
            }
        group[g] = first + second;
    }
    for (uint32_t g = 0; g < o->n_group; g++) {
        uint32_t before = 0; /* groups that are better, or as good and earlier */
        for (uint32_t i = 0; i < o->n_group; i++) before += group[i] > group[g] || (group[i] == group[g] && i < g);
        for (uint32_t e = g * each; before >= o->group_keep && e < (g + 1) * each; e++) choice[e] = -INFINITY;
    }
}

/* The routers that are no plain softmax: scores, the k best of scores and bias in order, ties to the lower id. */
static void moe_route_biased(const struct moe_job *j, uint32_t r)
{
    const struct op_moe *o = j->o;
    const float         *logit = (const float *)o->router_logits + (size_t)(j->row0 + r) * o->n_expert;
    struct moe_slot     *slot = j->slot + (size_t)r * o->top_k;
    float               *choice = j->choice, all = 0, chosen = 0, by = o->scale != 0 ? o->scale : 1;
    bool                 nan, by_logit = o->score == OP_ROUTE_SIGMOID && !o->bias && !o->n_group; /* scores may tie */
    if (o->score == OP_ROUTE_SIGMOID) {
        for (uint32_t e = 0; e < o->n_expert; e++) j->p[e] = 1 / (1 + expf(-logit[e]));
    } else {
        float max = j->v->max(logit, o->n_expert, &nan);
        for (uint32_t i = 0; i < o->n_expert; i += 256)
            all += j->v->exp_sum(j->p + i, logit + i, max, 0, o->n_expert - i < 256 ? o->n_expert - i : 256);
        for (uint32_t e = 0; e < o->n_expert; e++) j->p[e] /= all;
    }
    for (uint32_t e = 0; e < o->n_expert; e++) {
        choice[e] = by_logit ? logit[e] : j->p[e];
        if (o->bias) choice[e] += o->bias[e];
        if (isnan(choice[e])) choice[e] = -INFINITY;
    }
    if (o->n_group) moe_groups(o, choice);
    for (uint32_t k = 0; k < o->top_k; k++) {
        uint32_t best = UINT32_MAX;
        for (uint32_t e = 0; e < o->n_expert; e++) {
            if (best != UINT32_MAX && !(choice[e] > choice[best])) continue;
            bool taken = false;
            for (uint32_t i = 0; i < k; i++) taken |= slot[i].expert == e;
            if (!taken) best = e;
        }
        slot[k] = (struct moe_slot){ .expert = best, .weight = j->p[best] };
        chosen += slot[k].weight;
    }
    if (o->renorm) by /= fmaxf(chosen, o->sum_min) + o->sum_add;
    for (uint32_t k = 0; k < o->top_k; k++) slot[k].weight *= by;
}

/* softmax, the k best in order, ties to the lower id */
static void moe_route_plain(const struct moe_job *j, uint32_t r)
{
    const struct op_moe *o = j->o;
    const float         *logit = (const float *)o->router_logits + (size_t)(j->row0 + r) * o->n_expert;
    struct moe_slot     *slot = j->slot + (size_t)r * o->top_k;
    bool                 nan;
    float                max = j->v->max(logit, o->n_expert, &nan), all = 0, chosen = 0;
    for (uint32_t i = 0; i < o->n_expert; i += 256)
        all += j->v->exp_sum(j->p + i, logit + i, max, 0, o->n_expert - i < 256 ? o->n_expert - i : 256);
    for (uint32_t k = 0; k < o->top_k; k++) {
        uint32_t best = UINT32_MAX;
        for (uint32_t e = 0; e < o->n_expert; e++) {
            if (best != UINT32_MAX && !(logit[e] > logit[best])) continue;
            bool taken = false;
            for (uint32_t i = 0; i < k; i++) taken |= slot[i].expert == e;
            if (!taken) best = e;
        }
        slot[k] = (struct moe_slot){ .expert = best, .weight = j->p[best] / all };
        chosen += slot[k].weight;
    }
    for (uint32_t k = 0; o->renorm && k < o->top_k; k++) slot[k].weight /= chosen;
}

static void moe_route(const struct moe_job *j, uint32_t r)
{
    const struct op_moe *o = j->o;
    struct moe_slot     *slot = j->slot + (size_t)r * o->top_k;
    if (o->score == OP_ROUTE_SOFTMAX && !o->bias && !o->n_group && o->scale == 0 && o->sum_min == 0 && o->sum_add == 0)
        moe_route_plain(j, r);
    else
        moe_route_biased(j, r);
    for (uint32_t k = 0; o->expert_scale && k < o->top_k; k++) slot[k].weight *= o->expert_scale[slot[k].expert];
    for (uint32_t k = 0; k < o->top_k; k++) {
        uint32_t here = slot[k].expert - o->first_here; /* of one before the first: very large */
        slot[k].expert = here < j->n_here ? here : j->n_here;
    }
}

static void moe_gather(void *arg, uint32_t s, uint32_t thread)
{
    (void)thread;
    const struct moe_job *j = arg;
    if (j->slot[s].expert == j->n_here) return;
    uint32_t     dim = j->o->hidden, row = j->row0 + s / j->o->top_k;
    const float *x = (const float *)j->o->x + (size_t)row * dim;
    char        *to = j->px + j->slot[s].place * j->px_stride;
    if (gemm_of(j->o->gate_up)->prepare)
        gemm_of(j->o->gate_up)->prepare(to, x, j->o->gate_up);
    else
        memcpy(to, x, dim * sizeof(float));
}

/* The expert whose product piece this is, and its first panel. */
static uint32_t moe_find(const struct moe_job *j, uint32_t piece, uint32_t *panel_out)
{
    uint32_t lo = 0, hi = j->n_here;
    while (hi - lo > 1) {
        uint32_t mid = (lo + hi) / 2;
        if (j->fours[mid] <= piece)
            lo = mid;
        else
            hi = mid;
    }
    *panel_out = (piece - j->fours[lo]) * 4;
    return lo;
}

static void moe_product(const struct moe_job *j, const struct dev_weight *weights, uint32_t piece, uint32_t thread,
                        float *out, size_t ldo, const char *x, size_t x_stride)
{
    uint32_t       panel, e = moe_find(j, piece, &panel), n_panel = gemm_n_panel(weights[e].n);
    struct cpu_mul mul = {
        .d = j->d, .out = out, .ldo = ldo, .x = x, .x_stride = x_stride, .w = &weights[e], .thread = thread
    };
    cpu_mul_panels(&mul, j->start[e], j->start[e + 1] - j->start[e], panel, n_panel - panel < 4 ? n_panel - panel : 4);
}

static void moe_gate_up(void *arg, uint32_t piece, uint32_t thread)
{
    const struct moe_job *j = arg;
    moe_product(j, j->o->gate_up, piece, thread, j->h, 2 * (size_t)j->o->inter, j->px, j->px_stride);
}

static void moe_act(void *arg, uint32_t s, uint32_t thread)
{
    (void)thread;
    const struct moe_job  *j = arg;
    const struct moe_slot *slot = &j->slot[s];
    if (slot->expert == j->n_here) return;
    uint32_t wide = 2 * j->o->inter, place = slot->place;
    float   *h = j->h + (size_t)place * wide;
    if (j->o->weigh_input) j->v->norm(h, h, NULL, slot->weight, wide);
    if (j->o->gate_up_bias) j->v->add(h, j->o->gate_up_bias + (size_t)slot->expert * wide, wide);
    j->v->act_mul[j->o->act](h, h, h + j->o->inter, j->o->inter);
    if (gemm_of(j->o->down)->prepare) gemm_of(j->o->down)->prepare(j->ph + place * j->ph_stride, h, j->o->down);
}

static void moe_down(void *arg, uint32_t piece, uint32_t thread)
{
    const struct moe_job *j = arg;
    moe_product(j, j->o->down, piece, thread, j->x, j->o->hidden, j->ph, j->ph_stride);
}

static void moe_combine(void *arg, uint32_t r, uint32_t thread)
{
    (void)thread;
    const struct moe_job *j = arg;
    uint32_t              dim = j->o->hidden;
    float                *out = (float *)j->o->out + (size_t)(j->row0 + r) * dim;
    bool                  any = false;
    for (uint32_t k = 0; k < j->o->top_k; k++) {
        const struct moe_slot *s = &j->slot[(size_t)r * j->o->top_k + k];
        if (s->expert == j->n_here) continue;
        float *y = j->x + (size_t)s->place * dim;
        if (j->o->down_bias) j->v->add(y, j->o->down_bias + (size_t)s->expert * dim, dim);
        j->v->norm(any ? y : out, y, NULL, j->o->weigh_input ? 1 : s->weight, dim);
        if (any) j->v->add(out, y, dim);
        any = true;
    }
    if (!any) memset(out, 0, dim * sizeof *out);
}

static uint32_t moe_pieces(const struct moe_job *j, const struct dev_weight *w)
{
    uint32_t n = 0;
    for (uint32_t e = 0; e < j->n_here; e++) {
        j->fours[e] = n;
        if (j->start[e] < j->start[e + 1]) n += (gemm_n_panel(w[e].n) + 3) / 4;
    }
    return j->fours[j->n_here] = n;
}

static void moe_rows(struct cpu_dev *c, struct moe_job *j)
{
    const struct op_moe *o = j->o;
    memset(j->start, 0, (j->n_here + 1) * sizeof *j->start);
    for (uint32_t r = 0; r < j->n_row; r++) moe_route(j, r);
    for (uint32_t s = 0; s < j->n_slot; s++) j->start[j->slot[s].expert]++; /* counts, then ends, then starts */
    for (uint32_t e = 1; e <= j->n_here; e++) j->start[e] += j->start[e - 1];
    for (uint32_t s = j->n_slot; s-- > 0;) j->slot[s].place = --j->start[j->slot[s].expert];
    uint64_t n_place = j->start[j->n_here], all = n_place * o->hidden * o->inter / 16;
    team_run(c->team, j->n_slot, n_place * o->hidden / 16, moe_gather, j);
    team_run(c->team, moe_pieces(j, o->gate_up), all * 2, moe_gate_up, j);
    team_run(c->team, j->n_slot, n_place * o->inter * 3, moe_act, j);
    team_run(c->team, moe_pieces(j, o->down), all, moe_down, j);
    team_run(c->team, j->n_row, n_place * o->hidden / 8, moe_combine, j);
}

static size_t prepared_bytes(const struct dev_weight *w) { return gemm_of(w)->prepare ? gemm_of(w)->row_bytes(w) : 0; }

/* The experts of a layer are all of one type. */
void cpu_moe(struct device *d, const struct op_moe *o)
{
    struct cpu_dev *c = cpu_of(d);
    size_t          px = prepared_bytes(o->gate_up), ph = prepared_bytes(o->down),
           fixed = ((size_t)o->n_expert * 4 + 2) * 4 + 3 * 64;
    size_t row = o->top_k * (sizeof(struct moe_slot) + (o->hidden + 2 * (size_t)o->inter) * sizeof(float) + px + ph);
    CHECK(o->top_k >= 1 && o->top_k <= o->n_expert && o->n_group <= OP_ROUTE_GROUPS_MAX);
    CHECK(o->first_here + op_moe_here(o) <= o->n_expert);
    CHECK(c->shared_bytes >= fixed + row);
    uint32_t rows = (uint32_t)((c->shared_bytes - fixed) / row);
    if (rows > o->n_row) rows = o->n_row;
    for (uint32_t r = 0; r < o->n_row; r += rows) {
        struct moe_job j = { .d = c, .v = c->v, .o = o, .row0 = r, .n_here = op_moe_here(o) };
        j.n_row = o->n_row - r < rows ? o->n_row - r : rows;
        j.n_slot = j.n_row * o->top_k;
        char *at = c->shared;
        j.px = at;
        j.px_stride = px;
        at += j.n_slot * px; /* first: they want whole lines */
        j.ph = at;
        j.ph_stride = ph;
        at += j.n_slot * ph;
        j.x = (float *)(void *)at;
        at += (size_t)j.n_slot * o->hidden * sizeof(float);
        j.h = (float *)(void *)at;
        at += (size_t)j.n_slot * 2 * o->inter * sizeof(float);
        j.slot = (void *)at;
        at += j.n_slot * sizeof *j.slot;
        j.p = (float *)(void *)at;
        at += o->n_expert * sizeof *j.p;
        j.choice = (void *)at;
        at += o->n_expert * sizeof *j.choice;
        j.start = (void *)at;
        at += (o->n_expert + 1) * sizeof *j.start;
        j.fours = (void *)at;
        if (!px) {
            j.px = (char *)j.x;
            j.px_stride = o->hidden * sizeof(float);
        }
        if (!ph) {
            j.ph = (char *)j.h;
            j.ph_stride = 2 * (size_t)o->inter * sizeof(float);
        }
        moe_rows(c, &j);
    }
}
