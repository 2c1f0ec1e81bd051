/* lane_object: OBJECT -> HOST: ranges of objects, many at a time. Jobs that follow each other in one object become one
 * request: blocks of a prompt lie side by side, and a request costs a round trip. A load that nobody waits for any more
 * is dropped in the middle of its request. */
#include "base/check.h"
#include "transfer/lane.h"
#include "transfer/lanes.h"
#include "transfer/object/object.h"
#include <stdlib.h>
#include <string.h>

enum { DEPTH = 128, TOGETHER = 16, LOOK_US = 10000, DEADLINE_US = 5000000 };
static const uint64_t TOGETHER_BYTES = 4 << 20;

/* One request, and the jobs that it serves. */
struct fetch_job {
    struct list         link; /* free */
    struct object_req   req;
    struct object_piece piece[TOGETHER];
    struct xfer_item   *item[TOGETHER];
    uint32_t            n;
    bool                out, dropped;
};

struct lane_object {
    struct xfer_lane      lane;
    struct lane_ops       ops;
    struct object_store  *store;
    struct object_client *client;
    struct fetch_job      job[DEPTH];
    struct list           free;
};

static struct lane_object *object_of(struct xfer_lane *l) { return LIST_ENTRY(l, struct lane_object, lane); }

static bool object_can(const struct xfer_lane *l, enum xfer_kind src, enum xfer_kind dst)
{
    (void)l;
    return src == XFER_OBJECT && dst == XFER_HOST;
}

static enum status object_open_lane(struct xfer_lane *lane)
{
    struct lane_object *l = object_of(lane);
    return object_client(l->store, &l->client);
}

static unsigned char *host_of(const struct xfer_item *it) { return it->dst->base + it->job.dst_off; }

/* Whether b continues a in the same object. */
static bool follows(const struct xfer_item *a, const struct xfer_item *b)
{
    return a->src->objects == b->src->objects && a->job.src_off + a->job.bytes == b->job.src_off &&
           a->job.src_off >> XFER_OBJECT_SHIFT == b->job.src_off >> XFER_OBJECT_SHIFT;
}

static void begin_job(struct lane_object *l, struct fetch_job *j)
{
    const struct xfer_item    *first = j->item[0];
    const struct xfer_objects *objects = first->src->objects;
    struct object_req         *r = &j->req;
    memset(r, 0, sizeof *r);
    r->op = OBJECT_GET;
    objects->name(objects, first->job.src_off >> XFER_OBJECT_SHIFT, r->name);
    r->off = first->job.src_off & (((uint64_t)1 << XFER_OBJECT_SHIFT) - 1);
    for (uint32_t i = 0; i < j->n; i++) r->bytes += j->item[i]->job.bytes;
    r->piece = j->piece;
    r->n_piece = j->n;
    r->deadline_us = first->begin_us + DEADLINE_US;
    r->owner = j;
    j->out = true;
    j->dropped = false;
    object_begin(l->client, r);
}

static void object_begin_lane(struct xfer_lane *lane, struct xfer_item **item, uint32_t n)
{
    struct lane_object *l = object_of(lane);
    for (uint32_t i = 0; i < n;) {
        CHECK(!list_empty(&l->free)); /* as many as may be begun */
        struct fetch_job *j = LIST_ENTRY(l->free.next, struct fetch_job, link);
        uint64_t          bytes = 0;
        list_del(&j->link);
        j->n = 0;
        do {
            j->piece[j->n] = (struct object_piece){ host_of(item[i]), item[i]->job.bytes };
            j->item[j->n++] = item[i];
            bytes += item[i]->job.bytes;
            i++;
        } while (i < n && j->n < TOGETHER && bytes + item[i]->job.bytes <= TOGETHER_BYTES &&
                 follows(item[i - 1], item[i]));
        begin_job(l, j);
    }
}

/* What is not there, or is not as long as it should be, will not be there next time; what could not be reached may. */
static enum status said(enum status st)
{
    if (st == ST_OK) return ST_OK;
    return st == ST_NOT_FOUND || st == ST_INVALID ? ST_IO : ST_PEER_LOST;
}

static void finish(struct lane_object *l, struct fetch_job *j)
{
    for (uint32_t i = 0; i < j->n; i++) {
        struct xfer_item *it = j->item[i];
        enum status       st = said(j->req.st);
        if (j->dropped || atomic_load_explicit(&it->canceled, memory_order_acquire)) st = ST_CANCELED;
        if (!st && !lane_digest(it, host_of(it))) st = ST_INVALID;
        lane_done(it, st);
    }
    j->out = false;
    list_add_tail(&l->free, &j->link);
}

/* Requests of which nobody wants anything any more. */
static void drop_unwanted(struct lane_object *l)
{
    for (uint32_t k = 0; k < DEPTH; k++) {
        struct fetch_job *j = &l->job[k];
        bool              wanted = !j->out || j->dropped;
        for (uint32_t i = 0; i < j->n && !wanted; i++)
            wanted = !atomic_load_explicit(&j->item[i]->canceled, memory_order_acquire);
        if (wanted) continue;
        j->dropped = true;
        object_was_late(l->store);
        object_cancel(l->client, &j->req);
    }
}

static void object_reap(struct xfer_lane *lane, bool wait)
{
    struct lane_object *l = object_of(lane);
    struct object_req  *done[16];
    drop_unwanted(l);
    bool     sleeps = wait && ring_arm(&lane->inbox);
    uint32_t n = object_run(l->client, ring_fd(&lane->inbox), sleeps ? LOOK_US : 0, done, 16);
    if (sleeps) ring_ack(&lane->inbox);
    for (uint32_t i = 0; i < n; i++) finish(l, done[i]->owner);
}

static void object_close_lane(struct xfer_lane *lane) { object_client_free(object_of(lane)->client); }
static void object_free(struct xfer_lane *lane) { free(object_of(lane)); }

struct xfer_lane *lane_object_create(struct object_store *store)
{
    struct lane_object *l = calloc(1, sizeof *l);
    if (!l) return NULL;
    l->ops = (struct lane_ops){ .name = "lane-object",
                                .depth = DEPTH,
                                .can = object_can,
                                .open = object_open_lane,
                                .begin = object_begin_lane,
                                .reap = object_reap,
                                .close = object_close_lane,
                                .free = object_free };
    l->store = store;
    list_init(&l->free);
    for (int i = 0; i < DEPTH; i++) list_add_tail(&l->free, &l->job[i].link);
    lane_init(&l->lane, &l->ops);
    return &l->lane;
}
