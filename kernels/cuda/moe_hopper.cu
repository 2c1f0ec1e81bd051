/* moe_hopper: the grouped products of moe_gemm.cuh by wgmma, for experts that have many rows, on sm_90 alone.
 * For moe.cu. truth: kernels/ref/moe.c
 *
 * A block has up to 128 places of one expert and 128 rows of its weights: 64 gate rows and their 64 up rows, or 128
 * rows of `down`. A warp group has 64 of the places; where there are none it brings, and multiplies nothing. All
 * threads bring pieces of 16 bytes, 64 of K at a time, as rows of 128 bytes whose pieces are swizzled. They go into a
 * ring of three stages: one is multiplied, one has come, one is on its way. Two blocks share an SM, so that one
 * multiplies while the other meets at a barrier or has its epilogue. No thread is there for copies alone: whoever
 * brings a piece knows where its row begins, and a gathered row is another for each place. Sums leave by way of shared
 * memory, where a thread finds gates beside ups, and four numbers of a row.
 *
 * K is walked 16 at a time from 0, whatever the tile, with zeros behind its end, and a row of D is one of A's: a row's
 * bits depend neither on the rows beside it nor on how many there are. They are other bits than moe_gemm.cuh's, which
 * takes k in another order. */
#include "base/check.h"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/moe_gemm.cuh"

enum {
    MH_TOKENS = 128, /* places of a tile */
    MH_ROWS = 128,   /* of weights */
    MH_GROUP = 64,   /* places of a warp group */
    MH_THREADS = MH_TOKENS / MH_GROUP * 128,
    MH_BLOCKS = 2, /* of an SM */
    MH_K = 64,
    MH_STAGES = 3,
    MH_ROW = MH_K * 2, /* bytes */
    MH_A = MH_TOKENS * MH_ROW,
    MH_STAGE = MH_A + MH_ROWS * MH_ROW,
    MH_ONCE = MH_THREADS * 16 / MH_ROW, /* rows that all threads bring at once */
    MH_TOKEN_LOADS = MH_TOKENS / MH_ONCE,
    MH_ROW_LOADS = MH_ROWS / MH_ONCE,
    MH_PITCH = MH_ROWS + 8 /* of a row's sums, in floats: rows of a fragment meet all banks */
};
static_assert(MH_TOKENS * MH_PITCH * 4 <= MH_STAGES * MH_STAGE, "the sums fit where the stages were");

#ifdef HOPPER
template <class T> struct mh_type {
    enum { BF16 = true };
};
template <> struct mh_type<__half> {
    enum { BF16 = false };
};

/* acc += the 64 places at a times the 128 rows at b, 64 of K. It is under way then. */
template <class T>
static __device__ __forceinline__ void mh_multiply(float (&acc)[MH_ROWS / 2], const char *a, const char *b, bool add)
{
    constexpr uint64_t LAYOUT = wgmma_layout(SWIZZLE_128, 16, 8 * MH_ROW);
    uint64_t           at_a = wgmma_operand(a, LAYOUT), at_b = wgmma_operand(b, LAYOUT);
    wgmma_hold(acc);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < MH_K / 16; k++)
        wgmma<mh_type<T>::BF16, false, false>(acc, wgmma_step(at_a, k * 32), wgmma_step(at_b, k * 32), add || k);
    wgmma_commit();
}

/* All threads, also where warp groups go different ways, which __syncthreads() is not made for. */
static __device__ __forceinline__ void mh_meet() { part_sync(1, MH_THREADS); }

/* All steps of K, which `load` brings. BUSY: this warp group has places, and acc their sums then. Behind it the stages
 * are free. */
template <class T, bool BUSY, class L>
static __device__ __forceinline__ void mh_walk(float (&acc)[MH_ROWS / 2], const char *smem, uint32_t group,
                                               uint32_t n_step, const L &load)
{
#pragma unroll
    for (uint32_t s = 0; s < MH_STAGES - 1; s++) {
        if (s < n_step) load(s);
        cp_async_commit();
    }
#pragma unroll 1
    for (uint32_t s = 0; s < n_step; s++) {
        const char *stage = smem + s % MH_STAGES * MH_STAGE;
        cp_async_wait<MH_STAGES - 2>();
        fence_async();
        if (BUSY) wgmma_wait<0>(acc);
        mh_meet(); /* step s is there for all, and step s - 1 has been used by all: its stage is free */
        if (BUSY) mh_multiply<T>(acc, stage + group * MH_GROUP * MH_ROW, stage + MH_A, s > 0);
        if (s + MH_STAGES - 1 < n_step) load(s + MH_STAGES - 1);
        cp_async_commit();
    }
    if (BUSY) wgmma_wait<0>(acc);
    mh_meet();
}

