#include "tools_world.h"

/* Requests and answers of the Responses API. */

#define W \
    "{\"type\":\"function\",\"name\":\"w\",\"description\":\"d\",\"parameters\":{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\"}}}}"
#define PATCH \
    "{\"type\":\"custom\",\"name\":\"p\",\"description\":\"d\",\"format\":{\"type\":\"grammar\",\"syntax\":\"lark\",\"definition\":\"start: /(.|\\\\n)*/\"}}"

static const char *body_with(const char *fields)
{
    static char body[1 << 14];
    snprintf(body, sizeof body, "{%s}", fields);
    return body;
}

static void refuses(const char *fields, const char *param)
{
    refuses_as(&dialect_responses, body_with(fields), 400, param, "");
}

static void prompt_is(const char *fields, const char *want)
{
    struct call c;
    ask_ok(&c, &dialect_responses, body_with(fields));
    assert_string_equal(prompt_text(&c, 0), want);
    call_free(&c);
}

/* ---------------------------------------------------------------- the request */

static void what_is_wrong_is_named(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        { "\"model\":\"tiny\"", "input" },
        { "\"input\":[]", "input" },
        { "\"input\":\"\"", "input" },
        { "\"input\":5", "input" },
        { "\"input\":[5]", "input[0]" },
        { "\"input\":[{\"type\":5}]", "input[0].type" },
        { "\"input\":[{\"role\":\"tool\",\"content\":\"x\"}]", "input[0].role" },
        { "\"input\":[{\"role\":\"user\"}]", "input[0].content" },
        { "\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"a\"},{\"type\":\"input_image\"}]}]",
          "input[0].content[1]" },
        { "\"input\":[{\"role\":\"user\",\"content\":\"a\"},{\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"w\"}]",
          "input[1]" },
        { "\"input\":[{\"type\":\"custom_tool_call\",\"call_id\":\"c\",\"name\":\"w\",\"arguments\":\"{}\"}]",
          "input[0]" },
        { "\"input\":[{\"type\":\"function_call_output\",\"output\":\"x\"}]", "input[0]" },
        { "\"input\":[{\"type\":\"function_call_output\",\"call_id\":\"c\"}]", "input[0]" },
        { "\"input\":\"x\",\"instructions\":5", "instructions" },
        { "\"input\":\"x\",\"max_output_tokens\":0", "max_output_tokens" },
        { "\"input\":\"x\",\"text\":{\"format\":{\"type\":\"xml\"}}", "text.format.type" },
        { "\"input\":\"x\",\"reasoning\":{\"effort\":\"huge\"}", "reasoning.effort" },
        { "\"input\":\"x\",\"include\":[5]", "include" },
        { "\"input\":\"x\",\"truncation\":\"left\"", "truncation" },
        { "\"input\":\"x\",\"conversation\":\"c\"", "conversation" },
        { "\"input\":\"x\",\"prompt\":{\"id\":\"p\"}", "prompt" },
        { "\"input\":\"x\",\"background\":true", "background" },
        { "\"input\":\"x\",\"metadata\":{\"a\":5}", "metadata" },
        { "\"input\":\"x\",\"tools\":[5]", "tools[0]" },
        { "\"input\":\"x\",\"tools\":[{\"type\":\"namespace\",\"tools\":[]}]", "tools[0].name" },
        { "\"input\":\"x\",\"tools\":[{\"type\":\"namespace\",\"name\":\"n\"}]", "tools[0].tools" },
        { "\"input\":\"x\",\"tools\":[{\"type\":\"namespace\",\"name\":\"n\\u0000m\",\"tools\":[]}]", "tools[0].name" },
        { "\"input\":\"x\",\"tools\":[{\"type\":\"namespace\",\"name\":\"n\",\"tools\":[5]}]", "tools[0].tools[0]" },
        { "\"input\":\"x\",\"tools\":[" W ",{\"type\":\"namespace\",\"name\":\"a b\",\"tools\":[" W "]}]",
          "tools[1].function.name" },
        { "\"input\":\"x\",\"tools\":[{\"type\":\"function\"}]", "tools[0].function.name" },
        { "\"input\":\"x\",\"tools\":[{\"type\":\"custom\",\"name\":\"p\",\"format\":{\"type\":\"grammar\",\"syntax\":\"lark\","
          "\"definition\":\"start: a\"}}]",
          "tools[0].custom.format" },
        { "\"input\":\"x\",\"tools\":[" W "],\"tool_choice\":{\"type\":\"function\",\"name\":\"v\"}", "tool_choice" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) refuses(bad[i][0], bad[i][1]);
    refuses_as(&dialect_responses, body_with("\"input\":\"x\",\"previous_response_id\":\"resp_1\""), 404,
               "previous_response_id", "previous_response_not_found");
    refuses("\"input\":\"x\",\"previous_response_id\":\"resp_1\",\"conversation\":\"c\"", "conversation");
    refuses_as(&dialect_responses, body_with("\"input\":\"x\",\"model\":\"other\""), 404, "model", "model_not_found");
}

