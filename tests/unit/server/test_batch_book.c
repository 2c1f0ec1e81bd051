#include "server/cmd/batch_book.h"
#include "base/status.h"
#include "server/cmd/batch_read.h"
#include "test.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64], output[128], errors[128], header[128];

static int setup(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/spillway-batch-XXXXXX");
    if (!mkdtemp(folder)) return -1;
    snprintf(output, sizeof output, "%s/out", folder);
    snprintf(errors, sizeof errors, "%s/err", folder);
    snprintf(header, sizeof header, "%s/out.batch", folder);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    unlink(output);
    unlink(errors);
    unlink(header);
    return rmdir(folder);
}

static json_t *made(const char *input, const char *dtype)
{
    return json_pack("{s:s, s:{s:s}}", "input", input, "option", "dtype", dtype);
}

static int begin(struct batch_book *b, const char *with_errors, const char *input, const char *dtype, bool restart)
{
    json_t *from = made(input, dtype);
    int     code = batch_book_open(b, output, with_errors, restart, true);
    if (!code) code = batch_book_begin(b, from, false);
    if (!code) code = batch_book_begin(b, from, true);
    json_decref(from);
    return code;
}

/* One line with an answer of about `size` bytes. */
static void put(struct batch_book *b, uint64_t line, bool good, int size)
{
    struct batch_line l = { .custom_id = "a", .n_custom_id = 1 };
    struct buf        text;
    char              body[400];
    snprintf(body, sizeof body, "{\"text\":\"%0*d\"}", size, 1);
    buf_init(&text, 4096);
    batch_line_answer(&text, b->run, line, &l, good ? 200 : 400, "r", body, strlen(body));
    assert_int_equal(batch_book_put(b, line, good, &text), 0);
    buf_free(&text);
}

static size_t read_whole(const char *path, char *to, size_t n)
{
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    ssize_t got = read(fd, to, n);
    close(fd);
    assert_true(got >= 0);
    return (size_t)got;
}

static size_t size_of(const char *path)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return (size_t)st.st_size;
}

/* Wherever a kill cuts the output: whole lines stay, a torn one goes, and what is written next stands behind them. */
static void I32_an_output_that_is_cut_at_any_byte_continues(void **state)
{
    (void)state;
    static const uint64_t line[] = { 2, 1, 5, 40000 };
    char                  whole[4096];
    struct batch_book     b;
    assert_int_equal(begin(&b, "", "x", "f32", false), 0);
    for (size_t i = 0; i < 4; i++) put(&b, line[i], i != 2, 10 + (int)i);
    batch_book_close(&b);
    size_t n = read_whole(output, whole, sizeof whole);
    for (size_t at = 0; at <= n; at++) {
        int fd = open(output, O_WRONLY | O_TRUNC);
        assert_int_equal(write(fd, whole, at), at);
        close(fd);
        assert_int_equal(begin(&b, "", "x", "f32", false), 0);
        size_t n_line = 0, kept = 0;
        for (size_t i = 0; i < at; i++) {
            if (whole[i] != '\n') continue;
            assert_true(batch_seen_done(&b.seen, line[n_line]));
            n_line++;
            kept = i + 1;
        }
        assert_int_equal(b.n_before, n_line);
        assert_int_equal(b.n_before_failed, n_line > 2);
        assert_int_equal(size_of(output), kept);
        for (size_t i = n_line; i < 4; i++) assert_false(batch_seen_done(&b.seen, line[i]));
        put(&b, 77, true, 3);
        batch_book_close(&b);
        /* an empty output begins a run of its own */
        if (kept) assert_int_equal(begin(&b, "", "x", "f32", false), 0);
        if (kept) assert_int_equal(b.n_before, n_line + 1);
        if (kept) batch_book_close(&b);
        if (!kept) { /* the name of the first run, for the next cut */
            assert_int_equal(begin(&b, "", "x", "f32", true), 0);
            for (size_t i = 0; i < 4; i++) put(&b, line[i], i != 2, 10 + (int)i);
            batch_book_close(&b);
            assert_int_equal(read_whole(output, whole, sizeof whole), n);
        }
    }
}

