/* Mixture of experts on the CUDA device: against ref over shapes that take each of its kernels, a row's bits in every
 * batch, odd routings, rows of padding, some of the experts, graphs. Over 500 lines: one op, and the list of what is
 * asked of it. */
#include "cuda/cuda_test.h"
#include "kernels/cuda/cuda.h"

enum { GUARD = 4096 };

struct shape {
    uint32_t n_expert, top_k, hidden, inter, rows;
};
struct moe {
    struct device     *d;
    struct shape       s;
    struct dev_weight *gate_up, *down;
    float             *gate_up_bias, *down_bias; /* NULL: none; else the gate clamps */
    float             *expert_scale;             /* NULL: none; else the gate is GELU. Neither: SiLU */
    void              *guard;                    /* behind the scratch */
    uint32_t           first, n_here;            /* struct op_moe; 0: all experts */
};

static struct moe make(struct device *d, struct shape s, bool steps)
{
    struct moe m = {
        d, s, calloc(s.n_expert, sizeof *m.gate_up), calloc(s.n_expert, sizeof *m.down), NULL, NULL, NULL, NULL, 0, 0
    };
    ct_experts(d, s.n_expert, s.hidden, s.inter, m.gate_up, m.down);
    struct dev_limits lim = ct_moe_limits(s.rows, s.hidden, s.n_expert, s.top_k, s.inter);
    if (steps) {
        struct cuda_dev *c = cuda_of(d);
        assert_int_equal(d->ops->step_init(d, &lim), ST_OK);
        c->work_bytes = cuda_moe_work_bytes(c, &lim); /* not a byte more */
        m.guard = c->work + c->work_bytes;
        c->work = ct_alloc(d, c->work_bytes + GUARD);
        m.guard = c->work + c->work_bytes;
    }
    return m;
}
static struct moe make_ref(enum dtype t, struct shape s)
{
    struct dev_cfg cfg = { .kind = DEV_REF, .arena_bytes = 256 << 20, .n_rank = 1 };
    struct device *d;
    assert_int_equal(dev_open(&cfg, &d), ST_OK);
    d->act = t; /* of the weights */
    return make(d, s, false);
}
static void drop(struct moe *m)
{
    free(m->gate_up);
    free(m->down);
    dev_close(m->d);
}
static void run(struct moe *m, void *out, const void *x, const void *logits, uint32_t n, bool renorm)
{
    enum op_act   act = m->expert_scale ? OP_GELU_TANH : OP_SILU;
    struct op_moe o = { .out = out,
                        .x = x,
                        .router_logits = logits,
                        .gate_up = m->gate_up,
                        .down = m->down,
                        .n_row = n,
                        .n_expert = m->s.n_expert,
                        .top_k = m->s.top_k,
                        .hidden = m->s.hidden,
                        .inter = m->s.inter,
                        .renorm = renorm,
                        .act = m->gate_up_bias ? OP_CLAMPED : act,
                        .expert_scale = m->expert_scale,
                        .first_here = m->first,
                        .n_here = m->n_here,
                        .gate_up_bias = m->gate_up_bias,
                        .down_bias = m->down_bias };
    m->d->ops->moe(m->d, &o);
}
static void assert_guard(struct moe *m)
{
    uint8_t got[GUARD];
    ct_get(m->d, got, m->guard, GUARD);
    for (size_t i = 0; i < GUARD; i++) assert_int_equal(got[i], 0xff);
}

enum routing { SPREAD, ONE_EXPERT, TIES, ROUTINGS };
static void route(float *logits, struct shape s, enum routing how)
{
    for (uint32_t r = 0; r < s.rows; r++)
        for (uint32_t e = 0; e < s.n_expert; e++) {
            float *l = &logits[(size_t)r * s.n_expert + e];
            if (how == ONE_EXPERT)
                *l = e == s.n_expert - 1 ? 4.0f
                                         : -3.0f - (float)((e * 5 + 3) % s.n_expert) / 8; /* the rest: the same few */
            if (how == TIES) *l = (e + r) % 3 ? 1.0f : 2.0f;
        }
}

