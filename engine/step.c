#include "engine/step.h"
#include "base/check.h"
#include "base/log.h"
#include <inttypes.h>

static void count(_Atomic uint64_t *c, uint64_t n) { atomic_fetch_add_explicit(c, n, memory_order_relaxed); }

/* ---- messages to the submitter */

static void notify(struct engine *e, struct req *q)
{
    if (atomic_exchange_explicit(&q->r->notified, true, memory_order_acq_rel)) return; /* one is on its way and will see this too */
    if (ring_push(q->r->outbox, q->r)) return;
    if (list_empty(&q->retry)) list_add_tail(&e->retry, &q->retry);
}

/* The last thing that is done with a request. false: the outbox is full. */
static bool deliver_final(struct engine *e, struct req *q)
{
    uint32_t n_choice = q->r->n_choice;
    if (!ring_push(q->r->outbox, (void *)((uintptr_t)q->r | 1u))) return false;
    list_del(&q->retry);
    pool_put(&e->reqs, q);
    atomic_fetch_sub(&e->n_live, n_choice);
    return true;
}

bool step_retry_outbox(struct engine *e)
{
    LIST_EACH(it, &e->retry) {
        struct req *q = LIST_ENTRY(it, struct req, retry);
        if (q->final) {
            deliver_final(e, q);
        } else if (ring_push(q->r->outbox, q->r)) {
            list_del(&q->retry);
        }
    }
    return list_empty(&e->retry);
}

/* ---- ends */

static void unqueue(struct engine *e, struct req *q)
{
    if (!q->queued) return;
    q->queued = false;
    atomic_fetch_sub(&e->n_queued, 1);
    atomic_fetch_sub(&e->n_queued_tokens, q->r->n_prompt);
}

static void finish_choice(struct engine *e, struct req *q, struct eng_choice *c, enum eng_finish finish)
{
    q->n_done++;
    count(&e->a.n_finished[finish], 1);
    atomic_store_explicit(&c->finish, (int)finish, memory_order_release); /* after n_out: who sees it sees all tokens */
}

static void finalize(struct engine *e, struct req *q)
{
    CHECK(!q->final);
    CHECK(list_empty(&q->seqs));
    q->final = true;
    unqueue(e, q);
    fair_leave(&e->sched.fair, q->tenant);
    list_del(&q->live);
    q->r->priv = NULL;
    if (!deliver_final(e, q) && list_empty(&q->retry)) list_add_tail(&e->retry, &q->retry);
}

static struct seq *spawn(struct engine *e, struct req *q)
{
    struct seq *s = pool_get(&e->seqs);
    CHECK(s); /* eng_submit counts choices against this pool */
    seq_init(s, q, q->n_spawned++);
    return s;
}

static void end_seq(struct engine *e, struct seq *s, enum eng_finish finish, bool discard)
{
    struct req *q = s->q;
    sched_remove(&e->sched, s, discard);
    list_del(&s->of_req);
    finish_choice(e, q, s->c, finish);
    pool_put(&e->seqs, s);
}

/* One choice ends. Where it was to compute the prompt for its siblings the next of them takes its place. */
static void finish_seq(struct engine *e, struct seq *s, enum eng_finish finish)
{
    struct req *q = s->q;
    bool        lead = s->lead;
    end_seq(e, s, finish, false);
    if (lead && q->n_spawned < q->r->n_choice) {
        struct seq *next = spawn(e, q);
        next->lead = true;
        sched_resume(&e->sched, next);
    }
    if (q->n_done == q->r->n_choice) finalize(e, q);
}

static void finish_request(struct engine *e, struct req *q, enum eng_finish finish, enum status why, bool discard)
{
    struct eng_request *r = q->r;
    r->status = finish == ENG_ERROR ? why : ST_OK;
    while (q->n_spawned < r->n_choice) finish_choice(e, q, &r->choice[q->n_spawned++], finish);
    LIST_EACH(it, &q->seqs) end_seq(e, LIST_ENTRY(it, struct seq, of_req), finish, discard);
    CHECK(q->n_done == r->n_choice);
    finalize(e, q);
}

/* ---- beginnings */

