/* read_quant: matrices that the checkpoint holds as codes, unpacked into rows of a byte per code for the device, or
 * into the floats that they mean.
 *   fp8    weight [n, k], weight_scale: one, one per row, or one per block (w = code * scale); of all experts
 *          [experts, n, k] and [experts, ..., ...]: one for an expert, one for equal parts of its rows, or one per block
 *   int8   the same with whole numbers, also one scale per row and group [n, k / g]
 *   packed weight_packed [n, k / 8 or k / 4]: inputs, low bits first, codes above what they mean by 8 or 128;
 *   weight_scale [n, k / g];
 *          weight_zero_point [n / 8, k / g]: outputs, above by 8 too
 *   awq    qweight [k, n / 8], qzeros [k / g, n / 8], scales [k / g, n]; a word holds outputs 0 2 4 6 1 3 5 7, low
 *          bits first
 *   gptq   qweight [k / 8, n]: inputs, low bits first; qzeros [k / g, n / 8], one less than they mean but in
 *          gptq_v2; scales [k / g, n]
 *   nvfp4  weight_packed [n, k / 2]: inputs, low bits first; weight_scale [n, k / 16], E4M3, divided by
 *          weight_global_scale of the tensor. ModelOpt: weight, weight_scale, multiplied by weight_scale_2
 * (vLLM's layers/quantization/awq.py and gptq.py; AutoGPTQ's qlinear; the compressors of compressed-tensors.) The
 * words of awq and gptq lie across our rows, so they are read whole. */
#include "engine/model/codes_order.h"
#include "engine/model/ident.h"
#include "engine/model/read.h"
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLAB = 64 }; /* rows that are unpacked at a time */

struct quant_read {
    const struct place_job *job;
    const struct bind      *bind;
    struct ident           *ident; /* or NULL */
    struct model_quant      quant;
    char                   *err;
    size_t                  err_bytes;
    unsigned char          *part[PART_COUNT]; /* a tensor's bytes; NULL: none */
    uint8_t                *code, *zero;      /* [SLAB][k], [SLAB][n_group] */
    uint8_t                *line;             /* [k] */
    float                  *scale, *number;   /* [SLAB][n_group]; [k] */
    float                   factor;           /* of all scales */
    uint32_t               *from;             /* [k] which input of the checkpoint comes at each place; NULL: its own */
    uint32_t               *group_of;         /* [k] for floats: each input's group, group0 being 0; NULL: for codes */
    uint32_t                n, k;             /* n: of the tensor, k: of this rank */
    uint32_t                group0, n_group;  /* of this rank */
    uint32_t                groups;           /* of the tensor */
    uint32_t                row0;             /* of the tensor: the first of this expert */
    uint32_t                n_scale;          /* that were read */
};

static const struct st_tensor *tensor_of(const struct quant_read *r, enum part part)
{
    return bind_get_part(r->bind, r->job->slot, r->job->layer, r->job->expert, part);
}

static enum status read_fail(const struct quant_read *r, enum part part, const char *what, uint32_t row, uint32_t col)
{
    const struct st_tensor *t = tensor_of(r, part);
    snprintf(r->err, r->err_bytes, "%s: tensor %.120s: %s at output %u, input or group %u",
             r->bind->set->file[t->file].name, t->name, what, row, col);
    return ST_CONFIG;
}

