/* pack_below: the functions of the row of below.h that keeps blocks in an object store. */
#include "base/check.h"
#include "base/log.h"
#include "kvcache/events/events.h"
#include "kvcache/object/pack_impl.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OBJECTS_MIN = 4, OBJECTS_MAX = 1 << 18, FLUSH_US = 10000000 };
static const uint64_t ENTRIES_MAX = 8 << 20;

static struct pack_store       *pack_of(struct kv_below *b) { return (struct pack_store *)b; }
static const struct pack_store *pack_in(const struct kv_below *b) { return (const struct pack_store *)b; }

/* ---- life */

static uint32_t records_of(uint64_t record_bytes, uint64_t object_bytes)
{
    uint64_t n = object_bytes / record_bytes;
    while (n > 1 && (n > PACK_RECORDS_MAX || pack_bytes(record_bytes, (uint32_t)n) > object_bytes)) n--;
    return n ? (uint32_t)n : 1;
}

bool pack_fits(uint64_t cap_bytes, uint64_t payload_bytes, const struct object_store *store, char *err,
               size_t err_bytes)
{
    uint64_t record = kv_record_bytes(payload_bytes);
    uint64_t object = pack_bytes(record, records_of(record, store->ops->object_bytes));
    if (cap_bytes >= OBJECTS_MIN * object) return true;
    snprintf(err, err_bytes, "%" PRIu64 " MiB hold fewer than %d objects of %" PRIu64 " KiB", cap_bytes >> 20,
             OBJECTS_MIN, object >> 10);
    return false;
}

static void name_object(const struct xfer_objects *names, uint64_t index, char *out)
{
    const struct pack_store  *s = names->ctx;
    const struct pack_object *o = &s->object[index]; /* its name does not change while a job refers to it */
    snprintf(out, OBJECT_NAME, "%s/%012llx-%016llx.kv", o->model, (unsigned long long)o->id.time_ms,
             (unsigned long long)o->id.seq);
}

static enum status open_segments(struct pack_store *s)
{
    struct xfer_seg seg = { .kind = XFER_OBJECT, .bytes = UINT64_MAX >> 1, .objects = &s->names };
    s->names = (struct xfer_objects){ .name = name_object, .ctx = s };
    enum status st = xfer_seg_add(s->cfg.xfer, &seg, &s->seg);
    for (int i = 0; i < PACK_BUFFERS && !st; i++) {
        struct pack_buffer *b = &s->buffer[i];
        b->row = calloc(s->n_record, sizeof *b->row);
        b->bytes = aligned_alloc(PACK_PAGE, s->buffer_bytes);
        if (!b->row || !b->bytes) return ST_NOMEM;
        memset(b->bytes, 0, s->buffer_bytes); /* takes the pages now, not at the first use */
        seg = (struct xfer_seg){ .kind = XFER_HOST, .base = b->bytes, .bytes = s->buffer_bytes };
        st = xfer_seg_add(s->cfg.xfer, &seg, &b->seg);
    }
    return st;
}

static void turn(struct kv_below *b);

/* At the end: uploads the blocks gathered so far, as long as the store answers and until end_us. */
static void flush(struct pack_store *s, uint64_t end_us)
{
    s->closing = true;
    pack_close_filling(s);
    for (;;) {
        bool out = s->n_putting > 0 || s->n_removing > 0;
        for (int b = 0; b < PACK_BUFFERS; b++)
            out |= s->buffer[b].object != PACK_NONE && s->object[s->buffer[b].object].state == PACK_FULL;
        if (!out || s->cfg.clock() >= end_us || object_is_down(s->store, s->cfg.clock())) return;
        turn(&s->below);
        ring_wait(&s->answer, 10000);
    }
}

static void close_pack(struct kv_below *b)
{
    struct pack_store *s = pack_of(b);
    if (s->started) flush(s, s->cfg.clock() + FLUSH_US);
    pack_thread_close(s);
    for (int i = 0; i < PACK_BUFFERS; i++) {
        if (s->buffer[i].seg) xfer_seg_drop(s->cfg.xfer, s->buffer[i].seg);
        free(s->buffer[i].bytes);
        free(s->buffer[i].row);
    }
    if (s->seg) xfer_seg_drop(s->cfg.xfer, s->seg);
    pack_index_close(s);
    free(s);
}

