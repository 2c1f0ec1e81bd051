/* Schemas, and texts that they allow and forbid. Over 500 lines: nothing but tables of these, by keyword. */
#include "api/schema/regex.h"
#include "api/schema/schema.h"
#include "base/json_scan.h"
#include "grammar_world.h"

static const char *space;            /* the pattern of white space; NULL: none is given */
static char       *names_of_ignored; /* as struct schema_form.ignored */
static bool        open_form;        /* as struct schema_form.open */

static struct grammar *grammar_of(const char *text, char *err)
{
    struct json_error  je;
    struct gr_rules   *r = gr_rules_create(&gr_limits_default);
    struct grammar    *g = NULL;
    struct schema_form form = { .compact = false, .space = space, .open = open_form };
    uint32_t           symbol;
    json_t            *schema = json_parse(text, strlen(text), 0, &je);
    if (!schema) fail_msg("%s: %s", text, je.text);
    json_t *big = json_big_numbers(text, strlen(text));
    form.big = big;
    form.ignored = names_of_ignored;
    if (schema_rules(r, schema, form, &symbol, err))
        gr_rules_free(r);
    else
        gr_build(r, symbol, &g, err);
    json_decref(big);
    json_decref(schema);
    return g;
}

struct row {
    const char *schema, *yes[8], *no[8];
};

static void check(const struct row *row, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char            err[SCHEMA_ERR] = "";
        struct grammar *g = grammar_of(row[i].schema, err);
        if (!g) fail_msg("%s: %s", row[i].schema, err);
        for (int k = 0; k < 8 && row[i].yes[k]; k++)
            if (verdict(g, row[i].yes[k]) != 'y') fail_msg("%s refuses %s", row[i].schema, row[i].yes[k]);
        for (int k = 0; k < 8 && row[i].no[k]; k++)
            if (verdict(g, row[i].no[k]) == 'y') fail_msg("%s takes %s", row[i].schema, row[i].no[k]);
        gr_free(g);
    }
}

#define N20 "12345678901234567891"

/* Whole numbers beyond 64 bits are floats in a tree of JSON; an answer has the digits that the schema has. */
static void a_large_number_is_spelled_as_the_schema_spells_it(void **state)
{
    (void)state;
    static const struct row rows[] = {
        { "{\"const\":" N20 "}",
          { N20 },
          { "12345678901234567000", "12345678901234567890", "1.2345678901234567e19", "12345678901234567168" } },
        { "{\"enum\":[-98765432109876543210987654321,1,18446744073709551616]}",
          { "-98765432109876543210987654321", "1", "18446744073709551616" },
          { "-9.876543210987654e28", "18446744073709552000", "18446744073709551615" } },
        { "{\"const\":{\"a\":[" N20 "]}}", { "{\"a\":[" N20 "]}" }, { "{\"a\":[12345678901234567000]}" } },
        { "{\"enum\":[" N20 "],\"const\":" N20 "}", { N20 }, { "12345678901234567000" } },
        { "{\"type\":\"array\",\"items\":{\"const\":" N20 "},\"minItems\":1}", { "[" N20 "," N20 "]" }, { "[1]" } },
        { "{\"enum\":[1e19,0.5,9223372036854775807]}", { "1e19", "0.5", "9223372036854775807" }, { "1e18" } },
    };
    check(rows, sizeof rows / sizeof *rows);
}

/* Two numbers that are the same float are one value of a tree. */
static void large_numbers_that_cannot_be_told_apart_are_refused(void **state)
{
    (void)state;
    static const char two[] = "{\"properties\":{\"a\":{\"enum\":[" N20 ",12345678901234567892]}}}";
    char              err[SCHEMA_ERR] = "", names[SCHEMA_IGNORED] = "";
    assert_null(grammar_of(two, err));
    if (!strstr(err, "/properties/a/enum") || !strstr(err, "64 bits")) fail_msg("%s", err);
    names_of_ignored = names;
    struct grammar *g = grammar_of(two, err);
    names_of_ignored = NULL;
    assert_non_null(g);
    assert_string_equal(names, "enum");
    gr_free(g);
    static const char bounds[] =
        "{\"type\":\"integer\",\"minimum\":0,\"maximum\":" N20 ",\"not\":{\"const\":12345678901234567892}}";
    assert_null(grammar_of(bounds, err));
    if (!strstr(err, "'/maximum'") || !strstr(err, "64 bits")) fail_msg("%s", err);
    names[0] = 0;
    names_of_ignored = names;
    g = grammar_of(bounds, err);
    names_of_ignored = NULL;
    assert_string_equal(names, "maximum,not");
    assert_int_equal(verdict(g, "-1"), 'n');
    gr_free(g);
}

