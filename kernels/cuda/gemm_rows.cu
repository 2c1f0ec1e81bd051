/* gemm_rows: out[m, n] = x[m, k] * w[n, k]^T by our own hand, a row with the same bits for every m.
 *   x [m, k], w [n, k] act   out [m, n] act or F32   sums in fp32
 * Exact by construction. K is cut into slices by the shape of w alone (rows_cut). Within a slice a sum is a chain of
 * mma steps of 16 in one fixed order, from 0; slices are added up in their order, in fp32. Both kernels do that, for
 * any tile; numbers beyond k are zeros, which change no sum (none is -0). Weights are the 16 rows of mma.m16n8k16 and
 * rows of x its 8 columns, and a column of the product depends on that column alone.
 * The order of k: a thread takes 8 consecutive k with one 16-byte load, k = 32c + 8t .. + 7 (t: its number in the group
 * of four), and declares the first four of them its share of one mma, the other four of the next. Both operands are
 * read alike, so neither needs ldmatrix nor a packed form.
 *
 *   k_gemm_rows   few rows of x, which come from L1: the frame of rows_few.cuh
 *   k_gemm_many   128 rows of w times 64 of x per block, both through shared memory by cp.async */
#include "base/check.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/rows_few.cuh"

/* ---------------------------------------------------------------- few rows */

/* NB: groups of 8 rows of x; blockIdx.y: which NB groups. DEEP: loads of w that are under way. */
template <class T, class O, int NB, int DEEP, bool VECTOR>
__global__ void __launch_bounds__(ROWS_THREADS, rows_blocks(NB, VECTOR))
    k_gemm_rows(const __grid_constant__ struct rows_args p)
{
    const uint32_t  lane = threadIdx.x % WARP, g = lane >> 2, t = lane & 3, x0 = blockIdx.y * NB * 8;
    const uint16_t *row[NB];
#pragma unroll
    for (int i = 0; i < NB; i++) row[i] = p.x + (size_t)min(x0 + i * 8 + g, p.m - 1) * p.k;
    auto begin = [] { pdl_wait(); };
    auto take = [&](int i, uint32_t k, uint32_t end) { return vec_load8<VECTOR, false>(row[i], k, end); };
    auto ahead = [](float(&)[NB][4], uint32_t) {};
    auto put = [&](const float(&sum)[NB][4], const float(&)[NB][4], uint32_t tile) {
#pragma unroll
        for (int i = 0; i < NB; i++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                uint32_t r = tile * ROWS_TILE + g + (e >> 1) * 8, at = x0 + i * 8 + t * 2 + (e & 1);
                if (r < p.n && at < p.m) rows_put((O *)p.out + (size_t)at * p.n + r, sum[i][e]);
            }
    };
    rows_few<T, NB, DEEP, VECTOR, false>(p, begin, take, ahead, put);
}

/* ---------------------------------------------------------------- many rows */

enum { MANY_THREADS = 128, MANY_ROWS = 128, MANY_X = 64, MANY_K = 64, MANY_STAGES = 3 };
enum { MANY_ROW = MANY_K * 2, MANY_STAGE = (MANY_ROWS + MANY_X) * MANY_ROW }; /* bytes */

/* k and n are multiples of 8, everything is aligned. 4 warps: two halves of the rows of w, even and odd groups of 8
 * rows of x. blockIdx.x: rows of x, so that neighbours share weights. */
