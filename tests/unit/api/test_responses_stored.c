#include "api/responses/store.h"
#include "api/responses/stored.h"
#include "tools_world.h"

/* Requests that go on from stored responses, and what clients ask about those. */

#define W \
    "{\"type\":\"function\",\"name\":\"w\",\"description\":\"d\",\"parameters\":{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\"}}}}"
#define CALL "<tool_call>\n{\"name\": \"w\", \"arguments\": {\"city\": \"R\xc3\xb6m\"}}\n</tool_call>"

static const char *body_with(const char *fields)
{
    static char body[1 << 14];
    snprintf(body, sizeof body, "{%s}", fields);
    return body;
}

enum { KEY = 5 };

static int open_with_store(void **state)
{
    (void)state;
    return responses_store_create(64 << 10, 2, 1000000000, &world.m.responses);
}
static int close_store(void **state)
{
    (void)state;
    responses_store_free(world.m.responses);
    world.m.responses = NULL;
    return 0;
}

/* Asks as the server does. */
static enum status ask_for(struct call *c, uint64_t key, const char *fields, struct api_error *e)
{
    struct call_past past;
    const char      *body = body_with(fields);
    size_t           n = strlen(body);
    enum status      st = call_recall(&dialect_responses, &world.m, key, body, n, &past, e);
    if (!st) {
        const struct call_from from = { .request_id = "x1", .tenant = key, .past = &past.lines };
        assert_int_equal(call_text_bytes(&dialect_responses, &world.m, key, body, n), n + past.lines.n);
        st = call_parse(c, &dialect_responses, &world.m, body, n, &from, e);
        if (!st) st = call_prepare(c, e);
        if (st) call_free(c);
    }
    buf_free(&past.lines);
    return st;
}

/* The id of a response to this that says the text. */
static const char *answered(const char *fields, const char *text, enum eng_finish finish, bool stored)
{
    static char      ids[4][sizeof((struct call *)0)->id];
    static int       turn;
    char            *id = ids[turn++ % 4];
    struct call      c;
    struct api_error e;
    buf_init(&out, 4 << 20);
    if (ask_for(&c, KEY, fields, &e)) fail_msg("%s", e.message);
    say(&c, 0, text, &out);
    if (finish == ENG_STOP)
        end_eos(&c, 0, &out);
    else
        answer_choice_end(&c, 0, finish, &out);
    answer_end(&c, &out);
    snprintf(id, sizeof *ids, "%s", c.id);
    call_free(&c);
    json_t *v = body_of(&out);
    assert_true(json_is_true(json_object_get(v, "store")) == stored);
    assert_int_equal(strlen(id), STORED_ID_BYTES);

    struct buf kept;
    buf_init(&kept, 1 << 20);
    enum status st = api_response_get(&world.m, KEY, id, &kept, &e);
    assert_int_equal(st == ST_OK, stored);
    if (stored) { /* the same object */
        json_t *again = body_of(&kept);
        assert_true(json_equal(v, again));
        json_decref(again);
    } else {
        assert_int_equal(e.http, 404);
    }
    buf_free(&kept);
    json_decref(v);
    buf_free(&out);
    return id;
}

static void past_prompt_is(const char *fields, const char *id, const char *want)
{
    struct call      c;
    struct api_error e;
    char             all[1 << 13];
    snprintf(all, sizeof all, "%s,\"previous_response_id\":\"%s\"", fields, id);
    if (ask_for(&c, KEY, all, &e)) fail_msg("%s", e.message);
    assert_string_equal(prompt_text(&c, 0), want);
    call_free(&c);
}

