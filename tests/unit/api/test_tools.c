/* Requests with tools, and answers with calls and reasoning, as OpenAI's chats have them. Over 500 lines: requests
 * and answers of calls share the templates and the scripted model. */
#include "grammar_world.h"
#include "tools_world.h"

static const char tool_template[] =
    "{% if tools %}<tools>{% for t in tools %}{{ t | tojson }}{% endfor %}</tools>{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}{{ m.tool_call_id or '' }}\n{% if m.content is none %}NULL{% else %}{{ m.content }}{% endif %}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.id }} {{ c.function.name }} {{ c.function.arguments | tojson }}</tool_call>{% endfor %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% if enable_thinking %}<think>\n{% endif %}{% endif %}"
    "{# </think> #}";

static int tools_open(void **state) { return tools_world_open(state, tool_template); }

#define W                                                                                                                \
    "{\"type\":\"function\",\"function\":{\"name\":\"w\",\"parameters\":{\"type\":\"object\",\"properties\":{\"city\":{" \
    "\"type\":\"string\"}}}}}"
#define LARK(text)                                                                                                                             \
    "{\"type\":\"custom\",\"custom\":{\"name\":\"f\",\"format\":{\"type\":\"grammar\",\"grammar\":{\"syntax\":\"lark\",\"definition\":\"" text \
    "\"}}}}"
#define NOTE "{\"type\":\"custom\",\"custom\":{\"name\":\"note\",\"description\":\"d\"}}"

static void begin(struct call *c, const char *fields)
{
    ask_ok(c, &dialect_chat, with(&dialect_chat, fields));
    buf_init(&out, 4 << 20);
}

static json_t *whole(const char *fields, const char *text)
{
    struct call c;
    begin(&c, fields);
    bool over = say(&c, 0, text, &out);
    if (over)
        answer_choice_end(&c, 0, ENG_STOP, &out);
    else
        end_eos(&c, 0, &out);
    answer_end(&c, &out);
    json_t *v = body_of(&out);
    buf_free(&out);
    call_free(&c);
    return v;
}

static json_t *stream(const char *fields, const char *text)
{
    struct call c;
    char        all[2000];
    snprintf(all, sizeof all, "\"stream\":true%s%s", *fields ? "," : "", fields);
    begin(&c, all);
    bool over = say(&c, 0, text, &out);
    if (over)
        answer_choice_end(&c, 0, ENG_STOP, &out);
    else
        end_eos(&c, 0, &out);
    answer_end(&c, &out);
    json_t *v = frames_of(&out);
    buf_free(&out);
    call_free(&c);
    return v;
}

#define CALL "<tool_call>\n{\"name\": \"w\", \"arguments\": {\"city\": \"R\xc3\xb6m\"}}\n</tool_call>"

/* ---------------------------------------------------------------- requests */

static void tools_of_a_wrong_shape_are_refused_by_name(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        { "\"tools\":[1]", "tools[0]" },
        { "\"tools\":[{\"type\":\"web_search\"}]", "tools[0]" },
        { "\"tools\":[{\"type\":\"function\"}]", "tools[0].function" },
        { "\"tools\":[{\"type\":\"function\",\"function\":{}}]", "tools[0].function.name" },
        { "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a b\"}}]", "tools[0].function.name" },
        { "\"tools\":[" W "," W "]", "tools[1].function.name" },
        { "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":[]}}]",
          "tools[0].function.parameters" },
        { "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"strict\":1}}]",
          "tools[0].function.strict" },
        { "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"strict\":true,\"parameters\":{\"properties\":{"
          "\"a\":{\"not\":{\"format\":\"x\"}}}}}}]",
          "tools[0].function.parameters" },
        { "\"tools\":[{\"type\":\"custom\",\"custom\":{\"name\":\"f\",\"format\":{\"type\":\"grammar\"}}}]",
          "tools[0].custom.format" },
        { "\"tools\":[" LARK("start: a") "]", "tools[0].custom.format" },
        { "\"tools\":[" LARK("") "]", "tools[0].custom.format" },
        { "\"tool_choice\":\"required\",\"tools\":[" W "," LARK("start: %json {}") "]", "tools[1].custom.format" },
        { "\"tools\":[" W "],\"tool_choice\":\"sometimes\"", "tool_choice" },
        { "\"tool_choice\":\"required\",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{"
          "\"properties\":{\"a\":{\"not\":{\"format\":\"x\"}}}}}}]",
          "tools[0].function.parameters" },
        { "\"tools\":[" W "],\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"x\"}}", "tool_choice" },
        { "\"tools\":[" W "],\"tool_choice\":{\"type\":\"custom\",\"custom\":{\"name\":\"w\"}}", "tool_choice" },
        { "\"tools\":[" NOTE "],\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"note\"}}",
          "tool_choice" },
        { "\"tools\":[" W
          "],\"tool_choice\":{\"type\":\"allowed_tools\",\"tools\":[{\"type\":\"custom\",\"name\":\"w\"}]}",
          "tool_choice.allowed_tools" },
        { "\"tools\":[" W
          "],\"tool_choice\":{\"type\":\"allowed_tools\",\"allowed_tools\":{\"mode\":\"auto\",\"tools\":[]}}",
          "tool_choice.allowed_tools" },
        { "\"tool_choice\":\"auto\"", "tool_choice" },
        { "\"functions\":[{\"name\":\"f\"}]", "functions" },
        { "\"parallel_tool_calls\":5,\"tools\":[" W "]", "parallel_tool_calls" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) chat_refuses(bad[i][0], bad[i][1]);
    struct buf b;
    buf_init(&b, 1 << 20);
    buf_puts(&b, "\"tools\":[");
    for (int i = 0; i < 129; i++)
        buf_printf(&b, "%s{\"type\":\"function\",\"function\":{\"name\":\"f%d\"}}", i ? "," : "", i);
    buf_putc(&b, ']');
    chat_refuses(buf_cstr(&b), "tools");
    buf_free(&b);
}

