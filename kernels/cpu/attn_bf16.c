/* attn bf16: a tile of bf16 keys and values by vdpbf16ps (AVX512-BF16). Queries, scaled, and weights are rounded to
 * bf16; sums are floats. Sums over values: one chain per element, over pairs of keys from an even position on; of a
 * pair that a query sees half of, the other half is zeros, whatever lies there. Scores: 16 chains, each over every 16th
 * pair of dimensions, whose sums go up a tree of neighbours: keys can be multiplied as they lie, a register of
 * dimensions at a time, for what turning them costs, a shuffle, is what products wait for. Few queries (decode): keys
 * as they lie and values paired in registers, so that KV is read once and nothing is written; many: keys turned and
 * values paired once for all, in copies. The same products and sums in the same order. */
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

/* Scores of 16 keys as they lie, for R queries: chains are of lanes, whose sums go up the tree four keys by four. */
INLINE void score_lying(float *s, const float *q, const char *const *k, const char *const *next, uint32_t dim,
                        const int R)
{
    __m512 four[4][ATTN_ROWS]; /* [sums of a quarter][key] */
    for (int g = 0; g < 4; g++, k += 4, next += 4) {
        __m512 acc[ATTN_ROWS][4];
        UNROLL for (int r = 0; r < R; r++) UNROLL for (int t = 0; t < 4; t++) acc[r][t] = _mm512_setzero_ps();
        for (uint32_t d = 0; d < dim; d += STEP) {
            __m512 a[4];
            UNROLL for (int t = 0; t < 4; t++)
            {
                _mm_prefetch(next[t] + d * sizeof(bf16), _MM_HINT_T1);
                a[t] = _mm512_loadu_ps((const void *)(k[t] + d * sizeof(bf16)));
            }
            UNROLL for (int r = 0; r < R; r++)
            {
                __m512 x = _mm512_loadu_ps(q + (size_t)r * dim + d / 2);
                UNROLL for (int t = 0; t < 4; t++) acc[r][t] = _mm512_dpbf16_ps(acc[r][t], BF(x), BF(a[t]));
            }
        }
        UNROLL for (int r = 0; r < R; r++)
        {
            __m512 ab = _mm512_add_ps(_mm512_shuffle_ps(acc[r][0], acc[r][1], 0x88),
                                      _mm512_shuffle_ps(acc[r][0], acc[r][1], 0xdd));
            __m512 cd = _mm512_add_ps(_mm512_shuffle_ps(acc[r][2], acc[r][3], 0x88),
                                      _mm512_shuffle_ps(acc[r][2], acc[r][3], 0xdd));
            four[g][r] = _mm512_add_ps(_mm512_shuffle_ps(ab, cd, 0x88), _mm512_shuffle_ps(ab, cd, 0xdd));
        }
    }
    UNROLL for (int r = 0; r < R; r++)
    {
        __m512 a = four[0][r], b = four[1][r], c = four[2][r], d = four[3][r];
        __m512 ab = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
        __m512 cd = _mm512_add_ps(_mm512_shuffle_f32x4(c, d, 0x88), _mm512_shuffle_f32x4(c, d, 0xdd));
        _mm512_storeu_ps(s + r * ATTN_TILE,
                         _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd)));
    }
}

