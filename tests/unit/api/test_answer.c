#include "api/encode.h"
#include "api/messages.h"
#include "api_world.h"
#include "api/dialect.h"
#include <stddef.h>

/* An answer's events, seen by a dialect that exists only here: other names of fields, another form of its stream, of
 * its body and of its errors. That it compiles and speaks is the proof that a dialect is a table, a parser and a
 * writer. */

/* ---------------------------------------------------------------- the dialect "talk" */

static const struct param talk_rows[] = {
    { "turns", 1, PARAM_ANY, offsetof(struct call, ask.messages), 0, 0, 0, 0, NULL },
    { "live", 1, PARAM_BOOL, offsetof(struct call, stream), 0, 0, 0, 0, NULL },
    { "budget", 1, PARAM_INT, offsetof(struct call, ask.max_tokens), 1, INT32_MAX, 0, 0, NULL },
    { "choices", 1, PARAM_INT, offsetof(struct call, ask.n), 1, 8, 0, 0, check_n },
    { "halt", 1, PARAM_ANY, 0, 0, 0, 0, 0, check_stop },
    { "ids", 1, PARAM_BOOL, offsetof(struct call, return_token_ids), 0, 0, 0, 0, NULL },
};
static const struct param_fields talk_fields = { talk_rows, sizeof talk_rows / sizeof *talk_rows };

static enum status talk_parse(struct call *c, struct api_error *e)
{
    c->n_prompt = 1;
    c->prompt = arena_calloc(&c->arena, 1, sizeof *c->prompt);
    return c->prompt ? messages_check(c, e) : ST_NOMEM;
}

static enum status talk_prepare(struct call *c, struct api_error *e)
{
    enum status st = messages_render(c, e);
    return st ? st : encode_prompt(c, text_of(&c->rendered), c->rendered.n, 0, &c->prompt[0], e);
}

static void talk_begin(struct call *c, uint32_t i, struct buf *out)
{
    (void)c;
    buf_printf(out, "event: start\ndata: %u\n\n", i);
}

static void talk_piece(uint32_t i, const struct answer_piece *p, struct buf *out)
{
    buf_printf(out, "event: words\ndata: {\"of\":%u,\"from\":%u,\"to\":%u,\"words\":", i, p->from, p->to);
    json_put_str(out, p->text, p->n);
    buf_puts(out, "}\n\n");
}

static void talk_text(struct call *c, uint32_t i, const struct answer_piece *p, struct buf *out)
{
    (void)c;
    talk_piece(i, p, out);
}

static void talk_finish(struct call *c, uint32_t i, const struct answer_piece *p, struct buf *out)
{
    struct answer_why why = answer_why(c, i);
    if (p->n || p->to > p->from) talk_piece(i, p, out);
    buf_printf(out, "event: stop\ndata: %u %s", i, why.finish == ENG_STOP ? "said all" : "budget");
    if (why.string) buf_printf(out, " halt=%s", why.string->text);
    if (why.by_token) buf_printf(out, " id=%u", why.id);
    buf_puts(out, "\n\n");
}

static void talk_usage(struct call *c, struct buf *out)
{
    struct answer_usage u = answer_usage(c);
    buf_printf(out, "event: bill\ndata: %u+%u\n\n", (unsigned)u.n_prompt, (unsigned)u.n_completion);
}

static unsigned n_kept; /* pieces that a whole answer's writer was told of */
static void     talk_keep(struct call *c, uint32_t i, const struct answer_piece *p, struct buf *out)
{
    assert_int_equal(out->n, 0);
    assert_true(p->text + p->n == text_of(&c->choice[i].text) + c->choice[i].text.n);
    n_kept++;
}

static void talk_body(struct call *c, struct buf *out)
{
    for (uint32_t i = 0; i < c->n_choice; i++)
        buf_printf(out, "%.*s (%u)\n", (int)c->choice[i].text.n, text_of(&c->choice[i].text),
                   (unsigned)answer_choice_usage(c, i).n_completion);
}

