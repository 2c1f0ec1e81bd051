#include "op_test.h"

enum { EXPERTS = 7, EXPERTS_MADE = 8, TOP_K = 3, HIDDEN = 72, INTER = 40, ROWS = 60 };

static const struct format {
    const char      *name;
    enum dtype       plain; /* where q is none */
    struct dev_quant q;
} formats[] = {
    { "bf16", DT_BF16, { DT_F32, 0, false, false, false } },
    { "f32", DT_F32, { DT_F32, 0, false, false, false } },
    { "f16", DT_F16, { DT_F32, 0, false, false, false } },
    { "int8", DT_F32, { DT_I8, 0, false, false, false } },
    { "int8, groups of 32", DT_F32, { DT_I8, 32, false, false, false } },
    { "int8 by int8", DT_F32, { DT_I8, 0, false, true, false } },
    { "int4, groups of 32", DT_F32, { DT_I4, 32, false, false, false } },
    { "int4, groups of 128", DT_F32, { DT_I4, 128, false, false, false } },
    { "int4 by int8, groups of 32", DT_F32, { DT_I4, 32, false, true, false } },
    { "fp8, groups of 128", DT_F32, { DT_F8E4M3, 128, false, false, false } },
    { "mxfp4", DT_F32, { DT_F4E2M1, 32, false, false, false } },
    { "nvfp4", DT_F32, { DT_F4E2M1, 16, false, false, false } },
};
enum { FORMATS = sizeof formats / sizeof *formats };

struct setup {
    struct dev_weight gate_up[EXPERTS_MADE], down[EXPERTS_MADE];
};

static struct dev_weight take(struct device *d, const struct format *f, uint32_t n, uint32_t k, uint64_t stream)
{
    float            *src = op_random((size_t)n * k, stream, 0.1f);
    struct dev_weight w;
    if (f->q.code == DT_F32)
        w = op_weight(d, f->plain, n, k, src);
    else {
        assert_int_equal(d->ops->quant_alloc(d, &f->q, n, k, &w), ST_OK);
        d->ops->weight_set(d, &w, 0, n, src, k * sizeof *src, DT_F32);
    }
    free(src);
    return w;
}
static struct setup make(struct device *d, const struct format *f)
{
    struct setup s;
    for (uint32_t e = 0; e < EXPERTS_MADE; e++) {
        s.gate_up[e] = take(d, f, 2 * INTER, HIDDEN, 100 + e);
        s.down[e] = take(d, f, HIDDEN, INTER, 200 + e);
    }
    return s;
}

static enum op_act  run_act; /* of the experts */
static const float *run_gate_up_bias, *run_down_bias;
static bool         run_weigh_input;
static const float *run_expert_scale;

static void run(struct device *d, struct setup *s, float *out, const float *x, const float *logits, uint32_t n,
                bool renorm)
{
    struct op_moe o = { .out = out,
                        .x = x,
                        .router_logits = logits,
                        .gate_up = s->gate_up,
                        .down = s->down,
                        .n_row = n,
                        .n_expert = EXPERTS,
                        .top_k = TOP_K,
                        .hidden = HIDDEN,
                        .inter = INTER,
                        .renorm = renorm,
                        .act = run_act,
                        .gate_up_bias = run_gate_up_bias,
                        .down_bias = run_down_bias,
                        .weigh_input = run_weigh_input,
                        .expert_scale = run_expert_scale };
    d->ops->moe(d, &o);
}

/* Two products, each as far off as test_quant.c says. */
static double bound(const struct device *d, const struct format *f)
{
    bool plain = f->q.code == DT_F32,
         words = strstr(d->ops->name, "avx") && (f->q.code == DT_I8 || dtype_is_half_byte(f->q.code));
    if (f->q.act8 || (plain && f->plain != DT_BF16)) return 4e-6;
    if (words) return 3e-4;
    if (!op_rounds(d)) return 4e-6;
    return plain ? 4e-3 : 8e-3;
}

