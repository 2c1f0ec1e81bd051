/* Files of packed weights: what is written comes back, and whatever may have happened to a file is a miss that leaves
 * zeros. */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>
static int no_room, torn; /* injected: the disk is full at once; it becomes so at the torn-th write */
static int n_write;
static int hook_fallocate(int fd, int mode, off_t at, off_t n)
{
    return no_room ? (errno = no_room, -1) : (fallocate)(fd, mode, at, n);
}
static ssize_t hook_pwrite(int fd, const void *p, size_t n, off_t at)
{
    if (torn && __atomic_add_fetch(&n_write, 1, __ATOMIC_RELAXED) >= torn) {
        errno = ENOSPC;
        return -1;
    }
    return (pwrite)(fd, p, n, at);
}
#include "engine/model/source.h"
static bool far; /* the file system is one on a network */
static bool hook_is_far(int fd)
{
    (void)fd;
    return far;
}
#define source_fd_is_far(fd) hook_is_far(fd)
#define fallocate(...)       hook_fallocate(__VA_ARGS__)
#define pwrite(...)          hook_pwrite(__VA_ARGS__)
#include "engine/model/packed_file.c"
#undef source_fd_is_far
#undef pwrite
#undef fallocate
#include "kernels/host.h"
#include "test.h"

enum { SPAN = 10 << 20 }; /* two chunks and a half */
static const char         ident[] = "the weights of a test\n";
static char               dir[64], path[128], why[PACKED_WHY];
static struct device     *dev;
static struct packed_span span;
static unsigned char     *want;
static bool               mapped;

static int setup(void **state)
{
    (void)state;
    struct dev_cfg cfg = { .kind = DEV_CPU, .arena_bytes = 32 << 20, .n_thread = 1 };
    void          *at;
    log_init(LOG_LEVEL_ERROR, -1, false);
    snprintf(dir, sizeof dir, "/tmp/spillway-packed-XXXXXX");
    want = malloc(SPAN);
    if (!want || !mkdtemp(dir) || dev_open(&cfg, &dev) || dev->ops->alloc(dev, SPAN + DEV_MAP_ALIGN, &at)) return -1;
    snprintf(path, sizeof path, "%s/a.packed", dir);
    span = (struct packed_span){ .base = (char *)(((uintptr_t)at + DEV_MAP_ALIGN - 1) / DEV_MAP_ALIGN * DEV_MAP_ALIGN),
                                 .bytes = SPAN,
                                 .n_thread = 2 };
    for (size_t i = 0; i < SPAN; i += 8) memset(want + i, (unsigned char)hash_u64(i / 8), 8);
    no_room = torn = n_write = 0;
    far = false;
    return 0;
}

static uint32_t n_file(void) /* and all of them go */
{
    DIR     *d = opendir(dir);
    uint32_t n = 0;
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));)
        if (e->d_name[0] != '.') n += !unlinkat(dirfd(d), e->d_name, 0);
    closedir(d);
    return n;
}

static int teardown(void **state)
{
    (void)state;
    n_file();
    rmdir(dir);
    dev_close(dev);
    free(want);
    return 0;
}

static void fill(void)
{
    assert_int_equal(dev_unmap(dev, span.base, SPAN), ST_OK);
    memcpy(span.base, want, SPAN);
}
static bool             write_it(void) { return packed_file_write(path, ident, sizeof ident, &span, why); }
static enum packed_read read_as(const char *i)
{
    return packed_file_read(path, i, sizeof ident, &span, dev, &mapped, why);
}
static enum packed_read read_it(void) { return read_as(ident); }
static void             is_zero_and_may_be_written(void)
{
    assert_true(!span.base[0] && !memcmp(span.base, span.base + 1, SPAN - 1));
    for (size_t i = 0; i < SPAN; i += 4096) span.base[i] = 1;
    assert_int_equal(dev_unmap(dev, span.base, SPAN), ST_OK);
}
static void doubted(const char *says)
{
    assert_int_equal(read_it(), PACKED_DOUBT);
    if (!strstr(why, says)) fail_msg("\"%s\" does not say \"%s\"", why, says);
    assert_null(strchr(why, '\n'));
    is_zero_and_may_be_written();
}

static void a_written_file_comes_back_unchanged(void **state)
{
    (void)state;
    assert_int_equal(read_it(), PACKED_NONE);
    for (uint32_t n = 1; n <= 3; n += 2) {
        span.n_thread = n;
        fill();
        assert_true(write_it());
        assert_int_equal(dev_unmap(dev, span.base, SPAN), ST_OK);
        assert_int_equal(read_it(), PACKED_HIT);
        assert_true(mapped);
        assert_memory_equal(span.base, want, SPAN);
        assert_int_equal(dev_unmap(dev, span.base, SPAN), ST_OK);
        is_zero_and_may_be_written();
    }
    assert_int_equal(n_file(), 1);
}

