#include "kvcache/device/block.h"
#include "kvcache/device/seq.h"
#include <stddef.h>

uint64_t kv_block_gen(const struct kv *kv, uint32_t block) { return kv->tree.node[block].gen; }

uint32_t kv_block_parent(const struct kv *kv, uint32_t block) { return kv->tree.node[block].parent; }

struct kv_salt kv_block_salt(const struct kv *kv, uint32_t block) { return kv->tree.node[block].salt; }

const uint32_t *kv_block_ids(const struct kv *kv, uint32_t block)
{
    return kv->tree.token + (size_t)block * kv->cfg.block_tokens;
}

struct kv_hold kv_block_hold(const struct kv *kv, uint32_t block) { return kv->hold[block]; }

bool kv_block_is_leaf(const struct kv *kv, uint32_t block) { return kv->tree.node[block].n_child == 0; }

uint64_t kv_block_use(const struct kv *kv, uint32_t block) { return kv->tree.node[block].use; }

void kv_block_join(struct kv *kv, uint32_t block, struct kv_hold h)
{
    kv_hold_join(&kv->hold[block], h);
    if (kv_hold_ends(&kv->hold[block]))
        kv_due_set(&kv->due, block, kv->hold[block].until_s);
    else
        kv_due_clear(&kv->due, block);
}

uint32_t kv_now_s(const struct kv *kv) { return kv->now_s; }
