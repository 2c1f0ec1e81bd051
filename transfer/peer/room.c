/* room: the main loop of the process in which UCX runs. Its thread sleeps until a socket, UCX or the lane has an
 * event. */
#ifdef WITH_UCX
#include "base/check.h"
#include "base/clock.h"
#include "base/crash.h"
#include "base/log.h"
#include "transfer/peer/room_impl.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    TURN_MS = 250,
    FLIGHT_MS = 10,
    TALK_US = 50000, /* longest time between two looks at the control connections while others have work */
    NAMES_MS = 10000,
    SETUP_MS = 10000,
    OVER_MANY = 8, /* so many ended GETs are told of at once, so that the lane sends more while the rest is moved */
    POLL_MAX = 5 + PEERS_MAX + PEER_GUESTS_MAX
};

/* ---- to the lane */

/* false: the lane is gone. */
static bool send_notes(struct room *l)
{
    while (l->n_note) {
        l->out.type = ROOM_NOTE;
        l->out.note = l->note[l->note_first];
        enum status st = room_send(l->fd, &l->out, -1);
        if (st) return st == ST_AGAIN;
        l->note_first = (l->note_first + 1) % NOTES_MAX;
        l->n_note--;
    }
    return true;
}

/* Reports the GETs that have ended to the lane; if the socket is full, a later turn does. false: the lane is gone. */
static bool send_over(struct room *l)
{
    if (!l->over.n) return true;
    l->out.type = ROOM_DONE;
    l->out.dones.n = l->over.n;
    memcpy(l->out.dones.done, l->over.done, l->over.n * sizeof *l->over.done);
    enum status st = room_send(l->fd, &l->out, -1);
    if (st) return st == ST_AGAIN;
    for (uint32_t i = 0; i < l->over.n; i++) l->flight[l->over.done[i].flight].used = false;
    l->over.n = 0;
    return true;
}

/* Often called inside a callback of UCX, where nothing may wait. */
static void end_flight(struct room *l, uint32_t flight, enum status st)
{
    CHECK(l->over.n < ROOM_FLIGHTS); /* the lane uses a flight again only after it was told of its end */
    l->over.done[l->over.n++] = (struct room_done){ flight, st };
}

/* ---- GETs */

static void got(void *arg, enum status st)
{
    struct flight *f = arg;
    if (f->from->epoch == f->epoch) {
        f->from->n_flight--;
        f->from->moved_us = clock_us();
    }
    end_flight(f->room, (uint32_t)(f - f->room->flight), st);
}

static void get(struct room *l, const struct room_get *g)
{
    struct speaker *s = &l->peer[g->peer];
    struct flight  *f = &l->flight[g->flight];
    CHECK(g->peer < PEERS_MAX && g->flight < ROOM_FLIGHTS && !f->used);
    CHECK(g->dst_off <= l->slab_bytes && g->bytes <= l->slab_bytes - g->dst_off);
    if (s->state != SPEAKER_UP || s->epoch != g->epoch || g->src_off > s->bytes || g->bytes > s->bytes - g->src_off) {
        f->used = true;
        end_flight(l, g->flight, ST_PEER_LOST);
        return;
    }
    *f = (struct flight){ .room = l, .from = s, .epoch = s->epoch, .used = true };
    if (!s->n_flight++) s->moved_us = clock_us();
    ucx_get(&f->job, s->reach, l->slab + g->dst_off, g->bytes, g->src_off, got, f);
}

static void get_all(struct room *l, const struct room_gets *g)
{
    CHECK(g->n <= ROOM_FLIGHTS);
    for (uint32_t i = 0; i < g->n; i++) get(l, &g->get[i]);
    while (ucx_copy(l->u))
        if (l->over.n >= OVER_MANY) (void)send_over(l); /* a lane that is gone is noticed by hear_lane */
}

/* ---- what the lane says */

static void take_note(struct room *l, const struct peer_note *n)
{
    if (n->type == PEER_IDENT) {
        l->ident.fingerprint = n->fingerprint;
        l->ident.record_bytes = n->record_bytes;
        l->identified = true;
        return;
    }
    struct speaker *s = n->type == PEER_ANSWER ? &l->guest[n->peer] : &l->peer[n->peer];
    if (s->state != SPEAKER_UP || s->epoch != n->epoch) return;
    if (n->type == PEER_DROP) {
        talk_end(l, s, "its blocks are not what they should be", n->wait_ms);
        return;
    }
    struct pwire_msg *m = &l->reply;
    switch (n->type) {
    case PEER_ASK: m->type = PWIRE_LOOKUP; break;
    case PEER_ANSWER: m->type = PWIRE_FOUND; break;
    case PEER_CLAIM: m->type = PWIRE_CLAIM; break;
    default: m->type = PWIRE_RELEASE;
    }
    memcpy(m->id, n->id, sizeof m->id);
    m->done = n->done != 0;
    m->lease = n->lease;
    m->lease_ms = n->lease_ms;
    m->n = n->n;
    if (n->type == PEER_ASK) memcpy(m->key, n->key, n->n * sizeof *m->key);
    if (n->type == PEER_CLAIM) m->key[0] = n->first;
    if (n->type == PEER_ANSWER) memcpy(m->where, n->where, n->n * sizeof *m->where);
    talk_say(l, s, m);
}

