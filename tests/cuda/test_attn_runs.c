/* Decode of two to eight rows of a sequence at a time, and of trees: against ref; the bits that a row has alone, in a
 * tile of rows and beside any others; whatever tokens hold that it does not see. */
#include "cuda/attn_world.h"

#define BF DT_BF16
#define FH DT_F16
static const struct aw_shape shapes[] = {
    { 4, 1, 128, 16, 0, BF, 0, false, false, DT_F32 },    { 8, 1, 128, 32, 100, FH, 0, false, false, DT_F32 },
    { 2, 2, 128, 64, 0, BF, 0, true, false, DT_F32 },     { 3, 1, 64, 8, 5, BF, 0, false, false, DT_F32 },
    { 5, 1, 80, 16, 0, BF, 0, false, false, DT_F32 },     { 16, 1, 96, 24, 0, BF, 0, false, false, DT_F32 },
    { 2, 1, 256, 16, 0, BF, 0, false, false, DT_F32 },    { 3, 1, 7, 5, 0, FH, 0, false, false, DT_F32 },
    { 17, 1, 32, 1, 64, BF, 0, true, false, DT_F32 },     { 6, 2, 20, 16, 33, BF, 2, false, false, DT_F32 },
    { 4, 2, 64, 16, 96, BF, 0, false, true, DT_F32 },     { 2, 1, 512, 16, 0, BF, 0, false, false, DT_F32 },
    { 4, 1, 512, 8, 33, FH, 0, false, true, DT_F32 },     { 4, 1, 128, 16, 0, FH, 0, false, false, BF },
    { 4, 2, 128, 16, 0, BF, 0, false, false, DT_F8E4M3 }, { 6, 2, 20, 5, 40, FH, 0, true, false, DT_F8E4M3 },
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };
static const uint32_t lens[] = { 1, 333, 64, 130, 65, 190 };
/* runs of 8, 3, 2 and 5 rows, single rows before and behind them, and a chunk of a prompt between */
static const struct aw_part mixed[] = { { 0, 0, 1 },     { 1, 325, 333 }, { 2, 61, 64 },  { 5, 71, 190 },
                                        { 3, 128, 130 }, { 4, 64, 65 },   { 1, 254, 259 } };
enum { N_MIXED = sizeof mixed / sizeof *mixed, N_LENS = sizeof lens / sizeof *lens };

static const char *name_of(const struct aw_world *w, const char *what)
{
    static char text[200];
    snprintf(text, sizeof text, "%s: heads %u/%u dim %u blocks of %u window %u", what, w->s.n_head, w->s.n_kv_head,
             w->s.dim, w->s.block_tokens, w->s.window);
    return text;
}
static const uint64_t chain[] = { 1, 3, 7, 15, 31, 63, 127, 255 };
/* Rows of a sequence from `base` on say that they are drafts: without the fixed split others are not cut. */
static void draft(struct aw_world *w, uint32_t seq, uint32_t base) { w->tree[seq] = chain, w->base[seq] = base; }
static void assert_close(const struct aw_world *w, const uint16_t *got, const float *want, const struct aw_part *p,
                         uint32_t n, const char *what)
{
    aw_assert_close(w, got, want, p, n, name_of(w, what));
}

static void runs_agree_with_ref(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_SHAPES; i++) {
        struct aw_world w = aw_make(shapes[i], lens, N_LENS);
        draft(&w, 1, 325);
        draft(&w, 2, 61);
        draft(&w, 3, 128);
        float *want = aw_want(&w, mixed, N_MIXED);
        for (int fixed = 0; fixed < 2; fixed++) {
            struct aw_device a = aw_open(&w, fixed);
            uint16_t        *got = aw_run(&a, &w, mixed, N_MIXED, false);
            assert_close(&w, got, want, mixed, N_MIXED, "runs");
            free(got);
            dev_close(a.d);
        }
        free(want);
        aw_free(&w);
    }
}

