/* pack_put: gathers blocks in buffers. A buffer that is full, or has waited long enough, is uploaded as one object; if
 * the budget has no room for it, the oldest objects are removed first. Until the upload is done, reads of its blocks
 * are served from the buffer. */
#include "base/check.h"
#include "kvcache/object/pack_impl.h"
#include <openssl/rand.h>
#include <string.h>
#include <time.h>

enum { OLD_US = 2000000 };

static uint64_t wall_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void ask(struct pack_store *s, struct pack_task *t) { CHECK(ring_push(&s->todo, t)); }

static void object_free(struct pack_store *s, int32_t i)
{
    struct pack_object *o = &s->object[i];
    CHECK(o->first == PACK_NONE && o->n_pinned == 0);
    if (o->state >= PACK_PUTTING) s->bytes -= o->bytes;
    o->state = PACK_FREE;
    s->n_object--;
}

void pack_let_go(struct pack_store *s, int32_t object)
{
    struct pack_object *o = &s->object[object];
    if (o->n_pinned || (o->state != PACK_READY && o->state != PACK_OTHER)) return;
    if (o->buffer != PACK_NONE) s->buffer[o->buffer].object = PACK_NONE;
    o->buffer = PACK_NONE;
    if (!o->doomed) return;
    pack_forget_object(s, object);
    object_free(s, object);
}

/* ---- up */

static bool begin_buffer(struct pack_store *s)
{
    int32_t b = 0;
    while (b < PACK_BUFFERS && s->buffer[b].object != PACK_NONE) b++;
    int32_t i = b < PACK_BUFFERS ? pack_object_take(s) : PACK_NONE;
    if (i == PACK_NONE) return false;
    struct pack_object *o = &s->object[i];
    o->state = PACK_FILLING;
    o->buffer = b;
    o->begin_us = o->use_us = s->cfg.clock();
    memcpy(o->model, s->model, sizeof o->model);
    o->id.time_ms = wall_ms();
    CHECK(RAND_bytes((unsigned char *)&o->id.seq, sizeof o->id.seq) == 1);
    s->buffer[b].object = i;
    s->buffer[b].n_row = 0;
    s->filling = b;
    return true;
}

int32_t pack_buffer_for_write(struct pack_store *s)
{
    if (s->filling == PACK_NONE && (s->closing || !begin_buffer(s))) return PACK_NONE;
    return s->object[s->buffer[s->filling].object].n_used < s->n_record ? s->filling : PACK_NONE;
}

/* All writes into the buffer are done. The table lists the records that arrived whole. */
static void fill_rows(struct pack_store *s, struct pack_buffer *b)
{
    b->n_row = 0;
    for (int32_t i = s->object[b->object].first; i != PACK_NONE; i = s->entry[i].behind) {
        const struct pack_entry *e = &s->entry[i];
        b->row[b->n_row++] =
            (struct pack_row){ .key = e->key, .payload = e->payload, .index = e->index, .begins = e->begins };
    }
}

static void put_begin(struct pack_store *s, int32_t b)
{
    struct pack_buffer *buffer = &s->buffer[b];
    struct pack_object *o = &s->object[buffer->object];
    struct pack_task   *t = &s->put[b];
    fill_rows(s, buffer);
    s->bytes += o->bytes;
    o->state = PACK_PUTTING;
    s->n_putting++;
    *t = (struct pack_task){
        .kind = PACK_PUT, .object = buffer->object, .buffer = b, .id = o->id, .bytes = o->bytes, .n_row = buffer->n_row
    };
    memcpy(t->model, o->model, sizeof t->model);
    ask(s, t);
}

void pack_put_done(struct pack_store *s, struct pack_task *t)
{
    struct pack_object *o = &s->object[t->object];
    s->n_putting--;
    if (t->st == ST_OK) {
        o->state = PACK_READY;
        pack_let_go(s, t->object);
        return;
    }
    /* Jobs that still read from the buffer read whole blocks. An upload whose answer was lost may have succeeded: a
     * list finds it then. */
    s->n_failed_put++;
    pack_forget_object(s, t->object);
    o->state = PACK_READY;
    o->doomed = true;
    pack_let_go(s, t->object);
}

