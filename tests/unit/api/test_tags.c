#include "api/lang/tags.h"
#include "base/buf.h"
#include "base/json.h"
#include "grammar_world.h"

/* Structural tags as clients send them, and the texts that they allow. "<call>" is a special token. */

enum { CALL = 256, N_TOKEN = 257 };

static bool find_token(const void *self, const char *text, size_t n, uint32_t *id_out)
{
    (void)self;
    *id_out = CALL;
    return n == 6 && memcmp(text, "<call>", 6) == 0;
}

static struct grammar *grammar_with(const char *text, struct schema_form form, char *err)
{
    static const struct ebnf_tokens tokens = { find_token, NULL };
    struct json_error               je;
    struct gr_rules                *r = gr_rules_create(&gr_limits_default);
    struct grammar                 *g = NULL;
    uint32_t                        symbol;
    json_t                         *value = json_parse(text, strlen(text), 0, &je);
    if (!value) fail_msg("%s: %s", text, je.text);
    if (tags_rules(r, value, &tokens, form, &symbol, err))
        gr_rules_free(r);
    else
        gr_build(r, symbol, &g, err);
    json_decref(value);
    return g;
}

static struct grammar *grammar_of(const char *text, char *err)
{
    return grammar_with(text, (struct schema_form){ .compact = true }, err);
}

#define FORMAT(members)          "{\"type\":\"structural_tag\",\"format\":{" members "}}"
#define REGEX(pattern)           "{\"type\":\"regex\",\"pattern\":\"" pattern "\"}"
#define TAG(begin, content, end) "{\"type\":\"tag\",\"begin\":\"" begin "\",\"content\":" content ",\"end\":" end "}"
#define ANY                      "{\"type\":\"any_text\"}"