static void with_the_fixed_split_rows_have_the_bits_that_they_have_alone_and_in_tiles(void **state)
{
    (void)state;
    static const struct aw_shape some[] = {
        { 4, 1, 128, 16, 0, BF, 0, false, false, DT_F32 },   { 1, 1, 64, 16, 0, BF, 0, true, false, DT_F32 },
        { 2, 1, 64, 16, 300, BF, 0, true, false, DT_F32 },   { 3, 1, 96, 8, 0, FH, 0, false, false, DT_F32 },
        { 2, 2, 20, 16, 513, BF, 0, false, false, DT_F32 },  { 9, 1, 32, 16, 513, BF, 0, false, true, DT_F32 },
        { 2, 1, 256, 16, 7, BF, 0, false, false, DT_F32 },   { 4, 1, 64, 16, 0, BF, 2, false, false, DT_F8E4M3 },
        { 2, 1, 512, 16, 300, BF, 0, false, false, DT_F32 },
    };
    static const uint32_t len[] = { 700, 40 }, begin[] = { 1, 62, 252, 297, 509, 692 };
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        struct aw_world  w = aw_make(some[i], len, 2);
        struct aw_device a = aw_open(&w, true);
        size_t           width = (size_t)w.s.n_head * w.s.dim;
        struct aw_part   whole = { 0, 0, 700 };
        uint16_t        *want = aw_run(&a, &w, &whole, 1, false);
        for (size_t k = 0; k < sizeof begin / sizeof *begin; k++) {
            uint32_t       n = 2 + (uint32_t)(k + i) % 7, from = begin[k];
            struct aw_part one = { 0, from + n / 2, from + n / 2 + 1 },
                           step[] = { { 0, from, from + n }, { 1, 33, 40 }, { 1, 20, 21 } };
            uint16_t *alone = aw_run(&a, &w, &one, 1, false);
            ct_assert_same(alone, want + one.from * width, width * 2, name_of(&w, "alone"));
            free(alone);
            for (uint32_t others = 1; others <= 3; others += 2) {
                uint16_t *got = aw_run(&a, &w, step, others, false);
                ct_assert_same(got, want + from * width, n * width * 2, name_of(&w, "a run"));
                free(got);
            }
        }
        free(want);
        dev_close(a.d);
        aw_free(&w);
    }
}

/* Rows that the window holds whole, and those behind them in the same run: parts of both lie side by side, and are merged
 * apart, in whichever order warps come. */
static void a_run_that_a_window_parts_has_the_same_bits_on_every_schedule(void **state)
{
    (void)state;
    static const uint32_t len[] = { 310 };
    struct aw_shape       s = { 8, 8, 64, 16, 300, BF, 0, true, false, DT_F32 };
    struct aw_world       w = aw_make(s, len, 1);
    struct aw_device      a = aw_open(&w, true);
    size_t                width = (size_t)s.n_head * s.dim;
    struct aw_part        prompt = { 0, 290, 310 }, run = { 0, 297, 304 };
    uint16_t             *want = aw_run(&a, &w, &prompt, 1, false);
    for (CT_SCHEDULES(schedule)) {
        uint16_t *got = aw_run(&a, &w, &run, 1, false);
        ct_assert_same(got, want + 7 * width, 7 * width * 2, ct_schedule_name(schedule));
        free(got);
    }
    free(want);
    dev_close(a.d);
    aw_free(&w);
}

/* Where the fixed split's chunks become longer, a run is two: of the length 4096, and with windows of theirs. */
static void runs_part_where_chunks_change_their_length(void **state)
{
    (void)state;
    static const struct aw_shape some[] = { { 2, 1, 32, 16, 0, BF, 0, false, false, DT_F32 },
                                            { 2, 1, 32, 16, 4096, BF, 0, false, false, DT_F32 },
                                            { 1, 1, 32, 16, 4098, BF, 0, false, false, DT_F32 } };
    static const uint32_t        len[] = { 4106 };
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        struct aw_world  w = aw_make(some[i], len, 1);
        struct aw_device a = aw_open(&w, true);
        size_t           width = (size_t)w.s.n_head * w.s.dim;
        struct aw_part   prompt = { 0, 4090, 4106 }, run = { 0, 4092, 4100 };
        struct aw_step  *st = malloc(sizeof *st);
        aw_plan(&w, &a.split, &run, 1, false, 0, st);
        assert_int_equal(st->l.n_run, 2);
        assert_int_equal(st->run[1].row, 4); /* 4096 is the last length of chunks of 256 */
        free(st->q);
        free(st);
        uint16_t *want = aw_run(&a, &w, &prompt, 1, false), *got = aw_run(&a, &w, &run, 1, false);
        ct_assert_same(got, want + 2 * width, 8 * width * 2, name_of(&w, "a run"));
        struct aw_part one_more = { 0, 4090, 4097 }; /* a row alone has the longer chunks */
        uint16_t      *few = aw_run(&a, &w, &one_more, 1, false);
        ct_assert_same(few, want, 7 * width * 2, name_of(&w, "a run that ends behind it"));
        free(few);
        for (uint32_t t = 4095; t < 4100; t += 2) {
            struct aw_part one = { 0, t, t + 1 };
            uint16_t      *alone = aw_run(&a, &w, &one, 1, false);
            ct_assert_same(alone, want + (t - 4090) * width, width * 2, name_of(&w, "alone"));
            free(alone);
        }
        free(want);
        free(got);
        dev_close(a.d);
        aw_free(&w);
    }
}

