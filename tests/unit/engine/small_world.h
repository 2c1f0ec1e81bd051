/* A small engine of the tests' own clock: its bounds, a client of it, and steps until nobody waits any more. */
#pragma once

#include "test.h"
#include "sim/world.h"

static const uint32_t eos_ids[] = { 3 };

static inline struct eng_cfg config_of(uint32_t vocab)
{
    return (struct eng_cfg){ .seqs_max = 4,
                             .batch_tokens_max = 32,
                             .queue_requests_max = 8,
                             .queue_tokens_max = 100,
                             .context_max = 64,
                             .vocab = vocab,
                             .n_block = 64,
                             .block_tokens = 4,
                             .prefix_cache = true,
                             .eos_id = eos_ids,
                             .n_eos = 1 };
}

/* Its prompt begins as no other client's; it asks for one choice of max_tokens tokens, whatever they are. */
static inline struct client *client(struct world *w, uint32_t n_prompt, uint32_t max_tokens)
{
    uint32_t prompt[128] = { 0 };
    for (uint32_t i = 0; i < n_prompt; i++) prompt[i] = (w->n_client * 7 + i) % 200;
    struct client *c = client_new(w, prompt, n_prompt, 1, max_tokens);
    c->r.s.ignore_eos = true;
    return c;
}

/* Steps of a millisecond until every request has ended; fails on what the world found wrong. */
static inline void run(struct world *w)
{
    for (uint32_t i = 0; w->n_open && i < 1000; i++) {
        w->now_us += 1000;
        world_step(w);
    }
    world_step(w);
    world_ledger(w);
    if (w->fault[0]) fail_msg("%s", w->fault);
}
