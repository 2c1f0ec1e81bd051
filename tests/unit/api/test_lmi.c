#include "api_world.h"

static void refuses(const char *body, const char *param) { refuses_as(&dialect_lmi, body, 400, param, ""); }

static struct buf out;

static void start(struct call *c, const struct dialect *d, const char *body)
{
    buf_init(&out, 1 << 20);
    ask_ok(c, d, body);
}

static json_t *whole(struct call *c)
{
    answer_end(c, &out);
    json_t *v = body_of(&out);
    call_free(c);
    buf_free(&out);
    return v;
}

/* The objects of a stream whose events stand between open and close. */
static json_t *events_of(struct call *c, const char *open, const char *close)
{
    json_t           *list = json_array();
    struct json_error e;
    answer_end(c, &out);
    for (char *p = (char *)(uintptr_t)buf_cstr(&out); *p;) {
        char *end = strstr(p, close);
        assert_non_null(end);
        assert_memory_equal(p, open, strlen(open));
        p += strlen(open);
        json_t *v = json_parse(p, (size_t)(end - p), 0, &e);
        if (!v) fail_msg("%s in %.*s", e.text, (int)(end - p), p);
        json_array_append_new(list, v);
        p = end + strlen(close);
    }
    call_free(c);
    buf_free(&out);
    return list;
}

static bool is_greedy(const char *parameters)
{
    struct call c;
    char        body[300];
    snprintf(body, sizeof body, "{\"inputs\":\"a\",\"parameters\":{%s}}", parameters);
    ask_ok(&c, &dialect_lmi, body);
    bool greedy = c.s.temperature <= 0;
    call_free(&c);
    return greedy;
}

/* ---------------------------------------------------------------- the request */

static void a_prompt_is_a_string_or_a_list_of_strings(void **state)
{
    (void)state;
    struct call c;
    ask_ok(&c, &dialect_lmi, "{\"inputs\":\"ab\"}");
    assert_string_equal(prompt_text(&c, 0), "[256]ab");
    assert_int_equal(c.s.max_tokens, 30);
    call_free(&c);
    ask_ok(&c, &dialect_lmi, "{\"inputs\":[\"ab\",\"c\"],\"parameters\":null}");
    assert_int_equal(c.n_prompt, 2);
    assert_string_equal(prompt_text(&c, 1), "[256]c");
    call_free(&c);
    refuses("{\"parameters\":{}}", "inputs");
    refuses("{\"inputs\":[]}", "inputs");
    refuses("{\"inputs\":7}", "inputs");
    refuses("{\"inputs\":[\"a\",1]}", "inputs");
    refuses("{\"inputs\":{\"past_user_inputs\":[]}}", "inputs");
    refuses("{\"inputs\":[\"a\",\"b\"],\"stream\":true}", "inputs");
}

static void parameters_are_read_where_they_stand(void **state)
{
    (void)state;
    struct call c;
    ask_ok(
        &c, &dialect_lmi,
        "{\"inputs\":\"a\",\"parameters\":{\"max_new_tokens\":5,\"top_k\":3,\"top_p\":0.5,\"seed\":9,"
        "\"repetition_penalty\":1.5,\"stop\":[\"x\"],\"nobody\":1,\"nor_this\":2},\"max_new_tokens\":7,\"temperature\":0.1}");
    assert_int_equal(c.s.max_tokens, 5);
    assert_int_equal(c.s.top_k, 3);
    assert_int_equal(c.s.seed, 9);
    assert_true(c.s.repetition > 1.4f);
    assert_true(c.s.temperature > 0.9f); /* outside of parameters it is nobody's field */
    assert_int_equal(c.detok.n_stop, 1);
    assert_int_equal(c.n_unknown_fields, 4);
    call_free(&c);
    refuses("{\"inputs\":\"a\",\"parameters\":[]}", "parameters");
    refuses("{\"inputs\":\"a\",\"parameters\":{\"max_new_tokens\":0}}", "max_new_tokens");
    refuses("{\"inputs\":\"a\",\"parameters\":{\"max_new_tokens\":\"9\"}}", "max_new_tokens");
    refuses("{\"inputs\":\"a\",\"parameters\":{\"temperature\":-1}}", "temperature");
    refuses("{\"inputs\":\"a\",\"parameters\":{\"details\":\"yes\"}}", "details");
    refuses("{\"inputs\":\"a\",\"stream\":1}", "stream");
}

