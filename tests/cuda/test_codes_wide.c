/* Products with codes and many rows by the library: the numbers that it is given, slab by slab, what it makes of them, and
 * when our own kernels multiply instead. */
#include "cuda/codes_rig.h"
#include "kernels/cuda/codes.h"
#include "kernels/cuda/gemm.h"
#include "tests/emu/cublaslt.h"
#ifndef CUDA_EMU
struct emu_lt_state emu_lt; /* the real library has no such switches: what they would show is not shown then */
#endif

enum { WIDE = 5, ROWS = 12 };

/* Code less its zero, times scale, as codes.h says: one rounding to F32 at each step. */
static float given_number(const struct rig *r, uint32_t row, uint32_t k)
{
    const struct given *g = &r->given;
    uint32_t            at = row * g->c.scale_stride + (r->q.group ? k / r->q.group : 0);
    float               code = quant_code(r->q.code, g->code[(size_t)row * g->c.code_stride + k]);
    if (r->q.code == DT_I4) code -= g->c.zero ? g->zero[at] : 8.0f;
    float scale = r->q.code == DT_I4 ? f16_to_f32(f32_to_f16(g->scale[at])) : g->scale[at];
    return quant_has_factor(&r->q) ? code * scale * g->factor[row] : code * scale;
}

static uint16_t to_act(const struct rig *r, float x) { return r->d->act == DT_F16 ? f32_to_f16(x) : f32_to_bf16(x); }

static void numbers_are_code_times_scale_rounded_once(void **state)
{
    (void)state;
    static const uint32_t shapes[][2] = { { 48, 256 }, { 37, 72 }, { 9, 1160 }, { 70, 8 } };
    for (size_t f = 0; f < ARRAY_N(formats); f++)
        for (size_t s = 0; s < ARRAY_N(shapes); s++) {
            struct rig     r;
            const uint32_t n = shapes[s][0], k = shapes[s][1], row0 = n / 3, rows = n - row0 - n / 8;
            rig_open(&r, s % 2 ? DT_F16 : DT_BF16, &formats[f], n, k, 1);
            char     *out = ct_alloc(r.d, ((size_t)rows * k + 8) * 2);
            uint16_t *want = malloc(((size_t)rows * k + 8) * 2), *got = malloc(((size_t)rows * k + 8) * 2);
            memset(want, 0xff, ((size_t)rows * k + 8) * 2);
            for (uint32_t i = 0; i < rows; i++)
                for (uint32_t j = 0; j < k; j++) want[(size_t)i * k + j] = to_act(&r, given_number(&r, row0 + i, j));
            for (CT_SCHEDULES(schedule)) {
                ct_poison(r.d, out, ((size_t)rows * k + 8) * 2);
                cuda_codes_numbers(cuda_of(r.d), out, &r.w, row0, rows);
                ct_get(r.d, (char *)got, out, ((size_t)rows * k + 8) * 2);
                ct_assert_same(got, want, ((size_t)rows * k + 8) * 2, ct_schedule_name(schedule));
            }
            free(want);
            free(got);
            rig_close(&r);
        }
}

/* The matrix again, on a device that takes it for wide from WIDE rows on, slabs of so many rows at a time. */
static void widen(struct rig *r, uint32_t slab)
{
    struct cuda_dev *d = cuda_of(r->d);
    d->codes_wide = WIDE;
    d->codes_slab = (size_t)slab * r->k * 2;
    d->blas->n_shape = 0; /* pins are for other numbers of rows */
    assert_int_equal(r->d->ops->quant_alloc(r->d, &r->q, r->n, r->k, &r->w), ST_OK);
    r->d->ops->quant_set(r->d, &r->w, 0, r->n, &r->given.c);
    assert_int_equal(r->d->ops->sync(r->d), ST_OK);
}

/* Against ref with the rounded numbers: sums in fp32, and one rounding. */
static void assert_product(struct rig *r, const char *got, uint32_t m)
{
    struct dev_weight w;
    double            unit = r->d->act == DT_F16 ? 0x1p-11 : 0x1p-8;
    float            *want = malloc((size_t)m * r->n * sizeof *want), *row = malloc(r->k * sizeof *row), most = 0;
    assert_int_equal(r->ref->ops->weight_alloc(r->ref, DT_F32, r->n, r->k, &w), ST_OK);
    for (uint32_t i = 0; i < r->n; i++) {
        for (uint32_t j = 0; j < r->k; j++) row[j] = given_number(r, i, j);
        ct_round(row, r->k, r->d->act);
        for (uint32_t j = 0; j < r->k; j++) most = fabsf(row[j]) > most ? fabsf(row[j]) : most;
        r->ref->ops->weight_set(r->ref, &w, i, 1, row, 0, DT_F32);
    }
    r->ref->ops->linear(r->ref, want, r->x, &w, NULL, m);
    for (size_t i = 0; i < (size_t)m * r->n; i++) {
        double x = (double)number(r, false, got, i), bound = unit * fabs((double)want[i]) + 2e-7 * (double)most * r->k;
        if (!(fabs(x - (double)want[i]) <= bound))
            fail_msg("%s group %u: [%zu, %zu] of %u rows is %.9g, should be %.9g", dtype_name(r->q.code), r->q.group,
                     i / r->n, i % r->n, m, x, (double)want[i]);
    }
    free(want);
    free(row);
}

