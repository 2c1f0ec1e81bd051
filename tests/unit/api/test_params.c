/* The table's own test: every field times every type of JSON (row B12 of the fault table), then the rows B13 to B42
 * that are about fields. Over 500 lines: one table of fields, and a test for each kind of field. */
#include "api/openai/openai.h"
#include "api_world.h"

static const char *const values[] = {
    "null", "true", "false", "1", "-7", "1.5", "\"x\"", "[]", "[1]", "{}", "{\"a\":1}", "1e300", "9223372036854775807"
};

static bool of_type(const struct param *p, const char *v)
{
    bool number = (*v >= '0' && *v <= '9') || *v == '-';
    switch (p->type) {
    case PARAM_BOOL: return *v == 't' || *v == 'f';
    case PARAM_INT: return number && !strchr(v, '.') && !strchr(v, 'e');
    case PARAM_NUM: return number;
    case PARAM_STRING: return *v == '"';
    case PARAM_OBJECT: return *v == '{';
    case PARAM_ARRAY: return *v == '[';
    default: return true;
    }
}

static void try_value(const struct dialect *kind, const struct param *p, const char *v)
{
    char             body[300];
    struct call      c;
    struct api_error e;
    const char      *rest =
        kind == &dialect_chat ? "\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]," : "\"prompt\":\"Hi\",";
    if (!strcmp(p->name, "messages") || !strcmp(p->name, "prompt")) rest = "";
    snprintf(body, sizeof body, "{%s\"%s\":%s%s}", rest, p->name, v,
             !strcmp(p->name, "stream_options") ? ",\"stream\":true" : "");
    enum status st = ask(&c, kind, body, &e);
    if (!*rest) {
        if (st == ST_OK && strcmp(v, "\"x\"") && strcmp(v, "[1]")) fail_msg("accepted: %s", body);
    } else if (!strcmp(v, "null")) {
        if (st) fail_msg("null is the default: %s: %s", body, e.message);
    } else if (!of_type(p, v) && st == ST_OK) {
        fail_msg("wrong type accepted: %s", body);
    }
    bool named = !strncmp(e.param, p->name, strlen(p->name)); /* or a part of it: tools[0] */
    if (st && (e.http != (strcmp(p->name, "model") || *v != '"' ? 400 : 404) || !named))
        fail_msg("%s: %d, param '%s', %s", body, e.http, e.param, e.message);
    call_free(&c);
}

static void B12_every_field_takes_its_type_and_no_other(void **state)
{
    (void)state;
    world.m.priority = true;
    for (uint32_t i = 0; i < openai_fields.n_row; i++) {
        for (size_t k = 0; k < sizeof values / sizeof *values; k++) {
            bool cheap = strcmp(openai_fields.row[i].name, "max_tokens") &&
                         strcmp(openai_fields.row[i].name, "max_completion_tokens");
            if (!cheap && !strcmp(values[k], "1e300")) continue;
            if (openai_fields.row[i].on & ON_CHAT) try_value(&dialect_chat, &openai_fields.row[i], values[k]);
            if (openai_fields.row[i].on & ON_COMPLETION)
                try_value(&dialect_completion, &openai_fields.row[i], values[k]);
        }
    }
    world.m.priority = false;
}

static void B12_no_name_stands_in_the_table_twice(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < openai_fields.n_row; i++)
        for (uint32_t k = 0; k < i; k++)
            if (!strcmp(openai_fields.row[i].name, openai_fields.row[k].name))
                assert_int_equal(openai_fields.row[i].on & openai_fields.row[k].on, 0);
}

static void B3_integral_doubles_are_integers_and_others_are_not(void **state)
{
    (void)state;
    both_accept("\"max_tokens\":5.0");
    both_accept("\"n\":2.0");
    both_refuse("\"n\":1.5", "n");
    both_refuse("\"seed\":1.5", "seed");
    both_refuse("\"seed\":1e19", "seed");
    both_refuse("\"top_k\":1e300", "top_k");
    both_accept("\"seed\":-0.0");
}

static void B13_unknown_fields_are_ignored_and_counted(void **state)
{
    (void)state;
    struct call c;
    ask_ok(&c, &dialect_chat,
           with(&dialect_chat, "\"frobnicate\":{\"deep\":[1]},\"x\":null,\"temperature\":1,\"prompt\":5"));
    assert_int_equal(c.n_unknown_fields, 3);
    call_free(&c);
    ask_ok(&c, &dialect_completion,
           with(&dialect_completion, "\"user\":\"u\",\"store\":true,\"metadata\":{\"a\":\"b\"}"));
    assert_int_equal(c.n_unknown_fields, 0);
    call_free(&c);
}

static void null_and_neutral_values_are_the_defaults(void **state)
{
    (void)state;
    both_accept(
        "\"tools\":null,\"tool_choice\":\"none\",\"response_format\":{\"type\":\"text\"},\"use_beam_search\":false,\"functions\":null,"
        "\"modalities\":[\"text\"],\"logit_bias\":{},\"stop_token_ids\":[],\"bad_words\":[],\"logprobs\":false,"
        "\"thinking_token_budget\":-1,\"stream_interval\":1,\"n\":1,\"best_of\":1,\"priority\":0,\"top_k\":-1,\"length_penalty\":1.0,"
        "\"parallel_tool_calls\":true,\"stop\":null,\"seed\":-1,\"media_io_kwargs\":{},\"service_tier\":\"auto\"");
    both_accept("\"stop\":[]");
    both_accept("\"tools\":[]");
    both_accept("\"tools\":[],\"tool_choice\":\"none\"");
    both_accept("\"tools\":[],\"tool_choice\":\"auto\",\"functions\":[]");
    both_accept("\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}],\"tool_choice\":\"none\"");
}

