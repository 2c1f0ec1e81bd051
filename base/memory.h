/* memory: how much of it this process may use, and giving back what it has freed.   Thread: any. */
#pragma once
#include <stdint.h>

/* Bytes of memory that this process may use: the machine's, or the smallest limit of a cgroup (v1 or v2) on the way from its own to
 * the root. */
uint64_t memory_limit_bytes(void);
/* The cgroup's part of it; 0: no limit. cgroup_file: /proc/self/cgroup; mount: /sys/fs/cgroup. */
uint64_t memory_cgroup_bytes(const char *cgroup_file, const char *mount);

/* Once, before threads are started: large pieces come from the system by themselves and return to it when they are freed, whatever was
 * freed before. Without it glibc raises both thresholds up to 32 MiB, keeps what is below, and copies a buffer that grows. */
void memory_setup(void);
/* Returns free pages of the heaps to the system. It may take milliseconds, in which other threads' malloc waits: not for an io thread,
 * and not after every request. */
void memory_give_back(void);
