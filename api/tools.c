#include "api/tools.h"
#include "api/family.h"
#include <stdio.h>
#include <string.h>

enum { TOOLS_MAX = 128, TOOLS_BYTES_MAX = 1 << 20, NAME_MAX_BYTES = 64, FIELD_BYTES = 64 };

static bool absent(const json_t *v) { return !v || json_is_null(v); }

/* ---------------------------------------------------------------- one tool */

static enum status check_parameters(const json_t *f, const char *at, struct api_error *e)
{
    char          field[2 * FIELD_BYTES];
    const json_t *parameters = json_object_get(f, "parameters"), *strict = json_object_get(f, "strict");
    const json_t *description = json_object_get(f, "description");
    if (!absent(parameters) && !json_is_object(parameters)) {
        snprintf(field, sizeof field, "%s.parameters", at);
        return api_fail(e, 400, field, "'%s' must be a JSON schema, which is an object", field);
    }
    if (!absent(description) && !json_is_string(description)) {
        snprintf(field, sizeof field, "%s.description", at);
        return api_fail(e, 400, field, "'%s' must be a string", field);
    }
    if (absent(strict) || json_is_false(strict)) return ST_OK;
    snprintf(field, sizeof field, "%s.strict", at);
    if (!json_is_true(strict)) return api_fail(e, 400, field, "'%s' must be true or false", field);
    return ST_OK;
}

static enum status check_name(const struct calls_tools *t, const json_t *f, const char *at, struct api_error *e)
{
    char          field[2 * FIELD_BYTES];
    const json_t *name = json_object_get(f, "name");
    snprintf(field, sizeof field, "%s.name", at);
    if (!json_is_string(name) || !calls_name_good(json_string_value(name), json_string_length(name), NAME_MAX_BYTES))
        return api_fail(e, 400, field, "'%s' must have 1 to %d letters, digits or any of _-.:", field, NAME_MAX_BYTES);
    if (calls_tool_find(t, json_string_value(name), json_string_length(name)))
        return api_fail(e, 400, field, "'%s' is the name of an earlier tool", field);
    return ST_OK;
}

/* A custom tool takes free text: models see a function with one string. */
static json_t *as_function(const json_t *custom)
{
    json_t *description = json_object_get(custom, "description");
    return json_pack("{s:s,s:O,s:O*,s:{s:s,s:{s:{s:s}},s:[s]}}", "type", "function", "name",
                     json_object_get(custom, "name"), "description", json_is_string(description) ? description : NULL,
                     "parameters", "type", "object", "properties", "input", "type", "string", "required", "input");
}

/* The form of a custom tool's text into x: {"type":"grammar","grammar":{"syntax","definition"}}, or flat as in the
 * Responses API. */
static enum status read_form(struct call *c, struct calls_tool *x, const json_t *custom, const char *at,
                             struct api_error *e)
{
    char          field[2 * FIELD_BYTES];
    const json_t *format = json_object_get(custom, "format");
    if (absent(format) || json_str_is(json_object_get(format, "type"), "text")) return ST_OK;
    snprintf(field, sizeof field, "%s.format", at);
    if (!json_str_is(json_object_get(format, "type"), "grammar"))
        return api_fail(e, 400, field, "'%s' must have the type \"text\" or \"grammar\"", field);
    const json_t *grammar = json_object_get(format, "grammar");
    if (!json_is_object(grammar)) grammar = format;
    const json_t *syntax = json_object_get(grammar, "syntax"), *definition = json_object_get(grammar, "definition");
    x->regex = json_str_is(syntax, "regex");
    if (!x->regex && !json_str_is(syntax, "lark"))
        return api_fail(e, 400, field, "the 'syntax' of '%s' must be \"lark\" or \"regex\"", field);
    if (!json_string_length(definition))
        return api_fail(e, 400, field, "the 'definition' of '%s' must be a string that is not empty", field);
    x->strict = true;
    x->n_grammar = json_string_length(definition);
    x->grammar = arena_strndup(&c->arena, json_string_value(definition), x->n_grammar);
    return x->grammar ? ST_OK : ST_NOMEM;
}