static void unsupported_fields_are_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *field, *name;
    } later[] = {
        { "\"functions\":[{\"name\":\"f\"}]", "functions" },
        { "\"tools\":{}", "tools" },
        { "\"use_beam_search\":true", "use_beam_search" },
        { "\"prompt_embeds\":\"AAAA\"", "prompt_embeds" },
        { "\"audio\":{}", "audio" },
        { "\"modalities\":[\"audio\"]", "modalities" },
        { "\"repetition_detection\":{}", "repetition_detection" },
        { "\"stream_interval\":4", "stream_interval" },
        { "\"thinking_token_budget\":5", "thinking_token_budget" }, /* of a model that does not reason */
    };
    for (size_t i = 0; i < sizeof later / sizeof *later; i++) both_refuse(later[i].field, later[i].name);
    completion_refuses("\"suffix\":\"\"", "suffix");
}

static void B20_max_tokens_has_a_range(void **state)
{
    (void)state;
    static const char *const bad[] = { "-1", "2147483648", "1e10", "-9223372036854775808" };
    char                     field[100];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(field, sizeof field, "\"max_tokens\":%s", bad[i]);
        both_refuse(field, "max_tokens");
    }
    both_refuse("\"max_tokens\":0", "max_tokens");
    chat_refuses("\"max_completion_tokens\":0", "max_completion_tokens");
    both_refuse("\"max_tokens\":9223372036854775808", "max_tokens");
    accepts(&dialect_completion, with(&dialect_completion, "\"max_tokens\":0,\"echo\":true"));
    refuses_as(&dialect_chat, with(&dialect_chat, "\"max_tokens\":1001"), 400, "max_tokens", "context_length_exceeded");
    refuses_as(&dialect_chat, with(&dialect_chat, "\"max_completion_tokens\":1001"), 400, "max_completion_tokens",
               "context_length_exceeded");
    refuses_as(&dialect_chat, with(&dialect_chat, "\"max_tokens\":1000"), 400, "input_tokens",
               "context_length_exceeded");
}

static void B20_null_max_tokens_is_the_room_left(void **state)
{
    (void)state;
    struct call c;
    ask_ok(&c, &dialect_chat, with(&dialect_chat, "\"max_tokens\":null"));
    assert_int_equal(c.s.max_tokens, CONTEXT - c.prompt[0].n_id);
    call_free(&c);
    ask_ok(&c, &dialect_completion, with(&dialect_completion, "\"max_tokens\":null"));
    assert_int_equal(c.s.max_tokens, CONTEXT - 3);
    call_free(&c);
    ask_ok(&c, &dialect_completion, with(&dialect_completion, ""));
    assert_int_equal(c.s.max_tokens, 16);
    call_free(&c);
    ask_ok(&c, &dialect_chat, with(&dialect_chat, "\"max_tokens\":3,\"max_completion_tokens\":5"));
    assert_int_equal(c.s.max_tokens, 5);
    call_free(&c);
    world.m.max_new_tokens = 9;
    ask_ok(&c, &dialect_chat, with(&dialect_chat, ""));
    assert_int_equal(c.s.max_tokens, 9);
    call_free(&c);
    world.m.max_new_tokens = -1;
}

static void B20_a_server_may_clamp_instead(void **state)
{
    (void)state;
    struct call c;
    world.m.clamp_max_tokens = true;
    ask_ok(&c, &dialect_chat, with(&dialect_chat, "\"max_tokens\":1000000"));
    assert_int_equal(c.s.max_tokens, CONTEXT - c.prompt[0].n_id);
    call_free(&c);
    world.m.clamp_max_tokens = false;
}

static void B21_n_over_the_cap(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "0", "-1", "17", "1000000", "2147483648", "9223372036854775807", "-9223372036854775808"
    };
    char field[100];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(field, sizeof field, "\"n\":%s", bad[i]);
        both_refuse(field, "n");
        snprintf(field, sizeof field, "\"best_of\":%s", bad[i]);
        both_refuse(field, "best_of");
    }
    both_accept("\"n\":16");
    both_accept("\"best_of\":16");
    both_refuse("\"n\":2,\"temperature\":0", "n");
    both_accept("\"n\":1,\"temperature\":0");
}

static void B22_the_product_of_sizes_has_a_budget(void **state)
{
    (void)state;
    struct call      c;
    struct api_error e;
    world.m.context = 1 << 20;
    chat_refuses("\"n\":16,\"max_tokens\":1000000,\"logprobs\":true,\"top_logprobs\":20", "top_logprobs");
    completion_refuses("\"n\":16,\"max_tokens\":1000000,\"logprobs\":20", "logprobs");
    refuses_as(&dialect_completion,
               long_text("{\"max_tokens\":1000000,\"n\":16,\"prompt\":[\"a\"", ",\"a\"", 127, "]}"), 400, "n", "");
    assert_int_equal(ask(&c, &dialect_chat, with(&dialect_chat, "\"n\":16,\"max_tokens\":500000"), &e),
                     ST_OK); /* lazily mapped */
    assert_non_null(c.map);
    call_free(&c);
    world.m.context = CONTEXT;
}

