#include "api/callvalue.h"
#include "api/pointer.h"
#include "api/schema/chars.h"
#include "api/schema/regex.h"
#include "api/schema/schema.h"
#include "engine/grammar/rx_texts.h"
#include <stdio.h>
#include <string.h>

enum { DEPTH_MAX = 16, STEP_MAX = 200 };
#define NO_SYMBOL UINT32_MAX

struct value {
    struct gr_rules             *r;
    struct rx                   *x;
    const json_t                *root;
    struct pointer               at; /* of its schema in that of the whole */
    const struct callvalue_form *form;
    uint8_t                      kinds;
    uint32_t                     text; /* expression: the strings so far */
    json_t                      *data; /* list of the schemas of other values */
    bool                         failed;
    char                        *err;
};

static void fail(struct value *v, const char *keyword, const char *why)
{
    if (v->failed) return;
    v->failed = true;
    if (*keyword) pointer_key(&v->at, keyword);
    snprintf(v->err, CALLVALUE_ERR, "at '%s': %s", v->at.text, why);
}

/* ---------------------------------------------------------------- references */

static json_t *bent(const json_t *v);

static json_t *bent_member(const char *key, const json_t *v)
{
    const char *s = json_string_value(v);
    if (strcmp(key, "$ref") != 0 || !s || *s != '#') return bent(v);
    return json_sprintf("#/" SCHEMA_ROOT "%s", s + 1);
}

/* A copy whose references lead into SCHEMA_ROOT. */
static json_t *bent(const json_t *v)
{
    const char *key;
    json_t     *member, *copy;
    if (json_is_array(v)) {
        copy = json_array();
        for (size_t i = 0; i < json_array_size(v); i++) json_array_append_new(copy, bent(json_array_get(v, i)));
        return copy;
    }
    if (!json_is_object(v)) return json_deep_copy(v);
    copy = json_object();
    json_object_foreach((json_t *)(uintptr_t)v, key, member)
        json_object_set_new_nocheck(copy, key, bent_member(key, member));
    return copy;
}

json_t *callvalue_root(const json_t *schema) { return bent(schema); }

static const json_t *target_of(const struct value *v, const json_t *ref)
{
    const char   *s = json_string_value(ref);
    const json_t *at = v->root;
    size_t        n = strlen("#/" SCHEMA_ROOT);
    if (!s || strncmp(s, "#/" SCHEMA_ROOT, n) != 0) return NULL;
    for (s += n; at && *s == '/';) {
        char   step[STEP_MAX];
        size_t k = strcspn(++s, "/");
        if (k >= sizeof step || memchr(s, '~', k)) return NULL;
        memcpy(step, s, k);
        step[k] = 0;
        at = json_object_get(at, step);
        s += k;
    }
    return at;
}

/* ---------------------------------------------------------------- strings */

static uint32_t of_regex(struct value *v, const char *keyword, const char *s, bool search)
{
    char              why[REGEX_ERR];
    uint32_t          r = RX_NONE;
    struct regex_form form = { .search = search, .json = false };
    if (regex_rx(v->x, s, strlen(s), form, &r, why)) fail(v, keyword, why);
    return r;
}

static uint32_t count_of(struct value *v, const json_t *node, const char *keyword, uint32_t absent)
{
    const json_t *n = json_object_get(node, keyword);
    if (!n) return absent;
    if (json_is_integer(n) && json_integer_value(n) >= 0 && json_integer_value(n) <= 1000000000)
        return (uint32_t)json_integer_value(n);
    fail(v, keyword, "a count is needed");
    return absent;
}

/* Any characters but U+0000. */
static uint32_t of_string(struct value *v, const json_t *node)
{
    struct chars  any = { .n = 0 };
    const json_t *pattern = json_object_get(node, "pattern"), *format = json_object_get(node, "format");
    uint32_t      least = count_of(v, node, "minLength", 0), most = count_of(v, node, "maxLength", RX_MANY);
    chars_add(&any, 1, RX_CODE_POINT_MAX);
    if (most < least) fail(v, "maxLength", "it is less than minLength");
    uint32_t r = rx_repeat(v->x, chars_rx(v->x, &any, false), least, most < least ? least : most);
    if (json_is_string(pattern)) r = rx_and2(v->x, r, of_regex(v, "pattern", json_string_value(pattern), true));
    const char *known = json_is_string(format) ? schema_format(json_string_value(format)) : NULL;
    return known ? rx_and2(v->x, r, of_regex(v, "format", known, false)) : r;
}

static uint32_t words(struct value *v, const char *const *word, size_t n)
{
    uint32_t r = RX_NONE;
    for (size_t i = 0; i < n; i++) r = rx_or2(v->x, r, rx_of_bytes(v->x, word[i], strlen(word[i])));
    return r;
}

