/* schema_types: values of parts from which nothing is left to choose, type by type. */
#include "api/schema/schema_impl.h"
#include "api/schema/value_set.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const type_names[] = { "object", "array", "string", "integer", "number", "boolean", "null" };
enum { ANY_TYPE = (1 << TYPES) - 1 };

static uint32_t type_bit(struct schema *s, const json_t *name)
{
    for (uint32_t t = 0; t < TYPES; t++)
        if (json_str_is(name, type_names[t]))
            return t == TYPE_NUMBER ? 1u << TYPE_NUMBER | 1u << TYPE_INTEGER : 1u << t;
    schema_fail(s, "type", "one of object, array, string, integer, number, boolean, null is needed");
    return 0;
}

/* The types that a keyword is about; a schema with such keywords and without a type is taken to mean these, unless the
 * form is open. */
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
    { SCHEMA_NOT_PATTERN, 1u << TYPE_STRING },
    { "format", 1u << TYPE_STRING },
    { "minimum", 1u << TYPE_NUMBER | 1u << TYPE_INTEGER },
    { "maximum", 1u << TYPE_NUMBER | 1u << TYPE_INTEGER },
    { "exclusiveMinimum", 1u << TYPE_NUMBER | 1u << TYPE_INTEGER },
    { "exclusiveMaximum", 1u << TYPE_NUMBER | 1u << TYPE_INTEGER },
    { "multipleOf", 1u << TYPE_NUMBER | 1u << TYPE_INTEGER },
    { "patternProperties", 1u << TYPE_OBJECT },
    { "propertyNames", 1u << TYPE_OBJECT },
    { "minProperties", 1u << TYPE_OBJECT },
    { "maxProperties", 1u << TYPE_OBJECT },
    { "uniqueItems", 1u << TYPE_ARRAY },
    { "contains", 1u << TYPE_ARRAY },
    { "dependentRequired", 1u << TYPE_OBJECT },
};

static uint32_t named_types(struct schema *s, const json_t *type)
{
    uint32_t bits = 0;
    if (!json_is_array(type)) return type_bit(s, type);
    for (size_t i = 0; i < json_array_size(type); i++) bits |= type_bit(s, json_array_get(type, i));
    if (!json_array_size(type)) schema_fail(s, "type", "a list without types");
    return bits;
}

uint32_t schema_types(struct schema *s, const struct schema_all *all)
{
    uint32_t      bits = ANY_TYPE, implied = 0;
    bool          named = false, valued = false;
    const json_t *was = s->node;
    for (uint32_t i = 0; i < all->n; i++) {
        const json_t *node = all->part[i].node, *type = json_object_get(node, "type");
        const json_t *not_type = json_object_get(json_object_get(node, "not"), "type");
        s->node = node;
        if (type) bits &= named_types(s, type);
        if (not_type && !(all->part[i].done & DONE_NOT)) bits &= ~named_types(s, not_type);
        named = named || type || not_type;
        valued = valued || json_object_get(node, "const") || json_object_get(node, "enum");
        for (size_t k = 0; k < sizeof about / sizeof *about; k++)
            if (json_object_get(node, about[k].key)) implied |= about[k].types;
    }
    s->node = was;
    return named || valued || !implied || s->form.open ? bits : implied;
}

static uint32_t literal_text(struct schema *s, const char *text) { return rx_of_bytes(s->x, text, strlen(text)); }

/* Does a `not` exclude this value? */
static bool is_excluded(const struct schema_all *all, const json_t *v)
{
    for (uint32_t i = 0; i < all->n; i++) {
        const json_t *no = all->part[i].done & DONE_NOT ? NULL : json_object_get(all->part[i].node, "not");
        const json_t *one = json_object_get(no, "const"), *list = json_object_get(no, "enum");
        if (one && schema_equal(one, v)) return true;
        for (size_t k = 0; k < json_array_size(list); k++)
            if (schema_equal(json_array_get(list, k), v)) return true;
    }
    return false;
}

/* The expression of a type of values that has one. */
static uint32_t scalar(struct schema *s, const struct schema_all *all, uint32_t types, uint32_t type)
{
    json_t  *no = type == TYPE_NULL ? json_null() : json_false();
    uint32_t both[2] = { RX_NONE, RX_NONE };
    switch (type) {
    case TYPE_STRING: return schema_string(s, all);
    case TYPE_INTEGER: return schema_number(s, all, true, false);
    case TYPE_NUMBER: return schema_number(s, all, false, !(types >> TYPE_INTEGER & 1));
    case TYPE_BOOLEAN:
        if (!is_excluded(all, no)) both[0] = literal_text(s, "false");
        if (!is_excluded(all, json_true())) both[1] = literal_text(s, "true");
        return rx_or(s->x, both, 2);
    default: return is_excluded(all, no) ? (uint32_t)RX_NONE : literal_text(s, "null");
    }
}

/* Whether the list of types is left to numbers once: integers are among them. */
static uint32_t numbers_once(uint32_t types)
{
    return types >> TYPE_NUMBER & 1 ? types & ~(1u << TYPE_INTEGER) : types;
}

/* ---------------------------------------------------------------- given values */

static bool restricts_insides(const struct schema_all *all, uint32_t type)
{
    for (uint32_t i = 0; i < all->n; i++) {
        const json_t *no = json_object_get(all->part[i].node, "not");
        for (size_t k = 0; k < sizeof about / sizeof *about; k++)
            if (about[k].types >> type & 1 && json_object_get(all->part[i].node, about[k].key)) return true;
        if (no && !(all->part[i].done & DONE_NOT) && !json_object_get(no, "type")) return true;
    }
    return false;
}

