#include "server/settle.h"
#include "base/check.h"
#include "server/io.h"
#include <stddef.h>
#include <stdlib.h>

bool settle_is_dear(const struct call *c) { return answer_settle_cost(c) > SETTLE_INLINE_MAX; }

static void settle_run(struct text_job *j)
{
    struct settle *s = (struct settle *)(void *)((char *)j - offsetof(struct settle, job));
    for (uint32_t k = s->n_back; k < s->n_lent; k++) {
        if (atomic_load_explicit(s->unheard, memory_order_relaxed)) return;
        answer_settle(s->call, s->choice[k]);
    }
}

/* What was let into the engine is not refused here, and is bounded by that: text_continue takes it. */
static void lend(struct settle *s)
{
    uint64_t cost = answer_settle_cost(s->call);
    uint32_t n = s->n - s->n_lent, most = cost < SETTLE_JOB_MAX ? (uint32_t)(SETTLE_JOB_MAX / cost) : 1;
    if (!n || s->busy || s->job.io->stopping) return;
    if (n > most) n = most;
    s->n_lent += n;
    s->job.bytes = n * cost / SETTLE_BYTE;
    s->busy = true;
    text_continue(s->job.io->srv->text, &s->job);
}

static void settle_done(struct text_job *j)
{
    struct settle  *s = (struct settle *)(void *)((char *)j - offsetof(struct settle, job));
    const uint32_t *back = s->choice + s->n_back;
    uint32_t        n = s->n_lent - s->n_back;
    s->busy = false;
    s->n_back = s->n_lent;
    if (s->done(s, back, n)) lend(s);
}

void settle_init(struct settle *s, struct io *io, uint64_t who)
{
    s->job = (struct text_job){ .io = io, .run = settle_run, .done = settle_done, .who = who };
}

bool settle_add(struct settle *s, uint32_t i)
{
    if (!s->choice && !(s->choice = malloc(s->call->n_choice * sizeof *s->choice))) return false;
    CHECK(s->n < s->call->n_choice);
    s->choice[s->n++] = i;
    lend(s);
    return true;
}

void settle_free(struct settle *s)
{
    CHECK(!s->busy);
    free(s->choice);
    s->choice = NULL;
}
