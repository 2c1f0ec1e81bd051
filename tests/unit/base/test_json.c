#include "test.h"
#include "base/json.h"
#include <locale.h>
#include <math.h>
#include <pthread.h>

static struct json_error err;

static bool parses(const char *text, size_t n)
{
    memset(&err, 0xee, sizeof err);
    json_t *v = json_parse(text, n, 0, &err);
    json_decref(v);
    return v;
}
#define OK(text)  assert_true(parses(text, sizeof(text) - 1))
#define BAD(text) assert_false(parses(text, sizeof(text) - 1))

static void plain_values_of_every_kind_parse(void **state)
{
    (void)state;
    OK("null");
    OK(" [1, -2.5e3, true, \"x\"] ");
    OK("{\"a\": {\"b\": []}}");
    OK("\"\\u00e9\\ud83d\\ude00\"");
    OK("9223372036854775807");
    OK("-9223372036854775808");
}

static void text_that_strict_json_forbids_is_refused(void **state)
{
    (void)state;
    BAD("");
    BAD("   ");
    BAD("{\"a\":1} x");
    BAD("[1,2");
    BAD("[1,]");
    BAD("{\"a\":NaN}");
    BAD("Infinity");
    BAD("-Infinity");
    BAD("[01]");
    BAD("[+1]");
    BAD("{'a':1}");
    BAD("{\"a\":1,\"a\":2}");
    BAD("[\"a\nb\"]");
    BAD("[\"\\x41\"]");
    BAD("// no\n1");
    BAD("]");
    BAD("\"abc");
    BAD("\"abc\\");
    BAD("[}");
}

static void a_whole_number_beyond_64_bits_is_the_nearest_float(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double      is;
    } c[] = {
        { "[9223372036854775808]", 0x1p63 },
        { "[-9223372036854775809]", -0x1p63 },
        { "[18446744073709551615]", 0x1p64 },
        { "[\"9223372036854775808\\\"\", 12345678901234567890]", 12345678901234567890.0 },
        { "[{\"a\": 0.5}, 1000000000000000019884624838656]", 1e30 },
    };
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        json_t *v = json_parse(c[i].text, strlen(c[i].text), 0, &err), *last;
        assert_non_null(v);
        last = json_array_get(v, json_array_size(v) - 1);
        assert_true(json_is_real(last) && json_real_value(last) == c[i].is);
        json_decref(v);
    }
    json_t *near = json_parse("[9223372036854775807, -9223372036854775808, 99999999999999999999]", 65, 0, &err);
    assert_true(json_integer_value(json_array_get(near, 0)) == INT64_MAX); /* what fits stays whole */
    assert_true(json_integer_value(json_array_get(near, 1)) == INT64_MIN);
    json_decref(near);
}

static void numbers_out_of_range_are_refused_not_clamped(void **state)
{
    (void)state;
    char digits[402];
    memset(digits, '9', sizeof digits);
    digits[0] = '[';
    digits[401] = ']';
    assert_false(parses(digits, sizeof digits));
    BAD("[1e400]");
    BAD("[-1e400]");
    OK("[1e308]");
    OK("[1e-400]"); /* rounds to zero: nothing is lost that could be kept */
}

static void encodings_other_than_plain_utf8_are_refused(void **state)
{
    (void)state;
    BAD("\xef\xbb\xbf{}");
    BAD("\xff\xfe{\0}\0");
    BAD("\xfe\xff\0{\0}");
    BAD("{\0}\0");
    BAD("\0{\0}");
    BAD("[\"\xff\"]");
    BAD("[\"\xc0\xaf\"]");         /* overlong */
    BAD("[\"\xed\xa0\x80\"]");     /* surrogate */
    BAD("[\"\xf4\x90\x80\x80\"]"); /* above U+10FFFF */
    BAD("[\"\xe2\x82\"]");         /* cut */
    BAD("[\"\\ud800\"]");          /* lone, high */
    BAD("[\"\\udc00\"]");          /* lone, low */
    BAD("[\"\\ud800\\u0041\"]");
    OK("[\"\xe2\x82\xac \xf0\x9f\x98\x80\"]");
}

static void a_nul_inside_a_string_is_kept_by_length(void **state)
{
    (void)state;
    json_t *v = json_parse("[\"a\\u0000b\"]", 12, 0, NULL);
    assert_non_null(v);
    assert_int_equal(json_string_length(json_array_get(v, 0)), 3);
    assert_memory_equal(json_string_value(json_array_get(v, 0)), "a\0b", 3);
    json_decref(v);
    BAD("[\"a\0b\"]"); /* a raw one */
}