static void a_request_goes_on_from_a_stored_response(void **state)
{
    (void)state;
    char        more[500];
    const char *id =
        answered("\"instructions\":\"S\",\"input\":\"q\",\"tools\":[" W "]", "I look." CALL, ENG_STOP, true);
    /* instructions are not carried over, calls are */
    char             want[2000] = "[258]user\nq[259]\n[258]assistant\nI look.<tool_call>";
    struct call      c;
    struct api_error e;
    snprintf(
        more, sizeof more,
        "\"previous_response_id\":\"%s\",\"input\":[{\"type\":\"function_call_output\",\"call_id\":\"c\",\"output\":\"sun\"}]",
        id);
    if (ask_for(&c, KEY, more, &e)) fail_msg("%s", e.message);
    assert_memory_equal(prompt_text(&c, 0), want, strlen(want));
    assert_non_null(
        strstr(prompt_text(&c, 0), " w {\"city\": \"R\xc3\xb6m\"}</tool_call>[259]\n[258]toolc\nsun[259]\n"));
    call_free(&c);

    const char *second;
    snprintf(more, sizeof more, "\"previous_response_id\":\"%s\",\"input\":\"r\"",
             answered("\"input\":\"q\"", "a", ENG_STOP, true));
    second = answered(more, "b", ENG_STOP, true);
    past_prompt_is("\"instructions\":\"T\",\"input\":\"s\"", second,
                   "[258]system\nT[259]\n[258]user\nq[259]\n[258]assistant\na[259]\n[258]user\nr[259]\n"
                   "[258]assistant\nb[259]\n[258]user\ns[259]\n[258]assistant\n");
    /* a call that was cut off is left out: its arguments are no JSON */
    id = answered("\"input\":\"q\",\"tools\":[" W "]",
                  "Hm.<tool_call>\n{\"name\": \"w\", \"arguments\": {\"city\": \"R", ENG_LENGTH, true);
    past_prompt_is("\"input\":\"s\"", id,
                   "[258]user\nq[259]\n[258]assistant\nHm.[259]\n[258]user\ns[259]\n[258]assistant\n");
}

static void what_is_not_stored_cannot_be_found(void **state)
{
    (void)state;
    struct call      c;
    struct api_error e;
    struct buf       b;
    char             more[500];
    const char      *id = answered("\"input\":\"q\",\"store\":false", "a", ENG_STOP, false);
    buf_init(&b, 1 << 20);
    const char *kept = answered("\"input\":\"q\"", "a", ENG_STOP, true);
    assert_int_equal(api_response_get(&world.m, KEY + 1, kept, &b, &e), ST_INVALID); /* another key's */
    assert_int_equal(e.http, 404);
    assert_int_equal(api_response_delete(&world.m, KEY + 1, kept, &b, &e), ST_INVALID);
    assert_int_equal(api_response_cancel(&world.m, KEY + 1, kept, &e), ST_INVALID);
    assert_int_equal(e.http, 404);
    assert_int_equal(api_response_cancel(&world.m, KEY, kept, &e), ST_INVALID);
    assert_int_equal(e.http, 400);
    /* escapes in the field's name change nothing */
    snprintf(more, sizeof more, "\"previous\\u005fresponse_id\":\"%s\",\"input\":\"r\"", kept);
    assert_int_equal(ask_for(&c, KEY + 1, more, &e), ST_INVALID);
    assert_string_equal(e.code, "previous_response_not_found");
    assert_int_equal(ask_for(&c, KEY, more, &e), ST_OK);
    call_free(&c);
    const char *const unknown[] = { id, "", "resp_1", kept };
    assert_int_equal(api_response_delete(&world.m, KEY, kept, &b, &e), ST_OK);
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        snprintf(more, sizeof more, "\"previous_response_id\":\"%s\",\"input\":\"r\"", unknown[i]);
        assert_int_equal(ask_for(&c, KEY, more, &e), ST_INVALID);
        assert_int_equal(e.http, 404);
        assert_string_equal(e.param, "previous_response_id");
        assert_string_equal(e.code, "previous_response_not_found");
    }
    buf_free(&b);
}

/* Only one of both can say what came before, so the body is wrong whether the id is known or not. */
static void an_id_beside_a_conversation_is_a_wrong_body(void **state)
{
    (void)state;
    struct call      c;
    struct api_error e;
    char             more[500];
    const char      *id[] = { answered("\"input\":\"q\"", "a", ENG_STOP, true), "resp_1" };
    static const struct {
        const char *conversation;
        bool        is_one;
    } with[] = { { "\"conv_1\"", true }, { "{\"id\":\"conv_1\"}", true }, { "null", false } };
    for (int known = 0; known < 2; known++)
        for (size_t i = 0; i < sizeof with / sizeof *with; i++) {
            snprintf(more, sizeof more, "\"previous_response_id\":\"%s\",\"conversation\":%s,\"input\":\"r\"",
                     id[!known], with[i].conversation);
            enum status st = ask_for(&c, KEY, more, &e);
            if (known && !with[i].is_one) {
                assert_int_equal(st, ST_OK);
                call_free(&c);
                continue;
            }
            assert_int_equal(st, ST_INVALID);
            assert_int_equal(e.http, with[i].is_one ? 400 : 404);
            assert_string_equal(e.param, with[i].is_one ? "conversation" : "previous_response_id");
        }
}

