/* Over 500 lines: the states of segments and every answer of the store's thread that moves one between them. Apart,
 * a change of state would be spread over files. */
#include "kvcache/folder/store.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "kvcache/events/events.h"
#include "kvcache/folder/store_impl.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the index */

static uint32_t place_id(const struct kv_store *s, uint32_t segment, uint32_t index)
{
    return segment * s->g.n_record + index;
}

static int32_t find(const struct kv_store *s, const struct kv_key *k)
{
    int32_t i = chain_first(&s->by_key, kv_key_hash(k));
    while (i != NONE && !kv_key_equal(&s->entry[i].key, k)) i = chain_next(&s->by_key, i);
    return i;
}

static void insert(struct kv_store *s, uint32_t id, const struct kv_key *k, struct digest payload, bool begins,
                   enum entry_state state)
{
    struct entry *e = &s->entry[id];
    CHECK(e->state == ENTRY_NONE);
    *e = (struct entry){ .key = *k, .payload = payload, .gen = ++s->gen, .state = (uint8_t)state, .begins = begins };
    s->n_found += s->segment[id / s->g.n_record].found;
    s->n_begin += begins && s->segment[id / s->g.n_record].found;
    chain_add(&s->by_key, kv_key_hash(k), (int32_t)id);
    s->n_entry++;
    if (state == ENTRY_READY) kv_events_entry_stored(s->cfg.events, s->cfg.place, id, k);
}

static void forget(struct kv_store *s, uint32_t id)
{
    struct entry *e = &s->entry[id];
    CHECK(e->state != ENTRY_NONE);
    chain_remove(&s->by_key, kv_key_hash(&e->key), (int32_t)id);
    if (e->state == ENTRY_READY) kv_events_entry_removed(s->cfg.events, s->cfg.place, id, &e->key);
    e->state = ENTRY_NONE;
    s->n_found -= s->segment[id / s->g.n_record].found;
    s->n_begin -= e->begins && s->segment[id / s->g.n_record].found;
    s->n_entry--;
}

/* ---- pauses */

static void pause_writes(struct kv_store *s, enum status st, const char *what)
{
    uint64_t now = s->cfg.clock();
    if (s->paused_until_us > now) return;
    s->stats.n_pauses++;
    s->stats.last_error = st;
    s->paused_until_us = now + s->retry_us;
    LOG_WARN("kv: degraded: %s: %s fails (%s), nothing is written there for %" PRIu64 " ms", s->cfg.dir, what,
             st == ST_TOO_LARGE ? "no space left" : status_name(st), s->retry_us / 1000);
    s->retry_us = s->retry_us * 2 > RETRY_MAX_US ? RETRY_MAX_US : s->retry_us * 2;
}

static bool paused(const struct kv_store *s) { return s->paused_until_us && s->cfg.clock() < s->paused_until_us; }

static void write_went_well(struct kv_store *s)
{
    if (!s->paused_until_us) return;
    LOG_INFO("kv: %s: writes work again", s->cfg.dir);
    s->paused_until_us = 0;
    s->retry_us = s->cfg.retry_us;
}

/* ---- segments, the owner's side */

static uint32_t find_state(const struct kv_store *s, enum seg_state state)
{
    uint32_t i = 0;
    while (i < s->n_slot && s->segment[i].state != state) i++;
    return i;
}

static void ask(struct kv_store *s, struct task *t) { CHECK(ring_push(&s->todo, t)); }

uint32_t store_forget_segment(struct kv_store *s, uint32_t i)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < s->g.n_record; k++)
        if (s->entry[place_id(s, i, k)].state != ENTRY_NONE) {
            forget(s, place_id(s, i, k));
            n++;
        }
    return n;
}

static void ask_remove(struct kv_store *s, int32_t segment, uint64_t seq, int fd, bool moved)
{
    s->task_out = true;
    s->file_task = (struct task){ .kind = TASK_REMOVE, .segment = segment, .seq = seq, .fd = fd, .moved = moved };
    ask(s, &s->file_task);
}

