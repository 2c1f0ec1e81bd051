/* gemm amx: products by tiles (AMX): 16 rows of x by 16 outputs, 32 inputs of bf16 or 64 of int8 at a time. Up to 16
 * rows, four panels side by side are four streams from memory; above, two by two, so that what is loaded is used twice.
 * Rows that fill no tile make one of fewer rows: no row knows of the others. Codes become bf16 with their scales on,
 * rounded, some inputs at a time. */
#include "kernels/cpu/gemm.h"
#if defined(__x86_64__)
#include "base/check.h"
#include "kernels/cpu/act8.h"
#include "kernels/cpu/scale8.h"
#include "kernels/cpu/expand.h"
#ifndef AMX_MODEL
#include "kernels/cpu/amx.h"
#endif

enum { TILE = 16, K_BLOCK = 4096, AHEAD = 4096 };

/* Some inputs of a product: rows of x and panels of w that begin there. Strides in bytes. */
struct tiles {
    char       *out;
    const char *x, *w;
    size_t      out_stride, x_stride, w_col;
    uint32_t    n; /* tiles of inputs */
    bool        add;
};

#define BEGIN(t, row, col)                                                       \
    do {                                                                         \
        if (p->add)                                                              \
            amx_load(t, p->out + (row)*p->out_stride + (col)*64, p->out_stride); \
        else                                                                     \
            amx_zero(t);                                                         \
    } while (0)
#define END(t, row, col) amx_store(t, p->out + (row)*p->out_stride + (col)*64, p->out_stride)

static inline void ahead(const char *w)
{
    for (int i = 0; i < 1024; i += 64) _mm_prefetch(w + AHEAD + i, _MM_HINT_T0);
}

/* As many rows as amx_rows said, four panels or one; two tiles of rows by two panels. By type of number. */
#define STRIPS(name, dot)                                                                            \
    static void name##_1x4(const struct tiles *p)                                                    \
    {                                                                                                \
        const char *x = p->x, *w = p->w;                                                             \
        BEGIN(0, 0, 0);                                                                              \
        BEGIN(1, 0, 1);                                                                              \
        BEGIN(2, 0, 2);                                                                              \
        BEGIN(3, 0, 3);                                                                              \
        for (uint32_t i = 0; i < p->n; i++, x += 64, w += 1024) {                                    \
            amx_load(4, x, p->x_stride);                                                             \
            ahead(w), ahead(w + p->w_col), ahead(w + 2 * p->w_col), ahead(w + 3 * p->w_col);         \
            amx_load(6, w, 64);                                                                      \
            dot(0, 4, 6);                                                                            \
            amx_load(7, w + p->w_col, 64);                                                           \
            dot(1, 4, 7);                                                                            \
            amx_load(6, w + 2 * p->w_col, 64);                                                       \
            dot(2, 4, 6);                                                                            \
            amx_load(7, w + 3 * p->w_col, 64);                                                       \
            dot(3, 4, 7);                                                                            \
        }                                                                                            \
        END(0, 0, 0);                                                                                \
        END(1, 0, 1);                                                                                \
        END(2, 0, 2);                                                                                \
        END(3, 0, 3);                                                                                \
    }                                                                                                \
    static void name##_1x1(const struct tiles *p)                                                    \
    {                                                                                                \
        const char *x = p->x, *w = p->w;                                                             \
        BEGIN(0, 0, 0);                                                                              \
        for (uint32_t i = 0; i < p->n; i++, x += 64, w += 1024) {                                    \
            amx_load(4, x, p->x_stride);                                                             \
            ahead(w);                                                                                \
            amx_load(6, w, 64);                                                                      \
            dot(0, 4, 6);                                                                            \
        }                                                                                            \
        END(0, 0, 0);                                                                                \
    }                                                                                                \
    static void name##_2x2(const struct tiles *p)                                                    \
    {                                                                                                \
        const char *x = p->x, *w = p->w;                                                             \
        BEGIN(0, 0, 0);                                                                              \
        BEGIN(1, 0, 1);                                                                              \
        BEGIN(2, TILE, 0);                                                                           \
        BEGIN(3, TILE, 1);                                                                           \
        for (uint32_t i = 0; i < p->n; i++, x += 64, w += 1024) {                                    \
            amx_load(4, x, p->x_stride);                                                             \
            amx_load(6, w, 64);                                                                      \
            ahead(w), ahead(w + p->w_col);                                                           \
            dot(0, 4, 6);                                                                            \
            amx_load(5, x + TILE * p->x_stride, p->x_stride);                                        \
            dot(2, 5, 6);                                                                            \
            amx_load(7, w + p->w_col, 64);                                                           \
            dot(1, 4, 7);                                                                            \
            dot(3, 5, 7);                                                                            \
        }                                                                                            \
        END(0, 0, 0);                                                                                \
        END(1, 0, 1);                                                                                \
        END(2, TILE, 0);                                                                             \
        END(3, TILE, 1);                                                                             \
    }                                                                                                \
    /* one tile of rows by n_panel */                                                                \
    static void name##_row(struct tiles p, uint32_t n_panel)                                         \
    {                                                                                                \
        if (n_panel == 4) {                                                                          \
            name##_1x4(&p);                                                                          \
            return;                                                                                  \
        }                                                                                            \
        for (; n_panel; n_panel--, p.out += 64, p.w += p.w_col) name##_1x1(&p);                      \
    }                                                                                                \
    static void name(struct tiles p, uint32_t n_row, uint32_t n_panel)                               \
    {                                                                                                \
        if (n_row >= TILE) amx_rows(TILE);                                                           \
        for (; n_row >= 2 * TILE && n_panel == 4; n_row -= 2 * TILE) {                               \
            struct tiles right = p;                                                                  \
            right.out += 2 * 64, right.w += 2 * p.w_col;                                             \
            name##_2x2(&p);                                                                          \
            name##_2x2(&right);                                                                      \
            p.out += 2 * TILE * p.out_stride, p.x += 2 * TILE * p.x_stride;                          \
        }                                                                                            \
        for (; n_row >= TILE; n_row -= TILE, p.out += TILE * p.out_stride, p.x += TILE * p.x_stride) \
            name##_row(p, n_panel);                                                                  \
        if (n_row) {                                                                                 \
            amx_rows(n_row);                                                                         \
            name##_row(p, n_panel);                                                                  \
        }                                                                                            \
        amx_done();                                                                                  \
    }
