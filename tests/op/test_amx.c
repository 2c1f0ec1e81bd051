/* kernels/cpu/gemm_amx.c on a model of the tile instructions (amx_model.h), which this machine need not have: every
 * format against ref, every number of rows against the rows alone. The rest of the device is as on AVX-512. */
#include "kernels/quant.h"
#include "op_test.h"
#define AMX_MODEL
#include "op/amx_model.h"
#include "kernels/cpu/gemm_amx.c"

static const struct format {
    const char      *name;
    struct dev_quant q;
} formats[] = {
    { "bf16", { DT_F32, 0, false, false, false } },
    { "int8", { DT_I8, 0, false, false, false } },
    { "int8 by int8", { DT_I8, 0, false, true, false } },
    { "int8 by int8, groups of 64", { DT_I8, 64, false, true, false } },
    { "int4, groups of 32", { DT_I4, 32, false, false, false } },
    { "int4, groups of 512 with zeros", { DT_I4, 512, true, false, false } },
    { "fp8, groups of 128", { DT_F8E4M3, 128, false, false, false } },
    { "mxfp4", { DT_F4E2M1, 32, false, false, false } },
    { "nvfp4", { DT_F4E2M1, 16, false, false, false } },
};
enum { FORMATS = sizeof formats / sizeof *formats };

/* tiles: multiplied with by gemm_amx.c, whatever the device */
static struct dev_weight take(struct device *d, const struct format *f, uint32_t n, uint32_t k, const float *src,
                              bool tiles)
{
    struct dev_weight w;
    if (f->q.code == DT_F32)
        assert_int_equal(d->ops->weight_alloc(d, DT_BF16, n, k, &w), ST_OK);
    else
        assert_int_equal(d->ops->quant_alloc(d, &f->q, n, k, &w), ST_OK);
    if (tiles) w.how = gemm_amx_kind(w.dtype, f->q.act8);
    d->ops->weight_set(d, &w, 0, n, src, k * sizeof *src, DT_F32);
    return w;
}

/* Activations are rounded to bf16, and codes with their scales too: 2^-9 of each, in a random walk. Integers are
 * exact. */
static double bound(const struct format *f) { return f->q.act8 ? 4e-6 : 1.2e-2; }

static void the_look_at_start_finds_tiles_that_work(void **state)
{
    (void)state;
    assert_true(gemm_amx_works());
    amx_broken = true; /* and those that do not */
    assert_false(gemm_amx_works());
    amx_broken = false;
}

static void every_format_agrees_with_ref(void **state)
{
    (void)state;
    static const struct {
        uint32_t m, n, k;
    } shape[] = { { 1, 1, 1 }, { 3, 17, 33 }, { 21, 70, 300 }, { 50, 100, 65 }, { 5, 130, 1100 } };
    struct device *d = op_open(DEV_CPU, "avx512", 1), *ref = op_open(DEV_REF, NULL, 0);
    for (size_t s = 0; s < sizeof shape / sizeof *shape; s++)
        for (int f = 0; f < FORMATS; f++) {
            uint32_t m = shape[s].m, n = shape[s].n, k = shape[s].k, id = n - 1;
            float   *x = op_random((size_t)m * k, 1, 1), *src = op_random((size_t)n * k, 2, 1 / sqrtf((float)k)),
                  *bias = op_random(n, 3, 1);
            float *want = op_random((size_t)m * n, 4, 1), *got = op_random((size_t)m * n, 5, 1),
                  *row = malloc(2 * k * sizeof *row);
            struct dev_weight wr = take(ref, &formats[f], n, k, src, false), w = take(d, &formats[f], n, k, src, true);
            ref->ops->linear(ref, want, x, &wr, bias, m);
            d->ops->linear(d, got, x, &w, bias, m);
            op_assert_near(got, want, (size_t)m * n, bound(&formats[f]), formats[f].name);
            ref->ops->embed(ref, row, &id, &wr, 1);
            d->ops->embed(d, row + k, &id, &w, 1);
            op_assert_same(row + k, row, k, formats[f].name);
            free(x);
            free(src);
            free(bias);
            free(want);
            free(got);
            free(row);
        }
    dev_close(ref);
    dev_close(d);
}

