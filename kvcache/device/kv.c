#include "kvcache/device/kv.h"
#include "base/check.h"
#include "base/log.h"
#include "kvcache/device/seq.h"
#include <stdlib.h>
#include <string.h>

enum {
    BLOCK_TOKENS_MAX = 256,
    BORROW_MIN = 4, /* copying a block costs a fraction of a token's computation, and locks the source for one step */
};

enum status kv_create(const struct kv_cfg *cfg, struct kv **kv_out)
{
    if (!cfg->n_block || !cfg->n_seq_max || !cfg->seq_tokens_max || !cfg->block_tokens ||
        cfg->block_tokens > BLOCK_TOKENS_MAX)
        return ST_INVALID;
    if (cfg->n_block >= KV_NONE / 4 || cfg->n_guest >= KV_NONE / 4) return ST_INVALID;
    struct kv *kv = calloc(1, sizeof *kv);
    if (!kv) return ST_NOMEM;
    kv->cfg = *cfg;
    kv->seq_blocks_max = kv_blocks_of(kv, cfg->seq_tokens_max);
    enum status st = kv_pool_init(&kv->pool, cfg->n_block, cfg->n_guest);
    uint32_t    stem = cfg->borrow_min ? cfg->borrow_min : BORROW_MIN;
    if (stem > cfg->block_tokens) stem = cfg->block_tokens;
    if (!st) st = kv_radix_init(&kv->tree, cfg->n_block, cfg->n_guest, cfg->block_tokens, stem, cfg->hash_bits);
    if (!st) st = kv_due_init(&kv->due, kv_n_name(kv));
    if (!st) st = kv_pins_init(&kv->pins, kv, cfg->pin_percent, kv->seq_blocks_max);
    if (st) goto err_free;
    /* Tables for the longest sequences are large. calloc takes pages from the system, and these cost nothing until
     * their first use. */
    kv->table = calloc(cfg->n_seq_max, sizeof *kv->table);
    kv->block = calloc((size_t)cfg->n_seq_max * kv->seq_blocks_max, sizeof *kv->block);
    kv->free_table = calloc(cfg->n_seq_max, sizeof *kv->free_table);
    kv->hold = calloc(kv_n_name(kv), sizeof *kv->hold);
    kv->left = calloc((size_t)cfg->n_guest + 1, sizeof *kv->left);
    kv->scratch = calloc((size_t)2 * kv_n_name(kv), sizeof *kv->scratch);
    st = kv_windows_init(kv);
    if (st) goto err_free;
    st = ST_NOMEM;
    if (!kv->table || !kv->block || !kv->free_table || !kv->hold || !kv->left || !kv->scratch) goto err_free;
    for (uint32_t i = 0; i < cfg->n_seq_max; i++) kv->free_table[i] = cfg->n_seq_max - 1 - i;
    kv->n_free_table = cfg->n_seq_max;
    *kv_out = kv;
    return ST_OK;
err_free:
    kv_free(kv);
    return st;
}

void kv_free(struct kv *kv)
{
    if (!kv) return;
    kv_pins_close(&kv->pins);
    kv_due_close(&kv->due);
    free(kv->hold);
    free(kv->left);
    kv_windows_close(kv);
    kv_pool_close(&kv->pool);
    kv_radix_close(&kv->tree);
    free(kv->table);
    free(kv->block);
    free(kv->free_table);
    free(kv->scratch);
    free(kv);
}

void kv_tick(struct kv *kv, uint64_t now_us)
{
    kv->now_s = (uint32_t)(now_us / 1000000);
    kv_end_due(kv);
    kv_unpin(kv, now_us);
}

uint32_t kv_free_count(const struct kv *kv) { return kv->pool.n_free; }
uint32_t kv_available_count(const struct kv *kv) { return kv->pool.n_free + kv->n_idle; }

void kv_evict_all(struct kv *kv)
{
    while (kv->tree.n_heap) kv_evict_one(kv);
    kv_window_evict_all(kv);
}

