#include "api/params.h"
#include "api/adapters.h"
#include "base/hash.h"
#include <math.h>
#include <openssl/sha.h>
#include <string.h>

/* The rows of the table that need more than a type and a range. */

static enum status later(const struct param *p, struct api_error *e)
{
    return api_fail(e, 400, p->name, "'%s' is not supported yet", p->name);
}

enum status check_model(struct call *c, const struct param *p, const json_t *v, struct api_error *e)
{
    if (!json_is_string(v)) return api_fail(e, 400, p->name, "'%s' must be a string", p->name);
    const char *s = json_string_value(v);
    size_t      n = json_string_length(v);
    if (memchr(s, 0, n)) return api_fail(e, 400, p->name, "'%s' must not hold NUL", p->name);
    return c->named ? ST_OK : call_model(c, p->name, s, n, e);
}

enum status call_model(struct call *c, const char *param, const char *s, size_t n, struct api_error *e)
{
    char show[200];
    for (uint32_t i = 0; n && i < c->model->n_name; i++) {
        if (strcmp(c->model->served_name[i], s)) continue;
        if (n < sizeof c->served) memcpy(c->served, s, n + 1);
        return ST_OK;
    }
    if (!n) return ST_OK; /* the first one */
    struct adapter *a = adapters_find(c->model->adapters, s, n);
    if (a) {
        adapter_drop(c->adapter);
        c->adapter = a;
        memcpy(c->served, s, n + 1); /* names of adapters are short enough */
        return ST_OK;
    }
    return api_fail_code(e, 404, param, "model_not_found", "The model `%s` does not exist.",
                         api_excerpt(show, sizeof show, s, n));
}

enum status check_n(struct call *c, const struct param *p, const json_t *v, struct api_error *e)
{
    (void)v;
    if (c->ask.n <= c->model->n_max) return ST_OK;
    return api_fail(e, 400, p->name, "'%s' must be an integer from 1 to %u", p->name, c->model->n_max);
}

/* Gone from vLLM; its values are held to those of n and nothing follows from it. */
enum status check_best_of(struct call *c, const struct param *p, const json_t *v, struct api_error *e)
{
    if (json_number_value(v) <= c->model->n_max) return ST_OK;
    return api_fail(e, 400, p->name, "'%s' must be an integer from 1 to %u", p->name, c->model->n_max);
}

/* How many of the best tokens are told with each one. */
enum status check_logprobs_count(struct call *c, const struct param *p, const json_t *v, struct api_error *e)
{
    double n = json_number_value(v);
    if (n >= 0 && n <= c->model->logprobs_max && n <= ENG_TOP_MAX) return ST_OK;
    return api_fail(e, 400, p->name, "'%s' must be an integer from 0 to %u", p->name, c->model->logprobs_max);
}

/* The same as a switch and a number in one field; false is what chat calls none. */
enum status check_logprobs_n(struct call *c, const struct param *p, const json_t *v, struct api_error *e)
{
    double n = json_number_value(v);
    if (json_is_false(v)) return ST_OK;
    if (!json_is_number(v) || n != floor(n)) return api_fail(e, 400, p->name, "'%s' must be an integer", p->name);
    if (n >= 0 && n <= c->model->logprobs_max) c->ask.logprobs_n = (int64_t)n;
    return check_logprobs_count(c, p, v, e);
}

enum status check_stop(struct call *c, const struct param *p, const json_t *v, struct api_error *e)
{
    const struct api_model *m = c->model;
    size_t                  n = json_is_array(v) ? json_array_size(v) : 1;
    if (!json_is_array(v) && !json_is_string(v))
        return api_fail(e, 400, p->name, "'%s' must be a string or an array of strings", p->name);
    if (n > m->stop_max) return api_fail(e, 400, p->name, "'%s' has more than %u strings", p->name, m->stop_max);
    struct detok_stop *stop = arena_calloc(&c->arena, n + 1, sizeof *stop);
    if (!stop) return ST_NOMEM;
    for (size_t i = 0; i < n; i++) {
        const json_t *s = json_is_array(v) ? json_array_get(v, i) : v;
        if (!json_is_string(s))
            return api_fail(e, 400, p->name, "'%s' must be a string or an array of strings", p->name);
        stop[i] = (struct detok_stop){ NULL, json_string_length(s) };
        if (!stop[i].n) return api_fail(e, 400, p->name, "'%s' must not hold an empty string", p->name);
        if (stop[i].n > m->stop_bytes_max)
            return api_fail(e, 400, p->name, "a string of '%s' has more than %u bytes", p->name, m->stop_bytes_max);
        /* the body's tree is gone when the answer begins */
        if (!(stop[i].text = arena_strndup(&c->arena, json_string_value(s), stop[i].n))) return ST_NOMEM;
    }
    c->detok.stop = stop;
    c->detok.n_stop = (uint32_t)n;
    return ST_OK;
}

