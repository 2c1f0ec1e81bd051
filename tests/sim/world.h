/* world: an engine on a fake device, clients around it, and the checks after every step.   Thread: one.
 * world_open -> (client -> world_submit | world_step)* -> world_close, which proves that nothing is lost, wrong or
 * left. */
#pragma once
#include "base/log.h"
#include "base/ring.h"
#include "engine/engine.h"
#include "engine/step.h"
#include "sim/fake.h"

struct client { /* one request and everything that it points to */
    struct eng_request r;
    struct eng_choice *choice;
    uint32_t          *prompt, *ids, stop_id[2], bad_word[3], bad_word_start[3], allowed[8];
    struct eng_bias    bias[2];
    float             *logprob, *prompt_logprob;
    struct eng_top    *top;
    uint32_t           n_final, n_message, n_seen, n_disturbed;
    enum status        st; /* of the submit */
    bool               submitted, done, expect_nan, asked_to_end;
    uint64_t           step_submit, step_first, step_final;
};

enum { WORLD_CLIENTS_MAX = 12000 };

struct world {
    struct eng_cfg  cfg;
    uint32_t        depth; /* steps in flight */
    struct fake     fake;
    struct engine  *e;
    struct ring     outbox;
    struct client  *client[64];
    struct client **more; /* scenarios with many clients */
    uint32_t        n_client, n_open;
    uint64_t        now_us, n_step;
    uint32_t        look_every;              /* steps from one look at everything to the next; 0: each */
    bool            waits;                   /* the device needs masks when a step is submitted */
    bool            reads;                   /* the clients empty their outbox after each step */
    struct client  *open[WORLD_CLIENTS_MAX]; /* [n_open] submitted and not final, in any order */
    char            fault[200];
};

#define WORLD_FAULT(w, ...)                                                      \
    do {                                                                         \
        if (!(w)->fault[0]) snprintf((w)->fault, sizeof(w)->fault, __VA_ARGS__); \
    } while (0)

/* In two parts for those who put tiers below the device: the pool is there in between. */
static inline void world_prepare(struct world *w, const struct eng_cfg *cfg, uint32_t depth, bool lazy)
{
    *w = (struct world){ .cfg = *cfg, .depth = depth, .now_us = 1000000, .reads = true };
    fake_init(&w->fake, cfg->n_block, cfg->block_tokens, cfg->vocab);
    fake_windows(&w->fake, cfg->n_window, cfg->window);
    w->fake.lazy = lazy;
}
static inline void world_begin(struct world *w, uint32_t outbox)
{
    struct eng_runner run = fake_runner_late(&w->fake, w->depth, !w->waits);
    if (ring_init(&w->outbox, outbox) || eng_create(&w->cfg, &run, &w->e))
        WORLD_FAULT(w, "cannot create the engine");
    else
        w->fake.kv = eng_kv(w->e);
}
static inline void world_open_deep(struct world *w, const struct eng_cfg *cfg, uint32_t outbox, uint32_t depth,
                                   bool lazy)
{
    world_prepare(w, cfg, depth, lazy);
    world_begin(w, outbox);
}

static inline void world_open(struct world *w, const struct eng_cfg *cfg, uint32_t outbox)
{
    world_open_deep(w, cfg, outbox, 1, false);
}

/* All tokens of the prompt, and room for every answer. */
static inline struct client *client_new(struct world *w, const uint32_t *prompt, uint32_t n_prompt, uint32_t n_choice,
                                        uint32_t max_tokens)
{
    struct client *c = calloc(1, sizeof *c);
    c->prompt = malloc(n_prompt * sizeof *prompt);
    memcpy(c->prompt, prompt, n_prompt * sizeof *prompt);
    c->choice = calloc(n_choice, sizeof *c->choice);
    c->ids = calloc((size_t)n_choice * max_tokens, sizeof *c->ids);
    c->logprob = calloc((size_t)n_choice * max_tokens, sizeof *c->logprob);
    c->top = calloc((size_t)n_choice * max_tokens * 2, sizeof *c->top);
    c->prompt_logprob = calloc(n_prompt, sizeof *c->prompt_logprob);
    for (uint32_t i = 0; i < n_choice; i++) {
        c->choice[i].id = c->ids + (size_t)i * max_tokens;
        c->choice[i].logprob = c->logprob + (size_t)i * max_tokens;
        c->choice[i].top = c->top + (size_t)i * max_tokens * 2;
    }
    c->r.prompt = c->prompt;
    c->r.n_prompt = n_prompt;
    c->r.choice = c->choice;
    c->r.n_choice = n_choice;
    c->r.s.max_tokens = max_tokens;
    c->r.s.top_p = 1;
    c->r.s.repetition = 1;
    c->r.outbox = &w->outbox;
    c->r.user = c;
    c->r.prompt_logprob = c->prompt_logprob;
    return c;
}