void kv_stats(const struct kv *kv, struct kv_stats *out)
{
    uint32_t n_tree = kv->tree.n_node - kv->n_guest_in; /* of the pool */
    *out = (struct kv_stats){
        .n_free = kv->pool.n_free,
        .n_private = kv->cfg.n_block - kv->pool.n_free - n_tree,
        .n_tree = n_tree,
        .n_locked = n_tree - kv->n_idle,
        .n_guest = kv->n_guest_in,
        .n_evicted = kv->n_evicted,
        .n_query_tokens = kv->n_query_tokens,
        .n_hit_tokens = kv->n_hit_tokens,
        .n_window_free = kv->win.pool.n_free,
        .n_window_idle = (uint32_t)kv->win.n_heap,
        .n_window_passed = kv->win.n_passed,
        .n_window_evicted = kv->win.n_evicted,
        .n_pinned = kv->pins.n_device,
        .n_pin_refused = kv->pins.n_refused,
        .n_borrowed = kv->n_borrowed,
        .n_borrowed_tokens = kv->n_borrowed_tokens,
    };
    memcpy(out->evicted, kv->evicted, sizeof out->evicted);
}

/* ---- check */

#define FAULT(...)              \
    do {                        \
        LOG_ERROR(__VA_ARGS__); \
        return ST_INVALID;      \
    } while (0)

static bool salt_equal(struct kv_salt a, struct kv_salt b) { return a.lo == b.lo && a.hi == b.hi; }

/* One table: its leading n_shared blocks are a path of the tree, the others are private. seen[] holds slot + 1 of the
 * last table that named a block, so that no table names one twice. */
static enum status check_table(const struct kv *kv, uint32_t slot, uint32_t *ref, uint32_t *seen)
{
    const struct kv_table *t = &kv->table[slot];
    const struct kv_seq   *s = t->owner;
    uint32_t               bt = kv->cfg.block_tokens;
    if (s->slot != slot || s->block != kv->block + (size_t)slot * kv->seq_blocks_max)
        FAULT("kv: table %u does not know its owner", slot);
    if (s->n_block > kv->seq_blocks_max || s->n_shared > s->n_block)
        FAULT("kv: table %u: %u of %u blocks are shared", slot, s->n_shared, s->n_block);
    if (s->n_cached > t->n_commit || kv_blocks_of(kv, t->n_commit) > s->n_block)
        FAULT("kv: table %u: %u cached, %u computed, %u blocks", slot, s->n_cached, t->n_commit, s->n_block);
    if (s->n_shared > t->n_commit / bt)
        FAULT("kv: table %u: %u shared blocks for %u computed tokens", slot, s->n_shared, t->n_commit);
    const struct kv_node *deepest = s->n_shared ? &kv->tree.node[s->block[s->n_shared - 1]] : NULL;
    if (s->node != deepest) FAULT("kv: table %u locks another node than its last shared block", slot);
    for (uint32_t i = 0; i < s->n_block; i++) {
        uint32_t b = s->block[i];
        if (b >= kv_n_name(kv)) FAULT("kv: table %u names block %u", slot, b);
        if (kv_is_guest(kv, b) && i >= s->n_shared) FAULT("kv: table %u: guest %u is to be written", slot, b);
        if (seen[b] == slot + 1) FAULT("kv: table %u names block %u twice", slot, b);
        seen[b] = slot + 1;
        ref[b]++;
        if (i < s->n_shared) {
            uint32_t parent = i ? s->block[i - 1] : KV_NONE;
            if (!kv_in_tree(kv, b)) FAULT("kv: table %u: shared block %u is not in the tree", slot, b);
            if (kv->tree.node[b].parent != parent)
                FAULT("kv: table %u: block %u is not the child of %u", slot, b, parent);
            if (!salt_equal(kv->tree.node[b].salt, s->salt))
                FAULT("kv: table %u: block %u is of another salt", slot, b);
        } else if (kv_in_tree(kv, b) && i >= t->n_commit / bt) {
            FAULT("kv: table %u: block %u is in the tree before it is full", slot, b);
        }
    }
    if (t->copy_src != KV_NONE) ref[t->copy_src]++;
    return ST_OK;
}

/* Checks that `due` has every block with an expiry, and that every evictable leaf is in the class that its hold
 * implies. */
