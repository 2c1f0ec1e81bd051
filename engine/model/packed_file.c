#include "engine/model/packed_file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/thread.h"
#include "engine/model/source.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { CHUNK = 4 << 20, THREADS_MAX = 8, VERSION = 1, PROGRESS_BYTES = 64 << 20, STALE_S = 60, LISTED_MAX = 4096 };
static const char MAGIC[8] = { 'S', 'P', 'W', 'P', 'A', 'C', 'K', 'D' }, SUFFIX[] = ".packed", PART[] = ".part";

struct head {
    char     magic[8];
    uint32_t version, chunk;
    uint64_t data_at, data_bytes, n_chunk, ident_bytes;
    uint64_t sum; /* of all before it, of the identity and of the digests, which follow */
};

/* ---------------------------------------------------------------- chunks, by several threads */

enum chunk_do { CHECK_MAPPED, READ_AND_CHECK, WRITE };
struct chunks {
    const struct packed_span *s;
    enum chunk_do             what;
    int                       fd;
    uint64_t                  data_at, *digest;
    _Atomic uint64_t          next;
    _Atomic int               error; /* errno, or -1: a chunk is not what was written */
    _Atomic uint64_t          bad_at;
    pthread_mutex_t           lock; /* done, told */
    uint64_t                  done, told;
};

static int all_of(int fd, bool out, char *p, size_t n, uint64_t at)
{
    while (n) {
        ssize_t got = out ? pwrite(fd, p, n, (off_t)at) : pread(fd, p, n, (off_t)at);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return got ? errno : ENODATA;
        p += got;
        n -= (size_t)got;
        at += (uint64_t)got;
    }
    return 0;
}

static void *chunks_main(void *arg)
{
    struct chunks *c = arg;
    for (uint64_t i; (i = atomic_fetch_add(&c->next, CHUNK)) < c->s->bytes && !atomic_load(&c->error);) {
        char  *p = c->s->base + i;
        size_t n = c->s->bytes - i < CHUNK ? (size_t)(c->s->bytes - i) : (size_t)CHUNK;
        int    e = c->what == CHECK_MAPPED ? 0 : all_of(c->fd, c->what == WRITE, p, n, c->data_at + i);
        if (!e) {
            uint64_t sum = hash_bytes(p, n, i); /* of the place too */
            if (c->what == WRITE)
                c->digest[i / CHUNK] = sum;
            else if (sum != c->digest[i / CHUNK])
                e = -1;
        }
        if (e) {
            atomic_store(&c->bad_at, i);
            atomic_store(&c->error, e);
            break;
        }
        pthread_mutex_lock(&c->lock);
        c->done += n;
        if (c->s->progress && (c->done - c->told >= PROGRESS_BYTES || c->done == c->s->bytes)) {
            c->told = c->done;
            c->s->progress(c->s->progress_ctx, c->done, c->s->bytes);
        }
        pthread_mutex_unlock(&c->lock);
    }
    return NULL;
}

static void chunks_run(struct chunks *c)
{
    pthread_t thread[THREADS_MAX];
    uint32_t  n = c->s->n_thread ? c->s->n_thread : thread_cpu_count(), started = 0;
    uint64_t  useful = c->s->bytes / CHUNK;
    if (c->what == CHECK_MAPPED)
        n = THREADS_MAX; /* a file that is not in the page cache: threads wait for the disk, not for CPUs */
    if (n > useful) n = (uint32_t)useful;
    if (n > THREADS_MAX) n = THREADS_MAX;
    pthread_mutex_init(&c->lock, NULL);
    while (started + 1 < n && thread_start(&thread[started], THREAD_ANY, "packed", chunks_main, c) == ST_OK) started++;
    chunks_main(c); /* this thread is one of them */
    for (uint32_t i = 0; i < started; i++) pthread_join(thread[i], NULL);
    pthread_mutex_destroy(&c->lock);
}

/* ---------------------------------------------------------------- the head */

static uint64_t n_chunk_of(uint64_t bytes) { return (bytes + CHUNK - 1) / CHUNK; }
static size_t   head_bytes(size_t ident_bytes, uint64_t bytes)
{
    return sizeof(struct head) + ident_bytes + (size_t)n_chunk_of(bytes) * 8;
}
static uint64_t data_at_of(size_t ident_bytes, uint64_t bytes)
{
    return (head_bytes(ident_bytes, bytes) + DEV_MAP_ALIGN - 1) / DEV_MAP_ALIGN * DEV_MAP_ALIGN;
}
uint64_t packed_file_bytes(size_t ident_bytes, uint64_t bytes) { return data_at_of(ident_bytes, bytes) + bytes; }

