#include "base/memory.h"
#include "base/cgroup.h"
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { MMAP_BYTES = 256 << 10, TRIM_BYTES = 1 << 20 };

/* "max" and nonsense are no limit. */
static uint64_t read_bytes(const char *dir, const char *file)
{
    char               text[64];
    unsigned long long bytes;
    if (!cgroup_text(dir, file, text, sizeof text) || sscanf(text, "%llu", &bytes) != 1) return 0;
    return bytes;
}

static uint64_t limit_v2(const char *dir) { return read_bytes(dir, "memory.max"); }

/* Without a limit version 1 says the largest multiple of a page, which is above any machine's memory and so changes
 * nothing. */
static uint64_t limit_v1(const char *dir) { return read_bytes(dir, "memory.limit_in_bytes"); }

uint64_t memory_cgroup_bytes(const char *cgroup_file, const char *mount)
{
    return cgroup_least(cgroup_file, mount, "memory", limit_v2, limit_v1);
}

uint64_t memory_limit_bytes(void)
{
    uint64_t bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t group = memory_cgroup_bytes("/proc/self/cgroup", "/sys/fs/cgroup");
    return group && group < bytes ? group : bytes;
}

void memory_setup(void)
{
#ifdef M_MMAP_THRESHOLD
    mallopt(M_MMAP_THRESHOLD, MMAP_BYTES);
    mallopt(M_TRIM_THRESHOLD, TRIM_BYTES);
#endif
}

void memory_give_back(void)
{
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}
