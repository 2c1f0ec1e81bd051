#include "base/thread.h"
#include "base/cgroup.h"
#include "base/crash.h"
#include "base/log.h"
#include "base/stacks.h"
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct thread_main {
    void *(*fn)(void *);
    void            *arg;
    enum thread_role role;
    char             name[16];
};

static void *thread_run(void *arg)
{
    struct thread_main m = *(struct thread_main *)arg;
    free(arg);
    pthread_setname_np(pthread_self(), m.name); /* by itself: it may crash before its starter runs again */
    thread_role_self = m.role;
    stacks_enter(m.name, m.role);
    crash_enter();
    void *out = m.fn(m.arg);
    crash_leave();
    stacks_leave();
    return out;
}

enum status thread_start(pthread_t *t_out, enum thread_role role, const char *name, void *(*fn)(void *), void *arg)
{
    struct thread_main *m = malloc(sizeof *m);
    if (!m) return ST_NOMEM;
    *m = (struct thread_main){ .fn = fn, .arg = arg, .role = role };
    snprintf(m->name, sizeof m->name, "%.15s", name);
    /* Signals go to the main thread; those that a thread raises by its own fault stay deliverable. */
    sigset_t all, old;
    sigfillset(&all);
    static const int own_fault[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS };
    for (size_t i = 0; i < sizeof own_fault / sizeof *own_fault; i++) sigdelset(&all, own_fault[i]);
    sigdelset(&all, stacks_signal());
    pthread_sigmask(SIG_SETMASK, &all, &old);
    pthread_t t;
    int       err = pthread_create(&t, NULL, thread_run, m);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (err) {
        LOG_ERROR("thread: cannot start %s: %s", name, strerror(err));
        free(m);
        return ST_NOMEM;
    }
    *t_out = t;
    return ST_OK;
}

/* quota microseconds per period -> CPUs, rounded up */
static uint32_t thread_quota_round(long long quota, long long period)
{
    if (quota <= 0 || period <= 0) return 0;
    long long n = quota / period + (quota % period != 0);
    return n > 65536 ? 65536 : (uint32_t)n;
}

static uint64_t thread_quota_v2(const char *dir)
{
    char      text[128];
    long long quota, period; /* "max 100000" or "150000 100000" */
    if (!cgroup_text(dir, "cpu.max", text, sizeof text) || sscanf(text, "%lld %lld", &quota, &period) != 2) return 0;
    return thread_quota_round(quota, period);
}

static uint64_t thread_quota_v1(const char *dir)
{
    char text[128];
    if (!cgroup_text(dir, "cpu.cfs_quota_us", text, sizeof text)) return 0;
    long long quota = strtoll(text, NULL, 10); /* -1: none */
    if (!cgroup_text(dir, "cpu.cfs_period_us", text, sizeof text)) return 0;
    return thread_quota_round(quota, strtoll(text, NULL, 10));
}

uint32_t thread_quota_cpus(const char *cgroup_file, const char *mount)
{
    return (uint32_t)cgroup_least(cgroup_file, mount, "cpu", thread_quota_v2, thread_quota_v1);
}

static uint32_t thread_affinity_cpus(void)
{
    for (size_t n = 1024; n <= 1u << 20; n *= 2) { /* the mask must be as wide as the kernel's, which is not told */
        cpu_set_t *set = CPU_ALLOC(n);
        if (!set) return 1;
        size_t   size = CPU_ALLOC_SIZE(n);
        int      err = sched_getaffinity(0, size, set) ? errno : 0;
        uint32_t count = err ? 0 : (uint32_t)CPU_COUNT_S(size, set);
        CPU_FREE(set);
        if (err != EINVAL) return count;
    }
    return 0;
}

uint32_t thread_cpu_count(void)
{
    uint32_t n = thread_affinity_cpus(), quota = thread_quota_cpus("/proc/self/cgroup", "/sys/fs/cgroup");
    if (quota && (quota < n || !n)) n = quota;
    return n ? n : 1;
}
