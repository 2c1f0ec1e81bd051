/* tier_audit: blocks that came from another process, or from below, are computed again and compared with what they
 * brought.
 *
 * A canary: what is found in a folder, or handed over in a slab, is hidden until one of its blocks has been computed
 * again. The first block of a prompt is taken: its ids, which stand in its record, are all that its bytes depend on.
 * Prompts that would find something wait for that, at most as long as computing them would take; the canary goes before
 * other work, once for a folder or a slab. A sample: of the blocks that loads have brought up, one in cfg.audit_every
 * is computed again over the blocks before it, when the engine has nothing else to do: as many rows as a block has,
 * wherever it stands in its prompt.
 * Of layers with a window that have a pool of their own nothing is compared: what they hold goes into the other layers
 * of the same rows.
 * Bits of a row depend on the row alone (the first promise), so what differs was not computed by this arithmetic, or
 * not by this model, whatever its identity says. Then all of it is in doubt, what was computed on top of it too:
 * device, host and folders are emptied.
 *
 *   NONE -> READING -> READY -> RUNNING -> COPYING -> NONE      a canary; of the slab it begins with READY
 *        -> NOTED ------------> RUNNING -> COPYING -> NONE      a sample; a canary takes its place */
#include "base/check.h"
#include "base/log.h"
#include "kvcache/tier_impl.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SLOTS_A_TURN = 512, /* looked at for a canary */
    FAILS_MAX = 3,      /* steps that could not be run, in a row: that source is given up */
};
enum { SOURCE_SLAB = KV_STORES_MAX }; /* audit.source; below: a store */

static unsigned char *brought(const struct kv_tiers *t) { return t->audit.scratch; } /* a record */
static unsigned char *computed(const struct kv_tiers *t)
{
    return t->audit.scratch + t->host.stride;
} /* the bytes of a block */

enum status audit_open(struct kv_tiers *t)
{
    struct audit *a = &t->audit;
    if (!t->cfg.audit) return ST_OK;
    a->scratch = aligned_alloc(KV_RECORD_HEAD, 2 * t->host.stride);
    a->ids = calloc(t->cfg.seq_tokens_max + t->cfg.block_tokens, sizeof *a->ids);
    if (!a->scratch || !a->ids) return ST_NOMEM;
    memset(a->scratch, 0, 2 * t->host.stride);
    struct xfer_seg seg = { .kind = XFER_HOST, .base = a->scratch, .bytes = 2 * t->host.stride };
    enum status     st = xfer_seg_add(t->cfg.xfer, &seg, &a->seg);
    a->open = st == ST_OK;
    return st;
}

void audit_close(struct kv_tiers *t)
{
    struct audit *a = &t->audit;
    if (a->open) xfer_seg_drop(t->cfg.xfer, a->seg);
    free(a->scratch);
    free(a->ids);
}

/* ---- what is hidden */

void audit_slab_found(struct kv_tiers *t)
{
    for (uint32_t i = 0; i < t->host.n_slot; i++) t->host.slot[i].found = t->host.slot[i].state == SLOT_READY;
    t->audit.slab_unproven = t->cfg.audit && t->host.n_ready > 0;
    t->audit.next_slot = 0;
}

/* A canary will say more of what this block is. */
bool audit_hides(struct kv_tiers *t, const struct kv_key *key)
{
    int32_t slot = slot_find(&t->host, key);
    if (slot != SLOT_NONE) return slot_hidden(t, slot);
    return below_hides(t, key);
}

uint32_t audit_drop_slots(struct kv_tiers *t, bool all)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->host.n_slot; i++) {
        if (t->host.slot[i].state != SLOT_READY || !(all || t->host.slot[i].found)) continue;
        if (t->host.slot[i].readers) {
            t->host.slot[i].doomed = 1;
        } else {
            slot_drop(&t->host, (int32_t)i);
        }
        n++;
    }
    return n;
}

static const char *name_of(const struct kv_tiers *t, uint32_t source)
{
    return source == SOURCE_SLAB ? "the host memory that was handed over" : t->cfg.store[source].dir;
}

