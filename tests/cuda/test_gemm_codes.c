/* Products with weights that are codes: against ref, a row's bits for every number of rows, in every order of threads,
 * and codes that arrive in any pieces. */
#include "cuda/codes_rig.h"
#include "kernels/cuda/cuda.h"

enum { ROWS = 134 };

/* n, k: one slice and more, the last one shorter; odd sizes, those that forbid 16 bytes of x, and parts of a group */
static const uint32_t shapes[][2] = { { 48, 256 }, { 37, 67 },   { 130, 520 }, { 72, 1160 },
                                      { 9, 2100 }, { 136, 576 }, { 1, 8 },     { 16, 2056 } };
static const uint32_t few[] = { 1, 3, 8, 9, 16, 17, 32, 33, 64, 70 };

static void products_agree_with_ref(void **state)
{
    (void)state;
    for (size_t f = 0; f < ARRAY_N(formats); f++)
        for (size_t s = f % 4; s < ARRAY_N(shapes); s += 4) {
            struct rig r;
            rig_open(&r, (f + s) % 3 ? DT_BF16 : DT_F16, &formats[f], shapes[s][0], shapes[s][1], ROWS);
            for (size_t i = (f + s) % 2; i < ARRAY_N(few); i += 2) {
                bool  logits = (i / 2 + s) % 2;
                char *got = run(&r, logits, 0, few[i]);
                assert_right(&r, logits, got, few[i]);
                free(got);
            }
            rig_close(&r);
        }
}

static void a_row_has_the_same_bits_for_every_number_of_rows(void **state)
{
    (void)state;
    for (size_t f = 0; f < ARRAY_N(formats); f++) {
        if (f % (size_t)test_size(1, 3) && formats[f].code != DT_F4E2M1) continue;
        struct rig   r;
        const bool   logits = f % 2;
        const size_t s = f % ARRAY_N(shapes);
        rig_open(&r, f % 3 ? DT_BF16 : DT_F16, &formats[f], shapes[s][0], shapes[s][1], ROWS);
        size_t row = row_bytes(&r, logits);
        char  *all = run(&r, logits, 0, ROWS);
        assert_right(&r, logits, all, 3);
        for (uint32_t m = 1, step = 1; m < ROWS; m += step) {
            if (m >= 64 || f >= 4)
                step = 1 + (m * 7 + (uint32_t)f) % 29; /* the first kinds have every number up to 64 */
            if (ct_quick()) step = 10;
            char *some = run(&r, logits, m % 2 ? ROWS - m : 0, m);
            ct_assert_same(some, all + (m % 2 ? ROWS - m : 0) * row, m * row, "rows among fewer");
            free(some);
        }
        for (uint32_t i = 0; i < ROWS; i += 37) {
            char *one = run(&r, logits, i, 1);
            ct_assert_same(one, all + i * row, row, "a row alone");
            free(one);
        }
        free(all);
        rig_close(&r);
    }
}

/* Threads, blocks and copies in every order, and codes that are asked for before the kernel ahead has run, and blocks
 * that have one tile behind another in slices: x is what a product ahead makes. */
static void every_order_of_threads_gives_the_same_bits(void **state)
{
    (void)state;
    enum { N = 520, MOST = 70 };
    static const uint32_t m[] = { 3, 13, 29, MOST };
    for (size_t f = 0; f < 5; f += (size_t)test_size(1, 2)) {
        struct rig r;
        rig_open(&r, DT_BF16, &formats[f], N, N, ROWS);
        cuda_of(r.d)->n_sm = 1;
        for (size_t i = f / 2; i < ARRAY_N(m); i += 2) assert_the_same_in_every_order(&r, m[i]);
        rig_close(&r);
    }
}

/* Rows one by one, and after the buffers of loading are gone; the matrix's bytes are the same. */
static void codes_may_arrive_in_any_pieces(void **state)
{
    (void)state;
    enum { N = 21, K = 300 };
    for (size_t f = 0; f < ARRAY_N(formats); f++) {
        struct device    *d = ct_open(DT_BF16, 96 << 20);
        struct given      g = given_make(&formats[f], N, K);
        struct dev_weight w[2];
        unsigned char    *bytes[2];
        for (int i = 0; i < 2; i++) {
            assert_int_equal(d->ops->quant_alloc(d, &formats[f], N, K, &w[i]), ST_OK);
            ct_put(d, w[i].data, memset(bytes[i] = malloc(w[i].bytes), 0, w[i].bytes), w[i].bytes);
        }
        d->ops->quant_set(d, &w[0], 0, N, &g.c);
        for (uint32_t row = 0, n; row < N; row += n) {
            n = row % 3 ? 1 : 2;
            if (n > N - row) n = N - row;
            struct dev_codes c = g.c;
            c.code += row * c.code_stride;
            c.scale += row * c.scale_stride;
            c.factor += row;
            if (c.zero) c.zero += row * c.scale_stride;
            d->ops->quant_set(d, &w[1], row, n, &c);
        }
        assert_int_equal(d->ops->sync(d), ST_OK);
        for (int i = 0; i < 2; i++) ct_get(d, bytes[i], w[i].data, w[i].bytes);
        ct_assert_same(bytes[1], bytes[0], w[0].bytes, "pieces");
        for (int i = 0; i < 2; i++) free(bytes[i]);
        given_free(&g);
        dev_close(d);
    }
}

