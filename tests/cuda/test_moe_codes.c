/* Mixture of experts on the CUDA device whose experts are codes: against ref in each format, a row's bits in every batch
 * and in every order of threads, codes beside floats. */
#include "cuda/cuda_test.h"
#include "kernels/cuda/cuda.h"
#include "kernels/quant.h"
#include "test.h"

static const struct dev_quant formats[] = {
    { .code = DT_F4E2M1, .group = 32 },
    { .code = DT_I4, .group = 32, .zero = true },
    { .code = DT_F8E4M3, .group = 128 },
    { .code = DT_F4E2M1, .group = 16 },
    { .code = DT_I4, .group = 128 },
    { .code = DT_F8E4M3 },
    { .code = DT_I8 },
};
static const struct dev_quant floats = { .code = DT_F32 };

struct shape {
    uint32_t n_expert, top_k, hidden, inter;
    bool     biases; /* and the gate that clamps */
};
/* Whole lines; lines and groups that end early; rows of no whole 16 bytes. */
static const struct shape shapes[] = { { 8, 2, 256, 128, false }, { 5, 3, 200, 72, true }, { 4, 1, 36, 20, false } };
enum { ROWS = 43 };

struct moe {
    struct device    *d;
    struct shape      s;
    struct dev_weight gate_up[8], down[8];
    float            *gate_up_bias, *down_bias;
    uint32_t          first, n_here; /* struct op_moe; 0: all experts */
};

static struct dev_weight matrix(struct device *d, const struct dev_quant *q, uint32_t n, uint32_t k, uint64_t seed)
{
    struct dev_weight w;
    float            *x = op_random((size_t)n * k, seed, 1.5f / sqrtf((float)k));
    if (q->code == DT_F32) {
        w = op_weight(d, d->act == DT_F16 ? DT_F16 : DT_BF16, n, k, x);
    } else {
        assert_int_equal(d->ops->quant_alloc(d, q, n, k, &w), ST_OK);
        assert_int_equal(w.bytes, dev_quant_bytes(d, q, n, k));
        for (uint32_t row = 0; row < n; row += 7) /* in pieces, as a loader brings them */
            d->ops->weight_set(d, &w, row, n - row < 7 ? n - row : 7, x + (size_t)row * k, k * sizeof *x, DT_F32);
    }
    free(x);
    return w;
}

static struct moe make(struct device *d, struct shape s, const struct dev_quant *gate_up, const struct dev_quant *down)
{
    struct moe m = { .d = d, .s = s };
    for (uint32_t e = 0; e < s.n_expert; e++) m.gate_up[e] = matrix(d, gate_up, 2 * s.inter, s.hidden, 100 + e);
    for (uint32_t e = 0; e < s.n_expert; e++) m.down[e] = matrix(d, down, s.hidden, s.inter, 900 + e);
    if (s.biases) {
        size_t wide = (size_t)s.n_expert * 2 * s.inter, out = (size_t)s.n_expert * s.hidden;
        float *g = op_random(wide, 77, 5), *b = op_random(out, 78, 1);
        m.gate_up_bias = ct_bytes(d, g, wide * sizeof *g);
        m.down_bias = ct_bytes(d, b, out * sizeof *b);
        free(g);
        free(b);
    }
    struct dev_limits lim = ct_moe_limits(ROWS, s.hidden, s.n_expert, s.top_k, s.inter);
    if (d->act != DT_F32) assert_int_equal(d->ops->step_init(d, &lim), ST_OK);
    return m;
}

static void run(struct moe *m, void *out, const void *x, const void *logits, uint32_t n)
{
    struct op_moe o = { .out = out,
                        .x = x,
                        .router_logits = logits,
                        .gate_up = m->gate_up + m->first,
                        .down = m->down + m->first,
                        .first_here = m->first,
                        .n_here = m->n_here,
                        .n_row = n,
                        .n_expert = m->s.n_expert,
                        .top_k = m->s.top_k,
                        .hidden = m->s.hidden,
                        .inter = m->s.inter,
                        .renorm = true,
                        .act = m->s.biases ? OP_CLAMPED : OP_SILU,
                        .gate_up_bias = m->gate_up_bias,
                        .down_bias = m->down_bias };
    if (m->gate_up_bias) {
        o.gate_up_bias += (size_t)m->first * 2 * m->s.inter;
        o.down_bias += (size_t)m->first * m->s.hidden;
    }
    m->d->ops->moe(m->d, &o);
}

/* Rows [row0, + n) of x and logits; the caller frees the result. */
static uint16_t *rows(struct moe *m, const float *x, const float *logits, uint32_t row0, uint32_t n)
{
    size_t    all = (size_t)n * m->s.hidden;
    uint16_t *got = malloc(all * sizeof *got);
    void     *out = ct_alloc(m->d, all * sizeof *got);
    ct_poison(m->d, out, all * sizeof *got);
    run(m, out, ct_act(m->d, x + (size_t)row0 * m->s.hidden, all),
        ct_act(m->d, logits + (size_t)row0 * m->s.n_expert, (size_t)n * m->s.n_expert), n);
    ct_get(m->d, got, out, all * sizeof *got);
    return got;
}

