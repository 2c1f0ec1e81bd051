/* dtype: element types and their conversions, scalar.   Thread: any. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum dtype { DT_F32 = 0, DT_BF16, DT_F16, DT_F8E4M3, DT_I4, DT_I8, DT_F4E2M1, DT_COUNT };

typedef uint16_t bf16; /* the upper half of an IEEE float32 */
typedef uint16_t f16;  /* IEEE binary16 */

/* "bf16" of DT_BF16, for logs and messages; a static string. */
const char *dtype_name(enum dtype t);

/* True for codes of which two share a byte. */
static inline bool dtype_is_half_byte(enum dtype t) { return t == DT_I4 || t == DT_F4E2M1; }

/* Bytes of one number; 1 of those of which two share a byte. */
static inline size_t dtype_bytes(enum dtype t)
{
    if (t == DT_F32) return 4;
    return t == DT_BF16 || t == DT_F16 ? 2 : 1;
}

/* Exact. */
static inline float bf16_to_f32(bf16 x)
{
    uint32_t u = (uint32_t)x << 16;
    float    f;
    memcpy(&f, &u, 4);
    return f;
}
/* round to nearest even; NaN stays NaN (quiet) */
static inline bf16 f32_to_bf16(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (bf16)((u >> 16) | 0x40u);
    return (bf16)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}
float f16_to_f32(f16 x);   /* exact */
f16   f32_to_f16(float f); /* round to nearest even */
/* exact; 0x7f and 0xff are NaN, there is no infinity (OCP 8-bit floating point, E4M3) */
static inline float f8e4m3_to_f32(uint8_t x)
{
    uint32_t u = (uint32_t)(x & 0x80) << 24, exp = (x >> 3) & 15u, frac = x & 7u;
    float    f;
    if ((x & 0x7f) == 0x7f)
        u |= 0x7fc00000u;
    else if (exp)
        u |= (exp + 120) << 23 | frac << 20;
    else if (frac) { /* frac * 2^-9 */
        uint32_t shift = (uint32_t)__builtin_clz(frac) - 28;
        u |= (121 - shift) << 23 | ((frac << shift) & 7u) << 20;
    }
    memcpy(&f, &u, 4);
    return f;
}
/* To nearest even; beyond 448 the largest, 448; NaN stays NaN. Unrounded sizes below 2^-6 go in steps of 2^-9. */
static inline uint8_t f32_to_f8e4m3(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    uint32_t sign = u >> 24 & 0x80, size = u & 0x7fffffffu;
    if (size > 0x7f800000u) return (uint8_t)(sign | 0x7f);
    if (size > 0x43e00000u) size = 0x43e00000u;
    if (size < 0x3c800000u) { /* adding 1.5 * 2^14 leaves those steps in the low bits, rounded */
        memcpy(&f, &size, 4);
        f += 24576.0f;
        memcpy(&u, &f, 4);
        return (uint8_t)(sign | (u - 0x46c00000u));
    }
    size += 0x7ffffu + (size >> 20 & 1);
    return (uint8_t)(sign | ((size >> 20) - (120u << 3)));
}
/* A number of a sign, 2 bits of exponent and 1 of mantissa; a code below 16 (OCP Microscaling Formats 1.0, E2M1). */
static inline float f4e2m1_to_f32(uint32_t code)
{
    static const float size[8] = { 0, 0.5f, 1, 1.5f, 2, 3, 4, 6 };
    return code & 8 ? -size[code & 7] : size[code & 7];
}
/* A scale of a byte: 2^(x - 127), exact; 255, which is no number there, is infinite here (OCP, E8M0). */
static inline float f8e8m0_to_f32(uint8_t x)
{
    uint32_t u = x ? (uint32_t)x << 23 : 1u << 22;
    float    f;
    memcpy(&f, &u, 4);
    return f;
}
/* Of a power of two, 2^-127 to 2^127. */
static inline uint8_t f32_to_f8e8m0(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    return (uint8_t)(u >> 23);
}
