/* Products of q, k and v whose heads are finished by the block that writes their last tile: the bits, in the rows and in
 * every byte of the pool, of the norm, the product, its bias and op qkv one after another. Plain weights and codes. */
#include "cuda/fused_test.h"
#include "test.h"

enum { PAGES = 3, BLOCKS = 127, LAYERS = 2 };

struct shape {
    uint32_t   n_head, n_kv_head, dim, rot, k, block_tokens;
    enum dtype act, kv;
    bool       ahead, bias;   /* a norm of x, a bias of the product */
    bool       norm, late, v; /* of q and k heads; behind RoPE; of values */
    bool       mean, tree, beta;
    bool       odd; /* heads that the product leaves to op qkv */
};
/* k: one slice, two, four and eight, the last one shorter; blocks that have several groups of tiles; a head of one tile,
 * of several blocks, and several in one block; MHA, GQA, MQA, and a layer that reads the keys of another */
static const struct shape shapes[] = {
    { 4, 2, 32, 32, 136, 16, DT_BF16, DT_BF16, true, true, .norm = true },
    { 4, 4, 16, 16, 64, 8, DT_F16, DT_F16, true, false, .tree = true },
    { 2, 1, 128, 128, 504, 16, DT_BF16, DT_F8E4M3, true, false, .norm = true },
    { 6, 1, 48, 16, 1032, 24, DT_F16, DT_BF16, false, true, .beta = true },
    { 2, 2, 96, 96, 1032, 16, DT_BF16, DT_BF16, true, true, .norm = true, .mean = true },
    { 2, 1, 64, 0, 2056, 8, DT_BF16, DT_F8E4M3, false, false, .tree = true },
    { 3, 2, 80, 32, 576, 16, DT_F16, DT_F16, true, true, .norm = true, .late = true },
    { 1, 1, 256, 64, 72, 16, DT_BF16, DT_BF16, true, true, .norm = true, .v = true, .beta = true },
    { 5, 0, 32, 32, 136, 16, DT_BF16, DT_BF16, true, false, .norm = true, .tree = true },
    { 16, 8, 16, 16, 2048, 16, DT_BF16, DT_BF16, true, true, .norm = true },
    { 1, 1, 512, 512, 64, 8, DT_BF16, DT_F8E4M3, false, true, .norm = false },
    { 5, 5, 24, 24, 72, 8, DT_BF16, DT_BF16, true, true, .norm = true, .odd = true },
    { 3, 1, 7, 6, 64, 5, DT_F16, DT_F8E4M3, false, false, .odd = true },
    { 2, 1, 160, 160, 64, 8, DT_BF16, DT_BF16, false, true, .norm = true, .mean = true, .odd = true },
};

/* Rows of eight kinds: the first of a block; three of one sequence, across the end of a block, or three of a tree with two
 * siblings; the first of all; padding; a row of no block; one whose table names the block of another sequence. */
struct step {
    uint32_t pos[ROWS], row_seq[ROWS], page_start[ROWS + 1], page[ROWS * PAGES];
    uint64_t tree[ROWS];
};
static void step_make(struct step *s, uint32_t block_tokens, bool tree)
{
    memset(s, 0, sizeof *s);
    for (uint32_t i = 0; i < ROWS * PAGES; i++) s->page[i] = i * 11 % BLOCKS;
    for (uint32_t r = 0; r <= ROWS; r++) s->page_start[r] = r * PAGES;
    for (uint32_t r = 0; r < ROWS; r++) {
        uint32_t kind = r % 8, *page = s->page + s->page_start[r];
        s->row_seq[r] = r;
        if (kind == 0) s->pos[r] = block_tokens * (1 + r / 8 % 2);
        if (kind >= 1 && kind <= 3) {
            static const uint64_t word[] = { 1, 2, 6 };
            static const uint32_t behind[] = { 0, 0, 1 };
            s->row_seq[r] = r - kind + 1;
            s->pos[r] = 2 * block_tokens - 2 + (tree ? behind[kind - 1] : kind - 1);
            s->tree[r] = word[kind - 1];
        }
        if (kind == 5) s->row_seq[r] = s->pos[r] = UINT32_MAX;
        if (kind == 6) page[0] = UINT32_MAX;
        if (kind == 7) page[0] = s->page[s->page_start[r - 3]];
        if (kind == 7) s->pos[r] = block_tokens - 1;
    }
}

