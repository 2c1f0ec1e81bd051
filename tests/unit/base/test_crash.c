#include "base/crash.h"
#include "base/status.h"
#include "base/thread.h"
#include "test.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char said[1 << 16];

/* Runs fn in a process of its own; what it said on stderr is in `said`. Returns its exit status as wait(2) gives it. */
static int run(void (*fn)(void))
{
    int pipe_fd[2];
    assert_int_equal(pipe(pipe_fd), 0);
    fflush(NULL);
    pid_t pid = fork();
    if (!pid) {
        dup2(pipe_fd[1], STDERR_FILENO);
        close(pipe_fd[0]);
        crash_init();
        fn();
        _exit(1);
    }
    close(pipe_fd[1]);
    size_t  n = 0;
    ssize_t k;
    while (n + 1 < sizeof said && (k = read(pipe_fd[0], said + n, sizeof said - 1 - n)) > 0) n += (size_t)k;
    said[n] = 0;
    close(pipe_fd[0]);
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

/* Many threads do this at once, and may: the store is atomic, so that TSan has no race to tell of before the crash. */
static void write_nowhere(void)
{
    _Atomic char *volatile p = (_Atomic char *)16;
    atomic_store(p, 1);
}

static void *in_thread(void *arg)
{
    (void)arg;
    write_nowhere();
    return NULL;
}

static void crash_in_thread(void)
{
    pthread_t t;
    if (thread_start(&t, THREAD_ANY, "worker", in_thread, NULL)) _exit(2);
    pthread_join(t, NULL);
}

static void *crash_at_once(void *arg)
{
    pthread_barrier_wait(arg);
    write_nowhere();
    return NULL;
}

static void crash_in_many_threads(void)
{
    pthread_t         t[8];
    pthread_barrier_t all;
    pthread_barrier_init(&all, NULL, 8);
    for (int i = 0; i < 8; i++)
        if (thread_start(&t[i], THREAD_ANY, "worker", crash_at_once, &all)) _exit(2);
    for (int i = 0; i < 8; i++) pthread_join(t[i], NULL);
}

static volatile int bottomless = 1;

static uint64_t deeper(volatile char *above)
{
    volatile char here[4096];
    here[0] = above[0];
    if (!bottomless) return 0;
    return deeper(here) + (uint64_t)here[0];
}

static void *fill_stack(void *arg)
{
    volatile char first = 0;
    (void)arg;
    return (void *)(uintptr_t)deeper(&first);
}

static void crash_by_a_full_stack(void)
{
    pthread_t t;
    if (thread_start(&t, THREAD_ANY, "deep", fill_stack, NULL)) _exit(2);
    pthread_join(t, NULL);
}

static void crash_by_abort(void) { abort(); }
static void crash_by_kill(void) { kill(getpid(), SIGBUS); }
static void crash_of_a_room(void)
{
    crash_name("spillway peer room");
    abort();
}

static void a_crash_is_told_and_ends_with_70(void **state)
{
    (void)state;
    int status = run(write_nowhere);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SOFTWARE);
    assert_non_null(strstr(said, "spillway: crashed: SIGSEGV at 0x10 in thread "));
    assert_non_null(strstr(said, "test_crash")); /* a frame of this program */
}

static void the_thread_is_named(void **state)
{
    (void)state;
    int status = run(crash_in_thread);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SOFTWARE);
    assert_non_null(strstr(said, " in thread worker ("));
}

static void of_many_crashes_one_is_told(void **state)
{
    (void)state;
    int status = run(crash_in_many_threads);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SOFTWARE);
    const char *first = strstr(said, "crashed: ");
    assert_non_null(first);
    assert_null(strstr(first + 1, "crashed: "));
}

static void a_full_stack_is_told(void **state)
{
    (void)state;
    int status = run(crash_by_a_full_stack);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SOFTWARE);
    assert_non_null(strstr(said, "spillway: crashed: SIGSEGV at 0x"));
    assert_non_null(strstr(said, " in thread deep ("));
}

static void abort_and_signals_from_outside_are_told(void **state)
{
    (void)state;
    int status = run(crash_by_abort);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SOFTWARE);
    assert_non_null(strstr(said, "spillway: crashed: SIGABRT sent by process "));
    status = run(crash_by_kill);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SOFTWARE);
    assert_non_null(strstr(said, "spillway: crashed: SIGBUS sent by process "));
    status = run(crash_of_a_room);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SOFTWARE);
    assert_non_null(strstr(said, "\nspillway peer room: crashed: SIGABRT sent by process "));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_crash_is_told_and_ends_with_70),
        cmocka_unit_test(the_thread_is_named),
        cmocka_unit_test(of_many_crashes_one_is_told),
        cmocka_unit_test(a_full_stack_is_told),
        cmocka_unit_test(abort_and_signals_from_outside_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