/* Tool i into shown (what the template sees) and into t. */
static enum status read_tool(struct call *c, struct calls_tools *t, json_t *tool, size_t i, json_t *shown,
                             struct api_error *e)
{
    char          at[FIELD_BYTES];
    const json_t *type = json_object_get(tool, "type");
    bool          custom = json_str_is(type, "custom");
    json_t       *f = json_object_get(tool, custom ? "custom" : "function");
    snprintf(at, sizeof at, "tools[%zu]", i);
    if (!json_is_object(tool) || (!custom && !json_str_is(type, "function")))
        return api_fail(e, 400, at, "'%s' must be an object of the type \"function\" or \"custom\"", at);
    snprintf(at, sizeof at, "tools[%zu].%s", i, custom ? "custom" : "function");
    if (!json_is_object(f)) return api_fail(e, 400, at, "'%s' must be an object", at);
    enum status st = check_name(t, f, at, e);
    if (!st && !custom) st = check_parameters(f, at, e);
    if (st) return st;
    json_t *copy = custom ? as_function(f) : json_copy(f);
    if (!copy) return ST_NOMEM;
    json_object_del(copy, custom ? "type" : "strict");
    struct calls_tool *x = &t->tool[t->n];
    const json_t      *name = json_object_get(copy, "name");
    *x = (struct calls_tool){ .n = json_string_length(name), .custom = custom, .allowed = true };
    x->strict = json_is_true(json_object_get(f, "strict"));
    x->name = arena_strndup(&c->arena, json_string_value(name), x->n);
    st = x->name ? calls_tool_props(x, json_object_get(copy, "parameters"), &c->arena) : ST_NOMEM;
    if (!st && custom) st = read_form(c, x, f, at, e);
    t->n++;
    json_t *o = json_pack("{s:s,s:o}", "type", "function", "function", copy);
    if (json_array_append_new(shown, o)) st = ST_NOMEM;
    return st;
}

/* ---------------------------------------------------------------- which may be called */

/* A reference to a tool of this type, {"type":"function","function":{"name":..}} or {"type":..,"name":..}: its tool,
 * or NULL. */
static struct calls_tool *tool_of(struct calls_tools *t, const json_t *ref)
{
    const json_t *f = json_object_get(ref, "function"), *custom = json_object_get(ref, "custom");
    const json_t *in = custom ? custom : ref;
    if (f) in = f;
    const json_t *name = json_object_get(in, "name"), *type = json_object_get(ref, "type");
    bool          other[2] = { json_str_is(type, "custom"), json_str_is(type, "function") }; /* [is it custom?] */
    for (uint32_t i = 0; json_is_string(name) && i < t->n; i++)
        if (json_str_is(name, t->tool[i].name) && !other[t->tool[i].custom]) return &t->tool[i];
    return NULL;
}

static enum status limit_tools(struct calls_tools *t, const json_t *choice, enum tools_mode *mode_out,
                               struct api_error *e)
{
    const char   *field = "tool_choice.allowed_tools";
    const json_t *a = json_object_get(choice, "allowed_tools"), *mode, *list;
    if (!json_is_object(a)) a = choice; /* the flat form */
    mode = json_object_get(a, "mode");
    list = json_object_get(a, "tools");
    if (!json_is_array(list) || !json_array_size(list))
        return api_fail(e, 400, field, "'%s.tools' must be an array of at least one tool", field);
    for (uint32_t i = 0; i < t->n; i++) t->tool[i].allowed = false;
    for (size_t i = 0; i < json_array_size(list); i++) {
        struct calls_tool *x = tool_of(t, json_array_get(list, i));
        if (!x) return api_fail(e, 400, field, "'%s.tools[%zu]' names none of 'tools'", field, i);
        x->allowed = true;
    }
    bool required = json_str_is(mode, "required");
    if (!absent(mode) && !required && !json_str_is(mode, "auto"))
        return api_fail(e, 400, field, "'%s.mode' must be \"auto\" or \"required\"", field);
    t->limited = true;
    if (required) *mode_out = TOOLS_REQUIRED;
    return ST_OK;
}

