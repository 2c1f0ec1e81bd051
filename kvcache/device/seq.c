/* match -> reserve -> commit -> release: a block's way from free to private to shared and back. */
#include "kvcache/device/seq.h"
#include "base/check.h"
#include "kvcache/device/block.h"
#include "kvcache/device/guest.h"
#include <string.h>

/* ---- counts */

static void block_ref(struct kv *kv, uint32_t b)
{
    if (kv->pool.ref[b]++) return;
    CHECK(kv_in_tree(kv, b)); /* a block without a table is cache or free, and a free one is only taken from the pool */
    if (kv_is_guest(kv, b)) return;
    kv->n_idle--;
    kv_radix_busy(&kv->tree, b);
}

/* A leaf that nobody locks. Its use goes behind its class. */
static void leaf_idle(struct kv *kv, uint32_t b)
{
    uint64_t use = kv->tree.node[b].use & (((uint64_t)1 << KV_USE_BITS) - 1);
    kv_radix_idle(&kv->tree, b, (uint64_t)kv_hold_class(&kv->hold[b], kv->now_s) << KV_USE_BITS | use);
}

/* An unlocked leaf leaves the tree. Its parent may be the next: to be evicted, or a guest that leaves at once. */
static void node_free(struct kv *kv, uint32_t b)
{
    for (uint32_t parent;; b = parent) {
        parent = kv->tree.node[b].parent;
        CHECK(kv->pool.ref[b] == 0);
        if (kv->cfg.watch.removed) kv->cfg.watch.removed(kv->cfg.watch.ctx, b);
        kv_radix_busy(&kv->tree, b);
        kv_radix_remove(&kv->tree, b);
        kv_due_clear(&kv->due, b);
        kv->hold[b] = (struct kv_hold){ 0 };
        kv_window_gone(kv, b);
        if (kv_is_guest(kv, b)) {
            kv->left[kv->n_left++] = b;
            kv->n_guest_in--;
        } else {
            kv->n_idle--;
            kv_pool_put(&kv->pool, b);
        }
        if (parent == KV_NONE || kv->pool.ref[parent] || kv->tree.node[parent].n_child) return;
        if (kv_is_guest(kv, parent)) continue;
        leaf_idle(kv, parent);
        return;
    }
}

static void block_unref(struct kv *kv, uint32_t b)
{
    CHECK(kv->pool.ref[b] > 0);
    if (--kv->pool.ref[b]) return;
    if (!kv_in_tree(kv, b)) {
        kv_pool_put(&kv->pool, b);
        return;
    }
    kv->tree.node[b].use = kv->use;
    if (kv_is_guest(kv, b)) {
        if (!kv->tree.node[b].n_child) node_free(kv, b);
        return;
    }
    kv->n_idle++;
    if (!kv->tree.node[b].n_child) leaf_idle(kv, b);
}

void kv_evict_one(struct kv *kv)
{
    uint32_t b = kv_radix_oldest(&kv->tree);
    CHECK(b != KV_NONE);
    kv->evicted[kv_evict_why(kv_class_of_use(kv->tree.node[b].use))]++;
    node_free(kv, b);
    kv->n_evicted++;
}

/* ---- priority and expiry */

void kv_seq_keep(struct kv *kv, const struct kv_seq *s, const struct kv_keep *keep)
{
    struct kv_hold h = kv_hold_of(keep, kv->now_s);
    for (uint32_t i = 0; i < s->n_shared; i++) kv_block_join(kv, s->block[i], h); /* locked by s: in no order now */
}

void kv_end_due(struct kv *kv)
{
    enum { DUE_MAX = 1024 }; /* of one turn: the others a turn later */
    uint32_t b;
    for (int n = 0; n < DUE_MAX && (b = kv_due_pop(&kv->due, kv->now_s)) != KV_DUE_NONE; n++) {
        if (kv->tree.node[b].heap_pos == KV_NONE) continue; /* it will find its class when it is let go */
        kv_radix_busy(&kv->tree, b);
        leaf_idle(kv, b);
    }
}

