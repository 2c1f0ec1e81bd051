#include "engine/model/ident_file.h"
#include "base/buf.h"
#include "base/check.h"
#include "base/file.h"
#include "base/log.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

enum {
    SETTLE_MS = 50,          /* longer than the kernel's tick, by which file systems tell the time */
    SETTLE_COARSE_MS = 2000, /* file systems whose times are whole seconds, or two */
    SAMPLE = 4096,
    FILE_MAX = 512,
    FILES_MAX = 256
};
static const char SUFFIX[] = ".ident";

/* ---------------------------------------------------------------- the key */

static void digest_of_text(const char *text, size_t n, unsigned char out[IDENT_BYTES])
{
    unsigned int bytes = 0;
    CHECK(EVP_Digest(text, n, out, &bytes, EVP_sha256(), NULL));
    CHECK(bytes == IDENT_BYTES);
}

/* Waits until a change would show in the file's times. False: they lie too far ahead of the clock for that. */
static bool settle(const struct stat *st)
{
    const struct timespec *t = &st->st_ctim;
    struct timespec        now;
    int64_t                need_ms = t->tv_nsec ? SETTLE_MS : SETTLE_COARSE_MS;
    clock_gettime(CLOCK_REALTIME, &now);
    if (t->tv_sec > now.tv_sec + 2) return false;
    if (t->tv_sec < now.tv_sec - 4) return true;
    int64_t ago_ms = (int64_t)(now.tv_sec - t->tv_sec) * 1000 + (now.tv_nsec - t->tv_nsec) / 1000000;
    if (ago_ms >= need_ms) return true;
    int64_t         left_ms = need_ms - ago_ms;
    struct timespec wait = { .tv_sec = left_ms / 1000, .tv_nsec = left_ms % 1000 * 1000000 };
    nanosleep(&wait, NULL);
    return true;
}

