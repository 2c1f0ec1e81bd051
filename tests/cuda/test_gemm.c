/* Matrix products of the cuda device: against ref, by every algorithm that a file or the library brings, alone and in
 * batches.
 * Over 500 lines: one operation; its algorithms are compared over the same shapes and types. */
#include "tests/cuda/cuda_test.h"
#include "kernels/cuda/gemm.h"
#include "tests/emu/cublaslt.h"
#include <unistd.h>
#ifdef CUDA_EMU
#include <emu.h>
#else
struct emu_lt_state emu_lt; /* the real library has no such switches: what they would show is not shown then */
#endif

enum { ARENA = 160 << 20 };
static char dir[] = "/tmp/spillway-gemm-XXXXXX", path[80];

static struct device *open_with(enum dtype act, bool deterministic, const char *file, const char *cublaslt)
{
    struct device *d = NULL;
    struct dev_cfg cfg = { .kind = DEV_CUDA,
                           .arena_bytes = ARENA,
                           .n_rank = 1,
                           .act = act,
                           .deterministic = deterministic,
                           .gemm_file = file,
                           .cublaslt = cublaslt,
                           .pdl = true };
    assert_int_equal(dev_open(&cfg, &d), ST_OK);
    return d;
}

static void *put(struct device *d, const float *x, size_t n, enum dtype t)
{
    void     *p;
    uint16_t *h = malloc(n * 2);
    assert_int_equal(d->ops->alloc(d, n * dtype_bytes(t), &p), ST_OK);
    for (size_t i = 0; i < n; i++) h[i] = t == DT_F16 ? f32_to_f16(x[i]) : f32_to_bf16(x[i]);
    d->ops->to_device(d, p, t == DT_F32 ? (const void *)x : h, n * dtype_bytes(t));
    free(h);
    return p;
}
static float *get(struct device *d, const void *p, size_t n, enum dtype t)
{
    float    *x = malloc(n * sizeof *x);
    uint16_t *h = malloc(n * 4);
    d->ops->to_host(d, h, p, n * dtype_bytes(t));
    for (size_t i = 0; i < n; i++) {
        x[i] = t == DT_F16 ? f16_to_f32(h[i]) : bf16_to_f32(h[i]);
        if (t == DT_F32) x[i] = ((float *)(void *)h)[i];
    }
    free(h);
    return x;
}

struct size {
    uint32_t m, n, k;
};

/* Both ops against a sum in double of the same 16-bit numbers. */
static void agrees(struct device *d, struct size s, bool with_bias)
{
    size_t n_out = (size_t)s.m * s.n;
    float *x = op_random((size_t)s.m * s.k, 1, 1), *w = op_random((size_t)s.n * s.k, 2, 1 / sqrtf((float)s.k)),
          *bias = op_random(s.n, 3, 1);
    double *want = calloc(n_out, sizeof *want);
    for (size_t i = 0; i < (size_t)s.m * s.k; i++) x[i] = op_rounded(x[i], d->act);
    for (size_t i = 0; i < (size_t)s.n * s.k; i++) w[i] = op_rounded(w[i], d->act);
    for (uint32_t i = 0; i < s.m; i++)
        for (uint32_t j = 0; j < s.n; j++)
            for (uint32_t k = 0; k < s.k; k++)
                want[(size_t)i * s.n + j] += (double)x[(size_t)i * s.k + k] * (double)w[(size_t)j * s.k + k];
    struct dev_weight dw = op_weight(d, d->act, s.n, s.k, w);
    void             *dx = put(d, x, (size_t)s.m * s.k, d->act), *dbias = put(d, bias, s.n, DT_F32), *out, *logits;
    assert_int_equal(d->ops->alloc(d, n_out * 2, &out), ST_OK);
    assert_int_equal(d->ops->alloc(d, n_out * 4, &logits), ST_OK);
    d->ops->linear(d, out, dx, &dw, with_bias ? dbias : NULL, s.m);
    d->ops->logits(d, logits, dx, &dw, s.m);
    assert_int_equal(d->ops->sync(d), ST_OK);
    float *got = get(d, out, n_out, d->act), *got_logits = get(d, logits, n_out, DT_F32);
    double eps = d->act == DT_F16 ? 1.1e-3 : 8.5e-3;
    for (size_t i = 0; i < n_out; i++) {
        double b = with_bias ? (double)bias[i % s.n] : 0, scale = 1 + fabs(want[i]) + fabs(b);
        if (!(fabs((double)got[i] - want[i] - b) <= eps * scale))
            fail_msg("linear %u x %u x %u: [%zu] is %g, should be %g", s.m, s.n, s.k, i, (double)got[i], want[i] + b);
        if (!(fabs((double)got_logits[i] - want[i]) <= 2e-5 * scale))
            fail_msg("logits %u x %u x %u: [%zu] is %g, should be %g", s.m, s.n, s.k, i, (double)got_logits[i],
                     want[i]);
    }
    free(x);
    free(w);
    free(bias);
    free(want);
    free(got);
    free(got_logits);
}

