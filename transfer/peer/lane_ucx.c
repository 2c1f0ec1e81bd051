/* Over 500 lines: one lane whose functions share its struct: the queues of notes, the room's process (start, loss and
 * restart), and the creation of the listener. The room's own code is apart, in room.c and talk.c. */
#include "transfer/peer/lane_ucx.h"
#include "base/check.h"
#include "base/log.h"
#include "transfer/peer/names.h"
#include "transfer/peer/room.h"
#include "transfer/xfer_impl.h"
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <openssl/crypto.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

const char *const peer_transport_name[PEER_TRANSPORTS] = {
    [PEER_TCP] = "tcp", [PEER_SHM] = "shm", [PEER_RDMA] = "rdma"
};

enum {
    LANE_NOTES = 64,
    READY_MS = 20000,
    AGAIN_MIN_US = 250000,
    AGAIN_MAX_US = 10000000,
    LINGER_US = 2000000,
    BIND_TRIES = 40,
    BACKLOG = 64
};

struct end { /* what the owner was told of one connection */
    bool     up;
    uint64_t epoch;
};

struct ucx_lane {
    struct xfer_lane  lane; /* first */
    struct peer_net   net;
    struct room_setup setup;
    int               listener;
    uint32_t          port;
    /* the room; after lane_ucx_create it belongs to the lane's thread */
    int                fd; /* the socket to the room; -1: no room runs */
    pid_t              pid;
    uint64_t           again_us, wait_us; /* no room starts before again_us; wait_us: the pause before the last start */
    struct xfer_item  *flight[ROOM_FLIGHTS];
    struct end         peer[PEERS_MAX], guest[PEER_GUESTS_MAX];
    struct peer_note   ident;
    bool               identified, slab_told;
    uint64_t           epochs; /* added to the room's epochs, which begin at 1 in each room */
    uint64_t           epoch_max;
    struct room_packet in, out;
    struct peer_note  *held; /* a note that did not fit into the room's socket; it is sent first */
    /* Notes are copied. to: owner to lane; from: lane to owner; each has a ring of its free notes */
    struct peer_note *note; /* [2 * LANE_NOTES] */
    struct ring       to, to_free, from, from_free;
    struct peer_note *spare; /* a note taken from from_free ahead of its use; NULL: none */
    /* the slab that seg_add was given; written by the owner before `lent` */
    unsigned char *slab;
    uint64_t       slab_bytes;
    int            slab_fd;
    _Atomic bool   lent, closing;
};

static struct ucx_lane *of(struct xfer_lane *l) { return (struct ucx_lane *)l; }
static struct ucx_lane *of_net(struct peer_net *n)
{
    return (struct ucx_lane *)(void *)((char *)n - offsetof(struct ucx_lane, net));
}

/* ---- notes, the owner's side */

static void copy_note(struct peer_note *to, const struct peer_note *from)
{
    memcpy(to, from, offsetof(struct peer_note, key)); /* of the list only its n entries are copied */
    if (from->type == PEER_ASK || from->type == PEER_ASKED) memcpy(to->key, from->key, from->n * sizeof *to->key);
    if (from->type == PEER_ANSWER || from->type == PEER_ANSWERED)
        memcpy(to->where, from->where, from->n * sizeof *to->where);
}

static bool net_send(struct peer_net *net, const struct peer_note *note)
{
    struct ucx_lane  *l = of_net(net);
    struct peer_note *n = ring_pop(&l->to_free);
    if (!n) return false;
    copy_note(n, note);
    CHECK(ring_push(&l->to, n));
    return true;
}

static bool net_recv(struct peer_net *net, struct peer_note *out)
{
    struct ucx_lane  *l = of_net(net);
    struct peer_note *n = ring_pop(&l->from);
    if (!n) return false;
    copy_note(out, n);
    CHECK(ring_push(&l->from_free, n));
    return true;
}

static const struct peer_net_ops net_ops = { .send = net_send, .recv = net_recv };

/* ---- notes, the thread's side */

