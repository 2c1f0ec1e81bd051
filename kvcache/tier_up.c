/* tier_up: a waiting prompt's prefix comes back up, when that is quicker than computing it.
 * Over 500 lines: the prompt that waits and the load that it waits for act on each other. */
#include "base/check.h"
#include "base/log.h"
#include "kvcache/device/window.h"
#include "kvcache/tier_impl.h"
#include <string.h>

const uint32_t kv_latency_us[KV_LATENCY_BUCKETS - 1] = { 100,     250,     500,     1000,    2500,   5000,
                                                         10000,   25000,   50000,   100000,  250000, 500000,
                                                         1000000, 2500000, 5000000, 10000000 };

enum { HOLD_US = 2000000, FLIGHT_PER_LOAD = 1024, TELL = 32, SLACK_US = 1000, TRY_BLOCKS = 16, AHEAD = 8 };
/* ---- loads */

static struct load *load_of(struct kv_tiers *t, const struct kv_want *w)
{
    struct load *l = &t->load[w->load - 1];
    return l->used && l->gen == w->gen ? l : NULL;
}

/* The load that brings this block; NULL: none. Trials do not count, because nobody waits for them. */
static struct load *load_find(struct kv_tiers *t, const struct kv_key *key)
{
    for (uint32_t i = 0; i < KV_LOADS_MAX; i++) {
        struct load *l = &t->load[i];
        if (!l->used || l->settled || l->giving_up || l->trial) continue;
        for (uint32_t k = 0; k < l->n_block; k++)
            if (kv_key_equal(&l->key[k], key)) return l;
    }
    return NULL;
}

static void load_end(struct kv_tiers *t, struct load *l)
{
    kv_seq_release(t->cfg.kv, &l->kv);
    l->used = false;
}

/* The slot of the load's block k: the one that was seen before, if it still has it. */
static int32_t slot_of(const struct kv_tiers *t, const struct load *l, uint32_t k)
{
    int32_t i = l->seen[k];
    if (i == SLOT_NONE) return slot_find(&t->host, &l->key[k]);
    const struct host_slot *s = &t->host.slot[i];
    bool                    same = s->state == SLOT_READY && kv_key_equal(&s->key, &l->key[k]);
    return same ? i : slot_find(&t->host, &l->key[k]);
}

/* The number in the prompt of the load's block k. */
static uint32_t at_of(const struct load *l, uint32_t k)
{
    return k < l->n_path ? l->first + k : l->piece[k - l->n_path].block;
}

/* All blocks are done or will not come. The blocks from the first one up to the first gap enter the tree. */
static void load_settle(struct kv_tiers *t, struct load *l)
{
    uint32_t bt = t->cfg.block_tokens, n = 0;
    while (n < l->n_path && l->state[n] == LOAD_DONE && !l->doubted) n++;
    if (l->in_place)
        n = place_settle(t, l, n);
    else
        kv_seq_commit(t->cfg.kv, &l->kv, l->ids, (l->first + n) * bt);
    l->n_done = n;
    for (uint32_t k = 0; k < n; k++) {
        uint32_t b = l->kv.block[l->first + k];
        if (k + AHEAD < n) {
            int32_t then = l->seen[k + AHEAD];
            __builtin_prefetch(&t->node_key[l->kv.block[l->first + k + AHEAD]], 1);
            if (then != SLOT_NONE) __builtin_prefetch(&t->host.slot[then]);
        }
        int32_t slot = slot_of(t, l, k);
        tier_key_known(t, b, &l->key[k]);
        if (slot != SLOT_NONE) kv_block_join(t->cfg.kv, b, t->host.slot[slot].hold);
        audit_note(t, l, k);
    }
    if (!l->in_place) kv_seq_shrink(t->cfg.kv, &l->kv, (l->first + n) * bt); /* what did not come needs no blocks */
    window_settle(t, l);
    l->settled = true;
    l->hold_us = t->cfg.clock() + HOLD_US;
    double took = (double)(t->cfg.clock() - l->begin_us);
    if (l->compute_us > 0 && took > l->compute_us) {
        t->stats.regret_us += took - l->compute_us;
        t->stats.tier[l->tier].regret_us += took - l->compute_us;
    }
    int i = 0;
    while (i < KV_LATENCY_BUCKETS - 1 && took > kv_latency_us[i]) i++;
    t->stats.tier[l->tier].latency[i]++;
    t->stats.tier[l->tier].latency_sum_us += took;
}

