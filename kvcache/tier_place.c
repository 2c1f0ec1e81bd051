/* tier_place: blocks that stay on the host and are read there by the device (cfg.in_place). A load checks them and
 * copies nothing: its blocks become guests of the device's tree (device/guest.h).
 *
 * A slot that the device may read has a lease, which is one of its readers, so it is neither evicted nor reused:
 *
 *   NONE --load--> CHECKING --digest is right--> HELD --guest leaves the tree--> LEAVING --steps are done--> NONE
 *                     | wrong, failed, given up: NONE                               (no new lease meanwhile)
 *
 * At most half of the slots have one, so the host can always take what comes down. A block beyond that is copied up. */
#include "base/check.h"
#include "kvcache/device/guest.h"
#include "kvcache/tier_impl.h"
#include <stdlib.h>

enum status place_open(struct kv_tiers *t)
{
    if (!t->cfg.in_place) return ST_OK;
    t->place.leaving = calloc(t->host.n_slot, sizeof *t->place.leaving);
    return t->place.leaving ? move_open(t) : ST_NOMEM;
}

void place_close(struct kv_tiers *t)
{
    free(t->place.leaving);
    move_close(t);
}

void kv_tiers_slab(const struct kv_tiers *t, const unsigned char **payload_out, uint64_t *stride_out)
{
    *payload_out = t->host.slab + KV_RECORD_HEAD;
    *stride_out = t->host.stride;
}

bool place_room(const struct kv_tiers *t, uint32_t n_block)
{
    return t->cfg.in_place && (uint64_t)t->host.n_lease + n_block <= (t->host.n_slot - t->host.n_away) / 2;
}

/* ---- leases */

static void leave(struct kv_tiers *t, int32_t slot)
{
    struct in_place *p = &t->place;
    CHECK(t->host.slot[slot].lease == LEASE_HELD && p->n < t->host.n_slot);
    t->host.slot[slot].lease = LEASE_LEAVING;
    p->leaving[(p->first + p->n++) % t->host.n_slot] = (struct leaving){ .slot = slot, .after_step = t->n_enqueued };
}

void place_turn(struct kv_tiers *t)
{
    struct in_place *p = &t->place;
    if (!t->cfg.in_place) return;
    for (uint32_t g; (g = kv_guest_left(t->cfg.kv)) != KV_NONE;) leave(t, (int32_t)g);
    while (p->n && p->leaving[p->first].after_step <= t->n_done) {
        slot_release(&t->host, p->leaving[p->first].slot);
        p->first = (p->first + 1) % t->host.n_slot;
        p->n--;
    }
}

/* ---- loads */

void place_check(struct kv_tiers *t, struct load *l, uint32_t k, int32_t slot)
{
    struct host_slot   *s = &t->host.slot[slot];
    struct host_flight *f = s->lease == LEASE_NONE ? flight_new(&t->host, FLIGHT_CHECK) : NULL;
    if (!f) return; /* LEAVING: soon */
    uint64_t        at = slot_off(&t->host, slot) + KV_RECORD_HEAD;
    struct xfer_job j = { .src = t->host.seg, /* onto itself: nothing is copied */
                          .dst = t->host.seg,
                          .src_off = at,
                          .dst_off = at,
                          .bytes = (uint32_t)t->cfg.block_bytes,
                          .prio = XFER_LOAD,
                          .digest_mode = XFER_DIGEST_CHECK,
                          .digest = s->payload,
                          .cookie = flight_cookie(&t->host, f) };
    if (load_post(t, l, k, slot, f, &j)) slot_lease(&t->host, slot);
}

void place_checked(struct kv_tiers *t, struct host_flight *f, const struct xfer_done *d)
{
    struct load *l = &t->load[f->owner];
    CHECK(l->used && l->n_flight > 0 && l->state[f->block] == LOAD_COPYING);
    l->n_flight--;
    if (d->st == ST_OK) {
        t->host.slot[f->slot].lease = LEASE_HELD;
        l->slot[f->block] = f->slot;
        load_set(l, f->block, LOAD_DONE);
        return;
    }
    load_set(l, f->block, LOAD_FAILED);
    load_block_failed(t, f->slot, d->st);
    slot_release(&t->host, f->slot);
}

/* The blocks before those of the load. It let go of them while others were short of blocks. */
static bool finds_its_beginning(struct kv_tiers *t, struct load *l)
{
    uint32_t n = l->first * t->cfg.block_tokens;
    if (l->kv.n_block == l->first) return true;
    if (kv_seq_match(t->cfg.kv, &l->kv, l->ids, n + 1) == n) return true;
    kv_seq_drop(t->cfg.kv, &l->kv);
    return false;
}

uint32_t place_settle(struct kv_tiers *t, struct load *l, uint32_t n)
{
    if (n && !finds_its_beginning(t, l)) n = 0;
    for (uint32_t k = 0; k < l->n_block; k++) {
        int32_t slot = l->slot[k];
        bool    is_guest = false;
        if (k < n) {
            const uint32_t *ids = l->ids + (size_t)(l->first + k) * t->cfg.block_tokens;
            is_guest = kv_guest_add(t->cfg.kv, &l->kv, ids, (uint32_t)slot);
            t->stats.n_loaded++;
            t->stats.n_in_place += is_guest;
            if (is_guest) move_lease(t, slot);
            t->stats.tier[KV_TIER_HOST].hit_blocks +=
                l->from[k] == KV_TIER_HOST; /* a block of a store went through the host: one hit, of that store */
        }
        if (!is_guest && slot != SLOT_NONE) slot_release(&t->host, slot); /* no step has seen it */
        l->slot[k] = SLOT_NONE;
    }
    return n;
}

/* ---- the end */

bool place_vacate(struct kv_tiers *t)
{
    if (t->hand.vacating && t->audit.gave_way) { /* no sequence has a block; cached paths and pins are left */
        kv_unpin(t->cfg.kv, UINT64_MAX);
        kv_evict_all(t->cfg.kv);
        t->hand.vacating = false;
    }
    place_turn(t);
    if (!t->hand.vacating && t->place.n < t->host.n_lease) {
        t->hand.vacating = true;
        t->audit.gave_way = false;
    }
    return !t->host.n_lease;
}

bool place_is_sound(const struct kv_tiers *t)
{
    uint32_t n_out = 0, n_leaving = 0, n_load = 0;
    if (!t->cfg.in_place) return t->host.n_lease == 0;
    for (uint32_t i = 0; i < KV_LOADS_MAX; i++) {
        const struct load *l = &t->load[i];
        for (uint32_t k = 0; l->used && !l->settled && k < l->n_block; k++) n_load += l->slot[k] != SLOT_NONE;
    }
    for (uint32_t i = 0; i < t->host.n_slot; i++) {
        const struct host_slot *s = &t->host.slot[i];
        bool                    in_tree = kv_guest_in(t->cfg.kv, i);
        if (in_tree && (s->state != SLOT_READY || s->lease != LEASE_HELD)) return false;
        n_out += s->lease == LEASE_HELD && !in_tree;
        n_leaving += s->lease == LEASE_LEAVING;
    }
    return n_leaving == t->place.n && n_out == n_load + kv_guests_left(t->cfg.kv);
}
