/* attn pack: queries, keys and values in the order in which bf16 is multiplied, by vdpbf16ps and by tiles alike.
 * Private to kernels/cpu/, for files built with AVX512-BF16. Queries are scaled and rounded to bf16. Keys: of 16, a
 * pair of dimensions of each, pair by pair. Values: of two keys, dimension by dimension, in the order that a register's
 * halves give; attn_finish puts that right. */
#pragma once
#include "kernels/cpu/attn.h"
#include "kernels/cpu/transpose.h"

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")
enum { STEP = 32 }; /* dimensions in a register */

/* Query i of the tile, q [w->dim], times the scale, as bf16 in w->q. */
static void attn_query(struct attn_work *w, uint32_t i, const float *q)
{
    char  *to = (char *)(w->q + i * w->dim);
    __m512 s = _mm512_set1_ps(w->o->scale);
    for (uint32_t d = 0; d < w->dim; d += 16, to += 32)
        _mm256_storeu_si256((void *)to, (__m256i)_mm512_cvtneps_pbh(_mm512_mul_ps(_mm512_loadu_ps(q + d), s)));
}

/* dims [d, d + 32) of 16 keys -> a: 16 pairs of dims, a key per lane; asks for the same of the next tile */
INLINE void attn_turn(__m512 *a, const char *const *k, const char *const *next, size_t at)
{
    UNROLL for (int t = 0; t < 16; t++)
    {
        _mm_prefetch(next[t] + at, _MM_HINT_T1);
        a[t] = _mm512_loadu_ps((const void *)(k[t] + at));
    }
    transpose16(a);
}

/* Dims [d, d + 32) of a pair of values, key by key in each lane's halves: lo has dims 0-3, 8-11, 16-19, 24-27, hi the
 * others. */
INLINE void attn_pair(const char *v0, const char *v1, size_t at, __m512i *lo, __m512i *hi)
{
    __m512i a = _mm512_loadu_si512(v0 + at), b = _mm512_loadu_si512(v1 + at);
    *lo = _mm512_unpacklo_epi16(a, b);
    *hi = _mm512_unpackhi_epi16(a, b);
}

/* Keys and values of the tile -> w->k [4][dim / 2][16] pairs, w->vt [32][dim] pairs: of blocks with keys [first,
 * end) */
static void attn_pack(struct attn_work *w, uint32_t first, uint32_t end)
{
    for (uint32_t i = first / SIMD_LANES * SIMD_LANES; i < end; i += SIMD_LANES)
        for (uint32_t d = 0; d < w->dim; d += STEP) {
            __m512 a[16];
            attn_turn(a, w->now->k + i, w->next->k + i, d * sizeof(bf16));
            UNROLL for (int t = 0; t < 16; t++) _mm512_storeu_ps(w->k + (i * w->dim + d * 16) / 2 + t * 16, a[t]);
        }
    for (uint32_t i = first & ~1u; i < end; i += 2)
        for (uint32_t d = 0; d < w->dim; d += STEP) {
            __m512i lo, hi;
            _mm_prefetch(w->next->v[i] + d * sizeof(bf16), _MM_HINT_T1);
            _mm_prefetch(w->next->v[i + 1] + d * sizeof(bf16), _MM_HINT_T1);
            attn_pair(w->now->v[i], w->now->v[i + 1], d * sizeof(bf16), &lo, &hi);
            _mm512_storeu_si512(w->vt + i / 2 * w->dim + d, lo);
            _mm512_storeu_si512(w->vt + i / 2 * w->dim + d + 16, hi);
        }
}

/* Back from the order of attn_pair. */
static void attn_finish(float *y, uint32_t dim)
{
    const __m512i low = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23),
                  high = _mm512_setr_epi32(8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
    for (uint32_t d = 0; d < dim; d += STEP) {
        __m512 a = _mm512_loadu_ps(y + d), b = _mm512_loadu_ps(y + d + 16);
        _mm512_storeu_ps(y + d, _mm512_permutex2var_ps(a, low, b));
        _mm512_storeu_ps(y + d + 16, _mm512_permutex2var_ps(a, high, b));
    }
}