static void what_clients_send_besides_is_taken(void **state)
{
    (void)state;
    static const char *const good[] = {
        "\"input\":\"x\",\"store\":true,\"user\":\"u\",\"service_tier\":\"auto\",\"max_tool_calls\":4,\"stream_options\":{},\"background\":false",
        "\"input\":\"x\",\"tools\":[{\"type\":\"web_search\"},{\"type\":\"namespace\",\"name\":\"n\",\"tools\":[]}],\"tool_choice\":\"auto\"",
        "\"input\":\"x\",\"tools\":[" W "," PATCH "],\"parallel_tool_calls\":false",
        "\"input\":\"x\",\"text\":{\"format\":{\"type\":\"json_schema\",\"name\":\"n\",\"schema\":{\"type\":\"object\"}},\"verbosity\":\"low\"}",
        "\"input\":\"x\",\"top_logprobs\":3,\"include\":[]",
        "\"input\":\"x\",\"max_output_tokens\":32000",
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) accepts(&dialect_responses, body_with(good[i]));
}

static void metadata_is_measured_in_characters(void **state)
{
    (void)state;
    for (int more = 0; more < 6; more++) {
        struct buf body;
        size_t     n_key = 64 + (more & 1), n_value = 512 + (size_t)(more >> 1 & 1);
        buf_init(&body, 1 << 16);
        buf_puts(&body, "\"input\":\"x\",\"metadata\":{\"");
        for (size_t i = 0; i < n_key; i++) buf_puts(&body, "\xc3\xb6");
        buf_puts(&body, more < 4 ? "\":\"" : "\":\"\\u0000"); /* which is a character too */
        for (size_t i = 0; i < n_value; i++) buf_puts(&body, "\xe6\xb5\xb7");
        buf_puts(&body, "\"}");
        if (more)
            refuses(buf_cstr(&body), "metadata");
        else
            accepts(&dialect_responses, body_with(buf_cstr(&body)));
        buf_free(&body);
    }
}

static void items_become_the_prompt_of_a_chat(void **state)
{
    (void)state;
    prompt_is("\"input\":\"Hi\",\"instructions\":\"S\"", "[258]system\nS[259]\n[258]user\nHi[259]\n[258]assistant\n");
    prompt_is(
        "\"instructions\":\"S\",\"input\":[{\"role\":\"developer\",\"content\":\"D\"},{\"role\":\"user\",\"content\":\"q\"},"
        "{\"type\":\"reasoning\",\"summary\":[{\"text\":\"no\"}],\"content\":[{\"type\":\"reasoning_text\",\"text\":\"hm\"}]},"
        "{\"type\":\"message\",\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\",\"text\":\"I look.\"}]},"
        "{\"type\":\"function_call\",\"id\":\"fc_1\",\"call_id\":\"c1\",\"name\":\"w\",\"arguments\":\"{\\\"b\\\": 1}\",\"status\":\"completed\"},"
        "{\"type\":\"custom_tool_call\",\"call_id\":\"c2\",\"name\":\"p\",\"input\":\"x\"},{\"type\":\"item_reference\",\"id\":\"i\"},"
        "{\"type\":\"function_call_output\",\"call_id\":\"c1\",\"output\":{\"t\":[1]}},"
        "{\"type\":\"custom_tool_call_output\",\"call_id\":\"c2\",\"output\":[{\"type\":\"input_text\",\"text\":\"a\"},{\"type\":\"input_image\"}]},"
        "{\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"and?\"}]}]",
        "[258]system\nS\nD[259]\n[258]user\nq[259]\n[258]assistant\n<think>hm</think>I look.<tool_call>c1 w {\"b\": 1}</tool_call>"
        "<tool_call>c2 p {\"input\": \"x\"}</tool_call>[259]\n[258]toolc1\n{\"t\":[1]}[259]\n[258]toolc2\na\n[image omitted][259]\n"
        "[258]user\nand?[259]\n[258]assistant\n");
    /* ours, and ciphertext of others */
    prompt_is(
        "\"input\":[{\"role\":\"user\",\"content\":\"q\"},{\"type\":\"reasoning\",\"encrypted_content\":\"AWht\"},"
        "{\"role\":\"assistant\",\"content\":\"a\"},{\"type\":\"reasoning\",\"encrypted_content\":\"gAAAAABo\"},"
        "{\"type\":\"reasoning\",\"encrypted_content\":\"AWhtbQ==\"},{\"role\":\"user\",\"content\":\"r\"}]",
        "[258]user\nq[259]\n[258]assistant\n<think>hm\nhmm</think>a[259]\n[258]user\nr[259]\n[258]assistant\n");
    prompt_is(
        "\"input\":\"Hi\",\"tools\":[{\"type\":\"web_search\"}," PATCH "]",
        "<tools>{\"type\": \"function\", \"function\": {\"name\": \"p\", \"description\": \"d\", \"parameters\": {\"type\": \"object\", "
        "\"properties\": {\"input\": {\"type\": \"string\"}}, \"required\": [\"input\"]}}}</tools>[258]user\nHi[259]\n[258]assistant\n");
}

