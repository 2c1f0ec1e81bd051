/* attn amx: a tile of bf16 keys and values by tiles (AMX), up to 32 queries at a time: 16 queries by 16 keys, or by 16
 * dimensions of the values, 32 terms at once. Queries that fill no tile make one of fewer rows. All 64 keys of a tile
 * are always multiplied, in two steps; what a query does not see has weight zero, and zero times a number adds nothing;
 * that a zero may be negative, finish takes care of. A tile with values that are no finite numbers is multiplied query
 * by query, with zeros for those that it does not see. */
#include "kernels/cpu/attn.h"
#if defined(__x86_64__)
#include "kernels/cpu/attn_pack.h"
#include "kernels/cpu/attn_soft.h"
#ifndef AMX_MODEL
#include "kernels/cpu/amx.h"
#endif

enum { TILE = 16, ROWS = 2 * TILE, TERMS = 32, STEPS = ATTN_TILE / TERMS };

static bool serves(enum dtype kv, uint32_t dim) { return kv == DT_BF16 && dim % STEP == 0; }

/* out (+)= x * w: n tiles of terms. Strides in bytes; w_row: of its 16 rows, w_col: of its columns of 16, w_step: of
 * its tiles of terms. */
struct part {
    char       *out;
    const char *x, *w;
    size_t      out_row, x_row, w_row, w_col, w_step;
    uint32_t    n;
    bool        add;
};

#define BEGIN(t, row, col)                                                 \
    do {                                                                   \
        if (p->add)                                                        \
            amx_load(t, p->out + (row)*p->out_row + (col)*64, p->out_row); \
        else                                                               \
            amx_zero(t);                                                   \
    } while (0)
#define END(t, row, col) amx_store(t, p->out + (row)*p->out_row + (col)*64, p->out_row)

/* As many rows as amx_rows said, two columns of 16; twice 16 rows, so that what is loaded of w is used twice. */
static void part_1x2(const struct part *p)
{
    const char *x = p->x, *w = p->w;
    BEGIN(0, 0, 0);
    BEGIN(1, 0, 1);
    for (uint32_t i = 0; i < p->n; i++, x += 64, w += p->w_step) {
        amx_load(4, x, p->x_row);
        amx_load(6, w, p->w_row);
        amx_bf16(0, 4, 6);
        amx_load(7, w + p->w_col, p->w_row);
        amx_bf16(1, 4, 7);
    }
    END(0, 0, 0);
    END(1, 0, 1);
}
static void part_2x2(const struct part *p)
{
    const char *x = p->x, *w = p->w;
    BEGIN(0, 0, 0);
    BEGIN(1, 0, 1);
    BEGIN(2, TILE, 0);
    BEGIN(3, TILE, 1);
    for (uint32_t i = 0; i < p->n; i++, x += 64, w += p->w_step) {
        amx_load(4, x, p->x_row);
        amx_load(6, w, p->w_row);
        amx_bf16(0, 4, 6);
        amx_load(5, x + TILE * p->x_row, p->x_row);
        amx_bf16(2, 5, 6);
        amx_load(7, w + p->w_col, p->w_row);
        amx_bf16(1, 4, 7);
        amx_bf16(3, 5, 7);
    }
    END(0, 0, 0);
    END(1, 0, 1);
    END(2, TILE, 0);
    END(3, TILE, 1);
}

/* n_row <= ROWS; n_col, columns of 16, even */
static void mul(struct part p, uint32_t n_row, uint32_t n_col)
{
    for (uint32_t r = 0, n; r < n_row; r += n) {
        struct part q = p;
        n = n_row - r < TILE ? n_row - r : TILE;
        if (n_row == ROWS) n = ROWS;
        q.out += r * p.out_row;
        q.x += r * p.x_row;
        amx_rows(n < TILE ? n : TILE);
        for (uint32_t c = 0; c < n_col; c += 2, q.out += 128, q.w += 2 * p.w_col)
            n == ROWS ? part_2x2(&q) : part_1x2(&q);
    }
    amx_done();
}

static void scores(const struct attn_work *w, uint32_t i, uint32_t n)
{
    mul((struct part){ .out = (char *)(w->s + i * ATTN_TILE),
                       .x = (const char *)(w->q + i * w->dim),
                       .w = (const char *)w->k,
                       .out_row = ATTN_TILE * sizeof(float),
                       .x_row = w->dim * sizeof(float),
                       .w_row = 64,
                       .w_col = w->dim * TILE * sizeof(bf16),
                       .w_step = 1024,
                       .n = w->dim / TERMS },
        n, ATTN_TILE / TILE);
}
static struct part sums(const struct attn_work *w, uint32_t i)
{
    return (struct part){ .out = (char *)(w->y + i * w->pad),
                          .x = (const char *)(w->s + i * ATTN_TILE),
                          .w = (const char *)w->vt,
                          .out_row = w->pad * sizeof(float),
                          .x_row = ATTN_TILE * sizeof(float),
                          .w_row = w->dim * sizeof(float),
                          .w_col = 64,
                          .w_step = w->dim * 64,
                          .n = STEPS,
                          .add = true };
}

