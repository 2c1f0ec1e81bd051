/* peer_world: a world of tiers (tier_world.h) with the row of peers, and a peer that answers as it is told. For tests. */
#pragma once
#include "tier_world.h"
#include "kvcache/device/window.h"
#include "kvcache/peer/peers_impl.h"

enum { TOKENS = 41, BLOCKS = (TOKENS - 1) / BT, RECORD = 8192, SLOTS = 64 };
enum { PIECE_AT = BLOCKS }; /* slots of the peer's slab: its blocks, then the pieces of each */

enum lie {
    HONEST,
    FLIPPED,
    OTHER_BLOCK,
    OTHER_TENANT,
    OTHER_MODEL,
    OTHER_SEED,
    STALE,
    TRUNCATED,
    HEAD, /* of a record: its priority, which no key says anything of */
    NOTHING,
    LIES,
    COUNT = LIES,
    FAR_SLOT,
    TWICE,
    OTHER_LEASE,
    SILENT
};

/* ---- the net: notes to the tiers wait here, and what they send is looked at at once */

static struct {
    struct peer_net      net;
    struct peer_note     to[32];
    uint32_t             n_to, n_ask, n_give_back, n_taken, n_drop, n_full; /* n_full: DROPs that find the queue full */
    enum lie             lie;
    struct peer_note     last_answer; /* of the tiers, to a guest */
    struct peer_note     last_claim;
    uint32_t             n_claim, n_done, asked_peer;
    bool                 identified;
    struct pwire_bytes32 fingerprint;
    uint64_t             epoch;
    uint32_t             n_has, win_from, win_to; /* of the prompt's blocks; windows of these of them */
} fake;
static unsigned char slab[SLOTS * RECORD];

static struct peer_note *note_to(enum peer_note_type type, uint32_t peer)
{
    assert_true(fake.n_to < 32);
    struct peer_note *n = &fake.to[fake.n_to++];
    memset(n, 0, sizeof *n);
    n->type = type;
    n->peer = peer;
    n->epoch = fake.epoch;
    return n;
}

static bool fake_recv(struct peer_net *net, struct peer_note *out)
{
    (void)net;
    if (!fake.n_to) return false;
    *out = fake.to[0];
    memmove(fake.to, fake.to + 1, --fake.n_to * sizeof *fake.to);
    return true;
}

/* The slot of a key, of the user's blocks and pieces that the peer has. */
static struct user *asked_by;
static int          slot_of_key(const struct pwire_bytes32 *key)
{
    struct kv_key k = kv_key_root((const struct kv_key *)&fake.fingerprint, asked_by->salt);
    for (uint32_t b = 0; b < fake.n_has; b++) {
        k = kv_key_next(&k, asked_by->ids + b * BT, BT);
        if (!memcmp(&k, key, sizeof k)) return (int)b;
        for (uint32_t i = 0; i < PIECES && b >= fake.win_from && b < fake.win_to; i++) {
            struct kv_key piece = kv_key_window(&k, i);
            if (!memcmp(&piece, key, sizeof piece)) return (int)(PIECE_AT + b * PIECES + i);
        }
    }
    return -1;
}

static void answer(const struct peer_note *q)
{
    for (int times = 0; times < (fake.lie == TWICE ? 2 : 1); times++) {
        struct peer_note *a = note_to(PEER_ANSWERED, q->peer);
        a->lease = q->lease + (fake.lie == OTHER_LEASE);
        a->lease_ms = PEER_LEASE_MS;
        a->n = fake.lie == COUNT ? q->n + 1 : q->n;
        for (uint32_t i = 0; i < q->n; i++) {
            int b = slot_of_key(&q->key[i]);
            if (b < 0) continue;
            const struct kv_record *r = kv_record_of(slab + b * RECORD);
            a->where[i] = (struct pwire_where){ .found = true, .slot = (uint32_t)b, .payload = r->payload };
            if (fake.lie == FAR_SLOT) a->where[i].slot = SLOTS;
        }
    }
}

static bool fake_send(struct peer_net *net, const struct peer_note *n)
{
    (void)net;
    switch (n->type) {
    case PEER_IDENT:
        fake.identified = true;
        fake.fingerprint = n->fingerprint;
        assert_int_equal(n->record_bytes, RECORD);
        break;
    case PEER_CLAIM:
        fake.last_claim = *n;
        fake.n_claim++;
        fake.n_done += n->done;
        break;
    case PEER_ASK:
        fake.n_ask++;
        fake.asked_peer = n->peer;
        assert_int_equal(n->epoch, fake.epoch);
        if (fake.lie != SILENT) answer(n);
        break;
    case PEER_GIVE_BACK:
        fake.n_give_back++;
        fake.n_taken += n->n;
        break;
    case PEER_ANSWER: fake.last_answer = *n; break;
    case PEER_DROP:
        if (fake.n_full) {
            fake.n_full--;
            return false;
        }
        fake.n_drop++;
        assert_int_equal(n->wait_ms, PEER_BAD_MS);
        break;
    default: fail();
    }
    return true;
}
static const struct peer_net_ops fake_ops = { .send = fake_send, .recv = fake_recv };

