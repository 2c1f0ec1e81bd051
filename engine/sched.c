#include "engine/sched.h"
#include "base/check.h"
#include "base/log.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    WINDOW = 16,         /* waiting sequences of a tenant that are compared by cached prefix                          */
    PASSED_MAX = 16,     /* so often may a longer prefix go first                                                     */
    DEFERRED_MAX = 1024, /* so many steps may a prompt wait for another one that computes the same                     */
    HEADROOM_SHIFT = 5,  /* 1/32 of the pool stays free at an admission, at most one block per running sequence        */
};

enum status sched_init(struct sched *s, const struct sched_cfg *cfg, struct kv *kv, const struct batch *batch)
{
    *s = (struct sched){ .cfg = *cfg, .kv = kv, .batch = batch };
    if (!s->cfg.n_table) s->cfg.n_table = cfg->seqs_max;
    list_init(&s->resume);
    fair_init(&s->fair);
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

static void unwait(struct sched *s, struct seq *q)
{
    if (!q->resumed) {
        fair_remove(&s->fair, q);
        return;
    }
    list_del(&q->link);
    s->n_resume--;
}

static void running_insert(struct sched *s, struct seq *q)
{
    uint32_t at = s->n_running++;
    CHECK(at < s->cfg.seqs_max);
    for (; at > 0 && seq_before(q, s->running[at - 1]); at--) s->running[at] = s->running[at - 1];
    s->running[at] = q;
    q->state = SEQ_RUNNING;
    q->stay = s->stay[q->kv.slot] = ++s->n_stay;
}

static void running_remove(struct sched *s, const struct seq *q)
{
    uint32_t at = 0;
    while (s->running[at] != q) CHECK(++at < s->n_running);
    s->n_running--;
    s->stay[q->kv.slot] = 0;
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

void sched_remove(struct sched *s, struct seq *q, bool discard)
{
    if (q->state == SEQ_WAITING) {
        unwait(s, q);
        if (s->tiers) kv_tiers_forget(s->tiers, &q->want);
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
    LOG_DEBUG("sched: step %" PRIu64 " preempts request %016" PRIx64 ".%u at %u tokens, %u running", s->step, q->r->id, q->choice,
              q->n_computed, s->n_running);
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

static void preempt(struct sched *s, struct seq *q)
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

static uint32_t blocks(const struct sched *s, uint32_t n_token)
{
    return (uint32_t)(((uint64_t)n_token + s->cfg.block_tokens - 1) / s->cfg.block_tokens);
}
/* The last sampled token is never computed. */
static uint32_t blocks_max(const struct sched *s, const struct seq *q) { return blocks(s, q->n_max - 1); }

static bool protected(const struct sched *s, const struct seq *q) { return q->n_preempted >= s->cfg.preempt_max && q->resumed; }

static struct seq *victim_for(const struct sched *s, const struct seq *q)
{
    for (uint32_t i = s->n_running; i-- > 0 && s->running[i] != q;)
        if (!s->running[i]->reserved) return s->running[i];
    return NULL;
}

static bool reserve(struct sched *s, struct seq *q, uint32_t n_token)
{
    if (q->reserved) n_token = q->n_max - 1;
    for (;;) {
        if (kv_seq_reserve(s->kv, &q->kv, n_token, &q->copy, &q->n_copy) == ST_OK) return true;
        /* What waits to be copied down goes before anybody has to give way. */
        uint32_t want = blocks(s, n_token), have = kv_available_count(s->kv);
        uint32_t more = want > q->kv.n_block ? want - q->kv.n_block + 1 : 1; /* 1: a tail that is copied */
        if (!s->tiers || !kv_tiers_yield(s->tiers, more > have ? more - have : 1)) return false;
    }
}

/* Covers the next n rows; fewer when blocks are short and at least one row fits; 0: it must stand still in this step. With a step
 * in flight that is not for long: its end may give blocks back, so a shortage waits for that. */
static uint32_t take_blocks(struct sched *s, struct seq *q, uint32_t n)
{
    uint32_t next = seq_next(q);
    for (;;) {
        if (reserve(s, q, next + n)) return n;
        if (s->in_flight) break;
        uint64_t room = ((uint64_t)q->kv.n_block + kv_available_count(s->kv)) * s->cfg.block_tokens;
        if (room > next && room - next < n) {
            uint32_t fits = (uint32_t)(room - next);
            if (reserve(s, q, next + fits)) return fits;
        }
        struct seq *v = victim_for(s, q);
        if (!v) break;
        preempt(s, v);
    }
    s->short_of_blocks = true;
    return 0;
}

/* ---- the plan */

/* Rows that could be computed: none for whoever surely ends in flight, or waits for its fork. */
static uint32_t rows_left(const struct sched *s, const struct seq *q)
{
    uint32_t n = seq_n_ahead(q);
    if (q->forking || (q->fly_token && (n >= q->n_max || n >= s->cfg.context_max))) return 0;
    return n - seq_next(q);
}

static bool gave_up(const struct sched *s) { return s->in_flight && s->short_of_blocks; }

/* Gives q up to n rows of the budget. false: no row of it can run in this step. */
static bool plan_rows(struct sched *s, struct seq *q, uint32_t n)
{
    uint32_t left = rows_left(s, q);
    CHECK(left > 0);
    if (n > left) n = left;
    if (n > s->budget) n = s->budget;
    struct sample_need need = sample_need(q, s->cfg.n_eos);
    if (n == left && !sample_fits(s->batch, s->used, need)) n--; /* all but the row that would sample */
    if (n) n = take_blocks(s, q, n);
    if (!n) return false;
    q->n_step = n;
    q->samples = n == left;
    q->planned = true;
    if (q->samples) sample_use(&s->used, need);
    s->budget -= n;
    s->plan[s->n_plan++] = q;
    return true;
}

/* What the step has left goes to the prompts that were cut short, oldest first, as far as blocks allow without a preemption. */
static void plan_rest(struct sched *s)
{
    for (uint32_t i = s->n_plan_one; i < s->n_plan && s->budget; i++) {
        struct seq        *q = s->plan[i];
        struct sample_need need = sample_need(q, s->cfg.n_eos);
        uint32_t           left = rows_left(s, q), n = q->n_step + s->budget;
        if (n > s->cfg.chunk_max) n = s->cfg.chunk_max;
        if (n > left) n = left;
        if (n == left && !q->samples && !sample_fits(s->batch, s->used, need)) n--;
        if (n <= q->n_step || !reserve(s, q, seq_next(q) + n)) continue;
        s->budget -= n - q->n_step;
        q->n_step = n;
        if (n < left) continue;
        q->samples = true;
        sample_use(&s->used, need);
    }
}

/* Rows for one prompt: while others wait for a first row, half of what is left is enough, unless it is short. A long one then
 * takes at most twice as long, and the short ones behind it do not wait for its end. */
static uint32_t chunk(const struct sched *s, bool others)
{
    uint32_t half = (s->budget + 1) / 2, short_one = s->cfg.tokens_max / 4;
    if (half < short_one) half = short_one;
    others |= s->n_resume > 0 || s->fair.n_waiting > 0;
    return others && half < s->cfg.chunk_max ? half : s->cfg.chunk_max;
}

/* Does a running sequence compute, in this very step or the one in flight, the block that q lacks next? Then q had better wait and
 * match it. The cursor's block stands for all tokens before it, so one comparison of a block is enough. */
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

/* All n_token tokens of a waiting one. */
static const uint32_t *tokens_of(struct sched *s, const struct seq *q)
{
    if (!seq_n_out(q)) return q->r->prompt;
    if (s->again_of.arrival != q->q->arrival || s->again_of.choice != q->choice || s->again_of.n != q->n_token) {
        memcpy(s->again, q->r->prompt, q->n_prompt * sizeof *s->again);
        memcpy(s->again + q->n_prompt, q->c->id, seq_n_out(q) * sizeof *s->again);
        s->again_of.arrival = q->q->arrival, s->again_of.choice = q->choice, s->again_of.n = q->n_token;
    }
    return s->again;
}

static uint32_t peek(struct sched *s, struct seq *q)
{
    if (q->r->s.prompt_logprobs && q->lead) return 0;
    return kv_peek_more(s->kv, q->r->salt, tokens_of(s, q), q->n_token, &q->cursor);
}

/* false: what it lacks is on its way from a lower tier. Prompt logprobs want every row computed. */
static bool has_come(struct sched *s, struct seq *q)
{
    if (!s->tiers || (q->r->s.prompt_logprobs && q->lead)) return true;
    for (bool again = false;; again = true) {
        if (kv_tiers_ask(s->tiers, &q->want, q->r->salt, tokens_of(s, q), q->n_token, &q->cursor, s->us_per_token)) return true;
        if (s->n_running || kv_tiers_busy(s->tiers)) return false;
        /* Nobody runs and nothing is on its way: it waits for blocks that came up for one behind it, which waits for it. */
        if (again) return true;
        kv_tiers_yield(s->tiers, UINT32_MAX);
    }
}

/* The next new request: of the tenant whose turn it is, among its first few of one priority, the longest cached prefix. */
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
            if (!(q->r->s.prompt_logprobs && q->lead) && q->n_deferred < DEFERRED_MAX && computed_now(s, q)) {
                q->n_deferred++;
                continue;
            }
            if (!has_come(s, q)) continue;
            if (best && hit <= best_hit) continue;
            if (best && best->n_passed >= PASSED_MAX) continue;
            best = q, best_hit = hit;
        }
        if (best) {
            for (struct list *it = t->waiting.next; it != &best->link; it = it->next) LIST_ENTRY(it, struct seq, link)->n_passed++;
            return best;
        }
        t->skip_step = s->step;
    }
    return NULL;
}

/* Blocks that the running prompts still lack: they were admitted with these counted in. */
static uint64_t blocks_promised(const struct sched *s)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < s->n_running; i++) {
        uint32_t want = s->running[i]->forking ? 0 : blocks(s, seq_n_ahead(s->running[i]));
        if (want > s->running[i]->kv.n_block) n += want - s->running[i]->kv.n_block;
    }
    return n;
}

