/* Trees of drafts: nodes of one sequence that lie in slots behind its history, siblings at one position. Attention of
 * each node is that over its own path, whatever the others hold. */
#include "kernels/host.h"
#include "kernels/kv8.h"
#include "op/op_test.h"

enum { LAYERS = 2, LAYER = 1, NODES = TREE_NODES, SLOTS = 400 };

struct shape {
    uint32_t   n_head, n_kv_head, dim, block_tokens, window, history, nodes;
    enum dtype kv;
    float      cap;
    bool       sinks, chunked;
};
static const struct shape shapes[] = {
    { 4, 2, 64, 16, 0, 100, 7, DT_BF16, 0, false, false },   { 4, 2, 64, 16, 0, 61, 64, DT_BF16, 0, false, false },
    { 8, 1, 128, 3, 50, 150, 20, DT_BF16, 0, true, false },  { 16, 1, 32, 16, 3, 80, 40, DT_BF16, 0, false, false },
    { 2, 2, 80, 5, 0, 130, 33, DT_F16, 0, false, false },    { 3, 1, 20, 1, 2, 63, 30, DT_F32, 0.5f, true, false },
    { 4, 2, 64, 32, 0, 1, 8, DT_F32, 0, false, false },      { 6, 2, 48, 7, 0, 0, 25, DT_BF16, 0, false, false },
    { 4, 2, 64, 16, 48, 120, 64, DT_BF16, 0, true, true },   { 3, 1, 20, 4, 5, 64, 50, DT_F16, 2, false, true },
    { 2, 1, 256, 16, 1, 70, 12, DT_BF16, 0, false, false },  { 2, 1, 512, 16, 70, 90, 16, DT_BF16, 0, false, false },
    { 4, 2, 64, 16, 0, 125, 64, DT_F8E4M3, 0, true, false }, { 8, 1, 128, 9, 4, 97, 20, DT_F8E4M3, 0, false, false },
    { 3, 3, 20, 16, 0, 33, 9, DT_F8E4M3, 2, false, false },  { 15, 3, 32, 64, 0, 300, 31, DT_BF16, 0, false, false },
};

struct world {
    struct shape s;
    uint32_t     width, parent[NODES], pos[NODES]; /* parent: node, UINT32_MAX: the history's last token */
    uint64_t     word[NODES];
    float       *qkv, *sinks, inv_freq[256];
};

/* Nodes in the order of their depth; `chain`: each follows from the one before. */
static struct world make(struct shape s, uint64_t seed, bool chain)
{
    struct world w = { .s = s, .width = (s.n_head + 2 * s.n_kv_head) * s.dim };
    w.qkv = op_random((size_t)(s.history + s.nodes) * w.width, seed, 1.5f);
    w.sinks = op_random(s.n_head, 22, 6);
    for (uint32_t i = 0; i < s.dim / 2; i++) w.inv_freq[i] = 1.0f / powf(10000.0f, 2.0f * (float)i / (float)s.dim);
    for (uint32_t i = 0; i < s.nodes; i++) {
        uint32_t from = i; /* parents that are not before the last node's: they keep depths in order */
        while (from > 0 && w.pos[from - 1] + 1 >= w.pos[i - 1]) from--;
        uint32_t n = i - from + (i == 0 || w.pos[i - 1] == s.history), pick = rng_philox(seed, 7, i).x[0] % n;
        w.parent[i] = pick == i - from ? UINT32_MAX : from + pick;
        if (chain) w.parent[i] = i - 1;
        w.word[i] = (w.parent[i] == UINT32_MAX ? 0 : w.word[w.parent[i]]) | UINT64_C(1) << i;
        w.pos[i] = s.history + tree_count(w.word[i]) - 1;
    }
    return w;
}
static void unmake(struct world *w)
{
    free(w->qkv);
    free(w->sinks);
}
static struct dev_kv make_kv(struct device *d, struct shape s)
{
    struct dev_kv kv = { .dtype = s.kv, .n_layer = LAYERS, .block_tokens = s.block_tokens };
    op_kv_layers(&kv, s.n_kv_head, s.dim);
    kv.n_block = (SLOTS + s.block_tokens - 1) / s.block_tokens + 3;
    kv.n_block += kv.n_block % 7 == 0;
    assert_int_equal(d->ops->alloc(d, kv.block_bytes * kv.n_block, &kv.base), ST_OK);
    memset(kv.base, 0xff, kv.block_bytes * kv.n_block);
    return kv;
}
static uint32_t block_of(const struct dev_kv *kv, uint32_t i) { return (i * 7 + 3) % kv->n_block; }

