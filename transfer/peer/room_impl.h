/* room_impl: the inside of the process in which UCX runs (room.h).   Private to transfer/peer.   Thread: its only one,
 * beside those of UCX and of names.h. */
#pragma once
#include "transfer/peer/pconn.h"
#include "transfer/peer/lane_ucx.h"
#include "transfer/peer/names.h"
#include "transfer/peer/room.h"
#include "transfer/peer/ucx.h"

enum { NOTES_MAX = 256, NOTES_SPARE = 2 * (PEERS_MAX + PEER_GUESTS_MAX) };

enum speaker_state { SPEAKER_OFF, SPEAKER_CONNECTING, SPEAKER_GREETED, SPEAKER_PROVING, SPEAKER_UP, SPEAKER_LEAVING };
/* The other end of one control connection: a peer that we ask, or a guest that asks us. */
struct speaker {
    struct pconn       c;
    enum speaker_state state;
    bool               guest;
    uint32_t           index;
    unsigned char      random[PWIRE_RANDOM]; /* our random number of this connection */
    unsigned char      id[PWIRE_ID];         /* the other engine's, as its greeting says */
    uint64_t           epoch, begin_us, heard_us, pinged_us;
    struct names_found at;
    /* only of a peer */
    bool              known;  /* some name resolves to this address */
    bool              myself; /* the address is this server's own */
    bool              said;   /* its failure was logged already */
    uint64_t          retry_us;
    uint32_t          wait_ms;
    struct ucx_reach *reach;
    uint64_t          bytes, moved_us; /* bytes of its slab; end of its last GET, or begin of the first in flight */
    uint32_t          n_flight;
};

struct room;
struct flight { /* a GET in progress */
    struct ucx_job  job;
    struct room    *room;
    struct speaker *from;
    uint64_t        epoch; /* of the connection that the GET belongs to */
    bool            used;  /* until the lane has been told of its end */
};

struct room {
    int                fd; /* to the lane */
    struct room_setup  setup;
    struct ucx        *u;
    struct names      *names;
    uint64_t           names_round;
    int                listener, wake[2]; /* wake: a pipe into which the thread of names writes */
    uint64_t           epoch;             /* of the newest connection */
    bool               identified, lent;
    struct peer_note   ident;
    unsigned char     *slab;
    uint64_t           slab_bytes;
    struct speaker     peer[PEERS_MAX], guest[PEER_GUESTS_MAX];
    struct flight      flight[ROOM_FLIGHTS];
    struct room_dones  over; /* ended GETs of which the lane was not told yet */
    struct pwire_msg   msg, reply;
    struct room_packet in, out;
    bool               talk_due; /* a control connection has an event, or it is time to look at their clocks */
    uint64_t           talked_us;
    struct peer_note   note[NOTES_MAX]; /* ring of the notes that the lane has not taken yet */
    uint32_t           note_first, n_note;
};

/* room_note.c */
/* Queues a note to the lane with its type, peer, epoch, name and n = 0; the caller fills in the rest at once. urgent:
 * the note must not be lost, so it may use the last NOTES_SPARE places. NULL: too many notes wait. */
struct peer_note  *note_new(struct room *l, bool urgent, enum peer_note_type type, const struct speaker *s);
static inline bool notes_wait(const struct room *l) { return l->n_note > NOTES_MAX - NOTES_SPARE; }

/* talk.c */
void talk_connect_due(struct room *l, uint64_t now); /* starts connecting to each peer whose pause is over */
void talk_accept(struct room *l, uint64_t now);      /* accepts all guests that wait at the listener */
/* Reads and writes one connection as far as its socket allows, and checks its time limits. */
void talk_turn(struct room *l, struct speaker *s, uint64_t now);
/* Sends a message; if that fails, ends the connection. */
void talk_say(struct room *l, struct speaker *s, const struct pwire_msg *m);
/* Ends the connection. A peer is connected to again after wait_ms, or after its own pause if wait_ms is 0. why: for
 * the log. */
void talk_end(struct room *l, struct speaker *s, const char *why, uint32_t wait_ms);
