#include "kvcache/folder/store_models.h"
#include "base/file.h"
#include "kvcache/folder/store_file.h"
#include "kvcache/folder/store_format.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char     PREFIX[] = "model-";
static const char     USED[] = "USED";
static const uint64_t USED_MAX = UINT64_MAX / 2; /* a larger number was not counted up to: it is damaged */

enum { KEY_DIGITS = 2 * sizeof(struct kv_key), USED_BYTES = 32 };

/* ---- names and numbers */

void models_name(char *out, size_t bytes, const struct kv_key *fingerprint)
{
    char digits[KEY_DIGITS + 1];
    for (size_t i = 0; i < sizeof fingerprint->b; i++) snprintf(digits + 2 * i, 3, "%02x", fingerprint->b[i]);
    snprintf(out, bytes, "%s%s", PREFIX, digits);
}

bool models_is_name(const char *name)
{
    size_t n = sizeof PREFIX - 1;
    return !strncmp(name, PREFIX, n) && strspn(name + n, "0123456789abcdef") == KEY_DIGITS && name[n + KEY_DIGITS] == 0;
}

uint64_t models_used(int sub)
{
    char     text[USED_BYTES + 1];
    size_t   n = 0;
    uint64_t used = 0;
    int      end = 0;
    if (file_read(sub, USED, text, USED_BYTES, &n)) return 0;
    text[n] = 0;
    if (sscanf(text, "%20" SCNu64 "%n", &used, &end) != 1 || strcmp(text + end, "\n") || used > USED_MAX) return 0;
    return used;
}

static int sub_open(int root, const char *name)
{
    return openat(root, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
}

static DIR *list_open(int dir)
{
    int  fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (fd >= 0 && !d) close(fd);
    return d;
}

/* The next name of a listing. NULL: that was the last, or *error_out says why not. */
static const char *list_next(DIR *d, int *error_out)
{
    errno = 0;
    struct dirent *e = readdir(d);
    *error_out = e ? 0 : errno;
    return e ? e->d_name : NULL;
}

/* ---- the own sub-folder */

static int used_highest(int root, uint64_t *used_out)
{
    DIR        *d = list_open(root);
    int         error = d ? 0 : errno;
    const char *name;
    *used_out = 0;
    while (d && (name = list_next(d, &error))) {
        int sub = models_is_name(name) ? sub_open(root, name) : -1;
        if (sub < 0) continue;
        uint64_t used = models_used(sub);
        if (used > *used_out) *used_out = used;
        close(sub);
    }
    if (d) closedir(d);
    return error;
}

int models_open(int root, const char *own, int *dir_out)
{
    char     text[USED_BYTES];
    uint64_t used;
    int      error = used_highest(root, &used);
    if (error) return error;
    if (mkdirat(root, own, 0700) && errno != EEXIST) return errno;
    int dir = sub_open(root, own);
    if (dir < 0) return errno;
    int n = snprintf(text, sizeof text, "%" PRIu64 "\n", used + 1);
    error = file_replace(dir, USED, text, (size_t)n, 0600);
    if (error) {
        close(dir);
        return error;
    }
    *dir_out = dir;
    return 0;
}

/* Nothing but its number is in it. */
static bool is_empty(int sub)
{
    DIR        *d = list_open(sub);
    int         error = 0;
    bool        empty = d != NULL;
    const char *name;
    while (d && empty && (name = list_next(d, &error)))
        empty = !strcmp(name, ".") || !strcmp(name, "..") || !strcmp(name, USED);
    if (d) closedir(d);
    return empty && !error;
}

void models_tidy(int root)
{
    DIR        *d = list_open(root);
    int         error;
    const char *name;
    while (d && (name = list_next(d, &error))) {
        int sub = models_is_name(name) ? sub_open(root, name) : -1;
        if (sub < 0) continue;
        if (is_empty(sub)) {
            unlinkat(sub, USED, 0);
            unlinkat(root, name, AT_REMOVEDIR);
        }
        close(sub);
    }
    if (d) closedir(d);
}

/* ---- the others */

enum kind { NO_SEGMENT, SEGMENT, UNREADABLE };

/* Whether a file is a segment that a store has made, of any version. ours: the folder is a store's own, where one whose
 * header was never written is a segment as well. */
static enum kind kind_of(int dir, const char *name, bool ours, uint64_t *bytes_out)
{
    unsigned char head[sizeof STORE_HEADER];
    struct stat   st;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW)) return errno == ENOENT ? NO_SEGMENT : UNREADABLE;
    if (!S_ISREG(st.st_mode)) return NO_SEGMENT;
    *bytes_out = (uint64_t)st.st_size;
    int     fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    ssize_t n = fd < 0 ? -1 : pread(fd, head, sizeof head, 0);
    if (fd >= 0) close(fd);
    if (n < 0) return UNREADABLE;
    static const unsigned char zero[sizeof head];
    size_t                     got = (size_t)n;
    if (got == sizeof head && !memcmp(head, STORE_HEADER, sizeof head)) return SEGMENT;
    return ours && !memcmp(head, zero, got) ? SEGMENT : NO_SEGMENT; /* empty, or prepared and no more */
}

