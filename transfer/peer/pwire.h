/* pwire: the control messages between two servers that share blocks, as bytes. Pure functions.   Thread: any.
 * A frame is a head (magic, version, type, length of the body), the body, and a MAC of PWIRE_FRAME_MAC bytes. Numbers are
 * little-endian. The connecting side (client) asks and pulls, the listening side (server) answers:
 *
 *   client  HELLO      a random number, and which process it is
 *   server  CHALLENGE  the same of the server
 *   client  PROOF      sealed: identity of the blocks it wants
 *   server  WELCOME    sealed: whether it may, where the slab lies, and how UCX reaches it
 *   client  LOOKUP     keys;  server  FOUND  which of them it has, where, with which digests; they are lent as one lease
 *   client  RELEASE    a lease is given back, and how many of its blocks were taken
 *   both    PING, PONG
 *
 * A sealed frame bears HMAC-SHA-256, cut to PWIRE_FRAME_MAC bytes, over the direction, the frame's number in it, head and body.
 * Its key is derived from the pre-shared key and both random numbers, so that a sealed frame proves knowledge of the key
 * in this connection. HELLO and CHALLENGE bear zeros. */
#pragma once
#include "base/status.h"
#include "transfer/digest.h"
#include <stdint.h>

enum {
    PWIRE_FRAME_HEAD = 12,
    PWIRE_FRAME_MAC = 16,
    PWIRE_VERSION = 1,
    PWIRE_RANDOM = 32,
    PWIRE_ID = 16,
    PWIRE_SECRET = 32,
    PWIRE_KEYS_MAX = 512,    /* of a LOOKUP */
    PWIRE_ADDRESS_MAX = 2048 /* of a worker of UCX, and of a packed rkey */
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
    PWIRE_PONG
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
/* A message of any type; the fields of the others are not read. */
struct pwire_msg {
    enum pwire_type      type;
    unsigned char        random[PWIRE_RANDOM], id[PWIRE_ID]; /* HELLO, CHALLENGE */
    struct pwire_bytes32 fingerprint;                        /* PROOF */
    uint64_t             record_bytes;                       /* PROOF */
    uint32_t             transport;                          /* PROOF: enum peer_transport */
    enum pwire_verdict   verdict;                            /* WELCOME, and the next seven */
    uint64_t             epoch, slab_base, slab_bytes;
    uint32_t             n_address, n_rkey;
    unsigned char        address[PWIRE_ADDRESS_MAX], rkey[PWIRE_ADDRESS_MAX];
    uint64_t             lease;                 /* LOOKUP, FOUND, RELEASE: the client's number; PING, PONG: any */
    uint32_t             n;                     /* LOOKUP, FOUND: keys; RELEASE: blocks that were taken */
    struct pwire_bytes32 key[PWIRE_KEYS_MAX];   /* LOOKUP */
    uint32_t             lease_ms;              /* FOUND: how long the blocks stay where they are */
    struct pwire_where   where[PWIRE_KEYS_MAX]; /* FOUND */
};

/* The longest body that a message of the type has; 0: no such type. */
uint32_t pwire_body_max(uint32_t type);
enum { PWIRE_FRAME_MAX = PWIRE_FRAME_HEAD + 12 + 32 * PWIRE_KEYS_MAX + PWIRE_FRAME_MAC };

/* Which key seals the frames of one connection. */
void pwire_session_key(unsigned char out[PWIRE_SECRET], const unsigned char secret[PWIRE_SECRET],
                       const unsigned char client[PWIRE_RANDOM], const unsigned char server[PWIRE_RANDOM]);

/* One direction of a connection. */
struct pwire_seal {
    bool          on; /* false: HELLO and CHALLENGE alone */
    bool          from_server;
    unsigned char key[PWIRE_SECRET];
    uint64_t      n; /* sealed frames so far */
};

/* Writes the frame of a message; out has PWIRE_FRAME_MAX bytes. Returns its length. */
uint32_t pwire_put(unsigned char *out, const struct pwire_msg *m, struct pwire_seal *seal);
/* Reads the first frame of n bytes. ST_AGAIN: more bytes are needed. ST_INVALID: not a frame that may stand here: wrong
 * magic, type, length, count or MAC. ST_CONFIG: another version of the protocol. *used_out: its length. */
enum status pwire_get(const unsigned char *p, uint32_t n, struct pwire_seal *seal, struct pwire_msg *out,
                      uint32_t *used_out);
/* The body alone of a frame without its seal: p[0] is the type, the body follows. For tests of bodies. false: not a
 * body of this type. */
bool pwire_get_body(const unsigned char *p, uint32_t n, struct pwire_msg *out);
