/* The packets of a takeover, and the lease that says who serves. The rest is between processes:
 * tests/e2e/takeover.py. */
#include "base/rng.h"
#include "server/takeover_impl.h"
#include "test.h"
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static uint32_t open_fds(void)
{
    DIR     *d = opendir("/proc/self/fd");
    uint32_t n = 0;
    assert_non_null(d);
    while (readdir(d)) n++;
    closedir(d);
    return n;
}
static void pair(int s[2]) { assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, s), 0); }

static void a_packet_arrives_with_its_descriptors(void **state)
{
    (void)state;
    int             s[2], p[2], fd[TAKE_FDS];
    struct take_msg out = take_make(TAKE_SLAB, "words"), in;
    char            c = 0;
    uint32_t        before = open_fds();
    pair(s);
    assert_int_equal(pipe(p), 0);
    out.shape.n_slot = 77;
    assert_int_equal(take_send(s[0], &out, p, 2), ST_OK);
    assert_int_equal(take_recv(s[1], -1, 1000, &in, fd), ST_OK);
    assert_memory_equal(&in, &out, sizeof in);
    assert_true(fd[0] >= 0 && fd[1] >= 0 && fcntl(fd[0], F_GETFD) == FD_CLOEXEC);
    assert_int_equal(write(fd[1], "x", 1), 1); /* the same pipe */
    assert_int_equal(read(p[0], &c, 1), 1);
    assert_int_equal(c, 'x');
    take_close_fds(fd);
    assert_int_equal(take_recv(s[1], -1, 0, &in, fd), ST_TIMEOUT);
    close(p[0]);
    close(p[1]);
    close(s[0]);
    assert_int_equal(take_recv(s[1], -1, 1000, &in, fd), ST_PEER_LOST);
    close(s[1]);
    assert_int_equal(open_fds(), before);
}

static void anything_else_is_refused_and_leaves_no_descriptor(void **state)
{
    (void)state;
    int             s[2], fd[TAKE_FDS];
    struct take_msg good = take_make(TAKE_GO, ""), in;
    unsigned char   bytes[1024];
    uint32_t        before;
    pair(s);
    before = open_fds();
    for (uint32_t n = 0; n < 2000; n++) {
        struct rng_block r = rng_philox(7, 1, n);
        size_t           len = 1 + r.x[0] % sizeof bytes;
        for (size_t i = 0; i < len; i++) bytes[i] = (unsigned char)rng_philox(7, 2 + n, i).x[0];
        if (n % 2) memcpy(bytes, &good, len < sizeof good ? len : sizeof good); /* ours, of another length */
        if (len == sizeof good) continue;
        struct iovec iov = { bytes, len };
        union {
            struct cmsghdr align;
            char           bytes[CMSG_SPACE(5 * sizeof(int))];
        } control = { 0 };
        struct msghdr h = {
            .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes
        };
        struct cmsghdr *c = CMSG_FIRSTHDR(&h);
        int             five[5] = { 0, 0, 0, 0, 0 };
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof five);
        memcpy(CMSG_DATA(c), five, sizeof five);
        assert_true(sendmsg(s[0], &h, 0) == (ssize_t)len);
        assert_int_equal(take_recv(s[1], -1, 1000, &in, fd), ST_INVALID);
        assert_int_equal(fd[0], -1);
    }
    assert_int_equal(open_fds(), before);
    /* another version is let through, for whoever reads it to say so; a kind that there is not is not */
    struct take_msg m = take_make(TAKE_HELLO, "");
    m.version = 9;
    assert_int_equal(send(s[0], &m, 40, 0), 40);
    assert_int_equal(take_recv(s[1], -1, 1000, &in, fd), ST_OK);
    assert_int_equal(in.version, 9);
    m = take_make(TAKE_KINDS, "");
    assert_int_equal(take_send(s[0], &m, NULL, 0), ST_OK);
    assert_int_equal(take_recv(s[1], -1, 1000, &in, fd), ST_INVALID);
    memset(m.text, 'a', sizeof m.text); /* a text without an end */
    m.kind = TAKE_NO;
    assert_int_equal(take_send(s[0], &m, NULL, 0), ST_OK);
    assert_int_equal(take_recv(s[1], -1, 1000, &in, fd), ST_OK);
    assert_int_equal(strlen(in.text), sizeof in.text - 1);
    close(s[0]);
    close(s[1]);
}

static void a_message_that_was_sent_before_a_hang_up_is_received(void **state)
{
    (void)state;
    int             s[2], fd[TAKE_FDS];
    struct take_msg hello = take_make(TAKE_HELLO, ""), no = take_make(TAKE_REFUSED, "busy"), in;
    pair(s);
    assert_int_equal(take_send(s[1], &hello, NULL, 0), ST_OK); /* never read */
    assert_int_equal(take_send(s[0], &no, NULL, 0), ST_OK);
    close(s[0]);
    assert_int_equal(take_recv(s[1], -1, 1000, &in, fd), ST_OK);
    assert_string_equal(in.text, "busy");
    assert_int_equal(take_recv(s[1], -1, 1000, &in, fd), ST_PEER_LOST);
    close(s[1]);
}

/* Of one process alone, and of nobody when that has died, however. */
static void the_lease_is_held_by_one_process_and_dies_with_it(void **state)
{
    (void)state;
    int  lease = memfd_create("test", MFD_CLOEXEC), p[2], q[2];
    char c;
    assert_true(lease >= 0);
    assert_int_equal(pipe(p), 0);
    assert_int_equal(pipe(q), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        bool have = lease_take(lease, 0);
        (void)!write(p[1], have ? "y" : "n", 1);
        (void)!read(q[0], &c, 1);
        for (;;) pause();
    }
    assert_int_equal(read(p[0], &c, 1), 1);
    assert_int_equal(c, 'y');
    assert_false(lease_take(lease, 30));
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_true(lease_take(lease, 0));
    child = fork();
    if (child == 0) _exit(lease_take(lease, 0) ? 1 : 0);
    int code;
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_int_equal(code, 0);
    lease_drop(lease);
    child = fork();
    if (child == 0) _exit(lease_take(lease, 0) ? 0 : 1);
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_int_equal(code, 0);
    close(lease);
    close(p[0]);
    close(p[1]);
    close(q[0]);
    close(q[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_packet_arrives_with_its_descriptors),
        cmocka_unit_test(anything_else_is_refused_and_leaves_no_descriptor),
        cmocka_unit_test(a_message_that_was_sent_before_a_hang_up_is_received),
        cmocka_unit_test(the_lease_is_held_by_one_process_and_dies_with_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
