/* simd avx2: two registers are the 16 lanes. AVX2, FMA, F16C. */
#include "kernels/cpu/simd.h"
#if defined(__x86_64__)
#include <immintrin.h>
#include <string.h>

typedef struct {
    __m256 a, b;
} v16;
#define V_INLINE         static inline __attribute__((always_inline))
#define V_BOTH(fn, x, y) ((v16){ fn((x).a, (y).a), fn((x).b, (y).b) })

V_INLINE v16  v_zero(void) { return (v16){ _mm256_setzero_ps(), _mm256_setzero_ps() }; }
V_INLINE v16  v_set1(float x) { return (v16){ _mm256_set1_ps(x), _mm256_set1_ps(x) }; }
V_INLINE v16  v_load(const void *p) { return (v16){ _mm256_loadu_ps(p), _mm256_loadu_ps((const float *)p + 8) }; }
V_INLINE void v_store(float *p, v16 x)
{
    _mm256_storeu_ps(p, x.a);
    _mm256_storeu_ps(p + 8, x.b);
}
V_INLINE v16 v_add(v16 x, v16 y) { return V_BOTH(_mm256_add_ps, x, y); }
V_INLINE v16 v_sub(v16 x, v16 y) { return V_BOTH(_mm256_sub_ps, x, y); }
V_INLINE v16 v_mul(v16 x, v16 y) { return V_BOTH(_mm256_mul_ps, x, y); }
V_INLINE v16 v_div(v16 x, v16 y) { return V_BOTH(_mm256_div_ps, x, y); }
V_INLINE v16 v_max(v16 x, v16 y) { return V_BOTH(_mm256_max_ps, x, y); }
V_INLINE v16 v_fma(v16 x, v16 y, v16 z)
{
    return (v16){ _mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b) };
}
V_INLINE uint32_t v_bits(__m256 a, __m256 b)
{
    return (uint32_t)_mm256_movemask_ps(a) | (uint32_t)_mm256_movemask_ps(b) << 8;
}
V_INLINE uint32_t v_above(v16 x, v16 y)
{
    return v_bits(_mm256_cmp_ps(x.a, y.a, _CMP_GT_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_GT_OQ));
}
V_INLINE uint32_t v_equal(v16 x, v16 y)
{
    return v_bits(_mm256_cmp_ps(x.a, y.a, _CMP_EQ_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_EQ_OQ));
}
V_INLINE uint32_t v_nan(v16 x)
{
    return v_bits(_mm256_cmp_ps(x.a, x.a, _CMP_UNORD_Q), _mm256_cmp_ps(x.b, x.b, _CMP_UNORD_Q));
}
V_INLINE __m256 v_mask8(uint32_t mask)
{
    __m256i bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    return _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32((int)mask), bit), bit));
}
V_INLINE v16 v_pick(uint32_t mask, v16 x, v16 y)
{
    return (v16){ _mm256_blendv_ps(y.a, x.a, v_mask8(mask)), _mm256_blendv_ps(y.b, x.b, v_mask8(mask >> 8)) };
}

