/* emu_math: the intrinsics of CUDA as plain C: arithmetic, bits, atomics, cached loads.   C++17, included by
 * cuda_runtime.h. The fast ones (__expf, rsqrtf, ...) are computed exactly here: a test's tolerance must leave room for
 * the device's. */
#pragma once
#include <emu_types.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

/* ---------------------------------------------------------------- arithmetic */

/* macros: the C library has hidden functions of these names */
#define __expf(x)          expf(x)
#define __exp10f(x)        powf(10.0f, x)
#define __logf(x)          logf(x)
#define __log2f(x)         log2f(x)
#define __log10f(x)        log10f(x)
#define __sinf(x)          sinf(x)
#define __cosf(x)          cosf(x)
#define __tanhf(x)         tanhf(x)
#define __powf(x, y)       powf(x, y)
#define __sincosf(x, s, c) sincosf(x, s, c)

static inline float    __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
static inline float    __fmul_rn(float a, float b) { return a * b; }
static inline float    __fadd_rn(float a, float b) { return a + b; }
static inline float    __fsub_rn(float a, float b) { return a - b; }
static inline float    __fdiv_rn(float a, float b) { return a / b; }
static inline float    __fsqrt_rn(float a) { return sqrtf(a); }
static inline float    __frcp_rn(float a) { return 1.0f / a; }
static inline float    __frsqrt_rn(float a) { return (float)(1.0 / sqrt((double)a)); }
static inline double   __dadd_rn(double a, double b) { return a + b; }
static inline double   __dmul_rn(double a, double b) { return a * b; }
static inline double   __fma_rn(double a, double b, double c) { return __builtin_fma(a, b, c); }
static inline float    rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline float    __fdividef(float a, float b) { return a / b; }
static inline float    __saturatef(float x) { return x > 0.0f ? fminf(x, 1.0f) : 0.0f; }
static inline int      __float2int_rn(float x) { return (int)nearbyintf(x); }
static inline int      __float2int_rz(float x) { return (int)x; }
static inline int      __float2int_rd(float x) { return (int)floorf(x); }
static inline int      __float2int_ru(float x) { return (int)ceilf(x); }
static inline unsigned __float2uint_rn(float x) { return (unsigned)nearbyintf(x); }
static inline unsigned __float2uint_rz(float x) { return (unsigned)x; }
static inline float    __int2float_rn(int x) { return (float)x; }
static inline float    __uint2float_rn(unsigned x) { return (float)x; }
static inline float    __ull2float_rn(unsigned long long x) { return (float)x; }
static inline float    __double2float_rn(double x) { return (float)x; }

/* as CUDA: of a number and a NaN, the number */
static inline float  max(float a, float b) { return fmaxf(a, b); }
static inline float  min(float a, float b) { return fminf(a, b); }
static inline double max(double a, double b) { return fmax(a, b); }
static inline double min(double a, double b) { return fmin(a, b); }
#define EMU_MINMAX(T)                                       \
    static inline T max(T a, T b) { return a > b ? a : b; } \
    static inline T min(T a, T b) { return a < b ? a : b; }
EMU_MINMAX(int)
EMU_MINMAX(unsigned)
EMU_MINMAX(long)
EMU_MINMAX(unsigned long)
EMU_MINMAX(long long)
EMU_MINMAX(unsigned long long)

/* ---------------------------------------------------------------- bits */

