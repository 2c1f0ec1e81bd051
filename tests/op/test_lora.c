/* op lora: every device of the host against ref, rows alone against batches, and rows without an adapter. */
#include "op_test.h"

enum { SLOTS = 3, RANK = 20, ROWS = 150 };

static void set(struct device *d, struct dev_lora *l, uint32_t n, uint32_t k)
{
    *l = (struct dev_lora){ .n_slot = SLOTS, .rank = RANK, .n = n, .k = k };
    l->a = calloc(SLOTS, sizeof *l->a);
    l->b = calloc(SLOTS, sizeof *l->b);
    void *scale;
    assert_int_equal(d->ops->alloc(d, SLOTS * sizeof(float), &scale), ST_OK);
    l->scale = scale;
    for (uint32_t s = 0; s < SLOTS; s++) {
        float *a = op_random((size_t)RANK * k, 10 + s, 0.3f), *b = op_random((size_t)n * RANK, 20 + s, 0.3f);
        assert_int_equal(d->ops->weight_alloc(d, DT_F32, RANK, k, &l->a[s]), ST_OK);
        assert_int_equal(d->ops->weight_alloc(d, DT_F32, n, RANK, &l->b[s]), ST_OK);
        d->ops->weight_set(d, &l->a[s], 0, RANK, a, k * sizeof *a, DT_F32);
        d->ops->weight_set(d, &l->b[s], 0, n, b, RANK * sizeof *b, DT_F32);
        l->scale[s] = s == 1 ? 0 : 0.5f + (float)s; /* slot 1 does not change this matrix */
        free(a);
        free(b);
    }
}

/* more than eight: the members of struct op_lora. */
static void run(struct device *d, const struct dev_lora *l, float *out, const float *x, const uint32_t *adapter,
                const uint32_t *row, uint32_t n_row, uint32_t out_dim, uint32_t first)
{
    float         *mid = calloc(dev_lora_floats(ROWS, RANK, l->n), sizeof *mid);
    struct op_lora o = { out, x, l, adapter, row, mid, n_row, out_dim, first };
    d->ops->lora(d, &o);
    free(mid);
}

static void check(struct device *d, struct device *ref, uint32_t n, uint32_t k)
{
    uint32_t dim = n + 5, adapter[ROWS], row[ROWS];
    size_t   all = (size_t)ROWS * dim;
    float   *x = op_random((size_t)ROWS * k, 1, 1), *base = op_random(all, 2, 1), *want = malloc(all * sizeof *want),
          *got = malloc(all * sizeof *got), *alone = malloc(dim * sizeof *alone);
    struct dev_lora lr, ld;
    set(ref, &lr, n, k);
    set(d, &ld, n, k);
    /* runs of one slot longer than are taken at a time, single rows, and rows of the model alone */
    for (uint32_t i = 0; i < ROWS; i++) adapter[i] = i < 80 ? 1 : i % 4;
    memcpy(want, base, all * sizeof *base);
    memcpy(got, base, all * sizeof *base);
    run(ref, &lr, want, x, adapter, NULL, ROWS, dim, 3);
    run(d, &ld, got, x, adapter, NULL, ROWS, dim, 3);
    op_assert_near(got, want, all, 1e-5, d->ops->name);
    for (uint32_t i = 0; i < ROWS; i++) {
        float *mine = got + (size_t)i * dim;
        bool   none = adapter[i] == 0 || adapter[i] == 2;
        memcpy(alone, base + (size_t)i * dim, dim * sizeof *alone);
        if (none) op_assert_same(mine, alone, dim, "a row without an adapter");
        run(d, &ld, alone, x + (size_t)i * k, &adapter[i], NULL, 1, dim, 3);
        op_assert_same(mine, alone, dim, d->ops->name);
        if (!none) assert_true(memcmp(mine, base + (size_t)i * dim, dim * sizeof *mine) != 0);
    }
    /* the same rows in another order, and padding */
    for (uint32_t i = 0; i < ROWS; i++) row[i] = i % 7 == 3 ? UINT32_MAX : ROWS - 1 - i;
    memcpy(want, base, all * sizeof *base);
    run(d, &ld, want, x, adapter, row, ROWS, dim, 3);
    for (uint32_t i = 0; i < ROWS; i++) {
        uint32_t of = row[i] == UINT32_MAX ? 0 : adapter[row[i]];
        memcpy(alone, base + (size_t)i * dim, dim * sizeof *alone);
        run(d, &ld, alone, x + (size_t)i * k, &of, NULL, 1, dim, 3);
        op_assert_same(want + (size_t)i * dim, alone, dim, "rows by their numbers");
    }
    free(x);
    free(base);
    free(want);
    free(got);
    free(alone);
    free(lr.a);
    free(lr.b);
    free(ld.a);
    free(ld.b);
}

static void adapters_agree_with_ref_and_rows_stand_alone(void **state)
{
    (void)state;
    static const uint32_t size[][2] = { { 1, 3 }, { 16, 16 }, { 33, 48 }, { 100, 65 }, { 257, 128 } };
    struct device        *d[OP_DEVICES_MAX], *ref = op_open(DEV_REF, NULL, 0);
    uint32_t              n_dev = op_cpu_devices(d);
    for (uint32_t i = 0; i < n_dev; i++)
        for (size_t s = 0; s < sizeof size / sizeof *size; s++) check(d[i], ref, size[s][0], size[s][1]);
    dev_close(ref);
    op_close(d, n_dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(adapters_agree_with_ref_and_rows_stand_alone) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
