#include "server/hangup.h"
#include "base/log.h"
#include "server/conn_impl.h"
#include <errno.h>
#include <event2/event.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { TURN_MAX = 64 }; /* of one turn: other sockets get theirs */

static void arm(struct conn *c, int op, uint32_t events)
{
    struct epoll_event e = { .events = events | EPOLLONESHOT, .data = { .ptr = c } };
    if (epoll_ctl(c->io->hangup_fd, op, c->fd, &e))
        LOG_WARN_LIMITED("conn: a client that goes will not be noticed before its answer: %s", strerror(errno));
    else
        c->watched = true;
}

void hangup_watch(struct conn *c)
{
    if (!c->watched) arm(c, EPOLL_CTL_ADD, EPOLLRDHUP);
}

void hangup_forget(struct conn *c)
{
    if (!c->watched) return;
    epoll_ctl(c->io->hangup_fd, EPOLL_CTL_DEL, c->fd, NULL);
    c->watched = false;
}

/* One at a time: what one connection's end causes may end another. */
static void on_hangup(evutil_socket_t fd, short what, void *arg)
{
    struct epoll_event e;
    (void)what;
    (void)arg;
    for (int i = 0; i < TURN_MAX && epoll_wait(fd, &e, 1, 0) == 1; i++) {
        struct conn *c = e.data.ptr;
        bool         half = !(e.events & (EPOLLHUP | EPOLLERR));
        if (half && c->io->srv->half_close_serve)
            arm(c, EPOLL_CTL_MOD, 0); /* it still reads; an error or the whole end is reported all the same */
        else
            c->io->gone(c);
    }
}

enum status hangup_open(struct io *io, void (*gone)(struct conn *c))
{
    io->gone = gone;
    io->hangup_fd = epoll_create1(EPOLL_CLOEXEC);
    if (io->hangup_fd < 0) return ST_IO;
    io->ev_hangup = event_new(io->base, io->hangup_fd, EV_READ | EV_PERSIST, on_hangup, io);
    if (!io->ev_hangup) return ST_NOMEM;
    event_add(io->ev_hangup, NULL);
    return ST_OK;
}

void hangup_close(struct io *io)
{
    if (io->ev_hangup) event_free(io->ev_hangup);
    if (io->hangup_fd >= 0) close(io->hangup_fd);
    io->ev_hangup = NULL;
    io->hangup_fd = -1;
}
