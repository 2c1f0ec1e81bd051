/* peers_impl: the inside of the row of peers.   Private to kvcache/peer and its tests.   Thread: engine. */
#pragma once
#include "base/chain.h"
#include "kvcache/host.h"
#include "kvcache/peer/peers.h"
#include "transfer/peer/net.h"

enum { ASKS_MAX = 64, SEEKS_MAX = 64, KNOWN_MAX = 8192, LEASES_MAX = 64, NONE_KNOWN = -1 };
enum { PARCELS_MAX = 256, CLAIMS_MAX = 256 };

struct other { /* a peer that we ask */
    bool          up;
    uint32_t      drop_ms; /* the lane is still to be told to leave it alone for so long; 0: not */
    uint64_t      epoch, bytes;
    uint32_t      seg;    /* the xfer segment of its slab; 0: none. If not up: kept only until n_read is 0 */
    uint32_t      n_read; /* reads of seg in flight */
    uint32_t      n_bad;  /* wrong blocks and answers of this connection */
    char          name[64];
    unsigned char id[KV_PARCEL_ID]; /* its engine's */
};
/* A question to one peer, and the lease that it answers with. */
struct ask {
    bool     used, answered;
    uint32_t peer, n;
    uint64_t epoch, lease, ticket, sent_us, until_us; /* until_us: no read of its blocks begins later */
    uint32_t n_known, n_reading, n_taken; /* its blocks in known[], those of them being read, those read well */
};
/* A block that a peer has. */
struct known {
    bool          used, reading;
    int32_t       next; /* link of by_key, or of the free list */
    uint32_t      ask, slot;
    uint64_t      gen; /* rises with every use of this row */
    struct kv_key key;
    struct digest payload;
};
struct seek { /* of one prompt */
    uint64_t ticket, until_us;
    uint32_t n_open; /* questions without an answer; 0: free */
};
struct lease { /* of a guest */
    bool     used;
    uint32_t guest, n, n_own; /* n_own: slots that were lent for its sake alone, not kept in a parcel */
    uint64_t epoch, id, end_us;
    int32_t  slot[PWIRE_KEYS_MAX];
};

struct parcel { /* kept for a guest */
    bool          used;
    unsigned char id[KV_PARCEL_ID];
    struct kv_key key; /* of its first block */
    uint64_t      end_us;
    int32_t       first_cell;
};
struct cell { /* a slot of a parcel */
    int32_t slot, next;
};
struct claimed { /* a peer's parcel that a request here waits for */
    bool          used;
    unsigned char engine[KV_PARCEL_ID], id[KV_PARCEL_ID];
    struct kv_key first;
    uint64_t      next_us;
};

struct peers {
    struct kv_below     below; /* first */
    struct kv_below_cfg cfg;
    struct kv_host     *host;
    struct peer_net    *net;
    uint64_t            now_us; /* of this turn */
    struct xfer_job read; /* what the reads of records have in common, kept because filling a job anew takes 70 ns */
    uint64_t        record_bytes, n_ticket, n_lease, gen;
    struct other    other[PEERS_MAX];
    struct ask      ask[ASKS_MAX];                     /* n_ask of them are used */
    struct kv_key   ask_key[ASKS_MAX][PWIRE_KEYS_MAX]; /* apart, because each turn looks at ask */
    struct seek     seek[SEEKS_MAX];
    struct known    known[KNOWN_MAX];
    struct chain    by_key;
    int32_t         free;
    uint32_t        n_known, n_ask;
    struct lease    lease[LEASES_MAX];
    struct parcel   parcel[PARCELS_MAX];
    struct cell    *cell; /* [n_cell] */
    uint32_t        n_cell, n_claim;
    int32_t         free_cell;
    struct claimed  claim[CLAIMS_MAX];
    struct kv_parcel_stats parcels; /* n_block is the host's n_kept */
    struct peer_note       in, out;
    bool                   identified;      /* PEER_IDENT was sent to the lane */
    uint64_t               n_lent, n_taken; /* blocks lent to guests, and those of them that were taken, ever */
};

/* ask.c */
void ask_hear(struct peers *p, const struct peer_note *n); /* handles UP, DOWN, ANSWERED */
/* Asks the peer for n keys, or with PEERS_MAX every connected peer; keys are copied. false: no peer was asked. */
bool ask_all(struct peers *p, uint32_t peer, const struct kv_key *key, uint32_t n, uint64_t *ticket_out);
/* Whether answers to the questions of this ticket (0: of any ticket) are still awaited. */
bool     ask_open(const struct peers *p, uint64_t ticket);
void     ask_turn(struct peers *p, uint64_t now);              /* ends questions whose time is over */
int32_t  ask_known(struct peers *p, const struct kv_key *key); /* a block that can be read now, or NONE_KNOWN */
void     ask_forget(struct peers *p, int32_t k, bool taken);   /* removes known block k, which is not being read */
void     ask_doubt(struct peers *p, uint32_t peer);            /* counts a wrong block or answer of the peer */
uint64_t ask_forget_all(struct peers *p);                      /* removes all known blocks that are not being read */
bool     ask_check(const struct peers *p);                     /* false: an invariant is broken */
/* lend.c */
void lend_hear(struct peers *p, const struct peer_note *n); /* handles ASKED, GAVE_BACK, GONE */
void lend_turn(struct peers *p, uint64_t now);              /* ends expired leases */
void lend_end_all(struct peers *p);
bool lend_check(const struct peers *p);   /* false: an invariant is broken; logged */
bool lend_may(const struct host_slot *s); /* a guest may have this block */
/* parcel.c: as kv_below_parcels in below.h */
enum status parcel_open(struct peers *p); /* the host has its slots */
uint32_t    parcel_keep(struct peers *p, const struct kv_key *first, const int32_t *slot, uint32_t n,
                        unsigned char id_out[KV_PARCEL_ID]);
void        parcel_hear(struct peers *p, const struct peer_note *n); /* handles CLAIMED */
void        parcel_turn(struct peers *p, uint64_t now);              /* ends parcels that nobody claims */
void        parcel_end_all(struct peers *p);
bool        parcel_check(const struct peers *p); /* false: an invariant is broken; logged */
/* claim.c: as kv_below_parcels in below.h */
uint32_t claim_peer(const struct peers *p, const unsigned char engine[KV_PARCEL_ID]); /* PEERS_MAX: none */
bool     claim_begin(struct peers *p, struct kv_claim *c, const struct kv_key *first);
void     claim_end(struct peers *p, struct kv_claim *c, uint32_t n);
void     claim_turn(struct peers *p, uint64_t now); /* repeats claims that are due */
