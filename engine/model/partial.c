#include "engine/model/partial.h"
#include "base/check.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

enum {
    CHUNK = PARTIAL_PIECE,
    RUN_MAX = 9, /* chunks fetched at once: a read of 8 MiB that begins inside one */
    VERSION = 1,
    TABLE_AT = 4096,
    STALE_S = 7 * 24 * 3600
};
static const char MAGIC[8] = { 'S', 'P', 'W', 'P', 'A', 'R', 'T', 'L' }, SUFFIX[] = ".partial";

struct head {
    char     magic[8];
    uint32_t version, chunk;
    uint64_t bytes;
    char     where[512], name[256], etag[80];
};
static_assert(sizeof(struct head) <= TABLE_AT, "the head lies before the table");

enum { ABSENT, COMING, HERE };
struct partial {
    int             fd;
    char            name[256];
    uint64_t        bytes, n_chunk, data_at, seed, kept;
    struct hash128 *digest; /* [n_chunk]; both halves 0: absent */
    pthread_mutex_t lock;   /* everything below */
    pthread_cond_t  change; /* of state */
    unsigned char  *state;  /* [n_chunk] */
    uint32_t       *n_come; /* [n_chunk] how often this start has fetched it */
    bool            full;   /* writing has failed: nothing more is kept */
    bool            doubted;
};

/* ---- bytes */

static int get_all(int fd, void *buf, size_t n, uint64_t at)
{
    char *p = buf;
    while (n) {
        ssize_t got = pread(fd, p, n, (off_t)at);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return got ? errno : ENODATA;
        p += got;
        n -= (size_t)got;
        at += (uint64_t)got;
    }
    return 0;
}

static int put_all(int fd, const void *buf, size_t n, uint64_t at)
{
    const char *p = buf;
    while (n) {
        ssize_t put = pwrite(fd, p, n, (off_t)at);
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) return put ? errno : ENOSPC;
        p += put;
        n -= (size_t)put;
        at += (uint64_t)put;
    }
    return 0;
}

static size_t chunk_bytes(const struct partial *p, uint64_t i)
{
    uint64_t left = p->bytes - i * CHUNK;
    return left < CHUNK ? (size_t)left : (size_t)CHUNK;
}

static struct hash128 chunk_digest(const struct partial *p, uint64_t i, const void *data)
{
    struct hash128 h = hash128_bytes(data, chunk_bytes(p, i), hash_combine(p->seed, i)); /* of the place too */
    if (!h.lo && !h.hi) h.lo = 1;
    return h;
}

static bool digest_is(struct hash128 a, struct hash128 b) { return a.lo == b.lo && a.hi == b.hi; }

/* ---- opening */

static bool path_of(const char *dir, const struct partial_of *of, char *path, size_t path_bytes)
{
    uint64_t a = hash_bytes(of->where, strlen(of->where), 1), b = hash_bytes(of->name, strlen(of->name), a);
    int      n = snprintf(path, path_bytes, "%s/%016" PRIx64 "%016" PRIx64 "%s", dir, a, b, SUFFIX);
    return n > 0 && (size_t)n < path_bytes;
}

static bool head_of(const struct partial_of *of, struct head *h)
{
    memset(h, 0, sizeof *h);
    memcpy(h->magic, MAGIC, sizeof MAGIC);
    h->version = VERSION;
    h->chunk = CHUNK;
    h->bytes = of->bytes;
    if (strlen(of->where) >= sizeof h->where || strlen(of->name) >= sizeof h->name) return false;
    if (!*of->version || strlen(of->version) >= sizeof h->etag) return false;
    memcpy(h->where, of->where, strlen(of->where));
    memcpy(h->name, of->name, strlen(of->name));
    memcpy(h->etag, of->version, strlen(of->version));
    return true;
}

