#include "op_test.h"

static void norms_agree_with_ref(void **state)
{
    (void)state;
    static const uint32_t dim[] = { 1, 7, 16, 33, 64, 100, 256, 1000 };
    struct device        *d[OP_DEVICES_MAX], *ref = op_open(DEV_REF, NULL, 0);
    uint32_t              n_dev = op_cpu_devices(d), n = 41;
    for (size_t s = 0; s < sizeof dim / sizeof *dim; s++) {
        size_t all = (size_t)n * dim[s];
        float *x = op_random(all, 1, 3), *delta = op_random(all, 2, 1), *w = op_random(dim[s], 3, 1);
        float *want = op_random(all, 4, 1), *got = op_random(all, 5, 1), *want_x = malloc(all * sizeof *x),
              *got_x = malloc(all * sizeof *x);
        for (uint32_t i = 0; i < n_dev; i++) {
            ref->ops->rmsnorm(ref, want, x, w, n, dim[s], 1e-5f);
            d[i]->ops->rmsnorm(d[i], got, x, w, n, dim[s], 1e-5f);
            op_assert_near(got, want, all, 2e-6, d[i]->ops->name);
            memcpy(want_x, x, all * sizeof *x);
            memcpy(got_x, x, all * sizeof *x);
            ref->ops->add_rmsnorm(ref, want, want_x, delta, w, n, dim[s], 1e-5f);
            d[i]->ops->add_rmsnorm(d[i], got, got_x, delta, w, n, dim[s], 1e-5f);
            op_assert_near(got, want, all, 2e-6, d[i]->ops->name);
            op_assert_same(got_x, want_x, all, "the residual");
            memcpy(got_x, x, all * sizeof *x);
            d[i]->ops->add_rmsnorm(d[i], got, got_x, delta, NULL, n, dim[s], 1e-5f);
            op_assert_same(got_x, want_x, all, "the residual without a norm");
            op_assert_same(got, want_x, all, "no norm");
        }
        free(x);
        free(delta);
        free(w);
        free(want);
        free(got);
        free(want_x);
        free(got_x);
    }
    dev_close(ref);
    op_close(d, n_dev);
}

/* Of rows far from zero too, with and without a bias, in place, and a row alone. */
static void layer_norms_agree_with_ref_and_rows_stand_alone(void **state)
{
    (void)state;
    static const uint32_t dim[] = { 2, 7, 16, 33, 64, 100, 256, 1000 };
    struct device        *d[OP_DEVICES_MAX], *ref = op_open(DEV_REF, NULL, 0);
    uint32_t              n_dev = op_cpu_devices(d), n = 41;
    for (size_t s = 0; s < sizeof dim / sizeof *dim; s++) {
        size_t all = (size_t)n * dim[s];
        float *x = op_random(all, 1, 3), *w = op_random(dim[s], 2, 1), *bias = op_random(dim[s], 3, 1),
              *want = op_random(all, 4, 1), *got = op_random(all, 5, 1), *alone = op_random(dim[s], 6, 1);
        for (size_t i = 0; i < all / 2; i++) x[i] += 20;
        for (uint32_t i = 0; i < n_dev; i++)
            for (int with = 0; with < 2; with++) {
                ref->ops->layernorm(ref, want, x, w, with ? bias : NULL, n, dim[s], 1e-5f);
                memcpy(got, x, all * sizeof *x);
                d[i]->ops->layernorm(d[i], got, got, w, with ? bias : NULL, n, dim[s], 1e-5f);
                op_assert_near(got, want, all, 3e-5, d[i]->ops->name);
                for (uint32_t r = 0; r < n; r += 8) {
                    d[i]->ops->layernorm(d[i], alone, x + (size_t)r * dim[s], w, with ? bias : NULL, 1, dim[s], 1e-5f);
                    op_assert_same(got + (size_t)r * dim[s], alone, dim[s], d[i]->ops->name);
                }
            }
        free(x);
        free(w);
        free(bias);
        free(want);
        free(got);
        free(alone);
    }
    dev_close(ref);
    op_close(d, n_dev);
}

