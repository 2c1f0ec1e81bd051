/* Steps of the CUDA device: what is packed is what was meant, padding is rewritten, a replayed graph and two steps in
 * flight give the bits of one step after the other, a capture that fails costs nothing, and nothing is allocated once
 * steps run.
 * Over 500 lines: one step, whose packing, graphs and depth are tried with the same model and batches. */
#include "cuda/cuda_test.h"
#include "base/log.h"
#include "engine/model/model.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/step.h"
#include "tests_root.h"

/* sanitized builds are much slower */
#if defined(__SANITIZE_ADDRESS__)
enum { STEPS = 90, TURNS = 300 };
#else
enum { STEPS = 260, TURNS = 3000 };
#endif

/* ---------------------------------------------------------------- packing */

enum { ROWS = 40, SEQS = 12, PAGES = 60, LIST = 50, RUNS = 2 * SEQS + ROWS / CUDA_ATTN_RUN };

struct any_step {
    struct dev_step s;
#define ARRAY(name, type, ...) type name[ROWS + SEQS + PAGES + LIST];
    DEV_BATCH_ARRAYS(ARRAY)
    DEV_STEP_ARRAYS(ARRAY)
#undef ARRAY
    uint64_t tree[ROWS];
};

static uint64_t turn, at_draw;
static uint32_t draw(uint32_t n) { return rng_philox(77, turn, at_draw++).x[0] % n; }
static void     fill(uint32_t *a, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) a[i] = draw(1u << 30);
}

/* Rows from `row` on become nodes of a tree whose first slot is p0. */
static void any_tree_make(struct any_step *a, uint32_t row, uint32_t n, uint32_t p0)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t from = draw(i + 1);
        a->tree[row + i] = UINT64_C(1) << i | (from ? a->tree[row + from - 1] : 0);
        a->pos[row + i] = p0 + tree_count(a->tree[row + i]) - 1;
    }
}

static void any_step_make(struct any_step *a, bool decode)
{
    struct dev_step *s = &a->s;
    *s = (struct dev_step){ .b = { .n_seq = decode ? 1 + draw(SEQS) : draw(SEQS + 1) } };
#define VIEW(name, type, size, extra, pack, values, ...) \
    s->b.name = a->name;                                 \
    if ((values) == DEV_ANY) fill((uint32_t *)a->name, LIST * sizeof(type) / 4);
    DEV_BATCH_ARRAYS(VIEW)
#undef VIEW
#define VIEW(name, type, size, extra, pack, values, ...) \
    s->name = a->name;                                   \
    if ((values) == DEV_ANY) fill((uint32_t *)a->name, LIST * sizeof(type) / 4);
    DEV_STEP_ARRAYS(VIEW)
#undef VIEW
    a->row_start[0] = a->page_start[0] = 0;
    for (uint32_t q = 0; q < s->b.n_seq; q++) {
        uint32_t n = 1;
        if (!decode && !draw(2)) n += draw((ROWS - a->row_start[q] - (s->b.n_seq - q) + 1) / 2 + 1);
        uint32_t p0 = draw(200);
        for (uint32_t i = 0; i < n; i++) {
            a->pos[a->row_start[q] + i] = p0 + i;
            a->row_seq[a->row_start[q] + i] = q;
        }
        a->row_start[q + 1] = a->row_start[q] + n;
        a->page_start[q + 1] = a->page_start[q] + draw(PAGES / SEQS + 1);
    }
    s->b.n_row = a->row_start[s->b.n_seq];
    memset(a->tree, 0, sizeof a->tree);
    if (!decode && draw(2)) s->b.tree = a->tree;
    for (uint32_t q = 0; s->b.tree && q < s->b.n_seq; q++)
        if (draw(2)) any_tree_make(a, a->row_start[q], a->row_start[q + 1] - a->row_start[q], draw(200));
    s->b.n_page = a->page_start[s->b.n_seq];
    fill(a->id, s->b.n_row);
    fill(a->page, a->page_start[s->b.n_seq]);
    s->n_sample = decode ? s->b.n_row : draw(s->b.n_seq + 1);
    s->n_lp = decode ? 0 : draw(s->b.n_row + 1);
    s->n_logit = s->n_sample + s->n_lp;
    for (uint32_t i = 0; i < s->n_logit; i++) a->logit_row[i] = draw(s->b.n_row ? s->b.n_row : 1);
    fill(a->lp_id, s->n_lp);
    s->n_hist = draw(LIST);
    s->n_ban = draw(LIST);
    s->n_allow = draw(LIST);
    s->n_bias = draw(LIST);
    s->n_mask = draw(LIST);
    for (uint32_t i = 0; i < s->n_sample; i++)
        a->sample[i] = (struct op_sample_row){ .temperature = (float)i,
                                               .seed = draw(1000),
                                               .n_top = draw(3),
                                               .hist_start = draw(s->n_hist + 1),
                                               .ban_start = draw(s->n_ban + 1),
                                               .allow_start = draw(s->n_allow + 1),
                                               .bias_start = draw(s->n_bias + 1),
                                               .mask_start = draw(s->n_mask + 1) };
    s->n_patch_id = draw(s->b.n_seq + 1);
    s->n_patch_hist = s->n_hist ? draw(s->b.n_seq + 1) : 0;
    for (uint32_t i = 0; i < s->n_patch_id; i++) a->patch_id[i] = (struct dev_patch){ draw(s->b.n_row), draw(SEQS) };
    for (uint32_t i = 0; i < s->n_patch_hist; i++) a->patch_hist[i] = (struct dev_patch){ draw(s->n_hist), draw(SEQS) };
    s->lp_top = draw(3);
}