static void give_up_source(struct kv_tiers *t, uint32_t source, const char *why)
{
    uint64_t n;
    if (source == SOURCE_SLAB) {
        n = audit_drop_slots(t, false);
        t->audit.slab_unproven = false;
    } else {
        n = t->below[source]->row->proof->forget_found(t->below[source]);
    }
    LOG_WARN("kv: %" PRIu64 " blocks of %s are not used: %s", n, name_of(t, source), why);
}

static void believe(struct kv_tiers *t, uint32_t source)
{
    if (source == SOURCE_SLAB)
        t->audit.slab_unproven = false;
    else
        t->below[source]->row->proof->believe(t->below[source]);
    t->audit.n_fail = 0;
    LOG_INFO("kv: a block of %s was computed again and is the same to the bit: what is there is used",
             name_of(t, source));
}

/* ---- canaries */

static void ready(struct kv_tiers *t)
{
    struct audit           *a = &t->audit;
    const struct kv_record *r = kv_record_of(brought(t));
    memcpy(a->ids, r->ids, t->cfg.block_tokens * sizeof *a->ids);
    a->block = 0;
    a->salt = (struct kv_salt){ 0 }; /* of no matter: nothing is looked up */
    a->state = AUDIT_READY;
}

/* A few slots of the slab, from where the last turn ended. false: there is nothing more to look at. */
static bool slab_canary(struct kv_tiers *t)
{
    struct audit *a = &t->audit;
    for (uint32_t n = 0; n < SLOTS_A_TURN && a->next_slot < t->host.n_slot; n++) {
        int32_t           i = (int32_t)a->next_slot++;
        struct host_slot *s = &t->host.slot[i];
        if (s->state != SLOT_READY || !s->found || s->doomed) continue;
        const unsigned char *page = slot_page(&t->host, i);
        enum kv_doubt why = kv_record_check(page, &t->cfg.key, &t->fingerprint, &s->key, NULL, t->cfg.block_tokens,
                                            t->cfg.block_bytes, KV_SEQ_ANY);
        if (!why && !kv_record_begins(kv_record_of(page))) continue;
        if (!why && !digest_equal(digest_of(&t->cfg.key, page + KV_RECORD_HEAD, t->cfg.block_bytes), s->payload))
            why = KV_DOUBT_PAYLOAD;
        if (why) { /* as when a load finds it so */
            tier_doubt(t, NULL, why);
            if (!s->readers) slot_drop(&t->host, i);
            continue;
        }
        memcpy(brought(t), page, t->host.stride);
        a->canary = true;
        a->source = SOURCE_SLAB;
        ready(t);
        return true;
    }
    return a->next_slot < t->host.n_slot;
}

static bool store_canary(struct kv_tiers *t, uint32_t i)
{
    struct audit    *a = &t->audit;
    struct kv_below *b = t->below[i];
    if (!b->row->proof->canary(b, &a->key)) return false;
    struct host_flight *f = flight_new(&t->host, FLIGHT_AUDIT_READ);
    if (!f) return false;
    f->store = i;
    struct kv_read r = { .key = &a->key, .host_seg = a->seg, .prio = XFER_LOAD, .cookie = flight_cookie(&t->host, f) };
    if (b->row->read(b, &r, &f->place, &a->ticket)) {
        flight_free(&t->host, f);
        return false;
    }
    a->canary = true;
    a->source = i;
    a->state = AUDIT_READING;
    return true;
}

static void find_canary(struct kv_tiers *t)
{
    struct audit *a = &t->audit;
    if (a->slab_unproven) {
        if (!slab_canary(t))
            give_up_source(t, SOURCE_SLAB, "none of them begins a prompt, so none can be computed again");
        return;
    }
    for (uint32_t i = 0; i < t->n_below; i++) {
        const struct kv_below_proof *p = t->below[i]->row->proof;
        if (!p) continue;
        if (p->hopeless(t->below[i]))
            give_up_source(t, i, "none of them begins a prompt, so none can be computed again");
        else if (store_canary(t, i))
            return;
    }
}