V_INLINE __m256  v_shift16(__m256i a) { return _mm256_castsi256_ps(_mm256_slli_epi32(a, 16)); }
V_INLINE __m128i v_load8(const uint16_t *p) { return _mm_loadu_si128((const void *)p); }
V_INLINE v16     v_load_bf16(const bf16 *p)
{
    return (v16){ v_shift16(_mm256_cvtepu16_epi32(v_load8(p))), v_shift16(_mm256_cvtepu16_epi32(v_load8(p + 8))) };
}
V_INLINE __m128i v_load_8bytes(const uint8_t *p) { return _mm_loadl_epi64((const void *)p); }
V_INLINE v16     v_load_i8(const uint8_t *p)
{
    return (v16){ _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(v_load_8bytes(p))),
                  _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(v_load_8bytes(p + 8))) };
}
V_INLINE __m256 v_f8(__m128i b) /* the bits of an f16 that is 2^8 times smaller, subnormals too */
{
    __m128i h = _mm_and_si128(_mm_slli_epi16(_mm_cvtepi8_epi16(b), 7), _mm_set1_epi16((short)0xbf80));
    return _mm256_mul_ps(_mm256_cvtph_ps(h), _mm256_set1_ps(256.0f));
}
V_INLINE v16 v_load_f8(const uint8_t *p) { return (v16){ v_f8(v_load_8bytes(p)), v_f8(v_load_8bytes(p + 8)) }; }
V_INLINE v16 v_load_i4(const uint8_t *p, v16 *high)
{
    __m256i a = _mm256_cvtepu8_epi32(v_load_8bytes(p)), b = _mm256_cvtepu8_epi32(v_load_8bytes(p + 8)),
            low = _mm256_set1_epi32(15);
    *high = (v16){ _mm256_cvtepi32_ps(_mm256_srli_epi32(a, 4)), _mm256_cvtepi32_ps(_mm256_srli_epi32(b, 4)) };
    return (v16){ _mm256_cvtepi32_ps(_mm256_and_si256(a, low)), _mm256_cvtepi32_ps(_mm256_and_si256(b, low)) };
}
V_INLINE v16 v_from_i8(__m128i a)
{
    return (v16){ _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(a)),
                  _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(a, 8))) };
}
V_INLINE v16 v_load_f4(const uint8_t *p, v16 *high)
{
    const __m128i twice = _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12);
    __m128i       a = _mm_loadu_si128((const void *)p), low = _mm_set1_epi8(15);
    *high = v_from_i8(_mm_shuffle_epi8(twice, _mm_and_si128(_mm_srli_epi16(a, 4), low)));
    return v_from_i8(_mm_shuffle_epi8(twice, _mm_and_si128(a, low)));
}
V_INLINE v16 v_load_f16(const f16 *p) { return (v16){ _mm256_cvtph_ps(v_load8(p)), _mm256_cvtph_ps(v_load8(p + 8)) }; }
V_INLINE v16 v_load_bf16_n(const bf16 *p, uint32_t n)
{
    bf16 t[16] = { 0 };
    memcpy(t, p, n * sizeof *t);
    return v_load_bf16(t);
}
V_INLINE v16 v_load_f16_n(const f16 *p, uint32_t n)
{
    f16 t[16] = { 0 };
    memcpy(t, p, n * sizeof *t);
    return v_load_f16(t);
}
V_INLINE v16 v_low16(v16 x)
{
    return (v16){ v_shift16(_mm256_castps_si256(x.a)), v_shift16(_mm256_castps_si256(x.b)) };
}
V_INLINE v16 v_high16(v16 x)
{
    __m256 high = _mm256_castsi256_ps(_mm256_set1_epi32((int)0xffff0000u));
    return (v16){ _mm256_and_ps(x.a, high), _mm256_and_ps(x.b, high) };
}

V_INLINE __m128i v_to_bf16(__m256 a)
{
    __m256i u = _mm256_castps_si256(a), odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    __m256i even = _mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), odd);
    __m256i quiet = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q));
    __m256i r = _mm256_srli_epi32(_mm256_blendv_epi8(even, quiet, nan), 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(r), _mm256_extracti128_si256(r, 1));
}
V_INLINE void v_store16_n(uint16_t *p, __m128i a, __m128i b, uint32_t n)
{
    uint16_t t[16];
    void    *to = n == 16 ? p : t;
    _mm_storeu_si128(to, a);
    _mm_storeu_si128((__m128i *)to + 1, b);
    if (n < 16) memcpy(p, t, n * sizeof *t);
}
V_INLINE void v_store_bf16_n(bf16 *p, v16 x, uint32_t n) { v_store16_n(p, v_to_bf16(x.a), v_to_bf16(x.b), n); }
V_INLINE void v_store_f16_n(f16 *p, v16 x, uint32_t n)
{
    v_store16_n(p, _mm256_cvtps_ph(x.a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
                _mm256_cvtps_ph(x.b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC), n);
}

V_INLINE __m256 v_pow2_8(__m256 t)
{
    return _mm256_castsi256_ps(
        _mm256_add_epi32(_mm256_slli_epi32(_mm256_castps_si256(t), 23), _mm256_set1_epi32(127 << 23)));
}
V_INLINE void v_widen_f8(bf16 *to, const uint8_t *p, v16 by)
{
    __m256i h = _mm256_slli_epi16(_mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)p)), 7);
    h = _mm256_and_si256(h, _mm256_set1_epi16((short)0xbf80));
    __m256 a = _mm256_mul_ps(_mm256_cvtph_ps(_mm256_castsi256_si128(h)), by.a),
           b = _mm256_mul_ps(_mm256_cvtph_ps(_mm256_extracti128_si256(h, 1)), by.b);
    __m256i r = _mm256_packus_epi32(_mm256_srli_epi32(_mm256_castps_si256(a), 16),
                                    _mm256_srli_epi32(_mm256_castps_si256(b), 16));
    _mm256_storeu_si256((void *)to, _mm256_permute4x64_epi64(r, 0xd8));
}
V_INLINE v16 v_pow2(v16 t) { return (v16){ v_pow2_8(t.a), v_pow2_8(t.b) }; } /* 2^n where the low bits of t hold n */

