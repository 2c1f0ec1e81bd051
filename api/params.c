#include "api/params.h"
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define AT(field) offsetof(struct call, field)
#define BOOL(name, on, field)                             \
    {                                                     \
        name, on, PARAM_BOOL, AT(field), 0, 0, 0, 0, NULL \
    }
#define INT(name, on, field, lo, hi, check)                 \
    {                                                       \
        name, on, PARAM_INT, AT(field), lo, hi, 0, 0, check \
    }
#define NUM(name, on, field, min, max)                       \
    {                                                        \
        name, on, PARAM_NUM, AT(field), 0, 0, min, max, NULL \
    }
#define JSON(name, on, type, field, check)           \
    {                                                \
        name, on, type, AT(field), 0, 0, 0, 0, check \
    }
#define IGNORED(name, type)                                                     \
    {                                                                           \
        name, ON_BOTH, type, 0, INT64_MIN, INT64_MAX, -INFINITY, INFINITY, NULL \
    }
#define LATER(name, on, check)                      \
    {                                               \
        name, on, PARAM_LATER, 0, 0, 0, 0, 0, check \
    }
/* Smallest positive values that a float of the engine can divide by. */
#define TOP_P_MIN      1e-30
#define REPETITION_MIN 0.01
#define REPETITION_MAX 100.0

