/* gemm mmla: products by BFMMLA (FEAT_BF16) and SMMLA (FEAT_I8MM) of 64-bit ARM: two rows by two outputs, 4 inputs of
 * bf16 or 8 of int8 at a time. Activations are rounded to bf16, or to 8 bits, once per row; sums are float, or exact
 * integers of a group. What is computed of one row knows nothing of the other, so a row that is left over goes with
 * itself.
 * BFMMLA adds as bf16 units of ARM do, rounding to odd and without subnormals (Arm ARM, BFDotAdd): the same on every
 * core. */
#include "kernels/cpu/gemm.h"
#if defined(__aarch64__)
#include "base/check.h"
#include <arm_neon.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 8")
enum {
    PAIRS = 3,
    ROWS = 2 * PAIRS,
    COLS = 2,
    DUOS = GEMM_PANEL / 2,
    K_BLOCK = 4096,
    STEP = GEMM_PANEL * 8 /* bytes */
};

/* Some inputs of a product: rows of x and columns of w that begin there. */
struct part {
    float       *out;
    size_t       ldo;
    const char  *x, *w;
    size_t       x_stride, w_col; /* bytes */
    uint32_t     n;               /* eights: bytes of inputs / 8 */
    bool         add;
    const float *scale;               /* int8: of the outputs; scale_col: elements */
    size_t       scale_col, scale_at; /* scale_at: bytes from x to the row's scale */
};

/* The same 8 bytes of two rows; of R rows the last may be alone. */
INLINE const char *row_of(const struct part *p, int pair, int which, const int R)
{
    int r = 2 * pair + which;
    return p->x + (size_t)(r < R ? r : r - 1) * p->x_stride;
}
INLINE uint8x16_t two_rows(const char *a, const char *b)
{
    return vcombine_u8(vld1_u8((const void *)a), vld1_u8((const void *)b));
}

/* R rows by C columns of 16; both are constants where this is inlined. An accumulator: two outputs of one row, then of
 * the next. */
INLINE void tile(const struct part *p, const int R, const int C)
{
    float32x4_t acc[PAIRS][COLS * DUOS];
    const char *w = p->w, *x[ROWS];
    UNROLL for (int q = 0; q < (R + 1) / 2; q++)
    {
        x[2 * q] = row_of(p, q, 0, R);
        x[2 * q + 1] = row_of(p, q, 1, R);
        UNROLL for (int d = 0; d < C * DUOS; d++)
        {
            const float *to = p->out + (size_t)(2 * q) * p->ldo + 2 * d;
            acc[q][d] = vdupq_n_f32(0);
            if (p->add) acc[q][d] = vcombine_f32(vld1_f32(to), vld1_f32(2 * q + 1 < R ? to + p->ldo : to));
        }
    }
    for (uint32_t i = 0; i < p->n; i++, w += STEP) {
        bfloat16x8_t a[PAIRS];
        UNROLL for (int q = 0; q < (R + 1) / 2; q++) a[q] =
            vreinterpretq_bf16_u8(two_rows(x[2 * q] + 8 * i, x[2 * q + 1] + 8 * i));
        UNROLL for (int c = 0; c < C; c++)
        {
            const char *from = w + (size_t)c * p->w_col;
            __builtin_prefetch(from + 2048, 0, 3);
            UNROLL for (int d = 0; d < DUOS; d++)
            {
                bfloat16x8_t b = vreinterpretq_bf16_u8(vld1q_u8((const void *)(from + 16 * d)));
                UNROLL for (int q = 0; q < (R + 1) / 2; q++) acc[q][c * DUOS + d] =
                    vbfmmlaq_f32(acc[q][c * DUOS + d], a[q], b);
            }
        }
    }
    UNROLL for (int q = 0; q < (R + 1) / 2; q++) UNROLL for (int d = 0; d < C * DUOS; d++)
    {
        float *to = p->out + (size_t)(2 * q) * p->ldo + 2 * d;
        vst1_f32(to, vget_low_f32(acc[q][d]));
        if (2 * q + 1 < R) vst1_f32(to + p->ldo, vget_high_f32(acc[q][d]));
    }
}