static void what_is_not_served_is_refused_unless_it_asks_for_nothing(void **state)
{
    (void)state;
    accepts(&dialect_lmi,
            "{\"inputs\":\"a\",\"parameters\":{\"best_of\":1,\"typical_p\":1.0,\"num_beams\":1,"
            "\"watermark\":false,\"decoder_input_details\":false,\"top_n_tokens\":null,\"grammar\":null}}");
    refuses("{\"inputs\":\"a\",\"parameters\":{\"best_of\":2}}", "best_of");
    refuses("{\"inputs\":\"a\",\"parameters\":{\"typical_p\":0.5}}", "typical_p");
    refuses("{\"inputs\":\"a\",\"parameters\":{\"watermark\":true}}", "watermark");
    refuses("{\"inputs\":\"a\",\"parameters\":{\"grammar\":{\"type\":\"json\",\"value\":\"{}\"}}}", "grammar");
    refuses("{\"inputs\":\"a\",\"parameters\":{\"adapter_id\":\"x\"}}", "adapter_id");
    refuses("{\"inputs\":\"a\",\"adapters\":[\"x\"]}", "adapters");
}

static void sampling_has_to_be_asked_for(void **state)
{
    (void)state;
    assert_true(is_greedy(""));
    assert_true(is_greedy("\"do_sample\":false,\"temperature\":0.7"));
    assert_true(is_greedy("\"temperature\":null"));
    assert_false(is_greedy("\"do_sample\":true"));
    assert_false(is_greedy("\"temperature\":0.7"));
    assert_false(is_greedy("\"top_p\":0.9"));
    assert_true(is_greedy("\"temperature\":0"));
}

/* ---------------------------------------------------------------- the answer as a whole */

static void a_string_is_answered_by_an_object(void **state)
{
    (void)state;
    struct call c;
    start(&c, &dialect_lmi, "{\"inputs\":\"ab\"}");
    say(&c, 0, "hey", &out);
    answer_choice_end(&c, 0, ENG_LENGTH, &out);
    json_t *v = whole(&c);
    assert_string_equal(str_at(v, "generated_text"), "hey");
    assert_int_equal(json_object_size(v), 1);
    json_decref(v);
}

static void a_list_is_answered_by_a_list_and_the_full_text_begins_with_the_prompt(void **state)
{
    (void)state;
    struct call c;
    start(&c, &dialect_lmi, "{\"inputs\":[\"ab\",\"c\"],\"parameters\":{\"return_full_text\":true}}");
    say(&c, 0, "1", &out);
    say(&c, 1, "2\"", &out);
    for (uint32_t i = 0; i < 2; i++) end_eos(&c, i, &out);
    json_t *v = whole(&c);
    assert_int_equal(json_array_size(v), 2);
    assert_string_equal(str_at(v, "0.generated_text"), "ab1");
    assert_string_equal(str_at(v, "1.generated_text"), "c2\"");
    json_decref(v);
    start(&c, &dialect_tgi, "{\"inputs\":\"ab\"}");
    end_eos(&c, 0, &out);
    v = whole(&c);
    assert_int_equal(json_array_size(v), 1);
    json_decref(v);
}

static void details_tell_each_token_and_why_it_ended(void **state)
{
    (void)state;
    struct call c;
    start(&c, &dialect_lmi, "{\"inputs\":\"ab\",\"parameters\":{\"details\":true}}");
    say(&c, 0, "he", &out);
    end_eos(&c, 0, &out);
    json_t *v = whole(&c);
    assert_string_equal(str_at(v, "generated_text"), "he");
    assert_string_equal(str_at(v, "details.finish_reason"), "eos_token");
    assert_string_equal(str_at(v, "details.inputs"), "ab");
    assert_int_equal(int_at(v, "details.generated_tokens"), 3);
    assert_int_equal(json_array_size(at(v, "details.tokens")), 3);
    assert_int_equal(int_at(v, "details.tokens.1.id"), 'e');
    assert_string_equal(str_at(v, "details.tokens.1.text"), "e");
    assert_true(json_number_value(at(v, "details.tokens.1.log_prob")) == -0.5);
    assert_int_equal(int_at(v, "details.tokens.2.id"), EOS);
    assert_null(at(v, "details.tokens.0.logprob"));
    json_decref(v);
    start(&c, &dialect_tgi, "{\"inputs\":\"ab\",\"parameters\":{\"details\":true,\"stop\":[\"y\"]}}");
    assert_true(say(&c, 0, "hey", &out));
    answer_choice_end(&c, 0, ENG_STOP, &out);
    v = whole(&c);
    assert_string_equal(str_at(v, "0.generated_text"), "he");
    assert_string_equal(str_at(v, "0.details.finish_reason"), "stop_sequence");
    assert_true(json_number_value(at(v, "0.details.tokens.0.logprob")) == -0.5);
    assert_true(json_is_false(at(v, "0.details.tokens.0.special")));
    json_decref(v);
}

