#include "test.h"
#include "base/utf8.h"

static uint32_t encode(uint32_t cp, char out[4])
{
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xc0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 63));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (char)(0xe0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 63));
        out[2] = (char)(0x80 | (cp & 63));
        return 3;
    }
    out[0] = (char)(0xf0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 63));
    out[2] = (char)(0x80 | (cp >> 6 & 63));
    out[3] = (char)(0x80 | (cp & 63));
    return 4;
}

static void every_code_point_decodes_but_surrogates_and_those_above_the_last(void **state)
{
    (void)state;
    for (uint32_t cp = 0; cp < 0x120000; cp++) {
        char     s[4];
        uint32_t got = 0xffffffff, n = encode(cp, s), len = utf8_decode(s, n, &got);
        if (cp > 0x10ffff || (cp >= 0xd800 && cp < 0xe000)) {
            assert_int_equal(len, 0);
            continue;
        }
        assert_int_equal(len, n);
        assert_int_equal(got, cp);
        for (uint32_t cut = 1; cut < n; cut++) {
            assert_int_equal(utf8_decode(s, cut, &got), 0);
            assert_int_equal(utf8_bad(s, cut), cut); /* one replacement for the whole beginning */
        }
    }
}

static void every_pair_of_bytes_is_either_well_formed_or_skipped_by_at_least_one(void **state)
{
    (void)state;
    for (uint32_t x = 0; x < 65536; x++) {
        char     s[2] = { (char)(x >> 8), (char)x };
        uint32_t cp, len = utf8_decode(s, 2, &cp);
        if (!len) assert_in_range(utf8_bad(s, 2), 1, 2);
    }
    assert_int_equal(utf8_bad("\xf0\x9f\x98z", 4), 3);
    assert_int_equal(utf8_bad("\xe0\x80\x80", 3), 1);
    assert_int_equal(utf8_bad("\xf5\x80\x80", 3), 1);
}

/* Bad bytes at every place of texts of every length around the eight that are looked at together. */
static void a_text_is_valid_when_every_sequence_in_it_is(void **state)
{
    (void)state;
    char text[40];
    for (size_t n = 0; n < sizeof text; n++) {
        memset(text, 'a', sizeof text);
        assert_true(utf8_valid(text, n));
        for (size_t at = 0; at < n; at++) {
            memset(text, 'a', sizeof text);
            text[at] = (char)0xc3;
            assert_false(utf8_valid(text, n)); /* cut, or followed by 'a' */
            text[at + 1 < n ? at + 1 : at] = (char)0xa9;
            assert_int_equal(utf8_valid(text, n), at + 1 < n);
        }
    }
    assert_true(utf8_valid("a\0b", 3));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_point_decodes_but_surrogates_and_those_above_the_last),
        cmocka_unit_test(every_pair_of_bytes_is_either_well_formed_or_skipped_by_at_least_one),
        cmocka_unit_test(a_text_is_valid_when_every_sequence_in_it_is),
    };
    return cmocka_run_group_tests_name("base/utf8", tests, NULL, NULL);
}
