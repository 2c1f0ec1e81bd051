/* Products that the library adds to the residual stream: what they give, and when they stand alone. */
#include "cuda/cuda_test.h"
#include "kernels/cuda/gemm.h"
#include "test.h"
#include "tests/emu/cublaslt.h"
#ifndef CUDA_EMU
struct emu_lt_state emu_lt; /* the real library has no such switches: what they would show is not shown then */
#endif

enum { ROWS = 70, N = 48, K = 136 };

struct rig {
    struct device    *d;
    struct dev_weight w;
    float            *x, *old, *weight, *bias; /* rounded to act; bias: of the device */
    char             *dx, *out;                /* out [ROWS + 1, N] */
};

static void rig_open(struct rig *r, enum dtype act, const char *library, bool deterministic)
{
    struct dev_cfg cfg = { .kind = DEV_CUDA,
                           .arena_bytes = 96 << 20,
                           .n_rank = 1,
                           .act = act,
                           .deterministic = deterministic,
                           .cublaslt = library,
                           .pdl = true };
    *r = (struct rig){ .x = op_random(ROWS * K, 1, 1), .old = op_random((ROWS + 1) * N, 2, 30) };
    r->weight = op_random(N * K, 3, 0.1f);
    assert_int_equal(dev_open(&cfg, &r->d), ST_OK);
    ct_round(r->x, ROWS * K, act);
    ct_round(r->old, (ROWS + 1) * N, act);
    ct_round(r->weight, N * K, act);
    r->w = op_weight(r->d, act, N, K, r->weight);
    r->dx = ct_act(r->d, r->x, ROWS * K);
    r->out = ct_act_new(r->d, (ROWS + 1) * N);
    float *bias = op_random(N, 4, 1);
    r->bias = ct_bytes(r->d, bias, N * sizeof *bias);
    free(bias);
}

static void rig_close(struct rig *r)
{
    dev_close(r->d);
    free(r->x);
    free(r->old);
    free(r->weight);
}

/* Whether m rows were summed; what lies in out then. The caller frees *got_out, [ROWS + 1][N]. */
static bool summed(struct rig *r, const struct op_fused *more, uint32_t m, float **got_out)
{
    char           *old = ct_act(r->d, r->old, (ROWS + 1) * N);
    uint16_t       *got = malloc((ROWS + 1) * N * 2);
    struct op_fused o = *more;
    o.out = old;
    o.x = r->dx;
    o.w = &r->w;
    o.m = m;
    bool done = r->d->ops->fused(r->d, &o);
    ct_get(r->d, got, old, (ROWS + 1) * N * 2);
    *got_out = malloc((ROWS + 1) * N * sizeof **got_out);
    for (size_t i = 0; i < (ROWS + 1) * N; i++)
        (*got_out)[i] = r->d->act == DT_F16 ? f16_to_f32(got[i]) : bf16_to_f32(got[i]);
    free(got);
    return done;
}

static const struct op_fused sum = { .end = OP_END_ADD };

static void a_sum_is_rounded_once(void **state)
{
    (void)state;
    static const uint32_t rows[] = { 1, 7, 33, ROWS };
    for (int t = 0; t < 2; t++) {
        struct rig r;
        float     *got;
        double     unit = t ? 0x1p-11 : 0x1p-8;
        rig_open(&r, t ? DT_F16 : DT_BF16, NULL, false);
        for (size_t c = 0; c < ARRAY_N(rows); c++)
            for (CT_SCHEDULES(schedule)) {
                uint32_t before = emu_lt.n_matmul;
                assert_true(summed(&r, &sum, rows[c], &got));
#ifdef CUDA_EMU
                assert_int_equal(emu_lt.n_matmul, before + 1);
#else
                (void)before;
#endif
                for (uint32_t i = 0; i <= ROWS; i++)
                    for (uint32_t n = 0; n < N; n++) {
                        double want = (double)r.old[i * N + n];
                        for (uint32_t k = 0; i < rows[c] && k < K; k++)
                            want += (double)r.x[i * K + k] * (double)r.weight[n * K + k];
                        double x = (double)got[i * N + n];
                        /* half a unit of the result, and fp32 sums: a product that was rounded by itself is further off */
                        if (!(fabs(x - want) <= ldexp(unit, ilogb(want)) + 1e-5))
                            fail_msg("row %u of %u: %.9g, should be %.9g", i, rows[c], x, want);
                    }
                free(got);
            }
        rig_close(&r);
    }
    assert_int_equal(emu_lt.n_misuse, 0);
}

static void assert_untouched(struct rig *r, const float *got)
{
    assert_memory_equal(got, r->old, (ROWS + 1) * N * sizeof *got);
}

/* What it cannot do is left undone. */
static void the_library_does_nothing_else(void **state)
{
    (void)state;
    struct rig r;
    float     *got;
    rig_open(&r, DT_BF16, NULL, false);
    const struct op_fused others[] = { { .end = OP_END_ADD, .bias = r.bias },
                                       { .end = OP_END_ADD, .norm = r.bias, .eps = 1e-5f },
                                       { .end = OP_END_STORE },
                                       { .end = OP_END_GLU } };
    for (size_t i = 0; i < ARRAY_N(others); i++) {
        assert_false(summed(&r, &others[i], ROWS, &got));
        assert_untouched(&r, got);
        free(got);
    }
#ifdef CUDA_EMU
    emu_lt.refuse = true;
    assert_false(summed(&r, &sum, ROWS, &got));
    emu_lt.refuse = false;
    assert_untouched(&r, got);
    free(got);
#endif
    rig_close(&r);
}

/* A sum of many rows is the library's or nobody's; of few rows, without it or with --deterministic, it is ours. */
static void without_the_library_few_rows_are_summed_by_our_kernel(void **state)
{
    (void)state;
    for (int det = 0; det < 2; det++) {
        struct rig r;
        float     *got;
        uint32_t   before = emu_lt.n_matmul;
        rig_open(&r, DT_BF16, det ? NULL : "none", det);
        assert_false(summed(&r, &sum, ROWS, &got));
        assert_untouched(&r, got);
        free(got);
        assert_true(summed(&r, &sum, 7, &got));
        assert_int_equal(emu_lt.n_matmul, before);
        free(got);
        rig_close(&r);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sum_is_rounded_once),
        cmocka_unit_test(the_library_does_nothing_else),
        cmocka_unit_test(without_the_library_few_rows_are_summed_by_our_kernel),
    };
    return ct_run(tests);
}
