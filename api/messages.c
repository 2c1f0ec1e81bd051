#include "api/messages.h"
#include "api/dialect.h"
#include "api/family.h"
#include "api/history.h"
#include "base/json_scan.h"
#include "base/clock.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Messages of a chat, brought into the form that templates expect. The body is the call's own, so
 * they are changed where they are. */

enum role { ROLE_SYSTEM, ROLE_DEVELOPER, ROLE_USER, ROLE_ASSISTANT, ROLE_TOOL, ROLE_FUNCTION, ROLE_NONE };
static const char *const roles[] = { "system", "developer", "user", "assistant", "tool", "function" };

static bool set(json_t *o, const char *key, json_t *v) { return v && !json_object_set_new(o, key, v); } /* takes v */
static bool absent(const json_t *v) { return !v || json_is_null(v); }

/* ---------------------------------------------------------------- content */

/* The text of one part; NULL: *e says what is wrong. */
static const json_t *part_text(const struct call *c, const json_t *part, size_t i, struct api_error *e)
{
    const char *field = c->dialect->prompt_param;
    static const struct {
        const char *type, *key;
    } kinds[] = {
        { "text", "text" },       { "input_text", "text" },   { "output_text", "text" },
        { "refusal", "refusal" }, { "thinking", "thinking" },
    };
    char          show[200];
    const json_t *type = json_object_get(part, "type"), *s;
    if (json_is_string(part)) return part;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        if (!json_str_is(type, kinds[k].type)) continue;
        if (json_is_string(s = json_object_get(part, kinds[k].key))) return s;
        api_fail(e, 400, field, "message %zu: a part of type \"%s\" has no '%s'", i, kinds[k].type, kinds[k].key);
        return NULL;
    }
    if (!json_is_string(type)) {
        api_fail(e, 400, field, "message %zu: a part of 'content' must be an object with a 'type'", i);
        return NULL;
    }
    api_fail(e, 400, field, "message %zu: parts of type \"%s\" are not supported by this model", i,
             api_excerpt(show, sizeof show, json_string_value(type), json_string_length(type)));
    return NULL;
}

static json_t *text_part(const json_t *s)
{
    json_t *o = json_object();
    if (o && set(o, "type", json_string("text")) && set(o, "text", json_incref((json_t *)(uintptr_t)s))) return o;
    json_decref(o);
    return NULL;
}

/* Whether the template gets a list of parts: the form that the client sent, where the template shows it for this role. */
static bool as_parts(const struct call *c, enum role role, const json_t *content)
{
    static const uint8_t role_of_family[] = {
        [ROLE_SYSTEM] = FAMILY_SYSTEM,       [ROLE_DEVELOPER] = FAMILY_SYSTEM, [ROLE_USER] = FAMILY_USER,
        [ROLE_ASSISTANT] = FAMILY_ASSISTANT, [ROLE_TOOL] = FAMILY_ROLES,       [ROLE_FUNCTION] = FAMILY_ROLES
    };
    const struct family *f = c->model->family;
    uint8_t              r = role_of_family[role];
    if (!tmpl_wants_parts(c->model->tmpl) || role == ROLE_TOOL) return false;
    if (!f || r == FAMILY_ROLES || !f->content[r]) return true;
    return json_is_array(content) ? f->content[r] & FAMILY_PARTS : !(f->content[r] & FAMILY_TEXT);
}

