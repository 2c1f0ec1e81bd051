/* kv_copy: whole blocks of the KV pool copied within it, for forks of a sequence.   truth: host_block_copy in
 * kernels/host.c The pairs travel as kernel arguments: no copy to the device, and they may be reused by the host at
 * once. */
#include "base/check.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/common.cuh"

enum { COPY_THREADS = 256, COPY_PAIRS = 64, COPY_KEEP = 4 };

/* Sources from n_block on. first, step: 16-byte vectors */
struct copy_guests {
    const uint4 *first;
    uint64_t     step;
    uint32_t     n_block;
};
struct copy_pairs {
    uint32_t src[COPY_PAIRS], dst[COPY_PAIRS];
};

/* grid: pieces of a block, pairs. n_vec: 16-byte vectors of a block */
__global__ void __launch_bounds__(COPY_THREADS)
    k_block_copy(const __grid_constant__ struct copy_pairs p, uint4 *base, uint64_t n_vec, struct copy_guests g)
{
    uint32_t     from = p.src[blockIdx.y];
    const uint4 *src = from < g.n_block ? base + from * n_vec : g.first + (from - g.n_block) * g.step;
    uint4       *dst = base + p.dst[blockIdx.y] * n_vec;
    uint64_t     step = (uint64_t)gridDim.x * COPY_THREADS;
    pdl_wait();
    for (uint64_t i = (uint64_t)blockIdx.x * COPY_THREADS + threadIdx.x; i < n_vec; i += COPY_KEEP * step) {
        uint4 v[COPY_KEEP];
#pragma unroll
        for (int k = 0; k < COPY_KEEP; k++)
            if (i + k * step < n_vec) v[k] = src[i + k * step];
#pragma unroll
        for (int k = 0; k < COPY_KEEP; k++)
            if (i + k * step < n_vec) dst[i + k * step] = v[k];
    }
    pdl_launch();
}

static void copy_run(struct cuda_dev *d, const struct dev_kv *kv, const struct copy_pairs *p, uint32_t n)
{
    uint64_t n_vec = kv->block_bytes / sizeof(uint4), piece = COPY_THREADS * COPY_KEEP,
             n_piece = (n_vec + piece - 1) / piece;
    if (!n) return;
    if (n_piece > 64) n_piece = 64; /* a block of 2 MiB: 8 rounds each */
    struct copy_guests g = { (const uint4 *)kv->guest, kv->guest_step / sizeof(uint4), kv->n_block };
    LAUNCH(k_block_copy, dim3((uint32_t)n_piece, n), COPY_THREADS, 0, d, *p, (uint4 *)kv->base, n_vec, g);
    cuda_launched(d, "block_copy");
}

/* As if the pairs were copied one after the other: a pair that meets an earlier one of its launch waits for the next
 * launch. */
extern "C" void cuda_block_copy(struct device *dev, const struct dev_kv *kv, const uint32_t *src, const uint32_t *dst,
                                uint32_t n)
{
    struct cuda_dev  *d = cuda_of(dev);
    struct copy_pairs p;
    uint32_t          m = 0;
    CHECK(kv->block_bytes % sizeof(uint4) == 0 && ((uintptr_t)kv->base & 15) == 0);
    CHECK(kv->guest_step % sizeof(uint4) == 0 && ((uintptr_t)kv->guest & 15) == 0);
    for (uint32_t i = 0; i < n; i++) {
        bool meets = m == COPY_PAIRS;
        CHECK(src[i] < kv->n_block + kv->n_guest);
        CHECK(dst[i] < kv->n_block);
        if (src[i] == dst[i]) continue;
        for (uint32_t j = 0; j < m; j++) meets |= p.dst[j] == src[i] || p.dst[j] == dst[i] || p.src[j] == dst[i];
        if (meets) copy_run(d, kv, &p, m), m = 0;
        p.src[m] = src[i], p.dst[m] = dst[i], m++;
    }
    copy_run(d, kv, &p, m);
}
