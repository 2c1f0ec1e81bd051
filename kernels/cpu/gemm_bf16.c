/* gemm bf16: products by vdpbf16ps (AVX512-BF16) and vpdpbusd (VNNI). Activations are rounded to bf16, or to 8 bits, once per row;
 * sums are float. A row of codes becomes bf16 next to the processor, exactly: its scale comes after the sum over a group. */
#include "kernels/cpu/gemm.h"
#if defined(__x86_64__)
#include "base/check.h"
#include "kernels/cpu/expand.h"

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 8")
enum { ROWS = 6, COLS = GEMM_COLS, K_BLOCK = 4096 };

/* Some inputs of a product: rows of x and columns of w that begin there. */
struct part {
    float      *out;
    size_t      ldo;
    const char *x, *w;
    size_t      x_stride, w_col; /* bytes */
    uint32_t    n;               /* groups of inputs that share a 32-bit lane: pairs or quads */
    bool        add;
    /* scaled: out = (add ? out : 0) + sum * scale */
    const void *scale;
    size_t      scale_col; /* bytes */
    bool        scale_f16;
    size_t      sum_at, scale_at; /* act8: bytes from x to the row's sum over the group and to its scale */
};

static inline __m512 scale_of(const struct part *p, uint32_t c)
{
    const char *s = (const char *)p->scale + c * p->scale_col;
    return p->scale_f16 ? _mm512_cvtph_ps(_mm256_loadu_si256((const void *)s)) : _mm512_loadu_ps(s);
}
INLINE __m512i lane_of(const char *p)
{
    int32_t a;
    memcpy(&a, p, sizeof a);
    return _mm512_set1_epi32(a);
}
#define BF(x) ((__m512bh)(x))

/* R rows by C columns of 16; both are constants where this is inlined. */
INLINE void tile(const struct part *p, const bool scaled, const int R, const int C)
{
    __m512      acc[ROWS][COLS];
    const char *x = p->x, *w = p->w;
    UNROLL for (int r = 0; r < R; r++) UNROLL for (int c = 0; c < C; c++) acc[r][c] =
        p->add && !scaled ? _mm512_loadu_ps(p->out + (size_t)r * p->ldo + c * 16) : _mm512_setzero_ps();
    for (uint32_t i = 0; i < p->n; i++, x += 4, w += 64) {
        if (C == 1) _mm_prefetch(w + 2048, _MM_HINT_T0); /* one stream only: ask ahead */
        __m512i b[COLS];
        UNROLL for (int c = 0; c < C; c++) b[c] = _mm512_loadu_si512(w + (size_t)c * p->w_col);
        UNROLL for (int r = 0; r < R; r++)
        {
            __m512i a = lane_of(x + (size_t)r * p->x_stride);
            UNROLL for (int c = 0; c < C; c++) acc[r][c] = _mm512_dpbf16_ps(acc[r][c], BF(a), BF(b[c]));
        }
    }
    UNROLL for (int c = 0; c < C; c++)
    {
        __m512 s = scaled ? scale_of(p, (uint32_t)c) : _mm512_setzero_ps();
        UNROLL for (int r = 0; r < R; r++)
        {
            float *to = p->out + (size_t)r * p->ldo + c * 16;
            if (scaled) acc[r][c] = _mm512_fmadd_ps(acc[r][c], s, p->add ? _mm512_loadu_ps(to) : _mm512_setzero_ps());
            _mm512_storeu_ps(to, acc[r][c]);
        }
    }
}

/* By hand: gcc 12 copies registers around the intrinsic, which costs half of the speed. */
#define DPBUSD(acc, w, x) __asm__("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(w), "v"(x))

