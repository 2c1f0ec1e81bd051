/* With --deterministic a row has the bits of the row alone in every batch of 1 to 256 rows: products of every format of
 * weights, joined products, and experts, by the ops of the device, so that what chooses a kernel by the number of rows is
 * part of it. */
#include "cuda/cuda_test.h"
#include "kernels/quant.h"
#include "test.h"

/* A tile of rows of the weights that is not full. K_CUT goes in two slices, the second one shorter, K_ODD forbids
 * loads of 16 bytes: they do not have every number of rows above 64, and f16 has not either. */
enum { ROWS = 256, N = 12, K = 72, K_CUT = 456, K_ODD = 67, EXPERTS = 4, HIDDEN = 64, INTER = 32 };

struct rig;
/* What is computed: rows of row_bytes; run computes rows [m0, + m) into r->out. */
struct way {
    const char *name;
    void (*run)(struct rig *r, uint32_t m0, uint32_t m);
    uint32_t dim;
    bool     f32, adds; /* out is F32; it holds something before */
};
struct rig {
    struct device    *d;
    struct dev_weight w, gate_up[EXPERTS], down[EXPERTS], router;
    uint32_t          k;                        /* of w */
    char             *x, *h, *y, *out, *logits; /* act [ROWS, K_CUT]; room */
    uint16_t         *before;                   /* of the host: act [ROWS, N] */
    float            *bias, *norm;              /* of the device: [N], [K_CUT] */
};

static struct device *open_exact(enum dtype act)
{
    struct device *d = NULL;
    struct dev_cfg cfg = {
        .kind = DEV_CUDA, .arena_bytes = 96 << 20, .n_rank = 1, .act = act, .deterministic = true, .pdl = true
    };
    assert_int_equal(dev_open(&cfg, &d), ST_OK);
    return d;
}

static const char *rows_of(const struct rig *r, const char *x, uint32_t m0, uint32_t dim)
{
    return x + (size_t)m0 * dim * dtype_bytes(r->d->act);
}

/* ---------------------------------------------------------------- ways */

static void run_linear(struct rig *r, uint32_t m0, uint32_t m)
{
    r->d->ops->linear(r->d, r->out, rows_of(r, r->x, m0, r->k), &r->w, r->bias, m);
}
static void run_logits(struct rig *r, uint32_t m0, uint32_t m)
{
    r->d->ops->logits(r->d, (float *)(void *)r->out, rows_of(r, r->x, m0, r->k), &r->w, m);
}

/* As engine/model/join.c does it: one kernel where the device has one, else the ops one after another. */
static void run_joined(struct rig *r, uint32_t m0, uint32_t m, enum op_end end)
{
    const struct dev_ops *op = r->d->ops;
    struct op_fused       o = { .out = r->out,
                                .x = rows_of(r, r->x, m0, r->k),
                                .w = &r->w,
                                .bias = r->bias,
                                .norm = end == OP_END_ADD ? NULL : r->norm,
                                .eps = 1e-5f,
                                .m = m,
                                .end = end };
    if (op->fused(r->d, &o)) return;
    if (o.norm) {
        op->rmsnorm(r->d, r->h, o.x, o.norm, m, r->k, o.eps);
        o.x = r->h;
        o.norm = NULL;
        if (op->fused(r->d, &o)) return;
    }
    op->linear(r->d, r->y, o.x, &r->w, r->bias, m);
    if (end == OP_END_GLU)
        op->glu(r->d, r->out, r->y, m, N / 2, o.act);
    else
        op->add_rmsnorm(r->d, r->y, r->out, r->y, NULL, m, N, 0);
}
static void run_gate(struct rig *r, uint32_t m0, uint32_t m) { run_joined(r, m0, m, OP_END_GLU); }
static void run_sum(struct rig *r, uint32_t m0, uint32_t m)
{
    ct_put_behind(r->d, r->out, r->before + (size_t)m0 * N, (size_t)m * N * 2);
    run_joined(r, m0, m, OP_END_ADD);
}

/* Router and experts: as engine/model/ffn_moe.c does it. */
static void run_experts(struct rig *r, uint32_t m0, uint32_t m)
{
    struct op_router q = { .out = r->logits, .x = rows_of(r, r->x, m0, HIDDEN), .w = &r->router };
    struct op_moe    o = { .out = r->out,
                           .x = q.x,
                           .router_logits = r->logits,
                           .gate_up = r->gate_up,
                           .down = r->down,
                           .n_row = m,
                           .n_expert = EXPERTS,
                           .top_k = 2,
                           .hidden = HIDDEN,
                           .inter = INTER,
                           .renorm = true };
    if (r->d->ops->routed && r->d->ops->routed(r->d, &q, &o)) return;
    r->d->ops->linear(r->d, r->logits, q.x, q.w, NULL, m);
    r->d->ops->moe(r->d, &o);
}

