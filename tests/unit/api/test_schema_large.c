/* Schemas with lists of tens of thousands of values: what is compiled can be followed to its end, too. */
#include "api/lang/form.h"
#include "api/schema/schema.h"
#include "grammar_world.h"

enum { N_VALUE = 50000, N_FEW = 12000 };

/* Of eight digits that begin in all ways; each once. */
static unsigned value(unsigned i) { return i * 1999u + i % 7; }

/* A schema in which @ stands for the list of the first n values, each as `spelling` writes it. */
static struct grammar *grammar_of(const char *schema, const char *spelling, unsigned n, char *err)
{
    struct buf         b;
    struct json_error  je;
    struct gr_rules   *r = gr_rules_create(&gr_limits_default);
    struct grammar    *g = NULL;
    struct schema_form form = { .compact = false };
    uint32_t           symbol;
    buf_init(&b, 64 << 20);
    for (const char *c = schema; *c; c++) {
        if (*c != '@') {
            buf_putc(&b, *c);
            continue;
        }
        for (unsigned i = 0; i < n; i++) {
            char one[80];
            snprintf(one, sizeof one, spelling, value(i));
            buf_printf(&b, "%s%s", i ? "," : "", one);
        }
    }
    json_t *parsed = json_parse(b.data, b.n, 0, &je);
    if (!parsed) fail_msg("%s: %s", schema, je.text);
    if (schema_rules(r, parsed, form, &symbol, err))
        gr_rules_free(r);
    else
        gr_build(r, symbol, &g, err);
    json_decref(parsed);
    buf_free(&b);
    return g;
}

struct row {
    const char *schema, *spelling, *before, *behind; /* around a value in the answer */
    bool        others;                              /* all values but those of the list are allowed */
};

/* Each @ is the list of all values. */
static void check(const struct row *row, unsigned n)
{
    char            err[SCHEMA_ERR] = "", text[200], one[80];
    struct grammar *g = grammar_of(row->schema, row->spelling, n, err);
    if (!g) fail_msg("%s: %s", row->schema, err);
    for (unsigned i = 0; i < n; i += 1237) {
        snprintf(one, sizeof one, row->spelling, value(i));
        snprintf(text, sizeof text, "%s%s%s", row->before, one, row->behind);
        if ((verdict(g, text) == 'y') == row->others) fail_msg("%s: %s", row->schema, text);
        snprintf(one, sizeof one, row->spelling, value(i) + 1);
        snprintf(text, sizeof text, "%s%s%s", row->before, one, row->behind);
        if ((verdict(g, text) == 'y') != row->others) fail_msg("%s: %s", row->schema, text);
    }
    gr_free(g);
}

static void a_list_of_fifty_thousand_values_is_followed(void **state)
{
    (void)state;
    static const struct row rows[] = {
        { "{\"properties\":{\"a\":{\"enum\":[@]}},\"required\":[\"a\"]}", "\"SKU-%08u\"", "{\"a\": ", "}", false },
        { "{\"enum\":[@]}", "{\"k\":[%u,true]}", "", "", false },
        { "{\"enum\":[@]}", "%u", "", "", false },
        { "{\"type\":\"array\",\"items\":{\"enum\":[@]}}", "\"a-long-beginning-\\\"%08u\\n\"", "[", "]", false },
    };
    for (size_t i = 0; i < ARRAY_N(rows); i++) check(&rows[i], i < 2 ? N_VALUE : N_FEW);
}

static void a_long_list_holds_beside_other_keywords(void **state)
{
    (void)state;
    static const struct row rows[] = {
        { "{\"enum\":[@],\"type\":\"string\",\"minLength\":3,\"pattern\":\"^S.*[0-9]$\"}", "\"SKU-%08u\"", "", "",
          false },
        { "{\"enum\":[@],\"type\":\"integer\",\"minimum\":0}", "%u", "", "", false },
        { "{\"type\":\"string\",\"maxLength\":12,\"not\":{\"enum\":[@]}}", "\"SKU-%08u\"", "", "", true },
        { "{\"type\":\"object\",\"propertyNames\":{\"enum\":[@]},\"minProperties\":1}", "\"%08u\"", "{", ": 1}",
          false },
    };
    for (size_t i = 0; i < ARRAY_N(rows); i++) check(&rows[i], N_FEW);
    char            err[SCHEMA_ERR] = "";
    struct grammar *g = grammar_of("{\"enum\":[@],\"maxLength\":11}", "\"SKU-%08u\"", N_FEW, err);
    assert_null(g);
    assert_non_null(strstr(err, "no text at all"));
}

