/* Products of experts by wgmma (moe_hopper.cu): against ref over counts of rows, sizes and gates, a row's bits alone and
 * in every company, in every order of threads, and which products go that way. On a GPU that is no sm_90: skipped. */
#include "cuda/cuda_test.h"
#include "kernels/cuda/cuda.h"

enum { EXPERTS = 6, GUARD = 4096 };
enum kind { PLAIN, BIASES, SCALES, INPUTS, KINDS }; /* ... and clamps; ... and GELU; weights of inputs */
static const double larger[] = { 1, 10, 3, 3 };     /* how much larger the outputs are */

struct shape {
    uint32_t  n_expert, top_k, hidden, inter, rows;
    enum kind kind;
};
struct world {
    struct device    *d;
    struct shape      s;
    struct dev_weight gate_up[EXPERTS], down[EXPERTS];
    float            *gate_up_bias, *down_bias, *scale;
    uint32_t          first, n_here; /* struct op_moe; 0: all experts */
    void             *guard;         /* behind the scratch */
};

static float *numbers(struct device *d, size_t n, uint64_t seed, float by)
{
    float *x = op_random(n, seed, by), *there = ct_bytes(d, x, n * sizeof *x);
    free(x);
    return there;
}
static struct world make(struct device *d, struct shape s)
{
    struct world w = { .d = d, .s = s };
    ct_experts(d, s.n_expert, s.hidden, s.inter, w.gate_up, w.down);
    if (s.kind == BIASES) {
        w.gate_up_bias = numbers(d, (size_t)s.n_expert * 2 * s.inter, 77, 5);
        w.down_bias = numbers(d, (size_t)s.n_expert * s.hidden, 78, 1);
    }
    if (s.kind == SCALES) w.scale = numbers(d, s.n_expert, 79, 1.5f);
    return w;
}
static struct world make_ref(enum dtype t, struct shape s)
{
    struct dev_cfg cfg = { .kind = DEV_REF, .arena_bytes = 64 << 20, .n_rank = 1 };
    struct device *d;
    assert_int_equal(dev_open(&cfg, &d), ST_OK);
    d->act = t; /* of the weights */
    return make(d, s);
}
/* Products of experts go by wgmma from `from` rows each on; 0: all that can. */
static struct world make_cuda(enum dtype t, struct shape s, uint32_t from)
{
    struct world      w = make(ct_open(t, 64 << 20), s);
    struct cuda_dev  *c = cuda_of(w.d);
    struct dev_limits lim = ct_moe_limits(s.rows, s.hidden, s.n_expert, s.top_k, s.inter);
    assert_int_equal(w.d->ops->step_init(w.d, &lim), ST_OK);
    c->work_bytes = cuda_moe_work_bytes(c, &lim); /* not a byte more */
    c->work = ct_alloc(w.d, c->work_bytes + GUARD);
    w.guard = c->work + c->work_bytes;
    c->wgmma = true;
    c->wgmma_moe = from;
    return w;
}
static void run(struct world *w, void *out, const void *x, const void *logits, uint32_t n)
{
    static const enum op_act act[KINDS] = { OP_SILU, OP_CLAMPED, OP_GELU_TANH, OP_SILU };
    uint32_t                 first = w->first;
    struct op_moe            o = { .out = out,
                                   .x = x,
                                   .router_logits = logits,
                                   .gate_up = w->gate_up + first,
                                   .down = w->down + first,
                                   .n_row = n,
                                   .n_expert = w->s.n_expert,
                                   .top_k = w->s.top_k,
                                   .hidden = w->s.hidden,
                                   .inter = w->s.inter,
                                   .renorm = true,
                                   .act = act[w->s.kind],
                                   .score = w->s.kind == INPUTS ? OP_ROUTE_SIGMOID : OP_ROUTE_SOFTMAX,
                                   .weigh_input = w->s.kind == INPUTS,
                                   .expert_scale = w->scale,
                                   .first_here = first,
                                   .n_here = w->n_here,
                                   .gate_up_bias = w->gate_up_bias,
                                   .down_bias = w->down_bias };
    if (w->gate_up_bias) o.gate_up_bias += (size_t)first * 2 * w->s.inter;
    if (w->down_bias) o.down_bias += (size_t)first * w->s.hidden;
    w->d->ops->moe(w->d, &o);
}
static void close_world(struct world *w)
{
    if (w->guard) {
        uint8_t got[GUARD];
        ct_get(w->d, got, w->guard, GUARD);
        for (size_t i = 0; i < GUARD; i++) assert_int_equal(got[i], 0xff);
    }
    dev_close(w->d);
}