static const struct way linear = { "linear", run_linear, N, false, false },
                        logits = { "logits", run_logits, N, true, false },
                        gate = { "norm, product and gate", run_gate, N / 2, false, false },
                        sum = { "product and sum", run_sum, N, false, true },
                        experts = { "experts", run_experts, HIDDEN, false, false };

/* ---------------------------------------------------------------- every number of rows */

/* Rows [m0, + m) to got, which has room for one more: nothing behind them is written. */
static void take(struct rig *r, const struct way *way, uint32_t m0, uint32_t m, char *got)
{
    size_t row = way->dim * (way->f32 ? 4 : dtype_bytes(r->d->act));
    ct_poison(r->d, r->out, (m + 1) * row);
    way->run(r, m0, m);
    ct_get(r->d, got, r->out, (m + 1) * row);
    for (size_t i = m * row; i < (m + 1) * row; i++) assert_int_equal((uint8_t)got[i], 0xff);
}

static void assert_numbers(const struct rig *r, const struct way *way, const char *got, const char *what)
{
    uint32_t n_zero = 0;
    for (size_t i = 0; i < (size_t)ROWS * way->dim; i++) {
        float    f;
        uint16_t h;
        memcpy(&f, got + (way->f32 ? i * 4 : 0), sizeof f);
        memcpy(&h, got + (way->f32 ? 0 : i * 2), sizeof h);
        if (!way->f32) f = r->d->act == DT_F16 ? f16_to_f32(h) : bf16_to_f32(h);
        if (!isfinite(f)) fail_msg("%s, %s: [%zu] is no number", way->name, what, i);
        n_zero += f == 0;
    }
    assert_true(n_zero < ROWS / 8);
}

static void assert_every_batch(struct rig *r, const struct way *way, const char *what)
{
    size_t row = way->dim * (way->f32 ? 4 : dtype_bytes(r->d->act));
    char  *want = malloc((ROWS + 1) * row), *got = malloc((ROWS + 1) * row), text[160];
    for (uint32_t i = 0; i < ROWS; i++) take(r, way, i, 1, want + i * row);
    assert_numbers(r, way, want, what);
    bool few = ct_quick(),
         less = r->k != K || r->d->act == DT_F16; /* what chooses a kernel does not look at the type */
    for (uint32_t m = 2; m <= ROWS; m += few || (less && m > 64) ? 19 : 1) {
        uint32_t m0 = m % 2 ? ROWS - m : 0;
        take(r, way, m0, m, got);
        snprintf(text, sizeof text, "%s, %s, %u rows from row %u on", way->name, what, m, m0);
        ct_assert_same(got, want + m0 * row, m * row, text);
    }
    free(want);
    free(got);
}

/* ---------------------------------------------------------------- weights */

static struct format {
    const char      *name;
    struct dev_quant q;      /* F32: plain, of the type of act */
    bool             tensor; /* one scale serves the whole matrix */
} const formats[] = {
    { "int4, groups of 128 with zeros", { .code = DT_I4, .group = 128, .zero = true }, false },
    { "int4, groups of 32", { .code = DT_I4, .group = 32 }, false },
    { "int8, a scale a row", { .code = DT_I8 }, false },
    { "int8, groups of 32", { .code = DT_I8, .group = 32 }, false },
    { "fp8, one scale", { .code = DT_F8E4M3 }, true },
    { "fp8, a scale a row", { .code = DT_F8E4M3 }, false },
    { "fp8, blocks of 128", { .code = DT_F8E4M3, .group = 128 }, false },
    { "NVFP4", { .code = DT_F4E2M1, .group = 16 }, false },
};
static const struct format plain = { "plain", { .code = DT_F32 }, false },
                           mxfp4 = { "MXFP4", { .code = DT_F4E2M1, .group = 32 }, false };

/* Finite codes under one scale. */
static void set_codes(struct device *d, struct dev_weight *w)
{
    uint8_t         *code = malloc((size_t)w->n * w->k);
    float            scale = 0.002f;
    struct dev_codes c = { .code = code, .code_stride = w->k, .scale = &scale };
    for (size_t i = 0; i < (size_t)w->n * w->k; i++) code[i] = (uint8_t)((i * 131 + i / 7) % 255 % 0x7f);
    d->ops->quant_set(d, w, 0, w->n, &c);
    free(code);
}
static struct dev_weight matrix(struct device *d, const struct format *f, uint32_t n, uint32_t k, uint64_t seed)
{
    struct dev_weight w;
    float            *x = op_random((size_t)n * k, seed, 1.5f / sqrtf((float)k));
    if (f->q.code == DT_F32) {
        w = op_weight(d, d->act, n, k, x);
    } else {
        assert_int_equal(d->ops->quant_alloc(d, &f->q, n, k, &w), ST_OK);
        if (f->tensor)
            set_codes(d, &w);
        else
            d->ops->weight_set(d, &w, 0, n, x, k * sizeof *x, DT_F32);
    }
    free(x);
    assert_int_equal(d->ops->sync(d), ST_OK);
    return w;
}

