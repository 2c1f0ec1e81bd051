#include "engine/step.h"
#include "base/check.h"
#include "base/ewma.h"
#include "base/log.h"
#include "engine/req.h"
#include <inttypes.h>

/* ---- who comes, who is failed */

static void drain_inbox(struct engine *e)
{
    for (struct refusal *x; (x = ring_pop(&e->refused));) req_refuse(e, x);
    for (struct eng_request *r; (r = ring_pop(&e->inbox));) req_accept(e, r);
}

void step_fail_all(struct engine *e, enum eng_finish finish, enum status why)
{
    drain_inbox(e);
    LIST_EACH(it, &e->live) req_finish(e, LIST_ENTRY(it, struct req, live), finish, why, false);
}

/* ---- before the plan: what has ended meanwhile */

static void sweep_canceled(struct engine *e)
{
    LIST_EACH(it, &e->live) {
        struct req *q = LIST_ENTRY(it, struct req, live);
        if (atomic_load_explicit(&q->r->canceled, memory_order_acquire)) req_finish(e, q, ENG_CANCELED, ST_OK, false);
    }
}

static void sweep_deadlines(struct engine *e)
{
    uint64_t next = UINT64_MAX;
    LIST_EACH(it, &e->live) {
        struct req *q = LIST_ENTRY(it, struct req, live);
        uint64_t    deadline = q->r->deadline_us;
        if (!deadline) continue;
        if (deadline <= e->now_us)
            req_finish(e, q, ENG_TIMEOUT, ST_OK, false);
        else if (deadline < next)
            next = deadline;
    }
    e->next_deadline_us = next;
}

static bool choice_canceled(const struct seq *s) { return atomic_load_explicit(&s->c->canceled, memory_order_acquire); }

/* Choices given up one by one come without a message: those that run or wait to go on are looked at. One
 * that forks has to wait until its siblings have their blocks. */
static void sweep_choices(struct engine *e)
{
    struct sched *sc = &e->sched;
    for (uint32_t i = sc->n_running; i-- > 0;)
        if (choice_canceled(sc->running[i]) && !sc->running[i]->forking)
            req_finish_seq(e, sc->running[i], ENG_CANCELED);
    LIST_EACH(it, &sc->resume) {
        struct seq *s = LIST_ENTRY(it, struct seq, link);
        if (choice_canceled(s)) req_finish_seq(e, s, ENG_CANCELED);
    }
}

/* A grammar that has come to a bound, or to a place where no token goes on: that request ends with an error. */
static void sweep_guides(struct engine *e)
{
    for (uint32_t i = e->sched.n_running; i-- > 0;) {
        struct seq *s = e->sched.running[i];
        if (!s->c->guide || s->forking || guide_state(s->c->guide) != GUIDE_FAILED) continue;
        LOG_WARN_LIMITED("eng: the grammar of request %016" PRIx64 " cannot go on, it ends with an error", s->r->id);
        req_finish(e, s->q, ENG_ERROR, ST_TOO_LARGE, false);
        return; /* all its choices have left the list; another request's turn is the next step */
    }
}

static void sweep(struct engine *e)
{
    bool canceled =
        atomic_exchange(&e->cancel_pending, false); /* before the inbox: a cancel may follow its own submit */
    drain_inbox(e);
    uint64_t drain_deadline = atomic_load_explicit(&e->drain_deadline_us, memory_order_relaxed);
    if (drain_deadline && drain_deadline <= e->now_us && atomic_load(&e->draining))
        step_fail_all(e, ENG_CANCELED, ST_OK);
    if (canceled) sweep_canceled(e);
    if (e->next_deadline_us <= e->now_us) sweep_deadlines(e);
    sweep_choices(e);
    sweep_guides(e);
}

/* ---- the step */

