/* room_link: starts the process of room.h, and moves packets between it and the lane. */
#include "base/check.h"
#include "transfer/peer/room.h"
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

extern char **environ;

enum { SOCKET_BYTES = 1 << 20 };

enum status room_start(int *fd_out, pid_t *pid_out)
{
    int                        pair[2], bytes = SOCKET_BYTES;
    posix_spawn_file_actions_t files;
    posix_spawnattr_t          how;
    sigset_t                   none, all;
    char                       name[] = "spillway", word[] = "peer-room", number[] = "3";
    char                      *arg[] = { name, word, number, NULL };
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair)) return ST_IO;
    for (int i = 0; i < 2; i++) (void)setsockopt(pair[i], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&how);
    posix_spawn_file_actions_adddup2(&files, pair[1], 3);
    posix_spawnattr_setsigmask(&how, &none);
    posix_spawnattr_setsigdefault(&how, &all);
    posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    int e = posix_spawn(pid_out, "/proc/self/exe", &files, &how, arg, environ);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&how);
    close(pair[1]);
    if (e) {
        close(pair[0]);
        errno = e;
        return ST_IO;
    }
    *fd_out = pair[0];
    return ST_OK;
}

/* Bytes of a packet on the socket: of a note's list only the n entries that are filled. */
static size_t bytes_of(const struct room_packet *p)
{
    size_t at = offsetof(struct room_packet, setup);
    switch (p->type) {
    case ROOM_SETUP: return at + sizeof p->setup;
    case ROOM_SLAB: return at + sizeof p->slab_bytes;
    case ROOM_GET:
        CHECK(p->gets.n <= ROOM_FLIGHTS);
        return offsetof(struct room_packet, gets.get) + p->gets.n * sizeof *p->gets.get;
    case ROOM_READY: return at;
    case ROOM_FAILED: return at + sizeof p->why;
    case ROOM_DONE:
        CHECK(p->dones.n <= ROOM_FLIGHTS);
        return offsetof(struct room_packet, dones.done) + p->dones.n * sizeof *p->dones.done;
    case ROOM_NOTE: break;
    }
    bool keys = p->note.type == PEER_ASK || p->note.type == PEER_ASKED;
    bool where = p->note.type == PEER_ANSWER || p->note.type == PEER_ANSWERED;
    CHECK((!keys && !where) || p->note.n <= PWIRE_KEYS_MAX);
    size_t head = offsetof(struct room_packet, note.key);
    if (keys) return head + p->note.n * sizeof *p->note.key;
    return where ? head + p->note.n * sizeof *p->note.where : head;
}

enum status room_send(int fd, const struct room_packet *p, int pass_fd)
{
    union {
        struct cmsghdr head;
        char           bytes[CMSG_SPACE(sizeof(int))];
    } control = { .bytes = { 0 } };
    struct iovec  v = { .iov_base = (void *)(uintptr_t)p, .iov_len = bytes_of(p) };
    struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1 };
    if (pass_fd >= 0) {
        m.msg_control = control.bytes;
        m.msg_controllen = sizeof control.bytes;
        control.head =
            (struct cmsghdr){ .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS };
        memcpy(CMSG_DATA(&control.head), &pass_fd, sizeof pass_fd);
    }
    for (;;) {
        if (sendmsg(fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return ST_OK;
        if (errno == EINTR) continue;
        return errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS ? ST_AGAIN : ST_PEER_LOST;
    }
}

enum status room_recv(int fd, struct room_packet *p, int *fd_out, int wait_ms)
{
    union {
        struct cmsghdr head;
        char           bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec  v = { .iov_base = p, .iov_len = sizeof *p };
    struct msghdr m = {
        .msg_iov = &v, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes
    };
    struct pollfd w = { .fd = fd, .events = POLLIN };
    ssize_t       n;
    *fd_out = -1;
    if (wait_ms && poll(&w, 1, wait_ms) <= 0) return ST_AGAIN;
    do n = recvmsg(fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return ST_AGAIN;
    if (n < (ssize_t)offsetof(struct room_packet, setup)) return ST_PEER_LOST;
    const struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    if (c && c->cmsg_type == SCM_RIGHTS) memcpy(fd_out, CMSG_DATA(c), sizeof *fd_out);
    return ST_OK;
}
