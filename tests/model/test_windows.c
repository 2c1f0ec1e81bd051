/* Models some of whose layers have a window, with a pool of blocks for those layers alone: what the window has passed
 * is in no table any more and full of NaN, and every logit has the bits that it has with one pool. */
#include "engine/model/model.h"
#include "golden.h"
#include "kvcache/device/pool.h"

enum { ROWS = 96, BT = 8, BLOCKS = 2 * (ROWS / BT), WINDOWS = 16 };

struct alone {
    struct device *d;
    struct model  *m;
    struct batch   b;
};

static void alone_open(struct alone *a, const struct gold *g, enum dev_kind kind, enum dtype kv, uint32_t n_window)
{
    char                  err[512] = "";
    struct dev_cfg        dc = { .kind = kind, .arena_bytes = 64 << 20, .n_thread = 2, .n_rank = 1 };
    struct model_load_cfg lc = { .weight_dtype = DT_COUNT,
                                 .kv_dtype = kv,
                                 .batch_rows_max = ROWS,
                                 .logit_rows_max = ROWS,
                                 .n_block = BLOCKS,
                                 .n_window = n_window,
                                 .block_tokens = BT };
    struct batch_cfg      bc = { .rows_max = ROWS, .seqs_max = 2, .pages_max = 4 * BLOCKS };
    assert_int_equal(dev_open(&dc, &a->d), ST_OK);
    if (model_load(&g->spec, &g->src, &lc, a->d, &a->m, err, sizeof err)) fail_msg("%s: %s", g->dir, err);
    assert_int_equal(batch_init(&a->b, &bc), ST_OK);
}

static void alone_close(struct alone *a)
{
    batch_free(&a->b);
    model_free(a->m);
    dev_close(a->d);
}

/* Bytes that are no number, as KV of any type. */
static void poison(const struct dev_kv *kv, uint32_t block)
{
    memset((char *)kv->base + block * kv->block_bytes, 0xff, kv->block_bytes);
}

/* The logits of rows [at, at + n) go to out [n, vocab]. win NULL: one pool. */
static void alone_rows(struct alone *a, const struct gold *g, const uint32_t *ids, uint32_t at, uint32_t n,
                       const uint32_t *page, const uint32_t *win, float *out)
{
    struct batch *b = &a->b;
    uint32_t      n_page = (at + n - 1) / BT + 1;
    batch_clear(b);
    batch_add(b, ids + at, n, at, page, n_page);
    if (win) batch_window(b, win, n_page);
    for (uint32_t i = 0; i < n; i++) batch_add_lp(b, i, 0, 0);
    model_submit(a->m, b);
    assert_int_equal(model_wait(a->m, b), ST_OK);
    a->d->ops->to_host(a->d, out, model_logits(a->m), (size_t)n * g->spec.vocab * sizeof *out);
}

/* Moves a window over a table: gives blocks to [.., n) and takes those back that ended before the keys of row `at`.
 * Returns how many it took back. */
static uint32_t slide(const struct dev_kv *kv, uint32_t *win, uint32_t window, uint32_t at, uint32_t n)
{
    static uint32_t turn;
    uint32_t        passed = 0, first = at + 1 > window ? (at + 1 - window) / BT : 0;
    bool            taken[WINDOWS] = { false };
    for (uint32_t i = 0; i < first; i++) {
        passed += win[i] != KV_NONE;
        if (win[i] != KV_NONE) poison(kv, win[i]);
        win[i] = KV_NONE;
    }
    for (uint32_t i = 0; i < BLOCKS; i++)
        if (win[i] != KV_NONE) taken[win[i]] = true;
    for (uint32_t i = first; i <= (at + n - 1) / BT; i++) {
        if (win[i] != KV_NONE) continue;
        do turn = (turn + 5) % WINDOWS;
        while (taken[turn]);
        taken[turn] = true;
        win[i] = turn;
        poison(kv, turn);
    }
    return passed;
}