/* ---------------------------------------------------------------- answers */

static void run(struct call *c, const char *fields, const char *text, enum eng_finish finish)
{
    buf_init(&out, 4 << 20);
    ask_ok(c, &dialect_responses, body_with(fields));
    bool over = say(c, 0, text, &out);
    if (over || finish != ENG_STOP)
        answer_choice_end(c, 0, over ? ENG_STOP : finish, &out);
    else
        end_eos(c, 0, &out);
    answer_end(c, &out);
    call_free(c);
}

/* The last event of a stream, whose numbers have no gap; types: all of them, one a line. */
static json_t *last_event(char *types, size_t bytes)
{
    json_t *last = NULL;
    int     n = 0;
    *types = 0;
    for (char *p = (char *)(uintptr_t)buf_cstr(&out); *p;) {
        struct json_error je;
        char             *end = strstr(p, "\n\n"), *data = strstr(p, "\ndata: ");
        assert_true(end && data && data < end);
        json_decref(last);
        last = json_parse(data + 7, (size_t)(end - data) - 7, 0, &je);
        assert_non_null(last);
        assert_int_equal(int_at(last, "sequence_number"), n++);
        snprintf(types + strlen(types), bytes - strlen(types), "%.*s\n", (int)(data - p - 7), p + 7);
        p = end + 2;
    }
    return last;
}

/* Ids are of the call; what differs between two calls goes away. */
static json_t *plain(json_t *response)
{
    json_t *item;
    size_t  i;
    assert_memory_equal(str_at(response, "id"), "resp_", 5);
    json_object_set_new(response, "id", json_string("")); /* it is drawn */
    assert_true(json_object_get(response, "created_at") != NULL);
    json_object_del(response, "created_at"); /* a second may begin between the two */
    json_array_foreach(json_object_get(response, "output"), i, item)
    {
        assert_non_null(json_object_get(item, "id"));
        json_object_del(item, "id");
        json_object_del(item, "call_id");
    }
    return response;
}

static void both_are(const char *fields, const char *text, enum eng_finish finish, const char *output,
                     const char *status)
{
    struct call c;
    char        streamed[3000], types[1 << 14];
    run(&c, fields, text, finish);
    json_t *a = plain(body_of(&out));
    buf_free(&out);
    snprintf(streamed, sizeof streamed, "\"stream\":true,%s", fields);
    run(&c, streamed, text, finish);
    json_t           *last = last_event(types, sizeof types), *b = plain(json_object_get(last, "response"));
    struct json_error je;
    json_t           *want = json_parse(output, strlen(output), 0, &je);
    assert_non_null(want);
    if (!json_equal(json_object_get(a, "output"), want)) fail_msg("%s", json_dumps(json_object_get(a, "output"), 0));
    assert_string_equal(str_at(a, "status"), status);
    if (!json_equal(a, b)) fail_msg("%s\n%s", json_dumps(a, JSON_COMPACT), json_dumps(b, JSON_COMPACT));
    assert_memory_equal(types, "response.created\nresponse.in_progress\nresponse.output_item.added\n", 65);
    json_decref(a);
    json_decref(last);
    json_decref(want);
    buf_free(&out);
}

#define MESSAGE(text, status)                                                           \
    "{\"type\":\"message\",\"status\":\"" status                                        \
    "\",\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\",\"text\":\"" text \
    "\",\"annotations\":[],\"logprobs\":[]}]}"
#define CALL "<tool_call>\n{\"name\": \"w\", \"arguments\": {\"city\": \"R\xc3\xb6m\"}}\n</tool_call>"