struct rig {
    struct device    *d;
    struct shape      s;
    uint32_t          n;
    struct dev_weight w;
    struct step      *at; /* of the device */
    struct dev_kv     kv;
    size_t            pool;
    char             *x, *h, *out; /* [ROWS, k], the same, [ROWS + 1, n] */
    float            *bias, *ahead, *norm, *inv_freq;
};
static float *numbers(struct device *d, uint32_t n, uint64_t seed)
{
    float *x = op_random(n, seed, 1), *at = ct_bytes(d, x, n * sizeof *x);
    free(x);
    return at;
}
static void rig_open(struct rig *r, const struct shape *s, const struct dev_quant *q)
{
    struct step step;
    float       inv_freq[256], *x = op_random((size_t)ROWS * s->k, s->k, 1);
    *r = (struct rig){ .d = ct_open(s->act, 96 << 20), .s = *s, .n = (s->n_head + 2 * s->n_kv_head) * s->dim };
    for (uint32_t i = 0; i < s->rot / 2; i++) inv_freq[i] = 1.0f / powf(10000.0f, 2.0f * (float)i / (float)s->rot);
    step_make(&step, s->block_tokens, s->tree);
    r->at = ct_bytes(r->d, &step, sizeof step);
    r->w = weight(r->d, q, r->n, s->k, 0.3f);
    r->x = ct_act(r->d, x, (size_t)ROWS * s->k);
    r->h = ct_act_new(r->d, (size_t)ROWS * s->k);
    r->out = ct_act_new(r->d, (size_t)(ROWS + 1) * r->n);
    r->bias = numbers(r->d, r->n, 3);
    r->ahead = numbers(r->d, s->k, 4);
    r->norm = numbers(r->d, r->n, 5);
    r->inv_freq = ct_bytes(r->d, inv_freq, sizeof inv_freq);
    r->kv = (struct dev_kv){ .dtype = s->kv, .n_block = BLOCKS, .n_layer = LAYERS, .block_tokens = s->block_tokens };
    op_kv_layers(&r->kv, s->n_kv_head, s->dim);
    r->pool = r->kv.block_bytes * BLOCKS;
    r->kv.base = ct_alloc(r->d, r->pool);
    free(x);
}

/* The question for m rows from row0 of the step on. q and b: where its operands lie. */
static struct op_fused question(const struct rig *r, struct op_qkv *q, struct dev_batch *b, uint32_t row0, uint32_t m)
{
    const struct shape *s = &r->s;
    *q = (struct op_qkv){ .qkv = r->out,
                          .q_norm = s->norm ? r->norm : NULL,
                          .k_norm = s->norm ? r->norm : NULL,
                          .v_norm = s->v ? r->norm + s->dim : NULL,
                          .eps = 1e-6f,
                          .inv_freq = s->rot ? r->inv_freq : NULL,
                          .rope_scale = 1.25f,
                          .n_head = s->n_head,
                          .n_kv_head = s->n_kv_head,
                          .head_dim = s->dim,
                          .rot = s->rot,
                          .layer = 1,
                          .q_beta = s->beta ? 0.3f : 0,
                          .q_period = 7,
                          .q_shift = 1,
                          .norm_late = s->late,
                          .norm_mean = s->mean };
    *b = (struct dev_batch){ .n_row = m,
                             .n_seq = ROWS,
                             .pos = r->at->pos + row0,
                             .row_seq = r->at->row_seq + row0,
                             .page_start = r->at->page_start,
                             .page = r->at->page,
                             .tree = s->tree ? r->at->tree + row0 : NULL };
    return (struct op_fused){ .out = r->out,
                              .x = r->x + (size_t)row0 * s->k * 2,
                              .w = &r->w,
                              .bias = s->bias ? r->bias : NULL,
                              .norm = s->ahead ? r->ahead : NULL,
                              .eps = eps,
                              .m = m,
                              .end = OP_END_QKV,
                              .heads = q,
                              .b = b,
                              .kv = &r->kv };
}