const struct param params[] = {
    JSON("model", ON_BOTH, PARAM_ANY, ask.model, check_model),
    JSON("messages", ON_CHAT, PARAM_ANY, ask.messages, NULL),
    JSON("prompt", ON_COMPLETION, PARAM_ANY, ask.prompt, NULL),
    BOOL("stream", ON_BOTH, stream),
    JSON("stream_options", ON_BOTH, PARAM_OBJECT, ask.stream_options, check_stream_options),
    /* how much */
    INT("max_completion_tokens", ON_CHAT, ask.max_completion_tokens, 1, INT32_MAX, NULL),
    INT("max_tokens", ON_CHAT, ask.max_tokens, 1, INT32_MAX, NULL),
    INT("max_tokens", ON_COMPLETION, ask.max_tokens, 0, INT32_MAX, NULL),
    INT("min_tokens", ON_BOTH, ask.min_tokens, 0, INT32_MAX, NULL),
    INT("n", ON_BOTH, ask.n, 1, INT32_MAX, check_n),
    { "best_of", ON_BOTH, PARAM_INT, 0, 1, INT32_MAX, 0, 0, check_best_of },
    /* sampling */
    NUM("temperature", ON_BOTH, ask.temperature, 0, 2),
    NUM("top_p", ON_BOTH, ask.top_p, TOP_P_MIN, 1),
    INT("top_k", ON_BOTH, ask.top_k, -1, INT32_MAX, NULL),
    NUM("min_p", ON_BOTH, ask.min_p, 0, 1),
    NUM("presence_penalty", ON_BOTH, ask.presence, -2, 2),
    NUM("frequency_penalty", ON_BOTH, ask.frequency, -2, 2),
    NUM("repetition_penalty", ON_BOTH, ask.repetition, REPETITION_MIN, REPETITION_MAX),
    INT("seed", ON_BOTH, ask.seed, INT64_MIN, INT64_MAX, NULL),
    JSON("logit_bias", ON_BOTH, PARAM_OBJECT, ask.bias, check_bias),
    JSON("allowed_token_ids", ON_BOTH, PARAM_ARRAY, ask.allowed_ids, check_token_ids),
    JSON("bad_words", ON_BOTH, PARAM_ARRAY, ask.bad_words, check_bad_words),
    /* where it ends */
    JSON("stop", ON_BOTH, PARAM_ANY, ask.stop, check_stop),
    JSON("stop_token_ids", ON_BOTH, PARAM_ARRAY, ask.stop_ids, check_token_ids),
    BOOL("include_stop_str_in_output", ON_BOTH, ask.include_stop),
    BOOL("ignore_eos", ON_BOTH, s.ignore_eos),
    /* what comes back */
    BOOL("logprobs", ON_CHAT, ask.logprobs),
    INT("top_logprobs", ON_CHAT, ask.top_logprobs, 0, INT32_MAX, check_logprobs_count),
    { "logprobs", ON_COMPLETION, PARAM_ANY, 0, 0, 0, 0, 0, check_logprobs_count },
    INT("prompt_logprobs", ON_BOTH, ask.prompt_logprobs, 0, INT32_MAX, check_logprobs_count),
    BOOL("echo", ON_BOTH, echo),
    BOOL("skip_special_tokens", ON_BOTH, ask.skip_special),
    BOOL("spaces_between_special_tokens", ON_BOTH, ask.spaces_between),
    BOOL("return_tokens_as_token_ids", ON_BOTH, tokens_as_ids),
    BOOL("return_token_ids", ON_BOTH, return_token_ids),
    BOOL("return_prompt_text", ON_BOTH, return_prompt_text),
    /* the prompt */
    BOOL("add_special_tokens", ON_BOTH, add_special),
    INT("truncate_prompt_tokens", ON_BOTH, ask.truncate, -1, INT32_MAX, NULL),
    JSON("truncation_side", ON_BOTH, PARAM_STRING, ask.truncation_side, check_side),
    BOOL("add_generation_prompt", ON_CHAT, ask.add_generation),
    BOOL("continue_final_message", ON_CHAT, ask.continue_final),
    JSON("chat_template_kwargs", ON_CHAT, PARAM_OBJECT, ask.template_kwargs, check_kwargs),
    { "chat_template", ON_BOTH, PARAM_ANY, 0, 0, 0, 0, 0, check_template },
    JSON("documents", ON_CHAT, PARAM_ARRAY, ask.documents, check_documents),
    JSON("reasoning_effort", ON_CHAT, PARAM_STRING, ask.effort, check_effort),
    /* who asks */
    INT("priority", ON_BOTH, ask.priority, -1000, 1000, check_priority),
    JSON("request_id", ON_BOTH, PARAM_STRING, ask.request_id, check_request_id),
    JSON("cache_salt", ON_BOTH, PARAM_STRING, ask.salt, check_salt),
    /* what its prefix is worth */
    JSON("prompt_cache_key", ON_BOTH, PARAM_STRING, ask.cache_key, check_cache_key),
    { "prompt_cache_retention", ON_BOTH, PARAM_STRING, 0, 0, 0, 0, 0, check_retention },
    INT("kv_priority", ON_BOTH, ask.kv_priority, 0, KV_PRIORITY_MAX - KV_PRIORITY_MIN, check_kv_priority),
    { "kv_pin", ON_BOTH, PARAM_ANY, 0, 0, 0, 0, 0, check_kv_pin },
    /* not supported yet: neutral values pass */
    LATER("tools", ON_BOTH, check_tools),
    LATER("tool_choice", ON_BOTH, check_tool_choice),
    LATER("functions", ON_BOTH, check_tools),
    LATER("function_call", ON_BOTH, check_tool_choice),
    LATER("response_format", ON_BOTH, check_format),
    LATER("structured_outputs", ON_BOTH, NULL),
    LATER("guided_json", ON_BOTH, NULL),
    LATER("guided_regex", ON_BOTH, NULL),
    LATER("guided_choice", ON_BOTH, NULL),
    LATER("guided_grammar", ON_BOTH, NULL),
    LATER("use_beam_search", ON_BOTH, check_false),
    LATER("prompt_embeds", ON_BOTH, NULL),
    LATER("suffix", ON_COMPLETION, NULL),
    LATER("modalities", ON_BOTH, check_modalities),
    LATER("audio", ON_BOTH, NULL),
    LATER("web_search_options", ON_BOTH, NULL),
    LATER("kv_transfer_params", ON_BOTH, NULL),
    LATER("ec_transfer_params", ON_BOTH, NULL),
    LATER("repetition_detection", ON_BOTH, NULL),
    LATER("thinking_token_budget", ON_BOTH, check_budget),
    LATER("logprob_token_ids", ON_BOTH, NULL),
    LATER("stream_interval", ON_BOTH, check_one),
    LATER("return_token_offsets", ON_BOTH, check_false),
    LATER("return_mm_kwargs", ON_BOTH, check_false),
    LATER("watermarking", ON_BOTH, check_false),
    LATER("media_io_kwargs", ON_BOTH, check_ignored_object),
    LATER("mm_processor_kwargs", ON_BOTH, check_ignored_object),
    /* known, without effect */
    IGNORED("user", PARAM_STRING),
    IGNORED("metadata", PARAM_OBJECT),
    IGNORED("store", PARAM_BOOL),
    IGNORED("safety_identifier", PARAM_STRING),
    IGNORED("prompt_cache_options", PARAM_OBJECT),
    IGNORED("service_tier", PARAM_STRING),
    IGNORED("verbosity", PARAM_STRING),
    IGNORED("prediction", PARAM_OBJECT),
    IGNORED("moderation", PARAM_ANY),
    IGNORED("parallel_tool_calls", PARAM_BOOL),
    IGNORED("include_reasoning", PARAM_BOOL),
    IGNORED("length_penalty", PARAM_NUM),
    IGNORED("early_stopping", PARAM_ANY),
    IGNORED("vllm_xargs", PARAM_OBJECT),
    IGNORED("session_id", PARAM_STRING),
    IGNORED("guided_decoding_backend", PARAM_STRING),
    IGNORED("guided_whitespace_pattern", PARAM_STRING),
};
const uint32_t n_params = sizeof params / sizeof *params;