STRIPS(strips_bf16, amx_bf16)
STRIPS(strips_int8, amx_int8)

/* ---------------------------------------------------------------- bf16, and codes as bf16 */

static void row_prepare(void *row, const float *x, const struct dev_weight *w)
{
    bf16    *to = row;
    uint32_t i = 0;
    for (; i + 16 <= w->k;
         i += 16) { /* to nearest even, as f32_to_bf16: not every machine with tiles need have vcvtneps2bf16 */
        __m512i   u = _mm512_loadu_si512(x + i), odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
        __mmask16 nan = _mm512_cmp_ps_mask(_mm512_castsi512_ps(u), _mm512_castsi512_ps(u), _CMP_UNORD_Q);
        __m512i   even = _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd);
        __m512i   r = _mm512_mask_blend_epi32(nan, even, _mm512_or_si512(u, _mm512_set1_epi32(0x400000)));
        _mm256_storeu_si256((void *)(to + i), _mm512_cvtepi32_epi16(_mm512_srli_epi32(r, 16)));
    }
    for (; i < w->k; i++) to[i] = f32_to_bf16(x[i]);
    memset(to + i, 0, bf16_row_bytes(w) - i * sizeof *to);
}

static void bf16_mul(const struct simd *v, float *out, size_t ldo, const void *x, size_t x_stride,
                     const struct dev_weight *w, uint32_t panel, uint32_t n_panel, uint32_t n_row, bool add,
                     const struct gemm_scratch *s)
{
    (void)v;
    (void)s;
    uint32_t k = gemm_round(w->k, 32), block = n_row <= TILE ? k : K_BLOCK, n_k; /* a chain may be cut between tiles */
    for (uint32_t i = 0; i < k; i += n_k, add = true) {
        n_k = k - i < block ? k - i : block;
        struct tiles p = {
            .out = (char *)out, .out_stride = ldo * sizeof *out, .x_stride = x_stride, .n = n_k / 32, .add = add
        };
        p.x = (const char *)x + i * sizeof(bf16);
        p.w = gemm_panel(w, panel) + (size_t)i * GEMM_PANEL * sizeof(bf16);
        p.w_col = gemm_panel_bytes(DT_BF16, w->k);
        strips_bf16(p, n_row, n_panel);
    }
}

