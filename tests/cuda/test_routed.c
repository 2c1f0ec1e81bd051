/* Router, routing and lists of few rows in one kernel, and the experts behind it: the bytes of the kernels one after
 * another, for every number of rows, every kind of router, hostile logits, some of the experts, rows of padding, graphs,
 * and in every order of threads and kernels. */
#include "cuda/cuda_test.h"
#include "kernels/cuda/gemm.h"
#include "test.h"

enum { ROWS = 18, ROWS_JOINED = 16, HIDDEN = 32, INTER = 16, GUARD = 4096 };

/* Experts of [INTER, HIDDEN]; their router is [n_expert, k]: rows of its own. */
struct shape {
    uint32_t n_expert, top_k, k;
};
struct rig {
    struct device    *d;
    struct shape      s;
    struct dev_weight w, gate_up[300], down[300];
    char  *in, *x, *out, *logits;     /* act [ROWS, k], [ROWS, HIDDEN] twice; room for F32 [ROWS + 1, n_expert] */
    float *logit_bias, *bias, *scale; /* F32 [n_expert] */
    size_t logit_bytes, out_bytes;
    char  *got[2]; /* of the host: logits, out, d->work with GUARD bytes behind it */
};

static size_t got_bytes(const struct rig *r)
{
    return r->logit_bytes + r->out_bytes + cuda_of(r->d)->work_bytes + GUARD;
}

/* Whatever stands here, experts come from one block of memory at equal distances, as a model's do. */
static void rig_experts(struct rig *r)
{
    struct device *d = r->d;
    float *g = op_random((size_t)2 * INTER * HIDDEN, 1000, 0.3f), *w = op_random((size_t)HIDDEN * INTER, 9000, 0.3f);
    for (uint32_t e = 0; e < r->s.n_expert; e++) {
        g[e % 64] += 0.25f;
        w[e % 64] -= 0.25f;
        r->gate_up[e] = op_weight(d, d->act, 2 * INTER, HIDDEN, g);
        r->down[e] = op_weight(d, d->act, HIDDEN, INTER, w);
    }
    free(g);
    free(w);
}

static void rig_open(struct rig *r, enum dtype act, struct shape s)
{
    struct device *d = ct_open(act, 64 << 20);
    float         *w = op_random((size_t)s.n_expert * s.k, s.k, 2 / sqrtf((float)s.k)),
          *x = op_random((size_t)ROWS * s.k, 7, 1);
    float            *h = op_random((size_t)ROWS * HIDDEN, 8, 1), *bias = op_random((size_t)3 * s.n_expert, 9, 0.5f);
    struct dev_limits lim = ct_moe_limits(ROWS, HIDDEN, s.n_expert, s.top_k, INTER);
    *r = (struct rig){ .d = d, .s = s };
    r->logit_bytes = (size_t)(ROWS + 1) * s.n_expert * sizeof(float);
    r->out_bytes = (size_t)(ROWS + 1) * HIDDEN * 2;
    rig_experts(r);
    r->w = op_weight(d, d->act, s.n_expert, s.k, w);
    r->in = ct_act(d, x, (size_t)ROWS * s.k);
    r->x = ct_act(d, h, (size_t)ROWS * HIDDEN);
    r->out = ct_alloc(d, r->out_bytes);
    r->logits = ct_alloc(d, r->logit_bytes);
    r->logit_bias = ct_bytes(d, bias, (size_t)3 * s.n_expert * sizeof *bias);
    r->bias = r->logit_bias + s.n_expert;
    r->scale = r->bias + s.n_expert;
    assert_int_equal(d->ops->step_init(d, &lim), ST_OK);
    struct cuda_dev *c = cuda_of(d);
    c->work_bytes = cuda_moe_work_bytes(c, &lim); /* not a byte more */
    c->work = ct_alloc(d, c->work_bytes + GUARD);
    for (int i = 0; i < 2; i++) r->got[i] = malloc(got_bytes(r));
    free(w);
    free(x);
    free(h);
    free(bias);
}
static void rig_close(struct rig *r)
{
    for (int i = 0; i < 2; i++) free(r->got[i]);
    dev_close(r->d);
}

