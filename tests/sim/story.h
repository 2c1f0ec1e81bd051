/* story: a small world that a test tells its story in, and the three ways in which every story is told: with one step
 * in flight, and with two on a device that runs a step at once and on one that runs it late. One world at a time; each
 * ends with every answer verified against its closed form, kv_check after each step, and all ledgers at zero. */
#pragma once
#include "sim/world.h"
#include "test.h"

enum { VOCAB = 1000, STEPS_MAX = 200000 };

static struct world  *w;
static struct client *all[WORLD_CLIENTS_MAX]; /* of this world, submitted or not */
static uint32_t       n_all;
static uint32_t       depth = 1;
static bool           lazy;

static inline struct eng_cfg cfg_small(void)
{
    return (struct eng_cfg){ .seqs_max = 8,
                             .batch_tokens_max = 64,
                             .queue_requests_max = 64,
                             .context_max = 256,
                             .vocab = VOCAB,
                             .n_block = 256,
                             .block_tokens = 4,
                             .prefix_cache = true,
                             .preempt_max = 3 };
}

static inline void open_world(struct eng_cfg cfg)
{
    w = calloc(1, sizeof *w);
    n_all = 0;
    world_open_deep(w, &cfg, 32768, depth, lazy);
    assert_non_null(w->e);
}

/* A prompt of n tokens of its own kind, that generates max_tokens */
static inline struct client *client(uint32_t kind, uint32_t n, uint32_t n_choice, uint32_t max_tokens)
{
    uint32_t *p = malloc((n ? n : 1) * sizeof *p);
    for (uint32_t i = 0; i < n; i++) p[i] = (uint32_t)(hash_u64(kind * 100003u + i) % VOCAB);
    struct client *c = client_new(w, p, n, n_choice, max_tokens);
    free(p);
    c->r.s.ignore_eos = true;
    c->r.s.seed = kind;
    c->r.s.temperature = 1;
    return all[n_all++] = c;
}

/* Its sampled token nan_at (1: the first) is NaN, and ends it. */
static inline void expect_nan(struct client *c, uint32_t nan_at)
{
    c->r.s.seed |= (uint64_t)nan_at << 56;
    c->expect_nan = true;
}

static inline void step(void)
{
    w->now_us += 1000;
    world_step(w);
    if (w->fault[0]) fail_msg("%s", w->fault);
}

static inline void finish(void)
{
    while (w->n_open) {
        step();
        assert_true(w->n_step < STEPS_MAX);
    }
    step();
    for (uint32_t i = 0; i < n_all; i++)
        if (all[i]->submitted) world_verify(w, all[i]);
    if (!w->fault[0]) world_ledger(w);
    if (w->fault[0]) fail_msg("%s", w->fault);
}

static inline void close_world(void)
{
    world_close(w);
    for (uint32_t i = 0; i < n_all; i++) client_free(all[i]);
    free(w);
}

static inline int      ended(const struct client *c, uint32_t choice) { return atomic_load(&c->choice[choice].finish); }
static inline uint32_t n_out(const struct client *c, uint32_t choice) { return atomic_load(&c->choice[choice].n_out); }

/* for (int i = 0; i < STORY_WAYS; i++) bad += cmocka_run_group_tests_name(story_way(i), tests, NULL, NULL); */
enum { STORY_WAYS = 3 };
static inline const char *story_way(int i)
{
    static const char *const name[STORY_WAYS] = { "one step in flight", "two steps in flight",
                                                  "two steps in flight, run late" };
    depth = i ? 2 : 1;
    lazy = i == 2;
    return name[i];
}