static enum status check_holds(const struct kv *kv)
{
    if (!kv_due_check(&kv->due)) FAULT("kv: the ends of blocks are out of order");
    for (uint32_t b = 0; b < kv_n_name(kv); b++) {
        const struct kv_hold *h = &kv->hold[b];
        const struct kv_node *n = &kv->tree.node[b];
        if (!n->gen && (h->used || kv_due_has(&kv->due, b))) FAULT("kv: block %u is held and not in the tree", b);
        if (!n->gen) continue;
        if (kv_hold_ends(h) ? !kv_due_has(&kv->due, b) && h->until_s > kv->now_s : kv_due_has(&kv->due, b))
            FAULT("kv: block %u ends at %u and nobody knows", b, h->until_s);
        if (n->heap_pos == KV_NONE) continue;
        if (kv_class_of_use(n->use) != kv_hold_class(h, kv->now_s) && !kv_due_has(&kv->due, b))
            FAULT("kv: leaf %u is in class %d of the order, not %d", b, kv_class_of_use(n->use),
                  kv_hold_class(h, kv->now_s));
    }
    return ST_OK;
}

/* Checks that a guest is in the tree or that no table names it. A guest that has left is reported once. */
static enum status check_guests(const struct kv *kv, const uint32_t *ref, uint32_t *seen)
{
    uint32_t n_in = 0;
    for (uint32_t i = 0; i < kv->n_left; i++) {
        uint32_t b = kv->left[i];
        if (b >= kv_n_name(kv) || !kv_is_guest(kv, b) || seen[b]++ || kv_in_tree(kv, b))
            FAULT("kv: guest %u has left, and has not", b);
    }
    for (uint32_t b = kv->cfg.n_block; b < kv_n_name(kv); b++) {
        if (ref[b] != kv->pool.ref[b])
            FAULT("kv: guest %u is named %u times and counted %u times", b, ref[b], kv->pool.ref[b]);
        if (ref[b] && !kv_in_tree(kv, b)) FAULT("kv: guest %u is named and not in the tree", b);
        n_in += kv_in_tree(kv, b);
    }
    if (n_in != kv->n_guest_in) FAULT("kv: %u guests are in the tree, counted %u", n_in, kv->n_guest_in);
    return ST_OK;
}

enum status kv_check(const struct kv *kv)
{
    uint32_t *ref = kv->scratch, *seen = kv->scratch + kv_n_name(kv), n_open = 0, n_idle = 0;
    memset(kv->scratch, 0, (size_t)2 * kv_n_name(kv) * sizeof *ref);
    for (uint32_t i = 0; i < kv->cfg.n_seq_max; i++) {
        if (!kv->table[i].owner) continue;
        n_open++;
        enum status st = check_table(kv, i, ref, seen);
        if (st) return st;
    }
    if (n_open + kv->n_free_table != kv->cfg.n_seq_max)
        FAULT("kv: %u open and %u free tables of %u", n_open, kv->n_free_table, kv->cfg.n_seq_max);

    memset(seen, 0, kv_n_name(kv) * sizeof *seen);
    enum status guests = check_guests(kv, ref, seen);
    if (guests) return guests;
    for (uint32_t i = 0; i < kv->pool.n_free; i++) {
        uint32_t b = kv->pool.free_id[i];
        if (b >= kv->cfg.n_block || seen[b]++) FAULT("kv: block %u is free twice", b);
    }
    uint32_t n_used = 0;
    for (uint32_t b = 0; b < kv->cfg.n_block; b++) {
        if (ref[b] != kv->pool.ref[b])
            FAULT("kv: block %u is named %u times and counted %u times", b, ref[b], kv->pool.ref[b]);
        bool used = ref[b] > 0 || kv_in_tree(kv, b);
        if (used == (seen[b] != 0)) FAULT("kv: block %u is %s", b, used ? "free and in use" : "lost");
        n_used += used;
        n_idle += ref[b] == 0 && kv_in_tree(kv, b);
    }
    if (n_used + kv->pool.n_free != kv->cfg.n_block)
        FAULT("kv: %u used and %u free of %u blocks", n_used, kv->pool.n_free, kv->cfg.n_block);
    if (n_idle != kv->n_idle) FAULT("kv: %u idle blocks, counted %u", n_idle, kv->n_idle);
    if (kv_pins_check(&kv->pins) || check_holds(kv) || kv_windows_check(kv)) return ST_INVALID;
    return kv_radix_check(&kv->tree, kv->pool.ref);
}
