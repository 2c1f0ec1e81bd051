/* shim_io: LD_PRELOAD library that makes reads of *.safetensors fail or crawl. Built by d_weights.py.
 *   SHIM_EIO_AFTER=n   the n-th and later reads of such files fail with EIO
 *   SHIM_READ_US=n     each of them takes n microseconds more */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static int is_weights(int fd)
{
    char    link[64], path[512];
    ssize_t n;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    n = readlink(link, path, sizeof path - 1);
    if (n < 12) return 0;
    path[n] = 0;
    return strcmp(path + n - 12, ".safetensors") == 0;
}

static int fault(int fd)
{
    static _Atomic long n_read;
    const char         *after = getenv("SHIM_EIO_AFTER"), *us = getenv("SHIM_READ_US");
    if (!is_weights(fd)) return 0;
    long n = ++n_read;
    if (us) usleep((useconds_t)strtoul(us, NULL, 10));
    if (after && n >= strtol(after, NULL, 10)) {
        errno = EIO;
        return 1;
    }
    return 0;
}

ssize_t pread(int fd, void *buf, size_t n, off_t at)
{
    static ssize_t (*real)(int, void *, size_t, off_t);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "pread");
    return fault(fd) ? -1 : real(fd, buf, n, at);
}
ssize_t pread64(int fd, void *buf, size_t n, off64_t at)
{
    static ssize_t (*real)(int, void *, size_t, off64_t);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "pread64");
    return fault(fd) ? -1 : real(fd, buf, n, at);
}
ssize_t read(int fd, void *buf, size_t n)
{
    static ssize_t (*real)(int, void *, size_t);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "read");
    return fault(fd) ? -1 : real(fd, buf, n);
}
