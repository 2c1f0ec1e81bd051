/* store_folder: the folder of a store: whether it can be used now, and its lock. A folder that cannot be used is no
 * error of the server: it may be another server's for as long as that drains, its file system may come later, its disk
 * may be full. */
#include "base/file.h"
#include "kvcache/folder/store_impl.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* True if only servers of this user can have written to the folder, or if each of its files carries a MAC or is
 * sealed. */
static bool is_trusted(const struct kv_store *s, char *why, size_t why_bytes)
{
    return s->cfg.key.mac || s->cfg.secret || file_folder_is_ours(s->root, why, why_bytes);
}

static enum status failed(const char *what, char *why, size_t why_bytes)
{
    snprintf(why, why_bytes, "%s: %s", what, strerror(errno));
    return ST_IO;
}

static enum status open_alone(struct kv_store *s, char *why, size_t why_bytes)
{
    if (file_make_folder(s->path, 0700, why, why_bytes)) return ST_IO;
    s->root = open(s->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (s->root < 0) return failed("the folder cannot be opened", why, why_bytes);
    if (!is_trusted(s, why, why_bytes)) return ST_IO;
    s->lock = openat(s->root, "LOCK", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (s->lock < 0) return failed("its LOCK cannot be opened", why, why_bytes);
    if (flock(s->lock, LOCK_EX | LOCK_NB)) {
        if (errno != EWOULDBLOCK) return failed("its LOCK cannot be locked", why, why_bytes);
        snprintf(why, why_bytes, "another server uses it");
        return ST_AGAIN;
    }
    models_name(s->own, sizeof s->own, &s->cfg.fingerprint);
    int error = models_open(s->root, s->own, &s->dir);
    if (!error) return ST_OK;
    errno = error;
    return failed("a folder of this model cannot be made there", why, why_bytes);
}

static void close_one(int *fd)
{
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

void folder_close(struct kv_store *s)
{
    share_close(s);
    close_one(&s->lock);
    close_one(&s->dir);
    close_one(&s->root);
}

enum status folder_open(struct kv_store *s, char *why, size_t why_bytes)
{
    enum status st = s->cfg.shared ? share_open(s, why, why_bytes) : open_alone(s, why, why_bytes);
    if (st) folder_close(s);
    return st;
}
