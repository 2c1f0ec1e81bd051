/* Products joined with a norm ahead of them and with a bias, a sum or a gate behind: the bits of the kernels one after
 * another, for every number of rows and in every order of threads. */
#include "cuda/cuda_test.h"
#include "kernels/cuda/gemm.h"
#include "test.h"

enum { ROWS = 40, ROWS_JOINED = 32, ROWS_NORMED = 8, ACTS = OP_ACTS };
static const float eps = 1e-5f;

/* x [ROWS, k] and w [n, k] on the device, what stands around the product, and room. */
struct rig {
    struct device    *d;
    uint32_t          n, k;
    struct dev_weight w;
    char             *x, *out, *h, *y; /* out [ROWS + 1, n] */
    float            *bias, *norm;     /* of the device */
    uint16_t         *sum;             /* [ROWS + 1, n] of the host: what ADD begins with */
};

static void rig_open(struct rig *r, enum dtype act, uint32_t n, uint32_t k)
{
    struct device *d = ct_open(act, 96 << 20);
    float *x = op_random((size_t)ROWS * k, n + k, 1), *w = op_random((size_t)n * k, k, 1), *bias = op_random(n, 3, 4),
          *norm = op_random(k, 4, 1), *sum = op_random((size_t)(ROWS + 1) * n, 5, 30);
    *r = (struct rig){ .d = d, .n = n, .k = k };
    r->w = (struct dev_weight){ .data = ct_act(d, w, (size_t)n * k), .dtype = d->act, .n = n, .k = k };
    r->x = ct_act(d, x, (size_t)ROWS * k);
    r->h = ct_act_new(d, (size_t)ROWS * k);
    r->y = ct_act_new(d, (size_t)ROWS * n);
    r->out = ct_act_new(d, (size_t)(ROWS + 1) * n);
    r->bias = ct_bytes(d, bias, n * sizeof *bias);
    r->norm = ct_bytes(d, norm, k * sizeof *norm);
    r->sum = malloc((size_t)(ROWS + 1) * n * sizeof *r->sum);
    for (size_t i = 0; i < (size_t)(ROWS + 1) * n; i++)
        r->sum[i] = act == DT_BF16 ? f32_to_bf16(sum[i]) : f32_to_f16(sum[i]);
    free(x);
    free(w);
    free(bias);
    free(norm);
    free(sum);
}
static void rig_close(struct rig *r)
{
    free(r->sum);
    dev_close(r->d);
}

/* The kernels one after another. h and y: room. */
static void apart(struct device *d, const struct op_fused *o, void *h, void *y)
{
    const uint32_t n = o->w->n, k = o->w->k;
    const void    *x = o->x;
    if (o->end == OP_END_STORE) y = o->out;
    if (o->norm) {
        cuda_rmsnorm(d, h, x, o->norm, o->m, k, o->eps);
        x = h;
    }
    cuda_gemm_rows(cuda_of(d), y, d->act, x, o->w->data, o->m, n, k);
    if (o->bias) cuda_add_bias(cuda_of(d), y, o->bias, o->m, n);
    if (o->end == OP_END_GLU) cuda_glu(d, o->out, y, o->m, n / 2, o->act);
    if (o->end == OP_END_ADD) cuda_add_rmsnorm(d, y, o->out, y, NULL, o->m, n, 0);
}

static uint32_t out_dim(const struct rig *r, enum op_end end) { return end == OP_END_GLU ? r->n / 2 : r->n; }

/* What is in out: ROWS + 1 rows; the caller frees it. */
static uint16_t *take(struct rig *r, enum op_end end)
{
    size_t    bytes = (size_t)(ROWS + 1) * out_dim(r, end) * 2;
    uint16_t *got = malloc(bytes);
    ct_get(r->d, got, r->out, bytes);
    return got;
}
static void fill(struct rig *r, enum op_end end)
{
    size_t bytes = (size_t)(ROWS + 1) * r->n * 2;
    if (end == OP_END_ADD)
        ct_put_behind(r->d, r->out, r->sum, bytes);
    else
        ct_poison(r->d, r->out, bytes);
}

