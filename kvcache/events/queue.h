/* queue: events on their way from the engine to the publisher. event_queue_init -> (put, publish; peek, next)* ->
 * event_queue_close.   Thread: one producer, the engine; one consumer. Private to kvcache/events and its tests. */
#pragma once
#include "kvcache/events/events.h"
#include <stdatomic.h>

enum event_kind { EVENT_STORED, EVENT_REMOVED, EVENT_CLEARED };

/* One block. */
struct event {
    uint8_t       kind, medium;
    bool          last;       /* of a turn: a batch ends here */
    bool          gap;        /* CLEARED: events before it were lost, which a gap in the sequence shows */
    bool          has_tokens; /* STORED: parent, first and ids are known */
    bool          first;      /* it begins a prompt, so parent is none */
    bool          salted;     /* first: only requests with the same salt find it */
    uint16_t      adapter;    /* STORED: 1 + number of the adapter's name; 0: none */
    struct kv_key key, parent;
    uint32_t      ids[]; /* [block_tokens] */
};

struct event_queue {
    unsigned char   *item;
    size_t           item_bytes;
    uint64_t         n_item; /* a power of two */
    uint64_t         at;     /* the producer's: the next item to write */
    char             pad0[64];
    _Atomic uint64_t tail; /* items before it may be read */
    char             pad1[64];
    _Atomic uint64_t head; /* items before it have been read */
    _Atomic int      asleep;
    int              wake_fd; /* an eventfd: readable when a consumer that sleeps should look */
};

/* n_item: a power of two. */
enum status event_queue_init(struct event_queue *q, uint64_t n_item, uint32_t block_tokens);
void        event_queue_close(struct event_queue *q);

/* Producer. put: an item to fill in, which event_queue_publish shows with all before it, as one turn; NULL: full. */
struct event *event_queue_put(struct event_queue *q, enum event_kind kind, enum kv_medium medium,
                              const struct kv_key *key);
void          event_queue_publish(struct event_queue *q);
uint64_t      event_queue_room(const struct event_queue *q);

/* Consumer. peek: the item `ahead` of the oldest; NULL: there is none. */
const struct event *event_queue_peek(const struct event_queue *q, uint64_t ahead);
void                event_queue_next(struct event_queue *q, uint64_t n);
void                event_queue_wake(struct event_queue *q); /* any thread */
