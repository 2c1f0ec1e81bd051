#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "kvcache/slab.h"
#include "kvcache/tier_impl.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { COPIES_MAX = 32, LOAD_MIN_TOKENS = 64, SKETCH_MAX = 15, PROBES = 16, PROBE_US = 60000000 };

/* ---- slots */

int32_t slot_find(const struct kv_tiers *t, const struct kv_key *key)
{
    int32_t i = chain_first(&t->by_key, kv_key_hash(key));
    while (i != SLOT_NONE && !kv_key_equal(&t->slot[i].key, key)) i = chain_next(&t->by_key, i);
    return i;
}

void slot_drop(struct kv_tiers *t, int32_t i)
{
    struct host_slot *s = &t->slot[i];
    CHECK(s->state != SLOT_FREE && s->readers == 0);
    chain_remove(&t->by_key, kv_key_hash(&s->key), i);
    if (s->state == SLOT_READY) {
        order_remove(t, i);
        t->n_ready--;
    }
    *s = (struct host_slot){ .next = t->free, .state = SLOT_FREE };
    t->free = i;
    t->n_free++;
}

int32_t slot_take(struct kv_tiers *t, const struct kv_key *key)
{
    if (t->free == SLOT_NONE) {
        int32_t v = slot_victim(t);
        if (v == SLOT_NONE || (tiers_keep(t) && !t->slot[v].store && !t->slot[v].hold.memory_only))
            return SLOT_NONE; /* it is to be kept, not made room of */
        t->stats.tier[KV_TIER_HOST].evicted_why[kv_evict_why(t->slot[v].class)]++;
        slot_drop(t, v);
        t->stats.tier[KV_TIER_HOST].evicted++;
    }
    int32_t           i = t->free;
    struct host_slot *s = &t->slot[i];
    t->free = s->next;
    t->n_free--;
    t->stirred = true;
    *s = (struct host_slot){ .key = *key, .newer = SLOT_NONE, .older = SLOT_NONE, .state = SLOT_FILLING };
    chain_add(&t->by_key, kv_key_hash(key), i);
    return i;
}

void slot_ready(struct kv_tiers *t, int32_t i, struct digest payload)
{
    struct host_slot *s = &t->slot[i];
    CHECK(s->state == SLOT_FILLING);
    s->payload = payload;
    s->state = SLOT_READY;
    t->n_ready++;
    t->stirred = true;
    order_add(t, i);
}

/* A slot of the process before. The free list is for the caller to make anew. */
void slot_adopt(struct kv_tiers *t, int32_t i, const struct kv_key *key, struct digest payload, struct kv_hold hold, uint8_t store)
{
    struct host_slot *s = &t->slot[i];
    CHECK(s->state == SLOT_FREE);
    *s = (struct host_slot){ .key = *key, .state = SLOT_FILLING, .store = store, .hold = hold };
    chain_add(&t->by_key, kv_key_hash(key), i);
    slot_ready(t, i, payload);
}

void slot_unread(struct kv_tiers *t, int32_t i)
{
    struct host_slot *s = &t->slot[i];
    CHECK(s->readers > 0);
    t->stirred = true;
    if (--s->readers == 0 && s->doomed) slot_drop(t, i);
}

/* ---- keys of the device's blocks */

struct kv_key tier_key(struct kv_tiers *t, struct kv_salt salt, uint32_t block)
{
    const struct kv *kv = t->cfg.kv;
    uint32_t         n = 0;
    for (; block != KV_NONE && t->node_key[block].gen != kv_block_gen(kv, block); block = kv_block_parent(kv, block)) t->path[n++] = block;
    struct kv_key key = block == KV_NONE ? kv_key_root(&t->fingerprint, salt) : t->node_key[block].key;
    while (n > 0) {
        block = t->path[--n];
        key = kv_key_next(&key, kv_block_ids(kv, block), t->cfg.block_tokens);
        tier_key_known(t, block, &key);
    }
    return key;
}

void tier_key_known(struct kv_tiers *t, uint32_t block, const struct kv_key *key)
{
    t->node_key[block] = (struct node_key){ kv_block_gen(t->cfg.kv, block), *key };
}

