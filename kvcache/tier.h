/* tier: blocks below the device: on the host, and from there in a folder.   Thread: engine (one decision maker for all).
 *
 * State of a host slot; everything else about a block is where it stands in the device's tree (kv.h) and in the store (store.h):
 *
 *   FREE --take--> FILLING --copy or read came, and is sure--> READY --evict (no readers)--> FREE
 *                     | failed, canceled or doubted: FREE           | readers: copies to the device, writes to the store
 *
 * Two-phase visibility: the index names a slot only when it is READY; a slot with readers is never given away; a failed copy leaves
 * its source as it was. Down: a sequence that ends, or gives way, offers its path; what is worth it is copied while the device's
 * tree still holds it, and from the host to the store when the host grows full. Up: a waiting prompt asks; what lies below and is
 * quicker loaded than computed is brought into blocks that belong to the load alone, and enters the device's tree when all
 * before it did. The prompt then finds it there like any other prefix. So a block that is lost, late or in doubt is a miss, and
 * nothing else in the engine knows that tiers exist.
 *
 * Losing any block costs recomputation, never correctness; a doubt is a miss; a tier is never slower than computing. */
#pragma once
#include "kvcache/below.h"
#include "kvcache/ident.h"
#include "kvcache/device/kv.h"
#include "kvcache/record.h"
#include "transfer/xfer.h"

struct kv_tiers;
enum {
    KV_STORES_MAX = 4,
    KV_LOADS_MAX = 16,
    KV_OFFERS_MAX = 16,
    KV_ASK_MAX = 2048,
    KV_AUDITS = 1
}; /* KV_ASK_MAX: blocks of one load */

/* What came of the process before (tier_hand.h), moved: what cannot be used is closed, and a slab is taken anew. */
struct kv_handed {
    bool given;
    int  slab_fd, index_fd;
};
struct kv_tiers_cfg {
    struct kv         *kv;
    struct xfer       *xfer;
    uint32_t           dev_seg;     /* the pool of blocks on the device */
    uint64_t           block_bytes; /* of a block there: block b lies at b * block_bytes */
    uint64_t           host_bytes;  /* reserved now, never exceeded */
    uint32_t           n_block, block_tokens, seq_tokens_max;
    struct kv_identity ident;
    struct digest_key  key;
    struct {                                             /* below the host, the cheapest to read from first */
        const struct kv_below_row *row;                  /* NULL: a folder */
        const char                *dir;                  /* kv_below_cfg.where */
        uint64_t                   bytes, segment_bytes; /* segment_bytes: as in store.h; 0: its own */
    } store[KV_STORES_MAX];
    uint32_t         n_store;
    struct kv_handed hand;
    const char
        *cgroup; /* folder of memory.current and memory.max: near the limit the host shrinks; NULL: it does not */
    const unsigned char *secret; /* of the stores' files, as in store.h; NULL: plain */
    /* Of the stores' files as well, for reading alone, as in store.h; NULL: none */
    const struct digest_key *old_key;
    const unsigned char     *old_secret;
    bool                     ephemeral;                       /* which is this boot's */
    const char              *shared_name;                     /* as in store.h */
    bool                     shared;                          /* the folders are other servers' too */
    uint32_t                 shared_scan_us, shared_grace_us; /* as in store.h; 0: its own */
    bool     audit;           /* what was computed elsewhere is computed again before it is believed (tier_audit.c) */
    uint32_t audit_every;     /* audit: and one in so many blocks that come up; 0: none */
    uint32_t load_min_tokens; /* shorter loads are not worth it; 0: 64 or a block */
    uint32_t copies_max;      /* blocks on their way down at a time; 0: what its lane moves in two steps, 32 to 512 */
    uint32_t keep_hits;       /* a prefix goes down when its blocks were offered so often; 0: 1 */
    uint64_t (*clock)(void);
    uint64_t (*wall)(void); /* seconds, for what must outlive the process; NULL: the system's */
};
/* Reserves the host's bytes and opens the folders. Takes KV_LOADS_MAX + KV_OFFERS_MAX + KV_AUDITS tables of kv. err:
 * one line. */
enum status kv_tiers_open(const struct kv_tiers_cfg *cfg, struct kv_tiers **t_out, char *err, size_t err_bytes);
/* flush_us: how long blocks that are only on the host may take to reach the store. */
void kv_tiers_close(struct kv_tiers *t, uint64_t flush_us);

/* s, whose first n_computed tokens are in its blocks, is about to be released or dropped. */
void kv_tiers_offer(struct kv_tiers *t, const struct kv_seq *s, uint32_t n_computed);
/* A running sequence is n blocks short: paths that wait to be copied down let go of their ends until there are so many
 * more, and what has come up is held no longer. false: that gave nothing. */
bool kv_tiers_yield(struct kv_tiers *t, uint32_t n);