/* weight_set rounds as ref does, and one scale may serve all rows. */
static void floats_are_rounded_as_ref_rounds_them(void **state)
{
    (void)state;
    enum { N = 70, K = 200 };
    for (size_t f = 0; f < ARRAY_N(formats); f++) {
        struct rig r;
        rig_open(&r, DT_BF16, &formats[f], N, K, ROWS);
        float *w = op_random((size_t)N * K, f, 0.02f);
        r.d->ops->weight_set(r.d, &r.w, 0, N, w, K * sizeof *w, DT_F32);
        r.ref->ops->weight_set(r.ref, &r.wr, 0, N, w, K * sizeof *w, DT_F32);
        assert_int_equal(r.d->ops->sync(r.d), ST_OK);
        char *got = run(&r, true, 0, 5);
        assert_right(&r, true, got, 5);
        free(got);
        free(w);
        rig_close(&r);
    }
}

/* Numbers are exact and the scale multiplies once: one rounding to act. What is in no vocabulary is zero. No embedding is
 * of 4-bit floats. */
static void an_embedding_of_codes_gives_the_rows_that_ref_gives(void **state)
{
    (void)state;
    enum { N = 70, IDS = 9 };
    static const uint32_t ids[IDS] = { 0, 69, 7, 7, 70, UINT32_MAX, 33, 1, 68 }, widths[] = { 300, 64, 1090 };
    for (size_t f = 0; f < ARRAY_N(formats); f++)
        for (int half = 0; half < 2; half++) {
            struct rig r;
            uint32_t   k = widths[f % ARRAY_N(widths)];
            if (formats[f].code == DT_F4E2M1) continue;
            rig_open(&r, half ? DT_F16 : DT_BF16, &formats[f], N, k, ROWS);
            size_t          n = (size_t)IDS * k;
            void           *out = ct_alloc(r.d, (n + 1) * 2);
            uint16_t       *bits = malloc((n + 1) * 2);
            float          *got = malloc(n * sizeof *got), *want = calloc(n, sizeof *want);
            const uint32_t *on = ct_bytes(r.d, ids, sizeof ids);
            for (uint32_t i = 0; i < IDS; i++)
                if (ids[i] < N) r.ref->ops->embed(r.ref, want + (size_t)i * k, ids + i, &r.wr, 1);
            ct_round(want, n, r.d->act);
            for (CT_SCHEDULES_FEW(schedule)) {
                ct_poison(r.d, out, (n + 1) * 2);
                r.d->ops->embed(r.d, out, on, &r.w, IDS);
                ct_get(r.d, bits, out, (n + 1) * 2);
                assert_int_equal(bits[n], 0xffff);
                for (size_t i = 0; i < n; i++) got[i] = half ? f16_to_f32(bits[i]) : bf16_to_f32(bits[i]);
                for (size_t i = 0; i < n; i++)
                    if (got[i] != want[i])
                        fail_msg("format %zu row %zu number %zu is %.9g, should be %.9g", f, i / k, i % k,
                                 (double)got[i], (double)want[i]);
            }
            free(bits);
            free(got);
            free(want);
            rig_close(&r);
        }
}

static void other_formats_are_refused(void **state)
{
    (void)state;
    static const struct dev_quant bad[] = { { .code = DT_F4E2M1, .group = 64 },
                                            { .code = DT_I8, .zero = true },
                                            { .code = DT_I4, .group = 48 } };
    struct device                *d = ct_open(DT_BF16, 0);
    struct dev_weight             w;
    for (size_t i = 0; i < ARRAY_N(bad); i++) {
        assert_int_equal(dev_quant_bytes(d, &bad[i], 64, 4096), 0);
        assert_int_equal(d->ops->quant_alloc(d, &bad[i], 64, 4096, &w), ST_CONFIG);
    }
    dev_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_agree_with_ref),
        cmocka_unit_test(a_row_has_the_same_bits_for_every_number_of_rows),
        cmocka_unit_test(every_order_of_threads_gives_the_same_bits),
        cmocka_unit_test(codes_may_arrive_in_any_pieces),
        cmocka_unit_test(floats_are_rounded_as_ref_rounds_them),
        cmocka_unit_test(an_embedding_of_codes_gives_the_rows_that_ref_gives),
        cmocka_unit_test(other_formats_are_refused),
    };
    return ct_run(tests);
}
