#include "api_world.h"
#include "size.h"

/* The life of a call: JSON, model, context, tokens in, bytes out, everything given back. */

static void body_refused(const char *body, size_t n, const char *param)
{
    struct call      c;
    struct api_error e;
    for (int kind = 0; kind < 2; kind++) {
        if (call_parse(&c, kind ? &dialect_chat : &dialect_completion, &world.m, body, n, NULL, &e) == ST_OK)
            fail_msg("accepted: %.*s", (int)n, body);
        assert_int_equal(e.http, 400);
        assert_string_equal(e.param, param);
        call_free(&c);
    }
}
static void text_refused(const char *body) { body_refused(body, strlen(body), ""); }

static void B1_a_body_that_is_no_json_is_refused_with_its_place(void **state)
{
    (void)state;
    struct call      c;
    struct api_error e;
    text_refused("");
    text_refused("   ");
    text_refused("{\"messages\":[");
    text_refused("{} x");
    text_refused("{}{}");
    assert_int_equal(call_parse(&c, &dialect_chat, &world.m, "{\"a\":tru}", 9, NULL, &e), ST_INVALID);
    assert_non_null(strstr(e.message, "at byte"));
    call_free(&c);
}

static void B2_text_that_is_no_json_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = { "NaN", "Infinity", "-Infinity", "+1",        "01",  ".5",
                                       "1.",  "0x1",      "'x'",       "undefined", "True" };
    char                     body[100];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(body, sizeof body, "{\"temperature\":%s}", bad[i]);
        text_refused(body);
    }
    text_refused("{\"a\":1,}");
    text_refused("{\"a\":1 /* x */}");
    text_refused("{a:1}");
    text_refused("{\"temperature\":1e400}");
}

static void B4_deep_nesting_is_refused(void **state)
{
    (void)state;
    text_refused(long_text("{\"messages\":", "[", 100000, ""));
    text_refused(long_text("{\"messages\":", "{\"a\":", 100000, ""));
    text_refused(long_text("{\"x\":", "[", 65, "0]"));
}

/* A chat with n members in an object of that name, or n fields of its own where there is none. */
static const char *with_keys(struct buf *b, const char *name, uint32_t n)
{
    buf_clear(b);
    buf_puts(b, "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],");
    if (name) buf_printf(b, "\"%s\":{", name);
    for (uint32_t i = 0; i < n; i++) buf_printf(b, "%s\"k%u\":1", i ? "," : "", i);
    buf_puts(b, name ? "}}" : "}");
    return buf_cstr(b);
}

static void B5_keys_that_nobody_reads_cost_nothing_and_the_others_are_bounded(void **state)
{
    (void)state;
    const uint32_t   N = (uint32_t)test_size(1000000, 100000);
    char             want[100];
    struct buf       b;
    struct call      c;
    struct api_error e;
    uint64_t         bytes = 0;
    buf_init(&b, 64 << 20);
    static const char *const unread[] = { "anything", "metadata" }; /* unknown; known by its type alone */
    for (size_t i = 0; i < sizeof unread / sizeof *unread; i++) {
        const char *body = with_keys(&b, unread[i], N);
        assert_int_equal(call_weigh(&dialect_chat, body, strlen(body), &bytes, &e), ST_OK);
        assert_in_range(bytes, 1, 4096);
        ask_ok(&c, &dialect_chat, body);
        assert_int_equal(c.n_unknown_fields, i == 0);
        call_free(&c);
    }
    ask_ok(&c, &dialect_chat, with_keys(&b, NULL, 1000));
    assert_int_equal(c.n_unknown_fields, 1000);
    call_free(&c);
    text_refused(with_keys(&b, "logit_bias", CALL_MEMBERS_MAX));
    const char *body = with_keys(&b, NULL, N);
    text_refused(body);
    assert_int_equal(call_weigh(&dialect_chat, body, strlen(body), &bytes, &e), ST_INVALID);
    snprintf(want, sizeof want, "the body is too large: %u fields were found, at most 1024 are allowed", N + 1);
    assert_string_equal(e.message, want);
    buf_free(&b);
}

