#include "engine/req.h"
#include "base/check.h"
#include "engine/step.h"
#include <stdlib.h>

/* ---- messages to the submitter */

void req_notify(struct engine *e, struct req *q)
{
    if (atomic_exchange_explicit(&q->r->notified, true, memory_order_acq_rel))
        return; /* one is on its way and will see this too */
    if (ring_push(q->r->outbox, q->r)) return;
    if (list_empty(&q->retry)) list_add_tail(&e->retry, &q->retry);
}

static bool is_making(const struct req *q) { return q->r->parcel && q->r->parcel->state == KV_PARCEL_MAKING; }

/* The last thing that is done with a request, unless its outbox is full or its prompt is not kept yet. */
static void deliver_final(struct engine *e, struct req *q)
{
    uint32_t n_choice = q->r->n_choice;
    if (is_making(q)) return;
    if (!ring_push(q->r->outbox, (void *)((uintptr_t)q->r | 1u))) return;
    list_del(&q->retry);
    pool_put(&e->reqs, q);
    atomic_fetch_sub(&e->n_live, n_choice);
}

bool req_deliver(struct engine *e)
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

void req_unpublish_all(struct engine *e)
{
    LIST_EACH(it, &e->retry) {
        struct req *q = LIST_ENTRY(it, struct req, retry);
        if (q->final && is_making(q)) kv_tiers_unpublish(e->tiers, q->r->parcel);
    }
}

/* ---- ends */

void req_unqueue(struct engine *e, struct req *q)
{
    if (!q->queued) return;
    q->queued = false;
    atomic_fetch_sub(&e->n_queued, 1);
    atomic_fetch_sub(&e->n_queued_tokens, q->r->n_prompt);
    atomic_fetch_sub_explicit(&e->n_queued_as[eng_class_of(q->r)], 1, memory_order_relaxed);
}

void req_finish_choice(struct engine *e, struct req *q, struct eng_choice *c, enum eng_finish finish)
{
    q->n_done++;
    step_count(&e->a.n_finished[finish], 1);
    atomic_store_explicit(&c->finish, (int)finish, memory_order_release); /* after n_out: who sees it sees all tokens */
}

static void finalize(struct engine *e, struct req *q)
{
    CHECK(!q->final);
    CHECK(list_empty(&q->seqs));
    q->final = true;
    req_unqueue(e, q);
    fair_leave(&e->sched.fair, q->tenant);
    list_del(&q->live);
    if (q->begun) atomic_fetch_sub(&q->r->adapter->n_begun, 1);
    if (q->r->adapter) atomic_fetch_sub(&q->r->adapter->n_live, 1);
    q->r->priv = NULL;
    if (list_empty(&q->retry)) list_add_tail(&e->retry, &q->retry);
}

struct seq *req_spawn(struct engine *e, struct req *q)
{
    struct seq *s = pool_get(&e->seqs);
    CHECK(s); /* eng_submit counts choices against this pool */
    seq_init(s, q, q->n_spawned++);
    return s;
}

static void end_seq(struct engine *e, struct seq *s, enum eng_finish finish, bool discard)
{
    struct req *q = s->q;
    bool        whole = finish == ENG_STOP || finish == ENG_LENGTH;
    if (finish == ENG_CANCELED) whole = !atomic_load(&q->r->canceled); /* a stop string has ended the choice */
    if (whole && !discard) sched_keep(&e->sched, s);
    sched_remove(&e->sched, s, discard);
    list_del(&s->of_req);
    req_finish_choice(e, q, s->c, finish);
    pool_put(&e->seqs, s);
}

/* One choice ends. Where it was to compute the prompt for its siblings the next of them takes its place. */
void req_finish_seq(struct engine *e, struct seq *s, enum eng_finish finish)
{
    struct req *q = s->q;
    bool        lead = s->lead;
    end_seq(e, s, finish, false);
    if (lead && q->n_spawned < q->r->n_choice) {
        struct seq *next = req_spawn(e, q);
        next->lead = true;
        sched_resume(&e->sched, next);
    }
    if (q->n_done == q->r->n_choice) finalize(e, q);
}

void req_finish(struct engine *e, struct req *q, enum eng_finish finish, enum status why, bool discard)
{
    struct eng_request *r = q->r;
    r->status = finish == ENG_ERROR ? why : ST_OK;
    while (q->n_spawned < r->n_choice) req_finish_choice(e, q, &r->choice[q->n_spawned++], finish);
    LIST_EACH(it, &q->seqs) end_seq(e, LIST_ENTRY(it, struct seq, of_req), finish, discard);
    CHECK(q->n_done == r->n_choice);
    finalize(e, q);
}

/* ---- a beginning */

/* Prompt logprobs want every row computed here. */
static void claim(struct engine *e, struct seq *lead)
{
    struct eng_request *r = lead->r;
    lead->want.claim = r->claim;
    kv_tiers_claim(e->tiers, r->claim, r->salt, r->prompt, r->n_prompt);
    if (eng_wants_rows(r)) sched_unclaim(&e->sched, lead, 0, KV_CLAIM_UNUSED);
}

void req_refuse(struct engine *e, struct refusal *x)
{
    struct kv_want w = { .claim = &x->claim };
    if (e->tiers) {
        kv_tiers_claim(e->tiers, &x->claim, x->salt, x->id, x->n);
        kv_tiers_claim_end(e->tiers, &w, x->n, 0, KV_CLAIM_UNUSED);
    }
    free(x);
}

void req_accept(struct engine *e, struct eng_request *r)
{
    struct req *q = pool_get(&e->reqs);
    CHECK(q);
    q->r = r;
    q->arrival = ++e->n_arrival;
    q->queued = true;
    q->begun = false;
    if (r->adapter) atomic_fetch_add(&r->adapter->n_live, 1);
    if (r->adapter) kv_events_adapter(e->cfg.events, r->salt, r->adapter->name);
    list_init(&q->retry);
    list_init(&q->seqs);
    list_add_tail(&e->live, &q->live);
    q->tenant = fair_enter(&e->sched.fair, r->tenant);
    r->priv = q;
    r->status = ST_OK;
    r->n_cached = r->n_pinned = r->n_preempted = 0;
    r->t_load_us = r->t_sched_us = r->t_first_us = r->t_last_us = 0;
    if (!r->t_submit_us) r->t_submit_us = e->now_us;
    if (atomic_load_explicit(&r->canceled, memory_order_relaxed)) {
        req_finish(e, q, ENG_CANCELED, ST_OK, false);
        return;
    }
    if (r->deadline_us && r->deadline_us < e->next_deadline_us) e->next_deadline_us = r->deadline_us;
    struct seq *lead = req_spawn(e, q);
    lead->lead = true;
    if (r->claim && e->tiers) claim(e, lead);
    sched_enqueue(&e->sched, lead, e->now_us);
}