static struct kind {
    enum op_end end;
    bool        norm, bias;
} const kinds[] = { { OP_END_STORE, true, false }, { OP_END_STORE, true, true },  { OP_END_GLU, true, false },
                    { OP_END_GLU, true, true },    { OP_END_STORE, false, true }, { OP_END_ADD, false, false },
                    { OP_END_ADD, false, true },   { OP_END_GLU, false, false },  { OP_END_GLU, false, true } };

static struct op_fused question(struct rig *r, const struct kind *kind, uint32_t m, enum op_act act)
{
    return (struct op_fused){ .out = r->out,
                              .x = r->x,
                              .w = &r->w,
                              .bias = kind->bias ? r->bias : NULL,
                              .norm = kind->norm ? r->norm : NULL,
                              .eps = eps,
                              .m = m,
                              .end = kind->end,
                              .act = act };
}

/* Rows behind the m-th are as they were. */
static void assert_joined_as_apart(struct rig *r, const struct kind *kind, uint32_t m, enum op_act act)
{
    struct op_fused o = question(r, kind, m, act);
    uint32_t        dim = out_dim(r, kind->end);
    size_t          row = dim * 2;
    char            what[120];
    fill(r, kind->end);
    apart(r->d, &o, r->h, r->y);
    uint16_t *want = take(r, kind->end);
    fill(r, kind->end);
    bool done = cuda_gemm_fused(cuda_of(r->d), &o);
    snprintf(what, sizeof what, "end %d, norm %d, bias %d, act %d, %u rows of [%u, %u]", kind->end, kind->norm,
             kind->bias, act, m, r->n, r->k);
    assert_int_equal(done, m <= (kind->norm ? ROWS_NORMED : ROWS_JOINED));
    uint16_t *got = take(r, kind->end);
    if (done) ct_assert_same(got, want, m * row, what);
    for (size_t i = done ? (size_t)m * dim : 0; i < (size_t)(ROWS + 1) * dim; i++)
        assert_int_equal(got[i], kind->end == OP_END_ADD ? r->sum[i] : 0xffff);
    free(want);
    free(got);
}

/* n, k: one slice, two, four and eight, the last one shorter; an odd n and odd halves; norms of one warp, of some, of
 * more than a block has, and of three vectors a thread */
static const uint32_t shapes[][2] = { { 48, 128 },  { 37, 64 },  { 130, 520 }, { 72, 1032 }, { 24, 2048 },
                                      { 16, 2056 }, { 6, 4104 }, { 136, 576 }, { 2, 8 },     { 4, 8200 } };

static void joined_products_have_the_bits_of_kernels_one_after_another(void **state)
{
    (void)state;
    for (size_t s = 0; s < ARRAY_N(shapes); s++) {
        struct rig r;
        rig_open(&r, s % 3 ? DT_BF16 : DT_F16, shapes[s][0], shapes[s][1]);
        for (uint32_t m = 1; m <= ROWS; m += ct_quick() ? 9 : 1)
            for (size_t c = 0; c < ARRAY_N(kinds); c++) {
                if (kinds[c].end == OP_END_GLU && r.n % 2) continue;
                if (kinds[c].norm && shapes[s][1] > 8000 && m > 4) continue; /* no room for more such rows */
                if ((c + m + s) % 3 && (m > ROWS_NORMED || r.n * r.k > 1 << 15)) continue;
                assert_joined_as_apart(&r, &kinds[c], m, (enum op_act)((m + s + c / 2) % ACTS));
            }
        rig_close(&r);
    }
}

static void every_gate_is_the_one_of_its_own_kernel(void **state)
{
    (void)state;
    struct rig r;
    rig_open(&r, DT_BF16, 26, 72);
    for (int act = 0; act < ACTS; act++)
        for (size_t c = 2; c < ARRAY_N(kinds); c++)
            if (kinds[c].end == OP_END_GLU) assert_joined_as_apart(&r, &kinds[c], 7, (enum op_act)act);
    rig_close(&r);
}

