#include "engine/model/source.h"
#include "base/log.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

static bool is_plain(const char *name, size_t n)
{
    bool dots = (n == 1 && name[0] == '.') || (n == 2 && name[0] == '.' && name[1] == '.');
    return n > 0 && !dots && !memchr(name, '/', n);
}

static bool source_name_ok(const char *name)
{
    const char *file = name;
    const char *slash = strchr(name, '/');
    if (strlen(name) >= sizeof((struct source_file *)0)->name) return false;
    if (slash && !is_plain(name, (size_t)(slash - name))) return false;
    if (slash) file = slash + 1;
    return is_plain(file, strlen(file));
}

/* What a person must mend is ST_CONFIG, what the machine must is ST_IO. */
static enum status source_errno(int e)
{
    switch (e) {
    case EACCES:
    case EPERM:
    case ENOTDIR:
    case ELOOP:
    case ENAMETOOLONG: return ST_CONFIG;
    case EMFILE:
    case ENFILE:
    case ENOMEM: return ST_NOMEM;
    default: return ST_IO;
    }
}

static enum status source_open_embed(const struct source *s, const char *name, struct source_file *f_out)
{
    for (uint32_t i = 0; i < s->n_embed; i++)
        if (!strcmp(s->embed[i].name, name)) {
            *f_out = (struct source_file){ .fd = -1, .data = s->embed[i].data, .bytes = s->embed[i].n };
            memcpy(f_out->name, name, strlen(name) + 1);
            return ST_OK;
        }
    errno = ENOENT;
    return ST_NOT_FOUND;
}

const char *source_where(const struct source *s)
{
    if (s->reader) return s->reader->shown;
    return s->dir ? s->dir : "the embedded model";
}

/* File systems whose requests go over a network: Lustre (FSx), NFS (EFS), SMB, Ceph, GPFS, BeeGFS, 9P, FUSE. */
bool source_fd_is_far(int fd)
{
    static const uint32_t magic[] = { 0x0bd00bd0, 0x6969,     0xff534d42, 0xfe534d42, 0x00c36400,
                                      0x47504653, 0x19830326, 0x01021997, 0x65735546 };
    struct statfs         fs;
    if (fstatfs(fd, &fs)) return false;
    for (size_t i = 0; i < sizeof magic / sizeof *magic; i++)
        if ((uint32_t)fs.f_type == magic[i]) return true;
    return false;
}

void source_will_read(const struct source_file *f, uint64_t offset, uint64_t n)
{
    const uint64_t mib = 1 << 20;
    if (f->fd < 0 || !f->far) return;
    uint64_t from = offset / mib * mib, to = (offset + n + mib - 1) / mib * mib;
    posix_fadvise(f->fd, (off_t)from, (off_t)(to - from), POSIX_FADV_WILLNEED);
}

enum status source_open(const struct source *s, const char *name, struct source_file *f_out)
{
    if (!source_name_ok(name)) {
        LOG_DEBUG("source: \"%.80s\" is not a plain file name, refused", name);
        errno = EINVAL;
        return ST_CONFIG;
    }
    if (s->reader) return s->reader->open(s->reader, name, f_out);
    if (!s->dir) return source_open_embed(s, name, f_out);

    char path[PATH_MAX];
    int  n = snprintf(path, sizeof path, "%s/%s", s->dir, name);
    if (n < 0 || (size_t)n >= sizeof path) {
        LOG_DEBUG("source: the path of %s is longer than %d bytes", name, PATH_MAX);
        errno = ENAMETOOLONG;
        return ST_CONFIG;
    }
    /* O_NONBLOCK: a FIFO of that name must not hang the start. Links are followed: the hub's cache is made of them. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0) {
        int e = errno;
        if (e == ENOENT) return ST_NOT_FOUND;
        LOG_DEBUG("source: cannot open %s: %s", path, strerror(e));
        errno = e;
        return source_errno(e);
    }
    struct stat st;
    int         e = fstat(fd, &st) ? errno : 0;
    if (!e && !S_ISREG(st.st_mode)) e = S_ISDIR(st.st_mode) ? EISDIR : EINVAL;
    if (e) {
        LOG_DEBUG("source: %s cannot be read: %s", path, e == EINVAL ? "not a regular file" : strerror(e));
        close(fd);
        errno = e;
        return e == EISDIR || e == EINVAL ? ST_CONFIG : ST_IO;
    }
    *f_out = (struct source_file){ .fd = fd, .bytes = (uint64_t)st.st_size, .far = source_fd_is_far(fd) };
    memcpy(f_out->name, name, strlen(name) + 1);
    return ST_OK;
}

enum status source_read(const struct source_file *f, uint64_t offset, void *dst, size_t n)
{
    if (offset > f->bytes || n > f->bytes - offset) {
        LOG_DEBUG("source: %s: %zu bytes at offset %llu asked of %llu", f->name, n, (unsigned long long)offset,
                  (unsigned long long)f->bytes);
        errno = EINVAL;
        return ST_IO;
    }
    if (f->reader) return f->reader->read(f, offset, dst, n);
    if (f->fd < 0) {
        if (n) memcpy(dst, f->data + offset, n);
        return ST_OK;
    }
    char *p = dst;
    while (n) {
        size_t  want = n < ((size_t)1 << 30) ? n : (size_t)1 << 30; /* Linux moves at most 2 GiB - 4 KiB a call */
        ssize_t got = pread(f->fd, p, want, (off_t)offset);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) {
            int e = got ? errno : ENODATA;
            LOG_DEBUG("source: %s: read of %zu bytes at offset %llu failed: %s", f->name, want,
                      (unsigned long long)offset, got ? strerror(e) : "the file has become shorter");
            errno = e;
            return ST_IO;
        }
        p += got;
        n -= (size_t)got;
        offset += (uint64_t)got;
    }
    return ST_OK;
}

void source_close(struct source_file *f)
{
    if (f->fd >= 0) close(f->fd);
    *f = (struct source_file){ .fd = -1 };
}

enum status source_text(const struct source *s, const char *name, size_t bytes_max, char **text_out, size_t *n_out)
{
    struct source_file f;
    enum status        st = source_open(s, name, &f);
    if (st) return st;
    char *text = NULL;
    if (f.bytes > bytes_max) {
        LOG_DEBUG("source: %s has %llu bytes, at most %zu are read", name, (unsigned long long)f.bytes, bytes_max);
        errno = EFBIG;
        st = ST_TOO_LARGE;
    } else if (!(text = malloc((size_t)f.bytes + 1))) {
        errno = ENOMEM;
        st = ST_NOMEM;
    } else {
        st = source_read(&f, 0, text, (size_t)f.bytes);
    }
    int    e = errno;
    size_t n = (size_t)f.bytes;
    source_close(&f);
    errno = e;
    if (st) {
        free(text);
        return st;
    }
    text[n] = 0;
    *text_out = text;
    *n_out = n;
    return ST_OK;
}

enum status source_wrong(char *err, size_t err_bytes, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(err, err_bytes, fmt, ap);
    va_end(ap);
    return ST_CONFIG;
}
