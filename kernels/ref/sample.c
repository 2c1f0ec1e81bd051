#include "base/rng.h"
#include "kernels/ref/ref.h"
#include <math.h>
#include <stdlib.h>

struct cand {
    uint32_t id;
    float    z;
};

/* higher first; ties: the lower id */
static int cand_order(const void *pa, const void *pb)
{
    const struct cand *a = pa, *b = pb;
    if (a->z != b->z) return a->z > b->z ? -1 : 1;
    return a->id < b->id ? -1 : 1;
}

static bool row_is_sane(const float *l, uint32_t vocab)
{
    bool finite = false;
    for (uint32_t i = 0; i < vocab; i++) {
        if (isnan(l[i]) || l[i] == INFINITY) return false;
        if (isfinite(l[i])) finite = true;
    }
    return finite;
}

static double log_sum_exp(const float *l, uint32_t vocab)
{
    double max = -INFINITY, sum = 0;
    for (uint32_t i = 0; i < vocab; i++) max = fmax(max, (double)l[i]);
    for (uint32_t i = 0; i < vocab; i++) sum += exp((double)l[i] - max);
    return max + log(sum);
}

/* what the raw logits say about id, and the n_top best */
static void raw(const float *l, uint32_t vocab, uint32_t id, uint32_t n_top, float *logprob, uint32_t *rank,
                uint32_t *top_id, float *top_logprob)
{
    bool   sane = row_is_sane(l, vocab) && id < vocab;
    double lse = sane ? log_sum_exp(l, vocab) : 0;
    *logprob = sane ? (float)((double)l[id] - lse) : -INFINITY;
    *rank = 0;
    if (sane) *rank = 1;
    for (uint32_t i = 0; sane && i < vocab; i++) *rank += l[i] > l[id];
    uint32_t taken = 0;
    for (struct cand last = { 0 }, best; taken < n_top; taken++, last = best) {
        best = (struct cand){ UINT32_MAX, -INFINITY };
        for (uint32_t i = 0; sane && i < vocab; i++) {
            struct cand c = { i, l[i] };
            if (l[i] > -INFINITY && (taken == 0 || cand_order(&last, &c) < 0) &&
                (best.id == UINT32_MAX || cand_order(&c, &best) < 0))
                best = c;
        }
        top_id[taken] = best.id;
        top_logprob[taken] = best.id == UINT32_MAX ? -INFINITY : (float)((double)best.z - lse);
    }
}

/* mask, bias, penalties: z starts as the raw logits */
static void adjust(float *z, const struct op_sample *o, const struct op_sample_row *r)
{
    const uint32_t *hist = o->hist + r->hist_start, *ban = o->ban + r->ban_start, *allow = o->allow + r->allow_start;
    const uint32_t *mask = o->mask + r->mask_start;
    const struct op_bias *bias = o->bias + r->bias_start;
    if (r->n_allow)
        for (uint32_t i = 0; i < o->vocab; i++) {
            bool is_allowed = false;
            for (uint32_t j = 0; j < r->n_allow; j++) is_allowed |= allow[j] == i;
            if (!is_allowed) z[i] = -INFINITY;
        }
    for (uint32_t i = 0; r->n_mask && i < o->vocab; i++) {
        bool in = i / 32 < r->n_mask && mask[i / 32] >> (i % 32) & 1;
        if (!in) z[i] = -INFINITY;
    }
    for (uint32_t j = 0; j < r->n_ban; j++)
        if (ban[j] < o->vocab) z[ban[j]] = -INFINITY;
    for (uint32_t j = 0; j < r->n_bias; j++)
        if (bias[j].id < o->vocab) z[bias[j].id] += bias[j].bias;
    for (uint32_t j = 0; j < r->n_hist; j++) {
        uint32_t id = hist[j], n_out = 0;
        bool     seen = id >= o->vocab;
        for (uint32_t i = 0; i < j && !seen; i++) seen = hist[i] == id; /* once per distinct id */
        if (seen) continue;
        for (uint32_t i = r->n_prompt; i < r->n_hist; i++) n_out += hist[i] == id;
        if (r->repetition != 1.0f) z[id] = z[id] > 0 ? z[id] / r->repetition : z[id] * r->repetition;
        if (n_out) z[id] -= r->frequency * (float)n_out + r->presence;
    }
}

static uint32_t draw(float *z, struct cand *c, uint32_t vocab, const struct op_sample_row *r)
{
    if (r->temperature >= 1e-5f)
        for (uint32_t i = 0; i < vocab; i++) z[i] /= r->temperature;
    for (uint32_t i = 0; i < vocab; i++) c[i] = (struct cand){ i, z[i] };
    qsort(c, vocab, sizeof *c, cand_order);
    float max = c[0].z;
    if (!isfinite(max)) return UINT32_MAX;
    if (r->temperature < 1e-5f) return c[0].id;
    uint32_t n = r->top_k && r->top_k < vocab ? r->top_k : vocab; /* survivors: a prefix of the order */
    while (n > 1 && (!isfinite(c[n - 1].z) || exp((double)c[n - 1].z - (double)max) < (double)r->min_p)) n--;
    double sum = 0, cum = 0;
    for (uint32_t i = 0; i < n; i++) sum += exp((double)c[i].z - (double)max);
    if (r->top_p < 1.0f)
        for (uint32_t i = 0; i < n; i++) {
            cum += exp((double)c[i].z - (double)max);
            if (cum >= (double)r->top_p * sum) n = i + 1;
        }
    struct cand last = c[n - 1];
    uint32_t    id = UINT32_MAX;
    double      total = 0, u = (double)rng_unit(rng_philox(r->seed, r->stream, r->counter).x[0]);
    for (uint32_t i = 0; i < n; i++) total += exp((double)c[i].z - (double)max);
    cum = 0;
    for (uint32_t i = 0; i < vocab; i++) { /* inverse CDF, survivors in order of id */
        struct cand me = { i, z[i] };
        if (i != last.id && cand_order(&last, &me) < 0) continue;
        id = i;
        if ((cum += exp((double)z[i] - (double)max)) > u * total) break;
    }
    return id;
}

void ref_sample(struct device *d, const struct op_sample *o)
{
    (void)d;
    float       *z = malloc(o->vocab * sizeof *z);
    struct cand *c = malloc(o->vocab * sizeof *c);
    CHECK(z && c);
    for (uint32_t i = 0; i < o->n; i++) {
        const float *l = o->logits + (size_t)i * o->vocab;
        if (o->row[i].n_hist == UINT32_MAX) continue;
        memcpy(z, l, o->vocab * sizeof *z);
        o->id[i] = UINT32_MAX;
        if (row_is_sane(l, o->vocab)) {
            adjust(z, o, &o->row[i]);
            if (row_is_sane(z, o->vocab)) o->id[i] = draw(z, c, o->vocab, &o->row[i]);
        }
        raw(l, o->vocab, o->id[i], o->row[i].n_top, &o->logprob[i], &o->rank[i],
            o->top_id + (size_t)i * OP_SAMPLE_TOP_MAX, o->top_logprob + (size_t)i * OP_SAMPLE_TOP_MAX);
    }
    free(z);
    free(c);
}

void ref_logprob(struct device *d, const struct op_logprob *o)
{
    (void)d;
    for (uint32_t i = 0; i < o->n; i++)
        raw(o->logits + (size_t)i * o->vocab, o->vocab, o->id[i], o->n_top, &o->logprob[i], &o->rank[i],
            o->top_id + (size_t)i * OP_SAMPLE_TOP_MAX, o->top_logprob + (size_t)i * OP_SAMPLE_TOP_MAX);
}
