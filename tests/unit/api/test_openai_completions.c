#include "api_world.h"

static void refuses(const char *body, const char *param) { refuses_as(&dialect_completion, body, 400, param, ""); }

static json_t *finish(struct call *c, struct buf *out)
{
    answer_end(c, out);
    json_t *v = c->stream ? frames_of(out) : body_of(out);
    call_free(c);
    buf_free(out);
    return v;
}
static void start(struct call *c, struct buf *out, const char *body)
{
    buf_init(out, 1 << 20);
    ask_ok(c, &dialect_completion, body);
}

/* The engine's prompt logprobs: token k has -k / 10; 'z' is the best everywhere. */
static void score(struct call *c, uint32_t p)
{
    struct call_prompt *q = &c->prompt[p];
    for (uint32_t k = 1; k < q->n_id; k++) {
        q->lp[k] = -(float)k / 8;
        q->lp_rank[k] = 2;
        for (uint32_t j = 0; j < c->s.n_prompt_top; j++)
            q->lp_top[k * c->s.n_prompt_top + j] = (struct eng_top){ 'z' - j, -0.0625f };
    }
}

/* ---------------------------------------------------------------- prompts */

static void prompts_come_in_four_forms(void **state)
{
    (void)state;
    struct call c;
    ask_ok(&c, &dialect_completion, "{\"prompt\":\"ab\"}");
    assert_string_equal(prompt_text(&c, 0), "[256]ab");
    call_free(&c);
    ask_ok(&c, &dialect_completion, "{\"prompt\":[\"ab\",\"c\"]}");
    assert_int_equal(c.n_prompt, 2);
    assert_string_equal(prompt_text(&c, 1), "[256]c");
    call_free(&c);
    ask_ok(&c, &dialect_completion, "{\"prompt\":[97,258,0]}");
    assert_int_equal(c.n_prompt, 1);
    assert_true(c.prompt[0].n_id == 3 && c.prompt[0].id[1] == 258);
    call_free(&c);
    ask_ok(&c, &dialect_completion, "{\"prompt\":[[97],[98,99]],\"n\":2}");
    assert_true(c.n_prompt == 2 && c.n_choice == 4 && c.prompt[1].n_id == 2);
    call_free(&c);
    ask_ok(&c, &dialect_completion, "{\"prompt\":\"ab\",\"add_special_tokens\":false}");
    assert_string_equal(prompt_text(&c, 0), "ab");
    call_free(&c);
    ask_ok(&c, &dialect_completion,
           "{\"prompt\":\"<|im_start|>\"}"); /* here a control token is one: the user writes the whole prompt */
    assert_string_equal(prompt_text(&c, 0), "[256][258]");
    call_free(&c);
}

static void B18_empty_and_mixed_prompts(void **state)
{
    (void)state;
    struct call c;
    ask_ok(&c, &dialect_completion, "{\"prompt\":\"\"}");
    assert_string_equal(prompt_text(&c, 0), "[256]"); /* BOS */
    call_free(&c);
    accepts(&dialect_completion, "{\"prompt\":[\"\",\"a\"]}");
    static const char *const bad[] = { "[]",           "[[]]",      "[[97],[]]", "[\"a\",97]", "[97,\"a\"]",
                                       "[[97],\"a\"]", "[[97],97]", "[[[97]]]",  "[[\"a\"]]",  "5",
                                       "{}",           "[null]",    "[{}]",      "true",       "[true]" };
    char                     body[200];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(body, sizeof body, "{\"prompt\":%s}", bad[i]);
        refuses(body, "prompt");
    }
    refuses("{}", "prompt");
    refuses("{\"prompt\":null}", "prompt");
    refuses("{\"prompt\":\"\",\"add_special_tokens\":false}", "prompt");
    refuses(long_text("{\"prompt\":[\"a\"", ",\"a\"", 128, "]}"), "prompt");
}

