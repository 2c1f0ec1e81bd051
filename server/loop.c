#include "server/loop.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/memory.h"
#include "server/conn.h"
#include "server/gen.h"
#include "server/hangup.h"
#include "server/metrics.h"
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define BODIES_MAX ((uint64_t)1 << 30)
enum { ACCEPT_BURST = 256, ACCEPT_PAUSE_US = 50000, STOP_US = 1000000, INBOX_SOCKETS = 8192 };

/* ---- small things of an io thread ---- */

const char *io_date(struct io *io)
{
    int64_t now = clock_wall_s();
    if (now != io->date_s) {
        static const char day[] = "SunMonTueWedThuFriSat", month[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
        time_t            t = (time_t)now;
        struct tm         tm;
        gmtime_r(&t, &tm);
        snprintf(io->date, sizeof io->date, "%.3s, %02d %.3s %04d %02d:%02d:%02d GMT", day + 3 * tm.tm_wday, tm.tm_mday,
                 month + 3 * tm.tm_mon, (tm.tm_year + 1900) % 10000, tm.tm_hour, tm.tm_min, tm.tm_sec);
        io->date_s = now;
    }
    return io->date;
}

void io_request_id(struct io *io, char out[25])
{
    uint64_t n = ++io->id_next;
    snprintf(out, 25, "%016llx%08llx", (unsigned long long)hash_u64(io->id_seed ^ n),
             (unsigned long long)(hash_combine(io->id_seed, n) & 0xffffffffu));
}

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
    if ((list_empty(&io->conns) && list_empty(&io->gens)) || now >= io->stop_us + STOP_US) event_base_loopbreak(io->base);
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
    (void)fd, (void)what;
    if (!io->stopping) event_add(io->ev_listen, NULL);
}

