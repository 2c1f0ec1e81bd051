/* attn_hopper: tiles of rows of attention by wgmma, on sm_90 alone.   truth: kernels/ref/attn.c
 *
 * A block has 64 rows of one sequence and two heads that share their K and V. A warp group takes a head, a warp of it 16
 * rows, as in k_attn_tile, whose fragments and softmax these are (attn.cuh): scores of 64 x 64 and the result of 64 x HD
 * are products of the whole warp group, Q and the weights from registers, K and V from shared memory. A third warp group
 * brings K and V by turns into a ring of four tiles, 16 tokens a warp, in rows of 128 bytes whose pieces are swizzled, and
 * gives its registers to the others; barriers say what has come, and what is free again. While one head has its softmax
 * the other multiplies.
 *   After Shah et al. 2024, arXiv:2407.08608, section 3.1. Tiles are of 64 tokens, for then a row's sums are those of the
 * other kernel as far as both kinds of products round alike (tests/cuda/test_hopper.c asks). */
#include "base/check.h"
#include "kernels/cuda/attn_kernels.cuh"
#include "kernels/cuda/hopper.cuh"

enum {
    AH_HEADS = 2,
    AH_SLOTS = 4,
    AH_GROUP = 4,                   /* warps of a warp group */
    AH_WARPS = AH_HEADS * AH_GROUP, /* that multiply */
    AH_THREADS = (AH_WARPS + AH_GROUP) * WARP,
    AH_ROW = 128,      /* bytes */
    AH_REGS_FEW = 40,  /* of a thread that brings K and V; of one that multiplies: */
    AH_REGS_MANY = 232 /* together as many as all have at first, 168 each */
};
static_assert(AH_GROUP * ATTN_GROUP == CUDA_ATTN_KV, "a warp brings 16 tokens of a tile");

struct ah_bars { /* of each slot: it is full, it is free */
    uint64_t full[AH_SLOTS], empty[AH_SLOTS];
};
/* Shared memory: the ring, rows of Q, the barriers. A tile has a panel for each 64 numbers of a head. */
template <int HD> struct ah_smem {
    enum {
        PANEL = CUDA_ATTN_KV * AH_ROW,
        TILE = HD / 64 * PANEL,
        Q = AH_SLOTS * TILE,
        Q_WARP = 16 * attn_dim<HD>::STRIDE,
        BARS = Q + AH_WARPS * Q_WARP,
        BYTES = BARS + sizeof(struct ah_bars)
    };
};

#ifdef HOPPER
/* Where number `column` of token `token` of a tile lies. */
template <int HD> static __device__ __forceinline__ uint32_t ah_at(uint32_t token, uint32_t column)
{
    return column / 64 * ah_smem<HD>::PANEL + swizzled<SWIZZLE_128>(token * AH_ROW + column % 64 * 2);
}

/* ---------------------------------------------------------------- the warps that bring K and V */

/* Where 16 bytes of a token are to lie, of tokens from `row0` on. */
template <int HD> struct ah_row_at {
    char                            *tile;
    uint32_t                         row0;
    __device__ __forceinline__ char *operator()(uint32_t row, uint32_t piece) const
    {
        return tile + ah_at<HD>(row0 + row, piece * 8);
    }
};
/* This warp's part of the tile has come; each lane tells the async proxy of its own pieces. */
static __device__ __forceinline__ void ah_full(struct ah_bars *bars, uint32_t item)
{
    fence_async();
    __syncwarp();
    if ((threadIdx.x & 31) == 0) mbar_arrive(&bars->full[item % AH_SLOTS]);
}
template <int HD, class T>
static __device__ __forceinline__ void ah_bring(const struct attn_args &a, struct attn_feed<T> &f, struct ah_bars *bars)
{
    uint32_t item = 0, mine = threadIdx.x / WARP % AH_GROUP * ATTN_GROUP;
    attn_seek(a, f);
    for (uint32_t t = f.t; t < f.hi; t += CUDA_ATTN_KV) {
        long long at = __shfl_sync(0xffffffffu, f.at, (int)(mine / ATTN_GROUP));
        f.t = t + CUDA_ATTN_KV;
        attn_seek(a, f); /* is there by the time it is needed */
#pragma unroll 1
        for (int v = 0; v < 2; v++, item++) {
            const T *from = f.head + (v ? a.v_offset : 0) + (at < 0 ? 0 : at);
            mbar_wait(&bars->empty[item % AH_SLOTS], (item / AH_SLOTS & 1) ^ 1);
            attn_load16<HD>(ah_row_at<HD>{ f.ring + item % AH_SLOTS * ah_smem<HD>::TILE, mine }, from, at >= 0,
                            t + mine, f.lo, f.hi);
            cp_async_commit();
            if (item == 0) continue;
            cp_async_wait<1>();
            ah_full(bars, item - 1);
        }
    }
    cp_async_wait<0>();
    ah_full(bars, item - 1);
}

