/* kernels/cpu/attn_amx.c on a model of the tile instructions (amx_model.h), which this machine need not have, on a
 * device that else is as on AVX-512: against ref; every chunk, batch, page size and number of threads against each
 * other; what is not seen. */
#include "op/attn_world.h"
#define AMX_MODEL
#include "op/amx_model.h"

#include "kernels/cpu/attn_amx.c"

static const struct shape shapes[] = { { 4, 2, 64, 64, 16, 0, DT_BF16, true, 0, false, false, false },
                                       { 8, 1, 32, 32, 32, 0, DT_BF16, false, 0, false, false, false },
                                       { 6, 2, 96, 96, 16, 50, DT_BF16, false, 0, false, false, false },
                                       { 2, 1, 128, 0, 64, 70, DT_BF16, true, 0, false, false, false },
                                       { 70, 1, 32, 16, 16, 0, DT_BF16, false, 0, false, false, false },
                                       { 8, 1, 64, 64, 16, 50, DT_BF16, true, 0, true, false, false } };
enum { SHAPES = sizeof shapes / sizeof *shapes };

static struct device *open_model(uint32_t n_thread)
{
    static struct cpu_isa isa;
    struct device        *d = op_open(DEV_CPU, "avx512", n_thread);
    isa = *cpu_of(d)->isa;
    isa.attn = &attn_amx;
    cpu_of(d)->isa = &isa;
    return d;
}

static void the_look_at_start_finds_tiles_that_work(void **state)
{
    (void)state;
    assert_true(attn_amx_works());
    amx_broken = true; /* and those that do not */
    assert_false(attn_amx_works());
    amx_broken = false;
}

/* Queries, keys and weights are rounded to bf16, which is seen most where heads are not normed and scores large. */
static void rows_agree_with_ref_and_alone_have_the_same_bits(void **state)
{
    (void)state;
    static const uint32_t chunk[] = { 1, 5, 33, 100 };
    struct device        *ref = op_open(DEV_REF, NULL, 0), *d[] = { open_model(1), open_model(2) };
    for (size_t i = 0; i < SHAPES; i++) {
        struct world w = make(shapes[i], 0), other = make(shapes[i], 1); /* other pages */
        size_t       width = shapes[i].n_head * shapes[i].dim;
        float       *want[SEQS], *got[SEQS];
        make_out(&w, want, width);
        make_out(&w, got, width);
        struct dev_kv kv_ref = make_kv(ref, shapes[i]), kv[] = { make_kv(d[0], shapes[i]), make_kv(d[1], shapes[i]) };
        run(ref, &w, &kv_ref, TOKENS_MAX, true, want, NULL);
        memset(kv[0].base, 0xff, kv[0].block_bytes * kv[0].n_block); /* NaN: what nobody wrote must not be read */
        run(d[0], &w, &kv[0], TOKENS_MAX, true, got, NULL);
        for (int s = 0; s < SEQS; s++)
            op_assert_near(got[s], want[s], w.len[s] * width, shapes[i].norm ? 2e-2 : 4e-2, "against ref");
        for (int s = 0; s < SEQS; s++) memcpy(want[s], got[s], w.len[s] * width * sizeof *got[s]);
        for (size_t c = 0; c < sizeof chunk / sizeof *chunk; c++) {
            struct dev_kv *on = &kv[c % 2];
            memset(on->base, 0xff, on->block_bytes * on->n_block);
            run(d[c % 2], c < 2 ? &other : &w, on, chunk[c], c != 1, got, NULL);
            assert_same_out(&w, got, want, "in chunks");
        }
        for (size_t k = 0; k < 2; k++) {
            struct device *than = op_open(DEV_CPU, k ? "avx512-bf16" : "avx512", 1);
            struct dev_kv  kv_than = make_kv(than, shapes[i]);
            run(than, &w, &kv_than, TOKENS_MAX, true, got, NULL);
            if (k) /* the same roundings, but for the order in which pairs are added */
                op_assert_near(got[0], want[0], w.len[0] * width, 1e-3, "against vdpbf16ps");
            else /* it was not floats that attended */
                assert_memory_not_equal(got[0], want[0], w.len[0] * width * sizeof *got[0]);
            dev_close(than);
        }
        free_out(want);
        free_out(got);
        unmake(&w);
        unmake(&other);
    }
    dev_close(ref);
    dev_close(d[0]);
    dev_close(d[1]);
}

/* Infinite and no numbers in a key and its value: whoever does not see it has the bits it has without, in the same
 * tiles. */
static void a_row_does_not_depend_on_tokens_that_it_may_not_see(void **state)
{
    (void)state;
    enum { BAD = 97 };
    struct device *d = open_model(1);
    for (size_t i = 0; i < 3; i++) {
        struct shape  s = shapes[i];
        struct world  w = make(s, 0);
        size_t        width = s.n_head * s.dim;
        float        *want[SEQS], *got[SEQS];
        struct dev_kv kv = make_kv(d, s);
        make_out(&w, want, width);
        make_out(&w, got, width);
        run(d, &w, &kv, TOKENS_MAX, true, want, NULL);
        for (uint32_t at = s.n_head * s.dim; at < w.width; at++) w.qkv[0][BAD * w.width + at] = at % 3 ? NAN : INFINITY;
        run(d, &w, &kv, TOKENS_MAX, true, got, NULL);
        for (uint32_t t = 0; t < w.len[0]; t++) {
            if (t >= BAD && (!s.window || t < BAD + s.window))
                assert_true(isnan(got[0][t * width]));
            else
                op_assert_same(got[0] + t * width, want[0] + t * width, width, "unseen");
        }
        free_out(want);
        free_out(got);
        unmake(&w);
    }
    dev_close(d);
}

int main(void)
{
    if (!dev_cpu_has_isa("avx512-bf16")) {
        puts("no AVX512-BF16 here, skipped");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_look_at_start_finds_tiles_that_work),
        cmocka_unit_test(rows_agree_with_ref_and_alone_have_the_same_bits),
        cmocka_unit_test(a_row_does_not_depend_on_tokens_that_it_may_not_see),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
