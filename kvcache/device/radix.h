/* radix: the tree of cached prefixes, one node per full block, and the order in which leaves are evicted.   Thread:
 * engine.
 *
 * A node is its block: node i of the array describes block i, so the tree needs no allocator and a page table entry is
 * also the address of its node. Children are found in one hash table over (parent, tokens), the tree of RadixAttention
 * (Zheng et al. 2023, arXiv:2312.07104) cut at block borders as in PagedAttention (Kwon et al. 2023, arXiv:2309.06180):
 * a lookup costs one probe per block and no node is ever split. A node's hash continues its parent's hash. So a walk
 * can compute all hashes first and prefetch their buckets; two cache misses per block would be 2 ms for 100k tokens.
 * The hash only finds candidates. Every hit compares the parent, the tokens, and at the root the salt, so a collision
 * is a miss and never another prompt's KV (CVE-2025-25183).
 *
 * A second table, over (parent, first stem_tokens tokens), finds children whose block a prompt shares only in part.
 * Children that begin alike share a chain, the newest first, and a search looks at a bounded number of them.
 *
 * Unlocked nodes without children stand in a heap (base/heap.h) by last use. Eviction takes the least recently used one
 * in O(log n), and then its parent may enter the heap. Guests (guest.h) never stand there. */
#pragma once
#include "base/status.h"
#include "kvcache/device/kv.h"
#include "kvcache/device/pool.h"
#include <stddef.h>

struct kv_node {
    uint64_t       hash, use, gen; /* gen: number of this insertion; 0: not in the tree         */
    struct kv_salt salt;           /* of the whole path, compared at the root                   */
    uint32_t       parent;         /* KV_NONE: a first block                                    */
    uint32_t       next;           /* in its bucket                                             */
    uint32_t       n_child;
    uint32_t       heap_pos;             /* KV_NONE: not in the heap                                  */
    uint32_t       stem_next, stem_prev; /* siblings with the same first tokens          */
};

/* The children of a guest: a list. Others are never asked for theirs. */
struct kv_kin {
    uint32_t first, next, prev; /* first: of a guest's children; next, prev: among its siblings, below a guest */
};

struct kv_radix {
    struct kv_node *node;  /* [n_block]                    */
    struct kv_kin  *kin;   /* [n_block] NULL: there are no guests */
    uint32_t       *token; /* [n_block, block_tokens]      */
    uint32_t       *bucket, *stem;
    uint64_t       *heap; /* [n_heap] nodes, least recently used first */
    size_t          n_heap;
    uint32_t        n_block, n_pool; /* nodes; the first n_pool of them are blocks of the pool, the others guests */
    uint32_t        block_tokens, stem_tokens, n_bucket, n_stem, n_node;
    uint64_t        seed, hash_mask, gen;
};

/* n_guest: nodes behind those of the n_pool blocks. stem_tokens: 1..block_tokens; kv_radix_near finds no block with
 * fewer common tokens. hash_bits: 0 for all 64; fewer force collisions in tests. */
enum status kv_radix_init(struct kv_radix *t, uint32_t n_pool, uint32_t n_guest, uint32_t block_tokens,
                          uint32_t stem_tokens, uint32_t hash_bits);
void        kv_radix_close(struct kv_radix *t);
/* The child of parent (KV_NONE: the root of this salt) that holds ids[0..block_tokens); KV_NONE: there is none. */
uint32_t kv_radix_find(const struct kv_radix *t, struct kv_salt salt, uint32_t parent, const uint32_t *ids);
/* Walks down from *at (KV_NONE: the root) along ids[0..n * block_tokens). Returns the number of blocks found and sets
 * *at to the last one. path_out [n], or NULL: the blocks. */
uint32_t kv_radix_walk(const struct kv_radix *t, struct kv_salt salt, uint32_t *at, const uint32_t *ids, uint32_t n,
                       uint32_t *path_out);
/* Finds the child of parent with the longest common beginning with ids[0..n), among the newest children that share
 * stem_tokens. Returns the number of common tokens, at most n; 0: no such child. */
uint32_t kv_radix_near(const struct kv_radix *t, struct kv_salt salt, uint32_t parent, const uint32_t *ids, uint32_t n,
                       uint32_t *block_out);
/* Where each of the n blocks of a path belongs, whether or not the tree has it: spot_out [n]. Fetches what finding and
 * inserting them will touch. */
struct kv_spot {
    uint64_t  hash;
    uint32_t *stem; /* head of its chain */
};
void kv_radix_spots(const struct kv_radix *t, struct kv_salt salt, uint32_t parent, const uint32_t *ids, uint32_t n,
                    struct kv_spot *spot_out);
/* As kv_radix_find and kv_radix_insert, of a block whose spot is known: */
uint32_t kv_radix_find_at(const struct kv_radix *t, struct kv_salt salt, uint32_t parent, const uint32_t *ids,
                          const struct kv_spot *spot);
void kv_radix_insert_at(struct kv_radix *t, uint32_t block, struct kv_salt salt, uint32_t parent, const uint32_t *ids,
                        const struct kv_spot *spot);
void kv_radix_insert(struct kv_radix *t, uint32_t block, struct kv_salt salt, uint32_t parent, const uint32_t *ids);
void kv_radix_remove(struct kv_radix *t, uint32_t block); /* a leaf that is not in the heap */

/* Node `to`, which is in no tree, takes the place of guest `from`, with its parent, children, tokens and gen. */
void kv_radix_replace(struct kv_radix *t, uint32_t from, uint32_t to);

/* Eviction order. use: any rising number. */
void     kv_radix_idle(struct kv_radix *t, uint32_t block, uint64_t use); /* the block is now an unlocked leaf */
void     kv_radix_busy(struct kv_radix *t, uint32_t block); /* the block is locked again; no-op when not in the heap */
uint32_t kv_radix_oldest(const struct kv_radix *t);         /* KV_NONE: no block can be evicted */

/* Every link, hash, count and the heap's order. ref: lock counts. ST_INVALID after logging the first fault. */
enum status kv_radix_check(const struct kv_radix *t, const uint32_t *ref);