static void B43_the_tree_of_a_body_is_freed_once_the_prompt_is_ready(void **state)
{
    (void)state;
    struct call      c;
    struct api_error e;
    const char      *body =
        "{\"prompt\":[\"Once\",\"Twice\"],\"echo\":true,\"return_prompt_text\":true,\"stop\":[\"fox\",\"hen\"]}";
    char *copy = strdup(body);
    assert_int_equal(call_parse(&c, &dialect_completion, &world.m, copy, strlen(copy),
                                &(struct call_from){ .request_id = "x1" }, &e),
                     ST_OK);
    assert_non_null(c.body);
    memset(copy, 'x', strlen(body)); /* the text is not needed behind call_parse */
    free(copy);
    assert_int_equal(call_prepare(&c, &e), ST_OK);
    assert_null(c.body);
    assert_string_equal(c.prompt[1].text, "Twice");
    assert_string_equal(c.prompt[0].echo, "Once");
    assert_string_equal(c.detok.stop[1].text, "hen");
    call_free(&c);
}

static void B6_duplicate_keys_are_refused(void **state)
{
    (void)state;
    text_refused("{\"messages\":[],\"messages\":[]}");
    text_refused(
        "{\"messages\":[{\"role\":\"user\",\"role\":\"system\",\"content\":\"x\"}],\"prompt\":{\"a\":1,\"a\":2}}");
    text_refused("{\"nobody_reads_this\":1,\"nobody_reads_this\":2}");
}

static void content_refused(const char *bytes)
{
    char body[200];
    snprintf(body, sizeof body, "{\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}],\"prompt\":\"%s\"}", bytes,
             bytes);
    text_refused(body);
}

static void B7_text_is_strict_utf8(void **state)
{
    (void)state;
    static const char *const bad[] = { "\xc0\x80", "\xf5\x80\x80\x80", "\xe2\x82", "\xc1\xbf", "\xed\xa0\x80", "\xff",
                                       "\x01" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) content_refused(bad[i]);
}

static void B8_lone_surrogates_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = { "\\ud800", "\\udc00\\ud800", "\\ud83dx", "\\udc00" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) content_refused(bad[i]);
}

static void B10_other_encodings_are_refused(void **state)
{
    (void)state;
    text_refused("\xef\xbb\xbf{}");
    body_refused("{\0}\0", 4, "");
    body_refused("\0{\0}", 4, "");
    body_refused("\xff\xfe{\0", 4, "");
    content_refused("\xc4\xe3\xba\xc3"); /* GBK */
}

static void B9_nul_is_data_in_content_and_nothing_in_names(void **state)
{
    (void)state;
    struct call c;
    ask_ok(&c, &dialect_chat, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\\u0000b\"}]}");
    uint32_t i = 0;
    while (i < c.prompt[0].n_id && c.prompt[0].id[i] != 0) i++;
    assert_true(i < c.prompt[0].n_id && c.prompt[0].id[i - 1] == 'a' && c.prompt[0].id[i + 1] == 'b');
    call_free(&c);
    both_refuse("\"model\":\"ti\\u0000ny\"", "model");
}

static void B11_a_body_is_an_object(void **state)
{
    (void)state;
    static const char *const bad[] = { "[]", "null", "\"x\"", "5", "true", "[{\"messages\":[]}]" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) text_refused(bad[i]);
}

static void B14_text_that_cannot_fit_is_refused_before_it_is_tokenised(void **state)
{
    (void)state;
    refuses_as(&dialect_chat,
               long_text("{\"messages\":[{\"role\":\"user\",\"content\":\"", "all work and no play ", 150000, "\"}]}"),
               400, "input_text", "context_length_exceeded");
    refuses_as(&dialect_completion, long_text("{\"prompt\":\"", "all work and no play ", 150000, "\"}"), 400,
               "input_text", "context_length_exceeded");
}

static void B16_an_unknown_model_is_a_404_and_none_is_the_first(void **state)
{
    (void)state;
    struct call c;
    refuses_as(&dialect_chat, with(&dialect_chat, "\"model\":\"gpt-4\""), 404, "model", "model_not_found");
    refuses_as(&dialect_completion, with(&dialect_completion, "\"model\":\"TINY\""), 404, "model", "model_not_found");
    both_refuse("\"model\":5", "model");
    ask_ok(&c, &dialect_chat, with(&dialect_chat, "\"model\":\"alias\""));
    assert_string_equal(c.served, "alias");
    call_free(&c);
    ask_ok(&c, &dialect_chat, with(&dialect_chat, "\"model\":\"\""));
    assert_string_equal(c.served, "tiny");
    call_free(&c);
}

