#include "kvcache/events/events_impl.h"
#include "base/check.h"
#include "kvcache/device/block.h"
#include "kvcache/host.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SLICE = 512,      /* blocks that a turn tells anew */
    LOOK = 16384,     /* positions that it looks at for them */
    SYNC_US = 1000,   /* between two slices while the engine has nothing else to do */
    QUEUE_MIN = 1024, /* the longest path that is told at once fits */
};

static void count(_Atomic uint64_t *n) /* one writer */
{
    atomic_store_explicit(n, atomic_load_explicit(n, memory_order_relaxed) + 1, memory_order_relaxed);
}

static void lose(struct kv_events *e)
{
    if (e->state == EVENTS_SYNC || e->state == EVENTS_LIVE) e->state = EVENTS_LOST;
}

static struct event *push(struct kv_events *e, enum event_kind kind, enum kv_medium medium, const struct kv_key *key)
{
    struct event *v = event_queue_put(&e->queue, kind, medium, key);
    if (!v) {
        count(&e->n_dropped);
        lose(e);
        return NULL;
    }
    count(&e->n_told[kind]);
    return v;
}

/* True while changes are told. Counts what is left out because of a loss. */
static bool tells(struct kv_events *e)
{
    if (e->state == EVENTS_LOST) count(&e->n_dropped);
    return e->state == EVENTS_SYNC || e->state == EVENTS_LIVE;
}

/* ---- adapters */

static uint16_t name_number(struct event_adapters *a, const char *name)
{
    uint32_t i = 0;
    while (i < a->n_name && strcmp(a->name[i], name) != 0) i++;
    if (i == EVENTS_NAMES || strlen(name) >= EVENTS_NAME_BYTES) return 0;
    if (i == a->n_name) snprintf(a->name[a->n_name++], EVENTS_NAME_BYTES, "%s", name);
    return (uint16_t)(i + 1);
}

static uint32_t salts_kept(const struct event_adapters *a)
{
    return a->n_salt < EVENTS_SALTS ? a->n_salt : EVENTS_SALTS;
}

static uint16_t adapter_of_salt(struct event_adapters *a, struct kv_salt salt)
{
    uint32_t n = salts_kept(a);
    if (!kv_salt_adapts(salt)) return 0;
    for (uint32_t k = 0; k < n; k++) { /* neighbours in time are of one prompt */
        uint32_t i = (a->last + k) % n;
        if (a->salt[i].salt.lo != salt.lo || a->salt[i].salt.hi != salt.hi) continue;
        a->last = i;
        return a->salt[i].adapter;
    }
    return 0;
}

static uint16_t adapter_of_root(const struct event_adapters *a, const struct kv_key *root)
{
    for (uint32_t i = 0; i < salts_kept(a); i++)
        if (kv_key_equal(&a->salt[i].root, root)) return a->salt[i].adapter;
    return 0;
}

void kv_events_adapter(struct kv_events *e, struct kv_salt salt, const char *name)
{
    if (!e || adapter_of_salt(e->adapters, salt)) return;
    struct event_adapters *a = e->adapters;
    uint16_t               number = name_number(a, name);
    if (!number) return;
    a->salt[a->n_salt++ % EVENTS_SALTS] =
        (struct event_salt){ .salt = salt, .root = kv_key_root(&e->of.fingerprint, salt), .adapter = number };
}

/* ---- the device */

static bool tell_block(struct kv_events *e, uint32_t block)
{
    const struct kv *kv = e->of.kv;
    struct kv_salt   salt = kv_block_salt(kv, block);
    uint32_t         parent = kv_block_parent(kv, block);
    struct event    *v;
    e->dev_told[block] = block >= e->of.n_block;
    if (e->dev_told[block]) return true; /* a guest */
    if (!(v = push(e, EVENT_STORED, KV_MEDIUM_GPU, &e->dev_key[block]))) return false;
    v->has_tokens = true;
    v->first = parent == KV_NONE;
    v->salted = salt.lo || salt.hi;
    v->adapter = adapter_of_salt(e->adapters, salt);
    if (!v->first) v->parent = e->dev_key[parent];
    memcpy(v->ids, kv_block_ids(kv, block), e->of.block_tokens * sizeof *v->ids);
    e->dev_told[block] = true;
    return true;
}

