/* takeover_old: the side of the server that runs: a thread that waits for the next one and does as it asks, or goes on
 * without it. */
#include "base/log.h"
#include "server/takeover_impl.h"
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { HELLO_MS = 2000, FROZEN_MS = 30000, TAKE_MS = 10000, DEAD_MS = 2000 };

/* ---- the path */

/* Beside it first, then by a rename in its place: there is never a moment without one. */
enum status take_listen(struct takeover *t)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    struct stat        st;
    if (!lstat(t->path, &st) && !S_ISSOCK(st.st_mode)) {
        errno = EEXIST;
        return ST_CONFIG;
    }
    snprintf(a.sun_path, sizeof a.sun_path, "%s.%d", t->path, (int)getpid());
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return ST_IO;
    (void)unlink(a.sun_path);
    /* before bind: the file is made with the socket's own mode */
    if (fchmod(fd, 0600) || bind(fd, (const struct sockaddr *)&a, sizeof a) || listen(fd, 8) || stat(a.sun_path, &st) ||
        chmod(a.sun_path, 0600) || rename(a.sun_path, t->path)) {
        int why = errno;
        (void)unlink(a.sun_path);
        close(fd);
        errno = why;
        return ST_IO;
    }
    t->path_fd = fd;
    t->path_dev = st.st_dev;
    t->path_ino = st.st_ino;
    return ST_OK;
}

void take_unlisten(struct takeover *t, bool remove)
{
    struct stat st;
    if (t->path_fd < 0) return;
    if (remove && !lstat(t->path, &st) && st.st_dev == t->path_dev && st.st_ino == t->path_ino) (void)unlink(t->path);
    close(t->path_fd);
    t->path_fd = -1;
}

/* ---- one that follows */

struct follower {
    struct takeover *t;
    int              fd;
    bool             frozen;
    char             version[40];
};

static void refuse(int fd, const char *why)
{
    struct take_msg m = take_make(TAKE_REFUSED, why);
    (void)take_send(fd, &m, NULL, 0);
    close(fd);
}

static int accept_one(struct takeover *t)
{
    int fd = accept4(t->path_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0 || take_same_user(fd)) return fd;
    LOG_WARN("takeover: another user's process was refused");
    refuse(fd, "it belongs to another user");
    return -1;
}

static bool greeted(struct follower *f)
{
    struct take_msg m;
    int             fd[TAKE_FDS];
    char            why[120];
    enum status     st = take_recv(f->fd, f->t->stop_fd, HELLO_MS, &m, fd);
    if (!st) take_close_fds(fd);
    if (!st && m.version == TAKE_VERSION && m.kind == TAKE_HELLO) {
        snprintf(f->version, sizeof f->version, "%.39s", m.text);
        m = take_make(TAKE_WELCOME, SPILLWAY_VERSION);
        if (!take_send(f->fd, &m, (const int[]){ f->t->listen_fd, f->t->lease }, 2)) return true;
    } else if (!st && m.version != TAKE_VERSION) {
        snprintf(why, sizeof why, "it speaks version %u of the handover, the running server %d", m.version,
                 TAKE_VERSION);
        LOG_WARN("takeover: a new server was refused: %s", why);
        m = take_make(TAKE_REFUSED, why);
        (void)take_send(f->fd, &m, NULL, 0);
    }
    return false;
}

static void thaw(struct follower *f)
{
    if (f->frozen) f->t->ops.thaw(f->t->ops.ctx);
    f->frozen = false;
}

static void give_slab(struct follower *f, const struct kv_hand_shape *theirs)
{
    const struct takeover_ops *o = &f->t->ops;
    struct kv_hand_shape       ours;
    int                        fd[2] = { -1, -1 };
    const char *no = o->shape(o->ctx, &ours) ? kv_hand_differs(&ours, theirs) : "the running server has no host tier";
    if (!no) {
        f->frozen = true;
        enum status st = o->freeze(o->ctx, &fd[0], &fd[1]);
        if (st) no = st == ST_TIMEOUT ? "what was on its way did not end in time" : "no memory for an index";
    }
    struct take_msg m = take_make(no ? TAKE_NO : TAKE_SLAB, no ? no : "");
    if (no) thaw(f);
    LOG_INFO("takeover: %s%s",
             no ? "the new server's host tier starts empty: " : "the host's KV is with the new server", no ? no : "");
    if (!no) memcpy(m.secret, f->t->secret, sizeof m.secret);
    (void)take_send(f->fd, &m, fd, no ? 0 : 2); /* lost: the next thing heard is that */
    explicit_bzero(&m, sizeof m);
}