/* What a waiting prompt keeps between its questions. Zero: has not asked. */
struct kv_want {
    uint32_t load; /* 1 + which one it waits for; 0: none */
    uint64_t gen, until_us;
    uint32_t n_need,
        n_margin; /* blocks that the device must be able to give before it is worth asking again; how many of them it could run without */
    uint64_t wait_us;                      /* so long it waits for those */
    uint64_t canary_us;                    /* so long it waits for what is not proven yet; 0: has not begun */
    uint64_t seek[KV_STORES_MAX], seek_us; /* questions to what lies below, and how long it waits for answers; 0: none
                                              were asked yet */
    bool     sought;                       /* it waits for answers no more */
    uint32_t n_hit;                        /* what the device held of it when it was told to go on */
    bool     asked;                        /* and was told to go on: it is not asked again while that is there */
    bool     late;            /* because its load was: what has come of it when it is admitted counts all the same */
    uint32_t n_host, n_store; /* tokens that came for it from there */
};
/* May the prompt ids[0..n) be admitted now? false: what it lacks beyond hit, the end of its path in the device's tree,
 * is on its way; ask again after a turn. us_per_token: what computing costs just now. */
bool kv_tiers_ask(struct kv_tiers *t, struct kv_want *w, struct kv_salt salt, const uint32_t *ids, uint32_t n,
                  const struct kv_cursor *hit, double us_per_token);
/* It has been admitted (and holds what was loaded), or has gone. */
void kv_tiers_forget(struct kv_tiers *t, struct kv_want *w);

/* cfg.audit: rows ids[0..n) at positions [first, first + n) of a sequence with this page table are to be computed, and
 * nothing else in that step: now, or (idle: nothing runs and nobody waits) when there is nothing better to do. Then
 * kv_tiers_audited, before anything else is asked of the tiers. false: nothing is due. */
struct kv_audit_rows {
    const uint32_t *ids;
    uint32_t        n, first;
    const uint32_t *page;
    uint32_t        n_page;
};
bool kv_tiers_audit(struct kv_tiers *t, bool idle, struct kv_audit_rows *out);
void kv_tiers_audited(struct kv_tiers *t, enum status st);
/* What the device has cached is in doubt: whoever runs gives all its blocks back, then kv_tiers_all_gave_way, and
 * nobody runs again before this is over (kv_tiers_ask lets nobody go on). */
bool kv_tiers_purges(const struct kv_tiers *t);
void kv_tiers_all_gave_way(struct kv_tiers *t);

/* Steps of the device that were enqueued, and of those that are done. A load's blocks may have belonged to a sequence
 * whose row is still in a step in flight: nothing is copied into them before that step is done. */
void kv_tiers_steps(struct kv_tiers *t, uint64_t n_enqueued, uint64_t n_done);
/* Completions, copies down, deadlines. Cheap when there is nothing. true: something was completed. */
bool kv_tiers_turn(struct kv_tiers *t);
/* To sleep between turns: arm (false: a turn is due), wait for kv_tiers_fd or so long, then ack. */
bool    kv_tiers_arm(struct kv_tiers *t);
int     kv_tiers_fd(const struct kv_tiers *t);
void    kv_tiers_ack(struct kv_tiers *t);
int64_t kv_tiers_sleep_us(const struct kv_tiers *t);
bool    kv_tiers_busy(const struct kv_tiers *t); /* something is on its way */

enum { KV_LATENCY_BUCKETS = 17 };
extern const uint32_t kv_latency_us[KV_LATENCY_BUCKETS - 1]; /* upper bounds; the last bucket has none */
struct kv_tier_stats {
    uint64_t reserved_bytes, used_bytes, n_block;
    uint64_t hit_blocks, store_blocks, evicted; /* blocks that came from it; that went to it; that left it */
    uint64_t bytes_in, bytes_out;
    uint64_t miss_blocks; /* that a prompt lacked on the device and this did not hold */
    uint64_t evicted_why
        [KV_EVICT_WHYS]; /* evicted by reason; a store's records that were found at their end are not in evicted */
    uint64_t n_doubt, n_abandoned; /* as below, of this tier */
    uint32_t n_degraded;
    uint64_t pinned_bytes;
    uint64_t latency[KV_LATENCY_BUCKETS]; /* loads whose slowest part came from it, by how long they took */
    double   latency_sum_us, regret_us;
};
struct kv_tiers_stats {
    struct kv_tier_stats tier[KV_TIERS];
    uint64_t             n_ask, n_load, n_recompute, n_abandoned; /* decisions; loads given up at their deadline */
    uint64_t             n_dropped; /* copies down that there was no room or no time for */
    uint64_t             doubt[KV_DOUBTS];
    uint64_t             n_failed_io;
    uint64_t             n_loaded;        /* blocks that came up to the device */
    uint64_t n_audit, n_audit_mismatch;   /* blocks computed again; of them with other bytes than they brought */
    struct kv_below_counts store;         /* of all that lies below the host: events; and segments that lie there */
    uint32_t               n_degraded;    /* folders that cannot be used, or not be written to, just now */
    char                   degraded[200]; /* why the first of them is one, without its name */
    double                 regret_us;     /* what loads took beyond computing, where they did */
};
void kv_tiers_stats(const struct kv_tiers *t, struct kv_tiers_stats *out);
/* every slot, link and count; ST_INVALID after logging the first fault */
enum status kv_tiers_check(const struct kv_tiers *t);
