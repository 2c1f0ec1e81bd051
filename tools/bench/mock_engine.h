/* mock_engine: an engine that computes nothing: it writes ids into the choices of every request as fast as they are
 * read, over the same messages as the real one (engine/request.h). For bench_sse and the server's tests.
 * mock_start -> mock_engine_ops -> mock_stop.   Thread: its own. */
#pragma once
#include "base/clock.h"
#include "base/thread.h"
#include "server/io.h"
#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum { MOCK_ACTIVE_MAX = 16384 };

struct mock {
    struct ring          inbox;
    pthread_t            thread;
    struct eng_request **active;
    uint32_t             n_active;
    const uint32_t      *id; /* written round and round */
    uint32_t             n_id;
    _Atomic uint32_t     burst;      /* tokens per visit and choice */
    _Atomic uint32_t     first_only; /* that many tokens, then silence until canceled; 0: off */
    _Atomic bool         hold;       /* nothing at all until canceled */
    _Atomic bool         fail;       /* every request ends in ENG_ERROR after its first tokens */
    _Atomic uint32_t     pause_us;   /* between two visits */
    _Atomic bool         stop, dead;
    _Atomic uint64_t     n_token, n_submitted, n_finished, n_canceled;
    _Atomic uint32_t     n_live;
    _Atomic uint32_t     refuse_above; /* live requests; 0: no bound */
};

static enum status mock_submit(void *ctx, struct eng_request *r)
{
    struct mock *m = ctx;
    if (atomic_load(&m->dead)) return ST_DEVICE;
    if (m->refuse_above && atomic_load(&m->n_live) >= m->refuse_above) return ST_AGAIN;
    r->t_submit_us = clock_us();
    atomic_fetch_add(&m->n_live, 1);
    atomic_fetch_add(&m->n_submitted, 1);
    if (ring_push(&m->inbox, r)) return ST_OK;
    atomic_fetch_sub(&m->n_live, 1);
    return ST_AGAIN;
}

static void mock_cancel(void *ctx, struct eng_request *r)
{
    struct mock *m = ctx;
    atomic_store(&r->canceled, true);
    ring_wake(&m->inbox);
}

static bool mock_alive(void *ctx, uint64_t now_us)
{
    (void)now_us;
    return !atomic_load(&((struct mock *)ctx)->dead);
}

static void mock_stats(void *ctx, struct eng_stats *out)
{
    struct mock *m = ctx;
    memset(out, 0, sizeof *out);
    out->n_running = atomic_load(&m->n_live);
    out->n_generated = atomic_load(&m->n_token);
    out->kv_blocks = 1;
    out->dead = atomic_load(&m->dead);
}

static struct gen_engine mock_engine_ops(struct mock *m)
{
    return (struct gen_engine){
        .ctx = m, .submit = mock_submit, .cancel = mock_cancel, .alive = mock_alive, .stats = mock_stats
    };
}

/* Of a prompt that becomes a state: its length, in the first number. True: the request is over. */
static inline bool mock_state(struct mock *m, struct eng_request *r, bool *wrote)
{
    enum eng_finish f = atomic_load(&r->canceled) ? ENG_CANCELED : ENG_STOP;
    if (f == ENG_STOP && m->hold) return false;
    r->state[0] = r->n_prompt;
    atomic_store_explicit(&r->choice[0].finish, f, memory_order_release);
    return *wrote = true;
}

