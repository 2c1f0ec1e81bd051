/* read: the bytes of the checkpoint to the device. Several threads take pieces in order of file and offset, so the disk
 * sees one front of large reads; each has its own staging buffer, and what a tensor-parallel rank does not hold is not
 * converted. */
#include "base/check.h"
#include "base/log.h"
#include "base/thread.h"
#include "engine/model/ident.h"
#include "engine/model/read.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    STAGE_BYTES = 8 << 20,
    CACHED_BYTES = 256 << 10,
    READERS_MAX = 8,
    READERS_FAR = 16, /* of files that are far: they wait, and do not compute */
    PROGRESS_BYTES = 64 << 20,
    ROWS_TOGETHER = 64
};

struct readers {
    struct place                *p;
    const struct model_load_cfg *cfg;
    size_t                       stage_bytes;
    char                        *err;
    size_t                       err_bytes;
    /* lock: everything below */
    pthread_mutex_t lock;
    uint32_t        next_job, next_row;
    uint64_t        done, total, told;
    enum status     st;
    bool            far;         /* a file is */
    pthread_mutex_t vector_lock; /* weight_set takes several threads at a time, to_device does not say so */
};

struct read_piece {
    const struct place_job *job;
    uint32_t                row, n; /* of the job's rows */
};

/* Codes that the checkpoint has (not those that are made while loading). */
static bool job_is_codes(const struct readers *r, const struct place_job *j)
{
    return j->w && bind_is_codes(r->p->spec, j->slot, j->layer);
}

static uint64_t job_row_bytes(const struct readers *r, const struct place_job *j)
{
    if (job_is_codes(r, j) && read_quant_whole(r->p))
        return ((uint64_t)j->w->k + 1) / 2;                                 /* for the count of what is done */
    if (j->stack) return j->tensor->bytes / j->tensor->shape[0] / j->n_row; /* a stack's job is a piece */
    if (job_is_codes(r, j))                                                 /* of a matrix, or of one for each expert */
        return j->tensor->bytes / j->tensor->shape[0] / (j->tensor->rank == 3 ? j->tensor->shape[1] : 1);
    if (j->order) return sizeof *j->order;
    return (j->w || j->n_col ? j->tensor->shape[j->tensor->rank - 1] : 1) * dtype_bytes(bind_dtype(j->tensor->dtype));
}