static inline void client_free(struct client *c)
{
    for (uint32_t i = 0; i < c->r.n_choice; i++) guide_drop(c->choice[i].guide);
    free(c->prompt);
    free(c->choice);
    free(c->ids);
    free(c->logprob);
    free(c->top);
    free(c->prompt_logprob);
    free(c);
}

static inline enum status world_submit(struct world *w, struct client *c)
{
    c->r.id = ++w->n_client;
    c->step_submit = w->n_step;
    c->st = eng_submit(w->e, &c->r);
    c->submitted = c->st == ST_OK;
    if (c->submitted) w->open[w->n_open++] = c;
    return c->st;
}

static inline uint32_t client_n_out(const struct client *c)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->r.n_choice; i++) n += atomic_load(&c->choice[i].n_out);
    return n;
}

static inline bool client_ended(const struct client *c)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->r.n_choice; i++) n += atomic_load(&c->choice[i].finish) != ENG_NONE;
    return n == c->r.n_choice;
}

static inline void world_read(struct world *w)
{
    for (void *msg; (msg = ring_pop(&w->outbox));) {
        struct client *c = eng_msg_request(msg)->user;
        if (!c->submitted || c->n_final) WORLD_FAULT(w, "request %u: a message after the final one", (unsigned)c->r.id);
        c->n_message++;
        if (eng_msg_is_final(msg)) {
            c->n_final++;
            c->done = true;
            c->step_final = w->n_step;
            uint32_t at = 0;
            while (w->open[at] != c) at++;
            w->open[at] = w->open[--w->n_open];
        } else {
            if (!atomic_exchange(&c->r.notified, false))
                WORLD_FAULT(w, "request %u: notified without the flag", (unsigned)c->r.id);
        }
        c->n_seen = client_n_out(c);
        if (!c->step_first && atomic_load(&c->choice[0].n_out)) c->step_first = w->n_step;
    }
}

/* The same for the pool of windows. */
static inline void world_poison_windows(struct world *w)
{
    const struct kv *kv = eng_kv(w->e);
    uint8_t         *used = calloc(kv->cfg.n_window + 1, 1);
    for (uint32_t i = 0; w->fake.lazy && i < w->fake.n_flight; i++) {
        const struct batch *b = w->fake.flight[i];
        for (uint32_t s = 0; s < b->n_seq; s++)
            for (uint32_t k = b->win_start[s]; k < b->page_start[s + 1]; k++)
                if (b->page[k] != KV_NONE) used[b->page[k]] = 1;
        for (uint32_t k = 0; k < b->n_copy; k++) used[b->win_src[k]] = 1;
    }
    for (uint32_t i = 0; i < kv->win.pool.n_free; i++) {
        uint32_t block = kv->win.pool.free_id[i];
        if (!used[block]) memset(fake_win_block(&w->fake, block), 0xdb, fake_win_bytes(&w->fake));
    }
    free(used);
}

/* What a freed or not yet written slot holds must not matter: fill it with nonsense. A step that has not run yet may
 * still read a block that is free by now. */
