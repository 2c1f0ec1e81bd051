/* gemm vnni: products of whole numbers by vpdpbusd (AVX512-VNNI). Activations are 16 bits, as two bytes that are
 * multiplied side by side (act16.h), or 8 (w8a8, w4a8). Sums over a chunk are exact; scaled, they are added in floats,
 * chunk by chunk. */
#include "kernels/cpu/gemm.h"
#if defined(__x86_64__)
#include "kernels/cpu/act8.h"
#include "kernels/cpu/scale8.h"
#include "kernels/cpu/gemm_codes.h"

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 8")
enum { COLS = GEMM_COLS, AHEAD = 4096 };
/* How many panels R rows multiply side by side. One row reads each code once and waits for memory alone, and memory is
 * fastest as one long run: panels of bytes, which follow each other, are taken one after another. Half bytes lie side
 * by side already. */
#define SIDE(t, R) ((t) == BYTES && (R) == 1 ? 1 : COLS)

INLINE __m512i lane_of(const char *p)
{
    int32_t a;
    memcpy(&a, p, sizeof a);
    return _mm512_set1_epi32(a);
}
INLINE __m512 float_of(const char *p) { return _mm512_castsi512_ps(lane_of(p)); }

/* By hand: gcc 12 copies registers around the intrinsic, which costs half of the speed. */
#define DPBUSD(acc, w, x) __asm__("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(w), "v"(x))

/* ---------------------------------------------------------------- by 16 bits */

enum { ROWS = 3 };

/* Four inputs of C columns by R rows. */
#define QUAD(from)                                                             \
    do {                                                                       \
        UNROLL for (int r = 0; r < R; r++)                                     \
        {                                                                      \
            __m512i h_ = lane_of((from) + (size_t)r * p->x_stride);            \
            __m512i l_ = lane_of((from) + (size_t)r * p->x_stride + p->x_low); \
            UNROLL for (int c = 0; c < C; c++) DPBUSD(high[r][c], b[c], h_);   \
            UNROLL for (int c = 0; c < C; c++) DPBUSD(low[r][c], b[c], l_);    \
        }                                                                      \
    } while (0)

/* The scales of panel c, which lie at from. */
INLINE __m512 scales_of(const struct codes_part *p, const char *from, const enum codes t, const int c)
{
    if (t == BYTES) return _mm512_loadu_ps(from);
    if (t == FLOATS4) return _mm512_mul_ps(e8m0_16(from), _mm512_set1_ps(0.5f));
    if (t == FLOATS4_FACTOR)
        return _mm512_mul_ps(_mm512_mul_ps(e4m3_16(from), _mm512_loadu_ps(p->factor + c * GEMM_PANEL)),
                             _mm512_set1_ps(0.5f));
    return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)from));
}

