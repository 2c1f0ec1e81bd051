/* sample: numbers, block-wide steps and the job of the sampler.   Device code of sample.cu.
 * An id in its order is one integer: the larger, the earlier; no two are equal, so nothing depends on who comes
 * first. */
#pragma once
#include "base/rng.h"
#include "kernels/cuda/common.cuh"
#include "kernels/weigh.h"

typedef unsigned long long u64; /* what CUDA's atomics and shuffles take */

enum {
    SAMPLE_KEY_LOW = 0x007fffff,       /* sample_key(-inf) */
    SAMPLE_KEY_HIGH = (int)0xff800000, /* of +inf; a NaN is above */
};

/* Unsigned integers in the order of floats; -0 is 0, NaN is above all. */
__device__ __forceinline__ uint32_t sample_key(float f)
{
    uint32_t b = __float_as_uint(f);
    if (b == 0x80000000u) b = 0;
    if (f != f) return 0xffffffffu;
    return b & 0x80000000u ? ~b : b | 0x80000000u;
}
__device__ __forceinline__ float sample_unkey(uint32_t k)
{
    return __uint_as_float(k & 0x80000000u ? k & 0x7fffffffu : ~k);
}

/* higher first, then the lower id */
__device__ __forceinline__ u64 sample_order(float z, uint32_t id) { return (u64)sample_key(z) << 32 | (uint32_t)~id; }
__device__ __forceinline__ uint32_t sample_id(u64 order) { return ~(uint32_t)order; }
__device__ __forceinline__ float    sample_z(u64 order) { return sample_unkey((uint32_t)(order >> 32)); }
/* Is the best of a row a number to draw from? Nothing (0), -inf, +inf and NaN are not. */
__device__ __forceinline__ bool sample_sane(u64 best)
{
    uint32_t k = (uint32_t)(best >> 32);
    return k > (uint32_t)SAMPLE_KEY_LOW && k < (uint32_t)SAMPLE_KEY_HIGH;
}

/* exp(z - max), 0 where that is below min: step by step v_exp of kernels/cpu/simd_body.h, so that the bits agree; z <=
 * max */
__device__ __forceinline__ float sample_exp(float z, float max, float min)
{
    float x = __fsub_rn(z, max), y = -87.3f > x ? -87.3f : x;
    float t = __fmaf_rn(y, 1.44269504088896341f, 12582912.0f), n = __fsub_rn(t, 12582912.0f);
    float r = __fmaf_rn(n, 2.12194440e-4f, __fmaf_rn(n, -0.693359375f, y)), p = 1.9875691500e-4f;
    p = __fmaf_rn(p, r, 1.3981999507e-3f);
    p = __fmaf_rn(p, r, 8.3334519073e-3f);
    p = __fmaf_rn(p, r, 4.1665795894e-2f);
    p = __fmaf_rn(p, r, 1.6666665459e-1f);
    p = __fmaf_rn(p, r, 5.0000001201e-1f);
    p = __fmaf_rn(p, __fmul_rn(r, r), __fadd_rn(r, 1.0f));
    p = __fmul_rn(p, __uint_as_float((__float_as_uint(t) << 23) + (127u << 23)));
    return -87.3f > x || min > p ? 0.0f : p;
}
/* weigh() of that, in single precision, as in logits_weigh of kernels/cpu/simd_body.h: e is h / 2^21 and a rest of l /
 * 2^42 */
__device__ __forceinline__ u64 sample_weigh(float z, float max, float min)
{
    float e = sample_exp(z, max, min), h = __fadd_rn(e, 4.0f),
          l = __fadd_rn(__fsub_rn(e, __fsub_rn(h, 4.0f)), 0x1.8p-19f);
    int low = (int)(__float_as_uint(l) - __float_as_uint(0x1.8p-19f));
    return ((u64)(__float_as_uint(h) - __float_as_uint(4.0f)) << 21) + (u64)(long long)low;
}

/* ---------------------------------------------------------------- one value per thread, N threads: all must call */

__device__ __forceinline__ u64                            warp_sum_u64(u64 v) { return warp_fold(v, fold_sum()); }
__device__ __forceinline__ u64                            warp_max_u64(u64 v) { return warp_fold(v, fold_max()); }
template <int N, bool MAX> __device__ __forceinline__ u64 block_reduce_u64(u64 v)
{
    __shared__ u64 part[N / WARP];
    v = MAX ? warp_max_u64(v) : warp_sum_u64(v);
    __syncthreads(); /* part may still be read by the call before */
    if (threadIdx.x % WARP == 0) part[threadIdx.x / WARP] = v;
    __syncthreads();
    v = threadIdx.x % WARP < N / WARP ? part[threadIdx.x % WARP] : 0;
    return MAX ? warp_max_u64(v) : warp_sum_u64(v);
}
template <int N> __device__ __forceinline__ u64 block_max_u64(u64 v) { return block_reduce_u64<N, true>(v); }
template <int N> __device__ __forceinline__ u64 block_sum_u64(u64 v) { return block_reduce_u64<N, false>(v); }

