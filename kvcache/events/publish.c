/* publish: the thread that takes events from the queue, makes batches of them, and sends them to subscribers. Socket
 * types and frames are those of vLLM. A batch that a subscriber has no room for is left out for it. Its number in the
 * sequence is used up, so that the subscriber sees the gap. */
#include "base/log.h"
#include "base/thread.h"
#include "kvcache/events/events_impl.h"
#include "kvcache/events/replay.h"
#include "transfer/zmq/zmq_api.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    BATCH_EVENTS = 256,
    REQUEST_MAX = 256,   /* longest message of a subscriber or of one who asks for a replay */
    OPEN_AGAIN_MS = 100, /* until the sockets are tried again */
    LINGER_MS = 200,
};

struct event_pub {
    const struct zmq_api *z;
    void                 *ctx, *pub; /* pub NULL: closed */
    struct replay         replay;
    unsigned char        *body; /* [body_bytes] scratch */
    size_t                body_bytes;
    const struct event   *event[BATCH_EVENTS];
    bool                  told_why; /* the reason why the sockets are closed was logged */
};

/* ---- subscribers */

static bool send_frames(struct event_pub *p, const char *topic, struct event_batch *b)
{
    unsigned char seq[8];
    replay_put_seq(seq, b->seq);
    return replay_send(&p->replay, p->pub, topic, strlen(topic), ZMQ_SNDMORE) &&
           replay_send(&p->replay, p->pub, seq, sizeof seq, ZMQ_SNDMORE) && replay_send_batch(&p->replay, p->pub, b);
}

/* The socket refuses a batch as long as one subscriber has no room for it. It is then sent once more to those who
 * do. */
