/* RMSNorm on the CUDA device: against ref, the rounding of the residual, a row's bits in every batch. */
#include "cuda/cuda_test.h"
#include "test.h"

/* Each more than once: under other schedules each time. */
static const enum dtype acts[] = { DT_BF16, DT_F16, DT_BF16, DT_F16, DT_BF16, DT_F16 };

/* One rounding of what ref says; ref computes from what the device has been given. */
static void assert_rounded(const float *got, const float *want, size_t n, enum dtype t, const char *what)
{
    double unit = t == DT_BF16 ? 0x1p-8 : 0x1p-11; /* half of the distance of two neighbours, relative */
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - (double)want[i]) <= 1.001 * unit * fabs((double)want[i]) + 1e-6))
            fail_msg("%s: [%zu] is %.9g, should be %.9g", what, i, (double)got[i], (double)want[i]);
}

static void norms_agree_with_ref_in_every_dimension(void **state)
{
    (void)state;
    static const uint32_t dim[] = { 1,   2,    7,    8,    16,   33,   64,   80,   96,   100,  128,   500,  512,
                                    520, 1000, 1024, 2048, 2560, 4096, 4104, 5120, 8192, 8200, 12288, 16384 };
    enum { N = 3 };
    for (size_t t = 0; t < ARRAY_N(acts); t++)
        for (size_t s = 0; s < sizeof dim / sizeof *dim; s++) {
            struct device *d = ct_open(acts[t], 0), *ref = ct_open_ref();
            size_t         all = (size_t)N * dim[s];
            float         *x = op_random(all, 1, 3), *delta = op_random(all, 2, 1), *w = op_random(dim[s], 3, 1),
                  *want = op_random(all, 4, 1), *got = op_random(all, 5, 1), *sum = op_random(all, 6, 1);
            ct_round(x, all, d->act);
            ct_round(delta, all, d->act);
            void *dx = ct_act(d, x, all), *dd = ct_act(d, delta, all), *dw = ct_bytes(d, w, dim[s] * sizeof *w),
                 *out = ct_act_new(d, all);
            ref->ops->rmsnorm(ref, want, x, w, N, dim[s], 1e-5f);
            d->ops->rmsnorm(d, out, dx, dw, N, dim[s], 1e-5f);
            ct_act_get(d, got, out, all);
            assert_rounded(got, want, all, d->act, "rmsnorm");
            for (size_t i = 0; i < all; i++)
                sum[i] = op_rounded(x[i] + delta[i], d->act); /* the norm is of the rounded sum */
            ref->ops->rmsnorm(ref, want, sum, w, N, dim[s], 1e-5f);
            d->ops->add_rmsnorm(d, out, dx, dd, dw, N, dim[s], 1e-5f);
            ct_act_get(d, got, out, all);
            assert_rounded(got, want, all, d->act, "add_rmsnorm");
            ct_act_get(d, got, dx, all);
            op_assert_same(got, sum, all, "the residual");
            dx = ct_act(d, x, all);
            d->ops->add_rmsnorm(d, out, dx, dd, NULL, N, dim[s], 1e-5f);
            ct_act_get(d, got, dx, all);
            op_assert_same(got, sum, all, "the residual without a norm");
            ct_act_get(d, got, out, all);
            op_assert_same(got, sum, all, "no norm");
            free(x);
            free(delta);
            free(w);
            free(want);
            free(got);
            free(sum);
            dev_close(d);
            dev_close(ref);
        }
}

static void layer_norms_agree_with_ref_and_rows_stand_alone(void **state)
{
    (void)state;
    static const uint32_t dim[] = { 2, 7, 64, 100, 512, 520, 4104, 8192, 16384 };
    enum { N = 3 };
    for (size_t t = 0; t < ARRAY_N(acts); t++)
        for (size_t s = 0; s < sizeof dim / sizeof *dim; s++) {
            struct device *d = ct_open(acts[t], 0), *ref = ct_open_ref();
            size_t         all = (size_t)N * dim[s];
            float         *x = op_random(all, 1, 3), *w = op_random(dim[s], 3, 1), *bias = op_random(dim[s], 2, 1),
                  *want = op_random(all, 4, 1), *got = op_random(all, 5, 1), *alone = op_random(dim[s], 6, 1);
            for (uint32_t i = 0; i < dim[s]; i++) x[i] += 20;
            ct_round(x, all, d->act);
            void *dx = ct_act(d, x, all), *dw = ct_bytes(d, w, dim[s] * sizeof *w),
                 *db = ct_bytes(d, bias, dim[s] * sizeof *w), *out = ct_act_new(d, all),
                 *one = ct_act(d, x + 2 * (size_t)dim[s], dim[s]);
            for (int with = 0; with < 2; with++) {
                ref->ops->layernorm(ref, want, x, w, with ? bias : NULL, N, dim[s], 1e-5f);
                d->ops->layernorm(d, out, dx, dw, with ? db : NULL, N, dim[s], 1e-5f);
                ct_act_get(d, got, out, all);
                double unit = d->act == DT_BF16 ? 0x1p-8 : 0x1p-11;
                for (size_t i = 0; i < all; i++)
                    assert_true(fabs((double)got[i] - (double)want[i]) <= unit * fabs((double)want[i]) + 3e-5);
            }
            d->ops->layernorm(d, one, one, dw, db, 1, dim[s], 1e-5f); /* in place */
            ct_act_get(d, alone, one, dim[s]);
            op_assert_same(got + 2 * (size_t)dim[s], alone, dim[s], "a row alone");
            free(x);
            free(w);
            free(bias);
            free(want);
            free(got);
            free(alone);
            dev_close(d);
            dev_close(ref);
        }
}