static void white_space_is_what_its_pattern_says(void **state)
{
    (void)state;
    static const char schema[] = "{\"properties\":{\"a\":{\"const\":[1,{\"b\":2}]},\"c\":{}},\"required\":[\"a\"]}";
    static const struct row usual[] = { { schema,
                                          { "{\"a\":[1,{\"b\":2}]}", "{ \"a\": [1, {\"b\":2}]}" },
                                          { "{  \"a\":[1,{\"b\":2}]}", "{\"a\":\t[1,{\"b\":2}]}" } } };
    static const struct row wide[] = { { schema,
                                         { "{\"a\":[1,{\"b\":2}]}", "{  \"a\":   [1,    {\"b\":2}]}" },
                                         { "{\"a\":\n[1,{\"b\":2}]}", " {\"a\":[1,{\"b\":2}]}" } } };
    static const struct row one[] = {
        { schema, { "{\t\"a\"\t:\t[\t1\t,\t{\t\"b\"\t:\t2\t}\t]\t}" }, { "{\"a\":[1,{\"b\":2}]}" } }
    };
    check(usual, 1);
    space = " *";
    check(wide, 1);
    space = "\t";
    check(one, 1);
    space = NULL;
}

/* What a schema does not say: types that no keyword is about, and members beside those that it names. */
static void what_a_schema_does_not_say_is_allowed_in_an_open_form(void **state)
{
    (void)state;
    static const struct row rows[] = {
        { "{\"properties\":{\"a\":{\"minimum\":2}}}",
          { "{\"a\":2}", "{\"a\":\"b\",\"c\":[1]}", "{\"c\":1}", "7", "\"a\"", "[{\"a\":1}]", "null" },
          { "{\"a\":1}", "{\"a\":1,\"c\":2}", "{\"a\":2", "{\"c\":1,\"a\":2}" } },
        { "{\"type\":\"object\",\"properties\":{\"a\":{\"maxLength\":1}},\"required\":[\"a\"]}",
          { "{\"a\":\"b\"}", "{\"a\":17}", "{\"a\":{\"a\":\"bc\"},\"b\":true}" },
          { "{\"b\":1}", "{\"a\":\"bc\"}", "17", "null" } },
        { "{\"properties\":{\"a\":{}},\"additionalProperties\":false}",
          { "{\"a\":1}", "{}", "1", "[]" },
          { "{\"b\":1}", "{\"a\":1,\"b\":1}" } },
        { "{\"allOf\":[{\"items\":{\"type\":\"null\"}},{\"pattern\":\"^a\"}]}",
          { "[null]", "[]", "\"ab\"", "{\"b\":1}", "true", "-1.5" },
          { "[1]", "\"b\"" } },
        { "{\"minLength\":2,\"enum\":[\"a\",\"ab\",1]}", { "\"ab\"", "1" }, { "\"a\"", "2" } },
        { "{\"if\":{\"required\":[\"a\"]},\"then\":{\"maxProperties\":1}}",
          { "{\"a\":1}", "{\"b\":1,\"c\":2}", "5", "[5]" },
          { "{\"a\":1,\"b\":2}" } },
    };
    open_form = true;
    check(rows, sizeof rows / sizeof *rows);
    open_form = false;
    for (size_t i = 0; i < 2; i++) { /* and else it is closed */
        char            err[SCHEMA_ERR] = "";
        struct grammar *g = grammar_of(rows[i].schema, err);
        if (verdict(g, rows[i].yes[1]) == 'y') fail_msg("%s takes %s", rows[i].schema, rows[i].yes[1]);
        gr_free(g);
    }
}