static void an_error_tells_its_place(void **state)
{
    (void)state;
    BAD("{\"a\": 1, \"b\" 2}");
    assert_in_range(err.offset, 12, 14);
    assert_true(strlen(err.text) > 0);
    BAD("[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[");
    assert_int_equal(err.offset, 64);
    assert_string_equal(err.text, "nested too deeply");
}

static void nesting_is_bounded_exactly_and_brackets_in_strings_do_not_count(void **state)
{
    (void)state;
    char text[400];
    for (uint32_t depth = 63; depth <= 65; depth++) {
        memset(text, '[', depth);
        memset(text + depth, ']', depth);
        assert_int_equal(parses(text, 2 * depth), depth <= 64);
    }
    assert_null(json_parse("[[1]]", 5, 1, &err));
    json_t *v = json_parse("[[1]]", 5, 2, &err);
    assert_non_null(v);
    json_decref(v);
    memset(text, '[', sizeof text);
    text[0] = text[sizeof text - 1] = '"';
    assert_true(parses(text, sizeof text));
    OK("[\"\\\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\"]");
    OK("[\"\\\\\",[[[[[1]]]]]]");
}

static void *parse_deep(void *arg)
{
    enum { N = 100000 };
    char *text = malloc(2 * N);
    for (int i = 0; i < N; i++) text[i] = i % 2 ? '[' : '{';
    memset(text + N, ']', N);
    *(bool *)arg = parses(text, 2 * N);
    memset(text, '[', N);
    *(bool *)arg |= parses(text, N);
    *(bool *)arg |= parses(text, 2 * N);
    free(text);
    return NULL;
}

static void a_hundred_thousand_brackets_need_no_stack(void **state)
{
    (void)state;
    pthread_t      t;
    pthread_attr_t attr;
    bool           parsed = true;
    pthread_attr_init(&attr);
    assert_int_equal(pthread_attr_setstacksize(&attr, 256 << 10), 0);
    assert_int_equal(pthread_create(&t, &attr, parse_deep, &parsed), 0);
    pthread_join(t, NULL);
    pthread_attr_destroy(&attr);
    assert_false(parsed);
}

static void a_flood_of_small_values_is_refused(void **state)
{
    (void)state;
    enum { N = 9 << 20 };
    char *text = malloc(3 * N);
    for (int i = 0; i < N; i++) memcpy(text + 3 * i, "{},", 3);
    text[0] = '[';
    text[1] = ' ';
    text[2] = ' ';
    text[3 * N - 1] = ']';
    assert_false(parses(text, 3 * N));
    assert_int_equal(err.wrong, JSON_OVER);
    assert_true(!strncmp(err.text, "too many values", 15));
    free(text);
}

static void integers_are_taken_from_integral_numbers_only(void **state)
{
    (void)state;
    json_t *o = json_parse("{\"i\":5,\"d\":3.0,\"f\":1.5,\"b\":true,\"s\":\"1\",\"n\":null,\"e\":1e300,\"m\":-9.3e18}",
                           71, 0, NULL);
    int64_t v = -1;
    assert_non_null(o);
    assert_int_equal(json_get_int(o, "i", 0, 10, &v), ST_OK);
    assert_int_equal(v, 5);
    assert_int_equal(json_get_int(o, "d", 0, 10, &v), ST_OK);
    assert_int_equal(v, 3);
    assert_int_equal(json_get_int(o, "i", 6, 10, &v), ST_INVALID);
    assert_int_equal(json_get_int(o, "i", 0, 4, &v), ST_INVALID);
    static const char *const wrong[] = { "f", "b", "s", "e", "m" };
    for (size_t i = 0; i < ARRAY_N(wrong); i++)
        assert_int_equal(json_get_int(o, wrong[i], INT64_MIN, INT64_MAX, &v), ST_INVALID);
    assert_int_equal(json_get_int(o, "n", 0, 10, &v), ST_NOT_FOUND);
    assert_int_equal(json_get_int(o, "zz", 0, 10, &v), ST_NOT_FOUND);
    assert_int_equal(json_get_int(json_object_get(o, "i"), "i", 0, 10, &v), ST_NOT_FOUND); /* not even an object */
    assert_int_equal(v, 3);
    json_decref(o);
}

