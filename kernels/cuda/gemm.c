/* gemm: out[m, n] = x[m, k] * w[n, k]^T on the GPU, by the algorithm that is pinned for (n, k, types) and the bucket of m.
 * Weights are op T there: our row-major w [n, k] is its column-major [k, n], x is [k, m], out is [n, m]; fp32 compute. */
#include "kernels/cuda/gemm.h"
#include "base/check.h"
#include "base/log.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint32_t buckets[GEMM_BUCKETS] = {
    1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1024, 2048, 4096, GEMM_ROWS_MAX
};

uint32_t gemm_bucket_rows(uint32_t bucket) { return buckets[bucket]; }

uint32_t gemm_bucket(uint32_t m)
{
    uint32_t b = 0;
    while (b + 1 < GEMM_BUCKETS && buckets[b] < m) b++;
    return b;
}

/* ---------------------------------------------------------------- the library's view */

static int lt_type(enum dtype t) { return t == DT_F32 ? LT_R_32F : t == DT_F16 ? LT_R_16F : LT_R_16BF; }

/* Bytes, up to 16, that divide every row's address when the matrix begins at a multiple of 16. */
static uint32_t row_align(uint32_t n, enum dtype t)
{
    uint64_t bytes = (uint64_t)n * dtype_bytes(t), low = bytes & (~bytes + 1);
    return low > 16 ? 16 : (uint32_t)low;
}

void gemm_problem_init(struct cuda_blas *b, struct gemm_problem *p, uint32_t m, uint32_t n, uint32_t k, enum dtype in, enum dtype out)
{
    int op_t = LT_OP_T;
    b->lt.desc_init(&p->op, sizeof p->op, LT_COMPUTE_32F, LT_R_32F);
    b->lt.desc_set(&p->op, LT_DESC_TRANSA, &op_t, sizeof op_t);
    b->lt.layout_init(&p->a, sizeof p->a, lt_type(in), k, n, k);
    b->lt.layout_init(&p->b, sizeof p->b, lt_type(in), k, m, k);
    b->lt.layout_init(&p->d, sizeof p->d, lt_type(out), n, m, n);
}

uint32_t gemm_candidates(struct cuda_blas *b, uint32_t m, uint32_t n, uint32_t k, enum dtype in, enum dtype out, bool exact, uint32_t want,
                         struct lt_algo *out_algo)
{
    struct gemm_problem p;
    struct lt_pref      pref;
    struct lt_result    r[GEMM_CANDIDATES];
    uint64_t            workspace = GEMM_WORKSPACE;
    uint32_t            none = LT_REDUCTION_NONE, align[4] = { row_align(k, in), row_align(k, in), row_align(n, out), row_align(n, out) };
    int                 n_r = 0;
    uint32_t            n_out = 0;
    if (want > GEMM_CANDIDATES) want = GEMM_CANDIDATES;
    gemm_problem_init(b, &p, m, n, k, in, out);
    b->lt.pref_init(&pref, sizeof pref);
    b->lt.pref_set(&pref, LT_PREF_WORKSPACE_BYTES, &workspace, sizeof workspace);
    if (exact) b->lt.pref_set(&pref, LT_PREF_REDUCTION_MASK, &none, sizeof none);
    for (int i = 0; i < 4; i++) b->lt.pref_set(&pref, LT_PREF_ALIGN_A + i, &align[i], sizeof align[i]);
    if (b->lt.heuristic(b->h, &p.op, &p.a, &p.b, &p.d, &p.d, &pref, (int)want, r, &n_r) != LT_OK) return 0;
    for (int i = 0; i < n_r; i++)
        if (r[i].state == LT_OK && r[i].workspace_bytes <= GEMM_WORKSPACE && (!exact || gemm_is_exact(b, &r[i].algo)))
            out_algo[n_out++] = r[i].algo;
    return n_out;
}

bool gemm_takes(struct cuda_blas *b, const struct lt_algo *a, uint32_t m, uint32_t n, uint32_t k, enum dtype in, enum dtype out)
{
    struct gemm_problem p;
    struct lt_result    r;
    gemm_problem_init(b, &p, m, n, k, in, out);
    return b->lt.check(b->h, &p.op, &p.a, &p.b, &p.d, &p.d, a, &r) == LT_OK && r.workspace_bytes <= GEMM_WORKSPACE;
}

