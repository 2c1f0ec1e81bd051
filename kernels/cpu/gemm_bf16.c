/* gemm bf16: products of bf16 and fp8 by vdpbf16ps (AVX512-BF16). Activations are rounded to bf16 once per row; sums
 * are float. fp8 becomes bf16 next to the processor, exactly: its scale comes after the sum over a group. Other codes:
 * gemm_vnni.c. */
#include "kernels/cpu/gemm.h"
#if defined(__x86_64__)
#include "kernels/cpu/expand.h"

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")
/* A tile of ROWS by COLS registers is the fastest where the columns lie in a cache. Up to ROWS_ONCE rows pass by two
 * columns at a time, all at once: a second tile of rows would stand still for nothing while the first waits for
 * memory. */
enum { ROWS = 6, COLS = GEMM_COLS, ROWS_ONCE = 12, COLS_ONCE = 2, K_BLOCK = 4096 };

/* Some inputs of a product: rows of x and columns of w that begin there. */
struct part {
    float      *out;
    size_t      ldo;
    const char *x, *w;
    size_t      x_stride, w_col; /* bytes */
    uint32_t    n;               /* pairs of inputs */
    bool        add;
};

INLINE __m512i lane_of(const char *p)
{
    int32_t a;
    memcpy(&a, p, sizeof a);
    return _mm512_set1_epi32(a);
}
#define BF(x) ((__m512bh)(x))

/* R rows by C columns of 16; both are constants where this is inlined. */
INLINE void tile(const struct part *p, const int R, const int C)
{
    __m512      acc[ROWS_ONCE][COLS];
    const char *x = p->x, *w = p->w;
    UNROLL for (int r = 0; r < R; r++) UNROLL for (int c = 0; c < C; c++) acc[r][c] =
        p->add ? _mm512_loadu_ps(p->out + (size_t)r * p->ldo + c * 16) : _mm512_setzero_ps();
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
    UNROLL for (int r = 0; r < R; r++) UNROLL for (int c = 0; c < C; c++)
        _mm512_storeu_ps(p->out + (size_t)r * p->ldo + c * 16, acc[r][c]);
}

/* One function per R, so that each has its registers for itself. `p` goes by address: a copy of it would be loaded in
 * wider pieces than its fields were just stored in, and such a load waits until all stores before it, a whole tile of
 * out, are in the cache. */
#define TILE(R, C)                                                                        \
    static void tile_##R(const struct part *p, uint32_t cols)                             \
    {                                                                                     \
        if (cols == C) {                                                                  \
            tile(p, R, C);                                                                \
            return;                                                                       \
        }                                                                                 \
        struct part q = *p;                                                               \
        for (; cols >= C; cols -= C, q.out += C * 16, q.w += C * q.w_col) tile(&q, R, C); \
        for (; cols; cols--, q.out += 16, q.w += q.w_col) tile(&q, R, 1);                 \
    }
TILE(1, COLS)
TILE(2, COLS)
TILE(3, COLS)
TILE(4, COLS)
TILE(5, COLS)
TILE(6, COLS)
TILE(7, COLS_ONCE)
TILE(8, COLS_ONCE)
TILE(9, COLS_ONCE)
TILE(10, COLS_ONCE)
TILE(11, COLS_ONCE)
TILE(12, COLS_ONCE)

static void mul_plain(struct part *p, uint32_t rows, uint32_t cols)
{
    static void (*const by_rows[])(const struct part *, uint32_t) = { NULL,    tile_1,  tile_2, tile_3, tile_4,
                                                                      tile_5,  tile_6,  tile_7, tile_8, tile_9,
                                                                      tile_10, tile_11, tile_12 };
    uint32_t most = rows <= ROWS_ONCE ? ROWS_ONCE : ROWS;
    for (uint32_t r; rows; rows -= r) {
        r = simd_rows(rows, most);
        by_rows[r](p, cols);
        p->out += r * p->ldo;
        p->x += r * p->x_stride;
    }
}

/* ---------------------------------------------------------------- bf16 */

static void row_prepare(void *row, const float *x, const struct dev_weight *w)
{
    char *to = row;
    for (uint32_t i = 0; i < w->k; i += 16, to += 32) {
        __m512 a =
            w->k - i >= 16 ? _mm512_loadu_ps(x + i) : _mm512_maskz_loadu_ps((__mmask16)((1u << (w->k - i)) - 1), x + i);
        _mm256_storeu_si256((void *)to, (__m256i)_mm512_cvtneps_pbh(a));
    }
    memset(to, 0, (size_t)((char *)row + bf16_row_bytes(w) - to));
}

static void bf16_mul(const struct simd *v, float *out, size_t ldo, const void *x, size_t x_stride,
                     const struct dev_weight *w, uint32_t panel, uint32_t n_panel, uint32_t n_row, bool add,
                     const struct gemm_scratch *s)
{
    (void)v;
    (void)s;
    uint32_t k = gemm_round(w->k, 32), block = n_row <= ROWS_ONCE ? k : K_BLOCK, n_k; /* a chain may be cut anywhere */
    for (uint32_t i = 0; i < k; i += n_k, add = true) {
        n_k = k - i < block ? k - i : block;
        struct part p = { .out = out,
                          .ldo = ldo,
                          .x_stride = x_stride,
                          .w_col = gemm_panel_bytes(DT_BF16, w->k),
                          .n = n_k / 2,
                          .add = add };
        p.x = (const char *)x + i * sizeof(bf16);
        p.w = gemm_panel(w, panel) + (size_t)i * GEMM_PANEL * sizeof(bf16);
        mul_plain(&p, n_row, n_panel);
    }
}

