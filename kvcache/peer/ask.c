/* ask: questions to the peers which blocks they have, the answers, and the leases that come with them. */
#include "base/check.h"
#include "base/log.h"
#include "kvcache/peer/peers_impl.h"
#include <stdio.h>
#include <string.h>

enum { LEASE_MS_MAX = 600000, AHEAD = 8 }; /* AHEAD: buckets fetched before they are needed */

/* ---- what is known */

static void drop_known(struct peers *p, int32_t k)
{
    struct known *e = &p->known[k];
    struct ask   *a = &p->ask[e->ask];
    CHECK(e->used && !e->reading && a->used && a->n_known > 0);
    chain_remove(&p->by_key, kv_key_hash(&e->key), k);
    a->n_known--;
    e->used = false;
    e->next = p->free;
    p->free = k;
    p->n_known--;
}

static int32_t find_known(const struct peers *p, const struct kv_key *key)
{
    int32_t k = chain_first(&p->by_key, kv_key_hash(key));
    while (k != CHAIN_NONE && !kv_key_equal(&p->known[k].key, key)) k = chain_next(&p->by_key, k);
    return k;
}

static void learn(struct peers *p, uint32_t ask, const struct kv_key *key, const struct pwire_where *w)
{
    int32_t k = p->free;
    if (k == NONE_KNOWN || find_known(p, key) != CHAIN_NONE) return;
    struct known *e = &p->known[k];
    p->free = e->next;
    *e = (struct known){
        .used = true, .ask = ask, .slot = w->slot, .gen = ++p->gen, .key = *key, .payload = w->payload
    };
    chain_add(&p->by_key, kv_key_hash(key), k);
    p->ask[ask].n_known++;
    p->n_known++;
}

int32_t ask_known(struct peers *p, const struct kv_key *key)
{
    int32_t k = find_known(p, key);
    if (k == CHAIN_NONE || p->known[k].reading) return NONE_KNOWN;
    const struct ask   *a = &p->ask[p->known[k].ask];
    const struct other *o = &p->other[a->peer];
    return o->up && o->epoch == a->epoch && o->seg && p->now_us < a->until_us ? k : NONE_KNOWN;
}

void ask_forget(struct peers *p, int32_t k, bool taken)
{
    p->ask[p->known[k].ask].n_taken += taken;
    drop_known(p, k);
}

uint64_t ask_forget_all(struct peers *p)
{
    uint64_t n = 0;
    for (int32_t k = 0; k < KNOWN_MAX; k++) {
        if (!p->known[k].used || p->known[k].reading) continue;
        drop_known(p, k);
        n++;
    }
    return n;
}

/* ---- questions */

static void answered(struct peers *p, struct ask *a)
{
    if (a->answered) return;
    a->answered = true;
    for (uint32_t i = 0; i < SEEKS_MAX; i++)
        if (p->seek[i].n_open && p->seek[i].ticket == a->ticket) p->seek[i].n_open--;
}

/* Ends a question: removes its known blocks, none of which is being read, and returns the lease to the peer. */
static void end_ask(struct peers *p, uint32_t i)
{
    struct ask *a = &p->ask[i];
    for (int32_t k = 0; a->n_known && k < KNOWN_MAX; k++)
        if (p->known[k].used && p->known[k].ask == i) drop_known(p, k);
    answered(p, a);
    p->out.type = PEER_GIVE_BACK;
    p->out.peer = a->peer;
    p->out.epoch = a->epoch;
    p->out.lease = a->lease;
    p->out.n = a->n_taken;
    if (p->other[a->peer].up && p->other[a->peer].epoch == a->epoch) (void)p->net->ops->send(p->net, &p->out);
    p->n_ask--;
    a->used = false; /* if the queue was full, the peer ends the lease at its time limit */
}

