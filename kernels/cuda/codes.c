/* codes: matrices of codes on their way to the GPU: bytes of codes and floats of scales become lines and records. */
#include "kernels/cuda/codes.h"
#include "kernels/cuda/gemm.h"
#include "base/check.h"
#include "base/log.h"
#include "kernels/cuda/cuda.h"
#include <stdlib.h>
#include <string.h>

enum { ROUND_ROWS = 64 }; /* rows that are rounded before they are sent */

uint64_t cuda_quant_bytes(const struct dev_quant *q, uint32_t n, uint32_t k) { return codes_bytes(q, n, k); }

/* Activations keep their 16 bits, whatever the format says of them: that is nearer to the numbers it stands for. */
enum status cuda_quant_alloc(struct device *dev, const struct dev_quant *q, uint32_t n, uint32_t k,
                             struct dev_weight *w_out)
{
    if (!quant_ok(q, k) || !codes_ok(q)) return weight_refuse("cuda", q->code, q);
    struct cuda_dev  *d = cuda_of(dev);
    struct dev_weight w = { .dtype = q->code, .n = n, .k = k, .bytes = codes_bytes(q, n, k), .q = *q };
    enum status       st = cuda_take(d, (size_t)w.bytes, &w.data);
    if (st) return st;
    w.q.act8 = false;
    if (w.data) w.scale = (char *)w.data + codes_data_bytes(q, n, k);
    if (w.data && quant_has_factor(q)) w.factor = (char *)w.data + codes_factor_at(q, n, k);
    *w_out = w;
    if (d->arena && (q->code != DT_F4E2M1 || w.factor)) cuda_codes_seen(d, &w);
    return d->lost ? ST_DEVICE : ST_OK;
}

/* ---------------------------------------------------------------- lines */

static void line_4(const uint8_t *code, uint8_t *line)
{
    for (uint32_t t = 0; t < 4; t++)
        for (uint32_t step = 0; step < 4; step++) {
            const uint8_t *c = code + step * CODES_STEP + t * 8;
            uint32_t       word = 0;
            for (uint32_t i = 0; i < 8; i++) word |= (uint32_t)(c[i] & 15) << (i / 2 * 4 + i % 2 * 16);
            memcpy(line + t * 16 + step * 4, &word, sizeof word);
        }
}

static void line_8(const uint8_t *code, uint8_t *line, uint8_t flip)
{
    for (uint32_t t = 0; t < 4; t++)
        for (uint32_t step = 0; step < 2; step++) {
            const uint8_t *c = code + step * CODES_STEP + t * 8;
            uint8_t       *to = line + t * 16 + step * 8;
            for (uint32_t i = 0; i < 8; i++) to[i / 4 * 4 + i % 4 / 2 + i % 2 * 2] = c[i] ^ flip;
        }
}

static void pack_line(enum dtype t, const uint8_t *code, uint8_t *line)
{
    if (codes_of_4_bits(t))
        line_4(code, line);
    else
        line_8(code, line, t == DT_I8 ? 0x80 : 0);
}

static void pack_row(enum dtype t, uint32_t k, const uint8_t *code, uint8_t *line)
{
    uint8_t  last[2 * CODES_LINE] = { 0 };
    uint32_t unit = codes_unit(t), i = 0;
    for (; k - i >= unit; i += unit, line += CODES_LINE) pack_line(t, code + i, line);
    if (i == k) return;
    memcpy(last, code + i, k - i);
    pack_line(t, last, line);
}

/* The zero of a group as the kernels add it to a code: they put the code behind the point of 128 (bf16) or 1024 (f16),
 * where 1 is the last bit, and add - 128 - zero, all of it exact. */
static uint32_t pack_record(const struct dev_weight *w, enum dtype act, float scale, uint8_t zero)
{
    uint32_t bits;
    if (w->dtype == DT_I4) {
        uint32_t minus = act == DT_F16 ? f32_to_f16(-1024.0f - (float)zero) : f32_to_bf16(-128.0f - (float)zero);
        return f32_to_f16(scale) | minus << 16;
    }
    memcpy(&bits, &scale, sizeof bits);
    return bits;
}

/* ---------------------------------------------------------------- to the device */

/* Rows [row, + n) of what quant_set was given. */
struct codes_rows {
    const struct dev_weight *w;
    const struct dev_codes  *c;
    enum dtype               act;
    uint32_t                 row, n;
};

