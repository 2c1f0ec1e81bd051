/* ucx: one UCX worker, which lends one region of memory to peers and reads (GET) from the regions that peers lend.
 * ucx_open -> ucx_lend, ucx_reach -> ucx_get ... -> ucx_leave -> ucx_close.   Thread: one for all calls; it calls
 * ucx_progress when ucx_fd or ucx_copy_fd can be read, even if it only lends: over TCP a GET needs progress at the lender.
 * UCX's own connections are neither signed nor encrypted, and a process that reaches their port can read this
 * process's memory. So only peers may reach the port (docs/OPERATIONS.md). */
#pragma once
#include "base/status.h"
#include "transfer/peer/near_copy.h"
#include "transfer/peer/net.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ucx;
struct ucx_reach; /* access to one peer's memory, for one connection */

/* device: the only network interface to use, "lo" or "eth0"; NULL: all. ST_CONFIG with one line in err: the library is
 * missing or lacks the transport. ST_NOMEM, without a line. */
enum status ucx_open(enum peer_transport transport, const char *device, struct ucx **u_out, char *err,
                     size_t err_bytes);
void        ucx_close(struct ucx *u); /* leaves all peers, and waits at most 2 s for that; NULL is allowed */
int         ucx_fd(const struct ucx *u);
int         ucx_copy_fd(const struct ucx *u); /* the same for GETs from peers that are near; -1: no peer can be */
bool        ucx_arm(struct ucx *u);           /* before sleeping on ucx_fd; false: progress first */
void        ucx_progress(struct ucx *u);      /* does what is due, and calls the done of GETs that have ended */

/* Lends this memory, which is mapped from fd, to peers until ucx_close; the caller keeps both. May be called once.
 * ST_NOMEM: UCX refuses it. ST_CONFIG: its rkey is longer than PWIRE_ADDRESS_MAX. */
enum status ucx_lend(struct ucx *u, void *base, uint64_t bytes, int fd);
/* The worker's address and the lent memory's rkey, which a peer needs for ucx_reach. They belong to u. Over shm the
 * rkey ends with what near_say writes. */
const unsigned char *ucx_address(const struct ucx *u, uint32_t *n_out);
const unsigned char *ucx_rkey(const struct ucx *u, uint32_t *n_out);

struct ucx_there { /* a peer's ucx_address and ucx_rkey, and its lent memory in its own address space */
    const unsigned char *address, *rkey;
    uint32_t             n_rkey;
    uint64_t             base, bytes;
};
/* Opens access to a peer's memory; `there` is not kept. ST_CONFIG with one line in err: the peer cannot be reached, or
 * UCX chose another transport than was asked for. ST_NOMEM, without a line. */
enum status ucx_reach(struct ucx *u, const struct ucx_there *there, struct ucx_reach **r_out, char *err,
                      size_t err_bytes);
bool        ucx_lost(const struct ucx_reach *r); /* UCX has noticed that the peer is gone */
bool        ucx_near(const struct ucx_reach *r); /* the peer's memory is mapped, and read by copying */
/* Ends the access and hands r back to u, which frees it. GETs in flight complete in a later ucx_progress, those that
 * were cut off with ST_PEER_LOST. */
void ucx_leave(struct ucx_reach *r);
/* Called when a GET has ended. */
typedef void ucx_done(void *arg, enum status st);
struct ucx_job {
    struct ucx_reach *r;
    ucx_done         *done;
    void             *arg;
    struct near_job   near; /* of a peer that is near */
};
/* Reads bytes at off of the peer's memory into p. done is called once, in this call, in ucx_copy or in ucx_progress,
 * with ST_OK or ST_PEER_LOST. A near peer may be dead without UCX's having noticed: ST_OK then, with what its memory holds. Until
 * done is called the caller keeps job and the memory at p alive and does not touch them. */
void     ucx_get(struct ucx_job *job, struct ucx_reach *r, void *p, uint32_t bytes, uint64_t off, ucx_done *done,
                 void *arg);
uint32_t ucx_in_flight(const struct ucx *u); /* GETs whose done was not called yet */
/* Ends one GET from a peer that is near, where one has been asked for and no other thread is at it; false: there is
 * none. ucx_progress ends all of them. */
bool ucx_copy(struct ucx *u);
