#include "test.h"
#include "engine/sample.h"

enum { VOCAB = 100 };

struct fixture {
    struct batch       b;
    struct eng_request r;
    struct eng_choice  choice[2];
    struct req         q;
    struct seq         s;
    uint32_t           ids[32];
};
static const uint32_t          eos[] = { 2, 99 };
static const struct seq_limits lim = { eos, 2, 32 };

static int setup(void **state)
{
    struct fixture  *f = calloc(1, sizeof *f);
    struct batch_cfg cfg = { .rows_max = 8,
                             .seqs_max = 4,
                             .pages_max = 8,
                             .hist_max = 40,
                             .ban_max = 8,
                             .allow_max = 8,
                             .bias_max = 8,
                             .mask_max = 8 };
    f->r = (struct eng_request){ .n_prompt = 5, .n_choice = 2, .choice = f->choice };
    f->r.s = (struct eng_sampling){
        .temperature = 0.5f, .top_p = 0.9f, .min_p = 0.1f, .top_k = 7, .repetition = 1, .seed = 1234, .max_tokens = 20
    };
    f->q.r = &f->r;
    list_init(&f->q.seqs);
    seq_init(&f->s, &f->q, 1);
    for (uint32_t i = 0; i < 32; i++) f->ids[i] = 10 + i;
    f->s.n_token = 8; /* prompt 10..14, output 15, 16, 17 */
    *state = f;
    int st = batch_init(&f->b, &cfg);
    batch_clear(&f->b);
    return st;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    batch_free(&f->b);
    free(f);
    return 0;
}

/* a token more, drawn by sample 3 of the step in flight */
static void fly(struct fixture *f)
{
    f->s.fly_token = 1;
    f->s.fly_sample = 3;
    f->ids[8] = SEQ_PENDING;
}

static const struct op_sample_row *add(struct fixture *f)
{
    sample_add(&f->b, &f->s, f->ids, 0, &lim, VOCAB);
    return &f->b.sample[f->b.n_sample - 1];
}

static void the_draw_is_named_by_seed_choice_and_position(void **state)
{
    const struct op_sample_row *o = add(*state);
    assert_int_equal(o->seed, 1234);
    assert_int_equal(o->stream, 1);
    assert_int_equal(o->counter, 3);
    assert_true(o->temperature == 0.5f && o->top_p == 0.9f && o->min_p == 0.1f && o->top_k == 7);
    assert_int_equal(o->n_hist + o->n_ban + o->n_allow + o->n_bias + o->n_top, 0);
}

static void repetition_takes_prompt_and_output(void **state)
{
    struct fixture *f = *state;
    f->r.s.repetition = 1.2f;
    const struct op_sample_row *o = add(f);
    assert_int_equal(o->n_hist, 8);
    assert_int_equal(o->n_prompt, 5);
    assert_memory_equal(f->b.hist + o->hist_start, f->ids, 8 * 4);
    assert_int_equal(sample_need(&f->s, 2).hist, 8);
}

static void presence_and_frequency_take_the_output_alone(void **state)
{
    struct fixture *f = *state;
    f->r.s.frequency = -0.5f;
    add(f);
    const struct op_sample_row *o = add(f);
    assert_int_equal(o->hist_start, 3);
    assert_int_equal(o->n_hist, 3);
    assert_int_equal(o->n_prompt, 0);
    assert_memory_equal(f->b.hist + o->hist_start, f->ids + 5, 3 * 4);
}

static void before_min_tokens_the_stops_are_banned(void **state)
{
    struct fixture       *f = *state;
    static const uint32_t stop[] = { 50, 51 };
    f->r.s.stop_id = stop;
    f->r.s.n_stop_id = 2;
    f->r.s.min_tokens = 4;
    const struct op_sample_row *o = add(f);
    assert_int_equal(o->n_ban, 4);
    assert_memory_equal(f->b.ban + o->ban_start, ((uint32_t[]){ 2, 99, 50, 51 }), 16);
    f->r.s.ignore_eos = true;
    assert_int_equal(add(f)->n_ban, 2);
    f->r.s.min_tokens = 3; /* the fourth token may be one */
    assert_int_equal(add(f)->n_ban, 0);
}

static void a_bad_words_last_token_is_banned_after_the_others(void **state)
{
    struct fixture       *f = *state;
    static const uint32_t word[] = { 40, 16, 17, 41, 15, 17, 42, 13, 14, 15, 16, 17, 43 }, start[] = { 0, 1, 4, 7, 13 };
    f->r.s.bad_word = word;
    f->r.s.bad_word_start = start;
    f->r.s.n_bad_word = 4;
    const struct op_sample_row *o = add(f);
    assert_int_equal(o->n_ban, 2); /* 40 always, 41 after 16 17; the last would begin in the prompt */
    assert_memory_equal(f->b.ban + o->ban_start, ((uint32_t[]){ 40, 41 }), 8);
}

static void ids_beyond_the_vocabulary_are_not_banned(void **state)
{
    struct fixture       *f = *state;
    static const uint32_t stop[] = { 100, 5, UINT32_MAX };
    f->r.s.stop_id = stop;
    f->r.s.n_stop_id = 3;
    f->r.s.min_tokens = 10;
    f->r.s.ignore_eos = true;
    const struct op_sample_row *o = add(f);
    assert_int_equal(o->n_ban, 1);
    assert_int_equal(f->b.ban[o->ban_start], 5);
}

