/* sample: one row of logits to one id, without sorting the vocabulary; logprobs, ranks and the best few.
 * The set of survivors is exact (order: higher logit first, ties to the lower id), and the draw walks it in order of
 * id, so that neither depends on how the set was found. Weights are integers (kernels/weigh.h): all sums are exact.
 * Rows are spread over threads; a row has one thread. */
#include "base/rng.h"
#include "kernels/cpu/cpu.h"
#include "kernels/weigh.h"
#include <math.h>

enum { SAMPLE_BLOCK = SIMD_WEIGH_MAX, SAMPLE_COLLECT = 4096, SAMPLE_BYTES_PER_ID = 12, SAMPLE_SORT_MAX = 4096 };

struct sample_work {
    const struct simd *v;
    uint32_t           vocab;
    float             *z;     /* [vocab] logits after mask, bias, penalties, temperature */
    float             *e;     /* [vocab] exp(z - max), 0 when out by min-p; before that: counts of ids in the history */
    uint32_t          *c;     /* [vocab] candidates */
    uint64_t          *block; /* [vocab / 256] weights */
};

/* does a come before b? */
static bool before(const float *z, uint32_t a, uint32_t b) { return z[a] > z[b] || (z[a] == z[b] && a < b); }

static void swap(uint32_t *a, uint32_t *b)
{
    uint32_t t = *a;
    *a = *b;
    *b = t;
}

/* Splits c[lo, hi), hi - lo >= 2, around a pivot: [lo, p) come before c[p], the rest behind. */
static uint32_t split(const float *z, uint32_t *c, uint32_t lo, uint32_t hi)
{
    uint32_t mid = lo + (hi - lo) / 2;
    if (before(z, c[mid], c[lo])) swap(&c[mid], &c[lo]);
    if (before(z, c[hi - 1], c[lo])) swap(&c[hi - 1], &c[lo]);
    if (before(z, c[hi - 1], c[mid])) swap(&c[hi - 1], &c[mid]); /* the middle of three */
    swap(&c[mid], &c[hi - 1]);
    uint32_t p = lo;
    for (uint32_t i = lo; i < hi - 1; i++)
        if (before(z, c[i], c[hi - 1])) swap(&c[i], &c[p++]);
    swap(&c[p], &c[hi - 1]);
    return p;
}

/* The k that come first are moved to the front; 1 <= k < n. */
static void select_first(const float *z, uint32_t *c, uint32_t n, uint32_t k)
{
    for (uint32_t lo = 0, hi = n; hi - lo > 1;) {
        uint32_t p = split(z, c, lo, hi);
        if (p == k || p + 1 == k) return;
        if (p > k)
            hi = p;
        else
            lo = p + 1;
    }
}

/* The k first of z [n] (fewer where fewer are above -inf), in no order. One pass: what cannot be among them falls out
 * early. */
static uint32_t top_k(const struct simd *v, const float *z, uint32_t n, uint32_t k, uint32_t *c)
{
    uint32_t m = 0;
    float    bar = -INFINITY; /* the k-th so far; a later equal one has a higher id and loses */
    for (uint32_t i = 0; i < n; i += SAMPLE_COLLECT) {
        m += v->ids_above(c + m, z + i, bar, i, n - i < SAMPLE_COLLECT ? n - i : SAMPLE_COLLECT);
        if (m <= k || (m < 2 * k && i + SAMPLE_COLLECT < n)) continue;
        select_first(z, c, m, k);
        m = k;
        bar = z[c[0]];
        for (uint32_t j = 1; j < k; j++) bar = z[c[j]] < bar ? z[c[j]] : bar;
    }
    if (m > k) {
        select_first(z, c, m, k);
        m = k;
    }
    return m;
}

/* The fewest of c [n] that come first and weigh at least `left`, which all of them do; returns how many, moved to the
 * front. */
