/* net: the notes that the tier of peers (kvcache/peer/peers.h) and the lane to them (lane_ucx.h) exchange, by copy, in
 * bounded queues.   Thread: the engine calls send and recv; the lane that implements them has a thread of its own.
 * A peer is a server whose blocks we read; a guest is a server that reads ours. Each kind is numbered from 0. */
#pragma once
#include "transfer/peer/pwire.h"

enum peer_transport { PEER_TCP, PEER_SHM, PEER_RDMA, PEER_TRANSPORTS };
extern const char *const peer_transport_name[PEER_TRANSPORTS];
enum { PEERS_MAX = 32, PEER_GUESTS_MAX = 64 };

/* Each note's comment begins with the fields that it fills. */
enum peer_note_type {
    /* to the lane */
    PEER_IDENT,     /* fingerprint, record_bytes: the identity of our blocks; the lane connects to no peer before it */
    PEER_ASK,       /* peer, epoch, lease, n, key: asks the peer which of these keys it has */
    PEER_GIVE_BACK, /* peer, epoch, lease, n: returns a lease; n: how many of its blocks were taken */
    PEER_ANSWER,    /* peer (a guest), epoch, lease, n, where, lease_ms: answers PEER_ASKED */
    PEER_DROP,      /* peer, epoch, wait_ms: ends the connection; the lane connects again after wait_ms */
    PEER_CLAIM,     /* peer, epoch, id (a parcel's), first, done, n: wants the parcel, or is done with it */
    /* from the lane */
    /* peer, epoch, bytes, id (its engine's): its slab can be read, as a segment XFER_REMOTE of this peer and epoch */
    PEER_UP,
    PEER_DOWN,      /* peer, epoch: the connection has ended */
    PEER_ANSWERED,  /* peer, epoch, lease, n, where, lease_ms: the peer's answer to PEER_ASK */
    PEER_ASKED,     /* peer (a guest), epoch, lease, n, key: the guest asks which of these keys we have */
    PEER_GAVE_BACK, /* peer (a guest), epoch, lease, n: the guest returns a lease, of which it took n blocks */
    PEER_CLAIMED,   /* peer (a guest), epoch, id, first, done, n: a guest's PEER_CLAIM */
    PEER_GONE       /* peer (a guest), epoch: the guest's connection has ended, and all its leases end */
};
struct peer_note {
    enum peer_note_type  type;
    uint32_t             peer;  /* number of the peer, or of the guest: two separate numberings */
    uint64_t             epoch; /* of the connection: a note of an earlier connection is dropped */
    uint64_t             lease, bytes, record_bytes;
    uint32_t             n, lease_ms, wait_ms;
    unsigned char        id[PWIRE_ID];
    uint32_t             done; /* 0 or not */
    struct pwire_bytes32 first;
    struct pwire_bytes32 fingerprint;
    char                 name[64]; /* from the lane: the other end's address, for logs */
    union {
        struct pwire_bytes32 key[PWIRE_KEYS_MAX];
        struct pwire_where   where[PWIRE_KEYS_MAX];
    };
};

struct peer_net;
struct peer_net_ops {
    bool (*send)(struct peer_net *n, const struct peer_note *note); /* false: the queue is full */
    bool (*recv)(struct peer_net *n, struct peer_note *note_out);   /* false: no note waits */
};
struct peer_net {
    const struct peer_net_ops *ops;
};