static void a_row_has_the_same_bits_for_every_number_of_rows(void **state)
{
    (void)state;
    enum { N = 86, K = 160, M = 100 };
    static const uint32_t size[] = { 1, 2, 5, 15, 16, 17, 31, 32, 33, 47, 48, 64, M };
    struct device        *d = op_open(DEV_CPU, "avx512", 1);
    float                *x = op_random(M * K, 1, 1), *src = op_random(N * K, 2, 0.1f), *bias = op_random(N, 3, 1);
    static float          alone[M * N], got[M * N];
    x[9 * K + 3] = NAN;
    for (int f = 0; f < FORMATS; f++) {
        struct dev_weight w = take(d, &formats[f], N, K, src, true);
        for (uint32_t r = 0; r < M; r++) d->ops->linear(d, alone + r * N, x + r * K, &w, bias, 1);
        for (size_t s = 0; s < sizeof size / sizeof *size; s++) {
            d->ops->linear(d, got, x, &w, bias, size[s]);
            for (uint32_t r = 0; r < size[s]; r++)
                if (memcmp(got + r * N, alone + r * N, N * sizeof *got))
                    fail_msg("%s: row %u of %u differs from itself alone", formats[f].name, r, size[s]);
        }
        assert_true(isnan(alone[9 * N]) && isfinite(alone[8 * N]) && isfinite(alone[10 * N]));
    }
    free(x);
    free(src);
    free(bias);
    dev_close(d);
}

/* A chain that is cut after 4096 inputs goes on where it was: two tiles of rows, which are cut, against one, which is
 * not. */
static void a_long_chain_may_be_cut(void **state)
{
    (void)state;
    enum { N = 64, K = 4096 + 96, M = 32 };
    struct device    *d = op_open(DEV_CPU, "avx512", 1);
    float            *x = op_random(M * K, 1, 1), *src = op_random(N * K, 2, 0.02f);
    static float      alone[N], got[M * N];
    struct dev_weight w = take(d, &formats[0], N, K, src, true);
    d->ops->linear(d, got, x, &w, NULL, M);
    for (uint32_t r = 0; r < M; r += 31) {
        d->ops->linear(d, alone, x + r * K, &w, NULL, 1);
        op_assert_same(got + r * N, alone, N, "cut");
    }
    free(x);
    free(src);
    dev_close(d);
}

/* Sums of integers are exact, and what follows is one order of float operations: the bits of a plain loop. */
static void integers_give_the_bits_of_a_plain_product(void **state)
{
    (void)state;
    enum { N = 40, K = 300, M = 20 };
    struct device *d = op_open(DEV_CPU, "avx512", 1);
    float         *x = op_random(M * K, 1, 1), *src = op_random(N * K, 2, 1), scale[K];
    static float   got[M * N];
    static uint8_t code[K];
    static int8_t  act[K];
    for (int f = 0; f < FORMATS; f++) {
        if (!formats[f].q.act8) continue;
        const struct dev_quant *q = &formats[f].q;
        uint32_t                group = q->group ? q->group : K;
        struct dev_weight       w = take(d, &formats[f], N, K, src, true);
        d->ops->linear(d, got, x, &w, NULL, M);
        for (uint32_t n = 0; n < N; n++) {
            quant_row(q, K, src + n * K, DT_F32, code, scale);
            for (uint32_t r = 0; r < M; r++) {
                float act_scale = quant_act(x + r * K, K, act), want = 0;
                for (uint32_t k = 0; k < K; k += group) {
                    int32_t sum = 0;
                    for (uint32_t i = k; i < K && i < k + group; i++) sum += act[i] * (int8_t)code[i];
                    want = fmaf((float)sum * act_scale, scale[k / group], want);
                }
                op_assert_same(got + r * N + n, &want, 1, formats[f].name);
            }
        }
    }
    free(x);
    free(src);
    dev_close(d);
}

int main(void)
{
    if (!dev_cpu_has_isa("avx512") || !__builtin_cpu_supports("avx512vbmi")) {
        puts("no AVX-512 with VBMI here, skipped");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_look_at_start_finds_tiles_that_work),
        cmocka_unit_test(every_format_agrees_with_ref),
        cmocka_unit_test(a_row_has_the_same_bits_for_every_number_of_rows),
        cmocka_unit_test(a_long_chain_may_be_cut),
        cmocka_unit_test(integers_give_the_bits_of_a_plain_product),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
