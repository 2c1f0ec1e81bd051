/* act8: activations as whole numbers of 8 bits with one scale per row (w8a8, w4a8).   Private to kernels/cpu/, for
 * files built with AVX2. */
#pragma once
#include "kernels/cpu/gemm.h"
#include <immintrin.h>
#include <math.h>
#include <string.h>

/* The scale of a row whose largest size has these bits, and what its numbers are multiplied with; 0: all codes are
 * zero. */
static inline float act8_scale(uint32_t max, float *by_out)
{
    float m;
    memcpy(&m, &max, sizeof m);
    float s = m / 127.0f, r = s != 0 ? 1.0f / s : 0;
    *by_out = 0;
    if (max >= 0x7f800000u) return NAN;
    if (!(r < 3e38f)) return 0;
    *by_out = r;
    return s;
}

/* act8_codes is quant_act, bit for bit: the largest of sizes does not depend on an order. Room in code: k rounded up to
 * 8. */
#if defined(__AVX512F__)
/* Writes x, [k], as codes of 8 bits and returns their scale. */
static inline float act8_codes(const float *x, uint32_t k, int8_t *code)
{
    __m512i top = _mm512_setzero_si512();
    float   by, scale;
    for (uint32_t i = 0; i < k; i += 16) {
        __mmask16 in = (__mmask16)(k - i < 16 ? (1u << (k - i)) - 1 : 0xffff);
        top =
            _mm512_max_epu32(top, _mm512_and_si512(_mm512_maskz_loadu_epi32(in, x + i), _mm512_set1_epi32(0x7fffffff)));
    }
    scale = act8_scale(_mm512_reduce_max_epu32(top), &by);
    if (by == 0) {
        memset(code, 0, k);
        return scale;
    }
    for (uint32_t i = 0; i < k; i += 16) {
        __mmask16 in = (__mmask16)(k - i < 16 ? (1u << (k - i)) - 1 : 0xffff);
        __m512    v = _mm512_mul_ps(_mm512_maskz_loadu_ps(in, x + i), _mm512_set1_ps(by));
        _mm512_mask_cvtepi32_storeu_epi8(code + i, in, _mm512_cvtps_epi32(v));
    }
    return scale;
}
#else
/* The next 8 numbers of n that are left; zeros behind them. */
static inline __m256 act8_eight(const float *x, uint32_t n)
{
    if (n >= 8) return _mm256_loadu_ps(x);
    __m256i place = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_maskload_ps(x, _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), place));
}

/* The same with registers of 8 numbers. */
static inline float act8_codes(const float *x, uint32_t k, int8_t *code)
{
    __m256i  top = _mm256_setzero_si256();
    uint32_t lane[8], max = 0;
    float    by, scale;
    for (uint32_t i = 0; i < k; i += 8)
        top = _mm256_max_epu32(
            top, _mm256_and_si256(_mm256_castps_si256(act8_eight(x + i, k - i)), _mm256_set1_epi32(0x7fffffff)));
    _mm256_storeu_si256((void *)lane, top);
    for (int i = 0; i < 8; i++) max = lane[i] > max ? lane[i] : max;
    scale = act8_scale(max, &by);
    if (by == 0) {
        memset(code, 0, k);
        return scale;
    }
    for (uint32_t i = 0; i < k; i += 8) {
        __m256i v = _mm256_cvtps_epi32(_mm256_mul_ps(act8_eight(x + i, k - i), _mm256_set1_ps(by)));
        __m128i word = _mm_packs_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
        _mm_storel_epi64((void *)(code + i), _mm_packs_epi16(word, word));
    }
    return scale;
}
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
