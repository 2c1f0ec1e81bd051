/* rng: counter-based random numbers: same (seed, stream, counter), same bits, in any batch and order.
 * Philox-4x32-10, Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3".   Thread: any, no state. */
#pragma once
#include <stdint.h>

#ifdef __CUDACC__ /* kernels draw too */
#define RNG_FN static inline __host__ __device__
#else
#define RNG_FN static inline
#endif

struct rng_block {
    uint32_t x[4];
};

/* Four words of 32 random bits. Philox4x32-10 (Salmon et al. 2011): a pure function of its arguments. */
RNG_FN struct rng_block rng_philox(uint64_t seed, uint64_t stream, uint64_t counter)
{
    uint32_t c0 = (uint32_t)counter, c1 = (uint32_t)(counter >> 32), c2 = (uint32_t)stream,
             c3 = (uint32_t)(stream >> 32);
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int i = 0; i < 10; i++) {
        uint64_t a = (uint64_t)0xD2511F53u * c0, b = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(b >> 32) ^ c1 ^ k0, n2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)b;
        c3 = (uint32_t)a;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    struct rng_block b = { { c0, c1, c2, c3 } };
    return b;
}
/* uniform in (0,1), 23 bits and a half: with 24 the largest would round up to 1. Never 0, never 1 */
RNG_FN float rng_unit(uint32_t x) { return ((float)(x >> 9) + 0.5f) * (1.0f / 8388608.0f); }