/* ---------------------------------------------------------------- the warps that multiply */

static __device__ __forceinline__ void ah_empty(struct ah_bars *bars, uint32_t item)
{
    __syncwarp();
    if ((threadIdx.x & 31) == 0) mbar_arrive(&bars->empty[item % AH_SLOTS]);
}
static __device__ __forceinline__ const char *ah_wait(const char *ring, struct ah_bars *bars, uint32_t item,
                                                      uint32_t tile)
{
    mbar_wait(&bars->full[item % AH_SLOTS], item / AH_SLOTS & 1);
    return ring + item % AH_SLOTS * tile;
}

/* As attn_any_not_finite. */
template <class T, int HD> static __device__ __forceinline__ bool ah_any_not_finite(const char *v)
{
    uint32_t bad = 0;
    for (uint32_t i = threadIdx.x & 31; i < CUDA_ATTN_KV * (HD / 8); i += 32) {
        uint4 w = *(const uint4 *)(v + i * 16);
        bad |= attn_not_finite<T>(w.x) | attn_not_finite<T>(w.y) | attn_not_finite<T>(w.z) | attn_not_finite<T>(w.w);
    }
    return __any_sync(0xffffffffu, bad != 0);
}
/* As attn_sum_careful: what is finite in V by products of a warp, the rest added where it is seen. */
template <class T, int HD>
static __device__ void ah_sum_careful(struct attn_rows<HD, 1> &r, const uint32_t p[1][CUDA_ATTN_KV / 16][4],
                                      const char *v, uint32_t t)
{
    uint32_t lane = threadIdx.x & 31;
#pragma unroll
    for (uint32_t j = 0; j < CUDA_ATTN_KV / 16; j++)
#pragma unroll
        for (uint32_t d = 0; d < HD / 16; d++) {
            uint32_t b[4];
            ldmatrix_x4_trans(b, v + ah_at<HD>(j * 16 + lane / 8 % 2 * 8 + lane % 8, d * 16 + lane / 16 * 8));
#pragma unroll
            for (int x = 0; x < 4; x++) b[x] &= ~attn_not_finite<T>(b[x]);
            attn_type<T>::mma(r.o[0][2 * d], p[0][j], b);
            attn_type<T>::mma(r.o[0][2 * d + 1], p[0][j], b + 2);
        }
#pragma unroll
    for (uint32_t d = 0; d < HD / 8; d++)
#pragma unroll 1
        for (uint32_t j = 0; j < CUDA_ATTN_KV; j++) {
            uint32_t w = *(const uint32_t *)(v + ah_at<HD>(j, d * 8 + (lane & 3) * 2));
            w &= attn_not_finite<T>(w);
            if (!w) continue;
            float x = attn_type<T>::number(w & 0xffffu), y = attn_type<T>::number(w >> 16);
#pragma unroll
            for (int h = 0; h < 2; h++)
                if (t + j >= r.first[h] && t + j <= r.last[h]) r.o[0][d][2 * h] += x, r.o[0][d][2 * h + 1] += y;
        }
}

/* Which tokens rows of a block walk over: [t, hi), t the first of a tile. And which every row of the block sees. */
struct ah_tokens {
    uint32_t t, hi, all_first, all_last;
};
/* All tiles. Behind it r.l is whole. */
template <class T, int HD>
static __device__ __forceinline__ void ah_walk(const struct attn_args &a, char *smem, struct attn_query<HD, 1, 1> &q,
                                               struct attn_rows<HD, 1> &r, struct ah_tokens w)
{
    enum { KV = CUDA_ATTN_KV, PANEL = ah_smem<HD>::PANEL, TILE = ah_smem<HD>::TILE };
    struct ah_bars    *bars = (struct ah_bars *)(smem + ah_smem<HD>::BARS);
    constexpr bool     BF16 = attn_type<T>::LARGEST == 0x7f80u;
    constexpr uint64_t K = wgmma_layout(SWIZZLE_128, 16, 8 * AH_ROW), V = wgmma_layout(SWIZZLE_128, PANEL, 8 * AH_ROW);
    float(&o)[HD / 2] = reinterpret_cast<float(&)[HD / 2]>(r.o);
    attn_clear(r);
    uint32_t t = w.t;
    for (uint32_t item = 0; t < w.hi; t += KV, item += 2) {
        float    s[1][KV / 8][4];
        uint32_t p[1][KV / 16][4];
        float(&scores)[KV / 2] = reinterpret_cast<float(&)[KV / 2]>(s);
        uint64_t k = wgmma_operand(ah_wait(smem, bars, item, TILE), K);
        wgmma_hold(scores);
#pragma unroll
        for (int d = 0; d < HD / 16; d++) wgmma_hold(q.f[d]);
        wgmma_fence();
#pragma unroll
        for (int d = 0; d < HD / 16; d++)
            wgmma<BF16, false>(scores, q.f[d], wgmma_step(k, d / 4 * PANEL + d % 4 * 32), d > 0);
        wgmma_commit();
        wgmma_wait<0>(scores);
        ah_empty(bars, item);
        if (a.cap_out != 0.0f) attn_cap<HD, 1>(s, a.cap_in, a.cap_out);
        attn_softmax<T, HD, 1>(p, s, r, t, t < r.all_first || t + KV - 1 > r.all_last, a.scale);

        const char *v = ah_wait(smem, bars, item + 1, TILE);
        if ((t < w.all_first || t + KV - 1 > w.all_last) && ah_any_not_finite<T, HD>(v)) {
            ah_sum_careful<T, HD>(r, p, v, t);
        } else {
            uint64_t to = wgmma_operand(v, V);
            wgmma_hold(o);
#pragma unroll
            for (int j = 0; j < KV / 16; j++) wgmma_hold(p[0][j]);
            wgmma_fence();
#pragma unroll
            for (int j = 0; j < KV / 16; j++) wgmma<BF16, true>(o, p[0][j], wgmma_step(to, j * 16 * AH_ROW), true);
            wgmma_commit();
            wgmma_wait<0>(o);
        }
        ah_empty(bars, item + 1);
    }
#pragma unroll
    for (int h = 0; h < 2; h++) r.l[0][h] = attn_quad_sum(r.l[0][h]);
}
#endif

