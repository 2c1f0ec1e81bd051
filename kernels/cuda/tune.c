/* tune: every candidate of the library for every matrix and bucket of rows, its numbers checked, then timed on weights
 * that come from memory: copies that are larger together than the L2 cache are multiplied in turn. Random numbers:
 * zeros run faster than work does. Our own kernels are one more candidate. The fastest goes to the file.
 * Ours join a product of few rows with what stands around it (gemm_fused.cu), so there everybody is timed with that: the
 * library with kernels of ours ahead and behind. The sum of the residual stream and the norm of it are one such kernel,
 * which is counted with the product that reads the norm. A router is timed with the choice of its experts
 * (moe_route_few.cu). */
#include "base/log.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/moe.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCHES = 5, COPIES_MAX = 64 };
#ifdef CUDA_EMU
enum { COPIES_MIN = 2, COLD_BYTES = 0, LOGIT_ROWS = 8, CHECK_ROWS = 6, ARENA = 192 << 20 };
#else
enum { COPIES_MIN = 4, COLD_BYTES = 384 << 20, LOGIT_ROWS = 512, CHECK_ROWS = 256, ARENA = 0 /* all that is free */ };
#endif
struct tune {
    struct cuda_dev           *d;
    const struct dev_tune_cfg *cfg;
    uint32_t                   n, k, rows_max, n_copy;
    enum dtype                 in, out;
    bool                       norm; /* as in struct dev_matrix */
    enum op_end                end;
    struct dev_weight          copy[COPIES_MAX];
    char                      *x, *y;
    char                      *h, *delta, *z; /* of GEMM_FUSED_ROWS rows: [k], [k], [n] */
    float                     *weight;        /* [k] of a norm */
    uint32_t                   top_k;         /* as in struct dev_matrix */
    struct moe_lists           list;
    cudaEvent_t                from, to;
    struct gemm_file           file;
    enum status                st; /* the first failure sticks */
};

