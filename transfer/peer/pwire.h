/* pwire: the control messages between two servers that share blocks, as bytes. Pure functions.   Thread: any.
 * A frame is a head (magic, version, type, length of the body), the body, and a MAC of PWIRE_FRAME_MAC bytes. Numbers
 * are little-endian. The connecting side (client) asks and pulls, the listening side (server) answers:
 *
 *   client  HELLO      a random number, and the id of the client's process
 *   server  CHALLENGE  a random number, and the id of the server's process
 *   client  PROOF      identity of the blocks that the client wants
 *   server  WELCOME    the verdict, the address of the slab, and the UCX data with which the client reads it
 *   client  LOOKUP     keys
 *   server  FOUND      which of the keys it has, in which slots, with which digests; all of them are lent as one lease
 *   client  RELEASE    returns a lease, and says how many of its blocks were taken
 *   client  CLAIM      a parcel (kvcache/parcel.h) is still wanted, or it is done with
 *   both    PING, PONG
 *
 * All frames from PROOF on are sealed. The MAC of a sealed frame is HMAC-SHA-256, cut to PWIRE_FRAME_MAC bytes, over
 * the direction, the frame's number in that direction, head and body. Its key is derived from the pre-shared key and
 * both random numbers, so a sealed frame proves knowledge of the pre-shared key in this connection. The MAC of HELLO
 * and CHALLENGE is zeros. */
#pragma once
#include "base/status.h"
#include "transfer/digest.h"
#include <stdint.h>

enum {
    PWIRE_FRAME_HEAD = 12,
    PWIRE_FRAME_MAC = 16,
    PWIRE_VERSION = 2,
    PWIRE_RANDOM = 32,
    PWIRE_ID = 16,
    PWIRE_SECRET = 32,
    PWIRE_KEYS_MAX = 512,    /* of a LOOKUP */
    PWIRE_ADDRESS_MAX = 2048 /* bytes of a UCX worker's address, and of a packed rkey */
};
enum pwire_type {
    PWIRE_HELLO = 1,
    PWIRE_CHALLENGE,
    PWIRE_PROOF,
    PWIRE_WELCOME,
    PWIRE_LOOKUP,
    PWIRE_FOUND,
    PWIRE_RELEASE,
    PWIRE_PING,
    PWIRE_PONG,
    PWIRE_CLAIM
};
enum pwire_verdict { PWIRE_MAY, PWIRE_OTHER_BLOCKS, PWIRE_NOT_NOW, PWIRE_OTHER_TRANSPORT, PWIRE_VERDICTS };

struct pwire_bytes32 {
    unsigned char b[32];
};
struct pwire_where { /* of one key */
    bool          found;
    uint32_t      slot;
    struct digest payload;
};
/* A message of any type. Each field names the types that use it; the others neither write nor read it. */
struct pwire_msg {
    enum pwire_type      type;
    unsigned char        random[PWIRE_RANDOM], id[PWIRE_ID]; /* HELLO, CHALLENGE; CLAIM: id of the parcel */
    struct pwire_bytes32 fingerprint;                        /* PROOF */
    uint64_t             record_bytes;                       /* PROOF */
    uint32_t             transport;                          /* PROOF: enum peer_transport */
    enum pwire_verdict   verdict;                            /* WELCOME, and the next seven fields too */
    uint64_t             epoch, slab_base, slab_bytes;
    uint32_t             n_address, n_rkey;
    unsigned char        address[PWIRE_ADDRESS_MAX], rkey[PWIRE_ADDRESS_MAX];
    uint64_t             lease;               /* LOOKUP, FOUND, RELEASE: number chosen by the client; PING, PONG: any */
    uint32_t             n;                   /* LOOKUP, FOUND: number of keys; RELEASE, CLAIM: of blocks taken */
    bool                 done;                /* CLAIM: the client needs the parcel no more */
    struct pwire_bytes32 key[PWIRE_KEYS_MAX]; /* LOOKUP; CLAIM: key[0] is that of the parcel's first block */
    uint32_t             lease_ms;            /* FOUND: how long the blocks stay in their slots */
    struct pwire_where   where[PWIRE_KEYS_MAX]; /* FOUND */
};

/* The longest body that a message of the type has; 0: no such type. */
uint32_t pwire_body_max(uint32_t type);
enum { PWIRE_FRAME_MAX = PWIRE_FRAME_HEAD + 12 + 32 * PWIRE_KEYS_MAX + PWIRE_FRAME_MAC };

/* Derives the key that seals the frames of one connection. */
void pwire_session_key(unsigned char out[PWIRE_SECRET], const unsigned char secret[PWIRE_SECRET],
                       const unsigned char client[PWIRE_RANDOM], const unsigned char server[PWIRE_RANDOM]);

/* One direction of a connection. */
struct pwire_seal {
    bool          on; /* false: only HELLO and CHALLENGE may pass; true: only the sealed types may */
    bool          from_server;
    unsigned char key[PWIRE_SECRET];
    uint64_t      n; /* sealed frames so far */
};

/* Writes the frame of a message; out has PWIRE_FRAME_MAX bytes. Returns its length. */
uint32_t pwire_put(unsigned char *out, const struct pwire_msg *m, struct pwire_seal *seal);
/* Reads the first frame of n bytes; *used_out: its length. ST_AGAIN: more bytes are needed. ST_INVALID: the frame is
 * malformed or not allowed now: wrong magic, type, length, count or MAC. ST_CONFIG: another version of the protocol.
 * */
enum status pwire_get(const unsigned char *p, uint32_t n, struct pwire_seal *seal, struct pwire_msg *out,
                      uint32_t *used_out);
/* Reads a body without head and seal, for tests: p[0] is the type, the body follows. false: the bytes are no body of
 * this type. */
bool pwire_get_body(const unsigned char *p, uint32_t n, struct pwire_msg *out);
