/* claim: parcels of peers that requests here wait for (kvcache/parcel.h). A claim is said to the peer at once, again
 * every KV_CLAIM_US while its request waits, and a last time when the request has its blocks or needs them no more. */
#include "base/check.h"
#include "kvcache/peer/peers_impl.h"
#include <string.h>

uint32_t claim_peer(const struct peers *p, const unsigned char engine[KV_PARCEL_ID])
{
    for (uint32_t i = 0; i < PEERS_MAX; i++)
        if (p->other[i].up && p->other[i].seg && !memcmp(p->other[i].id, engine, KV_PARCEL_ID)) return i;
    return PEERS_MAX;
}

static void say(struct peers *p, const struct claimed *c, bool done, uint32_t n)
{
    uint32_t i = claim_peer(p, c->engine);
    if (i == PEERS_MAX) return;
    p->out.type = PEER_CLAIM;
    p->out.peer = i;
    p->out.epoch = p->other[i].epoch;
    memcpy(p->out.id, c->id, sizeof p->out.id);
    memcpy(&p->out.first, &c->first, sizeof p->out.first);
    p->out.done = done;
    p->out.n = n;
    (void)p->net->ops->send(p->net, &p->out); /* if the queue is full, the next claim counts, or the time limit */
}

bool claim_begin(struct peers *p, struct kv_claim *c, const struct kv_key *first)
{
    uint32_t i = 0;
    CHECK(!c->row);
    while (i < CLAIMS_MAX && p->claim[i].used) i++;
    if (i == CLAIMS_MAX) return false;
    struct claimed *to = &p->claim[i];
    to->used = true;
    memcpy(to->engine, c->engine, sizeof to->engine);
    memcpy(to->id, c->id, sizeof to->id);
    to->first = *first;
    to->next_us = p->cfg.clock() + KV_CLAIM_US;
    p->n_claim++;
    c->row = 1 + i;
    say(p, to, false, 0);
    return true;
}

void claim_end(struct peers *p, struct kv_claim *c, uint32_t n)
{
    if (!c->row) return;
    struct claimed *from = &p->claim[c->row - 1];
    CHECK(from->used && p->n_claim > 0);
    say(p, from, true, n);
    from->used = false;
    p->n_claim--;
    c->row = 0;
}

void claim_turn(struct peers *p, uint64_t now)
{
    for (uint32_t i = 0; p->n_claim && i < CLAIMS_MAX; i++) {
        struct claimed *c = &p->claim[i];
        if (!c->used || now < c->next_us) continue;
        c->next_us = now + KV_CLAIM_US;
        say(p, c, false, 0);
    }
}
