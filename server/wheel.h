/* wheel: coarse timers of one io thread, one per connection, at no cost per byte.   Thread: the io thread that owns it.
 * wheel_run fires a node at or after its due time, at most WHEEL_TICK_US late if it is called each tick. To move a due
 * time later costs one store: wheel_run finds the node in its old slot and moves it then. */
#pragma once
#include "base/list.h"
#include <stdint.h>

enum { WHEEL_SLOTS = 512, WHEEL_TICK_US = 250000 }; /* one turn: 128 s */

struct wheel_node {
    struct list node;
    uint64_t    due_us;  /* 0: not set */
    uint64_t    slot_us; /* time at which wheel_run visits its slot */
};
struct wheel {
    struct list slot[WHEEL_SLOTS];
    uint64_t    tick; /* wheel_run has visited the slots of all earlier ticks */
    uint32_t    n;    /* nodes that are set */
};

/* No node is set. */
void wheel_init(struct wheel *w, uint64_t now_us);
/* Sets the due time, or moves it. The node stays the caller's, and must be cleared before it is freed. */
void wheel_set(struct wheel *w, struct wheel_node *n, uint64_t due_us);
/* No-op if the node is not set. */
void wheel_clear(struct wheel *w, struct wheel_node *n);
/* A node that is not set; call it once before wheel_set. */
void wheel_node_init(struct wheel_node *n);
/* Calls fire for each due node, after setting its due time to 0. fire may set, clear and free any node, also this
 * one. */
void wheel_run(struct wheel *w, uint64_t now_us, void (*fire)(struct wheel_node *n, uint64_t now_us));
