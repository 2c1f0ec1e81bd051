#include "api/responses/responses.h"
#include <stdio.h>
#include <string.h>

enum { AT_BYTES = 64 };

/* Tools stand flat here, and in an object named by their type in chats. Kinds that OpenAI's own servers run
 * (web search, file search) and unknown ones are left out: nobody runs them here. The grammar of a custom tool is
 * left out too: its text is free then, and its client reads it with care. */

static json_t *nested(const json_t *flat, const char *kind)
{
    json_t *inner = json_copy((json_t *)(uintptr_t)flat);
    if (!inner) return NULL;
    json_object_del(inner, "type");
    json_object_del(inner, "format");
    return json_pack("{s:s,s:o}", "type", kind, kind, inner);
}

static const char *kind_of(const json_t *v)
{
    const json_t *type = json_object_get(v, "type");
    if (json_str_is(type, "function")) return "function";
    return json_str_is(type, "custom") ? "custom" : NULL;
}

static enum status convert_tools(struct call *c, struct api_error *e)
{
    char        at[AT_BYTES];
    json_t     *list = json_array();
    enum status st = list ? ST_OK : ST_NOMEM;
    for (size_t i = 0; !st && i < json_array_size(c->ask.tools); i++) {
        const json_t *tool = json_array_get(c->ask.tools, i);
        const char   *kind = kind_of(tool);
        snprintf(at, sizeof at, "tools[%zu]", i);
        if (!json_is_object(tool) || !json_is_string(json_object_get(tool, "type")))
            st = api_fail(e, 400, at, "'%s' must be an object with a 'type'", at);
        else if (kind && json_array_append_new(list, nested(tool, kind)))
            st = ST_NOMEM;
    }
    if (!st && json_object_set(c->body, "tools", list)) st = ST_NOMEM;
    c->ask.tools = st ? NULL : list;
    json_decref(list); /* the body holds it */
    return st;
}

enum status responses_tools(struct call *c, struct api_error *e)
{
    const json_t *choice = c->ask.tool_choice;
    const char   *kind = kind_of(choice);
    enum status   st = c->ask.tools ? convert_tools(c, e) : ST_OK;
    if (st) return st;
    /* clients say "auto" without a tool, or with tools that were all left out */
    if (!json_array_size(c->ask.tools) && json_str_is(choice, "auto")) c->ask.tool_choice = NULL;
    if (!kind) return ST_OK;
    json_t *named = nested(choice, kind);
    if (!named || json_object_set_new(c->body, "tool_choice", named)) return ST_NOMEM;
    c->ask.tool_choice = named;
    return ST_OK;
}
