/* The digest of a checkpoint's weights that an earlier load left behind: believed when nothing has changed, and in no
 * other case. */
#include "engine/model/ident_file.h"
#include "base/log.h"
#include "memory_source.h"
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>

enum { DATA = 40000, SHARE = 77 };
static char          dir[64], cache[100], model[100], weights[140], err[512];
static struct source src = { .dir = model };

static void write_file(const char *path, const void *data, size_t n)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, n), n);
    close(fd);
}

static void write_checkpoint(void)
{
    static unsigned char file[8 + 200 + DATA];
    char                 header[200];
    int                  n =
        snprintf(header, sizeof header, "{\"a\":{\"dtype\":\"U8\",\"shape\":[40,1000],\"data_offsets\":[0,%d]}}", DATA);
    memset(file, 0, sizeof file);
    file[0] = (unsigned char)n;
    memcpy(file + 8, header, (size_t)n);
    for (int i = 0; i < DATA; i++) file[8 + n + i] = (unsigned char)(i * 31 + i / 256);
    write_file(weights, file, 8 + (size_t)n + DATA);
}

static int setup(void **state)
{
    (void)state;
    log_init(LOG_LEVEL_ERROR, -1, false);
    snprintf(dir, sizeof dir, "/tmp/spillway-ident-XXXXXX");
    if (!mkdtemp(dir)) return -1;
    snprintf(cache, sizeof cache, "%s/cache", dir);
    snprintf(model, sizeof model, "%s/model", dir);
    snprintf(weights, sizeof weights, "%s/model.safetensors", model);
    if (mkdir(cache, 0755) || mkdir(model, 0755)) return -1;
    write_checkpoint();
    return 0;
}

/* The key of the checkpoint as it is now. */
static struct ident_file key_of(uint64_t share)
{
    struct st_set    *set;
    struct ident_file f;
    if (st_open(&src, &set, err, sizeof err)) fail_msg("%s", err);
    assert_int_equal(ident_file_key(set, share, &f), ST_OK);
    st_close(set);
    return f;
}

static void root_make(unsigned char root[IDENT_BYTES], int seed)
{
    for (int i = 0; i < IDENT_BYTES; i++) root[i] = (unsigned char)(seed + 7 * i);
}

static bool believed(uint64_t share)
{
    unsigned char     root[IDENT_BYTES], want[IDENT_BYTES];
    struct ident_file f = key_of(share);
    root_make(want, 1);
    if (!ident_file_read(cache, &f, root)) return false;
    assert_memory_equal(root, want, sizeof root);
    return true;
}

static void keep(uint64_t share)
{
    unsigned char     root[IDENT_BYTES];
    struct ident_file f = key_of(share);
    root_make(root, 1);
    ident_file_write(cache, &f, root);
}

static void path_of(uint64_t share, char path[200])
{
    struct ident_file f = key_of(share);
    snprintf(path, 200, "%s/%s", cache, f.name);
}

static void a_kept_identity_is_found_again(void **state)
{
    (void)state;
    assert_false(believed(SHARE));
    keep(SHARE);
    assert_true(believed(SHARE));
    assert_true(believed(SHARE));
    assert_false(believed(SHARE + 1)); /* of another rank */
    keep(SHARE + 1);
    assert_true(believed(SHARE));
    assert_true(believed(SHARE + 1));
}

static void a_file_that_is_torn_is_not_believed(void **state)
{
    (void)state;
    char          path[200];
    unsigned char text[600];
    keep(SHARE);
    path_of(SHARE, path);
    int     fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = read(fd, text, sizeof text);
    close(fd);
    assert_in_range(n, 100, 500);
    for (ssize_t i = 0; i < n; i++) {
        write_file(path, text, (size_t)i);
        if (believed(SHARE)) fail_msg("the first %d bytes are believed", (int)i);
    }
    for (ssize_t i = 0; i < 8 * n; i++) {
        text[i / 8] ^= (unsigned char)(1 << i % 8);
        write_file(path, text, (size_t)n);
        if (believed(SHARE)) fail_msg("with bit %d flipped it is believed", (int)i);
        text[i / 8] ^= (unsigned char)(1 << i % 8);
    }
    text[n] = '\n';
    write_file(path, text, (size_t)n + 1);
    assert_false(believed(SHARE));
    memset(text, 0, (size_t)n);
    write_file(path, text, (size_t)n); /* as a crash leaves it */
    assert_false(believed(SHARE));
    keep(SHARE);
    assert_true(believed(SHARE));
}

static void a_file_that_others_could_write_is_not_believed(void **state)
{
    (void)state;
    char path[200], other[220];
    keep(SHARE);
    path_of(SHARE, path);
    assert_int_equal(chmod(path, 0664), 0);
    assert_false(believed(SHARE));
    assert_int_equal(chmod(path, 0646), 0);
    assert_false(believed(SHARE));
    assert_int_equal(chmod(path, 0644), 0);
    assert_true(believed(SHARE));
    if (geteuid() == 0) {
        assert_int_equal(chown(path, 12345, (gid_t)-1), 0);
        assert_false(believed(SHARE));
        assert_int_equal(chown(path, 0, (gid_t)-1), 0);
    }
    snprintf(other, sizeof other, "%s.real", path);
    assert_int_equal(rename(path, other), 0);
    assert_int_equal(symlink(other, path), 0);
    assert_false(believed(SHARE));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0644), 0); /* and nobody waits for it */
    assert_false(believed(SHARE));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0755), 0);
    assert_false(believed(SHARE));
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(rename(other, path), 0);
    assert_true(believed(SHARE));
}

