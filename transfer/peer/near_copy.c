#include "transfer/peer/near_copy.h"
#include "base/check.h"
#include "base/thread.h"
#include "kernels/cpu/copy.h"
#include <stdbool.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { WAKE_BYTES = 128 << 10 }; /* what one thread copies in 15 us, a few times what it takes to wake the other */

struct near_copy {
    int       fd; /* an eventfd: the other thread has ended the last jobs of the queue */
    bool      has_thread;
    pthread_t thread;
    /* lock: everything below */
    pthread_mutex_t lock;
    pthread_cond_t  given;
    struct list     todo, ended; /* of near_job.link */
    uint64_t        todo_bytes;
    bool            sleeps, told, stop; /* sleeps: the other thread does; told: fd can be read */
};

/* The queue's next job, taken out of it; NULL: it is empty. Under the lock. */
static struct near_job *next_job(struct near_copy *c)
{
    if (list_empty(&c->todo)) return NULL;
    struct near_job *job = LIST_ENTRY(c->todo.next, struct near_job, link);
    list_del(&job->link);
    c->todo_bytes -= job->bytes;
    return job;
}

/* Another core reads it next. */
static void copy(const struct near_job *job) { copy_stream(job->dst, job->src, job->bytes); }

static void tell(struct near_copy *c)
{
    uint64_t one = 1;
    if (c->told) return;
    c->told = true;
    CHECK(write(c->fd, &one, sizeof one) == sizeof one);
}

static void *copier_main(void *arg)
{
    struct near_copy *c = arg;
    pthread_mutex_lock(&c->lock);
    while (!c->stop) {
        struct near_job *job = next_job(c);
        if (!job) {
            c->sleeps = true;
            pthread_cond_wait(&c->given, &c->lock);
            c->sleeps = false;
            continue;
        }
        pthread_mutex_unlock(&c->lock);
        copy(job);
        pthread_mutex_lock(&c->lock);
        list_add_tail(&c->ended, &job->link);
        if (list_empty(&c->todo)) tell(c); /* the room's thread may have gone to sleep */
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

struct near_copy *near_copy_open(void)
{
    struct near_copy *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    c->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (c->fd < 0) {
        free(c);
        return NULL;
    }
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->given, NULL);
    list_init(&c->todo);
    list_init(&c->ended);
    c->has_thread = thread_start(&c->thread, THREAD_ANY, "near copy", copier_main, c) == ST_OK;
    return c;
}

void near_copy_close(struct near_copy *c)
{
    if (!c) return;
    pthread_mutex_lock(&c->lock);
    c->stop = true;
    pthread_cond_signal(&c->given);
    pthread_mutex_unlock(&c->lock);
    if (c->has_thread) pthread_join(c->thread, NULL);
    close(c->fd);
    pthread_cond_destroy(&c->given);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

int near_copy_fd(const struct near_copy *c) { return c->fd; }

void near_copy_give(struct near_copy *c, struct near_job *job)
{
    pthread_mutex_lock(&c->lock);
    list_add_tail(&c->todo, &job->link);
    bool more_than_one = c->todo.next != &job->link;
    c->todo_bytes += job->bytes;
    if (c->sleeps && more_than_one && c->todo_bytes >= WAKE_BYTES) pthread_cond_signal(&c->given);
    pthread_mutex_unlock(&c->lock);
}

struct near_job *near_copy_take(struct near_copy *c)
{
    struct near_job *job = NULL, *own = NULL;
    uint64_t         n;
    pthread_mutex_lock(&c->lock);
    if (c->told) {
        c->told = false;
        CHECK(read(c->fd, &n, sizeof n) == sizeof n);
    }
    if (!list_empty(&c->ended)) {
        job = LIST_ENTRY(c->ended.next, struct near_job, link);
        list_del(&job->link);
    } else {
        own = next_job(c);
    }
    pthread_mutex_unlock(&c->lock);
    if (own) copy(own);
    return job ? job : own;
}
