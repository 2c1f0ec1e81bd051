/* ucx: one worker of UCX: lends one memory to peers, and reads (GET) from what peers lend. ucx_open -> ucx_lend,
 * ucx_reach -> ucx_get ... -> ucx_leave -> ucx_close.   Thread: one, for all of it; it calls ucx_progress when ucx_fd can
 * be read, also while it only lends: over TCP a GET needs the lender to make progress.
 * What UCX's own connections carry is neither signed nor encrypted, and a process that reaches its port can read this
 * one's memory. So the port is for peers alone (docs/OPERATIONS.md). */
#pragma once
#include "base/status.h"
#include "transfer/peer/net.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ucx;
struct ucx_reach; /* a way to one peer's memory, at one connection */

/* device: network interface to use alone, "lo" or "eth0"; NULL: all. ST_CONFIG with one line in err: no library, or it
 * lacks the transport. */
enum status ucx_open(enum peer_transport transport, const char *device, struct ucx **u_out, char *err,
                     size_t err_bytes);
void        ucx_close(struct ucx *u); /* waits, bounded, for what is being closed */
int         ucx_fd(const struct ucx *u);
bool        ucx_arm(struct ucx *u); /* before sleeping on ucx_fd; false: progress first */
void        ucx_progress(struct ucx *u);

/* Memory that peers may read, until ucx_close. Once. ST_NOMEM, ST_CONFIG. */
enum status ucx_lend(struct ucx *u, void *base, uint64_t bytes);
/* What a peer needs for ucx_reach; of u. */
const unsigned char *ucx_address(const struct ucx *u, uint32_t *n_out);
const unsigned char *ucx_rkey(const struct ucx *u, uint32_t *n_out);

struct ucx_there { /* what a peer says of itself: its ucx_address, ucx_rkey, and where its memory lies there */
    const unsigned char *address, *rkey;
    uint64_t             base, bytes;
};
/* ST_CONFIG with one line in err: also where UCX chose another transport than was asked for. */
enum status ucx_reach(struct ucx *u, const struct ucx_there *there, struct ucx_reach **r_out, char *err,
                      size_t err_bytes);
bool        ucx_lost(const struct ucx_reach *r); /* UCX has noticed that the peer is gone */
/* Ends it; GETs that are out complete with ST_PEER_LOST in some later ucx_progress. r is u's from here on. */
void ucx_leave(struct ucx_reach *r);
/* Reads bytes at off of the peer's memory. done is called once, in this call or in ucx_progress: ST_OK or ST_PEER_LOST.
 * Until then the memory at p is UCX's, and job too, which is the caller's to keep. */
typedef void ucx_done(void *arg, enum status st);
struct ucx_job {
    struct ucx_reach *r;
    ucx_done         *done;
    void             *arg;
};
void     ucx_get(struct ucx_job *job, struct ucx_reach *r, void *p, uint32_t bytes, uint64_t off, ucx_done *done,
                 void *arg);
uint32_t ucx_in_flight(const struct ucx *u); /* GETs that are out */