static void scalars_are_what_their_keywords_say(void **state)
{
    (void)state;
    static const struct row rows[] = {
        { "{\"type\":\"string\"}",
          { "\"\"", "\"a\\n\xc3\xa9\\\"\"" },
          { "a", "\"", "\"\n\"", "\"\\x\"", "1", "\"\\u00e9\"" } },
        { "{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}",
          { "\"ab\"", "\"\xc3\xa9\xf0\x9f\x98\x80z\"", "\"\\n\\\"\"" },
          { "\"a\"", "\"abcd\"" } },
        { "{\"type\":\"string\",\"pattern\":\"^[a-z]+$\",\"maxLength\":2}",
          { "\"ab\"" },
          { "\"\"", "\"abc\"", "\"A\"" } },
        { "{\"type\":\"string\",\"pattern\":\"x\"}", { "\"x\"", "\"axb\"" }, { "\"ab\"" } },
        { "{\"type\":\"integer\"}", { "0", "-1", "123" }, { "-0", "01", "1.0", "1e2", "" } },
        { "{\"type\":\"integer\",\"minimum\":-3,\"maximum\":120}",
          { "-3", "0", "9", "10", "99", "100", "119", "120" },
          { "-4", "121", "-10", "200", "1000" } },
        { "{\"type\":\"integer\",\"exclusiveMinimum\":7,\"exclusiveMaximum\":10}", { "8", "9" }, { "7", "10", "89" } },
        { "{\"type\":\"integer\",\"minimum\":995}", { "995", "1000", "123456789" }, { "994", "0", "-1" } },
        { "{\"type\":\"integer\",\"maximum\":-5}", { "-5", "-17" }, { "-4", "0", "5" } },
        { "{\"type\":\"integer\",\"minimum\":0,\"maximum\":18446744073709551615}",
          { "0", "7", "18446744073709551615" },
          { "-1", "18446744073709551616", "18446744073709552000", "28446744073709551615" } },
        { "{\"type\":\"integer\",\"minimum\":9223372036854775809,\"maximum\":10000000000000000001}",
          { "9223372036854775809", "9223372036854779000", "10000000000000000001" },
          { "9223372036854775807", "9223372036854775808", "10000000000000000002" } },
        { "{\"type\":\"integer\",\"exclusiveMinimum\":-18446744073709551616,\"maximum\":1e19}",
          { "-18446744073709551615", "0", "10000000000000000000" },
          { "-18446744073709551616", "-18446744073709552000", "10000000000000000001" } },
        { "{\"type\":\"number\",\"exclusiveMaximum\":98765432109876543210987654321,\"minimum\":0}",
          { "98765432109876543210987654320", "0.25" },
          { "98765432109876543210987654321", "98765432109876543210987654321.0", "98765432109876543210987654322" } },
        { "{\"type\":\"integer\",\"minimum\":" N20 ",\"not\":{\"const\":12345678901234600001}}",
          { N20, "12345678901234567900" },
          { "12345678901234567890", "12345678901234600001" } },
        { "{\"type\":\"integer\",\"minimum\":0,\"not\":{\"minimum\":" N20 "}}", { "12345678901234567890" }, { N20 } },
        { "{\"type\":\"integer\",\"minimum\":1.5,\"maximum\":2.5}", { "2" }, { "1", "3" } },
        { "{\"type\":\"number\"}", { "0", "-0.5", "1e9", "12.25E-3" }, { ".5", "1.", "+1", "1e", "00" } },
        { "{\"type\":\"number\",\"minimum\":0}", { "0", "0.5", "12", "0.0" }, { "-1", "-0.5" } },
        { "{\"type\":\"number\",\"exclusiveMinimum\":0}", { "0.5", "0.001", "3" }, { "0", "0.0", "0.000", "-1" } },
        { "{\"type\":\"number\",\"minimum\":-1,\"maximum\":1}",
          { "-1", "-1.0", "-0.99", "0", "0.5", "1", "1.00" },
          { "1.01", "-1.5", "2", "-2" } },
        { "{\"type\":\"number\",\"minimum\":5,\"exclusiveMaximum\":6}", { "5", "5.999" }, { "6", "6.0", "4.9" } },
        { "{\"type\":\"number\",\"minimum\":5,\"maximum\":5}", { "5", "5.0" }, { "5.1", "4" } },
        { "{\"type\":\"number\",\"maximum\":-2}", { "-2", "-2.5", "-10" }, { "-1.9", "0", "2" } },
        { "{\"type\":\"boolean\"}", { "true", "false" }, { "null", "True", "0" } },
        { "{\"type\":\"null\"}", { "null" }, { "0" } },
        { "{\"type\":[\"string\",\"null\"]}", { "\"a\"", "null" }, { "1" } },
        { "{\"enum\":[\"a\",1,null,[1,2],{\"k\":\"v\"},1.5]}",
          { "\"a\"", "1", "null", "[1,2]", "[ 1, 2 ]", "{\"k\": \"v\"}", "1.5" },
          { "\"b\"", "2", "[1]" } },
        { "{\"enum\":[\"a\",1,2],\"type\":\"integer\"}", { "1", "2" }, { "\"a\"" } },
        { "{\"const\":\"a\\\"b\"}", { "\"a\\\"b\"" }, { "\"ab\"" } },
        { "true", { "1", "{}", "[]", "{\"a\":[{}]}" }, { "", "{a}" } },
    };
    check(rows, ARRAY_N(rows));
}

#define LONG_LABEL "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijk" /* 63 characters */

