#include "engine/sched_impl.h"
#include "base/check.h"
#include "base/log.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum status sched_init(struct sched *s, const struct sched_cfg *cfg, struct kv *kv, const struct batch *batch)
{
    *s = (struct sched){ .cfg = *cfg, .kv = kv, .batch = batch };
    if (!s->cfg.n_table) s->cfg.n_table = cfg->seqs_max;
    list_init(&s->resume);
    list_init(&s->cold);
    fair_init(&s->fair);
    slots_init(&s->slots, cfg->n_slot);
    s->running = calloc(cfg->seqs_max, sizeof(struct seq *));
    s->plan = calloc(cfg->seqs_max, sizeof(struct seq *));
    s->ids = calloc((size_t)s->cfg.n_table * cfg->context_max, sizeof *s->ids); /* untouched pages cost nothing */
    s->stay = calloc(s->cfg.n_table, sizeof *s->stay);
    s->again = calloc(cfg->context_max, sizeof *s->again);
    if (s->running && s->plan && s->ids && s->stay && s->again) return ST_OK;
    sched_close(s);
    return ST_NOMEM;
}

void sched_close(struct sched *s)
{
    slots_close(&s->slots);
    free(s->running);
    free(s->plan);
    free(s->ids);
    free(s->stay);
    free(s->again);
    s->again = NULL;
    s->running = s->plan = NULL;
    s->ids = NULL;
    s->stay = NULL;
}

/* ---- the lists */

void sched_enqueue(struct sched *s, struct seq *q, uint64_t now_us) { fair_push(&s->fair, q, now_us); }

void sched_resume(struct sched *s, struct seq *q)
{
    struct list *at = s->resume.prev;
    q->resumed = true;
    while (at != &s->resume && seq_before(q, LIST_ENTRY(at, struct seq, link))) at = at->prev;
    list_add_head(at, &q->link);
    s->n_resume++;
}

void sched_unwait(struct sched *s, struct seq *q)
{
    if (q->cold) {
        list_del(&q->link);
        return;
    }
    if (!q->resumed) {
        fair_remove(&s->fair, q);
        return;
    }
    list_del(&q->link);
    s->n_resume--;
}

void sched_run(struct sched *s, struct seq *q)
{
    uint32_t at = s->n_running++;
    CHECK(at < s->cfg.seqs_max);
    for (; at > 0 && seq_before(q, s->running[at - 1]); at--) s->running[at] = s->running[at - 1];
    s->running[at] = q;
    q->state = SEQ_RUNNING;
    q->adapter = slots_enter(&s->slots, q->r->adapter);
    q->stay = s->stay[q->kv.slot] = ++s->n_stay;
}

static void running_remove(struct sched *s, struct seq *q)
{
    uint32_t at = 0;
    while (s->running[at] != q) CHECK(++at < s->n_running);
    s->n_running--;
    s->stay[q->kv.slot] = 0;
    slots_leave(&s->slots, q->adapter);
    q->adapter = 0;
    memmove(&s->running[at], &s->running[at + 1], (s->n_running - at) * sizeof(struct seq *));
}

static void unplan(struct sched *s, struct seq *q)
{
    if (!q->planned) return;
    uint32_t at = 0;
    while (s->plan[at] != q) CHECK(++at < s->n_plan);
    s->n_plan--;
    s->n_plan_one -= at < s->n_plan_one;
    memmove(&s->plan[at], &s->plan[at + 1], (s->n_plan - at) * sizeof(struct seq *));
    s->budget += q->n_step;
    if (q->samples) sample_unuse(&s->used, sample_need(q, s->cfg.n_eos));
    q->planned = q->samples = false;
    q->n_step = 0;
}

/* What it has besides its tokens goes with its place among the running. */
static void forget(struct seq *q)
{
    q->n_cached = q->n_computed = q->fly_row = q->fly_token = q->n_copy = 0;
    q->forking = false;
    q->id = NULL;
}

/* What it has computed may be worth keeping, here and below. */
static void offer(struct sched *s, struct seq *q)
{
    kv_seq_keep(s->kv, &q->kv, &q->r->keep);
    q->kv.mark = q->q->mark;
    if (s->tiers) kv_tiers_offer(s->tiers, &q->kv, q->n_computed);
}

