/* below: places below the host that hold blocks. Each kind of place is a row of functions: the folder of a disk
 * (folder/store_below.c) is one, a peer or an object store would be others. The tiers keep the open places in an array,
 * the cheapest to read from first (tier_below.c).
 *   open -> (turn, find, read, write ...)* -> close
 * Thread: engine, for every function. No function may block: blocking work belongs to a lane or to a thread of the
 * row. A lost block costs its recomputation and nothing else. A row may therefore forget any block, and every block
 * that it returns is checked before use. */
#pragma once
#include "kvcache/parcel.h"
#include "kvcache/record.h"
#include "transfer/xfer.h"

/* The tiers under the device, by the names that metrics give them. A kind of place below the host is a line here
 * (identifier, name) and a row. Statistics and metrics follow this list. Rows may share a tier. */
#define KV_BELOW_LIST(X) X(STORE, "nvme") X(PEER, "peer") X(OBJECT, "object")
#define KV_TIER_LIST(X)  X(HOST, "host") KV_BELOW_LIST(X)
enum kv_tier {
#define KV_TIER_ID(id, name) KV_TIER_##id,
    KV_TIER_LIST(KV_TIER_ID)
#undef KV_TIER_ID
        KV_TIERS
};

/* An open place. The struct that a row's open returns begins with this one. */
struct kv_below {
    const struct kv_below_row *row;
};

/* The position of a block, in numbers of the row. The tiers read only seq and old_key. */
struct kv_place {
    uint32_t segment, index;
    uint64_t gen,
        seq;      /* gen: changes when the position is given to another block; seq: expected in the record read there */
    bool old_key; /* the digest is under the previous key; xfer_done then has the digest under the current key */
    bool sealed;  /* the lane checks the digest of the record's head too (xfer_job.head) */
};

/* A read: one record (kv_record_bytes of the payload) is copied to offset host_off of segment host_seg. */
struct kv_read {
    const struct kv_key *key;
    uint32_t             host_seg;
    uint64_t             host_off;
    enum xfer_prio       prio;
    uint64_t             deadline_us, post_us; /* as in xfer_job */
    uint64_t             cookie;               /* of the completion by xfer_poll */
};

/* A write: the record at offset host_off of segment host_seg; page points to its head in memory. */
struct kv_write {
    const struct kv_key *key;
    uint32_t             host_seg;
    uint64_t             host_off;
    void                *page;
    uint64_t             until_s;  /* current expiry, as in struct kv_record */
    int                  priority; /* current priority, as in struct kv_record */
    uint64_t             cookie;   /* of the completion by xfer_poll */
};

struct kv_host;
struct kv_events;
struct peer_net;
struct object_store;
/* Parameters of open. The pointers must stay valid until close. */
struct kv_below_cfg {
    const char       *where;   /* a folder, an address */
    uint64_t          bytes;   /* limit on the bytes kept there */
    uint32_t          n_below; /* number of places that the tiers open; they share the process's file descriptors */
    uint64_t          payload_bytes;
    uint32_t          block_tokens;
    struct kv_key     fingerprint;
    struct digest_key key;
    const struct digest_key *old_key; /* records under this key are read but not written; NULL: none */
    struct xfer             *xfer;
    struct kv_host          *host;   /* of the tiers, for a row that lends its blocks */
    struct peer_net         *peers;  /* of a row of peers */
    bool                     prove;  /* blocks found there stay hidden until one of them is proven */
    struct kv_events        *events; /* is told of the place's blocks; NULL: nobody is */
    uint32_t                 place;  /* the number of this place in those calls */
    uint64_t (*clock)(void);
    /* for rows that keep files, as in folder/store.h */
    uint64_t             segment_bytes;
    const unsigned char *secret, *old_secret;
    bool                 ephemeral, shared;
    const char          *name;
    uint32_t             scan_us, grace_us;
    struct object_store *objects; /* for the row of objects; it outlives the row */
};

/* First line: events since open. Second line: current content. A row leaves the counts at 0 that do not apply to it. */
struct kv_below_counts {
    uint64_t n_pauses, n_recovered, n_removed, n_gave_way, n_claimed;
    uint64_t n_paused, n_locked, n_damaged, n_unread, n_foreign;
};
struct kv_below_stats {
    uint64_t used_bytes, cap_bytes, n_block, n_evicted;
    const char
        *degraded; /* reason for reduced service, without the place's name; NULL: none. Valid until the next turn */
    struct kv_below_counts counts;
    struct kv_parcel_stats parcels;
};

/* For rows that find blocks which another process computed. */
struct kv_below_proof {
    bool (*unproven)(const struct kv_below *b); /* found blocks are hidden, and at least one can be proven */
    bool (*canary)(struct kv_below *b,
                   struct kv_key   *key_out);       /* a hidden block that begins a prompt; false: none known yet */
    void (*believe)(struct kv_below *b);          /* the canary was right: unhides all blocks */
    bool (*hopeless)(const struct kv_below *b);   /* everything is listed, and nothing can be proven */
    uint64_t (*forget_found)(struct kv_below *b); /* drops the found blocks; returns their number */
};