static void allowed_ids_and_biases_are_copied(void **state)
{
    struct fixture              *f = *state;
    static const uint32_t        allowed[] = { 7, 8 };
    static const struct eng_bias bias[] = { { 3, -1.5f } };
    f->r.s.allowed_id = allowed;
    f->r.s.n_allowed = 2;
    f->r.s.bias = bias;
    f->r.s.n_bias = 1;
    add(f);
    const struct op_sample_row *o = add(f);
    assert_int_equal(o->allow_start, 2);
    assert_int_equal(o->n_allow, 2);
    assert_int_equal(f->b.allow[3], 8);
    assert_int_equal(o->bias_start, 1);
    assert_int_equal(f->b.bias[1].id, 3);
    assert_true(f->b.bias[1].bias == -1.5f);
}

static void a_row_that_exceeds_the_sampling_arrays_is_found_before_it_is_added(void **state)
{
    struct fixture *f = *state;
    f->r.s.repetition = 1.2f;
    struct sample_need used = { 0 }, n = sample_need(&f->s, 2);
    uint32_t           k = 0;
    for (; sample_fits(&f->b, used, n); k++) sample_use(&used, n);
    assert_int_equal(k, 5); /* 5 * 8 = 40 */
    sample_unuse(&used, n);
    assert_true(sample_fits(&f->b, used, n));
    assert_true(sample_possible(&f->b, &f->r, 2));
    f->r.s.max_tokens = 36; /* 5 + 36 tokens of history at the end */
    assert_false(sample_possible(&f->b, &f->r, 2));
    f->r.s.repetition = 1;
    assert_true(sample_possible(&f->b, &f->r, 2));
    f->r.s.n_allowed = 9;
    assert_false(sample_possible(&f->b, &f->r, 2));
}

static void an_id_in_flight_is_patched_into_the_history(void **state)
{
    struct fixture *f = *state;
    fly(f);
    f->r.s.repetition = 1.5f;
    const struct op_sample_row *o = add(f);
    assert_int_equal(o->counter, 4);
    assert_int_equal(o->n_prompt, 5);
    assert_int_equal(o->n_hist, 9);
    assert_int_equal(f->b.n_patch_hist, 1);
    assert_int_equal(f->b.patch_hist[0].at, 8);
    assert_int_equal(f->b.patch_hist[0].from, 3);
    f->r.s.repetition = 1;
    f->r.s.presence = 0.5f;
    o = add(f);
    assert_int_equal(o->n_hist, 4);
    assert_int_equal(f->b.patch_hist[1].at, o->hist_start + 3);
    assert_int_equal(sample_need(&f->s, 0).hist, 4);
    f->r.s.presence = 0;
    add(f);
    assert_int_equal(f->b.n_patch_hist, 2); /* nothing asks for it */
}

static void min_tokens_counts_tokens_in_flight(void **state)
{
    struct fixture *f = *state;
    f->r.s.min_tokens = 4;
    assert_int_equal(add(f)->n_ban, 2);
    fly(f);
    assert_int_equal(add(f)->n_ban, 0);
}

static void lists_that_exclude_all_ids_are_told_from_others(void **state)
{
    struct fixture *f = *state;
    uint32_t        word[] = { 40, 41 }, start[] = { 0, 1, 2 }, allowed[] = { 40, 41 };
    add(f);
    assert_false(sample_leaves_none(&f->b, 0, VOCAB));
    f->r.s.allowed_id = allowed;
    f->r.s.n_allowed = 2;
    add(f);
    assert_false(sample_leaves_none(&f->b, 1, VOCAB));
    f->r.s.bad_word = word;
    f->r.s.bad_word_start = start;
    f->r.s.n_bad_word = 1;
    add(f);
    assert_false(sample_leaves_none(&f->b, 2, VOCAB)); /* 41 is left */
    f->r.s.n_bad_word = 2;
    add(f);
    assert_true(sample_leaves_none(&f->b, 3, VOCAB));
    struct op_sample_row *o = &f->b.sample[1];
    o->mask_start = f->b.n_mask;
    o->n_mask = 2;
    f->b.mask[o->mask_start] = UINT32_MAX;
    f->b.mask[o->mask_start + 1] = (uint32_t)1 << 9; /* 41 */
    assert_false(sample_leaves_none(&f->b, 1, VOCAB));
    f->b.mask[o->mask_start + 1] = (uint32_t)1 << 10;
    assert_true(sample_leaves_none(&f->b, 1, VOCAB));
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(the_draw_is_named_by_seed_choice_and_position),
        TEST(repetition_takes_prompt_and_output),
        TEST(presence_and_frequency_take_the_output_alone),
        TEST(before_min_tokens_the_stops_are_banned),
        TEST(a_bad_words_last_token_is_banned_after_the_others),
        TEST(ids_beyond_the_vocabulary_are_not_banned),
        TEST(allowed_ids_and_biases_are_copied),
        TEST(a_row_that_exceeds_the_sampling_arrays_is_found_before_it_is_added),
        TEST(an_id_in_flight_is_patched_into_the_history),
        TEST(min_tokens_counts_tokens_in_flight),
        TEST(lists_that_exclude_all_ids_are_told_from_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