static void what_was_made_from_something_else_is_refused_by_name(void **state)
{
    (void)state;
    struct batch_book b;
    assert_int_equal(begin(&b, "", "x", "f32", false), 0);
    put(&b, 1, true, 4);
    batch_book_close(&b);
    size_t n = size_of(output);
    assert_int_equal(begin(&b, "", "y", "f32", false), EXIT_CONFIG);
    assert_non_null(strstr(b.why, "another input: x, now it is y"));
    batch_book_close(&b);
    assert_int_equal(begin(&b, "", "x", "bf16", false), EXIT_CONFIG);
    assert_non_null(strstr(b.why, "another option dtype: f32, now it is bf16"));
    batch_book_close(&b);
    assert_int_equal(size_of(output), n);
    assert_int_equal(unlink(header), 0);
    assert_int_equal(begin(&b, "", "x", "f32", false), EXIT_CONFIG);
    assert_non_null(strstr(b.why, "no "));
    batch_book_close(&b);
    assert_int_equal(size_of(output), n);
    assert_int_equal(begin(&b, "", "y", "bf16", true), 0);
    assert_int_equal(size_of(output), 0);
    assert_int_equal(b.n_before, 0);
    batch_book_close(&b);
}

static void a_line_of_another_run_is_refused_and_nothing_is_cut(void **state)
{
    (void)state;
    struct batch_book b;
    assert_int_equal(begin(&b, "", "x", "f32", false), 0);
    put(&b, 1, true, 4);
    batch_book_close(&b);
    int fd = open(output, O_WRONLY | O_APPEND);
    assert_int_equal(write(fd, "{\"id\":1}\n{\"to", 13), 13);
    close(fd);
    size_t n = size_of(output);
    assert_int_equal(begin(&b, "", "x", "f32", false), EXIT_CONFIG);
    assert_non_null(strstr(b.why, "line 2"));
    batch_book_close(&b);
    assert_int_equal(size_of(output), n);
}

static void failed_lines_go_to_the_errors_and_count_as_answered(void **state)
{
    (void)state;
    struct batch_book b;
    assert_int_equal(begin(&b, errors, "x", "f32", false), 0);
    put(&b, 1, false, 4); /* the errors alone have a line */
    batch_book_close(&b);
    assert_int_equal(size_of(output), 0);
    assert_int_equal(begin(&b, errors, "x", "f32", false), 0);
    assert_int_equal(b.n_before, 1);
    put(&b, 2, true, 4);
    batch_book_close(&b);
    assert_int_equal(begin(&b, errors, "x", "f32", false), 0);
    assert_int_equal(b.n_before, 2);
    assert_int_equal(b.n_before_failed, 1);
    assert_true(batch_seen_done(&b.seen, 1) && batch_seen_done(&b.seen, 2) && !batch_seen_done(&b.seen, 3));
    batch_book_close(&b);
}

static void two_runs_do_not_write_to_one_output(void **state)
{
    (void)state;
    struct batch_book a, b;
    assert_int_equal(begin(&a, "", "x", "f32", false), 0);
    assert_int_equal(begin(&b, "", "x", "f32", true), EXIT_CONFIG);
    assert_non_null(strstr(b.why, "another run"));
    batch_book_close(&b);
    batch_book_close(&a);
    assert_int_equal(batch_book_open(&b, output, output, false, true), EXIT_CONFIG);
    batch_book_close(&b);
}

static void a_custom_id_is_found_again_among_many(void **state)
{
    (void)state;
    struct batch_seen s;
    uint32_t          first;
    char              id[20];
    batch_seen_init(&s);
    for (int round = 0; round < 2; round++)
        for (uint32_t i = 1; i <= 5000; i++) {
            int n = snprintf(id, sizeof id, "id-%u", i);
            assert_int_equal(batch_seen_id(&s, id, (size_t)n, i + 5000u * (uint32_t)round, &first), ST_OK);
            assert_int_equal(first, round ? i : 0);
        }
    batch_seen_free(&s);
}

