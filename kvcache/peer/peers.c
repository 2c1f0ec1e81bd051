#include "kvcache/peer/peers.h"
#include "base/check.h"
#include "base/log.h"
#include "kvcache/peer/peers_impl.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NOTES_A_TURN = 16 };

static struct peers       *of(struct kv_below *b) { return (struct peers *)b; } /* below is its first member */
static const struct peers *in(const struct kv_below *b) { return (const struct peers *)b; }

static void close_peers(struct kv_below *b)
{
    struct peers *p = of(b);
    lend_end_all(p);
    parcel_end_all(p);
    for (uint32_t i = 0; i < PEERS_MAX; i++)
        if (p->other[i].seg) xfer_seg_drop(p->cfg.xfer, p->other[i].seg);
    chain_free(&p->by_key);
    free(p->cell);
    free(p);
}

static enum status open_peers(const struct kv_below_cfg *c, struct kv_below **b_out, char *err, size_t err_bytes)
{
    struct peers *p = calloc(1, sizeof *p);
    CHECK(c->peers && c->host);
    if (!p || chain_init(&p->by_key, KNOWN_MAX, &p->known[0].next, sizeof p->known[0])) {
        free(p);
        snprintf(err, err_bytes, "no memory for what peers have");
        return ST_NOMEM;
    }
    p->below.row = &kv_peers;
    p->cfg = *c;
    p->host = c->host;
    p->net = c->peers;
    p->record_bytes = kv_record_bytes(c->payload_bytes);
    p->read = (struct xfer_job){ .bytes = (uint32_t)p->record_bytes,
                                 .skip = KV_RECORD_HEAD,
                                 .head = KV_RECORD_SEALED,
                                 .tail = (uint32_t)(p->record_bytes - KV_RECORD_HEAD - c->payload_bytes),
                                 .digest_mode = XFER_DIGEST_CHECK };
    if (parcel_open(p)) {
        chain_free(&p->by_key);
        free(p);
        snprintf(err, err_bytes, "no memory for what is kept for peers");
        return ST_NOMEM;
    }
    p->free = NONE_KNOWN;
    for (int32_t k = KNOWN_MAX; k-- > 0;) {
        p->known[k].next = p->free;
        p->free = k;
    }
    *b_out = &p->below;
    return ST_OK;
}

static bool find(struct kv_below *b, const struct kv_key *key, struct kv_place *place_out)
{
    struct peers *p = of(b);
    int32_t       k = ask_known(p, key);
    if (k == NONE_KNOWN) return false;
    *place_out = (struct kv_place){
        .segment = p->ask[p->known[k].ask].peer, .index = (uint32_t)k, .gen = p->known[k].gen, .seq = KV_SEQ_ANY
    };
    return true;
}

static bool seek(struct kv_below *b, const struct kv_claim *claim, const struct kv_key *key, uint32_t n,
                 uint64_t *ticket_out)
{
    uint32_t peer = claim ? claim_peer(of(b), claim->engine) : PEERS_MAX;
    return (!claim || peer != PEERS_MAX) && ask_all(of(b), peer, key, n, ticket_out);
}

static bool sought(const struct kv_below *b, uint64_t ticket) { return !ask_open(in(b), ticket); }
static bool seeking(const struct kv_below *b) { return ask_open(in(b), 0); }

/* Always false: a peer's copy is no reason not to store a block here. */
static bool has(const struct kv_below *b, const struct kv_key *key)
{
    (void)b;
    (void)key;
    return false;
}

static enum status read_record(struct kv_below *b, const struct kv_read *r, struct kv_place *place_out,
                               uint64_t *ticket_out)
{
    struct peers *p = of(b);
    if (!find(b, r->key, place_out)) return ST_NOT_FOUND;
    place_out->sealed = true;
    struct known    *e = &p->known[place_out->index];
    struct other    *o = &p->other[place_out->segment];
    struct xfer_job *j = &p->read;
    j->src = o->seg;
    j->dst = r->host_seg;
    j->src_off = e->slot * p->record_bytes;
    j->dst_off = r->host_off;
    j->prio = r->prio;
    j->digest = e->payload;
    j->deadline_us = r->deadline_us;
    j->post_us = r->post_us;
    j->cookie = r->cookie;
    enum status st = xfer_post(p->cfg.xfer, j, ticket_out);
    if (st) return st;
    e->reading = true;
    p->ask[e->ask].n_reading++;
    o->n_read++;
    return ST_OK;
}

