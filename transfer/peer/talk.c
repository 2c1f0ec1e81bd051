/* talk: the states of a control connection: greeting, proof, questions and answers, and the loss of the other end. */
#ifdef WITH_UCX
#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "transfer/peer/room_impl.h"
#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

enum { GREET_US = 5000000, WAIT_MIN_MS = 250, WAIT_MAX_MS = 10000 };

static const char *who(const struct speaker *s) { return s->at.text; }

/* Behind the name of the transport: over shm one way is ten times quicker than the other. */
static const char *how(const struct room *l, const struct speaker *s)
{
    if (l->setup.transport != PEER_SHM) return "";
    return ucx_near(s->reach) ? " (its memory is mapped here)" : " (in pieces: its memory cannot be mapped here)";
}

/* ---- ends */

void talk_end(struct room *l, struct speaker *s, const char *why, uint32_t wait_ms)
{
    if (s->state == SPEAKER_OFF) return;
    bool was_up = s->state == SPEAKER_UP;
    if (was_up) {
        struct peer_note *n = note_new(l, true, s->guest ? PEER_GONE : PEER_DOWN, s);
        CHECK(n); /* NOTES_SPARE keeps a place for it */
    }
    if (s->reach) ucx_leave(s->reach);
    s->reach = NULL;
    pconn_close(&s->c);
    s->state = SPEAKER_OFF;
    if (s->guest) {
        if (was_up)
            LOG_INFO("peer: %s asks no more: %s", who(s), why);
        else
            LOG_WARN_LIMITED("peer: a connection from %s is dropped: %s", who(s), why);
        return;
    }
    if (was_up) s->wait_ms = 0;
    s->wait_ms = s->wait_ms ? s->wait_ms * 2 : WAIT_MIN_MS;
    if (s->wait_ms > WAIT_MAX_MS) s->wait_ms = WAIT_MAX_MS;
    s->retry_us = clock_us() + (wait_ms ? wait_ms : s->wait_ms) * (uint64_t)1000;
    if (was_up || !s->said)
        LOG_WARN("peer: %s %s: %s; it is tried again and again", who(s), was_up ? "is lost" : "cannot be used", why);
    s->said = true;
}

void talk_say(struct room *l, struct speaker *s, const struct pwire_msg *m)
{
    if (s->state == SPEAKER_OFF) return;
    if (!pconn_put(&s->c, m))
        talk_end(l, s, "it does not read", 0);
    else if (pconn_write(&s->c))
        talk_end(l, s, "the connection broke", 0);
}

/* ---- begins */

static void greet(struct room *l, struct speaker *s, enum pwire_type type)
{
    CHECK(getrandom(s->random, sizeof s->random, 0) == sizeof s->random);
    l->reply.type = type;
    memcpy(l->reply.random, s->random, sizeof s->random);
    memcpy(l->reply.id, l->setup.id, sizeof l->setup.id);
    talk_say(l, s, &l->reply);
}

static bool begin(struct room *l, struct speaker *s, int fd, uint64_t now)
{
    if (pconn_open(&s->c, fd, s->guest)) return false;
    s->epoch = ++l->epoch;
    s->n_flight = 0; /* GETs of the connection before are not counted: their epoch differs */
    s->begin_us = s->heard_us = s->pinged_us = s->moved_us = now;
    return true;
}

static void connect_one(struct room *l, struct speaker *s, uint64_t now)
{
    int fd = socket(s->at.addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || !begin(l, s, fd, now)) {
        s->retry_us = now + WAIT_MAX_MS * (uint64_t)1000;
        return;
    }
    s->state = SPEAKER_CONNECTING;
    if (connect(fd, (struct sockaddr *)&s->at.addr, s->at.n_addr) && errno != EINPROGRESS)
        talk_end(l, s, strerror(errno), 0);
}

