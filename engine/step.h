/* step: one turn of the engine: messages, deadlines, plan, submit, and the results of the oldest step in flight; and
 * the inside of struct engine.   Thread: engine, except the atomics.   Private to engine/ and its tests. */
#pragma once
#include "base/pool.h"
#include "base/ring.h"
#include "base/snapshot.h"
#include "engine/engine.h"
#include "engine/flight.h"
#include "engine/note.h"
#include "engine/pace.h"
#include "engine/sched.h"
#include "engine/seq.h"
#include <pthread.h>
#include <stdatomic.h>

struct engine {
    struct eng_cfg    cfg;
    struct eng_runner runner;
    struct seq_limits limits;
    struct kv        *kv;
    struct kv_tiers  *tiers;       /* or NULL */
    uint64_t          n_submitted; /* steps */
    struct snapshot   tiers_stats; /* of struct kv_tiers_stats */
    struct sched      sched;
    struct flight     flight[ENG_DEPTH_MAX]; /* a ring: n_flight steps in flight, the oldest at index `first` */
    uint32_t          first, n_flight, depth;
    uint64_t          n_plan, done_us; /* number of plans; time at which the last step finished */
    struct guides    *guides;
    struct pool       reqs, seqs;
    struct list       live, retry; /* requests that are not final; requests with a message for req_deliver */
    uint64_t          n_arrival, next_deadline_us, now_us;
    uint64_t (*clock)(void); /* NULL if stepped by hand: the time is then eng_step's now_us */
    bool dead, rested;       /* rested: the device was idle before the next step because there was no work */

    pthread_t thread;
    bool      started;

    /* any thread */
    struct ring           inbox;                    /* requests                                                   */
    struct ring           refused;                  /* struct refusal, malloc'd: rare, and freed by the engine    */
    _Atomic uint32_t      n_live;                   /* choices of all requests accepted and not final             */
    _Atomic uint32_t      n_queued;                 /* requests accepted and never run                            */
    _Atomic uint64_t      n_queued_tokens;          /* their prompts                                              */
    _Atomic uint32_t      n_queued_as[ENG_CLASSES]; /* n_queued by eng_class_of                                  */
    _Atomic uint32_t      n_submitting;             /* threads inside eng_submit                                  */
    _Atomic bool          closed, draining, stop;   /* closed: eng_submit refuses every request                   */
    _Atomic bool          cancel_pending, dead_seen, broken_seen;
    _Atomic(const char *) condemned; /* the reason; NULL: not condemned */
    _Atomic uint64_t      drain_deadline_us;
    struct pace           pace;
    struct phases         phases;
    struct note           note[ENG_DEPTH_MAX]; /* descriptions of flight[] for eng_dump */
    struct batch          audit;               /* with tiers: the step that recomputes one block */
    struct {
        _Atomic uint32_t n_running, n_resume, kv_used, rows_now, window_used;
        _Atomic uint64_t n_step, n_prompt_tokens, n_cached_tokens, n_generated, n_preempted, n_finished[ENG_FINISHES],
            n_window_passed, n_window_evicted, n_query_tokens, n_hit_tokens, n_borrowed, n_resumed_tokens,
            evicted[KV_EVICT_WHYS], kv_pinned, n_pin_refused;
        _Atomic uint64_t n_below_query_tokens, n_cached_tier_tokens[ENG_SOURCES];
        _Atomic uint64_t n_nan, n_undrawn;
        _Atomic uint64_t last_progress_us, step_us_ewma, row_ns_ewma;
    } a;
};

enum { ENG_SEQS_SPARE = 256 }; /* places for waiting siblings, besides the queue's and the running ones */

/* Adds n to a counter that the engine's thread alone writes and others read. */
static inline void step_count(_Atomic uint64_t *c, uint64_t n)
{
    atomic_fetch_add_explicit(c, n, memory_order_relaxed);
}
void step_fail_all(struct engine *e, enum eng_finish finish,
                   enum status why); /* ends every request, those in the inbox included */
/* Copies the figures of scheduler and tree to the atomics that eng_stats reads. */
void step_publish(struct engine *e);
void step_settle(struct engine *e); /* waits for the steps in flight and drops their results */
/* One turn at time now_us. *did_work_out: something was planned or has ended; else the caller may sleep. ST_DEVICE:
 * the device is lost, and every request has ended with an error. */
enum status step_run(struct engine *e, uint64_t now_us, bool *did_work_out);