INLINE void tile16(const struct codes_part *p, const enum codes t, const int R, const int C)
{
    const __m512i half = _mm512_set1_epi8(15);
    const __m512i table = _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)floats4_bytes));
    const size_t  w_col = t == BYTES ? p->w_col : 64,
                 w_step = t == BYTES ? 64 : p->w_step; /* a panel follows a panel, or side by side */
    const size_t scale_size = codes_floats4(t) ? 1 : sizeof(f16),
                 scale_col = t == BYTES ? p->scale_col : GEMM_PANEL * scale_size;
    const bool  kept = R <= 2; /* sums of floats stay in registers; there are none left with more rows */
    const char *x = p->x, *w = p->w, *tail = p->tail;
    __m512      out[ROWS][COLS];
    UNROLL for (int r = 0; r < R; r++) UNROLL for (int c = 0; c < C; c++)
    {
        float *to = p->out + (size_t)r * p->ldo + c * GEMM_PANEL;
        out[r][c] = p->add ? _mm512_loadu_ps(to) : _mm512_setzero_ps();
        if (!kept) _mm512_storeu_ps(to, out[r][c]);
    }
    for (uint32_t k = p->k; k < p->end; k += p->chunk, tail += ACT16_PART) {
        __m512i     high[ROWS][COLS], low[ROWS][COLS];
        uint32_t    n = p->end - k < p->chunk ? p->end - k : p->chunk;
        size_t      group = p->group ? k / p->group * p->scale_step : 0;
        const char *scale = p->scale + group, *zeros = p->zero + group;
        UNROLL for (int c = 0; c < C;
                    c++) /* codes are above what they mean by 128, 8, 12 or zero: so much less, once for all inputs */
        {
            __m512i zero = half;
            if (t == NIBBLES_ZERO)
                zero = _mm512_cvtps_epi32(
                    _mm512_cvtph_ps(_mm256_loadu_si256((const void *)(zeros + (size_t)c * scale_col))));
            UNROLL for (int r = 0; r < R; r++)
            {
                __m512i sum = lane_of(tail + (size_t)r * p->x_stride);
                if (t == BYTES)
                    sum = _mm512_slli_epi32(sum, 7);
                else if (codes_floats4(t))
                    sum = _mm512_mullo_epi32(sum, _mm512_set1_epi32(FLOATS4_ZERO));
                else
                    sum = t == NIBBLES ? _mm512_slli_epi32(sum, 3) : _mm512_mullo_epi32(sum, zero);
                low[r][c] = _mm512_sub_epi32(_mm512_setzero_si512(), sum);
                high[r][c] = _mm512_setzero_si512();
            }
        }
        if (t != BYTES)
            UNROLL for (int c = 0; c < C; c += 2) _mm_prefetch(scale + AHEAD / 4 + (size_t)c * scale_col, _MM_HINT_T0);
        /* The processor's own prefetching follows a panel well, but learns of the next ones too late: their beginning
         * is asked for. */
        bool   last = k + n == p->k_all;
        size_t ahead = 3 * p->w_col + (size_t)n * GEMM_PANEL;
        for (uint32_t i = 0; i < n; i += t == BYTES ? 4 : 8, w += w_step) {
            __m512i b[COLS];
            if (t == BYTES) {
                if (R == 1)
                    _mm_prefetch(w + CODES_AHEAD, _MM_HINT_T0);
                else if (last)
                    UNROLL for (int c = 0; c < C; c++) _mm_prefetch(w + (size_t)c * w_col + ahead, _MM_HINT_T0);
                UNROLL for (int c = 0; c < C; c++) b[c] = _mm512_loadu_si512(w + (size_t)c * w_col);
                QUAD(x);
                x += 4;
            } else {
                UNROLL for (int c = 0; c < C; c++) _mm_prefetch(w + (size_t)c * w_col + AHEAD, _MM_HINT_T0);
                UNROLL for (int c = 0; c < C; c++) b[c] =
                    _mm512_and_si512(_mm512_loadu_si512(w + (size_t)c * w_col), half);
                if (codes_floats4(t)) UNROLL for (int c = 0; c < C; c++) b[c] = _mm512_shuffle_epi8(table, b[c]);
                QUAD(x);
                UNROLL for (int c = 0; c < C; c++) b[c] =
                    _mm512_and_si512(_mm512_srli_epi16(_mm512_loadu_si512(w + (size_t)c * w_col), 4), half);
                if (codes_floats4(t)) UNROLL for (int c = 0; c < C; c++) b[c] = _mm512_shuffle_epi8(table, b[c]);
                QUAD(x + 4);
                x += 8;
            }
        }
        UNROLL for (int c = 0; c < C; c++)
        {
            const char *s_at = scale + (size_t)c * scale_col;
            __m512      s = scales_of(p, s_at, t, c);
            UNROLL for (int r = 0; r < R; r++)
            {
                float *to = p->out + (size_t)r * p->ldo + c * GEMM_PANEL;
                __m512 v = _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_slli_epi32(high[r][c], 8), low[r][c]));
                v = _mm512_mul_ps(v, float_of(tail + (size_t)r * p->x_stride + 4));
                if (kept)
                    out[r][c] = _mm512_fmadd_ps(v, s, out[r][c]);
                else
                    _mm512_storeu_ps(to, _mm512_fmadd_ps(v, s, _mm512_loadu_ps(to)));
            }
        }
    }
    if (kept)
        UNROLL for (int r = 0; r < R; r++) UNROLL for (int c = 0; c < C; c++)
            _mm512_storeu_ps(p->out + (size_t)r * p->ldo + c * GEMM_PANEL, out[r][c]);
}

