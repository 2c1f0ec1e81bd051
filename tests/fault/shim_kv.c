/* shim_kv: LD_PRELOAD library that makes the files of a KV store fail as a control file says. Built by f_tiers.py.
 *   SHIM_CTL=FILE   read at every call; its words: eio_write eio_read enospc short eintr stall=<microseconds>
 *                   open=<errno> of segments, list=<errno> of the folder they lie in
 * io_uring is refused (as seccomp does), so that all file I/O goes through pread and pwrite. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

int io_uring_queue_init(unsigned n, void *ring, unsigned flags)
{
    (void)n;
    (void)ring;
    (void)flags;
    return -ENOSYS;
}
int io_uring_queue_init_params(unsigned n, void *ring, void *p)
{
    (void)n;
    (void)ring;
    (void)p;
    return -ENOSYS;
}

static int is_segment(int fd)
{
    char    link[64], path[512];
    ssize_t n;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    n = readlink(link, path, sizeof path - 1);
    if (n < 3) return 0;
    path[n] = 0;
    return strcmp(path + n - 3, ".kv") == 0;
}

/* 0: go on, with *n bytes; else -1 and errno */
static int fault(int fd, size_t *n, int is_write)
{
    static __thread int turn;
    char                words[256] = "";
    const char         *ctl = getenv("SHIM_CTL");
    if (!ctl || !is_segment(fd)) return 0;
    FILE *f = fopen(ctl, "r");
    if (!f) return 0;
    size_t got = fread(words, 1, sizeof words - 1, f);
    fclose(f);
    words[got] = 0;
    const char *stall = strstr(words, "stall=");
    if (stall) usleep((useconds_t)strtoul(stall + 6, NULL, 10));
    errno = is_write && strstr(words, "enospc") ? ENOSPC : 0;
    if (strstr(words, is_write ? "eio_write" : "eio_read")) errno = EIO;
    if (errno) return -1;
    turn++;
    if (strstr(words, "eintr") && turn % 2) {
        errno = EINTR;
        return -1;
    }
    if (strstr(words, "short") && *n > 4096) *n = 4096;
    return 0;
}

/* Opening a segment, or the folder for its list. */
static int open_fault(const char *path)
{
    char        words[256] = "";
    const char *ctl = getenv("SHIM_CTL"), *at;
    size_t      n = strlen(path);
    int         is_list = !strcmp(path, ".");
    if (!ctl || !(is_list || (n > 3 && !strcmp(path + n - 3, ".kv")))) return 0;
    FILE *f = fopen(ctl, "r");
    if (!f) return 0;
    size_t got = fread(words, 1, sizeof words - 1, f);
    fclose(f);
    words[got] = 0;
    at = strstr(words, is_list ? "list=" : "open=");
    if (at) errno = (int)strtol(at + 5, NULL, 10);
    return at != NULL;
}
int openat(int dir, const char *path, int flags, ...)
{
    static int (*real)(int, const char *, int, ...);
    va_list  args;
    unsigned mode;
    va_start(args, flags);
    mode = flags & O_CREAT ? va_arg(args, unsigned) : 0;
    va_end(args);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "openat");
    return open_fault(path) ? -1 : real(dir, path, flags, mode);
}

#define SHIM(name, offset)                                          \
    ssize_t name(int fd, BUFFER buf, size_t n, offset at)           \
    {                                                               \
        static ssize_t (*real)(int, BUFFER, size_t, offset);        \
        if (!real) *(void **)&real = dlsym(RTLD_NEXT, #name);       \
        return fault(fd, &n, IS_WRITE) ? -1 : real(fd, buf, n, at); \
    }
#define BUFFER   void *
#define IS_WRITE 0
SHIM(pread, off_t)
SHIM(pread64, off64_t)
#undef BUFFER
#undef IS_WRITE
#define BUFFER   const void *
#define IS_WRITE 1
SHIM(pwrite, off_t)
SHIM(pwrite64, off64_t)
