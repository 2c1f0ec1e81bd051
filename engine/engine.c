#include "engine/engine.h"
#include "base/awake.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "engine/record.h"
#include "engine/req.h"
#include "engine/step.h"
#include "kvcache/device/pin.h"
#include "kvcache/device/window.h"
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    WAIT_US = 1000,         /* when there are requests and nothing can be done for them: an outbox is full */
    STOP_WAIT_US = 5000000, /* eng_stop: for readers that do not empty their outbox */
    ALIVE_US = 5000000,
    ALIVE_STEPS = 10,
    STEP_US_HINT = 1000000,
    PREEMPT_MAX = 3,
    REFUSALS_MAX = 64,
};

/* ---- create, free */

static void wake(void *inbox) { ring_wake(inbox); }

static enum status start_events(struct engine *e, uint32_t n_guest)
{
    struct kv_events_of of = { .kv = e->kv,
                               .n_block = e->cfg.n_block,
                               .n_guest = n_guest,
                               .block_tokens = e->cfg.block_tokens,
                               .fingerprint = e->cfg.fingerprint,
                               .wake = wake,
                               .wake_ctx = &e->inbox };
    return kv_events_start(e->cfg.events, &of);
}

static enum status create_parts(struct engine *e, const uint32_t *eos_id)
{
    const struct eng_cfg *c = &e->cfg;
    uint32_t              n_seq = c->queue_requests_max + c->seqs_max + ENG_SEQS_SPARE;
    struct kv_cfg         kc = {
                .n_block = c->n_block,
                .block_tokens = c->block_tokens,
                .n_seq_max = c->seqs_max + (c->tiers ? KV_LOADS_MAX + KV_OFFERS_MAX + KV_AUDITS + KV_MOVES : 0) +
                             (c->kv_pin_percent ? KV_PINS_MAX : 0),
                .seq_tokens_max = c->context_max,
                .prefix_cache = c->prefix_cache,
                .n_window = c->n_window,
                .window = c->window,
                .window_ahead = c->n_window ? eng_window_ahead(c) : 0,
                .borrow_min = c->kv_borrow_min,
                .pin_percent = c->kv_pin_percent,
                .hash_bits = c->kv_hash_bits,
                .watch = kv_events_watch(c->events),
    };
    struct batch_cfg bc = eng_batch_cfg(c);
    struct sched_cfg sc = {
        .n_table = kc.n_seq_max,
        .seqs_max = c->seqs_max,
        .tokens_max = c->batch_tokens_max,
        .chunk_max = eng_chunk(c),
        .preempt_max = c->preempt_max ? c->preempt_max : PREEMPT_MAX,
        .preempt_every = c->preempt_every,
        .n_slot = c->n_slot,
        .block_tokens = c->block_tokens,
        .n_block = c->n_block,
        .context_max = c->context_max,
        .n_eos = c->n_eos,
        .whole = c->whole,
    };
    bool in_place = c->tiers && c->tiers->in_place;
    if (in_place && !e->runner.guests) return ST_CONFIG;
    if (in_place) kc.n_guest = kv_tiers_slots(c->tiers);
    enum status st = kv_create(&kc, &e->kv);
    for (uint32_t i = 0; i < e->depth && !st; i++) st = flight_init(&e->flight[i], &bc);
    if (!st && c->tiers)
        st = batch_init(
            &e->audit,
            &(struct batch_cfg){ .rows_max = c->block_tokens, .seqs_max = 1, .pages_max = bc.pages_max / c->seqs_max });
    if (!st) st = sched_init(&e->sched, &sc, e->kv, &e->flight[0].batch);
    if (!st) st = pool_init(&e->reqs, "requests", n_seq, sizeof(struct req));
    if (!st) st = pool_init(&e->seqs, "sequences", n_seq, sizeof(struct seq));
    if (!st) st = ring_init(&e->inbox, n_seq + 1);
    if (!st) st = ring_init(&e->refused, REFUSALS_MAX);
    if (!st) st = guides_create(c->n_guide_thread, n_seq, &e->inbox, &e->guides);
    if (!st && c->events) st = start_events(e, kc.n_guest);
    if (st) return st;
    e->sched.draws_late = e->runner.draw != NULL;
    uint32_t *eos = calloc(c->n_eos + 1, sizeof *eos);
    if (eos && c->n_eos) memcpy(eos, eos_id, c->n_eos * sizeof *eos);
    e->cfg.eos_id = eos;
    if (c->tiers) {
        struct kv_tiers_cfg tc = *c->tiers;
        char                err[400];
        tc.kv = e->kv;
        tc.events = c->events;
        tc.n_block = c->n_block;
        tc.n_window = c->n_window;
        tc.block_tokens = c->block_tokens;
        tc.seq_tokens_max = c->context_max;
        if ((st = kv_tiers_open(&tc, &e->tiers, err, sizeof err))) LOG_ERROR("eng: %s, cannot start", err);
        if (st) return st;
        e->sched.tiers = e->tiers;
        if (in_place) {
            struct eng_guests g = { .n = kc.n_guest };
            kv_tiers_slab(e->tiers, &g.first, &g.step);
            if (!e->runner.guests(e->runner.ctx, &g)) return ST_CONFIG;
        }
        struct kv_tiers_stats now;
        kv_tiers_stats(e->tiers, &now);
        if (!snapshot_init(&e->tiers_stats, sizeof now)) return ST_NOMEM;
        snapshot_put(&e->tiers_stats, &now);
        e->cfg.tiers = NULL; /* the caller's */
    }
    e->limits = (struct seq_limits){ .eos_id = eos, .n_eos = c->n_eos, .context_max = c->context_max };
    return eos ? ST_OK : ST_NOMEM;
}