static void a_prompt_and_its_output_share_the_context(void **state)
{
    (void)state;
    static const char head[] = "{\"prompt\":[65";
    static const struct {
        size_t      n;
        const char *tail;
        bool        ok;
    } rooms[] = {
        { 990, "],\"max_tokens\":10}", true },
        { 990, "],\"max_tokens\":11}", false },
        { 984, "]}", true },
        { 985, "]}", false }, /* the legacy default of 16 is reserved */
        { 999, "],\"max_tokens\":null}", true },
        { 1000, "],\"max_tokens\":null}", false },
        { 1001, "],\"max_tokens\":null}", false },
    };
    for (size_t i = 0; i < sizeof rooms / sizeof *rooms; i++) {
        const char *body = long_text(head, ",65", rooms[i].n - 1, rooms[i].tail);
        if (rooms[i].ok)
            accepts(&dialect_completion, body);
        else
            refuses_as(&dialect_completion, body, 400, "input_tokens", "context_length_exceeded");
    }
}

static void a_prompt_is_truncated_when_asked(void **state)
{
    (void)state;
    struct call c;
    ask_ok(&c, &dialect_completion, "{\"prompt\":\"abcdefgh\",\"truncate_prompt_tokens\":3}");
    assert_string_equal(prompt_text(&c, 0), "fgh");
    call_free(&c);
    ask_ok(&c, &dialect_completion,
           "{\"prompt\":\"abcdefgh\",\"truncate_prompt_tokens\":3,\"truncation_side\":\"right\"}");
    assert_string_equal(prompt_text(&c, 0), "[256]ab");
    call_free(&c);
    ask_ok(&c, &dialect_completion, "{\"prompt\":\"ab\",\"truncate_prompt_tokens\":30}");
    assert_string_equal(prompt_text(&c, 0), "[256]ab");
    call_free(&c);
    ask_ok(&c, &dialect_completion,
           long_text("{\"truncate_prompt_tokens\":-1,\"max_tokens\":5,\"prompt\":\"", "y", 2000, "\"}"));
    assert_int_equal(c.prompt[0].n_id, CONTEXT - 5);
    call_free(&c);
    refuses_as(&dialect_completion, with(&dialect_completion, "\"truncate_prompt_tokens\":0"), 400, "prompt", "");
    both_refuse("\"truncate_prompt_tokens\":-2", "truncate_prompt_tokens");
    both_refuse("\"truncation_side\":\"middle\"", "truncation_side");
}

static void a_failed_stream_ends_with_an_error_event(void **state)
{
    (void)state;
    struct call      c;
    struct api_error e;
    struct buf       out;
    buf_init(&out, 1 << 16);
    ask_ok(&c, &dialect_chat, with(&dialect_chat, "\"stream\":true"));
    say(&c, 0, "ab", &out);
    buf_clear(&out);
    api_fail(&e, 500, "", "the model gave no valid result");
    answer_fail(&c, &e, &out);
    assert_string_equal(
        buf_cstr(&out),
        "data: {\"error\":{\"message\":\"the model gave no valid result\",\"type\":\"InternalServerError\",\"param\":null,\"code\":500}}\n\n");
    call_free(&c);
    buf_free(&out);
}

