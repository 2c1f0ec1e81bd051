/* The team with its inside open: what happens when a rank fails, and what an idle team costs. */
#include "engine/rank.c"
#include "test.h"
#include "tests_root.h"
#include <time.h>

static const char            dir[] = TESTS_DATA "/golden/llama3";
static const struct source   src = { .dir = dir };
static struct model_spec     spec;
static struct rank_team     *team;
static struct batch          batch, other;
static struct dev_ops        ops[2];
static const struct dev_ops *real_ops;
static uint32_t              n_block;
static char                  err[512];

static enum status open_deep(uint32_t n_rank, uint32_t depth)
{
    struct rank_cfg cfg = { .n_rank = n_rank,
                            .device = DEV_REF,
                            .n_thread = 2,
                            .depth = depth,
                            .load = { .weight_dtype = DT_COUNT,
                                      .kv_dtype = DT_COUNT,
                                      .batch_rows_max = 8,
                                      .logit_rows_max = 2,
                                      .n_block = 2,
                                      .block_tokens = 16 } };
    return rank_team_create(&spec, &src, &cfg, &n_block, &team, err, sizeof err);
}

static enum status open_team(uint32_t n_rank) { return open_deep(n_rank, 1); }

static int setup(void **state)
{
    (void)state;
    struct batch_cfg bc = { .rows_max = 8,
                            .seqs_max = 2,
                            .pages_max = 4,
                            .hist_max = 4,
                            .ban_max = 4,
                            .allow_max = 4,
                            .bias_max = 4,
                            .mask_max = 8 };
    log_init(LOG_LEVEL_ERROR, -1, false);
    return model_spec_load(&src, &spec, err, sizeof err) || batch_init(&batch, &bc) || batch_init(&other, &bc);
}
static int teardown(void **state)
{
    (void)state;
    batch_free(&batch);
    batch_free(&other);
    model_spec_free(&spec);
    return 0;
}

/* rows pos .. of one sequence, its last one sampled greedily */
static void fill(struct batch *b, const uint32_t *id, uint32_t n, uint32_t pos)
{
    static const uint32_t page[1] = { 1 };
    batch_clear(b);
    batch_add(b, id, n, pos, page, 1);
    *batch_add_sample(b, n - 1) = (struct op_sample_row){ .top_p = 1, .repetition = 1 };
    b->out.id[0] = 12345;
}

static const uint32_t prompt[4] = { 10, 11, 12, 13 };

