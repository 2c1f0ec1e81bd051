/* simd scalar: an array is the 16 lanes; for machines without a variant of their own, and the second opinion of the
 * tests. */
#include "kernels/cpu/simd.h"
#include <math.h>
#include <string.h>

typedef struct {
    float f[16];
} v16;
#ifdef SIMD_OUT_OF_LINE
#define V_INLINE static __attribute__((unused))
#else
#define V_INLINE static inline __attribute__((always_inline))
#endif
#define V_EACH(expr)                                    \
    v16 y_;                                             \
    for (uint32_t i = 0; i < 16; i++) y_.f[i] = (expr); \
    return y_

V_INLINE v16 v_zero(void) { return (v16){ { 0 } }; }
V_INLINE v16 v_set1(float a) { V_EACH(a); }
V_INLINE v16 v_load(const void *p)
{
    v16 a;
    memcpy(&a, p, sizeof a);
    return a;
}
V_INLINE void v_store(float *p, v16 a) { memcpy(p, &a, sizeof a); }
V_INLINE v16  v_add(v16 a, v16 b) { V_EACH(a.f[i] + b.f[i]); }
V_INLINE v16  v_sub(v16 a, v16 b) { V_EACH(a.f[i] - b.f[i]); }
V_INLINE v16  v_mul(v16 a, v16 b) { V_EACH(a.f[i] * b.f[i]); }
V_INLINE v16  v_div(v16 a, v16 b) { V_EACH(a.f[i] / b.f[i]); }
V_INLINE v16  v_max(v16 a, v16 b) { V_EACH(a.f[i] > b.f[i] ? a.f[i] : b.f[i]); }
#ifdef __FP_FAST_FMAF
V_INLINE v16 v_fma(v16 a, v16 b, v16 c) { V_EACH(fmaf(a.f[i], b.f[i], c.f[i])); }
#else
V_INLINE v16 v_fma(v16 a, v16 b, v16 c) { V_EACH(a.f[i] * b.f[i] + c.f[i]); } /* no such instruction: rounded twice */
#endif
V_INLINE v16 v_fused(v16 a, v16 b, v16 c) { V_EACH(fmaf(a.f[i], b.f[i], c.f[i])); }
#define V_FUSED
#define V_MASK(cond)                                               \
    uint32_t m_ = 0;                                               \
    for (uint32_t i = 0; i < 16; i++) m_ |= (uint32_t)(cond) << i; \
    return m_
V_INLINE uint32_t v_above(v16 a, v16 b) { V_MASK(a.f[i] > b.f[i]); }
V_INLINE uint32_t v_equal(v16 a, v16 b) { V_MASK(a.f[i] == b.f[i]); }
V_INLINE uint32_t v_nan(v16 a) { V_MASK(a.f[i] != a.f[i]); }
V_INLINE v16      v_pick(uint32_t mask, v16 a, v16 b) { V_EACH(mask >> i & 1 ? a.f[i] : b.f[i]); }

V_INLINE v16  v_load_bf16(const bf16 *p) { V_EACH(bf16_to_f32(p[i])); }
V_INLINE v16  v_load_bf16_n(const bf16 *p, uint32_t n) { V_EACH(i < n ? bf16_to_f32(p[i]) : 0); }
V_INLINE v16  v_load_f16(const f16 *p) { V_EACH(f16_to_f32(p[i])); }
V_INLINE v16  v_load_f16_n(const f16 *p, uint32_t n) { V_EACH(i < n ? f16_to_f32(p[i]) : 0); }
V_INLINE v16  v_load_i8(const uint8_t *p) { V_EACH((float)(int8_t)p[i]); }
V_INLINE v16  v_load_f8(const uint8_t *p) { V_EACH(f8e4m3_to_f32(p[i])); }
V_INLINE void v_widen_f8(bf16 *to, const uint8_t *p, v16 by)
{
    for (uint32_t i = 0; i < 16; i++) to[i] = f32_to_bf16(f8e4m3_to_f32(p[i]) / 256 * by.f[i]);
}
V_INLINE v16 v_load_i4(const uint8_t *p, v16 *high)
{
    for (uint32_t i = 0; i < 16; i++) high->f[i] = (float)(p[i] >> 4);
    V_EACH((float)(p[i] & 15));
}
V_INLINE v16 v_load_f4(const uint8_t *p, v16 *high)
{
    for (uint32_t i = 0; i < 16; i++) high->f[i] = 2 * f4e2m1_to_f32(p[i] >> 4);
    V_EACH(2 * f4e2m1_to_f32(p[i] & 15));
}
V_INLINE void v_store_bf16_n(bf16 *p, v16 a, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) p[i] = f32_to_bf16(a.f[i]);
}
V_INLINE void v_store_f16_n(f16 *p, v16 a, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) p[i] = f32_to_f16(a.f[i]);
}
V_INLINE uint32_t as_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}
V_INLINE float as_float(uint32_t u)
{
    float f;
    memcpy(&f, &u, 4);
    return f;
}
V_INLINE v16 v_low16(v16 a) { V_EACH(as_float(as_bits(a.f[i]) << 16)); }
V_INLINE v16 v_high16(v16 a) { V_EACH(as_float(as_bits(a.f[i]) & 0xffff0000u)); }
V_INLINE v16 v_pow2(v16 t)
{
    V_EACH(as_float((as_bits(t.f[i]) << 23) + (127u << 23)));
} /* 2^n where the low bits of t hold n */

V_INLINE v16 v_add_bits(v16 a, v16 b) { V_EACH(as_float(as_bits(a.f[i]) + as_bits(b.f[i]))); }

V_INLINE uint32_t v_sum_bits(v16 a)
{
    uint32_t sum = 0;
    for (int i = 0; i < 16; i++) sum += as_bits(a.f[i]);
    return sum;
}

V_INLINE float v_sum(v16 a)
{
    for (int s = 8; s; s /= 2)
        for (int i = 0; i < s; i++) a.f[i] += a.f[i + s];
    return a.f[0];
}
V_INLINE float v_hmax(v16 a)
{
    for (int s = 8; s; s /= 2)
        for (int i = 0; i < s; i++) a.f[i] = a.f[i] > a.f[i + s] ? a.f[i] : a.f[i + s];
    return a.f[0];
}
V_INLINE void v_transpose(v16 *a)
{
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < i; j++) {
            float t = a[i].f[j];
            a[i].f[j] = a[j].f[i];
            a[j].f[i] = t;
        }
}

#define MUL_ROWS       6
#define MUL_COLS(rows) 1
#define SIMD_TABLE     simd_scalar
#define SIMD_NAME      "scalar"
#include "kernels/cpu/simd_body.h"