/* Where a window's own chunks are longer than those of rows that it holds whole, and only the kernel parts the run. */
static void a_run_parts_where_a_window_begins_to_move(void **state)
{
    (void)state;
    static const uint32_t len[] = { 4010 };
    struct aw_shape       s = { 2, 1, 32, 16, 4000, BF, 0, false, false, DT_F32 };
    struct aw_world       w = aw_make(s, len, 1);
    struct aw_device      a = aw_open(&w, true);
    size_t                width = (size_t)s.n_head * s.dim;
    struct aw_part        run = { 0, 3996, 4004 };
    uint16_t             *got = aw_run(&a, &w, &run, 1, false);
    for (uint32_t t = run.from; t < run.to; t++) {
        struct aw_part one = { 0, t, t + 1 };
        uint16_t      *alone = aw_run(&a, &w, &one, 1, false);
        ct_assert_same(got + (t - run.from) * width, alone, width * 2, "alone");
        free(alone);
    }
    free(got);
    dev_close(a.d);
    aw_free(&w);
}

/* Without the fixed split: in steps that are cut alike a row has the bits that it has alone, and where it is one chunk
 * those of a tile. */
static void without_it_rows_that_are_cut_alike_have_the_same_bits(void **state)
{
    (void)state;
    static const uint32_t len[] = { 700, 200 };
    struct aw_shape       s = { 4, 2, 64, 16, 0, BF, 0, false, false, DT_F32 };
    struct aw_world       w = aw_make(s, len, 2);
    struct aw_device      a = aw_open(&w, false);
    size_t                width = (size_t)s.n_head * s.dim;
    struct aw_part        whole = { 1, 0, 200 }, run = { 1, 192, 200 }, longer = { 0, 693, 700 };
    struct aw_step       *st = malloc(sizeof *st);
    struct aw_part        prompt = { 0, 600, 700 };
    uint16_t             *tile = aw_run(&a, &w, &prompt, 1, false), *got = aw_run(&a, &w, &longer, 1, false);
    ct_assert_same(got, tile + 93 * width, 7 * width * 2, "the end of a prompt"); /* not cut, for it is no draft */
    free(tile);
    free(got);
    draft(&w, 0, 693);
    draft(&w, 1, 192);
    tile = aw_run(&a, &w, &whole, 1, false), got = aw_run(&a, &w, &run, 1, false);
    ct_assert_same(got, tile + 192 * width, 8 * width * 2, "one chunk");
    free(tile);
    free(got);
    got = aw_run(&a, &w, &longer, 1, false);
    aw_plan(&w, &a.split, &longer, 1, false, 0, st);
    uint32_t chunk = *st->chunk;
    free(st->q);
    for (uint32_t t = 693; t < 700; t++) {
        struct aw_part one = { 0, t, t + 1 };
        aw_plan(&w, &a.split, &one, 1, false, 0, st);
        assert_int_equal(*st->chunk, chunk);
        assert_true(chunk < 693);
        free(st->q);
        uint16_t *alone = aw_run(&a, &w, &one, 1, false);
        ct_assert_same(alone, got + (t - 693) * width, width * 2, "cut alike");
        free(alone);
    }
    free(st);
    free(got);
    dev_close(a.d);
    aw_free(&w);
}

