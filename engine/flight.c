#include "engine/flight.h"
#include "base/check.h"
#include "base/log.h"
#include "engine/req.h"
#include "engine/step.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

enum status flight_init(struct flight *f, const struct batch_cfg *cfg)
{
    *f = (struct flight){ 0 };
    enum status st = batch_init(&f->batch, cfg);
    if (st) return st;
    f->seq = calloc(cfg->seqs_max, sizeof *f->seq);
    f->sample = calloc(cfg->seqs_max, sizeof *f->sample);
    if (f->seq && f->sample) return ST_OK;
    flight_close(f);
    return ST_NOMEM;
}

void flight_close(struct flight *f)
{
    slots_sent(&f->batch);
    batch_free(&f->batch);
    free(f->seq);
    free(f->sample);
    *f = (struct flight){ 0 };
}

/* ---- the batch */

static void add_sample(struct engine *e, struct flight *f, struct seq *s, uint32_t row, uint32_t lead)
{
    uint32_t k = f->n_sample++;
    sample_add(&f->batch, s, s->id, row, &e->limits, e->cfg.vocab);
    f->sample[k] = (struct flight_sample){
        .s = s, .stay = s->stay, .slot = s->kv.slot, .lead = lead, .of = f->n_seq - 1, .late = s->late
    };
    f->late = f->late || s->late;
}

/* All choices whose request has its prompt computed in this step sample their first token from the same row. */
static void add_siblings(struct engine *e, struct flight *f, struct seq *lead, uint32_t row)
{
    struct req *q = lead->q;
    uint32_t    k = f->n_sample - 1;
    lead->lead = false;
    while (q->n_spawned < q->r->n_choice) {
        struct eng_choice *c = &q->r->choice[q->n_spawned];
        if (atomic_load_explicit(&c->canceled, memory_order_acquire)) {
            q->n_spawned++;
            req_finish_choice(e, q, c, ENG_CANCELED);
            continue;
        }
        struct seq *kid = req_spawn(e, q);
        if (sched_sibling(&e->sched, kid, lead)) {
            add_sample(e, f, kid, row, k);
            sched_sent(&e->sched, kid, f->n_sample - 1);
        } else {
            sched_resume(&e->sched, kid);
        }
    }
}

static void add_seq(struct engine *e, struct flight *f, struct seq *s)
{
    struct batch *b = &f->batch;
    uint32_t      first = seq_next(s), n = s->n_step, end = first + n;
    uint32_t      n_page = (end - 1) / e->cfg.block_tokens + 1;
    uint32_t      row = batch_add(b, s->id + first, n, first, s->kv.block, n_page);
    if (s->kv.win) {
        CHECK(n_page <= s->kv.n_win);
        batch_window(b, s->kv.win, n_page);
    }
    if (s->adapter) batch_adapter(b, s->adapter);
    if (s->r->second) batch_second(b, s->r->second);
    if (s->n_copy) batch_add_copy(b, s->copy);
    if (end > s->n_token) batch_patch_id(b, row + s->n_token - first, s->fly_sample);
    req_unqueue(e, s->q);
    f->seq[f->n_seq++] = (struct flight_seq){ .s = s,
                                              .stay = s->stay,
                                              .slot = s->kv.slot,
                                              .first = first,
                                              .n = n,
                                              .sample = f->n_sample,
                                              .n_sample = s->samples ? 1 : 0 };
    bool samples = s->samples;
    if (samples) add_sample(e, f, s, row + n - 1, f->n_sample);
    sched_sent(&e->sched, s, f->n_sample - 1);
    if (samples && s->lead) add_siblings(e, f, s, row + n - 1);
}

/* Rows of the prompt whose result is wanted beside the last one's: none but for prompt_logprobs and for states that are
 * not the last row's. */