static void formats_are_enforced(void **state)
{
    (void)state;
    static const struct row rows[] = {
        { "{\"type\":\"string\",\"format\":\"date\"}",
          { "\"2024-02-29\"", "\"2000-02-29\"", "\"1999-12-31\"", "\"2023-04-30\"" },
          { "\"2023-02-29\"", "\"1900-02-29\"", "\"2023-04-31\"", "\"2023-13-01\"", "\"2023-1-1\"" } },
        { "{\"type\":\"string\",\"format\":\"date-time\"}",
          { "\"2024-01-02T03:04:05Z\"", "\"2024-01-02T03:04:05.123+01:00\"" },
          { "\"2024-01-02 03:04:05Z\"", "\"2024-01-02T24:04:05Z\"", "\"2024-01-02T03:04:05\"" } },
        { "{\"type\":\"string\",\"format\":\"uuid\"}",
          { "\"123e4567-e89b-12d3-a456-426614174000\"" },
          { "\"123e4567e89b12d3a456426614174000\"" } },
        { "{\"type\":\"string\",\"format\":\"ipv4\"}",
          { "\"192.168.0.255\"" },
          { "\"256.1.1.1\"", "\"1.1.1\"", "\"01.1.1.1\"" } },
        { "{\"type\":\"string\",\"format\":\"email\"}",
          { "\"a.b@example.com\"", "\"a@b\"", "\"~x!{}@c--n.co-uk\"", "\"\\\"a..\\\\ b@c\\\"@x.de\"",
            "\"a@[127.0.0.1]\"", "\"a@[IPv6:::1]\"" },
          { "\"@x.de\"", "\"a..b@x.de\"", "\".a@x.de\"", "\"a@-x.de\"", "\"a@x.de.\"", "\"a b@x.de\"",
            "\"a@[1.2.3]\"" } },
        { "{\"type\":\"string\",\"format\":\"hostname\"}",
          { "\"123.example.com\"", "\"1.2.3\"", "\"xn--4gbwdl.xn--wgbh1c\"", "\"a.b-c-d-e.c.d.e.f.g\"",
            "\"" LONG_LABEL "." LONG_LABEL ".com\"" },
          { "\"-a\"", "\"a-\"", "\"a..b\"", "\"a_b\"", "\"a.\"", "\"\"", "\"" LONG_LABEL "l.com\"",
            "\"" LONG_LABEL "." LONG_LABEL "." LONG_LABEL "." LONG_LABEL "\"" } },
        { "{\"type\":\"string\",\"format\":\"ipv6\"}",
          { "\"::ffff:192.168.0.1\"", "\"1:2::192.168.0.1\"", "\"1:2:3:4:5:6:1.2.3.4\"", "\"1:2:3:4:5::1.2.3.4\"" },
          { "\"1:2:3:4:5:6::1.2.3.4\"", "\"1::2:3:4:5:6:1.2.3.4\"", "\"::1.2.3\"", "\"1.2.3.4\"" } },
        { "{\"type\":\"string\",\"format\":\"uri\"}",
          { "\"http://-.~_!$&'()*+,;=:%40:80%2f::::::@example.com\"", "\"ldap://[2001:db8::7]/c=GB?objectClass?one\"",
            "\"mailto:a@b.c\"", "\"urn:a:b\"", "\"file:///etc\"" },
          { "\"//foo.bar\"", "\"/abc\"", "\"abc\"", "\"1a:b\"", "\"bar,baz:foo\"", "\"http://[@x.org/t\"",
            "\"http://x/%zz\"" } },
        { "{\"type\":\"string\",\"format\":\"duration\"}",
          { "\"P1D\"", "\"PT1H30M\"", "\"P1Y2M\"", "\"P3W\"" },
          { "\"P\"", "\"1D\"", "\"PT\"", "\"P1Y2D\"", "\"PT1H2S\"" } },
        { "{\"type\":\"string\",\"format\":\"unheard-of\"}", { "\"anything\"" }, { "1" } },
    };
    check(rows, ARRAY_N(rows));
}

