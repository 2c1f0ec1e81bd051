/* hopper_kernels: each wrapper of hopper.cuh, for test_hopper.c, which compares with plain loops on the emulator and on
 * a GPU of sm_90. */
#include "cuda/hopper_cluster.cuh"
#include "cuda/hopper_gemm.cuh"

/* ---------------------------------------------------------------- barriers and copies */

enum { HR_STAGES = 3, HR_PIECE = 2048 };

/* Warp 0 brings pieces, two copies each; two warps use them. */
__global__ void __launch_bounds__(96) k_hop_ring(uint32_t *out, const uint32_t *in, uint32_t bytes, uint32_t n_piece)
{
    __shared__ uint64_t full[HR_STAGES], empty[HR_STAGES];
    DYN_SMEM(uint8_t, sm);
    uint32_t thread = threadIdx.x, words = bytes / 4;
    if (thread == 0) {
        for (int i = 0; i < HR_STAGES; i++) mbar_init(&full[i], 1), mbar_init(&empty[i], 64);
        fence_async();
        bulk_prefetch(in, bytes);
    }
    __syncthreads();
    for (uint32_t p = 0; p < n_piece; p++) {
        uint32_t at = p % HR_STAGES, parity = p / HR_STAGES & 1;
        uint8_t *stage = sm + at * HR_PIECE;
        if (thread == 0) {
            mbar_wait(&empty[at], parity ^ 1); /* at first: the phase before the first one, which is over */
            mbar_expect(&full[at], bytes);
            bulk_load(stage, in + (size_t)p * words, bytes / 2 & ~15u, &full[at]);
            bulk_load(stage + (bytes / 2 & ~15u), in + (size_t)p * words + (bytes / 2 & ~15u) / 4,
                      bytes - (bytes / 2 & ~15u), &full[at]);
        } else if (thread >= WARP) {
            mbar_wait(&full[at], parity);
            for (uint32_t i = thread - WARP; i < words; i += 64)
                out[(size_t)p * words + i] = 3 * ((uint32_t *)stage)[i] + 1;
            mbar_arrive(&empty[at]);
        }
    }
    __syncthreads();
    if (thread == 0) {
        for (int i = 0; i < HR_STAGES; i++) {
            mbar_inval(&full[i]);
            mbar_inval(&empty[i]);
        }
        full[0] = 7; /* memory again */
        mbar_init(&empty[0], 1);
        mbar_arrive(&empty[0]);
        mbar_wait(&empty[0], 0);
    }
}

__global__ void __launch_bounds__(96) k_hop_async(uint8_t *out, const uint8_t *in)
{
    __shared__ uint64_t full;
    __shared__ __align__(16) uint8_t s[64 * 16];
    int                              t = (int)threadIdx.x;
    if (t == 0) mbar_init(&full, 64);
    __syncthreads();
    if (t < 64) {
        cp_async16(s + t * 16, in + t * 16, t % 17);
        cp_async_arrive(&full);
        return;
    }
    mbar_wait(&full, 0);
    for (int i = t - 64; i < 64 * 16; i += WARP) out[i] = s[i];
}

__global__ void __launch_bounds__(64)
    k_hop_tensor(const __grid_constant__ CUtensorMap map, uint16_t *out, int32_t col, int32_t row)
{
    enum { BOX = HOPPER_BOX * TENSOR_COLS };
    DYN_SMEM_1024(uint16_t, sm);
    uint64_t *full = (uint64_t *)(void *)(sm + BOX);
    if (threadIdx.x == 0) {
        mbar_init(full, 1);
        fence_async();
        mbar_show();
        mbar_expect(full, BOX * 2);
    }
    cluster_sync();
    if (threadIdx.x == 0 && cluster_rank() == 1) tensor_load_to(sm, map, col, row, full, 3);
    mbar_wait(full, 0);
    for (uint32_t i = threadIdx.x; i < BOX; i += 64) out[blockIdx.x * BOX + i] = sm[i];
}

/* ---------------------------------------------------------------- parts of a block */

