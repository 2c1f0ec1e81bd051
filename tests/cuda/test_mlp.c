/* What is done to rows one element at a time: embed, gather, gates, bias, patches. */
#include "cuda/cuda_test.h"
#include "kernels/cuda/cuda.h"
#include "test.h"

/* Each more than once: under other schedules each time. */
static const enum dtype acts[] = { DT_BF16, DT_F16, DT_BF16, DT_F16, DT_BF16, DT_F16 };

static void embed_copies_rows_and_reads_nothing_for_an_id_it_has_not(void **state)
{
    (void)state;
    static const uint32_t dim[] = { 1, 7, 64, 100, 1024, 4096 };
    enum { VOCAB = 37, N = 9 };
    const uint32_t id[N] = { 0, 36, 5, UINT32_MAX, 5, 37, 1u << 31, 12, 36 };
    for (size_t t = 0; t < ARRAY_N(acts); t++)
        for (size_t s = 0; s < sizeof dim / sizeof *dim; s++) {
            struct device    *d = ct_open(acts[t], 0);
            float            *src = op_random(VOCAB * dim[s], 1, 1), *got = op_random(N * dim[s], 2, 1);
            struct dev_weight w = op_weight(d, d->act, VOCAB, dim[s], src);
            uint32_t         *did = ct_bytes(d, id, sizeof id);
            void             *out = ct_act_new(d, N * dim[s]);
            ct_round(src, VOCAB * dim[s], d->act);
            d->ops->embed(d, out, did, &w, N);
            ct_act_get(d, got, out, N * dim[s]);
            for (uint32_t i = 0; i < N; i++)
                for (uint32_t j = 0; j < dim[s]; j++)
                    assert_true(got[i * dim[s] + j] == (id[i] < VOCAB ? src[id[i] * dim[s] + j] : 0.0f));
            free(src);
            free(got);
            dev_close(d);
        }
}

static void gather_takes_rows_and_zeros(void **state)
{
    (void)state;
    static const uint32_t dim[] = { 1, 64, 100, 520 };
    enum { ROWS = 20, N = 6 };
    const uint32_t row[N] = { 19, UINT32_MAX, 0, 7, 7, UINT32_MAX };
    for (size_t s = 0; s < sizeof dim / sizeof *dim; s++) {
        struct device *d = ct_open(DT_BF16, 0);
        float         *x = op_random(ROWS * dim[s], 1, 1), *got = op_random(N * dim[s], 2, 1);
        ct_round(x, ROWS * dim[s], d->act);
        void     *dx = ct_act(d, x, ROWS * dim[s]), *out = ct_act_new(d, N * dim[s]);
        uint32_t *drow = ct_bytes(d, row, sizeof row);
        d->ops->gather(d, out, dx, drow, N, dim[s]);
        ct_act_get(d, got, out, N * dim[s]);
        for (uint32_t i = 0; i < N; i++)
            for (uint32_t j = 0; j < dim[s]; j++)
                assert_true(got[i * dim[s] + j] == (row[i] == UINT32_MAX ? 0.0f : x[row[i] * dim[s] + j]));
        free(x);
        free(got);
        dev_close(d);
    }
}

static void multipliers_and_soft_caps_agree_with_ref(void **state)
{
    (void)state;
    static const uint32_t size[] = { 1, 7, 64, 3000, 4096 };
    for (size_t t = 0; t < ARRAY_N(acts); t++)
        for (size_t s = 0; s < sizeof size / sizeof *size; s++) {
            uint32_t       n = size[s];
            struct device *d = ct_open(acts[t], 0), *ref = ct_open_ref();
            float         *x = op_random(n, 1, 40), *want = malloc(n * sizeof *want), *got = malloc(n * sizeof *got);
            ct_round(x, n, d->act);
            if (n > 1) x[1] = -1e4f;
            ct_round(x, n, d->act);
            memcpy(want, x, n * sizeof *x);
            ref->ops->scale(ref, want, n, 0.3f);
            ct_round(want, n, d->act);
            void *dx = ct_act(d, x, n);
            d->ops->scale(d, dx, n, 0.3f);
            ct_act_get(d, got, dx, n);
            op_assert_same(got, want, n, "scale");
            for (int with = 0; with < 2; with++) {
                float cap = with ? 30 : 0, *df = ct_bytes(d, x, n * sizeof *x);
                memcpy(want, x, n * sizeof *x);
                ref->ops->cap(ref, want, n, 0.5f, cap);
                d->ops->cap(d, df, n, 0.5f, cap);
                d->ops->to_host(d, got, df, n * sizeof *got);
                for (uint32_t i = 0; i < n; i++) assert_true(fabsf(got[i] - want[i]) <= (with ? 1e-5f : 0.0f));
            }
            free(x);
            free(want);
            free(got);
            dev_close(d);
            dev_close(ref);
        }
}