static void arrays_and_objects_have_their_parts(void **state)
{
    (void)state;
    static const struct row rows[] = {
        { "{\"type\":\"array\",\"items\":{\"type\":\"integer\"}}",
          { "[]", "[1]", "[1, 2,3]", "[\n  1\n]" },
          { "[1,]", "[\"a\"]", "[1 2]", "[" } },
        { "{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":2,\"maxItems\":3}",
          { "[1,2]", "[1,2,3]" },
          { "[]", "[1]", "[1,2,3,4]" } },
        { "{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":2}",
          { "[1,2]", "[1,2,3,4,5]" },
          { "[]", "[1]" } },
        { "{\"type\":\"array\",\"maxItems\":0}", { "[]", "[ ]" }, { "[1]" } },
        { "{\"type\":\"array\",\"prefixItems\":[{\"type\":\"integer\"},{\"type\":\"string\"}],\"items\":false}",
          { "[]", "[1]", "[1,\"a\"]" },
          { "[\"a\"]", "[1,\"a\",2]" } },
        { "{\"type\":\"array\",\"prefixItems\":[{\"type\":\"integer\"}],\"items\":{\"type\":\"null\"},\"minItems\":2,\"maxItems\":3}",
          { "[1,null]", "[1,null,null]" },
          { "[1]", "[1,1]", "[1,null,null,null]" } },
        { "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":\"null\"},\"c\":{}},\"required\":[\"b\"]}",
          { "{\"b\":null}", "{\"a\": 1, \"b\":null}", "{\"b\":null,\"c\":[{}]}", "{ \"a\":1,\"b\":null,\"c\":0 }" },
          { "{}", "{\"a\":1}", "{\"b\":null,\"a\":1}", "{\"b\":null,\"d\":1}", "{\"b\":null,}" } },
        { "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}}}",
          { "{}", "{ }", "{\"a\":1}" },
          { "{\"b\":1}", "{\"a\":1,\"a\":2}" } },
        { "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},\"additionalProperties\":{\"type\":\"string\"}}",
          { "{}", "{\"a\":1}", "{\"b\":\"x\"}", "{\"a\":1,\"b\":\"x\",\"c\":\"y\"}", "{\"aa\":\"x\"}" },
          { "{\"a\":\"x\"}", "{\"b\":1}", "{\"b\":\"x\",\"a\":1}" } },
        { "{\"type\":\"object\",\"additionalProperties\":false}", { "{}" }, { "{\"a\":1}" } },
        { "{\"type\":\"object\"}", { "{}", "{\"a\":{\"b\":[]},\"c\":1}" }, { "[]", "{a:1}" } },
        { "{\"type\":\"object\",\"required\":[\"z\"]}", { "{\"z\":1}", "{\"z\":1,\"y\":2}" }, { "{}", "{\"y\":2}" } },
        { "{\"type\":\"object\",\"properties\":{\"q\\\"\\n\":{\"type\":\"null\"}},\"required\":[\"q\\\"\\n\"]}",
          { "{\"q\\\"\\n\":null}" },
          { "{\"q\":null}" } },
    };
    check(rows, ARRAY_N(rows));
}

static void schemas_refer_to_each_other(void **state)
{
    (void)state;
    static const struct row rows[] = {
        { "{\"$defs\":{\"n\":{\"type\":\"object\",\"properties\":{\"v\":{\"type\":\"integer\"},\"next\":{\"anyOf\":[{\"$ref\":\"#/$defs/n\"},{\"type\":\"null\"}]}},"
          "\"required\":[\"v\",\"next\"]}},\"$ref\":\"#/$defs/n\"}",
          { "{\"v\":1,\"next\":null}", "{\"v\":1,\"next\":{\"v\":2,\"next\":{\"v\":3,\"next\":null}}}" },
          { "{\"v\":1}", "{\"v\":1,\"next\":{\"v\":2}}", "null" } },
        { "{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}}", { "[]", "[[],[[]]]" }, { "[1]" } },
        { "{\"definitions\":{\"a/b\":{\"const\":1}},\"$ref\":\"#/definitions/a~1b\"}", { "1" }, { "2" } },
        { "{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"string\",\"maxLength\":1}]}",
          { "1", "\"a\"" },
          { "\"ab\"", "null" } },
        { "{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"string\"}]}", { "1", "\"a\"" }, { "null" } },
        { "{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"k\":{\"const\":\"a\"},\"x\":{\"type\":\"null\"}},\"required\":[\"k\",\"x\"]},"
          "{\"type\":\"object\",\"properties\":{\"k\":{\"const\":\"b\"}},\"required\":[\"k\"]}]}",
          { "{\"k\":\"a\",\"x\":null}", "{\"k\":\"b\"}" },
          { "{\"k\":\"a\"}", "{\"k\":\"b\",\"x\":null}" } },
        { "{\"allOf\":[{\"type\":\"integer\"}],\"description\":\"one\"}", { "1" }, { "\"a\"" } },
    };
    check(rows, ARRAY_N(rows));
}