static void C21_only_special_ids_give_a_plain_empty_answer(void **state)
{
    (void)state;
    for (int stream = 0; stream < 2; stream++) {
        struct call c;
        struct buf  out;
        buf_init(&out, 1 << 16);
        ask_ok(&c, &dialect_chat,
               with(&dialect_chat, stream ? "\"stream\":true,\"max_tokens\":3" : "\"max_tokens\":3"));
        for (int i = 0; i < 3; i++) assert_false(say_id(&c, 0, IM_START, &out));
        answer_choice_end(&c, 0, ENG_LENGTH, &out);
        answer_end(&c, &out);
        if (stream) {
            json_t *f = frames_of(&out);
            assert_int_equal(json_array_size(f), 2);
            assert_string_equal(str_at(f, "1.choices.0.finish_reason"), "length");
            json_decref(f);
        } else {
            json_t *v = body_of(&out);
            assert_string_equal(str_at(v, "choices.0.message.content"), "");
            assert_string_equal(str_at(v, "choices.0.finish_reason"), "length");
            assert_int_equal(int_at(v, "usage.completion_tokens"), 3);
            json_decref(v);
        }
        call_free(&c);
        buf_free(&out);
    }
}

static void every_end_has_its_reason(void **state)
{
    (void)state;
    static const struct {
        enum eng_finish finish;
        const char     *reason;
    } ends[] = {
        { ENG_STOP, "stop" },   { ENG_LENGTH, "length" }, { ENG_CANCELED, "abort" },
        { ENG_ERROR, "error" }, { ENG_TIMEOUT, "error" },
    };
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        struct call c;
        struct buf  out;
        buf_init(&out, 1 << 16);
        ask_ok(&c, &dialect_chat, with(&dialect_chat, ""));
        say(&c, 0, "abc", &out);
        if (ends[i].finish == ENG_STOP) say_id(&c, 0, EOS, &out);
        c.choice[0].eng.stop_is_eos = true;
        answer_choice_end(&c, 0, ends[i].finish, &out);
        answer_choice_end(&c, 0, ENG_LENGTH, &out); /* once */
        answer_end(&c, &out);
        json_t *v = body_of(&out);
        assert_string_equal(str_at(v, "choices.0.finish_reason"), ends[i].reason);
        assert_true(null_at(v, "choices.0.stop_reason"));
        assert_string_equal(str_at(v, "choices.0.message.content"), "abc");
        json_decref(v);
        call_free(&c);
        buf_free(&out);
    }
}

static void a_call_can_be_freed_at_any_time(void **state)
{
    (void)state;
    struct call      c;
    struct api_error e;
    call_parse(&c, &dialect_chat, &world.m, "{", 1, NULL, &e);
    call_free(&c);
    const char *body = with(&dialect_chat, "\"n\":3,\"stream\":true,\"logprobs\":true");
    assert_int_equal(call_parse(&c, &dialect_chat, &world.m, body, strlen(body), NULL, &e), ST_OK);
    assert_int_equal(strlen(c.id), strlen("chatcmpl-") + 32);
    call_free(&c);
    ask_ok(&c, &dialect_chat, body);
    call_free(&c);
    call_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(B1_a_body_that_is_no_json_is_refused_with_its_place),
        cmocka_unit_test(B2_text_that_is_no_json_is_refused),
        cmocka_unit_test(B4_deep_nesting_is_refused),
        cmocka_unit_test(B5_keys_that_nobody_reads_cost_nothing_and_the_others_are_bounded),
        cmocka_unit_test(B43_the_tree_of_a_body_is_freed_once_the_prompt_is_ready),
        cmocka_unit_test(B6_duplicate_keys_are_refused),
        cmocka_unit_test(B7_text_is_strict_utf8),
        cmocka_unit_test(B8_lone_surrogates_are_refused),
        cmocka_unit_test(B10_other_encodings_are_refused),
        cmocka_unit_test(B9_nul_is_data_in_content_and_nothing_in_names),
        cmocka_unit_test(B11_a_body_is_an_object),
        cmocka_unit_test(B14_text_that_cannot_fit_is_refused_before_it_is_tokenised),
        cmocka_unit_test(B16_an_unknown_model_is_a_404_and_none_is_the_first),
        cmocka_unit_test(a_prompt_and_its_output_share_the_context),
        cmocka_unit_test(a_prompt_is_truncated_when_asked),
        cmocka_unit_test(a_failed_stream_ends_with_an_error_event),
        cmocka_unit_test(C21_only_special_ids_give_a_plain_empty_answer),
        cmocka_unit_test(every_end_has_its_reason),
        cmocka_unit_test(a_call_can_be_freed_at_any_time),
    };
    return cmocka_run_group_tests(tests, world_open, world_close);
}
