/* rows: what the products share whose rows have the same bits for every number of them: how K is cut, two steps of mma,
 * how results are stored.   Device code of gemm_rows.cu and gemm_codes.cu. */
#pragma once
#include "kernels/cuda/common.cuh"
#include "kernels/cuda/vec.cuh"

enum {
    ROWS_THREADS = 256,
    ROWS_WARPS = ROWS_THREADS / WARP,
    ROWS_TILE = 16,     /* rows of w that a warp has */
    ROWS_STEP = 32,     /* k of two mma */
    ROWS_LEAST = 16,    /* of them in a slice */
    ROWS_WANT = 132 * 8 /* warps that the slices of all tiles should keep busy: of an H100, whatever the GPU is */
};

/* How K is cut: n_slice pieces of `slice` k, the last one shorter. side: warps of a block for one tile, a power of two
 * of at least n_slice. */
struct rows_cut {
    uint32_t slice, n_slice, side;
};
/* unit: k, 64 or more; what a slice is a multiple of. */
static inline struct rows_cut rows_cut(uint32_t n, uint32_t k, uint32_t unit)
{
    uint32_t tiles = (n + ROWS_TILE - 1) / ROWS_TILE, steps = (k + unit - 1) / unit, side = 1;
    while (side < ROWS_WARPS && tiles * side < ROWS_WANT && steps * (unit / ROWS_STEP) >= ROWS_LEAST * side) side *= 2;
    uint32_t each = (steps + side - 1) / side;
    return { each * unit, (steps + each - 1) / each, side };
}

template <class T>
static __device__ __forceinline__ void rows_mma(float d[4], const uint32_t a[4], const uint32_t b[2]);
template <>
__device__ __forceinline__ void rows_mma<__nv_bfloat16>(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    mma_m16n8k16_bf16(d, a, b, d);
}
template <> __device__ __forceinline__ void rows_mma<__half>(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    mma_m16n8k16_f16(d, a, b, d);
}
/* 32 k of 16 rows of w (top: row g, low: row g + 8) and of row g of x */
template <class T>
static __device__ __forceinline__ void rows_mma32(float d[4], const uint4 &top, const uint4 &low, const uint4 &x)
{
    const uint32_t a0[4] = { top.x, low.x, top.y, low.y }, b0[2] = { x.x, x.y };
    const uint32_t a1[4] = { top.z, low.z, top.w, low.w }, b1[2] = { x.z, x.w };
    rows_mma<T>(d, a0, b0);
    rows_mma<T>(d, a1, b1);
}
/* threadIdx.x, asked for behind a tile: what is made of it takes no registers while one is folded. */
static __device__ __forceinline__ uint32_t rows_thread(void)
{
    uint32_t x = threadIdx.x;
    asm volatile("" : "+r"(x));
    return x;
}
/* A sum as the product leaves it, and then with its bias, as the next kernel reads them. */
template <class T> static __device__ __forceinline__ float rows_end(float sum, const float *bias, uint32_t r)
{
    float y = act_load(act_store<T>(sum));
    if (bias) y = act_load(act_store<T>(y + bias[r]));
    return y;
}
static __device__ __forceinline__ void                    rows_put(float *p, float v) { *p = v; }
template <class T> static __device__ __forceinline__ void rows_put(T *p, float v) { *p = act_store<T>(v); }
