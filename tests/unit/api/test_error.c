#include "api/error.h"
#include "base/json.h"
#include "test.h"

static void an_error_has_all_four_keys(void **state)
{
    (void)state;
    struct api_error e;
    struct buf       b;
    buf_init(&b, 4096);
    assert_int_equal(api_fail(&e, 400, "n", "'n' is %d \"q\"\n", 5), ST_INVALID);
    api_error_json(&b, &e);
    assert_string_equal(
        buf_cstr(&b),
        "{\"error\":{\"message\":\"'n' is 5 \\\"q\\\"\\n\",\"type\":\"BadRequestError\",\"param\":\"n\",\"code\":400}}");
    buf_clear(&b);
    api_fail_code(&e, 404, "", "model_not_found", "x");
    api_error_json(&b, &e);
    assert_string_equal(
        buf_cstr(&b),
        "{\"error\":{\"message\":\"x\",\"type\":\"NotFoundError\",\"param\":null,\"code\":\"model_not_found\"}}");
    buf_free(&b);
}

static void the_type_follows_from_the_code(void **state)
{
    (void)state;
    static const struct {
        int         http;
        const char *type;
    } types[] = {
        { 400, "BadRequestError" },         { 401, "AuthenticationError" }, { 404, "NotFoundError" },
        { 429, "RateLimitError" },          { 500, "InternalServerError" }, { 501, "NotImplementedError" },
        { 503, "ServiceUnavailableError" }, { 405, "Method Not Allowed" },  { 418, "BadRequestError" },
        { 599, "InternalServerError" },
    };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        struct api_error e;
        api_fail(&e, types[i].http, NULL, "x");
        assert_string_equal(e.type, types[i].type);
        assert_string_equal(e.param, "");
    }
}

static void a_long_message_is_cut(void **state)
{
    (void)state;
    struct api_error e;
    char             text[1000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    api_fail(&e, 400, text, "%s", text);
    assert_int_equal(strlen(e.message), sizeof e.message - 1);
    assert_int_equal(strlen(e.param), sizeof e.param - 1);
}

static void an_excerpt_is_short_and_harmless(void **state)
{
    (void)state;
    char dst[200], text[300];
    assert_string_equal(api_excerpt(dst, sizeof dst, "plain é", 8), "plain é");
    assert_string_equal(api_excerpt(dst, sizeof dst, "a\nb\x1b[0m\0z", 9), "a\\x0ab\\x1b[0m\\x00z");
    assert_string_equal(api_excerpt(dst, sizeof dst, "\xff\xc3", 2), "\\xff\\xc3");
    assert_string_equal(api_excerpt(dst, sizeof dst, "", 0), "");
    memset(text, 'y', sizeof text);
    assert_int_equal(strlen(api_excerpt(dst, sizeof dst, text, sizeof text)), 64);
    assert_string_equal(dst + 61, "...");
    assert_int_equal(strlen(api_excerpt(dst, sizeof dst, text, 64)), 64);
    assert_string_equal(dst + 61, "yyy");
    memset(text, 1, sizeof text);
    assert_true(strlen(api_excerpt(dst, sizeof dst, text, sizeof text)) <= 64);
    for (size_t n = 0; n < 64; n++) { /* a small place is enough, never too small */
        char small[8];
        memset(text, 'z', n);
        assert_true(strlen(api_excerpt(small, sizeof small, text, n)) < sizeof small);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_error_has_all_four_keys),
        cmocka_unit_test(the_type_follows_from_the_code),
        cmocka_unit_test(a_long_message_is_cut),
        cmocka_unit_test(an_excerpt_is_short_and_harmless),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
