#include "base/ring.h"
#include "base/check.h"
#include "base/log.h"
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

/* Cell i carries seq == i while free for the push number i, i + 1 when it holds that push's pointer, and i + n after
 * its pop.
 *
 * Sleep and wake is Dekker's pattern: the producer stores seq, then loads asleep; the consumer stores asleep, then
 * loads seq. All four are sequentially consistent, so at least one of them sees the other. (Not fences: ThreadSanitizer
 * knows none.) After ring_push_alone, whose store of seq is a release alone, ring_tell exchanges asleep. The consumer
 * writes asleep by exchanges too, so of the two exchanges the later one has read from the earlier one: the producer
 * finds a sleeper, or the consumer finds seq. */

enum status ring_init(struct ring *r, uint32_t n_min)
{
    uint64_t n = 2;
    while (n < n_min) n *= 2;
    int               fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    struct ring_cell *cell = fd < 0 ? NULL : malloc(n * sizeof *cell);
    if (!cell) {
        LOG_ERROR("ring: cannot make one of %u: %s", n_min, strerror(errno));
        if (fd >= 0) close(fd);
        return ST_NOMEM;
    }
    for (uint64_t i = 0; i < n; i++) {
        atomic_init(&cell[i].seq, i);
        cell[i].ptr = NULL;
    }
    memset(r, 0, sizeof *r);
    r->cell = cell;
    r->mask = n - 1;
    r->fd = fd;
    atomic_init(&r->tail, 0);
    atomic_init(&r->asleep, 0);
    return ST_OK;
}

enum { AHEAD = 8 };

bool ring_push_quiet(struct ring *r, void *ptr)
{
    CHECK(ptr);
    uint64_t          tail = atomic_load_explicit(&r->tail, memory_order_relaxed);
    struct ring_cell *c;
    for (;;) {
        c = &r->cell[tail & r->mask];
        int64_t ahead = (int64_t)(atomic_load_explicit(&c->seq, memory_order_acquire) - tail);
        if (ahead < 0) return false; /* still holds the pointer of one round ago: full */
        if (ahead > 0)
            tail = atomic_load_explicit(&r->tail, memory_order_relaxed);
        else if (atomic_compare_exchange_weak_explicit(&r->tail, &tail, tail + 1, memory_order_relaxed,
                                                       memory_order_relaxed))
            break;
    }
    __builtin_prefetch(&r->cell[(tail + AHEAD) & r->mask], 1); /* the consumer wrote it last */
    c->ptr = ptr;
    atomic_store(&c->seq, tail + 1);
    return true;
}

bool ring_push_alone(struct ring *r, void *ptr)
{
    CHECK(ptr);
    uint64_t          tail = atomic_load_explicit(&r->tail, memory_order_relaxed);
    struct ring_cell *c = &r->cell[tail & r->mask];
    if (atomic_load_explicit(&c->seq, memory_order_acquire) != tail) return false; /* full */
    __builtin_prefetch(&r->cell[(tail + AHEAD) & r->mask], 1);                     /* as above */
    atomic_store_explicit(&r->tail, tail + 1, memory_order_relaxed);
    c->ptr = ptr;
    atomic_store_explicit(&c->seq, tail + 1, memory_order_release);
    return true;
}

void ring_tell(struct ring *r)
{
    if (atomic_exchange(&r->asleep, 0)) ring_wake(r);
}

bool ring_push(struct ring *r, void *ptr)
{
    if (!ring_push_quiet(r, ptr)) return false;
    if (atomic_load(&r->asleep) && atomic_exchange(&r->asleep, 0)) ring_wake(r);
    return true;
}

void *ring_pop(struct ring *r)
{
    struct ring_cell *c = &r->cell[r->head & r->mask];
    if (atomic_load_explicit(&c->seq, memory_order_acquire) != r->head + 1) return NULL;
    void *ptr = c->ptr;
    atomic_store_explicit(&c->seq, r->head + r->mask + 1, memory_order_release);
    r->head++;
    return ptr;
}

bool ring_is_empty(struct ring *r)
{
    return atomic_load_explicit(&r->cell[r->head & r->mask].seq, memory_order_acquire) != r->head + 1;
}

int ring_fd(const struct ring *r) { return r->fd; }

void ring_ack(struct ring *r)
{
    uint64_t count;
    ssize_t  n = read(r->fd, &count, sizeof count); /* EAGAIN: someone else's wake was consumed before, nothing to do */
    (void)n;
}

bool ring_arm(struct ring *r)
{
    atomic_exchange(&r->asleep, 1);
    if (atomic_load(&r->cell[r->head & r->mask].seq) != r->head + 1) return true;
    atomic_exchange(&r->asleep, 0);
    return false;
}

void ring_wake(struct ring *r)
{
    uint64_t one = 1;
    ssize_t  n = write(r->fd, &one, sizeof one); /* EAGAIN: the count is at its top, so the consumer wakes anyway */
    (void)n;
}

void ring_wait_with(struct ring *r, int fd, int64_t timeout_us)
{
    if (!ring_arm(r)) return;
    struct pollfd   p[2] = { { .fd = r->fd, .events = POLLIN }, { .fd = fd, .events = POLLIN } };
    struct timespec t = { .tv_sec = timeout_us / 1000000, .tv_nsec = timeout_us % 1000000 * 1000 };
    int             n = ppoll(p, fd < 0 ? 1 : 2, timeout_us < 0 ? NULL : &t, NULL);
    atomic_exchange(&r->asleep, 0);
    if (n > 0 && p[0].revents) ring_ack(r);
}

void ring_wait(struct ring *r, int64_t timeout_us) { ring_wait_with(r, -1, timeout_us); }

void ring_free(struct ring *r)
{
    if (!r->cell) return;
    close(r->fd);
    free(r->cell);
    r->cell = NULL;
    r->fd = -1;
}
