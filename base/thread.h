/* thread: starts named threads with a role, and counts the CPUs of this container.   Thread: any. */
#pragma once
#include "base/check.h"
#include "base/status.h"
#include <pthread.h>
#include <stdint.h>

/* Starts fn(arg) with its role registered (ASSERT_THREAD) and its name set (at most 15 bytes). Signals are blocked in
 * it. */
enum status thread_start(pthread_t *t_out, enum thread_role role, const char *name, void *(*fn)(void *), void *arg);

/* CPUs this process may use: min(cpuset, cgroup v1/v2 quota rounded up), at least 1. Never the host's core count. */
uint32_t thread_cpu_count(void);
/* The cgroup quota alone: the smallest one from this process's group up to the root, in CPUs rounded up; 0: none.
 * cgroup_file: /proc/self/cgroup; mount: /sys/fs/cgroup. */
uint32_t thread_quota_cpus(const char *cgroup_file, const char *mount);