INLINE float scale_of_row(const struct part *p, int r)
{
    float s;
    memcpy(&s, p->x + (size_t)r * p->x_stride + p->scale_at, sizeof s);
    return s;
}

/* The same of integers, whose sum over a group is scaled and added: out = (add ? out : 0) + sum * scale of the row *
 * scale of the output. */
INLINE void tile8(const struct part *p, const int R, const int C)
{
    int32x4_t   acc[PAIRS][COLS * DUOS];
    const char *w = p->w, *x[ROWS];
    UNROLL for (int q = 0; q < (R + 1) / 2; q++)
    {
        x[2 * q] = row_of(p, q, 0, R);
        x[2 * q + 1] = row_of(p, q, 1, R);
        UNROLL for (int d = 0; d < C * DUOS; d++) acc[q][d] = vdupq_n_s32(0);
    }
    for (uint32_t i = 0; i < p->n; i++, w += STEP) {
        int8x16_t a[PAIRS];
        UNROLL for (int q = 0; q < (R + 1) / 2; q++) a[q] =
            vreinterpretq_s8_u8(two_rows(x[2 * q] + 8 * i, x[2 * q + 1] + 8 * i));
        UNROLL for (int c = 0; c < C; c++)
        {
            const char *from = w + (size_t)c * p->w_col;
            __builtin_prefetch(from + 2048, 0, 3);
            UNROLL for (int d = 0; d < DUOS; d++)
            {
                int8x16_t b = vreinterpretq_s8_u8(vld1q_u8((const void *)(from + 16 * d)));
                UNROLL for (int q = 0; q < (R + 1) / 2; q++) acc[q][c * DUOS + d] =
                    vmmlaq_s32(acc[q][c * DUOS + d], a[q], b);
            }
        }
    }
    UNROLL for (int r = 0; r < R; r++)
    {
        float32x2_t of_row = vdup_n_f32(scale_of_row(p, r));
        UNROLL for (int d = 0; d < C * DUOS; d++)
        {
            float      *to = p->out + (size_t)r * p->ldo + 2 * d;
            int32x4_t   sum = acc[r / 2][d];
            float32x2_t t = vmul_f32(vcvt_f32_s32(r % 2 ? vget_high_s32(sum) : vget_low_s32(sum)), of_row);
            float32x2_t s = vld1_f32(p->scale + (size_t)(d / DUOS) * p->scale_col + d % DUOS * 2);
            vst1_f32(to, vfma_f32(p->add ? vld1_f32(to) : vdup_n_f32(0), t, s));
        }
    }
}

/* One function per R, so that each has its registers for itself: one pair of rows takes two columns side by side, as
 * two streams. */
#define ROW(fn, R)                                                                                          \
    static void fn##_##R(struct part p, uint32_t cols)                                                      \
    {                                                                                                       \
        for (; (R) <= 2 && cols >= COLS; cols -= COLS, p.out += COLS * GEMM_PANEL, p.w += COLS * p.w_col) { \
            fn(&p, R, COLS);                                                                                \
            if (p.scale) p.scale += COLS * p.scale_col;                                                     \
        }                                                                                                   \
        for (; cols; cols--, p.out += GEMM_PANEL, p.w += p.w_col) {                                         \
            fn(&p, R, 1);                                                                                   \
            if (p.scale) p.scale += p.scale_col;                                                            \
        }                                                                                                   \
    }
