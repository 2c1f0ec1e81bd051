#include "kernels/ref/ref.h"
#include <stdlib.h>
#include <string.h>

enum { REF_K_MAX = 1 << 16 };

/* out[n, k] = w[id[n], k] */
void ref_embed(struct device *d, void *out, const uint32_t *id, const struct dev_weight *w, uint32_t n)
{
    (void)d;
    float *y = out;
    for (uint32_t i = 0; i < n; i++) {
        CHECK(id[i] < w->n);
        ref_weight_row(w, id[i], y + (size_t)i * w->k, 1);
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

void ref_tile(const struct dev_weight *w, uint32_t row, uint32_t n, float *tile)
{
    CHECK(n <= REF_TILE);
    for (uint32_t r = 0; r < n; r++) ref_weight_row(w, row + r, tile + r, REF_TILE);
    for (uint32_t r = n; r < REF_TILE; r++)
        for (uint32_t p = 0; p < w->k; p++) tile[(size_t)p * REF_TILE + r] = 0;
}

void ref_tile_dot(const float *x, const float *tile, uint32_t k, double sum[REF_TILE])
{
    double s[REF_TILE] = { 0 };
    for (uint32_t p = 0; p < k; p++)
        for (uint32_t r = 0; r < REF_TILE; r++) s[r] += (double)x[p] * (double)tile[(size_t)p * REF_TILE + r];
    memcpy(sum, s, sizeof s);
}

void ref_dots(const float *x, const struct dev_weight *w, uint32_t row, uint32_t n, double *out)
{
    float *tile = malloc((size_t)w->k * REF_TILE * sizeof *tile);
    double sum[REF_TILE];
    CHECK(tile);
    for (uint32_t j = 0; j < n; j += REF_TILE) {
        uint32_t n_here = n - j < REF_TILE ? n - j : REF_TILE;
        ref_tile(w, row + j, n_here, tile);
        ref_tile_dot(x, tile, w->k, sum);
        memcpy(out + j, sum, n_here * sizeof *sum);
    }
    free(tile);
}

/* Each row of x, rounded as the format says. malloc'd, [m][k]; NULL: the format leaves x as it is. */
static float *acts_of(const float *x, const struct dev_weight *w, uint32_t m)
{
    float *rounded = w->q.act8 ? malloc((size_t)m * w->k * sizeof *rounded + 1) : NULL;
    CHECK(rounded || !w->q.act8);
    for (uint32_t i = 0; rounded && i < m; i++) ref_act(x + (size_t)i * w->k, w, rounded + (size_t)i * w->k);
    return rounded;
}

/* out[m, n] = x[m, k] * w[n, k]^T + bias[n] */
void ref_linear(struct device *d, void *out, const void *x, const struct dev_weight *w, const float *bias, uint32_t m)
{
    (void)d;
    float       *y = out, *tile = malloc((size_t)w->k * REF_TILE * sizeof *tile), *rounded = acts_of(x, w, m);
    const float *a = rounded ? rounded : x;
    double       sum[REF_TILE];
    CHECK(tile);
    for (uint32_t j = 0; j < w->n; j += REF_TILE) {
        uint32_t n_here = w->n - j < REF_TILE ? w->n - j : REF_TILE;
        ref_tile(w, j, n_here, tile);
        for (uint32_t i = 0; i < m; i++) {
            ref_tile_dot(a + (size_t)i * w->k, tile, w->k, sum);
            for (uint32_t r = 0; r < n_here; r++)
                y[(size_t)i * w->n + j + r] = (float)((bias ? (double)bias[j + r] : 0.0) + sum[r]);
        }
    }
    free(tile);
    free(rounded);
}

void ref_logits(struct device *d, float *out, const void *x, const struct dev_weight *w, uint32_t m)
{
    ref_linear(d, out, x, w, NULL, m);
}
