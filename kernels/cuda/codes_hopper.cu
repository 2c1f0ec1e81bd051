/* codes_hopper: out[m, n] = x[m, k] * w[n, k]^T where w is codes with scales, for many rows, by wgmma on sm_90 alone.
 * For gemm_codes.cu. truth: kernels/ref/gemm.c
 *
 * A tile is 128 rows of w times 128 of x, and a stage 128 inputs of both. Two blocks, a cluster, have the same rows of x:
 * of each stage, which is two panels of 64 inputs whose rows of 128 bytes are swizzled, each brings one to both by a tensor
 * copy. Codes come by cp.async, as they are. A warp group has 64 rows of w. They are the products'
 * A, in registers: a thread makes numbers of its own codes alone, for no other, and scales are of its two rows. x is B.
 * A thread needs a pair of each 8 inputs, where codes.h lays 8 of one thread together for mma.sync; so the four threads
 * of a row read each other's words too, with one access for all four. While one panel is multiplied the numbers of the
 * next are made. All threads bring, two stages ahead; barriers say what has come and what is free again, so that one
 * warp group multiplies while the other adds up. A block has one tile after another, and the stages of the next are on
 * their way while it stores.
 *
 * Exact by construction as far as gemm_codes.cu is: the numbers are exact, and no scale is rounded to 16 bits. FOLD steps
 * of 32 inputs are summed from 0 by wgmma, k rising, with zeros behind the end; their sum times the group's scale is added
 * in fp32, fma(sum, scale, acc). FOLD is 4, and 1 for groups of less than 128. Of NVFP4 nothing is folded: wgmma adds to
 * one sum from the first input to the last. K is not cut. That is the order for any m, a row of x is a column of B alone, and
 * so a row's bits depend neither on the rows beside it nor on how many there are. They are other bits than gemm_codes.cu's.
 *
 * What it should cost, in cycles of an SM for 16 inputs of a tile: products 128; x read by them from shared memory 64, x
 * written 32, codes written 8 or 16 (4 bits, 8 bits) and read 16 to 32, so shared memory is as busy as products are.
 * Instructions of a scheduler are 70 to 80 % of those cycles with folds by 4. L2 gives 12 or 16 KB for 64 inputs, 8 more
 * if each block brought both panels. */
#include "base/check.h"
#include "kernels/cuda/codes.cuh"
#include "kernels/cuda/hopper.cuh"

enum {
    CH_ROWS = 128, /* of w */
    CH_X = 128,    /* rows of x */
    CH_K = 128,
    CH_STAGES = 4,
    CH_AHEAD = CH_STAGES - 2, /* the stage before is still read by the other warp group */
    CH_THREADS = CH_ROWS / 64 * 128,
    CH_WARPS = CH_THREADS / WARP,
    CH_PANELS = CH_K / TENSOR_COLS,
    CH_CLUSTER = CH_PANELS, /* blocks: each brings a panel */
    CH_LINE = 128,          /* bytes of a row of a panel */
    CH_PANEL = CH_X * CH_LINE,
    CH_SUMS = CH_X / 2,      /* of a thread */
    CH_PUT = 64,             /* rows of x that a warp stores at a time */
    CH_PITCH = ROWS_TILE + 8 /* numbers of such a row, and some so that rows meet other banks */
};
struct ch_bars { /* of each slot: it is full, it is free */
    uint64_t full[CH_STAGES], empty[CH_STAGES];
};
/* Shared memory: stages of two panels and of codes, each warp's room for results, the barriers. */
template <class C> struct ch_smem {
    enum {
        LINES = CH_K / C::UNIT,
        CODES = CH_PANELS * CH_PANEL,
        STAGE = CODES + LINES * CH_ROWS * CODES_LINE,
        PUT = CH_STAGES * STAGE,
        BARS = PUT + CH_WARPS * CH_PUT * CH_PITCH * 2,
        BYTES = BARS + sizeof(struct ch_bars)
    };
    static_assert(STAGE % 1024 == 0 && BYTES <= 227 << 10, "what a block may have, patterns where they may begin");
};
/* Items: what the blocks of a cluster do at once, a tile each. Those of x first, so that neighbours share rows of w. */
static __device__ __host__ __forceinline__ uint32_t ch_items(const struct codes_args &p)
{
    return (p.m + CH_X - 1) / CH_X * ((p.n + CH_ROWS * CH_CLUSTER - 1) / (CH_ROWS * CH_CLUSTER));
}

#ifdef HOPPER
template <class T> constexpr bool ch_bf16 = true;
template <> constexpr bool        ch_bf16<__half> = false;

/* The numbers of panel 0 or 1 of a stage: of its 16 inputs i a thread's part of A in a[i]. codes: this thread's row g of
 * the stage's lines. record: of rows g and g + 8, each thread of four has those of its step. */
