/* Attention of encoders on the CUDA device: against ref, the bits of a text alone and in every batch, what a row may
 * not see, padding, every schedule. */
#include "cuda/cuda_test.h"
#include "kernels/cuda/cuda.h"

enum { TEXTS = 7, ROWS_MAX = 800, TILES_MAX = 64, ITEMS_MAX = 256, PAD = 4 };
/* Texts of one row stand first, as the engine has them: the plan counts them among the rows to decode. */
static const uint32_t lens[TEXTS] = { 1, 1, 64, 37, 130, 2, 513 };
enum { ROWS = 748 };

static const struct shape {
    uint32_t   n_head, n_kv_head, dim, window;
    float      cap;
    enum dtype act;
} shapes[] = {
    { 2, 2, 64, 0, 0, DT_F16 },   { 2, 2, 64, 65, 0, DT_BF16 },  { 3, 3, 32, 0, 0, DT_BF16 },
    { 4, 2, 32, 7, 0, DT_F16 },   { 3, 1, 20, 7, 0, DT_BF16 },   { 4, 2, 128, 1, 0, DT_BF16 },
    { 12, 12, 8, 0, 0, DT_F16 },  { 2, 2, 256, 200, 0, DT_F16 }, { 2, 1, 48, 64, 0.5f, DT_BF16 },
    { 1, 1, 96, 130, 0, DT_F16 }, { 3, 3, 7, 0, 0, DT_BF16 },    { 2, 2, 200, 0, 0, DT_BF16 },
};
enum { N_SHAPE = sizeof shapes / sizeof *shapes };

static size_t width_of(struct shape s) { return (size_t)(s.n_head + 2 * s.n_kv_head) * s.dim; }
static size_t out_of(struct shape s) { return (size_t)s.n_head * s.dim; }

static const char *name_of(struct shape s, const char *what)
{
    static char text[200];
    snprintf(text, sizeof text, "%s: heads %u/%u dim %u window %u cap %g %s", what, s.n_head, s.n_kv_head, s.dim,
             s.window, (double)s.cap, s.act == DT_F16 ? "f16" : "bf16");
    return text;
}

/* The host's arrays of a step, which the device gets as they are. */
struct step {
    uint32_t             row_start[TEXTS + PAD + 1], row_seq[ROWS_MAX], pos[ROWS_MAX];
    uint32_t             tile_seq[TILES_MAX], tile_row[TILES_MAX], item_seq[ITEMS_MAX], item_chunk[ITEMS_MAX];
    uint32_t             seq_item[TEXTS + PAD + 1], chunk[1];
    struct cuda_attn_run run[2 * TEXTS];
};
struct world {
    struct shape   s;
    struct device *d;
    struct step   *at; /* on the device */
    void          *qkv, *out;
};

static struct world open_world(struct shape s)
{
    struct world w = { .s = s, .d = ct_open(s.act, 0) };
    w.at = ct_alloc(w.d, sizeof *w.at);
    w.qkv = ct_alloc(w.d, ROWS_MAX * width_of(s) * 2);
    w.out = ct_alloc(w.d, ROWS_MAX * out_of(s) * 2);
    return w;
}

static struct op_attn op_of(struct shape s, void *out, const void *qkv)
{
    return (struct op_attn){ .out = out,
                             .qkv = qkv,
                             .n_head = s.n_head,
                             .n_kv_head = s.n_kv_head,
                             .head_dim = s.dim,
                             .scale = 1 / sqrtf((float)s.dim),
                             .window = s.window,
                             .cap = s.cap };
}

/* Texts of these lengths behind each other, and behind texts of one row `pad` rows of no sequence, as a graph is
 * padded. */
