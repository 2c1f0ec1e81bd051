/* rows_few: the frame of products of few rows of x. A warp streams 16 rows of w from memory through its registers, for
 * one slice of K; the warps of a block share a tile by slices and meet in shared memory. The loads of the next tile are
 * under way while this one is folded, and the first ones before the wait for the kernel ahead. gemm_rows.cu says in
 * which order sums are made.   Device code of gemm_rows.cu, gemm_fused.cu and moe_route_few.cu, which say where x comes
 * from and what becomes of the sums. */
#pragma once
#include "kernels/cuda/rows.cuh"

struct rows_args {
    void           *out;
    const uint16_t *x, *w;
    uint32_t        m, n, k;
    struct rows_cut cut;
};

/* For other GPUs than sm_90 the compiler wants a few registers more than two blocks leave: where they would spill, less
 * is unrolled there, or under way. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ != 900
#define ROWS_TIGHT 1
#else
#define ROWS_TIGHT 0
#endif

/* Blocks of an SM: what registers allow. */
static constexpr int rows_blocks(int nb, bool vector) { return nb < 4 && vector ? 2 : 1; }

/* Tiles of w: 16 rows that follow each other; HALVES: 8 rows, and the 8 that stand as far behind the middle of w. */
template <bool HALVES> static __host__ __device__ __forceinline__ uint32_t rows_tiles(uint32_t n)
{
    return HALVES ? (n / 2 + ROWS_TILE / 2 - 1) / (ROWS_TILE / 2) : (n + ROWS_TILE - 1) / ROWS_TILE;
}

/* The warps of a tile meet: the first of them adds the others' sums to its own in their order.
 * part: the half of shared memory whose turn it is. Who writes the other half next has passed the barrier here, so nobody
 * reads that any more. */
template <int NB>
static __device__ __forceinline__ void rows_fold(float (&acc)[NB][4], float (&part)[ROWS_WARPS][NB * 4][WARP],
                                                 uint32_t warp, uint32_t lane, bool is_first, uint32_t n_slice)
{
#pragma unroll
    for (int i = 0; i < NB; i++)
#pragma unroll
        for (int e = 0; e < 4; e++) part[warp][i * 4 + e][lane] = acc[i][e];
    __syncthreads();
    for (uint32_t s = 1; is_first && s < n_slice; s++)
#pragma unroll
        for (int i = 0; i < NB; i++)
#pragma unroll
            for (int e = 0; e < 4; e++) acc[i][e] = __fadd_rn(acc[i][e], part[warp + s][i * 4 + e][lane]);
}

/* NB: groups of 8 rows of x. DEEP: loads of w that are under way.
 *   begin()                waits for the kernel ahead and makes x ready; no kernel writes weights
 *   take(i, k, end)        8 numbers of this thread's row of group i, zeros from `end` on
 *   ahead(old, tile), put(sum, old, tile)   by the warps that have the sums of a tile, before and after they are complete:
 *                          of row g of the tile's upper half (0, 1) and of its lower half (2, 3), rows 2t and 2t + 1 of
 *                          a group. old: as many numbers, which ahead may set for put
 * more than eight: two numbers of the frame, and its five places */
template <class T, int NB, int DEEP, bool VECTOR, bool HALVES, class BEGIN, class TAKE, class AHEAD, class PUT>
static __device__ __forceinline__ void rows_few(const struct rows_args &p, BEGIN begin, TAKE take, AHEAD ahead, PUT put)
{
    enum { X = 2 /* loads of x that are under way */ };
    __shared__ float part[2][ROWS_WARPS][NB * 4][WARP];
    const uint32_t   lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, g = lane >> 2, t = lane & 3;
    const uint32_t   side = p.cut.side, slice = warp % side, n_tile = rows_tiles<HALVES>(p.n);
    const uint32_t   each = ROWS_WARPS / side, n_group = (n_tile + each - 1) / each;
    const uint32_t   k0 = slice * p.cut.slice, k1 = min(k0 + p.cut.slice, p.k);
    const uint32_t   n_c = (p.cut.slice / ROWS_STEP + DEEP - 1) / DEEP * DEEP; /* steps, those behind k1 of zeros */
    const uint16_t  *top, *low;
    uint32_t         group = blockIdx.x, parity = 0;
    uint4            a0[DEEP], a1[DEEP], b[X][NB];
    /* rows past the last are computed from the last and not stored */
    auto rows_at = [&](uint32_t of) {
        uint32_t tile = of * each + warp / side;
        if (HALVES) {
            uint32_t r = min(tile * (ROWS_TILE / 2) + g, p.n / 2 - 1);
            top = p.w + (size_t)r * p.k;
            low = top + (size_t)(p.n / 2) * p.k;
        } else {
            uint32_t r = tile * ROWS_TILE + g;
            top = p.w + (size_t)min(r, p.n - 1) * p.k;
            low = p.w + (size_t)min(r + 8, p.n - 1) * p.k;
        }
    };
    rows_at(group);
#pragma unroll
    for (int u = 0; u < DEEP; u++) {
        uint32_t k = k0 + u * ROWS_STEP + t * 8;
        a0[u] = vec_load8<VECTOR, true>(top, k, k1);
        a1[u] = vec_load8<VECTOR, true>(low, k, k1);
    }
    begin();
#pragma unroll
    for (int c = 0; c < X; c++)
#pragma unroll
        for (int i = 0; i < NB; i++) b[c][i] = take(i, k0 + c * ROWS_STEP + t * 8, k1);
    for (; group < n_group; group += gridDim.x, parity ^= 1) {
        float acc[NB][4] = {};
        for (uint32_t c = 0; c < n_c; c += DEEP) {
            uint32_t next = k0 + (c + DEEP) * ROWS_STEP,
                     until = k1; /* loads go on at next, for DEEP steps, and end at until */
            if (c + DEEP == n_c) {
                next = k0;
                if (group + gridDim.x < n_group) {
                    rows_at(group + gridDim.x);
                } else {
                    until = 0;
                    pdl_launch(); /* all of w has been asked for */
                }
            }
#pragma unroll
            for (int u = 0; u < DEEP; u++) {
#pragma unroll
                for (int i = 0; i < NB; i++) rows_mma32<T>(acc[i], a0[u], a1[u], b[u % X][i]);
                uint32_t k = next + u * ROWS_STEP + t * 8, then = c + u + X;
                a0[u] = vec_load8<VECTOR, true>(top, k, until);
                a1[u] = vec_load8<VECTOR, true>(low, k, until);
                if (then >= n_c) then -= n_c; /* every tile has the same x */
#pragma unroll
                for (int i = 0; i < NB; i++) b[u % X][i] = take(i, k0 + then * ROWS_STEP + t * 8, k1);
            }
        }
        const uint32_t tile = group * each + warp / side;
        float          old[NB][4] = {};
        if (slice == 0) ahead(old, tile);
        if (side > 1) rows_fold<NB>(acc, part[parity], warp, lane, slice == 0, p.cut.n_slice);
        if (slice == 0) put(acc, old, tile);
    }
    pdl_launch(); /* a block without work */
}

/* Blocks for them: at most `most` of an SM, which go round the tiles. */
static inline uint32_t rows_grid(const struct cuda_dev *d, uint32_t tiles, uint32_t side, int most)
{
    uint32_t each = ROWS_WARPS / side, groups = (tiles + each - 1) / each, room = (uint32_t)most * (uint32_t)d->n_sm;
    return groups < room ? groups : room;
}
