/* gemm: weights in panels, embeddings out of them, products with them. What lies how: gemm.h. */
#include "base/log.h"
#include "kernels/cpu/cpu.h"
#include <stdlib.h>

/* ---------------------------------------------------------------- memory */

static uint64_t lines(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

uint64_t cpu_weight_bytes(enum dtype t, uint32_t n, uint32_t k)
{
    return lines(gemm_n_panel(n) * (uint64_t)gemm_panel_bytes(t, k));
}

static uint64_t scale_bytes(const struct dev_quant *q, uint32_t n, uint32_t k)
{
    return lines((uint64_t)gemm_n_panel(n) * GEMM_PANEL * quant_n_group(q, k) * gemm_scale_bytes(q->code));
}

uint64_t cpu_quant_bytes(const struct dev_quant *q, uint32_t n, uint32_t k)
{
    uint64_t factors = quant_has_factor(q) ? (uint64_t)gemm_n_panel(n) * GEMM_PANEL * sizeof(float) : 0;
    return cpu_weight_bytes(q->code, n, k) + scale_bytes(q, n, k) * (q->zero ? 2 : 1) + factors;
}

enum status cpu_weight_alloc(struct device *d, enum dtype t, uint32_t n, uint32_t k, struct dev_weight *w_out)
{
    if (!elem_is_float(t)) return weight_refuse("cpu", t, NULL);
    struct dev_weight w = {
        .dtype = t, .n = n, .k = k, .bytes = cpu_weight_bytes(t, n, k), .how = cpu_of(d)->isa->kind(t, false)
    };
    enum status st = host_alloc(d, w.bytes, &w.data); /* fresh pages are zero: so is all padding */
    if (st == ST_OK) *w_out = w;
    return st;
}

enum status cpu_quant_alloc(struct device *d, const struct dev_quant *q, uint32_t n, uint32_t k,
                            struct dev_weight *w_out)
{
    if (!quant_ok(q, k)) return weight_refuse("cpu", q->code, q);
    struct dev_weight w = { .dtype = q->code, .n = n, .k = k, .bytes = cpu_quant_bytes(q, n, k), .q = *q };
    w.how = cpu_of(d)->isa->kind(q->code, q->act8);
    if (q->full && gemm_of(&w)->order == GEMM_PAIRS)
        w.how = cpu_full_kind(q->code, q->act8); /* sign and size: down to -127 */
    enum status st = host_alloc(d, w.bytes, &w.data);
    if (st) return st;
    w.scale = (char *)w.data + cpu_weight_bytes(q->code, n, k);
    if (q->zero) w.zero = (char *)w.scale + scale_bytes(q, n, k);
    if (quant_has_factor(q)) w.factor = (char *)w.scale + scale_bytes(q, n, k);
    *w_out = w;
    return ST_OK;
}

/* ---------------------------------------------------------------- setting rows
 * Not by the team, which has one caller: the readers of the checkpoint come side by side. Nor in the device's scratch,
 * which is the team's. Two threads may write into one panel, never into one byte: each byte is of one output. */

struct rows {
    const struct cpu_dev *d;
    struct dev_weight    *w;
    const char           *src; /* may lie at any address */
    size_t                stride;
    enum dtype            t;
};

/* A whole panel of floats in GEMM_LANES order: its 16 rows some columns at a time, through floats, which hold every
 * type exactly. */
static void set_lanes(const struct rows *j, const char *src, char *to)
{
    enum { PART = 256 };
    _Alignas(64) char  rows[GEMM_PANEL * PART * sizeof(float)];
    _Alignas(64) float packed[GEMM_PANEL * PART];
    size_t             bytes = dtype_bytes(j->t);
    const void        *row[GEMM_PANEL];
    for (uint32_t i = 0, n; i < j->w->k; i += n) {
        n = j->w->k - i < PART ? j->w->k - i : PART;
        for (uint32_t r = 0; r < GEMM_PANEL; r++)
            row[r] = memcpy(rows + r * PART * sizeof(float), src + r * j->stride + i * bytes, n * bytes);
        j->d->isa->v->pack_k(packed, row, j->t, n);
        j->d->isa->v->store(to + (size_t)i * GEMM_PANEL * dtype_bytes(j->w->dtype), j->w->dtype, packed,
                            n * GEMM_PANEL);
    }
}

/* A whole panel of bf16 in GEMM_PAIRS order: pairs travel as if they were floats. */
static void set_pairs(const struct rows *j, const char *src, char *to)
{
    enum { PART = 256 };
    _Alignas(64) uint32_t pair[GEMM_PANEL][PART / 2];
    const void           *row[GEMM_PANEL];
    for (uint32_t r = 0; r < GEMM_PANEL; r++) row[r] = pair[r];
    for (uint32_t i = 0, n; i < j->w->k; i += n) {
        n = j->w->k - i < PART ? j->w->k - i : PART;
        for (uint32_t r = 0; r < GEMM_PANEL; r++) {
            if (j->t == DT_BF16)
                memcpy(pair[r], src + r * j->stride + i * sizeof(bf16), n * sizeof(bf16));
            else
                for (uint32_t c = 0; c < n; c++)
                    elem_store(pair[r], DT_BF16, c, elem_load(src + r * j->stride, j->t, i + c));
            if (n % 2) elem_store(pair[r], DT_BF16, n, 0);
        }
        j->d->isa->v->pack_k((float *)(void *)(to + (size_t)i / 2 * GEMM_PANEL * 4), row, DT_F32, (n + 1) / 2);
    }
}

/* A whole panel of bf16 in GEMM_EIGHTS order. */
static void set_eights(const struct rows *j, const char *src, char *to)
{
    for (uint32_t i = 0, n; i < j->w->k; i += n, to += (size_t)GEMM_PANEL * 8) {
        n = j->w->k - i < 4 ? j->w->k - i : 4;
        for (uint32_t r = 0; r < GEMM_PANEL; r++)
            for (uint32_t c = 0; c < n; c++)
                elem_store(to + r * 8, DT_BF16, c, elem_load(src + r * j->stride, j->t, i + c));
    }
}

static void set_floats(const struct rows *j, uint32_t row, uint32_t n)
{
    uint32_t        lane = row % GEMM_PANEL, shift, k = j->w->k;
    enum gemm_order order = gemm_of(j->w)->order;
    char           *panel = (char *)j->w->data + row / GEMM_PANEL * gemm_panel_bytes(j->w->dtype, k);
    if (n == GEMM_PANEL && order == GEMM_LANES) {
        set_lanes(j, j->src, panel);
    } else if (n == GEMM_PANEL && order == GEMM_EIGHTS) {
        set_eights(j, j->src, panel);
    } else if (n == GEMM_PANEL) {
        set_pairs(j, j->src, panel);
    } else {
        for (uint32_t r = 0; r < n; r++)
            for (uint32_t i = 0; i < k; i++)
                elem_store(panel, j->w->dtype, gemm_at(order, j->w->dtype, i, lane + r, &shift),
                           elem_load(j->src + r * j->stride, j->t, i));
    }
}

/* One row of codes. */
static void set_codes(struct dev_weight *w, uint32_t row, const uint8_t *code, const float *scale, const uint8_t *zero,
                      float factor)
{
    enum { PERIOD = 8 }; /* in which places repeat, one step further on, whatever the order (gemm_at) */
    uint32_t        lane = row % GEMM_PANEL, shift[PERIOD], n_group = quant_n_group(&w->q, w->k);
    enum gemm_order order = gemm_of(w)->order;
    uint32_t        side = gemm_side(w, row / GEMM_PANEL);
    uint8_t        *to = (uint8_t *)w->data + gemm_panel_at(w, row / GEMM_PANEL);
    size_t          at = gemm_scale_at(w, row / GEMM_PANEL, 0) + lane, at8[PERIOD];
    size_t          step =
        (gemm_at(order, w->dtype, PERIOD, lane, &shift[0]) - gemm_at(order, w->dtype, 0, lane, &shift[0])) * side;
    for (uint32_t j = 0; j < PERIOD; j++) at8[j] = gemm_at(order, w->dtype, j, lane, &shift[j]);
    for (uint32_t i = 0, n; i < w->k; i += n, to += step) {
        n = w->k - i < PERIOD ? w->k - i : PERIOD;
        if (dtype_is_half_byte(w->dtype))
            for (uint32_t j = 0; j < n; j++) {
                uint8_t *b = to + at8[j];
                *b = (uint8_t)((*b & (0xf0 >> shift[j])) | (code[i + j] & 15) << shift[j]);
            }
        else if (order == GEMM_QUADS)
            for (uint32_t j = 0; j < n; j++) to[at8[j]] = code[i + j] ^ 0x80;
        else if (order == GEMM_PAIRS && w->dtype == DT_I8)
            for (uint32_t j = 0; j < n; j++) to[at8[j]] = gemm_sign_size(code[i + j]);
        else
            for (uint32_t j = 0; j < n; j++) to[at8[j]] = code[i + j];
    }
    for (uint32_t g = 0; g < n_group; g++, at += (size_t)GEMM_PANEL * side) {
        if (w->dtype == DT_I4)
            ((f16 *)w->scale)[at] = f32_to_f16(scale[g]);
        else if (w->dtype == DT_F4E2M1)
            ((uint8_t *)w->scale)[at] = w->factor ? f32_to_f8e4m3(scale[g]) : f32_to_f8e8m0(scale[g]);
        else
            ((float *)w->scale)[at] = scale[g];
        if (w->zero) ((f16 *)w->zero)[at] = f32_to_f16(zero ? (float)zero[g] : 8.0f);
    }
    if (w->factor) ((float *)w->factor)[row] = factor;
}

void cpu_quant_set(struct device *d, struct dev_weight *w, uint32_t row0, uint32_t n_row, const struct dev_codes *c)
{
    (void)d;
    CHECK(row0 <= w->n && n_row <= w->n - row0);
    CHECK(dev_weight_is_quant(w));
    for (uint32_t r = 0; r < n_row; r++)
        set_codes(w, row0 + r, c->code + r * c->code_stride, c->scale + r * c->scale_stride,
                  c->zero ? c->zero + r * c->scale_stride : NULL, quant_factor(c, r));
}

static void quantise(const struct rows *j, uint32_t row0, uint32_t n_row)
{
    struct dev_weight *w = j->w;
    uint32_t           n_group = quant_n_group(&w->q, w->k);
    uint8_t           *code = malloc(w->k + n_group * sizeof(float) + sizeof(float));
    CHECK(code);
    float *scale = (float *)(void *)(code + gemm_round(w->k, 4));
    for (uint32_t r = 0; r < n_row; r++) {
        float factor = quant_row(&w->q, w->k, j->src + r * j->stride, j->t, code, scale);
        set_codes(w, row0 + r, code, scale, NULL, factor);
    }
    free(code);
}

void cpu_weight_set(struct device *d, struct dev_weight *w, uint32_t row0, uint32_t n_row, const void *src,
                    size_t src_stride, enum dtype src_t)
{
    struct rows j = { cpu_of(d), w, src, src_stride, src_t };
    CHECK(row0 <= w->n && n_row <= w->n - row0);
    CHECK(elem_is_float(src_t));
    if (dev_weight_is_quant(w)) {
        quantise(&j, row0, n_row);
        return;
    }
    for (uint32_t n; n_row; row0 += n, n_row -= n, j.src += n * src_stride) {
        n = GEMM_PANEL - row0 % GEMM_PANEL;
        if (n > n_row) n = n_row;
        set_floats(&j, row0, n);
    }
}

/* ---------------------------------------------------------------- reading rows */

struct embed_job {
    float                   *out;
    const uint32_t          *id;
    const struct dev_weight *w;
};

/* A code as the checkpoint has it: panels of some orders keep it in another form. */
static uint8_t plain_code(enum gemm_order order, enum dtype t, uint8_t c)
{
    if (order == GEMM_QUADS) return c ^ 0x80;
    return order == GEMM_PAIRS && t == DT_I8 ? gemm_sign_size(c) : c;
}

static void embed_codes(const struct dev_weight *w, uint32_t id, float *out)
{
    enum gemm_order order = gemm_of(w)->order;
    const uint8_t  *from = (const uint8_t *)gemm_panel(w, id / GEMM_PANEL);
    uint32_t        lane = id % GEMM_PANEL, shift, side = gemm_side(w, id / GEMM_PANEL);
    for (uint32_t k = 0; k < w->k; k++) {
        size_t  at = gemm_scale_at(w, id / GEMM_PANEL, k) + lane;
        uint8_t c = side > 1 ? from[(size_t)(k / 8) * 64 * side + gemm_at(order, w->dtype, k % 8, lane, &shift)]
                             : from[gemm_at(order, w->dtype, k, lane, &shift)];
        if (w->dtype == DT_I4)
            out[k] = ((float)(c >> shift & 15) - (w->zero ? f16_to_f32(((const f16 *)w->zero)[at]) : 8.0f)) *
                     f16_to_f32(((const f16 *)w->scale)[at]);
        else if (w->factor)
            out[k] = f4e2m1_to_f32(c >> shift & 15) *
                     (f8e4m3_to_f32(((const uint8_t *)w->scale)[at]) * ((const float *)w->factor)[id]);
        else if (w->dtype == DT_F4E2M1)
            out[k] = f4e2m1_to_f32(c >> shift & 15) * f8e8m0_to_f32(((const uint8_t *)w->scale)[at]);
        else
            out[k] = quant_code(w->dtype, plain_code(order, w->dtype, c)) * ((const float *)w->scale)[at];
    }
}

static void embed_piece(void *arg, uint32_t i, uint32_t thread)
{
    (void)thread;
    struct embed_job        *j = arg;
    const struct dev_weight *w = j->w;
    uint32_t                 k = w->k, id = j->id[i], lane = id % GEMM_PANEL, shift;
    float                   *out = j->out + (size_t)i * k;
    CHECK(id < w->n);
    if (dev_weight_is_quant(w)) {
        embed_codes(w, id, out);
        return;
    }
    const char     *from = gemm_panel(w, id / GEMM_PANEL);
    enum gemm_order order = gemm_of(w)->order;
    if (w->dtype == DT_BF16)
        for (uint32_t p = 0; p < k; p++)
            out[p] = bf16_to_f32(((const bf16 *)(const void *)from)[gemm_at(order, DT_BF16, p, lane, &shift)]);
    else
        for (uint32_t p = 0; p < k; p++) out[p] = elem_load(from, w->dtype, gemm_at(order, w->dtype, p, lane, &shift));
}

void cpu_embed(struct device *d, void *out, const uint32_t *id, const struct dev_weight *w, uint32_t n)
{
    struct embed_job j = { out, id, w };
    team_run(cpu_of(d)->team, n, (uint64_t)n * w->k * 4, embed_piece, &j);
}

/* ---------------------------------------------------------------- products
 * All rows pass by four panels, then by the next four: while the first rows pass, the weights come from memory, as four
 * streams side by side; for the others they lie in the second cache. The last panel may be wider than out: it goes
 * through a buffer. */
enum { MUL_LAST_ROWS = 24 };

/* more than eight: a part of the product p, by where it lies and how large it is; both callers differ in all of it. */
static void mul_whole_panels(const struct cpu_mul *p, float *out, const char *x, const float *bias, uint32_t m,
                             uint32_t panel, uint32_t n_panel, uint32_t n_col, size_t ldo)
{
    struct gemm_scratch s = { cpu_scratch(p->d, p->thread), p->d->scratch_bytes };
    if (bias)
        for (uint32_t r = 0; r < m; r++) memcpy(out + r * ldo, bias, n_col * sizeof *bias);
    for (uint32_t i = 0, cols; i < n_panel; i += cols) {
        cols = n_panel - i < GEMM_COLS ? n_panel - i : GEMM_COLS;
        gemm_of(p->w)->mul(p->d->isa->v, out + i * GEMM_PANEL, ldo, x, p->x_stride, p->w, panel + i, cols, m,
                           bias != NULL, &s);
    }
}

void cpu_mul_panels(const struct cpu_mul *p, uint32_t row, uint32_t m, uint32_t panel0, uint32_t n_panel)
{
    uint32_t     end = panel0 + n_panel, whole = end * GEMM_PANEL > p->w->n ? n_panel - 1 : n_panel;
    float       *out = p->out + row * p->ldo + panel0 * GEMM_PANEL;
    const char  *x = (const char *)p->x + row * p->x_stride;
    const float *bias = p->bias ? p->bias + panel0 * GEMM_PANEL : NULL;
    if (whole) mul_whole_panels(p, out, x, bias, m, panel0, whole, whole * GEMM_PANEL, p->ldo);
    if (whole == n_panel) return;
    uint32_t n_col = p->w->n - (end - 1) * GEMM_PANEL;
    float    last[MUL_LAST_ROWS * GEMM_PANEL];
    out += whole * GEMM_PANEL;
    if (bias) bias += whole * GEMM_PANEL;
    for (uint32_t r = 0; r < m; r += MUL_LAST_ROWS) {
        uint32_t rows = m - r < MUL_LAST_ROWS ? m - r : MUL_LAST_ROWS;
        mul_whole_panels(p, last, x + r * p->x_stride, bias, rows, end - 1, 1, n_col, GEMM_PANEL);
        for (uint32_t i = 0; i < rows; i++) memcpy(out + (r + i) * p->ldo, last + i * GEMM_PANEL, n_col * sizeof *last);
    }
}

struct linear_job {
    struct cpu_mul mul;                    /* thread: set by the piece */
    const float   *x;                      /* floats, to be prepared */
    uint32_t       m, rows, panels, n_col; /* rows and panels of a piece; pieces side by side */
};

static void prepare_piece(void *arg, uint32_t row, uint32_t thread)
{
    (void)thread;
    struct linear_job       *j = arg;
    const struct dev_weight *w = j->mul.w;
    union {
        const void *in;
        char       *out;
    } prepared = { .in = j->mul.x };
    gemm_of(w)->prepare(prepared.out + row * j->mul.x_stride, j->x + (size_t)row * w->k, w);
}

static void linear_piece(void *arg, uint32_t piece, uint32_t thread)
{
    struct linear_job *j = arg;
    struct cpu_mul     mul = j->mul;
    uint32_t row = piece / j->n_col * j->rows, panel = piece % j->n_col * j->panels, n_panel = gemm_n_panel(mul.w->n);
    mul.thread = thread;
    cpu_mul_panels(&mul, row, j->m - row < j->rows ? j->m - row : j->rows, panel,
                   n_panel - panel < j->panels ? n_panel - panel : j->panels);
}

static void linear_rows(struct cpu_dev *c, struct linear_job *j)
{
    enum { ROWS = 96, PIECE_COST = 8000 }; /* a piece: some microseconds, and rows that stay in the second cache */
    enum { READ_ROWS = 4, RUN_BYTES = 256 << 10 };
    const struct dev_weight *w = j->mul.w;
    uint32_t                 n_part = (j->m + ROWS - 1) / ROWS;
    j->rows = (j->m + n_part - 1) / n_part;           /* as even as they come */
    uint64_t four = (uint64_t)j->rows * w->k * 4 + 1; /* cycles of four panels */
    uint32_t n_four = (gemm_n_panel(w->n) + 3) / 4, fours = (uint32_t)(PIECE_COST / four);
    if (fours < 1) fours = 1;
    if (j->rows <= READ_ROWS) { /* memory is waited for: long runs of it, but pieces enough for all */
        uint32_t most = n_four / (2 * team_n_thread(c->team)),
                 run = (uint32_t)(RUN_BYTES / (4 * gemm_panel_bytes(w->dtype, w->k)));
        if (run > most) run = most;
        if (fours < run) fours = run;
    }
    j->panels = 4 * fours;
    j->n_col = (n_four + fours - 1) / fours;
    if (gemm_of(w)->prepare) team_run(c->team, j->m, (uint64_t)j->m * w->k / 4, prepare_piece, j);
    team_run(c->team, j->n_col * n_part, four * n_four * n_part, linear_piece, j);
}

void cpu_linear(struct device *d, void *out, const void *x, const struct dev_weight *w, const float *bias, uint32_t m)
{
    struct cpu_dev *c = cpu_of(d);
    size_t          row = gemm_of(w)->prepare ? gemm_of(w)->row_bytes(w) : 0;
    uint32_t        most = m;
    if (row) {
        CHECK(row <= c->shared_bytes);
        if (most > c->shared_bytes / row) most = (uint32_t)(c->shared_bytes / row);
    }
    for (uint32_t r = 0, n; r < m; r += n) {
        n = m - r < most ? m - r : most;
        struct linear_job j = { .x = (const float *)x + (size_t)r * w->k, .m = n };
        j.mul = (struct cpu_mul){ .d = c,
                                  .out = (float *)out + (size_t)r * w->n,
                                  .ldo = w->n,
                                  .x = row ? (const void *)c->shared : (const void *)j.x,
                                  .x_stride = row ? row : w->k * sizeof(float),
                                  .w = w,
                                  .bias = bias };
        linear_rows(c, &j);
    }
}

void cpu_logits(struct device *d, float *out, const void *x, const struct dev_weight *w, uint32_t m)
{
    cpu_linear(d, out, x, w, NULL, m);
}