__global__ void __launch_bounds__(64) k_hop_parts(uint32_t *out, int turns)
{
    __shared__ uint32_t s[WARP];
    uint32_t            lane = threadIdx.x % WARP;
    for (int i = 0; i < turns; i++) {
        if (threadIdx.x < WARP) {
            s[lane] = (uint32_t)i * WARP + lane;
            part_arrive(1, 64);
            part_sync(2, 64);
        } else {
            part_sync(1, 64);
            out[i * WARP + lane] = s[WARP - 1 - lane] + 2 * lane - (WARP - 1);
            part_sync(2, 64);
        }
    }
}
__global__ void __launch_bounds__(384, 1) k_hop_regs(uint32_t *out)
{
    if (threadIdx.x < 128)
        regs_give<24>();
    else
        regs_take<240>();
    out[threadIdx.x] = threadIdx.x;
}

/* ---------------------------------------------------------------- products */

enum { HW_K = 64 };
struct hw_tile { /* an operand in shared memory: `rows` of HW_K, as 16-bit numbers */
    int      rows;
    bool     trans;
    int      swizzle;
    uint32_t row_bytes; /* of a pattern */
};
__device__ __forceinline__ struct hw_tile hw_tile_of(int rows, bool trans, int swizzle)
{
    return { rows, trans, swizzle, swizzle ? 256u >> swizzle : 16u };
}
/* Where element (row, k) would lie without its swizzle. */
__device__ __forceinline__ uint32_t hw_plain(struct hw_tile t, uint32_t row, uint32_t k)
{
    uint32_t rows = (uint32_t)t.rows, w = t.row_bytes, e = w / 2;
    if (t.swizzle == SWIZZLE_NONE) {
        if (t.trans) return row / 8 * HW_K * 16 + k / 8 * 128 + k % 8 * 16 + row % 8 * 2;
        return k / 8 * rows * 16 + row / 8 * 128 + row % 8 * 16 + k % 8 * 2;
    }
    if (t.trans) return row / e * HW_K * w + k * w + row % e * 2;
    return k / e * rows * w + row * w + k % e * 2;
}
__device__ __forceinline__ uint32_t hw_at(struct hw_tile t, uint32_t row, uint32_t k)
{
    uint32_t at = hw_plain(t, row, k);
    if (t.swizzle == SWIZZLE_128) return swizzled<SWIZZLE_128>(at);
    if (t.swizzle == SWIZZLE_64) return swizzled<SWIZZLE_64>(at);
    if (t.swizzle == SWIZZLE_32) return swizzled<SWIZZLE_32>(at);
    return at;
}
__device__ __forceinline__ uint64_t hw_layout(struct hw_tile t)
{
    uint32_t rows = (uint32_t)t.rows, w = t.row_bytes;
    if (t.swizzle == SWIZZLE_NONE)
        return t.trans ? wgmma_layout(SWIZZLE_NONE, 128, HW_K * 16) : wgmma_layout(SWIZZLE_NONE, rows * 16, 128);
    return wgmma_layout((enum swizzle)t.swizzle, t.trans ? HW_K * w : 16, 8 * w);
}

