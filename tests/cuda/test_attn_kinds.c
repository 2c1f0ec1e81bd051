/* Every kernel of attention, of each type of numbers and each length of a head, under the schedules that differ most:
 * against ref. */
#include "cuda/attn_world.h"
#include "test.h"

static const uint32_t lens[] = { 40, 70 };
/* rows alone and a chunk that takes tiles; a run of rows, for the kernel of runs */
static const struct aw_part steps[][2] = { { { 0, 39, 40 }, { 1, 51, 70 } }, { { 0, 36, 39 }, { 1, 69, 70 } } };
static const uint32_t       dims[] = { 32, 64, 80, 96, 128, 256, 512 };
static const struct kind {
    enum dtype act, kv;
} kinds[] = { { DT_BF16, DT_F32 }, { DT_F16, DT_F32 }, { DT_BF16, DT_F8E4M3 } };

/* fixed: with the split of --deterministic */
static void assert_right(const struct kind *kind, uint32_t n_head, uint32_t dim, bool fixed)
{
    struct aw_world w =
        aw_make((struct aw_shape){ n_head, 1, dim, 16, 0, kind->act, 0, false, false, kind->kv }, lens, ARRAY_N(lens));
    struct aw_device a = aw_open(&w, fixed);
    for (size_t i = 0; i < ARRAY_N(steps); i++) {
        float *want = aw_want(&w, steps[i], 2);
        for (CT_SCHEDULES_FEW(schedule)) {
            char what[100];
            snprintf(what, sizeof what, "%u heads of %u, step %zu, %s", n_head, dim, i, ct_schedule_name(schedule));
            uint16_t *got = aw_run(&a, &w, steps[i], 2, false);
            aw_assert_close(&w, got, want, steps[i], 2, what);
            free(got);
        }
        free(want);
    }
    dev_close(a.d);
    aw_free(&w);
}

/* Two heads a tile, where there are pairs, and one. */
static void every_kernel_is_right_under_schedules_that_differ(void **state)
{
    (void)state;
    for (size_t k = 0; k < ARRAY_N(kinds); k++)
        for (size_t i = 0; i < ARRAY_N(dims); i++) {
            assert_right(&kinds[k], 2, dims[i], false);
            assert_right(&kinds[k], 3, dims[i], true);
        }
}

/* Long heads, where shared memory is short. */
static void every_kernel_of_small_blocks_is_right(void **state)
{
    (void)state;
#ifdef CUDA_EMU
    for (size_t k = 0; k < ARRAY_N(kinds); k++)
        for (int i = 0; i < 2; i++) {
            struct emu_device small = { (size_t)1 << 30, i ? 89 : 80, 4 };
            emu_set_device(0, &small);
            assert_right(&kinds[k], 1, i ? 512 : 256, true);
            emu_reset();
        }
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kernel_is_right_under_schedules_that_differ),
        cmocka_unit_test(every_kernel_of_small_blocks_is_right),
    };
    return ct_run(tests);
}