static uint32_t top_p(const float *z, const float *e, uint32_t *c, uint32_t n, uint64_t left)
{
    uint32_t lo = 0, hi = n; /* [0, hi) is enough; left: what [0, lo) does not give yet */
    while (hi - lo > 1) {
        uint32_t p = split(z, c, lo, hi);
        uint64_t sum = 0;
        for (uint32_t i = lo; i < p; i++) sum += weigh(e[c[i]]);
        if (sum >= left) {
            hi = p; /* without the pivot it is enough */
        } else if (sum + weigh(e[c[p]]) >= left) {
            return p + 1;
        } else {
            left -= sum + weigh(e[c[p]]);
            lo = p + 1;
        }
    }
    return hi;
}

static void sort_ids(uint32_t *c, uint32_t n) /* heap sort: nothing is allocated, nothing is quadratic */
{
    for (uint32_t i = n / 2, m = n; m > 1;) {
        if (i > 0)
            i--;
        else
            swap(&c[0], &c[--m]);
        for (uint32_t at = i, child; (child = 2 * at + 1) < m; at = child) {
            if (child + 1 < m && c[child] < c[child + 1]) child++;
            if (c[at] >= c[child]) break;
            swap(&c[at], &c[child]);
        }
    }
}

/* What the mask does not name becomes -inf, 32 ids at a time where all or none of them are named. */
static void keep_masked(float *z, const uint32_t *mask, uint32_t n_mask, uint32_t vocab)
{
    for (uint32_t first = 0; first < vocab; first += 32) {
        uint32_t word = first / 32 < n_mask ? mask[first / 32] : 0, n = vocab - first < 32 ? vocab - first : 32;
        if (word == UINT32_MAX) continue;
        for (uint32_t i = 0; i < n; i++)
            if (!(word >> i & 1)) z[first + i] = -INFINITY;
    }
}

/* ids beyond the vocabulary are no ids of this model: they change nothing */
static void adjust(const struct sample_work *w, const float *logits, const struct op_sample *o,
                   const struct op_sample_row *r)
{
    float          *z = w->z;
    uint32_t       *count = (uint32_t *)(void *)w->e; /* in the answer << 1 | done */
    const uint32_t *hist = o->hist + r->hist_start, *allow = o->allow + r->allow_start;
    if (r->n_allow) {
        for (uint32_t i = 0; i < w->vocab; i++) z[i] = -INFINITY;
        for (uint32_t i = 0; i < r->n_allow; i++)
            if (allow[i] < w->vocab) z[allow[i]] = logits[allow[i]];
    } else {
        memcpy(z, logits, w->vocab * sizeof *z);
    }
    if (r->n_mask) keep_masked(z, o->mask + r->mask_start, r->n_mask, w->vocab);
    for (uint32_t i = 0; i < r->n_ban; i++)
        if (o->ban[r->ban_start + i] < w->vocab) z[o->ban[r->ban_start + i]] = -INFINITY;
    for (uint32_t i = 0; i < r->n_bias; i++)
        if (o->bias[r->bias_start + i].id < w->vocab)
            z[o->bias[r->bias_start + i].id] += o->bias[r->bias_start + i].bias;
    if (r->repetition == 1.0f && r->frequency == 0.0f && r->presence == 0.0f) return;
    for (uint32_t i = 0; i < r->n_hist; i++)
        if (hist[i] < w->vocab) count[hist[i]] = 0;
    for (uint32_t i = r->n_prompt; i < r->n_hist; i++)
        if (hist[i] < w->vocab) count[hist[i]] += 2;
    for (uint32_t i = 0; i < r->n_hist; i++) {
        uint32_t id = hist[i];
        if (id >= w->vocab || count[id] & 1) continue;
        if (r->repetition != 1.0f) z[id] = z[id] > 0 ? z[id] / r->repetition : z[id] * r->repetition;
        if (count[id]) z[id] -= r->frequency * (float)(count[id] / 2) + r->presence;
        count[id] |= 1;
    }
}

/* What all ids weigh together; by blocks, which `block` gets where it is not NULL. */
static uint64_t weigh_all(const struct simd *v, float *e, uint64_t *block, const float *z, uint32_t n, float max,
                          float min)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i += SAMPLE_BLOCK) {
        uint64_t part = v->weigh(e ? e + i : NULL, z + i, max, min, n - i < SAMPLE_BLOCK ? n - i : SAMPLE_BLOCK);
        if (block) block[i / SAMPLE_BLOCK] = part;
        sum += part;
    }
    return sum;
}