static void B23_logprobs_have_a_cap(void **state)
{
    (void)state;
    static const char *const bad[] = { "21", "1000000", "-1", "-2147483648" };
    char                     field[100];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(field, sizeof field, "\"logprobs\":true,\"top_logprobs\":%s", bad[i]);
        chat_refuses(field, "top_logprobs");
        snprintf(field, sizeof field, "\"logprobs\":%s", bad[i]);
        completion_refuses(field, "logprobs");
        snprintf(field, sizeof field, "\"prompt_logprobs\":%s", bad[i]);
        both_refuse(field, "prompt_logprobs");
    }
    chat_refuses("\"top_logprobs\":2", "top_logprobs");
    chat_refuses("\"logprobs\":5", "logprobs");
    completion_refuses("\"logprobs\":true", "logprobs");
    accepts(&dialect_chat, with(&dialect_chat, "\"logprobs\":true,\"top_logprobs\":20"));
    accepts(&dialect_chat, with(&dialect_chat, "\"top_logprobs\":0"));
    accepts(&dialect_completion, with(&dialect_completion, "\"logprobs\":20"));
    both_refuse("\"stream\":true,\"prompt_logprobs\":1", "prompt_logprobs");
}

static void B25_temperature_is_from_0_to_2_and_tiny_is_greedy(void **state)
{
    (void)state;
    struct call c;
    both_refuse("\"temperature\":-1", "temperature");
    both_refuse("\"temperature\":2.01", "temperature");
    both_refuse("\"temperature\":1e9", "temperature");
    both_refuse("\"temperature\":1e308", "temperature");
    static const struct {
        const char *field;
        float       t;
    } kept[] = { { "\"temperature\":1e-300", 0 }, { "\"temperature\":0.000009", 0 }, { "\"temperature\":0.001", 0.01f },
                 { "\"temperature\":0.5", 0.5f }, { "\"temperature\":2", 2 },        { "\"temperature\":null", 1 } };
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        ask_ok(&c, &dialect_chat, with(&dialect_chat, kept[i].field));
        assert_true(c.s.temperature == kept[i].t);
        call_free(&c);
    }
}

static void B26_sampling_numbers_have_ranges(void **state)
{
    (void)state;
    static const struct {
        const char *field, *name;
    } bad[] = {
        { "\"top_p\":0", "top_p" },
        { "\"top_p\":2", "top_p" },
        { "\"top_p\":-0.1", "top_p" },
        { "\"top_p\":1e-300", "top_p" },
        { "\"top_k\":-5", "top_k" },
        { "\"top_k\":-2", "top_k" },
        { "\"top_k\":2147483648", "top_k" },
        { "\"min_p\":-0.1", "min_p" },
        { "\"min_p\":1.1", "min_p" },
        { "\"presence_penalty\":1e9", "presence_penalty" },
        { "\"presence_penalty\":-2.1", "presence_penalty" },
        { "\"frequency_penalty\":-1e9", "frequency_penalty" },
        { "\"repetition_penalty\":0", "repetition_penalty" },
        { "\"repetition_penalty\":-1", "repetition_penalty" },
        { "\"repetition_penalty\":1e9", "repetition_penalty" },
        { "\"repetition_penalty\":1e-300", "repetition_penalty" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) both_refuse(bad[i].field, bad[i].name);
    struct call c;
    ask_ok(
        &c, &dialect_chat,
        with(
            &dialect_chat,
            "\"top_p\":0.5,\"top_k\":40,\"min_p\":0.1,\"presence_penalty\":-2,\"frequency_penalty\":2,\"repetition_penalty\":1.5"));
    assert_true(c.s.top_p == 0.5f && c.s.top_k == 40 && c.s.min_p == 0.1f && c.s.presence == -2 && c.s.frequency == 2 &&
                c.s.repetition == 1.5f);
    call_free(&c);
    ask_ok(&c, &dialect_chat, with(&dialect_chat, "\"top_k\":0"));
    assert_int_equal(c.s.top_k, 0);
    call_free(&c);
}

static void the_models_defaults_replace_those_of_the_table(void **state)
{
    (void)state;
    struct call c;
    world.m.temperature = 0.25f;
    world.m.top_p = 0.5f;
    world.m.top_k = 20;
    world.m.min_p = 0.125f;
    world.m.repetition = 1.25f;
    ask_ok(&c, &dialect_chat, with(&dialect_chat, "\"temperature\":null,\"top_p\":null"));
    assert_true(c.s.temperature == 0.25f && c.s.top_p == 0.5f && c.s.top_k == 20 && c.s.min_p == 0.125f &&
                c.s.repetition == 1.25f);
    call_free(&c);
    ask_ok(&c, &dialect_chat, with(&dialect_chat, "\"temperature\":1,\"top_k\":-1"));
    assert_true(c.s.temperature == 1 && c.s.top_k == 0);
    call_free(&c);
    world.m.temperature = 1;
    world.m.top_p = 1;
    world.m.top_k = 0;
    world.m.min_p = 0;
    world.m.repetition = 1;
}

static void B27_a_seed_is_an_int64(void **state)
{
    (void)state;
    struct call c;
    ask_ok(&c, &dialect_chat, with(&dialect_chat, "\"seed\":-9223372036854775808"));
    assert_true(c.has_seed && c.s.seed == 1ull << 63);
    call_free(&c);
    ask_ok(&c, &dialect_chat, with(&dialect_chat, "\"seed\":-1"));
    assert_false(c.has_seed);
    call_free(&c);
    both_refuse("\"seed\":\"1\"", "seed");
    both_refuse("\"seed\":0.5", "seed");
    both_refuse("\"seed\":9223372036854775808", "seed");
}

static void B28_logit_bias_names_tokens_and_is_clamped(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "{\"AI\":1}",         "{\"261\":1}",   "{\"-1\":1}",   "{\"1.0\":1}",
        "{\" 1\":1}",         "{\"01\":1}",    "{\"\":1}",     "{\"99999999999999999999\":1}",
        "{\"4294967297\":1}", "{\"5\":\"1\"}", "{\"5\":null}", "{\"5\":1e308}",
        "{\"5\":[1]}",        "[1]",           "\"5\""
    };
    char field[200];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(field, sizeof field, "\"logit_bias\":%s", bad[i]);
        both_refuse(field, "logit_bias");
    }
    struct call c;
    ask_ok(&c, &dialect_chat, with(&dialect_chat, "\"logit_bias\":{\"5\":-1000,\"260\":99.5,\"0\":1e3}"));
    assert_int_equal(c.s.n_bias, 3);
    assert_true(c.s.bias[0].id == 5 && c.s.bias[0].bias == -100);
    assert_true(c.s.bias[1].id == 260 && c.s.bias[1].bias == 99.5f);
    assert_true(c.s.bias[2].id == 0 && c.s.bias[2].bias == 100);
    call_free(&c);
    world.m.bias_max = 2;
    both_refuse("\"logit_bias\":{\"1\":1,\"2\":1,\"3\":1}", "logit_bias");
    world.m.bias_max = 1024;
}