static void same_u32(const uint32_t *got, const uint32_t *want, uint32_t n, const char *what)
{
    for (uint32_t i = 0; i < n; i++)
        if (got[i] != want[i])
            fail_msg("turn %llu, %s[%u] is %u, should be %u", (unsigned long long)turn, what, i, got[i], want[i]);
}
static void all_are(const uint32_t *got, uint32_t from, uint32_t to, uint32_t want, const char *what)
{
    for (uint32_t i = from; i < to; i++)
        if (got[i] != want)
            fail_msg("turn %llu, padding %s[%u] is %u, should be %u", (unsigned long long)turn, what, i, got[i], want);
}

/* An array of the fixed part: what was meant, then what its line in kernels/arrays.h says of the rest. In words. */
static void same_array(const void *got, const void *want, size_t n, size_t cap, enum dev_pack pack, const char *what)
{
    const uint32_t *g = got, *w = want;
    uint32_t        rest = pack == DEV_PACK_SKIP ? UINT32_MAX : 0;
    if (pack == DEV_PACK_LAST) rest = w[n - 1];
    if (pack == DEV_PACK_POOL || pack == DEV_PACK_OWN) return; /* looked at below */
    same_u32(g, w, (uint32_t)n, what);
    all_are(g, (uint32_t)n, (uint32_t)cap, rest, what);
}

