#include "api/anthropic/anthropic.h"
#include <stdio.h>
#include <string.h>

enum { AT_BYTES = 64 };

static bool absent(const json_t *v) { return !v || json_is_null(v); }

/* Tools that Anthropic's own servers run have a type of their own, as "web_search_20250305". Nobody runs them here, so
 * the model is not told of them. */
static bool is_of_the_server(const json_t *tool)
{
    const json_t *type = json_object_get(tool, "type");
    return json_is_string(type) && !json_str_is(type, "custom");
}

/* Tool i in OpenAI's form; NULL with *st_out. */
static json_t *as_function(const json_t *tool, size_t i, enum status *st_out, struct api_error *e)
{
    char    at[AT_BYTES];
    json_t *schema = json_object_get(tool, "input_schema"), *name = json_object_get(tool, "name");
    snprintf(at, sizeof at, "tools.%zu", i);
    if (!json_is_object(tool)) {
        *st_out = api_fail(e, 400, at, "'%s' must be an object", at);
        return NULL;
    }
    if (!json_is_string(name)) {
        snprintf(at, sizeof at, "tools.%zu.name", i);
        *st_out = api_fail(e, 400, at, "'%s' must be a string", at);
        return NULL;
    }
    if (!json_is_object(schema)) {
        snprintf(at, sizeof at, "tools.%zu.input_schema", i);
        *st_out = api_fail(e, 400, at, "'%s' must be a JSON schema, which is an object", at);
        return NULL;
    }
    json_t *description = json_object_get(tool, "description"), *strict = json_object_get(tool, "strict");
    json_t *v = json_pack("{s:s,s:{s:O,s:O*,s:O,s:O*}}", "type", "function", "function", "name", name, "description",
                          absent(description) ? NULL : description, "parameters", schema, "strict",
                          absent(strict) ? NULL : strict);
    *st_out = v ? ST_OK : ST_NOMEM;
    return v;
}

static enum status convert_tools(struct call *c, struct api_error *e)
{
    json_t     *list = json_array();
    enum status st = list ? ST_OK : ST_NOMEM;
    for (size_t i = 0; !st && i < json_array_size(c->ask.tools); i++) {
        const json_t *tool = json_array_get(c->ask.tools, i);
        if (is_of_the_server(tool)) continue;
        json_t *function = as_function(tool, i, &st, e);
        if (!st && json_array_append_new(list, function)) st = ST_NOMEM;
    }
    if (!st && json_object_set(c->body, "tools", list)) st = ST_NOMEM;
    c->ask.tools = st ? NULL : list;
    json_decref(list); /* the body holds it */
    return st;
}

static enum status convert_choice(struct call *c, struct api_error *e)
{
    const json_t *choice = c->ask.tool_choice, *type = json_object_get(choice, "type");
    const json_t *alone = json_object_get(choice, "disable_parallel_tool_use");
    json_t       *name = json_object_get(choice, "name"), *v = NULL;
    if (!absent(alone) && !json_is_boolean(alone))
        return api_fail(e, 400, "tool_choice.disable_parallel_tool_use",
                        "'tool_choice.disable_parallel_tool_use' must be true or false");
    if (json_is_true(alone)) c->ask.parallel = false;
    if (json_str_is(type, "auto"))
        v = json_string("auto");
    else if (json_str_is(type, "none"))
        v = json_string("none");
    else if (json_str_is(type, "any"))
        v = json_string("required");
    else if (!json_str_is(type, "tool"))
        return api_fail(e, 400, "tool_choice.type", "'tool_choice.type' must be auto, any, tool or none");
    else if (!json_is_string(name))
        return api_fail(e, 400, "tool_choice.name", "'tool_choice.name' must be the name of a tool");
    else
        v = json_pack("{s:s,s:{s:O}}", "type", "function", "function", "name", name);
    if (!v || json_object_set_new(c->body, "tool_choice", v)) return ST_NOMEM;
    c->ask.tool_choice = v;
    return ST_OK;
}

enum status anthropic_tools(struct call *c, struct api_error *e)
{
    enum status st = c->ask.tools ? convert_tools(c, e) : ST_OK;
    if (!st && c->ask.tool_choice) st = convert_choice(c, e);
    return st;
}
