/* simd: the inner loops of the cpu device, one table per instruction set, picked once at open.   Private to
 * kernels/cpu/. All variants work on 16 lanes (AVX2: two registers, NEON: four, scalar: an array) in the same order
 * with the same reduction tree, so avx2, avx512 and neon give the same bits, and scalar too where the compiler has a
 * fused multiply-add; what is sampled is the same on all of them everywhere. No state. */
#pragma once
#include "kernels/device.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SIMD_LANES = 16, SIMD_WEIGH_MAX = 256 };

/* How many of the rows that are left go into the next block of at most `most`: as few blocks as can be, as even as they
 * come. */
static inline uint32_t simd_rows(uint32_t left, uint32_t most)
{
    uint32_t n_block = (left + most - 1) / most;
    return (left + n_block - 1) / n_block;
}

/* Columns [16 * cols] of a product, each element one chain of fused multiply-adds over k, from k = 0 upwards:
 *   out[r, 16 c + l] (+)= sum over k of x[r, k] * w[c * w_col + k * w_k + l]
 * so that a chain may be cut anywhere and go on later, and no element knows of its neighbours. ld*, w_*: in
 * elements. more than eight: three matrices with their strides, and the sizes, as every matrix product has them. */
typedef void simd_mul_fn(float *out, size_t ldo, const float *x, size_t ldx, const void *w, size_t w_col, size_t w_k,
                         uint32_t k, uint32_t rows, uint32_t cols, bool add);

struct simd {
    const char  *name;
    simd_mul_fn *mul[3]; /* by dtype of w: F32, BF16, F16 */

    /* n_k inputs of one panel and one group in GEMM_LANES order (gemm.h), as numbers: (code - zero) * scale -> dst
     * [n_k, 16]. I4: n_k even, scale and zero [16] f16, zero NULL: 8; F4E2M1: n_k even, scale [16] bytes, of
     * E4M3 where there are factors [16]; I8, F8E4M3: scale [16] f32. Zero is looked at of I4 alone */
    void (*expand)(float *dst, const void *code, enum dtype t, const void *scale, const f16 *zero, const float *factor,
                   uint32_t n_k);

    float (*sum_squares)(const float *x, uint32_t n);
    float (*total)(const float *x, uint32_t n);
    void (*shift)(float *out, const float *x, float by, uint32_t n); /* x - by; out may be x */
    void (*norm)(float *out, const float *x, const float *w, float scale,
                 uint32_t n); /* x * scale * w; w NULL: x * scale */
    void (*add)(float *x, const float *delta, uint32_t n);
    void (*cap)(float *x, float by, float cap, uint32_t n); /* x = cap * tanh(by * x / cap) */
    void (*act_mul[OP_ACTS])(float *out, const float *gate, const float *up, uint32_t n); /* act(gate) * up */
    void (*rope)(float *x, const float *cos, const float *sin, uint32_t half);            /* pairs (i, i + half) */
    void (*store)(void *dst, enum dtype t, const float *src, uint32_t n);
    void (*load)(float *dst, const void *src, enum dtype t,
                 uint32_t n); /* writes up to a multiple of 16, zeros behind n */
    /* Codes of E4M3 times scale, as bf16; exact (kernels/kv8.h). */
    void (*load_f8)(bf16 *dst, const uint8_t *code, float scale, uint32_t n);
    /* 16 tokens of dim elements each -> dst [dim, 16] */
    void (*pack_k)(float *dst, const void *const *token, enum dtype t, uint32_t dim);
    /* One tile of a running softmax: s [64] scores of which [lo, hi) are seen become weights; returns the factor for
     * what was summed before. m: running maximum; l [16]: running sum, by lane. */
    float (*softmax)(float *s, uint32_t lo, uint32_t hi, float *m, float *l);
    float (*sum)(const float *l); /* 16 lanes */

    float (*max)(const float *x, uint32_t n, bool *nan_out);
    void (*divide)(float *out, const float *x, float by, uint32_t n); /* out may be x */
    /* e = exp(x - max), 0 where that is below min; returns the sum (n <= 256, so that float is enough) */
    float (*exp_sum)(float *e, const float *x, float max, float min, uint32_t n); /* e NULL: the sum only */
    /* the same, but the sum is of weigh(e) (kernels/weigh.h): exact; n <= SIMD_WEIGH_MAX */
    uint64_t (*weigh)(float *e, const float *x, float max, float min, uint32_t n);
    uint32_t (*find)(const float *x, float value, uint32_t n); /* first index with x == value; n: none */
    uint32_t (*count_above)(const float *x, float value, uint32_t n);
    uint32_t (*ids_above)(uint32_t *id_out, const float *x, float value, uint32_t first_id, uint32_t n); /* ascending */
};

extern const struct simd simd_scalar;
#if defined(__x86_64__)
extern const struct simd simd_avx2, simd_avx512;
#elif defined(__aarch64__)
extern const struct simd simd_neon;
#endif
