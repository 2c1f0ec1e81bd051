/* wait: slots of the host whose block can only be told once the block before it was, which is still on its way. Linked
 * lists over the numbers of the slots.   Private to kvcache/events/. Thread: engine. */
#pragma once
#include "base/status.h"
#include <stdint.h>

struct event_wait {
    struct event_waits {
        int32_t of;          /* the slot that this one waits for; -1: it does not wait */
        int32_t first, next; /* of those that wait for this one; the next one that waits for the same; -1: none */
    } * slot;                /* [n] */
    uint32_t n;
};

enum status wait_init(struct event_wait *w, uint32_t n); /* nobody waits; w is zero, or was freed */
void        wait_free(struct event_wait *w);             /* and empties it */
void        wait_clear(struct event_wait *w);            /* nobody waits any more */
/* Slot i waits for another one. It waits already: nothing. */
void    wait_for(struct event_wait *w, int32_t i, int32_t other);
void    wait_end(struct event_wait *w, int32_t i);  /* i does not wait any more, if it did */
int32_t wait_take(struct event_wait *w, int32_t i); /* one that waits for i, and does not any more; -1: none does */
