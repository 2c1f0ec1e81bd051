/* weigh: the likelihood of an id as an integer, so that sums do not depend on order or division.   Private to kernels/.
 * C and CUDA compile this same text, and every rounding is explicit, so cpu and cuda give the same bits. No state. */
#pragma once
#include <math.h>
#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define WEIGH_FN static inline __host__ __device__
#else
#define WEIGH_FN static inline
#endif

enum { WEIGH_BITS = 42 }; /* e = 1 weighs 2^42; 2^20 ids, the largest vocabulary, weigh less than 2^63 */

/* e * 2^42 to the nearest integer, ties to even; 0 <= e <= 1. In [2^10, 2^11) a double counts in steps of 2^-42. */
WEIGH_FN uint64_t weigh(float e)
{
    double   t = (double)e + 1024.0;
    uint64_t u;
    memcpy(&u, &t, sizeof u);
    return u & 0xfffffffffffffu;
}

/* The weight that the candidates of top_p < 1 must reach: ceil(total * top_p), at least 1. top_p is cut to 32
 * fractional bits. */
WEIGH_FN uint64_t weigh_part(uint64_t total, float top_p)
{
    uint64_t p = top_p > 0 ? (uint64_t)(top_p * 4294967296.0f) : 0, low = (total & 0xffffffffu) * p;
    uint64_t part = (total >> 32) * p + (low >> 32) + ((low & 0xffffffffu) != 0);
    return part ? part : 1;
}

/* floor(total * rng_unit(x)). The first id whose cumulative weight exceeds it is drawn. */
WEIGH_FN uint64_t weigh_place(uint64_t total, uint32_t x)
{
    uint64_t u = (uint64_t)(x >> 9) * 2 + 1; /* of 2^24 */
    return ((total >> 32) * u << 8) + ((total & 0xffffffffu) * u >> 24);
}

/* ln(total / 2^42), total > 0, within 1e-15: total = 2^k m with m near 1, and ln m = 2 atanh((m - 1) / (m + 1)) as a
 * series */
WEIGH_FN double weigh_log(uint64_t total)
{
    double   m = (double)total, p = 1.0 / 23, s, q;
    uint64_t u;
    memcpy(&u, &m, sizeof u);
    int k = (int)(u >> 52) - 1023 - WEIGH_BITS;
    u = (u & 0xfffffffffffffu) | 0x3ff0000000000000u;
    memcpy(&m, &u, sizeof m);
    if (m > 1.4142135623730951) {
        m *= 0.5;
        k++;
    }
    s = (m - 1.0) / (m + 1.0);
    q = s * s;
    for (int i = 21; i >= 3; i -= 2) p = fma(p, q, 1.0 / i);
    return fma((double)k, 0.69314718055994530942, fma(2.0 * (s * q), p, 2.0 * s));
}

/* log-softmax of a logit, rounded once. lse: max + weigh_log(sum). Never -0, which readers of logprobs do not
 * expect. */
WEIGH_FN float weigh_logprob(float logit, double lse) { return (float)((double)logit - lse) + 0.0f; }