static void say(const struct tune *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void say(const struct tune *t, const char *fmt, ...)
{
    char    text[200];
    va_list ap;
    if (!t->cfg->line) return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    t->cfg->line(t->cfg->ctx, text);
}

/* The one product that is tried: m rows by the matrix's i-th copy. */
static struct gemm_product product_of(const struct tune *t, uint32_t m, uint32_t i)
{
    return (struct gemm_product){ .out = t->y, .out_t = t->out, .x = t->x, .w = &t->copy[i], .m = m };
}

/* By one kernel of ours, or all but the norm by one. */
static bool joined(struct tune *t, struct op_fused o)
{
    if (cuda_gemm_fused(t->d, &o)) return true;
    if (!o.norm || o.end == OP_END_STORE) return false;
    cuda_add_rmsnorm(&t->d->impl.dev, t->h, t->x, t->delta, o.norm, o.m, t->k, o.eps);
    o.x = t->h;
    o.norm = NULL;
    return cuda_gemm_fused(t->d, &o);
}

/* A router's product and the choice of experts, by one kernel of ours or by three. */
static bool run_router(struct tune *t, const struct gemm_pin *pin, const struct gemm_product *p)
{
    const struct op_router r = { .out = p->out, .x = p->x, .w = p->w };
    const struct op_moe    o = { .router_logits = p->out,
                                 .n_row = p->m,
                                 .n_expert = t->n,
                                 .top_k = t->top_k,
                                 .router_f32 = t->out == DT_F32,
                                 .renorm = true };
    if (pin->kind == &gemm_rows && cuda_moe_route_few(t->d, &o, &r, &t->list)) return true;
    if (!gemm_run(t->d, pin, p)) return false;
    cuda_moe_lists(t->d, &o, &t->list, 0, p->m);
    return true;
}

/* The product, and for few rows what stands around it. false: it does not run. */
static bool run_whole(struct tune *t, const struct gemm_pin *pin, uint32_t m, uint32_t i)
{
    struct device        *dev = &t->d->impl.dev;
    struct gemm_product   p = product_of(t, m, i);
    const struct op_fused o = {
        .out = t->z, .x = t->x, .w = p.w, .norm = t->norm ? t->weight : NULL, .eps = 1e-6f, .m = m, .end = t->end
    };
    if (m <= GEMM_FUSED_ROWS && t->top_k) return run_router(t, pin, &p);
    if (m > GEMM_FUSED_ROWS || (!t->norm && t->end == OP_END_STORE)) return gemm_run(t->d, pin, &p);
    if (pin->kind == &gemm_rows && joined(t, o)) return true;
    if (t->norm) {
        cuda_add_rmsnorm(dev, t->h, t->x, t->delta, o.norm, m, t->k, o.eps);
        p.x = t->h;
    }
    if (!gemm_run(t->d, pin, &p)) return false;
    if (t->end == OP_END_GLU) cuda_glu(dev, t->z, t->y, m, t->n / 2, o.act);
    return true;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Median over BATCHES of the mean time of a product, in seconds; INFINITY: it does not run. */
static double time_pin(struct tune *t, const struct gemm_pin *pin, uint32_t m)
{
    uint32_t runs = t->cfg->runs ? t->cfg->runs : 20, each = (runs + BATCHES - 1) / BATCHES, turn = 0;
    double   s[BATCHES];
    for (int b = -1; b < BATCHES; b++) { /* the first is to warm up */
        float ms = 0;
        cudaEventRecord(t->from, t->d->stream);
        for (uint32_t i = 0; i < each; i++) {
            if (!run_whole(t, pin, m, turn++ % t->n_copy)) return INFINITY;
        }
        cudaEventRecord(t->to, t->d->stream);
        if (!cuda_ok(t->d, cudaEventSynchronize(t->to), "tune") ||
            !cuda_ok(t->d, cudaEventElapsedTime(&ms, t->from, t->to), "tune")) {
            t->st = ST_DEVICE;
            return INFINITY;
        }
        if (b >= 0) s[b] = (double)ms * 1e-3 / each;
    }
    qsort(s, BATCHES, sizeof *s, by_value);
    return s[BATCHES / 2];
}

static int config_of(struct tune *t, const struct lt_algo *a, int attr)
{
    int    v = -1;
    size_t n;
    if (gemm_is_ours(a)) return -1;
    return t->d->blas->lt.config_get(a, attr, &v, sizeof v, &n) == LT_OK ? v : -1;
}

static void keep(struct tune *t, const struct lt_algo *a, uint32_t m, double s, double err, uint32_t n_candidate)
{
    double bytes = ((double)t->n * t->k + (double)m * t->k) * 2 + (double)m * t->n * (double)dtype_bytes(t->out);
    struct gemm_file_row r = { .n = t->n,
                               .k = t->k,
                               .bucket = m,
                               .in = t->in,
                               .out = t->out,
                               .algo = *a,
                               .tile = config_of(t, a, LT_CONFIG_TILE),
                               .stages = config_of(t, a, LT_CONFIG_STAGES),
                               .splitk = config_of(t, a, LT_CONFIG_SPLITK),
                               .us = s * 1e6,
                               .gbs = bytes / s * 1e-9,
                               .tflops = 2.0 * m * t->n * t->k / s * 1e-12,
                               .err = err };
    const char          *mark = gemm_is_ours(a) ? "ours" : "    ";
    if (gemm_file_add(&t->file, &r)) t->st = ST_NOMEM;
    say(t,
        "%7u x %-7u %-4s %5u %s %10.2f us %8.1f GB/s %8.2f TFLOP/s  tile %-4d stages %-3d split %-3d err %.1e, of %u",
        t->n, t->k, t->out == DT_F32 ? "f32" : "act", m, mark, r.us, r.gbs, r.tflops, r.tile, r.stages, r.splitk, err,
        n_candidate);
}

static float error_of(struct tune *t, const struct gemm_pin *pin, uint32_t m)
{
    struct gemm_product p = product_of(t, m < CHECK_ROWS ? m : CHECK_ROWS, 0);
    return gemm_error(t->d, pin, &p);
}

static void tune_bucket(struct tune *t, uint32_t bucket)
{
    struct lt_algo algo[GEMM_CANDIDATES];
    uint32_t       m = gemm_bucket_rows(bucket), lo = bucket ? gemm_bucket_rows(bucket - 1) + 1 : 1;
    uint32_t       want = t->cfg->n_candidate ? t->cfg->n_candidate : 16, best = UINT32_MAX;
    uint32_t       n = gemm_candidates(t->d->blas, m, t->n, t->k, t->in, t->out, GEMM_WORKSPACE, want, algo);
    double         best_s = INFINITY, best_err = 0;
    for (uint32_t i = 0; i < n && !t->st; i++) {
        struct gemm_pin pin = { .kind = &gemm_lt, .algo = algo[i] };
        if (!gemm_takes(t->d->blas, &algo[i], lo, t->n, t->k, t->in, t->out, GEMM_WORKSPACE)) continue;
        float err = error_of(t, &pin, m);
        if (!(err <= gemm_error_max(t->out))) {
            say(t, "%7u x %-7u %5u: candidate %u is wrong by %g, left out", t->n, t->k, m, i, (double)err);
            continue;
        }
        double s = time_pin(t, &pin, m);
        if (s < best_s) {
            best_s = s;
            best = i;
            best_err = (double)err;
        }
    }
    struct gemm_pin ours = { .kind = &gemm_rows };
    double          ours_s = t->st ? INFINITY : time_pin(t, &ours, m);
    if (ours_s < best_s)
        keep(t, &ours.algo, m, ours_s, (double)error_of(t, &ours, m), n);
    else if (best != UINT32_MAX)
        keep(t, &algo[best], m, best_s, best_err, n);
}

static char *take(struct tune *t, size_t bytes)
{
    void *p = NULL;
    if (!t->st) t->st = cuda_alloc(&t->d->impl.dev, bytes, &p);
    return p;
}

static void take_lists(struct tune *t, const struct dev_matrix *x)
{
    size_t n_slot = (size_t)GEMM_FUSED_ROWS * x->top_k;
    t->list.expert = (uint32_t *)(void *)take(t, (n_slot + 3) * sizeof(uint32_t));
    t->list.order = (uint32_t *)(void *)take(t, n_slot * sizeof(uint32_t));
    t->list.start = (uint32_t *)(void *)take(t, (x->n + 1) * sizeof(uint32_t));
    t->list.weight = (float *)(void *)take(t, n_slot * sizeof(float));
    t->d->moe_arrived = (uint32_t *)(void *)take(t, sizeof(uint32_t));
}

static void take_around(struct tune *t, const struct dev_matrix *x)
{
    t->norm = x->norm;
    t->end = x->end;
    t->h = take(t, (size_t)GEMM_FUSED_ROWS * x->k * 2);
    t->delta = take(t, (size_t)GEMM_FUSED_ROWS * x->k * 2);
    t->z = take(t, (size_t)GEMM_FUSED_ROWS * x->n * 2);
    t->weight = (float *)(void *)take(t, (size_t)x->k * sizeof(float));
    t->top_k = x->top_k;
    if (t->top_k) take_lists(t, x);
    float *one = malloc(x->k * sizeof *one);
    if (!one) t->st = ST_NOMEM;
    for (uint32_t i = 0; one && i < x->k; i++) one[i] = 1;
    if (!t->st) cuda_to_device(&t->d->impl.dev, t->weight, one, x->k * sizeof *one);
    free(one);
}

static void tune_matrix(struct tune *t, const struct dev_matrix *x)
{
    size_t   mark = t->d->used, bytes = (size_t)x->n * x->k * 2;
    uint32_t copies = bytes ? (uint32_t)(COLD_BYTES / bytes) + 1 : 1;
    t->n = x->n;
    t->k = x->k;
    t->in = t->d->impl.dev.act;
    t->out = x->logits ? DT_F32 : t->in;
    t->rows_max = t->cfg->rows_max && t->cfg->rows_max < GEMM_ROWS_MAX ? t->cfg->rows_max : GEMM_ROWS_MAX;
    if (x->logits && t->rows_max > LOGIT_ROWS) t->rows_max = LOGIT_ROWS; /* logits are wanted of few rows */
    uint32_t rows = t->rows_max > CHECK_ROWS ? t->rows_max : CHECK_ROWS;
    t->x = take(t, (size_t)rows * x->k * 2);
    t->y = take(t, (size_t)rows * x->n * dtype_bytes(t->out));
    take_around(t, x);
    t->n_copy = copies > COPIES_MAX ? COPIES_MAX : copies;
    if (copies < COPIES_MIN) t->n_copy = COPIES_MIN;
    for (uint32_t i = 0; i < t->n_copy && !t->st; i++) {
        if (i >= 2 && t->d->size - t->d->used < bytes + GEMM_ALIGN) { /* two large ones are cold as well */
            t->n_copy = i;
            break;
        }
        t->copy[i] =
            (struct dev_weight){ .data = take(t, bytes), .dtype = t->in, .n = x->n, .k = x->k, .bytes = bytes };
        if (!t->st) cuda_fill(t->d, t->copy[i].data, t->in, x->n, x->k, 100 + i, 0, 0, x->k, 1);
    }
    if (t->st == ST_NOMEM)
        LOG_ERROR("tune: [%u, %u] with %u rows does not fit the GPU's memory; --rows makes fewer", x->n, x->k,
                  t->rows_max);
    if (!t->st) cuda_fill(t->d, t->x, t->in, rows, x->k, 1, 0, 0, x->k, 1);
    if (!t->st && cuda_sync(&t->d->impl.dev)) t->st = ST_DEVICE; /* gemm_rows asks for weights ahead of its wait */
    for (uint32_t b = 0; b < GEMM_BUCKETS && !t->st && gemm_bucket_rows(b) <= t->rows_max; b++) tune_bucket(t, b);
    if (cuda_sync(&t->d->impl.dev) && !t->st) t->st = ST_DEVICE;
    t->d->used = mark;
}

enum status cuda_tune(const struct dev_tune_cfg *cfg, char *out_path, size_t out_path_bytes)
{
    struct dev_cfg dev = { .kind = DEV_CUDA,
                           .act = cfg->act,
                           .arena_bytes = ARENA,
                           .ordinal = cfg->ordinal,
                           .n_rank = 1,
                           .cublaslt = cfg->cublaslt };
    struct device *d;
    char           err[500];
    enum status    st = dev_open(&dev, &d);
    if (st) return st;
    struct tune       t = { .d = cuda_of(d), .cfg = cfg };
    struct cuda_blas *b = t.d->blas;
    if (!b->h) {
        LOG_ERROR("tune: there is no cuBLASLt whose algorithms could be chosen");
        dev_close(d);
        return ST_CONFIG;
    }
    snprintf(t.file.gpu, sizeof t.file.gpu, "%s", b->gpu);
    t.file.arch = t.d->arch;
    t.file.version = b->version;
    t.file.workspace_bytes = GEMM_WORKSPACE;
    if (!cuda_ok(t.d, cudaEventCreate(&t.from), "tune") || !cuda_ok(t.d, cudaEventCreate(&t.to), "tune"))
        t.st = ST_DEVICE;
    for (uint32_t i = 0; i < cfg->n_matrix && !t.st; i++) tune_matrix(&t, &cfg->matrix[i]);
    if (!t.st) {
        if (cfg->output && *cfg->output)
            snprintf(out_path, out_path_bytes, "%s", cfg->output);
        else
            gemm_file_name(b->gpu, t.d->arch, b->version, out_path, out_path_bytes);
        t.st = gemm_file_write(out_path, &t.file, err, sizeof err);
        if (t.st) LOG_ERROR("tune: %s", err);
    }
    if (t.from) cudaEventDestroy(t.from);
    if (t.to) cudaEventDestroy(t.to);
    gemm_file_free(&t.file);
    dev_close(d);
    return t.st;
}
