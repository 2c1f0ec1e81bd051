#include "kernels/cpu/team.h"
#include "base/check.h"
#include "base/thread.h"
#include "kernels/futex.h"
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    TEAM_SPIN = 1000,      /* pauses (each some 40 cycles) before a thread sleeps */
    TEAM_COST_MIN = 12000, /* cycles of work below which waking others costs more than it gives */
    TEAM_TAKE_COST = 2000, /* cycles of work that pay for taking it */
    TEAM_TAKE_MIN =
        4, /* times that a thread comes for pieces of its share at least, so that one that is held up leaves some */
    TEAM_PIECE_MAX = 65535, /* of one job: must fit a ticket */
};

struct team {
    team_fn         *fn;
    void            *arg;
    uint32_t         first, n_piece; /* piece number of this job's piece 0; all pieces */
    _Atomic uint32_t take; /* pieces at a time: small ones together; read before a job is known to be this one */
    _Alignas(64) _Atomic uint32_t done;
    _Atomic uint32_t caller_asleep;
    _Atomic int      busy;              /* team_run is under way */
    _Alignas(64) _Atomic uint32_t turn; /* rises with every job: the word that idle threads sleep on */
    _Atomic uint32_t asleep;
    _Atomic bool     quit;
    uint32_t         n_thread, n_started;
    struct team_member {
        /* The share of a thread: job << 32 | end << 16 | next piece. Pieces are taken by a compare-and-swap of this one
         * word, so a thread that comes late can neither take pieces of a job that is over nor read the description of
         * another: while a taken piece is not done, the job stays. Next jobs' shares of one thread are of the same
         * rows: they lie in its caches. */
        _Alignas(64) _Atomic uint64_t ticket;
        struct team *team;
        uint32_t     index;
        pthread_t    thread;
    } member[];
};

/* The next pieces of a share, [*begin_out, *end_out). */
static bool team_take(struct team *t, uint32_t share, uint32_t *begin_out, uint32_t *end_out)
{
    _Atomic uint64_t *ticket = &t->member[share].ticket;
    uint64_t          k = atomic_load_explicit(ticket, memory_order_acquire);
    for (;;) {
        uint32_t next = (uint32_t)(k & 0xffff), end = (uint32_t)(k >> 16 & 0xffff);
        uint32_t take = atomic_load_explicit(&t->take, memory_order_relaxed);
        if (next >= end) return false;
        if (take > end - next) take = end - next;
        if (!atomic_compare_exchange_weak_explicit(ticket, &k, k + take, memory_order_acq_rel, memory_order_acquire))
            continue;
        *begin_out = next;
        *end_out = next + take;
        return true;
    }
}

/* Takes pieces, of its own share and then of the others', until there are none; returns how many. They are not counted
 * as done yet. */
static uint32_t team_pieces(struct team *t, uint32_t thread)
{
    uint32_t begin, end, n = 0;
    for (uint32_t s = 0; s < t->n_thread; s++)
        while (team_take(t, thread + s < t->n_thread ? thread + s : thread + s - t->n_thread, &begin, &end)) {
            team_fn *fn = t->fn;
            void    *arg = t->arg;
            for (uint32_t i = t->first + begin, to = t->first + end; i < to; i++) fn(arg, i, thread);
            n += end - begin;
        }
    return n;
}

static void *team_member_run(void *arg)
{
    struct team_member *m = arg;
    struct team        *t = m->team;
    for (;;) {
        uint32_t turn = atomic_load(&t->turn);
        uint32_t n = team_pieces(t, m->index);
        if (n) { /* the last to finish wakes the caller: after this line the job may be over and another begun */
            uint32_t all = t->n_piece;
            if (atomic_fetch_add(&t->done, n) + n == all && atomic_load(&t->caller_asleep)) futex_wake_all(&t->done);
            continue;
        }
        if (atomic_load(&t->quit)) return NULL;
        int i = 0;
        for (; i < TEAM_SPIN && atomic_load_explicit(&t->turn, memory_order_relaxed) == turn; i++) cpu_relax();
        if (i < TEAM_SPIN) continue;
        atomic_fetch_add(&t->asleep, 1);
        futex_wait(&t->turn, turn); /* returns at once if a job came since */
        atomic_fetch_sub(&t->asleep, 1);
    }
}