static enum status open_pack(const struct kv_below_cfg *c, struct kv_below **b_out, char *err, size_t err_bytes)
{
    struct pack_store *s = calloc(1, sizeof *s);
    if (!s) {
        snprintf(err, err_bytes, "no memory for the index of %s", c->where);
        return ST_NOMEM;
    }
    s->below.row = &kv_objects;
    s->cfg = *c;
    s->store = c->objects;
    s->shape = (struct pack_shape){ c->fingerprint, c->payload_bytes, c->block_tokens };
    s->todo.fd = s->answer.fd = -1;
    s->filling = PACK_NONE;
    pack_model(&c->fingerprint, s->model);
    s->record_bytes = kv_record_bytes(c->payload_bytes);
    s->n_record = records_of(s->record_bytes, s->store->ops->object_bytes);
    s->buffer_bytes = pack_bytes(s->record_bytes, s->n_record);
    uint64_t objects = c->bytes / s->buffer_bytes * 4, entries = c->bytes / s->record_bytes; /* some are not full */
    if (objects < 1024) objects = 1024;
    if (objects > OBJECTS_MAX) objects = OBJECTS_MAX;
    s->n_object_max = (uint32_t)objects;
    s->n_entry_max = (uint32_t)(entries > ENTRIES_MAX ? ENTRIES_MAX : entries + PACK_BUFFERS * s->n_record);
    for (int i = 0; i < PACK_BUFFERS; i++) s->buffer[i].object = PACK_NONE;
    enum status st = pack_index_open(s);
    if (!st) st = open_segments(s);
    if (!st) st = pack_thread_open(s);
    if (st) {
        snprintf(err, err_bytes, "no memory for the index of %s", c->where);
        close_pack(&s->below);
        return st;
    }
    *b_out = &s->below;
    return ST_OK;
}

/* ---- messages of the thread */

static void found(struct pack_store *s, struct pack_task *t)
{
    t->object = pack_object_take(s);
    if (t->object == PACK_NONE) {
        CHECK(ring_push(&s->todo, t));
        return;
    }
    struct pack_object *o = &s->object[t->object];
    memcpy(o->model, t->model, sizeof o->model);
    o->id = t->id;
    o->bytes = t->bytes;
    o->use_us = s->listed ? s->cfg.clock()
                          : 0; /* objects found at the start are removed first, the oldest of them before the others */
    o->old_key = t->old_key;
    o->found = true;
    s->bytes += o->bytes;
    s->n_damaged += !t->row && !strcmp(o->model, s->model);
    if (t->row && !s->mistrusts) {
        o->state = PACK_LEARNING;
        s->learning = t;
        return;
    }
    o->state = PACK_OTHER;
    CHECK(ring_push(&s->todo, t));
}

/* Takes up to PACK_LEARN rows of the table into the index: a turn must be short, and a table has up to 4,096 rows. */
static void learn(struct pack_store *s)
{
    struct pack_task   *t = s->learning;
    struct pack_object *o = &s->object[t->object];
    uint32_t            end = t->n_row - t->n_learnt > PACK_LEARN ? t->n_learnt + PACK_LEARN : t->n_row;
    for (; t->n_learnt < end && !s->mistrusts; t->n_learnt++) {
        const struct pack_row *r = &t->row[t->n_learnt];
        if (pack_find(s, &r->key) != PACK_NONE) continue;
        int32_t e = pack_insert(s, t->object, r->index, &r->key, r->payload, r->begins, PACK_ENTRY_READY);
        if (e == PACK_NONE) break; /* the index is full: the other rows are not used */
        if (r->begins) s->canary = (uint32_t)e;
        s->n_recovered++;
    }
    if (end < t->n_row && !s->mistrusts) return;
    o->state = s->mistrusts ? PACK_OTHER : PACK_READY;
    s->learning = NULL;
    CHECK(ring_push(&s->todo, t));
}

