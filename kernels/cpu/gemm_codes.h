/* gemm codes: int8 and int4 weights in GEMM_QUADS order by rows of act16.h: the walk that the instruction sets have in common.
 * Private to kernels/cpu/, for files built with AVX2. A tile multiplies some rows with one or GEMM_COLS panels over inputs [k, end). */
#pragma once
#include "base/check.h"
#include "kernels/cpu/act16.h"

enum codes { BYTES, NIBBLES, NIBBLES_ZERO, CODES };
enum { CODES_SPAN = 256 /* inputs that all rows pass by before the next: their codes stay in the first cache */ };

/* Inputs [k, end) of a product, of rows and panels that begin at x and w. Strides in bytes. */
struct codes_part {
    float      *out;
    size_t      ldo;
    const char *x, *w;                          /* at input k */
    const char *tail;                           /* of x's row: sum and scale of the chunk of k */
    size_t      x_stride, x_low, w_col, w_step; /* w_step: of a vector of codes */
    uint32_t    k, end, chunk, group, k_all;
    const char *scale, *zero;          /* of group 0 */
    size_t      scale_col, scale_step; /* of a group */
    bool        add;
};
/* cols: 1 .. GEMM_COLS panels. `p` goes by address: a copy of it would be loaded in wider pieces than its fields were just stored in, and such
 * a load waits until all stores before it, a whole tile of out, are in the cache. */
typedef void codes_tile_fn(const struct codes_part *p, uint32_t cols);

static inline enum codes codes_of(const struct dev_weight *w) { return w->zero ? NIBBLES_ZERO : w->dtype == DT_I4 ? NIBBLES : BYTES; }

/* The next panel. */
static inline void codes_next(struct codes_part *p)
{
    p->out += GEMM_PANEL, p->w += p->w_col, p->scale += p->scale_col, p->zero += p->scale_col;
}

/* As gemm_mul_fn. tile[r - 1] is for r rows, at most n_tile. */
static inline void codes_mul(codes_tile_fn *const *tile, uint32_t n_tile, enum act16 form, float *out, size_t ldo, const void *x,
                             size_t x_stride, const struct dev_weight *w, uint32_t panel, uint32_t n_panel, uint32_t n_row, bool add)
{
    bool              is_i4 = w->dtype == DT_I4;
    size_t            scale_size = is_i4 ? sizeof(f16) : sizeof(float), at = gemm_scale_at(w, panel, 0) * scale_size;
    uint32_t          span = n_row <= n_tile ? w->k : CODES_SPAN, input = form == ACT16_WORDS ? 2 : 1;
    uint32_t          side = gemm_side(w, panel);
    struct codes_part p = { .ldo = ldo, .x_stride = x_stride, .x_low = gemm_round(w->k, 64), .w_step = (size_t)64 * side };
    CHECK(panel % GEMM_COLS + n_panel <= GEMM_COLS);
    p.w_col = is_i4 ? 64 : gemm_panel_bytes(w->dtype, w->k);
    p.chunk = gemm_chunk(w), p.group = w->q.group, p.k_all = w->k;
    p.scale = (const char *)w->scale + at, p.scale_step = GEMM_PANEL * scale_size * side;
    p.scale_col = is_i4 ? GEMM_PANEL * scale_size : quant_n_group(&w->q, w->k) * GEMM_PANEL * scale_size;
    p.zero = w->zero ? (const char *)w->zero + at : p.scale;
    for (p.k = 0; p.k < w->k; p.k = p.end, add = true) {
        p.end = w->k - p.k < span ? w->k : p.k + span;
        p.add = add, p.out = out;
        p.w = gemm_panel(w, panel) + p.k / (is_i4 ? 8 : 4) * p.w_step;
        p.x = (const char *)x + (size_t)p.k * input, p.tail = (const char *)x + act16_tail(w) + p.k / p.chunk * ACT16_PART;
        for (uint32_t left = n_row, r; left; left -= r) {
            r = simd_rows(left, n_tile);
            tile[r - 1](&p, n_panel);
            p.out += r * ldo, p.x += r * x_stride, p.tail += r * x_stride;
        }
    }
}
