/* cgroup: the limits that control groups set for this process. Every group from its own up to the root can set one; the
 * smallest counts. Thread: any. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Reads one limit from the files in a group's folder; 0: this group sets none. */
typedef uint64_t cgroup_read(const char *dir);

/* The smallest limit of `controller` over all groups on the way to the root, of version 2 (read_v2) and of version 1
 * (read_v1); 0: none. cgroup_file: /proc/self/cgroup; mount: /sys/fs/cgroup. In a container the path often does not
 * exist below the mount: then the mount's own folder counts. */
uint64_t cgroup_least(const char *cgroup_file, const char *mount, const char *controller, cgroup_read *read_v2,
                      cgroup_read *read_v1);
/* The text of a small file, terminated, at most size - 1 bytes; false: it is empty or cannot be read. */
bool cgroup_text(const char *dir, const char *file, char *text, size_t size);