/* Of a tensor of all experts, what this one has of it. */
static enum status read_part(struct quant_read *r, enum part part)
{
    const struct st_tensor *t = tensor_of(r, part);
    if (!t) return ST_OK;
    uint64_t bytes = t->rank == 3 ? t->bytes / t->shape[0] : t->bytes, at = t->rank == 3 ? r->job->expert * bytes : 0;
    if (!(r->part[part] = malloc((size_t)bytes + 1))) return ST_NOMEM;
    enum status st = source_read(&r->bind->set->file[t->file], t->offset + at, r->part[part], (size_t)bytes);
    if (!st && r->ident) ident_take(r->ident, t, at, r->part[part], bytes);
    if (part == PART_SCALE) r->n_scale = (uint32_t)(bytes / dtype_bytes(bind_dtype(t->dtype)));
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

/* The place of the scale of an output and a group. */
static size_t scale_place(const struct quant_read *r, uint32_t row, uint32_t g)
{
    switch (r->quant.method) {
    case QUANT_AWQ:
    case QUANT_GPTQ: return (size_t)g * r->n + row;
    case QUANT_PACKED:
    case QUANT_NVFP4:
    case QUANT_MODELOPT: return (size_t)row * r->groups + g;
    default: break;
    }
    if (r->n_scale == 1) return 0;
    if (r->quant.block_rows) return (size_t)(row / r->quant.block_rows) * r->groups + g;
    return r->quant.q.group ? (size_t)row * r->groups + g : row / (r->n / r->n_scale);
}

static uint8_t zero_at(const struct quant_read *r, uint32_t row, uint32_t g)
{
    static const uint8_t awq_place[8] = { 0, 4, 1, 5, 2, 6, 3, 7 };
    uint32_t             place = r->quant.method == QUANT_AWQ ? awq_place[row % 8] : row % 8;
    size_t               word =
        r->quant.method == QUANT_PACKED ? (size_t)(row / 8) * r->groups + g : (size_t)g * (r->n / 8) + row / 8;
    return (uint8_t)((word_at(r->part[PART_ZERO], word) >> 4 * place & 15) + r->quant.zero_plus_1);
}

/* Reads the scales and zeros of rows [row, row + n) of the tensor. */
static enum status slab_scales(struct quant_read *r, uint32_t row, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t g = 0; g < r->n_group; g++) {
            size_t to = (size_t)i * r->n_group + g;
            r->scale[to] = scale_at(r, scale_place(r, row + i, r->group0 + g));
            if (!isfinite(r->scale[to] * r->factor))
                return read_fail(r, PART_SCALE, "a scale is not finite", row + i, r->group0 + g);
            if (!r->part[PART_ZERO]) continue;
            r->zero[to] = zero_at(r, row + i, r->group0 + g);
            if (!r->quant.q.zero && r->zero[to] != 8)
                return read_fail(r, PART_ZERO, "a zero is not 8, but quantization_config says that all are", row + i,
                                 r->group0 + g);
        }
    return ST_OK;
}

/* The factor of all scales of the tensor: 1 where it has none. */
static enum status read_factor(struct quant_read *r)
{
    r->factor = 1;
    if (!r->part[PART_FACTOR]) return ST_OK;
    float f = bind_float(r->part[PART_FACTOR], DT_F32, 0);
    r->factor = r->quant.method == QUANT_NVFP4 ? (float)(1 / (double)f) : f;
    return isfinite(f) && isfinite(r->factor)
               ? ST_OK
               : read_fail(r, PART_FACTOR, "the scale of all is no number to scale by", 0, 0);
}

/* Unpacks words that were read whole, as those of awq and gptq are. */
static void slab_words(struct quant_read *r, uint32_t row, uint32_t n)
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
        return;
    }
    for (uint32_t k = 0; k < r->k; k++)
        for (uint32_t i = 0; i < n; i++)
            r->code[(size_t)i * r->k + k] =
                word_at(w, (size_t)(col + k) * (r->n / 8) + (row + i) / 8) >> 4 * awq_place[(row + i) % 8] & 15;
}

/* Unpacks rows of the tensor that lie in stage. */
static enum status slab_rows(struct quant_read *r, uint32_t row, uint32_t n, const unsigned char *stage,
                             size_t row_bytes)
{
    bool halves = dtype_is_half_byte(r->quant.q.code), packed = r->quant.method == QUANT_PACKED,
         fp8 = r->quant.q.code == DT_F8E4M3;
    uint32_t col = r->job->src_col;
    for (uint32_t i = 0; i < n; i++) {
        const unsigned char *from = stage + i * row_bytes;
        uint8_t             *to = r->code + (size_t)i * r->k;
        for (uint32_t k = 0; halves && k < r->k; k++) to[k] = from[(col + k) / 2] >> (col + k) % 2 * 4 & 15;
        for (uint32_t k = 0; !halves && k < r->k; k++) to[k] = packed ? from[col + k] ^ 0x80 : from[col + k];
        for (uint32_t k = 0; fp8 && k < r->k; k++)
            if ((to[k] & 0x7f) == 0x7f) return read_fail(r, PART_WEIGHT, "NaN", row + i, k);
    }
    return ST_OK;
}

/* ---------------------------------------------------------------- inputs in another order */

/* Reads and checks the tensor's index. *from_out: the caller frees it; NULL where the inputs are in their own order. */
static enum status index_order(struct quant_read *r, uint32_t **from_out)
{
    const struct st_tensor *t = tensor_of(r, PART_INDEX);
    uint32_t                k = (uint32_t)t->shape[0];
    *from_out = malloc(((size_t)k + 1) * sizeof **from_out);
    if (!*from_out) return ST_NOMEM;
    enum codes_order order = codes_order(r->part[PART_INDEX], k, r->quant.q.group, *from_out);
    if (order == CODES_SORTED) return ST_OK;
    free(*from_out);
    *from_out = NULL;
    return order == CODES_PLAIN ? ST_OK
                                : read_fail(r, PART_INDEX, "groups are not of the size that group_size says", 0, 0);
}