static void B29_stop_has_caps(void **state)
{
    (void)state;
    both_refuse("\"stop\":\"\"", "stop");
    both_refuse("\"stop\":[\"a\",\"\"]", "stop");
    both_refuse("\"stop\":[1]", "stop");
    both_refuse("\"stop\":[[\"a\"]]", "stop");
    both_refuse("\"stop\":5", "stop");
    both_refuse(long_text("\"stop\":[\"a\"", ",\"a\"", 16, "]"), "stop");
    both_accept(long_text("\"stop\":[\"a\"", ",\"a\"", 15, "]"));
    both_refuse(long_text("\"stop\":\"", "x", 257, "\""), "stop");
    both_accept(long_text("\"stop\":\"", "x", 256, "\""));
    refuses_as(&dialect_chat, with(&dialect_chat, "\"stop\":\"\xff\""), 400, "", ""); /* not UTF-8: no JSON */
    struct call c;
    ask_ok(&c, &dialect_chat, with(&dialect_chat, "\"stop\":[\"END\",\"\\n\\n\"]"));
    assert_int_equal(c.detok.n_stop, 2);
    assert_memory_equal(c.detok.stop[1].text, "\n\n", 2);
    call_free(&c);
}

static void B30_token_ids_are_in_the_vocabulary(void **state)
{
    (void)state;
    static const char *const names[] = { "stop_token_ids", "allowed_token_ids" };
    static const char *const bad[] = { "[261]", "[-1]", "[4294967296]", "[1.5]",  "[\"1\"]", "[null]",
                                       "[[1]]", "1",    "\"1\"",        "[1e300]" };
    char                     field[200];
    for (size_t k = 0; k < 2; k++)
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
            snprintf(field, sizeof field, "\"%s\":%s", names[k], bad[i]);
            both_refuse(field, names[k]);
        }
    both_refuse("\"allowed_token_ids\":[]", "allowed_token_ids");
    struct call c;
    ask_ok(&c, &dialect_chat, with(&dialect_chat, "\"stop_token_ids\":[1,260.0],\"allowed_token_ids\":[7,8]"));
    assert_true(c.s.n_stop_id == 2 && c.s.stop_id[1] == 260 && c.s.n_allowed == 2 && c.s.allowed_id[0] == 7);
    call_free(&c);
}

static void bad_words_are_tokenised_with_and_without_a_blank(void **state)
{
    (void)state;
    struct call c;
    ask_ok(&c, &dialect_chat, with(&dialect_chat, "\"bad_words\":[\"ab\",\" c\"]"));
    /* " ab" has another length than "ab", so only the plain form is forbidden, as vLLM does it */
    assert_int_equal(c.s.n_bad_word, 2);
    assert_true(c.s.bad_word_start[0] == 0 && c.s.bad_word_start[1] == 2 && c.s.bad_word_start[2] == 4);
    assert_true(c.s.bad_word[0] == 'a' && c.s.bad_word[1] == 'b' && c.s.bad_word[2] == ' ' && c.s.bad_word[3] == 'c');
    call_free(&c);
    both_refuse("\"bad_words\":[\"\"]", "bad_words");
    both_refuse("\"bad_words\":[5]", "bad_words");
}

