/* gemm nibbles: int4 weights by activations of 8 bits with vpmaddubsw, for processors without VNNI: 32 products of a
 * half byte and a byte by one instruction, sums of 16 bits. A part of 32 inputs adds at most 8 * 2 * 8 * 127 = 16,256
 * to each, of the codes less the 8 that they lie above what they mean, so its sum is exact even if it overflows on the
 * way. Then it grows in 32 bits, over the group.
 * A row's sum over k is of whole numbers in each group, scaled by the weights' scale and added in floats; the row's own
 * scale comes last. Until then sums lie in scratch: the numbers and their order are those of gemm_vnni.c.
 * With AVX-VNNI (DOT_BYTES) sums are of 32 bits from the beginning.
 * The second body of gemm_words_avx2.c, gemm_words_vnni.c and gemm_words_avx512.c, after gemm_words_body.h. */

enum { NIBBLE_PART = 32 /* inputs whose sums fit in 16 bits */ };

/* A prepared row: its codes, padded with zeros to a multiple of 64; for each part -8 times its sums of inputs 0 1 and
 * of 2 3 of every four, as 16 bits each; the row's scale. */
static size_t nibble_row_bytes(const struct dev_weight *w)
{
    return (size_t)gemm_round(w->k, 64) + gemm_round((gemm_round(w->k, NIBBLE_PART) / NIBBLE_PART + 1) * 4, 64) + 64;
}

/* The two sums of a part, times -8. */
static inline int32_t nibble_less(const int8_t *code)
{
    __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), _mm256_loadu_si256((const void *)code));
    __m128i sum = _mm_add_epi16(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
    sum = _mm_add_epi16(sum, _mm_shuffle_epi32(sum, 0x4e));
    sum = _mm_add_epi16(sum, _mm_shuffle_epi32(sum, 0xb1));
    return _mm_cvtsi128_si32(_mm_mullo_epi16(sum, _mm_set1_epi16(-8)));
}

static void nibble_prepare(void *row, const float *x, const struct dev_weight *w)
{
    int8_t  *code = row;
    char    *less = (char *)row + gemm_round(w->k, 64);
    uint32_t k_all = gemm_round(w->k, NIBBLE_PART);
    float    scale = act8_codes(x, w->k, code);
    memset(code + w->k, 0, gemm_round(w->k, 64) - w->k);
    for (uint32_t k = 0; k < k_all; k += NIBBLE_PART, less += 4) {
        int32_t pair = nibble_less(code + k);
        memcpy(less, &pair, 4);
    }
    memcpy(less, &scale, 4);
}

struct nibble_part {
    float      *sum;   /* rows of CODES_COLS */
    const char *x, *w; /* at the first input, like the two that follow */
    const char *less, *scale;
    size_t      x_stride, w_step, scale_step;
    uint32_t    n_group, n; /* n: parts of a group */
    bool        add;        /* to what sum holds */
};
typedef void nibble_tile_fn(const struct nibble_part *p, uint32_t cols);

#ifdef DOT_BYTES
#define NIBBLE_PRODUCT(sum, b, a) DOT_BYTES(sum, b, a)
#define NIBBLE_FIRST(pair)        MADD(pair, SET1(0x00010001))
#define NIBBLE_SUM(sum)           (sum)
#else
#define NIBBLE_PRODUCT(sum, b, a)                 \
    do {                                          \
        (sum) = ADD_WORDS(sum, MADD_BYTES(b, a)); \
        __asm__("" : ON_VECTOR(sum));             \
    } while (0)
#define NIBBLE_FIRST(pair) (pair)
#define NIBBLE_SUM(sum)    MADD(sum, SET1(0x00010001))
#endif

