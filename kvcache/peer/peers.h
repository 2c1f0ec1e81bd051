/* peers: other servers' host memory as one of the rows below the host (below.h), and this server's lent to them. A
 * waiting prompt's keys are asked of every peer that is connected (seek), what they answer is known for as long as half
 * of their lease, and is pulled into our own slab and checked like any other block.   Thread: engine.
 * kv_below_cfg.peers is the way to them (transfer/peer/net.h); kv_below_cfg.host is what is lent. */
#pragma once
#include "kvcache/below.h"

extern const struct kv_below_row kv_peers;

enum { PEER_LEASE_MS = 10000, PEER_ANSWER_US = 1000000, PEER_BAD_MAX = 3, PEER_BAD_MS = 60000 };
