/* tier_window: the blocks of layers with a window, where those have a pool of their own (kvcache/device/window.h).
 *
 * A record has as many bytes as a block of the first pool, and a block of the window's pool is stored in pieces of that
 * size, each a record under a key that follows from the block's. So slots, segments and folders know one size. The last
 * piece ends with the block and overlaps the one before.
 *
 * A path can be continued at n tokens with all blocks of the first pool before n and those of the other that row n
 * sees. Down go the latter at the end of a path and at the places where prompts leave it. A load brings both or is of
 * no use. So its end is looked for from the end of the path on, as kv_window_fit does it on the device, and both are
 * one price. */
#include "base/check.h"
#include "kvcache/device/window.h"
#include "kvcache/tier_impl.h"
#include <stdlib.h>
#include <string.h>

enum { SEEK_WINDOWS = 2 };

enum status window_open(struct kv_tiers *t)
{
    const struct kv_tiers_cfg *c = &t->cfg;
    uint32_t                   blocks = c->seq_tokens_max / c->block_tokens;
    if (!c->n_window) return ST_OK;
    if (c->win_bytes < c->block_bytes || c->in_place) return ST_INVALID;
    t->n_piece = (uint32_t)((c->win_bytes + c->block_bytes - 1) / c->block_bytes);
    /* Behind the first window every row sees as many blocks. */
    t->piece_max = (blocks - kv_window_first(c->kv, blocks * c->block_tokens) + 1) * t->n_piece;
    t->piece_key = calloc(t->piece_max, sizeof *t->piece_key);
    t->piece = calloc(t->piece_max, sizeof *t->piece);
    t->piece_seek = calloc(SEEK_WINDOWS * t->piece_max, sizeof *t->piece_seek);
    t->kept = calloc(blocks + t->piece_max + t->n_piece, sizeof *t->kept);
    return t->piece_key && t->piece && t->piece_seek && t->kept ? ST_OK : ST_NOMEM;
}

void window_close(struct kv_tiers *t)
{
    free(t->piece_key);
    free(t->piece);
    free(t->piece_seek);
    free(t->kept);
}

uint64_t window_off(const struct kv_tiers *t, uint32_t w, uint32_t piece)
{
    uint64_t at = piece * t->cfg.block_bytes, last = t->cfg.win_bytes - t->cfg.block_bytes;
    return w * t->cfg.win_bytes + (at < last ? at : last);
}

/* ---- down */

/* Where a path of n_block blocks will be continued. Who pulls a parcel computes the last token of its prompt, which may
 * be that of the last block. */
static uint32_t window_end(uint32_t n_block, bool parcel) { return n_block - (parcel && n_block > 0); }

void window_offer(struct kv_tiers *t, struct offer *o)
{
    if (!t->n_piece) return;
    uint32_t first = kv_window_first(t->cfg.kv, window_end(o->n_block, o->parcel != NULL) * t->cfg.block_tokens);
    for (uint32_t i = 0; i < o->n_block; i++)
        if (i >= first || kv_window_wanted(t->cfg.kv, o->kv.block[i])) (void)kv_window_lend(t->cfg.kv, &o->kv, i);
}

uint32_t window_keep(struct kv_tiers *t, const struct offer *o, const int32_t *slot, uint32_t n)
{
    uint32_t n_slot = n, begin = kv_window_first(t->cfg.kv, window_end(n, true) * t->cfg.block_tokens);
    memcpy(t->kept, slot, n * sizeof *slot);
    for (uint32_t i = n; i-- > begin;) {
        struct kv_key block = tier_key(t, o->kv.salt, o->kv.block[i]);
        for (uint32_t p = 0; p < t->n_piece; p++) {
            struct kv_key key = kv_key_window(&block, p);
            int32_t       at = slot_find(&t->host, &key);
            if (at != SLOT_NONE && t->host.slot[at].state == SLOT_READY) t->kept[n_slot++] = at;
        }
    }
    return n_slot;
}

/* ---- up: what would come */

/* Where a record is: *from_out BELOW_NONE: on the host, else the place below. false: nowhere, or hidden. */
static bool find(struct kv_tiers *t, const struct kv_key *key, int *from_out)
{
    struct kv_place place;
    int32_t         slot = slot_find(&t->host, key);
    *from_out = BELOW_NONE;
    if (slot != SLOT_NONE) return !slot_hidden(t, slot);
    *from_out = below_find(t, key, &place);
    return *from_out >= 0;
}

static bool has_pieces(struct kv_tiers *t, const struct kv_key *block, bool host_only)
{
    for (uint32_t p = 0; p < t->n_piece; p++) {
        struct kv_key key = kv_key_window(block, p);
        int           from;
        if (!find(t, &key, &from) || (host_only && from != BELOW_NONE)) return false;
    }
    return true;
}

/* The key of block i of the prompt; node: its block on the device, where i < first. */
static struct kv_key key_at(struct kv_tiers *t, struct kv_salt salt, uint32_t i, uint32_t first, uint32_t node)
{
    return i < first ? tier_key(t, salt, node) : t->memo.key[i - first];
}

/* The last block at which the prompt could be continued. A block whose window is nowhere is seen by every row up to a
 * window behind it, so the next end to try is where it begins. */
