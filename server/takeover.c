/* takeover: the side of the new one. */
#include "server/takeover.h"
#include "base/log.h"
#include "base/thread.h"
#include "server/takeover_impl.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum {
    ANSWER_MS = 5000,  /* the old one answers a word at once */
    FREEZE_MS = 20000, /* but ends what it is copying before it gives its slab away */
    GO_MS = 10000,
    DEAD_MS = 2000, /* from a closed connection to the locks of a process that is gone */
};

static int refuse(struct takeover *t, int code, char *err, size_t n, const char *what)
{
    snprintf(err, n, "--takeover %s: %s", t->path, what);
    return code;
}

/* 0: connected; 1: nobody is there; else an exit code. */
static int meet(struct takeover *t, char *err, size_t n_err)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    snprintf(a.sun_path, sizeof a.sun_path, "%s", t->path);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0) return refuse(t, EXIT_SOFTWARE, err, n_err, strerror(errno));
    if (connect(fd, (const struct sockaddr *)&a, sizeof a)) {
        int why = errno;
        close(fd);
        if (why == ENOENT || why == ECONNREFUSED) return 1; /* ECONNREFUSED: left behind by one that was killed */
        return refuse(t, why == EACCES ? EXIT_PERM : EXIT_CONFIG, err, n_err,
                      why == EPROTOTYPE ? "is no such socket" : strerror(why));
    }
    t->up = fd;
    return take_same_user(fd) ? 0 : refuse(t, EXIT_PERM, err, n_err, "the server there belongs to another user");
}

/* -1: it has closed the connection without a word. */
static int greet(struct takeover *t, char *err, size_t n_err)
{
    struct take_msg m = take_make(TAKE_HELLO, SPILLWAY_VERSION);
    int             fd[TAKE_FDS];
    (void)take_send(t->up, &m, NULL, 0); /* refused unasked, it may be closed already: what is there to read says so */
    enum status st = take_recv(t->up, -1, ANSWER_MS, &m, fd);
    if (st == ST_PEER_LOST) {
        close(t->up);
        t->up = -1;
        refuse(t, EXIT_CONFIG, err, n_err, "the server there hangs up");
        return -1;
    }
    if (st)
        return refuse(t, EXIT_CONFIG, err, n_err,
                      st == ST_TIMEOUT ? "the server there does not answer"
                                       : "what runs there is no server of this kind");
    char what[300];
    if (m.version != TAKE_VERSION) {
        take_close_fds(fd);
        snprintf(what, sizeof what,
                 "the running server speaks version %u of the handover, this one %d; stop it instead", m.version,
                 TAKE_VERSION);
        return refuse(t, EXIT_CONFIG, err, n_err, what);
    }
    if (m.kind == TAKE_WELCOME && fd[0] >= 0 && fd[1] >= 0) {
        t->handed = fd[0];
        t->lease = fd[1];
        LOG_INFO("takeover: following spillway %.100s at %s, which serves until this one is ready", m.text, t->path);
        return 0;
    }
    take_close_fds(fd);
    snprintf(what, sizeof what, "the running server refuses: %.180s",
             m.kind == TAKE_REFUSED ? m.text : "nonsense came");
    return refuse(t, EXIT_CONFIG, err, n_err, what);
}

int takeover_open(const char *path, uint32_t seconds_max, struct takeover **t_out, char *err, size_t n_err)
{
    struct takeover *t = calloc(1, sizeof *t);
    snprintf(err, n_err, "out of memory at start");
    if (!t) return EXIT_SOFTWARE;
    *t_out = t;
    snprintf(t->path, sizeof t->path, "%s", path);
    t->seconds_max = seconds_max;
    t->up = t->lease = t->handed = t->path_fd = t->listen_fd = t->stop_fd = -1;
    pthread_mutex_init(&t->up_lock, NULL);
    int code;
    for (int64_t end = take_now_ms() + DEAD_MS; (code = meet(t, err, n_err)) == 0;) { /* it may be dying just now */
        code = greet(t, err, n_err);
        if (code != -1) return code;
        if (take_now_ms() >= end) return EXIT_CONFIG;
        nanosleep(&(struct timespec){ .tv_nsec = 50000000 }, NULL);
    }
    if (code != 1) return code;
    t->lease = memfd_create("spillway-lease", MFD_CLOEXEC);
    t->alone = true;
    if (t->lease < 0 || !lease_take(t->lease, 0)) return refuse(t, EXIT_SOFTWARE, err, n_err, strerror(errno));
    return 0;
}

bool takeover_follows(const struct takeover *t) { return t && t->up >= 0; }

int takeover_listener(struct takeover *t)
{
    int fd = t ? t->handed : -1;
    if (t) t->handed = -1;
    return fd;
}

