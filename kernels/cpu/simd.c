#include "kernels/cpu/simd.h"
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

static bool has(const struct simd *v)
{
#if defined(__x86_64__)
    unsigned a, b, c, d;
    __builtin_cpu_init();
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_F16C)) return v == &simd_scalar;
    if (v == &simd_avx512)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
               __builtin_cpu_supports("avx512dq");
    if (v == &simd_avx2) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
    return v == &simd_scalar;
}

const struct simd *simd_pick(const char *name)
{
    static const struct simd *const best_first[] = {
#if defined(__x86_64__)
        &simd_avx512,
        &simd_avx2,
#endif
        &simd_scalar,
    };
    for (size_t i = 0; i < sizeof best_first / sizeof *best_first; i++)
        if (has(best_first[i]) && (!name || !strcmp(name, best_first[i]->name))) return best_first[i];
    return NULL;
}