/* To look each value up among all others would take their square. */
static void two_long_lists_have_their_values_in_common(void **state)
{
    (void)state;
    static const struct row rows[] = {
        { "{\"allOf\":[{\"enum\":[@]},{\"enum\":[@,{\"a\":[1]}]}]}", "\"%u\"", "", "", false },
        { "{\"oneOf\":[{\"enum\":[@]},{\"enum\":[\"x\",1.5]},{\"enum\":[2,{\"a\":1}]}]}", "[%u]", "", "", false },
    };
    for (size_t i = 0; i < ARRAY_N(rows); i++) check(&rows[i], N_FEW);
    char            err[SCHEMA_ERR] = "";
    struct grammar *g = grammar_of("{\"enum\":[@,\"left\"],\"not\":{\"enum\":[@]}}", "{\"k\":%u.0}", N_FEW, err);
    assert_non_null(g);
    assert_int_equal(verdict(g, "\"left\""), 'y');
    assert_int_equal(verdict(g, "{\"k\":0.0}"), 'n');
    gr_free(g);
    g = grammar_of("{\"allOf\":[{\"enum\":[@]},{\"enum\":[1999.0,2,{\"k\":1}]}]}", "%u", N_FEW, err);
    assert_null(g);
    g = grammar_of("{\"allOf\":[{\"enum\":[@]},{\"enum\":[2000.0,2]}]}", "%u", N_FEW, err);
    assert_int_equal(verdict(g, "2000"), 'y');
    assert_int_equal(verdict(g, "1999"), 'n');
    gr_free(g);
}

static void a_grammar_of_many_words_is_followed(void **state)
{
    (void)state;
    struct buf b;
    char       err[FORM_ERR] = "", text[40];
    buf_init(&b, 8 << 20);
    buf_puts(&b, "root ::= \"<\" w \">\"\nw ::= \"w\"");
    for (unsigned i = 0; i < N_FEW; i++) buf_printf(&b, "|\"%x\"", value(i));
    json_t         *source = json_stringn(b.data, b.n);
    struct form     form = { .kind = FORM_GRAMMAR, .value = source };
    struct grammar *g = NULL;
    enum status     st = form_compile(&form, NULL, &g, err);
    if (st) fail_msg("%s", err);
    for (unsigned i = 0; i < N_FEW; i += 3301) {
        snprintf(text, sizeof text, "<%x>", value(i));
        if (verdict(g, text) != 'y') fail_msg("%s", text);
        snprintf(text, sizeof text, "<%xg>", value(i));
        if (verdict(g, text) != 'n') fail_msg("%s", text);
    }
    gr_free(g);
    json_decref(source);
    buf_free(&b);
}

/* Each an alternative of its own, as generators of schemas write them. */
static void constants_are_one_list(void **state)
{
    (void)state;
    static const char typed[] = "{\"const\":\"SKU-%08u\",\"type\":\"string\"}",
                      bare[] = "{\"enum\":[%u],\"title\":\"x\"}";
    static const struct {
        const char *schema, *spelling, *yes, *no;
    } rows[] = { { "{\"anyOf\":[@,{\"type\":\"null\"}]}", typed, "\"SKU-00002000\"", "\"SKU-00001999\"" },
                 { "{\"anyOf\":[{\"type\":\"null\"},@,@]}", typed, "null", "2000" },
                 { "{\"oneOf\":[@,{\"type\":\"null\"}]}", typed, "\"SKU-00002000\"", "\"SKU-00001999\"" },
                 { "{\"oneOf\":[{\"const\":\"x\"},@]}", bare, "2000", "1999" },
                 { "{\"oneOf\":[@],\"minimum\":5,\"type\":\"integer\"}", bare, "2000", "0" },
                 { "{\"anyOf\":[@,{\"const\":7,\"type\":\"string\"}]}", bare, "2000", "7" } };
    for (size_t i = 0; i < ARRAY_N(rows); i++) {
        char            err[SCHEMA_ERR] = "";
        struct grammar *g = grammar_of(rows[i].schema, rows[i].spelling, N_FEW, err);
        if (!g) fail_msg("%s: %s", rows[i].schema, err);
        if (verdict(g, rows[i].yes) != 'y' || verdict(g, rows[i].no) == 'y') fail_msg("%s", rows[i].schema);
        gr_free(g);
    }
    char err[SCHEMA_ERR] = "";
    assert_null(grammar_of("{\"oneOf\":[@,{\"const\":2000}]}", bare, 100, err)); /* twice: no value is in just one */
    assert_non_null(strstr(err, "'/oneOf'"));
    assert_null(grammar_of("{\"oneOf\":[@,{\"minLength\":1},{\"format\":\"x\"}]}", bare, 100, err));
    assert_non_null(strstr(err, "'/oneOf': 0 and 100 are not told apart"));
}