/* Routers of the families, and what none has. logit_bias, bias, expert_scale: not NULL where the rig's are meant. */
static float yes;
static const struct kind {
    struct op_moe o;
    bool          logit_bias;
} kinds[] = {
    { .o = { .renorm = true } }, /* Qwen3-MoE, Mixtral */
    { .o = { .renorm = false } },
    { .o = { .renorm = true, .act = OP_CLAMPED }, .logit_bias = true },   /* gpt-oss */
    { .o = { .renorm = true, .expert_scale = &yes } },                    /* Gemma 4 */
    { .o = { .score = OP_ROUTE_SIGMOID, .weigh_input = true } },          /* Llama 4 */
    { .o = { .score = OP_ROUTE_SIGMOID, .renorm = true, .bias = &yes } }, /* MiniMax M2 */
    { .o = { .score = OP_ROUTE_SIGMOID,
             .renorm = true,
             .bias = &yes,
             .router_f32 = true,
             .n_group = 2,
             .group_keep = 1,
             .sum_add = 1e-20f,
             .scale = 2.5f } }, /* GLM-4.5 */
    { .o = { .score = OP_ROUTE_SOFTMAX,
             .renorm = true,
             .bias = &yes,
             .router_f32 = true,
             .sum_min = 0.3f } }, /* ERNIE */
    { .o = { .score = OP_ROUTE_SOFTMAX, .scale = 3.0f, .n_group = 2, .group_keep = 2 }, .logit_bias = true },
    { .o = { .score = OP_ROUTE_SIGMOID, .router_f32 = true } },
    { .o = { .score = OP_ROUTE_SIGMOID, .renorm = true, .n_group = 2, .group_keep = 1, .sum_add = 0.25f } }, /* ties */
};

struct question {
    struct op_router r;
    struct op_moe    o;
};
/* [first, + n_here) of the experts are here; n_here 0: all. */
static struct question question(struct rig *r, const struct kind *kind, uint32_t m, uint32_t first, uint32_t n_here)
{
    struct question q = { .o = kind->o };
    q.r =
        (struct op_router){ .out = r->logits, .x = r->in, .w = &r->w, .bias = kind->logit_bias ? r->logit_bias : NULL };
    q.o.out = r->out;
    q.o.x = r->x;
    q.o.gate_up = r->gate_up + first;
    q.o.down = r->down + first;
    q.o.n_row = m;
    q.o.n_expert = r->s.n_expert;
    q.o.top_k = r->s.top_k;
    q.o.hidden = HIDDEN;
    q.o.inter = INTER;
    q.o.bias = kind->o.bias ? r->bias : NULL;
    q.o.expert_scale = kind->o.expert_scale ? r->scale : NULL;
    q.o.first_here = first;
    q.o.n_here = n_here;
    return q;
}

/* The kernels one after another. */
static void apart(struct rig *r, const struct question *q)
{
    struct cuda_dev *d = cuda_of(r->d);
    struct op_moe    o = q->o;
    o.router_logits = q->r.out;
    cuda_gemm_rows(d, q->r.out, o.router_f32 ? DT_F32 : r->d->act, q->r.x, q->r.w->data, o.n_row, q->r.w->n, q->r.w->k);
    if (q->r.bias) cuda_add_bias(d, q->r.out, q->r.bias, o.n_row, q->r.w->n);
    cuda_moe(r->d, &o);
}

static void poison(struct rig *r)
{
    ct_poison(r->d, r->logits, r->logit_bytes);
    ct_poison(r->d, r->out, r->out_bytes);
    ct_poison(r->d, cuda_of(r->d)->work, cuda_of(r->d)->work_bytes + GUARD);
}
/* All that was written, and what stands behind it. */
static void take(struct rig *r, char *to)
{
    ct_get(r->d, to, r->logits, r->logit_bytes);
    ct_get(r->d, to + r->logit_bytes, r->out, r->out_bytes);
    ct_get(r->d, to + r->logit_bytes + r->out_bytes, cuda_of(r->d)->work, cuda_of(r->d)->work_bytes + GUARD);
}
static void assert_nobody_waits(struct rig *r)
{
    uint32_t arrived;
    ct_get(r->d, &arrived, cuda_of(r->d)->moe_arrived, sizeof arrived);
    assert_int_equal(arrived, 0);
}

static void assert_as_apart(struct rig *r, const struct question *q, const char *what)
{
    poison(r);
    apart(r, q);
    take(r, r->got[0]);
    poison(r);
    assert_true(cuda_routed(r->d, &q->r, &q->o));
    take(r, r->got[1]);
    ct_assert_same(r->got[1], r->got[0], got_bytes(r), what);
    assert_nobody_waits(r);
}

