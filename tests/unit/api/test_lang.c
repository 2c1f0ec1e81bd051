#include "api/lang/gbnf.h"
#include "api/lang/lark.h"
#include "api/lang/repeat.h"
#include "base/buf.h"
#include "grammar_world.h"

typedef enum status rules_of(struct gr_rules *r, const char *text, size_t n, const struct ebnf_tokens *tokens,
                             uint32_t *symbol_out, char err[EBNF_ERR]);

static struct grammar *grammar_of(rules_of *rules, const char *text, char *err)
{
    struct gr_rules *r = gr_rules_create(&gr_limits_default);
    struct grammar  *g = NULL;
    uint32_t         symbol;
    if (rules(r, text, strlen(text), NULL, &symbol, err)) {
        gr_rules_free(r);
        return NULL;
    }
    gr_build(r, symbol, &g, err);
    return g;
}

struct row {
    const char *text, *yes[8], *no[8];
};

static void check(rules_of *rules, const struct row *row, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char            err[EBNF_ERR] = "";
        struct grammar *g = grammar_of(rules, row[i].text, err);
        if (!g) fail_msg("%s: %s", row[i].text, err);
        for (int k = 0; k < 8 && row[i].yes[k]; k++)
            if (verdict(g, row[i].yes[k]) != 'y') fail_msg("%s refuses %s", row[i].text, row[i].yes[k]);
        for (int k = 0; k < 8 && row[i].no[k]; k++)
            if (verdict(g, row[i].no[k]) == 'y') fail_msg("%s takes %s", row[i].text, row[i].no[k]);
        gr_free(g);
    }
}

static void gbnf_is_read_as_llama_cpp_writes_it(void **state)
{
    (void)state;
    static const struct row rows[] = {
        { "root ::= \"yes\" | \"no\"", { "yes", "no" }, { "ye", "yesno", "" } },
        { "# a list\nroot ::= \"[\" (item (\",\" item)*)? \"]\"\nitem ::= [0-9]+ | root\n",
          { "[]", "[1]", "[1,[22,[]]]" },
          { "[1,]", "[", "[a]", "[[1]" } },
        { "root ::= expr\nexpr ::= expr \"+\" term | term\nterm ::= [a-z] | \"(\" expr \")\"",
          { "a", "a+b+c", "(a+b)+c" },
          { "a+", "+a", "(a" } },
        { "root ::= \"a\"{2,3} [^b-y\\n]{2}",
          { "aaza", "aaazz", "aaaz", "aa\xC3\xBC\xE2\x82\xAC" },
          { "aab", "aaab", "aa\nz" } },
        { "root ::=\n  \"x\"\n  | \"y\" # so\n  | other\nother-1 ::= \"z\"\nother ::= other-1 other-1?",
          { "x", "y", "z", "zz" },
          { "zzz" } },
        { "root ::= \"\\x41\\u00e9\\t\\\"\\\\\"", { "A\xC3\xA9\t\"\\" }, { "A" } },
        { "root ::= .{2} \"a\"{2,}",
          { "\n\xC3\xA9"
            "aa",
            "xyaaaa" },
          { "xya" } },
        { "root ::= (\"a\" | ) \"b\"", { "ab", "b" }, { "a" } },
        { "root ::= a b\na ::= b | \"(\" a \")\" ws\nb ::= [0-9] ws\nws ::= [ \\n]*",
          { "1 2", "(1) 2", "((1 )\n ) 3 " },
          { "1", "(1)", "( 12" } },
    };
    check(gbnf_rules, rows, ARRAY_N(rows));
}

/* The grammar of JSON that llama.cpp carries. */
static void gbnf_describes_json(void **state)
{
    (void)state;
    static const struct row json = {
        "root   ::= object\n"
        "value  ::= object | array | string | number | (\"true\" | \"false\" | \"null\") ws\n\n"
        "object ::=\n  \"{\" ws (\n            string \":\" ws value\n    (\",\" ws string \":\" ws value)*\n  )? \"}\" ws\n\n"
        "array  ::=\n  \"[\" ws (\n            value\n    (\",\" ws value)*\n  )? \"]\" ws\n\n"
        "string ::=\n  \"\\\"\" (\n    [^\"\\\\\\x7F\\x00-\\x1F] |\n    \"\\\\\" ([\"\\\\bfnrt] | \"u\" [0-9a-fA-F]{4}) # escapes\n  )* \"\\\"\" ws\n\n"
        "number ::= (\"-\"? ([0-9] | [1-9] [0-9]{0,15})) (\".\" [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws\n\n"
        "# Optional space: by convention, applied in this grammar after literal chars when allowed\n"
        "ws ::= | \" \" | \"\\n\" [ \\t]{0,20}\n",
        { "{}", "{\"a\": [1, -2.5e3, \"x\\u00e9\", null], \"b\":{\"c\":\"\xC3\xBC\"}}", "{ }\n  " },
        { "[]", "{a:1}", "{\"a\":}", "{\"a\":1,}" }
    };
    check(gbnf_rules, &json, 1);
}

