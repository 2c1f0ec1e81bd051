#include "kvcache/slab.h"
#include "test.h"
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BYTES = SLAB_PIECE + (3 << 20) + 4096 };

static int file_of(off_t bytes)
{
    int fd = memfd_create("slab", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, bytes), 0);
    return fd;
}

static void a_slab_begins_as_zeros_and_the_next_process_finds_its_bytes(void **state)
{
    (void)state;
    const size_t   page = (size_t)sysconf(_SC_PAGESIZE);
    int            fd = file_of(BYTES);
    unsigned char *p, *q;
    assert_int_equal(slab_map(fd, BYTES, (void **)&p), ST_OK);
    for (size_t i = 0; i < BYTES / page; i++) {
        assert_int_equal(p[i * page], 0);
        p[i * page] = (unsigned char)(i * 7 + 1);
    }
    assert_int_equal(slab_map(fd, BYTES, (void **)&q), ST_OK);
    for (size_t i = 0; i < BYTES / page; i++) assert_int_equal(q[i * page], (unsigned char)(i * 7 + 1));
    munmap(p, BYTES);
    munmap(q, BYTES);
    close(fd);
}

static void a_failure_to_map_the_slab_is_an_error(void **state)
{
    (void)state;
    void *p = NULL;
    assert_int_equal(slab_map(-1, 1 << 20, &p), ST_NOMEM);
    assert_int_not_equal(errno, 0);
    assert_null(p);
}

/* ---- where madvise does what it is told */

static void every_page_is_there(void **state)
{
    (void)state;
    const size_t   page = (size_t)sysconf(_SC_PAGESIZE);
    int            fd = file_of(BYTES);
    unsigned char *p, *in = malloc(BYTES / page + 1);
    assert_int_equal(slab_map(fd, BYTES, (void **)&p), ST_OK);
    assert_int_equal(mincore(p, BYTES, in), 0);
    for (size_t i = 0; i < BYTES / page; i++) assert_true(in[i] & 1);
    munmap(p, BYTES);
    close(fd);
    free(in);
}

static void memory_that_is_not_there_is_an_error_now(void **state)
{
    (void)state;
    int   fd = file_of(4096);
    void *p = NULL;
    assert_int_equal(slab_map(fd, 1 << 20, &p), ST_NOMEM); /* the file is shorter: later it would be SIGBUS */
    assert_int_not_equal(errno, 0);
    assert_null(p);
    close(fd);
}

/* A kernel refuses advice that it does not know. qemu-user takes any, and does nothing for it. */
static bool advice_is_real(void)
{
    void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    bool  refused = madvise(p, 4096, 9999) != 0;
    munmap(p, 4096);
    return refused;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slab_begins_as_zeros_and_the_next_process_finds_its_bytes),
        cmocka_unit_test(a_failure_to_map_the_slab_is_an_error),
    };
    const struct CMUnitTest of_pages[] = {
        cmocka_unit_test(every_page_is_there),
        cmocka_unit_test(memory_that_is_not_there_is_an_error_now),
    };
    int bad = cmocka_run_group_tests(tests, NULL, NULL);
    if (!advice_is_real()) {
        puts("madvise does nothing here (an emulator): when pages are taken is not looked at");
        return bad;
    }
    return bad + cmocka_run_group_tests(of_pages, NULL, NULL);
}