template <class T, class C>
static __device__ __forceinline__ void ch_take(uint32_t (&a)[4][4], const char *codes, const uint32_t (&record)[2],
                                               int panel)
{
    constexpr bool NARROW = (int)C::UNIT == CH_K; /* 4 bits */
    const uint32_t t = threadIdx.x & 3, turn = threadIdx.x / 8 & 3;
    uint32_t       r[2][2]; /* of a step and a row */
#pragma unroll
    for (int s = 0; s < 2; s++)
#pragma unroll
        for (int h = 0; h < 2; h++) r[s][h] = codes_of_step(record[h], panel * 2 + s);
#pragma unroll
    for (uint32_t piece = 0; piece < 4; piece++) /* of 8 inputs of a step */
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const char *from = codes + h * 8 * CODES_LINE + ((piece ^ turn) << 4);
            uint2       w; /* of both steps */
            if (NARROW) {
                w = *(const uint2 *)(from + panel * 8);
                w.x >>= 4 * t, w.y >>= 4 * t;
            } else {
                const char *at = from + panel * CH_ROWS * CODES_LINE + t / 2 * 4;
                w = make_uint2(*(const uint32_t *)at, *(const uint32_t *)(at + 8));
                w.x >>= 8 * (t & 1), w.y >>= 8 * (t & 1);
            }
            a[piece / 2][h + piece % 2 * 2] = C::template two<T>(w.x, r[0][h], piece >= 2);
            a[2 + piece / 2][h + piece % 2 * 2] = C::template two<T>(w.y, r[1][h], piece >= 2);
        }
}

/* sum += 16 inputs N times, from a[FROM] on, times the 128 rows at x. It is under way then. FRESH: other code has had
 * sum since the last product. */
template <class T, int FROM, int N, bool FRESH>
static __device__ __forceinline__ void ch_multiply(float (&sum)[CH_SUMS], uint32_t (&a)[4][4], const char *x, bool add)
{
    const uint64_t b = wgmma_operand(x, wgmma_layout(SWIZZLE_128, 16, 8 * CH_LINE));
    if (FRESH) wgmma_hold(sum);
#pragma unroll
    for (int i = 0; i < N; i++) wgmma_hold(a[FROM + i]);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < N; i++) wgmma<ch_bf16<T>, false>(sum, a[FROM + i], wgmma_step(b, (FROM + i) * 32), add || i);
    wgmma_commit();
}
/* The sum of a group's inputs is whole. */
template <class C>
static __device__ __forceinline__ void ch_fold(float (&acc)[CH_SUMS], const float (&sum)[CH_SUMS],
                                               const uint32_t (&record)[2], int step)
{
    const float top = C::scale(codes_of_step(record[0], step)), low = C::scale(codes_of_step(record[1], step));
#pragma unroll
    for (int i = 0; i < CH_SUMS; i++) acc[i] = __fmaf_rn(sum[i], i & 2 ? low : top, acc[i]);
}

/* The results of a warp's 16 rows of w from r0 on by rows of x from x0 on; room: its own. */
template <class T, class C>
static __device__ __forceinline__ void ch_store(const struct codes_args &p, const float (&acc)[CH_SUMS], T *room,
                                                uint32_t x0, uint32_t r0)
{
    const uint32_t lane = threadIdx.x & 31, g = lane / 4, t = lane & 3;
    if (p.wide || p.n % VEC || (uintptr_t)p.out % 16) {
#pragma unroll
        for (int b = 0; b < CH_X / 8; b++) {
            if (p.wide)
                codes_put4<C>((float *)p.out, p, acc + b * 4, x0 + b * 8 + t * 2, r0 + g);
            else
                codes_put4<C>((T *)p.out, p, acc + b * 4, x0 + b * 8 + t * 2, r0 + g);
        }
        return;
    }
#pragma unroll
    for (int part = 0; part < CH_X / CH_PUT; part++) {
        __syncwarp(); /* what was there has been read */
#pragma unroll
        for (int b = 0; b < CH_PUT / 8; b++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const float    sum = acc[(part * (CH_PUT / 8) + b) * 4 + e];
                const uint32_t row = g + (e >> 1) * 8;
                room[(b * 8 + t * 2 + (e & 1)) * CH_PITCH + row] =
                    act_store<T>(codes_end<C>(sum, p.factor, min(r0 + row, p.n - 1)));
            }
        __syncwarp();
#pragma unroll
        for (uint32_t v = lane; v < CH_PUT * 2; v += WARP) {
            const uint32_t at = x0 + part * CH_PUT + v / 2, r = r0 + v % 2 * VEC;
            if (at < p.m && r < p.n)
                *(uint4 *)((T *)p.out + (size_t)at * p.n + r) = *(const uint4 *)(room + v / 2 * CH_PITCH + v % 2 * VEC);
        }
    }
}
#endif

