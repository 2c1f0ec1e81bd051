/* team: the caller and n - 1 persistent threads that share the pieces of one job at a time.   Thread: the rank thread.
 * Each thread has a share of the pieces, the same part of every job, so that rows which one job has left in its caches
 * come back to it in the next; then it helps the others. Pieces are taken as they are wanted, small ones some at a
 * time, so a thread that the system has set aside holds nobody up for longer than what it holds: a piece, or a part of
 * its share. Which thread runs a piece must not matter to the bits. Idle threads spin for some microseconds, then sleep
 * on a futex. */
#pragma once
#include "base/status.h"
#include <stdint.h>

struct team;
typedef void team_fn(void *arg, uint32_t piece, uint32_t thread); /* thread: 0 .. n_thread - 1, for scratch */

/* Starts n_thread - 1 threads; the caller is the first of the team. ST_NOMEM, or the status of thread_start.
 * team_free ends them. */
enum status team_create(uint32_t n_thread, struct team **t_out);
void        team_free(struct team *t);
uint32_t    team_n_thread(const struct team *t);
/* Runs fn for all pieces; returns when all are done. cost: about how many cycles on one thread; little is not
 * shared. */
void team_run(struct team *t, uint32_t n_piece, uint64_t cost, team_fn *fn, void *arg);
