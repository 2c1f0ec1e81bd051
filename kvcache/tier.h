/* tier: blocks below the device: in host memory, and from there in the places of below.h.   Thread: engine, which makes
 * all decisions.
 *
 * A host slot has these states. All other facts about a block lie in the device's tree (kv.h) and in the places below
 * the host:
 *
 *   FREE --take--> FILLING --copy or read arrived and is sound--> READY --evict (no readers)--> FREE
 *                     | failed, canceled or doubted: FREE              | readers: copies to the device, writes to places below
 *
 * The index returns a slot only when it is READY. A slot with readers is never reused. A failed copy leaves its source
 * unchanged. Down: a sequence that ends or is preempted offers its path. Blocks that are worth keeping are copied to
 * the host while the device's tree still holds them, and from the host to a place below when the host fills up. Up: a
 * waiting prompt asks. Blocks that load faster than they compute are brought into device blocks that belong to the load
 * alone; they enter the device's tree in the order of the path. The prompt then finds them there like any other prefix.
 * A block that is lost, late or in doubt is therefore a miss, and no other part of the engine knows the tiers.
 *
 * With cfg.in_place a load copies nothing: the device reads the slots where they are (docs/design/in_place.md). Losing
 * a block costs recomputation, never correctness. A doubt counts as a miss. A load that would be slower than computing
 * is not started. */
#pragma once
#include "kvcache/below.h"
#include "kvcache/ident.h"
#include "kvcache/device/kv.h"
#include "kvcache/record.h"
#include "transfer/xfer.h"

struct kv_tiers;
struct kv_events;
enum {
    KV_STORES_MAX = 4,
    KV_LOADS_MAX = 16,
    KV_OFFERS_MAX = 32,
    KV_ASK_MAX = 2048,
    KV_AUDITS = 1,
    KV_MOVES = 1
}; /* KV_ASK_MAX: most blocks of one load; half of the offers are for parcels */

/* Descriptors from the previous process (tier_hand.h). kv_tiers_open takes ownership: it closes what it cannot use and
 * then takes a new slab. */
struct kv_handed {
    bool given;
    int  slab_fd, index_fd;
};
struct kv_tiers_cfg {
    struct kv   *kv;
    struct xfer *xfer;
    uint32_t     dev_seg;     /* segment of the device's pool of blocks */
    uint64_t     block_bytes; /* block b lies at b * block_bytes of dev_seg */
    /* The pool of layers with a window (kvcache/device/window.h), with win_bytes a block, at least block_bytes;
     * n_window 0: there is none. Not with in_place. */
    uint32_t           win_seg, n_window;
    uint64_t           win_bytes;
    uint64_t           host_bytes; /* reserved now, never exceeded */
    uint32_t           n_block, block_tokens, seq_tokens_max;
    struct kv_identity ident;
    struct digest_key  key;
    struct {                                             /* places below the host, the cheapest to read from first */
        const struct kv_below_row *row;                  /* NULL: a folder */
        const char                *dir;                  /* kv_below_cfg.where */
        uint64_t                   bytes, segment_bytes; /* segment_bytes: as in store.h; 0: the default */
        struct object_store       *objects;              /* kv_below_cfg.objects */
    } store[KV_STORES_MAX];
    uint32_t         n_store;
    struct peer_net *peers; /* of a row of peers (peer/peers.h), which read the host's slab; NULL: there is none */
    struct kv_handed hand;
    const char
        *cgroup; /* folder with memory.current and memory.max; near the limit the host tier shrinks. NULL: never */
    const unsigned char *secret; /* for the stores' files, as in store.h; NULL: plain files */
    /* Previous keys of the stores' files, for reading only, as in store.h; NULL: none */
    const struct digest_key *old_key;
    const unsigned char     *old_secret;
    bool                     ephemeral;                       /* the secret is valid until this process ends */
    const char              *shared_name;                     /* as in store.h */
    bool                     shared;                          /* other servers use the folder too */
    uint32_t                 shared_scan_us, shared_grace_us; /* as in store.h; 0: the defaults */
    /* With in_place: a block is copied up after so many reads, each a step of a sequence, if the pool has room; by then
     * they have cost as much as the copy does. 0: never */
    uint32_t in_place_reads;
    bool     in_place;        /* the device reads the slab (kv_tiers_slab): blocks are guests of its tree, not copied */
    bool     audit;           /* blocks that other processes computed are recomputed before use (tier_audit.c) */
    uint32_t audit_every;     /* with audit: also one in audit_every loaded blocks; 0: none */
    uint32_t load_min_tokens; /* shortest load; 0: the larger of 64 and a block */
    uint32_t
        copies_max; /* most blocks on their way down at a time; 0: as many as the lane moves in two steps, 32 to 512 */
    uint32_t keep_hits; /* a block goes down at its keep_hits-th offer; 0: 1 */
    uint64_t (*clock)(void);
    struct kv_events *events; /* is told of blocks on the tiers; NULL: nobody is */
    uint64_t (*wall)(void);   /* wall time in seconds, for times that outlive the process; NULL: the system's clock */
};
/* Reserves the host's bytes and opens the places below. Needs KV_LOADS_MAX + KV_OFFERS_MAX + KV_AUDITS + KV_MOVES
 * sequences of kv. err: one line. */
