/* seq: the block tables of running sequences over one pool and one tree.   Thread: engine.
 * It opens struct kv, for kvcache/device/ and its tests only.
 *
 * One count per block is both lock and owner count: ref = number of page tables that name it. A table that names a node
 * also names all blocks of the node's path. So ref > 0 on a node means that its whole path is locked; no walk to the
 * root is needed. */
#pragma once
#include "kvcache/device/due.h"
#include "kvcache/device/kv.h"
#include "kvcache/device/pin.h"
#include "kvcache/device/pool.h"
#include "kvcache/device/radix.h"
#include "kvcache/device/window.h"

struct kv_table {
    struct kv_seq *owner;    /* NULL: not open                                                            */
    uint32_t       n_commit; /* tokens whose KV is computed: where the next write goes                    */
    uint32_t       copy_src; /* source of the copy in the next step, held until the commit after it;
                                otherwise it could be freed and become another copy's target in the same step */
    uint32_t
        borrow_src; /* block of which the table holds a partial copy; KV_NONE: none. It is discarded with a table in doubt */
    uint64_t borrow_gen;
    uint32_t copy_win; /* copy_src of the window's pool */
    bool     plain;    /* holds no blocks of the window's pool (kv_seq_hold) */
    bool     keeps;    /* kv_seq_promise */
};

struct kv {
    struct kv_cfg     cfg;
    struct kv_pool    pool;
    struct kv_windows win;
    struct kv_radix   tree;
    struct kv_table  *table;      /* [n_seq_max]                        */
    uint32_t         *block;      /* [n_seq_max, seq_blocks_max]        */
    uint32_t         *free_table; /* stack                              */
    uint32_t         *scratch;    /* [2 * blocks and guests] kv_check   */
    uint32_t          seq_blocks_max, n_free_table;
    uint32_t         *left;               /* [n_left] guests that have left the tree, for the tiers (guest.h) */
    uint32_t          n_left, n_guest_in; /* n_guest_in: guests in the tree */
    struct kv_hold   *hold;               /* [blocks and guests] priority and expiry of a block in the tree */
    struct kv_due     due;                /* blocks by their expiry                               */
    struct kv_pins    pins;
    uint32_t          now_s;
    uint32_t          n_idle; /* blocks of the tree that no table names; guests do not count */
    uint64_t          use;    /* clock of the eviction order            */
    uint64_t          n_evicted, n_query_tokens, n_hit_tokens, n_borrowed, n_borrowed_tokens, evicted[KV_EVICT_WHYS];
};

/* A leaf's place in the order of eviction: its class, then the clock of use. */
enum { KV_USE_BITS = 56 };
static inline int      kv_class_of_use(uint64_t use) { return (int)(use >> KV_USE_BITS); }
static inline uint32_t kv_blocks_of(const struct kv *kv, uint32_t n_token)
{
    return (uint32_t)(((uint64_t)n_token + kv->cfg.block_tokens - 1) / kv->cfg.block_tokens);
}
/* Whether a block is a node of the tree, and whether its bytes lie on the host (guest.h). */
static inline bool kv_in_tree(const struct kv *kv, uint32_t block) { return kv->tree.node[block].gen != 0; }
static inline bool kv_is_guest(const struct kv *kv, uint32_t block) { return block >= kv->cfg.n_block; }
static inline bool kv_has_windows(const struct kv *kv) { return kv->win.pool.n_block != 0; }
/* Names of blocks: those of the pool, then guests. */
static inline uint32_t kv_n_name(const struct kv *kv) { return kv->cfg.n_block + kv->cfg.n_guest; }
void                   kv_end_due(struct kv *kv);   /* moves expired evictable blocks to the front of the order */
void                   kv_evict_one(struct kv *kv); /* the least recently used unlocked leaf; there must be one */
