#include "op_test.h"
#include <pthread.h>

static const enum dtype types[] = { DT_F32, DT_BF16, DT_F16 };

static void linear_agrees_with_ref(void **state)
{
    (void)state;
    static const struct {
        uint32_t m, n, k;
    } shape[] = {
        { 1, 1, 1 },      { 1, 16, 16 },   { 2, 5, 3 },      { 3, 17, 257 },  { 7, 64, 64 },
        { 13, 130, 300 }, { 33, 100, 65 }, { 100, 80, 520 }, { 200, 33, 40 }, { 1, 700, 256 },
    };
    struct device *d[OP_DEVICES_MAX], *ref = op_open(DEV_REF, NULL, 0);
    uint32_t       n_dev = op_cpu_devices(d);
    for (size_t s = 0; s < sizeof shape / sizeof *shape; s++)
        for (int t = 0; t < 3; t++)
            for (int with_bias = 0; with_bias < 2; with_bias++) {
                uint32_t m = shape[s].m, n = shape[s].n, k = shape[s].k;
                float   *x = op_random((size_t)m * k, 1, 1), *src = op_random((size_t)n * k, 2, 1 / sqrtf((float)k)),
                      *bias = op_random(n, 3, 1);
                float *want = op_random((size_t)m * n, 4, 1), *got = op_random((size_t)m * n, 5, 1),
                      *rough = op_random((size_t)m * n, 6, 1), *xr = op_random((size_t)m * k, 1, 1);
                struct dev_weight w = op_weight(ref, types[t], n, k, src);
                for (size_t i = 0; i < (size_t)m * k; i++) xr[i] = op_rounded(x[i], DT_BF16);
                ref->ops->linear(ref, want, x, &w, with_bias ? bias : NULL, m);
                ref->ops->linear(ref, rough, xr, &w, with_bias ? bias : NULL, m);
                for (uint32_t i = 0; i < n_dev; i++) {
                    w = op_weight(d[i], types[t], n, k, src);
                    d[i]->ops->linear(d[i], got, x, &w, with_bias ? bias : NULL, m);
                    op_assert_near(got, types[t] == DT_BF16 && op_rounds(d[i]) ? rough : want, (size_t)m * n, 3e-6,
                                   d[i]->ops->name);
                }
                free(x);
                free(src);
                free(bias);
                free(want);
                free(got);
                free(rough);
                free(xr);
            }
    dev_close(ref);
    op_close(d, n_dev);
}

static void a_row_has_the_same_bits_in_every_batch_and_place(void **state)
{
    (void)state;
    enum { N = 86, K = 530, M = 104 };
    static const uint32_t size[] = { 1, 2, 5, 7, 16, 33, M };
    struct device        *d[OP_DEVICES_MAX];
    uint32_t              n_dev = op_cpu_devices(d);
    float *x = op_random((M + 1) * K, 1, 1), *src = op_random(N * K, 2, 0.1f), *bias = op_random(N, 3, 1);
    float *alone = op_random(N, 4, 1), *got = op_random(M * N, 5, 1), *batch = op_random(M * K, 6, 1),
          *first[3] = { NULL };
    for (uint32_t i = 0; i < n_dev; i++)
        for (int t = 0; t < 3; t++) {
            struct dev_weight w = op_weight(d[i], types[t], N, K, src);
            d[i]->ops->linear(d[i], alone, x, &w, bias, 1);
            for (size_t s = 0; s < sizeof size / sizeof *size; s++)
                for (uint32_t p = 0; p < size[s]; p += size[s] == M ? 9 : 1) {
                    memcpy(batch, x + K, size[s] * K * sizeof *x);
                    memcpy(batch + p * K, x, K * sizeof *x);
                    if (p % 2) batch[(p ? p - 1 : 0) * K] = NAN; /* nor by what a neighbour suffers */
                    d[i]->ops->linear(d[i], got, batch, &w, bias, size[s]);
                    op_assert_same(got + p * N, alone, N, d[i]->ops->name);
                }
            if (!op_is_vector(d[i]) || op_rounds(d[i])) continue;
            if (!first[t]) first[t] = memcpy(malloc(N * sizeof *alone), alone, N * sizeof *alone);
            op_assert_same(alone, first[t], N, "one variant against another");
        }
    for (int t = 0; t < 3; t++) free(first[t]);
    free(x);
    free(src);
    free(bias);
    free(alone);
    free(got);
    free(batch);
    op_close(d, n_dev);
}

/* rows in any order, slices of any size, unaligned sources of any type: the weight is the source, rounded to nearest
 * even */
