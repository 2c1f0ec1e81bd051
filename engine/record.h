/* record: has the runner's device record its decode steps (CUDA graphs) before the first request, so that none of them
 * is recorded while clients wait.   Thread: engine, before its first turn. */
#pragma once
#include "engine/step.h"

enum { RECORD_US_MAX = 5000000 }; /* of an engine with a thread */
/* Runs decode steps of each size that the device records (eng_runner.graphs) and this engine meets, twice each
 * (where adapters are served, twice without and twice with one), the smallest first: greedy draws of one token that
 * nobody reads, in blocks that hold nothing yet. Stops where the next size would end after us_max: sizes that are left
 * are recorded when they are met. Says in one line what was recorded. What fails here fails again in the first request,
 * which says so. */
void record_steps(struct engine *e, uint64_t us_max);
