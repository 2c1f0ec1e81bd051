#include "base/stacks.h"
#include "base/file.h"
#include <errno.h>
#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { THREADS_MAX = 256, PRINT_MAX = 32, FRAMES_MAX = 48, WAIT_MS = 200 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    int              tid; /* 0: free */
    char             name[16];
    enum thread_role role;
} threads[THREADS_MAX]; /* more than that are not told of */

/* One question at a time; the thread that is asked answers from its signal's handler, which touches nothing else. */
static struct {
    _Atomic int tid, n; /* n: frames, from 1; 0: no answer yet */
    void       *frame[FRAMES_MAX];
} asked;
static _Atomic bool ready;

static int own_tid(void) { return (int)syscall(SYS_gettid); }

static void answer(int sig)
{
    int saved = errno, tid = own_tid();
    (void)sig;
    if (atomic_compare_exchange_strong(&asked.tid, &tid, 0)) {
        int n = backtrace(asked.frame, FRAMES_MAX);
        atomic_store(&asked.n, n > 0 ? n : 1);
    }
    errno = saved;
}

int stacks_signal(void) { return SIGRTMAX - 2; }

void stacks_init(void)
{
    void            *frame[2];
    struct sigaction a = { .sa_handler = answer, .sa_flags = SA_RESTART };
    (void)backtrace(frame, 2); /* the first call loads a library, which a handler must not */
    sigemptyset(&a.sa_mask);
    if (sigaction(stacks_signal(), &a, NULL)) return;
    atomic_store(&ready, true);
    stacks_enter("main", THREAD_MAIN);
}

void stacks_enter(const char *name, enum thread_role role)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < THREADS_MAX; i++) {
        if (threads[i].tid) continue;
        threads[i].tid = own_tid();
        threads[i].role = role;
        snprintf(threads[i].name, sizeof threads[i].name, "%.15s", name);
        break;
    }
    pthread_mutex_unlock(&lock);
}

void stacks_leave(void)
{
    int tid = own_tid();
    pthread_mutex_lock(&lock);
    for (int i = 0; i < THREADS_MAX; i++)
        if (threads[i].tid == tid) threads[i].tid = 0;
    pthread_mutex_unlock(&lock);
}

/* R: runs, S: sleeps, D: in a driver or a disk, T: stopped; ?: it is gone. */
static char state_of(int tid)
{
    char   path[64], text[400];
    size_t n = 0;
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
    if (file_read_first(path, text, sizeof text - 1, &n)) return '?';
    text[n] = 0;
    const char *end = strrchr(text, ')'); /* behind the name, which may hold anything */
    return end && end[1] == ' ' && end[2] ? end[2] : '?';
}

static void print_one(int fd, int i)
{
    atomic_store(&asked.n, 0);
    atomic_store(&asked.tid, threads[i].tid);
    int sent = (int)syscall(SYS_tgkill, getpid(), threads[i].tid, stacks_signal());
    for (int ms = 0; !sent && ms < WAIT_MS && !atomic_load(&asked.n); ms++)
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    int  tid = threads[i].tid;
    bool silent = atomic_compare_exchange_strong(&asked.tid, &tid, 0); /* from now on it does not answer any more */
    for (int ms = 0; !silent && ms < WAIT_MS && !atomic_load(&asked.n); ms++)
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    int n = silent ? 0 : atomic_load(&asked.n);
    dprintf(fd, "thread %s (%d), state %c%s\n", threads[i].name, threads[i].tid, state_of(threads[i].tid),
            n ? ":" : ": does not answer");
    if (n > 2) backtrace_symbols_fd(asked.frame + 2, n - 2, fd); /* without the handler and what called it */
}

void stacks_print(int fd, unsigned roles)
{
    int n = 0;
    if (!atomic_load(&ready)) return;
    pthread_mutex_lock(&lock); /* nobody ends meanwhile */
    for (int i = 0; i < THREADS_MAX && n < PRINT_MAX; i++) {
        if (!threads[i].tid || !(roles & 1u << threads[i].role)) continue;
        print_one(fd, i);
        n++;
    }
    pthread_mutex_unlock(&lock);
}
