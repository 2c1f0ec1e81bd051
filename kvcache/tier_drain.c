/* tier_drain: at the end of a server's life, what would be lost with its memory goes to the stores while there is time:
 * first what the host holds, newest first; then what the device alone holds, most used first. A store that is paused is
 * not waited for. */
#include "kvcache/tier_impl.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

static bool store_takes(const struct kv_tiers *t, int32_t slot)
{
    return below_takes(t, below_for(t, &t->host.slot[slot].key));
}
static bool go_on(const struct kv_tiers *t, uint64_t end_us) { return t->cfg.clock() < end_us && below_any_takes(t); }
/* The turn of the tiers, which tier.c hands down. */
static void turn(struct kv_tiers *t, tiers_turn *take)
{
    if (!take(t)) nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
}

/* Slots that no store holds, newest first; enough: so many that a store holds in a row are the end of those that are
 * new. */
static void flush_host(struct kv_tiers *t, uint64_t end_us, uint32_t enough, tiers_turn *take)
{
    uint32_t held = 0;
    for (int32_t i = slot_newest(&t->host); i != SLOT_NONE && held < enough && go_on(t, end_us);) {
        struct host_slot *s = &t->host.slot[i];
        int               have = s->store ? s->store - 1 : below_kept(t, &s->key);
        held = have >= 0 ? held + 1 : 0;
        if (have >= 0) slot_below(&t->host, i, (uint32_t)have);
        if (have >= 0 || slot_n_other(s) || s->doomed || slot_hidden(t, i) || s->hold.memory_only ||
            !store_takes(t, i) || down_write_one(t, i))
            i = slot_older(&t->host, i); /* writing changes no order */
        else
            turn(t, take);
        if (i != SLOT_NONE && t->host.slot[i].state != SLOT_READY) {
            i = slot_newest(&t->host);
            held = 0;
        }
    }
}

struct leaf {
    uint32_t block, n_use;
    uint64_t use, gen;
};
static int most_used(const void *pa, const void *pb)
{
    const struct leaf *a = pa, *b = pb;
    if (a->n_use != b->n_use) return a->n_use < b->n_use ? 1 : -1;
    return (a->use < b->use) - (a->use > b->use);
}

/* The path to a leaf of the device's tree is offered like that of a sequence that ends. false: all offers are out. */
static bool offer_path(struct kv_tiers *t, uint32_t leaf)
{
    const struct kv *kv = t->cfg.kv;
    uint32_t         bt = t->cfg.block_tokens, n = 0, *ids = t->leaf_ids;
    struct kv_seq    s;
    for (uint32_t b = leaf; b != KV_NONE; b = kv_block_parent(kv, b)) n++;
    uint32_t at = n;
    for (uint32_t b = leaf; b != KV_NONE; b = kv_block_parent(kv, b)) {
        at--;
        memcpy(ids + (size_t)at * bt, kv_block_ids(kv, b), bt * sizeof *ids);
    }
    if (kv_seq_open(t->cfg.kv, kv_block_salt(kv, leaf), &s)) return false;
    uint64_t dropped = t->stats.n_dropped;
    kv_seq_match_path(t->cfg.kv, &s, ids, n * bt + 1);
    kv_tiers_offer(t, &s, n * bt);
    kv_seq_release(t->cfg.kv, &s);
    bool ok = t->stats.n_dropped == dropped;
    t->stats.n_dropped = dropped;
    return ok;
}

static struct leaf *leaves(struct kv_tiers *t, uint32_t *n_out)
{
    const struct kv *kv = t->cfg.kv;
    struct leaf     *leaf = calloc(t->cfg.n_block, sizeof *leaf);
    uint32_t         n = 0;
    for (uint32_t b = 0; leaf && b < t->cfg.n_block; b++) {
        if (!kv_block_gen(kv, b) || !kv_block_is_leaf(kv, b)) continue;
        struct kv_key key = tier_key(t, kv_block_salt(kv, b), b);
        leaf[n++] = (struct leaf){
            .block = b, .n_use = sketch_get(&t->host, &key), .use = kv_block_use(kv, b), .gen = kv_block_gen(kv, b)
        };
    }
    if (n) qsort(leaf, n, sizeof *leaf, most_used);
    *n_out = n;
    return leaf;
}

static void flush_device(struct kv_tiers *t, uint64_t end_us, tiers_turn *take)
{
    uint32_t     n;
    struct leaf *leaf = leaves(t, &n);
    for (uint32_t i = 0; i < n && go_on(t, end_us);) {
        if (offer_path(t, leaf[i].block))
            i++;
        else
            turn(t, take);
        flush_host(t, end_us, 64, take);
    }
    free(leaf);
}

void drain_all(struct kv_tiers *t, uint64_t end_us, tiers_turn *take)
{
    if (!t->n_writer || t->cfg.ephemeral) return;
    while (down_offered(t) && go_on(t, end_us)) { /* what ended just now is on its way to the host */
        turn(t, take);
        flush_host(t, end_us, 64, take);
    }
    flush_host(t, end_us, UINT32_MAX, take);
    flush_device(t, end_us, take);
    while (down_offered(t) && go_on(t, end_us)) {
        turn(t, take);
        flush_host(t, end_us, 64, take);
    }
    flush_host(t, end_us, 64, take);
}

void drain_device_begin(struct kv_tiers *t, uint64_t end_us)
{
    t->hand.leaf = leaves(t, &t->hand.n_leaf);
    t->hand.at_leaf = t->hand.n_leaf;
    t->hand.flush_end_us = end_us;
    t->hand.flushing = true;
    t->host.keep = true;
}

/* The least used blocks first: the slot that is touched last stays on the host longest. */
bool drain_device_step(struct kv_tiers *t)
{
    struct hand *h = &t->hand;
    bool         more = t->cfg.clock() < h->flush_end_us && t->host.n_free > 0;
    while (more && h->at_leaf > 0) {
        const struct leaf *l = &h->leaf[h->at_leaf - 1];
        if (kv_block_gen(t->cfg.kv, l->block) == l->gen && !offer_path(t, l->block)) break; /* all offers are out */
        h->at_leaf--;
    }
    return more && (h->at_leaf > 0 || down_offered(t));
}

void drain_device_end(struct kv_tiers *t)
{
    free(t->hand.leaf);
    t->hand.leaf = NULL;
    t->hand.flushing = false;
    t->host.keep = t->closing;
}