static void add_rows(struct batch *b, struct flight_seq *x, uint32_t row)
{
    const struct eng_request *r = x->s->r;
    if (!eng_wants_rows(r)) return;
    x->lp_pos = x->first > x->s->q->n_lp ? x->first : x->s->q->n_lp;
    if (x->lp_pos < r->state_from) x->lp_pos = r->state_from;
    uint32_t end = r->n_prompt;
    if (r->s.state_of == ENG_STATE_FIRST && end - r->state_from > 2) end = r->state_from + 2;
    for (uint32_t p = x->lp_pos; p < x->first + x->n && p + 1 < end; p++, x->n_lp++)
        batch_add_lp(b, row + p - x->first, r->prompt[p + 1], r->s.n_prompt_top);
}

void flight_fill(struct engine *e, struct flight *f)
{
    struct batch *b = &f->batch;
    struct sched *sc = &e->sched;
    batch_clear(b);
    slots_fill(&sc->slots, b);
    f->n_seq = f->n_sample = 0;
    f->late = false;
    for (uint32_t i = 0; i < sc->n_plan; i++) add_seq(e, f, sc->plan[i]);
    b->late = f->late;
    for (uint32_t i = 0; i < f->n_seq; i++) add_rows(b, &f->seq[i], b->row_start[i]);
    b->n_state = b->n_logit * e->cfg.state_dim;
}

void flight_masks(struct engine *e, struct flight *f)
{
    for (uint32_t k = 0; k < f->n_sample; k++) {
        struct flight_sample *x = &f->sample[k];
        if (!x->late || !sched_stays(&e->sched, x->slot, x->stay)) continue; /* its guide may be gone with it */
        x->undrawn = guide_state(x->s->c->guide) != GUIDE_READY;
        if (!x->undrawn) {
            sample_mask(&f->batch, k, x->s, &e->limits, e->cfg.vocab);
            continue;
        }
        f->seq[x->of].n--;
        f->seq[x->of].n_sample = 0;
        sched_undrawn(&e->sched, x->s);
        step_count(&e->a.n_undrawn, 1);
    }
}

/* ---- the results */

static void add_state(double *sum, const float *state, uint32_t dim)
{
    for (uint32_t j = 0; j < dim; j++) sum[j] += (double)state[j];
}

static bool is_sound(const float *state, size_t n)
{
    bool sound = true;
    for (size_t j = 0; j < n; j++) sound = sound && isfinite(state[j]);
    return sound;
}

static bool seq_stays(const struct engine *e, const struct flight_seq *x)
{
    return sched_stays(&e->sched, x->slot, x->stay);
}
static bool sample_stays(const struct engine *e, const struct flight_sample *x)
{
    return !x->undrawn && sched_stays(&e->sched, x->slot, x->stay);
}

/* k: the first of its logprobs in the batch */
static void store_prompt_logprobs(const struct batch *b, const struct flight_seq *x, uint32_t k)
{
    struct eng_request *r = x->s->r;
    uint32_t            n_top = r->s.n_prompt_top;
    for (uint32_t p = x->lp_pos; p < x->lp_pos + x->n_lp; p++, k++) {
        r->prompt_logprob[p + 1] = b->out.lp[k];
        if (r->prompt_rank) r->prompt_rank[p + 1] = b->out.lp_rank[k];
        for (uint32_t j = 0; r->prompt_top && j < n_top; j++) {
            size_t from = (size_t)k * OP_SAMPLE_TOP_MAX + j;
            r->prompt_top[(size_t)(p + 1) * n_top + j] =
                (struct eng_top){ b->out.lp_top_id[from], b->out.lp_top[from] };
        }
    }
    x->s->q->n_lp = x->lp_pos + x->n_lp;
}

/* Adds up rows of the prompt in their order, so that the sum does not depend on where the prompt was cut. k: the first
 * of their states in the batch. */
static void add_states(const struct engine *e, const struct batch *b, const struct flight_seq *x, uint32_t k)
{
    double  *sum = x->s->r->state;
    uint32_t dim = e->cfg.state_dim;
    for (uint32_t i = 0; sum && i < x->n_lp; i++) add_state(sum, b->out.state + (size_t)(k + i) * dim, dim);
    x->s->q->n_lp = x->lp_pos + x->n_lp;
    if (x->s->r->s.state_of == ENG_STATE_FIRST) x->s->q->n_lp = x->s->r->n_prompt; /* others may come from the cache */
}