/* The block, after those of its path that were not told yet. */
static void tell_path(struct kv_events *e, uint32_t block)
{
    uint32_t n = 0;
    for (uint32_t b = block; b != KV_NONE && !e->dev_told[b]; b = kv_block_parent(e->of.kv, b)) e->path[n++] = b;
    while (n > 0 && tell_block(e, e->path[n - 1])) n--;
}

static void block_stored(void *ctx, uint32_t block)
{
    struct kv_events *e = ctx;
    const struct kv  *kv = e->of.kv;
    uint32_t          parent = kv_block_parent(kv, block);
    struct kv_salt    salt = kv_block_salt(kv, block);
    struct kv_key     above = e->root;
    if (parent != KV_NONE)
        above = e->dev_key[parent];
    else if (salt.lo || salt.hi)
        above = kv_key_root(&e->of.fingerprint, salt);
    e->dev_key[block] = kv_key_next(&above, kv_block_ids(kv, block), e->of.block_tokens);
    e->dev_told[block] = false;
    if (tells(e)) tell_path(e, block);
}

static void block_removed(void *ctx, uint32_t block)
{
    struct kv_events *e = ctx;
    if (tells(e) && e->dev_told[block] && block < e->of.n_block)
        push(e, EVENT_REMOVED, KV_MEDIUM_GPU, &e->dev_key[block]);
    e->dev_told[block] = false;
}

struct kv_watch kv_events_watch(struct kv_events *e)
{
    return e ? (struct kv_watch){ .ctx = e, .stored = block_stored, .removed = block_removed } : (struct kv_watch){ 0 };
}

/* ---- the host */

/* Pieces of a window's blocks are part of no path that a router knows: only blocks of the first pool are told. */
static bool tells_of(struct kv_events *e, const struct kv_key *key) { return tells(e) && !kv_key_is_piece(key); }

static bool slot_is_ready(const struct kv_events *e, int32_t i)
{
    return i != SLOT_NONE && e->host->slot[i].state == SLOT_READY;
}

/* The adapter that computed a block of the host: that of the block before it, which was told before if it is there. */
static uint16_t adapter_of_slot(const struct kv_events *e, const struct kv_record *r)
{
    int32_t before = kv_record_begins(r) ? SLOT_NONE : slot_find(e->host, &r->parent);
    if (slot_is_ready(e, before) && e->slot_told[before]) return e->slot_adapter[before];
    return adapter_of_root(e->adapters, &r->parent);
}

/* What the record in slot i says of its block, without the key of its tenant: whether that has a salt follows from the
 * block's own key. */
static void describe(struct kv_events *e, struct event *v, int32_t i)
{
    const struct kv_record *r = kv_record_of(slot_page(e->host, i));
    v->has_tokens = true;
    v->first = kv_record_begins(r);
    v->parent = r->parent;
    memcpy(v->ids, r->ids, e->of.block_tokens * sizeof *v->ids);
    v->adapter = e->slot_adapter[i] = adapter_of_slot(e, r);
    if (!v->first && v->adapter && adapter_of_root(e->adapters, &r->parent)) { /* the first, though no record says so */
        v->first = v->salted = true;
        return;
    }
    if (!v->first) return;
    struct kv_key plain = kv_key_next(&e->root, v->ids, e->of.block_tokens);
    v->salted = !kv_key_equal(&plain, &v->key);
}

static bool tell_slot(struct kv_events *e, int32_t i)
{
    struct event *v = push(e, EVENT_STORED, KV_MEDIUM_CPU, &e->host->slot[i].key);
    if (!v) return false;
    describe(e, v, i);
    e->slot_told[i] = true;
    return true;
}

