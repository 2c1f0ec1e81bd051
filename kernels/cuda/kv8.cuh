/* kv8: rows of kernels/kv8.h on the GPU: a scale and codes from fp32, and pairs of bf16 from codes.   Device code. */
#pragma once
#include "kernels/cuda/codes.cuh"
#include "kernels/kv8.h"

/* The bits of |x|, which compare as sizes do; what is infinite or none comes last. */
static __device__ __forceinline__ uint32_t kv8_size(float x) { return __float_as_uint(x) & 0x7fffffffu; }

/* As kv8_scale: from the largest kv8_size of a row. */
static __device__ __forceinline__ uint32_t kv8_scale_of(uint32_t most)
{
    most >>= 23;
    if (most >= 254) return KV8_NONE;
    return most < KV8_SCALE_MIN + KV8_TOP ? KV8_SCALE_MIN : most - KV8_TOP;
}

/* A number of a row of that scale as its code: f32_to_f8e4m3 of x times a power of two, which is at most 256. */
static __device__ __forceinline__ uint32_t kv8_code(float x, uint32_t scale)
{
    if (scale == KV8_NONE) return 0;
    float    y = __fmul_rn(x, __uint_as_float((254 - scale) << 23));
    uint32_t sign = __float_as_uint(y) >> 24 & 0x80, size = kv8_size(y);
    if (size < 0x3c800000u) /* below 2^-6: adding 1.5 * 2^14 leaves steps of 2^-9 in the low bits, rounded */
        return sign | (__float_as_uint(__fadd_rn(__uint_as_float(size), 24576.0f)) - 0x46c00000u);
    size += 0x7ffffu + (size >> 20 & 1);
    return sign | ((size >> 20) - (120u << 3));
}

/* Two of the factor that codes of a scale are multiplied by, which is 2^(scale - 127); NaN: the row is none. */
static __device__ __forceinline__ uint32_t kv8_factor2(uint32_t scale)
{
    uint32_t one = scale == KV8_NONE ? 0x7fffu : scale << 7;
    return one | one << 16;
}

/* Four codes as numbers of bf16, in order, exact. */
static __device__ __forceinline__ uint2 kv8_take4(uint32_t code, uint32_t factor2)
{
    uint32_t even, odd; /* codes 0 and 2, 1 and 3 */
    codes_f8::pair<__nv_bfloat16>(code, even, odd);
    even = fma2_bf16(even, factor2, CODES_SIGNS);
    odd = fma2_bf16(odd, factor2, CODES_SIGNS);
    return make_uint2(__byte_perm(even, odd, 0x5410), __byte_perm(even, odd, 0x7632));
}
