/* keep: how long what is cached is worth its place.   Thread: any (plain values).
 *
 * A request says what its prefix is worth (kv_keep); a block is used by many, and what they said together is its kv_hold: the
 * highest priority, the latest end, and memory only if all want that. Who says nothing says: ordinary, and no end. Eviction takes
 * what has come to its end first, then lower priority before higher, and the least recently used within one priority. All of a
 * path is held at least as well as its end, since whoever used the end has used the path. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum {
    KV_PRIORITY_MIN = -5, /* against the ordinary 0 */
    KV_PRIORITY_MAX = 4,
    KV_CLASS_ENDED = 0, /* of eviction, in its order; then one for each priority */
    KV_CLASS_ORDINARY = 1 - KV_PRIORITY_MIN,
    KV_CLASS_PINNED = 2 + KV_PRIORITY_MAX - KV_PRIORITY_MIN, /* never evicted */
    KV_CLASSES,
};
#define KV_NO_END    UINT32_MAX
#define KV_TTL_MAX_S 86400 /* longest ttl_s and pin_s */

struct kv_keep {          /* zero: like any other */
    int8_t   priority;    /* KV_PRIORITY_MIN..KV_PRIORITY_MAX */
    bool     memory_only; /* never to a store */
    uint32_t ttl_s;       /* since its last use; 0: no end */
    uint32_t pin_s;       /* how long it must not be evicted; 0: not pinned */
};

struct kv_hold {      /* zero: nobody has used it yet */
    uint32_t until_s; /* of kv_tick; KV_NO_END */
    int8_t   priority;
    bool     used, memory_only;
};

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
static inline struct kv_hold kv_hold_of(const struct kv_keep *k, uint32_t now_s)
{
    return (struct kv_hold){ k->ttl_s ? now_s + k->ttl_s : KV_NO_END, k->priority, true, k->memory_only };
}
static inline bool kv_hold_ends(const struct kv_hold *h) { return h->used && h->until_s != KV_NO_END; }
static inline int  kv_hold_class(const struct kv_hold *h, uint32_t now_s)
{
    if (kv_hold_ends(h) && h->until_s <= now_s) return KV_CLASS_ENDED;
    return KV_CLASS_ORDINARY + (h->used ? h->priority : 0);
}

/* Why a block was evicted, by its class. */
enum kv_evict_why {
    KV_EVICT_LRU,      /* the least recently used of ordinary ones   */
    KV_EVICT_TTL,      /* its time was over                          */
    KV_EVICT_PRIORITY, /* of a priority below the ordinary           */
    KV_EVICT_PRESSURE, /* of one above it, and nothing else was left; or any, when memory outside the tier runs short */
    KV_EVICT_WHYS
};
static inline enum kv_evict_why kv_evict_why(int class)
{
    if (class == KV_CLASS_ENDED) return KV_EVICT_TTL;
    return class < KV_CLASS_ORDINARY ? KV_EVICT_PRIORITY : class == KV_CLASS_ORDINARY ? KV_EVICT_LRU : KV_EVICT_PRESSURE;
}
