#include "kvcache/events/wait.h"
#include "base/check.h"
#include <stdlib.h>

enum { NONE = -1 };

void wait_clear(struct event_wait *w)
{
    for (uint32_t i = 0; i < w->n; i++) w->slot[i] = (struct event_waits){ NONE, NONE, NONE };
}

enum status wait_init(struct event_wait *w, uint32_t n)
{
    w->slot = calloc(n, sizeof *w->slot);
    if (n && !w->slot) return ST_NOMEM;
    w->n = n;
    wait_clear(w);
    return ST_OK;
}

void wait_free(struct event_wait *w)
{
    free(w->slot);
    *w = (struct event_wait){ 0 };
}

void wait_for(struct event_wait *w, int32_t i, int32_t other)
{
    CHECK(i != other);
    if (w->slot[i].of != NONE) return;
    w->slot[i].of = other;
    w->slot[i].next = w->slot[other].first;
    w->slot[other].first = i;
}

void wait_end(struct event_wait *w, int32_t i)
{
    int32_t of = w->slot[i].of;
    if (of == NONE) return;
    int32_t *at = &w->slot[of].first;
    while (*at != i) at = &w->slot[*at].next;
    *at = w->slot[i].next;
    w->slot[i].of = w->slot[i].next = NONE;
}

int32_t wait_take(struct event_wait *w, int32_t i)
{
    int32_t first = w->slot[i].first;
    if (first != NONE) wait_end(w, first);
    return first;
}
