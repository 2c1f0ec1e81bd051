#include "api/dialect.h"
#include "api/sse.h"
#include <string.h>

/* POST /v1/chat/completions. */

static enum status chat_parse(struct call *c, struct api_error *e)
{
    enum status st;
    if (!c->model->tmpl) return api_fail(e, 400, "messages", "this model has no chat template: use /v1/completions");
    c->n_prompt = 1;
    if (!(c->prompt = arena_calloc(&c->arena, 1, sizeof *c->prompt))) return ST_NOMEM;
    if ((st = messages_check(c, e))) return st;
    return c->ask.truncate != -2 || call_text_fits(c->model, c->prompt_bytes) ? ST_OK : call_too_long(c, e);
}

static enum status chat_prepare(struct call *c, struct api_error *e)
{
    enum status st = messages_render(c, e);
    if (st) return st;
    if (c->ask.truncate == -2 && !call_text_fits(c->model, c->rendered.n)) return call_too_long(c, e);
    st = call_encode(c, text_of(&c->rendered), c->rendered.n, c->add_special ? TOK_ADD_SPECIAL : 0, &c->prompt[0], e);
    if (st) return st;
    if (c->guard.marked && c->rendered.data) c->rendered.n = guard_strip(c->rendered.data, c->rendered.n);
    if (c->return_prompt_text)
        c->prompt[0].text = text_of(&c->rendered), c->prompt[0].n_text = c->rendered.n;
    else
        buf_free(&c->rendered);
    return ST_OK;
}

static void chat_begin(struct call *c, uint32_t i, struct buf *out)
{
    reply_chunk_open(c, i, out);
    buf_puts(out, ",\"delta\":{\"role\":");
    json_put_str(out, c->role, strlen(c->role));
    buf_puts(out, ",\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null}]");
    if (c->return_token_ids) {
        buf_puts(out, ",\"prompt_token_ids\":");
        reply_ids(c->prompt[0].id, c->prompt[0].n_id, out);
    }
    if (c->return_prompt_text && c->prompt[0].text) {
        buf_puts(out, ",\"prompt_text\":");
        json_put_str(out, c->prompt[0].text, c->prompt[0].n_text);
    }
    reply_chunk_close(c, i, out);
    if (!c->echo || !c->n_echo_prefix) return;
    reply_chunk_open(c, i, out);
    buf_puts(out, c->dialect->open);
    json_put_str_body(out, c->echo_prefix, c->n_echo_prefix);
    buf_puts(out, c->dialect->close);
    buf_puts(out, ",\"logprobs\":null,\"finish_reason\":null}]");
    reply_chunk_close(c, i, out);
}

static void chat_step(struct call *c, uint32_t i, uint32_t k, struct buf *lp)
{
    if (lp->n) buf_putc(lp, ',');
    logprob_chat_entry(c, i, k, lp);
}

static void chat_choice(struct call *c, uint32_t i, struct buf *out)
{
    const struct call_choice *ch = &c->choice[i];
    buf_puts(out, ",\"message\":{\"role\":");
    json_put_str(out, c->role, strlen(c->role));
    buf_puts(out, ",\"content\":\"");
    if (c->echo && c->echo_prefix) json_put_str_body(out, c->echo_prefix, c->n_echo_prefix);
    json_put_str_body(out, text_of(&ch->text), ch->text.n);
    buf_puts(out, "\",\"refusal\":null},\"logprobs\":");
    if (!c->logprobs) {
        buf_puts(out, "null");
        return;
    }
    buf_puts(out, "{\"content\":[");
    buf_put(out, ch->lp.data, ch->lp.n);
    buf_puts(out, "],\"refusal\":null}");
}

const struct call_dialect dialect_chat = {
    .id_prefix = "chatcmpl-",
    .object = "chat.completion",
    .chunk_object = "chat.completion.chunk",
    .open = ",\"delta\":{\"content\":\"",
    .close = "\"}",
    .empty = ",\"delta\":{}",
    .parse = chat_parse,
    .prepare = chat_prepare,
    .begin = chat_begin,
    .logprobs = logprob_chat,
    .step = chat_step,
    .choice = chat_choice,
};
