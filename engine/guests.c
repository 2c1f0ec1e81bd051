#include "engine/guests.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

void guests_init(struct guests *g, int listener)
{
    memset(g, 0, sizeof *g);
    g->listener = listener;
    for (int i = 0; i < GUESTS_MAX; i++) g->guest[i].fd = -1;
}

static void send_away(struct guest *u)
{
    LOG_WARN_LIMITED("nodes: a connection from %s said nothing of ours, closed", u->from);
    close(u->fd);
    u->fd = -1;
}

/* A free place, or that of the one that came first. */
static struct guest *place_for_one(struct guests *g)
{
    struct guest *oldest = &g->guest[0];
    for (int i = 0; i < GUESTS_MAX; i++) {
        if (g->guest[i].fd < 0) return &g->guest[i];
        if (g->guest[i].until_us < oldest->until_us) oldest = &g->guest[i];
    }
    send_away(oldest);
    return oldest;
}

static void let_in(struct guests *g)
{
    struct guest new = { .fd = -1 };
    if (link_accept(g->listener, 0, &new.fd, new.from, sizeof new.from)) return;
    CHECK(getrandom(new.nonce, sizeof new.nonce, 0) == sizeof new.nonce);
    new.until_us = clock_us() + GUEST_MS *(uint64_t)1000;
    /* a new connection has room for so few bytes: nothing is waited for */
    if (link_send(new.fd, NULL, WIRE_CHALLENGE, new.nonce, sizeof new.nonce, 0)) {
        close(new.fd);
        return;
    }
    *place_for_one(g) = new;
}

/* What has come of its hello. False: it is gone, or it says something else. */
static bool hear_guest(struct guest *u)
{
    ssize_t got = recv(u->fd, u->frame + u->n, sizeof u->frame - u->n, MSG_DONTWAIT);
    if (got < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
    u->n += (uint32_t)got;
    return got > 0;
}

/* Is its frame whole? *ok false: it never will be. */
static bool is_whole(const struct guest *u, uint32_t *bytes_out, bool *ok)
{
    struct link_head h;
    *ok = true;
    if (u->n < LINK_HEAD) return false;
    *ok = link_head_get(u->frame, WIRE_HELLO_BYTES, &h) == ST_OK && h.type == WIRE_HELLO;
    if (!*ok || u->n < LINK_HEAD + h.bytes) return false;
    *ok = u->n == LINK_HEAD + h.bytes && link_sum(u->frame + LINK_HEAD, h.bytes) == h.sum;
    *bytes_out = h.bytes;
    return *ok;
}

bool guests_next(struct guests *g, uint32_t timeout_ms, struct guest *out, uint32_t *bytes_out)
{
    struct pollfd fds[GUESTS_MAX + 1];
    for (int i = 0; i < GUESTS_MAX; i++) fds[i] = (struct pollfd){ .fd = g->guest[i].fd, .events = POLLIN };
    fds[GUESTS_MAX] = (struct pollfd){ .fd = g->listener, .events = POLLIN };
    int      n = poll(fds, GUESTS_MAX + 1, (int)timeout_ms);
    uint64_t now = clock_us();
    for (int i = 0; i < GUESTS_MAX; i++) {
        struct guest *u = &g->guest[i];
        bool          ok = true;
        if (u->fd < 0) continue;
        if (n > 0 && fds[i].revents) ok = hear_guest(u);
        if (ok && is_whole(u, bytes_out, &ok)) {
            *out = *u;
            u->fd = -1;
            return true;
        }
        if (!ok || now > u->until_us) send_away(u);
    }
    if (n > 0 && fds[GUESTS_MAX].revents) let_in(g);
    return false;
}

void guests_free(struct guests *g)
{
    for (int i = 0; i < GUESTS_MAX; i++)
        if (g->guest[i].fd >= 0) close(g->guest[i].fd);
}