static const struct size sizes[] = {
    { 1, 1, 1 },      { 1, 16, 16 },   { 2, 5, 3 },     { 3, 17, 257 },  { 7, 64, 64 },
    { 13, 130, 304 }, { 33, 100, 65 }, { 65, 72, 72 },  { 100, 80, 40 }, { 1, 331, 64 },
    { 128, 48, 128 }, { 200, 33, 40 }, { 600, 24, 48 }, { 17, 64, 200 },
};

static void products_agree_with_a_sum_in_double(void **state)
{
    (void)state;
    static const char *const library[] = { NULL, "none" };
    for (int lib = 0; lib < 2; lib++)
        for (int det = 0; det < 2; det++)
            for (int t = 0; t < 2; t++) {
                struct device *d = open_with(t ? DT_F16 : DT_BF16, det, NULL, library[lib]);
                for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) agrees(d, sizes[i], i % 2);
                dev_close(d);
            }
    assert_int_equal(emu_lt.n_misuse, 0);
}

/* Row 0 alone, and at other places of other batches. */
static void check_alone(struct device *d, uint32_t n, uint32_t k)
{
    static const uint32_t batch[] = { 2, 5, 16, 17, 33, 64, 150, 260 };
    enum { M = 260 };
    float            *x = op_random((size_t)M * k, 1, 1), *w = op_random((size_t)n * k, 2, 1);
    struct dev_weight dw = op_weight(d, d->act, n, k, w);
    char             *dx = put(d, x, (size_t)M * k, d->act);
    void             *out, *logits;
    assert_int_equal(d->ops->alloc(d, (size_t)M * n * 2, &out), ST_OK);
    assert_int_equal(d->ops->alloc(d, (size_t)M * n * 4, &logits), ST_OK);
    for (size_t i = 0; i < sizeof batch / sizeof *batch; i++) {
        uint32_t m = batch[i];
        d->ops->linear(d, out, dx, &dw, NULL, m);
        d->ops->logits(d, logits, dx, &dw, m);
        float *all = get(d, out, (size_t)m * n, d->act), *all_logits = get(d, logits, (size_t)m * n, DT_F32);
        for (uint32_t r = 0; r<m; r += m> 8 ? m / 4 : 1) {
            d->ops->linear(d, out, dx + (size_t)r * k * 2, &dw, NULL, 1);
            d->ops->logits(d, logits, dx + (size_t)r * k * 2, &dw, 1);
            float *one = get(d, out, n, d->act), *one_logits = get(d, logits, n, DT_F32);
            op_assert_same(all + (size_t)r * n, one, n, "a row among others");
            op_assert_same(all_logits + (size_t)r * n, one_logits, n, "a row of logits among others");
            free(one);
            free(one_logits);
        }
        free(all);
        free(all_logits);
    }
    free(x);
    free(w);
}