/* k is a multiple of 8, x is aligned. */
template <class T, class C, int FOLD>
__global__ void __launch_bounds__(CH_THREADS, 1)
    k_codes_hopper(const __grid_constant__ CUtensorMap map_x, const __grid_constant__ struct codes_args p)
{
#ifdef HOPPER
    typedef ch_smem<C> M;
    enum { W_EACH = CH_THREADS / 4 /* rows that all threads bring at once */ };
    DYN_SMEM_1024(char, smem);
    struct ch_bars *bars = (struct ch_bars *)(smem + M::BARS);
    const uint32_t  tid = threadIdx.x, warp = tid / WARP, g = tid % WARP / 4, t = tid & 3;
    const uint32_t  rank = cluster_rank(), n_x = (p.m + CH_X - 1) / CH_X, n_item = ch_items(p);
    const uint32_t  first_item = blockIdx.x / CH_CLUSTER, items_at_once = gridDim.x / CH_CLUSTER;
    const uint32_t  n_stage = (p.k + CH_K - 1) / CH_K;
    const uint32_t  put_w = M::CODES + tid / 4 * CODES_LINE + ((t ^ (tid / 8 & 3)) << 4);
    if (tid == 0) {
        for (int i = 0; i < CH_STAGES; i++) {
            mbar_init(&bars->full[i], CH_THREADS + 1);
            mbar_init(&bars->empty[i], CH_WARPS * CH_CLUSTER);
        }
        fence_async();
        mbar_show();
    }
    cluster_sync();
    pdl_wait();
    /* What is loaded next: this block's `loaded`-th stage, stage load_s of the tile at row load_w of w. */
    uint32_t load_item = first_item, load_s = 0, loaded = 0;
    uint32_t load_w = (load_item / n_x * CH_CLUSTER + rank) * CH_ROWS + tid / 4;
    auto     load = [&]() {
        if (load_item >= n_item) return;
        const uint32_t slot = loaded % CH_STAGES;
        char          *to = smem + slot * M::STAGE;
        mbar_wait(&bars->empty[slot], (loaded / CH_STAGES & 1) ^ 1);
        if (tid == 0) {
            mbar_expect(&bars->full[slot], CH_PANELS * CH_PANEL);
            tensor_load_to(to + rank * CH_PANEL, map_x, (int32_t)(load_s * CH_K + rank * TENSOR_COLS),
                               (int32_t)(load_item % n_x * CH_X), &bars->full[slot], (1 << CH_CLUSTER) - 1);
        }
#pragma unroll
        for (int i = 0; i < M::LINES; i++)
#pragma unroll
            for (int j = 0; j < CH_ROWS / W_EACH; j++) { /* rows past the last: the last, not stored */
                const uint32_t l = load_s * M::LINES + i, row = min(load_w + j * W_EACH, p.n - 1);
                const bool     here = l < p.n_line;
                cp_async16(to + put_w + (i * CH_ROWS + j * W_EACH) * CODES_LINE,
                           p.line + (here ? (row * p.n_line + l) * 4 + t : 0), here ? 16 : 0);
            }
        cp_async_arrive(&bars->full[slot]);
        loaded++;
        if (++load_s < n_stage) return;
        load_s = 0;
        load_item += items_at_once;
        load_w = (load_item / n_x * CH_CLUSTER + rank) * CH_ROWS + tid / 4;
    };
#pragma unroll 1
    for (int i = 0; i < CH_AHEAD; i++) load();
    uint32_t q = 0; /* the stage that is multiplied, counted as `loaded` is */
    auto     stage_of = [&](uint32_t i) { return smem + i % CH_STAGES * M::STAGE; };
    auto     wait_full = [&](uint32_t i) {
        mbar_wait(&bars->full[i % CH_STAGES], i / CH_STAGES & 1);
        fence_async();
    };
    const uint32_t codes = M::CODES + (warp * ROWS_TILE + g) * CODES_LINE; /* this thread's first row of them */
#pragma unroll 1
    for (uint32_t item = first_item; item < n_item; item += items_at_once) {
        const uint32_t              r0 = (item / n_x * CH_CLUSTER + rank) * CH_ROWS + warp * ROWS_TILE;
        const typename C::record_t *record = (const typename C::record_t *)p.record;
        const uint32_t              top = min(r0 + g, p.n - 1) * p.n_group, low = min(r0 + g + 8, p.n - 1) * p.n_group;
        auto records = [&](uint32_t(&to)[2], uint32_t s) { /* behind the last stage: of the last, not used */
                                                           const uint32_t of =
                                                               min((s * 4 + t) >> p.shift, p.n_group - 1);
                                                           to[0] = __ldg(record + (top + of));
                                                           to[1] = __ldg(record + (low + of));
        };
        uint32_t now[2], next[2], a0[4][4], a1[4][4];
        float    acc[CH_SUMS] = {}, sum[CH_SUMS];
        records(now, 0);
        wait_full(q);
        ch_take<T, C>(a0, stage_of(q) + codes, now, 0);
#pragma unroll 1
        for (uint32_t s = 0; s < n_stage; s++, q++) {
            const char *x = stage_of(q);
            const bool  more = s + 1 < n_stage;
            records(next, s + 1);
            if constexpr (FOLD == 1) {
                ch_multiply<T, 0, 2, true>(sum, a0, x, false);
                ch_take<T, C>(a1, x + codes, now, 1);
                wgmma_wait<0>(sum);
                ch_fold<C>(acc, sum, now, 0);
                ch_multiply<T, 2, 2, true>(sum, a0, x, false);
                wgmma_wait<0>(sum);
                ch_fold<C>(acc, sum, now, 1);
                ch_multiply<T, 0, 2, true>(sum, a1, x + CH_PANEL, false);
                if (more) {
                    wait_full(q + 1);
                    ch_take<T, C>(a0, stage_of(q + 1) + codes, next, 0);
                }
                wgmma_wait<0>(sum);
                ch_fold<C>(acc, sum, now, 2);
                ch_multiply<T, 2, 2, true>(sum, a1, x + CH_PANEL, false);
                load();
                wgmma_wait<0>(sum);
                ch_fold<C>(acc, sum, now, 3);
            } else {
                ch_multiply<T, 0, 4, true>(sum, a0, x, codes_scaled<C> && s);
                ch_take<T, C>(a1, x + codes, now, 1);
                ch_multiply<T, 0, 4, false>(sum, a1, x + CH_PANEL, true);
                wgmma_wait<1>(); /* a0 may be written */
#pragma unroll
                for (int i = 0; i < 4; i++) wgmma_hold(a0[i]);
                if (more) {
                    wait_full(q + 1);
                    ch_take<T, C>(a0, stage_of(q + 1) + codes, next, 0);
                }
                load(); /* behind the fence: it may wait for all that this thread has asked for */
                wgmma_wait<0>(sum);
                if constexpr (!codes_scaled<C>) ch_fold<C>(acc, sum, now, 0);
            }
#pragma unroll
            for (int i = 0; i < 4; i++) wgmma_hold(a1[i]);
            __syncwarp();
            if (tid % WARP < CH_CLUSTER) mbar_arrive_at(&bars->empty[q % CH_STAGES], tid % WARP);
            now[0] = next[0], now[1] = next[1];
        }
        T *room = (T *)(void *)(smem + M::PUT) + warp * CH_PUT * CH_PITCH;
        if constexpr (codes_scaled<C>)
            ch_store<T, C>(p, sum, room, item % n_x * CH_X, r0);
        else
            ch_store<T, C>(p, acc, room, item % n_x * CH_X, r0);
    }
    pdl_launch();
    cluster_sync();
#else
    __trap(); /* launched on sm_90 alone */
#endif
}