/* *none_out: nothing is looked for in the answer. */
static enum status read_choice(struct calls_tools *t, const json_t *choice, bool *none_out, enum tools_mode *mode_out,
                               struct api_error *e)
{
    const char *field = "tool_choice";
    *none_out = json_str_is(choice, "none");
    if (absent(choice) || *none_out || json_str_is(choice, "auto")) return ST_OK;
    if (json_str_is(choice, "required")) {
        *mode_out = TOOLS_REQUIRED;
        return ST_OK;
    }
    const json_t *type = json_object_get(choice, "type");
    if (json_str_is(type, "allowed_tools")) return limit_tools(t, choice, mode_out, e);
    if (!json_str_is(type, "function") && !json_str_is(type, "custom"))
        return api_fail(
            e, 400, field,
            "'%s' must be \"none\", \"auto\", \"required\", or an object of the type \"function\", \"custom\" or "
            "\"allowed_tools\"",
            field);
    struct calls_tool *named = tool_of(t, choice);
    if (!named) return api_fail(e, 400, field, "'%s' names none of 'tools'", field);
    for (uint32_t i = 0; i < t->n; i++) t->tool[i].allowed = &t->tool[i] == named;
    t->limited = true;
    *mode_out = TOOLS_NAMED;
    return ST_OK;
}

static enum status without_tools(const struct call *c, const json_t *choice, struct api_error *e)
{
    bool given = json_is_array(json_object_get(c->body, "tools")); /* an empty list */
    if (absent(choice) || json_str_is(choice, "none") || (given && json_str_is(choice, "auto"))) return ST_OK;
    return api_fail(e, 400, "tool_choice", "'tool_choice' needs 'tools'");
}

enum status tools_read(struct call *c, struct api_error *e)
{
    const struct family *family = c->model->family;
    const json_t        *list = c->ask.tools, *choice = c->ask.tool_choice;
    size_t               n = json_array_size(list);
    bool                 none = false;
    enum status          st = ST_OK;
    c->ask.tools = NULL;
    if (!n) return without_tools(c, choice, e);
    if (n > TOOLS_MAX)
        return api_fail(e, 400, "tools", "'tools' has %zu entries, at most %d are allowed", n, TOOLS_MAX);
    if (json_dumpb(list, NULL, 0, JSON_COMPACT) > TOOLS_BYTES_MAX)
        return api_fail(e, 400, "tools", "'tools' has more than %d bytes", TOOLS_BYTES_MAX);
    struct calls_tools *t = arena_calloc(&c->arena, 1, sizeof *t);
    json_t             *shown = json_array();
    if (t) t->tool = arena_calloc(&c->arena, n, sizeof *t->tool);
    if (!t || !t->tool || !shown) st = ST_NOMEM;
    for (size_t i = 0; i < n && !st; i++) st = read_tool(c, t, json_array_get(list, i), i, shown, e);
    if (!st) st = read_choice(t, choice, &none, &c->tools_mode, e);
    if (!st && !none && !(family && family->calls.row))
        st = api_fail(e, 400, "tools",
                      "how this model writes tool calls is not known: start the server with --tool-call-parser");
    if (!st && !none && !family->tools)
        st = api_fail(e, 400, "tools", "the chat template of this model shows no tools");
    if (st || json_object_set(c->body, "tools", shown)) { /* the body holds what is shown, until it is dropped */
        json_decref(shown);
        return st ? st : ST_NOMEM;
    }
    json_decref(shown);
    c->ask.tools = shown;
    c->one_call = !c->ask.parallel;
    if (c->tools_mode == TOOLS_NAMED) c->one_call = true;
    if (!none) c->tools = t;
    return ST_OK;
}
