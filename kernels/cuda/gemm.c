/* gemm: out[m, n] = x[m, k] * w[n, k]^T on the GPU, by the algorithm that is pinned for (n, k, types) and the bucket of
 * m. */
#include "kernels/cuda/gemm.h"
#include "base/check.h"
#include "base/log.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint32_t buckets[GEMM_BUCKETS] = { 1,   2,   4,   8,   16,  24,   32,   48,   64,           96,
                                                128, 192, 256, 384, 512, 1024, 2048, 4096, GEMM_ROWS_MAX };

uint32_t gemm_bucket_rows(uint32_t bucket) { return buckets[bucket]; }

uint32_t gemm_bucket(uint32_t m)
{
    uint32_t b = 0;
    while (b + 1 < GEMM_BUCKETS && buckets[b] < m) b++;
    return b;
}

/* ---------------------------------------------------------------- ways to multiply */

static bool rows_mul(struct cuda_dev *d, const struct gemm_pin *pin, const struct gemm_product *p)
{
    (void)pin;
    cuda_gemm_rows(d, p->out, p->out_t, p->x, p->w->data, p->m, p->w->n, p->w->k);
    return true;
}

static bool rows_fused(struct cuda_dev *d, const struct gemm_pin *pin, const struct op_fused *o)
{
    (void)pin;
    return cuda_gemm_fused(d, o);
}

/* Where tune has found it faster than the library. */
static uint32_t rows_offer(struct cuda_dev *d, const struct gemm_shape *s, const struct gemm_want *want, bool tuned,
                           struct gemm_pin *pin_out)
{
    if (!tuned) return 0;
    const struct gemm_file_row *row = gemm_file_find(&d->blas->file, s->n, s->k, d->impl.dev.act, s->out, want->hi);
    if (!row || !gemm_is_ours(&row->algo)) return 0;
    *pin_out = (struct gemm_pin){ .kind = &gemm_rows, .tuned = true };
    return 1;
}

const struct cuda_gemm_kind gemm_rows = {
    .name = "rows", .last = true, .offer = rows_offer, .mul = rows_mul, .fused = rows_fused
};

static bool codes_mul(struct cuda_dev *d, const struct gemm_pin *pin, const struct gemm_product *p)
{
    (void)pin;
    if (!cuda_codes_fp8(d, p) && !cuda_codes_wide(d, p)) cuda_gemm_codes(d, p);
    return true;
}

static bool codes_fused(struct cuda_dev *d, const struct gemm_pin *pin, const struct op_fused *o)
{
    (void)pin;
    return cuda_codes_fused(d, o);
}

#define CODES(id, type)                                                                 \
    static const struct cuda_gemm_kind gemm_##id = {                                    \
        .name = #id, .code = type, .last = true, .mul = codes_mul, .fused = codes_fused \
    };
CODES(i4, DT_I4)
CODES(f8, DT_F8E4M3)
CODES(i8, DT_I8)
CODES(f4, DT_F4E2M1)
#undef CODES

/* Best first; each kind of weights has one that is its last. */
static const struct cuda_gemm_kind *const kinds[] = { &gemm_rows, &gemm_lt, &gemm_i4, &gemm_f8, &gemm_i8, &gemm_f4 };
enum { N_KIND = sizeof kinds / sizeof *kinds };

static bool kind_suits(const struct cuda_gemm_kind *k, enum dtype code, bool act8, uint32_t m)
{
    return k->code == code && k->act8 == act8 && (!k->rows_max || m <= k->rows_max);
}

static struct gemm_pin last_pin(enum dtype code, bool act8)
{
    uint32_t i = 0;
    while (i < N_KIND && !(kinds[i]->last && kind_suits(kinds[i], code, act8, GEMM_ROWS_MAX))) i++;
    CHECK(i < N_KIND);
    return (struct gemm_pin){ .kind = kinds[i] };
}

/* p, from row m0 on m rows. */
static struct gemm_product rows_of(const struct cuda_dev *d, const struct gemm_product *p, uint32_t m0, uint32_t m)
{
    struct gemm_product part = *p;
    part.x = (const char *)p->x + (size_t)m0 * p->w->k * dtype_bytes(d->impl.dev.act);
    part.out = (char *)p->out + (size_t)m0 * p->w->n * dtype_bytes(p->out_t);
    part.m = m;
    return part;
}

