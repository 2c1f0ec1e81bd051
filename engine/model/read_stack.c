/* read_stack: the matrices of experts that lie in one tensor (struct name_stack), turned into rows of outputs for the
 * device. A job is one expert: its part of the tensor is read as a whole, and nothing more is held. */
#include "engine/model/ident.h"
#include "engine/model/mxfp4.h"
#include "engine/model/read.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOGETHER = 64 }; /* rows that are made at a time */

struct stack_read {
    struct place           *p;
    const struct place_job *job;
    unsigned char          *data, *scale; /* of one expert */
    /* [TOGETHER][inputs of this rank] in the type of the tensor or in F32; or codes, and behind all of them their scales */
    unsigned char *row;
    char          *err;
    size_t         err_bytes;
};

/* Rows [first, first + n) of the expert's part of a tensor, a row being what follows its second dimension. */
static enum status part_read(struct stack_read *r, enum part part, uint64_t first, uint64_t n, unsigned char **out)
{
    const struct place_job *j = r->job;
    const struct st_tensor *t = bind_get_part(r->p->bind, j->slot, j->layer, j->expert, part);
    uint64_t row_bytes = t->bytes / t->shape[0] / t->shape[1], at = (j->expert * t->shape[1] + first) * row_bytes;
    if (!(*out = malloc((size_t)(n * row_bytes) + 1))) return ST_NOMEM;
    enum status st = source_read(&r->p->bind->set->file[t->file], t->offset + at, *out, (size_t)(n * row_bytes));
    if (!st && r->p->ident) ident_take(r->p->ident, t, at, *out, n * row_bytes);
    return st;
}

/* Outputs [from, from + n) of slot i, from the columns of data [inputs][outputs of all slots], to the device. */
static void columns_set(struct stack_read *r, uint32_t i, uint32_t from, uint32_t n)
{
    const struct place_job *j = r->job;
    enum dtype              t = bind_dtype(j->tensor->dtype);
    size_t                  bytes = dtype_bytes(t), wide = (size_t)j->tensor->shape[2], k = j->w->k;
    size_t                  step = j->stack->turns ? j->stack->n_slot : 1;
    size_t                  first = j->stack->turns ? i : i * (wide / j->stack->n_slot);
    for (size_t c = 0; c < k; c++) {
        const unsigned char *src = r->data + (c * wide + first + (size_t)(j->src_row + from) * step) * bytes;
        for (uint32_t o = 0; o < n; o++) memcpy(r->row + (o * k + c) * bytes, src + o * step * bytes, bytes);
    }
    r->p->dev->ops->weight_set(r->p->dev, j->w, j->dst_row + i * j->n_row + from, n, r->row, k * bytes, t);
}

/* ST_CONFIG: what at an output of slot i and an input is no number. */
static enum status code_fail(const struct stack_read *r, enum part part, const char *what, size_t out, size_t in)
{
    const struct place_job *j = r->job;
    snprintf(r->err, r->err_bytes, "%s: tensor %.120s: %s at expert %u, output %zu, input %zu",
             r->p->bind->set->file[j->tensor->file].name,
             bind_get_part(r->p->bind, j->slot, j->layer, j->expert, part)->name, what, j->expert, out, in);
    return ST_CONFIG;
}

/* The same of FP8: as the codes that they are, with a scale for each group of inputs, or as floats. data begins with the
 * job's first input, scale with the tensor's. */
static enum status codes_set(struct stack_read *r, uint32_t i, uint32_t from, uint32_t n)
{
    const struct place_job *j = r->job;
    const struct st_tensor *s = bind_get_part(r->p->bind, j->slot, j->layer, j->expert, PART_SCALE);
    size_t                  wide = (size_t)j->tensor->shape[2], k = j->w->k, group = r->p->spec->quant.q.group;
    size_t                  step = j->stack->turns ? j->stack->n_slot : 1, groups = group ? (k + group - 1) / group : 1;
    size_t                  first = j->stack->turns ? i : i * (wide / j->stack->n_slot);
    bool                    kept = j->w->q.code != DT_F32;
    float                  *to = (float *)(void *)r->row, *scales = (float *)(void *)(r->row + TOGETHER * k);
    for (uint32_t o = 0; o < n; o++) {
        size_t out = first + (size_t)(j->src_row + from + o) * step;
        for (size_t c = 0; c < k; c++) {
            unsigned char code = r->data[c * wide + out];
            size_t        block = group ? (j->src_col + c) / group * (size_t)s->shape[2] + out / group : 0;
            float         scale = bind_float(r->scale, bind_dtype(s->dtype), block);
            if ((code & 0x7f) == 0x7f) return code_fail(r, PART_WEIGHT, "NaN", out, j->src_col + c);
            if (!isfinite(scale)) return code_fail(r, PART_SCALE, "a scale is not finite", out, j->src_col + c);
            if (!kept) to[o * k + c] = f8e4m3_to_f32(code) * scale;
            if (kept) r->row[o * k + c] = code;
            if (kept) scales[o * groups + (group ? c / group : 0)] = scale;
        }
    }
    uint32_t         dst = j->dst_row + i * j->n_row + from;
    struct dev_codes codes = { .code = r->row, .code_stride = k, .scale = scales, .scale_stride = groups };
    if (kept)
        r->p->dev->ops->quant_set(r->p->dev, j->w, dst, n, &codes);
    else
        r->p->dev->ops->weight_set(r->p->dev, j->w, dst, n, to, k * sizeof *to, DT_F32);
    return ST_OK;
}