/* Words of a random tree of n nodes in the order of their depth, the first in slot 0 of the tree. */
static void tree_make(uint64_t *word, uint32_t n, uint64_t seed)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t from = i, depth = i ? tree_count(word[i - 1]) : 1;
        while (from > 0 && tree_count(word[from - 1]) + 1 >= depth) from--;
        uint32_t k = rng_philox(seed, 7, i).x[0] % (i - from + (depth == 1));
        word[i] = (k == i - from ? 0 : word[from + k]) | UINT64_C(1) << i;
    }
}

/* Trees of 64 and of 5 nodes beside a run, a single row and a prompt, on every schedule. */
static void trees_agree_with_ref_on_every_schedule(void **state)
{
    (void)state;
    uint64_t big[64], small[5];
    for (size_t i = 0; i < N_SHAPES; i++) {
        tree_make(big, 64, 11 + i);
        tree_make(small, 5, 40 + i);
        struct aw_world             w = aw_make(shapes[i], lens, N_LENS);
        static const struct aw_part p[] = {
            { 1, 269, 333 }, { 2, 60, 64 }, { 3, 125, 130 }, { 5, 30, 31 }, { 4, 0, 65 }
        };
        w.tree[1] = big, w.base[1] = 269;
        w.tree[3] = small, w.base[3] = 125;
        float *want = aw_want(&w, p, 5);
        for (int fixed = 0; fixed < 2; fixed++) {
            struct aw_device a = aw_open(&w, fixed);
            uint16_t        *first = aw_run(&a, &w, p, 5, false);
            assert_close(&w, first, want, p, 5, "trees");
            if (i % 3 == 0)
                for (CT_SCHEDULES(schedule)) {
                    uint16_t *got = aw_run(&a, &w, p, 5, false);
                    ct_assert_same(got, first, a.out_bytes, ct_schedule_name(schedule));
                    free(got);
                }
            free(first);
            dev_close(a.d);
        }
        free(want);
        aw_free(&w);
    }
}

static void a_tree_may_have_nothing_before_it(void **state)
{
    (void)state;
    uint64_t word[8];
    for (size_t i = 0; i < N_SHAPES; i++) {
        tree_make(word, 8, 90 + i);
        struct aw_world             w = aw_make(shapes[i], lens, N_LENS);
        static const struct aw_part p[] = { { 4, 0, 8 }, { 3, 7, 8 } };
        w.tree[4] = word, w.base[4] = 0;
        float *want = aw_want(&w, p, 2);
        for (int fixed = 0; fixed < 2; fixed++) {
            struct aw_device a = aw_open(&w, fixed);
            uint16_t        *got = aw_run(&a, &w, p, 2, false);
            assert_close(&w, got, want, p, 2, "a tree alone");
            free(got);
            dev_close(a.d);
        }
        free(want);
        aw_free(&w);
    }
}

static void a_chain_of_nodes_has_the_bits_of_rows_without_a_tree(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_SHAPES; i++) {
        struct aw_world      w = aw_make(shapes[i], lens, N_LENS);
        struct aw_device     a = aw_open(&w, true);
        const struct aw_part p[] = { { 1, 322, 330 }, { 3, 60, 67 } };
        uint16_t            *want = aw_run(&a, &w, p, 2, false);
        draft(&w, 1, 322);
        draft(&w, 3, 60);
        uint16_t *got = aw_run(&a, &w, p, 2, false);
        ct_assert_same(got, want, a.out_bytes, name_of(&w, "a chain"));
        free(want);
        free(got);
        dev_close(a.d);
        aw_free(&w);
    }
}

/* Token t of sequence 1 becomes no number, on the device too. */
static void spoil(struct aw_world *w, struct aw_device *a, uint32_t t, float value)
{
    for (uint32_t k = w->s.n_head * w->s.dim; k < w->width; k++)
        w->qkv[1][(size_t)t * w->width + k] = k % 2 ? value : -value;
    aw_append(w, 1, t);
    ct_put(a->d, a->kv.base, w->pool, w->pool_bytes);
}

