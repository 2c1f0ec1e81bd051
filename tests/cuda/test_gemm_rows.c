/* Our own products, of few rows and of many: against sums in double, in every order of threads, and a row's bits for
 * every number of rows. */
#include "cuda/cuda_test.h"
#include "kernels/cuda/gemm.h"
#include "test.h"

enum { ROWS = 256 };

/* x [ROWS, k] and w [n, k] on the device, and room for a result. */
struct rig {
    struct device *d;
    uint32_t       n, k;
    enum dtype     out_t;
    float         *x, *w;
    char          *dx, *out;
    void          *dw;
};

static void rig_open(struct rig *r, enum dtype act, enum dtype out_t, uint32_t n, uint32_t k)
{
    *r = (struct rig){ .d = ct_open(act, 96 << 20), .n = n, .k = k, .out_t = out_t };
    r->x = op_random((size_t)ROWS * k, n + k, 1);
    r->w = op_random((size_t)n * k, k, 1);
    ct_round(r->x, (size_t)ROWS * k, act);
    ct_round(r->w, (size_t)n * k, act);
    r->dx = ct_act(r->d, r->x, (size_t)ROWS * k);
    r->dw = ct_act(r->d, r->w, (size_t)n * k);
    r->out = ct_alloc(r->d, (size_t)(ROWS + 1) * n * dtype_bytes(out_t));
}
static void rig_close(struct rig *r)
{
    free(r->x);
    free(r->w);
    dev_close(r->d);
}
/* The product of rows [m0, + m), [m, n] of the result's type; the caller frees it. Nothing behind it is written. */
static char *run(struct rig *r, uint32_t m0, uint32_t m)
{
    size_t row = r->n * dtype_bytes(r->out_t);
    char  *got = malloc((m + 1) * row);
    ct_poison(r->d, r->out, (m + 1) * row);
    cuda_gemm_rows(cuda_of(r->d), r->out, r->out_t, r->dx + (size_t)m0 * r->k * 2, r->dw, m, r->n, r->k);
    ct_get(r->d, got, r->out, (m + 1) * row);
    for (size_t i = m * row; i < (m + 1) * row; i++) assert_int_equal((uint8_t)got[i], 0xff);
    return got;
}
static float number(const struct rig *r, const char *got, size_t i)
{
    uint16_t h;
    float    f;
    if (r->out_t == DT_F32) {
        memcpy(&f, got + i * sizeof f, sizeof f);
        return f;
    }
    memcpy(&h, got + i * sizeof h, sizeof h);
    return r->out_t == DT_F16 ? f16_to_f32(h) : bf16_to_f32(h);
}
static void assert_right(const struct rig *r, const char *got, uint32_t m)
{
    static const double units[] = { [DT_F32] = 1e-6, [DT_F16] = 0x1p-11, [DT_BF16] = 0x1p-8 };
    double              unit = units[r->out_t];
    for (uint32_t i = 0; i < m; i++)
        for (uint32_t j = 0; j < r->n; j++) {
            double sum = 0, large = 0;
            for (uint32_t k = 0; k < r->k; k++) {
                double p = (double)r->x[(size_t)i * r->k + k] * (double)r->w[(size_t)j * r->k + k];
                sum += p;
                large += fabs(p);
            }
            double x = (double)number(r, got, (size_t)i * r->n + j);
            if (!(fabs(x - sum) <= unit * fabs(sum) + 1e-6 * large))
                fail_msg("[%u, %u] of %u rows, n %u, k %u is %.9g, should be %.9g", i, j, m, r->n, r->k, x, sum);
        }
}

/* n, k: one slice, two, four and eight, the last one shorter or of one step; odd sizes and those that forbid 16
 * bytes */
static const uint32_t shapes[][2] = { { 48, 128 },  { 37, 67 },  { 130, 520 }, { 72, 1032 }, { 24, 2048 },
                                      { 16, 2056 }, { 9, 4100 }, { 136, 576 }, { 1, 8 },     { 140, 264 } };
static const uint32_t few[] = { 1, 2, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 63, 64, 65, 70 };

static void products_agree_with_a_sum_in_double(void **state)
{
    (void)state;
    static const enum dtype types[][2] = {
        { DT_BF16, DT_BF16 }, { DT_BF16, DT_F32 }, { DT_F16, DT_F16 }, { DT_F16, DT_F32 }
    };
    for (size_t s = 0; s < ARRAY_N(shapes); s++)
        for (size_t t = s % 2; t < ARRAY_N(types); t += 2) {
            struct rig r;
            rig_open(&r, types[t][0], types[t][1], shapes[s][0], shapes[s][1]);
            for (size_t i = 0; i < ARRAY_N(few); i += 1 + (s + i) % 3) {
                char *got = run(&r, 0, few[i]);
                assert_right(&r, got, few[i]);
                free(got);
            }
            rig_close(&r);
        }
}

