/* common: what every kernel file begins with: types, launches, reductions.   C++17, by nvcc, or by the host compiler on
 * the emulator of tests/emu (CUDA_EMU), whose headers bear the same names as the toolkit's.
 *
 * A kernel begins with pdl_wait() before it reads what the kernel before it wrote, and calls pdl_launch() once its own
 * loads are issued (ptx.cuh). Every name in a .cu carries the file's prefix: on the emulator all kernels live in one
 * program. */
#pragma once
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/ptx.cuh"
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>
#include <string.h>

enum { WARP = 32, SMEM_PLAIN = 48 << 10 }; /* dynamic shared memory that a kernel may have without asking */

/* Dynamic shared memory as T *name, 128-byte aligned. In the emulator it begins as NaN. */
#ifdef CUDA_EMU
#define DYN_SMEM(T, name) T *name = (T *)(void *)emu::B->dyn
#else
#define DYN_SMEM(T, name)                                        \
    extern __shared__ __align__(128) unsigned char name##_raw[]; \
    T                                             *name = (T *)name##_raw
#endif

/* ---------------------------------------------------------------- launches */

struct launch_on {
    cudaStream_t           stream;
    bool                   pdl;  /* the kernel may begin before the one ahead of it has ended                  */
    bool                   skip; /* an earlier launch of this step was refused: this one would read what is not there */
    const struct cuda_dev *dev;  /* NULL: a plain stream */
    uint32_t               cluster; /* blocks along x that reach each other's shared memory (hopper.cuh); 1: none */
};
static inline struct launch_on launch_to(cudaStream_t s, uint32_t cluster = 1)
{
    return launch_on{ s, false, false, NULL, cluster };
}
static inline struct launch_on launch_to(const struct cuda_dev *d, uint32_t cluster = 1)
{
    return launch_on{ d->stream, d->pdl, d->skip, d, cluster };
}

template <class... P, class... A>
static inline void launch_once(void (*k)(P...), dim3 grid, dim3 block, size_t smem, struct launch_on on, A &&...a)
{
    if (smem > SMEM_PLAIN)
        cudaFuncSetAttribute((const void *)k, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)smem);
#ifdef CUDA_EMU
    emu::launch_kernel(k, grid, block, smem, on.stream, on.pdl, on.cluster, static_cast<A &&>(a)...);
#else
    cudaLaunchAttribute attr[2] = {};
    cudaLaunchConfig_t  c = {};
    c.gridDim = grid, c.blockDim = block, c.dynamicSmemBytes = smem, c.stream = on.stream, c.attrs = attr;
    if (on.pdl) {
        attr[c.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attr[c.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
    }
    if (on.cluster > 1) {
        attr[c.numAttrs].id = cudaLaunchAttributeClusterDimension;
        attr[c.numAttrs++].val.clusterDim = { on.cluster, 1, 1 };
    }
    cudaLaunchKernelEx(&c, k, static_cast<P>(a)...);
#endif
}
/* The result is cudaPeekAtLastError's: cuda_launched(d, op) reads it. */
template <class... P, class... A>
static inline void launch(void (*k)(P...), dim3 grid, dim3 block, size_t smem, struct launch_on on, A &&...a)
{
    if (on.skip) return;
    /* One of several launches of an op was refused, and cuda_launched has not read that yet. */
    if (on.dev && cudaPeekAtLastError() != cudaSuccess) return;
    bool again = on.dev && cuda_may_relaunch(on.dev);
    launch_once(k, grid, block, smem, on, static_cast<A &&>(a)...);
    if (again && cudaPeekAtLastError() != cudaSuccess && cuda_relaunch(on.dev))
        launch_once(k, grid, block, smem, on, static_cast<A &&>(a)...);
}
/* kernel<<<grid, block, smem>>>(...) on a struct cuda_dev * (with programmatic dependent launch where the device has
 * it) or on a plain stream. A kernel with a comma in its template arguments goes in parentheses. */
#define LAUNCH(kernel, grid, block, smem, on, ...) \
    launch(kernel, dim3(grid), dim3(block), (size_t)(smem), launch_to(on), __VA_ARGS__)
/* The same in clusters of `n` blocks along x, at most 8, on sm_90: n divides the grid. */
#define LAUNCH_CLUSTER(kernel, n, grid, block, smem, on, ...) \
    launch(kernel, dim3(grid), dim3(block), (size_t)(smem), launch_to(on, n), __VA_ARGS__)

/* In a loop that waits for another block or rank. */
#define EMU_SPIN() spin_pause()

/* ---------------------------------------------------------------- reductions: fixed trees, the same bits in every
 * thread */

__device__ __forceinline__ float warp_sum(float v) { return warp_fold(v, fold_sum()); }
__device__ __forceinline__ float warp_max(float v) { return warp_fold(v, fold_max()); }
/* All threads of a block of N (a multiple of 32); one after another is fine. Over lanes, then over warps. */
template <int N> __device__ __forceinline__ float block_sum(float v)
{
    __shared__ float part[N / WARP];
    v = warp_sum(v);
    if (N == WARP) return v;
    if (threadIdx.x % WARP == 0) part[threadIdx.x / WARP] = v;
    __syncthreads();
    v = threadIdx.x % WARP < N / WARP ? part[threadIdx.x % WARP] : 0.0f;
    __syncthreads();
    return warp_sum(v);
}
template <int N> __device__ __forceinline__ float block_max(float v)
{
    __shared__ float part[N / WARP];
    v = warp_max(v);
    if (N == WARP) return v;
    if (threadIdx.x % WARP == 0) part[threadIdx.x / WARP] = v;
    __syncthreads();
    v = threadIdx.x % WARP < N / WARP ? part[threadIdx.x % WARP] : -INFINITY;
    __syncthreads();
    return warp_max(v);
}
