/* read_quant: matrices that the checkpoint holds as codes, unpacked into rows of a byte per code for the device.
 *   fp8    weight [n, k], weight_scale: one, one per row, or one per block (w = code * scale)
 *   awq    qweight [k, n / 8], qzeros [k / g, n / 8], scales [k / g, n]; a word holds outputs 0 2 4 6 1 3 5 7, low bits first
 *   gptq   qweight [k / 8, n]: inputs, low bits first; qzeros [k / g, n / 8], one less than they mean but in gptq_v2; scales [k / g, n]
 * (vLLM's layers/quantization/awq.py and gptq.py; AutoGPTQ's qlinear.) The words lie across our rows, so they are read whole. */
#include "engine/model/read.h"
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLAB = 64 }; /* rows that are unpacked together */

struct quant_read {
    const struct place_job *job;
    const struct bind      *bind;
    struct ident           *ident; /* or NULL */
    struct model_quant      quant;
    char                   *err;
    size_t                  err_bytes;
    unsigned char          *part[PART_COUNT]; /* a tensor's bytes; NULL: none */
    uint8_t                *code, *zero;      /* [SLAB][k], [SLAB][n_group] */
    float                  *scale;
    uint32_t                n, k, n_group; /* k, n_group: of this rank */
};

static const struct st_tensor *tensor_of(const struct quant_read *r, enum part part)
{
    return bind_get_part(r->bind, r->job->slot, r->job->layer, r->job->expert, part);
}

static enum status read_fail(const struct quant_read *r, enum part part, const char *what, uint32_t row, uint32_t col)
{
    const struct st_tensor *t = tensor_of(r, part);
    snprintf(r->err, r->err_bytes, "%s: tensor %.120s: %s at output %u, input or group %u", r->bind->set->file[t->file].name, t->name, what,
             row, col);
    return ST_CONFIG;
}

static enum status read_part(struct quant_read *r, enum part part)
{
    const struct st_tensor *t = tensor_of(r, part);
    if (!t) return ST_OK;
    if (!(r->part[part] = malloc((size_t)t->bytes + 1))) return ST_NOMEM;
    enum status st = source_read(&r->bind->set->file[t->file], t->offset, r->part[part], (size_t)t->bytes);
    if (!st && r->ident) ident_take(r->ident, t, 0, r->part[part], t->bytes);
    return st;
}

static uint32_t word_at(const unsigned char *p, size_t i)
{
    uint32_t w;
    memcpy(&w, p + 4 * i, 4);
    return w;
}

static float scale_at(const struct quant_read *r, size_t i)
{
    return bind_float(r->part[PART_SCALE], bind_dtype(tensor_of(r, PART_SCALE)->dtype), i);
}

/* Scales and zeros of rows [row, row + n) of the tensor. */
static enum status slab_scales(struct quant_read *r, uint32_t row, uint32_t n)
{
    static const uint8_t awq_place[8] = { 0, 4, 1, 5, 2, 6, 3, 7 };
    uint32_t             group0 = r->quant.q.group ? r->job->src_col / r->quant.q.group : 0;
    size_t               scales = (size_t)tensor_of(r, PART_SCALE)->bytes / dtype_bytes(bind_dtype(tensor_of(r, PART_SCALE)->dtype));
    uint32_t all = r->quant.q.group ? (uint32_t)((tensor_of(r, PART_WEIGHT)->shape[1] + r->quant.q.group - 1) / r->quant.q.group) : 1;
    bool     awq = r->quant.method == QUANT_AWQ;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t g = 0; g < r->n_group; g++) {
            size_t at = (size_t)(group0 + g) * r->n + row + i;
            if (r->quant.method == QUANT_FP8)
                at = scales == 1 ? 0 : r->quant.block_rows ? (size_t)((row + i) / r->quant.block_rows) * all + group0 + g : row + i;
            r->scale[i * r->n_group + g] = scale_at(r, at);
            if (!isfinite(r->scale[i * r->n_group + g])) return read_fail(r, PART_SCALE, "a scale is not finite", row + i, group0 + g);
            if (!r->part[PART_ZERO]) continue;
            uint32_t place = awq ? awq_place[(row + i) % 8] : (row + i) % 8;
            uint32_t z = word_at(r->part[PART_ZERO], (size_t)(group0 + g) * (r->n / 8) + (row + i) / 8) >> 4 * place & 15;
            z += r->quant.zero_plus_1;
            r->zero[i * r->n_group + g] = (uint8_t)z;
            if (!r->quant.q.zero && z != 8)
                return read_fail(r, PART_ZERO, "a zero is not 8, but quantization_config says that all are", row + i, group0 + g);
        }
    return ST_OK;
}

