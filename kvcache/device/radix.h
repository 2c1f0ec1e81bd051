/* radix: the tree of cached prefixes, one node per full block, and the order in which leaves are evicted.   Thread: engine.
 *
 * A node is its block: node i of the array describes block i, so the tree needs no allocator and a page table entry is also
 * the address of its node. Children are found in one hash table over (parent, tokens), the tree of RadixAttention (Zheng et
 * al. 2023, arXiv:2312.07104) cut at block borders as in PagedAttention (Kwon et al. 2023, arXiv:2309.06180): a lookup costs
 * one probe a block and nothing is ever split. A node's hash goes on from its parent's, so that a walk knows where it will look
 * before it has found anything, and fetches ahead: two misses a block would be 2 ms for 100k tokens. The hash only finds candidates; every hit compares the parent, the tokens, and
 * at the root the salt, so that a collision is a miss and never another prompt's KV (CVE-2025-25183).
 *
 * A second table, over (parent, first stem_tokens tokens), finds the children that a prompt leaves inside their block. All that
 * begin alike share a chain, the newest first, and a search looks at a bounded number of them.
 *
 * Nodes that nobody locks and that have no children stand in a heap (base/heap.h) by last use: eviction takes the least recent one
 * in O(log n), and its parent may take its place. */
#pragma once
#include "base/status.h"
#include "kvcache/device/kv.h"
#include "kvcache/device/pool.h"
#include <stddef.h>

struct kv_node {
    uint64_t       hash, use, gen; /* gen: which insertion this is; 0: not in the tree          */
    struct kv_salt salt;           /* of the whole path, compared at the root                   */
    uint32_t       parent;         /* KV_NONE: a first block                                    */
    uint32_t       next;           /* in its bucket                                             */
    uint32_t       n_child;
    uint32_t       heap_pos;             /* KV_NONE: not in the heap                                  */
    uint32_t       stem_next, stem_prev; /* those that begin like it                     */
};

struct kv_radix {
    struct kv_node *node;  /* [n_block]                    */
    uint32_t       *token; /* [n_block, block_tokens]      */
    uint32_t       *bucket, *stem;
    uint64_t       *heap; /* [n_heap] nodes, least recently used first */
    size_t          n_heap;
    uint32_t        n_block, block_tokens, stem_tokens, n_bucket, n_stem, n_node;
    uint64_t        seed, hash_mask, gen;
};

/* stem_tokens: 1..block_tokens, fewer in common are not found by kv_radix_near. hash_bits: 0 for all 64; fewer force collisions in
 * tests. */
enum status kv_radix_init(struct kv_radix *t, uint32_t n_block, uint32_t block_tokens, uint32_t stem_tokens, uint32_t hash_bits);
void        kv_radix_close(struct kv_radix *t);
/* The child of parent (KV_NONE: the root of this salt) that holds ids[0..block_tokens); KV_NONE: there is none. */
uint32_t kv_radix_find(const struct kv_radix *t, struct kv_salt salt, uint32_t parent, const uint32_t *ids);
/* Goes down from *at (KV_NONE: the root) along ids[0..n * block_tokens): the number of blocks found; *at: the last of them.
 * path_out [n], or NULL: all of them. */
uint32_t kv_radix_walk(const struct kv_radix *t, struct kv_salt salt, uint32_t *at, const uint32_t *ids, uint32_t n, uint32_t *path_out);
/* The child of parent that begins most like ids[0..n), among the newest that share stem_tokens: how many tokens are the same, at
 * most n; 0: there is none. */
uint32_t kv_radix_near(const struct kv_radix *t, struct kv_salt salt, uint32_t parent, const uint32_t *ids, uint32_t n,
                       uint32_t *block_out);
void     kv_radix_insert(struct kv_radix *t, uint32_t block, struct kv_salt salt, uint32_t parent, const uint32_t *ids);
void     kv_radix_remove(struct kv_radix *t, uint32_t block); /* a leaf that is not in the heap */

/* Eviction order. use: any rising number. */
void     kv_radix_idle(struct kv_radix *t, uint32_t block, uint64_t use); /* nobody locks it any more, and it is a leaf */
void     kv_radix_busy(struct kv_radix *t, uint32_t block);               /* it is locked again; no-op when not in the heap */
uint32_t kv_radix_oldest(const struct kv_radix *t);                       /* KV_NONE: nothing can be evicted */

/* Every link, hash, count and the heap's order. ref: lock counts. ST_INVALID after logging the first fault. */
enum status kv_radix_check(const struct kv_radix *t, const uint32_t *ref);
