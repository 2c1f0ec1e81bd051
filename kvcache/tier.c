/* tier: opens and closes the tiers, takes their turns, and says what they did. What they do is in tier_*.c. */
#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "kvcache/events/events.h"
#include "kvcache/tier_impl.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { COPIES_MAX = 32, LOAD_MIN_TOKENS = 64, PROBES = 16, PROBE_US = 60000000 };

/* ---- life */

/* The slab of the server before, or one of our own. */
static enum status take_slab(struct kv_tiers *t, char *err, size_t err_bytes)
{
    char why[160];
    if (t->cfg.hand.given && hand_adopt(t, why, sizeof why)) {
        LOG_WARN("kv: the host's KV of the server before is of no use, starting empty: %s", why);
        close(t->cfg.hand.slab_fd);
    }
    if (t->cfg.hand.given) close(t->cfg.hand.index_fd);
    t->cfg.hand.given = false;
    uint64_t bytes = t->host.n_slot * t->host.stride;
    if (!t->host.slab && kv_host_map(&t->host)) {
        snprintf(err, err_bytes, "the host's KV of %" PRIu64 " bytes cannot be reserved: %s", bytes, strerror(errno));
        return ST_NOMEM;
    }
    struct xfer_seg seg = { .kind = XFER_HOST, .base = t->host.slab, .bytes = bytes };
    seg.fd = t->host.slab_fd;
    seg.lent = t->cfg.peers != NULL;
    return xfer_seg_add(t->cfg.xfer, &seg, &t->host.seg);
}

static enum status take_memory(struct kv_tiers *t)
{
    const struct kv_tiers_cfg *c = &t->cfg;
    uint32_t                   blocks = c->seq_tokens_max / c->block_tokens + 1;
    enum status                st = window_open(t);
    if (st) return st;
    t->node_key = calloc((size_t)c->n_block + (c->in_place ? t->host.n_slot : 0), sizeof *t->node_key);
    t->path = calloc(blocks, sizeof *t->path);
    t->leaf_ids = calloc(c->seq_tokens_max, sizeof *t->leaf_ids);
    if (!t->node_key || !t->path || !t->leaf_ids) return ST_NOMEM;
    blocks += t->piece_max;
    for (int i = 0; i < KV_LOADS_MAX; i++) {
        struct load *l = &t->load[i];
        l->ids = calloc(c->seq_tokens_max, 4);
        l->piece = calloc((size_t)t->piece_max + 1, sizeof *l->piece);
        l->state = calloc(blocks, 1);
        l->want = calloc(blocks / 64 + 1, sizeof *l->want);
        l->from = calloc(blocks, 1);
        l->key = calloc(blocks, sizeof *l->key);
        l->ticket = calloc(blocks, sizeof *l->ticket);
        l->slot = calloc(blocks, sizeof *l->slot);
        l->seen = calloc(blocks, sizeof *l->seen);
        if (!l->ids || !l->piece || !l->state || !l->want || !l->from || !l->key || !l->ticket || !l->slot || !l->seen)
            return ST_NOMEM;
    }
    return place_open(t);
}

/* Copies to free blocks of a device that serves nobody yet: the first estimate of what a load costs. */
static void probe(struct kv_tiers *t)
{
    uint32_t n = 0;
    for (; n < PROBES && n < t->host.n_slot && n < t->cfg.n_block; n++) {
        struct xfer_job j = { .src = t->host.seg,
                              .dst = t->cfg.dev_seg,
                              .src_off = n * t->host.stride + KV_RECORD_HEAD,
                              .dst_off = n * t->cfg.block_bytes,
                              .bytes = (uint32_t)t->cfg.block_bytes,
                              .digest_mode = XFER_DIGEST_MAKE }; /* as a load costs one */
        if (xfer_post(t->cfg.xfer, &j, NULL)) break;
    }
    struct xfer_done d;
    for (uint64_t end = t->cfg.clock() + PROBE_US; n && t->cfg.clock() < end;)
        if (xfer_poll(t->cfg.xfer, &d, 1))
            n--;
        else
            nanosleep(&(struct timespec){ .tv_nsec = 50000 }, NULL);
    CHECK(n == 0); /* who does not move a block in all that time is no lane; in a second it may not have been on */
}

static uint64_t wall_s(void) { return (uint64_t)clock_wall_s(); }