/* A row that is not a number stays alone with it, though all of them are normalised in one place. */
static void a_bad_row_changes_no_other(void **state)
{
    (void)state;
    enum { M = 7, BAD = 3 };
    struct rig r;
    uint16_t   bad = 0x7fc0;
    rig_open(&r, DT_BF16, 48, 520);
    for (size_t c = 0; c < ARRAY_N(kinds); c++) {
        struct op_fused o = question(&r, &kinds[c], M, OP_SILU);
        size_t          row = out_dim(&r, kinds[c].end) * 2u;
        uint16_t        good;
        uint16_t       *want, *got;
        fill(&r, kinds[c].end);
        assert_true(cuda_gemm_fused(cuda_of(r.d), &o));
        want = take(&r, kinds[c].end);
        ct_get(r.d, &good, r.x + (BAD * r.k + 5) * 2, 2);
        ct_put(r.d, r.x + (BAD * r.k + 5) * 2, &bad, 2);
        fill(&r, kinds[c].end);
        assert_true(cuda_gemm_fused(cuda_of(r.d), &o));
        got = take(&r, kinds[c].end);
        ct_put(r.d, r.x + (BAD * r.k + 5) * 2, &good, 2);
        ct_assert_same(got, want, BAD * row, "rows before it");
        ct_assert_same((char *)got + (BAD + 1) * row, (char *)want + (BAD + 1) * row, (M - BAD - 1) * row,
                       "rows behind it");
        assert_true(memcmp((char *)got + BAD * row, (char *)want + BAD * row, row) != 0);
        free(want);
        free(got);
    }
    rig_close(&r);
}

/* By one kernel, or as much of it as one does. */
static void joined(struct device *d, const struct op_fused *o, void *h)
{
    struct op_fused rest = *o;
    if (cuda_gemm_fused(cuda_of(d), o)) return;
    assert_non_null(o->norm);
    cuda_rmsnorm(d, h, o->x, o->norm, o->m, o->w->k, o->eps);
    rest.x = h;
    rest.norm = NULL;
    assert_true(cuda_gemm_fused(cuda_of(d), &rest));
}

/* A layer's four products, each of which reads what the one ahead of it makes or adds to. */
enum { HIDDEN = 136, INTER = 72, HEADS = 64, QKV = 96 };
struct layer_rig {
    struct device    *d;
    struct dev_weight o, gate_up, down, qkv;
    char    *a, *x, *act, *wide, *h, *y; /* of the attention, the stream, what the gate lets through, the end */
    float   *norm, *bias;
    uint16_t x0[ROWS * HIDDEN];
};
static struct dev_weight weight(struct device *d, uint32_t n, uint32_t k)
{
    float            *w = op_random((size_t)n * k, n * 7 + k, 0.3f);
    struct dev_weight out = { .data = ct_act(d, w, (size_t)n * k), .dtype = d->act, .n = n, .k = k };
    free(w);
    return out;
}
static void layer_run(struct layer_rig *r, uint32_t m, bool join)
{
    const struct op_fused step[] = {
        { .out = r->x, .x = r->a, .w = &r->o, .m = m, .end = OP_END_ADD },
        { .out = r->act, .x = r->x, .w = &r->gate_up, .norm = r->norm, .eps = eps, .m = m, .end = OP_END_GLU },
        { .out = r->x, .x = r->act, .w = &r->down, .m = m, .end = OP_END_ADD },
        { .out = r->wide, .x = r->x, .w = &r->qkv, .bias = r->bias, .norm = r->norm, .eps = eps, .m = m },
    };
    ct_put(r->d, r->x, r->x0, sizeof r->x0);
    ct_poison(r->d, r->act, ROWS * INTER * 2);
    ct_poison(r->d, r->wide, ROWS * QKV * 2);
    for (size_t i = 0; i < ARRAY_N(step); i++) {
        if (join)
            joined(r->d, &step[i], r->h);
        else
            apart(r->d, &step[i], r->h, r->y);
    }
}