/* As it should stand in the file, sum and digests apart; h: in the first bytes of what is returned. */
static char *head_make(const char *ident, size_t ident_bytes, uint64_t bytes)
{
    char       *p = calloc(1, head_bytes(ident_bytes, bytes));
    struct head h = { .version = VERSION,
                      .chunk = CHUNK,
                      .data_at = data_at_of(ident_bytes, bytes),
                      .data_bytes = bytes,
                      .n_chunk = n_chunk_of(bytes),
                      .ident_bytes = ident_bytes };
    memcpy(h.magic, MAGIC, sizeof MAGIC);
    if (!p) return NULL;
    memcpy(p, &h, sizeof h);
    memcpy(p + sizeof h, ident, ident_bytes);
    return p;
}

static uint64_t head_sum(const char *p, size_t n)
{
    return hash_combine(hash_bytes(p, offsetof(struct head, sum), 0),
                        hash_bytes(p + sizeof(struct head), n - sizeof(struct head), 0));
}

/* ---------------------------------------------------------------- reading */

/* NULL: why says what is wrong with it; else its digests, and everything before them, malloc'd. */
static char *head_read(int fd, const char *ident, size_t ident_bytes, uint64_t bytes, char why[PACKED_WHY])
{
    size_t      n = head_bytes(ident_bytes, bytes), fixed = offsetof(struct head, sum);
    struct stat st;
    if (fstat(fd, &st)) {
        snprintf(why, PACKED_WHY, "%s", strerror(errno));
        return NULL;
    }
    if (!S_ISREG(st.st_mode)) {
        snprintf(why, PACKED_WHY, "it is no regular file");
        return NULL;
    }
    if ((st.st_uid != geteuid() && st.st_uid != 0) || st.st_mode & (S_IWGRP | S_IWOTH)) {
        snprintf(why, PACKED_WHY, "others than this user (%u) and root may write it (owner %u, mode %03o)",
                 (unsigned)geteuid(), (unsigned)st.st_uid, (unsigned)st.st_mode & 0777u);
        return NULL;
    }
    if ((uint64_t)st.st_size != packed_file_bytes(ident_bytes, bytes)) {
        snprintf(why, PACKED_WHY, "it has %" PRIu64 " bytes, not %" PRIu64, (uint64_t)st.st_size,
                 packed_file_bytes(ident_bytes, bytes));
        return NULL;
    }
    char *want = head_make(ident, ident_bytes, bytes), *p = malloc(n);
    int   e = !want || !p ? ENOMEM : all_of(fd, false, p, n, 0);
    if (e)
        snprintf(why, PACKED_WHY, "%s", strerror(e));
    else if (memcmp(p, want, fixed) != 0)
        snprintf(why, PACKED_WHY, "its head is of another version, or damaged");
    else if (memcmp(p + sizeof(struct head), ident, ident_bytes) != 0 ||
             head_sum(p, n) != ((const struct head *)(void *)p)->sum)
        snprintf(why, PACKED_WHY, "its head is damaged");
    else
        e = -1;
    free(want);
    if (e == -1) return p;
    free(p);
    return NULL;
}

enum packed_read packed_file_read(const char *path, const char *ident, size_t ident_bytes, const struct packed_span *s,
                                  struct device *d, bool *mapped_out, char why[PACKED_WHY])
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        if (errno == ENOENT) return PACKED_NONE;
        snprintf(why, PACKED_WHY, "%s", strerror(errno));
        return PACKED_DOUBT;
    }
    char            *head = head_read(fd, ident, ident_bytes, s->bytes, why);
    enum packed_read r = head ? PACKED_HIT : PACKED_DOUBT;
    if (head) {
        struct chunks c = { .s = s,
                            .fd = fd,
                            .data_at = data_at_of(ident_bytes, s->bytes),
                            .digest = (uint64_t *)calloc(n_chunk_of(s->bytes), sizeof(uint64_t)) };
        *mapped_out = !source_fd_is_far(fd) && dev_map(d, s->base, s->bytes, fd, c.data_at);
        c.what = *mapped_out ? CHECK_MAPPED : READ_AND_CHECK;
        if (c.digest) {
            memcpy(c.digest, head + sizeof(struct head) + ident_bytes, n_chunk_of(s->bytes) * sizeof *c.digest);
            chunks_run(&c);
        } else {
            c.error = ENOMEM;
        }
        if (c.error) {
            r = dev_unmap(d, s->base, s->bytes) ? PACKED_LOST : PACKED_DOUBT;
            if (c.error < 0)
                snprintf(why, PACKED_WHY, "the %d bytes at %" PRIu64 " are not what was written", CHUNK,
                         c.data_at + c.bad_at);
            else
                snprintf(why, PACKED_WHY, "%s", strerror(c.error));
        }
        free(c.digest);
        if (!r)
            (void)futimens(fd, NULL); /* used now: packed_dir_room. A folder that we may only read keeps its times */
    }
    free(head);
    close(fd);
    return r;
}

