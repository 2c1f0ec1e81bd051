/* parcel: parcels that are kept for guests (kvcache/parcel.h). A parcel holds a reader of each of its slots until a
 * guest is done with it or nobody has claimed it for KV_PARCEL_US. */
#include "base/check.h"
#include "base/log.h"
#include "kvcache/peer/peers_impl.h"
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { KEPT_SHARE = 2 }; /* at most half of the host is kept in parcels */

enum status parcel_open(struct peers *p)
{
    p->n_cell = p->host->n_slot / KEPT_SHARE;
    p->cell = calloc(p->n_cell ? p->n_cell : 1, sizeof *p->cell);
    if (!p->cell) return ST_NOMEM;
    p->free_cell = NONE_KNOWN;
    for (int32_t i = (int32_t)p->n_cell; i-- > 0;) {
        p->cell[i].next = p->free_cell;
        p->free_cell = i;
    }
    return ST_OK;
}

static void end_parcel(struct peers *p, struct parcel *l)
{
    while (l->first_cell != NONE_KNOWN) {
        int32_t      i = l->first_cell;
        struct cell *c = &p->cell[i];
        CHECK(p->host->n_kept > 0);
        p->host->n_kept--;
        p->host->slot[c->slot].kept--;
        slot_unread(p->host, c->slot);
        l->first_cell = c->next;
        c->next = p->free_cell;
        p->free_cell = i;
    }
    l->used = false;
    p->parcels.n_now--;
}

uint32_t parcel_keep(struct peers *p, const struct kv_key *first, const int32_t *slot, uint32_t n,
                     unsigned char id_out[KV_PARCEL_ID])
{
    struct parcel *l = p->parcel;
    uint32_t       kept = 0;
    while (l < p->parcel + PARCELS_MAX && l->used) l++;
    if (l == p->parcel + PARCELS_MAX || n == 0 || !lend_may(&p->host->slot[slot[0]]) || p->free_cell == NONE_KNOWN ||
        getrandom(l->id, sizeof l->id, 0) != sizeof l->id) {
        p->parcels.n_refused++;
        return 0;
    }
    l->used = true;
    l->key = *first;
    l->end_us = p->cfg.clock() + KV_PARCEL_US;
    l->first_cell = NONE_KNOWN;
    for (; kept < n && p->free_cell != NONE_KNOWN && lend_may(&p->host->slot[slot[kept]]); kept++) {
        int32_t i = p->free_cell;
        p->free_cell = p->cell[i].next;
        p->cell[i] = (struct cell){ .slot = slot[kept], .next = l->first_cell };
        l->first_cell = i;
        p->host->slot[slot[kept]].readers++;
        p->host->slot[slot[kept]].kept++;
        p->host->n_kept++;
        slot_touch(p->host, slot[kept]);
    }
    memcpy(id_out, l->id, sizeof l->id);
    p->parcels.n_made++;
    p->parcels.n_now++;
    return kept;
}

void parcel_hear(struct peers *p, const struct peer_note *n)
{
    for (uint32_t i = 0; i < PARCELS_MAX; i++) {
        struct parcel *l = &p->parcel[i];
        if (!l->used || memcmp(l->id, n->id, sizeof l->id) || memcmp(&l->key, &n->first, sizeof l->key)) continue;
        if (n->done) {
            p->parcels.n_taken++;
            end_parcel(p, l);
        } else {
            l->end_us = p->cfg.clock() + KV_PARCEL_US;
        }
        return;
    }
}

void parcel_turn(struct peers *p, uint64_t now)
{
    for (uint32_t i = 0; p->parcels.n_now && i < PARCELS_MAX; i++) {
        if (!p->parcel[i].used || now < p->parcel[i].end_us) continue;
        p->parcels.n_lapsed++;
        end_parcel(p, &p->parcel[i]);
    }
}

void parcel_end_all(struct peers *p) { parcel_turn(p, UINT64_MAX); }

bool parcel_check(const struct peers *p)
{
    uint32_t n = 0, n_now = 0, n_free = 0;
    for (uint32_t i = 0; i < PARCELS_MAX; i++) {
        n_now += p->parcel[i].used;
        for (int32_t c = p->parcel[i].used ? p->parcel[i].first_cell : NONE_KNOWN; c != NONE_KNOWN && n <= p->n_cell;
             c = p->cell[c].next)
            n++;
    }
    for (int32_t c = p->free_cell; c != NONE_KNOWN && n_free <= p->n_cell; c = p->cell[c].next) n_free++;
    if (n == p->host->n_kept && n + n_free == p->n_cell && n_now == p->parcels.n_now) return true;
    LOG_ERROR("peer: %u slots are kept, %u parcels hold %u, and %u cells of %u are free", p->host->n_kept, n_now, n,
              n_free, p->n_cell);
    return false;
}