static void activations_without_a_gate_agree_with_ref(void **state)
{
    (void)state;
    static const uint32_t size[] = { 1, 7, 64, 3000, 4096 };
    for (size_t t = 0; t < ARRAY_N(acts); t++)
        for (size_t s = 0; s < sizeof size / sizeof *size; s++) {
            uint32_t       n = size[s];
            struct device *d = ct_open(acts[t], 0), *ref = ct_open_ref();
            float         *x = op_random(n, 1, 4), *want = malloc(n * sizeof *want), *got = malloc(n * sizeof *got);
            double         unit = acts[t] == DT_BF16 ? 0x1p-8 : 0x1p-11;
            ct_round(x, n, d->act);
            for (int act = 0; act < OP_CLAMPED; act++) {
                memcpy(want, x, n * sizeof *x);
                ref->ops->ungated(ref, want, n, (enum op_act)act);
                void *dx = ct_act(d, x, n);
                d->ops->ungated(d, dx, n, (enum op_act)act);
                ct_act_get(d, got, dx, n);
                for (uint32_t i = 0; i < n; i++)
                    assert_true(fabs((double)got[i] - (double)want[i]) <= unit * fabs((double)want[i]) + 1e-5);
            }
            free(x);
            free(want);
            free(got);
            dev_close(d);
            dev_close(ref);
        }
}

/* Rows of another array by number, at another stride, and rows of nowhere; a row alone has the same bits. */
static void products_with_rows_of_another_array_agree_with_ref(void **state)
{
    (void)state;
    static const uint32_t dim[] = { 1, 77, 256 };
    static const uint32_t row[] = { 3, 0, UINT32_MAX, 3, 4 };
    enum { N = 5, STRIDE_MORE = 24 };
    for (size_t t = 0; t < ARRAY_N(acts); t++)
        for (size_t s = 0; s < sizeof dim / sizeof *dim; s++)
            for (int listed = 0; listed < 2; listed++) {
                size_t         n = (size_t)N * dim[s], stride = dim[s] + STRIDE_MORE;
                struct device *d = ct_open(acts[t], 0), *ref = ct_open_ref();
                float         *x = op_random(n, 1, 4), *y = op_random(N * stride, 2, 4), *got = malloc(n * sizeof *got),
                      *want = malloc(n * sizeof *want), *alone = malloc(dim[s] * sizeof *alone);
                ct_round(x, n, d->act);
                ct_round(y, N * stride, d->act);
                void           *dy = ct_act(d, y, N * stride);
                const uint32_t *dr = listed ? ct_bytes(d, row, sizeof row) : NULL;
                double          unit = d->act == DT_BF16 ? 0x1p-8 : 0x1p-11;
                for (int act = 0; act < OP_CLAMPED; act++) {
                    memcpy(want, x, n * sizeof *x);
                    ref->ops->act_mul(ref, want, y, stride, listed ? row : NULL, N, dim[s], (enum op_act)act);
                    void *dx = ct_act(d, x, n), *d1 = ct_act(d, x + 3 * dim[s], dim[s]);
                    d->ops->act_mul(d, dx, dy, stride, dr, N, dim[s], (enum op_act)act);
                    ct_act_get(d, got, dx, n);
                    for (size_t i = 0; i < n; i++)
                        assert_true(fabs((double)got[i] - (double)want[i]) <= unit * fabs((double)want[i]) + 1e-4);
                    d->ops->act_mul(d, d1, (const uint16_t *)dy + 3 * stride, stride, NULL, 1, dim[s],
                                    (enum op_act)act);
                    ct_act_get(d, alone, d1, dim[s]);
                    assert_memory_equal(alone, got + 3 * dim[s], dim[s] * sizeof *alone);
                }
                free(x);
                free(y);
                free(got);
                free(want);
                free(alone);
                dev_close(d);
                dev_close(ref);
            }
}

