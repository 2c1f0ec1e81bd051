/* The first promise, through the whole engine: a request gives the same bits alone, batched, chunked, on a prefix hit,
 * after eviction, after preemption, with any number of threads and of logit rows per round, with one step or two in
 * flight; and with a pool of their own for layers with a window, while it is alone with one pool for all layers.
 * Compared with memcmp, no tolerance.
 *   EXACT_MIXES=N   mixes of requests in all the long runs together (200; 40 where a sanitizer looks on)
 *   EXACT_ALL=N     every instruction set, type of weights, model and number of ranks with each other, N mixes each, instead of a part of it
 *   OP_SIMD=NAMES   of the instruction sets, these alone
 * Over 500 lines: one comparison, and the list of what is compared. */
#include "base/clock.h"
#include "base/rng.h"
#include "engine/step.h"
#include "golden.h"
#include "kvcache/device/seq.h"
#include "op/op_test.h"

/* tests/cuda/test_exact.c includes this file with another device. */
#ifndef EXACT_DEVICE
#define EXACT_DEVICE DEV_CPU
#endif

/* Sanitized builds are 10 to 20 times slower: they look for races and strays, the plain build for differing bits. */
#ifndef EXACT_MIXES
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define EXACT_MIXES 40
#else
#define EXACT_MIXES 200
#endif
#endif
/* Tokens of an answer, at most. */
#ifndef EXACT_OUT
#define EXACT_OUT 24
#endif
/* tests/model/test_poison_windows.c: after every step all free blocks are filled with NaN. */
#ifndef EXACT_POISON
#define EXACT_POISON 0
#endif
static uint64_t n_mixes = EXACT_MIXES;
enum {
    REQS_MAX = 6,
    CHOICES_MAX = 3,
    PROMPT_MAX = 120,
    OUT_MAX = EXACT_OUT,
    TOP_MAX = 3,
    CONTEXT = 256,
    BLOCKS = 96,
    BLOCKS_FEW = 14,
    WINDOWS = 64 /* blocks of layers with a window */
};

/* ---- what is varied from run to run */

/* Types of weights by their names on the command line, each with a type of KV. */
static const struct format {
    const char *name;
    enum dtype  weights, kv; /* COUNT: as the checkpoint has them */
} formats[] = { { "auto", DT_COUNT, DT_COUNT }, { "float32", DT_F32, DT_F32 },     { "float16", DT_F16, DT_F16 },
                { "int8", DT_COUNT, DT_COUNT }, { "int8-g128", DT_COUNT, DT_F32 }, { "w8a8", DT_COUNT, DT_COUNT },
                { "int4", DT_COUNT, DT_COUNT }, { "int4-all", DT_COUNT, DT_BF16 }, { "int4-g128", DT_COUNT, DT_F16 },
                { "w4a8", DT_COUNT, DT_COUNT }, { "fp8", DT_COUNT, DT_F8E4M3 } };

static const char          *isa; /* NULL: the best */
static const struct format *format = formats;

/* ---- a request and what came of it */

struct outcome {
    uint32_t       n_out[CHOICES_MAX], id[CHOICES_MAX][OUT_MAX];
    int            finish[CHOICES_MAX];
    float          logprob[CHOICES_MAX][OUT_MAX];
    struct eng_top top[CHOICES_MAX][OUT_MAX * TOP_MAX];
    float          prompt_logprob[PROMPT_MAX];
    struct eng_top prompt_top[PROMPT_MAX * TOP_MAX];
};
struct ask {
    uint32_t            prompt[PROMPT_MAX], n_prompt, n_choice;
    struct eng_bias     bias[2];
    struct eng_sampling s;
    struct adapter     *adapter; /* or NULL */
    struct outcome      want;    /* alone */
};
/* Adapters that mixes draw from; 0: none. */
enum { ADAPTERS_MAX = 8 };
static struct adapter *adapter[ADAPTERS_MAX];
static uint32_t        n_adapter, n_slot;

struct mix {
    struct ask ask[REQS_MAX];
    uint32_t   n;
};

/* ---- random mixes: what is drawn depends on (seed, mix, place) alone */

static uint32_t draw(uint64_t mix, uint32_t *at, uint32_t n) { return rng_philox(2024, mix, (*at)++).x[0] % n; }