/* As many rows at a time as the workspace holds when they are prepared: the next ones come on the same stream, behind
 * the product. */
static bool run_prepared(struct cuda_dev *d, const struct gemm_pin *pin, const struct gemm_product *p)
{
    const struct cuda_gemm_kind *kind = pin->kind;
    uint32_t                     most = (uint32_t)(GEMM_WORKSPACE / kind->row_bytes(p->w));
    CHECK(most > 0);
    for (uint32_t m0 = 0; m0 < p->m; m0 += most) {
        struct gemm_product part = rows_of(d, p, m0, p->m - m0 < most ? p->m - m0 : most);
        kind->prepare(d, d->blas->workspace, part.x, p->w, part.m);
        part.x = d->blas->workspace;
        if (!kind->mul(d, pin, &part)) return false;
    }
    return true;
}

bool gemm_run(struct cuda_dev *d, const struct gemm_pin *pin, const struct gemm_product *p)
{
    if (d->skip) return true;
    return pin->kind->prepare ? run_prepared(d, pin, p) : pin->kind->mul(d, pin, p);
}

/* ---------------------------------------------------------------- is it right */

/* bf16 and f16 round the result to 8 and 11 bits; the rest is the order of the sum. */
float gemm_error_max(enum dtype out)
{
    if (out == DT_F32) return 1e-3f;
    return out == DT_F16 ? 2e-3f : 1e-2f;
}

/* Two words of the device for an answer: the end of the workspace, which no algorithm of a check needs whole. */
static void *answer_at(struct cuda_dev *d) { return (char *)d->blas->workspace + GEMM_WORKSPACE; }

float gemm_error(struct cuda_dev *d, const struct gemm_pin *pin, const struct gemm_product *p)
{
    float    worst = INFINITY;
    uint32_t n = p->w->n, k = p->w->k;
    /* NaN: what is not written shows */
    cudaMemsetAsync(p->out, p->add ? 0 : 0xff, (size_t)p->m * n * dtype_bytes(p->out_t), d->stream);
    cudaMemsetAsync(answer_at(d), 0, sizeof worst, d->stream);
    if (!gemm_run(d, pin, p)) return INFINITY;
    cuda_gemm_check(d, answer_at(d), p->out, p->out_t, p->x, p->w->data, p->m, n, k);
    if (!cuda_ok(d, cudaMemcpyAsync(&worst, answer_at(d), sizeof worst, cudaMemcpyDeviceToHost, d->stream),
                 "gemm check") ||
        !cuda_ok(d, cudaStreamSynchronize(d->stream), "gemm check"))
        return INFINITY;
    return worst;
}

/* ---------------------------------------------------------------- pins */

/* Room in the arena's unused end, while loading: nothing is kept there. NULL: too little. */
struct room {
    char    *x, *out;
    uint32_t m, want; /* rows that fit, of those that are wanted */
};
static size_t up(size_t n) { return (n + GEMM_ALIGN - 1) / GEMM_ALIGN * GEMM_ALIGN; }

enum { LOGIT_ROWS = 512 /* logits are computed of so many rows at a time */ };

/* The most rows that algorithms of [n, k] are tried with. */
static uint32_t rows_tried(const struct cuda_dev *d, uint32_t n, uint32_t k, enum dtype out)
{
    uint32_t most = out == DT_F32 ? LOGIT_ROWS : GEMM_ROWS_MAX;
    if (d->rows_max && d->rows_max < most) most = d->rows_max;
#ifdef CUDA_EMU /* a row costs thousands of times as much there */
    uint32_t few = (1u << 20) / (n * k);
    if (few < 6) few = 6;
    if (few < most) most = few;
#else
    (void)n;
    (void)k;
#endif
    return most;
}

static struct room check_room(struct cuda_dev *d, uint32_t n, uint32_t k, enum dtype out)
{
    size_t      used = up(d->used), left = d->size > used ? d->size - used : 0;
    size_t      x_row = (size_t)k * dtype_bytes(d->impl.dev.act), out_row = (size_t)n * dtype_bytes(out);
    uint32_t    most = rows_tried(d, n, k, out);
    struct room r = { NULL, NULL, most, most };
    while (r.m && up(r.m * x_row) + up(r.m * out_row) > left) r.m /= 2;
    if (!r.m) return r;
    r.x = d->arena + used;
    r.out = r.x + up(r.m * x_row);
    return r;
}

