/* peers_impl: the inside of the row of peers.   Private to kvcache/peer and its tests. */
#pragma once
#include "base/chain.h"
#include "kvcache/host.h"
#include "kvcache/peer/peers.h"
#include "transfer/peer/net.h"

enum { ASKS_MAX = 64, SEEKS_MAX = 64, KNOWN_MAX = 8192, LEASES_MAX = 64, NONE_KNOWN = -1 };

struct other { /* a peer that we ask */
    bool     up, named;
    uint64_t epoch, bytes;
    uint32_t seg;    /* its slab, in xfer; 0: none, or of an earlier epoch and still read */
    uint32_t n_read; /* reads of seg that are out */
    uint32_t n_bad;  /* blocks of it in doubt */
    char     name[64];
};
/* A question to one peer, and the lease that it answers with. */
struct ask {
    bool          used, answered;
    uint32_t      peer, n;
    uint64_t      epoch, lease, ticket, sent_us, until_us; /* until_us: its blocks are read no later */
    uint32_t      n_known, n_taken;                        /* blocks that may still be read of it; that were */
    struct kv_key key[PWIRE_KEYS_MAX];
};
/* A block that a peer has. */
struct known {
    bool          used, reading;
    int32_t       next; /* by_key's, or in the free list */
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
    uint32_t guest, n;
    uint64_t epoch, id, end_us;
    int32_t  slot[PWIRE_KEYS_MAX];
};

struct peers {
    struct kv_below     below; /* first */
    struct kv_below_cfg cfg;
    struct kv_host     *host;
    struct peer_net    *net;
    uint64_t            record_bytes, n_ticket, n_lease, gen;
    struct other        other[PEERS_MAX];
    struct ask          ask[ASKS_MAX];
    struct seek         seek[SEEKS_MAX];
    struct known        known[KNOWN_MAX];
    struct chain        by_key;
    int32_t             free;
    uint32_t            n_known;
    struct lease        lease[LEASES_MAX];
    struct peer_note    in, out;
    bool                identified;      /* the lane was told which blocks these are */
    uint64_t            n_lent, n_taken; /* blocks, ever */
};

/* ask.c */
void     ask_hear(struct peers *p, const struct peer_note *n); /* UP, DOWN, ANSWERED */
bool     ask_all(struct peers *p, const struct kv_key *key, uint32_t n, uint64_t *ticket_out);
bool     ask_open(const struct peers *p, uint64_t ticket); /* 0: of any */
void     ask_turn(struct peers *p, uint64_t now);
int32_t  ask_known(struct peers *p, const struct kv_key *key); /* that can be read now, or NONE_KNOWN */
void     ask_forget(struct peers *p, int32_t k, bool taken);   /* it is not read (any more) */
void     ask_doubt(struct peers *p, uint32_t peer);            /* it gave a block that is wrong */
uint64_t ask_forget_all(struct peers *p);
bool     ask_check(const struct peers *p);
/* lend.c */
void lend_hear(struct peers *p, const struct peer_note *n); /* ASKED, GAVE_BACK, GONE */
void lend_turn(struct peers *p, uint64_t now);              /* leases end */
void lend_end_all(struct peers *p);
bool lend_check(const struct peers *p);