static void rig_open(struct rig *r, enum dtype act)
{
    struct device *d = open_exact(act);
    float *x = op_random((size_t)ROWS * K_CUT, 7, 1), *bias = op_random(N, 3, 1), *norm = op_random(K_CUT, 4, 1),
          *before = op_random((size_t)ROWS * N, 5, 3);
    struct dev_limits lim = ct_moe_limits(ROWS, HIDDEN, EXPERTS, 2, INTER);
    *r = (struct rig){ .d = d };
    assert_int_equal(d->ops->step_init(d, &lim), ST_OK);
    r->x = ct_act(d, x, (size_t)ROWS * K_CUT);
    r->before = malloc((size_t)ROWS * N * sizeof *r->before);
    for (size_t i = 0; i < (size_t)ROWS * N; i++)
        r->before[i] = act == DT_BF16 ? f32_to_bf16(before[i]) : f32_to_f16(before[i]);
    r->bias = ct_bytes(d, bias, N * sizeof *bias);
    r->norm = ct_bytes(d, norm, K_CUT * sizeof *norm);
    r->h = ct_act_new(d, (size_t)ROWS * K_CUT);
    r->y = ct_act_new(d, (size_t)ROWS * N);
    r->logits = ct_act_new(d, (size_t)ROWS * EXPERTS);
    r->out = ct_alloc(d, (size_t)(ROWS + 1) * HIDDEN * 4);
    free(x);
    free(bias);
    free(norm);
    free(before);
}

static void rig_close(struct rig *r)
{
    free(r->before);
    dev_close(r->d);
}

/* ---------------------------------------------------------------- tests */

static const uint32_t ks[] = { K, K_CUT, K_ODD };

/* Each way, over short rows and long ones. */
static void assert_products(enum dtype act, const struct format *f, const struct way *const *ways, size_t n_way)
{
    struct rig r;
    char       what[80];
    rig_open(&r, act);
    for (size_t i = 0; i < ARRAY_N(ks); i++) {
        r.k = ks[i];
        r.w = matrix(r.d, f, N, r.k, 1);
        snprintf(what, sizeof what, "%s, %s, k %u", f->name, dtype_name(act), r.k);
        for (size_t w = 0; w < n_way; w++) assert_every_batch(&r, ways[w], what);
    }
    rig_close(&r);
}

static void products_of_plain_weights(void **state)
{
    (void)state;
    const struct way *const ways[] = { &linear, &logits };
    assert_products(DT_BF16, &plain, ways, ARRAY_N(ways));
    assert_products(DT_F16, &plain, ways, ARRAY_N(ways));
}

static void joined_products(void **state)
{
    (void)state;
    const struct way *const ways[] = { &gate, &sum };
    assert_products(DT_BF16, &plain, ways, ARRAY_N(ways));
    assert_products(DT_F16, &plain, ways, ARRAY_N(ways));
}

static void products_of_codes(void **state)
{
    (void)state;
    const struct way *const ways[] = { &linear, &logits };
    for (size_t i = 0; i < ARRAY_N(formats); i++) {
        assert_products(DT_BF16, &formats[i], &ways[i % 2], 1);
        assert_products(DT_F16, &formats[i], &ways[(i + 1) % 2], 1);
    }
}

static void experts_of_every_format(void **state)
{
    (void)state;
    const struct format *const f[] = { &plain, &plain, &mxfp4, &formats[0], &formats[2], &formats[6], &formats[7] };
    for (size_t i = 0; i < ARRAY_N(f); i++) {
        struct rig r;
        rig_open(&r, i % 2 ? DT_F16 : DT_BF16);
        r.router = matrix(r.d, &plain, EXPERTS, HIDDEN, 2);
        for (uint32_t e = 0; e < EXPERTS; e++) {
            r.gate_up[e] = matrix(r.d, f[i], 2 * INTER, HIDDEN, 100 + e);
            r.down[e] = matrix(r.d, f[i], HIDDEN, INTER, 900 + e);
        }
        assert_every_batch(&r, &experts, f[i]->name);
        rig_close(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_of_plain_weights),
        cmocka_unit_test(joined_products),
        cmocka_unit_test(products_of_codes),
        cmocka_unit_test(experts_of_every_format),
    };
    return ct_run(tests);
}
