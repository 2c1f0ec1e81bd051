#include "kernels/ref/ref.h"

/* out[n, k] = w[id[n], k] */
void ref_embed(struct device *d, void *out, const uint32_t *id, const struct dev_weight *w, uint32_t n)
{
    (void)d;
    float *y = out;
    for (uint32_t i = 0; i < n; i++) {
        CHECK(id[i] < w->n);
        for (uint32_t j = 0; j < w->k; j++) y[(size_t)i * w->k + j] = elem_load(w->data, w->dtype, (size_t)id[i] * w->k + j);
    }
}

/* out[m, n] = x[m, k] * w[n, k]^T + bias[n] */
void ref_linear(struct device *d, void *out, const void *x, const struct dev_weight *w, const float *bias, uint32_t m)
{
    (void)d;
    const float *a = x;
    float       *y = out;
    for (uint32_t i = 0; i < m; i++)
        for (uint32_t j = 0; j < w->n; j++) {
            double sum = bias ? (double)bias[j] : 0.0;
            for (uint32_t p = 0; p < w->k; p++)
                sum += (double)a[(size_t)i * w->k + p] * (double)elem_load(w->data, w->dtype, (size_t)j * w->k + p);
            y[(size_t)i * w->n + j] = (float)sum;
        }
}

void ref_logits(struct device *d, float *out, const void *x, const struct dev_weight *w, uint32_t m) { ref_linear(d, out, x, w, NULL, m); }