static void plan(struct world *w, const uint32_t *len, uint32_t n, uint32_t pad, struct step *st, struct dev_batch *b)
{
    struct cuda_attn_split split = cuda_attn_split(cuda_of(w->d), w->s.n_head, w->s.n_kv_head, w->s.dim);
    uint32_t               row = 0, seq_len[2 * TEXTS + PAD], n_one = 0;
    split.fixed = pad == 0; /* texts of few rows are runs there */
    memset(st, 0xff, sizeof *st);
    for (uint32_t i = 0; i < n; i++) {
        st->row_start[i] = row;
        n_one += len[i] == 1 && i == n_one;
        for (uint32_t t = 0; t < len[i]; t++, row++) {
            st->row_seq[row] = i;
            st->pos[row] = t;
        }
    }
    for (uint32_t i = n; i < n + pad; i++) st->row_start[i] = row++; /* row_seq says UINT32_MAX */
    st->row_start[n + pad] = row;
    *b = (struct dev_batch){
        .n_row = row, .n_seq = n + pad, .row_start = st->row_start, .row_seq = st->row_seq, .pos = st->pos
    };
    uint32_t               n_run = cuda_attn_runs(&split, b), n_list = n_run ? n_run : n_one + pad;
    struct cuda_attn_lists l = { .tile_seq = st->tile_seq,
                                 .tile_row = st->tile_row,
                                 .item_seq = st->item_seq,
                                 .item_chunk = st->item_chunk,
                                 .seq_item = st->seq_item,
                                 .chunk = st->chunk,
                                 .n_decode_pad = n_one + pad,
                                 .n_item_pad = cuda_attn_items_max(&split, n_list),
                                 .run = st->run,
                                 .n_run_pad = n_run,
                                 .n_part = 1000 };
    assert_true(l.n_item_pad <= ITEMS_MAX && n_run <= 2 * TEXTS && cuda_attn_tiles_max(row, n) <= TILES_MAX);
    cuda_attn_fill(&split, b, seq_len, &l);
    cuda_of(w->d)->attn = (struct cuda_attn_plan){ .n_decode = l.n_run ? 0 : l.n_decode_pad,
                                                   .n_run = l.n_run,
                                                   .run = w->at->run,
                                                   .n_tile = l.n_tile,
                                                   .tile_seq = w->at->tile_seq,
                                                   .tile_row = w->at->tile_row,
                                                   .n_item = l.n_item_pad,
                                                   .item_seq = w->at->item_seq,
                                                   .item_chunk = w->at->item_chunk,
                                                   .seq_item = w->at->seq_item,
                                                   .chunk = w->at->chunk };
}

/* qkv -> out as it lies on the device, of which nothing may be written behind the texts' rows. */
static void run(struct world *w, const uint32_t *len, uint32_t n, uint32_t pad, const float *qkv, uint16_t *out)
{
    static struct step st;
    struct dev_batch   b;
    size_t             each = out_of(w->s), all = ROWS_MAX * each;
    plan(w, len, n, pad, &st, &b);
    uint32_t rows = b.n_row - pad;
    ct_put(w->d, w->at, &st, sizeof st);
    ct_put_as(w->d, w->qkv, w->s.act, qkv, rows * width_of(w->s));
    ct_poison(w->d, w->out, all * 2);
    b.row_start = w->at->row_start;
    b.row_seq = w->at->row_seq;
    b.pos = w->at->pos;
    struct op_attn o = op_of(w->s, w->out, w->qkv);
    w->d->ops->mutual(w->d, &o, &b);
    ct_get(w->d, out, w->out, all * 2);
    for (size_t i = rows * each; i < all; i++) assert_int_equal(out[i], 0xffff);
}

static float *numbers(struct shape s, uint32_t n)
{
    float *x = op_random(n * width_of(s), 40, 1.5f);
    ct_round(x, n * width_of(s), s.act);
    return x;
}

static void *room(size_t bytes)
{
    void *p = malloc(bytes);
    assert_non_null(p);
    return p;
}

static void every_shape_agrees_with_ref(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_SHAPE; i++) {
        struct shape       s = shapes[i];
        size_t             n = ROWS * out_of(s);
        struct device     *ref = ct_open_ref();
        struct world       w = open_world(s);
        float             *qkv = numbers(s, ROWS), *want = room(n * sizeof *want), *x = room(n * sizeof *x);
        uint16_t          *got = room(ROWS_MAX * out_of(s) * 2);
        static struct step st;
        struct dev_batch   b;
        run(&w, lens, TEXTS, 0, qkv, got);
        plan(&w, lens, TEXTS, 0, &st, &b);
        struct op_attn o = op_of(s, want, qkv);
        ref->ops->mutual(ref, &o, &b);
        for (size_t k = 0; k < n; k++) x[k] = s.act == DT_F16 ? f16_to_f32(got[k]) : bf16_to_f32(got[k]);
        /* weights are rounded for the product with V, and the result */
        ct_assert_close(x, want, n, s.act == DT_F16 ? 8e-4 : 6e-3, s.act == DT_F16 ? 0.008 : 0.06,
                        name_of(s, "mutual"));
        free(qkv);
        free(want);
        free(x);
        free(got);
        dev_close(w.d);
        dev_close(ref);
    }
}