/* ---- tables */

static struct kv_table *table_of(struct kv *kv, const struct kv_seq *s)
{
    CHECK(s->slot < kv->cfg.n_seq_max);
    CHECK(kv->table[s->slot].owner == s);
    return &kv->table[s->slot];
}

enum status kv_seq_open(struct kv *kv, struct kv_salt salt, struct kv_seq *s)
{
    if (!kv->n_free_table) return ST_AGAIN;
    uint32_t slot = kv->free_table[--kv->n_free_table];
    *s = (struct kv_seq){ .block = kv->block + (size_t)slot * kv->seq_blocks_max, .salt = salt, .slot = slot };
    if (kv_has_windows(kv)) s->win = kv->win.block + (size_t)slot * kv->seq_blocks_max;
    kv->table[slot] = (struct kv_table){ .owner = s, .copy_src = KV_NONE, .copy_win = KV_NONE, .borrow_src = KV_NONE };
    return ST_OK;
}

static void copy_done(struct kv *kv, struct kv_table *t)
{
    if (t->copy_src == KV_NONE) return;
    block_unref(kv, t->copy_src);
    t->copy_src = KV_NONE;
    if (t->copy_win == KV_NONE) return;
    kv_window_unref(kv, t->copy_win, false);
    t->copy_win = KV_NONE;
}

void kv_seq_drop(struct kv *kv, struct kv_seq *s)
{
    struct kv_table *t = table_of(kv, s);
    copy_done(kv, t);
    kv->use++;
    kv_window_drop(kv, s);
    kv->win.n_kept -= t->keeps;
    t->keeps = t->plain = false;
    for (uint32_t i = s->n_block; i-- > 0;) block_unref(kv, s->block[i]); /* children before parents */
    s->n_block = s->n_shared = s->n_cached = 0;
    s->node = NULL;
    s->leave = 0;
    t->n_commit = 0;
    t->borrow_src = KV_NONE;
}

void kv_seq_shrink(struct kv *kv, struct kv_seq *s, uint32_t n_token)
{
    struct kv_table *t = table_of(kv, s);
    uint32_t         n = kv_blocks_of(kv, n_token);
    CHECK(t->copy_src == KV_NONE && (!kv_has_windows(kv) || t->plain || !s->n_block));
    kv->use++;
    kv_window_shrink(kv, s, n);
    while (s->n_block > n) block_unref(kv, s->block[--s->n_block]); /* children before parents */
    if (s->n_shared > n) s->n_shared = n;
    if (t->n_commit > n_token) t->n_commit = n_token;
    if (s->n_cached > n_token) s->n_cached = n_token;
    s->node = s->n_shared ? &kv->tree.node[s->block[s->n_shared - 1]] : NULL;
}

void kv_seq_discard(struct kv *kv, struct kv_seq *s)
{
    const struct kv_table *t = table_of(kv, s);
    uint32_t               n = s->n_shared, src = t->borrow_src;
    uint64_t               gen = t->borrow_gen;
    kv_seq_drop(kv, s); /* block[] keeps its numbers; those of the tree are still there, only unlocked */
    if (src != KV_NONE && kv->tree.node[src].gen == gen && !kv->pool.ref[src] && !kv->tree.node[src].n_child)
        node_free(kv, src);
    while (n-- > 0) {
        uint32_t b = s->block[n];
        if (!kv_in_tree(kv, b)) continue; /* computed the very block that it had borrowed from */
        if (kv->pool.ref[b] || kv->tree.node[b].n_child) break;
        node_free(kv, b);
    }
}

void kv_seq_release(struct kv *kv, struct kv_seq *s)
{
    kv_seq_drop(kv, s);
    table_of(kv, s)->owner = NULL;
    kv->free_table[kv->n_free_table++] = s->slot;
    s->block = s->win = NULL;
}

/* ---- match */