static void evict_segment(struct kv_store *s)
{
    uint32_t best = s->n_slot;
    for (uint32_t i = 0; i < s->n_slot; i++) {
        struct segment *g = &s->segment[i];
        if (g->state != SEG_SEALED || g->n_pinned) continue;
        if (g->doomed) {
            best = i;
            break;
        }
        if (best < s->n_slot && (g->value > s->segment[best].value ||
                                 (g->value == s->segment[best].value && g->seq > s->segment[best].seq)))
            continue;
        best = i;
    }
    if (best == s->n_slot) return;
    struct segment *g = &s->segment[best];
    s->stats.n_evicted += store_forget_segment(s, best);
    for (uint32_t i = 0; i < s->n_slot; i++) s->segment[i].value /= 2;
    xfer_seg_drop(s->cfg.xfer, g->xfer);
    g->state = SEG_REMOVING;
    ask_remove(s, (int32_t)best, g->seq, g->fd, false);
}

/* More files than that would leave none for connections. */
static bool fds_are_out(const struct kv_store *s) { return s->n_file + s->n_foreign >= s->n_fd_max; }
/* What is found leaves the descriptors of two segments, which are written into: else one of those that lie there would
 * be removed for each of them, and the next one found would take its descriptor again. */
static bool fds_are_out_for_found(const struct kv_store *s)
{
    bool     making = s->task_out && s->file_task.kind == TASK_MAKE; /* n_file counts it */
    uint32_t to_come = (s->open == NONE ? 1u : 0u) + (s->spare == NONE && !making ? 1u : 0u);
    if (s->cfg.read_only) to_come = 0;
    return s->n_file + s->n_foreign + to_come >= s->n_fd_max;
}
static bool any_doomed(const struct kv_store *s)
{
    bool any = false;
    for (uint32_t i = 0; s->mistrusts && i < s->n_slot; i++)
        any |= s->segment[i].doomed && s->segment[i].state == SEG_SEALED && !s->segment[i].n_pinned;
    return any;
}

/* Keeps one prepared segment beside the one that is filled; below the cap by a new file, at the cap in the place of
 * another. */
static void prepare(struct kv_store *s)
{
    struct kept k;
    if (s->task_out || paused(s) || s->cfg.read_only || s->stats.recovering || s->lease_lost || s->blind) return;
    if (any_doomed(s)) { /* also while a segment stands prepared: nobody may ever need that one */
        evict_segment(s);
        s->full = false;
        return;
    }
    if (s->spare != NONE) return;
    bool short_of_bytes = s->full || (!store_has_room(s) && s->n_file < s->n_segment);
    if ((kept_overfull(s) || short_of_bytes) && kept_first(s, &k)) {
        s->full = false;
        ask_remove(s, NONE, k.seq, -1, k.moved);
        return;
    }
    if (short_of_bytes &&
        atomic_load(&s->name_bytes)) { /* the thread takes that over, or removes it: nothing of our own goes for it */
        atomic_store(&s->name_short, true);
        return;
    }
    if (!store_has_room(s) || fds_are_out(s) || s->full) {
        evict_segment(s);
        if (s->full && !s->task_out) pause_writes(s, ST_TOO_LARGE, "making room");
        s->full = false;
        return;
    }
    /* A server that stores nothing costs other models nothing: they give way when there is something to store. */
    uint64_t others = atomic_load_explicit(&s->other_bytes, memory_order_relaxed);
    if (others && !s->wanted && others + (s->n_file + 1) * s->g.segment_bytes > s->cfg.cap_bytes) return;
    uint32_t i = find_state(s, SEG_FREE);
    if (i == s->n_slot) return;
    s->segment[i] = (struct segment){ .state = SEG_MAKING, .fd = -1, .seq = s->next_seq++ };
    s->n_file++;
    s->task_out = true;
    s->file_task = (struct task){ .kind = TASK_MAKE, .segment = (int32_t)i, .seq = s->segment[i].seq, .fd = -1 };
    ask(s, &s->file_task);
}

