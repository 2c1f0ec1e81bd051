/* attn bf16: a tile of bf16 keys and values by vdpbf16ps (AVX512-BF16). Queries, scaled, and weights are rounded to bf16; sums are floats.
 * One chain per element, two terms at a time: scores over pairs of dimensions, sums over pairs of keys, from an even position on. Of a
 * pair that a query sees half of, the other half is zeros, whatever lies there.
 * Few queries (decode): keys are turned and values paired in registers, so that KV is read once and nothing is written; many: once for all, in
 * copies. The same products in the same order. */
#include "kernels/cpu/attn.h"
#if defined(__x86_64__)
#include "kernels/cpu/attn_pack.h"
#include "kernels/cpu/attn_soft.h"

#define BF(x) ((__m512bh)(x))
static const _Alignas(64) char nothing[ATTN_DIM_MAX * sizeof(bf16)];

/* Pair of bf16 at p, in all lanes. */
INLINE __m512bh pair_of(const float *p)
{
    int32_t a;
    memcpy(&a, p, sizeof a);
    return BF(_mm512_set1_epi32(a));
}

static bool serves(enum dtype kv, uint32_t dim) { return kv == DT_BF16 && dim % STEP == 0; }

/* ---------------------------------------------------------------- scores */

/* Scores of 16 keys for R queries. */
INLINE void score_turning(float *s, const float *q, const char *const *k, const char *const *next, uint32_t dim, const int R)
{
    __m512 acc[ATTN_ROWS], a[16];
    UNROLL for (int r = 0; r < R; r++) acc[r] = _mm512_setzero_ps();
    for (uint32_t d = 0; d < dim; d += STEP) {
        attn_turn(a, k, next, d * sizeof(bf16));
        UNROLL for (int t = 0; t < 16; t++) UNROLL for (int r = 0; r < R; r++) acc[r] =
            _mm512_dpbf16_ps(acc[r], pair_of(q + (size_t)r * dim + d / 2 + t), BF(a[t]));
    }
    UNROLL for (int r = 0; r < R; r++) _mm512_storeu_ps(s + r * ATTN_TILE, acc[r]);
}

/* out[r, 16 c + lane] (+)= sum over n pairs of x[r, i] * w[c * w_col + i * w_pair + lane] */
struct part {
    float       *out;
    size_t       ldo;
    const float *x, *w;
    size_t       ldx, w_col, w_pair;
    uint32_t     n;
    bool         add;
};
INLINE void mul_tile(const struct part *p, const int R, const int C)
{
    __m512       acc[ATTN_ROWS][4];
    const float *x = p->x, *w = p->w;
    UNROLL for (int r = 0; r < R; r++) UNROLL for (int c = 0; c < C; c++) acc[r][c] =
        p->add ? _mm512_loadu_ps(p->out + (size_t)r * p->ldo + c * 16) : _mm512_setzero_ps();
    for (uint32_t i = 0; i < p->n; i++, x++, w += p->w_pair) {
        __m512 b[4];
        UNROLL for (int c = 0; c < C; c++) b[c] = _mm512_loadu_ps(w + (size_t)c * p->w_col);
        UNROLL for (int r = 0; r < R; r++)
        {
            __m512bh a = pair_of(x + (size_t)r * p->ldx);
            UNROLL for (int c = 0; c < C; c++) acc[r][c] = _mm512_dpbf16_ps(acc[r][c], a, BF(b[c]));
        }
    }
    UNROLL for (int r = 0; r < R; r++) UNROLL for (int c = 0; c < C; c++) _mm512_storeu_ps(p->out + (size_t)r * p->ldo + c * 16, acc[r][c]);
}
INLINE void mul(struct part p, uint32_t cols, const int R)
{
    for (; cols >= 4; cols -= 4, p.out += 64, p.w += 4 * p.w_col) mul_tile(&p, R, 4);
    for (; cols; cols--, p.out += 16, p.w += p.w_col) mul_tile(&p, R, 1);
}

/* ---------------------------------------------------------------- sums over values */

INLINE void sum_part(float *y, size_t ldy, const float *p, const char *const *v, const char *const *next, uint32_t n_pair, size_t at,
                     const int R, const int D)
{
    __m512 acc[ATTN_ROWS][4];
    UNROLL for (int r = 0; r < R; r++) UNROLL for (int c = 0; c < 2 * D; c++) acc[r][c] =
        _mm512_loadu_ps(y + (size_t)r * ldy + (size_t)c * 16);
    for (uint32_t i = 0; i < n_pair; i++) {
        __m512i b[4];
        UNROLL for (int c = 0; c < D; c++)
        {
            _mm_prefetch(next[2 * i] + at + c * 64, _MM_HINT_T1);
            _mm_prefetch(next[2 * i + 1] + at + c * 64, _MM_HINT_T1);
            attn_pair(v[2 * i], v[2 * i + 1], at + (size_t)c * 64, &b[2 * c], &b[2 * c + 1]);
        }
        UNROLL for (int r = 0; r < R; r++)
        {
            __m512bh a = pair_of(p + r * ATTN_TILE + i);
            UNROLL for (int c = 0; c < 2 * D; c++) acc[r][c] = _mm512_dpbf16_ps(acc[r][c], a, BF(b[c]));
        }
    }
    UNROLL for (int r = 0; r < R; r++) UNROLL for (int c = 0; c < 2 * D; c++)
        _mm512_storeu_ps(y + (size_t)r * ldy + (size_t)c * 16, acc[r][c]);
}
/* y += pairs of weights p * values at v, n_pair pairs of keys */
INLINE void sum_pairing(float *y, size_t ldy, const float *p, const char *const *v, const char *const *next, uint32_t n_pair, uint32_t dim,
                        const int R)
{
    uint32_t d = 0;
    for (; d + 2 * STEP <= dim; d += 2 * STEP) sum_part(y + d, ldy, p, v, next, n_pair, d * sizeof(bf16), R, 2);
    if (d < dim) sum_part(y + d, ldy, p, v, next, n_pair, d * sizeof(bf16), R, 1);
}