static void too_large_a_response_is_answered_and_not_stored(void **state)
{
    (void)state;
    struct responses_store_stats before, after;
    struct buf                   b;
    buf_init(&b, 1 << 14);
    buf_puts(&b, "\"metadata\":{");
    for (int i = 0; i < 12; i++) buf_printf(&b, "%s\"k%d\":\"%0*d\"", i ? "," : "", i, 500, i);
    buf_puts(&b, "},\"input\":\"q\"");
    for (int i = 0; i < 3; i++) answered(buf_cstr(&b), "a", ENG_STOP, true);
    responses_store_count(world.m.responses, &before);
    responses_store_free(world.m.responses);
    assert_int_equal(responses_store_create(4 << 10, 2, 1000000000, &world.m.responses), ST_OK);
    answered(buf_cstr(&b), "a", ENG_STOP, false);
    responses_store_count(world.m.responses, &after);
    assert_true(before.n_stored == 3 && after.n_stored == 0 && after.bytes_used == 0);
    buf_free(&b);
}

/* Clients that rely on the store send the id of an item instead of the item. */
static void an_item_is_found_by_its_id(void **state)
{
    (void)state;
    struct buf       text;
    struct call      c;
    struct api_error e;
    struct buf       b;
    const char *first = answered("\"tools\":[" W "],\"input\":[{\"id\":\"mine\",\"role\":\"user\",\"content\":\"q\"}]",
                                 "I look." CALL, ENG_STOP, true);
    buf_init(&b, 1 << 20);
    assert_int_equal(api_response_get(&world.m, KEY, first, &b, &e), ST_OK);
    json_t *v = body_of(&b);
    buf_init(&text, 1 << 20);
    buf_printf(
        &text,
        "\"tools\":[" W
        "],\"input\":[{\"type\":\"item_reference\",\"id\":\"mine\"},{\"type\":\"item_reference\",\"id\":\"%s\"},"
        "{\"type\":\"item_reference\",\"id\":\"%s\"},{\"type\":\"item_reference\",\"id\":\"nobody\"},"
        "{\"type\":\"item_reference\",\"id\":\"mine\"},{\"type\":\"function_call_output\",\"call_id\":\"%s\",\"output\":\"warm\"}]",
        str_at(v, "output.0.id"), str_at(v, "output.1.id"), str_at(v, "output.1.call_id"));
    json_decref(v);
    buf_free(&b);
    const char *fields = buf_cstr(&text);
    static char want[1 << 16];
    if (ask_for(&c, KEY, fields, &e)) fail_msg("%s", e.message);
    snprintf(want, sizeof want, "%s", prompt_text(&c, 0));
    call_free(&c);
    assert_non_null(strstr(want, "[258]user\nq[259]\n[258]assistant\nI look.<tool_call>"));
    assert_non_null(strstr(want, "warm"));
    assert_null(strstr(strstr(want, "user\nq") + 1, "user\nq")); /* once */

    /* what is stored of it has the items themselves: it stays whole when the first one is gone */
    const char *second = answered(fields, "fine", ENG_STOP, true);
    buf_init(&b, 1 << 20);
    assert_int_equal(api_response_delete(&world.m, KEY, first, &b, &e), ST_OK);
    buf_free(&b);
    if (ask_for(&c, KEY, fields, &e)) fail_msg("%s", e.message);
    assert_string_equal(prompt_text(&c, 0), want); /* found in the second one */
    call_free(&c);
    buf_init(&b, 1 << 20);
    assert_int_equal(api_response_delete(&world.m, KEY, second, &b, &e), ST_OK);
    buf_free(&b);

    /* not by another key, and not when nothing is stored any more */
    for (uint64_t key = KEY; key <= KEY + 1; key++) {
        if (ask_for(&c, key, fields, &e)) fail_msg("%s", e.message);
        assert_null(strstr(prompt_text(&c, 0), "user\nq"));
        call_free(&c);
    }
    buf_free(&text);
}

