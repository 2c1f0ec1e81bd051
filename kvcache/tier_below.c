/* tier_below: the array of the places below the host, the cheapest to read from first (below.h): opens and closes all
 * of them, and asks each in turn. */
#include "base/check.h"
#include "base/log.h"
#include "kvcache/events/events.h"
#include "kvcache/tier_impl.h"
#include <stdio.h>
#include <string.h>

enum { OPEN_AGAIN_US = 5000000 };

/* ---- life */

static enum status open_one(struct kv_tiers *t, uint32_t i, char *err, size_t err_bytes)
{
    const struct kv_tiers_cfg *c = &t->cfg;
    const struct kv_below_row *row = c->store[i].row ? c->store[i].row : &kv_folder;
    struct kv_below_cfg        bc = { .where = c->store[i].dir,
                                      .bytes = c->store[i].bytes,
                                      .segment_bytes = c->store[i].segment_bytes,
                                      .objects = c->store[i].objects,
                                      .n_below = c->n_store,
                                      .payload_bytes = c->block_bytes,
                                      .block_tokens = c->block_tokens,
                                      .fingerprint = t->fingerprint,
                                      .key = c->key,
                                      .old_key = c->old_key,
                                      .xfer = c->xfer,
                                      .host = &t->host,
                                      .peers = c->peers,
                                      .prove = c->audit,
                                      .events = c->events,
                                      .place = i,
                                      .clock = c->clock,
                                      .secret = c->secret,
                                      .old_secret = c->old_secret,
                                      .ephemeral = c->ephemeral,
                                      .shared = c->shared,
                                      .name = c->shared_name,
                                      .scan_us = c->shared_scan_us,
                                      .grace_us = c->shared_grace_us };
    if (t->below[i]) return ST_OK;
    CHECK(row->tier > KV_TIER_HOST && row->tier < KV_TIERS);
    return row->open(&bc, &t->below[i], err, err_bytes);
}

/* ---- for KV events: the places whose blocks are told */

static bool event_has(void *ctx, uint32_t i, const struct kv_key *key)
{
    const struct kv_below *b = ((struct kv_tiers *)ctx)->below[i];
    return b && b->row->holds && b->row->holds(b, key);
}

static uint64_t event_each(void *ctx, uint32_t i, uint64_t at)
{
    const struct kv_below *b = ((struct kv_tiers *)ctx)->below[i];
    return b && b->row->each ? b->row->each(b, at) : UINT64_MAX;
}

/* ---- life of all */

enum status below_open(struct kv_tiers *t, char *err, size_t err_bytes)
{
    for (uint32_t i = 0; i < t->cfg.n_store; i++) {
        enum status st = open_one(t, i, err, err_bytes);
        if (st) return st;
    }
    t->n_below = t->cfg.n_store;
    t->n_writer = 0;
    t->eager = BELOW_NONE;
    for (uint32_t i = 0; i < t->n_below; i++) {
        const struct kv_below_row *row = t->below[i]->row;
        if (row->write && row->eager) t->eager = (int)i;
        if (row->write && !row->eager) t->writer[t->n_writer++] = i;
    }
    if (!t->n_writer && t->eager != BELOW_NONE) t->writer[t->n_writer++] = (uint32_t)t->eager;
    struct kv_events_below told = { .ctx = t, .n = t->n_below, .each = event_each, .has = event_has };
    kv_events_places(t->cfg.events, &told);
    return ST_OK;
}

void below_close(struct kv_tiers *t)
{
    t->n_below = 0;
    t->n_writer = 0;
    t->eager = BELOW_NONE;
    t->below_again_us = 0;
    kv_events_places(t->cfg.events, NULL);
    for (uint32_t i = 0; i < KV_STORES_MAX; i++) {
        if (t->below[i]) t->below[i]->row->close(t->below[i]);
        t->below[i] = NULL;
    }
}

void below_reopen(struct kv_tiers *t)
{
    char err[300];
    if (t->n_below == t->cfg.n_store || t->cfg.clock() < t->below_again_us) return;
    if (!below_open(t, err, sizeof err)) return;
    LOG_WARN_LIMITED("kv: degraded: %s; serving without it", err);
    t->below_again_us = t->cfg.clock() + OPEN_AGAIN_US;
}

