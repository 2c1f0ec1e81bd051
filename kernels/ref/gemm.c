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

enum { TILE = 8 }; /* rows of a matrix side by side: their sums run beside each other */

/* tile [k][TILE]: rows [row, row + n) of w, then zeros. */
static void tile_fill(const struct dev_weight *w, uint32_t row, uint32_t n, float *tile)
{
    for (uint32_t r = 0; r < n; r++) ref_weight_row(w, row + r, tile + r, TILE);
    for (uint32_t r = n; r < TILE; r++)
        for (uint32_t p = 0; p < w->k; p++) tile[(size_t)p * TILE + r] = 0;
}

static void tile_dot(const float *x, const float *tile, uint32_t k, double sum[TILE])
{
    double s[TILE] = { 0 };
    for (uint32_t p = 0; p < k; p++)
        for (uint32_t r = 0; r < TILE; r++) s[r] += (double)x[p] * (double)tile[(size_t)p * TILE + r];
    memcpy(sum, s, sizeof s);
}

void ref_dots(const float *x, uint32_t m, const struct dev_weight *w, double *out)
{
    float *tile = malloc((size_t)w->k * TILE * sizeof *tile);
    double sum[TILE];
    CHECK(tile);
    for (uint32_t j = 0; j < w->n; j += TILE) {
        uint32_t n = w->n - j < TILE ? w->n - j : TILE;
        tile_fill(w, j, n, tile);
        for (uint32_t i = 0; i < m; i++) {
            tile_dot(x + (size_t)i * w->k, tile, w->k, sum);
            memcpy(out + (size_t)i * w->n + j, sum, n * sizeof *sum);
        }
    }
    free(tile);
}

/* Each row of x, rounded as the format says. [m][k], which the caller frees; NULL: the format leaves x as it is. */
static float *acts_of(const float *x, const struct dev_weight *w, uint32_t m)
{
    float *rounded = w->q.act8 ? calloc((size_t)m * w->k + 1, sizeof *rounded) : NULL;
    CHECK(rounded || !w->q.act8);
    for (uint32_t i = 0; rounded && i < m; i++) ref_act(x + (size_t)i * w->k, w, rounded + (size_t)i * w->k);
    return rounded;
}

/* out[m, n] = x[m, k] * w[n, k]^T + bias[n] */
void ref_linear(struct device *d, void *out, const void *x, const struct dev_weight *w, const float *bias, uint32_t m)
{
    (void)d;
    float  *y = out, *rounded = acts_of(x, w, m);
    double *sum = malloc((size_t)m * w->n * sizeof *sum + 1);
    CHECK(sum);
    ref_dots(rounded ? rounded : x, m, w, sum);
    for (size_t i = 0; i < (size_t)m * w->n; i++) y[i] = (float)((bias ? (double)bias[i % w->n] : 0.0) + sum[i]);
    free(sum);
    free(rounded);
}

void ref_logits(struct device *d, float *out, const void *x, const struct dev_weight *w, uint32_t m)
{
    ref_linear(d, out, x, w, NULL, m);
}
