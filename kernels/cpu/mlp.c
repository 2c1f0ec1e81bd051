/* mlp: the gate of a feed-forward, and inputs in another order. */
#include "kernels/cpu/cpu.h"

enum { GLU_ROWS = 4 };

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
