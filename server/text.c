#include "server/text.h"
#include "base/hash.h"
#include "base/thread.h"
#include "server/io.h"
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct worker {
    struct text_pool *pool;
    pthread_t         thread;
    bool              started, small_only;
};

/* A lock and not rings: whose turn it is, is known only to who sees all that waits. It is held for one push or pop. */
struct text_pool {
    pthread_mutex_t   lock;
    pthread_cond_t    some_small, some; /* some: of either size, for those that take both */
    struct text_queue small, large;
    bool              stop;
    _Atomic uint32_t  n_waiting;
    struct worker    *worker;
    uint32_t          n_worker;
};

/* NULL: stopped, and nothing waits that this worker takes. */
static struct text_job *next_job(struct worker *w)
{
    struct text_pool *p = w->pool;
    struct text_job  *j = NULL;
    pthread_mutex_lock(&p->lock);
    for (;;) {
        if (!w->small_only) j = text_queue_pop(&p->large);
        if (!j) j = text_queue_pop(&p->small);
        if (j || p->stop) break;
        pthread_cond_wait(w->small_only ? &p->some_small : &p->some, &p->lock);
    }
    if (j) atomic_fetch_sub_explicit(&p->n_waiting, 1, memory_order_relaxed);
    pthread_mutex_unlock(&p->lock);
    return j;
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    for (struct text_job *j; (j = next_job(w));) {
        j->run(j);
        struct io *io = j->io;
        /* the inbox holds every job that can exist beside a burst of new sockets; those it can take later */
        while (!ring_push(&io->inbox, j)) nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
    }
    return NULL;
}

enum status text_create(uint32_t n_thread, uint32_t queue_max, struct text_pool **p_out)
{
    struct text_pool *p = calloc(1, sizeof *p);
    uint64_t          seed = hash_seed();
    if (!p) return ST_NOMEM;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->some, NULL);
    pthread_cond_init(&p->some_small, NULL);
    text_queue_init(&p->small, queue_max, seed);
    text_queue_init(&p->large, queue_max, seed);
    p->worker = calloc(n_thread + 1, sizeof *p->worker);
    enum status st = p->worker ? ST_OK : ST_NOMEM;
    for (; st == ST_OK && p->n_worker < n_thread + 1; p->n_worker++) {
        struct worker *w = &p->worker[p->n_worker];
        char           name[16];
        w->pool = p;
        w->small_only = p->n_worker == 0;
        snprintf(name, sizeof name, "text%u", p->n_worker);
        st = thread_start(&w->thread, THREAD_TEXT, name, worker_main, w);
        w->started = st == ST_OK;
    }
    if (st) {
        text_stop(p);
        text_free(p);
        return st;
    }
    *p_out = p;
    return ST_OK;
}

static bool push(struct text_pool *p, struct text_job *j, bool any)
{
    bool               small = j->bytes < TEXT_SMALL_MAX;
    struct text_queue *q = small ? &p->small : &p->large;
    bool               taken = true;
    pthread_mutex_lock(&p->lock);
    if (any)
        text_queue_add(q, j);
    else
        taken = text_queue_push(q, j);
    if (taken) atomic_fetch_add_explicit(&p->n_waiting, 1, memory_order_relaxed);
    pthread_mutex_unlock(&p->lock);
    if (!taken) return false;
    if (small) pthread_cond_signal(&p->some_small);
    pthread_cond_signal(&p->some);
    return true;
}

bool text_submit(struct text_pool *p, struct text_job *j) { return push(p, j, false); }
void text_continue(struct text_pool *p, struct text_job *j) { push(p, j, true); }

void text_stop(struct text_pool *p)
{
    if (!p) return;
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_mutex_unlock(&p->lock);
    pthread_cond_broadcast(&p->some);
    pthread_cond_broadcast(&p->some_small);
    for (uint32_t i = 0; i < p->n_worker; i++) {
        struct worker *w = &p->worker[i];
        if (!w->started) continue;
        pthread_join(w->thread, NULL);
        w->started = false;
    }
}

uint32_t text_waiting(const struct text_pool *p) { return atomic_load_explicit(&p->n_waiting, memory_order_relaxed); }

void text_free(struct text_pool *p)
{
    if (!p) return;
    pthread_cond_destroy(&p->some);
    pthread_cond_destroy(&p->some_small);
    pthread_mutex_destroy(&p->lock);
    free(p->worker);
    free(p);
}
