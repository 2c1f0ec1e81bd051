#include "api/schema/schema.h"
#include "api/schema/chars.h"
#include "api/schema/schema_impl.h"
#include "base/hash.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint32_t schema_nothing(struct schema *s) { return gr_terminal(s->r, RX_NONE); }

uint32_t schema_fail(struct schema *s, const char *keyword, const char *fmt, ...)
{
    char    what[160];
    va_list args;
    if (s->failed) return schema_nothing(s);
    s->failed = true;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    snprintf(s->err, SCHEMA_ERR, "at '%s%s%s': %s", s->path[0] || *keyword ? s->path : "/", *keyword ? "/" : "",
             keyword, what);
    return schema_nothing(s);
}

size_t schema_enter(struct schema *s, const char *key, size_t index)
{
    size_t was = strlen(s->path);
    if (key)
        snprintf(s->path + was, sizeof s->path - was, "/%.60s", key);
    else
        snprintf(s->path + was, sizeof s->path - was, "/%zu", index);
    return was;
}

void schema_leave(struct schema *s, size_t was) { s->path[was] = 0; }

bool schema_count(struct schema *s, const json_t *node, const char *key, uint32_t *out)
{
    const json_t *v = json_object_get(node, key);
    double        n = json_number_value(v);
    if (!v) return false;
    if (!json_is_number(v) || n < 0 || n > 1e9 || n != (double)(uint32_t)n) {
        schema_fail(s, key, "a count from 0 to 1000000000 is needed");
        return false;
    }
    *out = (uint32_t)n;
    return true;
}

bool schema_refuse(struct schema *s, const json_t *node, const char *const *key, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!json_object_get(node, key[i])) continue;
        schema_fail(s, key[i], "this keyword cannot be enforced");
        return true;
    }
    return false;
}

/* ---------------------------------------------------------------- values */

uint32_t schema_space(struct schema *s)
{
    if (s->form.compact) return RX_EMPTY;
    if (s->space) return s->space;
    uint32_t line = rx_of_byte(s->x, '\n'), blank = rx_of_byte(s->x, ' ');
    uint32_t any[] = { RX_EMPTY, blank, rx_cat(s->x, line, rx_repeat(s->x, blank, 0, 32)),
                       rx_cat(s->x, line, rx_repeat(s->x, rx_of_byte(s->x, '\t'), 1, 8)) };
    return s->space = rx_or(s->x, any, 4);
}

uint32_t schema_string_rx(struct schema *s, uint32_t inner)
{
    uint32_t quote = rx_of_byte(s->x, '"');
    return rx_cat(s->x, quote, rx_cat(s->x, inner, quote));
}

static uint32_t literal_text(struct schema *s, const char *text) { return rx_of_bytes(s->x, text, strlen(text)); }

/* Members or elements in a row, with white space where it is allowed. */
static uint32_t literal_list(struct schema *s, const json_t *value)
{
    uint32_t space = schema_space(s), r = RX_EMPTY;
    uint32_t comma = rx_cat(s->x, space, rx_cat(s->x, rx_of_byte(s->x, ','), space));
    uint32_t colon = rx_cat(s->x, space, rx_cat(s->x, rx_of_byte(s->x, ':'), space));
    bool     object = json_is_object(value);
    size_t   n = object ? json_object_size(value) : json_array_size(value), i = 0;
    void    *it = object ? json_object_iter((json_t *)(uintptr_t)value) : NULL;
    for (; i < n; i++) {
        uint32_t one = RX_EMPTY;
        if (object) {
            const char *key = json_object_iter_key(it);
            size_t      len = json_object_iter_key_len(it);
            one = rx_cat(s->x, schema_string_rx(s, chars_text(s->x, key, len, true)),
                         rx_cat(s->x, colon, schema_literal(s, json_object_iter_value(it))));
            it = json_object_iter_next((json_t *)(uintptr_t)value, it);
        } else {
            one = schema_literal(s, json_array_get(value, i));
        }
        r = rx_cat(s->x, r, i ? rx_cat(s->x, comma, one) : one);
    }
    uint32_t open = rx_cat(s->x, rx_of_byte(s->x, object ? '{' : '['), space);
    uint32_t close = rx_cat(s->x, n ? space : (uint32_t)RX_EMPTY, rx_of_byte(s->x, object ? '}' : ']'));
    return rx_cat(s->x, open, rx_cat(s->x, r, close));
}

