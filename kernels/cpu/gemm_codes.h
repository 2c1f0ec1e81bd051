/* gemm codes: weights of 8 bits and 4 in GEMM_QUADS order by rows of act16.h: the walk that the instruction sets have in
 * common. Private to kernels/cpu/, for files built with AVX2. A tile multiplies some rows with one or GEMM_COLS panels
 * over inputs [k, end). */
#pragma once
#include "base/check.h"
#include "kernels/cpu/act16.h"

enum codes { BYTES, NIBBLES, NIBBLES_ZERO, FLOATS4, FLOATS4_FACTOR /* scales of E4M3 */, CODES };
enum { CODES_SPAN = 256 /* inputs that all rows pass by before the next: their codes stay in the first cache */ };
/* bytes: how far ahead codes are asked for that are read once, for the processor's own prefetching is too late */
enum { CODES_AHEAD = 8192 };
enum { CODES_ROWS = 96, CODES_COLS = GEMM_COLS * GEMM_PANEL /* of sums in scratch: they stay in the second cache */ };

/* Inputs [k, end) of a product, of rows and panels that begin at x and w. Strides in bytes. */
struct codes_part {
    float       *out;
    size_t       ldo;
    const char  *x, *w;                          /* at input k */
    const char  *tail;                           /* of x's row: sum and scale of the chunk of k */
    size_t       x_stride, x_low, w_col, w_step; /* w_step: of a vector of codes */
    uint32_t     k, end, chunk, group, k_all;
    const char  *scale, *zero;          /* of group 0 */
    const float *factor;                /* of the outputs of w: FLOATS4_FACTOR */
    size_t       scale_col, scale_step; /* of a group */
    bool         add;
};
/* cols: 1 .. GEMM_COLS panels. `p` goes by address: a copy of it would be loaded in wider pieces than its fields were
 * just stored in, and such a load waits until all stores before it, a whole tile of out, are in the cache. */
typedef void codes_tile_fn(const struct codes_part *p, uint32_t cols);

/* Twice the numbers of F4E2M1 are whole: FLOATS4_ZERO + 2 * number, by code, and so their scales are halved. */
enum { FLOATS4_ZERO = 12 };
static const uint8_t floats4_bytes[16] = { 12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0 };

/* Are they 4-bit floats, of either kind of scales? */
static inline bool codes_floats4(enum codes t) { return t == FLOATS4 || t == FLOATS4_FACTOR; }

/* How the codes of this matrix are read. */
static inline enum codes codes_of(const struct dev_weight *w)
{
    if (w->zero) return NIBBLES_ZERO;
    if (w->dtype == DT_F4E2M1) return w->factor ? FLOATS4_FACTOR : FLOATS4;
    return w->dtype == DT_I4 ? NIBBLES : BYTES;
}

/* The next panel. */
static inline void codes_next(struct codes_part *p)
{
    p->out += GEMM_PANEL;
    p->w += p->w_col;
    p->scale += p->scale_col;
    p->zero += p->scale_col;
    p->factor += p->factor ? GEMM_PANEL : 0;
}

/* All rows of `p`, in tiles of at most n_tile, over all inputs in parts of `span`: x and out are those of input 0.
 * more than eight: it is compiled into codes_mul, where constants of the caller meet its arguments. */
static inline void codes_walk(codes_tile_fn *const *tile, uint32_t n_tile, struct codes_part p,
                              const struct dev_weight *w, uint32_t panel, uint32_t n_panel, uint32_t n_row,
                              uint32_t span, uint32_t input_bytes)
{
    const uint32_t code_inputs = dtype_is_half_byte(w->dtype) ? 8 : 4; /* of a vector of codes */
    const char    *x = p.x;
    float         *out = p.out;
    for (p.k = 0; p.k < w->k; p.k = p.end, p.add = true) {
        p.end = w->k - p.k < span ? w->k : p.k + span;
        p.out = out;
        p.w = gemm_panel(w, panel) + p.k / code_inputs * p.w_step;
        p.x = x + (size_t)p.k * input_bytes;
        p.tail = x + act16_tail(w) + p.k / p.chunk * ACT16_PART;
        for (uint32_t left = n_row, r; left; left -= r) {
            r = simd_rows(left, n_tile);
            tile[r - 1](&p, n_panel);
            p.out += r * p.ldo;
            p.x += r * p.x_stride;
            p.tail += r * p.x_stride;
        }
    }
}

/* As gemm_mul_fn. tile[r - 1] is for r rows, at most n_tile. Sums of more rows are kept in scratch until they are
 * whole: rows of out may lie a power of two apart, in the same few lines of every cache. more than eight: as
 * gemm_mul_fn, and the tiles of the instruction set. */
static inline void codes_mul(codes_tile_fn *const *tile, uint32_t n_tile, enum act16 form, float *out, size_t ldo,
                             const void *x, size_t x_stride, const struct dev_weight *w, uint32_t panel,
                             uint32_t n_panel, uint32_t n_row, bool add, const struct gemm_scratch *s)
{
    bool              half = dtype_is_half_byte(w->dtype);
    size_t            scale_size = gemm_scale_bytes(w->dtype), at = gemm_scale_at(w, panel, 0) * scale_size;
    uint32_t          input = form == ACT16_WORDS ? 2 : 1;
    uint32_t          side = gemm_side(w, panel);
    struct codes_part p = { .x_stride = x_stride, .x_low = gemm_round(w->k, 64), .w_step = (size_t)64 * side };
    CHECK(panel % GEMM_COLS + n_panel <= GEMM_COLS);
    p.w_col = half ? 64 : gemm_panel_bytes(w->dtype, w->k);
    p.chunk = gemm_chunk(w);
    p.group = w->q.group;
    p.k_all = w->k;
    p.scale = (const char *)w->scale + at;
    p.scale_step = GEMM_PANEL * scale_size * side;
    p.scale_col = half ? GEMM_PANEL * scale_size : quant_n_group(&w->q, w->k) * GEMM_PANEL * scale_size;
    p.zero = w->zero ? (const char *)w->zero + at : p.scale;
    p.factor = w->factor ? (const float *)w->factor + panel * GEMM_PANEL : NULL;
    if (n_row <= n_tile) {
        p.out = out;
        p.ldo = ldo;
        p.x = x;
        p.add = add;
        codes_walk(tile, n_tile, p, w, panel, n_panel, n_row, w->k, input);
        return;
    }
    CHECK(s->bytes >= CODES_ROWS * CODES_COLS * sizeof(float));
    for (uint32_t row = 0, n; row < n_row; row += n) {
        float *to = out + row * ldo, *sum = s->p;
        n = n_row - row < CODES_ROWS ? n_row - row : CODES_ROWS;
        for (uint32_t r = 0; add && r < n; r++)
            memcpy(sum + r * CODES_COLS, to + r * ldo, n_panel * GEMM_PANEL * sizeof *sum);
        p.out = sum;
        p.ldo = CODES_COLS;
        p.x = (const char *)x + row * x_stride;
        p.add = add;
        codes_walk(tile, n_tile, p, w, panel, n_panel, n, CODES_SPAN, input);
        for (uint32_t r = 0; r < n; r++) memcpy(to + r * ldo, sum + r * CODES_COLS, n_panel * GEMM_PANEL * sizeof *sum);
    }
}