/* The same of C times 16 keys in a copy: chain by chain, and up the tree as its branches are full. */
INLINE void score_tile(float *s, const float *q, const float *k, uint32_t dim, const int R, const int C)
{
    __m512 left[4][3][2]; /* of each height, the sums that wait for those to their right */
    UNROLL for (int t = 0; t < 16; t++)
    {
        __m512 acc[3][2];
        UNROLL for (int r = 0; r < R; r++) UNROLL for (int c = 0; c < C; c++) acc[r][c] = _mm512_setzero_ps();
        _Pragma("GCC unroll 4") for (uint32_t d = 0; d < dim / 2; d += 16)
        {
            __m512 b[2];
            UNROLL for (int c = 0; c < C; c++) b[c] =
                _mm512_loadu_ps(k + (size_t)c * dim * 8 + (size_t)(d + (uint32_t)t) * 16);
            UNROLL for (int r = 0; r < R; r++)
            {
                __m512bh a = pair_of(q + (size_t)r * dim + d + t);
                UNROLL for (int c = 0; c < C; c++) acc[r][c] = _mm512_dpbf16_ps(acc[r][c], a, BF(b[c]));
            }
        }
        int height = 0;
        UNROLL for (int right = t; right & 1; right >>= 1, height++)
        {
            UNROLL for (int r = 0; r < R; r++) UNROLL for (int c = 0; c < C; c++) acc[r][c] =
                _mm512_add_ps(left[height][r][c], acc[r][c]);
        }
        UNROLL for (int r = 0; r < R; r++) UNROLL for (int c = 0; c < C; c++)
        {
            if (height < 4)
                left[height][r][c] = acc[r][c];
            else
                _mm512_storeu_ps(s + r * ATTN_TILE + c * 16, acc[r][c]);
        }
    }
}
INLINE void score_rows(float *s, const float *q, const float *k, uint32_t n_group, uint32_t dim, const int R)
{
    for (; n_group >= 2; n_group -= 2, s += 32, k += dim * 16) score_tile(s, q, k, dim, R, 2);
    if (n_group) score_tile(s, q, k, dim, R, 1);
}
/* n_group times 16 keys for R queries */
INLINE void score_copied(float *s, const float *q, const float *k, uint32_t n_group, uint32_t dim, const int R)
{
    _Static_assert(ATTN_ROWS <= 6, "twice three rows");
    score_rows(s, q, k, n_group, dim, R < 3 ? R : 3);
    if (R > 3) score_rows(s + 3 * ATTN_TILE, q + (size_t)3 * dim, k, n_group, dim, R - 3);
}

/* out[r, 16 c + lane] += sum over n pairs of x[r, i] * w[c * w_col + i * w_pair + lane] */
struct part {
    float       *out;
    size_t       ldo;
    const float *x, *w;
    size_t       ldx, w_col, w_pair;
    uint32_t     n;
};
INLINE void mul_tile(const struct part *p, const int R, const int C)
{
    __m512       acc[ATTN_ROWS][4];
    const float *x = p->x, *w = p->w;
    UNROLL for (int r = 0; r < R; r++) UNROLL for (int c = 0; c < C; c++) acc[r][c] =
        _mm512_loadu_ps(p->out + (size_t)r * p->ldo + c * 16);
    for (uint32_t i = 0; i < p->n; i++, x++, w += p->w_pair) {
        __m512 b[4];
        UNROLL for (int c = 0; c < C; c++) b[c] = _mm512_loadu_ps(w + (size_t)c * p->w_col);
        UNROLL for (int r = 0; r < R; r++)
        {
            __m512bh a = pair_of(x + (size_t)r * p->ldx);
            UNROLL for (int c = 0; c < C; c++) acc[r][c] = _mm512_dpbf16_ps(acc[r][c], a, BF(b[c]));
        }
    }
    UNROLL for (int r = 0; r < R; r++) UNROLL for (int c = 0; c < C; c++)
        _mm512_storeu_ps(p->out + (size_t)r * p->ldo + c * 16, acc[r][c]);
}
INLINE void mul(struct part p, uint32_t cols, const int R)
{
    for (; cols >= 4; cols -= 4, p.out += 64, p.w += 4 * p.w_col) mul_tile(&p, R, 4);
    for (; cols; cols--, p.out += 16, p.w += p.w_col) mul_tile(&p, R, 1);
}

/* ---------------------------------------------------------------- sums over values */

/* more than eight: it is compiled into its caller, which has all of this in registers. */
INLINE void sum_part(float *y, size_t ldy, const float *p, const char *const *v, const char *const *next,
                     uint32_t n_pair, size_t at, const int R, const int D)
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
INLINE void sum_pairing(float *y, size_t ldy, const float *p, const char *const *v, const char *const *next,
                        uint32_t n_pair, uint32_t dim, const int R)
{
    uint32_t d = 0;
    for (; d + 2 * STEP <= dim; d += 2 * STEP) sum_part(y + d, ldy, p, v, next, n_pair, d * sizeof(bf16), R, 2);
    if (d < dim) sum_part(y + d, ldy, p, v, next, n_pair, d * sizeof(bf16), R, 1);
}

