/* boot_peers: makes the lane to other servers from the --kv-peer options.   Thread: the one that loads. */
#pragma once
#include "server/boot.h"
#include "transfer/peer/net.h"
#include "transfer/xfer.h"

bool boot_peers_wanted(const struct config *c); /* whether the options ask for the lane */
/* Returns 0, or an exit code with one line in b->err. */
int boot_peers_lane(struct boot *b, struct xfer_lane **lane_out, struct peer_net **net_out);
