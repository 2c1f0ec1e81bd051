/* replay: batches of KV events as they are sent, and a buffer of the latest for subscribers that missed some.
 * replay_init -> (replay_add, replay_answer)* -> replay_free.   Thread: the publisher's.   Private to kvcache/events
 * and its tests.
 *
 * Memory is bounded twice: the buffer by batches and bytes, and what the library has not sent yet by bytes. */
#pragma once
#include "base/status.h"
#include "transfer/zmq/zmq_api.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    REPLAY_KEPT_MAX = 64 << 20,  /* bytes in the buffer */
    REPLAY_HELD_MAX = 128 << 20, /* bytes that the library has, counted for each message */
};

/* Shared by the buffer and the library; freed with the last reference. */
struct event_batch {
    _Atomic uint32_t  refs;
    _Atomic uint64_t *held; /* counts it while the library has it */
    uint64_t          seq;
    size_t            bytes;
    unsigned char     body[];
};

struct replay {
    const struct zmq_api *z;
    void                 *socket; /* a ROUTER; NULL: nobody can ask */
    struct event_batch  **kept;   /* [n_kept_max] by seq; NULL: none */
    uint32_t              n_kept_max;
    uint64_t              first, next; /* seq of the oldest batch that may be kept, and of the next one */
    uint64_t              kept_bytes;
    _Atomic uint64_t      held_bytes;
};

/* An empty buffer for the last n_kept_max batches. z is borrowed. ST_NOMEM. */
enum status replay_init(struct replay *r, const struct zmq_api *z, uint32_t n_kept_max);
/* Call it after the library was closed: until then it may hold batches. */
void replay_free(struct replay *r);

/* A batch with the next number and one reference; NULL: no memory, the number is used up. gap: one number is left out
 * before it. */
struct event_batch *replay_batch(struct replay *r, const void *body, size_t bytes, bool gap);
void                replay_unref(struct event_batch *b);
void                replay_add(struct replay *r, struct event_batch *b); /* into the buffer, if it fits */
/* True if the library may be given this batch. */
bool replay_has_room(const struct replay *r, const struct event_batch *b);

/* One frame of a message: a copy of data, or the batch without a copy, which ends the message. false: not sent. */
bool replay_send(struct replay *r, void *socket, const void *data, size_t bytes, int flags);
bool replay_send_batch(struct replay *r, void *socket, struct event_batch *b);
void replay_put_seq(unsigned char out[8], uint64_t seq);

/* Reads some requests and answers them. true: there were some. *n_answered_out: requests of the right form. A request
 * is an empty frame and the first wanted number; the answer is a message for each batch and one with number
 * UINT64_MAX. */
bool replay_answer(struct replay *r, uint32_t *n_answered_out);