static void take_slab(struct room *l, int fd, uint64_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED || l->slab) {
        LOG_ERROR("peer: the memory of blocks cannot be mapped: %s", strerror(errno));
        if (p != MAP_FAILED) munmap(p, bytes);
        return;
    }
    l->slab = p;
    l->slab_bytes = bytes;
    l->lent = ucx_lend(l->u, p, bytes, fd) == ST_OK;
}

/* false: the lane is gone. */
static bool hear_lane(struct room *l)
{
    for (;;) {
        int         fd;
        enum status st = room_recv(l->fd, &l->in, &fd, 0);
        if (st) return st == ST_AGAIN;
        if (l->in.type == ROOM_NOTE) take_note(l, &l->in.note);
        if (l->in.type == ROOM_GET) get_all(l, &l->in.gets);
        if (l->in.type == ROOM_SLAB && fd >= 0) take_slab(l, fd, l->in.slab_bytes);
        if (fd >= 0) close(fd);
    }
}

/* ---- peers by their names */

static bool same_address(const struct names_found *a, const struct names_found *b)
{
    return a->n_addr == b->n_addr && !memcmp(&a->addr, &b->addr, a->n_addr);
}

/* Makes each resolved address a peer. An address that no name resolves to any more is forgotten when its connection
 * has ended. */
static void look_at_names(struct room *l)
{
    struct names_found found[PEERS_MAX];
    uint64_t           round;
    if (!l->names) return;
    uint32_t n = names_get(l->names, found, PEERS_MAX, &round);
    if (round == l->names_round) return;
    l->names_round = round;
    for (uint32_t i = 0; i < PEERS_MAX; i++) l->peer[i].known = false;
    for (uint32_t k = 0; k < n; k++) {
        struct speaker *s = NULL, *room = NULL;
        for (uint32_t i = 0; i < PEERS_MAX; i++) {
            struct speaker *p = &l->peer[i];
            if (p->at.n_addr && same_address(&p->at, &found[k])) s = p;
            if (!room && !p->known && p->state == SPEAKER_OFF && !p->at.n_addr) room = p;
        }
        if (!s && room) {
            s = room;
            s->at = found[k];
            s->myself = s->said = false;
            s->retry_us = s->wait_ms = 0;
        }
        if (s) s->known = true;
    }
    for (uint32_t i = 0; i < PEERS_MAX; i++)
        if (!l->peer[i].known && l->peer[i].state == SPEAKER_OFF) l->peer[i].at.n_addr = 0;
}

static void names_woke(void *arg)
{
    const struct room *l = arg;
    (void)!write(l->wake[1], "", 1); /* a full pipe wakes the reader too */
}

/* ---- the turn */

static void turn(struct room *l)
{
    ucx_progress(l->u);
    uint64_t now = clock_us(); /* behind the times of what has just come */
    if (!l->talk_due && now - l->talked_us < TALK_US) return;
    l->talk_due = false;
    l->talked_us = now;
    look_at_names(l);
    if (l->listener >= 0) talk_accept(l, now);
    talk_connect_due(l, now);
    for (uint32_t i = 0; i < PEERS_MAX; i++) talk_turn(l, &l->peer[i], now);
    for (uint32_t i = 0; i < PEER_GUESTS_MAX; i++) talk_turn(l, &l->guest[i], now);
    ucx_progress(l->u); /* what talking began */
}

static void add_poll(struct pollfd *p, uint32_t *n, int fd, bool out)
{
    p[*n] = (struct pollfd){ .fd = fd, .events = (short)(POLLIN | (out ? POLLOUT : 0)) };
    ++*n;
}

static bool add_speaker(struct pollfd *p, uint32_t *n, const struct speaker *s)
{
    if (s->state == SPEAKER_OFF) return false;
    add_poll(p, n, s->c.fd, s->state == SPEAKER_CONNECTING || s->c.n_out);
    return true;
}