/* Sums of query i, which sees keys [lo, hi) of the tile and not the hidden ones, over a copy in which the others' values are zeros. */
static void sums_alone(const struct attn_work *w, uint32_t i, uint32_t lo, uint32_t hi)
{
    enum { COLS = 2 };
    _Alignas(64) uint32_t of[STEPS][COLS][TILE * TILE];
    struct part           p = sums(w, i);
    for (uint32_t d = 0; d < w->dim; d += COLS * TILE, p.out += COLS * 64) {
        for (uint32_t t = 0; t < ATTN_TILE; t += 2) {
            uint64_t hidden = w->hidden >> t;
            uint32_t seen = (t >= lo && t < hi ? 0xffffu : 0) | (t + 1 >= lo && t + 1 < hi ? 0xffff0000u : 0), pair;
            seen &= ~((hidden & 1 ? 0xffffu : 0) | (hidden & 2 ? 0xffff0000u : 0));
            for (uint32_t c = 0; c < COLS * TILE; c++) {
                memcpy(&pair, w->vt + t / 2 * w->dim + d + c, sizeof pair);
                of[t / TERMS][c / TILE][t / 2 % TILE * TILE + c % TILE] = pair & seen;
            }
        }
        p.w = (const char *)of;
        p.w_row = 64;
        p.w_col = sizeof of[0][0];
        p.w_step = sizeof of[0];
        mul(p, 1, COLS);
    }
}

/* Exponents of all ones: what is infinite or no number. */
static bool wild(const struct attn_work *w)
{
    const __m512i high = _mm512_set1_epi16(0x7f80);
    __mmask32     any = 0;
    for (uint32_t i = 0; i < ATTN_TILE / 2 * w->dim; i += 16)
        any |= _mm512_cmpeq_epi16_mask(_mm512_and_si512(_mm512_loadu_si512(w->vt + i), high), high);
    return any;
}

static void tile(struct attn_work *w, uint32_t first, uint32_t end)
{
    (void)first;
    (void)end; /* the rest is zeros */
    attn_pack(w, 0, ATTN_TILE);
    w->wild = wild(w);
}

static void block(struct attn_work *w, uint32_t t0, uint32_t i, uint32_t n)
{
    uint32_t lo[ROWS], hi[ROWS];
    scores(w, i, n);
    for (uint32_t q = 0; q < n; q++) {
        hi[q] = attn_sees(w, t0, i + q, &lo[q]);
        attn_soften(w, i + q, w->s + (i + q) * ATTN_TILE, lo[q], hi[q]);
    }
    if (!w->wild) mul(sums(w, i), n, w->dim / TILE);
    for (uint32_t q = 0; q < n && w->wild; q++) sums_alone(w, i + q, lo[q], hi[q]);
}

static void finish(float *y, uint32_t dim)
{
    attn_finish(y, dim);
    for (uint32_t d = 0; d < dim; d += 16)
        _mm512_storeu_ps(y + d, _mm512_add_ps(_mm512_loadu_ps(y + d), _mm512_setzero_ps())); /* no -0 */
}

/* Whole numbers, which no rounding touches: two tiles of rows, one and some, some. */
bool attn_amx_works(void)
{
    static const uint32_t rows[] = { ROWS, TILE + 3, 5 };
    _Alignas(64) bf16     x[ROWS * TERMS], w[TERMS * ROWS];
    float                 out[ROWS * ROWS];
    for (int i = 0; i < ROWS * TERMS; i++) {
        x[i] = f32_to_bf16((float)(i % 7 - 3));
        w[i] = f32_to_bf16((float)(i % 11 - 5));
    }
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct part p = { (char *)out, (const char *)x, (const char *)w, ROWS * 4, TERMS * 2, 128, 64, 0, 1, false };
        mul(p, rows[i], 2);
        p.add = true;
        mul(p, rows[i], 2);
        for (uint32_t r = 0; r < rows[i]; r++)
            for (uint32_t c = 0; c < ROWS; c++) {
                int32_t a = 0;
                for (uint32_t k = 0; k < TERMS; k++)
                    a += ((int)(r * TERMS + k) % 7 - 3) * ((int)(k / 2 * 64 + c * 2 + k % 2) % 11 - 5);
                if (out[r * ROWS + c] != (float)(2 * a)) return false;
            }
    }
    return true;
}

const struct attn_kind attn_amx = { ROWS, serves, attn_query, tile, block, finish };
#else
typedef int attn_amx_is_empty;
#endif
