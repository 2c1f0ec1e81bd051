#include "api/turns.h"
#include "api/dialect.h"

static bool set(json_t *o, const char *key, json_t *v) { return v && !json_object_set_new(o, key, v); } /* takes v */

enum status turns_open(struct turns *t, struct buf *scratch)
{
    *t = (struct turns){ .list = json_array(), .text = scratch };
    return t->list ? ST_OK : ST_NOMEM;
}

json_t *turns_last(const struct turns *t) { return json_array_get(t->list, json_array_size(t->list) - 1); }

/* The last message if it has this role, or a new one; NULL: no memory. */
static json_t *message_of(struct turns *t, const char *role)
{
    json_t *last = turns_last(t);
    if (last && json_str_is(json_object_get(last, "role"), role)) return last;
    json_t *made = json_pack("{s:s}", "role", role);
    return made && !json_array_append_new(t->list, made) ? made : NULL;
}

/* Appends item, which is taken, to the array under key. */
static enum status append(json_t *message, const char *key, json_t *item)
{
    json_t *a = json_object_get(message, key);
    if (message && item && !a && !set(message, key, json_array())) a = NULL;
    a = json_object_get(message, key);
    if (a && item && !json_array_append(a, item)) {
        json_decref(item);
        return ST_OK;
    }
    json_decref(item);
    return ST_NOMEM;
}

enum status turns_begin(struct turns *t, const char *role) { return message_of(t, role) ? ST_OK : ST_NOMEM; }

enum status turns_text(struct turns *t, const char *role, json_t *text)
{
    if (!json_string_length(text)) return ST_OK;
    return append(message_of(t, role), "content", json_pack("{s:s,s:O}", "type", "text", "text", text));
}

enum status turns_reason(struct turns *t, const json_t *text)
{
    json_t       *message = message_of(t, "assistant");
    const json_t *before = json_object_get(message, "reasoning");
    struct buf   *b = t->text;
    buf_clear(b);
    if (before) {
        buf_put(b, json_string_value(before), json_string_length(before));
        buf_putc(b, '\n');
    }
    buf_put(b, json_string_value(text), json_string_length(text));
    if (!message || b->failed) return ST_NOMEM;
    return set(message, "reasoning", json_stringn_nocheck(text_of(b), b->n)) ? ST_OK : ST_NOMEM;
}

enum status turns_call(struct turns *t, json_t *id, json_t *name, json_t *arguments)
{
    return append(message_of(t, "assistant"), "tool_calls",
                  json_pack("{s:O,s:s,s:{s:O,s:O}}", "id", id, "type", "function", "function", "name", name,
                            "arguments", arguments));
}

enum status turns_result(struct turns *t, json_t *id, json_t *text)
{
    json_t *message = json_pack("{s:s,s:O,s:o}", "role", "tool", "tool_call_id", id, "content", text);
    return message && !json_array_append_new(t->list, message) ? ST_OK : ST_NOMEM;
}

enum status turns_finish(struct turns *t, struct call *c, enum status st)
{
    if (!st && json_object_set(c->body, c->dialect->prompt_param, t->list)) st = ST_NOMEM;
    c->ask.messages = st ? NULL : t->list;
    json_decref(t->list); /* the body holds it */
    t->list = NULL;
    return st;
}