/* The sums of one part, in 16 bits or 32; x and w are at its first input. */
INLINE void nibble_sums(V sum[ROWS][COLS][PARTS], const struct nibble_part *p, const char *x, const char *w,
                        const char *less, const int R, const int C)
{
    enum { AHEAD = 4096 };
    const V half = SET1(0x0f0f0f0f);
    UNROLL for (int r = 0; r < R; r++)
    {
        V from = NIBBLE_FIRST(SET1(lane_at(less + (size_t)r * p->x_stride)));
        UNROLL for (int c = 0; c < C; c++) UNROLL for (int h = 0; h < PARTS; h++) sum[r][c][h] = from;
    }
    for (int i = 0; i < NIBBLE_PART; i += 8, x += 8, w += p->w_step) {
        UNROLL for (int c = 0; c < C; c++)
            _mm_prefetch(w + c * 64 + (C == 1 ? CODES_SPAN / 8 * p->w_step : AHEAD), _MM_HINT_T0);
        if (R == 1) { /* inputs stay in registers, codes pass by */
            V a = SET1(lane_at(x)), b = SET1(lane_at(x + 4));
            UNROLL for (int c = 0; c < C; c++) UNROLL for (int h = 0; h < PARTS; h++)
            {
                V q = LOAD(w + c * 64 + (size_t)h * sizeof(V));
                NIBBLE_PRODUCT(sum[0][c][h], AND(q, half), a);
                NIBBLE_PRODUCT(sum[0][c][h], AND(SHIFT(q, 4), half), b);
            }
        } else { /* codes stay in registers, rows pass by */
            UNROLL for (int j = 0; j < 2; j++)
            {
                V b[COLS][PARTS];
                UNROLL for (int c = 0; c < C; c++) UNROLL for (int h = 0; h < PARTS; h++)
                {
                    V q = LOAD(w + c * 64 + (size_t)h * sizeof(V));
                    b[c][h] = AND(j ? SHIFT(q, 4) : q, half);
                }
                UNROLL for (int r = 0; r < R; r++)
                {
                    V a = SET1(lane_at(x + (size_t)r * p->x_stride + 4 * j));
                    UNROLL for (int c = 0; c < C; c++) UNROLL for (int h = 0; h < PARTS; h++)
                        NIBBLE_PRODUCT(sum[r][c][h], b[c][h], a);
                }
            }
        }
    }
}

/* one: a group is a part. */
INLINE void nibble_tile(const struct nibble_part *p, const int R, const int C, const bool one)
{
    const char *x = p->x, *w = p->w, *scale = p->scale, *less = p->less;
    bool        add = p->add;
    for (uint32_t g = 0; g < p->n_group; g++, scale += p->scale_step, add = true) {
        V sum[ROWS][COLS][PARTS], whole[ROWS][COLS][PARTS];
        UNROLL for (int r = 0; r < R; r++) UNROLL for (int c = 0; c < C; c++) UNROLL for (int h = 0; h < PARTS; h++)
            whole[r][c][h] = SET1(0);
        UNROLL for (int c = 0; c < C; c += 2) _mm_prefetch(scale + 8 * p->scale_step + c * 32, _MM_HINT_T0);
        for (uint32_t i = 0; i < (one ? 1 : p->n); i++, less += 4, x += NIBBLE_PART, w += NIBBLE_PART / 8 * p->w_step) {
            nibble_sums(sum, p, x, w, less, R, C);
            UNROLL for (int r = 0; r < R; r++) UNROLL for (int c = 0; c < C; c++) UNROLL for (int h = 0; h < PARTS; h++)
                whole[r][c][h] = ADD(whole[r][c][h], NIBBLE_SUM(sum[r][c][h]));
        }
        UNROLL for (int c = 0; c < C; c++) UNROLL for (int h = 0; h < PARTS; h++)
        {
            VF s = LOAD_F16(scale + c * 32 + h * LANES * 2);
            UNROLL for (int r = 0; r < R; r++)
            {
                float *to = p->sum + r * CODES_COLS + c * GEMM_PANEL + h * LANES;
                STORE_F32(to, FMA(TO_FLOAT(whole[r][c][h]), s, add ? LOAD_F32(to) : SET1_F32(0)));
            }
        }
    }
}
#define NIBBLE_TILE(name, R, one)                                                                    \
    static void name##_##R(const struct nibble_part *p, uint32_t cols)                               \
    {                                                                                                \
        if (SIDE(NIBBLES, R) > 1 && cols == COLS) {                                                  \
            nibble_tile(p, R, SIDE(NIBBLES, R), one);                                                \
            return;                                                                                  \
        }                                                                                            \
        for (struct nibble_part q = *p; cols; cols--, q.sum += GEMM_PANEL, q.w += 64, q.scale += 32) \
            nibble_tile(&q, R, 1, one);                                                              \
    }
