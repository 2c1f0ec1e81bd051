/* Files of what was fetched so far: a start that was killed at any moment is continued, and whatever may have happened
 * to such a file costs fetching again. */
#include <errno.h>
#include <semaphore.h>
#include <stdbool.h>
#include <unistd.h>
static int torn; /* injected: the disk is full from the torn-th write on */
static int n_write;
static long
    killed; /* injected: writes after so many bytes do nothing, as if the process had been killed there; < 0: off */
static ssize_t hook_pwrite(int fd, const void *p, size_t n, off_t at)
{
    if (torn && __atomic_add_fetch(&n_write, 1, __ATOMIC_RELAXED) >= torn) {
        errno = ENOSPC;
        return -1;
    }
    if (killed < 0) return (pwrite)(fd, p, n, at);
    size_t whole = n < (size_t)killed ? n : (size_t)killed;
    killed -= (long)whole;
    if (whole && (pwrite)(fd, p, whole, at) != (ssize_t)whole) return -1;
    return (ssize_t)n;
}
static _Thread_local bool stands; /* the next read of this thread does not return before go_on */
static sem_t              has_read, go_on;

static ssize_t hook_pread(int fd, void *p, size_t n, off_t at)
{
    ssize_t got = (pread)(fd, p, n, at);
    if (stands) {
        stands = false;
        sem_post(&has_read);
        while (sem_wait(&go_on)) continue;
    }
    return got;
}
#define pwrite(...) hook_pwrite(__VA_ARGS__)
#define pread(...)  hook_pread(__VA_ARGS__)
#include "engine/model/partial.c"
#undef pread
#undef pwrite
#include "test.h"
#include <stdatomic.h>

enum { BYTES = (4 << 20) + 12345, READERS = 4 };
static char              dir[64], path[128];
static unsigned char    *want, *got;
static _Atomic uint64_t  n_fetched;
static uint64_t          fail_from; /* the store fails behind so many bytes of the file */
static unsigned char     flip;      /* what the bytes of this version are mixed with */
static struct partial_of of;

static int setup(void **state)
{
    (void)state;
    log_init(LOG_LEVEL_ERROR, -1, false);
    snprintf(dir, sizeof dir, "/tmp/spillway-partial-XXXXXX");
    want = malloc(BYTES);
    got = malloc(BYTES);
    if (!want || !got || !mkdtemp(dir)) return -1;
    for (size_t i = 0; i < BYTES; i += 8) {
        uint64_t word = hash_u64(i);
        memcpy(want + i, &word, BYTES - i < 8 ? BYTES - i : 8);
    }
    of = (struct partial_of){ .where = "s3://b/p", .name = "model.safetensors", .version = "\"v1\"", .bytes = BYTES };
    torn = n_write = 0;
    fail_from = UINT64_MAX;
    killed = -1;
    flip = 0;
    n_fetched = 0;
    return path_of(dir, &of, path, sizeof path) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    unlink(path);
    rmdir(dir);
    free(want);
    free(got);
    return 0;
}

/* In pieces of two, and what is behind fail_from does not come. */
static enum status fetch(void *ctx, uint64_t offset, void *dst, size_t n, partial_come *come_fn, void *told)
{
    (void)ctx;
    for (size_t at = 0; at < n; at += 2 * PARTIAL_PIECE) {
        size_t part = n - at < 2 * PARTIAL_PIECE ? n - at : 2 * PARTIAL_PIECE;
        errno = EIO;
        if (offset + at + part > fail_from) return ST_IO;
        n_fetched += part;
        memcpy((unsigned char *)dst + at, want + offset + at, part);
        for (size_t i = at; flip && i < at + part; i++) ((unsigned char *)dst)[i] ^= flip;
        come_fn(told, offset + at, part);
    }
    return ST_OK;
}

