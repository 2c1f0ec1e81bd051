/* wheel: coarse timers of one io thread, one per connection, at no cost per byte.   Thread: the io thread that owns it.
 * A node fires at or after its due time, at most WHEEL_TICK_US late. Moving a due time later is a store: the node is
 * looked at in its old slot and goes on from there. */
#pragma once
#include "base/list.h"
#include <stdint.h>

enum { WHEEL_SLOTS = 512, WHEEL_TICK_US = 250000 }; /* one turn: 128 s */

struct wheel_node {
    struct list node;
    uint64_t    due_us;  /* 0: not set */
    uint64_t    slot_us; /* when its slot is looked at */
};
struct wheel {
    struct list slot[WHEEL_SLOTS];
    uint64_t    tick; /* slots before this one have been looked at */
    uint32_t    n;
};

void wheel_init(struct wheel *w, uint64_t now_us);
void wheel_set(struct wheel *w, struct wheel_node *n, uint64_t due_us);
void wheel_clear(struct wheel *w, struct wheel_node *n);
void wheel_node_init(struct wheel_node *n);
/* Calls fire for every node that is due; its due time is 0 then. fire may set, clear and free nodes, its own too. */
void wheel_run(struct wheel *w, uint64_t now_us, void (*fire)(struct wheel_node *n, uint64_t now_us));