struct sum {
    uint64_t bytes, removable; /* removable: of them, in files that were read and are segments */
};
struct left { /* what is left of others */
    uint64_t bytes;
    /* of the sub-folder that was used longest ago and holds something removable; ".": the folder itself */
    char     name[MODELS_NAME];
    uint64_t used;
    bool     any;
};

/* Bytes of the segments in a sub-folder, or with ours false in the folder itself. */
static int sum_of(int sub, bool ours, struct sum *out)
{
    DIR        *d = list_open(sub);
    int         error = d ? 0 : errno;
    const char *name;
    uint64_t    seq;
    *out = (struct sum){ .bytes = 0 };
    while (d && (name = list_next(d, &error))) {
        uint64_t  bytes = 0;
        enum kind kind = store_seq_of(name, &seq) ? kind_of(sub, name, ours, &bytes) : NO_SEGMENT;
        if (kind != NO_SEGMENT) out->bytes += bytes;
        if (kind == SEGMENT) out->removable += bytes;
    }
    if (d) closedir(d);
    return error;
}

int models_bytes(int sub, uint64_t *bytes_out)
{
    struct sum sum;
    int        error = sum_of(sub, true, &sum);
    if (!error) *bytes_out = sum.bytes;
    return error;
}

static int look_into(int root, const char *name, struct left *l)
{
    struct sum sum;
    bool       is_sub = strcmp(name, ".") != 0;
    int        sub = sub_open(root, name);
    if (sub < 0)
        return errno == ENOENT || errno == ENOTDIR || errno == ELOOP
                   ? 0
                   : errno; /* a file or a link is nobody's sub-folder */
    int      error = sum_of(sub, is_sub, &sum);
    uint64_t used = is_sub ? models_used(sub) : 0;
    close(sub);
    if (error) return error;
    l->bytes += sum.bytes;
    if (!sum.removable) return 0;
    bool older = !l->any || used < l->used || (used == l->used && strcmp(name, l->name) < 0);
    if (!older) return 0;
    snprintf(l->name, sizeof l->name, "%.*s", MODELS_NAME - 1, name);
    l->used = used;
    l->any = true;
    return 0;
}

static int look(int root, const char *own, struct left *l)
{
    DIR        *d = list_open(root);
    int         error = d ? 0 : errno;
    const char *name;
    *l = (struct left){ .bytes = 0 };
    if (d) error = look_into(root, ".", l);
    while (d && !error && (name = list_next(d, &error)))
        if (models_is_name(name) && strcmp(name, own)) error = look_into(root, name, l);
    if (d) closedir(d);
    return error;
}

int models_others(int root, const char *own, uint64_t *bytes_out)
{
    struct left l;
    int         error = look(root, own, &l);
    if (!error) *bytes_out = l.bytes;
    return error;
}

static int by_seq(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Removes segments of one sub-folder, the oldest first, until so many bytes have gone. Returns how many have. */
static uint64_t remove_some(int sub, bool ours, uint64_t bytes_wanted, uint32_t *n_removed)
{
    enum { NAMES_MAX = 1 << 16 };
    uint64_t   *seq = malloc(NAMES_MAX * sizeof *seq);
    DIR        *d = list_open(sub);
    uint32_t    n = 0;
    uint64_t    gone = 0;
    int         error;
    const char *name;
    while (seq && d && n < NAMES_MAX && (name = list_next(d, &error)))
        if (store_seq_of(name, &seq[n])) n++;
    if (d) closedir(d);
    if (n) qsort(seq, n, sizeof *seq, by_seq);
    for (uint32_t i = 0; i < n && gone < bytes_wanted; i++) {
        char     file[32];
        uint64_t bytes = 0;
        store_name(file, sizeof file, seq[i]);
        if (kind_of(sub, file, ours, &bytes) != SEGMENT || unlinkat(sub, file, 0)) continue;
        gone += bytes;
        ++*n_removed;
    }
    free(seq);
    return gone;
}

int models_shrink(int root, const char *own, uint64_t bytes_max, uint64_t *bytes_out, uint32_t *n_removed_out)
{
    struct left l;
    int         error = look(root, own, &l);
    *n_removed_out = 0;
    while (!error && l.bytes > bytes_max && l.any) {
        int sub = sub_open(root, l.name);
        if (sub < 0) return errno;
        uint64_t gone = remove_some(sub, strcmp(l.name, ".") != 0, l.bytes - bytes_max, n_removed_out);
        close(sub);
        error = look(root, own, &l);
        if (!gone) break; /* a file system that nothing can be removed from */
    }
    if (!error) *bytes_out = l.bytes;
    return error;
}
