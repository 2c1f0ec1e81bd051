#include "kvcache/device/window.h"
#include "base/check.h"
#include "base/heap.h"
#include "base/log.h"
#include "kvcache/device/seq.h"
#include <stdlib.h>
#include <string.h>

enum { CLASS_PASSED, CLASS_END, CLASS_PINNED };

enum status kv_windows_init(struct kv *kv)
{
    struct kv_windows *x = &kv->win;
    uint32_t           n = kv->cfg.n_window;
    if (!n) return ST_OK;
    if (kv->cfg.n_guest || n >= KV_NONE / 4 || !kv->cfg.window) return ST_INVALID;
    if (n < kv_window_least(kv->cfg.window, kv->cfg.block_tokens)) return ST_INVALID;
    x->seq_max = kv_window_seq_max(kv->cfg.window, kv->cfg.window_ahead, kv->cfg.block_tokens);
    if (x->seq_max > n - KV_WINDOW_SPARE) x->seq_max = n - KV_WINDOW_SPARE; /* chunks of prompts are shorter then */
    enum status st = kv_pool_init(&x->pool, n, 0);
    if (st) return st;
    x->of = malloc(kv->cfg.n_block * sizeof *x->of);
    x->wanted = calloc(kv->cfg.n_block, sizeof *x->wanted);
    x->node = malloc(n * sizeof *x->node);
    x->use = calloc(n, sizeof *x->use);
    x->heap_pos = malloc(n * sizeof *x->heap_pos);
    x->heap = calloc(n, sizeof *x->heap);
    x->block = calloc((size_t)kv->cfg.n_seq_max * kv->seq_blocks_max, sizeof *x->block);
    x->scratch = calloc((size_t)2 * n, sizeof *x->scratch);
    if (!x->of || !x->wanted || !x->node || !x->use || !x->heap_pos || !x->heap || !x->block || !x->scratch)
        return ST_NOMEM;
    memset(x->of, 0xff, kv->cfg.n_block * sizeof *x->of); /* KV_NONE */
    memset(x->node, 0xff, n * sizeof *x->node);
    memset(x->heap_pos, 0xff, n * sizeof *x->heap_pos);
    return ST_OK;
}

void kv_windows_close(struct kv *kv)
{
    struct kv_windows *x = &kv->win;
    kv_pool_close(&x->pool);
    free(x->of);
    free(x->wanted);
    free(x->node);
    free(x->use);
    free(x->heap_pos);
    free(x->heap);
    free(x->block);
    free(x->scratch);
}

/* ---- what a row sees */

/* Row n sees itself and the window - 1 tokens before it. Of a computed length only whole blocks count: a later prompt
 * may continue at their end. */
uint32_t kv_window_first(const struct kv *kv, uint32_t n)
{
    uint32_t bt = kv->cfg.block_tokens, at = n / bt * bt;
    return at + 1 > kv->cfg.window ? (at + 1 - kv->cfg.window) / bt : 0;
}

uint32_t kv_window_fit(const struct kv *kv, uint32_t block, uint32_t n)
{
    uint32_t bt = kv->cfg.block_tokens, end = n / bt, at = end;
    if (!kv_has_windows(kv)) return n;
    /* A node without a block is seen by every row up to a window behind it, so the next end to try is where it
     * begins. */
    while (at > kv_window_first(kv, end * bt)) {
        at--;
        if (kv->win.of[block] == KV_NONE) end = at;
        block = kv->tree.node[block].parent;
    }
    return end * bt;
}

/* ---- the order of eviction */

static bool older(const void *ctx, uint64_t a, uint64_t b)
{
    const struct kv_windows *x = ctx;
    return x->use[a] != x->use[b] ? x->use[a] < x->use[b] : a < b;
}

static void stands_at(void *ctx, uint64_t w, size_t at)
{
    struct kv_windows *x = ctx;
    x->heap_pos[w] = (uint32_t)at;
}

static struct heap_order by_use(struct kv_windows *x) { return (struct heap_order){ older, stands_at, x }; }