static void accept(struct engine *e, struct eng_request *r)
{
    struct req *q = pool_get(&e->reqs);
    CHECK(q);
    q->r = r;
    q->arrival = ++e->n_arrival;
    q->queued = true;
    list_init(&q->retry);
    list_init(&q->seqs);
    list_add_tail(&e->live, &q->live);
    q->tenant = fair_enter(&e->sched.fair, r->tenant);
    r->priv = q;
    r->status = ST_OK;
    r->n_cached = r->n_preempted = 0;
    r->t_sched_us = r->t_first_us = r->t_last_us = 0;
    if (!r->t_submit_us) r->t_submit_us = e->now_us;
    if (atomic_load_explicit(&r->canceled, memory_order_relaxed)) {
        finish_request(e, q, ENG_CANCELED, ST_OK, false);
        return;
    }
    if (r->deadline_us && r->deadline_us < e->next_deadline_us) e->next_deadline_us = r->deadline_us;
    struct seq *lead = spawn(e, q);
    lead->lead = true;
    sched_enqueue(&e->sched, lead, e->now_us);
}

static void drain_inbox(struct engine *e)
{
    for (struct eng_request *r; (r = ring_pop(&e->inbox));) accept(e, r);
}

void step_fail_all(struct engine *e, enum eng_finish finish, enum status why)
{
    drain_inbox(e);
    LIST_EACH(it, &e->live) finish_request(e, LIST_ENTRY(it, struct req, live), finish, why, false);
}

/* ---- before the plan: what has ended meanwhile */

static void sweep_canceled(struct engine *e)
{
    LIST_EACH(it, &e->live) {
        struct req *q = LIST_ENTRY(it, struct req, live);
        if (atomic_load_explicit(&q->r->canceled, memory_order_acquire)) finish_request(e, q, ENG_CANCELED, ST_OK, false);
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
            finish_request(e, q, ENG_TIMEOUT, ST_OK, false);
        else if (deadline < next)
            next = deadline;
    }
    e->next_deadline_us = next;
}

static bool choice_canceled(const struct seq *s) { return atomic_load_explicit(&s->c->canceled, memory_order_acquire); }

/* Choices given up one by one come without a message: those that run or wait to go on are looked at. */
static void sweep_choices(struct engine *e)
{
    struct sched *sc = &e->sched;
    for (uint32_t i = sc->n_running; i-- > 0;)
        if (choice_canceled(sc->running[i])) finish_seq(e, sc->running[i], ENG_CANCELED);
    LIST_EACH(it, &sc->resume) {
        struct seq *s = LIST_ENTRY(it, struct seq, link);
        if (choice_canceled(s)) finish_seq(e, s, ENG_CANCELED);
    }
}

static void sweep(struct engine *e)
{
    bool canceled = atomic_exchange(&e->cancel_pending, false); /* before the inbox: a cancel may follow its own submit */
    drain_inbox(e);
    uint64_t drain_deadline = atomic_load_explicit(&e->drain_deadline_us, memory_order_relaxed);
    if (drain_deadline && drain_deadline <= e->now_us && atomic_load(&e->draining)) step_fail_all(e, ENG_CANCELED, ST_OK);
    if (canceled) sweep_canceled(e);
    if (e->next_deadline_us <= e->now_us) sweep_deadlines(e);
    sweep_choices(e);
}

/* ---- the batch */

/* All choices whose request has its prompt computed in this step sample their first token from the same row. */
static void spawn_siblings(struct engine *e, struct seq *lead)
{
    struct req *q = lead->q;
    lead->lead = false;
    while (q->n_spawned < q->r->n_choice) {
        struct eng_choice *c = &q->r->choice[q->n_spawned];
        if (atomic_load_explicit(&c->canceled, memory_order_acquire)) {
            q->n_spawned++;
            finish_choice(e, q, c, ENG_CANCELED);
            continue;
        }
        struct seq *kid = spawn(e, q);
        if (sched_sibling(&e->sched, kid, lead))
            e->sampled[e->n_sampled++] = kid;
        else
            sched_resume(&e->sched, kid);
    }
}