/* More than a text could go through is refused when it is compiled, wherever it may come. */
static void too_many_alternatives_are_refused(void **state)
{
    (void)state;
    char            err[SCHEMA_ERR] = "";
    static char     one[] = "{\"properties\":{\"k%u\":{},\"v\":{}},\"required\":[\"v\"]}";
    struct grammar *g = grammar_of("{\"properties\":{\"a\":{\"anyOf\":[@]}}}", one, 100, err);
    assert_non_null(g);
    gr_free(g);
    assert_null(grammar_of("{\"properties\":{\"a\":{\"anyOf\":[@]}}}", one, 1500, err));
    assert_non_null(strstr(err, "more than 2000 alternatives meet"));
}

/* n members, in turns integers and booleans; each hundredth is needed if `needs`. */
static struct grammar *grammar_of_members(unsigned n, bool needs, const char *more)
{
    struct buf        b;
    struct json_error je;
    char              err[SCHEMA_ERR] = "";
    struct gr_rules  *r = gr_rules_create(&gr_limits_default);
    struct grammar   *g = NULL;
    uint32_t          symbol;
    buf_init(&b, 8 << 20);
    buf_puts(&b, "{\"properties\":{");
    for (unsigned i = 0; i < n; i++)
        buf_printf(&b, "%s\"k%u\\n\":{\"type\":\"%s\"}", i ? "," : "", value(i), i % 2 ? "boolean" : "integer");
    buf_puts(&b, "},\"required\":[");
    for (unsigned i = 0; needs && i < n; i += 100) buf_printf(&b, "%s\"k%u\\n\"", i ? "," : "", value(i));
    buf_printf(&b, "]%s}", more);
    json_t *parsed = json_parse(b.data, b.n, 0, &je);
    if (!parsed) fail_msg("%s", je.text);
    if (schema_rules(r, parsed, (struct schema_form){ .compact = false }, &symbol, err))
        gr_rules_free(r);
    else
        gr_build(r, symbol, &g, err);
    if (!g) fail_msg("%s: %s", more, err);
    json_decref(parsed);
    buf_free(&b);
    return g;
}

/* An object of the members in list[], up to -1; then `behind`. */
static char verdict_of(struct grammar *g, const int *list, const char *behind)
{
    char   text[4000];
    size_t n = (size_t)snprintf(text, sizeof text, "{");
    for (unsigned i = 0; list[i] >= 0; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%s\"k%u\\n\": %s", i ? ", " : "", value((unsigned)list[i]),
                              list[i] % 2 ? "true" : "-7");
    snprintf(text + n, sizeof text - n, "%s}", behind);
    return verdict(g, text);
}

static void ten_thousand_optional_members_are_followed(void **state)
{
    (void)state;
    enum { N = 10000 };
    struct grammar *g = grammar_of_members(N, false, "");
    assert_int_equal(verdict(g, "{}"), 'y');
    for (int i = 0; i < N; i += 613) {
        assert_int_equal(verdict_of(g, (int[]){ i, -1 }, ""), 'y');
        assert_int_equal(verdict_of(g, (int[]){ i / 2, i / 2 + 1, N - 1 - i / 3, -1 }, ""), 'y');
        assert_int_not_equal(verdict_of(g, (int[]){ i + 1, i, -1 }, ""), 'y'); /* not in their order */
        assert_int_not_equal(verdict_of(g, (int[]){ i, i, -1 }, ""), 'y');
        assert_int_not_equal(verdict_of(g, (int[]){ i, -1 }, ", \"other\": 1"), 'y');
    }
    assert_int_not_equal(verdict(g, "{\"k0\\n\": true}"), 'y');
    assert_int_not_equal(verdict(g, "{\"k0\": 1}"), 'y');
    assert_in_range(gr_bytes(g), 1 << 20, 40 << 20);
    gr_free(g);
}

