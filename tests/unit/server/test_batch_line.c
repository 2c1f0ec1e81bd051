#include "base/json.h"
#include "server/cmd/batch_line.h"
#include "test.h"
#include <stdlib.h>

#define RUN "0123456789abcdef"

static enum status read_copy(const char *text, struct batch_line *l, struct batch_wrong *w)
{
    return batch_line_read(text, strlen(text), l, w);
}

static void a_line_gives_its_fields_and_the_bytes_of_its_body(void **state)
{
    (void)state;
    struct batch_line  l;
    struct batch_wrong w;
    const char        *text =
        " {\"url\":\"/v1/completions\", \"more\":[1,{}], \"custom_id\":\"a\\u00e4\\\"\", \"body\" : { \"prompt\" : \"x\" } ,"
        "\"method\":\"POST\"} ";
    assert_int_equal(read_copy(text, &l, &w), ST_OK);
    assert_string_equal(l.url, "/v1/completions");
    assert_int_equal(l.n_custom_id, 4);
    assert_memory_equal(l.custom_id, "a\xc3\xa4\"", 4);
    assert_int_equal(l.n_body, strlen("{ \"prompt\" : \"x\" }"));
    assert_memory_equal(l.body, "{ \"prompt\" : \"x\" }", l.n_body);
}

static void a_wrong_line_names_its_field(void **state)
{
    (void)state;
    static const struct {
        const char *text, *code, *param, *says;
    } row[] = {
        { "", "invalid_json", NULL, "no request" },
        { "{oops", "invalid_json", NULL, "at byte 1" },
        { "[1]", "invalid_json", NULL, "an object is needed" },
        { "{\"custom_id\":\"a\",\"custom_id\":\"b\"}", "invalid_json", NULL, "duplicate" },
        { "{}", "missing_custom_id", "custom_id", "found nothing" },
        { "{\"custom_id\":7}", "invalid_custom_id", "custom_id", "found a number" },
        { "{\"custom_id\":\"\"}", "invalid_custom_id", "custom_id", "found 0 bytes" },
        { "{\"custom_id\":\"a\"}", "invalid_method", "method", "found nothing" },
        { "{\"custom_id\":\"a\",\"method\":\"GET\"}", "invalid_method", "method", "found 'GET'" },
        { "{\"custom_id\":\"a\",\"method\":\"POST\"}", "invalid_url", "url", "found nothing" },
        { "{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":[]}", "invalid_url", "url", "found an array" },
        { "{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1\\u0000\"}", "invalid_url", "url", "no route" },
        { "{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1\"}", "invalid_body", "body", "found nothing" },
        { "{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1\",\"body\":\"{}\"}", "invalid_body", "body",
          "a string" },
        { "{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1\",\"body\":{\"stream\":true}}", "invalid_stream",
          "body.stream", "found true" },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct batch_line  l;
        struct batch_wrong w;
        assert_int_equal(read_copy(row[i].text, &l, &w), ST_INVALID);
        assert_string_equal(w.code, row[i].code);
        if (row[i].param)
            assert_string_equal(w.param, row[i].param);
        else
            assert_null(w.param);
        if (!strstr(w.text, row[i].says)) fail_msg("%s: %s", row[i].text, w.text);
    }
}

static void an_id_may_have_512_bytes(void **state)
{
    (void)state;
    char               text[700];
    struct batch_line  l;
    struct batch_wrong w;
    for (int n = 512; n <= 513; n++) {
        snprintf(text, sizeof text, "{\"custom_id\":\"%0*d\",\"method\":\"POST\",\"url\":\"/x\",\"body\":{}}", n, 7);
        assert_int_equal(read_copy(text, &l, &w), n == 512 ? ST_OK : ST_INVALID);
        assert_int_equal(l.n_custom_id, n == 512 ? 512 : 0);
    }
}

static void an_answer_is_one_line_that_says_what_it_answers(void **state)
{
    (void)state;
    static const char body[] = "{\"a\":\n\"b\\n\"}";
    struct batch_line l = { .custom_id = "x\"\n", .n_custom_id = 3 };
    struct json_error e;
    struct buf        b;
    uint64_t          line = 0;
    bool              good = false;
    buf_init(&b, 1 << 16);
    batch_line_answer(&b, RUN, 70000, &l, 200, "req", body, sizeof body - 1);
    assert_false(b.failed);
    assert_ptr_equal(memchr(b.data, '\n', b.n), b.data + b.n - 1);
    json_t *v = json_parse(b.data, b.n - 1, 0, &e);
    assert_non_null(v);
    assert_string_equal(json_string_value(json_object_get(v, "custom_id")), "x\"\n");
    json_t *response = json_object_get(v, "response");
    assert_int_equal(json_integer_value(json_object_get(response, "status_code")), 200);
    assert_string_equal(json_string_value(json_object_get(json_object_get(response, "body"), "a")), "b\n");
    assert_true(json_is_null(json_object_get(v, "error")));
    json_decref(v);
    assert_true(batch_line_is_of(b.data, b.n - 1, RUN, &line, &good));
    assert_int_equal(line, 70000);
    assert_true(good);
    assert_false(batch_line_is_of(b.data, b.n - 1, "0123456789abcdee", &line, &good));
    for (size_t n = 0; n < b.n - 1; n++)
        assert_false(batch_line_is_of(b.data, n, RUN, &line, &good) && b.data[n - 1] != '}');
    buf_free(&b);
}

static void a_refusal_names_its_line(void **state)
{
    (void)state;
    /* an id that says what a good answer says must not make it one */
    static const char  id[] = "\",\"response\":{\"status_code\":200,\"request_id\":\"";
    struct batch_line  l = { .n_custom_id = sizeof id - 1 };
    struct batch_wrong w = { .code = "invalid_url", .param = "url", .text = "found \"/\"" };
    struct json_error  e;
    struct buf         b;
    uint64_t           line = 0;
    bool               good = true;
    memcpy(l.custom_id, id, sizeof id);
    buf_init(&b, 1 << 16);
    batch_line_refuse(&b, RUN, 3, &l, &w);
    json_t *v = json_parse(b.data, b.n - 1, 0, &e), *error = json_object_get(v, "error");
    assert_string_equal(json_string_value(json_object_get(error, "message")), "line 3: found \"/\"");
    assert_string_equal(json_string_value(json_object_get(error, "param")), "url");
    assert_int_equal(json_integer_value(json_object_get(error, "line")), 3);
    assert_true(json_is_null(json_object_get(v, "response")));
    json_decref(v);
    assert_true(batch_line_is_of(b.data, b.n - 1, RUN, &line, &good));
    assert_int_equal(line, 3);
    assert_false(good);
    buf_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_gives_its_fields_and_the_bytes_of_its_body),
        cmocka_unit_test(a_wrong_line_names_its_field),
        cmocka_unit_test(an_id_may_have_512_bytes),
        cmocka_unit_test(an_answer_is_one_line_that_says_what_it_answers),
        cmocka_unit_test(a_refusal_names_its_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