static void an_unpacked_step_equals_the_step_that_was_packed(void **state)
{
    (void)state;
    static struct any_step   a;
    static _Alignas(64) char slab[1 << 16], out[1 << 16];
    static uint32_t          len[RUNS];
    struct cuda_dev          fake = { .arch = 90, .n_sm = 4 };
    for (turn = 0; turn < TURNS; turn++) {
        at_draw = 0;
        bool decode = draw(2);
        any_step_make(&a, decode);
        const struct dev_step *s = &a.s;
        fake.deterministic = draw(2);
        struct cuda_attn_split split = cuda_attn_split(&fake, 4, 2, 32);
        uint32_t               pad = decode ? s->b.n_row + draw(4) : 0, n_seq = s->b.n_seq;
        uint32_t               runs = pad ? 0 : cuda_attn_runs(&split, &s->b);
        struct cuda_shape      sh = { .n = cuda_step_sizes(s, pad),
                                      .tiles = pad ? 0 : cuda_attn_tiles_max(s->b.n_row, n_seq),
                                      .items = cuda_attn_items_max(&split, pad ? pad : n_seq + runs),
                                      .runs = runs,
                                      .padded = pad > 0,
                                      .trees = s->b.tree != NULL };
        struct cuda_place      at = cuda_step_place(&sh);
        struct cuda_back       back = cuda_back_place(&sh.n);
        struct cuda_attn_plan  plan = { .n_part = 800 };
        struct dev_step        on;
        memset(slab, 0xa5, sizeof slab); /* what the step before left */
        size_t bytes = cuda_step_pack(s, &sh, &at, &split, len, slab, &plan);
        for (size_t i = bytes; i < sizeof slab; i++)
            if (slab[i] != (char)0xa5)
                fail_msg("turn %llu: byte %zu is written, %zu are counted", (unsigned long long)turn, i, bytes);
        cuda_step_on(s, &sh, &at, &back, slab, out, &on, &plan);

        assert_int_equal(on.b.n_row, pad ? pad : s->b.n_row);
        assert_int_equal(on.b.n_seq, pad ? pad : n_seq);
        assert_int_equal(on.n_logit, pad ? pad : s->n_logit);
        assert_int_equal(on.n_sample, pad ? pad : s->n_sample);
        assert_int_equal(on.n_lp, s->n_lp);
        assert_int_equal(on.lp_top, s->lp_top);
#define SAME(name, type, size, extra, pack, ...)                                                                      \
    same_array(on.b.name, a.name, (s->b.size + (extra)) * sizeof(type) / 4, (sh.n.size + (extra)) * sizeof(type) / 4, \
               pack, #name);
        DEV_BATCH_ARRAYS(SAME)
#undef SAME
#define SAME(name, type, size, extra, pack, ...)                                                                  \
    same_array(on.name, a.name, (s->size + (extra)) * sizeof(type) / 4, (sh.n.size + (extra)) * sizeof(type) / 4, \
               pack, #name);
        DEV_STEP_ARRAYS(SAME)
#undef SAME
        same_u32(on.b.page, a.page, s->b.n_page, "page");
        assert_true(!on.b.tree == !s->b.tree);
        if (s->b.tree) assert_memory_equal(on.b.tree, a.tree, s->b.n_row * sizeof *a.tree);
        for (uint32_t i = 0; i < s->n_sample; i++) {
            const struct op_sample_row *g = &on.sample[i], *w = &a.sample[i];
            struct op_sample_row        r = *g;
            same_u32(on.hist + g->hist_start, a.hist + w->hist_start, s->n_hist - w->hist_start, "hist");
            same_u32(on.ban + g->ban_start, a.ban + w->ban_start, s->n_ban - w->ban_start, "ban");
            same_u32(on.allow + g->allow_start, a.allow + w->allow_start, s->n_allow - w->allow_start, "allow");
            same_u32(&on.bias[g->bias_start].id, &a.bias[w->bias_start].id, 2 * (s->n_bias - w->bias_start), "bias");
            same_u32(on.mask + g->mask_start, a.mask + w->mask_start, s->n_mask - w->mask_start, "mask");
            r.hist_start = w->hist_start;
            r.ban_start = w->ban_start;
            r.allow_start = w->allow_start;
            r.bias_start = w->bias_start;
            r.mask_start = w->mask_start;
            assert_memory_equal(&r, w, sizeof r);
        }
        for (uint32_t i = s->n_sample; i < on.n_sample; i++) assert_int_equal(on.sample[i].n_hist, UINT32_MAX);

        /* patches, done to what was packed as the kernel would, name the entries that were meant */
        const struct dev_patch *pid = (const void *)(slab + at.patch_id), *ph = (const void *)(slab + at.patch_hist);
        for (uint32_t i = 0; i < s->n_patch_id; i++) assert_memory_equal(&pid[i], &a.patch_id[i], sizeof *pid);
        for (uint32_t i = 0; i < s->n_patch_hist; i++) {
            assert_int_equal(ph[i].from, a.patch_hist[i].from);
            assert_int_equal(on.hist[ph[i].at], a.hist[a.patch_hist[i].at]);
        }
        for (uint32_t i = s->n_patch_id; i < sh.n.n_patch_id; i++) assert_int_equal(pid[i].at, UINT32_MAX);
        for (uint32_t i = s->n_patch_hist; i < sh.n.n_patch_hist; i++) assert_int_equal(ph[i].at, UINT32_MAX);

        /* attention: the plan of the step as it is, in the slab; a padded launch covers the bucket */
        uint32_t               l[6][512], len2[RUNS];
        struct cuda_attn_run   run[RUNS];
        struct cuda_attn_lists want = { l[0],         l[1], l[2], l[3],       l[4],
                                        l[5],         SEQS, 512,  .run = run, .n_run_pad = runs,
                                        .n_part = 800 };
        cuda_attn_fill(&split, &s->b, len2, &want);
        assert_int_equal(plan.n_decode, pad ? pad : want.n_decode);
        assert_int_equal(plan.n_item, pad ? sh.items : want.n_item);
        assert_int_equal(plan.n_tile, want.n_tile);
        assert_true(plan.n_run == want.n_run && plan.n_run_row == want.n_run_row);
        assert_true(plan.run_most == want.run_most && plan.run_spread == want.run_spread);
        assert_memory_equal(plan.run, run, want.n_run * sizeof *run);
        assert_int_equal(*plan.chunk, *want.chunk);
        same_u32(plan.item_seq, want.item_seq, want.n_item, "item_seq");
        same_u32(plan.item_chunk, want.item_chunk, want.n_item, "item_chunk");
        same_u32(plan.seq_item, want.seq_item, want.n_decode + 1, "seq_item");
        same_u32(plan.tile_seq, want.tile_seq, want.n_tile, "tile_seq");
        same_u32(plan.tile_row, want.tile_row, want.n_tile, "tile_row");
        all_are(plan.item_seq, want.n_item, sh.items, UINT32_MAX, "item_seq");
        all_are(plan.seq_item, want.n_decode, on.b.n_seq + 1, want.n_item, "seq_item");
    }
}

/* Where arrays lie follows from the shape: two steps of one bucket differ in the pool alone. */
static void a_bucket_has_one_place_for_everything(void **state)
{
    (void)state;
    struct cuda_shape sh = {
        .n = { .n_row = 8, .n_seq = 8, .n_logit = 8, .n_sample = 8, .n_patch_id = 8, .n_patch_hist = 8 },
        .items = 40,
        .padded = true
    };
    struct cuda_place a = cuda_step_place(&sh), b = cuda_step_place(&sh);
    assert_memory_equal(&a, &b, sizeof a);
    struct cuda_back k = cuda_back_place(&sh.n);
    assert_int_equal(k.id, 0); /* the patches of the next step count on it */
    assert_int_equal(cuda_back_place(&(struct dev_sizes){ .n_sample = 3, .n_lp = 20 }).id, 0);
}

/* ---------------------------------------------------------------- a small model under a script of joins and leaves */

static uint32_t steps(void) { return ct_quick() && STEPS > 90 ? 90 : STEPS; }
enum { SEQ_ALL = 40, TOKENS = 48, LIVE_MAX = 12, BLOCK = 16, SEQ_BLOCKS = TOKENS / BLOCK, LOGIT_ROWS = 8 };

struct told { /* of one drawn token */
    uint32_t id, rank, top_id[3];
    float    logprob, top[3];
};
struct seq {
    uint32_t join, n_prompt, token[TOKENS], n_token, n_known; /* tokens scheduled; read back */
    uint32_t last_step, last_sample;                          /* where the newest token is drawn */
};
struct outcome {
    struct told told[SEQ_ALL][TOKENS];
    uint32_t    n[SEQ_ALL], n_replay, n_record, n_eager;
};
struct test_flight { /* one submitted step and whose samples it draws */
    struct batch b;
    uint32_t     who[LIVE_MAX], at[LIVE_MAX], n;
};

static struct model_spec spec;
static struct source     src;
static char              src_dir[600];
static uint32_t          n_words[3]; /* by enum dev_graph */
static enum dev_graph (*true_begin)(struct device *d, const struct dev_step *s, struct dev_step *on);
static const char    *fail_in_capture; /* a call to fail once a graph is being captured */
static struct dev_ops counting;

static enum dev_graph count_begin(struct device *d, const struct dev_step *s, struct dev_step *on)
{
    enum dev_graph g = true_begin(d, s, on);
    n_words[g]++;
#ifdef CUDA_EMU
    if (g == DEV_RECORD && fail_in_capture) {
        emu_fail_next(fail_in_capture, cudaErrorNotSupported);
        fail_in_capture = NULL;
    }
#endif
    return g;
}

static uint32_t script(uint32_t a, uint32_t b, uint32_t n) { return rng_philox(4, a, b).x[0] % n; }

static void plan_rows(struct test_flight *f, struct seq *all, uint32_t step, uint32_t i)
{
    struct seq   *q = &all[i];
    struct batch *b = &f->b;
    uint32_t      page[SEQ_BLOCKS], first = q->n_token == q->n_prompt ? 0 : q->n_token - 1, n = q->n_token - first;
    for (uint32_t k = 0; k < SEQ_BLOCKS; k++) page[k] = i * SEQ_BLOCKS + k;
    bool     unknown = q->n_known < q->n_token;
    uint32_t row = batch_add(b, q->token + first, n, first, page, (q->n_token + BLOCK - 1) / BLOCK) + n - 1;
    if (unknown) { /* the newest token is still on the device */
        assert_int_equal(q->last_step + 1, step);
        b->id[row] = 12345; /* whatever */
        b->patch_id[b->n_patch_id++] = (struct dev_patch){ row, q->last_sample };
    }
    struct op_sample_row *r = batch_add_sample(b, row);
    *r = (struct op_sample_row){ .temperature = i % 3 ? 0.8f : 0,
                                 .top_p = i % 4 ? 1 : 0.9f,
                                 .top_k = i % 5 ? 0 : 20,
                                 .repetition = i % 2 ? 1.3f : 1,
                                 .seed = i,
                                 .counter = q->n_token,
                                 .n_top = i % 7 == 3 ? 3 : 0 };
    if (i % 2) {
        r->hist_start = b->n_hist;
        r->n_prompt = q->n_prompt;
        r->n_hist = q->n_token;
        memcpy(b->hist + b->n_hist, q->token, q->n_token * sizeof(uint32_t));
        b->n_hist += q->n_token;
        if (unknown) {
            b->hist[b->n_hist - 1] = 54321;
            b->patch_hist[b->n_patch_hist++] = (struct dev_patch){ b->n_hist - 1, q->last_sample };
        }
    }
    if (i % 6 == 1) {
        r->ban_start = b->n_ban;
        r->n_ban = 2;
        b->ban[b->n_ban++] = i;
        b->ban[b->n_ban++] = 5;
    }
    if (i % 6 == 2) {
        r->allow_start = b->n_allow;
        r->n_allow = 9;
        for (uint32_t k = 0; k < 9; k++) b->allow[b->n_allow++] = 3 * i + k;
    }
    if (i % 6 == 3) {
        r->bias_start = b->n_bias;
        r->n_bias = 1;
        b->bias[b->n_bias++] = (struct op_bias){ i, 2.5f };
    }
    if (i % 6 == 4) {
        r->mask_start = b->n_mask;
        r->n_mask = 2;
        b->mask[b->n_mask++] = 0x5a5a5a5a + i;
        b->mask[b->n_mask++] = UINT32_MAX;
    }
    f->who[f->n] = i;
    f->at[f->n] = q->n_token;
    q->last_step = step;
    q->last_sample = f->n++;
    q->n_token++;
}

static void read_back(struct model *m, struct test_flight *f, struct seq *all, struct outcome *o)
{
    assert_int_equal(model_wait(m, &f->b), ST_OK);
    for (uint32_t k = 0; k < f->n; k++) {
        uint32_t     i = f->who[k], t = f->at[k];
        struct told *w = &o->told[i][t];
        *w = (struct told){ .id = f->b.out.id[k], .rank = f->b.out.rank[k], .logprob = f->b.out.logprob[k] };
        for (uint32_t j = 0; j < f->b.sample[k].n_top; j++) {
            w->top_id[j] = f->b.out.top_id[k * OP_SAMPLE_TOP_MAX + j];
            w->top[j] = f->b.out.top_logprob[k * OP_SAMPLE_TOP_MAX + j];
        }
        assert_true(w->id < spec.vocab);
        all[i].token[t] = w->id;
        all[i].n_known = t + 1;
        o->n[i] = t + 1;
    }
}

/* The device and the model of one test. dc: what it differs in from the plain device; n_block: of the pool. */
struct rig {
    struct device        *d;
    struct model         *m;
    struct model_load_cfg lc;
    size_t                free_before; /* bytes of the device before the model was loaded */
};

static const struct batch_cfg rig_batch = { .rows_max = 64,
                                            .seqs_max = LIVE_MAX,
                                            .pages_max = LIVE_MAX * SEQ_BLOCKS,
                                            .hist_max = LIVE_MAX * TOKENS,
                                            .ban_max = 64,
                                            .allow_max = 128,
                                            .bias_max = 16,
                                            .mask_max = 64 };

static void rig_open(struct rig *r, struct dev_cfg dc, uint32_t n_block)
{
    char err[512] = "";
    dc.kind = DEV_CUDA;
    dc.arena_bytes = 96 << 20;
    dc.n_rank = 1;
    r->lc = (struct model_load_cfg){ .weight_dtype = DT_COUNT,
                                     .kv_dtype = DT_COUNT,
                                     .batch_rows_max = 64,
                                     .logit_rows_max = LOGIT_ROWS,
                                     .n_block = n_block,
                                     .block_tokens = BLOCK,
                                     .step = rig_batch,
                                     .n_thread = 1 };
    assert_int_equal(dev_open(&dc, &r->d), ST_OK);
    r->free_before = r->d->ops->free_bytes(r->d);
    if (model_load(&spec, &src, &r->lc, r->d, &r->m, err, sizeof err)) fail_msg("%s", err);
}

static void rig_close(struct rig *r)
{
    model_free(r->m);
    dev_close(r->d);
}

struct how {
    bool        eager, deterministic, two, lazy;
    bool        early;  /* kernels run up to their wait before the one ahead of them */
    const char *fail;   /* a call that fails while capturing */
    const char *refuse; /* a call that is refused in every fifth step */
};
static void run(struct how how, struct outcome *o)
{
    static struct seq         all[SEQ_ALL];
    static struct test_flight flight[2];
    struct rig                r;
    memset(o, 0, sizeof *o);
    memset(all, 0, sizeof all);
    memset(n_words, 0, sizeof n_words);
    rig_open(&r, (struct dev_cfg){ .eager = how.eager, .deterministic = how.deterministic, .pdl = how.two },
             SEQ_ALL * SEQ_BLOCKS);
    struct device    *d = r.d;
    struct model     *m = r.m;
    struct model_plan plan;
    assert_int_equal(model_plan(&spec, &r.lc, d, &plan), ST_OK);
    assert_true(r.free_before - d->ops->free_bytes(d) <=
                plan.weight_bytes + plan.work_bytes + r.lc.n_block * plan.block_bytes);
    counting = *d->ops;
    true_begin = counting.step_begin;
    counting.step_begin = count_begin;
    d->ops = &counting;
    fail_in_capture = how.fail;
    for (int i = 0; i < 2; i++) assert_int_equal(batch_init(&flight[i].b, &rig_batch), ST_OK);
    for (uint32_t i = 0; i < SEQ_ALL; i++) {
        all[i].join = i < 3 ? 0 : script(i, 1, steps() - 30);
        all[i].n_prompt = 1 + script(i, 2, 20);
        for (uint32_t k = 0; k < all[i].n_prompt; k++) all[i].token[k] = script(i, 100 + k, spec.vocab);
        all[i].n_token = all[i].n_known = all[i].n_prompt;
    }
#ifdef CUDA_EMU
    size_t held = 0;
    emu_set_lazy(how.lazy);
    struct emu_schedule early = emu_schedule_at(EMU_SCHEDULES - 1);
    if (how.early) emu_set_schedule(&early);
#endif
    uint32_t n_submitted = 0, n_waited = 0;
    for (uint32_t step = 0; step < steps(); step++) {
        struct test_flight *f = &flight[n_submitted % 2];
        batch_clear(&f->b);
        f->n = 0;
        /* decodes first, then at most two prompts; now and then somebody sits a step out */
        for (uint32_t pass = 0; pass < 2; pass++)
            for (uint32_t i = 0, joined = 0; i < SEQ_ALL && f->n < LIVE_MAX; i++) {
                struct seq *q = &all[i];
                bool        fresh = q->n_token == q->n_prompt, over = q->n_token - q->n_prompt > 4 + script(i, 3, 22);
                if (q->join > step || over || fresh != pass || (!fresh && !script(i, 1000 + step, 9))) continue;
                if (q->n_known < q->n_token && q->last_step + 1 != step)
                    continue; /* its token is not read yet, and no patch reaches it */
                if (fresh && joined++ == 2) break;
                plan_rows(f, all, step, i);
            }
        for (uint32_t i = 0; i < SEQ_ALL; i++)
            if (all[i].n_known < all[i].n_token && all[i].last_step < step && !how.two) assert_true(false);
#ifdef CUDA_EMU
        /* the first launches of a step up to the sampler's; one behind the last would fall into its second run */
        if (how.refuse && script(4711, step, 5) == 0)
            emu_fail_after(how.refuse, how.eager ? script(4712, step, 20) : 0, cudaErrorLaunchOutOfResources);
#endif
        model_submit(m, &f->b);
        n_submitted++;
        while (n_waited + (how.two ? 1 : 0) < n_submitted) read_back(m, &flight[n_waited++ % 2], all, o);
#ifdef CUDA_EMU
        if (step == 1) held = emu_bytes_held(); /* the first step gives the buffers of loading back */
#endif
    }
    while (n_waited < n_submitted) read_back(m, &flight[n_waited++ % 2], all, o);
#ifdef CUDA_EMU
    assert_int_equal(emu_bytes_held(), held);
    emu_set_lazy(false);
    emu_set_schedule(NULL);
#endif
    o->n_eager = n_words[DEV_EAGER];
    o->n_record = n_words[DEV_RECORD];
    o->n_replay = n_words[DEV_REPLAY];
    for (int i = 0; i < 2; i++) batch_free(&flight[i].b);
    rig_close(&r);
}

static void assert_alike(const struct outcome *got, const struct outcome *want, const char *what)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < SEQ_ALL; i++) {
        if (got->n[i] != want->n[i])
            fail_msg("%s: sequence %u has %u tokens, should have %u", what, i, got->n[i], want->n[i]);
        for (uint32_t t = 0; t<want->n[i]; n += want->told[i][t++].rank> 0)
            if (memcmp(&got->told[i][t], &want->told[i][t], sizeof(struct told)))
                fail_msg("%s: sequence %u token %u: id %u logprob %a rank %u, should be id %u logprob %a rank %u", what,
                         i, t, got->told[i][t].id, (double)got->told[i][t].logprob, got->told[i][t].rank,
                         want->told[i][t].id, (double)want->told[i][t].logprob, want->told[i][t].rank);
    }
    printf("    %s: %u tokens alike; %u steps eager, %u recorded, %u replayed\n", what, n, got->n_eager, got->n_record,
           got->n_replay);
}