static enum status step(void)
{
    fill(&batch, prompt, 4, 0);
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

/* What the row would draw if its entry were read too early. */
static void mask_all_but_one(struct batch *b)
{
    memset(b->mask, 0, b->max.mask_max * sizeof *b->mask);
    b->mask[0] = 1;
    b->n_mask = b->sample[0].n_mask = b->max.mask_max;
}

static void draw_late(const struct eng_runner *r, struct batch *b)
{
    assert_non_null(r->draw);
    b->sample[0].n_mask = 0;
    r->draw(r->ctx, b);
}

/* The id that the first step draws is a row of the second before anyone has seen it. */
static void a_step_is_submitted_before_the_one_before_is_waited_for(void **state)
{
    (void)state;
    uint32_t id[6], pending = UINT32_MAX;
    for (uint32_t n_rank = 1; n_rank <= 2; n_rank++) {
        /* one by one; two in flight; the same on devices that work by themselves; and each of these with late draws */
        for (uint32_t i_way = 0; i_way < 6; i_way++) {
            uint32_t way = i_way % 3;
            bool     late = i_way >= 3;
            if (open_deep(n_rank, way ? 2 : 1)) fail_msg("%s", err);
            if (way == 2) team->async = true; /* the host's devices do not mind that submit and wait are two calls */
            struct eng_runner r = rank_team_runner(team);
            struct batch     *b[2] = { &batch, &other };
            assert_int_equal(r.depth, way ? 2 : 1);
            uint32_t got[6];
            for (uint32_t i = 0; i < 6; i++) {
                bool            known = way == 0 && i;
                const uint32_t *next = known ? &got[i - 1] : &pending;
                fill(b[i % 2], i ? next : prompt, i ? 1 : 4, i ? 3 + i : 0);
                if (i && !known) batch_patch_id(b[i % 2], 0, 0);
                b[i % 2]->late = late;
                if (late) mask_all_but_one(b[i % 2]);
                r.submit(r.ctx, b[i % 2]);
                if (late && (!way || !i)) draw_late(&r, b[i % 2]);
                if (way && !i) continue;
                uint32_t last = way ? i - 1 : i;
                assert_int_equal(r.wait(r.ctx, b[last % 2]), ST_OK);
                got[last] = b[last % 2]->out.id[0];
                if (late && way) draw_late(&r, b[i % 2]); /* as the engine does, which knows the token before then */
            }
            if (way) {
                assert_int_equal(r.wait(r.ctx, b[1]), ST_OK);
                got[5] = b[1]->out.id[0];
            }
            if (n_rank == 1 && !i_way) memcpy(id, got, sizeof id);
            assert_memory_equal(id, got, sizeof id);
            rank_team_free(team);
        }
    }
}

static enum status lost_wait(struct device *d, const struct dev_step *s)
{
    (void)d;
    (void)s;
    return ST_DEVICE;
}
static bool lost_end(struct device *d, const struct dev_step *s, const struct dev_step *on)
{
    (void)d;
    (void)s;
    (void)on;
    return true;
}
static void lost_broadcast(struct device *d, void *x, size_t bytes)
{
    (void)d;
    (void)x;
    (void)bytes;
}
static void lost_allreduce(struct device *d, void *x, size_t n)
{
    (void)d;
    (void)x;
    (void)n;
}

static void lost_allgather(struct device *d, float *out, const float *x, uint32_t m, uint32_t n_local)
{
    (void)d;
    (void)out;
    (void)x;
    (void)m;
    (void)n_local;
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
    ops[0].step_wait = lost_wait;
    ops[0].step_end = lost_end;
    ops[0].allreduce = lost_allreduce;
    ops[0].allgather = lost_allgather;
    ops[0].broadcast = lost_broadcast;
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

static void a_rank_that_fails_with_two_in_flight_ends_both(void **state)
{
    (void)state;
    for (uint32_t async = 0; async < 2; async++) {
        if (open_deep(2, 2)) fail_msg("%s", err);
        team->async = async;
        struct device *d = team->rank[1].dev;
        real_ops = d->ops;
        ops[0] = *real_ops;
        ops[0].step_wait = lost_wait;
        ops[0].step_end = lost_end;
        ops[0].allreduce = lost_allreduce;
        ops[0].allgather = lost_allgather;
        ops[0].broadcast = lost_broadcast;
        d->ops = &ops[0];
        struct eng_runner r = rank_team_runner(team);
        fill(&batch, prompt, 4, 0);
        fill(&other, prompt, 4, 0);
        r.submit(r.ctx, &batch);
        r.submit(r.ctx, &other);
        assert_int_equal(r.wait(r.ctx, &batch), ST_DEVICE);
        assert_int_equal(r.wait(r.ctx, &other), ST_DEVICE);
        d->ops = real_ops;
        assert_int_equal(step(), ST_DEVICE); /* for good */
        rank_team_free(team);
    }
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
    uint64_t used = UINT64_MAX; /* in 200 ms; what had waited for the last one goes to sleep when the machine lets it */
    for (uint32_t i = 0; i < PATIENCE_S * 5 && used >= 20000; i++) {
        uint64_t before = cpu_us();
        nanosleep(&(struct timespec){ .tv_nsec = 200000000 }, NULL);
        used = cpu_us() - before;
    }
    assert_true(used < 20000);
    rank_team_free(team);
}

static void an_impossible_number_of_ranks_is_refused_with_its_reason(void **state)
{
    (void)state;
    assert_int_equal(open_team(3), ST_CONFIG);
    assert_non_null(strstr(err, "num_attention_heads"));
    assert_int_equal(open_team(1000), ST_CONFIG);
    assert_non_null(strstr(err, "at most 64"));
}

/* 1000 bytes; blocks of 10, and of 20 for windows. */
static void memory_is_divided_by_the_share_within_its_bounds(void **state)
{
    (void)state;
    struct rank_windows w = { .share = 0.5, .least = 10, .min = 5, .max = 100 };
    assert_int_equal(rank_windows_of(&w, 1000, 10, 20), 25);
    w.max = 20;
    assert_int_equal(rank_windows_of(&w, 1000, 10, 20), 20);
    w.least = 80; /* the others come first */
    assert_int_equal(rank_windows_of(&w, 1000, 10, 20), 10);
    w.least = 95;
    assert_int_equal(rank_windows_of(&w, 1000, 10, 20), 5);
    w.least = 1000;
    assert_int_equal(rank_windows_of(&w, 1000, 10, 20), 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_give_one_answer_however_many_they_are),
        cmocka_unit_test(a_step_is_submitted_before_the_one_before_is_waited_for),
        cmocka_unit_test(a_rank_that_fails_frees_the_others_and_ends_the_team),
        cmocka_unit_test(a_rank_that_fails_with_two_in_flight_ends_both),
        cmocka_unit_test(one_rank_that_fails_ends_the_team_too),
        cmocka_unit_test(an_idle_team_sleeps),
        cmocka_unit_test(an_impossible_number_of_ranks_is_refused_with_its_reason),
        cmocka_unit_test(memory_is_divided_by_the_share_within_its_bounds),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