/* A load takes its own blocks and leaves a sixteenth of the pool to sequences that run. */
static uint32_t blocks_needed(const struct kv_tiers *t, uint32_t n_block) { return n_block + t->cfg.n_block / 16 + 2; }

/* Blocks for what the load brings, behind those of its path on the device. */
static bool load_take(struct kv_tiers *t, struct load *l, const uint32_t *ids, uint32_t n_hit, uint32_t n_path)
{
    struct kv     *kv = t->cfg.kv;
    struct kv_copy copy[1];
    uint32_t       n_copy = 0, n_all = n_hit + n_path * t->cfg.block_tokens;
    uint32_t n = t->n_piece ? kv_seq_match_path(kv, &l->kv, ids, n_hit + 1) : kv_seq_match(kv, &l->kv, ids, n_hit + 1);
    if (n != n_hit || (!l->in_place && kv_seq_reserve(kv, &l->kv, n_all, copy, &n_copy))) return false;
    CHECK(n_copy == 0); /* nothing of a matched prefix is written */
    return !l->plan.end || window_take(t, l);
}

/* Loads n_block blocks behind n_hit tokens; plan: also the pieces of t->piece. The caller sets what the load costs and
 * where it comes from: compute_us, below, tier. more than eight: what is loaded, and for whom. */
static bool load_start(struct kv_tiers *t, struct kv_want *w, struct kv_salt salt, const uint32_t *ids, uint32_t n_hit,
                       uint32_t n_path, const struct kv_key *key, bool in_place, const struct up_plan *plan)
{
    struct load *l = t->load;
    uint32_t     bt = t->cfg.block_tokens;
    struct kv   *kv = t->cfg.kv;
    while (l < t->load + KV_LOADS_MAX && l->used) l++;
    if (l == t->load + KV_LOADS_MAX) return false;
    if (!in_place && blocks_needed(t, n_path) > kv_available_count(kv)) return false;
    if (kv_seq_open(kv, salt, &l->kv)) return false;
    l->in_place = in_place;
    l->plan = plan ? *plan : (struct up_plan){ 0 };
    if (!load_take(t, l, ids, n_hit, n_path)) {
        kv_seq_release(kv, &l->kv);
        return false;
    }
    uint32_t n_block = n_path + l->plan.n_win;
    memcpy(l->ids, ids, (n_hit + n_path * bt) * sizeof *ids);
    memcpy(l->key, key, n_path * sizeof *key);
    if (l->plan.n_win) { /* a model without window layers has no list of pieces */
        memcpy(l->key + n_path, t->piece_key, l->plan.n_win * sizeof *key);
        memcpy(l->piece, t->piece, l->plan.n_win * sizeof *l->piece);
    }
    memset(l->from, KV_TIER_HOST, n_block);
    for (uint32_t k = 0; k < n_block; k++) l->slot[k] = l->seen[k] = SLOT_NONE;
    l->used = true;
    l->settled = l->giving_up = l->doubted = l->trial = l->whole = false;
    l->gen = ++t->gen;
    l->begin_us = t->cfg.clock();
    l->first = n_hit / bt;
    l->n_path = n_path;
    l->n_block = l->n_todo = n_block;
    l->n_done = l->n_flight = l->n_late = 0;
    l->first_failed = n_block;
    for (uint32_t k = 0; k < n_block; k++) load_set(l, k, LOAD_WANT);
    l->n_waiter = 1;
    l->after_step = in_place ? 0 : t->n_enqueued; /* in place nothing of the device is written */
    w->load = 1 + (uint32_t)(l - t->load);
    w->gen = l->gen;
    t->stats.n_load++;
    return true;
}

/* The first block from k on that is WANT; n_block: none is. */
static uint32_t next_wanted(const struct load *l, uint32_t k)
{
    for (; k < l->n_block; k = (k / 64 + 1) * 64) {
        uint64_t bits = l->want[k / 64] >> k % 64;
        if (bits) return k + (uint32_t)__builtin_ctzll(bits);
    }
    return l->n_block;
}

static void fail_block(struct load *l, uint32_t k)
{
    for (; (k = next_wanted(l, k)) < l->n_block; k++) load_set(l, k, LOAD_FAILED); /* what is behind it is of no use */
}

