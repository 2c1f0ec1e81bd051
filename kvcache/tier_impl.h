/* tier_impl: the inside of struct kv_tiers.   Private to kvcache/. */
#pragma once
#include "kvcache/folder/store.h"
#include "kvcache/host.h"
#include "kvcache/tier.h"
#include "kvcache/tier_hand.h"
#include <stdatomic.h>

enum { BELOW_NONE = -1 };
enum { TIER_COPIES = 512, TIER_WRITES = 128, TIER_FLIGHTS = 4096 };

/* A path that is being copied down. Its own sequence keeps the device's blocks locked meanwhile. */
struct offer {
    bool           used, giving_up;
    struct kv_seq  kv;
    struct kv_mark mark;
    uint32_t       n_block, next, n_flight;
    uint32_t       piece; /* of block next: 0: its block of the first pool comes next; else 1 + piece of the other's */
    uint64_t       short_us;     /* start of the device's current shortage of blocks; 0: no shortage */
    struct kv_parcel *parcel;    /* what is to be kept of it when it is down, or NULL */
    uint64_t          parcel_us; /* end of the wait for it */
};

/* The cached key of a block in the device's tree. Making a key costs 0.3 us, and a prompt of 100k tokens has 6,250
 * keys. */
/* The keys of the last prompt that asked: it asks again when its questions are answered. */
struct key_memo {
    uint64_t      number; /* kv_want.keys of this prompt */
    struct kv_key before; /* the key that key[0] follows */
    uint32_t      n;
    struct kv_key key[KV_ASK_MAX];
};
struct node_key {
    uint64_t      gen; /* gen of the node for which the key was made; the key is valid while the node still has it */
    struct kv_key key;
};

/* What a load would bring where layers with a window have a pool of their own. Blocks are counted from the prompt's
 * first. */
struct up_plan {
    uint32_t base, end;      /* the prompt can be continued at block base, and with the load at block `end` */
    uint32_t n_path, n_win;  /* blocks of the first pool, behind those of the device; pieces of the other: t->piece */
    uint32_t n_store, below; /* so many of both lie below the host, in this place or cheaper ones */
    struct kv_key key;       /* of the last block before `end` */
};
struct up_piece {
    uint32_t block, piece;
};

enum load_block { LOAD_WANT, LOAD_READING, LOAD_COPYING, LOAD_DONE, LOAD_FAILED };
struct load {
    /* doubted: no block of it enters the device's tree; trial: nobody waits for it (tier_price.c) */
    bool             used, settled, giving_up, doubted, trial;
    bool             in_place; /* its blocks become guests; it needs none of the pool's */
    uint64_t         gen, begin_us, hold_us, after_step;
    enum kv_tier     tier;       /* of its slowest part */
    uint32_t         below;      /* index of the most expensive place that it reads from */
    double           compute_us; /* what computing it would have cost */
    struct kv_seq    kv;
    uint32_t        *ids;
    uint32_t         n_path; /* the first n_path of its n_block blocks are of the first pool, the others pieces */
    struct up_piece *piece;  /* [n_block - n_path] */
    struct up_plan   plan;   /* of both pools; end 0: the first alone */
    bool             whole;  /* all of both came */
    uint32_t         first, n_block, n_done, n_flight, n_waiter,
        n_late; /* blocks [first, first + n_block) of the path; n_late: waiters that were told to go on without it */
    uint32_t       n_todo;       /* blocks whose copy to the device has not begun */
    uint32_t       first_failed; /* n_block: none has */
    unsigned char *state;        /* [n_block] enum load_block; load_set writes it */
    uint64_t      *want;         /* [n_block / 64 + 1] one bit for each block that is WANT: turns look at these only */
    unsigned char *from;         /* [n_block] enum kv_tier: KV_TIER_HOST until the block was read from a place below */
    struct kv_key *key;          /* [n_block] */
    uint64_t      *ticket;
    int32_t       *slot; /* [n_block] in place: the slot whose lease the load has; SLOT_NONE: none */
    int32_t       *seen; /* [n_block] the slot whose record was found sound; SLOT_NONE: none yet */
};