static struct outcome plain, other;

static void a_replay_gives_the_bits_of_eager(void **state)
{
    (void)state;
    run((struct how){ .eager = true, .deterministic = true }, &plain);
    assert_int_equal(plain.n_record + plain.n_replay, 0);
    run((struct how){ .deterministic = true }, &other);
    assert_true(other.n_record >= 3);
    assert_true(other.n_replay > steps() / 6);
    assert_alike(&other, &plain, "replayed");
}

static void two_in_flight_give_the_bits_of_one_at_a_time(void **state)
{
    (void)state;
    if (!plain.n_eager) run((struct how){ .eager = true, .deterministic = true }, &plain);
    run((struct how){ .eager = true, .deterministic = true, .two = true }, &other);
    assert_alike(&other, &plain, "two in flight, eager");
    run((struct how){ .deterministic = true, .two = true }, &other);
    assert_alike(&other, &plain, "two in flight, replayed");
#ifdef CUDA_EMU
    run((struct how){ .deterministic = true, .two = true, .lazy = true }, &other);
    assert_alike(&other, &plain, "two in flight, on a device that lags");
    run((struct how){ .eager = true, .deterministic = true, .two = true, .early = true }, &other);
    assert_alike(&other, &plain, "kernels that begin early, eager");
    run((struct how){ .deterministic = true, .two = true, .early = true }, &other);
    assert_alike(&other, &plain, "kernels that begin early, replayed");
#endif
}