static void idle(struct kv *kv, uint32_t w, bool passed)
{
    struct kv_windows *x = &kv->win;
    uint32_t           node = x->node[w];
    uint64_t class = passed && !x->wanted[node] ? CLASS_PASSED : CLASS_END;
    if (x->wanted[node] && kv->pins.named[node]) class = CLASS_PINNED;
    x->use[w] = class << KV_USE_BITS | kv->use;
    heap_push(x->heap, &x->n_heap, w, by_use(x));
}

static void busy(struct kv *kv, uint32_t w)
{
    struct kv_windows *x = &kv->win;
    if (x->heap_pos[w] == KV_NONE) return;
    heap_take(x->heap, &x->n_heap, x->heap_pos[w], by_use(x));
    x->heap_pos[w] = KV_NONE;
}

/* A block that no table names leaves its node. */
static void set_free(struct kv *kv, uint32_t w)
{
    struct kv_windows *x = &kv->win;
    busy(kv, w);
    x->of[x->node[w]] = KV_NONE;
    x->node[w] = KV_NONE;
    kv_pool_put(&x->pool, w);
}

void kv_window_evict_all(struct kv *kv)
{
    while (kv->win.n_heap) set_free(kv, (uint32_t)kv->win.heap[0]);
}

/* ---- counts */

void kv_window_ref(struct kv *kv, uint32_t w)
{
    if (kv->win.pool.ref[w]++) return;
    CHECK(kv->win.node[w] != KV_NONE);
    busy(kv, w);
}

void kv_window_unref(struct kv *kv, uint32_t w, bool passed)
{
    CHECK(kv->win.pool.ref[w] > 0);
    if (--kv->win.pool.ref[w]) return;
    if (kv->win.node[w] == KV_NONE)
        kv_pool_put(&kv->win.pool, w);
    else
        idle(kv, w, passed);
}

uint32_t kv_window_take(struct kv *kv)
{
    struct kv_windows *x = &kv->win;
    if (!x->pool.n_free) {
        CHECK(x->n_heap);
        set_free(kv, (uint32_t)x->heap[0]);
        x->n_evicted++;
    }
    return kv_pool_take(&x->pool);
}

static uint32_t held(const struct kv_seq *s) { return s->n_win - s->win_first; }

uint32_t kv_window_wants(const struct kv *kv, const struct kv_seq *s, uint32_t n_block)
{
    if (!kv_has_windows(kv)) return 0;
    uint32_t most = s->win_first + kv->win.seq_max;
    if (n_block > most) n_block = most;
    return n_block > s->n_win ? n_block - s->n_win : 0;
}

/* What a table with a promise still lacks of it. */
static uint32_t kept_for(const struct kv *kv, const struct kv_table *t)
{
    if (!t->owner || !t->keeps) return 0;
    return kv_window_wants(kv, t->owner, t->owner->n_block);
}

uint32_t kv_window_room(const struct kv *kv, const struct kv_seq *s)
{
    uint32_t have = kv->win.pool.n_free + (uint32_t)kv->win.n_heap, kept = 0;
    for (uint32_t i = 0; kv->win.n_kept && i < kv->cfg.n_seq_max; i++)
        if (kv->table[i].owner != s) kept += kept_for(kv, &kv->table[i]);
    return have > kept ? have - kept : 0;
}

uint32_t kv_window_available(const struct kv *kv) { return kv_window_room(kv, NULL); }

uint32_t kv_window_need(const struct kv *kv, const struct kv_seq *s, uint32_t n_hit, uint32_t n_token)
{
    if (!kv_has_windows(kv)) return 0;
    uint32_t first = kv_window_first(kv, n_hit), end = kv_blocks_of(kv, n_token), n = end > first ? end - first : 0;
    if (n > kv->win.seq_max) n = kv->win.seq_max;
    uint32_t have = s ? held(s) : 0;
    return n > have ? n - have : 0;
}

/* ---- tables */

void kv_window_give(struct kv *kv, struct kv_seq *s, uint32_t i, uint32_t node)
{
    struct kv_windows *x = &kv->win;
    if (!kv_has_windows(kv)) return;
    CHECK(i >= s->win_first && i < s->n_win);
    uint32_t mine = s->win[i], theirs = x->of[node];
    if (theirs == mine) return;
    if (theirs != KV_NONE) { /* of equal bytes */
        kv_window_ref(kv, theirs);
        s->win[i] = theirs;
        kv_window_unref(kv, mine, false);
        return;
    }
    if (x->pool.ref[mine] > 1) return; /* another table names it beside another node, or none */
    x->of[node] = mine;
    x->node[mine] = node;
}