/* When a place whose price was too high is tried again. */
struct trial {
    uint64_t next_us;
    uint32_t n_tried; /* trials in a row that did not make its blocks worth loading */
};

/* The state of the hand-over to the next process. */
struct hand {
    _Atomic int want, is; /* enum kv_hand */
    int         index_fd; /* written before `is` becomes FROZEN */
    bool        held;     /* the slab belongs to the other process until this one serves */
    bool        vacating; /* sequences that read slots in place give their blocks back */
    /* before FROZEN: blocks that only the device holds are copied to free slots of the host */
    bool         flushing;
    struct leaf *leaf;
    uint32_t     n_leaf, at_leaf;
    uint64_t     flush_end_us;
};

struct shrink {
    uint64_t next_us; /* time of the next look at the memory limit */
    uint32_t n_go;    /* slots that are still to be given back */
    uint32_t calm;    /* consecutive looks that found room */
    int32_t  away;    /* list through next */
    bool     said;
};

/* The recomputation of one block (tier_audit.c). */
enum audit_state { AUDIT_NONE, AUDIT_NOTED, AUDIT_READING, AUDIT_READY, AUDIT_RUNNING, AUDIT_COPYING };
enum audit_purge {
    PURGE_NONE,
    PURGE_BELOW,
    PURGE_DEVICE
}; /* BELOW: empty the host and the places below; DEVICE: and the device */
struct audit {
    enum audit_state state;
    enum audit_purge purge;
    bool             open, stopping;
    bool             gave_way; /* during a purge: no sequence holds device blocks */
    bool             canary;   /* the block is a canary of source; else it is a sample of the loaded blocks */
    uint32_t         source;   /* index of a place below, or KV_STORES_MAX: the slab */
    struct kv_key    key;
    struct kv_salt   salt;
    uint32_t         block, *ids; /* index of the block in its prompt; ids [(block + 1) * block_tokens] */
    struct kv_seq    kv;          /* RUNNING, COPYING */
    unsigned char   *scratch;     /* [2 * stride] the stored record, then the computed bytes */
    uint32_t         seg;
    uint64_t         ticket, n_loaded;
    uint32_t         n_fail, next_slot;
    bool             slab_unproven;
};

/* Slots that the device reads in place (tier_place.c). Leases that have ended wait for the steps that may still
 * read. */
struct in_place {
    struct leaving {
        int32_t  slot;
        uint64_t after_step;
    } * leaving; /* [n_slot] a ring */
    uint32_t first, n;
};

/* Guests on their way to the pool (tier_move.c). */
enum { MOVE_BLOCKS = 32 };
struct move {
    bool          active, giving_up;
    struct kv_seq kv; /* active: the blocks that they will have */
    uint32_t      n, n_posted, n_flight;
    int32_t       slot[MOVE_BLOCKS];
    uint32_t      guest[MOVE_BLOCKS]; /* the slot once its bytes are on the device; KV_NONE before */
    uint64_t      after_step;
    struct rent { /* of a guest */
        uint64_t at_step;
        uint32_t n_read;
    } * rent;      /* [n_slot] */
    uint32_t next; /* slot to look at */
};

