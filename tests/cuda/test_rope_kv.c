/* qkv on the CUDA device: norm, RoPE and what goes to the pool against ref; padding; a row's bits in every batch; far
 * positions. */
#include "cuda/cuda_test.h"

struct shape {
    uint32_t   n_head, n_kv_head, dim, rot, block_tokens;
    bool       norm;
    enum dtype act;
    bool       late, whole, mean; /* norms behind RoPE; over whole projections; of deviations, by head */
    bool       narrow;            /* a pool of bf16 under activations of f16 */
    bool       v;                 /* values have a norm too */
};
static const struct shape shapes[] = {
    { 4, 2, 128, 128, 16, true, DT_BF16, .late = false }, { 4, 1, 128, 128, 32, false, DT_F16, .late = false },
    { 6, 2, 64, 64, 16, true, DT_BF16, .late = false },   { 2, 2, 80, 80, 8, false, DT_BF16, .late = false },
    { 2, 2, 80, 32, 16, true, DT_F16, .late = false },    { 3, 1, 96, 96, 24, true, DT_BF16, .late = false },
    { 2, 1, 256, 256, 64, true, DT_BF16, .late = false }, { 2, 1, 256, 64, 16, false, DT_F16, .late = false },
    { 5, 5, 20, 20, 3, true, DT_BF16, .late = false },    { 3, 1, 7, 6, 16, true, DT_F16, .late = false },
    { 3, 1, 7, 3, 1, false, DT_BF16, .late = false },     { 4, 2, 16, 16, 16, true, DT_F16, .late = false },
    { 4, 4, 64, 0, 16, true, DT_BF16, .late = false },    { 2, 1, 48, 24, 16, false, DT_BF16, .late = false },
    { 40, 8, 128, 64, 16, true, DT_BF16, .late = false }, { 1, 1, 512, 512, 16, true, DT_F16, .late = false },
    { 4, 2, 128, 128, 16, true, DT_BF16, .late = true },  { 5, 5, 20, 20, 3, true, DT_F16, .late = true },
    { 2, 2, 80, 32, 16, true, DT_BF16, .late = true },    { 3, 1, 7, 3, 16, true, DT_BF16, .late = true },
    { 6, 2, 64, 64, 16, true, DT_BF16, .whole = true },   { 3, 1, 7, 6, 16, true, DT_F16, .whole = true },
    { 6, 2, 64, 64, 16, true, DT_BF16, .mean = true },    { 4, 2, 128, 128, 16, true, DT_F16, .mean = true },
    { 4, 2, 128, 128, 16, true, DT_F16, .narrow = true }, { 3, 1, 7, 6, 16, true, DT_F16, .narrow = true },
    { 2, 1, 96, 96, 16, true, DT_BF16, .mean = true },    { 3, 2, 7, 3, 16, true, DT_BF16, .mean = true },
    { 2, 1, 512, 512, 16, true, DT_BF16, .v = true },     { 3, 2, 20, 6, 16, true, DT_F16, .v = true },
};
enum { ROWS = 7, SEQS = 3, LAYERS = 3, LAYER = 1, PAGES = 64, BLOCKS = 37 };

/* rows 0..3 of sequence 0, 4 of 1, 5 is padding, 6 of 2 whose page is nowhere */
struct step {
    uint32_t pos[ROWS], row_seq[ROWS], page_start[SEQS + 1], page[PAGES];
};
static struct step make_step(uint32_t block_tokens)
{
    struct step s = { .pos = { 2, 3, 4, 5, 17, UINT32_MAX, 0 },
                      .row_seq = { 0, 0, 0, 0, 1, UINT32_MAX, 2 },
                      .page_start = { 0, 6, 24, 25 } };
    for (uint32_t i = 0; i < PAGES; i++) s.page[i] = UINT32_MAX;
    for (uint32_t i = 0; i <= 5 / block_tokens; i++) s.page[i] = 3 + 2 * i;
    for (uint32_t i = 0; i <= 17 / block_tokens; i++) s.page[6 + i] = 36 - i;
    return s;
}