/* No descriptor is left: the reserve takes the newcomer, so that it hears a 503 instead of silence. */
static void accept_over_limit(struct server *s)
{
    static const char busy[] = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\nRetry-After: 1\r\n\r\n";
    if (s->reserve_fd < 0) return;
    close(s->reserve_fd);
    int fd = accept4(s->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
        ssize_t n = send(fd, busy, sizeof busy - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
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
        if (atomic_load_explicit(&s->io[i].n_conn, memory_order_relaxed) < atomic_load_explicit(&best->n_conn, memory_order_relaxed))
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
    (void)fd, (void)what;
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
    (void)fd, (void)what;
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

/* After everything that this turn of the loop had to do: what several messages put on a connection leaves in one write. A
 * connection that puts more while it is flushed waits for the next turn. */
static void on_flush(evutil_socket_t fd, short what, void *arg)
{
    struct io     *io = arg;
    struct list    now;
    struct timeval soon = { 0 };
    (void)fd, (void)what;
    list_init(&now);
    list_add_tail(&io->unsent, &now); /* all of them follow it; those that come now go elsewhere */
    list_del(&io->unsent);
    io->untried_bytes = 0;
    io->flushing = true;
    while (!list_empty(&now)) conn_flush(LIST_ENTRY(now.next, struct conn, unsent));
    io->flushing = false;
    unread_relieve(io);
    if (!list_empty(&io->unsent)) event_add(io->ev_flush, &soon);
}

void io_flush_soon(struct io *io)
{
    if (!io->flushing) event_active(io->ev_flush, EV_TIMEOUT, 0);
}

void io_flush_now(struct io *io, struct conn *c)
{
    io->flushing = true;
    conn_flush(c);
    io->flushing = false;
    io_flush_soon(io); /* for what came meanwhile, and to look at what is not read */
}

static void fire(struct wheel_node *n, uint64_t now_us) { conn_timer(n, now_us); }

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
    struct io *io = arg;
    (void)fd, (void)what;
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

/* ---- create ---- */

static enum status io_create(struct server *s, struct io *io, uint32_t index)
{
    const struct config *cfg = s->cfg;
    io->srv = s, io->index = index;
    unread_init(io, memory_limit_bytes(), s->n_io);
    list_init(&io->conns);
    list_init(&io->idle);
    list_init(&io->fresh);
    list_init(&io->gens);
    list_init(&io->unsent);
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
    return hangup_open(io);
}

/* Descriptors that connections cannot have: log, listen, epoll and eventfds, files being read. */
static uint32_t connections_allowed(const struct config *cfg)
{
    enum { OWN = 24 };
    struct rlimit r;
    uint32_t      n = cfg->max_connections;
    if (getrlimit(RLIMIT_NOFILE, &r)) return n;
    rlim_t want = (rlim_t)n + OWN + 8 * cfg->io_threads;
    if (r.rlim_cur < want) { /* as far as the hard limit lets us */
        struct rlimit up = { .rlim_cur = want < r.rlim_max ? want : r.rlim_max, .rlim_max = r.rlim_max };
        if (!setrlimit(RLIMIT_NOFILE, &up)) r = up;
    }
    if (r.rlim_cur >= want) return n;
    uint32_t room = r.rlim_cur > OWN + 8 * cfg->io_threads + 8 ? (uint32_t)r.rlim_cur - OWN - 8 * cfg->io_threads : 8;
    LOG_AT(room < 1000 ? LOG_LEVEL_WARN : LOG_LEVEL_DEBUG,
           "loop: %u open files are allowed, so at most %u connections (--max-connections %u)", (uint32_t)r.rlim_cur, room, n);
    return room;
}

enum status server_create(const struct config *cfg, struct auth *auth, struct server **s_out)
{
    struct server *s = calloc(1, sizeof *s);
    if (!s) return ST_NOMEM;
    s->cfg = cfg, s->auth = auth, s->listen_fd = s->reserve_fd = -1;
    s->half_close_serve = cfg->half_close == HALF_CLOSE_SERVE;
    s->loopback = config_is_loopback(cfg->host);
    s->body_max = (uint64_t)cfg->max_body_mib << 20;
    uint64_t eighth = memory_limit_bytes() / 8;
    s->bodies.bytes_max = eighth < BODIES_MAX ? eighth : BODIES_MAX;
    if (s->bodies.bytes_max < 4 * s->body_max) s->bodies.bytes_max = 4 * s->body_max;
    s->n_io = cfg->io_threads;
    uint32_t per_io = connections_allowed(cfg) / s->n_io;
    s->conns_per_io = per_io ? per_io : 1;
    s->io = calloc(s->n_io, sizeof *s->io);
    for (uint32_t i = 0; s->io && i < s->n_io; i++) s->io[i].hangup_fd = -1;
    enum status st = s->io ? metrics_create(&s->metrics) : ST_NOMEM;
    for (uint32_t i = 0; st == ST_OK && i < s->n_io; i++) st = io_create(s, &s->io[i], i);
    if (st == ST_OK) st = strikes_create(cfg->max_key_failures, &s->strikes);
    if (gethostname(s->host_name, sizeof s->host_name - 1)) s->host_name[0] = 0;
    if (st == ST_OK && cfg->max_connections_address) st = crowd_create(cfg->max_connections_address, &s->crowd);
    if (st == ST_OK) {
        uint32_t n = cfg->text_threads ? cfg->text_threads : thread_cpu_count() >= 8 ? 2 : 1;
        st = text_create(n, 1024, &s->text);
    }
    if (st) {
        server_free(s);
        return st;
    }
    *s_out = s;
    return ST_OK;
}

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
    const struct config    *cfg = s->cfg;
    struct addrinfo         hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV }, *list = NULL;
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
    snprintf(err, n_err, "--takeover: the running server listens on %s, asked for is %.60s port %u", s->address, cfg->host, cfg->port);
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
        snprintf(err, n_err, "cannot listen on %.60s port %u: %s%s", cfg->host, cfg->port, strerror(saved),
                 saved == EADDRINUSE && *cfg->takeover ? "; a server runs there without --takeover, or with another path"
                 : saved == EADDRINUSE                 ? "; is another server running? choose another --port"
                 : saved == EACCES                     ? "; choose a --port above 1023"
                                                       : "");
        errno = saved;
        return -1;
    }
    struct sockaddr_storage a = { 0 };
    socklen_t               n = sizeof a;
    if (!getsockname(fd, (struct sockaddr *)&a, &n)) note_address(s, &a, n);
    return fd;
}

enum status server_listen(struct server *s, int listen_fd, char *err, size_t n_err)
{
    struct io *first = &s->io[0];
    bool       ours = listen_fd < 0;
    if (ours)
        s->listen_fd = bind_to(s->cfg, s, err, n_err);
    else if (take_listener(s, listen_fd, err, n_err))
        return ST_CONFIG;
    if (s->listen_fd < 0) return ST_IO;
    s->reserve_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    first->ev_listen = event_new(first->base, s->listen_fd, EV_READ | EV_PERSIST, on_listen, first);
    first->ev_accept_again = event_new(first->base, -1, 0, on_accept_again, first);
    snprintf(err, n_err, "cannot start the io threads");
    if (!first->ev_listen || !first->ev_accept_again) return ST_NOMEM;
    atomic_store(&s->accepting, ours);
    for (uint32_t i = 0; i < s->n_io; i++) {
        char name[16];
        snprintf(name, sizeof name, "io%u", i);
        enum status st = thread_start(&s->io[i].thread, THREAD_IO, name, io_main, &s->io[i]);
        if (st) return st;
        s->io[i].started = true;
    }
    return ST_OK;
}