/* Inverse CDF over all that weigh something, in order of id: first the block, then the id in it. place < total */
static uint32_t walk(const struct sample_work *w, uint64_t place)
{
    uint32_t at = 0, id;
    for (; w->block[at] <= place; at++) place -= w->block[at];
    for (id = at * SAMPLE_BLOCK; weigh(w->e[id]) <= place; id++) place -= weigh(w->e[id]);
    CHECK(id < w->vocab);
    return id;
}

/* The same over the survivors c [n]. Many are not sorted: what comes behind the last of them loses its weight
 * instead. */
static uint32_t walk_list(const struct sample_work *w, uint32_t n, uint32_t random)
{
    uint64_t total = 0, place;
    uint32_t last = w->c[0], i = 0;
    if (n > SAMPLE_SORT_MAX) {
        for (i = 1; i < n; i++) last = before(w->z, last, w->c[i]) ? w->c[i] : last;
        for (i = 0; i < w->vocab; i++) {
            if (i % SAMPLE_BLOCK == 0) w->block[i / SAMPLE_BLOCK] = 0;
            if (before(w->z, last, i)) w->e[i] = 0;
            w->block[i / SAMPLE_BLOCK] += weigh(w->e[i]);
            total += weigh(w->e[i]);
        }
        return walk(w, weigh_place(total, random));
    }
    sort_ids(w->c, n);
    for (i = 0; i < n; i++) total += weigh(w->e[w->c[i]]);
    place = weigh_place(total, random);
    for (i = 0; weigh(w->e[w->c[i]]) <= place; i++) place -= weigh(w->e[w->c[i]]);
    CHECK(i < n);
    return w->c[i];
}

static uint32_t draw(const struct sample_work *w, const struct op_sample_row *r, float max)
{
    uint32_t random = rng_philox(r->seed, r->stream, r->counter).x[0], n;
    uint64_t total = weigh_all(w->v, w->e, w->block, w->z, w->vocab, max, r->min_p < 1.0f ? r->min_p : 1.0f);
    bool     is_k = r->top_k && r->top_k < w->vocab, is_p = r->top_p < 1.0f;
    if (!is_k && !is_p) return walk(w, weigh_place(total, random));
    if (is_k) {
        n = top_k(w->v, w->z, w->vocab, r->top_k, w->c);
        total = 0;
        for (uint32_t i = 0; i < n; i++) total += weigh(w->e[w->c[i]]);
    } else {
        /* Those not above bar weigh less than 1 - top_p together, so none of them is needed. -1: weights are
         * rounded. */
        double part = r->top_p > 0 ? (double)r->top_p : 0;
        double bar = ((1.0 - part) * 0.999 * (double)total / w->vocab - 1.0) * 0x1p-42;
        n = w->v->ids_above(w->c, w->e, bar > 0 ? (float)bar : 0, 0, w->vocab);
    }
    if (is_p) n = top_p(w->z, w->e, w->c, n, weigh_part(total, r->top_p));
    return walk_list(w, n, random);
}

static bool is_plain(const struct op_sample_row *r)
{
    return !r->n_allow && !r->n_mask && !r->n_ban && !r->n_bias && r->repetition == 1.0f && r->frequency == 0.0f &&
           r->presence == 0.0f;
}

static uint32_t sample_id(struct sample_work *w, const float *logits, float raw_max, const struct op_sample *o,
                          const struct op_sample_row *r)
{
    bool  is_greedy = r->temperature < 1e-5f, nan = false;
    float max = raw_max;
    if (is_greedy && is_plain(r)) return w->v->find(logits, max, w->vocab);
    if (is_plain(r)) { /* division keeps the order, so the largest stays the largest */
        w->v->divide(w->z, logits, r->temperature, w->vocab);
        max /= r->temperature;
    } else {
        adjust(w, logits, o, r);
        if (!is_greedy) w->v->divide(w->z, w->z, r->temperature, w->vocab);
        max = w->v->max(w->z, w->vocab, &nan);
    }
    if (nan || !isfinite(max)) return UINT32_MAX;
    return is_greedy ? w->v->find(w->z, max, w->vocab) : draw(w, r, max);
}