static void lark_is_read_as_llguidance_reads_it(void **state)
{
    (void)state;
    static const struct row rows[] = {
        { "start: \"yes\" | \"no\"", { "yes", "no" }, { "yesno" } },
        { "start: sum\n?sum: product | sum \"+\" product -> add\n?product: ATOM | product \"*\" ATOM\n"
          "ATOM: NUMBER | NAME\n%import common.NUMBER\n%import common.CNAME -> NAME\n%import common.WS_INLINE\n%ignore WS_INLINE\n",
          { "a", "a + 2*b", " a+ 3.5e2 * c ", "1" },
          { "a +", "a b c +", "" } },
        { "start: greeting name~2..3 [\"!\"]\ngreeting: \"hello\"i\nname: /[A-Z][a-z]*/\n%ignore \" \"",
          { "hello Ann Bob", "HELLO Ann Bob C!", "HelloAnnB" },
          { "hello ann bob", "hello A" } },
        { "start: _open x+ _close\n_open: \"(\"\n_close: \")\"\nx: A | B\nA: \"a\"..\"c\"\nB.0: /x.y/s // dot\n",
          { "(abc)", "(x\nya)" },
          { "()", "(d)" } },
        { "start: (A B?)*\nA: \"a\"\nB: A A", { "", "a", "aaa", "aaaa" }, { "b" } },
        { "start: A{2,3} \"b\"\nA: /[0-9]/", { "12b", "123b" }, { "1b", "1234b" } },
        { "start: \"<f>\" %json {\"type\": \"object\", \"properties\": {\"a}\": {\"type\": \"integer\"}}} \"</f>\"",
          { "<f>{\"a}\":1}</f>", "<f>{}</f>" },
          { "<f></f>", "<f>{\"b\":1}</f>" } },
        { "%import common (INT, WS)\n%ignore WS\n%ignore /#[^\\n]*/\nstart: INT (\",\" INT)*",
          { "1", " 1 , 2 # two\n , 3", "1,2" },
          { "1,", "a" } },
        { "start: s\ns: ESCAPED_STRING\n%import common.ESCAPED_STRING",
          { "\"a\"", "\"a\\\"b\"" },
          { "\"a", "\"a\"b\"" } },
    };
    check(lark_rules, rows, ARRAY_N(rows));
}

/* The grammar with which a client of the Responses API asks for patches. */
static void the_grammar_of_patches_is_read(void **state)
{
    (void)state;
    static const struct row patch = {
        "start: begin_patch hunk+ end_patch\nbegin_patch: \"*** Begin Patch\" LF\nend_patch: \"*** End Patch\" LF?\n\n"
        "hunk: add_hunk | delete_hunk | update_hunk\nadd_hunk: \"*** Add File: \" filename LF add_line+\n"
        "delete_hunk: \"*** Delete File: \" filename LF\nupdate_hunk: \"*** Update File: \" filename LF change_move? change?\n\n"
        "filename: /(.+)/\nadd_line: \"+\" /(.*)/ LF -> line\n\nchange_move: \"*** Move to: \" filename LF\n"
        "change: (change_context | change_line)+ eof_line?\nchange_context: (\"@@\" | \"@@ \" /(.+)/) LF\n"
        "change_line: (\"+\" | \"-\" | \" \") /(.*)/ LF\neof_line: \"*** End of File\" LF\n\n%import common.LF\n",
        { "*** Begin Patch\n*** Add File: a b.c\n+int x;\n+\n*** End Patch",
          "*** Begin Patch\n*** Update File: a\n@@ f\n-x\n+y\n z\n*** Delete File: q\n*** End Patch\n" },
        { "*** Begin Patch\n*** End Patch", "*** Begin Patch\n*** Add File: a\nint x;\n*** End Patch" }
    };
    check(lark_rules, &patch, 1);
}

static enum status quoted_rules(struct gr_rules *r, const char *text, size_t n, const struct ebnf_tokens *tokens,
                                uint32_t *symbol_out, char err[EBNF_ERR])
{
    (void)tokens;
    return lark_rules_inside(r, text, n, true, RX_ALL, symbol_out, err);
}

