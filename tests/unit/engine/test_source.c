#include "engine/model/source.h"
#include "base/log.h"
#include "memory_source.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

static char dir[] = "/tmp/spillway_source_XXXXXX";

static void put(const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static int setup(void **state)
{
    (void)state;
    log_init(LOG_LEVEL_ERROR, open("/dev/null", O_WRONLY | O_CLOEXEC), false);
    if (!mkdtemp(dir)) return -1;
    put("a.json", "{\"k\": 1}");
    put("empty", "");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    static const char *const names[] = { "a.json", "empty", "link", "dangling", "fifo", "shrinks" };
    char                     path[256];
    for (size_t i = 0; i < ARRAY_N(names); i++) {
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        unlink(path);
    }
    snprintf(path, sizeof path, "%s/sub", dir);
    rmdir(path);
    return rmdir(dir);
}

static void a_file_is_read_whole_and_in_parts(void **state)
{
    (void)state;
    struct source      s = { .dir = dir };
    struct source_file f;
    char              *text, part[4] = "";
    size_t             n;
    assert_int_equal(source_text(&s, "a.json", 100, &text, &n), ST_OK);
    assert_string_equal(text, "{\"k\": 1}");
    assert_int_equal(n, 8);
    free(text);
    assert_int_equal(source_open(&s, "a.json", &f), ST_OK);
    assert_int_equal(f.bytes, 8);
    assert_string_equal(f.name, "a.json");
    assert_int_equal(source_read(&f, 1, part, 3), ST_OK);
    assert_string_equal(part, "\"k\"");
    assert_int_equal(source_read(&f, 8, part, 0), ST_OK);
    assert_int_equal(source_read(&f, 6, part, 3), ST_IO);
    assert_int_equal(source_read(&f, UINT64_MAX, part, 2), ST_IO);
    source_close(&f);
    assert_int_equal(source_text(&s, "empty", 100, &text, &n), ST_OK);
    assert_string_equal(text, "");
    free(text);
    assert_int_equal(source_text(&s, "a.json", 7, &text, &n), ST_TOO_LARGE);
    assert_int_equal(errno, EFBIG);
}

static void a_name_that_leaves_the_folder_is_refused(void **state)
{
    (void)state;
    struct source            s = { .dir = dir };
    struct source_file       f;
    static const char *const names[] = { "",    ".",    "..",     "../a.json", "/etc/passwd", "/x",    "sub/",
                                         "./x", "../x", "sub/..", "sub/.",     "a/b/x",       "sub//x" };
    for (size_t i = 0; i < ARRAY_N(names); i++) assert_int_equal(source_open(&s, names[i], &f), ST_CONFIG);
    char longer[300];
    memset(longer, 'x', sizeof longer);
    longer[sizeof longer - 1] = 0;
    assert_int_equal(source_open(&s, longer, &f), ST_CONFIG);
}

static void a_file_in_a_folder_of_the_folder_is_read(void **state)
{
    (void)state;
    struct source s = { .dir = dir };
    char          path[256], *text;
    size_t        n;
    snprintf(path, sizeof path, "%s/sub", dir);
    assert_int_equal(mkdir(path, 0700), 0);
    put("sub/x", "{}");
    assert_int_equal(source_text(&s, "sub/x", 100, &text, &n), ST_OK);
    assert_string_equal(text, "{}");
    free(text);
    snprintf(path, sizeof path, "%s/sub/x", dir);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(source_text(&s, "sub/x", 100, &text, &n), ST_NOT_FOUND);
    snprintf(path, sizeof path, "%s/sub", dir);
    assert_int_equal(rmdir(path), 0);
}

static void an_unreadable_file_is_reported(void **state)
{
    (void)state;
    struct source      s = { .dir = dir };
    struct source_file f;
    char               path[256];
    assert_int_equal(source_open(&s, "nothing", &f), ST_NOT_FOUND);
    snprintf(path, sizeof path, "%s/sub", dir);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(source_open(&s, "sub", &f), ST_CONFIG);
    assert_int_equal(errno, EISDIR);
    snprintf(path, sizeof path, "%s/fifo", dir);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(source_open(&s, "fifo", &f), ST_CONFIG); /* and does not wait for a writer */
    snprintf(path, sizeof path, "%s/a.json", dir);
    assert_int_equal(source_open(&(struct source){ .dir = path }, "x", &f), ST_CONFIG);
    assert_int_equal(errno, ENOTDIR);
    assert_int_equal(source_open(&(struct source){ .dir = "/nonexistent" }, "x", &f), ST_NOT_FOUND);
    if (geteuid() == 0) return; /* root reads everything */
    put("shrinks", "x");
    snprintf(path, sizeof path, "%s/shrinks", dir);
    chmod(path, 0);
    assert_int_equal(source_open(&s, "shrinks", &f), ST_CONFIG);
    assert_int_equal(errno, EACCES);
    chmod(path, 0600);
}

static void links_are_followed_as_the_hub_cache_needs(void **state)
{
    (void)state;
    struct source      s = { .dir = dir };
    struct source_file f;
    char               path[256];
    snprintf(path, sizeof path, "%s/link", dir);
    assert_int_equal(symlink("a.json", path), 0);
    assert_int_equal(source_open(&s, "link", &f), ST_OK);
    assert_int_equal(f.bytes, 8);
    source_close(&f);
    snprintf(path, sizeof path, "%s/dangling", dir);
    assert_int_equal(symlink("gone", path), 0);
    assert_int_equal(source_open(&s, "dangling", &f), ST_NOT_FOUND);
}

/* D11: never mapped, so this is an error and not SIGBUS */
static void a_file_cut_short_while_open_is_an_error(void **state)
{
    (void)state;
    struct source      s = { .dir = dir };
    struct source_file f;
    char               path[256], part[8];
    put("shrinks", "12345678");
    assert_int_equal(source_open(&s, "shrinks", &f), ST_OK);
    snprintf(path, sizeof path, "%s/shrinks", dir);
    assert_int_equal(truncate(path, 3), 0);
    assert_int_equal(source_read(&f, 0, part, 8), ST_IO);
    assert_int_equal(errno, ENODATA);
    source_close(&f);
}

static void an_embedded_folder_reads_alike(void **state)
{
    (void)state;
    struct memory_source m = { .src.n_embed = 0 };
    struct source_file   f;
    char                *text, part[3] = "";
    size_t               n;
    memory_add_text(&m, "x", "hello");
    assert_int_equal(source_open(&m.src, "y", &f), ST_NOT_FOUND);
    assert_int_equal(source_open(&m.src, "../x", &f), ST_CONFIG);
    assert_int_equal(source_text(&m.src, "x", 5, &text, &n), ST_OK);
    assert_string_equal(text, "hello");
    free(text);
    assert_int_equal(source_open(&m.src, "x", &f), ST_OK);
    assert_int_equal(source_read(&f, 3, part, 2), ST_OK);
    assert_string_equal(part, "lo");
    assert_int_equal(source_read(&f, 4, part, 2), ST_IO);
    source_close(&f);
    memory_free(&m);
}

/* Files of elsewhere: the reader opens and reads, and bounds are checked before it is asked. */
static uint32_t    n_read;
static enum status far_open(const struct source_reader *r, const char *name, struct source_file *f_out)
{
    if (strcmp(name, "x") != 0) return ST_NOT_FOUND;
    *f_out = (struct source_file){ .fd = -1, .reader = r, .bytes = 5, .far = true, .name = "x", .version = "1" };
    return ST_OK;
}
static enum status far_read(const struct source_file *f, uint64_t offset, void *dst, size_t n)
{
    (void)f;
    n_read++;
    memcpy(dst, &"hello"[offset], n);
    return ST_OK;
}

static void a_reader_serves_files_of_elsewhere(void **state)
{
    (void)state;
    const struct source_reader reader = { .open = far_open, .read = far_read, .shown = "far://away" };
    const struct source        src = { .reader = &reader };
    struct source_file         f;
    char                      *text, part[3] = "";
    size_t                     n;
    assert_string_equal(source_where(&src), "far://away");
    assert_int_equal(source_open(&src, "y", &f), ST_NOT_FOUND);
    assert_int_equal(source_open(&src, "../x", &f), ST_CONFIG); /* the name does not reach it */
    assert_int_equal(source_text(&src, "x", 5, &text, &n), ST_OK);
    assert_string_equal(text, "hello");
    free(text);
    assert_int_equal(source_open(&src, "x", &f), ST_OK);
    source_will_read(&f, 0, 5); /* nothing to tell */
    assert_int_equal(source_read(&f, 3, part, 2), ST_OK);
    assert_string_equal(part, "lo");
    n_read = 0;
    assert_int_equal(source_read(&f, 4, part, 2), ST_IO);
    assert_int_equal(n_read, 0);
    source_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_is_read_whole_and_in_parts),
        cmocka_unit_test(a_name_that_leaves_the_folder_is_refused),
        cmocka_unit_test(a_file_in_a_folder_of_the_folder_is_read),
        cmocka_unit_test(an_unreadable_file_is_reported),
        cmocka_unit_test(links_are_followed_as_the_hub_cache_needs),
        cmocka_unit_test(a_file_cut_short_while_open_is_an_error),
        cmocka_unit_test(an_embedded_folder_reads_alike),
        cmocka_unit_test(a_reader_serves_files_of_elsewhere),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
