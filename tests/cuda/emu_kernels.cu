/* emu_kernels: kernels with planted bugs, for test_emu.c: each must be caught by a schedule, or it would not be on a
 * GPU's watch. Only on the emulator. Launchers: everything on the default stream. */
#ifdef CUDA_EMU
#include "cuda/emu_kernels.h"
#include "kernels/cuda/common.cuh"

typedef __nv_bfloat16 ek_bf16;

/* ---------------------------------------------------------------- a block's sum: out[row] = sum of x[row][0, n) */

template <int BUG> __global__ void __launch_bounds__(256) k_emu_sum(float *out, const float *x, int n)
{
    __shared__ float part[8], total;
    float            v = 0.0f;
    for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x) v += x[(size_t)blockIdx.x * n + i];
    v = warp_sum(v);
    if (threadIdx.x % WARP == 0) part[threadIdx.x / WARP] = v;
    if (BUG != EMU_NO_SYNC) __syncthreads();
    if (BUG == EMU_DIVERGENT_SYNC && threadIdx.x >= WARP) __syncthreads();
    if (threadIdx.x < WARP) {
        v = threadIdx.x < blockDim.x / WARP ? part[threadIdx.x] : 0.0f;
        if (BUG == EMU_MASK) v += 0.0f * __shfl_xor_sync(threadIdx.x < 16 ? 0xffffu : 0xffffffffu, v, 1);
        if (BUG == EMU_MIXED && threadIdx.x < 16) v += (float)__ballot_sync(0xffffffffu, 1);
        v = warp_sum(v);
        if (threadIdx.x == 0) total = v;
    }
    if (BUG != EMU_STATIC_RACE) __syncthreads();
    if (threadIdx.x == blockDim.x - 1) out[blockIdx.x] = total;
}

/* ---------------------------------------------------------------- c[m, n] = a[m, k] * b[n, k]^T by cp.async, ldmatrix
 * and mma 64x64x32 tiles, 4 warps, two stages. k: a multiple of 32. */

enum { EK_TILE = 64, EK_K = 32, EK_LD = EK_K + 8 };

template <int BUG>
__device__ __forceinline__ void ek_load(ek_bf16 *s, const ek_bf16 *g, int row0, int n_row, int k0, int k)
{
    for (int c = (int)threadIdx.x; c < EK_TILE * EK_K / 8; c += 128) {
        int  r = c / (EK_K / 8), q = c % (EK_K / 8) * 8, row = row0 + r;
        bool in = row < n_row;
        if (BUG == EMU_OUT_OF_BOUNDS)
            cp_async16(s + r * EK_LD + q, g + (size_t)row * k + k0 + q, 16);
        else
            cp_async16(s + r * EK_LD + q, g + (size_t)(in ? row : 0) * k + k0 + q, in ? 16 : 0);
    }
}
template <int BUG>
__global__ void __launch_bounds__(128) k_emu_gemm(float *out, const ek_bf16 *a, const ek_bf16 *b, int m, int n, int k)
{
    DYN_SMEM(ek_bf16, sm);
    ek_bf16 *sa = sm, *sb = sm + 2 * EK_TILE * EK_LD;
    int      lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP, m0 = (int)blockIdx.y * EK_TILE,
        n0 = (int)blockIdx.x * EK_TILE;
    float acc[8][4] = {};
    int   n_step = k / EK_K;
    for (int i = -1; i < n_step; i++) {
        if (i + 1 < n_step) {
            int at = (i + 1) & 1;
            ek_load<BUG>(sa + at * EK_TILE * EK_LD, a, m0, m, (i + 1) * EK_K, k);
            ek_load<EMU_NO_BUG>(sb + at * EK_TILE * EK_LD, b, n0, n, (i + 1) * EK_K, k);
            cp_async_commit();
        }
        if (i < 0) continue;
        if (i + 1 < n_step)
            cp_async_wait<BUG == EMU_WAIT_COUNT ? 2 : 1>();
        else
            cp_async_wait<0>();
        __syncthreads();
        const ek_bf16 *ta = sa + (i & 1) * EK_TILE * EK_LD + warp * 16 * EK_LD, *tb = sb + (i & 1) * EK_TILE * EK_LD;
        for (int kk = 0; kk < EK_K; kk += 16) {
            uint32_t af[4];
            ldmatrix_x4(af, ta + lane % 16 * EK_LD + kk + lane / 16 * 8);
            for (int j = 0; j < 8; j += 2) {
                uint32_t bf[4];
                ldmatrix_x4(bf, tb + (j * 8 + lane % 8 + lane / 16 * 8) * EK_LD + kk + lane / 8 % 2 * 8);
                mma_m16n8k16_bf16(acc[j], af, bf, acc[j]);
                mma_m16n8k16_bf16(acc[j + 1], af, bf + 2, acc[j + 1]);
            }
        }
        if (BUG != EMU_NO_LAST_SYNC) __syncthreads();
    }
    for (int j = 0; j < 8; j++)
        for (int i = 0; i < 4; i++) {
            int r = m0 + warp * 16 + lane / 4 + i / 2 * 8, c = n0 + j * 8 + lane % 4 * 2 + i % 2;
            if (r < m && c < n) out[(size_t)r * n + c] = acc[j][i];
        }
}

