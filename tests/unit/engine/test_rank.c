/* The team with its inside open: what happens when a rank fails, and what an idle team costs. */
#include "engine/rank.c"
#include "test.h"
#include <time.h>

static const char            dir[] = TESTS_DATA "/golden/llama3";
static const struct source   src = { .dir = dir };
static struct model_spec     spec;
static struct rank_team     *team;
static struct batch          batch;
static struct dev_ops        ops[2];
static const struct dev_ops *real_ops;
static uint32_t              n_block;
static char                  err[512];

static enum status open_team(uint32_t n_rank)
{
    struct rank_cfg cfg = { .n_rank = n_rank,
                            .device = DEV_REF,
                            .n_thread = 2,
                            .load = { .weight_dtype = DT_COUNT,
                                      .kv_dtype = DT_COUNT,
                                      .batch_rows_max = 8,
                                      .logit_rows_max = 2,
                                      .n_block = 2,
                                      .block_tokens = 16 } };
    return rank_team_create(&spec, &src, &cfg, &n_block, &team, err, sizeof err);
}

static int setup(void **state)
{
    (void)state;
    struct batch_cfg bc = { 8, 2, 4, 4, 4, 4, 4 };
    log_init(LOG_LEVEL_ERROR, -1, false);
    return model_spec_load(&src, &spec, err, sizeof err) || batch_init(&batch, &bc);
}
static int teardown(void **state)
{
    (void)state;
    batch_free(&batch);
    model_spec_free(&spec);
    return 0;
}

/* one sequence of 4 rows, its last one sampled greedily */
static enum status step(void)
{
    batch_clear(&batch);
    batch.d.n_row = 4, batch.d.n_seq = 1, batch.row_start[1] = 4, batch.page_start[1] = 1, batch.page[0] = 1;
    for (uint32_t i = 0; i < 4; i++) batch.id[i] = 10 + i, batch.pos[i] = i, batch.row_seq[i] = 0;
    batch.sample[0] = (struct op_sample_row){ .top_p = 1, .repetition = 1 };
    batch.logit_row[0] = 3;
    batch.n_logit = batch.n_sample = 1;
    struct eng_runner r = rank_team_runner(team);
    return eng_run(&r, &batch);
}

static void ranks_give_one_answer_however_many_they_are(void **state)
{
    (void)state;
    uint32_t id = 0;
    for (uint32_t n = 1; n <= 4; n *= 2) {
        if (open_team(n)) fail_msg("%s", err);
        for (int i = 0; i < 3; i++) assert_int_equal(step(), ST_OK);
        if (n == 1) id = batch.out.id[0];
        assert_int_equal(batch.out.id[0], id);
        rank_team_free(team);
    }
}

static enum status lost_wait(struct device *d, const struct dev_step *s)
{
    (void)d, (void)s;
    return ST_DEVICE;
}
static void lost_broadcast(struct device *d, void *x, size_t bytes) { (void)d, (void)x, (void)bytes; }
static void lost_allreduce(struct device *d, void *x, size_t n) { (void)d, (void)x, (void)n; }

static void lost_allgather(struct device *d, float *out, const float *x, uint32_t m, uint32_t n_local)
{
    (void)d, (void)out, (void)x, (void)m, (void)n_local;
}

/* Rank 1 stops taking part: the others wait for it in a collective, and must come out. */
static void a_rank_that_fails_frees_the_others_and_ends_the_team(void **state)
{
    (void)state;
    if (open_team(2)) fail_msg("%s", err);
    assert_int_equal(step(), ST_OK);
    struct device *d = team->rank[1].dev;
    real_ops = d->ops;
    ops[0] = *real_ops;
    ops[0].step_wait = lost_wait, ops[0].allreduce = lost_allreduce, ops[0].allgather = lost_allgather, ops[0].broadcast = lost_broadcast;
    d->ops = &ops[0];
    assert_int_equal(step(), ST_DEVICE);
    d->ops = real_ops;
    assert_int_equal(step(), ST_DEVICE); /* for good */
    rank_team_free(team);
}

static void one_rank_that_fails_ends_the_team_too(void **state)
{
    (void)state;
    if (open_team(1)) fail_msg("%s", err);
    struct device *d = team->rank[0].dev;
    real_ops = d->ops;
    ops[1] = *real_ops;
    ops[1].step_wait = lost_wait;
    d->ops = &ops[1];
    assert_int_equal(step(), ST_DEVICE);
    d->ops = real_ops;
    assert_int_equal(step(), ST_DEVICE);
    rank_team_free(team);
}

static uint64_t cpu_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
}

static void an_idle_team_sleeps(void **state)
{
    (void)state;
    if (open_team(4)) fail_msg("%s", err);
    assert_int_equal(step(), ST_OK);
    nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL); /* those that had waited for the last one */
    uint64_t before = cpu_us();
    nanosleep(&(struct timespec){ .tv_nsec = 200000000 }, NULL);
    assert_true(cpu_us() - before < 20000);
    rank_team_free(team);
}

static void a_team_that_cannot_be_says_why(void **state)
{
    (void)state;
    assert_int_equal(open_team(3), ST_CONFIG);
    assert_non_null(strstr(err, "num_attention_heads"));
    assert_int_equal(open_team(1000), ST_CONFIG);
    assert_non_null(strstr(err, "at most 64"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_give_one_answer_however_many_they_are),
        cmocka_unit_test(a_rank_that_fails_frees_the_others_and_ends_the_team),
        cmocka_unit_test(one_rank_that_fails_ends_the_team_too),
        cmocka_unit_test(an_idle_team_sleeps),
        cmocka_unit_test(a_team_that_cannot_be_says_why),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