/* Fills group_of, which only floats need: the group of each input of this rank. */
static enum status index_groups(struct quant_read *r, bool indexed)
{
    uint32_t col = r->job->src_col;
    if (!(r->group_of = malloc(((size_t)r->k + 1) * sizeof *r->group_of))) return ST_NOMEM;
    if (indexed) {
        r->group0 = 0;
        r->n_group = r->groups;
    }
    for (uint32_t i = 0; i < r->k; i++) {
        uint32_t g = 0;
        if (indexed)
            g = word_at(r->part[PART_INDEX], col + i);
        else if (r->quant.q.group)
            g = (col + i) / r->quant.q.group;
        if (g >= r->groups) return read_fail(r, PART_INDEX, "a group that is not there", 0, col + i);
        r->group_of[i] = g - r->group0;
    }
    return ST_OK;
}

/* Decides by the index of a matrix how its rows are made. */
static enum status read_index(struct quant_read *r, bool floats, bool sorted)
{
    const struct st_tensor *t = tensor_of(r, PART_INDEX);
    bool plain = !t || codes_order(r->part[PART_INDEX], (uint32_t)t->shape[0], r->quant.q.group, NULL) == CODES_PLAIN;
    if (floats) return index_groups(r, !plain);
    if (plain) return ST_OK;
    if (!sorted)
        return read_fail(r, PART_INDEX, "inputs are in another order, but quantization_config.desc_act is not true:", 0,
                         0);
    return index_order(r, &r->from);
}

/* ---------------------------------------------------------------- rows to the device */

/* Passes rows [row, row + n) of the job to the device. Their codes lie in r->code. */
static void slab_set_codes(struct quant_read *r, struct device *d, uint32_t row, uint32_t n)
{
    for (uint32_t i = 0; r->from && i < n; i++) {
        uint8_t *code = r->code + (size_t)i * r->k;
        for (uint32_t k = 0; k < r->k; k++) r->line[k] = code[r->from[k]];
        memcpy(code, r->line, r->k);
    }
    struct place_run run[3];
    for (uint32_t at = row, n_run; at < row + n;) {
        at += place_runs(r->job, at, row + n - at, run, &n_run);
        for (uint32_t i = 0; i < n_run; i++) {
            size_t           from = run[i].src - row, group = from * r->n_group;
            struct dev_codes c = { .code = r->code + from * r->k,
                                   .code_stride = (size_t)run[i].step * r->k,
                                   .scale = r->scale + group,
                                   .zero = r->quant.q.zero ? r->zero + group : NULL,
                                   .scale_stride = (size_t)run[i].step * r->n_group,
                                   .factor = &r->factor };
            d->ops->quant_set(d, r->job->w, r->job->dst_row + run[i].dst, run[i].n, &c);
        }
    }
}

static float code_number(const struct quant_read *r, uint8_t code, uint8_t zero)
{
    if (r->quant.q.code == DT_F8E4M3) return f8e4m3_to_f32(code);
    if (r->quant.q.code == DT_F4E2M1) return f4e2m1_to_f32(code);
    if (r->quant.q.code == DT_I8) return (float)(int8_t)code;
    return (float)code - (float)(r->quant.q.zero ? zero : 8);
}

static void slab_set_floats(struct quant_read *r, struct device *d, uint32_t row, uint32_t n)
{
    struct place_run run[3];
    uint32_t         n_run;
    for (uint32_t i = 0; i < n; i++) {
        const uint8_t *code = r->code + (size_t)i * r->k, *zero = r->zero + (size_t)i * r->n_group;
        const float   *scale = r->scale + (size_t)i * r->n_group;
        for (uint32_t k = 0; k < r->k; k++)
            r->number[k] = code_number(r, code[k], zero[r->group_of[k]]) * (scale[r->group_of[k]] * r->factor);
        place_runs(r->job, row + i, 1, run, &n_run);
        d->ops->weight_set(d, r->job->w, r->job->dst_row + run[0].dst, 1, r->number, r->k * sizeof *r->number, DT_F32);
    }
}