/* false: the queue is full because the owner has not read the earlier notes. */
static bool tell(struct ucx_lane *l, const struct peer_note *note)
{
    struct peer_note *n = l->spare ? l->spare : ring_pop(&l->from_free);
    l->spare = NULL;
    if (!n) return false;
    copy_note(n, note);
    CHECK(ring_push(&l->from, n));
    xfer_wake(l->lane.x);
    return true;
}

static bool has_note(struct ucx_lane *l)
{
    if (!l->spare) l->spare = ring_pop(&l->from_free);
    return l->spare != NULL;
}

/* Records which connections the owner believes to be up: tell_ends reports each of them as lost when the room dies. */
static void keep_ends(struct ucx_lane *l, const struct peer_note *n)
{
    struct end *e =
        n->type == PEER_UP || n->type == PEER_DOWN || n->type == PEER_ANSWERED ? &l->peer[n->peer] : &l->guest[n->peer];
    *e = (struct end){ .up = n->type != PEER_DOWN && n->type != PEER_GONE, .epoch = n->epoch };
    if (n->epoch > l->epoch_max) l->epoch_max = n->epoch;
}

/* Sends a note to the room. The room counts epochs from 1 and the owner's never restart, so the offset is subtracted.
 * false: the room's socket is full. */
static bool pass_note(struct ucx_lane *l, const struct peer_note *n)
{
    l->out.type = ROOM_NOTE;
    copy_note(&l->out.note, n);
    if (n->type != PEER_IDENT) {
        if (n->epoch <= l->epochs) return true; /* the note belongs to a room that is gone */
        l->out.note.epoch -= l->epochs;
    } else {
        l->ident = *n;
        l->identified = true;
    }
    return l->fd < 0 || room_send(l->fd, &l->out, -1) != ST_AGAIN;
}

static void pass_notes(struct ucx_lane *l)
{
    for (;;) {
        struct peer_note *n = l->held ? l->held : ring_pop(&l->to);
        l->held = NULL;
        if (!n) return;
        if (!pass_note(l, n)) {
            l->held = n;
            return;
        }
        CHECK(ring_push_quiet(&l->to_free, n));
    }
}

/* ---- the room */

/* Reports every connection of the dead room to the owner as lost. false: the queue is full, and the rest follows in a
 * later turn. */
static bool tell_ends(struct ucx_lane *l)
{
    static const struct peer_note empty;
    struct peer_note              n;
    for (uint32_t i = 0; i < PEERS_MAX + PEER_GUESTS_MAX; i++) {
        bool        guest = i >= PEERS_MAX;
        struct end *e = guest ? &l->guest[i - PEERS_MAX] : &l->peer[i];
        if (!e->up) continue;
        if (!has_note(l)) return false;
        memcpy(&n, &empty, offsetof(struct peer_note, key));
        n.type = guest ? PEER_GONE : PEER_DOWN;
        n.peer = guest ? i - PEERS_MAX : i;
        n.epoch = e->epoch;
        CHECK(tell(l, &n));
        e->up = false;
    }
    return true;
}

static void end_flights(struct ucx_lane *l)
{
    for (uint32_t i = 0; i < ROOM_FLIGHTS; i++) {
        struct xfer_item *it = l->flight[i];
        l->flight[i] = NULL;
        if (it) lane_done(it, ST_PEER_LOST);
    }
}

static void leave_room(struct ucx_lane *l)
{
    if (l->fd < 0) return;
    close(l->fd);
    l->fd = -1;
    for (uint64_t end = l->lane.x->cfg.clock() + LINGER_US; waitpid(l->pid, NULL, WNOHANG) == 0;) {
        /* The room ends when its socket closes. A room that does not end hangs inside UCX and is killed, because the
         * slab's memory must have no other writer after this function. */
        if (l->lane.x->cfg.clock() > end) (void)kill(l->pid, SIGKILL);
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    }
    l->slab_told = false;
    l->epochs = l->epoch_max;
    end_flights(l);
}

