/* Attention on the CUDA device: against ref, the bits of a row in every batch, chunk and kernel, padding, graphs, addresses. */
#include "cuda/attn_world.h"
#include <cuda_runtime_api.h>

static const char *name_of(struct aw_shape s, const char *what)
{
    static char text[200];
    snprintf(text, sizeof text, "%s: heads %u/%u dim %u blocks of %u window %u %s", what, s.n_head, s.n_kv_head, s.dim, s.block_tokens,
             s.window, s.act == DT_F16 ? "f16" : "bf16");
    return text;
}

static const struct aw_shape shapes[] = {
    { 4, 1, 128, 16, 0, DT_BF16 }, { 8, 1, 128, 32, 100, DT_F16 }, { 2, 2, 128, 64, 0, DT_BF16 }, { 4, 2, 64, 16, 0, DT_F16 },
    { 3, 3, 64, 16, 70, DT_BF16 }, { 3, 1, 64, 8, 0, DT_BF16 },    { 2, 2, 80, 16, 0, DT_BF16 },  { 4, 1, 96, 24, 200, DT_BF16 },
    { 2, 1, 256, 16, 0, DT_BF16 }, { 2, 1, 256, 64, 130, DT_F16 }, { 4, 2, 16, 16, 0, DT_BF16 },  { 4, 4, 32, 32, 0, DT_F16 },
    { 6, 2, 20, 16, 33, DT_BF16 }, { 3, 1, 7, 5, 0, DT_F16 },      { 20, 1, 32, 16, 0, DT_BF16 }, { 17, 1, 64, 1, 64, DT_BF16 },
    { 2, 1, 200, 16, 0, DT_BF16 }, { 16, 1, 48, 16, 1, DT_BF16 },
};
static const uint32_t lens[] = { 1, 333, 64, 130, 65, 190 };
/* decode of four, a chunk that begins in the middle, a whole prompt */
static const struct aw_part mixed[] = { { 0, 0, 1 }, { 1, 332, 333 }, { 2, 63, 64 }, { 3, 129, 130 }, { 5, 71, 190 }, { 4, 0, 65 } };
enum { N_MIXED = sizeof mixed / sizeof mixed[0], N_LENS = sizeof lens / sizeof lens[0] };

static void every_shape_agrees_with_ref(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct aw_world w = aw_make(shapes[i], lens, N_LENS);
        float          *want = aw_want(&w, mixed, N_MIXED);
        for (int fixed = 0; fixed < 2; fixed++) {
            struct aw_device a = aw_open(&w, fixed);
            uint16_t        *got = aw_run(&a, &w, mixed, N_MIXED, false);
            aw_assert_close(&w, got, want, mixed, N_MIXED, name_of(shapes[i], "attention"));
            free(got);
            dev_close(a.d);
        }
        free(want);
        aw_free(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_shape_agrees_with_ref),
    };
    return ct_run(tests);
}
