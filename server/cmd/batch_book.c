#include "server/cmd/batch_book.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/hex.h"
#include "base/json.h"
#include "server/cmd/batch_read.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEADER_BYTES_MAX = 1 << 20, OUTPUT_LINE_MAX = 512 << 20 };

static int fail(struct batch_book *b, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

static int fail(struct batch_book *b, int code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(b->why, sizeof b->why, fmt, ap);
    va_end(ap);
    return code;
}

/* ---- the files ---- */

static int exit_of(int error) { return error == EACCES || error == EPERM ? EXIT_PERM : EXIT_IO; }

static int open_file(struct batch_book *b, const char *path, int *fd_out)
{
    struct stat st;
    int         fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666);
    if (fd < 0) return fail(b, exit_of(errno), "%s: cannot be opened: %s", path, strerror(errno));
    *fd_out = fd;
    if (fstat(fd, &st) || !S_ISREG(st.st_mode))
        return fail(b, EXIT_USAGE, "%s: is no plain file; '-' is standard output", path);
    if (flock(fd, LOCK_EX | LOCK_NB)) return fail(b, EXIT_CONFIG, "%s: another run writes to it", path);
    return 0;
}

static uint64_t size_of(int fd)
{
    struct stat st;
    return fstat(fd, &st) ? 0 : (uint64_t)st.st_size;
}

int batch_book_open(struct batch_book *b, const char *output, const char *errors, bool restart, bool input_is_file)
{
    struct stat one, two;
    memset(b, 0, sizeof *b);
    batch_seen_init(&b->seen);
    b->out = b->err = -1;
    b->output = output;
    b->errors = errors;
    b->restart = restart;
    bool to_stdout = !strcmp(output, "-");
    b->resumable = !to_stdout && input_is_file;
    int code = 0;
    if (to_stdout)
        b->out = STDOUT_FILENO;
    else
        code = open_file(b, output, &b->out);
    if (!code && *errors) code = open_file(b, errors, &b->err);
    if (code) return code;
    if (!*errors) b->err = b->out;
    if (*errors && !fstat(b->out, &one) && !fstat(b->err, &two) && one.st_dev == two.st_dev && one.st_ino == two.st_ino)
        return fail(b, EXIT_USAGE, "--errors: found the file of --output, needed is another one");
    return 0;
}

/* ---- what the output was made from ---- */

static int header_path(struct batch_book *b, char path[PATH_MAX])
{
    if (snprintf(path, PATH_MAX, "%s.batch", b->output) < PATH_MAX) return 0;
    return fail(b, EXIT_USAGE, "--output: the path is too long");
}

/* "" or the first difference, by name. now may lack members that old has. */
static bool differ(struct batch_book *b, const char *of, const json_t *old, const json_t *now)
{
    const char *name;
    json_t     *v;
    json_object_foreach((json_t *)(uintptr_t)now, name, v)
    {
        const json_t *was = json_object_get(old, name);
        if (json_is_object(v)) {
            if (differ(b, name, was, v)) return true;
            continue;
        }
        if (json_equal(was, v)) continue;
        fail(b, EXIT_CONFIG, "%s was made with another %s%s%s: %.100s, now it is %.100s; --restart begins anew",
             b->output, of, *of ? " " : "", name, json_is_string(was) ? json_string_value(was) : "nothing",
             json_is_string(v) ? json_string_value(v) : "nothing");
        return true;
    }
    return false;
}

/* The object of OUTPUT.batch, or NULL: there is none (*code_out 0), or it cannot be used. */
static json_t *read_header(struct batch_book *b, int *code_out)
{
    char              path[PATH_MAX];
    struct json_error e;
    size_t            n = 0;
    char             *text = malloc(HEADER_BYTES_MAX);
    json_t           *old = NULL;
    *code_out = text ? header_path(b, path) : fail(b, EXIT_SOFTWARE, "out of memory");
    int error = *code_out ? 0 : file_read(AT_FDCWD, path, text, HEADER_BYTES_MAX, &n);
    if (error && error != ENOENT) *code_out = fail(b, exit_of(error), "%s: cannot be read: %s", path, strerror(error));
    if (!*code_out && !error && !(old = json_parse(text, n, 0, &e)))
        *code_out = fail(b, EXIT_CONFIG, "%s: found no JSON: %s; --restart begins anew", path, e.text);
    free(text);
    return old;
}

static int write_header(struct batch_book *b, const json_t *made_from)
{
    char    path[PATH_MAX];
    json_t *all = json_copy((json_t *)(uintptr_t)made_from);
    int     code = header_path(b, path);
    json_object_set_new(all, "run", json_string(b->run));
    char *text = code ? NULL : json_dumps(all, JSON_INDENT(1));
    int   error = text ? file_replace(AT_FDCWD, path, text, strlen(text), 0644) : ENOMEM;
    if (!code && error) code = fail(b, exit_of(error), "%s: cannot be written: %s", path, strerror(error));
    free(text);
    json_decref(all);
    return code;
}

/* ---- what is answered ---- */