/* One slice of k, two and eight, the last one shorter; more blocks than one; experts that fill no tile and no warp, a
 * warp's, more than its registers hold; each chosen, and one. */
static const struct shape shapes[] = { { 8, 2, 64 },    { 5, 5, 8 },    { 64, 8, 520 }, { 34, 3, 1032 },
                                       { 300, 9, 136 }, { 128, 8, 64 }, { 6, 1, 2056 }, { 64, 4, 2056 } };

static void routed_rows_have_the_bits_of_kernels_one_after_another(void **state)
{
    (void)state;
    for (size_t s = 0; s < ARRAY_N(shapes); s++) {
        struct rig r;
        char       what[120];
        rig_open(&r, s % 3 == 1 ? DT_F16 : DT_BF16, shapes[s]);
        for (uint32_t m = 1; m <= ROWS_JOINED; m += ct_quick() ? 5 : 1)
            for (size_t c = 0; c < ARRAY_N(kinds); c++) {
                if (kinds[c].o.n_group && r.s.n_expert % 2) continue;
                if ((c + m + s) % 3 && (m > 2 || s > 1)) continue;
                struct question q = question(&r, &kinds[c], m, 0, 0);
                snprintf(what, sizeof what, "%u experts, top %u, k %u, kind %zu, %u rows", r.s.n_expert, r.s.top_k,
                         r.s.k, c, m);
                assert_as_apart(&r, &q, what);
            }
        rig_close(&r);
    }
}

/* Whole experts on several ranks: each makes the lists of its own. */
static void a_device_may_have_some_of_the_experts(void **state)
{
    (void)state;
    static const struct {
        size_t   shape;
        uint32_t first, n;
    } some[] = { { 0, 4, 4 }, { 0, 0, 4 }, { 1, 2, 1 }, { 2, 40, 24 }, { 4, 100, 150 }, { 4, 299, 1 }, { 6, 0, 5 } };
    for (size_t i = 0; i < ARRAY_N(some); i++) {
        struct rig r;
        rig_open(&r, DT_BF16, shapes[some[i].shape]);
        for (uint32_t m = 1; m <= ROWS_JOINED; m += 5) {
            const struct kind *kind = &kinds[(i + m) % 6];
            struct question    q = question(&r, kind, m, some[i].first, some[i].n);
            assert_as_apart(&r, &q, "some of the experts");
        }
        rig_close(&r);
    }
}

enum hostile {
    TIES,
    ZEROS,
    ONE_EXPERT,
    NAN_ROW,
    INF_ROW,
    NAN_EXPERT,
    INF_EXPERT,
    MINUS_INF_EXPERT,
    HUGE_LOGITS,
    HOSTILE
};
static void make_hostile(struct rig *r, enum hostile how)
{
    const uint32_t n = r->s.n_expert, k = r->s.k;
    float         *w = op_random((size_t)n * k, k, 2 / sqrtf((float)k)), *x = op_random((size_t)ROWS * k, 7, 1);
    for (uint32_t e = 0; e < n; e++)
        for (uint32_t i = 0; i < k; i++) {
            float *at = &w[(size_t)e * k + i];
            if (how == TIES && e >= 3) *at = w[(size_t)(e % 3) * k + i];
            if (how == ZEROS) *at = e % 2 ? 0.0f : -0.0f;
            if (how == ONE_EXPERT) *at = e == n - 1 ? 1.0f : -1.0f;
            if (how == NAN_EXPERT && e == n / 2 && i == 3) *at = NAN;
            if (how == INF_EXPERT && e == n / 2 && i == 3) *at = INFINITY;
            if (how == MINUS_INF_EXPERT && e != n / 2 && i == 3) *at = -INFINITY;
            if (how == HUGE_LOGITS) *at *= 1e4f;
        }
    for (uint32_t i = 0; i < ROWS * k; i++) {
        if (how == ONE_EXPERT || how == INF_EXPERT || how == MINUS_INF_EXPERT) x[i] = fabsf(x[i]) + 0.1f;
        if (how == NAN_ROW && i == k + 5) x[i] = NAN;
        if (how == INF_ROW && i == 2 * k + 6) x[i] = INFINITY;
    }
    ct_put_as(r->d, r->w.data, r->d->act, w, (size_t)n * k);
    ct_put_as(r->d, r->in, r->d->act, x, (size_t)ROWS * k);
    free(w);
    free(x);
}