/* A text whose rows stand in one step: it generates nothing, a step has room for it, and blocks are never short,
 * because a sequence that waits for some would hold others. */
static bool whole_works(const struct eng_cfg *c, uint64_t blocks)
{
    return c->state_dim && c->context_max <= (uint64_t)c->batch_tokens_max + 1 && !c->prefix_cache && !c->tiers &&
           !c->preempt_every && c->n_block >= (blocks + 1) * c->seqs_max;
}

enum status eng_create(const struct eng_cfg *cfg, const struct eng_runner *run, struct engine **e_out)
{
    if (!cfg->seqs_max || !cfg->batch_tokens_max || !cfg->queue_requests_max || !cfg->context_max || !cfg->vocab ||
        !cfg->block_tokens || !cfg->n_block)
        return ST_CONFIG;
    uint64_t blocks = ((uint64_t)cfg->context_max + cfg->block_tokens - 1) / cfg->block_tokens;
    if (cfg->whole && !whole_works(cfg, blocks)) return ST_CONFIG;
    if (eng_states_max(cfg) > UINT32_MAX / sizeof(float)) return ST_CONFIG;
    if (blocks * cfg->seqs_max > UINT32_MAX || (uint64_t)cfg->queue_requests_max + cfg->seqs_max > UINT32_MAX / 2)
        return ST_CONFIG;
    if (cfg->n_window && cfg->n_window < kv_window_least(cfg->window, cfg->block_tokens)) return ST_CONFIG;
    if (run->depth > ENG_DEPTH_MAX || cfg->n_slot > LORA_SLOTS_MAX) return ST_CONFIG;
    struct engine *e = aligned_alloc(64, (sizeof *e + 63) / 64 * 64);
    if (!e) return ST_NOMEM;
    memset(e, 0, sizeof *e);
    e->cfg = *cfg;
    e->cfg.eos_id = NULL;
    e->runner = *run;
    e->depth = run->depth ? run->depth : 1;
    e->next_deadline_us = UINT64_MAX;
    e->inbox.fd = -1;
    list_init(&e->live);
    list_init(&e->retry);
    enum status st = create_parts(e, cfg->eos_id);
    if (st) {
        eng_free(e);
        return st;
    }
    *e_out = e;
    return ST_OK;
}