static const struct row {
    const char *value, *yes[8], *no[8];
} rows[] = {
    { FORMAT("\"type\":\"const_string\",\"value\":\"hi\""), { "hi" }, { "h", "hii" } },
    { FORMAT("\"type\":\"regex\",\"pattern\":\"a+\""), { "a", "aa" }, { "", "b" } },
    { FORMAT("\"type\":\"grammar\",\"grammar\":\"root ::= \\\"x\\\" root?\""), { "x", "xx" }, { "" } },
    { FORMAT("\"type\":\"json_schema\",\"json_schema\":{\"enum\":[1,\"b\"]}"), { "1", "\"b\"" }, { "2" } },
    { FORMAT("\"type\":\"any_text\",\"excludes\":[\"ab\",\"c\"]"),
      { "", "a", "ba", "\n\xc3\xa9" },
      { "ab", "xaby", "c" } },
    { FORMAT("\"type\":\"any_text\",\"excludes\":[\"ab\"],\"max_chars\":3,\"max_tokens\":null"),
      { "", "\xc3\xa9\xc3\xa9\xc3\xa9", "bba" },
      { "aaaa", "xab" } },
    { FORMAT("\"type\":\"json_schema\",\"json_schema\":{\"type\":\"array\"},\"style\":\"json\",\"any_order\":false,"
             "\"excludes\":[],\"max_whitespace_cnt\":null"),
      { "[1,2]" },
      { "[1, 2]" } },
    { FORMAT("\"type\":\"sequence\",\"elements\":[" REGEX("a") "," REGEX("b*") "," REGEX("c") "]"),
      { "ac", "abbc" },
      { "a", "abb", "bc" } },
    { FORMAT("\"type\":\"or\",\"elements\":[" REGEX("a") "," REGEX("b*") "]"), { "a", "bb", "" }, { "ab" } },
    { FORMAT("\"type\":\"optional\",\"content\":" REGEX("ab")), { "", "ab" }, { "abab", "a" } },
    { FORMAT("\"type\":\"star\",\"content\":" REGEX("ab")), { "", "ab", "ababab" }, { "aba" } },
    { FORMAT("\"type\":\"plus\",\"content\":" REGEX("ab")), { "ab", "ababab" }, { "", "aba" } },
    { FORMAT("\"type\":\"repeat\",\"min\":1,\"max\":2,\"content\":" REGEX("ab")), { "ab", "abab" }, { "", "ababab" } },
    { FORMAT("\"type\":\"repeat\",\"min\":2,\"max\":-1,\"content\":" REGEX("ab")), { "abab", "abababab" }, { "ab" } },
    { FORMAT("\"type\":\"sequence\",\"elements\":[" TAG("<a>", ANY, "\"</a>\"") "," TAG("[", REGEX("x*"),
                                                                                        "[\"]\",\")\"]") "]"),
      { "<a></a>[xx]", "<a>b <a></a>[)" },
      { "<a></a>[x", "<a></a></a>[]", "<a>[]" } },
    { FORMAT("\"type\":\"tags_with_separator\",\"separator\":\", \",\"tags\":[" TAG("a", REGEX("1*"), "\".\"") "," TAG(
          "b", REGEX("2"), "\"\"") "]"),
      { "", "a11.", "b2, a., b2" },
      { "a1.b2", "a1., ", "b" } },
    { FORMAT("\"type\":\"tags_with_separator\",\"separator\":\",\",\"at_least_one\":true,\"stop_after_first\":true,"
             "\"tags\":[" TAG("a", REGEX("1*"), "\".\"") "]"),
      { "a." },
      { "", "a.,a." } },
    { FORMAT("\"type\":\"triggered_tags\",\"triggers\":[\"<f=\"],\"at_least_one\":true,\"tags\":[" TAG(
          "<f=x>", REGEX("[0-9]+"), "\"</f>\"") "," TAG("<f=y>", ANY, "\"</f>\"") "]"),
      { "<f=x>1</f>", "Well <f <f=x>12</f> and <f=y>a</f>.", "<f=y></f></f>" },
      { "", "free", "<f=z>1</f>", "<f=x>a</f>", "a <f=x>1</f> <f=", "<f=x>1" } },
    { FORMAT(
          "\"type\":\"triggered_tags\",\"triggers\":[\"<f=\"],\"stop_after_first\":true,\"excludes\":[\"no\"],\"tags\":[" TAG(
              "<f=x>", REGEX("[0-9]+"), "\"</f>\"") "]"),
      { "", "free", "a<f=x>1</f>" },
      { "a<f=x>1</f>b", "no", "nono<f=x>1</f>" } },
    { "{\"type\":\"structural_tag\",\"structures\":[{\"begin\":\"<f>\",\"schema\":{\"type\":\"integer\"},\"end\":\"</f>\"}],"
      "\"triggers\":[\"<f\"]}",
      { "", "an answer", "a<f>-12</f>b<f>0</f>" },
      { "<f>a</f>", "<f", "a<f>1</f" } },
    { FORMAT(
          "\"type\":\"tag\",\"begin\":\"{\",\"end\":\"}\",\"content\":{\"type\":\"triggered_tags\",\"triggers\":[\"#\"],\"tags\":[" TAG(
              "#a", REGEX("1"), "\";\"") "]}"),
      { "{}", "{x#a1;y}" },
      { "{x}y}", "{#b}", "{#a1;" } },
};

static void tags_are_what_their_kinds_say(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_N(rows); i++) {
        char            err[TAGS_ERR] = "";
        struct grammar *g = grammar_of(rows[i].value, err);
        if (!g) fail_msg("%s: %s", rows[i].value, err);
        for (int k = 0; k < 8 && rows[i].yes[k]; k++)
            if (verdict(g, rows[i].yes[k]) != 'y') fail_msg("%s refuses %s", rows[i].value, rows[i].yes[k]);
        for (int k = 0; k < 8 && rows[i].no[k]; k++)
            if (verdict(g, rows[i].no[k]) == 'y') fail_msg("%s takes %s", rows[i].value, rows[i].no[k]);
        gr_free(g);
    }
}

/* ---------------------------------------------------------------- triggers, by another program */

/* Free up to the first trigger, "aa" or "ba", then the tag: aab, any number of b, c; or bab, a, c. */
static bool follows(const char *s)
{
    size_t i = 0;
    while (s[i] && strncmp(s + i, "aa", 2) && strncmp(s + i, "ba", 2)) i++;
    if (!s[i]) return true;
    const char *rest = s + i + 3;
    if (s[i + 2] != 'b') return false;
    if (s[i] == 'a')
        while (*rest == 'b') rest++;
    else if (*rest++ != 'a')
        return false;
    return *rest == 'c' && follows(rest + 1);
}

