/* gemm: how matrices lie in memory and who multiplies with them: one table per instruction set, one row per type of
 * weight. Private to kernels/cpu/. No state; weights are written while loading and read by everybody after.
 *
 * A matrix is cut into panels of 16 outputs. Inside a panel, numbers lie in one of these orders, k upwards:
 *   LANES   [k][16]            one vector per input                f32, f16; bf16 and codes without a bf16 unit
 *   PAIRS   [k / 2][16][2]     a pair of inputs per 32-bit lane    bf16 and codes for vdpbf16ps and AMX (a tile is 32 inputs)
 *   QUADS   [k / 4][16][4]     four per lane, bytes + 128          int8 by int8; int8 and int4 for vpdpbusd (act16.h)
 *   EIGHTS  [k / n][16][n]     n in 8 bytes                        ARM's BFMMLA: bf16; SMMLA: int8 whose activations are int8
 * k is padded to whole tiles with zeros, whatever the variant, so that all take the same memory. Half bytes lie so that
 * one shift of a vector makes a vector of codes: LANES: k and k + 1 in a byte; QUADS: k and k + 4; PAIRS: 8 inputs in
 * [16][2] words of four. Bytes in PAIRS are sign and size, and four inputs of them lie so that interleaving two vectors
 * of bytes makes two pairs of bf16 (expand.h). Scales and zeros of codes lie behind all panels, [panel][group][16]: f32
 * for I8 and F8E4M3, f16 for I4, a byte for F4E2M1: the exponent's, or of E4M3, with a factor for each output behind
 * them, f32 [panel][16]. Panels of half bytes in QUADS are so short that every beginning of one costs a pause:
 * GEMM_COLS of them lie side by side, [k / 8][panel][64 bytes], and so do their scales, [group][panel][16]: one long
 * run each (gemm_side).
 *
 * Every output is summed over k in one order that the matrix alone decides: chains of fused multiply-adds that may be
 * cut anywhere and go on later, and, for codes, sums over a group (at most QUANT_CHUNK inputs) that are scaled and
 * added in turn. */
#pragma once
#include "kernels/cpu/simd.h"
#include "kernels/quant.h"

enum { GEMM_PANEL = SIMD_LANES, GEMM_COLS = 4 /* panels that are multiplied with side by side: streams from memory */ };
enum gemm_order { GEMM_LANES, GEMM_PAIRS, GEMM_QUADS, GEMM_EIGHTS };

struct gemm_scratch { /* of one thread; 64-byte aligned */
    void  *p;
    size_t bytes;
};
/* out[r, 16 c + l] = (add ? itself : 0) + sum over k, for n_row rows and n_panel <= GEMM_COLS panels.
 * x: rows as `prepare` makes them, x_stride bytes apart; where there is no prepare, rows of floats. ldo: in
 * elements. more than eight: the three matrices of a product with their strides, and the part of it; every kind of
 * codes takes them in this one form. */
typedef void gemm_mul_fn(const struct simd *v, float *out, size_t ldo, const void *x, size_t x_stride,
                         const struct dev_weight *w, uint32_t panel, uint32_t n_panel, uint32_t n_row, bool add,
                         const struct gemm_scratch *s);
struct gemm_kind {
    enum gemm_order order;
    /* of a prepared row: a multiple of 64; NULL: floats are taken as they are */
    size_t (*row_bytes)(const struct dev_weight *w);
    void (*prepare)(void *row, const float *x, const struct dev_weight *w);
    gemm_mul_fn *mul;
};

struct attn_kind;
/* An instruction set of the cpu device: the inner loops of all other ops, and products by type of weight. */
struct cpu_isa {
    enum dev_cpu_isa   id;
    const struct simd *v;
    bool (*has)(void);
    const struct gemm_kind *(*kind)(enum dtype t, bool act8);
    struct {
        uint8_t i8, i4;
    } act8_tenths; /* how fast codes are multiplied by activations of 8 bits beside 16 or floats, 32 rows and more; 0: not measured */
    const struct attn_kind *attn; /* attn.h; NULL, or a type of keys that it does not serve: in floats */
};
extern const struct gemm_kind gemm_lanes_plain, gemm_lanes_quant, gemm_lanes_act8;
#if defined(__x86_64__)
/* int8, int4 and 4-bit floats */
extern const struct gemm_kind gemm_words_avx2, gemm_words_vnni, gemm_words_avx512;
extern const struct gemm_kind gemm_words_act8_avx2, gemm_words_act8_vnni, gemm_words_act8_avx512; /* int8 by int8 */
extern const struct gemm_kind gemm_nibbles_act8_avx2, gemm_nibbles_act8_vnni,
    gemm_nibbles_act8_avx512;                                    /* int4 by int8 */
const struct gemm_kind *gemm_vnni_kind(enum dtype t, bool act8); /* NULL: as on avx512 */
const struct gemm_kind *gemm_bf16_kind(enum dtype t, bool act8); /* the same */
const struct gemm_kind *gemm_amx_kind(enum dtype t, bool act8);  /* the same */
bool                    gemm_amx_works(void); /* tiles do what they should, here; they are there and allowed */
#elif defined(__aarch64__)
const struct gemm_kind *gemm_mmla_kind(enum dtype t, bool act8); /* NULL: as on neon */
#endif

