/* gemm words: weights of 8 bits and 4 by activations of 16 bits with vpmaddwd, for processors without AVX512-VNNI: a
 * vector of codes becomes two of 16-bit words by a mask and a shift (4-bit floats: by a table first), and each is multiplied with pairs of inputs
 * (act16.h, words). Sums over a chunk are exact. Where there is AVX-VNNI, vpdpwssd and vpdpbusd multiply and add at
 * once (DOT_WORDS, DOT_BYTES): the same whole numbers by fewer instructions. The body of gemm_words_avx2.c,
 * gemm_words_vnni.c and gemm_words_avx512.c, which define V, VF and what to do with them (wide_avx2.h), ROWS (rows of a
 * tile at most), WIDE (rows up to which GEMM_COLS panels go side by side: as many sums as there are registers for), and
 * NAME. */
#include "kernels/cpu/act8.h"
#include "kernels/cpu/gemm_codes.h"

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 8")
/* How many panels R rows multiply side by side. One row reads each code once and waits for memory alone, and memory is
 * fastest as one long run: panels of bytes, which follow each other, are taken one after another. Half bytes lie side
 * by side already. */
#define SIDE(t, R) ((R) > WIDE || ((t) == BYTES && (R) == 1) ? 1 : COLS)
enum { COLS = GEMM_COLS, LANES = sizeof(V) / 4, PARTS = GEMM_PANEL / LANES /* vectors of a panel */ };

INLINE int32_t lane_at(const char *p)
{
    int32_t a;
    memcpy(&a, p, sizeof a);
    return a;
}
INLINE float float_at(const char *p)
{
    float a;
    memcpy(&a, p, sizeof a);
    return a;
}

/* The words of code vector q that go with pair `pair` of its inputs: two pairs of bytes, four of half bytes. */
INLINE V words_of(V q, const enum codes t, const int pair)
{
    const V byte = SET1(0x00ff00ff), half = SET1(0x000f000f);
    if (t == BYTES) return pair ? SHIFT(q, 8) : AND(q, byte);
    if (codes_floats4(t)) { /* bytes of inputs 0-3, then 4-7 */
        V b = LOOKUP(TABLE(floats4_bytes), AND(pair < 2 ? q : SHIFT(q, 4), SET1(0x0f0f0f0f)));
        return pair % 2 ? SHIFT(b, 8) : AND(b, byte);
    }
    /* half bytes lie as inputs 0-3 low and 4-7 high: pairs 0 2 of bits 0-3 and 8-11, 4 6 of bits 4-7 and 12-15 */
    switch (pair) {
    case 0: return AND(q, half);
    case 1: return AND(SHIFT(q, 8), half);
    case 2: return AND(SHIFT(q, 4), half);
    default: return SHIFT(q, 12);
    }
}

/* sum += codes times inputs. The empty statement keeps the compiler from adding products to each other first, for which
 * it has no registers. */
#ifdef DOT_WORDS
#define PRODUCT(sum, b, a) DOT_WORDS(sum, b, a)
#else
#define PRODUCT(sum, b, a)            \
    do {                              \
        (sum) = ADD(sum, MADD(b, a)); \
        __asm__("" : ON_VECTOR(sum)); \
    } while (0)
#endif

/* Vector h of the scales of panel c. */
INLINE VF scales_of(const struct codes_part *p, uint32_t group, const enum codes t, const int c, const int h)
{
    const char *panel = p->scale + (size_t)c * p->scale_col + group * p->scale_step;
    if (t == BYTES) return LOAD_F32(panel + (size_t)h * LANES * sizeof(float));
    if (t == FLOATS4) return TIMES(LOAD_E8(panel + (size_t)h * LANES), SET1_F32(0.5f));
    if (t == FLOATS4_FACTOR)
        return TIMES(TIMES(LOAD_E4M3(panel + (size_t)h * LANES), LOAD_F32(p->factor + c * GEMM_PANEL + h * LANES)),
                     SET1_F32(0.5f));
    return LOAD_F16(panel + (size_t)h * LANES * sizeof(f16));
}

