/* gemm_codes: out[m, n] = x[m, k] * w[n, k]^T where w is codes with scales, a row with the same bits for every m, except
 * with `wgmma`, which gives many rows to codes_hopper.cu.
 *   x [m, k] act   w as codes.h says   out [m, n] act or F32   sums in fp32
 * Exact by construction. 32 inputs are a step: two mma from 0 with the codes' own numbers (less their zeros), which are
 * exact in 16 bits. Its sum is multiplied with the group's scale and added in fp32, fma(step, scale, sum), step after
 * step from the first of a slice. K is cut into slices by the shape of w alone and slices are added up in their order,
 * as in gemm_rows.cu, which says how threads share the inputs of a step too. Both kernels do that, for any tile; inputs
 * beyond k meet zeros of x. So a scale is never rounded to 16 bits, and the size of groups does not show in the order.
 * Of NVFP4 the numbers are those times their scale of E4M3, exact too; a step is added as it is, and the sum of all
 * slices is multiplied with the factor of its output.
 *
 *   k_codes_rows   few rows of x, as k_gemm_rows: the frame of codes_few.cuh
 *   k_codes_many   128 rows of w times 64 of x per block: both through shared memory by cp.async, codes as they
 *                  are: one warp alone makes numbers of each */
#include "kernels/cuda/codes_few.cuh"

/* ---------------------------------------------------------------- few rows */

/* NB: groups of 8 rows of x; blockIdx.y: which NB groups. DEEP: lines that are under way. VECTOR: of x. */
template <class T, class C, int NB, int DEEP, bool VECTOR>
__global__ void __launch_bounds__(ROWS_THREADS, codes_blocks(NB, VECTOR))
    k_codes_rows(const __grid_constant__ struct codes_args p)
{
    const uint32_t lane = threadIdx.x % WARP, g = lane >> 2, t = lane & 3, x0 = blockIdx.y * NB * 8;
    uint32_t       row[NB];
    /* rows past the last, of w and of x, are computed from the last and not stored */
#pragma unroll
    for (int i = 0; i < NB; i++) row[i] = min(x0 + i * 8 + g, p.m - 1) * p.k;
    auto at = [&](uint32_t tile) { return min(tile * ROWS_TILE + g, p.n - 1); };
    auto low_of = [&](uint32_t top) { return min(top + 8, p.n - 1); };
    auto begin = [] { pdl_wait(); };
    auto take = [&](int i, uint32_t k, uint32_t end) { return vec_load8<VECTOR, false>(p.x + row[i], k, end); };
    auto ahead = [](float(&)[NB][4], uint32_t) {};
    auto put = [&](const float(&sum)[NB][4], const float(&)[NB][4], uint32_t tile) {
        auto store = [&](auto *out) {
#pragma unroll
            for (int i = 0; i < NB; i++) codes_put4<C>(out, p, sum[i], x0 + i * 8 + t * 2, tile * ROWS_TILE + g);
        };
        if (p.wide)
            store((float *)p.out);
        else
            store((T *)p.out);
    };
    codes_few<T, C, NB, DEEP, VECTOR>(p, rows_tiles<false>(p.n), at, low_of, begin, take, ahead, put);
}

/* ---------------------------------------------------------------- many rows */

enum { CODES_THREADS = 128, CODES_ROWS = 128, CODES_X = 64, CODES_STAGES = 3 };
/* Bytes of a stage: rows of x, then lines of w. */
template <class C> struct codes_stage {
    enum { BYTES = CODES_X * C::UNIT * 2 + CODES_ROWS * CODES_LINE };
};

/* k is a multiple of 8, x is aligned. 4 warps with 32 rows of w each, all rows of x. blockIdx.x: rows of x, so that
 * neighbours share weights. */