void sched_keep(struct sched *s, struct seq *q)
{
    struct kv_parcel *p = q->r->parcel;
    if (!s->tiers || !p || p->state != KV_PARCEL_NONE || q->state != SEQ_RUNNING || q->n_computed < q->n_prompt) return;
    kv_seq_keep(s->kv, &q->kv, &q->r->keep);
    q->kv.mark = q->q->mark;
    kv_tiers_publish(s->tiers, &q->kv, q->n_prompt, p);
}

void sched_unclaim(struct sched *s, struct seq *q, uint32_t n_hit, enum kv_claim_end why)
{
    if (!q->want.claim) return;
    kv_tiers_claim_end(s->tiers, &q->want, q->n_prompt, n_hit, why);
    q->want.claim = NULL;
}

void sched_remove(struct sched *s, struct seq *q, bool discard)
{
    if (q->state == SEQ_WAITING) {
        sched_unwait(s, q);
        if (s->tiers) kv_tiers_forget(s->tiers, &q->want);
        sched_unclaim(s, q, 0, KV_CLAIM_UNUSED);
    } else if (q->state == SEQ_RUNNING) {
        running_remove(s, q);
        if (!discard) offer(s, q);
        if (discard) kv_seq_discard(s->kv, &q->kv);
        kv_seq_release(s->kv, &q->kv);
    }
    q->state = SEQ_DONE;
    forget(q);
}

/* Back to the queue, without its blocks. */
static void send_back(struct sched *s, struct seq *q)
{
    LOG_DEBUG("sched: step %" PRIu64 " preempts request %016" PRIx64 ".%u at %u tokens, %u running", s->step, q->r->id,
              q->choice, q->n_computed, s->n_running);
    CHECK(!s->in_flight);
    running_remove(s, q);
    kv_seq_release(s->kv, &q->kv);
    q->state = SEQ_WAITING;
    q->want = (struct kv_want){ 0 };
    forget(q);
    q->cursor = (struct kv_cursor){ 0 };
    q->n_preempted++;
    q->r->n_preempted++;
    s->n_preempted++;
    s->short_of_blocks = true;
    sched_resume(s, q);
}

void sched_preempt(struct sched *s, struct seq *q)
{
    unplan(s, q);
    offer(s, q);
    send_back(s, q);
}

void sched_recompute(struct sched *s)
{
    s->in_flight = false;
    s->n_plan = s->n_plan_one = 0;
    while (s->n_running) {
        struct seq *q = s->running[s->n_running - 1];
        q->planned = q->samples = false; /* of a plan that is over */
        q->n_step = 0;
        kv_seq_discard(s->kv, &q->kv);
        send_back(s, q);
    }
}

/* ---- blocks */

uint32_t sched_blocks(const struct sched *s, uint32_t n_token)
{
    return (uint32_t)(((uint64_t)n_token + s->cfg.block_tokens - 1) / s->cfg.block_tokens);
}

struct seq *sched_victim(const struct sched *s, const struct seq *q)
{
    for (uint32_t i = s->n_running; i-- > 0 && s->running[i] != q;)
        if (!s->running[i]->reserved) return s->running[i];
    return NULL;
}

bool sched_reserve(struct sched *s, struct seq *q, uint32_t n_token)
{
    if (q->reserved) n_token = q->n_max - 1;
    for (;;) {
        if (kv_seq_reserve(s->kv, &q->kv, n_token, &q->copy, &q->n_copy) == ST_OK) return true;
        /* What waits to be copied down goes before anybody has to give way. */
        uint32_t want = sched_blocks(s, n_token), have = kv_available_count(s->kv);
        uint32_t more = want > q->kv.n_block ? want - q->kv.n_block + 1 : 1; /* 1: a tail that is copied */
        bool     lacks = more > have, any = s->tiers && lacks && kv_tiers_yield(s->tiers, more - have);
        if (!any && s->tiers) any = kv_tiers_yield_windows(s->tiers);
        if (!any && !lacks && s->tiers) any = kv_tiers_yield(s->tiers, 1);
        if (!any) return false;
    }
}

/* Of n rows those that the blocks of q hold: a window's pool gives a sequence no more than its share. */
uint32_t sched_held(const struct sched *s, const struct seq *q, uint32_t n)
{
    uint32_t held = kv_seq_covers(s->kv, &q->kv), next = seq_next(q);
    if (held <= next) return 0;
    return held - next < n ? held - next : n;
}

