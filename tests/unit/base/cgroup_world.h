/* cgroup_world: a folder in the shape of /proc/self/cgroup (its file "self") and /sys/fs/cgroup (its folder "fs"), for
 * one test. cgroup_make (setup) -> cgroup_put -> the function under test with cgroup_file and cgroup_mount ->
 * cgroup_drop (teardown). */
#pragma once
#include "test.h"
#include <sys/stat.h>

static char cgroup_dir[64], cgroup_file[128], cgroup_mount[128];

static inline int cgroup_make(void **state)
{
    (void)state;
    strcpy(cgroup_dir, "/tmp/spillway-test-XXXXXX");
    if (!mkdtemp(cgroup_dir)) return -1;
    snprintf(cgroup_file, sizeof cgroup_file, "%s/self", cgroup_dir);
    snprintf(cgroup_mount, sizeof cgroup_mount, "%s/fs", cgroup_dir);
    return 0;
}

static inline int cgroup_drop(void **state)
{
    (void)state;
    char cmd[128];
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", cgroup_dir);
    return system(cmd);
}

/* Writes a file below the folder; folders on the way are made. */
static inline void cgroup_put(const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", cgroup_dir, name);
    for (char *slash = path + strlen(cgroup_dir) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = 0;
        mkdir(path, 0700);
        *slash = '/';
    }
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}