/* "123", without sign, blanks or leading zeros */
static bool parse_id(const char *s, size_t n, uint32_t *out)
{
    uint64_t id = 0;
    if (!n || n > 10 || (n > 1 && s[0] == '0')) return false;
    for (size_t i = 0; i < n; i++) {
        if (s[i] < '0' || s[i] > '9') return false;
        id = id * 10 + (uint64_t)(s[i] - '0');
    }
    if (id > UINT32_MAX) return false;
    *out = (uint32_t)id;
    return true;
}

enum status check_bias(struct call *c, const struct param *p, const json_t *v, struct api_error *e)
{
    enum { CLAMP = 100, SANE = 1000000 };
    size_t n = json_object_size(v), k = 0;
    if (n > c->model->bias_max)
        return api_fail(e, 400, p->name, "'logit_bias' has more than %u entries", c->model->bias_max);
    struct eng_bias *bias = arena_calloc(&c->arena, n + 1, sizeof *bias);
    if (!bias) return ST_NOMEM;
    for (void *it = json_object_iter((json_t *)(uintptr_t)v); it;
         it = json_object_iter_next((json_t *)(uintptr_t)v, it)) {
        const json_t *x = json_object_iter_value(it);
        if (!parse_id(json_object_iter_key(it), json_object_iter_key_len(it), &bias[k].id) ||
            bias[k].id >= c->model->vocab)
            return api_fail(e, 400, p->name, "a key of 'logit_bias' is not a token id below %u", c->model->vocab);
        double b = json_number_value(x);
        if (!json_is_number(x) || !isfinite(b) || fabs(b) > SANE)
            return api_fail(e, 400, p->name, "a value of 'logit_bias' is not a number from -100 to 100");
        if (b < -CLAMP) b = -CLAMP;
        if (b > CLAMP) b = CLAMP;
        bias[k++].bias = (float)b;
    }
    c->s.bias = bias;
    c->s.n_bias = (uint32_t)n;
    return ST_OK;
}

enum status check_token_ids(struct call *c, const struct param *p, const json_t *v, struct api_error *e)
{
    bool   stop = !strcmp(p->name, "stop_token_ids");
    size_t n = json_array_size(v), max = stop ? c->model->bias_max : c->model->vocab;
    if (!n && !stop) return api_fail(e, 400, p->name, "'%s' must not be empty", p->name);
    if (n > max) return api_fail(e, 400, p->name, "'%s' has more than %zu entries", p->name, max);
    uint32_t *id = arena_calloc(&c->arena, n + 1, sizeof *id);
    if (!id) return ST_NOMEM;
    for (size_t i = 0; i < n; i++) {
        const json_t *x = json_array_get(v, i);
        double        d = json_is_number(x) ? json_number_value(x) : -1;
        if (!(d >= 0 && d < c->model->vocab) || d != floor(d))
            return api_fail(e, 400, p->name, "'%s' must be an array of token ids below %u", p->name, c->model->vocab);
        id[i] = (uint32_t)d;
    }
    if (stop) {
        c->s.stop_id = id;
        c->s.n_stop_id = (uint32_t)n;
    } else {
        c->s.allowed_id = id;
        c->s.n_allowed = (uint32_t)n;
    }
    return ST_OK;
}

