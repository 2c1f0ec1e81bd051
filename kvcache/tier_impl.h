/* tier_impl: the inside of struct kv_tiers.   Private to kvcache/. */
#pragma once
#include "kvcache/folder/store.h"
#include "kvcache/host.h"
#include "kvcache/tier.h"
#include "kvcache/tier_hand.h"
#include <stdatomic.h>

enum { TIER_COPIES = 512, TIER_WRITES = 128, TIER_FLIGHTS = 4096 };

/* A path on its way down: a table of its own keeps the device's blocks where they are. */
struct offer {
    bool           used, giving_up;
    struct kv_seq  kv;
    struct kv_mark mark;
    uint32_t       n_block, next, n_flight;
    uint64_t       short_us; /* since when the device has been short of blocks; 0: it is not */
};

/* The key of a block in the device's tree, where it is known: a key costs 0.3 us, and a prompt of 100k tokens has
 * 6,250. */
struct node_key {
    uint64_t      gen; /* the node's when it was made; another: not known */
    struct kv_key key;
};

enum load_block { LOAD_WANT, LOAD_READING, LOAD_COPYING, LOAD_DONE, LOAD_FAILED };
struct load {
    bool          used, settled, giving_up, doubted; /* doubted: nothing of it enters the device's tree */
    uint64_t      gen, begin_us, hold_us, after_step;
    enum kv_tier  tier;       /* the slowest that it takes from */
    uint32_t      below;      /* of what lies below the host, the dearest that it may take from */
    double        compute_us; /* what computing it would have cost */
    struct kv_seq kv;
    uint32_t     *ids;
    uint32_t      first, n_block, n_done, n_flight, n_waiter,
        n_late; /* n_late: of the waiters, those that wait no more; blocks [first, first + n_block) of the path */
    uint32_t       n_todo; /* whose copy to the device has not begun */
    unsigned char *state;  /* [n_block] */
    bool          *read;   /* [n_block] it came from a store just now */
    struct kv_key *key;    /* [n_block] */
    uint64_t      *ticket;
};

/* Where it is on its way to the next process. */
struct hand {
    _Atomic int want, is; /* enum kv_hand */
    int         index_fd; /* written before FROZEN is */
    bool        held;     /* the slab is another's until this serves */
    /* before FROZEN: what only the device holds goes where the host has room */
    bool         flushing;
    struct leaf *leaf;
    uint32_t     n_leaf, at_leaf;
    uint64_t     flush_end_us;
};

struct shrink {
    uint64_t next_us; /* when it looks again */
    uint32_t n_go;    /* slots to be given back */
    uint32_t calm;    /* looks with room in a row */
    int32_t  away;    /* list through next */
    bool     said;
};

/* A block that is computed again (tier_audit.c). */
enum audit_state { AUDIT_NONE, AUDIT_NOTED, AUDIT_READING, AUDIT_READY, AUDIT_RUNNING, AUDIT_COPYING };
enum audit_purge {
    PURGE_NONE,
    PURGE_BELOW,
    PURGE_DEVICE
}; /* what is to be emptied: host and stores; the device as well */
struct audit {
    enum audit_state state;
    enum audit_purge purge;
    bool             open, stopping;
    bool             gave_way; /* purge: no sequence holds blocks of the device */
    bool             canary;   /* of source; else a sample of what was loaded */
    uint32_t         source;   /* a store, or KV_STORES_MAX: the slab */
    struct kv_key    key;
    struct kv_salt   salt;
    uint32_t         block, *ids; /* its number in its prompt; ids[(block + 1) * block_tokens] */
    struct kv_seq    kv;          /* RUNNING, COPYING */
    unsigned char   *scratch;     /* [2 * stride] the record that was brought, and the bytes that were computed */
    uint32_t         seg;
    uint64_t         ticket, n_loaded;
    uint32_t         n_fail, next_slot;
    bool             slab_unproven;
};

