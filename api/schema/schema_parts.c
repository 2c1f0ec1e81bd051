/* schema_parts: collects the schemas that a value must satisfy at once: what allOf and $ref lead to. */
#include "api/schema/schema_impl.h"
#include "api/schema/value_set.h"
#include "base/hex.h"
#include <stdlib.h>
#include <string.h>

enum { LOOKS_MAX = 100 };

/* ---------------------------------------------------------------- keywords */

static const char *const annotations[] = {
    "title",   "description",   "default",         "examples",         "$schema",     "$id",          "$comment",
    "$defs",   "definitions",   "deprecated",      "readOnly",         "writeOnly",   "$anchor",      "id",
    "example", "discriminator", "contentEncoding", "contentMediaType", "$vocabulary", "contentSchema"
};
static const char *const enforced[] = { "type",
                                        "enum",
                                        "const",
                                        "properties",
                                        "required",
                                        "additionalProperties",
                                        "items",
                                        "prefixItems",
                                        "minItems",
                                        "maxItems",
                                        "minLength",
                                        "maxLength",
                                        "pattern",
                                        "format",
                                        "minimum",
                                        "maximum",
                                        "exclusiveMinimum",
                                        "exclusiveMaximum",
                                        "multipleOf",
                                        "uniqueItems",
                                        "contains",
                                        "minContains",
                                        "maxContains",
                                        "patternProperties",
                                        "propertyNames",
                                        "minProperties",
                                        "maxProperties",
                                        "dependentRequired",
                                        "dependentSchemas",
                                        "dependencies",
                                        "anyOf",
                                        "oneOf",
                                        "allOf",
                                        "not",
                                        "if",
                                        "then",
                                        "else",
                                        "$ref",
                                        "additionalItems" };
static const char *const beyond[] = { "unevaluatedItems", "unevaluatedProperties", "$dynamicRef", "$recursiveRef" };

static bool is_in(const char *const *list, size_t n, const char *key)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(list[i], key)) return true;
    return false;
}
#define IS_IN(list, key) is_in(list, sizeof(list) / sizeof *(list), key)

/* Unknown keywords say nothing (JSON Schema, section 6.5). */
bool schema_is_annotation(const char *key)
{
    return IS_IN(annotations, key) || (!IS_IN(enforced, key) && !IS_IN(beyond, key) && strcmp(key, SCHEMA_NOT_PATTERN));
}

static uint32_t done_of(const char *key)
{
    static const struct {
        const char *key;
        uint32_t    done;
    } rows[] = { { "anyOf", DONE_ANY },
                 { "oneOf", DONE_ONE },
                 { "if", DONE_IF },
                 { "then", DONE_IF },
                 { "else", DONE_IF },
                 { "not", DONE_NOT },
                 { "dependentRequired", DONE_NEEDS },
                 { "dependentSchemas", DONE_NEEDS },
                 { "dependencies", DONE_NEEDS } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!strcmp(rows[i].key, key)) return rows[i].done;
    return 0;
}

bool schema_is_spent(struct schema_part p)
{
    const char *key;
    json_t     *value;
    json_object_foreach((json_t *)(uintptr_t)p.node, key, value)
    {
        (void)value;
        if (!strcmp(key, "$ref") || !strcmp(key, "allOf") || done_of(key) & p.done || schema_is_annotation(key))
            continue;
        if ((!strcmp(key, "then") || !strcmp(key, "else")) && !json_object_get(p.node, "if")) continue;
        return false;
    }
    return true;
}

/* ---------------------------------------------------------------- references */

/* The schema of this document that has an anchor of this name; NULL: none. */
static const json_t *anchored(const json_t *at, const char *name, int depth)
{
    const json_t *found = NULL;
    const char   *key;
    json_t       *value;
    if (depth > JSON_DEPTH_MAX) return NULL;
    if (json_is_array(at)) {
        for (size_t i = 0; i < json_array_size(at) && !found; i++)
            found = anchored(json_array_get(at, i), name, depth + 1);
        return found;
    }
    if (!json_is_object(at)) return NULL;
    const json_t *id = json_object_get(at, "$id");
    if (json_str_is(json_object_get(at, "$anchor"), name)) return at;
    if (json_is_string(id) && json_string_value(id)[0] == '#' && !strcmp(json_string_value(id) + 1, name)) return at;
    json_object_foreach((json_t *)(uintptr_t)at, key, value)
    {
        if (!strcmp(key, "enum") || !strcmp(key, "const") || !strcmp(key, "default") || !strcmp(key, "examples"))
            continue;
        found = anchored(value, name, depth + 1);
        if (found) return found;
    }
    return NULL;
}

