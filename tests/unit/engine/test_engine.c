#include "test.h"
#include "unit/engine/small_world.h"
#include <math.h>

static int setup(void **state)
{
    static struct world w;
    struct eng_cfg      cfg = config_of(200);
    world_open(&w, &cfg, 256);
    *state = &w;
    return w.e ? 0 : -1;
}

static int teardown(void **state)
{
    world_close(*state);
    return 0;
}

static void an_impossible_request_is_refused_before_it_is_queued(void **state)
{
    struct world      *w = *state;
    struct client     *c = client(w, 8, 4);
    static uint32_t    bad_id[] = { 200 };
    struct eng_bias    bad_bias = { 0, NAN };
    struct eng_request ok = c->r;
#define REFUSED(change) (c->r = ok, change, assert_int_equal(eng_submit(w->e, &c->r), ST_INVALID))
    REFUSED(c->r.n_prompt = 0);
    REFUSED((c->r.prompt = bad_id, c->r.n_prompt = 1));
    REFUSED(c->r.n_choice = 0);
    REFUSED(c->r.s.max_tokens = 0);
    REFUSED(c->r.outbox = NULL);
    REFUSED(c->r.s.temperature = NAN);
    REFUSED(c->r.s.temperature = -1);
    REFUSED(c->r.s.repetition = INFINITY);
    REFUSED(c->r.s.n_top = ENG_TOP_MAX + 1);
    REFUSED((c->r.s.allowed_id = bad_id, c->r.s.n_allowed = 1));
    REFUSED((c->r.s.bias = &bad_bias, c->r.s.n_bias = 1));
    REFUSED((c->r.s.prompt_logprobs = true, c->r.prompt_logprob = NULL));
    c->r = ok;
    c->r.n_choice = 10000;
    assert_int_equal(eng_submit(w->e, &c->r), ST_TOO_LARGE);
    assert_true(eng_idle(w->e));
    c->r = ok;
    assert_int_equal(world_submit(w, c), ST_OK);
    run(w);
    client_free(c);
}

static void the_queue_is_bounded_in_requests(void **state)
{
    struct world  *w = *state;
    struct client *c[10];
    for (uint32_t i = 0; i < 10; i++) {
        c[i] = client(w, 2, 2);
        assert_int_equal(world_submit(w, c[i]), i < 8 ? ST_OK : ST_AGAIN);
    }
    run(w);
    assert_int_equal(world_submit(w, c[9]), ST_OK); /* there is room again */
    run(w);
    for (uint32_t i = 0; i < 10; i++) client_free(c[i]);
}

static void the_queue_is_bounded_in_tokens_but_takes_any_one_prompt(void **state)
{
    struct world  *w = *state;
    struct client *c[4];
    w->e->cfg.queue_tokens_max = 50;
    for (uint32_t i = 0; i < 4; i++) c[i] = client(w, i ? 20 : 60, 2);
    assert_int_equal(world_submit(w, c[0]), ST_OK); /* 60 > 50, but nothing else waits */
    assert_int_equal(world_submit(w, c[1]), ST_AGAIN);
    w->now_us += 1000;
    world_step(w); /* it runs now and waits no more */
    assert_int_equal(world_submit(w, c[1]), ST_OK);
    assert_int_equal(world_submit(w, c[2]), ST_OK);
    assert_int_equal(world_submit(w, c[3]), ST_AGAIN);
    run(w);
    for (uint32_t i = 0; i < 4; i++) client_free(c[i]);
}

