/* pack_index: which block lies in which object. */
#include "base/check.h"
#include "base/log.h"
#include "kvcache/events/events.h"
#include "kvcache/object/pack_impl.h"
#include <stdlib.h>
#include <string.h>

enum status pack_index_open(struct pack_store *s)
{
    s->object = calloc(s->n_object_max, sizeof *s->object);
    s->entry = calloc(s->n_entry_max, sizeof *s->entry);
    if (!s->object || !s->entry) return ST_NOMEM;
    enum status st = chain_init(&s->by_key, s->n_entry_max, &s->entry[0].next, sizeof *s->entry);
    if (st) return st;
    s->free_entry = PACK_NONE;
    for (uint32_t i = s->n_entry_max; i-- > 0;) {
        s->entry[i].next = s->free_entry;
        s->free_entry = (int32_t)i;
    }
    return ST_OK;
}

void pack_index_close(struct pack_store *s)
{
    if (s->by_key.bucket) chain_free(&s->by_key);
    free(s->object);
    free(s->entry);
}

int32_t pack_find(const struct pack_store *s, const struct kv_key *key)
{
    int32_t i = chain_first(&s->by_key, kv_key_hash(key));
    while (i != CHAIN_NONE && !kv_key_equal(&s->entry[i].key, key)) i = chain_next(&s->by_key, i);
    return i;
}

int32_t pack_insert(struct pack_store *s, int32_t object, uint32_t index, const struct kv_key *key,
                    struct digest payload, bool begins, enum pack_entry_state state)
{
    int32_t i = s->free_entry;
    if (i == PACK_NONE) return PACK_NONE;
    struct pack_entry  *e = &s->entry[i];
    struct pack_object *o = &s->object[object];
    s->free_entry = e->next;
    *e = (struct pack_entry){ .key = *key,
                              .payload = payload,
                              .gen = ++s->gen,
                              .before = PACK_NONE,
                              .behind = o->first,
                              .object = object,
                              .index = index,
                              .state = (uint8_t)state,
                              .begins = begins };
    if (o->first != PACK_NONE) s->entry[o->first].before = i;
    o->first = i;
    chain_add(&s->by_key, kv_key_hash(key), i);
    s->n_entry++;
    s->n_begin += begins && o->found;
    if (state == PACK_ENTRY_READY) kv_events_entry_stored(s->cfg.events, s->cfg.place, (uint64_t)i, key);
    return i;
}

void pack_forget(struct pack_store *s, int32_t i)
{
    struct pack_entry  *e = &s->entry[i];
    struct pack_object *o = &s->object[e->object];
    CHECK(e->state != PACK_ENTRY_FREE);
    chain_remove(&s->by_key, kv_key_hash(&e->key), i);
    if (e->before == PACK_NONE)
        o->first = e->behind;
    else
        s->entry[e->before].behind = e->behind;
    if (e->behind != PACK_NONE) s->entry[e->behind].before = e->before;
    s->n_begin -= e->begins && o->found;
    if (e->state == PACK_ENTRY_READY) kv_events_entry_removed(s->cfg.events, s->cfg.place, (uint64_t)i, &e->key);
    e->state = PACK_ENTRY_FREE;
    e->next = s->free_entry;
    s->free_entry = i;
    s->n_entry--;
}

/* Blocks that are being written stay until their writes are done. */
uint64_t pack_forget_object(struct pack_store *s, int32_t object)
{
    uint64_t n = 0;
    for (int32_t i = s->object[object].first, next; i != PACK_NONE; i = next) {
        next = s->entry[i].behind;
        if (s->entry[i].state != PACK_ENTRY_READY) continue;
        pack_forget(s, i);
        n++;
    }
    return n;
}

int32_t pack_object_take(struct pack_store *s)
{
    for (uint32_t n = 0; n < s->n_object_max; n++) {
        uint32_t i = s->object_at;
        s->object_at = (i + 1) % s->n_object_max;
        if (s->object[i].state != PACK_FREE) continue;
        s->object[i] = (struct pack_object){ .first = PACK_NONE, .buffer = PACK_NONE };
        s->n_object++;
        return (int32_t)i;
    }
    return PACK_NONE;
}

enum status pack_index_check(const struct pack_store *s)
{
    uint32_t n = chain_count(&s->by_key, s->n_entry), n_linked = 0, n_object = 0, n_begin = 0;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < s->n_object_max; i++) {
        const struct pack_object *o = &s->object[i];
        if (o->state == PACK_FREE) continue;
        n_object++;
        if (o->state >= PACK_PUTTING) bytes += o->bytes;
        for (int32_t k = o->first; k != PACK_NONE && n_linked <= s->n_entry; k = s->entry[k].behind) {
            n_linked++;
            n_begin += s->entry[k].begins && o->found;
            if (s->entry[k].object != (int32_t)i || s->entry[k].state == PACK_ENTRY_FREE) n_linked = s->n_entry + 1;
        }
    }
    if (n == s->n_entry && n_linked == s->n_entry && n_object == s->n_object && bytes == s->bytes &&
        n_begin == s->n_begin)
        return ST_OK;
    LOG_ERROR("kv: %s: the index is not what it says: %u of %u entries, %u in objects, %u of %u objects", s->cfg.where,
              n, s->n_entry, n_linked, n_object, s->n_object);
    return ST_INVALID;
}
