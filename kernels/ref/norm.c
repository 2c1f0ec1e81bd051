#include "kernels/ref/ref.h"
#include <math.h>
#include <string.h>

/* out = x / sqrt(mean(x^2) + eps) * w */
void ref_rmsnorm(struct device *d, void *out, const void *x, const float *w, uint32_t n, uint32_t dim, float eps)
{
    (void)d;
    for (uint32_t i = 0; i < n; i++) {
        const float *a = (const float *)x + (size_t)i * dim;
        float       *y = (float *)out + (size_t)i * dim;
        double       sum = 0;
        for (uint32_t j = 0; j < dim; j++) sum += (double)a[j] * (double)a[j];
        double scale = 1.0 / sqrt(sum / dim + (double)eps);
        for (uint32_t j = 0; j < dim; j++) y[j] = (float)((double)a[j] * scale * (double)w[j]);
    }
}

void ref_add_rmsnorm(struct device *d, void *out, void *x, const void *delta, const float *w, uint32_t n, uint32_t dim,
                     float eps)
{
    float       *a = x;
    const float *b = delta;
    for (size_t i = 0; i < (size_t)n * dim; i++) a[i] += b[i];
    if (w)
        ref_rmsnorm(d, out, x, w, n, dim, eps);
    else
        memcpy(out, x, (size_t)n * dim * sizeof *a);
}

void ref_layernorm(struct device *d, void *out, const void *x, const float *w, const float *bias, uint32_t n,
                   uint32_t dim, float eps)
{
    (void)d;
    for (uint32_t i = 0; i < n; i++) {
        const float *a = (const float *)x + (size_t)i * dim;
        float       *y = (float *)out + (size_t)i * dim;
        double       sum = 0, squares = 0;
        for (uint32_t j = 0; j < dim; j++) sum += (double)a[j];
        double mean = sum / dim;
        for (uint32_t j = 0; j < dim; j++) squares += ((double)a[j] - mean) * ((double)a[j] - mean);
        double scale = 1.0 / sqrt(squares / dim + (double)eps);
        for (uint32_t j = 0; j < dim; j++)
            y[j] = (float)(((double)a[j] - mean) * scale * (double)w[j] + (bias ? (double)bias[j] : 0));
    }
}