/* Texts that the reader of answers takes for something else than a string (put_typed in calls_value.c). */
static uint32_t other_kinds(struct value *v)
{
    static const char *const bools[] = { "true", "True", "false", "False" }, *const null[] = { "null" };
    uint32_t r = RX_NONE, blank = of_regex(v, "", "[ \\t\\r\\n]*", false), any = RX_ALL;
    if (v->kinds & CALLS_NULL) r = rx_or2(v->x, r, words(v, null, 1));
    if (v->kinds & CALLS_BOOL) r = rx_or2(v->x, r, words(v, bools, 4));
    if (v->kinds & (CALLS_INTEGER | CALLS_NUMBER))
        r = rx_or2(v->x, r, of_regex(v, "", "-?[0-9]+(\\.[0-9]+)?([eE][+-]?[0-9]+)?", false));
    if (v->kinds & CALLS_OBJECT) r = rx_or2(v->x, r, rx_cat(v->x, rx_of_byte(v->x, '{'), any));
    if (v->kinds & CALLS_ARRAY) r = rx_or2(v->x, r, rx_cat(v->x, rx_of_byte(v->x, '['), any));
    return rx_cat(v->x, blank, rx_cat(v->x, r, blank));
}

static uint32_t all_texts(struct value *v)
{
    uint32_t r = v->text;
    for (uint32_t i = 0; i < v->form->n_stop; i++) {
        uint32_t stop = rx_of_bytes(v->x, v->form->stop[i], strlen(v->form->stop[i]));
        r = rx_and2(v->x, r, rx_not(v->x, rx_cat(v->x, RX_ALL, rx_cat(v->x, stop, RX_ALL))));
    }
    if (v->form->typed && v->kinds != CALLS_STRING) r = rx_and2(v->x, r, rx_not(v->x, other_kinds(v)));
    return r;
}

/* ---------------------------------------------------------------- alternatives of a schema */

static bool is_note(const char *key)
{
    static const char *const notes[] = { "title",    "description", "default",    "examples",  "example",
                                         "$comment", "deprecated",  "readOnly",   "writeOnly", "$defs",
                                         "$schema",  "$id",         "definitions" };
    for (size_t i = 0; i < sizeof notes / sizeof *notes; i++)
        if (!strcmp(key, notes[i])) return true;
    return !strncmp(key, "x-", 2);
}

/* Only `key`, `other` and annotations. */
static bool stands_alone(const json_t *node, const char *key, const char *other)
{
    const char *name;
    json_t     *value;
    json_object_foreach((json_t *)(uintptr_t)node, name, value)
    {
        (void)value;
        if (strcmp(name, key) != 0 && (!other || strcmp(name, other) != 0) && !is_note(name)) return false;
    }
    return true;
}

static bool names_type(const json_t *node, const char *name)
{
    const json_t *type = json_object_get(node, "type");
    for (size_t i = 0; i < json_array_size(type); i++)
        if (json_str_is(json_array_get(type, i), name)) return true;
    return json_str_is(type, name);
}

static void add_data(struct value *v, json_t *schema) { json_array_append_new(v->data, schema); }

/* enum, const: strings by themselves. */
static void add_values(struct value *v, const json_t *node, const char *key)
{
    const json_t   *list = json_object_get(node, key);
    bool            one = !strcmp(key, "const"), typed = json_object_get(node, "type") != NULL;
    json_t         *rest = json_array();
    struct rx_texts texts;
    rx_texts_init(&texts, v->x);
    if (!stands_alone(node, key, "type")) fail(v, key, "other keywords beside it cannot be enforced in this notation");
    for (size_t i = 0; i < (one ? 1 : json_array_size(list)); i++) {
        json_t *value = one ? (json_t *)(uintptr_t)list : json_array_get(list, i);
        if (!json_is_string(value)) {
            json_array_append(rest, value);
        } else if (!typed || names_type(node, "string")) {
            rx_texts_bytes(&texts, json_string_value(value), json_string_length(value));
            rx_texts_end(&texts);
        }
    }
    v->text = rx_or2(v->x, v->text, rx_texts_any(&texts));
    rx_texts_free(&texts);
    if (json_array_size(rest)) {
        json_t *schema = json_pack("{s:O}", "enum", rest);
        if (typed) json_object_set(schema, "type", json_object_get(node, "type"));
        add_data(v, schema);
    }
    json_decref(rest);
}

/* A schema with a list of types: the one without "string" for data. */
static json_t *without_string(const json_t *node)
{
    json_t *copy = json_copy((json_t *)(uintptr_t)node), *types = json_array(), *type = json_object_get(node, "type");
    for (size_t i = 0; i < json_array_size(type); i++)
        if (!json_str_is(json_array_get(type, i), "string")) json_array_append(types, json_array_get(type, i));
    json_object_set_new(copy, "type", types);
    return copy;
}

static void add(struct value *v, const json_t *node, int depth);

static void add_branches(struct value *v, const json_t *node, const char *key, int depth)
{
    const json_t *list = json_object_get(node, key);
    if (!stands_alone(node, key, NULL)) fail(v, key, "other keywords beside it cannot be enforced in this notation");
    for (size_t i = 0; i < json_array_size(list); i++) add(v, json_array_get(list, i), depth + 1);
}

