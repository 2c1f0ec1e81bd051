/* fused_world: products joined with a norm ahead of them and with a bias, a sum or a gate behind, beside the kernels one after
 * another; and a layer of them. */
#pragma once
#include "cuda/fused_test.h"

enum { ACTS = OP_ACTS };

/* x [ROWS, k] and w [n, k] on the device, what stands around the product, and room. */
struct rig {
    struct device    *d;
    uint32_t          n, k;
    struct dev_weight w;
    char             *x, *out, *h, *y; /* out [ROWS + 1, n] */
    float            *bias, *norm;     /* of the device */
    uint16_t         *sum;             /* [ROWS + 1, n] of the host: what ADD begins with */
};

static inline void rig_open(struct rig *r, enum dtype act, const struct dev_quant *q, uint32_t n, uint32_t k)
{
    struct device *d = ct_open(act, 96 << 20);
    float         *x = op_random((size_t)ROWS * k, n + k, 1), *bias = op_random(n, 3, 4), *norm = op_random(k, 4, 1),
          *sum = op_random((size_t)(ROWS + 1) * n, 5, 30);
    *r = (struct rig){ .d = d, .n = n, .k = k };
    r->w = weight(d, q, n, k, 1);
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
    free(bias);
    free(norm);
    free(sum);
}
static inline void rig_close(struct rig *r)
{
    free(r->sum);
    dev_close(r->d);
}

/* The kernels one after another. h and y: room. */
static inline void apart(struct device *d, const struct op_fused *o, void *h, void *y)
{
    const uint32_t n = o->w->n, k = o->w->k;
    const void    *x = o->x;
    if (o->end == OP_END_STORE) y = o->out;
    if (o->norm) {
        cuda_rmsnorm(d, h, x, o->norm, o->m, k, o->eps);
        x = h;
    }
    product(d, y, x, o->w, o->m);
    if (o->bias) cuda_add_bias(cuda_of(d), y, o->bias, o->m, n);
    if (o->end == OP_END_GLU) cuda_glu(d, o->out, y, o->m, n / 2, o->act);
    if (o->end == OP_END_ADD) cuda_add_rmsnorm(d, y, o->out, y, NULL, o->m, n, 0);
}

static inline uint32_t out_dim(const struct rig *r, enum op_end end) { return end == OP_END_GLU ? r->n / 2 : r->n; }

/* What is in out: ROWS + 1 rows; the caller frees it. */
static inline uint16_t *take(struct rig *r, enum op_end end)
{
    size_t    bytes = (size_t)(ROWS + 1) * out_dim(r, end) * 2;
    uint16_t *got = malloc(bytes);
    ct_get(r->d, got, r->out, bytes);
    return got;
}
static inline void fill(struct rig *r, enum op_end end)
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

static inline struct op_fused question(struct rig *r, const struct kind *kind, uint32_t m, enum op_act act)
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
static inline void assert_joined_as_apart(struct rig *r, const struct kind *kind, uint32_t m, enum op_act act)
{
    struct op_fused o = question(r, kind, m, act);
    uint32_t        dim = out_dim(r, kind->end);
    size_t          row = dim * 2;
    char            what[120];
    fill(r, kind->end);
    apart(r->d, &o, r->h, r->y);
    uint16_t *want = take(r, kind->end);
    fill(r, kind->end);
    bool done = join(r->d, &o);
    snprintf(what, sizeof what, "%s group %u, end %d, norm %d, bias %d, act %d, %u rows of [%u, %u]",
             dtype_name(r->w.q.code), r->w.q.group, kind->end, kind->norm, kind->bias, act, m, r->n, r->k);
    assert_int_equal(done, m <= (kind->norm ? ROWS_NORMED : ROWS_JOINED));
    uint16_t *got = take(r, kind->end);
    if (done) ct_assert_same(got, want, m * row, what);
    for (size_t i = done ? (size_t)m * dim : 0; i < (size_t)(ROWS + 1) * dim; i++)
        assert_int_equal(got[i], kind->end == OP_END_ADD ? r->sum[i] : 0xffff);
    free(want);
    free(got);
}

/* A row that is not a number stays alone with it, though all of them are normalised in one place. */
static inline void assert_a_bad_row_stays_alone(struct rig *r)
{
    enum { M = 7, BAD = 3 };
    uint16_t bad = 0x7fc0;
    for (size_t c = 0; c < ARRAY_N(kinds); c++) {
        struct op_fused o = question(r, &kinds[c], M, OP_SILU);
        size_t          row = out_dim(r, kinds[c].end) * 2u;
        uint16_t        good;
        uint16_t       *want, *got;
        fill(r, kinds[c].end);
        assert_true(join(r->d, &o));
        want = take(r, kinds[c].end);
        ct_get(r->d, &good, r->x + (BAD * r->k + 5) * 2, 2);
        ct_put(r->d, r->x + (BAD * r->k + 5) * 2, &bad, 2);
        fill(r, kinds[c].end);
        assert_true(join(r->d, &o));
        got = take(r, kinds[c].end);
        ct_put(r->d, r->x + (BAD * r->k + 5) * 2, &good, 2);
        ct_assert_same(got, want, BAD * row, "rows before it");
        ct_assert_same((char *)got + (BAD + 1) * row, (char *)want + (BAD + 1) * row, (M - BAD - 1) * row,
                       "rows behind it");
        assert_true(memcmp((char *)got + BAD * row, (char *)want + BAD * row, row) != 0);
        free(want);
        free(got);
    }
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
static inline void layer_run(struct layer_rig *r, uint32_t m, bool join)
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

/* q: of o, gate and up, down, and qkv. */
static inline void assert_a_layer_is_the_same_in_every_order(const struct dev_quant *q)
{
    static const uint32_t   m[] = { 1, 5, 8, 13, 30 };
    static struct layer_rig r;
    static uint16_t         want[2][ROWS * HIDDEN], got[2][ROWS * HIDDEN];
    float *a = op_random(ROWS * HEADS, 1, 1), *x = op_random(ROWS * HIDDEN, 2, 1), *norm = op_random(HIDDEN, 3, 1),
          *bias = op_random(QKV, 4, 1);
    r.d = ct_open(DT_BF16, 0);
    cuda_of(r.d)->n_sm = 1; /* blocks have one tile behind another */
    r.o = weight(r.d, &q[0], HIDDEN, HEADS, 0.3f);
    r.gate_up = weight(r.d, &q[1], 2 * INTER, HIDDEN, 0.3f);
    r.down = weight(r.d, &q[2], HIDDEN, INTER, 0.3f);
    r.qkv = weight(r.d, &q[3], QKV, HIDDEN, 0.3f);
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