#define BY_ROWS(fn)                                                                                          \
    ROW(fn, 1)                                                                                               \
    ROW(fn, 2)                                                                                               \
    ROW(fn, 3)                                                                                               \
    ROW(fn, 4)                                                                                               \
    ROW(fn, 5)                                                                                               \
    ROW(fn, 6)                                                                                               \
    static void fn##_rows(struct part p, uint32_t rows, uint32_t cols)                                       \
    {                                                                                                        \
        static void (*const by_rows[])(struct part,                                                          \
                                       uint32_t) = { NULL, fn##_1, fn##_2, fn##_3, fn##_4, fn##_5, fn##_6 }; \
        for (uint32_t r; rows > 0; rows -= r, p.out += r * p.ldo, p.x += r * p.x_stride) {                   \
            r = rows < ROWS ? rows : ROWS;                                                                   \
            by_rows[r](p, cols);                                                                             \
        }                                                                                                    \
    }
BY_ROWS(tile)
BY_ROWS(tile8)

/* ---------------------------------------------------------------- bf16 */

static void bf16_prepare(void *row, const float *x, const struct dev_weight *w)
{
    bf16    *to = row;
    uint32_t i = 0;
    for (; i + 8 <= w->k; i += 8)
        vst1q_bf16((void *)(to + i), vcvtq_high_bf16_f32(vcvtq_low_bf16_f32(vld1q_f32(x + i)), vld1q_f32(x + i + 4)));
    for (; i < w->k; i++) to[i] = f32_to_bf16(x[i]);
    memset(to + i, 0, bf16_row_bytes(w) - i * sizeof *to);
}

static void bf16_mul(const struct simd *v, float *out, size_t ldo, const void *x, size_t x_stride,
                     const struct dev_weight *w, uint32_t panel, uint32_t n_panel, uint32_t n_row, bool add,
                     const struct gemm_scratch *s)
{
    (void)v;
    (void)s;
    uint32_t k = gemm_round(w->k, 32), block = n_row <= ROWS ? k : K_BLOCK, n_k; /* a chain may be cut anywhere */
    for (uint32_t i = 0; i < k; i += n_k, add = true) {
        n_k = k - i < block ? k - i : block;
        struct part p = { .out = out,
                          .ldo = ldo,
                          .x_stride = x_stride,
                          .w_col = gemm_panel_bytes(DT_BF16, w->k),
                          .n = n_k / 4,
                          .add = add };
        p.x = (const char *)x + i * sizeof(bf16);
        p.w = gemm_panel(w, panel) + (size_t)i * GEMM_PANEL * sizeof(bf16);
        tile_rows(p, n_row, n_panel);
    }
}

/* ---------------------------------------------------------------- 8 bits by 8 bits */

/* Codes, padded with zeros; the row's scale. */
static size_t int8_bytes(const struct dev_weight *w) { return (size_t)gemm_round(w->k, 64) + 64; }

static void int8_prepare(void *row, const float *x, const struct dev_weight *w)
{
    int8_t *code = row;
    float   scale = quant_act(x, w->k, code);
    memset(code + w->k, 0, int8_bytes(w) - w->k);
    memcpy(code + gemm_round(w->k, 64), &scale, sizeof scale);
}

static void int8_mul(const struct simd *v, float *out, size_t ldo, const void *x, size_t x_stride,
                     const struct dev_weight *w, uint32_t panel, uint32_t n_panel, uint32_t n_row, bool add,
                     const struct gemm_scratch *s)
{
    (void)v;
    (void)s;
    uint32_t k_all = gemm_round(w->k, 64), n_group = quant_n_group(&w->q, w->k),
             group = w->q.group ? w->q.group : k_all;
    for (uint32_t g = 0; g < n_group; g++, add = true) {
        uint32_t    k = g * group, n_k = k_all - k < group ? k_all - k : group;
        struct part p = { .out = out,
                          .ldo = ldo,
                          .x_stride = x_stride,
                          .w_col = gemm_panel_bytes(DT_I8, w->k),
                          .n = n_k / 8,
                          .add = add };
        p.x = (const char *)x + k;
        p.w = gemm_panel(w, panel) + (size_t)k * GEMM_PANEL;
        p.scale = (const float *)w->scale + gemm_scale_at(w, panel, k);
        p.scale_col = (size_t)n_group * GEMM_PANEL;
        p.scale_at = k_all - k;
        tile8_rows(p, n_row, n_panel);
    }
}

const struct gemm_kind *gemm_mmla_kind(enum dtype t, bool act8)
{
    static const struct gemm_kind plain = { GEMM_EIGHTS, bf16_row_bytes, bf16_prepare, bf16_mul },
                                  int8 = { GEMM_EIGHTS, int8_bytes, int8_prepare, int8_mul };
    if (t == DT_BF16) return &plain;
    return t == DT_I8 && act8 ? &int8 : NULL;
}
#else
typedef int gemm_mmla_is_empty;
#endif
