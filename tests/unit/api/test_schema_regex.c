#include "api/schema/regex.h"
#include "grammar_world.h"

static struct grammar *grammar_of(const char *regex, struct regex_form form, char *err)
{
    struct gr_rules *r = gr_rules_create(&gr_limits_default);
    struct grammar  *g = NULL;
    uint32_t         rx;
    char             why[GR_ERR];
    if (regex_rx(gr_rx(r), regex, strlen(regex), form, &rx, err)) {
        gr_rules_free(r);
        return NULL;
    }
    enum status st = gr_build(r, gr_terminal(r, rx), &g, why);
    if (st) snprintf(err, REGEX_ERR, "%s", why);
    return g;
}

struct row {
    const char *regex, *yes[6], *no[6];
};

static void check(const struct row *row, size_t n, struct regex_form form)
{
    for (size_t i = 0; i < n; i++) {
        char            err[REGEX_ERR] = "";
        struct grammar *g = grammar_of(row[i].regex, form, err);
        if (!g) fail_msg("%s: %s", row[i].regex, err);
        for (int k = 0; k < 6 && row[i].yes[k]; k++)
            if (verdict(g, row[i].yes[k]) != 'y') fail_msg("%s refuses \"%s\"", row[i].regex, row[i].yes[k]);
        for (int k = 0; k < 6 && row[i].no[k]; k++)
            if (verdict(g, row[i].no[k]) == 'y') fail_msg("%s takes \"%s\"", row[i].regex, row[i].no[k]);
        gr_free(g);
    }
}

static void a_regular_expression_takes_its_texts(void **state)
{
    (void)state;
    static const struct row rows[] = {
        { "abc", { "abc" }, { "ab", "abcd", "", "Abc" } },
        { "a|bc|", { "a", "bc", "" }, { "b", "abc" } },
        { "a*b+c?", { "b", "aabbc", "bbb" }, { "a", "aac", "bcc" } },
        { "(ab){2,3}", { "abab", "ababab" }, { "ab", "abababab", "aba" } },
        { "a{2}b{2,}", { "aabb", "aabbbb" }, { "abb", "aab", "aaabb" } },
        { "x{,3}", { "x{,3}" }, { "xx" } },
        { "[a-c]+", { "abc", "c" }, { "d", "" } },
        { "[^a-c]", { "d", "\xc3\xa9", "\xf0\x9f\x98\x80" }, { "a", "", "de", "\xc3" } },
        { "[a\\-z]", { "a", "-", "z" }, { "b" } },
        { "[\\d_]+", { "12_" }, { "a" } },
        { "\\d\\D\\w\\W\\s\\S", { "1aa- x" }, { "aaaa x", "1aaaax" } },
        { ".", { "a", "\xe2\x82\xac" }, { "\n", "", "ab", "\xe2\x82" } },
        { "(?s).", { "\n" }, { "" } },
        { "(?i)Ab", { "ab", "AB", "aB" }, { "ac" } },
        { "((?i)a)b", { "Ab", "ab" }, { "AB" } },
        { "(?:a)(?<name>b)(?P<other>c)", { "abc" }, { "ab" } },
        { "a+?b*?", { "aab", "a" }, { "b" } },
        { "\\x41\\u00e9\\u{1F600}\\n", { "A\xc3\xa9\xf0\x9f\x98\x80\n" }, { "A" } },
        { "\\ud83d\\ude00", { "\xf0\x9f\x98\x80" }, { "" } },
        { "\\.\\*\\\\\\/", { ".*\\/" }, { "a*\\/" } },
        { "^a$|^b", { "a", "b" }, { "ab", "" } },
        { "(?!ab)[a-c]{2}", { "ac", "ba" }, { "ab", "a" } },
        { "(?=.*\\d)[a-z0-9]{3}", { "a1b", "99x" }, { "abc" } },
        { "(?!a$)a+", { "aa", "aaa" }, { "a" } },
        { "\xc3\xa9{2}", { "\xc3\xa9\xc3\xa9" }, { "\xc3\xa9" } },
    };
    check(rows, ARRAY_N(rows), (struct regex_form){ false, false });
}

static void a_pattern_is_found_anywhere(void **state)
{
    (void)state;
    static const struct row rows[] = {
        { "b", { "b", "abc", "bb" }, { "", "ac" } },
        { "^b", { "b", "bc" }, { "ab" } },
        { "b$", { "b", "ab" }, { "bc" } },
        { "^b$", { "b" }, { "bb", "ab", "" } },
        { "^a|b$", { "ax", "xb", "a" }, { "xa", "bx" } },
        { "", { "", "x" }, { NULL } },
    };
    check(rows, ARRAY_N(rows), (struct regex_form){ true, false });
}

static void within_json_characters_are_spelled_as_strings_spell_them(void **state)
{
    (void)state;
    static const struct row rows[] = {
        { ".{3}", { "abc", "\\\"\\\\x", "\\t\xc3\xa9z" }, { "ab", "\"bc", "\\bc", "abcd" } },
        { "[\"\\\\]", { "\\\"", "\\\\" }, { "\"", "\\", "a" } },
        { "\\n\\t\\x01", { "\\n\\t\\u0001" }, { "\n\t\x01", "\\n\\t\\u001" } },
        { "a\"b", { "a\\\"b" }, { "a\"b" } },
    };
    check(rows, ARRAY_N(rows), (struct regex_form){ false, true });
}

