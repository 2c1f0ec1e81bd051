#include "server/cmd/healthcheck.h"
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

/* One question to one address. 0: the server is well; else why not is in why. */
static int ask_health(const struct addrinfo *a, char *why, size_t bytes)
{
    static const char ask[] = "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    struct timeval    t = { .tv_sec = 2 };
    char              reply[2048] = "";
    size_t            n = 0;
    int               fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        snprintf(why, bytes, "no socket: %s", strerror(errno));
        return 1;
    }
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof t);
    if (connect(fd, a->ai_addr, a->ai_addrlen)) {
        snprintf(why, bytes, "cannot connect: %s", strerror(errno));
        close(fd);
        return 1;
    }
    ssize_t k = send(fd, ask, sizeof ask - 1, MSG_NOSIGNAL) == (ssize_t)sizeof ask - 1 ? 1 : -1;
    while (k > 0 && n + 1 < sizeof reply && (k = recv(fd, reply + n, sizeof reply - 1 - n, 0)) > 0) n += (size_t)k;
    bool late = k < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
    close(fd);
    reply[n] = 0;
    if (!strncmp(reply, "HTTP/1.1 200", 12)) return 0;
    if (n < 12) {
        snprintf(why, bytes, "%s", late ? "no answer within 2 s" : "the connection was closed without an answer");
        return 1;
    }
    const char *body = strstr(reply, "\r\n\r\n");
    snprintf(why, bytes, "%.*s%s%.200s", (int)strcspn(reply, "\r\n"), reply, body && body[4] ? ": " : "",
             body ? body + 4 : "");
    return 1;
}

/* For a container's health check: no curl is needed in the image. */
int healthcheck_main(const struct config *c, char *err, size_t err_bytes)
{
    bool            any = !strcmp(c->host, "0.0.0.0") || !strcmp(c->host, "::");
    const char     *host = any ? "localhost" : c->host;
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV }, *list = NULL;
    char            port[8], why[300] = "no address";
    snprintf(port, sizeof port, "%u", c->port);
    int bad = getaddrinfo(host, port, &hints, &list);
    if (bad) snprintf(why, sizeof why, "no such host: %s", gai_strerror(bad));
    int ok = 1;
    for (struct addrinfo *a = list; a && ok; a = a->ai_next) ok = ask_health(a, why, sizeof why);
    if (list) freeaddrinfo(list);
    if (!ok) return 0;
    for (char *p = why; *p; p++)
        if ((unsigned char)*p < 0x20) *p = ' ';
    snprintf(err, err_bytes, "not healthy: http://%.60s:%s/health: %s", host, port, why);
    return 1;
}
