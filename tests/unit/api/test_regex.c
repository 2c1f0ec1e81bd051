/* Patterns of Oniguruma give the matches that the `tokenizers` library gave (0.23.3), whatever PCRE2 would make of them
 * itself. */
#include "test.h"
#include "api/token/tok_pattern.h"
#include "api/token/tok_unicode.h"
#include "api/token/tok_unicode_data.h"
#include "base/buf.h"
#include <stdio.h>

/* The matches of a pattern in a text, with | behind each. NULL: not supported, and err says why. */
static const char *matches(const char *pattern, const char *text, char err[200])
{
    static char        line[1024];
    struct tok_err     e = { err, 200, "tokenizer.json" };
    struct arena       a;
    struct tok_work    w = { .a = &a };
    struct tok_pattern p = { 0 };
    struct tok_scratch scratch = { 0 };
    struct tok_matches m;
    bool               found;
    size_t             k = 0;
    line[0] = 0;
    if (tok_regex_new(&p.regex, pattern, strlen(pattern), "pre_tokenizer", &e)) return NULL;
    arena_init(&a, 1 << 20);
    assert_int_equal(tok_matches_of(&p, &w, &scratch, text, strlen(text), &m), ST_OK);
    while (!tok_matches_next(&m, &w, &found) && found)
        k += (size_t)snprintf(line + k, sizeof line - k, "%.*s|", (int)(m.end - m.begin), text + m.begin);
    tok_regex_done(&w);
    arena_free(&a);
    tok_pattern_free(&p);
    return line;
}

static const struct {
    const char *pattern, *text, *matches;
} known[] = {
    /* classes */
    { "[[:^alpha:]]", "a1", "1|" },
    { "[[^a]b]", "abc", "b|c|" },
    { "[^a&&b]", "abc", "a|b|c|" },
    { "[a-c&&b-d]", "abcd", "b|c|" },
    { "[a-z&&[^aeiou]]+", "abcde", "bcd|" },
    { "[a&&b&&c]", "abc", "" },
    { "[[a]-c]", "abc-", "a|c|-|" },
    { "[]a]", "]a", "]|a|" },
    { "[0-9-a]", "0a-b", "0|a|-|" },
    { "[[:alpha:][:digit:]]+", "a1\xc3\xa9-2", "a1\xc3\xa9|2|" },
    { "[[:punct:]]", "+a.", "+|.|" },
    { "\\p{Punct}", "+a.", ".|" },
    { "\\w+", "a\xcc\x81\xe2\x80\xbf-\xc2\xb2",
      "a\xcc\x81\xe2\x80\xbf|\xc2\xb2|" },                   /* marks and connectors are word characters, and U+00B2 */
    { "[\\w]+|[\\W\\p{Word}]", "a\xc2\xb2", "a|\xc2\xb2|" }, /* but not inside of a class */
    { "[[:word:]]", "\xc2\xb2", "" },
    { "\\p{^L}", "a1", "1|" },
    { "\\p{Lu}\\p{L}*",
      "A\xc3\xa9"
      "b",
      "A\xc3\xa9"
      "b|" },
    { "\\p{Script_Extensions}", "a", NULL },
    { "\\h+", "fg", "f|" },
    { "[\\b]", "\b", "\b|" },
    { "[\\d-a]", "1", NULL },
    { "[a-\\d]", "1", NULL },
    { "[[:foo:]]", "f", NULL },
    { "[a", "a", NULL },
    /* word boundaries */
    { "\\bfoo\\b",
      "foo foo1 \xc3\xa9"
      "foo foo",
      "foo|foo|" },
    { "\\Boo", "foo oo", "oo|" },
    /* case, with sequences that are one character but for their case */
    { "(?i:k)", "kK\xe2\x84\xaa", "k|K|\xe2\x84\xaa|" },
    { "(?i:ss)", "\xc3\x9f\xe1\xba\x9ess", "\xc3\x9f|\xe1\xba\x9e|ss|" },
    { "(?i:\xc3\x9f)", "ss\xc3\x9f\xe1\xba\x9e", "ss|\xc3\x9f|\xe1\xba\x9e|" },
    { "(?i:[\xc3\x9f])", "ss\xc3\x9f", "ss|\xc3\x9f|" },
    { "(?i:fi)", "\xef\xac\x81", "\xef\xac\x81|" },
    { "(?i:f)i", "\xef\xac\x81", "" },
    { "(?i:[\\p{Lu}])", "aAb", "a|A|b|" },
    { "(?i:\\p{Lu})", "aAb", "A|" },
    { "(?i:[^a])", "aAb", "b|" },
    { "a(?i)b|c", "aB C c aC", "aB|aC|" }, /* the option takes the alternatives behind it along */
    /* quantifiers */
    { "a{2}+", "aaaaab", "aaaa|" },
    { "a{2}?b?", "aaaab", "aa|aab|" },
    { "a{,2}x", "aaax", "aax|" },
    { "a{2}{2}", "aaaa", "aaaa|" },
    { "a++b", "aab", "aab|" },
    { "a{1", "a{1", "a{1|" },
    { "*a", "a", NULL },
    { "(?=a)*a", "a", NULL },
    { "a|*", "a", NULL },
    /* the rest */
    { "(?<=a|bc)d", "adbcd", "d|d|" },
    { "(?x) a b # c", " ab", "ab|" },
    { "(?m).", "\n", "\n|" },
    { ".", "\n", "" },
    { "(?s).", "\n", NULL },
    { "\\R", "\r\n", "\r\n|" },
    { "^b$", "a\nb\nc", "b|" },
    { "(?<n>a)", "a", "a|" },
    { "(a)\\1", "aa", NULL },
    { "(a", "a", NULL },
    { "a)", "a", NULL },
    { "\\x{e9}\\u00e9", "\xc3\xa9\xc3\xa9", "\xc3\xa9\xc3\xa9|" },
    { "\\xe9", "\xc3\xa9", NULL },
    { "\\", "a", NULL },
};