static void many_members_hold_beside_other_keywords(void **state)
{
    (void)state;
    enum { N = 400 };
    static const int all[] = { 0, 100, 101, 200, 300, 301, -1 }, less[] = { 0, 100, 200, 201, -1 };
    static const struct {
        const char *more, *yes, *no;
        bool        needs;
    } rows[] = {
        { ",\"additionalProperties\":{\"type\":\"null\"}", ", \"z\": null, \"y\": null", ", \"z\": 1", true },
        { ",\"additionalProperties\":true,\"minProperties\":1", ", \"z\": [1]", ", \"k0\\n\": 1", true },
        { ",\"additionalProperties\":false,\"patternProperties\":{\"^x-\":{\"type\":\"null\"}}", ", \"x-a\": null",
          ", \"y\": null", true },
        { ",\"patternProperties\":{\"^k[0-9]+\\n$\":{\"not\":{\"const\":-7}}}", NULL, "", false },
        { ",\"propertyNames\":{\"maxLength\":2}", NULL, "", false },
    };
    for (size_t i = 0; i < ARRAY_N(rows); i++) {
        struct grammar *g = grammar_of_members(N, rows[i].needs, rows[i].more);
        if (rows[i].yes) {
            assert_int_equal(verdict_of(g, all, ""), 'y');
            assert_int_equal(verdict_of(g, all, rows[i].yes), 'y');
            assert_int_not_equal(verdict_of(g, less, rows[i].yes), 'y'); /* one is missing */
            assert_int_not_equal(verdict_of(g, (int[]){ -1 }, ""), 'y');
        }
        if (verdict_of(g, all, rows[i].no) == 'y') fail_msg("%s", rows[i].more);
        assert_int_equal(verdict(g, "{}"), rows[i].needs ? 'n' : 'y');
        gr_free(g);
    }
}

/* Counts of more members than a place of a grammar may have alternatives. */
static void many_members_are_counted(void **state)
{
    (void)state;
    enum { N = 2500 };
    static const struct {
        unsigned    min, max;
        const char *others;
        bool        needs; /* 25 of them */
    } rows[] = {
        { 0, 3, "", false },
        { 4, 6, "", false },
        { 3, 400, ",\"additionalProperties\":true", false },
        { 30, 2046, "", true },
        { 0, 1, ",\"additionalProperties\":{}", false },
        { 26, 27, "", true },
    };
    for (size_t i = 0; i < ARRAY_N(rows); i++) {
        char more[120];
        snprintf(more, sizeof more, "%s,\"minProperties\":%u,\"maxProperties\":%u", rows[i].others, rows[i].min,
                 rows[i].max);
        struct grammar *g = grammar_of_members(N, rows[i].needs, more);
        for (unsigned n = 0; n < 60; n++) { /* the first, the last, or needed ones and what is beside them */
            for (unsigned from = 0; from < 2; from++) {
                int list[61];
                for (unsigned k = 0; k < n; k++) list[k] = (int)(from ? N - n + k : k);
                for (unsigned k = 0; k < n && rows[i].needs; k++)
                    list[k] = (int)(k < 50 ? k / 2 * 100 + k % 2 : 2400 + k);
                list[n] = -1;
                bool enough = n >= rows[i].min && n <= rows[i].max && (!rows[i].needs || n > 48);
                char is = verdict_of(g, list, "");
                if ((is == 'y') != enough) fail_msg("%s: %u from %u: %c", more, n, from, is);
                if (!n || rows[i].needs) continue;
                enough = *rows[i].others && n + 1 >= rows[i].min && n + 2 <= rows[i].max;
                is = verdict_of(g, list, ", \"y\": 1, \"z\": 2"); /* which may be one twice */
                if ((is == 'y') != enough) fail_msg("%s: %u from %u, and others: %c", more, n, from, is);
            }
        }
        gr_free(g);
    }
}

