#include "server/config_translate.h"
#include "base/json.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct words {
    struct arena *arena;
    const char  **at;
    int           n;
};

static bool add(struct words *w, const char *text, size_t n)
{
    char *copy = w->n < TRANSLATE_WORDS_MAX ? arena_strndup(w->arena, text, n) : NULL;
    if (!copy) return false;
    w->at[w->n++] = copy;
    return true;
}

/* Options whose value is JSON by itself. */
static bool is_one_word(const char *option)
{
    static const char *const names[] = { "--allowed-origins", "--allowed-methods", "--allowed-headers",
                                         "--middleware" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(names[i], option)) return true;
    return false;
}

static bool add_element(struct words *w, const json_t *v)
{
    if (json_is_null(v)) return add(w, "", 0);
    if (json_is_string(v)) return add(w, json_string_value(v), json_string_length(v));
    char *text = json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY);
    bool  ok = text && add(w, text, strlen(text));
    free(text);
    return ok;
}

/* Bytes of the object at the beginning of s, strings with braces in them included; 0: it does not end. */
static size_t object_bytes(const char *s)
{
    unsigned depth = 0;
    bool     quoted = false;
    for (size_t i = 0; s[i]; i++) {
        if (quoted && s[i] == '\\' && s[i + 1]) {
            i++;
        } else if (s[i] == '"') {
            quoted = !quoted;
        } else if (!quoted && s[i] == '{') {
            depth++;
        } else if (!quoted && s[i] == '}' && --depth == 0) {
            return i + 1;
        }
    }
    return 0;
}

static bool is_object(const char *s, size_t n)
{
    struct json_error e;
    json_t           *v = json_parse(s, n, 0, &e);
    bool              is = json_is_object(v);
    json_decref(v);
    return is;
}

/* "{..} {..}" -> a word for each; false: it is something else, and nothing was added. */
static bool add_objects(struct words *w, const char *value)
{
    int before = w->n;
    for (const char *p = value; *p;) {
        size_t n = *p == '{' ? object_bytes(p) : 0;
        if (!n || !is_object(p, n) || !add(w, p, n)) {
            w->n = before;
            return false;
        }
        for (p += n; isspace((unsigned char)*p); p++) {}
    }
    return w->n > before;
}

/* -1: no array; else whether all of it was added. */
static int add_array(struct words *w, const char *value)
{
    struct json_error e;
    json_t           *v = *value == '[' ? json_parse(value, strlen(value), 0, &e) : NULL;
    int               ok = json_is_array(v) ? 1 : -1;
    for (size_t i = 0; ok == 1 && i < json_array_size(v); i++) ok = add_element(w, json_array_get(v, i));
    json_decref(v);
    return ok;
}

static bool add_name(struct words *w, const char *name, size_t n)
{
    char *option = arena_alloc(w->arena, n + 3);
    if (!option) return false;
    memcpy(option, "--", 2);
    for (size_t i = 0; i < n; i++) option[2 + i] = name[i] == '_' ? '-' : (char)tolower((unsigned char)name[i]);
    option[2 + n] = 0;
    w->at[w->n++] = option;
    return true;
}

int config_translate(struct arena *a, const char *name, size_t n, const char *value,
                     const char *word_out[TRANSLATE_WORDS_MAX])
{
    struct words w = { .arena = a, .at = word_out };
    if (!strcasecmp(value, "false")) return 0;
    if (!add_name(&w, name, n)) return -1;
    if (!*value || !strcasecmp(value, "true")) return w.n;
    if (!is_one_word(word_out[0])) {
        int all = add_array(&w, value);
        if (all == 0) return -1;
        if (all == 1) return w.n > 1 ? w.n : 0;
        if (add_objects(&w, value)) return w.n;
    }
    return add(&w, value, strlen(value)) ? w.n : -1;
}