static void B31_no_integer_may_be_negative_without_leave(void **state)
{
    (void)state;
    char field[200];
    for (uint32_t i = 0; i < openai_fields.n_row; i++) {
        const struct param *p = &openai_fields.row[i];
        if (p->type != PARAM_INT || p->lo < 0) continue;
        static const char *const bad[] = { "-1", "-2147483648", "-9223372036854775808" };
        for (size_t k = 0; k < 3; k++) {
            snprintf(field, sizeof field, "\"%s\":%s", p->name, bad[k]);
            if (p->on & ON_CHAT) chat_refuses(field, p->name);
            if (p->on & ON_COMPLETION) completion_refuses(field, p->name);
        }
    }
}

static void B32_stream_options_need_a_stream(void **state)
{
    (void)state;
    both_refuse("\"stream_options\":{\"include_usage\":true}", "stream_options");
    both_refuse("\"stream\":false,\"stream_options\":{}", "stream_options");
    both_refuse("\"stream\":true,\"stream_options\":{\"include_usage\":1}", "stream_options");
    both_refuse("\"stream\":true,\"stream_options\":[]", "stream_options");
    both_accept("\"stream\":false,\"stream_options\":null");
    struct call c;
    ask_ok(
        &c, &dialect_chat,
        with(
            &dialect_chat,
            "\"stream\":true,\"stream_options\":{\"include_usage\":true,\"continuous_usage_stats\":true,\"include_obfuscation\":false,\"x\":1}"));
    assert_true(c.stream && c.include_usage && c.continuous_usage);
    call_free(&c);
}

static void B33_response_format_of_a_wrong_shape(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "{}",
        "{\"type\":5}",
        "{\"type\":\"xml\"}",
        "\"text\"",
        "[]",
        "{\"type\":\"json_schema\"}",
        "{\"type\":\"json_schema\",\"json_schema\":{\"schema\":{\"$ref\":\"http://x/\"}}}"
    };
    char field[200];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(field, sizeof field, "\"response_format\":%s", bad[i]);
        both_refuse(field, "response_format");
    }
}

static void a_form_of_the_answer_is_checked_before_anything_is_computed(void **state)
{
    (void)state;
    static const struct {
        const char *field, *name;
    } bad[] = {
        { "\"structured_outputs\":{}", "structured_outputs" },
        { "\"structured_outputs\":{\"regex\":\"a\",\"choice\":[\"b\"]}", "structured_outputs" },
        { "\"structured_outputs\":{\"choice\":[]}", "structured_outputs" },
        { "\"structured_outputs\":{\"choice\":[\"\"]}", "structured_outputs" },
        { "\"structured_outputs\":{\"json\":\"{\"}", "structured_outputs" },
        { "\"structured_outputs\":{\"grammar\":\"a\"}", "structured_outputs" },
        { "\"structured_outputs\":{\"grammar\":5}", "structured_outputs" },
        { "\"guided_grammar\":\"root ::= a\"", "guided_grammar" },
        { "\"guided_regex\":\"(a\"", "guided_regex" },
        { "\"guided_json\":{\"not\":{}}", "guided_json" },
        { "\"guided_json\":{\"type\":\"integer\",\"minimum\":2,\"maximum\":1}", "guided_json" },
        { "\"guided_regex\":\"a\",\"guided_choice\":[\"a\"]", "guided_choice" },
        { "\"response_format\":{\"type\":\"json_object\"},\"guided_regex\":\"a\"", "guided_regex" },
        { "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"a b\",\"schema\":{}}}",
          "response_format" },
        { "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"a\",\"schema\":{\"$ref\":\"#\"}}}",
          "response_format" },
        { "\"guided_json\":{},\"guided_whitespace_pattern\":\"[a ]*\"", "guided_whitespace_pattern" },
        { "\"guided_json\":{},\"guided_whitespace_pattern\":\"\\\\s*\"", "guided_whitespace_pattern" },
        { "\"guided_json\":{},\"guided_whitespace_pattern\":\"(\"", "guided_whitespace_pattern" },
        { "\"guided_json\":{},\"guided_whitespace_pattern\":5", "guided_whitespace_pattern" },
        { "\"guided_json\":\"{}\",\"guided_regex\":\"a\",\"structured_outputs\":{\"json\":\"{}\"}", "guided_json" },
        { "\"response_format\":{\"type\":\"structural_tag\"}", "response_format" },
        { "\"response_format\":{\"type\":\"structural_tag\",\"format\":{\"type\":\"odd\"}}", "response_format" },
        { "\"structured_outputs\":{\"structural_tag\":\"{\"}", "structured_outputs" },
        { "\"structured_outputs\":{\"structural_tag\":5}", "structured_outputs" },
        { "\"structured_outputs\":{\"json\":{},\"disable_any_whitespace\":\"yes\"}", "structured_outputs" },
        { "\"structured_outputs\":{\"json\":{},\"disable_additional_properties\":1}", "structured_outputs" },
        { "\"structured_outputs\":{\"regex\":\"a\",\"json_object\":\"true\"}", "structured_outputs" },
        { "\"structured_outputs\":{\"regex\":\"a\",\"whitespace_pattern\":\" \"}", "structured_outputs" },
        { "\"guided_choice\":[\"a\"],\"guided_whitespace_pattern\":\" \"", "guided_choice" },
        { "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"a\",\"schema\":{},\"strict\":\"yes\"}}",
          "response_format" },
        { "\"structured_outputs\":{\"json\":{},\"whitespace_pattern\":\"(a|){0,60000}\"}", "structured_outputs" },
        { "\"structured_outputs\":{\"json\":{},\"whitespace_pattern\":\" \"},\"guided_whitespace_pattern\":\" \"",
          "guided_whitespace_pattern" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) both_refuse(bad[i].field, bad[i].name);
    static const char *const good[] = {
        "\"response_format\":{\"type\":\"structural_tag\",\"format\":{\"type\":\"any_text\"}}",
        "\"response_format\":{\"type\":\"structural_tag\",\"triggers\":[\"a\"],\"structures\":[{\"begin\":\"a\",\"schema\":{},\"end\":\"\"}]}",
        "\"structured_outputs\":{\"structural_tag\":\"{\\\"format\\\":{\\\"type\\\":\\\"any_text\\\"}}\"}",
        "\"guided_json\":{},\"guided_whitespace_pattern\":\"[ \\n]?\"",
        "\"structured_outputs\":{\"json_object\":true,\"whitespace_pattern\":\"[\\\\n\\\\t ]*\"}",
        "\"structured_outputs\":{\"regex\":\"a\"}",
        "\"structured_outputs\":{\"regex\":\"a\",\"json_object\":false,\"disable_any_whitespace\":false}",
        "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"a\",\"schema\":{},\"strict\":null}}",
        "\"structured_outputs\":{\"choices\":[\"a\",\"ab\"]}",
        "\"structured_outputs\":{\"json\":\"{}\",\"disable_any_whitespace\":true,\"_backend\":\"x\",\"grammar\":null}",
        "\"guided_json\":{}",
        "\"guided_grammar\":\"root ::= [a-z]+\"",
        "\"structured_outputs\":{\"grammar\":\"start: /a+/ \\\"b\\\"\"}",
        "\"guided_choice\":[\"a\"],\"n\":3",
        "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"a\"}}",
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct call c;
        ask_ok(&c, &dialect_chat, with(&dialect_chat, good[i]));
        for (uint32_t k = 0; k < c.n_choice; k++) assert_non_null(c.choice[k].eng.guide);
        call_free(&c);
    }
}

/* --json-schema-open, by a schema that no value satisfies where objects are closed. */
static void B34_a_server_may_read_schemas_as_they_are_specified(void **state)
{
    (void)state;
    static const char *const same[] = {
        "\"guided_json\":{\"properties\":{},\"minProperties\":1,\"type\":\"object\"}",
        "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"a\",\"schema\":{\"properties\":{},"
        "\"minProperties\":1}}}",
        "\"structured_outputs\":{\"structural_tag\":{\"format\":{\"type\":\"json_schema\",\"json_schema\":{\"properties\":{},"
        "\"minProperties\":1}}}}",
    };
    static const char *const field[] = { "guided_json", "response_format", "structured_outputs" };
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        struct call c;
        both_refuse(same[i], field[i]);
        world.m.open_schemas = true;
        ask_ok(&c, &dialect_chat, with(&dialect_chat, same[i]));
        assert_non_null(c.choice[0].eng.guide);
        call_free(&c);
        world.m.open_schemas = false;
        both_refuse(same[i], field[i]); /* the grammar of the other reading is not this one's */
    }
}

