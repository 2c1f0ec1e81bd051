#include "kvcache/host.h"
#include "base/check.h"
#include "base/log.h"
#include "kvcache/slab.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SKETCH_MAX = 15, SKETCH_MIN = 64, SKETCH_PER_SLOT = 4, SLOTS_MIN = 2 };

/* ---- life */

void kv_host_free_again(struct kv_host *h)
{
    h->free = SLOT_NONE;
    h->n_free = 0;
    for (uint32_t i = h->n_slot; i-- > 0;) {
        if (h->slot[i].state != SLOT_FREE) continue;
        h->slot[i].next = h->free;
        h->free = (int32_t)i;
        h->n_free++;
    }
}

enum status kv_host_init(struct kv_host *h, const struct kv *kv, uint32_t n_slot, uint64_t stride, uint32_t n_flight)
{
    *h = (struct kv_host){
        .kv = kv, .slab_fd = -1, .stride = stride, .n_slot = n_slot, .n_flight_max = n_flight, .away = SLOT_NONE
    };
    h->slot = calloc(n_slot, sizeof *h->slot);
    if (!h->slot || chain_init(&h->by_key, n_slot, &h->slot[0].next, sizeof *h->slot)) return ST_NOMEM;
    h->sketch_n = SKETCH_MIN;
    while (h->sketch_n < SKETCH_PER_SLOT * (uint64_t)n_slot) h->sketch_n *= 2;
    h->sketch = calloc(SKETCH_ROWS, h->sketch_n);
    h->flight = calloc(n_flight, sizeof *h->flight);
    h->free_flight = calloc(n_flight, sizeof *h->free_flight);
    if (!h->sketch || !h->flight || !h->free_flight || order_init(h)) return ST_NOMEM;
    kv_host_free_again(h);
    for (uint32_t i = n_flight; i-- > 0;) h->free_flight[h->n_free_flight++] = i;
    return ST_OK;
}