/* Reads the lines of one of the files and cuts off a torn last one. */
static int read_answers(struct batch_book *b, int fd, const char *path)
{
    struct batch_read r;
    const char       *text;
    size_t            n;
    uint64_t          line, size = size_of(fd), whole = 0;
    bool              good;
    if (lseek(fd, 0, SEEK_SET)) return fail(b, EXIT_IO, "%s: %s", path, strerror(errno));
    batch_read_init(&r, fd, OUTPUT_LINE_MAX);
    int code = 0;
    while (!code) {
        enum batch_got got = batch_read_next(&r, &text, &n);
        if (got == BATCH_READ_END) break;
        if (got == BATCH_READ_FAILED) code = fail(b, EXIT_IO, "%s: cannot be read: %s", path, strerror(r.error));
        if (got == BATCH_READ_LATER || code) continue;
        whole += n + 1;
        if (whole > size) { /* no line end: torn */
            whole -= n + 1;
            if (ftruncate(fd, (off_t)whole)) code = fail(b, EXIT_IO, "%s: cannot be cut: %s", path, strerror(errno));
            break;
        }
        if (got == BATCH_READ_LONG || !batch_line_is_of(text, n, b->run, &line, &good)) {
            code = fail(b, EXIT_CONFIG, "%s line %" PRIu64 ": found no answer of this batch; --restart begins anew",
                        path, r.line);
        } else if (batch_seen_set_done(&b->seen, line)) {
            code = fail(b, EXIT_SOFTWARE, "out of memory for the answered lines");
        } else {
            b->n_before++;
            b->n_before_failed += !good;
        }
    }
    batch_read_free(&r);
    return code;
}

static int cut_all(struct batch_book *b)
{
    /* The errors first: an output without them is still one of its header. */
    if (b->err != b->out && ftruncate(b->err, 0)) return fail(b, EXIT_IO, "%s: %s", b->errors, strerror(errno));
    if (ftruncate(b->out, 0)) return fail(b, EXIT_IO, "%s: %s", b->output, strerror(errno));
    return 0;
}

static void name_run(struct batch_book *b) { snprintf(b->run, sizeof b->run, "%016" PRIx64, hash_seed()); }

int batch_book_begin(struct batch_book *b, const json_t *made_from, bool last)
{
    bool empty = b->restart || (!size_of(b->out) && !size_of(b->err));
    int  code = 0;
    if (b->out == STDOUT_FILENO) {
        if (b->err != b->out && size_of(b->err) && !b->restart)
            return fail(b, EXIT_CONFIG,
                        "%s: has lines already, and an output to a pipe cannot be continued; --restart empties it",
                        b->errors);
        name_run(b);
        return last && b->err != b->out && ftruncate(b->err, 0) ? fail(b, EXIT_IO, "%s: %s", b->errors, strerror(errno))
                                                                : 0;
    }
    if (empty) {
        if (!last) return 0;
        name_run(b);
        code = cut_all(b);
        return !code && b->resumable ? write_header(b, made_from) : code;
    }
    if (!b->resumable)
        return fail(b, EXIT_CONFIG,
                    "%s: has lines already, and a batch from a pipe cannot be continued; --restart empties it",
                    b->output);
    json_t *old = read_header(b, &code);
    if (!old && !code)
        code = fail(b, EXIT_CONFIG,
                    "%s: has lines already, and no %s.batch says what they were made from; --restart empties it",
                    b->output, b->output);
    const char *run = json_string_value(json_object_get(old, "run"));
    if (!code && (!run || strlen(run) != BATCH_RUN_BYTES - 1))
        code = fail(b, EXIT_CONFIG, "%s.batch: has no valid \"run\"; --restart begins anew", b->output);
    if (!code && differ(b, "", old, made_from)) code = EXIT_CONFIG;
    if (!code) memcpy(b->run, run, sizeof b->run);
    json_decref(old);
    if (!code && last) code = read_answers(b, b->out, b->output);
    if (!code && last && b->err != b->out) code = read_answers(b, b->err, b->errors);
    return code;
}

int batch_book_put(struct batch_book *b, uint64_t line, bool good, const struct buf *text)
{
    int    fd = good ? b->out : b->err;
    size_t at = 0;
    while (at < text->n) {
        ssize_t n = write(fd, text->data + at, text->n - at);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0)
            return fail(b, EXIT_IO, "%s: cannot be written: %s", good || !*b->errors ? b->output : b->errors,
                        strerror(errno));
        at += (size_t)n;
    }
    if (batch_seen_set_done(&b->seen, line)) return fail(b, EXIT_SOFTWARE, "out of memory for the answered lines");
    return 0;
}

int batch_book_sync(struct batch_book *b)
{
    int fd[2] = { b->out, b->err };
    for (int i = 0; i < 2; i++)
        if (fd[i] >= 0 && fdatasync(fd[i]) && errno != EINVAL && errno != EROFS)
            return fail(b, EXIT_IO, "%s: cannot be written: %s", i && *b->errors ? b->errors : b->output,
                        strerror(errno));
    return 0;
}

void batch_book_close(struct batch_book *b)
{
    if (b->err >= 0 && b->err != b->out) close(b->err);
    if (b->out >= 0 && b->out != STDOUT_FILENO) close(b->out);
    batch_seen_free(&b->seen);
}
