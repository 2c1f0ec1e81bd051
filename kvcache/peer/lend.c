/* lend: lends blocks of this server's host to guests. The blocks of one question form a lease, which keeps their slots
 * unchanged until the guest returns it, its time is over, or the guest is gone. */
#include "base/check.h"
#include "base/log.h"
#include "kvcache/peer/peers_impl.h"
#include <string.h>

enum { LENT_SHARE = 4 }; /* at most a quarter of the host is lent to one guest, and half of it to all */

static void end_lease(struct peers *p, struct lease *l)
{
    for (uint32_t i = 0; i < l->n; i++) {
        CHECK(p->host->n_lent > 0);
        p->host->n_lent--;
        slot_unread(p->host, l->slot[i]);
    }
    l->used = false;
    l->n = 0;
}

/* Slots that one more lease of this guest may hold. Those of parcels do not count: they stay where they are anyway. */
static uint32_t room_for(const struct peers *p, uint32_t guest)
{
    uint32_t n = 0, all = 0, n_slot = p->host->n_slot;
    for (uint32_t i = 0; i < LEASES_MAX; i++) {
        const struct lease *l = &p->lease[i];
        if (l->used && l->guest == guest) n += l->n_own;
        if (l->used) all += l->n_own;
    }
    if (n >= n_slot / LENT_SHARE || all >= n_slot / 2) return 0;
    return n_slot / LENT_SHARE - n < n_slot / 2 - all ? n_slot / LENT_SHARE - n : n_slot / 2 - all;
}

/* Blocks with a retention rule of their users (memory only, or an end) are not lent, because a peer does not learn the
 * rule. Blocks that another process left are not lent either, because they are not proven. */
bool lend_may(const struct host_slot *s)
{
    return s->state == SLOT_READY && !s->doomed && !s->found && !s->hold.memory_only && !kv_hold_ends(&s->hold);
}

/* Answers a guest's question, also if nothing is lent, so that the guest need not wait. */
static void lend(struct peers *p, const struct peer_note *n)
{
    struct kv_host *h = p->host;
    struct lease   *l = p->lease;
    while (l < p->lease + LEASES_MAX && l->used) l++;
    bool              full = l == p->lease + LEASES_MAX;
    uint32_t          room = room_for(p, n->peer), n_own = 0;
    struct peer_note *a = &p->out;
    uint32_t          n_lent = 0;
    a->type = PEER_ANSWER;
    a->peer = n->peer;
    a->epoch = n->epoch;
    a->lease = n->lease;
    a->lease_ms = PEER_LEASE_MS;
    a->n = n->n;
    for (uint32_t i = 0; i < n->n; i++) {
        struct kv_key key;
        memcpy(key.b, n->key[i].b, sizeof key.b);
        int32_t s = full ? SLOT_NONE : slot_find(h, &key);
        bool    kept = s != SLOT_NONE && h->slot[s].kept;
        a->where[i] =
            (struct pwire_where){ .found = s != SLOT_NONE && (kept || n_own < room) && lend_may(&h->slot[s]) };
        if (!a->where[i].found) continue;
        n_own += !kept;
        a->where[i].slot = (uint32_t)s;
        a->where[i].payload = h->slot[s].payload;
        l->slot[n_lent++] = s;
    }
    if (!p->net->ops->send(p->net, a)) return; /* the guest gets no answer and waits until its time limit */
    if (!n_lent) return;
    for (uint32_t i = 0; i < n_lent; i++) {
        h->slot[l->slot[i]].readers++;
        slot_touch(h, l->slot[i]);
    }
    h->n_lent += n_lent;
    p->n_lent += n_lent;
    l->used = true;
    l->guest = n->peer;
    l->epoch = n->epoch;
    l->id = n->lease;
    l->n = n_lent;
    l->n_own = n_own;
    l->end_us = p->cfg.clock() + PEER_LEASE_MS * (uint64_t)1000;
}

void lend_hear(struct peers *p, const struct peer_note *n)
{
    if (n->type == PEER_ASKED) {
        lend(p, n);
        return;
    }
    for (uint32_t i = 0; i < LEASES_MAX; i++) {
        struct lease *l = &p->lease[i];
        if (!l->used || l->guest != n->peer || l->epoch != n->epoch) continue;
        if (n->type == PEER_GAVE_BACK && l->id != n->lease) continue;
        if (n->type == PEER_GAVE_BACK) p->n_taken += n->n < l->n ? n->n : l->n;
        end_lease(p, l);
    }
}

void lend_turn(struct peers *p, uint64_t now)
{
    for (uint32_t i = 0; p->host->n_lent && i < LEASES_MAX; i++)
        if (p->lease[i].used && now >= p->lease[i].end_us) end_lease(p, &p->lease[i]);
}

void lend_end_all(struct peers *p) { lend_turn(p, UINT64_MAX); }

bool lend_check(const struct peers *p)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < LEASES_MAX; i++) n += p->lease[i].used ? p->lease[i].n : 0;
    if (n == p->host->n_lent) return true;
    LOG_ERROR("peer: %u blocks are lent, leases hold %u", p->host->n_lent, n);
    return false;
}
