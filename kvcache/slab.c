#include "kvcache/slab.h"
#include "base/thread.h"
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE /* Linux 5.14; headers may be older than the kernel */
#define MADV_POPULATE_WRITE 23
#endif
enum { THREADS_MAX = 16 };

struct taking {
    unsigned char   *base;
    uint64_t         bytes;
    _Atomic uint64_t next;
    _Atomic int      error; /* errno; 0: none */
};

/* Kernels before 5.14: to read a page of shared memory is to have it. */
static void touch(const unsigned char *p, uint64_t bytes)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    for (uint64_t at = 0; at < bytes; at += page) (void)*(volatile const unsigned char *)(p + at);
}

static void *take_pieces(void *arg)
{
    struct taking *t = arg;
    for (;;) {
        uint64_t at = atomic_fetch_add(&t->next, SLAB_PIECE), n = at < t->bytes ? t->bytes - at : 0;
        if (n == 0 || atomic_load(&t->error)) return NULL;
        if (n > SLAB_PIECE) n = SLAB_PIECE;
        while (madvise(t->base + at, n, MADV_POPULATE_WRITE)) {
            if (errno == EINTR || errno == EAGAIN) continue;
            if (errno == EINVAL)
                touch(t->base + at, n);
            else
                atomic_store(&t->error, errno);
            break;
        }
    }
}

enum status slab_map(int fd, uint64_t bytes, void **slab_out)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) return ST_NOMEM;
    (void)madvise(p, bytes, MADV_HUGEPAGE); /* before the first page of it is taken */
    struct taking t = { .base = p, .bytes = bytes };
    pthread_t     thread[THREADS_MAX];
    uint32_t      n = thread_cpu_count(), pieces = (uint32_t)((bytes + SLAB_PIECE - 1) / SLAB_PIECE), n_started = 0;
    if (n > pieces) n = pieces;
    if (n > THREADS_MAX) n = THREADS_MAX;
    while (n_started + 1 < n && thread_start(&thread[n_started], THREAD_XFER, "slab", take_pieces, &t) == ST_OK)
        n_started++;
    take_pieces(&t);
    while (n_started > 0) pthread_join(thread[--n_started], NULL);
    if (t.error) {
        munmap(p, bytes);
        errno = t.error;
        return ST_NOMEM;
    }
    *slab_out = p;
    return ST_OK;
}