/* Biases that clamp gates and ups on both sides, in the device's memory. */
static void add_biases(struct moe *m)
{
    size_t wide = (size_t)m->s.n_expert * 2 * m->s.inter, out = (size_t)m->s.n_expert * m->s.hidden;
    float *g = op_random(wide, 77, 5), *w = op_random(out, 78, 1);
    m->gate_up_bias = ct_bytes(m->d, g, wide * sizeof *g);
    m->down_bias = ct_bytes(m->d, w, out * sizeof *w);
    free(g);
    free(w);
}

/* A factor for each expert, of both signs. */
static void add_scales(struct moe *m)
{
    float *by = op_random(m->s.n_expert, 79, 1.5f);
    m->expert_scale = ct_bytes(m->d, by, m->s.n_expert * sizeof *by);
    free(by);
}

enum more { PLAIN, BIASES, SCALES };
static const double larger[] = { 1, 10, 3 }; /* how much larger the outputs are */
static void         agree(struct shape s, enum dtype t, uint64_t seed, enum more more)
{
    size_t     all = (size_t)s.rows * s.hidden;
    struct moe m = make(ct_open(t, 256 << 20), s, true), r = make_ref(t, s);
    if (more == BIASES) {
        add_biases(&m);
        add_biases(&r);
    }
    if (more == SCALES) {
        add_scales(&m);
        add_scales(&r);
    }
    float *x = op_random(all, seed, 1), *logits = op_random((size_t)s.rows * s.n_expert, seed + 1, 2),
          *want = op_random(all, 3, 1), *got = op_random(all, 4, 1);
    void *out = ct_act_new(m.d, all);
    char  what[128];
    ct_round(x, all, t);
    ct_round(logits, (size_t)s.rows * s.n_expert, t);
    void *dx = ct_act(m.d, x, all), *dl = ct_act_new(m.d, (size_t)s.rows * s.n_expert);
    for (int how = 0; how < ROUTINGS; how++) {
        bool renorm = (how + seed) % 2;
        route(logits, s, how);
        ct_put_as(m.d, dl, t, logits, (size_t)s.rows * s.n_expert);
        ct_poison(m.d, out, all * 2);
        ct_poison(m.d, cuda_of(m.d)->work, cuda_of(m.d)->work_bytes);
        run(&r, want, x, logits, s.rows, renorm);
        run(&m, out, dx, dl, s.rows, renorm);
        ct_act_get(m.d, got, out, all);
        snprintf(what, sizeof what, "%u experts, top %u, %u x %u, %u rows, routing %d, %s", s.n_expert, s.top_k,
                 s.hidden, s.inter, s.rows, how, t == DT_BF16 ? "bf16" : "f16");
        ct_assert_close(got, want, all, t == DT_BF16 ? 5e-3 : 7e-4, (t == DT_BF16 ? 0.1 : 0.02) * larger[more], what);
        assert_guard(&m);
    }
    free(x);
    free(logits);
    free(want);
    free(got);
    drop(&m);
    drop(&r);
}

/* each of the kernels, rows and tiles that are full and that are not, dimensions that 32, 64 and 128 divide and do
 * not */
static void experts_agree_with_ref(void **state)
{
    (void)state;
    static const struct shape shape[] = {
        { 4, 1, 64, 32, 1 },    { 128, 8, 64, 32, 1 },  { 8, 2, 256, 96, 8 },   { 7, 3, 72, 40, 5 },
        { 5, 2, 100, 36, 3 },   { 6, 2, 64, 17, 20 },   { 8, 8, 64, 64, 16 },   { 4, 2, 200, 72, 13 },
        { 16, 4, 128, 64, 40 }, { 128, 8, 64, 48, 33 }, { 300, 40, 32, 16, 9 }, { 4, 2, 64, 64, 70 },
        { 4, 2, 136, 72, 100 }, { 5, 3, 256, 128, 97 }, { 4, 4, 64, 64, 130 },  { 4, 3, 200, 136, 150 },
        { 8, 2, 1024, 64, 4 },  { 4, 2, 4096, 64, 2 },  { 2, 1, 64, 1024, 18 },
    };
    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++) {
        agree(shape[i], DT_BF16, 10 + i, PLAIN);
        agree(shape[i], DT_BF16, 10 + i, BIASES);
        if (i % 2 == 0) agree(shape[i], DT_BF16, 10 + i, SCALES);
        agree(shape[i], DT_F16, 50 + i, PLAIN);
        agree(shape[i], DT_F16, 50 + i, BIASES);
    }
}

