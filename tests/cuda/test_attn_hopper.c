/* Attention of prompts by wgmma (attn_hopper.cu): against ref and against the other kernel for tiles of rows, in every
 * schedule, whatever the chunks of a prompt, beside tokens that a row may not see. On a GPU that is no sm_90: skipped. */
#include "cuda/attn_world.h"

static const struct aw_shape shapes[] = {
    { 4, 2, 128, 16, 0, DT_BF16, 0, false, false, DT_F32 },   { 8, 2, 128, 32, 100, DT_F16, 0, false, false, DT_F32 },
    { 2, 1, 64, 16, 0, DT_BF16, 0, true, false, DT_F32 },     { 6, 1, 64, 64, 70, DT_BF16, 2, false, false, DT_F32 },
    { 2, 1, 128, 16, 96, DT_BF16, 0, false, true, DT_F32 },   { 4, 1, 128, 48, 0, DT_F16, 0, false, false, DT_BF16 },
    { 2, 1, 128, 16, 1, DT_BF16, 0.5f, true, false, DT_F32 }, { 4, 1, 64, 16, 0, DT_F16, 0, false, false, DT_F32 },
};
static const uint32_t       lens[] = { 1, 333, 64, 130, 65, 190 };
static const struct aw_part mixed[] = { { 0, 0, 1 },    { 1, 332, 333 }, { 2, 63, 64 },  { 3, 129, 130 },
                                        { 5, 71, 190 }, { 4, 0, 65 },    { 1, 100, 333 } };
enum { N_MIXED = sizeof mixed / sizeof mixed[0], N_LENS = sizeof lens / sizeof lens[0] };

static struct aw_device open_with(const struct aw_world *w, bool wgmma)
{
    struct aw_device a = aw_open(w, false);
    cuda_of(a.d)->wgmma = wgmma;
    assert_int_equal(cuda_attn_wgmma(cuda_of(a.d), w->s.n_head, w->s.n_kv_head, w->s.dim, w->s.block_tokens), wgmma);
    return a;
}

static void it_is_chosen_by_shape_where_it_was_asked_for(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct dev_cfg cfg = { .kind = DEV_CUDA, .arena_bytes = 64 << 20, .n_rank = 1, .act = DT_BF16 };
        struct device *d;
        cfg.wgmma = i > 0;
        cfg.deterministic = i == 2;
#ifdef CUDA_EMU
        struct emu_device other = { (size_t)1 << 30, 100, 4 };
        if (i == 3) emu_set_device(0, &other);
#else
        if (i == 3) continue;
#endif
        assert_int_equal(dev_open(&cfg, &d), ST_OK);
        const struct cuda_dev *c = cuda_of(d);
        assert_int_equal(cuda_attn_wgmma(c, 32, 8, 128, 16), i == 1);
        assert_int_equal(cuda_attn_wgmma(c, 14, 7, 64, 32), i == 1);
        assert_false(cuda_attn_wgmma(c, 24, 8, 128, 16)); /* three heads to a KV head */
        assert_false(cuda_attn_wgmma(c, 32, 32, 128, 16));
        assert_false(cuda_attn_wgmma(c, 32, 8, 96, 16));
        assert_false(cuda_attn_wgmma(c, 32, 8, 256, 16));
        assert_false(cuda_attn_wgmma(c, 32, 8, 128, 8)); /* sixteen tokens do not lie behind each other */
        char text[DEV_ARITH];
        dev_arith(d, DT_BF16, NULL, DT_BF16, text);
        assert_int_equal(strstr(text, "wgmma") != NULL, i == 1); /* KV of the other is not taken for its own */
        dev_close(d);
#ifdef CUDA_EMU
        emu_reset();
#endif
    }
}

static void every_shape_agrees_with_ref_and_with_the_other_kernel(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct aw_world  w = aw_make(shapes[i], lens, N_LENS);
        float           *want = aw_want(&w, mixed, N_MIXED);
        struct aw_device a = open_with(&w, true), b = open_with(&w, false);
        ct_schedule((uint32_t)i * 4 % 12);
        uint16_t *got = aw_run(&a, &w, mixed, N_MIXED, false), *other = aw_run(&b, &w, mixed, N_MIXED, false);
        aw_assert_close(&w, got, want, mixed, N_MIXED, "wgmma");
#ifdef CUDA_EMU /* whose products of both kinds round alike */
        ct_assert_same(got, other, a.out_bytes, "the other kernel");
#else
        printf("           shape %zu: %s bits as the other kernel\n", i,
               memcmp(got, other, a.out_bytes) ? "not the" : "the same");
#endif
        free(got);
        free(other);
        free(want);
        dev_close(a.d);
        dev_close(b.d);
        aw_free(&w);
    }
    ct_schedule(0);
}

