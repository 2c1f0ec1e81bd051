/* net: what the tier of peers and the lane that reaches them tell each other: notes, by copy, in bounded queues.
 * Thread: send and recv are the engine's; the lane that implements them has a thread of its own. */
#pragma once
#include "transfer/peer/pwire.h"

enum peer_transport { PEER_TCP, PEER_SHM, PEER_RDMA, PEER_TRANSPORTS };
extern const char *const peer_transport_name[PEER_TRANSPORTS];
enum { PEERS_MAX = 32, PEER_GUESTS_MAX = 64 };

enum peer_note_type {
    /* to the lane */
    PEER_IDENT,     /* which blocks these are: fingerprint, record_bytes; connecting begins with it */
    PEER_ASK,       /* peer, epoch, lease, n, key: has it these? */
    PEER_GIVE_BACK, /* peer, epoch, lease, n: how many blocks of it were taken */
    PEER_ANSWER,    /* peer: which guest, epoch, lease, n, where, lease_ms */
    PEER_DROP,      /* peer, epoch: it gave wrong blocks; the connection ends, and begins anew after wait_ms */
    /* from the lane */
    PEER_UP,        /* peer, epoch, bytes: its slab can be read, as a segment XFER_REMOTE of this peer and epoch */
    PEER_DOWN,      /* peer, epoch */
    PEER_ANSWERED,  /* peer, epoch, lease, n, where, lease_ms */
    PEER_ASKED,     /* peer: which guest, epoch, lease, n, key */
    PEER_GAVE_BACK, /* peer: which guest, epoch, lease, n */
    PEER_GONE       /* peer: which guest, epoch: all its leases end */
};
struct peer_note {
    enum peer_note_type  type;
    uint32_t             peer;  /* a peer that is asked, or a guest that asks: two rows of numbers */
    uint64_t             epoch; /* of the connection: a note of an earlier one is dropped */
    uint64_t             lease, bytes, record_bytes;
    uint32_t             n, lease_ms, wait_ms;
    struct pwire_bytes32 fingerprint;
    char                 name[64]; /* UP, DOWN: of the peer, for logs */
    union {
        struct pwire_bytes32 key[PWIRE_KEYS_MAX];
        struct pwire_where   where[PWIRE_KEYS_MAX];
    };
};

struct peer_net;
struct peer_net_ops {
    bool (*send)(struct peer_net *n, const struct peer_note *note); /* false: the queue is full */
    bool (*recv)(struct peer_net *n, struct peer_note *note_out);   /* false: nothing is there */
};
struct peer_net {
    const struct peer_net_ops *ops;
};