struct kv_tiers {
    struct kv_tiers_cfg   cfg;
    struct kv_key         fingerprint;
    struct kv_host        host;
    struct kv_below      *below[KV_STORES_MAX];
    uint32_t              n_below, n_writer; /* n_below: cfg.n_store, or 0 while they are closed for another server */
    uint32_t              writer[KV_STORES_MAX]; /* [n_writer] those that blocks are written to */
    struct offer          offer[KV_OFFERS_MAX];
    struct load           load[KV_LOADS_MAX];
    uint32_t              n_down, n_writing; /* jobs that are out: copies to the host, writes to what lies below */
    uint64_t              gen;
    struct node_key      *node_key;           /* [n_block] */
    uint32_t             *path;               /* [blocks of the longest sequence] scratch of tier_key */
    uint64_t              n_enqueued, n_done; /* steps */
    uint64_t              last_turn_us;
    bool                  copies_fixed; /* by the configuration */
    double                turn_us;      /* between two turns, lately: a step of the device */
    bool                  closing;
    bool                  frozen; /* nothing goes down or up (tier_hand.h) */
    struct hand           hand;
    struct shrink         shrink;
    struct audit          audit;
    uint64_t              below_again_us; /* when to open them the next time where that failed */
    struct kv_tiers_stats stats;
};

/* What is drawn above what uses it: tier.c calls all files below; tier_hand.c calls drain, down, up and audit;
 * tier_drain.c down; tier_down.c and tier_purge.c up; tier_up.c audit and tier_seek.c; and all of them the host, what lies below it,
 * keys and state. */

/* tier_state.c */
/* Something is on its way down or up. */
bool tiers_moving(const struct kv_tiers *t);
/* How many blocks of so many bytes to have on their way, so that the lane has enough until the turn after next: at
 * least lo, at most hi. */
uint32_t tier_window(const struct kv_tiers *t, enum xfer_kind src, enum xfer_kind dst, uint64_t bytes, uint32_t lo,
                     uint32_t hi);
/* Counts a doubt, and says so; KV_SURE: nothing. from NULL: the host. */
void tier_doubt(struct kv_tiers *t, const struct kv_below *from, enum kv_doubt d);

/* The end of its life, or of its time with the stores: what is not stored is lost. */
static inline bool tiers_keep(const struct kv_tiers *t) { return t->host.keep; }

/* Running sequences need what loads and offers hold of the device. */
static inline bool tiers_short(const struct kv_tiers *t)
{
    return !t->closing && kv_available_count(t->cfg.kv) < t->cfg.n_block / 16 + 1;
}

/* tier_key.c */
/* The key of a block that is in the device's tree; KV_NONE: of the root. */
struct kv_key tier_key(struct kv_tiers *t, struct kv_salt salt, uint32_t block);
void          tier_key_known(struct kv_tiers *t, uint32_t block, const struct kv_key *key);

/* tier_below.c */
enum status below_open(struct kv_tiers *t, char *err, size_t err_bytes);
void        below_close(struct kv_tiers *t); /* until below_reopen opens them again */
void     below_reopen(struct kv_tiers *t); /* those that were closed for another server which did not come after all */
void     below_turn(struct kv_tiers *t);
int      below_find(struct kv_tiers *t, const struct kv_key *key, struct kv_place *place_out); /* which one; -1: none */
int      below_has(const struct kv_tiers *t, const struct kv_key *key); /* the same, hidden blocks too */
uint32_t below_for(const struct kv_tiers *t,
                   const struct kv_key   *key); /* which one a block is written to, by its key: all servers
                                                                              of a folder agree, none is favoured. n_writer > 0 */
enum kv_tier   below_tier(const struct kv_tiers *t, uint32_t i); /* under which one of the array is counted */
enum xfer_kind below_kind(const struct kv_tiers *t, uint32_t i); /* of its segments; XFER_FILE where nothing is open */
bool           below_takes(const struct kv_tiers *t, uint32_t i);
bool           below_any_takes(const struct kv_tiers *t);
bool           below_busy(const struct kv_tiers *t);
bool           below_hides(const struct kv_tiers *t,
                           const struct kv_key   *key); /* it is there, hidden until something is proven */