template <class T, class C, int FOLD> static void ch_launch(struct cuda_dev *d, const struct codes_args &p)
{
    const uint32_t    n_item = ch_items(p), most = ((uint32_t)d->n_sm + CH_CLUSTER - 1) / CH_CLUSTER;
    const CUtensorMap map_x = cuda_tensor_map(p.x, p.m, p.k, CH_X);
    LAUNCH_CLUSTER((k_codes_hopper<T, C, FOLD>), CH_CLUSTER, (n_item < most ? n_item : most) * CH_CLUSTER, CH_THREADS,
                   ch_smem<C>::BYTES, d, map_x, p);
}
template <class T, class C> static void ch_group(struct cuda_dev *d, const struct codes_args &p)
{
    if constexpr (codes_scaled<C>) {
        ch_launch<T, C, 4>(d, p);
    } else {
        if ((uint32_t)CODES_STEP << p.shift >= CH_K || p.shift == 31)
            ch_launch<T, C, 4>(d, p);
        else
            ch_launch<T, C, 1>(d, p);
    }
}
template <class T> static void ch_kind(struct cuda_dev *d, const struct codes_args &p, enum dtype code)
{
    switch (code) {
    case DT_I4: ch_group<T, codes_i4>(d, p); break;
    case DT_F8E4M3: ch_group<T, codes_f8>(d, p); break;
    case DT_I8: ch_group<T, codes_i8>(d, p); break;
    case DT_F4E2M1: ch_group<T, codes_nvf4>(d, p); break;
    default: CHECK(false);
    }
}
void cuda_codes_hopper(struct cuda_dev *d, const struct codes_args &p, enum dtype code)
{
    CHECK(d->wgmma);
    d->impl.dev.act == DT_F16 ? ch_kind<__half>(d, p, code) : ch_kind<__nv_bfloat16>(d, p, code);
    cuda_launched(d, "gemm");
}