/* Nobody else can have written it, and nobody else has it open. */
static bool is_ours(int fd, const char *path)
{
    struct stat st;
    if (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_nlink != 1) { /* it will be cut: not under another name too */
        LOG_WARN("model: %s is no regular file of one name, nothing is kept there", path);
        return false;
    }
    if ((st.st_uid != geteuid() && st.st_uid != 0) || st.st_mode & (S_IWGRP | S_IWOTH)) {
        LOG_WARN("model: others than this user (%u) and root may write %s (owner %u, mode %03o), nothing is kept there",
                 (unsigned)geteuid(), path, (unsigned)st.st_uid, (unsigned)st.st_mode & 0777u);
        return false;
    }
    if (flock(fd, LOCK_EX | LOCK_NB)) {
        LOG_INFO("model: another process is fetching the same file into %s, this one keeps nothing", path);
        return false;
    }
    return true;
}

/* Takes what an earlier start of the same version has left, or begins anew. 0 or errno. */
static int take_table(struct partial *p, const struct head *want, const char *path)
{
    struct head    found;
    unsigned char *empty = calloc(1, TABLE_AT);
    int            e = empty ? 0 : ENOMEM;
    size_t         table = p->n_chunk * sizeof *p->digest;
    if (!e && !get_all(p->fd, &found, sizeof found, 0) && !memcmp(&found, want, sizeof found) &&
        !get_all(p->fd, p->digest, table, TABLE_AT)) {
        free(empty);
        return 0;
    }
    struct stat st;
    if (!e && !fstat(p->fd, &st) && st.st_size)
        LOG_INFO("model: %s is of another version of %s, and begins anew", path, want->name);
    memset(p->digest, 0, table);
    /* Cut to nothing first: a table of the other version under this head would be a mixture. */
    if (!e && ftruncate(p->fd, 0)) e = errno;
    if (!e && ftruncate(p->fd, (off_t)(p->data_at + p->bytes))) e = errno;
    if (!e) {
        memcpy(empty, want, sizeof *want);
        e = put_all(p->fd, empty, TABLE_AT, 0);
    }
    free(empty);
    return e;
}

static void partial_free(struct partial *p)
{
    if (p->fd >= 0) close(p->fd);
    free(p->digest);
    free(p->state);
    free(p->n_come);
    free(p);
}

struct partial *partial_open(const char *dir, const struct partial_of *of)
{
    char            path[4200], why[200];
    struct head     want;
    struct partial *p = NULL;
    if (!of->bytes || !head_of(of, &want) || !path_of(dir, of, path, sizeof path)) return NULL;
    int e = file_make_folder(dir, 0755, why, sizeof why);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0644);
    if (fd < 0) {
        LOG_WARN("model: %s is not kept in %s: %s", of->name, dir, e ? why : strerror(errno));
        return NULL;
    }
    if (!is_ours(fd, path) || !(p = calloc(1, sizeof *p))) {
        close(fd);
        return NULL;
    }
    p->fd = fd;
    p->bytes = of->bytes;
    p->n_chunk = (of->bytes + CHUNK - 1) / CHUNK;
    p->data_at = (TABLE_AT + p->n_chunk * sizeof *p->digest + CHUNK - 1) / CHUNK * CHUNK;
    p->seed = hash_bytes(&want, sizeof want, 0);
    memcpy(p->name, of->name, strlen(of->name) + 1);
    p->digest = calloc(p->n_chunk, sizeof *p->digest);
    p->state = calloc(p->n_chunk, 1);
    p->n_come = calloc(p->n_chunk, sizeof *p->n_come);
    e = p->digest && p->state && p->n_come ? take_table(p, &want, path) : ENOMEM;
    if (e) {
        LOG_WARN("model: %s is not kept in %s: %s", of->name, dir, strerror(e));
        partial_free(p);
        return NULL;
    }
    for (uint64_t i = 0; i < p->n_chunk; i++) {
        if (!p->digest[i].lo && !p->digest[i].hi) continue;
        p->state[i] = HERE;
        p->kept += chunk_bytes(p, i);
    }
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->change, NULL);
    if (p->kept)
        LOG_INFO("model: an earlier start has fetched %" PRIu64 " of the %" PRIu64 " MiB of %s, the rest is fetched",
                 p->kept >> 20, p->bytes >> 20, p->name);
    return p;
}