uint32_t sched_take(struct sched *s, struct seq *q, uint32_t n)
{
    uint32_t next = seq_next(q);
    for (;;) {
        if (sched_reserve(s, q, next + n)) return sched_held(s, q, n);
        if (s->in_flight) break;
        uint64_t room = kv_seq_room(s->kv, &q->kv);
        if (room > next && room - next < n) {
            uint32_t fits = (uint32_t)(room - next);
            if (sched_reserve(s, q, next + fits)) return sched_held(s, q, fits);
        }
        struct seq *v = sched_victim(s, q);
        if (!v) break;
        sched_preempt(s, v);
    }
    s->short_of_blocks = true;
    return 0;
}

/* ---- what becomes of the plan */

bool sched_sibling(struct sched *s, struct seq *kid, struct seq *lead)
{
    struct sample_need need = sample_need(kid, s->cfg.n_eos);
    if (s->n_running >= s->cfg.seqs_max || s->n_running >= s->cfg.tokens_max) return false;
    if (!sample_fits(s->batch, s->used, need)) return false;
    if (kid->c->guide && guide_state(kid->c->guide) != GUIDE_READY) return false;
    if (kv_seq_open(s->kv, kid->r->salt, &kid->kv)) return false;
    seq_load(kid, s->ids + (size_t)kid->kv.slot * s->cfg.context_max);
    sample_use(&s->used, need);
    lead->forking = kid->forking = true;
    kid->samples = true;
    kid->late = false;
    kid->n_step = kid->n_copy = 0;
    sched_run(s, kid);
    return true;
}

void sched_fork(struct sched *s, struct seq *lead, struct seq *kid)
{
    CHECK(lead->forking && kid->forking);
    enum status st = kv_seq_fork(s->kv, &lead->kv, &kid->kv, kid->n_prompt);
    CHECK(st == ST_OK);
    kid->n_cached = 0;
    kid->n_computed = kid->n_prompt;
    kid->forking = false;
}

void sched_sent(struct sched *s, struct seq *q, uint32_t sample)
{
    (void)s;
    q->fly_row += q->n_step;
    q->n_copy = 0;
    if (!q->samples) return;
    q->id[seq_n_ahead(q)] = SEQ_PENDING;
    q->fly_token++;
    q->fly_sample = sample;
}

void sched_undrawn(struct sched *s, struct seq *q)
{
    (void)s;
    CHECK(q->fly_row > 0 && q->fly_token > 0);
    q->fly_row--;
    q->fly_token--;
    q->tardy = true;
}

void sched_commit(struct sched *s, struct seq *q, uint32_t n)
{
    CHECK(q->fly_row >= n);
    q->n_computed += n;
    q->fly_row -= n;
    kv_seq_commit(s->kv, &q->kv, q->id, q->n_computed);
    seq_check(q);
}

void sched_check(const struct sched *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_running; i++) {
        const struct seq *q = s->running[i];
        CHECK(q->state == SEQ_RUNNING);
        CHECK(q->id);
        CHECK(!i || seq_before(s->running[i - 1], q));
        CHECK(sched_stays(s, q->kv.slot, q->stay));
        seq_check(q);
    }
    for (const struct list *it = s->resume.next; it != &s->resume; it = it->next, n++)
        CHECK(LIST_ENTRY(it, struct seq, link)->state == SEQ_WAITING);
    CHECK(n == s->n_resume);
    for (const struct list *it = s->cold.next; it != &s->cold; it = it->next) {
        const struct seq *q = LIST_ENTRY(it, struct seq, link);
        CHECK(q->state == SEQ_WAITING && q->cold && !q->resumed);
    }
    n = 0;
    for (uint32_t i = 0; i < FAIR_TENANTS_MAX; i++) {
        const struct tenant *t = &s->fair.tenant[i];
        uint32_t             m = 0;
        for (const struct list *it = t->waiting.next; it != &t->waiting; it = it->next, m++)
            CHECK(LIST_ENTRY(it, struct seq, link)->q->tenant == t);
        CHECK(m == t->n_waiting);
        n += m;
    }
    CHECK(n == s->fair.n_waiting);
}