static void experts_agree_with_ref(void **state)
{
    (void)state;
    struct device *d[OP_DEVICES_MAX], *ref = op_open(DEV_REF, NULL, 0);
    uint32_t       n_dev = op_cpu_devices(d);
    float         *x = op_random(ROWS * HIDDEN, 1, 1), *logits = op_random(ROWS * EXPERTS, 2, 2),
          *want = op_random(ROWS * HIDDEN, 3, 1), *got = op_random(ROWS * HIDDEN, 4, 1);
    for (uint32_t e = 0; e < EXPERTS; e++) logits[e] = e < 5 ? 1.0f : 2.0f; /* ties: 5, 6, then 0 */
    for (int f = 0; f < FORMATS; f++) {
        struct setup sr = make(ref, &formats[f]);
        for (int renorm = 0; renorm < 2; renorm++) {
            run(ref, &sr, want, x, logits, ROWS, renorm);
            for (uint32_t i = 0; i < n_dev; i++) {
                struct setup s = make(d[i], &formats[f]);
                run(d[i], &s, got, x, logits, ROWS, renorm);
                op_assert_near(got, want, ROWS * HIDDEN, bound(d[i], &formats[f]), formats[f].name);
            }
        }
    }
    struct setup sr = make(ref, &formats[1]);
    for (run_act = OP_GELU; run_act < OP_ACTS; run_act++) {
        run(ref, &sr, want, x, logits, ROWS, true);
        for (uint32_t i = 0; i < n_dev; i++) {
            struct setup s = make(d[i], &formats[1]);
            run(d[i], &s, got, x, logits, ROWS, true);
            op_assert_near(got, want, ROWS * HIDDEN, 4e-6, "another gate");
        }
    }
    run_act = OP_SILU;
    free(x);
    free(logits);
    free(want);
    free(got);
    dev_close(ref);
    op_close(d, n_dev);
}

static void a_row_has_the_same_bits_in_every_batch_and_place(void **state)
{
    (void)state;
    static const uint32_t size[] = { 1, 2, 5, 16, 33, ROWS };
    struct device        *d[OP_DEVICES_MAX];
    uint32_t              n_dev = op_cpu_devices(d);
    float                *x = op_random((ROWS + 1) * HIDDEN, 1, 1), *logits = op_random((ROWS + 1) * EXPERTS, 2, 2),
          *alone = op_random(HIDDEN, 3, 1), *got = op_random(ROWS * HIDDEN, 4, 1);
    float *bx = op_random(ROWS * HIDDEN, 5, 1), *bl = op_random(ROWS * EXPERTS, 6, 1), *first[FORMATS] = { NULL };
    for (uint32_t j = 0; j < n_dev * FORMATS; j++) {
        uint32_t     i = j / FORMATS, f = j % FORMATS;
        struct setup s = make(d[i], &formats[f]);
        run(d[i], &s, alone, x, logits, 1, true);
        for (size_t z = 0; z < sizeof size / sizeof *size; z++)
            for (uint32_t p = 0; p < size[z];
                 p += f ? 1 + size[z] / 4 : 1) { /* of the many places of all but bf16 some */
                memcpy(bx, x + HIDDEN, size[z] * HIDDEN * sizeof *x);
                memcpy(bl, logits + EXPERTS, size[z] * EXPERTS * sizeof *x);
                memcpy(bx + p * HIDDEN, x, HIDDEN * sizeof *x);
                memcpy(bl + p * EXPERTS, logits, EXPERTS * sizeof *x);
                if (p > 1) {
                    bl[(p - 1) * EXPERTS] = NAN;
                    bx[(p - 2) * HIDDEN] = INFINITY;
                }
                run(d[i], &s, got, bx, bl, size[z], true);
                op_assert_same(got + p * HIDDEN, alone, HIDDEN, formats[f].name);
            }
        if (!op_is_vector(d[i]) || op_rounds(d[i]) || formats[f].q.code != DT_F32) continue;
        if (!first[f]) first[f] = memcpy(malloc(HIDDEN * sizeof *alone), alone, HIDDEN * sizeof *alone);
        op_assert_same(alone, first[f], HIDDEN, "one variant against another");
    }
    free(x);
    free(logits);
    free(alone);
    free(got);
    free(bx);
    free(bl);
    for (int f = 0; f < FORMATS; f++) free(first[f]);
    op_close(d, n_dev);
}