static void a_file_of_another_checkpoint_is_not_believed(void **state)
{
    (void)state;
    char here[200], there[200], kept[160];
    keep(SHARE);
    path_of(SHARE, here);
    snprintf(kept, sizeof kept, "%s.kept", weights);
    assert_int_equal(rename(weights, kept), 0);
    write_checkpoint(); /* the same bytes in another file */
    assert_false(believed(SHARE));
    path_of(SHARE, there);
    assert_string_not_equal(here, there);
    assert_int_equal(rename(here, there), 0);
    assert_false(believed(SHARE));
}

/* Puts the times back that a file had, as copies and archives do. */
static void restore_times(const struct stat *was)
{
    struct timespec t[2] = { was->st_atim, was->st_mtim };
    assert_int_equal(utimensat(AT_FDCWD, weights, t, 0), 0);
}

static void a_checkpoint_that_changed_is_read_again(void **state)
{
    (void)state;
    struct stat was;
    keep(SHARE);
    assert_int_equal(stat(weights, &was), 0);
    for (int i = 0; i < 20;
         i++) { /* one byte where nobody takes a sample, at once after the last look, times put back */
        int           fd = open(weights, O_RDWR | O_CLOEXEC);
        unsigned char c;
        assert_int_equal(pread(fd, &c, 1, was.st_size - 1 - i), 1);
        c ^= 1;
        assert_int_equal(pwrite(fd, &c, 1, was.st_size - 1 - i), 1);
        close(fd);
        restore_times(&was);
        if (believed(SHARE)) fail_msg("change %d was not seen", i);
        keep(SHARE);
        assert_true(believed(SHARE));
    }
    assert_int_equal(truncate(weights, was.st_size), 0);
    restore_times(&was);
    assert_false(believed(SHARE)); /* its change time says that somebody was there */
}

/* Whoever keeps a digest has looked at the files before and after: a change between two looks shows, however quick they
 * are. */
static void a_change_between_two_looks_shows(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        write_checkpoint();
        struct ident_file before = key_of(SHARE);
        int               fd = open(weights, O_RDWR | O_CLOEXEC);
        assert_int_equal(pwrite(fd, "?", 1, 8 + 100 + i), 1);
        close(fd);
        struct ident_file after = key_of(SHARE);
        assert_false(ident_file_same(&before, &after));
    }
}

static void files_in_the_binary_have_no_times_to_go_by(void **state)
{
    (void)state;
    struct memory_source m = { .src.n_embed = 0 };
    struct st_set       *set;
    struct ident_file    f;
    unsigned char        root[IDENT_BYTES];
    memory_add_safetensors(&m, "model.safetensors", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
                           1);
    if (st_open(&m.src, &set, err, sizeof err)) fail_msg("%s", err);
    assert_int_equal(ident_file_key(set, SHARE, &f), ST_OK);
    st_close(set);
    assert_false(f.certain);
    root_make(root, 1);
    ident_file_write(cache, &f, root);
    assert_false(ident_file_read(cache, &f, root));
    memory_free(&m);
}

static uint32_t n_kept(void)
{
    DIR     *d = opendir(cache);
    uint32_t n = 0;
    for (struct dirent *e; (e = readdir(d));) n += strstr(e->d_name, ".ident") != NULL;
    closedir(d);
    return n;
}

static void the_number_of_files_is_bounded(void **state)
{
    (void)state;
    char other[140];
    snprintf(other, sizeof other, "%s/something-else", cache);
    write_file(other, "x", 1);
    for (uint64_t i = 0; i < 600; i++) keep(i);
    assert_in_range(n_kept(), 1, 256);
    assert_true(believed(599));
    assert_int_equal(access(other, F_OK), 0);
}

static void a_folder_that_cannot_be_written_is_no_failure(void **state)
{
    (void)state;
    struct ident_file f = key_of(SHARE);
    unsigned char     root[IDENT_BYTES];
    root_make(root, 1);
    ident_file_write("/proc/self", &f, root);
    ident_file_write("/no/such/folder", &f, root);
    assert_false(ident_file_read("/no/such/folder", &f, root));
}

int main(void)
{
#define T(name) cmocka_unit_test_setup(name, setup)
    const struct CMUnitTest tests[] = { T(a_kept_identity_is_found_again),
                                        T(a_file_that_is_torn_is_not_believed),
                                        T(a_file_that_others_could_write_is_not_believed),
                                        T(a_file_of_another_checkpoint_is_not_believed),
                                        T(a_checkpoint_that_changed_is_read_again),
                                        T(a_change_between_two_looks_shows),
                                        T(files_in_the_binary_have_no_times_to_go_by),
                                        T(the_number_of_files_is_bounded),
                                        T(a_folder_that_cannot_be_written_is_no_failure) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