static enum status slab_codes(struct quant_read *r, uint32_t row, uint32_t n)
{
    static const uint8_t awq_place[8] = { 0, 4, 1, 5, 2, 6, 3, 7 };
    const unsigned char *w = r->part[PART_WEIGHT];
    uint32_t             col = r->job->src_col;
    if (r->quant.method == QUANT_GPTQ) {
        for (uint32_t k = 0; k < r->k; k += 8)
            for (uint32_t i = 0; i < n; i++) {
                uint32_t word = word_at(w, (size_t)((col + k) / 8) * r->n + row + i);
                for (uint32_t j = 0; j < 8; j++) r->code[(size_t)i * r->k + k + j] = word >> 4 * j & 15;
            }
        return ST_OK;
    }
    for (uint32_t k = 0; k < r->k; k++)
        for (uint32_t i = 0; i < n; i++)
            r->code[(size_t)i * r->k + k] = word_at(w, (size_t)(col + k) * (r->n / 8) + (row + i) / 8) >> 4 * awq_place[(row + i) % 8] & 15;
    return ST_OK;
}

static enum status index_is_plain(struct quant_read *r)
{
    const struct st_tensor *t = tensor_of(r, PART_INDEX);
    for (uint32_t k = 0; t && k < t->shape[0]; k++)
        if (word_at(r->part[PART_INDEX], k) != (r->quant.q.group ? k / r->quant.q.group : 0))
            return read_fail(r, PART_INDEX, "inputs are in another order (desc_act), which is not supported,", 0, k);
    return ST_OK;
}

/* Rows [row, row + n) of the job, whose codes lie in r->code. */
static enum status slab_set(struct quant_read *r, struct device *d, uint32_t row, uint32_t n)
{
    enum status      st = slab_scales(r, r->job->src_row + row, n);
    struct dev_codes c = { r->code, r->k, r->scale, r->quant.q.zero ? r->zero : NULL, r->n_group };
    if (!st) d->ops->quant_set(d, r->job->w, r->job->dst_row + row, n, &c);
    return st;
}

static enum status slab_fp8(struct quant_read *r, uint32_t row, uint32_t n, const unsigned char *stage, size_t row_bytes)
{
    for (uint32_t i = 0; i < n; i++) {
        uint8_t *to = r->code + (size_t)i * r->k;
        memcpy(to, stage + i * row_bytes + r->job->src_col, r->k);
        for (uint32_t k = 0; k < r->k; k++)
            if ((to[k] & 0x7f) == 0x7f) return read_fail(r, PART_WEIGHT, "NaN", row + i, k);
    }
    return ST_OK;
}

bool read_quant_whole(const struct place *p) { return p->spec->quant.method == QUANT_AWQ || p->spec->quant.method == QUANT_GPTQ; }

enum status read_quant(struct place *p, const struct place_job *job, uint32_t row0, uint32_t n_row, const unsigned char *stage, char *err,
                       size_t err_bytes)
{
    struct quant_read r = { .job = job, .bind = p->bind, .ident = p->ident, .quant = p->spec->quant, .err = err, .err_bytes = err_bytes };
    enum status       st = ST_OK;
    bool              whole = read_quant_whole(p);
    const uint64_t   *shape = tensor_of(&r, PART_WEIGHT)->shape;
    err[0] = 0;
    r.k = job->w->k;
    r.n = (uint32_t)(r.quant.method == QUANT_AWQ ? shape[1] * 8 : r.quant.method == QUANT_GPTQ ? shape[1] : shape[0]);
    r.n_group = r.quant.q.group ? (r.k + r.quant.q.group - 1) / r.quant.q.group : 1;
    r.code = malloc((size_t)SLAB * r.k), r.zero = malloc((size_t)SLAB * r.n_group),
    r.scale = malloc((size_t)SLAB * r.n_group * sizeof *r.scale);
    if (!r.code || !r.zero || !r.scale) st = ST_NOMEM;
    for (int i = 0; i < PART_COUNT && !st; i++)
        if (whole || i == PART_SCALE) st = read_part(&r, (enum part)i);
    if (!st && r.part[PART_INDEX]) st = index_is_plain(&r);
    for (uint32_t row = row0, n; row < row0 + n_row && !st; row += n) {
        n = row0 + n_row - row < SLAB ? row0 + n_row - row : SLAB;
        st = whole ? slab_codes(&r, job->src_row + row, n) : slab_fp8(&r, job->src_row + row, n, stage + (row - row0) * shape[1], shape[1]);
        if (!st) st = slab_set(&r, p->dev, row, n);
    }
    int e = errno;
    for (int i = 0; i < PART_COUNT; i++) free(r.part[i]);
    free(r.code), free(r.zero), free(r.scale);
    errno = e;
    return st;
}