static void weight_set_takes_slices_in_any_order(void **state)
{
    (void)state;
    enum { N = 75, K = 301, STRIDE = K * 4 + 3 };
    static const uint32_t slice[][2] = { { 20, 3 }, { 0, 1 }, { 40, 35 }, { 1, 19 }, { 23, 17 }, { 5, 0 } };
    struct device        *d[OP_DEVICES_MAX + 1];
    uint32_t              n_dev = op_cpu_devices(d);
    d[n_dev++] = op_open(DEV_REF, NULL, 0);
    float *v = op_random(N * K, 1, 1), *got = op_random(N * K, 2, 1);
    char  *src = malloc(N * STRIDE + 1);
    for (int from = 0; from < 3; from++) {
        for (uint32_t i = 0; i < N * K; i++) {
            char    *at = src + 1 + (size_t)(i / K) * STRIDE + i % K * dtype_bytes(types[from]);
            uint16_t h = types[from] == DT_BF16 ? f32_to_bf16(v[i]) : f32_to_f16(v[i]);
            if (types[from] == DT_F32)
                memcpy(at, &v[i], 4);
            else
                memcpy(at, &h, 2);
        }
        for (int to = 0; to < 3; to++)
            for (uint32_t i = 0; i < n_dev; i++) {
                struct dev_weight w;
                assert_int_equal(d[i]->ops->weight_alloc(d[i], types[to], N, K, &w), ST_OK);
                assert_int_equal(w.bytes, dev_weight_bytes(d[i], types[to], N, K));
                for (size_t s = 0; s < sizeof slice / sizeof *slice; s++)
                    d[i]->ops->weight_set(d[i], &w, slice[s][0], slice[s][1], src + 1 + slice[s][0] * STRIDE, STRIDE,
                                          types[from]);
                uint32_t id[N];
                for (uint32_t r = 0; r < N; r++) id[r] = (r * 7) % N;
                d[i]->ops->embed(d[i], got, id, &w, N);
                for (uint32_t r = 0; r < N; r++)
                    for (uint32_t c = 0; c < K; c++) {
                        float want = op_rounded(op_rounded(v[id[r] * K + c], types[from]), types[to]);
                        op_assert_same(&got[r * K + c], &want, 1, d[i]->ops->name);
                    }
            }
    }
    free(v);
    free(got);
    free(src);
    op_close(d, n_dev);
}

/* as the readers of a checkpoint do: the team of the device, which has one caller, must stay out of it */
struct setter {
    struct device     *d;
    struct dev_weight *w;
    const float       *src;
    uint32_t           first, step;
};
enum { SET_N = 512, SET_K = 700, SETTERS = 4 };

static void *set_run(void *arg)
{
    struct setter *s = arg;
    enum { SLICE = 20 }; /* rows: no whole number of panels, so that two threads write into one */
    for (uint32_t r = s->first * SLICE; r < SET_N; r += s->step * SLICE)
        s->d->ops->weight_set(s->d, s->w, r, SET_N - r < SLICE ? SET_N - r : SLICE, s->src + (size_t)r * SET_K,
                              SET_K * 4, DT_F32);
    return NULL;
}

static void several_threads_may_set_rows_of_one_weight(void **state)
{
    (void)state;
    struct device *d[OP_DEVICES_MAX + 1];
    uint32_t       n_dev = op_cpu_devices(d);
    d[n_dev++] = op_open(DEV_REF, NULL, 0);
    float *src = op_random(SET_N * SET_K, 1, 1), *got = op_random(SET_K, 2, 1);
    for (uint32_t i = 0; i < n_dev; i++) {
        struct dev_weight w;
        pthread_t         t[SETTERS];
        struct setter     s[SETTERS];
        assert_int_equal(d[i]->ops->weight_alloc(d[i], DT_BF16, SET_N, SET_K, &w), ST_OK);
        for (uint32_t j = 0; j < SETTERS; j++) {
            s[j] = (struct setter){ d[i], &w, src, j, SETTERS };
            assert_int_equal(pthread_create(&t[j], NULL, set_run, &s[j]), 0);
        }
        for (uint32_t j = 0; j < SETTERS; j++) pthread_join(t[j], NULL);
        for (uint32_t r = 0; r < SET_N; r++) {
            d[i]->ops->embed(d[i], got, &r, &w, 1);
            for (uint32_t c = 0; c < SET_K; c++) assert_true(got[c] == op_rounded(src[r * SET_K + c], DT_BF16));
        }
    }
    free(src);
    free(got);
    op_close(d, n_dev);
}

/* one matrix serves as embedding and as head: what embed reads is what linear multiplies with */
static void tied_weights_serve_embed_and_linear(void **state)
{
    (void)state;
    enum { N = 50, K = 24 };
    struct device *d[OP_DEVICES_MAX];
    uint32_t       n_dev = op_cpu_devices(d);
    float         *src = op_random(N * K, 1, 1), *unit = calloc(K * K, sizeof *unit), *row = op_random(N * K, 2, 1),
          *col = op_random(K * N, 3, 1);
    uint32_t id[N];
    for (uint32_t i = 0; i < N; i++) id[i] = i;
    for (uint32_t i = 0; i < K; i++) unit[i * K + i] = 1;
    for (uint32_t i = 0; i < n_dev; i++) {
        struct dev_weight w = op_weight(d[i], DT_BF16, N, K, src);
        d[i]->ops->embed(d[i], row, id, &w, N);
        d[i]->ops->linear(d[i], col, unit, &w, NULL, K);
        for (uint32_t r = 0; r < N; r++)
            for (uint32_t c = 0; c < K; c++) assert_true(row[r * K + c] == col[c * N + r]);
    }
    free(src);
    free(unit);
    free(row);
    free(col);
    op_close(d, n_dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_agrees_with_ref),
        cmocka_unit_test(a_row_has_the_same_bits_in_every_batch_and_place),
        cmocka_unit_test(weight_set_takes_slices_in_any_order),
        cmocka_unit_test(several_threads_may_set_rows_of_one_weight),
        cmocka_unit_test(tied_weights_serve_embed_and_linear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
