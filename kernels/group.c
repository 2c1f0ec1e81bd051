/* group: ranks that meet. A barrier that spins shortly, then sleeps; abort lets everybody through, for good. */
#include "base/check.h"
#include "base/log.h"
#include "base/thread.h"
#include "kernels/futex.h"
#include "kernels/impl.h"
#include <pthread.h>
#include <stdlib.h>

enum { GROUP_SPIN = 2000 };

struct dev_group {
    uint32_t         n_rank;
    int              spin;    /* 0 where ranks outnumber CPUs: who spins would keep another rank from its work */
    _Atomic uint32_t turn;    /* rises when all have arrived; the word that sleepers wait on */
    _Atomic uint32_t arrived; /* in this turn */
    _Atomic uint32_t asleep;
    _Atomic bool     aborted;
    _Atomic bool     blamed;                      /* a rank has said why it is lost */
    _Atomic uint32_t ballot[DEV_BALLOT_HAVE + 1]; /* how many cast each */
    _Atomic uint32_t verdict;                     /* enum dev_ballot */
    bool             cast;                        /* rank 0: with the other processes */
    pthread_mutex_t  lock;                        /* of at_abort */
    struct {
        void  *x;
        size_t n;
        void (*at_abort)(void *ctx);
        void *ctx;
    } slot[]; /* written by its rank before a meeting, read by all after it */
};

enum status dev_group_create(uint32_t n_rank, struct dev_group **g_out)
{
    CHECK(n_rank >= 1);
    struct dev_group *g = calloc(1, sizeof *g + n_rank * sizeof g->slot[0]);
    if (!g) {
        LOG_ERROR("dev: no memory for a group of %u ranks", n_rank);
        return ST_NOMEM;
    }
    g->n_rank = n_rank;
    g->spin = n_rank <= thread_cpu_count() ? GROUP_SPIN : 0;
    pthread_mutex_init(&g->lock, NULL);
    *g_out = g;
    return ST_OK;
}

void dev_group_free(struct dev_group *g)
{
    pthread_mutex_destroy(&g->lock);
    free(g);
}

void dev_group_abort(struct dev_group *g)
{
    atomic_store(&g->aborted, true);
    atomic_fetch_add(&g->turn, 1);
    futex_wake_all(&g->turn);
    pthread_mutex_lock(&g->lock);
    for (uint32_t i = 0; i < g->n_rank; i++)
        if (g->slot[i].at_abort) g->slot[i].at_abort(g->slot[i].ctx);
    pthread_mutex_unlock(&g->lock);
}

void group_at_abort(struct dev_group *g, uint32_t rank, void (*fn)(void *ctx), void *ctx)
{
    pthread_mutex_lock(&g->lock);
    g->slot[rank].at_abort = fn;
    g->slot[rank].ctx = ctx;
    if (fn && atomic_load(&g->aborted)) fn(ctx);
    pthread_mutex_unlock(&g->lock);
}

void group_cast(struct dev_group *g, enum dev_ballot mine) { atomic_fetch_add(&g->ballot[mine], 1); }

enum dev_ballot group_verdict(struct dev_group *g, uint32_t rank, uint32_t n_rank, const struct dev_vote *v,
                              unsigned char id_out[DEV_COMM_ID])
{
    uint32_t all = atomic_load(&g->verdict);
    if (all != DEV_BALLOT_OPEN || rank) return (enum dev_ballot)all;
    uint32_t none = atomic_load(&g->ballot[DEV_BALLOT_NONE]), have = atomic_load(&g->ballot[DEV_BALLOT_HAVE]);
    if (atomic_load(&g->ballot[DEV_BALLOT_FAILED]) || (none && have))
        all = DEV_BALLOT_FAILED;
    else if (none == n_rank || have == n_rank)
        all = none ? DEV_BALLOT_NONE : DEV_BALLOT_HAVE;
    if (v) {
        if (all != DEV_BALLOT_OPEN && !g->cast) {
            v->cast(v->ctx, (enum dev_ballot)all);
            g->cast = true;
        }
        all = (uint32_t)v->result(v->ctx, id_out);
    }
    if (all != DEV_BALLOT_OPEN) atomic_store(&g->verdict, all);
    return (enum dev_ballot)all;
}

bool group_blame(struct dev_group *g) { return !atomic_exchange(&g->blamed, true); }

bool group_aborted(const struct dev_group *g) { return atomic_load_explicit(&g->aborted, memory_order_relaxed); }

uint32_t group_n_rank(const struct dev_group *g) { return g->n_rank; }

void group_publish(struct dev_group *g, uint32_t rank, void *x, size_t n)
{
    g->slot[rank].x = x;
    g->slot[rank].n = n;
}

void *group_peek(const struct dev_group *g, uint32_t rank, size_t n)
{
    CHECK(g->slot[rank].n == n);
    return g->slot[rank].x;
}

bool group_meet(struct dev_group *g)
{
    uint32_t turn = atomic_load(&g->turn);
    if (atomic_load(&g->aborted)) return false;
    if (atomic_fetch_add(&g->arrived, 1) + 1 == g->n_rank) {
        atomic_store(&g->arrived, 0);
        atomic_fetch_add(&g->turn, 1);
        if (atomic_load(&g->asleep)) futex_wake_all(&g->turn);
        return !atomic_load(&g->aborted);
    }
    for (int i = 0; i < g->spin && atomic_load_explicit(&g->turn, memory_order_acquire) == turn; i++) cpu_relax();
    atomic_fetch_add(&g->asleep, 1);
    while (atomic_load(&g->turn) == turn) futex_wait(&g->turn, turn);
    atomic_fetch_sub(&g->asleep, 1);
    return !atomic_load(&g->aborted);
}
