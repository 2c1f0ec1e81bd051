/* host: the slots of host memory that hold blocks: their index, their order of use, and the transfers from and to them.
 * kv_host_init -> kv_host_map or a slab that was handed over -> ... -> kv_host_close.   Thread: engine.   Private
 * to kvcache/ and its tests.
 *
 * tier.h draws the life of a slot. Each slot holds one record (record.h) in the slab, at slot number * stride. All
 * memory is allocated before the server is ready. */
#pragma once
#include "base/chain.h"
#include "kvcache/below.h"
#include "kvcache/device/block.h"
#include "kvcache/device/due.h"
#include "kvcache/device/pin.h"

enum { SLOT_NONE = -1, SKETCH_ROWS = 4 };
enum slot_state {
    SLOT_FREE,
    SLOT_FILLING,
    SLOT_READY,
    SLOT_AWAY
}; /* AWAY: its memory was returned to the system (slot_give_back) */

/* Whether the device may read the slot in place (tier_place.c). Every lease is a reader of the slot. */
enum slot_lease {
    LEASE_NONE,
    LEASE_CHECKING, /* its digest is being compared */
    LEASE_HELD,     /* it is a guest of the device's tree, or soon will be */
    LEASE_LEAVING   /* no table names it any more, but a step in flight may */
};
struct host_slot {
    struct kv_key key;
    struct digest payload;
    int32_t       next;         /* in by_key's chain, in the free list, or in the list of AWAY slots */
    int32_t       newer, older; /* READY: order of use */
    uint32_t      readers;
    uint8_t       state, doomed; /* doomed: in doubt; dropped after the last reader */
    uint8_t       store;         /* 1 + index of a place below that also holds the block; 0: none. By slot_below */
    uint8_t class, pin;          /* class: of eviction, if READY; pin: 1 + number of its pin, 0: none */
    bool           found;        /* the block was in a slab that was handed over */
    uint8_t        lease;        /* enum slot_lease */
    uint32_t       pin_gen;
    uint32_t       kept; /* parcels that hold it; some of its readers */
    struct kv_hold hold;
};

/* The owner of a transfer. Every transfer has one end on the host. */
enum flight_kind {
    FLIGHT_OFFER,
    FLIGHT_READ,
    FLIGHT_COPY,
    FLIGHT_CHECK, /* of a digest, for a lease; the lease is its reader */
    FLIGHT_MOVE,  /* of a slot that is read in place, to the device */
    FLIGHT_WRITE,
    FLIGHT_AUDIT_READ,
    FLIGHT_AUDIT_COPY
};
struct host_flight {
    enum flight_kind kind;
    bool             used;
    uint32_t         owner, block; /* index of the offer or load, and of the block in it */
    uint32_t         piece; /* FLIGHT_OFFER: 1 + piece of that block of the window's pool; 0: of the other pool */
    int32_t          slot;
    uint32_t         store; /* index of the place below */
    struct kv_place  place;
};

/* Is told when a slot became READY, and before a slot is dropped, whether it was READY or not. Zero: nobody is. */
struct host_watch {
    void *ctx;
    void (*stored)(void *ctx, int32_t slot);
    void (*removed)(void *ctx, int32_t slot);
};

struct kv_host {
    const struct kv    *kv; /* its clock and its pins */
    struct host_watch   watch;
    unsigned char      *slab;
    int                 slab_fd;
    uint32_t            seg; /* segment of the slab in xfer */
    uint64_t            stride;
    uint32_t            n_slot, n_ready, n_free, n_away;
    struct host_slot   *slot;
    struct chain        by_key;     /* all slots but FREE and AWAY ones */
    int32_t             free, away; /* heads of lists through next */
    int32_t             newest[KV_CLASSES], oldest[KV_CLASSES];
    uint32_t            n_class[KV_CLASSES], n_stored[KV_CLASSES]; /* READY slots; those of them with a store */
    struct kv_due       due;                                       /* slots by expiry */
    uint64_t            pins_ended;                                /* kv_pins_ended at the last look */
    uint32_t            n_sweep;                                   /* pinned slots not yet examined since then */
    struct host_flight *flight;                                    /* [n_flight_max] */
    uint32_t           *free_flight, n_flight_max, n_free_flight;
    uint8_t            *sketch; /* [SKETCH_ROWS][sketch_n] saturating counts of offers by key, halved now and then */
    uint32_t            sketch_n, sketch_adds;
    uint64_t            n_stir;  /* how often a slot became READY or lost a reader */
    uint32_t            n_lent;  /* readers of slots that are leases of peers (peer/lend.c) */
    uint32_t            n_lease; /* slots with a lease */
    uint32_t            n_kept;  /* readers of slots that are parcels (peer/parcel.c) */
    bool                stirred; /* slots have changed since the last look for blocks to write below */
    bool keep; /* the tiers or the places below are about to close: blocks that only the host holds are not evicted */
    uint64_t n_evicted, evicted_why[KV_EVICT_WHYS];
};