/* One row among others, in batches that take all the kernels; some of its company are NaN, infinite or zeros. */
static void a_row_has_the_same_bits_in_every_batch_and_place(void **state)
{
    (void)state;
    static const struct shape shape[] = { { 4, 3, 200, 104, 150 }, { 7, 2, 68, 36, 150 } };
    static const uint32_t     size[] = { 150, 70, 2, 8, 44, 9, 17, 16 };
    for (size_t z = 0; z < 2; z++) {
        struct shape s = shape[z];
        size_t       all = (size_t)s.rows * s.hidden;
        struct moe   m = make(ct_open(DT_BF16, 256 << 20), s, true);
        float       *x = op_random(all, 1, 1), *logits = op_random((size_t)s.rows * s.n_expert, 2, 2);
        float       *mx = op_random(s.hidden, 3, 1), *ml = op_random(s.n_expert, 4, 2);
        char        *dx = ct_act(m.d, x, all), *dl = ct_act(m.d, logits, (size_t)s.rows * s.n_expert),
             *out = ct_act_new(m.d, all);
        uint16_t *alone = malloc(s.hidden * 2), *got = malloc(s.hidden * 2);
        ct_put_as(m.d, dx, DT_BF16, mx, s.hidden);
        ct_put_as(m.d, dl, DT_BF16, ml, s.n_expert);
        run(&m, out, dx, dl, 1, true);
        ct_get(m.d, alone, out, s.hidden * 2);
        for (size_t i = 0; i < sizeof size / sizeof *size; i++)
            for (uint32_t place = 0; place < size[i]; place += 1 + size[i] / 3) {
                float *bx = memcpy(malloc(all * 4), x, all * 4),
                      *bl = memcpy(malloc((size_t)s.rows * s.n_expert * 4), logits, (size_t)s.rows * s.n_expert * 4);
                if (place) {
                    bl[0] = NAN;
                    bx[1] = INFINITY;
                }
                if (place > 1) bx[(size_t)s.hidden + 3] = NAN;
                if (place > 2) memset(bx + (size_t)2 * s.hidden, 0, s.hidden * 4);
                memcpy(bx + (size_t)place * s.hidden, mx, s.hidden * 4);
                memcpy(bl + (size_t)place * s.n_expert, ml, s.n_expert * 4);
                ct_put_as(m.d, dx, DT_BF16, bx, all);
                ct_put_as(m.d, dl, DT_BF16, bl, (size_t)s.rows * s.n_expert);
                run(&m, out, dx, dl, size[i], true);
                ct_get(m.d, got, out + (size_t)place * s.hidden * 2, s.hidden * 2);
                ct_assert_same(got, alone, s.hidden * 2, "the row in a batch");
                free(bx);
                free(bl);
            }
        free(x);
        free(logits);
        free(mx);
        free(ml);
        free(alone);
        free(got);
        drop(&m);
    }
}

static void every_order_of_threads_gives_the_same_bits(void **state)
{
    (void)state;
    static const struct shape shape[] = { { 5, 2, 72, 40, 6 },  { 4, 2, 72, 40, 14 },  { 5, 2, 72, 40, 20 },
                                          { 5, 2, 70, 36, 10 }, { 3, 2, 136, 72, 60 }, { 3, 3, 136, 72, 110 } };
    for (size_t z = 0; z < sizeof shape / sizeof *shape; z++) {
        struct shape s = shape[z];
        size_t       all = (size_t)s.rows * s.hidden;
        struct moe   m = make(ct_open(DT_BF16, 0), s, true);
        float       *x = op_random(all, 1, 1), *logits = op_random((size_t)s.rows * s.n_expert, 2, 2);
        void        *dx = ct_act(m.d, x, all), *dl = ct_act(m.d, logits, (size_t)s.rows * s.n_expert),
             *out = ct_act_new(m.d, all);
        uint16_t *want = malloc(all * 2), *got = malloc(all * 2);
        run(&m, out, dx, dl, s.rows, true);
        ct_get(m.d, want, out, all * 2);
        for (size_t i = 0; i < all; i++) assert_true((want[i] & 0x7f80) != 0x7f80);
        for (CT_SCHEDULES(i)) {
            ct_poison(m.d, out, all * 2);
            ct_poison(m.d, cuda_of(m.d)->work, cuda_of(m.d)->work_bytes);
            run(&m, out, dx, dl, s.rows, true);
            ct_get(m.d, got, out, all * 2);
            ct_assert_same(got, want, all * 2, ct_schedule_name(i));
        }
        assert_guard(&m);
        free(x);
        free(logits);
        free(want);
        free(got);
        drop(&m);
    }
}

