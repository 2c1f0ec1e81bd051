/* quant: weights as codes with scales: what may be, the rounding of a row at load, and one code as a number.   Private
 * to kernels/. Every device rounds with these functions, so the same checkpoint gives the same codes everywhere.
 * Thread: any, no state. */
#pragma once
#include "kernels/device.h"

enum {
    QUANT_CHUNK = 128
}; /* inputs; products are summed over a group, but never over more than this, before they are scaled */

static inline bool dev_weight_is_quant(const struct dev_weight *w) { return w->q.code != DT_F32; }
/* Is there such a format for a matrix of k inputs? */
bool quant_ok(const struct dev_quant *q, uint32_t k);
/* Logs that a device has no such weights (q NULL: plain ones); ST_CONFIG. */
enum status            weight_refuse(const char *device, enum dtype t, const struct dev_quant *q);
static inline uint32_t quant_n_group(const struct dev_quant *q, uint32_t k)
{
    return q->group ? (k + q->group - 1) / q->group : 1;
}

/* One row of k numbers of type t at any address -> code [k], scale [n_group]; q->zero makes no zeros here (symmetric).
 *   I8, F8E4M3: scale = max |w| / 127 or 448.   I4: the number of largest size becomes code 0: scale = it / -8, as f16.
 * Codes are rounded to nearest even. Numbers that are not finite count as 0. */
void quant_row(const struct dev_quant *q, uint32_t k, const void *src, enum dtype t, uint8_t *code, float *scale);
/* act8: x [k] -> code [k], returns the scale: max |x| / 127. NaN anywhere: the scale is NaN, so the row's products are too. */
float quant_act(const float *x, uint32_t k, int8_t *code);

/* Without scale and zero. */
static inline float quant_code(enum dtype t, uint8_t c)
{
    return t == DT_I8 ? (float)(int8_t)c : t == DT_I4 ? (float)c : f8e4m3_to_f32(c);
}