static inline int                __popc(unsigned x) { return __builtin_popcount(x); }
static inline int                __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int                __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
static inline int                __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
static inline int                __ffs(int x) { return __builtin_ffs(x); }
static inline int                __ffsll(long long x) { return __builtin_ffsll(x); }
static inline unsigned           __umulhi(unsigned a, unsigned b) { return (unsigned)((uint64_t)a * b >> 32); }
static inline int                __mulhi(int a, int b) { return (int)((int64_t)a * b >> 32); }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
    uint64_t al = (uint32_t)a, ah = a >> 32, bl = (uint32_t)b, bh = b >> 32;
    uint64_t mid = ah * bl + (al * bl >> 32), low = (uint32_t)mid + al * bh;
    return ah * bh + (mid >> 32) + (low >> 32);
}
static inline unsigned __brev(unsigned x)
{
    unsigned r = 0;
    for (int i = 0; i < 32; i++) r |= (x >> i & 1u) << (31 - i);
    return r;
}
static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned s)
{
    uint64_t ab = (uint64_t)b << 32 | a;
    unsigned r = 0;
    for (int i = 0; i < 4; i++) r |= (unsigned)(ab >> 8 * (s >> 4 * i & 7u) & 0xffu) << 8 * i;
    return r;
}
static inline unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned n)
{
    return (unsigned)(((uint64_t)hi << 32 | lo) << (n & 31) >> 32);
}
static inline unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned n)
{
    return (unsigned)(((uint64_t)hi << 32 | lo) >> (n & 31));
}

/* ---------------------------------------------------------------- memory */

template <class T> T            __ldg(const T *p) { return *p; }
template <class T> T            __ldcs(const T *p) { return *p; }
template <class T> T            __ldcg(const T *p) { return *p; }
template <class T> T            __ldca(const T *p) { return *p; }
template <class T> void         __stcs(T *p, T v) { *p = v; }
template <class T> void         __stcg(T *p, T v) { *p = v; }
template <class T> void         __stwt(T *p, T v) { *p = v; }
static inline void              __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static inline void              __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static inline void              __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static inline void              __nanosleep(unsigned) {}
[[noreturn]] static inline void __trap() { __builtin_trap(); }

/* old value, new value from it, until nobody came between */
template <class W, class Op> W emu_atomic(W *p, Op op)
{
    W o = __atomic_load_n(p, __ATOMIC_SEQ_CST);
    while (!__atomic_compare_exchange_n(p, &o, op(o), false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {}
    return o;
}
#define EMU_ATOMIC(T)                                                                             \
    static inline T atomicAdd(T *p, T v) { return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST); }   \
    static inline T atomicSub(T *p, T v) { return __atomic_fetch_sub(p, v, __ATOMIC_SEQ_CST); }   \
    static inline T atomicExch(T *p, T v) { return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST); } \
    static inline T atomicOr(T *p, T v) { return __atomic_fetch_or(p, v, __ATOMIC_SEQ_CST); }     \
    static inline T atomicAnd(T *p, T v) { return __atomic_fetch_and(p, v, __ATOMIC_SEQ_CST); }   \
    static inline T atomicXor(T *p, T v) { return __atomic_fetch_xor(p, v, __ATOMIC_SEQ_CST); }   \
    static inline T atomicMax(T *p, T v)                                                          \
    {                                                                                             \
        return emu_atomic(p, [v](T o) { return o > v ? o : v; });                                 \
    }                                                                                             \
    static inline T atomicMin(T *p, T v)                                                          \
    {                                                                                             \
        return emu_atomic(p, [v](T o) { return o < v ? o : v; });                                 \
    }                                                                                             \
    static inline T atomicCAS(T *p, T want, T v)                                                  \
    {                                                                                             \
        __atomic_compare_exchange_n(p, &want, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);      \
        return want;                                                                              \
    }
EMU_ATOMIC(int)
EMU_ATOMIC(unsigned)
EMU_ATOMIC(unsigned long long)
static inline unsigned atomicInc(unsigned *p, unsigned last)
{
    return emu_atomic(p, [last](unsigned o) { return o >= last ? 0u : o + 1u; });
}
static inline float atomicAdd(float *p, float v)
{
    return __uint_as_float(
        emu_atomic((uint32_t *)(void *)p, [v](uint32_t o) { return __float_as_uint(__uint_as_float(o) + v); }));
}
static inline float atomicExch(float *p, float v)
{
    return __uint_as_float(__atomic_exchange_n((uint32_t *)(void *)p, __float_as_uint(v), __ATOMIC_SEQ_CST));
}
