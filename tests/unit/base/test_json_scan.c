#include "test.h"
#include "base/buf.h"
#include "base/json_scan.h"
#include "base/rng.h"
#include <malloc.h>

static const struct json_bounds wide = { .members_max = 1 << 30, .tree_bytes_max = (uint64_t)1 << 40 };
static struct json_error        err;

static bool scans(const char *text, size_t n)
{
    struct json_cost cost;
    return json_scan(text, n, &wide, &cost, &err);
}

/* What jansson says of the same text, but for numbers that do not fit into its types: those are numbers. */
static bool jansson_takes(const char *text, size_t n)
{
    json_error_t e;
    json_t      *v = json_loadb(text, n, JSON_ALLOW_NUL | JSON_DECODE_ANY, &e);
    json_decref(v);
    return v || json_error_code(&e) == json_error_numeric_overflow;
}

static void the_scanner_accepts_the_same_texts_as_jansson(void **state)
{
    (void)state;
    static const char *const text[] = {
        "null",
        " [1, -2.5e3, true, \"x\"] ",
        "{\"a\": {\"b\": []}}",
        "\"\\u00e9\\ud83d\\ude00\"",
        "[[],{},[{}]]",
        "{\"a\":[{\"b\":1},2],\"c\":{}}",
        "-0",
        "-",
        "01",
        "1.",
        ".5",
        "1e",
        "1e+",
        "1E+5",
        "[1,]",
        "[,1]",
        "{,}",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{\"a\" : 1 , \"b\":2}",
        "{a:1}",
        "{'a':1}",
        "[1 2]",
        "[1}",
        "{\"a\":1]",
        "\"\\x\"",
        "\"\\u12\"",
        "\"\\ud800\"",
        "\"\\ud800\\u0041\"",
        "\"\\udc00\"",
        "\"\\ud800\\udc0\"",
        "\"a\nb\"",
        "\"",
        "\"\\",
        "\"\\u",
        "tru",
        "nul",
        "truex",
        "null null",
        "[",
        "]",
        "{",
        "}",
        "",
        " ",
        "{\"\":1}",
        "{\"\\u0000\":1}",
        "[\"\\u0000\"]",
        "\"\xc3\xa9\"",
        "\"\xc0\x80\"",
        "\"\xed\xa0\x80\"",
        "\"\xf4\x90\x80\x80\"",
        "\"\xe2\x82\"",
        "[1e400,-1e400,123456789012345678901234567890]",
        "{\"a\":[1,{\"b\":[2,[3,{}]]}]}",
        "\t\r\n[\t\r\n1\t,\n2\r]\n",
        "[1]\v",
        "/*x*/1",
    };
    for (size_t i = 0; i < ARRAY_N(text); i++)
        if (scans(text[i], strlen(text[i])) != jansson_takes(text[i], strlen(text[i])))
            fail_msg("jansson and the scan differ: %s (%s)", text[i], err.text);
}

/* Texts that are nearly JSON: one is cut, joined with another, or has some bytes replaced. */
static void the_scanner_accepts_the_same_mutated_texts_as_jansson(void **state)
{
    (void)state;
    static const char seed[] =
        "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"h\\u00e9 \xc3\xa9 \\ud83d\\ude00\"}],\"n\":-1.5e+3,"
        "\"x\":[[],{},null,true,false,0,{\"y\":{\"z\":[1,2,[3]]}}]}";
    static const char bytes[] = "{}[]\",:\\ue+-.0123456789abtrufalsn \n\xc3\xa9\xed\xa0\x01";
    char              text[sizeof seed];
    uint32_t          n_good = 0;
    const uint32_t    n_text = (uint32_t)test_size(60000, 10000);
    for (uint32_t i = 0; i < n_text; i++) {
        struct rng_block r = rng_philox(7, i, 0);
        size_t           n = sizeof seed - 1;
        memcpy(text, seed, n);
        for (uint32_t k = 0; k < r.x[0] % 4; k++) {
            struct rng_block at = rng_philox(7, i, k + 1);
            text[at.x[0] % n] = bytes[at.x[1] % (sizeof bytes - 1)];
        }
        if (r.x[1] % 8 == 0) n = r.x[2] % n;
        bool good = jansson_takes(text, n);
        n_good += good;
        if (scans(text, n) != good) fail_msg("jansson and the scan differ: %.*s (%s)", (int)n, text, err.text);
    }
    assert_in_range(n_good, n_text / 12, n_text - n_text / 12);
}

static enum json_want want(void *ctx, const char *name, size_t n)
{
    (void)ctx;
    if (n == 1 && *name == 'b') return JSON_BUILD;
    if (n == 1 && *name == 's') return JSON_SCALAR;
    return n == 1 && *name == 't' ? JSON_TYPE : JSON_SKIP;
}
static struct json_fields fields;
static json_t            *build(const char *text, const struct json_bounds *bounds)
{
    memset(&err, 0, sizeof err);
    if (!json_fields_scan(text, strlen(text), bounds, want, NULL, &fields, &err)) return NULL;
    return json_fields_build(text, &fields, &err);
}

static void only_wanted_fields_are_built(void **state)
{
    (void)state;
    json_t *v = build(" { \"x\" : [1,{\"b\":2}] , \"\\u0062\" : [1,{\"x\":2}] , \"t\" : {\"a\":[1,2,3]} } ", &wide);
    assert_non_null(v);
    assert_int_equal(json_object_size(v), 2);
    assert_int_equal(json_array_size(json_object_get(v, "b")), 2);
    assert_true(json_is_object(json_object_get(v, "t")));
    assert_int_equal(json_object_size(json_object_get(v, "t")), 0);
    assert_int_equal(fields.n_skipped, 1);
    json_decref(v);
    v = build("{\"t\":null}", &wide);
    assert_true(json_is_null(json_object_get(v, "t")));
    json_decref(v);
    v = build("{\"s\":[1,2]}", &wide);
    assert_int_equal(json_array_size(json_object_get(v, "s")), 0);
    json_decref(v);
    v = build("{\"s\":\"text\"}", &wide);
    assert_string_equal(json_string_value(json_object_get(v, "s")), "text");
    json_decref(v);
    v = build("{}", &wide);
    assert_true(json_is_object(v));
    json_decref(v);
}

static void fields_that_no_route_reads_must_be_valid_json_too(void **state)
{
    (void)state;
    static const char *const bad[] = { "{\"x\":01}",
                                       "{\"x\":[1,}]}",
                                       "{\"x\":\"\xff\"}",
                                       "{\"x\":1}}",
                                       "{\"x\":1,\"x\":2}",
                                       "{\"\\u0078\":1,\"x\":2}",
                                       "{\"x\":}",
                                       "{\"b\":1,",
                                       "{\"b\":1",
                                       "{\"b\"",
                                       "{" };
    for (size_t i = 0; i < ARRAY_N(bad); i++) {
        assert_null(build(bad[i], &wide));
        assert_int_equal(err.wrong, JSON_MALFORMED);
    }
    assert_null(build("[1]", &wide));
    assert_int_equal(err.wrong, JSON_NO_OBJECT);
    json_t *v = build("{\"x\":123456789012345678901234567890,\"y\":1e400}", &wide);
    assert_non_null(v);
    json_decref(v);
    v = build("{\"b\":123456789012345678901234567890}", &wide);
    assert_true(json_is_real(json_object_get(v, "b")));
    json_decref(v);
    assert_null(build("{\"b\":1e400}", &wide));
}

static char *many(struct buf *b, const char *before, const char *each, uint32_t n, const char *after)
{
    buf_clear(b);
    buf_puts(b, before);
    for (uint32_t i = 0; i < n; i++) {
        if (i) buf_putc(b, ',');
        if (strchr(each, '%'))
            buf_printf(b, each, i);
        else
            buf_puts(b, each);
    }
    buf_puts(b, after);
    return (char *)(uintptr_t)buf_cstr(b);
}

static void errors_of_bounds_name_the_found_and_the_allowed_value(void **state)
{
    (void)state;
    static const struct json_bounds small = { .members_max = 1000, .tree_bytes_max = 1 << 20 };
    struct buf                      b;
    buf_init(&b, 64 << 20);
    json_t *v = build(many(&b, "{", "\"k%u\":1", JSON_FIELDS_MAX, "}"), &small);
    assert_non_null(v);
    json_decref(v);
    assert_null(build(many(&b, "{", "\"k%u\":1", JSON_FIELDS_MAX + 5, "}"), &small));
    assert_int_equal(err.wrong, JSON_OVER);
    assert_string_equal(err.text, "1029 fields were found, at most 1024 are allowed");
    assert_null(build(many(&b, "{\"b\":{", "\"k%u\":1", 1000, "}}"), &small));
    assert_string_equal(err.text, "1001 members of objects were found, at most 1000 are allowed");
    assert_null(build(many(&b, "{\"b\":[", "[]", 10000, "]}"), &small));
    assert_int_equal(err.wrong, JSON_OVER);
    assert_non_null(strstr(err.text, "at most 1048576 are allowed"));
    v = build(many(&b, "{\"x\":{", "\"k%u\":{}", 100000, "}}"), &small); /* nobody reads it: it costs nothing */
    assert_non_null(v);
    assert_in_range(fields.cost.tree_bytes, 0, 1024);
    json_decref(v);
    buf_free(&b);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* their malloc does not tell what it gave out */
/* Never less than what malloc gave out for the tree; and not more than three times of it, or sound bodies would be
 * refused. */
static void the_computed_cost_is_the_memory_that_a_tree_takes(void **state)
{
    (void)state;
    static const char *const each[] = {
        "{\"k%u\":1}", "[]", "%u", "\"s%u\"", "{}", "null", "{\"a%u\":\"b\",\"c\":[1,2.5]}", "[[%u]]"
    };
    const uint32_t n_each = (uint32_t)test_size(50000, 10000), n_member = 4 * n_each;
    struct buf     b;
    buf_init(&b, 64 << 20);
    for (size_t i = 0; i < ARRAY_N(each); i++) {
        struct json_cost cost;
        many(&b, "[", each[i], n_each, "]");
        size_t  before = mallinfo2().uordblks + mallinfo2().hblkhd;
        json_t *v = json_loadb(b.data, b.n, 0, NULL);
        assert_non_null(v);
        size_t took = mallinfo2().uordblks + mallinfo2().hblkhd - before;
        assert_true(json_scan(b.data, b.n, &wide, &cost, &err));
        if (cost.tree_bytes + cost.string_bytes < took || cost.tree_bytes + cost.string_bytes > 3 * took)
            fail_msg("%s: a tree of %zu bytes is counted as %zu", each[i], took,
                     (size_t)(cost.tree_bytes + cost.string_bytes));
        json_decref(v);
    }
    many(&b, "{", "\"key%u\":1", n_member, "}");
    struct json_cost cost;
    size_t           before = mallinfo2().uordblks + mallinfo2().hblkhd;
    json_t          *v = json_loadb(b.data, b.n, 0, NULL);
    size_t           took = mallinfo2().uordblks + mallinfo2().hblkhd - before;
    assert_true(json_scan(b.data, b.n, &wide, &cost, &err));
    assert_int_equal(cost.n_member, n_member);
    assert_in_range(cost.tree_bytes + cost.string_bytes, took, 2 * took);
    json_decref(v);
    buf_free(&b);
}
#endif

static enum json_want want_all_but_x(void *ctx, const char *name, size_t n_name)
{
    (void)ctx;
    return n_name == 1 && *name == 'x' ? JSON_SKIP : JSON_BUILD;
}

/* Such numbers are floats in the tree, and their digits stand beside it. */
static void digits_of_large_whole_numbers_are_kept(void **state)
{
    (void)state;
    static const struct {
        const char *text, *want; /* of JSON_BIG, compact */
    } cases[] = {
        { "{\"a\":1,\"b\":9223372036854775807,\"c\":[1e300,0.12345678901234567890123]}", NULL },
        { "{\"a\":[9223372036854775808],\"b\":{\"c\":-123456789012345678901234567890}}",
          "[\"9223372036854775808\",\"-123456789012345678901234567890\"]" },
        { "{\"a\":18446744073709551615,\"x\":18446744073709551614}", "[\"18446744073709551615\"]" },
        { "{\"a\":\"18446744073709551615\",\"b\":\"\\\"18446744073709551616\"}", NULL },
    };
    for (size_t i = 0; i < ARRAY_N(cases); i++) {
        struct json_fields f;
        struct json_error  e;
        size_t             n = strlen(cases[i].text);
        assert_true(json_fields_scan(cases[i].text, n, &wide, want_all_but_x, NULL, &f, &e));
        json_t *root = json_fields_build(cases[i].text, &f, &e);
        assert_non_null(root);
        const json_t *big = json_object_get(root, JSON_BIG);
        char         *got = big ? json_dumps(big, JSON_COMPACT) : NULL;
        assert_int_equal(got != NULL, cases[i].want != NULL);
        if (got) assert_string_equal(got, cases[i].want);
        free(got);
        json_decref(root);
    }
    assert_null(json_big_numbers("[1]", 3));
    assert_null(json_big_numbers("", 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_scanner_accepts_the_same_texts_as_jansson),
        cmocka_unit_test(the_scanner_accepts_the_same_mutated_texts_as_jansson),
        cmocka_unit_test(only_wanted_fields_are_built),
        cmocka_unit_test(fields_that_no_route_reads_must_be_valid_json_too),
        cmocka_unit_test(errors_of_bounds_name_the_found_and_the_allowed_value),
        cmocka_unit_test(digits_of_large_whole_numbers_are_kept),
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
        cmocka_unit_test(the_computed_cost_is_the_memory_that_a_tree_takes),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
