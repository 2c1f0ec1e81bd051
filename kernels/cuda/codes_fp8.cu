/* codes_fp8: out[m, n] = x[m, k] * w[n, k]^T where w is codes of E4M3 with scales and x becomes such codes first, for
 * many rows, by wgmma on sm_90 alone. For gemm.c, with --fp8-prefill. truth: kernels/ref/gemm.c, with x rounded as
 * follows.
 *
 * k_act_codes: a row of x has a scale for each 128 inputs of its own, as a row of KV in 8 bits has one
 * (kernels/kv8.h): the power of two that moves the exponent of the largest number to 7. A scale that is max / 448
 * would keep as many digits of every number, and round twice. 128 inputs with a number that is none, is infinite, or
 * is of 2^127 and more have NaN for a scale, and so are the row's products. What a row becomes depends on that row
 * alone. Codes lie as wgmma reads them, in the library's workspace, and of 64 inputs in the order of codes.h, so that
 * no code of w moves: in each order the sum is of the same products. Rows that do not fit there go in slices.
 *
 * k_codes_fp8: a tile is 128 rows of w times 256 of x (128 where that leaves GPUs idle), and a stage 128 inputs of
 * both. One warp group brings: x by one bulk copy, w by cp.async, for its rows are swizzled on the way. Two multiply,
 * each with a panel of 64 rows of x, or two. Rows of x are A: a thread has two of them, and their scales. Tiles of 256
 * are of two blocks, a cluster, that have the same rows of x: each brings the half of them to both.
 *
 * 128 inputs are summed by wgmma from 0, because it adds E4M3 in some 14 bits; their sum times the scales of x and of
 * w is added in fp32, fma(sum, scale_x * scale_w, acc), k rising. Where a row of w has one scale for all of it, it is
 * fma(sum, scale_x, acc), and acc * scale_w at the end. That is the order for any m, and a row of x is a row of A
 * alone, so its bits depend neither on the rows beside it nor on how many there are.
 *
 * What it should cost, in cycles of an SM for 128 inputs of a tile of 256: products 1024; operands read by them 768
 * and brought 384 of shared memory, so that it is busier than the products are; L2 1120 to 1310 for 33 KB at 7 to 6
 * TB/s (1950 if each block brought all that it needs). A scheduler issues 534 instructions of two warps, 876 with groups. */
#include "kernels/cuda/codes_few.cuh"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/kv8.cuh"

enum {
    CP_K = 128,    /* inputs of a stage: bytes of a row of it */
    CP_PANEL = 64, /* rows of x */
    CP_BYTES = CP_PANEL * CP_K,
    CP_W = 128,         /* rows of w */
    CP_SUMS = CP_W / 2, /* of a thread and a panel */
    CP_GROUPS = 2,      /* that multiply */
    CP_GROUP = 128,     /* threads */
    CP_WARPS = CP_GROUPS * CP_GROUP / WARP,
    CP_THREADS = (CP_GROUPS + 1) * CP_GROUP,
    CP_REGS_FEW = 40,
    CP_REGS_MANY = 232,
    CP_X_THREADS = 256,
    CP_X_LANES = CP_K / VEC /* that have a stage of a row */
};

/* ---------------------------------------------------------------- codes of x */