/* bf16 times the scale of its output, to nearest even: finite numbers. */
static __m512i rounded(__m512 a)
{
    __m512i u = _mm512_castps_si512(a), odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    return _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd);
}
static void scale_pairs(char *pairs, const struct dev_weight *w, uint32_t panel, uint32_t k, uint32_t n_k)
{
    const __m512i high = _mm512_set1_epi32((int)0xffff0000u);
    size_t        at = gemm_scale_at(w, panel, k < w->k ? k : w->k - 1); /* behind the last input all codes are 0 */
    const char   *from = (const char *)w->scale + at * gemm_scale_bytes(w->dtype);
    __m512        s;
    if (w->dtype == DT_I4)
        s = _mm512_cvtph_ps(_mm256_loadu_si256((const void *)from));
    else if (w->factor)
        s = _mm512_mul_ps(e4m3_16(from), _mm512_loadu_ps((const float *)w->factor + panel * GEMM_PANEL));
    else if (w->dtype == DT_F4E2M1)
        s = e8m0_16(from);
    else
        s = _mm512_loadu_ps(from);
    for (uint32_t i = 0; i < n_k; i += 2, pairs += 64) {
        __m512i a = _mm512_loadu_si512(pairs);
        __m512i even = rounded(_mm512_mul_ps(_mm512_castsi512_ps(_mm512_slli_epi32(a, 16)), s));
        __m512i odd = rounded(_mm512_mul_ps(_mm512_castsi512_ps(_mm512_and_si512(a, high)), s));
        _mm512_storeu_si512(pairs,
                            _mm512_ternarylogic_epi32(_mm512_srli_epi32(even, 16), odd, high, 0xf8)); /* a | b & c */
    }
}

static void code_mul(const struct simd *v, float *out, size_t ldo, const void *x, size_t x_stride,
                     const struct dev_weight *w, uint32_t panel, uint32_t n_panel, uint32_t n_row, bool add,
                     const struct gemm_scratch *s)
{
    (void)v;
    enum { CHUNK = QUANT_CHUNK };
    size_t col =
        (size_t)CHUNK * GEMM_PANEL * sizeof(bf16) + 192; /* not a whole page: columns would share lines of the cache */
    uint32_t k_all = gemm_round(w->k, 32), group = gemm_chunk(w), n_k, n_g;
    CHECK(s->bytes >= GEMM_COLS * col);
    struct byte_tables tables;
    if (!dtype_is_half_byte(w->dtype)) tables = byte_tables(w->dtype);
    for (uint32_t k = 0; k < k_all; k += n_k, add = true) {
        n_k = k_all - k < CHUNK ? k_all - k : CHUNK;
        for (uint32_t c = 0; c < n_panel; c++)
            for (uint32_t g = 0; g < n_k; g += n_g) {
                char *to = (char *)s->p + c * col + (size_t)g * GEMM_PANEL * sizeof(bf16);
                n_g = n_k - g < group ? n_k - g : group;
                expand_codes(to, w, panel + c, k + g, n_g, &tables);
                scale_pairs(to, w, panel + c, k + g, n_g);
            }
        struct tiles p = {
            .out = (char *)out, .out_stride = ldo * sizeof *out, .x_stride = x_stride, .n = n_k / 32, .add = add
        };
        p.x = (const char *)x + k * sizeof(bf16);
        p.w = s->p;
        p.w_col = col;
        strips_bf16(p, n_row, n_panel);
    }
}

/* ---------------------------------------------------------------- 8 bits by 8 bits */

enum { SUM_ROWS = 32 };

/* out = (add ? out : 0) + (sums - 128 * the row's sum) * its scale * the output's. more than eight: it is the end of
 * the one loop that calls it, with what that loop holds. */
static void scale_sums(const int32_t *sums, const struct tiles *p, float *out, size_t ldo, const char *x, size_t sum_at,
                       size_t scale_at, const float *scale, size_t scale_col, uint32_t n_row, uint32_t n_panel,
                       bool add)
{
    for (uint32_t r = 0; r < n_row; r++) {
        int32_t sum;
        float   row_scale;
        memcpy(&sum, x + r * p->x_stride + sum_at, 4);
        memcpy(&row_scale, x + r * p->x_stride + scale_at, 4);
        __m512i less = _mm512_slli_epi32(_mm512_set1_epi32(sum), 7);
        for (uint32_t c = 0; c < n_panel; c++) {
            float *to = out + r * ldo + c * GEMM_PANEL;
            __m512 t = _mm512_cvtepi32_ps(
                _mm512_sub_epi32(_mm512_loadu_si512(sums + r * GEMM_COLS * GEMM_PANEL + c * GEMM_PANEL), less));
            t = _mm512_mul_ps(t, _mm512_set1_ps(row_scale));
            t = _mm512_fmadd_ps(t, _mm512_loadu_ps(scale + c * scale_col),
                                add ? _mm512_loadu_ps(to) : _mm512_setzero_ps());
            _mm512_storeu_ps(to, t);
        }
    }
}

