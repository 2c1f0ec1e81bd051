#include "base/hash.h"
#include <xxhash.h>
#ifdef WITH_XXH_DISPATCH
#include <xxh_x86dispatch.h> /* from here on the names mean what looks at the CPU first */
#endif

uint64_t hash_bytes(const void *p, size_t n, uint64_t seed) { return XXH3_64bits_withSeed(p, n, seed); }

struct hash128 hash128_bytes(const void *p, size_t n, uint64_t seed)
{
    XXH128_hash_t h = XXH3_128bits_withSeed(p, n, seed);
    return (struct hash128){ h.low64, h.high64 };
}
