#include "op_test.h"

enum { EXPERTS = 7, TOP_K = 3, HIDDEN = 72, INTER = 40, ROWS = 60 };

struct setup {
    struct dev_weight gate_up[EXPERTS], down[EXPERTS];
};

static struct setup make(struct device *d)
{
    struct setup s;
    for (uint32_t e = 0; e < EXPERTS; e++) {
        float *g = op_random(2 * INTER * HIDDEN, 100 + e, 0.1f), *w = op_random(HIDDEN * INTER, 200 + e, 0.1f);
        s.gate_up[e] = op_weight(d, DT_BF16, 2 * INTER, HIDDEN, g);
        s.down[e] = op_weight(d, DT_BF16, HIDDEN, INTER, w);
        free(g), free(w);
    }
    return s;
}

static void run(struct device *d, struct setup *s, float *out, const float *x, const float *logits, uint32_t n, bool renorm)
{
    struct op_moe o = { out, x, logits, s->gate_up, s->down, n, EXPERTS, TOP_K, HIDDEN, INTER, renorm };
    d->ops->moe(d, &o);
}

static void experts_agree_with_ref(void **state)
{
    (void)state;
    struct device *d[OP_DEVICES_MAX], *ref = op_open(DEV_REF, NULL, 0);
    uint32_t       n_dev = op_cpu_devices(d);
    struct setup   sr = make(ref);
    float         *x = op_random(ROWS * HIDDEN, 1, 1), *logits = op_random(ROWS * EXPERTS, 2, 2), *want = op_random(ROWS * HIDDEN, 3, 1),
          *got = op_random(ROWS * HIDDEN, 4, 1);
    for (uint32_t e = 0; e < EXPERTS; e++) logits[e] = e < 5 ? 1.0f : 2.0f; /* ties: 5, 6, then 0 */
    for (uint32_t i = 0; i < n_dev; i++) {
        struct setup s = make(d[i]);
        for (int renorm = 0; renorm < 2; renorm++) {
            run(ref, &sr, want, x, logits, ROWS, renorm);
            run(d[i], &s, got, x, logits, ROWS, renorm);
            op_assert_near(got, want, ROWS * HIDDEN, op_rounds(d[i]) ? 4e-3 : 3e-6, d[i]->ops->name); /* two roundings to 8 bits */
        }
    }
    free(x), free(logits), free(want), free(got);
    dev_close(ref);
    op_close(d, n_dev);
}

static void a_row_has_the_same_bits_in_every_batch_and_place(void **state)
{
    (void)state;
    static const uint32_t size[] = { 1, 2, 5, 16, 33, ROWS };
    struct device        *d[OP_DEVICES_MAX];
    uint32_t              n_dev = op_cpu_devices(d);
    float *x = op_random((ROWS + 1) * HIDDEN, 1, 1), *logits = op_random((ROWS + 1) * EXPERTS, 2, 2), *alone = op_random(HIDDEN, 3, 1),
          *got = op_random(ROWS * HIDDEN, 4, 1);
    float *bx = op_random(ROWS * HIDDEN, 5, 1), *bl = op_random(ROWS * EXPERTS, 6, 1), *first = NULL;
    for (uint32_t i = 0; i < n_dev; i++) {
        struct setup s = make(d[i]);
        run(d[i], &s, alone, x, logits, 1, true);
        for (size_t z = 0; z < sizeof size / sizeof *size; z++)
            for (uint32_t p = 0; p < size[z]; p++) {
                memcpy(bx, x + HIDDEN, size[z] * HIDDEN * sizeof *x), memcpy(bl, logits + EXPERTS, size[z] * EXPERTS * sizeof *x);
                memcpy(bx + p * HIDDEN, x, HIDDEN * sizeof *x), memcpy(bl + p * EXPERTS, logits, EXPERTS * sizeof *x);
                if (p > 1) bl[(p - 1) * EXPERTS] = NAN, bx[(p - 2) * HIDDEN] = INFINITY;
                run(d[i], &s, got, bx, bl, size[z], true);
                op_assert_same(got + p * HIDDEN, alone, HIDDEN, d[i]->ops->name);
            }
        if (!op_is_vector(d[i]) || op_rounds(d[i])) continue;
        if (!first) first = memcpy(malloc(HIDDEN * sizeof *alone), alone, HIDDEN * sizeof *alone);
        op_assert_same(alone, first, HIDDEN, "one variant against another");
    }
    free(x), free(logits), free(alone), free(got), free(bx), free(bl), free(first);
    op_close(d, n_dev);
}

/* a small arena has little scratch: the rows are done some at a time, with the same bits */
static void rows_that_do_not_fit_scratch_are_done_in_parts(void **state)
{
    (void)state;
    enum { MANY = 700 };
    struct device *small, *big = op_open(DEV_CPU, NULL, 2);
    struct dev_cfg cfg = { .kind = DEV_CPU, .arena_bytes = 4 << 20, .n_thread = 2, .n_rank = 1 };
    assert_int_equal(dev_open(&cfg, &small), ST_OK);
    struct setup ss = make(small), sb = make(big);
    float       *x = op_random(MANY * HIDDEN, 1, 1), *logits = op_random(MANY * EXPERTS, 2, 2), *a = op_random(MANY * HIDDEN, 3, 1),
          *b = op_random(MANY * HIDDEN, 4, 1);
    run(small, &ss, a, x, logits, MANY, false);
    run(big, &sb, b, x, logits, MANY, false);
    op_assert_same(a, b, MANY * HIDDEN, "in parts");
    free(x), free(logits), free(a), free(b);
    dev_close(small), dev_close(big);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(experts_agree_with_ref),
        cmocka_unit_test(a_row_has_the_same_bits_in_every_batch_and_place),
        cmocka_unit_test(rows_that_do_not_fit_scratch_are_done_in_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
