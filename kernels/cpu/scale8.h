/* scale8: scales of a byte (base/dtype.h), E8M0 and E4M3, as vectors of floats.   Private to kernels/cpu/, for files
 * built with AVX2 or more. No state. */
#pragma once
#include <immintrin.h>

/* 8 scales; of 0, 2^-127, the bits are those of half the smallest normal number. */
static inline __m256 e8m0_8(const void *p)
{
    __m256i bits = _mm256_slli_epi32(_mm256_cvtepu8_epi32(_mm_loadl_epi64(p)), 23);
    return _mm256_castsi256_ps(_mm256_max_epu32(bits, _mm256_set1_epi32(1 << 22)));
}
/* 8 numbers of E4M3: their bits, of an exponent that is smaller by 120. NaN may be anything. */
static inline __m256 e4m3_8(const void *p)
{
    __m256i c = _mm256_cvtepi8_epi32(_mm_loadl_epi64(p)),
            bits = _mm256_and_si256(_mm256_slli_epi32(c, 20), _mm256_set1_epi32((int)0x87f00000u));
    return _mm256_mul_ps(_mm256_castsi256_ps(bits), _mm256_set1_ps(0x1p120f));
}
#ifdef __AVX512F__
static inline __m512 e4m3_16(const void *p)
{
    __m512i c = _mm512_cvtepi8_epi32(_mm_loadu_si128(p)),
            bits = _mm512_and_si512(_mm512_slli_epi32(c, 20), _mm512_set1_epi32((int)0x87f00000u));
    return _mm512_mul_ps(_mm512_castsi512_ps(bits), _mm512_set1_ps(0x1p120f));
}
static inline __m512 e8m0_16(const void *p)
{
    __m512i bits = _mm512_slli_epi32(_mm512_cvtepu8_epi32(_mm_loadu_si128(p)), 23);
    return _mm512_castsi512_ps(_mm512_max_epu32(bits, _mm512_set1_epi32(1 << 22)));
}
#endif
