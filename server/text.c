#include "server/text.h"
#include "base/ring.h"
#include "base/thread.h"
#include "server/loop.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct worker {
    struct ring      jobs;
    _Atomic uint32_t n_job; /* queued or running */
    _Atomic bool     stop;
    pthread_t        thread;
    bool             started;
};
struct text_pool {
    struct worker *worker;
    uint32_t       n_worker, queue_max;
};

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    for (;;) {
        struct text_job *j = ring_pop(&w->jobs);
        if (!j) {
            if (atomic_load(&w->stop)) return NULL;
            ring_wait(&w->jobs, -1);
            continue;
        }
        j->run(j);
        struct io *io = j->io;
        /* the inbox holds every job that can exist beside a burst of new sockets; those it can take later */
        while (!ring_push(&io->inbox, j)) nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
        atomic_fetch_sub(&w->n_job, 1);
    }
}

enum status text_create(uint32_t n_thread, uint32_t queue_max, struct text_pool **p_out)
{
    struct text_pool *p = calloc(1, sizeof *p);
    if (!p) return ST_NOMEM;
    p->worker = calloc(n_thread, sizeof *p->worker);
    p->queue_max = queue_max;
    enum status st = p->worker ? ST_OK : ST_NOMEM;
    for (; st == ST_OK && p->n_worker < n_thread; p->n_worker++) {
        struct worker *w = &p->worker[p->n_worker];
        char           name[16];
        snprintf(name, sizeof name, "text%u", p->n_worker);
        if ((st = ring_init(&w->jobs, queue_max))) break;
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

bool text_submit(struct text_pool *p, struct text_job *j)
{
    struct worker *best = &p->worker[0];
    for (uint32_t i = 1; i < p->n_worker; i++)
        if (atomic_load(&p->worker[i].n_job) < atomic_load(&best->n_job)) best = &p->worker[i];
    if (atomic_fetch_add(&best->n_job, 1) >= p->queue_max || !ring_push(&best->jobs, j)) {
        atomic_fetch_sub(&best->n_job, 1);
        return false;
    }
    return true;
}

void text_stop(struct text_pool *p)
{
    for (uint32_t i = 0; p && i < p->n_worker; i++) {
        struct worker *w = &p->worker[i];
        if (!w->started) continue;
        atomic_store(&w->stop, true);
        ring_wake(&w->jobs);
        pthread_join(w->thread, NULL);
        w->started = false;
    }
}

void text_free(struct text_pool *p)
{
    if (!p) return;
    for (uint32_t i = 0; i < p->n_worker; i++) ring_free(&p->worker[i].jobs);
    free(p->worker);
    free(p);
}