static void a_row_has_the_same_bits_alone_and_among_others(void **state)
{
    (void)state;
    static const char *const library[] = { NULL, "none" };
    for (int lib = 0; lib < 2; lib++)
        for (int t = 0; t < 2; t++) {
            struct device *d = open_with(t ? DT_F16 : DT_BF16, true, NULL, library[lib]);
            check_alone(d, 48, 128);
            check_alone(d, 37, 67);
            dev_close(d);
        }
}

#ifdef CUDA_EMU
/* Threads, blocks and asynchronous copies in every order: a missing barrier or wait shows. */
static void our_kernels_are_right_in_every_order_of_their_threads(void **state)
{
    (void)state;
    static const struct size size[] = { { 3, 70, 328 }, { 70, 70, 328 }, { 40, 20, 203 } };
    for (uint32_t i = 0; i < EMU_SCHEDULES; i++) {
        struct emu_schedule how = emu_schedule_at(i);
        struct device      *d = open_with(i % 2 ? DT_F16 : DT_BF16, false, NULL, "none");
        emu_set_schedule(&how);
        for (size_t s = 0; s < sizeof size / sizeof *size; s++) agrees(d, size[s], true);
        dev_close(d);
    }
    emu_set_schedule(NULL);
}
#endif

static void a_pinned_algorithm_is_never_searched_again(void **state)
{
    (void)state;
    struct device *d = open_with(DT_BF16, false, NULL, NULL);
    agrees(d, (struct size){ 9, 40, 64 }, true);
    uint32_t asked = emu_lt.n_heuristic, multiplied = emu_lt.n_matmul;
    (void)multiplied;
    agrees(d, (struct size){ 300, 40, 64 }, false);
    agrees(d, (struct size){ 1, 40, 64 }, false);
    assert_int_equal(emu_lt.n_heuristic, asked);
#ifdef CUDA_EMU
    assert_true(emu_lt.n_matmul > multiplied);
#endif
    dev_close(d);
}

static void an_algorithm_with_wrong_numbers_is_not_pinned(void **state)
{
    (void)state;
    for (int det = 0; det < 2; det++) {
        emu_lt.wrong = true;
        struct device *d = open_with(DT_BF16, det, NULL, NULL);
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) agrees(d, sizes[i], false);
        dev_close(d);
        emu_lt.wrong = false;
    }
}

#ifdef CUDA_EMU
/* Right for the few rows of one bucket and wrong for those of another, or at one end of a bucket alone: the pin of each
 * is tried at both of its ends. */
static void an_algorithm_that_is_wrong_for_many_rows_is_not_pinned_for_them(void **state)
{
    (void)state;
    static const struct {
        uint32_t from, m;
    } c[] = { { 9, 15 }, { 16, 16 }, { 300, 384 }, { 3000, 4096 }, { 5000, 5000 }, { 8192, 8192 } };
    emu_lt.wrong = true;
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        emu_lt.wrong_from = c[i].from;
        struct device *d = open_with(DT_BF16, false, NULL, NULL);
        agrees(d, (struct size){ c[i].m, 16, 8 }, false);
        uint32_t multiplied = emu_lt.n_matmul;
        agrees(d, (struct size){ 4, 16, 8 }, false); /* and where it is right it is used */
        assert_true(emu_lt.n_matmul > multiplied);
        dev_close(d);
    }
    emu_lt.wrong = false;
    emu_lt.wrong_from = 0;
}

static void a_library_that_does_not_understand_us_is_found_at_the_start(void **state)
{
    (void)state;
    emu_lt.strange = true;
    for (int det = 0; det < 2; det++) {
        struct device *d = open_with(DT_BF16, det, NULL, NULL);
        uint32_t       asked = emu_lt.n_heuristic, multiplied = emu_lt.n_matmul;
        agrees(d, (struct size){ 40, 20, 64 }, false);
        assert_int_equal(emu_lt.n_heuristic, asked); /* not once for each matrix and bucket */
        assert_int_equal(emu_lt.n_matmul, multiplied);
        dev_close(d);
    }
    emu_lt.strange = false;
}

