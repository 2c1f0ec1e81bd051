/* kv: knows which block holds the KV of which tokens.   Thread: engine.
 * kv_create -> per sequence: match -> reserve -> commit -> (reserve -> commit)* -> release -> kv_free.
 * It handles block ids only; the bytes belong to the device. kv_create allocates all memory.
 *
 * Invariants, as code in kv_check():
 *  1 A block is free, private to one sequence, or shared and immutable.
 *  2 No page table names a free block; a duplicate is remapped before it is freed.
 *  3 Only full blocks enter the tree.
 *  4 A match leaves at least one token to compute.
 *  5 Match happens before counting: reserve takes the count that the match returned.
 *  6 Only unlocked leaves are evicted; a lock covers the path to the root.
 *  7 A block on two tiers is equal on both or is dropped from the lower.
 *  8 Losing any block costs recomputation, never correctness. */
#pragma once
#include "base/status.h"
#include "kvcache/device/keep.h"
#include <stdbool.h>
#include <stdint.h>

struct kv;      /* opaque: only kvcache/device/ may look inside; the tiers ask by block.h and pin.h */
struct kv_node; /* of the radix tree */

/* Is told when a block, or a guest, enters the tree, and before it leaves it. Zero: nobody is. */
struct kv_watch {
    void *ctx;
    void (*stored)(void *ctx, uint32_t block);
    void (*removed)(void *ctx, uint32_t block);
};

struct kv_cfg {
    uint32_t n_block;        /* of the device pool                        */
    uint32_t n_guest;        /* blocks outside the pool that tables may name (guest.h); 0: none */
    uint32_t block_tokens;   /* 1..256; 16, 32 or 64 in production        */
    uint32_t n_seq_max;      /* sequences that hold blocks at one time    */
    uint32_t seq_tokens_max; /* longest sequence, for the block tables  */
    bool     prefix_cache;   /* false: nothing is ever shared between requests */
    uint32_t
        borrow_min; /* least number of common tokens for which a block is copied (kv_seq_borrow); 0: 4, at most a block */
    uint32_t        n_window;     /* of the pool of layers with a window (window.h); 0: they have none of their own */
    uint32_t        window;       /* with it: tokens that a row sees, itself included */
    uint32_t        window_ahead; /* the same: most tokens that are reserved beyond those computed */
    uint32_t        pin_percent;  /* share of the pool, and of the host below it, that pins may hold */
    uint32_t        hash_bits;    /* tests: force collisions of the tree's hash; 0: all 64 bits */
    struct kv_watch watch;
};

/* Isolates prefixes: sequences with different salts never share a block. Zero: the common tree. */
struct kv_salt {
    uint64_t lo, hi;
};
/* Salts of prompts that an adapter computes: the bytes of their blocks follow from more than their ids. They are marked
 * so in the upper bits of hi. A salt of another kind that happens to look so is taken for one, which costs a proof. */
#define KV_SALT_ADAPTER UINT64_C(0xada7)
static inline bool kv_salt_adapts(struct kv_salt s) { return s.hi >> 48 == KV_SALT_ADAPTER; }

/* Marks blocks on the host as belonging to a pin (pin.h). Zero: to none. */
struct kv_mark {
    uint32_t number, gen, n_block; /* the first n_block of the sequence */
};

/* The block table of one sequence. Fields are read by batch.c, written by kvcache/ only. Must not move while open. */
struct kv_seq {
    uint32_t *block; /* [n_block] ids in order of position; storage of kv, kv_seq_open */
    uint32_t  n_block;
    uint32_t *win; /* [n_win] the same of the window's pool; before win_first KV_NONE: passed. NULL: no such pool */
    uint32_t  n_win, win_first; /* n_win: at most n_block */
    uint32_t  leave;            /* blocks (kv_seq_leave) */
    uint32_t  n_shared;         /* leading blocks that are in the tree (immutable)                */
    uint32_t  n_cached;         /* tokens found by the match and by borrowing                     */
    struct kv_node *node;       /* deepest locked node; NULL: nothing locked                       */
    struct kv_salt  salt;
    uint32_t        slot; /* which of n_seq_max tables                                       */
    struct kv_mark  mark; /* of the owner's pin, for the tiers when the path is copied down   */
};