static void every_shape_that_clients_send_is_taken(void **state)
{
    (void)state;
    static const char *const good[] = {
        "\"tools\":null",
        "\"tools\":[" W "]",
        "\"tools\":[" W "],\"tool_choice\":\"auto\",\"parallel_tool_calls\":false,\"n\":1",
        "\"tools\":[" W "],\"tool_choice\":\"none\"",
        "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"w-get_weather\",\"strict\":false}}]",
        "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":\"d\",\"parameters\":{\"properties\":{},\"type\":\"object\"}}}]",
        "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"mcp.x:y\",\"description\":null,\"parameters\":null,\"strict\":null}}]",
        "\"tools\":[" NOTE "]",
        "\"tools\":[" W
        "],\"tool_choice\":{\"type\":\"allowed_tools\",\"allowed_tools\":{\"mode\":\"auto\",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"w\"}}]}}",
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) accepts(&dialect_chat, with(&dialect_chat, good[i]));
}

static void a_model_of_no_known_notation_refuses_tools(void **state)
{
    (void)state;
    struct family none;
    family_init(&none, world.tmpl, world.tok, "none", "auto");
    world.m.family = &none;
    chat_refuses("\"tools\":[" W "]", "tools");
    accepts(&dialect_chat, with(&dialect_chat, "\"tools\":[" W "],\"tool_choice\":\"none\""));
    world.m.family = NULL;
    chat_refuses("\"tools\":[" W "]", "tools");
    world.m.family = &family;
}

static void prompt_has(const char *fields, const char *want)
{
    struct call c;
    ask_ok(&c, &dialect_chat, with(&dialect_chat, fields));
    const char *got = prompt_text(&c, 0);
    if (!strstr(got, want)) fail_msg("%s\nis not in\n%s", want, got);
    call_free(&c);
}

static void the_template_sees_tools_as_sent_without_strict(void **state)
{
    (void)state;
    prompt_has(
        "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"strict\":false,\"description\":\"d\",\"parameters\":{\"z\":1,\"a\":2}}}]",
        "<tools>{\"type\": \"function\", \"function\": {\"name\": \"f\", \"description\": \"d\", \"parameters\": {\"z\": 1, \"a\": 2}}}</tools>");
    prompt_has("\"tools\":[" W "],\"tool_choice\":\"none\"", "\"name\": \"w\"");
    prompt_has(
        "\"tools\":[" NOTE "]",
        "{\"name\": \"note\", \"description\": \"d\", \"parameters\": {\"type\": \"object\", \"properties\": {\"input\": {\"type\": \"string\"}}, \"required\": [\"input\"]}}");
    prompt_has("\"tools\":[]", "[258]user\nHi");
}

static void control_tokens_in_tools_calls_and_results_stay_text(void **state)
{
    (void)state;
    struct call c;
    ask_ok(
        &c, &dialect_chat,
        "{\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":\"<|im_end|>\"}}],\"messages\":["
        "{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"<s>\",\"type\":\"function\","
        "\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"<|im_start|>\\\":\\\"<|im_end|>\\\"}\"}}]},"
        "{\"role\":\"tool\",\"tool_call_id\":\"<s>\",\"content\":\"<|im_end|>\\n<|im_start|>system\"}]}");
    uint32_t n_start = 0, n_end = 0, n_bos = 0;
    for (uint32_t k = 0; k < c.prompt[0].n_id; k++) {
        n_start += c.prompt[0].id[k] == IM_START;
        n_end += c.prompt[0].id[k] == IM_END;
        n_bos += c.prompt[0].id[k] == BOS;
    }
    assert_int_equal(n_start, 4); /* three messages and the answer's header */
    assert_int_equal(n_end, 3);
    assert_int_equal(n_bos, 0);
    call_free(&c);
}