static void gone(struct pack_store *s, struct pack_task *t)
{
    struct pack_object *o = &s->object[t->object];
    bool                same = o->state != PACK_FREE && o->id.seq == t->id.seq && o->id.time_ms == t->id.time_ms;
    if (same && (o->state == PACK_READY || o->state == PACK_OTHER)) {
        pack_forget_object(s, t->object);
        o->doomed = true;
        pack_let_go(s, t->object);
    }
    CHECK(ring_push(&s->todo, t));
}

static void turn(struct kv_below *b)
{
    struct pack_store *s = pack_of(b);
    for (struct pack_task *t; !s->learning && (t = ring_pop(&s->answer));) {
        switch (t->kind) {
        case PACK_PUT: pack_put_done(s, t); break;
        case PACK_REMOVE: pack_remove_done(s, t); break;
        case PACK_FOUND: found(s, t); break;
        case PACK_GONE: gone(s, t); break;
        case PACK_LISTED:
            s->listed = true;
            LOG_INFO("kv: %s holds %" PRIu64 " blocks of this model, %" PRIu64 " MiB in all", s->cfg.where,
                     s->n_recovered, s->bytes >> 20);
            CHECK(ring_push(&s->todo, t));
            break;
        }
    }
    if (s->learning) learn(s);
    pack_put_turn(s);
}

static bool busy(const struct kv_below *b) { return pack_in(b)->learning != NULL; }

/* ---- blocks */

static bool has(const struct kv_below *b, const struct kv_key *key) { return pack_find(pack_in(b), key) != PACK_NONE; }

static bool holds(const struct kv_below *b, const struct kv_key *key)
{
    int32_t e = pack_find(pack_in(b), key);
    return e != PACK_NONE && pack_in(b)->entry[e].state == PACK_ENTRY_READY;
}

static uint64_t each(const struct kv_below *b, uint64_t at)
{
    const struct pack_store *s = pack_in(b);
    if (at >= s->n_entry_max) return UINT64_MAX;
    if (s->entry[at].state == PACK_ENTRY_READY) kv_events_entry(s->cfg.events, s->cfg.place, &s->entry[at].key);
    return at + 1;
}

static int32_t find_ready(const struct pack_store *s, const struct kv_key *key)
{
    int32_t e = pack_find(s, key);
    if (e == PACK_NONE || s->entry[e].state != PACK_ENTRY_READY) return PACK_NONE;
    const struct pack_object *o = &s->object[s->entry[e].object];
    if (o->buffer == PACK_NONE && object_is_down(s->store, s->cfg.clock())) return PACK_NONE;
    return e;
}

static void place_of(struct pack_store *s, int32_t e, struct kv_place *out)
{
    struct pack_object *o = &s->object[s->entry[e].object];
    o->use_us = s->cfg.clock();
    *out = (struct kv_place){ .segment = (uint32_t)s->entry[e].object,
                              .index = (uint32_t)e,
                              .gen = s->entry[e].gen,
                              .seq = o->id.seq,
                              .old_key = o->old_key };
}

static bool find(struct kv_below *b, const struct kv_key *key, struct kv_place *place_out)
{
    struct pack_store *s = pack_of(b);
    int32_t            e = find_ready(s, key);
    if (e == PACK_NONE || pack_hides(s, e)) return false;
    place_of(s, e, place_out);
    return true;
}