/* One function per R, so that each has its registers for itself. */
#define TILE16(name, t, R)                                                                      \
    static void name##_##R(const struct codes_part *p, uint32_t cols)                           \
    {                                                                                           \
        if (SIDE(t, R) > 1 && cols == COLS) {                                                   \
            tile16(p, t, R, COLS);                                                              \
            return;                                                                             \
        }                                                                                       \
        for (struct codes_part one = *p; cols; cols--, codes_next(&one)) tile16(&one, t, R, 1); \
    }
#define TILES16(name, t) TILE16(name, t, 1) TILE16(name, t, 2) TILE16(name, t, 3)
TILES16(bytes, BYTES)
TILES16(nibbles, NIBBLES)
TILES16(nibbles_zero, NIBBLES_ZERO)
TILES16(floats4, FLOATS4)
TILES16(floats4_factor, FLOATS4_FACTOR)

static void code_prepare(void *row, const float *x, const struct dev_weight *w)
{
    act16_prepare(row, x, w, ACT16_PIECES);
}

static void code_mul(const struct simd *v, float *out, size_t ldo, const void *x, size_t x_stride,
                     const struct dev_weight *w, uint32_t panel, uint32_t n_panel, uint32_t n_row, bool add,
                     const struct gemm_scratch *s)
{
    static codes_tile_fn *const by_rows[CODES][ROWS] = { { bytes_1, bytes_2, bytes_3 },
                                                         { nibbles_1, nibbles_2, nibbles_3 },
                                                         { nibbles_zero_1, nibbles_zero_2, nibbles_zero_3 },
                                                         { floats4_1, floats4_2, floats4_3 },
                                                         { floats4_factor_1, floats4_factor_2, floats4_factor_3 } };
    (void)v;
    codes_mul(by_rows[codes_of(w)], ROWS, ACT16_PIECES, out, ldo, x, x_stride, w, panel, n_panel, n_row, add, s);
}

/* ---------------------------------------------------------------- by 8 bits */

enum { ROWS8 = 6, ROWS8_ONCE = 12, COLS8_ONCE = 2 }; /* as in gemm_bf16.c */
struct part8 {
    float      *out;
    size_t      ldo;
    const char *x, *w;
    size_t      x_stride, w_col, sum_at,
        scale_at;   /* the last two: bytes from x to its row's sum over the group and to its scale */
    uint32_t     n; /* quads */
    const float *scale;
    size_t       scale_col; /* floats */
    bool         add;
};

/* w + 128 lies in memory, so 128 times the sum of x is taken off. Modulo 2^32, where the difference fits. */
INLINE void tile8(const struct part8 *p, const int R, const int C)
{
    __m512i     acc[ROWS8_ONCE][COLS];
    const char *x = p->x, *w = p->w;
    UNROLL for (int r = 0; r < R; r++) UNROLL for (int c = 0; c < C; c++) acc[r][c] = _mm512_slli_epi32(
        _mm512_sub_epi32(_mm512_setzero_si512(), lane_of(x + (size_t)r * p->x_stride + p->sum_at)), 7);
    for (uint32_t i = 0; i < p->n; i++, x += 4, w += 64) {
        if (C == 1) _mm_prefetch(w + (R == 1 ? CODES_AHEAD : 2048), _MM_HINT_T0); /* one stream only: ask ahead */
        __m512i b[COLS];
        UNROLL for (int c = 0; c < C; c++) b[c] = _mm512_loadu_si512(w + (size_t)c * p->w_col);
        UNROLL for (int r = 0; r < R; r++)
        {
            __m512i a = lane_of(x + (size_t)r * p->x_stride);
            UNROLL for (int c = 0; c < C; c++) DPBUSD(acc[r][c], b[c], a);
        }
    }
    UNROLL for (int c = 0; c < C; c++)
    {
        __m512 s = _mm512_loadu_ps(p->scale + (size_t)c * p->scale_col);
        UNROLL for (int r = 0; r < R; r++)
        {
            float *to = p->out + (size_t)r * p->ldo + c * GEMM_PANEL;
            __m512 t =
                _mm512_mul_ps(_mm512_cvtepi32_ps(acc[r][c]), float_of(p->x + (size_t)r * p->x_stride + p->scale_at));
            _mm512_storeu_ps(to, _mm512_fmadd_ps(t, s, p->add ? _mm512_loadu_ps(to) : _mm512_setzero_ps()));
        }
    }
}
#define TILE8(R, C)                                                                                           \
    static void tile8_##R(const struct part8 *p, uint32_t cols)                                               \
    {                                                                                                         \
        if (cols == C) {                                                                                      \
            tile8(p, R, C);                                                                                   \
            return;                                                                                           \
        }                                                                                                     \
        struct part8 q = *p;                                                                                  \
        for (; cols >= C; cols -= C, q.out += C * GEMM_PANEL, q.w += C * q.w_col, q.scale += C * q.scale_col) \
            tile8(&q, R, C);                                                                                  \
        for (; cols; cols--, q.out += GEMM_PANEL, q.w += q.w_col, q.scale += q.scale_col) tile8(&q, R, 1);    \
    }
