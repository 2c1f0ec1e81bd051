/* fuzz_events: any messages at the socket for replays of KV events. The library is played here: the bytes say how long
 * the frames of requests are and what they hold. Whatever is asked, an answer has whole messages in rising order, which
 * end with the mark, and every message that was taken is given back. */
#include "base/check.h"
#include "base/log.h"
#include "kvcache/events/replay.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

struct frame { /* in zmq_message.opaque */
    unsigned char *data;
    size_t         bytes;
    bool           more;
    void (*release)(void *data, void *hint);
    void *hint;
};
_Static_assert(sizeof(struct frame) <= sizeof(struct zmq_message), "a frame fits");

static const uint8_t *in;
static size_t         n_in;
static uint32_t       n_frame, n_open;
static uint64_t       last;

static struct frame       *of(struct zmq_message *m) { return (struct frame *)(void *)m->opaque; }
static const struct frame *in_of(const struct zmq_message *m) { return (const struct frame *)(const void *)m->opaque; }

static int init_size(struct zmq_message *m, size_t bytes)
{
    *of(m) = (struct frame){ .data = malloc(bytes + 1), .bytes = bytes };
    n_open++;
    return 0;
}
static int init(struct zmq_message *m) { return init_size(m, 0); }
static int init_data(struct zmq_message *m, void *data, size_t bytes, void (*release)(void *, void *), void *hint)
{
    *of(m) = (struct frame){ .data = data, .bytes = bytes, .release = release, .hint = hint };
    n_open++;
    return 0;
}
static int close_message(struct zmq_message *m)
{
    if (of(m)->release)
        of(m)->release(of(m)->data, of(m)->hint);
    else
        free(of(m)->data);
    n_open--;
    return 0;
}
static void  *data_of(struct zmq_message *m) { return of(m)->data; }
static size_t size_of(const struct zmq_message *m) { return in_of(m)->bytes; }
static int    more_of(const struct zmq_message *m) { return in_of(m)->more; }

/* A byte with the length and whether more follows, then the frame. */
static int receive(struct zmq_message *m, void *socket, int flags)
{
    (void)socket;
    (void)flags;
    if (!n_in) return -1;
    size_t bytes = *in & 31;
    bool   more = *in & 32;
    in++;
    n_in--;
    if (bytes > n_in) bytes = n_in;
    close_message(m);
    init_size(m, bytes);
    memcpy(of(m)->data, in, bytes);
    of(m)->more = more && n_in > bytes;
    in += bytes;
    n_in -= bytes;
    return (int)bytes;
}

static int send_message(struct zmq_message *m, void *socket, int flags)
{
    (void)socket;
    CHECK(((flags & ZMQ_SNDMORE) != 0) == (n_frame % 4 != 3)); /* who, nothing, number, batch */
    if (n_frame % 4 == 1) CHECK(!of(m)->bytes);
    if (n_frame % 4 == 2) {
        uint64_t seq = 0;
        CHECK(of(m)->bytes == 8);
        for (int i = 0; i < 8; i++) seq = seq << 8 | of(m)->data[i];
        CHECK(seq > last || last == UINT64_MAX);
        last = seq;
    }
    if (n_frame % 4 == 3) CHECK((of(m)->bytes == 0) == (last == UINT64_MAX));
    n_frame++;
    close_message(m);
    return 0;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    log_init(LOG_LEVEL_ERROR, -1, false);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    enum { KEPT = 8 };
    static const struct zmq_api z = { .zmq_msg_init = init,
                                      .zmq_msg_init_size = init_size,
                                      .zmq_msg_init_data = init_data,
                                      .zmq_msg_data = data_of,
                                      .zmq_msg_size = size_of,
                                      .zmq_msg_more = more_of,
                                      .zmq_msg_send = send_message,
                                      .zmq_msg_recv = receive,
                                      .zmq_msg_close = close_message };
    struct replay               r = { .socket = &r };
    uint32_t                    answered;
    if (!n) return 0;
    CHECK(!replay_init(&r, &z, data[0] % KEPT));
    for (uint32_t i = 0; i < data[0] / 8u; i++) {
        struct event_batch *b = replay_batch(&r, "batch", 5, i % 7 == 3);
        CHECK(b);
        replay_add(&r, b);
        replay_unref(b);
    }
    in = data + 1;
    n_in = n - 1;
    n_frame = 0;
    last = UINT64_MAX;
    while (n_in) replay_answer(&r, &answered);
    CHECK(n_frame % 4 == 0);
    CHECK(last == UINT64_MAX); /* every answer ends with the mark */
    CHECK(!n_open);
    CHECK(!atomic_load(&r.held_bytes));
    replay_free(&r);
    return 0;
}
