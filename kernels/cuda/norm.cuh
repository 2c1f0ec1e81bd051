/* norm: what RMSNorm alone and RMSNorm ahead of a product share, so that both give the same bits: how many threads a row
 * has, which numbers each of them adds up, and how a number is scaled.   Device code of norm.cu and fused.cuh.
 * A row of dim numbers has norm_threads(dim) threads. Thread i adds up the squares of the vectors i, i + threads,
 * i + 2 threads, ... one vector after another; those sums are added by a tree over the lanes of a warp, and the warps'
 * by one more. */
#pragma once
#include "kernels/cuda/vec.cuh"

enum {
    NORM_KEEP =
        2, /* vectors of a row that a thread holds in registers: 8192 elements at 512 threads; more are read again */
    NORM_THREADS = 512,
};

/* Threads of a row: a multiple of 32. */
static __host__ __device__ __forceinline__ uint32_t norm_threads(uint32_t dim)
{
    uint32_t threads = (dim + WARP * VEC * NORM_KEEP - 1) / (WARP * VEC * NORM_KEEP) * WARP;
    return threads < NORM_THREADS ? threads : (uint32_t)NORM_THREADS;
}

/* What the numbers of a row are multiplied with, of the sum of their squares. */
__device__ __forceinline__ float norm_scale(float sum, uint32_t dim, float eps)
{
    return 1.0f / sqrtf(sum / (float)dim + eps);
}

/* Sum over the block, the same in every thread. A tree over lanes, then over warps. */
__device__ __forceinline__ float norm_sum(float v)
{
    __shared__ float part[NORM_THREADS / 32];
    unsigned         lane = threadIdx.x & 31, n_warp = blockDim.x / 32;
    v = warp_sum(v);
    if (n_warp == 1) return v;
    if (lane == 0) part[threadIdx.x >> 5] = v;
    __syncthreads();
    v = lane < n_warp ? part[lane] : 0.0f;
    return warp_sum(v);
}

__device__ __forceinline__ void norm_load_w(float f[VEC], const float *w)
{
    float4 a = *(const float4 *)w, b = *(const float4 *)(w + 4);
    f[0] = a.x, f[1] = a.y, f[2] = a.z, f[3] = a.w, f[4] = b.x, f[5] = b.y, f[6] = b.z, f[7] = b.w;
}

/* x (+ delta, which is then stored) as floats, and its squares */
template <class T, bool ADD> __device__ __forceinline__ float norm_take(float f[VEC], uint4 a, uint4 b, T *x)
{
    act_load8<T>(f, a);
    if (ADD) {
        float d[VEC];
        act_load8<T>(d, b);
#pragma unroll
        for (int j = 0; j < VEC; j++) d[j] += f[j];
        a = act_store8<T>(d);
        *(uint4 *)x = a;
        act_load8<T>(f, a);
    }
    float sum = 0.0f;
#pragma unroll
    for (int j = 0; j < VEC; j++) sum = __fmaf_rn(f[j], f[j], sum);
    return sum;
}

template <class T> __device__ __forceinline__ void norm_put(T *out, const float f[VEC], const float w[VEC], float scale)
{
    float y[VEC];
#pragma unroll
    for (int j = 0; j < VEC; j++) y[j] = f[j] * scale * w[j];
    *(uint4 *)out = act_store8<T>(y);
}
