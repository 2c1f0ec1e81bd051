/* op lora: against ref, a row alone against batches, rows without an adapter, in every order of blocks and threads. */
#include "cuda/cuda_test.h"

static const enum dtype acts[] = { DT_BF16, DT_F16 };
enum { SLOTS = 3, ROWS = 70 };

/* Slots of one matrix; slot 1 does not change it. The same numbers on every device. */
static void set(struct device *d, enum dtype act, struct dev_lora *l, uint32_t rank, uint32_t n, uint32_t k)
{
    float       scale[SLOTS];
    const void *at[2 * SLOTS];
    *l = (struct dev_lora){ .n_slot = SLOTS, .rank = rank, .n = n, .k = k };
    l->a = calloc(SLOTS, sizeof *l->a);
    l->b = calloc(SLOTS, sizeof *l->b);
    for (uint32_t s = 0; s < SLOTS; s++) {
        float *a = op_random((size_t)rank * k, 10 + s, 0.3f), *b = op_random((size_t)n * rank, 20 + s, 0.3f);
        enum status (*take)(struct device *, enum dtype, uint32_t, uint32_t, struct dev_weight *) =
            d->ops->lora_alloc ? d->ops->lora_alloc : d->ops->weight_alloc;
        ct_round(a, (size_t)rank * k, act);
        ct_round(b, (size_t)n * rank, act);
        assert_int_equal(take(d, d->act, rank, k, &l->a[s]), ST_OK);
        assert_int_equal(take(d, d->act, n, rank, &l->b[s]), ST_OK);
        d->ops->weight_set(d, &l->a[s], 0, rank, a, k * sizeof *a, DT_F32);
        d->ops->weight_set(d, &l->b[s], 0, n, b, rank * sizeof *b, DT_F32);
        scale[s] = s == 1 ? 0 : 0.5f + (float)s;
        at[s] = l->a[s].data;
        at[SLOTS + s] = l->b[s].data;
        free(a);
        free(b);
    }
    assert_int_equal(d->ops->sync(d), ST_OK);
    l->scale = ct_bytes(d, scale, sizeof scale);
    l->at = ct_bytes(d, at, sizeof at);
}

static void drop(struct dev_lora *l)
{
    free(l->a);
    free(l->b);
}

struct world {
    struct device  *d;
    struct dev_lora l;
    uint32_t        out_dim, first;
    const float    *x, *base;      /* [ROWS, k], [ROWS, out_dim] */
    void           *dx, *dout;     /* on the device */
    float          *mid;           /* poisoned before every run */
    uint32_t       *adapter, *row; /* on the device, [ROWS] */
};

/* got [n, out_dim]: of rows [at, at + n) of x and base. row: NULL, or the numbers of their adapters in `adapter`. */
static void run(struct world *w, float *got, uint32_t at, uint32_t n, const uint32_t *adapter, const uint32_t *row)
{
    size_t k = w->l.k, dim = w->out_dim;
    ct_put_as(w->d, w->dx, w->d->act, w->x + at * k, n * k);
    ct_put_as(w->d, w->dout, w->d->act, w->base + at * dim, n * dim);
    ct_put(w->d, w->adapter, adapter, (row ? ROWS : n) * sizeof *adapter);
    if (row) ct_put(w->d, w->row, row, n * sizeof *row);
    ct_poison(w->d, w->mid, dev_lora_floats(ROWS, w->l.rank, w->l.n) * sizeof(float));
    struct op_lora o = { w->dout, w->dx, &w->l, w->adapter, row ? w->row : NULL, w->mid, n, w->out_dim, w->first };
    w->d->ops->lora(w->d, &o);
    ct_act_get(w->d, got, w->dout, n * dim);
}

static void rows_alone(struct world *w, const float *all, const uint32_t *of, const char *what)
{
    float *alone = malloc(w->out_dim * sizeof *alone);
    for (uint32_t i = 0; i < ROWS; i += 1 + i % 3) {
        const float *mine = all + (size_t)i * w->out_dim, *base = w->base + (size_t)i * w->out_dim;
        bool         none = of[i] == 0 || of[i] == 2;
        run(w, alone, i, 1, &of[i], NULL);
        op_assert_same(mine, alone, w->out_dim, what);
        if (none) op_assert_same(mine, base, w->out_dim, "a row without an adapter");
        if (!none && w->l.n > 1) assert_true(memcmp(mine, base, w->out_dim * sizeof *mine) != 0);
    }
    free(alone);
}