/* One function per number of queries, so that each has its registers for itself. */
#define ROWS(R)                                                                                                        \
    static void score_lying_##R(float *s, const float *q, const char *const *k, const char *const *next, uint32_t dim) \
    {                                                                                                                  \
        score_lying(s, q, k, next, dim, R);                                                                            \
    }                                                                                                                  \
    static void sum_pairing_##R(float *y, size_t ldy, const float *p, const char *const *v, const char *const *next,   \
                                uint32_t n_pair, uint32_t dim)                                                         \
    {                                                                                                                  \
        sum_pairing(y, ldy, p, v, next, n_pair, dim, R);                                                               \
    }                                                                                                                  \
    static void score_copied_##R(float *s, const float *q, const float *k, uint32_t n_group, uint32_t dim)             \
    {                                                                                                                  \
        score_copied(s, q, k, n_group, dim, R);                                                                        \
    }                                                                                                                  \
    static void mul_##R(struct part p, uint32_t cols) { mul(p, cols, R); }
ROWS(1)
ROWS(2)
ROWS(3)
ROWS(4)
ROWS(5)
ROWS(6)
static const struct rows {
    void (*score)(float *s, const float *q, const char *const *k, const char *const *next, uint32_t dim);
    void (*sum)(float *y, size_t ldy, const float *p, const char *const *v, const char *const *next, uint32_t n_pair,
                uint32_t dim);
    void (*copied)(float *s, const float *q, const float *k, uint32_t n_group, uint32_t dim);
    void (*mul)(struct part p, uint32_t cols);
} by_rows[] = { { NULL, NULL, NULL, NULL },
                { score_lying_1, sum_pairing_1, score_copied_1, mul_1 },
                { score_lying_2, sum_pairing_2, score_copied_2, mul_2 },
                { score_lying_3, sum_pairing_3, score_copied_3, mul_3 },
                { score_lying_4, sum_pairing_4, score_copied_4, mul_4 },
                { score_lying_5, sum_pairing_5, score_copied_5, mul_5 },
                { score_lying_6, sum_pairing_6, score_copied_6, mul_6 } };

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
    by_rows[n].mul((struct part){ y, w->pad, p, w->vt + from / 2 * w->dim, ATTN_TILE, 16, w->dim, (to - from) / 2 },
                   w->dim / 16);
}

/* Keys [from, to) of the tile that query i alone sees, those of a pair that it does not see left out. */
static void sum_own(struct attn_work *w, uint32_t i, uint32_t from, uint32_t to)
{
    const char *v[ATTN_TILE], *none[ATTN_TILE];
    uint32_t    n = 0;
    for (uint32_t t = from & ~1u; t < to; t += 2, n += 2) {
        v[n] = t < from || (w->hidden >> t & 1) ? nothing : w->now->v[t];
        v[n + 1] = t + 1 < to && !(w->hidden >> (t + 1) & 1) ? w->now->v[t + 1] : nothing;
        none[n] = none[n + 1] = nothing;
    }
    if (n) by_rows[1].sum(w->y + i * w->pad, w->pad, w->s + i * ATTN_TILE + from / 2, v, none, n / 2, w->dim);
}

static void block(struct attn_work *w, uint32_t t0, uint32_t i, uint32_t n)
{
    struct attn_window r = attn_window(w, t0, i, n);
    float             *s = w->s + i * ATTN_TILE;
    if (attn_many(w)) {
        by_rows[n].copied(s + r.first, w->q + i * w->dim, w->k + r.first * w->dim / 2, (r.end - r.first + 15) / 16,
                          w->dim);
    } else {
        for (uint32_t t = r.first; t < r.end; t += 16)
            by_rows[n].score(s + t, w->q + i * w->dim, w->now->k + t, w->next->k + t, w->dim);
    }
    for (uint32_t q = 0; q < n; q++) attn_soften(w, i + q, s + q * ATTN_TILE, r.lo[q], r.hi[q]);
    r.from += r.from & 1;
    r.to &= ~1u;
    if (r.from >= r.to || w->hidden) { /* no pair that all see */
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