/* Starts a room and waits at most READY_MS for its ROOM_READY. ST_IO, ST_CONFIG: err has one line. */
static enum status enter_room(struct ucx_lane *l, char *err, size_t err_bytes)
{
    int fd;
    if (room_start(&l->fd, &l->pid)) {
        l->fd = -1;
        snprintf(err, err_bytes, "the process for UCX cannot be started: %s", strerror(errno));
        return ST_IO;
    }
    l->out.type = ROOM_SETUP;
    l->out.setup = l->setup;
    enum status st = room_send(l->fd, &l->out, l->listener);
    if (!st) st = room_recv(l->fd, &l->in, &fd, READY_MS);
    if (!st && l->in.type == ROOM_READY) return ST_OK;
    if (!st && l->in.type == ROOM_FAILED)
        snprintf(err, err_bytes, "%s", l->in.why);
    else
        snprintf(err, err_bytes, "the process for UCX does not start");
    close(l->fd);
    l->fd = -1;
    (void)kill(l->pid, SIGKILL);
    (void)waitpid(l->pid, NULL, 0);
    return ST_CONFIG;
}

/* Starts another room after the first one died, and sends it the identity of the blocks again. */
static void enter_again(struct ucx_lane *l)
{
    char     err[400];
    uint64_t now = l->lane.x->cfg.clock();
    if (l->fd >= 0 || now < l->again_us || !tell_ends(l)) return;
    l->wait_us = l->wait_us ? l->wait_us * 2 : AGAIN_MIN_US;
    if (l->wait_us > AGAIN_MAX_US) l->wait_us = AGAIN_MAX_US;
    l->again_us = now + l->wait_us;
    if (enter_room(l, err, sizeof err)) {
        LOG_WARN_LIMITED("peer: %s; it is tried again", err);
        return;
    }
    l->out.type = ROOM_NOTE;
    l->out.note = l->ident;
    if (l->identified && room_send(l->fd, &l->out, -1)) leave_room(l);
}

static void tell_slab(struct ucx_lane *l)
{
    if (l->fd < 0 || l->slab_told || !atomic_load_explicit(&l->lent, memory_order_acquire)) return;
    l->out.type = ROOM_SLAB;
    l->out.slab_bytes = l->slab_bytes;
    l->slab_told = room_send(l->fd, &l->out, l->slab_fd) == ST_OK;
}

static void done(struct ucx_lane *l, const struct room_done *d)
{
    struct xfer_item *it = d->flight < ROOM_FLIGHTS ? l->flight[d->flight] : NULL;
    enum status       st = d->st == ST_OK ? ST_OK : ST_PEER_LOST;
    if (!it) return;
    l->flight[d->flight] = NULL;
    if (!st && !lane_digest(it, it->dst->base + it->job.dst_off)) st = ST_INVALID;
    lane_done(it, st);
}

static bool note_is_sound(const struct peer_note *n)
{
    bool guest = n->type >= PEER_ASKED;
    bool lists = n->type == PEER_ASKED || n->type == PEER_ANSWERED;
    return n->type >= PEER_UP && n->type <= PEER_GONE &&
           n->peer < (guest ? (uint32_t)PEER_GUESTS_MAX : (uint32_t)PEERS_MAX) && (!lists || n->n <= PWIRE_KEYS_MAX);
}

/* Handles the room's packets, as long as a free note is there for each. */
static void hear_room(struct ucx_lane *l)
{
    while (l->fd >= 0 && has_note(l)) {
        int         fd;
        enum status st = room_recv(l->fd, &l->in, &fd, 0);
        if (fd >= 0) close(fd);
        if (st == ST_AGAIN) return;
        if (st) {
            LOG_WARN("peer: the process in which UCX runs has ended; another one is started");
            leave_room(l);
            return;
        }
        l->wait_us = 0;
        for (uint32_t i = 0; l->in.type == ROOM_DONE && i < l->in.dones.n && i < ROOM_FLIGHTS; i++)
            done(l, &l->in.dones.done[i]);
        if (l->in.type != ROOM_NOTE || !note_is_sound(&l->in.note)) continue;
        l->in.note.epoch += l->epochs;
        keep_ends(l, &l->in.note);
        CHECK(tell(l, &l->in.note));
    }
}

/* ---- the lane */

static void turn(struct ucx_lane *l)
{
    if (atomic_load_explicit(&l->closing, memory_order_acquire)) {
        leave_room(l);
        return;
    }
    enter_again(l);
    tell_slab(l);
    pass_notes(l);
    hear_room(l);
}

