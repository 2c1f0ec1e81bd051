/* gemm: weights in panels, embeddings out of them, products with them. */
#include "base/log.h"
#include "kernels/cpu/cpu.h"

uint64_t cpu_weight_bytes(enum dtype t, uint32_t n, uint32_t k)
{
    return ((uint64_t)cpu_n_panel(n) * CPU_PANEL * k * dtype_bytes(t) + 63) / 64 * 64;
}

enum status cpu_weight_alloc(struct device *d, enum dtype t, uint32_t n, uint32_t k, struct dev_weight *w_out)
{
    struct dev_weight w = { .dtype = t, .n = n, .k = k, .bytes = cpu_weight_bytes(t, n, k) };
    if (!elem_is_float(t)) {
        LOG_ERROR("dev: the cpu device has no weights of type %s", dtype_name(t));
        return ST_CONFIG;
    }
    enum status st = host_alloc(d, w.bytes, &w.data); /* fresh pages are zero: so are the columns behind n */
    if (st == ST_OK) *w_out = w;
    return st;
}

struct set_job {
    struct cpu_dev    *d;
    struct dev_weight *w;
    const char        *src;
    size_t             src_stride;
    enum dtype         src_t;
    uint32_t           row0, n_row;
};

/* A whole panel: its 16 rows some columns at a time, through floats, which hold every type exactly. */
static void set_panel(const struct set_job *j, const char *src, size_t to)
{
    enum { PART = 256 };
    /* Not the device's scratch, which belongs to its team. The source may lie at any address: in rows it is aligned. */
    _Alignas(64) char  rows[CPU_PANEL * PART * sizeof(float)];
    _Alignas(64) float packed[CPU_PANEL * PART];
    size_t             bytes = dtype_bytes(j->src_t);
    const void        *row[CPU_PANEL];
    for (uint32_t i = 0, n; i < j->w->k; i += n) {
        n = j->w->k - i < PART ? j->w->k - i : PART;
        for (uint32_t r = 0; r < CPU_PANEL; r++)
            row[r] = memcpy(rows + r * PART * sizeof(float), src + r * j->src_stride + i * bytes, n * bytes);
        j->d->v->pack_k(packed, row, j->src_t, n);
        j->d->v->store((char *)j->w->data + (to + (size_t)i * CPU_PANEL) * dtype_bytes(j->w->dtype), j->w->dtype, packed, n * CPU_PANEL);
    }
}

static void set_piece(const struct set_job *j, uint32_t piece)
{
    uint32_t k = j->w->k, panel = j->row0 / CPU_PANEL + piece;
    uint32_t begin = panel * CPU_PANEL > j->row0 ? panel * CPU_PANEL : j->row0;
    uint32_t end = (panel + 1) * CPU_PANEL < j->row0 + j->n_row ? (panel + 1) * CPU_PANEL : j->row0 + j->n_row;
    size_t   to = (size_t)panel * CPU_PANEL * k;
    if (end - begin == CPU_PANEL) {
        set_panel(j, j->src + (begin - j->row0) * j->src_stride, to);
        return;
    }
    for (uint32_t r = begin; r < end; r++)
        for (uint32_t i = 0; i < k; i++)
            elem_store(j->w->data, j->w->dtype, to + (size_t)i * CPU_PANEL + r % CPU_PANEL,
                       elem_load(j->src + (r - j->row0) * j->src_stride, j->src_t, i));
}

void cpu_weight_set(struct device *d, struct dev_weight *w, uint32_t row0, uint32_t n_row, const void *src, size_t src_stride,
                    enum dtype src_t)
{
    CHECK(row0 <= w->n && n_row <= w->n - row0);
    CHECK(elem_is_float(src_t));
    if (n_row == 0) return;
    struct set_job j = { cpu_of(d), w, src, src_stride, src_t, row0, n_row };
    uint32_t       n_panel = (row0 + n_row - 1) / CPU_PANEL - row0 / CPU_PANEL + 1;
    /* Not by the team, which has one caller: the readers of the checkpoint come side by side. */
    for (uint32_t i = 0; i < n_panel; i++) set_piece(&j, i);
}

struct embed_job {
    float                   *out;
    const uint32_t          *id;
    const struct dev_weight *w;
};

static void embed_piece(void *arg, uint32_t i, uint32_t thread)
{
    (void)thread;
    struct embed_job *j = arg;
    uint32_t          k = j->w->k, id = j->id[i];
    float            *out = j->out + (size_t)i * k;
    CHECK(id < j->w->n);
    size_t at = (size_t)(id / CPU_PANEL) * CPU_PANEL * k + id % CPU_PANEL;
    if (j->w->dtype == DT_BF16)
        for (uint32_t p = 0; p < k; p++) out[p] = bf16_to_f32(((const bf16 *)j->w->data)[at + (size_t)p * CPU_PANEL]);
    else
        for (uint32_t p = 0; p < k; p++) out[p] = elem_load(j->w->data, j->w->dtype, at + (size_t)p * CPU_PANEL);
}