/* Rows of slots [from, to) in one step; out [to - from][n_head * dim]. trees: nodes have their words, and siblings
 * their position; else they are a chain that says nothing of trees. */
static void step(struct device *d, const struct world *w, struct dev_kv *kv, uint32_t from, uint32_t to, bool trees,
                 float *out)
{
    uint32_t n = to - from, pos[SLOTS], row_seq[SLOTS] = { 0 }, row_start[2] = { 0, n }, page_start[2] = { 0 },
             page[SLOTS + 1];
    uint64_t tree[SLOTS];
    for (uint32_t i = 0; i < n; i++) {
        bool node = trees && from + i >= w->s.history;
        pos[i] = node ? w->pos[from + i - w->s.history] : from + i;
        tree[i] = node ? w->word[from + i - w->s.history] : 0;
    }
    page_start[1] = (to + w->s.block_tokens - 1) / w->s.block_tokens;
    for (uint32_t i = 0; i < page_start[1]; i++) page[i] = block_of(kv, i);
    float           *x = malloc((size_t)n * w->width * sizeof *x);
    struct dev_batch b = { .n_row = n,
                           .n_seq = 1,
                           .pos = pos,
                           .row_seq = row_seq,
                           .row_start = row_start,
                           .page_start = page_start,
                           .page = page,
                           .tree = trees ? tree : NULL };
    memcpy(x, w->qkv + (size_t)from * w->width, (size_t)n * w->width * sizeof *x);
    struct op_qkv  q = { .qkv = x,
                         .inv_freq = w->inv_freq,
                         .rope_scale = 1,
                         .n_head = w->s.n_head,
                         .n_kv_head = w->s.n_kv_head,
                         .head_dim = w->s.dim,
                         .rot = w->s.dim,
                         .layer = LAYER };
    struct op_attn a = { .out = out,
                         .qkv = x,
                         .n_head = w->s.n_head,
                         .n_kv_head = w->s.n_kv_head,
                         .head_dim = w->s.dim,
                         .layer = LAYER,
                         .scale = 1 / sqrtf((float)w->s.dim),
                         .window = w->s.window,
                         .cap = w->s.cap,
                         .sinks = w->s.sinks ? w->sinks : NULL,
                         .chunked = w->s.chunked };
    d->ops->qkv(d, &q, &b, kv);
    d->ops->attention(d, &a, &b, kv);
    free(x);
}
static size_t row_floats(const struct world *w) { return (size_t)w->s.n_head * w->s.dim; }
/* History, then all nodes; out: of the nodes */
static void run(struct device *d, const struct world *w, struct dev_kv *kv, bool trees, float *out)
{
    float *old = malloc((w->s.history + 1) * row_floats(w) * sizeof *old);
    if (w->s.history) step(d, w, kv, 0, w->s.history, false, old);
    step(d, w, kv, w->s.history, w->s.history + w->s.nodes, trees, out);
    free(old);
}
static float *room(const struct world *w) { return malloc(NODES * row_floats(w) * sizeof(float)); }