void partial_close(struct partial *p)
{
    if (!p) return;
    pthread_cond_destroy(&p->change);
    pthread_mutex_destroy(&p->lock);
    partial_free(p);
}

uint64_t partial_bytes_kept(const struct partial *p) { return p->kept; }

/* ---- reading */

/* One read's view of it: the part of a chunk that it wants goes to its place in dst. */
struct want {
    uint64_t       offset;
    unsigned char *dst;
    size_t         n;
};

static void hand_out(const struct partial *p, const struct want *w, uint64_t i, const unsigned char *data)
{
    uint64_t at = i * CHUNK, end = at + chunk_bytes(p, i), from = at > w->offset ? at : w->offset;
    uint64_t to = end < w->offset + w->n ? end : w->offset + w->n;
    memcpy(w->dst + (from - w->offset), data + (from - at), (size_t)(to - from));
}

/* A chunk that was said to be here when it had come so often. False: it is not what was fetched. */
static bool from_disk(struct partial *p, const struct want *w, uint64_t i, uint32_t n_come, unsigned char *buf)
{
    int e = get_all(p->fd, buf, chunk_bytes(p, i), p->data_at + i * CHUNK);
    pthread_mutex_lock(&p->lock);
    bool good = !e && digest_is(chunk_digest(p, i, buf), p->digest[i]);
    bool first = !good && !p->doubted;
    p->doubted |= !good;
    /* Unless another thread is fetching it again, or has done so since these bytes were read. */
    if (!good && p->state[i] == HERE && p->n_come[i] == n_come) p->state[i] = ABSENT;
    pthread_mutex_unlock(&p->lock);
    if (good) hand_out(p, w, i, buf);
    if (first)
        LOG_WARN("model: what is kept of %s at %" PRIu64 " %s, and is fetched again", p->name, i * CHUNK,
                 e ? "cannot be read" : "is not what was fetched");
    return good;
}

/* A fetch of chunks [first, first + n), which its thread has marked as coming. */
struct run {
    struct partial      *p;
    uint64_t             first, n;
    const unsigned char *buf;
};

/* Keeps chunk i, unless the disk is full. The chunk before its digest: who is killed between leaves a chunk that does
 * not count. */
static void keep(struct partial *p, uint64_t i, const unsigned char *data)
{
    struct hash128 digest = chunk_digest(p, i, data);
    pthread_mutex_lock(&p->lock);
    bool full = p->full;
    pthread_mutex_unlock(&p->lock);
    if (full) return;
    int e = put_all(p->fd, data, chunk_bytes(p, i), p->data_at + i * CHUNK);
    if (!e) e = put_all(p->fd, &digest, sizeof digest, TABLE_AT + i * sizeof digest);
    pthread_mutex_lock(&p->lock);
    bool first = e && !p->full;
    p->full |= e != 0;
    if (!e) {
        p->digest[i] = digest;
        p->state[i] = HERE;
        p->n_come[i]++;
        pthread_cond_broadcast(&p->change);
    }
    pthread_mutex_unlock(&p->lock);
    if (first)
        LOG_WARN("model: what is fetched of %s is not kept any more: %s; a start that is killed begins further back",
                 p->name, strerror(e));
}

/* As partial_come. Only this thread changes the state of chunks that it marked. */
static void come(void *told, uint64_t offset, size_t n)
{
    struct run *r = told;
    for (uint64_t i = offset / CHUNK; i * CHUNK < offset + n; i++) keep(r->p, i, r->buf + (i - r->first) * CHUNK);
}

