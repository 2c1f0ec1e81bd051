#include "kernels/cpu/team.h"
#include "base/check.h"
#include "base/thread.h"
#include "kernels/futex.h"
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    TEAM_SPIN = 1000,       /* pauses (each some 40 cycles) before a thread sleeps */
    TEAM_COST_MIN = 12000,  /* cycles of work below which waking others costs more than it gives */
    TEAM_PIECE_MAX = 65535, /* of one job: must fit the ticket */
};

struct team {
    /* job << 32 | n_piece << 16 | next piece. A piece is taken by a compare-and-swap of this one word, so a thread that
     * comes late can neither take a piece of a job that is over nor read the description of another: while a taken
     * piece is not done, the job stays. */
    _Alignas(64) _Atomic uint64_t ticket;
    team_fn *fn;
    void    *arg;
    uint32_t first; /* piece number of this job's piece 0 */
    _Alignas(64) _Atomic uint32_t done;
    _Atomic uint32_t caller_asleep;
    _Atomic int      busy;              /* team_run is under way */
    _Alignas(64) _Atomic uint32_t turn; /* rises with every job: the word that idle threads sleep on */
    _Atomic uint32_t asleep;
    _Atomic bool     quit;
    uint32_t         n_thread, n_started;
    struct team_member {
        struct team *team;
        uint32_t     index;
        pthread_t    thread;
    } member[];
};

static bool team_take(struct team *t, uint32_t *piece_out)
{
    uint64_t k = atomic_load_explicit(&t->ticket, memory_order_acquire);
    while ((k & 0xffff) < (k >> 16 & 0xffff))
        if (atomic_compare_exchange_weak_explicit(&t->ticket, &k, k + 1, memory_order_acq_rel, memory_order_acquire)) {
            *piece_out = (uint32_t)(k & 0xffff);
            return true;
        }
    return false;
}

/* Takes pieces until there are none; false: there was none at all. */
static bool team_work(struct team *t, uint32_t thread)
{
    uint32_t piece, n = 0;
    while (team_take(t, &piece)) {
        uint32_t n_piece = (uint32_t)(atomic_load_explicit(&t->ticket, memory_order_relaxed) >> 16 & 0xffff);
        t->fn(t->arg, t->first + piece, thread);
        n++;
        /* the last to finish wakes the caller: after this line the job may be over and another begun */
        if (atomic_fetch_add(&t->done, 1) + 1 == n_piece && thread != 0 && atomic_load(&t->caller_asleep)) futex_wake_all(&t->done);
    }
    return n > 0;
}

static void *team_member_run(void *arg)
{
    struct team_member *m = arg;
    struct team        *t = m->team;
    for (;;) {
        uint32_t turn = atomic_load(&t->turn);
        if (team_work(t, m->index)) continue;
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

static void team_share(struct team *t, uint32_t first, uint32_t n_piece, team_fn *fn, void *arg)
{
    uint64_t job = atomic_load_explicit(&t->ticket, memory_order_relaxed) >> 32;
    t->fn = fn, t->arg = arg, t->first = first;
    atomic_store_explicit(&t->done, 0, memory_order_relaxed);
    atomic_store_explicit(&t->ticket, (job + 1) << 32 | (uint64_t)n_piece << 16, memory_order_release);
    team_turn(t);
    team_work(t, 0);
    uint32_t done = atomic_load_explicit(&t->done, memory_order_acquire);
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
    for (uint32_t i = 0; i < n_piece; i += TEAM_PIECE_MAX)
        team_share(t, i, n_piece - i < TEAM_PIECE_MAX ? n_piece - i : TEAM_PIECE_MAX, fn, arg);
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
    for (uint32_t i = 1; i < n_thread; i++) {
        char name[16];
        snprintf(name, sizeof name, "cpu-%u", i);
        t->member[i] = (struct team_member){ .team = t, .index = i };
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
