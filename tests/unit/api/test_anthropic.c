#include "tools_world.h"

/* Requests and answers of the Messages API. */

#define W \
    "{\"name\":\"w\",\"description\":\"d\",\"input_schema\":{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\"}}}}"
#define HI "\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]"

static const char *body_with(const char *fields)
{
    static char body[1 << 14];
    snprintf(body, sizeof body, "{\"max_tokens\":200,%s}", fields);
    return body;
}

static void refuses(const char *fields, const char *param)
{
    refuses_as(&dialect_messages, body_with(fields), 400, param, "");
}

static void prompt_is(const char *fields, const char *want)
{
    struct call c;
    ask_ok(&c, &dialect_messages, body_with(fields));
    assert_string_equal(prompt_text(&c, 0), want);
    call_free(&c);
}

/* ---------------------------------------------------------------- the request */

static void what_is_wrong_is_named(void **state)
{
    (void)state;
    refuses_as(&dialect_messages, "{" HI "}", 400, "max_tokens", "");
    refuses_as(&dialect_messages, "{\"max_tokens\":0," HI "}", 400, "max_tokens", "");
    refuses_as(&dialect_messages, body_with("\"model\":\"other\"," HI), 404, "model", "model_not_found");
    static const char *const bad[][2] = {
        { "\"messages\":[]", "messages" },
        { "\"messages\":5", "messages" },
        { "\"system\":\"s\"", "messages" },
        { "\"messages\":[5]", "messages.0" },
        { "\"messages\":[{\"role\":\"tool\",\"content\":\"x\"}]", "messages.0.role" },
        { "\"messages\":[{\"role\":\"user\"}]", "messages.0.content" },
        { "\"messages\":[{\"role\":\"user\",\"content\":[5]}]", "messages.0.content.0" },
        { "\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}]", "messages.0.content.0" },
        { "\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"image\"}]}]",
          "messages.0.content.1" },
        { "\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"tool_use\",\"id\":\"a\",\"name\":\"b\",\"input\":{}}]}]",
          "messages.0.content.0" },
        { "\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\"}]}]", "messages.0.content.0" },
        { "\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"document\",\"source\":{\"type\":\"base64\",\"data\":\"\"}}]}]",
          "messages.0.content.0" },
        { "\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":[{\"type\":\"tool_use\",\"id\":\"a\","
          "\"name\":\"w\",\"input\":\"no object\"}]}]",
          "messages.1.content.0" },
        { "\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":[{\"type\":\"tool_use\",\"id\":\"a\","
          "\"name\":\"w\",\"input\":{}}]}]",
          "messages" },
        { "\"messages\":[{\"role\":\"assistant\",\"content\":\"\"}]", "messages" },
        { HI ",\"system\":5", "system" },
        { HI ",\"system\":[{\"type\":\"image\"}]", "system" },
        { HI ",\"temperature\":3", "temperature" },
        { HI ",\"stop_sequences\":\"a\"", "stop_sequences" },
        { HI ",\"stop_sequences\":[\" \\n\"]", "stop_sequences" },
        { HI ",\"thinking\":{\"type\":\"often\"}", "thinking.type" },
        { HI ",\"thinking\":{\"type\":\"enabled\"}", "thinking.budget_tokens" },
        { HI ",\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":200}", "thinking.budget_tokens" },
        { HI ",\"output_config\":{\"effort\":\"huge\"}", "output_config.effort" },
        { HI ",\"output_config\":{\"format\":{\"type\":\"text\"}}", "output_config.format.type" },
        { HI ",\"output_config\":{\"format\":{\"type\":\"json_schema\"}}", "output_config.format.schema" },
        { HI ",\"tools\":[5]", "tools.0" },
        { HI ",\"tools\":[{\"input_schema\":{}}]", "tools.0.name" },
        { HI ",\"tools\":[" W ",{\"name\":\"v\"}]", "tools.1.input_schema" },
        { HI ",\"tools\":[" W "],\"tool_choice\":{\"type\":\"some\"}", "tool_choice.type" },
        { HI ",\"tools\":[" W "],\"tool_choice\":{\"type\":\"tool\"}", "tool_choice.name" },
        { HI ",\"tools\":[" W "],\"tool_choice\":{\"type\":\"tool\",\"name\":\"v\"}", "tool_choice" },
        { HI ",\"tools\":[" W "],\"tool_choice\":{\"type\":\"auto\",\"disable_parallel_tool_use\":1}",
          "tool_choice.disable_parallel_tool_use" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) refuses(bad[i][0], bad[i][1]);
    struct call      c;
    struct api_error e;
    assert_int_equal(ask(&c, &dialect_messages, body_with("\"messages\":[{\"role\":\"user\",\"content\":[]}]"), &e),
                     ST_INVALID);
    assert_non_null(strstr(e.message, "nothing to answer"));
    call_free(&c);
    refuses_as(&dialect_messages, body_with("\"thread\":{\"type\":\"create\"}," HI), 400, "thread",
               "thread_unsupported_request");
}

static void what_clients_send_besides_is_taken(void **state)
{
    (void)state;
    static const char *const good[] = {
        HI
        ",\"metadata\":{\"user_id\":\"u\"},\"service_tier\":\"auto\",\"cache_control\":{\"type\":\"ephemeral\"},\"top_k\":5",
        HI ",\"system\":[{\"type\":\"text\",\"text\":\"s\",\"cache_control\":{\"type\":\"ephemeral\"}}]",
        HI ",\"tools\":[{\"type\":\"web_search_20250305\",\"name\":\"web_search\"}]",
        HI ",\"tools\":[" W "],\"tool_choice\":{\"type\":\"auto\",\"disable_parallel_tool_use\":true}",
        HI ",\"tools\":[],\"thread\":null",
        HI ",\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":100}",
        HI ",\"output_config\":{\"format\":{\"type\":\"json_schema\",\"schema\":{\"type\":\"object\"}}}",
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) accepts(&dialect_messages, body_with(good[i]));
}

static void turns_become_the_prompt_of_a_chat(void **state)
{
    (void)state;
    prompt_is("\"system\":\"S\"," HI, "[258]system\nS[259]\n[258]user\nHi[259]\n[258]assistant\n");
    prompt_is(
        "\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"b\"},"
        "{\"type\":\"document\",\"source\":{\"type\":\"text\",\"data\":\"c\"}}]}]",
        "[258]user\na\nb\nc[259]\n[258]assistant\n");
    prompt_is(
        "\"messages\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":["
        "{\"type\":\"thinking\",\"thinking\":\"hm\",\"signature\":\"x\"},{\"type\":\"redacted_thinking\",\"data\":\"z\"},"
        "{\"type\":\"text\",\"text\":\"I look.\"},{\"type\":\"tool_use\",\"id\":\"t1\",\"name\":\"w\",\"input\":{\"b\":1,\"a\":[2]}},"
        "{\"type\":\"tool_use\",\"id\":\"t2\",\"name\":\"w\",\"input\":{}}]},"
        "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"and?\"},"
        "{\"type\":\"tool_result\",\"tool_use_id\":\"t1\",\"content\":\"sun\"},"
        "{\"type\":\"tool_result\",\"tool_use_id\":\"t2\",\"is_error\":true,\"content\":[{\"type\":\"text\",\"text\":\"no\"},"
        "{\"type\":\"image\",\"source\":{}}]}]}]",
        "[258]user\nq[259]\n[258]assistant\n<think>hm</think>I look.<tool_call>t1 w {\"b\": 1, \"a\": [2]}</tool_call>"
        "<tool_call>t2 w {}</tool_call>[259]\n[258]toolt1\nsun[259]\n[258]toolt2\nError: no\n[image omitted][259]\n"
        "[258]user\nand?[259]\n[258]assistant\n");
    prompt_is(
        "\"tools\":[{\"type\":\"bash_20250124\",\"name\":\"bash\"}," W "]," HI,
        "<tools>{\"type\": \"function\", \"function\": {\"name\": \"w\", \"description\": \"d\", \"parameters\": {\"type\": \"object\", "
        "\"properties\": {\"city\": {\"type\": \"string\"}}}}}</tools>[258]user\nHi[259]\n[258]assistant\n");
    prompt_is("\"thinking\":{\"type\":\"adaptive\"},\"output_config\":{\"effort\":\"low\"}," HI,
              "[258]user\nHi[259]\n[258]assistant\n<think>\nRlow");
    prompt_is("\"thinking\":{\"type\":\"disabled\"},\"output_config\":{\"effort\":\"low\"}," HI,
              "[258]user\nHi[259]\n[258]assistant\nRlow");
}

static void what_a_tool_returns_is_text_as_far_as_it_has_any(void **state)
{
    (void)state;
    prompt_is(
        "\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"t\",\"content\":["
        "{\"type\":\"document\",\"source\":{\"type\":\"text\",\"media_type\":\"text/plain\",\"data\":\"a\"}},"
        "{\"type\":\"document\",\"source\":{\"type\":\"base64\",\"media_type\":\"application/pdf\",\"data\":\"QQ==\"}},"
        "{\"type\":\"search_result\",\"source\":\"u\",\"title\":\"v\",\"content\":[{\"type\":\"text\",\"text\":\"b\"},5,"
        "{\"type\":\"text\",\"text\":\"c\"}]},{\"type\":\"tool_reference\",\"tool_name\":\"x\"},{\"type\":\"new<|im_end|>\"}]}]}]",
        "[258]toolt\na\n[document omitted]\nb\nc\n\n[new<|im_end|> omitted][259]\n[258]assistant\n");
    refuses(
        "\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"t\",\"content\":[5]}]}]",
        "messages.0.content.0");
}

static void control_tokens_in_blocks_stay_text(void **state)
{
    (void)state;
    struct call c;
    ask_ok(
        &c, &dialect_messages,
        body_with(
            "\"system\":\"<|im_end|>\",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"<|im_start|>\"}]},"
            "{\"role\":\"assistant\",\"content\":[{\"type\":\"tool_use\",\"id\":\"<s>\",\"name\":\"w\",\"input\":{\"<|im_end|>\":1}}]},"
            "{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"<s>\",\"content\":\"<|im_end|>\"}]}]"));
    uint32_t n_start = 0, n_end = 0, n_bos = 0;
    for (uint32_t k = 0; k < c.prompt[0].n_id; k++) {
        n_start += c.prompt[0].id[k] == IM_START;
        n_end += c.prompt[0].id[k] == IM_END;
        n_bos += c.prompt[0].id[k] == BOS;
    }
    assert_int_equal(n_start, 5); /* four messages and the answer's header */
    assert_int_equal(n_end, 4);
    assert_int_equal(n_bos, 0);
    call_free(&c);
}

static void a_clients_numbers_do_not_enter_the_prompt(void **state)
{
    (void)state;
    prompt_is("\"system\":[{\"type\":\"text\",\"text\":\"x-anthropic-billing-header: cc_version=1.2; id=77\"},"
              "{\"type\":\"text\",\"text\":\"S\"}]," HI,
              "[258]system\nS[259]\n[258]user\nHi[259]\n[258]assistant\n");
    prompt_is("\"system\":\"x-anthropic-billing-header: 5\"," HI, "[258]user\nHi[259]\n[258]assistant\n");
    /* what a gateway has made one text of loses that line alone */
    prompt_is("\"system\":\"x-anthropic-billing-header: 5\\nS\\nT\"," HI,
              "[258]system\nS\nT[259]\n[258]user\nHi[259]\n[258]assistant\n");
    prompt_is("\"system\":[{\"type\":\"text\",\"text\":\"x-anthropic-billing-header: 5\\n\"}]," HI,
              "[258]user\nHi[259]\n[258]assistant\n");
}

static void notes_between_turns_are_the_users(void **state)
{
    (void)state;
    prompt_is(
        "\"system\":\"S\",\"messages\":[{\"role\":\"system\",\"content\":\"T\"},{\"role\":\"user\",\"content\":\"a\"},"
        "{\"role\":\"system\",\"content\":\"b\"},{\"role\":\"ctx\",\"content\":\"c\"},{\"role\":\"assistant\",\"content\":\"d\"},"
        "{\"role\":\"msg\",\"content\":\"e\"}]",
        "[258]system\nS\nT[259]\n[258]user\na\nb\nc[259]\n[258]assistant\nd[259]\n[258]user\ne[259]\n[258]assistant\n");
}

static void an_answer_that_was_begun_is_continued(void **state)
{
    (void)state;
    prompt_is("\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"It is\"}]",
              "[258]user\na[259]\n[258]assistant\nIt is");
}

static void a_long_prompt_says_how_long(void **state)
{
    (void)state;
    struct call      c;
    struct api_error e;
    const char      *body =
        long_text("{\"max_tokens\":5,\"messages\":[{\"role\":\"user\",\"content\":\"", "abcde", 300, "\"}]}");
    assert_int_equal(ask(&c, &dialect_messages, body, &e), ST_INVALID);
    assert_string_equal(e.message, "prompt is too long: 1519 tokens > 999 maximum");
    call_free(&c);
    /* of output, what has room */
    body = long_text("{\"max_tokens\":32000,\"messages\":[{\"role\":\"user\",\"content\":\"", "abcde", 100, "\"}]}");
    ask_ok(&c, &dialect_messages, body);
    assert_int_equal(c.s.max_tokens, CONTEXT - c.prompt[0].n_id);
    call_free(&c);
}

static void the_count_is_that_of_the_prompt(void **state)
{
    (void)state;
    static const char fields[] = "\"system\":\"S<|im_end|>\",\"tools\":[" W "]," HI;
    struct call       c;
    struct api_error  e;
    ask_ok(&c, &dialect_messages, body_with(fields));
    uint32_t n = c.prompt[0].n_id;
    call_free(&c);
    char body[1000];
    snprintf(body, sizeof body, "{%s}", fields); /* without max_tokens */
    buf_init(&out, 1000);
    assert_int_equal(api_count_tokens(&world.m, body, strlen(body), &out, &e), ST_OK);
    json_t *v = body_of(&out);
    assert_int_equal(int_at(v, "input_tokens"), n);
    json_decref(v);
    buf_clear(&out);
    assert_int_equal(api_count_tokens(&world.m, "{}", 2, &out, &e), ST_INVALID);
    assert_string_equal(e.param, "messages");
    buf_free(&out);
}

/* ---------------------------------------------------------------- answers */

static void run(struct call *c, const char *fields, const char *text, enum eng_finish finish)
{
    buf_init(&out, 1 << 20);
    ask_ok(c, &dialect_messages, body_with(fields));
    bool over = say(c, 0, text, &out);
    if (over || finish != ENG_STOP)
        answer_choice_end(c, 0, over ? ENG_STOP : finish, &out);
    else
        end_eos(c, 0, &out);
    answer_end(c, &out);
    call_free(c);
}

static json_t *whole(const char *fields, const char *text, enum eng_finish finish)
{
    struct call c;
    run(&c, fields, text, finish);
    json_t *v = body_of(&out);
    buf_free(&out);
    return v;
}

/* What a client does with a stream: its events must follow the grammar, and together they are the whole message. */
static json_t *put_together(void)
{
    json_t *message = NULL, *content = NULL;
    size_t  open = SIZE_MAX;
    bool    over = false;
    for (char *p = (char *)(uintptr_t)buf_cstr(&out); *p;) {
        struct json_error je;
        char             *end = strstr(p, "\n\n"), *data = strstr(p, "\ndata: "), type[40];
        assert_non_null(end);
        assert_true(data && data < end);
        assert_memory_equal(p, "event: ", 7);
        snprintf(type, sizeof type, "%.*s", (int)(data - p - 7), p + 7);
        json_t *v = json_parse(data + 7, (size_t)(end - data) - 7, 0, &je);
        assert_string_equal(str_at(v, "type"), type);
        assert_false(over);
        if (!strcmp(type, "message_start")) {
            assert_null(message);
            message = json_incref(json_object_get(v, "message"));
            content = json_object_get(message, "content");
            assert_int_equal(json_array_size(content), 0);
        } else if (!strcmp(type, "content_block_start")) {
            assert_int_equal(open, SIZE_MAX);
            open = (size_t)int_at(v, "index");
            assert_int_equal(open, json_array_size(content));
            json_array_append(content, json_object_get(v, "content_block"));
        } else if (!strcmp(type, "content_block_stop")) {
            assert_int_equal(int_at(v, "index"), open);
            json_t *block = json_array_get(content, open), *args = json_object_get(block, "args");
            if (!strcmp(str_at(block, "type"), "tool_use")) {
                json_t *input = json_parse(json_string_value(args), json_string_length(args), 0, &je);
                json_object_set_new(block, "input", input ? input : json_object());
                json_object_del(block, "args");
            }
            open = SIZE_MAX;
        } else if (!strcmp(type, "content_block_delta")) {
            static const char *const kinds[][3] = { { "text_delta", "text", "text" },
                                                    { "thinking_delta", "thinking", "thinking" },
                                                    { "signature_delta", "signature", "signature" },
                                                    { "input_json_delta", "partial_json", "args" } };
            json_t                  *block = json_array_get(content, (size_t)int_at(v, "index"));
            assert_int_equal(int_at(v, "index"), open);
            for (size_t i = 0; i < 4; i++) {
                if (strcmp(str_at(v, "delta.type"), kinds[i][0])) continue;
                const char *before = json_string_value(json_object_get(block, kinds[i][2]));
                char        text[2000];
                snprintf(text, sizeof text, "%s%s", before ? before : "",
                         json_string_value(json_object_get(json_object_get(v, "delta"), kinds[i][1])));
                json_object_set_new(block, kinds[i][2], json_string(text));
            }
        } else if (!strcmp(type, "message_delta")) {
            assert_int_equal(open, SIZE_MAX);
            json_object_update(message, json_object_get(v, "delta"));
            json_object_set(message, "usage", json_object_get(v, "usage"));
        } else {
            assert_string_equal(type, "message_stop");
            over = true;
        }
        json_decref(v);
        p = end + 2;
    }
    assert_true(over);
    return message;
}

/* Ids are drawn: they must have the form of their kind and be different; then they become numbers. */
static void number_ids(json_t *message)
{
    json_t *content = json_object_get(message, "content"), *block;
    size_t  i;
    char    last[40] = "", id[20];
    int     n = 0;
    json_array_foreach(content, i, block)
    {
        if (!json_object_get(block, "id")) continue;
        const char *drawn = str_at(block, "id");
        assert_memory_equal(drawn, "toolu_", 6);
        assert_int_equal(strlen(drawn), 30);
        assert_string_not_equal(drawn, last);
        snprintf(last, sizeof last, "%s", drawn);
        snprintf(id, sizeof id, "toolu_%d", n++);
        json_object_set_new(block, "id", json_string(id));
    }
}

static void both_are(const char *fields, const char *text, enum eng_finish finish, const char *content,
                     const char *reason, const char *sequence)
{
    struct call c;
    char        streamed[3000];
    json_t     *a = whole(fields, text, finish);
    snprintf(streamed, sizeof streamed, "\"stream\":true,%s", fields);
    run(&c, streamed, text, finish);
    json_t           *b = put_together();
    struct json_error je;
    json_t           *want = json_parse(content, strlen(content), 0, &je);
    assert_non_null(want);
    number_ids(a);
    number_ids(b);
    if (!json_equal(json_object_get(a, "content"), want))
        fail_msg("%s", json_dumps(json_object_get(a, "content"), JSON_COMPACT));
    assert_string_equal(str_at(a, "stop_reason"), reason);
    assert_string_equal(sequence ? str_at(a, "stop_sequence") : "", sequence ? sequence : "");
    assert_true(sequence || null_at(a, "stop_sequence"));
    if (!json_equal(a, b)) fail_msg("%s\n%s", json_dumps(a, JSON_COMPACT), json_dumps(b, JSON_COMPACT));
    json_decref(a);
    json_decref(b);
    json_decref(want);
    buf_free(&out);
}

#define CALL "<tool_call>\n{\"name\": \"w\", \"arguments\": {\"city\": \"R\xc3\xb6m\"}}\n</tool_call>"

static void a_stream_comes_to_the_same_as_the_whole(void **state)
{
    (void)state;
    both_are(HI, "All \"well\"\n", ENG_STOP, "[{\"type\":\"text\",\"text\":\"All \\\"well\\\"\\n\"}]", "end_turn",
             NULL);
    both_are(HI, "", ENG_STOP, "[]", "end_turn", NULL);
    both_are(HI, "All", ENG_LENGTH, "[{\"type\":\"text\",\"text\":\"All\"}]", "max_tokens", NULL);
    both_are(HI ",\"stop_sequences\":[\"zz\",\"END\"]", "Once END of", ENG_STOP,
             "[{\"type\":\"text\",\"text\":\"Once \"}]", "stop_sequence", "END");
    both_are(
        HI ",\"tools\":[" W "]", "I look." CALL CALL, ENG_STOP,
        "[{\"type\":\"text\",\"text\":\"I look.\"},{\"type\":\"tool_use\",\"id\":\"toolu_0\",\"name\":\"w\",\"input\":{\"city\":\"R\xc3\xb6m\"}},"
        "{\"type\":\"tool_use\",\"id\":\"toolu_1\",\"name\":\"w\",\"input\":{\"city\":\"R\xc3\xb6m\"}}]",
        "tool_use", NULL);
    both_are(HI ",\"tools\":[" W "]", "<tool_call>\n{\"name\": \"w\", \"arguments\": {\"city\": \"R", ENG_LENGTH,
             "[{\"type\":\"tool_use\",\"id\":\"toolu_0\",\"name\":\"w\",\"input\":{}}]", "max_tokens", NULL);
    both_are(HI ",\"tools\":[" W "]", "<tool_call>\n{\"name\": \"w\", \"arguments\": {}}\n</tool_call>", ENG_STOP,
             "[{\"type\":\"tool_use\",\"id\":\"toolu_0\",\"name\":\"w\",\"input\":{}}]", "tool_use", NULL);
    both_are(
        HI ",\"thinking\":{\"type\":\"adaptive\"}", "hm</think>\n\nSun", ENG_STOP,
        "[{\"type\":\"thinking\",\"thinking\":\"hm\",\"signature\":\"spillway\"},{\"type\":\"text\",\"text\":\"Sun\"}]",
        "end_turn", NULL);
    both_are(
        HI ",\"thinking\":{\"type\":\"adaptive\",\"display\":\"omitted\"}", "hm</think>\n\nSun", ENG_STOP,
        "[{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"spillway\"},{\"type\":\"text\",\"text\":\"Sun\"}]",
        "end_turn", NULL);
}

static void usage_tells_cached_tokens_apart(void **state)
{
    (void)state;
    struct call c;
    buf_init(&out, 1 << 20);
    ask_ok(&c, &dialect_messages, body_with("\"stream\":true," HI));
    c.prompt[0].n_cached = 4;
    say(&c, 0, "abc", &out);
    end_eos(&c, 0, &out);
    answer_end(&c, &out);
    int64_t n = c.prompt[0].n_id;
    call_free(&c);
    json_t *v = put_together();
    assert_int_equal(int_at(v, "usage.input_tokens"), n - 4);
    assert_int_equal(int_at(v, "usage.cache_read_input_tokens"), 4);
    assert_int_equal(int_at(v, "usage.cache_creation_input_tokens"), 0);
    assert_int_equal(int_at(v, "usage.output_tokens"), 4);
    json_decref(v);
    buf_free(&out);
}

/* ---------------------------------------------------------------- errors */

static void errors_have_the_types_that_clients_know(void **state)
{
    (void)state;
    static const struct {
        int         http;
        const char *type;
    } types[] = { { 400, "invalid_request_error" }, { 401, "authentication_error" }, { 404, "not_found_error" },
                  { 413, "request_too_large" },     { 429, "rate_limit_error" },     { 500, "api_error" },
                  { 503, "overloaded_error" } };
    struct api_error e;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        buf_init(&out, 2000);
        api_fail(&e, types[i].http, "", "a \"text\"");
        snprintf(e.request_id, sizeof e.request_id, "r1");
        answer_error(&dialect_messages, &e, &out);
        json_t *v = body_of(&out);
        assert_string_equal(str_at(v, "type"), "error");
        assert_string_equal(str_at(v, "error.type"), types[i].type);
        assert_string_equal(str_at(v, "error.message"), "a \"text\"");
        assert_string_equal(str_at(v, "request_id"), "r1");
        json_decref(v);
        buf_free(&out);
    }
}

static void a_stream_that_fails_ends_with_an_error_event(void **state)
{
    (void)state;
    struct call      c;
    struct api_error e;
    buf_init(&out, 1 << 20);
    ask_ok(&c, &dialect_messages, body_with("\"stream\":true," HI));
    api_fail(&e, 500, "", "it broke");
    answer_fail(&c, &e, &out);
    assert_string_equal(
        buf_cstr(&out),
        "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"it broke\"},"
        "\"request_id\":\"x1\"}\n\n");
    assert_string_equal(answer_id_header(&dialect_messages), "request-id");
    call_free(&c);
    buf_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(what_clients_send_besides_is_taken),
        cmocka_unit_test(turns_become_the_prompt_of_a_chat),
        cmocka_unit_test(what_a_tool_returns_is_text_as_far_as_it_has_any),
        cmocka_unit_test(control_tokens_in_blocks_stay_text),
        cmocka_unit_test(a_clients_numbers_do_not_enter_the_prompt),
        cmocka_unit_test(notes_between_turns_are_the_users),
        cmocka_unit_test(an_answer_that_was_begun_is_continued),
        cmocka_unit_test(a_long_prompt_says_how_long),
        cmocka_unit_test(the_count_is_that_of_the_prompt),
        cmocka_unit_test(a_stream_comes_to_the_same_as_the_whole),
        cmocka_unit_test(usage_tells_cached_tokens_apart),
        cmocka_unit_test(errors_have_the_types_that_clients_know),
        cmocka_unit_test(a_stream_that_fails_ends_with_an_error_event),
    };
    return cmocka_run_group_tests(tests, open_with_tools, world_close);
}