/* ---------------------------------------------------------------- the answer as a stream */

static void stream(struct call *c, const struct dialect *d)
{
    start(c, d, "{\"inputs\":\"ab\",\"stream\":true,\"parameters\":{\"max_new_tokens\":3}}");
    say(c, 0, "h\ny", &out);
    answer_choice_end(c, 0, ENG_LENGTH, &out);
}

static void a_stream_is_a_line_for_each_token_and_the_last_has_the_whole_text(void **state)
{
    (void)state;
    struct call c;
    stream(&c, &dialect_lmi);
    assert_string_equal(answer_stream_type(&c), "application/jsonlines");
    assert_string_equal(answer_keep_alive(&c), " ");
    json_t *v = events_of(&c, "", "\n");
    assert_int_equal(json_array_size(v), 3);
    assert_string_equal(str_at(v, "0.token.text"), "h");
    assert_true(null_at(v, "0.generated_text"));
    assert_string_equal(str_at(v, "1.token.text"), "\n");
    assert_int_equal(int_at(v, "2.token.id"), 'y');
    assert_string_equal(str_at(v, "2.generated_text"), "h\ny");
    assert_string_equal(str_at(v, "2.details.finish_reason"), "length");
    assert_int_equal(int_at(v, "2.details.generated_tokens"), 3);
    assert_string_equal(str_at(v, "2.details.inputs"), "ab");
    json_decref(v);
}

static void the_same_as_events_and_in_the_form_of_tgi(void **state)
{
    (void)state;
    struct call c;
    stream(&c, &dialect_lmi_events);
    assert_string_equal(answer_stream_type(&c), "text/event-stream; charset=utf-8");
    json_t *v = events_of(&c, "data: ", "\n\n");
    assert_int_equal(json_array_size(v), 3);
    assert_null(at(v, "0.index"));
    json_decref(v);
    stream(&c, &dialect_tgi);
    v = events_of(&c, "data: ", "\n\n");
    assert_int_equal(int_at(v, "0.index"), 1);
    assert_int_equal(int_at(v, "2.index"), 3);
    assert_true(null_at(v, "0.details"));
    assert_true(json_number_value(at(v, "0.token.logprob")) == -0.5);
    assert_string_equal(str_at(v, "2.generated_text"), "h\ny");
    json_decref(v);
}

/* A stop string ends it behind its last token's event, or holds text back. */
static void the_last_event_always_names_a_token(void **state)
{
    (void)state;
    struct call c;
    start(&c, &dialect_lmi, "{\"inputs\":\"ab\",\"stream\":true,\"parameters\":{\"stop\":[\"yz\"]}}");
    assert_true(say(&c, 0, "hyz", &out));
    answer_choice_end(&c, 0, ENG_STOP, &out);
    json_t *v = events_of(&c, "", "\n");
    size_t  last = json_array_size(v) - 1;
    assert_int_equal(int_at(json_array_get(v, last), "token.id"), 'z');
    assert_string_equal(str_at(json_array_get(v, last), "generated_text"), "h");
    assert_string_equal(str_at(json_array_get(v, last), "details.finish_reason"), "stop_sequence");
    json_decref(v);
    start(&c, &dialect_lmi,
          "{\"inputs\":\"ab\",\"stream\":true,\"parameters\":{\"stop\":[\"yz\"],\"max_new_tokens\":2}}");
    say(&c, 0, "hy", &out); /* "y" may be the beginning of the stop string */
    answer_choice_end(&c, 0, ENG_LENGTH, &out);
    v = events_of(&c, "", "\n");
    last = json_array_size(v) - 1;
    assert_string_equal(str_at(json_array_get(v, last), "generated_text"), "hy");
    struct buf said;
    size_t     k;
    json_t    *ev;
    buf_init(&said, 100);
    json_array_foreach(v, k, ev) buf_puts(&said, str_at(ev, "token.text"));
    assert_string_equal(buf_cstr(&said), "hy");
    buf_free(&said);
    json_decref(v);
}

