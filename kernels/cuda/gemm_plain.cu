/* gemm_plain: out[m, n] = x[m, k] * w[n, k]^T by our own hand, for where cuBLASLt is missing or refuses.
 *   x [m, k], w [n, k] act   out [m, n] act or F32   sums in fp32
 * Exact: every element is a chain of mma steps of 16 along k from 0 to k, whatever m, n or the tile, so a row has the
 * same bits in every batch; elements beyond k are zeros. A block makes BM x 64 of out: BM 64 for many rows, 16 for few.
 * x is the A operand (rows), w the B operand (columns). cp.async brings STAGES tiles of 64 along k; rows of 144 bytes
 * keep ldmatrix free of conflicts. Where k or an address forbids 16-byte loads, elements are loaded one by one. */
#include "kernels/cuda/common.cuh"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/vec.cuh"

enum { PLAIN_THREADS = 128, BN = 64, BK = 64, ROW = BK + 8 };

static __device__ __forceinline__ void plain_mma(float c[4], const uint32_t a[4], const uint32_t b[2], __nv_bfloat16)
{
    mma_m16n8k16_bf16(c, a, b, c);
}
static __device__ __forceinline__ void plain_mma(float c[4], const uint32_t a[4], const uint32_t b[2], __half)
{
    mma_m16n8k16_f16(c, a, b, c);
}
static __device__ __forceinline__ void                    plain_put(float *p, float v) { *p = v; }
template <class T> static __device__ __forceinline__ void plain_put(T *p, float v) { *p = act_store<T>(v); }

/* Rows [r0, r0 + ROWS) x columns [k0, k0 + BK) of src [n_row, k] to tile, zeros outside. */
template <class T, int ROWS, bool VEC>
static __device__ __forceinline__ void plain_take(T (*tile)[ROW], const T *src, uint32_t n_row, uint32_t r0, uint32_t k,
                                                  uint32_t k0)
{
    if (VEC) {
#pragma unroll
        for (int i = threadIdx.x; i < ROWS * (BK / 8); i += PLAIN_THREADS) {
            uint32_t r = i / (BK / 8), c = i % (BK / 8) * 8;
            bool     in = r0 + r < n_row && k0 + c < k;
            cp_async16(&tile[r][c], in ? src + (size_t)(r0 + r) * k + k0 + c : src, in ? 16 : 0);
        }
    } else {
        for (int i = threadIdx.x; i < ROWS * BK; i += PLAIN_THREADS) {
            uint32_t r = i / BK, c = i % BK;
            bool     in = r0 + r < n_row && k0 + c < k;
            T        zero;
            memset(&zero, 0, sizeof zero);
            tile[r][c] = in ? src[(size_t)(r0 + r) * k + k0 + c] : zero;
        }
    }
}