/* Alone, beside the others in another order, and where a graph is padded behind it. */
static void a_text_has_the_same_bits_alone_and_in_every_batch(void **state)
{
    (void)state;
    static const uint32_t order[TEXTS] = { 1, 4, 0, 6, 5, 3, 2 };
    for (size_t i = 0; i < N_SHAPE; i++) {
        struct shape s = shapes[i];
        size_t       width = width_of(s), out = out_of(s);
        struct world w = open_world(s);
        float       *qkv = numbers(s, ROWS), *turned = room(ROWS * width * sizeof *turned);
        uint16_t    *all = room(ROWS_MAX * out * 2), *got = room(ROWS_MAX * out * 2);
        uint32_t     len[TEXTS], row[TEXTS];
        run(&w, lens, TEXTS, 0, qkv, all);
        for (uint32_t t = 0, at = 0; t < TEXTS; at += lens[t++]) {
            row[t] = at;
            run(&w, &lens[t], 1, lens[t] == 1 ? PAD : 0, qkv + at * width, got);
            ct_assert_same(got, all + at * out, lens[t] * out * 2, name_of(s, "alone"));
        }
        for (uint32_t t = 0, at = 0; t < TEXTS; at += len[t++]) {
            len[t] = lens[order[t]];
            memcpy(turned + at * width, qkv + row[order[t]] * width, len[t] * width * sizeof *qkv);
        }
        run(&w, len, TEXTS, 0, turned, got);
        for (uint32_t t = 0, at = 0; t < TEXTS; at += len[t++])
            ct_assert_same(got + at * out, all + row[order[t]] * out, len[t] * out * 2, name_of(s, "in another order"));
        free(qkv);
        free(turned);
        free(all);
        free(got);
        dev_close(w.d);
    }
}

/* No number in one text changes another, and one behind a window changes nobody who is further away. */
static void a_row_does_not_depend_on_rows_that_it_may_not_see(void **state)
{
    (void)state;
    enum { FROM = 30, LEN = 150, BAD = FROM + 70, N = 240 };
    static const struct shape some[] = { { 2, 2, 32, 40, 0, DT_BF16 }, { 1, 1, 20, 0, 0, DT_F16 } };
    const uint32_t            len[3] = { FROM, LEN, N - FROM - LEN };
    for (size_t i = 0; i < 2; i++) {
        struct shape s = some[i];
        size_t       width = width_of(s), out = out_of(s);
        struct world w = open_world(s);
        float       *qkv = numbers(s, N);
        uint16_t    *want = room(ROWS_MAX * out * 2), *got = room(ROWS_MAX * out * 2);
        run(&w, len, 3, 0, qkv, want);
        for (size_t k = out; k < width; k++) qkv[BAD * width + k] = k % 2 ? NAN : INFINITY;
        run(&w, len, 3, 0, qkv, got);
        for (uint32_t r = 0; r < N; r++) {
            bool sees = r >= FROM && r < FROM + LEN && (!s.window || (r + s.window > BAD && BAD + s.window > r));
            if (sees)
                assert_true(isnan(s.act == DT_F16 ? f16_to_f32(got[r * out]) : bf16_to_f32(got[r * out])));
            else
                ct_assert_same(got + r * out, want + r * out, out * 2, name_of(s, "a row that sees nothing of it"));
        }
        free(qkv);
        free(want);
        free(got);
        dev_close(w.d);
    }
}

static void every_schedule_gives_the_same_bits(void **state)
{
    (void)state;
    static const uint32_t     len[] = { 1, 70, 20 };
    static const struct shape some[] = { { 2, 2, 64, 0, 0, DT_F16 }, { 1, 1, 20, 33, 0, DT_BF16 } };
    for (size_t i = 0; i < 2; i++) {
        size_t       bytes = ROWS_MAX * out_of(some[i]) * 2;
        struct world w = open_world(some[i]);
        float       *qkv = numbers(some[i], 91);
        uint16_t    *first = room(bytes), *got = room(bytes);
        bool         any = false;
        for (CT_SCHEDULES(schedule)) {
            run(&w, len, 3, 0, qkv, any ? got : first);
            if (any) ct_assert_same(got, first, bytes, ct_schedule_name(schedule));
            any = true;
        }
        free(qkv);
        free(first);
        free(got);
        dev_close(w.d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_shape_agrees_with_ref),
        cmocka_unit_test(a_text_has_the_same_bits_alone_and_in_every_batch),
        cmocka_unit_test(a_row_does_not_depend_on_rows_that_it_may_not_see),
        cmocka_unit_test(every_schedule_gives_the_same_bits),
    };
    return ct_run(tests);
}