void step_publish(struct engine *e)
{
    struct kv_stats k;
    kv_stats(e->kv, &k);
    atomic_store_explicit(&e->a.n_running, e->sched.n_running, memory_order_relaxed);
    atomic_store_explicit(&e->a.n_resume, e->sched.n_resume, memory_order_relaxed);
    atomic_store_explicit(&e->a.kv_used, e->cfg.n_block - kv_available_count(e->kv), memory_order_relaxed);
    atomic_store_explicit(&e->a.n_preempted, e->sched.n_preempted, memory_order_relaxed);
    atomic_store_explicit(&e->a.n_prompt_tokens, e->sched.n_prompt_tokens, memory_order_relaxed);
    atomic_store_explicit(&e->a.n_cached_tokens, e->sched.n_cached_tokens, memory_order_relaxed);
    atomic_store_explicit(&e->a.n_query_tokens, k.n_query_tokens, memory_order_relaxed);
    atomic_store_explicit(&e->a.n_hit_tokens, k.n_hit_tokens, memory_order_relaxed);
    for (int i = 0; i < KV_EVICT_WHYS; i++) atomic_store_explicit(&e->a.evicted[i], k.evicted[i], memory_order_relaxed);
    atomic_store_explicit(&e->a.kv_pinned, k.n_pinned, memory_order_relaxed);
    atomic_store_explicit(&e->a.window_used, e->cfg.n_window - k.n_window_free - k.n_window_idle, memory_order_relaxed);
    atomic_store_explicit(&e->a.n_window_passed, k.n_window_passed, memory_order_relaxed);
    atomic_store_explicit(&e->a.n_window_evicted, k.n_window_evicted, memory_order_relaxed);
    atomic_store_explicit(&e->a.n_pin_refused, k.n_pin_refused, memory_order_relaxed);
    atomic_store_explicit(&e->a.n_borrowed, k.n_borrowed, memory_order_relaxed);
    atomic_store_explicit(&e->a.n_resumed_tokens, e->sched.n_resumed_tokens, memory_order_relaxed);
    atomic_store_explicit(&e->a.n_below_query_tokens, e->sched.n_below_query_tokens, memory_order_relaxed);
    for (int i = 0; i < ENG_SOURCES; i++)
        atomic_store_explicit(&e->a.n_cached_tier_tokens[i], e->sched.n_cached_from[i], memory_order_relaxed);
    if (e->tiers) {
        struct kv_tiers_stats t;
        kv_tiers_stats(e->tiers, &t);
        snapshot_put(&e->tiers_stats, &t);
    }
}

/* A step has ended. Its time counts from when the device could begin with it. */
static void progress(struct engine *e, const struct flight *f, uint64_t now_us)
{
    uint64_t begin_us = f->submit_us > e->done_us ? f->submit_us : e->done_us, us = now_us - begin_us;
    uint32_t n_row = f->batch.n_row;
    if (us) {
        uint64_t step = atomic_load_explicit(&e->a.step_us_ewma, memory_order_relaxed);
        uint64_t row = atomic_load_explicit(&e->a.row_ns_ewma, memory_order_relaxed);
        atomic_store_explicit(&e->a.step_us_ewma, ewma_u64(step, us), memory_order_relaxed);
        atomic_store_explicit(&e->a.row_ns_ewma, ewma_u64(row, us * 1000 / n_row), memory_order_relaxed);
    }
    e->done_us = now_us;
    atomic_store_explicit(&e->a.last_progress_us, now_us, memory_order_relaxed);
    step_count(&e->a.n_step, 1);
    pace_add(&e->pace, n_row, us);
}

static struct flight *flight_at(struct engine *e, uint32_t i) { return &e->flight[(e->first + i) % e->depth]; }

static void publish_rows(struct engine *e) /* of the largest step in flight */
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < e->n_flight; i++) n = flight_at(e, i)->batch.n_row > n ? flight_at(e, i)->batch.n_row : n;
    if (n) atomic_store_explicit(&e->a.rows_now, n, memory_order_relaxed);
}

/* Of a device that works by itself the masks are made while it works: for the half of a step that costs nobody
 * anything. One that has done its work when submit returns waits for a part of a step. */
static void await_masks(struct engine *e)
{
    enum { PART_OF_STEP = 2, PART_OF_DONE = 8, WAIT_US_MAX = 5000 };
    uint64_t part_us = atomic_load_explicit(&e->a.step_us_ewma, memory_order_relaxed) /
                       (e->runner.computes ? PART_OF_DONE : PART_OF_STEP);
    if (e->clock) guides_await(e->guides, 0, part_us < WAIT_US_MAX ? part_us : WAIT_US_MAX, e->clock);
}

/* The draws of a step that was submitted without them. */
static void draw(struct engine *e, struct flight *f)
{
    if (!f->late) return;
    f->late = false;
    flight_masks(e, f);
    e->runner.draw(e->runner.ctx, &f->batch);
}

static enum status wait_oldest(struct engine *e, struct flight **f_out)
{
    struct note *note = &e->note[e->first];
    *f_out = flight_at(e, 0);
    draw(e, *f_out);
    e->first = (e->first + 1) % e->depth;
    e->n_flight--;
    enum status st = e->runner.wait(e->runner.ctx, &(*f_out)->batch);
    note_drop(note);
    return st;
}

