#include "transfer/link.h"
#include "base/clock.h"
#include "base/hash.h"
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MAGIC = 0x4c575053, STALL_MS = 4000 }; /* "SPWL"; a frame that has begun arrives within this */

/* ---- heads: little-endian, byte by byte */

static void put(unsigned char *p, uint64_t v, int n)
{
    for (int i = 0; i < n; i++) p[i] = (unsigned char)(v >> 8 * i);
}

static uint64_t get(const unsigned char *p, int n)
{
    uint64_t v = 0;
    for (int i = n; i-- > 0;) v = v << 8 | p[i];
    return v;
}

uint64_t link_sum(const void *body, uint32_t bytes) { return hash_bytes(body, bytes, bytes); }

void link_head_put(unsigned char out[LINK_HEAD], uint32_t type, const void *body, uint32_t bytes)
{
    put(out, MAGIC, 4);
    put(out + 4, LINK_VERSION, 4);
    put(out + 8, type, 4);
    put(out + 12, bytes, 4);
    put(out + 16, link_sum(body, bytes), 8);
}

enum status link_head_get(const unsigned char in[LINK_HEAD], uint32_t bytes_max, struct link_head *head_out)
{
    if (get(in, 4) != MAGIC) return ST_INVALID;
    if (get(in + 4, 4) != LINK_VERSION) return ST_CONFIG;
    struct link_head h = { .type = (uint32_t)get(in + 8, 4),
                           .bytes = (uint32_t)get(in + 12, 4),
                           .sum = get(in + 16, 8) };
    if (h.bytes > bytes_max) return ST_TOO_LARGE;
    *head_out = h;
    return ST_OK;
}

/* ---- seals */

enum status link_seal_open(struct link_seal *s, const unsigned char key[LINK_KEY])
{
    EVP_MAC   *hmac = EVP_MAC_fetch(NULL, "HMAC", NULL);
    char       sha[] = "SHA256";
    OSSL_PARAM with[] = { OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, sha, 0), OSSL_PARAM_construct_end() };
    EVP_MAC_CTX *mac = hmac ? EVP_MAC_CTX_new(hmac) : NULL;
    EVP_MAC_free(hmac);
    if (!mac || !EVP_MAC_init(mac, key, LINK_KEY, with)) {
        EVP_MAC_CTX_free(mac);
        return ST_NOMEM;
    }
    *s = (struct link_seal){ .mac = mac };
    memcpy(s->key, key, LINK_KEY);
    return ST_OK;
}

void link_seal_close(struct link_seal *s)
{
    EVP_MAC_CTX_free(s->mac);
    OPENSSL_cleanse(s, sizeof *s);
    s->mac = NULL;
    s->n = 0;
}

/* Of the next frame in this direction. */
static bool seal_of(struct link_seal *s, const unsigned char head[LINK_HEAD], const void *body, uint32_t bytes,
                    unsigned char out[LINK_MAC])
{
    unsigned char number[8], whole[EVP_MAX_MD_SIZE];
    size_t        n = 0;
    put(number, s->n++, 8);
    if (!EVP_MAC_init(s->mac, s->key, LINK_KEY, NULL) || !EVP_MAC_update(s->mac, number, sizeof number) ||
        !EVP_MAC_update(s->mac, head, LINK_HEAD) || (bytes && !EVP_MAC_update(s->mac, body, bytes)) ||
        !EVP_MAC_final(s->mac, whole, &n, sizeof whole) || n < LINK_MAC)
        return false;
    memcpy(out, whole, LINK_MAC);
    return true;
}

/* ---- connections: never blocking, every wait has an end */

static void own_socket(int fd)
{
    int on = 1;
    (void)fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); /* a step must not wait for more bytes */
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
}

static struct addrinfo *resolve(const char *host, uint16_t port, int flags, const char **why)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV | flags }, *list = NULL;
    char            service[8];
    snprintf(service, sizeof service, "%u", port);
    int e = getaddrinfo(host, service, &hints, &list);
    *why = e ? gai_strerror(e) : "";
    return e ? NULL : list;
}

enum status link_listen(const char *host, uint16_t port, int *fd_out, uint16_t *port_out, char *err, size_t err_bytes)
{
    const char      *why;
    struct addrinfo *list = resolve(host, port, 0, &why);
    if (!list) {
        snprintf(err, err_bytes, "--master-addr: %.200s cannot be resolved: %s", host, why);
        return ST_CONFIG;
    }
    int on = 1, fd = -1;
    for (struct addrinfo *a = list; a && fd < 0; a = a->ai_next) {
        fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0) continue;
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        if (!bind(fd, a->ai_addr, a->ai_addrlen) && !listen(fd, SOMAXCONN)) break;
        int e = errno;
        close(fd);
        fd = -1;
        errno = e;
    }
    freeaddrinfo(list);
    if (fd < 0) {
        snprintf(err, err_bytes, "--master-addr: node 0 cannot listen on %.200s port %u: %s%s", host, port,
                 strerror(errno), errno == EADDRNOTAVAIL ? ", it must be an address of this machine" : "");
        return ST_CONFIG;
    }
    struct sockaddr_storage at;
    socklen_t               n = sizeof at;
    own_socket(fd);
    *port_out = port;
    if (!getsockname(fd, (struct sockaddr *)&at, &n))
        *port_out = ntohs(at.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&at)->sin6_port
                                                   : ((struct sockaddr_in *)&at)->sin_port);
    *fd_out = fd;
    return ST_OK;
}

