/* tier_impl: the inside of struct kv_tiers.   Private to kvcache/. */
#pragma once
#include "base/chain.h"
#include "kvcache/device/block.h"
#include "kvcache/device/due.h"
#include "kvcache/device/pin.h"
#include "kvcache/folder/store.h"
#include "kvcache/tier.h"
#include "kvcache/tier_hand.h"
#include <stdatomic.h>

enum { TIER_COPIES = 512, TIER_WRITES = 128, TIER_FLIGHTS = 4096, SLOT_NONE = -1, SKETCH_ROWS = 4 };
enum slot_state { SLOT_FREE, SLOT_FILLING, SLOT_READY, SLOT_AWAY }; /* AWAY: its memory was given back (tier_shrink.c) */

struct host_slot {
    struct kv_key key;
    struct digest payload;
    int32_t       next;         /* by_key's, or in the free list */
    int32_t       newer, older; /* READY: order of use */
    uint32_t      readers;
    uint8_t       state, doomed; /* doomed: in doubt, goes when the last reader has */
    uint8_t       store;         /* 1 + which store holds it as well; 0: none */
    uint8_t class, pin;          /* READY: of eviction; pin: 1 + number, 0: none */
    bool           found;        /* came in a slab that was handed over */
    uint32_t       pin_gen;
    struct kv_hold hold;
};

/* A path on its way down: a table of its own keeps the device's blocks where they are. */
struct offer {
    bool           used, giving_up;
    struct kv_seq  kv;
    struct kv_mark mark;
    uint32_t       n_block, next, n_flight;
    uint64_t       short_us; /* since when the device has been short of blocks; 0: it is not */
};

/* The key of a block in the device's tree, where it is known: a key costs 0.3 us, and a prompt of 100k tokens has 6,250. */
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
        n_late;            /* n_late: of the waiters, those that wait no more; blocks [first, first + n_block) of the path */
    uint32_t       n_todo; /* whose copy to the device has not begun */
    unsigned char *state;  /* [n_block] */
    bool          *read;   /* [n_block] it came from a store just now */
    struct kv_key *key;    /* [n_block] */
    uint64_t      *ticket;
};

/* What a completion belongs to. */
enum flight_kind { FLIGHT_OFFER, FLIGHT_READ, FLIGHT_COPY, FLIGHT_WRITE, FLIGHT_AUDIT_READ, FLIGHT_AUDIT_COPY };
struct flight {
    enum flight_kind kind;
    bool             used;
    uint32_t         owner, block; /* offer or load, and which block of it */
    int32_t          slot;
    uint32_t         store;
    struct kv_place  place;
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
enum audit_purge { PURGE_NONE, PURGE_BELOW, PURGE_DEVICE }; /* what is to be emptied: host and stores; the device as well */
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
    unsigned char        *slab;
    int                   slab_fd;
    uint32_t              slab_seg, n_slot, n_ready, n_free;
    uint64_t              stride;
    struct host_slot     *slot;
    struct chain          by_key; /* slots */
    int32_t               free;
    int32_t               newest[KV_CLASSES], oldest[KV_CLASSES];
    uint32_t              n_class[KV_CLASSES];
    struct kv_due         due;        /* slots by the end of their time */
    uint64_t              pins_ended; /* kv_pins.n_ended when it was looked at */
    uint32_t              n_sweep;    /* pinned slots still to be looked at since then */
    struct kv_below      *below[KV_STORES_MAX];
    uint32_t              n_below, n_writer;     /* n_below: cfg.n_store, or 0 while they are closed for another server */
    uint32_t              writer[KV_STORES_MAX]; /* [n_writer] those that blocks are written to */
    struct offer          offer[KV_OFFERS_MAX];
    struct load           load[KV_LOADS_MAX];
    struct flight        *flight; /* [n_flight_max] */
    uint32_t             *free_flight;
    uint32_t              n_flight_max, n_free_flight, n_down, n_writing;
    uint64_t              gen;
    uint8_t              *sketch; /* [SKETCH_ROWS][sketch_n] how often a key was offered, saturating, halved */
    uint32_t              sketch_n, sketch_adds;
    struct node_key      *node_key;           /* [n_block] */
    uint32_t             *path;               /* [blocks of the longest sequence] scratch of tier_key */
    uint64_t              n_enqueued, n_done; /* steps */
    uint64_t              last_turn_us;
    bool                  copies_fixed;     /* by the configuration */
    double                turn_us;          /* between two turns, lately: a step of the device */
    bool                  closing, stirred; /* stirred: the host's slots have changed since write_ahead looked */
    bool                  frozen;           /* nothing goes down or up (tier_hand.h) */
    struct hand           hand;
    struct shrink         shrink;
    struct audit          audit;
    uint32_t              n_away;         /* slots without memory */
    uint64_t              below_again_us; /* when to open them the next time where that failed */
    struct kv_tiers_stats stats;
};