/* What stands between the quotes of a JSON string. */
static void a_grammar_of_text_in_a_json_string_is_spelled_as_there(void **state)
{
    (void)state;
    static const struct row rows[] = {
        { "start: \"a\\\"b\" LF /[^x]/ C\nC: \"!\"..\"#\"\n%import common.LF\n",
          { "a\\\"b\\ny\\\"", "a\\\"b\\n\\n!", "a\\\"b\\n\\\\#", "a\\\"b\\n\\u0001#" },
          { "a\"b\\ny#", "a\\\"b\ny#", "a\\\"b\\nx#", "a\\\"b\\n\\#" } },
        { "start: \"q\"i W\nW: /\\w+\\t?/\n%ignore /[\\n ]/", { "qab\\t", "Q\\n a1" }, { "q\na" } },
    };
    check(quoted_rules, rows, ARRAY_N(rows));
}

static void errors_name_their_line_and_column(void **state)
{
    (void)state;
    static const struct {
        rules_of   *rules;
        const char *text, *why;
    } rows[] = {
        { gbnf_rules, "", "the rule 'root' is missing" },
        { gbnf_rules, "root ::= a\n", "line 1, column 10: 'a' is not defined" },
        { gbnf_rules, "root ::= \"a\"\n\n  b = c", "line 3, column 5: a rule is needed" },
        { gbnf_rules, "root = \"a\"", "line 1, column 6: '::=' is needed behind 'root'" },
        { gbnf_rules, "root ::= \"a\"\nroot ::= \"b\"", "line 2, column 1: 'root' is defined twice" },
        { gbnf_rules, "root ::= \"a", "line 1, column 10: the string does not end" },
        { gbnf_rules, "root ::= (\"a\"\nb ::= \"c\"", "line 1, column 10: ')' is missing" },
        { gbnf_rules, "root ::= \"a\")", "')' without '('" },
        { gbnf_rules, "root ::= [b-a]", "backwards" },
        { gbnf_rules, "root ::= [a", "']' is missing" },
        { gbnf_rules, "root ::= [a-", "the text ends here" },
        { gbnf_rules, "root ::= \"a\\", "unknown escape" },
        { lark_rules, "start: \"a\"..\"", "the text ends here" },
        { gbnf_rules, "root ::= \"\\q\"", "line 1, column 12: an unknown escape" },
        { gbnf_rules, "root ::= \"a\"{3,2}", "from more to less" },
        { gbnf_rules, "root ::= \"a\"{2,70000}", "more than 65536" },
        { gbnf_rules, "root ::= (=\"a\") .", "look-ahead" },
        { gbnf_rules, "root ::= <|x|>", "special token" },
        { gbnf_rules, "root ::= root", "no text at all" },
        { gbnf_rules, "root ::= \"\xC3\"", "not UTF-8" },
        { lark_rules, "root: \"a\"", "the rule 'start' is missing" },
        { lark_rules, "start: A\nA: b\nb: \"x\"", "line 2, column 4: the rule 'b' stands in a terminal" },
        { lark_rules, "start: A\nA: \"x\" A", "contains itself" },
        { lark_rules, "start: B", "line 1, column 8: 'B' is not defined" },
        { lark_rules, "start: \"a\"\n%declare X", "line 2, column 1: %declare is not supported" },
        { lark_rules, "start: \"a\"\n%import python.NAME", "module common" },
        { quoted_rules, "start: %json {}", "%json is not supported" },
        { quoted_rules, "start: <|end|>", "is no special token" },
        { lark_rules, "start: \"a\"\n%import common.NOPE", "'NOPE' is no terminal" },
        { lark_rules, "start: t{\"a\"}\nt{x}: x", "templates" },
        { lark_rules, "start: A\nA.5: \"a\"", "priorities" },
        { lark_rules, "start[capture]: \"a\"", "attributes" },
        { lark_rules, "start: /a(?=b)/", "look-ahead" },
        { lark_rules, "start: /a/x", "the flag 'x'" },
        { lark_rules, "start: /a", "does not end" },
        { lark_rules, "start: %json {\"not\": {\"format\": \"x\"}}", "/not" },
        { lark_rules, "start: %json {\"a\"", "does not end" },
        { lark_rules, "start: %json {\"a\" 1}", "line 1, column " },
        { lark_rules, "start: \"a\" ]", "a rule, a terminal" },
    };
    for (size_t i = 0; i < ARRAY_N(rows); i++) {
        char            err[EBNF_ERR] = "";
        struct grammar *g = grammar_of(rows[i].rules, rows[i].text, err);
        if (g) fail_msg("%s is taken", rows[i].text);
        if (!strstr(err, rows[i].why)) fail_msg("%s: %s", rows[i].text, err);
    }
}