void eng_free(struct engine *e)
{
    if (!e) return;
    step_settle(e);
    guides_free(e->guides);
    sched_close(&e->sched);
    kv_tiers_close(e->tiers, e->cfg.tiers_flush_us);
    kv_free(e->kv);
    for (uint32_t i = 0; i < ENG_DEPTH_MAX; i++) flight_close(&e->flight[i]);
    batch_free(&e->audit);
    pool_free(&e->reqs);
    pool_free(&e->seqs);
    for (struct refusal *x; e->refused.cell && (x = ring_pop(&e->refused));) free(x);
    if (e->refused.cell) ring_free(&e->refused);
    if (e->inbox.fd >= 0) ring_free(&e->inbox);
    free((void *)(uintptr_t)e->cfg.eos_id);
    snapshot_free(&e->tiers_stats);
    free(e);
}

/* ---- submit, cancel */

static bool ids_ok(const uint32_t *ids, uint32_t n, uint32_t vocab)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < n; i++) most = ids[i] > most ? ids[i] : most;
    return !n || most < vocab;
}

static enum status validate(const struct engine *e, const struct eng_request *r)
{
    const struct eng_sampling *p = &r->s;
    const struct eng_cfg      *c = &e->cfg;
    if (!r->prompt || !r->n_prompt || !r->choice || !r->n_choice || !r->outbox || !p->max_tokens) return ST_INVALID;
    if (r->adapter && (!c->n_slot || !kv_salt_adapts(r->salt))) return ST_INVALID;
    if (r->n_choice > e->seqs.n) return ST_TOO_LARGE;
    if (r->keep.priority < KV_PRIORITY_MIN || r->keep.priority > KV_PRIORITY_MAX || r->keep.ttl_s > KV_TTL_MAX_S ||
        r->keep.pin_s > KV_TTL_MAX_S)
        return ST_INVALID;
    if (!isfinite(p->temperature) || p->temperature < 0 || !isfinite(p->top_p) || !isfinite(p->min_p) ||
        !isfinite(p->presence) || !isfinite(p->frequency) || !isfinite(p->repetition) || p->repetition < 0)
        return ST_INVALID;
    if (p->n_top > ENG_TOP_MAX || p->n_prompt_top > ENG_TOP_MAX) return ST_INVALID;
    if (p->prompt_logprobs && !r->prompt_logprob) return ST_INVALID;
    if (c->state_dim && (p->max_tokens != 1 || r->n_choice != 1 || p->prompt_logprobs)) return ST_INVALID;
    if (!c->state_dim && r->state) return ST_INVALID;
    if (r->second && (c->n_type < 2 || r->second >= r->n_prompt)) return ST_INVALID;
    if (!eng_state_fits(r, c->state_of)) return ST_INVALID;
    if (!ids_ok(r->prompt, r->n_prompt, c->vocab) || !ids_ok(p->allowed_id, p->n_allowed, c->vocab)) return ST_INVALID;
    for (uint32_t i = 0; i < p->n_bias; i++)
        if (p->bias[i].id >= c->vocab || isnan(p->bias[i].bias)) return ST_INVALID;
    for (uint32_t i = 0; i < r->n_choice; i++)
        if (!r->choice[i].id) return ST_INVALID;
    uint64_t n = (uint64_t)r->n_prompt + p->max_tokens;
    if (n > c->context_max || (n - 1 + c->block_tokens - 1) / c->block_tokens > c->n_block) return ST_TOO_LARGE;
    if (!sample_possible(&e->flight[0].batch, r, c->n_eos)) return ST_TOO_LARGE;
    return ST_OK;
}

/* Takes r's share of the bounded queue. One prompt always fits an empty queue, however long it is. */
static bool claim(struct engine *e, const struct eng_request *r)
{
    if (atomic_fetch_add(&e->n_live, r->n_choice) + (uint64_t)r->n_choice > e->seqs.n) goto err_live;
    if (atomic_fetch_add(&e->n_queued, 1) >= e->cfg.queue_requests_max) goto err_queued;
    uint64_t tokens = atomic_fetch_add(&e->n_queued_tokens, r->n_prompt);
    if (!tokens || !e->cfg.queue_tokens_max || tokens + r->n_prompt <= e->cfg.queue_tokens_max) {
        atomic_fetch_add_explicit(&e->n_queued_as[eng_class_of(r)], 1, memory_order_relaxed);
        return true;
    }
    atomic_fetch_sub(&e->n_queued_tokens, r->n_prompt);
err_queued:
    atomic_fetch_sub(&e->n_queued, 1);
err_live:
    atomic_fetch_sub(&e->n_live, r->n_choice);
    return false;
}