static bool has_trigger(const char *s) { return strstr(s, "aa") || strstr(s, "ba"); }

static void a_trigger_counts_where_it_first_comes(void **state)
{
    (void)state;
    static const char value[] = FORMAT("\"type\":\"triggered_tags\",\"triggers\":[\"aa\",\"ba\"],\"tags\":[" TAG(
        "aab", REGEX("b*"), "\"c\"") "," TAG("bab", REGEX("a"), "\"c\"") "]");
    char              err[TAGS_ERR] = "", text[9];
    struct grammar   *g = grammar_of(value, err);
    uint32_t          n_yes = 0, n_tag = 0;
    if (!g) fail_msg("%s", err);
    for (uint32_t n = 0, all = 1; n < 9; n++, all *= 3) {
        for (uint32_t k = 0; k < all; k++) {
            uint32_t rest = k;
            for (uint32_t i = 0; i < n; i++, rest /= 3) text[i] = (char)('a' + rest % 3);
            text[n] = 0;
            bool want = follows(text);
            if ((verdict(g, text) == 'y') != want) fail_msg("'%s' is %s", text, want ? "refused" : "taken");
            n_yes += want;
            n_tag += want && has_trigger(text);
        }
    }
    print_message("%u texts are allowed, %u with tags\n", n_yes, n_tag);
    assert_true(n_tag > 10);
    gr_free(g);
}

/* ---------------------------------------------------------------- bounds */

static void white_space_of_a_schema_may_be_bounded(void **state)
{
    (void)state;
    /* between "[" and "]", or "1": these many characters at most, a line break first */
    static const uint32_t bounds[] = { 0, 1, 2, 3, 8, 9, 10, 31, 32, 33, 34, 1000000000 };
    for (size_t i = 0; i < ARRAY_N(bounds); i++) {
        char text[200], err[TAGS_ERR] = "";
        snprintf(text, sizeof text,
                 FORMAT("\"type\":\"json_schema\",\"json_schema\":{\"type\":\"array\"},\"max_whitespace_cnt\":%u"),
                 bounds[i]);
        struct grammar *g = grammar_with(text, (struct schema_form){ .compact = false }, err);
        if (!g) fail_msg("%s", err);
        for (uint32_t n = 0; n < 40; n++) {
            snprintf(text, sizeof text, "[%s%*s1]", n ? "\n" : "", n ? (int)n - 1 : 0, "");
            bool want = n <= bounds[i] && n <= 33;
            if ((verdict(g, text) == 'y') != want) fail_msg("%u of white space under %u", n, bounds[i]);
            for (uint32_t k = 1; k < n; k++) text[k + 1] = '\t';
            want = n <= bounds[i] && n <= 9;
            if ((verdict(g, text) == 'y') != want) fail_msg("%u of white space with tabs under %u", n, bounds[i]);
        }
        assert_int_equal(verdict(g, "[ 1]"), bounds[i] ? 'y' : 'n');
        assert_int_equal(verdict(g, "[  1]"), 'n');
        gr_free(g);
    }
    char                     err[TAGS_ERR] = "";
    const struct schema_form own = { .space = " ?" };
    assert_null(grammar_with(FORMAT("\"type\":\"json_schema\",\"json_schema\":{},\"max_whitespace_cnt\":5"), own, err));
    assert_non_null(strstr(err, "pattern of white space"));
}

static void a_free_text_ends_at_its_last_character(void **state)
{
    (void)state;
    char             err[TAGS_ERR] = "";
    struct grammar  *g = grammar_of(FORMAT("\"type\":\"any_text\",\"max_chars\":4096"), err);
    struct gr_match *m = g ? gr_match_create(g, no_vocab()) : NULL;
    if (!m) fail_msg("%s", err);
    for (size_t i = 0; i < TAGS_CHARS_MAX; i++) {
        if (gr_accept_bytes(m, "\xc3\xa9", 2)) fail_msg("character %zu is refused", i);
        assert_true(gr_is_end(m));
    }
    assert_int_equal(gr_accept_bytes(m, "a", 1), ST_INVALID);
    gr_match_free(m);
    gr_free(g);
}

/* ---------------------------------------------------------------- special tokens */

