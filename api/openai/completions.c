#include "api/encode.h"
#include "api/openai/chunk.h"
#include "api/openai/logprob.h"
#include "api/openai/prompts.h"

/* POST /v1/completions. A prompt is text or token ids; there may be several of one sort. */

static void completion_logprobs(struct call *c, uint32_t i, uint32_t from, uint32_t to, struct buf *out)
{
    logprob_legacy(c, i, false, from, to, NULL, out);
}

static const struct chunk_form completion_form = {
    .object = "text_completion",
    .open = ",\"text\":\"",
    .close = "\"",
    .empty = ",\"text\":\"\"",
    .logprobs = completion_logprobs,
};

/* ---------------------------------------------------------------- the request */

static enum status completion_parse(struct call *c, struct api_error *e)
{
    return prompts_parse(c, c->model->prompts_max, e);
}

static enum status prepare_echo(struct call *c, struct call_prompt *p)
{
    if (!c->echo) return ST_OK;
    p->echo = p->text;
    p->n_echo = p->n_text;
    if (p->text) return ST_OK;
    buf_clear(&c->scratch);
    detok_all(c->model->tok, p->id, p->n_id, c->detok.skip_special, &c->scratch);
    p->n_echo = c->scratch.n;
    p->echo = arena_strndup(&c->arena, text_of(&c->scratch), c->scratch.n);
    return p->echo && !c->scratch.failed ? ST_OK : ST_NOMEM;
}

static enum status prepare_prompts(struct call *c, struct api_error *e)
{
    enum status st = ST_OK;
    for (uint32_t i = 0; i < c->n_prompt && !st; i++) {
        struct call_prompt *p = &c->prompt[i];
        /* the body's tree goes away: what is sent back later is copied */
        bool kept = p->text && (c->echo || c->return_prompt_text);
        if (kept && !(p->text = arena_strndup(&c->arena, p->text, p->n_text))) return ST_NOMEM;
        if (p->text) st = encode_prompt(c, p->text, p->n_text, c->add_special ? TOK_ADD_SPECIAL : 0, p, e);
        uint32_t bos;
        if (!st && !p->n_id && c->add_special && tok_bos(c->model->tok, &bos)) {
            if (!(p->id = arena_alloc(&c->arena, sizeof *p->id))) return ST_NOMEM;
            p->id[0] = bos;
            p->n_id = 1;
        }
        if (!st) st = prepare_echo(c, p);
    }
    if (st || c->echo || c->return_prompt_text) return st;
    for (uint32_t i = 0; i < c->n_prompt; i++) {
        c->prompt[i].text = NULL;
        c->prompt[i].n_text = 0;
    }
    return ST_OK;
}

static enum status completion_prepare(struct call *c, struct api_error *e)
{
    enum status st = prepare_prompts(c, e);
    return st ? st : chunk_prepare(c, &completion_form);
}

/* ---------------------------------------------------------------- the answer as a stream */

static void put_prompt_ids(const struct call *c, const struct call_prompt *p, struct buf *out)
{
    if (!c->return_token_ids) return;
    buf_puts(out, ",\"prompt_token_ids\":");
    openai_put_ids(p->id, p->n_id, out);
}

/* The prompt comes back in a chunk of its own, as text and as ids. */
static void completion_begin(struct call *c, uint32_t i, struct buf *out)
{
    const struct call_prompt *p = call_prompt_of(c, i);
    if (!c->echo && !c->return_token_ids) return;
    chunk_open(c, i, out);
    buf_puts(out, completion_form.open);
    if (c->echo) json_put_str_body(out, p->echo, p->n_echo);
    buf_puts(out, completion_form.close);
    buf_puts(out, ",\"logprobs\":");
    if (c->echo && c->logprobs)
        logprob_legacy(c, i, true, 0, 0, NULL, out);
    else
        buf_puts(out, "null");
    buf_puts(out, ",\"finish_reason\":null");
    put_prompt_ids(c, p, out);
    buf_puts(out, "}]");
    chunk_close(c, i, out);
}

/* ---------------------------------------------------------------- the answer as a whole */

/* Logprobs are written as tokens come, so that the end of a long answer does not hold up its io thread. */
static void completion_keep(struct call *c, uint32_t i, const struct answer_piece *p, struct buf *out)
{
    struct buf *lp = &c->choice[i].lp;
    (void)out;
    for (uint32_t k = p->from; c->logprobs && k < p->to; k++) {
        if (lp->n) buf_putc(lp, ',');
        logprob_legacy_top(c, i, k, lp);
    }
}

static void put_choice(struct call *c, uint32_t i, struct buf *out)
{
    struct call_choice       *ch = &c->choice[i];
    const struct call_prompt *p = call_prompt_of(c, i);
    buf_puts(out, i ? ",{\"index\":" : "{\"index\":");
    json_put_int(out, i);
    buf_puts(out, ",\"text\":\"");
    if (c->echo) json_put_str_body(out, p->echo, p->n_echo);
    json_put_str_body(out, text_of(&ch->text), ch->text.n);
    buf_puts(out, "\",\"logprobs\":");
    if (c->logprobs)
        logprob_legacy(c, i, c->echo, 0, ch->n_used, &ch->lp, out);
    else
        buf_puts(out, "null");
    openai_choice_finish(c, i, out);
    buf_puts(out, ",\"prompt_logprobs\":");
    if (c->prompt_logprobs >= 0)
        logprob_prompt(c, p, out);
    else
        buf_puts(out, "null");
    put_prompt_ids(c, p, out);
    buf_putc(out, '}');
}

static void completion_body(struct call *c, struct buf *out)
{
    openai_body_open(c, completion_form.object, out);
    for (uint32_t i = 0; i < c->n_choice; i++) put_choice(c, i, out);
    openai_body_close(c, out);
    openai_put_prompt_text(c, out);
    buf_putc(out, '}');
}

const struct dialect dialect_completion = {
    .id_prefix = "cmpl-",
    .fields = &openai_fields,
    .fields_on = ON_COMPLETION,
    .prompt_param = "prompt",
    .max_tokens_param = "max_tokens",
    .top_logprobs_param = "logprobs",
    .max_tokens_default = 16,
    .add_special = true,
    .echo_scores_prompt = true,
    .parse = completion_parse,
    .prepare = completion_prepare,
    .stream = { .begin = completion_begin, .text = chunk_text, .finish = chunk_finish, .usage = chunk_usage },
    .whole = { .text = completion_keep, .finish = completion_keep, .usage = completion_body },
    .error = api_error_json,
    .error_stream = chunk_error,
};
