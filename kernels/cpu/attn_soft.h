/* attn soft: the running softmax over a tile's scores, weights in bf16, for the kinds that multiply in bf16.   Private
 * to kernels/cpu/, for files built with AVX512-BF16. One query at a time, all 64 scores in registers; what it does
 * depends on that query alone. */
#pragma once
#include "kernels/cpu/attn.h"
#include <immintrin.h>
#include <math.h>

/* 2^t for t <= 0, 3e-6: whole and rest by truncation, the rest's power by a polynomial that is 1 at 0; NaN stays, -inf
 * gives 0. */
static inline __attribute__((always_inline)) __m512 attn_exp2(__m512 t)
{
    __m512 r = _mm512_reduce_ps(t, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    __m512 p = _mm512_fmadd_ps(_mm512_set1_ps(0x1.b7f738p-7f), r, _mm512_set1_ps(0x1.abf866p-5f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.ee2452p-3f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.62d6c6p-1f));
    return _mm512_scalef_ps(_mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f)), t);
}

/* Largest of the lanes, in all of them; b where either is NaN, as maxps has it. */
static inline __attribute__((always_inline)) __m512 attn_top(__m512 a)
{
    a = _mm512_max_ps(a, _mm512_shuffle_f32x4(a, a, 0x4e));
    a = _mm512_max_ps(a, _mm512_shuffle_f32x4(a, a, 0xb1));
    a = _mm512_max_ps(a, _mm512_permute_ps(a, 0x4e));
    return _mm512_max_ps(a, _mm512_permute_ps(a, 0xb1));
}

/* Scores s [64] of query i, of which it sees [lo, hi), become weights in bf16 [64] in their place, zero for what it
 * does not see; its maximum, its sums of weights (by lane) and of values take them up. */
static inline __attribute__((always_inline)) void attn_soften(struct attn_work *w, uint32_t i, float *s, uint32_t lo,
                                                              uint32_t hi)
{
    const __m512 none = _mm512_set1_ps(-INFINITY), log2e = _mm512_set1_ps(1.44269504088896341f);
    uint64_t     seen = ~UINT64_C(0) >> (ATTN_TILE - hi) & ~UINT64_C(0) << lo & ~w->hidden;
    float       *l = w->l + i * SIMD_LANES, *y = w->y + i * w->pad;
    __m512       a[4];
    for (int j = 0; j < 4; j++) a[j] = _mm512_mask_loadu_ps(none, (__mmask16)(seen >> 16 * j), s + 16 * j);
    __m512 was = _mm512_set1_ps(w->m[i]),
           top = attn_top(_mm512_max_ps(_mm512_max_ps(a[0], a[1]), _mm512_max_ps(a[2], a[3])));
    __m512 max = _mm512_max_ps(top, was), sum = _mm512_loadu_ps(l);
    for (int j = 0; j < 4; j++) a[j] = attn_exp2(_mm512_mul_ps(_mm512_sub_ps(a[j], max), log2e));
    if (_mm512_cmp_ps_mask(max, was, _CMP_NEQ_UQ)) {
        __m512 less = attn_exp2(_mm512_mul_ps(_mm512_sub_ps(was, max), log2e));
        sum = _mm512_mul_ps(sum, less);
        for (uint32_t d = 0; d < w->pad; d += 16) _mm512_storeu_ps(y + d, _mm512_mul_ps(_mm512_loadu_ps(y + d), less));
        w->m[i] = _mm512_cvtss_f32(max);
    }
    _mm512_storeu_ps(l, _mm512_add_ps(sum, _mm512_add_ps(_mm512_add_ps(a[0], a[1]), _mm512_add_ps(a[2], a[3]))));
    _mm512_storeu_si512(s, (__m512i)_mm512_cvtne2ps_pbh(a[1], a[0]));
    _mm512_storeu_si512(s + 16, (__m512i)_mm512_cvtne2ps_pbh(a[3], a[2]));
}
