#include "api/chat_prompt.h"
#include "api/openai/chat_parts.h"
#include "api/openai/logprob.h"
#include <string.h>

/* POST /v1/chat/completions. */

static const struct chunk_form chat_form = {
    .object = "chat.completion.chunk",
    .open = ",\"delta\":{\"content\":\"",
    .close = "\"}",
    .empty = ",\"delta\":{}",
    .logprobs = logprob_chat,
};

/* ---------------------------------------------------------------- the request */

static enum status chat_prepare(struct call *c, struct api_error *e)
{
    enum status st = chat_prompt_prepare(c, e);
    return st ? st : chunk_prepare(c, &chat_form);
}

/* ---------------------------------------------------------------- the answer as a stream */

static void put_prompt_ids(const struct call *c, struct buf *out)
{
    if (!c->return_token_ids) return;
    buf_puts(out, ",\"prompt_token_ids\":");
    openai_put_ids(c->prompt[0].id, c->prompt[0].n_id, out);
}

/* The role has a chunk of its own, and so has the text that the answer continues. */
static void chat_begin(struct call *c, uint32_t i, struct buf *out)
{
    chunk_open(c, i, out);
    buf_puts(out, ",\"delta\":{\"role\":");
    json_put_str(out, c->role, strlen(c->role));
    buf_puts(out, ",\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null}]");
    put_prompt_ids(c, out);
    openai_put_prompt_text(c, out);
    chunk_close(c, i, out);
    if (!c->echo || !c->n_echo_prefix) return;
    chunk_open(c, i, out);
    buf_puts(out, chat_form.open);
    json_put_str_body(out, c->echo_prefix, c->n_echo_prefix);
    buf_puts(out, chat_form.close);
    buf_puts(out, ",\"logprobs\":null,\"finish_reason\":null}]");
    chunk_close(c, i, out);
}

/* ---------------------------------------------------------------- the answer as a whole */

/* Logprobs are written as tokens come, so that the end of a long answer does not hold up its io thread. */
static void chat_keep(struct call *c, uint32_t i, const struct answer_piece *p, struct buf *out)
{
    struct buf *lp = &c->choice[i].lp;
    (void)out;
    for (uint32_t k = p->from; c->logprobs && k < p->to; k++) {
        if (lp->n) buf_putc(lp, ',');
        logprob_chat_entry(c, i, k, lp);
    }
}

static void put_choice(struct call *c, uint32_t i, struct buf *out)
{
    const struct call_choice *ch = &c->choice[i];
    buf_puts(out, i ? ",{\"index\":" : "{\"index\":");
    json_put_int(out, i);
    buf_puts(out, ",\"message\":{\"role\":");
    json_put_str(out, c->role, strlen(c->role));
    bool echoes = c->echo && c->n_echo_prefix, other = ch->n_call || ch->n_reasoning;
    if (!ch->text.n && !echoes && other) {
        buf_puts(out, ",\"content\":null");
    } else {
        buf_puts(out, ",\"content\":\"");
        if (echoes) json_put_str_body(out, c->echo_prefix, c->n_echo_prefix);
        json_put_str_body(out, text_of(&ch->text), ch->text.n);
        buf_putc(out, '"');
    }
    chat_put_parts(ch, out);
    buf_puts(out, ",\"refusal\":null},\"logprobs\":");
    if (c->logprobs) {
        buf_puts(out, "{\"content\":[");
        buf_put(out, ch->lp.data, ch->lp.n);
        buf_puts(out, "],\"refusal\":null}");
    } else {
        buf_puts(out, "null");
    }
    openai_choice_finish(c, i, out);
    buf_putc(out, '}');
}

static void chat_body(struct call *c, struct buf *out)
{
    openai_body_open(c, "chat.completion", out);
    for (uint32_t i = 0; i < c->n_choice; i++) put_choice(c, i, out);
    openai_body_close(c, out);
    if (c->prompt_logprobs >= 0) {
        buf_puts(out, ",\"prompt_logprobs\":");
        logprob_prompt(c, &c->prompt[0], out);
    }
    put_prompt_ids(c, out);
    openai_put_prompt_text(c, out);
    buf_putc(out, '}');
}

const struct dialect dialect_chat = {
    .id_prefix = "chatcmpl-",
    .fields = &openai_fields,
    .fields_on = ON_CHAT,
    .prompt_param = "messages",
    .max_tokens_param = "max_tokens",
    .top_logprobs_param = "top_logprobs",
    .max_tokens_default = -1,
    .parse = chat_prompt_parse,
    .prepare = chat_prepare,
    .stream = { .begin = chat_begin,
                .text = chunk_text,
                .reason = chat_stream_reason,
                .tool = chat_stream_tool,
                .finish = chunk_finish,
                .usage = chunk_usage },
    .whole = { .text = chat_keep,
               .reason = chat_keep_reason,
               .tool = chat_keep_tool,
               .finish = chat_keep,
               .usage = chat_body },
    .error = api_error_json,
    .error_stream = chunk_error,
};