/* The slot of the block before that of slot i; SLOT_NONE: the host has none. */
static int32_t slot_before(const struct kv_events *e, int32_t i)
{
    const struct kv_record *r = kv_record_of(slot_page(e->host, i));
    return kv_record_begins(r) ? SLOT_NONE : slot_find(e->host, &r->parent);
}

/* The slot, and then those that have waited for it. */
static void tell_from(struct kv_events *e, int32_t i)
{
    uint32_t n = 0;
    e->slot_path[n++] = i;
    while (n > 0 && tell_slot(e, e->slot_path[n - 1])) {
        i = e->slot_path[--n];
        wait_end(&e->wait, i);
        for (int32_t k; (k = wait_take(&e->wait, i)) != SLOT_NONE;) e->slot_path[n++] = k;
    }
}

/* A reader has to know the block before, or the tokens of this one lead nowhere. Blocks of a load become READY in any
 * order: those before which one is on its way wait for it, each for the one before it. */
static void tell_slots(struct kv_events *e, int32_t i)
{
    if (slot_is_ready(e, i) && kv_key_is_piece(&e->host->slot[i].key)) return;
    for (uint32_t n = 0; slot_is_ready(e, i) && !e->slot_told[i] && n < e->host->n_slot; n++) {
        int32_t before = slot_before(e, i);
        if (before == SLOT_NONE || (slot_is_ready(e, before) && e->slot_told[before])) {
            tell_from(e, i);
            return;
        }
        wait_for(&e->wait, i, before);
        i = before;
    }
}

static void slot_stored(void *ctx, int32_t slot)
{
    struct kv_events *e = ctx;
    if (tells(e)) tell_slots(e, slot);
}

static void slot_removed(void *ctx, int32_t slot)
{
    struct kv_events *e = ctx;
    bool              told = tells(e);
    if (told && e->slot_told[slot]) push(e, EVENT_REMOVED, KV_MEDIUM_CPU, &e->host->slot[slot].key);
    e->slot_told[slot] = false;
    wait_end(&e->wait, slot);
    for (int32_t k; (k = wait_take(&e->wait, slot)) != SLOT_NONE;) /* it does not come */
        if (told) tell_from(e, k);
}

enum status kv_events_host(struct kv_events *e, struct kv_host *host)
{
    if (!e) return ST_OK;
    lose(e);
    free(e->slot_told);
    free(e->slot_path);
    free(e->slot_adapter);
    wait_free(&e->wait);
    e->slot_told = NULL;
    e->slot_path = NULL;
    e->slot_adapter = NULL;
    e->host = host;
    if (!host) return ST_OK;
    e->slot_told = calloc(host->n_slot, sizeof *e->slot_told);
    e->slot_path = calloc(host->n_slot, sizeof *e->slot_path);
    e->slot_adapter = calloc(host->n_slot, sizeof *e->slot_adapter);
    if (!e->slot_told || !e->slot_path || !e->slot_adapter || wait_init(&e->wait, host->n_slot)) return ST_NOMEM;
    host->watch = (struct host_watch){ .ctx = e, .stored = slot_stored, .removed = slot_removed };
    return ST_OK;
}

/* ---- places below the host */

void kv_events_places(struct kv_events *e, const struct kv_events_below *below)
{
    if (!e) return;
    lose(e);
    e->below = below ? *below : (struct kv_events_below){ 0 };
}

static bool entry_was_told(const struct kv_events *e, uint32_t i, uint64_t at)
{
    if (e->state == EVENTS_LIVE || e->telling == TELL_NONE) return true;
    return e->telling == TELL_BELOW && (i < e->tell_place || (i == e->tell_place && at < e->tell_at));
}

/* A place among the first n but i has the block: all of them are one tier. */
static bool lies_elsewhere(const struct kv_events *e, uint32_t i, uint32_t n, const struct kv_key *key)
{
    for (uint32_t k = 0; k < n; k++)
        if (k != i && e->below.has(e->below.ctx, k, key)) return true;
    return false;
}

