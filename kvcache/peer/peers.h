/* peers: the row of below.h that reads blocks from other servers' host memory, and lends this server's host blocks to
 * them.
 * seek asks every connected peer for the keys of a waiting prompt. Their answers stay known for half of the lease; a
 * block that is needed is read into our own slab and checked like any other block.   Thread: engine.
 * kv_below_cfg.peers is the connection to the peers (transfer/peer/net.h); kv_below_cfg.host is the host that is lent.
 * */
#pragma once
#include "kvcache/below.h"

extern const struct kv_below_row kv_peers;

/* PEER_LEASE_MS: length of a lease that we give. PEER_ANSWER_US: longest wait for an answer. A peer that gave
 * PEER_BAD_MAX wrong blocks is disconnected for PEER_BAD_MS. */
enum { PEER_LEASE_MS = 10000, PEER_ANSWER_US = 1000000, PEER_BAD_MAX = 3, PEER_BAD_MS = 60000 };