static void without_the_exact_mode_one_and_two_in_flight_agree_too(void **state)
{
    (void)state;
    static struct outcome one;
    run((struct how){ .eager = false }, &one);
    run((struct how){ .two = true }, &other);
    assert_alike(&other, &one, "two in flight, not deterministic");
}

#ifdef CUDA_EMU
static void a_capture_that_fails_costs_nothing(void **state)
{
    (void)state;
    static const char *const call[] = { "launch", "cudaStreamEndCapture", "cudaGraphInstantiate" };
    if (!plain.n_eager) run((struct how){ .eager = true, .deterministic = true }, &plain);
    for (size_t i = 0; i < sizeof call / sizeof *call; i++) {
        run((struct how){ .deterministic = true, .two = true, .fail = call[i] }, &other);
        assert_int_equal(other.n_record, 1);
        assert_int_equal(other.n_replay, 0);
        assert_alike(&other, &plain, call[i]);
        emu_reset();
    }
    emu_fail_next("cudaStreamBeginCapture", cudaErrorNotSupported);
    run((struct how){ .deterministic = true }, &other);
    assert_int_equal(other.n_record + other.n_replay, 0);
    assert_alike(&other, &plain, "cudaStreamBeginCapture");
    emu_reset();
}

static void H2_a_launch_that_is_refused_is_made_again(void **state)
{
    (void)state;
    if (!plain.n_eager) run((struct how){ .eager = true, .deterministic = true }, &plain);
    run((struct how){ .eager = true, .deterministic = true, .two = true, .refuse = "launch" }, &other);
    assert_true(other.n_eager > steps() + steps() / 10); /* begun again */
    assert_alike(&other, &plain, "launches refused");
    emu_reset();
    run((struct how){ .deterministic = true, .two = true, .refuse = "cudaGraphLaunch" }, &other);
    assert_true(other.n_replay > steps() / 6);
    assert_alike(&other, &plain, "graphs refused");
    emu_reset();
}