void talk_connect_due(struct room *l, uint64_t now)
{
    for (uint32_t i = 0; i < PEERS_MAX; i++) {
        struct speaker *s = &l->peer[i];
        if (!s->known || s->myself || s->state != SPEAKER_OFF || now < s->retry_us || !l->identified) continue;
        if (notes_wait(l)) return; /* the ring is filled up to its spare places: the engine does not read just now */
        connect_one(l, s, now);
    }
}

void talk_accept(struct room *l, uint64_t now)
{
    for (;;) {
        struct names_found at = { .n_addr = sizeof at.addr };
        int fd = accept4(l->listener, (struct sockaddr *)&at.addr, &at.n_addr, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) return;
        struct speaker *s = l->guest;
        while (s < l->guest + PEER_GUESTS_MAX && s->state != SPEAKER_OFF) s++;
        if (s == l->guest + PEER_GUESTS_MAX || notes_wait(l)) {
            LOG_WARN_LIMITED("peer: too many connections, one more is refused");
            close(fd);
            continue;
        }
        names_text(&at);
        s->at = at;
        if (begin(l, s, fd, now)) s->state = SPEAKER_GREETED;
    }
}

/* ---- as server */

static void hear_hello(struct room *l, struct speaker *s)
{
    unsigned char theirs[PWIRE_RANDOM], key[PWIRE_SECRET];
    memcpy(theirs, l->msg.random, sizeof theirs);
    greet(l, s, PWIRE_CHALLENGE);
    if (s->state == SPEAKER_OFF) return;
    pwire_session_key(key, l->setup.secret, theirs, s->random);
    pconn_seal(&s->c, key);
    s->state = SPEAKER_PROVING;
}

static void hear_proof(struct room *l, struct speaker *s)
{
    struct pwire_msg *w = &l->reply;
    const void       *p;
    w->type = PWIRE_WELCOME;
    w->verdict = PWIRE_MAY;
    if (memcmp(&l->msg.fingerprint, &l->ident.fingerprint, sizeof l->msg.fingerprint) ||
        l->msg.record_bytes != l->ident.record_bytes)
        w->verdict = PWIRE_OTHER_BLOCKS;
    if (l->msg.transport != l->setup.transport) w->verdict = PWIRE_OTHER_TRANSPORT;
    if (!l->identified || !l->lent) w->verdict = PWIRE_NOT_NOW;
    w->epoch = s->epoch;
    w->slab_base = (uintptr_t)l->slab;
    w->slab_bytes = l->slab_bytes;
    w->n_address = w->n_rkey = 0;
    if (w->verdict == PWIRE_MAY) { /* a refused guest does not get the address and the rkey */
        p = ucx_address(l->u, &w->n_address);
        memcpy(w->address, p, w->n_address);
        p = ucx_rkey(l->u, &w->n_rkey);
        memcpy(w->rkey, p, w->n_rkey);
    }
    s->state = w->verdict == PWIRE_MAY ? SPEAKER_UP : SPEAKER_LEAVING;
    if (w->verdict == PWIRE_MAY) LOG_INFO("peer: %s may read here", who(s));
    talk_say(l, s, w);
}

static void hear_lookup(struct room *l, struct speaker *s)
{
    struct peer_note *n = note_new(l, false, PEER_ASKED, s);
    if (!n) return; /* the guest's question gets no answer and times out there */
    n->lease = l->msg.lease;
    n->n = l->msg.n;
    memcpy(n->key, l->msg.key, l->msg.n * sizeof *n->key);
}

static void hear_release(struct room *l, struct speaker *s)
{
    struct peer_note *n = note_new(l, false, PEER_GAVE_BACK, s);
    if (!n) return; /* the lease ends at its time limit */
    n->lease = l->msg.lease;
    n->n = l->msg.n;
}

static void hear_claim(struct room *l, struct speaker *s)
{
    struct peer_note *n = note_new(l, false, PEER_CLAIMED, s);
    if (!n) return; /* the parcel ends at its time limit */
    memcpy(n->id, l->msg.id, sizeof n->id);
    n->first = l->msg.key[0];
    n->done = l->msg.done;
    n->n = l->msg.n;
}

