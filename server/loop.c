#include "server/loop.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/memory.h"
#include "server/conn.h"
#include "server/gen.h"
#include "server/hangup.h"
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ACCEPT_BURST = 256, ACCEPT_PAUSE_US = 50000, STOP_US = 1000000, INBOX_SOCKETS = 8192 };

/* The wheel turns only while there is something to watch: an idle server sleeps. */
static void tick_update(struct io *io)
{
    bool want = io->wheel.n > 0 || io->stopping;
    if (want == io->tick_on) return;
    io->tick_on = want;
    struct timeval every = { .tv_usec = WHEEL_TICK_US };
    if (want)
        event_add(io->ev_tick, &every);
    else
        event_del(io->ev_tick);
}

/* ---- stopping ---- */

static bool conn_may_stay(struct conn *c) { return c->state == CONN_WAIT || conn_pending(c) > 0; }

static void io_stop_step(struct io *io)
{
    uint64_t now = clock_us();
    bool     late = now >= io->stop_us;
    LIST_EACH(it, &io->conns) {
        struct conn *c = LIST_ENTRY(it, struct conn, node);
        if (late || !conn_may_stay(c)) conn_free(c);
    }
    if ((list_empty(&io->conns) && list_empty(&io->gens)) || now >= io->stop_us + STOP_US)
        event_base_loopbreak(io->base);
}

static void listen_as_told(struct io *io)
{
    struct server *s = io->srv;
    bool           on = atomic_load(&s->accepting);
    if (!io->ev_listen || io->stopping || on == atomic_load(&s->listening)) return;
    if (on) {
        event_add(io->ev_listen, NULL);
    } else {
        event_del(io->ev_listen);
        event_del(io->ev_accept_again);
    }
    atomic_store(&s->listening, on);
}

static void io_state_changed(struct io *io)
{
    struct server *s = io->srv;
    listen_as_told(io);
    if (server_state(s) >= SRV_DRAINING || atomic_load(&s->shut_idle)) conn_close_idle(io);
    if (atomic_load(&s->fail_all)) gen_fail_all(io);
    if (server_state(s) == SRV_STOPPING && !io->stopping) {
        io->stopping = true;
        io->stop_us = clock_us() + STOP_US;
        if (io->ev_listen) event_del(io->ev_listen);
    }
    if (io->stopping) io_stop_step(io);
}

/* ---- accept ---- */

static void accept_pause(struct io *io)
{
    struct timeval t = { .tv_usec = ACCEPT_PAUSE_US };
    atomic_fetch_add(&io->srv->n_accept_paused, 1);
    event_del(io->ev_listen);
    event_add(io->ev_accept_again, &t);
}

static void on_accept_again(evutil_socket_t fd, short what, void *arg)
{
    struct io *io = arg;
    (void)fd;
    (void)what;
    if (!io->stopping) event_add(io->ev_listen, NULL);
}

/* No descriptor is left: the reserve takes the newcomer, so that it hears a 503 instead of silence; over TLS, an
 * end. */