/* Where too few members are left behind a name for what minProperties asks for, it does not come; nor do names whose values
 * there cannot be. */
static void no_member_leads_to_where_too_few_are_left(void **state)
{
    (void)state;
    enum { N = 300 };
    static const char never[] = "{\"type\":\"string\",\"pattern\":\"^a$\",\"maxLength\":0}";
    struct buf        b;
    buf_init(&b, 1 << 20);
    for (unsigned live = 3; live < 6; live++) { /* members 90, 91 .. have values */
        struct json_error je;
        char              err[SCHEMA_ERR] = "";
        struct gr_rules  *r = gr_rules_create(&gr_limits_default);
        struct grammar   *g = NULL;
        uint32_t          symbol;
        b.n = 0;
        buf_puts(&b, "{\"minProperties\":4,\"properties\":{");
        for (unsigned i = 0; i < N; i++)
            buf_printf(&b, "%s\"k%02u\":%s", i ? "," : "", i, i >= 90 && i < 90 + live ? "{\"const\":1}" : never);
        buf_puts(&b, "}}");
        json_t *parsed = json_parse(b.data, b.n, 0, &je);
        assert_int_equal(schema_rules(r, parsed, (struct schema_form){ .compact = true }, &symbol, err), ST_OK);
        assert_int_equal(gr_build(r, symbol, &g, err), live < 4 ? ST_INVALID : ST_OK);
        json_decref(parsed);
        if (!g) continue;
        assert_int_equal(verdict(g, "{\"k90\":1,\"k91\":1,\"k92\":1,\"k93\":1}"), 'y');
        assert_int_equal(verdict(g, "{\"k91"), live == 4 ? 'n' : 'p');
        assert_int_equal(verdict(g, "{\"k92"), 'n');
        assert_int_equal(verdict(g, "{\"k90\":1,\"k92"), live == 4 ? 'n' : 'p');
        assert_int_equal(verdict(g, "{\"k0"), 'n');
        gr_free(g);
    }
    buf_free(&b);
}

/* What was written of an object is not kept: one of many members takes no more of a matcher than a short one. */
static void an_object_may_be_as_long_as_it_likes(void **state)
{
    (void)state;
    struct grammar  *g = grammar_of_members(3000, true, "");
    struct gr_match *m = gr_match_create(g, no_vocab());
    char             text[60];
    for (unsigned i = 0; i < 3000; i++) {
        int n = snprintf(text, sizeof text, "%s\"k%u\\n\": %s", i ? ", " : "{", value(i), i % 2 ? "false" : "100");
        assert_int_equal(gr_accept_bytes(m, text, (size_t)n), ST_OK);
    }
    assert_int_equal(gr_accept_bytes(m, "}", 1), ST_OK);
    assert_true(gr_is_end(m));
    gr_match_free(m);
    gr_free(g);
}

/* More members than a schema may have: to look each up among all others would take their square. */
static void too_many_members_are_refused(void **state)
{
    (void)state;
    char err[SCHEMA_ERR] = "";
    assert_null(grammar_of("{\"properties\":{@}}", "\"SKU-%08u\":{}", N_VALUE, err));
    assert_non_null(strstr(err, "'/properties': more members"));
    assert_null(grammar_of("{\"required\":[@]}", "\"SKU-%08u\"", N_VALUE, err));
    assert_non_null(strstr(err, "'/required': more members"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ten_thousand_optional_members_are_followed),
        cmocka_unit_test(many_members_hold_beside_other_keywords),
        cmocka_unit_test(many_members_are_counted),
        cmocka_unit_test(no_member_leads_to_where_too_few_are_left),
        cmocka_unit_test(an_object_may_be_as_long_as_it_likes),
        cmocka_unit_test(a_list_of_fifty_thousand_values_is_followed),
        cmocka_unit_test(a_long_list_holds_beside_other_keywords),
        cmocka_unit_test(two_long_lists_have_their_values_in_common),
        cmocka_unit_test(constants_are_one_list),
        cmocka_unit_test(too_many_alternatives_are_refused),
        cmocka_unit_test(too_many_members_are_refused),
        cmocka_unit_test(a_grammar_of_many_words_is_followed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