void step_settle(struct engine *e)
{
    struct flight *f;
    while (e->n_flight) wait_oldest(e, &f);
}

/* Nothing is served any more: everybody is failed by the caller. */
static enum status die(struct engine *e, const char *why)
{
    e->dead = true;
    atomic_store(&e->dead_seen, true);
    LOG_ERROR("eng: step %" PRIu64 " failed (%s), failing %u running and %u waiting, serving ends",
              atomic_load_explicit(&e->a.n_step, memory_order_relaxed) + 1, why, e->sched.n_running,
              e->sched.n_resume + e->sched.fair.n_waiting);
    step_settle(e);
    return ST_DEVICE;
}

/* A part of the turn has ended. */
static void ends(struct engine *e, enum phase which)
{
    if (e->phases.on) phase_end(&e->phases, which, e->clock());
}

/* Waits for the oldest step in flight and applies what came of it. */
static enum status land(struct engine *e)
{
    struct flight *f;
    enum status    st = wait_oldest(e, &f);
    if (st == ST_STEP) {
        LOG_WARN("eng: step %" PRIu64 " could not be run, its requests end with an error",
                 atomic_load_explicit(&e->a.n_step, memory_order_relaxed) + 1);
        flight_fail(e, f);
    } else if (st) {
        if (st == ST_BROKEN) atomic_store(&e->broken_seen, true);
        return die(e, status_name(st));
    }
    uint64_t done_us = e->clock ? e->clock() : e->now_us;
    if (e->phases.on) phase_end(&e->phases, PHASE_WAIT, done_us);
    if (!st) flight_apply(e, f, done_us);
    progress(e, f, done_us);
    publish_rows(e);
    ends(e, PHASE_APPLY);
    return ST_OK;
}

/* Ends those that the plan has refused. */
static void end_cold(struct engine *e)
{
    while (!list_empty(&e->sched.cold))
        req_finish(e, LIST_ENTRY(e->sched.cold.next, struct seq, link)->q, ENG_UNCACHED, ST_OK, false);
}

/* Where steps cannot draw late, a guided choice takes no part in the step over its own (docs/design/overlap.md). Where
 * they are many, two steps in flight would have half of them each, and go on so. */
static bool mostly_guided(const struct engine *e)
{
    uint32_t n = 0;
    if (e->sched.draws_late) return false;
    for (uint32_t i = 0; i < e->sched.n_running; i++) n += e->sched.running[i]->c->guide != NULL;
    return 2 * n > e->sched.n_running;
}

/* All that run take the same step: the one in flight is waited for, and for a part of a step's time the masks. Whoever
 * is late even so sits out, and is back with all others in the next step. */
static enum status gather(struct engine *e)
{
    enum { PART_OF_STEP = 8, LATE_ONE_OF = 32, WAIT_US_MAX = 5000 };
    enum status st = ST_OK;
    while (!st && e->n_flight) st = land(e);
    if (st || !e->clock) return st;
    uint64_t part_us = atomic_load_explicit(&e->a.step_us_ewma, memory_order_relaxed) / PART_OF_STEP;
    guides_await(e->guides, e->sched.n_running / LATE_ONE_OF, part_us < WAIT_US_MAX ? part_us : WAIT_US_MAX, e->clock);
    e->now_us = e->clock();
    return ST_OK;
}

/* Plans a step, over the one in flight where that can be. */
static enum status plan(struct engine *e)
{
    enum status gathered = mostly_guided(e) ? gather(e) : ST_OK;
    if (gathered) return gathered;
    if (sched_plan(&e->sched, ++e->n_plan, e->now_us, e->n_flight > 0)) return ST_OK;
    enum status st = land(e);
    if (st) return st;
    bool planned = sched_plan(&e->sched, ++e->n_plan, e->now_us, false);
    CHECK(planned);
    return ST_OK;
}

static void submit(struct engine *e)
{
    struct flight *f = flight_at(e, e->n_flight);
    ends(e, PHASE_PLAN);
    flight_fill(e, f);
    f->submit_us = e->now_us;
    e->n_flight++;
    e->n_submitted++;
    note_take(&e->note[f - e->flight], f, e->n_submitted);
    publish_rows(e);
    ends(e, PHASE_FILL);
    if (e->n_flight == 1 && !e->rested)
        phase_gap(&e->phases, e->phases.at_us > e->done_us ? e->phases.at_us - e->done_us : 0);
    e->rested = false;
    e->runner.submit(e->runner.ctx, &f->batch);
    ends(e, e->runner.computes ? PHASE_WAIT : PHASE_SUBMIT);
}