static int job_cmp(const void *a, const void *b)
{
    const struct st_tensor *x = ((const struct place_job *)a)->tensor, *y = ((const struct place_job *)b)->tensor;
    if (x->file != y->file) return x->file < y->file ? -1 : 1;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* The next piece; false: all are taken, or somebody failed. */
static bool readers_take(struct readers *r, struct read_piece *out)
{
    pthread_mutex_lock(&r->lock);
    bool more = !r->st && r->next_job < r->p->n_job;
    if (more) {
        const struct place_job *j = &r->p->job[r->next_job];
        uint64_t                rows = r->stage_bytes / job_row_bytes(r, j), left = j->n_row - r->next_row;
        if (rows >= 2 * ROWS_TOGETHER) rows -= rows % ROWS_TOGETHER;
        if (j->order || j->stack || (job_is_codes(r, j) && read_quant_whole(r->p))) rows = left;
        *out = (struct read_piece){ j, r->next_row, (uint32_t)(rows < left ? rows : left) };
        r->next_row += out->n;
        if (r->next_row == j->n_row) {
            r->next_job++;
            r->next_row = 0;
        }
    }
    pthread_mutex_unlock(&r->lock);
    return more;
}

static void readers_done(struct readers *r, uint64_t bytes)
{
    pthread_mutex_lock(&r->lock);
    r->done += bytes;
    bool tell = r->cfg->progress && (r->done - r->told >= PROGRESS_BYTES || r->done == r->total);
    if (tell) {
        r->told = r->done;
        r->cfg->progress(r->cfg->progress_ctx, r->done, r->total); /* under the lock: numbers only rise */
    }
    pthread_mutex_unlock(&r->lock);
}

/* why: one line, or "": errno e tells. */
static void readers_fail(struct readers *r, const struct place_job *j, enum status st, int e, const char *why)
{
    pthread_mutex_lock(&r->lock);
    if (!r->st) {
        r->st = st;
        if (*why)
            snprintf(r->err, r->err_bytes, "%s", why);
        else if (st == ST_NOMEM)
            snprintf(r->err, r->err_bytes, "model: no memory for a staging buffer of %zu bytes", r->stage_bytes);
        else
            snprintf(r->err, r->err_bytes, "%s: cannot read tensor %.120s at offset %" PRIu64 ": %s",
                     r->p->bind->set->file[j->tensor->file].name, j->tensor->name, j->tensor->offset,
                     e == ENODATA ? "the file has become shorter" : strerror(e));
    }
    pthread_mutex_unlock(&r->lock);
}

/* A vector is float on the device whatever the checkpoint has; scratch holds the piece's elements. */
static void piece_vector(struct device *d, const struct read_piece *k, const unsigned char *src, enum dtype t)
{
    float            tile[256];
    struct place_run run[3];
    uint32_t         n_run, end = k->row + k->n;
    for (uint32_t row = k->row; row < end;) {
        uint32_t n = end - row < 256 ? end - row : 256;
        row += place_runs(k->job, row, n, run, &n_run);
        for (uint32_t i = 0; i < n_run; i++) {
            for (uint32_t c = 0; c < run[i].n; c++)
                tile[c] = bind_float(src, t, run[i].src - k->row + (size_t)c * run[i].step) + k->job->plus;
            d->ops->to_device(d, k->job->vec + k->job->dst_row + run[i].dst, tile, run[i].n * sizeof *tile);
        }
    }
}

/* Rows of a table, of which src has whole rows of the tensor. */
static void piece_table(struct device *d, const struct read_piece *k, const unsigned char *src, enum dtype t)
{
    float    tile[256];
    uint64_t wide = k->job->tensor->shape[1];
    for (uint32_t r = 0; r < k->n; r++)
        for (uint32_t at = 0, n; at < k->job->n_col; at += n) {
            n = k->job->n_col - at < 256 ? k->job->n_col - at : 256;
            for (uint32_t c = 0; c < n; c++)
                tile[c] = bind_float(src, t, r * wide + k->job->src_col + (size_t)(at + c) * k->job->step);
            d->ops->to_device(d, k->job->vec + k->job->dst_row + (size_t)(k->row + r) * k->job->pitch + at, tile,
                              n * sizeof *tile);
        }
}

/* Rows of a matrix that lie in src. */
static void piece_matrix(struct device *d, const struct read_piece *k, const unsigned char *src, size_t row_bytes,
                         enum dtype t)
{
    struct place_run run[3];
    uint32_t         n_run, end = k->row + k->n;
    src += k->job->src_col * dtype_bytes(t);
    for (uint32_t row = k->row; row < end;) {
        row += place_runs(k->job, row, end - row, run, &n_run);
        for (uint32_t i = 0; i < n_run; i++)
            d->ops->weight_set(d, k->job->w, k->job->dst_row + run[i].dst, run[i].n,
                               src + (run[i].src - k->row) * row_bytes, run[i].step * row_bytes, t);
    }
}

/* The identity takes what was read; of a vector all of it, for ranks may share one. */
static enum status piece_ident(struct readers *r, const struct read_piece *k, uint64_t at, const unsigned char *stage,
                               uint64_t bytes)
{
    const struct st_tensor *t = k->job->tensor;
    if (!r->p->ident) return ST_OK;
    if (k->job->vec) return ident_take_whole(r->p->ident, t);
    ident_take(r->p->ident, t, at - t->offset, stage, bytes);
    return ST_OK;
}

/* What was loaded was taken: an identity that leaves out a tensor would call two models one. */
static void ident_check(const struct place *p)
{
    for (uint32_t i = 0; p->ident && i < p->n_job; i++) {
        const struct place_job *j = &p->job[i];
        for (int part = 0; part < PART_COUNT; part++) {
            const struct st_tensor *t = bind_get_part(p->bind, j->slot, j->layer, j->expert, (enum part)part);
            CHECK(!t || ident_has(p->ident, t));
        }
    }
}

/* Some rows of a piece: from the file into stage, past the identity, to the device. */
static enum status rows_read(struct readers *r, const struct read_piece *k, unsigned char *stage, char *why,
                             size_t why_bytes)
{
    const struct place_job *j = k->job;
    enum dtype              t = bind_dtype(j->tensor->dtype);
    uint64_t row_bytes = job_row_bytes(r, j), at = j->tensor->offset + (uint64_t)(j->src_row + k->row) * row_bytes;
    source_will_read(&r->p->bind->set->file[j->tensor->file], at, r->stage_bytes);
    enum status st = source_read(&r->p->bind->set->file[j->tensor->file], at, stage, (size_t)(k->n * row_bytes));
    if (!st) st = piece_ident(r, k, at, stage, k->n * row_bytes);
    if (st) return st;
    if (job_is_codes(r, j)) return read_quant(r->p, j, k->row, k->n, stage, why, why_bytes);
    if (j->vec) {
        pthread_mutex_lock(&r->vector_lock);
        if (j->n_col)
            piece_table(r->p->dev, k, stage, t);
        else
            piece_vector(r->p->dev, k, stage, t);
        pthread_mutex_unlock(&r->vector_lock);
    } else {
        piece_matrix(r->p->dev, k, stage, (size_t)row_bytes, t);
    }
    return ST_OK;
}

/* How many rows of a piece go together. Floats are read, digested and packed while they lie in a core's own cache; a
 * GPU wants large copies, a file that is far large requests, and for codes of fp8 each call reads the scales again. */
static uint32_t rows_together(const struct readers *r, const struct read_piece *k)
{
    if (!k->job->w || job_is_codes(r, k->job) || r->p->dev->async || r->far) return k->n;
    uint64_t rows = CACHED_BYTES / job_row_bytes(r, k->job);
    rows = rows < ROWS_TOGETHER ? ROWS_TOGETHER : rows - rows % ROWS_TOGETHER;
    return rows < k->n ? (uint32_t)rows : k->n;
}

static enum status piece_read(struct readers *r, const struct read_piece *k, unsigned char *stage, char *why,
                              size_t why_bytes)
{
    *why = 0;
    if (k->job->order) {
        pthread_mutex_lock(&r->vector_lock);
        enum status order_st = read_quant_order(r->p, k->job, why, why_bytes);
        pthread_mutex_unlock(&r->vector_lock);
        return order_st;
    }
    if (job_is_codes(r, k->job) && read_quant_whole(r->p))
        return read_quant(r->p, k->job, k->row, k->n, NULL, why, why_bytes);
    if (k->job->stack) return read_stack(r->p, k->job, why, why_bytes);
    uint32_t    together = rows_together(r, k);
    enum status st = ST_OK;
    for (uint32_t i = 0; !st && i < k->n; i += together) {
        struct read_piece part = { k->job, k->row + i, k->n - i < together ? k->n - i : together };
        st = rows_read(r, &part, stage, why, why_bytes);
    }
    return st;
}

static void *reader_main(void *arg)
{
    struct readers   *r = arg;
    struct read_piece k;
    char              why[512];
    unsigned char    *stage = malloc(r->stage_bytes);
    if (!stage) readers_fail(r, NULL, ST_NOMEM, ENOMEM, "");
    while (stage && readers_take(r, &k)) {
        enum status st = piece_read(r, &k, stage, why, sizeof why);
        if (st)
            readers_fail(r, k.job, st, errno, why);
        else
            readers_done(r, k.n * job_row_bytes(r, k.job));
    }
    free(stage);
    return NULL;
}

enum status model_read(struct place *p, const struct model_load_cfg *cfg, char *err, size_t err_bytes)
{
    struct readers r = { .p = p, .cfg = cfg, .stage_bytes = STAGE_BYTES, .err = err, .err_bytes = err_bytes };
    qsort(p->job, p->n_job, sizeof *p->job, job_cmp);
    for (uint32_t i = 0; i < p->n_job; i++) {
        uint64_t row = job_row_bytes(&r, &p->job[i]);
        r.total += row * p->job[i].n_row;
        if (row > r.stage_bytes) r.stage_bytes = (size_t)row; /* sizes are bounded by hf_config.c: at most 64 MiB */
    }
    if (r.total < r.stage_bytes) r.stage_bytes = (size_t)r.total; /* a row always fits */
    pthread_mutex_init(&r.lock, NULL);
    pthread_mutex_init(&r.vector_lock, NULL);

    uint64_t  useful = r.total / STAGE_BYTES + 1, n = cfg->n_thread ? cfg->n_thread : thread_cpu_count();
    pthread_t thread[READERS_FAR];
    uint32_t  n_thread = 0;
    for (uint32_t i = 0; i < p->bind->set->n_file; i++) {
        r.far |= p->bind->set->file[i].far;
        p->bind->set->file[i].keep = true;
    }
    if (r.far) n = READERS_FAR;
    if (n > useful) n = useful;
    if (n > (r.far ? READERS_FAR : READERS_MAX)) n = r.far ? READERS_FAR : READERS_MAX;
    while (n_thread + 1 < n && thread_start(&thread[n_thread], THREAD_ANY, "load", reader_main, &r) == ST_OK)
        n_thread++;
    reader_main(&r); /* this thread is one of them, whether or not others could be started */
    for (uint32_t i = 0; i < n_thread; i++) pthread_join(thread[i], NULL);

    for (uint32_t i = 0; i < p->bind->set->n_file; i++) p->bind->set->file[i].keep = false;
    pthread_mutex_destroy(&r.vector_lock);
    pthread_mutex_destroy(&r.lock);
    if (!r.st) ident_check(p);
    return r.st;
}
