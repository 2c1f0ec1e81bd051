/* What a schema may not say, and where in the document the refusal points. */
#include "api/schema/schema.h"
#include "grammar_world.h"
#include <stdlib.h>

static struct grammar *grammar_of(const char *text, char *err)
{
    struct json_error  je;
    struct gr_rules   *r = gr_rules_create(&gr_limits_default);
    struct grammar    *g = NULL;
    struct schema_form form = { .compact = false };
    uint32_t           symbol;
    json_t            *schema = json_parse(text, strlen(text), 0, &je);
    if (!schema) fail_msg("%s: %s", text, je.text);
    if (schema_rules(r, schema, form, &symbol, err))
        gr_rules_free(r);
    else
        gr_build(r, symbol, &g, err);
    json_decref(schema);
    return g;
}

static void what_cannot_be_enforced_is_refused_with_its_place(void **state)
{
    (void)state;
    static const struct {
        const char *schema, *why;
    } rows[] = {
        { "{\"type\":\"object\",\"properties\":{\"a\":{\"not\":{\"format\":\"date\"}}}}",
          "'/properties/a/not/format'" },
        { "{\"properties\":{\"a/b\":{\"properties\":{\"~\":{\"uniqueItems\":true}}}}}",
          "'/properties/a~1b/properties/~0/uniqueItems'" },
        { "{\"type\":\"array\",\"uniqueItems\":true}", "'/uniqueItems'" },
        { "{\"type\":\"object\",\"not\":{\"maxProperties\":1}}", "'/not/maxProperties'" },
        { "{\"type\":\"array\",\"items\":{\"type\":\"number\",\"multipleOf\":10001}}", "/items/multipleOf'" },
        { "{\"if\":{\"uniqueItems\":true},\"then\":{}}", "'/if/uniqueItems'" },
        { "{\"not\":{\"anyOf\":[{\"type\":\"string\"},{\"uniqueItems\":true}]}}", "'/not/anyOf/1/uniqueItems'" },
        { "{\"not\":{\"allOf\":[{\"type\":\"string\"},{\"not\":{\"items\":{\"uniqueItems\":true}}}]}}",
          "'/not/allOf/1/not/items/uniqueItems'" },
        { "{\"oneOf\":[{\"type\":[\"array\",\"string\"]},{\"not\":{\"contains\":{}}}]}", "'/oneOf/1/not/contains'" },
        { "{\"not\":{\"properties\":{\"a\":{\"not\":{\"uniqueItems\":true}}}}}",
          "'/not/properties/a/not/uniqueItems'" },
        { "{\"not\":{\"items\":{\"pattern\":\"(a)\\\\1\"}}}", "'/not/items/pattern'" },
        { "{\"properties\":{\"x/y\":{\"not\":{\"$ref\":\"#/$defs/d\"}}},\"$defs\":{\"d\":{\"multipleOf\":3}}}",
          "'/$defs/d/multipleOf'" },
        { "{\"dependentSchemas\":{\"a\":{\"uniqueItems\":true}}}", "'/dependentSchemas/a/uniqueItems'" },
        { "{\"if\":{\"type\":\"array\"},\"else\":{\"unevaluatedItems\":false}}", "'/else/unevaluatedItems'" },
        { "{\"allOf\":[{\"pattern\":\"a\"},{\"pattern\":\"(a)\\\\1\"}]}", "'/allOf/1/pattern'" },
        { "{\"allOf\":[{\"properties\":{\"a\":{\"type\":\"string\"}}},{\"properties\":{\"a\":{\"type\":\"x\"}}}]}",
          "'/allOf/1/properties/a/type'" },
        { "{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"number\",\"format\":\"x\"}]}", "'/oneOf': 0 and 1" },
        { "{\"unevaluatedProperties\":false}", "'/unevaluatedProperties'" },
        { "{\"type\":\"object\",\"minProperties\":2}", "'/minProperties'" },
        { "{\"type\":\"array\",\"contains\":{\"type\":\"null\"},\"minContains\":2}", "'/minContains'" },
        { "{\"propertyNames\":{\"anyOf\":[{\"const\":\"a\"}]}}", "'/propertyNames'" },
        { "{\"additionalProperties\":{\"uniqueItems\":true}}", "'/additionalProperties/uniqueItems'" },
        { "{\"additionalProperties\":{\"properties\":{\"a\":{\"allOf\":3}}}}",
          "'/additionalProperties/properties/a/allOf'" },
        { "{\"patternProperties\":{\"^a/\":{\"uniqueItems\":true}}}", "'/patternProperties/^a~1/uniqueItems'" },
        { "{\"allOf\":3}", "'/allOf'" },
        { "{\"enum\":[[1]],\"items\":{\"type\":\"integer\"}}", "'/enum'" },
        { "{\"$ref\":\"http://example.com/x\"}", "not within this schema" },
        { "{\"$ref\":\"#/$defs/missing\"}", "not within this schema" },
        { "{\"$ref\":\"#\"}", "refers to itself" },
        { "{\"$defs\":{\"a\":{\"$ref\":\"#/$defs/b\"},\"b\":{\"$ref\":\"#/$defs/a\"}},\"$ref\":\"#/$defs/a\"}",
          "refers to itself" },
        { "{\"type\":\"object\",\"properties\":{\"a\":false},\"required\":[\"a\"]}", "no text at all" },
        { "{\"type\":\"string\",\"pattern\":\"(a)\\\\1\"}", "back-references" },
        { "{\"type\":\"string\",\"minLength\":3,\"maxLength\":2}", "less than minLength" },
        { "{\"type\":\"integer\",\"minimum\":3,\"maximum\":2}", "no text at all" },
        { "{\"type\":\"strange\"}", "one of object" },
        { "{\"enum\":[]}", "a list of values" },
        { "{\"type\":\"array\",\"minItems\":-1}", "a count" },
        { "{\"patternProperties\":{\"(a)\\\\1\":{}}}", "back-references" },
        { "3", "object or a boolean" },
    };
    for (size_t i = 0; i < ARRAY_N(rows); i++) {
        char err[SCHEMA_ERR] = "";
        if (grammar_of(rows[i].schema, err)) fail_msg("%s is taken", rows[i].schema);
        if (!strstr(err, rows[i].why)) fail_msg("%s: %s", rows[i].schema, err);
    }
}

