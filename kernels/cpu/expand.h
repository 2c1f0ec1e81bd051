/* expand: codes in GEMM_PAIRS order as bf16 in the same order, exactly and without their scales.   Private to
 * kernels/cpu/. For files that are compiled for AVX-512 (F, BW, VL, DQ, VBMI). n_k: inputs of one panel, a multiple of
 * 32. */
#pragma once
#include "kernels/cpu/gemm.h"
#include <immintrin.h>

/* The upper and lower bytes of the bf16 of each size: int8 as it is, E4M3 (its NaN is 480 here; loading refuses it). */
struct byte_tables {
    __m512i high[2], low[2];
};
static inline struct byte_tables byte_tables(enum dtype t)
{
    struct byte_tables   b;
    _Alignas(64) uint8_t high[128], low[128];
    for (int i = 0; i < 128; i++) {
        float value = i == 127 ? 480.0f : f8e4m3_to_f32((uint8_t)i);
        bf16  v = f32_to_bf16(t == DT_I8 ? (float)i : value);
        high[i] = (uint8_t)(v >> 8);
        low[i] = (uint8_t)v;
    }
    for (int i = 0; i < 2; i++) {
        b.high[i] = _mm512_load_si512(high + 64 * i);
        b.low[i] = _mm512_load_si512(low + 64 * i);
    }
    return b;
}
/* 64 bytes, four inputs -> two vectors of pairs */
static inline __attribute__((always_inline)) void expand_bytes(const char *from, const struct byte_tables *t,
                                                               __m512i *first, __m512i *second)
{
    __m512i a = _mm512_loadu_si512(from);
    __m512i low = _mm512_permutex2var_epi8(t->low[0], a, t->low[1]),
            high = _mm512_permutex2var_epi8(t->high[0], a, t->high[1]);
    high = _mm512_ternarylogic_epi32(high, a, _mm512_set1_epi8((char)0x80), 0xf8); /* a | b & c */
    *first = _mm512_unpacklo_epi8(low, high);
    *second = _mm512_unpackhi_epi8(low, high);
}
static inline void expand_8(char *to, const char *from, uint32_t n_k, const struct byte_tables *t)
{
    for (uint32_t i = 0; i < n_k; i += 4, from += 64, to += 128) {
        __m512i a, b;
        expand_bytes(from, t, &a, &b);
        _mm512_storeu_si512(to, a);
        _mm512_storeu_si512(to + 64, b);
    }
}

/* Half bytes as bf16, by tables that look at 5 bits: code - zero in [-16, 15]. Where zero is 8 everywhere, and of F4E2M1,
 * they look at 4, so nothing is masked. */
static const int16_t i4_minus_8[32] = { (short)0xc100, (short)0xc0e0, (short)0xc0c0, (short)0xc0a0, (short)0xc080,
                                        (short)0xc040, (short)0xc000, (short)0xbf80, 0x0000,        0x3f80,
                                        0x4000,        0x4040,        0x4080,        0x40a0,        0x40c0,
                                        0x40e0,        (short)0xc100, (short)0xc0e0, (short)0xc0c0, (short)0xc0a0,
                                        (short)0xc080, (short)0xc040, (short)0xc000, (short)0xbf80, 0x0000,
                                        0x3f80,        0x4000,        0x4040,        0x4080,        0x40a0,
                                        0x40c0,        0x40e0 };
static const int16_t f4_numbers[32] = { 0x0000,        0x3f00,        0x3f80,        0x3fc0,        0x4000,
                                        0x4040,        0x4080,        0x40c0,        (short)0x8000, (short)0xbf00,
                                        (short)0xbf80, (short)0xbfc0, (short)0xc000, (short)0xc040, (short)0xc080,
                                        (short)0xc0c0, 0x0000,        0x3f00,        0x3f80,        0x3fc0,
                                        0x4000,        0x4040,        0x4080,        0x40c0,        (short)0x8000,
                                        (short)0xbf00, (short)0xbf80, (short)0xbfc0, (short)0xc000, (short)0xc040,
                                        (short)0xc080, (short)0xc0c0 };
static const int16_t i5_signed[32] = { 0x0000,        0x3f80,        0x4000,        0x4040,        0x4080,
                                       0x40a0,        0x40c0,        0x40e0,        0x4100,        0x4110,
                                       0x4120,        0x4130,        0x4140,        0x4150,        0x4160,
                                       0x4170,        (short)0xc180, (short)0xc170, (short)0xc160, (short)0xc150,
                                       (short)0xc140, (short)0xc130, (short)0xc120, (short)0xc110, (short)0xc100,
                                       (short)0xc0e0, (short)0xc0c0, (short)0xc0a0, (short)0xc080, (short)0xc040,
                                       (short)0xc000, (short)0xbf80 };

/* n_k inputs of a panel of half bytes -> bf16, by one of these tables. expand_i4_zero first subtracts zero, [GEMM_PANEL], from the codes. */
static inline void expand_4(char *to, const char *from, uint32_t n_k, const int16_t numbers[32])
{
    const __m512i table = _mm512_loadu_si512(numbers);
    for (uint32_t i = 0; i < n_k; i += 8, from += 64, to += 256) {
        __m512i a = _mm512_loadu_si512(from);
        _mm512_storeu_si512(to, _mm512_permutexvar_epi16(a, table));
        _mm512_storeu_si512(to + 64, _mm512_permutexvar_epi16(_mm512_srli_epi16(a, 4), table));
        _mm512_storeu_si512(to + 128, _mm512_permutexvar_epi16(_mm512_srli_epi16(a, 8), table));
        _mm512_storeu_si512(to + 192, _mm512_permutexvar_epi16(_mm512_srli_epi16(a, 12), table));
    }
}

/* 16 zeros -> in both words of their lane */
static inline __m512i zero_words(const void *zero)
{
    __m512i z = _mm512_cvtps_epi32(_mm512_cvtph_ps(_mm256_loadu_si256(zero)));
    return _mm512_or_si512(z, _mm512_slli_epi32(z, 16));
}

/* See expand_4. */
static inline void expand_i4_zero(char *to, const char *from, uint32_t n_k, const f16 *zero)
{
    const __m512i table = _mm512_loadu_si512(i5_signed), low = _mm512_set1_epi16(15);
    const __m512i z = zero_words(zero);
    for (uint32_t i = 0; i < n_k; i += 8, from += 64, to += 256) {
        __m512i a = _mm512_loadu_si512(from);
        for (int j = 0; j < 4; j++, a = _mm512_srli_epi16(a, 4))
            _mm512_storeu_si512(to + j * 64,
                                _mm512_permutexvar_epi16(_mm512_sub_epi16(_mm512_and_si512(a, low), z), table));
    }
}

/* The numbers (k, k + 1 .. of panel `panel`, all of one group) of any type of code. t: of its bytes, where it is
 * bytes */
static inline void expand_codes(char *to, const struct dev_weight *w, uint32_t panel, uint32_t k, uint32_t n_k,
                                const struct byte_tables *t)
{
    const char *from = gemm_panel(w, panel) + (size_t)k * GEMM_PANEL / (dtype_is_half_byte(w->dtype) ? 2 : 1);
    if (w->zero)
        expand_i4_zero(to, from, n_k, (const f16 *)w->zero + gemm_scale_at(w, panel, k));
    else if (w->dtype == DT_F4E2M1)
        expand_4(to, from, n_k, f4_numbers);
    else if (w->dtype == DT_I4)
        expand_4(to, from, n_k, i4_minus_8);
    else
        expand_8(to, from, n_k, t);
}