static inline void world_poison(struct world *w)
{
    const struct kv *kv = eng_kv(w->e);
    uint32_t         bt = kv->cfg.block_tokens;
    uint8_t         *used = calloc(kv_n_name(kv), 1);
    for (uint32_t i = 0; w->fake.lazy && i < w->fake.n_flight; i++) {
        const struct batch *b = w->fake.flight[i];
        for (uint32_t s = 0; s < b->n_seq; s++)
            for (uint32_t k = b->page_start[s]; k < fake_page_end(b, s); k++) used[b->page[k]] = 1;
        for (uint32_t k = 0; k < b->n_copy; k++) used[b->copy_src[k]] = 1;
    }
    for (uint32_t i = 0; i < kv->pool.n_free; i++) {
        uint32_t block = kv->pool.free_id[i];
        if (!used[block]) memset(w->fake.cell + (size_t)block * bt, 0xdb, bt * sizeof *w->fake.cell);
    }
    free(used);
    if (kv->cfg.n_window) world_poison_windows(w);
}

/* The same for the pool of windows: the slots of a node, or of a running sequence, against those of the other pool. */
static inline void world_content_windows(struct world *w)
{
    const struct kv    *kv = eng_kv(w->e);
    const struct fake  *f = &w->fake;
    const struct sched *sc = &w->e->sched;
    uint32_t            bt = kv->cfg.block_tokens;
    for (uint32_t b = 0; b < kv->cfg.n_block; b++)
        for (uint32_t i = 0; kv->win.of[b] != KV_NONE && i < bt; i++)
            if (fake_win_block(f, kv->win.of[b])[i].chain != fake_block(f, b)[i].chain)
                WORLD_FAULT(w, "step %u: node %u has other tokens in its window's block", (unsigned)w->n_step, b);
    for (uint32_t i = 0; i < sc->n_running; i++) {
        const struct seq *s = sc->running[i];
        uint32_t          n = s->n_copy ? s->n_computed / bt * bt : s->n_computed;
        for (uint32_t p = s->kv.win_first * bt; p < n; p++)
            if (fake_win_block(f, s->kv.win[p / bt])[p % bt].chain != fake_block(f, s->kv.block[p / bt])[p % bt].chain)
                WORLD_FAULT(w, "step %u: request %u: position %u of its window is not its own", (unsigned)w->n_step,
                            (unsigned)s->r->id, p);
    }
}

/* What the tree and the running sequences say that their blocks hold against what was written there. */
static inline void world_content(struct world *w)
{
    const struct kv    *kv = eng_kv(w->e);
    const struct fake  *f = &w->fake;
    const struct sched *sc = &w->e->sched;
    uint32_t            bt = kv->cfg.block_tokens;
    if (f->fail_at || (f->lazy && f->n_flight)) return; /* copies in flight are not made yet */
    for (uint32_t b = 0; b < kv_n_name(kv); b++)
        for (uint32_t i = 0; kv_in_tree(kv, b) && i < bt; i++)
            if (kv->tree.token[(size_t)b * bt + i] != fake_block(f, b)[i].token)
                WORLD_FAULT(w, "step %u: block %u of the tree holds other tokens", (unsigned)w->n_step, b);
    for (uint32_t i = 0; i < sc->n_running; i++) {
        const struct seq *s = sc->running[i];
        uint64_t          chain = 0;
        uint32_t          n =
            s->n_copy ? s->n_computed / bt * bt : s->n_computed; /* a borrowed tail comes with the first rows */
        for (uint32_t p = 0; p < n; p++) {
            chain = fake_link(chain, s->id[p], p);
            if (fake_block(f, s->kv.block[p / bt])[p % bt].chain != chain)
                WORLD_FAULT(w, "step %u: request %u: KV of position %u is not its own", (unsigned)w->n_step,
                            (unsigned)s->r->id, p);
        }
    }
    if (kv->cfg.n_window) world_content_windows(w);
}

/* What every open client may count on after a step that began when it had already asked. Only in small worlds: a crowd
 * takes too long to ask after each step. */
enum { WORLD_CROWD = 100 };
static inline void world_promises(struct world *w)
{
    if (w->n_open > WORLD_CROWD) return;
    for (uint32_t i = 0; i < w->n_open; i++) {
        const struct client *c = w->open[i];
        unsigned             id = (unsigned)c->r.id;
        bool                 ended = client_ended(c);
        if (c->r.deadline_us && c->r.deadline_us <= w->now_us && !ended)
            WORLD_FAULT(w, "request %u runs past its deadline", id);
        if (c->asked_to_end && !ended) WORLD_FAULT(w, "request %u runs although it is canceled", id);
        if (w->reads && list_empty(&w->e->retry) && client_n_out(c) != c->n_seen)
            WORLD_FAULT(w, "request %u was not told of its tokens", id);
        if (w->reads && list_empty(&w->e->retry) && ended) WORLD_FAULT(w, "request %u was not told of its end", id);
    }
}