static bool adopt(struct kv_store *s, struct segment *g, const struct task *t)
{
    struct xfer_seg x = { .kind = XFER_FILE, .fd = t->fd, .direct = t->direct, .bytes = s->g.segment_bytes };
    if (s->key) x.seal = &s->key[g - s->segment];
    g->fd = t->fd;
    return xfer_seg_add(s->cfg.xfer, &x, &g->xfer) == ST_OK;
}

static void footer_open(struct kv_store *s)
{
    struct segment *g = &s->segment[s->open];
    if (s->seal_out || g->n_pinned || g->n_used == 0) return;
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->n_used; i++) {
        const struct entry *e = &s->entry[place_id(s, (uint32_t)s->open, i)];
        if (e->state == ENTRY_READY)
            s->seal_row[n++] = (struct store_row){ .key = e->key,
                                                   .payload = e->payload,
                                                   .index = i,
                                                   .block_tokens = s->cfg.block_tokens,
                                                   .begins = e->begins };
    }
    g->state = SEG_SEALING;
    s->seal_out = true;
    s->seal_task =
        (struct task){ .kind = TASK_SEAL, .segment = s->open, .seq = g->seq, .fd = g->fd, .row = s->seal_row, .n = n };
    s->open = NONE;
    ask(s, &s->seal_task);
}

/* ---- answers */

static void answer_make(struct kv_store *s, const struct task *t)
{
    struct segment *g = &s->segment[t->segment];
    s->task_out = false;
    if (t->st == ST_OK && adopt(s, g, t)) {
        g->state = SEG_SPARE;
        s->spare = t->segment;
        write_went_well(s);
        return;
    }
    if (t->st == ST_OK) close(t->fd);
    g->state = SEG_FREE;
    s->n_file--;
    s->full = t->st == ST_TOO_LARGE && !t->error;
    if (!s->full) pause_writes(s, t->st ? t->st : ST_AGAIN, "making a file");
}

static void answer_remove(struct kv_store *s, const struct task *t)
{
    struct segment *g = t->segment == NONE ? NULL : &s->segment[t->segment];
    s->task_out = false;
    if (g) {
        g->state = SEG_FREE;
        if (s->key) OPENSSL_cleanse(&s->key[t->segment], sizeof *s->key);
        s->n_file--;
    }
    if (!t->st && !g) kept_drop(s, t->seq, t->moved);
    if (!t->st) return;
    if (g) kept_add(s, t->seq, s->g.segment_bytes, KEPT_UNWANTED, false); /* it is still there */
    pause_writes(s, t->st, "removing a file");
}

/* One of the own folder that cannot be served from; true: it is done with. */
static bool keep_scanned(struct kv_store *s, struct task *t)
{
    switch (t->word) {
    case STORE_OURS: return false;
    case STORE_NO_FILE: return true;
    case STORE_NOT_READ:
        if (t->error) s->unread_error = t->error;
        kept_add(s, t->seq, t->bytes, KEPT_UNREAD, false);
        return true;
    case STORE_OTHER_KEY: kept_add(s, t->seq, t->bytes, KEPT_KEY, false); return true;
    case STORE_DAMAGED: kept_add(s, t->seq, t->bytes, KEPT_DAMAGED, t->moved); return true;
    default: /* was removed */
        if (t->st) kept_add(s, t->seq, t->bytes, KEPT_UNWANTED, false);
        s->stats.n_foreign_segments += t->word != STORE_OTHER_START;
        s->stats.n_dead_segments += t->word == STORE_OTHER_START;
        return true;
    }
}

