#include "test.h"
#include "engine/batch.h"
#include "kvcache/device/pool.h"

static const struct batch_cfg small = { .rows_max = 8,
                                        .seqs_max = 3,
                                        .pages_max = 6,
                                        .hist_max = 4,
                                        .ban_max = 4,
                                        .allow_max = 4,
                                        .bias_max = 4,
                                        .mask_max = 8 };
static const uint32_t         ids[] = { 10, 11, 12, 13, 14, 15, 16, 17, 18 };
static const uint32_t         page[] = { 5, 6, 7, 8, 9, 4, 3 };

static int setup(void **state)
{
    struct batch *b = malloc(sizeof *b);
    *state = b;
    return batch_init(b, &small);
}

static int teardown(void **state)
{
    batch_free(*state);
    free(*state);
    return 0;
}

static void sequences_are_flattened_into_rows_and_pages(void **state)
{
    struct batch *b = *state;
    batch_clear(b);
    assert_int_equal(batch_add(b, ids, 1, 20, page, 2), 0);
    assert_int_equal(batch_add(b, ids + 3, 4, 8, page + 2, 3), 1);
    assert_int_equal(b->n_row, 5);
    assert_int_equal(b->n_seq, 2);
    assert_memory_equal(b->id, ((uint32_t[]){ 10, 13, 14, 15, 16 }), 20);
    assert_memory_equal(b->pos, ((uint32_t[]){ 20, 8, 9, 10, 11 }), 20);
    assert_memory_equal(b->row_seq, ((uint32_t[]){ 0, 1, 1, 1, 1 }), 20);
    assert_memory_equal(b->row_start, ((uint32_t[]){ 0, 1, 5 }), 12);
    assert_memory_equal(b->page_start, ((uint32_t[]){ 0, 2, 5 }), 12);
    assert_memory_equal(b->page, ((uint32_t[]){ 5, 6, 7, 8, 9 }), 20);
    assert_memory_equal(b->win_start, b->page_start, 12);
}

static void blocks_of_a_window_follow_those_of_their_sequence(void **state)
{
    struct batch *b = *state;
    batch_clear(b);
    batch_add(b, ids, 1, 20, page, 2);
    batch_window(b, ((uint32_t[]){ KV_NONE, 1 }), 2);
    batch_add(b, ids + 3, 1, 8, page + 2, 1);
    batch_window(b, ((uint32_t[]){ 0 }), 1);
    assert_int_equal(b->n_page, 6);
    assert_memory_equal(b->page, ((uint32_t[]){ 5, 6, KV_NONE, 1, 7, 0 }), 24);
    assert_memory_equal(b->page_start, ((uint32_t[]){ 0, 4, 6 }), 12);
    assert_memory_equal(b->win_start, ((uint32_t[]){ 2, 5, 6 }), 12);
}

static void sampled_rows_stand_before_prompt_logprobs(void **state)
{
    struct batch *b = *state;
    batch_clear(b);
    batch_add(b, ids, 4, 0, page, 1);
    batch_add_sample(b, 3)->seed = 9;
    assert_int_equal(batch_add_sample(b, 3)->seed, 0); /* a sibling on the same row, zeroed */
    batch_add_lp(b, 0, 77, 2);
    batch_add_lp(b, 1, 78, 0);
    assert_int_equal(b->n_logit, 4);
    assert_int_equal(b->n_sample, 2);
    assert_int_equal(b->n_lp, 2);
    assert_int_equal(b->lp_top, 2);
    assert_memory_equal(b->logit_row, ((uint32_t[]){ 3, 3, 0, 1 }), 16);
    assert_memory_equal(b->lp_id, ((uint32_t[]){ 77, 78 }), 8);
}

static void clear_forgets_the_step_before(void **state)
{
    struct batch *b = *state;
    batch_clear(b);
    batch_add(b, ids, 4, 0, page, 1);
    batch_add_sample(b, 3);
    batch_add_lp(b, 0, 1, 5);
    batch_add_copy(b, (struct kv_copy){ .src = 1, .dst = 2 });
    b->n_hist = b->n_ban = b->n_allow = b->n_bias = 1;
    batch_clear(b);
    assert_int_equal(b->n_row + b->n_seq + b->n_copy + b->n_logit + b->n_sample + b->n_lp + b->lp_top, 0);
    assert_int_equal(b->n_hist + b->n_ban + b->n_allow + b->n_bias, 0);
    assert_int_equal(batch_add(b, ids, 8, 0, page, 6), 0); /* all room is back */
}

static void too_many_rows(void *b)
{
    batch_clear(b);
    batch_add(b, ids, 9, 0, page, 1);
}
static void too_many_pages(void *b)
{
    batch_clear(b);
    batch_add(b, ids, 1, 0, page, 7);
}
static void too_many_seqs(void *b)
{
    batch_clear(b);
    for (int i = 0; i < 4; i++) batch_add(b, ids, 1, 0, page, 1);
}
static void sample_after_lp(void *b)
{
    batch_clear(b);
    batch_add(b, ids, 2, 0, page, 1);
    batch_add_lp(b, 0, 1, 0);
    batch_add_sample(b, 1);
}

static void over_a_bound_is_our_own_bug(void **state)
{
    assert_int_equal(test_exit_of(too_many_rows, *state), 70);
    assert_int_equal(test_exit_of(too_many_pages, *state), 70);
    assert_int_equal(test_exit_of(too_many_seqs, *state), 70);
    assert_int_equal(test_exit_of(sample_after_lp, *state), 70);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(sequences_are_flattened_into_rows_and_pages),
        TEST(blocks_of_a_window_follow_those_of_their_sequence),
        TEST(sampled_rows_stand_before_prompt_logprobs),
        TEST(clear_forgets_the_step_before),
        TEST(over_a_bound_is_our_own_bug),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