static void hostile_logits_are_routed_as_ever(void **state)
{
    (void)state;
    static const struct shape shape[] = { { 8, 3, 64 }, { 40, 8, 520 }, { 300, 4, 64 } };
    for (size_t s = 0; s < ARRAY_N(shape); s++) {
        struct rig r;
        char       what[80];
        rig_open(&r, s == 1 ? DT_F16 : DT_BF16, shape[s]);
        for (int how = 0; how < HOSTILE; how++) {
            make_hostile(&r, (enum hostile)how);
            for (size_t c = 0; c < ARRAY_N(kinds); c++) {
                uint32_t        m = 1 + ((uint32_t)how * 5 + (uint32_t)c * 3) % ROWS_JOINED;
                struct question q = question(&r, &kinds[c], m < 3 ? 16 : m, 0, 0);
                snprintf(what, sizeof what, "shape %zu, hostile %d, kind %zu", s, how, c);
                if ((size_t)how % 2 == c % 2 || s == 0) assert_as_apart(&r, &q, what);
            }
        }
        rig_close(&r);
    }
}

/* Whatever a row of padding holds, it asks for no expert and gets zeros. */
static void rows_of_padding_have_no_experts(void **state)
{
    (void)state;
    struct rig r;
    uint32_t   seq[ROWS];
    uint16_t   out[HIDDEN * ROWS];
    rig_open(&r, DT_BF16, shapes[0]);
    make_hostile(&r, NAN_ROW);
    for (uint32_t i = 0; i < ROWS; i++) seq[i] = i == 1 || i > 9 || i % 4 == 3 ? UINT32_MAX : i;
    cuda_of(r.d)->row_seq = ct_bytes(r.d, seq, sizeof seq);
    for (uint32_t m = 2; m <= ROWS_JOINED; m++) {
        struct question q = question(&r, &kinds[m % ARRAY_N(kinds)], m, 0, 0);
        assert_as_apart(&r, &q, "padding");
        ct_get(r.d, out, r.out, (size_t)m * HIDDEN * 2);
        for (uint32_t i = 0; i < m * HIDDEN; i++) assert_int_equal(seq[i / HIDDEN] == UINT32_MAX && out[i], 0);
    }
    for (uint32_t i = 0; i < ROWS; i++) seq[i] = UINT32_MAX; /* a step of nothing else */
    ct_put(r.d, (void *)(uintptr_t)cuda_of(r.d)->row_seq, seq, sizeof seq);
    struct question q = question(&r, &kinds[0], 4, 0, 0);
    assert_as_apart(&r, &q, "padding alone");
    cuda_of(r.d)->row_seq = NULL;
    rig_close(&r);
}

/* Layers behind each other: the router of each reads what the experts ahead have made, where its own put what they make. */
static void layers(struct rig *r, const struct kind *kind, uint32_t m, bool join)
{
    enum { LAYERS = 3 };
    poison(r);
    for (int l = 0; l < LAYERS; l++) {
        struct question q = question(r, &kind[l], m, 0, 0);
        if (l) q.r.x = r->out;
        if (join)
            assert_true(cuda_routed(r->d, &q.r, &q.o));
        else
            apart(r, &q);
    }
}

static void layers_are_the_same_in_every_order_of_threads_and_kernels(void **state)
{
    (void)state;
    static const uint32_t m[] = { 1, 6, 13 };
    struct rig            r;
    rig_open(&r, DT_BF16, (struct shape){ 38, 3, HIDDEN });
    for (size_t i = 0; i < ARRAY_N(m); i++)
        for (size_t c = 0; c < 5; c += 2) {
            ct_schedule(0);
            layers(&r, kinds + c, m[i], false);
            take(&r, r.got[0]);
            for (CT_SCHEDULES(schedule)) {
                layers(&r, kinds + c, m[i], true);
                take(&r, r.got[1]);
                ct_assert_same(r.got[1], r.got[0], got_bytes(&r), ct_schedule_name(schedule));
            }
            assert_nobody_waits(&r);
        }
    rig_close(&r);
}

/* Slices of k by eight warps and several blocks, in every order: the last one is another each time. */
static void whichever_block_is_last_routes(void **state)
{
    (void)state;
    struct rig r;
    rig_open(&r, DT_BF16, (struct shape){ 72, 4, 1032 });
    for (size_t c = 0; c < ARRAY_N(kinds); c += 6) {
        struct question q = question(&r, &kinds[c], 9, 8, 60);
        ct_schedule(0);
        poison(&r);
        apart(&r, &q);
        take(&r, r.got[0]);
        for (CT_SCHEDULES_FEW(schedule)) {
            poison(&r);
            assert_true(cuda_routed(r.d, &q.r, &q.o));
            take(&r, r.got[1]);
            ct_assert_same(r.got[1], r.got[0], got_bytes(&r), ct_schedule_name(schedule));
        }
    }
    ct_schedule(0);
    rig_close(&r);
}