static void stats_count_every_event(void **state)
{
    struct world    *w = *state;
    struct client   *a = client(w, 9, 5), *b = client_new(w, a->prompt, 9, 1, 5);
    struct eng_stats s;
    b->r.s.ignore_eos = true;
    world_submit(w, a);
    eng_stats(w->e, &s);
    assert_int_equal(s.n_waiting, 1);
    assert_int_equal(s.waiting_tokens, 9);
    assert_true(s.busy);
    world_step(w);
    eng_stats(w->e, &s);
    assert_int_equal(s.n_running, 1);
    assert_int_equal(s.n_waiting + s.waiting_tokens, 0);
    assert_int_equal(s.kv_used, 3);
    run(w);
    world_submit(w, b);
    run(w);
    eng_stats(w->e, &s);
    assert_int_equal(s.n_prompt_tokens, 18);
    assert_int_equal(s.n_cached_tokens, b->r.n_cached);
    assert_int_equal(s.n_cached_tokens + s.n_query_tokens - 18, s.n_hit_tokens);
    assert_int_equal(s.n_generated, 10);
    assert_int_equal(s.n_finished[ENG_LENGTH], 2);
    assert_int_equal(s.kv_blocks, 64);
    assert_false(s.busy);
    client_free(a);
    client_free(b);
}

/* All choices of a refused request end without a token, and nothing of it was computed. */
static void a_request_that_asks_for_more_cache_than_there_is_ends_at_once(void **state)
{
    struct world  *w = *state;
    struct client *a = client(w, 33, 4), *b = client_new(w, a->prompt, 33, 3, 4),
                  *c = client_new(w, a->prompt, 33, 3, 4);
    struct eng_stats s;
    b->r.hit_share = c->r.hit_share = 0.9;
    b->r.s.ignore_eos = c->r.s.ignore_eos = true;
    world_submit(w, b);
    run(w);
    eng_stats(w->e, &s);
    assert_int_equal(s.n_finished[ENG_UNCACHED], 3);
    assert_int_equal(s.n_prompt_tokens, 0);
    for (uint32_t i = 0; i < 3; i++) assert_int_equal(atomic_load(&b->choice[i].finish), ENG_UNCACHED);
    world_submit(w, a);
    while (w->n_open) world_step(w); /* run() would empty the cache */
    world_submit(w, c);
    run(w);
    for (uint32_t i = 0; i < 3; i++) assert_int_equal(atomic_load(&c->choice[i].finish), ENG_LENGTH);
    assert_in_range(c->r.n_cached, 30, 32);
    client_free(a);
    client_free(b);
    client_free(c);
}

static void at_most_one_notification_is_on_its_way(void **state)
{
    struct world  *w = *state;
    struct client *c = client(w, 4, 6);
    world_submit(w, c);
    w->reads = false;
    for (uint32_t i = 0; i < 3; i++) world_step(w);
    void *msg = ring_pop(&w->outbox);
    assert_ptr_equal(msg, &c->r);
    assert_int_equal(atomic_load(&c->choice[0].n_out), 3);
    assert_null(ring_pop(&w->outbox));
    atomic_store(&c->r.notified, false);
    world_step(w);
    assert_ptr_equal(ring_pop(&w->outbox), &c->r);
    for (uint32_t i = 0; i < 3; i++) world_step(w);
    msg = ring_pop(&w->outbox);
    assert_true(eng_msg_is_final(msg));
    assert_null(ring_pop(&w->outbox));
    w->n_open = 0;
    run(w);
    client_free(c);
}

static void times_are_those_of_the_steps(void **state)
{
    struct world  *w = *state;
    struct client *c = client(w, 40, 3); /* two chunks */
    world_submit(w, c);
    for (uint32_t i = 0; i < 4; i++) {
        w->now_us = 5000000 + i * 100;
        world_step(w);
    }
    assert_int_equal(c->n_final, 1);
    assert_int_equal(c->r.t_submit_us, 5000000);
    assert_int_equal(c->r.t_sched_us, 5000000);
    assert_int_equal(c->r.t_first_us, 5000100);
    assert_int_equal(c->r.t_last_us, 5000300);
    run(w);
    client_free(c);
}

