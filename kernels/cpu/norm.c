/* norm: norms by rows: of the root of the mean square, alone or behind the residual add, and of the deviation. */
#include "kernels/cpu/cpu.h"
#include <math.h>
#include <string.h>

enum { NORM_ROWS = 8 }; /* of a piece */

struct norm_job {
    const struct simd *v;
    float             *out, *x;
    const float       *delta, *w;
    uint32_t           n, dim;
    float              eps;
};

void cpu_norm_row(const struct simd *v, float *out, const float *x, const float *w, uint32_t dim, float eps)
{
    float scale = 1.0f / sqrtf(v->sum_squares(x, dim) / (float)dim + eps);
    v->norm(out, x, w, scale, dim);
}

static void norm_piece(void *arg, uint32_t piece, uint32_t thread)
{
    (void)thread;
    struct norm_job *j = arg;
    uint32_t         end = (piece + 1) * NORM_ROWS < j->n ? (piece + 1) * NORM_ROWS : j->n;
    for (uint32_t r = piece * NORM_ROWS; r < end; r++) {
        float *x = j->x + (size_t)r * j->dim;
        if (j->delta) j->v->add(x, j->delta + (size_t)r * j->dim, j->dim);
        float *out = j->out + (size_t)r * j->dim;
        if (j->w)
            cpu_norm_row(j->v, out, x, j->w, j->dim, j->eps);
        else
            memcpy(out, x, j->dim * sizeof *out);
    }
}

static void norm(struct device *d, struct norm_job j)
{
    j.v = cpu_of(d)->v;
    team_run(cpu_of(d)->team, (j.n + NORM_ROWS - 1) / NORM_ROWS, (uint64_t)j.n * j.dim / 4, norm_piece, &j);
}

void cpu_rmsnorm(struct device *d, void *out, const void *x, const float *w, uint32_t n, uint32_t dim, float eps)
{
    union {
        const void *in;
        float      *x; /* only read: there is no delta */
    } u = { x };
    norm(d, (struct norm_job){ .out = out, .x = u.x, .w = w, .n = n, .dim = dim, .eps = eps });
}

void cpu_add_rmsnorm(struct device *d, void *out, void *x, const void *delta, const float *w, uint32_t n, uint32_t dim,
                     float eps)
{
    norm(d, (struct norm_job){ .out = out, .x = x, .delta = delta, .w = w, .n = n, .dim = dim, .eps = eps });
}

struct layernorm_job {
    const struct simd *v;
    float             *out;
    const float       *x, *w, *bias;
    uint32_t           n, dim;
    float              eps;
};

static void layernorm_piece(void *arg, uint32_t piece, uint32_t thread)
{
    (void)thread;
    const struct layernorm_job *j = arg;
    uint32_t                    end = (piece + 1) * NORM_ROWS < j->n ? (piece + 1) * NORM_ROWS : j->n;
    for (uint32_t r = piece * NORM_ROWS; r < end; r++) {
        const float *x = j->x + (size_t)r * j->dim;
        float       *out = j->out + (size_t)r * j->dim;
        j->v->shift(out, x, j->v->total(x, j->dim) / (float)j->dim, j->dim);
        cpu_norm_row(j->v, out, out, j->w, j->dim, j->eps);
        if (j->bias) j->v->add(out, j->bias, j->dim);
    }
}

void cpu_layernorm(struct device *d, void *out, const void *x, const float *w, const float *bias, uint32_t n,
                   uint32_t dim, float eps)
{
    struct layernorm_job j = { cpu_of(d)->v, out, x, w, bias, n, dim, eps };
    team_run(cpu_of(d)->team, (n + NORM_ROWS - 1) / NORM_ROWS, (uint64_t)n * dim / 2, layernorm_piece, &j);
}