static void compare(uint64_t from, size_t n)
{
    if (!flip && !memcmp(got, want + from, n)) return;
    for (size_t i = 0; i < n; i++)
        if (got[i] != (want[from + i] ^ flip)) fail_msg("byte %zu differs", (size_t)from + i);
}

static uint64_t read_all(struct partial *p) /* returns the bytes that were fetched for it */
{
    uint64_t before = n_fetched;
    memset(got, 0, BYTES);
    assert_int_equal(partial_read(p, 0, got, BYTES, fetch, NULL), ST_OK);
    compare(0, BYTES);
    return n_fetched - before;
}

static struct partial *begin(void)
{
    struct partial *p = partial_open(dir, &of);
    assert_non_null(p);
    return p;
}

static void every_byte_is_fetched_once_and_read_in_any_piece(void **state)
{
    (void)state;
    struct partial *p = begin();
    assert_int_equal(partial_bytes_kept(p), 0);
    for (uint64_t at = 0; at < BYTES; at += 700001) {
        size_t n = BYTES - at < 700001 ? (size_t)(BYTES - at) : 700001;
        assert_int_equal(partial_read(p, at, got, n, fetch, NULL), ST_OK);
        compare(at, n);
    }
    assert_int_equal(n_fetched, BYTES);
    assert_int_equal(partial_read(p, BYTES, got, 0, fetch, NULL), ST_OK);
    assert_int_equal(partial_read(p, BYTES - 1, got, 1, fetch, NULL), ST_OK);
    compare(BYTES - 1, 1);
    partial_close(p);
    p = begin();
    assert_int_equal(partial_bytes_kept(p), BYTES);
    assert_int_equal(read_all(p), 0);
    partial_close(p);
    partial_remove(dir, &of);
    assert_int_equal(access(path, F_OK), -1);
}

static void D17_a_start_that_was_killed_between_any_two_bytes_is_continued(void **state)
{
    (void)state;
    uint64_t  least = BYTES;
    const int step = test_size(300007, 1100009);
    for (long at = 0; at < BYTES + TABLE_AT + 1000; at += step) { /* bytes written before the kill */
        unlink(path);
        killed = at;
        struct partial *p = begin();
        read_all(p);
        partial_close(p);
        killed = -1;
        p = begin();
        uint64_t again = read_all(p);
        if (again < least) least = again;
        assert_true(again <= BYTES);
        partial_close(p);
    }
    assert_true(least <= 2 << 20);
}

static void D17_of_another_version_nothing_is_used(void **state)
{
    (void)state;
    struct partial *p = begin();
    read_all(p);
    partial_close(p);
    flip = 0x55; /* the object was put again between the two starts */
    of.version = "\"v2\"";
    p = begin();
    assert_int_equal(partial_bytes_kept(p), 0);
    assert_int_equal(partial_read(p, 0, got, 1 << 20, fetch, NULL), ST_OK);
    compare(0, 1 << 20);
    partial_close(p);
    flip = 0;
    of.version = "\"v1\""; /* and back: the first one was forgotten */
    p = begin();
    assert_int_equal(read_all(p), BYTES);
    partial_close(p);
    of.bytes -= 1;
    p = begin();
    assert_int_equal(partial_bytes_kept(p), 0);
    partial_close(p);
    of.version = ""; /* without a version nobody knows */
    assert_null(partial_open(dir, &of));
}

static void D17_a_file_that_was_cut_or_damaged_costs_what_is_in_doubt(void **state)
{
    (void)state;
    const int step = test_size(450001, 1700003);
    for (int64_t at = 0; at < BYTES + (1 << 20); at += step) {
        for (int cut = 0; cut < 2; cut++) {
            unlink(path);
            struct partial *p = begin();
            read_all(p);
            partial_close(p);
            int           fd = open(path, O_RDWR | O_CLOEXEC);
            unsigned char byte = 0;
            assert_true(fd >= 0);
            if (cut) assert_int_equal(ftruncate(fd, at), 0);
            if (!cut) assert_int_equal(pread(fd, &byte, 1, at), 1);
            byte ^= 0x10;
            if (!cut) assert_int_equal((pwrite)(fd, &byte, 1, at), 1);
            close(fd);
            p = begin();
            uint64_t again = read_all(p);
            if (!cut && at) assert_true(again <= 1 << 20);
            partial_close(p);
            p = begin();
            assert_int_equal(read_all(p), 0);
            partial_close(p);
        }
    }
}