/* Rows that begin at an odd address take the slow way, with nothing but their alignment changed. */
static void rows_may_begin_anywhere(void **state)
{
    (void)state;
    enum { N = 2, DIM = 64 };
    struct device *d = ct_open(DT_BF16, 0), *ref = ct_open_ref();
    float         *x = op_random(N * DIM, 1, 1), *w = op_random(DIM, 2, 1), *want = op_random(N * DIM, 3, 1),
          *got = op_random(N * DIM, 4, 1);
    ct_round(x, N * DIM, d->act);
    ref->ops->rmsnorm(ref, want, x, w, N, DIM, 1e-6f);
    for (size_t shift = 1; shift <= 4; shift++) {
        char *dx = ct_act_new(d, N * DIM + 8), *out = ct_act_new(d, N * DIM + 8),
             *dw = ct_alloc(d, (DIM + 4) * sizeof *w);
        ct_put_as(d, dx + 2 * shift, d->act, x, N * DIM);
        ct_put(d, dw + 4, w, DIM * sizeof *w);
        d->ops->rmsnorm(d, out + 2 * shift, dx + 2 * shift, (float *)(void *)(dw + 4), N, DIM, 1e-6f);
        ct_act_get(d, got, out + 2 * shift, N * DIM);
        assert_rounded(got, want, N * DIM, d->act, "shifted");
    }
    free(x);
    free(w);
    free(want);
    free(got);
    dev_close(d);
    dev_close(ref);
}

static void a_row_has_the_same_bits_in_every_place_and_order(void **state)
{
    (void)state;
    static const uint32_t dim[] = { 64, 100, 2048, 8200 };
    enum { N = 7 };
    for (size_t c = 0; c < 2 * ARRAY_N(dim); c++) {
        size_t         s = c / 2;
        struct device *d = ct_open(c % 2 ? DT_F16 : DT_BF16, 0);
        size_t         all = (size_t)N * dim[s], bytes = dim[s] * 2;
        float         *x = op_random(all, 1, 1), *delta = op_random(all, 2, 1), *w = op_random(dim[s], 3, 1);
        char          *dd = ct_act(d, delta, all), *dw = ct_bytes(d, w, dim[s] * sizeof *w), *out = ct_act_new(d, all),
             *dx = ct_act_new(d, all);
        uint16_t *batch = malloc(all * 2), *alone = malloc(bytes);
        for (CT_SCHEDULES(i)) {
            x[3] = i % 2 ? NAN : 1.0f; /* a bad row is alone with it */
            ct_put_as(d, dx, d->act, x, all);
            ct_poison(d, out, all * 2);
            d->ops->add_rmsnorm(d, out, dx, dd, (float *)(void *)dw, N, dim[s], 1e-6f);
            ct_get(d, batch, out, all * 2);
            for (uint32_t r = 1; r < N; r++) {
                ct_put_as(d, dx, d->act, x + r * dim[s], dim[s]);
                d->ops->add_rmsnorm(d, out, dx, dd + r * bytes, (float *)(void *)dw, 1, dim[s], 1e-6f);
                ct_get(d, alone, out, bytes);
                ct_assert_same(alone, batch + (size_t)r * dim[s], bytes, ct_schedule_name(i));
            }
        }
        free(x);
        free(delta);
        free(w);
        free(batch);
        free(alone);
        dev_close(d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norms_agree_with_ref_in_every_dimension),
        cmocka_unit_test(layer_norms_agree_with_ref_and_rows_stand_alone),
        cmocka_unit_test(rows_may_begin_anywhere),
        cmocka_unit_test(a_row_has_the_same_bits_in_every_place_and_order),
    };
    return ct_run(tests);
}
