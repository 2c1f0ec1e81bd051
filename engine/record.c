#include "engine/record.h"
#include "base/clock.h"
#include "base/log.h"
#include <inttypes.h>

enum { RECORD_TWICE = 2 }; /* the first step of a size runs as it is, the second is recorded */

/* A decode step of so many sequences, of one token each. adapter: as in batch_adapter; nothing lies in its slot yet. */
static void fill(struct batch *b, uint32_t rows, uint32_t n_block, uint32_t adapter)
{
    static const uint32_t id = 0;
    batch_clear(b);
    for (uint32_t i = 0; i < rows; i++) {
        uint32_t block = i % n_block, row = batch_add(b, &id, 1, 0, &block, 1);
        batch_adapter(b, adapter);
        batch_add_sample(b, row)->top_p = 1;
    }
}

/* How long the last step took, in us. */
static uint64_t run(struct engine *e, struct batch *b, enum status *st)
{
    uint64_t begin = clock_us();
    *st = eng_run(&e->runner, b);
    uint64_t now = clock_us();
    atomic_store_explicit(&e->a.last_progress_us, now, memory_order_relaxed);
    return now - begin;
}

/* The sizes that steps of this engine have: up to the first that holds all that may run. */
static uint32_t met(const struct dev_graphs *g, uint32_t most)
{
    uint32_t n = 0;
    while (n < g->n && (!n || g->rows[n - 1] < most)) n++;
    return n;
}

static bool goes_on(const struct engine *e, enum status st) { return (!st || st == ST_STEP) && !atomic_load(&e->stop); }

void record_steps(struct engine *e, uint64_t us_max)
{
    const struct eng_cfg *c = &e->cfg;
    struct dev_graphs     g = { .n = 0 };
    struct batch         *b = &e->flight[0].batch;
    uint64_t              begin = clock_us(), step_us = 0;
    uint32_t              most = c->seqs_max < c->batch_tokens_max ? c->seqs_max : c->batch_tokens_max;
    enum status           st = ST_OK;
    if (!e->runner.graphs || c->state_dim) return; /* models that pool have no decode steps */
    e->runner.graphs(e->runner.ctx, &g);
    uint32_t n = met(&g, most), kinds = c->n_slot ? 2 : 1; /* without adapters, and with */
    uint32_t n_block = c->n_block; /* of both pools, where windows have one: the tables are equal */
    if (c->n_window && c->n_window < n_block) n_block = c->n_window;
    if (!n) return;
    for (uint32_t i = 0; i < n && goes_on(e, st); i++) {
        uint64_t expected = i ? kinds * RECORD_TWICE * step_us * g.rows[i] / g.rows[i - 1] : 0;
        if (clock_us() - begin + expected > us_max) break;
        for (uint32_t k = 0; k < kinds * RECORD_TWICE && goes_on(e, st); k++) {
            if (k % RECORD_TWICE == 0) fill(b, g.rows[i] < most ? g.rows[i] : most, n_block, k / RECORD_TWICE);
            step_us = run(e, b, &st);
        }
    }
    batch_clear(b);
    e->runner.graphs(e->runner.ctx, &g);
    LOG_INFO("eng: %u of %u sizes of decode steps are recorded as graphs, %" PRIu64 " MiB of GPU memory, %.2f s%s",
             g.n_recorded, kinds * n, g.bytes >> 20, (double)(clock_us() - begin) / 1e6,
             g.n_recorded < kinds * n ? "; the others when they are met" : "");
}
