/* room: the process in which UCX runs, and the packets between it and the lane (lane_ucx.h).
 * UCX aborts its process when it meets a state that it did not expect, for example a peer that died during connecting,
 * and every program that reaches UCX's port can read and write the memory of its process. So UCX runs in a process of
 * its own, called the room, which holds the slab of blocks, the pre-shared key and nothing else. When the room dies
 * the lane starts another one.
 * room_main runs in the room, room_start in the lane, room_send and room_recv in both.   Thread: one at each end. */
#pragma once
#include "transfer/peer/net.h"
#include <sys/types.h>

enum { ROOM_NAME_BYTES = 264, ROOM_FLIGHTS = 32 };
enum room_type {
    /* to the room */
    ROOM_SETUP,
    ROOM_SLAB, /* with a file descriptor of the memory that peers may read and that GETs write to */
    ROOM_GET,
    /* from the room */
    ROOM_READY,
    ROOM_FAILED,
    ROOM_DONE,
    /* both */
    ROOM_NOTE
};
struct room_setup { /* if `listens`, the listener's file descriptor comes with it */
    enum peer_transport transport;
    unsigned char       secret[PWIRE_SECRET], id[PWIRE_ID]; /* id: of the engine */
    char                device[64];                         /* network interface for UCX; "": all */
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
struct room_gets { /* GETs begin and end in batches: a packet costs as much as moving 100 KiB */
    uint32_t        n;
    struct room_get get[ROOM_FLIGHTS];
};
struct room_dones {
    uint32_t         n;
    struct room_done done[ROOM_FLIGHTS];
};
struct room_packet {
    enum room_type type;
    union {
        struct room_setup setup;
        uint64_t          slab_bytes;
        struct room_gets  gets;
        struct room_dones dones;
        char              why[400]; /* ROOM_FAILED */
        struct peer_note  note;
    };
};

/* Starts this program again as a room. *fd_out: the caller's end of their socket, which the caller closes; the caller
 * also waits for *pid_out. ST_IO: errno has the cause. */
enum status room_start(int *fd_out, pid_t *pid_out);
/* Sends one whole packet and a file descriptor (-1: none), without blocking. pass_fd stays open and the caller's.
 * ST_AGAIN: the socket is full. ST_PEER_LOST: the other end is gone. */
enum status room_send(int fd, const struct room_packet *p, int pass_fd);
/* Receives one whole packet. *fd_out: -1, or a file descriptor that the caller must close. wait_ms: longest wait for a
 * packet; 0: none. ST_AGAIN: there is no packet. ST_PEER_LOST: the other end is gone. */
enum status room_recv(int fd, struct room_packet *p, int *fd_out, int wait_ms);

/* Every program with a lane to peers calls this first in main. If the process was started as a room, the call runs the
 * room and ends the process with its exit code; it returns true, with *code_out, only where the arguments are wrong.
 * false: the process is no room. */
bool room_main(int n_arg, char **arg, int *code_out);
