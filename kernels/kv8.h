/* kv8: rows of the KV cache in 8 bits. A row is the key or the value of one token and head: codes of E4M3, and one scale
 * of a byte, a power of two (E8M0), that is the row's own. So the bits of a row depend on that row alone, whoever is
 * beside it. Private to kernels/.
 *
 * The scale moves the exponent of the row's largest number to 7, so nothing overflows, and every number within 2^13 of
 * the largest keeps its four digits. As the scale is a power of two, a code times its scale is exact in bf16 too: all
 * devices read the same numbers. A row with a number that is infinite or none, or of 2^127 and more, has scale 255 and
 * is none as a whole, as OCP's Microscaling Formats 1.0 have it.
 *
 * Where a row lies: kernels/device.h, dev_kv_heads_bytes. */
#pragma once
#include "base/dtype.h"
#include <math.h>
#include <stddef.h>

enum {
    KV8_TOP = 7,        /* the exponent of the largest number */
    KV8_SCALE_MIN = 16, /* so that no code's number is subnormal in bf16: 2^-111 times 2^-9 */
    KV8_NONE = 255
};

#ifdef __CUDACC__
#define KV8_BOTH __host__ __device__
#else
#define KV8_BOTH
#endif

/* From the codes of token `slot` of a block to their scale, in bytes. */
static inline KV8_BOTH size_t kv8_scale_at(uint32_t block_tokens, uint32_t slot, uint32_t dim)
{
    return (size_t)(block_tokens - slot) * dim + slot;
}

/* The scale of a row. Sizes compare as the whole numbers that their bits are. */
static inline uint8_t kv8_scale(const float *x, uint32_t n)
{
    uint32_t most = 0, u;
    for (uint32_t i = 0; i < n; i++) {
        memcpy(&u, x + i, 4);
        u &= 0x7fffffffu;
        most = u > most ? u : most;
    }
    most >>= 23;
    if (most >= 254) return KV8_NONE;
    return (uint8_t)(most < KV8_SCALE_MIN + KV8_TOP ? KV8_SCALE_MIN : most - KV8_TOP);
}

/* What codes of that scale are multiplied by; NAN: the row is no number. */
static inline float kv8_factor(uint8_t scale) { return scale == KV8_NONE ? NAN : f8e8m0_to_f32(scale); }

/* Row x [n] -> its codes, and its scale kv8_scale_at behind them. */
static inline void kv8_store(uint8_t *code, size_t scale_at, const float *x, uint32_t n)
{
    uint8_t scale = code[scale_at] = kv8_scale(x, n);
    if (scale == KV8_NONE) {
        memset(code, 0, n);
        return;
    }
    float by = f8e8m0_to_f32((uint8_t)(254 - scale));
    for (uint32_t i = 0; i < n; i++) code[i] = f32_to_f8e4m3(x[i] * by);
}
