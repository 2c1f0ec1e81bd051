/* ring: bounded queue of pointers, many producers, one consumer, with an eventfd to sleep on.
 * Vyukov's bounded MPMC queue (1024cores.net) with sequence numbers per cell; FIFO per producer.
 *   producer, any thread:   ring_push
 *   one producer alone:     ring_push_alone of several pointers, then ring_tell, which costs less
 *   consumer with a poll loop: watch ring_fd for reading; on wake ring_ack, pop until NULL, then if (!ring_arm) pop
 *   again
 *   consumer without one:      ring_pop, and when empty ring_wait */
#pragma once
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ring_cell {
    _Atomic uint64_t seq;
    void            *ptr;
};
struct ring {
    struct ring_cell *cell;
    uint64_t          mask;
    int               fd;       /* eventfd */
    char              pad0[64]; /* padded, not aligned: a ring may lie in memory from malloc */
    _Atomic uint64_t  tail;     /* producers */
    char              pad1[64];
    uint64_t          head; /* consumer */
    char              pad2[64];
    _Atomic int       asleep; /* consumer waits on fd: the next push writes to it */
};

enum status ring_init(struct ring *r, uint32_t n_min); /* room for at least n_min pointers (rounded up to 2^k) */
bool        ring_push(struct ring *r, void *ptr);      /* false: full. ptr not NULL. Wakes a sleeping consumer */
bool ring_push_quiet(struct ring *r, void *ptr); /* wakes nobody: a sleeping consumer finds it at its next wake-up */
/* As ring_push_quiet, for a ring that no other thread ever pushes to: no locked operation. */
bool  ring_push_alone(struct ring *r, void *ptr);
void  ring_tell(struct ring *r);     /* a sleeping consumer finds what was pushed alone before: wakes it */
void *ring_pop(struct ring *r);      /* NULL: empty */
bool  ring_is_empty(struct ring *r); /* whether ring_pop would return NULL; consumer */
/* The eventfd of the consumer, for a poll loop. The ring owns it. */
int  ring_fd(const struct ring *r);
void ring_ack(struct ring *r); /* consume the eventfd's count after a wake */
/* about to sleep: true, nothing is queued and the next push will wake; false: pop again */
bool ring_arm(struct ring *r);
void ring_wake(struct ring *r);                     /* wake the consumer without a message (shutdown, timers) */
void ring_wait(struct ring *r, int64_t timeout_us); /* arm and sleep until a push, a wake or the timeout (< 0: none) */
void ring_wait_with(struct ring *r, int fd, int64_t timeout_us); /* the same, and until fd (< 0: none) can be read */
void ring_free(struct ring *r); /* nobody waits or pushes any more; what is queued stays its owner's */