static void fill_batch(struct engine *e)
{
    struct batch *b = &e->batch;
    struct sched *sc = &e->sched;
    batch_clear(b);
    e->n_sampled = 0;
    for (uint32_t i = 0; i < sc->n_plan; i++) {
        struct seq *s = sc->plan[i];
        uint32_t    end = s->n_computed + s->n_step, bt = e->cfg.block_tokens;
        s->row = batch_add(b, s->id + s->n_computed, s->n_step, s->n_computed, s->kv.block, (end - 1) / bt + 1);
        if (s->n_copy) batch_add_copy(b, s->copy);
        unqueue(e, s->q);
        if (!s->samples) continue;
        e->sampled[e->n_sampled++] = s;
        uint32_t first = e->n_sampled;
        if (s->lead) spawn_siblings(e, s);
        for (uint32_t k = first - 1; k < e->n_sampled; k++)
            sample_add(b, e->sampled[k], e->sampled[k]->id, s->row + s->n_step - 1, &e->limits, e->cfg.vocab);
    }
    for (uint32_t i = 0; i < sc->n_plan; i++) {
        const struct seq         *s = sc->plan[i];
        const struct eng_request *r = s->r;
        if (!r->s.prompt_logprobs) continue;
        uint32_t p = s->n_computed > s->q->n_lp ? s->n_computed : s->q->n_lp;
        for (; p < s->n_computed + s->n_step && p + 1 < r->n_prompt; p++)
            batch_add_lp(b, s->row + p - s->n_computed, r->prompt[p + 1], r->s.n_prompt_top);
    }
}

/* ---- the results */

static void store_prompt_logprobs(struct engine *e)
{
    const struct batch *b = &e->batch;
    uint32_t            k = 0;
    for (uint32_t i = 0; i < e->sched.n_plan && k < b->n_prompt_lp; i++) { /* the same walk as in fill_batch */
        const struct seq   *s = e->sched.plan[i];
        struct eng_request *r = s->r;
        if (!r->s.prompt_logprobs) continue;
        uint32_t p = s->n_computed > s->q->n_lp ? s->n_computed : s->q->n_lp, n_top = r->s.n_prompt_top;
        for (; p < s->n_computed + s->n_step && p + 1 < r->n_prompt; p++, k++) {
            r->prompt_logprob[p + 1] = b->out.lp[k];
            if (r->prompt_rank) r->prompt_rank[p + 1] = b->out.lp_rank[k];
            for (uint32_t j = 0; r->prompt_top && j < n_top; j++) {
                size_t from = (size_t)k * OP_SAMPLE_TOP_MAX + j;
                r->prompt_top[(size_t)(p + 1) * n_top + j] = (struct eng_top){ b->out.lp_top_id[from], b->out.lp_top[from] };
            }
            s->q->n_lp = p + 1;
        }
    }
}

static void append(struct engine *e, struct seq *s, uint32_t i, uint64_t now_us)
{
    const struct batch *b = &e->batch;
    struct seq_token    t = { .id = b->out.id[i],
                              .logprob = b->out.logprob[i],
                              .top_id = b->out.top_id + (size_t)i * OP_SAMPLE_TOP_MAX,
                              .top_logprob = b->out.top_logprob + (size_t)i * OP_SAMPLE_TOP_MAX };
    struct eng_request *r = s->r;
    if (!r->t_first_us) r->t_first_us = now_us;
    r->t_last_us = now_us;
    enum eng_finish finish = seq_append(s, &t, &e->limits);
    fair_charge(s->q->tenant, 1);
    count(&e->a.n_generated, 1);
    if (finish == ENG_NONE) {
        notify(e, s->q);
        return;
    }
    struct req *q = s->q;
    bool        last = q->n_done + 1 == r->n_choice;
    finish_seq(e, s, finish); /* the final message of the last choice is notification enough; r may be gone after it */
    if (!last) notify(e, q);
}

