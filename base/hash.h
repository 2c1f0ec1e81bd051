/* hash: 64-bit mixing for tables (not for identity: that is SHA-256, see kvcache/).   Thread: any. */
#pragma once
#include <stddef.h>
#include <stdint.h>

/* splitmix64 finalizer: a bijection with good avalanche (Steele et al. 2014). */
static inline uint64_t hash_u64(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}
/* A hash of h and v together; the order matters. */
static inline uint64_t hash_combine(uint64_t h, uint64_t v)
{
    return hash_u64(h ^ (v + 0x9e3779b97f4a7c15u + (h << 6) + (h >> 2)));
}
/* seeded with a per-process random value where the bytes come from outside */
uint64_t hash_bytes(const void *p, size_t n, uint64_t seed);
/* A number for seeds that clients cannot guess. It comes from the kernel, or from the clock if the kernel has none. */
uint64_t hash_seed(void);

/* XXH3-128: the same number on every machine, computed with the widest vectors of the machine. It is meant for
 * gigabytes of data. It is no cryptographic hash: a person who chooses the bytes can construct two inputs with the same
 * hash. */
struct hash128 {
    uint64_t lo, hi;
};
struct hash128 hash128_bytes(const void *p, size_t n, uint64_t seed);