static void same_bits(const char *name, enum dev_kind kind, enum dtype kv)
{
    struct gold            g;
    struct alone           one, two;
    struct model_kv_groups groups;
    gold_open(&g, name);
    assert_true(model_kv_groups(&g.spec, 1, DT_BF16, BT, &groups));
    assert_int_equal(groups.block_bytes + groups.window_bytes, model_kv_block_bytes(&g.spec, 1, DT_BF16, BT));
    alone_open(&one, &g, kind, kv, 0);
    alone_open(&two, &g, kind, kv, WINDOWS);
    const struct dev_kv *pool = model_kv_window(two.m);
    assert_ptr_not_equal(pool, model_kv(two.m));
    assert_ptr_equal(model_kv_window(one.m), model_kv(one.m));

    uint32_t ids[ROWS], page[BLOCKS], win[BLOCKS], passed = 0;
    size_t   row = g.spec.vocab;
    float   *want = malloc(ROWS * row * sizeof *want), *got = malloc(ROWS * row * sizeof *got);
    for (uint32_t i = 0; i < ROWS; i++) ids[i] = (i * 37 + 11) % g.spec.vocab;
    for (uint32_t i = 0; i < BLOCKS; i++) {
        page[i] = BLOCKS - 1 - i;
        win[i] = KV_NONE;
    }
    alone_rows(&one, &g, ids, 0, ROWS, page, NULL, want);
    static const uint32_t chunk[] = { 24, 1, 7, 16, 1, 1, 3, 24, 1, 8 }; /* 86; the others one by one */
    uint32_t              at = 0;
    for (uint32_t i = 0; at < ROWS; i++) {
        uint32_t n = i < sizeof chunk / sizeof *chunk ? chunk[i] : 1;
        passed += slide(pool, win, groups.window, at, n);
        alone_rows(&two, &g, ids, at, n, page, win, got + at * row);
        at += n;
    }
    assert_true(passed >= (ROWS - groups.window) / BT - 1);
    assert_true(BLOCKS - passed < BLOCKS && passed > WINDOWS / 4);
    assert_memory_equal(got, want, ROWS * row * sizeof *want);
    free(want);
    free(got);
    alone_close(&two);
    alone_close(&one);
    gold_close(&g);
}

static void passed_blocks_are_gone_and_no_bit_changes(void **state)
{
    (void)state;
    static const char *const names[] = { "gemma2",     "gemma3",       "gpt-oss",       "cohere2", "olmo3",
                                         "exaone4",    "exaone-moe",   "qwen2",         "llama4",  "gemma4",
                                         "gemma4-moe", "gemma4-small", "gemma4-unified" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        same_bits(names[i], DEV_CPU, DT_COUNT);
        if (i < 2) same_bits(names[i], DEV_CPU, DT_F32);
        if (i < 2) same_bits(names[i], DEV_REF, DT_COUNT);
    }
}

/* A copied tail, as of a prompt that leaves a cached one inside a block, is copied in both pools. */
static void a_copied_block_is_copied_in_both_pools(void **state)
{
    (void)state;
    struct gold  g;
    struct alone a;
    uint32_t     ids[ROWS], page[] = { 0, 1, 2 }, win[] = { 2, 3, 4 }, other[] = { 0, 1, 5 }, other_win[] = { 2, 3, 9 };
    gold_open(&g, "gemma3");
    alone_open(&a, &g, DEV_CPU, DT_COUNT, WINDOWS);
    size_t row = g.spec.vocab;
    float *want = malloc(ROWS * row * sizeof *want), *got = malloc(ROWS * row * sizeof *got);
    for (uint32_t i = 0; i < ROWS; i++) ids[i] = (i * 53 + 5) % g.spec.vocab;
    alone_rows(&a, &g, ids, 0, 3 * BT, page, win, want);
    poison(model_kv_window(a.m), 9);
    poison(model_kv(a.m), 5);
    batch_clear(&a.b);
    batch_add(&a.b, ids + 3 * BT - 2, 2, 3 * BT - 2, other, 3);
    batch_window(&a.b, other_win, 3);
    batch_add_copy(&a.b, (struct kv_copy){ .src = 2, .dst = 5, .win_src = 4, .win_dst = 9 });
    batch_add_lp(&a.b, 0, 0, 0);
    batch_add_lp(&a.b, 1, 0, 0);
    model_submit(a.m, &a.b);
    assert_int_equal(model_wait(a.m, &a.b), ST_OK);
    a.d->ops->to_host(a.d, got, model_logits(a.m), 2 * row * sizeof *got);
    assert_memory_equal(got, want + (3 * BT - 2) * row, 2 * row * sizeof *got);
    free(want);
    free(got);
    alone_close(&a);
    gold_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(passed_blocks_are_gone_and_no_bit_changes),
                                        cmocka_unit_test(a_copied_block_is_copied_in_both_pools) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