bool gemm_is_exact(struct cuda_blas *b, const struct lt_algo *a)
{
    int      splitk = 0;
    uint32_t reduction = 0;
    size_t   n;
    if (b->lt.config_get(a, LT_CONFIG_SPLITK, &splitk, sizeof splitk, &n) != LT_OK) return false;
    if (b->lt.config_get(a, LT_CONFIG_REDUCTION, &reduction, sizeof reduction, &n) != LT_OK) return false;
    return splitk >= 0 && splitk <= 1 && reduction == LT_REDUCTION_NONE; /* below 0: split as the library likes (stream-K) */
}

/* ---------------------------------------------------------------- ways to multiply */

static bool run_plain(struct cuda_dev *d, const struct gemm_pin *pin, void *out, enum dtype out_t, const void *x, const void *w, uint32_t m,
                      uint32_t n, uint32_t k)
{
    (void)pin;
    cuda_gemm_plain(d, out, out_t, x, w, m, n, k);
    return true;
}

static bool run_lt(struct cuda_dev *d, const struct gemm_pin *pin, void *out, enum dtype out_t, const void *x, const void *w, uint32_t m,
                   uint32_t n, uint32_t k)
{
    static const float  one = 1, zero = 0;
    struct cuda_blas   *b = d->blas;
    struct gemm_problem p;
    uint32_t            align = row_align(k, d->impl.dev.act), align_out = row_align(n, out_t);
    if (((uintptr_t)x & (align - 1)) || ((uintptr_t)out & (align_out - 1))) return false; /* it was asked for aligned rows */
    gemm_problem_init(b, &p, m, n, k, d->impl.dev.act, out_t);
    int         st;
    cudaError_t e;
    bool        again = cuda_may_relaunch(d);
    for (;; again = false) { /* as LAUNCH does, whatever the library says of a launch of its own that was refused */
        st = b->lt.matmul(b->h, &p.op, &one, w, &p.a, x, &p.b, &zero, out, &p.d, out, &p.d, &pin->algo, b->workspace, GEMM_WORKSPACE,
                          d->stream);
        e = cudaPeekAtLastError();
        if (e == cudaSuccess || !again || !cuda_relaunch(d)) break;
    }
    if (e != cudaSuccess && d->step) {
        cuda_ok(d, e, "cuBLASLt");
        return true;
    }
    if (st == LT_OK) return true;
    if (st == LT_ALLOC_FAILED && d->deterministic && d->step) { /* may pass: the step is run again, as after a launch that was refused */
        cuda_ok(d, cudaErrorMemoryAllocation, "cuBLASLt");
        return true;
    }
    if (d->deterministic && d->step) { /* the plain kernel gives other bits than what the cache may hold from this one */
        if (cuda_lose(d))
            LOG_ERROR(
                "dev: gpu %d: cuBLASLt refuses its algorithm for [%u, %u] x [%u, %u] (status %d), which --deterministic relies on; the "
                "device is given up, all requests fail",
                d->ordinal, m, k, n, k, st);
        return true;
    }
    if (!b->broken)
        LOG_WARN("gemm: cuBLASLt refuses its algorithm for [%u, %u] x [%u, %u] (status %d), the plain kernel computes it, slower", m, k, n,
                 k, st);
    b->broken = true;
    return false;
}

static const struct {
    bool (*run)(struct cuda_dev *d, const struct gemm_pin *pin, void *out, enum dtype out_t, const void *x, const void *w, uint32_t m,
                uint32_t n, uint32_t k); /* false: it did nothing */
} kinds[GEMM_KINDS] = { [GEMM_PLAIN] = { run_plain }, [GEMM_LT] = { run_lt } };

bool gemm_run(struct cuda_dev *d, const struct gemm_pin *pin, void *out, enum dtype out_t, const void *x, const void *w, uint32_t m,
              uint32_t n, uint32_t k)
{
    if (d->skip) return true;
    return kinds[pin->kind].run(d, pin, out, out_t, x, w, m, n, k);
}

/* ---------------------------------------------------------------- is it right */

/* bf16 and f16 round the result to 8 and 11 bits; the rest is the order of the sum. */
float gemm_error_max(enum dtype out) { return out == DT_F32 ? 1e-3f : out == DT_F16 ? 2e-3f : 1e-2f; }

