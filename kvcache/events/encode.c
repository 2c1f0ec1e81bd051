/* encode: a batch of events as vLLM writes it: [time, [event, ...], rank]. Neighbours of one kind and one tier become
 * one event: stored blocks if each continues the one before it. An event is a map with its name under "type", or an
 * array that begins with its name. */
#include "base/msgpack.h"
#include "kvcache/events/events_impl.h"
#include <stdio.h>
#include <string.h>

static const char *const medium_name[KV_MEDIA] = { "GPU", "CPU", "STORAGE" };

static bool continues(const struct event *a, const struct event *b)
{
    if (a->kind != b->kind || a->medium != b->medium || a->kind == EVENT_CLEARED) return false;
    if (a->kind == EVENT_REMOVED) return true;
    if (a->has_tokens != b->has_tokens || a->adapter != b->adapter) return false;
    return !a->has_tokens || (!b->first && kv_key_equal(&a->key, &b->parent));
}

/* The number of events from at on that become one. */
static uint32_t run_of(const struct event *const *event, uint32_t n, uint32_t at)
{
    uint32_t end = at + 1;
    while (end < n && continues(event[end - 1], event[end])) end++;
    return end - at;
}

/* The last eight bytes, as those who get all 32 shorten them. */
static uint64_t hash_of(const struct kv_key *k)
{
    uint64_t v = 0;
    for (int i = 24; i < 32; i++) v = v << 8 | k->b[i];
    return v;
}

static void put_hash(struct msgpack *m, const struct event_form *f, const struct kv_key *k)
{
    if (f->hash_bytes)
        msgpack_bytes(m, k->b, sizeof k->b);
    else
        msgpack_uint(m, hash_of(k));
}

static void put_hashes(struct msgpack *m, const struct event_form *f, const struct event *const *e, uint32_t n)
{
    msgpack_array(m, n);
    for (uint32_t i = 0; i < n; i++) put_hash(m, f, &e[i]->key);
}

static void put_parent(struct msgpack *m, const struct event_form *f, const struct event *e)
{
    if (e->has_tokens && !e->first)
        put_hash(m, f, &e->parent);
    else
        msgpack_nil(m);
}

static void put_tokens(struct msgpack *m, const struct event_form *f, const struct event *const *e, uint32_t n)
{
    bool any = e[0]->has_tokens;
    msgpack_array(m, any ? n * f->block_tokens : 0);
    for (uint32_t i = 0; any && i < n; i++)
        for (uint32_t k = 0; k < f->block_tokens; k++) msgpack_uint(m, e[i]->ids[k]);
}

/* One element for each block, as vLLM has it: the first block of a salted prompt names what sets it apart. The salt is
 * a tenant's own, so the block's hash stands for it. */
static void put_extra(struct msgpack *m, const struct event *const *e, uint32_t n)
{
    char name[17];
    snprintf(name, sizeof name, "%016llx", (unsigned long long)hash_of(&e[0]->key));
    msgpack_array(m, n);
    msgpack_array(m, 1);
    msgpack_text(m, name);
    for (uint32_t i = 1; i < n; i++) msgpack_nil(m);
}

static void put_lora_id(struct msgpack *m, const struct event *e)
{
    if (e->adapter)
        msgpack_uint(m, e->adapter);
    else
        msgpack_nil(m);
}

static void put_lora_name(struct msgpack *m, const struct event_form *f, const struct event *e)
{
    if (e->adapter)
        msgpack_text(m, f->adapter[e->adapter - 1]);
    else
        msgpack_nil(m);
}

static void put_stored_map(struct msgpack *m, const struct event_form *f, const struct event *const *e, uint32_t n)
{
    bool salted = e[0]->first && e[0]->salted;
    msgpack_map(m, 8 + salted);
    msgpack_text(m, "type");
    msgpack_text(m, "BlockStored");
    msgpack_text(m, "block_hashes");
    put_hashes(m, f, e, n);
    msgpack_text(m, "parent_block_hash");
    put_parent(m, f, e[0]);
    msgpack_text(m, "token_ids");
    put_tokens(m, f, e, n);
    msgpack_text(m, "block_size");
    msgpack_uint(m, f->block_tokens);
    msgpack_text(m, "lora_id");
    put_lora_id(m, e[0]);
    msgpack_text(m, "medium");
    msgpack_text(m, medium_name[e[0]->medium]);
    msgpack_text(m, "lora_name");
    put_lora_name(m, f, e[0]);
    if (!salted) return;
    msgpack_text(m, "extra_keys");
    put_extra(m, e, n);
}

static void put_stored_array(struct msgpack *m, const struct event_form *f, const struct event *const *e, uint32_t n)
{
    bool salted = e[0]->first && e[0]->salted;
    msgpack_array(m, 8 + salted);
    msgpack_text(m, "BlockStored");
    put_hashes(m, f, e, n);
    put_parent(m, f, e[0]);
    put_tokens(m, f, e, n);
    msgpack_uint(m, f->block_tokens);
    put_lora_id(m, e[0]);
    msgpack_text(m, medium_name[e[0]->medium]);
    put_lora_name(m, f, e[0]);
    if (salted) put_extra(m, e, n);
}

static void put_removed(struct msgpack *m, const struct event_form *f, const struct event *const *e, uint32_t n)
{
    if (f->as_array) {
        msgpack_array(m, 3);
        msgpack_text(m, "BlockRemoved");
        put_hashes(m, f, e, n);
        msgpack_text(m, medium_name[e[0]->medium]);
        return;
    }
    msgpack_map(m, 3);
    msgpack_text(m, "type");
    msgpack_text(m, "BlockRemoved");
    msgpack_text(m, "block_hashes");
    put_hashes(m, f, e, n);
    msgpack_text(m, "medium");
    msgpack_text(m, medium_name[e[0]->medium]);
}

static void put_cleared(struct msgpack *m, const struct event_form *f)
{
    if (f->as_array) {
        msgpack_array(m, 1);
    } else {
        msgpack_map(m, 1);
        msgpack_text(m, "type");
    }
    msgpack_text(m, "AllBlocksCleared");
}

size_t events_encoded_max(uint32_t n, uint32_t block_tokens)
{
    enum {
        BATCH = 32,
        NAMES = 200 + EVENTS_NAME_BYTES,
        HASH = 34,
        TOKEN = 5
    }; /* NAMES: all of an event but its hashes and tokens */
    return BATCH + (size_t)n * (NAMES + 2 * HASH + (size_t)TOKEN * block_tokens);
}

size_t events_encode(const struct event_form *f, const struct event *const *event, uint32_t n, unsigned char *out,
                     size_t bytes)
{
    struct msgpack m = { .at = out, .end = out + bytes };
    uint32_t       n_run = 0;
    for (uint32_t i = 0; i < n; i += run_of(event, n, i)) n_run++;
    msgpack_array(&m, 3);
    msgpack_double(&m, f->time_s);
    msgpack_array(&m, n_run);
    for (uint32_t i = 0, run; i < n; i += run) {
        run = run_of(event, n, i);
        switch ((enum event_kind)event[i]->kind) {
        case EVENT_STORED:
            if (f->as_array)
                put_stored_array(&m, f, event + i, run);
            else
                put_stored_map(&m, f, event + i, run);
            break;
        case EVENT_REMOVED: put_removed(&m, f, event + i, run); break;
        case EVENT_CLEARED: put_cleared(&m, f); break;
        }
    }
    msgpack_uint(&m, f->rank);
    return m.full ? 0 : (size_t)(m.at - out);
}
