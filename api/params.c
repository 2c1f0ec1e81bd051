#include "api/dialect.h"
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static void defaults(struct call *c)
{
    const struct api_model *m = c->model;
    c->ask = (struct call_ask){
        .max_tokens = c->dialect->max_tokens_default,
        .max_completion_tokens = -1,
        .n = 1,
        .seed = -1,
        .thinking_budget = -1,
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
        .parallel = true,
    };
    c->ask_reasoning = c->use_activation = c->returns_documents = true;
    c->add_special = c->dialect->add_special;
}

static enum status wrong_type(const struct param *p, struct api_error *e)
{
    static const char *const what[] = { "true or false", "an integer", "a number", "a string",
                                        "an object",     "an array",   "",         "" };
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
            return api_fail(e, 400, p->name, "'%s' must be an integer of at least %" PRId64 " and below 2^31", p->name,
                            p->lo);
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

static bool name_is(const char *own, const char *name, size_t n_name)
{
    return strlen(own) == n_name && !memcmp(own, name, n_name);
}

enum json_want params_want(void *ctx, const char *name, size_t n_name)
{
    const struct dialect      *d = ((const struct call *)ctx)->dialect;
    const struct param_fields *fields = d->fields;
    for (uint32_t i = 0; i < fields->n_row; i++) {
        const struct param *p = &fields->row[i];
        if (!(p->on & d->fields_on) || !name_is(p->name, name, n_name)) continue;
        if (!p->at && !p->check) return JSON_TYPE;
        return p->type <= PARAM_STRING ? JSON_SCALAR : JSON_BUILD;
    }
    return d->nest && name_is(d->nest, name, n_name) ? JSON_BUILD : JSON_SKIP;
}

/* The fields of one object: those whose row has a bit of `on`. */
static enum status read_object(struct call *c, const json_t *from, unsigned on, struct api_error *e)
{
    const struct param_fields *fields = c->dialect->fields;
    for (uint32_t i = 0; i < fields->n_row; i++) {
        const struct param *p = &fields->row[i];
        if (!(p->on & on)) continue;
        const json_t *v = json_object_get(from, p->name);
        if (!v || json_is_null(v)) continue;
        enum status st = read_one(c, p, v, e);
        if (st) return st;
    }
    return ST_OK;
}

static bool is_nested_field(const struct dialect *d, const char *name)
{
    for (uint32_t i = 0; i < d->fields->n_row; i++)
        if ((d->fields->row[i].on & d->nest_on) && !strcmp(d->fields->row[i].name, name)) return true;
    return false;
}

static enum status read_nested(struct call *c, struct api_error *e)
{
    const struct dialect *d = c->dialect;
    json_t               *nest = d->nest ? json_object_get(c->body, d->nest) : NULL;
    const char           *name;
    json_t               *v;
    if (!nest || json_is_null(nest)) return ST_OK;
    if (!json_is_object(nest)) return api_fail(e, 400, d->nest, "'%s' must be an object", d->nest);
    json_object_foreach(nest, name, v) c->n_unknown_fields += !is_nested_field(d, name);
    return read_object(c, nest, d->nest_on, e);
}

enum status params_read(struct call *c, struct api_error *e)
{
    defaults(c);
    enum status st = read_object(c, c->body, c->dialect->fields_on, e);
    return st ? st : read_nested(c, e);
}

/* ---------------------------------------------------------------- what fields say together */

static enum status finish_lengths(struct call *c, struct api_error *e)
{
    struct call_ask *a = &c->ask;
    c->max_tokens_param = c->dialect->max_tokens_param;
    /* a null is not the default: it asks for all that is left */
    c->max_tokens = json_is_null(json_object_get(c->body, c->max_tokens_param)) ? -1 : a->max_tokens;
    if (a->max_completion_tokens >= 0) {
        c->max_tokens = a->max_completion_tokens;
        c->max_tokens_param = "max_completion_tokens";
    }
    if (c->max_tokens == 0) {
        if (!c->echo)
            return api_fail(e, 400, c->max_tokens_param, "'%s' must be at least 1 without 'echo'", c->max_tokens_param);
        c->score_only = true;
        c->max_tokens = 1;
    }
    if (c->max_tokens >= 0 && a->min_tokens > c->max_tokens)
        return api_fail(e, 400, "min_tokens", "'min_tokens' must not be above '%s'", c->max_tokens_param);
    if (c->max_tokens > c->model->context) {
        if (!c->model->clamp_max_tokens && !c->dialect->clamps)
            return api_fail_code(e, 400, c->max_tokens_param, "context_length_exceeded",
                                 "'%s' is %" PRId64 ", but this model's maximum context length is %u tokens",
                                 c->max_tokens_param, c->max_tokens, c->model->context);
        c->max_tokens = c->model->context;
    }
    c->s.min_tokens = (uint32_t)a->min_tokens;
    return ST_OK;
}

static enum status finish_logprobs(struct call *c, struct api_error *e)
{
    struct call_ask *a = &c->ask;
    c->top_logprobs = c->prompt_logprobs = -1;
    if (a->top_logprobs > 0 && !a->logprobs)
        return api_fail(e, 400, "top_logprobs", "'top_logprobs' needs 'logprobs': true");
    if (a->logprobs) c->top_logprobs = a->top_logprobs > 0 ? (int32_t)a->top_logprobs : 0;
    if (a->logprobs_n >= 0) c->top_logprobs = (int32_t)a->logprobs_n;
    c->logprobs = c->top_logprobs >= 0;
    if (a->prompt_logprobs >= 0) {
        if (c->stream) return api_fail(e, 400, "prompt_logprobs", "'prompt_logprobs' cannot be streamed");
        c->prompt_logprobs = (int32_t)a->prompt_logprobs;
    }
    c->s.logprobs = c->logprobs;
    c->s.n_top = c->logprobs ? (uint32_t)c->top_logprobs : 0;
    int32_t scored = c->dialect->echo_scores_prompt && c->echo && c->logprobs ? c->top_logprobs : -1;
    if (c->prompt_logprobs > scored) scored = c->prompt_logprobs;
    c->s.prompt_logprobs = scored >= 0;
    if (c->s.prompt_logprobs && c->hit_share > 0)
        return api_fail(
            e, 400, "cache_hit_threshold",
            "'cache_hit_threshold' above 0 cannot be combined with logprobs of the prompt: all of it is computed for them");
    c->s.n_prompt_top = scored > 0 ? (uint32_t)scored : 0;
    return ST_OK;
}

enum status params_finish(struct call *c, struct api_error *e)
{
    struct call_ask *a = &c->ask;
    enum status      st;
    c->n = (uint32_t)a->n;
    /* vLLM: below 1e-5 greedy; below 0.01 raised, so that logits / temperature stay finite */
    c->s.temperature = (float)a->temperature;
    if (a->temperature < 0.01) c->s.temperature = 0.01f;
    if (a->temperature < 1e-5) c->s.temperature = 0;
    if (c->n > 1 && c->s.temperature == 0)
        return api_fail(e, 400, "n", "'n' must be 1 when 'temperature' is 0: all choices would be the same");
    c->s.top_p = (float)a->top_p;
    c->s.min_p = (float)a->min_p;
    c->s.top_k = a->top_k > 0 ? (uint32_t)a->top_k : 0;
    c->s.presence = (float)a->presence;
    c->s.frequency = (float)a->frequency;
    c->s.repetition = (float)a->repetition;
    c->has_seed = a->seed != -1;
    if (c->has_seed) memcpy(&c->s.seed, &a->seed, sizeof c->s.seed);
    c->priority = (int32_t)a->priority;
    c->detok.skip_special = a->skip_special;
    c->detok.spaces_between_special = a->spaces_between;
    c->detok.include_stop = a->include_stop;
    if ((st = finish_lengths(c, e))) return st;
    return finish_logprobs(c, e);
}