/* The last one that was submitted. */
static inline const struct batch *world_batch(const struct world *w)
{
    const struct engine *e = w->e;
    return &e->flight[(e->first + (e->n_flight ? e->n_flight - 1 : e->depth - 1)) % e->depth].batch;
}

/* A look at everything costs more than a step: many short stories find more than few that are looked at all the
 * time. */
static inline bool world_looks(const struct world *w) { return w->look_every < 2 || w->n_step % w->look_every == 0; }

static inline bool world_step(struct world *w)
{
    struct engine *e = w->e;
    struct seq    *head = e->sched.n_running ? e->sched.running[0] : NULL;
    _Atomic int   *head_finish = head ? &head->c->finish : NULL;
    bool           did_work = false;
    for (uint32_t i = 0; i < w->n_open && w->n_open <= WORLD_CROWD; i++)
        w->open[i]->asked_to_end = atomic_load(&w->open[i]->r.canceled);
    w->n_step++;
    enum status st = eng_step(e, w->now_us, &did_work);
    if (w->fake.fault) WORLD_FAULT(w, "step %u: %s", (unsigned)w->n_step, w->fake.fault);
    if (world_looks(w) && kv_check(eng_kv(e))) WORLD_FAULT(w, "step %u: kv_check", (unsigned)w->n_step);
    struct kv_stats ks;
    kv_stats(eng_kv(e), &ks);
    if (ks.n_free + ks.n_private + ks.n_tree != w->cfg.n_block)
        WORLD_FAULT(w, "step %u: blocks do not add up", (unsigned)w->n_step);
    if (world_looks(w)) sched_check(&e->sched);
    if (world_looks(w) && w->n_open <= WORLD_CROWD) world_content(w);
    if (e->n_flight != w->fake.n_flight || e->n_flight >= w->depth)
        WORLD_FAULT(w, "step %u: steps in flight", (unsigned)w->n_step);
    if (!did_work && !list_empty(&e->live) && !(e->tiers && kv_tiers_busy(e->tiers)))
        WORLD_FAULT(w, "step %u: requests, and nothing done for them", (unsigned)w->n_step);
    if (did_work && st == ST_OK && e->sched.n_plan &&
        world_batch(w)->n_row + e->sched.budget != w->cfg.batch_tokens_max)
        WORLD_FAULT(w, "the budget does not add up");
    /* Whoever is first stays first until it ends: only that makes sure that someone always gets on. */
    bool purged = e->tiers && kv_tiers_purges(e->tiers); /* then all give way to what they compute anew */
    if (head && !purged && atomic_load(head_finish) == ENG_NONE && head->state != SEQ_RUNNING)
        WORLD_FAULT(w, "the oldest was preempted");
    world_poison(w);
    if (w->reads) world_read(w);
    world_promises(w);
    return did_work;
}

