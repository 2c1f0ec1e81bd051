/* hopper_gemm: out[64, 128] = a[64, k] * b[128, k]^T as a pipeline of all that hopper.cuh has, right or with a mistake
 * (enum hopper_bug): hopper_kernels.cu has the right one, emu_hopper_kernels.cu the others. bf16, k: n_k times 64, at
 * most 4. b: n_k tiles of 128 rows of 64, each as it lies in shared memory: rows of 128 bytes, SWIZZLE_128.
 *
 * A warp brings b, two stages of 16 KiB; a warp group multiplies. */
#pragma once
#include "cuda/hopper_kernels.h"
#include "kernels/cuda/hopper.cuh"

enum { HG_M = 64, HG_N = 128, HG_K = 64, HG_STAGE = HG_N * HG_K * 2, HG_A = HG_M * HG_K * 2, HG_THREADS = 160 };

struct hg_bars {
    uint64_t full[2], empty[2];
};

template <int BUG>
__global__ void __launch_bounds__(HG_THREADS) k_hop_gemm(float *out, const uint16_t *a, const uint8_t *b, int n_k)
{
    uint8_t *sm;
    if constexpr (BUG == HOP_UNALIGNED) {
        DYN_SMEM(uint8_t, any);
        sm = any;
    } else {
        DYN_SMEM_1024(uint8_t, aligned);
        sm = aligned;
    }
    uint8_t        *sb = sm + n_k * HG_A;
    struct hg_bars *bars = (struct hg_bars *)(sb + 2 * HG_STAGE);
    int             thread = (int)threadIdx.x, lane = thread % WARP, warp = thread / WARP;
    if (thread == 0) {
        for (int i = 0; i < 2; i++) {
            mbar_init(&bars->full[i], BUG == HOP_COUNT_MORE ? 2 : 1);
            mbar_init(&bars->empty[i], BUG == HOP_COUNT_LESS ? 3 : 4);
        }
        if (BUG != HOP_NO_INIT_FENCE) fence_async();
    }
    __syncthreads();
    if (warp == 4) {
        for (int t = 0; lane == 0 && t < n_k; t++) {
            int      at = t % 2;
            uint32_t bytes = HG_STAGE;
            if (BUG == HOP_BYTES_MORE) bytes += 16;
            if (BUG == HOP_BYTES_LESS) bytes /= 2;
            if (t >= 2 && BUG != HOP_REUSE) mbar_wait(&bars->empty[at], (uint32_t)(t / 2 - 1) & 1);
            mbar_expect(&bars->full[at], bytes);
            for (int part = 0; part < 2; part++)
                bulk_load(sb + at * HG_STAGE + part * HG_STAGE / 2,
                          b + (size_t)t * HG_STAGE + part * HG_STAGE / 2 + (BUG == HOP_ALIGN ? 8 : 0), HG_STAGE / 2,
                          &bars->full[at]);
        }
        return;
    }
    /* a: by stores, of which the async proxy must be told */
    for (int i = thread; i < HG_M * n_k * HG_K / 8; i += 128) {
        int row = i / (n_k * 8), k = i % (n_k * 8) * 8;
        *(uint4 *)(sm + k / HG_K * HG_A + swizzled<SWIZZLE_128>((uint32_t)(row * 128 + k % HG_K * 2))) =
            *(const uint4 *)(a + (size_t)row * n_k * HG_K + k);
    }
    if (BUG != HOP_NO_PROXY) fence_async();
    part_sync(1, BUG == HOP_PART_COUNT && warp == 3 ? 96 : 128);
    constexpr uint64_t layout =
        wgmma_layout(BUG == HOP_SWIZZLE ? SWIZZLE_64 : SWIZZLE_128, 16, BUG == HOP_STRIDE ? 512 : 1024);
    float acc[HG_N / 2] = {}, early = 0;
    for (int t = 0; t < n_k; t++) {
        int at = t % 2;
        if (BUG != HOP_NO_WAIT) mbar_wait(&bars->full[at], (uint32_t)(t / 2 + (BUG == HOP_PARITY)) & 1);
        uint64_t oa = wgmma_operand(sm + t * HG_A, layout), ob = wgmma_operand(sb + at * HG_STAGE, layout);
        wgmma_hold(acc);
        if (BUG != HOP_NO_FENCE) wgmma_fence();
#pragma unroll
        for (int k = 0; k < HG_K / 16; k++) {
            if (BUG == HOP_DIVERGE && warp == 2 && t == 1 && k == 1) continue;
            wgmma<true, false, false>(acc, wgmma_step(oa, k * 32), wgmma_step(ob, k * 32), t || k);
        }
        if (BUG != HOP_NO_COMMIT) wgmma_commit();
        if (BUG == HOP_ACC_WRITE && t == 1) acc[3] *= 2.0f;
        if (BUG == HOP_OPERAND_WRITE && t == n_k - 1 && thread < HG_M) sm[t * HG_A + thread * 128] ^= 1;
        if (BUG == HOP_RELEASE && lane == 0) mbar_arrive(&bars->empty[at]);
        wgmma_wait<1>(); /* the products of the stage before are done */
        if (BUG != HOP_RELEASE && t && lane == 0) mbar_arrive(&bars->empty[1 - at]);
    }
    if (BUG == HOP_EARLY_READ) early = acc[5];
    if (BUG == HOP_WAIT_LEFT)
        wgmma_wait<1>(acc);
    else
        wgmma_wait<0>(acc);
    if (BUG == HOP_EARLY_READ) acc[5] = early;
#pragma unroll
    for (int i = 0; i < HG_N / 2; i++) {
        int row = warp * 16 + lane / 4 + i / 2 % 2 * 8, col = i / 4 * 8 + lane % 4 * 2 + i % 2;
        out[row * HG_N + col] = acc[i];
    }
}