INLINE void tile(const struct codes_part *p, const enum codes t, const int R, const int C)
{
    enum { PAIRS_MAX = 4 };
    const int   n_pair = t == BYTES ? 2 : PAIRS_MAX;
    const char *x = p->x, *w = p->w, *tail = p->tail;
    /* bytes: a panel follows a panel; half bytes: side by side */
    const size_t w_col = t == BYTES ? p->w_col : 64, w_step = t == BYTES ? 64 : p->w_step;
    bool         add = p->add;
    for (uint32_t k = p->k; k < p->end; k += p->chunk, tail += ACT16_PART, add = true) {
        V        sum[ROWS][COLS][PARTS];
        uint32_t n = p->end - k < p->chunk ? p->end - k : p->chunk, group = p->group ? k / p->group : 0;
        UNROLL for (int c = 0; c < C; c++)
            UNROLL for (int h = 0; h < PARTS; h++) /* codes are above what they mean: so much less */
        {
            V zero = SET1(t == BYTES ? 128 : 8);
            if (codes_floats4(t)) zero = SET1(FLOATS4_ZERO);
            if (t == NIBBLES_ZERO)
                zero = TO_INT(LOAD_F16(p->zero + (size_t)c * p->scale_col + group * p->scale_step +
                                       (size_t)h * LANES * sizeof(f16)));
            UNROLL for (int r = 0; r < R; r++) sum[r][c][h] =
                SUB(SET1(0), MUL(zero, SET1(lane_at(tail + (size_t)r * p->x_stride))));
        }
        /* Rows that pass once ask far ahead. Others ask for the next part's codes of this panel, or for those of the
         * panel that is next, whose beginning comes too late by itself. */
        size_t ahead = CODES_AHEAD;
        if (p->k > 0 || p->end < p->k_all)
            ahead = CODES_SPAN / (2 * (size_t)n_pair) * w_step + (t == BYTES && p->end == p->k_all ? 3 * w_col : 0);
        for (uint32_t i = 0; i < n; i += 2 * (uint32_t)n_pair, w += w_step, x += 4 * n_pair) {
            if (R == 1) { /* inputs stay in registers, codes pass by */
                UNROLL for (int c = 0; c < C; c++) _mm_prefetch(w + (size_t)c * w_col + ahead, _MM_HINT_T0);
                V a[PAIRS_MAX];
                UNROLL for (int j = 0; j < n_pair; j++) a[j] = SET1(lane_at(x + 4 * j));
                UNROLL for (int c = 0; c < C; c++) UNROLL for (int h = 0; h < PARTS; h++)
                {
                    V q = LOAD(w + (size_t)c * w_col + (size_t)h * sizeof(V));
                    UNROLL for (int j = 0; j < n_pair; j++) PRODUCT(sum[0][c][h], words_of(q, t, j), a[j]);
                }
            } else { /* codes stay in registers, rows pass by */
                _mm_prefetch(w + ahead, _MM_HINT_T0);
                UNROLL for (int j = 0; j < n_pair; j++)
                {
                    V b[COLS][PARTS];
                    UNROLL for (int c = 0; c < C; c++) UNROLL for (int h = 0; h < PARTS; h++) b[c][h] =
                        words_of(LOAD(w + (size_t)c * w_col + (size_t)h * sizeof(V)), t, j);
                    UNROLL for (int r = 0; r < R; r++)
                    {
                        V a = SET1(lane_at(x + (size_t)r * p->x_stride + 4 * j));
                        UNROLL for (int c = 0; c < C; c++) UNROLL for (int h = 0; h < PARTS; h++)
                            PRODUCT(sum[r][c][h], b[c][h], a);
                    }
                }
            }
        }
        UNROLL for (int c = 0; c < C; c++) UNROLL for (int h = 0; h < PARTS; h++)
        {
            VF s = scales_of(p, group, t, c, h);
            UNROLL for (int r = 0; r < R; r++)
            {
                float *to = p->out + (size_t)r * p->ldo + c * GEMM_PANEL + h * LANES;
                VF     v = TIMES(TO_FLOAT(sum[r][c][h]), SET1_F32(float_at(tail + (size_t)r * p->x_stride + 4)));
                STORE_F32(to, FMA(v, s, add ? LOAD_F32(to) : SET1_F32(0)));
            }
        }
    }
}

