#include "server/cmd/batch_read.h"
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { READ_BYTES = 256 << 10 };

void batch_read_init(struct batch_read *r, int fd, size_t bytes_max)
{
    struct stat st;
    memset(r, 0, sizeof *r);
    r->fd = fd;
    r->bytes_max = bytes_max;
    r->waits = fstat(fd, &st) || !S_ISREG(st.st_mode);
}

/* Reads more behind data[n). BATCH_READ_LINE: some came, or r->ended. */
static enum batch_got fill(struct batch_read *r)
{
    if (r->at) {
        memmove(r->data, r->data + r->at, r->n - r->at);
        r->n -= r->at;
        r->at = 0;
    }
    if (r->cap - r->n < READ_BYTES) {
        size_t cap = r->cap ? 2 * r->cap : 2 * (size_t)READ_BYTES;
        char  *p = realloc(r->data, cap);
        if (!p) {
            r->error = ENOMEM;
            return BATCH_READ_FAILED;
        }
        r->data = p;
        r->cap = cap;
    }
    struct pollfd p = { .fd = r->fd, .events = POLLIN };
    if (r->waits && !poll(&p, 1, 0)) return BATCH_READ_LATER;
    ssize_t got = read(r->fd, r->data + r->n, READ_BYTES);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) return BATCH_READ_LATER;
    if (got < 0) {
        r->error = errno;
        return BATCH_READ_FAILED;
    }
    if (!got) r->ended = true;
    r->n += (size_t)got;
    return BATCH_READ_LINE;
}

static enum batch_got give(struct batch_read *r, size_t n, size_t n_end, const char **text_out, size_t *n_out)
{
    const char *text = r->data + r->at;
    r->at += n + n_end;
    r->line++;
    if (r->long_bytes || n > r->bytes_max) {
        *n_out = (size_t)(r->long_bytes + n);
        r->long_bytes = 0;
        return BATCH_READ_LONG;
    }
    if (n && text[n - 1] == '\r') n--;
    *text_out = text;
    *n_out = n;
    return BATCH_READ_LINE;
}

/* Leaves out the mark that editors of Windows put before the first line (Unicode 16, section 23.8). */
static void skip_mark(struct batch_read *r)
{
    static const char mark[] = { '\xef', '\xbb', '\xbf' };
    if (r->begun || (!r->line && r->n - r->at < sizeof mark)) return;
    r->begun = true;
    if (!r->line && !memcmp(r->data + r->at, mark, sizeof mark)) r->at += sizeof mark;
}

enum batch_got batch_read_next(struct batch_read *r, const char **text_out, size_t *n_out)
{
    size_t looked = 0; /* bytes behind `at` without a line end */
    for (;;) {
        skip_mark(r);
        size_t      have = r->n - r->at;
        const char *end = have > looked ? memchr(r->data + r->at + looked, '\n', have - looked) : NULL;
        if (end) return give(r, (size_t)(end - (r->data + r->at)), 1, text_out, n_out);
        if (r->ended && (have || r->long_bytes)) return give(r, have, 0, text_out, n_out);
        if (r->ended) return BATCH_READ_END;
        looked = have;
        if (have > r->bytes_max) { /* the rest of it need not be kept */
            r->long_bytes += have;
            r->at = r->n;
            looked = 0;
        }
        enum batch_got got = fill(r);
        if (got != BATCH_READ_LINE) return got;
    }
}

void batch_read_free(struct batch_read *r)
{
    free(r->data);
    r->data = NULL;
}
