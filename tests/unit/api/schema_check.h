/* schema_check: does a value satisfy a JSON schema? For the few keywords that the tests' tools use; a program of its
 * own, beside the grammars that are tested with it. */
#pragma once
#include "base/json.h"
#include <string.h>

static inline size_t check_chars(const json_t *v)
{
    size_t n = 0;
    for (const char *s = json_string_value(v); *s; s++) n += ((unsigned char)*s & 0xC0) != 0x80;
    return n;
}

static inline bool check_type(const json_t *type, const json_t *v)
{
    if (json_is_array(type)) {
        for (size_t i = 0; i < json_array_size(type); i++)
            if (check_type(json_array_get(type, i), v)) return true;
        return false;
    }
    return (json_str_is(type, "object") && json_is_object(v)) || (json_str_is(type, "array") && json_is_array(v)) ||
           (json_str_is(type, "string") && json_is_string(v)) || (json_str_is(type, "integer") && json_is_integer(v)) ||
           (json_str_is(type, "number") && json_is_number(v)) || (json_str_is(type, "boolean") && json_is_boolean(v)) ||
           (json_str_is(type, "null") && json_is_null(v));
}

static inline bool schema_check(const json_t *root, const json_t *s, const json_t *v);

static inline bool check_among(const json_t *list, const json_t *v)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_equal(json_array_get(list, i), v)) return true;
    return false;
}

static inline bool check_members(const json_t *root, const json_t *s, const json_t *v)
{
    const json_t *named = json_object_get(s, "properties"), *required = json_object_get(s, "required");
    const char   *key;
    json_t       *member;
    for (size_t i = 0; i < json_array_size(required); i++)
        if (!json_object_get(v, json_string_value(json_array_get(required, i)))) return false;
    json_object_foreach((json_t *)(uintptr_t)v, key, member)
    {
        const json_t *one = json_object_get(named, key);
        if (!one && named) return false; /* objects with properties are closed */
        if (one && !schema_check(root, one, member)) return false;
    }
    return true;
}

static inline bool schema_check(const json_t *root, const json_t *s, const json_t *v)
{
    const json_t *ref = json_object_get(s, "$ref"), *any = json_object_get(s, "anyOf"), *limit;
    if (ref) return schema_check(root, json_object_get(json_object_get(root, "$defs"), json_string_value(ref) + 8), v);
    if (any) {
        for (size_t i = 0; i < json_array_size(any); i++)
            if (schema_check(root, json_array_get(any, i), v)) return true;
        return false;
    }
    if (json_object_get(s, "enum") && !check_among(json_object_get(s, "enum"), v)) return false;
    if (json_object_get(s, "type") && !check_type(json_object_get(s, "type"), v)) return false;
    if ((limit = json_object_get(s, "minimum")) && json_number_value(v) < json_number_value(limit)) return false;
    if ((limit = json_object_get(s, "maximum")) && json_number_value(v) > json_number_value(limit)) return false;
    if ((limit = json_object_get(s, "maxLength")) && check_chars(v) > (size_t)json_integer_value(limit)) return false;
    if ((limit = json_object_get(s, "minLength")) && check_chars(v) < (size_t)json_integer_value(limit)) return false;
    if ((limit = json_object_get(s, "maxItems")) && json_array_size(v) > (size_t)json_integer_value(limit))
        return false;
    for (size_t i = 0; i < json_array_size(v) && json_object_get(s, "items"); i++)
        if (!schema_check(root, json_object_get(s, "items"), json_array_get(v, i))) return false;
    return !json_is_object(v) || check_members(root, s, v);
}
