/* simd neon: four registers are the 16 lanes. What every 64-bit ARM has: fused multiply-adds and conversions of f16 are
 * part of it. */
#include "kernels/cpu/simd.h"
#if defined(__aarch64__)
#include <arm_neon.h>
#include <string.h>

typedef float32x4x4_t v16;
#define V_INLINE static inline __attribute__((always_inline))

V_INLINE v16 v_set1(float x) { return (v16){ { vdupq_n_f32(x), vdupq_n_f32(x), vdupq_n_f32(x), vdupq_n_f32(x) } }; }
V_INLINE v16 v_zero(void) { return v_set1(0); }
V_INLINE v16 v_load(const void *p)
{
    const float *f = p;
    return (v16){ { vld1q_f32(f), vld1q_f32(f + 4), vld1q_f32(f + 8), vld1q_f32(f + 12) } };
}
V_INLINE void v_store(float *p, v16 x)
{
    for (int i = 0; i < 4; i++) vst1q_f32(p + 4 * i, x.val[i]);
}
#define V_BINARY(name, fn)                                             \
    V_INLINE v16 name(v16 x, v16 y)                                    \
    {                                                                  \
        for (int i = 0; i < 4; i++) x.val[i] = fn(x.val[i], y.val[i]); \
        return x;                                                      \
    }
V_INLINE float32x4_t v_max4(float32x4_t a, float32x4_t b)
{
    return vbslq_f32(vcgtq_f32(a, b), a, b);
} /* fmax is neither's number */
V_INLINE float32x4_t v_add_bits4(float32x4_t a, float32x4_t b)
{
    return vreinterpretq_f32_u32(vaddq_u32(vreinterpretq_u32_f32(a), vreinterpretq_u32_f32(b)));
}
V_BINARY(v_add, vaddq_f32)
V_BINARY(v_sub, vsubq_f32)
V_BINARY(v_mul, vmulq_f32)
V_BINARY(v_div, vdivq_f32)
V_BINARY(v_max, v_max4)
V_BINARY(v_add_bits, v_add_bits4)
V_INLINE v16 v_fma(v16 x, v16 y, v16 z)
{
    for (int i = 0; i < 4; i++) z.val[i] = vfmaq_f32(z.val[i], x.val[i], y.val[i]);
    return z;
}

/* Four comparisons as a mask of 16 bits, and back. */
V_INLINE uint32_t v_bits(uint32x4_t a, uint32x4_t b, uint32x4_t c, uint32x4_t d)
{
    const uint32x4_t bit = { 1, 2, 4, 8 };
    uint32x4_t       low = vorrq_u32(vandq_u32(a, bit), vandq_u32(b, vshlq_n_u32(bit, 4)));
    uint32x4_t       high = vorrq_u32(vandq_u32(c, vshlq_n_u32(bit, 8)), vandq_u32(d, vshlq_n_u32(bit, 12)));
    return vaddvq_u32(vorrq_u32(low, high));
}
#define V_COMPARE(fn, x, y)                                                                    \
    v_bits(fn((x).val[0], (y).val[0]), fn((x).val[1], (y).val[1]), fn((x).val[2], (y).val[2]), \
           fn((x).val[3], (y).val[3]))
V_INLINE uint32_t v_above(v16 x, v16 y) { return V_COMPARE(vcgtq_f32, x, y); }
V_INLINE uint32_t v_equal(v16 x, v16 y) { return V_COMPARE(vceqq_f32, x, y); }
V_INLINE uint32_t v_nan(v16 x) { return v_equal(x, x) ^ 0xffffu; }
V_INLINE v16      v_pick(uint32_t mask, v16 x, v16 y)
{
    const uint32x4_t bit = { 1, 2, 4, 8 };
    for (int i = 0; i < 4; i++) x.val[i] = vbslq_f32(vtstq_u32(vdupq_n_u32(mask >> 4 * i), bit), x.val[i], y.val[i]);
    return x;
}

