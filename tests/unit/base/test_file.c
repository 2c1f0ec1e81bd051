#include "test.h"
#include "base/file.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

static char dir[64];
static int  at;

static int make_dir(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/spillway-file-XXXXXX");
    if (!mkdtemp(dir)) return -1;
    at = open(dir, O_RDONLY | O_DIRECTORY);
    return at < 0;
}
static int drop_dir(void **state)
{
    (void)state;
    return close(at);
}

static size_t content(const char *name, char *out, size_t max)
{
    size_t n = 0;
    assert_int_equal(file_read(at, name, out, max, &n), 0);
    return n;
}

static void a_replaced_file_is_complete_and_has_its_mode(void **state)
{
    (void)state;
    char        text[64];
    struct stat st;
    mode_t      old = umask(0);
    assert_int_equal(file_replace(at, "a", "first", 5, 0600), 0);
    umask(old);
    assert_int_equal(fstatat(at, "a", &st, 0), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(content("a", text, sizeof text), 5);
    assert_memory_equal(text, "first", 5);
    /* what a killed writer left behind is longer than what comes, and in nobody's way */
    assert_int_equal(file_replace(at, "a.new", "left behind by somebody", 23, 0644), 0);
    assert_int_equal(file_replace(at, "a", "b", 1, 0600), 0);
    assert_int_equal(content("a", text, sizeof text), 1);
    assert_int_equal(text[0], 'b');
    assert_int_equal(faccessat(at, "a.new", F_OK, 0), -1);
    char path[128];
    snprintf(path, sizeof path, "%s/by-path", dir);
    assert_int_equal(file_replace(AT_FDCWD, path, "x", 1, 0600), 0);
    assert_int_equal(content("by-path", text, sizeof text), 1);
}

static void a_failed_write_leaves_the_old_file(void **state)
{
    (void)state;
    char          text[64];
    struct rlimit old;
    assert_int_equal(file_replace(at, "kept", "old bytes", 9, 0600), 0);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old);
    struct rlimit small = { 4, old.rlim_max };
    setrlimit(RLIMIT_FSIZE, &small);
    int error = file_replace(at, "kept", "new bytes, more than fit", 24, 0600);
    setrlimit(RLIMIT_FSIZE, &old);
    assert_int_equal(error, EFBIG);
    assert_int_equal(content("kept", text, sizeof text), 9);
    assert_memory_equal(text, "old bytes", 9);
    assert_int_equal(faccessat(at, "kept.new", F_OK, 0), -1);
    assert_int_equal(mkdirat(at, "folder", 0700), 0);
    assert_int_equal(file_replace(at, "folder", "x", 1, 0600), EISDIR);
    assert_int_equal(file_replace(at, "no/such", "x", 1, 0600), ENOENT);
}

static void a_link_a_pipe_and_a_folder_are_not_read(void **state)
{
    (void)state;
    char   text[8];
    size_t n;
    assert_int_equal(file_replace(at, "real", "12345678", 8, 0600), 0);
    assert_int_equal(symlinkat("real", at, "link"), 0);
    assert_int_equal(mkfifoat(at, "pipe", 0600), 0);
    assert_int_equal(mkdirat(at, "dir", 0700), 0);
    assert_int_equal(file_read(at, "link", text, sizeof text, &n), ELOOP);
    assert_int_equal(file_read(at, "pipe", text, sizeof text, &n), EINVAL);
    assert_int_equal(file_read(at, "dir", text, sizeof text, &n), EISDIR);
    assert_int_equal(file_read(at, "none", text, sizeof text, &n), ENOENT);
    assert_int_equal(file_read(at, "real", text, 7, &n), EFBIG);
    assert_int_equal(file_read(at, "real", text, 8, &n), 0);
    assert_int_equal(n, 8);
}

/* A mounted secret is a link, and a shell's substitution a pipe whose bytes come one by one. */
static void the_first_bytes_of_any_file_are_read(void **state)
{
    (void)state;
    char   path[100];
    char   text[8];
    size_t n = 0;
    int    pipe_fd[2];
    snprintf(path, sizeof path, "%s/link", dir);
    assert_int_equal(file_read_first(path, text, 5, &n), 0);
    assert_int_equal(n, 5);
    assert_memory_equal(text, "12345", 5);
    assert_int_equal(file_read_first(path, text, sizeof text, &n), 0);
    assert_int_equal(n, 8);
    snprintf(path, sizeof path, "%s/dir", dir);
    assert_int_equal(file_read_first(path, text, sizeof text, &n), EISDIR);
    snprintf(path, sizeof path, "%s/none", dir);
    assert_int_equal(file_read_first(path, text, sizeof text, &n), ENOENT);
    assert_int_equal(n, 8); /* as it was */
    assert_int_equal(pipe(pipe_fd), 0);
    pid_t pid = fork();
    if (!pid) {
        for (const char *c = "abcdef\r\n"; *c; c++) {
            if (write(pipe_fd[1], c, 1) != 1) _exit(1);
            usleep(1000);
        }
        _exit(0);
    }
    close(pipe_fd[1]);
    assert_int_equal(file_read_fd(pipe_fd[0], text, sizeof text, &n), 0);
    close(pipe_fd[0]);
    waitpid(pid, NULL, 0);
    assert_int_equal(n, 8);
    assert_memory_equal(text, "abcdef\r\n", 8);
    assert_int_equal(file_without_line_end(text, 8), 6);
    assert_int_equal(file_without_line_end("\n\n", 2), 0);
    assert_int_equal(file_without_line_end("a\nb", 3), 3);
}