static void mix_make(struct mix *m, uint64_t seed, uint32_t vocab)
{
    uint32_t at = 0, document[PROMPT_MAX];
    memset(m, 0, sizeof *m);
    for (uint32_t i = 0; i < PROMPT_MAX; i++) document[i] = draw(seed, &at, vocab);
    m->n = 2 + draw(seed, &at, REQS_MAX - 1);
    for (uint32_t r = 0; r < m->n; r++) {
        struct ask *a = &m->ask[r];
        a->n_prompt = 1 + draw(seed, &at, PROMPT_MAX);
        a->n_choice = draw(seed, &at, 3) ? 1 : 1 + draw(seed, &at, CHOICES_MAX);
        uint32_t shared = draw(seed, &at, 2) ? draw(seed, &at, a->n_prompt + 1) : 0; /* of the mix's document */
        memcpy(a->prompt, document, shared * sizeof *document);
        for (uint32_t i = shared; i < a->n_prompt; i++) a->prompt[i] = draw(seed, &at, vocab);
        bool hot = draw(seed, &at, 3) > 0;
        a->s = (struct eng_sampling){ .temperature = hot ? 0.5f + 0.1f * (float)draw(seed, &at, 10) : 0,
                                      .top_p = draw(seed, &at, 2) ? 1 : 0.9f,
                                      .min_p = draw(seed, &at, 4) ? 0 : 0.02f,
                                      .repetition = draw(seed, &at, 3) ? 1 : 1.2f,
                                      .presence = draw(seed, &at, 4) ? 0 : 0.5f,
                                      .frequency = draw(seed, &at, 4) ? 0 : 0.3f,
                                      .top_k = draw(seed, &at, 2) ? 0 : 20,
                                      .seed = seed * 100 + r,
                                      .max_tokens = 1 + draw(seed, &at, OUT_MAX),
                                      .ignore_eos = draw(seed, &at, 2),
                                      .logprobs = true,
                                      .n_top = draw(seed, &at, TOP_MAX + 1),
                                      .prompt_logprobs = !draw(seed, &at, 5) };
        a->s.n_prompt_top = a->s.prompt_logprobs ? draw(seed, &at, TOP_MAX + 1) : 0;
        if (!draw(seed, &at, 4)) {
            for (int i = 0; i < 2; i++)
                a->bias[i] = (struct eng_bias){ draw(seed, &at, vocab), (float)draw(seed, &at, 9) - 4 };
            a->s.n_bias = 2;
        }
        if (n_adapter && draw(seed, &at, 4)) a->adapter = adapter[draw(seed, &at, n_adapter)];
    }
}

/* ---- running some of a mix's requests through an engine, by hand */

struct job {
    struct eng_request r;
    struct eng_choice  choice[CHOICES_MAX];
    struct outcome     got;
};

static void job_fill(struct job *j, struct ask *a, struct ring *outbox)
{
    memset(j, 0, sizeof *j);
    a->s.bias = a->bias;
    j->r = (struct eng_request){ .prompt = a->prompt,
                                 .n_prompt = a->n_prompt,
                                 .s = a->s,
                                 .n_choice = a->n_choice,
                                 .choice = j->choice,
                                 .outbox = outbox,
                                 .adapter = a->adapter,
                                 .salt = adapter_salt(a->adapter, (struct kv_salt){ 0 }),
                                 .tenant = ENG_TENANT_ANY };
    if (a->s.prompt_logprobs) {
        j->r.prompt_logprob = j->got.prompt_logprob;
        j->r.prompt_top = j->got.prompt_top;
    }
    for (uint32_t c = 0; c < a->n_choice; c++) {
        j->choice[c].id = j->got.id[c];
        j->choice[c].logprob = j->got.logprob[c];
        j->choice[c].top = j->got.top[c];
    }
}

static struct ring outbox;
static uint64_t    n_hit_tokens, n_preempted, n_borrowed;

static struct rank_team *poisoned; /* whose free blocks are filled with NaN; NULL: nobody's */
static uint64_t          n_poisoned;

