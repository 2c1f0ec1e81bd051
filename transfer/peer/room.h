/* room: the process in which UCX runs, and the packets between it and the lane (lane_ucx.h).
 * UCX ends its process when it meets a state that it did not expect, for example a peer that died while it connected,
 * and whoever reaches its port can read and write the memory of its process. So it has a process to itself, which holds
 * the slab of blocks, the pre-shared key and nothing else. When it dies the lane starts another one.
 * room_main runs there; room_start and the rest are the lane's.   Thread: one of each. */
#pragma once
#include "transfer/peer/net.h"
#include <sys/types.h>

enum { ROOM_NAME_BYTES = 264, ROOM_FLIGHTS = 32 };
enum room_type {
    /* to the room */
    ROOM_SETUP,
    ROOM_SLAB, /* with a file descriptor: the memory that is lent, and that GETs go to */
    ROOM_GET,
    /* from the room */
    ROOM_READY,
    ROOM_FAILED,
    ROOM_DONE,
    /* both */
    ROOM_NOTE
};
struct room_setup { /* with a file descriptor where somebody is served: the listener */
    enum peer_transport transport;
    unsigned char       secret[PWIRE_SECRET];
    char                device[64]; /* network interface; "": all */
    uint32_t            n_peer, names_ms;
    bool                listens;
    char                peer[PEERS_MAX][ROOM_NAME_BYTES];
};
struct room_get {
    uint32_t flight, peer, bytes;
    uint64_t epoch, src_off, dst_off; /* dst_off: in the slab */
};
struct room_done {
    uint32_t    flight;
    enum status st; /* ST_OK, ST_PEER_LOST */
};
struct room_packet {
    enum room_type type;
    union {
        struct room_setup setup;
        uint64_t          slab_bytes;
        struct room_get   get;
        struct room_done  done;
        char              why[400]; /* ROOM_FAILED */
        struct peer_note  note;
    };
};

/* Starts the process, which shares a socket with the caller. ST_IO: errno. */
enum status room_start(int *fd_out, pid_t *pid_out);
/* One packet, whole, with a file descriptor (-1: none). ST_AGAIN: not now. ST_PEER_LOST: the other end is gone. */
enum status room_send(int fd, const struct room_packet *p, int pass_fd);
/* *fd_out: -1 or the caller's. wait_ms: how long for the first byte; 0: not at all. */
enum status room_recv(int fd, struct room_packet *p, int *fd_out, int wait_ms);

/* Every program with a lane to peers asks this first in main: true: the process is a room, and has ended with *code_out. */
bool room_main(int n_arg, char **arg, int *code_out);