/* panel: [n_stage][rows / 64] of CP_BYTES. scale: [n_stage][rows]. rows: m filled up to whole panels. */
template <class T>
__global__ void __launch_bounds__(CP_X_THREADS)
    k_act_codes(char *panel, float *scale, const uint16_t *x, uint32_t m, uint32_t rows, uint32_t k, uint32_t n_stage)
{
    const uint32_t part = threadIdx.x % CP_X_LANES;
    const uint32_t at = blockIdx.x * (CP_X_THREADS / CP_X_LANES) + threadIdx.x / CP_X_LANES;
    const uint32_t row = at / n_stage, stage = at % n_stage, i = stage * CP_K + part * VEC;
    pdl_wait();
    uint4 v = make_uint4(0, 0, 0, 0);
    if (row < m && i < k) v = *(const uint4 *)(x + (size_t)row * k + i);
    pdl_launch();
    float    f[VEC];
    uint32_t most = 0, c[VEC];
    act_load8<T>(f, v);
#pragma unroll
    for (int j = 0; j < VEC; j++) most = max(most, kv8_size(f[j]));
#pragma unroll
    for (int lanes = CP_X_LANES / 2; lanes; lanes /= 2) most = max(most, __shfl_xor_sync(0xffffffffu, most, lanes));
    const uint32_t exponent = kv8_scale_of(most);
#pragma unroll
    for (int j = 0; j < VEC; j++) c[j] = kv8_code(f[j], exponent);
    /* Of a line of 64 inputs: 16 bytes for each of four threads, 8 for each step of 32. */
    const uint32_t line = part / 8, step = part / 4 % 2, t = part % 4;
    const uint32_t to = swizzled<SWIZZLE_128>(row % CP_PANEL * CP_K + line * CODES_LINE + t * 16) + step * 8;
    char          *of = panel + ((size_t)stage * (rows / CP_PANEL) + row / CP_PANEL) * CP_BYTES;
    *(uint2 *)(of + to) =
        make_uint2(c[0] | c[2] << 8 | c[1] << 16 | c[3] << 24, c[4] | c[6] << 8 | c[5] << 16 | c[7] << 24);
    if (part == 0)
        scale[(size_t)stage * rows + row] = __uint_as_float(exponent == KV8_NONE ? 0x7fc00000u : exponent << 23);
}

/* ---------------------------------------------------------------- products */

struct cp_args {
    void        *out;
    const char  *panel;   /* [n_stage][n_panel] of CP_BYTES */
    const float *scale_x; /* [n_stage][n_panel][CP_PANEL] */
    const uint4 *line;    /* [n][n_line][4] */
    const float *scale_w; /* [n][n_group] */
    uint32_t     m, n;
    uint32_t     n_stage, n_panel, n_line, n_group, shift; /* stage s is of group s >> shift */
};

/* Shared memory: stages of panels and rows of w, then of each its scales of x and of w, the barriers.
 * PARTS: panels of a warp group, and blocks of a cluster. */
template <int PARTS> struct cp_smem {
    enum {
        CLUSTER = PARTS,
        STAGES = PARTS == 1 ? 6 : 4,
        PANELS = PARTS * CP_GROUPS,
        W = PANELS * CP_BYTES,
        STAGE = W + CP_W * CP_K,
        SCALES = STAGES * STAGE,
        SCALE_W = PANELS * CP_PANEL, /* numbers */
        SCALE = SCALE_W + CP_W,
        BARS = SCALES + STAGES * SCALE * 4,
        BYTES = BARS + STAGES * 2 * 8
    };
    static_assert(STAGE % 1024 == 0 && BYTES <= 227 << 10, "what a block may have, patterns where they may begin");
    char *at;

    __device__ __forceinline__ char  *stage(uint32_t slot) const { return at + slot * STAGE; }
    __device__ __forceinline__ float *scale(uint32_t slot) const
    {
        return (float *)(void *)(at + SCALES) + slot * SCALE;
    }
    __device__ __forceinline__ uint64_t *full(uint32_t slot) const { return (uint64_t *)(void *)(at + BARS) + slot; }
    __device__ __forceinline__ uint64_t *empty(uint32_t slot) const { return full(STAGES + slot); }
};
/* Items: what the blocks of a cluster do at once, a tile each, of the same rows of x. Those of x first, so that
 * neighbours share rows of w. */
template <int PARTS> static __device__ __host__ __forceinline__ uint32_t cp_items_x(const struct cp_args &p)
{
    return (p.n_panel + PARTS * CP_GROUPS - 1) / (PARTS * CP_GROUPS);
}
template <int PARTS> static __device__ __host__ __forceinline__ uint32_t cp_items(const struct cp_args &p)
{
    const uint32_t w = CP_W * cp_smem<PARTS>::CLUSTER;
    return cp_items_x<PARTS>(p) * ((p.n + w - 1) / w);
}

