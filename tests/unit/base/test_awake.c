#include "base/awake.h"
#include "test.h"

enum { SECOND = 1000000 };

/* One test: the state is the process's. */
static void a_break_is_seen_by_the_first_thread_that_runs_and_a_stuck_ticker_hides_nothing(void **state)
{
    (void)state;
    uint64_t t = 100 * SECOND;
    assert_int_equal(awake_since(t), 0); /* nobody ticks: nothing is known of breaks */
    for (int i = 0; i < 10; i++) awake_tick(t += AWAKE_TICK_US);
    assert_int_equal(awake_since(t + AWAKE_TICK_US), 0);

    /* stopped for a minute: another thread runs before the ticking one */
    t += 60 * SECOND;
    assert_int_equal(awake_since(t), t);
    assert_int_equal(awake_since(t + 1000), t);
    awake_tick(t + 2000);
    assert_int_equal(awake_since(t + 3000), t + 2000);
    awake_tick(t += AWAKE_TICK_US);
    uint64_t resumed = awake_since(t);
    assert_true(resumed > 0 && resumed < t);

    /* the ticking thread itself stands still: it is believed for a while, then no more */
    uint64_t stuck = t;
    assert_int_equal(awake_since(stuck + 3 * SECOND), stuck + 3 * SECOND);
    assert_int_equal(awake_since(stuck + 3 * SECOND + AWAKE_TRUST_US), stuck + 3 * SECOND);
    assert_int_equal(awake_since(stuck + 3 * SECOND + AWAKE_TRUST_US + 1), resumed);
    assert_int_equal(awake_since(stuck + 3600ull * SECOND), resumed);

    /* a long turn of the ticking thread that is no break is none */
    awake_tick(stuck + 3601ull * SECOND);
    uint64_t again = awake_since(stuck + 3601ull * SECOND);
    awake_tick(stuck + 3601ull * SECOND + AWAKE_BREAK_US);
    assert_int_equal(awake_since(stuck + 3601ull * SECOND + AWAKE_BREAK_US), again);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(
        a_break_is_seen_by_the_first_thread_that_runs_and_a_stuck_ticker_hides_nothing) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