/* The tokens are known as long as the host has the block too. */
static void tell_entry(struct kv_events *e, const struct kv_key *key)
{
    struct event *v = push(e, EVENT_STORED, KV_MEDIUM_STORAGE, key);
    int32_t       slot = v && e->host ? slot_find(e->host, key) : SLOT_NONE;
    if (v && slot_is_ready(e, slot)) describe(e, v, slot);
}

void kv_events_entry_stored(struct kv_events *e, uint32_t i, uint64_t at, const struct kv_key *key)
{
    if (!e || !tells_of(e, key) || !entry_was_told(e, i, at)) return;
    if (!lies_elsewhere(e, i, e->below.n, key)) tell_entry(e, key);
}

void kv_events_entry_removed(struct kv_events *e, uint32_t i, uint64_t at, const struct kv_key *key)
{
    if (!e || !tells_of(e, key) || !entry_was_told(e, i, at)) return;
    if (!lies_elsewhere(e, i, e->below.n, key)) push(e, EVENT_REMOVED, KV_MEDIUM_STORAGE, key);
}

void kv_events_entry(struct kv_events *e, uint32_t i, const struct kv_key *key)
{
    if (e->state == EVENTS_SYNC && !kv_key_is_piece(key) && !lies_elsewhere(e, i, i, key)) tell_entry(e, key);
}

/* ---- telling everything */

static void begin_sync(struct kv_events *e, bool gap)
{
    memset(e->dev_told, 0, ((size_t)e->of.n_block + e->of.n_guest) * sizeof *e->dev_told);
    if (e->slot_told) memset(e->slot_told, 0, e->host->n_slot * sizeof *e->slot_told);
    wait_clear(&e->wait);
    e->telling = TELL_DEVICE;
    e->tell_place = 0;
    e->tell_at = 0;
    e->state = EVENTS_SYNC;
    struct event *v = push(e, EVENT_CLEARED, KV_MEDIUM_GPU, NULL);
    if (v) v->gap = gap;
}

static void tell_next(struct kv_events *e)
{
    e->telling++;
    e->tell_at = 0;
}

/* One position. */
static void tell_one(struct kv_events *e)
{
    uint64_t at = e->tell_at++;
    switch (e->telling) {
    case TELL_DEVICE:
        if (at >= e->of.n_block)
            tell_next(e);
        else if (kv_block_gen(e->of.kv, (uint32_t)at))
            tell_path(e, (uint32_t)at);
        break;
    case TELL_HOST:
        if (!e->host || at >= e->host->n_slot)
            tell_next(e);
        else
            tell_slots(e, (int32_t)at);
        break;
    case TELL_BELOW:
        if (e->tell_place >= e->below.n) {
            tell_next(e);
            break;
        }
        e->tell_at = e->below.each(e->below.ctx, e->tell_place, at);
        if (e->tell_at == UINT64_MAX) {
            e->tell_place++;
            e->tell_at = 0;
        }
        break;
    case TELL_NONE: break;
    }
}

/* The other half of the queue is for what changes meanwhile. */
static void sync_turn(struct kv_events *e)
{
    uint64_t begin = e->queue.at;
    for (uint32_t n = 0; n < LOOK && e->state == EVENTS_SYNC; n++) {
        if (e->telling == TELL_NONE) {
            e->state = EVENTS_LIVE;
            return;
        }
        if (e->queue.at - begin >= SLICE || event_queue_room(&e->queue) <= e->queue.n_item / 2) return;
        tell_one(e);
    }
}

void kv_events_turn(struct kv_events *e)
{
    uint64_t epoch = atomic_load(&e->epoch);
    if (epoch != e->epoch_seen) {
        e->epoch_seen = epoch;
        e->state = EVENTS_AWAY;
        if (epoch & 1) begin_sync(e, false);
    } else if (e->state == EVENTS_LOST && event_queue_room(&e->queue) == e->queue.n_item) {
        begin_sync(e, true);
    }
    if (e->state == EVENTS_SYNC) sync_turn(e);
    event_queue_publish(&e->queue);
}

