#include "test.h"
#include "engine/phase.h"

static void the_parts_of_a_turn_sum_up_and_waiting_is_not_the_hosts(void **state)
{
    (void)state;
    struct phases p = { .on = true };
    phase_begin(&p, 1000);
    phase_end(&p, PHASE_MESSAGES, 1003);
    phase_end(&p, PHASE_PLAN, 1010);
    phase_end(&p, PHASE_WAIT, 6010);
    phase_end(&p, PHASE_APPLY, 6030);
    phase_turn(&p, true);
    assert_int_equal(atomic_load(&p.us[PHASE_MESSAGES]), 3);
    assert_int_equal(atomic_load(&p.us[PHASE_PLAN]), 7);
    assert_int_equal(atomic_load(&p.us[PHASE_WAIT]), 5000);
    assert_int_equal(atomic_load(&p.us[PHASE_APPLY]), 20);
    assert_int_equal(atomic_load(&p.host.sum_us), 30);
    assert_int_equal(atomic_load(&p.host.time[3]), 1); /* above 25, up to 50 */
    phase_begin(&p, 7000);
    phase_end(&p, PHASE_MESSAGES, 7001);
    phase_turn(&p, false); /* nothing was stepped */
    assert_int_equal(atomic_load(&p.host.sum_us), 30);
    assert_int_equal(atomic_load(&p.us[PHASE_MESSAGES]), 4);
}

static void a_clock_that_goes_back_takes_nothing_away(void **state)
{
    (void)state;
    struct phases p = { .on = true };
    phase_begin(&p, 1000);
    phase_end(&p, PHASE_PLAN, 900);
    phase_end(&p, PHASE_FILL, 905);
    assert_int_equal(atomic_load(&p.us[PHASE_PLAN]), 0);
    assert_int_equal(atomic_load(&p.us[PHASE_FILL]), 5);
}

static void every_time_has_a_class(void **state)
{
    (void)state;
    struct phases p = { .on = true };
    phase_gap(&p, 0);
    phase_gap(&p, phase_bound_us[0]);
    phase_gap(&p, phase_bound_us[0] + 1);
    phase_gap(&p, UINT64_MAX / 2);
    assert_int_equal(atomic_load(&p.gap.time[0]), 2);
    assert_int_equal(atomic_load(&p.gap.time[1]), 1);
    assert_int_equal(atomic_load(&p.gap.time[PHASE_TIMES - 1]), 1);
    p.on = false;
    phase_gap(&p, 1);
    assert_int_equal(atomic_load(&p.gap.time[0]), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_parts_of_a_turn_sum_up_and_waiting_is_not_the_hosts),
        cmocka_unit_test(a_clock_that_goes_back_takes_nothing_away),
        cmocka_unit_test(every_time_has_a_class),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
