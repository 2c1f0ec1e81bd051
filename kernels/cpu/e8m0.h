/* e8m0: scales of a byte (base/dtype.h) as vectors of floats.   Private to kernels/cpu/, for files built with AVX2 or
 * more. No state. */
#pragma once
#include <immintrin.h>

/* 8 scales; of 0, 2^-127, the bits are those of half the smallest normal number. */
static inline __m256 e8m0_8(const void *p)
{
    __m256i bits = _mm256_slli_epi32(_mm256_cvtepu8_epi32(_mm_loadl_epi64(p)), 23);
    return _mm256_castsi256_ps(_mm256_max_epu32(bits, _mm256_set1_epi32(1 << 22)));
}
#ifdef __AVX512F__
static inline __m512 e8m0_16(const void *p)
{
    __m512i bits = _mm512_slli_epi32(_mm512_cvtepu8_epi32(_mm_loadu_si128(p)), 23);
    return _mm512_castsi512_ps(_mm512_max_epu32(bits, _mm512_set1_epi32(1 << 22)));
}
#endif
