/* host: the slots of host memory that hold blocks: their index, their order of use, and what is on its way from and to
 * them. kv_host_init -> kv_host_map or a slab that was handed over -> ... -> kv_host_close.   Thread: engine.   Private
 * to kvcache/ and its tests.
 *
 * The life of a slot is drawn in tier.h. One slot is a record (record.h) in the slab, at slot number * stride. All
 * memory is taken before anybody is served. */
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
}; /* AWAY: its memory was given back (slot_give_back) */

struct host_slot {
    struct kv_key key;
    struct digest payload;
    int32_t       next;         /* by_key's, in the free list, or in the list of those away */
    int32_t       newer, older; /* READY: order of use */
    uint32_t      readers;
    uint8_t       state, doomed; /* doomed: in doubt, goes when the last reader has */
    uint8_t       store;         /* 1 + which of those below the host holds it as well; 0: none */
    uint8_t class, pin;          /* READY: of eviction; pin: 1 + number, 0: none */
    bool           found;        /* came in a slab that was handed over */
    uint32_t       pin_gen;
    struct kv_hold hold;
};

/* What a completion belongs to. Every move has one end on the host. */
enum flight_kind { FLIGHT_OFFER, FLIGHT_READ, FLIGHT_COPY, FLIGHT_WRITE, FLIGHT_AUDIT_READ, FLIGHT_AUDIT_COPY };
struct host_flight {
    enum flight_kind kind;
    bool             used;
    uint32_t         owner, block; /* offer or load, and which block of it */
    int32_t          slot;
    uint32_t         store; /* which of those below the host */
    struct kv_place  place;
};

struct kv_host {
    const struct kv    *kv; /* for its clock and its pins */
    unsigned char      *slab;
    int                 slab_fd;
    uint32_t            seg; /* of the slab, in xfer */
    uint64_t            stride;
    uint32_t            n_slot, n_ready, n_free, n_away;
    struct host_slot   *slot;
    struct chain        by_key;     /* slots in any state but FREE and AWAY */
    int32_t             free, away; /* lists through next */
    int32_t             newest[KV_CLASSES], oldest[KV_CLASSES];
    uint32_t            n_class[KV_CLASSES];
    struct kv_due       due;        /* slots by the end of their time */
    uint64_t            pins_ended; /* kv_pins_ended when it was looked at */
    uint32_t            n_sweep;    /* pinned slots still to be looked at since then */
    struct host_flight *flight;     /* [n_flight_max] */
    uint32_t           *free_flight, n_flight_max, n_free_flight;
    uint8_t            *sketch; /* [SKETCH_ROWS][sketch_n] how often a key was offered, saturating, halved */
    uint32_t            sketch_n, sketch_adds;
    bool                stirred; /* its slots have changed since the writer to what lies below looked */
    bool keep; /* the end of its life, or of its time with what lies below: what is held here alone is not evicted */
    uint64_t n_evicted, evicted_why[KV_EVICT_WHYS];
};

/* Index, order and flights for so many slots; no slab yet. ST_NOMEM: kv_host_close gives back what was taken. */
enum status kv_host_init(struct kv_host *h, const struct kv *kv, uint32_t n_slot, uint64_t stride, uint32_t n_flight);
/* A slab of its own, as a memfd. ST_NOMEM: errno says why. */
enum status kv_host_map(struct kv_host *h);
void        kv_host_close(struct kv_host *h); /* unmaps and closes the slab as well */
/* Every slot, link and count but the records; false: a line in the log says what is wrong. */
bool kv_host_check(const struct kv_host *h);

static inline unsigned char *slot_page(const struct kv_host *h, int32_t i) { return h->slab + (uint64_t)i * h->stride; }
static inline uint64_t slot_off(const struct kv_host *h, int32_t i) { return (uint64_t)i * h->stride; } /* in seg */

int32_t slot_find(const struct kv_host *h, const struct kv_key *key); /* in any state but FREE */
/* A slot for the block, FILLING. SLOT_NONE: nothing can be evicted for it. */
int32_t slot_take(struct kv_host *h, const struct kv_key *key);
void    slot_ready(struct kv_host *h, int32_t i, struct digest payload); /* its record is whole */
void    slot_drop(struct kv_host *h, int32_t i);                         /* FILLING, or READY without readers */
void    slot_unread(struct kv_host *h, int32_t i);                       /* one reader less */
/* A slot of the process before becomes READY; kv_host_free_again makes the free list anew behind the last one. */
void slot_adopt(struct kv_host *h, int32_t i, const struct kv_key *key, struct digest payload, struct kv_hold hold,
                uint8_t store);
void kv_host_free_again(struct kv_host *h);
/* The memory of one slot goes back to the system, evicting a block where none is free. false: no more may go, or all
 * are being read. */
bool slot_give_back(struct kv_host *h);
/* one that was given back may be used again; n_away > 0. Its pages come when it is used */
void slot_return(struct kv_host *h);

struct host_flight    *flight_new(struct kv_host *h, enum flight_kind kind); /* NULL: all are out */
void                   flight_free(struct kv_host *h, struct host_flight *f);
static inline uint64_t flight_cookie(const struct kv_host *h, const struct host_flight *f)
{
    return (uint64_t)(f - h->flight);
}
static inline bool flights_out(const struct kv_host *h) { return h->n_free_flight < h->n_flight_max; }

uint32_t sketch_add(struct kv_host      *h,
                    const struct kv_key *key); /* how often the key was offered, this time included */
uint32_t sketch_get(const struct kv_host *h, const struct kv_key *key);

/* host_order.c: in which order slots go */
enum status order_init(struct kv_host *h);
void        order_close(struct kv_host *h);
void        order_add(struct kv_host *h, int32_t i); /* READY: as the newest of its class */
void        order_remove(struct kv_host *h, int32_t i);
void        order_turn(struct kv_host *h); /* expires slots and lapsed pins */
bool        order_check(const struct kv_host *h);
void        slot_touch(struct kv_host *h, int32_t i);
void        slot_hold(struct kv_host *h, int32_t i,
                      struct kv_hold hold); /* what its users say, together with what they said */
void        slot_pin(struct kv_host *h, int32_t i, const struct kv_mark *m);
int32_t     slot_victim(const struct kv_host *h); /* SLOT_NONE: all are being read, or pinned */
/* All that are READY, in the order of eviction, and back. SLOT_NONE: that was the last. */
int32_t slot_oldest(const struct kv_host *h);
int32_t slot_newest(const struct kv_host *h);
int32_t slot_newer(const struct kv_host *h, int32_t i);
int32_t slot_older(const struct kv_host *h, int32_t i);
