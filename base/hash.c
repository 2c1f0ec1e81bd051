#include "base/hash.h"
#include "base/clock.h"
#include <sys/random.h>
#include <xxhash.h>
#ifdef WITH_XXH_DISPATCH
#include <xxh_x86dispatch.h> /* from here on the names mean what looks at the CPU first */
#endif

uint64_t hash_bytes(const void *p, size_t n, uint64_t seed) { return XXH3_64bits_withSeed(p, n, seed); }

uint64_t hash_seed(void)
{
    uint64_t seed;
    return getrandom(&seed, sizeof seed, 0) == sizeof seed ? seed : clock_us();
}

struct hash128 hash128_bytes(const void *p, size_t n, uint64_t seed)
{
    XXH128_hash_t h = XXH3_128bits_withSeed(p, n, seed);
    return (struct hash128){ h.low64, h.high64 };
}