static enum status submit(struct engine *e, struct eng_request *r)
{
    if (atomic_load(&e->dead_seen)) return ST_DEVICE;
    if (atomic_load(&e->closed) || atomic_load(&e->draining)) return ST_AGAIN;
    uint32_t n_live = atomic_load(&e->n_live);
    if (!claim(e, r)) return ST_AGAIN;
    r->t_submit_us = 0;
    if (e->clock) {
        r->t_submit_us = e->clock();
        /* An engine that sleeps has made no progress for long, and that was right: its time counts from here. */
        if (!n_live) atomic_store_explicit(&e->a.last_progress_us, r->t_submit_us, memory_order_relaxed);
    }
    uint32_t n_choice = r->n_choice, n_prompt = r->n_prompt, class = eng_class_of(r);
    if (ring_push(&e->inbox, r)) return ST_OK;
    atomic_fetch_sub_explicit(&e->n_queued_as[class], 1, memory_order_relaxed);
    atomic_fetch_sub(&e->n_queued_tokens, n_prompt);
    atomic_fetch_sub(&e->n_queued, 1);
    atomic_fetch_sub(&e->n_live, n_choice);
    return ST_AGAIN;
}

enum status eng_submit(struct engine *e, struct eng_request *r)
{
    enum status st = validate(e, r);
    if (st) return st;
    atomic_fetch_add(&e->n_submitting, 1); /* eng_stop waits for those who got past its flag */
    st = submit(e, r);
    atomic_fetch_sub(&e->n_submitting, 1);
    return st;
}

uint32_t eng_state_dim(const struct engine *e) { return e->cfg.state_dim; }

void eng_refuse(struct engine *e, const struct eng_request *r)
{
    uint32_t n = r->n_prompt < REFUSAL_TOKENS ? r->n_prompt : REFUSAL_TOKENS;
    if (!r->claim || !e->tiers || atomic_load(&e->closed)) return;
    struct refusal *x = calloc(1, sizeof *x);
    if (!x) return;
    x->claim = *r->claim;
    x->salt = r->salt;
    x->n = n;
    memcpy(x->id, r->prompt, n * sizeof *x->id);
    if (ring_push_quiet(&e->refused, x))
        ring_wake(&e->inbox);
    else
        free(x);
}

/* No message with r's address: the engine might pop it after the final message, when r is gone. It looks through its
 * own list. */
void eng_cancel(struct engine *e, struct eng_request *r)
{
    atomic_store_explicit(&r->canceled, true, memory_order_release);
    atomic_store(&e->cancel_pending, true);
}

void eng_drain(struct engine *e, uint64_t deadline_us)
{
    atomic_store(&e->drain_deadline_us, deadline_us);
    atomic_store(&e->draining, true);
}

/* The engine is dead from here on and not only from its next turn on: its thread may hang in the driver. */
void eng_condemn(struct engine *e, const char *why, enum status st)
{
    if (st == ST_BROKEN) atomic_store(&e->broken_seen, true);
    atomic_store(&e->condemned, why);
    atomic_store(&e->dead_seen, true);
    ring_wake(&e->inbox);
}

/* ---- the thread */

enum status eng_step(struct engine *e, uint64_t now_us, bool *did_work_out)
{
    ASSERT_THREAD(THREAD_ENGINE);
    return step_run(e, now_us, did_work_out);
}

/* Until there is something to do. Tiers go on when nobody asks: copies down, a store that is read back or waits to try
 * again. */
