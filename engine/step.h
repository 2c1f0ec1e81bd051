/* step: one turn of the engine: messages, expiry, plan, batch, run, results.   Thread: engine, except the atomics.
 * What struct engine is inside; for engine/ and its tests only. */
#pragma once
#include "base/pool.h"
#include "base/ring.h"
#include "engine/engine.h"
#include "engine/sched.h"
#include "engine/seq.h"
#include <pthread.h>
#include <stdatomic.h>

struct engine {
    struct eng_cfg    cfg;
    struct eng_runner runner;
    struct seq_limits limits;
    struct kv        *kv;
    struct sched      sched;
    struct batch      batch;
    struct pool       reqs, seqs;
    struct list       live, retry; /* requests: not final; with a message that the outbox did not take */
    struct seq      **sampled;     /* [seqs_max] whose token row i of the step's samples is */
    uint32_t          n_sampled;
    uint64_t          n_arrival, next_deadline_us, now_us;
    uint64_t (*clock)(void); /* NULL when stepped by hand: now is then what eng_step was told */
    bool dead;

    pthread_t thread;
    bool      started;

    /* any thread */
    struct ring      inbox;                  /* requests                                                   */
    _Atomic uint32_t n_live;                 /* choices of all requests accepted and not final             */
    _Atomic uint32_t n_queued;               /* requests accepted and never run                            */
    _Atomic uint64_t n_queued_tokens;        /* their prompts                                              */
    _Atomic uint32_t n_submitting;           /* threads inside eng_submit                                  */
    _Atomic bool     closed, draining, stop; /* closed: nothing is accepted any more                       */
    _Atomic bool     cancel_pending, dead_seen;
    _Atomic uint64_t drain_deadline_us;
    struct {
        _Atomic uint32_t n_running, n_resume, kv_used, rows_now;
        _Atomic uint64_t n_step, n_prompt_tokens, n_cached_tokens, n_generated, n_preempted, n_finished[6], n_query_tokens, n_hit_tokens;
        _Atomic uint64_t n_row, step_rows[ENG_STEP_BUCKETS];
        _Atomic uint64_t last_progress_us, step_us_ewma, row_ns_ewma;
    } a;
};

enum { ENG_SEQS_SPARE = 256 }; /* siblings that wait, over the queue and the running */

void        step_fail_all(struct engine *e, enum eng_finish finish, enum status why); /* every request, also those in the inbox */
bool        step_retry_outbox(struct engine *e);                                      /* true: nothing is left to deliver */
void        step_publish(struct engine *e);
enum status step_run(struct engine *e, uint64_t now_us, bool *did_work_out);
