#include "base/file.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TRIES = 10000 }; /* another writer may rename the temporary file away between our open and our lock, each time */

/* The temporary file, locked: no other writer has it. Returns 0 or errno. */
static int part_open(int dir, const char *part, mode_t mode, int *fd_out)
{
    for (int i = 0; i < TRIES; i++) {
        struct stat here;
        struct stat there;
        int         fd = openat(dir, part, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, mode);
        if (fd < 0) return errno;
        if (flock(fd, LOCK_EX) || fstat(fd, &here)) {
            int error = errno;
            close(fd);
            return error;
        }
        if (!S_ISREG(here.st_mode)) {
            close(fd);
            return EINVAL;
        }
        if (fstatat(dir, part, &there, AT_SYMLINK_NOFOLLOW) == 0 && there.st_ino == here.st_ino &&
            there.st_dev == here.st_dev) {
            *fd_out = fd;
            return 0;
        }
        close(fd);
    }
    return EBUSY;
}

static int write_whole(int fd, const void *data, size_t bytes, mode_t mode)
{
    const char *from = data;
    if (ftruncate(fd, 0) || fchmod(fd, mode)) return errno;
    while (bytes) {
        ssize_t n = write(fd, from, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return n < 0 ? errno : ENOSPC;
        from += n;
        bytes -= (size_t)n;
    }
    return fsync(fd) ? errno : 0;
}

/* The folder that dir/name lies in, so that the new name is on the disk too. */
static int sync_folder(int dir, const char *name)
{
    char        folder[PATH_MAX] = ".";
    const char *slash = strrchr(name, '/');
    if (slash) snprintf(folder, sizeof folder, "%.*s", slash == name ? 1 : (int)(slash - name), name);
    int fd = openat(dir, folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return errno;
    int error = fsync(fd) ? errno : 0;
    close(fd);
    return error == EINVAL ? 0 : error; /* a file system that syncs no folders */
}

int file_replace(int dir, const char *name, const void *data, size_t bytes, mode_t mode)
{
    char part[PATH_MAX];
    int  fd = -1;
    if (snprintf(part, sizeof part, "%s.new", name) >= (int)sizeof part) return ENAMETOOLONG;
    int error = part_open(dir, part, mode, &fd);
    if (error) return error;
    error = write_whole(fd, data, bytes, mode);
    if (!error && renameat(dir, part, dir, name)) error = errno;
    if (error) unlinkat(dir, part, 0);
    close(fd); /* and the lock with it */
    return error ? error : sync_folder(dir, name);
}

int file_read_fd(int fd, void *data_out, size_t bytes_max, size_t *bytes_out)
{
    char  *to = data_out;
    size_t got = 0;
    while (got < bytes_max) {
        ssize_t n = read(fd, to + got, bytes_max - got);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return errno;
        if (n == 0) break;
        got += (size_t)n;
    }
    *bytes_out = got;
    return 0;
}

int file_read(int dir, const char *name, void *data_out, size_t bytes_max, size_t *bytes_out)
{
    struct stat st;
    size_t      got = 0;
    size_t      more = 0;
    char        byte;
    int         fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) return errno;
    int error = fstat(fd, &st) ? errno : 0;
    if (!error && !S_ISREG(st.st_mode)) error = S_ISDIR(st.st_mode) ? EISDIR : EINVAL;
    if (!error) error = file_read_fd(fd, data_out, bytes_max, &got);
    if (!error && got == bytes_max) error = file_read_fd(fd, &byte, 1, &more);
    if (!error && more) error = EFBIG;
    close(fd);
    if (!error) *bytes_out = got;
    return error;
}

int file_read_first(const char *path, void *data_out, size_t bytes_max, size_t *bytes_out)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return errno;
    int error = file_read_fd(fd, data_out, bytes_max, bytes_out);
    close(fd);
    return error;
}

size_t file_without_line_end(const void *data, size_t n)
{
    const char *text = data;
    while (n && (text[n - 1] == '\n' || text[n - 1] == '\r')) n--;
    return n;
}

/* The first folder of path that is not there, above its last one; false: all of them are. */
static bool missing_parent(const char *path, char *out, size_t out_bytes)
{
    for (const char *end = path; (end = strchr(end + 1, '/'));) {
        struct stat st;
        if (end[strspn(end, "/")] == 0) return false; /* slashes behind the last name */
        if ((size_t)(end - path) >= out_bytes) return false;
        memcpy(out, path, (size_t)(end - path));
        out[end - path] = 0;
        if (stat(out, &st) && errno == ENOENT) return true;
    }
    return false;
}

int file_make_folder(const char *path, mode_t mode, char *why, size_t why_bytes)
{
    char parent[4096];
    if (mkdir(path, mode) == 0 || errno == EEXIST) return 0;
    int error = errno;
    if (error == ENOENT && missing_parent(path, parent, sizeof parent))
        snprintf(why, why_bytes, "the folder cannot be made: %.120s is not there: mount it, or make it with mkdir -p",
                 parent);
    else
        snprintf(why, why_bytes, "the folder cannot be made: %s", strerror(error));
    return error;
}

bool file_folder_is_ours(int dir, char *why, size_t why_bytes)
{
    struct stat st;
    if (fstat(dir, &st)) {
        snprintf(why, why_bytes, "the folder cannot be looked at: %s", strerror(errno));
        return false;
    }
    if (st.st_uid != geteuid() && st.st_uid != 0) {
        snprintf(why, why_bytes,
                 "the folder belongs to another user (uid %u, this is %u), who could forge what lies there",
                 (unsigned)st.st_uid, (unsigned)geteuid());
        return false;
    }
    if (st.st_mode & (S_IWGRP | S_IWOTH)) {
        snprintf(why, why_bytes,
                 "others may write to the folder (mode %04o, 0700 is right) and could forge what lies there",
                 (unsigned)(st.st_mode & 07777));
        return false;
    }
    return true;
}