static void team_turn(struct team *t)
{
    atomic_fetch_add(&t->turn, 1);
    if (atomic_load(&t->asleep)) futex_wake_all(&t->turn);
}

/* How many of a job's n_piece pieces are taken at a time. */
static uint32_t team_take_n(const struct team *t, uint32_t n_piece, uint64_t cost)
{
    uint64_t n = n_piece * (uint64_t)TEAM_TAKE_COST / cost, most = n_piece / (TEAM_TAKE_MIN * t->n_thread);
    if (n > most) n = most;
    return n < 1 ? 1 : (uint32_t)n;
}

static void team_share(struct team *t, uint32_t first, uint32_t n_piece, uint32_t take, team_fn *fn, void *arg)
{
    uint64_t job = (atomic_load_explicit(&t->member[0].ticket, memory_order_relaxed) >> 32) + 1;
    t->fn = fn;
    t->arg = arg;
    t->first = first;
    t->n_piece = n_piece;
    atomic_store_explicit(&t->take, take, memory_order_relaxed);
    atomic_store_explicit(&t->done, 0, memory_order_relaxed);
    for (uint32_t i = 0; i < t->n_thread; i++) {
        uint64_t begin = (uint64_t)n_piece * i / t->n_thread, end = (uint64_t)n_piece * (i + 1) / t->n_thread;
        atomic_store_explicit(&t->member[i].ticket, job << 32 | end << 16 | begin, memory_order_release);
    }
    team_turn(t);
    uint32_t own = team_pieces(t, 0), done = atomic_fetch_add(&t->done, own) + own;
    for (int i = 0; i < TEAM_SPIN && done != n_piece; i++) {
        cpu_relax();
        done = atomic_load_explicit(&t->done, memory_order_acquire);
    }
    if (done == n_piece) return;
    atomic_store(&t->caller_asleep, 1);
    while ((done = atomic_load(&t->done)) != n_piece) futex_wait(&t->done, done);
    atomic_store(&t->caller_asleep, 0);
}

void team_run(struct team *t, uint32_t n_piece, uint64_t cost, team_fn *fn, void *arg)
{
    if (t->n_thread == 1 || n_piece == 1 || cost < TEAM_COST_MIN) {
        for (uint32_t i = 0; i < n_piece; i++) fn(arg, i, 0);
        return;
    }
    CHECK(!atomic_exchange_explicit(&t->busy, 1, memory_order_acquire)); /* a second caller would leave both asleep */
    uint32_t take = team_take_n(t, n_piece, cost);
    for (uint32_t i = 0; i < n_piece; i += TEAM_PIECE_MAX)
        team_share(t, i, n_piece - i < TEAM_PIECE_MAX ? n_piece - i : TEAM_PIECE_MAX, take, fn, arg);
    atomic_store_explicit(&t->busy, 0, memory_order_release);
}

uint32_t team_n_thread(const struct team *t) { return t->n_thread; }

enum status team_create(uint32_t n_thread, struct team **t_out)
{
    struct team *t = NULL;
    CHECK(n_thread >= 1);
    size_t bytes = sizeof *t + n_thread * sizeof t->member[0];
    t = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!t) return ST_NOMEM;
    *t = (struct team){ .n_thread = n_thread };
    for (uint32_t i = 0; i < n_thread; i++)
        t->member[i] = (struct team_member){ .team = t, .index = i }; /* all look at all shares */
    for (uint32_t i = 1; i < n_thread; i++) {
        char name[16];
        snprintf(name, sizeof name, "cpu-%u", i);
        enum status st = thread_start(&t->member[i].thread, THREAD_RANK, name, team_member_run, &t->member[i]);
        if (st) {
            team_free(t);
            return st;
        }
        t->n_started++;
    }
    *t_out = t;
    return ST_OK;
}

void team_free(struct team *t)
{
    atomic_store(&t->quit, true);
    team_turn(t);
    for (uint32_t i = 1; i <= t->n_started; i++) pthread_join(t->member[i].thread, NULL);
    free(t);
}
