/* Products joined with a norm ahead of them and with a bias, a sum or a gate behind: the bits of the kernels one after
 * another, for every number of rows and in every order of threads. test_fused_codes.c has those of codes. */
#include "cuda/fused_world.h"
#include "test.h"

/* n, k: one slice, two, four and eight, the last one shorter; an odd n and odd halves; norms of one warp, of some, of
 * more than a block has, and of three vectors a thread */
static const uint32_t shapes[][2] = { { 48, 128 },  { 37, 64 },  { 130, 520 }, { 72, 1032 }, { 24, 2048 },
                                      { 16, 2056 }, { 6, 4104 }, { 136, 576 }, { 2, 8 },     { 4, 8200 } };

static void joined_products_have_the_bits_of_kernels_one_after_another(void **state)
{
    (void)state;
    for (size_t s = 0; s < ARRAY_N(shapes); s++) {
        struct rig r;
        rig_open(&r, s % 3 ? DT_BF16 : DT_F16, &plain, shapes[s][0], shapes[s][1]);
        for (uint32_t m = 1; m <= ROWS; m += ct_quick() ? 9 : 1)
            for (size_t c = 0; c < ARRAY_N(kinds); c++) {
                if (kinds[c].end == OP_END_GLU && r.n % 2) continue;
                if (kinds[c].norm && shapes[s][1] > 8000 && m > 4) continue; /* no room for more such rows */
                if ((c + m + s) % 3 && (m > ROWS_NORMED || r.n * r.k > 1 << 15)) continue;
                assert_joined_as_apart(&r, &kinds[c], m, (enum op_act)((m + s + c / 2) % ACTS));
            }
        rig_close(&r);
    }
}

static void every_gate_is_the_one_of_its_own_kernel(void **state)
{
    (void)state;
    struct rig r;
    rig_open(&r, DT_BF16, &plain, 26, 72);
    for (int act = 0; act < ACTS; act++)
        for (size_t c = 2; c < ARRAY_N(kinds); c++)
            if (kinds[c].end == OP_END_GLU) assert_joined_as_apart(&r, &kinds[c], 7, (enum op_act)act);
    rig_close(&r);
}

static void a_bad_row_changes_no_other(void **state)
{
    (void)state;
    struct rig r;
    rig_open(&r, DT_BF16, &plain, 48, 520);
    assert_a_bad_row_stays_alone(&r);
    rig_close(&r);
}

static void a_layer_is_the_same_in_every_order_of_threads_and_kernels(void **state)
{
    (void)state;
    static const struct dev_quant all_plain[4];
    assert_a_layer_is_the_same_in_every_order(all_plain);
}

/* What there is no kernel for is left to the ops one after another. */
static void what_has_no_kernel_is_refused_untouched(void **state)
{
    (void)state;
    struct rig        r;
    const struct kind stored = { OP_END_STORE, false, true }, normed = { OP_END_STORE, true, false },
                      sum = { OP_END_ADD, true, false };
    const struct dev_quant q = { .code = DT_I8 };
    rig_open(&r, DT_BF16, &plain, 48, 128);
    struct op_fused ok = question(&r, &stored, 3, OP_SILU), odd = ok, codes = ok,
                    shifted = question(&r, &normed, 3, OP_SILU), added = question(&r, &sum, 3, OP_SILU);
    struct dev_weight w7 = r.w, coded;
    fill(&r, OP_END_STORE);
    w7.k = 127;
    odd.w = &w7;
    assert_int_equal(r.d->ops->quant_alloc(r.d, &q, 48, 128, &coded), ST_OK);
    codes.w = &coded;
    shifted.norm++;
    assert_false(cuda_gemm_fused(cuda_of(r.d), &odd));
    assert_false(cuda_gemm_fused(cuda_of(r.d), &codes));
    assert_false(cuda_gemm_fused(cuda_of(r.d), &shifted));
    assert_false(cuda_gemm_fused(cuda_of(r.d), &added));
    uint16_t *got = take(&r, OP_END_STORE);
    for (size_t i = 0; i < (size_t)(ROWS + 1) * r.n; i++) assert_int_equal(got[i], 0xffff);
    free(got);
    assert_true(cuda_gemm_fused(cuda_of(r.d), &ok));
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(joined_products_have_the_bits_of_kernels_one_after_another),
        cmocka_unit_test(every_gate_is_the_one_of_its_own_kernel),
        cmocka_unit_test(a_bad_row_changes_no_other),
        cmocka_unit_test(a_layer_is_the_same_in_every_order_of_threads_and_kernels),
        cmocka_unit_test(what_has_no_kernel_is_refused_untouched),
    };
    return ct_run(tests);
}
