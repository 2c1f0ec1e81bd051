/* engine: the engine thread's loop.   Thread: engine, except where marked "any thread".
 * eng_create -> eng_start (or eng_step by hand: tests and the simulator) -> eng_submit / eng_cancel -> eng_drain ->
 * eng_stop -> eng_free. A step is a function of (state, messages, now): it never reads a clock and never allocates. */
#pragma once
#include "engine/batch.h"
#include "engine/pace.h"
#include "engine/phase.h"
#include "engine/request.h"
#include "kvcache/device/kv.h"
#include "kvcache/events/events.h"
#include "kvcache/tier.h"
#include "kvcache/tier_hand.h"

struct engine;

/* The runner of batches: rank.c in production, a fake in the simulator. The caller must not touch b from submit until
 * wait has put the results into b->out. Steps run in the order of submit, and wait takes them in that order. */
enum { ENG_DEPTH_MAX = 2 };
/* Host memory of guests: blocks that the runner's devices read in place (kernels/device.h, struct dev_kv). */
struct eng_guests {
    const unsigned char *first; /* block n_block; of several ranks their slices behind each other */
    uint64_t             step;  /* bytes from one to the next */
    uint32_t             n;
};
struct eng_runner {
    void *ctx;
    void (*submit)(void *ctx, struct batch *b);
    enum status (*wait)(void *ctx, struct batch *b); /* ST_STEP: this batch alone was not computed. ST_DEVICE,
                                                            * ST_BROKEN: the engine ends all requests and reports
                                                            * dead */
    /* Or NULL. Where it is there, submit leaves out the draws of a batch with late masks (batch.h), and draw adds them:
     * once, between submit and wait, and before the next submit. */
    void (*draw)(void *ctx, struct batch *b);
    uint32_t depth;    /* most steps in flight; 2: step n + 1 is planned and submitted while n runs; 0: 1 */
    bool     computes; /* submit computes the step itself, so its time does not count as the host's own */
    /* Or NULL: what the runner's device records. An engine with a thread has all of it recorded before its first
     * request. */
    void (*graphs)(void *ctx, struct dev_graphs *out);
    /* Called once, before the first step, if the tiers are read in place. NULL, or false (logged): it cannot. */
    bool (*guests)(void *ctx, const struct eng_guests *g);
};
/* Submit and wait, for callers with one batch at a time, without late masks. */
static inline enum status eng_run(const struct eng_runner *r, struct batch *b)
{
    r->submit(r->ctx, b);
    return r->wait(r->ctx, b);
}

struct eng_cfg {
    uint32_t seqs_max;          /* running sequences                                       */
    uint32_t batch_tokens_max;  /* token budget of one step                                */
    uint32_t prefill_chunk_max; /* most prompt tokens of one sequence in a step; 0: the budget */
    uint32_t queue_requests_max,
        queue_tokens_max; /* bounds of the queue; beyond them eng_submit returns ST_AGAIN (429); tokens 0: no bound */
    uint32_t          context_max; /* tokens of one sequence                                  */
    uint32_t          vocab;
    uint32_t          n_block, block_tokens;
    bool              prefix_cache;
    uint32_t          n_window, window; /* of kv_cfg; n_window 0: layers with a window have no pool of their own */
    uint32_t          preempt_max;      /* preemptions of one choice before it is protected; 0: 3    */
    const uint32_t   *eos_id;
    uint32_t          n_eos;
    uint32_t          state_dim;      /* 0: requests generate; else they end with their prompt's state */
    enum eng_state_of state_of;       /* which rows make it */
    uint32_t          n_type;         /* types of tokens that the model has embeddings of; pairs need 2 */
    bool              whole;          /* all rows of a prompt stand in one step; without prefix cache and tiers */
    uint32_t          kv_hash_bits;   /* tests: kv_cfg.hash_bits                                 */
    uint32_t          kv_borrow_min;  /* kv_cfg.borrow_min                                       */
    uint32_t          kv_pin_percent; /* kv_cfg.pin_percent                                      */
    uint32_t          n_slot;         /* adapters on the device at once; 0: none are served */
    uint32_t          preempt_every;  /* tests: sched_cfg.preempt_every                          */
    struct kv_events *events;         /* is told which blocks there are; NULL: nobody is       */
    struct kv_key     fingerprint;    /* of those blocks, with events                          */
    const struct kv_tiers_cfg *tiers; /* NULL: none. eng_create fills in kv, blocks and lengths */
    uint64_t tiers_flush_us; /* eng_free: time limit for writing blocks to the stores that only the host holds */
    uint32_t n_guide_thread; /* make masks of grammars; 0: the engine's own thread does    */
    uint64_t step_us_hint;   /* first guess of a step's time, for eng_alive; 0: 1 s       */
};

