#include "test.h"
#include "base/clock.h"
#include "base/ring.h"
#include <poll.h>
#include <pthread.h>
#include <sched.h>

static void *ptr(uintptr_t n) { return (void *)n; }

static void pointers_come_out_in_the_order_they_went_in(void **state)
{
    (void)state;
    struct ring r;
    assert_int_equal(ring_init(&r, 8), ST_OK);
    for (uintptr_t round = 0; round < 100; round++) {
        for (uintptr_t i = 1; i <= 5; i++) assert_true(ring_push(&r, ptr(round * 5 + i)));
        for (uintptr_t i = 1; i <= 5; i++) assert_ptr_equal(ring_pop(&r), ptr(round * 5 + i));
        assert_null(ring_pop(&r));
    }
    ring_free(&r);
    ring_free(&r);
}

static void a_ring_holds_at_least_the_number_that_was_asked_for_and_then_refuses(void **state)
{
    (void)state;
    static const uint32_t ask[] = { 0, 1, 2, 3, 7, 8, 9, 1000 }, room[] = { 2, 2, 2, 4, 8, 8, 16, 1024 };
    for (size_t k = 0; k < ARRAY_N(ask); k++) {
        struct ring r;
        assert_int_equal(ring_init(&r, ask[k]), ST_OK);
        for (uintptr_t i = 1; i <= room[k]; i++) assert_true(ring_push(&r, ptr(i)));
        assert_false(ring_push(&r, ptr(9999)));
        assert_ptr_equal(ring_pop(&r), ptr(1));
        assert_true(ring_push(&r, ptr(room[k] + 1)));
        assert_false(ring_push(&r, ptr(9999)));
        for (uintptr_t i = 2; i <= room[k] + 1; i++) assert_ptr_equal(ring_pop(&r), ptr(i));
        assert_null(ring_pop(&r));
        ring_free(&r);
    }
}

static int readable(struct ring *r)
{
    struct pollfd p = { .fd = ring_fd(r), .events = POLLIN };
    return poll(&p, 1, 0);
}

static void only_a_push_to_a_sleeper_writes_to_the_eventfd(void **state)
{
    (void)state;
    struct ring r;
    assert_int_equal(ring_init(&r, 8), ST_OK);
    ring_push(&r, ptr(1));
    assert_int_equal(readable(&r), 0);
    assert_false(ring_arm(&r)); /* something is queued */
    assert_ptr_equal(ring_pop(&r), ptr(1));
    assert_true(ring_arm(&r));
    ring_push(&r, ptr(2));
    assert_int_equal(readable(&r), 1);
    ring_ack(&r);
    assert_int_equal(readable(&r), 0);
    ring_push(&r, ptr(3)); /* woken already: no second write */
    assert_int_equal(readable(&r), 0);
    ring_free(&r);
}

static void a_quiet_push_wakes_nobody_and_is_found(void **state)
{
    (void)state;
    struct ring   r;
    struct pollfd p = { .events = POLLIN };
    assert_int_equal(ring_init(&r, 4), ST_OK);
    p.fd = ring_fd(&r);
    assert_true(ring_arm(&r));
    assert_true(ring_push_quiet(&r, ptr(1)));
    assert_int_equal(poll(&p, 1, 0), 0);
    assert_true(ring_push(&r, ptr(2))); /* still asleep */
    assert_int_equal(poll(&p, 1, 0), 1);
    ring_ack(&r);
    assert_ptr_equal(ring_pop(&r), ptr(1));
    assert_ptr_equal(ring_pop(&r), ptr(2));
    assert_true(ring_push_quiet(&r, ptr(3)));
    assert_false(ring_arm(&r)); /* nobody goes to sleep over it */
    ring_free(&r);
}

static void who_pushes_alone_tells_of_all_at_once(void **state)
{
    (void)state;
    struct ring r;
    assert_int_equal(ring_init(&r, 4), ST_OK);
    assert_true(ring_arm(&r));
    for (uintptr_t i = 1; i <= 4; i++) assert_true(ring_push_alone(&r, ptr(i)));
    assert_false(ring_push_alone(&r, ptr(5))); /* full */
    assert_int_equal(readable(&r), 0);
    ring_tell(&r);
    assert_int_equal(readable(&r), 1);
    ring_ack(&r);
    ring_tell(&r); /* awake now */
    assert_int_equal(readable(&r), 0);
    for (uintptr_t i = 1; i <= 4; i++) assert_ptr_equal(ring_pop(&r), ptr(i));
    assert_null(ring_pop(&r));
    assert_true(ring_push_alone(&r, ptr(5)));
    assert_false(ring_arm(&r)); /* nobody goes to sleep over it */
    assert_ptr_equal(ring_pop(&r), ptr(5));
    ring_free(&r);
}

