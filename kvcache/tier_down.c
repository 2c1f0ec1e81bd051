/* tier_down: from the device to the host while the device's tree holds it, from the host to a store before the host is
 * full. */
#include "base/check.h"
#include "kvcache/device/window.h"
#include "kvcache/tier_impl.h"

enum {
    WRITES_MAX = 16,
    OFFERED_MAX = 512,               /* blocks looked at in a turn */
    SHORT_US = 20000,                /* so long may a path hold what a prompt in the queue could use */
    PARCEL_WAIT_US = 5000000,        /* an answer waits no longer for its parcel */
    PLAIN_OFFERS = KV_OFFERS_MAX / 2 /* the others are for parcels */
};

/* ---- offers */

static void offer_end(struct kv_tiers *t, struct offer *o)
{
    if (o->parcel) parcel_made(t, o);
    kv_seq_release(t->cfg.kv, &o->kv);
    o->used = false;
}

/* Whether a block goes down. A block that was offered often does; a new one does when the device will soon need its
 * place. */
static bool is_worth(struct kv_tiers *t, const struct kv_key *key, bool parcel)
{
    uint32_t seen = sketch_add(&t->host, key);
    if (t->closing || t->hand.flushing || parcel) return true;
    if (t->cfg.keep_hits) return seen >= t->cfg.keep_hits;
    struct kv_stats s;
    kv_stats(t->cfg.kv, &s);
    return seen >= 2 || s.n_free < t->cfg.n_block / 2 || (t->n_piece && s.n_window_free < t->cfg.n_window / 2);
}

static void offer(struct kv_tiers *t, const struct kv_seq *s, uint32_t n_computed, struct kv_parcel *parcel)
{
    uint32_t      n = n_computed / t->cfg.block_tokens;
    struct offer *mine = t->offer + (parcel ? PLAIN_OFFERS : 0), *o = mine;
    struct offer *end = mine + (parcel ? KV_OFFERS_MAX - PLAIN_OFFERS : PLAIN_OFFERS);
    if (n > s->n_shared) n = s->n_shared; /* what is in the tree: full, computed and never written again */
    if (n == 0 || (t->frozen && !t->hand.flushing) || t->audit.purge) return;
    while (o < end && o->used) o++;
    if (o == end || kv_seq_open(t->cfg.kv, s->salt, &o->kv)) {
        t->stats.n_dropped += n;
        return;
    }
    o->parcel = parcel;
    o->parcel_us = t->cfg.clock() + PARCEL_WAIT_US;
    if (parcel) parcel->state = KV_PARCEL_MAKING;
    enum status st = kv_seq_hold(t->cfg.kv, s, &o->kv, n * t->cfg.block_tokens);
    CHECK(st == ST_OK);
    o->used = true;
    o->giving_up = false;
    o->n_block = n;
    o->next = o->piece = 0;
    o->n_flight = 0;
    o->mark = s->mark;
    o->short_us = 0;
    window_offer(t, o);
}

void kv_tiers_offer(struct kv_tiers *t, const struct kv_seq *s, uint32_t n_computed) { offer(t, s, n_computed, NULL); }

void kv_tiers_publish(struct kv_tiers *t, const struct kv_seq *s, uint32_t n_token, struct kv_parcel *out)
{
    out->n_block = 0;
    offer(t, s, n_token, out);
    if (out->state != KV_PARCEL_MAKING) out->state = KV_PARCEL_MADE;
}

void kv_tiers_unpublish(struct kv_tiers *t, struct kv_parcel *out)
{
    for (uint32_t i = 0; i < KV_OFFERS_MAX; i++)
        if (t->offer[i].used && t->offer[i].parcel == out) t->offer[i].parcel = NULL;
    out->state = KV_PARCEL_NONE;
}

/* The blocks of the path of which something is down, or on its way. */
static uint32_t begun(const struct offer *o) { return o->next + (o->piece > 0); }