enum status check_bad_words(struct call *c, const struct param *p, const json_t *v, struct api_error *e)
{
    size_t n = json_array_size(v);
    if (n > c->model->bias_max)
        return api_fail(e, 400, p->name, "'bad_words' has more than %u strings", c->model->bias_max);
    for (size_t i = 0; i < n; i++) {
        const json_t *s = json_array_get(v, i);
        size_t        len = json_is_string(s) ? json_string_length(s) : 0;
        if (!len || len > c->model->stop_bytes_max)
            return api_fail(e, 400, p->name, "'bad_words' must be an array of strings of 1 to %u bytes",
                            c->model->stop_bytes_max);
    }
    return ST_OK;
}

enum status check_priority(struct call *c, const struct param *p, const json_t *v, struct api_error *e)
{
    (void)v;
    if (!c->ask.priority || c->model->priority) return ST_OK;
    return api_fail(e, 400, p->name, "'priority' must be 0: priority scheduling is off");
}

/* Prefixes of different salts never meet, so the whole of a SHA-256 is not needed: 128 bits of it name the tree. */
enum status check_salt(struct call *c, const struct param *p, const json_t *v, struct api_error *e)
{
    enum { SALT_MAX = 128 };
    const char   *s = json_string_value(v);
    size_t        n = json_string_length(v);
    unsigned char h[SHA256_DIGEST_LENGTH];
    if (!n || n > SALT_MAX) return api_fail(e, 400, p->name, "'cache_salt' must have 1 to %d bytes", SALT_MAX);
    for (size_t i = 0; i < n; i++)
        if (!s[i] || s[i] == '@' || s[i] == '/' || s[i] == '\\')
            return api_fail(e, 400, p->name, "'cache_salt' must not hold '@', '/', '\\' or NUL");
    SHA256((const unsigned char *)s, n, h);
    memcpy(&c->salt.lo, h, sizeof c->salt.lo);
    memcpy(&c->salt.hi, h + sizeof c->salt.lo, sizeof c->salt.hi);
    return ST_OK;
}

/* A client's name for what its prompts have in common. One server has one cache: it only groups the lines of the
 * log. */
enum status check_cache_key(struct call *c, const struct param *p, const json_t *v, struct api_error *e)
{
    enum { KEY_MAX = 64 };
    size_t n = json_string_length(v);
    if (n > KEY_MAX)
        return api_fail(e, 400, p->name, "'prompt_cache_key' has %zu bytes, at most %d are allowed", n, KEY_MAX);
    if (n) c->cache_key = hash_bytes(json_string_value(v), n, 0) | 1;
    return ST_OK;
}

enum status check_retention(struct call *c, const struct param *p, const json_t *v, struct api_error *e)
{
    enum { HOUR_S = 3600 };
    const char *s = json_string_value(v);
    if (!strcmp(s, "24h"))
        c->keep.ttl_s = 24 * HOUR_S;
    else if (!strcmp(s, "in_memory") || !strcmp(s, "in-memory")) /* both are written in OpenAI's clients */
    {
        c->keep.ttl_s = HOUR_S;
        c->keep.memory_only = true;
    } else
        return api_fail(e, 400, p->name, "'prompt_cache_retention' must be \"in_memory\" or \"24h\"");
    return ST_OK;
}

enum status check_kv_priority(struct call *c, const struct param *p, const json_t *v, struct api_error *e)
{
    (void)p;
    (void)v;
    (void)e;
    c->keep.priority = (int8_t)(c->ask.kv_priority + KV_PRIORITY_MIN);
    return ST_OK;
}

/* true: for five minutes, as long as clients of other servers are used to; or for so many seconds. */
enum status check_kv_pin(struct call *c, const struct param *p, const json_t *v, struct api_error *e)
{
    enum { PIN_S = 300 };
    json_int_t n = json_integer_value(v);
    if (!json_is_boolean(v) && (!json_is_integer(v) || n < 0 || n > KV_TTL_MAX_S))
        return api_fail(e, 400, p->name, "'kv_pin' must be true, false or an integer from 0 to %d, in seconds",
                        KV_TTL_MAX_S);
    c->keep.pin_s = (uint32_t)n;
    if (json_is_boolean(v)) c->keep.pin_s = json_is_true(v) ? PIN_S : 0;
    return ST_OK;
}

