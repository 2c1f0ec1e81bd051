/* codes: from the codes of codes.h to numbers of 16 bits, in registers, and what products with them share.   Device
 * code of gemm_codes.cu, codes_fused.cu, codes_hopper.cu, moe_codes.cu, embed_codes.cu and, of E4M3, of KV in 8 bits.
 * Every number that comes out is exact: a code less its zero has at most 6 bits, a code of 8 bits 8, an E4M3 4, an E2M1
 * 2, the product of those two 6. Codes are put behind the point of a number whose last bit is 1 (128 of bf16, 1024 of
 * f16), or the bits of E4M3 and E2M1 where those of a smaller exponent are; one fma of two numbers at a time does the
 * rest. */
#pragma once
#include "kernels/cuda/codes.h"
#include "kernels/cuda/common.cuh"
#include "kernels/cuda/ptx_pairs.cuh"
#include "kernels/cuda/rows.cuh"

/* Pairs of numbers in type T. */
template <class T> struct codes_of;
template <> struct codes_of<__nv_bfloat16> {
    enum : uint32_t {
        ONE = 0x3f803f80,
        POINT = 0x43004300,   /* 128 */
        SIXTEEN = 0x41804180, /* 16 */
        MIDDLE = 0xc510c510,  /* - 16 * 128 - 128 - 128: from (128 + high) * 16 to high * 16 - 128 - 128 */
        E4M3 = 0x07f007f0,    /* the bits of E4M3 but its sign */
        RAISE = 0x7b807b80,   /* 2^120: the difference of the exponents */
        E2M1 = 0x01c001c0,
        RAISE_E2M1 = 0x7e807e80 /* 2^126 */
    };
    enum { UP_E2M1 = 6 };
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
        RAISE = 0x5c005c00, /* 2^8 */
        E2M1 = 0x0e000e00,
        RAISE_E2M1 = 0x74007400 /* 2^14 */
    };
    enum { UP_E2M1 = 9 };
    enum { UP = 7, DOWN = 1 };
    static __device__ __forceinline__ uint32_t fma2(uint32_t a, uint32_t b, uint32_t c) { return fma2_f16(a, b, c); }
};

enum : uint32_t { CODES_HALVES = 0x000f000f, CODES_SIGNS = 0x80008000 };

/* A kind of codes. UNIT: inputs of a line, STEPS of 32. scale, take, two: by the record of a group; take makes 8 numbers
 * of step s, 0 or 1, of a thread's 16 bytes, where `turn` brings the two steps behind; two makes the pair of numbers whose
 * bits are the lowest of those that `c` has (4 bits: 0 and 16 on, 8 bits: likewise), of the last 16 inputs of a step where
 * `last`. NONE: a record that adds nothing to any sum where all products are 0 (a scale of - 0). */
struct codes_i4 {
    typedef uint32_t record_t;
    enum { UNIT = 128, STEPS = 4 };
    enum : uint32_t { NONE = 0x8000 };
    static __device__ __forceinline__ void  turn(uint4 &v) { v.x = v.z, v.y = v.w; }
    static __device__ __forceinline__ float scale(uint32_t record)
    {
        return __half2float(__ushort_as_half((unsigned short)(record & 0xffff)));
    }
    template <class T> static __device__ __forceinline__ uint32_t two(uint32_t c, uint32_t record, bool last = false)
    {
        typedef codes_of<T> N;
        (void)last;
        return N::fma2((c & CODES_HALVES) | N::POINT, N::ONE, __byte_perm(record, record, 0x3232));
    }
    template <class T> static __device__ __forceinline__ uint4 take(const uint4 &v, int s, uint32_t record)
    {
        const uint32_t c = s ? v.y : v.x;
        return make_uint4(two<T>(c, record), two<T>(c >> 4, record), two<T>(c >> 8, record), two<T>(c >> 12, record));
    }
};

