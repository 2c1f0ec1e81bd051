#include "server/peer.h"
#include "base/hash.h"
#include <arpa/inet.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

static const unsigned char mapped[12] = { [10] = 0xff, [11] = 0xff };

static bool is_v4(const struct peer *p) { return !memcmp(p->address, mapped, sizeof mapped); }

struct peer peer_of(int fd)
{
    struct sockaddr_storage a = { 0 };
    socklen_t               n = sizeof a;
    struct peer             p = { { 0 } };
    if (getpeername(fd, (struct sockaddr *)&a, &n)) return p;
    if (a.ss_family == AF_INET) {
        const struct sockaddr_in *v4 = (const void *)&a;
        memcpy(p.address, mapped, sizeof mapped);
        memcpy(p.address + sizeof mapped, &v4->sin_addr, 4);
    } else if (a.ss_family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const void *)&a;
        memcpy(p.address, &v6->sin6_addr, sizeof p.address);
    }
    return p;
}

struct peer peer_net(struct peer p)
{
    if (!is_v4(&p)) memset(p.address + 8, 0, 8);
    return p;
}

uint64_t peer_hash(struct peer p, uint64_t seed) { return hash_bytes(p.address, sizeof p.address, seed); }

const char *peer_text(struct peer p, char *out)
{
    static const struct peer none;
    const char              *s = NULL;
    if (is_v4(&p))
        s = inet_ntop(AF_INET, p.address + sizeof mapped, out, PEER_TEXT);
    else if (memcmp(&p, &none, sizeof none) != 0)
        s = inet_ntop(AF_INET6, p.address, out, PEER_TEXT);
    if (!s) snprintf(out, PEER_TEXT, "unknown");
    return out;
}