void audit_read_done(struct kv_tiers *t, struct host_flight *f, const struct xfer_done *d)
{
    struct audit *a = &t->audit;
    CHECK(a->state == AUDIT_READING);
    enum kv_doubt            why = d->st == ST_INVALID ? KV_DOUBT_PAYLOAD : KV_SURE;
    const struct digest_key *mac = f->place.old_key ? t->cfg.old_key : &t->cfg.key;
    if (d->st == ST_OK)
        why = kv_record_check(brought(t), mac, &t->fingerprint, &a->key, NULL, t->cfg.block_tokens, t->cfg.block_bytes,
                              f->place.seq);
    if (d->st == ST_OK && !why && f->place.old_key) kv_record_rekey(brought(t), &t->cfg.key, d->digest);
    if (d->st == ST_OK && !why && !kv_record_begins(kv_record_of(brought(t))))
        why = KV_DOUBT_HEAD; /* the index said that it does */
    tier_doubt(t, t->below[f->store], why);
    t->stats.n_failed_io += d->st == ST_IO;
    t->below[f->store]->row->read_done(t->below[f->store], f->place,
                                       why != KV_SURE || d->st == ST_IO); /* another one is taken in its place */
    a->state = AUDIT_NONE;
    if (d->st == ST_OK && !why && !a->stopping) ready(t);
}

/* ---- samples */

void audit_note(struct kv_tiers *t, const struct load *l, uint32_t k)
{
    struct audit *a = &t->audit;
    if (kv_salt_adapts(l->kv.salt)) return; /* it would be computed again without the adapter */
    if (!t->cfg.audit || !t->cfg.audit_every || ++a->n_loaded % t->cfg.audit_every) return;
    int32_t slot = slot_find(&t->host, &l->key[k]);
    bool    waits = a->state == AUDIT_NOTED; /* the newest is as good as any, and its prefix is still there */
    if ((a->state != AUDIT_NONE && !waits) || slot == SLOT_NONE || t->host.slot[slot].state != SLOT_READY) return;
    memcpy(brought(t), slot_page(&t->host, slot), t->host.stride);
    a->block = l->first + k;
    memcpy(a->ids, l->ids, (size_t)(a->block + 1) * t->cfg.block_tokens * sizeof *a->ids);
    a->salt = l->kv.salt;
    a->canary = false;
    a->state = AUDIT_NOTED;
}

/* ---- computing it again */

static void end(struct kv_tiers *t)
{
    struct audit *a = &t->audit;
    if (a->state == AUDIT_RUNNING || a->state == AUDIT_COPYING) kv_seq_release(t->cfg.kv, &a->kv);
    a->state = AUDIT_NONE;
}

/* A block of its own behind those that the device has of its prefix. */
static bool take_blocks(struct kv_tiers *t)
{
    struct audit  *a = &t->audit;
    struct kv     *kv = t->cfg.kv;
    uint32_t       bt = t->cfg.block_tokens, n = a->block * bt, n_copy = 0;
    struct kv_copy copy[1];
    if (kv_seq_open(kv, a->salt, &a->kv)) return false;
    bool ok = !n || kv_seq_match(kv, &a->kv, a->ids, n + 1) == n;
    if (ok && kv_seq_reserve(kv, &a->kv, n + bt, copy, &n_copy) == ST_OK) {
        CHECK(n_copy == 0); /* nothing of a matched prefix is written */
        return true;
    }
    kv_seq_release(kv, &a->kv);
    return false;
}

bool kv_tiers_audit(struct kv_tiers *t, bool idle, struct kv_audit_rows *out)
{
    struct audit *a = &t->audit;
    uint32_t      bt = t->cfg.block_tokens;
    bool          now = a->state == AUDIT_READY || (a->state == AUDIT_NOTED && idle);
    if (!now || t->frozen || t->closing || a->purge) return false;
    if (!take_blocks(t)) {
        if (!a->canary) end(t); /* its prefix has gone, or the device is full of what is in use */
        return false;
    }
    a->state = AUDIT_RUNNING;
    *out = (struct kv_audit_rows){
        a->ids + (size_t)a->block * bt, bt, a->block * bt, a->kv.block, a->kv.win, a->block + 1
    };
    return true;
}

