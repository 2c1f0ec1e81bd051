/* ptx_kernels: each wrapper of ptx.cuh once, for test_ptx.c, which compares with plain loops. The same kernels run on
 * the emulator and on a GPU: a test that passes on both shows that both bodies of a wrapper mean the same. */
#include "cuda/ptx_kernels.h"
#include "kernels/cuda/common.cuh"
#include "kernels/cuda/ptx_pairs.cuh"

enum { PK_LD = 24 }; /* of a 16-wide tile in shared memory: rows 16-byte aligned, not a power of two apart */

/* d[16, 8] = a[16, 16] * b[8, 16]^T + c[16, 8]: every element to the register that the PTX ISA names for it */
template <bool BF16>
__global__ void __launch_bounds__(32) k_ptx_mma(float *d, const uint16_t *a, const uint16_t *b, const float *c)
{
    int      g = (int)threadIdx.x / 4, t = (int)threadIdx.x % 4;
    uint32_t ra[4], rb[2];
    float    rd[4], rc[4];
    for (int i = 0; i < 4; i++) {
        int row = g + i % 2 * 8, col = t * 2 + i / 2 * 8;
        ra[i] = a[row * 16 + col] | (uint32_t)a[row * 16 + col + 1] << 16;
        rc[i] = c[(g + i / 2 * 8) * 8 + t * 2 + i % 2];
    }
    for (int i = 0; i < 2; i++) rb[i] = b[g * 16 + t * 2 + i * 8] | (uint32_t)b[g * 16 + t * 2 + i * 8 + 1] << 16;
    if (BF16)
        mma_m16n8k16_bf16(rd, ra, rb, rc);
    else
        mma_m16n8k16_f16(rd, ra, rb, rc);
    for (int i = 0; i < 4; i++) d[(g + i / 2 * 8) * 8 + t * 2 + i % 2] = rd[i];
}

/* out[lane][m] for n matrices of 8x8 that lie one after another in in[n * 8, 8] */
template <int N, bool TRANS> __global__ void __launch_bounds__(32) k_ptx_ldmatrix(uint32_t *out, const uint16_t *in)
{
    __shared__ __align__(16) uint16_t s[4 * 8 * PK_LD];
    int                               lane = (int)threadIdx.x;
    for (int i = lane; i < 4 * 8 * PK_LD; i += WARP) s[i] = 0xffff;
    __syncwarp();
    for (int i = lane; i < N * 64; i += WARP) s[i / 8 * PK_LD + i % 8] = in[i];
    __syncwarp();
    uint32_t r[4] = {};
    if (N == 4 && !TRANS) ldmatrix_x4(r, s + lane * PK_LD);
    if (N == 4 && TRANS) ldmatrix_x4_trans(r, s + lane * PK_LD);
    if (N == 2 && !TRANS) ldmatrix_x2(r, s + lane % 16 * PK_LD);
    if (N == 2 && TRANS) ldmatrix_x2_trans(r, s + lane % 16 * PK_LD);
    for (int m = 0; m < N; m++) out[lane * N + m] = r[m];
}

/* Thread t copies 16 bytes with t % 17 of them valid, in three groups of two waits; what is not valid becomes zero. */
__global__ void __launch_bounds__(64) k_ptx_cp_async(uint8_t *out, const uint8_t *in)
{
    __shared__ __align__(16) uint8_t s[3 * 64 * 16];
    int                              t = (int)threadIdx.x;
    for (int i = t; i < 3 * 64 * 16; i += 64) s[i] = 0xee;
    __syncthreads();
    for (int g = 0; g < 3; g++) {
        cp_async16(s + (g * 64 + t) * 16, in + (g * 64 + t) * 16, (t + g) % 17);
        cp_async_commit();
    }
    cp_async_wait<1>();
    __syncthreads();
    for (int i = t; i < 2 * 64 * 16; i += 64) out[i] = s[i]; /* two groups are there */
    cp_async_wait<0>();
    __syncthreads();
    for (int i = 2 * 64 * 16 + t; i < 3 * 64 * 16; i += 64) out[i] = s[i];
}

__global__ void __launch_bounds__(32) k_ptx_stream(uint4 *out, const uint4 *in, int n)
{
    for (int i = (int)threadIdx.x; i < n; i += WARP) {
        prefetch_l2(in + i);
        uint4 a = ld_stream16(in + i), b = ld_volatile16(in + i);
        a.x += b.w, a.y += b.z;
        st_stream16(out + i, a);
    }
}

__global__ void __launch_bounds__(256) k_ptx_ex2(float *out, const float *x, int n)
{
    for (int i = (int)threadIdx.x; i < n; i += 256) out[i] = ex2_approx(x[i]);
}

__global__ void __launch_bounds__(256) k_ptx_rcp(float *out, const float *x, int n)
{
    for (int i = (int)threadIdx.x; i < n; i += 256) out[i] = rcp_approx(x[i]);
}

__global__ void __launch_bounds__(256) k_ptx_fma2(bool bf16, uint32_t *out, const uint32_t *x, int n)
{
    for (int i = (int)threadIdx.x; i < n; i += 256)
        out[i] = bf16 ? fma2_bf16(x[i], x[n + i], x[2 * n + i]) : fma2_f16(x[i], x[n + i], x[2 * n + i]);
}