/* content as the template wants it: one string, or a list of text parts. */
static enum status normal_content(struct call *c, json_t *msg, size_t i, bool list, struct api_error *e)
{
    const json_t *v = json_object_get(msg, "content"), *s;
    size_t        n = json_array_size(v);
    bool          kept = c->model->family && c->model->family->null_content && json_object_get(msg, "tool_calls");
    if (absent(v) && kept) return set(msg, "content", json_null()) ? ST_OK : ST_NOMEM;
    if (absent(v)) return set(msg, "content", list ? json_array() : json_string("")) ? ST_OK : ST_NOMEM;
    if (json_is_string(v)) {
        c->prompt_bytes += json_string_length(v);
        if (!list) return ST_OK;
        json_t *parts = json_array();
        bool    ok = parts && !json_array_append_new(parts, text_part(v));
        if (!ok) json_decref(parts);
        return ok && set(msg, "content", parts) ? ST_OK : ST_NOMEM;
    }
    json_t *parts = json_array();
    buf_clear(&c->scratch);
    for (size_t k = 0; k < n; k++) {
        const json_t *part = json_array_get(v, k);
        if (json_str_is(json_object_get(part, "type"), "redacted_thinking")) continue;
        if (!(s = part_text(c, part, i, e))) {
            json_decref(parts);
            return ST_INVALID;
        }
        c->prompt_bytes += json_string_length(s);
        if (list) {
            if (json_array_append_new(parts, text_part(s))) {
                json_decref(parts);
                return ST_NOMEM;
            }
            continue;
        }
        if (k) buf_putc(&c->scratch, '\n');
        buf_put(&c->scratch, json_string_value(s), json_string_length(s));
    }
    if (!list) {
        json_decref(parts);
        parts = c->scratch.failed ? NULL : json_stringn_nocheck(text_of(&c->scratch), c->scratch.n);
    }
    return set(msg, "content", parts) ? ST_OK : ST_NOMEM;
}

/* ---------------------------------------------------------------- tool calls of history */

static enum status normal_calls(struct call *c, json_t *msg, size_t i, enum role role, size_t *n_part,
                                struct api_error *e)
{
    const char *field = c->dialect->prompt_param;
    json_t     *calls = json_object_get(msg, "tool_calls");
    size_t      n = json_array_size(calls);
    if (!calls) return ST_OK;
    if (role != ROLE_ASSISTANT || absent(calls) || (json_is_array(calls) && !n)) {
        json_object_del(msg, "tool_calls");
        return ST_OK;
    }
    if (!json_is_array(calls)) return api_fail(e, 400, field, "message %zu: 'tool_calls' must be an array", i);
    if ((*n_part += n) > c->model->messages_max)
        return api_fail(e, 400, field, "'%s' has more than %u parts", field, c->model->messages_max);
    return history_calls(c, msg, i, e);
}

static bool has_text(const json_t *content) { return json_string_length(content) || json_array_size(content); }

/* Reasoning that a client sends back, under each of the names by which templates read it. gpt-oss's template refuses it
 * in a message with a text and calls, where it shows one of the two: the text stays. */
static enum status normal_reasoning(const struct call *c, json_t *msg, size_t i, struct api_error *e)
{
    static const char *const names[] = { "reasoning_content", "thinking", "reasoning" };
    enum { THINKING = 1, NAMES = sizeof names / sizeof *names };
    const struct family *f = c->model->family;
    json_t              *given = NULL;
    bool                 drop =
        f && f->text_or_thought && json_object_get(msg, "tool_calls") && has_text(json_object_get(msg, "content"));
    for (int k = 0; k < NAMES; k++) {
        json_t *v = json_object_get(msg, names[k]);
        if (!absent(v) && !json_is_string(v) && k != THINKING)
            return api_fail(e, 400, c->dialect->prompt_param, "message %zu: '%s' must be a string", i, names[k]);
        if (!given && json_is_string(v)) given = v;
    }
    json_incref(given);
    bool done = true;
    for (int k = 0; k < NAMES && given && done; k++) {
        if (drop)
            json_object_del(msg, names[k]);
        else if (absent(json_object_get(msg, names[k])))
            done = set(msg, names[k], json_incref(given));
    }
    json_decref(given);
    return done ? ST_OK : ST_NOMEM;
}

/* ---------------------------------------------------------------- one message */

static enum role role_of(const json_t *msg)
{
    const json_t *v = json_object_get(msg, "role");
    int           r = 0;
    while (r < ROLE_NONE && !json_str_is(v, roles[r])) r++;
    return (enum role)r;
}