static void wait_for_events(struct ucx_lane *l)
{
    enum { AGAIN_MS = 50 };
    bool gone = l->fd < 0 && !atomic_load(&l->closing);
    if (!ring_arm(&l->lane.inbox) || !ring_arm(&l->to)) return;
    bool          full = !has_note(l);
    struct pollfd p[4] = { { .fd = ring_fd(&l->lane.inbox), .events = POLLIN },
                           { .fd = ring_fd(&l->to), .events = POLLIN },
                           { .fd = full ? -1 : l->fd, .events = (short)(POLLIN | (l->held ? POLLOUT : 0)) },
                           { .fd = full ? ring_fd(&l->from_free) : -1, .events = POLLIN } };
    if (full && !ring_arm(&l->from_free)) return;
    if (poll(p, 4, gone ? AGAIN_MS : -1) <= 0) return;
    if (p[0].revents) ring_ack(&l->lane.inbox);
    if (p[1].revents) ring_ack(&l->to);
    if (p[3].revents) ring_ack(&l->from_free);
}

static bool can(const struct xfer_lane *l, enum xfer_kind src, enum xfer_kind dst)
{
    (void)l;
    return src == XFER_REMOTE && dst == XFER_HOST;
}

static enum status lane_open(struct xfer_lane *lane)
{
    (void)lane;
    return ST_OK;
}

/* Adds the job to the packet l->out.gets. false: the room that could do it is gone. */
static bool add_get(struct ucx_lane *l, struct xfer_item *it)
{
    uint32_t f = 0;
    if (l->fd < 0 || it->src->epoch <= l->epochs || it->dst->base != l->slab || !l->slab_told) return false;
    while (f < ROOM_FLIGHTS && l->flight[f]) f++;
    CHECK(f < ROOM_FLIGHTS); /* the lane's depth is ROOM_FLIGHTS, so one is free */
    l->flight[f] = it;
    l->out.gets.get[l->out.gets.n++] = (struct room_get){ .flight = f,
                                                          .peer = (uint32_t)it->src->fd,
                                                          .bytes = it->job.bytes,
                                                          .epoch = it->src->epoch - l->epochs,
                                                          .src_off = it->job.src_off,
                                                          .dst_off = it->job.dst_off };
    return true;
}

static void lane_begin(struct xfer_lane *lane, struct xfer_item **item, uint32_t n)
{
    struct ucx_lane *l = of(lane);
    l->out.type = ROOM_GET;
    l->out.gets.n = 0;
    for (uint32_t i = 0; i < n; i++)
        if (!add_get(l, item[i])) lane_done(item[i], ST_PEER_LOST);
    if (!l->out.gets.n || room_send(l->fd, &l->out, -1) == ST_OK) return;
    for (uint32_t i = 0; i < l->out.gets.n; i++) {
        uint32_t f = l->out.gets.get[i].flight;
        lane_done(l->flight[f], ST_PEER_LOST);
        l->flight[f] = NULL;
    }
}

static void lane_reap(struct xfer_lane *lane, bool wait)
{
    uint32_t before = lane->n_begun;
    turn(of(lane));
    if (wait && lane->n_begun == before) {
        wait_for_events(of(lane));
        turn(of(lane));
    }
}

static void lane_sleep(struct xfer_lane *lane)
{
    turn(of(lane));
    wait_for_events(of(lane));
    turn(of(lane));
}

static void lane_close(struct xfer_lane *lane) { leave_room(of(lane)); }

static void lane_free(struct xfer_lane *lane)
{
    struct ucx_lane *l = of(lane);
    if (l->fd >= 0) { /* the lane's thread never started, so lane_close did not end the room */
        close(l->fd);
        (void)waitpid(l->pid, NULL, 0);
    }
    if (l->listener >= 0) close(l->listener);
    ring_free(&l->to);
    ring_free(&l->to_free);
    ring_free(&l->from);
    ring_free(&l->from_free);
    OPENSSL_cleanse(&l->setup, sizeof l->setup);
    free(l->note);
    free(l);
}