TILE8(1, 1)
TILE8(2, COLS)
TILE8(3, COLS)
TILE8(4, COLS)
TILE8(5, COLS)
TILE8(6, COLS)
TILE8(7, COLS8_ONCE)
TILE8(8, COLS8_ONCE)
TILE8(9, COLS8_ONCE)
TILE8(10, COLS8_ONCE)
TILE8(11, COLS8_ONCE)
TILE8(12, COLS8_ONCE)

static void int8_mul(const struct simd *v, float *out, size_t ldo, const void *x, size_t x_stride,
                     const struct dev_weight *w, uint32_t panel, uint32_t n_panel, uint32_t n_row, bool add,
                     const struct gemm_scratch *s)
{
    (void)v;
    (void)s;
    static void (*const by_rows[])(const struct part8 *, uint32_t) = { NULL,     tile8_1,  tile8_2, tile8_3, tile8_4,
                                                                       tile8_5,  tile8_6,  tile8_7, tile8_8, tile8_9,
                                                                       tile8_10, tile8_11, tile8_12 };
    uint32_t most = n_row <= ROWS8_ONCE ? ROWS8_ONCE : ROWS8;
    uint32_t k_all = gemm_round(w->k, 64), n_group = quant_n_group(&w->q, w->k),
             group = w->q.group ? w->q.group : k_all;
    struct part8 p = { .ldo = ldo,
                       .x_stride = x_stride,
                       .w_col = gemm_panel_bytes(DT_I8, w->k),
                       .scale_col = (size_t)n_group * GEMM_PANEL };
    for (uint32_t g = 0; g < n_group; g++, add = true) {
        uint32_t k = g * group;
        p.n = (k_all - k < group ? k_all - k : group) / 4;
        p.add = add;
        p.out = out;
        p.x = (const char *)x + k;
        p.w = gemm_panel(w, panel) + (size_t)k * GEMM_PANEL;
        p.sum_at = k_all + g * 4 - k;
        p.scale_at = k_all + n_group * 4 - k;
        p.scale = (const float *)w->scale + gemm_scale_at(w, panel, k);
        for (uint32_t left = n_row, r; left; left -= r) {
            r = simd_rows(left, most);
            by_rows[r](&p, n_panel);
            p.out += r * ldo;
            p.x += r * x_stride;
        }
    }
}

/* ---------------------------------------------------------------- int4 by 8 bits
 * A row's sum over k is of whole numbers in each group, scaled by the weights' scale and added in floats; the row's own
 * scale comes last. Until then sums lie in scratch. */

enum { SUM_COLS = COLS * GEMM_PANEL, ROWS4 = 4 };
struct part4 {
    float      *sum;   /* rows of SUM_COLS */
    const char *x, *w; /* at input k of the part, like the two that follow */
    const char *group_sum, *scale;
    size_t      x_stride, w_step, scale_step;
    uint32_t    n_group, n; /* n: of 8 inputs in a group */
    bool        add;        /* to what sum holds */
};