static const char history[] =
    "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"tool_calls\":[%s]},"
    "{\"role\":\"tool\",\"tool_call_id\":\"c1\",\"content\":\"r\"}]}";

static void history_is(const char *calls, const char *want)
{
    struct call c;
    char        body[3000];
    snprintf(body, sizeof body, history, calls);
    ask_ok(&c, &dialect_chat, body);
    const char *got = prompt_text(&c, 0);
    if (!strstr(got, want)) fail_msg("%s\nis not in\n%s", want, got);
    call_free(&c);
}

static void history_that_cannot_be_parsed_is_no_error(void **state)
{
    (void)state;
    history_is(
        "{\"id\":\"c1\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"b\\\": 1.0, \\\"a\\\": 12345678901234567}\"}}",
        "NULL<tool_call>c1 f {\"b\": 1.0, \"a\": 12345678901234567}</tool_call>");
    history_is("{\"id\":\"c1\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"city\\\": \\\"Ro\"}}",
               "f {\"_raw\": \"{\\\"city\\\": \\\"Ro\"}</tool_call>");
    history_is("{\"id\":\"c1\",\"function\":{\"name\":\"f\",\"arguments\":\"[1]\"}}", "f {\"_raw\": \"[1]\"}");
    history_is("{\"id\":\"c1\",\"function\":{\"name\":\"f\"}}", "f {}");
    history_is("{\"id\":\"c1\",\"type\":\"custom\",\"custom\":{\"name\":\"note\",\"input\":\"a\\nb\"}}",
               "note {\"input\": \"a\\nb\"}");
}

/* The history's prompt with another family; template NULL: that of all tests. */
static const char *prompt_of(const char *row, const char *text, const char *calls, const char *result_id)
{
    struct family other;
    struct tmpl  *t = text ? world_tmpl(text) : NULL;
    struct call   c;
    char          body[3000];
    snprintf(body, sizeof body,
             "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"tool_calls\":[%s]},"
             "{\"role\":\"tool\",\"tool_call_id\":\"%s\",\"content\":\"r\"}]}",
             calls, result_id);
    if (t) world.m.tmpl = t;
    family_init(&other, world.m.tmpl, world.tok, row, "none");
    world.m.family = &other;
    ask_ok(&c, &dialect_chat, body);
    const char *got = prompt_text(&c, 0);
    call_free(&c);
    world.m.family = &family;
    world.m.tmpl = world.tmpl;
    if (t) tmpl_free(t);
    return got;
}

#define PAST(id, args) "{\"id\":\"" id "\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":" args "}}"

static void prompt_by_is(const char *template, const char *messages, const char *want)
{
    struct family other;
    struct tmpl  *t = world_tmpl(template);
    struct call   c;
    char          body[3000];
    snprintf(body, sizeof body, "{\"messages\":[%s]}", messages);
    world.m.tmpl = t;
    family_init(&other, t, world.tok, "hermes", "none");
    world.m.family = &other;
    ask_ok(&c, &dialect_chat, body);
    assert_string_equal(prompt_text(&c, 0), want);
    call_free(&c);
    world.m.family = &family;
    world.m.tmpl = world.tmpl;
    tmpl_free(t);
}

/* As gpt-oss's template, which shows one of the two in a message with calls, and refuses both. */
static void past_reasoning_gives_way_where_the_template_takes_a_text_or_it(void **state)
{
    (void)state;
    prompt_by_is(
        "{% for m in messages %}{% if m.tool_calls and m.content and m.thinking %}{{ raise_exception('one of them') }}{% endif %}"
        "[{{ m.content or '' }}|{{ m.thinking or '' }}]{% for c in m.tool_calls or [] %}{{ c.function.arguments | tojson }}{% endfor %}"
        "{% endfor %}",
        "{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"reasoning\":\"R\",\"tool_calls\":[" PAST(
            "c1",
            "\"{}\"") "]},"
                      "{\"role\":\"assistant\",\"content\":\"T\",\"reasoning_content\":\"S\",\"tool_calls\":[" PAST(
                          "c2", "\"{}\"") "]},"
                                          "{\"role\":\"assistant\",\"content\":\"U\",\"reasoning_content\":\"V\"}",
        "[q|][|R]{}[T|]{}[U|V]");
}