static enum status check_message(struct call *c, json_t *msg, size_t i, size_t *n_part, struct api_error *e)
{
    const char *field = c->dialect->prompt_param;
    if (!json_is_object(msg)) return api_fail(e, 400, field, "message %zu must be an object", i);
    enum role     role = role_of(msg);
    const json_t *v = json_object_get(msg, "content"), *name = json_object_get(msg, "name");
    enum status   st;
    if (role == ROLE_NONE)
        return api_fail(e, 400, field,
                        "message %zu: 'role' must be system, developer, user, assistant, tool or function", i);
    if (!absent(v) && !json_is_string(v) && !json_is_array(v))
        return api_fail(e, 400, field, "message %zu: 'content' must be a string or an array of parts", i);
    if (absent(v) && role != ROLE_ASSISTANT)
        return api_fail(e, 400, field, "message %zu: 'content' is required for the role %s", i, roles[role]);
    if (!absent(name) && !json_is_string(name))
        return api_fail(e, 400, field, "message %zu: 'name' must be a string", i);
    if (role == ROLE_TOOL && (!json_is_string(json_object_get(msg, "tool_call_id")) ||
                              json_str_is(json_object_get(msg, "tool_call_id"), "")))
        return api_fail(e, 400, field, "message %zu: 'tool_call_id' is required for the role tool", i);
    if (role == ROLE_FUNCTION && !json_is_string(name))
        return api_fail(e, 400, field, "message %zu: 'name' is required for the role function", i);
    if ((*n_part += json_array_size(v)) > c->model->messages_max)
        return api_fail(e, 400, field, "'%s' has more than %u parts", field, c->model->messages_max);
    if ((st = normal_calls(c, msg, i, role, n_part, e)) || (st = normal_reasoning(c, msg, i, e))) return st;
    if ((st = normal_content(c, msg, i, as_parts(c, role, v), e))) return st;
    if (role == ROLE_DEVELOPER && !tmpl_has_text(c->model->tmpl, "developer") &&
        !set(msg, "role", json_string("system")))
        return ST_NOMEM;
    return ST_OK;
}

/* The text of the last message, for echo and continue_final_message. Call it after its content is normal. */
static json_t *last_text(json_t *msg, json_t **holder, const char **key)
{
    json_t *v = json_object_get(msg, "content");
    *holder = msg;
    *key = "content";
    if (json_is_array(v)) {
        *holder = json_array_get(v, json_array_size(v) - 1);
        *key = "text"; /* an empty array: NULL */
        v = json_object_get(*holder, "text");
    }
    return v;
}

static enum status check_ends(struct call *c, json_t *last, struct api_error *e)
{
    const json_t *given = json_object_get(c->body, "add_generation_prompt");
    json_t       *holder, *text;
    const char   *key;
    if (c->ask.continue_final) {
        if (json_is_true(given))
            return api_fail(e, 400, "continue_final_message",
                            "'continue_final_message' and 'add_generation_prompt' exclude each other");
        c->ask.add_generation = false;
    }
    enum role role = role_of(last);
    c->role = c->ask.add_generation ? "assistant" : roles[role];
    text = last_text(last, &holder, &key);
    if (c->echo && role != ROLE_NONE && !strcmp(c->role, roles[role]) && json_is_string(text)) {
        c->n_echo_prefix = json_string_length(text);
        if (!(c->echo_prefix = arena_strndup(&c->arena, json_string_value(text), c->n_echo_prefix))) return ST_NOMEM;
    }
    if (c->ask.continue_final && (!json_is_string(text) || !json_string_length(text)))
        return api_fail(e, 400, "continue_final_message", "'continue_final_message' needs a last message with text");
    return ST_OK;
}

enum status messages_check(struct call *c, struct api_error *e)
{
    const char *field = c->dialect->prompt_param;
    json_t     *v = (json_t *)(uintptr_t)c->ask.messages;
    size_t      n = json_array_size(v), n_part = 0;
    enum status st = ST_OK;
    if (!v) return api_fail(e, 400, field, "'%s' is required", field);
    if (!json_is_array(v) || !n) return api_fail(e, 400, field, "'%s' must be an array of at least one message", field);
    if (n > c->model->messages_max)
        return api_fail(e, 400, field, "'%s' has more than %u entries", field, c->model->messages_max);
    for (size_t i = 0; i < n && !st; i++) st = check_message(c, json_array_get(v, i), i, &n_part, e);
    if (!st) st = history_finish(c, v);
    return st ? st : check_ends(c, json_array_get(v, json_array_size(v) - 1), e);
}

/* ---------------------------------------------------------------- rendering */

static bool set_ref(json_t *o, const char *key, const json_t *v)
{
    return !json_object_set(o, key, (json_t *)(uintptr_t)v);
}