static void talk_error(struct buf *out, const struct api_error *e) { buf_printf(out, "sorry: %s", e->message); }
static void talk_error_stream(struct call *c, struct buf *out, const struct api_error *e)
{
    (void)c;
    buf_printf(out, "event: sorry\ndata: %s\n\n", e->message);
}

static const struct dialect talk = {
    .id_prefix = "talk_",
    .fields = &talk_fields,
    .fields_on = 1,
    .prompt_param = "turns",
    .max_tokens_param = "budget",
    .top_logprobs_param = "",
    .max_tokens_default = 40,
    .parse = talk_parse,
    .prepare = talk_prepare,
    .stream = { .begin = talk_begin, .text = talk_text, .finish = talk_finish, .usage = talk_usage },
    .whole = { .text = talk_keep, .finish = talk_keep, .usage = talk_body },
    .error = talk_error,
    .error_stream = talk_error_stream,
};

/* ---------------------------------------------------------------- tests */

#define TURNS "\"turns\":[{\"role\":\"user\",\"content\":\"Hi\"}]"

static struct buf out;

static void ask_talk(struct call *c, const char *fields)
{
    char body[500];
    snprintf(body, sizeof body, "{" TURNS "%s%s}", *fields ? "," : "", fields);
    ask_ok(c, &talk, body);
    buf_init(&out, 1 << 20);
    n_kept = 0;
}

static void end_talk(struct call *c, const char *want)
{
    answer_end(c, &out);
    assert_string_equal(buf_cstr(&out), want);
    buf_free(&out);
    call_free(c);
}

static void a_choice_begins_speaks_and_finishes_and_usage_comes_last(void **state)
{
    (void)state;
    struct call c;
    ask_talk(&c, "\"live\":true");
    assert_string_equal(c.id, "talk_x1");
    say(&c, 0, "a\xc3\xa9", &out);
    end_eos(&c, 0, &out);
    char want[400];
    snprintf(
        want, sizeof want,
        "event: start\ndata: 0\n\nevent: words\ndata: {\"of\":0,\"from\":0,\"to\":1,\"words\":\"a\"}\n\n"
        "event: words\ndata: {\"of\":0,\"from\":2,\"to\":3,\"words\":\"\xc3\xa9\"}\n\n"
        "event: words\ndata: {\"of\":0,\"from\":3,\"to\":4,\"words\":\"\"}\n\nevent: stop\ndata: 0 said all\n\nevent: bill\ndata: %u+4\n\n",
        c.prompt[0].n_id);
    end_talk(&c, want);
}

static void tokens_without_text_are_told_only_where_tokens_are_asked_for(void **state)
{
    (void)state;
    struct call c;
    ask_talk(&c, "\"live\":true,\"ids\":true");
    say(&c, 0, "\xc3\xa9", &out);
    assert_non_null(strstr(buf_cstr(&out), "\"from\":0,\"to\":1,\"words\":\"\"}"));
    assert_non_null(strstr(buf_cstr(&out), "\"from\":1,\"to\":2,\"words\":\"\xc3\xa9\"}"));
    buf_free(&out);
    call_free(&c);
}

static void a_stop_string_is_named_and_what_it_began_is_not_said(void **state)
{
    (void)state;
    struct call c;
    ask_talk(&c, "\"live\":true,\"halt\":[\"zz\",\"END\"]");
    assert_true(say(&c, 0, "xENDy", &out));
    answer_choice_end(&c, 0, ENG_STOP, &out);
    assert_null(strstr(buf_cstr(&out), "EN\""));
    assert_non_null(strstr(buf_cstr(&out), "event: stop\ndata: 0 said all halt=END\n\n"));
    buf_free(&out);
    call_free(&c);
}

