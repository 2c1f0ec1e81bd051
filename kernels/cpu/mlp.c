/* mlp: the gate of SwiGLU, and inputs in another order. */
#include "kernels/cpu/cpu.h"

enum { SWIGLU_ROWS = 4 };

struct swiglu_job {
    const struct simd *v;
    float             *out;
    const float       *gate_up;
    uint32_t           n, inter;
};

static void swiglu_piece(void *arg, uint32_t piece, uint32_t thread)
{
    (void)thread;
    struct swiglu_job *j = arg;
    uint32_t           end = (piece + 1) * SWIGLU_ROWS < j->n ? (piece + 1) * SWIGLU_ROWS : j->n;
    for (uint32_t r = piece * SWIGLU_ROWS; r < end; r++) {
        const float *gate = j->gate_up + (size_t)r * 2 * j->inter;
        j->v->silu_mul(j->out + (size_t)r * j->inter, gate, gate + j->inter, j->inter);
    }
}

void cpu_swiglu(struct device *d, void *out, const void *gate_up, uint32_t n, uint32_t inter)
{
    struct swiglu_job j = { cpu_of(d)->v, out, gate_up, n, inter };
    team_run(cpu_of(d)->team, (n + SWIGLU_ROWS - 1) / SWIGLU_ROWS, (uint64_t)n * inter * 3, swiglu_piece, &j);
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