/* ---- what is on its way */

struct flight *flight_new(struct kv_tiers *t, enum flight_kind kind)
{
    if (!t->n_free_flight) return NULL;
    struct flight *f = &t->flight[t->free_flight[--t->n_free_flight]];
    *f = (struct flight){ .kind = kind, .used = true, .slot = SLOT_NONE };
    return f;
}
void flight_free(struct kv_tiers *t, struct flight *f)
{
    f->used = false;
    t->free_flight[t->n_free_flight++] = (uint32_t)(f - t->flight);
}

/* ---- how often: a count-min sketch with conservative update (Estan and Varghese 2002), aged as in TinyLFU (Einziger et al. 2017) */

static uint32_t sketch_at(const struct kv_tiers *t, const struct kv_key *k, uint32_t row)
{
    uint32_t h;
    memcpy(&h, k->b + 8 + 4 * row, 4);
    return row * t->sketch_n + (h & (t->sketch_n - 1));
}
uint32_t sketch_get(const struct kv_tiers *t, const struct kv_key *key)
{
    uint32_t n = SKETCH_MAX;
    for (uint32_t r = 0; r < SKETCH_ROWS; r++) n = t->sketch[sketch_at(t, key, r)] < n ? t->sketch[sketch_at(t, key, r)] : n;
    return n;
}
uint32_t sketch_add(struct kv_tiers *t, const struct kv_key *key)
{
    uint32_t n = sketch_get(t, key);
    if (n == SKETCH_MAX) return n;
    for (uint32_t r = 0; r < SKETCH_ROWS; r++)
        if (t->sketch[sketch_at(t, key, r)] == n) t->sketch[sketch_at(t, key, r)]++;
    if (++t->sketch_adds >= t->sketch_n) {
        t->sketch_adds = 0;
        for (uint32_t i = 0; i < SKETCH_ROWS * t->sketch_n; i++) t->sketch[i] /= 2;
    }
    return n + 1;
}

/* ---- life */