void kv_window_gone(struct kv *kv, uint32_t node)
{
    if (!kv_has_windows(kv)) return;
    kv->win.wanted[node] = false;
    uint32_t w = kv->win.of[node];
    if (w == KV_NONE) return;
    CHECK(kv->win.pool.ref[w] == 0);
    set_free(kv, w);
}

void kv_window_want(struct kv *kv, const uint32_t *path, uint32_t first, uint32_t n)
{
    for (uint32_t i = first; i < n; i++) {
        uint32_t w = kv->win.of[path[i]];
        kv->win.wanted[path[i]] = true;
        if (w == KV_NONE || kv->win.heap_pos[w] == KV_NONE) continue;
        busy(kv, w);
        idle(kv, w, false);
    }
}

void kv_window_pass(struct kv *kv, struct kv_seq *s, uint32_t n)
{
    if (!kv_has_windows(kv)) return;
    for (uint32_t first = kv_window_first(kv, n); s->win_first < first && s->win_first < s->n_win; s->win_first++) {
        kv_window_unref(kv, s->win[s->win_first], true);
        s->win[s->win_first] = KV_NONE;
        kv->win.n_passed++;
    }
}

void kv_window_shrink(struct kv *kv, struct kv_seq *s, uint32_t n_block)
{
    while (s->n_win > s->win_first && s->n_win > n_block) kv_window_return(kv, s, --s->n_win);
}

void kv_window_drop(struct kv *kv, struct kv_seq *s)
{
    kv_window_shrink(kv, s, 0);
    s->win_first = s->n_win = 0;
}

/* ---- tables that only hold their blocks */

uint32_t kv_window_of(const struct kv *kv, uint32_t node) { return kv_has_windows(kv) ? kv->win.of[node] : KV_NONE; }
bool     kv_window_wanted(const struct kv *kv, uint32_t node) { return kv_has_windows(kv) && kv->win.wanted[node]; }

void kv_window_cover(struct kv *kv, struct kv_seq *s)
{
    while (kv_has_windows(kv) && s->n_win < s->n_block) s->win[s->n_win++] = KV_NONE;
}

bool kv_window_lend(struct kv *kv, struct kv_seq *s, uint32_t i)
{
    CHECK(i < s->n_shared && s->win[i] == KV_NONE);
    s->win[i] = kv->win.of[s->block[i]];
    if (s->win[i] == KV_NONE) return false;
    kv_window_ref(kv, s->win[i]);
    return true;
}

void kv_window_claim(struct kv *kv, struct kv_seq *s, uint32_t i)
{
    CHECK(i < s->n_win && s->win[i] == KV_NONE);
    s->win[i] = kv_window_take(kv);
}

void kv_window_return(struct kv *kv, struct kv_seq *s, uint32_t i)
{
    if (s->win[i] != KV_NONE) kv_window_unref(kv, s->win[i], false);
    s->win[i] = KV_NONE;
}

/* ---- check */

#define FAULT(...)              \
    do {                        \
        LOG_ERROR(__VA_ARGS__); \
        return ST_INVALID;      \
    } while (0)