template <class T, class O, int BM, int STAGES, bool VEC>
__global__ void __launch_bounds__(PLAIN_THREADS)
    k_gemm_plain(O *out, const T *x, const T *w, uint32_t m, uint32_t n, uint32_t k)
{
    constexpr int WM = BM == 64 ? 32 : 16, WN = BM == 64 ? 32 : 16; /* of a warp: 2 x 2 of them, or 4 along n */
    __shared__ __align__(16) T xs[STAGES][BM][ROW];
    __shared__ __align__(16) T ws[STAGES][BN][ROW];
    const uint32_t             lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const uint32_t             wm = BM == 64 ? warp / 2 * WM : 0, wn = BM == 64 ? warp % 2 * WN : warp * WN;
    const uint32_t             n0 = blockIdx.x * BN, n_tile = (k + BK - 1) / BK;
    pdl_wait();
    for (uint32_t m0 = blockIdx.y * BM; m0 < m; m0 += gridDim.y * BM) {
        float acc[WM / 16][WN / 8][4];
#pragma unroll
        for (int i = 0; i < WM / 16; i++)
#pragma unroll
            for (int j = 0; j < WN / 8; j++)
#pragma unroll
                for (int e = 0; e < 4; e++) acc[i][j][e] = 0.0f;
#pragma unroll
        for (uint32_t s = 0; s < STAGES - 1; s++) {
            if (s < n_tile) {
                plain_take<T, BM, VEC>(xs[s], x, m, m0, k, s * BK);
                plain_take<T, BN, VEC>(ws[s], w, n, n0, k, s * BK);
            }
            cp_async_commit();
        }
        for (uint32_t t = 0; t < n_tile; t++) {
            cp_async_wait<STAGES - 2>();
            __syncthreads(); /* tile t is there, and everybody is done with the one that is overwritten next */
            uint32_t next = t + STAGES - 1, s = t % STAGES;
            if (next < n_tile) {
                plain_take<T, BM, VEC>(xs[next % STAGES], x, m, m0, k, next * BK);
                plain_take<T, BN, VEC>(ws[next % STAGES], w, n, n0, k, next * BK);
            }
            cp_async_commit();
#pragma unroll
            for (int kk = 0; kk < BK; kk += 16) {
                uint32_t a[WM / 16][4], b[WN / 16][4];
#pragma unroll
                for (int i = 0; i < WM / 16; i++)
                    ldmatrix_x4(a[i], &xs[s][wm + i * 16 + (lane & 15)][kk + (lane >> 4) * 8]);
#pragma unroll
                for (int j = 0; j < WN / 16; j++)
                    ldmatrix_x4(b[j], &ws[s][wn + j * 16 + (lane & 7) + (lane >> 4) * 8][kk + (lane >> 3 & 1) * 8]);
#pragma unroll
                for (int i = 0; i < WM / 16; i++)
#pragma unroll
                    for (int j = 0; j < WN / 8; j++) plain_mma(acc[i][j], a[i], &b[j / 2][j % 2 * 2], T());
            }
        }
        cp_async_wait<0>();
        __syncthreads(); /* the next m0 overwrites the tiles */
#pragma unroll
        for (int i = 0; i < WM / 16; i++)
#pragma unroll
            for (int j = 0; j < WN / 8; j++)
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    uint32_t r = m0 + wm + i * 16 + (lane >> 2) + (e >> 1) * 8,
                             c = n0 + wn + j * 8 + (lane & 3) * 2 + (e & 1);
                    if (r < m && c < n) plain_put(out + (size_t)r * n + c, acc[i][j][e]);
                }
    }
    pdl_launch();
}

template <class T, class O, bool VEC>
static void plain_launch(struct cuda_dev *d, O *out, const T *x, const T *w, uint32_t m, uint32_t n, uint32_t k)
{
    /* 16 and 64 rows: 4 and 2 stages, 46 and 37 KB of shared memory */
    if (m <= 32) {
        dim3 grid((n + BN - 1) / BN, (m + 15) / 16);
        LAUNCH((k_gemm_plain<T, O, 16, 4, VEC>), grid, PLAIN_THREADS, 0, d, out, x, w, m, n, k);
    } else {
        uint32_t tiles = (m + 63) / 64;
        dim3     grid((n + BN - 1) / BN, tiles < 65535 ? tiles : 65535);
        LAUNCH((k_gemm_plain<T, O, 64, 2, VEC>), grid, PLAIN_THREADS, 0, d, out, x, w, m, n, k);
    }
}

template <class T, class O>
static void plain_choose(struct cuda_dev *d, void *out, const void *x, const void *w, uint32_t m, uint32_t n,
                         uint32_t k)
{
    if (k % 8 == 0 && (((uintptr_t)x | (uintptr_t)w) & 15) == 0)
        plain_launch<T, O, true>(d, (O *)out, (const T *)x, (const T *)w, m, n, k);
    else
        plain_launch<T, O, false>(d, (O *)out, (const T *)x, (const T *)w, m, n, k);
}

extern "C" void cuda_gemm_plain(struct cuda_dev *d, void *out, enum dtype out_t, const void *x, const void *w,
                                uint32_t m, uint32_t n, uint32_t k)
{
    bool half = d->impl.dev.act == DT_F16;
    if (out_t == DT_F32)
        half ? plain_choose<__half, float>(d, out, x, w, m, n, k)
             : plain_choose<__nv_bfloat16, float>(d, out, x, w, m, n, k);
    else
        half ? plain_choose<__half, __half>(d, out, x, w, m, n, k)
             : plain_choose<__nv_bfloat16, __nv_bfloat16>(d, out, x, w, m, n, k);
    cuda_launched(d, "gemm");
}
