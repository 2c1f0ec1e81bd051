#include "api/jinja/tmpl_text.h"
#include "test.h"

static void whitespace_is_pythons(void **state)
{
    (void)state;
    static const uint32_t yes[] = { 9,    10,     11,     12,     13,     0x1c,   0x1f,   0x20,  0x85,
                                    0xa0, 0x1680, 0x2000, 0x200a, 0x2028, 0x202f, 0x205f, 0x3000 };
    static const uint32_t no[] = { 0, 8, 14, 0x1b, 0x21, 'a', 0x180e, 0x200b, 0x2060, 0xfeff, 0x1f600 };
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++) assert_true(text_is_space(yes[i]));
    for (size_t i = 0; i < sizeof no / sizeof *no; i++) assert_false(text_is_space(no[i]));
    const char s[] = " \u00a0\tx y\u3000\n";
    size_t     n = strlen(s), left = text_lstrip_len(s, n);
    assert_int_equal(n - left, 4);
    assert_int_equal(text_rstrip_len(s + n - left, left), 3);
    assert_int_equal(text_rstrip_len(" \u3000", 4), 0);
}

static void positions_are_code_points(void **state)
{
    (void)state;
    const char s[] = "a\u00e9\u65e5\U0001f600z";
    assert_int_equal(text_count(s, strlen(s)), 5);
    assert_int_equal(text_offset(s, strlen(s), 3), 6);
    assert_int_equal(text_offset(s, strlen(s), 9), strlen(s));
    for (uint32_t cp = 1; cp < 0x110000; cp += 0x3f1) {
        char d[4];
        if (cp >= 0xd800 && cp < 0xe000) continue;
        size_t n = text_put_cp(d, cp);
        assert_int_equal(text_step(d), n);
        assert_int_equal(text_cp(d), cp);
    }
}

static void search_finds_first_and_last(void **state)
{
    (void)state;
    assert_int_equal(text_find("abcabc", 6, 0, "bc", 2), 1);
    assert_int_equal(text_find("abcabc", 6, 2, "bc", 2), 4);
    assert_int_equal(text_find("abcabc", 6, 5, "bc", 2), 6);
    assert_int_equal(text_find("abc", 3, 1, "", 0), 1);
    assert_int_equal(text_rfind("abcabc", 6, "bc", 2), 4);
    assert_int_equal(text_rfind("aaaa", 4, "aa", 2), 2);
    assert_int_equal(text_rfind("abc", 3, "x", 1), 3);
}

static void case_is(const char *s, enum text_case how, const char *want)
{
    struct buf b;
    buf_init(&b, 1000);
    text_put_case(&b, s, strlen(s), how);
    assert_string_equal(buf_cstr(&b), want);
    buf_free(&b);
}

static void cases_are_those_of_unicode(void **state)
{
    (void)state;
    case_is("h\u00e9llo \u00df", TEXT_UPPER, "H\u00c9LLO SS");
    case_is("H\u00c9\u0416", TEXT_LOWER, "h\u00e9\u0436");
    case_is("\u00e9COLE x", TEXT_CAPITALIZE, "\u00c9cole x");
    case_is("they're bill's 2nd", TEXT_TITLE, "They'Re Bill'S 2Nd");
    case_is("\u65e5\u672c", TEXT_UPPER, "\u65e5\u672c");
    assert_true(text_is_printable(0xe9) && text_is_printable(' ') && text_is_printable(0x1f600));
    assert_false(text_is_printable(0xad) || text_is_printable(0x2028) || text_is_printable(0xa0) ||
                 text_is_printable(0x378));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whitespace_is_pythons),
        cmocka_unit_test(positions_are_code_points),
        cmocka_unit_test(search_finds_first_and_last),
        cmocka_unit_test(cases_are_those_of_unicode),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
