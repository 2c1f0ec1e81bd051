/* admit: chooses the waiting sequence that runs next. It looks at preempted sequences in their order, at the turns of
 * the tenants, at the longest cached prefix, at loads from lower tiers, and at the free blocks. */
#include "engine/sched_impl.h"
#include "base/check.h"
#include <string.h>

enum {
    WINDOW = 16,     /* waiting sequences of a tenant that are compared by cached prefix                          */
    PASSED_MAX = 16, /* times that a longer prefix may overtake a request                                         */
    DEFERRED_MAX =
        1024,           /* steps that a prompt may wait for another one that computes the same                        */
    HEADROOM_SHIFT = 5, /* 1/32 of the pool stays free at an admission, at most one block per running sequence        */
};

/* The last sampled token is never computed. */
static uint32_t blocks_max(const struct sched *s, const struct seq *q) { return sched_blocks(s, q->n_max - 1); }

static bool protected(const struct sched *s, const struct seq *q)
{
    return q->n_preempted >= s->cfg.preempt_max && q->resumed;
}

/* True if a running sequence computes, in this step or in the one in flight, the block that q lacks next. Then q waits
 * and matches the block instead of computing it too. The cursor's block stands for all tokens before it, so comparing
 * one block is enough. */
static bool computed_now(const struct sched *s, const struct seq *q)
{
    uint32_t bt = s->cfg.block_tokens, h = q->cursor.n;
    if ((uint64_t)h + bt >= q->n_prompt) return false;
    for (uint32_t i = 0; i < s->n_running; i++) {
        const struct seq *p = s->running[i];
        if (p->n_computed >= p->n_prompt || !(p->n_step || p->fly_row)) continue;
        if (p->n_token < h + bt || p->n_computed >= h + bt || seq_next(p) + bt <= h) continue;
        if (p->r->salt.lo != q->r->salt.lo || p->r->salt.hi != q->r->salt.hi) continue;
        if (h && p->kv.block[h / bt - 1] != q->cursor.block) continue;
        if (!memcmp(p->id + h, q->r->prompt + h, bt * sizeof *p->id)) return true;
    }
    return false;
}

/* The ids of all n_token tokens of a waiting sequence. */
static const uint32_t *tokens_of(struct sched *s, const struct seq *q)
{
    if (!seq_n_out(q)) return q->r->prompt;
    if (s->again_of.arrival != q->q->arrival || s->again_of.choice != q->choice || s->again_of.n != q->n_token) {
        memcpy(s->again, q->r->prompt, q->n_prompt * sizeof *s->again);
        memcpy(s->again + q->n_prompt, q->c->id, seq_n_out(q) * sizeof *s->again);
        s->again_of.arrival = q->q->arrival;
        s->again_of.choice = q->choice;
        s->again_of.n = q->n_token;
    }
    return s->again;
}

static uint32_t peek(struct sched *s, struct seq *q)
{
    if (eng_wants_rows(q->r) && q->lead) return 0;
    return kv_peek_more(s->kv, q->r->salt, tokens_of(s, q), q->n_token, &q->cursor);
}

/* False: blocks that the sequence lacks are on their way from a lower tier. A request for prompt logprobs needs every
 * row computed, so it never waits. */
static bool has_come(struct sched *s, struct seq *q)
{
    if (!s->tiers || (eng_wants_rows(q->r) && q->lead)) return true;
    for (bool again = false;; again = true) {
        if (kv_tiers_ask(s->tiers, &q->want, q->r->salt, tokens_of(s, q), q->n_token, &q->cursor, s->us_per_token))
            return true;
        if (!q->r->t_load_us && q->want.load) q->r->t_load_us = s->now_us;
        if (s->n_running || kv_tiers_busy(s->tiers)) return false;
        /* Nobody runs and no load is on its way: the sequence waits for blocks that were loaded for one behind it, and
             * that one waits for its turn. */
        if (again) return true;
        kv_tiers_yield(s->tiers, UINT32_MAX);
    }
}