static void nothing_that_must_be_exact_asks_the_library(void **state)
{
    (void)state;
    struct device *d = open_with(DT_BF16, true, NULL, NULL);
    uint32_t       asked = emu_lt.n_heuristic, multiplied = emu_lt.n_matmul;
    emu_lt.drift = 2; /* what it would offer adds in another order from two rows on */
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) agrees(d, sizes[i], true);
    check_alone(d, 48, 128);
    emu_lt.drift = 0;
    assert_int_equal(emu_lt.n_heuristic, asked);
    assert_int_equal(emu_lt.n_matmul, multiplied);
    dev_close(d);
}
#endif

static void our_kernels_compute_a_product_that_the_library_refuses(void **state)
{
    (void)state;
    struct device    *d = open_with(DT_BF16, false, NULL, NULL);
    float            *w = op_random(40 * 64, 1, 1);
    struct dev_weight dw = op_weight(d, DT_BF16, 40, 64, w); /* pinned here */
    emu_lt.refuse = true;
    agrees(d, (struct size){ 5, 40, 64 }, true);
    emu_lt.refuse = false;
    assert_int_equal(dw.n, 40);
    free(w);
    dev_close(d);
}

static void rows_above_the_largest_bucket_go_in_slices(void **state)
{
    (void)state;
    struct device *d = open_with(DT_BF16, true, NULL, NULL);
    enum { M = GEMM_ROWS_MAX + 3, N = 2, K = 8 };
    float            *x = op_random(M * K, 1, 1), *w = op_random(N * K, 2, 1);
    struct dev_weight dw = op_weight(d, DT_BF16, N, K, w);
    char             *dx = put(d, x, M * K, DT_BF16);
    void             *out;
    assert_int_equal(d->ops->alloc(d, M * N * 2, &out), ST_OK);
    d->ops->linear(d, out, dx, &dw, NULL, M);
    float *all = get(d, out, M * N, DT_BF16);
    d->ops->linear(d, out, dx + (size_t)(M - 3) * K * 2, &dw, NULL, 3);
    float *tail = get(d, out, 3 * N, DT_BF16);
    op_assert_same(all + (size_t)(M - 3) * N, tail, 3 * N, "the last slice");
    free(x);
    free(w);
    free(all);
    free(tail);
    dev_close(d);
}

/* ---------------------------------------------------------------- files */

static void count_line(void *ctx, const char *text)
{
    (void)text;
    ++*(uint32_t *)ctx;
}

static void tune(void)
{
    static const struct dev_matrix matrix[] = { { .n = 40, .k = 64, .norm = true, .end = OP_END_GLU },
                                                { .n = 56, .k = 64, .logits = true },
                                                { .n = 24, .k = 64, .top_k = 3 } };
    uint32_t                       lines = 0;
    char                           where[200];
    struct dev_tune_cfg            cfg = { .act = DT_BF16,
                                           .matrix = matrix,
                                           .n_matrix = 3,
                                           .rows_max = 64,
                                           .runs = 1,
                                           .output = path,
                                           .line = count_line,
                                           .ctx = &lines };
    emu_lt.wrong = true; /* it finds that out */
    assert_int_equal(dev_tune(&cfg, where, sizeof where), ST_OK);
    emu_lt.wrong = false;
    assert_string_equal(where, path);
    assert_true(lines >= 9 + 4 + 2 + 9);
}

static void change(const char *from, const char *to)
{
    char   text[65536];
    FILE  *f = fopen(path, "r");
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = 0;
    char *at = strstr(text, from);
    assert_non_null(at);
    f = fopen(path, "w");
    fwrite(text, 1, (size_t)(at - text), f);
    fputs(to, f);
    fputs(at + strlen(from), f);
    fclose(f);
}