/* Two words of the device for an answer: the end of the workspace, which no algorithm of a check needs whole. */
static void *answer_at(struct cuda_dev *d) { return (char *)d->blas->workspace + GEMM_WORKSPACE; }

float gemm_error(struct cuda_dev *d, const struct gemm_pin *pin, void *out, enum dtype out_t, const void *x, const void *w, uint32_t m,
                 uint32_t n, uint32_t k)
{
    float worst = INFINITY;
    cudaMemsetAsync(out, 0xff, (size_t)m * n * dtype_bytes(out_t), d->stream); /* NaN: what is not written shows */
    cudaMemsetAsync(answer_at(d), 0, sizeof worst, d->stream);
    if (!gemm_run(d, pin, out, out_t, x, w, m, n, k)) return INFINITY;
    cuda_gemm_check(d, answer_at(d), out, out_t, x, w, m, n, k);
    if (!cuda_ok(d, cudaMemcpyAsync(&worst, answer_at(d), sizeof worst, cudaMemcpyDeviceToHost, d->stream), "gemm check") ||
        !cuda_ok(d, cudaStreamSynchronize(d->stream), "gemm check"))
        return INFINITY;
    return worst;
}

/* m rows against each of some of them alone: what differs is counted at answer_at */
static bool rows_differ(struct cuda_dev *d, const struct gemm_pin *pin, char *out, void *alone, enum dtype out_t, const char *x,
                        const void *w, uint32_t m, uint32_t n, uint32_t k)
{
    size_t         row = (size_t)n * dtype_bytes(out_t), x_row = (size_t)k * dtype_bytes(d->impl.dev.act);
    const uint32_t at[] = { 0, 1, m / 3, m / 2, m - 2, m - 1 };
    if (!gemm_run(d, pin, out, out_t, x, w, m, n, k)) return false;
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        if (at[i] >= m || (i && at[i] <= at[i - 1])) continue;
        if (!gemm_run(d, pin, alone, out_t, x + at[i] * x_row, w, 1, n, k)) return false;
        cuda_gemm_differ(d, answer_at(d), out + at[i] * row, alone, row);
    }
    return true;
}

bool gemm_rows_alone(struct cuda_dev *d, const struct gemm_pin *pin, void *out, void *alone, enum dtype out_t, const void *x, const void *w,
                     uint32_t m, uint32_t n, uint32_t k)
{
    /* on both sides of the sizes of tiles, and where waves of them fill the GPU in other ways */
    static const uint32_t ms[] = { 2, 3, 8, 15, 17, 33, 64, 65, 128, 129, 200, 256, 500, 1024, 1500, 2048, 3000, 4096, 6000 };
    uint32_t              differ = 1;
    cudaMemsetAsync(answer_at(d), 0, sizeof differ, d->stream);
    for (size_t i = 0; i < sizeof ms / sizeof *ms && ms[i] < m; i++)
        if (!rows_differ(d, pin, out, alone, out_t, x, w, ms[i], n, k)) return false;
    if (!rows_differ(d, pin, out, alone, out_t, x, w, m, n, k)) return false;
    return cuda_ok(d, cudaMemcpyAsync(&differ, answer_at(d), sizeof differ, cudaMemcpyDeviceToHost, d->stream), "gemm check") &&
           cuda_ok(d, cudaStreamSynchronize(d->stream), "gemm check") && differ == 0;
}

/* ---------------------------------------------------------------- pins */

/* Room in the arena's unused end, while loading: nothing is kept there. NULL: too little. */
struct room {
    char    *x, *out, *alone;
    uint32_t m; /* rows that fit */
};
static size_t up(size_t n) { return (n + GEMM_ALIGN - 1) / GEMM_ALIGN * GEMM_ALIGN; }

enum { LOGIT_ROWS = 512 };
#ifdef CUDA_EMU
enum { CHECK_ROWS = 6, EXACT_ROWS = 24 }; /* a row costs thousands of times as much there */
#else
enum { CHECK_ROWS = 256, EXACT_ROWS = GEMM_ROWS_MAX };
#endif