/* Called in the owner's thread. The first HOST segment that is `lent` is the slab. */
static enum status seg_add(struct xfer_lane *lane, const struct xfer_seg *seg)
{
    struct ucx_lane *l = of(lane);
    if (seg->kind != XFER_HOST || !seg->lent || l->slab) return ST_OK;
    l->slab = seg->base;
    l->slab_bytes = seg->bytes;
    l->slab_fd = seg->fd;
    atomic_store_explicit(&l->lent, true, memory_order_release);
    ring_wake(&l->to);
    return ST_OK;
}

/* Called in the owner's thread. The drop of the slab ends the room, which has a mapping of its own until then. */
static void seg_drop(struct xfer_lane *lane, const struct xfer_seg *seg)
{
    struct ucx_lane *l = of(lane);
    if (seg->kind != XFER_HOST || !l->slab || seg->base != l->slab) return;
    atomic_store_explicit(&l->closing, true, memory_order_release);
    ring_wake(&l->to);
}

/* false for a slab over RDMA: the network card reads its pages, which must stay pinned. */
static bool seg_unpin(struct xfer_lane *lane, const struct xfer_seg *seg)
{
    const struct ucx_lane *l = of(lane);
    return seg->base != l->slab || l->setup.transport != PEER_RDMA;
}

static const struct lane_ops ops = { .name = "ucx",
                                     .depth = ROOM_FLIGHTS,
                                     .can = can,
                                     .open = lane_open,
                                     .begin = lane_begin,
                                     .reap = lane_reap,
                                     .sleep = lane_sleep,
                                     .close = lane_close,
                                     .free = lane_free,
                                     .seg_add = seg_add,
                                     .seg_drop = seg_drop,
                                     .seg_unpin = seg_unpin };

/* ---- creation */

/* The interface that has this address, for UCX to use alone; false: all of them. */
static bool interface_of(const struct sockaddr *a, char out[IF_NAMESIZE])
{
    struct ifaddrs *list = NULL;
    bool            found = false;
    if (getifaddrs(&list)) return false;
    for (struct ifaddrs *i = list; i && !found; i = i->ifa_next) {
        if (!i->ifa_addr || i->ifa_addr->sa_family != a->sa_family) continue;
        if (a->sa_family == AF_INET)
            found = ((const struct sockaddr_in *)i->ifa_addr)->sin_addr.s_addr ==
                    ((const struct sockaddr_in *)a)->sin_addr.s_addr;
        else if (a->sa_family == AF_INET6)
            found = !memcmp(&((const struct sockaddr_in6 *)i->ifa_addr)->sin6_addr,
                            &((const struct sockaddr_in6 *)a)->sin6_addr, 16);
        if (found) snprintf(out, IF_NAMESIZE, "%s", i->ifa_name);
    }
    freeifaddrs(list);
    return found;
}

/* Opens the listener; *device_out: the interface of its address, or "". */
static enum status listen_at(struct ucx_lane *l, const char *at, char device_out[IF_NAMESIZE], char *err, size_t n)
{
    char            host[256], port[8];
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV | AI_PASSIVE }, *list = NULL;
    const char     *colon = strrchr(at, ':');
    bool            any_port = colon && !strcmp(colon, ":0");
    char            text[300];
    snprintf(text, sizeof text, "%.*s:1", any_port ? (int)(colon - at) : 0, at);
    if (!names_split(any_port ? text : at, host, sizeof host, port)) {
        snprintf(err, n, "'%.200s' is not ADDRESS:PORT", at);
        return ST_CONFIG;
    }
    int e = getaddrinfo(host, any_port ? "0" : port, &hints, &list), on = 1;
    if (e) {
        snprintf(err, n, "%.200s: %s", at, gai_strerror(e));
        return ST_CONFIG;
    }
    int fd = socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0) (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    bool bound = false;
    for (int i = 0; fd >= 0 && !bound && i < BIND_TRIES;
         i++) { /* a server just killed may hold the port a moment longer */
        bound = !bind(fd, list->ai_addr, list->ai_addrlen) && !listen(fd, BACKLOG);
        if (!bound && errno != EADDRINUSE) break;
        if (!bound) nanosleep(&(struct timespec){ .tv_nsec = 50000000 }, NULL);
    }
    struct sockaddr_storage own;
    socklen_t               n_own = sizeof own;
    if (!bound || getsockname(fd, (struct sockaddr *)&own, &n_own)) {
        snprintf(err, n, "%.200s: %s", at, strerror(errno));
        if (fd >= 0) close(fd);
        freeaddrinfo(list);
        return ST_CONFIG;
    }
    if (!interface_of(list->ai_addr, device_out)) *device_out = 0;
    freeaddrinfo(list);
    l->listener = fd;
    l->port = ntohs(own.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&own)->sin6_port
                                              : ((struct sockaddr_in *)&own)->sin_port);
    return ST_OK;
}

