#include "server/cmd/healthcheck.h"
#include <errno.h>
#include <netdb.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

/* The answer to `ask` over an open socket, plain or over TLS, with a NUL behind it. The certificate is not looked at:
 * the question is whether this machine's server lives. Returns what the last read returned, and errno of it. */
static ssize_t ask_socket(int fd, bool tls, const char *ask, char *reply, size_t bytes)
{
    SSL_CTX *ctx = tls ? SSL_CTX_new(TLS_client_method()) : NULL;
    SSL     *ssl = ctx ? SSL_new(ctx) : NULL;
    size_t   n = 0;
    ssize_t  k = -1;
    errno = 0;
    if (!tls)
        k = send(fd, ask, strlen(ask), MSG_NOSIGNAL);
    else if (ssl && SSL_set_fd(ssl, fd) && SSL_connect(ssl) == 1)
        k = SSL_write(ssl, ask, (int)strlen(ask));
    while (k > 0 && n + 1 < bytes) {
        k = tls ? SSL_read(ssl, reply + n, (int)(bytes - 1 - n)) : recv(fd, reply + n, bytes - 1 - n, 0);
        if (k > 0) n += (size_t)k;
    }
    reply[n] = 0;
    int error = errno;
    SSL_free(ssl);
    SSL_CTX_free(ctx);
    errno = error;
    return k;
}

/* One question to one address. 0: the server is well; else why not is in why. */
static int ask_health(const struct addrinfo *a, bool tls, char *why, size_t bytes)
{
    static const char ask[] = "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    struct timeval    t = { .tv_sec = 2 };
    char              reply[2048] = "";
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
    ssize_t k = ask_socket(fd, tls, ask, reply, sizeof reply);
    bool    late = k < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
    close(fd);
    if (!strncmp(reply, "HTTP/1.1 200", 12)) return 0;
    if (strlen(reply) < 12) {
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
    int  ok = 1;
    bool tls = *c->tls_cert;
    for (struct addrinfo *a = list; a && ok; a = a->ai_next) ok = ask_health(a, tls, why, sizeof why);
    if (list) freeaddrinfo(list);
    if (!ok) return 0;
    for (char *p = why; *p; p++)
        if ((unsigned char)*p < 0x20) *p = ' ';
    snprintf(err, err_bytes, "not healthy: %s://%.60s:%s/health: %s", tls ? "https" : "http", host, port, why);
    return 1;
}