static void poison(const struct engine *e)
{
    uint32_t                 n_block;
    const struct kv         *kv = e->kv;
    const struct xfer_ranks *all = rank_team_kv(poisoned, &n_block);
    for (uint32_t r = 0; r < all->n; r++) {
        const struct dev_kv *win = rank_team_window_pool(poisoned, r);
        for (uint32_t i = 0; i < kv->pool.n_free; i++)
            memset((char *)all->rank[r].base + kv->pool.free_id[i] * all->rank[r].bytes, 0xff, all->rank[r].bytes);
        for (uint32_t i = 0; i < kv->win.pool.n_free; i++)
            memset((char *)win->base + kv->win.pool.free_id[i] * win->block_bytes, 0xff, win->block_bytes);
    }
    n_poisoned += kv->win.pool.n_free;
}

/* Submits asks [first, first + n) in one go and steps until all are final; outcomes to jobs. */
static void run(struct engine *e, struct mix *m, uint32_t first, uint32_t n, struct job *jobs)
{
    for (uint32_t i = 0; i < n; i++) {
        job_fill(&jobs[i], &m->ask[first + i], &outbox);
        assert_int_equal(eng_submit(e, &jobs[i].r), ST_OK);
    }
    uint32_t left = n;
    bool     did = true;
    for (uint64_t step = 0; left || did; step++) { /* to the end of the last step in flight: others use the team too */
        assert_true(step < 100000);
        assert_int_equal(eng_step(e, 1000 * step, &did), ST_OK);
        if (poisoned) poison(e);
        for (void *msg; (msg = ring_pop(&outbox));) {
            struct eng_request *r = eng_msg_request(msg);
            if (eng_msg_is_final(msg))
                left--;
            else
                atomic_store(&r->notified, false);
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        struct job *j = &jobs[i];
        assert_int_equal(j->r.status, ST_OK);
        n_hit_tokens += j->r.n_cached;
        n_preempted += j->r.n_preempted;
        for (uint32_t c = 0; c < j->r.n_choice; c++) {
            j->got.n_out[c] = atomic_load(&j->choice[c].n_out);
            j->got.finish[c] = atomic_load(&j->choice[c].finish);
            assert_true(j->got.n_out[c] >= 1);
        }
    }
    assert_int_equal(kv_check(eng_kv(e)), ST_OK);
}

static void same(const struct mix *m, uint64_t seed, const char *how, const struct job *jobs)
{
    for (uint32_t i = 0; i < m->n; i++) {
        const struct outcome *a = &m->ask[i].want, *b = &jobs[i].got;
        if (!memcmp(a, b, sizeof *a)) continue;
        for (uint32_t c = 0; c < m->ask[i].n_choice; c++)
            for (uint32_t t = 0; t < OUT_MAX; t++)
                if (a->id[c][t] != b->id[c][t] || memcmp(&a->logprob[c][t], &b->logprob[c][t], 4))
                    fail_msg(
                        "%s %s, mix %llu %s: request %u choice %u token %u: id %u logprob %.9g alone, id %u logprob %.9g so",
                        isa ? isa : "", format->name, (unsigned long long)seed, how, i, c, t, a->id[c][t],
                        (double)a->logprob[c][t], b->id[c][t], (double)b->logprob[c][t]);
        fail_msg("%s %s, mix %llu %s: request %u differs from itself alone (finish, top or prompt logprobs)",
                 isa ? isa : "", format->name, (unsigned long long)seed, how, i);
    }
}

/* ---- the ways to run */

static uint32_t window;        /* of the teams and engines that are opened next; 0: one pool holds all layers */
static bool     whole_experts; /* on each rank of those teams, of models whose experts divide, instead of slices */

/* Has a team of such ranks whole experts? */
static bool divides(const struct gold *g, uint32_t n_rank)
{
    return whole_experts && g->spec.n_expert && g->spec.n_expert % n_rank == 0;
}

static struct rank_team *team_open(const struct gold *g, uint32_t n_rank, uint32_t n_thread, uint32_t logit_rows,
                                   uint32_t depth)
{
    struct rank_team *t;
    uint32_t          n_block;
    char              err[512] = "";
    struct rank_cfg   cfg = { .n_rank = n_rank,
                              .device = EXACT_DEVICE,
                              .deterministic = true,
                              .n_thread = n_thread,
                              .depth = depth,
                              .simd = isa,
                              .load = { .weight_dtype = format->weights,
                                        .kv_dtype = format->kv,
                                        .expert_parallel = divides(g, n_rank),
                                        .batch_rows_max = 96,
                                        .logit_rows_max = logit_rows,
                                        .n_block = BLOCKS,
                                        .n_window = window ? WINDOWS : 0,
                                        .block_tokens = 16,
                                        .lora_slots = n_slot,
                                        .lora_rank = 64 } };
    model_quant_named(format->name, &cfg.load.quant, &cfg.load.quant_head); /* float32 and float16 are none */
    if (rank_team_create(&g->spec, &g->src, &cfg, &n_block, &t, err, sizeof err)) fail_msg("%s", err);
    return t;
}

static struct engine *engine_open(const struct gold *g, struct rank_team *t, uint32_t chunk, uint32_t n_block)
{
    struct engine    *e;
    struct eng_runner runner = rank_team_runner(t);
    struct eng_cfg    cfg = { .seqs_max = 8,
                              .batch_tokens_max = 96,
                              .prefill_chunk_max = chunk,
                              .queue_requests_max = 16,
                              .queue_tokens_max = 1 << 20,
                              .context_max = CONTEXT,
                              .vocab = g->spec.vocab,
                              .n_block = n_block,
                              .block_tokens = 16,
                              .prefix_cache = true,
                              .n_slot = n_slot,
                              .eos_id = g->spec.eos_id,
                              .n_eos = g->spec.n_eos };
    cfg.window = window;
    if (window) cfg.n_window = n_block < BLOCKS ? eng_windows_min(&cfg, window) : WINDOWS;
    assert_int_equal(eng_create(&cfg, &runner, &e), ST_OK);
    return e;
}

/* The pool and the slots of adapters are shared with other engines, so what this one knows of them is out of date. */
static void forget(struct engine *e)
{
    kv_evict_all(eng_kv(e));
    slots_forget(&e->sched.slots);
}

enum { TEAM, SINGLE, DEEP, TEAMS };
static const struct {
    const char *how;
    uint32_t    chunk, n_block;
    bool        warm; /* a second time, on what the first left in the cache */
    uint32_t    team; /* SINGLE: one thread and one logit row per round; DEEP: two steps in flight */
} ways[] = { { "batched", 0, BLOCKS, true, TEAM },
             { "chunked by 1", 1, BLOCKS, false, TEAM },
             { "chunked by 7", 7, BLOCKS, true, TEAM },
             { "chunked by 16", 16, BLOCKS, false, TEAM },
             { "chunked by 64", 64, BLOCKS, false, TEAM },
             { "preempted", 0, BLOCKS_FEW, false, TEAM },
             { "preempted, chunked by 7", 7, BLOCKS_FEW, false, TEAM },
             { "by one thread", 0, BLOCKS, false, SINGLE },
             { "overlapped", 0, BLOCKS, true, DEEP },
             { "overlapped, chunked by 7", 7, BLOCKS, false, DEEP },
             { "overlapped, preempted", 0, BLOCKS_FEW, false, DEEP } };

static void exact(const char *name, uint32_t n_rank, uint64_t first, uint64_t n_mix)
{
    static struct gold     g;
    static struct mix      m;
    static struct job      jobs[REQS_MAX];
    struct engine         *alone, *plain, *e[ARRAY_N(ways)];
    uint32_t               slots = n_slot;
    struct model_kv_groups groups = { .window = 0 };
    if (!n_mix) n_mix = 1;
    gold_open(&g, name);
    bool              two_pools = model_kv_groups(&g.spec, n_rank, DT_BF16, 16, &groups);
    struct rank_team *whole = two_pools ? team_open(&g, n_rank, 2, 5, 1) : NULL;
    alone = two_pools ? engine_open(&g, whole, 0, BLOCKS) : NULL;
    window = groups.window;
    struct rank_team *team[TEAMS] = { team_open(&g, n_rank, 2, 5, 1), team_open(&g, n_rank, 1, 1, 1),
                                      team_open(&g, n_rank, 2, 5, 2) };
    if (!alone) alone = engine_open(&g, team[TEAM], 0, BLOCKS);
    n_slot = 0; /* what the model alone computes is compared with a server that has no adapters at all */
    struct rank_team *bare = slots ? team_open(&g, n_rank, 2, 5, 1) : NULL;
    plain = slots ? engine_open(&g, bare, 0, BLOCKS) : NULL;
    n_slot = slots;
    for (size_t w = 0; w < ARRAY_N(ways); w++)
        e[w] = engine_open(&g, team[ways[w].team], ways[w].chunk, ways[w].n_block);
    window = 0;
    n_hit_tokens = n_preempted = n_borrowed = 0;
    uint64_t t0 = clock_us(), cold_hits = 0, n_passed = 0;
    for (uint64_t seed = first; seed < first + n_mix; seed++) {
        mix_make(&m, seed, g.spec.vocab);
        poisoned = NULL;
        for (uint32_t i = 0; i < m.n; i++) {
            struct engine *one = plain && !m.ask[i].adapter ? plain : alone;
            forget(one);
            run(one, &m, i, 1, jobs);
            m.ask[i].want = jobs[0].got;
        }
        for (size_t w = 0; w < ARRAY_N(ways); w++) {
            forget(e[w]);
            /* a step in flight may still compute a sequence that has ended, into blocks that are free by then */
            poisoned = EXACT_POISON && ways[w].team != DEEP ? team[ways[w].team] : NULL;
            run(e[w], &m, 0, m.n, jobs);
            same(&m, seed, ways[w].how, jobs);
            if (!ways[w].warm) continue;
            uint64_t before = n_hit_tokens;
            run(e[w], &m, 0, m.n, jobs);
            same(&m, seed, "on a prefix hit", jobs);
            cold_hits += n_hit_tokens - before;
        }
    }
    for (size_t w = 0; w < ARRAY_N(ways); w++) {
        struct kv_stats k;
        kv_stats(eng_kv(e[w]), &k);
        n_borrowed += k.n_borrowed;
        n_passed += k.n_window_passed;
    }
    printf(
        "    %-12s %-9s %-14s TP %u%s, %llu mixes, %llu tokens from the cache, %llu blocks borrowed, %llu preemptions, %.1f s\n",
        isa ? isa : "", format->name, name, n_rank, divides(&g, n_rank) ? " EP" : "", (unsigned long long)n_mix,
        (unsigned long long)n_hit_tokens, (unsigned long long)n_borrowed, (unsigned long long)n_preempted,
        (double)(clock_us() - t0) / 1e6);
    assert_true(n_mix < 4 || cold_hits > 0);
    assert_true(n_mix < 20 || n_preempted > 0); /* a fifth of the runs of four mixes has none */
    assert_true(n_mix < 20 || n_borrowed > 0);
    assert_true(two_pools == (n_passed > 0));
    poisoned = NULL;
    for (size_t w = 0; w < ARRAY_N(ways); w++) eng_free(e[w]);
    eng_free(alone);
    eng_free(plain);
    rank_team_free(bare);
    rank_team_free(whole);
    for (int t = 0; t < TEAMS; t++) rank_team_free(team[t]);
    gold_close(&g);
}

static void llama_in_bf16(void **state)
{
    (void)state;
    exact("llama-linear", 1, 1, n_mixes / 2);
}
static void mixtral_in_bf16(void **state)
{
    (void)state;
    exact("mixtral", 1, 1001, n_mixes / 4);
}
static void mistral_in_f32_with_a_window(void **state)
{
    (void)state;
    exact("mistral", 1, 2001, n_mixes / 8);
}
static void qwen3_with_norms_per_head(void **state)
{
    (void)state;
    exact("qwen3", 1, 3001, n_mixes / 8);
}
static void gemma2_with_soft_caps_and_norms_on_both_sides(void **state)
{
    (void)state;
    exact("gemma2", 1, 6001, n_mixes / 20);
}
static void olmo2_on_two_ranks_with_norms_over_whole_projections(void **state)
{
    (void)state;
    exact("olmo2", 2, 7001, n_mixes / 40);
}
static void gpt_oss_with_sinks_and_biases_of_experts(void **state)
{
    (void)state;
    exact("gpt-oss-mxfp4", 2, 8001, n_mixes / 40);
}
/* As compressed-tensors writes them on one rank, as ModelOpt does on two. */
static void floats_of_4_bits_with_a_scale_for_16(void **state)
{
    (void)state;
    exact("llama3-nvfp4", 1, 15001, n_mixes / 40);
    exact("qwen3-moe-nvfp4", 2, 15101, n_mixes / 40);
}
static void two_ranks(void **state)
{
    (void)state;
    exact("qwen3-moe", 2, 4001, n_mixes / 20);
}

static void glm4_moe_with_groups_a_bias_and_a_shared_expert_on_two_ranks(void **state)
{
    (void)state;
    exact("glm4-moe", 2, 8001, n_mixes / 40);
}
/* Two ranks with half of the experts each: plain ones, with biases and in 4 bits, with groups and shared ones, whose
 * inputs are weighed, beside a dense feed-forward; on other devices than the cpu the first two. */
static void ranks_with_whole_experts(void **state)
{
    (void)state;
    static const char *const models[] = { "qwen3-moe",      "gpt-oss-mxfp4",   "glm4-moe",
                                          "llama4-wrapped", "qwen3-moe-nvfp4", "gemma4-moe" };
    uint32_t                 n = EXACT_DEVICE == DEV_CPU ? ARRAY_N(models) : 2;
    whole_experts = true;
    for (uint32_t i = 0; i < n; i++) exact(models[i], 2, 16001 + 100 * i, n_mixes / 40);
    whole_experts = false;
}
static void qwen2_moe_with_a_gated_shared_expert(void **state)
{
    (void)state;
    exact("qwen2-moe", 1, 9001, n_mixes / 40);
}

/* Models with a pool of windows, in turn on one rank and on two. */
static void freed_blocks_are_full_of_nan_and_no_answer_changes(void **state)
{
    (void)state;
    static const char *const models[] = { "gemma2", "gemma3", "gpt-oss", "cohere2", "olmo3", "exaone4", "llama4" };
    for (uint32_t i = 0; i < ARRAY_N(models); i++) exact(models[i], 1 + i % 2, 13001 + 100 * i, n_mixes / 25);
    assert_true(n_poisoned > n_mixes);
}

/* Adapters of ranks 4 to 64 beside rows of the model alone, on fewer slots than adapters: they come and go between
 * steps.
 */
static void with_adapters(uint32_t n_rank, uint64_t first, uint64_t n_mix)
{
    static const char *const names[ADAPTERS_MAX] = { "lora-r4",  "lora-r8",  "lora-r12", "lora-r16",
                                                     "lora-r20", "lora-r32", "lora-r48", "lora-r64" };
    static struct gold       g;
    gold_open(&g, "llama3");
    for (n_adapter = 0; n_adapter < ADAPTERS_MAX; n_adapter++) {
        char dir[600], err[500] = "";
        snprintf(dir, sizeof dir, "%s/golden/%s", TESTS_DATA, names[n_adapter]);
        if (adapter_load(&g.spec, dir, names[n_adapter], 64, &adapter[n_adapter], err, sizeof err)) fail_msg("%s", err);
    }
    gold_close(&g);
    n_slot = 3;
    exact("llama3", n_rank, first, n_mix);
    n_slot = 0;
    while (n_adapter) adapter_drop(adapter[--n_adapter]);
}
static void eight_adapters_and_the_model_alone_in_one_batch(void **state)
{
    (void)state;
    with_adapters(1, 11001, n_mixes / 8);
}
static void eight_adapters_on_two_ranks(void **state)
{
    (void)state;
    with_adapters(2, 12001, n_mixes / 40);
}

/* A plain model, one with windows, one with sinks too, and one whose layers have heads of several sizes and share keys;
 * on other devices than the cpu the first two. */
static void keys_and_values_of_8_bits(void **state)
{
    (void)state;
    static const struct format kv8 = { "kv-fp8", DT_COUNT, DT_F8E4M3 };
    static const char *const   models[] = { "llama-linear", "gemma3", "gpt-oss", "gemma4" };
    uint32_t                   n = EXACT_DEVICE == DEV_CPU ? ARRAY_N(models) : 2;
    format = &kv8;
    for (uint32_t i = 0; i < n; i++) exact(models[i], 1 + i % 2, 14001 + 100 * i, n_mixes / 40);
    format = formats;
}

#ifndef EXACT_OTHER_DEVICE
/* One mix on one rank and one on two, of models in turn; EXACT_ALL: all of them. scalar, which is slow, has two ranks
 * once. Every other time they have whole experts. */
static void every_type_of_weights_on_every_instruction_set(void **state)
{
    (void)state;
    static const char *const models[] = { "llama-linear",   "mistral",        "qwen3-moe", "qwen3",
                                          "mixtral",        "smollm3-window", "glm4",      "cohere2",
                                          "starcoder2",     "qwen2-moe",      "glm4-moe",  "ernie4-5-moe",
                                          "minimax-m2",     "granite-moe",    "gpt-oss",   "qwen3-vl-moe",
                                          "cohere-qk-norm", "llama4",         "gemma4",    "gemma4-small",
                                          "gemma4-moe",     "gemma4-unified", "olmoe",     "exaone-moe" };
    const char              *all = getenv("EXACT_ALL");
    uint64_t                 n_mix = all ? strtoull(all, NULL, 10) : 1, seed = 5001;
    char                     have[128], *rest = have;
    size_t                   turn = 0;
    dev_cpu_isas(have, sizeof have);
    while (rest) {
        isa = strsep(&rest, ",");
        isa += *isa == ' ';
        if (!op_wants(isa)) continue;
        for (format = formats; format < formats + ARRAY_N(formats); format++, turn++)
            for (uint32_t n_rank = 1; n_rank <= (all || strcmp(isa, "scalar") || format == formats ? 2 : 1); n_rank++)
                for (size_t m = 0; m < (all ? ARRAY_N(models) : 1); m++, seed += n_mix) {
                    whole_experts = n_rank == 2 && turn % 2;
                    exact(models[all ? m : (turn + turn / ARRAY_N(formats) + 2 * n_rank) % ARRAY_N(models)], n_rank,
                          seed, n_mix);
                }
    }
    whole_experts = false;
    isa = NULL;
    format = formats;
    assert_true(turn > 0);
}
#endif

int main(void)
{
    char why[200];
    log_init(EXACT_DEVICE == DEV_CUDA ? LOG_LEVEL_ERROR : LOG_LEVEL_WARN, 2, false);
    if (!dev_serves(EXACT_DEVICE, why, sizeof why)) {
        printf("%s, skipped\n", why);
        return 77;
    }
    if (getenv("EXACT_MIXES")) n_mixes = strtoull(getenv("EXACT_MIXES"), NULL, 10);
    if (ring_init(&outbox, 64)) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama_in_bf16),
        cmocka_unit_test(mixtral_in_bf16),
        cmocka_unit_test(mistral_in_f32_with_a_window),
        cmocka_unit_test(qwen3_with_norms_per_head),
        cmocka_unit_test(gemma2_with_soft_caps_and_norms_on_both_sides),
        cmocka_unit_test(olmo2_on_two_ranks_with_norms_over_whole_projections),
        cmocka_unit_test(gpt_oss_with_sinks_and_biases_of_experts),
        cmocka_unit_test(floats_of_4_bits_with_a_scale_for_16),
        cmocka_unit_test(two_ranks),
        cmocka_unit_test(ranks_with_whole_experts),
        cmocka_unit_test(glm4_moe_with_groups_a_bias_and_a_shared_expert_on_two_ranks),
        cmocka_unit_test(qwen2_moe_with_a_gated_shared_expert),
        cmocka_unit_test(eight_adapters_and_the_model_alone_in_one_batch),
        cmocka_unit_test(eight_adapters_on_two_ranks),
        cmocka_unit_test(keys_and_values_of_8_bits),
#ifndef EXACT_OTHER_DEVICE
        cmocka_unit_test(every_type_of_weights_on_every_instruction_set),
#endif
    };
    const struct CMUnitTest poisons[] = { cmocka_unit_test(freed_blocks_are_full_of_nan_and_no_answer_changes) };
    int failed = EXACT_POISON ? cmocka_run_group_tests(poisons, NULL, NULL) : cmocka_run_group_tests(tests, NULL, NULL);
    ring_free(&outbox);
    return failed;
}