/* ---------------------------------------------------------------- fp8
 * Codes become bf16 in registers, for four rows at a time: with more there are too few registers, or too few panels
 * side by side. */
enum { FEW = 4, SPAN = 256 /* inputs that all rows pass by before the next: their codes stay in the first cache */ };

/* Inputs [k, end); x and w begin at k. */
struct codes {
    float                    *out;
    size_t                    ldo;
    const char               *x, *w;
    size_t                    x_stride, w_col; /* bytes */
    uint32_t                  k, end, chunk, group;
    const float              *scale; /* of group 0 */
    size_t                    scale_col;
    const struct byte_tables *tables;
    bool                      add;
};

INLINE void tile_f8(const struct codes *p, const int R, const int C)
{
    const struct byte_tables t = *p->tables;
    const char              *x = p->x, *w = p->w;
    bool                     add = p->add;
    for (uint32_t k = p->k; k < p->end; k += p->chunk, add = true) {
        __m512   acc[FEW][COLS];
        uint32_t n = p->end - k < p->chunk ? p->end - k : p->chunk, at = p->group ? k / p->group * GEMM_PANEL : 0;
        UNROLL for (int r = 0; r < R; r++) UNROLL for (int c = 0; c < C; c++) acc[r][c] = _mm512_setzero_ps();
        for (uint32_t i = 0; i < n; i += 4, x += 8, w += 64) UNROLL for (int c = 0; c < C; c++)
            {
                __m512i b[2];
                expand_bytes(w + (size_t)c * p->w_col, &t, &b[0], &b[1]);
                UNROLL for (int u = 0; u < 2; u++) UNROLL for (int r = 0; r < R; r++) acc[r][c] =
                    _mm512_dpbf16_ps(acc[r][c], BF(lane_of(x + (size_t)r * p->x_stride + 4 * u)), BF(b[u]));
            }
        UNROLL for (int c = 0; c < C; c++)
        {
            __m512 s = _mm512_loadu_ps(p->scale + (size_t)c * p->scale_col + at);
            UNROLL for (int r = 0; r < R; r++)
            {
                float *to = p->out + (size_t)r * p->ldo + c * 16;
                _mm512_storeu_ps(to, _mm512_fmadd_ps(acc[r][c], s, add ? _mm512_loadu_ps(to) : _mm512_setzero_ps()));
            }
        }
    }
}
#define TILE_F8(R)                                                                                               \
    static void tile_f8_##R(const struct codes *p, uint32_t cols)                                                \
    {                                                                                                            \
        if (cols == COLS) {                                                                                      \
            tile_f8(p, R, COLS);                                                                                 \
            return;                                                                                              \
        }                                                                                                        \
        for (struct codes one = *p; cols; cols--, one.out += 16, one.w += one.w_col, one.scale += one.scale_col) \
            tile_f8(&one, R, 1);                                                                                 \
    }
TILE_F8(1)
TILE_F8(2)
TILE_F8(3)
TILE_F8(4)

static void f8_mul(const struct simd *v, float *out, size_t ldo, const void *x, size_t x_stride,
                   const struct dev_weight *w, uint32_t panel, uint32_t n_panel, uint32_t n_row, bool add,
                   const struct gemm_scratch *s)
{
    (void)v;
    (void)s;
    static void (*const by_rows[])(const struct codes *, uint32_t) = { NULL, tile_f8_1, tile_f8_2, tile_f8_3,
                                                                       tile_f8_4 };
    const struct byte_tables tables = byte_tables(w->dtype);
    uint32_t                 k_all = gemm_round(w->k, 32), span = n_row <= FEW ? k_all : SPAN;
    struct codes             p = {
                    .ldo = ldo, .x_stride = x_stride, .chunk = gemm_chunk(w), .group = w->q.group, .tables = &tables
    };
    p.scale = (const float *)w->scale + gemm_scale_at(w, panel, 0);
    p.scale_col = (size_t)quant_n_group(&w->q, w->k) * GEMM_PANEL;
    p.w_col = gemm_panel_bytes(w->dtype, w->k);
    for (p.k = 0; p.k < k_all; p.k = p.end, add = true) {
        p.end = k_all - p.k < span ? k_all : p.k + span;
        p.add = add;
        p.out = out;
        p.x = (const char *)x + p.k * sizeof(bf16);
        p.w = gemm_panel(w, panel) + (size_t)p.k * GEMM_PANEL;
        for (uint32_t left = n_row, r; left; left -= r) {
            r = simd_rows(left, FEW);
            by_rows[r](&p, n_panel);
            p.out += r * ldo;
            p.x += r * x_stride;
        }
    }
}

const struct gemm_kind *gemm_bf16_kind(enum dtype t, bool act8)
{
    static const struct gemm_kind plain = { GEMM_PAIRS, bf16_row_bytes, row_prepare, bf16_mul },
                                  f8 = { GEMM_PAIRS, bf16_row_bytes, row_prepare, f8_mul };
    if (t == DT_BF16) return &plain;
    return t == DT_F8E4M3 ? &f8 : gemm_vnni_kind(t, act8);
}
#else
typedef int gemm_bf16_is_empty;
#endif