static void keywords_hold_together(void **state)
{
    (void)state;
    static const struct row rows[] = {
        { "{\"allOf\":[{\"type\":[\"integer\",\"string\"],\"minimum\":3},{\"type\":\"integer\",\"maximum\":5}],\"multipleOf\":2}",
          { "4" },
          { "3", "5", "6", "\"a\"" } },
        { "{\"$defs\":{\"a\":{\"type\":\"object\",\"properties\":{\"x\":{\"type\":\"integer\"}}}},\"$ref\":\"#/$defs/a\",\"required\":[\"x\"],"
          "\"properties\":{\"x\":{\"minimum\":2}}}",
          { "{\"x\":2}" },
          { "{}", "{\"x\":1}", "{\"x\":\"a\"}" } },
        { "{\"enum\":[1,\"a\",5,\"abc\",null],\"not\":{\"const\":5},\"maxLength\":2}",
          { "1", "\"a\"", "null" },
          { "5", "\"abc\"" } },
        { "{\"enum\":[\"a\",\"b\",1],\"not\":{\"type\":\"string\",\"pattern\":\"^a\"}}",
          { "1", "\"b\"" },
          { "\"a\"" } },
        { "{\"if\":{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"type\":\"string\"}}}",
          { "[1,1]", "1" },
          { "x" } },
        { "{\"enum\":[\"a\",\"b\",1],\"if\":{\"type\":\"string\"},\"then\":{\"not\":{\"pattern\":\"^a\"}}}",
          { "1", "\"b\"" },
          { "\"a\"" } },
        { "{\"type\":[\"array\",\"null\"],\"maxItems\":0,\"contains\":{\"type\":\"integer\"}}",
          { "null" },
          { "[]", "[1]" } },
        { "{\"type\":[\"array\",\"null\"],\"maxItems\":0,\"contains\":{\"type\":\"integer\"},\"minContains\":0}",
          { "null", "[]" },
          { "[1]" } },
        { "{\"type\":\"object\",\"properties\":{\"k\":{\"enum\":[\"a\",\"b\"]},\"x\":{\"type\":\"integer\"}},\"required\":[\"k\"],"
          "\"if\":{\"properties\":{\"k\":{\"const\":\"a\"}}},\"then\":{\"required\":[\"x\"]},\"else\":{\"properties\":{\"x\":false}}}",
          { "{\"k\":\"a\",\"x\":1}", "{\"k\":\"b\"}" },
          { "{\"k\":\"a\"}", "{\"k\":\"b\",\"x\":1}" } },
        { "{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{}},\"dependentRequired\":{\"a\":[\"b\"]}}",
          { "{}", "{\"b\":1}", "{\"a\":1,\"b\":1}" },
          { "{\"a\":1}" } },
        { "{\"type\":\"object\",\"patternProperties\":{\"^n\":{\"type\":\"integer\"},\"x$\":{\"maximum\":9}},\"additionalProperties\":false}",
          { "{}", "{\"n\":10}", "{\"nx\":9}" },
          { "{\"nx\":10}", "{\"a\":1}", "{\"n\":\"a\"}" } },
        { "{\"type\":\"object\",\"propertyNames\":{\"pattern\":\"^[a-c]$\"},\"minProperties\":1,\"maxProperties\":2}",
          { "{\"a\":1}", "{\"b\":1,\"c\":2}" },
          { "{}", "{\"d\":1}", "{\"a\":1,\"b\":1,\"c\":1}" } },
        { "{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{},\"c\":{}},\"minProperties\":2,\"additionalProperties\":false}",
          { "{\"a\":1,\"c\":1}", "{\"a\":1,\"b\":1,\"c\":1}" },
          { "{\"a\":1}", "{}" } },
        { "{\"type\":\"array\",\"items\":{\"enum\":[1,\"a\",null]},\"uniqueItems\":true,\"minItems\":1,\"maxItems\":2}",
          { "[1]", "[\"a\",1]", "[null, \"a\"]" },
          { "[]", "[1,1]", "[1,\"a\",null]" } },
        { "{\"type\":\"array\",\"contains\":{\"type\":\"integer\"},\"maxItems\":3,\"items\":{\"type\":[\"integer\",\"null\"]}}",
          { "[1]", "[null,1]", "[1,null,2]", "[null,null,3]" },
          { "[]", "[null]", "[null,null,null]", "[\"a\",1]" } },
        { "{\"type\":\"array\",\"minItems\":3000,\"items\":{\"type\":\"null\"}}", { NULL }, { "[]", "[null]" } },
        { "{\"type\":\"number\",\"minimum\":0.15,\"exclusiveMaximum\":2.5}",
          { "0.15", "0.150", "0.2", "1", "2.4999", "2" },
          { "0.1499", "0.1", "2.5", "2.50", "3", "0" } },
        { "{\"type\":\"number\",\"multipleOf\":0.25,\"minimum\":-1}",
          { "0.25", "-0.5", "1", "2.75", "0.5" },
          { "0.3", "-1.25", "0.125" } },
        { "{\"type\":\"number\",\"multipleOf\":0.01}", { "1.23", "-4", "0.1" }, { "1.234" } },
        { "{\"type\":\"integer\",\"minimum\":9007199254740993,\"maximum\":9007199254740995}",
          { "9007199254740993", "9007199254740995" },
          { "9007199254740992", "9007199254740996" } },
        { "{\"type\":\"integer\",\"minimum\":1e30}",
          { "1000000000000000000000000000000" },
          { "999999999999999999999999999999" } },
        { "{\"oneOf\":[{\"type\":\"integer\",\"minimum\":0},{\"type\":\"integer\",\"maximum\":5}]}",
          { "-1", "6" },
          { "0", "5" } },
        { "{\"not\":{\"type\":[\"object\",\"array\",\"string\"]}}", { "1", "null", "true" }, { "\"a\"", "{}" } },
        { "{\"type\":\"string\",\"not\":{\"pattern\":\"a\"}}", { "\"b\"", "\"\"" }, { "\"ba\"" } },
        { "{\"type\":\"object\",\"properties\":{\"a\":{\"not\":{\"type\":\"null\"}}}}",
          { "{\"a\":1}", "{}" },
          { "{\"a\":null}" } },
        { "{\"$defs\":{\"x\":{\"$anchor\":\"here\",\"type\":\"null\"}},\"$ref\":\"#here\"}", { "null" }, { "1" } },
        { "{\"anyOf\":[{\"type\":\"null\"},{\"type\":\"string\"}],\"minLength\":3}",
          { "null", "\"abc\"" },
          { "\"ab\"", "1" } },
        { "{\"type\":\"object\",\"additionalProperties\":{\"type\":\"integer\"},\"required\":[\"z\"]}",
          { "{\"z\":1}", "{\"z\":1,\"y\":2}" },
          { "{\"z\":\"a\"}", "{}" } },
    };
    check(rows, ARRAY_N(rows));
}