/* The rows of one sequence in this step, and what was added up before. */
static bool states_are_sound(const struct engine *e, const struct batch *b, const struct flight_seq *x, uint32_t k)
{
    uint32_t      dim = e->cfg.state_dim;
    const double *sum = x->s->r->state;
    bool          sound = is_sound(b->out.state + (size_t)k * dim, (size_t)x->n_lp * dim);
    for (uint32_t j = 0; sum && j < dim; j++) sound = sound && isfinite(sum[j]);
    for (uint32_t i = x->sample; i < x->sample + x->n_sample; i++)
        sound = sound && is_sound(b->out.state + (size_t)i * dim, dim);
    return sound;
}

/* A state that is no number is told at the prompt's end, as a sample that met NaN is. */
static void judge_states(const struct engine *e, struct flight *f)
{
    struct batch *b = &f->batch;
    for (uint32_t i = 0, lp = f->n_sample; i < f->n_seq; lp += f->seq[i++].n_lp) {
        const struct flight_seq *x = &f->seq[i];
        bool                     sound = seq_stays(e, x) && states_are_sound(e, b, x, lp);
        for (uint32_t k = x->sample; k < x->sample + x->n_sample; k++) b->out.id[k] = sound ? 0 : UINT32_MAX;
    }
}

/* Its prompt is computed. Before the first token is published: who sees that sees n_pinned. */
static void pin_prompt(struct engine *e, const struct seq *s)
{
    struct eng_request *r = s->r;
    if (!r->keep.pin_s || s->q->pin_asked) return;
    s->q->pin_asked = true;
    r->n_pinned =
        kv_pin(e->kv, &s->kv, r->n_prompt, r->tenant, e->now_us + r->keep.pin_s * (uint64_t)1000000, &s->q->mark);
}

/* The prompt's last row has come, and with it the end: no token is drawn. */
static void end_with_state(struct engine *e, const struct batch *b, struct seq *s, uint32_t i, uint64_t now_us)
{
    struct eng_request *r = s->r;
    uint32_t            dim = e->cfg.state_dim;
    r->t_first_us = r->t_last_us = now_us;
    s->fly_token--;
    bool counts = r->s.state_of == ENG_STATE_FIRST ? r->state_from + 1 == r->n_prompt : r->state_from < r->n_prompt;
    if (r->state && counts) add_state(r->state, b->out.state + (size_t)i * dim, dim);
    req_finish_seq(e, s, ENG_STOP);
}

static void append(struct engine *e, const struct batch *b, struct seq *s, uint32_t i, uint64_t now_us)
{
    struct seq_token    t = { .id = b->out.id[i],
                              .logprob = b->out.logprob[i],
                              .top_id = b->out.top_id + (size_t)i * OP_SAMPLE_TOP_MAX,
                              .top_logprob = b->out.top_logprob + (size_t)i * OP_SAMPLE_TOP_MAX };
    struct eng_request *r = s->r;
    if (!r->t_first_us) r->t_first_us = now_us;
    r->t_last_us = now_us;
    s->fly_token--;
    pin_prompt(e, s);
    enum eng_finish finish = seq_append(s, &t, &e->limits);
    fair_charge(s->q->tenant, 1);
    step_count(&e->a.n_generated, 1);
    if (finish == ENG_NONE) {
        if (s->c->guide) guide_post(e->guides, s->c->guide, t.id);
        req_notify(e, s->q);
        return;
    }
    struct req *q = s->q;
    bool        last = q->n_done + 1 == r->n_choice;
    req_finish_seq(e, s,
                   finish); /* the final message of the last choice is notification enough; r may be gone after it */
    if (!last) req_notify(e, q);
}

