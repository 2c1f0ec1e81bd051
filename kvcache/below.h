/* below: what lies below the host. Each kind of place is a row of functions: the folder of a disk
 * (folder/store_below.c) is one, a peer or an object store would be others. The tiers hold what rows have opened in an
 * array, the cheapest to read from first (tier_below.c).
 *   open -> (turn, find, read, write ...)* -> close
 * Thread: engine, for every function; none may block. What blocks is a lane's, or a thread of the row's own. Losing a
 * block costs its recomputation and nothing else: a row may forget what it likes, and what it gives back is checked
 * before it is used. */
#pragma once
#include "kvcache/record.h"
#include "transfer/xfer.h"

/* The tiers under the device, by the names that metrics give them. A kind of place below the host is a line here
 * (identifier, name) and a row. Statistics and metrics follow this list. Rows may share a tier. */
#define KV_BELOW_LIST(X) X(STORE, "nvme")
#define KV_TIER_LIST(X)  X(HOST, "host") KV_BELOW_LIST(X)
enum kv_tier {
#define KV_TIER_ID(id, name) KV_TIER_##id,
    KV_TIER_LIST(KV_TIER_ID)
#undef KV_TIER_ID
        KV_TIERS
};

/* One that is open. What a row opens begins with it. */
struct kv_below {
    const struct kv_below_row *row;
};

/* Where a block lies, in the row's own numbers; the tiers read seq and old_key alone. */
struct kv_place {
    uint32_t segment, index;
    uint64_t gen,
        seq;      /* gen changes when the place is given to another block; seq: that a record read from there bears */
    bool old_key; /* it is under the key before this one: xfer_done has the payload's digest under this one */
};

/* A record is to come into the host: kv_record_bytes of the payload, to host_off of the segment host_seg. */
struct kv_read {
    const struct kv_key *key;
    uint32_t             host_seg;
    uint64_t             host_off;
    enum xfer_prio       prio;
    uint64_t             deadline_us; /* as in xfer_job */
    uint64_t             cookie;      /* of the completion by xfer_poll */
};

/* A record is to leave the host; it lies at host_off of the segment host_seg, and page is its head in memory. */
struct kv_write {
    const struct kv_key *key;
    uint32_t             host_seg;
    uint64_t             host_off;
    void                *page;
    uint64_t             until_s;  /* what its users say of it now, as in struct kv_record */
    int                  priority; /* likewise */
    uint64_t             cookie;   /* of the completion by xfer_poll */
};

/* What one is opened with. Pointers live as long as it does. */
struct kv_below_cfg {
    const char              *where;   /* a folder, an address */
    uint64_t                 bytes;   /* never more there than that */
    uint32_t                 n_below; /* how many the tiers open: they share the process's file descriptors */
    uint64_t                 payload_bytes;
    uint32_t                 block_tokens;
    struct kv_key            fingerprint;
    struct digest_key        key;
    const struct digest_key *old_key; /* what lies there under it is read; NULL: none */
    struct xfer             *xfer;
    bool                     prove; /* what is found there is hidden until it has been proven */
    uint64_t (*clock)(void);
    /* of rows that keep files; as in folder/store.h */
    uint64_t             segment_bytes;
    const unsigned char *secret, *old_secret;
    bool                 ephemeral, shared;
    const char          *name;
    uint32_t             scan_us, grace_us;
};

/* Events, and what lies there; a row leaves at 0 what it has none of. */
struct kv_below_counts {
    uint64_t n_pauses, n_recovered, n_removed, n_gave_way, n_claimed;
    uint64_t n_paused, n_locked, n_damaged, n_unread, n_foreign;
};
struct kv_below_stats {
    uint64_t used_bytes, cap_bytes, n_block, n_evicted;
    const char
        *degraded; /* why it is of less use than it should be, without its name; NULL: it is not. Until its next turn */
    struct kv_below_counts counts;
};

/* Of a row that finds blocks which nobody of this process has computed. */
struct kv_below_proof {
    bool (*unproven)(const struct kv_below *b); /* found blocks are hidden, and some of them can be proven */
    bool (*canary)(struct kv_below *b,
                   struct kv_key   *key_out);       /* one of them that begins a prompt; false: none is known yet */
    void (*believe)(struct kv_below *b);          /* it was right: nothing is hidden any more */
    bool (*hopeless)(const struct kv_below *b);   /* all is known, and nothing of it can be proven */
    uint64_t (*forget_found)(struct kv_below *b); /* what was found is not used. How many blocks */
};

struct kv_below_row {
    const char    *name; /* in logs: "a folder" */
    enum kv_tier   tier; /* under which its blocks and loads are counted; not KV_TIER_HOST */
    enum xfer_kind kind; /* of its segments: loads are estimated by what moves between these and the host */
    /* err: one line. A place that cannot be used now is opened all the same, and is tried again by itself. */
    enum status (*open)(const struct kv_below_cfg *cfg, struct kv_below **b_out, char *err, size_t err_bytes);
    void (*close)(struct kv_below *b); /* no job of it is out */
    /* May the block be read from there now? It counts as a use. */
    bool (*find)(struct kv_below *b, const struct kv_key *key, struct kv_place *place_out);
    /* Of a row that must ask others what they have; NULL, with sought and seeking: find knows by itself. seek: a waiting
     * prompt lacks these n blocks, in this order. false: nobody is to be asked. Once sought is true of the ticket, find
     * knows for a while what was answered. */
    bool (*seek)(struct kv_below *b, const struct kv_key *key, uint32_t n, uint64_t *ticket_out);
    bool (*sought)(const struct kv_below *b, uint64_t ticket); /* the answers are here, or will not come */
    bool (*seeking)(const struct kv_below *b);                 /* an answer is still to come */
    /* Is it there, or about to be, hidden or not? Then it need not be written. */
    bool (*has)(const struct kv_below *b, const struct kv_key *key);
    /* Posts the read of a record, with the check of its payload. The place is kept until read_done. ST_NOT_FOUND,
     * ST_AGAIN. */
    enum status (*read)(struct kv_below *b, const struct kv_read *r, struct kv_place *place_out, uint64_t *ticket_out);
    void (*read_done)(struct kv_below *b, struct kv_place place,
                      bool bad); /* bad: it was doubted, or is no longer wanted: it goes */
    /* Posts the write of a record, whose head it seals (kv_record_seal); the record does not change until write_done.
     * Anything but ST_OK: not now, and the head is as it was. NULL, with write_done and takes: nothing is ever written
     * there. */
    enum status (*write)(struct kv_below *b, const struct kv_write *w, struct kv_place *place_out);
    void (*write_done)(struct kv_below *b, struct kv_place place, enum status st);
    bool (*takes)(const struct kv_below *b); /* false: writes are refused for a while */
    /* its housekeeping, once for each turn of the engine; cheap when there is nothing */
    void (*turn)(struct kv_below *b);
    bool (*busy)(const struct kv_below *b); /* it wants turns soon, though nothing is in flight */
    void (*stats)(const struct kv_below *b, struct kv_below_stats *out);
    enum status (*check)(const struct kv_below *b); /* every link and count; ST_INVALID after logging the first fault */
    uint64_t (*purge)(struct kv_below *b); /* drops all that it holds, nothing being in flight. How many blocks */
    const struct kv_below_proof *proof;    /* NULL: what it holds was written by this process */
};