static void inputs(struct shape s, enum dtype act, float **x, float **logits)
{
    *x = op_random((size_t)ROWS * s.hidden, 3, 1);
    *logits = op_random((size_t)ROWS * s.n_expert, 4, 2);
    ct_round(*x, (size_t)ROWS * s.hidden, act);
    ct_round(*logits, (size_t)ROWS * s.n_expert, act);
}

/* The experts that the next devices have, of those in a shape; n 0: all. */
static struct {
    uint32_t first, n;
} part;

/* All rows against ref; then few of them, by the other kernel, against all. */
static void agree(struct shape s, const struct dev_quant *gate_up, const struct dev_quant *down, enum dtype act)
{
    float         *x, *logits, *want = malloc((size_t)ROWS * s.hidden * sizeof *want);
    double         most = 0, off = 0;
    struct device *ref = ct_open_ref();
    inputs(s, act, &x, &logits);
    struct moe m = make(ct_open(act, 96 << 20), s, gate_up, down), r = make(ref, s, gate_up, down);
    m.first = r.first = part.first;
    m.n_here = r.n_here = part.n;
    run(&r, want, x, logits, ROWS);
    uint16_t *got = rows(&m, x, logits, 0, ROWS);
    for (size_t i = 0; i < (size_t)ROWS * s.hidden; i++) {
        double g = (double)(act == DT_F16 ? f16_to_f32(got[i]) : bf16_to_f32(got[i]));
        most = fmax(most, fabs((double)want[i]));
        off = fmax(off, isnan(g) ? INFINITY : fabs(g - (double)want[i]));
    }
    if (!(off <= most * (act == DT_F16 ? 1.5e-3 : 1e-2)))
        fail_msg("%s beside %s, hidden %u: off by %g of %g", dtype_name(gate_up->code), dtype_name(down->code),
                 s.hidden, off, most);
    static const uint32_t parts[][2] = { { 0, 1 }, { 5, 8 }, { 13, 9 }, { ROWS - 3, 3 } };
    for (size_t i = 0; i < ARRAY_N(parts); i++) {
        uint16_t *some = rows(&m, x, logits, parts[i][0], parts[i][1]);
        ct_assert_same(some, got + (size_t)parts[i][0] * s.hidden, (size_t)parts[i][1] * s.hidden * 2, "few rows");
        free(some);
    }
    free(got);
    free(want);
    free(x);
    free(logits);
    dev_close(m.d);
    dev_close(ref);
}

static void experts_of_codes_agree_with_ref_in_every_batch(void **state)
{
    (void)state;
    for (size_t f = 0; f < ARRAY_N(formats); f++)
        for (size_t i = 0; i < ARRAY_N(shapes); i++) {
            agree(shapes[i], &formats[f], &formats[f], DT_BF16);
            agree(shapes[i], &formats[f], &formats[f], DT_F16);
        }
}

/* As ranks divide them: the first ones, the last one. */
static void some_experts_of_codes_agree_with_ref_in_every_batch(void **state)
{
    (void)state;
    for (size_t f = 0; f < ARRAY_N(formats); f++) {
        const struct shape s = shapes[f % ARRAY_N(shapes)];
        part.n = f % 2 ? 1 : s.n_expert / 2;
        part.first = f % 2 ? s.n_expert - 1 : 0;
        agree(s, &formats[f], &formats[f], f % 2 ? DT_F16 : DT_BF16);
    }
    part.first = part.n = 0;
}

/* A rank's slice of down may cut groups, and is of floats then. */
static void one_product_may_be_of_codes_and_one_of_floats(void **state)
{
    (void)state;
    agree(shapes[0], &formats[0], &floats, DT_BF16);
    agree(shapes[1], &floats, &formats[1], DT_F16);
}

static void every_order_of_threads_gives_the_same_bits(void **state)
{
    (void)state;
    for (size_t f = 0; f < 4; f++) {
        float             *x, *logits;
        const struct shape s = shapes[f % ARRAY_N(shapes)];
        struct moe         m = make(ct_open(DT_BF16, 96 << 20), s, &formats[f], &formats[f]);
        uint16_t          *first = NULL;
        inputs(s, DT_BF16, &x, &logits);
        for (CT_SCHEDULES(schedule)) {
            uint16_t *got = rows(&m, x, logits, 0, f == 1 ? 7 : ROWS);
            if (!first) {
                first = got;
                continue;
            }
            ct_assert_same(got, first, (size_t)(f == 1 ? 7 : ROWS) * s.hidden * 2, ct_schedule_name(schedule));
            free(got);
        }
        free(first);
        free(x);
        free(logits);
        dev_close(m.d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(experts_of_codes_agree_with_ref_in_every_batch),
        cmocka_unit_test(some_experts_of_codes_agree_with_ref_in_every_batch),
        cmocka_unit_test(one_product_may_be_of_codes_and_one_of_floats),
        cmocka_unit_test(every_order_of_threads_gives_the_same_bits),
    };
    return ct_run(tests);
}