static void apply(struct engine *e, uint64_t now_us)
{
    struct batch *b = &e->batch;
    struct sched *sc = &e->sched;
    store_prompt_logprobs(e);
    for (uint32_t k = 0, lead = 0; k < e->n_sampled; k++) { /* siblings stand behind their lead, on the same row */
        if (!e->sampled[k]->fork_of)
            lead = k;
        else if (b->out.id[lead] == UINT32_MAX)
            b->out.id[k] = UINT32_MAX;
    }
    /* A NaN in a row means that the KV behind it is in doubt: nothing of this step is shared, and the request ends alone. */
    for (uint32_t i = 0, k = 0; i < sc->n_plan; i++) {
        struct seq *s = sc->plan[i];
        while (s->samples && e->sampled[k] != s) k++;
        if (!s->samples || b->out.id[k] != UINT32_MAX) sched_commit(sc, s);
    }
    for (uint32_t k = 0; k < e->n_sampled; k++)
        if (e->sampled[k]->fork_of && b->out.id[k] != UINT32_MAX) sched_fork(sc, e->sampled[k]);
    for (uint32_t k = 0; k < e->n_sampled; k++) {
        if (b->out.id[k] == UINT32_MAX) continue;
        append(e, e->sampled[k], k, now_us);
        e->sampled[k] = NULL; /* may have ended */
    }
    for (uint32_t k = 0; k < e->n_sampled; k++) {
        if (!e->sampled[k]) continue;
        struct req *q = e->sampled[k]->q;
        for (uint32_t j = k; j < e->n_sampled; j++)
            if (e->sampled[j] && e->sampled[j]->q == q) e->sampled[j] = NULL;
        LOG_WARN("eng: request %" PRIu64 " has NaN logits, it ends with an error", q->r->id);
        finish_request(e, q, ENG_ERROR, ST_INVALID, true);
    }
    e->n_sampled = 0;
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
}

static uint64_t ewma(uint64_t old, uint64_t v) { return old ? old - old / 8 + v / 8 : v; }

static void progress(struct engine *e, uint64_t now_us, uint32_t n_row)
{
    uint64_t us = now_us - e->now_us;
    if (us) {
        uint64_t step = atomic_load_explicit(&e->a.step_us_ewma, memory_order_relaxed);
        uint64_t row = atomic_load_explicit(&e->a.row_ns_ewma, memory_order_relaxed);
        atomic_store_explicit(&e->a.step_us_ewma, ewma(step, us), memory_order_relaxed);
        atomic_store_explicit(&e->a.row_ns_ewma, ewma(row, us * 1000 / n_row), memory_order_relaxed);
    }
    atomic_store_explicit(&e->a.last_progress_us, now_us, memory_order_relaxed);
}

enum status step_run(struct engine *e, uint64_t now_us, bool *did_work_out)
{
    e->now_us = now_us;
    *did_work_out = false;
    step_retry_outbox(e);
    if (e->dead) {
        step_fail_all(e, ENG_ERROR, ST_DEVICE);
        step_publish(e);
        return ST_DEVICE;
    }
    atomic_store_explicit(&e->a.last_progress_us, now_us, memory_order_relaxed);
    sweep(e);
    uint64_t step = atomic_load_explicit(&e->a.n_step, memory_order_relaxed) + 1;
    sched_plan(&e->sched, step, now_us);
    if (!e->sched.n_plan) {
        step_publish(e);
        return ST_OK;
    }
    fill_batch(e);
    uint32_t n_row = e->batch.d.n_row;
    atomic_store_explicit(&e->a.rows_now, n_row, memory_order_relaxed);
    enum status st = e->runner.run(e->runner.ctx, &e->batch);
    *did_work_out = true;
    if (st) {
        e->dead = true;
        atomic_store(&e->dead_seen, true);
        LOG_ERROR("eng: step %" PRIu64 " failed (%s), failing %u running and %u waiting, serving ends", step, status_name(st),
                  e->sched.n_running, e->sched.n_resume + e->sched.fair.n_waiting);
        step_fail_all(e, ENG_ERROR, ST_DEVICE);
        step_publish(e);
        return ST_DEVICE;
    }
    uint64_t done_us = e->clock ? e->clock() : now_us;
    apply(e, done_us);
    count(&e->a.n_step, 1);
    count(&e->a.n_row, n_row);
    int bucket = 0;
    while (bucket < ENG_STEP_BUCKETS - 1 && n_row > eng_step_rows[bucket]) bucket++;
    count(&e->a.step_rows[bucket], 1);
    progress(e, done_us, n_row);
    step_publish(e);
    return ST_OK;
}