/* Without `strict` what cannot be enforced is left out, and said so. */
static void a_lenient_form_names_what_it_ignores(void **state)
{
    (void)state;
    static const char text[] =
        "{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"type\":\"object\",\"uniqueItems\":true,\"minProperties\":4,"
        "\"properties\":{\"a\":{\"type\":\"string\",\"pattern\":\"(x)\\\\1\",\"maxLength\":2}}}}";
    char               err[SCHEMA_ERR] = "", ignored[SCHEMA_IGNORED] = "";
    struct json_error  je;
    struct gr_rules   *r = gr_rules_create(&gr_limits_default);
    struct grammar    *g = NULL;
    struct schema_form form = { .ignored = ignored };
    uint32_t           symbol;
    json_t            *schema = json_parse(text, strlen(text), 0, &je);
    assert_int_equal(schema_rules(r, schema, form, &symbol, err), ST_OK);
    assert_string_equal(ignored, "uniqueItems,minProperties,pattern");
    assert_int_equal(gr_build(r, symbol, &g, err), ST_OK);
    assert_int_equal(verdict(g, "[{\"a\":\"q\"},{\"a\":\"q\"}]"), 'y');
    assert_int_equal(verdict(g, "[{\"a\":\"qqq\"}]"), 'n');
    gr_free(g);
    json_decref(schema);
}

/* Every whole number around the bounds, for many bounds. */
static void bounds_of_whole_numbers_are_exact(void **state)
{
    (void)state;
    static const int bound[] = { -1001, -1000, -999, -110, -100, -99, -10, -9,  -1,  0,
                                 1,     9,     10,   11,   99,   100, 101, 109, 989, 1000 };
    for (size_t a = 0; a < ARRAY_N(bound); a++) {
        for (size_t b = a; b < ARRAY_N(bound); b += (size_t)test_size(3, 7)) {
            char text[120], err[SCHEMA_ERR] = "", number[20];
            snprintf(text, sizeof text, "{\"type\":\"integer\",\"minimum\":%d,\"maximum\":%d}", bound[a], bound[b]);
            struct grammar *g = grammar_of(text, err);
            if (!g) fail_msg("%s: %s", text, err);
            for (int v = -1100; v <= 1100; v += v > -20 && v < 120 ? 1 : 7) {
                snprintf(number, sizeof number, "%d", v);
                if ((verdict(g, number) == 'y') != (v >= bound[a] && v <= bound[b])) fail_msg("%s: %d", text, v);
            }
            for (int v = -1; v <= 1; v++) {
                snprintf(number, sizeof number, "%d", bound[a] + v);
                if ((verdict(g, number) == 'y') != (v >= 0 && bound[a] + v <= bound[b]))
                    fail_msg("%s: %s", text, number);
                snprintf(number, sizeof number, "%d", bound[b] + v);
                if ((verdict(g, number) == 'y') != (v <= 0 && bound[b] + v >= bound[a]))
                    fail_msg("%s: %s", text, number);
            }
            gr_free(g);
        }
    }
}