static void an_engine_that_makes_no_progress_is_not_alive(void **state)
{
    struct world  *w = *state;
    struct client *c = client(w, 4, 50);
    assert_true(eng_alive(w->e, 1000000000000)); /* nothing to do since ever */
    world_submit(w, c);
    w->now_us = 7000000;
    world_step(w);
    assert_true(eng_alive(w->e, w->now_us + 9000000)); /* no step was measured yet: ten times a second */
    assert_false(eng_alive(w->e, w->now_us + 11000000));
    atomic_store(&w->e->a.step_us_ewma, 100);
    assert_true(eng_alive(w->e, w->now_us + 4900000));
    assert_false(eng_alive(w->e, w->now_us + 5100000));
    atomic_store(&w->e->a.step_us_ewma, 3000000);
    assert_true(eng_alive(w->e, w->now_us + 29000000));
    assert_false(eng_alive(w->e, w->now_us + 31000000));
    run(w);
    client_free(c);
}

static void the_same_seed_gives_the_same_text_alone_and_in_company(void **state)
{
    struct world  *w = *state;
    struct client *c[8];
    for (uint32_t i = 0; i < 8; i++) {
        c[i] = client(w, 10, 12);
        c[i]->r.s.temperature = 1;
        c[i]->r.s.seed = 5;
        memcpy(c[i]->prompt, c[0]->prompt, 10 * sizeof(uint32_t));
    }
    world_submit(w, c[0]);
    run(w);
    for (uint32_t i = 1; i < 8; i++) world_submit(w, c[i]);
    run(w);
    for (uint32_t i = 1; i < 8; i++) assert_memory_equal(c[i]->choice[0].id, c[0]->choice[0].id, 12 * sizeof(uint32_t));
    for (uint32_t i = 0; i < 8; i++) client_free(c[i]);
}

static void more_choices_than_may_run_are_run_in_rounds(void **state)
{
    struct world  *w = *state;
    uint32_t       prompt[10] = { 5, 6, 7, 8, 9, 10, 11, 12, 13, 14 };
    struct client *c = client_new(w, prompt, 10, 11, 6); /* four may run */
    c->r.s.temperature = 1;
    c->r.s.seed = 3;
    assert_int_equal(world_submit(w, c), ST_OK);
    run(w);
    world_verify(w, c);
    assert_string_equal(w->fault, "");
    client_free(c);
}

static void windows_bound_the_chunks_of_prompts_and_the_pool(void **state)
{
    (void)state;
    struct eng_cfg c = { .batch_tokens_max = 8192, .block_tokens = 16 };
    assert_int_equal(eng_chunk(&c), 8192);
    c.n_window = 1;
    assert_int_equal(eng_chunk(&c), 2048);
    assert_int_equal(eng_window_ahead(&c), ENG_DEPTH_MAX * 2048);
    assert_int_equal(eng_windows_min(&c, 1024), (1024 + 512) / 16 + 2 + 2);
    c.prefill_chunk_max = 4096;
    assert_int_equal(eng_chunk(&c), 4096);
    c.prefill_chunk_max = 64;
    assert_int_equal(eng_chunk(&c), 64);
    assert_int_equal(eng_windows_min(&c, 1024), (1024 + 2 * 64) / 16 + 2 + 2);
}

static void nonsense_configurations_are_refused(void **state)
{
    (void)state;
    struct eng_runner none = { 0 };
    struct engine    *e;
    struct eng_cfg    c;
    c = config_of(200);
    c.seqs_max = 0;
    assert_int_equal(eng_create(&c, &none, &e), ST_CONFIG);
    c = config_of(200);
    c.batch_tokens_max = 0;
    assert_int_equal(eng_create(&c, &none, &e), ST_CONFIG);
    struct eng_runner deep = { .depth = ENG_DEPTH_MAX + 1 };
    c = config_of(200);
    assert_int_equal(eng_create(&c, &deep, &e), ST_CONFIG);
    c = config_of(200);
    c.n_block = 0;
    assert_int_equal(eng_create(&c, &none, &e), ST_CONFIG);
    c = config_of(200);
    c.window = 100;
    c.n_window = kv_window_least(c.window, c.block_tokens) - 1;
    assert_int_equal(eng_create(&c, &none, &e), ST_CONFIG);
    c = config_of(200);
    c.queue_requests_max = UINT32_MAX;
    assert_int_equal(eng_create(&c, &none, &e), ST_CONFIG);
    c = config_of(200);
    c.context_max = UINT32_MAX;
    c.seqs_max = 1u << 20;
    assert_int_equal(eng_create(&c, &none, &e), ST_CONFIG);
    c = config_of(200);
    c.block_tokens = 1000;
    assert_int_not_equal(eng_create(&c, &none, &e), ST_OK);
}