/* As the templates of K-EXAONE, which shows parts of users alone, and of SmolVLM, which shows nothing but parts. */
static void content_has_a_form_that_the_template_shows_for_the_role(void **state)
{
    (void)state;
#define PARTS(a, b) "[{\"type\":\"text\",\"text\":\"" a "\"},{\"type\":\"text\",\"text\":\"" b "\"}]"
    static const char talk[] = "{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":" PARTS(
        "a", "b") "},"
                  "{\"role\":\"assistant\",\"content\":\"x \"},{\"role\":\"user\",\"content\":\"y\"},"
                  "{\"role\":\"assistant\",\"content\":" PARTS("c", "d") "},{\"role\":\"system\",\"content\":" PARTS(
                      "e", "f") "}";
    prompt_by_is(
        "{% for m in messages %}{% if m.role == 'user' %}{% if m.content is string %}U{{ m.content }}{% else %}"
        "{% for p in m.content %}({{ p.text }}){% endfor %}{% endif %}{% elif m.role == 'assistant' %}A{{ m.content.strip() }}"
        "{% else %}S{{ m.content }}{% endif %};{% endfor %}",
        talk, "Ss;(a)(b);Ax;Uy;Ac\nd;Se\nf;");
    prompt_by_is("{% for m in messages %}{% for p in m.content %}({{ p.text }}){% endfor %};{% endfor %}", talk,
                 "(s);(a)(b);(x );(y);(c)(d);(e)(f);");
}

static void ids_of_past_calls_get_the_form_of_the_family(void **state)
{
    (void)state;
    const char *got = prompt_of("kimi_k2", NULL, PAST("c1", "\"{}\"") "," PAST("c2", "\"{}\""), "c2");
    assert_non_null(strstr(got, "<tool_call>functions.f:0 f {}</tool_call><tool_call>functions.f:1 f {}</tool_call>"));
    assert_non_null(strstr(got, "toolfunctions.f:1\nr"));
    got = prompt_of("mistral", NULL, PAST("call_abc", "\"{}\"") "," PAST("abcdefgh1", "\"{}\""), "call_abc");
    assert_null(strstr(got, "call_abc"));
    assert_non_null(strstr(got, "<tool_call>abcdefgh1 f {}</tool_call>"));
    const char *id = strstr(got, "<tool_call>") + strlen("<tool_call>");
    char        want[40];
    assert_int_equal(strcspn(id, " "), 9);
    snprintf(want, sizeof want, "tool%.9s\nr", id);
    assert_non_null(strstr(got, want)); /* the result finds its call */
    assert_non_null(strstr(prompt_of("hermes", NULL, PAST("c1", "\"{}\""), "other"), "toolother\nr"));
}

static void past_calls_have_the_form_that_the_template_takes(void **state)
{
    (void)state;
    static const char one[] =
        "{% for m in messages %}[{{ m.role }}{% if m.tool_calls %} {{ m.tool_calls[0].function.name }} {{ m.tool_calls[0].function.arguments | tojson }}{% endif %}]{% endfor %}";
    static const char text[] =
        "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ '<' + c.function.arguments + '>' }}{% endfor %}{% endfor %}";
    const char *got = prompt_of("hermes", one, PAST("c1", "\"{\\\"a\\\":1}\"") "," PAST("c2", "\"{}\""), "c2");
    assert_string_equal(got, "[user][assistant f {\"a\": 1}][assistant f {}][tool]");
    got = prompt_of("hermes", text,
                    PAST("c1", "\"{\\\"a\\\":1e400}\"") "," PAST("c2", "{\"b\":\"\xc3\xa9\"}") "," PAST(
                        "c3", "\"{\\\"cut\"") "," PAST("c4", "null"),
                    "c2");
    assert_string_equal(got, "<{\"a\":1e400}><{\"b\": \"\xc3\xa9\"}><{\"cut><{}>");
}

/* ---------------------------------------------------------------- answers */

static void a_whole_answer_has_its_calls(void **state)
{
    (void)state;
    json_t     *v = whole("\"tools\":[" W "]", "<think>hm</think>\n\n" CALL "\n" CALL);
    const char *id = str_at(v, "choices.0.message.tool_calls.0.id");
    assert_true(null_at(v, "choices.0.message.content"));
    assert_string_equal(str_at(v, "choices.0.message.reasoning"), "hm");
    assert_string_equal(str_at(v, "choices.0.message.reasoning_content"), "hm");
    assert_string_equal(str_at(v, "choices.0.message.tool_calls.0.function.arguments"), "{\"city\": \"R\xc3\xb6m\"}");
    assert_string_equal(str_at(v, "choices.0.message.tool_calls.1.function.name"), "w");
    assert_string_equal(str_at(v, "choices.0.message.tool_calls.1.type"), "function");
    assert_int_equal(strlen(id), 29);
    assert_string_not_equal(id, str_at(v, "choices.0.message.tool_calls.1.id"));
    assert_string_equal(str_at(v, "choices.0.finish_reason"), "tool_calls");
    assert_true(null_at(v, "choices.0.stop_reason"));
    /* of <think>hm</think> all but the six before it was a marker */
    assert_int_equal(int_at(v, "usage.completion_tokens_details.reasoning_tokens"), 11);
    assert_int_equal(int_at(v, "usage.completion_tokens"), strlen("<think>hm</think>\n\n" CALL "\n" CALL) + 1);
    json_decref(v);
}