enum status check_request_id(struct call *c, const struct param *p, const json_t *v, struct api_error *e)
{
    const char *s = json_string_value(v);
    size_t      n = json_string_length(v);
    (void)c;
    bool ok = n > 0 && n <= 128;
    for (size_t i = 0; i < n && ok; i++)
        ok = (s[i] >= '0' && s[i] <= '9') || ((s[i] | 0x20) >= 'a' && (s[i] | 0x20) <= 'z') ||
             (s[i] && strchr("-_.:", s[i]));
    if (ok) return ST_OK;
    return api_fail(e, 400, p->name, "'request_id' must be 1 to 128 letters, digits, '-', '_', '.' or ':'");
}

enum status check_stream_options(struct call *c, const struct param *p, const json_t *v, struct api_error *e)
{
    bool hidden;
    if (!c->stream) return api_fail(e, 400, p->name, "'stream_options' needs 'stream': true");
    if (json_get_bool(v, "include_usage", &c->include_usage) == ST_INVALID ||
        json_get_bool(v, "include_obfuscation", &hidden) == ST_INVALID ||
        json_get_bool(v, "continuous_usage_stats", &c->continuous_usage) == ST_INVALID)
        return api_fail(e, 400, p->name, "the fields of 'stream_options' must be true or false");
    return ST_OK;
}

/* ---------------------------------------------------------------- what only a neutral value is accepted of */

enum status check_format(struct call *c, const struct param *p, const json_t *v, struct api_error *e)
{
    (void)c;
    const json_t *type = json_object_get(v, "type");
    if (json_str_is(type, "text")) return ST_OK;
    if (!json_is_object(v) || !json_is_string(type))
        return api_fail(e, 400, p->name, "'%s' must be an object with a 'type'", p->name);
    static const char *const known[] = { "json_object", "json_schema", "structural_tag" };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (json_str_is(type, known[i])) return ST_OK;
    return api_fail(e, 400, p->name, "'%s' has an unknown 'type'", p->name);
}

/* An empty list, and a list of which nothing may be called, mean what no list means. */
enum status check_tools(struct call *c, const struct param *p, const json_t *v, struct api_error *e)
{
    bool          old = !strcmp(p->name, "functions");
    const json_t *choice = json_object_get(c->body, old ? "function_call" : "tool_choice");
    if (!json_is_array(v)) return api_fail(e, 400, p->name, "'%s' must be an array", p->name);
    if (!json_array_size(v) || json_str_is(choice, "none")) return ST_OK;
    return old ? api_fail(e, 400, p->name, "'%s' is not supported: use 'tools'", p->name) : later(p, e);
}

enum status check_tool_choice(struct call *c, const struct param *p, const json_t *v, struct api_error *e)
{
    const json_t *tools = json_object_get(c->body, "tools");
    if (json_str_is(v, "none")) return ST_OK;
    if (!json_is_string(v) && !json_is_object(v))
        return api_fail(e, 400, p->name, "'%s' must be a string or an object", p->name);
    if (json_str_is(v, "auto") && json_is_array(tools) && !json_array_size(tools))
        return ST_OK; /* which of none to call */
    if (!json_array_size(tools)) return api_fail(e, 400, p->name, "'%s' needs 'tools'", p->name);
    return strcmp(p->name, "function_call")
               ? later(p, e)
               : api_fail(e, 400, p->name, "'%s' is not supported: use 'tool_choice'", p->name);
}

enum status check_modalities(struct call *c, const struct param *p, const json_t *v, struct api_error *e)
{
    (void)c;
    if (!json_is_array(v)) return api_fail(e, 400, p->name, "'modalities' must be an array");
    for (size_t i = 0; i < json_array_size(v); i++)
        if (!json_str_is(json_array_get(v, i), "text"))
            return api_fail(e, 400, p->name, "of 'modalities' only \"text\" is supported");
    return ST_OK;
}

enum status check_budget(struct call *c, const struct param *p, const json_t *v, struct api_error *e)
{
    (void)c;
    return json_is_integer(v) && json_integer_value(v) == -1 ? ST_OK : later(p, e);
}

enum status check_false(struct call *c, const struct param *p, const json_t *v, struct api_error *e)
{
    (void)c;
    return json_is_false(v) ? ST_OK : later(p, e);
}