uint32_t schema_literal(struct schema *s, const json_t *value)
{
    if (json_is_null(value)) return literal_text(s, "null");
    if (json_is_boolean(value)) return literal_text(s, json_is_true(value) ? "true" : "false");
    if (json_is_string(value))
        return schema_string_rx(s, chars_text(s->x, json_string_value(value), json_string_length(value), true));
    if (json_is_number(value)) {
        struct buf b;
        buf_init(&b, 400);
        if (json_is_integer(value))
            json_put_int(&b, json_integer_value(value));
        else
            json_put_num(&b, json_real_value(value));
        uint32_t r = rx_of_bytes(s->x, b.data, b.n);
        buf_free(&b);
        return r;
    }
    return literal_list(s, value);
}

uint32_t schema_any(struct schema *s)
{
    if (s->any) return s->any;
    s->any = gr_rule(s->r);
    json_t  *nothing = json_object();
    uint32_t literal[] = { literal_text(s, "true"), literal_text(s, "false"), literal_text(s, "null") };
    uint32_t one[] = { gr_terminal(s->r, rx_or(s->x, literal, 3)), schema_string(s, nothing),
                       schema_number(s, nothing, false), schema_object_of_any(s), schema_array(s, nothing) };
    for (int i = 0; i < 5; i++) gr_alt(s->r, s->any, &one[i], 1);
    json_decref(nothing);
    return s->any;
}

/* ---------------------------------------------------------------- keywords */

static const char *const annotations[] = {
    "title",    "description", "default",     "examples",      "$schema",         "$id",
    "$comment", "$defs",       "definitions", "deprecated",    "readOnly",        "writeOnly",
    "$anchor",  "id",          "example",     "discriminator", "contentEncoding", "contentMediaType"
};
static const char *const beyond[] = {
    "not",         "if",           "then", "else", "dependentSchemas", "unevaluatedItems", "unevaluatedProperties",
    "$dynamicRef", "$recursiveRef"
};

static bool is_annotation(const char *key)
{
    if (key[0] == 'x' && key[1] == '-') return true;
    for (size_t i = 0; i < sizeof annotations / sizeof *annotations; i++)
        if (!strcmp(key, annotations[i])) return true;
    return false;
}

/* A keyword beside `key` (and beside `other`) that restricts further. */
static bool stands_alone(struct schema *s, const json_t *node, const char *key, const char *other)
{
    const char *name;
    json_t     *value;
    json_object_foreach((json_t *)(uintptr_t)node, name, value)
    {
        (void)value;
        if (!strcmp(name, key) || (other && !strcmp(name, other)) || is_annotation(name)) continue;
        schema_fail(s, key, "'%s' beside it cannot be enforced", name);
        return false;
    }
    return true;
}

static const char *const type_names[] = { "object", "array", "string", "integer", "number", "boolean", "null" };
enum { TYPE_OBJECT, TYPE_ARRAY, TYPE_STRING, TYPE_INTEGER, TYPE_NUMBER, TYPE_BOOLEAN, TYPE_NULL, TYPES };

static uint32_t type_bit(struct schema *s, const json_t *name)
{
    for (uint32_t t = 0; t < TYPES; t++)
        if (json_str_is(name, type_names[t])) return 1u << t;
    schema_fail(s, "type", "one of object, array, string, integer, number, boolean, null is needed");
    return 0;
}

/* The types that a keyword is about; a schema with such keywords and without a type is taken to mean these. */
static const struct {
    const char *key;
    uint32_t    types;
} about[] = {
    { "properties", 1u << TYPE_OBJECT },
    { "required", 1u << TYPE_OBJECT },
    { "additionalProperties", 1u << TYPE_OBJECT },
    { "items", 1u << TYPE_ARRAY },
    { "prefixItems", 1u << TYPE_ARRAY },
    { "minItems", 1u << TYPE_ARRAY },
    { "maxItems", 1u << TYPE_ARRAY },
    { "minLength", 1u << TYPE_STRING },
    { "maxLength", 1u << TYPE_STRING },
    { "pattern", 1u << TYPE_STRING },
    { "format", 1u << TYPE_STRING },
    { "minimum", 1u << TYPE_NUMBER },
    { "maximum", 1u << TYPE_NUMBER },
    { "exclusiveMinimum", 1u << TYPE_NUMBER },
    { "exclusiveMaximum", 1u << TYPE_NUMBER },
    { "multipleOf", 1u << TYPE_NUMBER },
    { "patternProperties", 1u << TYPE_OBJECT },
    { "propertyNames", 1u << TYPE_OBJECT },
    { "minProperties", 1u << TYPE_OBJECT },
    { "maxProperties", 1u << TYPE_OBJECT },
    { "uniqueItems", 1u << TYPE_ARRAY },
    { "contains", 1u << TYPE_ARRAY },
    { "dependentRequired", 1u << TYPE_OBJECT },
};

