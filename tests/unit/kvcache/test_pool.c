#include "test.h"
#include "kvcache/device/pool.h"

static void blocks_come_lowest_first_and_the_last_freed_comes_back_first(void **state)
{
    (void)state;
    struct kv_pool p;
    assert_int_equal(kv_pool_init(&p, 3, 0), ST_OK);
    assert_int_equal(kv_pool_take(&p), 0);
    assert_int_equal(kv_pool_take(&p), 1);
    p.ref[0] = 0;
    kv_pool_put(&p, 0);
    assert_int_equal(kv_pool_take(&p), 0);
    assert_int_equal(p.ref[0], 1);
    kv_pool_close(&p);
}

static void an_empty_pool_gives_none(void **state)
{
    (void)state;
    struct kv_pool p;
    assert_int_equal(kv_pool_init(&p, 1, 0), ST_OK);
    assert_int_equal(kv_pool_take(&p), 0);
    assert_int_equal(kv_pool_take(&p), KV_NONE);
    assert_int_equal(p.n_free, 0);
    kv_pool_close(&p);
}

static void put_named(void *arg) { kv_pool_put(arg, 0); }

static void a_block_that_is_still_named_cannot_be_freed(void **state)
{
    (void)state;
    struct kv_pool p;
    assert_int_equal(kv_pool_init(&p, 2, 0), ST_OK);
    kv_pool_take(&p);
    assert_int_equal(test_exit_of(put_named, &p), 70);
    kv_pool_close(&p);
}

static void put_beyond(void *arg) { kv_pool_put(arg, 7); }

static void a_number_that_is_no_block_cannot_be_freed(void **state)
{
    (void)state;
    struct kv_pool p;
    assert_int_equal(kv_pool_init(&p, 2, 0), ST_OK);
    assert_int_equal(test_exit_of(put_beyond, &p), 70);
    kv_pool_close(&p);
}

static void more_frees_than_blocks_are_noticed(void **state)
{
    (void)state;
    struct kv_pool p;
    assert_int_equal(kv_pool_init(&p, 2, 0), ST_OK);
    assert_int_equal(test_exit_of(put_named, &p), 70);
    kv_pool_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_come_lowest_first_and_the_last_freed_comes_back_first),
        cmocka_unit_test(an_empty_pool_gives_none),
        cmocka_unit_test(a_block_that_is_still_named_cannot_be_freed),
        cmocka_unit_test(a_number_that_is_no_block_cannot_be_freed),
        cmocka_unit_test(more_frees_than_blocks_are_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