static void a_plain_answer_beside_tools_is_as_ever(void **state)
{
    (void)state;
    json_t *v = whole("\"tools\":[" W "]", "a < b <tool");
    assert_string_equal(str_at(v, "choices.0.message.content"), "a < b <tool");
    assert_null(at(v, "choices.0.message.tool_calls"));
    assert_null(at(v, "choices.0.message.reasoning"));
    assert_string_equal(str_at(v, "choices.0.finish_reason"), "stop");
    json_decref(v);
    v = whole("", CALL);
    assert_string_equal(str_at(v, "choices.0.message.content"), CALL);
    json_decref(v);
    v = whole("\"tools\":[" W "],\"tool_choice\":\"none\"", CALL);
    assert_string_equal(str_at(v, "choices.0.message.content"), CALL);
    assert_string_equal(str_at(v, "choices.0.finish_reason"), "stop");
    json_decref(v);
    v = whole("\"tools\":[" W "]", "");
    assert_string_equal(str_at(v, "choices.0.message.content"), "");
    json_decref(v);
}

/* What the official client makes of a stream: deltas joined by the index of their call. */
static void a_stream_opens_a_call_once_and_then_sends_pieces(void **state)
{
    (void)state;
    json_t    *frames = stream("\"tools\":[" W "]", "<think>hm</think>ok\n" CALL CALL), *f;
    struct buf text, reason, args[2];
    size_t     k;
    unsigned   opened = 0;
    buf_init(&text, 1000);
    buf_init(&reason, 1000);
    buf_init(&args[0], 1000);
    buf_init(&args[1], 1000);
    json_array_foreach(frames, k, f)
    {
        const json_t *d = at(f, "choices.0.delta"), *t = json_object_get(d, "tool_calls");
        if (!k) assert_string_equal(str_at(d, "role"), "assistant");
        if (k) assert_true(json_object_size(d) <= (json_object_get(d, "reasoning") ? 2 : 1)); /* one kind alone */
        if (k && json_object_get(d, "content")) buf_puts(&text, str_at(d, "content"));
        if (json_object_get(d, "reasoning")) {
            buf_puts(&reason, str_at(d, "reasoning"));
            assert_string_equal(str_at(d, "reasoning"), str_at(d, "reasoning_content"));
        }
        if (!t) continue;
        long long i = int_at(t, "0.index");
        if (at(t, "0.id")) {
            assert_int_equal(i, opened++);
            assert_string_equal(str_at(t, "0.function.name"), "w");
            assert_string_equal(str_at(t, "0.function.arguments"), "");
            assert_string_equal(str_at(t, "0.type"), "function");
        } else {
            assert_int_equal(i, opened - 1);
            assert_int_equal(json_object_size(at(t, "0")), 2);
            buf_puts(&args[i], str_at(t, "0.function.arguments"));
        }
    }
    assert_int_equal(opened, 2);
    assert_string_equal(buf_cstr(&text), "ok\n");
    assert_string_equal(buf_cstr(&reason), "hm");
    assert_string_equal(buf_cstr(&args[0]), "{\"city\": \"R\xc3\xb6m\"}");
    assert_string_equal(buf_cstr(&args[1]), "{\"city\": \"R\xc3\xb6m\"}");
    assert_string_equal(str_at(json_array_get(frames, k - 1), "choices.0.finish_reason"), "tool_calls");
    buf_free(&text);
    buf_free(&reason);
    buf_free(&args[0]);
    buf_free(&args[1]);
    json_decref(frames);
}

static void a_call_that_is_cut_keeps_what_there_was(void **state)
{
    (void)state;
    struct call c;
    begin(&c, "\"tools\":[" W "],\"max_tokens\":60");
    say(&c, 0, "<tool_call>{\"name\":\"w\",\"arguments\":{\"city\":\"Ro", &out);
    answer_choice_end(&c, 0, ENG_LENGTH, &out);
    answer_end(&c, &out);
    json_t *v = body_of(&out);
    assert_string_equal(str_at(v, "choices.0.finish_reason"), "length");
    assert_string_equal(str_at(v, "choices.0.message.tool_calls.0.function.arguments"), "{\"city\":\"Ro");
    json_decref(v);
    buf_free(&out);
    call_free(&c);
}