template <class T, class C>
__global__ void __launch_bounds__(CODES_THREADS, 2) k_codes_many(const __grid_constant__ struct codes_args p)
{
    enum { TILES = 2, GROUPS = CODES_X / 8, ROW = C::UNIT * 2, STAGE = codes_stage<C>::BYTES, PIECES = ROW / 16 };
    enum { PITCH = CODES_ROWS + 8, LOADS = CODES_X * PIECES / CODES_THREADS, EACH = CODES_THREADS / PIECES };
    enum { W = CODES_X * ROW, W_EACH = CODES_THREADS / 4, W_LOADS = CODES_ROWS / W_EACH };
    static_assert(CODES_X * PITCH * 2 <= CODES_STAGES * STAGE, "the results fit where the stages were");
    DYN_SMEM(char, smem);
    const uint32_t tid = threadIdx.x, lane = tid & 31, g = lane >> 2, t = lane & 3, mine = tid / 32 * TILES * ROWS_TILE;
    const uint32_t x0 = blockIdx.x * CODES_X, w0 = blockIdx.y * CODES_ROWS, slice = p.cut.slice / C::UNIT;
    /* Every other row has the halves of 128 bytes exchanged, so that 8 lanes that read 64 bytes of two rows meet all
     * banks. */
    const uint32_t load_row = tid / PIECES, piece = tid % PIECES, turn = (g & 1) << 6;
    const uint32_t put = load_row * ROW + ((piece ^ (load_row & 1) << 2) << 4);
    auto           load = [&](uint32_t l) {
        const uint32_t k = l * C::UNIT + piece * VEC;
        char          *to = smem + l % CODES_STAGES * STAGE;
#pragma unroll
        for (int j = 0; j < LOADS; j++) {
            uint32_t r = x0 + load_row + j * EACH;
            bool     here = k < p.k && r < p.m;
            cp_async16(to + put + j * EACH * ROW, p.x + (here ? r * p.k + k : 0), here ? 16 : 0);
        }
#pragma unroll
        for (int j = 0; j < W_LOADS; j++) { /* rows past the last: the last, not stored */
            uint32_t r = tid / 4 + j * W_EACH;
            cp_async16(to + W + r * CODES_LINE + tid % 4 * 16,
                       p.line + ((min(w0 + r, p.n - 1) * p.n_line + l) * 4 + tid % 4));
        }
    };
    uint32_t record[TILES][2];
    auto     records =
        [&](uint32_t l) { /* behind the last line: the last, not used */
                          uint32_t of = min((l * C::STEPS + t % C::STEPS) >> p.shift, p.n_group - 1);
#pragma unroll
                          for (int i = 0; i < TILES; i++)
#pragma unroll
                              for (int h = 0; h < 2; h++)
                                  record[i][h] = __ldg(
                                      (const typename C::record_t *)p.record +
                                      (size_t)min(w0 + mine + i * ROWS_TILE + h * 8 + g, p.n - 1) * p.n_group + of);
        };
    float  acc[TILES][GROUPS][4] = {};
    float *sum = (float *)(void *)(smem + CODES_STAGES * STAGE) + tid; /* of the slices that have ended; not with one */
    records(0);                                                        /* no kernel writes weights */
    pdl_wait();
#pragma unroll
    for (uint32_t l = 0; l < CODES_STAGES - 1; l++) {
        if (l < p.n_line) load(l);
        cp_async_commit();
    }
    for (uint32_t l = 0; l < p.n_line; l++) {
        cp_async_wait<CODES_STAGES - 2>();
        __syncthreads(); /* line l is there for all, and line l - 1 has been used by all: its stage is free */
        if (l + CODES_STAGES - 1 < p.n_line) load(l + CODES_STAGES - 1);
        cp_async_commit();
        if (l && l % slice == 0) { /* a slice has ended */
#pragma unroll
            for (int i = 0; i < TILES; i++)
#pragma unroll
                for (int b = 0; b < GROUPS; b++)
#pragma unroll
                    for (int e = 0; e < 4; e++) {
                        float *at = sum + ((i * GROUPS + b) * 4 + e) * CODES_THREADS;
                        *at = l == slice ? acc[i][b][e] : __fadd_rn(*at, acc[i][b][e]);
                        acc[i][b][e] = 0.0f;
                    }
        }
        const char *xs = smem + l % CODES_STAGES * STAGE + g * ROW + t * 16;
        const char *ws = smem + l % CODES_STAGES * STAGE + W + (mine + g) * CODES_LINE + t * 16;
        uint4       a[TILES][2];
        uint32_t    now[TILES][2];
#pragma unroll
        for (int i = 0; i < TILES; i++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                a[i][h] = *(const uint4 *)(ws + (i * ROWS_TILE + h * 8) * CODES_LINE);
                now[i][h] = record[i][h];
            }
        records(l + 1);
#pragma unroll 1
        for (int pair = 0; pair < C::STEPS / 2; pair++) {
#pragma unroll
            for (int s = 0; s < 2; s++) {
                uint4 w[TILES][2];
                float scale[TILES][2];
#pragma unroll
                for (int i = 0; i < TILES; i++)
#pragma unroll
                    for (int h = 0; h < 2; h++) {
                        const uint32_t r = codes_of_step(now[i][h], pair * 2 + s);
                        w[i][h] = C::template take<T>(a[i][h], s, r);
                        scale[i][h] = C::scale(r);
                    }
#pragma unroll
                for (int b = 0; b < GROUPS; b++) {
                    const uint4 x = *(const uint4 *)(xs + b * 8 * ROW + pair * 128 + ((uint32_t)s * 64 ^ turn));
#pragma unroll
                    for (int i = 0; i < TILES; i++)
                        codes_step<T, C>(acc[i][b], w[i][0], w[i][1], x, scale[i][0], scale[i][1]);
                }
            }
#pragma unroll
            for (int i = 0; i < TILES; i++) C::turn(a[i][0]), C::turn(a[i][1]);
        }
    }
    pdl_launch();
    if (p.n_line > slice) {
#pragma unroll
        for (int i = 0; i < TILES; i++)
#pragma unroll
            for (int b = 0; b < GROUPS; b++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    acc[i][b][e] = __fadd_rn(sum[((i * GROUPS + b) * 4 + e) * CODES_THREADS], acc[i][b][e]);
    }
    cp_async_wait<0>();
    auto store = [&](auto *out) {
#pragma unroll
        for (int b = 0; b < GROUPS; b++)
#pragma unroll
            for (int i = 0; i < TILES; i++)
                codes_put4<C>(out, p, acc[i][b], x0 + b * 8 + t * 2, w0 + mine + i * ROWS_TILE + g);
    };
    if (p.wide) {
        store((float *)p.out);
        return;
    }
    if (p.n % VEC || (uintptr_t)p.out % 16) {
        store((T *)p.out);
        return;
    }
    __syncthreads(); /* the stages are free: results as rows of x, so that they leave 16 bytes at a time */
    T *result = (T *)(void *)smem;
#pragma unroll
    for (int b = 0; b < GROUPS; b++)
#pragma unroll
        for (int i = 0; i < TILES; i++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                rows_put(
                    result + (b * 8 + t * 2 + (e & 1)) * PITCH + mine + i * ROWS_TILE + g + (e >> 1) * 8,
                    codes_end<C>(acc[i][b][e], p.factor, min(w0 + mine + i * ROWS_TILE + g + (e >> 1) * 8, p.n - 1)));
    __syncthreads();
    for (uint32_t v = tid; v < CODES_X * (CODES_ROWS / VEC); v += CODES_THREADS) {
        uint32_t at = x0 + v / (CODES_ROWS / VEC), col = v % (CODES_ROWS / VEC) * VEC;
        if (at >= p.m || w0 + col >= p.n) continue;
        *(uint4 *)((T *)p.out + (size_t)at * p.n + w0 + col) =
            *(const uint4 *)(result + v / (CODES_ROWS / VEC) * PITCH + col);
    }
}

/* ---------------------------------------------------------------- launches */

template <class T, class C, int NB, int DEEP, bool VECTOR>
static void codes_rows(struct cuda_dev *d, const struct codes_args &p)
{
    dim3 grid(rows_grid(d, rows_tiles<false>(p.n), p.cut.side, codes_blocks(NB, VECTOR)),
              (p.m + NB * 8 - 1) / (NB * 8));
    LAUNCH((k_codes_rows<T, C, NB, DEEP, VECTOR>), grid, ROWS_THREADS, 0, d, p);
}

template <class T, class C> static void codes_choose(struct cuda_dev *d, const struct codes_args &p)
{
    if (p.k % VEC || (uintptr_t)p.x % 16) {
        codes_rows<T, C, 2, 2, false>(d, p);
    } else if (p.m <= 8) {
        codes_rows<T, C, 1, 4, true>(d, p);
    } else if (p.m <= 16) {
        codes_rows<T, C, 2, 2, true>(d, p);
    } else if (p.m <= 32) {
        codes_rows<T, C, 4, C::STEPS, true>(d, p);
    } else {
        dim3   grid((p.m + CODES_X - 1) / CODES_X, (p.n + CODES_ROWS - 1) / CODES_ROWS);
        size_t sums = p.cut.n_slice > 1 ? CODES_X * CODES_ROWS * sizeof(float) : 0;
        LAUNCH((k_codes_many<T, C>), grid, CODES_THREADS, CODES_STAGES * codes_stage<C>::BYTES + sums, d, p);
    }
}

template <class T> static void codes_launch(struct cuda_dev *d, const struct codes_args &p, enum dtype code)
{
    codes_kind(code, [&](auto kind) { codes_choose<T, decltype(kind)>(d, p); });
}

extern "C" void cuda_gemm_codes(struct cuda_dev *d, const struct gemm_product *g)
{
    const struct dev_weight *w = g->w;
    struct codes_args        p = codes_args_of(w, g->out, g->x, g->m);
    p.wide = g->out_t == DT_F32;
    if (d->wgmma && p.m >= d->wgmma_codes && p.k % VEC == 0 && (uintptr_t)p.x % 16 == 0) {
        cuda_codes_hopper(d, p, w->dtype);
        return;
    }
    d->impl.dev.act == DT_F16 ? codes_launch<__half>(d, p, w->dtype) : codes_launch<__nv_bfloat16>(d, p, w->dtype);
    cuda_launched(d, "gemm");
}
