/* gemm words: int8 and int4 weights by activations of 16 bits with vpmaddwd, for processors without VNNI: a vector of codes becomes
 * two of 16-bit words by a mask and a shift, and each is multiplied with pairs of inputs (act16.h, words). Sums over a chunk are exact.
 * The body of gemm_words_avx2.c and gemm_words_avx512.c, which define V, VF and what to do with them, ROWS (rows of a tile at most),
 * WIDE (rows up to which GEMM_COLS panels go side by side: as many sums as there are registers for), and NAME. */
#include "kernels/cpu/gemm_codes.h"

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 8")
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

/* Two inputs of C panels by R rows: those at x + at, and the words of the codes in b. */
#define PAIR(at)                                                                                                                       \
    UNROLL for (int r = 0; r < R; r++)                                                                                                 \
    {                                                                                                                                  \
        V a_ = SET1(lane_at(x + (size_t)r * p->x_stride + (at)));                                                                      \
        UNROLL for (int c = 0; c < C; c++) UNROLL for (int h = 0; h < PARTS; h++) sum[r][c][h] = ADD(sum[r][c][h], MADD(b[c][h], a_)); \
    }
#define EACH(expression) UNROLL for (int c = 0; c < C; c++) UNROLL for (int h = 0; h < PARTS; h++) b[c][h] = expression

INLINE void tile(const struct codes_part *p, const enum codes t, const int R, const int C)
{
    const V     byte = SET1(0x00ff00ff), half = SET1(0x000f000f);
    const char *x = p->x, *w = p->w, *tail = p->tail;
    /* bytes: a panel follows a panel; half bytes: side by side */
    const size_t w_col = t == BYTES ? p->w_col : 64, w_step = t == BYTES ? 64 : p->w_step;
    bool         add = p->add;
    for (uint32_t k = p->k; k < p->end; k += p->chunk, tail += ACT16_PART, add = true) {
        V        sum[ROWS][COLS][PARTS], q[COLS][PARTS], b[COLS][PARTS];
        uint32_t n = p->end - k < p->chunk ? p->end - k : p->chunk, group = p->group ? k / p->group : 0;
        UNROLL for (int c = 0; c < C; c++) UNROLL for (int h = 0; h < PARTS; h++) /* codes are above what they mean: so much less */
        {
            V zero = SET1(t == BYTES ? 128 : 8);
            if (t == NIBBLES_ZERO)
                zero = TO_INT(LOAD_F16(p->zero + (size_t)c * p->scale_col + group * p->scale_step + (size_t)h * LANES * sizeof(f16)));
            UNROLL for (int r = 0; r < R; r++) sum[r][c][h] = SUB(SET1(0), MUL(zero, SET1(lane_at(tail + (size_t)r * p->x_stride))));
        }
        for (uint32_t i = 0; i < n; i += t == BYTES ? 4 : 8, w += w_step) {
            UNROLL for (int c = 0; c < C; c++) UNROLL for (int h = 0; h < PARTS; h++) q[c][h] =
                LOAD(w + (size_t)c * w_col + (size_t)h * sizeof(V));
            if (t == BYTES) {
                EACH(AND(q[c][h], byte));
                PAIR(0)
                EACH(SHIFT(q[c][h], 8));
                PAIR(4)
                x += 8;
            } else {
                EACH(AND(q[c][h], half));
                PAIR(0)
                EACH(AND(SHIFT(q[c][h], 8), half));
                PAIR(4)
                EACH(AND(SHIFT(q[c][h], 4), half));
                PAIR(8)
                EACH(SHIFT(q[c][h], 12));
                PAIR(12)
                x += 16;
            }
        }
        UNROLL for (int c = 0; c < C; c++) UNROLL for (int h = 0; h < PARTS; h++)
        {
            const char *s_from = p->scale + (size_t)c * p->scale_col + group * p->scale_step +
                                 (size_t)h * LANES * (t == BYTES ? sizeof(float) : sizeof(f16));
            VF s = t == BYTES ? LOAD_F32(s_from) : LOAD_F16(s_from);
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
        if (R <= WIDE && cols == COLS) {                                                      \
            tile(p, t, R, R <= WIDE ? COLS : 1);                                              \
            return;                                                                           \
        }                                                                                     \
        for (struct codes_part one = *p; cols; cols--, codes_next(&one)) tile(&one, t, R, 1); \
    }
#define TILES(name, t) TILE(name, t, 1) TILE(name, t, 2) TILE(name, t, 3) TILE(name, t, 4)
TILES(bytes, BYTES)
TILES(nibbles, NIBBLES)
TILES(nibbles_zero, NIBBLES_ZERO)

static void word_prepare(void *row, const float *x, const struct dev_weight *w) { act16_prepare(row, x, w, ACT16_WORDS); }

static void word_mul(const struct simd *v, float *out, size_t ldo, const void *x, size_t x_stride, const struct dev_weight *w,
                     uint32_t panel, uint32_t n_panel, uint32_t n_row, bool add, const struct gemm_scratch *s)
{
    static codes_tile_fn *const by_rows[CODES][ROWS] = { { bytes_1, bytes_2, bytes_3, bytes_4 },
                                                         { nibbles_1, nibbles_2, nibbles_3, nibbles_4 },
                                                         { nibbles_zero_1, nibbles_zero_2, nibbles_zero_3, nibbles_zero_4 } };
    (void)v, (void)s;
    codes_mul(by_rows[codes_of(w)], ROWS, ACT16_WORDS, out, ldo, x, x_stride, w, panel, n_panel, n_row, add);
}

const struct gemm_kind NAME = { GEMM_QUADS, act16_row_bytes, word_prepare, word_mul };
