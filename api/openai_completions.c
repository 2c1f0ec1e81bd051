#include "api/dialect.h"
#include "api/sse.h"
#include <string.h>

/* POST /v1/completions. A prompt is text or token ids; there may be several of one sort. */

static enum status bad_prompt(struct api_error *e)
{
    return api_fail(e, 400, "prompt", "'prompt' must be a string, an array of strings, an array of token ids or an array of such arrays");
}

static enum status read_ids(struct call *c, const json_t *v, struct call_prompt *p, struct api_error *e)
{
    size_t n = json_array_size(v);
    if (!n) return api_fail(e, 400, "prompt", "'prompt' must not hold an empty array");
    if (n > c->model->context && c->ask.truncate == -2)
        return api_fail_code(e, 400, "input_tokens", "context_length_exceeded",
                             "This model's maximum context length is %u tokens. However, your prompt contains %zu input tokens.",
                             c->model->context, n);
    if (n > UINT32_MAX / 8 || !(p->id = arena_alloc(&c->arena, n * sizeof *p->id))) return ST_NOMEM;
    for (size_t i = 0; i < n; i++) {
        const json_t *x = json_array_get(v, i);
        if (!json_is_integer(x)) return bad_prompt(e);
        json_int_t id = json_integer_value(x);
        if (id < 0 || id >= c->model->vocab)
            return api_fail(e, 400, "prompt", "a token id of 'prompt' is not in the vocabulary of %u", c->model->vocab);
        p->id[i] = (uint32_t)id;
    }
    p->n_id = (uint32_t)n;
    return ST_OK;
}

static enum status read_text(struct call *c, const json_t *v, struct call_prompt *p, struct api_error *e)
{
    p->text = json_string_value(v), p->n_text = json_string_length(v);
    c->prompt_bytes += p->n_text;
    return c->ask.truncate != -2 || call_text_fits(c->model, p->n_text) ? ST_OK : call_too_long(c, e);
}

static enum status completion_parse(struct call *c, struct api_error *e)
{
    const json_t *v = c->ask.prompt, *first = json_array_get(v, 0);
    enum status   st = ST_OK;
    if (!v) return api_fail(e, 400, "prompt", "'prompt' is required");
    if (!json_is_string(v) && !first) return bad_prompt(e);
    bool   many = json_is_array(v) && !json_is_integer(first);
    size_t n = many ? json_array_size(v) : 1;
    if (n > c->model->prompts_max) return api_fail(e, 400, "prompt", "'prompt' has more than %u entries", c->model->prompts_max);
    if (!(c->prompt = arena_calloc(&c->arena, n, sizeof *c->prompt))) return ST_NOMEM;
    for (size_t i = 0; i < n && !st; i++) {
        const json_t *x = many ? json_array_get(v, i) : v;
        if (many && json_typeof(x) != json_typeof(first)) return bad_prompt(e);
        if (json_is_string(x))
            st = read_text(c, x, &c->prompt[i], e);
        else if (json_is_array(x))
            st = read_ids(c, x, &c->prompt[i], e);
        else
            st = bad_prompt(e);
    }
    c->n_prompt = (uint32_t)n;
    return st;
}

static enum status prepare_echo(struct call *c, struct call_prompt *p)
{
    if (!c->echo) return ST_OK;
    p->echo = p->text, p->n_echo = p->n_text;
    if (p->text) return ST_OK;
    buf_clear(&c->scratch);
    detok_all(c->model->tok, p->id, p->n_id, c->detok.skip_special, &c->scratch);
    p->n_echo = c->scratch.n;
    p->echo = arena_strndup(&c->arena, text_of(&c->scratch), c->scratch.n);
    return p->echo && !c->scratch.failed ? ST_OK : ST_NOMEM;
}