static enum status check_table(const struct kv *kv, const struct kv_table *t, uint32_t *ref)
{
    const struct kv_seq *s = t->owner;
    uint32_t             n = kv->cfg.n_window, first = kv_window_first(kv, t->n_commit);
    if (s->win != kv->win.block + (size_t)s->slot * kv->seq_blocks_max)
        FAULT("kv: table %u has another one for windows", s->slot);
    if (t->copy_win != KV_NONE) ref[t->copy_win]++;
    if (!s->n_block && !s->n_win) return ST_OK;
    if (t->plain && (s->n_win != s->n_block || s->win_first))
        FAULT("kv: table %u is only held, and has %u entries for windows of %u blocks", s->slot, s->n_win, s->n_block);
    if (!t->plain && (s->n_win > s->n_block || s->win_first != (first < s->n_win ? first : s->n_win) ||
                      kv_blocks_of(kv, t->n_commit) > s->n_win))
        FAULT("kv: table %u: blocks %u to %u of %u have a window, with %u tokens computed", s->slot, s->win_first,
              s->n_win, s->n_block, t->n_commit);
    if (!t->plain && held(s) > kv->win.seq_max) FAULT("kv: table %u holds %u blocks of a window", s->slot, held(s));
    for (uint32_t i = 0; i < s->n_win; i++) {
        uint32_t w = s->win[i];
        if (i < s->win_first && w != KV_NONE) FAULT("kv: table %u names block %u that is passed", s->slot, i);
        if (i < s->win_first || (t->plain && w == KV_NONE)) continue;
        if (w >= n) FAULT("kv: table %u names block %u of a window", s->slot, w);
        ref[w]++;
        if (kv->win.node[w] != KV_NONE && (i >= s->n_shared || kv->win.node[w] != s->block[i]))
            FAULT("kv: table %u: block %u of a window is another node's", s->slot, w);
    }
    return ST_OK;
}

static enum status check_order(const struct kv *kv)
{
    const struct kv_windows *x = &kv->win;
    uint32_t                 n_idle = 0;
    for (uint32_t w = 0; w < kv->cfg.n_window; w++) {
        bool is = x->node[w] != KV_NONE && !x->pool.ref[w];
        if (is != (x->heap_pos[w] != KV_NONE)) FAULT("kv: block %u of a window is out of order", w);
        if (x->node[w] != KV_NONE && (!kv_in_tree(kv, x->node[w]) || x->of[x->node[w]] != w))
            FAULT("kv: block %u of a window belongs to node %u, which does not know it", w, x->node[w]);
        if (!is) continue;
        n_idle++;
        if (x->heap_pos[w] >= x->n_heap || x->heap[x->heap_pos[w]] != w ||
            (x->heap_pos[w] && older(x, w, x->heap[heap_parent(x->heap_pos[w])])))
            FAULT("kv: block %u of a window is at the wrong place of the order", w);
    }
    if (n_idle != x->n_heap) FAULT("kv: %u blocks of windows can be evicted, counted %zu", n_idle, x->n_heap);
    for (uint32_t b = 0; b < kv->cfg.n_block; b++) {
        if (x->of[b] != KV_NONE && (x->of[b] >= kv->cfg.n_window || x->node[x->of[b]] != b))
            FAULT("kv: node %u has block %u of a window, which is not its own", b, x->of[b]);
        if (x->wanted[b] && !kv_in_tree(kv, b)) FAULT("kv: block %u is wanted and not in the tree", b);
    }
    return ST_OK;
}

enum status kv_windows_check(const struct kv *kv)
{
    const struct kv_windows *x = &kv->win;
    if (!kv_has_windows(kv)) return ST_OK;
    uint32_t *ref = x->scratch, n = kv->cfg.n_window, *seen = ref + n, n_kept = 0;
    memset(ref, 0, (size_t)2 * n * sizeof *ref);
    for (uint32_t i = 0; i < kv->cfg.n_seq_max; i++) {
        if (!kv->table[i].owner) continue;
        enum status st = check_table(kv, &kv->table[i], ref);
        if (st) return st;
        n_kept += kv->table[i].keeps;
    }
    if (n_kept != x->n_kept) FAULT("kv: %u tables keep blocks of windows, counted %u", n_kept, x->n_kept);
    for (uint32_t i = 0; i < x->pool.n_free; i++) {
        uint32_t w = x->pool.free_id[i];
        if (w >= n || seen[w]++) FAULT("kv: block %u of a window is free twice", w);
    }
    for (uint32_t w = 0; w < n; w++) {
        if (ref[w] != x->pool.ref[w])
            FAULT("kv: block %u of a window is named %u times and counted %u times", w, ref[w], x->pool.ref[w]);
        bool used = ref[w] > 0 || x->node[w] != KV_NONE;
        if (used == (seen[w] != 0)) FAULT("kv: block %u of a window is %s", w, used ? "free and in use" : "lost");
    }
    return check_order(kv);
}