INLINE void tile4(const struct part4 *p, const int R, const int C)
{
    const __m512i half = _mm512_set1_epi8(15);
    const bool    kept = R <= 3; /* in registers: faster, but there are none left for four */
    const char   *x = p->x, *w = p->w, *scale = p->scale, *group_sum = p->group_sum;
    __m512        sum[ROWS4][COLS];
    UNROLL for (int r = 0; r < R; r++) UNROLL for (int c = 0; c < C; c++)
    {
        float *to = p->sum + r * SUM_COLS + c * GEMM_PANEL;
        sum[r][c] = p->add ? _mm512_loadu_ps(to) : _mm512_setzero_ps();
        if (!kept && !p->add) _mm512_storeu_ps(to, sum[r][c]);
    }
    for (uint32_t g = 0; g < p->n_group; g++, scale += p->scale_step, group_sum += 4) {
        __m512i acc[ROWS4][COLS];
        UNROLL for (int r = 0; r < R; r++) /* codes are above what they mean by 8 */
        {
            __m512i less = _mm512_slli_epi32(lane_of(group_sum + (size_t)r * p->x_stride), 3);
            UNROLL for (int c = 0; c < C; c++) acc[r][c] = _mm512_sub_epi32(_mm512_setzero_si512(), less);
        }
        UNROLL for (int c = 0; c < C; c += 2) _mm_prefetch(scale + AHEAD / 4 + c * 32, _MM_HINT_T0);
        for (uint32_t i = 0; i < p->n; i++, x += 8, w += p->w_step) {
            __m512i b[COLS];
            UNROLL for (int c = 0; c < C; c++) _mm_prefetch(w + c * 64 + AHEAD, _MM_HINT_T0);
            UNROLL for (int c = 0; c < C; c++) b[c] = _mm512_and_si512(_mm512_loadu_si512(w + c * 64), half);
            UNROLL for (int r = 0; r < R; r++)
            {
                __m512i a = lane_of(x + (size_t)r * p->x_stride);
                UNROLL for (int c = 0; c < C; c++) DPBUSD(acc[r][c], b[c], a);
            }
            UNROLL for (int c = 0; c < C; c++) b[c] =
                _mm512_and_si512(_mm512_srli_epi16(_mm512_loadu_si512(w + c * 64), 4), half);
            UNROLL for (int r = 0; r < R; r++)
            {
                __m512i a = lane_of(x + (size_t)r * p->x_stride + 4);
                UNROLL for (int c = 0; c < C; c++) DPBUSD(acc[r][c], b[c], a);
            }
        }
        UNROLL for (int c = 0; c < C; c++)
        {
            __m512 s = _mm512_cvtph_ps(_mm256_loadu_si256((const void *)(scale + c * 32)));
            UNROLL for (int r = 0; r < R; r++)
            {
                float *to = p->sum + r * SUM_COLS + c * GEMM_PANEL;
                __m512 v = _mm512_cvtepi32_ps(acc[r][c]);
                if (kept)
                    sum[r][c] = _mm512_fmadd_ps(v, s, sum[r][c]);
                else
                    _mm512_storeu_ps(to, _mm512_fmadd_ps(v, s, _mm512_loadu_ps(to)));
            }
        }
    }
    if (kept)
        UNROLL for (int r = 0; r < R; r++) UNROLL for (int c = 0; c < C; c++)
            _mm512_storeu_ps(p->sum + r * SUM_COLS + c * GEMM_PANEL, sum[r][c]);
}
#define TILE4(R)                                                                                \
    static void tile4_##R(const struct part4 *p, uint32_t cols)                                 \
    {                                                                                           \
        if (cols == COLS) {                                                                     \
            tile4(p, R, COLS);                                                                  \
            return;                                                                             \
        }                                                                                       \
        for (struct part4 one = *p; cols;                                                       \
             cols--, one.sum += GEMM_PANEL, one.w += 64, one.scale += GEMM_PANEL * sizeof(f16)) \
            tile4(&one, R, 1);                                                                  \
    }
TILE4(1)
TILE4(2)
TILE4(3)
TILE4(4)