/* The same of integers: w + 128 lies in memory, so 128 times the sum of x is taken off. Modulo 2^32, where the difference fits. */
INLINE void tile8(const struct part *p, const int R, const int C)
{
    __m512i     acc[ROWS][COLS];
    const char *x = p->x, *w = p->w;
    UNROLL for (int r = 0; r < R; r++) UNROLL for (int c = 0; c < C; c++) acc[r][c] =
        _mm512_slli_epi32(_mm512_sub_epi32(_mm512_setzero_si512(), lane_of(x + (size_t)r * p->x_stride + p->sum_at)), 7);
    for (uint32_t i = 0; i < p->n; i++, x += 4, w += 64) {
        if (C == 1) _mm_prefetch(w + 2048, _MM_HINT_T0);
        __m512i b[COLS];
        UNROLL for (int c = 0; c < C; c++) b[c] = _mm512_loadu_si512(w + (size_t)c * p->w_col);
        UNROLL for (int r = 0; r < R; r++)
        {
            __m512i a = lane_of(x + (size_t)r * p->x_stride);
            UNROLL for (int c = 0; c < C; c++) DPBUSD(acc[r][c], b[c], a);
        }
    }
    x = p->x;
    UNROLL for (int c = 0; c < C; c++)
    {
        __m512 s = scale_of(p, (uint32_t)c);
        UNROLL for (int r = 0; r < R; r++)
        {
            float *to = p->out + (size_t)r * p->ldo + c * 16;
            __m512 t =
                _mm512_mul_ps(_mm512_cvtepi32_ps(acc[r][c]), _mm512_castsi512_ps(lane_of(x + (size_t)r * p->x_stride + p->scale_at)));
            _mm512_storeu_ps(to, _mm512_fmadd_ps(t, s, p->add ? _mm512_loadu_ps(to) : _mm512_setzero_ps()));
        }
    }
}

