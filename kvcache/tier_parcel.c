/* tier_parcel: both ends of a parcel (kvcache/parcel.h) as the tiers see them: which slots a published prompt keeps,
 * and how the pull of one ended. */
#include "base/check.h"
#include "kvcache/tier_impl.h"
#include <string.h>

/* The place below that keeps and pulls parcels, or NULL. */
static struct kv_below *keeper(const struct kv_tiers *t)
{
    for (uint32_t i = 0; i < t->n_below; i++)
        if (t->below[i]->row->parcels) return t->below[i];
    return NULL;
}

/* ---- a prompt that is kept here */

void parcel_made(struct kv_tiers *t, struct offer *o)
{
    struct kv_parcel *p = o->parcel;
    struct kv_below  *b = keeper(t);
    struct kv_key     first = { { 0 } };
    uint32_t          n = 0;
    o->parcel = NULL;
    p->state = KV_PARCEL_MADE;
    p->n_block = 0;
    if (!b || t->closing) return;
    for (; n < o->next && n < p->n_block_max; n++) {
        struct kv_key key = tier_key(t, o->kv.salt, o->kv.block[n]);
        int32_t       slot = slot_find(&t->host, &key);
        if (n == 0) first = key;
        if (slot == SLOT_NONE || t->host.slot[slot].state != SLOT_READY) break; /* what comes behind it is of no use */
        p->slot[n] = slot;
    }
    bool     windows = t->n_piece && n > 0;
    uint32_t n_slot = windows ? window_keep(t, o, p->slot, n) : n;
    uint32_t n_kept = b->row->parcels->keep(b, &first, windows ? t->kept : p->slot, n_slot, p->id);
    p->n_block = n_kept < n ? n_kept : n;
}

/* ---- a prompt that is pulled */

void kv_tiers_claim(struct kv_tiers *t, struct kv_claim *c, struct kv_salt salt, const uint32_t *ids, uint32_t n)
{
    struct kv_below *b = keeper(t);
    c->row = c->n_found = 0;
    c->asked = c->unknown = false;
    if (!b || n < t->cfg.block_tokens || c->n_block == 0) return;
    struct kv_key root = kv_key_root(&t->fingerprint, salt), first = kv_key_next(&root, ids, t->cfg.block_tokens);
    (void)b->row->parcels->claim(b, c, &first);
}

static enum kv_claim_end how_it_ended(const struct kv_tiers *t, const struct kv_want *w, uint32_t n, uint32_t n_hit)
{
    const struct kv_claim *c = w->claim;
    const struct kv_below *b = keeper(t);
    uint32_t               bt = t->cfg.block_tokens, most = n ? (n - 1) / bt : 0; /* a match leaves one token */
    uint32_t               want = c->n_block < most ? c->n_block : most;
    if (c->n_block > n / bt) return KV_CLAIM_MISMATCH;
    if (n_hit / bt >= want) return w->n_from[KV_TIER_PEER] ? KV_CLAIM_PULLED : KV_CLAIM_HERE;
    if (!b || c->unknown) return KV_CLAIM_NO_PEER;
    if (c->n_found < want) return b->row->parcels->knows(b, c) ? KV_CLAIM_MISSING : KV_CLAIM_NO_PEER;
    return KV_CLAIM_LOST;
}

void kv_tiers_claim_end(struct kv_tiers *t, const struct kv_want *w, uint32_t n, uint32_t n_hit, enum kv_claim_end why)
{
    struct kv_below *b = keeper(t);
    if (!w->claim) return;
    if (why == KV_CLAIM_ENDS) why = how_it_ended(t, w, n, n_hit);
    t->stats.claim[why]++;
    if (b) b->row->parcels->claim_end(b, w->claim, w->n_from[KV_TIER_PEER] / t->cfg.block_tokens);
}