/* What the raw logits say about id, and the n_top best. max: of the row; NaN: the row is not sane. more than eight:
 * four of them are results, which lie in arrays of the caller. */
static void raw(const struct sample_work *w, const float *l, float max, uint32_t id, uint32_t n_top, float *logprob,
                uint32_t *rank, uint32_t *top_id, float *top_logprob)
{
    bool     is_sane = !isnan(max) && id < w->vocab;
    double   lse = is_sane ? (double)max + weigh_log(weigh_all(w->v, NULL, NULL, l, w->vocab, max, 0)) : 0;
    uint32_t n = 0;
    *logprob = is_sane ? weigh_logprob(l[id], lse) : -INFINITY;
    *rank = is_sane ? 1 : 0;
    if (is_sane && l[id] < max) *rank += w->v->count_above(l, l[id], w->vocab);
    if (is_sane && n_top) {
        n = top_k(w->v, l, w->vocab, n_top, w->c);
        for (uint32_t i = 1; i < n; i++)
            for (uint32_t j = i; j > 0 && before(l, w->c[j], w->c[j - 1]); j--) swap(&w->c[j], &w->c[j - 1]);
    }
    for (uint32_t i = 0; i < n_top; i++) {
        top_id[i] = i < n ? w->c[i] : UINT32_MAX;
        top_logprob[i] = i < n ? weigh_logprob(l[w->c[i]], lse) : -INFINITY;
    }
}

struct cpu_sample_job {
    struct cpu_dev          *d;
    const struct op_sample  *s; /* one of the two */
    const struct op_logprob *l;
    uint32_t                 n, vocab, stripes;
};

static void sample_piece(void *arg, uint32_t stripe, uint32_t thread)
{
    (void)thread; /* scratch goes by stripe */
    const struct cpu_sample_job *j = arg;
    struct sample_work           w = { .v = j->d->v, .vocab = j->vocab };
    w.block = (uint64_t *)(void *)(j->d->sample + stripe * j->d->sample_bytes);
    w.z = (float *)(w.block + j->vocab / SAMPLE_BLOCK + 1);
    w.e = w.z + j->vocab;
    w.c = (uint32_t *)(void *)(w.e + j->vocab);
    for (uint32_t i = stripe; i < j->n; i += j->stripes) {
        if (j->s && j->s->row[i].n_hist == UINT32_MAX) continue;
        const float *l = (j->s ? j->s->logits : j->l->logits) + (size_t)i * j->vocab;
        bool         nan;
        float        max = w.v->max(l, j->vocab, &nan);
        size_t       top = (size_t)i * OP_SAMPLE_TOP_MAX;
        if (nan || !isfinite(max)) max = NAN;
        if (j->s) {
            const struct op_sample_row *r = &j->s->row[i];
            j->s->id[i] = isnan(max) ? UINT32_MAX : sample_id(&w, l, max, j->s, r);
            raw(&w, l, max, j->s->id[i], r->n_top, &j->s->logprob[i], &j->s->rank[i], j->s->top_id + top,
                j->s->top_logprob + top);
        } else {
            raw(&w, l, max, j->l->id[i], j->l->n_top, &j->l->logprob[i], &j->l->rank[i], j->l->top_id + top,
                j->l->top_logprob + top);
        }
    }
}

static void sample_run(struct cpu_dev *d, struct cpu_sample_job j)
{
    CHECK((uint64_t)j.vocab * SAMPLE_BYTES_PER_ID + (j.vocab / SAMPLE_BLOCK + 1) * sizeof(uint64_t) <= d->sample_bytes);
    if (j.n == 0) return;
    j.d = d;
    j.stripes = j.n < d->n_sample ? j.n : d->n_sample;
    team_run(d->team, j.stripes, (uint64_t)j.n * j.vocab * 4, sample_piece, &j);
}

void cpu_sample(struct device *d, const struct op_sample *o)
{
    sample_run(cpu_of(d), (struct cpu_sample_job){ .s = o, .n = o->n, .vocab = o->vocab });
}

void cpu_logprob(struct device *d, const struct op_logprob *o)
{
    sample_run(cpu_of(d), (struct cpu_sample_job){ .l = o, .n = o->n, .vocab = o->vocab });
}
