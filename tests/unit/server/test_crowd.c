#include "server/crowd.h"
#include "test.h"

static struct peer address(uint32_t n)
{
    struct peer p = { { 0x20, 1, 0xd, 0xb8 } };
    memcpy(p.address + 4, &n, sizeof n);
    return p;
}

static void an_address_holds_as_many_as_it_may_and_others_are_not_touched(void **state)
{
    (void)state;
    struct crowd *c;
    assert_int_equal(crowd_create(3, &c), ST_OK);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 3; i++) assert_true(crowd_enter(c, address(77)));
        for (int i = 0; i < 5; i++) assert_false(crowd_enter(c, address(77))); /* a refusal counts nothing */
        crowd_leave(c, address(77));
        assert_true(crowd_enter(c, address(77)));
        assert_false(crowd_enter(c, address(77)));
        for (int i = 0; i < 3; i++) crowd_leave(c, address(77));
    }
    crowd_free(c);
}

static void many_addresses_hardly_ever_meet(void **state)
{
    (void)state;
    struct crowd *c;
    uint32_t      refused = 0;
    assert_int_equal(crowd_create(2, &c), ST_OK);
    for (uint32_t n = 0; n < 2000; n++)
        for (int i = 0; i < 2; i++) refused += !crowd_enter(c, address(n * 0x10001));
    assert_true(refused <= 80); /* two rows of 16,384 counters: both met with a chance of about (2000/16384)^2 */
    crowd_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_address_holds_as_many_as_it_may_and_others_are_not_touched),
        cmocka_unit_test(many_addresses_hardly_ever_meet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