bool kv_tiers_yield(struct kv_tiers *t, uint32_t n)
{
    uint32_t before = kv_available_count(t->cfg.kv);
    for (uint32_t i = 0; i < KV_OFFERS_MAX; i++) {
        struct offer *o = &t->offer[i];
        while (o->used && !o->giving_up && o->n_block > begun(o)) { /* what others hold as well frees nothing: on */
            uint32_t have = kv_available_count(t->cfg.kv) - before, less = o->n_block - begun(o);
            if (have >= n) return true;
            if (less > n - have) less = n - have;
            o->n_block -= less;
            t->stats.n_dropped += less;
            kv_seq_shrink(t->cfg.kv, &o->kv,
                          o->n_block * t->cfg.block_tokens); /* what is being copied stays, and its path */
        }
    }
    up_yield(t);
    return kv_available_count(t->cfg.kv) > before;
}

bool kv_tiers_yield_windows(struct kv_tiers *t)
{
    if (!t->n_piece) return false;
    uint32_t before = kv_window_available(t->cfg.kv);
    for (uint32_t i = 0; i < KV_OFFERS_MAX; i++) {
        struct offer *o = &t->offer[i];
        for (uint32_t k = o->used ? begun(o) : o->n_block; k < o->n_block; k++) kv_window_return(t->cfg.kv, &o->kv, k);
    }
    up_yield(t);
    return kv_window_available(t->cfg.kv) > before;
}

/* What is next of an offer's path: a block, or a piece of its block of the window's pool. */
struct cargo {
    struct kv_key key;
    uint32_t      seg;
    uint64_t      off;
};
static struct cargo cargo_of(struct kv_tiers *t, const struct offer *o)
{
    uint32_t     block = o->kv.block[o->next];
    struct cargo c = { tier_key(t, o->kv.salt, block), t->cfg.dev_seg, (uint64_t)block * t->cfg.block_bytes };
    if (!o->piece) return c;
    return (struct cargo){ kv_key_window(&c.key, o->piece - 1), t->cfg.win_seg,
                           window_off(t, o->kv.win[o->next], o->piece - 1) };
}

static void step_on(const struct kv_tiers *t, struct offer *o)
{
    bool more = o->piece < t->n_piece && o->kv.win[o->next] != KV_NONE;
    o->piece = more ? o->piece + 1 : 0;
    o->next += !more;
}

/* The next block of a path. false: not now. */
static bool offer_step(struct kv_tiers *t, struct offer *o)
{
    uint32_t      block = o->kv.block[o->next];
    struct cargo  cargo = cargo_of(t, o);
    struct kv_key key = cargo.key;
    bool          pinned = o->next < o->mark.n_block && !o->piece; /* a pin bounds the first pool only */
    int32_t       slot = slot_find(&t->host, &key);
    bool goes = is_worth(t, &key, o->parcel != NULL) && !(tiers_keep(t) && kv_block_hold(t->cfg.kv, block).memory_only);
    if (slot != SLOT_NONE && o->parcel && t->host.slot[slot].state == SLOT_FILLING)
        return false; /* another path or a load brings it */
    if (slot != SLOT_NONE) {
        slot_touch(&t->host, slot);
        slot_hold(&t->host, slot, kv_block_hold(t->cfg.kv, block));
        if (pinned) slot_pin(&t->host, slot, &o->mark);
    } else if (goes && (o->parcel || below_has(t, &key) < 0)) {
        struct host_flight *f = flight_new(&t->host, FLIGHT_OFFER);
        if (!f) return false;
        f->slot = slot_take(&t->host, &key);
        struct xfer_job j = { .src = cargo.seg,
                              .dst = t->host.seg,
                              .src_off = cargo.off,
                              .dst_off = (uint64_t)f->slot * t->host.stride + KV_RECORD_HEAD,
                              .bytes = (uint32_t)t->cfg.block_bytes,
                              .prio = XFER_STORE,
                              .digest_mode = XFER_DIGEST_MAKE,
                              .cookie = flight_cookie(&t->host, f) };
        if (f->slot == SLOT_NONE || xfer_post(t->cfg.xfer, &j, NULL)) {
            if (f->slot == SLOT_NONE && t->closing) {
                flight_free(&t->host, f);
                return false;
            } /* when a store has taken one */
            if (f->slot != SLOT_NONE) slot_drop(&t->host, f->slot);
            flight_free(&t->host, f);
            o->giving_up = true; /* the host is full of what is in use: nothing below has a place either */
            return true;
        }
        slot_hold(&t->host, f->slot, kv_block_hold(t->cfg.kv, block));
        if (pinned) slot_pin(&t->host, f->slot, &o->mark);
        f->owner = (uint32_t)(o - t->offer);
        f->block = o->next;
        f->piece = o->piece;
        o->n_flight++;
        t->n_down++;
    }
    step_on(t, o);
    return true;
}