uint32_t kv_peek_more(const struct kv *kv, struct kv_salt salt, const uint32_t *ids, uint32_t n, struct kv_cursor *c)
{
    if (!kv->cfg.prefix_cache || !n) return 0;
    uint32_t bt = kv->cfg.block_tokens, end = (n - 1) / bt * bt;
    /* A node goes only when its children are gone, so one live node vouches for its whole path. */
    if (c->n && (c->n > end || kv->tree.node[c->block].gen != c->gen)) *c = (struct kv_cursor){ 0 };
    uint32_t at = c->n ? c->block : KV_NONE,
             more = c->n < end ? kv_radix_walk(&kv->tree, salt, &at, ids + c->n, (end - c->n) / bt, NULL) : 0;
    if (more) *c = (struct kv_cursor){ .gen = kv->tree.node[at].gen, .n = c->n + more * bt, .block = at };
    return kv_window_fit(kv, c->block, c->n);
}

uint32_t kv_peek(const struct kv *kv, struct kv_salt salt, const uint32_t *ids, uint32_t n)
{
    struct kv_cursor c = { 0 };
    return kv_peek_more(kv, salt, ids, n, &c);
}

uint32_t kv_cursor_idle(const struct kv *kv, const struct kv_cursor *c)
{
    uint32_t n = 0;
    if (!c->n || kv->tree.node[c->block].gen != c->gen) return 0;
    /* counts fall from the root down: the idle ones are the last of the path */
    for (uint32_t b = c->block; b != KV_NONE && !kv->pool.ref[b]; b = kv->tree.node[b].parent) n += !kv_is_guest(kv, b);
    return n;
}

/* Shortens a path that was found to where its windows allow to continue, and locks the blocks that the next row sees.
 * What the path's end lacks, and what is found, is kept longer from now on. Returns the last node of the path. */
static uint32_t match_window(struct kv *kv, struct kv_seq *s, uint32_t end)
{
    uint32_t bt = kv->cfg.block_tokens, n = kv_window_fit(kv, end, s->n_block * bt) / bt, first;
    if (n < s->n_block) kv_window_want(kv, s->block, kv_window_first(kv, s->n_block * bt), s->n_block);
    s->n_block = s->n_win = n;
    s->win_first = first = kv_window_first(kv, n * bt);
    kv_window_want(kv, s->block, first, n);
    for (uint32_t i = 0; i < first; i++) s->win[i] = KV_NONE;
    for (uint32_t i = first; i < n; i++) {
        s->win[i] = kv->win.of[s->block[i]];
        kv_window_ref(kv, s->win[i]);
    }
    return n ? s->block[n - 1] : KV_NONE;
}

uint32_t kv_seq_match(struct kv *kv, struct kv_seq *s, const uint32_t *ids, uint32_t n)
{
    struct kv_table *t = table_of(kv, s);
    CHECK(s->n_block == 0);
    kv->n_query_tokens += n;
    if (!kv->cfg.prefix_cache || !n) return 0;
    uint32_t bt = kv->cfg.block_tokens, end = (n - 1) / bt,
             parent = KV_NONE; /* at least one token is left to compute */
    s->n_block = kv_radix_walk(&kv->tree, s->salt, &parent, ids, end, s->block);
    if (kv_has_windows(kv)) parent = match_window(kv, s, parent);
    for (uint32_t i = 0; i < s->n_block; i++) block_ref(kv, s->block[i]);
    s->n_shared = s->n_block;
    s->n_cached = t->n_commit = s->n_block * bt;
    s->node = parent == KV_NONE ? NULL : &kv->tree.node[parent];
    kv->n_hit_tokens += s->n_cached;
    return s->n_cached;
}

uint32_t kv_seq_match_path(struct kv *kv, struct kv_seq *s, const uint32_t *ids, uint32_t n)
{
    struct kv_table *t = table_of(kv, s);
    CHECK(s->n_block == 0);
    t->plain = true;
    if (!kv->cfg.prefix_cache || !n) return 0;
    uint32_t bt = kv->cfg.block_tokens, end = KV_NONE;
    s->n_block = kv_radix_walk(&kv->tree, s->salt, &end, ids, (n - 1) / bt, s->block);
    for (uint32_t i = 0; i < s->n_block; i++) block_ref(kv, s->block[i]);
    s->n_shared = s->n_block;
    t->n_commit = s->n_block * bt;
    s->node = end == KV_NONE ? NULL : &kv->tree.node[end];
    kv_window_cover(kv, s);
    return t->n_commit;
}