/* ---------------------------------------------------------------- writing */

static int write_all(int fd, char *head, size_t ident_bytes, const struct packed_span *s)
{
    size_t        n = head_bytes(ident_bytes, s->bytes);
    struct chunks c = { .s = s, .what = WRITE, .fd = fd, .data_at = data_at_of(ident_bytes, s->bytes) };
    uint64_t      all = packed_file_bytes(ident_bytes, s->bytes);
    /* A full disk shows now, not after minutes. Where a file system has no such call, the writes tell. */
    if (fallocate(fd, 0, 0, (off_t)all) && errno != EOPNOTSUPP && errno != ENOSYS) return errno;
    if (!(c.digest = calloc(n_chunk_of(s->bytes), sizeof *c.digest))) return ENOMEM;
    chunks_run(&c);
    memcpy(head + sizeof(struct head) + ident_bytes, c.digest, n_chunk_of(s->bytes) * sizeof *c.digest);
    free(c.digest);
    if (c.error) return c.error;
    uint64_t sum = head_sum(head, n);
    memcpy(head + offsetof(struct head, sum), &sum, sizeof sum);
    return all_of(fd, true, head, n, 0);
}

bool packed_file_write(const char *path, const char *ident, size_t ident_bytes, const struct packed_span *s,
                       char why[PACKED_WHY])
{
    char        part[4200];
    struct stat st;
    int         fd = -1, e;
    char       *head = head_make(ident, ident_bytes, s->bytes);
    snprintf(part, sizeof part, "%s.%ld.%" PRIx64 "%s", path, (long)getpid(), (uint64_t)(uintptr_t)s->base,
             PART); /* ranks differ in path */
    if (!head)
        e = ENOMEM;
    else if ((fd = open(part, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644)) < 0)
        e = errno;
    else if (!(e = flock(fd, LOCK_EX | LOCK_NB) ? errno : 0)) /* for as long as somebody writes it: packed_dir_room */
        e = write_all(fd, head, ident_bytes, s);
    free(head);
    /* No fsync: a file of which a crash left only parts is a miss. */
    if (!e && (fstat(fd, &st) || rename(part, path))) e = errno;
    if (fd >= 0 && e) unlink(part);
    if (fd >= 0) close(fd);
    if (e) snprintf(why, PACKED_WHY, "%s", strerror(e));
    return !e;
}

/* ---------------------------------------------------------------- the folder */

struct listed {
    char            name[256];
    uint64_t        bytes;
    struct timespec used;
};

static int by_use(const void *a, const void *b)
{
    const struct timespec *x = &((const struct listed *)a)->used, *y = &((const struct listed *)b)->used;
    if (x->tv_sec != y->tv_sec) return x->tv_sec < y->tv_sec ? -1 : 1;
    return x->tv_nsec < y->tv_nsec ? -1 : x->tv_nsec > y->tv_nsec;
}

static bool ends(const char *name, const char *with)
{
    size_t n = strlen(name), m = strlen(with);
    return n >= m && !strcmp(name + n - m, with);
}

/* Nobody holds its lock, and whoever made it has had the time to take it. */
static void sweep(int dir, const char *name)
{
    struct stat st;
    int         fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) return;
    if (!fstat(fd, &st) && S_ISREG(st.st_mode) && time(NULL) - st.st_mtim.tv_sec > STALE_S &&
        !flock(fd, LOCK_EX | LOCK_NB) && !unlinkat(dir, name, 0))
        LOG_INFO("packed: %s removed, which a server that is gone was writing", name);
    close(fd);
}

bool packed_dir_room(const char *dir, const char *path, uint64_t need, uint64_t max)
{
    if (need > max) return false;
    const char    *own = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    struct listed *all = malloc(LISTED_MAX * sizeof *all);
    DIR           *d = opendir(dir);
    uint32_t       n = 0;
    uint64_t       sum = need;
    struct stat    st;
    for (struct dirent *e; all && d && n < LISTED_MAX && (e = readdir(d));) {
        if (ends(e->d_name, PART)) sweep(dirfd(d), e->d_name);
        if (!ends(e->d_name, SUFFIX) || !strcmp(e->d_name, own) ||
            fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode))
            continue;
        snprintf(all[n].name, sizeof all[n].name, "%s", e->d_name);
        all[n].bytes = (uint64_t)st.st_size;
        all[n].used = st.st_mtim;
        sum += all[n++].bytes;
    }
    if (all) qsort(all, n, sizeof *all, by_use);
    for (uint32_t i = 0; i < n && sum > max; i++) {
        sum -= all[i].bytes;
        if (!unlinkat(dirfd(d), all[i].name, 0))
            LOG_INFO("packed: %s removed to make room, it was used longest ago", all[i].name);
    }
    if (d) closedir(d);
    free(all);
    return true;
}