static void pages_of_the_input_have_every_item_once(void **state)
{
    (void)state;
    struct buf       b;
    struct api_error e;
    char             more[500];
    const char      *first = answered(
             "\"input\":[{\"role\":\"user\",\"content\":\"a\"},{\"type\":\"item_reference\",\"id\":\"i\"},"
                  "{\"id\":\"my id\",\"type\":\"message\",\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"b\\nb\"}]},"
                  "{\"id\":\"mine\",\"role\":\"assistant\",\"content\":\"c\"},{\"role\":\"user\",\"content\":\"d\"}]",
             "e", ENG_STOP, true);
    snprintf(more, sizeof more, "\"previous_response_id\":\"%s\",\"input\":\"f\"", first);
    const char *id = answered(more, "g", ENG_STOP, true);
    for (int oldest_first = 0; oldest_first < 2; oldest_first++) {
        for (uint32_t limit = 1; limit <= 7; limit++) {
            char all[20] = { 0 }, after[80] = "", mine = 0;
            bool more_comes = true;
            while (more_comes) {
                struct stored_page page = { .limit = limit, .oldest_first = oldest_first };
                if (*after) {
                    page.after = after;
                    page.n_after = strlen(after);
                }
                buf_init(&b, 1 << 20);
                assert_int_equal(api_response_items(&world.m, KEY, id, &page, &b, &e), ST_OK);
                json_t *v = body_of(&b), *item;
                size_t  i;
                json_array_foreach(json_object_get(v, "data"), i, item)
                {
                    all[strlen(all)] = *str_at(item, "content.0.text");
                    assert_string_equal(str_at(item, "type"), "message");
                    assert_null(strchr(str_at(item, "id"), ' '));
                    if (!strcmp(str_at(item, "id"), "mine")) mine++;
                }
                assert_true(i > 0 && i <= limit);
                assert_string_equal(str_at(v, "last_id"),
                                    str_at(json_array_get(json_object_get(v, "data"), i - 1), "id"));
                snprintf(after, sizeof after, "%s", str_at(v, "last_id"));
                more_comes = json_is_true(json_object_get(v, "has_more"));
                json_decref(v);
                buf_free(&b);
            }
            assert_string_equal(all, oldest_first ? "abcdef" : "fedcba");
            assert_int_equal(mine, 1);
        }
    }
    buf_init(&b, 1 << 20);
    struct stored_page page = { .after = "no", .n_after = 2, .limit = 1 };
    assert_int_equal(api_response_items(&world.m, KEY, id, &page, &b, &e), ST_INVALID);
    assert_string_equal(e.param, "after");
    buf_free(&b);
}

static void tokens_are_counted_with_what_was_before(void **state)
{
    (void)state;
    struct buf       b;
    struct api_error e;
    struct call      c;
    char             more[500], body[600];
    const char      *id = answered("\"input\":\"q\"", "a", ENG_STOP, true);
    snprintf(more, sizeof more, "\"previous_response_id\":\"%s\",\"input\":\"r\"", id);
    assert_int_equal(ask_for(&c, KEY, more, &e), ST_OK);
    uint32_t n = c.prompt[0].n_id;
    call_free(&c);
    snprintf(body, sizeof body, "{%s}", more);
    buf_init(&b, 1 << 20);
    assert_int_equal(api_input_tokens(&world.m, KEY, body, strlen(body), &b, &e), ST_OK);
    json_t *v = body_of(&b);
    assert_string_equal(str_at(v, "object"), "response.input_tokens");
    assert_int_equal(int_at(v, "input_tokens"), n);
    json_decref(v);
    buf_clear(&b);
    assert_int_equal(api_input_tokens(&world.m, KEY + 1, body, strlen(body), &b, &e), ST_INVALID);
    assert_int_equal(e.http, 404);
    snprintf(body, sizeof body, "{\"previous_response_id\":\"%s\"}", id); /* without more */
    buf_clear(&b);
    assert_int_equal(api_input_tokens(&world.m, KEY, body, strlen(body), &b, &e), ST_OK);
    buf_free(&b);
}

int main(void)
{
#define STORED(f) cmocka_unit_test_setup_teardown(f, open_with_store, close_store)
    const struct CMUnitTest tests[] = {
        STORED(a_request_goes_on_from_a_stored_response),        STORED(what_is_not_stored_cannot_be_found),
        STORED(too_large_a_response_is_answered_and_not_stored), STORED(pages_of_the_input_have_every_item_once),
        STORED(tokens_are_counted_with_what_was_before),         STORED(an_item_is_found_by_its_id),
        STORED(an_id_beside_a_conversation_is_a_wrong_body),
    };
    return cmocka_run_group_tests(tests, open_with_tools, world_close);
}