/* Logits of all rows, rounded. even: each expert gets about as many rows. Else the first choices of the rows are of
 * expert 1 once, of expert 2 65 times and of the last as often as rows are left: expert 0 gets none if top_k is 1. */
static float *route(struct shape s, enum dtype t, bool even)
{
    size_t n = (size_t)s.rows * s.n_expert;
    float *logits = op_random(n, 12, 2);
    for (uint32_t r = 0; r < s.rows && !even; r++) {
        uint32_t e = s.n_expert - 1;
        if (r == 0) e = 1 % s.n_expert;
        if (r % 3 == 1 && r < 3 * 65) e = 2 % s.n_expert;
        logits[(size_t)r * s.n_expert + e] = 9;
    }
    ct_round(logits, n, t);
    return logits;
}

/* Sizes that 128, 64 and 32 divide and do not, fewer steps than stages and more; experts with no row, one, 65, all. */
static const struct shape shapes[] = { { 4, 1, 64, 64, 195, PLAIN },   { 3, 2, 136, 72, 70, BIASES },
                                       { 4, 3, 200, 136, 44, SCALES }, { 2, 1, 8, 8, 130, PLAIN },
                                       { 2, 2, 328, 24, 66, INPUTS },  { 6, 1, 72, 264, 9, INPUTS },
                                       { 1, 1, 256, 128, 129, BIASES } };
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static void every_shape_agrees_with_ref(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2 * N_SHAPES; i++) {
        struct shape s = shapes[i / 2];
        enum dtype   t = i % 5 == 4 ? DT_F16 : DT_BF16;
        size_t       all = (size_t)s.rows * s.hidden;
        struct world w = make_cuda(t, s, 0), r = make_ref(t, s);
        float       *x = op_random(all, 5 + i, 1), *logits = route(s, t, i % 2), *want = op_random(all, 3, 1),
              *got = op_random(all, 4, 1);
        char what[96];
        ct_round(x, all, t);
        void *dx = ct_act(w.d, x, all), *dl = ct_act(w.d, logits, (size_t)s.rows * s.n_expert),
             *out = ct_act_new(w.d, all);
        ct_schedule((uint32_t)i * 4 % 15);
        run(&r, want, x, logits, s.rows);
        run(&w, out, dx, dl, s.rows);
        ct_act_get(w.d, got, out, all);
        snprintf(what, sizeof what, "shape %zu, %s, %s", i / 2, i % 2 ? "even" : "uneven",
                 t == DT_F16 ? "f16" : "bf16");
        ct_assert_close(got, want, all, t == DT_F16 ? 7e-4 : 5e-3, (t == DT_F16 ? 0.02 : 0.1) * larger[s.kind], what);
        free(x);
        free(logits);
        free(want);
        free(got);
        close_world(&w);
        close_world(&r);
    }
    ct_schedule(0);
}

