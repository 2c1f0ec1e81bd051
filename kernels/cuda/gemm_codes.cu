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
 *   k_codes_rows   few rows of x, as k_gemm_rows: a warp streams 16 rows of codes through its registers, for one slice
 *   k_codes_many   128 rows of w times 64 of x per block: both through shared memory by cp.async, codes as they
 *                  are: one warp alone makes numbers of each */
#include "base/check.h"
#include "kernels/cuda/codes.cuh"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/rows.cuh"

/* ---------------------------------------------------------------- few rows */

/* Blocks of an SM: what registers allow. */
static constexpr int codes_blocks(int nb, bool vector) { return nb < 4 && vector ? 2 : 1; }

/* NB: groups of 8 rows of x; blockIdx.y: which NB groups. DEEP: lines that are under way. VECTOR: of x. */
template <class T, class C, int NB, int DEEP, bool VECTOR>
__global__ void __launch_bounds__(ROWS_THREADS, codes_blocks(NB, VECTOR))
    k_codes_rows(const __grid_constant__ struct codes_args p)
{
    enum { PAIRS = C::STEPS / 2, AHEAD = 2 /* loads of x that are under way */ };
    __shared__ float part[2][ROWS_WARPS][NB * 4][WARP];
    const uint32_t   lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, g = lane >> 2, t = lane & 3;
    const uint32_t   side = p.cut.side, slice = warp % side, n_tile = (p.n + ROWS_TILE - 1) / ROWS_TILE;
    const uint32_t   each = ROWS_WARPS / side, n_group = (n_tile + each - 1) / each;
    const uint32_t   lines = p.cut.slice / C::UNIT, l0 = slice * lines, l1 = min(l0 + lines, p.n_line);
    const uint32_t   k0 = l0 * C::UNIT, k1 = min(k0 + p.cut.slice, p.k);
    const uint32_t   n_l = (lines + DEEP - 1) / DEEP * DEEP, n_step = n_l * C::STEPS; /* those behind l1: of zeros */
    uint32_t         top, low, row[NB], group = blockIdx.x, parity = 0;
    const typename C::record_t *record = (const typename C::record_t *)p.record;
    uint4                       a0[DEEP], a1[DEEP], b[AHEAD][NB];
    uint32_t                    s0[DEEP], s1[DEEP];
    /* rows past the last, of w and of x, are computed from the last and not stored */
    auto rows_at = [&](uint32_t of) {
        uint32_t r = (of * each + warp / side) * ROWS_TILE + g;
        top = min(r, p.n - 1), low = min(r + 8, p.n - 1);
    };
    auto take = [&](int u, uint32_t l,
                    uint32_t until) { /* of w */
                                      const uint4 none = make_uint4(0, 0, 0, 0);
                                      uint32_t    of = min((l * C::STEPS + t % C::STEPS) >> p.shift, p.n_group - 1);
                                      bool        in = l < until;
                                      a0[u] = in ? ld_stream16(p.line + ((top * p.n_line + l) * 4 + t)) : none;
                                      a1[u] = in ? ld_stream16(p.line + ((low * p.n_line + l) * 4 + t)) : none;
                                      s0[u] = in ? __ldg(record + (top * p.n_group + of)) : (uint32_t)C::NONE;
                                      s1[u] = in ? __ldg(record + (low * p.n_group + of)) : (uint32_t)C::NONE;
    };
#pragma unroll
    for (int i = 0; i < NB; i++) row[i] = min((blockIdx.y * NB + i) * 8 + g, p.m - 1) * p.k;
    auto take_x = [&](int i, uint32_t step) {
        return vec_load8<VECTOR, false>(p.x + row[i], k0 + step * ROWS_STEP + t * 8, k1);
    };
    rows_at(group);
#pragma unroll
    for (int u = 0; u < DEEP; u++) take(u, l0 + u, l1);
    pdl_wait(); /* no kernel writes weights */
#pragma unroll
    for (int c = 0; c < AHEAD; c++)
#pragma unroll
        for (int i = 0; i < NB; i++) b[c][i] = take_x(i, c);
    for (; group < n_group; group += gridDim.x, parity ^= 1) {
        float acc[NB][4] = {};
        for (uint32_t c = 0; c < n_l; c += DEEP) {
            uint32_t next = l0 + c + DEEP, until = l1; /* loads go on at next, for DEEP lines, and end at until */
            if (c + DEEP == n_l) {
                next = l0;
                if (group + gridDim.x < n_group) {
                    rows_at(group + gridDim.x);
                } else {
                    until = 0;
                    pdl_launch(); /* all of w has been asked for */
                }
            }
#pragma unroll
            for (int u = 0; u < DEEP; u++) {
#pragma unroll(NB < 4 ? PAIRS : 1)
                for (int pair = 0; pair < PAIRS; pair++) {
#pragma unroll
                    for (int s = 0; s < 2; s++) {
                        const uint32_t of_top = codes_of_step(s0[u], pair * 2 + s);
                        const uint32_t of_low = codes_of_step(s1[u], pair * 2 + s);
                        const uint4    w0 = C::template take<T>(a0[u], s, of_top);
                        const uint4    w1 = C::template take<T>(a1[u], s, of_low);
#pragma unroll
                        for (int i = 0; i < NB; i++)
                            codes_step<T, C>(acc[i], w0, w1, b[s][i], C::scale(of_top), C::scale(of_low));
                        uint32_t then = (c + u) * C::STEPS + pair * 2 + s + AHEAD;
                        if (then >= n_step) then -= n_step; /* every tile has the same x */
#pragma unroll
                        for (int i = 0; i < NB; i++) b[s][i] = take_x(i, then);
                    }
                    C::turn(a0[u]), C::turn(a1[u]);
                }
                take(u, next + u, until);
            }
        }
        if (side > 1) {
#pragma unroll
            for (int i = 0; i < NB; i++)
#pragma unroll
                for (int e = 0; e < 4; e++) part[parity][warp][i * 4 + e][lane] = acc[i][e];
            __syncthreads(); /* who writes the other half next has passed here, so nobody reads it any more */
            for (uint32_t s = 1; slice == 0 && s < p.cut.n_slice; s++)
#pragma unroll
                for (int i = 0; i < NB; i++)
#pragma unroll
                    for (int e = 0; e < 4; e++)
                        acc[i][e] = __fadd_rn(acc[i][e], part[parity][warp + s][i * 4 + e][lane]);
        }
        uint32_t r0 = (group * each + warp / side) * ROWS_TILE + g;
        if (slice) continue;
        auto store = [&](auto *out) {
#pragma unroll
            for (int i = 0; i < NB; i++) codes_put4<C>(out, p, acc[i], (blockIdx.y * NB + i) * 8 + t * 2, r0);
        };
        if (p.wide)
            store((float *)p.out);
        else
            store((T *)p.out);
    }
    pdl_launch(); /* a block without work */
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
static void codes_few(struct cuda_dev *d, const struct codes_args &p)
{
    uint32_t each = ROWS_WARPS / p.cut.side, tiles = (p.n + ROWS_TILE - 1) / ROWS_TILE;
    uint32_t groups = (tiles + each - 1) / each, most = codes_blocks(NB, VECTOR) * (uint32_t)d->n_sm;
    dim3     grid(groups < most ? groups : most, (p.m + NB * 8 - 1) / (NB * 8));
    LAUNCH((k_codes_rows<T, C, NB, DEEP, VECTOR>), grid, ROWS_THREADS, 0, d, p);
}

template <class T, class C> static void codes_choose(struct cuda_dev *d, const struct codes_args &p)
{
    if (p.k % VEC || (uintptr_t)p.x % 16) {
        codes_few<T, C, 2, 2, false>(d, p);
    } else if (p.m <= 8) {
        codes_few<T, C, 1, 4, true>(d, p);
    } else if (p.m <= 16) {
        codes_few<T, C, 2, 2, true>(d, p);
    } else if (p.m <= 32) {
        codes_few<T, C, 4, C::STEPS, true>(d, p);
    } else {
        dim3   grid((p.m + CODES_X - 1) / CODES_X, (p.n + CODES_ROWS - 1) / CODES_ROWS);
        size_t sums = p.cut.n_slice > 1 ? CODES_X * CODES_ROWS * sizeof(float) : 0;
        LAUNCH((k_codes_many<T, C>), grid, CODES_THREADS, CODES_STAGES * codes_stage<C>::BYTES + sums, d, p);
    }
}

template <class T> static void codes_kind(struct cuda_dev *d, const struct codes_args &p, enum dtype code)
{
    switch (code) {
    case DT_I4: codes_choose<T, codes_i4>(d, p); break;
    case DT_F8E4M3: codes_choose<T, codes_f8>(d, p); break;
    case DT_I8: codes_choose<T, codes_i8>(d, p); break;
    case DT_F4E2M1: codes_choose<T, codes_nvf4>(d, p); break;
    default: CHECK(false);
    }
}

extern "C" void cuda_gemm_codes(struct cuda_dev *d, const struct gemm_product *g)
{
    const struct dev_weight *w = g->w;
    struct codes_args        p = {};
    p.out = g->out, p.x = (const uint16_t *)g->x, p.wide = g->out_t == DT_F32;
    p.line = (const uint4 *)w->data, p.record = w->scale, p.factor = (const float *)w->factor;
    p.m = g->m, p.n = w->n, p.k = w->k;
    p.n_line = (uint32_t)(codes_row_bytes(w->dtype, w->k) / CODES_LINE);
    p.n_group = codes_n_record(&w->q, w->k), p.shift = codes_shift(w->q.group);
    p.cut = rows_cut(w->n, w->k, codes_unit(w->dtype));
    CHECK(p.m && p.m <= GEMM_ROWS_MAX && p.n && p.k);
    CHECK((uint64_t)p.m * p.k <= UINT32_MAX && (uint64_t)p.n * p.n_line * 4 <= UINT32_MAX); /* as kernels count */
    CHECK((uint64_t)p.n * p.n_group <= UINT32_MAX);
    CHECK(w->dtype != DT_F4E2M1 || w->factor); /* MXFP4 is of experts alone */
    if (d->wgmma && p.m >= d->wgmma_codes && p.k % VEC == 0 && (uintptr_t)p.x % 16 == 0) {
        cuda_codes_hopper(d, p, w->dtype);
        return;
    }
    d->impl.dev.act == DT_F16 ? codes_kind<__half>(d, p, w->dtype) : codes_kind<__nv_bfloat16>(d, p, w->dtype);
    cuda_launched(d, "gemm");
}