void down_offer_done(struct kv_tiers *t, struct host_flight *f, const struct xfer_done *d)
{
    struct offer *o = &t->offer[f->owner];
    CHECK(o->used && o->n_flight > 0);
    o->n_flight--;
    t->n_down--;
    if (d->st) {
        slot_drop(&t->host, f->slot);
        t->stats.n_failed_io += d->st != ST_CANCELED;
        return;
    }
    struct kv_key parent = { { 0 } };
    /* What an adapter computed does not follow from its ids: no such block stands for those of its place
     * (kv_record_begins), because whoever computes it again may not have the adapter. */
    if (kv_salt_adapts(o->kv.salt)) parent = kv_key_root(&t->fingerprint, o->kv.salt);
    if (f->piece || f->block) parent = tier_key(t, o->kv.salt, o->kv.block[f->block - !f->piece]);
    struct kv_record_facts facts = { .fingerprint = &t->fingerprint,
                                     .key = &t->host.slot[f->slot].key,
                                     .parent = &parent,
                                     .ids = kv_block_ids(t->cfg.kv, o->kv.block[f->block]),
                                     .block_tokens = t->cfg.block_tokens,
                                     .payload_bytes = t->cfg.block_bytes,
                                     .payload = d->digest,
                                     .window = f->piece > 0 };
    kv_record_make(slot_page(&t->host, f->slot), &t->cfg.key,
                   &facts); /* the last page is filled up with zeros as before */
    slot_ready(&t->host, f->slot, d->digest);
    t->stats.tier[KV_TIER_HOST].store_blocks++;
    t->stats.tier[KV_TIER_HOST].bytes_in += t->cfg.block_bytes;
}

/* ---- to the stores */

uint64_t down_until_wall(const struct kv_tiers *t, const struct kv_hold *h)
{
    if (!kv_hold_ends(h)) return 0;
    uint32_t now_s = kv_now_s(t->cfg.kv);
    return t->cfg.wall() + (h->until_s > now_s ? h->until_s - now_s : 0);
}

static bool write_to(struct kv_tiers *t, int32_t slot, uint32_t store)
{
    struct host_slot *s = &t->host.slot[slot];
    CHECK(s->state == SLOT_READY);
    struct kv_below *b = t->below[store];
    if (t->n_writing >= WRITES_MAX &&
        t->n_writing >= tier_window(t, XFER_HOST, b->row->kind, t->host.stride, WRITES_MAX, TIER_WRITES))
        return false;
    struct host_flight *f = flight_new(&t->host, FLIGHT_WRITE);
    if (!f) return false;
    f->slot = slot;
    f->store = store;
    struct kv_write w = { .key = &s->key,
                          .host_seg = t->host.seg,
                          .host_off = (uint64_t)slot * t->host.stride,
                          .page = slot_page(&t->host, slot),
                          .until_s = down_until_wall(t, &s->hold),
                          .priority = s->hold.used ? s->hold.priority : 0,
                          .cookie = flight_cookie(&t->host, f) };
    if (b->row->write(b, &w, &f->place)) {
        flight_free(&t->host, f);
        return false;
    }
    s->readers++;
    t->n_writing++;
    return true;
}

bool down_write_one(struct kv_tiers *t, int32_t slot)
{
    return write_to(t, slot, below_for(t, &t->host.slot[slot].key));
}

void down_write_done(struct kv_tiers *t, struct host_flight *f, const struct xfer_done *d)
{
    struct kv_below *b = t->below[f->store];
    t->n_writing--;
    b->row->write_done(b, f->place, d->st);
    if (d->st == ST_OK) {
        if (below_keeps(t, f->store)) slot_below(&t->host, f->slot, f->store);
        t->stats.tier[b->row->tier].store_blocks++;
        t->stats.tier[b->row->tier].bytes_in += t->host.stride;
    } else {
        t->stats.n_failed_io++;
    }
    slot_unread(&t->host, f->slot);
}

/* Keeps an eighth of the host free or held by a store as well, so that making room for a block never waits for a
 * disk. */
