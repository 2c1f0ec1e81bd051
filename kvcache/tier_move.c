/* tier_move: blocks that the device reads on the host go up to the pool when that has become cheaper.
 *
 * How often a block will be read is unknown when it is asked for. So its reads are rented until the rent has come to
 * the price of the copy, and then the copy is bought (the ski-rental rule, Karlin et al. 1988): whatever comes, that
 * costs at most twice what the best choice would have cost. A block that many sequences share, or one of a long answer,
 * goes up soon; the prefix of a short answer never does. A read is a step of a sequence, counted by tables that name
 * the block.
 *
 * A move copies some blocks to blocks of the pool that nobody else has, checks them again on the way, and then puts
 * those in the place of the guests, in the tree and in all tables (kv_guests_up). The slots stay what they were. */
#include "base/check.h"
#include "base/log.h"
#include "kvcache/device/guest.h"
#include "kvcache/tier_impl.h"
#include <stdlib.h>

enum { LOOK = 1024, ROOM_SHIFT = 3 }; /* slots looked at in a turn; an eighth of the pool stays available */

enum status move_open(struct kv_tiers *t)
{
    t->move.rent = calloc(t->host.n_slot, sizeof *t->move.rent);
    return t->move.rent ? ST_OK : ST_NOMEM;
}

void move_close(struct kv_tiers *t) { free(t->move.rent); }

void move_lease(struct kv_tiers *t, int32_t slot) { t->move.rent[slot] = (struct rent){ .at_step = t->n_done }; }

static void release(struct kv_tiers *t)
{
    kv_seq_release(t->cfg.kv, &t->move.kv);
    t->move.active = false;
}

/* ---- which */

/* Adds the rent of the steps since the last look. true: it has come to the price. */
static bool is_due(struct kv_tiers *t, int32_t slot)
{
    struct rent *r = &t->move.rent[slot];
    uint64_t     n = (t->n_done - r->at_step) * kv_guest_tables(t->cfg.kv, (uint32_t)slot);
    r->at_step = t->n_done;
    r->n_read = n < UINT32_MAX - r->n_read ? r->n_read + (uint32_t)n : UINT32_MAX;
    return r->n_read >= t->cfg.in_place_reads;
}

static void choose(struct kv_tiers *t)
{
    struct move *m = &t->move;
    uint32_t     spare = t->cfg.n_block >> ROOM_SHIFT, have = kv_available_count(t->cfg.kv), n_look = t->host.n_slot;
    uint32_t     most = have > spare ? have - spare : 0;
    if (most > MOVE_BLOCKS) most = MOVE_BLOCKS;
    if (most > t->cfg.seq_tokens_max / t->cfg.block_tokens) most = t->cfg.seq_tokens_max / t->cfg.block_tokens;
    if (n_look > LOOK) n_look = LOOK;
    m->n = 0;
    for (uint32_t i = 0; i < n_look && m->n < most; i++) {
        int32_t slot = (int32_t)m->next;
        m->next = (m->next + 1) % t->host.n_slot;
        if (t->host.slot[slot].lease != LEASE_HELD || !kv_guest_tables(t->cfg.kv, (uint32_t)slot)) continue;
        if (is_due(t, slot)) m->slot[m->n++] = slot;
    }
}

static void begin(struct kv_tiers *t)
{
    struct move   *m = &t->move;
    struct kv_copy copy[1];
    uint32_t       n_copy = 0;
    choose(t);
    if (!m->n || kv_seq_open(t->cfg.kv, (struct kv_salt){ 0 }, &m->kv)) return;
    if (kv_seq_reserve(t->cfg.kv, &m->kv, m->n * t->cfg.block_tokens, copy, &n_copy)) {
        kv_seq_release(t->cfg.kv, &m->kv);
        return;
    }
    m->active = true;
    m->giving_up = false;
    m->n_posted = m->n_flight = 0;
    m->after_step = t->n_enqueued; /* who had these blocks may have a row in a step in flight */
    for (uint32_t i = 0; i < m->n; i++) m->guest[i] = KV_NONE;
}

/* ---- their copies */

static bool post(struct kv_tiers *t, uint32_t i)
{
    struct move        *m = &t->move;
    int32_t             slot = m->slot[i];
    struct host_flight *f = flight_new(&t->host, FLIGHT_MOVE);
    if (!f) return false;
    struct xfer_job j = { .src = t->host.seg,
                          .dst = t->cfg.dev_seg,
                          .src_off = slot_off(&t->host, slot) + KV_RECORD_HEAD,
                          .dst_off = (uint64_t)m->kv.block[i] * t->cfg.block_bytes,
                          .bytes = (uint32_t)t->cfg.block_bytes,
                          .prio = XFER_PREFETCH,
                          .digest_mode = XFER_DIGEST_CHECK,
                          .digest = t->host.slot[slot].payload,
                          .cookie = flight_cookie(&t->host, f) };
    f->block = i;
    f->slot = slot;
    if (xfer_post(t->cfg.xfer, &j, NULL)) {
        flight_free(&t->host, f);
        return false;
    }
    t->host.slot[slot].readers++;
    m->n_flight++;
    return true;
}

/* The bytes have changed while the device read them. What was computed since then may be wrong, wherever it lies. */
static void damaged(struct kv_tiers *t, int32_t slot)
{
    tier_doubt(t, NULL, KV_DOUBT_PAYLOAD);
    t->host.slot[slot].doomed = 1;
    LOG_WARN(
        "kv: slot %d of the host was read in place and is damaged: what was computed meanwhile is in doubt, all blocks "
        "are dropped, and running sequences compute again",
        slot);
    t->audit.purge = PURGE_DEVICE;
    t->audit.gave_way = false;
}

void move_done(struct kv_tiers *t, struct host_flight *f, const struct xfer_done *d)
{
    struct move *m = &t->move;
    CHECK(m->active && m->n_flight > 0 && m->slot[f->block] == f->slot);
    m->n_flight--;
    if (d->st == ST_OK)
        m->guest[f->block] = (uint32_t)f->slot;
    else if (d->st == ST_INVALID && t->host.slot[f->slot].lease == LEASE_HELD)
        damaged(t, f->slot);
    else if (d->st == ST_INVALID)
        tier_doubt(t, NULL, KV_DOUBT_PAYLOAD);
    else if (d->st != ST_CANCELED)
        t->stats.n_failed_io++;
    slot_unread(&t->host, f->slot);
}

/* ---- the turn */

static bool may_move(const struct kv_tiers *t)
{
    return t->cfg.in_place && t->cfg.in_place_reads && !t->frozen && !t->closing && !kv_tiers_purges(t);
}

void move_turn(struct kv_tiers *t)
{
    struct move *m = &t->move;
    if (!m->active && may_move(t) && t->host.n_lease) begin(t);
    if (!m->active || t->n_done < m->after_step) return;
    while (!m->giving_up && m->n_posted < m->n && post(t, m->n_posted)) m->n_posted++;
    if (m->n_flight || (!m->giving_up && m->n_posted < m->n)) return;
    if (!m->giving_up) t->stats.n_moved += kv_guests_up(t->cfg.kv, &m->kv, m->guest);
    release(t);
}

void move_end(struct kv_tiers *t)
{
    if (!t->move.active) return;
    t->move.giving_up = true; /* a block that is being written to is nobody else's yet */
    if (!t->move.n_flight) release(t);
}