static struct gemm_pin pin_of(struct device *d, uint32_t n, uint32_t k, enum dtype out, uint32_t m)
{
    struct cuda_blas *b = cuda_of(d)->blas;
    for (uint32_t i = 0; i < b->n_shape; i++)
        if (b->shape[i].n == n && b->shape[i].k == k && b->shape[i].out == out) return b->shape[i].pin[gemm_bucket(m)];
    fail_msg("[%u, %u] has no pins", n, k);
    return (struct gemm_pin){ .kind = &gemm_rows };
}

/* Whether a device that is given the file uses it; its numbers are right either way. */
static bool file_used(void)
{
    struct device *d = open_with(DT_BF16, false, path, NULL);
    agrees(d, (struct size){ 30, 40, 64 }, false);
    bool used = pin_of(d, 40, 64, DT_BF16, 30).tuned;
    assert_false(pin_of(d, 40, 64, DT_F32, 30).tuned); /* it was not asked for */
    if (used) {
        agrees(d, (struct size){ 3, 56, 64 }, false);
        assert_true(pin_of(d, 56, 64, DT_F32, 3).tuned);
        assert_false(pin_of(d, 56, 64, DT_F32, 300).tuned); /* beyond rows_max */
    }
    dev_close(d);
    return used;
}

static void tuned_algorithms_are_used_and_nothing_else_of_a_bad_file(void **state)
{
    (void)state;
    struct gemm_file f;
    char             err[300], version[64];
    tune();
    assert_int_equal(gemm_file_read(path, &f, err, sizeof err), ST_OK);
    assert_non_null(gemm_file_find(&f, 40, 64, DT_BF16, DT_BF16, 24));
    assert_null(gemm_file_find(&f, 40, 64, DT_BF16, DT_BF16, 96));
    for (uint32_t i = 0; i < f.n_row; i++) assert_true(f.row[i].us >= 0 && f.row[i].err <= 1e-2);
    gemm_file_free(&f);
    assert_true(file_used());

    change("algo 40 64", "algo 40 56"); /* any byte */
    assert_int_equal(gemm_file_read(path, &f, err, sizeof err), ST_CONFIG);
    assert_non_null(strstr(err, "damaged"));
    assert_false(file_used());

    tune();
    change("\nend ", "\n# end ");
    assert_int_equal(gemm_file_read(path, &f, err, sizeof err), ST_CONFIG);
    assert_false(file_used());

    /* whole, but of somebody else */
    tune();
    assert_int_equal(gemm_file_read(path, &f, err, sizeof err), ST_OK);
    snprintf(f.gpu, sizeof f.gpu, "NVIDIA Something Else");
    assert_int_equal(gemm_file_write(path, &f, err, sizeof err), ST_OK);
    assert_false(file_used());
    gemm_file_free(&f);

    tune();
    assert_int_equal(gemm_file_read(path, &f, err, sizeof err), ST_OK);
    snprintf(version, sizeof version, "%zu", f.version);
    f.version++;
    assert_int_equal(gemm_file_write(path, &f, err, sizeof err), ST_OK);
    assert_false(file_used());
    f.version--;

    /* our own kernels, where the file says that they were faster, and nowhere else */
    for (uint32_t i = 0; i < f.n_row; i++)
        if (f.row[i].bucket == 4 || f.row[i].bucket == 32) memset(&f.row[i].algo, 0, sizeof f.row[i].algo);
    assert_int_equal(gemm_file_write(path, &f, err, sizeof err), ST_OK);
    for (int det = 0; det < 2; det++) {
        struct device *d = open_with(DT_BF16, det, path, NULL);
        agrees(d, (struct size){ 3, 40, 64 }, true);
        agrees(d, (struct size){ 30, 40, 64 }, false);
        assert_ptr_equal(pin_of(d, 40, 64, DT_BF16, 3).kind, &gemm_rows);
        assert_int_equal(pin_of(d, 40, 64, DT_BF16, 30).tuned, !det);
        assert_ptr_equal(pin_of(d, 40, 64, DT_F32, 3).kind, det ? &gemm_rows : &gemm_lt);
        dev_close(d);
    }

#ifdef CUDA_EMU
    /* whole, ours, and its algorithms are nonsense, or those of another matrix: the library's own check finds them */
    for (uint32_t i = 0; i < f.n_row; i++) f.row[i].algo.data[3] ^= 0xff;
    assert_int_equal(gemm_file_write(path, &f, err, sizeof err), ST_OK);
    assert_false(file_used());
#endif
    gemm_file_free(&f);

    unlink(path);
    assert_int_equal(gemm_file_read(path, &f, err, sizeof err), ST_NOT_FOUND);
    assert_false(file_used());
    assert_int_equal(emu_lt.n_misuse, 0);
}