/* READY came. true: the other holds the lease. */
static bool let_go(struct follower *f)
{
    struct takeover *t = f->t;
    struct take_msg  m = take_make(TAKE_GO, "");
    int              fd[TAKE_FDS];
    enum status      st = take_send(f->fd, &m, NULL, 0);
    if (!st) {
        lease_drop(t->lease);
        st = take_recv(f->fd, t->stop_fd, TAKE_MS, &m, fd);
        if (!st) take_close_fds(fd);
        if (!st && m.kind == TAKE_TAKEN) return true;
    }
    /* It said nothing, or is gone: who has the lease? */
    return !lease_take(t->lease, st == ST_PEER_LOST ? DEAD_MS : 0);
}

enum said { SAID_NOTHING, SAID_READY, SAID_ASK };

/* Waits for the follower's next word; whoever comes beside it is sent away. */
static enum said hear(struct follower *f, int64_t end_ms, struct take_msg *m, const char **why)
{
    struct takeover *t = f->t;
    int              fd[TAKE_FDS];
    for (;;) {
        struct pollfd p[3] = { { .fd = f->fd, .events = POLLIN },
                               { .fd = t->path_fd, .events = POLLIN },
                               { .fd = t->stop_fd, .events = POLLIN } };
        int64_t       left = end_ms - take_now_ms();
        int           n = poll(p, 3, left < 0 ? 0 : (int)left);
        *why = "this one ends";
        if (p[2].revents) return SAID_NOTHING;
        if (n > 0 && p[1].revents) {
            int other = accept_one(t);
            if (other >= 0) refuse(other, "another takeover is under way");
        }
        if (n > 0 && p[0].revents) {
            enum status st = take_recv(f->fd, -1, 0, m, fd);
            if (!st) take_close_fds(fd);
            *why = st || m->kind == TAKE_BYE ? "it has gone" : "it made no sense";
            if (st || m->version != TAKE_VERSION) return SAID_NOTHING;
            if (m->kind == TAKE_READY) return SAID_READY;
            return m->kind == TAKE_ASK ? SAID_ASK : SAID_NOTHING;
        }
        *why = "its time has passed";
        if (take_now_ms() >= end_ms) return SAID_NOTHING;
    }
}

/* true: the follower serves now; its connection stays open, to notice when it dies. */
static bool follow(struct follower *f)
{
    struct takeover *t = f->t;
    struct take_msg  m;
    const char      *why;
    if (!greeted(f)) return false;
    LOG_INFO("takeover: a new server (spillway %s) has come; serving until it is ready, at most %u s", f->version,
             t->seconds_max);
    int64_t end = take_now_ms() + (int64_t)t->seconds_max * 1000;
    for (;;) {
        switch (hear(f, end, &m, &why)) {
        case SAID_ASK:
            give_slab(f, &m.shape);
            if (f->frozen && end > take_now_ms() + FROZEN_MS) end = take_now_ms() + FROZEN_MS;
            continue;
        case SAID_READY:
            if (let_go(f)) return true;
            why = "it did not take what was given";
            break;
        case SAID_NOTHING: break;
        }
        LOG_WARN("takeover: going on without the new server: %s", why);
        thaw(f);
        return false;
    }
}

/* Drains; main does the rest. Returns when this one is to end, or to serve again. */
static void given(struct follower *f)
{
    struct takeover *t = f->t;
    struct take_msg  m;
    int              fd[TAKE_FDS];
    take_unlisten(t, false);
    atomic_store(&t->given, true);
    t->ops.away(t->ops.ctx);
    LOG_INFO("takeover: the new server serves");
    enum status st;
    do {
        st = take_recv(f->fd, t->stop_fd, INT32_MAX, &m, fd);
        if (!st) take_close_fds(fd);
    } while (st == ST_TIMEOUT || (!st && m.kind != TAKE_BYE));
    if (!st || st == ST_CANCELED || atomic_load(&t->said_bye)) return; /* it ends as it should, or we do */
    if (!lease_take(t->lease, DEAD_MS)) return;                        /* it has given it on */
    LOG_WARN("takeover: the new server has died; serving again");
    atomic_store(&t->given, false);
    f->frozen = false;
    t->ops.back(t->ops.ctx);
    if (take_listen(t)) LOG_WARN("takeover: cannot listen on %s again: %s", t->path, strerror(errno));
}

void *take_main(void *arg)
{
    struct takeover *t = arg;
    for (;;) {
        struct pollfd p[2] = { { .fd = t->path_fd, .events = POLLIN }, { .fd = t->stop_fd, .events = POLLIN } };
        int           n = poll(p, 2, -1);
        if (n < 0 && errno != EINTR) return NULL;
        if (p[1].revents) return NULL;
        if (n <= 0 || !p[0].revents) continue;
        struct follower f = { .t = t, .fd = accept_one(t) };
        if (f.fd < 0) continue;
        if (follow(&f)) given(&f);
        if (poll(&p[1], 1, 0) > 0)
            return NULL; /* f.fd closes with the process, whose lease a follower then finds free */
        close(f.fd);
    }
}
