/* block: accessors through which the tiers see the blocks of the device's tree.   Thread: engine.
 * A block is named by its id in the pool. A result is valid until the tree changes. */
#pragma once
#include "kvcache/device/kv.h"
#include "kvcache/device/pool.h"

/* The number of this insertion into the tree; every insertion has another one. 0: the block is not in the tree. The
 * other functions take blocks of the tree only. */
uint64_t        kv_block_gen(const struct kv *kv, uint32_t block);
uint32_t        kv_block_parent(const struct kv *kv, uint32_t block); /* KV_NONE: it is the first block of a prompt */
struct kv_salt  kv_block_salt(const struct kv *kv, uint32_t block);   /* the salt of the block's whole path */
const uint32_t *kv_block_ids(const struct kv *kv, uint32_t block);    /* [block_tokens], of kv */
struct kv_hold  kv_block_hold(const struct kv *kv, uint32_t block);   /* priority and expiry that its users asked for */
bool            kv_block_is_leaf(const struct kv *kv, uint32_t block); /* no path of the tree goes on behind it */
uint64_t        kv_block_use(const struct kv *kv,
                             uint32_t         block); /* place in the order of eviction: a higher number is evicted later */
/* Joins the hold that the block had on another tier with its hold here. Some open table must hold the block. */
void kv_block_join(struct kv *kv, uint32_t block, struct kv_hold h);

/* The second of the last kv_tick: the clock of kv_hold.until_s. */
uint32_t kv_now_s(const struct kv *kv);
