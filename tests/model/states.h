/* states: runs prompts of a model that pools through an engine, to the state of each.   Thread: one. */
#pragma once
#include "finish.h"
#include "golden.h"

enum { STATES_ASK_MAX = 8, DIM_MAX = 64, CONTEXT = 256, BLOCKS = 96 };

static inline enum eng_state_of rows_of(enum model_pool pool)
{
    if (pool == POOL_MEAN) return ENG_STATE_SUM;
    return pool == POOL_CLS ? ENG_STATE_FIRST : ENG_STATE_LAST;
}

static struct ring outbox;

struct ask {
    uint32_t prompt[GOLD_TOKENS_MAX], n;
    double   want[DIM_MAX], got[DIM_MAX];
    uint32_t n_cached;
};

static inline struct rank_team *team_open(const struct gold *g, enum dev_kind device, uint32_t n_rank,
                                          uint32_t logit_rows, uint32_t depth, enum dtype type)
{
    struct rank_team *t;
    uint32_t          n_block;
    char              err[512] = "";
    uint32_t          more = g->spec.pool == POOL_MEAN ? 96 : 8;
    struct rank_cfg   cfg = { .n_rank = n_rank,
                              .device = device,
                              .deterministic = true,
                              .n_thread = 2,
                              .depth = depth,
                              .load = { .weight_dtype = type,
                                        .kv_dtype = type == DT_F16 ? DT_COUNT : type,
                                        .batch_rows_max = 96,
                                        .logit_rows_max = logit_rows,
                                        .n_block = BLOCKS,
                                        .block_tokens = 16,
                                        .step.states_max = g->spec.hidden * (8 + more) } };
    if (rank_team_create(&g->spec, &g->src, &cfg, &n_block, &t, err, sizeof err)) fail_msg("%s", err);
    return t;
}

static inline struct engine *engine_open(const struct gold *g, struct rank_team *t, uint32_t chunk, uint32_t n_block,
                                         uint32_t preempt_every)
{
    struct engine    *e;
    struct eng_runner runner = rank_team_runner(t);
    struct eng_cfg    cfg = { .seqs_max = 8,
                              .batch_tokens_max = 96,
                              .prefill_chunk_max = chunk,
                              .queue_requests_max = 16,
                              .queue_tokens_max = 1 << 20,
                              .context_max = CONTEXT + 1,
                              .vocab = g->spec.vocab,
                              .n_block = n_block,
                              .block_tokens = 16,
                              .prefix_cache = true,
                              .preempt_every = preempt_every,
                              .state_dim = g->spec.hidden,
                              .state_of = rows_of(g->spec.pool) };
    assert_int_equal(eng_create(&cfg, &runner, &e), ST_OK);
    return e;
}

static uint32_t n_preempted;

/* All at once, to their end. */
static inline void run(struct engine *e, struct ask *a, uint32_t n, enum model_pool pool)
{
    static struct eng_request r[STATES_ASK_MAX];
    static struct eng_choice  choice[STATES_ASK_MAX];
    uint32_t                  id = 0;
    memset(r, 0, sizeof r);
    memset(choice, 0, sizeof choice);
    for (uint32_t i = 0; i < n; i++) {
        choice[i].id = &id;
        memset(a[i].got, 0, sizeof a[i].got);
        r[i] = (struct eng_request){ .prompt = a[i].prompt,
                                     .n_prompt = a[i].n,
                                     .s = { .top_p = 1, .repetition = 1, .max_tokens = 1, .state_of = rows_of(pool) },
                                     .n_choice = 1,
                                     .choice = &choice[i],
                                     .outbox = &outbox,
                                     .state = a[i].got };
        assert_int_equal(eng_submit(e, &r[i]), ST_OK);
    }
    finish_requests(e, &outbox, n);
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(r[i].status, ST_OK);
        assert_int_equal(atomic_load(&choice[i].finish), ENG_STOP);
        assert_int_equal(atomic_load(&choice[i].n_out), 0);
        a[i].n_cached = r[i].n_cached;
        n_preempted += r[i].n_preempted;
    }
    assert_int_equal(kv_check(eng_kv(e)), ST_OK);
}