/* True: its adapter is not on the device, and every slot is held by others. */
static bool lacks_slot(struct sched *s, struct seq *q)
{
    if (slots_allow(&s->slots, q->r->adapter)) return false;
    slots_refused(&s->slots, ++q->n_refused);
    return true;
}

/* The next new request. It belongs to the tenant whose turn it is, and has the longest cached prefix among the tenant's
 * first few requests of one priority. */
static struct seq *pick(struct sched *s)
{
    struct tenant *t;
    while ((t = fair_next(&s->fair, s->step, s->now_us))) {
        const struct seq *head = LIST_ENTRY(t->waiting.next, struct seq, link);
        struct seq       *best = NULL;
        uint32_t          best_hit = 0, n = 0;
        LIST_EACH(it, &t->waiting) {
            struct seq *q = LIST_ENTRY(it, struct seq, link);
            if (n++ == WINDOW || q->r->priority != head->r->priority) break;
            uint32_t hit = peek(s, q);
            if (!(eng_wants_rows(q->r) && q->lead) && q->n_deferred < DEFERRED_MAX && computed_now(s, q)) {
                q->n_deferred++;
                continue;
            }
            if (lacks_slot(s, q) || !has_come(s, q)) continue;
            if (best && hit <= best_hit) continue;
            if (best && best->n_passed >= PASSED_MAX) continue;
            best = q;
            best_hit = hit;
        }
        if (best) {
            for (struct list *it = t->waiting.next; it != &best->link; it = it->next)
                LIST_ENTRY(it, struct seq, link)->n_passed++;
            return best;
        }
        t->skip_step = s->step;
    }
    return NULL;
}

/* The blocks that running prompts still lack. They were counted when those prompts were admitted. */
static uint64_t blocks_promised(const struct sched *s)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < s->n_running; i++) {
        uint32_t want = s->running[i]->forking ? 0 : sched_blocks(s, seq_n_ahead(s->running[i]));
        if (want > s->running[i]->kv.n_block) n += want - s->running[i]->kv.n_block;
    }
    return n;
}

/* The same for the pool of layers with a window, of which a sequence never needs more than a window and what is
 * reserved ahead of it. */
static bool windows_allow(const struct sched *s, const struct seq *q, uint32_t n_hit)
{
    uint64_t want = kv_window_need(s->kv, NULL, n_hit, protected(s, q) ? q->n_max - 1 : q->n_token);
    for (uint32_t i = 0; i < s->n_running; i++) {
        const struct seq *p = s->running[i];
        if (!p->forking) want += kv_window_need(s->kv, &p->kv, p->n_computed, seq_n_ahead(p));
    }
    return want <= kv_window_available(s->kv);
}

static bool blocks_allow(struct sched *s, struct seq *q)
{
    if (!s->n_running) return true; /* alone the request fits: eng_submit has checked it */
    uint32_t n_hit = peek(s, q), hit = n_hit / s->cfg.block_tokens;
    if (!windows_allow(s, q, n_hit)) return false;
    uint64_t want = (protected(s, q) ? blocks_max(s, q) : sched_blocks(s, q->n_token)) - hit;
    uint64_t head = s->cfg.n_block >> HEADROOM_SHIFT;
    if (head < 1) head = 1;
    if (head > s->n_running) head = s->n_running;
    return want + head + blocks_promised(s) + kv_cursor_idle(s->kv, &q->cursor) <= kv_available_count(s->kv);
}