/* Allocates index, order and flights; the slab comes later. After ST_NOMEM call kv_host_close. */
enum status kv_host_init(struct kv_host *h, const struct kv *kv, uint32_t n_slot, uint64_t stride, uint32_t n_flight);
/* Maps a new slab, a memfd. ST_NOMEM: errno has the reason. */
enum status kv_host_map(struct kv_host *h);
void        kv_host_close(struct kv_host *h); /* unmaps and closes the slab as well */
/* Verifies every slot, link and count, but not the records. false: the fault was logged. */
bool kv_host_check(const struct kv_host *h);

/* Where the record of slot i begins, in memory. */
static inline unsigned char *slot_page(const struct kv_host *h, int32_t i) { return h->slab + (uint64_t)i * h->stride; }
static inline uint64_t slot_off(const struct kv_host *h, int32_t i) { return (uint64_t)i * h->stride; } /* in seg */

int32_t slot_find(const struct kv_host *h,
                  const struct kv_key  *key); /* in any state but FREE and AWAY; SLOT_NONE: none */
/* Asks for the slot that slot_find will look at first, when the key's bucket has been asked for (chain_fetch). */
static inline void slot_fetch(const struct kv_host *h, const struct kv_key *key)
{
    int32_t i = chain_first(&h->by_key, kv_key_hash(key));
    if (i != SLOT_NONE) __builtin_prefetch(&h->slot[i].key);
}
/* Takes a slot for the block, in state FILLING. SLOT_NONE: no slot can be evicted for it. */
int32_t slot_take(struct kv_host *h, const struct kv_key *key);
void    slot_ready(struct kv_host *h, int32_t i, struct digest payload); /* FILLING -> READY: its record is complete */
void    slot_drop(struct kv_host *h, int32_t i);    /* requires FILLING, or READY without readers */
void    slot_unread(struct kv_host *h, int32_t i);  /* removes one reader */
void    slot_lease(struct kv_host *h, int32_t i);   /* a lease, CHECKING; READY and without one before */
void    slot_release(struct kv_host *h, int32_t i); /* ends it */
/* Readers beside the lease: copies, writes and peers. */
static inline uint32_t slot_n_other(const struct host_slot *s) { return s->readers - (s->lease != LEASE_NONE); }
/* Makes a slot of the previous process READY. After the last such slot, kv_host_free_again builds the free list
 * anew. */
void slot_adopt(struct kv_host *h, int32_t i, const struct kv_key *key, struct digest payload, struct kv_hold hold,
                uint8_t store);
void kv_host_free_again(struct kv_host *h);
/* Returns the memory of one slot to the system, evicting a block if no slot is free. false: the minimum is reached, or
 * all slots are being read. */
bool slot_give_back(struct kv_host *h);
/* makes one AWAY slot usable again; requires n_away > 0. Its pages are allocated at first use */
void slot_return(struct kv_host *h);

/* A transfer of the host in flight: flight_new takes one, flight_free returns it, and its cookie is what xfer_done
 * brings back. flights_out: any is in use: */
struct host_flight    *flight_new(struct kv_host *h, enum flight_kind kind); /* NULL: all are in use */
void                   flight_free(struct kv_host *h, struct host_flight *f);
static inline uint64_t flight_cookie(const struct kv_host *h, const struct host_flight *f)
{
    return (uint64_t)(f - h->flight);
}
static inline bool flights_out(const struct kv_host *h) { return h->n_free_flight < h->n_flight_max; }

uint32_t sketch_add(struct kv_host *h, const struct kv_key *key); /* number of offers of the key, this one included */
/* Number of offers of the key, halved now and then; an estimate that may be too high. */
uint32_t sketch_get(const struct kv_host *h, const struct kv_key *key);

/* host_order.c: the order of eviction */
enum status order_init(struct kv_host *h);
void        order_close(struct kv_host *h);
void        order_add(struct kv_host *h, int32_t i); /* as the newest of its class; the slot is READY */
void        order_remove(struct kv_host *h, int32_t i);
void        order_turn(struct kv_host *h);        /* expires slots and lapsed pins */
bool        order_check(const struct kv_host *h); /* every link, class and count: O(slots) */
/* The place below with number `store` holds the slot's block as well. */
void slot_below(struct kv_host *h, int32_t i, uint32_t store);
/* Makes it the most recently used of its class. Only READY slots stand in the order. */
void slot_touch(struct kv_host *h, int32_t i);
void slot_hold(struct kv_host *h, int32_t i, struct kv_hold hold); /* joins its users' new wishes to the old ones */
/* The slot stays until the pin ends. Of two live pins the one that ends later counts; a pin that has ended changes
 * nothing. */
void    slot_pin(struct kv_host *h, int32_t i, const struct kv_mark *m);
int32_t slot_victim(const struct kv_host *h); /* SLOT_NONE: all slots are being read or pinned */
/* Iterate over the READY slots in the order of eviction, and backwards. SLOT_NONE: the end. */
int32_t slot_oldest(const struct kv_host *h);
int32_t slot_newest(const struct kv_host *h);
int32_t slot_newer(const struct kv_host *h, int32_t i);
int32_t slot_older(const struct kv_host *h, int32_t i);