static bool add_kwargs(struct call *c, json_t *vars)
{
    const struct tmpl *t = c->model->tmpl;
    if (c->ask.effort) {
        if (!set_ref(vars, "reasoning_effort", c->ask.effort)) return false;
        if (!set(vars, "enable_thinking", json_boolean(!json_str_is(c->ask.effort, "none")))) return false;
    }
    json_t *kw = (json_t *)(uintptr_t)c->ask.template_kwargs;
    for (void *it = kw ? json_object_iter(kw) : NULL; it; it = json_object_iter_next(kw, it)) {
        const char *key = json_object_iter_key(it);
        if (tmpl_mentions(t, key) && !set(vars, key, guard_json(&c->guard, json_object_iter_value(it)))) return false;
    }
    return true;
}

static json_t *make_vars(struct call *c)
{
    const char *name, *text;
    json_t     *vars = json_object();
    bool        ok = vars != NULL;
    for (uint32_t i = 0; ok && tok_special_at(c->model->tok, i, &name, &text); i++)
        if (tmpl_mentions(c->model->tmpl, name)) ok = set(vars, name, json_string(text));
    ok = ok && set(vars, "messages", guard_json(&c->guard, (json_t *)(uintptr_t)c->ask.messages)) &&
         set(vars, "tools", c->ask.tools ? guard_json(&c->guard, (json_t *)(uintptr_t)c->ask.tools) : json_null());
    ok = ok && set(vars, "documents",
                   c->ask.documents ? guard_json(&c->guard, (json_t *)(uintptr_t)c->ask.documents) : json_null());
    ok = ok && set(vars, "add_generation_prompt", json_boolean(c->ask.add_generation)) && add_kwargs(c, vars);
    if (ok) return vars;
    json_decref(vars);
    return NULL;
}

static const char continue_tag[] = "CONTINUE_FINAL_MESSAGE_TAG ";

/* As transformers does it: a tag behind the last text shows where the template put it, and what follows is cut off. */
static enum status tag_last(struct call *c)
{
    json_t     *holder, *text;
    const char *key;
    text = last_text(json_array_get(c->ask.messages, json_array_size(c->ask.messages) - 1), &holder, &key);
    buf_clear(&c->scratch);
    buf_put(&c->scratch, json_string_value(text), json_string_length(text));
    buf_puts(&c->scratch, continue_tag);
    return !c->scratch.failed && set(holder, key, json_stringn_nocheck(c->scratch.data, c->scratch.n)) ? ST_OK
                                                                                                       : ST_NOMEM;
}

static enum status cut_at_tag(struct call *c, struct api_error *e)
{
    size_t n_tag = sizeof continue_tag - 1, n = c->rendered.n, at = n;
    for (const char *p = c->rendered.data;
         p && (p = memmem(p, n - (size_t)(p - c->rendered.data), continue_tag, n_tag - 1)); p++)
        at = (size_t)(p - c->rendered.data);
    if (at == n)
        return api_fail(e, 400, "continue_final_message", "the chat template drops the text of the last message");
    bool whole = n - at >= n_tag && c->rendered.data[at + n_tag - 1] == ' ';
    while (!whole && at && strchr(" \t\r\n\v\f", c->rendered.data[at - 1])) at--;
    c->rendered.n = at;
    return ST_OK;
}

enum status messages_render(struct call *c, struct api_error *e)
{
    const char *field = c->dialect->prompt_param;
    char        err[256], show[200];
    enum status st = c->ask.continue_final ? tag_last(c) : ST_OK;
    json_t     *vars = st ? NULL : make_vars(c);
    if (!vars) return ST_NOMEM;
    st = tmpl_render(c->model->tmpl, vars, NULL, c->created, &c->rendered, err, sizeof err);
    json_decref(vars);
    json_object_del(c->body, field); /* the prompt is text now */
    c->ask.messages = NULL;
    if (st == ST_TOO_LARGE)
        return api_fail(e, 400, field, "the messages are too much for the chat template: %s",
                        api_excerpt(show, sizeof show, err, strlen(err)));
    if (st) {
        api_fail(e, 400, field, "the chat template refuses the messages: %s",
                 api_excerpt(show, sizeof show, err, strlen(err)));
        return api_keep_private(e);
    }
    return c->ask.continue_final ? cut_at_tag(c, e) : ST_OK;
}