static bool admit(struct sched *s, struct seq *q)
{
    struct eng_request *r = q->r;
    if (!blocks_allow(s, q)) return false;
    if (kv_seq_open(s->kv, r->salt, &q->kv)) return false;
    seq_load(q, s->ids + (size_t)q->kv.slot * s->cfg.context_max);
    /* Prompt logprobs and states of other rows than the last need each row computed once. After a preemption, rows
     * whose results were already given may come from the cache. */
    uint32_t n_match = q->n_token;
    if (eng_wants_rows(r) && q->lead) n_match = q->q->n_lp + 1 < n_match ? q->q->n_lp + 1 : n_match;
    uint32_t hit = kv_seq_match(s->kv, &q->kv, q->id, n_match);
    kv_seq_leave(s->kv, &q->kv, q->want.leave);
    q->n_copy = 0;
    q->reserved = protected(s, q);
    /* Borrowing locks one more block than the sequence needs, for one step. It is left out where that block is
     * missing. */
    if (!q->reserved && kv_available_count(s->kv) > sched_blocks(s, q->n_token) - q->kv.n_block)
        hit += kv_seq_borrow(s->kv, &q->kv, q->id, n_match, &q->copy, &q->n_copy);
    if (q->reserved &&
        !sched_reserve(s, q, 0)) { /* a reservation that lacks blocks would only hinder other sequences */
        q->reserved = false;
        kv_seq_release(s->kv, &q->kv);
        return false;
    }
    if (q->reserved) kv_seq_promise(s->kv, &q->kv);
    sched_unwait(s, q);
    if (s->tiers) kv_tiers_forget(s->tiers, &q->want);
    sched_unclaim(s, q, hit, KV_CLAIM_ENDS);
    q->n_cached = q->n_computed = hit;
    if (!q->resumed) {
        r->n_cached = hit;
        /* The last of the tokens that were found are those that were loaded for this sequence. */
        uint32_t here = hit;
        for (uint32_t i = 0; i < KV_TIERS; i++) {
            r->n_cached_from[i] = q->want.n_from[i] < here ? q->want.n_from[i] : here;
            here -= r->n_cached_from[i];
            s->n_cached_from[ENG_FROM_TIER + i] += r->n_cached_from[i];
        }
        s->n_prompt_tokens += q->n_prompt;
        s->n_cached_tokens += hit;
        s->n_cached_from[ENG_FROM_DEVICE] += here;
        if (s->tiers) s->n_below_query_tokens += q->n_prompt - here;
        r->t_sched_us = s->now_us;
        if (r->adapter && !q->q->begun) atomic_fetch_add(&r->adapter->n_begun, 1);
        q->q->begun = r->adapter != NULL;
        fair_served(&s->fair, q, q->n_prompt - hit, s->now_us);
    } else {
        uint32_t came = 0;
        for (uint32_t i = 0; i < KV_TIERS; i++) came += q->want.n_from[i];
        s->n_resumed_tokens += came < hit ? came : hit;
    }
    sched_run(s, q);
    return true;
}

/* Less of its prompt is cached than it asks for. Of a short prompt, whose last block is never cached, more than all
 * that can be is not asked. */
static bool is_cold(struct sched *s, struct seq *q)
{
    uint32_t bt = s->cfg.block_tokens, most = (q->n_prompt - 1) / bt * bt;
    if (q->resumed || !(q->r->hit_share > 0)) return false;
    uint32_t hit = peek(s, q);
    return hit < most && hit < q->r->hit_share * q->n_prompt;
}

static void refuse(struct sched *s, struct seq *q)
{
    sched_unwait(s, q);
    q->cold = true;
    list_add_tail(&s->cold, &q->link);
}

/* The one whose turn it is; NULL: nobody is to be admitted now. */
static struct seq *next(struct sched *s)
{
    if (s->short_of_blocks || s->n_running >= s->cfg.seqs_max || s->n_running >= s->cfg.tokens_max) return NULL;
    struct seq *q = s->n_resume ? LIST_ENTRY(s->resume.next, struct seq, link) : NULL;
    if (q && lacks_slot(s, q)) q = NULL;
    if (q) peek(s, q);
    if (q && s->tiers && !q->want.load && !blocks_allow(s, q))
        return NULL;                        /* it asks the tiers when there is room for a load */
    if (!q || !has_come(s, q)) q = pick(s); /* the other sequences do not wait for a load */
    return q;
}

struct seq *sched_admit(struct sched *s)
{
    struct seq *q = next(s);
    for (; q && is_cold(s, q); q = next(s)) refuse(s, q);
    if (q && s->cfg.whole && q->n_token > s->budget) return NULL; /* in the next step it is the first */
    return q && admit(s, q) ? q : NULL;
}
