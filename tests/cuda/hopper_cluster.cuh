/* hopper_cluster: a ring that the blocks of a cluster fill together, right or with a mistake (enum hopper_bug):
 * hopper_kernels.cu has the right one, emu_hopper_kernels.cu the others.
 *
 * Of each piece a block brings its share to all blocks. Warp 0 brings, warp 1 uses: out[block][i] = 3 in[cluster][i] + the
 * block's rank. A stage is free when warp 1 of every block has released it. */
#pragma once
#include "cuda/hopper_kernels.h"
#include "kernels/cuda/hopper.cuh"

enum { HC_STAGES = 2, HC_THREADS = 64 };

template <int BUG>
__global__ void __launch_bounds__(HC_THREADS)
    k_hop_cluster(uint32_t *out, const uint32_t *in, uint32_t n, uint32_t n_piece)
{
    enum { SHARE = HOPPER_SHARE, WORDS = SHARE / 4 };
    DYN_SMEM_1024(uint8_t, sm);
    const uint32_t rank = cluster_rank(), lane = threadIdx.x % WARP, cluster = blockIdx.x / n, words = n * WORDS;
    const uint32_t all = BUG == HOP_ONLY_OWN ? 1u << rank : (1u << n) - 1;
    uint64_t      *full = (uint64_t *)(sm + HC_STAGES * n * SHARE), *empty = full + HC_STAGES;
    if (threadIdx.x == 0) {
        const uint32_t releases = BUG == HOP_RELEASE_OWN ? 1 : n;
        for (int i = 0; i < HC_STAGES; i++) {
            mbar_init(&full[i], 1);
            mbar_init(&empty[i], BUG == HOP_CLUSTER_COUNT ? n + 1 : releases);
        }
        fence_async();
        if (BUG != HOP_NOT_SHOWN) mbar_show();
    }
    if (BUG == HOP_NOT_MET)
        __syncthreads();
    else
        cluster_sync();
    for (uint32_t p = 0; p < n_piece; p++) {
        const uint32_t at = p % HC_STAGES, parity = p / HC_STAGES & 1;
        uint8_t       *stage = sm + at * n * SHARE;
        if (threadIdx.x == 0) {
            mbar_wait(&empty[at], parity ^ 1);
            mbar_expect(&full[at], n * SHARE);
            bulk_load_to(stage + rank * SHARE, in + (size_t)(cluster * n_piece + p) * words + rank * WORDS, SHARE,
                         &full[at], all);
        } else if (threadIdx.x >= WARP) {
            mbar_wait(&full[at], parity);
            for (uint32_t i = lane; i < words; i += WARP)
                out[((size_t)blockIdx.x * n_piece + p) * words + i] = 3 * ((uint32_t *)stage)[i] + rank;
            __syncwarp();
            if (BUG == HOP_RELEASE_OWN) {
                if (lane == 0) mbar_arrive(&empty[at]);
            } else if (lane < n) {
                mbar_arrive_at(&empty[at], BUG == HOP_NO_SUCH_RANK ? lane + 1 : lane);
            }
        }
    }
    if (BUG != HOP_NO_LAST_MEETING) cluster_sync();
}
static inline void hopper_cluster_launch(void (*kernel)(uint32_t *, const uint32_t *, uint32_t, uint32_t),
                                         cudaStream_t s, uint32_t *out, const uint32_t *in, uint32_t n,
                                         uint32_t n_cluster, uint32_t n_piece)
{
    LAUNCH_CLUSTER(kernel, n, n * n_cluster, HC_THREADS, HC_STAGES * n * HOPPER_SHARE + 2 * HC_STAGES * 8, s, out, in,
                   n, n_piece);
}