static void cancel_flights(struct kv_tiers *t, const struct load *l, uint32_t k)
{
    for (; k < l->n_block; k++)
        if (l->state[k] == LOAD_READING || l->state[k] == LOAD_COPYING) xfer_cancel(t->cfg.xfer, l->ticket[k]);
}

static uint64_t place_on_device(const struct kv_tiers *t, const struct load *l, uint32_t k)
{
    uint32_t at = at_of(l, k);
    if (k < l->n_path) return (uint64_t)l->kv.block[at] * t->cfg.block_bytes;
    return window_off(t, l->kv.win[at], l->piece[k - l->n_path].piece);
}

static void copy_up(struct kv_tiers *t, struct load *l, uint32_t k, int32_t slot, uint64_t now)
{
    struct host_flight *f = flight_new(&t->host, FLIGHT_COPY);
    if (!f) return;
    struct xfer_job *j = &t->copy;
    j->src_off = (uint64_t)slot * t->host.stride + KV_RECORD_HEAD;
    j->dst = k < l->n_path ? t->cfg.dev_seg : t->cfg.win_seg;
    j->dst_off = place_on_device(t, l, k);
    j->digest = t->host.slot[slot].payload;
    j->cookie = flight_cookie(&t->host, f);
    j->post_us = now;
    j->quiet = l->n_todo > 2 && l->n_todo % TELL; /* the last two: each may be the last of its lane */
    if (load_post(t, l, k, slot, f, j)) t->host.slot[slot].readers++;
}

static void read_in(struct kv_tiers *t, struct load *l, uint32_t k, uint64_t now)
{
    struct kv_place place;
    int             store = below_find(t, &l->key[k], &place);
    if (store < 0) {
        fail_block(l, k);
        return;
    }
    struct host_flight *f = flight_new(&t->host, FLIGHT_READ);
    if (!f) return;
    f->owner = (uint32_t)(l - t->load);
    f->block = k;
    f->store = (uint32_t)store;
    f->slot = slot_take(&t->host, &l->key[k]);
    struct kv_read r = { .key = &l->key[k],
                         .host_seg = t->host.seg,
                         .host_off = (uint64_t)f->slot * t->host.stride,
                         .prio = XFER_LOAD,
                         .post_us = now,
                         .cookie = flight_cookie(&t->host, f) };
    if (f->slot == SLOT_NONE || t->below[store]->row->read(t->below[store], &r, &f->place, &l->ticket[k])) {
        if (f->slot != SLOT_NONE) slot_drop(&t->host, f->slot);
        flight_free(&t->host, f);
        return;
    }
    load_set(l, k, LOAD_READING);
    l->n_flight++;
}

/* Checks the record at page against the tokens of block k. at: where it was read; NULL: it lies on the host, where
 * records have no seq. */
static enum kv_doubt doubt(const struct kv_tiers *t, const struct load *l, uint32_t k, const void *page,
                           const struct kv_place *at)
{
    const struct kv_tiers_cfg *c = &t->cfg;
    const uint32_t            *ids = l->ids + at_of(l, k) * c->block_tokens;
    uint64_t                   seq = at ? at->seq : KV_SEQ_ANY;
    if (at && at->sealed)
        return kv_record_match(page, &t->fingerprint, &l->key[k], ids, c->block_tokens, c->block_bytes, seq);
    return kv_record_check(page, at && at->old_key ? c->old_key : &c->key, &t->fingerprint, &l->key[k], ids,
                           c->block_tokens, c->block_bytes, seq);
}