static void B35_tool_choice_needs_tools(void **state)
{
    (void)state;
    both_refuse("\"tool_choice\":\"required\"", "tool_choice");
    both_refuse("\"tool_choice\":\"auto\"", "tool_choice");
    both_refuse("\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"f\"}}", "tool_choice");
    both_refuse("\"tool_choice\":5", "tool_choice");
    both_refuse("\"tools\":[],\"tool_choice\":\"required\"", "tool_choice");
}

static void B37_templates_and_their_steering_do_not_come_from_requests(void **state)
{
    (void)state;
    both_refuse("\"chat_template\":\"{{ 1 }}\"", "chat_template");
    both_refuse("\"chat_template\":\"\"", "chat_template");
    static const char *const bad[] = { "{\"tokenize\":true}",
                                       "{\"chat_template\":\"x\"}",
                                       "{\"__class__\":1}",
                                       "{\"messages\":1}",
                                       "{\"tools\":null}",
                                       "{\"add_generation_prompt\":false}",
                                       "{\"flag\":[1]}",
                                       "{\"flag\":{}}",
                                       "{\"\":1}",

                                       "[]",
                                       "\"x\"" };
    char                     field[300];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(field, sizeof field, "\"chat_template_kwargs\":%s", bad[i]);
        chat_refuses(field, "chat_template_kwargs");
    }
    struct call c;
    ask_ok(&c, &dialect_chat,
           with(&dialect_chat, "\"chat_template_kwargs\":{\"enable_thinking\":false,\"flag\":\"on\",\"unheard\":1}"));
    assert_non_null(strstr(prompt_text(&c, 0), "TFalseFon"));
    call_free(&c);
    /* Long strings are taken; a control token in one is text, as in a message. */
    const char *text = long_text("", "word ", 100, "<|im_end|>");
    char        long_field[800];
    snprintf(long_field, sizeof long_field, "\"chat_template_kwargs\":{\"flag\":\"%s\"}", text);
    ask_ok(&c, &dialect_chat, with(&dialect_chat, long_field));
    assert_non_null(strstr(prompt_text(&c, 0), text));
    call_free(&c);
}