/* Of what experts read, in every format; a row alone; and it is another result than weights of what they make. */
static void weights_of_inputs_agree_with_ref(void **state)
{
    (void)state;
    struct device *d[OP_DEVICES_MAX], *ref = op_open(DEV_REF, NULL, 0);
    uint32_t       n_dev = op_cpu_devices(d);
    float         *x = op_random(ROWS * HIDDEN, 1, 1), *logits = op_random(ROWS * EXPERTS, 2, 2),
          *want = op_random(ROWS * HIDDEN, 3, 1), *got = op_random(ROWS * HIDDEN, 4, 1),
          *alone = op_random(HIDDEN, 5, 1);
    for (int f = 0; f < FORMATS; f++) {
        struct setup sr = make(ref, &formats[f]);
        run_weigh_input = true;
        run(ref, &sr, want, x, logits, ROWS, false);
        for (uint32_t i = 0; i < n_dev; i++) {
            struct setup s = make(d[i], &formats[f]);
            run(d[i], &s, got, x, logits, ROWS, false);
            op_assert_near(got, want, ROWS * HIDDEN, bound(d[i], &formats[f]), formats[f].name);
            run(d[i], &s, alone, x + 7 * HIDDEN, logits + 7 * EXPERTS, 1, false);
            op_assert_same(got + 7 * HIDDEN, alone, HIDDEN, formats[f].name);
        }
        run_weigh_input = false;
        run(ref, &sr, got, x, logits, ROWS, false);
        assert_memory_not_equal(got, want, ROWS * HIDDEN * sizeof *got);
    }
    free(x);
    free(logits);
    free(want);
    free(got);
    free(alone);
    dev_close(ref);
    op_close(d, n_dev);
}

/* Biases of each expert, large enough to clamp gates and ups on both sides; every format, and a row alone. What is
 * summed over is up to 56 then, where without biases it is about 1, and sums of that cancel. */
static void biases_of_experts_agree_with_ref(void **state)
{
    (void)state;
    struct device *d[OP_DEVICES_MAX], *ref = op_open(DEV_REF, NULL, 0);
    uint32_t       n_dev = op_cpu_devices(d);
    float         *x = op_random(ROWS * HIDDEN, 1, 1), *logits = op_random(ROWS * EXPERTS, 2, 2),
          *want = op_random(ROWS * HIDDEN, 3, 1), *got = op_random(ROWS * HIDDEN, 4, 1),
          *alone = op_random(HIDDEN, 5, 1), *gate_up = op_random((size_t)EXPERTS * 2 * INTER, 6, 9),
          *small = op_random((size_t)EXPERTS * 2 * INTER, 8, 1), *down = op_random((size_t)EXPERTS * HIDDEN, 7, 2);
    run_down_bias = down;
    for (int k = 0; k < 2 * FORMATS; k++) {
        const struct format *f = &formats[k / 2];
        struct setup         sr = make(ref, f);
        run_act = k % 2 ? OP_CLAMPED : OP_SILU;
        run_gate_up_bias = k % 2 ? gate_up : small; /* without a clamp, factors of 30 would make 900 */
        run(ref, &sr, want, x, logits, ROWS, true);
        for (uint32_t i = 0; i < n_dev; i++) {
            struct setup s = make(d[i], f);
            run(d[i], &s, got, x, logits, ROWS, true);
            op_assert_near(got, want, ROWS * HIDDEN, 32 * bound(d[i], f), f->name);
            for (uint32_t r = 0; r < ROWS; r += 17) {
                run(d[i], &s, alone, x + (size_t)r * HIDDEN, logits + (size_t)r * EXPERTS, 1, true);
                op_assert_same(got + (size_t)r * HIDDEN, alone, HIDDEN, f->name);
            }
        }
    }
    run_act = OP_SILU;
    run_gate_up_bias = run_down_bias = NULL;
    free(x);
    free(logits);
    free(want);
    free(got);
    free(alone);
    free(gate_up);
    free(small);
    free(down);
    dev_close(ref);
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
    struct setup ss = make(small, formats), sb = make(big, formats);
    float       *x = op_random(MANY * HIDDEN, 1, 1), *logits = op_random(MANY * EXPERTS, 2, 2),
          *a = op_random(MANY * HIDDEN, 3, 1), *b = op_random(MANY * HIDDEN, 4, 1);
    run(small, &ss, a, x, logits, MANY, false);
    run(big, &sb, b, x, logits, MANY, false);
    op_assert_same(a, b, MANY * HIDDEN, "in parts");
    free(x);
    free(logits);
    free(a);
    free(b);
    dev_close(small);
    dev_close(big);
}

