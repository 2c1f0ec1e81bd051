/* tier_state: what the files of the tiers share: what is in flight, how much of it may be, how a load posts a block,
 * and which blocks are in doubt. */
#include "base/log.h"
#include "kvcache/tier_impl.h"

bool kv_tiers_busy(const struct kv_tiers *t)
{
    return tiers_moving(t) || audit_busy(t) || t->audit.purge || t->hand.vacating || seeking(t);
}

bool tiers_moving(const struct kv_tiers *t)
{
    bool any = flights_out(&t->host) || t->move.active;
    for (int i = 0; i < KV_OFFERS_MAX; i++) any |= t->offer[i].used;
    for (int i = 0; i < KV_LOADS_MAX; i++) any |= t->load[i].used && !t->load[i].settled;
    return any;
}

/* A step of a large prompt takes a GPU 200 ms, in which its lane moves gigabytes; a step of a small model is over in
 * 100 us. */
uint32_t tier_window(const struct kv_tiers *t, enum xfer_kind src, enum xfer_kind dst, uint64_t bytes, uint32_t lo,
                     uint32_t hi)
{
    double one_us = xfer_estimate_us(t->cfg.xfer, src, dst, bytes) - xfer_estimate_us(t->cfg.xfer, src, dst, 0);
    double n = one_us > 0 ? 2 * t->turn_us / one_us : 0;
    if (n < lo) return lo;
    return n > hi ? hi : (uint32_t)n;
}

void tier_doubt(struct kv_tiers *t, const struct kv_below *from, enum kv_doubt d)
{
    if (d == KV_SURE) return;
    t->stats.doubt[d]++;
    t->stats.tier[from ? from->row->tier : KV_TIER_HOST].n_doubt++;
    LOG_WARN_LIMITED("kv: a block from %s is in doubt (%s): it is dropped, and computed",
                     from ? from->row->name : "the host", kv_doubt_name[d]);
}

void load_set(struct load *l, uint32_t k, enum load_block s)
{
    uint64_t bit = (uint64_t)1 << k % 64;
    l->state[k] = (unsigned char)s;
    if (s == LOAD_WANT)
        l->want[k / 64] |= bit;
    else
        l->want[k / 64] &= ~bit;
    if (s == LOAD_FAILED && k < l->first_failed) l->first_failed = k;
}

bool load_post(struct kv_tiers *t, struct load *l, uint32_t k, int32_t slot, struct host_flight *f,
               const struct xfer_job *j)
{
    f->owner = (uint32_t)(l - t->load);
    f->block = k;
    f->slot = slot;
    if (xfer_post(t->cfg.xfer, j, &l->ticket[k])) {
        flight_free(&t->host, f);
        return false;
    }
    slot_touch(&t->host, slot);
    load_set(l, k, LOAD_COPYING);
    l->n_flight++;
    l->n_todo--;
    return true;
}

void load_block_failed(struct kv_tiers *t, int32_t slot, enum status st)
{
    if (st == ST_INVALID) {
        tier_doubt(t, NULL, KV_DOUBT_PAYLOAD);
        t->host.slot[slot].doomed = 1;
    } else if (st != ST_CANCELED) {
        t->stats.n_failed_io++;
    }
}