template <class T, int HD> __global__ void __launch_bounds__(AH_THREADS, 1) k_attn_hopper(const struct attn_args a)
{
#ifdef HOPPER
    DYN_SMEM_1024(char, smem);
    struct ah_bars *bars = (struct ah_bars *)(smem + ah_smem<HD>::BARS);
    uint32_t thread = threadIdx.x, warp = thread / WARP, n_unit = a.n_head / AH_HEADS, tile = blockIdx.x / n_unit,
             head0 = blockIdx.x % n_unit * AH_HEADS, seq = a.plan.tile_seq[tile];
    uint32_t row0 = a.plan.tile_row[tile];
    uint32_t end = seq == UINT32_MAX ? 0 : min(a.row_start[seq + 1], row0 + CUDA_ATTN_ROWS);
    pdl_wait();
    pdl_launch();
    if (seq == UINT32_MAX || row0 >= end) return;
    if (thread == 0) {
        for (int i = 0; i < AH_SLOTS; i++) {
            mbar_init(&bars->full[i], AH_GROUP);
            mbar_init(&bars->empty[i], AH_WARPS);
        }
        fence_async();
    }
    __syncthreads();
    uint32_t p0 = a.pos[row0], p1 = a.pos[end - 1], lo = attn_first(a, p0), t = lo / CUDA_ATTN_KV * CUDA_ATTN_KV;
    if (warp >= AH_WARPS) {
        regs_give<AH_REGS_FEW>();
        struct attn_feed<T> f;
        attn_feed_of(a, f, smem, seq, head0, lo, p1 + 1);
        f.t = t;
        ah_bring<HD>(a, f, bars);
        return;
    }
    regs_take<AH_REGS_MANY>();
    uint32_t                    head = head0 + warp / 4, row = row0 + warp % 4 * 16, from = min(row, end - 1);
    char                       *q_rows = smem + ah_smem<HD>::Q + warp * ah_smem<HD>::Q_WARP;
    struct attn_query<HD, 1, 1> q;
    struct attn_rows<HD, 1>     r;
    attn_sees(a, r, row, end);
    attn_q_rows<T, HD>(a, q_rows, attn_q_even{ attn_q_row(a, from, head), (size_t)a.width * a.head_dim }, end - from);
    attn_q_take<HD, 1, 1>(q, q_rows);
    ah_walk<T, HD>(a, smem, q, r, ah_tokens{ t, p1 + 1, attn_first(a, p1), p0 });
#pragma unroll
    for (int h = 0; h < 2; h++)
        if (row + (thread & 31) / 4 + 8 * h < end)
            attn_put_rows<HD, 1>(a, r, 0, h, row + (thread & 31) / 4 + 8 * h, head);
#else
    __trap(); /* launched on sm_90 alone */
#endif
}

template <class T> static bool ah_launch(struct cuda_dev *d, const struct attn_args &a)
{
    uint32_t grid = a.plan.n_tile * (a.n_head / AH_HEADS);
    if (a.head_dim == 128)
        LAUNCH((k_attn_hopper<T, 128>), grid, AH_THREADS, ah_smem<128>::BYTES, d, a);
    else
        LAUNCH((k_attn_hopper<T, 64>), grid, AH_THREADS, ah_smem<64>::BYTES, d, a);
    return true;
}
bool cuda_attn_hopper(struct cuda_dev *d, const struct attn_args &a, bool f16)
{
    if (!cuda_attn_wgmma(d, a.n_head, a.n_kv_head, a.head_dim, a.block_tokens)) return false;
    return f16 ? ah_launch<__half>(d, a) : ah_launch<__nv_bfloat16>(d, a);
}