static void load_turn(struct kv_tiers *t, struct load *l, uint64_t now)
{
    uint32_t k = next_wanted(l, 0);
    xfer_gather(t->cfg.xfer, true);
    for (; k < l->first_failed && l->n_flight < FLIGHT_PER_LOAD && !l->giving_up; k = next_wanted(l, k + 1)) {
        int32_t slot = slot_of(t, l, k);
        if (slot == SLOT_NONE) {
            read_in(t, l, k, now);
        } else if (t->host.slot[slot].state == SLOT_READY) {
            enum kv_doubt d = KV_SURE;
            if (slot != l->seen[k]) d = doubt(t, l, k, slot_page(&t->host, slot), NULL);
            if (d == KV_SURE) l->seen[k] = slot;
            if (d == KV_SURE && !t->host.slot[slot].doomed) {
                if (l->in_place)
                    place_check(t, l, k, slot);
                else
                    copy_up(t, l, k, slot, now);
            } else {
                tier_doubt(t, NULL, d); /* a doomed one has been counted */
                if (t->host.slot[slot].readers == 0) slot_drop(&t->host, slot);
                fail_block(l, k);
            }
        } /* FILLING: another load reads it, or it is on its way down; soon */
    }
    xfer_gather(t->cfg.xfer, false);
    if (l->giving_up) {
        fail_block(l, 0);
        cancel_flights(t, l, 0);
    }
    k = next_wanted(l, 0);
    if (k < l->first_failed) return;
    if (l->first_failed < l->n_block) { /* from there on nothing can be used: the rest need not come */
        cancel_flights(t, l, l->first_failed + 1);
        fail_block(l, l->first_failed);
    }
    if (l->n_flight == 0) load_settle(t, l);
}

/* The hold that the record has from the time of its write. */
static struct kv_hold hold_of(const struct kv_tiers *t, const struct kv_record *r, uint64_t wall)
{
    bool known = r->priority >= KV_PRIORITY_MIN && r->priority <= KV_PRIORITY_MAX;
    return (struct kv_hold){ .until_s = r->until_s ? kv_now_s(t->cfg.kv) + (uint32_t)(r->until_s - wall) : KV_NO_END,
                             .priority = known ? (int8_t)r->priority : 0,
                             .used = true };
}

void up_read_done(struct kv_tiers *t, struct host_flight *f, const struct xfer_done *d)
{
    struct load     *l = &t->load[f->owner];
    struct kv_below *b = t->below[f->store];
    enum kv_doubt    why = KV_SURE;
    if (d->st == ST_INVALID) why = d->bad_head ? KV_DOUBT_HEAD : KV_DOUBT_PAYLOAD;
    CHECK(l->used && l->n_flight > 0 && l->state[f->block] == LOAD_READING);
    l->n_flight--;
    if (d->st == ST_OK) why = doubt(t, l, f->block, slot_page(&t->host, f->slot), &f->place);
    if (d->st == ST_OK && why == KV_SURE && f->place.old_key)
        kv_record_rekey(slot_page(&t->host, f->slot), &t->cfg.key, d->digest);
    const struct kv_record *r = kv_record_of(slot_page(&t->host, f->slot));
    bool                    sure = d->st == ST_OK && why == KV_SURE;
    uint64_t                wall = sure && r->until_s ? t->cfg.wall() : 0;
    bool                    ended = sure && kv_record_ended(r, wall);
    b->row->read_done(b, f->place, why != KV_SURE || d->st == ST_IO || ended);
    t->stats.tier[b->row->tier].evicted_why[KV_EVICT_TTL] += ended;
    if (sure && !ended) {
        slot_hold(&t->host, f->slot, hold_of(t, r, wall));
        slot_ready(&t->host, f->slot, kv_record_of(slot_page(&t->host, f->slot))->payload);
        l->seen[f->block] = f->slot;
        if (below_keeps(t, f->store)) slot_below(&t->host, f->slot, f->store);
        load_set(l, f->block, LOAD_WANT); /* of the host now */
        l->from[f->block] = (unsigned char)b->row->tier;
        t->stats.tier[b->row->tier].hit_blocks++;
        t->stats.tier[b->row->tier].bytes_out += t->host.stride;
        return;
    }
    slot_drop(&t->host, f->slot);
    tier_doubt(t, b, why);
    /* ST_INVALID is a doubt, which is counted apart; a peer that was lost fails its reads with another status than a
     * disk. */
    if (d->st != ST_OK && d->st != ST_INVALID && d->st != ST_CANCELED) t->stats.n_failed_io++;
    load_set(l, f->block, LOAD_FAILED);
}

void up_copy_done(struct kv_tiers *t, struct host_flight *f, const struct xfer_done *d)
{
    struct load *l = &t->load[f->owner];
    CHECK(l->used && l->n_flight > 0 && l->state[f->block] == LOAD_COPYING);
    l->n_flight--;
    load_set(l, f->block, d->st == ST_OK ? LOAD_DONE : LOAD_FAILED);
    if (d->st == ST_OK) {
        t->stats.n_loaded++;
        t->stats.tier[KV_TIER_HOST].hit_blocks +=
            l->from[f->block] == KV_TIER_HOST; /* a block of a store went through the host: one hit, of that store */
        t->stats.tier[KV_TIER_HOST].bytes_out += t->cfg.block_bytes;
    } else {
        load_block_failed(t, f->slot, d->st);
    }
    slot_unread(&t->host, f->slot);
}

