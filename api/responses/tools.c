#include "api/responses/responses.h"
#include "api/callform.h"
#include "api/family.h"
#include <stdio.h>
#include <string.h>

enum { AT_BYTES = 64 };

static const char between[] = "__"; /* a namespace and the name of its tool */

/* Tools stand flat here, and in an object named by their type in chats. Kinds that OpenAI's own servers run (web
 * search, file search) and unknown ones are left out: nobody runs them here. Coding agents always send the grammar of
 * their custom tool. Where calls cannot be bound to it, it is left out: its text is free then, and its client reads it
 * with care. */

json_t *responses_full_name(const json_t *space, const json_t *name)
{
    return json_sprintf("%s%s%s", json_string_value(space), between, json_string_value(name));
}

static const char *kind_of(const json_t *v)
{
    const json_t *type = json_object_get(v, "type");
    if (json_str_is(type, "function")) return "function";
    return json_str_is(type, "custom") ? "custom" : NULL;
}

/* Whether the model's calls can be bound to a grammar: anywhere in its answer, or because one is demanded. */
static bool binds(const struct call *c)
{
    const struct family *f = c->model->family;
    const json_t        *choice = c->ask.tool_choice;
    if (f && callform_binds_again(&f->calls)) return true;
    return json_str_is(choice, "required") || kind_of(choice) ||
           json_str_is(json_object_get(choice, "mode"), "required");
}

/* space: the name of its namespace; NULL: it is in none. form: with its grammar. */
static json_t *nested(const json_t *flat, const char *kind, const json_t *space, bool form)
{
    json_t       *inner = json_copy((json_t *)(uintptr_t)flat);
    const json_t *name = json_object_get(flat, "name");
    if (!inner) return NULL;
    if (json_is_string(space) && json_is_string(name) &&
        json_object_set_new(inner, "name", responses_full_name(space, name))) {
        json_decref(inner);
        return NULL;
    }
    json_object_del(inner, "namespace");
    json_object_del(inner, "type");
    if (!form) json_object_del(inner, "format");
    return json_pack("{s:s,s:o}", "type", kind, kind, inner);
}

/* So that the answer can tell the two names apart. */
static enum status remember(struct call *c, const json_t *space, const json_t *name)
{
    struct responses_call  *r = responses_of(c);
    struct responses_named *x = arena_calloc(&c->arena, 1, sizeof *x);
    json_t                 *full = responses_full_name(space, name);
    if (x && full) x->name = arena_strndup(&c->arena, json_string_value(full), json_string_length(full));
    if (x && x->name) {
        x->n = json_string_length(full);
        x->n_space = strlen(json_string_value(space));
        x->next = r->named;
        r->named = x;
    }
    json_decref(full);
    return x && x->name ? ST_OK : ST_NOMEM;
}

static enum status convert_space(struct call *c, const json_t *space, const char *at, json_t *list, struct api_error *e)
{
    char          member[AT_BYTES + 40];
    const json_t *name = json_object_get(space, "name"), *tools = json_object_get(space, "tools");
    snprintf(member, sizeof member, "%s.name", at);
    if (!json_string_length(name) || strlen(json_string_value(name)) != json_string_length(name))
        return api_fail(e, 400, member, "'%s' must be a string without zeros", member);
    snprintf(member, sizeof member, "%s.tools", at);
    if (!json_is_array(tools)) return api_fail(e, 400, member, "'%s' must be an array of tools", member);
    enum status st = ST_OK;
    for (size_t k = 0; !st && k < json_array_size(tools); k++) {
        const json_t *tool = json_array_get(tools, k);
        const char   *kind = kind_of(tool);
        snprintf(member, sizeof member, "%s.tools[%zu]", at, k);
        if (!json_is_object(tool)) return api_fail(e, 400, member, "'%s' must be an object", member);
        if (kind && json_is_string(json_object_get(tool, "name")))
            st = remember(c, name, json_object_get(tool, "name"));
        if (!st && kind && json_array_append_new(list, nested(tool, kind, name, binds(c)))) st = ST_NOMEM;
    }
    return st;
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
        else if (json_str_is(json_object_get(tool, "type"), "namespace"))
            st = convert_space(c, tool, at, list, e);
        else if (kind && json_array_append_new(list, nested(tool, kind, NULL, binds(c))))
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
    json_t *named = nested(choice, kind, json_object_get(choice, "namespace"), false);
    if (!named || json_object_set_new(c->body, "tool_choice", named)) return ST_NOMEM;
    c->ask.tool_choice = named;
    return ST_OK;
}