/* Twice in one step: it says so, and the next one is as if nothing had been. */
static void H2_a_step_that_is_refused_twice_ends_alone(void **state)
{
    (void)state;
    struct rig   r;
    struct batch b;
    rig_open(&r, (struct dev_cfg){ .deterministic = true }, 8);
    assert_int_equal(batch_init(&b, &rig_batch), ST_OK);
    uint32_t id[] = { 5, 6, 7 }, block[] = { 1 }, first = 0;
    for (int turn_no = 0; turn_no < 6; turn_no++) {
        batch_clear(&b);
        uint32_t row = batch_add(&b, id, 3, 0, block, 1);
        *batch_add_sample(&b, row + 2) = (struct op_sample_row){ .top_p = 1, .repetition = 1 };
        bool refuse = turn_no % 2 == 1;
        if (refuse) {
            emu_fail_after("launch", (uint32_t)(turn_no * 3), cudaErrorLaunchOutOfResources);
            emu_fail_after("launch", (uint32_t)turn_no, cudaErrorInvalidConfiguration);
        }
        model_submit(r.m, &b);
        assert_int_equal(model_wait(r.m, &b), refuse ? ST_STEP : ST_OK);
        if (!turn_no) first = b.out.id[0];
        if (!refuse) assert_int_equal(b.out.id[0], first);
    }
    batch_free(&b);
    rig_close(&r);
    emu_reset();
}