static void a_stream_comes_to_the_same_as_the_whole(void **state)
{
    (void)state;
    both_are("\"input\":\"x\"", "All \"well\"", ENG_STOP, "[" MESSAGE("All \\\"well\\\"", "completed") "]",
             "completed");
    both_are("\"input\":\"x\"", "", ENG_STOP, "[" MESSAGE("", "completed") "]", "completed");
    both_are("\"input\":\"x\"", "All", ENG_LENGTH, "[" MESSAGE("All", "incomplete") "]", "incomplete");
    both_are("\"input\":\"x\",\"tools\":[" W "]", "I look." CALL, ENG_STOP,
             "[" MESSAGE("I look.", "completed") ",{\"type\":\"function_call\",\"status\":\"completed\",\"name\":\"w\","
                                                 "\"arguments\":\"{\\\"city\\\": \\\"R\xc3\xb6m\\\"}\"}]",
             "completed");
    both_are(
        "\"input\":\"x\",\"tools\":[" W "]", "<tool_call>\n{\"name\": \"w\", \"arguments\": {\"city\": \"R", ENG_LENGTH,
        "[{\"type\":\"function_call\",\"status\":\"incomplete\",\"name\":\"w\",\"arguments\":\"{\\\"city\\\": \\\"R\"}]",
        "incomplete");
    both_are("\"input\":\"x\",\"tools\":[" PATCH "]",
             "<tool_call>\n{\"name\": \"p\", \"arguments\": {\"input\": \"a\\nb\"}}\n</tool_call>", ENG_STOP,
             "[{\"type\":\"custom_tool_call\",\"status\":\"completed\",\"name\":\"p\",\"input\":\"a\\nb\"}]",
             "completed");
    /* one that is cut off has as much of its text as there is */
    static const char *const cut[][2] = { { "{\"input\": \"a\\nb", "a\\nb" },
                                          { "{\"input\": \"a\\", "a" },
                                          { "{\"input\": \"a\\ud83d\\u", "a" },
                                          { "{\"input\": \"a\\\"", "a\\\"" },
                                          { "{\"input\": \"", "" },
                                          { "{\"inp", "" },
                                          { "", "" },
                                          { "{\"in\": \"a\\", "{\\\"in\\\": \\\"a\\\\" } };
    for (size_t i = 0; i < sizeof cut / sizeof *cut; i++) {
        char text[200], want[300];
        snprintf(text, sizeof text, "<tool_call>\n{\"name\": \"p\", \"arguments\": %s", cut[i][0]);
        snprintf(want, sizeof want,
                 "[{\"type\":\"custom_tool_call\",\"status\":\"incomplete\",\"name\":\"p\",\"input\":\"%s\"}]",
                 cut[i][1]);
        both_are("\"input\":\"x\",\"tools\":[" PATCH "]", text, ENG_LENGTH, want, "incomplete");
    }
    both_are(
        "\"input\":\"x\",\"chat_template_kwargs\":{\"enable_thinking\":true},\"include\":[\"reasoning.encrypted_content\"]",
        "hm</think>\n\nSun", ENG_STOP,
        "[{\"type\":\"reasoning\",\"status\":\"completed\",\"summary\":[],\"encrypted_content\":\"AWht\","
        "\"content\":[{\"type\":\"reasoning_text\",\"text\":\"hm\"}]}," MESSAGE("Sun", "completed") "]",
        "completed");
}

#define SPACE \
    "{\"type\":\"namespace\",\"name\":\"n\",\"description\":\"d\",\"tools\":[" W ",{\"type\":\"web_search\"}]}"

/* Coding agents send a grammar to every model. Harmony's header is a token in its models, and none here: then only a
 * call that is demanded is bound. */
static void the_grammar_of_a_custom_tool_binds_where_calls_can_be_told(void **state)
{
    (void)state;
    static const char *const rows[] = { "hermes", "llama_json", "pythonic", "harmony" };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct call c;
        family_init(&family, world.tmpl, world.tok, rows[i], "auto");
        ask_ok(&c, &dialect_responses, body_with("\"input\":\"x\",\"tools\":[" PATCH "]"));
        assert_int_equal(c.grammar != NULL, i < 3);
        call_free(&c);
        if (i == 3) continue; /* a header that is spelled cannot be demanded */
        ask_ok(&c, &dialect_responses, body_with("\"input\":\"x\",\"tool_choice\":\"required\",\"tools\":[" PATCH "]"));
        assert_non_null(c.grammar);
        assert_non_null(c.tools->tool[0].grammar);
        call_free(&c);
    }
    family_init(&family, world.tmpl, world.tok, "auto", "auto");
}