static void the_time_of_a_step_counts_from_when_it_could_begin(void **state)
{
    (void)state;
    struct eng_cfg      cfg = config_of(200);
    static struct world w;
    world_open_deep(&w, &cfg, 256, 2, false);
    struct client *c = client(&w, 4, 40);
    world_submit(&w, c);
    for (uint32_t i = 0; i < 30; i++) {
        w.now_us +=
            300000; /* each step ends when the next but one is told, and the one behind it could not begin before */
        world_step(&w);
        assert_int_equal(w.e->n_flight, 1);
    }
    struct eng_stats s;
    eng_stats(w.e, &s);
    assert_in_range(s.step_us_ewma, 290000, 300000); /* not twice that, although two are under way */
    assert_true(eng_alive(w.e, w.now_us + 4900000));
    assert_false(eng_alive(w.e, w.now_us + 5100000));
    assert_int_equal(s.n_step, 29);
    assert_int_equal(s.n_generated, 29);
    run(&w);
    eng_stats(w.e, &s);
    assert_int_equal(s.n_row, 4 + 39); /* a sequence that ends by count does not sit once more */
    client_free(c);
    world_close(&w);
}

/* A device that only counts what it is given, and what the engine took from the heap: the linker leads here
 * (CMakeLists.txt). */
static struct {
    uint32_t n_step, n_row_max, n_page_max, n_sample_max, n_copy;
} given;
static uint64_t n_alloc;

void *__real_malloc(size_t n), *__real_calloc(size_t n, size_t of), *__real_realloc(void *p, size_t n),
    *__real_aligned_alloc(size_t align, size_t n);
void *__wrap_malloc(size_t n), *__wrap_calloc(size_t n, size_t of), *__wrap_realloc(void *p, size_t n),
    *__wrap_aligned_alloc(size_t align, size_t n);

void *__wrap_malloc(size_t n)
{
    n_alloc++;
    return __real_malloc(n);
}
void *__wrap_calloc(size_t n, size_t of)
{
    n_alloc++;
    return __real_calloc(n, of);
}
void *__wrap_realloc(void *p, size_t n)
{
    n_alloc++;
    return __real_realloc(p, n);
}
void *__wrap_aligned_alloc(size_t align, size_t n)
{
    n_alloc++;
    return __real_aligned_alloc(align, n);
}

static void count_max(uint32_t *max, uint32_t n)
{
    if (n > *max) *max = n;
}
static void count_submit(void *ctx, struct batch *b)
{
    (void)ctx;
    given.n_step++;
    given.n_copy += b->n_copy;
    count_max(&given.n_row_max, b->n_row);
    count_max(&given.n_sample_max, b->n_sample);
    count_max(&given.n_page_max, b->page_start[b->n_seq]);
}
static enum status no_wait(void *ctx, struct batch *b)
{
    (void)ctx;
    for (uint32_t i = 0; i < b->n_sample; i++) b->out.id[i] = 5 + i % 100;
    return ST_OK;
}

/* What it takes is bench_engine's figure (us/req); here is what it may touch: a row and a sample for each that runs, no
 * more pages than they have, no plan made twice, nothing from the heap, and one message for each. */