/* The numbers of a product of m rows are right, or what is added to zeros where the library may be asked to add. */
static bool pin_right(struct cuda_dev *d, const struct gemm_shape *s, const struct gemm_pin *pin, const struct room *r,
                      const struct dev_weight *w, uint32_t m, bool add)
{
    struct gemm_product p = { .out = r->out, .out_t = s->out, .x = r->x, .w = w, .m = m };
    p.add = add && pin->kind == &gemm_lt && s->out != DT_F32;
    float err = gemm_error(d, pin, &p);
    if (err <= gemm_error_max(s->out)) return true;
    LOG_WARN("gemm: an algorithm for [%u, %u] and %u rows is wrong by %g, not used", s->n, s->k, m, (double)err);
    return false;
}

/* Right at both ends of its bucket, as far as there is room for so many rows: which kernel an algorithm is, how it
 * splits K and what it does with a remainder hang on the rows too. w holds numbers, or is NULL: unchecked. */
static bool pin_holds(struct cuda_dev *d, const struct gemm_shape *s, const struct gemm_pin *pin,
                      const struct gemm_want *want, const struct room *r, const struct dev_weight *w)
{
    const struct cuda_gemm_kind *kind = pin->kind;
    if (kind->takes && (!kind->takes(d, pin, s, want->lo) || !kind->takes(d, pin, s, want->hi))) return false;
    if (!w || !r->m) return true;
    uint32_t lo = want->lo < r->m ? want->lo : r->m, hi = want->hi < r->m ? want->hi : r->m;
    return pin_right(d, s, pin, r, w, hi, false) && pin_right(d, s, pin, r, w, lo, true);
}

/* The first pin that holds: kinds best first, and of each what was tuned before what is guessed. */
static struct gemm_pin pin_pick(struct cuda_dev *d, const struct gemm_shape *s, const struct gemm_want *want,
                                const struct room *r, const struct dev_weight *w)
{
    struct gemm_pin pin[GEMM_CANDIDATES];
    for (uint32_t i = 0; i < N_KIND; i++) {
        if (!kinds[i]->offer || !kind_suits(kinds[i], s->code, s->act8, want->hi)) continue;
        for (int guessed = 0; guessed < 2; guessed++) {
            uint32_t n = kinds[i]->offer(d, s, want, !guessed, pin);
            for (uint32_t c = 0; c < n; c++)
                if (pin_holds(d, s, &pin[c], want, r, w)) return pin[c];
        }
    }
    return last_pin(s->code, s->act8);
}

static void pin_bucket(struct cuda_dev *d, struct gemm_shape *s, uint32_t i, const struct room *r,
                       const struct dev_weight *w)
{
    const struct gemm_want want = { .lo = i ? buckets[i - 1] + 1 : 1, .hi = buckets[i] };
    if (d->rows_max && want.lo > d->rows_max) w = NULL; /* no step has so many rows */
    s->pin[i] = pin_pick(d, s, &want, r, w);
}

/* w: its data is overwritten with numbers to try algorithms on, plain weights alone; NULL: nothing is tried. */
static void shape_pin(struct cuda_dev *d, struct gemm_shape *s, const struct dev_weight *w)
{
    struct cuda_blas *b = d->blas;
    struct room       r = { NULL, NULL, 0, 0 };
    for (uint32_t i = 0; i < GEMM_BUCKETS; i++) s->pin[i] = last_pin(s->code, s->act8);
    s->rows_max = s->out == DT_F32 ? LOGIT_ROWS : GEMM_ROWS_MAX;
    /* The last kind gives a row the same bits for every number of rows, by construction; the library does not say. */
    if (!b->h || d->deterministic || s->code != DT_F32) return; /* codes have no other */
    if (w) {
        r = check_room(d, s->n, s->k, s->out);
        cuda_fill(d, w->data, d->impl.dev.act, s->n, s->k, 1, 0, 0, s->k, 1);
        if (r.m) cuda_fill(d, r.x, d->impl.dev.act, r.m, s->k, 2, 0, 0, s->k, 1);
        cuda_ok(d, cudaStreamSynchronize(d->stream), "gemm check"); /* gemm_rows asks for weights ahead of its wait */
    }
    bool known = false;
    for (uint32_t i = 0; i < GEMM_BUCKETS && (!i || buckets[i - 1] < s->rows_max); i++)
        if (!s->slab || buckets[i] > d->codes_wide) pin_bucket(d, s, i, &r, w);
    if (w && r.m < r.want)
        LOG_WARN("gemm: [%u, %u]: memory for %u rows is left to try algorithms with; for more rows they were not tried",
                 s->n, s->k, r.m);
    if (w)
        cuda_ok(d, cudaStreamSynchronize(d->stream),
                "gemm check"); /* others write to the matrix next, on streams of their own */
    /* the file has the output type that the matrix is used with, and for logits few rows: one tuned row shows that it
     * was tuned for */
    for (uint32_t i = 0; i < b->file.n_row; i++)
        known = known || (b->file.row[i].n == s->n && b->file.row[i].k == s->k);
    if (!known && !b->told && !s->slab) {
        LOG_INFO(
            "gemm: no tuned algorithms for [%u, %u] on %s: the library's first choice is pinned; `spillway tune` finds better ones",
            s->n, s->k, b->gpu);
        b->told = true;
    }
}