static void answer_scan(struct kv_store *s, struct task *t)
{
    if (t->seq >= s->next_seq) s->next_seq = t->seq + 1;
    if (t->again) kept_drop(s, t->seq, false);
    if (keep_scanned(s, t)) {
        ask(s, t);
        return;
    }
    if (!store_has_room(s)) kept_make_room(s);
    uint32_t i = find_state(s, SEG_FREE);
    if (!store_has_room(s) || i == s->n_slot ||
        s->mistrusts) { /* a smaller cap than before: the oldest go; or all of it is in doubt */
        char name[32];
        store_name(name, sizeof name, t->seq);
        close(t->fd);
        if (unlinkat(s->dir, name, 0)) kept_add(s, t->seq, t->bytes, KEPT_UNWANTED, false);
        s->stats.n_evicted += t->n;
    } else if (fds_are_out_for_found(s) || !adopt(s, &s->segment[i], t)) {
        close(t->fd);
        s->unread_error = EMFILE;
        kept_add(s, t->seq, t->bytes, KEPT_UNREAD, false);
        t->word = STORE_NOT_READ;
    } else {
        struct segment *g = &s->segment[i];
        if (s->key) s->key[i] = s->key[s->n_slot];
        g->state = SEG_SEALED;
        g->seq = t->seq;
        g->n_used = s->g.n_record;
        g->n_pinned = 0;
        g->value = 0;
        g->mac = t->mac;
        g->found = true;
        g->doomed = false;
        s->n_file++;
        g->n_pinned++; /* until all of it is known */
        t->segment = (int32_t)i;
        s->learning = t;
        s->n_learnt = 0;
        return;
    }
    ask(s, t);
}

/* The folder cannot be used now. Its thread goes on trying. */
static void answer_away(struct kv_store *s)
{
    if (strcmp(s->away, s->why) != 0)
        LOG_WARN("kv: degraded: %s: %s; serving without it until that has changed, which is looked for all the time",
                 s->cfg.dir, s->why);
    snprintf(s->away, sizeof s->away, "%s", s->why);
    if (!s->away_since_us) s->away_since_us = s->cfg.clock();
}

/* All that lies there is known, or nothing is. */
static void answer_scanned(struct kv_store *s, struct task *t)
{
    s->stats.recovering = false;
    s->blind = t->st != ST_OK;
    if (s->blind) {
        answer_away(s);
        ask(s, t);
        return;
    }
    if (s->away_since_us)
        LOG_INFO("kv: %s: in use now, after %.1f s", s->cfg.dir, (double)(s->cfg.clock() - s->away_since_us) / 1e6);
    s->away_since_us = 0;
    s->away[0] = 0;
    LOG_INFO("kv: %s: %u blocks found in %u segments, %" PRIu64 " segments removed that are not ours, %" PRIu64
             " MiB are of other models",
             s->cfg.dir, s->n_entry, s->n_file + s->n_foreign, s->stats.n_foreign_segments,
             atomic_load_explicit(&s->other_bytes, memory_order_relaxed) >> 20);
    if (s->stats.n_dead_segments)
        LOG_INFO("kv: %s: %" PRIu64 " segments were of an earlier start's key, which is gone", s->cfg.dir,
                 s->stats.n_dead_segments);
    kept_say(s);
    ask(s, t);
}

/* ---- segments of other servers */

static void drop_foreign(struct kv_store *s, uint32_t i)
{
    store_forget_segment(s, i);
    s->segment[i].state = SEG_LOST;
    s->n_foreign--;
    s->n_lost++;
}

/* What nobody reads any more is let go. */
static void free_lost(struct kv_store *s)
{
    for (uint32_t i = 0; s->n_lost && i < s->n_slot; i++) {
        struct segment *g = &s->segment[i];
        if (g->state != SEG_LOST || g->n_pinned) continue;
        xfer_seg_drop(s->cfg.xfer, g->xfer);
        close(g->fd);
        if (s->key) OPENSSL_cleanse(&s->key[i], sizeof *s->key);
        g->state = SEG_FREE;
        s->n_lost--;
    }
}

/* The place of one that nobody has asked for since the last eviction. NONE: all are wanted. */
static int32_t drop_unwanted(struct kv_store *s)
{
    for (uint32_t i = 0; i < s->n_slot; i++) {
        struct segment *g = &s->segment[i];
        if (g->state != SEG_FOREIGN || g->n_pinned || g->value) continue;
        drop_foreign(s, i);
        free_lost(s);
        return (int32_t)i;
    }
    for (uint32_t i = 0; i < s->n_slot; i++) s->segment[i].value /= s->segment[i].state == SEG_FOREIGN ? 2 : 1;
    return NONE;
}