/* ---- the peer's slab */

static void fill_piece(const struct world *w, const struct user *u, uint32_t b, uint32_t piece, const struct kv_key *at)
{
    unsigned char    *page = slab + (PIECE_AT + b * PIECES + piece) * RECORD, win[WIN_BLOCK];
    struct digest_key dk = { .seed = 5 };
    struct kv_key     key = kv_key_window(at, piece);
    win_content(u->salt, u->ids, b, win);
    memcpy(page + KV_RECORD_HEAD, win + (piece + 1 < PIECES ? piece * BLOCK : WIN_BLOCK - BLOCK), BLOCK);
    struct kv_record_facts facts = { .fingerprint = &w->t->fingerprint,
                                     .key = &key,
                                     .parent = at,
                                     .ids = u->ids + b * BT,
                                     .block_tokens = BT,
                                     .payload_bytes = BLOCK,
                                     .payload = digest_of(&dk, page + KV_RECORD_HEAD, BLOCK),
                                     .window = true };
    kv_record_make(page, &dk, &facts);
}

/* Slot b has block b of the user's prompt, or a lie about it. */
static void fill_slab(struct world *w, const struct user *u, enum lie lie)
{
    struct kv_key fingerprint = w->t->fingerprint, before = kv_key_root(&fingerprint, u->salt), none = { { 0 } };
    memset(slab, 0, sizeof slab);
    for (uint32_t b = 0; b < BLOCKS; b++) {
        unsigned char    *page = slab + b * RECORD, *payload = page + KV_RECORD_HEAD;
        struct digest_key dk = { .seed = lie == OTHER_SEED ? 6 : 5 };
        struct kv_key     key = kv_key_next(&before, u->ids + b * BT, BT), told = key, model = fingerprint;
        uint32_t          ids[BT];
        memcpy(ids, u->ids + b * BT, sizeof ids);
        content(u->salt, u->ids, b, payload);
        if (lie == OTHER_MODEL) model.b[0] ^= 1;
        if (lie == OTHER_TENANT) content((struct kv_salt){ 99, 99 }, u->ids, b, payload);
        if (lie == OTHER_TENANT) told.b[3] ^= 1;
        if (lie == OTHER_BLOCK) ids[1]++; /* forged: the key of this block, the bytes and tokens of another one */
        struct kv_record_facts facts = { .fingerprint = &model,
                                         .key = &told,
                                         .parent = b ? &before : &none,
                                         .ids = ids,
                                         .block_tokens = BT,
                                         .payload_bytes = BLOCK,
                                         .payload = digest_of(&dk, payload, BLOCK) };
        kv_record_make(page, &dk, &facts);
        if (lie == FLIPPED) payload[b * 7 % BLOCK] ^= 4;
        if (lie == STALE) content((struct kv_salt){ 1, 2 }, u->ids, b, payload);
        if (lie == HEAD) page[offsetof(struct kv_record, priority)] ^= 1;
        if (lie == TRUNCATED) memset(payload + BLOCK / 2, 0, BLOCK - BLOCK / 2);
        if (lie == NOTHING) memset(page, 0, RECORD);
        for (uint32_t i = 0; i < PIECES; i++) fill_piece(w, u, b, i, &key);
        before = key;
    }
}

static void open_peers_world(struct world *w)
{
    memset(&fake, 0, sizeof fake);
    fake.net.ops = &fake_ops;
    fake.epoch = 7;
    fake.n_has = fake.win_to = BLOCKS;
    below_rows[0] = &kv_peers;
    below_peers = &fake.net;
    remote_bytes = slab;
    open_world(w, 3, false);
    turn(w, 100);
    assert_true(fake.identified);
    note_to(PEER_UP, 2)->bytes = sizeof slab;
    turn(w, 100);
}

static void close_peers_world(struct world *w)
{
    close_world(w, false);
    below_rows[0] = NULL;
    below_peers = NULL;
}

/* The prompt of a family comes to a server that has nothing of it. Every block that it finds cached is compared. */
static uint32_t come(struct world *w, uint32_t family, enum lie lie, struct user *u)
{
    ask_for(u, family, TOKENS, 1000);
    asked_by = u;
    fake.lie = lie;
    fill_slab(w, u, lie);
    for (int i = 0; !try_admit(w, u); i++) {
        assert_true(i < 20000);
        turn(w, 100);
    }
    return u->n_hit;
}
