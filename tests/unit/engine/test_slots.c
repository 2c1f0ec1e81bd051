#include "engine/slots.h"
#include "test.h"

static struct adapter a, b, c;
static struct slots   s;
static struct batch   batch;

static int fresh(void **state)
{
    (void)state;
    a = (struct adapter){ .serial = 1, .n_keep = 1 };
    b = (struct adapter){ .serial = 2, .n_keep = 1 };
    c = (struct adapter){ .serial = 3, .n_keep = 1 };
    batch.n_adapt = 0;
    slots_init(&s, 2);
    return 0;
}

/* What is coming is in the batch once, and is let go when the step has ended. */
static void an_adapter_goes_to_the_device_once_and_stays(void **state)
{
    (void)state;
    uint32_t one = slots_enter(&s, &a);
    assert_int_equal(one, 1);
    assert_int_equal(slots_enter(&s, &a), one);
    slots_fill(&s, &batch);
    assert_int_equal(batch.n_adapt, 1);
    assert_ptr_equal(batch.adapt[0].adapter, &a);
    assert_int_equal(batch.adapt[0].slot, one - 1);
    assert_int_equal(a.n_keep, 2);
    slots_sent(&batch);
    assert_int_equal(a.n_keep, 1);
    slots_leave(&s, one);
    slots_leave(&s, one);
    assert_int_equal(slots_enter(&s, &a), one); /* still there */
    slots_fill(&s, &batch);
    assert_int_equal(batch.n_adapt, 0);
    assert_int_equal(slots_enter(&s, NULL), 0);
    slots_leave(&s, 0);
}

static void the_idle_slot_that_was_used_longest_ago_gives_way(void **state)
{
    (void)state;
    uint32_t one = slots_enter(&s, &a), two = slots_enter(&s, &b);
    slots_fill(&s, &batch);
    slots_sent(&batch);
    assert_false(slots_allow(&s, &c));
    assert_true(slots_allow(&s, &a));
    slots_leave(&s, one);
    slots_leave(&s, two);
    slots_leave(&s, slots_enter(&s, &a)); /* now b is the older */
    assert_true(slots_allow(&s, &c));
    assert_int_equal(slots_enter(&s, &c), two);
    assert_int_equal(slots_enter(&s, &a), one);
    slots_fill(&s, &batch);
    assert_int_equal(batch.n_adapt, 1);
    slots_sent(&batch);
}

static void an_adapter_whose_requests_end_before_its_step_does_not_come(void **state)
{
    (void)state;
    uint32_t one = slots_enter(&s, &a);
    slots_leave(&s, one);
    assert_int_equal(a.n_keep, 1);
    slots_fill(&s, &batch);
    assert_int_equal(batch.n_adapt, 0);
    assert_int_equal(slots_enter(&s, &a), one); /* it is not there: it has to come */
    slots_fill(&s, &batch);
    assert_int_equal(batch.n_adapt, 1);
    slots_sent(&batch);
}

static void who_was_overtaken_often_gets_the_next_slot_that_can_become_free(void **state)
{
    (void)state;
    uint32_t one = slots_enter(&s, &a), two = slots_enter(&s, &b);
    slots_enter(&s, &b);
    slots_refused(&s, 1);
    assert_true(slots_allow(&s, &a));
    slots_refused(&s, SLOTS_PATIENCE);
    assert_false(slots_allow(&s, &a)); /* one holder; b has two */
    assert_true(slots_allow(&s, &b));
    slots_refused(&s, SLOTS_PATIENCE + 1);
    assert_true(slots_allow(&s, &b)); /* one at a time */
    slots_leave(&s, one);
    assert_true(slots_allow(&s, &c));
    assert_int_equal(slots_enter(&s, &c), one);
    slots_leave(&s, two);
    slots_close(&s);
    assert_int_equal(a.n_keep + b.n_keep + c.n_keep, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(an_adapter_goes_to_the_device_once_and_stays, fresh),
        cmocka_unit_test_setup(the_idle_slot_that_was_used_longest_ago_gives_way, fresh),
        cmocka_unit_test_setup(an_adapter_whose_requests_end_before_its_step_does_not_come, fresh),
        cmocka_unit_test_setup(who_was_overtaken_often_gets_the_next_slot_that_can_become_free, fresh),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