static void a_layer_is_the_same_in_every_order_of_threads_and_kernels(void **state)
{
    (void)state;
    static const uint32_t   m[] = { 1, 5, 8, 13, 30 };
    static struct layer_rig r;
    static uint16_t         want[2][ROWS * HIDDEN], got[2][ROWS * HIDDEN];
    float *a = op_random(ROWS * HEADS, 1, 1), *x = op_random(ROWS * HIDDEN, 2, 1), *norm = op_random(HIDDEN, 3, 1),
          *bias = op_random(QKV, 4, 1);
    r.d = ct_open(DT_BF16, 0);
    r.o = weight(r.d, HIDDEN, HEADS);
    r.gate_up = weight(r.d, 2 * INTER, HIDDEN);
    r.down = weight(r.d, HIDDEN, INTER);
    r.qkv = weight(r.d, QKV, HIDDEN);
    r.a = ct_act(r.d, a, ROWS * HEADS);
    r.x = ct_act(r.d, x, ROWS * HIDDEN);
    r.act = ct_act_new(r.d, ROWS * INTER);
    r.wide = ct_act_new(r.d, ROWS * QKV);
    r.h = ct_act_new(r.d, ROWS * HIDDEN);
    r.y = ct_act_new(r.d, ROWS * 2 * INTER);
    r.norm = ct_bytes(r.d, norm, HIDDEN * sizeof *norm);
    r.bias = ct_bytes(r.d, bias, QKV * sizeof *bias);
    ct_get(r.d, r.x0, r.x, sizeof r.x0);
    for (size_t i = 0; i < ARRAY_N(m); i++) {
        ct_schedule(0);
        layer_run(&r, m[i], false);
        ct_get(r.d, want[0], r.x, m[i] * HIDDEN * 2);
        ct_get(r.d, want[1], r.wide, m[i] * QKV * 2);
        for (CT_SCHEDULES(schedule)) {
            layer_run(&r, m[i], true);
            ct_get(r.d, got[0], r.x, m[i] * HIDDEN * 2);
            ct_get(r.d, got[1], r.wide, m[i] * QKV * 2);
            ct_assert_same(got[0], want[0], m[i] * HIDDEN * 2, ct_schedule_name(schedule));
            ct_assert_same(got[1], want[1], m[i] * QKV * 2, ct_schedule_name(schedule));
        }
    }
    free(a);
    free(x);
    free(norm);
    free(bias);
    dev_close(r.d);
}

/* What there is no kernel for is left to the ops one after another. */
static void what_has_no_kernel_is_refused_untouched(void **state)
{
    (void)state;
    struct rig        r;
    const struct kind plain = { OP_END_STORE, false, true }, normed = { OP_END_STORE, true, false },
                      sum = { OP_END_ADD, true, false };
    const struct dev_quant q = { .code = DT_I8 };
    rig_open(&r, DT_BF16, 48, 128);
    struct op_fused ok = question(&r, &plain, 3, OP_SILU), odd = ok, codes = ok,
                    shifted = question(&r, &normed, 3, OP_SILU), added = question(&r, &sum, 3, OP_SILU);
    struct dev_weight w7 = r.w, coded;
    fill(&r, OP_END_STORE);
    w7.k = 127;
    odd.w = &w7;
    assert_int_equal(r.d->ops->quant_alloc(r.d, &q, 48, 128, &coded), ST_OK);
    codes.w = &coded;
    shifted.norm++;
    assert_false(cuda_gemm_fused(cuda_of(r.d), &odd));
    assert_false(cuda_gemm_fused(cuda_of(r.d), &codes));
    assert_false(cuda_gemm_fused(cuda_of(r.d), &shifted));
    assert_false(cuda_gemm_fused(cuda_of(r.d), &added));
    assert_false(cuda_fused(r.d, &codes));
    uint16_t *got = take(&r, OP_END_STORE);
    for (size_t i = 0; i < (size_t)(ROWS + 1) * r.n; i++) assert_int_equal(got[i], 0xffff);
    free(got);
    assert_true(cuda_gemm_fused(cuda_of(r.d), &ok));
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(joined_products_have_the_bits_of_kernels_one_after_another),
        cmocka_unit_test(every_gate_is_the_one_of_its_own_kernel),
        cmocka_unit_test(a_bad_row_changes_no_other),
        cmocka_unit_test(a_layer_is_the_same_in_every_order_of_threads_and_kernels),
        cmocka_unit_test(what_has_no_kernel_is_refused_untouched),
    };
    return ct_run(tests);
}