static void defaults(struct call *c)
{
    const struct api_model *m = c->model;
    c->ask = (struct call_ask){
        .max_tokens = c->kind == CALL_COMPLETION ? 16 : -1,
        .max_completion_tokens = -1,
        .n = 1,
        .seed = -1,
        .truncate = -2,
        .logprobs_n = -1,
        .top_logprobs = -1,
        .prompt_logprobs = -1,
        .temperature = (double)m->temperature,
        .top_p = (double)m->top_p,
        .top_k = m->top_k > INT32_MAX ? 0 : (int64_t)m->top_k,
        .min_p = (double)m->min_p,
        .repetition = (double)m->repetition,
        .add_generation = true,
        .skip_special = true,
        .spaces_between = true,
        .kv_priority = -KV_PRIORITY_MIN,
    };
    c->add_special = c->kind == CALL_COMPLETION;
}

static enum status wrong_type(const struct param *p, struct api_error *e)
{
    static const char *const what[] = { "true or false", "an integer", "a number", "a string", "an object", "an array", "", "" };
    return api_fail(e, 400, p->name, "'%s' must be %s", p->name, what[p->type]);
}

static enum status read_int(const struct param *p, const json_t *v, int64_t *out, struct api_error *e)
{
    int64_t i;
    if (json_is_integer(v)) {
        i = json_integer_value(v);
    } else {
        double d = json_is_real(v) ? json_real_value(v) : NAN;
        if (!(d >= -0x1p63 && d < 0x1p63) || d != floor(d)) return wrong_type(p, e);
        i = (int64_t)d;
    }
    if (i < p->lo || i > p->hi) {
        if (p->hi >= INT32_MAX)
            return api_fail(e, 400, p->name, "'%s' must be an integer of at least %" PRId64 " and below 2^31", p->name, p->lo);
        return api_fail(e, 400, p->name, "'%s' must be an integer from %" PRId64 " to %" PRId64, p->name, p->lo, p->hi);
    }
    *out = i;
    return ST_OK;
}

static enum status read_num(const struct param *p, const json_t *v, double *out, struct api_error *e)
{
    if (!json_is_number(v)) return wrong_type(p, e);
    double d = json_number_value(v);
    if (!isfinite(d) || d < p->min || d > p->max)
        return api_fail(e, 400, p->name, "'%s' must be a number from %g to %g", p->name, p->min, p->max);
    *out = d;
    return ST_OK;
}

static enum status read_later(struct call *c, const struct param *p, const json_t *v, struct api_error *e)
{
    if (p->check) return p->check(c, p, v, e);
    return api_fail(e, 400, p->name, "'%s' is not supported yet", p->name);
}

static enum status read_one(struct call *c, const struct param *p, const json_t *v, struct api_error *e)
{
    int64_t     i = 0;
    double      d = 0;
    enum status st = ST_OK;
    char       *to = p->at ? (char *)c + p->at : NULL;
    bool        right = true;
    switch (p->type) {
    case PARAM_LATER: return read_later(c, p, v, e);
    case PARAM_BOOL:
        if (!json_is_boolean(v)) return wrong_type(p, e);
        if (to) *(bool *)to = json_is_true(v);
        break;
    case PARAM_INT:
        if ((st = read_int(p, v, &i, e))) return st;
        if (to) *(int64_t *)(void *)to = i;
        break;
    case PARAM_NUM:
        if ((st = read_num(p, v, &d, e))) return st;
        if (to) *(double *)(void *)to = d;
        break;
    case PARAM_STRING: right = json_is_string(v); break;
    case PARAM_OBJECT: right = json_is_object(v); break;
    case PARAM_ARRAY: right = json_is_array(v); break;
    default: break;
    }
    if (!right) return wrong_type(p, e);
    if (p->type >= PARAM_STRING && to) *(const json_t **)(void *)to = v;
    return p->check ? p->check(c, p, v, e) : ST_OK;
}

static bool row_applies(const struct param *p, enum call_kind kind) { return p->on & (kind == CALL_CHAT ? ON_CHAT : ON_COMPLETION); }

enum json_want params_want(void *ctx, const char *name, size_t n_name)
{
    const struct call *c = ctx;
    for (uint32_t i = 0; i < n_params; i++) {
        const struct param *p = &params[i];
        if (!row_applies(p, c->kind) || strlen(p->name) != n_name || memcmp(p->name, name, n_name) != 0) continue;
        if (!p->at && !p->check) return JSON_TYPE;
        return p->type <= PARAM_STRING ? JSON_SCALAR : JSON_BUILD;
    }
    return JSON_SKIP;
}

enum status params_read(struct call *c, struct api_error *e)
{
    enum status st;
    defaults(c);
    for (uint32_t i = 0; i < n_params; i++) {
        const struct param *p = &params[i];
        if (!row_applies(p, c->kind)) continue;
        const json_t *v = json_object_get(c->body, p->name);
        if (!v || json_is_null(v)) continue;
        if ((st = read_one(c, p, v, e))) return st;
    }
    return ST_OK;
}