/* The schema with this $id; NULL: none. */
static const json_t *identified(const json_t *at, const char *id, size_t n, int depth)
{
    const json_t *found = NULL, *own = json_object_get(at, "$id");
    const char   *key;
    json_t       *value;
    if (depth > JSON_DEPTH_MAX) return NULL;
    if (json_is_array(at))
        for (size_t i = 0; i < json_array_size(at) && !found; i++)
            found = identified(json_array_get(at, i), id, n, depth + 1);
    if (!json_is_object(at)) return found;
    if (json_is_string(own) && json_string_length(own) == n && !memcmp(json_string_value(own), id, n)) return at;
    json_object_foreach((json_t *)(uintptr_t)at, key, value)
    {
        if (!found && strcmp(key, "enum") && strcmp(key, "const")) found = identified(value, id, n, depth + 1);
    }
    return found;
}

/* One step of a JSON pointer within a URI, with its escapes undone. */
static const char *take_step(const char *p, char *step, size_t room)
{
    size_t n = 0;
    for (; *p && *p != '/' && n + 1 < room; p++) {
        char c = *p;
        if (c == '%' && hex_value(p[1]) >= 0 && hex_value(p[2]) >= 0) {
            c = (char)(hex_value(p[1]) * 16 + hex_value(p[2]));
            p += 2;
        }
        if (c == '~' && (p[1] == '0' || p[1] == '1')) c = *++p == '0' ? '~' : '/';
        step[n++] = c;
    }
    step[n] = 0;
    return p;
}

/* Does a schema inside the document have an $id of its own? It moves what the references below it mean. */
static bool has_ids(const json_t *at, bool top, int depth)
{
    const json_t *id = json_object_get(at, "$id");
    const char   *key;
    json_t       *value;
    bool          found = !top && json_is_string(id) && json_string_value(id)[0] != '#';
    if (depth > JSON_DEPTH_MAX) return true;
    for (size_t i = 0; i < json_array_size(at) && !found; i++) found = has_ids(json_array_get(at, i), false, depth + 1);
    json_object_foreach((json_t *)(uintptr_t)at, key, value)
    {
        if (!found && strcmp(key, "enum") && strcmp(key, "const")) found = has_ids(value, false, depth + 1);
    }
    return found;
}

/* The target of a $ref within the schema itself; NULL: none. Where schemas inside have an $id, only whole ones are
 * found. */
static const json_t *find(struct schema *s, const char *ref)
{
    const json_t *at = s->root;
    const char   *sign = strchr(ref, '#');
    size_t        n_base = sign ? (size_t)(sign - ref) : strlen(ref);
    if (s->moved && (sign || !strchr(ref, ':'))) return NULL;
    if (n_base || (sign && sign[1] && sign[1] != '/')) s->n_look++; /* each goes through the whole document */
    if (s->n_look > LOOKS_MAX) return NULL;
    if (n_base) at = identified(s->root, ref, n_base, 0);
    if (!at || !sign) return at;
    const char *p = sign + 1;
    if (*p && *p != '/') return anchored(at, p, 0);
    while (at && *p == '/') {
        char step[200];
        p = take_step(p + 1, step, sizeof step);
        at = json_is_array(at) ? json_array_get(at, strtoul(step, NULL, 10)) : json_object_get(at, step);
    }
    return *p ? NULL : at;
}

bool schema_moves(const json_t *root) { return has_ids(root, true, 0); }

const json_t *schema_target(struct schema *s, const json_t *node)
{
    for (int i = 0; i < SCHEMA_REFS_MAX && node; i++) {
        const json_t *ref = json_object_get(node, "$ref");
        if (!json_is_string(ref)) return node;
        node = find(s, json_string_value(ref));
    }
    return NULL;
}

/* ---------------------------------------------------------------- parts */

void schema_part_add(struct schema *s, struct schema_all *all, struct schema_part p)
{
    for (uint32_t i = 0; i < all->n; i++)
        if (all->part[i].node == p.node) { /* what was seen to in one place is seen to in the other */
            all->part[i].done |= p.done;
            return;
        }
    if (all->n == SCHEMA_PARTS_MAX) {
        schema_fail(s, "allOf", "more than %d schemas hold at once", SCHEMA_PARTS_MAX);
        return;
    }
    if (all->n == all->room) {
        uint32_t            want = all->room ? 2 * all->room : 4;
        struct schema_part *more = arena_calloc(&s->arena, want, sizeof *more);
        if (!more) {
            schema_fail(s, "", "it takes more memory than is allowed");
            return;
        }
        if (all->n) memcpy(more, all->part, all->n * sizeof *more);
        all->part = more;
        all->room = want;
    }
    all->part[all->n++] = p;
}