V_INLINE float32x4_t v_shift16(uint16x4_t a) { return vreinterpretq_f32_u32(vshll_n_u16(a, 16)); }
V_INLINE v16         v_load_bf16(const bf16 *p)
{
    uint16x8_t a = vld1q_u16(p), b = vld1q_u16(p + 8);
    return (v16){ { v_shift16(vget_low_u16(a)), v_shift16(vget_high_u16(a)), v_shift16(vget_low_u16(b)),
                    v_shift16(vget_high_u16(b)) } };
}
V_INLINE float32x4_t v_from_f16(uint16x4_t a) { return vcvt_f32_f16(vreinterpret_f16_u16(a)); }
V_INLINE v16         v_load_f16(const f16 *p)
{
    uint16x8_t a = vld1q_u16(p), b = vld1q_u16(p + 8);
    return (v16){ { v_from_f16(vget_low_u16(a)), v_from_f16(vget_high_u16(a)), v_from_f16(vget_low_u16(b)),
                    v_from_f16(vget_high_u16(b)) } };
}
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
V_INLINE v16 v_from_i8(int8x16_t a)
{
    int16x8_t b = vmovl_s8(vget_low_s8(a)), c = vmovl_s8(vget_high_s8(a));
    return (v16){ { vcvtq_f32_s32(vmovl_s16(vget_low_s16(b))), vcvtq_f32_s32(vmovl_s16(vget_high_s16(b))),
                    vcvtq_f32_s32(vmovl_s16(vget_low_s16(c))), vcvtq_f32_s32(vmovl_s16(vget_high_s16(c))) } };
}
V_INLINE v16 v_load_i8(const uint8_t *p) { return v_from_i8(vreinterpretq_s8_u8(vld1q_u8(p))); }
V_INLINE v16 v_small_f8(const uint8_t *p) /* the bits of an f16 that is 2^8 times smaller, subnormals too */
{
    int8x16_t  a = vreinterpretq_s8_u8(vld1q_u8(p));
    uint16x8_t keep = vdupq_n_u16(0xbf80), b = vandq_u16(vreinterpretq_u16_s16(vshll_n_s8(vget_low_s8(a), 7)), keep);
    uint16x8_t c = vandq_u16(vreinterpretq_u16_s16(vshll_n_s8(vget_high_s8(a), 7)), keep);
    v16        x = { { v_from_f16(vget_low_u16(b)), v_from_f16(vget_high_u16(b)), v_from_f16(vget_low_u16(c)),
                       v_from_f16(vget_high_u16(c)) } };
    return x;
}
V_INLINE v16        v_load_f8(const uint8_t *p) { return v_mul(v_small_f8(p), v_set1(256.0f)); }
V_INLINE uint16x4_t v_high16_of(float32x4_t a) { return vshrn_n_u32(vreinterpretq_u32_f32(a), 16); }
V_INLINE void       v_widen_f8(bf16 *to, const uint8_t *p, v16 by)
{
    v16 x = v_mul(v_small_f8(p), by);
    vst1q_u16(to, vcombine_u16(v_high16_of(x.val[0]), v_high16_of(x.val[1])));
    vst1q_u16(to + 8, vcombine_u16(v_high16_of(x.val[2]), v_high16_of(x.val[3])));
}
V_INLINE v16 v_load_i4(const uint8_t *p, v16 *high)
{
    uint8x16_t a = vld1q_u8(p);
    *high = v_from_i8(vreinterpretq_s8_u8(vshrq_n_u8(a, 4)));
    return v_from_i8(vreinterpretq_s8_u8(vandq_u8(a, vdupq_n_u8(15))));
}
V_INLINE v16 v_load_f4(const uint8_t *p, v16 *high)
{
    static const int8_t twice[16] = { 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12 };
    uint8x16_t          a = vld1q_u8(p);
    int8x16_t           table = vld1q_s8(twice);
    *high = v_from_i8(vqtbl1q_s8(table, vshrq_n_u8(a, 4)));
    return v_from_i8(vqtbl1q_s8(table, vandq_u8(a, vdupq_n_u8(15))));
}
V_INLINE v16 v_low16(v16 x)
{
    for (int i = 0; i < 4; i++) x.val[i] = vreinterpretq_f32_u32(vshlq_n_u32(vreinterpretq_u32_f32(x.val[i]), 16));
    return x;
}
V_INLINE v16 v_high16(v16 x)
{
    for (int i = 0; i < 4; i++)
        x.val[i] = vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(x.val[i]), vdupq_n_u32(0xffff0000u)));
    return x;
}