/* One finished client against what it had to get. */
static inline void world_verify(struct world *w, const struct client *c)
{
    const struct eng_request *r = &c->r;
    unsigned                  id = (unsigned)r->id;
    if (c->n_final != 1) {
        WORLD_FAULT(w, "request %u: %u final messages", id, c->n_final);
        return;
    }
    uint32_t *want = malloc(r->s.max_tokens * sizeof *want);
    float    *lp = malloc(r->s.max_tokens * sizeof *lp);
    for (uint32_t i = 0; i < r->n_choice; i++) {
        struct eng_choice *ch = &c->choice[i];
        enum eng_finish    finish = (enum eng_finish)atomic_load(&ch->finish);
        uint32_t           n = atomic_load(&ch->n_out);
        struct fake_answer a = { .id = want, .logprob = lp };
        fake_expect(r, i, &w->cfg, &a);
        bool whole = finish == ENG_STOP || finish == ENG_LENGTH;
        if (finish == ENG_NONE) WORLD_FAULT(w, "request %u.%u: final without a finish", id, i);
        if (n > a.n || (whole && n != a.n))
            WORLD_FAULT(w, "request %u.%u: %u tokens, expected %u", id, i, n, a.n);
        else if (memcmp(ch->id, want, n * sizeof *want))
            WORLD_FAULT(w, "request %u.%u: another text than expected", id, i);
        else if (whole && finish != a.finish)
            WORLD_FAULT(w, "request %u.%u: finish %d, expected %d", id, i, (int)finish, (int)a.finish);
        else if (finish == ENG_STOP && ch->stop_id != want[n - 1])
            WORLD_FAULT(w, "request %u.%u: stop id %u", id, i, ch->stop_id);
        else if (r->s.logprobs && memcmp(ch->logprob, lp, n * sizeof *lp))
            WORLD_FAULT(w, "request %u.%u: other logprobs", id, i);
        if (finish == ENG_CANCELED && !atomic_load(&r->canceled) && !atomic_load(&ch->canceled) &&
            !atomic_load(&w->e->draining))
            WORLD_FAULT(w, "request %u.%u: canceled by nobody", id, i);
        if (finish == ENG_TIMEOUT && (!r->deadline_us || r->deadline_us > w->now_us))
            WORLD_FAULT(w, "request %u.%u: early timeout", id, i);
        if (finish == ENG_UNCACHED && (!(r->hit_share > 0) || n || r->n_preempted))
            WORLD_FAULT(w, "request %u.%u: refused for its cache", id, i);
        if (finish == ENG_ERROR && !c->expect_nan && !w->fake.fail_at &&
            !(w->fake.refuse_every && r->status == ST_STEP))
            WORLD_FAULT(w, "request %u.%u: an error for nothing", id, i);
        if (whole && i == 0 && r->s.prompt_logprobs) {
            uint64_t chain = 0;
            for (uint32_t k = 0; k + 1 < r->n_prompt; k++) {
                chain = fake_link(chain, r->prompt[k], k);
                if (r->prompt_logprob[k + 1] != fake_logprob(chain, r->prompt[k + 1]))
                    WORLD_FAULT(w, "request %u: prompt logprob %u", id, k + 1);
            }
        }
    }
    if (r->n_preempted > r->n_choice * w->cfg.preempt_max)
        WORLD_FAULT(w, "request %u: preempted %u times", id, r->n_preempted);
    free(want);
    free(lp);
}

/* After the last final message: every ledger is at zero. */
static inline void world_ledger(struct world *w)
{
    struct eng_stats s;
    kv_unpin(eng_kv(w->e), UINT64_MAX);
    step_publish(w->e);
    eng_stats(w->e, &s);
    if (w->n_open) WORLD_FAULT(w, "%u requests never ended", w->n_open);
    if (!eng_idle(w->e)) WORLD_FAULT(w, "the engine is not idle");
    if (pool_used(&w->e->reqs) || pool_used(&w->e->seqs))
        WORLD_FAULT(w, "requests or sequences are left in the engine");
    if (atomic_load(&w->e->n_queued) || atomic_load(&w->e->n_queued_tokens))
        WORLD_FAULT(w, "the queue's counts are not zero");
    if (s.n_running || s.n_waiting || s.kv_used)
        WORLD_FAULT(w, "%u running, %u waiting, %u blocks used", s.n_running, s.n_waiting, s.kv_used);
    for (uint32_t i = 0; i < FAIR_TENANTS_MAX; i++)
        if (w->e->sched.fair.tenant[i].n_live) WORLD_FAULT(w, "a tenant still has requests");
    kv_evict_all(eng_kv(w->e));
    if (kv_check(eng_kv(w->e)) || kv_free_count(eng_kv(w->e)) != w->cfg.n_block) WORLD_FAULT(w, "blocks are lost");
}

static inline void world_close(struct world *w)
{
    if (w->e) {
        eng_stop(w->e);
        eng_free(w->e);
    }
    ring_free(&w->outbox);
    fake_free(&w->fake);
}