int64_t kv_events_sleep_us(const struct kv_events *e)
{
    return e->state == EVENTS_SYNC || e->state == EVENTS_LOST ? SYNC_US : -1;
}

/* ---- life */

enum status events_create(const struct kv_events_cfg *cfg, struct kv_events **e_out)
{
    struct kv_events *e = calloc(1, sizeof *e);
    if (!e) return ST_NOMEM;
    e->cfg = *cfg;
    e->queue.wake_fd = -1;
    atomic_store(&e->speak, true);
    *e_out = e;
    return ST_OK;
}

enum status events_begin(struct kv_events *e, const struct kv_events_of *of)
{
    CHECK(!e->queue.item && of->block_tokens <= KV_RECORD_TOKENS_MAX);
    e->of = *of;
    e->root = kv_key_root(&of->fingerprint, (struct kv_salt){ 0, 0 });
    size_t   n = (size_t)of->n_block + of->n_guest;
    uint64_t n_item = QUEUE_MIN;
    while (n_item < e->cfg.queue_max) n_item *= 2;
    enum status st = event_queue_init(&e->queue, n_item, of->block_tokens);
    e->dev_key = calloc(n, sizeof *e->dev_key);
    e->dev_told = calloc(n, sizeof *e->dev_told);
    e->path = calloc(n, sizeof *e->path);
    e->adapters = calloc(1, sizeof *e->adapters);
    return !st && e->dev_key && e->dev_told && e->path && e->adapters ? ST_OK : ST_NOMEM;
}

void events_destroy(struct kv_events *e)
{
    event_queue_close(&e->queue);
    free(e->dev_key);
    free(e->dev_told);
    free(e->path);
    free(e->slot_told);
    free(e->slot_path);
    free(e->slot_adapter);
    wait_free(&e->wait);
    free(e->adapters);
    free(e);
}

enum status kv_events_open(const struct kv_events_cfg *cfg, struct kv_events **e_out, char *err, size_t err_bytes)
{
    enum status st = events_create(cfg, e_out);
    if (st) {
        snprintf(err, err_bytes, "no memory for KV events");
        return st;
    }
    if (!(st = publish_open(*e_out, err, err_bytes))) return ST_OK;
    events_destroy(*e_out);
    *e_out = NULL;
    return st;
}

enum status kv_events_start(struct kv_events *e, const struct kv_events_of *of)
{
    enum status st = events_begin(e, of);
    return st ? st : publish_start(e);
}

void kv_events_close(struct kv_events *e)
{
    if (!e) return;
    publish_close(e);
    events_destroy(e);
}

void kv_events_speak(struct kv_events *e, bool speak)
{
    atomic_store(&e->speak, speak);
    if (e->started) event_queue_wake(&e->queue);
}

void kv_events_stats(const struct kv_events *e, struct kv_events_stats *out)
{
    *out = (struct kv_events_stats){
        .n_stored = atomic_load_explicit(&e->n_told[EVENT_STORED], memory_order_relaxed),
        .n_removed = atomic_load_explicit(&e->n_told[EVENT_REMOVED], memory_order_relaxed),
        .n_cleared = atomic_load_explicit(&e->n_told[EVENT_CLEARED], memory_order_relaxed),
        .n_batch = atomic_load_explicit(&e->n_batch, memory_order_relaxed),
        .n_dropped = atomic_load_explicit(&e->n_dropped, memory_order_relaxed),
        .n_slow = atomic_load_explicit(&e->n_slow, memory_order_relaxed),
        .n_replay = atomic_load_explicit(&e->n_replay, memory_order_relaxed),
        .open = atomic_load_explicit(&e->epoch, memory_order_relaxed) & 1,
    };
}
