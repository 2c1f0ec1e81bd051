/* codes: weights as codes on the cuda device: which there are, how they lie, and how they get there.   Private to
 * kernels/. Thread: any. No CUDA in it: a plan asks for sizes where no GPU is.
 *
 * A row of codes is CODES_LINE bytes for each `codes_unit` inputs, zeros behind the last. Codes are multiplied in steps
 * of 32 inputs, of which a thread has 8 neighbours: the inputs 8 t .. + 7 of every step belong to number t of four
 * threads. The line has 16 bytes for each of the four, the thread's 8 codes of each step of the unit one after another:
 *   4 bits: a word; bits 4 (i / 2) + 16 (i % 2) are code i, so that pairs fall out of it by a shift and a mask
 *   8 bits: two words of four codes i .. + 3; byte (i / 2) + 2 (i % 2) is code i, I8 plus 128
 * Behind the rows of all codes lie records, a word of each group of each row: the scale, F32; of I4 the scale, F16, in
 * the lower half, and in the upper one what its zero is subtracted by (codes.c). Of F4E2M1 a record is a byte, the
 * scale's own (MXFP4, which experts alone have); with factors (NVFP4) the two of a step, the first one low, and behind
 * all records follow the factors of the rows, F32. */
#pragma once
#include "kernels/quant.h"

enum { CODES_LINE = 64, CODES_STEP = 32, CODES_ALIGN = 256 };

/* Formats that the device multiplies: any group, activations in 16 bits. */
static inline bool codes_ok(const struct dev_quant *q)
{
    return q->code == DT_I4 || q->code == DT_I8 || q->code == DT_F8E4M3 || q->code == DT_F4E2M1;
}
static inline bool codes_of_4_bits(enum dtype code) { return code == DT_I4 || code == DT_F4E2M1; }
/* Inputs of a line; bytes of a group's record, and of a row of k codes. */
static inline uint32_t codes_unit(enum dtype code) { return codes_of_4_bits(code) ? 2 * CODES_LINE : CODES_LINE; }
static inline uint32_t codes_record_bytes(const struct dev_quant *q)
{
    if (quant_has_factor(q)) return sizeof(uint16_t);
    return q->code == DT_F4E2M1 ? sizeof(uint8_t) : sizeof(uint32_t);
}
/* Records of a row: of each group, or of each step. */
static inline uint32_t codes_n_record(const struct dev_quant *q, uint32_t k)
{
    return quant_has_factor(q) ? (k + CODES_STEP - 1) / CODES_STEP : quant_n_group(q, k);
}
static inline uint64_t codes_row_bytes(enum dtype code, uint32_t k)
{
    return ((uint64_t)k + codes_unit(code) - 1) / codes_unit(code) * CODES_LINE;
}
/* Bytes filled up so that what follows is aligned. */
static inline uint64_t codes_up(uint64_t bytes) { return (bytes + CODES_ALIGN - 1) / CODES_ALIGN * CODES_ALIGN; }
/* Where the records begin, and the factors behind them; bytes of all. */
static inline uint64_t codes_data_bytes(const struct dev_quant *q, uint32_t n, uint32_t k)
{
    return codes_up(n * codes_row_bytes(q->code, k));
}
static inline uint64_t codes_factor_at(const struct dev_quant *q, uint32_t n, uint32_t k)
{
    return codes_data_bytes(q, n, k) + codes_up((uint64_t)n * codes_n_record(q, k) * codes_record_bytes(q));
}
static inline uint64_t codes_bytes(const struct dev_quant *q, uint32_t n, uint32_t k)
{
    if (!codes_ok(q)) return 0;
    return codes_factor_at(q, n, k) + (quant_has_factor(q) ? codes_up((uint64_t)n * sizeof(float)) : 0);
}

#ifdef __cplusplus
extern "C" {
#endif
struct cuda_dev;
/* As in struct dev_ops and struct dev_impl: codes.c; mlp.cu: */
uint64_t    cuda_quant_bytes(const struct dev_quant *q, uint32_t n, uint32_t k);
enum status cuda_quant_alloc(struct device *d, const struct dev_quant *q, uint32_t n, uint32_t k,
                             struct dev_weight *w_out);
void cuda_quant_set(struct device *d, struct dev_weight *w, uint32_t row0, uint32_t n_row, const struct dev_codes *c);
/* embed_codes.cu: op embed over such a matrix. */
void cuda_embed_codes(struct device *d, void *out, const uint32_t *id, const struct dev_weight *w, uint32_t n);
void cuda_columns(struct device *d, void *out, const void *x, const uint32_t *column, uint32_t n, uint32_t k);
/* weight_set of such a matrix. */
void cuda_quantise(struct device *d, struct dev_weight *w, uint32_t row0, uint32_t n_row, const void *src,
                   size_t src_stride, enum dtype src_t);
/* load.c: sends `bytes`, at most CUDA_LOAD_BYTES, which fill(out, from) writes to host memory first. */
enum { CUDA_LOAD_BYTES = 4 << 20 }; /* far above what it costs to enqueue a copy */
void cuda_load_send(struct cuda_dev *d, void *dst, size_t bytes, void (*fill)(void *out, const void *from),
                    const void *from);
#ifdef __cplusplus
}
#endif
