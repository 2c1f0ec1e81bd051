#include "api/openai/prompts.h"
#include "api/dialect.h"
#include "api/encode.h"

static enum status bad_prompt(const struct call *c, struct api_error *e)
{
    const char *name = c->dialect->prompt_param;
    return api_fail(e, 400, name,
                    "'%s' must be a string, an array of strings, an array of token ids or an array of such arrays",
                    name);
}

static enum status read_ids(struct call *c, const json_t *v, struct call_prompt *p, struct api_error *e)
{
    const char *name = c->dialect->prompt_param;
    size_t      n = json_array_size(v);
    if (!n) return api_fail(e, 400, name, "'%s' must not hold an empty array", name);
    if (n > c->model->context && c->ask.truncate == -2)
        return api_fail_code(
            e, 400, "input_tokens", "context_length_exceeded",
            "This model's maximum context length is %u tokens. However, your prompt contains %zu input tokens.",
            c->model->context, n);
    if (n > UINT32_MAX / 8 || !(p->id = arena_alloc(&c->arena, n * sizeof *p->id))) return ST_NOMEM;
    for (size_t i = 0; i < n; i++) {
        const json_t *x = json_array_get(v, i);
        if (!json_is_integer(x)) return bad_prompt(c, e);
        json_int_t id = json_integer_value(x);
        if (id < 0 || id >= c->model->vocab)
            return api_fail(e, 400, name, "a token id of '%s' is not in the vocabulary of %u", name, c->model->vocab);
        p->id[i] = (uint32_t)id;
    }
    p->n_id = (uint32_t)n;
    return ST_OK;
}

static enum status read_text(struct call *c, const json_t *v, struct call_prompt *p, struct api_error *e)
{
    p->text = json_string_value(v);
    p->n_text = json_string_length(v);
    c->prompt_bytes += p->n_text;
    return c->ask.truncate != -2 || encode_text_fits(c->model, p->n_text) ? ST_OK : encode_too_long(c, p->n_text, e);
}

enum status prompts_parse(struct call *c, uint32_t n_max, struct api_error *e)
{
    const json_t *v = c->ask.prompt, *first = json_array_get(v, 0);
    const char   *name = c->dialect->prompt_param;
    enum status   st = ST_OK;
    if (!v) return api_fail(e, 400, name, "'%s' is required", name);
    if (!json_is_string(v) && !first) return bad_prompt(c, e);
    bool   many = json_is_array(v) && !json_is_integer(first);
    size_t n = many ? json_array_size(v) : 1;
    if (n > n_max) return api_fail(e, 400, name, "'%s' has more than %u entries", name, n_max);
    if (!(c->prompt = arena_calloc(&c->arena, n, sizeof *c->prompt))) return ST_NOMEM;
    for (size_t i = 0; i < n && !st; i++) {
        const json_t *x = many ? json_array_get(v, i) : v;
        if (many && json_typeof(x) != json_typeof(first)) return bad_prompt(c, e);
        if (json_is_string(x))
            st = read_text(c, x, &c->prompt[i], e);
        else if (json_is_array(x))
            st = read_ids(c, x, &c->prompt[i], e);
        else
            st = bad_prompt(c, e);
    }
    c->n_prompt = (uint32_t)n;
    return st;
}