static bool ask_one(struct peers *p, uint32_t peer, const struct kv_key *key, uint32_t n, uint64_t ticket)
{
    struct ask *a = p->ask;
    while (a < p->ask + ASKS_MAX && a->used) a++;
    if (a == p->ask + ASKS_MAX) return false;
    struct peer_note *q = &p->out;
    q->type = PEER_ASK;
    q->peer = peer;
    q->epoch = p->other[peer].epoch;
    q->lease = ++p->n_lease;
    q->n = n;
    memcpy(q->key, key, n * sizeof *q->key);
    if (!p->net->ops->send(p->net, q)) return false;
    a->used = true;
    p->n_ask++;
    a->answered = false;
    a->peer = peer;
    a->n = n;
    a->epoch = q->epoch;
    a->lease = q->lease;
    a->ticket = ticket;
    a->sent_us = p->cfg.clock();
    a->until_us = a->sent_us + PEER_ANSWER_US;
    a->n_known = a->n_reading = a->n_taken = 0;
    memcpy(p->ask_key[a - p->ask], key, n * sizeof *key);
    return true;
}

bool ask_all(struct peers *p, uint32_t peer, const struct kv_key *key, uint32_t n, uint64_t *ticket_out)
{
    struct seek *s = p->seek;
    while (s < p->seek + SEEKS_MAX && s->n_open) s++;
    if (s == p->seek + SEEKS_MAX) return false;
    uint64_t ticket = p->n_ticket + 1;
    for (uint32_t i = 0; i < PEERS_MAX; i++) {
        if (!p->other[i].up || !p->other[i].seg || (peer != PEERS_MAX && peer != i)) continue;
        for (uint32_t at = 0; at < n; at += PWIRE_KEYS_MAX) {
            uint32_t more = n - at < PWIRE_KEYS_MAX ? n - at : PWIRE_KEYS_MAX;
            s->n_open += ask_one(p, i, key + at, more, ticket);
        }
    }
    if (!s->n_open) return false;
    s->ticket = *ticket_out = p->n_ticket = ticket;
    s->until_us = p->cfg.clock() + PEER_ANSWER_US;
    return true;
}

bool ask_open(const struct peers *p, uint64_t ticket)
{
    for (uint32_t i = 0; i < SEEKS_MAX; i++)
        if (p->seek[i].n_open && (!ticket || p->seek[i].ticket == ticket)) return true;
    return false;
}

/* Tells the lane to leave a peer alone. If its queue is full, a later turn tells it: a connection that nobody uses
 * would stay up, and the peer would never be connected to again. */
static void send_drop(struct peers *p, uint32_t peer)
{
    struct other *o = &p->other[peer];
    p->out.type = PEER_DROP;
    p->out.peer = peer;
    p->out.epoch = o->epoch;
    p->out.wait_ms = o->drop_ms;
    if (p->net->ops->send(p->net, &p->out)) o->drop_ms = 0;
}

void ask_turn(struct peers *p, uint64_t now)
{
    for (uint32_t i = 0; p->n_ask && i < ASKS_MAX; i++) {
        struct ask *a = &p->ask[i];
        if (!a->used) continue;
        bool over = now >= a->until_us || (a->answered && !a->n_known);
        if (over && !a->n_reading) end_ask(p, i);
    }
    for (uint32_t i = 0; i < SEEKS_MAX; i++)
        if (p->seek[i].n_open && now >= p->seek[i].until_us) p->seek[i].n_open = 0;
    for (uint32_t i = 0; i < PEERS_MAX; i++) { /* segments of lost peers whose last read has ended */
        struct other *o = &p->other[i];
        if (o->drop_ms) send_drop(p, i);
        if (o->up || !o->seg || o->n_read) continue;
        xfer_seg_drop(p->cfg.xfer, o->seg);
        o->seg = 0;
    }
}

/* ---- what they say */

static void come(struct peers *p, const struct peer_note *n)
{
    struct other *o = &p->other[n->peer];
    o->up = true;
    o->drop_ms = 0; /* of the connection before */
    o->epoch = n->epoch;
    o->bytes = n->bytes;
    o->n_bad = 0;
    snprintf(o->name, sizeof o->name, "%s", n->name);
    memcpy(o->id, n->id, sizeof o->id);
    if (o->seg && !o->n_read) {
        xfer_seg_drop(p->cfg.xfer, o->seg);
        o->seg = 0;
    }
    struct xfer_seg seg = { .kind = XFER_REMOTE, .fd = (int)n->peer, .epoch = n->epoch, .bytes = n->bytes };
    if (o->seg || xfer_seg_add(p->cfg.xfer, &seg, &o->seg)) {
        o->up = false; /* reads of its earlier segment are in flight, or xfer is full: a later connection is used */
        o->drop_ms = 1000;
        send_drop(p, n->peer);
    }
}