/* tier.c: slots */
static inline unsigned char *slot_page(const struct kv_tiers *t, int32_t i) { return t->slab + (uint64_t)i * t->stride; }
int32_t                      slot_find(const struct kv_tiers *t, const struct kv_key *key); /* in any state but FREE */
int32_t                      slot_take(struct kv_tiers *t, const struct kv_key *key);       /* FILLING; SLOT_NONE: nothing can be evicted */
void                         slot_ready(struct kv_tiers *t, int32_t i, struct digest payload);
void                         slot_drop(struct kv_tiers *t, int32_t i); /* FILLING or READY without readers */
void                         slot_unread(struct kv_tiers *t, int32_t i);
struct flight               *flight_new(struct kv_tiers *t, enum flight_kind kind); /* NULL: all are out */
static inline uint64_t       flight_cookie(const struct kv_tiers *t, const struct flight *f) { return (uint64_t)(f - t->flight); }
void                         flight_free(struct kv_tiers *t, struct flight *f);
uint32_t                     sketch_add(struct kv_tiers *t, const struct kv_key *key);
uint32_t                     sketch_get(const struct kv_tiers *t, const struct kv_key *key);
bool                         tiers_moving(const struct kv_tiers *t); /* something is on its way down or up */

/* How many blocks of so many bytes to have on their way, so that the lane has enough until the turn after next: at least lo, at most hi. */
uint32_t tier_window(const struct kv_tiers *t, enum xfer_kind src, enum xfer_kind dst, uint64_t bytes, uint32_t lo, uint32_t hi);

/* The end of its life, or of its time with the stores: what is not stored is lost. */
static inline bool tiers_keep(const struct kv_tiers *t) { return t->closing || t->hand.flushing; }

/* Running sequences need what loads and offers hold of the device. */
static inline bool tiers_short(const struct kv_tiers *t) { return !t->closing && kv_available_count(t->cfg.kv) < t->cfg.n_block / 16 + 1; }

/* The key of a block that is in the device's tree; KV_NONE: of the root. */
struct kv_key tier_key(struct kv_tiers *t, struct kv_salt salt, uint32_t block);
void          tier_key_known(struct kv_tiers *t, uint32_t block, const struct kv_key *key);

/* tier_below.c */
enum status    below_open(struct kv_tiers *t, char *err, size_t err_bytes);
void           below_close(struct kv_tiers *t);  /* until below_reopen opens them again */
void           below_reopen(struct kv_tiers *t); /* those that were closed for another server which did not come after all */
void           below_turn(struct kv_tiers *t);
int            below_find(struct kv_tiers *t, const struct kv_key *key, struct kv_place *place_out); /* which one; -1: none */
int            below_has(const struct kv_tiers *t, const struct kv_key *key);                        /* the same, hidden blocks too */
uint32_t       below_for(const struct kv_tiers *t, const struct kv_key *key); /* which one a block is written to, by its key: all servers
                                                                              of a folder agree, none is favoured. n_writer > 0 */
