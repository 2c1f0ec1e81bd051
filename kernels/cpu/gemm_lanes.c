/* gemm lanes: products as fused multiply-adds of floats, the form that every instruction set has. Codes are turned into
 * floats some inputs at a time, next to the processor; then they are weights like others. */
#include "base/check.h"
#include "kernels/cpu/gemm.h"

static void lanes_plain(const struct simd *v, float *out, size_t ldo, const void *x, size_t x_stride,
                        const struct dev_weight *w, uint32_t panel, uint32_t n_panel, uint32_t n_row, bool add,
                        const struct gemm_scratch *s)
{
    (void)s;
    size_t w_col = gemm_panel_bytes(w->dtype, w->k) / dtype_bytes(w->dtype);
    v->mul[w->dtype](out, ldo, x, x_stride / sizeof(float), gemm_panel(w, panel), w_col, GEMM_PANEL, w->k, n_row,
                     n_panel, add);
}

static void lanes_quant(const struct simd *v, float *out, size_t ldo, const void *x, size_t x_stride,
                        const struct dev_weight *w, uint32_t panel, uint32_t n_panel, uint32_t n_row, bool add,
                        const struct gemm_scratch *s)
{
    float   *t = s->p;
    uint32_t chunk = gemm_chunk(w), n_k;
    size_t   bytes = gemm_panel_bytes(w->dtype, w->k), scale_bytes = gemm_scale_bytes(w->dtype);
    if (n_row <= 4 && chunk > 64) chunk = 64; /* in the first cache: a chain of multiply-adds may be cut anywhere */
    CHECK(s->bytes >= (size_t)GEMM_COLS * chunk * GEMM_PANEL * sizeof *t);
    for (uint32_t k = 0; k < w->k; k += n_k, add = true) {
        n_k = w->k - k < chunk ? w->k - k : chunk;
        for (uint32_t c = 0; c < n_panel; c++) {
            const char *code = gemm_panel(w, panel + c) +
                               (size_t)k * GEMM_PANEL * bytes / ((size_t)gemm_k(w->dtype, w->k) * GEMM_PANEL);
            size_t at = gemm_scale_at(w, panel + c, k);
            v->expand(t + (size_t)c * chunk * GEMM_PANEL, code, w->dtype, (const char *)w->scale + at * scale_bytes,
                      w->zero ? (const f16 *)w->zero + at : NULL,
                      w->factor ? (const float *)w->factor + (size_t)(panel + c) * GEMM_PANEL : NULL,
                      gemm_round(n_k, 2));
        }
        v->mul[DT_F32](out, ldo, (const float *)x + k, x_stride / sizeof(float), t, (size_t)chunk * GEMM_PANEL,
                       GEMM_PANEL, n_k, n_row, n_panel, add);
    }
}

/* Rounded activations as floats: what a unit for integers would multiply with. */
static size_t act8_bytes(const struct dev_weight *w)
{
    return (size_t)gemm_round(w->k, 16) * sizeof(float) + w->k / 64 * 64 + 64;
}
static void act8_prepare(void *row, const float *x, const struct dev_weight *w)
{
    float  *y = row;
    int8_t *code = (int8_t *)(y + gemm_round(w->k, 16));
    float   s = quant_act(x, w->k, code);
    for (uint32_t i = 0; i < w->k; i++) y[i] = (float)code[i] * s;
}

const struct gemm_kind gemm_lanes_plain = { .order = GEMM_LANES, .mul = lanes_plain };
const struct gemm_kind gemm_lanes_quant = { .order = GEMM_LANES, .mul = lanes_quant };
const struct gemm_kind gemm_lanes_act8 = {
    .order = GEMM_LANES, .row_bytes = act8_bytes, .prepare = act8_prepare, .mul = lanes_quant
};