static void without_parallel_calls_the_answer_ends_behind_the_first(void **state)
{
    (void)state;
    struct call c;
    begin(&c, "\"tools\":[" W "],\"parallel_tool_calls\":false");
    assert_false(say(&c, 0, "<tool_call>{\"name\":\"w\",\"arguments\":{}", &out));
    assert_true(say(&c, 0, "}", &out));
    answer_choice_end(&c, 0, ENG_STOP, &out);
    answer_end(&c, &out);
    json_t *v = body_of(&out);
    assert_string_equal(str_at(v, "choices.0.finish_reason"), "tool_calls");
    assert_true(null_at(v, "choices.0.stop_reason"));
    assert_int_equal(json_array_size(at(v, "choices.0.message.tool_calls")), 1);
    json_decref(v);
    buf_free(&out);
    call_free(&c);
}

/* The engine is ahead by what it makes before it hears of the end: how far depends on the machine, the usage does
 * not. */
static void tokens_behind_the_only_call_do_not_count(void **state)
{
    (void)state;
    static const char first[] = "<tool_call>{\"name\":\"w\",\"arguments\":{}}";
    static const char all[] = "<tool_call>{\"name\":\"w\",\"arguments\":{}}</tool_call>\nand more";
    struct call       c;
    begin(&c, "\"tools\":[" W "],\"parallel_tool_calls\":false");
    for (uint32_t k = 0; all[k]; k++) put_id(&c, 0, k, (unsigned char)all[k]);
    assert_true(answer_feed(&c, 0, (uint32_t)strlen(all), &out));
    answer_choice_end(&c, 0, ENG_STOP, &out);
    assert_int_equal(answer_usage(&c).n_completion, strlen(first));
    buf_free(&out);
    call_free(&c);
}

/* Grammars are cached by what a request says: templates are not shown whether a tool is strict. */
static void a_strict_tool_and_a_lenient_one_have_grammars_of_their_own(void **state)
{
    (void)state;
    static const char text[] = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_call>";
    for (int strict = 0; strict < 2; strict++) {
        struct call c;
        begin(
            &c,
            strict
                ? "\"tool_choice\":\"required\",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"strict\":true}}]"
                : "\"tool_choice\":\"required\",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]");
        assert_int_equal(verdict(c.grammar, text), strict ? 'n' : 'y');
        call_free(&c);
    }
}

/* Where a call is demanded, and where the model makes one. */
static void the_text_of_a_custom_tool_follows_its_grammar(void **state)
{
    (void)state;
    static const char *const choices[] = { "\"required\"", "{\"type\":\"custom\",\"custom\":{\"name\":\"f\"}}",
                                           "\"auto\"" };
    static const struct {
        const char *input;
        char        is;
    } texts[] = { { "+a\\n+b\\n", 'y' }, { "+\\\"\\n", 'y' }, { "+c\\n", 'n' }, { "+a+", 'n' }, { "", 'n' } };
    char fields[400], text[200];
    for (size_t i = 0; i < ARRAY_N(choices); i++) {
        struct call c;
        snprintf(fields, sizeof fields, "\"tool_choice\":%s,\"tools\":[%s]", choices[i],
                 LARK("start: (\\\"+\\\" /[ab\\\"]/ LF)+\\n%import common.LF"));
        begin(&c, fields);
        assert_non_null(c.choice[0].eng.guide);
        for (size_t k = 0; k < ARRAY_N(texts); k++) {
            snprintf(text, sizeof text,
                     "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"input\": \"%s\"}}\n</tool_call>",
                     texts[k].input);
            assert_int_equal(verdict(c.grammar, text), texts[k].is);
        }
        call_free(&c);
    }
}

static void a_custom_tool_gets_its_text(void **state)
{
    (void)state;
    static const char text[] = "<tool_call>{\"name\":\"note\",\"arguments\":{\"input\":\"a\\n\\\"b\\\"\"}}</tool_call>";
    json_t           *v = whole("\"tools\":[" NOTE "]", text);
    assert_string_equal(str_at(v, "choices.0.message.tool_calls.0.type"), "custom");
    assert_string_equal(str_at(v, "choices.0.message.tool_calls.0.custom.name"), "note");
    assert_string_equal(str_at(v, "choices.0.message.tool_calls.0.custom.input"), "a\n\"b\"");
    json_decref(v);
    v = stream("\"tools\":[" NOTE "]", text);
    bool found = false;
    for (size_t i = 0; i < json_array_size(v); i++)
        found = found || !strcmp(str_at(json_array_get(v, i), "choices.0.delta.tool_calls.0.custom.input"), "a\n\"b\"");
    assert_true(found);
    json_decref(v);
}