/* Before the forward of this step the device copies these whole blocks (copy-on-write of a forked or borrowed tail). */
struct kv_copy {
    uint32_t src, dst;
    uint32_t win_src, win_dst; /* the same of the window's pool, where there is one */
};

/* The end of a prompt's cached prefix, kept between look-ups: the next look-up walks only blocks that were added since.
 * Zero: from the root. A stale cursor (its block has left the tree) is detected, and the walk starts again. */
struct kv_cursor {
    uint64_t gen;
    uint32_t n, block;
}; /* n tokens found, the last of them in block (n 0: no block) */

struct kv_stats {
    uint32_t n_free, n_private, n_tree, n_locked; /* blocks: free + private + tree = n_block */
    uint32_t n_guest;                             /* guests in the tree, beside those */
    uint64_t n_evicted, n_query_tokens, n_hit_tokens;
    uint64_t evicted[KV_EVICT_WHYS]; /* n_evicted by reason */
    uint32_t n_pinned;               /* blocks that pins hold */
    uint64_t n_pin_refused;
    uint32_t n_window_free, n_window_idle; /* of the window's pool: free, and kept for later prompts */
    uint64_t n_window_passed, n_window_evicted;
    uint64_t n_borrowed,
        n_borrowed_tokens; /* blocks copied by kv_seq_borrow; their common tokens, part of n_hit_tokens */
};

/* Allocates all that it will ever need. The caller frees *kv_out with kv_free. ST_NOMEM. */
enum status kv_create(const struct kv_cfg *cfg, struct kv **kv_out);
void        kv_free(struct kv *kv);

enum status kv_seq_open(struct kv *kv, struct kv_salt salt,
                        struct kv_seq *s); /* ST_AGAIN: all n_seq_max tables are out */
/* Locks the longest cached prefix of ids[0..n) and puts its blocks into the table. Returns tokens found: a multiple of
 * block_tokens, at most n - 1. Only on a table with no blocks. */
uint32_t kv_seq_match(struct kv *kv, struct kv_seq *s, const uint32_t *ids, uint32_t n);
/* After a match of the same ids: continues inside the next block. If a cached block begins with at least borrow_min of
 * the next tokens, a new private block is added to the table, and a copy of the cached block is added to copy[]
 * (n_copy_out: at most 1 more). The tokens behind the common ones are then computed over the copied bytes. The source
 * stays locked until the commit after the copy. Returns the number of common tokens; 0: too few, or no free block. At
 * least one token of n is left to compute, with room for it in the block. */
uint32_t kv_seq_borrow(struct kv *kv, struct kv_seq *s, const uint32_t *ids, uint32_t n, struct kv_copy *copy,
                       uint32_t *n_copy_out);
/* The result that kv_seq_match would have, without locks, changes or a touch of the LRU order (for the order of
 * admission). */
uint32_t kv_peek(const struct kv *kv, struct kv_salt salt, const uint32_t *ids, uint32_t n);
/* As kv_peek, continuing from c (same salt and ids as before; n may have grown). */
uint32_t kv_peek_more(const struct kv *kv, struct kv_salt salt, const uint32_t *ids, uint32_t n, struct kv_cursor *c);
/* The number of blocks on c's path that kv_available_count includes. A match would lock them. */
uint32_t kv_cursor_idle(const struct kv *kv, const struct kv_cursor *c);
/* Makes the table cover n_token tokens in all. Evicts unlocked leaves (LRU) when blocks run short. ST_AGAIN: still
 * short, the table is unchanged and the caller preempts someone. n_copy_out: entries added to copy[] (at most 1: the
 * forked tail). */
enum status kv_seq_reserve(struct kv *kv, struct kv_seq *s, uint32_t n_token, struct kv_copy *copy,
                           uint32_t *n_copy_out);
/* ids[0..n_computed) have their KV computed: full blocks enter the tree (a duplicate is remapped to the one in the
 * tree). */