enum status kv_host_map(struct kv_host *h)
{
    uint64_t bytes = h->n_slot * h->stride;
    void    *p = NULL;
    h->slab_fd = memfd_create("spillway-kv", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (h->slab_fd < 0 || ftruncate(h->slab_fd, (off_t)bytes) || slab_map(h->slab_fd, bytes, &p)) return ST_NOMEM;
    (void)fcntl(h->slab_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW); /* the next process asks for that */
    h->slab = p;
    return ST_OK;
}

void kv_host_close(struct kv_host *h)
{
    if (h->slab) munmap(h->slab, h->n_slot * h->stride);
    if (h->slab_fd >= 0) close(h->slab_fd);
    order_close(h);
    chain_free(&h->by_key);
    free(h->slot);
    free(h->sketch);
    free(h->flight);
    free(h->free_flight);
}

/* ---- slots */

int32_t slot_find(const struct kv_host *h, const struct kv_key *key)
{
    int32_t i = chain_first(&h->by_key, kv_key_hash(key));
    while (i != SLOT_NONE && !kv_key_equal(&h->slot[i].key, key)) i = chain_next(&h->by_key, i);
    return i;
}

void slot_drop(struct kv_host *h, int32_t i)
{
    struct host_slot *s = &h->slot[i];
    CHECK(s->state != SLOT_FREE && s->readers == 0);
    if (h->watch.removed) h->watch.removed(h->watch.ctx, i);
    chain_remove(&h->by_key, kv_key_hash(&s->key), i);
    if (s->state == SLOT_READY) {
        order_remove(h, i);
        h->n_ready--;
    }
    *s = (struct host_slot){ .next = h->free, .state = SLOT_FREE };
    h->free = i;
    h->n_free++;
}

int32_t slot_take(struct kv_host *h, const struct kv_key *key)
{
    if (h->free == SLOT_NONE) {
        int32_t v = slot_victim(h);
        if (v == SLOT_NONE || (h->keep && !h->slot[v].store && !h->slot[v].hold.memory_only))
            return SLOT_NONE; /* it must be written before its slot is free */
        int32_t then = h->slot[v].newer;
        if (then != SLOT_NONE) chain_fetch(&h->by_key, kv_key_hash(&h->slot[then].key)); /* the next one to go */
        h->evicted_why[kv_evict_why(h->slot[v].class)]++;
        slot_drop(h, v);
        h->n_evicted++;
    }
    int32_t           i = h->free;
    struct host_slot *s = &h->slot[i];
    h->free = s->next;
    h->n_free--;
    h->stirred = true;
    *s = (struct host_slot){ .key = *key, .newer = SLOT_NONE, .older = SLOT_NONE, .state = SLOT_FILLING };
    chain_add(&h->by_key, kv_key_hash(key), i);
    return i;
}

void slot_ready(struct kv_host *h, int32_t i, struct digest payload)
{
    struct host_slot *s = &h->slot[i];
    CHECK(s->state == SLOT_FILLING);
    s->payload = payload;
    s->state = SLOT_READY;
    h->n_ready++;
    h->stirred = true;
    h->n_stir++;
    order_add(h, i);
    if (h->watch.stored) h->watch.stored(h->watch.ctx, i);
}

/* A slot of the previous process. The caller builds the free list anew afterwards. */
void slot_adopt(struct kv_host *h, int32_t i, const struct kv_key *key, struct digest payload, struct kv_hold hold,
                uint8_t store)
{
    struct host_slot *s = &h->slot[i];
    CHECK(s->state == SLOT_FREE);
    *s = (struct host_slot){ .key = *key, .state = SLOT_FILLING, .store = store, .hold = hold };
    chain_add(&h->by_key, kv_key_hash(key), i);
    slot_ready(h, i, payload);
}

void slot_unread(struct kv_host *h, int32_t i)
{
    struct host_slot *s = &h->slot[i];
    CHECK(s->readers > 0);
    h->stirred = true;
    h->n_stir++;
    if (--s->readers == 0 && s->doomed) slot_drop(h, i);
}

void slot_lease(struct kv_host *h, int32_t i)
{
    struct host_slot *s = &h->slot[i];
    CHECK(s->state == SLOT_READY && s->lease == LEASE_NONE);
    s->lease = LEASE_CHECKING;
    s->readers++;
    h->n_lease++;
}

void slot_release(struct kv_host *h, int32_t i)
{
    CHECK(h->slot[i].lease != LEASE_NONE);
    h->slot[i].lease = LEASE_NONE;
    h->n_lease--;
    slot_unread(h, i);
}

bool slot_give_back(struct kv_host *h)
{
    if (h->n_slot - h->n_away <= SLOTS_MIN) return false;
    if (h->free == SLOT_NONE) {
        int32_t v = slot_victim(h);
        if (v == SLOT_NONE) return false;
        slot_drop(h, v);
        h->n_evicted++;
        h->evicted_why[KV_EVICT_PRESSURE]++;
        CHECK(h->free == v);
    }
    int32_t i = h->free;
    h->free = h->slot[i].next;
    h->n_free--;
    if (fallocate(h->slab_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)slot_off(h, i), (off_t)h->stride))
        LOG_WARN_LIMITED("kv: memory of the host's tier cannot be given back: %s", strerror(errno));
    h->slot[i] = (struct host_slot){ .next = h->away, .state = SLOT_AWAY };
    h->away = i;
    h->n_away++;
    return true;
}

void slot_return(struct kv_host *h)
{
    int32_t i = h->away;
    CHECK(i != SLOT_NONE);
    h->away = h->slot[i].next;
    h->n_away--;
    h->slot[i] = (struct host_slot){ .next = h->free, .state = SLOT_FREE };
    h->free = i;
    h->n_free++;
}

/* ---- transfers in flight */

struct host_flight *flight_new(struct kv_host *h, enum flight_kind kind)
{
    if (!h->n_free_flight) return NULL;
    struct host_flight *f = &h->flight[h->free_flight[--h->n_free_flight]];
    *f = (struct host_flight){ .kind = kind, .used = true, .slot = SLOT_NONE };
    return f;
}
void flight_free(struct kv_host *h, struct host_flight *f)
{
    f->used = false;
    h->free_flight[h->n_free_flight++] = (uint32_t)(f - h->flight);
}

