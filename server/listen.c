#include "server/listen.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void note_address(struct server *s, const struct sockaddr_storage *a, socklen_t n)
{
    char host[64] = "?", name[8] = "0";
    getnameinfo((const struct sockaddr *)a, n, host, sizeof host, name, sizeof name, NI_NUMERICHOST | NI_NUMERICSERV);
    s->port = (uint16_t)strtoul(name, NULL, 10);
    snprintf(s->address, sizeof s->address, a->ss_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, name);
}

/* Of both families the address comes first and has its own size; port 0 asks for any. */
static bool is_at(const struct sockaddr_storage *a, const struct addrinfo *want, uint32_t port)
{
    if (a->ss_family != want->ai_family) return false;
    if (a->ss_family == AF_INET) {
        const struct sockaddr_in *x = (const void *)a, *y = (const void *)want->ai_addr;
        return x->sin_addr.s_addr == y->sin_addr.s_addr && (!port || x->sin_port == y->sin_port);
    }
    const struct sockaddr_in6 *x = (const void *)a, *y = (const void *)want->ai_addr;
    return !memcmp(&x->sin6_addr, &y->sin6_addr, sizeof x->sin6_addr) && (!port || x->sin6_port == y->sin6_port);
}

/* A socket of the process before: the one that would have been bound here? */
static enum status take_listener(struct server *s, int fd, char *err, size_t n_err)
{
    const struct config *cfg = s->cfg;
    struct addrinfo      hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV }, *list = NULL;
    struct sockaddr_storage a = { 0 };
    socklen_t               n = sizeof a;
    char                    port[8];
    bool                    same = false;
    snprintf(port, sizeof port, "%u", cfg->port);
    if (!getsockname(fd, (struct sockaddr *)&a, &n) && !getaddrinfo(cfg->host, port, &hints, &list))
        for (struct addrinfo *p = list; p; p = p->ai_next) same |= is_at(&a, p, cfg->port);
    if (list) freeaddrinfo(list);
    note_address(s, &a, n);
    s->listen_fd = fd;
    if (same) return ST_OK;
    snprintf(err, n_err, "--takeover: the running server listens on %s, asked for is %.60s port %u", s->address,
             cfg->host, cfg->port);
    return ST_CONFIG;
}

static int bind_to(const struct config *cfg, struct server *s, char *err, size_t n_err)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV }, *list = NULL;
    char            port[8];
    snprintf(port, sizeof port, "%u", cfg->port);
    int bad = getaddrinfo(cfg->host, port, &hints, &list);
    if (bad) {
        snprintf(err, n_err, "--host: cannot resolve %.60s: %s", cfg->host, gai_strerror(bad));
        return -1;
    }
    int fd = -1, saved = 0, one = 1;
    for (struct addrinfo *a = list; a && fd < 0; a = a->ai_next) {
        fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (fd < 0) continue;
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        if (bind(fd, a->ai_addr, a->ai_addrlen) || listen(fd, 4096)) {
            saved = errno;
            close(fd);
            fd = -1;
        }
    }
    freeaddrinfo(list);
    if (fd < 0) {
        const char *hint = "";
        if (saved == EACCES) hint = "; choose a --port above 1023";
        if (saved == EADDRINUSE) hint = "; is another server running? choose another --port";
        if (saved == EADDRINUSE && *cfg->takeover)
            hint = "; a server runs there without --takeover, or with another path";
        snprintf(err, n_err, "cannot listen on %.60s port %u: %s%s", cfg->host, cfg->port, strerror(saved), hint);
        errno = saved;
        return -1;
    }
    struct sockaddr_storage a = { 0 };
    socklen_t               n = sizeof a;
    if (!getsockname(fd, (struct sockaddr *)&a, &n)) note_address(s, &a, n);
    return fd;
}

enum status listen_open(struct server *s, int fd, char *err, size_t err_bytes)
{
    if (fd >= 0) return take_listener(s, fd, err, err_bytes);
    s->listen_fd = bind_to(s->cfg, s, err, err_bytes);
    return s->listen_fd < 0 ? ST_IO : ST_OK;
}
