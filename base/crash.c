#include "base/crash.h"
#include "base/status.h"
#include <execinfo.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* STACK_BYTES: the handler's frames, and the registers that the kernel saves first (11 KiB with AMX). PATIENCE_S: for a
 * handler that meets a lock which the crashed thread holds. */
enum { STACK_BYTES = 128 << 10, FRAMES_MAX = 48, PATIENCE_S = 5 };

static const struct {
    int         sig;
    const char *name;
} signals[] = {
    { SIGSEGV, "SIGSEGV" }, { SIGBUS, "SIGBUS" },   { SIGILL, "SIGILL" },
    { SIGFPE, "SIGFPE" },   { SIGABRT, "SIGABRT" }, { SIGSYS, "SIGSYS" },
};
enum { N_SIGNAL = sizeof signals / sizeof *signals };

static atomic_flag         told = ATOMIC_FLAG_INIT;
static const char         *process_name = "spillway";
static _Atomic bool        ready;
static _Thread_local void *own_stack;

/* A line that is put together without the C library's streams, which a handler must not touch. */
struct line {
    char   text[256];
    size_t n;
};

static void put(struct line *l, const char *s)
{
    while (*s && l->n < sizeof l->text) l->text[l->n++] = *s++;
}

static void put_number(struct line *l, uint64_t v, unsigned base)
{
    char   digit[24];
    size_t n = 0;
    do {
        digit[n++] = "0123456789abcdef"[v % base];
        v /= base;
    } while (v);
    while (n && l->n < sizeof l->text) l->text[l->n++] = digit[--n];
}

static const char *name_of(int sig)
{
    for (size_t i = 0; i < N_SIGNAL; i++)
        if (signals[i].sig == sig) return signals[i].name;
    return "a signal";
}

/* "spillway: crashed: SIGSEGV at 0x10 in thread engine (4711)" */
static void tell_what(int sig, const siginfo_t *info)
{
    struct line l = { .n = 0 };
    char        thread[17] = "";
    put(&l, "\n");
    put(&l, process_name);
    put(&l, ": crashed: ");
    put(&l, name_of(sig));
    if (info->si_code <= 0) { /* of kill(2) and its like, abort(3) among them */
        put(&l, " sent by process ");
        put_number(&l, (uint64_t)info->si_pid, 10);
    } else {
        put(&l, " at 0x");
        put_number(&l, (uint64_t)(uintptr_t)info->si_addr, 16);
    }
    prctl(PR_GET_NAME, thread);
    put(&l, " in thread ");
    put(&l, thread);
    put(&l, " (");
    put_number(&l, (uint64_t)syscall(SYS_gettid), 10);
    put(&l, "); its calls:\n");
    ssize_t n = write(STDERR_FILENO, l.text, l.n);
    (void)n;
}

static void on_crash(int sig, siginfo_t *info, void *context)
{
    void *frame[FRAMES_MAX];
    (void)context;
    if (atomic_flag_test_and_set(&told))
        for (;;) pause(); /* another thread tells, and ends the process */
    /* What follows may wait for a lock for ever: then this ends the process. */
    sigset_t alarm_only;
    sigemptyset(&alarm_only);
    sigaddset(&alarm_only, SIGALRM);
    signal(SIGALRM, SIG_DFL);
    sigprocmask(SIG_UNBLOCK, &alarm_only, NULL);
    alarm(PATIENCE_S);
    tell_what(sig, info);
    int n = backtrace(frame, FRAMES_MAX);
    if (n > 1) backtrace_symbols_fd(frame + 1, n - 1, STDERR_FILENO); /* without this function */
    _exit(EXIT_SOFTWARE);
}

void crash_enter(void)
{
    if (own_stack || !atomic_load(&ready)) return;
    void *p = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (p == MAP_FAILED) return; /* a full stack is then the kernel's to tell of */
    stack_t s = { .ss_sp = p, .ss_size = STACK_BYTES };
    if (sigaltstack(&s, NULL)) {
        munmap(p, STACK_BYTES);
        return;
    }
    own_stack = p;
}

void crash_leave(void)
{
    if (!own_stack) return;
    stack_t none = { .ss_flags = SS_DISABLE };
    sigaltstack(&none, NULL);
    munmap(own_stack, STACK_BYTES);
    own_stack = NULL;
}

void crash_name(const char *process) { process_name = process; }

void crash_init(void)
{
    void            *frame[2];
    struct sigaction a = { .sa_sigaction = on_crash, .sa_flags = SA_SIGINFO | SA_ONSTACK };
    (void)backtrace(frame, 2); /* the first call loads a library, which a handler must not */
    sigfillset(&a.sa_mask);
    atomic_store(&ready, true);
    crash_enter();
    for (size_t i = 0; i < N_SIGNAL; i++) sigaction(signals[i].sig, &a, NULL);
}