/* ---- number of offers of a key: a count-min sketch with conservative update (Estan and Varghese 2002), aged as in
 * TinyLFU (Einziger et al. 2017) */

static uint32_t sketch_at(const struct kv_host *h, const struct kv_key *k, uint32_t row)
{
    uint32_t hash;
    memcpy(&hash, k->b + 8 + 4 * row, 4);
    return row * h->sketch_n + (hash & (h->sketch_n - 1));
}
uint32_t sketch_get(const struct kv_host *h, const struct kv_key *key)
{
    uint32_t n = SKETCH_MAX;
    for (uint32_t r = 0; r < SKETCH_ROWS; r++)
        n = h->sketch[sketch_at(h, key, r)] < n ? h->sketch[sketch_at(h, key, r)] : n;
    return n;
}
uint32_t sketch_add(struct kv_host *h, const struct kv_key *key)
{
    uint32_t n = sketch_get(h, key);
    if (n == SKETCH_MAX) return n;
    for (uint32_t r = 0; r < SKETCH_ROWS; r++)
        if (h->sketch[sketch_at(h, key, r)] == n) h->sketch[sketch_at(h, key, r)]++;
    if (++h->sketch_adds >= h->sketch_n) {
        h->sketch_adds = 0;
        for (uint32_t i = 0; i < SKETCH_ROWS * h->sketch_n; i++) h->sketch[i] /= 2;
    }
    return n + 1;
}

/* ---- check */

/* Every count, taken anew by walking over all slots and lists. */
struct count {
    uint32_t free, ready, ordered, linked, used, away, readers, flights, leases;
};

static void count_all(const struct kv_host *h, struct count *c)
{
    *c = (struct count){ .linked = chain_count(&h->by_key, h->n_slot) };
    for (int32_t i = h->free; i != SLOT_NONE && c->free <= h->n_slot; i = h->slot[i].next)
        c->free += h->slot[i].state == SLOT_FREE;
    for (int32_t i = slot_oldest(h); i != SLOT_NONE && c->ordered <= h->n_slot; i = slot_newer(h, i))
        c->ordered += h->slot[i].state == SLOT_READY;
    for (uint32_t i = 0; i < h->n_slot; i++) {
        const struct host_slot *s = &h->slot[i];
        c->ready += s->state == SLOT_READY;
        c->away += s->state == SLOT_AWAY;
        c->used += s->state != SLOT_FREE && s->state != SLOT_AWAY;
        c->readers += s->readers;
        c->leases += s->lease != LEASE_NONE;
    }
    for (uint32_t i = 0; i < h->n_flight_max; i++) {
        const struct host_flight *f = &h->flight[i];
        c->flights += f->used && (f->kind == FLIGHT_COPY || f->kind == FLIGHT_WRITE || f->kind == FLIGHT_MOVE);
    }
}

/* Every key once; readers have something to read. */
static bool slots_are_sound(const struct kv_host *h)
{
    for (uint32_t i = 0; i < h->n_slot; i++) {
        const struct host_slot *s = &h->slot[i];
        if (s->state == SLOT_FREE || s->state == SLOT_AWAY) continue;
        if (slot_find(h, &s->key) != (int32_t)i) return false;
        if (s->state != SLOT_READY && s->readers) return false;
    }
    return true;
}

bool kv_host_check(const struct kv_host *h)
{
    struct count c = { 0 };
    bool         ordered = order_check(h);
    if (ordered) count_all(h, &c);
    bool lists = c.free == h->n_free && c.ready == h->n_ready && c.ordered == c.ready && c.linked == c.used &&
                 c.away == h->n_away;
    if (ordered && lists && c.readers == c.flights + h->n_lent + h->n_kept + h->n_lease && c.leases == h->n_lease &&
        c.free + c.used + c.away == h->n_slot && slots_are_sound(h))
        return true;
    LOG_ERROR(
        "kv: the host's tier is not what it says: %u slots, free %u of %u, ready %u of %u, in order %u, linked %u, readers %u of %u, leases %u of %u",
        h->n_slot, c.free, h->n_free, c.ready, h->n_ready, c.ordered, c.linked, c.readers, c.flights, c.leases,
        h->n_lease);
    return false;
}
