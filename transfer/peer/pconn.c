#include "transfer/peer/pconn.h"
#include "base/check.h"
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { OUT_BYTES = PCONN_OUT_FRAMES * PWIRE_FRAME_MAX };

enum status pconn_open(struct pconn *c, int fd, bool we_are_server)
{
    int on = 1;
    *c = (struct pconn){ .fd = fd, .in = malloc(PWIRE_FRAME_MAX), .out = malloc(OUT_BYTES) };
    c->seal_in.from_server = !we_are_server;
    c->seal_out.from_server = we_are_server;
    (void)fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (c->in && c->out) return ST_OK;
    pconn_close(c);
    return ST_NOMEM;
}

void pconn_close(struct pconn *c)
{
    if (c->fd >= 0) close(c->fd);
    free(c->in);
    free(c->out);
    OPENSSL_cleanse(c, sizeof *c);
    c->in = c->out = NULL;
    c->fd = -1;
}

void pconn_seal(struct pconn *c, const unsigned char key[PWIRE_SECRET])
{
    memcpy(c->seal_in.key, key, PWIRE_SECRET);
    memcpy(c->seal_out.key, key, PWIRE_SECRET);
    c->seal_in.on = c->seal_out.on = true;
}

enum status pconn_read(struct pconn *c)
{
    while (c->n_in < PWIRE_FRAME_MAX) {
        ssize_t n = recv(c->fd, c->in + c->n_in, PWIRE_FRAME_MAX - c->n_in, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return ST_OK;
        if (n <= 0) return ST_PEER_LOST;
        c->n_in += (uint32_t)n;
    }
    return ST_OK;
}

enum status pconn_next(struct pconn *c, struct pwire_msg *out)
{
    uint32_t    used = 0;
    enum status st = c->n_in ? pwire_get(c->in, c->n_in, &c->seal_in, out, &used) : ST_AGAIN;
    if (st) return st;
    memmove(c->in, c->in + used, c->n_in - used);
    c->n_in -= used;
    return ST_OK;
}

bool pconn_put(struct pconn *c, const struct pwire_msg *m)
{
    if (OUT_BYTES - c->n_out < PWIRE_FRAME_MAX) return false;
    c->n_out += pwire_put(c->out + c->n_out, m, &c->seal_out);
    return true;
}

enum status pconn_write(struct pconn *c)
{
    uint32_t at = 0;
    while (at < c->n_out) {
        ssize_t n = send(c->fd, c->out + at, c->n_out - at, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
        if (n <= 0) return ST_PEER_LOST;
        at += (uint32_t)n;
    }
    memmove(c->out, c->out + at, c->n_out - at);
    c->n_out -= at;
    return ST_OK;
}
