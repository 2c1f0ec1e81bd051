/* block: what the tiers may ask about the blocks of the device's tree, and may say of them.   Thread: engine.
 * A block is named by its id in the pool. The answers hold until the tree next changes. */
#pragma once
#include "kvcache/device/kv.h"
#include "kvcache/device/pool.h"

/* Which insertion into the tree this is, never the same twice; 0: it is not in the tree. The other questions want a block that is. */
uint64_t        kv_block_gen(const struct kv *kv, uint32_t block);
uint32_t        kv_block_parent(const struct kv *kv, uint32_t block); /* KV_NONE: it is the first block of a prompt */
struct kv_salt  kv_block_salt(const struct kv *kv, uint32_t block);   /* of its whole path */
const uint32_t *kv_block_ids(const struct kv *kv, uint32_t block);    /* [block_tokens], of kv */
struct kv_hold  kv_block_hold(const struct kv *kv, uint32_t block);   /* what its users said of it */
bool            kv_block_is_leaf(const struct kv *kv, uint32_t block);
uint64_t        kv_block_use(const struct kv *kv, uint32_t block); /* place in the order of eviction: what is higher goes later */
/* Joins what users of another tier said of the block with what those here did. Some open table must hold the block. */
void kv_block_join(struct kv *kv, uint32_t block, struct kv_hold h);

/* The second that kv_tick was last told: the clock of kv_hold.until_s. */
uint32_t kv_now_s(const struct kv *kv);