static void B19_token_ids_of_prompts_are_in_the_vocabulary(void **state)
{
    (void)state;
    static const char *const bad[] = { "-1",   "261", "2147483648",           "9007199254740993",   "1.5",
                                       "97.0", "1e3", "-9223372036854775808", "9223372036854775807" };
    char                     body[200];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(body, sizeof body, "{\"prompt\":[97,%s]}", bad[i]);
        refuses(body, "prompt");
        snprintf(body, sizeof body, "{\"prompt\":[[97,%s]]}", bad[i]);
        refuses(body, "prompt");
    }
    refuses("{\"prompt\":[1.5]}", "prompt");
    accepts(&dialect_completion, "{\"prompt\":[260]}");
}

static void too_many_token_ids_are_refused_before_they_are_copied(void **state)
{
    (void)state;
    refuses_as(&dialect_completion, long_text("{\"prompt\":[1", ",1", CONTEXT, "]}"), 400, "input_tokens",
               "context_length_exceeded");
}

/* ---------------------------------------------------------------- answers */

static void an_answer_has_the_legacy_shape(void **state)
{
    (void)state;
    struct call c;
    struct buf  out;
    start(&c, &out, "{\"prompt\":\"Hi\",\"max_tokens\":3}");
    say(&c, 0, "abc", &out);
    answer_choice_end(&c, 0, ENG_LENGTH, &out);
    json_t *v = finish(&c, &out);
    assert_string_equal(str_at(v, "id"), "cmpl-x1");
    assert_string_equal(str_at(v, "object"), "text_completion");
    assert_string_equal(str_at(v, "choices.0.text"), "abc");
    assert_true(null_at(v, "choices.0.logprobs"));
    assert_true(null_at(v, "choices.0.prompt_logprobs"));
    assert_string_equal(str_at(v, "choices.0.finish_reason"), "length");
    assert_int_equal(int_at(v, "usage.prompt_tokens"), 3);
    assert_int_equal(int_at(v, "usage.completion_tokens"), 3);
    json_decref(v);
}

static void several_prompts_and_samples_share_one_answer(void **state)
{
    (void)state;
    struct call c;
    struct buf  out;
    start(&c, &out, "{\"prompt\":[\"p\",\"qq\"],\"n\":2,\"max_tokens\":2}");
    for (uint32_t i = 0; i < 4; i++) {
        char text[3] = { (char)('a' + i), '!', 0 };
        say(&c, i, text, &out);
        answer_choice_end(&c, i, ENG_LENGTH, &out);
    }
    json_t *v = finish(&c, &out);
    assert_int_equal(json_array_size(at(v, "choices")), 4);
    assert_int_equal(int_at(v, "choices.3.index"), 3);
    assert_string_equal(str_at(v, "choices.2.text"), "c!");
    assert_int_equal(int_at(v, "usage.prompt_tokens"), 5);
    assert_int_equal(int_at(v, "usage.completion_tokens"), 8);
    json_decref(v);
}

static void a_stream_has_no_role_chunk(void **state)
{
    (void)state;
    struct call c;
    struct buf  out;
    start(&c, &out, "{\"prompt\":\"Hi\",\"stream\":true,\"stream_options\":{\"include_usage\":true}}");
    say(&c, 0, "ab", &out);
    end_eos(&c, 0, &out);
    json_t *f = finish(&c, &out);
    assert_int_equal(json_array_size(f), 4);
    assert_string_equal(str_at(f, "0.object"), "text_completion");
    assert_string_equal(str_at(f, "0.choices.0.text"), "a");
    assert_string_equal(str_at(f, "2.choices.0.text"), "");
    assert_string_equal(str_at(f, "2.choices.0.finish_reason"), "stop");
    assert_int_equal(int_at(f, "3.usage.completion_tokens"), 3);
    json_decref(f);
}