static void choices_take_turns_and_each_has_its_own_events(void **state)
{
    (void)state;
    struct call c;
    ask_talk(&c, "\"live\":true,\"choices\":2,\"budget\":2");
    say(&c, 1, "b", &out);
    say(&c, 0, "a", &out);
    say(&c, 1, "d", &out);
    answer_choice_end(&c, 1, ENG_LENGTH, &out);
    say(&c, 0, "c", &out);
    answer_choice_end(&c, 0, ENG_LENGTH, &out);
    answer_choice_end(&c, 0, ENG_LENGTH, &out); /* once */
    char want[700];
    snprintf(
        want, sizeof want,
        "event: start\ndata: 1\n\nevent: words\ndata: {\"of\":1,\"from\":0,\"to\":1,\"words\":\"b\"}\n\n"
        "event: start\ndata: 0\n\nevent: words\ndata: {\"of\":0,\"from\":0,\"to\":1,\"words\":\"a\"}\n\n"
        "event: words\ndata: {\"of\":1,\"from\":1,\"to\":2,\"words\":\"d\"}\n\nevent: stop\ndata: 1 budget\n\n"
        "event: words\ndata: {\"of\":0,\"from\":1,\"to\":2,\"words\":\"c\"}\n\nevent: stop\ndata: 0 budget\n\nevent: bill\ndata: %u+4\n\n",
        c.prompt[0].n_id);
    end_talk(&c, want);
}

static void a_whole_answer_writes_nothing_before_its_last_event(void **state)
{
    (void)state;
    struct call c;
    ask_talk(&c, "\"choices\":2");
    say(&c, 0, "one", &out);
    say(&c, 1, "two!", &out);
    end_eos(&c, 1, &out);
    end_eos(&c, 0, &out);
    assert_int_equal(n_kept, 3 + 4 + 2);
    end_talk(&c, "one (4)\ntwo! (5)\n");
}

static void errors_speak_the_dialect_and_name_its_fields(void **state)
{
    (void)state;
    struct call      c;
    struct api_error e;
    refuses_as(&talk, "{}", 400, "turns", "");
    refuses_as(&talk, "{\"turns\":[{\"role\":\"boss\"}]}", 400, "turns", "");
    refuses_as(&talk, "{" TURNS ",\"budget\":0}", 400, "budget", "");
    refuses_as(&talk, "{" TURNS ",\"budget\":100000}", 400, "budget", "context_length_exceeded");
    refuses_as(&talk, "{" TURNS ",\"halt\":[\"\"]}", 400, "halt", "");
    accepts(&talk, "{" TURNS ",\"max_tokens\":0,\"stop\":5}"); /* fields of others are no fields here */
    ask_talk(&c, "\"live\":true");
    api_fail(&e, 500, "", "no luck");
    answer_fail(&c, &e, &out);
    answer_error(&talk, &e, &out);
    assert_string_equal(buf_cstr(&out), "event: sorry\ndata: no luck\n\nsorry: no luck");
    buf_clear(&out);
    answer_error(NULL, &e, &out);
    assert_non_null(strstr(buf_cstr(&out), "{\"error\":{\"message\":\"no luck\""));
    buf_free(&out);
    call_free(&c);
}

static void a_null_budget_asks_for_all_that_is_left(void **state)
{
    (void)state;
    struct call c;
    ask_talk(&c, "");
    assert_int_equal(c.choice[0].room, 40);
    call_free(&c);
    ask_talk(&c, "\"budget\":null");
    assert_int_equal(c.choice[0].room, CONTEXT - c.prompt[0].n_id);
    call_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_choice_begins_speaks_and_finishes_and_usage_comes_last),
        cmocka_unit_test(tokens_without_text_are_told_only_where_tokens_are_asked_for),
        cmocka_unit_test(a_stop_string_is_named_and_what_it_began_is_not_said),
        cmocka_unit_test(choices_take_turns_and_each_has_its_own_events),
        cmocka_unit_test(a_whole_answer_writes_nothing_before_its_last_event),
        cmocka_unit_test(errors_speak_the_dialect_and_name_its_fields),
        cmocka_unit_test(a_null_budget_asks_for_all_that_is_left),
    };
    return cmocka_run_group_tests(tests, world_open, world_close);
}