static void gated_sums_agree_with_ref(void **state)
{
    (void)state;
    static const uint32_t dim[] = { 1, 77, 768 };
    enum { N = 5 };
    for (size_t t = 0; t < ARRAY_N(acts); t++)
        for (size_t s = 0; s < sizeof dim / sizeof *dim; s++)
            for (int with = 0; with < 2; with++) {
                size_t         n = (size_t)N * dim[s];
                struct device *d = ct_open(acts[t], 0), *ref = ct_open_ref();
                float         *x = op_random(n, 1, 4), *y = op_random(n, 2, 4), *gate = op_random(N, 3, 3),
                      *got = malloc(n * sizeof *got);
                gate[0] = -200;
                gate[1] = 200;
                ct_round(x, n, d->act);
                ct_round(y, n, d->act);
                ct_round(gate, N, d->act);
                void *dx = ct_act(d, x, n), *dy = ct_act(d, y, n), *dg = ct_act(d, gate, N);
                d->ops->add_gated(d, dx, dy, with ? dg : NULL, N, dim[s]);
                ct_act_get(d, got, dx, n);
                ref->ops->add_gated(ref, x, y, with ? gate : NULL, N, dim[s]);
                ct_assert_close(got, x, n, d->act == DT_BF16 ? 5e-3 : 7e-4, d->act == DT_BF16 ? 0.1 : 0.02,
                                "gated sum");
                free(x);
                free(y);
                free(gate);
                free(got);
                dev_close(d);
                dev_close(ref);
            }
}

static void gates_agree_with_ref_and_rows_stand_alone(void **state)
{
    (void)state;
    static const uint32_t inter[] = { 1, 40, 77, 768, 3072 };
    enum { N = 5 };
    for (size_t t = 0; t < ARRAY_N(acts); t++)
        for (size_t s = 0; s < sizeof inter / sizeof *inter; s++) {
            struct device *d = ct_open(acts[t], 0), *ref = ct_open_ref();
            size_t         all = (size_t)N * inter[s];
            float         *x = op_random(2 * all, 1, 4), *want = op_random(all, 2, 1), *got = op_random(all, 3, 1),
                  *alone = op_random(inter[s], 4, 1);
            if (inter[s] > 7) {
                x[0] = -200;
                x[1] = 200;
                x[2] = -88;
                x[3] = 0;
                x[4] = -0.0f;
                x[5] = 1e-30f;
                x[6] = -87.4f;
            }
            ct_round(x, 2 * all, d->act);
            char *dx = ct_act(d, x, 2 * all), *out = ct_act_new(d, all);
            for (enum op_act act = 0; act < OP_ACTS; act++) {
                double rounding = d->act == DT_BF16 ? 0x1.01p-8 : 0x1.01p-11,
                       most = d->act == DT_BF16 ? INFINITY : 65504;
                ref->ops->glu(ref, want, x, N, inter[s], act);
                d->ops->glu(d, out, dx, N, inter[s], act);
                ct_act_get(d, got, out, all);
                for (size_t i = 0; i < all; i++)
                    assert_true(fabs((double)want[i]) > most ||
                                fabs((double)got[i] - (double)want[i]) <= rounding * fabs((double)want[i]) + 2e-6);
                for (uint32_t r = 0; r < N; r++) {
                    d->ops->glu(d, out, dx + (size_t)r * 4 * inter[s], 1, inter[s], act);
                    ct_act_get(d, alone, out, inter[s]);
                    op_assert_same(alone, got + r * inter[s], inter[s], "alone");
                }
            }
            free(x);
            free(want);
            free(got);
            free(alone);
            dev_close(d);
            dev_close(ref);
        }
}