void kv_seq_leave(const struct kv *kv, struct kv_seq *s, uint32_t n) { s->leave = n / kv->cfg.block_tokens; }

/* The copies that block i of the table begins with. */
static struct kv_copy copy_of(const struct kv_table *t, const struct kv_seq *s, uint32_t i)
{
    struct kv_copy c = { .src = t->copy_src, .dst = s->block[i], .win_src = KV_NONE, .win_dst = KV_NONE };
    if (t->copy_win == KV_NONE) return c;
    c.win_src = t->copy_win;
    c.win_dst = s->win[i];
    return c;
}

uint32_t kv_seq_borrow(struct kv *kv, struct kv_seq *s, const uint32_t *ids, uint32_t n, struct kv_copy *copy,
                       uint32_t *n_copy_out)
{
    struct kv_table *t = table_of(kv, s);
    uint32_t         at = s->n_shared * kv->cfg.block_tokens, src = KV_NONE;
    CHECK(s->n_block == s->n_shared && t->n_commit == at && t->copy_src == KV_NONE);
    if (!kv->cfg.prefix_cache || n <= at + 1) return 0;
    uint32_t most = n - 1 - at; /* at least one token is left to compute, and its place in the block */
    if (most >= kv->cfg.block_tokens) most = kv->cfg.block_tokens - 1;
    uint32_t k = kv_radix_near(&kv->tree, s->salt, at ? s->block[s->n_shared - 1] : KV_NONE, ids + at, most, &src);
    if (!k) return 0;
    uint32_t win = kv_has_windows(kv) ? kv->win.of[src] : KV_NONE;
    if (kv_has_windows(kv) && win == KV_NONE) return 0;
    block_ref(kv, src);
    if (win != KV_NONE) kv_window_ref(kv, win);
    if ((!kv->pool.n_free && !kv->n_idle) || (win != KV_NONE && !kv_window_room(kv, s))) {
        if (win != KV_NONE) kv_window_unref(kv, win, false);
        block_unref(kv, src);
        return 0;
    }
    if (!kv->pool.n_free) kv_evict_one(kv);
    s->block[s->n_block++] = kv_pool_take(&kv->pool);
    if (win != KV_NONE) s->win[s->n_win++] = kv_window_take(kv);
    t->copy_win = win;
    t->copy_src = t->borrow_src = src;
    t->borrow_gen = kv->tree.node[src].gen;
    t->n_commit = s->n_cached = at + k;
    copy[(*n_copy_out)++] = copy_of(t, s, s->n_block - 1);
    kv->n_hit_tokens += k;
    kv->n_borrowed++;
    kv->n_borrowed_tokens += k;
    return k;
}

/* ---- guests */

bool kv_guest_add(struct kv *kv, struct kv_seq *s, const uint32_t *ids, uint32_t guest)
{
    struct kv_table *t = table_of(kv, s);
    uint32_t         bt = kv->cfg.block_tokens, at = s->n_shared, parent = at ? s->block[at - 1] : KV_NONE;
    CHECK(s->n_block == at && t->n_commit == at * bt && at < kv->seq_blocks_max && guest < kv->cfg.n_guest);
    uint32_t b = kv->cfg.n_block + guest, have = kv_radix_find(&kv->tree, s->salt, parent, ids);
    if (have != KV_NONE) {
        block_ref(kv, have);
        b = have;
    } else {
        CHECK(!kv_in_tree(kv, b) && kv->pool.ref[b] == 0);
        kv_radix_insert(&kv->tree, b, s->salt, parent, ids);
        if (kv->cfg.watch.stored) kv->cfg.watch.stored(kv->cfg.watch.ctx, b);
        kv->pool.ref[b] = 1;
        kv->n_guest_in++;
    }
    s->block[at] = b;
    s->n_block = s->n_shared = at + 1;
    t->n_commit += bt;
    s->node = &kv->tree.node[b];
    return have == KV_NONE;
}