static void apart(struct rig *r, const struct op_fused *o)
{
    const void *x = o->x;
    if (o->norm) {
        cuda_rmsnorm(r->d, r->h, x, o->norm, o->m, r->s.k, o->eps);
        x = r->h;
    }
    product(r->d, o->out, x, o->w, o->m);
    if (o->bias) cuda_add_bias(cuda_of(r->d), o->out, o->bias, o->m, r->n);
    cuda_qkv(r->d, o->heads, o->b, o->kv);
}

/* What is in out and in the pool; the caller frees it. */
static size_t taken(const struct rig *r) { return (size_t)(ROWS + 1) * r->n * 2 + r->pool; }
static char  *take(struct rig *r)
{
    size_t rows = (size_t)(ROWS + 1) * r->n * 2;
    char  *got = malloc(taken(r));
    ct_get(r->d, got, r->out, rows);
    ct_get(r->d, got + rows, r->kv.base, r->pool);
    return got;
}
static void fill(struct rig *r)
{
    ct_poison(r->d, r->out, (size_t)(ROWS + 1) * r->n * 2);
    ct_poison(r->d, r->kv.base, r->pool);
}

static const char *name_of(const struct rig *r, uint32_t m)
{
    static char         text[160];
    const struct shape *s = &r->s;
    snprintf(text, sizeof text, "%s: %u rows, heads %u/%u of %u, %u turned, k %u, %s in %s", dtype_name(r->w.q.code), m,
             s->n_head, s->n_kv_head, s->dim, s->rot, s->k, dtype_name(s->act), dtype_name(s->kv));
    return text;
}

static void assert_counted_out(struct rig *r)
{
    uint32_t tiles[GEMM_HEADS_MAX];
    ct_get(r->d, tiles, cuda_of(r->d)->blas->tiles, sizeof tiles);
    for (uint32_t i = 0; i < GEMM_HEADS_MAX; i++) assert_int_equal(tiles[i], 0);
}

static void assert_joined_as_apart(struct rig *r, uint32_t m)
{
    struct op_qkv    q;
    struct dev_batch b;
    struct op_fused  o = question(r, &q, &b, 0, m);
    fill(r);
    apart(r, &o);
    char *want = take(r);
    fill(r);
#ifdef CUDA_EMU
    uint64_t before = emu_launches();
#endif
    bool done = join(r->d, &o);
#ifdef CUDA_EMU
    assert_int_equal(emu_launches() - before, done + (done && r->s.odd));
#endif
    assert_int_equal(done, m <= (o.norm ? ROWS_NORMED : ROWS_JOINED));
    if (!done && m <= ROWS_JOINED) joined(r->d, &o, r->h);
    if (m <= ROWS_JOINED) {
        char *got = take(r);
        ct_assert_same(got, want, taken(r), name_of(r, m));
        free(got);
    }
    assert_counted_out(r);
    free(want);
}

static void every_shape_has_the_bits_of_kernels_one_after_another(void **state)
{
    (void)state;
    static const uint32_t rows[] = { 1, 2, 7, 8, 9, 16, 17, 31, 32, 33 };
    for (size_t i = 0; i < ARRAY_N(shapes); i++)
        for (int coded = 0; coded < 2; coded++) {
            struct rig r;
            rig_open(&r, &shapes[i], coded ? &formats[i % ARRAY_N(formats)] : &plain);
            for (size_t j = 0; j < ARRAY_N(rows); j++)
                if (r.n * r.s.k < 1 << 16 || !shapes[i].ahead || (i + j) % 3 == 0) assert_joined_as_apart(&r, rows[j]);
            dev_close(r.d);
        }
}

static void every_number_of_rows_has_them(void **state)
{
    (void)state;
    for (int coded = 0; coded < 2; coded++) {
        struct rig r;
        rig_open(&r, &shapes[1], coded ? &formats[0] : &plain);
        for (uint32_t m = 1; m <= ROWS; m++) assert_joined_as_apart(&r, m);
        dev_close(r.d);
    }
}

