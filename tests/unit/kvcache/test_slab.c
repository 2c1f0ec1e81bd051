#include "kvcache/slab.h"
#include "test.h"
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* A kernel refuses advice that it does not know. qemu-user takes any, and does nothing for it. */
static bool advice_is_real(void)
{
    void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    bool  refused = madvise(p, 4096, 9999) != 0;
    munmap(p, 4096);
    return refused;
}

static void every_page_is_there_and_what_was_in_it(void **state)
{
    (void)state;
    enum { BYTES = SLAB_PIECE + (3 << 20) + 4096 };
    const int      page = (int)sysconf(_SC_PAGESIZE);
    int            fd = memfd_create("slab", MFD_CLOEXEC);
    unsigned char *p, *q, *in = malloc(BYTES / page + 1);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, BYTES), 0);
    assert_int_equal(slab_map(fd, BYTES, (void **)&p), ST_OK);
    assert_int_equal(mincore(p, BYTES, in), 0);
    for (int i = 0; i < BYTES / page; i++) {
        assert_true(in[i] & 1);
        assert_int_equal(p[(size_t)i * page], 0);
        p[(size_t)i * page] = (unsigned char)(i * 7 + 1);
    }
    assert_int_equal(slab_map(fd, BYTES, (void **)&q), ST_OK); /* as the next process does */
    for (int i = 0; i < BYTES / page; i++) assert_int_equal(q[(size_t)i * page], (unsigned char)(i * 7 + 1));
    munmap(p, BYTES), munmap(q, BYTES);
    close(fd);
    free(in);
}

static void memory_that_is_not_there_is_an_error_now(void **state)
{
    (void)state;
    int   fd = memfd_create("slab", MFD_CLOEXEC);
    void *p = NULL;
    assert_int_equal(ftruncate(fd, 4096), 0);
    assert_int_equal(slab_map(fd, 1 << 20, &p), ST_NOMEM); /* the file is shorter: later it would be SIGBUS */
    assert_int_not_equal(errno, 0);
    assert_int_equal(slab_map(-1, 1 << 20, &p), ST_NOMEM);
    assert_null(p);
    close(fd);
}

int main(void)
{
    if (!advice_is_real()) return puts("madvise does nothing here (an emulator), skipped"), 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_page_is_there_and_what_was_in_it),
        cmocka_unit_test(memory_that_is_not_there_is_an_error_now),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