/* Whether a pointer without escapes leads to something in v. */
static bool leads_to(const json_t *v, const char *at, size_t n)
{
    const char *end = at + n;
    while (v && at < end && *at == '/' && n > 1) {
        char   step[80];
        size_t k = 0;
        for (at++; at < end && *at != '/' && k + 1 < sizeof step; at++) step[k++] = *at;
        step[k] = 0;
        v = json_is_array(v) ? json_array_get(v, (size_t)atoi(step)) : json_object_get(v, step);
    }
    return v != NULL;
}

/* Whatever the compiler makes of a schema on the way to what it refuses, the place is one of the document. */
static void every_place_is_one_of_the_document(void **state)
{
    (void)state;
    static const char *const refused[] = { "\"uniqueItems\":true",
                                           "\"format\":\"date\"",
                                           "\"unevaluatedProperties\":false",
                                           "\"multipleOf\":3",
                                           "\"patternProperties\":{\"a\":{}}",
                                           "\"prefixItems\":[{\"type\":\"string\"}]",
                                           "\"contains\":{\"type\":\"null\"}",
                                           "\"additionalProperties\":false",
                                           "\"dependentRequired\":{\"a\":[\"b\"]}",
                                           "\"$dynamicRef\":\"x\"",
                                           "\"pattern\":\"(a)\\\\1\"",
                                           "\"oneOf\":[{\"minLength\":1},{\"minItems\":1}]",
                                           "\"if\":{\"type\":\"string\"},\"then\":{\"minLength\":2}" };
    static const char *const around[] = {
        "{\"not\":{%s}}",
        "{\"not\":{\"anyOf\":[{\"type\":\"null\"},{%s}]}}",
        "{\"not\":{\"allOf\":[{\"type\":\"array\"},{%s}]}}",
        "{\"not\":{\"oneOf\":[{\"type\":\"string\"},{%s}]}}",
        "{\"not\":{\"properties\":{\"a\":{%s}}}}",
        "{\"not\":{\"items\":{%s}}}",
        "{\"not\":{\"not\":{\"items\":{%s}}}}",
        "{\"if\":{%s},\"then\":{\"type\":\"string\"}}",
        "{\"if\":{\"type\":\"array\"},\"then\":{%s}}",
        "{\"oneOf\":[{\"minItems\":1},{%s}]}",
        "{\"oneOf\":[{\"type\":[\"array\",\"string\"]},{\"not\":{%s}}]}",
        "{\"anyOf\":[{\"type\":\"string\"},{\"not\":{%s}}]}",
        "{\"items\":{\"not\":{\"$ref\":\"#/$defs/d\"}},\"$defs\":{\"d\":{%s}}}",
        "{\"dependentSchemas\":{\"a\":{%s}}}",
        "{\"not\":{\"properties\":{\"a\":{\"not\":{%s}}}}}",
        "{\"type\":\"array\",\"allOf\":[{\"items\":{}},{\"items\":{\"not\":{%s}}}]}"
    };
    uint32_t n_place = 0;
    for (size_t i = 0; i < ARRAY_N(around) * ARRAY_N(refused); i++) {
        char              text[300], err[SCHEMA_ERR] = "";
        struct json_error je;
        int               n = snprintf(text, sizeof text, around[i / ARRAY_N(refused)], refused[i % ARRAY_N(refused)]);
        json_t           *v = json_parse(text, (size_t)n, 0, &je);
        struct grammar   *g = grammar_of(text, err);
        const char       *end = *err ? strchr(err + 4, '\'') : NULL;
        if (end && !strncmp(err, "at '", 4)) {
            n_place++;
            if (!leads_to(v, err + 4, (size_t)(end - err - 4))) fail_msg("%s: %s", text, err);
        }
        gr_free(g);
        json_decref(v);
    }
    assert_in_range(n_place, 150, ARRAY_N(around) * ARRAY_N(refused));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_cannot_be_enforced_is_refused_with_its_place),
        cmocka_unit_test(every_place_is_one_of_the_document),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