/* ---- as client */

static void hear_challenge(struct room *l, struct speaker *s)
{
    unsigned char key[PWIRE_SECRET];
    memcpy(s->id, l->msg.id, sizeof s->id);
    if (!memcmp(s->id, l->setup.id, sizeof s->id)) { /* a name of all servers resolves to this one too */
        s->myself = s->said = true;
        pconn_close(&s->c);
        s->state = SPEAKER_OFF;
        return;
    }
    pwire_session_key(key, l->setup.secret, s->random, l->msg.random);
    pconn_seal(&s->c, key);
    l->reply.type = PWIRE_PROOF;
    l->reply.fingerprint = l->ident.fingerprint;
    l->reply.record_bytes = l->ident.record_bytes;
    l->reply.transport = l->setup.transport;
    s->state = SPEAKER_PROVING;
    talk_say(l, s, &l->reply);
}

static void hear_welcome(struct room *l, struct speaker *s)
{
    static const char *const no[PWIRE_VERDICTS] = {
        [PWIRE_OTHER_BLOCKS] = "it serves another model, or holds blocks of another kind",
        [PWIRE_NOT_NOW] = "it is not ready",
        [PWIRE_OTHER_TRANSPORT] = "it has another --kv-peer-transport",
    };
    const struct pwire_msg *m = &l->msg;
    char                    err[300];
    if (m->verdict != PWIRE_MAY) {
        talk_end(l, s, no[m->verdict], 0);
        return;
    }
    struct ucx_there there = {
        .address = m->address, .rkey = m->rkey, .n_rkey = m->n_rkey, .base = m->slab_base, .bytes = m->slab_bytes
    };
    if (!m->n_address || !m->n_rkey || !m->slab_bytes || ucx_reach(l->u, &there, &s->reach, err, sizeof err)) {
        s->reach = NULL;
        talk_end(l, s, m->n_address ? err : "its address is empty", 0);
        return;
    }
    s->state = SPEAKER_UP;
    s->said = false;
    s->wait_ms = 0;
    s->bytes = m->slab_bytes;
    LOG_INFO("peer: %s is connected over %s%s, %.2f GiB of blocks lie there", who(s),
             peer_transport_name[l->setup.transport], how(l, s), (double)s->bytes / (1 << 30));
    struct peer_note *n = note_new(l, true, PEER_UP, s);
    CHECK(n);
    n->bytes = s->bytes;
    memcpy(n->id, s->id, sizeof n->id);
}

static void hear_found(struct room *l, struct speaker *s)
{
    struct peer_note *n = note_new(l, false, PEER_ANSWERED, s);
    if (!n) return;
    n->lease = l->msg.lease;
    n->n = l->msg.n;
    n->lease_ms = l->msg.lease_ms;
    memcpy(n->where, l->msg.where, l->msg.n * sizeof *n->where);
}

/* ---- both */

