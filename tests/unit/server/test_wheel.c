#include "server/wheel.h"
#include "test.h"

static struct wheel W;
struct timed {
    struct wheel_node n;
    uint64_t          fired_us;
};
static uint64_t start = 1000 * (uint64_t)WHEEL_TICK_US;

static void fire(struct wheel_node *n, uint64_t now_us) { ((struct timed *)n)->fired_us = now_us; }

static void run_to(uint64_t from, uint64_t to)
{
    for (uint64_t t = from; t <= to; t += WHEEL_TICK_US) wheel_run(&W, t, fire);
}

static void a_timer_fires_after_its_time_and_soon(void **state)
{
    (void)state;
    static const uint64_t after[] = { 0, 1, 100000, 250000, 1000000, 10000000, 75000000, 500000000 };
    for (size_t i = 0; i < ARRAY_N(after); i++) {
        struct timed t = { 0 };
        wheel_init(&W, start);
        wheel_node_init(&t.n);
        wheel_set(&W, &t.n, start + after[i]);
        run_to(start, start + after[i] + 4 * WHEEL_TICK_US);
        assert_true(t.fired_us >= start + after[i]);
        assert_true(t.fired_us <= start + after[i] + 2 * WHEEL_TICK_US);
        assert_int_equal(W.n, 0);
    }
}

static void a_timer_can_be_moved_and_cleared(void **state)
{
    (void)state;
    struct timed a = { 0 }, b = { 0 }, c = { 0 };
    wheel_init(&W, start);
    wheel_node_init(&a.n);
    wheel_node_init(&b.n);
    wheel_node_init(&c.n);
    wheel_set(&W, &a.n, start + 1000000);
    wheel_set(&W, &b.n, start + 9000000);
    wheel_set(&W, &c.n, start + 1000000);
    wheel_set(&W, &a.n, start + 5000000); /* later */
    wheel_set(&W, &b.n, start + 2000000); /* earlier */
    wheel_clear(&W, &c.n);
    assert_int_equal(W.n, 2);
    run_to(start, start + 10000000);
    assert_true(a.fired_us >= start + 5000000 && a.fired_us < start + 5600000);
    assert_true(b.fired_us >= start + 2000000 && b.fired_us < start + 2600000);
    assert_int_equal(c.fired_us, 0);
}

static struct timed other;
static void         fire_and_clear(struct wheel_node *n, uint64_t now_us)
{
    fire(n, now_us);
    wheel_clear(&W, &other.n);
    wheel_set(&W, n, now_us); /* again, not in this run */
}

static void a_timer_that_fires_may_change_the_wheel(void **state)
{
    (void)state;
    struct timed a = { 0 };
    wheel_init(&W, start);
    wheel_node_init(&a.n);
    wheel_node_init(&other.n);
    wheel_set(&W, &a.n, start);
    wheel_set(&W, &other.n, start);
    wheel_run(&W, start + 3 * WHEEL_TICK_US, fire_and_clear);
    assert_int_equal(other.fired_us, 0);
    assert_int_equal(W.n, 1);
    wheel_clear(&W, &a.n);
    assert_int_equal(W.n, 0);
}

static void a_long_sleep_loses_no_timer(void **state)
{
    (void)state;
    struct timed t[50];
    memset(t, 0, sizeof t);
    wheel_init(&W, start);
    for (size_t i = 0; i < 50; i++) {
        wheel_node_init(&t[i].n);
        wheel_set(&W, &t[i].n, start + i * 3000000);
    }
    wheel_run(&W, start + 3600ull * 1000000, fire);
    for (size_t i = 0; i < 50; i++) assert_true(t[i].fired_us);
    assert_int_equal(W.n, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_timer_fires_after_its_time_and_soon),
        cmocka_unit_test(a_timer_can_be_moved_and_cleared),
        cmocka_unit_test(a_timer_that_fires_may_change_the_wheel),
        cmocka_unit_test(a_long_sleep_loses_no_timer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