enum { LONG = 20000 };

static void *writer(void *arg)
{
    char *text = malloc(LONG);
    memset(text, *(char *)arg, LONG);
    for (int i = 0; i < test_size(200, 40); i++)
        if (file_replace(at, "shared", text, LONG, 0600)) *(char *)arg = '!';
    free(text);
    return NULL;
}

static void writers_beside_each_other_never_mix(void **state)
{
    (void)state;
    char      who[3] = { 'a', 'b', 'c' }, text[LONG];
    pthread_t t[3];
    assert_int_equal(file_replace(at, "shared", memset(text, 'z', LONG), LONG, 0600), 0);
    for (int i = 0; i < 3; i++) assert_int_equal(pthread_create(&t[i], NULL, writer, &who[i]), 0);
    for (int i = 0; i < test_size(400, 80); i++) {
        assert_int_equal(content("shared", text, LONG), LONG);
        for (int k = 1; k < LONG; k++) assert_int_equal(text[k], text[0]);
    }
    for (int i = 0; i < 3; i++) pthread_join(t[i], NULL);
    assert_memory_equal(who, "abc", 3);
}

/* Killed at any time: the file is the old one or the new one, and a start after it writes again. */
static void a_killed_writer_leaves_a_whole_file(void **state)
{
    (void)state;
    char text[LONG];
    assert_int_equal(file_replace(at, "torn", memset(text, 'a', LONG), LONG, 0600), 0);
    const int n_kill = test_size(40, 10);
    for (int i = 0; i < n_kill; i++) {
        pid_t pid = fork();
        if (!pid) {
            for (char c = 'b';; c = (char)(c == 'y' ? 'b' : c + 1))
                file_replace(at, "torn", memset(text, c, LONG), LONG, 0600);
        }
        usleep((useconds_t)(i * 137 * 40 / n_kill));
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        assert_int_equal(content("torn", text, LONG), LONG);
        for (int k = 1; k < LONG; k++) assert_int_equal(text[k], text[0]);
        assert_int_equal(file_replace(at, "torn", memset(text, 'a', LONG), LONG, 0600), 0);
    }
}

static void a_folder_is_made_and_its_missing_parent_is_named(void **state)
{
    (void)state;
    char        path[200], why[200], want[300];
    struct stat st;
    snprintf(path, sizeof path, "%s/made", dir);
    assert_int_equal(file_make_folder(path, 0700, why, sizeof why), 0);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode, S_IFDIR | 0700);
    assert_int_equal(file_make_folder(path, 0700, why, sizeof why), 0);
    static const char *const below[] = { "made/no/kv", "made/no//kv///", "made/no/such/kv" };
    for (size_t i = 0; i < ARRAY_N(below); i++) {
        snprintf(path, sizeof path, "%s/%s", dir, below[i]);
        assert_int_equal(file_make_folder(path, 0700, why, sizeof why), ENOENT);
        snprintf(want, sizeof want, "%s/made/no is not there", dir);
        assert_non_null(strstr(why, want));
    }
    snprintf(path, sizeof path, "%s/file/kv", dir);
    assert_int_equal(file_replace(at, "file", "x", 1, 0600), 0);
    assert_int_equal(file_make_folder(path, 0700, why, sizeof why), ENOTDIR);
    assert_string_equal(why, "the folder cannot be made: Not a directory");
    snprintf(path, sizeof path, "%s/no", dir);
    assert_int_equal(chdir(dir), 0);
    assert_int_equal(file_make_folder("no/kv", 0700, why, sizeof why), ENOENT);
    assert_non_null(strstr(why, "made: no is not there"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_replaced_file_is_complete_and_has_its_mode),
        cmocka_unit_test(a_failed_write_leaves_the_old_file),
        cmocka_unit_test(a_link_a_pipe_and_a_folder_are_not_read),
        cmocka_unit_test(a_killed_writer_leaves_a_whole_file),
        cmocka_unit_test(writers_beside_each_other_never_mix),
        cmocka_unit_test(the_first_bytes_of_any_file_are_read),
        cmocka_unit_test(a_folder_is_made_and_its_missing_parent_is_named),
    };
    return cmocka_run_group_tests(tests, make_dir, drop_dir);
}