static enum status completion_prepare(struct call *c, struct api_error *e)
{
    enum status st = ST_OK;
    for (uint32_t i = 0; i < c->n_prompt && !st; i++) {
        struct call_prompt *p = &c->prompt[i];
        /* the body's tree goes away: what is sent back later is copied */
        bool kept = p->text && (c->echo || c->return_prompt_text);
        if (kept && !(p->text = arena_strndup(&c->arena, p->text, p->n_text))) return ST_NOMEM;
        if (p->text) st = call_encode(c, p->text, p->n_text, c->add_special ? TOK_ADD_SPECIAL : 0, p, e);
        uint32_t bos;
        if (!st && !p->n_id && c->add_special && tok_bos(c->model->tok, &bos)) {
            if (!(p->id = arena_alloc(&c->arena, sizeof *p->id))) return ST_NOMEM;
            p->id[0] = bos, p->n_id = 1;
        }
        if (!st) st = prepare_echo(c, p);
    }
    if (st || c->echo || c->return_prompt_text) return st;
    for (uint32_t i = 0; i < c->n_prompt; i++) c->prompt[i].text = NULL, c->prompt[i].n_text = 0;
    return ST_OK;
}

static void completion_logprobs(struct call *c, uint32_t i, uint32_t from, uint32_t to, struct buf *out)
{
    logprob_legacy(c, i, false, from, to, NULL, out);
}

static void completion_begin(struct call *c, uint32_t i, struct buf *out)
{
    const struct call_prompt *p = call_prompt_of(c, i);
    if (!c->echo && !c->return_token_ids) return;
    reply_chunk_open(c, i, out);
    buf_puts(out, c->dialect->open);
    if (c->echo) json_put_str_body(out, p->echo, p->n_echo);
    buf_puts(out, c->dialect->close);
    buf_puts(out, ",\"logprobs\":");
    if (c->echo && c->logprobs)
        logprob_legacy(c, i, true, 0, 0, NULL, out);
    else
        buf_puts(out, "null");
    buf_puts(out, ",\"finish_reason\":null");
    if (c->return_token_ids) {
        buf_puts(out, ",\"prompt_token_ids\":");
        reply_ids(p->id, p->n_id, out);
    }
    buf_puts(out, "}]");
    reply_chunk_close(c, i, out);
}

static void completion_step(struct call *c, uint32_t i, uint32_t k, struct buf *lp)
{
    if (lp->n) buf_putc(lp, ',');
    logprob_legacy_top(c, i, k, lp);
}

static void completion_choice(struct call *c, uint32_t i, struct buf *out)
{
    struct call_choice       *ch = &c->choice[i];
    const struct call_prompt *p = call_prompt_of(c, i);
    buf_puts(out, ",\"text\":\"");
    if (c->echo) json_put_str_body(out, p->echo, p->n_echo);
    json_put_str_body(out, text_of(&ch->text), ch->text.n);
    buf_puts(out, "\",\"logprobs\":");
    if (c->logprobs)
        logprob_legacy(c, i, c->echo, 0, ch->n_used, &ch->lp, out);
    else
        buf_puts(out, "null");
}

static void completion_extra(struct call *c, uint32_t i, struct buf *out)
{
    const struct call_prompt *p = call_prompt_of(c, i);
    buf_puts(out, ",\"prompt_logprobs\":");
    if (c->prompt_logprobs >= 0)
        logprob_prompt(c, p, out);
    else
        buf_puts(out, "null");
    if (!c->return_token_ids) return;
    buf_puts(out, ",\"prompt_token_ids\":");
    reply_ids(p->id, p->n_id, out);
}

const struct call_dialect dialect_completion = {
    .id_prefix = "cmpl-",
    .object = "text_completion",
    .chunk_object = "text_completion",
    .open = ",\"text\":\"",
    .close = "\"",
    .empty = ",\"text\":\"\"",
    .parse = completion_parse,
    .prepare = completion_prepare,
    .begin = completion_begin,
    .logprobs = completion_logprobs,
    .step = completion_step,
    .choice = completion_choice,
    .extra = completion_extra,
};