static void every_device_agrees_with_ref(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct device *d[OP_DEVICES_MAX], *ref = op_open(DEV_REF, NULL, 0);
        uint32_t       n_dev = op_cpu_devices(d);
        struct world   w = make(shapes[i], 100 + i, false);
        struct dev_kv  kv = make_kv(ref, shapes[i]);
        float         *want = room(&w), *got = room(&w);
        run(ref, &w, &kv, true, want);
        for (uint32_t j = 0; j < n_dev; j++) {
            struct dev_kv own = make_kv(d[j], shapes[i]);
            run(d[j], &w, &own, true, got);
            bool   bf = shapes[i].cap == 0 && op_attends_bf16(d[j]) && op_read_as_bf16(shapes[i].kv);
            double tolerance = bf && shapes[i].dim % 32 == 0 ? 4e-2 : 4e-3; /* q and k have no norms here */
            if (shapes[i].kv == DT_F32) tolerance = 1e-5;
            if (shapes[i].kv == DT_F8E4M3) tolerance += 5e-2;
            op_assert_near(got, want, w.s.nodes * row_floats(&w), tolerance, d[j]->ops->name);
        }
        free(want);
        free(got);
        unmake(&w);
        dev_close(ref);
        op_close(d, n_dev);
    }
}

/* What ref computes is what the path gives that a node ends, as a sequence of its own: to the bit, for it sums in order
 * of positions. */
static void on_ref_a_node_is_the_end_of_its_path(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct device *ref = op_open(DEV_REF, NULL, 0);
        struct world   w = make(shapes[i], 100 + i, false), path = make(shapes[i], 1, true);
        struct dev_kv  kv = make_kv(ref, shapes[i]);
        float         *got = room(&w), *want = room(&w);
        run(ref, &w, &kv, true, got);
        memcpy(path.qkv, w.qkv, (size_t)w.s.history * w.width * sizeof *w.qkv);
        for (uint32_t node = 0; node < w.s.nodes; node += 1 + node / 8) {
            path.s.nodes = 0;
            for (uint32_t k = 0; k < w.s.nodes; k++)
                if (w.word[node] >> k & 1)
                    memcpy(path.qkv + (size_t)(w.s.history + path.s.nodes++) * w.width,
                           w.qkv + (size_t)(w.s.history + k) * w.width, w.width * sizeof *w.qkv);
            run(ref, &path, &kv, false, want);
            op_assert_same(got + node * row_floats(&w), want + (path.s.nodes - 1) * row_floats(&w), row_floats(&w),
                           "a path");
        }
        free(got);
        free(want);
        unmake(&w);
        unmake(&path);
        dev_close(ref);
    }
}

static void devices(void (*each)(struct device *, const struct shape *, uint64_t))
{
    size_t step = getenv("OP_SIMD") ? (size_t)test_size(1, 3) : 1; /* an emulated processor */
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i += step) {
        struct device *d[OP_DEVICES_MAX + 1];
        uint32_t       n_dev = op_cpu_devices(d);
        d[n_dev++] = op_open(DEV_REF, NULL, 1);
        for (uint32_t j = 0; j < n_dev; j++) each(d[j], &shapes[i], 100 + i);
        op_close(d, n_dev);
    }
}

/* Each node a child of the one before: the words say what no words say. */
static void chain_on(struct device *d, const struct shape *s, uint64_t seed)
{
    struct world  w = make(*s, seed, true);
    struct dev_kv kv = make_kv(d, *s);
    float        *want = room(&w), *got = room(&w);
    run(d, &w, &kv, false, want);
    memset(kv.base, 0xff, kv.block_bytes * kv.n_block);
    run(d, &w, &kv, true, got);
    op_assert_same(got, want, s->nodes * row_floats(&w), d->ops->name);
    free(want);
    free(got);
    unmake(&w);
}
static void a_chain_has_the_bits_of_rows_without_a_tree(void **state)
{
    (void)state;
    devices(chain_on);
}