static void logprobs_are_four_parallel_arrays(void **state)
{
    (void)state;
    struct call c;
    struct buf  out;
    start(&c, &out, "{\"prompt\":\"Hi\",\"logprobs\":2,\"max_tokens\":3}");
    say(&c, 0, "xyb", &out);
    answer_choice_end(&c, 0, ENG_LENGTH, &out);
    json_t       *v = finish(&c, &out);
    const json_t *l = at(v, "choices.0.logprobs");
    assert_int_equal(json_array_size(at(l, "tokens")), 3);
    assert_int_equal(json_array_size(at(l, "token_logprobs")), 3);
    assert_int_equal(json_array_size(at(l, "top_logprobs")), 3);
    assert_int_equal(json_array_size(at(l, "text_offset")), 3);
    assert_string_equal(str_at(l, "tokens.1"), "y");
    assert_int_equal(int_at(l, "text_offset.2"), 2);
    assert_int_equal(json_object_size(at(l, "top_logprobs.0")), 2); /* x itself and b */
    assert_int_equal(json_object_size(at(l, "top_logprobs.2")), 1); /* b twice: the larger one stays */
    assert_true(json_number_value(at(l, "top_logprobs.2.b")) == -0.5);
    json_decref(v);
}

static void offsets_run_on_through_a_stream(void **state)
{
    (void)state;
    struct call c;
    struct buf  out;
    start(&c, &out, "{\"prompt\":\"Hi\",\"logprobs\":0,\"max_tokens\":9,\"stream\":true}");
    say(&c, 0, "abc", &out);
    end_eos(&c, 0, &out);
    json_t *f = finish(&c, &out);
    assert_int_equal(int_at(f, "0.choices.0.logprobs.text_offset.0"), 0);
    assert_int_equal(int_at(f, "2.choices.0.logprobs.text_offset.0"), 2);
    assert_int_equal(int_at(f, "3.choices.0.logprobs.text_offset.0"), 3);
    assert_int_equal(json_object_size(at(f, "0.choices.0.logprobs.top_logprobs.0")), 1);
    json_decref(f);
}

static void echo_without_output_scores_the_prompt(void **state)
{
    (void)state;
    struct call c;
    struct buf  out;
    start(&c, &out, "{\"prompt\":\"abc\",\"echo\":true,\"max_tokens\":0,\"logprobs\":1,\"temperature\":0}");
    assert_true(c.s.max_tokens == 1 && c.s.prompt_logprobs && c.s.n_prompt_top == 1);
    score(&c, 0);
    say(&c, 0, "x", &out);
    answer_choice_end(&c, 0, ENG_LENGTH, &out);
    json_t       *v = finish(&c, &out);
    const json_t *l = at(v, "choices.0.logprobs");
    assert_string_equal(str_at(v, "choices.0.text"), "abc");
    assert_int_equal(json_array_size(at(l, "tokens")), 4); /* BOS too */
    assert_true(null_at(l, "token_logprobs.0"));
    assert_true(null_at(l, "top_logprobs.0"));
    assert_true(json_number_value(at(l, "token_logprobs.3")) == -0.375);
    assert_true(json_number_value(at(l, "top_logprobs.3.z")) == -0.0625);
    assert_true(json_number_value(at(l, "top_logprobs.3.c")) == -0.375);
    assert_string_equal(str_at(v, "choices.0.finish_reason"), "length");
    assert_int_equal(int_at(v, "usage.completion_tokens"), 0);
    json_decref(v);
}

static void echo_with_one_token_is_what_lm_eval_asks_for(void **state)
{
    (void)state;
    struct call c;
    struct buf  out;
    start(
        &c, &out,
        "{\"prompt\":[[97,98,99],[100,101]],\"echo\":true,\"max_tokens\":1,\"logprobs\":1,\"temperature\":0,\"seed\":1234}");
    score(&c, 0);
    score(&c, 1);
    for (uint32_t i = 0; i < 2; i++) {
        say(&c, i, "x", &out);
        answer_choice_end(&c, i, ENG_LENGTH, &out);
    }
    json_t       *v = finish(&c, &out);
    const json_t *l = at(v, "choices.0.logprobs");
    assert_string_equal(str_at(v, "choices.0.text"), "abcx");
    assert_int_equal(json_array_size(at(l, "token_logprobs")), 4);
    assert_int_equal(json_array_size(at(l, "top_logprobs")), 4);
    assert_true(json_number_value(at(l, "token_logprobs.3")) ==
                json_number_value(at(l, "top_logprobs.3.x"))); /* exactly: greedy */
    assert_int_equal(int_at(l, "text_offset.3"), 3);
    assert_string_equal(str_at(v, "choices.1.text"), "dex");
    json_decref(v);
}