/* ---- the prompt's side */

/* What the load has brought for w, by tier: the first n_done blocks are in the device's tree. */
static void credit(const struct kv_tiers *t, const struct load *l, struct kv_want *w)
{
    memset(w->n_from, 0, sizeof w->n_from);
    uint32_t bt = t->cfg.block_tokens, had = l->plan.end < l->first ? l->plan.end : l->first;
    if (l->plan.end && !l->whole) return;
    for (uint32_t k = 0; k < l->n_done; k++) w->n_from[l->from[k]] += bt;
    if (l->plan.end) w->n_from[l->tier] += (had - l->plan.base) * bt; /* the device had them, without the window */
}

void kv_tiers_forget(struct kv_tiers *t, struct kv_want *w)
{
    struct load *l = w->load ? load_of(t, w) : NULL;
    if (l) {
        if (l->settled) credit(t, l, w); /* also of one that was given up: what had come is used */
        CHECK(l->n_waiter > 0);
        l->n_late -= w->late;
        if (--l->n_waiter == 0 && !l->settled) l->giving_up = true; /* no waiter is left */
    }
    w->load = 0;
    w->late = false;
}

static bool go_on(struct kv_tiers *t, struct kv_want *w, uint32_t n_hit, bool late)
{
    struct load *l = w->load ? load_of(t, w) : NULL;
    if (late) {
        t->stats.n_abandoned++;
        if (l) {
            t->stats.tier[l->tier].n_abandoned++;
            w->late = true; /* and keeps its hold: what has come until it is admitted is credited then */
            if (++l->n_late == l->n_waiter) l->giving_up = true;
        }
    } else if (l) {
        credit(t, l, w);
    }
    w->asked = true;
    w->n_hit = n_hit;
    return true;
}

/* The device has no room for a load. If it has no room to compute the prompt either, the scheduler makes room, and the
 * prompt is asked for again. If it has just enough, the prompt waits for more room, at most as long as computing takes.
 */
static bool short_of_blocks(struct kv_tiers *t, struct kv_want *w, uint32_t n_hit, uint64_t now)
{
    if (kv_available_count(t->cfg.kv) + w->n_margin < w->n_need) return true;
    if (!w->until_us) w->until_us = now + w->wait_us;
    if (now < w->until_us) return false;
    t->stats.n_recompute++;
    return go_on(t, w, n_hit, false);
}

/* The next block is stored, but hidden until its source is proven or given up, which happens soon. The prompt waits for
 * that at most as long as computing takes. */
static bool waits_for_canary(struct kv_tiers *t, struct kv_want *w, const struct kv_key *at, const uint32_t *ids,
                             double compute_us, uint64_t now)
{
    if (!t->cfg.audit) return false;
    struct kv_key next = kv_key_next(at, ids, t->cfg.block_tokens);
    if (!audit_hides(t, &next)) return false;
    if (!w->canary_us) w->canary_us = now + (compute_us > 0 ? (uint64_t)compute_us + SLACK_US : HOLD_US);
    return now < w->canary_us;
}

/* Each tier that is open below the host, the cheapest first, is asked for what those before it lacked: of n blocks,
 * n_in[tier] were found there. */
static void count_misses_below(struct kv_tiers *t, uint32_t n, const uint32_t n_in[KV_TIERS])
{
    bool counted[KV_TIERS] = { false };
    n -= n_in[KV_TIER_HOST];
    for (uint32_t i = 0; i < t->n_below; i++) {
        enum kv_tier tier = below_tier(t, i);
        if (counted[tier]) continue;
        counted[tier] = true;
        n -= n_in[tier];
        t->stats.tier[tier].miss_blocks += n;
    }
}

/* Loads some of the n blocks whose price at their farthest place was too high, if it is time to try that place again.
 * Nobody waits for them: their prompt is computed meanwhile. */