static enum status fetch_run(struct partial *p, const struct want *w, uint64_t first, uint64_t n, partial_fetch *fetch,
                             void *ctx)
{
    CHECK(n > 0 && n <= RUN_MAX);
    size_t         bytes = (size_t)(n - 1) * CHUNK + chunk_bytes(p, first + n - 1);
    unsigned char *buf = malloc(bytes);
    struct run     run = { p, first, n, buf };
    errno = ENOMEM;
    enum status st = buf ? fetch(ctx, first * CHUNK, buf, bytes, come, &run) : ST_NOMEM;
    int         e = errno;
    for (uint64_t i = first; !st && i < first + n; i++) hand_out(p, w, i, buf + (i - first) * CHUNK);
    /* What is not here by now is absent: it was not told of, not kept, or did not come. */
    pthread_mutex_lock(&p->lock);
    for (uint64_t i = first; i < first + n; i++)
        if (p->state[i] == COMING) p->state[i] = ABSENT;
    pthread_cond_broadcast(&p->change);
    pthread_mutex_unlock(&p->lock);
    free(buf);
    errno = e;
    return st;
}

enum status partial_read(struct partial *p, uint64_t offset, void *dst, size_t n, partial_fetch *fetch, void *ctx)
{
    struct want w = { offset, dst, n };
    CHECK(offset <= p->bytes && n <= p->bytes - offset);
    if (!n) return ST_OK;
    uint64_t       i = offset / CHUNK, end = (offset + n - 1) / CHUNK + 1;
    unsigned char *buf = malloc(CHUNK);
    enum status    st = buf ? ST_OK : ST_NOMEM;
    if (st) errno = ENOMEM;
    while (!st && i < end) {
        pthread_mutex_lock(&p->lock);
        while (p->state[i] == COMING) pthread_cond_wait(&p->change, &p->lock);
        bool     here = p->state[i] == HERE;
        uint32_t n_come = p->n_come[i];
        uint64_t run = 0;
        while (!here && run < RUN_MAX && i + run < end && p->state[i + run] == ABSENT) p->state[i + run++] = COMING;
        pthread_mutex_unlock(&p->lock);
        if (!here) {
            st = fetch_run(p, &w, i, run, fetch, ctx);
            i += run;
        } else if (from_disk(p, &w, i, n_come, buf)) {
            i++;
        }
    }
    int e = errno;
    free(buf);
    errno = e;
    return st;
}

/* ---- the folder */

void partial_remove(const char *dir, const struct partial_of *of)
{
    char path[4200];
    if (path_of(dir, of, path, sizeof path)) (void)unlink(path);
}

static bool is_partial(const char *name)
{
    size_t n = strlen(name), m = strlen(SUFFIX);
    return n > m && !strcmp(name + n - m, SUFFIX);
}

/* Bytes that are free in the folder, or, if it is to be made yet, in the one above it. */
static uint64_t free_bytes(const char *dir)
{
    struct statvfs fs;
    char           above[4200];
    if (statvfs(dir, &fs)) {
        snprintf(above, sizeof above, "%s", dir);
        char *slash = strrchr(above, '/');
        if (slash) slash[slash == above] = 0;
        if (statvfs(slash ? above : ".", &fs)) return 0;
    }
    return (uint64_t)fs.f_bavail * fs.f_frsize;
}

uint64_t partial_room(const char *dir)
{
    struct stat st;
    DIR        *d = opendir(dir);
    uint64_t    room = free_bytes(dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        if (!is_partial(e->d_name) || fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode))
            continue;
        int fd = openat(dirfd(d), e->d_name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        if (fd < 0) continue;
        if (time(NULL) - st.st_mtim.tv_sec > STALE_S && !flock(fd, LOCK_EX | LOCK_NB) &&
            !unlinkat(dirfd(d), e->d_name, 0))
            LOG_INFO("model: %s removed, which nobody has continued for a week", e->d_name);
        room += (uint64_t)st.st_blocks * 512;
        close(fd);
    }
    if (d) closedir(d);
    return room;
}