/* None of the samples of a sequence met a NaN. */
static bool samples_are_sound(const struct batch *b, const struct flight_seq *x)
{
    for (uint32_t k = x->sample; k < x->sample + x->n_sample; k++)
        if (b->out.id[k] == UINT32_MAX) return false;
    return true;
}

/* A NaN in a row means that the KV behind it is in doubt: nothing of this step is shared, and the request ends
 * alone. */
static void apply_rows(struct engine *e, struct flight *f)
{
    struct batch *b = &f->batch;
    for (uint32_t k = 0; k < f->n_sample; k++)
        if (b->out.id[f->sample[k].lead] == UINT32_MAX) b->out.id[k] = UINT32_MAX;
    for (uint32_t i = 0, lp = 0; i < f->n_seq; lp += f->seq[i++].n_lp) {
        const struct flight_seq *x = &f->seq[i];
        if (!seq_stays(e, x)) continue;
        if (x->n_lp && e->cfg.state_dim) add_states(e, b, x, f->n_sample + lp);
        if (x->n_lp && !e->cfg.state_dim) store_prompt_logprobs(b, x, lp);
        if (samples_are_sound(b, x)) sched_commit(&e->sched, x->s, x->n);
    }
}

static void apply_forks(struct engine *e, const struct flight *f)
{
    for (uint32_t k = 0; k < f->n_sample; k++) {
        const struct flight_sample *x = &f->sample[k], *lead = &f->sample[x->lead];
        if (x == lead || !sample_stays(e, x)) continue;
        CHECK(sample_stays(e, lead)); /* a choice that is canceled while it forks goes on until here (step.c) */
        if (f->batch.out.id[k] != UINT32_MAX) sched_fork(&e->sched, lead->s, x->s);
    }
    for (uint32_t k = 0; k < f->n_sample; k++)
        if (sample_stays(e, &f->sample[k])) f->sample[k].s->forking = false;
}

void flight_fail(struct engine *e, struct flight *f)
{
    for (uint32_t i = 0; i < f->n_seq; i++)
        if (seq_stays(e, &f->seq[i])) req_finish(e, f->seq[i].s->q, ENG_ERROR, ST_STEP, true);
    slots_sent(&f->batch);
    f->n_seq = f->n_sample = 0;
}

/* A draw has failed: its logits are no numbers, or the request's own lists exclude all ids, which harms no KV and says
 * nothing of the device. */
static void end_undrawn(struct engine *e, const struct batch *b, const struct flight_sample *x)
{
    struct req *q = x->s->q;
    if (sample_leaves_none(b, x->lead, e->cfg.vocab)) {
        LOG_WARN_LIMITED("eng: request %016" PRIx64 " leaves no token to draw, it ends with an error", q->r->id);
        req_finish(e, q, ENG_ERROR, ST_NOT_FOUND, false);
        return;
    }
    step_count(&e->a.n_nan, 1);
    LOG_WARN_LIMITED("eng: request %016" PRIx64 " has NaN logits, it ends with an error", q->r->id);
    req_finish(e, q, ENG_ERROR, ST_INVALID, true);
}

void flight_apply(struct engine *e, struct flight *f, uint64_t now_us)
{
    const struct batch *b = &f->batch;
    if (e->cfg.state_dim) judge_states(e, f);
    apply_rows(e, f);
    apply_forks(e, f);
    for (uint32_t k = 0; k < f->n_sample; k++) {
        if (b->out.id[k] == UINT32_MAX || !sample_stays(e, &f->sample[k])) continue;
        if (e->cfg.state_dim)
            end_with_state(e, b, f->sample[k].s, k, now_us);
        else
            append(e, b, f->sample[k].s, k, now_us);
    }
    for (uint32_t k = 0; k < f->n_sample; k++) {
        if (b->out.id[k] != UINT32_MAX || !sample_stays(e, &f->sample[k])) continue;
        end_undrawn(e, b, &f->sample[k]);
    }
    slots_sent(&f->batch);
    f->n_seq = f->n_sample = 0;
}