static void rest(struct engine *e)
{
    int64_t us = atomic_load(&e->n_live) ? WAIT_US : -1, events_us = -1;
    if (e->cfg.events) events_us = kv_events_sleep_us(e->cfg.events);
    if (us < 0 || (events_us >= 0 && events_us < us)) us = events_us;
    if (!e->tiers) {
        ring_wait(&e->inbox, us);
        return;
    }
    int64_t tiers_us = kv_tiers_sleep_us(e->tiers);
    if (us < 0 || tiers_us < us) us = tiers_us;
    if (!kv_tiers_arm(e->tiers)) return;
    ring_wait_with(&e->inbox, kv_tiers_fd(e->tiers), us);
    kv_tiers_ack(e->tiers);
}

static void *loop(void *arg)
{
    struct engine *e = arg;
    record_steps(e, RECORD_US_MAX);
    while (!atomic_load(&e->stop)) {
        bool did_work;
        step_run(e, e->clock(), &did_work);
        if (!did_work) rest(e);
    }
    return NULL;
}

enum status eng_start(struct engine *e)
{
    CHECK(!e->started);
    e->clock = clock_us;
    e->phases.on = true;
    e->rested = true;
    enum status st = thread_start(&e->thread, THREAD_ENGINE, "engine", loop, e);
    e->started = st == ST_OK;
    return st;
}

void eng_stop(struct engine *e)
{
    atomic_store(&e->closed, true);
    while (atomic_load(&e->n_submitting)) sched_yield();
    if (e->started) {
        atomic_store(&e->stop, true);
        ring_wake(&e->inbox);
        pthread_join(e->thread, NULL);
    }
    step_settle(e);
    step_fail_all(e, e->dead ? ENG_ERROR : ENG_CANCELED, e->dead ? ST_DEVICE : ST_OK);
    req_unpublish_all(e);
    step_publish(e);
    for (uint64_t end = clock_us() + STOP_WAIT_US; !req_deliver(e) && e->started && clock_us() < end;)
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    if (!list_empty(&e->retry))
        LOG_ERROR("eng: stopped with %u requests whose outbox is full, they get no answer", pool_used(&e->reqs));
    e->started = false;
}

/* ---- what others may see */

bool eng_idle(const struct engine *e) { return atomic_load(&e->n_live) == 0; }

struct kv *eng_kv(struct engine *e) { return e->kv; }

bool eng_alive(const struct engine *e, uint64_t now_us)
{
    if (atomic_load(&e->dead_seen)) return false;
    if (eng_idle(e)) return true;
    uint64_t last = atomic_load_explicit(&e->a.last_progress_us, memory_order_relaxed);
    uint64_t step = atomic_load_explicit(&e->a.step_us_ewma, memory_order_relaxed);
    uint64_t rows = atomic_load_explicit(&e->a.rows_now, memory_order_relaxed);
    uint64_t rows_us = atomic_load_explicit(&e->a.row_ns_ewma, memory_order_relaxed) * rows / 1000;
    if (!step) step = e->cfg.step_us_hint ? e->cfg.step_us_hint : STEP_US_HINT;
    if (rows_us > step) step = rows_us;
    uint64_t limit = step * ALIVE_STEPS > ALIVE_US ? step * ALIVE_STEPS : ALIVE_US;
    uint64_t awake = awake_since(now_us); /* while the whole process was stopped, no step could end */
    if (awake > last) last = awake;
    return now_us <= last || now_us - last <= limit;
}

bool eng_events_stats(const struct engine *e, struct kv_events_stats *out)
{
    if (e->cfg.events) kv_events_stats(e->cfg.events, out);
    return e->cfg.events != NULL;
}

bool eng_tiers_stats(struct engine *e, struct kv_tiers_stats *out)
{
    if (!e->tiers) return false;
    return snapshot_get(&e->tiers_stats, out);
}

bool eng_tiers_shape(const struct engine *e, struct kv_hand_shape *out)
{
    if (e->tiers) kv_tiers_shape(e->tiers, out);
    return e->tiers != NULL;
}

void eng_tiers_hand(struct engine *e, enum kv_hand want)
{
    if (!e->tiers) return;
    kv_tiers_hand(e->tiers, want);
    ring_wake(&e->inbox);
}

enum kv_hand eng_tiers_hand_is(const struct engine *e, int *slab_fd_out, int *index_fd_out)
{
    *slab_fd_out = *index_fd_out = -1;
    return e->tiers ? kv_tiers_hand_is(e->tiers, slab_fd_out, index_fd_out) : KV_SERVES;
}