/* As gemm_mul_fn, for as many rows as sum [rows, SUM_COLS] holds. more than eight: as there. */
static void int4_rows(float *out, size_t ldo, const char *x, size_t x_stride, const struct dev_weight *w,
                      uint32_t panel, uint32_t n_panel, uint32_t n_row, bool add, float *sum)
{
    static void (*const by_rows[])(const struct part4 *, uint32_t) = { NULL, tile4_1, tile4_2, tile4_3, tile4_4 };
    uint32_t n_group = quant_n_group(&w->q, w->k), k_all = gemm_k(DT_I4, w->k), group = w->q.group ? w->q.group : k_all,
             side = gemm_side(w, panel);
    uint32_t     at_once = n_row <= ROWS4 ? n_group : CODES_SPAN / group, rows = n_row <= ROWS4 ? ROWS4 : 3;
    const char  *sums = x + gemm_round(w->k, 64);
    struct part4 p = { .x_stride = x_stride,
                       .w_step = (size_t)64 * side,
                       .scale_step = (size_t)side * GEMM_PANEL * sizeof(f16) };
    if (at_once < 1) at_once = 1;
    for (uint32_t g = 0, k = 0; g < n_group; g += p.n_group, k = g * group) {
        p.n_group = n_group - g < at_once ? n_group - g : at_once;
        if ((g + p.n_group) * group > k_all && p.n_group > 1) p.n_group--; /* the last is short: by itself */
        p.n = (k_all - k < group ? k_all - k : group) / 8;
        p.add = g > 0;
        p.sum = sum;
        p.x = x + k;
        p.w = gemm_panel(w, panel) + k / 8 * p.w_step;
        p.group_sum = sums + (size_t)g * 4;
        p.scale = (const char *)w->scale + gemm_scale_at(w, panel, k) * sizeof(f16);
        for (uint32_t left = n_row, r; left; left -= r) {
            r = simd_rows(left, rows);
            by_rows[r](&p, n_panel);
            p.sum += r * SUM_COLS;
            p.x += r * x_stride;
            p.group_sum += r * x_stride;
        }
    }
    for (uint32_t r = 0; r < n_row; r++) {
        __m512 scale = float_of(sums + (size_t)n_group * 4 + r * x_stride);
        for (uint32_t c = 0; c < n_panel; c++) {
            float *to = out + r * ldo + c * GEMM_PANEL;
            __m512 v = _mm512_loadu_ps(sum + r * SUM_COLS + c * GEMM_PANEL);
            _mm512_storeu_ps(to, _mm512_fmadd_ps(v, scale, add ? _mm512_loadu_ps(to) : _mm512_setzero_ps()));
        }
    }
}

static void int4_mul(const struct simd *v, float *out, size_t ldo, const void *x, size_t x_stride,
                     const struct dev_weight *w, uint32_t panel, uint32_t n_panel, uint32_t n_row, bool add,
                     const struct gemm_scratch *s)
{
    enum { ROWS_MAX = 96 }; /* their sums stay in the second cache */
    (void)v;
    CHECK(panel % GEMM_COLS + n_panel <= GEMM_COLS);
    CHECK(s->bytes >= ROWS_MAX * SUM_COLS * sizeof(float));
    for (uint32_t r = 0, n; r < n_row; r += n) {
        n = n_row - r < ROWS_MAX ? n_row - r : ROWS_MAX;
        int4_rows(out + r * ldo, ldo, (const char *)x + r * x_stride, x_stride, w, panel, n_panel, n, add, s->p);
    }
}

const struct gemm_kind *gemm_vnni_kind(enum dtype t, bool act8)
{
    static const struct gemm_kind codes = { GEMM_QUADS, act16_row_bytes, code_prepare, code_mul },
                                  int8 = { GEMM_QUADS, int8_row_bytes, int8_row_prepare, int8_mul },
                                  int4 = { GEMM_QUADS, int8_row_bytes, int8_row_prepare, int4_mul };
    if (t != DT_I8 && !dtype_is_half_byte(t)) return NULL;
    if (!act8) return &codes;
    return t == DT_I4 ? &int4 : &int8;
}
#else
typedef int gemm_vnni_is_empty;
#endif