static void answer_found(struct kv_store *s, struct task *t)
{
    t->dropped = s->n_foreign >= s->n_slot - s->n_segment ? drop_unwanted(s) : NONE;
    uint32_t i = s->n_foreign >= s->n_slot - s->n_segment ? s->n_slot : find_state(s, SEG_FREE);
    if (i < s->n_slot && s->key) s->key[i] = s->key[s->n_slot];
    if (i == s->n_slot || s->mistrusts || !adopt(s, &s->segment[i], t)) {
        close(t->fd);
        t->fd = -1;
        ask(s, t); /* segment stays NONE */
        return;
    }
    struct segment *g = &s->segment[i];
    g->mac = t->mac;
    g->state = SEG_FOREIGN;
    g->seq = t->seq;
    g->n_used = s->g.n_record;
    g->n_pinned = 1;
    g->value = 1; /* a round's grace */
    g->found = true;
    g->doomed = false;
    s->n_foreign++;
    t->segment = (int32_t)i;
    s->learning = t;
    s->n_learnt = 0;
}

static void answer_claim(struct kv_store *s, struct task *t)
{
    struct segment *g = &s->segment[t->segment];
    t->st = ST_AGAIN;
    if (t->kind == TASK_CLAIM && g->state == SEG_FOREIGN && s->n_file + 2 < s->n_segment &&
        !s->lease_lost) { /* 2: to write into */
        g->state = SEG_CLAIMED;
        s->n_foreign--;
        s->n_file++;
        t->st = ST_OK;
    } else if (t->kind == TASK_CLAIMED) {
        g->state = SEG_SEALED;
        s->stats.n_claimed++;
    } else if (t->kind == TASK_UNCLAIM) {
        g->state = SEG_FOREIGN;
        s->n_foreign++;
        s->n_file--;
    }
    ask(s, t);
}

static void answer_lost(struct kv_store *s, struct task *t)
{
    s->lease_lost = true;
    LOG_WARN(
        "kv: %s: other servers took this one for dead (it did not run for a while) and what it wrote is theirs now: it goes on "
        "reading there and writes no more until it is started again",
        s->cfg.dir);
    ask(s, t);
}

/* ---- what was found enters the index */

/* A turn of the owner must be short: 30,000 rows at once would be 30 ms. */
static void learn(struct kv_store *s)
{
    struct task *t = s->learning;
    uint32_t     end = t->n - s->n_learnt > LEARN_MAX ? s->n_learnt + LEARN_MAX : t->n;
    for (; s->n_learnt < end; s->n_learnt++) {
        const struct store_row *r = &t->row[s->n_learnt];
        uint32_t                id = place_id(s, (uint32_t)t->segment, r->index);
        if (r->index >= s->g.n_record || s->entry[id].state != ENTRY_NONE || find(s, &r->key) != NONE)
            continue; /* a newer one has it */
        insert(s, id, &r->key, r->payload, r->begins == 1, ENTRY_READY);
        if (r->begins == 1) s->canary = id;
        s->stats.n_recovered++;
    }
    if (end < t->n) return;
    s->segment[t->segment].n_pinned--;
    s->learning = NULL;
    ask(s, t);
}

static void answer(struct kv_store *s, struct task *t)
{
    struct segment *g = t->segment == NONE ? NULL : &s->segment[t->segment];
    switch (t->kind) {
    case TASK_MAKE: answer_make(s, t); break;
    case TASK_REMOVE: answer_remove(s, t); break;
    case TASK_SEAL:
        s->seal_out = false;
        g->state = SEG_SEALED; /* without a footer too: the next start then reads heads */
        if (t->st) pause_writes(s, t->st, "a footer");
        break;
    case TASK_SCAN: answer_scan(s, t); break;
    case TASK_FOUND: answer_found(s, t); break;
    case TASK_GONE:
        if (g->state == SEG_FOREIGN) drop_foreign(s, (uint32_t)t->segment);
        ask(s, t);
        break;
    case TASK_CLAIM:
    case TASK_UNCLAIM:
    case TASK_CLAIMED: answer_claim(s, t); break;
    case TASK_LOST: answer_lost(s, t); break;
    case TASK_SCANNED: answer_scanned(s, t); break;
    }
}