/* ---- out */

bool pack_remove(struct pack_store *s, int32_t object)
{
    struct pack_object *o = &s->object[object];
    CHECK(o->n_pinned == 0 && (o->state == PACK_READY || o->state == PACK_OTHER));
    struct pack_task *t = s->remove;
    while (t < s->remove + PACK_REMOVES && t->used) t++;
    if (t == s->remove + PACK_REMOVES) return false;
    s->n_evicted += pack_forget_object(s, object);
    o->found = false;
    o->state = PACK_REMOVING;
    s->n_removing++;
    *t = (struct pack_task){ .kind = PACK_REMOVE, .object = object, .id = o->id, .used = true };
    memcpy(t->model, o->model, sizeof t->model);
    ask(s, t);
    return true;
}

void pack_remove_done(struct pack_store *s, struct pack_task *t)
{
    s->n_removing--;
    t->used = false;
    if (t->st == ST_OK) {
        object_free(s, t->object);
        return;
    }
    s->object[t->object].state = PACK_OTHER; /* it still takes room, and goes with the next try */
}

/* The one that was written or read the longest ago; PACK_NONE: none can go. */
static int32_t oldest(const struct pack_store *s)
{
    int32_t best = PACK_NONE;
    for (uint32_t i = 0; i < s->n_object_max; i++) {
        const struct pack_object *o = &s->object[i];
        if ((o->state != PACK_READY && o->state != PACK_OTHER) || o->n_pinned || o->buffer != PACK_NONE) continue;
        const struct pack_object *b = best == PACK_NONE ? NULL : &s->object[best];
        if (!b || o->use_us < b->use_us || (o->use_us == b->use_us && o->id.time_ms < b->id.time_ms)) best = (int32_t)i;
    }
    return best;
}

/* Room for so many bytes more; false: not yet. */
static bool make_room(struct pack_store *s, uint64_t bytes)
{
    uint64_t going = 0;
    for (int i = 0; i < PACK_REMOVES; i++)
        if (s->remove[i].used) going += s->object[s->remove[i].object].bytes;
    while (s->bytes - going + bytes > s->cfg.bytes) {
        int32_t i = oldest(s);
        if (i == PACK_NONE) return false;
        uint64_t its = s->object[i].bytes;
        if (!pack_remove(s, i)) return false;
        going += its;
    }
    return s->bytes + bytes <= s->cfg.bytes;
}

void pack_close_filling(struct pack_store *s)
{
    if (s->filling == PACK_NONE || !s->object[s->buffer[s->filling].object].n_used) return;
    struct pack_object *o = &s->object[s->buffer[s->filling].object];
    o->state = PACK_FULL;
    o->bytes = pack_bytes(s->record_bytes, o->n_used);
    s->filling = PACK_NONE;
}

void pack_put_turn(struct pack_store *s)
{
    if (s->filling != PACK_NONE) {
        struct pack_object *o = &s->object[s->buffer[s->filling].object];
        bool                old = o->n_used && s->cfg.clock() - o->begin_us > OLD_US;
        if (o->n_used == s->n_record || old) pack_close_filling(s);
    }
    for (int32_t b = 0; b < PACK_BUFFERS; b++) {
        int32_t             i = s->buffer[b].object;
        struct pack_object *o = i == PACK_NONE ? NULL : &s->object[i];
        if (!o || o->state != PACK_FULL || o->n_writing) continue;
        if (o->first == PACK_NONE && !o->n_pinned) { /* nothing of it was written after all */
            s->buffer[b].object = PACK_NONE;
            object_free(s, i);
        } else if (make_room(s, o->bytes)) {
            put_begin(s, b);
        }
    }
}