/* A captured op reads what routing decides on the device: other rows, the same launches. */
static void a_graph_serves_any_routing(void **state)
{
    (void)state;
    struct rig      r;
    cudaGraph_t     graph;
    cudaGraphExec_t exec;
    rig_open(&r, DT_BF16, shapes[0]);
    struct question q = question(&r, &kinds[0], 7, 0, 0);
    cudaStream_t    stream = cuda_of(r.d)->stream;
    assert_int_equal(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    assert_true(cuda_routed(r.d, &q.r, &q.o));
    assert_int_equal(cudaStreamEndCapture(stream, &graph), cudaSuccess);
    assert_int_equal(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
    for (int how = 0; how < 4; how++) {
        make_hostile(&r, (enum hostile)how);
        poison(&r);
        apart(&r, &q);
        take(&r, r.got[0]);
        poison(&r);
        assert_int_equal(cudaGraphLaunch(exec, stream), cudaSuccess);
        take(&r, r.got[1]);
        ct_assert_same(r.got[1], r.got[0], got_bytes(&r), "replayed");
    }
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    rig_close(&r);
}

/* What there is no kernel for, and what tune has found to be the library's, is left to the ops one after another. */
static void what_has_no_kernel_is_refused_untouched(void **state)
{
    (void)state;
    struct rig             r;
    const struct dev_quant code = { .code = DT_I8 };
    rig_open(&r, DT_BF16, shapes[0]);
    struct question many = question(&r, &kinds[0], ROWS_JOINED + 1, 0, 0), none = question(&r, &kinds[0], 0, 0, 0),
                    odd = question(&r, &kinds[0], 3, 0, 0), codes = odd, shifted = odd, ok = odd;
    struct dev_weight w7 = r.w, coded;
    w7.k = 63;
    odd.r.w = &w7;
    assert_int_equal(r.d->ops->quant_alloc(r.d, &code, r.s.n_expert, r.s.k, &coded), ST_OK);
    codes.r.w = &coded;
    shifted.r.x = r.in + 2;
    poison(&r);
    take(&r, r.got[0]);
    assert_false(cuda_routed(r.d, &many.r, &many.o));
    assert_false(cuda_routed(r.d, &none.r, &none.o));
    assert_false(cuda_routed(r.d, &odd.r, &odd.o));
    assert_false(cuda_routed(r.d, &codes.r, &codes.o));
    assert_false(cuda_routed(r.d, &shifted.r, &shifted.o));
    struct cuda_blas *b = cuda_of(r.d)->blas;
    for (uint32_t i = 0; i < b->n_shape; i++) {
        struct gemm_pin *pin = &b->shape[i].pin[gemm_bucket(3)], was = *pin;
        if (b->shape[i].n != r.s.n_expert || b->shape[i].k != r.s.k || b->shape[i].out != DT_BF16 ||
            b->shape[i].code != DT_F32)
            continue;
        *pin = (struct gemm_pin){ .kind = &gemm_lt, .tuned = true };
        assert_false(cuda_routed(r.d, &ok.r, &ok.o));
        take(&r, r.got[1]);
        ct_assert_same(r.got[1], r.got[0], got_bytes(&r), "refused");
        pin->tuned = false; /* its first guess, which stands alone */
        assert_true(cuda_routed(r.d, &ok.r, &ok.o));
        *pin = was;
        rig_close(&r);
        return;
    }
    fail_msg("no pin of the router");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(routed_rows_have_the_bits_of_kernels_one_after_another),
        cmocka_unit_test(a_device_may_have_some_of_the_experts),
        cmocka_unit_test(hostile_logits_are_routed_as_ever),
        cmocka_unit_test(rows_of_padding_have_no_experts),
        cmocka_unit_test(layers_are_the_same_in_every_order_of_threads_and_kernels),
        cmocka_unit_test(whichever_block_is_last_routes),
        cmocka_unit_test(a_graph_serves_any_routing),
        cmocka_unit_test(what_has_no_kernel_is_refused_untouched),
    };
    return ct_run(tests);
}