/* This warp's 16 places, from `place` on, of which it has written the sums. */
template <class T, bool GATE_UP>
static __device__ __forceinline__ void mh_store(const struct moe_args &p, const struct moe_item &it, uint32_t place,
                                                const float *sums)
{
    enum { OUT = GATE_UP ? MH_ROWS / 2 : MH_ROWS, FOURS = OUT / 4 };
    const uint32_t lane = threadIdx.x & 31, n_out = GATE_UP ? p.inter : p.hidden, mine = place + lane % 16;
    uint32_t       slot = 0;
    float          weight = 0;
    if (!GATE_UP && mine < it.end) {
        slot = p.order[mine];
        weight = moe_weight<true>(p, slot);
    }
#pragma unroll 1
    for (uint32_t v = lane; v < 16 * FOURS; v += 32) {
        const uint32_t row = v / FOURS, at = place + row, r = it.rt * OUT + v % FOURS * 4;
        const float   *from = sums + row * MH_PITCH + v % FOURS * 4;
        const uint32_t to = GATE_UP ? at : __shfl_sync(0xffffffffu, slot, (int)row);
        const float    by = GATE_UP ? 0.0f : __shfl_sync(0xffffffffu, weight, (int)row);
        if (at >= it.end || r >= n_out) continue;
        float4 s = *(const float4 *)from;
        if (GATE_UP) {
            const float4 up = *(const float4 *)(from + OUT);
            s.x = moe_h<true>(p, it, at, r, s.x, up.x);
            s.y = moe_h<true>(p, it, at, r + 1, s.y, up.y);
            s.z = moe_h<true>(p, it, at, r + 2, s.z, up.z);
            s.w = moe_h<true>(p, it, at, r + 3, s.w, up.w);
        } else {
            s.x = by * moe_y<true>(p, it.expert, r, s.x);
            s.y = by * moe_y<true>(p, it.expert, r + 1, s.y);
            s.z = by * moe_y<true>(p, it.expert, r + 2, s.z);
            s.w = by * moe_y<true>(p, it.expert, r + 3, s.w);
        }
        *(uint2 *)((T *)(GATE_UP ? p.h : p.y) + (size_t)to * n_out + r) =
            make_uint2(act_store2<T>(s.x, s.y), act_store2<T>(s.z, s.w));
    }
}
#endif