/* Sleeps until a socket, UCX or the lane has an event, or for TURN_MS while connections have time limits to check. */
static void wait_for_events(struct room *l)
{
    struct pollfd p[POLL_MAX];
    uint32_t      n = 0;
    bool          anybody = false;
    char          drop[64];
    add_poll(p, &n, l->wake[0], false);
    add_poll(p, &n, l->fd, l->n_note || l->over.n);
    add_poll(p, &n, ucx_fd(l->u), false);
    add_poll(p, &n, ucx_copy_fd(l->u), false); /* poll leaves a descriptor of -1 alone */
    if (l->listener >= 0) add_poll(p, &n, l->listener, false);
    for (uint32_t i = 0; i < PEERS_MAX; i++) {
        anybody |= l->peer[i].known && !l->peer[i].myself;
        anybody |= add_speaker(p, &n, &l->peer[i]);
    }
    for (uint32_t i = 0; i < PEER_GUESTS_MAX; i++) anybody |= add_speaker(p, &n, &l->guest[i]);
    int ms = anybody ? TURN_MS : -1;
    if (ucx_in_flight(l->u)) ms = FLIGHT_MS; /* UCX has lost wake-ups of GETs before */
    if (!ucx_arm(l->u)) ms = 0;
    if (poll(p, n, ms) <= 0) return;
    if (p[0].revents) (void)!read(l->wake[0], drop, sizeof drop);
    l->talk_due |= p[0].revents != 0;
    for (uint32_t i = 4; i < n; i++) l->talk_due |= p[i].revents != 0; /* behind wake, the lane, UCX and copies */
}

/* ---- life */

static bool set_up(struct room *l)
{
    const char *peer[PEERS_MAX];
    int         fd;
    if (room_recv(l->fd, &l->in, &fd, SETUP_MS) || l->in.type != ROOM_SETUP) return false;
    l->setup = l->in.setup;
    l->listener = l->setup.listens ? fd : -1;
    l->out.type = ROOM_FAILED;
    const char *device = *l->setup.device ? l->setup.device : NULL;
    enum status st = ucx_open(l->setup.transport, device, &l->u, l->out.why, sizeof l->out.why);
    for (uint32_t i = 0; i < l->setup.n_peer; i++) peer[i] = l->setup.peer[i];
    if (!st && l->setup.n_peer) {
        st = names_start(peer, l->setup.n_peer, l->setup.names_ms ? l->setup.names_ms : NAMES_MS, names_woke, l,
                         &l->names);
        if (st) snprintf(l->out.why, sizeof l->out.why, "a peer is named by HOST:PORT, at most %d of them", PEERS_MAX);
    }
    if (!st) l->out.type = ROOM_READY;
    return room_send(l->fd, &l->out, -1) == ST_OK && !st;
}

static int run(int fd)
{
    struct room *l = calloc(1, sizeof *l);
    if (!l) return EXIT_SOFTWARE;
    l->fd = fd;
    for (uint32_t i = 0; i < PEERS_MAX; i++) l->peer[i] = (struct speaker){ .index = i, .c.fd = -1 };
    for (uint32_t i = 0; i < PEER_GUESTS_MAX; i++)
        l->guest[i] = (struct speaker){ .index = i, .c.fd = -1, .guest = true };
    if (pipe2(l->wake, O_CLOEXEC | O_NONBLOCK)) return EXIT_SOFTWARE;
    l->talk_due = true;
    if (!set_up(l)) return EXIT_CONFIG;
    while (hear_lane(l)) {
        turn(l);
        if (!send_over(l) || !send_notes(l)) break;
        wait_for_events(l);
    }
    return 0; /* the server that owns this room has ended or left it; the kernel closes all open files */
}

bool room_main(int n_arg, char **arg, int *code_out)
{
    struct stat st;
    if (n_arg != 3 || strcmp(arg[1], "peer-room")) return false;
    crash_name("spillway peer room");
    int fd = (int)strtol(arg[2], NULL, 10); /* fstat checks it below */
    (void)signal(SIGINT, SIG_IGN);          /* the room ends when its server closes the socket */
    (void)signal(SIGTERM, SIG_IGN);
    (void)signal(SIGHUP, SIG_IGN);
    (void)signal(SIGPIPE, SIG_IGN);
    *code_out = fstat(fd, &st) || !S_ISSOCK(st.st_mode) ? EXIT_USAGE : run(fd);
    if (*code_out != EXIT_USAGE) _exit(*code_out); /* skips the exit handlers of libraries */
    return true;
}
#else
#include "transfer/peer/room.h"

bool room_main(int n_arg, char **arg, int *code_out)
{
    (void)n_arg;
    (void)arg;
    (void)code_out;
    return false;
}
#endif