static void a_tool_of_a_namespace_has_two_names(void **state)
{
    (void)state;
    both_are(
        "\"input\":\"x\",\"tools\":[" W "," SPACE "]",
        "<tool_call>\n{\"name\": \"n__w\", \"arguments\": {\"city\": \"a\"}}\n</tool_call>"
        "<tool_call>\n{\"name\": \"w\", \"arguments\": {}}\n</tool_call>",
        ENG_STOP,
        "[{\"type\":\"function_call\",\"status\":\"completed\",\"name\":\"w\",\"namespace\":\"n\",\"arguments\":\"{\\\"city\\\": "
        "\\\"a\\\"}\"},{\"type\":\"function_call\",\"status\":\"completed\",\"name\":\"w\",\"arguments\":\"{}\"}]",
        "completed");
    prompt_is(
        "\"input\":[{\"role\":\"user\",\"content\":\"q\"},{\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"w\","
        "\"namespace\":\"n\",\"arguments\":\"{}\"},{\"type\":\"function_call_output\",\"call_id\":\"c\",\"output\":\"o\"}]",
        "[258]user\nq[259]\n[258]assistant\n<tool_call>c n__w {}</tool_call>[259]\n[258]toolc\no[259]\n[258]assistant\n");
    accepts(&dialect_responses,
            body_with("\"input\":\"x\",\"tools\":[" W "," SPACE
                      "],\"tool_choice\":{\"type\":\"function\",\"namespace\":\"n\",\"name\":\"w\"}"));
}

static void the_response_has_what_was_asked_for(void **state)
{
    (void)state;
    struct call c;
    run(&c,
        "\"input\":\"x\",\"instructions\":\"S\",\"metadata\":{\"a\":\"b\"},\"temperature\":0.5,\"tools\":[" W
        "],\"tool_choice\":\"none\","
        "\"max_output_tokens\":20,\"text\":{\"format\":{\"type\":\"text\"},\"verbosity\":\"low\"}",
        "abc", ENG_STOP);
    json_t *v = body_of(&out);
    assert_string_equal(str_at(v, "object"), "response");
    assert_string_equal(str_at(v, "instructions"), "S");
    assert_string_equal(str_at(v, "metadata.a"), "b");
    assert_string_equal(str_at(v, "tools.0.name"), "w");
    assert_string_equal(str_at(v, "tool_choice"), "none");
    assert_string_equal(str_at(v, "text.verbosity"), "low");
    assert_string_equal(str_at(v, "truncation"), "disabled");
    assert_int_equal(int_at(v, "max_output_tokens"), 20);
    assert_int_equal(int_at(v, "usage.output_tokens"), 4);
    assert_int_equal(int_at(v, "usage.total_tokens"), 4 + int_at(v, "usage.input_tokens"));
    static const char *const there[] = { "created_at",
                                         "parallel_tool_calls",
                                         "previous_response_id",
                                         "reasoning",
                                         "store",
                                         "temperature",
                                         "top_p",
                                         "error",
                                         "incomplete_details",
                                         "background" };
    for (size_t i = 0; i < sizeof there / sizeof *there; i++) assert_non_null(at(v, there[i]));
    json_decref(v);
    buf_free(&out);
}

static void a_stream_that_fails_ends_with_the_response(void **state)
{
    (void)state;
    for (int begun = 0; begun < 2; begun++) {
        struct call      c;
        struct api_error e;
        char             types[2000];
        buf_init(&out, 1 << 20);
        ask_ok(&c, &dialect_responses, body_with("\"stream\":true,\"input\":\"x\""));
        if (begun) say(&c, 0, "ab", &out);
        api_fail(&e, 500, "", "it broke");
        answer_fail(&c, &e, &out);
        json_t *last = last_event(types, sizeof types);
        assert_memory_equal(types, "response.created\n", 17);
        assert_string_equal(str_at(last, "type"), "response.failed");
        assert_string_equal(str_at(last, "response.status"), "failed");
        assert_string_equal(str_at(last, "response.error.code"), "server_error");
        assert_string_equal(str_at(last, "response.error.message"), "it broke");
        json_decref(last);
        call_free(&c);
        buf_free(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(what_clients_send_besides_is_taken),
        cmocka_unit_test(metadata_is_measured_in_characters),
        cmocka_unit_test(items_become_the_prompt_of_a_chat),
        cmocka_unit_test(a_stream_comes_to_the_same_as_the_whole),
        cmocka_unit_test(the_grammar_of_a_custom_tool_binds_where_calls_can_be_told),
        cmocka_unit_test(a_tool_of_a_namespace_has_two_names),
        cmocka_unit_test(the_response_has_what_was_asked_for),
        cmocka_unit_test(a_stream_that_fails_ends_with_the_response),
    };
    return cmocka_run_group_tests(tests, open_with_tools, world_close);
}
