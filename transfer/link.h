/* link: framed messages over one TCP connection between two nodes.   Thread: one sender and one receiver at a time.
 * link_listen, then link_accept; or link_connect -> link_send, link_recv -> close(fd).
 * A frame is a head of LINK_HEAD bytes (magic, version, type, length, checksum of the body), then the body. Nothing that a peer
 * sends is believed: a frame is taken whole and sound, or the link is lost. Under a seal LINK_MAC bytes follow the body: HMAC-SHA-256,
 * cut, over the number of the frame in its direction, head and body; so a frame that is made up, changed, repeated, left out or moved
 * is none of ours. Nothing is hidden: bodies travel in the clear. */
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

void link_head_put(unsigned char out[LINK_HEAD], uint32_t type, const void *body, uint32_t bytes);
/* ST_INVALID: not our magic; ST_CONFIG: another version of it; ST_TOO_LARGE: more than bytes_max. */
enum status link_head_get(const unsigned char in[LINK_HEAD], uint32_t bytes_max, struct link_head *head_out);
uint64_t    link_sum(const void *body, uint32_t bytes);

/* host: a name or an address, and that alone is listened on. port 0: any; *port_out is the one taken. ST_CONFIG with one line in err. */
enum status link_listen(const char *host, uint16_t port, int *fd_out, uint16_t *port_out, char *err, size_t err_bytes);
/* ST_AGAIN: nobody came within timeout_ms. from: the peer's address as text. */
enum status link_accept(int listener, uint32_t timeout_ms, int *fd_out, char *from, size_t from_bytes);
/* One attempt, every address of the name. ST_AGAIN: not resolved or refused, it may come; err says what it was. */
enum status link_connect(const char *host, uint16_t port, uint32_t timeout_ms, int *fd_out, char *err, size_t err_bytes);
/* The whole frame within timeout_ms, or ST_PEER_LOST. seal: NULL or all zero: none. Nothing is allocated. */
enum status link_send(int fd, struct link_seal *seal, uint32_t type, const void *body, uint32_t bytes, uint32_t timeout_ms);
/* ST_AGAIN: nothing has come within timeout_ms. ST_PEER_LOST: closed, or stuck inside of a frame. Else as link_head_get,
 * ST_INVALID for a wrong checksum, and ST_CANCELED for a wrong seal. */
enum status link_recv(int fd, struct link_seal *seal, void *body, uint32_t bytes_max, struct link_head *head_out, uint32_t timeout_ms);