static void write_ahead(struct kv_tiers *t)
{
    enum { LOOK = 512 };
    if (!t->n_writer || t->host.n_free > t->host.n_slot / 8 || !t->host.stirred) return;
    uint32_t margin = t->host.n_slot / 8, n = 0;
    if (margin < 1) margin = 1;
    for (int32_t i = slot_oldest(&t->host); i != SLOT_NONE && n < margin && n < LOOK;
         i = slot_newer(&t->host, i), n++) {
        struct host_slot *s = &t->host.slot[i];
        if (s->store || slot_n_other(s) || s->doomed || slot_hidden(t, i) || s->hold.memory_only ||
            s->class == KV_CLASS_ENDED)
            continue;
        int have = below_kept(t, &s->key);
        if (have >= 0) {
            slot_below(&t->host, i, (uint32_t)have);
            continue;
        }
        /* Once is not enough for flash; but with windows a path is of use at its end alone, and that was new. */
        if (!t->cfg.keep_hits && !t->n_piece && sketch_get(&t->host, &s->key) < 2) continue;
        if (!down_write_one(t, i)) return;
    }
    t->host.stirred = false;
}

/* Blocks on the host go to the eager place, also if another place has them. A turn looks at some slots, and at all of
 * them once after the host has changed. */
static void write_eagerly(struct kv_tiers *t)
{
    enum { LOOK = 64 };
    if (t->eager == BELOW_NONE || !below_takes(t, (uint32_t)t->eager)) return;
    struct kv_below *b = t->below[t->eager];
    if (t->eager_seen != t->host.n_stir) t->eager_left = t->host.n_slot;
    t->eager_seen = t->host.n_stir;
    for (uint32_t n = 0; n < LOOK && t->eager_left > 0; n++) {
        int32_t           i = (int32_t)t->eager_next;
        struct host_slot *s = &t->host.slot[i];
        bool              goes = s->state == SLOT_READY && !slot_n_other(s) && !s->doomed && !slot_hidden(t, i) &&
                    !s->hold.memory_only && s->class != KV_CLASS_ENDED && !b->row->has(b, &s->key);
        if (goes && !write_to(t, i, (uint32_t)t->eager)) return;
        t->eager_next = (t->eager_next + 1) % t->host.n_slot;
        t->eager_left--;
    }
}

void down_turn(struct kv_tiers *t)
{
    uint32_t left = OFFERED_MAX;
    uint32_t copies = t->cfg.copies_max;
    if (!t->copies_fixed && down_offered(t))
        copies = tier_window(t, XFER_DEVICE, XFER_HOST, t->cfg.block_bytes, copies, TIER_COPIES);
    bool is_short = tiers_short(t); /* others need what the offers hold: those that run are served by kv_tiers_yield */
    xfer_gather(t->cfg.xfer, true);
    for (uint32_t i = 0; i < KV_OFFERS_MAX; i++) { /* parcels first: answers wait for them */
        struct offer *o = &t->offer[(i + PLAIN_OFFERS) % KV_OFFERS_MAX];
        if (!o->used) continue;
        if (o->parcel && t->cfg.clock() > o->parcel_us) parcel_made(t, o); /* of what is there by now */
        uint64_t now = is_short ? t->cfg.clock() : 0;
        if (!is_short || !o->short_us) o->short_us = now;
        if (is_short && !o->giving_up && now - o->short_us > SHORT_US) {
            o->giving_up = true;
            t->stats.n_dropped += o->n_block - begun(o);
            kv_seq_shrink(t->cfg.kv, &o->kv,
                          begun(o) * t->cfg.block_tokens); /* what is being copied stays, and its path */
        }
        while (!o->giving_up && o->next < o->n_block && t->n_down < copies && left > 0 && offer_step(t, o)) left--;
        if (o->n_flight == 0 && (o->giving_up || o->next == o->n_block)) offer_end(t, o);
    }
    write_ahead(t);
    write_eagerly(t);
    xfer_gather(t->cfg.xfer, false);
}

void down_close(struct kv_tiers *t)
{
    for (uint32_t i = 0; i < KV_OFFERS_MAX; i++) {
        struct offer *o = &t->offer[i];
        if (!o->used) continue;
        o->giving_up = true;
        if (o->n_flight == 0) offer_end(t, o);
    }
}

bool down_offered(const struct kv_tiers *t)
{
    bool any = false;
    for (uint32_t i = 0; i < KV_OFFERS_MAX; i++) any |= t->offer[i].used;
    return any;
}