enum status kv_tiers_open(const struct kv_tiers_cfg *cfg, struct kv_tiers **t_out, char *err, size_t err_bytes);
/* The number of slots of the host's slab: so many guests the kv needs with cfg.in_place. */
uint32_t kv_tiers_slots(const struct kv_tiers_cfg *cfg);
/* Where the device finds guest g: *payload_out + g * *stride_out, block_bytes each, as on the device rank by rank. */
void kv_tiers_slab(const struct kv_tiers *t, const unsigned char **payload_out, uint64_t *stride_out);
/* flush_us: time limit for writing blocks to the stores that only the host or the device holds. */
void kv_tiers_close(struct kv_tiers *t, uint64_t flush_us);

/* Call before s is released or dropped: its first n_computed tokens are in its blocks, and its path may go down. */
void kv_tiers_offer(struct kv_tiers *t, const struct kv_seq *s, uint32_t n_computed);
/* The same for the first n_token tokens, all computed, whose blocks another server will pull: all of them go to the
 * host and are kept there (kvcache/parcel.h). out is MAKING until they are, then MADE; it stays the caller's, who calls
 * kv_tiers_unpublish before freeing it while it is MAKING. */
void kv_tiers_publish(struct kv_tiers *t, const struct kv_seq *s, uint32_t n_token, struct kv_parcel *out);
void kv_tiers_unpublish(struct kv_tiers *t, struct kv_parcel *out);
/* A running sequence lacks n device blocks. Offers that wait to be copied down give up the ends of their paths until n
 * blocks are free, and finished loads are released. false: no block was gained. */
bool kv_tiers_yield(struct kv_tiers *t, uint32_t n);
/* The same for blocks of the window's pool, all that offers and finished loads hold. */
bool kv_tiers_yield_windows(struct kv_tiers *t);

/* The state of a waiting prompt between calls of kv_tiers_ask. Zero: has not asked. */
struct kv_want {
    uint32_t load; /* 1 + index of the load it waits for; 0: none */
    uint64_t gen, until_us;
    uint32_t n_need,
        n_margin; /* n_need: free device blocks that a load needs; n_margin: those of them that running without it would not need */
    uint64_t wait_us;                      /* longest wait for those blocks */
    uint64_t keys;                         /* number of its keys in struct key_memo; 0: none are there */
    uint64_t canary_us;                    /* end of its wait for a proof of hidden blocks; 0: has not begun */
    uint64_t seek[KV_STORES_MAX], seek_us; /* tickets of questions to places below, and the end of the wait for
                                              answers; 0: not asked yet */
    bool     sought;                       /* its wait for answers is over */
    bool     win_asked, win_sought; /* the same of the pieces of a window, which are asked for when the path is known */
    uint32_t n_hit;                 /* tokens that the device held when kv_tiers_ask returned true */
    bool     asked;            /* kv_tiers_ask returned true; no new question while the device holds n_hit tokens */
    bool     late;             /* its load missed the deadline; blocks that arrive before it is admitted still count */
    uint32_t n_from[KV_TIERS]; /* tokens loaded for it, by the tier that held them */
    uint32_t leave;         /* tokens: the path below goes on to here, but its windows do not allow it (kv_seq_leave) */
    struct kv_claim *claim; /* the parcel that it pulls whatever that costs, or NULL; the caller sets it */
};
/* True if the prompt ids[0..n) may be admitted now. false: blocks beyond hit, the end of its path in the device's tree,
 * are on their way or awaited; ask again after a turn. us_per_token: current cost of computing. */
bool kv_tiers_ask(struct kv_tiers *t, struct kv_want *w, struct kv_salt salt, const uint32_t *ids, uint32_t n,
                  const struct kv_cursor *hit, double us_per_token);
/* A prompt with a claim has come, and has not asked yet. */
void kv_tiers_claim(struct kv_tiers *t, struct kv_claim *c, struct kv_salt salt, const uint32_t *ids, uint32_t n);
/* It was admitted with n_hit tokens cached, or (why is KV_CLAIM_UNUSED) needs them no more: the peer is told. Counts
 * how the claim ended; KV_CLAIM_ENDS: that is found out. n: the prompt's tokens. */