static enum status slabs(struct quant_read *r, struct device *d, uint32_t row0, uint32_t n_row,
                         const unsigned char *stage)
{
    const struct st_tensor *t = tensor_of(r, PART_WEIGHT);
    size_t                  row_bytes = (size_t)(t->bytes / t->shape[0] / (t->rank == 3 ? t->shape[1] : 1));
    enum status             st = ST_OK;
    for (uint32_t row = row0, n; row < row0 + n_row && !st; row += n) {
        n = row0 + n_row - row < SLAB ? row0 + n_row - row : SLAB;
        if (stage)
            st = slab_rows(r, r->job->src_row + row, n, stage + (row - row0) * row_bytes, row_bytes);
        else
            slab_words(r, r->job->src_row + row, n);
        if (!st) st = slab_scales(r, r->job->src_row - r->row0 + row, n);
        if (st) break;
        if (r->group_of)
            slab_set_floats(r, d, row, n);
        else
            slab_set_codes(r, d, row, n);
    }
    return st;
}

/* ---------------------------------------------------------------- a job */

bool read_quant_whole(const struct place *p)
{
    return p->spec->quant.method == QUANT_AWQ || p->spec->quant.method == QUANT_GPTQ;
}

static void quant_read_init(struct quant_read *r, struct place *p, const struct place_job *job, char *err,
                            size_t err_bytes)
{
    *r = (struct quant_read){
        .job = job, .bind = p->bind, .ident = p->ident, .quant = p->spec->quant, .err = err, .err_bytes = err_bytes
    };
    err[0] = 0;
}

static void quant_read_free(struct quant_read *r)
{
    int e = errno;
    for (int i = 0; i < PART_COUNT; i++) free(r->part[i]);
    free(r->code);
    free(r->line);
    free(r->zero);
    free(r->scale);
    free(r->number);
    free(r->from);
    free(r->group_of);
    errno = e;
}

/* The numbers of outputs, inputs and groups of the tensor's matrix. */
static void quant_read_sizes(struct quant_read *r)
{
    const struct st_tensor *t = tensor_of(r, PART_WEIGHT);
    const uint64_t         *shape = t->rank == 3 ? t->shape + 1 : t->shape;
    uint32_t                g = r->quant.q.group, per_word = r->quant.q.code == DT_I4 ? 8 : 4;
    uint64_t                n = shape[0], k = shape[1];
    if (r->quant.method == QUANT_AWQ) {
        n = shape[1] * 8;
        k = shape[0];
    }
    if (r->quant.method == QUANT_GPTQ) {
        n = shape[1];
        k = shape[0] * 8;
    }
    if (r->quant.method == QUANT_PACKED) k = shape[1] * per_word;
    if (r->quant.q.code == DT_F4E2M1) k = shape[1] * 2;
    r->row0 = t->rank == 3 ? r->job->expert * (uint32_t)n : 0;
    r->n = (uint32_t)n;
    r->k = r->job->w->k;
    r->groups = g ? (uint32_t)((k + g - 1) / g) : 1;
    r->group0 = g ? r->job->src_col / g : 0;
    r->n_group = g ? (r->k + g - 1) / g : 1;
}

enum status read_quant_order(struct place *p, const struct place_job *job, char *err, size_t err_bytes)
{
    struct quant_read r;
    quant_read_init(&r, p, job, err, err_bytes);
    enum status st = read_part(&r, PART_INDEX);
    if (!st) st = index_order(&r, &r.from);
    if (!st) p->dev->ops->to_device(p->dev, job->order, r.from, job->n_row * sizeof *r.from);
    quant_read_free(&r);
    return st;
}

enum status read_quant(struct place *p, const struct place_job *job, uint32_t row0, uint32_t n_row,
                       const unsigned char *stage, char *err, size_t err_bytes)
{
    struct quant_read r;
    quant_read_init(&r, p, job, err, err_bytes);
    quant_read_sizes(&r);
    enum status st = ST_OK;
    for (int i = 0; i < PART_COUNT && !st; i++)
        if (i != PART_WEIGHT || !stage) st = read_part(&r, (enum part)i);
    if (!st) st = read_factor(&r);
    if (!st) st = read_index(&r, job->w->q.code == DT_F32, spec_sorted(p->spec, job->slot, job->layer));
    if (!st) {
        r.code = malloc((size_t)SLAB * r.k);
        r.line = malloc(r.k);
        r.zero = calloc((size_t)SLAB * r.n_group, 1);
        r.scale = malloc((size_t)SLAB * r.n_group * sizeof *r.scale);
        r.number = malloc(r.k * sizeof *r.number);
        if (!r.code || !r.line || !r.zero || !r.scale || !r.number) st = ST_NOMEM;
    }
    if (!st) st = slabs(&r, p->dev, row0, n_row, stage);
    quant_read_free(&r);
    return st;
}