/* False: not within the time (errno ETIMEDOUT), or the system refuses. */
static bool wait_for(int fd, short what, uint64_t deadline_us)
{
    for (;;) {
        uint64_t      now = clock_us();
        struct pollfd p = { .fd = fd, .events = what };
        int           n = poll(&p, 1, now >= deadline_us ? 0 : (int)((deadline_us - now + 999) / 1000));
        if (n > 0) return true;
        if (n < 0 && errno != EINTR) return false;
        if (n == 0 && clock_us() >= deadline_us) {
            errno = ETIMEDOUT;
            return false;
        }
    }
}

enum status link_accept(int listener, uint32_t timeout_ms, int *fd_out, char *from, size_t from_bytes)
{
    struct sockaddr_storage at = { 0 };
    socklen_t               n = sizeof at;
    if (!wait_for(listener, POLLIN, clock_us() + timeout_ms * (uint64_t)1000)) return ST_AGAIN;
    int fd = accept4(listener, (struct sockaddr *)&at, &n, SOCK_CLOEXEC);
    if (fd < 0) return ST_AGAIN;
    own_socket(fd);
    if (getnameinfo((struct sockaddr *)&at, n, from, (socklen_t)from_bytes, NULL, 0, NI_NUMERICHOST))
        snprintf(from, from_bytes, "?");
    *fd_out = fd;
    return ST_OK;
}

enum status link_connect(const char *host, uint16_t port, uint32_t timeout_ms, int *fd_out, char *err, size_t err_bytes)
{
    const char      *why;
    uint64_t         deadline = clock_us() + timeout_ms * (uint64_t)1000;
    struct addrinfo *list = resolve(host, port, 0, &why);
    int              fd = -1, e = 0;
    for (struct addrinfo *a = list; a && fd < 0; a = a->ai_next) {
        socklen_t n = sizeof e;
        fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0) {
            e = errno;
            continue;
        }
        own_socket(fd);
        e = connect(fd, a->ai_addr, a->ai_addrlen) ? errno : 0;
        if (e == EINPROGRESS && (!wait_for(fd, POLLOUT, deadline) || getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &n)))
            e = errno;
        if (!e) break;
        close(fd);
        fd = -1;
    }
    if (list) freeaddrinfo(list);
    if (fd < 0) {
        snprintf(err, err_bytes, "%.200s port %u: %s", host, port, list ? strerror(e) : why);
        return ST_AGAIN;
    }
    *fd_out = fd;
    return ST_OK;
}

/* ---- frames */

static enum status send_all(int fd, const unsigned char *p, size_t n, uint64_t deadline_us, int more)
{
    while (n) {
        ssize_t k = send(fd, p, n, MSG_NOSIGNAL | more);
        if (k < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            if (!wait_for(fd, POLLOUT, deadline_us)) return ST_PEER_LOST;
            continue;
        }
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return ST_PEER_LOST;
        p += k;
        n -= (size_t)k;
    }
    return ST_OK;
}

enum status link_send(int fd, struct link_seal *seal, uint32_t type, const void *body, uint32_t bytes,
                      uint32_t timeout_ms)
{
    unsigned char head[LINK_HEAD], mac[LINK_MAC];
    bool          sealed = seal && seal->mac;
    uint64_t      deadline = clock_us() + timeout_ms * (uint64_t)1000;
    link_head_put(head, type, body, bytes);
    if (sealed && !seal_of(seal, head, body, bytes, mac)) return ST_PEER_LOST;
    enum status st = send_all(fd, head, sizeof head, deadline, bytes || sealed ? MSG_MORE : 0);
    if (!st && bytes) st = send_all(fd, body, bytes, deadline, sealed ? MSG_MORE : 0);
    return st || !sealed ? st : send_all(fd, mac, sizeof mac, deadline, 0);
}

static enum status recv_all(int fd, unsigned char *p, size_t n, uint64_t deadline_us)
{
    while (n) {
        ssize_t k = recv(fd, p, n, 0);
        if (k < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            if (!wait_for(fd, POLLIN, deadline_us)) return ST_PEER_LOST;
            continue;
        }
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return ST_PEER_LOST;
        p += k;
        n -= (size_t)k;
    }
    return ST_OK;
}

enum status link_recv(int fd, struct link_seal *seal, void *body, uint32_t bytes_max, struct link_head *head_out,
                      uint32_t timeout_ms)
{
    unsigned char    head[LINK_HEAD], mac[LINK_MAC], want[LINK_MAC];
    struct link_head h;
    if (!wait_for(fd, POLLIN, clock_us() + timeout_ms * (uint64_t)1000))
        return errno == ETIMEDOUT ? ST_AGAIN : ST_PEER_LOST;
    uint64_t    deadline = clock_us() + STALL_MS * (uint64_t)1000;
    enum status st = recv_all(fd, head, sizeof head, deadline);
    if (!st) st = link_head_get(head, bytes_max, &h);
    if (!st) st = recv_all(fd, body, h.bytes, deadline);
    if (!st && link_sum(body, h.bytes) != h.sum) st = ST_INVALID;
    if (!st && seal && seal->mac) {
        st = recv_all(fd, mac, sizeof mac, deadline);
        if (!st && (!seal_of(seal, head, body, h.bytes, want) || CRYPTO_memcmp(mac, want, sizeof mac) != 0))
            st = ST_CANCELED;
    }
    if (!st) *head_out = h;
    return st;
}
