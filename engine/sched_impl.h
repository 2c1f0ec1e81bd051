/* sched_impl: what sched.c (lists and blocks) does for admit.c (who runs next) and sched_plan.c (how many rows).
 * Thread: engine. */
#pragma once
#include "engine/sched.h"

uint32_t sched_blocks(const struct sched *s, uint32_t n_token); /* of so many tokens */
/* Blocks for the first n_token tokens of q, from those that are free or wait to be copied down; nobody gives way. */
bool sched_reserve(struct sched *s, struct seq *q, uint32_t n_token);
/* Covers the next n rows; fewer when blocks are short and at least one row fits; 0: it must stand still in this step.
 * With a step in flight that is not for long: its end may give blocks back, so a shortage waits for that. */
uint32_t sched_take(struct sched *s, struct seq *q, uint32_t n);
/* Of its next n rows those for which q has blocks, after sched_reserve. */
uint32_t sched_held(const struct sched *s, const struct seq *q, uint32_t n);
/* The youngest running one that is younger than q and may be preempted, or NULL. */
struct seq *sched_victim(const struct sched *s, const struct seq *q);
void        sched_preempt(struct sched *s, struct seq *q);
void        sched_unwait(struct sched *s, struct seq *q); /* leaves the list that it waits in */
void        sched_run(struct sched *s, struct seq *q);    /* RUNNING, among the others in the order of seq_before */
/* admit.c: the next one that waits, RUNNING and without rows yet, or NULL: nobody can be admitted in this step. */
struct seq *sched_admit(struct sched *s);