static void a_file_on_a_network_is_read_and_not_mapped(void **state)
{
    (void)state;
    fill();
    assert_true(write_it());
    far = true;
    assert_int_equal(dev_unmap(dev, span.base, SPAN), ST_OK);
    assert_int_equal(read_it(), PACKED_HIT);
    assert_false(mapped);
    assert_memory_equal(span.base, want, SPAN);
    assert_int_equal(truncate(path, 0), 0); /* and what happens to the file is nothing to the server */
    assert_memory_equal(span.base, want, SPAN);
}

static void memory_of_several_nodes_is_read_into(void **state)
{
    (void)state;
    fill();
    assert_true(write_it());
    ((struct host_dev *)dev)->scattered = true;
    assert_int_equal(dev_unmap(dev, span.base, SPAN), ST_OK);
    assert_int_equal(read_it(), PACKED_HIT);
    assert_false(mapped);
    assert_memory_equal(span.base, want, SPAN);
    span.base[0] = 1; /* its own memory */
    assert_int_equal(truncate(path, (off_t)packed_file_bytes(sizeof ident, SPAN) - 1), 0);
    assert_int_equal(dev_unmap(dev, span.base, SPAN), ST_OK);
    doubted("bytes, not");
}

/* One bit, anywhere: in the head, in the identity, in a digest, in the first and the last byte of the span. */
static void a_flipped_bit_is_a_doubt(void **state)
{
    (void)state;
    size_t data = data_at_of(sizeof ident, SPAN), head = head_bytes(sizeof ident, SPAN);
    size_t at[] = { 0,
                    9,
                    20,
                    offsetof(struct head, sum),
                    sizeof(struct head) + 3,
                    head - 1,
                    head - 20,
                    data,
                    data + CHUNK - 1,
                    data + CHUNK,
                    data + SPAN - 1 };
    fill();
    assert_true(write_it());
    assert_int_equal(dev_unmap(dev, span.base, SPAN), ST_OK);
    for (size_t i = 0; i < ARRAY_N(at); i++) {
        int           fd = open(path, O_RDWR | O_CLOEXEC);
        unsigned char c;
        assert_int_equal(pread(fd, &c, 1, (off_t)at[i]), 1);
        c ^= (unsigned char)(1 << i % 8);
        assert_int_equal(pwrite(fd, &c, 1, (off_t)at[i]), 1);
        const char *words = at[i] < data ? "head is damaged" : "are not what was written";
        doubted(i < 3 ? "head is of another version" : words);
        c ^= (unsigned char)(1 << i % 8);
        assert_int_equal(pwrite(fd, &c, 1, (off_t)at[i]), 1);
        close(fd);
    }
    assert_int_equal(read_it(), PACKED_HIT);
}

static void another_length_or_identity_is_a_doubt(void **state)
{
    (void)state;
    char  other[] = "the weights of a tesT\n";
    off_t all = (off_t)packed_file_bytes(sizeof ident, SPAN), cut[] = { all + 1, all - 1, sizeof(struct head), 0 };
    fill();
    assert_true(write_it());
    assert_int_equal(dev_unmap(dev, span.base, SPAN), ST_OK);
    for (size_t i = 0; i < ARRAY_N(cut); i++) {
        assert_int_equal(truncate(path, cut[i]), 0);
        doubted("bytes, not");
    }
    fill();
    assert_true(write_it());
    assert_int_equal(dev_unmap(dev, span.base, SPAN), ST_OK);
    assert_int_equal(read_as(other), PACKED_DOUBT);
    is_zero_and_may_be_written();
}

static void a_file_that_others_may_write_and_a_thing_that_is_no_file_are_doubted(void **state)
{
    (void)state;
    char away[140];
    fill();
    assert_true(write_it());
    assert_int_equal(dev_unmap(dev, span.base, SPAN), ST_OK);
    assert_int_equal(chmod(path, 0666), 0);
    doubted("may write it");
    assert_int_equal(chmod(path, 0600), 0);
    snprintf(away, sizeof away, "%s.away", path);
    assert_int_equal(rename(path, away), 0);
    assert_int_equal(symlink(away, path), 0);
    doubted("symbolic links");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    doubted("no regular file");
    assert_int_equal(unlink(path), 0);
}

static void a_full_disk_leaves_nothing(void **state)
{
    (void)state;
    fill();
    for (int i = 0; i < 4; i++) {
        no_room = i == 0 ? ENOSPC : EOPNOTSUPP;
        torn = i;
        n_write = 0;
        assert_false(write_it());
        assert_string_equal(why, "No space left on device");
        assert_int_equal(n_file(), 0);
    }
    torn = 0; /* and where room cannot be asked for, it is written all the same */
    assert_true(write_it());
    assert_memory_equal(span.base, want, SPAN);
}

static void a_failed_write_leaves_the_file_that_was_there(void **state)
{
    (void)state;
    fill();
    assert_true(write_it());
    torn = 2;
    assert_false(write_it());
    assert_int_equal(dev_unmap(dev, span.base, SPAN), ST_OK);
    assert_int_equal(read_it(), PACKED_HIT);
    assert_memory_equal(span.base, want, SPAN);
}

