/* mlp: the gate of a feed-forward, multipliers and soft caps, and inputs in another order. */
#include "kernels/cpu/cpu.h"
#include <math.h>

enum { GLU_ROWS = 4, SCALE_PIECE = 4096, ACT_CHUNK = 256 /* numbers */ };

struct glu_job {
    const struct simd *v;
    float             *out;
    const float       *gate_up;
    uint32_t           n, inter;
    enum op_act        act;
};

static void glu_piece(void *arg, uint32_t piece, uint32_t thread)
{
    (void)thread;
    struct glu_job *j = arg;
    uint32_t        end = (piece + 1) * GLU_ROWS < j->n ? (piece + 1) * GLU_ROWS : j->n;
    for (uint32_t r = piece * GLU_ROWS; r < end; r++) {
        const float *gate = j->gate_up + (size_t)r * 2 * j->inter;
        j->v->act_mul[j->act](j->out + (size_t)r * j->inter, gate, gate + j->inter, j->inter);
    }
}

void cpu_glu(struct device *d, void *out, const void *gate_up, uint32_t n, uint32_t inter, enum op_act act)
{
    struct glu_job j = { cpu_of(d)->v, out, gate_up, n, inter, act };
    team_run(cpu_of(d)->team, (n + GLU_ROWS - 1) / GLU_ROWS, (uint64_t)n * inter * 3, glu_piece, &j);
}

struct act_mul_job {
    const struct simd *v;
    float             *x;
    const float       *y;
    size_t             y_stride;
    const uint32_t    *row;
    uint32_t           dim;
    enum op_act        act;
};

static void act_mul_row(void *arg, uint32_t i, uint32_t thread)
{
    (void)thread;
    const struct act_mul_job *j = arg;
    uint32_t                  from = j->row ? j->row[i] : i;
    float                    *x = j->x + (size_t)i * j->dim;
    if (from == UINT32_MAX)
        memset(x, 0, j->dim * sizeof *x);
    else
        j->v->act_mul[j->act](x, x, j->y + from * j->y_stride, j->dim);
}

void cpu_act_mul(struct device *d, void *x, const void *y, size_t y_stride, const uint32_t *row, uint32_t n,
                 uint32_t dim, enum op_act act)
{
    struct act_mul_job j = { cpu_of(d)->v, x, y, y_stride, row, dim, act };
    team_run(cpu_of(d)->team, n, (uint64_t)n * dim * 3, act_mul_row, &j);
}

struct act_job {
    const struct simd *v;
    float             *x;
    size_t             n;
    enum op_act        act;
};

/* The gate of ones: multiplying by them changes no bit. */
static void act_piece(void *arg, uint32_t piece, uint32_t thread)
{
    (void)thread;
    const struct act_job *j = arg;
    size_t                at = (size_t)piece * SCALE_PIECE;
    size_t                end = j->n - at < SCALE_PIECE ? j->n : at + SCALE_PIECE;
    float                 ones[ACT_CHUNK];
    for (int i = 0; i < ACT_CHUNK; i++) ones[i] = 1;
    for (; at < end; at += ACT_CHUNK) {
        uint32_t n = (uint32_t)(end - at < ACT_CHUNK ? end - at : ACT_CHUNK);
        j->v->act_mul[j->act](j->x + at, j->x + at, ones, n);
    }
}

void cpu_ungated(struct device *d, void *x, size_t n, enum op_act act)
{
    struct act_job j = { cpu_of(d)->v, x, n, act };
    team_run(cpu_of(d)->team, (uint32_t)((n + SCALE_PIECE - 1) / SCALE_PIECE), n * 3, act_piece, &j);
}

struct scale_job {
    const struct simd *v;
    float             *x;
    size_t             n;
    float              by, cap; /* cap 0: none */
};

static void scale_piece(void *arg, uint32_t piece, uint32_t thread)
{
    (void)thread;
    const struct scale_job *j = arg;
    size_t                  at = (size_t)piece * SCALE_PIECE;
    uint32_t                n = (uint32_t)(j->n - at < SCALE_PIECE ? j->n - at : SCALE_PIECE);
    if (j->cap != 0)
        j->v->cap(j->x + at, j->by, j->cap, n);
    else
        j->v->norm(j->x + at, j->x + at, NULL, j->by, n);
}

void cpu_cap(struct device *d, float *x, size_t n, float by, float cap)
{
    struct scale_job j = { cpu_of(d)->v, x, n, by, cap };
    team_run(cpu_of(d)->team, (uint32_t)((n + SCALE_PIECE - 1) / SCALE_PIECE), n / (cap != 0 ? 1 : 4), scale_piece, &j);
}

void cpu_scale(struct device *d, void *x, size_t n, float by) { cpu_cap(d, x, n, by, 0); }

struct gated_job {
    const struct simd *v;
    float             *x;
    const float       *y, *gate;
    uint32_t           dim;
};

static void gated_row(void *arg, uint32_t row, uint32_t thread)
{
    (void)thread;
    const struct gated_job *j = arg;
    float                  *x = j->x + (size_t)row * j->dim;
    const float            *y = j->y + (size_t)row * j->dim;
    if (!j->gate) {
        j->v->add(x, y, j->dim);
        return;
    }
    float part[256], weight = 1 / (1 + expf(-j->gate[row]));
    for (uint32_t at = 0; at < j->dim; at += 256) {
        uint32_t n = j->dim - at < 256 ? j->dim - at : 256;
        j->v->norm(part, y + at, NULL, weight, n);
        j->v->add(x + at, part, n);
    }
}

void cpu_add_gated(struct device *d, void *x, const void *y, const void *gate, uint32_t n, uint32_t dim)
{
    struct gated_job j = { cpu_of(d)->v, x, y, gate, dim };
    team_run(cpu_of(d)->team, n, (uint64_t)n * dim / 2, gated_row, &j);
}

struct columns_job {
    float          *out;
    const float    *x;
    const uint32_t *column;
    uint32_t        k;
};

static void columns_row(void *arg, uint32_t row, uint32_t thread)
{
    (void)thread;
    const struct columns_job *j = arg;
    host_columns(NULL, j->out + (size_t)row * j->k, j->x + (size_t)row * j->k, j->column, 1, j->k);
}

void cpu_columns(struct device *d, void *out, const void *x, const uint32_t *column, uint32_t n, uint32_t k)
{
    struct columns_job j = { out, x, column, k };
    team_run(cpu_of(d)->team, n, (uint64_t)n * k * 2, columns_row, &j);
}