static void fill_lines(void *out, const void *rows)
{
    const struct codes_rows *r = rows;
    size_t                   bytes = codes_row_bytes(r->w->dtype, r->w->k);
    for (uint32_t i = 0; i < r->n; i++)
        pack_row(r->w->dtype, r->w->k, r->c->code + (r->row + i) * r->c->code_stride, (uint8_t *)out + i * bytes);
}

/* Two scales of 16 inputs each in a record. */
static void fill_pairs(void *out, const void *rows)
{
    const struct codes_rows *r = rows;
    uint32_t                 n_group = quant_n_group(&r->w->q, r->w->k);
    uint8_t                 *to = out;
    for (uint32_t i = 0; i < r->n; i++) {
        for (uint32_t g = 0; g < n_group; g++)
            *to++ = f32_to_f8e4m3(r->c->scale[(r->row + i) * r->c->scale_stride + g]);
        if (n_group % 2) *to++ = 0;
    }
}

static void fill_factors(void *out, const void *rows)
{
    const struct codes_rows *r = rows;
    for (uint32_t i = 0; i < r->n; i++) ((float *)out)[i] = quant_factor(r->c, r->row + i);
}

static void fill_records(void *out, const void *rows)
{
    const struct codes_rows *r = rows;
    uint32_t                *to = out, n_group = quant_n_group(&r->w->q, r->w->k);
    uint8_t                 *byte = out;
    for (uint32_t i = 0; i < r->n; i++)
        for (uint32_t g = 0; g < n_group; g++) {
            size_t  at = (r->row + i) * r->c->scale_stride + g;
            uint8_t zero = r->w->q.zero && r->c->zero ? r->c->zero[at] : 8;
            if (r->w->dtype == DT_F4E2M1)
                *byte++ = f32_to_f8e8m0(r->c->scale[at]);
            else
                *to++ = pack_record(r->w, r->act, r->c->scale[at], zero);
        }
}

void cuda_quant_set(struct device *dev, struct dev_weight *w, uint32_t row0, uint32_t n_row, const struct dev_codes *c)
{
    struct cuda_dev *d = cuda_of(dev);
    size_t           line = codes_row_bytes(w->dtype, w->k);
    size_t           record = (size_t)codes_n_record(&w->q, w->k) * codes_record_bytes(&w->q);
    size_t           most = CUDA_LOAD_BYTES / (line > record ? line : record);
    CHECK(row0 <= w->n && n_row <= w->n - row0 && most > 0);
    for (uint32_t r = 0; r < n_row && !d->lost; r += (uint32_t)most) {
        struct codes_rows rows = { w, c, dev->act, r, n_row - r < most ? n_row - r : (uint32_t)most };
        cuda_load_send(d, (char *)w->data + (row0 + r) * line, rows.n * line, fill_lines, &rows);
        cuda_load_send(d, (char *)w->scale + (row0 + r) * record, rows.n * record,
                       w->factor ? fill_pairs : fill_records, &rows);
        if (w->factor) cuda_load_send(d, (float *)w->factor + row0 + r, rows.n * sizeof(float), fill_factors, &rows);
    }
}

void cuda_quantise(struct device *dev, struct dev_weight *w, uint32_t row0, uint32_t n_row, const void *src,
                   size_t src_stride, enum dtype src_t)
{
    uint32_t n_group = quant_n_group(&w->q, w->k);
    uint8_t *code = malloc((size_t)ROUND_ROWS * w->k);
    float   *scale = malloc((size_t)ROUND_ROWS * n_group * sizeof *scale), factor[ROUND_ROWS];
    if (code && scale) {
        for (uint32_t r = 0; r < n_row; r += ROUND_ROWS) {
            uint32_t         n = n_row - r < ROUND_ROWS ? n_row - r : ROUND_ROWS;
            struct dev_codes c = { .code = code,
                                   .code_stride = w->k,
                                   .scale = scale,
                                   .scale_stride = n_group,
                                   .factor = factor,
                                   .factor_stride = 1 };
            for (uint32_t i = 0; i < n; i++)
                factor[i] = quant_row(&w->q, w->k, (const char *)src + (r + i) * src_stride, src_t,
                                      code + (size_t)i * w->k, scale + (size_t)i * n_group);
            cuda_quant_set(dev, w, row0 + r, n, &c);
        }
    } else {
        cuda_ok(cuda_of(dev), cudaErrorMemoryAllocation, "loading weights");
    }
    free(code);
    free(scale);
}
