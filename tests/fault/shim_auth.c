/* shim_auth: LD_PRELOAD library in whose hands the check of a key fails inside. Built by j_observe.py.
 *   SHIM_AUTH=FILE   its first byte: 'd' digests fail, 'l' the lock of the keys fails, anything else: nothing does */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static int asked(char what)
{
    char        now = 0;
    const char *path = getenv("SHIM_AUTH");
    int         fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) return 0;
    if (read(fd, &now, 1) != 1) now = 0;
    close(fd);
    return now == what;
}

int EVP_Digest(const void *data, size_t n, unsigned char *out, unsigned *n_out, const void *type, void *engine)
{
    static int (*real)(const void *, size_t, unsigned char *, unsigned *, const void *, void *);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "EVP_Digest");
    return asked('d') ? 0 : real(data, n, out, n_out, type, engine);
}

int pthread_rwlock_rdlock(pthread_rwlock_t *lock)
{
    static int (*real)(pthread_rwlock_t *);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "pthread_rwlock_rdlock");
    return asked('l') ? EAGAIN : real(lock);
}