bool        kv_store_paused(const struct kv_store *s) { return paused(s) || s->lease_lost || s->blind; }
const char *kv_store_degraded(const struct kv_store *s)
{
    if (s->blind) return s->away;
    if (s->lease_lost) return "other servers took this one for dead: it writes no more until it is started again";
    if (!paused(s)) return NULL;
    return s->stats.last_error == ST_TOO_LARGE ? "nothing can be written there: no space left"
                                               : "nothing can be written there";
}
bool kv_store_recovering(const struct kv_store *s)
{
    return s->stats.recovering || atomic_load_explicit(&s->telling, memory_order_relaxed);
}

void kv_store_turn(struct kv_store *s)
{
    for (struct task *t; (t = ring_pop(&s->answer));) answer(s, t);
    if (s->learning) learn(s);
    if (s->n_lost) free_lost(s);
    if (s->open != NONE && s->segment[s->open].n_used == s->g.n_record) footer_open(s);
    if (s->open == NONE && s->spare != NONE) {
        s->open = s->spare;
        s->spare = NONE;
        s->segment[s->open].state = SEG_OPEN;
    }
    prepare(s);
}

/* ---- blocks */

bool kv_store_has(const struct kv_store *s, const struct kv_key *key) { return find(s, key) != NONE; }

bool kv_store_holds(const struct kv_store *s, const struct kv_key *key)
{
    int32_t i = find(s, key);
    return i != NONE && s->entry[i].state == ENTRY_READY;
}

uint64_t kv_store_each(const struct kv_store *s, uint64_t at)
{
    if (at >= (uint64_t)s->n_slot * s->g.n_record) return UINT64_MAX;
    if (s->entry[at].state == ENTRY_READY) kv_events_entry(s->cfg.events, s->cfg.place, &s->entry[at].key);
    return at + 1;
}

/* Hidden ones too. */
static bool find_ready(struct kv_store *s, const struct kv_key *key, struct kv_place *place_out)
{
    int32_t i = find(s, key);
    if (i == NONE || s->entry[i].state != ENTRY_READY) return false;
    uint32_t segment = (uint32_t)i / s->g.n_record;
    s->segment[segment].value++;
    *place_out = (struct kv_place){ .segment = segment,
                                    .index = (uint32_t)i % s->g.n_record,
                                    .gen = s->entry[i].gen,
                                    .seq = s->segment[segment].seq,
                                    .old_key = s->segment[segment].mac != 0 };
    return true;
}

bool kv_store_find(struct kv_store *s, const struct kv_key *key, struct kv_place *place_out)
{
    return find_ready(s, key, place_out) && !store_hides(s, place_id(s, place_out->segment, place_out->index));
}

enum status kv_store_read(struct kv_store *s, const struct kv_read *r, struct kv_place *place_out, uint64_t *ticket_out)
{
    if (!find_ready(s, r->key, place_out)) return ST_NOT_FOUND;
    struct segment *g = &s->segment[place_out->segment];
    struct xfer_job j = { .src = g->xfer,
                          .dst = r->host_seg,
                          .src_off = store_record_off(&s->g, place_out->index),
                          .dst_off = r->host_off,
                          .bytes = (uint32_t)s->g.record_bytes,
                          .skip = KV_RECORD_HEAD,
                          .tail = (uint32_t)(s->g.record_bytes - KV_RECORD_HEAD - s->cfg.payload_bytes),
                          .prio = r->prio,
                          .digest_mode = XFER_DIGEST_CHECK,
                          .digest = s->entry[place_id(s, place_out->segment, place_out->index)].payload,
                          .check_key = g->mac ? s->cfg.old_key : NULL,
                          .deadline_us = r->deadline_us,
                          .cookie = r->cookie };
    enum status     st = xfer_post(s->cfg.xfer, &j, ticket_out);
    if (st) return st;
    g->n_pinned++;
    s->stats.n_read++;
    return ST_OK;
}