static void send_batch(struct kv_events *e, struct event_batch *b)
{
    struct event_pub *p = e->pub;
    int               no = 0, yes = 1;
    if (!replay_has_room(&p->replay, b)) {
        atomic_fetch_add(&e->n_slow, 1);
        LOG_WARN_LIMITED("kv: events: subscribers have %d MiB to read, batches are left out", REPLAY_HELD_MAX >> 20);
        return;
    }
    if (send_frames(p, e->cfg.topic, b) || p->z->zmq_errno() != EAGAIN) return;
    atomic_fetch_add(&e->n_slow, 1);
    LOG_WARN_LIMITED("kv: events: a subscriber reads too slowly, batches are left out for it");
    p->z->zmq_setsockopt(p->pub, ZMQ_XPUB_NODROP, &no, sizeof no);
    send_frames(p, e->cfg.topic, b);
    p->z->zmq_setsockopt(p->pub, ZMQ_XPUB_NODROP, &yes, sizeof yes);
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void publish_events(struct kv_events *e, uint32_t n)
{
    struct event_pub   *p = e->pub;
    struct event_form   form = { .adapter = (const char(*)[EVENTS_NAME_BYTES])e->adapters->name,
                                 .as_array = e->cfg.as_array,
                                 .hash_bytes = e->cfg.hash_bytes,
                                 .block_tokens = e->of.block_tokens,
                                 .rank = e->cfg.rank,
                                 .time_s = now_s() };
    size_t              bytes = events_encode(&form, p->event, n, p->body, p->body_bytes);
    struct event_batch *b = replay_batch(&p->replay, p->body, bytes, p->event[0]->gap);
    if (!b) return;
    send_batch(e, b);
    replay_add(&p->replay, b);
    atomic_fetch_add(&e->n_batch, 1);
    replay_unref(b);
}

/* One turn of the engine, or as much of it as fits into a batch. A mark of cleared blocks begins a batch. */
static bool take_events(struct kv_events *e)
{
    struct event_pub *p = e->pub;
    uint32_t          n = 0;
    while (n < BATCH_EVENTS) {
        const struct event *v = event_queue_peek(&e->queue, n);
        if (!v || (n && v->kind == EVENT_CLEARED)) break;
        p->event[n++] = v;
        if (v->last) break;
    }
    if (!n) return false;
    publish_events(e, n);
    event_queue_next(&e->queue, n);
    return true;
}

/* What subscribers say: the library keeps their topics; the messages are for nobody. */
static bool drain_subscriptions(struct event_pub *p)
{
    struct zmq_message m;
    p->z->zmq_msg_init(&m);
    bool any = p->z->zmq_msg_recv(&m, p->pub, ZMQ_DONTWAIT) >= 0;
    p->z->zmq_msg_close(&m);
    return any;
}

/* ---- sockets */

static bool is_bound(const char *address)
{
    return strchr(address, '*') || strstr(address, "::") || !strncmp(address, "ipc://", 6);
}

static void *open_socket(struct event_pub *p, int type, const char *address, bool bind, uint32_t hwm)
{
    int64_t request_max = REQUEST_MAX;
    int     linger = LINGER_MS, yes = 1, n_out = (int)hwm, n_in = 1000;
    void   *s = p->z->zmq_socket(p->ctx, type);
    if (!s) return NULL;
    p->z->zmq_setsockopt(s, ZMQ_LINGER, &linger, sizeof linger);
    p->z->zmq_setsockopt(s, ZMQ_MAXMSGSIZE, &request_max, sizeof request_max);
    p->z->zmq_setsockopt(s, ZMQ_SNDHWM, &n_out, sizeof n_out);
    p->z->zmq_setsockopt(s, ZMQ_RCVHWM, &n_in, sizeof n_in);
    if (strchr(address, '[') || strstr(address, "::")) p->z->zmq_setsockopt(s, ZMQ_IPV6, &yes, sizeof yes);
    if (type == ZMQ_XPUB) p->z->zmq_setsockopt(s, ZMQ_XPUB_NODROP, &yes, sizeof yes);
    if ((bind ? p->z->zmq_bind(s, address) : p->z->zmq_connect(s, address)) == 0) return s;
    int error = p->z->zmq_errno();
    p->z->zmq_close(s);
    errno = error;
    return NULL;
}

static void say_closed(struct event_pub *p, const char *address, int error)
{
    if (p->told_why) return;
    p->told_why = true;
    LOG_WARN("kv: events: %s: %s; tried again until it works, nothing is told until then", address,
             p->z->zmq_strerror(error));
}

static bool open_sockets(struct kv_events *e)
{
    struct event_pub *p = e->pub;
    const char       *to = e->cfg.endpoint, *replay = e->cfg.replay_endpoint;
    p->pub = open_socket(p, ZMQ_XPUB, to, is_bound(to), e->cfg.hwm);
    if (!p->pub) {
        say_closed(p, to, errno);
        return false;
    }
    if (*replay) p->replay.socket = open_socket(p, ZMQ_ROUTER, replay, true, e->cfg.buffer_steps + 1000);
    if (*replay && !p->replay.socket) {
        say_closed(p, replay, errno);
        p->z->zmq_close(p->pub);
        p->pub = NULL;
        return false;
    }
    p->told_why = false;
    LOG_INFO("kv: events: %s %s%s%s", is_bound(to) ? "at" : "to", to, *replay ? ", replay at " : "", replay);
    return true;
}

static void close_sockets(struct event_pub *p)
{
    if (p->pub) p->z->zmq_close(p->pub);
    if (p->replay.socket) p->z->zmq_close(p->replay.socket);
    p->pub = NULL;
    p->replay.socket = NULL;
}

/* What was told before the sockets were open has been told to nobody. */
static void forget_queue(struct kv_events *e)
{
    uint64_t n = 0;
    while (event_queue_peek(&e->queue, n)) n++;
    event_queue_next(&e->queue, n);
}

static void open_or_close(struct kv_events *e)
{
    bool want = atomic_load(&e->speak) && !atomic_load(&e->stop), is = e->pub->pub != NULL;
    if (want == is) return;
    if (is) {
        close_sockets(e->pub);
        LOG_INFO("kv: events: closed");
    } else {
        forget_queue(e);
        if (!open_sockets(e)) return;
    }
    atomic_fetch_add(&e->epoch, 1);
    if (e->of.wake) e->of.wake(e->of.wake_ctx);
}

/* ---- the thread */

static void rest(struct kv_events *e)
{
    struct event_pub *p = e->pub;
    struct zmq_item   item[3] = { { .fd = e->queue.wake_fd, .events = ZMQ_POLLIN } };
    int               n = 1;
    uint64_t          counted;
    if (p->pub) item[n++] = (struct zmq_item){ .socket = p->pub, .events = ZMQ_POLLIN };
    if (p->replay.socket) item[n++] = (struct zmq_item){ .socket = p->replay.socket, .events = ZMQ_POLLIN };
    atomic_store(&e->queue.asleep, 1);
    bool waits = atomic_load(&e->speak) && !p->pub; /* for an address that is in use */
    if (!event_queue_peek(&e->queue, 0) && !atomic_load(&e->stop)) p->z->zmq_poll(item, n, waits ? OPEN_AGAIN_MS : -1);
    atomic_store(&e->queue.asleep, 0);
    (void)!read(e->queue.wake_fd, &counted, sizeof counted);
}

static void *run(void *arg)
{
    struct kv_events *e = arg;
    while (!atomic_load(&e->stop)) {
        open_or_close(e);
        bool     any = false;
        uint32_t n_answered;
        if (e->pub->pub)
            any = take_events(e);
        else
            forget_queue(e);
        if (e->pub->pub) any |= drain_subscriptions(e->pub);
        any |= replay_answer(&e->pub->replay, &n_answered);
        atomic_fetch_add(&e->n_replay, n_answered);
        if (!any) rest(e);
    }
    while (e->pub->pub && take_events(e)) {}
    close_sockets(e->pub);
    return NULL;
}

/* ---- life */

enum status publish_open(struct kv_events *e, char *err, size_t err_bytes)
{
    struct event_pub     *p = calloc(1, sizeof *p);
    const struct zmq_api *z = zmq_api_get(err, err_bytes);
    if (!p || !z) {
        free(p);
        return z ? ST_NOMEM : ST_CONFIG;
    }
    p->z = z;
    p->ctx = z->zmq_ctx_new();
    e->pub = p;
    if (!replay_init(&p->replay, z, e->cfg.buffer_steps) && p->ctx) return ST_OK;
    snprintf(err, err_bytes, "no memory for the publisher of KV events");
    publish_close(e);
    return ST_NOMEM;
}

enum status publish_start(struct kv_events *e)
{
    struct event_pub *p = e->pub;
    p->body_bytes = events_encoded_max(BATCH_EVENTS, e->of.block_tokens);
    p->body = malloc(p->body_bytes);
    if (!p->body) return ST_NOMEM;
    enum status st = thread_start(&e->thread, THREAD_ANY, "kv-events", run, e);
    if (st) return st;
    e->started = true;
    return ST_OK;
}

void publish_close(struct kv_events *e)
{
    struct event_pub *p = e->pub;
    if (!p) return;
    atomic_store(&e->stop, true);
    if (e->started) {
        event_queue_wake(&e->queue);
        pthread_join(e->thread, NULL);
    }
    if (p->ctx) p->z->zmq_ctx_term(p->ctx);
    replay_free(&p->replay);
    free(p->body);
    free(p);
    e->pub = NULL;
}