/* One function per R, so that each has its registers for itself. */
#define TILE(name, t, R)                                                                      \
    static void name##_##R(const struct codes_part *p, uint32_t cols)                         \
    {                                                                                         \
        if (SIDE(t, R) > 1 && cols == COLS) {                                                 \
            tile(p, t, R, SIDE(t, R));                                                        \
            return;                                                                           \
        }                                                                                     \
        for (struct codes_part one = *p; cols; cols--, codes_next(&one)) tile(&one, t, R, 1); \
    }
#define TILES(name, t) \
    TILE(name, t, 1) TILE(name, t, 2) TILE(name, t, 3) TILE(name, t, 4) TILE(name, t, 5) TILE(name, t, 6)
TILES(bytes, BYTES)
TILES(nibbles, NIBBLES)
TILES(nibbles_zero, NIBBLES_ZERO)
TILES(floats4, FLOATS4)
TILES(floats4_factor, FLOATS4_FACTOR)

static void word_prepare(void *row, const float *x, const struct dev_weight *w)
{
    act16_prepare(row, x, w, ACT16_WORDS);
}

static void word_mul(const struct simd *v, float *out, size_t ldo, const void *x, size_t x_stride,
                     const struct dev_weight *w, uint32_t panel, uint32_t n_panel, uint32_t n_row, bool add,
                     const struct gemm_scratch *s)
{
    static codes_tile_fn *const by_rows[CODES][ROWS] = {
        { bytes_1, bytes_2, bytes_3, bytes_4, bytes_5, bytes_6 },
        { nibbles_1, nibbles_2, nibbles_3, nibbles_4, nibbles_5, nibbles_6 },
        { nibbles_zero_1, nibbles_zero_2, nibbles_zero_3, nibbles_zero_4, nibbles_zero_5, nibbles_zero_6 },
        { floats4_1, floats4_2, floats4_3, floats4_4, floats4_5, floats4_6 },
        { floats4_factor_1, floats4_factor_2, floats4_factor_3, floats4_factor_4, floats4_factor_5, floats4_factor_6 }
    };
    (void)v;
    codes_mul(by_rows[codes_of(w)], ROWS, ACT16_WORDS, out, ldo, x, x_stride, w, panel, n_panel, n_row, add, s);
}

/* ---------------------------------------------------------------- int8 by 8 bits
 * The same products, and sums over a whole group: they grow in scratch, as whole numbers, span by span. Codes lie above
 * what they mean by 128, and sums are modulo 2^32, where their differences fit. */

#ifdef DOT_BYTES
enum { BYTE_INPUT = 1, BYTE_STEPS = 1 }; /* bytes of an input; instructions for four */
#define BYTE_CODES(q, step)     (q)
#define BYTE_PRODUCT(sum, b, a) DOT_BYTES(sum, b, a)
#else
enum { BYTE_INPUT = 2, BYTE_STEPS = 2 };
#define BYTE_CODES(q, step)     words_of(q, BYTES, step)
#define BYTE_PRODUCT(sum, b, a) PRODUCT(sum, b, a)
#endif

/* A prepared row: its codes as bytes or words, padded with zeros to a multiple of 64 inputs; each group's sum of codes;
 * the row's scale. */
static size_t byte_row_bytes(const struct dev_weight *w)
{
    return BYTE_INPUT * (size_t)gemm_round(w->k, 64) + gemm_round((quant_n_group(&w->q, w->k) + 1) * 4, 64) + 64;
}

static void byte_prepare(void *row, const float *x, const struct dev_weight *w)
{
    enum { PART = 256 };
    uint32_t k_all = gemm_round(w->k, 64);
    int8_t  *code =
        (int8_t *)row + (BYTE_INPUT - 1) * k_all; /* the upper half of the place of words: they overtake at the end */
    int16_t *word = row, part[PART];
    char    *sums = (char *)row + BYTE_INPUT * (size_t)k_all;
    uint32_t group = w->q.group ? w->q.group : w->k;
    float    scale = act8_codes(x, w->k, code);
    memset(code + w->k, 0, k_all - w->k);
    for (uint32_t k = 0; k < w->k; k += group, sums += 4) {
        int32_t  sum = 0;
        uint32_t n = w->k - k < group ? w->k - k : group;
        for (uint32_t i = 0; i < n; i++) sum += code[k + i];
        memcpy(sums, &sum, 4);
    }
    memcpy(sums, &scale, 4);
    for (uint32_t k = 0, n; BYTE_INPUT == 2 && k < k_all; k += n) {
        n = k_all - k < PART ? k_all - k : PART;
        for (uint32_t i = 0; i < n; i++) part[i] = code[k + i];
        act16_words(part, n, word + k);
    }
}