static void an_error_is_the_last_event(void **state)
{
    (void)state;
    struct call      c;
    struct api_error e;
    api_fail(&e, 503, "", "gone");
    stream(&c, &dialect_lmi);
    buf_clear(&out);
    answer_fail(&c, &e, &out);
    json_t *v = events_of(&c, "", "\n");
    assert_string_equal(str_at(v, "0.error.message"), "gone");
    json_decref(v);
}

/* ---------------------------------------------------------------- which dialect a body is in */

static const struct dialect *picked(const char *body, enum lmi_form form)
{
    const struct dialect *d = &dialect_invocation;
    struct api_error      e;
    if (call_pick(&d, &(struct call_shape){ &world.m, body, strlen(body), form }, &e) == ST_OK) return d;
    assert_int_equal(e.http, 400);
    return NULL;
}

static void the_fields_of_a_body_decide_its_dialect(void **state)
{
    (void)state;
    assert_ptr_equal(picked("{\"messages\":[]}", LMI_LINES), &dialect_chat);
    assert_ptr_equal(picked("{\"prompt\":\"a\"}", LMI_TGI), &dialect_completion);
    assert_ptr_equal(picked("{\"prompt\":\"a\",\"messages\":[]}", LMI_LINES), &dialect_chat);
    assert_ptr_equal(picked("{\"inputs\":\"a\"}", LMI_LINES), &dialect_lmi);
    assert_ptr_equal(picked("{\"inputs\":\"a\"}", LMI_EVENTS), &dialect_lmi_events);
    assert_ptr_equal(picked("{\"inputs\":\"a\"}", LMI_TGI), &dialect_tgi);
    assert_ptr_equal(picked("{\"input\":\"a\"}", LMI_LINES), &dialect_responses);
    assert_ptr_equal(picked("{\"query\":\"a\",\"documents\":[]}", LMI_LINES), &dialect_rerank);
    assert_ptr_equal(picked("{\"text_1\":\"a\",\"text_2\":\"b\"}", LMI_TGI), &dialect_score);
    assert_null(picked("{\"model\":\"a\"}", LMI_LINES));
    assert_null(picked("{\"x\":{\"messages\":[]}}", LMI_LINES));
    assert_null(picked("[]", LMI_LINES));
    assert_null(picked("{\"messages\"", LMI_LINES));
    const struct dialect *d = &dialect_chat;
    struct api_error      e;
    assert_int_equal(call_pick(&d, &(struct call_shape){ &world.m, "{\"prompt\":1}", 12, LMI_LINES }, &e), ST_OK);
    assert_ptr_equal(d, &dialect_chat);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_prompt_is_a_string_or_a_list_of_strings),
        cmocka_unit_test(parameters_are_read_where_they_stand),
        cmocka_unit_test(what_is_not_served_is_refused_unless_it_asks_for_nothing),
        cmocka_unit_test(sampling_has_to_be_asked_for),
        cmocka_unit_test(a_string_is_answered_by_an_object),
        cmocka_unit_test(a_list_is_answered_by_a_list_and_the_full_text_begins_with_the_prompt),
        cmocka_unit_test(details_tell_each_token_and_why_it_ended),
        cmocka_unit_test(a_stream_is_a_line_for_each_token_and_the_last_has_the_whole_text),
        cmocka_unit_test(the_same_as_events_and_in_the_form_of_tgi),
        cmocka_unit_test(the_last_event_always_names_a_token),
        cmocka_unit_test(an_error_is_the_last_event),
        cmocka_unit_test(the_fields_of_a_body_decide_its_dialect),
    };
    return cmocka_run_group_tests(tests, world_open, world_close);
}
