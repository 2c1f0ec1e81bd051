/* act8: activations as whole numbers of 8 bits with one scale per row (w8a8).   Private to kernels/cpu/. */
#pragma once
#include "kernels/cpu/gemm.h"
#include <string.h>

/* Rows for products of int8: codes, padded with zeros; their sum over each group; their scale. */
static inline size_t int8_row_bytes(const struct dev_weight *w)
{
    return (size_t)gemm_round(w->k, 64) + gemm_round((quant_n_group(&w->q, w->k) + 1) * 4, 64);
}
static inline void int8_row_prepare(void *row, const float *x, const struct dev_weight *w)
{
    int8_t  *code = row;
    char    *sums = (char *)row + gemm_round(w->k, 64);
    uint32_t group = w->q.group ? w->q.group : w->k;
    float    scale = quant_act(x, w->k, code);
    memset(code + w->k, 0, gemm_round(w->k, 64) - w->k);
    for (uint32_t k = 0; k < w->k; k += group, sums += 4) {
        int32_t  sum = 0;
        uint32_t n = w->k - k < group ? w->k - k : group;
        for (uint32_t i = 0; i < n; i++) sum += code[k + i];
        memcpy(sums, &sum, 4);
    }
    memcpy(sums, &scale, 4);
}