/* try: w's numbers may be overwritten to try algorithms. NULL: there are too many shapes. */
static struct gemm_shape *shape_of(struct cuda_dev *d, const struct dev_weight *w, enum dtype out, bool try)
{
    struct cuda_blas *b = d->blas;
    for (uint32_t i = 0; i < b->n_shape; i++) {
        struct gemm_shape *s = &b->shape[i];
        bool same = s->n == w->n && s->k == w->k && s->out == out && s->code == w->q.code && s->act8 == w->q.act8;
        if (same && s->slab == gemm_is_slab(b, w)) return s;
    }
    if (b->n_shape == GEMM_SHAPES_MAX) return NULL;
    struct gemm_shape *s = &b->shape[b->n_shape];
    *s = (struct gemm_shape){
        .n = w->n, .k = w->k, .out = out, .code = w->q.code, .act8 = w->q.act8, .slab = gemm_is_slab(b, w)
    };
    shape_pin(d, s, try ? w : NULL);
    b->n_shape++;
    return s;
}

void cuda_blas_seen(struct cuda_dev *d, const struct dev_weight *w)
{
    if (!d->blas || w->dtype != d->impl.dev.act) return;
    shape_of(d, w, d->impl.dev.act, true);
    shape_of(d, w, DT_F32, true); /* any matrix may be a head */
}

/* ---------------------------------------------------------------- ops */

static void multiply(struct cuda_dev *d, void *out, enum dtype out_t, const void *x, const struct dev_weight *w,
                     uint32_t m)
{
    CHECK(w->dtype == (w->q.code == DT_F32 ? d->impl.dev.act : w->q.code));
    /* a matrix that nobody announced is pinned now, without looking at its numbers: they are the caller's */
    const struct gemm_shape  *s = shape_of(d, w, out_t, false);
    const struct gemm_product p = { .out = out, .out_t = out_t, .x = x, .w = w, .m = m };
    const struct gemm_pin     last = last_pin(w->q.code, w->q.act8);
    const uint32_t            most = s ? s->rows_max : GEMM_ROWS_MAX;
    for (uint32_t m0 = 0; m0 < m; m0 += most) {
        struct gemm_product part = rows_of(d, &p, m0, m - m0 < most ? m - m0 : most);
        if (!gemm_run(d, s ? &s->pin[gemm_bucket(part.m)] : &last, &part)) gemm_run(d, &last, &part);
    }
}

void cuda_linear(struct device *dev, void *out, const void *x, const struct dev_weight *w, const float *bias,
                 uint32_t m)
{
    struct cuda_dev *d = cuda_of(dev);
    if (!m) return;
    multiply(d, out, dev->act, x, w, m);
    if (bias) cuda_add_bias(d, out, bias, m, w->n);
}

/* What is pinned for m rows of this matrix, at most GEMM_ROWS_MAX; NULL: there is no place left for its shape. */
static const struct gemm_pin *pin_of(struct cuda_dev *d, const struct dev_weight *w, enum dtype out, uint32_t m)
{
    const struct gemm_shape *s = shape_of(d, w, out, false);
    return s ? &s->pin[gemm_bucket(m)] : NULL;
}

