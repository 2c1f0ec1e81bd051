/* act8: activations as whole numbers of 8 bits with one scale per row (w8a8, w4a8).   Private to kernels/cpu/. */
#pragma once
#include "kernels/cpu/gemm.h"
#include <string.h>
#if defined(__AVX512F__)
#include <immintrin.h>
#include <math.h>

/* quant_act, bit for bit: the largest of sizes does not depend on an order. */
static inline float act8_codes(const float *x, uint32_t k, int8_t *code)
{
    __m512i  top = _mm512_setzero_si512();
    uint32_t max;
    for (uint32_t i = 0; i < k; i += 16) {
        __mmask16 in = (__mmask16)(k - i < 16 ? (1u << (k - i)) - 1 : 0xffff);
        top = _mm512_max_epu32(top, _mm512_and_si512(_mm512_maskz_loadu_epi32(in, x + i), _mm512_set1_epi32(0x7fffffff)));
    }
    max = _mm512_reduce_max_epu32(top);
    float m;
    memcpy(&m, &max, sizeof m);
    float s = m / 127.0f, r = s != 0 ? 1.0f / s : 0;
    if (max >= 0x7f800000u || !(r < 3e38f)) {
        memset(code, 0, k);
        return max >= 0x7f800000u ? NAN : 0;
    }
    for (uint32_t i = 0; i < k; i += 16) {
        __mmask16 in = (__mmask16)(k - i < 16 ? (1u << (k - i)) - 1 : 0xffff);
        __m512    v = _mm512_mul_ps(_mm512_maskz_loadu_ps(in, x + i), _mm512_set1_ps(r));
        _mm512_mask_cvtepi32_storeu_epi8(code + i, in, _mm512_cvtps_epi32(v));
    }
    return s;
}
#else
#define act8_codes quant_act
#endif

/* Rows for products of int8 or int4: codes, padded with zeros; their sum over each group; their scale. */
static inline size_t int8_row_bytes(const struct dev_weight *w)
{
    return (size_t)gemm_round(w->k, 64) + gemm_round((quant_n_group(&w->q, w->k) + 1) * 4, 64);
}
static inline void int8_row_prepare(void *row, const float *x, const struct dev_weight *w)
{
    int8_t  *code = row;
    char    *sums = (char *)row + gemm_round(w->k, 64);
    uint32_t group = w->q.group ? w->q.group : w->k;
    float    scale = act8_codes(x, w->k, code);
    memset(code + w->k, 0, gemm_round(w->k, 64) - w->k);
    for (uint32_t k = 0; k < w->k; k += group, sums += 4) {
        int32_t  sum = 0;
        uint32_t n = w->k - k < group ? w->k - k : group;
        for (uint32_t i = 0; i < n; i++) sum += code[k + i];
        memcpy(sums, &sum, 4);
    }
    memcpy(sums, &scale, 4);
}
