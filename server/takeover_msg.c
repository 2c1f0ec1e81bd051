/* takeover_msg: packets with file descriptors, and the lease. */
#include "base/clock.h"
#include "server/takeover_impl.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static const char MAGIC[8] = { 'S', 'P', 'W', 'T', 'A', 'K', 'E', 0 };

int64_t take_now_ms(void) { return (int64_t)(clock_us() / 1000); }

struct take_msg take_make(enum take_kind kind, const char *text)
{
    struct take_msg m;
    memset(&m, 0, sizeof m);
    memcpy(m.magic, MAGIC, sizeof MAGIC);
    m.version = TAKE_VERSION;
    m.kind = kind;
    snprintf(m.text, sizeof m.text, "%s", text);
    return m;
}

enum status take_send(int fd, const struct take_msg *m, const int *fds, uint32_t n_fd)
{
    union {
        struct cmsghdr align;
        char           bytes[CMSG_SPACE(TAKE_FDS * sizeof(int))];
    } control;
    struct iovec  iov = { .iov_base = (void *)(uintptr_t)m, .iov_len = sizeof *m };
    struct msghdr h = { .msg_iov = &iov, .msg_iovlen = 1 };
    memset(&control, 0, sizeof control);
    if (n_fd) {
        h.msg_control = control.bytes;
        h.msg_controllen = CMSG_SPACE(n_fd * sizeof(int));
        struct cmsghdr *c = CMSG_FIRSTHDR(&h);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(n_fd * sizeof(int));
        memcpy(CMSG_DATA(c), fds, n_fd * sizeof(int));
    }
    ssize_t n;
    do
        n = sendmsg(fd, &h,
                    MSG_NOSIGNAL |
                        MSG_DONTWAIT); /* a handful of small packets: a full buffer is a peer that does not read */
    while (n < 0 && errno == EINTR);
    return n == (ssize_t)sizeof *m ? ST_OK : ST_PEER_LOST;
}

void take_close_fds(const int *fds)
{
    for (int i = 0; i < TAKE_FDS; i++)
        if (fds[i] >= 0) close(fds[i]);
}

static enum status wait_readable(int fd, int stop_fd, int64_t limit_ms)
{
    int64_t end = take_now_ms() + limit_ms;
    for (;;) {
        struct pollfd p[2] = { { .fd = fd, .events = POLLIN }, { .fd = stop_fd, .events = POLLIN } };
        int64_t       left = end - take_now_ms();
        int           wait_ms = left > 1000000 ? 1000000 : (int)left;
        int           n = left < 0 ? 0 : poll(p, 2, wait_ms);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return ST_PEER_LOST;
        if (p[1].revents) return ST_CANCELED;
        if (p[0].revents) return ST_OK;
        if (take_now_ms() >= end) return ST_TIMEOUT;
    }
}

enum status take_recv(int fd, int stop_fd, int64_t limit_ms, struct take_msg *m, int *fds_out)
{
    union {
        struct cmsghdr align;
        char           bytes[CMSG_SPACE(8 * sizeof(int))];
    } control;
    char          bytes[TAKE_MAX];
    struct iovec  iov = { .iov_base = bytes, .iov_len = sizeof bytes };
    struct msghdr h = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control
    };
    for (int i = 0; i < TAKE_FDS; i++) fds_out[i] = -1;
    enum status st = wait_readable(fd, stop_fd, limit_ms);
    if (st) return st;
    ssize_t n;
    bool    reset = false; /* it closed without having read all of ours; what it had said before is still there */
    while ((n = recvmsg(fd, &h, MSG_CMSG_CLOEXEC | MSG_DONTWAIT)) < 0 &&
           (errno == EINTR || (errno == ECONNRESET && !reset)))
        reset |= errno == ECONNRESET;
    uint32_t n_fd = 0;
    for (struct cmsghdr *c = n >= 0 ? CMSG_FIRSTHDR(&h) : NULL; c; c = CMSG_NXTHDR(&h, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
        size_t many = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < many; i++) {
            int got;
            memcpy(&got, CMSG_DATA(c) + i * sizeof(int), sizeof got);
            if (n_fd < TAKE_FDS)
                fds_out[n_fd++] = got;
            else
                close(got);
        }
    }
    if (n <= 0) return ST_PEER_LOST;
    memset(m, 0, sizeof *m);
    memcpy(m, bytes, (size_t)n < sizeof *m ? (size_t)n : sizeof *m);
    m->text[sizeof m->text - 1] = 0;
    /* of another version only the first fields are known: whoever asked says so */
    if ((size_t)n >= offsetof(struct take_msg, shape) && !memcmp(m->magic, MAGIC, sizeof MAGIC) &&
        !(h.msg_flags & MSG_CTRUNC) &&
        (m->version != TAKE_VERSION || ((size_t)n == sizeof *m && m->kind > 0 && m->kind < TAKE_KINDS)))
        return ST_OK;
    take_close_fds(fds_out);
    for (int i = 0; i < TAKE_FDS; i++) fds_out[i] = -1;
    return ST_INVALID;
}

bool take_same_user(int fd)
{
    struct ucred c;
    socklen_t    n = sizeof c;
    return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &c, &n) && n == sizeof c && c.uid == geteuid();
}

/* ---- the lease: a lock of the process, not of the descriptor, so there must be one descriptor of it in a process and
 * no more: closing any of them would let go. */

static bool lease_set(int lease, short type)
{
    struct flock l = { .l_type = type, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1 };
    return fcntl(lease, F_SETLK, &l) == 0;
}

bool lease_take(int lease, int64_t limit_ms)
{
    int64_t end = take_now_ms() + limit_ms;
    for (;;) { /* of a process that is dying the connection may close before its locks go */
        if (lease_set(lease, F_WRLCK)) return true;
        if (take_now_ms() >= end) return false;
        nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
    }
}

void lease_drop(int lease) { (void)lease_set(lease, F_UNLCK); }