static void bias_is_added_with_one_rounding(void **state)
{
    (void)state;
    static const uint32_t dim[] = { 1, 50, 64, 1000 };
    enum { M = 4 };
    for (size_t t = 0; t < ARRAY_N(acts); t++)
        for (size_t s = 0; s < sizeof dim / sizeof *dim; s++) {
            struct device *d = ct_open(acts[t], 0);
            size_t         all = (size_t)M * dim[s];
            float         *x = op_random(all, 1, 1), *bias = op_random(dim[s], 2, 1), *got = op_random(all, 3, 1);
            void          *dx = ct_act(d, x, all);
            float         *db = ct_bytes(d, bias, dim[s] * sizeof *bias);
            ct_round(x, all, d->act);
            cuda_add_bias(cuda_of(d), dx, db, M, dim[s]);
            ct_act_get(d, got, dx, all);
            for (size_t i = 0; i < all; i++) x[i] = op_rounded(x[i] + bias[i % dim[s]], d->act);
            op_assert_same(got, x, all, "bias");
            free(x);
            free(bias);
            free(got);
            dev_close(d);
        }
}

static void columns_change_places_and_states_become_floats(void **state)
{
    (void)state;
    static const uint32_t dim[] = { 1, 50, 64, 1000 };
    enum { M = 5 };
    for (size_t t = 0; t < ARRAY_N(acts); t++)
        for (size_t s = 0; s < ARRAY_N(dim); s++) {
            struct device *d = ct_open(acts[t], 0);
            uint32_t       k = dim[s], *order = malloc(k * sizeof *order);
            size_t         all = (size_t)M * k;
            float         *x = op_random(all, 1, 1), *want = calloc(all, sizeof *want), *got = op_random(all, 2, 1);
            void          *out = ct_act_new(d, all), *dx = ct_act_new(d, all);
            ct_round(x, all, d->act);
            for (uint32_t j = 0; j < k; j++) order[j] = (k - 1 - j) / 2 * 2 % k; /* some twice, some never */
            uint32_t *on = ct_bytes(d, order, k * sizeof *order);
            for (size_t i = 0; i < all; i++) want[i] = x[i / k * k + order[i % k]];
            ct_put_as(d, dx, d->act, x, all);
            d->ops->columns(d, out, dx, on, M, k);
            ct_act_get(d, got, out, all);
            op_assert_same(got, want, all, "columns");

            float *wide = ct_alloc(d, (all + 1) * sizeof *wide), behind;
            ct_put_as(d, dx, d->act, x, all);
            d->ops->state(d, wide, dx, all);
            ct_get(d, got, wide, all * sizeof *got);
            ct_get(d, &behind, wide + all, sizeof behind);
            op_assert_same(got, x, all, "states");
            assert_true(isnan(behind));
            free(order);
            free(x);
            free(want);
            free(got);
            dev_close(d);
        }
}

static void patches_bring_ids_and_padding_is_skipped(void **state)
{
    (void)state;
    enum { N = 300 };
    struct device   *d = ct_open(DT_BF16, 0);
    struct dev_patch p[N];
    uint32_t         x[N], from[N], want[N], got[N];
    for (uint32_t i = 0; i < N; i++) {
        x[i] = want[i] = 1000 + i;
        from[i] = i % 5 ? 5000 + i : UINT32_MAX;
        p[i] = (struct dev_patch){ i % 3 ? N - 1 - i : UINT32_MAX, i % 3 ? (i * 7) % N : UINT32_MAX };
    }
    for (uint32_t i = 0; i < N; i++)
        if (p[i].at != UINT32_MAX) want[p[i].at] = from[p[i].from] == UINT32_MAX ? 0 : from[p[i].from];
    uint32_t *dx = ct_bytes(d, x, sizeof x), *df = ct_bytes(d, from, sizeof from);
    cuda_patch(cuda_of(d), dx, ct_bytes(d, p, sizeof p), df, N);
    ct_get(d, got, dx, sizeof got);
    ct_assert_same(got, want, sizeof want, "patched");
    dev_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(embed_copies_rows_and_reads_nothing_for_an_id_it_has_not),
        cmocka_unit_test(gather_takes_rows_and_zeros),
        cmocka_unit_test(activations_without_a_gate_agree_with_ref),
        cmocka_unit_test(products_with_rows_of_another_array_agree_with_ref),
        cmocka_unit_test(gated_sums_agree_with_ref),
        cmocka_unit_test(multipliers_and_soft_caps_agree_with_ref),
        cmocka_unit_test(gates_agree_with_ref_and_rows_stand_alone),
        cmocka_unit_test(bias_is_added_with_one_rounding),
        cmocka_unit_test(columns_change_places_and_states_become_floats),
        cmocka_unit_test(patches_bring_ids_and_padding_is_skipped),
    };
    return ct_run(tests);
}
