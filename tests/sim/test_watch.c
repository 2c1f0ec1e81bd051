/* What watches the engine, as stories (story.h): NaN of a client and NaN of the device (rows H7), news of the driver
 * (H3, H4), a device that is slow (H6). */
#include "engine/probe.h"
#include "sim/story.h"

/* NaN from its token nan_at on (1: the first); 0: never */
static struct client *submitted(uint32_t kind, uint32_t n, uint32_t max_tokens, uint32_t nan_at)
{
    struct client *c = client(kind, n, 1, max_tokens);
    c->r.s.temperature = 0;
    if (nan_at) expect_nan(c, nan_at);
    assert_int_equal(world_submit(w, c), ST_OK);
    return c;
}

static void open_busy(void)
{
    struct eng_cfg cfg = cfg_small();
    cfg.queue_requests_max = 4096;
    open_world(cfg);
}

/* ---- NaN */

static struct probe *probe;

static void open_watched(void)
{
    static const uint32_t plain[] = { 5, 6, 7 };
    open_busy();
    assert_int_equal(probe_create(w->e, plain, 3, &probe), ST_OK);
    log_init(LOG_LEVEL_ERROR, -1, false);
}

static void close_watched(void)
{
    eng_stop(w->e);
    probe_free(probe);
    close_world();
    log_init(LOG_LEVEL_ERROR, 2, false);
}

static uint64_t n_nan(void)
{
    struct eng_stats s;
    eng_stats(w->e, &s);
    return s.n_nan;
}

static void H7_no_number_of_bad_requests_ends_the_server(void **state)
{
    (void)state;
    uint32_t n_good = 0, n_bad = 0;
    open_watched();
    for (uint32_t i = 0; i < 3000; i++) { /* three seconds: all that runs is NaN most of the time, step after step */
        if (n_all < 2500 && i % 100 == 50) {
            submitted(10000 + i, 12, 6, 0);
            n_good++;
        }
        for (uint32_t k = 0; k < 2 && n_all < 2400; k++) {
            submitted(i % 7, 5 + i % 20, 6, 1);
            n_bad++;
        }
        step();
        assert_int_not_equal(probe_turn(probe, w->now_us), PROBE_SICK);
    }
    assert_true(n_nan() == n_bad && n_bad > 2000);
    for (uint32_t i = 0; i < 10; i++) {
        step();
        probe_turn(probe, w->now_us);
    }
    assert_true(eng_alive(w->e, w->now_us));
    finish();
    struct eng_stats s;
    eng_stats(w->e, &s);
    assert_int_equal(s.n_finished[ENG_ERROR], n_bad);
    assert_in_range(s.n_finished[ENG_LENGTH] - n_good, 1, 4); /* the probes: one a second */
    close_watched();
}

static void H7_a_device_that_computes_nan_is_given_up(void **state)
{
    (void)state;
    uint32_t out[8];
    open_watched();
    for (uint32_t i = 0; i < 8; i++) submitted(i, 20, 60, 0);
    for (uint32_t i = 0; i < 12; i++) {
        step();
        assert_int_equal(probe_turn(probe, w->now_us), PROBE_WELL);
    }
    w->fake.sick = true;
    uint32_t n_step = 0;
    for (uint32_t i = 0; i < 8; i++) {
        out[i] = n_out(all[i], 0);
        all[i]->expect_nan = true;
    }
    while (probe_turn(probe, w->now_us) != PROBE_SICK) {
        step();
        assert_true(++n_step < 30);
    }
    for (uint32_t i = 0; i < 8; i++) {
        assert_int_equal(ended(all[i], 0), ENG_ERROR);
        assert_in_range(n_out(all[i], 0), out[i], out[i] + depth - 1); /* what was in flight; no garbage after it */
    }
    w->fake.sick = false; /* once condemned it stays so */
    struct client *late = submitted(50, 20, 6, 0);
    late->expect_nan = true;
    assert_int_equal(probe_turn(probe, w->now_us), PROBE_SICK);
    eng_condemn(w->e, "a plain prompt gives NaN", ST_DEVICE);
    step();
    assert_int_equal(ended(late, 0), ENG_ERROR);
    assert_int_equal(late->r.status, ST_DEVICE);
    assert_false(eng_alive(w->e, w->now_us));
    assert_int_equal(eng_submit(w->e, &late->r), ST_DEVICE);
    finish();
    close_watched();
}

static void H7_a_fault_that_passes_is_no_reason_to_end(void **state)
{
    (void)state;
    open_watched();
    for (uint32_t round = 0; round < 6; round++) { /* the probe is NaN twice, then it is not */
        struct client *c = submitted(round, 20, 6, 0);
        c->expect_nan = true;
        w->fake.sick = true;
        for (uint32_t asked = 0; asked < 3;) {
            uint64_t before = n_nan();
            step();
            asked += n_nan() > before; /* the request, and two probes */
            w->fake.sick = asked < 3;
            if (w->fake.sick) assert_int_not_equal(probe_turn(probe, w->now_us), PROBE_SICK);
        }
        for (uint32_t i = 0; i < 1200; i++) {
            step();
            assert_int_not_equal(probe_turn(probe, w->now_us), PROBE_SICK);
        }
    }
    assert_int_equal(n_nan(), 18);
    assert_true(eng_alive(w->e, w->now_us));
    finish();
    close_watched();
}