static void a_special_token_that_is_named_may_come_as_such_or_spelled(void **state)
{
    (void)state;
    static const char  value[] = FORMAT("\"type\":\"triggered_tags\",\"triggers\":[\"<call>\"],\"tags\":[" TAG(
         "<call>x", REGEX("[0-9]"), "\"<call>\"") "]");
    static char        one[256];
    struct token_bytes b[N_TOKEN] = { { 0 } };
    struct gr_vocab   *v;
    char               err[TAGS_ERR] = "";
    struct grammar    *g = grammar_of(value, err);
    if (!g) fail_msg("%s", err);
    for (int i = 0; i < 256; i++) {
        one[i] = (char)i;
        b[i] = (struct token_bytes){ (const unsigned char *)&one[i], 1 };
    }
    assert_int_equal(gr_vocab_create(b, N_TOKEN, &v), ST_OK);
    struct gr_match *m = gr_match_create(g, v);
    for (const char *c = "a<call"; *c; c++) assert_int_equal(gr_accept(m, (unsigned char)*c), ST_OK);
    assert_int_equal(gr_accept(m, CALL), ST_OK);
    assert_int_equal(gr_accept(m, 'y'), ST_INVALID);
    for (const char *c = "x7"; *c; c++) assert_int_equal(gr_accept(m, (unsigned char)*c), ST_OK);
    assert_false(gr_is_end(m));
    assert_int_equal(gr_accept(m, CALL), ST_OK);
    assert_true(gr_is_end(m));
    for (const char *c = "b<call>"; *c; c++) assert_int_equal(gr_accept(m, (unsigned char)*c), ST_OK);
    assert_int_equal(gr_accept(m, 'z'), ST_INVALID);
    assert_int_equal(gr_accept(m, CALL), ST_INVALID);
    gr_match_free(m);
    gr_vocab_free(v);
    gr_free(g);
}