uint32_t kv_tiers_slots(const struct kv_tiers_cfg *cfg)
{
    uint64_t n = cfg->host_bytes / kv_record_bytes(cfg->block_bytes);
    return n < INT32_MAX ? (uint32_t)n : INT32_MAX;
}

enum status kv_tiers_open(const struct kv_tiers_cfg *cfg, struct kv_tiers **t_out, char *err, size_t err_bytes)
{
    struct kv_tiers *t = calloc(1, sizeof *t);
    if (!t) return ST_NOMEM;
    t->cfg = *cfg;
    t->host.slab_fd = t->hand.index_fd = -1;
    t->eager = BELOW_NONE;
    if (!t->cfg.clock) t->cfg.clock = clock_us;
    if (!t->cfg.wall) t->cfg.wall = wall_s;
    t->copies_fixed = t->cfg.copies_max > 0;
    if (!t->cfg.copies_max) t->cfg.copies_max = COPIES_MAX;
    if (!t->cfg.load_min_tokens)
        t->cfg.load_min_tokens = LOAD_MIN_TOKENS > cfg->block_tokens ? LOAD_MIN_TOKENS : cfg->block_tokens;
    t->fingerprint = kv_fingerprint(&cfg->ident);
    uint64_t    stride = kv_record_bytes(cfg->block_bytes);
    uint32_t    n_slot = kv_tiers_slots(cfg);
    enum status st = ST_CONFIG;
    if (n_slot < 2) {
        snprintf(err, err_bytes, "the host's KV: %" PRIu64 " bytes hold fewer than two blocks of %" PRIu64,
                 cfg->host_bytes, stride);
        goto fail;
    }
    if ((st = kv_host_init(&t->host, cfg->kv, n_slot, stride, t->cfg.copies_max * 4 + TIER_FLIGHTS)) ||
        (st = take_memory(t)) || (st = kv_events_host(cfg->events, &t->host))) {
        snprintf(err, err_bytes, "no memory for the index of %u blocks on the host", n_slot);
        goto fail;
    }
    if ((st = take_slab(t, err, err_bytes))) goto fail;
    t->copy = (struct xfer_job){ .src = t->host.seg,
                                 .dst = t->cfg.dev_seg,
                                 .bytes = (uint32_t)cfg->block_bytes,
                                 .prio = XFER_LOAD,
                                 .digest_mode = XFER_DIGEST_CHECK };
    if ((st = audit_open(t))) {
        snprintf(err, err_bytes, "no memory for the audit of blocks");
        goto fail;
    }
    audit_slab_found(t);
    if ((st = below_open(t, err, err_bytes))) goto fail;
    kv_pins_set_host(cfg->kv, t->host.n_slot);
    probe(t);
    *t_out = t;
    return ST_OK;
fail:
    kv_tiers_close(t, 0);
    return st;
}

static void finish(struct kv_tiers *t, const struct xfer_done *d)
{
    struct host_flight *f = &t->host.flight[d->cookie];
    CHECK(d->cookie < t->host.n_flight_max && f->used);
    switch (f->kind) {
    case FLIGHT_OFFER: down_offer_done(t, f, d); break;
    case FLIGHT_WRITE: down_write_done(t, f, d); break;
    case FLIGHT_READ: up_read_done(t, f, d); break;
    case FLIGHT_COPY: up_copy_done(t, f, d); break;
    case FLIGHT_CHECK: place_checked(t, f, d); break;
    case FLIGHT_MOVE: move_done(t, f, d); break;
    case FLIGHT_AUDIT_READ: audit_read_done(t, f, d); break;
    case FLIGHT_AUDIT_COPY: audit_copy_done(t, f, d); break;
    }
    flight_free(&t->host, f);
}