/* Padding: whatever is in it, zeros come out, and no expert is asked: theirs are NaN. */
static void rows_of_padding_have_no_experts(void **state)
{
    (void)state;
    struct shape s = { 6, 2, 64, 32, 12 };
    size_t       all = (size_t)s.rows * s.hidden;
    struct moe   m = make(ct_open(DT_BF16, 0), s, true);
    uint32_t     seq[12];
    float       *x = op_random(all, 1, 1), *logits = op_random((size_t)s.rows * s.n_expert, 2, 1),
          *got = op_random(all, 3, 1);
    for (uint32_t e = 4; e < 6; e++) {
        ct_poison(m.d, m.gate_up[e].data, m.gate_up[e].bytes);
        ct_poison(m.d, m.down[e].data, m.down[e].bytes);
    }
    for (uint32_t r = 0; r < s.rows; r++) {
        seq[r] = r < 5 ? r : UINT32_MAX;
        for (uint32_t e = 4; e < 6; e++) logits[(size_t)r * s.n_expert + e] = r < 5 ? -50.0f : 50.0f;
    }
    for (size_t i = 7 * s.hidden; i < all; i++) x[i] = NAN;
    void *dx = ct_act(m.d, x, all), *dl = ct_act(m.d, logits, (size_t)s.rows * s.n_expert), *out = ct_act_new(m.d, all);
    cuda_of(m.d)->row_seq = ct_bytes(m.d, seq, sizeof seq);
    run(&m, out, dx, dl, s.rows, true);
    cuda_of(m.d)->row_seq = NULL;
    ct_act_get(m.d, got, out, all);
    for (size_t i = 0; i < all; i++) assert_true(i < 5 * s.hidden ? isfinite(got[i]) && got[i] != 0 : got[i] == 0);
    free(x);
    free(logits);
    free(got);
    drop(&m);
}

/* so that whoever reads it can see that something is wrong with it, and with no other */
static void a_row_without_a_routing_is_nan(void **state)
{
    (void)state;
    struct shape s = { 6, 3, 64, 32, 5 };
    size_t       all = (size_t)s.rows * s.hidden;
    struct moe   m = make(ct_open(DT_BF16, 0), s, true);
    float       *x = op_random(all, 1, 1), *logits = op_random((size_t)s.rows * s.n_expert, 2, 1),
          *got = op_random(all, 3, 1);
    for (uint32_t e = 0; e < s.n_expert; e++) {
        logits[s.n_expert + e] = NAN;
        logits[2 * s.n_expert + e] = e ? logits[e] : NAN;
    }
    logits[3 * s.n_expert + 2] = INFINITY;
    void *dx = ct_act(m.d, x, all), *dl = ct_act(m.d, logits, (size_t)s.rows * s.n_expert), *out = ct_act_new(m.d, all);
    run(&m, out, dx, dl, s.rows, true);
    ct_act_get(m.d, got, out, all);
    for (size_t i = 0; i < all; i++) assert_true(isnan(got[i]) == (i / s.hidden >= 1 && i / s.hidden <= 3));
    free(x);
    free(logits);
    free(got);
    drop(&m);
}