struct world {
    struct shape  s;
    size_t        width, pool;
    float        *x, *q_norm, *k_norm, *v_norm, inv_freq[256];
    struct dev_kv kv;
};
static struct world make(struct shape s)
{
    struct world w = { .s = s, .width = (size_t)(s.n_head + 2 * s.n_kv_head) * s.dim };
    w.x = op_random(ROWS * w.width, 1, 2);
    w.q_norm = op_random((size_t)s.n_head * s.dim, 2, 1);
    w.k_norm = op_random((size_t)s.n_head * s.dim, 3, 1);
    w.v_norm = op_random(s.dim, 4, 1);
    ct_round(w.x, ROWS * w.width, s.act);
    for (uint32_t i = 0; i < s.rot / 2; i++) w.inv_freq[i] = 1.0f / powf(10000.0f, 2.0f * (float)i / (float)s.rot);
    w.kv = (struct dev_kv){
        .dtype = s.narrow ? DT_BF16 : s.act, .n_block = BLOCKS, .n_layer = LAYERS, .block_tokens = s.block_tokens
    };
    op_kv_layers(&w.kv, s.n_kv_head, s.dim);
    w.pool = w.kv.block_bytes * BLOCKS;
    return w;
}
static void unmake(struct world *w)
{
    free(w->x);
    free(w->q_norm);
    free(w->k_norm);
    free(w->v_norm);
}

/* x [n][width] and the pool, as the device leaves them, when it is given rows row0 .. row0 + n of the step. pool_out
 * NULL: there is no pool, and no pages are given */
static void run(struct world *w, const struct step *s, uint32_t row0, uint32_t n, uint16_t *x_out, uint16_t *pool_out)
{
    struct device   *d = ct_open(w->s.act, 0);
    struct dev_kv    kv = w->kv;
    struct step     *at = ct_bytes(d, s, sizeof *s);
    struct dev_batch b = { .n_row = n,
                           .n_seq = SEQS,
                           .pos = at->pos + row0,
                           .row_seq = at->row_seq + row0,
                           .page_start = pool_out ? at->page_start : NULL,
                           .page = pool_out ? at->page : NULL };
    if (pool_out) kv.base = ct_alloc(d, w->pool);
    struct op_qkv q = { ct_act_new(d, n * w->width),
                        w->s.norm ? ct_bytes(d, w->q_norm, w->s.n_head * w->s.dim * sizeof(float)) : NULL,
                        w->s.norm ? ct_bytes(d, w->k_norm, w->s.n_head * w->s.dim * sizeof(float)) : NULL,
                        1e-6f,
                        w->s.rot ? ct_bytes(d, w->inv_freq, sizeof w->inv_freq) : NULL,
                        1.25f,
                        w->s.n_head,
                        w->s.n_kv_head,
                        w->s.dim,
                        w->s.rot,
                        .v_norm = w->s.v ? ct_bytes(d, w->v_norm, w->s.dim * sizeof(float)) : NULL,
                        .layer = LAYER,
                        .q_beta = w->s.norm ? 0.3f : 0,
                        .q_period = 7,
                        .norm_late = w->s.late,
                        .norm_mean = w->s.mean };
    ct_put_as(d, q.qkv, d->act, w->x + row0 * w->width, n * w->width); /* last: a kernel is ahead of the op */
    if (w->s.whole) {
        float *square = ct_alloc(d, n * 2 * sizeof *square);
        d->ops->squares(d, square, &q, n);
        q.square = square;
        q.n_square = 1;
    }
    d->ops->qkv(d, &q, &b, pool_out ? &kv : NULL);
    ct_get(d, x_out, q.qkv, n * w->width * 2);
    if (pool_out) ct_get(d, pool_out, kv.base, w->pool);
    dev_close(d);
}

static float from_half(uint16_t h, enum dtype t) { return t == DT_BF16 ? bf16_to_f32(h) : f16_to_f32(h); }
static bool  near(float got, float want, enum dtype t, int n) /* n roundings, and what fp32 loses on the way */
{
    double unit = t == DT_BF16 ? 0x1p-8 : 0x1p-11;
    return fabs((double)got - (double)want) <= 1.01 * n * unit * fabs((double)want) + 4e-6;
}