bool takeover_slab(struct takeover *t, const struct kv_hand_shape *shape, int *slab_fd_out, int *index_fd_out,
                   unsigned char secret_out[TAKEOVER_SECRET], char *why, size_t n_why)
{
    struct take_msg m = take_make(TAKE_ASK, "");
    int             fd[TAKE_FDS] = { -1, -1 };
    m.shape = *shape;
    pthread_mutex_lock(&t->up_lock); /* takeover_watch would take the answer for something else */
    enum status st = take_send(t->up, &m, NULL, 0);
    if (!st) st = take_recv(t->up, -1, FREEZE_MS, &m, fd);
    bool good = !st && m.version == TAKE_VERSION && m.kind == TAKE_SLAB && fd[0] >= 0 && fd[1] >= 0;
    pthread_mutex_unlock(&t->up_lock);
    if (good) {
        *slab_fd_out = fd[0];
        *index_fd_out = fd[1];
        memcpy(secret_out, m.secret, TAKEOVER_SECRET);
        explicit_bzero(&m, sizeof m);
        return true;
    }
    take_close_fds(fd);
    const char *answer = m.kind == TAKE_NO ? m.text : "nonsense came";
    snprintf(why, n_why, "%.180s", st ? status_name(st) : answer);
    return false;
}

/* The old one's end is closed. */
static int left(struct takeover *t, char *err, size_t n_err)
{
    close(t->up);
    t->up = -1;
    if (!lease_take(t->lease, DEAD_MS))
        return refuse(t, EXIT_SOFTWARE, err, n_err, "the running server has given up waiting, and serves on");
    t->alone = true;
    LOG_WARN("takeover: the server before has gone; this one goes on alone");
    return 1;
}

int takeover_watch(struct takeover *t, char *err, size_t n_err)
{
    struct take_msg m;
    int             fd[TAKE_FDS], code = 0;
    if (!takeover_follows(t) || pthread_mutex_trylock(&t->up_lock)) return 0;
    enum status st = take_recv(t->up, -1, 0, &m, fd);
    if (st == ST_OK) take_close_fds(fd); /* it has nothing to say just now */
    if (st != ST_OK && st != ST_TIMEOUT) code = left(t, err, n_err);
    pthread_mutex_unlock(&t->up_lock);
    return code;
}

int takeover_commit(struct takeover *t, char *err, size_t n_err)
{
    if (t->alone) return 0;
    struct take_msg m = take_make(TAKE_READY, "");
    int             fd[TAKE_FDS] = { -1, -1 };
    enum status     st = take_send(t->up, &m, NULL, 0);
    if (!st) st = take_recv(t->up, -1, GO_MS, &m, fd);
    if (!st) take_close_fds(fd);
    if (!st && m.version == TAKE_VERSION && m.kind == TAKE_GO && lease_take(t->lease, DEAD_MS)) return 0;
    if (st == ST_TIMEOUT)
        return refuse(t, EXIT_SOFTWARE, err, n_err, "the running server does not answer; it is left as it is");
    int code = left(t, err, n_err);
    return code == 1 ? 0 : code;
}

void takeover_serve(struct takeover *t, int listen_fd, const unsigned char secret[TAKEOVER_SECRET],
                    const struct takeover_ops *ops)
{
    memcpy(t->secret, secret, TAKEOVER_SECRET);
    t->ops = *ops;
    t->listen_fd = listen_fd;
    t->stop_fd = eventfd(0, EFD_CLOEXEC);
    if (t->stop_fd < 0 || take_listen(t))
        LOG_WARN("takeover: cannot listen on %s: %s; the next server cannot take over from this one", t->path,
                 strerror(errno));
    else if (thread_start(&t->thread, THREAD_ANY, "takeover", take_main, t))
        take_unlisten(t, true);
    else
        t->started = true;
    if (t->up < 0 || t->alone) return;
    struct take_msg m = take_make(TAKE_TAKEN, "");
    if (take_send(t->up, &m, NULL, 0)) LOG_WARN("takeover: the server before has gone in between");
}

bool takeover_given(const struct takeover *t) { return t && atomic_load(&t->given); }

bool takeover_bye(struct takeover *t)
{
    if (!t || atomic_exchange(&t->said_bye, true)) return true;
    struct take_msg m = take_make(TAKE_BYE, "");
    if (t->up >= 0 && take_send(t->up, &m, NULL, 0) == ST_OK)
        LOG_WARN(
            "takeover: told to end while the server before still drains: that one ends too, and nobody serves then; it would serve "
            "again if this one were killed (SIGKILL)");
    return false;
}

void takeover_close(struct takeover *t)
{
    if (!t) return;
    if (t->started) {
        uint64_t one = 1;
        ssize_t  n = write(t->stop_fd, &one, sizeof one);
        (void)n;
        pthread_join(t->thread, NULL);
    }
    take_unlisten(t, !atomic_load(&t->given));
    const int fd[] = { t->up, t->handed, t->stop_fd };
    for (size_t i = 0; i < sizeof fd / sizeof *fd; i++)
        if (fd[i] >= 0) close(fd[i]);
    /* the lease goes with the process: until then it may still write into its slab */
    pthread_mutex_destroy(&t->up_lock);
    explicit_bzero(t->secret, sizeof t->secret);
    free(t);
}