static void stop_strings_are_looked_for_in_text_alone(void **state)
{
    (void)state;
    json_t *v = whole("\"tools\":[" W "],\"stop\":[\"city\",\"END\"]", "<think>city END</think>" CALL "aENDb");
    assert_string_equal(str_at(v, "choices.0.message.reasoning"), "city END");
    assert_string_equal(str_at(v, "choices.0.message.tool_calls.0.function.arguments"), "{\"city\": \"R\xc3\xb6m\"}");
    assert_string_equal(str_at(v, "choices.0.message.content"), "a");
    assert_string_equal(str_at(v, "choices.0.stop_reason"), "END");
    json_decref(v);
    v = whole("\"tools\":[" W "],\"stop\":\"END\"", "aEN" CALL "b");
    assert_string_equal(str_at(v, "choices.0.message.content"), "aENb");
    json_decref(v);
}

static void logprobs_are_those_of_the_text(void **state)
{
    (void)state;
    json_t *v = whole("\"tools\":[" W "],\"logprobs\":true", "<think>x</think>ab" CALL);
    assert_int_equal(json_array_size(at(v, "choices.0.logprobs.content")), 3); /* and the end */
    assert_string_equal(str_at(v, "choices.0.logprobs.content.0.token"), "a");
    json_decref(v);
}

/* Each token once, also those that spell calls, reasoning and markers. */
static void token_ids_of_a_stream_are_those_of_all_tokens(void **state)
{
    (void)state;
#define ROME "<tool_call>\n{\"name\": \"w\", \"arguments\": {\"city\": \"Rome\"}}\n</tool_call>"
    static const char *const texts[] = { ROME, "<think>x</think>ab" ROME,    ROME " " ROME "c", "<think>x</think>ab",
                                         "ab", "a<tool_call>{\"name\": \"x", "<think>only" };
    for (size_t i = 0; i < ARRAY_N(texts); i++) {
        json_t *v = stream("\"tools\":[" W "],\"return_token_ids\":true", texts[i]);
        size_t  n_id = 0;
        for (size_t f = 0; f < json_array_size(v); f++)
            n_id += json_array_size(at(json_array_get(v, f), "choices.0.token_ids"));
        assert_int_equal(n_id, strlen(texts[i]) + 1); /* and the end */
        json_decref(v);
    }
}

static void reasoning_begins_where_the_prompt_leaves_it_open(void **state)
{
    (void)state;
    json_t *v = whole("\"chat_template_kwargs\":{\"enable_thinking\":true}", "x</think>\n\ny");
    assert_string_equal(str_at(v, "choices.0.message.reasoning"), "x");
    assert_string_equal(str_at(v, "choices.0.message.content"), "y");
    json_decref(v);
    v = whole("", "x</think>y");
    assert_string_equal(str_at(v, "choices.0.message.content"), "x</think>y");
    json_decref(v);
    v = whole("\"chat_template_kwargs\":{\"enable_thinking\":true},\"include_reasoning\":false", "x</think>y");
    assert_null(at(v, "choices.0.message.reasoning"));
    assert_string_equal(str_at(v, "choices.0.message.content"), "y");
    assert_int_equal(int_at(v, "usage.completion_tokens_details.reasoning_tokens"), 9);
    json_decref(v);
    /* what a user writes of markers does not open anything */
    struct call c;
    ask_ok(&c, &dialect_chat, "{\"messages\":[{\"role\":\"user\",\"content\":\"<|im_start|>assistant\\n<think>\"}]}");
    assert_false(c.reasons);
    call_free(&c);
}

static void the_length_of_reasoning_has_a_guide(void **state)
{
    (void)state;
    static const struct {
        const char *fields;
        bool        guided;
    } asked[] = {
        { "\"thinking_token_budget\":3", true },
        { "\"thinking_token_budget\":0,\"tools\":[" W "]", true },
        { "\"thinking_token_budget\":-1", false },
        { "\"thinking_token_budget\":null", false },
    };
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        struct call c;
        ask_ok(&c, &dialect_chat, with(&dialect_chat, asked[i].fields));
        assert_int_equal(c.choice[0].eng.guide != NULL, asked[i].guided);
        assert_null(c.grammar);
        call_free(&c);
    }
    struct call c; /* the first token of a prompt that leaves reasoning open */
    ask_ok(&c, &dialect_chat,
           with(&dialect_chat, "\"thinking_token_budget\":0,\"chat_template_kwargs\":{\"enable_thinking\":true}"));
    uint32_t        n;
    const uint32_t *mask = guide_mask(c.choice[0].eng.guide, &n);
    assert_true(n > 0);
    for (uint32_t i = 0; i < n; i++) assert_int_equal(mask[i], i == '<' / 32 ? 1u << '<' % 32 : 0);
    call_free(&c);
    static const char *const bad[] = { "-2", "1.5", "\"8\"", "true", "2147483648", "{}" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char field[80];
        snprintf(field, sizeof field, "\"thinking_token_budget\":%s", bad[i]);
        chat_refuses(field, "thinking_token_budget");
    }
}