/* a, e with an accent, capital omega, Greek and Cyrillic letters, an Arabic digit, a letter beyond 16 bits, an emoji */
static void characters_are_named_by_their_properties(void **state)
{
    (void)state;
    static const struct row rows[] = {
        { "\\p{L}+",
          { "a\xc3\xa9", "\xce\xa9\xd0\xb6", "\xf0\x90\x90\x80" },
          { "", "1", "_", "a ", "\xd9\xa3", "\xf0\x9f\x98\x80" } },
        { "\\p{Letter}\\p{Lu}\\p{Lowercase_Letter}", { "aBc", "\xce\xa9\xce\xa9\xd0\xb6" }, { "abc", "aBC" } },
        { "\\p{gc=Nd}+", { "1\xd9\xa3" }, { "a", "\xc2\xb2" } },
        { "^\\P{L}$", { "1", " ", "\xf0\x9f\x98\x80", "\n" }, { "a", "\xd0\xb6", "\xed\xa0\x80" } },
        { "\\p{Script=Greek}+|\\p{sc=Cyrillic}", { "\xce\xa9\xce\xb1", "\xd0\xb6" }, { "a", "\xd0\xb6\xd0\xb6" } },
        { "[\\p{L}\\d_-]+", { "a_1-\xd0\xb6" }, { "a.", "" } },
        { "[^\\p{L}b-d1]", { "2", "\xf0\x9f\x98\x80" }, { "a", "1", "\xd0\xb6" } },
        { "[^\\P{Lu}A]", { "B", "\xce\xa9" }, { "A", "a", "1" } },
        { "[\\P{L}\\p{Lu}]", { "B", "1" }, { "b" } },
        { "(?i)\\p{Lu}", { "a", "B", "\xcf\x89" }, { "1" } },
        { "\\p{Any}", { "a", "\n", "\xf4\x8f\xbf\xbf" }, { "", "ab" } },
        { "\\p{ASCII}{2}", { "a~" }, { "a\xc3\xa9" } },
        { "\\p{Emoji_Presentation}", { "\xf0\x9f\x98\x80" }, { "a", "1" } },
    };
    static const struct row json[] = {
        { "\\p{Cc}", { "\\n", "\\u0001", "\x7f" }, { "\n", "n", "a" } },
        { "\\p{Po}", { "\\\"", "\\\\", "!" }, { "\"", "\\", "a" } },
    };
    check(rows, ARRAY_N(rows), (struct regex_form){ false, false });
    check(json, ARRAY_N(json), (struct regex_form){ false, true });
}

static void what_no_automaton_can_do_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *regex, *why;
    } rows[] = {
        { "(a)\\1", "back-references" },   { "\\bword", "\\b is not supported" },
        { "(?<=a)b", "look-behind" },      { "a(?=b)", "at the beginning" },
        { "(a", "')' is missing" },        { "a)", "')' without" },
        { "[a", "']' is missing" },        { "*a", "nothing stands before" },
        { "[z-a]", "runs backwards" },     { "a{5,2}", "from more to less" },
        { "a{70000}", "more than 65536" }, { "a^b", "at the ends" },
        { "\\p{Letters}", "no property" }, { "\\q", "unknown" },
        { "\\pL", "in braces" },           { "\\P{", "in braces" },
        { "\\p{}", "no property" },        { "[a-\\p{L}]", "ends in a class" },
        { "\\p{^L}", "no property" },      { "\\p{scx=Greek}", "no property" },
        { "a\\", "at the end" },           { "\\u{110000}", "code point" },
        { "\\xg1", "hexadecimal" },        { "(?m)a", "flags" },
    };
    for (size_t i = 0; i < ARRAY_N(rows); i++) {
        char err[REGEX_ERR] = "";
        if (grammar_of(rows[i].regex, (struct regex_form){ false, false }, err)) fail_msg("%s is taken", rows[i].regex);
        if (!strstr(err, rows[i].why)) fail_msg("%s: %s", rows[i].regex, err);
    }
}

/* Texts of a hostile client: each ends, by an answer or by a bound. */
static void what_is_made_to_hurt_ends(void **state)
{
    (void)state;
    static const char *const piece[] = {
        "(",   "a?",     "(a{0,65536}){0,65536}", "[^a]|",      "((a|b)*c|", "(?=a)", "a{1000}",
        "\\x", "\\p{L}", "[\\P{Ll}\\P{Nd}",       "[^\\p{Lu}]?"
    };
    for (size_t i = 0; i < ARRAY_N(piece); i++) {
        size_t n = (size_t)test_size(60000, 24000), len = strlen(piece[i]);
        char  *text = malloc(n + 1), err[REGEX_ERR] = "";
        for (size_t k = 0; k < n; k++) text[k] = piece[i][k % len];
        text[n] = 0;
        struct grammar *g = grammar_of(text, (struct regex_form){ false, false }, err);
        if (g) verdict(g, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa");
        assert_true(g || *err);
        gr_free(g);
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_regular_expression_takes_its_texts),
        cmocka_unit_test(a_pattern_is_found_anywhere),
        cmocka_unit_test(within_json_characters_are_spelled_as_strings_spell_them),
        cmocka_unit_test(characters_are_named_by_their_properties),
        cmocka_unit_test(what_no_automaton_can_do_is_refused),
        cmocka_unit_test(what_is_made_to_hurt_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
