#include "api/callschema.h"
#include "base/json.h"
#include <string.h>

enum { REFS_MAX = 16 };

static const json_t *inside(const json_t *root, const json_t *ref)
{
    const char *s = json_string_value(ref);
    if (!s || *s++ != '#') return NULL;
    while (root && *s == '/') {
        char   key[200];
        size_t n = strcspn(++s, "/");
        if (n >= sizeof key) return NULL;
        memcpy(key, s, n);
        key[n] = 0;
        root = json_object_get(root, key);
        s += n;
    }
    return root;
}

static bool is_of_objects(const json_t *root, const json_t *schema, int depth)
{
    static const char *const unions[] = { "anyOf", "oneOf" };
    const json_t            *type = json_object_get(schema, "type");
    if (depth > REFS_MAX) return false;
    if (type) return json_str_is(type, "object");
    if (json_object_get(schema, "$ref"))
        return is_of_objects(root, inside(root, json_object_get(schema, "$ref")), depth + 1);
    const json_t *all = json_object_get(schema, "allOf");
    for (size_t i = 0; i < json_array_size(all); i++)
        if (is_of_objects(root, json_array_get(all, i), depth + 1)) return true;
    for (size_t u = 0; u < sizeof unions / sizeof *unions; u++) {
        const json_t *list = json_object_get(schema, unions[u]);
        size_t        n = json_array_size(list), good = 0;
        while (good < n && is_of_objects(root, json_array_get(list, good), depth + 1)) good++;
        if (n && good == n) return true;
    }
    return json_object_get(schema, "properties") || json_object_get(schema, "required");
}

bool callschema_says_nothing(const json_t *schema)
{
    static const char *const said[] = {
        "type",  "properties", "required", "additionalProperties", "$ref", "anyOf", "oneOf", "allOf", "enum",
        "const", "not",        "if",       "patternProperties"
    };
    for (size_t i = 0; i < sizeof said / sizeof *said; i++)
        if (json_object_get(schema, said[i])) return false;
    return true;
}

bool callschema_is_of_objects(const json_t *schema) { return is_of_objects(schema, schema, 0); }