static struct room check_room(struct cuda_dev *d, uint32_t n, uint32_t k, enum dtype out)
{
    size_t      used = up(d->used), left = d->size > used ? d->size - used : 0;
    size_t      x_row = (size_t)k * dtype_bytes(d->impl.dev.act), out_row = (size_t)n * dtype_bytes(out);
    struct room r = { NULL, NULL, NULL, CHECK_ROWS };
    if (d->deterministic) { /* as many as a step may have: their bits are compared */
        r.m = d->rows_max && d->rows_max < EXACT_ROWS ? d->rows_max : EXACT_ROWS;
        if (out == DT_F32 && r.m > LOGIT_ROWS) r.m = LOGIT_ROWS;
    }
    while (r.m && up(r.m * x_row) + up(r.m * out_row) + up(out_row) > left) r.m /= 2;
    if (!r.m) return r;
    r.x = d->arena + used;
    r.out = r.x + up(r.m * x_row);
    r.alone = r.out + up(r.m * out_row);
    return r;
}

static bool algo_same(const struct gemm_pin *a, const struct gemm_pin *b)
{
    return a->kind == b->kind && (a->kind != GEMM_LT || !memcmp(&a->algo, &b->algo, sizeof a->algo));
}

/* Right over its bucket's ends, and, where it must be, the same bits for a row alone. w holds numbers, or is NULL: unchecked. */
static bool pin_holds(struct cuda_dev *d, const struct gemm_shape *s, const struct gemm_pin *pin, uint32_t lo, uint32_t hi,
                      const struct room *r, const void *w, bool exact)
{
    enum dtype in = d->impl.dev.act;
    if (pin->kind == GEMM_LT &&
        (!gemm_takes(d->blas, &pin->algo, lo, s->n, s->k, in, s->out) || !gemm_takes(d->blas, &pin->algo, hi, s->n, s->k, in, s->out)))
        return false;
    if (!w || !r->m) return true;
    uint32_t m = hi < r->m ? hi : r->m;
    if (m > CHECK_ROWS) m = CHECK_ROWS;
    float err = gemm_error(d, pin, r->out, s->out, r->x, w, m, s->n, s->k);
    if (!(err <= gemm_error_max(s->out))) {
        LOG_WARN("gemm: an algorithm for [%u, %u] and %u rows is wrong by %g, not used", s->n, s->k, m, (double)err);
        return false;
    }
    return !exact || gemm_rows_alone(d, pin, r->out, r->alone, s->out, r->x, w, r->m, s->n, s->k);
}

static const struct gemm_pin plain_pin = { .kind = GEMM_PLAIN };

/* One algorithm for all numbers of rows: the file's, else the first that holds of those that suit few rows. */
static void pin_exact(struct cuda_dev *d, struct gemm_shape *s, const struct room *r, const void *w)
{
    struct cuda_blas           *b = d->blas;
    enum dtype                  in = d->impl.dev.act;
    struct lt_algo              algo[GEMM_CANDIDATES];
    const struct gemm_file_row *row = gemm_file_find(&b->file, s->n, s->k, in, s->out, UINT32_MAX);
    struct gemm_pin             pin = { .kind = GEMM_LT, .tuned = true };
    bool                        found = false;
    if (row) pin.algo = row->algo, found = gemm_is_exact(b, &pin.algo) && pin_holds(d, s, &pin, 1, GEMM_ROWS_MAX, r, w, true);
    uint32_t n = found ? 0 : gemm_candidates(b, 16, s->n, s->k, in, s->out, true, GEMM_CANDIDATES, algo);
    for (uint32_t i = 0; i < n && !found; i++) {
        pin = (struct gemm_pin){ .kind = GEMM_LT, .algo = algo[i] };
        found = pin_holds(d, s, &pin, 1, GEMM_ROWS_MAX, r, w, true);
    }
    for (uint32_t i = 0; i < GEMM_BUCKETS; i++) s->pin[i] = found ? pin : plain_pin;
}