/* Bits of types; 0: any, or a failure. */
static uint32_t types_of(struct schema *s, const json_t *node)
{
    const json_t *type = json_object_get(node, "type");
    uint32_t      bits = 0;
    if (json_is_array(type)) {
        for (size_t i = 0; i < json_array_size(type); i++) bits |= type_bit(s, json_array_get(type, i));
        if (!bits) schema_fail(s, "type", "a list without types");
        return bits;
    }
    if (type) return type_bit(s, type);
    for (size_t i = 0; i < sizeof about / sizeof *about; i++)
        if (json_object_get(node, about[i].key)) bits |= about[i].types;
    return bits;
}

static uint32_t of_type(struct schema *s, const json_t *node, uint32_t type)
{
    uint32_t both[2];
    switch (type) {
    case TYPE_OBJECT: return schema_object(s, node);
    case TYPE_ARRAY: return schema_array(s, node);
    case TYPE_STRING: return schema_string(s, node);
    case TYPE_INTEGER: return schema_number(s, node, true);
    case TYPE_NUMBER: return schema_number(s, node, false);
    case TYPE_BOOLEAN:
        both[0] = literal_text(s, "true");
        both[1] = literal_text(s, "false");
        return gr_terminal(s->r, rx_or(s->x, both, 2));
    default: return gr_terminal(s->r, literal_text(s, "null"));
    }
}

static uint32_t by_types(struct schema *s, const json_t *node)
{
    uint32_t types = types_of(s, node);
    if (s->failed) return schema_nothing(s);
    if (!types) return schema_any(s);
    if (types >> TYPE_NUMBER & 1) types &= ~(1u << TYPE_INTEGER);
    uint32_t rule = gr_rule(s->r);
    for (uint32_t t = 0; t < TYPES; t++) {
        if (!(types >> t & 1)) continue;
        uint32_t one = of_type(s, node, t);
        gr_alt(s->r, rule, &one, 1);
    }
    return rule;
}

/* ---------------------------------------------------------------- enum, const */

static bool has_type(struct schema *s, const json_t *node, const json_t *value)
{
    static const uint32_t of_json[] = {
        [JSON_OBJECT] = TYPE_OBJECT,   [JSON_ARRAY] = TYPE_ARRAY, [JSON_STRING] = TYPE_STRING,
        [JSON_INTEGER] = TYPE_INTEGER, [JSON_REAL] = TYPE_NUMBER, [JSON_TRUE] = TYPE_BOOLEAN,
        [JSON_FALSE] = TYPE_BOOLEAN,   [JSON_NULL] = TYPE_NULL
    };
    if (!json_object_get(node, "type")) return true;
    uint32_t types = types_of(s, node), type = of_json[json_typeof(value)];
    if (type == TYPE_INTEGER && types >> TYPE_NUMBER & 1) return true;
    return types >> type & 1;
}

static uint32_t of_values(struct schema *s, const json_t *node, const char *key)
{
    const json_t *values = json_object_get(node, key);
    bool          one = !strcmp(key, "const");
    size_t        n = one ? 1 : json_array_size(values);
    if (!one && (!json_is_array(values) || n == 0)) return schema_fail(s, key, "a list of values is needed");
    if (!stands_alone(s, node, key, "type")) return schema_nothing(s);
    uint32_t *literal = malloc((n + 1) * sizeof *literal);
    uint32_t  kept = 0;
    if (!literal) return schema_fail(s, key, "no memory");
    for (size_t i = 0; i < n; i++) {
        const json_t *v = one ? values : json_array_get(values, i);
        if (has_type(s, node, v)) literal[kept++] = schema_literal(s, v);
    }
    uint32_t r = rx_or(s->x, literal, kept);
    free(literal);
    return gr_terminal(s->r, r);
}