static enum status read_record(struct kv_below *b, const struct kv_read *r, struct kv_place *place_out,
                               uint64_t *ticket_out)
{
    struct pack_store *s = pack_of(b);
    int32_t            e = find_ready(s, r->key);
    if (e == PACK_NONE) return ST_NOT_FOUND;
    struct pack_object *o = &s->object[s->entry[e].object];
    uint64_t            off = s->entry[e].index * s->record_bytes;
    uint64_t            far = ((uint64_t)s->entry[e].object << XFER_OBJECT_SHIFT) + off;
    bool                near = o->buffer != PACK_NONE;
    struct xfer_job     j = { .src = near ? s->buffer[o->buffer].seg : s->seg,
                              .dst = r->host_seg,
                              .src_off = near ? off : far,
                              .dst_off = r->host_off,
                              .bytes = (uint32_t)s->record_bytes,
                              .skip = KV_RECORD_HEAD,
                              .tail = (uint32_t)(s->record_bytes - KV_RECORD_HEAD - s->cfg.payload_bytes),
                              .prio = r->prio,
                              .digest_mode = XFER_DIGEST_CHECK,
                              .digest = s->entry[e].payload,
                              .check_key = o->old_key ? s->cfg.old_key : NULL,
                              .deadline_us = r->deadline_us,
                              .cookie = r->cookie };
    enum status         st = xfer_post(s->cfg.xfer, &j, ticket_out);
    if (st) return st;
    o->n_pinned++;
    place_of(s, e, place_out);
    return ST_OK;
}

static void read_done(struct kv_below *b, struct kv_place place, bool bad)
{
    struct pack_store  *s = pack_of(b);
    struct pack_object *o = &s->object[place.segment];
    struct pack_entry  *e = &s->entry[place.index];
    CHECK(o->n_pinned > 0);
    o->n_pinned--;
    if (bad) {
        if (e->state == PACK_ENTRY_READY && e->gen == place.gen) pack_forget(s, (int32_t)place.index);
        if (++o->n_bad >= PACK_READ_FAILS) pack_forget_object(s, (int32_t)place.segment); /* it has gone, or changed */
    }
    pack_let_go(s, (int32_t)place.segment);
}

static enum status write_record(struct kv_below *b, const struct kv_write *w, struct kv_place *place_out)
{
    struct pack_store *s = pack_of(b);
    if (pack_find(s, w->key) != PACK_NONE || s->free_entry == PACK_NONE) return ST_AGAIN;
    int32_t at = pack_buffer_for_write(s);
    if (at == PACK_NONE) return ST_AGAIN;
    struct pack_buffer     *buffer = &s->buffer[at];
    struct pack_object     *o = &s->object[buffer->object];
    const struct kv_record *r = kv_record_of(w->page);
    CHECK(kv_key_equal(&r->key, w->key));
    kv_record_seal(w->page, &s->cfg.key, o->id.seq, w->until_s, w->priority);
    struct xfer_job j = { .src = w->host_seg,
                          .dst = buffer->seg,
                          .src_off = w->host_off,
                          .dst_off = o->n_used * s->record_bytes,
                          .bytes = (uint32_t)s->record_bytes,
                          .prio = XFER_STORE,
                          .cookie = w->cookie };
    enum status     st = xfer_post(s->cfg.xfer, &j, NULL);
    if (st) return st;
    int32_t e = pack_insert(s, buffer->object, o->n_used, w->key, r->payload, kv_record_begins(r), PACK_ENTRY_WRITING);
    CHECK(e != PACK_NONE);
    o->n_used++;
    o->n_writing++;
    o->n_pinned++;
    place_of(s, e, place_out);
    return ST_OK;
}

static void write_done(struct kv_below *b, struct kv_place place, enum status st)
{
    struct pack_store  *s = pack_of(b);
    struct pack_object *o = &s->object[place.segment];
    struct pack_entry  *e = &s->entry[place.index];
    CHECK(o->n_writing > 0 && o->n_pinned > 0);
    CHECK(e->state == PACK_ENTRY_WRITING && e->gen == place.gen);
    o->n_writing--;
    o->n_pinned--;
    if (st) {
        pack_forget(s, (int32_t)place.index);
        return;
    }
    e->state = PACK_ENTRY_READY;
    kv_events_entry_stored(s->cfg.events, s->cfg.place, place.index, &e->key);
}

static bool takes(const struct kv_below *b)
{
    const struct pack_store *s = pack_in(b);
    return !s->closing && !object_is_down(s->store, s->cfg.clock());
}

/* ---- as a whole */

