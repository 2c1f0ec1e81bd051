/* mutual: the rows of a text see each other, and no others: against the reference, and by memcmp a text alone against
 * the same text in a batch. */
#include "op_test.h"

enum { TEXTS = 6, ROWS_MAX = 800 };
static const uint32_t lens[TEXTS] = { 1, 64, 37, 130, 2, 513 };

static const struct shape {
    uint32_t n_head, n_kv_head, dim, window;
    float    cap;
} shapes[] = { { 2, 2, 64, 0, 0 },  { 2, 2, 32, 65, 0 },   { 3, 1, 20, 7, 0 },    { 4, 2, 128, 1, 0 },
               { 12, 12, 8, 0, 0 }, { 2, 2, 256, 200, 0 }, { 2, 1, 48, 64, 0.5f } };
enum { N_SHAPE = sizeof shapes / sizeof *shapes };

static size_t width_of(struct shape s) { return (size_t)(s.n_head + 2 * s.n_kv_head) * s.dim; }
static size_t out_of(struct shape s) { return (size_t)s.n_head * s.dim; }

/* Texts of these lengths behind each other: qkv -> out. */
static void run(struct device *d, struct shape s, const uint32_t *len, uint32_t n, const float *qkv, float *out)
{
    static uint32_t seq[ROWS_MAX];
    uint32_t        start[TEXTS + 1] = { 0 };
    for (uint32_t i = 0; i < n; i++) {
        start[i + 1] = start[i] + len[i];
        for (uint32_t r = start[i]; r < start[i + 1]; r++) seq[r] = i;
    }
    struct dev_batch b = { .n_row = start[n], .n_seq = n, .row_seq = seq, .row_start = start };
    struct op_attn   o = { .out = out,
                           .qkv = qkv,
                           .n_head = s.n_head,
                           .n_kv_head = s.n_kv_head,
                           .head_dim = s.dim,
                           .scale = 1 / sqrtf((float)s.dim),
                           .window = s.window,
                           .cap = s.cap };
    d->ops->mutual(d, &o, &b);
}

static uint32_t rows_of(void)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < TEXTS; i++) n += lens[i];
    assert_true(n <= ROWS_MAX);
    return n;
}

static void it_agrees_with_ref(void **state)
{
    (void)state;
    struct device *d[OP_DEVICES_MAX], *ref = op_open(DEV_REF, NULL, 0);
    uint32_t       n_dev = op_cpu_devices(d), n = rows_of();
    for (size_t i = 0; i < N_SHAPE; i++) {
        float *qkv = op_random(n * width_of(shapes[i]), i, 1.5f), *want = op_random(n * out_of(shapes[i]), 90, 1),
              *got = op_random(n * out_of(shapes[i]), 91, 1);
        run(ref, shapes[i], lens, TEXTS, qkv, want);
        for (uint32_t j = 0; j < n_dev; j++) {
            run(d[j], shapes[i], lens, TEXTS, qkv, got);
            op_assert_near(got, want, n * out_of(shapes[i]), 1e-5, d[j]->ops->name);
        }
        free(qkv);
        free(want);
        free(got);
    }
    dev_close(ref);
    op_close(d, n_dev);
}

/* Alone, and beside the others in another order; and one instruction set as another. */
static void a_text_has_the_same_bits_alone_and_in_every_batch(void **state)
{
    (void)state;
    static const uint32_t order[TEXTS] = { 3, 5, 0, 4, 2, 1 };
    struct device        *d[OP_DEVICES_MAX], *ref = op_open(DEV_REF, NULL, 0);
    uint32_t              n_dev = op_cpu_devices(d), n = rows_of();
    d[n_dev++] = ref;
    for (size_t i = 0; i < N_SHAPE; i++) {
        size_t width = width_of(shapes[i]), out = out_of(shapes[i]);
        float *qkv = op_random(n * width, i, 1.5f), *turned = malloc(n * width * sizeof *turned),
              *all = malloc(n * out * sizeof *all), *got = malloc(n * out * sizeof *got),
              *first = malloc(n * out * sizeof *first);
        bool any = false;
        for (uint32_t j = 0; j < n_dev; j++) {
            uint32_t at = 0, len[TEXTS], row[TEXTS];
            run(d[j], shapes[i], lens, TEXTS, qkv, all);
            for (uint32_t t = 0; t < TEXTS; t++) {
                row[t] = at;
                run(d[j], shapes[i], &lens[t], 1, qkv + at * width, got);
                op_assert_same(got, all + at * out, lens[t] * out, d[j]->ops->name);
                at += lens[t];
            }
            for (uint32_t t = at = 0; t < TEXTS; t++) {
                len[t] = lens[order[t]];
                memcpy(turned + at * width, qkv + row[order[t]] * width, len[t] * width * sizeof *qkv);
                at += len[t];
            }
            run(d[j], shapes[i], len, TEXTS, turned, got);
            for (uint32_t t = at = 0; t < TEXTS; at += len[t++])
                op_assert_same(got + at * out, all + row[order[t]] * out, len[t] * out, "in another order");
            if (!op_is_vector(d[j])) continue;
            if (any) op_assert_same(all, first, n * out, "one variant against another");
            memcpy(first, all, n * out * sizeof *first);
            any = true;
        }
        free(qkv);
        free(turned);
        free(all);
        free(got);
        free(first);
    }
    op_close(d, n_dev);
}

/* No number in one text changes another, and one behind a window changes nobody who is further away. */
static void a_row_does_not_depend_on_rows_that_it_may_not_see(void **state)
{
    (void)state;
    struct shape   s = { 2, 2, 32, 40, 0 };
    struct device *d[OP_DEVICES_MAX];
    uint32_t       n_dev = op_cpu_devices(d), len[3] = { 30, 150, 60 }, n = 240, bad = 30 + 70;
    size_t         width = width_of(s), out = out_of(s);
    float         *qkv = op_random(n * width, 1, 1.5f), *want = malloc(n * out * sizeof *want),
          *got = malloc(n * out * sizeof *got), *spoilt = malloc(n * width * sizeof *spoilt);
    memcpy(spoilt, qkv, n * width * sizeof *qkv);
    for (size_t i = out; i < width; i++) spoilt[bad * width + i] = i % 2 ? NAN : INFINITY;
    for (uint32_t j = 0; j < n_dev; j++) {
        run(d[j], s, len, 3, qkv, want);
        run(d[j], s, len, 3, spoilt, got);
        for (uint32_t r = 0; r < n; r++) {
            bool sees = r >= 30 && r < 180 && r + s.window > bad && bad + s.window > r;
            if (sees)
                assert_true(isnan(got[r * out]));
            else
                op_assert_same(got + r * out, want + r * out, out, d[j]->ops->name);
        }
    }
    free(qkv);
    free(want);
    free(got);
    free(spoilt);
    op_close(d, n_dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(it_agrees_with_ref),
                                        cmocka_unit_test(a_text_has_the_same_bits_alone_and_in_every_batch),
                                        cmocka_unit_test(a_row_does_not_depend_on_rows_that_it_may_not_see) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