/* ---- reserve, commit, fork */

/* May others still read what s is about to write? A pending copy does not count: it is made before anything is written,
 * so the last of n forks keeps the tail itself. */
static bool tail_is_shared(const struct kv *kv, uint32_t b)
{
    uint32_t n = kv->pool.ref[b];
    for (uint32_t i = 0; n > 1 && i < kv->cfg.n_seq_max; i++) n -= kv->table[i].owner && kv->table[i].copy_src == b;
    return n > 1;
}

uint64_t kv_seq_room(const struct kv *kv, const struct kv_seq *s)
{
    uint64_t n = (uint64_t)s->n_block + kv->pool.n_free + kv->n_idle;
    if (kv_has_windows(kv)) {
        uint64_t m = (uint64_t)s->n_win + kv_window_room(kv, s);
        if (m < n) n = m;
    }
    return n * kv->cfg.block_tokens;
}

uint32_t kv_seq_covers(const struct kv *kv, const struct kv_seq *s)
{
    return (kv_has_windows(kv) ? s->n_win : s->n_block) * kv->cfg.block_tokens;
}

void kv_seq_promise(struct kv *kv, struct kv_seq *s)
{
    struct kv_table *t = table_of(kv, s);
    if (!kv_has_windows(kv) || t->keeps) return;
    t->keeps = true;
    kv->win.n_kept++;
}

enum status kv_seq_reserve(struct kv *kv, struct kv_seq *s, uint32_t n_token, struct kv_copy *copy,
                           uint32_t *n_copy_out)
{
    struct kv_table *t = table_of(kv, s);
    CHECK(n_token <= kv->cfg.seq_tokens_max);
    uint32_t have = s->n_block, want = kv_blocks_of(kv, n_token);
    uint32_t first = t->n_commit / kv->cfg.block_tokens; /* the block that the next row is written to */
    bool     cow = first < have && n_token > t->n_commit && tail_is_shared(kv, s->block[first]);
    uint32_t n = (want > have ? want - have : 0) + cow, n_win = 0;
    if (!t->plain) n_win = kv_window_wants(kv, s, want > have ? want : have);
    if (!n && !n_win) return ST_OK;
    if (n > kv->pool.n_free + kv->n_idle) return ST_AGAIN;
    if (kv_has_windows(kv) && n_win + cow > kv_window_room(kv, s)) return ST_AGAIN;
    while (kv->pool.n_free < n) kv_evict_one(kv);
    if (cow) {
        /* Only a forked tail is ever both shared and written: full blocks lie before n_commit. */
        CHECK(t->copy_src == KV_NONE);
        CHECK(!kv_in_tree(kv, s->block[first]));
        t->copy_src = s->block[first]; /* its count moves from the table to the pending copy */
        s->block[first] = kv_pool_take(&kv->pool);
        if (kv_has_windows(kv)) {
            t->copy_win = s->win[first];
            s->win[first] = kv_window_take(kv);
        }
        copy[(*n_copy_out)++] = copy_of(t, s, first);
    }
    for (uint32_t i = have; i < want; i++) s->block[i] = kv_pool_take(&kv->pool);
    if (want > have) s->n_block = want;
    for (; n_win > 0; n_win--) s->win[s->n_win++] = kv_window_take(kv);
    if (t->plain) kv_window_cover(kv, s);
    return ST_OK;
}

/* Entry i has become a node. */
static void share_window(struct kv *kv, struct kv_seq *s, uint32_t i)
{
    if (!kv_has_windows(kv)) return;
    kv_window_give(kv, s, i, s->block[i]);
    if (i < s->leave && i >= kv_window_first(kv, s->leave * kv->cfg.block_tokens)) kv->win.wanted[s->block[i]] = true;
}