/* What ref adds to numbers of the device's type, within a rounding of it. */
static void near_ref(const struct world *w, const struct dev_lora *lr, struct device *ref, const float *got,
                     const uint32_t *adapter)
{
    size_t         all = (size_t)ROWS * w->out_dim;
    double         unit = w->d->act == DT_BF16 ? 0x1p-8 : 0x1p-11;
    float         *want = malloc(all * sizeof *want);
    float         *mid = calloc(dev_lora_floats(ROWS, lr->rank, lr->n), sizeof *mid);
    struct op_lora o = { want, w->x, lr, adapter, NULL, mid, ROWS, w->out_dim, w->first };
    memcpy(want, w->base, all * sizeof *want);
    ref->ops->lora(ref, &o);
    for (size_t i = 0; i < all; i++)
        if (!(fabs((double)got[i] - (double)want[i]) <= unit * fabs((double)want[i]) + 2e-4))
            fail_msg("element %zu is %g, should be %g", i, (double)got[i], (double)want[i]);
    free(want);
    free(mid);
}

/* whole: every row alone too, under this schedule */
static void check(enum dtype act, uint32_t rank, uint32_t n, uint32_t k, bool whole)
{
    struct device  *d = ct_open(act, 0), *ref = ct_open_ref();
    struct dev_lora lr;
    uint32_t        dim = n + 5, adapter[ROWS], row[ROWS], of[ROWS];
    size_t          all = (size_t)ROWS * dim;
    float *x = op_random((size_t)ROWS * k, 1, 1), *base = op_random(all, 2, 1), *got = malloc(all * sizeof *got);
    ct_round(x, (size_t)ROWS * k, act);
    ct_round(base, all, act);
    struct world w = { .d = d, .out_dim = dim, .first = 3, .x = x, .base = base };
    set(ref, act, &lr, rank, n, k);
    set(d, act, &w.l, rank, n, k);
    w.dx = ct_act_new(d, (size_t)ROWS * k);
    w.dout = ct_act_new(d, all);
    w.mid = ct_alloc(d, dev_lora_floats(ROWS, rank, n) * sizeof(float));
    w.adapter = ct_alloc(d, sizeof adapter);
    w.row = ct_alloc(d, sizeof row);
    /* a run longer than a block of rows, slots in turn, and rows of the model alone */
    for (uint32_t i = 0; i < ROWS; i++) adapter[i] = i < 40 ? 1 : i % 4;
    run(&w, got, 0, ROWS, adapter, NULL);
    near_ref(&w, &lr, ref, got, adapter);
    if (whole) rows_alone(&w, got, adapter, "among others");
    /* the same rows in another order, and padding */
    for (uint32_t i = 0; i < ROWS; i++) {
        row[i] = i % 7 == 3 ? UINT32_MAX : ROWS - 1 - i;
        of[i] = row[i] == UINT32_MAX ? 0 : adapter[row[i]];
    }
    run(&w, got, 0, ROWS, adapter, row);
    near_ref(&w, &lr, ref, got, of);
    if (whole) rows_alone(&w, got, of, "rows by their numbers");
    /* no row has an adapter: nothing is written */
    memset(adapter, 0, sizeof adapter);
    run(&w, got, 0, ROWS, adapter, NULL);
    op_assert_same(got, base, all, "rows of the model alone");
    drop(&lr);
    drop(&w.l);
    free(x);
    free(base);
    free(got);
    dev_close(d);
    dev_close(ref);
}

/* rank, n, k: loads of 16 bytes and of single numbers, parts of blocks in every direction, and the highest rank */
static const uint32_t size[][3] = { { 16, 128, 64 }, { 4, 33, 48 },    { 20, 100, 65 },
                                    { 1, 1, 3 },     { 64, 257, 600 }, { 512, 40, 32 } };

static void adapters_agree_with_ref_in_every_schedule(void **state)
{
    (void)state;
    for (CT_SCHEDULES(i))
        for (size_t s = 0; s < sizeof size / sizeof *size; s++)
            check(acts[(s + i) % 2], size[s][0], size[s][1], size[s][2], false);
}

static void a_row_has_the_same_bits_alone_and_in_a_batch(void **state)
{
    (void)state;
    for (size_t t = 0; t < 2; t++)
        for (size_t s = 0; s < sizeof size / sizeof *size; s++)
            check(acts[t], size[s][0], size[s][1], size[s][2], true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adapters_agree_with_ref_in_every_schedule),
        cmocka_unit_test(a_row_has_the_same_bits_alone_and_in_a_batch),
    };
    return ct_run(tests);
}
