/* source: the files of a model, from a folder, from the binary itself, or through a reader, which fetches them from
 * elsewhere.   Thread: any while loading.
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
struct source_file;
/* Files that lie on no file system of this machine. open, read: as source_open and source_read, of any thread. */
struct source_reader {
    enum status (*open)(const struct source_reader *r, const char *name, struct source_file *f_out);
    enum status (*read)(const struct source_file *f, uint64_t offset, void *dst, size_t n);
    const char *shown; /* where they lie, for messages */
};
struct source {
    const char                 *dir; /* folder, or NULL: embedded, or a reader's */
    const struct source_embed  *embed;
    uint32_t                    n_embed;
    const struct source_reader *reader; /* or NULL. It must outlive the source */
    bool                        dummy;  /* no weights: loading makes them up (dummy.c) and reads only config.json */
};
struct source_file {
    int                         fd;
    const struct source_reader *reader;      /* or NULL */
    bool                        far;         /* a request costs a round trip: large ones are wanted */
    bool                        keep;        /* for a reader: what is read is worth keeping until the model is loaded */
    char                        version[80]; /* of a reader: another one is another file; "": not known */
    const unsigned char        *data;
    uint64_t                    bytes;
    char                        name[256];
}; /* fd < 0: data, or a reader's */

/* True if the open file lies on a file system whose requests go over a network: large reads are wanted there, and no
 * mapping, whose faults are small requests, and which ends the process if the file becomes shorter. */
bool source_fd_is_far(int fd);
/* Where the files of s lie, for messages. */
const char *source_where(const struct source *s);
/* Tells the file system that the bytes will be read next, by whole MiB; nothing where that would be of no use. */
void source_will_read(const struct source_file *f, uint64_t offset, uint64_t n);
/* name: that of a file of the folder, or of one in a folder of it ("1_Pooling/config.json"). On an error errno has the
 * reason, and the line is logged at debug only: the caller that gives up the model logs the error. ST_NOT_FOUND;
 * ST_CONFIG: a person must correct it (permissions, no regular file, a bad name); ST_IO: the disk failed. */
enum status source_open(const struct source *s, const char *name, struct source_file *f_out);
enum status source_read(const struct source_file *f, uint64_t offset, void *dst, size_t n); /* all n bytes or ST_IO */
void        source_close(struct source_file *f);
/* Writes the line of a wrong value into err: ST_CONFIG, for its caller to return. */
__attribute__((format(printf, 3, 4))) enum status source_wrong(char *err, size_t err_bytes, const char *fmt, ...);
/* Whole small file, NUL-terminated, malloc'd; ST_TOO_LARGE above bytes_max. */
enum status source_text(const struct source *s, const char *name, size_t bytes_max, char **text_out, size_t *n_out);