void cpu_embed(struct device *d, void *out, const uint32_t *id, const struct dev_weight *w, uint32_t n)
{
    struct embed_job j = { out, id, w };
    team_run(cpu_of(d)->team, n, (uint64_t)n * w->k * 4, embed_piece, &j);
}

/* All rows pass by four panels, then by the next four: while the first rows pass, the weights come from memory, as four
 * streams side by side; for the others they lie in the second cache. Measured: any further blocking, of k or of the rows,
 * costs more than it gives. The last panel may be wider than out: it goes through a buffer. */
enum { MUL_PANELS = 4, MUL_LAST_ROWS = 24 };

static void mul_whole_panels(const struct simd *v, float *out, size_t ldo, const float *x, size_t ldx, const struct dev_weight *w,
                             const float *bias, uint32_t m, uint32_t panel0, uint32_t n_panel, uint32_t n_col)
{
    size_t      w_col = (size_t)CPU_PANEL * w->k, bytes = dtype_bytes(w->dtype);
    const char *data = (const char *)w->data + panel0 * w_col * bytes;
    if (bias)
        for (uint32_t r = 0; r < m; r++) memcpy(out + r * ldo, bias, n_col * sizeof *bias);
    for (uint32_t p = 0, cols; p < n_panel; p += cols) {
        cols = n_panel - p < MUL_PANELS ? n_panel - p : MUL_PANELS;
        v->mul[w->dtype](out + p * CPU_PANEL, ldo, x, ldx, data + p * w_col * bytes, w_col, CPU_PANEL, w->k, m, cols, bias);
    }
}

void cpu_mul_panels(const struct simd *v, float *out, size_t ldo, const float *x, size_t ldx, const struct dev_weight *w, const float *bias,
                    uint32_t m, uint32_t panel0, uint32_t n_panel)
{
    uint32_t end = panel0 + n_panel, whole = end * CPU_PANEL > w->n ? n_panel - 1 : n_panel;
    out += panel0 * CPU_PANEL;
    if (bias) bias += panel0 * CPU_PANEL;
    if (whole) mul_whole_panels(v, out, ldo, x, ldx, w, bias, m, panel0, whole, whole * CPU_PANEL);
    if (whole == n_panel) return;
    uint32_t n_col = w->n - (end - 1) * CPU_PANEL;
    float    last[MUL_LAST_ROWS * CPU_PANEL];
    out += whole * CPU_PANEL;
    if (bias) bias += whole * CPU_PANEL;
    for (uint32_t r = 0; r < m; r += MUL_LAST_ROWS) {
        uint32_t rows = m - r < MUL_LAST_ROWS ? m - r : MUL_LAST_ROWS;
        mul_whole_panels(v, last, CPU_PANEL, x + r * ldx, ldx, w, bias, rows, end - 1, 1, n_col);
        for (uint32_t i = 0; i < rows; i++) memcpy(out + (r + i) * ldo, last + i * CPU_PANEL, n_col * sizeof *last);
    }
}

struct linear_job {
    const struct simd       *v;
    float                   *out;
    const float             *x;
    const struct dev_weight *w;
    const float             *bias;
    uint32_t                 m, rows, panels, n_col; /* rows and panels of a piece; pieces side by side */
};

static void linear_piece(void *arg, uint32_t piece, uint32_t thread)
{
    (void)thread;
    struct linear_job *j = arg;
    uint32_t           row = piece / j->n_col * j->rows, panel = piece % j->n_col * j->panels, n_panel = cpu_n_panel(j->w->n);
    cpu_mul_panels(j->v, j->out + (size_t)row * j->w->n, j->w->n, j->x + (size_t)row * j->w->k, j->w->k, j->w, j->bias,
                   j->m - row < j->rows ? j->m - row : j->rows, panel, n_panel - panel < j->panels ? n_panel - panel : j->panels);
}

void cpu_linear(struct device *d, void *out, const void *x, const struct dev_weight *w, const float *bias, uint32_t m)
{
    enum { ROWS = 96, PIECE_COST = 8000 }; /* a piece: some microseconds, and rows that stay in the second cache */
    struct cpu_dev   *c = cpu_of(d);
    struct linear_job j = { .v = c->v, .out = out, .x = x, .w = w, .bias = bias, .m = m, .rows = m };
    if (m == 0) return;
    uint32_t n_part = (m + ROWS - 1) / ROWS;
    j.rows = (m + n_part - 1) / n_part;              /* as even as they come */
    uint64_t four = (uint64_t)j.rows * w->k * 4 + 1; /* cycles of four panels */
    uint32_t n_four = (cpu_n_panel(w->n) + 3) / 4, fours = (uint32_t)(PIECE_COST / four);
    if (fours < 1) fours = 1;
    j.panels = 4 * fours;
    j.n_col = (n_four + fours - 1) / fours;
    team_run(c->team, j.n_col * n_part, four * n_four * n_part, linear_piece, &j);
}

void cpu_logits(struct device *d, float *out, const void *x, const struct dev_weight *w, uint32_t m) { cpu_linear(d, out, x, w, NULL, m); }