static void accept_over_limit(struct server *s)
{
    static const char busy[] =
        "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\nRetry-After: 1\r\n\r\n";
    if (s->reserve_fd < 0) return;
    close(s->reserve_fd);
    int fd = accept4(s->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
        ssize_t n = s->tls ? 0 : send(fd, busy, sizeof busy - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
        (void)n;
        shutdown(fd, SHUT_WR);
        char drop[4096];
        n = recv(fd, drop, sizeof drop, MSG_DONTWAIT);
        close(fd);
    }
    s->reserve_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static void hand_over(struct io *self, int fd)
{
    struct server *s = self->srv;
    struct io     *best = self;
    for (uint32_t i = 0; i < s->n_io; i++)
        if (atomic_load_explicit(&s->io[i].n_conn, memory_order_relaxed) <
            atomic_load_explicit(&best->n_conn, memory_order_relaxed))
            best = &s->io[i];
    if (best == self) {
        conn_open(self, fd);
        return;
    }
    atomic_fetch_add(&s->n_moving, 1);
    if (ring_push(&best->inbox, (void *)(((uintptr_t)fd << 1) | 1))) return;
    atomic_fetch_sub(&s->n_moving, 1);
    close(fd);
}

static void on_listen(evutil_socket_t listen_fd, short what, void *arg)
{
    struct io *io = arg;
    (void)what;
    for (int i = 0; i < ACCEPT_BURST; i++) {
        int fd = accept4(listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            hand_over(io, fd);
            continue;
        }
        if (errno == EINTR || errno == ECONNABORTED || errno == EPROTO) continue;
        if (errno == EAGAIN || errno == EWOULDBLOCK) break;
        LOG_WARN_LIMITED("loop: accept failed, pausing for 50 ms: %s", strerror(errno));
        if (errno == EMFILE || errno == ENFILE) accept_over_limit(io->srv);
        accept_pause(io);
        break;
    }
    tick_update(io);
}

/* ---- messages ---- */

static void inbox_message(struct io *io, void *msg)
{
    uintptr_t bits = (uintptr_t)msg;
    if (bits & 1) {
        if (io->stopping)
            close((int)(bits >> 1));
        else
            conn_open(io, (int)(bits >> 1));
        atomic_fetch_sub(&io->srv->n_moving, 1);
        return;
    }
    struct text_job *j = msg;
    j->done(j);
}

static void on_inbox(evutil_socket_t fd, short what, void *arg)
{
    struct io *io = arg;
    (void)fd;
    (void)what;
    ring_ack(&io->inbox);
    do {
        for (void *msg; (msg = ring_pop(&io->inbox));) inbox_message(io, msg);
    } while (!ring_arm(&io->inbox));
    io_state_changed(io);
    tick_update(io);
}

static void on_outbox(evutil_socket_t fd, short what, void *arg)
{
    struct io *io = arg;
    uint32_t   n = 0;
    (void)fd;
    (void)what;
    ring_ack(&io->outbox);
    do {
        for (void *msg; (msg = ring_pop(&io->outbox));) {
            gen_message(io, msg);
            if (++n == IO_MESSAGES_MAX) { /* sockets and probes get their turn */
                ring_wake(&io->outbox);
                return;
            }
        }
    } while (!ring_arm(&io->outbox));
}

/* After everything that this turn of the loop had to do: what several messages put on a connection leaves in one write.
 * A connection that puts more while it is flushed waits for the next turn. */
static void on_flush(evutil_socket_t fd, short what, void *arg)
{
    struct io     *io = arg;
    struct list    now;
    struct timeval soon = { 0 };
    (void)fd;
    (void)what;
    list_init(&now);
    list_add_tail(&io->unsent, &now); /* all of them follow it; those that come now go elsewhere */
    list_del(&io->unsent);
    io->untried_bytes = 0;
    io->flushing = true;
    while (!list_empty(&now)) conn_flush(LIST_ENTRY(now.next, struct conn, unsent));
    io->flushing = false;
    unread_relieve(io, conn_reset);
    if (!list_empty(&io->unsent)) event_add(io->ev_flush, &soon);
}

static void fire(struct wheel_node *n, uint64_t now_us) { conn_timer(n, now_us); }

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
    struct io *io = arg;
    (void)fd;
    (void)what;
    wheel_run(&io->wheel, clock_us(), fire);
    if (io->stopping) io_stop_step(io);
    tick_update(io);
}

static void *io_main(void *arg)
{
    struct io *io = arg;
    ring_arm(&io->inbox);
    ring_arm(&io->outbox);
    ring_wake(&io->inbox); /* whatever came before */
    ring_wake(&io->outbox);
    if (io->index == 0) listen_as_told(io);
    event_base_loop(io->base, EVLOOP_NO_EXIT_ON_EMPTY);
    return NULL;
}

/* ---- life ---- */

enum status loop_create(struct server *s, struct io *io, uint32_t index)
{
    const struct config *cfg = s->cfg;
    io->srv = s;
    io->index = index;
    unread_init(io, memory_limit_bytes(), s->n_io);
    list_init(&io->conns);
    list_init(&io->idle);
    list_init(&io->fresh);
    list_init(&io->gens);
    list_init(&io->unsent);
    list_init(&io->to_shake);
    wheel_init(&io->wheel, clock_us());
    buf_init(&io->frames, 256u << 20);
    io->id_seed = hash_seed();
    /* two slots per request that can be with the engine at one time (engine/request.h) */
    io->n_request_max = cfg->queue_requests + (cfg->max_num_seqs ? cfg->max_num_seqs : CONFIG_SEQS_MAX_AUTO) + 256;
    enum status st = ring_init(&io->outbox, 2 * io->n_request_max);
    if (st == ST_OK) st = ring_init(&io->inbox, INBOX_SOCKETS);
    if (st) return st;

    struct event_config *ec = event_config_new();
    if (ec) {
        event_config_set_flag(ec, EVENT_BASE_FLAG_NOLOCK);
        event_config_set_flag(ec, EVENT_BASE_FLAG_IGNORE_ENV);
        io->base = event_base_new_with_config(ec);
        event_config_free(ec);
    }
    if (!io->base) return ST_NOMEM;
    io->ev_inbox = event_new(io->base, ring_fd(&io->inbox), EV_READ | EV_PERSIST, on_inbox, io);
    io->ev_outbox = event_new(io->base, ring_fd(&io->outbox), EV_READ | EV_PERSIST, on_outbox, io);
    io->ev_tick = event_new(io->base, -1, EV_PERSIST, on_tick, io);
    io->ev_flush = event_new(io->base, -1, 0, on_flush, io);
    if (!io->ev_inbox || !io->ev_outbox || !io->ev_tick || !io->ev_flush) return ST_NOMEM;
    event_add(io->ev_inbox, NULL);
    event_add(io->ev_outbox, NULL);
    return hangup_open(io, conn_free);
}

enum status loop_accept(struct io *io)
{
    io->ev_listen = event_new(io->base, io->srv->listen_fd, EV_READ | EV_PERSIST, on_listen, io);
    io->ev_accept_again = event_new(io->base, -1, 0, on_accept_again, io);
    return io->ev_listen && io->ev_accept_again ? ST_OK : ST_NOMEM;
}

enum status loop_start(struct io *io)
{
    char name[16];
    snprintf(name, sizeof name, "io%u", io->index);
    enum status st = thread_start(&io->thread, THREAD_IO, name, io_main, io);
    if (st == ST_OK) io->started = true;
    return st;
}

void loop_wake(struct io *io) { ring_wake(&io->inbox); }

void loop_join(struct io *io)
{
    if (!io->started) return;
    pthread_join(io->thread, NULL);
    io->started = false;
}

void loop_clear(struct io *io)
{
    io->stopping = true;
    for (void *msg; (msg = ring_pop(&io->inbox));) inbox_message(io, msg);
}

void loop_free(struct io *io)
{
    if (io->base) {
        LIST_EACH(it, &io->conns) conn_free(LIST_ENTRY(it, struct conn, node));
        for (void *msg; (msg = ring_pop(&io->outbox));) gen_message(io, msg); /* finals of a stopped engine */
    }
    struct event *ev[] = { io->ev_inbox,        io->ev_outbox, io->ev_tick, io->ev_listen,
                           io->ev_accept_again, io->ev_flush,  io->ev_shake };
    for (size_t k = 0; k < sizeof ev / sizeof *ev; k++)
        if (ev[k]) event_free(ev[k]);
    hangup_close(io);
    if (io->base) event_base_free(io->base);
    ring_free(&io->inbox);
    ring_free(&io->outbox);
    buf_free(&io->frames);
}
