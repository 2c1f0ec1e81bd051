/* emu_types: the vector types of CUDA and its two 16-bit floats, without the toolkit.   C++17, included by
 * cuda_runtime.h. Stricter than CUDA's own on purpose: the 16-bit floats have no operators and no implicit conversions,
 * so a kernel names each one. */
#pragma once
#include <stdint.h>
#include <string.h>

#define __align__(n) __attribute__((aligned(n)))
#define EMU_VEC2(T, name, a) \
    struct alignas(a) name { \
        T x, y;              \
    };                       \
    static inline name make_##name(T x, T y) { return name{ x, y }; }
#define EMU_VEC3(T, name) \
    struct name {         \
        T x, y, z;        \
    };                    \
    static inline name make_##name(T x, T y, T z) { return name{ x, y, z }; }
#define EMU_VEC4(T, name, a) \
    struct alignas(a) name { \
        T x, y, z, w;        \
    };                       \
    static inline name make_##name(T x, T y, T z, T w) { return name{ x, y, z, w }; }
EMU_VEC2(char, char2, 2)
EMU_VEC2(unsigned char, uchar2, 2)
EMU_VEC4(signed char, char4, 4)
EMU_VEC4(unsigned char, uchar4, 4)
EMU_VEC2(short, short2, 4)
EMU_VEC2(unsigned short, ushort2, 4)
EMU_VEC4(short, short4, 8)
EMU_VEC4(unsigned short, ushort4, 8)
EMU_VEC2(int, int2, 8)
EMU_VEC3(int, int3)
EMU_VEC4(int, int4, 16)
EMU_VEC2(unsigned, uint2, 8)
EMU_VEC3(unsigned, uint3)
EMU_VEC4(unsigned, uint4, 16)
EMU_VEC2(float, float2, 8)
EMU_VEC3(float, float3)
EMU_VEC4(float, float4, 16)
EMU_VEC2(long long, longlong2, 16)
EMU_VEC2(unsigned long long, ulonglong2, 16)
EMU_VEC2(double, double2, 16)

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

/* ---------------------------------------------------------------- bits */

template <class To, class From> static inline To emu_bits(From f)
{
    static_assert(sizeof(To) == sizeof(From), "sizes differ");
    To t;
    memcpy(&t, &f, sizeof t);
    return t;
}

static inline uint32_t  __float_as_uint(float x) { return emu_bits<uint32_t>(x); }
static inline int       __float_as_int(float x) { return emu_bits<int>(x); }
static inline float     __uint_as_float(uint32_t x) { return emu_bits<float>(x); }
static inline float     __int_as_float(int x) { return emu_bits<float>(x); }
static inline long long __double_as_longlong(double x) { return emu_bits<long long>(x); }
static inline double    __longlong_as_double(long long x) { return emu_bits<double>(x); }

/* ---------------------------------------------------------------- bfloat16 */

struct alignas(2) __nv_bfloat16 {
    unsigned short bits;
};
struct alignas(4) __nv_bfloat162 {
    __nv_bfloat16 x, y;
};
typedef __nv_bfloat16  nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;

