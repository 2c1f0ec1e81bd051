/* window: the pool of blocks for layers that see a window of tokens.   Thread: engine.
 *
 * A model may have layers that see all tokens and layers that see the last `window` of them. The former have the blocks
 * of pool.h and the tree. The latter have blocks here, as many tokens each, under ids of their own: kv_seq.win beside
 * kv_seq.block. A table holds the blocks [win_first, n_win): those before win_first have been passed by the window and
 * are KV_NONE.
 *
 * A full block here belongs to the node of the tree with the same tokens, at most one to each. Nodes may lose theirs:
 * so a prefix can be continued at n tokens only if the nodes of the tokens that row n sees still have them
 * (kv_window_fit). A block that no table names and that has a node can be evicted, in the order of class, then last
 * use:
 *   those that a window has passed, inside of a path;
 *   those at the end of a sequence, and those before a place where another prompt has continued or would have;
 *   those at the end of a pin.
 * A node that leaves the tree takes its block along.
 *
 * A block is passed when the tokens that it holds are not seen by the first row that is not committed, nor by one up to
 * a block before it, where a later prompt may continue. Rows in flight are not committed, so they never read a block
 * that is given away. */
#pragma once
#include "kvcache/device/kv.h"
#include "kvcache/device/pool.h"
#include <stddef.h>

struct kv_windows {
    struct kv_pool pool;     /* n_block 0: there is none                                 */
    uint32_t      *of;       /* [n_block of the tree] the node's block here; KV_NONE: it has none */
    bool          *wanted;   /* [the same] a prompt has continued behind it, or nearly so */
    uint32_t      *node;     /* [pool.n_block] the node it belongs to; KV_NONE: none     */
    uint64_t      *use;      /* [the same] place in the order of eviction                */
    uint32_t      *heap_pos; /* [the same] KV_NONE: it cannot be evicted                 */
    uint64_t      *heap;     /* [n_heap]                                                 */
    uint32_t      *block;    /* [n_seq_max, seq_blocks_max] tables                       */
    uint32_t      *scratch;  /* [2 * pool.n_block] kv_check                              */
    size_t         n_heap;
    uint32_t       seq_max; /* most blocks that a table holds */
    uint32_t       n_kept;  /* tables with a promise (kv_table.keeps) */
    uint64_t       n_passed, n_evicted;
};

enum { KV_WINDOW_SPARE = 2 }; /* blocks beside those of one table: a copied tail and what it is copied from */
/* The blocks of one table at most, with windows of `window` tokens and `ahead` tokens reserved beyond those that are
 * computed. */
static inline uint32_t kv_window_seq_max(uint32_t window, uint32_t ahead, uint32_t block_tokens)
{
    return (uint32_t)(((uint64_t)window + ahead + block_tokens - 1) / block_tokens) + 2;
}

/* Blocks of the smallest pool: with it a sequence is computed to its end, if only a block at a time. */
static inline uint32_t kv_window_least(uint32_t window, uint32_t block_tokens)
{
    return kv_window_seq_max(window, 1, block_tokens) + KV_WINDOW_SPARE;
}

/* As kv_create asks. ST_NOMEM; ST_INVALID: too few blocks, or guests. */
enum status kv_windows_init(struct kv *kv);
void        kv_windows_close(struct kv *kv);

/* The first block of a table with n computed tokens. */
uint32_t kv_window_first(const struct kv *kv, uint32_t n);
/* The longest beginning of the path to node `block`, which ends at n tokens, that can be continued. */
uint32_t kv_window_fit(const struct kv *kv, uint32_t block, uint32_t n);

/* Counts. passed: the window went on, the sequence did not end. kv_window_take: ref 1; there must be room. */
void     kv_window_ref(struct kv *kv, uint32_t w);
void     kv_window_unref(struct kv *kv, uint32_t w, bool passed);
uint32_t kv_window_take(struct kv *kv);
/* Blocks that the table of s (NULL: a new one) may take now, beside what other tables keep. */
uint32_t kv_window_room(const struct kv *kv, const struct kv_seq *s);
/* Blocks that the table lacks to reach n_block blocks: it never holds more than seq_max. */
uint32_t kv_window_wants(const struct kv *kv, const struct kv_seq *s, uint32_t n_block);

/* Entry i of the table has become node `node` of the tree: its block belongs to that, or that has one already, which
 * the table then names. */
void kv_window_give(struct kv *kv, struct kv_seq *s, uint32_t i, uint32_t node);
void kv_window_gone(struct kv *kv, uint32_t node); /* it leaves the tree */
/* Blocks [first, n) of the path of s will be asked for again: they are evicted later. */
void kv_window_want(struct kv *kv, const uint32_t *path, uint32_t first, uint32_t n);
/* Tokens below n are computed: what the window has passed is given back. */
void kv_window_pass(struct kv *kv, struct kv_seq *s, uint32_t n);
void kv_window_drop(struct kv *kv, struct kv_seq *s); /* all of the table's */
void kv_window_evict_all(struct kv *kv);

/* For the tiers: the block of a node, or KV_NONE; whether it will be asked for again. */
uint32_t kv_window_of(const struct kv *kv, uint32_t node);
bool     kv_window_wanted(const struct kv *kv, uint32_t node);
/* Entries of a table that only holds its blocks. lend: entry i, of the tree, names the block of its node; false: that
 * has none. claim: a new block; there must be room. return: the entry names none any more. */
bool kv_window_lend(struct kv *kv, struct kv_seq *s, uint32_t i);
void kv_window_claim(struct kv *kv, struct kv_seq *s, uint32_t i);
void kv_window_return(struct kv *kv, struct kv_seq *s, uint32_t i);
/* Such a table has an entry for each of its blocks: new ones name none. */
void kv_window_cover(struct kv *kv, struct kv_seq *s);
void kv_window_shrink(struct kv *kv, struct kv_seq *s, uint32_t n_block);

/* All invariants of the pool, its tables and its order. ST_INVALID after logging the first fault. */
enum status kv_windows_check(const struct kv *kv);