/* Lock-free snapshot for /metrics, /health and tests; any thread. */
struct eng_stats {
    uint32_t n_running, n_waiting;
    uint64_t waiting_tokens;
    uint32_t queued[ENG_CLASSES]; /* requests that have not run yet, by eng_class_of */
    uint32_t kv_blocks, kv_used;  /* kv_used: blocks neither free nor evictable */
    uint64_t n_step, n_prompt_tokens, n_cached_tokens, n_generated, n_preempted;
    uint64_t n_finished[ENG_FINISHES]; /* by enum eng_finish */
    uint64_t n_nan;                    /* requests that ended because their logits were NaN */
    uint64_t n_undrawn; /* rows of requests with a grammar that were computed twice, because their mask came too late */
    uint64_t n_row, step_rows[PACE_SIZES];    /* rows of all steps; number of steps by their rows */
    uint64_t step_us, step_times[PACE_TIMES]; /* time of all steps; number of steps by their time */
    double   step_slow;                       /* time of recent steps / usual time; 0: no step yet */
    uint64_t n_query_tokens, n_hit_tokens, n_borrowed, n_resumed_tokens;
    uint64_t n_below_query_tokens;       /* with tiers: prompt tokens that the device did not hold */
    uint64_t n_cached_from[ENG_SOURCES]; /* n_cached_tokens by origin */
    uint64_t phase_us[PHASES];
    struct eng_times {
        uint64_t time[PHASE_TIMES], sum_us;
    } host, gap; /* per step: the host's own time; the device's idle time before the step */
    uint64_t evicted[KV_EVICT_WHYS], kv_pinned,
        n_pin_refused;                   /* evicted device blocks by reason; pinned blocks; refused pins */
    uint32_t window_blocks, window_used; /* of the window's pool; used: neither free nor evictable */
    uint64_t n_window_passed, n_window_evicted;
    uint64_t last_progress_us, step_us_ewma; /* progress: a finished step, or nothing to do */
    bool     busy, dead, draining;
    bool     broken; /* dead by ST_BROKEN */
};

/* The part of the KV cache that is in use: of the pool that is fuller. */
static inline double eng_kv_use(const struct eng_stats *s)
{
    double all = s->kv_blocks ? (double)s->kv_used / s->kv_blocks : 0;
    double windows = s->window_blocks ? (double)s->window_used / s->window_blocks : 0;
    return all > windows ? all : windows;
}

struct batch_cfg eng_batch_cfg(const struct eng_cfg *cfg); /* the bounds of the batches of such an engine (sizes.c) */
/* Most tokens of one prompt in a step of such an engine. */
uint32_t eng_chunk(const struct eng_cfg *cfg);
/* Tokens that such an engine reserves at most beyond those that a sequence has computed. */
uint32_t eng_window_ahead(const struct eng_cfg *cfg);
/* Blocks of the window's pool with which one prompt has chunks that are worth a step, with windows of so many
 * tokens. */
uint32_t eng_windows_min(const struct eng_cfg *cfg, uint32_t window);
uint64_t eng_states_max(const struct eng_cfg *cfg); /* numbers of states that a step of it may have; 0: it generates */
/* Makes the engine with all the memory that it will need. cfg and run are copied; what they point to is borrowed.
 * ST_CONFIG: bounds that cannot be; ST_NOMEM. */
enum status eng_create(const struct eng_cfg *cfg, const struct eng_runner *run, struct engine **e_out);
enum status eng_start(struct engine *e); /* starts the thread */
/* Any thread. On ST_OK the engine uses r until the final message. ST_AGAIN: the queue is full, or the engine drains;
 * ST_TOO_LARGE: the request cannot fit into the KV pool; ST_INVALID: a wrong field; ST_DEVICE: the engine is dead. */
enum status eng_submit(struct engine *e, struct eng_request *r);
uint32_t    eng_state_dim(const struct engine *e);               /* any thread: eng_cfg.state_dim */
void        eng_cancel(struct engine *e, struct eng_request *r); /* any thread; the final message still comes */
/* Any thread, of a request that the engine does not have: refused by eng_submit, or before that. If it names the parcel
 * of another server (claim), that server is told that nobody will come for it. Reads claim, salt, prompt and n_prompt,
 * and keeps nothing of r. If 64 of them wait already the parcel ends at its time limit. */
void eng_refuse(struct engine *e, const struct eng_request *r);
/* One turn: plans and submits a step, then waits for the oldest step in flight if the runner takes no more, or if there
 * was nothing to submit. *did_work_out: false if the turn had nothing to submit and nothing to wait for; the caller may
 * then sleep on the inbox. */
enum status eng_step(struct engine *e, uint64_t now_us, bool *did_work_out);
void        eng_drain(struct engine *e,
                      uint64_t       deadline_us);  /* any thread: refuses new requests; cancels the rest at the deadline */
bool        eng_idle(const struct engine *e); /* any thread: no request waits or runs */
/* Any thread. The device is not to be used any more: from now on the engine is dead, and its thread ends all requests
 * when it gets to it. why: static text for the log. st: ST_DEVICE, or ST_BROKEN where the machine is at fault. */
void eng_condemn(struct engine *e, const char *why, enum status st);
void eng_stop(struct engine *e); /* ends every request with its final message, then joins the thread */
void eng_free(struct engine *e);
bool eng_tiers_stats(struct engine *e, struct kv_tiers_stats *out);         /* any thread; false: no tiers */
bool eng_events_stats(const struct engine *e, struct kv_events_stats *out); /* any thread; false: no KV events */
/* Any thread, until eng_stop: the hand-over of the host's KV to the next process (kvcache/tier_hand.h). eng_tiers_shape
 * returns false if there are no tiers. */
bool         eng_tiers_shape(const struct engine *e, struct kv_hand_shape *out);
void         eng_tiers_hand(struct engine *e, enum kv_hand want); /* asynchronous */
enum kv_hand eng_tiers_hand_is(const struct engine *e, int *slab_fd_out, int *index_fd_out);
void         eng_stats(const struct engine *e, struct eng_stats *out); /* any thread */
bool eng_alive(const struct engine *e, uint64_t now_us); /* any thread: progress within max(5 s, 10 x predicted step) */
/* Any thread, even while the engine's thread hangs: describes the steps in flight and the progress of their requests,
 * without tokens. Returns the length of text. */
size_t     eng_dump(const struct engine *e, uint64_t now_us, char *text, size_t text_bytes);
struct kv *eng_kv(struct engine *e); /* tests and the simulator */