static void a_full_disk_costs_the_next_start_alone(void **state)
{
    (void)state;
    torn = 3; /* the head and the first write are well */
    struct partial *p = begin();
    assert_int_equal(partial_read(p, 0, got, 1 << 20, fetch, NULL), ST_OK);
    read_all(p);
    read_all(p);
    partial_close(p);
    torn = 0;
    p = begin();
    assert_int_equal(partial_bytes_kept(p), 0);
    read_all(p);
    partial_close(p);
}

static void a_store_that_fails_is_reported_and_asked_again(void **state)
{
    (void)state;
    struct partial *p = begin();
    fail_from = 100;
    assert_int_equal(partial_read(p, 100, got, 2 << 20, fetch, NULL), ST_IO);
    assert_int_equal(errno, EIO);
    fail_from = 3 << 20; /* what has come before that stays */
    assert_int_equal(partial_read(p, 0, got, BYTES, fetch, NULL), ST_IO);
    fail_from = UINT64_MAX;
    assert_int_equal(read_all(p), BYTES - (2 << 20));
    partial_close(p);
}

static void files_of_others_and_of_two_names_are_not_written(void **state)
{
    (void)state;
    char other[160];
    snprintf(other, sizeof other, "%s/mine", dir);
    FILE *f = fopen(other, "w");
    assert_non_null(f);
    fputs("precious", f);
    fclose(f);
    assert_int_equal(link(other, path), 0);
    assert_null(partial_open(dir, &of));
    unlink(path);
    assert_int_equal(symlink(other, path), 0);
    assert_null(partial_open(dir, &of));
    unlink(path);
    struct stat st;
    assert_int_equal(stat(other, &st), 0);
    assert_int_equal(st.st_size, 8);
    unlink(other);
    partial_close(begin());
    assert_int_equal(chmod(path, 0666), 0);
    assert_null(partial_open(dir, &of));
    unlink(path);
    struct partial *p = begin();
    assert_null(partial_open(dir, &of)); /* held by another one */
    partial_close(p);
    assert_null(partial_open("/nonexistent/folder", &of));
}

struct reader {
    pthread_t       t;
    struct partial *p;
    unsigned char  *dst;
    uint32_t        seed;
};

static void *reader_main(void *arg)
{
    struct reader *r = arg;
    for (uint32_t k = 0; k < 12; k++) {
        uint64_t at = hash_u64(r->seed * 100 + k) % BYTES, n = hash_u64(at) % (2 << 20);
        if (n > BYTES - at) n = BYTES - at;
        if (partial_read(r->p, at, r->dst, (size_t)n, fetch, NULL)) return r;
        if (memcmp(r->dst, want + at, (size_t)n) != 0) return r;
    }
    return NULL;
}

static void *slow_main(void *arg)
{
    struct reader *r = arg;
    stands = true;
    return partial_read(r->p, CHUNK, r->dst, 1000, fetch, NULL) ? r : NULL;
}

