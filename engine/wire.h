/* wire: the messages between the nodes of one server, as bytes.   Thread: any (no state but struct wire_steps).
 * Node 0 plans every step, and the others run it. First they must agree that they belong to the same server:
 *   0 -> n  CHALLENGE   a random number for this connection
 *   n -> 0  HELLO       rank, options, build, and the number of KV blocks that fit; signed
 *   0 -> n  WELCOME     the number of blocks for all, the name of the communicator; signed    or REFUSE: one line; signed
 *   n -> 0  VOTE        the result of its ranks about windows (enum dev_ballot)             0 -> n: VERDICT, and a new name of the communicator
 *   n -> 0  READY       loaded                                                               or FAIL: one line
 *   0 -> n  STEP*       one batch each, numbered                          both: BEAT, FAIL; 0 -> n: BYE
 * With a key, every frame after WELCOME is authenticated with a key made for this connection (transfer/link.h). Every
 * length, id and row from outside is checked against wire_limits before use: a step that wire_step_get accepts fits
 * into the batch and is safe to run. */
#pragma once
#include "engine/batch.h"

enum wire_type {
    WIRE_CHALLENGE = 1,
    WIRE_HELLO,
    WIRE_WELCOME,
    WIRE_REFUSE,
    WIRE_READY,
    WIRE_STEP,
    WIRE_BEAT,
    WIRE_FAIL,
    WIRE_BYE,
    WIRE_VOTE,
    WIRE_VERDICT
};
enum {
    WIRE_NONCE = 16,
    WIRE_MAC = 32,
    WIRE_COMM = 128, /* ncclUniqueId */
    WIRE_VERSION_TEXT = 32,
    WIRE_TEXT_MAX = 400,
    WIRE_NODES_MAX = 256,
    WIRE_VOTE_BYTES = 1,
    WIRE_VERDICT_BYTES = 1 + WIRE_COMM,
};

/* Settings that must be equal on all nodes. wire_field_name returns the option's name. */
enum wire_field {
    WIRE_F_MODEL, /* first bytes of ident_quick: config.json, and the name, type, shape and a sample of every tensor */
    WIRE_F_NNODES,
    WIRE_F_TP,
    WIRE_F_DEVICE,
    WIRE_F_DTYPE,
    WIRE_F_KV_DTYPE,
    WIRE_F_BLOCK,
    WIRE_F_SEQS,
    WIRE_F_ROWS,
    WIRE_F_CONTEXT,
    WIRE_F_CHUNK,
    WIRE_F_DETERMINISTIC,
    WIRE_F_PREFIX,
    WIRE_F_SYMMETRIC,
    WIRE_F_EXPERTS,
    WIRE_FIELDS
};
const char *wire_field_name(uint32_t field);

struct wire_hello {
    char          version[WIRE_VERSION_TEXT]; /* version of the program, NUL-terminated */
    uint32_t      node;
    uint32_t      n_block; /* KV blocks that fit on this node */
    uint32_t      arrays;  /* wire_arrays() of this program: two builds of one version can differ in it */
    uint64_t      field[WIRE_FIELDS];
    unsigned char nonce[WIRE_NONCE]; /* random, part of the answer's signature */
};
struct wire_welcome {
    uint32_t      n_block;
    unsigned char comm[WIRE_COMM];
};
enum {
    WIRE_HELLO_BYTES = 4 + WIRE_VERSION_TEXT + 8 + 4 + 8 * WIRE_FIELDS + WIRE_NONCE + WIRE_MAC,
    WIRE_WELCOME_BYTES = 4 + WIRE_COMM + WIRE_MAC,
    WIRE_REFUSE_BYTES = WIRE_TEXT_MAX + WIRE_MAC,
};

/* A digest of all that kernels/arrays.h says of a step's bytes: names, types, order, sizes. Constant in a program. */
uint32_t wire_arrays(void);

/* key: the shared secret, or "". peer_nonce: the nonce of the challenge, or of the hello. All of out is written. */
void wire_hello_put(unsigned char out[WIRE_HELLO_BYTES], const struct wire_hello *h,
                    const unsigned char peer_nonce[WIRE_NONCE], const char *key);
void wire_welcome_put(unsigned char out[WIRE_WELCOME_BYTES], const struct wire_welcome *w,
                      const unsigned char peer_nonce[WIRE_NONCE], const char *key);
/* ST_INVALID: malformed; ST_CANCELED: signed with another key. */
enum status wire_hello_get(const void *p, size_t n, const unsigned char own_nonce[WIRE_NONCE], const char *key,
                           struct wire_hello *h_out);
enum status wire_welcome_get(const void *p, size_t n, const unsigned char own_nonce[WIRE_NONCE], const char *key,
                             struct wire_welcome *w_out);
/* A refusal: one line of text, and with a key its signature, which covers the nonce of the refused hello. hello: the
 * bytes as received, well-formed or not. Returns the length. */
uint32_t wire_refuse_put(unsigned char out[WIRE_REFUSE_BYTES], const char *text, const void *hello, size_t hello_bytes,
                         const char *key);
/* text_out is NUL-terminated in every case, and printable. ST_CANCELED: not signed with the key; ST_INVALID:
 * malformed. */
enum status wire_refuse_get(const void *p, size_t n, const unsigned char own_nonce[WIRE_NONCE], const char *key,
                            char text_out[WIRE_TEXT_MAX + 1]);
/* The key of the frames in one direction of one connection (transfer/link.h), made of the shared secret and both
 * nonces. */
void wire_frame_key(unsigned char out[WIRE_MAC], const char *key, bool to_first,
                    const unsigned char challenge[WIRE_NONCE], const unsigned char hello[WIRE_NONCE]);
/* True if a node with hello h may join; false with one line in why. */
bool wire_hello_fits(const struct wire_hello *own, const struct wire_hello *h, char *why, size_t why_bytes);

struct wire_limits {
    struct batch_cfg b;
    uint32_t         n_block, block_tokens, vocab, context;
};
/* One end of a connection's sequence of steps: the number of the next one, and how many ids the previous one drew,
 * which patches refer to. */
struct wire_steps {
    uint64_t n;
    uint32_t n_drawn;
};
uint32_t wire_step_bytes_max(const struct batch_cfg *b);
/* out [wire_step_bytes_max]. Returns the length. */
uint32_t wire_step_put(unsigned char *out, const struct batch *b, struct wire_steps *s);
/* b: from batch_init with lim->b; all but its bounds is overwritten. ST_INVALID: one line in why, and b is
 * undefined. */
enum status wire_step_get(const void *p, size_t n, const struct wire_limits *lim, struct wire_steps *s, struct batch *b,
                          char *why, size_t why_bytes);
