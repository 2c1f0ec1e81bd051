/* engine: the engine thread's loop.   Thread: engine, except where marked "any thread".
 * eng_create -> eng_start (or eng_step by hand: tests and the simulator) -> eng_submit / eng_cancel -> eng_drain ->
 * eng_stop -> eng_free. A step is a function of (state, messages, now): it never reads a clock and never allocates. */
#pragma once
#include "engine/batch.h"
#include "engine/pace.h"
#include "engine/phase.h"
#include "engine/request.h"
#include "kvcache/device/kv.h"
#include "kvcache/tier.h"
#include "kvcache/tier_hand.h"

struct engine;

/* What runs a batch: rank.c in production, a fake in the simulator. b is left alone from submit until wait has brought
 * the results to b->out; steps run in the order of their submits and are waited for in that order. */
enum { ENG_DEPTH_MAX = 2 };
struct eng_runner {
    void *ctx;
    void (*submit)(void *ctx, struct batch *b);
    enum status (*wait)(void *ctx, struct batch *b); /* ST_STEP: of this batch alone nothing was done. ST_DEVICE,
                                                            * ST_BROKEN: the engine fails everything and reports dead */
    uint32_t depth;    /* steps in flight at most; 2: step n + 1 is planned and submitted while n runs; 0: 1 */
    bool     computes; /* submit does the step itself, so its time is not the host's own */
};
/* Both, for those who have one batch at a time. */
static inline enum status eng_run(const struct eng_runner *r, struct batch *b)
{
    r->submit(r->ctx, b);
    return r->wait(r->ctx, b);
}

struct eng_cfg {
    uint32_t seqs_max;                             /* running sequences                                       */
    uint32_t batch_tokens_max;                     /* token budget of one step                                */
    uint32_t prefill_chunk_max;                    /* most prompt tokens of one sequence in a step; 0: the budget */
    uint32_t queue_requests_max, queue_tokens_max; /* over either: eng_submit says ST_AGAIN (429); tokens 0: no bound */
    uint32_t context_max;                          /* tokens of one sequence                                  */
    uint32_t vocab;
    uint32_t n_block, block_tokens;
    bool     prefix_cache;
    uint32_t preempt_max; /* preemptions of one choice before it is protected; 0: 3    */
    const uint32_t            *eos_id;
    uint32_t                   n_eos;
    uint32_t                   kv_hash_bits;   /* tests: kv_cfg.hash_bits                                 */
    uint32_t                   kv_borrow_min;  /* kv_cfg.borrow_min                                       */
    uint32_t                   kv_pin_percent; /* kv_cfg.pin_percent                                      */
    uint32_t                   preempt_every;  /* tests: sched_cfg.preempt_every                          */
    const struct kv_tiers_cfg *tiers;          /* or NULL: none. kv, blocks, lengths are filled in here */
    uint64_t                   tiers_flush_us; /* eng_free: how long the stores may take what is only on the host */
    uint32_t                   n_guide_thread; /* make masks of grammars; 0: the engine's own thread does    */
    uint64_t                   step_us_hint;   /* first guess of a step's length for health; 0: 1 s       */
};

/* Lock-free snapshot for /metrics, /health and tests; any thread. */
struct eng_stats {
    uint32_t n_running, n_waiting;
    uint64_t waiting_tokens;
    uint32_t queued[ENG_CLASSES]; /* requests that have never run, by eng_class_of */
    uint32_t kv_blocks, kv_used;  /* used: not free and not evictable */
    uint64_t n_step, n_prompt_tokens, n_cached_tokens, n_generated, n_preempted;
    uint64_t n_finished[6];                   /* by enum eng_finish */
    uint64_t n_nan;                           /* requests that ended because their logits were NaN */
    uint64_t n_row, step_rows[PACE_SIZES];    /* tokens of all steps; steps by their tokens */
    uint64_t step_us, step_times[PACE_TIMES]; /* time of all steps; steps by their time */
    double   step_slow;                       /* how many times as long as usual the last steps took; 0: none yet */
    uint64_t n_query_tokens, n_hit_tokens, n_borrowed, n_resumed_tokens;
    uint64_t n_below_query_tokens;       /* prompt tokens that the device lacked, while there are tiers */
    uint64_t n_cached_from[ENG_SOURCES]; /* n_cached_tokens by where they were */
    uint64_t phase_us[PHASES];
    struct eng_times {
        uint64_t time[PHASE_TIMES], sum_us;
    } host, gap; /* of a step: the host's own time; the device's time without work before it */
    uint64_t evicted[KV_EVICT_WHYS], kv_pinned,
        n_pin_refused;                       /* blocks of the device, by reason; blocks that pins hold; pins refused */
    uint64_t last_progress_us, step_us_ewma; /* progress: a step done, or idle with nothing to do */
    bool     busy, dead, draining;
    bool     broken; /* dead by ST_BROKEN */
};

struct batch_cfg eng_batch_cfg(const struct eng_cfg *cfg); /* bounds of the batches that such an engine makes */
enum status      eng_create(const struct eng_cfg *cfg, const struct eng_runner *run, struct engine **e_out);
enum status      eng_start(struct engine *e); /* its thread */
/* any thread. Moves r to the engine on ST_OK. ST_AGAIN: queue full, or draining; ST_TOO_LARGE: could never fit the KV
 * pool; ST_INVALID; ST_DEVICE: engine dead. */
enum status eng_submit(struct engine *e, struct eng_request *r);
void        eng_cancel(struct engine *e, struct eng_request *r); /* any thread; the final message still comes */
/* One scheduling step: submits one, and waits for the oldest in flight when there are as many as the runner takes, or
 * nothing else to do. did_work_out: false when there was neither (the caller may sleep on the inbox). */
enum status eng_step(struct engine *e, uint64_t now_us, bool *did_work_out);
void        eng_drain(struct engine *e,
                      uint64_t       deadline_us);  /* any thread: no new requests; at the deadline the rest is canceled */
bool        eng_idle(const struct engine *e); /* any thread: nothing waiting or running */
/* any thread: what it computes is not to be believed. Its thread fails all requests and serves no more. why: static,
 * for the log */
void eng_condemn(struct engine *e, const char *why);
void eng_stop(struct engine *e); /* joins the thread; every request gets its final message first */
void eng_free(struct engine *e);
bool eng_tiers_stats(struct engine *e, struct kv_tiers_stats *out); /* any thread; false: there are none */
/* any thread, until eng_stop: the host's KV on its way to the next process (kvcache/tier_hand.h). shape: false: there
 * are no tiers. */
bool         eng_tiers_shape(const struct engine *e, struct kv_hand_shape *out);
void         eng_tiers_hand(struct engine *e, enum kv_hand want); /* returns at once */
enum kv_hand eng_tiers_hand_is(const struct engine *e, int *slab_fd_out, int *index_fd_out);
void         eng_stats(const struct engine *e, struct eng_stats *out); /* any thread */
bool eng_alive(const struct engine *e, uint64_t now_us); /* any thread: progress within max(5 s, 10 x predicted step) */
/* any thread, the engine's own may hang: the steps in flight and what their requests compute, without any token;
 * returns bytes of text */
size_t     eng_dump(const struct engine *e, uint64_t now_us, char *text, size_t text_bytes);
struct kv *eng_kv(struct engine *e); /* tests and the simulator */