struct kv_tiers {
    struct kv_tiers_cfg cfg;
    struct kv_key       fingerprint;
    struct kv_host      host;
    struct xfer_job     copy; /* what copies of loads have in common; kept because filling a job anew takes 70 ns */
    struct kv_below    *below[KV_STORES_MAX];
    uint32_t     n_below, n_writer;     /* n_below: cfg.n_store, or 0 while the places are closed for another server */
    uint32_t     writer[KV_STORES_MAX]; /* [n_writer] indices of the places that take writes when the host is full */
    int          eager; /* index of the eager place; BELOW_NONE. It is in writer only if no other place is */
    uint32_t     eager_next, eager_left; /* next slot to look at for it; slots left since the host changed */
    uint64_t     eager_seen;             /* host.n_stir then */
    struct offer offer[KV_OFFERS_MAX];
    struct load  load[KV_LOADS_MAX];
    struct trial trial[KV_STORES_MAX + 1]; /* by place below; the last one is the host */
    uint32_t     n_down, n_writing;        /* jobs in flight: copies to the host, writes to places below */
    uint64_t     gen;
    struct node_key      *node_key; /* [n_block] */
    struct key_memo       memo;
    uint32_t              n_piece, piece_max; /* pieces of a block of the window's pool, 0: there is none; of a load */
    struct kv_key        *piece_key;          /* [piece_max] of the last window_plan */
    struct up_piece      *piece;              /* [piece_max] */
    struct kv_key        *piece_seek;         /* of the last window_lacks */
    int32_t              *kept;     /* [blocks of the longest sequence + piece_max + n_piece] of the last window_keep */
    uint32_t             *path;     /* [blocks of the longest sequence] scratch of tier_key */
    uint32_t             *leaf_ids; /* [tokens of the longest sequence] scratch of tier_drain.c */
    uint64_t              n_enqueued, n_done; /* steps */
    uint64_t              last_turn_us;
    bool                  copies_fixed; /* cfg.copies_max was given */
    double                turn_us;      /* moving average of the time between two turns, about a step of the device */
    bool                  closing;
    bool                  frozen; /* no block moves down or up (tier_hand.h) */
    struct hand           hand;
    struct shrink         shrink;
    struct audit          audit;
    struct in_place       place;
    struct move           move;
    uint64_t              below_again_us; /* time of the next attempt after a failed below_reopen */
    struct kv_tiers_stats stats;
};

/* Calls run in one direction. tier.c calls all files below. tier_hand.c calls drain, down, up, tier_move.c,
 * tier_place.c and audit. tier_drain.c calls down, and tier_down.c calls tier_parcel.c. tier_down.c and tier_purge.c
 * call up. tier_up.c calls audit, tier_place.c, tier_price.c, tier_seek.c and tier_window.c; so does tier_down.c the
 * last. All of them call host.c, tier_below.c, tier_key.c and tier_state.c. */

/* tier_state.c */
/* True if a path goes down or a load is active. */
bool tiers_moving(const struct kv_tiers *t);
/* Number of blocks of `bytes` bytes to keep in flight so that the lane has work until the turn after next, within lo
 * and hi. */
uint32_t tier_window(const struct kv_tiers *t, enum xfer_kind src, enum xfer_kind dst, uint64_t bytes, uint32_t lo,
                     uint32_t hi);
/* Counts and logs a doubt; KV_SURE: no effect. from NULL: the host. */
void tier_doubt(struct kv_tiers *t, const struct kv_below *from, enum kv_doubt d);
/* Block k of the load is in state s from now on. */
void load_set(struct load *l, uint32_t k, enum load_block s);
/* Posts job j, which moves or checks block k of the load from its slot on the host. f is a new flight of the host; its
 * cookie is in j. true: the block is LOAD_COPYING, and the caller counts itself as a reader of the slot. false: the
 * lane is full, f is freed, and the block is tried again in the next turn. */
bool load_post(struct kv_tiers *t, struct load *l, uint32_t k, int32_t slot, struct host_flight *f,
               const struct xfer_job *j);
/* Counts a posted block that ended with st, which is not ST_OK. ST_INVALID: the bytes of the slot have changed since
 * they were written, so the slot is dropped after its last reader. */
void load_block_failed(struct kv_tiers *t, int32_t slot, enum status st);

/* True when the tiers or their stores are about to close: blocks that are not stored will be lost. */
static inline bool tiers_keep(const struct kv_tiers *t) { return t->host.keep; }