static void add_string(struct value *v, const json_t *node)
{
    static const char *const beyond[] = { "not", "if", "allOf", "anyOf", "oneOf", "$ref" };
    for (size_t i = 0; i < sizeof beyond / sizeof *beyond; i++)
        if (json_object_get(node, beyond[i]))
            fail(v, beyond[i], "beside a string it cannot be enforced in this notation");
    v->text = rx_or2(v->x, v->text, of_string(v, node));
}

static void add(struct value *v, const json_t *node, int depth)
{
    const json_t *ref = json_object_get(node, "$ref"), *type = json_object_get(node, "type");
    if (depth > DEPTH_MAX) fail(v, "$ref", "too many references");
    if (v->failed) return;
    if (ref && stands_alone(node, "$ref", NULL) && target_of(v, ref)) {
        add(v, target_of(v, ref), depth + 1);
    } else if (json_object_get(node, "enum") || json_object_get(node, "const")) {
        add_values(v, node, json_object_get(node, "enum") ? "enum" : "const");
    } else if (json_object_get(node, "anyOf")) {
        add_branches(v, node, "anyOf", depth);
    } else if (json_str_is(type, "string")) {
        add_string(v, node);
    } else if (json_is_array(type) && names_type(node, "string")) {
        add_string(v, node);
        json_t *rest = without_string(node);
        if (json_array_size(json_object_get(rest, "type")))
            add_data(v, rest);
        else
            json_decref(rest);
    } else if (type || !(v->kinds & CALLS_STRING)) {
        add_data(v, json_incref((json_t *)(uintptr_t)node));
    } else if (json_object_get(node, "oneOf") || json_object_get(node, "allOf") || json_object_get(node, "not") ||
               ref) {
        fail(v, "", "what may be a string or not cannot be enforced in this notation of calls");
    } else {
        add_string(v, node);
    }
}

/* ---------------------------------------------------------------- other values */

static bool is_flat(const struct value *v, const json_t *node)
{
    const json_t *type = json_object_get(node, "type"), *list = json_object_get(node, "enum");
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_is_object(json_array_get(list, i)) || json_is_array(json_array_get(list, i))) return false;
    if (list) return true;
    if (!type || names_type(node, "object") || names_type(node, "string")) return false;
    const json_t *ref = json_object_get(json_object_get(node, "items"), "$ref");
    const json_t *items = ref ? target_of(v, ref) : json_object_get(node, "items");
    return !names_type(node, "array") || (items && is_flat(v, items));
}

static uint32_t data_symbol(struct value *v, const json_t *node)
{
    char     why[SCHEMA_ERR] = "";
    uint32_t symbol = NO_SYMBOL;
    json_t  *alone = json_is_object(node) ? json_copy((json_t *)(uintptr_t)node) : json_object();
    json_object_set(alone, SCHEMA_ROOT, (json_t *)(uintptr_t)v->root);
    if (v->form->flat && !is_flat(v, node)) {
        fail(v, "", "objects, and lists of other than numbers, cannot be enforced in this notation of calls");
    } else if (schema_rules(v->r, alone, (struct schema_form){ .at = v->at.text, .big = v->form->big }, &symbol, why)) {
        v->failed = true;
        snprintf(v->err, CALLVALUE_ERR, "%s", why);
    }
    json_decref(alone);
    return symbol;
}

static void add_all(struct value *v, const json_t *node, struct callvalue *out)
{
    if (v->form->quoted) {
        out->data = data_symbol(v, node);
        return;
    }
    add(v, node, 0);
    size_t n = json_array_size(v->data);
    if (v->failed) return;
    if (v->text != RX_NONE) out->text = gr_terminal(v->r, all_texts(v));
    if (n) out->data = gr_rule(v->r);
    for (size_t i = 0; i < n && !v->failed; i++) {
        uint32_t one = data_symbol(v, json_array_get(v->data, i));
        if (!v->failed) gr_alt(v->r, out->data, &one, 1);
    }
    if (v->form->typed &&
        ((n && !(v->kinds & ~CALLS_STRING)) || (out->text != NO_SYMBOL && !(v->kinds & CALLS_STRING))))
        fail(v, "", "its type cannot be told in this notation of calls");
}

enum status callvalue_rules(struct gr_rules *r, const json_t *root, const char *key, uint8_t kinds,
                            const struct callvalue_form *form, struct callvalue *out, char err[CALLVALUE_ERR])
{
    const json_t *node = json_object_get(json_object_get(root, "properties"), key);
    struct value  v = { .r = r, .x = gr_rx(r), .root = root, .form = form, .kinds = kinds, .err = err };
    pointer_key(&v.at, "properties");
    pointer_key(&v.at, key);
    out->text = out->data = NO_SYMBOL;
    v.text = RX_NONE;
    v.data = json_array();
    add_all(&v, node, out);
    json_decref(v.data);
    return v.failed ? ST_INVALID : ST_OK;
}