static void *copy(const void *from, size_t bytes) { return memcpy(malloc(bytes), from, bytes); }

/* Experts [first, + n) of a setup, with nothing before or behind them: a device must not even look there. */
static void run_some(struct device *d, const struct setup *s, uint32_t first, uint32_t n, float *out, const float *x,
                     const float *logits, uint32_t n_row)
{
    size_t        wide = 2 * (size_t)INTER;
    struct op_moe o = { .out = out,
                        .x = x,
                        .router_logits = logits,
                        .gate_up = copy(s->gate_up + first, n * sizeof *s->gate_up),
                        .down = copy(s->down + first, n * sizeof *s->down),
                        .n_row = n_row,
                        .n_expert = EXPERTS,
                        .top_k = TOP_K,
                        .hidden = HIDDEN,
                        .inter = INTER,
                        .renorm = true,
                        .weigh_input = run_weigh_input,
                        .expert_scale = run_expert_scale,
                        .first_here = first,
                        .n_here = n };
    if (run_down_bias) {
        o.gate_up_bias = copy(run_gate_up_bias + first * wide, n * wide * sizeof(float));
        o.down_bias = copy(run_down_bias + first * HIDDEN, n * HIDDEN * sizeof(float));
    }
    d->ops->moe(d, &o);
    free((void *)o.gate_up);
    free((void *)o.down);
    free((void *)o.gate_up_bias);
    free((void *)o.down_bias);
}

/* What becomes of the weights of a row's experts: nothing more, or in turn biases, factors, weights of inputs. */
static void run_more(int kind, const float *gate_up, const float *down, const float *scale)
{
    run_gate_up_bias = kind == 1 ? gate_up : NULL;
    run_down_bias = kind == 1 ? down : NULL;
    run_expert_scale = kind == 2 ? scale : NULL;
    run_weigh_input = kind == 3;
}

/* Each part against ref, row by row alone as well; the parts add up to what one device makes; who has none of a row's
 * experts makes zeros, and who has all of them makes the bits of a device that was not told. */