/* One function per R, so that each has its registers for itself. */
#define PLAIN(p, R, C)  tile(p, false, R, C)
#define SCALED(p, R, C) tile(p, true, R, C)
#define BY_ROWS(name, fn)                                                                                                             \
    ROW(name, fn, 1)                                                                                                                  \
    ROW(name, fn, 2)                                                                                                                  \
    ROW(name, fn, 3)                                                                                                                  \
    ROW(name, fn, 4)                                                                                                                  \
    ROW(name, fn, 5)                                                                                                                  \
    ROW(name, fn, 6)                                                                                                                  \
    static void name(struct part p, uint32_t rows, uint32_t cols)                                                                     \
    {                                                                                                                                 \
        static void (*const by_rows[])(struct part, uint32_t) = { NULL, name##_1, name##_2, name##_3, name##_4, name##_5, name##_6 }; \
        for (uint32_t n_block = (rows + ROWS - 1) / ROWS; n_block > 0; n_block--) { /* as even as they come */                        \
            uint32_t r = (rows + n_block - 1) / n_block;                                                                              \
            by_rows[r](p, cols);                                                                                                      \
            p.out += r * p.ldo, p.x += r * p.x_stride, rows -= r;                                                                     \
        }                                                                                                                             \
    }
#define ROW(name, fn, R)                                                                                               \
    static void name##_##R(struct part p, uint32_t cols)                                                               \
    {                                                                                                                  \
        if (cols == COLS) {                                                                                            \
            fn(&p, R, COLS);                                                                                           \
            return;                                                                                                    \
        }                                                                                                              \
        for (; cols; cols--, p.out += 16, p.w += p.w_col, p.scale = (const char *)p.scale + p.scale_col) fn(&p, R, 1); \
    }
BY_ROWS(mul_plain, PLAIN)
BY_ROWS(mul_scaled, SCALED)
BY_ROWS(mul_int8, tile8)

/* ---------------------------------------------------------------- bf16 */

static void row_prepare(void *row, const float *x, const struct dev_weight *w)
{
    char *to = row;
    for (uint32_t i = 0; i < w->k; i += 16, to += 32) {
        __m512 a = w->k - i >= 16 ? _mm512_loadu_ps(x + i) : _mm512_maskz_loadu_ps((__mmask16)((1u << (w->k - i)) - 1), x + i);
        _mm256_storeu_si256((void *)to, (__m256i)_mm512_cvtneps_pbh(a));
    }
    memset(to, 0, (size_t)((char *)row + bf16_row_bytes(w) - to));
}

static void bf16_mul(const struct simd *v, float *out, size_t ldo, const void *x, size_t x_stride, const struct dev_weight *w,
                     uint32_t panel, uint32_t n_panel, uint32_t n_row, bool add, const struct gemm_scratch *s)
{
    (void)v, (void)s;
    uint32_t k = gemm_round(w->k, 32), block = n_row <= ROWS ? k : K_BLOCK, n_k; /* a chain may be cut anywhere */
    for (uint32_t i = 0; i < k; i += n_k, add = true) {
        n_k = k - i < block ? k - i : block;
        struct part p = {
            .out = out, .ldo = ldo, .x_stride = x_stride, .w_col = gemm_panel_bytes(DT_BF16, w->k), .n = n_k / 2, .add = add
        };
        p.x = (const char *)x + i * sizeof(bf16);
        p.w = gemm_panel(w, panel) + (size_t)i * GEMM_PANEL * sizeof(bf16);
        mul_plain(p, n_row, n_panel);
    }
}

/* Four panels: codes become bf16 in registers, for four rows at a time: with more there are too few registers, and through memory
 * (below, for the last panels) it is slower even where all rows share it. The same products in the same order either way. */
enum { FEW = 4 };

/* p->n counts pairs; p->w is codes. What is in a register of codes: UNIT pairs. */
#define FEW_TILE(name, UNIT, SETUP, CODES)                                                                                   \
    INLINE void few_##name(const struct part *p, const void *aux, const int R, const int C)                                  \
    {                                                                                                                        \
        __m512      acc[FEW][COLS];                                                                                          \
        const char *x = p->x, *w = p->w;                                                                                     \
        SETUP;                                                                                                               \
        UNROLL for (int r = 0; r < R; r++) UNROLL for (int c = 0; c < C; c++) acc[r][c] = _mm512_setzero_ps();               \
        for (uint32_t i = 0; i < p->n; i += UNIT, x += 4 * UNIT, w += 64) {                                                  \
            UNROLL for (int c = 0; c < C; c++)                                                                               \
            {                                                                                                                \
                __m512i b[UNIT];                                                                                             \
                _mm_prefetch(w + (size_t)c * p->w_col + 2048, _MM_HINT_T0);                                                  \
                CODES(w + (size_t)c * p->w_col, c, b);                                                                       \
                UNROLL for (int u = 0; u < UNIT; u++) UNROLL for (int r = 0; r < R; r++) acc[r][c] =                         \
                    _mm512_dpbf16_ps(acc[r][c], BF(lane_of(x + (size_t)r * p->x_stride + 4 * u)), BF(b[u]));                 \
            }                                                                                                                \
        }                                                                                                                    \
        UNROLL for (int c = 0; c < C; c++)                                                                                   \
        {                                                                                                                    \
            __m512 s = scale_of(p, (uint32_t)c);                                                                             \
            UNROLL for (int r = 0; r < R; r++)                                                                               \
            {                                                                                                                \
                float *to = p->out + (size_t)r * p->ldo + c * 16;                                                            \
                _mm512_storeu_ps(to, _mm512_fmadd_ps(acc[r][c], s, p->add ? _mm512_loadu_ps(to) : _mm512_setzero_ps()));     \
            }                                                                                                                \
        }                                                                                                                    \
    }                                                                                                                        \
    static void few_##name##_1(const struct part *p, const void *aux) { few_##name(p, aux, 1, COLS); }                       \
    static void few_##name##_2(const struct part *p, const void *aux) { few_##name(p, aux, 2, COLS); }                       \
    static void few_##name##_3(const struct part *p, const void *aux) { few_##name(p, aux, 3, COLS); }                       \
    static void few_##name##_4(const struct part *p, const void *aux) { few_##name(p, aux, 4, COLS); }                       \
    static void (*const few_##name##_by_rows[])(const struct part *, const void *) = { NULL, few_##name##_1, few_##name##_2, \
                                                                                       few_##name##_3, few_##name##_4 };

#define NO_SETUP          (void)aux
#define BYTES(from, c, b) expand_bytes(from, &t, &b[0], &b[1])
FEW_TILE(bytes, 2, const struct byte_tables t = *(const struct byte_tables *)aux, BYTES)

#define NIBBLES(from, c, b)                                                                                           \
    do {                                                                                                              \
        __m512i a_ = _mm512_loadu_si512(from);                                                                        \
        b[0] = _mm512_permutexvar_epi16(a_, table), b[1] = _mm512_permutexvar_epi16(_mm512_srli_epi16(a_, 4), table); \
        b[2] = _mm512_permutexvar_epi16(_mm512_srli_epi16(a_, 8), table);                                             \
        b[3] = _mm512_permutexvar_epi16(_mm512_srli_epi16(a_, 12), table);                                            \
    } while (0)
FEW_TILE(nibbles, 4, NO_SETUP; const __m512i table = _mm512_loadu_si512(i4_minus_8), NIBBLES)

/* aux: zeros, of panel c p->scale_col bytes on */
#define NIBBLES_ZERO(from, c, b)                                                                \
    do {                                                                                        \
        __m512i a_ = _mm512_loadu_si512(from);                                                  \
        UNROLL for (int u_ = 0; u_ < 4; u_++, a_ = _mm512_srli_epi16(a_, 4)) b[u_] =            \
            _mm512_permutexvar_epi16(_mm512_sub_epi16(_mm512_and_si512(a_, low), z[c]), table); \
    } while (0)
FEW_TILE(nibbles_zero, 4, const __m512i table = _mm512_loadu_si512(i5_signed); const __m512i low = _mm512_set1_epi16(15); __m512i z[COLS];
         for (uint32_t c = 0; c < COLS; c++) z[c] = zero_words((const char *)aux + c * p->scale_col), NIBBLES_ZERO)

static void code_mul(const struct simd *v, float *out, size_t ldo, const void *x, size_t x_stride, const struct dev_weight *w,
                     uint32_t panel, uint32_t n_panel, uint32_t n_row, bool add, const struct gemm_scratch *s)
{
    (void)v;
    uint32_t k_all = gemm_round(w->k, 32), chunk = gemm_chunk(w), n_k;
    bool     is_i4 = w->dtype == DT_I4, four = n_panel == COLS;
    size_t   scale_size = is_i4 ? 2 : 4,
           col = (size_t)chunk * GEMM_PANEL * sizeof(bf16) + 192; /* not a whole page: columns would share lines of the cache */
    struct byte_tables tables;
    CHECK(s->bytes >= GEMM_COLS * col);
    if (!is_i4) tables = byte_tables(w->dtype);
    for (uint32_t k = 0; k < w->k; k += n_k, add = true) {
        n_k = k_all - k < chunk ? k_all - k : chunk;
        size_t      at = gemm_scale_at(w, panel, k), at_col = (size_t)quant_n_group(&w->q, w->k) * GEMM_PANEL;
        struct part p = { .out = out, .ldo = ldo, .x_stride = x_stride, .w = s->p, .w_col = col, .n = n_k / 2, .add = add };
        p.x = (const char *)x + k * sizeof(bf16);
        p.scale = (const char *)w->scale + at * scale_size, p.scale_col = at_col * scale_size, p.scale_f16 = is_i4;
        if (four) {
            p.w = gemm_panel(w, panel) + (size_t)k * GEMM_PANEL / (is_i4 ? 2 : 1), p.w_col = gemm_panel_bytes(w->dtype, w->k);
            for (uint32_t left = n_row, n; left; left -= n, p.out += n * ldo, p.x += n * x_stride) {
                n = (left + (left + FEW - 1) / FEW - 1) / ((left + FEW - 1) / FEW); /* as even as they come */
                if (w->zero)
                    few_nibbles_zero_by_rows[n](&p, (const f16 *)w->zero + at);
                else if (is_i4)
                    few_nibbles_by_rows[n](&p, NULL);
                else
                    few_bytes_by_rows[n](&p, &tables);
            }
            continue;
        }
        for (uint32_t c = 0; c < n_panel; c++) expand_codes((char *)s->p + c * col, w, panel + c, k, n_k, &tables);
        mul_scaled(p, n_row, n_panel);
    }
}

/* ---------------------------------------------------------------- 8 bits by 8 bits */

static void int8_mul(const struct simd *v, float *out, size_t ldo, const void *x, size_t x_stride, const struct dev_weight *w,
                     uint32_t panel, uint32_t n_panel, uint32_t n_row, bool add, const struct gemm_scratch *s)
{
    (void)v, (void)s;
    uint32_t k_all = gemm_round(w->k, 64), n_group = quant_n_group(&w->q, w->k), group = w->q.group ? w->q.group : k_all;
    for (uint32_t g = 0; g < n_group; g++, add = true) {
        uint32_t    k = g * group, n_k = k_all - k < group ? k_all - k : group;
        struct part p = { .out = out, .ldo = ldo, .x_stride = x_stride, .w_col = gemm_panel_bytes(DT_I8, w->k), .n = n_k / 4, .add = add };
        p.x = (const char *)x + k, p.w = gemm_panel(w, panel) + (size_t)k * GEMM_PANEL;
        p.sum_at = k_all + g * 4 - k, p.scale_at = k_all + n_group * 4 - k;
        p.scale = (const float *)w->scale + gemm_scale_at(w, panel, k), p.scale_col = (size_t)n_group * GEMM_PANEL * sizeof(float);
        mul_int8(p, n_row, n_panel);
    }
}

const struct gemm_kind *gemm_bf16_kind(enum dtype t, bool act8)
{
    static const struct gemm_kind plain = { GEMM_PAIRS, bf16_row_bytes, row_prepare, bf16_mul },
                                  codes = { GEMM_PAIRS, bf16_row_bytes, row_prepare, code_mul },
                                  int8 = { GEMM_QUADS, int8_row_bytes, int8_row_prepare, int8_mul };
    return t == DT_BF16 ? &plain : t == DT_F32 || t == DT_F16 ? NULL : act8 ? &int8 : &codes;
}
#else
typedef int gemm_bf16_is_empty;
#endif