template <class T, class O>
__global__ void __launch_bounds__(MANY_THREADS, 2) k_gemm_many(const __grid_constant__ struct rows_args p)
{
    enum { GROUPS = MANY_X / 16, PITCH = MANY_ROWS + 8 };
    static_assert(MANY_X * PITCH * 2 <= MANY_STAGES * MANY_STAGE, "the results fit where the stages were");
    DYN_SMEM(char, smem);
    const uint32_t tid = threadIdx.x, lane = tid & 31, g = lane >> 2, t = lane & 3, half = tid >> 6, odd = tid >> 5 & 1;
    const uint32_t x0 = blockIdx.x * MANY_X, r0 = blockIdx.y * MANY_ROWS, n_step = (p.k + MANY_K - 1) / MANY_K;
    const uint32_t slice = p.cut.slice / MANY_K;
    /* Rows of 128 bytes; every other row has its halves exchanged, so that 8 lanes that read 64 bytes of two rows meet
     * all banks. */
    const uint32_t load_row = tid >> 3, load_chunk = tid & 7;
    const uint32_t put = load_row * MANY_ROW + ((load_chunk ^ (load_row & 1) << 2) << 4);
    const uint32_t get0 = g * MANY_ROW + t * 16 + ((g & 1) << 6), get1 = get0 ^ 64;
    auto           load = [&](uint32_t step) {
        const uint32_t k = step * MANY_K + load_chunk * VEC;
        const bool     in = k < p.k;
        char          *to = smem + step % MANY_STAGES * MANY_STAGE + put;
#pragma unroll
        for (int j = 0; j < MANY_ROWS / 16; j++) { /* rows past the last: the last, not stored */
            uint32_t r = min(r0 + load_row + j * 16, p.n - 1);
            cp_async16(to + j * 16 * MANY_ROW, p.w + (in ? (size_t)r * p.k + k : 0), in ? 16 : 0);
        }
#pragma unroll
        for (int j = 0; j < MANY_X / 16; j++) {
            uint32_t r = x0 + load_row + j * 16;
            bool     here = in && r < p.m;
            cp_async16(to + (MANY_ROWS + j * 16) * MANY_ROW, p.x + (here ? (size_t)r * p.k + k : 0), here ? 16 : 0);
        }
    };
    float acc[4][GROUPS][4] = {}, sum[4][GROUPS][4] = {};
    pdl_wait();
#pragma unroll
    for (uint32_t s = 0; s < MANY_STAGES - 1; s++) {
        if (s < n_step) load(s);
        cp_async_commit();
    }
    for (uint32_t s = 0; s < n_step; s++) {
        cp_async_wait<MANY_STAGES - 2>();
        __syncthreads(); /* step s is there for all, and step s - 1 has been used by all: its stage is free */
        if (s + MANY_STAGES - 1 < n_step) load(s + MANY_STAGES - 1);
        cp_async_commit();
        if (s && s % slice == 0) { /* a slice has ended; the first is added to 0, which is the slice itself */
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int b = 0; b < GROUPS; b++)
#pragma unroll
                    for (int e = 0; e < 4; e++) {
                        sum[i][b][e] = __fadd_rn(sum[i][b][e], acc[i][b][e]);
                        acc[i][b][e] = 0.0f;
                    }
        }
        const char *rows = smem + s % MANY_STAGES * MANY_STAGE + half * 64 * MANY_ROW;
        const char *xs = smem + s % MANY_STAGES * MANY_STAGE + (MANY_ROWS + odd * 8) * MANY_ROW;
#pragma unroll
        for (int c = 0; c < 2; c++) {
            const uint32_t get = c ? get1 : get0;
            uint4          a[4][2];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                a[i][0] = *(const uint4 *)(rows + i * 16 * MANY_ROW + get);
                a[i][1] = *(const uint4 *)(rows + (i * 16 + 8) * MANY_ROW + get);
            }
#pragma unroll
            for (int b = 0; b < GROUPS; b++) {
                uint4 x = *(const uint4 *)(xs + b * 16 * MANY_ROW + get);
#pragma unroll
                for (int i = 0; i < 4; i++) rows_mma32<T>(acc[i][b], a[i][0], a[i][1], x);
            }
        }
    }
    pdl_launch();
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int b = 0; b < GROUPS; b++)
#pragma unroll
            for (int e = 0; e < 4; e++) acc[i][b][e] = __fadd_rn(sum[i][b][e], acc[i][b][e]);
    cp_async_wait<0>();
    if constexpr (sizeof(O) == 4) {
#pragma unroll
        for (int b = 0; b < GROUPS; b++)
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    uint32_t at = x0 + (b * 2 + odd) * 8 + t * 2 + (e & 1),
                             r = r0 + (half * 4 + i) * 16 + g + (e >> 1) * 8;
                    if (at < p.m && r < p.n) ((O *)p.out)[(size_t)at * p.n + r] = acc[i][b][e];
                }
    } else {
        __syncthreads(); /* the stages are free: results as rows of x, so that they leave 16 bytes at a time */
        O *result = (O *)smem;
#pragma unroll
        for (int b = 0; b < GROUPS; b++)
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    rows_put(result + ((b * 2 + odd) * 8 + t * 2 + (e & 1)) * PITCH + (half * 4 + i) * 16 + g +
                                 (e >> 1) * 8,
                             acc[i][b][e]);
        __syncthreads();
        for (uint32_t v = tid; v < MANY_X * (MANY_ROWS / VEC); v += MANY_THREADS) {
            uint32_t at = x0 + v / (MANY_ROWS / VEC), col = v % (MANY_ROWS / VEC) * VEC;
            if (at >= p.m || r0 + col >= p.n) continue;
            *(uint4 *)((O *)p.out + (size_t)at * p.n + r0 + col) =
                *(const uint4 *)(result + v / (MANY_ROWS / VEC) * PITCH + col);
        }
    }
}