/* Numbers of E4M3 go in pairs, for one of 16 bits. */
template <enum hopper_number NUMBER, int N, enum hopper_a A, bool TRANS_B>
__global__ void __launch_bounds__(128)
    k_hop_wgmma(float *d, const uint16_t *a, const uint16_t *b, const float *c, int swizzle, bool add)
{
    DYN_SMEM_1024(uint8_t, sm);
    int            thread = (int)threadIdx.x, lane = thread % WARP, warp = thread / WARP;
    struct hw_tile ta = hw_tile_of(64, A == HOPPER_A_TRANS, swizzle), tb = hw_tile_of(N, TRANS_B, swizzle);
    uint8_t       *sa = sm, *sb = sm + 64 * HW_K * 2;
    for (int i = thread; i < 64 * HW_K; i += 128)
        *(uint16_t *)(sa + hw_at(ta, (uint32_t)i / HW_K, (uint32_t)i % HW_K)) = a[i];
    for (int i = thread; i < N * HW_K; i += 128)
        *(uint16_t *)(sb + hw_at(tb, (uint32_t)i / HW_K, (uint32_t)i % HW_K)) = b[i];
    fence_async();
    __syncthreads();
    float    acc[N / 2];
    uint64_t oa = wgmma_operand(sa, hw_layout(ta)), ob = wgmma_operand(sb, hw_layout(tb));
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        acc[i] = c[(warp * 16 + lane / 4 + i / 2 % 2 * 8) * N + i / 4 * 8 + lane % 4 * 2 + i % 2];
    uint32_t ra[HW_K / 16][4];
#pragma unroll
    for (int k = 0; k < HW_K / 16; k++)
        for (int i = 0; i < 4; i++) {
            int row = warp * 16 + lane / 4 + i % 2 * 8, col = k * 16 + lane % 4 * 2 + i / 2 * 8;
            ra[k][i] = a[row * HW_K + col] | (uint32_t)a[row * HW_K + col + 1] << 16;
        }
    wgmma_hold(acc);
    for (int k = 0; k < HW_K / 16; k++) wgmma_hold(ra[k]);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < HW_K / 16; k++) {
        uint64_t at_a = wgmma_step(oa, hw_plain(ta, 0, (uint32_t)k * 16));
        uint64_t at_b = wgmma_step(ob, hw_plain(tb, 0, (uint32_t)k * 16));
        if constexpr (NUMBER == HOPPER_E4M3)
            wgmma_e4m3(acc, at_a, at_b, add || k);
        else if constexpr (A == HOPPER_A_REGS)
            wgmma<NUMBER == HOPPER_BF16, TRANS_B>(acc, ra[k], at_b, add || k);
        else
            wgmma<NUMBER == HOPPER_BF16, A == HOPPER_A_TRANS, TRANS_B>(acc, at_a, at_b, add || k);
        if (k == 1) wgmma_commit();
    }
    wgmma_commit();
    wgmma_wait<0>(acc);
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        d[(warp * 16 + lane / 4 + i / 2 % 2 * 8) * N + i / 4 * 8 + lane % 4 * 2 + i % 2] = acc[i];
}

