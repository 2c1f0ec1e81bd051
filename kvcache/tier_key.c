/* tier_key: the keys of the device's blocks, kept beside its tree. */
#include "kvcache/tier_impl.h"

struct kv_key tier_key(struct kv_tiers *t, struct kv_salt salt, uint32_t block)
{
    const struct kv *kv = t->cfg.kv;
    uint32_t         n = 0;
    for (; block != KV_NONE && t->node_key[block].gen != kv_block_gen(kv, block); block = kv_block_parent(kv, block))
        t->path[n++] = block;
    struct kv_key key = block == KV_NONE ? kv_key_root(&t->fingerprint, salt) : t->node_key[block].key;
    while (n > 0) {
        block = t->path[--n];
        key = kv_key_next(&key, kv_block_ids(kv, block), t->cfg.block_tokens);
        tier_key_known(t, block, &key);
    }
    return key;
}

void tier_key_known(struct kv_tiers *t, uint32_t block, const struct kv_key *key)
{
    t->node_key[block] = (struct node_key){ kv_block_gen(t->cfg.kv, block), *key };
}

void tier_memo_open(struct kv_tiers *t, struct kv_want *w, const struct kv_key *before)
{
    struct key_memo *m = &t->memo;
    if (w->keys && w->keys == m->number && kv_key_equal(before, &m->before)) return;
    w->keys = ++m->number;
    m->before = *before;
    m->n = 0;
}

const struct kv_key *tier_memo_key(struct kv_tiers *t, const uint32_t *ids, uint32_t i)
{
    struct key_memo *m = &t->memo;
    uint32_t         bt = t->cfg.block_tokens;
    for (; m->n <= i; m->n++) {
        const struct kv_key *before = m->n ? &m->key[m->n - 1] : &m->before;
        m->key[m->n] = kv_key_next(before, ids + (size_t)m->n * bt, bt);
    }
    return &m->key[i];
}