/* The sum of the threads before this one; total: of all */
template <int N> __device__ __forceinline__ u64 block_scan_u64(u64 v, u64 *total)
{
    __shared__ u64 part[N / WARP];
    unsigned       lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    u64            in = v; /* inclusive */
#pragma unroll
    for (int d = 1; d < WARP; d <<= 1) {
        u64 o = __shfl_up_sync(0xffffffffu, in, d);
        if (lane >= (unsigned)d) in += o;
    }
    __syncthreads();
    if (lane == WARP - 1) part[warp] = in;
    __syncthreads();
    u64 before = warp_sum_u64(lane < warp ? part[lane] : 0), all = warp_sum_u64(lane < N / WARP ? part[lane] : 0);
    *total = all;
    return before + in - v;
}

/* key[m] into falling order; m a power of two, at least 2 */
template <int N> __device__ __forceinline__ void block_sort_u64(u64 *key, uint32_t m)
{
    for (uint32_t size = 2; size <= m; size <<= 1)
        for (uint32_t step = size / 2; step; step >>= 1) {
            __syncthreads();
            for (uint32_t t = threadIdx.x; t < m / 2; t += N) {
                uint32_t i = (t & ~(step - 1)) * 2 + (t & (step - 1)), k = i + step;
                u64      a = key[i], b = key[k];
                if ((a < b) == ((i & size) == 0)) key[i] = b, key[k] = a;
            }
        }
    __syncthreads();
}

/* ---------------------------------------------------------------- the job */

enum {
    SAMPLE_THREADS = 256,
    SAMPLE_WARPS = SAMPLE_THREADS / WARP,
    SAMPLE_EACH = 16, /* ids per thread */
    SAMPLE_CHUNK = SAMPLE_THREADS * SAMPLE_EACH,
    SAMPLE_TILE = 1024,
    SAMPLE_TILES =
        SAMPLE_CHUNK / SAMPLE_TILE, /* per chunk: thread t has ids t, t + 256, ..: four of them lie in one tile */
    SAMPLE_VOCAB_MAX = 1 << 20,
    SAMPLE_CHUNKS_MAX = SAMPLE_VOCAB_MAX / SAMPLE_CHUNK, /* one per thread */
    SAMPLE_PICK = 1024,                                  /* threads of pick: one per tile, and per id of a tile */
    SAMPLE_MARK_BLOCKS = 4,
    SAMPLE_LIST = 8192,        /* candidates of a row that are sorted */
    SAMPLE_COUNT = 0x0fffffff, /* marks: how often in the answer */
    SAMPLE_SEEN = 1 << 28,
    SAMPLE_ALLOWED = 1 << 29,
    SAMPLE_BANNED = 1 << 30,
};
#define SAMPLE_BIASED 0x80000000u

/* What a launch works on. A row of op_logprob is one whose id is given. */
struct sample_job {
    struct op_sample o; /* row NULL: given */
    const uint32_t  *given;
    uint32_t         n_top, n_chunk;
    u64             *raw_best, *raw_sum; /* [n][n_chunk] */
    u64             *top;                /* [n][n_chunk][OP_SAMPLE_TOP_MAX] falling; 0: no more */
    u64             *z_best;             /* [n][n_chunk][SAMPLE_WARPS] */
    u64             *tile;               /* [n][n_chunk][SAMPLE_TILES] */
    u64             *list;               /* [n][SAMPLE_LIST] */
    uint32_t        *n_list;             /* [n] above SAMPLE_LIST: some are missing */
    float           *bar;                /* [n] rank counts what is above */
    float           *z;                  /* [n][vocab]; marks until adjust */
};

enum sample_kind {
    SAMPLE_SKIP, /* padding */
    SAMPLE_NONE, /* no id was given */
    SAMPLE_GIVEN,
    SAMPLE_GREEDY, /* the best of the raw logits */
    SAMPLE_FULL,
};

__device__ __forceinline__ bool sample_is_k(const struct sample_job &j, const struct op_sample_row &r)
{
    return r.top_k && r.top_k < j.o.vocab;
}
__device__ __forceinline__ bool  sample_is_p(const struct op_sample_row &r) { return r.top_p < 1.0f; }
__device__ __forceinline__ float sample_min_p(const struct op_sample_row &r) { return r.min_p < 1.0f ? r.min_p : 1.0f; }
