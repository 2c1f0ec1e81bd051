#include "api/calls/calls_tool.h"
#include "base/json.h"
#include <stdlib.h>
#include <string.h>

enum { REF_DEPTH_MAX = 16, PATH_MAX_BYTES = 512 };

bool calls_name_good(const char *name, size_t n, size_t max)
{
    if (!n || n > max) return false;
    for (size_t i = 0; i < n; i++) {
        char c = name[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!letter && !memchr("_-.:", c, 4)) return false;
    }
    return true;
}

/* ---------------------------------------------------------------- kinds of a schema */

static uint8_t kind_of_name(const json_t *v)
{
    static const struct {
        const char *name;
        uint8_t     kind;
    } names[] = {
        { "null", CALLS_NULL },     { "boolean", CALLS_BOOL }, { "integer", CALLS_INTEGER }, { "number", CALLS_NUMBER },
        { "object", CALLS_OBJECT }, { "array", CALLS_ARRAY },  { "string", CALLS_STRING },
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (json_str_is(v, names[i].name)) return names[i].kind;
    return 0;
}

static uint8_t kind_of_value(const json_t *v)
{
    static const uint8_t kinds[] = {
        [JSON_OBJECT] = CALLS_OBJECT,   [JSON_ARRAY] = CALLS_ARRAY, [JSON_STRING] = CALLS_STRING,
        [JSON_INTEGER] = CALLS_INTEGER, [JSON_REAL] = CALLS_NUMBER, [JSON_TRUE] = CALLS_BOOL,
        [JSON_FALSE] = CALLS_BOOL,      [JSON_NULL] = CALLS_NULL,
    };
    return kinds[json_typeof(v)];
}

/* What "#/a/b" names in root; NULL: nothing, or another document. */
static const json_t *follow(const json_t *root, const json_t *ref)
{
    const char *s = json_string_value(ref);
    char        part[PATH_MAX_BYTES];
    if (!s || *s != '#') return NULL;
    for (s++; root && *s == '/';) {
        size_t k = 0;
        for (s++; *s && *s != '/'; s++) {
            if (k + 1 >= sizeof part) return NULL;
            bool escaped = *s == '~' && (s[1] == '0' || s[1] == '1');
            part[k++] = *s;
            if (!escaped) continue;
            s++;
            part[k - 1] = *s == '0' ? '~' : '/';
        }
        part[k] = 0;
        root = json_object_get(root, part);
    }
    return *s ? NULL : root;
}

static uint8_t kinds_of(const json_t *root, const json_t *schema, int depth)
{
    static const char *const unions[] = { "anyOf", "oneOf", "allOf" };
    const json_t            *type = json_object_get(schema, "type"), *ref = json_object_get(schema, "$ref");
    uint8_t                  kinds = kind_of_name(type);
    if (depth > REF_DEPTH_MAX) return CALLS_STRING;
    for (size_t i = 0; i < json_array_size(type); i++) kinds |= kind_of_name(json_array_get(type, i));
    if (kinds) return kinds;
    if (ref) {
        const json_t *there = follow(root, ref);
        return there ? kinds_of(root, there, depth + 1) : CALLS_STRING;
    }
    for (size_t u = 0; u < sizeof unions / sizeof *unions; u++) {
        const json_t *list = json_object_get(schema, unions[u]);
        for (size_t i = 0; i < json_array_size(list) && i < CALLS_PROPS_MAX; i++)
            kinds |= kinds_of(root, json_array_get(list, i), depth + 4);
    }
    if (kinds) return kinds;
    const json_t *values = json_object_get(schema, "enum"), *one = json_object_get(schema, "const");
    for (size_t i = 0; i < json_array_size(values); i++) kinds |= kind_of_value(json_array_get(values, i));
    if (one) kinds |= kind_of_value(one);
    if (kinds) return kinds;
    if (json_object_get(schema, "items")) return CALLS_ARRAY;
    if (json_object_get(schema, "properties")) return CALLS_OBJECT;
    return CALLS_STRING;
}

/* ---------------------------------------------------------------- a tool */

static int by_name(const void *a, const void *b)
{
    const struct calls_prop *x = a, *y = b;
    int                      c = memcmp(x->name, y->name, x->n < y->n ? x->n : y->n);
    return c ? c : (x->n > y->n) - (x->n < y->n);
}

enum status calls_tool_props(struct calls_tool *t, const json_t *schema, struct arena *a)
{
    json_t *props = json_object_get(schema, "properties");
    size_t  n = json_object_size(props);
    if (n > CALLS_PROPS_MAX) n = CALLS_PROPS_MAX;
    t->n_prop = 0;
    if (!(t->prop = arena_calloc(a, n + 1, sizeof *t->prop))) return ST_NOMEM;
    for (void *it = json_object_iter(props); it && t->n_prop < n; it = json_object_iter_next(props, it)) {
        struct calls_prop *p = &t->prop[t->n_prop++];
        p->n = json_object_iter_key_len(it);
        p->kinds = kinds_of(schema, json_object_iter_value(it), 0);
        if (!(p->name = arena_strndup(a, json_object_iter_key(it), p->n))) return ST_NOMEM;
    }
    qsort(t->prop, t->n_prop, sizeof *t->prop, by_name);
    return ST_OK;
}

const struct calls_tool *calls_tool_find(const struct calls_tools *tools, const char *name, size_t n)
{
    for (uint32_t i = 0; tools && i < tools->n; i++)
        if (tools->tool[i].n == n && !memcmp(tools->tool[i].name, name, n)) return &tools->tool[i];
    return NULL;
}

uint8_t calls_tool_kinds(const struct calls_tool *t, const char *key, size_t n)
{
    const struct calls_prop want = { .name = key, .n = n }, *p = NULL;
    if (t && t->n_prop) p = bsearch(&want, t->prop, t->n_prop, sizeof *t->prop, by_name);
    return p ? p->kinds : CALLS_STRING;
}