/* An error that does not go away is not taken for one that does; a broken GPU is told from a broken kernel. */
static void H4_a_lost_gpu_is_told_from_a_failing_kernel(void **state)
{
    (void)state;
    static const struct {
        cudaError_t e;
        enum status want;
    } at[] = { { cudaErrorIllegalAddress, ST_DEVICE },
               { cudaErrorECCUncorrectable, ST_BROKEN },
               { cudaErrorLaunchFailure, ST_DEVICE } };
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        struct rig   r;
        struct batch b;
        uint32_t     id[] = { 5, 6, 7 }, block[] = { 1 };
        rig_open(&r, (struct dev_cfg){ 0 }, 8);
        assert_int_equal(batch_init(&b, &rig_batch), ST_OK);
        batch_add(&b, id, 3, 0, block, 1);
        emu_fail_after("launch", 4, at[i].e);
        log_init(LOG_LEVEL_ERROR, -1, false);
        model_submit(r.m, &b);
        assert_int_equal(model_wait(r.m, &b), at[i].want);
        model_submit(r.m, &b); /* and stays lost */
        assert_int_equal(model_wait(r.m, &b), at[i].want);
        log_init(LOG_LEVEL_ERROR, 2, false);
        batch_free(&b);
        rig_close(&r);
        emu_reset();
    }
}
#endif