/* ST_CONFIG: a scale of this output is no number. */
static enum status scales_check(struct stack_read *r, const unsigned char *scale, size_t blocks, size_t row)
{
    const struct place_job *j = r->job;
    if (!memchr(scale, MXFP4_NAN, blocks)) return ST_OK;
    snprintf(r->err, r->err_bytes, "%s: tensor %.120s: a scale of expert %u, output %zu is 255, which is no number",
             r->p->bind->set->file[j->tensor->file].name,
             bind_get_part(r->p->bind, j->slot, j->layer, j->expert, PART_SCALE)->name, j->expert, row);
    return ST_CONFIG;
}

/* The same from blocks, whose outputs are by turns; data and scale begin with the first output of the job. As floats, or
 * as the codes and scales that they are: then a rank's inputs are whole blocks (place.c). */
static enum status blocks_set(struct stack_read *r, uint32_t i, uint32_t from, uint32_t n)
{
    const struct place_job *j = r->job;
    size_t                  blocks = (size_t)j->tensor->shape[2], k = j->w->k, first = j->src_col;
    bool                    kept = j->w->dtype == DT_F4E2M1;
    float                  *to = (float *)(void *)r->row, *scales = (float *)(void *)(r->row + TOGETHER * k);
    for (uint32_t o = 0; o < n; o++) {
        size_t               row = (size_t)(from + o) * j->stack->n_slot + i;
        const unsigned char *code = r->data + row * blocks * (MXFP4_BLOCK / 2), *scale = r->scale + row * blocks;
        enum status          st = scales_check(r, scale, blocks, row);
        if (st) return st;
        for (size_t c = 0; c < k; c++) {
            uint32_t one = code[(first + c) / 2] >> (first + c) % 2 * 4 & 15;
            if (kept)
                r->row[o * k + c] = (unsigned char)one;
            else
                to[o * k + c] = mxfp4_to_f32(one, scale[(first + c) / MXFP4_BLOCK]);
        }
        for (size_t g = 0; kept && g < k / MXFP4_BLOCK; g++)
            scales[o * (k / MXFP4_BLOCK) + g] = f8e8m0_to_f32(scale[first / MXFP4_BLOCK + g]);
    }
    uint32_t         dst = j->dst_row + i * j->n_row + from;
    struct dev_codes codes = { .code = r->row, .code_stride = k, .scale = scales, .scale_stride = k / MXFP4_BLOCK };
    if (kept)
        r->p->dev->ops->quant_set(r->p->dev, j->w, dst, n, &codes);
    else
        r->p->dev->ops->weight_set(r->p->dev, j->w, dst, n, to, k * sizeof *to, DT_F32);
    return ST_OK;
}

enum status read_stack(struct place *p, const struct place_job *job, char *err, size_t err_bytes)
{
    struct stack_read       r = { .p = p, .job = job, .err = err, .err_bytes = err_bytes };
    uint32_t                n_slot = job->stack->n_slot;
    uint64_t                first = (uint64_t)job->src_row * n_slot, n = (uint64_t)job->n_row * n_slot;
    enum status             st = ST_OK;
    const struct st_tensor *scale = bind_get_part(p->bind, job->slot, job->layer, job->expert, PART_SCALE);
    err[0] = 0;
    if (job->stack->form == STACK_COLUMNS) {
        st = part_read(&r, PART_WEIGHT, job->src_col, job->w->k, &r.data);
        if (!st && scale) st = part_read(&r, PART_SCALE, 0, scale->shape[1], &r.scale);
    } else {
        st = part_read(&r, PART_WEIGHT, first, n, &r.data);
        if (!st) st = part_read(&r, PART_SCALE, first, n, &r.scale);
    }
    if (!st && !(r.row = malloc((size_t)TOGETHER * job->w->k * sizeof(float)))) st = ST_NOMEM;
    for (uint32_t i = 0; i < n_slot; i++)
        for (uint32_t from = 0, part; from < job->n_row && !st; from += part) {
            part = job->n_row - from < TOGETHER ? job->n_row - from : TOGETHER;
            if (job->stack->form == STACK_COLUMNS && scale)
                st = codes_set(&r, i, from, part);
            else if (job->stack->form == STACK_COLUMNS)
                columns_set(&r, i, from, part);
            else
                st = blocks_set(&r, i, from, part);
        }
    free(r.data);
    free(r.scale);
    free(r.row);
    return st;
}