void kv_tiers_audited(struct kv_tiers *t, enum status st)
{
    struct audit *a = &t->audit;
    CHECK(a->state == AUDIT_RUNNING);
    struct host_flight *f = st ? NULL : flight_new(&t->host, FLIGHT_AUDIT_COPY);
    if (f) {
        struct xfer_job j = { .src = t->cfg.dev_seg,
                              .dst = a->seg,
                              .src_off = (uint64_t)a->kv.block[a->block] * t->cfg.block_bytes,
                              .dst_off = t->host.stride,
                              .bytes = (uint32_t)t->cfg.block_bytes,
                              .prio = XFER_LOAD,
                              .cookie = flight_cookie(&t->host, f) };
        if (xfer_post(t->cfg.xfer, &j, &a->ticket) == ST_OK) {
            a->state = AUDIT_COPYING;
            return;
        }
        flight_free(&t->host, f);
    }
    end(t);
    if (a->canary && ++a->n_fail >= FAILS_MAX) {
        give_up_source(t, a->source, "none of them could be computed again");
        a->n_fail = 0;
    }
}

/* ---- and what follows */

static uint64_t first_difference(const unsigned char *a, const unsigned char *b, uint64_t n)
{
    uint64_t i = 0;
    while (i < n && a[i] == b[i]) i++;
    return i;
}

static void mismatch(struct kv_tiers *t, uint64_t at)
{
    struct audit *a = &t->audit;
    char          digits[13];
    for (int i = 0; i < 6; i++) snprintf(digits + 2 * i, 3, "%02x", t->fingerprint.b[i]);
    t->stats.n_audit_mismatch++;
    LOG_WARN(
        "kv: block %u of a prompt, from %s, has other bytes (the first at %" PRIu64 " of %" PRIu64
        ") than computing it gives: whoever wrote it computes otherwise, and model-%s.. does not say so; all blocks of it are dropped, "
        "serving goes on without them",
        a->block, a->canary ? name_of(t, a->source) : "a load", at, t->cfg.block_bytes, digits);
    /* Before the first canary nothing came up to the device. */
    a->purge = t->stats.n_loaded ? PURGE_DEVICE : PURGE_BELOW;
    a->gave_way = false;
}

void audit_copy_done(struct kv_tiers *t, struct host_flight *f, const struct xfer_done *d)
{
    struct audit           *a = &t->audit;
    const struct kv_record *r = kv_record_of(brought(t));
    (void)f;
    CHECK(a->state == AUDIT_COPYING);
    bool done = d->st == ST_OK && !a->stopping;
    t->stats.n_failed_io += d->st != ST_OK && d->st != ST_CANCELED;
    end(t);
    if (!done) return;
    t->stats.n_audit++;
    const unsigned char *was = brought(t) + KV_RECORD_HEAD;
    if (!memcmp(was, computed(t), t->cfg.block_bytes)) {
        if (a->canary) believe(t, a->source);
        return;
    }
    if (!digest_equal(digest_of(&t->cfg.key, was, t->cfg.block_bytes), r->payload))
        return; /* memory that changes: the next load sees it */
    mismatch(t, first_difference(was, computed(t), t->cfg.block_bytes));
}

bool kv_tiers_purges(const struct kv_tiers *t) { return t->audit.purge == PURGE_DEVICE || t->hand.vacating; }

void audit_turn(struct kv_tiers *t)
{
    struct audit *a = &t->audit;
    if (!t->cfg.audit) return;
    a->stopping = a->stopping && a->state != AUDIT_NONE;
    if (!t->closing && !t->frozen && (a->state == AUDIT_NONE || a->state == AUDIT_NOTED)) find_canary(t);
}

/* Transfers in flight end by themselves, and their results are dropped. */
void audit_stop(struct kv_tiers *t)
{
    struct audit *a = &t->audit;
    if (a->state == AUDIT_READING || a->state == AUDIT_COPYING) {
        a->stopping = true;
        xfer_cancel(t->cfg.xfer, a->ticket);
    } else {
        end(t);
    }
}
