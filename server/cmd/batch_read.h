/* batch_read: the lines of a file or a pipe, one at a time, in bounded memory.   Thread: one owner. */
#pragma once
#include "base/buf.h"

struct batch_read {
    int      fd;
    char    *data;
    size_t   at, n, cap, bytes_max; /* data[at, n) is not taken yet; bytes_max: of a line */
    uint64_t line;                  /* number of the last line that was returned, from 1; 0: none */
    uint64_t long_bytes;            /* of a line that is too long, so far; 0: none is being skipped */
    bool     begun, ended, waits;   /* begun: behind a mark; waits: reading may block, so it is asked for first */
    int      error;                 /* errno of BATCH_READ_FAILED */
};

enum batch_got {
    BATCH_READ_LINE,
    BATCH_READ_LONG,  /* the line has more than bytes_max bytes (*n_out); it was skipped */
    BATCH_READ_LATER, /* a pipe has nothing now */
    BATCH_READ_END,
    BATCH_READ_FAILED,
};

/* fd stays the caller's, at its current position. bytes_max: of a line without its end. */
void batch_read_init(struct batch_read *r, int fd, size_t bytes_max);
/* The next line without its end, the first one without a byte order mark; *text_out is valid until the next call. A
 * last line without an end is a line. */
enum batch_got batch_read_next(struct batch_read *r, const char **text_out, size_t *n_out);
void           batch_read_free(struct batch_read *r); /* does not close fd */