/* Alone, in another order, and among rows that are no numbers. */
static void a_row_has_the_same_bits_in_every_company(void **state)
{
    (void)state;
    static const struct shape some[] = { { 3, 2, 200, 104, 97, PLAIN }, { 2, 1, 72, 72, 140, BIASES } };
    for (size_t z = 0; z < 2; z++) {
        struct shape s = some[z];
        size_t       width = s.hidden, all = s.rows * width, n = (size_t)s.rows * s.n_expert;
        struct world w = make_cuda(DT_BF16, s, 0);
        float    *x = op_random(all, 1, 1), *logits = route(s, DT_BF16, z), *px = malloc(all * 4), *pl = malloc(n * 4);
        char     *dx = ct_act(w.d, x, all), *dl = ct_act(w.d, logits, n), *out = ct_act_new(w.d, all);
        uint16_t *want = malloc(all * 2), *got = malloc(all * 2);
        run(&w, out, dx, dl, s.rows);
        ct_get(w.d, want, out, all * 2);
        for (size_t i = 0; i < all; i++) assert_true((want[i] & 0x7f80) != 0x7f80);
        for (uint32_t row = 0; row < s.rows; row += 16) {
            run(&w, out, dx + row * width * 2, dl + (size_t)row * s.n_expert * 2, 1);
            ct_get(w.d, got, out, width * 2);
            ct_assert_same(got, want + row * width, width * 2, "a row alone");
        }
        for (uint32_t by = 11, turn = 0; turn < 2; by += 18, turn++) { /* row r goes to r * by, and some turn to NaN */
            for (uint32_t r = 0; r < s.rows; r++) {
                uint32_t to = r * by % s.rows;
                memcpy(px + to * width, x + r * width, width * 4);
                memcpy(pl + (size_t)to * s.n_expert, logits + (size_t)r * s.n_expert, s.n_expert * 4);
                if (turn && r % 4 == 1) px[to * width + r % width] = r % 8 == 1 ? NAN : INFINITY;
            }
            ct_put_as(w.d, dx, DT_BF16, px, all);
            ct_put_as(w.d, dl, DT_BF16, pl, n);
            ct_poison(w.d, out, all * 2);
            run(&w, out, dx, dl, s.rows);
            ct_get(w.d, got, out, all * 2);
            for (uint32_t r = 0; r < s.rows; r++)
                if (!turn || r % 4 != 1)
                    ct_assert_same(got + r * by % s.rows * width, want + r * width, width * 2, "among others");
        }
        free(x);
        free(logits);
        free(px);
        free(pl);
        free(want);
        free(got);
        close_world(&w);
    }
}

static void every_order_of_threads_gives_the_same_bits(void **state)
{
    (void)state;
    static const struct shape some[] = { { 2, 1, 328, 72, 131, PLAIN },
                                         { 3, 3, 72, 264, 66, BIASES },
                                         { 2, 2, 72, 136, 66, BIASES } };
    for (size_t z = 0; z < ARRAY_N(some); z++) {
        struct shape s = some[z];
        enum dtype   t = z < 2 ? DT_BF16 : DT_F16;
        uint16_t     bad = t == DT_F16 ? 0x7c00 : 0x7f80;
        size_t       all = (size_t)s.rows * s.hidden, n = (size_t)s.rows * s.n_expert;
        struct world w = make_cuda(t, s, 0);
        float       *x = op_random(all, 1, 1), *logits = route(s, t, z);
        void        *dx = ct_act(w.d, x, all), *dl = ct_act(w.d, logits, n), *out = ct_act_new(w.d, all);
        uint16_t    *want = malloc(all * 2), *got = malloc(all * 2);
        ct_schedule(0);
        run(&w, out, dx, dl, s.rows);
        ct_get(w.d, want, out, all * 2);
        for (size_t i = 0; i < all; i++) assert_true((want[i] & bad) != bad);
        for (CT_SCHEDULES(i)) {
            ct_poison(w.d, out, all * 2);
            ct_poison(w.d, cuda_of(w.d)->work, cuda_of(w.d)->work_bytes);
            run(&w, out, dx, dl, s.rows);
            ct_get(w.d, got, out, all * 2);
            ct_assert_same(got, want, all * 2, ct_schedule_name(i));
        }
        free(x);
        free(logits);
        free(want);
        free(got);
        close_world(&w);
    }
}