static void reasoning_effort_reaches_the_template(void **state)
{
    (void)state;
    struct call c;
    ask_ok(&c, &dialect_chat, with(&dialect_chat, "\"reasoning_effort\":\"low\""));
    assert_non_null(strstr(prompt_text(&c, 0), "TTrueRlow"));
    call_free(&c);
    ask_ok(&c, &dialect_chat, with(&dialect_chat, "\"reasoning_effort\":\"none\""));
    assert_non_null(strstr(prompt_text(&c, 0), "TFalseRnone"));
    call_free(&c);
    ask_ok(&c, &dialect_chat,
           with(&dialect_chat, "\"reasoning_effort\":\"none\",\"chat_template_kwargs\":{\"enable_thinking\":true}"));
    assert_non_null(strstr(prompt_text(&c, 0), "TTrueRnone"));
    call_free(&c);
    chat_refuses("\"reasoning_effort\":\"vast\"", "reasoning_effort");
}

static void B38_serialized_tensors_are_refused(void **state)
{
    (void)state;
    both_refuse("\"prompt_embeds\":\"gASV\"", "prompt_embeds");
    both_refuse("\"prompt_embeds\":[\"gASV\"]", "prompt_embeds");
}

static void B39_a_cache_salt_is_short_and_clean(void **state)
{
    (void)state;
    both_refuse("\"cache_salt\":\"\"", "cache_salt");
    both_refuse("\"cache_salt\":\"a\\u0000b\"", "cache_salt");
    both_refuse("\"cache_salt\":\"a/b\"", "cache_salt");
    both_refuse("\"cache_salt\":\"a@b\"", "cache_salt");
    both_refuse("\"cache_salt\":\"a\\\\b\"", "cache_salt");
    both_refuse("\"cache_salt\":5", "cache_salt");
    both_refuse(long_text("\"cache_salt\":\"", "s", 129, "\""), "cache_salt");
    both_refuse(long_text("\"cache_salt\":\"", "s", 30000, "\""), "cache_salt");
    both_accept(long_text("\"cache_salt\":\"", "s", 128, "\""));
    struct call a, b, none;
    ask_ok(&a, &dialect_chat, with(&dialect_chat, "\"cache_salt\":\"alice\""));
    ask_ok(&b, &dialect_chat, with(&dialect_chat, "\"cache_salt\":\"bob\""));
    ask_ok(&none, &dialect_chat, with(&dialect_chat, ""));
    assert_true(a.salt.lo != b.salt.lo && a.salt.hi != b.salt.hi && a.salt.lo);
    assert_true(!none.salt.lo && !none.salt.hi);
    call_free(&a);
    call_free(&b);
    call_free(&none);
}

static void B40_min_tokens_is_not_above_max_tokens(void **state)
{
    (void)state;
    both_refuse("\"min_tokens\":6,\"max_tokens\":5", "min_tokens");
    both_accept("\"min_tokens\":5,\"max_tokens\":5");
    completion_refuses("\"min_tokens\":17", "min_tokens");
    chat_refuses("\"min_tokens\":999", "min_tokens");
    struct call c;
    ask_ok(&c, &dialect_chat,
           with(&dialect_chat, "\"ignore_eos\":true,\"min_tokens\":5")); /* no limit: the context is one */
    assert_true(c.s.ignore_eos && c.s.min_tokens == 5 && c.s.max_tokens == CONTEXT - c.prompt[0].n_id);
    call_free(&c);
}

static void B42_priority_needs_the_servers_leave(void **state)
{
    (void)state;
    both_refuse("\"priority\":1", "priority");
    both_refuse("\"priority\":-1", "priority");
    world.m.priority = true;
    both_accept("\"priority\":5");
    both_refuse("\"priority\":2147483648", "priority");
    both_refuse("\"priority\":-1001", "priority");
    world.m.priority = false;
}

static void a_request_id_is_clean(void **state)
{
    (void)state;
    struct call c;
    ask_ok(&c, &dialect_chat, with(&dialect_chat, "\"request_id\":\"my-id.1\""));
    assert_string_equal(c.id, "chatcmpl-my-id.1");
    call_free(&c);
    both_refuse("\"request_id\":\"a b\"", "request_id");
    both_refuse("\"request_id\":\"\"", "request_id");
    both_refuse("\"request_id\":\"a\\nb\"", "request_id");
    ask_ok(&c, &dialect_completion, with(&dialect_completion, ""));
    assert_string_equal(c.id, "cmpl-x1");
    call_free(&c);
}