/* Writes up to burst tokens to each choice. True: the request is over. */
static inline bool mock_visit(struct mock *m, struct eng_request *r, bool *wrote)
{
    bool over = true, canceled = atomic_load(&r->canceled);
    if (!r->t_sched_us) r->t_sched_us = clock_us();
    for (uint32_t i = 0; i < r->n_choice; i++) {
        struct eng_choice *c = &r->choice[i];
        if (atomic_load_explicit(&c->finish, memory_order_relaxed)) continue;
        uint32_t n = atomic_load_explicit(&c->n_out, memory_order_relaxed), to = n + m->burst;
        if (m->hold) to = n;
        if (m->first_only && to > m->first_only) to = n > m->first_only ? n : m->first_only;
        if (to > r->s.max_tokens) to = r->s.max_tokens;
        if (!canceled && to > n) {
            for (uint32_t k = n; k < to; k++) {
                c->id[k] = m->id[k % m->n_id];
                if (c->logprob) c->logprob[k] = -0.5f;
                for (uint32_t t = 0; c->top && t < r->s.n_top; t++)
                    c->top[k * r->s.n_top + t] = (struct eng_top){ m->id[t % m->n_id], -0.5f };
            }
            if (!r->t_first_us) r->t_first_us = clock_us();
            atomic_store_explicit(&c->n_out, to, memory_order_release);
            atomic_fetch_add_explicit(&m->n_token, to - n, memory_order_relaxed);
            *wrote = true;
        }
        enum eng_finish f = m->fail && to > 0 ? ENG_ERROR : ENG_NONE;
        if (to == r->s.max_tokens) f = ENG_LENGTH;
        if (canceled || atomic_load(&c->canceled)) f = ENG_CANCELED;
        if (f) {
            atomic_store_explicit(&c->finish, f, memory_order_release);
            *wrote = true;
        } else {
            over = false;
        }
    }
    return over;
}

/* How long nothing need be looked at. A new request wakes it; a reader that has caught up, and a test that lets go of
 * `hold` or `first_only`, do not. */
static inline int64_t mock_pause_us(const struct mock *m)
{
    if (!m->n_active) return 100000;
    return m->first_only || m->hold ? 1000 : 50;
}

static void *mock_main(void *arg)
{
    struct mock *m = arg;
    while (!atomic_load(&m->stop) || m->n_active) {
        bool busy = false;
        for (struct eng_request *r; m->n_active < MOCK_ACTIVE_MAX && (r = ring_pop(&m->inbox));) {
            m->active[m->n_active++] = r;
            busy = true;
        }
        for (uint32_t i = 0; i < m->n_active;) {
            struct eng_request *r = m->active[i];
            bool                wrote = false;
            if (atomic_load(&m->stop)) atomic_store(&r->canceled, true);
            /* the reader's pace: no more before it has taken what it was told of */
            if (atomic_load_explicit(&r->notified, memory_order_relaxed) && !atomic_load(&r->canceled)) {
                i++;
                continue;
            }
            bool over = r->state ? mock_state(m, r, &wrote) : mock_visit(m, r, &wrote);
            busy |= wrote;
            if (over) {
                m->active[i] = m->active[--m->n_active];
                atomic_fetch_sub(&m->n_live, 1);
                atomic_fetch_add(&m->n_finished, 1);
                if (atomic_load(&r->canceled)) atomic_fetch_add(&m->n_canceled, 1);
                while (!ring_push(r->outbox, (void *)((uintptr_t)r | 1))) sched_yield();
                continue;
            }
            if (wrote && !atomic_exchange(&r->notified, true))
                while (!ring_push(r->outbox, r)) sched_yield();
            i++;
        }
        if (m->pause_us)
            ring_wait(&m->inbox, m->pause_us);
        else if (!busy)
            ring_wait(&m->inbox, mock_pause_us(m));
    }
    return NULL;
}

static inline enum status mock_start(struct mock *m)
{
    m->active = calloc(MOCK_ACTIVE_MAX, sizeof *m->active);
    if (!m->burst) m->burst = 32;
    if (!m->active || ring_init(&m->inbox, MOCK_ACTIVE_MAX)) return ST_NOMEM;
    return thread_start(&m->thread, THREAD_ENGINE, "mock", mock_main, m);
}

static inline void mock_stop(struct mock *m)
{
    atomic_store(&m->stop, true);
    ring_wake(&m->inbox);
    pthread_join(m->thread, NULL);
    ring_free(&m->inbox);
    free(m->active);
}
