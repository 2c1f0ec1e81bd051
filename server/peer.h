/* peer: the address of the client at the other end of a connection.   Thread: any. */
#pragma once
#include <stdint.h>

/* An IPv6 address; IPv4 is mapped (::ffff:a.b.c.d). All zero: unknown, or a unix socket. */
struct peer {
    unsigned char address[16];
};
enum { PEER_TEXT = 48 };

/* The address of fd's other end, IPv4 as ::ffff:a.b.c.d; all zero if the socket has none. */
struct peer peer_of(int fd);
/* The network that one customer usually has: the IPv4 address itself, or the first 64 bits of an IPv6 address. */
struct peer peer_net(struct peer p);
uint64_t    peer_hash(struct peer p, uint64_t seed);
/* Writes "192.0.2.1", "2001:db8::1" or "unknown" into out[PEER_TEXT], and returns out. */
const char *peer_text(struct peer p, char *out);