/* Of four experts a device has the middle two: the others' weights are NaN, and so are rows of padding. */
static void a_device_may_have_some_of_the_experts(void **state)
{
    (void)state;
    struct shape s = { 4, 2, 72, 40, 90, BIASES };
    size_t       all = (size_t)s.rows * s.hidden, n = (size_t)s.rows * s.n_expert;
    struct world w = make_cuda(DT_BF16, s, 0), r = make_ref(DT_BF16, s);
    float       *x = op_random(all, 1, 1), *logits = route(s, DT_BF16, true), *want = op_random(all, 3, 1),
          *got = op_random(all, 4, 1);
    uint32_t seq[90];
    ct_round(x, all, DT_BF16);
    for (uint32_t e = 0; e < 4; e += 3) {
        ct_poison(w.d, w.gate_up[e].data, w.gate_up[e].bytes);
        ct_poison(w.d, w.down[e].data, w.down[e].bytes);
    }
    w.first = r.first = 1;
    w.n_here = r.n_here = 2;
    run(&r, want, x, logits, s.rows);
    for (uint32_t row = 0; row < s.rows; row++) {
        seq[row] = row % 7 == 3 ? UINT32_MAX : row;
        for (uint32_t i = 0; i < s.hidden && row % 7 == 3; i++) {
            x[(size_t)row * s.hidden + i] = NAN;
            want[(size_t)row * s.hidden + i] = 0;
        }
    }
    void *dx = ct_act(w.d, x, all), *dl = ct_act(w.d, logits, n), *out = ct_act_new(w.d, all);
    cuda_of(w.d)->row_seq = ct_bytes(w.d, seq, sizeof seq);
    run(&w, out, dx, dl, s.rows);
    cuda_of(w.d)->row_seq = NULL;
    ct_act_get(w.d, got, out, all);
    ct_assert_close(got, want, all, 5e-3, 1.0, "some of the experts");
    free(x);
    free(logits);
    free(want);
    free(got);
    close_world(&w);
    close_world(&r);
}

/* Other bits than the old way, wherever it is taken: k goes in another order. */
static bool differs(struct shape s, bool wgmma)
{
    size_t       all = (size_t)s.rows * s.hidden;
    struct world w = make_cuda(DT_BF16, s, WGMMA_MOE);
    float       *x = op_random(all, 1, 1), *logits = route(s, DT_BF16, true);
    void *dx = ct_act(w.d, x, all), *dl = ct_act(w.d, logits, (size_t)s.rows * s.n_expert), *out = ct_act_new(w.d, all);
    uint16_t *old = malloc(all * 2), *got = malloc(all * 2);
    cuda_of(w.d)->wgmma = false;
    run(&w, out, dx, dl, s.rows);
    ct_get(w.d, old, out, all * 2);
    cuda_of(w.d)->wgmma = wgmma;
    ct_poison(w.d, out, all * 2);
    run(&w, out, dx, dl, s.rows);
    ct_get(w.d, got, out, all * 2);
    bool differ = memcmp(old, got, all * 2) != 0;
    free(x);
    free(logits);
    free(old);
    free(got);
    close_world(&w);
    return differ;
}
static void experts_with_many_rows_go_that_way_where_it_was_asked_for(void **state)
{
    (void)state;
#ifdef CUDA_EMU /* whose products of both kinds round alike, but for the order */
    assert_true(differs((struct shape){ 2, 1, 136, 72, 66, PLAIN }, true));
#endif
    assert_false(differs((struct shape){ 2, 1, 136, 72, 66, PLAIN }, false));
    assert_false(differs((struct shape){ 2, 1, 136, 72, 65, PLAIN }, true)); /* 32 rows each */
    assert_false(differs((struct shape){ 2, 1, 132, 72, 66, PLAIN }, true)); /* rows of no whole 16 bytes */
    assert_false(differs((struct shape){ 2, 1, 136, 68, 66, PLAIN }, true));
    for (int i = 0; i < 2; i++) {
        struct dev_cfg cfg = { .kind = DEV_CUDA, .arena_bytes = 64 << 20, .n_rank = 1, .act = DT_BF16 };
        struct device *d;
        cfg.wgmma = true;
        cfg.deterministic = i;
        assert_int_equal(dev_open(&cfg, &d), ST_OK);
        assert_int_equal(cuda_of(d)->wgmma, !i);
        assert_int_equal(cuda_of(d)->wgmma_moe, WGMMA_MOE);
        dev_close(d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(experts_with_many_rows_go_that_way_where_it_was_asked_for),
        cmocka_unit_test(every_shape_agrees_with_ref),
        cmocka_unit_test(a_row_has_the_same_bits_in_every_company),
        cmocka_unit_test(every_order_of_threads_gives_the_same_bits),
        cmocka_unit_test(a_device_may_have_some_of_the_experts),
    };
    return ct_run_hopper(tests);
}