enum xfer_kind below_kind(const struct kv_tiers *t, uint32_t i);              /* of its segments; XFER_FILE where nothing is open */
bool           below_takes(const struct kv_tiers *t, uint32_t i);
bool           below_any_takes(const struct kv_tiers *t);
bool           below_busy(const struct kv_tiers *t);
bool           below_hides(const struct kv_tiers *t, const struct kv_key *key);   /* it is there, hidden until something is proven */
uint64_t       below_purge(struct kv_tiers *t);                                   /* how many blocks */
void           below_stats(const struct kv_tiers *t, struct kv_tiers_stats *out); /* adds to it */
enum status    below_check(const struct kv_tiers *t);
/* tier_order.c */
enum status order_init(struct kv_tiers *t);
void        order_close(struct kv_tiers *t);
void        order_add(struct kv_tiers *t, int32_t i); /* READY: as the newest of its class */
void        order_remove(struct kv_tiers *t, int32_t i);
void        order_turn(struct kv_tiers *t); /* what has come to its end, pins that have */
bool        order_check(const struct kv_tiers *t);
void        slot_touch(struct kv_tiers *t, int32_t i);
void        slot_hold(struct kv_tiers *t, int32_t i, struct kv_hold h); /* what its users say, together with what they said */
void        slot_pin(struct kv_tiers *t, int32_t i, const struct kv_mark *m);
int32_t     slot_victim(const struct kv_tiers *t);
/* All that are READY, in the order of eviction, and back. SLOT_NONE: that was the last. */
int32_t slot_oldest(const struct kv_tiers *t);
int32_t slot_newest(const struct kv_tiers *t);
int32_t slot_newer(const struct kv_tiers *t, int32_t i);
int32_t slot_older(const struct kv_tiers *t, int32_t i);

void     slot_adopt(struct kv_tiers *t, int32_t i, const struct kv_key *key, struct digest payload, struct kv_hold hold, uint8_t store);
uint64_t until_wall(const struct kv_tiers *t, const struct kv_hold *h); /* 0: no end; wall time alone means something to the next process */
/* tier_hand.c */
bool        hand_turn(struct kv_tiers *t);                               /* true: frozen, or about to be */
enum status hand_adopt(struct kv_tiers *t, char *why, size_t why_bytes); /* cfg.hand; the fds stay the caller's where it fails */
void        hand_close(struct kv_tiers *t);
int32_t     slot_victim(const struct kv_tiers *t); /* SLOT_NONE: all are being read */
/* tier_shrink.c */
void shrink_turn(struct kv_tiers *t);
/* tier_down.c */
void down_turn(struct kv_tiers *t);
void down_offer_done(struct kv_tiers *t, struct flight *f, const struct xfer_done *d);
void down_write_done(struct kv_tiers *t, struct flight *f, const struct xfer_done *d);
void down_close(struct kv_tiers *t);
bool down_offered(const struct kv_tiers *t);           /* a path is on its way down */
bool down_write_one(struct kv_tiers *t, int32_t slot); /* to a store; false: not now */
/* tier_drain.c: what only the device or the host holds goes to the stores, until end_us */
void drain(struct kv_tiers *t, uint64_t end_us);
/* The same without stores, in turns, for a process that follows: begin (when loads have ended), then step until false. */
void drain_device_begin(struct kv_tiers *t, uint64_t end_us);
bool drain_device_step(struct kv_tiers *t);
void drain_device_end(struct kv_tiers *t);
/* tier_up.c */
void up_turn(struct kv_tiers *t);
void up_yield(struct kv_tiers *t); /* what has come is held no longer for those who asked for it */
void up_read_done(struct kv_tiers *t, struct flight *f, const struct xfer_done *d);
void up_copy_done(struct kv_tiers *t, struct flight *f, const struct xfer_done *d);
/* Counts it, and says so; KV_SURE: nothing. from NULL: the host. */
void tier_doubt(struct kv_tiers *t, const struct kv_below *from, enum kv_doubt d);
void up_close(struct kv_tiers *t);
void up_discard(struct kv_tiers *t); /* the same, and nothing of what has come is kept */
/* tier_audit.c */
enum status audit_open(struct kv_tiers *t); /* before the stores */
void        audit_close(struct kv_tiers *t);
void        audit_slab_found(struct kv_tiers *t);                             /* slots that are READY came in a slab */
bool        slot_hidden(const struct kv_tiers *t, int32_t i);                 /* until the slab is proven */
bool        audit_hides(struct kv_tiers *t, const struct kv_key *key);        /* it may be found soon */
void        audit_note(struct kv_tiers *t, const struct load *l, uint32_t k); /* block k of a load has come */
bool        audit_turn(struct kv_tiers *t);                                   /* true: nothing else may go on */
void        audit_stop(struct kv_tiers *t);
bool        audit_busy(const struct kv_tiers *t);
void        audit_read_done(struct kv_tiers *t, struct flight *f, const struct xfer_done *d);
void        audit_copy_done(struct kv_tiers *t, struct flight *f, const struct xfer_done *d);
