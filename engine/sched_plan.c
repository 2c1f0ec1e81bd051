/* sched_plan: the rows of a step: one for each decoding sequence, what is left for chunks of prompts, of those that run
 * before those that wait. */
#include "engine/sched_impl.h"
#include "base/check.h"

/* Rows that could be computed: none for whoever surely ends in flight, or waits for its fork, or whose grammar must
 * know the token in flight before the row is planned. */
static uint32_t rows_left(const struct sched *s, const struct seq *q)
{
    uint32_t n = seq_n_ahead(q);
    if (q->c->guide && q->fly_token && !s->draws_late) return 0;
    if (q->forking || (q->fly_token && (n >= q->n_max || n >= s->cfg.context_max))) return 0;
    return n - seq_next(q);
}

static bool gave_up(const struct sched *s) { return s->in_flight && s->short_of_blocks; }

/* Is the mask of the next row missing? While a token is in flight the guide still has the mask before it. */
static bool is_late(const struct seq *q)
{
    return q->c->guide && (q->fly_token || guide_state(q->c->guide) == GUIDE_BUSY);
}

/* May the next row sample? A mask that is still being made is not waited for; where steps draw late it may come while
 * the step runs. */
static bool may_sample(const struct sched *s, const struct seq *q, struct sample_need need)
{
    if (q->c->guide && guide_state(q->c->guide) == GUIDE_FAILED) return false;
    if (is_late(q) && (!s->draws_late || q->tardy)) return false;
    return sample_fits(s->batch, s->used, need);
}

static void set_samples(struct sched *s, struct seq *q, struct sample_need need)
{
    q->samples = true;
    q->late = s->draws_late && is_late(q);
    q->tardy = false;
    sample_use(&s->used, need);
}

/* Gives q up to n rows of the budget. false: no row of it can run in this step. */
static bool plan_rows(struct sched *s, struct seq *q, uint32_t n)
{
    uint32_t left = rows_left(s, q);
    CHECK(left > 0);
    if (n > left) n = left;
    if (n > s->budget) n = s->budget;
    struct sample_need need = sample_need(q, s->cfg.n_eos);
    if (n == left && !may_sample(s, q, need)) n--; /* all but the row that would sample */
    if (s->cfg.whole && n < left) return false;
    if (n) n = sched_take(s, q, n);
    if (!n) return false;
    q->n_step = n;
    q->planned = true;
    if (n == left) set_samples(s, q, need);
    s->budget -= n;
    s->plan[s->n_plan++] = q;
    return true;
}

/* What the step has left goes to the prompts that were cut short, oldest first, as far as blocks allow without a
 * preemption. */
static void plan_rest(struct sched *s)
{
    for (uint32_t i = s->n_plan_one; i < s->n_plan && s->budget; i++) {
        struct seq        *q = s->plan[i];
        struct sample_need need = sample_need(q, s->cfg.n_eos);
        uint32_t           left = rows_left(s, q), n = q->n_step + s->budget;
        if (n > s->cfg.chunk_max) n = s->cfg.chunk_max;
        if (n > left) n = left;
        if (n == left && !q->samples && !may_sample(s, q, need)) n--;
        if (n <= q->n_step || !sched_reserve(s, q, seq_next(q) + n)) continue;
        n = sched_held(s, q, n);
        if (n <= q->n_step) continue;
        s->budget -= n - q->n_step;
        q->n_step = n;
        if (n == left) set_samples(s, q, need);
    }
}

/* Rows for one prompt: while others wait for a first row, half of what is left is enough, unless it is short. A long
 * one then takes at most twice as long, and the short ones behind it do not wait for its end. */
static uint32_t chunk(const struct sched *s, bool others)
{
    if (s->cfg.whole) return s->budget;
    uint32_t half = (s->budget + 1) / 2, short_one = s->cfg.tokens_max / 4;
    if (half < short_one) half = short_one;
    others |= s->n_resume > 0 || s->fair.n_waiting > 0;
    return others && half < s->cfg.chunk_max ? half : s->cfg.chunk_max;
}

/* A plan without anybody yet. False: a row depends on an id that only the device knows yet. */
static bool begin(struct sched *s)
{
    s->n_plan = s->n_plan_one = 0;
    s->budget = s->cfg.tokens_max;
    s->used = (struct sample_need){ 0 };
    s->short_of_blocks = false;
    for (uint32_t i = 0; i < s->n_running; i++) {
        struct seq *q = s->running[i];
        if (q->on_host && q->fly_token && rows_left(s, q)) return false;
        q->planned = q->samples = q->late = false;
        q->n_step = 0;
    }
    return true;
}

/* Of tests: sched_cfg.preempt_every. False: nobody can be preempted while a step is in flight. */
static bool preempt_one(struct sched *s)
{
    if (!s->cfg.preempt_every || s->step < s->preempt_at || s->n_running <= 1) return true;
    struct seq *v = sched_victim(s, s->running[0]);
    if (v && s->in_flight) return false;
    if (v) sched_preempt(s, v);
    s->preempt_at = s->step + s->cfg.preempt_every;
    s->short_of_blocks = false;
    return true;
}

/* Those that need one row first. A victim is always younger, so it stands behind i and removing it moves nobody
 * before. */
static void plan_running(struct sched *s)
{
    uint32_t n_prompt = 0;
    for (uint32_t i = 0; i < s->n_running && s->budget && !gave_up(s); i++) {
        uint32_t left = rows_left(s, s->running[i]);
        if (left == 1) plan_rows(s, s->running[i], 1);
        n_prompt += left > 1;
    }
    s->n_plan_one = s->n_plan;
    for (uint32_t i = 0; i < s->n_running && n_prompt && s->budget && !gave_up(s); i++)
        if (rows_left(s, s->running[i]) > 1) plan_rows(s, s->running[i], chunk(s, --n_prompt > 0));
}

bool sched_plan(struct sched *s, uint64_t step, uint64_t now_us, bool in_flight)
{
    s->step = step;
    s->now_us = now_us;
    s->in_flight = in_flight;
    if (!begin(s) || !preempt_one(s)) return false;
    plan_running(s);
    for (struct seq *q; s->budget && (q = sched_admit(s));) plan_rows(s, q, chunk(s, false));
    if (gave_up(s)) return false;
    plan_rest(s);
    return true;
}