/* True if running sequences need device blocks that loads and offers hold, of either pool. */
static inline bool tiers_short(const struct kv_tiers *t)
{
    if (t->closing) return false;
    return kv_available_count(t->cfg.kv) < t->cfg.n_block / 16 + 1 ||
           (t->n_piece && kv_window_available(t->cfg.kv) < t->cfg.n_window / 16 + 1);
}

/* tier_key.c */
/* The key of a block in the device's tree; KV_NONE: the key of the root. */
struct kv_key tier_key(struct kv_tiers *t, struct kv_salt salt, uint32_t block);
void          tier_key_known(struct kv_tiers *t, uint32_t block, const struct kv_key *key);
/* Makes t->memo that of this prompt, whose blocks to come follow the key `before`; it is kept if it is. */
void tier_memo_open(struct kv_tiers *t, struct kv_want *w, const struct kv_key *before);
/* The key of block i < KV_ASK_MAX of ids, in the memo that is open. */
const struct kv_key *tier_memo_key(struct kv_tiers *t, const uint32_t *ids, uint32_t i);

/* tier_below.c */
enum status below_open(struct kv_tiers *t, char *err, size_t err_bytes);
void        below_close(struct kv_tiers *t);  /* all places; below_reopen opens them again */
void        below_reopen(struct kv_tiers *t); /* opens the places again after a hand-over that did not happen */
void        below_turn(struct kv_tiers *t);
int         below_find(struct kv_tiers *t, const struct kv_key *key,
                       struct kv_place *place_out); /* index of the first place that has it; -1: none */
int         below_has(const struct kv_tiers *t, const struct kv_key *key); /* the same, hidden blocks included */
/* False for an eager place beside others: a block that only this place holds is still written to another one before
 * the host lets go of it. */
bool           below_keeps(const struct kv_tiers *t, uint32_t i);
int            below_kept(const struct kv_tiers *t, const struct kv_key *key); /* as below_has, of places that keep */
uint32_t       below_for(const struct kv_tiers *t,
                         const struct kv_key   *key); /* index of the place that takes the block, chosen by its key: servers
                                              that share folders choose alike. Requires n_writer > 0 */
enum kv_tier   below_tier(const struct kv_tiers *t, uint32_t i); /* the tier under which place i is counted */
enum xfer_kind below_kind(const struct kv_tiers *t,
                          uint32_t               i); /* the kind of its segments; XFER_FILE if it is closed */
bool           below_takes(const struct kv_tiers *t, uint32_t i);
bool           below_any_takes(const struct kv_tiers *t);
bool           below_busy(const struct kv_tiers *t);
bool        below_hides(const struct kv_tiers *t, const struct kv_key *key);   /* a place has it hidden until a proof */
uint64_t    below_purge(struct kv_tiers *t);                                   /* returns the number of blocks */
void        below_stats(const struct kv_tiers *t, struct kv_tiers_stats *out); /* adds to *out */
enum status below_check(const struct kv_tiers *t);
/* tier_parcel.c */
void parcel_made(struct kv_tiers *t, struct offer *o); /* all that goes down of a path with a parcel is down */
/* tier_seek.c */
/* Asks the places that need a question (kv_below_row.seek) for the blocks of ids[0..n_block * block_tokens), whose memo
 * is open, that no tier here holds. true: answers are outstanding and worth waiting for. compute_us: cost of computing
 * all these blocks; 0: unknown. */
bool seek_wait(struct kv_tiers *t, struct kv_want *w, const uint32_t *ids, uint32_t n_block, double compute_us,
               uint64_t now);
/* The same for the n keys of pieces of a window, behind that. They are asked for once: n is of no matter later. Where the
 * first question was not answered in time, this one is not asked. */
bool seek_windows(struct kv_tiers *t, struct kv_want *w, const struct kv_key *key, uint32_t n, double compute_us,
                  uint64_t now);