static void a_step_touches_each_running_sequence_once_and_allocates_nothing(void **state)
{
    (void)state;
    enum { SEQS = 256, PROMPT = 512, STEPS = 200, BLOCK = 16 };
    static struct world w;
    struct eng_cfg      cfg = config_of(200);
    cfg.seqs_max = SEQS;
    cfg.batch_tokens_max = 8192;
    cfg.queue_requests_max = SEQS;
    cfg.queue_tokens_max = 0;
    cfg.context_max = 1024;
    cfg.block_tokens = BLOCK;
    cfg.n_block = SEQS * 64;
    for (uint32_t depth = 1; depth <= 2; depth++) {
        world_open(&w, &cfg, 1024);
        eng_free(w.e);
        struct eng_runner counting = { .submit = count_submit, .wait = no_wait, .depth = depth };
        n_alloc = 0;
        assert_int_equal(eng_create(&cfg, &counting, &w.e), ST_OK);
        assert_true(n_alloc > 10); /* it does take, here */
        struct client *c[SEQS];
        uint32_t       prompt[PROMPT];
        bool           did_work;
        for (uint32_t i = 0; i < SEQS; i++) {
            for (uint32_t k = 0; k < PROMPT; k++) prompt[k] = (i * 7919 + k * 31) % 200;
            c[i] = client_new(&w, prompt, PROMPT, 1, 400);
            c[i]->r.s.ignore_eos = true;
            assert_int_equal(world_submit(&w, c[i]), ST_OK);
        }
        while (w.e->sched.n_plan_one < SEQS) {
            eng_step(w.e, w.now_us += 1000, &did_work);
            world_read(&w);
        }
        struct eng_stats before, after;
        uint64_t         n_plan = w.e->n_plan, allocs = n_alloc;
        eng_stats(w.e, &before);
        memset(&given, 0, sizeof given);
        for (uint32_t i = 0; i < STEPS; i++) {
            eng_step(w.e, w.now_us += 1000, &did_work);
            assert_int_equal(w.e->sched.n_plan, SEQS);
            assert_int_equal(w.e->sched.n_plan_one, SEQS);
            uint32_t n_message = 0;
            for (uint32_t k = 0; k < SEQS; k++) n_message += atomic_load(&c[k]->r.notified);
            assert_int_equal(n_message, SEQS);
            world_read(&w);
        }
        assert_int_equal(n_alloc, allocs);
        assert_int_equal(given.n_step, STEPS);
        assert_int_equal(w.e->n_plan - n_plan, STEPS);
        assert_int_equal(given.n_row_max, SEQS);
        assert_int_equal(given.n_sample_max, SEQS);
        assert_int_equal(given.n_copy, 0);
        assert_true(given.n_page_max <= SEQS * ((PROMPT + 400 + BLOCK - 1) / BLOCK));
        eng_stats(w.e, &after);
        assert_int_equal(after.n_generated - before.n_generated, STEPS * SEQS);
        assert_int_equal(after.n_row - before.n_row, STEPS * SEQS);
        world_close(&w);
        for (uint32_t i = 0; i < SEQS; i++) client_free(c[i]);
    }
}

int main(void)
{
    log_init(LOG_LEVEL_ERROR, 2, false);
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(an_impossible_request_is_refused_before_it_is_queued),
        TEST(the_queue_is_bounded_in_requests),
        TEST(the_queue_is_bounded_in_tokens_but_takes_any_one_prompt),
        TEST(stats_count_every_event),
        TEST(a_request_that_asks_for_more_cache_than_there_is_ends_at_once),
        TEST(at_most_one_notification_is_on_its_way),
        TEST(times_are_those_of_the_steps),
        TEST(an_engine_that_makes_no_progress_is_not_alive),
        TEST(the_same_seed_gives_the_same_text_alone_and_in_company),
        TEST(more_choices_than_may_run_are_run_in_rounds),
        TEST(windows_bound_the_chunks_of_prompts_and_the_pool),
        TEST(nonsense_configurations_are_refused),
        TEST(the_time_of_a_step_counts_from_when_it_could_begin),
        TEST(a_step_touches_each_running_sequence_once_and_allocates_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