static void other_look_ups_check_type_and_range(void **state)
{
    (void)state;
    static const char text[] = "{\"i\":5,\"d\":0.5,\"b\":false,\"s\":\"a\\u0000\",\"n\":null}";
    json_t           *o = json_parse(text, sizeof text - 1, 0, NULL);
    double            d = 9;
    bool              b = true;
    const char       *s = NULL;
    size_t            n = 9;
    assert_int_equal(json_get_num(o, "i", 0, 10, &d), ST_OK);
    assert_true(d == 5);
    assert_int_equal(json_get_num(o, "d", 0, 1, &d), ST_OK);
    assert_true(d == 0.5);
    assert_int_equal(json_get_num(o, "d", 0.6, 1, &d), ST_INVALID);
    assert_int_equal(json_get_num(o, "s", 0, 1, &d), ST_INVALID);
    assert_int_equal(json_get_num(o, "b", 0, 1, &d), ST_INVALID);
    assert_int_equal(json_get_num(o, "n", 0, 1, &d), ST_NOT_FOUND);
    assert_int_equal(json_get_bool(o, "b", &b), ST_OK);
    assert_false(b);
    assert_int_equal(json_get_bool(o, "i", &b), ST_INVALID);
    assert_int_equal(json_get_bool(o, "n", &b), ST_NOT_FOUND);
    assert_int_equal(json_get_str(o, "s", &s, &n), ST_OK);
    assert_int_equal(n, 2);
    assert_memory_equal(s, "a\0", 2);
    assert_int_equal(json_get_str(o, "i", &s, &n), ST_INVALID);
    assert_int_equal(json_get_str(o, "n", &s, &n), ST_NOT_FOUND);
    json_decref(o);
}

static const char *put_str(struct buf *b, const char *s, size_t n)
{
    buf_clear(b);
    json_put_str(b, s, n);
    return buf_cstr(b);
}
#define PUT(s) put_str(&b, s, sizeof(s) - 1)

static void written_strings_hold_no_control_byte_and_no_line_end(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 1 << 16);
    assert_string_equal(PUT("plain"), "\"plain\"");
    assert_string_equal(PUT(""), "\"\"");
    assert_string_equal(PUT("a\"b\\c/\n\r\t\b\f\x1b\x7f"), "\"a\\\"b\\\\c/\\n\\r\\t\\u0008\\u000c\\u001b\\u007f\"");
    assert_string_equal(PUT("\0x"), "\"\\u0000x\"");
    assert_string_equal(PUT("\xc2\x85\xe2\x80\xa8\xe2\x80\xa9"), "\"\\u0085\\u2028\\u2029\"");
    assert_string_equal(PUT("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"), "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"");
    for (int c = 0; c < 256; c++) {
        char one[3] = { 'a', (char)c, 'b' };
        put_str(&b, one, 3);
        for (size_t i = 0; i < b.n; i++) assert_true((unsigned char)b.data[i] >= 0x20 && b.data[i] != 0x7f);
        json_t *v = json_parse(b.data, b.n, 0, NULL);
        assert_non_null(v);
        if (c < 0x80) assert_memory_equal(json_string_value(v), one, 3);
        json_decref(v);
    }
    buf_free(&b);
}

#define FFFD "\xef\xbf\xbd"
static void invalid_utf8_is_replaced_as_python_and_browsers_do(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 1 << 16);
    assert_string_equal(PUT("a\xff"
                            "b"),
                        "\"a" FFFD "b\"");
    assert_string_equal(PUT("\xc0\xaf"), "\"" FFFD FFFD "\"");
    assert_string_equal(PUT("\xe2\x82"), "\"" FFFD "\"");
    assert_string_equal(PUT("\xe2\x82x"), "\"" FFFD "x\"");
    assert_string_equal(PUT("\xf0\x9f\x98"), "\"" FFFD "\"");
    assert_string_equal(PUT("\xed\xa0\x80"), "\"" FFFD FFFD FFFD "\"");
    assert_string_equal(PUT("\xf4\x90\x80\x80"), "\"" FFFD FFFD FFFD FFFD "\"");
    assert_string_equal(PUT("\x80\x80"), "\"" FFFD FFFD "\"");
    buf_free(&b);
}

static const char *put_num(struct buf *b, double v)
{
    buf_clear(b);
    json_put_num(b, v);
    return buf_cstr(b);
}

