#include "test.h"
#include "base/ewma.h"

static void the_first_value_is_the_average_and_each_later_one_weighs_an_eighth(void **state)
{
    (void)state;
    assert_int_equal(ewma_u64(0, 800), 800);
    assert_int_equal(ewma_u64(800, 1600), 900);
    assert_int_equal(ewma_u64(800, 0), 700);
}

static void an_average_of_something_never_becomes_nothing(void **state)
{
    (void)state;
    uint64_t v = UINT64_MAX / 16;
    for (int i = 0; i < 1000; i++) {
        uint64_t next = ewma_u64(v, 0);
        assert_true(next > 0 && next <= v);
        v = next;
    }
    assert_true(v < 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_value_is_the_average_and_each_later_one_weighs_an_eighth),
        cmocka_unit_test(an_average_of_something_never_becomes_nothing),
    };
    return cmocka_run_group_tests_name("base/ewma", tests, NULL, NULL);
}
