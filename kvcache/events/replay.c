#include "kvcache/events/replay.h"
#include <stdlib.h>
#include <string.h>

enum { REQUESTS = 4 }; /* answered before the publisher looks at its queue again */

/* ---- batches */

void replay_unref(struct event_batch *b)
{
    if (atomic_fetch_sub(&b->refs, 1) == 1) free(b);
}

bool replay_has_room(const struct replay *r, const struct event_batch *b)
{
    return atomic_load(&r->held_bytes) + b->bytes <= REPLAY_HELD_MAX;
}

struct event_batch *replay_batch(struct replay *r, const void *body, size_t bytes, bool gap)
{
    struct event_batch *b = malloc(sizeof *b + bytes);
    r->next += gap;
    uint64_t seq = r->next++;
    if (!b) return NULL;
    atomic_init(&b->refs, 1);
    b->held = &r->held_bytes;
    b->seq = seq;
    b->bytes = bytes;
    memcpy(b->body, body, bytes);
    return b;
}

void replay_add(struct replay *r, struct event_batch *b)
{
    uint32_t n = r->n_kept_max;
    while (r->first < b->seq && (b->seq - r->first >= n || r->kept_bytes + b->bytes > REPLAY_KEPT_MAX)) {
        struct event_batch **old = n ? &r->kept[r->first % n] : NULL;
        r->first++;
        if (!old || !*old) continue; /* a gap */
        r->kept_bytes -= (*old)->bytes;
        replay_unref(*old);
        *old = NULL;
    }
    if (!n || r->kept_bytes + b->bytes > REPLAY_KEPT_MAX) return;
    atomic_fetch_add(&b->refs, 1);
    r->kept_bytes += b->bytes;
    r->kept[b->seq % n] = b;
}

/* ---- frames */

void replay_put_seq(unsigned char out[8], uint64_t seq)
{
    for (int i = 0; i < 8; i++) out[i] = (unsigned char)(seq >> (56 - 8 * i));
}

static uint64_t get_seq(const unsigned char *p)
{
    uint64_t v = 0;
    for (int i = 0; i < 8; i++) v = v << 8 | p[i];
    return v;
}

bool replay_send(struct replay *r, void *socket, const void *data, size_t bytes, int flags)
{
    struct zmq_message m;
    if (r->z->zmq_msg_init_size(&m, bytes)) return false;
    if (bytes) memcpy(r->z->zmq_msg_data(&m), data, bytes);
    if (r->z->zmq_msg_send(&m, socket, flags | ZMQ_DONTWAIT) >= 0) return true;
    r->z->zmq_msg_close(&m);
    return false;
}

/* By the library, in one of its threads. */
static void batch_sent(void *data, void *hint)
{
    struct event_batch *b = hint;
    (void)data;
    (void)atomic_load(&b->refs); /* after the publisher's writes, whatever the library does to pass the batch on */
    atomic_fetch_sub(b->held, b->bytes);
    replay_unref(b);
}

bool replay_send_batch(struct replay *r, void *socket, struct event_batch *b)
{
    struct zmq_message m;
    atomic_fetch_add(&b->refs, 1);
    atomic_fetch_add(b->held, b->bytes);
    if (r->z->zmq_msg_init_data(&m, b->body, b->bytes, batch_sent, b)) {
        batch_sent(NULL, b);
        return false;
    }
    if (r->z->zmq_msg_send(&m, socket, ZMQ_DONTWAIT) >= 0) return true;
    r->z->zmq_msg_close(&m);
    return false;
}

/* ---- requests */

/* Frames: who asks, an empty one, the number. All frames of a message are read, whatever they are. false: there is no
 * message. *good_out: it has this form. The caller closes *who, which then exists. */
static bool read_request(struct replay *r, struct zmq_message *who, uint64_t *first_out, bool *good_out)
{
    bool more = true;
    *good_out = true;
    for (uint32_t i = 0; more; i++) {
        struct zmq_message m, *to = i ? &m : who;
        r->z->zmq_msg_init(to);
        if (r->z->zmq_msg_recv(to, r->socket, ZMQ_DONTWAIT) < 0) {
            r->z->zmq_msg_close(to);
            if (i) r->z->zmq_msg_close(who);
            return false;
        }
        size_t bytes = r->z->zmq_msg_size(to);
        more = r->z->zmq_msg_more(to) != 0;
        if (i == 1) *good_out &= bytes == 0;
        if (i == 2) *good_out &= bytes == 8;
        if (i == 2 && bytes == 8) *first_out = get_seq(r->z->zmq_msg_data(to));
        if (!more) *good_out &= i == 2;
        if (i) r->z->zmq_msg_close(&m);
    }
    return true;
}

/* The frames of an answer before its body. */
static bool answer_head(struct replay *r, struct zmq_message *who, uint64_t seq)
{
    unsigned char number[8];
    replay_put_seq(number, seq);
    return replay_send(r, r->socket, r->z->zmq_msg_data(who), r->z->zmq_msg_size(who), ZMQ_SNDMORE) &&
           replay_send(r, r->socket, "", 0, ZMQ_SNDMORE) &&
           replay_send(r, r->socket, number, sizeof number, ZMQ_SNDMORE);
}

/* An answer that has no room ends without its last message, so the asker knows that it is not whole. */
static void answer(struct replay *r, struct zmq_message *who, uint64_t first)
{
    if (first < r->first) first = r->first;
    for (uint64_t seq = first; r->n_kept_max && seq < r->next; seq++) {
        struct event_batch *b = r->kept[seq % r->n_kept_max];
        if (!b || b->seq != seq) continue;
        if (!replay_has_room(r, b) || !answer_head(r, who, seq) || !replay_send_batch(r, r->socket, b)) return;
    }
    if (answer_head(r, who, UINT64_MAX)) replay_send(r, r->socket, "", 0, 0);
}

bool replay_answer(struct replay *r, uint32_t *n_answered_out)
{
    struct zmq_message who;
    uint64_t           first = 0;
    bool               good, any = false;
    *n_answered_out = 0;
    for (int i = 0; r->socket && i < REQUESTS && read_request(r, &who, &first, &good); i++) {
        if (good) answer(r, &who, first);
        *n_answered_out += good;
        r->z->zmq_msg_close(&who);
        any = true;
    }
    return any;
}

/* ---- life */

enum status replay_init(struct replay *r, const struct zmq_api *z, uint32_t n_kept_max)
{
    r->z = z;
    r->n_kept_max = n_kept_max;
    r->kept = calloc((size_t)n_kept_max + 1, sizeof(struct event_batch *));
    return r->kept ? ST_OK : ST_NOMEM;
}

void replay_free(struct replay *r)
{
    for (uint32_t i = 0; r->kept && i < r->n_kept_max; i++)
        if (r->kept[i]) replay_unref(r->kept[i]);
    free(r->kept);
    r->kept = NULL;
}