enum status check_one(struct call *c, const struct param *p, const json_t *v, struct api_error *e)
{
    (void)c;
    return json_is_integer(v) && json_integer_value(v) == 1 ? ST_OK : later(p, e);
}

enum status check_ignored_object(struct call *c, const struct param *p, const json_t *v, struct api_error *e)
{
    (void)c;
    return json_is_object(v) ? ST_OK : api_fail(e, 400, p->name, "'%s' must be an object", p->name);
}

/* ---------------------------------------------------------------- the template's */

enum status check_effort(struct call *c, const struct param *p, const json_t *v, struct api_error *e)
{
    static const char *const efforts[] = { "none", "minimal", "low", "medium", "high", "xhigh", "max" };
    (void)c;
    for (size_t i = 0; i < sizeof efforts / sizeof *efforts; i++)
        if (json_str_is(v, efforts[i])) return ST_OK;
    return api_fail(e, 400, p->name, "'%s' must be none, minimal, low, medium, high, xhigh or max", p->name);
}

enum status check_side(struct call *c, const struct param *p, const json_t *v, struct api_error *e)
{
    (void)c;
    return json_str_is(v, "left") || json_str_is(v, "right")
               ? ST_OK
               : api_fail(e, 400, p->name, "'%s' must be \"left\" or \"right\"", p->name);
}

enum status check_template(struct call *c, const struct param *p, const json_t *v, struct api_error *e)
{
    (void)c;
    (void)v;
    return api_fail(e, 400, p->name, "'chat_template' is not accepted from requests");
}

/* Scalars only (strings of any length: the body has a budget), and nothing by which the renderer or Python itself is
 * steered (vLLM CVE-2025-62426). */
enum status check_kwargs(struct call *c, const struct param *p, const json_t *v, struct api_error *e)
{
    enum { KWARGS_MAX = 32, NAME_MAX_BYTES = 64 };
    static const char *const refused[] = { "tokenize",
                                           "chat_template",
                                           "messages",
                                           "conversation",
                                           "tools",
                                           "documents",
                                           "add_generation_prompt",
                                           "continue_final_message",
                                           "return_dict",
                                           "return_tensors",
                                           "tokenizer_kwargs",
                                           "padding",
                                           "truncation",
                                           "max_length",
                                           "return_assistant_tokens_mask" };
    (void)c;
    char show[200];
    if (json_object_size(v) > KWARGS_MAX)
        return api_fail(e, 400, p->name, "'%s' has more than %d entries", p->name, KWARGS_MAX);
    for (void *it = json_object_iter((json_t *)(uintptr_t)v); it;
         it = json_object_iter_next((json_t *)(uintptr_t)v, it)) {
        const char   *key = json_object_iter_key(it);
        size_t        n = json_object_iter_key_len(it);
        const json_t *x = json_object_iter_value(it);
        bool          bad = !n || n > NAME_MAX_BYTES || memchr(key, 0, n) || (n > 1 && key[0] == '_' && key[1] == '_');
        for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) bad = bad || !strcmp(key, refused[i]);
        if (bad)
            return api_fail(e, 400, p->name, "'%s' must not set '%s'", p->name, api_excerpt(show, sizeof show, key, n));
        if (json_is_array(x) || json_is_object(x))
            return api_fail(e, 400, p->name, "'%s.%s' must be a number, a boolean, a string or null", p->name,
                            api_excerpt(show, sizeof show, key, n));
    }
    return ST_OK;
}

enum status check_documents(struct call *c, const struct param *p, const json_t *v, struct api_error *e)
{
    if (json_array_size(v) > c->model->messages_max)
        return api_fail(e, 400, p->name, "'%s' has more than %u entries", p->name, c->model->messages_max);
    for (size_t i = 0; i < json_array_size(v); i++)
        if (!json_is_object(json_array_get(v, i)))
            return api_fail(e, 400, p->name, "'%s' must be an array of objects", p->name);
    if (!json_array_size(v) || (c->model->tmpl && tmpl_mentions(c->model->tmpl, "documents"))) return ST_OK;
    return api_fail(e, 400, p->name, "this model's chat template takes no 'documents'");
}
