/* Products of codes joined with a norm ahead of them and with a bias, a sum or a gate behind: for each kind of codes the
 * bits of the kernels one after another, for every number of rows and in every order of threads. test_fused_qkv.c has
 * those that finish heads. */
#include "cuda/fused_world.h"
#include "test.h"

/* n, k: one slice, two, four and eight, the last one shorter; lines and groups that are not whole; an odd n and odd
 * halves; tiles that some blocks have several of; norms of one warp, of some, of more than a block has, and of three
 * vectors a thread */
static const uint32_t shapes[][2] = { { 48, 128 }, { 37, 64 },   { 130, 520 }, { 72, 1032 }, { 24, 2048 }, { 16, 2056 },
                                      { 6, 4104 }, { 136, 576 }, { 2, 8 },     { 4, 8200 },  { 280, 2048 } };

static void joined_products_have_the_bits_of_kernels_one_after_another(void **state)
{
    (void)state;
    for (size_t s = 0; s < ARRAY_N(shapes); s++)
        for (size_t f = s % 2; f < ARRAY_N(formats); f += 2) {
            struct rig r;
            rig_open(&r, (s + f) % 3 ? DT_BF16 : DT_F16, &formats[f], shapes[s][0], shapes[s][1]);
            const bool big = r.n * r.k > 1 << 15;
            for (uint32_t m = 1; m <= ROWS; m += ct_quick() ? 9 : 1)
                for (size_t c = 0; c < ARRAY_N(kinds); c++) {
                    if (kinds[c].end == OP_END_GLU && r.n % 2) continue;
                    if (kinds[c].norm && r.k > 8000 && m > 4) continue; /* no room for more such rows */
                    if ((c + m + s + f) % (big ? 23 : 5)) continue;
                    assert_joined_as_apart(&r, &kinds[c], m, (enum op_act)((m + s + c / 2) % ACTS));
                }
            rig_close(&r);
        }
}

/* Each kind of codes, each way to join, and each width of the kernel. */
static void every_kind_of_codes_is_joined_in_every_way(void **state)
{
    (void)state;
    static const uint32_t m[] = { 1, 8, 9, 16, 17, 32, 33 };
    for (size_t f = 0; f < ARRAY_N(formats); f++)
        for (int half = 0; half < 2; half++) {
            struct rig r;
            rig_open(&r, half ? DT_F16 : DT_BF16, &formats[f], 26, 136);
            for (size_t i = 0; i < ARRAY_N(m); i++)
                for (size_t c = 0; c < ARRAY_N(kinds); c++)
                    assert_joined_as_apart(&r, &kinds[c], m[i], (enum op_act)((f + i + c) % ACTS));
            rig_close(&r);
        }
}

static void a_bad_row_changes_no_other(void **state)
{
    (void)state;
    for (size_t f = 0; f < ARRAY_N(formats); f += 2) {
        struct rig r;
        rig_open(&r, DT_BF16, &formats[f], 48, 520);
        assert_a_bad_row_stays_alone(&r);
        rig_close(&r);
    }
}

static void a_layer_is_the_same_in_every_order_of_threads_and_kernels(void **state)
{
    (void)state;
    for (size_t f = 0; f < ARRAY_N(formats); f += 2) {
        struct dev_quant q[4]; /* one kind, and all of them beside each other */
        for (size_t i = 0; i < 4; i++) q[i] = formats[f ? f : i];
        assert_a_layer_is_the_same_in_every_order(q);
    }
}

/* What there is no kernel for is left to the ops one after another. */
static void what_has_no_kernel_is_refused_untouched(void **state)
{
    (void)state;
    static const struct dev_quant experts = { .code = DT_F4E2M1, .group = 32 }; /* MXFP4 */
    const struct kind             stored = { OP_END_STORE, false, true }, normed = { OP_END_STORE, true, false },
                      sum = { OP_END_ADD, true, false };
    struct rig r;
    rig_open(&r, DT_BF16, &formats[0], 48, 128);
    const struct op_fused   ok = question(&r, &stored, 3, OP_SILU);
    struct op_fused         no[6] = { ok, ok, ok, ok, ok, ok };
    const struct dev_weight odd = given_weight(r.d, &formats[0], 48, 124), mx = given_weight(r.d, &experts, 48, 128);
    fill(&r, OP_END_STORE);
    no[0].w = &odd;
    no[1].w = &mx;
    no[2].x = r.x + 2;
    no[3] = question(&r, &normed, 3, OP_SILU);
    no[3].norm++;
    no[4] = question(&r, &sum, 3, OP_SILU);
    no[5].m = ROWS_JOINED + 1;
    for (size_t i = 0; i < ARRAY_N(no); i++) {
        assert_false(cuda_codes_fused(cuda_of(r.d), &no[i]));
        assert_false(cuda_fused(r.d, &no[i]));
    }
    assert_false(cuda_gemm_fused(cuda_of(r.d), &ok));
    uint16_t *got = take(&r, OP_END_STORE);
    for (size_t i = 0; i < (size_t)(ROWS + 1) * r.n; i++) assert_int_equal(got[i], 0xffff);
    free(got);
    assert_true(cuda_fused(r.d, &ok));
    rig_close(&r);
    rig_open(&r, DT_BF16, &formats[0], 16, 8200); /* two blocks of an SM have no room for five such rows */
    const struct op_fused four = question(&r, &normed, 4, OP_SILU), five = question(&r, &normed, 5, OP_SILU);
    assert_false(cuda_codes_fused(cuda_of(r.d), &five));
    assert_true(cuda_codes_fused(cuda_of(r.d), &four));
    rig_close(&r);
}

/* The library has no products of codes: they are joined whatever it has for plain weights. */
static void the_device_joins_each_kind_of_codes(void **state)
{
    (void)state;
    const struct kind kind = { OP_END_GLU, true, true };
    for (size_t f = 0; f < ARRAY_N(formats); f++) {
        struct rig r;
        rig_open(&r, DT_BF16, &formats[f], 48, 128);
        struct op_fused o = question(&r, &kind, 5, OP_SILU);
        fill(&r, OP_END_GLU);
        apart(r.d, &o, r.h, r.y);
        uint16_t *want = take(&r, OP_END_GLU);
        fill(&r, OP_END_GLU);
        assert_true(r.d->ops->fused(r.d, &o));
        uint16_t *got = take(&r, OP_END_GLU);
        ct_assert_same(got, want, (ROWS + 1) * (size_t)out_dim(&r, OP_END_GLU) * 2, dtype_name(r.w.q.code));
        free(want);
        free(got);
        rig_close(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(joined_products_have_the_bits_of_kernels_one_after_another),
        cmocka_unit_test(every_kind_of_codes_is_joined_in_every_way),
        cmocka_unit_test(a_bad_row_changes_no_other),
        cmocka_unit_test(a_layer_is_the_same_in_every_order_of_threads_and_kernels),
        cmocka_unit_test(what_has_no_kernel_is_refused_untouched),
        cmocka_unit_test(the_device_joins_each_kind_of_codes),
    };
    return ct_run(tests);
}