/* Where the plain product would be one of ours; of the library's products, those that end in a sum. */
bool cuda_fused(struct device *dev, const struct op_fused *o)
{
    struct cuda_dev *d = cuda_of(dev);
    if (!o->m || o->m > GEMM_ROWS_MAX) return false;
    const struct gemm_pin *pin = pin_of(d, o->w, dev->act, o->m), last = last_pin(o->w->q.code, o->w->q.act8);
    if (!pin) pin = &last;
    return pin->kind->fused && pin->kind->fused(d, pin, o);
}

/* The library's first guess is no reason: it stands alone too. */
bool cuda_gemm_joins(struct cuda_dev *d, const struct dev_weight *w, enum dtype out, uint32_t m)
{
    if (m > GEMM_ROWS_MAX) return false;
    const struct gemm_pin *pin = pin_of(d, w, out, m);
    return !pin || pin->kind == &gemm_rows || !pin->tuned;
}

void gemm_slab_seen(struct cuda_dev *d, const struct dev_weight *slab) { shape_of(d, slab, d->impl.dev.act, true); }

const struct gemm_pin *gemm_slab_pin(struct cuda_dev *d, const struct dev_weight *slab, uint32_t m)
{
    const struct gemm_pin *pin = pin_of(d, slab, d->impl.dev.act, m);
    return pin && pin->kind == &gemm_lt ? pin : NULL;
}

void cuda_logits(struct device *dev, float *out, const void *x, const struct dev_weight *w, uint32_t m)
{
    if (m) multiply(cuda_of(dev), out, DT_F32, x, w, m);
}

/* ---------------------------------------------------------------- life */

uint64_t cuda_blas_bytes(void) { return GEMM_WORKSPACE + GEMM_ALIGN + GEMM_HEADS_MAX * sizeof(uint32_t); }

static void file_open(struct cuda_dev *d)
{
    struct cuda_blas *b = d->blas;
    char              err[400], usual[400];
    const char       *path =
        d->gemm_file && *d->gemm_file ? d->gemm_file : gemm_file_name(b->gpu, d->arch, b->version, usual, sizeof usual);
    enum status st = gemm_file_read(path, &b->file, err, sizeof err);
    if (!st && (strcmp(b->file.gpu, b->gpu) != 0 || b->file.arch != d->arch)) {
        snprintf(err, sizeof err, "%s: for %s (sm_%d), this is %s (sm_%d)", path, b->file.gpu, b->file.arch, b->gpu,
                 d->arch);
        st = ST_CONFIG;
    } else if (!st && (b->file.version != b->version || b->file.workspace_bytes != GEMM_WORKSPACE)) {
        snprintf(err, sizeof err, "%s: for cuBLASLt %zu with %zu bytes of workspace, this is %zu with %d", path,
                 b->file.version, b->file.workspace_bytes, b->version, GEMM_WORKSPACE);
        st = ST_CONFIG;
    }
    if (!st) {
        LOG_INFO("gemm: %u tuned algorithms from %s", b->file.n_row, path);
        return;
    }
    gemm_file_free(&b->file);
    if (st != ST_NOT_FOUND || (d->gemm_file && *d->gemm_file))
        LOG_WARN("gemm: %s; not used, `spillway tune` makes a new one", err);
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
    b->tiles = (uint32_t *)((char *)b->workspace + GEMM_WORKSPACE + GEMM_ALIGN);
    d->blas = b;
    if (!cuda_ok(d, cudaGetDeviceProperties(&prop, d->ordinal), "device properties")) return ST_DEVICE;
    snprintf(b->gpu, sizeof b->gpu, "%.95s", prop.name);
    if (cublaslt_load(d->cublaslt, &b->lt, err, sizeof err)) {
        LOG_WARN("gemm: %s; our own kernels multiply, prompts slower", err);
        return ST_OK;
    }
    int lt_st = b->lt.create(&b->h);
    if (lt_st != LT_OK) {
        LOG_WARN("gemm: cuBLASLt %zu does not start (status %d); our own kernels multiply, prompts slower",
                 b->lt.version(), lt_st);
        b->h = NULL;
        return ST_OK;
    }
    b->version = b->lt.version();
    if ((lt_st = gemm_lt_works(b)) != LT_OK) {
        LOG_WARN(
            "gemm: cuBLASLt %zu does not understand how this server describes a product (status %d; it was written for 12 and 13); our "
            "own kernels multiply, prompts slower",
            b->version, lt_st);
        b->lt.destroy(b->h);
        b->h = NULL;
        return ST_OK;
    }
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