static void echo_streams_the_prompt_first(void **state)
{
    (void)state;
    struct call c;
    struct buf  out;
    start(
        &c, &out,
        "{\"prompt\":\"abc\",\"echo\":true,\"max_tokens\":2,\"logprobs\":1,\"stream\":true,\"return_token_ids\":true}");
    score(&c, 0);
    say(&c, 0, "xy", &out);
    answer_choice_end(&c, 0, ENG_LENGTH, &out);
    json_t *f = finish(&c, &out);
    assert_int_equal(json_array_size(f), 3);
    assert_string_equal(str_at(f, "0.choices.0.text"), "abc");
    assert_int_equal(json_array_size(at(f, "0.choices.0.logprobs.tokens")), 4);
    assert_int_equal(json_array_size(at(f, "0.choices.0.prompt_token_ids")), 4);
    assert_string_equal(str_at(f, "1.choices.0.text"), "x");
    assert_int_equal(int_at(f, "1.choices.0.logprobs.text_offset.0"), 6); /* <s>abc */
    assert_string_equal(str_at(f, "2.choices.0.text"), "y");
    assert_string_equal(str_at(f, "2.choices.0.finish_reason"), "length");
    json_decref(f);
}

static void echo_without_logprobs_is_text_alone(void **state)
{
    (void)state;
    struct call c;
    struct buf  out;
    start(&c, &out, "{\"prompt\":[97,98,256],\"echo\":true,\"max_tokens\":1}");
    assert_false(c.s.prompt_logprobs);
    say(&c, 0, "x", &out);
    answer_choice_end(&c, 0, ENG_LENGTH, &out);
    json_t *v = finish(&c, &out);
    assert_string_equal(str_at(v, "choices.0.text"), "abx");
    json_decref(v);
}

static void prompt_logprobs_stand_in_each_choice(void **state)
{
    (void)state;
    struct call c;
    struct buf  out;
    start(&c, &out, "{\"prompt\":[\"a\",\"bc\"],\"prompt_logprobs\":0,\"max_tokens\":1}");
    score(&c, 0);
    score(&c, 1);
    for (uint32_t i = 0; i < 2; i++) {
        say(&c, i, "x", &out);
        answer_choice_end(&c, i, ENG_LENGTH, &out);
    }
    json_t *v = finish(&c, &out);
    assert_int_equal(json_array_size(at(v, "choices.0.prompt_logprobs")), 2);
    assert_int_equal(json_array_size(at(v, "choices.1.prompt_logprobs")), 3);
    assert_string_equal(str_at(v, "choices.1.prompt_logprobs.2.99.decoded_token"), "c");
    json_decref(v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prompts_come_in_four_forms),
        cmocka_unit_test(B18_empty_and_mixed_prompts),
        cmocka_unit_test(B19_token_ids_of_prompts_are_in_the_vocabulary),
        cmocka_unit_test(too_many_token_ids_are_refused_before_they_are_copied),
        cmocka_unit_test(an_answer_has_the_legacy_shape),
        cmocka_unit_test(several_prompts_and_samples_share_one_answer),
        cmocka_unit_test(a_stream_has_no_role_chunk),
        cmocka_unit_test(logprobs_are_four_parallel_arrays),
        cmocka_unit_test(offsets_run_on_through_a_stream),
        cmocka_unit_test(echo_without_output_scores_the_prompt),
        cmocka_unit_test(echo_with_one_token_is_what_lm_eval_asks_for),
        cmocka_unit_test(echo_streams_the_prompt_first),
        cmocka_unit_test(echo_without_logprobs_is_text_alone),
        cmocka_unit_test(prompt_logprobs_stand_in_each_choice),
    };
    return cmocka_run_group_tests(tests, world_open, world_close);
}