V_INLINE uint16x4_t v_to_bf16(float32x4_t a)
{
    uint32x4_t u = vreinterpretq_u32_f32(a), odd = vandq_u32(vshrq_n_u32(u, 16), vdupq_n_u32(1));
    uint32x4_t even = vaddq_u32(vaddq_u32(u, vdupq_n_u32(0x7fff)), odd), quiet = vorrq_u32(u, vdupq_n_u32(0x400000));
    return vshrn_n_u32(vbslq_u32(vceqq_f32(a, a), even, quiet), 16);
}
V_INLINE uint16x4_t v_to_f16(float32x4_t a) { return vreinterpret_u16_f16(vcvt_f16_f32(a)); }
V_INLINE void       v_store16_n(uint16_t *p, uint16x4_t a, uint16x4_t b, uint16x4_t c, uint16x4_t d, uint32_t n)
{
    uint16_t t[16], *to = n == 16 ? p : t;
    vst1q_u16(to, vcombine_u16(a, b));
    vst1q_u16(to + 8, vcombine_u16(c, d));
    if (n < 16) memcpy(p, t, n * sizeof *t);
}
V_INLINE void v_store_bf16_n(bf16 *p, v16 x, uint32_t n)
{
    v_store16_n(p, v_to_bf16(x.val[0]), v_to_bf16(x.val[1]), v_to_bf16(x.val[2]), v_to_bf16(x.val[3]), n);
}
V_INLINE void v_store_f16_n(f16 *p, v16 x, uint32_t n)
{
    v_store16_n(p, v_to_f16(x.val[0]), v_to_f16(x.val[1]), v_to_f16(x.val[2]), v_to_f16(x.val[3]), n);
}

V_INLINE v16 v_pow2(v16 t) /* 2^n where the low bits of t hold n */
{
    for (int i = 0; i < 4; i++)
        t.val[i] =
            vreinterpretq_f32_u32(vaddq_u32(vshlq_n_u32(vreinterpretq_u32_f32(t.val[i]), 23), vdupq_n_u32(127u << 23)));
    return t;
}

V_INLINE uint32_t v_sum_bits(v16 x)
{
    return vaddvq_u32(
        vreinterpretq_u32_f32(v_add_bits4(v_add_bits4(x.val[0], x.val[2]), v_add_bits4(x.val[1], x.val[3]))));
}
V_INLINE float v_sum(v16 x)
{
    float32x4_t c = vaddq_f32(vaddq_f32(x.val[0], x.val[2]), vaddq_f32(x.val[1], x.val[3]));
    return vaddv_f32(vadd_f32(vget_low_f32(c), vget_high_f32(c)));
}
V_INLINE float v_hmax(v16 x)
{
    float32x4_t c = v_max4(v_max4(x.val[0], x.val[2]), v_max4(x.val[1], x.val[3]));
    c = v_max4(c, vextq_f32(c, c, 2));
    return vgetq_lane_f32(v_max4(c, vextq_f32(c, c, 1)), 0);
}

V_INLINE void v_transpose4(float32x4_t *a, float32x4_t *b, float32x4_t *c, float32x4_t *d)
{
    float64x2_t p = vreinterpretq_f64_f32(vtrn1q_f32(*a, *b)), q = vreinterpretq_f64_f32(vtrn2q_f32(*a, *b));
    float64x2_t r = vreinterpretq_f64_f32(vtrn1q_f32(*c, *d)), s = vreinterpretq_f64_f32(vtrn2q_f32(*c, *d));
    *a = vreinterpretq_f32_f64(vtrn1q_f64(p, r));
    *b = vreinterpretq_f32_f64(vtrn1q_f64(q, s));
    *c = vreinterpretq_f32_f64(vtrn2q_f64(p, r));
    *d = vreinterpretq_f32_f64(vtrn2q_f64(q, s));
}
V_INLINE void v_transpose(v16 *x) /* 4x4 where they stand, then the blocks */
{
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++)
            v_transpose4(&x[4 * i].val[j], &x[4 * i + 1].val[j], &x[4 * i + 2].val[j], &x[4 * i + 3].val[j]);
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < i; j++)
            for (int k = 0; k < 4; k++) {
                float32x4_t t = x[4 * i + k].val[j];
                x[4 * i + k].val[j] = x[4 * j + k].val[i];
                x[4 * j + k].val[i] = t;
            }
}

#define MUL_ROWS       6                                       /* 24 of 32 registers are sums */
#define MUL_COLS(rows) (1 + ((rows) <= 2) + 2 * ((rows) == 1)) /* 4 of one row, 2 of two, 1 of more */
#define SIMD_TABLE     simd_neon
#define SIMD_NAME      "neon"
#include "kernels/cpu/simd_body.h"
#else
typedef int simd_neon_is_empty;
#endif