static void fetch(const struct kv_below *b, const struct kv_key *key, const struct kv_place *place)
{
    chain_fetch(&in(b)->by_key, kv_key_hash(key));
    __builtin_prefetch(&in(b)->known[place->index]);
}

static void read_done(struct kv_below *b, struct kv_place place, bool bad)
{
    struct peers *p = of(b);
    struct known *e = &p->known[place.index];
    CHECK(e->used && e->reading && e->gen == place.gen && p->other[place.segment].n_read > 0);
    e->reading = false;
    p->ask[e->ask].n_reading--;
    p->other[place.segment].n_read--;
    bool same = p->ask[e->ask].epoch == p->other[place.segment].epoch;
    ask_forget(p, (int32_t)place.index, !bad);
    if (bad && same) ask_doubt(p, place.segment);
}

static void turn(struct kv_below *b)
{
    struct peers *p = of(b);
    if (!p->identified) {
        p->out.type = PEER_IDENT;
        p->out.record_bytes = p->record_bytes;
        memcpy(p->out.fingerprint.b, p->cfg.fingerprint.b, sizeof p->out.fingerprint.b);
        p->identified = p->net->ops->send(p->net, &p->out);
    }
    for (int i = 0; i < NOTES_A_TURN && p->net->ops->recv(p->net, &p->in); i++) {
        enum peer_note_type t = p->in.type;
        if (t == PEER_CLAIMED)
            parcel_hear(p, &p->in);
        else if (t == PEER_ASKED || t == PEER_GAVE_BACK || t == PEER_GONE)
            lend_hear(p, &p->in);
        else
            ask_hear(p, &p->in);
    }
    uint64_t now = p->now_us = p->cfg.clock();
    lend_turn(p, now);
    parcel_turn(p, now);
    claim_turn(p, now);
    ask_turn(p, now);
}

static bool busy(const struct kv_below *b)
{
    (void)b;
    return false;
}

static void stats(const struct kv_below *b, struct kv_below_stats *out)
{
    *out = (struct kv_below_stats){ .n_block = in(b)->n_known, .parcels = in(b)->parcels };
    out->parcels.n_block = in(b)->host->n_kept;
}

static enum status check(const struct kv_below *b)
{
    if (ask_check(in(b)) && lend_check(in(b)) && parcel_check(in(b))) return ST_OK;
    LOG_ERROR("peer: what is known of peers' blocks is not what it says");
    return ST_INVALID;
}

static uint64_t purge(struct kv_below *b)
{
    lend_end_all(of(b));
    parcel_end_all(of(b));
    return ask_forget_all(of(b));
}

static uint32_t keep(struct kv_below *b, const struct kv_key *first, const int32_t *slot, uint32_t n,
                     unsigned char id_out[KV_PARCEL_ID])
{
    return parcel_keep(of(b), first, slot, n, id_out);
}

static bool claim(struct kv_below *b, struct kv_claim *c, const struct kv_key *first)
{
    return claim_begin(of(b), c, first);
}

static void end_claim(struct kv_below *b, struct kv_claim *c, uint32_t n) { claim_end(of(b), c, n); }

static bool knows(const struct kv_below *b, const struct kv_claim *c)
{
    return claim_peer(in(b), c->engine) != PEERS_MAX;
}

static const struct kv_below_parcels parcels = { keep, claim, end_claim, knows };

const struct kv_below_row kv_peers = { .name = "a peer",
                                       .tier = KV_TIER_PEER,
                                       .kind = XFER_REMOTE,
                                       .open = open_peers,
                                       .close = close_peers,
                                       .find = find,
                                       .seek = seek,
                                       .sought = sought,
                                       .seeking = seeking,
                                       .has = has,
                                       .read = read_record,
                                       .fetch = fetch,
                                       .read_done = read_done,
                                       .turn = turn,
                                       .busy = busy,
                                       .stats = stats,
                                       .check = check,
                                       .purge = purge,
                                       .parcels = &parcels };