/* A row's bits, and those of its keys, are those that it has alone. */
static void a_row_has_the_same_bits_alone(void **state)
{
    (void)state;
    enum { M = 8 };
    for (size_t i = 0; i < 6; i++) {
        struct rig       r;
        struct op_qkv    q;
        struct dev_batch b;
        rig_open(&r, &shapes[i / 2], i % 2 ? &formats[i / 2] : &plain);
        size_t          row = r.n * 2u, rows = (ROWS + 1) * row;
        struct op_fused o = question(&r, &q, &b, 0, M);
        fill(&r);
        joined(r.d, &o, r.h);
        char *all = take(&r);
        for (uint32_t at = 0; at < M; at++) {
            o = question(&r, &q, &b, at, 1);
            fill(&r);
            joined(r.d, &o, r.h);
            char  *one = take(&r);
            size_t written = 0;
            ct_assert_same(one, all + at * row, row, name_of(&r, 1));
            for (size_t k = rows; k < taken(&r); k++) {
                if (one[k] == (char)0xff) continue;
                assert_int_equal(one[k], all[k]);
                written++;
            }
            assert_int_equal(written > 0, at % 8 != 5 && at % 8 != 6); /* not padding, not the row of no block */
            free(one);
        }
        free(all);
        dev_close(r.d);
    }
}

/* A row that is not a number stays alone with it. */
static void a_bad_row_changes_no_other(void **state)
{
    (void)state;
    enum { M = 8, BAD = 2 };
    struct rig       r;
    struct op_qkv    q;
    struct dev_batch b;
    uint16_t         bad = 0x7fc0;
    rig_open(&r, &shapes[0], &formats[1]);
    struct op_fused o = question(&r, &q, &b, 0, M);
    size_t          row = r.n * 2u;
    fill(&r);
    joined(r.d, &o, r.h);
    char *want = take(&r);
    ct_put(r.d, r.x + (BAD * r.s.k + 5) * 2, &bad, 2);
    fill(&r);
    joined(r.d, &o, r.h);
    char *got = take(&r);
    ct_assert_same(got, want, BAD * row, "rows before it");
    ct_assert_same(got + (BAD + 1) * row, want + (BAD + 1) * row, (M - BAD - 1) * row, "rows behind it");
    assert_true(memcmp(got + BAD * row, want + BAD * row, row) != 0);
    free(want);
    free(got);
    dev_close(r.d);
}

/* Two layers: what the first makes of its rows is the input of the second, which counts with the same numbers. */
static void layers(struct rig *r, uint32_t m, bool join, void *between)
{
    struct op_qkv    q;
    struct dev_batch b;
    struct op_fused  o = question(r, &q, &b, 0, m);
    fill(r);
    for (uint32_t l = 0; l < LAYERS; l++) {
        q.layer = l;
        if (join)
            joined(r->d, &o, r->h);
        else
            apart(r, &o);
        cuda_rmsnorm(r->d, between, r->out, r->ahead, m, r->s.k, eps); /* of the first k numbers of all rows together */
        o.x = between;
    }
}

static void two_layers_are_the_same_in_every_order_of_threads_and_kernels(void **state)
{
    (void)state;
    static const uint32_t m[] = { 3, 8, 20 };
    for (size_t i = 0; i < 6; i++) {
        struct rig r;
        rig_open(&r, &shapes[i / 2], i % 2 ? &formats[i / 2] : &plain);
        void *between = ct_act_new(r.d, (size_t)ROWS * r.s.k);
        ct_schedule(0);
        layers(&r, m[i / 2], false, between);
        char *want = take(&r);
        for (CT_SCHEDULES(schedule)) {
            layers(&r, m[i / 2], true, between);
            char *got = take(&r);
            ct_assert_same(got, want, taken(&r), ct_schedule_name(schedule));
            free(got);
        }
        assert_counted_out(&r);
        free(want);
        dev_close(r.d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_shape_has_the_bits_of_kernels_one_after_another),
        cmocka_unit_test(every_number_of_rows_has_them),
        cmocka_unit_test(a_row_has_the_same_bits_alone),
        cmocka_unit_test(a_bad_row_changes_no_other),
        cmocka_unit_test(two_layers_are_the_same_in_every_order_of_threads_and_kernels),
    };
    return ct_run(tests);
}