static void many_rows_go_in_parts(void **state)
{
    (void)state;
    struct shape s = { 4, 1, 16, 8, 4200 };
    size_t       all = (size_t)s.rows * s.hidden;
    struct moe   m = make(ct_open(DT_BF16, 0), s, true);
    float       *x = op_random(all, 1, 1), *logits = op_random((size_t)s.rows * s.n_expert, 2, 1);
    char *dx = ct_act(m.d, x, all), *dl = ct_act(m.d, logits, (size_t)s.rows * s.n_expert), *out = ct_act_new(m.d, all);
    uint16_t *got = malloc(all * 2), *part = malloc(all * 2);
    run(&m, out, dx, dl, s.rows, false);
    ct_get(m.d, got, out, all * 2);
    assert_guard(&m);
    for (uint32_t r = 0; r < s.rows; r += 600) {
        uint32_t n = s.rows - r < 600 ? s.rows - r : 600;
        run(&m, out, dx + (size_t)r * s.hidden * 2, dl + (size_t)r * s.n_expert * 2, n, false);
        ct_get(m.d, part, out, (size_t)n * s.hidden * 2);
        ct_assert_same(part, got + (size_t)r * s.hidden, (size_t)n * s.hidden * 2, "in parts");
    }
    free(x);
    free(logits);
    free(got);
    free(part);
    drop(&m);
}

/* A device that has experts [first, + n) of m's: views, not copies. */
static struct moe part_of(const struct moe *m, uint32_t first, uint32_t n)
{
    struct moe p = *m;
    p.first = first;
    p.n_here = n;
    p.gate_up += first;
    p.down += first;
    if (p.gate_up_bias) p.gate_up_bias += (size_t)first * 2 * m->s.inter;
    if (p.down_bias) p.down_bias += (size_t)first * m->s.hidden;
    return p;
}

/* Each part of the experts against ref, by each of the kernels, with the others' weights NaN; rows of it alone and in
 * every order of threads: the same bits. Rows that chose nobody here, and rows of padding, are zeros. */
static void some_experts(struct shape s, uint32_t first, uint32_t n, enum more more)
{
    size_t     all = (size_t)s.rows * s.hidden, n_logit = (size_t)s.rows * s.n_expert;
    struct moe m = make(ct_open(DT_BF16, 256 << 20), s, true), r = make_ref(DT_BF16, s);
    if (more == BIASES) {
        add_biases(&m);
        add_biases(&r);
    }
    if (more == SCALES) {
        add_scales(&m);
        add_scales(&r);
    }
    for (uint32_t e = 0; e < s.n_expert; e++) {
        if (e - first < n) continue;
        ct_poison(m.d, m.gate_up[e].data, m.gate_up[e].bytes);
        ct_poison(m.d, m.down[e].data, m.down[e].bytes);
    }
    struct moe mine = part_of(&m, first, n), theirs = part_of(&r, first, n);
    uint32_t  *seq = calloc(s.rows, sizeof *seq);
    float     *x = op_random(all, 11, 1), *logits = op_random(n_logit, 12, 2), *want = op_random(all, 3, 1),
          *got = op_random(all, 4, 1);
    uint16_t *bits = malloc(all * 2), *again = malloc(all * 2);
    ct_round(x, all, DT_BF16);
    for (uint32_t e = 0; e < s.n_expert; e++) logits[e] = e - first < n ? -20.0f - (float)e : (float)(e % 4);
    ct_round(logits, n_logit, DT_BF16);
    char *dx = ct_act(m.d, x, all), *dl = ct_act(m.d, logits, n_logit), *out = ct_act_new(m.d, all);
    run(&theirs, want, x, logits, s.rows, true);
    for (CT_SCHEDULES_FEW(schedule)) {
        ct_poison(m.d, out, all * 2);
        ct_poison(m.d, cuda_of(m.d)->work, cuda_of(m.d)->work_bytes);
        run(&mine, out, dx, dl, s.rows, true);
        ct_get(m.d, schedule ? again : bits, out, all * 2);
        if (schedule) ct_assert_same(again, bits, all * 2, ct_schedule_name(schedule));
    }
    ct_get_as(m.d, got, out, DT_BF16, all);
    ct_assert_close(got, want, all, 5e-3, 0.1 * larger[more], "some of the experts");
    if (s.n_expert - n >= s.top_k)
        for (uint32_t i = 0; i < s.hidden; i++) assert_true(got[i] == 0);
    for (uint32_t row = 0; row < s.rows; row += 1 + s.rows / 5) {
        run(&mine, out, dx + (size_t)row * s.hidden * 2, dl + (size_t)row * s.n_expert * 2, 1, true);
        ct_get(m.d, again, out, s.hidden * 2);
        ct_assert_same(again, bits + (size_t)row * s.hidden, s.hidden * 2, "a row alone");
    }
    for (uint32_t row = 0; row < s.rows; row++) seq[row] = row % 2 ? UINT32_MAX : row;
    cuda_of(m.d)->row_seq = ct_bytes(m.d, seq, s.rows * sizeof *seq);
    run(&mine, out, dx, dl, s.rows, true);
    cuda_of(m.d)->row_seq = NULL;
    ct_get(m.d, again, out, all * 2);
    for (uint32_t row = 0; row < s.rows; row++)
        for (uint32_t i = 0; i < s.hidden; i++)
            assert_int_equal(again[(size_t)row * s.hidden + i], row % 2 ? 0 : bits[(size_t)row * s.hidden + i]);
    assert_guard(&m);
    free(seq);
    free(x);
    free(logits);
    free(want);
    free(got);
    free(bits);
    free(again);
    drop(&m);
    drop(&r);
}

