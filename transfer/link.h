/* link: framed messages over one TCP connection between two nodes.   Thread: one sender and one receiver at a time.
 * link_listen, then link_accept; or link_connect -> link_send, link_recv -> close(fd).
 * A frame is a head of LINK_HEAD bytes (magic, version, type, length, checksum of the body), then the body. The peer is
 * trusted not to lie on purpose, yet nothing that it sends is believed: a frame is taken whole and sound, or the link is lost. */
#pragma once
#include "base/status.h"
#include <stddef.h>
#include <stdint.h>

enum { LINK_HEAD = 24, LINK_VERSION = 1 };

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
/* The whole frame within timeout_ms, or ST_PEER_LOST. */
enum status link_send(int fd, uint32_t type, const void *body, uint32_t bytes, uint32_t timeout_ms);
/* ST_AGAIN: nothing has come within timeout_ms. ST_PEER_LOST: closed, or stuck inside of a frame. Else as link_head_get, and
 * ST_INVALID for a wrong checksum. */
enum status link_recv(int fd, void *body, uint32_t bytes_max, struct link_head *head_out, uint32_t timeout_ms);