/* A kind whose rows are activations behind a gap, so long that few of them are prepared at a time, and multiplied one
 * by one. */
enum { WIDE_ROW = GEMM_WORKSPACE / 4, WIDE_GAP = 4096 };
static struct {
    uint32_t n_prepare, n_row, rows_most;
    bool     refuses;
} wide;

static size_t wide_bytes(const struct dev_weight *w)
{
    (void)w;
    return WIDE_ROW;
}
static void wide_prepare(struct cuda_dev *d, void *rows, const void *x, const struct dev_weight *w, uint32_t m)
{
    size_t bytes = (size_t)w->k * 2;
    wide.n_prepare++;
    wide.n_row += m;
    if (m > wide.rows_most) wide.rows_most = m;
    for (uint32_t r = 0; r < m; r++)
        cudaMemcpyAsync((char *)rows + (size_t)r * WIDE_ROW + WIDE_GAP, (const char *)x + r * bytes, bytes,
                        cudaMemcpyDeviceToDevice, d->stream);
}
static bool wide_mul(struct cuda_dev *d, const struct gemm_pin *pin, const struct gemm_product *p)
{
    (void)pin;
    if (wide.refuses) return false;
    for (uint32_t r = 0; r < p->m; r++)
        cuda_gemm_rows(d, (char *)p->out + (size_t)r * p->w->n * dtype_bytes(p->out_t), p->out_t,
                       (const char *)p->x + (size_t)r * WIDE_ROW + WIDE_GAP, p->w->data, 1, p->w->n, p->w->k);
    return true;
}
static const struct cuda_gemm_kind wide_kind = {
    .name = "wide", .row_bytes = wide_bytes, .prepare = wide_prepare, .mul = wide_mul
};

static void a_kind_multiplies_the_rows_that_it_prepares_as_many_as_the_workspace_holds_at_a_time(void **state)
{
    (void)state;
    enum { M = 10, N = 40, K = 64 };
    static const enum dtype outs[] = { DT_BF16, DT_F32 };
    struct device          *d = open_with(DT_BF16, true, NULL, "none");
    float                  *w = op_random(N * K, 1, 1), *x = op_random(M * K, 2, 1);
    struct dev_weight       dw = op_weight(d, DT_BF16, N, K, w);
    void                   *dx = put(d, x, M * K, DT_BF16), *out;
    struct gemm_pin         plain = { .kind = &gemm_rows }, prepared = { .kind = &wide_kind };
    assert_int_equal(d->ops->alloc(d, M * N * 4, &out), ST_OK);
    for (int t = 0; t < 2; t++) {
        struct gemm_product p = { .out = out, .out_t = outs[t], .x = dx, .w = &dw, .m = M };
        memset(&wide, 0, sizeof wide);
        assert_true(gemm_run(cuda_of(d), &plain, &p));
        float *want = get(d, out, M * N, outs[t]);
        cudaMemsetAsync(out, 0xff, M * N * 4, cuda_of(d)->stream);
        assert_true(gemm_run(cuda_of(d), &prepared, &p));
        float *got = get(d, out, M * N, outs[t]);
        op_assert_same(want, got, M * N, "prepared rows");
        assert_true(wide.n_prepare == 3 && wide.n_row == M && wide.rows_most == 4);
        assert_true(gemm_error(cuda_of(d), &prepared, &p) <= gemm_error_max(outs[t]));
        wide.refuses = true;
        assert_false(gemm_run(cuda_of(d), &prepared, &p));
        free(want);
        free(got);
    }
    free(w);
    free(x);
    dev_close(d);
}