void kv_store_read_done(struct kv_store *s, struct kv_place place, bool bad)
{
    uint32_t      id = place_id(s, place.segment, place.index);
    struct entry *e = &s->entry[id];
    CHECK(s->segment[place.segment].n_pinned > 0);
    s->segment[place.segment].n_pinned--;
    if (!bad || e->state != ENTRY_READY || e->gen != place.gen) return;
    forget(s, id);
    s->stats.n_lost_records++;
}

enum status kv_store_write(struct kv_store *s, const struct kv_write *w, struct kv_place *place_out)
{
    s->wanted |= s->open == NONE;
    if (s->open == NONE || s->n_writing >= WRITES_MAX || kv_store_paused(s) || s->cfg.read_only) return ST_AGAIN;
    if (find(s, w->key) != NONE) return ST_AGAIN;
    struct segment *g = &s->segment[s->open];
    if (g->n_used == s->g.n_record) return ST_AGAIN;
    const struct kv_record *r = kv_record_of(w->page);
    CHECK(kv_key_equal(&r->key, w->key));
    kv_record_seal(w->page, &s->cfg.key, g->seq, w->until_s, w->priority);
    struct xfer_job j = { .src = w->host_seg,
                          .dst = g->xfer,
                          .src_off = w->host_off,
                          .dst_off = store_record_off(&s->g, g->n_used),
                          .bytes = (uint32_t)s->g.record_bytes,
                          .skip = KV_RECORD_HEAD,
                          .prio = XFER_STORE,
                          .cookie = w->cookie };
    enum status     st = xfer_post(s->cfg.xfer, &j, NULL);
    if (st) return st;
    uint32_t id = place_id(s, (uint32_t)s->open, g->n_used);
    insert(s, id, w->key, r->payload, kv_record_begins(r), ENTRY_WRITING);
    *place_out =
        (struct kv_place){ .segment = (uint32_t)s->open, .index = g->n_used, .gen = s->entry[id].gen, .seq = g->seq };
    g->n_used++;
    g->n_pinned++;
    s->n_writing++;
    s->stats.n_write++;
    return ST_OK;
}

void kv_store_write_done(struct kv_store *s, struct kv_place place, enum status st)
{
    struct segment *g = &s->segment[place.segment];
    struct entry   *e = &s->entry[place_id(s, place.segment, place.index)];
    CHECK(g->n_pinned > 0 && s->n_writing > 0);
    CHECK(e->state == ENTRY_WRITING && e->gen == place.gen);
    g->n_pinned--;
    s->n_writing--;
    if (st == ST_OK) {
        e->state = ENTRY_READY; /* visible only now */
        kv_events_entry_stored(s->cfg.events, s->cfg.place, place_id(s, place.segment, place.index), &e->key);
        write_went_well(s);
        return;
    }
    forget(s, place_id(s, place.segment, place.index));
    if (st != ST_CANCELED) pause_writes(s, st, "a write");
}

/* ---- life */