struct byte_part {
    int32_t    *sum; /* rows of CODES_COLS */
    const char *x, *w;
    size_t      x_stride, w_col, sum_at; /* sum_at: bytes from x to its row's sum over the group */
    size_t      ahead; /* from w to what is asked for: far ahead where all rows pass at once, else the next span */
    uint32_t    n;     /* of four inputs */
    bool        add;   /* to what sum holds */
};
typedef void byte_tile_fn(const struct byte_part *p, uint32_t cols);

INLINE void byte_tile(const struct byte_part *p, const int R, const int C)
{
    const char *x = p->x, *w = p->w;
    V           sum[ROWS][COLS][PARTS];
    UNROLL for (int r = 0; r < R; r++)
    {
        V less = SUB(SET1(0), MUL(SET1(128), SET1(lane_at(x + (size_t)r * p->x_stride + p->sum_at))));
        UNROLL for (int c = 0; c < C; c++) UNROLL for (int h = 0; h < PARTS; h++) sum[r][c][h] =
            p->add ? LOAD(p->sum + r * CODES_COLS + c * GEMM_PANEL + h * LANES) : less;
    }
    for (uint32_t i = 0; i < p->n; i++, x += 4 * BYTE_INPUT, w += 64) {
        _mm_prefetch(w + p->ahead, _MM_HINT_T0);
        if (R == 1) { /* inputs stay in registers, codes pass by */
            V a[BYTE_STEPS];
            UNROLL for (int j = 0; j < BYTE_STEPS; j++) a[j] = SET1(lane_at(x + 4 * j));
            UNROLL for (int c = 0; c < C; c++) UNROLL for (int h = 0; h < PARTS; h++)
            {
                V q = LOAD(w + (size_t)c * p->w_col + (size_t)h * sizeof(V));
                UNROLL for (int j = 0; j < BYTE_STEPS; j++) BYTE_PRODUCT(sum[0][c][h], BYTE_CODES(q, j), a[j]);
            }
        } else { /* codes stay in registers, rows pass by */
            UNROLL for (int j = 0; j < BYTE_STEPS; j++)
            {
                V b[COLS][PARTS];
                UNROLL for (int c = 0; c < C; c++) UNROLL for (int h = 0; h < PARTS; h++) b[c][h] =
                    BYTE_CODES(LOAD(w + (size_t)c * p->w_col + (size_t)h * sizeof(V)), j);
                UNROLL for (int r = 0; r < R; r++)
                {
                    V a = SET1(lane_at(x + (size_t)r * p->x_stride + 4 * j));
                    UNROLL for (int c = 0; c < C; c++) UNROLL for (int h = 0; h < PARTS; h++)
                        BYTE_PRODUCT(sum[r][c][h], b[c][h], a);
                }
            }
        }
    }
    UNROLL for (int r = 0; r < R; r++) UNROLL for (int c = 0; c < C; c++) UNROLL for (int h = 0; h < PARTS; h++)
        STORE(p->sum + r * CODES_COLS + c * GEMM_PANEL + h * LANES, sum[r][c][h]);
}
#define BYTE_TILE(R)                                                                             \
    static void byte_tile_##R(const struct byte_part *p, uint32_t cols)                          \
    {                                                                                            \
        if (SIDE(BYTES, R) > 1 && cols == COLS) {                                                \
            byte_tile(p, R, SIDE(BYTES, R));                                                     \
            return;                                                                              \
        }                                                                                        \
        for (struct byte_part one = *p; cols; cols--, one.sum += GEMM_PANEL, one.w += one.w_col) \
            byte_tile(&one, R, 1);                                                               \
    }
