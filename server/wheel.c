#include "server/wheel.h"

static uint64_t tick_of(uint64_t us) { return us / WHEEL_TICK_US; }

void wheel_init(struct wheel *w, uint64_t now_us)
{
    for (int i = 0; i < WHEEL_SLOTS; i++) list_init(&w->slot[i]);
    w->tick = tick_of(now_us);
    w->n = 0;
}

void wheel_node_init(struct wheel_node *n)
{
    list_init(&n->node);
    n->due_us = n->slot_us = 0;
}

static void wheel_put(struct wheel *w, struct wheel_node *n, uint64_t due_us)
{
    uint64_t t = tick_of(due_us) + 1; /* its whole tick has passed then */
    if (t < w->tick) t = w->tick;
    if (t > w->tick + WHEEL_SLOTS - 1) t = w->tick + WHEEL_SLOTS - 1;
    n->slot_us = t * WHEEL_TICK_US;
    list_add_tail(&w->slot[t % WHEEL_SLOTS], &n->node);
}

void wheel_set(struct wheel *w, struct wheel_node *n, uint64_t due_us)
{
    if (!due_us) due_us = 1;
    if (!n->due_us) {
        w->n++;
        wheel_put(w, n, due_us);
    } else if (due_us < n->slot_us && tick_of(due_us) + 1 < tick_of(n->slot_us)) {
        list_del(&n->node);
        wheel_put(w, n, due_us);
    }
    n->due_us = due_us;
}

void wheel_clear(struct wheel *w, struct wheel_node *n)
{
    if (!n->due_us) return;
    list_del(&n->node);
    n->due_us = 0;
    w->n--;
}

void wheel_run(struct wheel *w, uint64_t now_us, void (*fire)(struct wheel_node *n, uint64_t now_us))
{
    uint64_t end = tick_of(now_us), first = w->tick;
    if (end >= first + WHEEL_SLOTS) first = end - WHEEL_SLOTS + 1; /* every slot once is enough */
    for (uint64_t t = first; t <= end; t++) {
        struct list  todo;
        struct list *slot = &w->slot[t % WHEEL_SLOTS];
        if (w->tick <= t) w->tick = t + 1; /* what fire sets goes into later slots */
        if (list_empty(slot)) continue;
        /* taken out of the wheel first: fire may unlink any of them */
        todo = *slot;
        todo.next->prev = todo.prev->next = &todo;
        list_init(slot);
        while (!list_empty(&todo)) {
            struct wheel_node *n = LIST_ENTRY(todo.next, struct wheel_node, node);
            list_del(&n->node);
            if (n->due_us > now_us) {
                wheel_put(w, n, n->due_us);
                continue;
            }
            n->due_us = 0;
            w->n--;
            fire(n, now_us);
        }
    }
}