static void load_try(struct kv_tiers *t, struct kv_salt salt, const uint32_t *ids, uint32_t n_hit, uint32_t n,
                     uint32_t n_host, uint32_t below, const struct kv_key *key)
{
    struct kv_want nobody = { 0 };
    uint32_t       place = price_place(n, n_host, below), most = (n > n_host ? n_host : 0) + TRY_BLOCKS;
    if (n * t->cfg.block_tokens < t->cfg.load_min_tokens || !price_try(t, place)) return;
    if (n > most) n = most;
    if (!load_start(t, &nobody, salt, ids, n_hit, n, key, false, NULL)) return; /* a copy: prices are those of copies */
    struct load *l = load_of(t, &nobody);
    l->trial = true;
    l->n_waiter = 0;
    l->compute_us = 0;
    l->below = below;
    l->tier = n > n_host ? below_tier(t, below) : KV_TIER_HOST;
    if (t->n_done >= l->after_step) load_turn(t, l, t->cfg.clock());
}

/* All loads are taken. What another server has computed is worth a wait, for as long as its answers are of use. */
static bool waits_for_load(struct kv_want *w, uint64_t now)
{
    if (!w->until_us) w->until_us = now + HOLD_US;
    return now < w->until_us;
}

/* The prompt waits three times the estimate and an eighth of the time to compute, but never longer than computing
 * takes; that long, too, without an estimate. On a busy machine a load of 0.3 ms can take 3 ms, which is no reason
 * to compute for 50. */
static void wait_until(struct kv_want *w, uint64_t now, double us, double compute_us, bool known)
{
    double late = 3 * us + SLACK_US + compute_us / 8, until = us > 0 && late < compute_us ? late : compute_us;
    w->until_us = now + (known ? (uint64_t)until + SLACK_US : HOLD_US);
    if (w->claim && w->until_us < now + HOLD_US) w->until_us = now + HOLD_US;
    if (w->claim && w->until_us < now + (uint64_t)compute_us) w->until_us = now + (uint64_t)compute_us;
}

static void load_begin(struct kv_tiers *t, struct load *l, double compute_us, uint32_t below, bool of_host,
                       uint64_t now)
{
    l->compute_us = compute_us;
    l->below = below;
    l->tier = of_host ? KV_TIER_HOST : below_tier(t, below);
    if (t->n_done >= l->after_step) load_turn(t, l, now); /* at once */
}

/* The load that brings both pools up to the same place. */
static struct load *load_to(struct kv_tiers *t, const struct up_plan *p)
{
    for (uint32_t i = 0; i < KV_LOADS_MAX; i++) {
        struct load *l = &t->load[i];
        bool         goes = l->used && !l->settled && !l->giving_up && !l->trial;
        if (goes && l->plan.end == p->end && kv_key_equal(&l->plan.key, &p->key)) return l;
    }
    return NULL;
}

/* kv_tiers_ask where layers with a window have a pool of their own: below the device the path goes on for n_more
 * blocks, n_host of them on the host. One decision: what the path needs of both pools up to the last place where it can
 * be continued, or what the host has of that. more than eight: those of kv_tiers_ask, and what it has found. */
static bool ask_windows(struct kv_tiers *t, struct kv_want *w, struct kv_salt salt, const uint32_t *ids,
                        const struct kv_cursor *hit, uint32_t base, uint32_t n_more, uint32_t n_host,
                        double us_per_token, uint64_t now)
{
    uint32_t       bt = t->cfg.block_tokens, fit = base * bt, there = hit->n / bt + n_more;
    double         us = 0;
    struct up_plan p;
    bool           any = window_plan(t, salt, hit, base, n_more, false, &p);
    if (p.end < there) w->leave = there * bt;
    if (w->claim) w->claim->n_found = p.end;
    if (!any) return go_on(t, w, fit, false);
    struct load *l = load_to(t, &p);
    if (l) {
        l->n_waiter++;
        w->load = 1 + (uint32_t)(l - t->load);
        w->gen = l->gen;
        us = price_us(t, l->n_block, l->n_block, l->below);
    } else {
        bool worth = price_plan(t, &p, us_per_token, &us) || w->claim; /* what another server has computed counts */
        if (!worth) load_try(t, salt, ids, hit->n, n_more, n_host, p.below, t->memo.key);
        if (!worth && p.n_store)
            worth = window_plan(t, salt, hit, base, n_host, true, &p) && price_plan(t, &p, us_per_token, &us);
        if (!worth) {
            t->stats.n_recompute++;
            return go_on(t, w, fit, false);
        }
        if (!load_start(t, w, salt, ids, hit->n, p.n_path, t->memo.key, false, &p)) {
            /* There is no room, in one of the pools. It waits for some, at most as long as computing takes. */
            if (w->claim && waits_for_load(w, now)) return false;
            if (!w->until_us) w->until_us = now + (uint64_t)(us_per_token * (p.end - base) * bt);
            if (now < w->until_us) return false;
            t->stats.n_recompute++;
            return go_on(t, w, fit, false);
        }
        l = load_of(t, w);
        load_begin(t, l, us_per_token * (p.end - base) * bt, p.below, !p.n_store, now);
    }
    wait_until(w, now, us, us_per_token * (p.end - base) * bt, us_per_token > 0);
    return false;
}