static void activations_without_a_gate_are_those_of_a_gate_of_ones(void **state)
{
    (void)state;
    enum { N = 3, INTER = 3001 };
    struct device *d[OP_DEVICES_MAX + 1];
    uint32_t       n_dev = op_cpu_devices(d);
    d[n_dev++] = op_open(DEV_REF, NULL, 0);
    float *x = op_random(N * INTER, 1, 4), *both = malloc(2 * N * INTER * sizeof *both),
          *got = op_random(N * INTER, 2, 1), *want = op_random(N * INTER, 3, 1);
    for (uint32_t r = 0; r < N; r++)
        for (uint32_t i = 0; i < INTER; i++) {
            both[r * 2 * INTER + i] = x[r * INTER + i];
            both[r * 2 * INTER + INTER + i] = 1;
        }
    for (uint32_t i = 0; i < n_dev; i++)
        for (int act = 0; act < OP_CLAMPED; act++) {
            memcpy(got, x, N * INTER * sizeof *x);
            d[i]->ops->ungated(d[i], got, N * INTER, (enum op_act)act);
            d[i]->ops->glu(d[i], want, both, N, INTER, (enum op_act)act);
            op_assert_same(got, want, N * INTER, d[i]->ops->name);
        }
    free(x);
    free(both);
    free(got);
    free(want);
    op_close(d, n_dev);
}

/* Rows of y that a list names, apart from each other; padding gives zeros. */
static void activations_times_rows_of_a_list_are_those_of_a_gate(void **state)
{
    (void)state;
    enum { N = 5, DIM = 37, STRIDE = 101, OF = 9 };
    static const uint32_t row[N] = { 7, 0, UINT32_MAX, 7, 8 };
    struct device        *d[OP_DEVICES_MAX + 1];
    uint32_t              n_dev = op_cpu_devices(d);
    d[n_dev++] = op_open(DEV_REF, NULL, 0);
    float *x = op_random(N * DIM, 1, 4), *y = op_random(OF * STRIDE, 2, 1), *both = malloc(2 * N * DIM * sizeof *both),
          *got = op_random(N * DIM, 3, 1), *want = op_random(N * DIM, 4, 1);
    for (uint32_t i = 0; i < n_dev; i++)
        for (int act = 0; act < OP_CLAMPED; act++)
            for (int listed = 0; listed < 2; listed++) {
                for (uint32_t r = 0; r < N; r++) {
                    uint32_t from = listed ? row[r] : r;
                    memcpy(both + r * 2 * DIM, x + r * DIM, DIM * sizeof *x);
                    memset(both + r * 2 * DIM + DIM, 0, DIM * sizeof *x);
                    if (from != UINT32_MAX) memcpy(both + r * 2 * DIM + DIM, y + from * STRIDE, DIM * sizeof *x);
                }
                memcpy(got, x, N * DIM * sizeof *x);
                d[i]->ops->act_mul(d[i], got, y, STRIDE, listed ? row : NULL, N, DIM, (enum op_act)act);
                d[i]->ops->glu(d[i], want, both, N, DIM, (enum op_act)act);
                for (uint32_t c = 0; listed && c < DIM; c++) want[2 * DIM + c] = 0; /* which may be -0 */
                op_assert_same(got, want, N * DIM, d[i]->ops->name);
            }
    free(x);
    free(y);
    free(both);
    free(got);
    free(want);
    op_close(d, n_dev);
}

static void a_row_has_the_same_bits_in_every_place(void **state)
{
    (void)state;
    enum { N = 2000, DIM = 100 };
    struct device *d[OP_DEVICES_MAX];
    uint32_t       n_dev = op_cpu_devices(d);
    float         *x = op_random(N * DIM, 1, 1), *w = op_random(DIM, 2, 1), *got = op_random(N * DIM, 3, 1),
          *alone = op_random(DIM, 4, 1), *first = NULL;
    for (uint32_t i = 0; i < n_dev; i++) {
        d[i]->ops->rmsnorm(d[i], got, x, w, N, DIM, 1e-6f);
        for (uint32_t r = 0; r < N; r++) {
            d[i]->ops->rmsnorm(d[i], alone, x + r * DIM, w, 1, DIM, 1e-6f);
            op_assert_same(got + r * DIM, alone, DIM, d[i]->ops->name);
        }
        if (!op_is_vector(d[i])) continue;
        if (!first) first = memcpy(malloc(N * DIM * sizeof *got), got, N * DIM * sizeof *got);
        op_assert_same(got, first, N * DIM, "one variant against another");
    }
    free(x);
    free(w);
    free(got);
    free(alone);
    free(first);
    op_close(d, n_dev);
}