struct codes_f8 {
    typedef uint32_t record_t;
    enum { UNIT = 64, STEPS = 2 };
    enum : uint32_t { NONE = 0x80000000 };
    static __device__ __forceinline__ void  turn(uint4 &) {}
    static __device__ __forceinline__ float scale(uint32_t record) { return __uint_as_float(record); }
    template <class T> static __device__ __forceinline__ uint32_t two(uint32_t c, uint32_t = 0, bool = false)
    {
        typedef codes_of<T> N;
        return N::fma2((c << N::UP & N::E4M3) | (c << 8 & CODES_SIGNS), N::RAISE, CODES_SIGNS);
    }
    template <class T> static __device__ __forceinline__ void pair(uint32_t c, uint32_t &low, uint32_t &high)
    {
        typedef codes_of<T> N;
        low = two<T>(c);
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
    typedef uint32_t record_t;
    enum { UNIT = 64, STEPS = 2 };
    enum : uint32_t { NONE = 0x80000000 };
    static __device__ __forceinline__ void  turn(uint4 &) {}
    static __device__ __forceinline__ float scale(uint32_t record) { return __uint_as_float(record); }
    template <class T> static __device__ __forceinline__ uint32_t two(uint32_t c, uint32_t = 0, bool = false)
    {
        typedef codes_of<T> N;
        const uint32_t      high = N::fma2((c >> 4 & CODES_HALVES) | N::POINT, N::SIXTEEN, N::MIDDLE);
        return N::fma2((c & CODES_HALVES) | N::POINT, N::ONE, high);
    }
    template <class T> static __device__ __forceinline__ uint4 take(const uint4 &v, int s, uint32_t record)
    {
        const uint32_t a = s ? v.z : v.x, b = s ? v.w : v.y;
        (void)record;
        return make_uint4(two<T>(a), two<T>(a >> 8), two<T>(b), two<T>(b >> 8));
    }
};

/* Of experts (moe_codes.cu). */
struct codes_f4 {
    typedef uint8_t record_t;
    enum { UNIT = 128, STEPS = 4 };
    enum : uint32_t { NONE = 0 };
    static __device__ __forceinline__ void  turn(uint4 &v) { v.x = v.z, v.y = v.w; }
    static __device__ __forceinline__ float scale(uint32_t record)
    {
        return __uint_as_float(record ? record << 23 : 1u << 22);
    }
    template <class T> static __device__ __forceinline__ uint32_t two(uint32_t c, uint32_t = 0, bool = false)
    {
        typedef codes_of<T> N;
        return N::fma2((c << N::UP_E2M1 & N::E2M1) | (c << 12 & CODES_SIGNS), N::RAISE_E2M1, CODES_SIGNS);
    }
    template <class T> static __device__ __forceinline__ uint4 take(const uint4 &v, int s, uint32_t record)
    {
        const uint32_t c = s ? v.y : v.x;
        (void)record;
        return make_uint4(two<T>(c), two<T>(c >> 4), two<T>(c >> 8), two<T>(c >> 12));
    }
};

/* The same with the scales of NVFP4: a thread's 8 inputs of a step are of its first 16 or of its last, so numbers come
 * out times their scale, exactly, and what is left to multiply by is the factor of the row, once at the end. */
struct codes_nvf4 : codes_f4 {
    typedef uint16_t                        record_t;
    static __device__ __forceinline__ float scale(uint32_t) { return 1.0f; }
    /* The scale of a step's first 16 inputs or of its last, twice. */
    template <class T> static __device__ __forceinline__ uint32_t by(uint32_t record, bool last)
    {
        return codes_f8::two<T>(__byte_perm(record, 0, last ? 0x4141 : 0x4040));
    }
    template <class T> static __device__ __forceinline__ uint32_t two(uint32_t c, uint32_t record, bool last)
    {
        return codes_of<T>::fma2(codes_f4::two<T>(c), by<T>(record, last), CODES_SIGNS);
    }
    template <class T> static __device__ __forceinline__ uint4 take(const uint4 &v, int s, uint32_t record)
    {
        typedef codes_of<T> N;
        const uint32_t      scale = by<T>(record, threadIdx.x & 2);
        const uint4         code = codes_f4::take<T>(v, s, record);
        return make_uint4(N::fma2(code.x, scale, CODES_SIGNS), N::fma2(code.y, scale, CODES_SIGNS),
                          N::fma2(code.z, scale, CODES_SIGNS), N::fma2(code.w, scale, CODES_SIGNS));
    }
};
/* Do the numbers of a kind have their scale, and its matrices factors? */
template <class C> constexpr bool codes_scaled = false;
template <> constexpr bool        codes_scaled<codes_nvf4> = true;
/* A sum of row r at last. */
template <class C> static __device__ __forceinline__ float codes_end(float sum, const float *factor, uint32_t r)
{
    if constexpr (codes_scaled<C>) return __fmul_rn(sum, __ldg(factor + r));
    (void)factor, (void)r;
    return sum;
}

/* ---------------------------------------------------------------- products */

/* out[m, n] = x[m, k] * w[n, k]^T, of gemm_codes.cu and codes_hopper.cu. */
struct codes_args {
    void           *out;
    const uint16_t *x;
    const uint4    *line;   /* [n][n_line][4] */
    const void     *record; /* [n][n_group] of the kind's record_t */
    const float    *factor; /* [n]; NULL where the kind has none */
    uint32_t        m, n, k;
    uint32_t        n_line, n_group, shift; /* step s is of group s >> shift */
    bool            wide;                   /* out is F32 */
    struct rows_cut cut;
};
/* codes_hopper.cu: by wgmma. For devices with d->wgmma, and rows of x that are whole, aligned multiples of 16 bytes. */
void cuda_codes_hopper(struct cuda_dev *d, const struct codes_args &p, enum dtype code);

/* acc += scale * (32 inputs of 16 rows of w by a group of 8 rows of x). Where numbers have their scale already, mma adds to
 * acc itself. */
template <class T, class C>
static __device__ __forceinline__ void codes_step(float acc[4], const uint4 &top, const uint4 &low, const uint4 &x,
                                                  float scale_top, float scale_low)
{
    if constexpr (codes_scaled<C>) {
        (void)scale_top, (void)scale_low;
        rows_mma32<T>(acc, top, low, x);
        return;
    }
    float d[4] = {};
    rows_mma32<T>(d, top, low, x);
    acc[0] = __fmaf_rn(d[0], scale_top, acc[0]), acc[1] = __fmaf_rn(d[1], scale_top, acc[1]);
    acc[2] = __fmaf_rn(d[2], scale_low, acc[2]), acc[3] = __fmaf_rn(d[3], scale_low, acc[3]);
}
/* Sums of rows r (0, 1) and r + 8 of w by rows `at` and at + 1 of x, where there are any. */
template <class C, class O>
static __device__ __forceinline__ void codes_put4(O *out, const struct codes_args &p, const float *sum, uint32_t at,
                                                  uint32_t r)
{
#pragma unroll
    for (int e = 0; e < 4; e++) {
        const uint32_t row = r + (e >> 1) * 8, x = at + (e & 1);
        if (row < p.n && x < p.m) rows_put(out + (size_t)x * p.n + row, codes_end<C>(sum[e], p.factor, row));
    }
}
/* A thread of four has the record of the step of its number: that of step s. */
static __device__ __forceinline__ uint32_t codes_of_step(uint32_t record, int s)
{
    return __shfl_sync(0xffffffffu, record, s, 4);
}
/* Step s of 32 inputs is of group s >> codes_shift. */
static inline uint32_t codes_shift(uint32_t group)
{
    uint32_t shift = 0;
    if (!group) return 31; /* all of a row */
    while ((uint32_t)CODES_STEP << shift < group) shift++;
    return shift;
}