void kv_seq_commit(struct kv *kv, struct kv_seq *s, const uint32_t *ids, uint32_t n_computed);
/* child (open, empty) shares all blocks of parent that cover n_token; the partial tail is copied on the next
 * reserve. */
enum status kv_seq_fork(struct kv *kv, const struct kv_seq *parent, struct kv_seq *child, uint32_t n_token);
/* The same for tables that are only to hold their blocks: they get none of the window's pool but those that
 * kv_window_lend and kv_window_claim put there. */
enum status kv_seq_hold(struct kv *kv, const struct kv_seq *parent, struct kv_seq *child, uint32_t n_token);
/* As kv_seq_match, for a table that is only to hold its blocks: all that is found, whether or not the window's blocks
 * are there to continue it. It counts no query. */
uint32_t kv_seq_match_path(struct kv *kv, struct kv_seq *s, const uint32_t *ids, uint32_t n);
/* Below the device there is a path that s leaves after n tokens, and had no blocks of a window there. Other prompts may
 * leave it there too: those that s computes are kept longer (window.h). */
void kv_seq_leave(const struct kv *kv, struct kv_seq *s, uint32_t n);
/* Drops the blocks behind the first n_token tokens. Only for read-only tables (offers and loads of the tiers). */
void kv_seq_shrink(struct kv *kv, struct kv_seq *s, uint32_t n_token);
/* Drops the blocks and keeps the table open. Committed blocks stay in the tree for a later match. */
void kv_seq_drop(struct kv *kv, struct kv_seq *s);
/* As drop, but blocks that no other table holds leave the tree at once, because their content is in doubt (NaN). */
void kv_seq_discard(struct kv *kv, struct kv_seq *s);
void kv_seq_release(struct kv *kv, struct kv_seq *s); /* drop + close */

/* Joins `keep` into the holds of those blocks of s that are in the tree. Called before s releases them. */
void kv_seq_keep(struct kv *kv, const struct kv_seq *s, const struct kv_keep *keep);
/* Pins the blocks of s that hold its first n_token tokens and are in the tree. Returns the number of pinned tokens; 0:
 * no room. tenant 0: there is only one tenant. mark_out: for the tiers. */
uint32_t kv_pin(struct kv *kv, const struct kv_seq *s, uint32_t n_token, uint64_t tenant, uint64_t until_us,
                struct kv_mark *mark_out);
bool     kv_unpin(struct kv *kv, uint64_t until_us); /* ends the pins that expire by then; true: there were some */
/* Advances the clock: marks expired blocks as first to evict, and ends expired pins. now_us is monotonic with any
 * start. Call it before any function that depends on time. */
void kv_tick(struct kv *kv, uint64_t now_us);

/* Tokens that the table covers in both pools: of the window's, kv_seq_reserve takes at most what one sequence may have
 * (window.h). */
uint32_t kv_seq_covers(const struct kv *kv, const struct kv_seq *s);
/* The table has all blocks that it will need, and keeps them until it is dropped: others leave it those of the window's
 * pool too that it has passed. */
void kv_seq_promise(struct kv *kv, struct kv_seq *s);
/* Tokens that the table could be made to cover now, in all. */
uint64_t kv_seq_room(const struct kv *kv, const struct kv_seq *s);
/* Blocks of the window's pool: that a sequence with n_hit computed tokens needs to come to n_token tokens, beside those
 * that s (NULL: none) holds; free and evictable ones that were promised to nobody. 0 without such a pool. */
uint32_t kv_window_need(const struct kv *kv, const struct kv_seq *s, uint32_t n_hit, uint32_t n_token);
uint32_t kv_window_available(const struct kv *kv);

uint32_t kv_free_count(const struct kv *kv);      /* free now */
uint32_t kv_available_count(const struct kv *kv); /* free blocks and evictable ones */
void     kv_evict_all(struct kv *kv);             /* every unlocked block (tests, /reset_prefix_cache) */
/* The counters since kv_create, and what is held now. */
void kv_stats(const struct kv *kv, struct kv_stats *out);
/* All invariants over every block, node and open table: O(everything), for tests and the simulator. ST_OK, or logs the
 * first violation and returns ST_INVALID. */
enum status kv_check(const struct kv *kv);