bool seek_asks(const struct kv_tiers *t); /* there are places that need a question */
bool seeking(const struct kv_tiers *t);   /* any answer is outstanding */
/* tier_window.c: where layers with a window have a pool of their own */
enum status window_open(struct kv_tiers *t); /* n_piece stays 0 where they have none */
void        window_close(struct kv_tiers *t);
uint64_t    window_off(const struct kv_tiers *t, uint32_t w, uint32_t piece); /* of a piece of block w in cfg.win_seg */
/* The best load of a prompt whose path ends at hit on the device, and goes on for n_more blocks below; host_only:
 * without what the host has not. base: as in up_plan. Fills t->piece and t->piece_key. false: nothing is gained. */
bool window_plan(struct kv_tiers *t, struct kv_salt salt, const struct kv_cursor *hit, uint32_t base, uint32_t n_more,
                 bool host_only, struct up_plan *out);
/* The load, whose path is locked and reserved, gets the blocks of its window. false: there is no room. */
bool window_take(struct kv_tiers *t, struct load *l);
/* Its blocks are in the tree as far as they came: the window's join them, or go. */
void window_settle(struct kv_tiers *t, struct load *l);
void window_offer(struct kv_tiers *t, struct offer *o); /* locks what is to go down of the path */
/* Fills t->kept with the slots of the path's first n blocks, and behind them those of the pieces of the window with
 * which it is continued. Returns how many. */
uint32_t window_keep(struct kv_tiers *t, const struct offer *o, const int32_t *slot, uint32_t n);
/* Fills t->piece_seek with the pieces that are nowhere here of a path that ends at hit on the device and goes on for
 * n_more blocks: those of the window before its end, and before that. Returns how many. base: as in up_plan. */
uint32_t window_lacks(struct kv_tiers *t, struct kv_salt salt, const struct kv_cursor *hit, uint32_t base,
                      uint32_t n_more);
/* tier_price.c */
/* Time in us to load n blocks of which n_store come from below the host, from place `below` or cheaper ones; 0: nothing
 * is known yet. */
double price_us(const struct kv_tiers *t, uint32_t n, uint32_t n_store, uint32_t below);
/* How many of n found blocks, the first n_host of them on the host and the dearest in `below`, are worth loading.
 * *us_out: what that takes. */
uint32_t price_decide(struct kv_tiers *t, uint32_t n, uint32_t n_host, uint32_t below, double us_per_token,
                      double *us_out);
/* Whether the load is worth its price; *us_out: that. */
bool price_plan(struct kv_tiers *t, const struct up_plan *p, double us_per_token, double *us_out);
/* The index of the farthest place of such blocks in kv_tiers.trial. */
static inline uint32_t price_place(uint32_t n, uint32_t n_host, uint32_t below)
{
    return n > n_host ? below : (uint32_t)KV_STORES_MAX;
}
/* True when it is time for a trial of a place whose price was too high: at once, then after a second, and after twice
 * as long, up to a minute, with each trial in a row that did not change the decision. */
bool price_try(struct kv_tiers *t, uint32_t place);
/* tier_hand.c */
bool        hand_turn(struct kv_tiers *t); /* true: frozen, or about to freeze */
enum status hand_adopt(struct kv_tiers *t, char *why,
                       size_t why_bytes); /* takes over cfg.hand; on failure the caller keeps the fds */
void        hand_close(struct kv_tiers *t);
/* tier_shrink.c */
void shrink_turn(struct kv_tiers *t);
/* tier_down.c */
void     down_turn(struct kv_tiers *t);
void     down_offer_done(struct kv_tiers *t, struct host_flight *f, const struct xfer_done *d);
void     down_write_done(struct kv_tiers *t, struct host_flight *f, const struct xfer_done *d);
void     down_close(struct kv_tiers *t);
uint64_t down_until_wall(const struct kv_tiers *t,
                         const struct kv_hold  *h); /* expiry as wall time, which the next process can read; 0: none */
