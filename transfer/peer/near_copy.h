/* near_copy: copies out of the mapped memory of peers on this machine, by the room's thread and by one beside it.
 * One core copies 8 to 11 GB/s here and the memory moves 15, so two threads take from one queue. The second one is woken
 * where more is queued than waking costs.
 * near_copy_open -> near_copy_give, near_copy_take ... -> near_copy_close.   Thread: the room's for all calls.
 * Private to transfer/peer. */
#pragma once
#include "base/list.h"
#include <stdint.h>

struct near_copy;
struct near_job {
    struct list link;
    void       *dst;
    const void *src;
    uint32_t    bytes;
};

/* NULL: no memory, or no descriptor. Without a second thread (the system refuses it) the caller's copies all. */
struct near_copy *near_copy_open(void);
/* Waits for the copy in progress, and begins no further one. What was not taken is forgotten. NULL is allowed. */
void near_copy_close(struct near_copy *c);
/* Can be read when jobs have ended that near_copy_take did not wait for. */
int near_copy_fd(const struct near_copy *c);
/* Queues a job with its dst, src and bytes, which the caller keeps alive and does not touch until it is taken. */
void near_copy_give(struct near_copy *c, struct near_job *job);
/* A job that has ended; if there is none, the next of the queue, which is copied within this call. NULL: what is left,
 * if anything, is being copied by the other thread. */
struct near_job *near_copy_take(struct near_copy *c);
