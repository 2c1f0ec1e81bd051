#include "api/history.h"
#include "api/dialect.h"
#include "api/family.h"
#include "base/hash.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NINE = 9, ID_BYTES = 96 };

static bool set(json_t *o, const char *key, json_t *v) { return v && !json_object_set_new(o, key, v); } /* takes v */
static bool absent(const json_t *v) { return !v || json_is_null(v); }

/* ---------------------------------------------------------------- arguments */

/* A string -> an object: what it says, or, where it is no JSON object, {"_raw": ..}. */
static json_t *object_of(const json_t *text)
{
    struct json_error je;
    json_t           *v = NULL;
    if (!json_string_length(text)) return json_object();
    v = json_parse_bounded(json_string_value(text), json_string_length(text), &call_bounds, &je);
    if (json_is_object(v)) return v;
    json_decref(v);
    return json_pack("{s:O}", "_raw", text);
}

/* ", " and ": " between, as templates print objects themselves. */
static json_t *text_of_object(const json_t *object)
{
    char   *s = json_dumps(object, JSON_ENCODE_ANY);
    json_t *v = s ? json_string(s) : NULL;
    free(s);
    return v;
}

static json_t *normal_arguments(const json_t *args, bool as_text)
{
    if (absent(args) || json_str_is(args, "")) return as_text ? json_string("{}") : json_object();
    if (json_is_string(args)) return as_text ? json_copy((json_t *)(uintptr_t)args) : object_of(args);
    return as_text ? text_of_object(args) : json_incref((json_t *)(uintptr_t)args);
}

/* ---------------------------------------------------------------- one message */

/* A call of a custom tool becomes the call of a function with one string. */
static enum status from_custom(json_t *call, size_t i, const char *field, struct api_error *e)
{
    json_t *custom = json_object_get(call, "custom"), *name = json_object_get(custom, "name");
    json_t *input = json_object_get(custom, "input");
    if (!json_is_string(name) || !json_is_string(input))
        return api_fail(e, 400, field, "message %zu: a tool call has no 'custom' with a 'name' and an 'input'", i);
    json_t *f = json_pack("{s:O,s:{s:O}}", "name", name, "arguments", "input", input);
    bool    done = set(call, "function", f) && set(call, "type", json_string("function"));
    json_object_del(call, "custom");
    return done ? ST_OK : ST_NOMEM;
}

static enum status normal_call(json_t *call, size_t i, const char *field, bool as_text, struct api_error *e)
{
    const json_t *type = json_object_get(call, "type");
    bool          custom = json_str_is(type, "custom");
    if (!json_is_object(call) || (!absent(type) && !custom && !json_str_is(type, "function")))
        return api_fail(e, 400, field, "message %zu: 'tool_calls' must be objects of type \"function\" or \"custom\"",
                        i);
    enum status st = custom ? from_custom(call, i, field, e) : ST_OK;
    if (st) return st;
    json_t *f = json_object_get(call, "function"), *args = json_object_get(f, "arguments");
    if (!json_is_object(f) || !json_is_string(json_object_get(f, "name")))
        return api_fail(e, 400, field, "message %zu: a tool call has no 'function' with a 'name'", i);
    if (!absent(args) && !json_is_string(args) && !json_is_object(args))
        return api_fail(e, 400, field, "message %zu: the 'arguments' of a tool call must be a JSON object as a string",
                        i);
    return set(f, "arguments", normal_arguments(args, as_text)) ? ST_OK : ST_NOMEM;
}

enum status history_calls(const struct call *c, json_t *msg, size_t i, struct api_error *e)
{
    const char          *field = c->dialect->prompt_param;
    const struct family *f = c->model->family;
    json_t              *calls = json_object_get(msg, "tool_calls");
    enum status          st = ST_OK;
    for (size_t k = 0; k < json_array_size(calls) && !st; k++)
        st = normal_call(json_array_get(calls, k), i, field, f && f->args_text, e);
    return st;
}

/* ---------------------------------------------------------------- ids */

static bool is_nine(const json_t *id)
{
    const char *s = json_string_value(id);
    return json_string_length(id) == NINE && calls_name_good(s, NINE, NINE) && !strpbrk(s, "_-.:");
}

/* An id that is not of the form becomes one by its hash, so that a result finds its call. */
static bool make_nine(json_t *o, const char *key)
{
    static const char letters[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    const json_t     *id = json_object_get(o, key);
    char              nine[NINE + 1] = { 0 };
    if (!json_is_string(id) || is_nine(id)) return true;
    uint64_t h = hash_bytes(json_string_value(id), json_string_length(id), 0);
    for (int i = 0; i < NINE; i++) {
        nine[i] = letters[h % (sizeof letters - 1)];
        h /= sizeof letters - 1;
    }
    return set(o, key, json_string(nine));
}

/* functions.NAME:NUMBER, counted over the conversation. renamed: old -> new, for the results. */
static bool make_counted(json_t *call, unsigned number, json_t *renamed)
{
    const json_t *name = json_object_get(json_object_get(call, "function"), "name"), *id = json_object_get(call, "id");
    char          text[ID_BYTES];
    snprintf(text, sizeof text, "functions.%.64s:%u", json_string_value(name), number);
    if (json_is_string(id) && !set(renamed, json_string_value(id), json_string(text))) return false;
    return set(call, "id", json_string(text));
}

static bool rename_ids(enum calls_ids style, json_t *messages)
{
    json_t  *renamed = json_object(), *msg, *call;
    unsigned number = 0;
    bool     good = renamed != NULL;
    size_t   i, k;
    json_array_foreach(messages, i, msg)
    {
        json_array_foreach(json_object_get(msg, "tool_calls"), k, call) if (good) good =
            style == CALLS_ID_NINE ? make_nine(call, "id") : make_counted(call, number++, renamed);
        const json_t *id = json_object_get(msg, "tool_call_id");
        if (!good || !json_is_string(id)) continue;
        json_t *other = json_object_get(renamed, json_string_value(id));
        if (style == CALLS_ID_NINE)
            good = make_nine(msg, "tool_call_id");
        else if (other)
            good = set(msg, "tool_call_id", json_incref(other));
    }
    json_decref(renamed);
    return good;
}

/* ---------------------------------------------------------------- one call a message */

static bool split_message(json_t *messages, size_t i)
{
    json_t *msg = json_array_get(messages, i), *calls = json_object_get(msg, "tool_calls");
    bool    good = true;
    for (size_t k = json_array_size(calls); good && k-- > 1;) {
        json_t *more =
            json_pack("{s:s,s:s,s:[O]}", "role", "assistant", "content", "", "tool_calls", json_array_get(calls, k));
        good = more && !json_array_insert_new(messages, i + 1, more);
        json_array_remove(calls, k);
    }
    return good;
}

enum status history_finish(const struct call *c, json_t *messages)
{
    const struct family *f = c->model->family;
    bool                 good = true;
    if (!f) return ST_OK;
    if (calls_id_style(&f->calls) != CALLS_ID_PLAIN) good = rename_ids(calls_id_style(&f->calls), messages);
    for (size_t i = 0; f->one_call && good && i < json_array_size(messages); i++) good = split_message(messages, i);
    return good ? ST_OK : ST_NOMEM;
}