static enum status make_notes(struct ucx_lane *l)
{
    l->to.fd = l->to_free.fd = l->from.fd = l->from_free.fd = -1;
    l->note = calloc(2 * LANE_NOTES, sizeof *l->note);
    if (!l->note || ring_init(&l->to, LANE_NOTES) || ring_init(&l->to_free, LANE_NOTES) ||
        ring_init(&l->from, LANE_NOTES) || ring_init(&l->from_free, LANE_NOTES))
        return ST_NOMEM;
    for (uint32_t i = 0; i < LANE_NOTES; i++) {
        CHECK(ring_push_quiet(&l->to_free, &l->note[i]));
        CHECK(ring_push_quiet(&l->from_free, &l->note[LANE_NOTES + i]));
    }
    return ST_OK;
}

static enum status copy_names(struct ucx_lane *l, const struct lane_ucx_cfg *cfg, char *err, size_t n)
{
    char host[256], port[8];
    if (cfg->n_peer > PEERS_MAX) {
        snprintf(err, n, "found %u peers, allowed are %d", cfg->n_peer, PEERS_MAX);
        return ST_CONFIG;
    }
    for (uint32_t i = 0; i < cfg->n_peer; i++) {
        if (!names_split(cfg->peer[i], host, sizeof host, port)) {
            snprintf(err, n, "'%.200s' is not HOST:PORT", cfg->peer[i]);
            return ST_CONFIG;
        }
        snprintf(l->setup.peer[i], ROOM_NAME_BYTES, "%s", cfg->peer[i]);
    }
    l->setup.n_peer = cfg->n_peer;
    return ST_OK;
}

enum status lane_ucx_create(const struct lane_ucx_cfg *cfg, struct xfer_lane **lane_out, struct peer_net **net_out,
                            char *err, size_t err_bytes)
{
#ifndef WITH_UCX
    snprintf(err, err_bytes, "this server was built without UCX (package libucx-dev)");
    return ST_CONFIG;
#endif
    char             device[IF_NAMESIZE] = "";
    struct ucx_lane *l = calloc(1, sizeof *l);
    if (!l) return ST_NOMEM;
    lane_init(&l->lane, &ops);
    l->net.ops = &net_ops;
    l->listener = l->fd = l->slab_fd = -1;
    l->setup.transport = cfg->transport;
    l->setup.names_ms = cfg->names_ms;
    l->setup.listens = cfg->listen != NULL;
    memcpy(l->setup.secret, cfg->secret, sizeof cfg->secret);
    enum status st = make_notes(l);
    CHECK(getrandom(l->setup.id, sizeof l->setup.id, 0) == sizeof l->setup.id);
    if (st) snprintf(err, err_bytes, "no memory for the lane to peers");
    if (!st) st = copy_names(l, cfg, err, err_bytes);
    if (!st && cfg->listen) st = listen_at(l, cfg->listen, device, err, err_bytes);
    if (cfg->transport == PEER_TCP) snprintf(l->setup.device, sizeof l->setup.device, "%s", device);
    if (!st) st = enter_room(l, err, err_bytes);
    if (st) {
        lane_free(&l->lane);
        return st;
    }
    *lane_out = &l->lane;
    *net_out = &l->net;
    return ST_OK;
}

void lane_ucx_id(const struct peer_net *net, unsigned char out[PWIRE_ID])
{
    const struct ucx_lane *l = (const void *)((const char *)net - offsetof(struct ucx_lane, net));
    memcpy(out, l->setup.id, PWIRE_ID);
}

uint32_t lane_ucx_port(const struct peer_net *net)
{
    return ((const struct ucx_lane *)(const void *)((const char *)net - offsetof(struct ucx_lane, net)))->port;
}
