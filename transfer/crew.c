#include "transfer/crew.h"
#include "base/check.h"
#include "base/thread.h"
#include <stdlib.h>

struct crew_hand {
    struct crew *crew;
    struct ring  todo;
    pthread_t    thread;
    bool         started;
};
struct crew {
    uint32_t         n, turn;
    struct ring      done;
    _Atomic bool     stop;
    struct crew_hand hand[CREW_MAX];
};

static void *hand_main(void *arg)
{
    struct crew_hand *h = arg;
    struct crew      *c = h->crew;
    while (!atomic_load_explicit(&c->stop, memory_order_acquire)) {
        struct xfer_item *it = ring_pop(&h->todo);
        if (!it) {
            ring_wait(&h->todo, -1);
            continue;
        }
        it->done.st = lane_digest(it, it->host) ? ST_OK : ST_INVALID;
        CHECK(ring_push(&c->done, it)); /* the lane's from here on */
    }
    return NULL;
}

enum status crew_open(uint32_t n_thread, struct crew **c_out)
{
    struct crew *c = calloc(1, sizeof *c);
    if (!c) return ST_NOMEM;
    CHECK(n_thread > 0 && n_thread <= CREW_MAX);
    c->done.fd = -1;
    enum status st = ring_init(&c->done, LANE_BATCH_MAX);
    for (; c->n < n_thread && !st; c->n++) {
        struct crew_hand *h = &c->hand[c->n];
        h->crew = c;
        if ((st = ring_init(&h->todo, LANE_BATCH_MAX))) break;
        st = thread_start(&h->thread, THREAD_XFER, "digest", hand_main, h);
        h->started = st == ST_OK;
    }
    if (st) {
        crew_close(c);
        return st;
    }
    *c_out = c;
    return ST_OK;
}

void crew_give(struct crew *c, struct xfer_item *it, const void *bytes)
{
    it->host = bytes;
    CHECK(ring_push(&c->hand[c->turn++ % c->n].todo, it)); /* in turn: blocks are of one size */
}

struct xfer_item *crew_take(struct crew *c) { return ring_pop(&c->done); }

void crew_close(struct crew *c)
{
    if (!c) return;
    atomic_store_explicit(&c->stop, true, memory_order_release);
    for (uint32_t i = 0; i < c->n; i++) {
        struct crew_hand *h = &c->hand[i];
        if (h->started) {
            ring_wake(&h->todo);
            pthread_join(h->thread, NULL);
        }
        ring_free(&h->todo);
    }
    ring_free(&c->done);
    free(c);
}