/* One function per number of queries, so that each has its registers for itself. */
#define ROWS(R)                                                                                                                       \
    static void score_turning_##R(float *s, const float *q, const char *const *k, const char *const *next, uint32_t dim)              \
    {                                                                                                                                 \
        score_turning(s, q, k, next, dim, R);                                                                                         \
    }                                                                                                                                 \
    static void sum_pairing_##R(float *y, size_t ldy, const float *p, const char *const *v, const char *const *next, uint32_t n_pair, \
                                uint32_t dim)                                                                                         \
    {                                                                                                                                 \
        sum_pairing(y, ldy, p, v, next, n_pair, dim, R);                                                                              \
    }                                                                                                                                 \
    static void mul_##R(struct part p, uint32_t cols) { mul(p, cols, R); }
ROWS(1)
ROWS(2)
ROWS(3)
ROWS(4)
ROWS(5)
ROWS(6)
static const struct rows {
    void (*score)(float *s, const float *q, const char *const *k, const char *const *next, uint32_t dim);
    void (*sum)(float *y, size_t ldy, const float *p, const char *const *v, const char *const *next, uint32_t n_pair, uint32_t dim);
    void (*mul)(struct part p, uint32_t cols);
} by_rows[] = { { NULL, NULL, NULL },
                { score_turning_1, sum_pairing_1, mul_1 },
                { score_turning_2, sum_pairing_2, mul_2 },
                { score_turning_3, sum_pairing_3, mul_3 },
                { score_turning_4, sum_pairing_4, mul_4 },
                { score_turning_5, sum_pairing_5, mul_5 },
                { score_turning_6, sum_pairing_6, mul_6 } };

/* ---------------------------------------------------------------- a tile */

static void tile(struct attn_work *w, uint32_t first, uint32_t end)
{
    if (attn_many(w)) attn_pack(w, first, end);
}

/* Keys [from, to) of the tile, which all n see; both even. */
static void sum_shared(struct attn_work *w, uint32_t i, uint32_t n, uint32_t from, uint32_t to)
{
    float *y = w->y + i * w->pad, *p = w->s + i * ATTN_TILE + from / 2;
    if (!attn_many(w)) {
        by_rows[n].sum(y, w->pad, p, w->now->v + from, w->next->v + from, (to - from) / 2, w->dim);
        return;
    }
    by_rows[n].mul((struct part){ y, w->pad, p, w->vt + from / 2 * w->dim, ATTN_TILE, 16, w->dim, (to - from) / 2, true }, w->dim / 16);
}

/* Keys [from, to) of the tile that query i alone sees, the halves of a pair that it does not see left out. */
static void sum_own(struct attn_work *w, uint32_t i, uint32_t from, uint32_t to)
{
    const char *v[ATTN_TILE], *none[ATTN_TILE];
    uint32_t    n = 0;
    for (uint32_t t = from & ~1u; t < to; t += 2, n += 2) {
        v[n] = t < from ? nothing : w->now->v[t];
        v[n + 1] = t + 1 < to ? w->now->v[t + 1] : nothing;
        none[n] = none[n + 1] = nothing;
    }
    if (n) by_rows[1].sum(w->y + i * w->pad, w->pad, w->s + i * ATTN_TILE + from / 2, v, none, n / 2, w->dim);
}

static void block(struct attn_work *w, uint32_t t0, uint32_t i, uint32_t n)
{
    struct attn_window r = attn_window(w, t0, i, n);
    float             *s = w->s + i * ATTN_TILE;
    if (attn_many(w)) {
        by_rows[n].mul((struct part){ s + r.first, ATTN_TILE, w->q + i * w->dim, w->k + r.first * w->dim / 2, w->dim, (size_t)w->dim * 8,
                                      16, w->dim / 2, false },
                       (r.end - r.first + 15) / 16);
    } else {
        for (uint32_t t = r.first; t < r.end; t += 16) by_rows[n].score(s + t, w->q + i * w->dim, w->now->k + t, w->next->k + t, w->dim);
    }
    for (uint32_t q = 0; q < n; q++) attn_soften(w, i + q, s + q * ATTN_TILE, r.lo[q], r.hi[q]);
    r.from += r.from & 1, r.to &= ~1u;
    if (r.from >= r.to) { /* no pair that all see */
        for (uint32_t q = 0; q < n; q++) sum_own(w, i + q, r.lo[q], r.hi[q]);
        return;
    }
    for (uint32_t q = 0; q < n; q++) sum_own(w, i + q, r.lo[q], r.from); /* each one's own before and behind */
    sum_shared(w, i, n, r.from, r.to);
    for (uint32_t q = 0; q < n; q++) sum_own(w, i + q, r.to, r.hi[q]);
}

const struct attn_kind attn_bf16 = { ATTN_ROWS, serves, attn_query, tile, block, attn_finish };
#else
typedef int attn_bf16_is_empty;
#endif
