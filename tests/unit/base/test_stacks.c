#include "test.h"
#include "base/stacks.h"
#include "base/thread.h"
#include <signal.h>
#include <semaphore.h>
#include <stdbool.h>

static sem_t         there, go;
static volatile bool spin;

static void *sleeper(void *arg)
{
    (void)arg;
    sem_post(&there);
    while (sem_wait(&go)) {}
    return NULL;
}
static void *spinner(void *arg)
{
    (void)arg;
    sem_post(&there);
    while (__atomic_load_n(&spin, __ATOMIC_RELAXED)) {}
    return NULL;
}
static void *deaf(void *arg)
{
    sigset_t s;
    sigfillset(&s);
    pthread_sigmask(SIG_SETMASK, &s, NULL);
    return sleeper(arg);
}

static size_t print(char *text, size_t size, unsigned roles)
{
    FILE *f = tmpfile();
    assert_non_null(f);
    stacks_print(fileno(f), roles);
    size_t n = (size_t)lseek(fileno(f), 0, SEEK_END);
    assert_true(n < size);
    assert_int_equal(pread(fileno(f), text, n, 0), n);
    text[n] = 0;
    fclose(f);
    return n;
}

/* Until the thread is shown with its frames: on a busy machine a thread may answer later than it is waited for. */
static void frames_of(char *text, size_t size, const char *name, unsigned roles)
{
    char head[40];
    snprintf(head, sizeof head, "thread %s (", name);
    for (int i = 0; i < 50; i++) {
        print(text, size, roles);
        const char *at = strstr(text, head);
        assert_non_null(at);
        at += strcspn(at, "\n");
        if (*at && memmem(at + 1, strcspn(at + 1, "\n"), "[0x", 3)) return;
    }
    fail_msg("no frames of %s in: %s", name, text);
}

static void threads_that_hang_are_shown_with_their_stacks(void **state)
{
    (void)state;
    static char text[1 << 16];
    pthread_t   t[4];
    sem_init(&there, 0, 0);
    sem_init(&go, 0, 0);
    assert_int_equal(print(text, sizeof text, ~0u), 0); /* not yet asked for */
    stacks_init();
    assert_int_equal(thread_start(&t[0], THREAD_ENGINE, "sleeps", sleeper, NULL), ST_OK);
    assert_int_equal(thread_start(&t[1], THREAD_IO, "other", sleeper, NULL), ST_OK);
    assert_int_equal(thread_start(&t[2], THREAD_XFER, "deaf", deaf, NULL), ST_OK);
    for (int i = 0; i < 3; i++) sem_wait(&there);
    print(text, sizeof text, 1u << THREAD_ENGINE | 1u << THREAD_XFER); /* which waits for the deaf one */
    assert_non_null(strstr(text, "thread deaf ("));
    assert_non_null(strstr(strstr(text, "thread deaf ("), "does not answer"));
    assert_null(strstr(text, "other"));
    assert_null(strstr(text, "thread main")); /* not of these roles */
    spin = true;
    assert_int_equal(thread_start(&t[3], THREAD_RANK, "spins", spinner, NULL), ST_OK);
    sem_wait(&there);
    frames_of(text, sizeof text, "sleeps", 1u << THREAD_ENGINE | 1u << THREAD_RANK);
    frames_of(text, sizeof text, "spins", 1u << THREAD_RANK);
    assert_null(strstr(text, "sleeps"));
    __atomic_store_n(&spin, false, __ATOMIC_RELAXED);
    for (int i = 0; i < 3; i++) sem_post(&go);
    for (int i = 0; i < 4; i++) pthread_join(t[i], NULL);
    assert_int_equal(
        print(text, sizeof text, 1u << THREAD_ENGINE | 1u << THREAD_RANK | 1u << THREAD_XFER | 1u << THREAD_IO), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(threads_that_hang_are_shown_with_their_stacks) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