/* ---------------------------------------------------------------- combinations */

static uint32_t any_of(struct schema *s, const json_t *node, const char *key)
{
    const json_t *list = json_object_get(node, key);
    if (!json_is_array(list) || !json_array_size(list)) return schema_fail(s, key, "a list of schemas is needed");
    if (!stands_alone(s, node, key, NULL)) return schema_nothing(s);
    uint32_t rule = gr_rule(s->r);
    size_t   was = schema_enter(s, key, 0);
    for (size_t i = 0; i < json_array_size(list); i++) {
        size_t   inner = schema_enter(s, NULL, i);
        uint32_t one = schema_compile(s, json_array_get(list, i));
        schema_leave(s, inner);
        gr_alt(s->r, rule, &one, 1);
    }
    schema_leave(s, was);
    return rule;
}

/* The target of a $ref within the schema itself. */
static const json_t *find(struct schema *s, const char *pointer)
{
    const json_t *at = s->root;
    if (*pointer++ != '#') return NULL;
    while (at && *pointer == '/') {
        char   step[200];
        size_t n = 0;
        for (pointer++; *pointer && *pointer != '/' && n + 1 < sizeof step; pointer++) {
            char c = *pointer;
            if (c == '~' && (pointer[1] == '0' || pointer[1] == '1')) c = *++pointer == '0' ? '~' : '/';
            step[n++] = c;
        }
        step[n] = 0;
        at = json_is_array(at) ? json_array_get(at, strtoul(step, NULL, 10)) : json_object_get(at, step);
    }
    return *pointer ? NULL : at;
}

static uint32_t of_ref(struct schema *s, const json_t *node)
{
    const json_t *ref = json_object_get(node, "$ref");
    if (!json_is_string(ref)) return schema_fail(s, "$ref", "a string is needed");
    if (!stands_alone(s, node, "$ref", NULL)) return schema_nothing(s);
    const json_t *target = find(s, json_string_value(ref));
    if (!target) return schema_fail(s, "$ref", "'%.60s' is not within this schema", json_string_value(ref));
    return schema_compile(s, target);
}

/* What a schema that is a $ref stands for; a circle of references is left after a while. */
static const json_t *target_of(struct schema *s, const json_t *node)
{
    for (int i = 0; i < SCHEMA_DEPTH_MAX; i++) {
        const json_t *ref = json_object_get(node, "$ref");
        if (!json_is_string(ref)) return node;
        node = find(s, json_string_value(ref));
    }
    return NULL;
}

/* Can no value satisfy both? Said only where a type or a constant of a required member shows it. */
static bool disjoint(struct schema *s, const json_t *a, const json_t *b)
{
    a = target_of(s, a);
    b = target_of(s, b);
    if (!json_is_object(a) || !json_is_object(b)) return false;
    const json_t *ta = json_object_get(a, "type"), *tb = json_object_get(b, "type");
    if (json_is_string(ta) && json_is_string(tb) && !json_equal(ta, tb)) {
        bool numbers = (json_str_is(ta, "integer") && json_str_is(tb, "number")) ||
                       (json_str_is(ta, "number") && json_str_is(tb, "integer"));
        return !numbers;
    }
    const json_t *ca = json_object_get(a, "const"), *cb = json_object_get(b, "const");
    if (ca && cb) return !json_equal(ca, cb);
    const json_t *required = json_object_get(a, "required"), *other = json_object_get(b, "required");
    for (size_t i = 0; i < json_array_size(required); i++) {
        const json_t *name = json_array_get(required, i);
        bool          both = false;
        for (size_t k = 0; k < json_array_size(other); k++) both = both || json_equal(name, json_array_get(other, k));
        if (!both || !json_is_string(name)) continue;
        const json_t *pa = json_object_get(json_object_get(a, "properties"), json_string_value(name));
        const json_t *pb = json_object_get(json_object_get(b, "properties"), json_string_value(name));
        ca = json_object_get(pa, "const");
        cb = json_object_get(pb, "const");
        if (ca && cb && !json_equal(ca, cb)) return true;
    }
    return false;
}