/* No number in every slot of a node that it does not see. */
static void spoil(struct dev_kv *kv, const struct world *w, uint64_t word)
{
    for (uint32_t k = 0; k < w->s.nodes; k++) {
        uint32_t at = w->s.history + k, slot = at % w->s.block_tokens;
        if (word >> k & 1) continue;
        for (uint32_t h = 0; h < w->s.n_kv_head; h++)
            for (int v = 0; v < 2; v++) {
                char *row = (char *)kv_key(kv, block_of(kv, at / w->s.block_tokens), LAYER, h, slot, w->s.dim) +
                            (v ? kv_value_bytes(kv, LAYER) : 0);
                memset(row, 0xff, w->s.dim * dtype_bytes(kv->dtype));
                if (kv->dtype == DT_F8E4M3) row[kv8_scale_at(w->s.block_tokens, slot, w->s.dim)] = (char)0xff;
            }
    }
}
/* Nodes alone, each in a step of its own over a pool whose other nodes are no numbers; and in two steps. */
static void alone_on(struct device *d, const struct shape *s, uint64_t seed)
{
    struct world  w = make(*s, seed, false);
    struct dev_kv kv = make_kv(d, *s);
    size_t        bytes = kv.block_bytes * kv.n_block, floats = row_floats(&w);
    float        *want = room(&w), *got = room(&w);
    void         *all = malloc(bytes);
    run(d, &w, &kv, true, want);
    for (size_t i = 0; i < s->nodes * floats; i++) assert_true(isfinite(want[i]));
    memcpy(all, kv.base, bytes);
    for (uint32_t node = 0; node < s->nodes; node += 1 + node / 6) {
        memcpy(kv.base, all, bytes);
        spoil(&kv, &w, w.word[node]);
        step(d, &w, &kv, s->history + node, s->history + node + 1, true, got);
        op_assert_same(got, want + node * floats, floats, "a node alone");
    }
    memset(kv.base, 0xff, bytes);
    uint32_t     half = (s->nodes + 1) / 2;
    struct world first = w;
    first.s.nodes = half;
    run(d, &first, &kv, true, got);
    step(d, &w, &kv, s->history + half, s->history + s->nodes, true, got + half * floats);
    op_assert_same(got, want, s->nodes * floats, "in two steps");
    free(all);
    free(want);
    free(got);
    unmake(&w);
}
static void a_node_has_the_same_bits_whatever_its_siblings_hold(void **state)
{
    (void)state;
    devices(alone_on);
}

/* What follows from the words, from their definition. */
static void words_say_where_rows_are_and_what_they_see(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 4000; i++) {
        uint64_t word = (uint64_t)rng_philox(5, 1, i).x[0] << 32 | rng_philox(5, 1, i).x[1];
        word = (word & ((uint64_t)rng_philox(5, 2, i).x[0] << 32 | rng_philox(5, 2, i).x[1])) >> i % 64;
        uint32_t base = 1 + rng_philox(5, 3, i).x[0] % 300, count = 0, last = base - 1;
        for (uint32_t k = 0; k < 64; k++)
            if (word >> k & 1) count++, last = base + k;
        uint32_t pos = base + count - 1, first = rng_philox(5, 4, i).x[0] % (pos + 1);
        assert_int_equal(tree_base(pos, word), base);
        assert_int_equal(tree_slot(pos, word), last);
        struct tree_sight s = tree_sight_of(pos, word, first);
        assert_int_equal(tree_holes(word), last - base + 1 != count);
        for (uint32_t t = 0; t < 420; t += 1 + rng_philox(6, i, t).x[0] % 60) {
            uint64_t tile = tree_tile(s, t);
            for (uint32_t k = 0; k < 64; k++) {
                uint32_t slot = t + k, at = slot;
                bool     seen = slot < base || (slot < base + 64 && (word >> (slot - base) & 1));
                if (slot >= base && seen) at = base + tree_count(word & tree_ones(slot - base));
                assert_int_equal(tile >> k & 1, seen && at >= first);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_say_where_rows_are_and_what_they_see),
        cmocka_unit_test(every_device_agrees_with_ref),
        cmocka_unit_test(on_ref_a_node_is_the_end_of_its_path),
        cmocka_unit_test(a_chain_has_the_bits_of_rows_without_a_tree),
        cmocka_unit_test(a_node_has_the_same_bits_whatever_its_siblings_hold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