#ifdef CUDA_EMU
/* What ended before is missing, whatever is launched next: that one is not made again, and the error stays for who
 * asks. */
static void a_product_does_not_take_back_the_error_of_another(void **state)
{
    (void)state;
    struct device    *d = open_with(DT_BF16, false, NULL, NULL);
    float            *w = op_random(40 * 64, 1, 1), *x = op_random(3 * 64, 2, 1);
    struct dev_weight dw = op_weight(d, DT_BF16, 40, 64, w);
    struct gemm_pin   pin = pin_of(d, 40, 64, DT_BF16, 3);
    void             *out, *dx = put(d, x, 3 * 64, DT_BF16);
    assert_ptr_equal(pin.kind, &gemm_lt);
    assert_int_equal(d->ops->alloc(d, 3 * 40 * 2, &out), ST_OK);
    cuda_of(d)->relaunch = true;
    struct gemm_product p = { .out = out, .out_t = DT_BF16, .x = dx, .w = &dw, .m = 3 };
    uint32_t            multiplied = emu_lt.n_matmul;
    assert_int_equal(cudaSetDevice(-1), cudaErrorInvalidDevice);
    gemm_run(cuda_of(d), &pin, &p);
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidDevice);
    assert_int_equal(emu_lt.n_matmul, multiplied + 1);
    emu_fail_next("launch", cudaErrorLaunchOutOfResources); /* of its own it is */
    assert_true(gemm_run(cuda_of(d), &pin, &p));
    assert_int_equal(cudaGetLastError(), cudaSuccess);
    cuda_of(d)->relaunch = false;
    assert_int_equal(d->ops->sync(d), ST_OK);
    free(w);
    free(x);
    dev_close(d);
}
#endif

/* ---------------------------------------------------------------- filling */

static void filled_weights_are_the_same_on_every_device_and_cut(void **state)
{
    (void)state;
    enum { N = 37, K = 51 };
    struct device    *d = open_with(DT_BF16, false, NULL, NULL), *ref = op_open(DEV_REF, NULL, 0);
    struct dev_weight w, part, wr;
    uint32_t          id[N];
    uint16_t          got[N * K], got_part[9 * 20];
    float             want[N * K];
    void             *out, *ids;
    for (uint32_t i = 0; i < N; i++) id[i] = i;
    assert_int_equal(d->ops->weight_alloc(d, DT_BF16, N, K, &w), ST_OK);
    assert_int_equal(d->ops->weight_alloc(d, DT_BF16, 9, 20, &part), ST_OK);
    assert_int_equal(ref->ops->weight_alloc(ref, DT_BF16, N, K, &wr), ST_OK);
    dev_weight_fill(d, &w, 0, N, 77, 0, 0, K, 0.02f);
    dev_weight_fill(d, &part, 0, 9, 77, 10, 31, K, 0.02f); /* rows 10.., columns 31.. of the same */
    dev_weight_fill(ref, &wr, 0, N, 77, 0, 0, K, 0.02f);
    ref->ops->embed(ref, want, id, &wr, N);
    assert_int_equal(d->ops->alloc(d, sizeof got, &out), ST_OK);
    assert_int_equal(d->ops->alloc(d, sizeof id, &ids), ST_OK);
    d->ops->to_device(d, ids, id, sizeof id);
    d->ops->to_host(d, got, w.data, sizeof got);
    d->ops->to_host(d, got_part, part.data, sizeof got_part);
    double sum = 0, square = 0;
    for (int i = 0; i < N * K; i++) {
        float v = bf16_to_f32(got[i]);
        op_assert_same(&v, &want[i], 1, "filled on two devices");
        sum += (double)v;
        square += (double)v * (double)v;
    }
    for (int r = 0; r < 9; r++) assert_memory_equal(got_part + r * 20, got + (10 + r) * K + 31, 40);
    assert_true(fabs(sum / (N * K)) < 0.003 && fabs(sqrt(square / (N * K)) - 0.02) < 0.002);
    dev_close(d);
    dev_close(ref);
}