static uint32_t one_of(struct schema *s, const json_t *node)
{
    const json_t *list = json_object_get(node, "oneOf");
    size_t        n = json_array_size(list);
    if (n > 256) return schema_fail(s, "oneOf", "%zu schemas, allowed are 256", n);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < i; k++)
            if (!disjoint(s, json_array_get(list, i), json_array_get(list, k)))
                return schema_fail(
                    s, "oneOf", "%zu and %zu are not told apart by a type or by a constant of a required member", k, i);
    return any_of(s, node, "oneOf");
}

/* ---------------------------------------------------------------- one schema */

static uint32_t compile(struct schema *s, const json_t *node)
{
    if (json_is_true(node)) return schema_any(s);
    if (json_is_false(node)) return schema_nothing(s);
    if (!json_is_object(node)) return schema_fail(s, "", "a schema is an object or a boolean");
    if (schema_refuse(s, node, beyond, sizeof beyond / sizeof *beyond)) return schema_nothing(s);
    if (json_object_get(node, "$ref")) return of_ref(s, node);
    if (json_object_get(node, "const")) return of_values(s, node, "const");
    if (json_object_get(node, "enum")) return of_values(s, node, "enum");
    if (json_object_get(node, "anyOf")) return any_of(s, node, "anyOf");
    if (json_object_get(node, "oneOf")) return one_of(s, node);
    const json_t *all = json_object_get(node, "allOf");
    if (!all) return by_types(s, node);
    if (json_array_size(all) != 1) return schema_fail(s, "allOf", "only a list of one schema can be enforced");
    return stands_alone(s, node, "allOf", NULL) ? schema_compile(s, json_array_get(all, 0)) : schema_nothing(s);
}

static struct schema_seen *seen_at(struct schema *s, const json_t *node)
{
    uint64_t at = hash_u64((uintptr_t)node);
    for (;; at++) {
        struct schema_seen *e = &s->seen[at & (s->seen_room - 1)];
        if (!e->node || e->node == node) return e;
    }
}

static bool seen_grow(struct schema *s)
{
    struct schema_seen *old = s->seen;
    uint32_t            n = s->seen_room;
    s->seen_room = n ? 2 * n : 256;
    s->seen = calloc(s->seen_room, sizeof *s->seen);
    if (!s->seen) {
        s->seen = old;
        s->seen_room = n;
        return false;
    }
    for (uint32_t i = 0; i < n; i++)
        if (old[i].node) *seen_at(s, old[i].node) = old[i];
    free(old);
    return true;
}

/* Each place of the schema becomes one rule, which exists before its inside is looked at: recursion ends there. */
uint32_t schema_compile(struct schema *s, const json_t *node)
{
    if (s->failed) return schema_nothing(s);
    if (!node) return schema_fail(s, "", "a schema is missing");
    if (2 * s->n_seen >= s->seen_room && !seen_grow(s)) return schema_fail(s, "", "no memory");
    bool                shared = json_is_object(node); /* true and false are one value each in memory */
    struct schema_seen *e = shared ? seen_at(s, node) : NULL;
    if (e && e->node) return e->symbol;
    if (++s->n_node > SCHEMA_NODES_MAX) return schema_fail(s, "", "more than %d schemas", SCHEMA_NODES_MAX);
    if (s->depth == SCHEMA_DEPTH_MAX) return schema_fail(s, "", "nested deeper than %d", SCHEMA_DEPTH_MAX);
    uint32_t rule = gr_rule(s->r);
    if (e) {
        *e = (struct schema_seen){ node, rule };
        s->n_seen++;
    }
    s->depth++;
    uint32_t one = compile(s, node);
    s->depth--;
    gr_alt(s->r, rule, &one, 1);
    return rule;
}

enum status schema_rules(struct gr_rules *r, const json_t *schema, struct schema_form form, uint32_t *symbol_out,
                         char err[SCHEMA_ERR])
{
    struct schema s = { .r = r, .x = gr_rx(r), .root = schema, .form = form, .err = err };
    uint32_t      symbol = schema_compile(&s, schema);
    free(s.seen);
    if (s.failed) return ST_INVALID;
    *symbol_out = symbol;
    return ST_OK;
}

uint32_t schema_any_object(struct gr_rules *r, struct schema_form form)
{
    char          err[SCHEMA_ERR];
    struct schema s = { .r = r, .x = gr_rx(r), .form = form, .err = err };
    return schema_object_of_any(&s);
}
