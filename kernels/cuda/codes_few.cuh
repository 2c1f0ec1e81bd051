/* codes_few: the frame of products of few rows of x by weights that are codes, as rows_few.cuh is that of plain weights: a
 * warp streams the lines of 16 rows of w from memory through its registers, for one slice of K; the warps of a block share
 * a tile by slices and meet in shared memory. The lines of the next tile are under way while this one is folded, and the
 * first ones before the wait for the kernel ahead. gemm_codes.cu says in which order sums are made.   Device code and
 * arguments of gemm_codes.cu and codes_fused.cu, which say where x comes from and what becomes of the sums. */
#pragma once
#include "base/check.h"
#include "kernels/cuda/codes.cuh"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/rows_few.cuh"

/* Blocks of an SM: what registers allow. */
static constexpr int codes_blocks(int nb, bool vector) { return nb < 4 && vector ? 2 : 1; }

/* NB: groups of 8 rows of x. DEEP: lines that are under way. VECTOR: take loads 16 bytes at once.
 *   at(tile)               which row of w is row g of the tile's upper half
 *   low_of(top)            which one, of its lower half, goes with that
 *   begin()                waits for the kernel ahead and makes x ready; no kernel writes weights
 *   take(i, k, end)        8 numbers of this thread's row of group i, zeros from `end` on
 *   ahead(old, tile), put(sum, old, tile)   as of rows_few; sums are what codes_end takes */
template <class T, class C, int NB, int DEEP, bool VECTOR, class AT, class LOW, class BEGIN, class TAKE, class AHEAD,
          class PUT>
static __device__ __forceinline__ void codes_few(const struct codes_args &p, uint32_t n_tile, AT at, LOW low_of,
                                                 BEGIN begin, TAKE take, AHEAD ahead, PUT put)
{
    enum { PAIRS = C::STEPS / 2, X = 2 /* loads of x that are under way */ };
    enum { AT_ONCE = NB < 4 && VECTOR && !ROWS_TIGHT ? PAIRS : 1 /* pairs */ };
    __shared__ float part[2][ROWS_WARPS][NB * 4][WARP];
    const uint32_t   t = threadIdx.x & 3, side = p.cut.side, log_side = (uint32_t)__ffs((int)side) - 1;
    const uint32_t   slice = threadIdx.x / WARP & (side - 1), each = ROWS_WARPS >> log_side;
    const uint32_t   n_group = (n_tile + each - 1) / each;
    const uint32_t   lines = p.cut.slice / C::UNIT, l0 = slice * lines, l1 = min(l0 + lines, p.n_line);
    const uint32_t   k0 = l0 * C::UNIT, k1 = min(k0 + p.cut.slice, p.k);
    const uint32_t   n_l = (lines + DEEP - 1) / DEEP * DEEP, n_step = n_l * C::STEPS; /* those behind l1: of zeros */
    uint32_t         top, group = blockIdx.x, parity = 0;
    const typename C::record_t *record = (const typename C::record_t *)p.record;
    uint4                       a0[DEEP], a1[DEEP], b[X][NB];
    uint32_t                    s0[DEEP], s1[DEEP];
    auto                        take_w = [&](int u, uint32_t l, uint32_t until) {
        const uint4 none = make_uint4(0, 0, 0, 0);
        uint32_t    of = min((l * C::STEPS + t % C::STEPS) >> p.shift, p.n_group - 1);
        uint32_t    low = low_of(top);
        bool        in = l < until;
        a0[u] = in ? ld_stream16(p.line + ((top * p.n_line + l) * 4 + t)) : none;
        a1[u] = in ? ld_stream16(p.line + ((low * p.n_line + l) * 4 + t)) : none;
        s0[u] = in ? __ldg(record + (top * p.n_group + of)) : (uint32_t)C::NONE;
        s1[u] = in ? __ldg(record + (low * p.n_group + of)) : (uint32_t)C::NONE;
    };
    auto tile_of = [&](uint32_t of) { return of * each + (threadIdx.x / WARP >> log_side); };
    auto take_x = [&](int i, uint32_t step) { return take(i, k0 + step * ROWS_STEP + t * 8, k1); };
    top = at(tile_of(group));
#pragma unroll
    for (int u = 0; u < DEEP; u++) take_w(u, l0 + u, l1);
    begin();
#pragma unroll
    for (int c = 0; c < X; c++)
#pragma unroll
        for (int i = 0; i < NB; i++) b[c][i] = take_x(i, c);
    for (; group < n_group; group += gridDim.x, parity ^= 1) {
        float acc[NB][4] = {};
        for (uint32_t c = 0; c < n_l; c += DEEP) {
            uint32_t next = l0 + c + DEEP, until = l1; /* loads go on at next, for DEEP lines, and end at until */
            if (c + DEEP == n_l) {
                next = l0;
                if (group + gridDim.x < n_group) {
                    top = at(tile_of(group + gridDim.x));
                } else {
                    until = 0;
                    pdl_launch(); /* all of w has been asked for */
                }
            }
#pragma unroll
            for (int u = 0; u < DEEP; u++) {
#pragma unroll(AT_ONCE)
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
                        uint32_t then = (c + u) * C::STEPS + pair * 2 + s + X;
                        if (then >= n_step) then -= n_step; /* every tile has the same x */
#pragma unroll
                        for (int i = 0; i < NB; i++) b[s][i] = take_x(i, then);
                    }
                    C::turn(a0[u]), C::turn(a1[u]);
                }
                take_w(u, next + u, until);
            }
        }
        const uint32_t tile = tile_of(group), warp = rows_thread() / WARP, lane = rows_thread() % WARP;
        const bool     is_first = (warp & (side - 1)) == 0;
        float          old[NB][4] = {};
        if (is_first) ahead(old, tile);
        if (side > 1) rows_fold<NB>(acc, part[parity], warp, lane, is_first, p.cut.n_slice);
        if (is_first) put(acc, old, tile);
    }
    pdl_launch(); /* a block without work */
}

/* out = x * w^T, m rows. MXFP4 is of experts alone. */
static inline struct codes_args codes_args_of(const struct dev_weight *w, void *out, const void *x, uint32_t m)
{
    struct codes_args p = {};
    p.out = out, p.x = (const uint16_t *)x;
    p.line = (const uint4 *)w->data, p.record = w->scale, p.factor = (const float *)w->factor;
    p.m = m, p.n = w->n, p.k = w->k;
    p.n_line = (uint32_t)(codes_row_bytes(w->dtype, w->k) / CODES_LINE);
    p.n_group = codes_n_record(&w->q, w->k), p.shift = codes_shift(w->q.group);
    p.cut = rows_cut(w->n, w->k, codes_unit(w->dtype));
    CHECK(p.m && p.m <= GEMM_ROWS_MAX && p.n && p.k);
    CHECK((uint64_t)p.m * p.k <= UINT32_MAX && (uint64_t)p.n * p.n_line * 4 <= UINT32_MAX); /* as kernels count */
    CHECK((uint64_t)p.n * p.n_group <= UINT32_MAX);
    CHECK(w->dtype != DT_F4E2M1 || w->factor);
    return p;
}

/* f(k), where k is of the kind that stands for these codes. */
template <class F> static void codes_kind(enum dtype code, F f)
{
    switch (code) {
    case DT_I4: f(codes_i4()); break;
    case DT_F8E4M3: f(codes_f8()); break;
    case DT_I8: f(codes_i8()); break;
    case DT_F4E2M1: f(codes_nvf4()); break;
    default: CHECK(false);
    }
}