/* Handles one message. false: its type is not allowed in this state. */
static bool hear(struct room *l, struct speaker *s)
{
    enum pwire_type t = l->msg.type;
    if (t == PWIRE_PING && s->state == SPEAKER_UP) {
        l->reply.type = PWIRE_PONG;
        l->reply.lease = l->msg.lease;
        talk_say(l, s, &l->reply);
        return true;
    }
    if (t == PWIRE_PONG) return s->state == SPEAKER_UP;
    const struct {
        bool               guest;
        enum speaker_state state;
        enum pwire_type    type;
        void (*hear)(struct room *, struct speaker *);
    } row[] = {
        { true, SPEAKER_GREETED, PWIRE_HELLO, hear_hello }, { false, SPEAKER_GREETED, PWIRE_CHALLENGE, hear_challenge },
        { true, SPEAKER_PROVING, PWIRE_PROOF, hear_proof }, { false, SPEAKER_PROVING, PWIRE_WELCOME, hear_welcome },
        { true, SPEAKER_UP, PWIRE_LOOKUP, hear_lookup },    { false, SPEAKER_UP, PWIRE_FOUND, hear_found },
        { true, SPEAKER_UP, PWIRE_RELEASE, hear_release },  { true, SPEAKER_UP, PWIRE_CLAIM, hear_claim },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        if (row[i].guest == s->guest && row[i].state == s->state && row[i].type == t) {
            row[i].hear(l, s);
            return true;
        }
    return false;
}

static void hear_all(struct room *l, struct speaker *s, uint64_t now)
{
    bool lost = pconn_read(&s->c) != ST_OK;
    for (enum status st = ST_OK; s->state != SPEAKER_OFF && !st;) {
        st = pconn_next(&s->c, &l->msg);
        if (st == ST_AGAIN) break;
        if (st == ST_CONFIG) {
            talk_end(l, s, "it speaks another version", 0);
        } else if (st) {
            talk_end(l, s, s->state == SPEAKER_PROVING ? "its key is another one" : "what it says makes no sense", 0);
        } else {
            s->heard_us = now;
            if (!hear(l, s)) talk_end(l, s, "it says what has no place here", 0);
        }
    }
    if (!lost || s->state == SPEAKER_OFF) return;
    talk_end(l, s,
             s->state == SPEAKER_PROVING && !s->guest ? "it closed the connection; is its key another one?"
                                                      : "the connection was closed",
             0);
}

/* Checks the time limits of greetings, of silence and of GETs, and pings a peer when that is due. */
static void look_at_clocks(struct room *l, struct speaker *s, uint64_t now)
{
    uint64_t silent = s->guest ? PEER_GUEST_SILENT_US : PEER_SILENT_US;
    if (s->state != SPEAKER_UP) {
        if (now - s->begin_us > GREET_US) talk_end(l, s, "it says nothing", 0);
        return;
    }
    if (now - s->heard_us > silent) {
        talk_end(l, s, "it does not answer", 0);
    } else if (s->reach && ucx_lost(s->reach)) {
        talk_end(l, s, "UCX has lost it", 0);
    } else if (s->n_flight && now - s->moved_us > PEER_STALL_US) {
        talk_end(l, s, "its blocks do not come", 0);
    } else if (!s->guest && now - s->pinged_us > PEER_PING_US) {
        s->pinged_us = now;
        l->reply.type = PWIRE_PING;
        l->reply.lease = now;
        talk_say(l, s, &l->reply);
    }
}

static void come_through(struct room *l, struct speaker *s)
{
    int                     e = 0;
    socklen_t               n = sizeof e;
    struct sockaddr_storage a;
    socklen_t               n_a = sizeof a;
    if (getsockopt(s->c.fd, SOL_SOCKET, SO_ERROR, &e, &n) || e) {
        talk_end(l, s, strerror(e), 0);
        return;
    }
    if (getpeername(s->c.fd, (struct sockaddr *)&a, &n_a)) return; /* still connecting */
    s->state = SPEAKER_GREETED;
    greet(l, s, PWIRE_HELLO);
}

void talk_turn(struct room *l, struct speaker *s, uint64_t now)
{
    if (s->state == SPEAKER_OFF) return;
    if (s->state == SPEAKER_CONNECTING) come_through(l, s);
    if (s->state == SPEAKER_LEAVING && !s->c.n_out) {
        talk_end(l, s, "it has other blocks, another transport, or this server is not ready", 0);
        return;
    }
    if (s->state != SPEAKER_OFF && s->state != SPEAKER_CONNECTING) {
        if (s->c.n_out && pconn_write(&s->c))
            talk_end(l, s, "the connection broke", 0);
        else
            hear_all(l, s, now);
    }
    if (s->state != SPEAKER_OFF) look_at_clocks(l, s, now);
}
#else
typedef int talk_is_left_out; /* ISO C forbids an empty file */
#endif
