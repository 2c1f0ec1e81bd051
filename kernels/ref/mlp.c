#include "kernels/ref/ref.h"
#include <math.h>

float ref_silu(float x) { return (float)((double)x / (1.0 + exp(-(double)x))); }

/* gate_up [n, 2 * inter] -> out [n, inter] */
void ref_swiglu(struct device *d, void *out, const void *gate_up, uint32_t n, uint32_t inter)
{
    (void)d;
    for (uint32_t i = 0; i < n; i++) {
        const float *gate = (const float *)gate_up + (size_t)i * 2 * inter, *up = gate + inter;
        for (uint32_t j = 0; j < inter; j++) ((float *)out)[(size_t)i * inter + j] = ref_silu(gate[j]) * up[j];
    }
}