#define NIBBLE_TILES(name, one) \
    NIBBLE_TILE(name, 1, one)   \
    NIBBLE_TILE(name, 2, one)   \
    NIBBLE_TILE(name, 3, one)   \
    NIBBLE_TILE(name, 4, one)   \
    NIBBLE_TILE(name, 5, one)   \
    NIBBLE_TILE(name, 6, one)   \
    static nibble_tile_fn *const name##_by_rows[ROWS] = { name##_1, name##_2, name##_3, name##_4, name##_5, name##_6 };
NIBBLE_TILES(nibble_one, true)
NIBBLE_TILES(nibble_some, false)

/* As gemm_mul_fn, for as many rows as sum [rows, CODES_COLS] holds. more than eight: as there. */
static void nibble_rows(float *out, size_t ldo, const char *x, size_t x_stride, const struct dev_weight *w,
                        uint32_t panel, uint32_t n_panel, uint32_t n_row, bool add, float *sum)
{
    uint32_t n_group = quant_n_group(&w->q, w->k), k_all = gemm_k(DT_I4, w->k), group = w->q.group ? w->q.group : k_all;
    uint32_t side = gemm_side(w, panel), at_once = n_row <= ROWS ? n_group : CODES_SPAN / group;
    nibble_tile_fn *const *by_rows = group == NIBBLE_PART ? nibble_one_by_rows : nibble_some_by_rows;
    const char            *less = x + gemm_round(w->k, 64);
    struct nibble_part     p = { .x_stride = x_stride,
                                 .w_step = (size_t)64 * side,
                                 .scale_step = (size_t)side * GEMM_PANEL * sizeof(f16) };
    if (at_once < 1) at_once = 1;
    for (uint32_t g = 0, k = 0; g < n_group; g += p.n_group, k = g * group) {
        p.n_group = n_group - g < at_once ? n_group - g : at_once;
        if ((g + p.n_group) * group > k_all && p.n_group > 1) p.n_group--; /* the last is short: by itself */
        p.n = (k_all - k < group ? k_all - k : group) / NIBBLE_PART;
        p.add = g > 0;
        p.sum = sum;
        p.x = x + k;
        p.w = gemm_panel(w, panel) + k / 8 * p.w_step;
        p.less = less + (size_t)k / NIBBLE_PART * 4;
        p.scale = (const char *)w->scale + gemm_scale_at(w, panel, k) * sizeof(f16);
        for (uint32_t left = n_row, r; left; left -= r) {
            r = simd_rows(left, ROWS);
            by_rows[r - 1](&p, n_panel);
            p.sum += r * CODES_COLS;
            p.x += r * x_stride;
            p.less += r * x_stride;
        }
    }
    for (uint32_t r = 0; r < n_row; r++) {
        VF scale = SET1_F32(float_at(less + k_all / NIBBLE_PART * 4 + r * x_stride));
        for (uint32_t i = 0; i < n_panel * GEMM_PANEL; i += LANES) {
            float *to = out + r * ldo + i;
            STORE_F32(to, FMA(LOAD_F32(sum + r * CODES_COLS + i), scale, add ? LOAD_F32(to) : SET1_F32(0)));
        }
    }
}

static void nibble_mul(const struct simd *v, float *out, size_t ldo, const void *x, size_t x_stride,
                       const struct dev_weight *w, uint32_t panel, uint32_t n_panel, uint32_t n_row, bool add,
                       const struct gemm_scratch *s)
{
    (void)v;
    CHECK(panel % GEMM_COLS + n_panel <= GEMM_COLS);
    CHECK(s->bytes >= CODES_ROWS * CODES_COLS * sizeof(float));
    for (uint32_t r = 0, n; r < n_row; r += n) {
        n = n_row - r < CODES_ROWS ? n_row - r : CODES_ROWS;
        nibble_rows(out + r * ldo, ldo, (const char *)x + r * x_stride, x_stride, w, panel, n_panel, n, add, s->p);
    }
}

const struct gemm_kind NAME(nibbles_act8) = { GEMM_QUADS, nibble_row_bytes, nibble_prepare, nibble_mul };