bool     down_offered(const struct kv_tiers *t);   /* a path is on its way down */
bool     down_write_one(struct kv_tiers *t, int32_t slot); /* posts the write of a slot; false: not now */
/* tier_drain.c: writes blocks that only the device or the host holds to the stores, until end_us */
typedef bool tiers_turn(struct kv_tiers *t); /* kv_tiers_turn, as a parameter: this file lies below tier.c */
void         drain_all(struct kv_tiers *t, uint64_t end_us, tiers_turn *take);
/* Copies device blocks to the host for the next process, without stores, over several turns: begin after all loads have
 * ended, then step until false, then end. */
void drain_device_begin(struct kv_tiers *t, uint64_t end_us);
bool drain_device_step(struct kv_tiers *t);
void drain_device_end(struct kv_tiers *t);
/* tier_up.c */
void up_turn(struct kv_tiers *t);
void up_yield(struct kv_tiers *t); /* releases finished loads early */
void up_read_done(struct kv_tiers *t, struct host_flight *f, const struct xfer_done *d);
void up_copy_done(struct kv_tiers *t, struct host_flight *f, const struct xfer_done *d);
void up_close(struct kv_tiers *t);
void up_discard(struct kv_tiers *t); /* up_close, and no loaded block is kept */
/* tier_place.c */
enum status place_open(struct kv_tiers *t); /* after kv_host_init */
void        place_close(struct kv_tiers *t);
void        place_turn(struct kv_tiers *t);                         /* ends leases that no table and no step needs */
bool        place_room(const struct kv_tiers *t, uint32_t n_block); /* so many more slots may be leased */
void        place_check(struct kv_tiers *t, struct load *l, uint32_t k, int32_t slot); /* posts the check of a block */
void        place_checked(struct kv_tiers *t, struct host_flight *f, const struct xfer_done *d);
/* The first n blocks of the load become guests. Returns n; 0: the device has let go of what comes before them. */
uint32_t place_settle(struct kv_tiers *t, struct load *l, uint32_t n);
/* Before the slab is handed over nobody may read it. true: nobody does. */
bool place_vacate(struct kv_tiers *t);
bool place_is_sound(const struct kv_tiers *t);
/* tier_move.c */
enum status move_open(struct kv_tiers *t); /* after kv_host_init */
void        move_close(struct kv_tiers *t);
void        move_lease(struct kv_tiers *t, int32_t slot); /* it is a guest from now on */
void        move_turn(struct kv_tiers *t);
void        move_done(struct kv_tiers *t, struct host_flight *f, const struct xfer_done *d);
void        move_end(struct kv_tiers *t); /* gives up what moves, and its blocks as soon as nothing is in flight */
/* tier_audit.c */
enum status audit_open(struct kv_tiers *t); /* before below_open */
void        audit_close(struct kv_tiers *t);
void        audit_slab_found(struct kv_tiers *t); /* marks READY slots as blocks of a slab that was handed over */
/* True for a block of the slab until the slab is proven. */
static inline bool slot_hidden(const struct kv_tiers *t, int32_t i)
{
    return t->audit.slab_unproven && t->host.slot[i].found;
}
bool     audit_hides(struct kv_tiers *t, const struct kv_key *key);        /* a hidden block that a proof may unhide */
void     audit_note(struct kv_tiers *t, const struct load *l, uint32_t k); /* block k of a load has arrived */
void     audit_turn(struct kv_tiers *t);
uint32_t audit_drop_slots(struct kv_tiers *t, bool all); /* those of the slab, or all; returns their number */
void     audit_stop(struct kv_tiers *t);
/* A block is being read, computed or compared. */
static inline bool audit_busy(const struct kv_tiers *t)
{
    return t->audit.state != AUDIT_NONE && t->audit.state != AUDIT_NOTED;
}
void audit_read_done(struct kv_tiers *t, struct host_flight *f, const struct xfer_done *d);
void audit_copy_done(struct kv_tiers *t, struct host_flight *f, const struct xfer_done *d);
/* tier_purge.c: after a mismatch, empties the host, the places below and perhaps the device. true: this turn must do
 * nothing else */
bool purge_turn(struct kv_tiers *t);