static void a_pattern_matches_what_it_does_in_the_library(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_N(known); i++) {
        char        err[200] = "";
        const char *got = matches(known[i].pattern, known[i].text, err);
        if (!known[i].matches) {
            if (got) fail_msg("%s: taken", known[i].pattern);
            assert_non_null(strstr(err, "pattern not supported: "));
            continue;
        }
        if (!got) fail_msg("%s: %s", known[i].pattern, err);
        if (strcmp(got, known[i].matches)) fail_msg("%s: matches %s, not %s", known[i].pattern, got, known[i].matches);
    }
}

static void a_pattern_with_too_many_characters_is_refused(void **state)
{
    (void)state;
    char       err[200] = "";
    struct buf b;
    buf_init(&b, 1 << 16);
    for (unsigned i = 0; i < 300; i++) {
        char one[4];
        buf_put(&b, one, tok_utf8_put(one, 0x4e00 + i));
    }
    buf_putc(&b, 0);
    assert_null(matches(b.data, "a", err));
    assert_non_null(strstr(err, "more than 253 kinds of characters"));
    buf_free(&b);
}

/* A search walks on from where the last one ended, so places cost linear time whatever the characters. */
static void places_are_found_behind_characters_of_any_length(void **state)
{
    (void)state;
    char err[200];
    assert_string_equal(matches("b+",
                                "\xf0\x9f\x98\x80"
                                "bb\xc3\xa9"
                                "b\xe4\xb8\xad",
                                err),
                        "bb|b|");
    assert_string_equal(matches("", "a", err), "||");
}

/* The table's records, and whether `a` has one that names b. */
static bool folds_to(uint32_t a, uint32_t b)
{
    bool named = false;
    for (size_t i = 0; i < n_tok_fold; i += 1 + (tok_fold[i] >> 24))
        for (uint32_t k = 1; (tok_fold[i] & 0xffffff) == a && k <= tok_fold[i] >> 24; k++)
            named = named || tok_fold[i + k] == b;
    return named;
}

static void what_equals_but_for_case_does_so_both_ways_and_in_order(void **state)
{
    (void)state;
    uint32_t before = 0, n = 0;
    for (size_t i = 0; i < n_tok_fold; i += 1 + (tok_fold[i] >> 24), n++) {
        uint32_t cp = tok_fold[i] & 0xffffff;
        assert_true(n == 0 || cp > before); /* a search may stop behind its place */
        before = cp;
        if (n % 16 == 0 || cp < 0x250)
            for (uint32_t k = 1; k <= tok_fold[i] >> 24; k++) assert_true(folds_to(tok_fold[i + k], cp));
    }
    assert_true(n > 2000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pattern_matches_what_it_does_in_the_library),
        cmocka_unit_test(a_pattern_with_too_many_characters_is_refused),
        cmocka_unit_test(what_equals_but_for_case_does_so_both_ways_and_in_order),
        cmocka_unit_test(places_are_found_behind_characters_of_any_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
