#include "shard.h"

static void every_item_is_in_one_of_the_shards(void **state)
{
    char shard[16];
    (void)state;
    for (uint32_t n = 1; n <= 5; n++)
        for (uint32_t item = 0; item < 23; item++) {
            uint32_t times = 0;
            for (uint32_t i = 1; i <= n; i++) {
                snprintf(shard, sizeof shard, "%u/%u", i, n);
                times += shard_has(shard, item);
            }
            assert_int_equal(times, 1);
        }
}

static void without_a_shard_all_items_are_ours(void **state)
{
    (void)state;
    for (uint32_t item = 0; item < 5; item++) assert_true(shard_has(NULL, item));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_item_is_in_one_of_the_shards),
        cmocka_unit_test(without_a_shard_all_items_are_ours),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