static void a_schema_made_to_hurt_ends(void **state)
{
    (void)state;
    struct buf b;
    char       err[SCHEMA_ERR] = "";
    const int  n_word = test_size(20000, 5000), n_field = test_size(3000, 1000);
    buf_init(&b, 8 << 20);
    buf_puts(&b, "{\"enum\":[");
    for (int i = 0; i < n_word; i++) buf_printf(&b, "%s\"%d-%d\"", i ? "," : "", i, i * 7919);
    buf_puts(&b, "]}");
    buf_putc(&b, 0);
    struct grammar *g = grammar_of(b.data, err);
    char            last[40];
    snprintf(last, sizeof last, "\"%d-%d\"", n_word - 1, (n_word - 1) * 7919);
    if (g) assert_int_equal(verdict(g, last), 'y');
    assert_true(g || *err);
    gr_free(g);
    buf_clear(&b);
    buf_puts(&b, "{\"type\":\"object\",\"properties\":{");
    for (int i = 0; i < n_field; i++)
        buf_printf(&b, "%s\"p%d\":{\"type\":\"string\",\"maxLength\":100000}", i ? "," : "", i);
    buf_puts(&b, "}}");
    buf_putc(&b, 0);
    *err = 0;
    g = grammar_of(b.data, err);
    assert_true(g || *err);
    if (g) verdict(g, "{\"p999\":\"x\"}");
    gr_free(g);
    buf_free(&b);
}

/* Each definition holds the one before it twice: 2^40 steps, if each is taken. */
static void what_doubles_with_each_reference_is_refused(void **state)
{
    (void)state;
    struct buf b;
    char       err[SCHEMA_ERR] = "";
    buf_init(&b, 1 << 16);
    buf_puts(&b, "{\"$ref\":\"#/$defs/d40\",\"$defs\":{\"d0\":{\"type\":\"string\"}");
    for (int i = 1; i <= 40; i++)
        buf_printf(&b, ",\"d%d\":{\"allOf\":[{\"$ref\":\"#/$defs/d%d\"},{\"$ref\":\"#/$defs/d%d\"}]}", i, i - 1, i - 1);
    buf_puts(&b, "}}");
    assert_null(grammar_of(buf_cstr(&b), err));
    assert_non_null(strstr(err, "steps over $ref and allOf"));
    buf_free(&b);
}

/* An alternation as long as a pattern may be is read in one go: each union of two would look at all before it. */
static void a_pattern_of_many_words_costs_no_more_than_its_words(void **state)
{
    (void)state;
    struct rx_limits limits = { .node_max = 500000, .fuel = 2000000, .depth_max = 500 };
    struct rx       *x = rx_create(&limits);
    struct buf       b;
    char             err[REGEX_ERR] = "";
    uint32_t         rx;
    buf_init(&b, 1 << 17);
    for (int i = 0; i < 8000; i++) buf_printf(&b, "%sw%dx", i ? "|" : "", i);
    const struct regex_form form = { .search = false };
    assert_int_equal(regex_rx(x, b.data, b.n, form, &rx, err), ST_OK);
    assert_int_equal(rx_status(x), ST_OK);
    rx_free(x);
    buf_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_large_number_is_spelled_as_the_schema_spells_it),
        cmocka_unit_test(large_numbers_that_cannot_be_told_apart_are_refused),
        cmocka_unit_test(white_space_is_what_its_pattern_says),
        cmocka_unit_test(what_a_schema_does_not_say_is_allowed_in_an_open_form),
        cmocka_unit_test(scalars_are_what_their_keywords_say),
        cmocka_unit_test(formats_are_enforced),
        cmocka_unit_test(arrays_and_objects_have_their_parts),
        cmocka_unit_test(schemas_refer_to_each_other),
        cmocka_unit_test(keywords_hold_together),
        cmocka_unit_test(a_lenient_form_names_what_it_ignores),
        cmocka_unit_test(bounds_of_whole_numbers_are_exact),
        cmocka_unit_test(a_schema_made_to_hurt_ends),
        cmocka_unit_test(what_doubles_with_each_reference_is_refused),
        cmocka_unit_test(a_pattern_of_many_words_costs_no_more_than_its_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