static void a_missing_folder_is_reported(void **state)
{
    (void)state;
    char        keep[128];
    struct stat st;
    memcpy(keep, path, sizeof keep);
    snprintf(path, sizeof path, "%.60s/none/a.packed", dir);
    fill();
    assert_false(write_it());
    assert_string_equal(why, "No such file or directory");
    assert_int_not_equal(stat(path, &st), 0);
    memcpy(path, keep, sizeof keep);
}

static void *writer(void *arg)
{
    struct packed_span s = *(struct packed_span *)arg;
    char               w[PACKED_WHY];
    for (int i = 0; i < 2; i++)
        if (!packed_file_write(path, ident, sizeof ident, &s, w)) return w[0] ? arg : NULL;
    return NULL;
}

/* Each has a file of its own until it is whole. */
static void two_that_write_at_once_both_succeed(void **state)
{
    (void)state;
    struct packed_span other = span;
    pthread_t          t[2];
    other.base = malloc(SPAN);
    assert_non_null(other.base);
    fill();
    memcpy(other.base, want, SPAN);
    assert_int_equal(pthread_create(&t[0], NULL, writer, &span), 0);
    assert_int_equal(pthread_create(&t[1], NULL, writer, &other), 0);
    for (int i = 0; i < 2; i++) {
        void *failed;
        pthread_join(t[i], &failed);
        assert_null(failed);
    }
    free(other.base);
    assert_int_equal(dev_unmap(dev, span.base, SPAN), ST_OK);
    assert_int_equal(read_it(), PACKED_HIT);
    assert_memory_equal(span.base, want, SPAN);
    assert_int_equal(n_file(), 1);
}

/* A file that somebody has mapped may be replaced or removed: his pages stay. */
static void a_process_that_has_mapped_a_file_keeps_its_bytes(void **state)
{
    (void)state;
    fill();
    assert_true(write_it());
    assert_int_equal(dev_unmap(dev, span.base, SPAN), ST_OK);
    assert_int_equal(read_it(), PACKED_HIT);
    struct packed_span other = span;
    other.base = calloc(1, SPAN);
    assert_non_null(other.base);
    assert_true(packed_file_write(path, ident, sizeof ident, &other, why));
    assert_memory_equal(span.base, want, SPAN);
    assert_int_equal(n_file(), 1);
    assert_memory_equal(span.base, want, SPAN);
    free(other.base);
}

static void put(const char *name, off_t bytes, time_t used)
{
    struct timespec t[2] = { { .tv_sec = used }, { .tv_sec = used } };
    int d = open(dir, O_RDONLY | O_DIRECTORY), fd = openat(d, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(fd >= 0 && !ftruncate(fd, bytes) && !futimens(fd, t));
    close(fd);
    close(d);
}
static bool there(const char *name)
{
    char p[200];
    snprintf(p, sizeof p, "%s/%s", dir, name);
    return access(p, F_OK) == 0;
}

static void the_least_recently_used_file_makes_room(void **state)
{
    (void)state;
    put("b.packed", 100, 3000);
    put("c.packed", 100, 1000);
    put("d.packed", 100, 2000);
    put("a.packed", 100, 500); /* in whose place we write: does not count */
    put("notes.txt", 1000, 1); /* not ours */
    assert_true(packed_dir_room(dir, path, 100, 400));
    assert_true(there("b.packed") && there("c.packed") && there("d.packed"));
    assert_true(packed_dir_room(dir, path, 100, 399));
    assert_true(there("b.packed") && !there("c.packed") && there("d.packed"));
    assert_true(packed_dir_room(dir, path, 400, 400));
    assert_true(there("a.packed") && !there("b.packed") && !there("d.packed") && there("notes.txt"));
    assert_false(packed_dir_room(dir, path, 401, 400));
    assert_true(there("a.packed"));
}

static void the_file_of_a_dead_writer_is_removed_and_that_of_a_live_one_stays(void **state)
{
    (void)state;
    char live[200];
    put("x.packed.1.a.part", 10, 1000);
    put("y.packed.2.b.part", 10, 1000);
    put("z.packed.3.c.part", 10, time(NULL)); /* made this moment, perhaps not locked yet */
    snprintf(live, sizeof live, "%s/y.packed.2.b.part", dir);
    int fd = open(live, O_RDWR | O_CLOEXEC);
    assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
    assert_true(packed_dir_room(dir, path, 1, 100));
    assert_true(!there("x.packed.1.a.part") && there("y.packed.2.b.part") && there("z.packed.3.c.part"));
    close(fd);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(a_written_file_comes_back_unchanged),
        T(a_file_on_a_network_is_read_and_not_mapped),
        T(memory_of_several_nodes_is_read_into),
        T(a_flipped_bit_is_a_doubt),
        T(another_length_or_identity_is_a_doubt),
        T(a_file_that_others_may_write_and_a_thing_that_is_no_file_are_doubted),
        T(a_full_disk_leaves_nothing),
        T(a_failed_write_leaves_the_file_that_was_there),
        T(a_missing_folder_is_reported),
        T(two_that_write_at_once_both_succeed),
        T(a_process_that_has_mapped_a_file_keeps_its_bytes),
        T(the_least_recently_used_file_makes_room),
        T(the_file_of_a_dead_writer_is_removed_and_that_of_a_live_one_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
