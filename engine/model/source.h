/* source: the files of a model, from a folder or from the binary itself.   Thread: any while loading.
 * Files are read with pread, never mapped: a file that is cut short meanwhile causes an error message, not SIGBUS. */
#pragma once
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct source_embed {
    const char          *name;
    const unsigned char *data;
    size_t               n;
};
struct source {
    const char                *dir; /* folder, or NULL: embedded */
    const struct source_embed *embed;
    uint32_t                   n_embed;
    bool                       dummy; /* no weights: loading makes them up (dummy.c) and reads only config.json */
};
struct source_file {
    int                  fd;
    const unsigned char *data;
    uint64_t             bytes;
    char                 name[256];
}; /* fd < 0: data */

/* name: a plain file name without '/'. On an error errno has the reason, and the line is logged at debug only: the
 * caller that gives up the model logs the error. ST_NOT_FOUND; ST_CONFIG: a person must correct it (permissions, no
 * regular file, a bad name); ST_IO: the disk failed. */
enum status source_open(const struct source *s, const char *name, struct source_file *f_out);
enum status source_read(const struct source_file *f, uint64_t offset, void *dst, size_t n); /* all n bytes or ST_IO */
void        source_close(struct source_file *f);
/* Whole small file, NUL-terminated, malloc'd; ST_TOO_LARGE above bytes_max. */
enum status source_text(const struct source *s, const char *name, size_t bytes_max, char **text_out, size_t *n_out);
