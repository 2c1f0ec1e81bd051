/* join_test: whole models with products joined with what stands around them, and with every op by itself. */
#pragma once
#include "model/golden.h"
#ifdef CUDA_EMU
#include <emu.h>
#endif

enum { PROMPT = 32 };

static struct dev_ops join_ops; /* the device's, without joined products */

/* One whose products of codes and of plain weights are all ours. */
static inline void open_run(struct gold_run *r, const struct gold *g, uint32_t n_rank, enum dtype kv, bool joins)
{
    gold_cuda.deterministic = true;
    gold_cuda.pdl = true;
    gold_run_open(r, &g->spec, &g->src, DEV_CUDA, n_rank, DT_BF16, kv);
    memset(&gold_cuda, 0, sizeof gold_cuda);
    if (joins) return;
    struct device *d = rank_team_device(r->team);
    join_ops = *d->ops;
    join_ops.fused = NULL;
    join_ops.routed = NULL;
    d->ops = &join_ops;
}

#ifdef CUDA_EMU
/* Kernels of a decode step of one row. */
static inline uint64_t launches(const struct model_spec *spec, const struct source *src, bool joins)
{
    struct gold     g = { .spec = *spec, .src = *src };
    struct gold_run r;
    uint32_t        ids[PROMPT + 1];
    for (uint32_t i = 0; i <= PROMPT; i++) ids[i] = i + 3;
    open_run(&r, &g, 1, DT_COUNT, joins);
    gold_step(&r, ids, 0, PROMPT, NULL, 0, false);
    uint64_t before = emu_launches();
    gold_step(&r, ids, PROMPT, 1, NULL, 0, true);
    uint64_t after = emu_launches();
    gold_run_close(&r);
    return after - before;
}

/* Of a layer: how many more there are than without the last one. */
static inline uint64_t layer_launches(struct model_spec *spec, const struct source *src, bool joins)
{
    uint32_t n_layer = spec->n_layer;
    spec->n_layer = n_layer - 1;
    uint64_t fewer = launches(spec, src, joins);
    spec->n_layer = n_layer;
    return launches(spec, src, joins) - fewer;
}
#endif
