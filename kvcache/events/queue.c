#include "kvcache/events/queue.h"
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

static struct event *item_of(const struct event_queue *q, uint64_t at)
{
    return (struct event *)(void *)(q->item + (at & (q->n_item - 1)) * q->item_bytes);
}

uint64_t event_queue_room(const struct event_queue *q)
{
    return q->n_item - (q->at - atomic_load_explicit(&q->head, memory_order_acquire));
}

struct event *event_queue_put(struct event_queue *q, enum event_kind kind, enum kv_medium medium,
                              const struct kv_key *key)
{
    if (!event_queue_room(q)) return NULL;
    struct event *v = item_of(q, q->at++);
    *v = (struct event){ .kind = (uint8_t)kind, .medium = (uint8_t)medium };
    if (key) v->key = *key;
    return v;
}

void event_queue_wake(struct event_queue *q)
{
    uint64_t one = 1;
    (void)!write(q->wake_fd, &one, sizeof one);
}

void event_queue_publish(struct event_queue *q)
{
    if (q->at == atomic_load_explicit(&q->tail, memory_order_relaxed)) return;
    item_of(q, q->at - 1)->last = true;
    atomic_store(&q->tail, q->at);
    if (atomic_exchange(&q->asleep, 0)) event_queue_wake(q);
}

const struct event *event_queue_peek(const struct event_queue *q, uint64_t ahead)
{
    uint64_t at = atomic_load_explicit(&q->head, memory_order_relaxed) + ahead;
    return at < atomic_load(&q->tail) ? item_of(q, at) : NULL;
}

void event_queue_next(struct event_queue *q, uint64_t n)
{
    atomic_store_explicit(&q->head, atomic_load_explicit(&q->head, memory_order_relaxed) + n, memory_order_release);
}

enum status event_queue_init(struct event_queue *q, uint64_t n_item, uint32_t block_tokens)
{
    size_t bytes = sizeof(struct event) + block_tokens * sizeof(uint32_t);
    q->n_item = n_item;
    q->item_bytes = (bytes + 7) / 8 * 8;
    q->item = calloc(q->n_item, q->item_bytes);
    q->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return q->item && q->wake_fd >= 0 ? ST_OK : ST_NOMEM;
}

void event_queue_close(struct event_queue *q)
{
    if (q->wake_fd >= 0) close(q->wake_fd);
    free(q->item);
}