V_INLINE __m256 v_add_bits8(__m256 x, __m256 y)
{
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(x), _mm256_castps_si256(y)));
}
V_INLINE v16 v_add_bits(v16 x, v16 y) { return V_BOTH(v_add_bits8, x, y); }

V_INLINE uint32_t v_sum_bits(v16 x)
{
    __m256i b = _mm256_castps_si256(v_add_bits8(x.a, x.b));
    __m128i c = _mm_add_epi32(_mm256_castsi256_si128(b), _mm256_extracti128_si256(b, 1));
    c = _mm_add_epi32(c, _mm_shuffle_epi32(c, 0x4e));
    return (uint32_t)_mm_cvtsi128_si32(_mm_add_epi32(c, _mm_shuffle_epi32(c, 0xb1)));
}

V_INLINE float v_sum(v16 x)
{
    __m256 b = _mm256_add_ps(x.a, x.b);
    __m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    c = _mm_add_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}
V_INLINE float v_hmax(v16 x)
{
    __m256 b = _mm256_max_ps(x.a, x.b);
    __m128 c = _mm_max_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    c = _mm_max_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
}

V_INLINE void v_transpose8(__m256 *a)
{
    __m256 b[8];
    _Pragma("GCC unroll 2") for (int i = 0; i < 8; i += 4)
    {
        __m256 l0 = _mm256_unpacklo_ps(a[i], a[i + 1]), h0 = _mm256_unpackhi_ps(a[i], a[i + 1]);
        __m256 l1 = _mm256_unpacklo_ps(a[i + 2], a[i + 3]), h1 = _mm256_unpackhi_ps(a[i + 2], a[i + 3]);
        b[i] = _mm256_shuffle_ps(l0, l1, 0x44);
        b[i + 1] = _mm256_shuffle_ps(l0, l1, 0xee);
        b[i + 2] = _mm256_shuffle_ps(h0, h1, 0x44);
        b[i + 3] = _mm256_shuffle_ps(h0, h1, 0xee);
    }
    _Pragma("GCC unroll 4") for (int i = 0; i < 4; i++)
    {
        a[i] = _mm256_permute2f128_ps(b[i], b[i + 4], 0x20);
        a[i + 4] = _mm256_permute2f128_ps(b[i], b[i + 4], 0x31);
    }
}
V_INLINE void v_transpose(v16 *x)
{
    __m256 q[4][8]; /* quarters: rows 0-7 and 8-15 of lanes a, then of lanes b */
    for (int i = 0; i < 8; i++) {
        q[0][i] = x[i].a;
        q[1][i] = x[i + 8].a;
        q[2][i] = x[i].b;
        q[3][i] = x[i + 8].b;
    }
    for (int i = 0; i < 4; i++) v_transpose8(q[i]);
    for (int i = 0; i < 8; i++) {
        x[i] = (v16){ q[0][i], q[1][i] };
        x[i + 8] = (v16){ q[2][i], q[3][i] };
    }
}

#define MUL_ROWS       6
#define MUL_COLS(rows) (1 + ((rows) <= 2) + 2 * ((rows) == 1)) /* 4 of one row, 2 of two, 1 of more */
#define SIMD_TABLE     simd_avx2
#define SIMD_NAME      "avx2"
#include "kernels/cpu/simd_body.h"
#else
typedef int simd_avx2_is_empty;
#endif