static void cache_fields_outside_their_bounds_are_refused(void **state)
{
    (void)state;
    both_refuse("\"prompt_cache_key\":5", "prompt_cache_key");
    both_refuse(long_text("\"prompt_cache_key\":\"", "k", 65, "\""), "prompt_cache_key");
    both_accept(long_text("\"prompt_cache_key\":\"", "k", 64, "\""));
    both_accept("\"prompt_cache_key\":\"\"");
    both_refuse("\"prompt_cache_retention\":\"1h\"", "prompt_cache_retention");
    both_refuse("\"prompt_cache_retention\":\"\"", "prompt_cache_retention");
    both_refuse("\"prompt_cache_retention\":24", "prompt_cache_retention");
    both_refuse("\"kv_priority\":-1", "kv_priority");
    both_refuse("\"kv_priority\":10", "kv_priority");
    both_refuse("\"kv_priority\":2.5", "kv_priority");
    both_refuse("\"kv_priority\":\"high\"", "kv_priority");
    both_refuse("\"kv_pin\":-1", "kv_pin");
    both_refuse("\"kv_pin\":86401", "kv_pin");
    both_refuse("\"kv_pin\":1.5", "kv_pin");
    both_refuse("\"kv_pin\":\"yes\"", "kv_pin");
    both_refuse("\"kv_pin\":{\"seconds\":5}", "kv_pin");
    static const struct {
        const char    *field;
        struct kv_keep keep;
    } ok[] = {
        { "", { 0 } },
        { "\"kv_priority\":5,\"kv_pin\":false,\"prompt_cache_retention\":null", { 0 } },
        { "\"prompt_cache_retention\":\"24h\"", { .ttl_s = 86400 } },
        { "\"prompt_cache_retention\":\"in_memory\"", { .ttl_s = 3600, .memory_only = true } },
        { "\"prompt_cache_retention\":\"in-memory\"", { .ttl_s = 3600, .memory_only = true } },
        { "\"kv_priority\":0", { .priority = -5 } },
        { "\"kv_priority\":9", { .priority = 4 } },
        { "\"kv_pin\":true", { .pin_s = 300 } },
        { "\"kv_pin\":0", { 0 } },
        { "\"kv_pin\":86400", { .pin_s = 86400 } },
    };
    for (size_t i = 0; i < sizeof ok / sizeof *ok; i++) {
        struct call c;
        ask_ok(&c, i % 2 ? &dialect_chat : &dialect_completion,
               with(i % 2 ? &dialect_chat : &dialect_completion, ok[i].field));
        assert_int_equal(c.keep.priority, ok[i].keep.priority);
        assert_int_equal(c.keep.ttl_s, ok[i].keep.ttl_s);
        assert_int_equal(c.keep.pin_s, ok[i].keep.pin_s);
        assert_int_equal(c.keep.memory_only, ok[i].keep.memory_only);
        assert_int_equal(c.cache_key, 0);
        call_free(&c);
    }
    struct call a, b;
    ask_ok(&a, &dialect_chat, with(&dialect_chat, "\"prompt_cache_key\":\"team a\""));
    ask_ok(&b, &dialect_chat, with(&dialect_chat, "\"prompt_cache_key\":\"team b\""));
    assert_true(a.cache_key && b.cache_key && a.cache_key != b.cache_key);
    assert_true(!a.salt.lo && !a.salt.hi); /* it isolates nobody */
    call_free(&a);
    call_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(B12_every_field_takes_its_type_and_no_other),
                                        cmocka_unit_test(B12_no_name_stands_in_the_table_twice),
                                        cmocka_unit_test(B3_integral_doubles_are_integers_and_others_are_not),
                                        cmocka_unit_test(B13_unknown_fields_are_ignored_and_counted),
                                        cmocka_unit_test(null_and_neutral_values_are_the_defaults),
                                        cmocka_unit_test(unsupported_fields_are_refused_by_name),
                                        cmocka_unit_test(B20_max_tokens_has_a_range),
                                        cmocka_unit_test(B20_null_max_tokens_is_the_room_left),
                                        cmocka_unit_test(B20_a_server_may_clamp_instead),
                                        cmocka_unit_test(B21_n_over_the_cap),
                                        cmocka_unit_test(B22_the_product_of_sizes_has_a_budget),
                                        cmocka_unit_test(B23_logprobs_have_a_cap),
                                        cmocka_unit_test(B25_temperature_is_from_0_to_2_and_tiny_is_greedy),
                                        cmocka_unit_test(B26_sampling_numbers_have_ranges),
                                        cmocka_unit_test(the_models_defaults_replace_those_of_the_table),
                                        cmocka_unit_test(B27_a_seed_is_an_int64),
                                        cmocka_unit_test(B28_logit_bias_names_tokens_and_is_clamped),
                                        cmocka_unit_test(B29_stop_has_caps),
                                        cmocka_unit_test(B30_token_ids_are_in_the_vocabulary),
                                        cmocka_unit_test(bad_words_are_tokenised_with_and_without_a_blank),
                                        cmocka_unit_test(B31_no_integer_may_be_negative_without_leave),
                                        cmocka_unit_test(B32_stream_options_need_a_stream),
                                        cmocka_unit_test(B33_response_format_of_a_wrong_shape),
                                        cmocka_unit_test(a_form_of_the_answer_is_checked_before_anything_is_computed),
                                        cmocka_unit_test(B34_a_server_may_read_schemas_as_they_are_specified),
                                        cmocka_unit_test(B35_tool_choice_needs_tools),
                                        cmocka_unit_test(B37_templates_and_their_steering_do_not_come_from_requests),
                                        cmocka_unit_test(reasoning_effort_reaches_the_template),
                                        cmocka_unit_test(B38_serialized_tensors_are_refused),
                                        cmocka_unit_test(B39_a_cache_salt_is_short_and_clean),
                                        cmocka_unit_test(B40_min_tokens_is_not_above_max_tokens),
                                        cmocka_unit_test(B42_priority_needs_the_servers_leave),
                                        cmocka_unit_test(a_request_id_is_clean),
                                        cmocka_unit_test(cache_fields_outside_their_bounds_are_refused) };
    return cmocka_run_group_tests(tests, world_open, world_close);
}
