/* lane_ucx: REMOTE -> HOST over UCX, and the control connections to peers (pwire.h has their language). One thread does
 * all of it and sleeps while nothing happens.   Thread: create: main; peer_net: the engine's.
 * A peer's memory is a segment { XFER_REMOTE, .fd = number of the peer, .epoch = of its connection }, which the owner
 * adds when the note PEER_UP has come and drops when PEER_DOWN has: jobs of an earlier connection get ST_PEER_LOST. A
 * HOST segment that is `lent` is what others may read here. A peer that says nothing for PEER_SILENT_US, or lets no GET
 * finish for PEER_STALL_US, is lost: its jobs fail, and it is connected to again, after 250 ms, then twice as long, up
 * to 10 s, for ever. */
#pragma once
#include "transfer/peer/net.h"
#include "transfer/xfer.h"

enum { PEER_SILENT_US = 1800000, PEER_STALL_US = 1900000, PEER_PING_US = 500000, PEER_GUEST_SILENT_US = 10000000 };

struct lane_ucx_cfg {
    enum peer_transport transport;
    const char         *listen;               /* ADDRESS:PORT; NULL: nobody is served. Port 0 is any free one */
    const char *const  *peer;                 /* [n_peer] HOST:PORT, copied */
    uint32_t            n_peer, names_ms;     /* names_ms: how often names are resolved again; 0: 10 s */
    unsigned char       secret[PWIRE_SECRET]; /* of all servers; zeros on loopback alone */
};
/* ST_CONFIG with one line in err: no UCX, not that transport, an address that cannot be listened on. The net is the
 * lane's and lives as long. */
enum status lane_ucx_create(const struct lane_ucx_cfg *cfg, struct xfer_lane **lane_out, struct peer_net **net_out,
                            char *err, size_t err_bytes);
uint32_t    lane_ucx_port(const struct peer_net *net); /* that it listens on; 0: on none */