void kv_tiers_claim_end(struct kv_tiers *t, const struct kv_want *w, uint32_t n, uint32_t n_hit, enum kv_claim_end why);
/* The prompt was admitted (and holds the loaded blocks) or has ended. */
void kv_tiers_forget(struct kv_tiers *t, struct kv_want *w);

/* With cfg.audit. True: the engine computes a step of these rows alone: ids[0..n) at positions [first, first + n) of a
 * sequence with this page table. Then it calls kv_tiers_audited before any other function of the tiers. idle: nothing
 * runs and nobody waits, so that samples are due too. false: nothing is due. */
struct kv_audit_rows {
    const uint32_t *ids;
    uint32_t        n, first;
    const uint32_t *page, *win; /* win: of the window's pool; NULL: there is none */
    uint32_t        n_page;
};
bool kv_tiers_audit(struct kv_tiers *t, bool idle, struct kv_audit_rows *out);
/* That step has ended: ST_OK, or the reason for which it computed nothing. The engine's thread, as all of this. */
void kv_tiers_audited(struct kv_tiers *t, enum status st);
/* True while the device's cache is in doubt, or the slab is to be handed over and is read in place: all running
 * sequences give their blocks back, then the engine calls kv_tiers_all_gave_way. Until that is over, kv_tiers_ask
 * admits nobody. */
bool kv_tiers_purges(const struct kv_tiers *t);
void kv_tiers_all_gave_way(struct kv_tiers *t);

/* Numbers of device steps enqueued and done. Blocks of a load may have belonged to a sequence with a row in a step in
 * flight; nothing is copied into them before that step is done. */
void kv_tiers_steps(struct kv_tiers *t, uint64_t n_enqueued, uint64_t n_done);
/* Takes completions, starts copies, checks deadlines. Cheap when there is nothing to do. true: a job was completed. */
bool kv_tiers_turn(struct kv_tiers *t);
/* Sleeping between turns: arm (false: a turn is due), wait for kv_tiers_fd or kv_tiers_sleep_us, then ack. */
bool    kv_tiers_arm(struct kv_tiers *t);
int     kv_tiers_fd(const struct kv_tiers *t);
void    kv_tiers_ack(struct kv_tiers *t);
int64_t kv_tiers_sleep_us(const struct kv_tiers *t);
bool    kv_tiers_busy(const struct kv_tiers *t); /* a copy, a read or a write is in flight */

enum { KV_LATENCY_BUCKETS = 17 };
extern const uint32_t kv_latency_us[KV_LATENCY_BUCKETS - 1]; /* upper bounds; the last bucket has none */
struct kv_tier_stats {
    uint64_t reserved_bytes, used_bytes, n_block;
    uint64_t hit_blocks, store_blocks, evicted; /* blocks loaded from it; stored in it; evicted from it */
    uint64_t bytes_in, bytes_out;
    uint64_t miss_blocks;                /* lacking on the device, asked for here, and not held */
    uint64_t evicted_why[KV_EVICT_WHYS]; /* by reason; records of a store that were found expired are not in evicted */
    uint64_t n_doubt, n_abandoned;       /* as in kv_tiers_stats, for this tier */
    uint32_t n_degraded;
    uint64_t pinned_bytes;
    uint64_t latency[KV_LATENCY_BUCKETS]; /* loads by duration, in the tier of their slowest part */
    double   latency_sum_us, regret_us;
};
struct kv_tiers_stats {
    struct kv_tier_stats tier[KV_TIERS];
    uint64_t             n_ask, n_load, n_recompute, n_abandoned; /* questions; decisions; loads past their deadline */
    uint64_t             n_dropped;                               /* copies down refused for lack of room or time */
    uint64_t             doubt[KV_DOUBTS];
    uint64_t             n_failed_io;
    uint64_t             n_loaded;        /* blocks loaded to the device, or to be read in place */
    uint64_t             n_window_loaded; /* blocks of the window's pool that loads brought; each is several of those */
    uint64_t             n_in_place;      /* of them, those that are read in place */
    uint64_t             n_moved;         /* of those, later copied up */
    uint32_t             n_guest;         /* slots that the device may read at the moment */
    uint64_t             n_audit, n_audit_mismatch; /* blocks recomputed; of them, those with other bytes */
    struct kv_below_counts store;                   /* sum over all places below the host */
    uint32_t               n_degraded;              /* places that cannot be used or written at the moment */
    char                   degraded[200];           /* reason of the first of them, without its name */
    double                 regret_us;               /* time that loads took beyond the cost of computing */
    uint64_t               claim[KV_CLAIM_ENDS];
    struct kv_parcel_stats parcels;
};
/* Counters since the tiers were made, and what is held now, of all places together and of each. */
void kv_tiers_stats(const struct kv_tiers *t, struct kv_tiers_stats *out);
/* Verifies every slot, link and count; ST_INVALID after logging the first fault. */
enum status kv_tiers_check(const struct kv_tiers *t);