/* The path that goes on for n_more blocks below the device may have windows on other servers. */
static bool waits_for_windows(struct kv_tiers *t, struct kv_want *w, struct kv_salt salt, const struct kv_cursor *hit,
                              uint32_t base, uint32_t n_more, double us_per_token, uint64_t now)
{
    uint32_t bt = t->cfg.block_tokens, n = 0, n_token = (hit->n / bt + n_more - base) * bt;
    bool     any = !w->win_asked && (w->claim || n_token >= t->cfg.load_min_tokens) && seek_asks(t);
    if (any) n = window_lacks(t, salt, hit, base, n_more);
    return seek_windows(t, w, t->piece_seek, n, us_per_token * n_token, now);
}

bool kv_tiers_ask(struct kv_tiers *t, struct kv_want *w, struct kv_salt salt, const uint32_t *ids, uint32_t n,
                  const struct kv_cursor *hit, double us_per_token)
{
    uint64_t now = t->cfg.clock();
    uint32_t fit = t->n_piece ? kv_window_fit(t->cfg.kv, hit->block, hit->n) : hit->n; /* where the device can go on */
    if (w->asked && fit >= w->n_hit) return true;
    if (w->asked) kv_tiers_forget(t, w);
    if (w->asked)
        *w = (struct kv_want){ .claim = w->claim }; /* it has waited so long that the device let go of its beginning */
    if (w->load) {
        struct load *l = load_of(t, w);
        if (!l || l->settled) return go_on(t, w, fit, false);
        return now < w->until_us ? false : go_on(t, w, fit, true);
    }
    if (kv_tiers_purges(t)) return false;
    if (t->frozen || t->audit.purge) return go_on(t, w, fit, false);
    if (w->n_need && kv_available_count(t->cfg.kv) < w->n_need) return short_of_blocks(t, w, hit->n, now);
    uint32_t bt = t->cfg.block_tokens, first = hit->n / bt, end = n ? (n - 1) / bt : 0, n_more = 0, n_host = 0,
             n_ready = 0, below = 0, n_in[KV_TIERS] = { 0 };
    if (fit / bt >= end) return go_on(t, w, fit, false);
    struct kv_key        at = tier_key(t, salt, hit->n ? hit->block : KV_NONE);
    const struct kv_key *key = t->memo.key;
    tier_memo_open(t, w, &at);
    if (first < end && waits_for_canary(t, w, &at, ids + first * bt, us_per_token * n, now)) return false;
    if (first < end && seek_wait(t, w, ids + first * bt, end - first, us_per_token * (end - first) * bt, now))
        return false;
    for (; first + n_more < end && n_more < KV_ASK_MAX; n_more++) {
        struct kv_place      place;
        const struct kv_key *next = tier_memo_key(t, ids + first * bt, n_more);
        if (n_more + AHEAD < t->memo.n) chain_fetch(&t->host.by_key, kv_key_hash(&key[n_more + AHEAD]));
        if (n_more + AHEAD / 2 < t->memo.n) slot_fetch(&t->host, &key[n_more + AHEAD / 2]);
        int32_t slot = slot_find(&t->host, next);
        if (slot != SLOT_NONE && slot_hidden(t, slot)) break;
        bool host = slot != SLOT_NONE && t->host.slot[slot].state == SLOT_READY;
        int  from = slot == SLOT_NONE ? below_find(t, next, &place) : -1;
        if (slot == SLOT_NONE && from < 0) break;
        if (from > (int)below) below = (uint32_t)from;
        n_in[from < 0 ? KV_TIER_HOST : below_tier(t, (uint32_t)from)]++;
        n_host += host && n_host == n_more;
        n_ready += host;
    }
    if (t->n_piece && waits_for_windows(t, w, salt, hit, fit / bt, n_more, us_per_token, now)) return false;
    if (w->claim) w->claim->n_found = first + n_more;
    t->stats.n_ask++;
    t->stats.tier[KV_TIER_HOST].miss_blocks += end - first - n_ready;
    count_misses_below(t, end - first, n_in);
    if (t->n_piece) return ask_windows(t, w, salt, ids, hit, fit / bt, n_more, n_host, us_per_token, now);
    if (n_more == 0) return go_on(t, w, hit->n, false);
    double       us = 0, compute_us = us_per_token * n_more * bt;
    struct load *l = load_find(t, &key[0]);
    if (l) {
        l->n_waiter++;
        w->load = 1 + (uint32_t)(l - t->load);
        w->gen = l->gen;
        us = price_us(t, l->n_block, l->n_block, l->below);
    } else {
        /* What another server has computed is not weighed again. */
        uint32_t n_load = w->claim ? n_more : price_decide(t, n_more, n_host, below, us_per_token, &us);
        if (w->claim) us = price_us(t, n_more, n_more > n_host ? n_more - n_host : 0, below);
        if (n_load < n_more) load_try(t, salt, ids, hit->n, n_more, n_host, below, key);
        bool in_place = place_room(t, n_load); /* else it is copied */
        w->n_need = n_load && !in_place ? blocks_needed(t, n_load) : 0;
        if (w->n_need <= t->cfg.n_block && w->n_need > kv_available_count(t->cfg.kv)) {
            w->n_margin = w->n_need - n_load;
            w->wait_us = us_per_token > 0 ? (uint64_t)(us_per_token * n_load * bt) : HOLD_US;
            return short_of_blocks(t, w, hit->n, now);
        }
        if (!n_load || !load_start(t, w, salt, ids, hit->n, n_load, key, in_place, NULL)) {
            if (w->claim && waits_for_load(w, now)) return false;
            t->stats.n_recompute++;
            return go_on(t, w, hit->n, false);
        }
        compute_us = us_per_token * n_load * bt;
        load_begin(t, load_of(t, w), compute_us, below, n_load <= n_host, now);
    }
    wait_until(w, now, us, compute_us, us_per_token > 0);
    return false;
}