/* One file into the key's text, and into the text that names the files. */
static enum status put_file(const struct source_file *file, struct buf *key, struct buf *name, bool *certain)
{
    struct stat st;
    if (file->reader && *file->version) {
        buf_printf(name, "object %s at %s\n", file->name, file->reader->shown);
        buf_printf(key, "object %s at %s %" PRIu64 " bytes version %s\n", file->name, file->reader->shown, file->bytes,
                   file->version);
        return ST_OK;
    }
    if (file->fd < 0) { /* in the binary itself */
        buf_printf(key, "embedded %s %" PRIu64 " bytes\n", file->name, file->bytes);
        *certain = false;
        return ST_OK;
    }
    if (fstat(file->fd, &st)) return ST_IO;
    if (!settle(&st)) *certain = false;
    if (fstat(file->fd, &st)) return ST_IO;
    buf_printf(name, "file %s inode %" PRIu64 "\n", file->name, (uint64_t)st.st_ino);
    buf_printf(key, "file %s inode %" PRIu64 " %" PRIu64 " bytes mtime %lld.%09ld ctime %lld.%09ld", file->name,
               (uint64_t)st.st_ino, (uint64_t)st.st_size, (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec,
               (long long)st.st_ctim.tv_sec, st.st_ctim.tv_nsec);
    if (major(st.st_dev)) buf_printf(key, " device %u:%u", major(st.st_dev), minor(st.st_dev));
    buf_puts(key, "\n");
    return ST_OK;
}

/* Samples tell a checkpoint that was trained further on file systems whose times and inodes say nothing (images with
 * all times alike). */
static enum status put_tensor(const struct st_set *set, const struct st_tensor *t, struct buf *key)
{
    unsigned char part[SAMPLE], digest[IDENT_BYTES];
    char          shape[256];
    size_t        n = t->bytes < SAMPLE ? (size_t)t->bytes : (size_t)SAMPLE;
    if (*set->file[t->file].version)
        memset(part, 0, n); /* the version says as much, and a request for each tensor takes long */
    else if (source_read(&set->file[t->file], t->offset + (t->bytes - n) / 2, part, n))
        return ST_IO;
    digest_of_text((const char *)part, n, digest);
    buf_printf(key, "tensor %s %s %s file %u offset %" PRIu64 " sample ", t->name, t->dtype_text,
               st_shape_text(t, shape, sizeof shape), t->file, t->offset);
    buf_put(key, digest, sizeof digest);
    buf_puts(key, "\n");
    return ST_OK;
}

enum status ident_file_key(const struct st_set *set, uint64_t share, struct ident_file *f_out)
{
    struct buf    key, name;
    unsigned char digest[IDENT_BYTES];
    enum status   st = ST_OK;
    *f_out = (struct ident_file){ .certain = true };
    buf_init(&key, (size_t)1 << 30);
    buf_init(&name, (size_t)1 << 24);
    buf_printf(&key, "spillway identity of files 1 share %016" PRIx64 "\n", share);
    buf_printf(&name, "share %016" PRIx64 "\n", share);
    for (uint32_t i = 0; !st && i < set->n_file; i++) st = put_file(&set->file[i], &key, &name, &f_out->certain);
    for (uint32_t i = 0; !st && i < set->n_tensor; i++) st = put_tensor(set, &set->tensor[i], &key);
    if (!st && (key.failed || name.failed)) st = ST_NOMEM;
    if (!st) {
        digest_of_text(key.data, key.n, f_out->key);
        digest_of_text(name.data, name.n, digest);
        for (int i = 0; i < 16; i++) snprintf(f_out->name + 2 * i, 3, "%02x", digest[i]);
        memcpy(f_out->name + 32, SUFFIX, sizeof SUFFIX);
    }
    buf_free(&key);
    buf_free(&name);
    return st;
}

bool ident_file_same(const struct ident_file *a, const struct ident_file *b)
{
    return !memcmp(a->key, b->key, sizeof a->key);
}

/* ---------------------------------------------------------------- the file
 * Three lines: which key, which root, and the SHA-256 of both lines. There is one way to write them, so reading is
 * comparing. */

static void put_hex(struct buf *b, const char *what, const unsigned char v[IDENT_BYTES])
{
    buf_puts(b, what);
    for (int i = 0; i < IDENT_BYTES; i++) buf_printf(b, "%02x", v[i]);
    buf_puts(b, "\n");
}

static void put_lines(struct buf *b, const struct ident_file *f, const unsigned char root[IDENT_BYTES])
{
    unsigned char sum[IDENT_BYTES];
    buf_init(b, FILE_MAX);
    put_hex(b, "spillway weights 1 key ", f->key);
    put_hex(b, "root ", root);
    CHECK(!b->failed);
    digest_of_text(b->data, b->n, sum);
    put_hex(b, "sum ", sum);
    CHECK(!b->failed);
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool get_hex(const char *text, unsigned char out[IDENT_BYTES])
{
    for (int i = 0; i < IDENT_BYTES; i++) {
        int hi = hex_digit(text[2 * i]), lo = hi < 0 ? -1 : hex_digit(text[2 * i + 1]);
        if (lo < 0) return false;
        out[i] = (unsigned char)(hi << 4 | lo);
    }
    return true;
}

/* The root that text [n] says, if it is the one way to write that under this key. */
static bool get_root(const char *text, size_t n, const struct ident_file *f, unsigned char root_out[IDENT_BYTES])
{
    struct buf    want;
    unsigned char root[IDENT_BYTES];
    const char   *at = memmem(text, n, "\nroot ", 6);
    if (!at || n - (size_t)(at - text) < 6 + 2 * IDENT_BYTES || !get_hex(at + 6, root)) return false;
    put_lines(&want, f, root);
    bool same = want.n == n && !memcmp(want.data, text, n);
    buf_free(&want);
    if (same) memcpy(root_out, root, IDENT_BYTES);
    return same;
}

/* NULL: what lies open at fd may be believed; else why not. */
static const char *owner_fault(int fd)
{
    struct stat st;
    if (fstat(fd, &st)) return strerror(errno);
    if (!S_ISREG(st.st_mode)) return "it is no regular file";
    if (st.st_uid != geteuid() && st.st_uid != 0) return "another user owns it";
    return st.st_mode & (S_IWGRP | S_IWOTH) ? "others may write it" : NULL;
}

bool ident_file_read(const char *dir, const struct ident_file *f, unsigned char root_out[IDENT_BYTES])
{
    char path[4200], text[FILE_MAX + 1];
    int  n = snprintf(path, sizeof path, "%s/%s", dir, f->name);
    if (!f->certain || n < 0 || (size_t)n >= sizeof path) return false;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        if (errno != ENOENT && errno != ENOTDIR)
            LOG_WARN("ident: %s is not used: %s; the checkpoint is read", path, strerror(errno));
        return false;
    }
    const char *why = owner_fault(fd);
    ssize_t     got = why ? 0 : read(fd, text, FILE_MAX);
    if (!why && (got < 0 || !get_root(text, (size_t)got, f, root_out)))
        why = "the checkpoint has changed, or this file is damaged";
    close(fd);
    if (why) LOG_WARN("ident: %s is not used: %s; the checkpoint is read", path, why);
    return !why;
}

/* A name is made of inodes, so every new copy of a checkpoint leaves one behind. Beyond FILES_MAX all go: each comes
 * again with a load. */
static void bound_files(int dir)
{
    int            copy = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR           *d = copy < 0 ? NULL : fdopendir(copy);
    uint32_t       n = 0;
    struct dirent *e;
    if (!d) {
        if (copy >= 0) close(copy);
        return;
    }
    for (int pass = 0; pass < 2; pass++, rewinddir(d))
        while ((e = readdir(d))) {
            size_t len = strlen(e->d_name);
            if (len < sizeof SUFFIX || strcmp(e->d_name + len - (sizeof SUFFIX - 1), SUFFIX) != 0) continue;
            if (pass == 0)
                n++;
            else if (n >= FILES_MAX)
                (void)unlinkat(dir, e->d_name, 0);
        }
    closedir(d);
}

void ident_file_write(const char *dir, const struct ident_file *f, const unsigned char root[IDENT_BYTES])
{
    if (!f->certain) return;
    struct buf text;
    int        fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), e = fd < 0 ? errno : 0;
    put_lines(&text, f, root);
    if (!e) {
        bound_files(fd);
        e = file_replace(fd, f->name, text.data, text.n, 0644);
    }
    if (e)
        LOG_WARN("ident: cannot keep %s in %s: %s; the next start reads the checkpoint again", f->name, dir,
                 strerror(e));
    if (fd >= 0) close(fd);
    buf_free(&text);
}
