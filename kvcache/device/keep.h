/* keep: priority, expiry and class of eviction of cached blocks.   Thread: any (plain values).
 *
 * A request states how its prefix should be kept (kv_keep). Many requests use one block, and the block's kv_hold joins
 * their wishes: the highest priority, the latest expiry, and memory only if all of them want that. A request without a
 * wish counts as ordinary priority and no expiry. Eviction takes expired blocks first, then lower priority before
 * higher, and the least recently used within one priority. Each block of a path is held at least as well as the path's
 * last block, because every user of the last block uses the whole path. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum {
    KV_PRIORITY_MIN = -5, /* ordinary is 0 */
    KV_PRIORITY_MAX = 4,
    KV_CLASS_ENDED = 0, /* classes in the order of eviction: expired, then one class for each priority */
    KV_CLASS_ORDINARY = 1 - KV_PRIORITY_MIN,
    KV_CLASS_PINNED = 2 + KV_PRIORITY_MAX - KV_PRIORITY_MIN, /* never evicted */
    KV_CLASSES,
};
#define KV_NO_END    UINT32_MAX
#define KV_TTL_MAX_S 86400 /* longest ttl_s and pin_s */

struct kv_keep {          /* all zero: the default */
    int8_t   priority;    /* KV_PRIORITY_MIN..KV_PRIORITY_MAX */
    bool     memory_only; /* never to a store */
    uint32_t ttl_s;       /* expiry, counted from the last use; 0: none */
    uint32_t pin_s;       /* seconds without eviction; 0: not pinned */
};

struct kv_hold {      /* zero: nobody has used it yet */
    uint32_t until_s; /* expiry on the clock of kv_tick; KV_NO_END: none */
    int8_t   priority;
    bool     used, memory_only;
};

/* One more user with the wish o; o.used false: no user. */
static inline void kv_hold_join(struct kv_hold *h, struct kv_hold o)
{
    if (!o.used) return;
    if (!h->used) {
        *h = o;
        return;
    }
    if (o.until_s > h->until_s) h->until_s = o.until_s;
    if (o.priority > h->priority) h->priority = o.priority;
    h->memory_only &= o.memory_only;
}
/* The hold of one use at now_s, seconds on the clock of kv_tick. */
static inline struct kv_hold kv_hold_of(const struct kv_keep *k, uint32_t now_s)
{
    return (struct kv_hold){ k->ttl_s ? now_s + k->ttl_s : KV_NO_END, k->priority, true, k->memory_only };
}
/* Whether it has an expiry. kv_hold_class: the class of eviction at now_s. */
static inline bool kv_hold_ends(const struct kv_hold *h) { return h->used && h->until_s != KV_NO_END; }
static inline int  kv_hold_class(const struct kv_hold *h, uint32_t now_s)
{
    if (kv_hold_ends(h) && h->until_s <= now_s) return KV_CLASS_ENDED;
    return KV_CLASS_ORDINARY + (h->used ? h->priority : 0);
}

/* The reason for an eviction, by the block's class. */
enum kv_evict_why {
    KV_EVICT_LRU,      /* the least recently used of ordinary priority */
    KV_EVICT_TTL,      /* expired                                      */
    KV_EVICT_PRIORITY, /* its priority was below ordinary              */
    /* its priority was above ordinary, and no other block was left; or memory outside the tier ran short */
    KV_EVICT_PRESSURE,
    KV_EVICT_WHYS
};
static inline enum kv_evict_why kv_evict_why(int class)
{
    if (class == KV_CLASS_ENDED) return KV_EVICT_TTL;
    if (class < KV_CLASS_ORDINARY) return KV_EVICT_PRIORITY;
    return class == KV_CLASS_ORDINARY ? KV_EVICT_LRU : KV_EVICT_PRESSURE;
}
