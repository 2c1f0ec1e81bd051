/* shim_io: LD_PRELOAD library that makes reads of *.safetensors fail or crawl. Built by d_weights.py.
 *   SHIM_EIO_AFTER=n   the n-th and later reads of such files fail with EIO
 *   SHIM_READ_US=n     each of them takes n microseconds more
 *   SHIM_FS=n          every file lies on a file system of this type (statfs.f_type)
 *   SHIM_TRACE=file    a line "CALL THREAD OFFSET BYTES NAME" for each pread, mmap and posix_fadvise of *.safetensors and *.packed */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <sys/vfs.h>
#include <unistd.h>

static int ends(int fd, char path[512], const char *end)
{
    char    link[64];
    ssize_t n, m = (ssize_t)strlen(end);
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    n = readlink(link, path, 511);
    if (n < m) return 0;
    path[n] = 0;
    return strcmp(path + n - m, end) == 0;
}

static int is_weights(int fd)
{
    char path[512];
    return ends(fd, path, ".safetensors");
}

static void trace(const char *call, int fd, long long at, long long n)
{
    const char *to = getenv("SHIM_TRACE");
    char        path[512], line[700];
    if (!to || (!ends(fd, path, ".safetensors") && !ends(fd, path, ".packed"))) return;
    int     out = open(to, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    int     bytes = snprintf(line, sizeof line, "%s %d %lld %lld %s\n", call, (int)gettid(), at, n, path);
    ssize_t put = write(out, line, (size_t)bytes);
    if (out < 0 || put != bytes) abort();
    close(out);
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
    trace("pread", fd, at, (long long)n);
    return fault(fd) ? -1 : real(fd, buf, n, at);
}
ssize_t pread64(int fd, void *buf, size_t n, off64_t at)
{
    static ssize_t (*real)(int, void *, size_t, off64_t);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "pread64");
    trace("pread", fd, at, (long long)n);
    return fault(fd) ? -1 : real(fd, buf, n, at);
}
ssize_t read(int fd, void *buf, size_t n)
{
    static ssize_t (*real)(int, void *, size_t);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "read");
    return fault(fd) ? -1 : real(fd, buf, n);
}
void *mmap(void *p, size_t n, int prot, int flags, int fd, off_t at)
{
    static void *(*real)(void *, size_t, int, int, int, off_t);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "mmap");
    if (fd >= 0) trace("mmap", fd, at, (long long)n);
    return real(p, n, prot, flags, fd, at);
}
void *mmap64(void *p, size_t n, int prot, int flags, int fd, off64_t at)
{
    static void *(*real)(void *, size_t, int, int, int, off64_t);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "mmap64");
    if (fd >= 0) trace("mmap", fd, at, (long long)n);
    return real(p, n, prot, flags, fd, at);
}
int posix_fadvise(int fd, off_t at, off_t n, int advice)
{
    static int (*real)(int, off_t, off_t, int);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "posix_fadvise");
    trace("fadvise", fd, at, n);
    return real(fd, at, n, advice);
}
int posix_fadvise64(int fd, off64_t at, off64_t n, int advice)
{
    static int (*real)(int, off64_t, off64_t, int);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "posix_fadvise64");
    trace("fadvise", fd, at, n);
    return real(fd, at, n, advice);
}
int fstatfs(int fd, struct statfs *fs)
{
    static int (*real)(int, struct statfs *);
    const char *type = getenv("SHIM_FS");
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "fstatfs");
    int r = real(fd, fs);
    if (!r && type) fs->f_type = (__typeof__(fs->f_type))strtoul(type, NULL, 0);
    return r;
}
int fstatfs64(int fd, struct statfs64 *fs)
{
    static int (*real)(int, struct statfs64 *);
    const char *type = getenv("SHIM_FS");
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "fstatfs64");
    int r = real(fd, fs);
    if (!r && type) fs->f_type = (__typeof__(fs->f_type))strtoul(type, NULL, 0);
    return r;
}