static void experts_of_several_devices_add_up(void **state)
{
    (void)state;
    static const uint32_t part[][2] = { { 0, 3 }, { 3, 4 } };
    struct device        *d[OP_DEVICES_MAX], *ref = op_open(DEV_REF, NULL, 0);
    uint32_t              n_dev = op_cpu_devices(d);
    size_t                all = ROWS * HIDDEN;
    float *x = op_random(all, 1, 1), *logits = op_random(ROWS * EXPERTS, 2, 2), *whole = op_random(all, 3, 1),
          *want = op_random(all, 4, 1), *got = op_random(all, 5, 1), *sum = op_random(all, 6, 1),
          *alone = op_random(HIDDEN, 7, 1), *gate_up = op_random((size_t)EXPERTS * 2 * INTER, 8, 1),
          *down = op_random((size_t)EXPERTS * HIDDEN, 9, 2), *scale = op_random(EXPERTS, 10, 2);
    for (uint32_t e = 0; e < EXPERTS; e++) { /* rows 0 and 1 choose in the one part alone, and in the other */
        logits[e] = e < 3 ? 9.0f : -9.0f;
        logits[EXPERTS + e] = e < 3 ? -9.0f : 9.0f;
    }
    for (int f = 0; f < FORMATS; f++) {
        struct setup sr = make(ref, &formats[f]);
        run_more(f % 4, gate_up, down, scale);
        run_some(ref, &sr, 0, EXPERTS, whole, x, logits, ROWS);
        for (uint32_t i = 0; i <= n_dev; i++) {
            struct device *on = i < n_dev ? d[i] : ref;
            struct setup   s = make(on, &formats[f]);
            double         most = (f % 4 == 1 ? 32 : 4) * bound(on, &formats[f]);
            memset(sum, 0, all * sizeof *sum);
            for (int p = 0; p < 2; p++) {
                run_some(ref, &sr, part[p][0], part[p][1], want, x, logits, ROWS);
                memset(got, 0xff, all * sizeof *got);
                run_some(on, &s, part[p][0], part[p][1], got, x, logits, ROWS);
                op_assert_near(got, want, all, most, formats[f].name);
                for (uint32_t j = 0; j < HIDDEN; j++) assert_true(got[(size_t)!p * HIDDEN + j] == 0);
                for (uint32_t r = 0; r < ROWS; r += 13) {
                    run_some(on, &s, part[p][0], part[p][1], alone, x + (size_t)r * HIDDEN,
                             logits + (size_t)r * EXPERTS, 1);
                    op_assert_same(got + (size_t)r * HIDDEN, alone, HIDDEN, formats[f].name);
                }
                for (size_t j = 0; j < all; j++) sum[j] += got[j];
            }
            op_assert_near(sum, whole, all, most, "the parts' sum");
            run_some(on, &s, 0, EXPERTS, got, x, logits, ROWS);
            run(on, &s, sum, x, logits, ROWS, true);
            op_assert_same(got, sum, all, "all of them");
        }
    }
    run_more(0, NULL, NULL, NULL);
    free(x);
    free(logits);
    free(whole);
    free(want);
    free(got);
    free(sum);
    free(alone);
    free(gate_up);
    free(down);
    free(scale);
    dev_close(ref);
    op_close(d, n_dev);
}

/* Routers of every kind against ref: ties go to the lower id; a bias chooses and does not weigh; experts of groups that
 * are not kept are not chosen, however good they are. */
static const struct op_moe routers[] = {
    { .score = OP_ROUTE_SIGMOID },
    { .score = OP_ROUTE_SIGMOID, .weigh_input = true },
    { .score = OP_ROUTE_SIGMOID, .renorm = true, .sum_add = 1e-20f, .scale = 2.5f },
    { .score = OP_ROUTE_SIGMOID, .n_group = 4, .group_keep = 2, .renorm = true },
    { .score = OP_ROUTE_SIGMOID, .n_group = 2, .group_keep = 1, .scale = 0.5f },
    { .score = OP_ROUTE_SOFTMAX, .scale = 3.0f },
    { .score = OP_ROUTE_SOFTMAX, .renorm = true, .sum_min = 0.9f },
    { .score = OP_ROUTE_SOFTMAX, .n_group = 4, .group_keep = 3 },
};
enum { N_ROUTER = sizeof routers / sizeof *routers, ROUTED = 8 };