static uint32_t end_of(struct kv_tiers *t, struct kv_salt salt, const struct kv_cursor *hit, uint32_t base,
                       uint32_t end, bool host_only)
{
    const struct kv *kv = t->cfg.kv;
    uint32_t         bt = t->cfg.block_tokens, first = hit->n / bt, node = hit->block, at = end;
    while (end > base && at > kv_window_first(kv, end * bt)) {
        at--;
        if (at >= first || kv_window_of(kv, node) == KV_NONE) {
            struct kv_key key = key_at(t, salt, at, first, node);
            if (!has_pieces(t, &key, host_only)) end = at;
        }
        if (at < first) node = kv_block_parent(kv, node);
    }
    return end;
}

/* Counted from the end of the path back: where others have gone on, or stopped, is near to where this prompt leaves
 * what they have. */
uint32_t window_lacks(struct kv_tiers *t, struct kv_salt salt, const struct kv_cursor *hit, uint32_t base,
                      uint32_t n_more)
{
    const struct kv *kv = t->cfg.kv;
    uint32_t         bt = t->cfg.block_tokens, first = hit->n / bt, node = hit->block, at = first + n_more, n = 0;
    uint32_t         begin = kv_window_first(kv, at * bt), low = kv_window_first(kv, (base + 1) * bt);
    if (at <= base) return 0;
    while (at > low && n + t->n_piece <= SEEK_WINDOWS * t->piece_max) {
        bool          here = --at < first && kv_window_of(kv, node) != KV_NONE;
        struct kv_key block = key_at(t, salt, at, first, node);
        if (at < first) node = kv_block_parent(kv, node);
        for (uint32_t p = 0; p < t->n_piece && !here; p++) {
            struct kv_key key = kv_key_window(&block, p);
            int           from;
            if (!find(t, &key, &from)) t->piece_seek[n++] = key;
        }
        if (at == begin && !n) break; /* the best end is here already */
    }
    return n;
}

static void count(struct kv_tiers *t, const struct kv_key *key, struct up_plan *p)
{
    int from;
    if (!find(t, key, &from) || from == BELOW_NONE) return;
    p->n_store++;
    if ((uint32_t)from > p->below) p->below = (uint32_t)from;
}

bool window_plan(struct kv_tiers *t, struct kv_salt salt, const struct kv_cursor *hit, uint32_t base, uint32_t n_more,
                 bool host_only, struct up_plan *p)
{
    const struct kv *kv = t->cfg.kv;
    uint32_t         bt = t->cfg.block_tokens, first = hit->n / bt, node = hit->block;
    *p = (struct up_plan){ .base = base, .end = end_of(t, salt, hit, base, first + n_more, host_only) };
    if (p->end <= base) return false;
    p->n_path = p->end > first ? p->end - first : 0;
    for (uint32_t k = 0; k < p->n_path; k++) count(t, &t->memo.key[k], p);
    uint32_t begin = kv_window_first(kv, p->end * bt);
    for (uint32_t i = p->end > first ? p->end : first; i-- > begin;) {
        struct kv_key key = key_at(t, salt, i, first, node);
        bool          here = i < first && kv_window_of(kv, node) != KV_NONE;
        if (i < first) node = kv_block_parent(kv, node);
        if (i >= p->end) continue;
        if (i + 1 == p->end) p->key = key;
        for (uint32_t piece = 0; piece < t->n_piece && !here; piece++, p->n_win++) {
            CHECK(p->n_win < t->piece_max);
            t->piece[p->n_win] = (struct up_piece){ i, piece };
            t->piece_key[p->n_win] = kv_key_window(&key, piece);
            count(t, &t->piece_key[p->n_win], p);
        }
    }
    return true;
}

/* ---- up: a load */

bool window_take(struct kv_tiers *t, struct load *l)
{
    struct kv *kv = t->cfg.kv;
    uint32_t   begin = kv_window_first(kv, l->plan.end * t->cfg.block_tokens), n = 0;
    for (uint32_t i = begin; i < l->plan.end; i++)
        if (i >= l->kv.n_shared || !kv_window_lend(kv, &l->kv, i)) n++;
    if (n + t->cfg.n_window / 16 + 2 > kv_window_room(kv, NULL)) return false; /* the rest is for sequences that run */
    for (uint32_t i = begin; i < l->plan.end; i++)
        if (l->kv.win[i] == KV_NONE) kv_window_claim(kv, &l->kv, i);
    return true;
}

void window_settle(struct kv_tiers *t, struct load *l)
{
    struct kv *kv = t->cfg.kv;
    if (!l->plan.end) return;
    l->whole = l->n_done == l->n_path && !l->doubted;
    for (uint32_t k = l->n_path; k < l->n_block; k++) l->whole &= l->state[k] == LOAD_DONE;
    uint32_t begin = kv_window_first(kv, l->plan.end * t->cfg.block_tokens);
    if (!l->whole) kv_window_shrink(kv, &l->kv, begin); /* those that came in vain, and those that were held for them */
    if (!l->whole) kv_window_cover(kv, &l->kv);
    for (uint32_t i = begin; l->whole && i < l->plan.end; i++) kv_window_give(kv, &l->kv, i, l->kv.block[i]);
    if (l->whole) t->stats.n_window_loaded += (l->n_block - l->n_path) / t->n_piece;
}