/* How often the library multiplied for a product of m rows. */
static uint32_t multiplied(struct rig *r, bool logits, uint32_t m, char **got_out)
{
    uint32_t before = emu_lt.n_matmul;
    *got_out = run(r, logits, 0, m);
    assert_int_equal(emu_lt.n_misuse, 0);
    return emu_lt.n_matmul - before;
}

static void the_library_multiplies_slab_by_slab(void **state)
{
    (void)state;
    static const struct {
        uint32_t n, k, slab, n_slab;
    } shapes[] = { { 600, 72, 256, 3 }, { 520, 264, 300, 3 }, { 48, 256, 256, 1 }, { 264, 8, 512, 1 } };
    for (size_t f = 0; f < ARRAY_N(formats); f++) {
        struct rig r;
        size_t     s = f % ARRAY_N(shapes);
        char      *got;
        rig_open(&r, f % 2 ? DT_F16 : DT_BF16, &formats[f], shapes[s].n, shapes[s].k, ROWS);
        widen(&r, shapes[s].slab);
        for (CT_SCHEDULES(schedule)) {
            uint32_t n = multiplied(&r, false, ROWS, &got);
#ifdef CUDA_EMU
            assert_int_equal(n, shapes[s].n_slab);
#else
            (void)n;
#endif
            assert_product(&r, got, ROWS);
            free(got);
        }
        rig_close(&r);
    }
}

#ifdef CUDA_EMU
/* A product of many rows is our own kernels'. */
static void assert_ours(const struct dev_quant *q, uint32_t n, uint32_t k, uint32_t slab)
{
    struct rig r;
    char      *got;
    rig_open(&r, DT_BF16, q, n, k, ROWS);
    widen(&r, slab);
    assert_int_equal(multiplied(&r, false, ROWS, &got), 0);
    assert_right(&r, false, got, ROWS);
    free(got);
    rig_close(&r);
}

/* Few rows, logits, a matrix that the library does not take, rows that are not aligned, and --deterministic. */
static void our_own_kernels_multiply_the_rest(void **state)
{
    (void)state;
    struct rig r;
    char      *got;
    rig_open(&r, DT_BF16, &formats[0], 264, 256, ROWS);
    widen(&r, 256);
    for (uint32_t m = 1; m <= ROWS; m++) {
        assert_int_equal(multiplied(&r, false, m, &got), m > WIDE ? 2 : 0);
        free(got);
        assert_int_equal(multiplied(&r, true, m, &got), 0);
        assert_right(&r, true, got, m);
        free(got);
    }
    r.dx += 2;
    assert_int_equal(multiplied(&r, false, ROWS - 1, &got), 0); /* it was asked for aligned rows */
    free(got);
    r.dx -= 2;
    cuda_of(r.d)->deterministic = true;
    assert_int_equal(multiplied(&r, false, ROWS, &got), 0);
    assert_right(&r, false, got, ROWS);
    free(got);
    rig_close(&r);

    assert_ours(&formats[2], 37, 72, 256);
    assert_ours(&formats[2], 48, 67, 256);
    assert_ours(&formats[3], 48, 256, 255); /* not one tile of rows has room */
}

/* The library's first choice for a plain matrix of a slab's size adds up by way of the workspace, where the slab lies. */
static void a_slab_has_no_pin_of_a_plain_matrix(void **state)
{
    (void)state;
    struct rig        r;
    struct dev_weight plain;
    char             *got;
    rig_open(&r, DT_BF16, &formats[0], 512, 256, ROWS);
    cuda_of(r.d)->blas->n_shape = 0;
    assert_int_equal(r.d->ops->weight_alloc(r.d, DT_BF16, 256, 256, &plain), ST_OK);
    uint32_t n_plain = cuda_of(r.d)->blas->n_shape;
    cuda_of(r.d)->codes_wide = WIDE;
    cuda_of(r.d)->codes_slab = 256 * 256 * 2;
    assert_int_equal(r.d->ops->quant_alloc(r.d, &r.q, r.n, r.k, &r.w), ST_OK);
    assert_int_equal(cuda_of(r.d)->blas->n_shape, n_plain + 1);
    r.d->ops->quant_set(r.d, &r.w, 0, r.n, &r.given.c);
    assert_int_equal(multiplied(&r, false, ROWS, &got), 2);
    assert_product(&r, got, ROWS);
    free(got);
    rig_close(&r);
}

/* An algorithm that is wrong is found while loading, one that is refused later costs one product twice. */
static void a_library_that_fails_is_left_alone(void **state)
{
    (void)state;
    struct rig r;
    char      *got;
    emu_lt.wrong = true;
    rig_open(&r, DT_BF16, &formats[4], 600, 256, ROWS);
    widen(&r, 256);
    emu_lt.wrong = false;
    multiplied(&r, false, ROWS, &got);
    assert_product(&r, got, ROWS);
    free(got);
    emu_lt.refuse = true;
    multiplied(&r, false, ROWS, &got);
    emu_lt.refuse = false;
    assert_right(&r, false, got, ROWS);
    free(got);
    rig_close(&r);
}
#endif

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_code_times_scale_rounded_once),
        cmocka_unit_test(the_library_multiplies_slab_by_slab),
#ifdef CUDA_EMU
        cmocka_unit_test(our_own_kernels_multiply_the_rest),
        cmocka_unit_test(a_slab_has_no_pin_of_a_plain_matrix),
        cmocka_unit_test(a_library_that_fails_is_left_alone),
#endif
    };
    return ct_run(tests);
}