/* ---------------------------------------------------------------- o[16, 8] = p[16, 16] * v[16, 8], where only the
 * first `len` rows of v were ever written: the rest of the tile must become zeros, because 0 * NaN is NaN */

template <int BUG>
__global__ void __launch_bounds__(32) k_emu_tail(float *o, const ek_bf16 *p, const ek_bf16 *v, int len)
{
    __shared__ __align__(16) ek_bf16 sp[16 * 24], sv[16 * 8];
    int                              lane = (int)threadIdx.x;
    cp_async16(sp + lane / 2 * 24 + lane % 2 * 8, p + lane * 8, 16);
    if (lane < 16) cp_async16(sv + lane * 8, v + lane * 8, BUG == EMU_TAIL || lane < len ? 16 : 0);
    cp_async_commit();
    cp_async_wait<0>();
    __syncthreads();
    uint32_t a[4], b[2];
    float    d[4] = {};
    ldmatrix_x4(a, sp + lane % 16 * 24 + lane / 16 * 8);
    ldmatrix_x2_trans(b, sv + lane % 16 * 8);
    mma_m16n8k16_bf16(d, a, b, d);
    for (int i = 0; i < 4; i++) o[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = d[i];
}

/* ---------------------------------------------------------------- waiting for each other */

/* Each block waits until all `n` blocks of all ranks have arrived, then adds up what they brought. `mine`: of this
 * rank's blocks. */
__global__ void __launch_bounds__(64) k_emu_meet(uint32_t *out, uint32_t *arrived, uint32_t *value, int mine, int n)
{
    __shared__ uint32_t kept; /* must survive that other blocks run meanwhile */
    int                 at = mine + (int)blockIdx.x;
    if (threadIdx.x == 0) {
        kept = 100u + (uint32_t)at;
        value[at] = (uint32_t)at;
        st_release_sys(&arrived[at], 1);
    }
    __syncthreads();
    if ((int)threadIdx.x < n)
        while (!ld_acquire_sys(&arrived[threadIdx.x])) EMU_SPIN();
    __syncthreads();
    if (threadIdx.x == 0) {
        uint32_t sum = kept;
        for (int i = 0; i < n; i++) sum += value[i];
        out[at] = sum;
    }
}
/* The halves of a warp go ways of their own between two meetings of all: allowed. */
__global__ void __launch_bounds__(32) k_emu_halves(uint32_t *out)
{
    uint32_t half = threadIdx.x < 16 ? 0xffffu : 0xffff0000u, v = threadIdx.x;
    if (threadIdx.x < 16)
        v += __shfl_xor_sync(0xffffu, v, 8);
    else
        for (int i = 0; i < 3; i++) v += __shfl_xor_sync(0xffff0000u, v, 1);
    __syncwarp(half);
    out[threadIdx.x] = __reduce_add_sync(0xffffffffu, v);
}
/* out[0] += by, once per launch; the argument is frozen when a graph is captured */
__global__ void __launch_bounds__(32) k_emu_add(float *out, float by)
{
    pdl_wait();
    if (threadIdx.x == 0) out[0] += by;
}
__global__ void __launch_bounds__(64) k_emu_before(float *x, const float *in, int n)
{
    int i = (int)(blockIdx.x * 64 + threadIdx.x);
    pdl_wait();
    if (i < n) x[i] = (float)i + in[0];
    pdl_launch();
}
template <int BUG> __global__ void __launch_bounds__(64) k_emu_after(float *out, const float *x, float *in, int n)
{
    __shared__ int kept; /* of a block that waits while others begin */
    int            i = (int)(blockIdx.x * 64 + threadIdx.x);
    float          v = 0.0f;
    if (threadIdx.x == 5) kept = (int)blockIdx.x * 64;
    if (BUG == EMU_EARLY && i < n) v = x[i];
    if (BUG == EMU_EARLY_WRITE && i == 0) in[0] = 2.0f;
    if (BUG == EMU_LAUNCH_FIRST) pdl_launch();
    __syncthreads();
    if (threadIdx.x % 2) __syncwarp(0xaaaaaaaau);
    pdl_wait();
    pdl_launch();
    if (BUG != EMU_EARLY && i < n) v = x[i];
    if (i < n) out[kept + (int)threadIdx.x] = 2.0f * v;
}
__global__ void __launch_bounds__(32) k_emu_no_wait(float *out) { out[0] = 1.0f; }
__global__ void __launch_bounds__(32) k_emu_static(float *out)
{
    __shared__ float never[32];
    if (threadIdx.x == 99) never[0] = 1.0f;
    out[threadIdx.x] = never[threadIdx.x];
}

/* ---------------------------------------------------------------- conversions, for C */

extern "C" float    emu_half_to_float(uint16_t h) { return __half2float(__ushort_as_half(h)); }
extern "C" uint16_t emu_float_to_half(float f) { return __half_as_ushort(__float2half_rn(f)); }
extern "C" float    emu_bf16_to_float(uint16_t h) { return __bfloat162float(__ushort_as_bfloat16(h)); }
extern "C" uint16_t emu_float_to_bf16(float f) { return __bfloat16_as_ushort(__float2bfloat16_rn(f)); }

/* ---------------------------------------------------------------- launchers */

#define EK_BUG(B, kernel, ...) \
    case B: LAUNCH(kernel<B>, __VA_ARGS__); break
extern "C" void emu_sum(enum emu_bug bug, float *out, const float *x, int rows, int n)
{
    cudaStream_t s = NULL;
    switch (bug) {
        EK_BUG(EMU_NO_BUG, k_emu_sum, rows, 256, 0, s, out, x, n);
        EK_BUG(EMU_NO_SYNC, k_emu_sum, rows, 256, 0, s, out, x, n);
        EK_BUG(EMU_DIVERGENT_SYNC, k_emu_sum, rows, 256, 0, s, out, x, n);
        EK_BUG(EMU_STATIC_RACE, k_emu_sum, rows, 256, 0, s, out, x, n);
        EK_BUG(EMU_MASK, k_emu_sum, rows, 256, 0, s, out, x, n);
        EK_BUG(EMU_MIXED, k_emu_sum, rows, 256, 0, s, out, x, n);
    default: break;
    }
}
extern "C" void emu_gemm(enum emu_bug bug, float *out, const void *a, const void *b, int m, int n, int k)
{
    cudaStream_t   s = NULL;
    size_t         smem = 4 * EK_TILE * EK_LD * sizeof(ek_bf16);
    dim3           grid((unsigned)(n + 63) / 64, (unsigned)(m + 63) / 64);
    const ek_bf16 *x = (const ek_bf16 *)a, *y = (const ek_bf16 *)b;
    switch (bug) {
        EK_BUG(EMU_NO_BUG, k_emu_gemm, grid, 128, smem, s, out, x, y, m, n, k);
        EK_BUG(EMU_WAIT_COUNT, k_emu_gemm, grid, 128, smem, s, out, x, y, m, n, k);
        EK_BUG(EMU_NO_LAST_SYNC, k_emu_gemm, grid, 128, smem, s, out, x, y, m, n, k);
        EK_BUG(EMU_OUT_OF_BOUNDS, k_emu_gemm, grid, 128, smem, s, out, x, y, m, n, k);
    default: break;
    }
}
extern "C" void emu_tail(enum emu_bug bug, float *o, const void *p, const void *v, int len)
{
    cudaStream_t s = NULL;
    if (bug == EMU_TAIL)
        LAUNCH(k_emu_tail<EMU_TAIL>, 1, 32, 0, s, o, (const ek_bf16 *)p, (const ek_bf16 *)v, len);
    else
        LAUNCH(k_emu_tail<EMU_NO_BUG>, 1, 32, 0, s, o, (const ek_bf16 *)p, (const ek_bf16 *)v, len);
}
extern "C" void emu_meet(cudaStream_t s, uint32_t *out, uint32_t *arrived, uint32_t *value, int mine, int blocks, int n)
{
    LAUNCH(k_emu_meet, blocks, 64, 0, s, out, arrived, value, mine, n);
}
extern "C" void emu_add(cudaStream_t s, float *out, float by) { LAUNCH(k_emu_add, 1, 32, 0, s, out, by); }
extern "C" void emu_after(enum emu_bug bug, float *out, float *x, float *in, int n)
{
    struct cuda_dev d = {};
    dim3            grid((unsigned)(n + 63) / 64);
    d.pdl = true;
    cudaStreamCreateWithFlags(&d.stream, cudaStreamNonBlocking);
    LAUNCH(k_emu_before, grid, 64, 0, &d, x, (const float *)in, n);
    switch (bug) {
        EK_BUG(EMU_NO_BUG, k_emu_after, grid, 64, 0, &d, out, x, in, n);
        EK_BUG(EMU_EARLY, k_emu_after, grid, 64, 0, &d, out, x, in, n);
        EK_BUG(EMU_EARLY_WRITE, k_emu_after, grid, 64, 0, &d, out, x, in, n);
        EK_BUG(EMU_LAUNCH_FIRST, k_emu_after, grid, 64, 0, &d, out, x, in, n);
    default: break;
    }
    cudaStreamSynchronize(d.stream);
    cudaStreamDestroy(d.stream);
}
extern "C" void emu_no_wait(float *out)
{
    struct cuda_dev d = {};
    d.pdl = true;
    LAUNCH(k_emu_no_wait, 1, 32, 0, &d, out);
}
extern "C" void emu_halves(uint32_t *out) { LAUNCH(k_emu_halves, 1, 32, 0, (cudaStream_t)NULL, out); }
extern "C" void emu_static(float *out) { LAUNCH(k_emu_static, 1, 32, 0, (cudaStream_t)NULL, out); }
extern "C" void emu_size(unsigned grid, unsigned block, size_t smem, float *out)
{
    emu::launch_kernel(k_emu_static, dim3(grid), dim3(block), smem, NULL, false, 1, out);
}
#endif