/* ---------------------------------------------------------------- measuring */

struct calls {
    struct device    *d;
    void             *out, *x;
    struct dev_weight w;
    uint32_t          n;
};
static void count_call(void *arg, uint32_t i)
{
    struct calls *a = arg;
    a->n++;
    a->d->ops->linear(a->d, a->out, a->x, &a->w, NULL, 1 + i % 3);
}

static void ops_are_timed_by_the_device_and_roofs_are_numbers(void **state)
{
    (void)state;
    struct calls     a = { .d = open_with(DT_BF16, false, NULL, NULL) };
    float           *w = op_random(40 * 64, 1, 1);
    struct dev_times t;
    a.w = op_weight(a.d, DT_BF16, 40, 64, w);
    a.x = put(a.d, w, 3 * 64, DT_BF16);
    assert_int_equal(a.d->ops->alloc(a.d, 3 * 40 * 2, &a.out), ST_OK);
    double s = dev_time(a.d, 5, count_call, &a);
    assert_true(s > 0 && s < 1);
    assert_int_equal(a.n, 6); /* once to warm up, then recorded: replays call nobody */
    for (int p = DEV_PROBE_READ; p <= DEV_PROBE_GAP_PDL; p++) assert_true(dev_probe(a.d, (enum dev_probe)p) > 0);
    assert_true(dev_step_times(a.d, &t));
    assert_int_equal(t.n_step, 0);
    dev_close(a.d);
    struct device *ref = op_open(DEV_REF, NULL, 0);
    assert_true(isnan(dev_time(ref, 5, count_call, &a)) && isnan(dev_probe(ref, DEV_PROBE_COPY)) &&
                !dev_step_times(ref, &t));
    dev_close(ref);
    free(w);
}

static int make_dir(void **state)
{
    (void)state;
    if (!mkdtemp(dir)) return -1;
    setenv("XDG_CACHE_HOME", dir, 1); /* nobody's own file is read */
    snprintf(path, sizeof path, "%s/algos.txt", dir);
    return 0;
}
static int remove_dir(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_agree_with_a_sum_in_double),
        cmocka_unit_test(a_row_has_the_same_bits_alone_and_among_others),
#ifdef CUDA_EMU
        cmocka_unit_test(our_kernels_are_right_in_every_order_of_their_threads),
#endif
        cmocka_unit_test(a_pinned_algorithm_is_never_searched_again),
        cmocka_unit_test(an_algorithm_with_wrong_numbers_is_not_pinned),
#ifdef CUDA_EMU
        cmocka_unit_test(an_algorithm_that_is_wrong_for_many_rows_is_not_pinned_for_them),
        cmocka_unit_test(a_library_that_does_not_understand_us_is_found_at_the_start),
        cmocka_unit_test(nothing_that_must_be_exact_asks_the_library),
#endif
        cmocka_unit_test(our_kernels_compute_a_product_that_the_library_refuses),
        cmocka_unit_test(rows_above_the_largest_bucket_go_in_slices),
        cmocka_unit_test(a_kind_multiplies_the_rows_that_it_prepares_as_many_as_the_workspace_holds_at_a_time),
        cmocka_unit_test(tuned_algorithms_are_used_and_nothing_else_of_a_bad_file),
#ifdef CUDA_EMU
        cmocka_unit_test(a_product_does_not_take_back_the_error_of_another),
#endif
        cmocka_unit_test(ops_are_timed_by_the_device_and_roofs_are_numbers),
        cmocka_unit_test(filled_weights_are_the_same_on_every_device_and_cut),
    };
    if (!ct_has_device()) return 77;
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