static void gates_agree_with_ref_and_rows_stand_alone(void **state)
{
    (void)state;
    enum { N = 300, INTER = 77 };
    struct device *d[OP_DEVICES_MAX], *ref = op_open(DEV_REF, NULL, 0);
    uint32_t       n_dev = op_cpu_devices(d);
    float *x = op_random(N * 2 * INTER, 1, 4), *want = op_random(N * INTER, 2, 1), *got = op_random(N * INTER, 3, 1),
          *alone = op_random(INTER, 4, 1);
    float *first = malloc(N * INTER * sizeof *first);
    x[0] = -200;
    x[1] = 200;
    x[2] = -88;
    x[3] = 0;
    x[4] = -0.0f;
    x[5] = 1e-30f;
    x[6] = -87.4f;
    x[7] = -6;
    x[8] = 6;
    x[9] = -1e30f;
    for (enum op_act act = 0; act < OP_ACTS; act++) {
        bool   have_first = false;
        double bound = act == OP_GELU ? 2e-5 : 1e-6;
        if (act == OP_RELU || act == OP_RELU2) bound = 0;
        ref->ops->glu(ref, want, x, N, INTER, act);
        for (uint32_t i = 0; i < n_dev; i++) {
            d[i]->ops->glu(d[i], got, x, N, INTER, act);
            /* 1 + erf is good to 5e-7, and is multiplied with half a gate and its other half, both of up to 16 here */
            op_assert_near(got, want, N * INTER, bound, d[i]->ops->name);
            for (uint32_t r = 0; r < N; r++) {
                d[i]->ops->glu(d[i], alone, x + r * 2 * INTER, 1, INTER, act);
                op_assert_same(got + r * INTER, alone, INTER, d[i]->ops->name);
            }
            if (!op_is_vector(d[i])) continue;
            if (!have_first) memcpy(first, got, N * INTER * sizeof *got);
            have_first = true;
            op_assert_same(got, first, N * INTER, "one variant against another");
        }
    }
    x[0] = NAN; /* is no number behind any gate */
    for (enum op_act act = 0; act < OP_ACTS; act++)
        for (uint32_t i = 0; i < n_dev; i++) {
            d[i]->ops->glu(d[i], alone, x, 1, INTER, act);
            assert_true(isnan(alone[0]) && !isnan(alone[1]));
        }
    free(x);
    free(want);
    free(got);
    free(alone);
    free(first);
    dev_close(ref);
    op_close(d, n_dev);
}

/* Multipliers are one rounded product; a soft cap is the ref's within a rounding of the cap, also far beyond it. */
static void multipliers_and_soft_caps_agree_with_ref(void **state)
{
    (void)state;
    enum { N = 9001 };
    struct device *d[OP_DEVICES_MAX], *ref = op_open(DEV_REF, NULL, 0);
    uint32_t       n_dev = op_cpu_devices(d);
    float         *x = op_random(N, 1, 40), *want = malloc(N * sizeof *want), *got = malloc(N * sizeof *got),
          *first = malloc(N * sizeof *first), alone;
    bool have_first = false;
    x[0] = 1e4f;
    x[1] = -1e4f;
    x[2] = 0;
    x[3] = 1e30f;
    x[4] = -1e30f;
    memcpy(want, x, N * sizeof *x);
    ref->ops->scale(ref, want, N, 0.3f);
    for (uint32_t i = 0; i < n_dev; i++) {
        memcpy(got, x, N * sizeof *x);
        d[i]->ops->scale(d[i], got, N, 0.3f);
        op_assert_same(got, want, N, d[i]->ops->name);
        memcpy(got, x, N * sizeof *x);
        d[i]->ops->cap(d[i], got, N, 0.3f, 0);
        op_assert_same(got, want, N, d[i]->ops->name);
    }
    memcpy(want, x, N * sizeof *x);
    ref->ops->cap(ref, want, N, 0.5f, 30);
    for (uint32_t i = 0; i < n_dev; i++) {
        memcpy(got, x, N * sizeof *x);
        d[i]->ops->cap(d[i], got, N, 0.5f, 30);
        assert_true(got[0] == 30 && got[1] == -30 && got[2] == 0 && got[3] == 30 && got[4] == -30);
        for (uint32_t k = 0; k < N; k++)
            if (!(fabsf(got[k] - want[k]) < 1e-5f))
                fail_msg("%s: number %u of %g is %g, not %g", d[i]->ops->name, k, (double)x[k], (double)got[k],
                         (double)want[k]);
        for (uint32_t k = 0; k < 40; k++) { /* alone as among others */
            alone = x[k];
            d[i]->ops->cap(d[i], &alone, 1, 0.5f, 30);
            op_assert_same(&alone, got + k, 1, d[i]->ops->name);
        }
        alone = NAN;
        d[i]->ops->cap(d[i], &alone, 1, 1, 30);
        assert_true(isnan(alone));
        if (!op_is_vector(d[i])) continue;
        if (!have_first) memcpy(first, got, N * sizeof *got);
        have_first = true;
        op_assert_same(got, first, N, "one variant against another");
    }
    free(x);
    free(want);
    free(got);
    free(first);
    dev_close(ref);
    op_close(d, n_dev);
}