static enum status map_slab(struct kv_tiers *t, char *err, size_t err_bytes)
{
    uint64_t bytes = t->n_slot * t->stride;
    t->slab_fd = memfd_create("spillway-kv", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    void *p = NULL;
    if (t->slab_fd < 0 || ftruncate(t->slab_fd, (off_t)bytes) || slab_map(t->slab_fd, bytes, &p)) {
        snprintf(err, err_bytes, "the host's KV of %" PRIu64 " bytes cannot be reserved: %s", bytes, strerror(errno));
        return ST_NOMEM;
    }
    (void)fcntl(t->slab_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW); /* the next process asks for that */
    t->slab = p;
    return ST_OK;
}

/* The slab of the server before, or one of our own. */
static enum status take_slab(struct kv_tiers *t, char *err, size_t err_bytes)
{
    uint64_t bytes = t->n_slot * t->stride;
    char     why[160];
    if (t->cfg.hand.given && hand_adopt(t, why, sizeof why)) {
        LOG_WARN("kv: the host's KV of the server before is of no use, starting empty: %s", why);
        close(t->cfg.hand.slab_fd);
    }
    if (t->cfg.hand.given) close(t->cfg.hand.index_fd);
    t->cfg.hand.given = false;
    if (!t->slab && map_slab(t, err, err_bytes)) return ST_NOMEM;
    struct xfer_seg seg = { .kind = XFER_HOST, .base = t->slab, .bytes = bytes };
    return xfer_seg_add(t->cfg.xfer, &seg, &t->slab_seg);
}

static enum status take_memory(struct kv_tiers *t)
{
    const struct kv_tiers_cfg *c = &t->cfg;
    uint32_t                   blocks = c->seq_tokens_max / c->block_tokens + 1;
    t->n_flight_max = c->copies_max * 4 + TIER_FLIGHTS;
    t->slot = calloc(t->n_slot, sizeof *t->slot);
    if (!t->slot || chain_init(&t->by_key, t->n_slot, &t->slot[0].next, sizeof *t->slot)) return ST_NOMEM;
    t->sketch_n = 4 * t->by_key.n_bucket;
    t->sketch = calloc(SKETCH_ROWS, t->sketch_n);
    t->flight = calloc(t->n_flight_max, sizeof *t->flight);
    t->free_flight = calloc(t->n_flight_max, sizeof *t->free_flight);
    t->node_key = calloc(c->n_block, sizeof *t->node_key);
    t->path = calloc(blocks, sizeof *t->path);
    if (!t->sketch || !t->flight || !t->free_flight || !t->node_key || !t->path) return ST_NOMEM;
    t->free = SLOT_NONE;
    if (order_init(t)) return ST_NOMEM;
    for (uint32_t i = t->n_slot; i-- > 0;) {
        t->slot[i].next = t->free;
        t->free = (int32_t)i;
    }
    t->n_free = t->n_slot;
    for (uint32_t i = t->n_flight_max; i-- > 0;) t->free_flight[t->n_free_flight++] = i;
    for (int i = 0; i < KV_LOADS_MAX; i++) {
        struct load *l = &t->load[i];
        l->ids = calloc(c->seq_tokens_max, 4);
        l->state = calloc(blocks, 1);
        l->read = calloc(blocks, sizeof *l->read);
        l->key = calloc(blocks, sizeof *l->key);
        l->ticket = calloc(blocks, sizeof *l->ticket);
        if (!l->ids || !l->state || !l->read || !l->key || !l->ticket) return ST_NOMEM;
    }
    return ST_OK;
}

/* Copies to free blocks of a device that serves nobody yet: the first estimate of what a load costs. */
static void probe(struct kv_tiers *t)
{
    uint32_t n = 0;
    for (; n < PROBES && n < t->n_slot && n < t->cfg.n_block; n++) {
        struct xfer_job j = { .src = t->slab_seg,
                              .dst = t->cfg.dev_seg,
                              .src_off = n * t->stride + KV_RECORD_HEAD,
                              .dst_off = n * t->cfg.block_bytes,
                              .bytes = (uint32_t)t->cfg.block_bytes,
                              .digest_mode = XFER_DIGEST_MAKE }; /* as a load costs one */
        if (xfer_post(t->cfg.xfer, &j, NULL)) break;
    }
    struct xfer_done d;
    for (uint64_t end = clock_us() + PROBE_US; n && clock_us() < end;)
        if (xfer_poll(t->cfg.xfer, &d, 1))
            n--;
        else
            nanosleep(&(struct timespec){ .tv_nsec = 50000 }, NULL);
    CHECK(n == 0); /* a lane that does not move a block in all that time is no lane; in a second it may not have been on */
}

static uint64_t wall_s(void) { return (uint64_t)clock_wall_s(); }

enum status kv_tiers_open(const struct kv_tiers_cfg *cfg, struct kv_tiers **t_out, char *err, size_t err_bytes)
{
    struct kv_tiers *t = calloc(1, sizeof *t);
    if (!t) return ST_NOMEM;
    t->cfg = *cfg;
    t->slab_fd = t->hand.index_fd = -1;
    t->shrink.away = SLOT_NONE;
    if (!t->cfg.clock) t->cfg.clock = clock_us;
    if (!t->cfg.wall) t->cfg.wall = wall_s;
    t->copies_fixed = t->cfg.copies_max > 0;
    if (!t->cfg.copies_max) t->cfg.copies_max = COPIES_MAX;
    if (!t->cfg.load_min_tokens) t->cfg.load_min_tokens = LOAD_MIN_TOKENS > cfg->block_tokens ? LOAD_MIN_TOKENS : cfg->block_tokens;
    t->fingerprint = kv_fingerprint(&cfg->ident);
    t->stride = kv_record_bytes(cfg->block_bytes);
    uint64_t n = cfg->host_bytes / t->stride;
    t->n_slot = n < INT32_MAX ? (uint32_t)n : INT32_MAX;
    enum status st = ST_CONFIG;
    if (t->n_slot < 2) {
        snprintf(err, err_bytes, "the host's KV: %" PRIu64 " bytes hold fewer than two blocks of %" PRIu64, cfg->host_bytes, t->stride);
        goto fail;
    }
    if ((st = take_memory(t))) {
        snprintf(err, err_bytes, "no memory for the index of %u blocks on the host", t->n_slot);
        goto fail;
    }
    if ((st = take_slab(t, err, err_bytes))) goto fail;
    if ((st = audit_open(t))) {
        snprintf(err, err_bytes, "no memory for the audit of blocks");
        goto fail;
    }
    audit_slab_found(t);
    if ((st = below_open(t, err, err_bytes))) goto fail;
    t->stats.tier[KV_TIER_HOST].reserved_bytes = t->n_slot * t->stride;
    kv_pins_set_host(cfg->kv, t->n_slot);
    probe(t);
    *t_out = t;
    return ST_OK;
fail:
    kv_tiers_close(t, 0);
    return st;
}

static void finish(struct kv_tiers *t, const struct xfer_done *d)
{
    struct flight *f = &t->flight[d->cookie];
    CHECK(d->cookie < t->n_flight_max && f->used);
    switch (f->kind) {
    case FLIGHT_OFFER: down_offer_done(t, f, d); break;
    case FLIGHT_WRITE: down_write_done(t, f, d); break;
    case FLIGHT_READ: up_read_done(t, f, d); break;
    case FLIGHT_COPY: up_copy_done(t, f, d); break;
    case FLIGHT_AUDIT_READ: audit_read_done(t, f, d); break;
    case FLIGHT_AUDIT_COPY: audit_copy_done(t, f, d); break;
    }
    flight_free(t, f);
}

/* A step of a large prompt takes a GPU 200 ms, in which its lane moves gigabytes; a step of a small model is over in 100 us. */
uint32_t tier_window(const struct kv_tiers *t, enum xfer_kind src, enum xfer_kind dst, uint64_t bytes, uint32_t lo, uint32_t hi)
{
    double one_us = xfer_estimate_us(t->cfg.xfer, src, dst, bytes) - xfer_estimate_us(t->cfg.xfer, src, dst, 0);
    double n = one_us > 0 ? 2 * t->turn_us / one_us : 0;
    return n < lo ? lo : n > hi ? hi : (uint32_t)n;
}

static void measure_turn(struct kv_tiers *t)
{
    uint64_t now = t->cfg.clock();
    double   us = t->last_turn_us ? (double)(now - t->last_turn_us) : 0;
    t->turn_us = us > t->turn_us ? us : t->turn_us + (us - t->turn_us) / 8;
    t->last_turn_us = now;
}

bool kv_tiers_turn(struct kv_tiers *t)
{
    measure_turn(t);
    struct xfer_done d[16];
    bool             any = false;
    for (uint32_t n; (n = xfer_poll(t->cfg.xfer, d, 16));) {
        for (uint32_t i = 0; i < n; i++) finish(t, &d[i]);
        any = true;
    }
    below_turn(t);
    if (audit_turn(t)) return any;
    if (hand_turn(t)) return any;
    shrink_turn(t);
    below_reopen(t);
    order_turn(t);
    up_turn(t); /* loads go first */
    down_turn(t);
    return any;
}

void kv_tiers_steps(struct kv_tiers *t, uint64_t n_enqueued, uint64_t n_done)
{
    t->n_enqueued = n_enqueued;
    t->n_done = n_done;
}

int  kv_tiers_fd(const struct kv_tiers *t) { return xfer_fd(t->cfg.xfer); }
bool kv_tiers_arm(struct kv_tiers *t) { return xfer_arm(t->cfg.xfer); }
void kv_tiers_ack(struct kv_tiers *t) { xfer_ack(t->cfg.xfer); }

int64_t kv_tiers_sleep_us(const struct kv_tiers *t)
{
    enum { BUSY_US = 100, IDLE_US = 200000 };
    return kv_tiers_busy(t) || below_busy(t) ? BUSY_US : IDLE_US;
}

bool kv_tiers_busy(const struct kv_tiers *t) { return tiers_moving(t) || audit_busy(t) || t->audit.purge; }

bool tiers_moving(const struct kv_tiers *t)
{
    bool any = t->n_free_flight < t->n_flight_max || down_offered(t);
    for (int i = 0; i < KV_LOADS_MAX; i++) any |= t->load[i].used && !t->load[i].settled;
    return any;
}

void kv_tiers_close(struct kv_tiers *t, uint64_t flush_us)
{
    if (!t) return;
    t->closing = true;
    if (t->slab) {
        kv_tiers_all_gave_way(t);
        audit_stop(t);
        up_close(t);
        if (!t->hand.held) drain(t, t->cfg.clock() + flush_us);
        down_close(t);
        while (kv_tiers_busy(t))
            if (!kv_tiers_turn(t)) nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
        up_close(t);
        down_close(t);
        xfer_seg_drop(t->cfg.xfer, t->slab_seg);
    }
    below_close(t);
    hand_close(t);
    audit_close(t);
    if (t->slab) munmap(t->slab, t->n_slot * t->stride);
    if (t->slab_fd >= 0) close(t->slab_fd);
    for (int i = 0; i < KV_LOADS_MAX; i++) {
        struct load *l = &t->load[i];
        free(l->ids);
        free(l->state);
        free(l->read);
        free(l->key);
        free(l->ticket);
    }
    order_close(t);
    chain_free(&t->by_key);
    free(t->slot), free(t->sketch), free(t->flight), free(t->free_flight), free(t->node_key), free(t->path);
    free(t);
}

void kv_tiers_stats(const struct kv_tiers *t, struct kv_tiers_stats *out)
{
    *out = t->stats;
    out->tier[KV_TIER_HOST].n_block = t->n_ready;
    out->tier[KV_TIER_HOST].used_bytes = (t->n_slot - t->n_free - t->n_away) * t->stride;
    out->tier[KV_TIER_HOST].reserved_bytes = (t->n_slot - t->n_away) * t->stride;
    out->tier[KV_TIER_HOST].pinned_bytes = t->n_class[KV_CLASS_PINNED] * t->stride;
    below_stats(t, out);
}

enum status kv_tiers_check(const struct kv_tiers *t)
{
    uint32_t n_free = 0, n_ready = 0, n_lru = 0, n_linked = chain_count(&t->by_key, t->n_slot), n_used = 0, n_away = 0, readers = 0,
             pins = 0;
    for (int32_t i = t->free; i != SLOT_NONE && n_free <= t->n_slot; i = t->slot[i].next) n_free += t->slot[i].state == SLOT_FREE;
    if (!order_check(t)) goto fault;
    for (int32_t i = slot_oldest(t); i != SLOT_NONE && n_lru <= t->n_slot; i = slot_newer(t, i)) n_lru += t->slot[i].state == SLOT_READY;
    for (uint32_t i = 0; i < t->n_slot; i++) {
        const struct host_slot *s = &t->slot[i];
        n_ready += s->state == SLOT_READY;
        n_away += s->state == SLOT_AWAY;
        n_used += s->state != SLOT_FREE && s->state != SLOT_AWAY;
        if (s->state == SLOT_FREE || s->state == SLOT_AWAY) continue;
        if (slot_find(t, &s->key) != (int32_t)i) goto fault; /* every key once */
        if (s->state == SLOT_READY &&
            kv_record_check(slot_page(t, (int32_t)i), &t->cfg.key, &t->fingerprint, &s->key, NULL, t->cfg.block_tokens, t->cfg.block_bytes,
                            KV_SEQ_ANY) &&
            !s->doomed)
            goto fault;
        if (s->state != SLOT_READY && s->readers) goto fault;
    }
    for (uint32_t i = 0; i < t->n_slot; i++) readers += t->slot[i].readers;
    for (uint32_t i = 0; i < t->n_flight_max; i++)
        pins += t->flight[i].used && (t->flight[i].kind == FLIGHT_COPY || t->flight[i].kind == FLIGHT_WRITE);
    if (n_free == t->n_free && n_ready == t->n_ready && n_lru == n_ready && n_linked == n_used && readers == pins && n_away == t->n_away &&
        n_free + n_used + n_away == t->n_slot)
        return below_check(t);
fault:
    LOG_ERROR("kv: the host's tier is not what it says: %u slots, free %u of %u, ready %u of %u, in order %u, linked %u, readers %u of %u",
              t->n_slot, n_free, t->n_free, n_ready, t->n_ready, n_lru, n_linked, readers, pins);
    return ST_INVALID;
}