static inline __nv_bfloat16  __ushort_as_bfloat16(unsigned short u) { return __nv_bfloat16{ u }; }
static inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 b) { return b.bits; }
static inline float          __bfloat162float(__nv_bfloat16 b) { return __uint_as_float((uint32_t)b.bits << 16); }
/* round to nearest even; any NaN becomes the one of the device, 0x7fff */
static inline __nv_bfloat16 __float2bfloat16_rn(float f)
{
    uint32_t u = __float_as_uint(f);
    if ((u & 0x7fffffffu) > 0x7f800000u) return __nv_bfloat16{ 0x7fff };
    return __nv_bfloat16{ (unsigned short)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16) };
}
static inline __nv_bfloat16  __float2bfloat16(float f) { return __float2bfloat16_rn(f); }
static inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y)
{
    return __nv_bfloat162{ __float2bfloat16_rn(x), __float2bfloat16_rn(y) };
}
static inline __nv_bfloat162 __float22bfloat162_rn(float2 f) { return __floats2bfloat162_rn(f.x, f.y); }
static inline __nv_bfloat162 __float2bfloat162_rn(float f) { return __floats2bfloat162_rn(f, f); }
static inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return __nv_bfloat162{ x, y }; }
static inline __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 x) { return __nv_bfloat162{ x, x }; }
static inline float2         __bfloat1622float2(__nv_bfloat162 b)
{
    return float2{ __bfloat162float(b.x), __bfloat162float(b.y) };
}
static inline float         __low2float(__nv_bfloat162 b) { return __bfloat162float(b.x); }
static inline float         __high2float(__nv_bfloat162 b) { return __bfloat162float(b.y); }
static inline __nv_bfloat16 __low2bfloat16(__nv_bfloat162 b) { return b.x; }
static inline __nv_bfloat16 __high2bfloat16(__nv_bfloat162 b) { return b.y; }

/* ---------------------------------------------------------------- half */

struct alignas(2) __half {
    unsigned short bits;
};
struct alignas(4) __half2 {
    __half x, y;
};
typedef __half  half;
typedef __half2 half2;

static inline __half         __ushort_as_half(unsigned short u) { return __half{ u }; }
static inline unsigned short __half_as_ushort(__half h) { return h.bits; }
static inline float          __half2float(__half h)
{
    uint32_t sign = (uint32_t)(h.bits & 0x8000u) << 16, mag = h.bits & 0x7fffu;
    if (mag >= 0x7c00u) return __uint_as_float(sign | 0x7f800000u | (mag & 0x3ffu) << 13);
    if (mag >= 0x400u) return __uint_as_float(sign | ((mag << 13) + 0x38000000u));
    float f = (float)mag * 0x1p-24f; /* subnormal: exact */
    return sign ? -f : f;
}
/* round to nearest even; any NaN becomes 0x7fff, as on the device */
static inline __half __float2half_rn(float f)
{
    uint32_t       u = __float_as_uint(f), mag = u & 0x7fffffffu;
    unsigned short sign = (unsigned short)(u >> 16 & 0x8000u);
    if (mag > 0x7f800000u) return __half{ 0x7fff };
    if (mag >= 0x477ff000u) return __half{ (unsigned short)(sign | 0x7c00u) }; /* 65520 and more: infinity */
    if (mag >= 0x38800000u) {                                                  /* normal: drop 13 bits */
        uint32_t r = mag - 0x38000000u;
        return __half{ (unsigned short)(sign | (r + 0xfffu + (r >> 13 & 1u)) >> 13) };
    }
    /* subnormal: adding 0.5 leaves the 10 bits that count at the bottom of the mantissa, rounded to nearest even */
    float a = __uint_as_float(mag) + 0.5f;
    return __half{ (unsigned short)(sign | (__float_as_uint(a) - 0x3f000000u)) };
}
static inline __half  __float2half(float f) { return __float2half_rn(f); }
static inline __half2 __floats2half2_rn(float x, float y) { return __half2{ __float2half_rn(x), __float2half_rn(y) }; }
static inline __half2 __float22half2_rn(float2 f) { return __floats2half2_rn(f.x, f.y); }
static inline __half2 __float2half2_rn(float f) { return __floats2half2_rn(f, f); }
static inline __half2 __halves2half2(__half x, __half y) { return __half2{ x, y }; }
static inline __half2 __half2half2(__half x) { return __half2{ x, x }; }
static inline float2  __half22float2(__half2 h) { return float2{ __half2float(h.x), __half2float(h.y) }; }
static inline float   __low2float(__half2 h) { return __half2float(h.x); }
static inline float   __high2float(__half2 h) { return __half2float(h.y); }
static inline __half  __low2half(__half2 h) { return h.x; }
static inline __half  __high2half(__half2 h) { return h.y; }