#ifdef HOPPER
/* This block's share of a stage's panels goes to all blocks of the cluster. */
template <int PARTS>
static __device__ __forceinline__ void cp_bring_x(const struct cp_args &p, const cp_smem<PARTS> &sm, uint32_t slot,
                                                  uint32_t s, uint32_t panel0, uint32_t rank)
{
    typedef cp_smem<PARTS> M;
    enum { SHARE = M::PANELS / M::CLUSTER, ALL = (1 << M::CLUSTER) - 1 };
    const uint32_t panels = min((uint32_t)M::PANELS, p.n_panel - panel0), first = rank * SHARE;
    mbar_expect(sm.full(slot), panels * (CP_BYTES + CP_PANEL * 4));
    if (first >= panels) return;
    const uint32_t n = min((uint32_t)SHARE, panels - first);
    const size_t   from = (size_t)s * p.n_panel + panel0 + first;
    char          *to = sm.stage(slot) + first * CP_BYTES;
    float         *scale = sm.scale(slot) + first * CP_PANEL;
    if (M::CLUSTER == 1) {
        bulk_load(to, p.panel + from * CP_BYTES, n * CP_BYTES, sm.full(slot));
        bulk_load(scale, p.scale_x + from * CP_PANEL, n * CP_PANEL * 4, sm.full(slot));
    } else {
        bulk_load_to(to, p.panel + from * CP_BYTES, n * CP_BYTES, sm.full(slot), ALL);
        bulk_load_to(scale, p.scale_x + from * CP_PANEL, n * CP_PANEL * 4, sm.full(slot), ALL);
    }
}
/* The warp group that brings. GROUPS: weights have a scale for each stage. */
template <int PARTS, bool GROUPS>
static __device__ __forceinline__ void cp_bring(const struct cp_args &p, const cp_smem<PARTS> &sm, uint32_t rank)
{
    typedef cp_smem<PARTS> M;
    enum { PIECES = CP_K / 16, EACH = CP_GROUP / PIECES /* rows at once */ };
    const uint32_t thread = threadIdx.x % CP_GROUP, piece = thread % PIECES, first = thread / PIECES;
    const uint32_t n_x = cp_items_x<PARTS>(p), n_item = cp_items<PARTS>(p);
    const uint32_t put = M::W + swizzled<SWIZZLE_128>(first * CP_K + piece * 16);
    uint32_t       q = 0; /* stages so far */
#pragma unroll 1
    for (uint32_t item = blockIdx.x / M::CLUSTER; item < n_item; item += gridDim.x / M::CLUSTER) {
        const uint32_t panel0 = item % n_x * M::PANELS, w0 = (item / n_x * M::CLUSTER + rank) * CP_W;
        const float   *scale_w = p.scale_w + (size_t)min(w0 + thread, p.n - 1) * p.n_group;
#pragma unroll 1
        for (uint32_t s = 0; s < p.n_stage; s++, q++) {
            const uint32_t slot = q % M::STAGES;
            const float    scale =
                GROUPS ? __ldg(scale_w + (s >> p.shift)) : 0.0f; /* comes while the slot is waited for */
            char *to = sm.stage(slot);
            mbar_wait(sm.empty(slot), (q / M::STAGES & 1) ^ 1);
            if (thread == 0) cp_bring_x<PARTS>(p, sm, slot, s, panel0, rank);
            const uint32_t l = s * (CP_K / CODES_LINE) + piece / 4;
            const bool     here = l < p.n_line;
#pragma unroll
            for (int j = 0; j < CP_W / EACH; j++) { /* rows past the last: the last, not stored */
                const uint32_t row = min(w0 + first + j * EACH, p.n - 1);
                cp_async16(to + put + j * EACH * CP_K, p.line + (here ? (row * p.n_line + l) * 4 + piece % 4 : 0),
                           here ? 16 : 0);
            }
            cp_async_arrive(sm.full(slot));
            if (GROUPS) {
                sm.scale(slot)[M::SCALE_W + thread] = scale;
                mbar_arrive(sm.full(slot));
            }
        }
    }
}