static void wake_all(struct server *s)
{
    for (uint32_t i = 0; i < s->n_io; i++) ring_wake(&s->io[i].inbox);
}

static void set_state(struct server *s, enum server_state st)
{
    atomic_store_explicit(&s->state, st, memory_order_release);
    wake_all(s);
}

void server_ready(struct server *s, const struct api_model *model, const struct gen_engine *eng)
{
    s->model = model, s->eng = *eng;
    metrics_model(s->metrics, model->served_name[0], model->context);
    set_state(s, SRV_READY);
}

void server_accept(struct server *s, bool on)
{
    atomic_store(&s->accepting, on);
    wake_all(s);
}

void server_hand(struct server *s, bool away)
{
    atomic_store(&s->accepting, !away);
    atomic_store(&s->shut_idle, false);
    int now = away ? SRV_READY : SRV_HANDED;
    atomic_compare_exchange_strong(&s->state, &now, away ? SRV_HANDED : SRV_READY); /* not when it ends anyway */
    wake_all(s);
}

void server_shut_idle(struct server *s)
{
    atomic_store(&s->shut_idle, true);
    wake_all(s);
}

bool server_told(const struct server *s)
{
    bool told = server_idle(s);
    for (uint32_t i = 0; i < s->n_io; i++) told &= atomic_load(&s->io[i].n_conn) == 0;
    return told;
}

bool server_quiet(const struct server *s) { return !atomic_load(&s->listening) && !atomic_load(&s->n_moving) && server_told(s); }

void server_drain(struct server *s) { set_state(s, SRV_DRAINING); }

void server_fail_all(struct server *s)
{
    atomic_store(&s->fail_all, true);
    wake_all(s);
}

bool server_idle(const struct server *s) { return atomic_load(&s->n_gen) == 0; }

void server_stop(struct server *s)
{
    set_state(s, SRV_STOPPING);
    for (uint32_t i = 0; i < s->n_io; i++) {
        if (!s->io[i].started) continue;
        pthread_join(s->io[i].thread, NULL);
        s->io[i].started = false;
    }
    text_stop(s->text);
    for (uint32_t i = 0; i < s->n_io; i++) { /* jobs that came back after their io thread was gone */
        s->io[i].stopping = true;
        for (void *msg; (msg = ring_pop(&s->io[i].inbox));) inbox_message(&s->io[i], msg);
    }
}

void server_give_back(struct server *s, uint64_t now_us)
{
    if (atomic_load_explicit(&s->n_freed, memory_order_relaxed) < GIVE_BACK_BYTES || now_us - s->t_given_back_us < GIVE_BACK_US) return;
    s->t_given_back_us = now_us;
    atomic_store_explicit(&s->n_freed, 0, memory_order_relaxed);
    memory_give_back();
}

void server_free(struct server *s)
{
    if (!s) return;
    text_stop(s->text); /* never listened: nobody has stopped it */
    text_free(s->text);
    for (uint32_t i = 0; s->io && i < s->n_io; i++) {
        struct io *io = &s->io[i];
        if (io->base) {
            LIST_EACH(it, &io->conns) conn_free(LIST_ENTRY(it, struct conn, node));
            for (void *msg; (msg = ring_pop(&io->outbox));) gen_message(io, msg); /* finals of a stopped engine */
        }
        struct event *ev[] = { io->ev_inbox, io->ev_outbox, io->ev_tick, io->ev_listen, io->ev_accept_again, io->ev_flush };
        for (size_t k = 0; k < sizeof ev / sizeof *ev; k++)
            if (ev[k]) event_free(ev[k]);
        hangup_close(io);
        if (io->base) event_base_free(io->base);
        ring_free(&io->inbox);
        ring_free(&io->outbox);
        buf_free(&io->frames);
    }
    free(s->io);
    if (s->listen_fd >= 0) close(s->listen_fd);
    if (s->reserve_fd >= 0) close(s->reserve_fd);
    crowd_free(s->crowd);
    strikes_free(s->strikes);
    metrics_free(s->metrics);
    free(s);
}