const char *cpu_isa_name(const struct cpu_isa *isa);   /* on the command line: "avx2" */
const char *cpu_isa_device(const struct cpu_isa *isa); /* of a device that uses it: "cpu avx2" */
/* The best of this machine, or the one of that name (NULL, "auto": the best); NULL: no such thing here. */
const struct cpu_isa *cpu_isa_pick(const char *name);

/* Products with int8 codes down to -128, for instruction sets whose own are kept as sign and size. */
const struct gemm_kind *cpu_full_kind(enum dtype t, bool act8);

/* Panels of n rows of weights; k rounded up to a multiple of `to`. */
static inline uint32_t gemm_n_panel(uint32_t n) { return (n + GEMM_PANEL - 1) / GEMM_PANEL; }
static inline uint32_t gemm_round(uint32_t k, uint32_t to) { return (k + to - 1) / to * to; }
/* Inputs with their padding. */
static inline uint32_t gemm_k(enum dtype t, uint32_t k)
{
    if (t == DT_F32 || t == DT_F16) return k;
    return gemm_round(k, t == DT_I8 ? 64 : 32);
}
/* Bytes of the numbers of one panel. */
static inline size_t gemm_panel_bytes(enum dtype t, uint32_t k)
{
    size_t n = (size_t)gemm_k(t, k) * GEMM_PANEL;
    return dtype_is_half_byte(t) ? n / 2 : n * dtype_bytes(t);
}
/* Bytes of a scale. */
static inline size_t gemm_scale_bytes(enum dtype t)
{
    if (t == DT_F4E2M1) return 1;
    return t == DT_I4 ? sizeof(f16) : sizeof(float);
}
/* Rows for products of bf16: a line more than the numbers, for rows a power of two apart would fall into the same few
 * lines of the first cache. */
static inline size_t bf16_row_bytes(const struct dev_weight *w)
{
    return (size_t)gemm_round(w->k, 32) * sizeof(bf16) + 64;
}
static inline const struct gemm_kind *gemm_of(const struct dev_weight *w) { return w->how; }
/* How many panels lie side by side where this one lies: 1 .. GEMM_COLS. */
static inline uint32_t gemm_side(const struct dev_weight *w, uint32_t panel)
{
    uint32_t left = gemm_n_panel(w->n) - panel / GEMM_COLS * GEMM_COLS;
    if (!dtype_is_half_byte(w->dtype) || gemm_of(w)->order != GEMM_QUADS) return 1;
    return left < GEMM_COLS ? left : GEMM_COLS;
}
/* Where a panel begins. */
static inline size_t gemm_panel_at(const struct dev_weight *w, uint32_t panel)
{
    uint32_t in = gemm_side(w, panel) > 1 ? panel % GEMM_COLS : 0;
    return (panel - in) * gemm_panel_bytes(w->dtype, w->k) + (size_t)in * 64;
}
static inline const char *gemm_panel(const struct dev_weight *w, uint32_t panel)
{
    return (const char *)w->data + gemm_panel_at(w, panel);
}
/* Sums are scaled after this many inputs. */
static inline uint32_t gemm_chunk(const struct dev_weight *w)
{
    return w->q.group && w->q.group < QUANT_CHUNK ? w->q.group : QUANT_CHUNK;
}
static inline size_t gemm_scale_at(const struct dev_weight *w, uint32_t panel, uint32_t k)
{
    uint32_t side = gemm_side(w, panel), in = side > 1 ? panel % GEMM_COLS : 0;
    return ((size_t)(panel - in) * quant_n_group(&w->q, w->k) + (w->q.group ? k / w->q.group : 0) * side + in) *
           GEMM_PANEL;
}
/* Two's complement to sign and size, and back. */
static inline uint8_t gemm_sign_size(uint8_t c) /* signs come at random: no branch on them */
{
    uint32_t minus = 0u - (c >> 7);
    return (uint8_t)((((c ^ minus) - minus) & 0xff) | (minus & 0x80));
}
/* Where number (k, lane) of a panel lies; half bytes: the byte, and in shift_out which half. Panels side by side: of the first
 * 8 numbers. */
static inline size_t gemm_at(enum gemm_order order, enum dtype t, uint32_t k, uint32_t lane, uint32_t *shift_out)
{
    bool half = dtype_is_half_byte(t);
    *shift_out = 0;
    if (order == GEMM_QUADS && half) {
        *shift_out = k % 8 / 4 * 4;
        return (size_t)(k / 8) * 64 + lane * 4 + k % 4;
    }
    if (order == GEMM_QUADS) return (size_t)(k / 4) * 64 + lane * 4 + k % 4;
    if (order == GEMM_EIGHTS) {
        uint32_t n = t == DT_BF16 ? 4 : 8;
        return (size_t)(k / n) * GEMM_PANEL * n + lane * n + k % n;
    }
    if (order == GEMM_LANES && !half) return (size_t)k * 16 + lane;
    if (t == DT_BF16) return (size_t)(k / 2) * 32 + lane * 2 + k % 2;
    if (!half) {
        uint32_t word = lane * 2 + k % 2;
        return (size_t)(k / 4) * 64 + word / 8 * 16 + k % 4 / 2 * 8 + word % 8;
    }
    if (order == GEMM_LANES) {
        *shift_out = k % 2 * 4;
        return (size_t)(k / 2) * 16 + lane;
    }
    uint32_t nibble = k % 8 / 2;
    *shift_out = nibble % 2 * 4;
    return (size_t)(k / 8) * 64 + (lane * 2 + k % 2) * 2 + nibble / 2;
}