/* sum = a panel at x times the rows at w. */
static __device__ __forceinline__ void cp_products(float (&sum)[CP_SUMS], const char *x, const char *w)
{
    constexpr uint64_t LAYOUT = wgmma_layout(SWIZZLE_128, 16, 8 * CP_K);
    const uint64_t     a = wgmma_operand(x, LAYOUT), b = wgmma_operand(w, LAYOUT);
    wgmma_hold(sum);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < CP_K / 32; i++) wgmma_e4m3(sum, wgmma_step(a, i * 32), wgmma_step(b, i * 32), i > 0);
    wgmma_commit();
    wgmma_wait<0>(sum);
}
/* acc += sum times its scales. x: of this thread's rows 0 and 8. w: of the columns 0 and 1 of each 8. */
template <bool GROUPS>
static __device__ __forceinline__ void cp_fold(float (&acc)[CP_SUMS], const float (&sum)[CP_SUMS], const float *x,
                                               const float *w)
{
    const float top = x[0], low = x[8];
#pragma unroll
    for (int j = 0; j < CP_W / 8; j++) {
        const float2 by = GROUPS ? *(const float2 *)(w + j * 8) : make_float2(1.0f, 1.0f);
#pragma unroll
        for (int e = 0; e < 4; e++) {
            float scale = e & 2 ? low : top;
            if (GROUPS) scale = __fmul_rn(scale, e & 1 ? by.y : by.x);
            acc[j * 4 + e] = __fmaf_rn(sum[j * 4 + e], scale, acc[j * 4 + e]);
        }
    }
}

/* Words v[j] of block j of four, a word of each of four threads: thread t has the four of block t then. */
static __device__ __forceinline__ void cp_turn(uint32_t (&v)[4])
{
    const uint32_t t = threadIdx.x & 3;
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        const uint32_t other = __shfl_xor_sync(0xffffffffu, t & 1 ? v[i] : v[i + 1], 1);
        if (t & 1)
            v[i] = other;
        else
            v[i + 1] = other;
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint32_t other = __shfl_xor_sync(0xffffffffu, t & 2 ? v[i] : v[i + 2], 2);
        if (t & 2)
            v[i] = other;
        else
            v[i + 2] = other;
    }
}
/* The results of rows x0 and x0 + 8 of x by 128 rows of w. */
template <class T, bool GROUPS>
static __device__ __forceinline__ void cp_store(const struct cp_args &p, float (&acc)[CP_SUMS], uint32_t x0,
                                                uint32_t w0)
{
    const uint32_t t = threadIdx.x & 3;
    if (!GROUPS) {
#pragma unroll
        for (int j = 0; j < CP_W / 8; j++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const float by = __ldg(p.scale_w + min(w0 + j * 8 + t * 2 + e, p.n - 1));
                acc[j * 4 + e] = __fmul_rn(acc[j * 4 + e], by);
                acc[j * 4 + e + 2] = __fmul_rn(acc[j * 4 + e + 2], by);
            }
    }
    const bool vector = p.n % VEC == 0 && (uintptr_t)p.out % 16 == 0;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const uint32_t row = x0 + h * 8;
        T             *out = (T *)p.out + (size_t)row * p.n;
#pragma unroll
        for (int j = 0; j < CP_W / 8; j += 4) {
            uint32_t v[4];
#pragma unroll
            for (int b = 0; b < 4; b++) v[b] = act_store2<T>(acc[(j + b) * 4 + h * 2], acc[(j + b) * 4 + h * 2 + 1]);
            cp_turn(v);
            const uint32_t column = w0 + (j + t) * 8;
            if (row >= p.m) continue;
            if (vector) {
                if (column < p.n) *(uint4 *)(out + column) = make_uint4(v[0], v[1], v[2], v[3]);
                continue;
            }
#pragma unroll
            for (uint32_t i = 0; i < VEC; i++)
                if (column + i < p.n) ((uint16_t *)out)[column + i] = (uint16_t)(v[i / 2] >> 16 * (i % 2));
        }
    }
}

