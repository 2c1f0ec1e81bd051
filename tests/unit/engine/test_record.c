#include "engine/record.h"
#include "base/clock.h"
#include "test.h"
#include "unit/engine/small_world.h"
#include <time.h>

enum { SIZES = 7, RUNS_MAX = 64 };
static const uint32_t size[SIZES] = { 1, 2, 4, 8, 16, 32, 64 };
static struct {
    uint32_t rows[RUNS_MAX], n, us_a_row;
    uint32_t fails_at; /* this step and all after it; UINT32_MAX: none */
} seen;

static void submit(void *ctx, struct batch *b)
{
    (void)ctx;
    assert_true(seen.n < RUNS_MAX);
    assert_int_equal(b->n_seq, b->n_row);
    assert_int_equal(b->n_sample, b->n_row);
    for (uint32_t i = 0; i < b->n_page; i++) assert_true(b->page[i] < 64);
    seen.rows[seen.n++] = b->n_row;
}

static enum status wait_it(void *ctx, struct batch *b)
{
    (void)ctx;
    nanosleep(&(struct timespec){ .tv_nsec = (long)b->n_row * seen.us_a_row * 1000L }, NULL);
    for (uint32_t i = 0; i < b->n_sample; i++) b->out.id[i] = 5;
    return seen.n > seen.fails_at ? ST_DEVICE : ST_OK;
}

static void graphs(void *ctx, struct dev_graphs *out)
{
    (void)ctx;
    memcpy(out->rows, size, sizeof size);
    out->n = SIZES;
    out->n_recorded = seen.n / 2;
}

static void open_engine(struct world *w, const struct eng_cfg *cfg, uint32_t us_a_row)
{
    struct eng_runner r = { .submit = submit, .wait = wait_it, .graphs = graphs, .depth = 2 };
    memset(&seen, 0, sizeof seen);
    seen.us_a_row = us_a_row;
    seen.fails_at = UINT32_MAX;
    world_open(w, cfg, 64);
    eng_free(w->e);
    assert_int_equal(eng_create(cfg, &r, &w->e), ST_OK);
}

static struct eng_cfg many(void)
{
    struct eng_cfg cfg = config_of(200);
    cfg.seqs_max = 40;
    cfg.batch_tokens_max = 64;
    cfg.n_block = 8;
    return cfg;
}

static struct world w;

static void every_size_that_can_be_met_runs_twice(void **state)
{
    (void)state;
    static const uint32_t want[] = { 1, 1, 2, 2, 4, 4, 8, 8, 16, 16, 32, 32, 40, 40 };
    struct eng_cfg        cfg = many();
    open_engine(&w, &cfg, 0);
    record_steps(w.e, UINT64_MAX / 2);
    assert_int_equal(seen.n, sizeof want / sizeof *want);
    assert_memory_equal(seen.rows, want, sizeof want);
    world_close(&w);
    cfg.seqs_max = 3;
    open_engine(&w, &cfg, 0);
    record_steps(w.e, UINT64_MAX / 2);
    assert_int_equal(seen.n, 6);
    assert_int_equal(seen.rows[5], 3);
    world_close(&w);
}

static void a_slow_device_records_what_fits_into_the_time(void **state)
{
    (void)state;
    struct eng_cfg cfg = many();
    open_engine(&w, &cfg, 1000); /* 2 (1 + 2 + 4 + 8) = 30 ms, and 16 rows would take 32 more */
    record_steps(w.e, 50000);
    assert_in_range(seen.n, 2, 8);
    assert_int_equal(seen.n % 2, 0);
    world_close(&w);
}

static void a_device_that_is_lost_is_left_alone(void **state)
{
    (void)state;
    struct eng_cfg cfg = many();
    open_engine(&w, &cfg, 0);
    seen.fails_at = 4;
    record_steps(w.e, UINT64_MAX / 2);
    assert_int_equal(seen.n, 5);
    world_close(&w);
}

static void models_that_pool_record_nothing(void **state)
{
    (void)state;
    struct eng_cfg cfg = many();
    cfg.state_dim = 8;
    open_engine(&w, &cfg, 0);
    record_steps(w.e, UINT64_MAX / 2);
    assert_int_equal(seen.n, 0);
    world_close(&w);
}

int main(void)
{
    log_init(LOG_LEVEL_ERROR, 2, false);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_size_that_can_be_met_runs_twice),
        cmocka_unit_test(a_slow_device_records_what_fits_into_the_time),
        cmocka_unit_test(a_device_that_is_lost_is_left_alone),
        cmocka_unit_test(models_that_pool_record_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