static int file_of(const char *text, size_t n)
{
    int fd = open(output, O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_int_equal(write(fd, text, n), n);
    assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
    return fd;
}

static void lines_end_in_any_way_and_a_long_one_is_skipped(void **state)
{
    (void)state;
    enum { LONG = 3 << 20 };
    char             *text = malloc(LONG + 40);
    struct batch_read r;
    const char       *line;
    size_t            n;
    memcpy(text, "a\r\n\nbc\n", 7);
    memset(text + 7, 'x', LONG);
    memcpy(text + 7 + LONG, "\nlast", 5);
    int fd = file_of(text, LONG + 12);
    batch_read_init(&r, fd, 1000);
    assert_int_equal(batch_read_next(&r, &line, &n), BATCH_READ_LINE);
    assert_int_equal(n, 1);
    assert_int_equal(batch_read_next(&r, &line, &n), BATCH_READ_LINE);
    assert_int_equal(n, 0);
    assert_int_equal(batch_read_next(&r, &line, &n), BATCH_READ_LINE);
    assert_memory_equal(line, "bc", 2);
    assert_int_equal(batch_read_next(&r, &line, &n), BATCH_READ_LONG);
    assert_int_equal(n, LONG);
    assert_true(r.cap < LONG); /* it was not kept */
    assert_int_equal(batch_read_next(&r, &line, &n), BATCH_READ_LINE);
    assert_memory_equal(line, "last", 4);
    assert_int_equal(r.line, 5);
    assert_int_equal(batch_read_next(&r, &line, &n), BATCH_READ_END);
    batch_read_free(&r);
    close(fd);
    free(text);
}

/* Editors of Windows begin a file with the bytes EF BB BF. */
static void a_mark_before_the_first_line_is_no_part_of_it(void **state)
{
    (void)state;
#define MARK "\xef\xbb\xbf"
    static const struct {
        const char *text, *line[3];
        size_t      bytes_max;
    } files[] = { { MARK "ab\ncd\n", { "ab", "cd" }, 1000 },
                  { MARK "ab\n", { "ab" }, 2 },
                  { MARK "\nab", { "", "ab" }, 1000 },
                  { MARK, { NULL }, 1000 },
                  { MARK MARK "a\n" MARK "b", { MARK "a", MARK "b" }, 1000 }, /* elsewhere it is a character */
                  { "\xef\xbb", { "\xef\xbb" }, 1000 },
                  { "\n" MARK "a", { "", MARK "a" }, 1000 } };
    for (size_t i = 0; i < ARRAY_N(files); i++) {
        struct batch_read r;
        const char       *line;
        size_t            n;
        int               fd = file_of(files[i].text, strlen(files[i].text));
        batch_read_init(&r, fd, files[i].bytes_max);
        for (const char *const *want = files[i].line; *want; want++) {
            assert_int_equal(batch_read_next(&r, &line, &n), BATCH_READ_LINE);
            assert_int_equal(n, strlen(*want));
            assert_memory_equal(line, *want, n);
        }
        assert_int_equal(batch_read_next(&r, &line, &n), BATCH_READ_END);
        batch_read_free(&r);
        close(fd);
    }
}

static void a_pipe_without_bytes_is_asked_later(void **state)
{
    (void)state;
    struct batch_read r;
    const char       *line;
    size_t            n;
    int               p[2];
    assert_int_equal(pipe(p), 0);
    batch_read_init(&r, p[0], 1000);
    assert_int_equal(batch_read_next(&r, &line, &n), BATCH_READ_LATER);
    assert_int_equal(write(p[1], "ab", 2), 2);
    assert_int_equal(batch_read_next(&r, &line, &n), BATCH_READ_LATER);
    assert_int_equal(write(p[1], "c\nd", 3), 3);
    assert_int_equal(batch_read_next(&r, &line, &n), BATCH_READ_LINE);
    assert_int_equal(n, 3);
    assert_memory_equal(line, "abc", 3);
    close(p[1]);
    assert_int_equal(batch_read_next(&r, &line, &n), BATCH_READ_LINE);
    assert_memory_equal(line, "d", 1);
    assert_int_equal(batch_read_next(&r, &line, &n), BATCH_READ_END);
    batch_read_free(&r);
    close(p[0]);
}

#define IN_FOLDER(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(I32_an_output_that_is_cut_at_any_byte_continues),
        IN_FOLDER(what_was_made_from_something_else_is_refused_by_name),
        IN_FOLDER(a_line_of_another_run_is_refused_and_nothing_is_cut),
        IN_FOLDER(failed_lines_go_to_the_errors_and_count_as_answered),
        IN_FOLDER(two_runs_do_not_write_to_one_output),
        cmocka_unit_test(a_custom_id_is_found_again_among_many),
        IN_FOLDER(lines_end_in_any_way_and_a_long_one_is_skipped),
        IN_FOLDER(a_mark_before_the_first_line_is_no_part_of_it),
        cmocka_unit_test(a_pipe_without_bytes_is_asked_later),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
