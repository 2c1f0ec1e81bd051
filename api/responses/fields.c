#include "api/responses/responses.h"
#include "api/param_rows.h"
#include <string.h>

/* The fields of a request. Checks of objects leave what they ask for in c->ask, as chats have it; new values belong to
 * the body's tree. */

enum { PAIRS_MAX = 16, KEY_CHARS_MAX = 64, VALUE_CHARS_MAX = 512, CHAR_BYTES_MAX = 4 };

static bool absent(const json_t *v) { return !v || json_is_null(v); }

enum status responses_open(struct call *c)
{
    if (c->own) return ST_OK;
    struct responses_call *r = arena_calloc(&c->arena, 1, sizeof *r);
    if (r) r->stores = c->model->responses != NULL; /* unless it says "store": false */
    c->own = r;
    return r ? ST_OK : ST_NOMEM;
}

/* The one place where a schema's members stand flat; chats have them in an object of their own. */
static enum status check_text(struct call *c, const struct param *p, const json_t *v, struct api_error *e)
{
    json_t *format = json_object_get(v, "format");
    (void)p;
    if (absent(format) || json_str_is(json_object_get(format, "type"), "text")) return ST_OK;
    json_t *made = json_incref(format);
    if (json_str_is(json_object_get(format, "type"), "json_schema")) {
        json_t *flat = json_copy(format);
        if (flat) json_object_del(flat, "type");
        json_decref(made);
        made = json_pack("{s:s,s:o}", "type", "json_schema", "json_schema", flat);
    } else if (!json_str_is(json_object_get(format, "type"), "json_object")) {
        json_decref(made);
        return api_fail(e, 400, "text.format.type", "'text.format.type' must be text, json_object or json_schema");
    }
    if (!made || json_object_set_new(c->body, "response_format", made)) return ST_NOMEM;
    c->ask.response_format = made;
    return ST_OK;
}

static enum status check_reasoning(struct call *c, const struct param *p, const json_t *v, struct api_error *e)
{
    const json_t      *effort = json_object_get(v, "effort");
    const struct param named = { .name = "reasoning.effort" };
    (void)p;
    if (absent(effort)) return ST_OK;
    c->ask.effort = effort;
    return check_effort(c, &named, effort, e);
}

static enum status check_include(struct call *c, const struct param *p, const json_t *v, struct api_error *e)
{
    size_t  i;
    json_t *what;
    if (responses_open(c)) return ST_NOMEM;
    json_array_foreach((json_t *)(uintptr_t)v, i, what)
    {
        if (!json_is_string(what)) return api_fail(e, 400, p->name, "'%s' must be an array of strings", p->name);
        if (json_str_is(what, "message.output_text.logprobs")) c->ask.logprobs = true;
        if (json_str_is(what, "reasoning.encrypted_content")) responses_of(c)->encrypts = true;
    }
    return ST_OK;
}

/* Without the word in `include` the client does not look at them. */
static enum status check_top(struct call *c, const struct param *p, const json_t *v, struct api_error *e)
{
    enum status st = check_logprobs_count(c, p, v, e);
    if (!c->ask.logprobs) c->ask.top_logprobs = -1;
    return st;
}

static enum status check_truncation(struct call *c, const struct param *p, const json_t *v, struct api_error *e)
{
    c->ask.drops_oldest = json_str_is(v, "auto");
    if (c->ask.drops_oldest || json_str_is(v, "disabled")) return ST_OK;
    return api_fail(e, 400, p->name, "'%s' must be \"disabled\" or \"auto\"", p->name);
}

/* Where responses are stored, call_recall has found what it names. */
static enum status check_previous(struct call *c, const struct param *p, const json_t *v, struct api_error *e)
{
    char show[200];
    if (c->past && c->past->n) {
        if (responses_open(c)) return ST_NOMEM;
        responses_of(c)->previous = arena_strndup(&c->arena, json_string_value(v), json_string_length(v));
        return responses_of(c)->previous ? ST_OK : ST_NOMEM;
    }
    return api_fail_code(e, 404, p->name, "previous_response_not_found",
                         "The response '%s' is not known: responses are not stored here. Send its input and output "
                         "items in 'input'.",
                         api_excerpt(show, sizeof show, json_string_value(v), json_string_length(v)));
}