static void int8_mul(const struct simd *v, float *out, size_t ldo, const void *x, size_t x_stride,
                     const struct dev_weight *w, uint32_t panel, uint32_t n_panel, uint32_t n_row, bool add,
                     const struct gemm_scratch *s)
{
    (void)v;
    (void)s;
    _Alignas(64) int32_t sums[SUM_ROWS * GEMM_COLS * GEMM_PANEL];
    uint32_t             k_all = gemm_round(w->k, 64), n_group = quant_n_group(&w->q, w->k),
             group = w->q.group ? w->q.group : k_all;
    for (uint32_t g = 0; g < n_group; g++, add = true) {
        uint32_t k = g * group, n_k = k_all - k < group ? k_all - k : group, n;
        for (uint32_t r = 0; r < n_row; r += n) {
            n = n_row - r < SUM_ROWS ? n_row - r : SUM_ROWS;
            struct tiles p = {
                .out = (char *)sums, .out_stride = GEMM_COLS * GEMM_PANEL * 4, .x_stride = x_stride, .n = n_k / 64
            };
            p.x = (const char *)x + r * x_stride + k;
            p.w = gemm_panel(w, panel) + (size_t)k * GEMM_PANEL;
            p.w_col = gemm_panel_bytes(DT_I8, w->k);
            strips_int8(p, n, n_panel);
            scale_sums(sums, &p, out + r * ldo, ldo, p.x, k_all + g * 4 - k, k_all + n_group * 4 - k,
                       (const float *)w->scale + gemm_scale_at(w, panel, k), (size_t)n_group * GEMM_PANEL, n, n_panel,
                       add);
        }
    }
}

/* One tile of whole numbers each way, which no rounding touches. */
bool gemm_amx_works(void)
{
    static const uint32_t rows[] = { TILE, 5 }; /* a tile of fewer rows, too */
    _Alignas(64) bf16     x16[TILE * 32], w16[TILE * 32];
    _Alignas(64) int8_t   x8[TILE * 64];
    uint8_t               w8[TILE * 64];
    float                 out[TILE * TILE];
    int32_t               sums[TILE * TILE];
    struct tiles          p16 = { (char *)out, (const char *)x16, (const char *)w16, TILE * 4, 64, 1024, 1, false },
                 p8 = { (char *)sums, (const char *)x8, (const char *)w8, TILE * 4, 64, 1024, 1, false };
    for (int i = 0; i < TILE * 32; i++) {
        x16[i] = f32_to_bf16((float)(i % 7 - 3));
        w16[i] = f32_to_bf16((float)(i % 11 - 5));
    }
    for (int i = 0; i < TILE * 64; i++) {
        x8[i] = (int8_t)(i % 255 - 127);
        w8[i] = (uint8_t)(i * 3);
    }
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint32_t n_row = rows[i];
        strips_bf16(p16, n_row, 1);
        strips_int8(p8, n_row, 1);
        for (uint32_t r = 0; r < n_row; r++)
            for (uint32_t l = 0; l < TILE; l++) {
                int32_t a = 0, b = 0;
                for (uint32_t k = 0; k < 32; k++)
                    a += ((int)(r * 32 + k) % 7 - 3) * ((int)(k / 2 * 32 + l * 2 + k % 2) % 11 - 5);
                for (uint32_t k = 0; k < 64; k++) b += x8[r * 64 + k] * w8[k / 4 * 64 + l * 4 + k % 4];
                if (out[r * TILE + l] != (float)a || sums[r * TILE + l] != b) return false;
            }
    }
    return true;
}

const struct gemm_kind *gemm_amx_kind(enum dtype t, bool act8)
{
    static const struct gemm_kind plain = { GEMM_PAIRS, bf16_row_bytes, row_prepare, bf16_mul },
                                  codes = { GEMM_PAIRS, bf16_row_bytes, row_prepare, code_mul },
                                  int8 = { GEMM_QUADS, int8_row_bytes, int8_row_prepare, int8_mul };
    if (t == DT_BF16) return &plain;
    if (t == DT_F32 || t == DT_F16) return NULL;
    if (!act8) return &codes;
    return t == DT_I4 ? gemm_vnni_kind(t, true) : &int8;
}
#else
typedef int gemm_amx_is_empty;
#endif