static void a_device_may_have_some_of_the_experts(void **state)
{
    (void)state;
    static const struct {
        struct shape s;
        uint32_t     first, n;
    } some[] = { { { 8, 3, 72, 40, 5 }, 4, 4 },      { { 8, 2, 128, 64, 14 }, 0, 4 }, { { 7, 3, 70, 36, 20 }, 3, 1 },
                 { { 6, 2, 64, 32, 40 }, 2, 2 },     { { 4, 2, 136, 72, 90 }, 1, 2 }, { { 3, 2, 64, 64, 150 }, 2, 1 },
                 { { 300, 9, 32, 16, 9 }, 100, 150 } };
    for (size_t i = 0; i < sizeof some / sizeof *some; i++)
        some_experts(some[i].s, some[i].first, some[i].n, (enum more)(i % 3));
}

/* A captured op reads what routing decides on the device: other rows, another routing, the same launches. */
static void a_graph_serves_any_routing(void **state)
{
    (void)state;
    static const struct shape shape[] = { { 6, 2, 64, 32, 8 }, { 4, 2, 64, 32, 24 }, { 3, 2, 64, 32, 80 } };
    for (size_t z = 0; z < 3; z++) {
        struct shape    s = shape[z];
        size_t          all = (size_t)s.rows * s.hidden, n_logit = (size_t)s.rows * s.n_expert;
        struct moe      m = make(ct_open(DT_BF16, 0), s, true);
        cudaStream_t    stream = cuda_of(m.d)->stream;
        cudaGraph_t     graph;
        cudaGraphExec_t exec;
        void           *dx = ct_act_new(m.d, all), *dl = ct_act_new(m.d, n_logit), *out = ct_act_new(m.d, all);
        uint16_t       *want = malloc(all * 2), *got = malloc(all * 2);
        uint32_t        seq[80] = { 0 }, *dseq = ct_bytes(m.d, seq, sizeof seq);
        cuda_of(m.d)->row_seq = dseq;
        assert_int_equal(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
        run(&m, out, dx, dl, s.rows, true);
        assert_int_equal(cudaStreamEndCapture(stream, &graph), cudaSuccess);
        assert_int_equal(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
        for (int how = 0; how < ROUTINGS; how++) {
            float *x = op_random(all, 20 + how, 1), *logits = op_random(n_logit, 30 + how, 2);
            if (how) route(logits, s, how);
            for (uint32_t r = 0; r < s.rows; r++) seq[r] = how && r < s.rows / 2 ? UINT32_MAX : r;
            ct_put(m.d, dseq, seq, sizeof seq);
            ct_put_as(m.d, dx, DT_BF16, x, all);
            ct_put_as(m.d, dl, DT_BF16, logits, n_logit);
            run(&m, out, dx, dl, s.rows, true);
            ct_get(m.d, want, out, all * 2);
            ct_poison(m.d, out, all * 2);
            assert_int_equal(cudaGraphLaunch(exec, stream), cudaSuccess);
            ct_get(m.d, got, out, all * 2);
            ct_assert_same(got, want, all * 2, "replayed");
            free(x);
            free(logits);
        }
        cudaGraphExecDestroy(exec);
        cudaGraphDestroy(graph);
        free(want);
        free(got);
        drop(&m);
    }
}

/* Routers that are no plain softmax, from logits of both types; 300 experts are more than a warp holds. */
static void routers_agree_with_ref(void **state)
{
    (void)state;
    static const struct op_moe kinds[] = {
        { .score = OP_ROUTE_SIGMOID, .renorm = true, .sum_add = 1e-20f, .scale = 2.5f },
        { .score = OP_ROUTE_SIGMOID, .n_group = 4, .group_keep = 2, .renorm = true },
        { .score = OP_ROUTE_SIGMOID, .weigh_input = true },
        { .score = OP_ROUTE_SOFTMAX, .renorm = true, .sum_min = 0.9f },
        { .score = OP_ROUTE_SOFTMAX, .scale = 3.0f, .n_group = 2, .group_keep = 1 },
    };
    static const struct shape shape[] = { { 8, 3, 72, 40, 5 }, { 300, 8, 32, 16, 9 } };
    for (size_t z = 0; z < 2; z++) {
        struct shape s = shape[z];
        size_t       all = (size_t)s.rows * s.hidden, n = (size_t)s.rows * s.n_expert;
        struct moe   m = make(ct_open(DT_BF16, 256 << 20), s, true), r = make_ref(DT_BF16, s);
        float       *x = op_random(all, 1, 1), *logits = op_random(n, 2, 2), *bias = op_random(s.n_expert, 5, 0.5f),
              *want = op_random(all, 3, 1), *got = op_random(all, 4, 1);
        ct_round(x, all, DT_BF16);
        ct_round(logits, n, DT_BF16);
        void  *dx = ct_act(m.d, x, all), *dl = ct_act(m.d, logits, n), *out = ct_act_new(m.d, all);
        float *df = ct_bytes(m.d, logits, n * sizeof *logits), *db = ct_bytes(m.d, bias, s.n_expert * sizeof *bias);
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
            for (int how = 0; how < 4; how++) {
                struct op_moe o = kinds[k];
                o.n_row = s.rows;
                o.n_expert = s.n_expert;
                o.top_k = s.top_k;
                o.hidden = s.hidden;
                o.inter = s.inter;
                struct op_moe on = o;
                o.out = want;
                o.x = x;
                o.router_logits = logits;
                o.gate_up = r.gate_up;
                o.down = r.down;
                o.bias = how & 1 ? bias : NULL;
                on.out = out;
                on.x = dx;
                on.router_f32 = how & 2;
                on.router_logits = on.router_f32 ? (void *)df : dl;
                on.gate_up = m.gate_up;
                on.down = m.down;
                on.bias = how & 1 ? db : NULL;
                r.d->ops->moe(r.d, &o);
                ct_poison(m.d, out, all * 2);
                m.d->ops->moe(m.d, &on);
                ct_act_get(m.d, got, out, all);
                ct_assert_close(got, want, all, 5e-3, 0.5, "a router");
                assert_guard(&m);
            }
        free(x);
        free(logits);
        free(bias);
        free(want);
        free(got);
        drop(&m);
        drop(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(experts_agree_with_ref),
        cmocka_unit_test(routers_agree_with_ref),
        cmocka_unit_test(a_row_has_the_same_bits_in_every_batch_and_place),
        cmocka_unit_test(every_order_of_threads_gives_the_same_bits),
        cmocka_unit_test(rows_of_padding_have_no_experts),
        cmocka_unit_test(a_row_without_a_routing_is_nan),
        cmocka_unit_test(many_rows_go_in_parts),
        cmocka_unit_test(a_device_may_have_some_of_the_experts),
        cmocka_unit_test(a_graph_serves_any_routing),
    };
    return ct_run(tests);
}