uint64_t       below_purge(struct kv_tiers *t);       /* how many blocks */
void           below_stats(const struct kv_tiers *t, struct kv_tiers_stats *out); /* adds to it */
enum status    below_check(const struct kv_tiers *t);
/* tier_seek.c */
/* Asks what lies below for the blocks of ids[0..n_block * block_tokens) behind at that nobody here holds, where that
 * takes time. true: answers are still to come, and are worth waiting for. compute_us: what computing all of it takes;
 * 0: not known. */
bool seek_wait(struct kv_tiers *t, struct kv_want *w, const struct kv_key *at, const uint32_t *ids, uint32_t n_block,
               double compute_us, uint64_t now);
bool seeking(const struct kv_tiers *t); /* any answer is still to come */
/* tier_hand.c */
bool        hand_turn(struct kv_tiers *t); /* true: frozen, or about to be */
enum status hand_adopt(struct kv_tiers *t, char *why,
                       size_t why_bytes); /* cfg.hand; the fds stay the caller's where it fails */
void        hand_close(struct kv_tiers *t);
/* tier_shrink.c */
void shrink_turn(struct kv_tiers *t);
/* tier_down.c */
void     down_turn(struct kv_tiers *t);
void     down_offer_done(struct kv_tiers *t, struct host_flight *f, const struct xfer_done *d);
void     down_write_done(struct kv_tiers *t, struct host_flight *f, const struct xfer_done *d);
void     down_close(struct kv_tiers *t);
uint64_t down_until_wall(const struct kv_tiers *t,
                         const struct kv_hold  *h); /* 0: no end; only wall time means something to the next process */
bool     down_offered(const struct kv_tiers *t);   /* a path is on its way down */
bool     down_write_one(struct kv_tiers *t, int32_t slot); /* to a store; false: not now */
/* tier_drain.c: what only the device or the host holds goes to the stores, until end_us */
typedef bool tiers_turn(struct kv_tiers *t); /* kv_tiers_turn, handed down to what waits for completions */
void         drain_all(struct kv_tiers *t, uint64_t end_us, tiers_turn *take);
/* The same without stores, in turns, for a process that follows: begin (when loads have ended), then step until
 * false. */
void drain_device_begin(struct kv_tiers *t, uint64_t end_us);
bool drain_device_step(struct kv_tiers *t);
void drain_device_end(struct kv_tiers *t);
/* tier_up.c */
void up_turn(struct kv_tiers *t);
void up_yield(struct kv_tiers *t); /* what has come is held no longer for those who asked for it */
void up_read_done(struct kv_tiers *t, struct host_flight *f, const struct xfer_done *d);
void up_copy_done(struct kv_tiers *t, struct host_flight *f, const struct xfer_done *d);
void up_close(struct kv_tiers *t);
void up_discard(struct kv_tiers *t); /* the same, and nothing of what has come is kept */
/* tier_audit.c */
enum status audit_open(struct kv_tiers *t); /* before the stores */
void        audit_close(struct kv_tiers *t);
void        audit_slab_found(struct kv_tiers *t); /* slots that are READY came in a slab */
/* Until the slab is proven. */
static inline bool slot_hidden(const struct kv_tiers *t, int32_t i)
{
    return t->audit.slab_unproven && t->host.slot[i].found;
}
bool     audit_hides(struct kv_tiers *t, const struct kv_key *key);        /* it may be found soon */
void     audit_note(struct kv_tiers *t, const struct load *l, uint32_t k); /* block k of a load has come */
void     audit_turn(struct kv_tiers *t);
uint32_t audit_drop_slots(struct kv_tiers *t, bool all); /* those that came in a slab, or all. How many */
void     audit_stop(struct kv_tiers *t);
/* A block is being read, computed or compared. */
static inline bool audit_busy(const struct kv_tiers *t)
{
    return t->audit.state != AUDIT_NONE && t->audit.state != AUDIT_NOTED;
}
void audit_read_done(struct kv_tiers *t, struct host_flight *f, const struct xfer_done *d);
void audit_copy_done(struct kv_tiers *t, struct host_flight *f, const struct xfer_done *d);
/* tier_purge.c: empties host, what lies below it and perhaps the device after a mismatch. true: nothing else may go
 * on */
bool purge_turn(struct kv_tiers *t);