/* Two threads have read the same damaged bytes; one of them has fetched the chunk again before the other one looks. */
static void a_damaged_chunk_is_fetched_again_once(void **state)
{
    (void)state;
    unsigned char  byte = 0, bytes[1000];
    struct reader  r = { .p = begin(), .dst = bytes };
    void          *bad;
    const uint64_t at = r.p->data_at + CHUNK + 5;
    read_all(r.p);
    partial_close(r.p);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_int_equal(pread(fd, &byte, 1, (off_t)at), 1);
    byte ^= 1;
    assert_int_equal((pwrite)(fd, &byte, 1, (off_t)at), 1);
    close(fd);
    assert_int_equal(sem_init(&has_read, 0, 0), 0);
    assert_int_equal(sem_init(&go_on, 0, 0), 0);
    r.p = begin();
    n_fetched = 0;
    assert_int_equal(pthread_create(&r.t, NULL, slow_main, &r), 0);
    while (sem_wait(&has_read)) continue;
    assert_int_equal(partial_read(r.p, CHUNK, got, 1000, fetch, NULL), ST_OK);
    compare(CHUNK, 1000);
    sem_post(&go_on);
    pthread_join(r.t, &bad);
    assert_null(bad);
    assert_memory_equal(bytes, want + CHUNK, sizeof bytes);
    assert_int_equal(n_fetched, CHUNK);
    partial_close(r.p);
}

/* Also while chunks on disk are found to be damaged. */
static void several_threads_read_what_any_of_them_fetches(void **state)
{
    (void)state;
    struct reader r[READERS];
    for (int round = 0; round < 2; round++) {
        struct partial *p = begin();
        n_fetched = 0;
        for (uint32_t i = 0; i < READERS; i++) {
            r[i] = (struct reader){ .p = p, .dst = malloc(BYTES), .seed = i + 1 };
            assert_non_null(r[i].dst);
            assert_int_equal(pthread_create(&r[i].t, NULL, reader_main, &r[i]), 0);
        }
        for (uint32_t i = 0; i < READERS; i++) {
            void *bad;
            pthread_join(r[i].t, &bad);
            assert_null(bad);
            free(r[i].dst);
        }
        assert_true(n_fetched <= BYTES);
        read_all(p);
        partial_close(p);
        int fd = open(path, O_RDWR | O_CLOEXEC);
        for (off_t at = 2 << 20; at < BYTES; at += 1 << 20) assert_int_equal((pwrite)(fd, "xxxx", 4, at), 4);
        close(fd);
    }
}

static void room_counts_what_partial_files_hold_and_old_ones_go(void **state)
{
    (void)state;
    struct partial *p = begin();
    read_all(p);
    partial_close(p);
    assert_true(partial_room(dir) >= BYTES);
    struct timespec old[2] = { { .tv_sec = 1000 }, { .tv_sec = 1000 } };
    assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
    p = begin(); /* held: stays */
    partial_room(dir);
    assert_int_equal(access(path, F_OK), 0);
    partial_close(p);
    assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
    partial_room(dir);
    assert_int_equal(access(path, F_OK), -1);
    char none[200];
    snprintf(none, sizeof none, "%s/none", dir);
    assert_true(partial_room(none) > 0);
    assert_int_equal(partial_room("/nonexistent/none"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_byte_is_fetched_once_and_read_in_any_piece, setup, teardown),
        cmocka_unit_test_setup_teardown(D17_a_start_that_was_killed_between_any_two_bytes_is_continued, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(D17_of_another_version_nothing_is_used, setup, teardown),
        cmocka_unit_test_setup_teardown(D17_a_file_that_was_cut_or_damaged_costs_what_is_in_doubt, setup, teardown),
        cmocka_unit_test_setup_teardown(a_full_disk_costs_the_next_start_alone, setup, teardown),
        cmocka_unit_test_setup_teardown(a_store_that_fails_is_reported_and_asked_again, setup, teardown),
        cmocka_unit_test_setup_teardown(files_of_others_and_of_two_names_are_not_written, setup, teardown),
        cmocka_unit_test_setup_teardown(a_damaged_chunk_is_fetched_again_once, setup, teardown),
        cmocka_unit_test_setup_teardown(several_threads_read_what_any_of_them_fetches, setup, teardown),
        cmocka_unit_test_setup_teardown(room_counts_what_partial_files_hold_and_old_ones_go, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