static void a_wake_without_a_message_ends_a_wait(void **state)
{
    (void)state;
    struct ring r;
    assert_int_equal(ring_init(&r, 8), ST_OK);
    ring_wake(&r);
    ring_wait(&r, -1); /* woken before it slept: were it lost, this would not end */
    assert_int_equal(readable(&r), 0);
    ring_free(&r);
}

static void a_wait_ends_at_its_timeout(void **state)
{
    (void)state;
    struct ring r;
    assert_int_equal(ring_init(&r, 8), ST_OK);
    uint64_t from = clock_us();
    ring_wait(&r, 20000);
    assert_true(clock_us() - from >= 19000);
    ring_wait(&r, 0);
    ring_free(&r);
}

enum { N_PRODUCER = 4, N_EACH = 5000 };
struct producer {
    struct ring *r;
    uintptr_t    id;
};

static void *produce(void *arg)
{
    struct producer *p = arg;
    for (uintptr_t i = 0; i < N_EACH; i++)
        while (!ring_push(p->r, ptr(p->id << 32 | (i + 1)))) sched_yield();
    return NULL;
}

static void *produce_alone(void *arg)
{
    struct ring *r = arg;
    for (uintptr_t i = 0; i < N_EACH; i++) {
        while (!ring_push_alone(r, ptr(i + 1))) {
            ring_tell(r);
            sched_yield();
        }
        if (i % 3 == 0 || i + 1 == N_EACH) ring_tell(r);
    }
    return NULL;
}

static void what_one_producer_pushes_alone_comes_in_order_and_no_wake_is_lost(void **state)
{
    (void)state;
    struct ring r;
    pthread_t   t;
    uintptr_t   n = 0;
    assert_int_equal(ring_init(&r, 4), ST_OK);
    assert_int_equal(pthread_create(&t, NULL, produce_alone, &r), 0);
    while (n < N_EACH) {
        void *m = ring_pop(&r);
        if (m) {
            assert_ptr_equal(m, ptr(++n));
            continue;
        }
        uint64_t from = clock_us();
        ring_wait(&r, 2 * PATIENCE_S * 1000000);
        assert_true(clock_us() - from < PATIENCE_S * 1000000u);
    }
    pthread_join(t, NULL);
    assert_null(ring_pop(&r));
    ring_free(&r);
}

/* A small ring, so that it is full and empty all the time and both sides sleep, spin and wake. */
static void four_producers_lose_nothing_and_each_stays_in_order(void **state)
{
    (void)state;
    struct ring     r;
    struct producer p[N_PRODUCER];
    pthread_t       t[N_PRODUCER];
    uintptr_t       last[N_PRODUCER] = { 0 }, n = 0;
    assert_int_equal(ring_init(&r, 16), ST_OK);
    for (uintptr_t i = 0; i < N_PRODUCER; i++) {
        p[i] = (struct producer){ &r, i };
        assert_int_equal(pthread_create(&t[i], NULL, produce, &p[i]), 0);
    }
    while (n < (uintptr_t)N_PRODUCER * N_EACH) {
        void *m = ring_pop(&r);
        if (!m) {
            uint64_t from = clock_us();
            ring_wait(&r, 2 * PATIENCE_S * 1000000);
            assert_true(clock_us() - from < PATIENCE_S * 1000000u); /* a lost wake-up would sit out the timeout */
            continue;
        }
        uintptr_t id = (uintptr_t)m >> 32, seq = (uintptr_t)m & 0xffffffffu;
        assert_int_equal(seq, last[id] + 1);
        last[id] = seq;
        n++;
    }
    for (int i = 0; i < N_PRODUCER; i++) pthread_join(t[i], NULL);
    assert_null(ring_pop(&r));
    ring_free(&r);
}

static void a_ring_needs_no_more_alignment_than_malloc_gives(void **state)
{
    (void)state;
    assert_true(_Alignof(struct ring) <= _Alignof(max_align_t));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pointers_come_out_in_the_order_they_went_in),
        cmocka_unit_test(a_ring_holds_at_least_the_number_that_was_asked_for_and_then_refuses),
        cmocka_unit_test(only_a_push_to_a_sleeper_writes_to_the_eventfd),
        cmocka_unit_test(a_quiet_push_wakes_nobody_and_is_found),
        cmocka_unit_test(who_pushes_alone_tells_of_all_at_once),
        cmocka_unit_test(a_wake_without_a_message_ends_a_wait),
        cmocka_unit_test(a_wait_ends_at_its_timeout),
        cmocka_unit_test(four_producers_lose_nothing_and_each_stays_in_order),
        cmocka_unit_test(what_one_producer_pushes_alone_comes_in_order_and_no_wake_is_lost),
        cmocka_unit_test(a_ring_needs_no_more_alignment_than_malloc_gives),
    };
    return cmocka_run_group_tests_name("base/ring", tests, NULL, NULL);
}
