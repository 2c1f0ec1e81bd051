/* pconn: one control connection between two servers: a non-blocking socket, the buffers of its frames, their seals.
 * pconn_open -> (pconn_read, pconn_next, pconn_put, pconn_write)* -> pconn_close.   Thread: one. */
#pragma once
#include "transfer/peer/pwire.h"
#include <stdbool.h>
#include <stddef.h>

enum { PCONN_OUT_FRAMES = 4 };

struct pconn {
    int               fd; /* -1: closed */
    unsigned char    *in, *out;
    uint32_t          n_in, n_out;
    struct pwire_seal seal_in, seal_out;
};

/* Takes over the socket, also on error. ST_NOMEM: the socket is closed. */
enum status pconn_open(struct pconn *c, int fd, bool we_are_server);
void        pconn_close(struct pconn *c);
/* Seals all later frames of both directions with this key, which is copied. */
void pconn_seal(struct pconn *c, const unsigned char key[PWIRE_SECRET]);
/* Reads from the socket into the buffer, as much as fits. ST_PEER_LOST: the other end has closed the connection;
 * frames read before may still be taken. */
enum status pconn_read(struct pconn *c);
/* Takes the next message out of the buffer. ST_AGAIN: no frame is complete yet. Other errors are those of pwire_get;
 * after one the connection cannot be used any more. */
enum status pconn_next(struct pconn *c, struct pwire_msg *out);
/* Appends a message to the output buffer. false: the buffer has no room for a longest frame. */
bool pconn_put(struct pconn *c, const struct pwire_msg *m);
/* Writes as much of the output buffer as the socket takes now. ST_PEER_LOST: the connection is broken; pconn_close is
 * still the caller's to call. */
enum status pconn_write(struct pconn *c);