BYTE_TILE(1)
BYTE_TILE(2)
BYTE_TILE(3)
BYTE_TILE(4)
BYTE_TILE(5)
BYTE_TILE(6)

/* Group g of some rows: out = (add ? itself : 0) + its sums, scaled. more than eight: as gemm_mul_fn, and the group. */
static void byte_group(float *out, size_t ldo, const char *x, size_t x_stride, const struct dev_weight *w,
                       uint32_t panel, uint32_t n_panel, uint32_t n_row, uint32_t g, bool add, int32_t *sum)
{
    static byte_tile_fn *const by_rows[ROWS] = { byte_tile_1, byte_tile_2, byte_tile_3,
                                                 byte_tile_4, byte_tile_5, byte_tile_6 };
    uint32_t                   k_all = gemm_round(w->k, 64), group = w->q.group ? w->q.group : k_all, begin = g * group;
    uint32_t         end = k_all - begin < group ? k_all : begin + group, span = n_row <= ROWS ? k_all : CODES_SPAN;
    size_t           tail = BYTE_INPUT * (size_t)k_all;
    struct byte_part p = { .x_stride = x_stride, .w_col = gemm_panel_bytes(DT_I8, w->k) };
    for (uint32_t k = begin, n; k < end; k += n) {
        n = end - k < span ? end - k : span;
        p.n = n / 4;
        p.add = k > begin;
        p.sum = sum;
        p.x = x + (size_t)k * BYTE_INPUT;
        p.sum_at = tail + g * 4 - (size_t)k * BYTE_INPUT;
        p.w = gemm_panel(w, panel) + (size_t)k * GEMM_PANEL;
        p.ahead = CODES_AHEAD;
        if (n_row > ROWS) p.ahead = (size_t)CODES_SPAN * GEMM_PANEL + (k + n == k_all && k ? 3 * p.w_col : 0);
        for (uint32_t left = n_row, r; left; left -= r) {
            r = simd_rows(left, ROWS);
            by_rows[r - 1](&p, n_panel);
            p.sum += r * CODES_COLS;
            p.x += r * x_stride;
        }
    }
    const float *scale = (const float *)w->scale + gemm_scale_at(w, panel, begin);
    const char  *row_scale = x + tail + quant_n_group(&w->q, w->k) * 4;
    size_t       scale_col = (size_t)quant_n_group(&w->q, w->k) * GEMM_PANEL;
    for (uint32_t r = 0; r < n_row; r++)
        for (uint32_t c = 0; c < n_panel; c++)
            for (int h = 0; h < PARTS; h++) {
                float *to = out + r * ldo + c * GEMM_PANEL + h * LANES;
                VF     v = TIMES(TO_FLOAT(LOAD(sum + r * CODES_COLS + c * GEMM_PANEL + h * LANES)),
                                 SET1_F32(float_at(row_scale + r * x_stride)));
                STORE_F32(to, FMA(v, LOAD_F32(scale + c * scale_col + h * LANES), add ? LOAD_F32(to) : SET1_F32(0)));
            }
}

static void byte_mul(const struct simd *v, float *out, size_t ldo, const void *x, size_t x_stride,
                     const struct dev_weight *w, uint32_t panel, uint32_t n_panel, uint32_t n_row, bool add,
                     const struct gemm_scratch *s)
{
    (void)v;
    CHECK(s->bytes >= CODES_ROWS * CODES_COLS * sizeof(int32_t));
    for (uint32_t row = 0, n; row < n_row; row += n) {
        n = n_row - row < CODES_ROWS ? n_row - row : CODES_ROWS;
        for (uint32_t g = 0; g < quant_n_group(&w->q, w->k); g++)
            byte_group(out + row * ldo, ldo, (const char *)x + row * x_stride, x_stride, w, panel, n_panel, n, g,
                       add || g, s->p);
    }
}

const struct gemm_kind NAME(words) = { GEMM_QUADS, act16_row_bytes, word_prepare, word_mul };
const struct gemm_kind NAME(words_act8) = { GEMM_QUADS, byte_row_bytes, byte_prepare, byte_mul };