static enum status check_store(struct call *c, const struct param *p, const json_t *v, struct api_error *e)
{
    (void)p;
    (void)e;
    if (responses_open(c)) return ST_NOMEM;
    responses_of(c)->stores = c->model->responses && json_is_true(v);
    return ST_OK;
}

/* Of n bytes of UTF-8 that has been checked. */
static size_t chars_of(const char *s, size_t n)
{
    size_t n_char = 0;
    for (size_t i = 0; i < n; i++) n_char += ((unsigned char)s[i] & 0xc0) != 0x80;
    return n_char;
}

static enum status check_metadata(struct call *c, const struct param *p, const json_t *v, struct api_error *e)
{
    const char *key;
    json_t     *value;
    (void)c;
    if (json_object_size(v) > PAIRS_MAX)
        return api_fail(e, 400, p->name, "'%s' has more than %d pairs", p->name, PAIRS_MAX);
    json_object_foreach((json_t *)(uintptr_t)v, key, value)
    {
        bool fits = chars_of(key, strlen(key)) <= KEY_CHARS_MAX && json_is_string(value) &&
                    json_string_length(value) <= VALUE_CHARS_MAX * CHAR_BYTES_MAX &&
                    chars_of(json_string_value(value), json_string_length(value)) <= VALUE_CHARS_MAX;
        if (!fits)
            return api_fail(e, 400, p->name,
                            "'%s' must have keys of up to %d characters and strings of up to %d characters", p->name,
                            KEY_CHARS_MAX, VALUE_CHARS_MAX);
    }
    return ST_OK;
}

static enum status check_no_conversation(struct call *c, const struct param *p, const json_t *v, struct api_error *e)
{
    (void)c;
    (void)v;
    return api_fail(e, 400, p->name, "'%s' is not supported: send all items in 'input'", p->name);
}

static const struct param rows[] = {
    ROW_JSON("model", 1, PARAM_ANY, ask.model, check_model),
    ROW_JSON("input", 1, PARAM_ANY, ask.messages, NULL),
    ROW_JSON("instructions", 1, PARAM_ANY, ask.system, NULL),
    ROW_INT("max_output_tokens", 1, ask.max_tokens, 1, INT32_MAX, NULL),
    ROW_BOOL("stream", 1, stream, NULL),
    ROW_NUM("temperature", 1, ask.temperature, 0, 2),
    ROW_NUM("top_p", 1, ask.top_p, 1e-30, 1),
    ROW_READ("include", 1, PARAM_ARRAY, check_include),
    ROW_INT("top_logprobs", 1, ask.top_logprobs, 0, INT32_MAX, check_top),
    ROW_JSON("tools", 1, PARAM_ARRAY, ask.tools, NULL),
    ROW_JSON("tool_choice", 1, PARAM_ANY, ask.tool_choice, NULL),
    ROW_BOOL("parallel_tool_calls", 1, ask.parallel, NULL),
    ROW_JSON("chat_template_kwargs", 1, PARAM_OBJECT, ask.template_kwargs, check_kwargs), /* vLLM's, as is cache_salt */
    ROW_READ("text", 1, PARAM_OBJECT, check_text),
    ROW_READ("reasoning", 1, PARAM_OBJECT, check_reasoning),
    ROW_READ("truncation", 1, PARAM_STRING, check_truncation),
    ROW_LATER("conversation", 1, check_no_conversation), /* before the id: with both the body is wrong, known or not */
    ROW_READ("previous_response_id", 1, PARAM_STRING, check_previous),
    ROW_READ("metadata", 1, PARAM_OBJECT, check_metadata),
    ROW_JSON("prompt_cache_key", 1, PARAM_STRING, ask.cache_key, check_cache_key),
    ROW_JSON("cache_salt", 1, PARAM_STRING, ask.salt, check_salt),
    ROW_LATER("prompt", 1, NULL),
    ROW_LATER("background", 1, check_false),
    ROW_READ("store", 1, PARAM_BOOL, check_store),
    ROW_IGNORED("stream_options", 1, PARAM_OBJECT),
    ROW_IGNORED("max_tool_calls", 1, PARAM_INT),
    ROW_IGNORED("service_tier", 1, PARAM_STRING),
    ROW_IGNORED("safety_identifier", 1, PARAM_STRING),
    ROW_IGNORED("user", 1, PARAM_STRING),
};
const struct param_fields responses_fields = { rows, sizeof rows / sizeof *rows };