/* Asks for what finish will look at: the slot, and the head of a record that another core has written. */
static void fetch(const struct kv_tiers *t, const struct xfer_done *d)
{
    enum { LINE = 64, HEAD = 256 };
    const struct host_flight *f = &t->host.flight[d->cookie];
    if (f->slot == SLOT_NONE) return;
    __builtin_prefetch(&t->host.slot[f->slot]);
    __builtin_prefetch((const char *)&t->host.slot[f->slot] + LINE);
    if (f->kind != FLIGHT_READ) return;
    for (uint32_t at = 0; at < HEAD; at += LINE) __builtin_prefetch(slot_page(&t->host, f->slot) + at);
    const struct kv_below *b = t->below[f->store];
    if (b->row->fetch) b->row->fetch(b, &t->load[f->owner].key[f->block], &f->place);
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
    enum { DONES = 32 };
    struct xfer_done d[DONES];
    bool             any = false;
    for (uint32_t n; (n = xfer_poll(t->cfg.xfer, d, DONES));) {
        for (uint32_t i = 0; i < n; i++) __builtin_prefetch(&t->host.flight[d[i].cookie]);
        for (uint32_t i = 0; i < n; i++) fetch(t, &d[i]);
        for (uint32_t i = 0; i < n; i++) finish(t, &d[i]);
        any = true;
    }
    below_turn(t);
    place_turn(t);
    if (purge_turn(t)) return any;
    audit_turn(t);
    if (hand_turn(t)) return any;
    shrink_turn(t);
    below_reopen(t);
    order_turn(&t->host);
    up_turn(t); /* loads go first */
    down_turn(t);
    move_turn(t);
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
    enum { BUSY_US = 100, EAGER_US = 2000, IDLE_US = 200000 };
    if (kv_tiers_busy(t) || below_busy(t)) return BUSY_US;
    return t->eager != BELOW_NONE && t->eager_left ? EAGER_US : IDLE_US;
}

void kv_tiers_close(struct kv_tiers *t, uint64_t flush_us)
{
    if (!t) return;
    t->closing = true;
    t->host.keep = true;
    if (t->host.slab) {
        kv_tiers_all_gave_way(t);
        audit_stop(t);
        up_close(t);
        move_end(t);
        if (!t->hand.held) drain_all(t, t->cfg.clock() + flush_us, kv_tiers_turn);
        down_close(t);
        while (kv_tiers_busy(t))
            if (!kv_tiers_turn(t)) nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
        up_close(t);
        down_close(t);
        move_end(t);
        xfer_seg_drop(t->cfg.xfer, t->host.seg);
    }
    below_close(t);
    hand_close(t);
    audit_close(t);
    for (int i = 0; i < KV_LOADS_MAX; i++) {
        struct load *l = &t->load[i];
        free(l->ids);
        free(l->piece);
        free(l->state);
        free(l->want);
        free(l->from);
        free(l->key);
        free(l->ticket);
        free(l->slot);
        free(l->seen);
    }
    kv_events_host(t->cfg.events, NULL);
    kv_host_close(&t->host);
    place_close(t);
    window_close(t);
    free(t->node_key);
    free(t->path);
    free(t->leaf_ids);
    free(t);
}

void kv_tiers_stats(const struct kv_tiers *t, struct kv_tiers_stats *out)
{
    *out = t->stats;
    const struct kv_host *h = &t->host;
    out->n_guest = h->n_lease;
    out->tier[KV_TIER_HOST].n_block = h->n_ready;
    out->tier[KV_TIER_HOST].used_bytes = (h->n_slot - h->n_free - h->n_away) * h->stride;
    out->tier[KV_TIER_HOST].reserved_bytes = (h->n_slot - h->n_away) * h->stride;
    out->tier[KV_TIER_HOST].pinned_bytes = h->n_class[KV_CLASS_PINNED] * h->stride;
    out->tier[KV_TIER_HOST].evicted = h->n_evicted;
    memcpy(out->tier[KV_TIER_HOST].evicted_why, h->evicted_why, sizeof h->evicted_why);
    below_stats(t, out);
}

/* Records of slots that are READY are whole, and are what the index says. */
static bool records_are_sound(const struct kv_tiers *t)
{
    const struct kv_host *h = &t->host;
    for (uint32_t i = 0; i < h->n_slot; i++) {
        const struct host_slot *s = &h->slot[i];
        if (s->state != SLOT_READY || s->doomed) continue;
        if (kv_record_check(slot_page(h, (int32_t)i), &t->cfg.key, &t->fingerprint, &s->key, NULL, t->cfg.block_tokens,
                            t->cfg.block_bytes, KV_SEQ_ANY)) {
            LOG_ERROR("kv: the record in slot %u of the host is not what the index says", i);
            return false;
        }
    }
    return true;
}

enum status kv_tiers_check(const struct kv_tiers *t)
{
    if (!kv_host_check(&t->host) || !records_are_sound(t)) return ST_INVALID;
    if (!place_is_sound(t)) {
        LOG_ERROR("kv: slots that the device reads in place are not those of its tree");
        return ST_INVALID;
    }
    return below_check(t);
}