static void every_shape_agrees_with_ref_and_nothing_else_is_written(void **state)
{
    (void)state;
    for (CT_SCHEDULES_FEW(schedule))
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            struct world   w = make(shapes[i]);
            struct step    s = make_step(w.s.block_tokens);
            struct device *ref = ct_open_ref();
            uint16_t      *got = malloc(ROWS * w.width * 2), *pool = malloc(w.pool), *want_pool = malloc(w.pool);
            float         *want = malloc(ROWS * w.width * sizeof *want);
            run(&w, &s, 0, ROWS, got, pool);
            /* ref has no padding: it gets rows 0..4; row 6 gets a page of its own that is not compared */
            struct step t = s;
            t.row_seq[5] = 2;
            t.pos[5] = 0;
            t.page[24] = 1;
            struct dev_kv kv = w.kv;
            kv.base = want_pool;
            memset(want_pool, 0xff, w.pool);
            memcpy(want, w.x, ROWS * w.width * sizeof *want);
            struct dev_batch b = { .n_row = ROWS,
                                   .n_seq = SEQS,
                                   .pos = t.pos,
                                   .row_seq = t.row_seq,
                                   .page_start = t.page_start,
                                   .page = t.page };
            struct op_qkv    q = { want,
                                w.s.norm ? w.q_norm : NULL,
                                w.s.norm ? w.k_norm : NULL,
                                   1e-6f,
                                w.s.rot ? w.inv_freq : NULL,
                                   1.25f,
                                   w.s.n_head,
                                   w.s.n_kv_head,
                                   w.s.dim,
                                   w.s.rot,
                                   .v_norm = w.s.v ? w.v_norm : NULL,
                                   .layer = LAYER,
                                   .q_beta = w.s.norm ? 0.3f : 0,
                                   .q_period = 7,
                                   .norm_late = w.s.late,
                                   .norm_mean = w.s.mean };
            float            square[2 * ROWS];
            ref->ops->squares(ref, square, &q, ROWS);
            q.square = w.s.whole ? square : NULL;
            q.n_square = 1;
            ref->ops->qkv(ref, &q, &b, &kv);
            memset((char *)want_pool + w.kv.block_bytes, 0xff, w.kv.block_bytes);
            for (size_t r = 0; r < ROWS; r++)
                for (size_t k = 0; k < w.width; k++) {
                    bool  exact = r == 5 || k >= (size_t)(w.s.n_head + w.s.n_kv_head) * w.s.dim; /* as they were */
                    float x = from_half(got[r * w.width + k], w.s.act),
                          y = exact ? w.x[r * w.width + k] : want[r * w.width + k];
                    if (exact ? x != y : !near(x, y, w.s.act, 1))
                        fail_msg("shape %zu row %zu number %zu is %.9g, should be %.9g (%s)", i, r, k, (double)x,
                                 (double)y, ct_schedule_name(schedule));
                }
            for (size_t k = 0; k < w.pool / 2; k++) {
                bool written = want_pool[k] != 0xffff;
                if (!written
                        ? pool[k] != 0xffff
                        : !near(from_half(pool[k], w.kv.dtype), from_half(want_pool[k], w.kv.dtype), w.kv.dtype, 2))
                    fail_msg("shape %zu pool %zu is %.9g, should be %.9g", i, k, (double)from_half(pool[k], w.kv.dtype),
                             (double)from_half(want_pool[k], w.kv.dtype));
            }
            free(got);
            free(pool);
            free(want);
            free(want_pool);
            unmake(&w);
            dev_close(ref);
        }
}

static void a_row_has_the_same_bits_alone(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct world w = make(shapes[i]);
        struct step  s = make_step(w.s.block_tokens);
        uint16_t    *all = malloc(ROWS * w.width * 2), *pool = malloc(w.pool), *one = malloc(w.width * 2),
                 *one_pool = malloc(w.pool);
        run(&w, &s, 0, ROWS, all, pool);
        for (uint32_t r = 0; r < 5; r++) {
            run(&w, &s, r, 1, one, one_pool);
            ct_assert_same(one, all + r * w.width, w.width * 2, "row");
            size_t n = 0;
            for (size_t k = 0; k < w.pool / 2; k++) {
                if (one_pool[k] == 0xffff) continue;
                assert_int_equal(one_pool[k], pool[k]);
                n++;
            }
            assert_int_equal(n, 2 * w.s.n_kv_head * w.s.dim);
        }
        free(all);
        free(pool);
        free(one);
        free(one_pool);
        unmake(&w);
    }
}

