/* emu_pairs: the bodies of kernels/cuda/ptx_pairs.cuh on the CPU.   C++17. */
#pragma once
#include <emu_types.h>
#include <math.h>

namespace emu
{
/* a * b + c as a float whose last bit is set where the exact result has more: rounding it once more is rounding the
 * exact one. The product of two 16-bit floats is exact in double. */
static inline float fma_odd(float a, float b, float c)
{
    double   p = (double)a * (double)b, s = p + (double)c, back = s - p;
    double   rest = (p - (s - back)) + ((double)c - back);
    float    f = (float)s;
    uint32_t u = __float_as_uint(f);
    if (!isfinite(s) || !isfinite(f) || ((double)f == s && rest == 0) || u & 1) return f;
    bool below = (double)f == s ? rest < 0 : (double)f > s; /* the exact result is below f */
    return __uint_as_float((f > 0) == below ? u - 1 : u + 1);
}
} // namespace emu

static inline uint32_t fma2_bf16(uint32_t a, uint32_t b, uint32_t c)
{
    auto of = [](uint32_t w, int high) { return __uint_as_float(high ? w & 0xffff0000u : w << 16); };
    auto one = [&](int high) {
        return (uint32_t)__float2bfloat16_rn(emu::fma_odd(of(a, high), of(b, high), of(c, high))).bits;
    };
    return one(0) | one(1) << 16;
}
static inline uint32_t fma2_f16(uint32_t a, uint32_t b, uint32_t c)
{
    auto of = [](uint32_t w, int high) { return __half2float(__half{ (unsigned short)(high ? w >> 16 : w) }); };
    auto one = [&](int high) {
        return (uint32_t)__float2half_rn(emu::fma_odd(of(a, high), of(b, high), of(c, high))).bits;
    };
    return one(0) | one(1) << 16;
}