static bool blocks_allow(struct sched *s, struct seq *q)
{
    if (!s->n_running) return true; /* alone it fits: eng_submit has seen to it */
    uint32_t hit = peek(s, q) / s->cfg.block_tokens;
    uint64_t want = (protected(s, q) ? blocks_max(s, q) : blocks(s, q->n_token)) - hit;
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
    /* Prompt logprobs need each row computed once; what is recomputed after a preemption may match what has given its own. */
    uint32_t n_match = q->n_token;
    if (r->s.prompt_logprobs && q->lead) n_match = q->q->n_lp + 1 < n_match ? q->q->n_lp + 1 : n_match;
    uint32_t hit = kv_seq_match(s->kv, &q->kv, q->id, n_match);
    q->n_copy = 0;
    q->reserved = protected(s, q);
    /* Borrowing locks one block more than the sequence needs, for a step: not where that is one too many. */
    if (!q->reserved && kv_available_count(s->kv) > blocks(s, q->n_token) - q->kv.n_block)
        hit += kv_seq_borrow(s->kv, &q->kv, q->id, n_match, &q->copy, &q->n_copy);
    if (q->reserved && !reserve(s, q, 0)) { /* protection without the blocks would only be in the way of others */
        q->reserved = false;
        kv_seq_release(s->kv, &q->kv);
        return false;
    }
    unwait(s, q);
    if (s->tiers) kv_tiers_forget(s->tiers, &q->want);
    q->n_cached = q->n_computed = hit;
    if (!q->resumed) {
        r->n_cached = hit;
        /* Of what was found, the last tokens are those that came for it. */
        r->n_cached_host = q->want.n_host < hit ? q->want.n_host : hit;
        r->n_cached_store = q->want.n_store < hit - r->n_cached_host ? q->want.n_store : hit - r->n_cached_host;
        s->n_prompt_tokens += q->n_prompt;
        s->n_cached_tokens += hit;
        r->t_sched_us = s->now_us;
        fair_served(&s->fair, q, q->n_prompt - hit, s->now_us);
    } else {
        uint32_t came = q->want.n_host + q->want.n_store;
        s->n_resumed_tokens += came < hit ? came : hit;
    }
    running_insert(s, q);
    plan_rows(s, q, chunk(s, false));
    return true;
}