/* ---------------------------------------------------------------- launches */

template <class T, class O, int NB, int DEEP, bool VECTOR>
static void rows_few(struct cuda_dev *d, const struct rows_args &p)
{
    dim3 grid(rows_grid(d, rows_tiles<false>(p.n), p.cut.side, rows_blocks(NB, VECTOR)), (p.m + NB * 8 - 1) / (NB * 8));
    LAUNCH((k_gemm_rows<T, O, NB, DEEP, VECTOR>), grid, ROWS_THREADS, 0, d, p);
}

template <class T, class O> static void rows_choose(struct cuda_dev *d, const struct rows_args &p)
{
    bool wide = p.k % VEC == 0 && (((uintptr_t)p.x | (uintptr_t)p.w) & 15) == 0;
    if (!wide) {
        rows_few<T, O, 2, 2, false>(d, p);
    } else if (p.m <= 8) {
        rows_few<T, O, 1, 6, true>(d, p);
    } else if (p.m <= 16) {
        rows_few<T, O, 2, 6, true>(d, p);
    } else if (p.m <= 32 || p.n % VEC || ((uintptr_t)p.out & 15)) {
        rows_few<T, O, 4, 4, true>(d, p);
    } else {
        dim3 grid((p.m + MANY_X - 1) / MANY_X, (p.n + MANY_ROWS - 1) / MANY_ROWS);
        LAUNCH((k_gemm_many<T, O>), grid, MANY_THREADS, MANY_STAGES * MANY_STAGE, d, p);
    }
}

extern "C" void cuda_gemm_rows(struct cuda_dev *d, void *out, enum dtype out_t, const void *x, const void *w,
                               uint32_t m, uint32_t n, uint32_t k)
{
    bool             half = d->impl.dev.act == DT_F16;
    struct rows_args p = { out, (const uint16_t *)x, (const uint16_t *)w, m, n, k, rows_cut(n, k, 2 * ROWS_STEP) };
    CHECK(m && m <= GEMM_ROWS_MAX && n && k);
    if (out_t == DT_F32)
        half ? rows_choose<__half, float>(d, p) : rows_choose<__nv_bfloat16, float>(d, p);
    else
        half ? rows_choose<__half, __half>(d, p) : rows_choose<__nv_bfloat16, __nv_bfloat16>(d, p);
    cuda_launched(d, "gemm");
}