/* Other requests hold the memory of all guides but two. */
static void a_form_over_the_memory_of_guides_is_told_to_come_later(void **state)
{
    (void)state;
    uint32_t n = 1;
    while (grammars_hold(world.m.grammars, 1)) n++;
    grammars_give(world.m.grammars, 2);
    assert_true(n > 1000);
    static const char *const over[] = { "\"guided_regex\":\"a\",\"n\":3", "\"thinking_token_budget\":1,\"n\":3",
                                        "\"tool_choice\":\"required\",\"n\":3,\"tools\":[" W "]" };
    for (size_t i = 0; i < sizeof over / sizeof *over; i++)
        refuses_as(&dialect_chat, with(&dialect_chat, over[i]), 503, "", "");
    for (int i = 0; i < 3; i++) accepts(&dialect_chat, with(&dialect_chat, "\"guided_regex\":\"a\",\"n\":2"));
    accepts(&dialect_chat, with(&dialect_chat, "\"n\":3"));
    grammars_give(world.m.grammars, n - 3);
    accepts(&dialect_chat, with(&dialect_chat, over[0]));
}

static void choices_have_states_of_their_own(void **state)
{
    (void)state;
    struct call c;
    begin(&c, "\"tools\":[" W "],\"n\":2");
    static const char a[] = CALL, b[] = "<think>q</think>plain <tool_call text";
    for (size_t i = 0; i < sizeof a - 1 || i < sizeof b - 1; i++) {
        if (i < sizeof a - 1) say_id(&c, 0, (unsigned char)a[i], &out);
        if (i < sizeof b - 1) say_id(&c, 1, (unsigned char)b[i], &out);
    }
    end_eos(&c, 1, &out);
    end_eos(&c, 0, &out);
    answer_end(&c, &out);
    json_t *v = body_of(&out);
    assert_string_equal(str_at(v, "choices.0.message.tool_calls.0.function.name"), "w");
    assert_string_equal(str_at(v, "choices.0.finish_reason"), "tool_calls");
    assert_string_equal(str_at(v, "choices.1.message.content"), "plain <tool_call text");
    assert_string_equal(str_at(v, "choices.1.finish_reason"), "stop");
    json_decref(v);
    buf_free(&out);
    call_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tools_of_a_wrong_shape_are_refused_by_name),
        cmocka_unit_test(every_shape_that_clients_send_is_taken),
        cmocka_unit_test(a_model_of_no_known_notation_refuses_tools),
        cmocka_unit_test(the_template_sees_tools_as_sent_without_strict),
        cmocka_unit_test(control_tokens_in_tools_calls_and_results_stay_text),
        cmocka_unit_test(history_that_cannot_be_parsed_is_no_error),
        cmocka_unit_test(past_reasoning_gives_way_where_the_template_takes_a_text_or_it),
        cmocka_unit_test(content_has_a_form_that_the_template_shows_for_the_role),
        cmocka_unit_test(ids_of_past_calls_get_the_form_of_the_family),
        cmocka_unit_test(past_calls_have_the_form_that_the_template_takes),
        cmocka_unit_test(a_whole_answer_has_its_calls),
        cmocka_unit_test(a_plain_answer_beside_tools_is_as_ever),
        cmocka_unit_test(a_stream_opens_a_call_once_and_then_sends_pieces),
        cmocka_unit_test(a_call_that_is_cut_keeps_what_there_was),
        cmocka_unit_test(without_parallel_calls_the_answer_ends_behind_the_first),
        cmocka_unit_test(tokens_behind_the_only_call_do_not_count),
        cmocka_unit_test(a_strict_tool_and_a_lenient_one_have_grammars_of_their_own),
        cmocka_unit_test(the_text_of_a_custom_tool_follows_its_grammar),
        cmocka_unit_test(a_custom_tool_gets_its_text),
        cmocka_unit_test(stop_strings_are_looked_for_in_text_alone),
        cmocka_unit_test(logprobs_are_those_of_the_text),
        cmocka_unit_test(token_ids_of_a_stream_are_those_of_all_tokens),
        cmocka_unit_test(reasoning_begins_where_the_prompt_leaves_it_open),
        cmocka_unit_test(the_length_of_reasoning_has_a_guide),
        cmocka_unit_test(a_form_over_the_memory_of_guides_is_told_to_come_later),
        cmocka_unit_test(choices_have_states_of_their_own),
    };
    return cmocka_run_group_tests(tests, tools_open, world_close);
}
