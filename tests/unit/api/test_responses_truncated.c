#include "tools_world.h"

/* "truncation": "auto". */

static struct buf body;

static int shut(void **state)
{
    buf_free(&body);
    return world_close(state);
}

/* Turns of a user and an assistant, the calls of the model in each third, and a last question. */
static void make(const char *more, unsigned n_turn, size_t bytes)
{
    buf_free(&body);
    buf_init(&body, 1 << 22);
    buf_printf(&body, "{\"instructions\":\"S\"%s,\"input\":[", more);
    for (unsigned n = 0; n < n_turn; n++) {
        buf_printf(&body, "{\"role\":\"user\",\"content\":\"<u%u>%0*u\"},", n, (int)bytes, 0);
        if (n % 3 == 0)
            buf_printf(&body,
                       "{\"type\":\"function_call\",\"call_id\":\"c%u\",\"name\":\"w\",\"arguments\":\"{}\"},"
                       "{\"type\":\"function_call_output\",\"call_id\":\"c%u\",\"output\":\"<o%u>\"},",
                       n, n, n);
        buf_printf(&body, "{\"role\":\"assistant\",\"content\":\"<a%u>\"},", n);
    }
    buf_puts(&body, "{\"role\":\"user\",\"content\":\"the last\"}]}");
}

static enum status ask_it(struct call *c, struct api_error *e)
{
    return ask(c, &dialect_responses, buf_cstr(&body), e);
}

/* What is left is the end of the conversation: instructions, and a call where its output is. */
static void check(const char *text)
{
    static char whole[1 << 21];
    assert_memory_equal(text, "[258]system\nS[259]\n[258]", 22);
    assert_non_null(strstr(text, "[258]user\nthe last[259]\n[258]assistant\n"));
    const char      *rest = text + 18;
    struct call      c;
    struct api_error e;
    uint32_t         context = world.m.context;
    world.m.context = 1 << 20;
    assert_int_equal(ask_it(&c, &e), ST_OK);
    snprintf(whole, sizeof whole, "%s", prompt_text(&c, 0));
    call_free(&c);
    world.m.context = context;
    assert_true(strlen(whole) >= strlen(rest));
    assert_string_equal(whole + strlen(whole) - strlen(rest), rest);
    const char *output = strstr(rest, "toolc");
    const char *call = strstr(rest, "<tool_call>");
    assert_true(!output || (call && call < output));
}

static void the_oldest_messages_are_left_out_until_it_fits(void **state)
{
    (void)state;
    struct call      c;
    struct api_error e;
    uint32_t         context = world.m.context, before = UINT32_MAX;
    static char      text[1 << 20];
    make(",\"truncation\":\"auto\"", 12, 30);
    world.m.context = 1 << 20;
    assert_int_equal(ask_it(&c, &e), ST_OK);
    uint32_t n = c.prompt[0].n_id;
    call_free(&c);
    /* at one below, at, and one above what fits, and on down */
    for (world.m.context = n + 2; world.m.context > 100; world.m.context -= world.m.context > n - 2 ? 1 : 7) {
        assert_int_equal(ask_it(&c, &e), ST_OK);
        uint32_t got = c.prompt[0].n_id;
        assert_true(got < world.m.context && got <= before);
        assert_int_equal(got == n, world.m.context > n);
        before = got;
        snprintf(text, sizeof text, "%s", prompt_text(&c, 0));
        call_free(&c);
        check(text);
    }
    world.m.context = context;
}

static void what_cannot_fit_is_refused(void **state)
{
    (void)state;
    struct call      c;
    struct api_error e;
    uint32_t         context = world.m.context;
    world.m.context = 300;
    for (int last_only = 0; last_only < 2; last_only++) {
        buf_free(&body);
        buf_init(&body, 1 << 20);
        buf_puts(&body, "{\"truncation\":\"auto\",\"input\":[");
        if (!last_only)
            buf_puts(&body, "{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"b\"},");
        buf_printf(&body, "{\"role\":\"user\",\"content\":\"%0500d\"}]}", 0);
        assert_int_equal(ask_it(&c, &e), ST_INVALID);
        call_free(&c);
        assert_string_equal(e.code, "context_length_exceeded");
    }
    make("", 12, 30);
    assert_int_equal(ask_it(&c, &e), ST_INVALID); /* and without it nothing is left out */
    call_free(&c);
    assert_string_equal(e.code, "context_length_exceeded");
    world.m.context = context;
}

static void many_messages_take_few_attempts(void **state)
{
    (void)state;
    struct call      c;
    struct api_error e;
    uint32_t         context = world.m.context;
    world.m.context = 400;
    make(",\"truncation\":\"auto\"", 3000, 20);
    assert_int_equal(ask_it(&c, &e), ST_OK);
    assert_true(c.prompt[0].n_id < 400 && c.prompt[0].n_id > 200);
    call_free(&c);
    world.m.context = context;
}

static void a_template_that_wants_the_user_first_gets_it(void **state)
{
    (void)state;
    static const char picky[] =
        "{% for m in messages %}{% if m.role != 'system' and (loop.index0 == 1) and m.role != 'user' %}{{ raise_exception('no') }}{% endif %}"
        "<|im_start|>{{ m.role }}\n{{ m.content or '' }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
    struct call      c;
    struct api_error e;
    uint32_t         context = world.m.context;
    struct tmpl     *usual = world.tmpl, *mine = world_tmpl(picky);
    world.m.tmpl = mine;
    make(",\"truncation\":\"auto\"", 12, 30);
    for (world.m.context = 500; world.m.context > 150; world.m.context -= 9) {
        if (ask_it(&c, &e)) fail_msg("%s", e.message);
        assert_memory_equal(prompt_text(&c, 0), "[258]system\nS[259]\n[258]user\n", 29);
        call_free(&c);
    }
    world.m.context = context;
    world.m.tmpl = usual;
    tmpl_free(mine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_oldest_messages_are_left_out_until_it_fits),
        cmocka_unit_test(what_cannot_fit_is_refused),
        cmocka_unit_test(many_messages_take_few_attempts),
        cmocka_unit_test(a_template_that_wants_the_user_first_gets_it),
    };
    return cmocka_run_group_tests(tests, open_with_tools, shut);
}