template <class T, int PARTS, bool GROUPS>
static __device__ __forceinline__ void cp_multiply(const struct cp_args &p, const cp_smem<PARTS> &sm, uint32_t rank)
{
    typedef cp_smem<PARTS> M;
    const uint32_t         group = threadIdx.x / CP_GROUP, lane = threadIdx.x % WARP, t = lane & 3;
    const uint32_t         row = threadIdx.x / WARP % 4 * 16 + lane / 4; /* of a panel */
    const uint32_t         n_x = cp_items_x<PARTS>(p), n_item = cp_items<PARTS>(p);
    uint32_t               q = 0;
#pragma unroll 1
    for (uint32_t item = blockIdx.x / M::CLUSTER; item < n_item; item += gridDim.x / M::CLUSTER) {
        const uint32_t panel0 = item % n_x * M::PANELS + group, w0 = (item / n_x * M::CLUSTER + rank) * CP_W;
        float          acc[PARTS][CP_SUMS] = {};
#pragma unroll 1
        for (uint32_t s = 0; s < p.n_stage; s++, q++) {
            const uint32_t slot = q % M::STAGES;
            mbar_wait(sm.full(slot), q / M::STAGES & 1);
            fence_async();
#pragma unroll
            for (uint32_t part = 0; part < PARTS; part++) {
                const uint32_t mine = part * CP_GROUPS + group;
                float          sum[CP_SUMS];
                if (panel0 + part * CP_GROUPS >= p.n_panel) continue; /* there is none */
                cp_products(sum, sm.stage(slot) + mine * CP_BYTES, sm.stage(slot) + M::W);
                cp_fold<GROUPS>(acc[part], sum, sm.scale(slot) + mine * CP_PANEL + row,
                                sm.scale(slot) + M::SCALE_W + t * 2);
            }
            __syncwarp();
            if (M::CLUSTER == 1) {
                if (lane == 0) mbar_arrive(sm.empty(slot));
            } else if (lane < M::CLUSTER) {
                mbar_arrive_at(sm.empty(slot), lane); /* of each block that brings rows of x here */
            }
        }
#pragma unroll
        for (uint32_t part = 0; part < PARTS; part++)
            cp_store<T, GROUPS>(p, acc[part], (panel0 + part * CP_GROUPS) * CP_PANEL + row, w0);
    }
}
#endif

template <class T, int PARTS, bool GROUPS>
__global__ void __launch_bounds__(CP_THREADS, 1) k_codes_fp8(const __grid_constant__ struct cp_args p)
{
#ifdef HOPPER
    typedef cp_smem<PARTS> M;
    DYN_SMEM_1024(char, smem);
    const M        sm = { smem };
    const uint32_t rank = M::CLUSTER == 1 ? 0 : cluster_rank();
    if (threadIdx.x == 0) {
        for (uint32_t i = 0; i < M::STAGES; i++) {
            mbar_init(sm.full(i), CP_GROUP * (GROUPS ? 2 : 1) + 1);
            mbar_init(sm.empty(i), CP_WARPS * M::CLUSTER);
        }
        fence_async();
        if (M::CLUSTER > 1) mbar_show();
    }
    if (M::CLUSTER == 1)
        __syncthreads();
    else
        cluster_sync();
    pdl_wait();
    if (threadIdx.x / CP_GROUP == CP_GROUPS) {
        regs_give<CP_REGS_FEW>();
        cp_bring<PARTS, GROUPS>(p, sm, rank);
    } else {
        regs_take<CP_REGS_MANY>();
        cp_multiply<T, PARTS, GROUPS>(p, sm, rank);
        pdl_launch();
    }
    if (M::CLUSTER > 1) cluster_sync();
#else
    __trap(); /* launched on sm_90 alone */
#endif
}

/* ---------------------------------------------------------------- launches */

