#include "test.h"
#include "base/log.h"
#include "base/pool.h"
#include "base/status.h"
#include <poll.h>

static void it_gives_n_objects_and_then_null(void **state)
{
    (void)state;
    struct pool p;
    void       *obj[5];
    assert_int_equal(pool_init(&p, "thing", 5, 100), ST_OK);
    for (int i = 0; i < 5; i++) {
        obj[i] = pool_get(&p);
        assert_non_null(obj[i]);
        assert_int_equal((uintptr_t)obj[i] % 64, 0);
        assert_int_equal(pool_index(&p, obj[i]), i);
    }
    assert_null(pool_get(&p));
    assert_int_equal(pool_used(&p), 5);
    pool_put(&p, obj[3]);
    assert_int_equal(pool_used(&p), 4);
    assert_ptr_equal(pool_get(&p), obj[3]);
    for (int i = 0; i < 5; i++) pool_put(&p, obj[i]);
    assert_int_equal(pool_used(&p), 0);
    pool_free(&p);
    pool_free(&p); /* twice is harmless */
}

static void an_object_comes_zeroed_every_time(void **state)
{
    (void)state;
    struct pool p;
    assert_int_equal(pool_init(&p, "thing", 1, 200), ST_OK);
    for (int round = 0; round < 3; round++) {
        unsigned char *o = pool_get(&p);
        for (int i = 0; i < 200; i++) assert_int_equal(o[i], 0);
        memset(o, 0xff, 200);
        pool_put(&p, o);
    }
    pool_free(&p);
}

static void put_twice(void *arg)
{
    struct pool *p = arg;
    void        *o = pool_get(p);
    pool_put(p, o);
    pool_put(p, o);
}
static void put_foreign(void *arg)
{
    long x;
    pool_put(arg, &x);
}
static void put_inside(void *arg) { pool_put(arg, (char *)pool_get(arg) + 8); }
static void put_past_the_end(void *arg)
{
    struct pool *p = arg;
    pool_put(p, p->mem + p->n * p->size);
}

static void a_wrong_put_ends_the_process(void **state)
{
    (void)state;
    struct pool p;
    assert_int_equal(pool_init(&p, "thing", 4, 64), ST_OK);
    assert_int_equal(test_exit_of(put_twice, &p), EXIT_SOFTWARE);
    assert_int_equal(test_exit_of(put_foreign, &p), EXIT_SOFTWARE);
    assert_int_equal(test_exit_of(put_inside, &p), EXIT_SOFTWARE);
    assert_int_equal(test_exit_of(put_past_the_end, &p), EXIT_SOFTWARE);
    pool_free(&p);
}

static void freeing_a_pool_reports_the_items_that_were_not_returned(void **state)
{
    (void)state;
    struct pool p;
    int         fd[2];
    assert_int_equal(pipe(fd), 0);
    log_init(LOG_LEVEL_INFO, fd[1], false);
    assert_int_equal(pool_init(&p, "seqs", 8, 64), ST_OK);
    void *a = pool_get(&p);
    pool_get(&p);
    pool_get(&p);
    pool_put(&p, a);
    pool_free(&p);
    char    line[512] = "";
    ssize_t n = read(fd[0], line, sizeof line - 1);
    assert_true(n > 0);
    assert_non_null(strstr(line, "warn  pool: 2 of 8 seqs are still out, the first is number 1\n"));
    assert_int_equal(pool_init(&p, "seqs", 8, 64), ST_OK);
    pool_free(&p);
    struct pollfd poll_fd = { .fd = fd[0], .events = POLLIN };
    assert_int_equal(poll(&poll_fd, 1, 0), 0); /* nothing leaked, nothing said */
    log_init(LOG_LEVEL_INFO, 2, false);
    close(fd[0]);
    close(fd[1]);
}

static void sizes_that_overflow_are_no_memory(void **state)
{
    (void)state;
    struct pool p;
    assert_int_equal(pool_init(&p, "huge", UINT32_MAX, SIZE_MAX / 2), ST_NOMEM);
    assert_int_equal(pool_init(&p, "huge", 1, SIZE_MAX), ST_NOMEM);
    assert_int_equal(pool_init(&p, "none", 0, 64), ST_OK);
    assert_null(pool_get(&p));
    pool_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_gives_n_objects_and_then_null),
        cmocka_unit_test(an_object_comes_zeroed_every_time),
        cmocka_unit_test(a_wrong_put_ends_the_process),
        cmocka_unit_test(freeing_a_pool_reports_the_items_that_were_not_returned),
        cmocka_unit_test(sizes_that_overflow_are_no_memory),
    };
    return cmocka_run_group_tests_name("base/pool", tests, NULL, NULL);
}