static void go(struct peers *p, const struct peer_note *n)
{
    struct other *o = &p->other[n->peer];
    if (o->epoch != n->epoch) return;
    o->up = false;
    for (uint32_t i = 0; i < ASKS_MAX; i++) {
        struct ask *a = &p->ask[i];
        if (!a->used || a->peer != n->peer || a->epoch != n->epoch) continue;
        a->until_us = 0;
        answered(p, a);
    }
}

static void hear_answer(struct peers *p, const struct peer_note *n)
{
    uint32_t i = 0;
    while (i < ASKS_MAX && !(p->ask[i].used && p->ask[i].peer == n->peer && p->ask[i].epoch == n->epoch &&
                             p->ask[i].lease == n->lease && !p->ask[i].answered))
        i++;
    if (i == ASKS_MAX) return; /* the answer is late, a repetition, or to no question of ours */
    struct ask         *a = &p->ask[i];
    const struct other *o = &p->other[n->peer];
    uint64_t            ms = n->lease_ms < LEASE_MS_MAX ? n->lease_ms : LEASE_MS_MAX;
    answered(p, a);
    if (n->n != a->n) {
        ask_doubt(p, n->peer);
        return;
    }
    a->until_us = a->sent_us + ms * 500; /* half of the lease, so that the last reads end within it */
    for (uint32_t k = 0; k < n->n; k++) {
        if (k + AHEAD < n->n) chain_fetch(&p->by_key, kv_key_hash(&p->ask_key[i][k + AHEAD]));
        if (!n->where[k].found) continue;
        if (((uint64_t)n->where[k].slot + 1) * p->record_bytes > o->bytes)
            ask_doubt(p, n->peer);
        else
            learn(p, i, &p->ask_key[i][k], &n->where[k]);
    }
}

void ask_hear(struct peers *p, const struct peer_note *n)
{
    CHECK(n->peer < PEERS_MAX);
    if (n->type == PEER_UP) come(p, n);
    if (n->type == PEER_DOWN) go(p, n);
    if (n->type == PEER_ANSWERED) hear_answer(p, n);
}

void ask_doubt(struct peers *p, uint32_t peer)
{
    struct other *o = &p->other[peer];
    if (!o->up || ++o->n_bad < PEER_BAD_MAX) return;
    LOG_WARN("peer: %s has given %u blocks that are not what they should be: it is left alone for %d s", o->name,
             o->n_bad, PEER_BAD_MS / 1000);
    struct peer_note bye = { .type = PEER_DOWN, .peer = peer, .epoch = o->epoch };
    o->drop_ms = PEER_BAD_MS;
    send_drop(p, peer);
    go(p, &bye);
}

bool ask_check(const struct peers *p)
{
    uint32_t n = 0, n_ask = 0, n_free = 0, n_read = 0, n_used = 0;
    for (int32_t k = 0; k < KNOWN_MAX; k++) {
        const struct known *e = &p->known[k];
        n += e->used;
        n_read += e->used && e->reading;
        if (e->used && (!p->ask[e->ask].used || find_known(p, &e->key) != k)) return false;
    }
    for (uint32_t i = 0; i < ASKS_MAX; i++) {
        const struct ask *a = &p->ask[i];
        if (!a->used) continue;
        n_used++;
        n_ask += a->n_known;
        n_read -= a->n_reading;
    }
    for (int32_t k = p->free; k != NONE_KNOWN && n_free <= KNOWN_MAX; k = p->known[k].next) n_free++;
    return n == p->n_known && n_ask == n && n_read == 0 && n_used == p->n_ask && n_free == KNOWN_MAX - n;
}