size_t eng_dump(const struct engine *e, uint64_t now_us, char *text, size_t text_bytes)
{
    static_assert(ENG_DEPTH_MAX == 2, "older and newer");
    uint64_t first = atomic_load(&e->note[0].step), second = atomic_load(&e->note[1].step);
    uint32_t older = second && second < first;
    size_t   n = note_print(&e->note[older], now_us, text, text_bytes);
    return n + note_print(&e->note[!older], now_us, text + n, text_bytes - n);
}

static void times_get(const struct phase_times *t, struct eng_times *out)
{
    for (int i = 0; i < PHASE_TIMES; i++) out->time[i] = atomic_load_explicit(&t->time[i], memory_order_acquire);
    out->sum_us = atomic_load_explicit(&t->sum_us, memory_order_relaxed);
}

void eng_stats(const struct engine *e, struct eng_stats *out)
{
#define GET(field) atomic_load_explicit(&e->a.field, memory_order_relaxed)
    *out = (struct eng_stats){
        .n_running = GET(n_running),
        .n_waiting = atomic_load(&e->n_queued) + GET(n_resume),
        .waiting_tokens = atomic_load(&e->n_queued_tokens),
        .kv_blocks = e->cfg.n_block,
        .kv_used = GET(kv_used),
        .window_blocks = e->cfg.n_window,
        .window_used = GET(window_used),
        .n_window_passed = GET(n_window_passed),
        .n_window_evicted = GET(n_window_evicted),
        .n_step = GET(n_step),
        .n_prompt_tokens = GET(n_prompt_tokens),
        .n_cached_tokens = GET(n_cached_tokens),
        .n_generated = GET(n_generated),
        .n_preempted = GET(n_preempted),
        .n_query_tokens = GET(n_query_tokens),
        .n_hit_tokens = GET(n_hit_tokens),
        .n_borrowed = GET(n_borrowed),
        .n_nan = GET(n_nan),
        .n_undrawn = GET(n_undrawn),
        .kv_pinned = GET(kv_pinned),
        .n_pin_refused = GET(n_pin_refused),
        .n_resumed_tokens = GET(n_resumed_tokens),
        .n_below_query_tokens = GET(n_below_query_tokens),
        .last_progress_us = GET(last_progress_us),
        .step_us_ewma = GET(step_us_ewma),
        .busy = !eng_idle(e),
        .dead = atomic_load(&e->dead_seen),
        .broken = atomic_load(&e->broken_seen),
        .draining = atomic_load(&e->draining),
    };
    for (int i = 0; i < ENG_FINISHES; i++) out->n_finished[i] = GET(n_finished[i]);
    for (int i = 0; i < KV_EVICT_WHYS; i++) out->evicted[i] = GET(evicted[i]);
    for (int i = 0; i < ENG_SOURCES; i++) out->n_cached_from[i] = GET(n_cached_tier_tokens[i]);
    for (int i = 0; i < ENG_CLASSES; i++)
        out->queued[i] = atomic_load_explicit(&e->n_queued_as[i], memory_order_relaxed);
#undef GET
    const struct pace *p = &e->pace;
    out->n_row = atomic_load_explicit(&p->n_row, memory_order_relaxed);
    for (int i = 0; i < PHASES; i++) out->phase_us[i] = atomic_load_explicit(&e->phases.us[i], memory_order_relaxed);
    times_get(&e->phases.host, &out->host);
    times_get(&e->phases.gap, &out->gap);
    out->step_us = atomic_load_explicit(&p->sum_us, memory_order_relaxed);
    out->step_slow = (double)atomic_load_explicit(&p->slow_milli, memory_order_relaxed) / 1e3;
    for (int i = 0; i < PACE_SIZES; i++) out->step_rows[i] = atomic_load_explicit(&p->rows[i], memory_order_relaxed);
    for (int i = 0; i < PACE_TIMES; i++) out->step_times[i] = atomic_load_explicit(&p->time[i], memory_order_relaxed);
}
