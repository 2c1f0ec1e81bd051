/* pconn: one control connection between two servers: a socket that never blocks, frames in and out, their seals.
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

/* Takes over the socket. ST_NOMEM: it is closed. */
enum status pconn_open(struct pconn *c, int fd, bool we_are_server);
void        pconn_close(struct pconn *c);
/* From here on all frames are sealed. */
void pconn_seal(struct pconn *c, const unsigned char key[PWIRE_SECRET]);
/* Takes what has come, as much as there is room for. ST_PEER_LOST: it is closed. */
enum status pconn_read(struct pconn *c);
/* The next message of what has come. ST_AGAIN: none is whole yet. Else as pwire_get, and the connection is of no use. */
enum status pconn_next(struct pconn *c, struct pwire_msg *out);
/* false: too much waits to be written. */
bool pconn_put(struct pconn *c, const struct pwire_msg *m);
/* Writes what the socket takes now. ST_PEER_LOST: it is closed. */
enum status pconn_write(struct pconn *c);