void up_yield(struct kv_tiers *t)
{
    move_end(t);
    for (uint32_t i = 0; i < KV_LOADS_MAX; i++) {
        struct load *l = &t->load[i];
        if (!l->used) continue;
        if (l->settled)
            load_end(t, l); /* what came stays cached while it can */
        else if (l->in_place)
            kv_seq_drop(t->cfg.kv, &l->kv); /* its checks need none of the device's blocks */
    }
}

void up_turn(struct kv_tiers *t)
{
    uint64_t now = t->cfg.clock();
    for (uint32_t i = 0; i < KV_LOADS_MAX; i++) {
        struct load *l = &t->load[i];
        if (!l->used) continue;
        if (!l->settled && tiers_short(t)) {
            if (l->in_place)
                kv_seq_drop(t->cfg.kv, &l->kv);
            else
                l->giving_up = true;
        }
        if (!l->settled && (t->n_done >= l->after_step || l->giving_up)) load_turn(t, l, now);
        bool gives = tiers_short(t) && !l->in_place; /* guests leave with the load, and free nothing */
        if (l->settled && (l->n_waiter == 0 || now > l->hold_us || gives)) load_end(t, l); /* what came stays cached */
    }
}

void up_discard(struct kv_tiers *t)
{
    for (uint32_t i = 0; i < KV_LOADS_MAX; i++) t->load[i].doubted = t->load[i].used;
    up_close(t);
}

void up_close(struct kv_tiers *t)
{
    for (uint32_t i = 0; i < KV_LOADS_MAX; i++) {
        struct load *l = &t->load[i];
        if (!l->used) continue;
        l->giving_up = true;
        if (!l->settled) load_turn(t, l, t->cfg.clock());
        if (l->settled) load_end(t, l);
    }
}