/* That run at once. */
template <int PARTS> static uint32_t cp_clusters(const struct cuda_dev *d)
{
    return ((uint32_t)d->n_sm + cp_smem<PARTS>::CLUSTER - 1) / cp_smem<PARTS>::CLUSTER;
}
template <class T, int PARTS, bool GROUPS> static void cp_launch(struct cuda_dev *d, const struct cp_args &p)
{
    const uint32_t n_item = cp_items<PARTS>(p), most = cp_clusters<PARTS>(d);
    LAUNCH_CLUSTER((k_codes_fp8<T, PARTS, GROUPS>), cp_smem<PARTS>::CLUSTER,
                   (n_item < most ? n_item : most) * cp_smem<PARTS>::CLUSTER, CP_THREADS, cp_smem<PARTS>::BYTES, d, p);
}
/* A tile of 256 rows takes a fifth longer than one of 128: as much comes from L2, and more goes through shared memory. */
template <class T, bool GROUPS> static void cp_choose(struct cuda_dev *d, const struct cp_args &p)
{
    const uint32_t large = (cp_items<2>(p) + cp_clusters<2>(d) - 1) / cp_clusters<2>(d);
    const uint32_t small = (cp_items<1>(p) + cp_clusters<1>(d) - 1) / cp_clusters<1>(d);
    if (large * 6 <= small * 5)
        cp_launch<T, 2, GROUPS>(d, p);
    else
        cp_launch<T, 1, GROUPS>(d, p);
}
/* m rows, which fit. */
template <class T>
static void cp_rows(struct cuda_dev *d, const struct codes_args &c, const void *x, void *out, uint32_t m)
{
    struct cp_args p = {};
    p.m = m, p.n = c.n;
    p.n_panel = (m + CP_PANEL - 1) / CP_PANEL, p.n_stage = (c.k + CP_K - 1) / CP_K;
    p.n_line = c.n_line, p.n_group = c.n_group;
    p.shift = c.shift - 2; /* of steps of 32 */
    p.out = out, p.line = c.line, p.scale_w = (const float *)c.record;
    char          *panel = (char *)d->blas->workspace;
    float         *scale = (float *)(void *)(panel + (size_t)p.n_stage * p.n_panel * CP_BYTES);
    const uint32_t rows = p.n_panel * CP_PANEL;
    p.panel = panel, p.scale_x = scale;
    LAUNCH((k_act_codes<T>), rows * p.n_stage / (CP_X_THREADS / CP_X_LANES), CP_X_THREADS, 0, d, panel, scale,
           (const uint16_t *)x, m, rows, c.k, p.n_stage);
    if (p.n_group > 1)
        cp_choose<T, true>(d, p);
    else
        cp_choose<T, false>(d, p);
}
/* Panels of k inputs that have room, in whole large tiles. */
static uint32_t cp_room(const struct cuda_dev *d, uint32_t k)
{
    const size_t panel = (size_t)(k + CP_K - 1) / CP_K * (CP_BYTES + CP_PANEL * sizeof(float));
    return (uint32_t)(d->codes_slab / panel) / cp_smem<2>::PANELS * cp_smem<2>::PANELS;
}
/* Slices of about as many rows each. */
template <class T> static void cp_slices(struct cuda_dev *d, const struct codes_args &c)
{
    const uint32_t tile = cp_smem<2>::PANELS, most = cp_room(d, c.k);
    const uint32_t n_panel = (c.m + CP_PANEL - 1) / CP_PANEL, n_slice = (n_panel + most - 1) / most;
    const uint32_t each = ((n_panel + n_slice - 1) / n_slice + tile - 1) / tile * tile * CP_PANEL;
    for (uint32_t m0 = 0; m0 < c.m; m0 += each)
        cp_rows<T>(d, c, c.x + (size_t)m0 * c.k, (uint16_t *)c.out + (size_t)m0 * c.n,
                   c.m - m0 < each ? c.m - m0 : each);
}

extern "C" bool cuda_codes_fp8(struct cuda_dev *d, const struct gemm_product *g)
{
    const struct dev_weight *w = g->w;
    if (!d->fp8_prefill || w->dtype != DT_F8E4M3 || w->q.group % CP_K || g->m < d->fp8_rows || g->out_t == DT_F32 ||
        w->k % VEC || (uintptr_t)g->x % 16 || !cp_room(d, w->k))
        return false;
    const struct codes_args c = codes_args_of(w, g->out, g->x, g->m);
    d->impl.dev.act == DT_F16 ? cp_slices<__half>(d, c) : cp_slices<__nv_bfloat16>(d, c);
    cuda_launched(d, "gemm");
    return true;
}