/* For rows that keep parcels for peers, and pull those of peers. */
struct kv_below_parcels {
    /* Keeps the n READY slots in their places as one parcel, for KV_PARCEL_US or as long as a peer claims it. first:
     * the key of its first block. May keep fewer slots, the first ones; returns how many, 0: none, and there is no
     * parcel. */
    uint32_t (*keep)(struct kv_below *b, const struct kv_key *first, const int32_t *slot, uint32_t n,
                     unsigned char id_out[KV_PARCEL_ID]);
    /* Claims a peer's parcel now and again until claim_end, which tells the peer that n blocks of it were taken. false:
     * too many claims; the parcel then ends at its time limit. c stays the caller's until claim_end. */
    bool (*claim)(struct kv_below *b, struct kv_claim *c, const struct kv_key *first);
    void (*claim_end)(struct kv_below *b, struct kv_claim *c, uint32_t n);
    bool (*knows)(const struct kv_below *b, const struct kv_claim *c); /* the engine that has it is connected */
};

struct kv_below_row {
    const char *name; /* in logs: "a folder" */
    /* Blocks are written there as soon as they are on the host, in addition to the row that gets them when the host
     * grows full: servers elsewhere read them, also after this server is lost. At most one open row is eager. */
    bool         eager;
    enum kv_tier tier; /* tier for its counts of blocks and loads; not KV_TIER_HOST */
    enum xfer_kind
        kind; /* kind of its segments; load times are estimated from transfers between this kind and the host */
    /* err: one line. A place that is unusable now is opened nevertheless and retries by itself. */
    enum status (*open)(const struct kv_below_cfg *cfg, struct kv_below **b_out, char *err, size_t err_bytes);
    void (*close)(struct kv_below *b); /* requires that none of its jobs is in flight */
    /* True if the block can be read from there now. Counts as a use of the block. */
    bool (*find)(struct kv_below *b, const struct kv_key *key, struct kv_place *place_out);
    /* For rows that must ask other machines for their content; NULL, like sought and seeking, if find needs no
     * question. seek: asks for the n blocks that a waiting prompt lacks, in this order; with a claim only the engine
     * that it names. false: there is nobody to ask. Once sought is true for the ticket, find knows the answers for a
     * while. */
    bool (*seek)(struct kv_below *b, const struct kv_claim *claim, const struct kv_key *key, uint32_t n,
                 uint64_t *ticket_out);
    bool (*sought)(const struct kv_below *b, uint64_t ticket); /* all answers have arrived or timed out */
    bool (*seeking)(const struct kv_below *b);                 /* an answer is outstanding */
    /* True if the block is there or being written, hidden or not: it need not be written again. */
    bool (*has)(const struct kv_below *b, const struct kv_key *key);
    /* Posts the read of a record and the check of its payload. The position is pinned until read_done. ST_NOT_FOUND:
     * the block is gone; ST_AGAIN: try later. */
    enum status (*read)(struct kv_below *b, const struct kv_read *r, struct kv_place *place_out, uint64_t *ticket_out);
    /* A read of the block is over: asks for the memory that read_done will look at, a few blocks later. NULL:
     * nothing. */
    void (*fetch)(const struct kv_below *b, const struct kv_key *key, const struct kv_place *place);
    void (*read_done)(struct kv_below *b, struct kv_place place,
                      bool bad); /* bad: the record was doubted or has expired; the row drops it */
    /* Seals the head of a record (kv_record_seal) and posts its write. The record must not change until write_done. On
     * any status but ST_OK nothing is posted and the head is unchanged. NULL, like write_done and takes: the place is
     * read only. */
    enum status (*write)(struct kv_below *b, const struct kv_write *w, struct kv_place *place_out);
    void (*write_done)(struct kv_below *b, struct kv_place place, enum status st);
    bool (*takes)(const struct kv_below *b); /* false: writes are paused */
    /* Housekeeping, once in each turn of the engine; cheap when there is nothing to do. */
    void (*turn)(struct kv_below *b);
    bool (*busy)(const struct kv_below *b); /* needs a turn soon, even with nothing in flight */
    void (*stats)(const struct kv_below *b, struct kv_below_stats *out);
    enum status (*check)(
        const struct kv_below *b);         /* verifies every link and count; ST_INVALID after logging the first fault */
    uint64_t (*purge)(struct kv_below *b); /* drops all blocks, with nothing in flight; returns their number */
    const struct kv_below_proof   *proof;  /* NULL: all its blocks were written by this process */
    const struct kv_below_parcels *parcels; /* or NULL */
    /* For KV events; NULL, both of them: the place tells of no blocks. Blocks that can be read, hidden ones too: holds:
     * the block is one of them. each: calls kv_events_entry if there is one at this position of the place's own
     * numbering, and returns the next position; UINT64_MAX: the end. */
    bool (*holds)(const struct kv_below *b, const struct kv_key *key);
    uint64_t (*each)(const struct kv_below *b, uint64_t at);
};