/* The tokens of all steps before are known, and what their masks need: the last step in flight gets its draws. */
static void draw_in_time(struct engine *e)
{
    struct flight *f = flight_at(e, 0);
    if (!f->late) return;
    await_masks(e);
    draw(e, f);
    ends(e, PHASE_SUBMIT);
}

static bool has_nothing_to_do(const struct engine *e)
{
    return !e->n_flight && !e->sched.n_running && !e->sched.n_resume && !e->sched.fair.n_waiting;
}

/* A block that the tiers want computed again: a step of its own, whose rows sample nothing. It waits for what is in
 * flight, and who comes meanwhile waits for as many rows as a block has. */
static enum status audit(struct engine *e, bool *did_work_out)
{
    struct kv_audit_rows rows;
    enum status          st = ST_OK;
    if (!kv_tiers_audit(e->tiers, has_nothing_to_do(e), &rows)) return ST_OK;
    while (!st && e->n_flight) st = land(e);
    if (st) {
        kv_tiers_audited(e->tiers, st);
        return st;
    }
    batch_clear(&e->audit);
    batch_add(&e->audit, rows.ids, rows.n, rows.first, rows.page, rows.n_page);
    if (rows.win) batch_window(&e->audit, rows.win, rows.n_page);
    atomic_store_explicit(&e->a.rows_now, rows.n, memory_order_relaxed);
    st = eng_run(&e->runner, &e->audit);
    kv_tiers_audited(e->tiers, st);
    *did_work_out = true;
    if (e->clock) atomic_store_explicit(&e->a.last_progress_us, e->clock(), memory_order_relaxed);
    if (st == ST_OK || st == ST_STEP) return ST_OK;
    if (st == ST_BROKEN) atomic_store(&e->broken_seen, true);
    return die(e, status_name(st));
}

/* What lies in the device's cache is in doubt: those that run compute all of it again, when the tiers have emptied
 * it. */
static enum status recompute(struct engine *e)
{
    enum status st = ST_OK;
    while (!st && e->n_flight) st = land(e);
    if (!st && e->sched.n_running) LOG_WARN("eng: %u running sequences compute their prefix again", e->sched.n_running);
    if (st) return st;
    sched_recompute(&e->sched);
    kv_tiers_all_gave_way(e->tiers);
    return ST_OK;
}

static enum status turn(struct engine *e, bool *did_work_out)
{
    enum status st = ST_OK;
    sweep(e);
    kv_tick(e->kv, e->now_us);
    ends(e, PHASE_MESSAGES);
    if (e->tiers) {
        kv_tiers_steps(e->tiers, e->n_submitted, e->n_submitted - e->n_flight);
        kv_tiers_turn(e->tiers);
        st = kv_tiers_purges(e->tiers) ? recompute(e) : audit(e, did_work_out);
        if (st) return st;
        e->sched.us_per_token = (double)atomic_load_explicit(&e->a.row_ns_ewma, memory_order_relaxed) / 1e3;
        ends(e, PHASE_TIERS);
    }
    *did_work_out |= e->n_flight > 0;
    st = plan(e);
    if (st) return st;
    end_cold(e);
    bool planned = e->sched.n_plan > 0;
    *did_work_out |= planned;
    if (planned)
        submit(e);
    else
        ends(e, PHASE_PLAN);
    if (e->n_flight == 1) draw_in_time(e);
    while (!st && (e->n_flight >= e->depth || (!planned && e->n_flight))) st = land(e);
    if (!st && e->n_flight == 1) draw_in_time(e);
    return st;
}

enum status step_run(struct engine *e, uint64_t now_us, bool *did_work_out)
{
    e->now_us = now_us;
    *did_work_out = false;
    phase_begin(&e->phases, now_us);
    const char *why = atomic_load_explicit(&e->condemned, memory_order_relaxed);
    enum status st = ST_OK;
    if (e->dead)
        st = ST_DEVICE;
    else if (why)
        st = die(e, why);
    if (!st) {
        atomic_store_explicit(&e->a.last_progress_us, now_us, memory_order_relaxed);
        st = turn(e, did_work_out);
        if (e->cfg.events) kv_events_turn(e->cfg.events);
    }
    if (st) {
        step_fail_all(e, ENG_ERROR, ST_DEVICE);
        req_unpublish_all(e);
    }
    step_publish(e);
    (void)req_deliver(e);
    ends(e, PHASE_PUBLISH);
    phase_turn(&e->phases, *did_work_out);
    if (!*did_work_out) e->rested = true;
    return st;
}