static void pin_bucket(struct cuda_dev *d, struct gemm_shape *s, uint32_t i, const struct room *r, const void *w)
{
    if (s->out == DT_F32 && buckets[i] > LOGIT_ROWS) { /* nobody asks for the logits of so many rows at one time, but it must work */
        s->pin[i] = s->pin[i - 1];
        if (s->pin[i].kind == GEMM_LT && !gemm_takes(d->blas, &s->pin[i].algo, buckets[i], s->n, s->k, d->impl.dev.act, s->out))
            s->pin[i] = plain_pin;
        return;
    }
    struct cuda_blas           *b = d->blas;
    enum dtype                  in = d->impl.dev.act;
    uint32_t                    lo = i ? buckets[i - 1] + 1 : 1, hi = buckets[i];
    struct lt_algo              algo[4];
    const struct gemm_file_row *row = gemm_file_find(&b->file, s->n, s->k, in, s->out, hi);
    struct gemm_pin             pin = { .kind = GEMM_LT, .tuned = true };
    const void                 *check = w;
    if (row) {
        pin.algo = row->algo;
        if (pin_holds(d, s, &pin, lo, hi, r, check, false)) {
            s->pin[i] = pin;
            return;
        }
    }
    uint32_t n = gemm_candidates(b, hi, s->n, s->k, in, s->out, false, 4, algo);
    s->pin[i] = plain_pin;
    for (uint32_t c = 0; c < n; c++) {
        pin = (struct gemm_pin){ .kind = GEMM_LT, .algo = algo[c] };
        if (i && algo_same(&pin, &s->pin[i - 1])) check = NULL; /* it has just been looked at */
        if (!pin_holds(d, s, &pin, lo, hi, r, check, false)) continue;
        s->pin[i] = pin;
        return;
    }
}

static void shape_pin(struct cuda_dev *d, struct gemm_shape *s, void *w)
{
    struct cuda_blas *b = d->blas;
    struct room       r = { NULL, NULL, NULL, 0 };
    for (uint32_t i = 0; i < GEMM_BUCKETS; i++) s->pin[i] = plain_pin;
    if (!b->h || (d->deterministic && !w)) return; /* what was not compared is not relied on */
    if (w) {
        r = check_room(d, s->n, s->k, s->out);
        cuda_fill(d, w, d->impl.dev.act, s->n, s->k, 1, 0, 0, s->k, 1);
        if (r.m) cuda_fill(d, r.x, d->impl.dev.act, r.m, s->k, 2, 0, 0, s->k, 1);
    }
    bool known = false;
    if (d->deterministic)
        pin_exact(d, s, &r, w);
    else
        for (uint32_t i = 0; i < GEMM_BUCKETS; i++) pin_bucket(d, s, i, &r, w);
    if (w) cuda_ok(d, cudaStreamSynchronize(d->stream), "gemm check"); /* others write to the matrix next, on streams of their own */
    /* the file has the output type that the matrix is used with, and for logits few rows: one tuned row shows that it was tuned for */
    for (uint32_t i = 0; i < b->file.n_row; i++) known = known || (b->file.row[i].n == s->n && b->file.row[i].k == s->k);
    if (!known && !b->told) {
        LOG_INFO("gemm: no tuned algorithms for [%u, %u] on %s: the library's first choice is pinned; `spillway tune` finds better ones",
                 s->n, s->k, b->gpu);
        b->told = true;
    }
}

static struct gemm_shape *shape_of(struct cuda_dev *d, uint32_t n, uint32_t k, enum dtype out, void *w)
{
    struct cuda_blas *b = d->blas;
    for (uint32_t i = 0; i < b->n_shape; i++)
        if (b->shape[i].n == n && b->shape[i].k == k && b->shape[i].out == out) return &b->shape[i];
    if (b->n_shape == GEMM_SHAPES_MAX) return NULL;
    struct gemm_shape *s = &b->shape[b->n_shape];
    *s = (struct gemm_shape){ .n = n, .k = k, .out = out };
    shape_pin(d, s, w);
    b->n_shape++;
    return s;
}

void cuda_blas_seen(struct cuda_dev *d, const struct dev_weight *w)
{
    if (!d->blas || w->dtype != d->impl.dev.act) return;
    shape_of(d, w->n, w->k, d->impl.dev.act, w->data);
    shape_of(d, w->n, w->k, DT_F32, w->data); /* any matrix may be a head */
}

/* ---------------------------------------------------------------- ops */

