#include "kernels/ref/ref.h"
#include <math.h>

static float ref_gate(enum op_act act, float gate)
{
    double x = (double)gate;
    switch (act) {
    case OP_GELU: return (float)(0.5 * x * (1 + erf(x / sqrt(2))));
    case OP_GELU_TANH: return (float)(0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))));
    case OP_QUICK_GELU: return (float)(x / (1 + exp(-1.702 * x)));
    case OP_RELU: return x > 0 || isnan(x) ? gate : 0;
    case OP_RELU2: return x > 0 || isnan(x) ? gate * gate : 0;
    case OP_SILU:
    case OP_CLAMPED:
    case OP_ACTS: break;
    }
    return (float)(x / (1.0 + exp(-x)));
}

/* NaN stays in both. */
float ref_gated(enum op_act act, float gate, float up)
{
    if (act != OP_CLAMPED) return ref_gate(act, gate) * up;
    if (gate > 7) gate = 7;
    if (up > 7) up = 7;
    if (up < -7) up = -7;
    return (float)(((double)up + 1) * ((double)gate / (1 + exp(-1.702 * (double)gate))));
}

double ref_soft_cap(double x, float cap) { return cap != 0 ? (double)cap * tanh(x / (double)cap) : x; }

/* gate_up [n, 2 * inter] -> out [n, inter] */
void ref_glu(struct device *d, void *out, const void *gate_up, uint32_t n, uint32_t inter, enum op_act act)
{
    (void)d;
    for (uint32_t i = 0; i < n; i++) {
        const float *gate = (const float *)gate_up + (size_t)i * 2 * inter, *up = gate + inter;
        for (uint32_t j = 0; j < inter; j++) ((float *)out)[(size_t)i * inter + j] = ref_gated(act, gate[j], up[j]);
    }
}

void ref_ungated(struct device *d, void *x, size_t n, enum op_act act)
{
    float *a = x;
    (void)d;
    for (size_t i = 0; i < n; i++) a[i] = ref_gate(act, a[i]);
}

void ref_act_mul(struct device *d, void *x, const void *y, size_t y_stride, const uint32_t *row, uint32_t n,
                 uint32_t dim, enum op_act act)
{
    (void)d;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t     from = row ? row[i] : i;
        float       *a = (float *)x + (size_t)i * dim;
        const float *b = (const float *)y + from * y_stride;
        for (uint32_t j = 0; j < dim; j++) a[j] = from == UINT32_MAX ? 0 : ref_gated(act, a[j], b[j]);
    }
}

void ref_scale(struct device *d, void *x, size_t n, float by)
{
    (void)d;
    for (size_t i = 0; i < n; i++) ((float *)x)[i] *= by;
}

void ref_add_gated(struct device *d, void *x, const void *y, const void *gate, uint32_t n, uint32_t dim)
{
    (void)d;
    for (uint32_t i = 0; i < n; i++) {
        double weight = gate ? 1 / (1 + exp(-(double)((const float *)gate)[i])) : 1;
        for (size_t j = (size_t)i * dim; j < (size_t)(i + 1) * dim; j++)
            ((float *)x)[j] = (float)((double)((float *)x)[j] + weight * (double)((const float *)y)[j]);
    }
}

void ref_cap(struct device *d, float *x, size_t n, float by, float cap)
{
    (void)d;
    for (size_t i = 0; i < n; i++) x[i] = (float)ref_soft_cap((double)x[i] * (double)by, cap);
}
