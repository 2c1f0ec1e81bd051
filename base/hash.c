#include "base/hash.h"
#include "base/clock.h"
#include <sys/random.h>
#include <xxhash.h>
#ifdef WITH_XXH_DISPATCH
#include <xxh_x86dispatch.h> /* from here on the names mean what looks at the CPU first */

/* The library's wide variants return with the upper halves of the vector registers in use. All code built for the
 * oldest CPUs, which writes the lower halves alone, then runs at half its speed until something clears the upper ones:
 * int8 weights took 2.2 s to load instead of 1.2. */
__attribute__((target("avx"))) static void clear_upper_halves(void) { __builtin_ia32_vzeroupper(); }

static void after_wide_code(void)
{
    if (__builtin_cpu_supports("avx")) clear_upper_halves();
}
#else
static void after_wide_code(void) {}
#endif

uint64_t hash_bytes(const void *p, size_t n, uint64_t seed)
{
    uint64_t h = XXH3_64bits_withSeed(p, n, seed);
    after_wide_code();
    return h;
}

uint64_t hash_seed(void)
{
    uint64_t seed;
    return getrandom(&seed, sizeof seed, 0) == sizeof seed ? seed : clock_us();
}

struct hash128 hash128_bytes(const void *p, size_t n, uint64_t seed)
{
    XXH128_hash_t h = XXH3_128bits_withSeed(p, n, seed);
    after_wide_code();
    return (struct hash128){ h.low64, h.high64 };
}