/* Values of an enum, by how the other keywords bind them. */
struct values {
    struct schema           *s;
    const struct schema_all *all;
    uint32_t                 types;
    struct value_set         no;           /* what `not` names */
    struct rx_texts          free;         /* values that no other keyword binds */
    struct rx_texts          bound[TYPES]; /* the others, by the type whose keywords do */
};

static uint32_t type_of(uint32_t types, const json_t *v)
{
    static const uint32_t of_json[] = {
        [JSON_OBJECT] = TYPE_OBJECT,   [JSON_ARRAY] = TYPE_ARRAY, [JSON_STRING] = TYPE_STRING,
        [JSON_INTEGER] = TYPE_INTEGER, [JSON_REAL] = TYPE_NUMBER, [JSON_TRUE] = TYPE_BOOLEAN,
        [JSON_FALSE] = TYPE_BOOLEAN,   [JSON_NULL] = TYPE_NULL
    };
    uint32_t type = of_json[json_typeof(v)];
    bool     whole = type == TYPE_NUMBER && json_real_value(v) == floor(json_real_value(v));
    return whole && types >> TYPE_INTEGER & 1 ? (uint32_t)TYPE_INTEGER : type;
}

static void add_value(struct values *w, const bool bound[TYPES], const json_t *v)
{
    uint32_t         type = type_of(w->types, v);
    struct rx_texts *t = &w->free;
    if (!(w->types >> type & 1) || value_set_has(&w->no, v)) return;
    if (bound[type] && (type == TYPE_OBJECT || type == TYPE_ARRAY))
        schema_beyond(w->s, "enum", "objects and arrays in it beside other keywords cannot be enforced");
    else if (bound[type])
        t = &w->bound[type == TYPE_INTEGER && w->types >> TYPE_NUMBER & 1 ? (uint32_t)TYPE_NUMBER : type];
    schema_put(w->s, t, v);
}

static uint32_t of_values(struct schema *s, const struct schema_all *all, uint32_t types, const json_t *values)
{
    struct values w = { .s = s, .all = all, .types = types };
    uint32_t      r[TYPES + 1];
    bool          bound[TYPES];
    value_set_init(&w.no);
    schema_excluded(all, &w.no);
    rx_texts_init(&w.free, s->x);
    for (uint32_t t = 0; t < TYPES; t++) {
        rx_texts_init(&w.bound[t], s->x);
        bound[t] = restricts_insides(all, t);
    }
    for (size_t i = 0; i < json_array_size(values) && !s->failed; i++) add_value(&w, bound, json_array_get(values, i));
    r[TYPES] = rx_texts_any(&w.free);
    for (uint32_t t = 0; t < TYPES; t++) {
        r[t] = w.bound[t].n ? rx_texts_within(&w.bound[t], scalar(s, all, types, t)) : (uint32_t)RX_NONE;
        rx_texts_free(&w.bound[t]);
    }
    if (w.no.failed) schema_fail(s, "not", "no memory");
    rx_texts_free(&w.free);
    value_set_free(&w.no);
    return gr_terminal(s->r, rx_or(s->x, r, TYPES + 1));
}

/* ---------------------------------------------------------------- all types */

/* A list or an object that `not` names has too many spellings to be left out of all others. */
static uint32_t shape(struct schema *s, const struct schema_all *all, uint32_t type)
{
    for (uint32_t i = 0; i < all->n; i++) {
        const json_t *no = all->part[i].done & DONE_NOT ? NULL : json_object_get(all->part[i].node, "not");
        const json_t *one = json_object_get(no, "const"), *list = json_object_get(no, "enum");
        bool          met = type == TYPE_OBJECT ? json_is_object(one) : json_is_array(one);
        for (size_t k = 0; k < json_array_size(list); k++) {
            const json_t *v = json_array_get(list, k);
            met = met || (type == TYPE_OBJECT ? json_is_object(v) : json_is_array(v));
        }
        if (met) schema_beyond(s, "not", "a value with parts cannot be left out");
    }
    return type == TYPE_OBJECT ? schema_object(s, all) : schema_array(s, all);
}

uint32_t schema_by_types(struct schema *s, const struct schema_all *all)
{
    json_t  *values = schema_values(s, all);
    uint32_t types = schema_types(s, all), rule;
    if (values) {
        rule = of_values(s, all, types, values);
        json_decref(values);
        return rule;
    }
    if (s->failed) return schema_nothing(s);
    types = schema_types(s, all);
    rule = gr_rule(s->r);
    for (uint32_t t = 0; t < TYPES; t++) {
        if (!(numbers_once(types) >> t & 1)) continue;
        bool     inside = t == TYPE_OBJECT || t == TYPE_ARRAY;
        uint32_t one = inside ? shape(s, all, t) : gr_terminal(s->r, scalar(s, all, types, t));
        gr_alt(s->r, rule, &one, 1);
    }
    return rule;
}

uint32_t schema_any(struct schema *s)
{
    struct schema_all none = { 0 };
    if (s->any) return s->any;
    s->any = gr_rule(s->r); /* before its insides, which hold it */
    uint32_t one = schema_by_types(s, &none);
    gr_alt(s->r, s->any, &one, 1);
    return s->any;
}