static void a_step_takes_exactly_the_planned_memory(void **state)
{
    (void)state;
    for (turn = 0; turn < 40; turn++) {
        at_draw = 0;
        struct device    *d = ct_open(turn & 1 ? DT_F16 : DT_BF16, 256 << 20);
        struct dev_limits lim = { .rows_max = 1 + draw(600),
                                  .pages_max = 1 + draw(5000),
                                  .hist_max = 1 + draw(5000),
                                  .ban_max = 1 + draw(100),
                                  .allow_max = 1 + draw(9000),
                                  .bias_max = 1 + draw(100),
                                  .mask_max = 1 + draw(5000),
                                  .vocab = 100 + draw(50000),
                                  .n_head = 8,
                                  .n_kv_head = 2,
                                  .head_dim = 64,
                                  .hidden = 256 };
        lim.seqs_max = 1 + draw(lim.rows_max < 80 ? lim.rows_max : 80);
        lim.logit_rows_max = 1 + draw(80);
        if (draw(2)) {
            lim.n_expert = 8;
            lim.top_k = 2;
            lim.inter = 128;
        }
        size_t before = d->ops->free_bytes(d);
        assert_int_equal(d->ops->step_init(d, &lim), ST_OK);
        assert_int_equal(before - d->ops->free_bytes(d), dev_step_bytes(d, &lim));
        dev_close(d);
    }
}

int main(void)
{
    char err[512] = "";
    log_init(LOG_LEVEL_ERROR, 2, false);
    snprintf(src_dir, sizeof src_dir, "%s/golden/qwen3", TESTS_DATA);
    src = (struct source){ .dir = src_dir };
    if (model_spec_load(&src, &spec, err, sizeof err)) {
        printf("%s\n", err);
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_unpacked_step_equals_the_step_that_was_packed),
        cmocka_unit_test(a_bucket_has_one_place_for_everything),
        cmocka_unit_test(a_step_takes_exactly_the_planned_memory),
        cmocka_unit_test(a_replay_gives_the_bits_of_eager),
        cmocka_unit_test(two_in_flight_give_the_bits_of_one_at_a_time),
        cmocka_unit_test(without_the_exact_mode_one_and_two_in_flight_agree_too),
#ifdef CUDA_EMU
        cmocka_unit_test(a_capture_that_fails_costs_nothing),
        cmocka_unit_test(H2_a_launch_that_is_refused_is_made_again),
        cmocka_unit_test(H2_a_step_that_is_refused_twice_ends_alone),
        cmocka_unit_test(H4_a_lost_gpu_is_told_from_a_failing_kernel),
#endif
    };
    int failed = ct_run(tests);
    model_spec_free(&spec);
    return failed;
}