/* n_k and n_out are multiples of 8, all rows are aligned. */
template <class T, bool GATE_UP>
__global__ void __launch_bounds__(MH_THREADS, MH_BLOCKS) k_moe_hopper(const __grid_constant__ struct moe_args p)
{
#ifdef HOPPER
    enum { OUT = GATE_UP ? MH_ROWS / 2 : MH_ROWS };
    DYN_SMEM_1024(char, smem);
    uint32_t *first = (uint32_t *)(smem + MH_STAGES * MH_STAGE);
    pdl_wait();
    moe_list(first, p.start, p.n_expert, MH_TOKENS);
    const uint32_t tid = threadIdx.x, warp = tid / WARP, lane = tid % WARP, group = warp / 4;
    const uint32_t n_k = GATE_UP ? p.hidden : p.inter, n_out = GATE_UP ? p.inter : p.hidden;
    const uint32_t n_rt = (n_out + OUT - 1) / OUT, n_item = first[p.n_expert] * n_rt, n_step = (n_k + MH_K - 1) / MH_K;
    const uint32_t load_row = tid / (MH_ROW / 16), load_k = tid % (MH_ROW / 16) * VEC;
    const uint32_t put = swizzled<SWIZZLE_128>(load_row * MH_ROW + load_k * 2);
    float         *sums = (float *)smem + warp * 16 * MH_PITCH;
    for (uint32_t item = blockIdx.x; item < n_item; item += gridDim.x) {
        const struct moe_item it = moe_at(first, p.start, p.n_expert, MH_TOKENS, item, n_rt);
        const uint16_t       *w =
            (const uint16_t *)(GATE_UP ? p.gate_up + it.expert * p.gate_up_stride : p.down + it.expert * p.down_stride);
        const uint16_t *token[MH_TOKEN_LOADS], *row[MH_ROW_LOADS];
        uint32_t        token_k[MH_TOKEN_LOADS]; /* n_k, or 0 for a place behind the last */
#pragma unroll
        for (int j = 0; j < MH_TOKEN_LOADS; j++) {
            uint32_t at = it.place + load_row + j * MH_ONCE;
            token_k[j] = at < it.end ? n_k : 0;
            at = min(at, it.end - 1);
            token[j] = (const uint16_t *)(GATE_UP ? p.x : p.h) + (size_t)(GATE_UP ? p.order[at] / p.top_k : at) * n_k;
        }
#pragma unroll
        for (int j = 0; j < MH_ROW_LOADS; j++) { /* rows past the last: the last, not stored */
            uint32_t at = load_row + j * MH_ONCE, r = min(it.rt * OUT + at % OUT, n_out - 1);
            row[j] = w + (size_t)(at / OUT * n_out + r) * n_k;
        }
        auto load = [&](uint32_t step) {
            const uint32_t k = step * MH_K + load_k;
            char          *to = smem + step % MH_STAGES * MH_STAGE + put;
#pragma unroll
            for (int j = 0; j < MH_TOKEN_LOADS; j++)
                cp_async16(to + j * MH_ONCE * MH_ROW, token[j] + (k < token_k[j] ? k : 0), k < token_k[j] ? 16 : 0);
#pragma unroll
            for (int j = 0; j < MH_ROW_LOADS; j++)
                cp_async16(to + MH_A + j * MH_ONCE * MH_ROW, row[j] + (k < n_k ? k : 0), k < n_k ? 16 : 0);
        };
        float acc[MH_ROWS / 2];
        /* An `if` around the products alone would let ptxas put a wait behind each of them. */
        if (it.place + group * MH_GROUP < it.end) {
            mh_walk<T, true>(acc, smem, group, n_step, load);
#pragma unroll
            for (int i = 0; i < MH_ROWS / 4; i++)
                *(float2 *)(sums + (lane / 4 + i % 2 * 8) * MH_PITCH + i / 2 * 8 + lane % 4 * 2) =
                    make_float2(acc[2 * i], acc[2 * i + 1]);
            __syncwarp();
            mh_store<T, GATE_UP>(p, it, it.place + warp * 16, sums);
        } else {
            mh_walk<T, false>(acc, smem, group, n_step, load);
        }
        __syncthreads(); /* before the next item's loads */
    }
    pdl_launch();
#else
    __trap(); /* launched on sm_90 alone */
#endif
}

template <class T, bool GATE_UP> static void mh_launch(struct cuda_dev *d, const struct moe_args &p, uint32_t n_slot)
{
    const uint32_t n_out = GATE_UP ? p.inter : p.hidden, out = GATE_UP ? MH_ROWS / 2 : MH_ROWS;
    const uint64_t tiles = n_slot / MH_TOKENS + (n_slot < p.n_expert ? n_slot : p.n_expert),
                   blocks = tiles * ((n_out + out - 1) / out), all = (uint64_t)d->n_sm * MH_BLOCKS;
    const size_t smem = (size_t)MH_STAGES * MH_STAGE + (p.n_expert + 1) * sizeof(uint32_t);
    LAUNCH((k_moe_hopper<T, GATE_UP>), (uint32_t)(blocks < all ? blocks : all), MH_THREADS, smem, d, p);
    cuda_launched(d, "moe");
}
template <class T> static void mh_either(struct cuda_dev *d, const struct moe_args &p, uint32_t n_row, bool gate_up)
{
    const uint32_t n_slot = n_row * p.top_k; /* here at most */
    if (gate_up)
        mh_launch<T, true>(d, p, n_slot);
    else
        mh_launch<T, false>(d, p, n_slot);
}
void cuda_moe_hopper(struct cuda_dev *d, const struct moe_args &p, uint32_t n_row, bool gate_up)
{
    CHECK(d->wgmma);
    if (d->impl.dev.act == DT_F16)
        mh_either<__half>(d, p, n_row, gate_up);
    else
        mh_either<__nv_bfloat16>(d, p, n_row, gate_up);
}