bool sched_plan(struct sched *s, uint64_t step, uint64_t now_us, bool in_flight)
{
    s->step = step;
    s->now_us = now_us;
    s->in_flight = in_flight;
    s->n_plan = s->n_plan_one = 0;
    s->budget = s->cfg.tokens_max;
    s->used = (struct sample_need){ 0 };
    s->short_of_blocks = false;
    for (uint32_t i = 0; i < s->n_running; i++) {
        struct seq *q = s->running[i];
        if (q->on_host && q->fly_token && rows_left(s, q)) return false;
        q->planned = q->samples = false;
        q->n_step = 0;
    }
    if (s->cfg.preempt_every && step >= s->preempt_at && s->n_running > 1) {
        struct seq *v = victim_for(s, s->running[0]);
        if (v && in_flight) return false;
        if (v) preempt(s, v);
        s->preempt_at = step + s->cfg.preempt_every;
        s->short_of_blocks = false;
    }
    /* Those that need one row: a victim is always younger, so it stands behind i and removing it moves nobody before. */
    uint32_t n_prompt = 0;
    for (uint32_t i = 0; i < s->n_running && s->budget && !gave_up(s); i++) {
        uint32_t left = rows_left(s, s->running[i]);
        if (left == 1) plan_rows(s, s->running[i], 1);
        n_prompt += left > 1;
    }
    s->n_plan_one = s->n_plan;
    for (uint32_t i = 0; i < s->n_running && n_prompt && s->budget && !gave_up(s); i++)
        if (rows_left(s, s->running[i]) > 1) plan_rows(s, s->running[i], chunk(s, --n_prompt > 0));
    while (!s->short_of_blocks && s->budget && s->n_running < s->cfg.seqs_max && s->n_running < s->cfg.tokens_max) {
        struct seq *q = s->n_resume ? LIST_ENTRY(s->resume.next, struct seq, link) : NULL;
        if (q) peek(s, q);
        if (q && s->tiers && !q->want.load && !blocks_allow(s, q)) break; /* it asks when there is room for what comes */
        if (!q || !has_come(s, q)) q = pick(s);                           /* nobody else stands still for a load */
        if (!q || !admit(s, q)) break;
    }
    if (gave_up(s)) return false;
    plan_rest(s);
    return true;
}

bool sched_sibling(struct sched *s, struct seq *kid, struct seq *lead)
{
    struct sample_need need = sample_need(kid, s->cfg.n_eos);
    if (s->n_running >= s->cfg.seqs_max || s->n_running >= s->cfg.tokens_max) return false;
    if (!sample_fits(s->batch, s->used, need)) return false;
    if (kv_seq_open(s->kv, kid->r->salt, &kid->kv)) return false;
    seq_load(kid, s->ids + (size_t)kid->kv.slot * s->cfg.context_max);
    sample_use(&s->used, need);
    lead->forking = kid->forking = true;
    kid->samples = true;
    kid->n_step = kid->n_copy = 0;
    running_insert(s, kid);
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