/* The blocks up to `end` are full and computed: they enter the tree, or the table names those that are there. */
static void share_blocks(struct kv *kv, struct kv_seq *s, const uint32_t *ids, uint32_t end)
{
    enum { SPOTS = 16 };
    struct kv_spot spot[SPOTS];
    uint32_t       bt = kv->cfg.block_tokens, n_spot = 0, i = 0;
    for (; s->n_shared < end; s->n_shared++, i++) {
        const uint32_t *tok = ids + (size_t)s->n_shared * bt;
        uint32_t       *mine = &s->block[s->n_shared], parent = s->n_shared ? s->block[s->n_shared - 1] : KV_NONE;
        if (i == n_spot) {
            n_spot = end - s->n_shared < SPOTS ? end - s->n_shared : SPOTS;
            kv_radix_spots(&kv->tree, s->salt, parent, tok, n_spot, spot);
            for (i = 0; i < n_spot; i++) __builtin_prefetch(&kv->tree.node[mine[i]], 1);
            i = 0;
        }
        uint32_t have = kv_radix_find_at(&kv->tree, s->salt, parent, tok, &spot[i]);
        if (have == KV_NONE) {
            kv_radix_insert_at(&kv->tree, *mine, s->salt, parent, tok, &spot[i]);
            if (kv->cfg.watch.stored) kv->cfg.watch.stored(kv->cfg.watch.ctx, *mine);
        } else if (have !=
                   *mine) { /* someone computed the same: name theirs first, then let go of ours (invariant 2) */
            uint32_t dup = *mine;
            block_ref(kv, have);
            *mine = have;
            block_unref(kv, dup);
        }
        if (!table_of(kv, s)->plain) share_window(kv, s, s->n_shared);
        s->node = &kv->tree.node[*mine];
    }
}

void kv_seq_commit(struct kv *kv, struct kv_seq *s, const uint32_t *ids, uint32_t n_computed)
{
    struct kv_table *t = table_of(kv, s);
    CHECK(n_computed >= t->n_commit);
    CHECK(kv_blocks_of(kv, n_computed) <= s->n_block);
    copy_done(kv, t);
    t->n_commit = n_computed;
    if (kv->cfg.prefix_cache) share_blocks(kv, s, ids, n_computed / kv->cfg.block_tokens);
    if (!t->plain) kv_window_pass(kv, s, n_computed);
}

enum status kv_seq_hold(struct kv *kv, const struct kv_seq *parent, struct kv_seq *child, uint32_t n_token)
{
    const struct kv_table *from = table_of(kv, parent);
    struct kv_table       *to = table_of(kv, child);
    CHECK(child->n_block == 0);
    if (n_token > from->n_commit) return ST_INVALID; /* what is not computed cannot be shared */
    uint32_t n = kv_blocks_of(kv, n_token), full = n_token / kv->cfg.block_tokens;
    for (uint32_t i = 0; i < n; i++) {
        child->block[i] = parent->block[i];
        block_ref(kv, child->block[i]);
    }
    child->n_block = n;
    child->n_shared = parent->n_shared < full ? parent->n_shared : full;
    child->node = child->n_shared ? &kv->tree.node[child->block[child->n_shared - 1]] : NULL;
    to->n_commit = n_token;
    to->plain = true;
    kv_window_cover(kv, child);
    return ST_OK;
}

enum status kv_seq_fork(struct kv *kv, const struct kv_seq *parent, struct kv_seq *child, uint32_t n_token)
{
    uint32_t first = kv_has_windows(kv) ? kv_window_first(kv, n_token) : 0;
    if (kv_has_windows(kv) && first < parent->win_first) return ST_INVALID; /* the window has passed */
    enum status st = kv_seq_hold(kv, parent, child, n_token);
    if (st) return st;
    table_of(kv, child)->plain = false;
    if (!kv_has_windows(kv)) return ST_OK;
    for (uint32_t i = 0; i < first; i++) child->win[i] = KV_NONE;
    for (uint32_t i = first; i < child->n_block; i++) {
        child->win[i] = parent->win[i];
        kv_window_ref(kv, child->win[i]);
    }
    child->win_first = first;
    child->n_win = child->n_block;
    return ST_OK;
}
