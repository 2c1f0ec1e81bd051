/* schema_negate: says what holds where a schema does not, as a list of schemas: a schema fails as soon as one of its
 * keywords does. What is not known to fail is left out of no list: then there is none. */
#include "api/schema/schema_impl.h"
#include <stdlib.h>
#include <string.h>

static struct schema_negated *row_new(struct schema *s)
{
    if (s->n_negated == s->negated_room) {
        uint32_t               want = s->negated_room ? 2 * s->negated_room : 64;
        struct schema_negated *more = realloc(s->negated, want * sizeof *more);
        if (!more) {
            schema_fail(s, "not", "no memory");
            return NULL;
        }
        s->negated = more;
        s->negated_room = want;
    }
    return &s->negated[s->n_negated++];
}

const json_t *schema_keep(struct schema *s, json_t *made)
{
    struct schema_negated *row = made ? row_new(s) : NULL;
    if (!row) {
        json_decref(made);
        schema_fail(s, "", "no memory");
        return NULL;
    }
    *row = (struct schema_negated){ .list = made };
    return made;
}

bool schema_not_is_plain(const json_t *node)
{
    const char *key;
    json_t     *value;
    uint32_t    n = 0;
    json_object_foreach((json_t *)(uintptr_t)node, key, value)
    {
        if (schema_is_annotation(key)) continue;
        if (strcmp(key, "type") && strcmp(key, "const") && strcmp(key, "enum")) return false;
        n++;
    }
    return n == 1;
}

static void put(json_t *list, json_t *one) { json_array_append_new(list, one); }

static void put_not(json_t *list, const json_t *schema) { put(list, json_pack("{s:O}", "not", schema)); }

/* A count that is one less or one more. */
static void put_count(json_t *list, const char *type, const char *key, const json_t *v, int more)
{
    if (json_number_value(v) + more >= 0)
        put(list, json_pack("{s:s,s:f,s:O}", "type", type, key, json_number_value(v) + more, SCHEMA_FROM, v));
}

static bool put_properties(struct schema *s, json_t *list, const json_t *map)
{
    const char *name;
    json_t     *schema;
    json_object_foreach((json_t *)(uintptr_t)map, name, schema)
    {
        if (json_is_true(schema)) continue;
        if (!schema_negate(s, schema)) return false;
        put(list, json_pack("{s:s,s:[s],s:{s:{s:O}},s:b}", "type", "object", "required", name, "properties", name,
                            "not", schema, SCHEMA_OWN, 1));
    }
    return true;
}

/* One keyword fails. false: it cannot be said how. */
static bool put_keyword(struct schema *s, json_t *list, const json_t *node, const char *key, const json_t *v)
{
    static const struct {
        const char *key, *type, *opposite;
        int         more;
    } count[] = { { "minLength", "string", "maxLength", -1 },
                  { "maxLength", "string", "minLength", 1 },
                  { "minItems", "array", "maxItems", -1 },
                  { "maxItems", "array", "minItems", 1 },
                  { "minProperties", "object", "maxProperties", -1 },
                  { "maxProperties", "object", "minProperties", 1 } };
    static const struct {
        const char *key, *opposite;
    } bound[] = { { "minimum", "exclusiveMaximum" },
                  { "maximum", "exclusiveMinimum" },
                  { "exclusiveMinimum", "maximum" },
                  { "exclusiveMaximum", "minimum" } };
    for (size_t i = 0; i < sizeof count / sizeof *count; i++) {
        if (strcmp(key, count[i].key)) continue;
        put_count(list, count[i].type, count[i].opposite, v, count[i].more);
        return json_is_number(v);
    }
    for (size_t i = 0; i < sizeof bound / sizeof *bound; i++) {
        if (strcmp(key, bound[i].key)) continue;
        put(list, json_pack("{s:s,s:O}", "type", "number", bound[i].opposite, v));
        return json_is_number(v);
    }
    if (!strcmp(key, "type") || !strcmp(key, "const") || !strcmp(key, "enum")) {
        put(list, json_pack("{s:{s:O}}", "not", key, v));
        return true;
    }
    if (!strcmp(key, "required")) {
        for (size_t i = 0; i < json_array_size(v); i++) {
            const char *name = json_string_value(json_array_get(v, i));
            if (!name) return false;
            put(list, json_pack("{s:s,s:{s:b},s:b}", "type", "object", "properties", name, 0, SCHEMA_OWN, 1));
        }
        return true;
    }
    if (!strcmp(key, "properties")) return put_properties(s, list, v);
    if (!strcmp(key, "pattern")) {
        put(list, json_pack("{s:s,s:O}", "type", "string", SCHEMA_NOT_PATTERN, v));
        return true;
    }
    if (!strcmp(key, "items") && !json_is_array(v) && !json_object_get(node, "prefixItems")) {
        put(list, json_pack("{s:s,s:{s:O}}", "type", "array", "contains", "not", v));
        return schema_negate(s, v) != NULL;
    }
    if (!strcmp(key, "not")) {
        put(list, json_incref((json_t *)(uintptr_t)v));
        return true;
    }
    if (!strcmp(key, "allOf")) {
        for (size_t i = 0; i < json_array_size(v); i++) put_not(list, json_array_get(v, i));
        return true;
    }
    if (!strcmp(key, "anyOf")) {
        json_t *none = json_array();
        for (size_t i = 0; i < json_array_size(v); i++) put_not(none, json_array_get(v, i));
        put(list, json_pack("{s:o}", "allOf", none));
        return true;
    }
    if (!strcmp(key, "$ref")) {
        const json_t *target = schema_target(s, node);
        if (target) put_not(list, target);
        return target != NULL;
    }
    return false;
}

const json_t *schema_negate(struct schema *s, const json_t *node)
{
    const char *key;
    json_t     *value, *list;
    bool        known = json_is_boolean(node) || json_is_object(node);
    for (uint32_t i = 0; i < s->n_negated; i++) {
        if (s->negated[i].node != node) continue;
        s->bad = s->negated[i].bad;
        s->bad_key = s->negated[i].bad_key;
        return s->negated[i].list;
    }
    list = json_array();
    if (json_is_false(node)) put(list, json_true());
    uint32_t row = s->n_negated;
    if (!row_new(s)) return NULL;
    s->negated[row] = (struct schema_negated){ node, NULL, node, "" }; /* met again inside itself: it cannot be said */
    s->bad = node;
    s->bad_key = "";
    json_object_foreach((json_t *)(uintptr_t)node, key, value)
    {
        if (!known || schema_is_annotation(key)) continue;
        s->bad = NULL; /* a schema within may say that it is its fault */
        known = put_keyword(s, list, node, key, value);
        if (known || s->bad) continue;
        s->bad = node;
        s->bad_key = key;
    }
    if (known) {
        s->bad = NULL;
    } else {
        json_decref(list);
        list = NULL;
    }
    s->negated[row] = (struct schema_negated){ node, list, s->bad, s->bad_key };
    return list;
}