static void a_row_has_the_same_bits_for_every_number_of_rows(void **state)
{
    (void)state;
    static const enum dtype types[][2] = { { DT_BF16, DT_F32 }, { DT_F16, DT_F16 }, { DT_BF16, DT_BF16 } };
    for (size_t s = 0; s < ARRAY_N(shapes); s++) {
        struct rig r;
        rig_open(&r, types[s % 3][0], types[s % 3][1], shapes[s][0], shapes[s][1]);
        size_t row = r.n * dtype_bytes(r.out_t);
        char  *all = run(&r, 0, ROWS);
        assert_right(&r, all, 3);
        for (uint32_t m = 1, step = 1; m < ROWS; m += step) {
            step = m < 40 ? 1 : 1 + (m * 7 + (uint32_t)s) % 29; /* all shapes together have nearly all of them */
            if (ct_quick()) step = 10;
            char *some = run(&r, 0, m), *end = run(&r, ROWS - m, m);
            ct_assert_same(some, all, m * row, "the first rows");
            ct_assert_same(end, all + (ROWS - m) * row, m * row, "the last rows");
            free(some);
            free(end);
        }
        for (uint32_t i = 0; i < ROWS; i += 37) {
            char *one = run(&r, i, 1);
            ct_assert_same(one, all + i * row, row, "a row alone");
            free(one);
        }
        free(all);
        rig_close(&r);
    }
}

/* Threads, blocks and copies in every order, weights that are asked for before the kernel ahead has run, and blocks that
 * have one tile behind another. */
static void every_order_of_threads_gives_the_same_bits(void **state)
{
    (void)state;
    static const uint32_t m[] = { 3, 13, 29, 70 };
    struct rig            r;
    rig_open(&r, DT_BF16, DT_BF16, 136, 1032);
    cuda_of(r.d)->n_sm = 1;
    char *want[ARRAY_N(m)];
    for (size_t i = 0; i < ARRAY_N(m); i++) want[i] = run(&r, 0, m[i]);
    for (CT_SCHEDULES(schedule))
        for (size_t i = 0; i < ARRAY_N(m); i++) {
            /* a product ahead of it makes what it reads */
            uint32_t side = 136;
            cuda_gemm_rows(cuda_of(r.d), r.out, DT_BF16, r.dx, r.dw, 70, side, r.k);
            char *got = run(&r, 0, m[i]);
            ct_assert_same(got, want[i], m[i] * r.n * 2, ct_schedule_name(schedule));
            free(got);
        }
    for (size_t i = 0; i < ARRAY_N(m); i++) free(want[i]);
    rig_close(&r);
}

/* Two products, one behind the other: x of the second is what the first makes. */
static void a_product_waits_for_the_rows_that_the_one_ahead_makes(void **state)
{
    (void)state;
    enum { N = 128, M = 40 };
    struct rig r;
    char       want[M * N * 2], got[M * N * 2];
    rig_open(&r, DT_BF16, DT_BF16, N, N);
    char *mid = ct_alloc(r.d, M * N * 2);
    for (uint32_t m = 5; m <= M; m += 7) {
        for (CT_SCHEDULES(schedule)) {
            ct_poison(r.d, mid, M * N * 2);
            cuda_gemm_rows(cuda_of(r.d), mid, DT_BF16, r.dx, r.dw, m, N, N);
            cuda_gemm_rows(cuda_of(r.d), r.out, DT_BF16, mid, r.dw, m, N, N);
            ct_get(r.d, got, r.out, m * N * 2);
            if (!schedule) memcpy(want, got, sizeof got);
            ct_assert_same(got, want, m * N * 2, ct_schedule_name(schedule));
        }
        for (uint32_t i = 0; i < m * N; i++) assert_true(isfinite(number(&r, got, i)));
    }
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_agree_with_a_sum_in_double),
        cmocka_unit_test(a_row_has_the_same_bits_for_every_number_of_rows),
        cmocka_unit_test(every_order_of_threads_gives_the_same_bits),
        cmocka_unit_test(a_product_waits_for_the_rows_that_the_one_ahead_makes),
    };
    return ct_run(tests);
}