void kv_store_close(struct kv_store *s)
{
    if (!s) return;
    if (s->started) {
        if (s->open != NONE && !s->stats.recovering && !s->cfg.ephemeral) footer_open(s);
        while (s->seal_out || s->task_out) {
            struct task *t = ring_pop(&s->answer);
            if (t)
                answer(s, t);
            else
                ring_wait(&s->answer, -1);
        }
        atomic_store(&s->stop, true);
        ring_wake(&s->todo);
        pthread_join(s->thread, NULL);
        for (struct task *t; (t = ring_pop(&s->answer));)
            if (((t->kind == TASK_SCAN && t->word == STORE_OURS) || t->kind == TASK_FOUND) && t->fd >= 0) close(t->fd);
    }
    for (uint32_t i = 0; s->segment && i < s->n_slot; i++) {
        struct segment *g = &s->segment[i];
        if (g->state == SEG_FREE || g->fd < 0) continue;
        xfer_seg_drop(s->cfg.xfer, g->xfer);
        close(g->fd);
        char name[32];
        store_name(name, sizeof name, g->seq);
        if (!seg_is_own(g->state)) continue;
        if (s->cfg.ephemeral || g->state == SEG_SPARE || (g->state == SEG_OPEN && g->n_used == 0))
            unlinkat(s->dir, name, 0); /* nothing in it */
    }
    if (s->root >= 0 && s->dir >= 0) models_tidy(s->root);
    folder_close(s);
    if (s->todo.fd >= 0) ring_free(&s->todo);
    if (s->answer.fd >= 0) ring_free(&s->answer);
    chain_free(&s->by_key);
    free(s->segment);
    free(s->entry);
    free(s->kept);
    free(s->seal_row);
    free(s->scan_row);
    free(s->seal_buffer);
    free(s->scan_buffer);
    seal_close(s->sealer);
    if (s->key) seal_give(s->key, (s->n_slot + 1) * sizeof *s->key);
    free(s);
}

void kv_store_stats(const struct kv_store *s, struct kv_store_stats *out)
{
    *out = s->stats;
    out->n_record = s->n_entry;
    out->n_segment = s->n_file;
    out->other_bytes = atomic_load_explicit(&s->other_bytes, memory_order_relaxed);
    out->n_other_removed = atomic_load_explicit(&s->n_other_removed, memory_order_relaxed);
    uint64_t making = find_state(s, SEG_MAKING) < s->n_slot;
    out->used_bytes = (s->n_file - making) * s->g.segment_bytes + out->other_bytes + s->kept_bytes;
    out->cap_bytes = s->cfg.cap_bytes;
    out->n_foreign = s->n_foreign;
    out->paused = kv_store_paused(s);
}

enum status kv_store_check(const struct kv_store *s)
{
    uint32_t n = 0, n_file = 0, n_foreign = 0, n_lost = 0, n_writing = 0;
    uint64_t places = (uint64_t)s->n_slot * s->g.n_record;
    for (uint32_t b = 0; b < s->by_key.n_bucket; b++)
        for (int32_t i = s->by_key.bucket[b]; i != NONE; i = chain_next(&s->by_key, i)) {
            if (++n > s->n_entry || s->entry[i].state == ENTRY_NONE) goto fault;
            if (chain_bucket(&s->by_key, kv_key_hash(&s->entry[i].key)) != b) goto fault;
        }
    for (uint64_t i = 0; i < places; i++) {
        const struct segment *g = &s->segment[i / s->g.n_record];
        if (s->entry[i].state == ENTRY_NONE) continue;
        n_writing += s->entry[i].state == ENTRY_WRITING;
        if (g->state == SEG_FREE || g->state == SEG_MAKING || g->state == SEG_SPARE || g->state == SEG_REMOVING ||
            g->state == SEG_LOST)
            goto fault;
        if (i % s->g.n_record >= g->n_used) goto fault;
        if (s->entry[i].state == ENTRY_WRITING && !g->n_pinned) goto fault;
    }
    for (uint32_t i = 0; i < s->n_slot; i++) {
        n_file += seg_is_own(s->segment[i].state);
        n_foreign += s->segment[i].state == SEG_FOREIGN;
        n_lost += s->segment[i].state == SEG_LOST;
    }
    if (n == s->n_entry && n_file == s->n_file && n_foreign == s->n_foreign && n_lost == s->n_lost &&
        n_writing == s->n_writing && n_file * s->g.segment_bytes <= s->cfg.cap_bytes)
        return ST_OK;
fault:
    LOG_ERROR("kv: %s: the index is not what it says: %u of %u entries, %u of %u files, %u of %u writes", s->cfg.dir, n,
              s->n_entry, n_file, s->n_file, n_writing, s->n_writing);
    return ST_INVALID;
}
