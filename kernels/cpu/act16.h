/* act16: activations as whole numbers of 16 bits, for products with int8 and int4 weights in integers.   Private to
 * kernels/cpu/, for files built with AVX2. A row is cut where its products are scaled (gemm_chunk: 16 to 128 inputs),
 * and each part has a power of two of its own: x = code * 2^e, ACT16_MAX / 2 <= the largest |code| <= ACT16_MAX: off by
 * 2^-15 of the part's largest number at most. A power of two times few bits is exact. Sums over a part fit in 32 bits
 * whatever the codes are, so no order of them changes a bit, on any instruction set.
 *
 * A prepared row: k codes, padded with zeros to K, a multiple of 64; then for each part its sum, an int32, and its
 * scale, a float (NaN if a number of it is not finite: so are the row's products). Codes lie as
 *   pieces   high bytes [K], then low bytes [K], all signed: code = 256 high + low             for vpdpbusd
 *   words    [K], inputs 0 2 1 3 of every four: as the 16-bit halves of a lane of GEMM_QUADS   for vpmaddwd */
#pragma once
#include "kernels/cpu/gemm.h"
#include <immintrin.h>
#include <string.h>

enum act16 { ACT16_PIECES, ACT16_WORDS };
enum { ACT16_MAX = 32512, ACT16_PART = 8 /* bytes: sum and scale */ };

/* Bytes of the codes of one row, rounded up to whole steps of 64 inputs. */
static inline size_t act16_tail(const struct dev_weight *w) { return 2 * (size_t)gemm_round(w->k, 64); }
/* A line more than needed: rows a power of two apart would fall into the same few lines of the first cache. */
static inline size_t act16_row_bytes(const struct dev_weight *w)
{
    uint32_t n_part = (w->k + gemm_chunk(w) - 1) / gemm_chunk(w);
    return act16_tail(w) + gemm_round(n_part * ACT16_PART, 64) + 64;
}

/* x [n], n a multiple of 16 -> code [n], in order */
static inline void act16_codes(const float *x, uint32_t n, int16_t *code, int32_t *sum_out, float *scale_out)
{
    const __m256i size = _mm256_set1_epi32(0x7fffffff);
    __m256i       top = _mm256_setzero_si256(), sum = top;
    uint32_t      max, lane[8];
    for (uint32_t i = 0; i < n; i += 8) /* sizes of floats are in the order of their bits */
        top = _mm256_max_epu32(top, _mm256_and_si256(_mm256_loadu_si256((const void *)(x + i)), size));
    _mm256_storeu_si256((void *)lane, top);
    max = lane[0];
    for (int i = 1; i < 8; i++) max = lane[i] > max ? lane[i] : max;
    *sum_out = 0;
    *scale_out = __builtin_nanf("");
    if (max >= 0x7f800000u) {
        memset(code, 0, n * sizeof *code);
        return;
    }
    uint32_t e = (max + 0x20000) >> 23; /* what would round to more than ACT16_MAX has the exponent above */
    if (e < 15) e = 15;                 /* below 2^-112: the scale stays a normal number */
    uint32_t up = (268 - e) << 23, down = (e - 14) << 23;
    __m256   by = _mm256_castsi256_ps(_mm256_set1_epi32((int)up));
    for (uint32_t i = 0; i < n; i += 16) {
        __m256i a = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + i), by));
        __m256i b = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + i + 8), by));
        sum = _mm256_add_epi32(sum, _mm256_add_epi32(a, b));
        _mm256_storeu_si256((void *)(code + i), _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xd8));
    }
    _mm256_storeu_si256((void *)lane, sum);
    for (int i = 1; i < 8; i++) lane[0] += lane[i];
    memcpy(sum_out, lane, sizeof *sum_out);
    memcpy(scale_out, &down, sizeof down);
}

/* code [n], n a multiple of 16 -> pieces or words */
static inline void act16_pieces(const int16_t *code, uint32_t n, int8_t *high, int8_t *low)
{
    for (uint32_t i = 0; i < n; i += 16) {
        __m256i a = _mm256_loadu_si256((const void *)(code + i));
        __m256i h = _mm256_srai_epi16(_mm256_add_epi16(a, _mm256_set1_epi16(128)), 8);
        __m256i l = _mm256_srai_epi16(_mm256_slli_epi16(a, 8), 8);
        _mm_storeu_si128((void *)(high + i),
                         _mm_packs_epi16(_mm256_castsi256_si128(h), _mm256_extracti128_si256(h, 1)));
        _mm_storeu_si128((void *)(low + i), _mm_packs_epi16(_mm256_castsi256_si128(l), _mm256_extracti128_si256(l, 1)));
    }
}
static inline void act16_words(const int16_t *code, uint32_t n, int16_t *word)
{
    for (uint32_t i = 0; i < n; i += 16) {
        __m256i a = _mm256_loadu_si256((const void *)(code + i));
        _mm256_storeu_si256((void *)(word + i), _mm256_shufflehi_epi16(_mm256_shufflelo_epi16(a, 0xd8), 0xd8));
    }
}

/* Writes x, [w->k], as codes of 16 bits with the sums and scales of its parts, in the order that `form` says. */
static inline __attribute__((always_inline)) void act16_prepare(void *row, const float *x, const struct dev_weight *w,
                                                                const enum act16 form)
{
    float    padded[QUANT_CHUNK];
    int16_t  code[QUANT_CHUNK];
    uint32_t k_all = gemm_round(w->k, 64), chunk = gemm_chunk(w), n;
    int8_t  *to = row;
    char    *tail = (char *)row + act16_tail(w);
    for (uint32_t k = 0; k < w->k; k += chunk, tail += ACT16_PART) {
        int32_t      sum;
        float        scale;
        const float *from = x + k;
        n = w->k - k < chunk ? w->k - k : chunk;
        if (n % 16) {
            memset(padded, 0, sizeof padded);
            from = memcpy(padded, from, n * sizeof *from);
            n = gemm_round(n, 16);
        }
        act16_codes(from, n, code, &sum, &scale);
        if (form == ACT16_WORDS)
            act16_words(code, n, (int16_t *)row + k);
        else
            act16_pieces(code, n, to + k, to + k_all + k);
        memcpy(tail, &sum, 4);
        memcpy(tail + 4, &scale, 4);
    }
    n = gemm_round(w->k, 16);
    if (form == ACT16_WORDS)
        memset((int16_t *)row + n, 0, (k_all - n) * sizeof(int16_t));
    else {
        memset(to + n, 0, k_all - n);
        memset(to + k_all + n, 0, k_all - n);
    }
}
