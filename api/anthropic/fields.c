#include "api/anthropic/anthropic.h"
#include "api/param_rows.h"
#include "api/family.h"
#include <string.h>

/* The fields of a request. Checks of objects leave what they ask for in c->ask, as chats have it; new values belong to
 * the body's tree. */

enum status anthropic_open(struct call *c)
{
    if (!c->own) c->own = arena_calloc(&c->arena, 1, sizeof(struct anthropic_call));
    return c->own ? ST_OK : ST_NOMEM;
}

static bool absent(const json_t *v) { return !v || json_is_null(v); }

static enum status keep_in_body(struct call *c, const char *name, json_t *v, const json_t **to)
{
    if (!v || json_object_set_new(c->body, name, v)) return ST_NOMEM;
    *to = v;
    return ST_OK;
}

/* The client sends only what is new in a conversation and expects the server to know the rest: to ignore this field
 * would lose the history without a word. The SDK reads the code and sends everything again. */
static enum status check_thread(struct call *c, const struct param *p, const json_t *v, struct api_error *e)
{
    (void)c;
    (void)v;
    return api_fail_code(e, 400, p->name, "thread_unsupported_request",
                         "'thread' is not supported: send the whole conversation in 'messages'");
}

static enum status check_stop_sequences(struct call *c, const struct param *p, const json_t *v, struct api_error *e)
{
    size_t  i;
    json_t *s;
    json_array_foreach((json_t *)(uintptr_t)v, i, s)
    {
        const char *text = json_string_value(s);
        if (text && !text[strspn(text, " \t\r\n")])
            return api_fail(e, 400, p->name, "'%s' must not hold a string of white space alone", p->name);
    }
    return check_stop(c, p, v, e);
}

/* Templates know the switch under two names. What the client has set by itself stays. */
static enum status set_thinking(struct call *c, bool on)
{
    json_t *kwargs = json_pack("{s:b,s:b}", "enable_thinking", on, "thinking", on);
    if (!kwargs) return ST_NOMEM;
    if (c->ask.template_kwargs) json_object_update(kwargs, (json_t *)(uintptr_t)c->ask.template_kwargs);
    return keep_in_body(c, "chat_template_kwargs", kwargs, &c->ask.template_kwargs);
}

static enum status check_thinking(struct call *c, const struct param *p, const json_t *v, struct api_error *e)
{
    const json_t *type = json_object_get(v, "type"), *budget = json_object_get(v, "budget_tokens");
    bool          on = json_str_is(type, "enabled"), off = json_str_is(type, "disabled");
    if (!on && !off && !json_str_is(type, "adaptive"))
        return api_fail(e, 400, "thinking.type", "'thinking.type' must be enabled, disabled or adaptive");
    (void)p;
    if (on && absent(budget)) return api_fail(e, 400, "thinking.budget_tokens", "'thinking.budget_tokens' is required");
    if (on && (!json_is_integer(budget) || json_integer_value(budget) < 1))
        return api_fail(e, 400, "thinking.budget_tokens", "'thinking.budget_tokens' must be an integer of at least 1");
    if (on && c->ask.max_tokens >= 0 && json_integer_value(budget) >= c->ask.max_tokens)
        return api_fail(e, 400, "thinking.budget_tokens", "'thinking.budget_tokens' must be below 'max_tokens'");
    const struct family *f = c->model->family;
    /* A model that does not reason is asked for it by agents all the same: there is nothing to bound then. */
    if (on && f && f->calls.think) c->ask.thinking_budget = json_integer_value(budget);
    if (anthropic_open(c)) return ST_NOMEM;
    anthropic_of(c)->hides_thinking = json_str_is(json_object_get(v, "display"), "omitted");
    return set_thinking(c, !off);
}

static enum status check_output(struct call *c, const struct param *p, const json_t *v, struct api_error *e)
{
    const json_t *effort = json_object_get(v, "effort"), *format = json_object_get(v, "format");
    json_t       *schema = json_object_get(format, "schema");
    if (!absent(effort)) {
        const struct param named = { .name = "output_config.effort" };
        enum status        st = check_effort(c, &named, effort, e);
        if (st) return st;
        c->ask.effort = effort;
    }
    (void)p;
    if (absent(format)) return ST_OK;
    if (!json_str_is(json_object_get(format, "type"), "json_schema"))
        return api_fail(e, 400, "output_config.format.type", "'output_config.format.type' must be json_schema");
    if (!json_is_object(schema))
        return api_fail(e, 400, "output_config.format.schema",
                        "'output_config.format.schema' must be a JSON schema, which is an object");
    return keep_in_body(
        c, "response_format",
        json_pack("{s:s,s:{s:s,s:O}}", "type", "json_schema", "json_schema", "name", "output", "schema", schema),
        &c->ask.response_format);
}

static const struct param rows[] = {
    ROW_LATER("thread", 1, check_thread),
    ROW_JSON("model", 1, PARAM_ANY, ask.model, check_model),
    ROW_JSON("messages", 1, PARAM_ANY, ask.messages, NULL),
    ROW_JSON("system", 1, PARAM_ANY, ask.system, NULL),
    ROW_INT("max_tokens", 1, ask.max_tokens, 1, INT32_MAX, NULL),
    ROW_BOOL("stream", 1, stream, NULL),
    ROW_JSON("stop_sequences", 1, PARAM_ARRAY, ask.stop, check_stop_sequences),
    ROW_NUM("temperature", 1, ask.temperature, 0, 2),
    ROW_NUM("top_p", 1, ask.top_p, 1e-30, 1),
    ROW_INT("top_k", 1, ask.top_k, -1, INT32_MAX, NULL),
    ROW_JSON("tools", 1, PARAM_ARRAY, ask.tools, NULL),
    ROW_JSON("tool_choice", 1, PARAM_OBJECT, ask.tool_choice, NULL),
    ROW_JSON("chat_template_kwargs", 1, PARAM_OBJECT, ask.template_kwargs, check_kwargs), /* vLLM's, as is cache_salt */
    ROW_READ("thinking", 1, PARAM_OBJECT, check_thinking),
    ROW_READ("output_config", 1, PARAM_OBJECT, check_output),
    ROW_JSON("cache_salt", 1, PARAM_STRING, ask.salt, check_salt),
    ROW_READ("metadata", 1, PARAM_OBJECT, NULL),
    ROW_READ("service_tier", 1, PARAM_STRING, NULL),
};
const struct param_fields anthropic_fields = { rows, sizeof rows / sizeof *rows };
