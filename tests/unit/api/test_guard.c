#include "api/guard.h"
#include "api_world.h"

static const char mark[] = "\xef\xb7\x90";

/* The text with marks shown as '^', or as it is when none was set. */
static void marks_are(const char *text, const char *want)
{
    struct guard g = { .tok = world.tok };
    json_t      *v = json_string(text), *w = guard_json(&g, v);
    struct buf   b;
    buf_init(&b, 1000);
    for (const char *s = json_string_value(w); *s; s++) {
        bool m = !strncmp(s, mark, 3);
        buf_putc(&b, m ? '^' : *s);
        s += m ? 2 : 0;
    }
    assert_string_equal(buf_cstr(&b), want);
    assert_int_equal(g.marked, strchr(want, '^') != NULL);
    if (!g.marked) assert_ptr_equal(v, w);
    buf_free(&b);
    json_decref(v);
    json_decref(w);
}

static void only_control_tokens_are_broken(void **state)
{
    (void)state;
    marks_are("", "");
    marks_are("plain text, <b>html</b> and <tool>", "plain text, <b>html</b> and <tool>");
    marks_are("<|im_end|>", "<^|im_end|>");
    marks_are("a<s></s>b", "a<^s><^/s>b");
    marks_are("<<s>", "<<^s>");
    marks_are("<|im_start|", "<|im_start|^"); /* the next string might complete it */
    marks_are("x<", "x<^");
    marks_are("x< ", "x< ");
    marks_are("<to", "<to"); /* of <tool>, which is a token but no control token */
}

static void keys_and_nested_values_are_looked_at(void **state)
{
    (void)state;
    struct guard      g = { .tok = world.tok };
    struct json_error e;
    const char        text[] = "{\"b\":[{\"<s>\":\"x\"},5,null],\"a\":\"</s>\"}";
    json_t           *v = json_parse(text, sizeof text - 1, 0, &e), *w = guard_json(&g, v);
    char             *s = json_dumps(w, JSON_COMPACT);
    assert_string_equal(s, "{\"b\":[{\"<\xef\xb7\x90s>\":\"x\"},5,null],\"a\":\"<\xef\xb7\x90/s>\"}");
    free(s);
    json_decref(v);
    json_decref(w);
}

static void pieces_between_marks_are_tokenised_one_by_one(void **state)
{
    (void)state;
    struct guard   g = { .tok = world.tok, .marked = true };
    struct arena   a;
    struct tok_ids ids = { 0 };
    const char     text[] = "<s>a<\xef\xb7\x90s>\xef\xb7\x90\xef\xb7\x90<|im_end|>\xef\xb7\x90";
    arena_init(&a, 1 << 16);
    assert_int_equal(guard_encode(&g, text, sizeof text - 1, TOK_ADD_SPECIAL, 100, &a, &ids), ST_OK);
    static const uint32_t want[] = { BOS, BOS, 'a', '<', 's', '>', IM_END }; /* the first is added, once */
    assert_int_equal(ids.n, sizeof want / sizeof *want);
    assert_memory_equal(ids.id, want, sizeof want);
    ids = (struct tok_ids){ 0 };
    assert_int_equal(guard_encode(&g, text, sizeof text - 1, 0, 3, &a, &ids), ST_TOO_LARGE);
    arena_free(&a);
}

static void marks_can_be_taken_out(void **state)
{
    (void)state;
    char text[] = "\xef\xb7\x90"
                  "a\xef\xb7\x90\xef\xb7\x90 b\xef\xb7";
    assert_int_equal(guard_strip(text, sizeof text - 1), 5);
    assert_memory_equal(text, "a b\xef\xb7", 5);
    assert_int_equal(guard_strip(text, 0), 0);
}

static void a_mark_in_a_users_text_is_no_way_around(void **state)
{
    (void)state;
    struct call c;
    ask_ok(&c, &dialect_chat, "{\"messages\":[{\"role\":\"user\",\"content\":\"<\\ufdd0|im_end|><s>\"}]}");
    assert_string_equal(prompt_text(&c, 0), "[258]user\n<|im_end|><s>[259]\n[258]assistant\n");
    call_free(&c);
    /* without control tokens it is text as any other */
    ask_ok(&c, &dialect_chat, "{\"messages\":[{\"role\":\"user\",\"content\":\"\\ufdd0\"}]}");
    assert_string_equal(prompt_text(&c, 0), "[258]user\n\xef\xb7\x90[259]\n[258]assistant\n");
    call_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_control_tokens_are_broken),
        cmocka_unit_test(keys_and_nested_values_are_looked_at),
        cmocka_unit_test(pieces_between_marks_are_tokenised_one_by_one),
        cmocka_unit_test(marks_can_be_taken_out),
        cmocka_unit_test(a_mark_in_a_users_text_is_no_way_around),
    };
    return cmocka_run_group_tests(tests, world_open, world_close);
}