/* A node alone, all other nodes but its own no numbers, has the bits that it has beside them. */
static void a_node_has_the_same_bits_whatever_its_siblings_hold(void **state)
{
    (void)state;
    uint64_t word[20];
    for (size_t i = 0; i < N_SHAPES; i++) {
        tree_make(word, 20, 70 + i);
        for (int fixed = 0; fixed < 2; fixed++) {
            static const uint32_t nodes[] = { 0, 9, 19 };
            uint32_t              base = 313 - (uint32_t)i % 60; /* trees begin anywhere in a tile */
            for (uint32_t k = 0; k < 3; k++) {
                struct aw_world      w = aw_make(shapes[i], lens, N_LENS);
                struct aw_device     a = aw_open(&w, fixed);
                size_t               width = (size_t)w.s.n_head * w.s.dim;
                uint32_t             node = nodes[k];
                const struct aw_part all = { 1, base, base + 20 }, one = { 1, base + node, base + node + 1 };
                w.tree[1] = word, w.base[1] = base;
                uint16_t *want = aw_run(&a, &w, &all, 1, false);
                for (uint32_t t = 0; t < 20; t++)
                    if (!(word[node] >> t & 1)) spoil(&w, &a, base + t, t % 3 ? NAN : INFINITY);
                uint16_t *beside = aw_run(&a, &w, &all, 1, false), *alone = aw_run(&a, &w, &one, 1, false);
                ct_assert_same(beside + node * width, want + node * width, width * 2, name_of(&w, "beside them"));
                if (fixed) ct_assert_same(alone, want + node * width, width * 2, name_of(&w, "alone"));
                free(want);
                free(beside);
                free(alone);
                dev_close(a.d);
                aw_free(&w);
            }
        }
    }
}

/* Rows of a run see what they may of each other: no number in one reaches those behind it, and none before. */
static void a_row_does_not_depend_on_rows_behind_it_or_before_its_window(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_SHAPES; i++)
        for (int value = 0; value < 2; value++) {
            struct aw_world      w = aw_make(shapes[i], lens, N_LENS);
            struct aw_device     a = aw_open(&w, i % 2);
            size_t               width = (size_t)w.s.n_head * w.s.dim;
            const struct aw_part run = { 1, 324, 332 };
            draft(&w, 1, 324);
            uint32_t  bad = w.s.window && w.s.window < 324 && !value ? 327 - w.s.window : 327;
            uint16_t *want = aw_run(&a, &w, &run, 1, false);
            spoil(&w, &a, bad, value ? INFINITY : NAN);
            uint16_t *got = aw_run(&a, &w, &run, 1, false);
            for (uint32_t t = 324; t < 332; t++) {
                uint32_t first = w.s.window && t >= w.s.window ? t - w.s.window + 1 : 0;
                if (w.s.chunked) first = t - t % w.s.window;
                bool sees = bad >= first && bad <= t;
                if (!sees)
                    ct_assert_same(got + (t - 324) * width, want + (t - 324) * width, width * 2,
                                   name_of(&w, "a row that does not see it"));
                for (size_t k = 0; sees && k < width; k++)
                    assert_false(isfinite(aw_float(&w, got[(t - 324) * width + k])));
            }
            free(want);
            free(got);
            dev_close(a.d);
            aw_free(&w);
        }
}

/* Sums that have gone to -0 stay -0 when a part of a chunk is merged that the row does not reach: values are the least
 * negative numbers and then -0, and weights of the former vanish against those of the last tile. */
static void a_part_of_which_a_row_sees_nothing_changes_no_sign(void **state)
{
    (void)state;
    static const uint32_t len[] = { 300 };
    struct aw_shape       s = { 1, 1, 64, 16, 0, BF, 0, false, false, DT_F32 };
    struct aw_world       w = aw_make(s, len, 1);
    struct aw_device      a = aw_open(&w, true);
    const struct aw_part  run = { 0, 252, 260 }, one = { 0, 255, 256 };
    const float          *q = w.qkv[0] + (size_t)255 * w.width;
    for (uint32_t t = 0; t < 256; t++) {
        for (uint32_t k = 0; k < 64; k++) {
            aw_numbers(&w, 0, t, 0, false)[k] = t < 192 ? -4 * q[k] : 4 * q[k];
            aw_numbers(&w, 0, t, 0, true)[k] = t < 192 ? -0x1p-133f : -0.0f;
        }
        aw_append(&w, 0, t);
    }
    ct_put(a.d, a.kv.base, w.pool, w.pool_bytes);
    uint16_t *got = aw_run(&a, &w, &run, 1, false), *alone = aw_run(&a, &w, &one, 1, false);
    assert_int_equal(alone[0], 0x8000);
    ct_assert_same(got + (size_t)3 * 64, alone, 64 * 2, "-0");
    free(got);
    free(alone);
    dev_close(a.d);
    aw_free(&w);
}