static void the_language_is_told_by_its_sign(void **state)
{
    (void)state;
    assert_true(gbnf_is("root ::= a", 10));
    assert_true(gbnf_is("# x\n\na  ::=\n b", 13));
    assert_false(gbnf_is("start: \"::=\"", 12));
    assert_false(gbnf_is("start: a // ::=\n", 16));
    assert_false(gbnf_is("", 0));
}

/* Counts up to 70, against the bounds; and one that is too large for rules in a row. */
static void counts_are_exact(void **state)
{
    (void)state;
    const uint32_t step = (uint32_t)test_size(1, 3);
    for (uint32_t min = 0; min < 20; min += step) {
        for (uint32_t max = min; max < 70; max += 1 + max / 8) {
            struct gr_rules *r = gr_rules_create(&gr_limits_default);
            struct grammar  *g = NULL;
            char             err[GR_ERR], text[80] = "";
            bool             many = max > 60;
            uint32_t         unit = gr_terminal(r, rx_of_byte(gr_rx(r), 'a'));
            gr_build(r, repeat_symbol(r, unit, min, many ? RX_MANY : max), &g, err);
            for (uint32_t n = 0; n < 70; n++, text[n - 1] = 'a', text[n] = 0) {
                bool want = n >= min && (many || n <= max);
                if ((g ? verdict(g, text) == 'y' : n == 0) != want) fail_msg("%u in %u to %u", n, min, max);
            }
            gr_free(g);
        }
    }
    struct gr_rules *r = gr_rules_create(&gr_limits_default);
    struct grammar  *g = NULL;
    char             err[GR_ERR];
    gr_build(r, repeat_symbol(r, gr_terminal(r, rx_of_byte(gr_rx(r), 'a')), 3, 900000), &g, err);
    struct gr_match *m = gr_match_create(g, no_vocab());
    for (uint32_t i = 0; i < 5000; i++) {
        assert_int_equal(gr_is_end(m), i >= 3);
        assert_int_equal(gr_accept_bytes(m, "a", 1), ST_OK);
    }
    gr_match_free(m);
    gr_free(g);
}

/* Groups in groups, rules behind rules, and alternatives without end: each ends with a grammar or a reason. */
static void texts_made_to_hurt_end(void **state)
{
    (void)state;
    struct buf b;
    char       err[EBNF_ERR] = "";
    buf_init(&b, 8 << 20);
    buf_puts(&b, "root ::= ");
    for (int i = 0; i < 100000; i++) buf_putc(&b, '(');
    buf_putc(&b, 0);
    assert_null(grammar_of(gbnf_rules, b.data, err));
    assert_non_null(strstr(err, "nested deeper"));
    buf_clear(&b);
    buf_puts(&b, "root ::= r0\n");
    for (int i = 0; i < 12000; i++) buf_printf(&b, "r%d ::= r%d\n", i, i + 1);
    buf_puts(&b, "r12000 ::= \"x\"\n");
    buf_putc(&b, 0);
    struct grammar *g = grammar_of(gbnf_rules, b.data, err);
    assert_true(g || *err);
    gr_free(g);
    buf_clear(&b);
    buf_puts(&b, "start: A0\n");
    for (int i = 0; i < 2000; i++) buf_printf(&b, "A%d: A%d A%d\n", i, i + 1, i + 1);
    buf_puts(&b, "A2000: \"x\"\n");
    buf_putc(&b, 0);
    *err = 0;
    assert_null(grammar_of(lark_rules, b.data, err));
    assert_true(*err);
    buf_clear(&b);
    buf_puts(&b, "root ::= \"a\"");
    for (int i = 0; i < 20000; i++) buf_printf(&b, " | \"a%d\"", i);
    buf_putc(&b, 0);
    g = grammar_of(gbnf_rules, b.data, err);
    if (g) assert_int_equal(verdict(g, "a19999"), 'y');
    gr_free(g);
    buf_clear(&b);
    for (int i = 0; i < 60000; i++) buf_puts(&b, "\"a\" ");
    buf_putc(&b, 0);
    *err = 0;
    assert_null(grammar_of(gbnf_rules, b.data, err));
    buf_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gbnf_is_read_as_llama_cpp_writes_it),
        cmocka_unit_test(gbnf_describes_json),
        cmocka_unit_test(lark_is_read_as_llguidance_reads_it),
        cmocka_unit_test(the_grammar_of_patches_is_read),
        cmocka_unit_test(a_grammar_of_text_in_a_json_string_is_spelled_as_there),
        cmocka_unit_test(errors_name_their_line_and_column),
        cmocka_unit_test(the_language_is_told_by_its_sign),
        cmocka_unit_test(counts_are_exact),
        cmocka_unit_test(texts_made_to_hurt_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