static void run_router(struct device *d, const struct op_moe *kind, const struct setup *s, float *out, const float *x,
                       const float *logits, const float *bias)
{
    struct op_moe o = *kind;
    o.out = out;
    o.x = x;
    o.router_logits = logits;
    o.gate_up = s->gate_up;
    o.down = s->down;
    o.n_row = ROWS;
    o.n_expert = ROUTED;
    o.top_k = 2;
    o.hidden = HIDDEN;
    o.inter = INTER;
    o.bias = bias;
    o.expert_scale = run_expert_scale;
    d->ops->moe(d, &o);
}

static void routers_agree_with_ref(void **state)
{
    (void)state;
    struct device *d[OP_DEVICES_MAX], *ref = op_open(DEV_REF, NULL, 0);
    uint32_t       n_dev = op_cpu_devices(d);
    float         *x = op_random(ROWS * HIDDEN, 1, 1), *logits = op_random(ROWS * ROUTED, 2, 2),
          *bias = op_random(ROUTED, 7, 1), *want = op_random(ROWS * HIDDEN, 3, 1),
          *got = op_random(ROWS * HIDDEN, 4, 1), *other = op_random(ROWS * HIDDEN, 5, 1);
    for (uint32_t e = 0; e < ROUTED; e++) {
        logits[e] = e % 3 ? 1.0f : -1.0f; /* ties within groups and between them */
        logits[ROUTED + e] = -80.0f;      /* scores near 0 */
        logits[2 * ROUTED + e] = 90.0f;   /* and near 1 */
    }
    struct setup sr = make(ref, &formats[1]);
    for (int k = 0; k < N_ROUTER; k++)
        for (int with = 0; with < 2; with++) {
            static const float scale[ROUTED] = { 0.5f, 2, 1, -1, 0.25f, 3, 1.5f, 0 };
            run_expert_scale = k % 2 == with ? scale : NULL;
            bool by_logit = !with && !routers[k].n_group; /* then also where all scores are 1 in float32 */
            for (uint32_t e = 0; e < ROUTED; e++) logits[3 * ROUTED + e] = by_logit ? 30.0f + (float)e : 0;
            run_router(ref, &routers[k], &sr, want, x, logits, with ? bias : NULL);
            for (uint32_t i = 0; i < n_dev; i++) {
                struct setup s = make(d[i], &formats[1]);
                run_router(d[i], &routers[k], &s, got, x, logits, with ? bias : NULL);
                op_assert_near(got, want, ROWS * HIDDEN, 4e-6, "a router");
            }
        }
    run_expert_scale = NULL;
    /* a bias that makes the worst expert the best gives it its own small weight, not that of the bias */
    for (uint32_t e = 0; e < ROUTED; e++) {
        bias[e] = e == 5 ? 50.0f : 0.0f;
        logits[e] = e == 5 ? -6.0f : 1.0f;
    }
    run_router(ref, &routers[0], &sr, want, x, logits, bias);
    struct setup first = sr;
    first.gate_up[5] = sr.gate_up[6];
    first.down[5] = sr.down[6];
    run_router(ref, &routers[0], &first, other, x, logits, bias);
    float worst = 0, largest = 0;
    for (uint32_t i = 0; i < HIDDEN; i++) {
        worst = fmaxf(worst, fabsf(want[i] - other[i]));
        largest = fmaxf(largest, fabsf(want[i]));
    }
    assert_true(worst > 0 && worst < 0.1f * largest); /* it was chosen, and weighs 1 / (1 + e^6) */
    free(x);
    free(logits);
    free(bias);
    free(want);
    free(got);
    free(other);
    dev_close(ref);
    op_close(d, n_dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(experts_agree_with_ref),
        cmocka_unit_test(a_row_has_the_same_bits_in_every_batch_and_place),
        cmocka_unit_test(weights_of_inputs_agree_with_ref),
        cmocka_unit_test(biases_of_experts_agree_with_ref),
        cmocka_unit_test(rows_that_do_not_fit_scratch_are_done_in_parts),
        cmocka_unit_test(experts_of_several_devices_add_up),
        cmocka_unit_test(routers_agree_with_ref),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
