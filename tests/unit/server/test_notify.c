#include "server/notify.h"
#include "tests/scratch.h"
#include "tests/test.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static struct notify n;

/* A manager's socket at a path, or under an abstract name that begins with '@'. */
static int listen_at(const char *name)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    size_t             len = strlen(name);
    int                fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    memcpy(a.sun_path, name, len);
    if (*name == '@') a.sun_path[0] = 0;
    assert_int_equal(bind(fd, (struct sockaddr *)&a, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len)), 0);
    return fd;
}

static const char *heard(int fd)
{
    static char text[600];
    ssize_t     got = recv(fd, text, sizeof text - 1, 0);
    text[got > 0 ? got : 0] = 0;
    return text;
}

static int clear(void **state)
{
    (void)state;
    unsetenv("NOTIFY_SOCKET");
    unsetenv("WATCHDOG_USEC");
    unsetenv("WATCHDOG_PID");
    notify_close(&n);
    return 0;
}

static void without_a_manager_nothing_is_told(void **state)
{
    (void)state;
    notify_open(&n);
    assert_int_equal(n.fd, -1);
    notify_say(&n, "READY=1");
    notify_tick(&n, 1);
}

static void each_datagram_is_one_message(void **state)
{
    (void)state;
    char name[100];
    snprintf(name, sizeof name, "@spillway-test-%d", (int)getpid());
    int fd = listen_at(name);
    setenv("NOTIFY_SOCKET", name, 1);
    notify_open(&n);
    notify_say(&n, "READY=1\nSTATUS=%s", "serving");
    notify_say(&n, "STOPPING=1");
    assert_string_equal(heard(fd), "READY=1\nSTATUS=serving");
    assert_string_equal(heard(fd), "STOPPING=1");
    assert_string_equal(heard(fd), "");
    close(fd);
}

static void a_sign_of_life_comes_twice_in_the_managers_time(void **state)
{
    (void)state;
    char name[100], pid[20];
    snprintf(name, sizeof name, "/tmp/spillway-notify-%d", (int)getpid());
    unlink(name);
    int fd = listen_at(name);
    setenv("NOTIFY_SOCKET", name, 1);
    setenv("WATCHDOG_USEC", "10000000", 1);
    snprintf(pid, sizeof pid, "%d", (int)getpid());
    setenv("WATCHDOG_PID", pid, 1);
    notify_open(&n);
    uint64_t t = 1000000000;
    notify_tick(&n, t);
    assert_string_equal(heard(fd), "WATCHDOG=1");
    notify_tick(&n, t + 4999999);
    assert_string_equal(heard(fd), "");
    notify_tick(&n, t + 5000000);
    assert_string_equal(heard(fd), "WATCHDOG=1");
    notify_close(&n);
    setenv("WATCHDOG_PID", "1", 1); /* another process's */
    notify_open(&n);
    notify_tick(&n, t);
    assert_string_equal(heard(fd), "");
    close(fd);
    unlink(name);
}

static void a_name_that_cannot_be_is_no_reason_to_stop(void **state)
{
    (void)state;
    char        longer[200];
    const char *wrong[] = { "relative/path", "@", "/", "/no/such/socket", longer };
    memset(longer, 'x', sizeof longer - 1);
    longer[0] = '/';
    longer[sizeof longer - 1] = 0;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        setenv("NOTIFY_SOCKET", wrong[i], 1);
        setenv("WATCHDOG_USEC", "1000", 1);
        notify_open(&n);
        assert_int_equal(n.fd, -1);
        notify_say(&n, "READY=1");
        notify_tick(&n, 5000000);
    }
}

static void a_manager_that_has_gone_is_no_reason_to_stop(void **state)
{
    (void)state;
    char name[100];
    snprintf(name, sizeof name, "@spillway-gone-%d", (int)getpid());
    int fd = listen_at(name);
    setenv("NOTIFY_SOCKET", name, 1);
    setenv("WATCHDOG_USEC", "12x", 1); /* no number: no sign of life is due */
    notify_open(&n);
    assert_int_equal(n.every_us, 0);
    close(fd);
    for (int i = 0; i < 100; i++) notify_say(&n, "STATUS=%d", i);
    char much[600];
    memset(much, 'y', sizeof much - 1);
    much[sizeof much - 1] = 0;
    notify_say(&n, "STATUS=%s", much);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(without_a_manager_nothing_is_told, clear),
        cmocka_unit_test_teardown(each_datagram_is_one_message, clear),
        cmocka_unit_test_teardown(a_sign_of_life_comes_twice_in_the_managers_time, clear),
        cmocka_unit_test_teardown(a_name_that_cannot_be_is_no_reason_to_stop, clear),
        cmocka_unit_test_teardown(a_manager_that_has_gone_is_no_reason_to_stop, clear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