/* Encoders keep nothing of a row. */
static void without_a_pool_a_row_is_turned_as_with_one(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct world w = make(shapes[i]);
        struct step  s = make_step(w.s.block_tokens);
        uint16_t    *with = malloc(ROWS * w.width * 2), *without = malloc(ROWS * w.width * 2), *pool = malloc(w.pool);
        run(&w, &s, 0, ROWS, with, pool);
        run(&w, &s, 0, ROWS, without, NULL);
        ct_assert_same(without, with, ROWS * w.width * 2, "without a pool");
        free(with);
        free(without);
        free(pool);
        unmake(&w);
    }
}

/* f16 shows absolute errors down to 6e-8 where a sine or cosine is near zero */
static void far_positions_are_turned_as_exactly_as_near_ones(void **state)
{
    (void)state;
    struct device *d = ct_open(DT_F16, 0);
    enum { N = 4096, DIM = 16 };
    uint32_t *pos = malloc(N * sizeof *pos), *row_seq = calloc(N, sizeof *row_seq), page_start[2] = { 0, 1 };
    float     inv_freq[DIM / 2] = { 1, 0.7f, 0.5f, 0.1f, 1, 0.7f, 0.01f, 1e-5f };
    float    *x = calloc((size_t)N * 3 * DIM, sizeof *x), *y = malloc((size_t)N * 3 * DIM * sizeof *y);
    for (uint32_t i = 0; i < N; i++) {
        struct rng_block r = rng_philox(5, 1, i);
        pos[i] = i < 400 ? i : 355 * (i - 399);                                /* 355 is nearly 113 pi */
        if (i >= 430) pos[i] = r.x[0] >> (10 + i % 12);                        /* up to 4 million */
        for (uint32_t j = 0; j < DIM / 2; j++) x[(size_t)i * 3 * DIM + j] = 1; /* q: becomes cos, sin */
    }
    struct dev_kv kv = { .dtype = DT_BF16, .n_block = 1, .n_layer = 1, .block_tokens = 1 << 22 };
    op_kv_layers(&kv, 1, DIM);
    uint32_t         nowhere = UINT32_MAX;
    struct dev_batch b = { .n_row = N,
                           .n_seq = 1,
                           .pos = ct_bytes(d, pos, N * sizeof *pos),
                           .row_seq = ct_bytes(d, row_seq, N * sizeof *row_seq),
                           .page_start = ct_bytes(d, page_start, sizeof page_start),
                           .page = ct_bytes(d, &nowhere, sizeof nowhere) };
    struct op_qkv    q = { ct_act(d, x, (size_t)N * 3 * DIM),
                           NULL,
                           NULL,
                           0,
                           ct_bytes(d, inv_freq, sizeof inv_freq),
                           1.0f,
                           1,
                           1,
                           DIM,
                           DIM,
                           .layer = 0 };
    d->ops->qkv(d, &q, &b, &kv);
    ct_act_get(d, y, q.qkv, (size_t)N * 3 * DIM);
    for (uint32_t i = 0; i < N; i++)
        for (uint32_t j = 0; j < DIM; j++) {
            double angle = (double)((float)pos[i] * inv_freq[j % (DIM / 2)]),
                   want = j < DIM / 2 ? cos(angle) : sin(angle);
            double got = (double)y[(size_t)i * 3 * DIM + j];
            if (!(fabs(got - want) <= 0x1.01p-11 * fabs(want) + 1.5e-7))
                fail_msg("position %u pair %u: %.9g, should be %.9g", pos[i], j, got, want);
        }
    free(pos);
    free(row_seq);
    free(x);
    free(y);
    dev_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_shape_agrees_with_ref_and_nothing_else_is_written),
        cmocka_unit_test(a_row_has_the_same_bits_alone),
        cmocka_unit_test(without_a_pool_a_row_is_turned_as_with_one),
        cmocka_unit_test(far_positions_are_turned_as_exactly_as_near_ones),
    };
    return ct_run(tests);
}
