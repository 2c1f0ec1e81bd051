/* late: a fake device on a thread of its own: steps are queued and run while the engine goes on, as on a GPU.   Thread:
 * submit and wait the engine's, the steps its own. late_open -> late_runner -> late_close. */
#pragma once
#include "sim/fake.h"
#include <pthread.h>

struct late {
    struct fake    *fake; /* lazy: it runs what it is told here */
    pthread_t       thread;
    pthread_mutex_t lock;
    pthread_cond_t  work, done;
    struct batch   *queue[ENG_DEPTH_MAX];
    uint64_t        n_submit, n_draw, n_run, n_wait; /* n_draw: of those submitted, how many may draw */
    bool            stop;
};

static inline void *late_main(void *arg)
{
    struct late *l = arg;
    for (;;) {
        pthread_mutex_lock(&l->lock);
        while (l->n_run == l->n_submit && !l->stop) pthread_cond_wait(&l->work, &l->lock);
        bool          stop = l->n_run == l->n_submit;
        struct batch *b = l->queue[l->n_run % ENG_DEPTH_MAX];
        pthread_mutex_unlock(&l->lock);
        if (stop) return NULL;
        bool draws = fake_rows(l->fake, b);
        pthread_mutex_lock(&l->lock);
        while (b->late && l->n_draw <= l->n_run) pthread_cond_wait(&l->work, &l->lock);
        pthread_mutex_unlock(&l->lock);
        if (draws) fake_draws(l->fake, b);
        pthread_mutex_lock(&l->lock);
        l->n_run++;
        pthread_cond_signal(&l->done);
        pthread_mutex_unlock(&l->lock);
    }
}

static inline void late_submit(void *ctx, struct batch *b)
{
    struct late *l = ctx;
    fake_judge(l->fake, b);
    pthread_mutex_lock(&l->lock);
    l->queue[l->n_submit++ % ENG_DEPTH_MAX] = b;
    if (!b->late) l->n_draw = l->n_submit;
    pthread_cond_signal(&l->work);
    pthread_mutex_unlock(&l->lock);
}

static inline void late_draw(void *ctx, struct batch *b)
{
    struct late *l = ctx;
    pthread_mutex_lock(&l->lock);
    if (l->queue[(l->n_submit - 1) % ENG_DEPTH_MAX] != b || !b->late) abort();
    l->n_draw = l->n_submit;
    pthread_cond_signal(&l->work);
    pthread_mutex_unlock(&l->lock);
}

static inline enum status late_wait(void *ctx, struct batch *b)
{
    struct late *l = ctx;
    pthread_mutex_lock(&l->lock);
    if (l->queue[l->n_wait % ENG_DEPTH_MAX] != b) abort();
    l->n_wait++;
    while (l->n_run < l->n_wait) pthread_cond_wait(&l->done, &l->lock);
    pthread_mutex_unlock(&l->lock);
    return ST_OK;
}

static inline void late_open(struct late *l, struct fake *f)
{
    *l = (struct late){ .fake = f };
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->work, NULL);
    pthread_cond_init(&l->done, NULL);
    if (pthread_create(&l->thread, NULL, late_main, l)) abort();
}

static inline void late_close(struct late *l)
{
    pthread_mutex_lock(&l->lock);
    l->stop = true;
    pthread_cond_signal(&l->work);
    pthread_mutex_unlock(&l->lock);
    pthread_join(l->thread, NULL);
    pthread_cond_destroy(&l->done);
    pthread_cond_destroy(&l->work);
    pthread_mutex_destroy(&l->lock);
}

static inline struct eng_runner late_runner(struct late *l)
{
    return (struct eng_runner){ .ctx = l, .submit = late_submit, .wait = late_wait, .draw = late_draw, .depth = 2 };
}