static void every_schedule_gives_the_same_bits(void **state)
{
    (void)state;
    static const uint32_t       len[] = { 200, 300 };
    static const struct aw_part part[] = { { 0, 0, 200 }, { 1, 250, 300 } };
    static const size_t         of_type[] = { 0, 1, 2, 7 }; /* both types, both sizes of a head */
    for (size_t i = 0; i < ARRAY_N(of_type); i++) {
        struct aw_world  w = aw_make(shapes[of_type[i]], len, 2);
        struct aw_device a = open_with(&w, true);
        uint16_t        *first = NULL;
        for (CT_SCHEDULES(schedule)) {
            uint16_t *got = aw_run(&a, &w, part, 2, false);
            if (first)
                ct_assert_same(got, first, a.out_bytes, ct_schedule_name(schedule));
            else {
                first = got;
                got = NULL;
            }
            free(got);
        }
        free(first);
        dev_close(a.d);
        aw_free(&w);
    }
}

/* Where a prompt is cut, and what stands beside it, changes no bit of its rows. */
static void chunks_of_a_prompt_do_not_matter(void **state)
{
    (void)state;
    static const uint32_t       len[] = { 300, 90 }, cut[] = { 31, 64, 200, 297 };
    static const struct aw_part whole[] = { { 0, 0, 300 } };
    for (size_t i = 0; i < 3; i++) {
        struct aw_world  w = aw_make(shapes[i], len, 2);
        struct aw_device a = open_with(&w, true);
        size_t           row = (size_t)w.s.n_head * w.s.dim;
        uint16_t        *want = aw_run(&a, &w, whole, 1, false);
        for (size_t c = 0; c < sizeof cut / sizeof *cut; c++) {
            struct aw_part before[] = { { 1, 80, 81 }, { 0, 0, cut[c] } },
                           behind[] = { { 0, cut[c], 300 }, { 1, 0, 90 } };
            uint16_t *x = aw_run(&a, &w, before, 2, false), *y = aw_run(&a, &w, behind, 2, false);
            ct_assert_same(x + row, want, cut[c] * row * 2, "before the cut");
            ct_assert_same(y, want + cut[c] * row, (300 - cut[c]) * row * 2, "behind the cut");
            free(x);
            free(y);
        }
        free(want);
        dev_close(a.d);
        aw_free(&w);
    }
}

/* NaN and infinity in K and V, or in V alone, reach exactly the rows that see them. */
static void a_row_does_not_depend_on_tokens_that_it_may_not_see(void **state)
{
    (void)state;
    static const struct aw_shape some[] = { { 4, 2, 64, 16, 0, DT_BF16, 0, false, false, DT_F32 },
                                            { 2, 1, 128, 16, 40, DT_BF16, 0, false, false, DT_F32 },
                                            { 2, 1, 128, 16, 40, DT_F16, 0, false, false, DT_F32 } };
    static const uint32_t        len[] = { 150 }, bad = 100;
    static const struct aw_part  whole[] = { { 0, 0, 150 } };
    for (size_t i = 0; i < sizeof some / sizeof *some; i++)
        for (int value = 0; value < 6; value++) {
            struct aw_world  w = aw_make(some[i], len, 1);
            size_t           width = w.s.n_head * w.s.dim;
            struct aw_device a = open_with(&w, true), b = open_with(&w, false);
            uint16_t        *want = aw_run(&a, &w, whole, 1, false);
            uint32_t         from = w.s.n_head + (value >= 3 ? w.s.n_kv_head : 0); /* V alone */
            for (uint32_t k = from * w.s.dim; k < w.width; k++)
                w.qkv[0][bad * w.width + k] = aw_no_number(value % 3, k);
            aw_append(&w, 0, bad);
            ct_put(a.d, a.kv.base, w.pool, w.pool_bytes);
            ct_put(b.d, b.kv.base, w.pool, w.pool_bytes);
            uint16_t *got = aw_run(&a, &w, whole, 1, false), *other = aw_run(&b, &w, whole, 1, false);
            for (uint32_t t = 0; t < 150; t++) {
                bool sees = t >= bad && (!w.s.window || t < bad + w.s.window);
                if (!sees) ct_assert_same(got + t * width, want + t * width, width * 2, "a row that does not see it");
                for (size_t k = 0; sees && k < width; k++) assert_false(isfinite(aw_float(&w, got[t * width + k])));
            }
#ifdef CUDA_EMU
            ct_assert_same(got, other, a.out_bytes, "the other kernel");
#endif
            free(want);
            free(got);
            free(other);
            dev_close(a.d);
            dev_close(b.d);
            aw_free(&w);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_chosen_by_shape_where_it_was_asked_for),
        cmocka_unit_test(every_shape_agrees_with_ref_and_with_the_other_kernel),
        cmocka_unit_test(every_schedule_gives_the_same_bits),
        cmocka_unit_test(chunks_of_a_prompt_do_not_matter),
        cmocka_unit_test(a_row_does_not_depend_on_tokens_that_it_may_not_see),
    };
    return ct_run_hopper(tests);
}