static void add_ref(struct schema *s, struct schema_all *all, const json_t *node, const json_t *ref)
{
    const char   *text = json_string_value(ref);
    const json_t *target = text ? find(s, text) : NULL;
    if (!text) {
        schema_fail(s, "$ref", "a string is needed");
        return;
    }
    if (!target) {
        schema_fail(s, "$ref", "'%.60s' is not within this schema", text);
        return;
    }
    for (uint32_t i = 0; i < s->n_chain; i++)
        if (s->chain[i] == target || target == node) {
            schema_fail(s, "$ref", "'%.60s' refers to itself: no text at all satisfies it", text);
            return;
        }
    if (s->n_chain == SCHEMA_REFS_MAX) {
        schema_fail(s, "$ref", "more than %d references in a row", SCHEMA_REFS_MAX);
        return;
    }
    s->chain[s->n_chain++] = target;
    schema_add(s, all, target);
    s->n_chain--;
}

void schema_add(struct schema *s, struct schema_all *all, const json_t *node)
{
    const json_t *was = s->node;
    if (s->failed || json_is_true(node)) return;
    if (s->n_add++ == SCHEMA_ADDS_MAX) schema_fail(s, "", "more than %d steps over $ref and allOf", SCHEMA_ADDS_MAX);
    if (json_is_false(node)) {
        all->nothing = true;
        return;
    }
    s->node = node;
    if (!json_is_object(node)) {
        schema_fail(s, "", "a schema is an object or a boolean");
        return;
    }
    bool               idle = !json_object_get(node, "then") && !json_object_get(node, "else"); /* an `if` then is */
    struct schema_part p = { node, idle ? DONE_IF : 0 };
    const json_t      *ref = json_object_get(node, "$ref"), *list = json_object_get(node, "allOf");
    for (size_t i = 0; i < sizeof beyond / sizeof *beyond; i++)
        if (json_object_get(node, beyond[i])) schema_beyond(s, beyond[i], "this keyword cannot be enforced");
    if (!schema_is_spent(p)) schema_part_add(s, all, p);
    if (ref) add_ref(s, all, node, ref);
    s->node = node;
    if (list && !json_is_array(list)) schema_fail(s, "allOf", "a list of schemas is needed");
    for (size_t i = 0; i < json_array_size(list); i++) schema_add(s, all, json_array_get(list, i));
    s->node = was;
}

/* ---------------------------------------------------------------- apart */

static bool types_apart(const json_t *a, const json_t *b)
{
    const json_t *ta = json_object_get(a, "type"), *tb = json_object_get(b, "type");
    if (!json_is_string(ta) || !json_is_string(tb) || json_equal(ta, tb)) return false;
    return !(json_str_is(ta, "integer") && json_str_is(tb, "number")) &&
           !(json_str_is(ta, "number") && json_str_is(tb, "integer"));
}

/* Do const or enum of both have no value in common? */
static bool values_apart(const json_t *a, const json_t *b)
{
    const json_t *va = json_object_get(a, "const"), *vb = json_object_get(b, "const");
    const json_t *ea = json_object_get(a, "enum"), *eb = json_object_get(b, "enum");
    if ((!va && !json_is_array(ea)) || (!vb && !json_is_array(eb))) return false;
    size_t           n = va ? 1 : json_array_size(ea), m = vb ? 1 : json_array_size(eb);
    bool             apart = true;
    struct value_set of_a;
    if (n == 1 && m == 1) return !schema_equal(va ? va : json_array_get(ea, 0), vb ? vb : json_array_get(eb, 0));
    value_set_init(&of_a);
    for (size_t i = 0; i < n; i++) value_set_add(&of_a, va ? va : json_array_get(ea, i));
    for (size_t k = 0; k < m && apart; k++) apart = !value_set_has(&of_a, vb ? vb : json_array_get(eb, k));
    apart = apart && !of_a.failed;
    value_set_free(&of_a);
    return apart;
}

bool schema_disjoint(struct schema *s, const json_t *a, const json_t *b)
{
    a = schema_target(s, a);
    b = schema_target(s, b);
    if (json_is_false(a) || json_is_false(b)) return true;
    if (!json_is_object(a) || !json_is_object(b)) return false;
    if (types_apart(a, b) || values_apart(a, b)) return true;
    const json_t *required = json_object_get(a, "required"), *other = json_object_get(b, "required");
    bool          objects =
        json_str_is(json_object_get(a, "type"), "object") || json_str_is(json_object_get(b, "type"), "object");
    for (size_t i = 0; i < json_array_size(required) && objects; i++) {
        const json_t *name = json_array_get(required, i);
        bool          both = false;
        for (size_t k = 0; k < json_array_size(other); k++) both = both || json_equal(name, json_array_get(other, k));
        if (!both || !json_is_string(name)) continue;
        const json_t *pa = json_object_get(json_object_get(a, "properties"), json_string_value(name));
        const json_t *pb = json_object_get(json_object_get(b, "properties"), json_string_value(name));
        if (values_apart(pa, pb) || types_apart(pa, pb)) return true;
    }
    return false;
}
