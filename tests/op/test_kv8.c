/* Rows of the KV cache in 8 bits (kernels/kv8.h): what is kept of a row, on every device. */
#include "kernels/host.h"
#include "kernels/kv8.h"
#include "op_test.h"

enum { ROWS = 24, HEADS = 2, DIM = 40, BLOCK_TOKENS = 4, BLOCKS = 8, WIDTH = (1 + 2 * HEADS) * DIM };

/* Rows of every size, from numbers that are subnormal on; rows 1 to 5 have what is special. */
static float *make_rows(void)
{
    float *x = op_random(ROWS * WIDTH, 70, 1);
    for (uint32_t r = 0; r < ROWS; r++)
        for (uint32_t i = 0; i < WIDTH; i++) {
            float *at = &x[r * WIDTH + i];
            *at = ldexpf(*at, (int)r * 11 - 130 + (i % 7 == 0 ? -9 : 0));
            if (r == 1) *at = i % 3 ? 0.0f : -0.0f;
            if (r == 2 && i % DIM == 5) *at = INFINITY;
            if (r == 3 && i % DIM == 39) *at = -NAN;
            if (r == 4) *at = i % 2 ? 3.4e38f : 1;
            if (r == 5) *at = i % 2 ? 0x1.fffffep126f : 1; /* rounds to 256 times the largest scale */
        }
    return x;
}

/* What op_qkv leaves of them in a pool. */
static struct dev_kv keep(struct device *d, float *x)
{
    uint32_t pos[ROWS], row_seq[ROWS] = { 0 }, row_start[] = { 0, ROWS }, page_start[] = { 0, ROWS / BLOCK_TOKENS };
    uint32_t page[ROWS / BLOCK_TOKENS];
    struct dev_kv kv = { .dtype = DT_F8E4M3, .n_block = BLOCKS, .n_layer = 1, .block_tokens = BLOCK_TOKENS };
    op_kv_layers(&kv, HEADS, DIM);
    assert_int_equal(d->ops->alloc(d, kv.block_bytes * kv.n_block, &kv.base), ST_OK);
    memset(kv.base, 0x55, kv.block_bytes * kv.n_block);
    for (uint32_t r = 0; r < ROWS; r++) pos[r] = r;
    for (uint32_t p = 0; p < ROWS / BLOCK_TOKENS; p++) page[p] = (p * 3 + 1) % BLOCKS;
    struct dev_batch b = { .n_row = ROWS,
                           .n_seq = 1,
                           .pos = pos,
                           .row_seq = row_seq,
                           .row_start = row_start,
                           .page_start = page_start,
                           .page = page };
    struct op_qkv    q = { .qkv = x, .n_head = 1, .n_kv_head = HEADS, .head_dim = DIM };
    d->ops->qkv(d, &q, &b, &kv);
    return kv;
}

/* The number that a code stands for, within half a step of what was kept: of four digits, or of the smallest. */
static void check_row(const uint8_t *code, uint32_t slot, const float *x)
{
    uint8_t scale = code[kv8_scale_at(BLOCK_TOKENS, slot, DIM)];
    double  factor = (double)kv8_factor(scale), most = 0;
    bool    finite = true;
    for (uint32_t i = 0; i < DIM; i++) {
        finite = finite && fabsf(x[i]) < 0x1p127f;
        most = fmax(most, fabs((double)x[i]));
    }
    if (!finite) {
        assert_int_equal(scale, KV8_NONE);
        assert_true(isnan(factor));
        return;
    }
    assert_true(most <= 256 * factor && (most >= 128 * factor || scale == KV8_SCALE_MIN));
    for (uint32_t i = 0; i < DIM; i++) {
        double size = fabs((double)x[i]), step = fmax(size / 16, factor * 0x1p-10),
               got = (double)f8e4m3_to_f32(code[i]) * factor;
        bf16 narrow = f32_to_bf16((float)got);
        if (fabs(got - (double)x[i]) > step) fail_msg("%.9g was kept as %.9g", (double)x[i], got);
        if (isfinite((float)got)) assert_true((double)bf16_to_f32(narrow) == got); /* exact */
    }
}

static void a_row_has_a_scale_of_its_own_and_the_same_bytes_on_every_device(void **state)
{
    (void)state;
    struct device *d[OP_DEVICES_MAX], *ref = op_open(DEV_REF, NULL, 1);
    uint32_t       n_dev = op_cpu_devices(d);
    float         *x = make_rows();
    struct dev_kv  want = keep(ref, x);
    for (uint32_t r = 0; r < ROWS; r++)
        for (uint32_t h = 0; h < HEADS; h++) {
            uint32_t slot = r % BLOCK_TOKENS, block = (r / BLOCK_TOKENS * 3 + 1) % BLOCKS;
            char    *key = kv_key(&want, block, 0, h, slot, DIM);
            check_row((const uint8_t *)key, slot, x + r * WIDTH + (1 + h) * DIM);
            check_row((const uint8_t *)key + kv_value_bytes(&want, 0), slot, x + r * WIDTH + (1 + HEADS + h) * DIM);
        }
    for (uint32_t j = 0; j < n_dev; j++) {
        struct dev_kv got = keep(d[j], x);
        assert_memory_equal(got.base, want.base, want.block_bytes * want.n_block);
    }
    free(x);
    dev_close(ref);
    op_close(d, n_dev);
}

/* The second number is ever smaller: within 13 bits nothing is lost, then what is below the smallest steps. */
static void a_small_number_beside_a_large_one_keeps_its_digits_within_13_bits(void **state)
{
    (void)state;
    for (int e = 0; e < 30; e++) {
        float   x[2] = { 1.75f, ldexpf(1.375f, -e) };
        uint8_t row[4] = { 0 };
        kv8_store(row, kv8_scale_at(1, 0, 2), x, 2);
        double got = (double)f8e4m3_to_f32(row[1]) * (double)kv8_factor(row[2]), lost = fabs(got - (double)x[1]);
        assert_true(f8e4m3_to_f32(row[0]) * kv8_factor(row[2]) == 1.75f);
        assert_true(lost <= (e <= 13 ? 0 : 0x1p-17));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_has_a_scale_of_its_own_and_the_same_bytes_on_every_device),
        cmocka_unit_test(a_small_number_beside_a_large_one_keeps_its_digits_within_13_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