/* A chain of kernels by dependent launch: each reads what the one before wrote, behind its wait. */
__global__ void __launch_bounds__(256) k_ptx_chain(uint32_t *x, int n)
{
    pdl_wait();
    pdl_launch(); /* as early as can be */
    for (int i = (int)threadIdx.x; i < n; i += 256) x[i] = x[i] * 3u + 1u;
}

/* Blocks hand a message on: block i waits for block i - 1 (of those that are resident at once). */
template <bool SYS> __global__ void __launch_bounds__(32) k_ptx_relay(uint32_t *flag, uint32_t *message)
{
    uint32_t b = blockIdx.x;
    if (threadIdx.x == 0) {
        if (b) {
            if (SYS)
                while (ld_acquire_sys(&flag[b - 1]) != 1) EMU_SPIN();
            else
                while (ld_acquire_gpu(&flag[b - 1]) != 1) EMU_SPIN();
        }
        message[b] = (b ? message[b - 1] : 0) + b + 1;
        if (SYS)
            st_release_sys(&flag[b], 1);
        else
            st_release_gpu(&flag[b], 1);
    }
}

/* the trees of common.cuh: out[thread] */
__global__ void __launch_bounds__(256) k_ptx_reduce(float *sum, float *most, const float *x)
{
    float s = block_sum<256>(x[threadIdx.x]), m = block_max<256>(x[threadIdx.x]);
    sum[threadIdx.x] = block_sum<256>(s) / 256.0f;
    most[threadIdx.x] = m;
}
__global__ void __launch_bounds__(256) k_ptx_smem(uint32_t *out, int n)
{
    DYN_SMEM(uint32_t, s);
    for (int i = (int)threadIdx.x; i < n; i += 256) s[i] = (uint32_t)i * 7u;
    __syncthreads();
    for (int i = (int)threadIdx.x; i < n; i += 256) out[i] = s[n - 1 - i];
}

/* ---------------------------------------------------------------- launchers */

extern "C" void ptx_mma(cudaStream_t s, bool bf16, float *d, const uint16_t *a, const uint16_t *b, const float *c)
{
    if (bf16)
        LAUNCH(k_ptx_mma<true>, 1, 32, 0, s, d, a, b, c);
    else
        LAUNCH(k_ptx_mma<false>, 1, 32, 0, s, d, a, b, c);
}
extern "C" void ptx_ldmatrix(cudaStream_t s, int n, bool trans, uint32_t *out, const uint16_t *in)
{
    if (n == 4 && trans)
        LAUNCH((k_ptx_ldmatrix<4, true>), 1, 32, 0, s, out, in);
    else if (n == 4)
        LAUNCH((k_ptx_ldmatrix<4, false>), 1, 32, 0, s, out, in);
    else if (trans)
        LAUNCH((k_ptx_ldmatrix<2, true>), 1, 32, 0, s, out, in);
    else
        LAUNCH((k_ptx_ldmatrix<2, false>), 1, 32, 0, s, out, in);
}
extern "C" void ptx_cp_async(cudaStream_t s, uint8_t *out, const uint8_t *in)
{
    LAUNCH(k_ptx_cp_async, 1, 64, 0, s, out, in);
}
extern "C" void ptx_stream(cudaStream_t s, void *out, const void *in, int n)
{
    LAUNCH(k_ptx_stream, 1, 32, 0, s, (uint4 *)out, (const uint4 *)in, n);
}
extern "C" void ptx_fma2(cudaStream_t s, bool bf16, uint32_t *out, const uint32_t *x, int n)
{
    LAUNCH(k_ptx_fma2, 1, 256, 0, s, bf16, out, x, n);
}
extern "C" void ptx_ex2(cudaStream_t s, float *out, const float *x, int n)
{
    LAUNCH(k_ptx_ex2, 1, 256, 0, s, out, x, n);
}
extern "C" void ptx_rcp(cudaStream_t s, float *out, const float *x, int n)
{
    LAUNCH(k_ptx_rcp, 1, 256, 0, s, out, x, n);
}
extern "C" void ptx_chain(cudaStream_t s, bool pdl, uint32_t *x, int n, int launches)
{
    struct cuda_dev d = {};
    d.stream = s, d.pdl = pdl;
    for (int i = 0; i < launches; i++) LAUNCH(k_ptx_chain, 1, 256, 0, &d, x, n);
}
extern "C" void ptx_relay(cudaStream_t s, bool sys, uint32_t *flag, uint32_t *message, int blocks)
{
    if (sys)
        LAUNCH(k_ptx_relay<true>, blocks, 32, 0, s, flag, message);
    else
        LAUNCH(k_ptx_relay<false>, blocks, 32, 0, s, flag, message);
}
extern "C" void ptx_reduce(cudaStream_t s, float *sum, float *most, const float *x)
{
    LAUNCH(k_ptx_reduce, 1, 256, 0, s, sum, most, x);
}
extern "C" void ptx_smem(cudaStream_t s, uint32_t *out, int n) { LAUNCH(k_ptx_smem, 1, 256, (size_t)n * 4, s, out, n); }
