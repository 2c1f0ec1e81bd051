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
    unsigned char      random[PWIRE_RANDOM]; /* ours */
    uint64_t           epoch, begin_us, heard_us, pinged_us;
    struct names_found at;
    /* of a peer */
    bool              known;  /* its name gives this address */
    bool              myself; /* the address is our own */
    bool              said;   /* that it cannot be connected to */
    uint64_t          retry_us;
    uint32_t          wait_ms;
    struct ucx_reach *reach;
    uint64_t          bytes, moved_us; /* when a GET of it was done last */
    uint32_t          n_flight;
};

struct room;
struct flight { /* a GET that is out */
    struct ucx_job  job;
    struct room    *room;
    struct speaker *from;
    uint64_t        epoch; /* of it */
    bool            used;
};

struct room {
    int                fd; /* to the lane */
    struct room_setup  setup;
    struct ucx        *u;
    struct names      *names;
    uint64_t           names_round;
    int                listener, wake[2]; /* wake: a pipe, for the thread of names */
    uint64_t           epoch;             /* of the connection before */
    unsigned char      id[PWIRE_ID];      /* of this process */
    bool               identified, lent;
    struct peer_note   ident;
    unsigned char     *slab;
    uint64_t           slab_bytes;
    struct speaker     peer[PEERS_MAX], guest[PEER_GUESTS_MAX];
    struct flight      flight[ROOM_FLIGHTS];
    struct pwire_msg   msg, reply;
    struct room_packet in, out;
    struct peer_note   note[NOTES_MAX]; /* that the lane has not taken yet: a circle */
    uint32_t           note_first, n_note;
};

/* room_note.c */
/* A note to the lane, filled in by the caller, which may not fail after it; NULL: too many wait. urgent: of those that
 * must not be lost, for which room is kept. */
struct peer_note  *note_new(struct room *l, bool urgent, enum peer_note_type type, const struct speaker *s);
static inline bool notes_wait(const struct room *l) { return l->n_note > NOTES_MAX - NOTES_SPARE; }

/* talk.c */
void talk_connect_due(struct room *l, uint64_t now); /* begins connections whose time has come */
void talk_accept(struct room *l, uint64_t now);
/* The socket can be read or written, or neither: then only clocks are looked at. */
void talk_turn(struct room *l, struct speaker *s, uint64_t now);
void talk_say(struct room *l, struct speaker *s, const struct pwire_msg *m);
/* Ends the connection; a peer is connected to again after wait_ms or its own back-off. why: for the log. */
void talk_end(struct room *l, struct speaker *s, const char *why, uint32_t wait_ms);
