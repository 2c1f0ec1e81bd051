/* quant: weights as codes with scales: the allowed formats, rounding of a row at load, conversion of a code.   Private
 * to kernels/. Every device rounds with these functions, so a checkpoint gives the same codes everywhere.
 * Thread: any, no state. */
#pragma once
#include "kernels/device.h"

enum {
    QUANT_CHUNK = 128
}; /* most inputs whose products are summed before scaling; smaller groups are summed by group */

/* True if the matrix is kept as codes. */
static inline bool dev_weight_is_quant(const struct dev_weight *w) { return w->q.code != DT_F32; }
/* True if a scale is a number of E4M3 times a factor of its output (NVFP4). */
static inline bool quant_has_factor(const struct dev_quant *q) { return q->code == DT_F4E2M1 && q->group == 16; }
/* True if this format exists for a matrix of k inputs. */
bool quant_ok(const struct dev_quant *q, uint32_t k);
/* Logs that a device does not support such weights (q NULL: plain weights). Returns ST_CONFIG. */
enum status            weight_refuse(const char *device, enum dtype t, const struct dev_quant *q);
static inline uint32_t quant_n_group(const struct dev_quant *q, uint32_t k)
{
    return q->group ? (k + q->group - 1) / q->group : 1;
}

/* Rounds one row of k numbers of type t at any address: code [k], scale [n_group]. Rounding is symmetric, without
 * zeros, whatever q->zero says.
 *   I8, F8E4M3: scale = max |w| / 127 or 448.   I4: the number of largest size w becomes code 0: scale = w / -8, as f16.
 *   F4E2M1: scale = the power of two that makes max |w| 4 at least and less than 8; what is above 6 becomes 6. With a
 *   factor: the number of E4M3 next to max |w| / 6 / factor.
 * Codes are rounded to nearest even. Numbers that are not finite count as 0. Returns the factor of the row: the largest
 * number of it / (6 * 448), or 1. */
float quant_row(const struct dev_quant *q, uint32_t k, const void *src, enum dtype t, uint8_t *code, float *scale);
/* The factor of row r. */
static inline float quant_factor(const struct dev_codes *c, uint32_t r)
{
    return c->factor ? c->factor[r * c->factor_stride] : 1.0f;
}
/* For act8: rounds x [k] to code [k] and returns the scale max |x| / 127. If x contains a NaN, the scale is NaN, and so
 * are the row's products. */
float quant_act(const float *x, uint32_t k, int8_t *code);

/* The number of a code, before scale and zero. */
static inline float quant_code(enum dtype t, uint8_t c)
{
    if (t == DT_I8) return (float)(int8_t)c;
    if (t == DT_F4E2M1) return f4e2m1_to_f32(c);
    return t == DT_I4 ? (float)c : f8e4m3_to_f32(c);
}