/* The step's own keys and values are written by the kernel ahead, which attention overtakes as far as it may: with the
 * first tile of a run, of one row and of a tile of rows, in which some of them lie. */
static void keys_of_its_own_step_are_waited_for(void **state)
{
    (void)state;
    static const struct aw_shape some[] = { { 4, 1, 128, 16, 0, BF, 0, false, false, DT_F32 },
                                            { 2, 1, 512, 16, 0, BF, 0, false, false, DT_F32 },
                                            { 4, 2, 128, 16, 0, BF, 0, false, false, DT_F8E4M3 } };
    static const struct aw_part  parts[] = { { 0, 60, 68 }, { 0, 63, 64 }, { 0, 60, 90 } };
    static const uint32_t        len[] = { 90 };
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        struct aw_world  w = aw_make(some[i], len, 1);
        struct aw_device a = aw_open(&w, true);
        struct aw_step  *st = malloc(sizeof *st);
        struct op_qkv    qkv = { .qkv = a.qkv,
                                 .rope_scale = 1,
                                 .n_head = w.s.n_head,
                                 .n_kv_head = w.s.n_kv_head,
                                 .head_dim = w.s.dim,
                                 .layer = AW_LAYER };
        for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
            uint16_t *want = aw_run(&a, &w, &parts[k], 1, false);
            aw_plan(&w, &a.split, &parts[k], 1, false, 0, st);
            for (uint32_t t = parts[k].from; t < parts[k].to; t++) aw_forget(&w, 0, t);
            for (CT_SCHEDULES_FEW(schedule)) {
                ct_put(a.d, a.kv.base, w.pool, w.pool_bytes);
                aw_upload(&a, &w, st);
                ct_poison(a.d, a.out, a.out_bytes);
                a.d->ops->qkv(a.d, &qkv, &st->on, &a.kv);
                aw_enqueue(&a, &w, st);
                uint16_t *got = aw_result(&a, &w, st);
                ct_assert_same(got, want, a.out_bytes, ct_schedule_name(schedule));
                free(got);
            }
            for (uint32_t t = parts[k].from; t < parts[k].to; t++) aw_append(&w, 0, t);
            ct_put(a.d, a.kv.base, w.pool, w.pool_bytes);
            free(want);
            free(st->q);
        }
        free(st);
        dev_close(a.d);
        aw_free(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_agree_with_ref),
        cmocka_unit_test(with_the_fixed_split_rows_have_the_bits_that_they_have_alone_and_in_tiles),
        cmocka_unit_test(a_run_that_a_window_parts_has_the_same_bits_on_every_schedule),
        cmocka_unit_test(runs_part_where_chunks_change_their_length),
        cmocka_unit_test(without_it_rows_that_are_cut_alike_have_the_same_bits),
        cmocka_unit_test(a_part_of_which_a_row_sees_nothing_changes_no_sign),
        cmocka_unit_test(trees_agree_with_ref_on_every_schedule),
        cmocka_unit_test(a_tree_may_have_nothing_before_it),
        cmocka_unit_test(a_chain_of_nodes_has_the_bits_of_rows_without_a_tree),
        cmocka_unit_test(a_node_has_the_same_bits_whatever_its_siblings_hold),
        cmocka_unit_test(a_row_does_not_depend_on_rows_behind_it_or_before_its_window),
        cmocka_unit_test(keys_of_its_own_step_are_waited_for),
        cmocka_unit_test(a_run_parts_where_a_window_begins_to_move),
    };
    return ct_run(tests);
}