/* ---- news of the driver: a program on the GPU failed */

/* An idle engine runs the probe's steps until it has its answer or is dead. */
static void asked(void)
{
    probe_ask(probe);
    w->now_us += 2 * PROBE_EVERY_US;
    assert_int_equal(probe_turn(probe, w->now_us), PROBE_ASKS);
    for (uint32_t i = 0; i < 20; i++) {
        step();
        (void)probe_turn(probe, w->now_us);
    }
}

static void H3_news_of_a_failed_program_costs_one_prompt_unless_it_was_this_one(void **state)
{
    (void)state;
    struct eng_stats before, after;
    open_watched();
    eng_stats(w->e, &before);
    for (uint32_t i = 0; i < 3; i++) {
        asked();
        assert_true(eng_alive(w->e, w->now_us));
    }
    eng_stats(w->e, &after);
    assert_int_equal(after.n_finished[ENG_LENGTH] - before.n_finished[ENG_LENGTH], 3);
    assert_int_equal(probe_turn(probe, w->now_us + 2 * PROBE_EVERY_US), PROBE_WELL); /* once for each piece of news */
    w->fake.fail_at = 1; /* from now on every step says that the device is lost */
    asked();
    assert_false(eng_alive(w->e, w->now_us));
    close_watched();
}

static void H4_a_condemned_engine_is_dead_at_once(void **state)
{
    (void)state;
    struct eng_stats s;
    open_watched();
    struct client *c = submitted(1, 20, 60, 0);
    for (uint32_t i = 0; i < 4; i++) step();
    c->expect_nan = true; /* its end will be an error */
    eng_condemn(w->e, "the GPU fell off the bus", ST_BROKEN);
    assert_false(eng_alive(w->e, w->now_us)); /* though its thread has had no turn yet, and may never have one */
    eng_stats(w->e, &s);
    assert_true(s.dead && s.broken);
    assert_int_equal(eng_submit(w->e, &c->r), ST_DEVICE);
    step();
    assert_int_equal(ended(c, 0), ENG_ERROR);
    eng_condemn(w->e, "and more", ST_DEVICE); /* the machine stays at fault */
    eng_stats(w->e, &s);
    assert_true(s.dead && s.broken);
    finish();
    close_watched();
}

/* ---- slow */

static uint64_t slow_us, slow_now_us;
static void     slow_step(void) { slow_now_us += slow_us; }
static uint64_t slow_clock(void) { return slow_now_us; }

static void H6_a_device_five_times_slower_is_alive_and_says_so(void **state)
{
    (void)state;
    if (depth > 1 && !lazy) return; /* there a step takes no time between its submit and its end */
    open_busy();
    w->e->clock = slow_clock;
    w->fake.delay = slow_step;
    slow_now_us = w->now_us;
    for (uint32_t i = 0; i < 8; i++) submitted(i, 1 + i, 240, 0);
    struct eng_stats s;
    for (uint32_t i = 0; i < 200; i++) {
        slow_us = i < 160 ? 2000000 : 10000000;
        w->now_us = slow_now_us;
        world_step(w);
        assert_true(eng_alive(w->e, slow_now_us + slow_us)); /* at the worst moment: just before the end of the next */
        eng_stats(w->e, &s);
        if (i == 159) assert_true(s.step_slow > 0.99 && s.step_slow < 1.05);
    }
    assert_true(s.step_slow > 4.7 && s.step_slow < 5.01);
    assert_in_range(s.n_step - s.step_times[13] - s.step_times[15], 0,
                    depth); /* all of them: up to 2.5 s, up to 10 s */
    w->fake.delay = NULL;
    while (w->n_open) {
        w->now_us = ++slow_now_us;
        world_step(w);
    }
    finish();
    close_world();
}

int main(void)
{
    log_init(LOG_LEVEL_ERROR, 2, false);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(H7_no_number_of_bad_requests_ends_the_server),
        cmocka_unit_test(H7_a_device_that_computes_nan_is_given_up),
        cmocka_unit_test(H7_a_fault_that_passes_is_no_reason_to_end),
        cmocka_unit_test(H3_news_of_a_failed_program_costs_one_prompt_unless_it_was_this_one),
        cmocka_unit_test(H4_a_condemned_engine_is_dead_at_once),
        cmocka_unit_test(H6_a_device_five_times_slower_is_alive_and_says_so),
    };
    int bad = 0;
    for (int i = 0; i < STORY_WAYS; i++) bad += cmocka_run_group_tests_name(story_way(i), tests, NULL, NULL);
    return bad;
}
