/* codes: from the codes of codes.h to numbers of 16 bits, in registers.   Device code of gemm_codes.cu.
 * Every number that comes out is exact: a code less its zero has at most 6 bits, a code of 8 bits 8, an E4M3 4. Codes
 * are put behind the point of a number whose last bit is 1 (128 of bf16, 1024 of f16), or E4M3's bits where those of a
 * smaller exponent are; one fma of two numbers at a time does the rest. */
#pragma once
#include "kernels/cuda/codes.h"
#include "kernels/cuda/common.cuh"
#include "kernels/cuda/ptx_pairs.cuh"

/* Pairs of numbers in type T. */
template <class T> struct codes_of;
template <> struct codes_of<__nv_bfloat16> {
    enum : uint32_t {
        ONE = 0x3f803f80,
        POINT = 0x43004300,   /* 128 */
        SIXTEEN = 0x41804180, /* 16 */
        MIDDLE = 0xc510c510,  /* - 16 * 128 - 128 - 128: from (128 + high) * 16 to high * 16 - 128 - 128 */
        E4M3 = 0x07f007f0,    /* the bits of E4M3 but its sign */
        RAISE = 0x7b807b80    /* 2^120: the difference of the exponents */
    };
    enum { UP = 4, DOWN = 4 }; /* how far those bits are from a byte's lower 7 bits, and from the upper byte's */
    static __device__ __forceinline__ uint32_t fma2(uint32_t a, uint32_t b, uint32_t c) { return fma2_bf16(a, b, c); }
};
template <> struct codes_of<__half> {
    enum : uint32_t {
        ONE = 0x3c003c00,
        POINT = 0x64006400,   /* 1024 */
        SIXTEEN = 0x4c004c00, /* 16 */
        MIDDLE = 0xf448f448,  /* - 16 * 1024 - 1024 - 128 */
        E4M3 = 0x3f803f80,
        RAISE = 0x5c005c00 /* 2^8 */
    };
    enum { UP = 7, DOWN = 1 };
    static __device__ __forceinline__ uint32_t fma2(uint32_t a, uint32_t b, uint32_t c) { return fma2_f16(a, b, c); }
};

enum : uint32_t { CODES_HALVES = 0x000f000f, CODES_SIGNS = 0x80008000 };

/* A kind of codes. UNIT: inputs of a line, STEPS of 32. scale, take: by the record of a group; take makes 8 numbers of
 * step s, 0 or 1, of a thread's 16 bytes, where `turn` brings the two steps behind. NONE: a record that adds nothing to
 * any sum where all products are 0 (a scale of - 0). */
struct codes_i4 {
    enum { UNIT = 128, STEPS = 4 };
    enum : uint32_t { NONE = 0x8000 };
    static __device__ __forceinline__ void  turn(uint4 &v) { v.x = v.z, v.y = v.w; }
    static __device__ __forceinline__ float scale(uint32_t record)
    {
        return __half2float(__ushort_as_half((unsigned short)(record & 0xffff)));
    }
    template <class T> static __device__ __forceinline__ uint4 take(const uint4 &v, int s, uint32_t record)
    {
        typedef codes_of<T> N;
        const uint32_t      c = s ? v.y : v.x, minus = __byte_perm(record, record, 0x3232);
        uint4               out;
        out.x = N::fma2((c & CODES_HALVES) | N::POINT, N::ONE, minus);
        out.y = N::fma2((c >> 4 & CODES_HALVES) | N::POINT, N::ONE, minus);
        out.z = N::fma2((c >> 8 & CODES_HALVES) | N::POINT, N::ONE, minus);
        out.w = N::fma2((c >> 12 & CODES_HALVES) | N::POINT, N::ONE, minus);
        return out;
    }
};

struct codes_f8 {
    enum { UNIT = 64, STEPS = 2 };
    enum : uint32_t { NONE = 0x80000000 };
    static __device__ __forceinline__ void                    turn(uint4 &) {}
    static __device__ __forceinline__ float                   scale(uint32_t record) { return __uint_as_float(record); }
    template <class T> static __device__ __forceinline__ void pair(uint32_t c, uint32_t &low, uint32_t &high)
    {
        typedef codes_of<T> N;
        low = N::fma2((c << N::UP & N::E4M3) | (c << 8 & CODES_SIGNS), N::RAISE, CODES_SIGNS);
        high = N::fma2((c >> N::DOWN & N::E4M3) | (c & CODES_SIGNS), N::RAISE, CODES_SIGNS);
    }
    template <class T> static __device__ __forceinline__ uint4 take(const uint4 &v, int s, uint32_t record)
    {
        uint4 out;
        (void)record;
        pair<T>(s ? v.z : v.x, out.x, out.y);
        pair<T>(s ? v.w : v.y, out.z, out.w);
        return out;
    }
};

/* c + 128 is 16 high + low */
struct codes_i8 {
    enum { UNIT = 64, STEPS = 2 };
    enum : uint32_t { NONE = 0x80000000 };
    static __device__ __forceinline__ void  turn(uint4 &) {}
    static __device__ __forceinline__ float scale(uint32_t record) { return __uint_as_float(record); }
    template <class T> static __device__ __forceinline__ uint32_t byte(uint32_t c)
    {
        typedef codes_of<T> N;
        const uint32_t      high = N::fma2((c >> 4 & CODES_HALVES) | N::POINT, N::SIXTEEN, N::MIDDLE);
        return N::fma2((c & CODES_HALVES) | N::POINT, N::ONE, high);
    }
    template <class T> static __device__ __forceinline__ uint4 take(const uint4 &v, int s, uint32_t record)
    {
        const uint32_t a = s ? v.z : v.x, b = s ? v.w : v.y;
        (void)record;
        return make_uint4(byte<T>(a), byte<T>(a >> 8), byte<T>(b), byte<T>(b >> 8));
    }
};
