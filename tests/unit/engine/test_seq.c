#include "test.h"
#include "engine/seq.h"

struct fixture {
    struct eng_request r;
    struct eng_choice  choice;
    struct req         q;
    struct seq         s;
    uint32_t           prompt[4], ids[32], out[16];
    float              logprob[16];
    struct eng_top     top[32];
};
static const uint32_t          eos[] = { 2 };
static const struct seq_limits lim = { eos, 1, 12 };

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    for (uint32_t i = 0; i < 4; i++) f->prompt[i] = 30 + i;
    f->choice = (struct eng_choice){ .id = f->out, .logprob = f->logprob, .top = f->top };
    f->r = (struct eng_request){ .n_prompt = 4, .prompt = f->prompt, .n_choice = 1, .choice = &f->choice };
    f->r.s.max_tokens = 6;
    f->q.r = &f->r;
    list_init(&f->q.seqs);
    seq_init(&f->s, &f->q, 0);
    seq_load(&f->s, f->ids);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    free(*state);
    return 0;
}

static enum eng_finish append(struct fixture *f, uint32_t id)
{
    static const uint32_t top_id[2] = { 8, 9 };
    static const float    top_lp[2] = { -1, -2 };
    struct seq_token      t = { .id = id, .logprob = -0.5f, .top_id = top_id, .top_logprob = top_lp };
    return seq_append(&f->s, &t, &lim);
}

static void an_eos_ends_it_and_is_counted(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(append(f, 7), ENG_NONE);
    assert_int_equal(append(f, 2), ENG_STOP);
    assert_int_equal(atomic_load(&f->choice.n_out), 2);
    assert_int_equal(f->choice.stop_id, 2);
    assert_true(f->choice.stop_is_eos);
    assert_int_equal(f->out[1], 2);
}

static void ignore_eos_goes_on(void **state)
{
    struct fixture *f = *state;
    f->r.s.ignore_eos = true;
    assert_int_equal(append(f, 2), ENG_NONE);
}

static void a_stop_id_ends_it_and_is_no_eos(void **state)
{
    struct fixture       *f = *state;
    static const uint32_t stop[] = { 5 };
    f->r.s.stop_id = stop;
    f->r.s.n_stop_id = 1;
    assert_int_equal(append(f, 5), ENG_STOP);
    assert_int_equal(f->choice.stop_id, 5);
    assert_false(f->choice.stop_is_eos);
}

static void max_tokens_end_it_with_length(void **state)
{
    struct fixture *f = *state;
    for (uint32_t i = 0; i < 5; i++) assert_int_equal(append(f, 7), ENG_NONE);
    assert_int_equal(append(f, 7), ENG_LENGTH);
    assert_int_equal(atomic_load(&f->choice.n_out), 6);
}

static void a_stop_on_the_last_token_is_a_stop(void **state)
{
    struct fixture *f = *state;
    for (uint32_t i = 0; i < 5; i++) append(f, 7);
    assert_int_equal(append(f, 2), ENG_STOP);
}

static void a_full_context_ends_it_with_length(void **state)
{
    struct fixture *f = *state;
    f->r.s.max_tokens = 16;
    f->s.n_max = 20;
    for (uint32_t i = 0; i < 7; i++) assert_int_equal(append(f, 7), ENG_NONE);
    assert_int_equal(append(f, 7), ENG_LENGTH);
}

static void logprobs_are_stored_when_asked_for(void **state)
{
    struct fixture *f = *state;
    append(f, 7);
    assert_true(f->logprob[0] == 0.0f);
    f->r.s.logprobs = true;
    f->r.s.n_top = 2;
    append(f, 7);
    assert_true(f->logprob[1] == -0.5f);
    assert_int_equal(f->top[2].id, 8);
    assert_true(f->top[3].logprob == -2.0f);
}

static void a_load_brings_back_prompt_and_output(void **state)
{
    struct fixture *f = *state;
    append(f, 7);
    append(f, 8);
    uint32_t other[32] = { 0 };
    seq_load(&f->s, other); /* after a preemption */
    assert_memory_equal(other, ((uint32_t[]){ 30, 31, 32, 33, 7, 8 }), 24);
    assert_int_equal(seq_n_out(&f->s), 2);
}

static void the_order_is_priority_then_arrival_then_choice(void **state)
{
    (void)state;
    struct eng_request r[2] = { { .priority = 0 }, { .priority = -1 } };
    struct req q[3] = { { .r = &r[0], .arrival = 1 }, { .r = &r[0], .arrival = 2 }, { .r = &r[1], .arrival = 3 } };
    struct seq a = { .q = &q[0], .r = &r[0] }, b = { .q = &q[0], .r = &r[0], .choice = 1 },
               c = { .q = &q[1], .r = &r[0] }, d = { .q = &q[2], .r = &r[1] };
    assert_true(seq_before(&d, &a) && seq_before(&a, &b) && seq_before(&b, &c));
    assert_false(seq_before(&a, &a) || seq_before(&c, &b) || seq_before(&a, &d));
}

static void check_n_cached(void *arg)
{
    struct fixture *f = arg;
    f->s.n_cached = 1;
    seq_check(&f->s);
}

static void lengths_out_of_order_end_the_process(void **state)
{
    assert_int_equal(test_exit_of(check_n_cached, *state), 70);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(an_eos_ends_it_and_is_counted),
        TEST(ignore_eos_goes_on),
        TEST(a_stop_id_ends_it_and_is_no_eos),
        TEST(max_tokens_end_it_with_length),
        TEST(a_stop_on_the_last_token_is_a_stop),
        TEST(a_full_context_ends_it_with_length),
        TEST(logprobs_are_stored_when_asked_for),
        TEST(a_load_brings_back_prompt_and_output),
        TEST(the_order_is_priority_then_arrival_then_choice),
        TEST(lengths_out_of_order_end_the_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