static void stats(const struct kv_below *b, struct kv_below_stats *out)
{
    const struct pack_store *s = pack_in(b);
    uint64_t                 n_foreign = 0;
    for (uint32_t i = 0; i < s->n_object_max; i++) n_foreign += s->object[i].found && s->object[i].state == PACK_READY;
    *out = (struct kv_below_stats){ .used_bytes = s->bytes,
                                    .cap_bytes = s->cfg.bytes,
                                    .n_block = s->n_entry,
                                    .n_evicted = s->n_evicted,
                                    .degraded = takes(b) ? NULL : "the object store does not serve, or is too slow",
                                    .counts = { .n_pauses = s->n_failed_put,
                                                .n_recovered = s->n_recovered,
                                                .n_paused = !takes(b),
                                                .n_damaged = s->n_damaged,
                                                .n_unread = atomic_load_explicit(&s->n_unread, memory_order_relaxed),
                                                .n_foreign = n_foreign } };
}

static enum status check(const struct kv_below *b) { return pack_index_check(pack_in(b)); }

/* What this process wrote is removed; what others did is theirs, and is not believed any more. */
static uint64_t purge(struct kv_below *b)
{
    struct pack_store *s = pack_of(b);
    uint64_t           n = 0;
    for (uint32_t i = 0; i < s->n_object_max; i++) {
        struct pack_object *o = &s->object[i];
        if (o->state == PACK_FREE) continue;
        n += pack_forget_object(s, (int32_t)i);
        if (o->state == PACK_READY && o->buffer == PACK_NONE && !o->n_pinned && !o->found) pack_remove(s, (int32_t)i);
        if (o->state == PACK_READY) o->state = PACK_OTHER;
    }
    s->believed = true;
    s->mistrusts = true;
    return n;
}

static bool unproven(const struct kv_below *b)
{
    const struct pack_store *s = pack_in(b);
    return s->cfg.prove && !s->believed && s->n_begin > 0;
}

static bool is_canary(const struct pack_store *s, uint32_t e)
{
    return s->entry[e].state == PACK_ENTRY_READY && s->entry[e].begins && s->object[s->entry[e].object].found;
}

static bool canary(struct kv_below *b, struct kv_key *key_out)
{
    struct pack_store *s = pack_of(b);
    if (!unproven(b) || object_is_down(s->store, s->cfg.clock())) return false;
    for (uint32_t i = 0; i < s->n_entry_max && !is_canary(s, s->canary); i++)
        s->canary = (s->canary + 1) % s->n_entry_max; /* the one that was learnt last has gone */
    if (!is_canary(s, s->canary)) return false;
    *key_out = s->entry[s->canary].key;
    return true;
}

static void believe(struct kv_below *b) { pack_of(b)->believed = true; }

/* Others may still write one that begins a prompt. */
static bool hopeless(const struct kv_below *b)
{
    (void)b;
    return false;
}

static uint64_t forget_found(struct kv_below *b)
{
    struct pack_store *s = pack_of(b);
    uint64_t           n = 0;
    for (uint32_t i = 0; i < s->n_object_max; i++)
        if (s->object[i].state == PACK_READY && s->object[i].found) n += pack_forget_object(s, (int32_t)i);
    return n;
}

static const struct kv_below_proof proof = {
    .unproven = unproven, .canary = canary, .believe = believe, .hopeless = hopeless, .forget_found = forget_found
};

const struct kv_below_row kv_objects = { .name = "an object store",
                                         .tier = KV_TIER_OBJECT,
                                         .kind = XFER_OBJECT,
                                         .eager = true,
                                         .open = open_pack,
                                         .close = close_pack,
                                         .find = find,
                                         .has = has,
                                         .read = read_record,
                                         .read_done = read_done,
                                         .write = write_record,
                                         .write_done = write_done,
                                         .takes = takes,
                                         .turn = turn,
                                         .busy = busy,
                                         .stats = stats,
                                         .check = check,
                                         .purge = purge,
                                         .proof = &proof,
                                         .holds = holds,
                                         .each = each };