static void numbers_are_short_and_read_back_equal(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 1 << 16);
    static const struct {
        double      v;
        const char *text;
    } rows[] = { { 0, "0" },
                 { -0.0, "-0.0" },
                 { 1, "1" },
                 { -17, "-17" },
                 { 0.1, "0.1" },
                 { 0.7, "0.7" },
                 { -2.5, "-2.5" },
                 { 1.0 / 3, "0.3333333333333333" },
                 { 0.1 + 0.2, "0.30000000000000004" },
                 { 123456.789, "123456.789" },
                 { 1e-5, "0.00001" },
                 { 1e-7, "1e-7" },
                 { 1e21, "1e21" },
                 { 1.5e300, "1.5e300" },
                 { 9007199254740993e0, "9007199254740992" },
                 { 5e-324, "5e-324" },
                 { 1.7976931348623157e308, "1.7976931348623157e308" },
                 { INFINITY, "null" },
                 { NAN, "null" } };
    for (size_t i = 0; i < ARRAY_N(rows); i++) assert_string_equal(put_num(&b, rows[i].v), rows[i].text);
    uint64_t x = 88172645463325252u;
    for (int i = 0; i < 20000; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        double v;
        memcpy(&v, &x, 8);
        if (!isfinite(v)) continue;
        const char *text = put_num(&b, v);
        assert_true(strtod(text, NULL) == v);
        if (i % 16) continue;
        json_t *j = json_parse(b.data, b.n, 0, NULL);
        assert_non_null(j);
        assert_true(json_number_value(j) == v);
        json_decref(j);
    }
    buf_free(&b);
}

static void numbers_do_not_follow_the_locale(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 1 << 16);
    static const char *const commas[] = { "de_DE.UTF-8", "fr_FR.UTF-8", "de_DE", "fr_FR" };
    bool                     found = false;
    for (size_t i = 0; i < ARRAY_N(commas) && !found; i++) found = setlocale(LC_NUMERIC, commas[i]);
    assert_string_equal(put_num(&b, 0.5), "0.5");
    assert_string_equal(put_num(&b, 1.5e300), "1.5e300");
    setlocale(LC_NUMERIC, "C");
    buf_free(&b);
    if (!found) print_message("no locale with a decimal comma is installed: checked in C only\n");
}

static void integers_are_written_to_both_ends(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 1 << 10);
    json_put_int(&b, INT64_MIN);
    buf_putc(&b, ' ');
    json_put_int(&b, 0);
    buf_putc(&b, ' ');
    json_put_int(&b, INT64_MAX);
    assert_string_equal(buf_cstr(&b), "-9223372036854775808 0 9223372036854775807");
    buf_free(&b);
}

static void a_string_is_compared_whole(void **state)
{
    (void)state;
    struct json_error e;
    json_t           *a = json_parse("[\"one\", \"one\\u0000\", \"\", 1, null]", 33, 0, &e);
    assert_non_null(a);
    assert_true(json_str_is(json_array_get(a, 0), "one"));
    assert_false(json_str_is(json_array_get(a, 0), "on") || json_str_is(json_array_get(a, 0), "ones"));
    assert_false(json_str_is(json_array_get(a, 1), "one"));
    assert_true(json_str_is(json_array_get(a, 2), ""));
    assert_false(json_str_is(json_array_get(a, 3), "1") || json_str_is(json_array_get(a, 4), "") ||
                 json_str_is(NULL, ""));
    json_decref(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_values_of_every_kind_parse),
        cmocka_unit_test(text_that_strict_json_forbids_is_refused),
        cmocka_unit_test(a_whole_number_beyond_64_bits_is_the_nearest_float),
        cmocka_unit_test(numbers_out_of_range_are_refused_not_clamped),
        cmocka_unit_test(encodings_other_than_plain_utf8_are_refused),
        cmocka_unit_test(a_nul_inside_a_string_is_kept_by_length),
        cmocka_unit_test(an_error_tells_its_place),
        cmocka_unit_test(nesting_is_bounded_exactly_and_brackets_in_strings_do_not_count),
        cmocka_unit_test(a_hundred_thousand_brackets_need_no_stack),
        cmocka_unit_test(a_flood_of_small_values_is_refused),
        cmocka_unit_test(a_string_is_compared_whole),
        cmocka_unit_test(integers_are_taken_from_integral_numbers_only),
        cmocka_unit_test(other_look_ups_check_type_and_range),
        cmocka_unit_test(written_strings_hold_no_control_byte_and_no_line_end),
        cmocka_unit_test(invalid_utf8_is_replaced_as_python_and_browsers_do),
        cmocka_unit_test(numbers_are_short_and_read_back_equal),
        cmocka_unit_test(numbers_do_not_follow_the_locale),
        cmocka_unit_test(integers_are_written_to_both_ends),
    };
    return cmocka_run_group_tests_name("base/json", tests, NULL, NULL);
}