void below_turn(struct kv_tiers *t)
{
    for (uint32_t i = 0; i < t->n_below; i++) t->below[i]->row->turn(t->below[i]);
}

/* ---- questions */

int below_find(struct kv_tiers *t, const struct kv_key *key, struct kv_place *place_out)
{
    for (uint32_t i = 0; i < t->n_below; i++)
        if (t->below[i]->row->find(t->below[i], key, place_out)) return (int)i;
    return -1;
}

int below_has(const struct kv_tiers *t, const struct kv_key *key)
{
    for (uint32_t i = 0; i < t->n_below; i++)
        if (t->below[i]->row->has(t->below[i], key)) return (int)i;
    return -1;
}

bool below_keeps(const struct kv_tiers *t, uint32_t i)
{
    if (!t->below[i]->row->write) return false; /* it is others' */
    return (int)i != t->eager || (t->n_writer && t->writer[0] == i);
}

int below_kept(const struct kv_tiers *t, const struct kv_key *key)
{
    for (uint32_t i = 0; i < t->n_below; i++)
        if (below_keeps(t, i) && t->below[i]->row->has(t->below[i], key)) return (int)i;
    return -1;
}

uint32_t below_for(const struct kv_tiers *t, const struct kv_key *key)
{
    uint32_t h;
    CHECK(t->n_writer > 0);
    memcpy(&h, key->b + 28, 4);
    return t->writer[h % t->n_writer];
}

enum kv_tier below_tier(const struct kv_tiers *t, uint32_t i) { return t->below[i]->row->tier; }

enum xfer_kind below_kind(const struct kv_tiers *t, uint32_t i)
{
    return i < t->n_below ? t->below[i]->row->kind : XFER_FILE;
}

bool below_takes(const struct kv_tiers *t, uint32_t i) { return t->below[i]->row->takes(t->below[i]); }

bool below_any_takes(const struct kv_tiers *t)
{
    bool any = false;
    for (uint32_t i = 0; i < t->n_writer; i++) any |= below_takes(t, t->writer[i]);
    return any;
}

bool below_busy(const struct kv_tiers *t)
{
    bool any = false;
    for (uint32_t i = 0; i < t->n_below; i++) any |= t->below[i]->row->busy(t->below[i]);
    return any;
}

bool below_hides(const struct kv_tiers *t, const struct kv_key *key)
{
    for (uint32_t i = 0; i < t->n_below; i++) {
        const struct kv_below       *b = t->below[i];
        const struct kv_below_proof *p = b->row->proof;
        if (p && p->unproven(b) && b->row->has(b, key)) return true;
    }
    return false;
}

uint64_t below_purge(struct kv_tiers *t)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < t->n_below; i++) n += t->below[i]->row->purge(t->below[i]);
    return n;
}

void below_stats(const struct kv_tiers *t, struct kv_tiers_stats *out)
{
    for (uint32_t i = 0; i < t->n_below; i++) {
        struct kv_below_stats         s;
        struct kv_below_counts       *sum = &out->store;
        const struct kv_below_counts *c = &s.counts;
        t->below[i]->row->stats(t->below[i], &s);
        struct kv_tier_stats *tier = &out->tier[below_tier(t, i)];
        if (t->below[i]->row->parcels) out->parcels = s.parcels;
        tier->reserved_bytes += s.cap_bytes;
        tier->used_bytes += s.used_bytes;
        tier->n_block += s.n_block;
        tier->evicted += s.n_evicted;
        tier->evicted_why[KV_EVICT_LRU] += s.n_evicted;
        if (s.degraded) {
            tier->n_degraded++;
            if (!out->n_degraded++) snprintf(out->degraded, sizeof out->degraded, "%s", s.degraded);
        }
        sum->n_pauses += c->n_pauses;
        sum->n_recovered += c->n_recovered;
        sum->n_removed += c->n_removed;
        sum->n_gave_way += c->n_gave_way;
        sum->n_claimed += c->n_claimed;
        sum->n_paused += c->n_paused;
        sum->n_locked += c->n_locked;
        sum->n_damaged += c->n_damaged;
        sum->n_unread += c->n_unread;
        sum->n_foreign += c->n_foreign;
    }
}

enum status below_check(const struct kv_tiers *t)
{
    for (uint32_t i = 0; i < t->n_below; i++)
        if (t->below[i]->row->check(t->below[i])) return ST_INVALID;
    return ST_OK;
}
