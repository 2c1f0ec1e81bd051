#include "kernels/ref/ref.h"

enum { REF_K_MAX = 1 << 16 };

/* out[n, k] = w[id[n], k] */
void ref_embed(struct device *d, void *out, const uint32_t *id, const struct dev_weight *w, uint32_t n)
{
    (void)d;
    float *y = out;
    for (uint32_t i = 0; i < n; i++) {
        CHECK(id[i] < w->n);
        for (uint32_t j = 0; j < w->k; j++) y[(size_t)i * w->k + j] = ref_weight(w, id[i], j);
    }
}

const float *ref_act(const float *x, const struct dev_weight *w, float *rounded)
{
    if (!w->q.act8) return x;
    int8_t code[REF_K_MAX];
    CHECK(w->k <= REF_K_MAX);
    float s = quant_act(x, w->k, code);
    for (uint32_t p = 0; p < w->k; p++) rounded[p] = (float)code[p] * s;
    return rounded;
}

double ref_dot(const float *x, const struct dev_weight *w, uint32_t row)
{
    double sum = 0;
    for (uint32_t p = 0; p < w->k; p++) sum += (double)x[p] * (double)ref_weight(w, row, p);
    return sum;
}

/* out[m, n] = x[m, k] * w[n, k]^T + bias[n] */
void ref_linear(struct device *d, void *out, const void *x, const struct dev_weight *w, const float *bias, uint32_t m)
{
    (void)d;
    static _Thread_local float rounded[REF_K_MAX];
    float                     *y = out;
    for (uint32_t i = 0; i < m; i++) {
        const float *a = ref_act((const float *)x + (size_t)i * w->k, w, rounded);
        for (uint32_t j = 0; j < w->n; j++)
            y[(size_t)i * w->n + j] = (float)((bias ? (double)bias[j] : 0.0) + ref_dot(a, w, j));
    }
}

void ref_logits(struct device *d, float *out, const void *x, const struct dev_weight *w, uint32_t m)
{
    ref_linear(d, out, x, w, NULL, m);
}
