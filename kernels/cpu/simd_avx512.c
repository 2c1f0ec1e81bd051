/* simd avx512: one register is the 16 lanes. F, BW, VL, DQ. */
#include "kernels/cpu/simd.h"
#if defined(__x86_64__)
#include "kernels/cpu/transpose.h"

typedef __m512 v16;
#define V_INLINE static inline __attribute__((always_inline))
#define V_MASKED

V_INLINE __mmask16 v_first(uint32_t n) { return (__mmask16)((1u << n) - 1); }
V_INLINE v16       v_zero(void) { return _mm512_setzero_ps(); }
V_INLINE v16       v_set1(float a) { return _mm512_set1_ps(a); }
V_INLINE v16       v_load(const void *p) { return _mm512_loadu_ps(p); }
V_INLINE v16       v_load_n(const float *p, uint32_t n) { return _mm512_maskz_loadu_ps(v_first(n), p); }
V_INLINE void      v_store(float *p, v16 a) { _mm512_storeu_ps(p, a); }
V_INLINE void      v_store_n(float *p, v16 a, uint32_t n) { _mm512_mask_storeu_ps(p, v_first(n), a); }
V_INLINE v16       v_add(v16 a, v16 b) { return _mm512_add_ps(a, b); }
V_INLINE v16       v_sub(v16 a, v16 b) { return _mm512_sub_ps(a, b); }
V_INLINE v16       v_mul(v16 a, v16 b) { return _mm512_mul_ps(a, b); }
V_INLINE v16       v_div(v16 a, v16 b) { return _mm512_div_ps(a, b); }
V_INLINE v16       v_fma(v16 a, v16 b, v16 c) { return _mm512_fmadd_ps(a, b, c); }
V_INLINE v16       v_max(v16 a, v16 b) { return _mm512_max_ps(a, b); }
V_INLINE uint32_t  v_above(v16 a, v16 b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
V_INLINE uint32_t  v_equal(v16 a, v16 b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
V_INLINE uint32_t  v_nan(v16 a) { return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q); }
V_INLINE v16       v_pick(uint32_t mask, v16 a, v16 b) { return _mm512_mask_blend_ps((__mmask16)mask, b, a); }

V_INLINE v16 v_shift16(__m512i a) { return _mm512_castsi512_ps(_mm512_slli_epi32(a, 16)); }
V_INLINE v16 v_load_bf16(const bf16 *p)
{
    return v_shift16(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)p)));
}
V_INLINE v16 v_load_bf16_n(const bf16 *p, uint32_t n)
{
    return v_shift16(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(v_first(n), p)));
}
V_INLINE v16 v_load_f16(const f16 *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)p)); }
V_INLINE v16 v_load_f16_n(const f16 *p, uint32_t n) { return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(v_first(n), p)); }
V_INLINE v16 v_load_i8(const uint8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)p)));
}
V_INLINE v16 v_load_f8(const uint8_t *p) /* the bits of an f16 that is 2^8 times smaller, subnormals too */
{
    __m256i h = _mm256_slli_epi16(_mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)p)), 7);
    return _mm512_mul_ps(_mm512_cvtph_ps(_mm256_and_si256(h, _mm256_set1_epi16((short)0xbf80))),
                         _mm512_set1_ps(256.0f));
}
V_INLINE void v_widen_f8(bf16 *to, const uint8_t *p, v16 by)
{
    __m256i h = _mm256_slli_epi16(_mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)p)), 7);
    v16     a = _mm512_mul_ps(_mm512_cvtph_ps(_mm256_and_si256(h, _mm256_set1_epi16((short)0xbf80))), by);
    _mm256_storeu_si256((void *)to, _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(a), 16)));
}
V_INLINE v16 v_load_i4(const uint8_t *p, v16 *high)
{
    __m512i b = _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)p));
    *high = _mm512_cvtepi32_ps(_mm512_srli_epi32(b, 4));
    return _mm512_cvtepi32_ps(_mm512_and_si512(b, _mm512_set1_epi32(15)));
}
V_INLINE v16 v_load_f4(const uint8_t *p, v16 *high)
{
    const __m128i twice = _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12);
    __m128i       a = _mm_loadu_si128((const void *)p), low = _mm_set1_epi8(15);
    __m128i       b = _mm_shuffle_epi8(twice, _mm_and_si128(_mm_srli_epi16(a, 4), low));
    *high = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(b));
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_shuffle_epi8(twice, _mm_and_si128(a, low))));
}
V_INLINE v16 v_low16(v16 a) { return v_shift16(_mm512_castps_si512(a)); }
V_INLINE v16 v_high16(v16 a)
{
    return _mm512_castsi512_ps(_mm512_and_epi32(_mm512_castps_si512(a), _mm512_set1_epi32((int)0xffff0000u)));
}

V_INLINE void v_store_bf16_n(bf16 *p, v16 a, uint32_t n)
{
    __m512i u = _mm512_castps_si512(a), odd = _mm512_and_epi32(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    __m512i even = _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd);
    __m512i quiet = _mm512_or_epi32(u, _mm512_set1_epi32(0x400000));
    __m512i r = _mm512_srli_epi32(_mm512_mask_blend_epi32((__mmask16)v_nan(a), even, quiet), 16);
    _mm256_mask_storeu_epi16(p, v_first(n), _mm512_cvtepi32_epi16(r));
}
V_INLINE void v_store_f16_n(f16 *p, v16 a, uint32_t n)
{
    _mm256_mask_storeu_epi16(p, v_first(n), _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

V_INLINE v16 v_pow2(v16 t) /* 2^n where the low bits of t hold n */
{
    return _mm512_castsi512_ps(
        _mm512_add_epi32(_mm512_slli_epi32(_mm512_castps_si512(t), 23), _mm512_set1_epi32(127 << 23)));
}

V_INLINE v16 v_add_bits(v16 a, v16 b)
{
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(a), _mm512_castps_si512(b)));
}

/* modulo 2^32, which the intrinsic of that name, being signed, does not promise */
V_INLINE uint32_t v_sum_bits(v16 a)
{
    __m512i x = _mm512_castps_si512(a);
    __m256i y = _mm256_add_epi32(_mm512_castsi512_si256(x), _mm512_extracti64x4_epi64(x, 1));
    __m128i z = _mm_add_epi32(_mm256_castsi256_si128(y), _mm256_extracti128_si256(y, 1));
    z = _mm_add_epi32(z, _mm_shuffle_epi32(z, 0x4e));
    z = _mm_add_epi32(z, _mm_shuffle_epi32(z, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(z);
}

V_INLINE float v_sum(v16 a)
{
    __m256 b = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    c = _mm_add_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}
V_INLINE float v_hmax(v16 a)
{
    __m256 b = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 c = _mm_max_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    c = _mm_max_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
}

V_INLINE void v_transpose(v16 *a) { transpose16(a); }

#define MUL_ROWS       6
#define MUL_COLS(rows) 4
#define SIMD_TABLE     simd_avx512
#define SIMD_NAME      "avx512"
#include "kernels/cpu/simd_body.h"
#else
typedef int simd_avx512_is_empty;
#endif
