/* peer: who is at the other end of a connection, as far as its address says.   Thread: any. */
#pragma once
#include <stdint.h>

/* IPv4 as IPv6 has it (::ffff:a.b.c.d). Zeros: not known. */
struct peer {
    unsigned char address[16];
};
enum { PEER_TEXT = 48 };

struct peer peer_of(int fd);
/* What one subscriber has to his own: an IPv4 address, or the first 64 bits of an IPv6 one. */
struct peer peer_net(struct peer p);
uint64_t    peer_hash(struct peer p, uint64_t seed);
/* "192.0.2.1", "2001:db8::1", "unknown"; returns out, of PEER_TEXT bytes. */
const char *peer_text(struct peer p, char *out);