static void columns_are_taken_in_any_order(void **state)
{
    (void)state;
    enum { N = 70, K = 129 };
    struct device *d[OP_DEVICES_MAX + 1];
    uint32_t       n_dev = op_cpu_devices(d), column[K];
    d[n_dev++] = op_open(DEV_REF, NULL, 0);
    float *x = op_random(N * K, 1, 1), *got = op_random(N * K, 2, 1);
    for (uint32_t k = 0; k < K; k++) column[k] = k * 50 % K; /* 50 and 129 share no factor */
    for (uint32_t i = 0; i < n_dev; i++)
        for (uint32_t n = 1; n <= N; n += N - 1) {
            d[i]->ops->columns(d[i], got, x, column, n, K);
            for (uint32_t r = 0; r < n; r++)
                for (uint32_t k = 0; k < K; k++) assert_true(got[r * K + k] == x[r * K + column[k]]);
        }
    free(x);
    free(got);
    op_close(d, n_dev);
}

/* What is added by a gate, or whole: ref within a rounding, and a row the same bits alone. */
static void gated_sums_agree_with_ref(void **state)
{
    (void)state;
    enum { N = 7, DIM = 601 };
    struct device *d[OP_DEVICES_MAX], *ref = op_open(DEV_REF, NULL, 0);
    uint32_t       n_dev = op_cpu_devices(d);
    float         *x = op_random(N * DIM, 1, 4), *y = op_random(N * DIM, 2, 4), *gate = op_random(N, 3, 3),
          *want = malloc(N * DIM * sizeof *want), *got = malloc(N * DIM * sizeof *got);
    gate[0] = -200;
    gate[1] = 200;
    for (int with = 0; with < 2; with++) {
        memcpy(want, x, N * DIM * sizeof *x);
        ref->ops->add_gated(ref, want, y, with ? gate : NULL, N, DIM);
        for (uint32_t i = 0; with && i < DIM; i++) assert_true(want[i] == x[i]); /* a gate of 0 adds nothing */
        for (uint32_t i = 0; i < n_dev; i++) {
            memcpy(got, x, N * DIM * sizeof *x);
            d[i]->ops->add_gated(d[i], got, y, with ? gate : NULL, N, DIM);
            op_assert_near(got, want, N * DIM, 1e-6, d[i]->ops->name);
            float alone[DIM];
            memcpy(alone, x + 3 * DIM, sizeof alone);
            d[i]->ops->add_gated(d[i], alone, y + 3 * DIM, with ? gate + 3 : NULL, 1, DIM);
            op_assert_same(alone, got + 3 * DIM, DIM, d[i]->ops->name);
        }
    }
    free(x);
    free(y);
    free(gate);
    free(want);
    free(got);
    dev_close(ref);
    op_close(d, n_dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norms_agree_with_ref),
        cmocka_unit_test(layer_norms_agree_with_ref_and_rows_stand_alone),
        cmocka_unit_test(activations_without_a_gate_are_those_of_a_gate_of_ones),
        cmocka_unit_test(activations_times_rows_of_a_list_are_those_of_a_gate),
        cmocka_unit_test(a_row_has_the_same_bits_in_every_place),
        cmocka_unit_test(gates_agree_with_ref_and_rows_stand_alone),
        cmocka_unit_test(gated_sums_agree_with_ref),
        cmocka_unit_test(multipliers_and_soft_caps_agree_with_ref),
        cmocka_unit_test(columns_are_taken_in_any_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
