#include "base/cgroup.h"
#include "base/file.h"
#include <stdio.h>
#include <string.h>

bool cgroup_text(const char *dir, const char *file, char *text, size_t size)
{
    char path[4200];
    if ((size_t)snprintf(path, sizeof path, "%s/%s", dir, file) >= sizeof path) return false;
    size_t n = 0;
    if (file_read_first(path, text, size - 1, &n)) return false;
    text[n] = 0;
    return n > 0;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    if (!a || !b) return a ? a : b;
    return a < b ? a : b;
}

static uint64_t walk_up(const char *root, const char *path, cgroup_read *read)
{
    char dir[4096];
    int  n = snprintf(dir, sizeof dir, "%s%s", root, path);
    if (n < 0 || (size_t)n >= sizeof dir) return 0;
    uint64_t least = 0;
    size_t   n_root = strlen(root);
    for (;;) {
        least = smaller(least, read(dir));
        if (strlen(dir) <= n_root) return least;
        *strrchr(dir, '/') = 0;
    }
}

static bool has_controller(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (const char *p = list; (p = strstr(p, name)); p += n)
        if ((p == list || p[-1] == ',') && (!p[n] || p[n] == ',')) return true;
    return false;
}

uint64_t cgroup_least(const char *cgroup_file, const char *mount, const char *controller, cgroup_read *read_v2,
                      cgroup_read *read_v1)
{
    FILE *f = fopen(cgroup_file, "re");
    if (!f) return 0;
    uint64_t least = 0;
    char     line[4096], root[4096];
    while (fgets(line, sizeof line, f)) { /* "0::/path" (v2) or "9:cpu,cpuacct:/path" (v1) */
        line[strcspn(line, "\n")] = 0;
        char *list = strchr(line, ':'), *path = list ? strchr(list + 1, ':') : NULL;
        if (!path || path[1] != '/') continue;
        *path = 0;
        path++;
        list++;
        uint64_t limit = 0;
        if (!*list) {
            limit = walk_up(mount, path, read_v2);
        } else if (has_controller(list, controller) &&
                   (size_t)snprintf(root, sizeof root, "%s/%s", mount, list) < sizeof root) {
            limit = walk_up(root, path, read_v1);
            if (!limit && (size_t)snprintf(root, sizeof root, "%s/%s", mount, controller) < sizeof root)
                limit = walk_up(root, path, read_v1);
        }
        least = smaller(least, limit);
    }
    fclose(f);
    return least;
}
