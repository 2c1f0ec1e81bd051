/* memory: the amount of memory that this process may use, and the return of freed memory to the system.   Thread:
 * any. */
#pragma once
#include <stdint.h>

/* Bytes of memory that this process may use: the machine's memory, or the smallest limit of a cgroup (v1 or v2) from
 * its own group up to the root. */
uint64_t memory_limit_bytes(void);
/* The cgroup's part of it; 0: no limit. cgroup_file: /proc/self/cgroup; mount: /sys/fs/cgroup. */
uint64_t memory_cgroup_bytes(const char *cgroup_file, const char *mount);

/* Call once, before threads are started. It fixes the thresholds of malloc, so that each large piece is mapped
 * separately and returns to the system when it is freed. Without this call glibc raises the thresholds up to 32 MiB,
 * keeps smaller pieces, and copies a buffer that grows. */
void memory_setup(void);
/* Returns free pages of the heaps to the system. This can take milliseconds, during which malloc waits in other
 * threads. So do not call it on an io thread, nor after every request. */
void memory_give_back(void);