static void what_is_wrong_is_said_with_its_place(void **state)
{
    (void)state;
    static const char *const bad[][3] = {
        { "{\"type\":\"structural_tag\"}", "'/format'", "'type'" },
        { FORMAT("\"type\":\"qwen_xml\""), "'/format'", "'qwen_xml'" },
        { FORMAT("\"type\":\"const_string\",\"value\":5"), "'/format'", "'value'" },
        { FORMAT("\"type\":\"regex\",\"pattern\":\"(\""), "'/format'", "')' is missing" },
        { FORMAT("\"type\":\"grammar\",\"grammar\":\"root ::= a\""), "'/format'", "line 1" },
        { FORMAT("\"type\":\"json_schema\",\"json_schema\":{\"not\":{\"format\":\"x\"}}"),
          "'/format/json_schema/not/format'", "opposite" },
        { FORMAT("\"type\":\"json_schema\",\"json_schema\":{\"properties\":{\"a/b\":{\"uniqueItems\":true}}}"),
          "'/format/json_schema/properties/a~1b/uniqueItems'", "" },
        { FORMAT("\"type\":\"json_schema\",\"json_schema\":{},\"style\":\"glm_xml\""), "'/format/style'", "styles" },
        { FORMAT("\"type\":\"sequence\",\"elements\":[" REGEX("a") ",{}]"), "'/format/elements/1'", "'type'" },
        { FORMAT("\"type\":\"or\",\"elements\":[]"), "'/format'", "'elements'" },
        { FORMAT("\"type\":\"repeat\",\"min\":3,\"max\":2,\"content\":{}"), "'/format'", "'min'" },
        { FORMAT("\"type\":\"star\",\"content\":" TAG("a", "{\"type\":\"x\"}", "\"\"")), "'/format/content/content'",
          "'x'" },
        { FORMAT("\"type\":\"tag\",\"begin\":\"a\",\"content\":" ANY ",\"end\":[]"), "'/format'", "'end'" },
        { FORMAT("\"type\":\"triggered_tags\",\"triggers\":[\"a\"],\"tags\":[" TAG("b", ANY, "\"\"") "]"),
          "'/format/tags/0'", "none of the triggers" },
        { FORMAT("\"type\":\"triggered_tags\",\"triggers\":[\"a\",\"ab\"],\"tags\":[" TAG("abc", ANY, "\"\"") "]"),
          "'/format/tags/0'", "two of the triggers" },
        { FORMAT("\"type\":\"triggered_tags\",\"triggers\":[\"\"],\"tags\":[]"), "'/format'", "'triggers'" },
        { FORMAT("\"type\":\"any_text\",\"max_tokens\":5"), "'/format/max_tokens'", "not supported" },
        { FORMAT("\"type\":\"any_text\",\"max_chars\":4097"), "'/format/max_chars'", "up to 4096" },
        { FORMAT("\"type\":\"any_text\",\"max_chars\":\"5\""), "'/format/max_chars'", "up to 4096" },
        { FORMAT("\"type\":\"regex\",\"pattern\":\"a\",\"a/b\":1"), "'/format/a~1b'", "not supported" },
        { FORMAT("\"type\":\"json_schema\",\"json_schema\":{},\"any_order\":true"), "'/format/any_order'", "order" },
        { FORMAT("\"type\":\"json_schema\",\"json_schema\":{},\"any_order\":\"no\""), "'/format/any_order'",
          "true or" },
        { FORMAT("\"type\":\"json_schema\",\"json_schema\":{},\"excludes\":[\"x\"]"), "'/format/excludes'", "pattern" },
        { FORMAT("\"type\":\"json_schema\",\"json_schema\":{},\"max_whitespace_cnt\":-1"),
          "'/format/max_whitespace_cnt'", "count" },
        { FORMAT(
              "\"type\":\"triggered_tags\",\"triggers\":[\"a\"],\"tags\":[" TAG("a", ANY, "\"\"") "],"
                                                                                                  "\"at_least_one\":1"),
          "'/format/at_least_one'", "true or false" },
        { FORMAT(
              "\"type\":\"triggered_tags\",\"triggers\":[\"a\"],\"tags\":[{\"begin\":\"a\",\"end\":\"\",\"content\":" ANY
              ",\"name\":\"f\"}]"),
          "'/format/tags/0/name'", "not supported" },
        { FORMAT("\"type\":\"tags_with_separator\",\"separator\":\"\",\"tags\":[" ANY "]"), "'/format/tags/0'",
          "'tag'" },
        { FORMAT("\"type\":\"tags_with_separator\",\"separator\":\"\",\"excludes\":[\"a\"],\"tags\":[" TAG("a", ANY,
                                                                                                           "\"\"") "]"),
          "'/format/excludes'", "not supported" },
        { "{\"type\":\"structural_tag\",\"format\":" ANY ",\"triggers\":[\"a\"]}", "'/triggers'", "not supported" },
        { "{\"structures\":[{\"begin\":\"a\",\"schema\":{\"uniqueItems\":true},\"end\":\"\"}],\"triggers\":[\"a\"]}",
          "'/structures/0/schema/uniqueItems'", "" },
        { "{\"structures\":[{\"begin\":\"a\",\"schema\":{}}],\"triggers\":[\"a\"]}", "'/structures/0'", "'end'" },
        { "{\"structures\":[5],\"triggers\":[\"a\"]}", "'/structures/0'", "'begin'" },
    };
    for (size_t i = 0; i < ARRAY_N(bad); i++) {
        char err[TAGS_ERR] = "";
        if (grammar_of(bad[i][0], err)) fail_msg("%s is taken", bad[i][0]);
        if (!strstr(err, bad[i][1]) || !strstr(err, bad[i][2])) fail_msg("%s: %s", bad[i][0], err);
    }
    struct buf deep;
    char       err[TAGS_ERR] = "";
    buf_init(&deep, 1 << 16);
    buf_puts(&deep, "{\"format\":");
    for (int i = 0; i < 40; i++) buf_puts(&deep, "{\"type\":\"star\",\"content\":");
    buf_puts(&deep, ANY);
    for (int i = 0; i < 41; i++) buf_putc(&deep, '}');
    assert_null(grammar_of(buf_cstr(&deep), err));
    buf_free(&deep);
    assert_non_null(strstr(err, "nested deeper"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tags_are_what_their_kinds_say),
        cmocka_unit_test(a_trigger_counts_where_it_first_comes),
        cmocka_unit_test(white_space_of_a_schema_may_be_bounded),
        cmocka_unit_test(a_free_text_ends_at_its_last_character),
        cmocka_unit_test(a_special_token_that_is_named_may_come_as_such_or_spelled),
        cmocka_unit_test(what_is_wrong_is_said_with_its_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