/* Whether both kinds of products round alike: of numbers whose sums are not exact. */
__global__ void __launch_bounds__(128) k_hop_both(float *d, const uint16_t *a, const uint16_t *b)
{
    enum { K = 256, N = 64 };
    DYN_SMEM_1024(uint8_t, sm);
    int thread = (int)threadIdx.x, lane = thread % WARP, warp = thread / WARP, g = lane / 4, t = lane % 4;
    for (int i = thread; i < N * K / 8; i += 128) {
        int row = i / (K / 8), k = i % (K / 8) * 8;
        *(uint4 *)(sm + k / 64 * N * 128 + swizzled<SWIZZLE_128>((uint32_t)(row * 128 + k % 64 * 2))) =
            *(const uint4 *)(b + (size_t)row * K + k);
    }
    fence_async();
    __syncthreads();
    float    one[N / 2] = {}, other[N / 8][4] = {};
    uint64_t ob = wgmma_operand(sm, wgmma_layout(SWIZZLE_128, 16, 1024));
    for (int k = 0; k < K; k += 16) {
        uint32_t ra[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            ra[i] = *(const uint32_t *)(a + (size_t)(warp * 16 + g + i % 2 * 8) * K + k + t * 2 + i / 2 * 8);
        wgmma_hold(one);
        wgmma_hold(ra);
        wgmma_fence();
        wgmma<true, false>(one, ra, wgmma_step(ob, (uint32_t)(k / 64 * N * 128 + k % 64 * 2)), true);
        wgmma_commit();
        wgmma_wait<0>(one);
#pragma unroll
        for (int j = 0; j < N / 8; j++) {
            uint32_t rb[2];
            for (int i = 0; i < 2; i++) rb[i] = *(const uint32_t *)(b + (size_t)(j * 8 + g) * K + k + t * 2 + i * 8);
            mma_m16n8k16_bf16(other[j], ra, rb, other[j]);
        }
    }
#pragma unroll
    for (int i = 0; i < N / 2; i++) {
        int at = (warp * 16 + g + i / 2 % 2 * 8) * N + i / 4 * 8 + t * 2 + i % 2;
        d[at] = one[i];
        d[64 * N + at] = other[i / 4][i % 4];
    }
}

/* ---------------------------------------------------------------- launchers */

extern "C" void hopper_gemm(cudaStream_t s, float *out, const uint16_t *a, const void *b, int n_k)
{
    size_t smem = (size_t)n_k * HG_A + 2 * HG_STAGE + sizeof(struct hg_bars);
    LAUNCH(k_hop_gemm<HOP_RIGHT>, 1, HG_THREADS, smem, s, out, a, (const uint8_t *)b, n_k);
}
extern "C" void hopper_ring(cudaStream_t s, uint32_t *out, const uint32_t *in, uint32_t bytes, uint32_t n_piece)
{
    LAUNCH(k_hop_ring, 1, 96, HR_STAGES * HR_PIECE, s, out, in, bytes, n_piece);
}
extern "C" void hopper_cluster(cudaStream_t s, uint32_t *out, const uint32_t *in, uint32_t n, uint32_t n_cluster,
                               uint32_t n_piece)
{
    hopper_cluster_launch(k_hop_cluster<HOP_RIGHT>, s, out, in, n, n_cluster, n_piece);
}
extern "C" void hopper_tensor(cudaStream_t s, uint16_t *out, const uint16_t *in, uint32_t rows, uint32_t cols,
                              int32_t col, int32_t row)
{
    LAUNCH_CLUSTER(k_hop_tensor, 2, 2, 64, HOPPER_BOX * TENSOR_COLS * 2 + 8, s,
                   cuda_tensor_map(in, rows, cols, HOPPER_BOX), out, col, row);
}
extern "C" void hopper_async(cudaStream_t s, uint8_t *out, const uint8_t *in)
{
    LAUNCH(k_hop_async, 1, 96, 0, s, out, in);
}
extern "C" void hopper_parts(cudaStream_t s, uint32_t *out, int turns) { LAUNCH(k_hop_parts, 1, 64, 0, s, out, turns); }
extern "C" void hopper_regs(cudaStream_t s, uint32_t *out) { LAUNCH(k_hop_regs, 1, 384, 0, s, out); }
extern "C" void hopper_both(cudaStream_t s, float *d, const uint16_t *a, const uint16_t *b)
{
    LAUNCH(k_hop_both, 1, 128, 64 * 256 * 2, s, d, a, b);
}

#define HOP_INSTANCE(B, N, A, T)                                                                         \
    if (p.number == B && p.n == N && p.a == A && p.trans_b == T) {                                       \
        LAUNCH((k_hop_wgmma<B, N, A, T>), 1, 128, (64 + N) * HW_K * 2, s, d, a, b, c, p.swizzle, p.add); \
        return true;                                                                                     \
    }
extern "C" bool hopper_wgmma(cudaStream_t s, struct hopper_product p, float *d, const uint16_t *a, const uint16_t *b,
                             const float *c)
{
    HOP_INSTANCE(HOPPER_BF16, 64, HOPPER_A_ROWS, false)
    HOP_INSTANCE(HOPPER_BF16, 64, HOPPER_A_ROWS, true)
    HOP_INSTANCE(HOPPER_BF16, 64, HOPPER_A_TRANS, false)
    HOP_INSTANCE(HOPPER_BF16, 64, HOPPER_A_TRANS, true)
    HOP_INSTANCE(HOPPER_BF16, 64, HOPPER_A_REGS, true)
    HOP_INSTANCE(HOPPER_BF16, 128, HOPPER_A_ROWS, false)
    HOP_INSTANCE(HOPPER_BF16, 128, HOPPER_A_REGS, true)
    HOP_INSTANCE(HOPPER_BF16, 256, HOPPER_A_ROWS, true)
    HOP_INSTANCE(HOPPER_BF16, 256, HOPPER_A_REGS, false)
    HOP_INSTANCE(HOPPER_F16, 64, HOPPER_A_REGS, false)
    HOP_INSTANCE(HOPPER_F16, 64, HOPPER_A_TRANS, true)
    HOP_INSTANCE(HOPPER_F16, 128, HOPPER_A_ROWS, false)
    HOP_INSTANCE(HOPPER_F16, 128, HOPPER_A_REGS, true)
    HOP_INSTANCE(HOPPER_F16, 256, HOPPER_A_ROWS, false)
    HOP_INSTANCE(HOPPER_F16, 256, HOPPER_A_REGS, true)
    HOP_INSTANCE(HOPPER_E4M3, 64, HOPPER_A_ROWS, false)
    HOP_INSTANCE(HOPPER_E4M3, 128, HOPPER_A_ROWS, false)
    HOP_INSTANCE(HOPPER_E4M3, 256, HOPPER_A_ROWS, false)
    return false;
}
