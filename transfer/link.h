/* link: framed messages over one TCP connection between two nodes.   Thread: one sender and one receiver at a time.
 * link_listen, then link_accept; or link_connect -> link_send, link_recv -> close(fd).
 * A frame is a head of LINK_HEAD bytes (magic, version, type, length, checksum of the body), then the body. Every frame
 * is checked: it is complete and sound, or the link is lost. Under a seal LINK_MAC bytes follow the body: HMAC-SHA-256,
 * cut to LINK_MAC bytes, over the frame's number in its direction, its head and its body. So a frame that is forged,
 * changed, repeated, left out or moved is detected. Bodies are not encrypted. */
#pragma once
#include "base/status.h"
#include <stddef.h>
#include <stdint.h>

enum { LINK_HEAD = 24, LINK_VERSION = 1, LINK_MAC = 16, LINK_KEY = 32 };

/* One direction of one connection. link_seal_open once both sides have the key, link_seal_close. All zero: no seal. */
struct link_seal {
    void         *mac; /* NULL: none */
    unsigned char key[LINK_KEY];
    uint64_t      n; /* frames so far */
};
enum status link_seal_open(struct link_seal *s, const unsigned char key[LINK_KEY]); /* ST_NOMEM */
void        link_seal_close(struct link_seal *s);

struct link_head {
    uint32_t type, bytes; /* of the body */
    uint64_t sum;
};

/* Writes the head of a message of this type with its length and the sum of its body. */
void link_head_put(unsigned char out[LINK_HEAD], uint32_t type, const void *body, uint32_t bytes);
/* ST_INVALID: wrong magic; ST_CONFIG: another version of the protocol; ST_TOO_LARGE: a body of more than bytes_max. */
enum status link_head_get(const unsigned char in[LINK_HEAD], uint32_t bytes_max, struct link_head *head_out);
uint64_t    link_sum(const void *body, uint32_t bytes);

/* Listens on `host` (a name or an address) and on no other interface. port 0: any free port; *port_out is the port.
 * ST_CONFIG with one line in err. */
enum status link_listen(const char *host, uint16_t port, int *fd_out, uint16_t *port_out, char *err, size_t err_bytes);
/* ST_AGAIN: nobody came within timeout_ms. from: the peer's address as text. */
enum status link_accept(int listener, uint32_t timeout_ms, int *fd_out, char *from, size_t from_bytes);
/* One attempt at every address of the name. ST_AGAIN: not resolved or refused, a later attempt may succeed; err has the
 * reason. */
enum status link_connect(const char *host, uint16_t port, uint32_t timeout_ms, int *fd_out, char *err,
                         size_t err_bytes);
/* The whole frame within timeout_ms, or ST_PEER_LOST. seal: NULL or all zero: none. Nothing is allocated. */
enum status link_send(int fd, struct link_seal *seal, uint32_t type, const void *body, uint32_t bytes,
                      uint32_t timeout_ms);
/* ST_AGAIN: no byte arrived within timeout_ms. ST_PEER_LOST: the connection is closed, or stuck inside a frame. Other
 * errors: as link_head_get; ST_INVALID for a wrong checksum, ST_CANCELED for a wrong seal. */
enum status link_recv(int fd, struct link_seal *seal, void *body, uint32_t bytes_max, struct link_head *head_out,
                      uint32_t timeout_ms);
