/* lane_ucx: the lane REMOTE -> HOST over UCX, and the owner's end of the control connections to peers. UCX and the
 * connections run in a process apart (room.h); the lane's thread starts that process and exchanges packets with it,
 * and sleeps while nothing happens.   Thread: lane_ucx_create: main; peer_net: the engine's.
 * A peer's memory is a segment { XFER_REMOTE, .fd = number of the peer, .epoch = epoch of its connection }. The owner
 * adds it after the note PEER_UP and drops it after PEER_DOWN; jobs of an earlier connection get ST_PEER_LOST. Peers
 * may read the HOST segment here that is `lent`. A peer is lost if it sends nothing for PEER_SILENT_US or if no GET
 * from it finishes for PEER_STALL_US: its jobs fail, and the room connects to it again after 250 ms, then after pauses
 * that double up to 10 s, without end. */
#pragma once
#include "transfer/peer/net.h"
#include "transfer/xfer.h"

/* PEER_PING_US: how often a peer is pinged. PEER_GUEST_SILENT_US: a guest silent for longer is dropped. */
enum { PEER_SILENT_US = 1800000, PEER_STALL_US = 1900000, PEER_PING_US = 500000, PEER_GUEST_SILENT_US = 10000000 };

struct lane_ucx_cfg {
    enum peer_transport transport;
    const char         *listen;               /* ADDRESS:PORT; NULL: no peer may read here. Port 0: any free port */
    const char *const  *peer;                 /* [n_peer] HOST:PORT, copied */
    uint32_t            n_peer, names_ms;     /* at most PEERS_MAX; names_ms: period of name resolution; 0: 10 s */
    unsigned char       secret[PWIRE_SECRET]; /* the pre-shared key of all servers; zeros only on loopback */
};
/* Starts the room and waits until it is ready. cfg is copied. The caller owns the lane; *net_out is a part of the lane
 * and lives as long. ST_CONFIG: UCX or the transport is missing, an address cannot be listened on, or a name is not
 * HOST:PORT. ST_IO: the process cannot be started. ST_NOMEM. err has one line, except when the lane itself cannot be
 * allocated. */
enum status lane_ucx_create(const struct lane_ucx_cfg *cfg, struct xfer_lane **lane_out, struct peer_net **net_out,
                            char *err, size_t err_bytes);
/* The engine's id, by which peers tell this server from others: random, new at each start. Any thread. */
void     lane_ucx_id(const struct peer_net *net, unsigned char out[PWIRE_ID]);
uint32_t lane_ucx_port(const struct peer_net *net); /* the port that the lane listens on; 0: none. Any thread */