static void multiply(struct cuda_dev *d, void *out, enum dtype out_t, const void *x, const struct dev_weight *w, uint32_t m)
{
    CHECK(w->dtype == d->impl.dev.act);
    /* a matrix that nobody announced is pinned now, without looking at its numbers: they are the caller's; when bits must hold, as plain */
    const struct gemm_shape *s = shape_of(d, w->n, w->k, out_t, NULL);
    for (uint32_t m0 = 0; m0 < m; m0 += GEMM_ROWS_MAX) {
        uint32_t               rows = m - m0 < GEMM_ROWS_MAX ? m - m0 : GEMM_ROWS_MAX;
        const char            *from = (const char *)x + (size_t)m0 * w->k * dtype_bytes(w->dtype);
        char                  *to = (char *)out + (size_t)m0 * w->n * dtype_bytes(out_t);
        const struct gemm_pin *pin = s ? &s->pin[gemm_bucket(rows)] : &plain_pin;
        if (!gemm_run(d, pin, to, out_t, from, w->data, rows, w->n, w->k)) cuda_gemm_plain(d, to, out_t, from, w->data, rows, w->n, w->k);
    }
}

void cuda_linear(struct device *dev, void *out, const void *x, const struct dev_weight *w, const float *bias, uint32_t m)
{
    struct cuda_dev *d = cuda_of(dev);
    if (!m) return;
    multiply(d, out, dev->act, x, w, m);
    if (bias) cuda_add_bias(d, out, bias, m, w->n);
}

void cuda_logits(struct device *dev, float *out, const void *x, const struct dev_weight *w, uint32_t m)
{
    if (m) multiply(cuda_of(dev), out, DT_F32, x, w, m);
}

/* ---------------------------------------------------------------- life */

uint64_t cuda_blas_bytes(void) { return GEMM_WORKSPACE + GEMM_ALIGN; }

static void file_open(struct cuda_dev *d)
{
    struct cuda_blas *b = d->blas;
    char              err[400], usual[400];
    const char *path = d->gemm_file && *d->gemm_file ? d->gemm_file : gemm_file_name(b->gpu, d->arch, b->version, usual, sizeof usual);
    enum status st = gemm_file_read(path, &b->file, err, sizeof err);
    if (!st && (strcmp(b->file.gpu, b->gpu) != 0 || b->file.arch != d->arch)) {
        snprintf(err, sizeof err, "%s: for %s (sm_%d), this is %s (sm_%d)", path, b->file.gpu, b->file.arch, b->gpu, d->arch);
        st = ST_CONFIG;
    } else if (!st && (b->file.version != b->version || b->file.workspace_bytes != GEMM_WORKSPACE)) {
        snprintf(err, sizeof err, "%s: for cuBLASLt %zu with %zu bytes of workspace, this is %zu with %d", path, b->file.version,
                 b->file.workspace_bytes, b->version, GEMM_WORKSPACE);
        st = ST_CONFIG;
    }
    if (!st) {
        LOG_INFO("gemm: %u tuned algorithms from %s", b->file.n_row, path);
        return;
    }
    gemm_file_free(&b->file);
    if (st != ST_NOT_FOUND || (d->gemm_file && *d->gemm_file)) LOG_WARN("gemm: %s; not used, `spillway tune` makes a new one", err);
}

enum status cuda_blas_init(struct cuda_dev *d)
{
    struct cudaDeviceProp prop;
    char                  err[400];
    void                 *workspace;
    enum status           st = cuda_alloc(&d->impl.dev, (size_t)cuda_blas_bytes(), &workspace);
    if (st) return st;
    struct cuda_blas *b = calloc(1, sizeof *b);
    if (!b) return ST_NOMEM;
    b->workspace = (void *)up((uintptr_t)workspace);
    d->blas = b;
    if (!cuda_ok(d, cudaGetDeviceProperties(&prop, d->ordinal), "device properties")) return ST_DEVICE;
    snprintf(b->gpu, sizeof b->gpu, "%.95s", prop.name);
    if (cublaslt_load(d->cublaslt, &b->lt, err, sizeof err)) {
        LOG_WARN("gemm: %s; our own plain kernel multiplies, several times slower", err);
        return ST_OK;
    }
    int lt_st = b->lt.create(&b->h);
    if (lt_st != LT_OK) {
        LOG_WARN("gemm: cuBLASLt %zu does not start (status %d); our own plain kernel multiplies, several times slower", b->lt.version(),
                 lt_st);
        b->h = NULL;
        return ST_OK;
    }
    b->version = b->lt.version();
    file_open(d);
    return ST_OK;
}

void cuda_blas_free(struct cuda_dev *d)
{
    if (!d->blas) return;
    if (d->blas->h) d->blas->lt.destroy(d->blas->h);
    gemm_file_free(&d->blas->file);
    free(d->blas);
    d->blas = NULL;
}
