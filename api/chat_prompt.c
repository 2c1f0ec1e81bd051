#include "api/chat_prompt.h"
#include "api/dialect.h"
#include "api/encode.h"
#include "api/family.h"
#include "api/messages.h"
#include "api/tools.h"

enum { COUNT_IDS_MAX = 4 << 20 };

enum status chat_prompt_parse(struct call *c, struct api_error *e)
{
    enum status st;
    if (!c->model->tmpl)
        return api_fail(e, 400, c->dialect->prompt_param, "this model has no chat template: use /v1/completions");
    c->n_prompt = 1;
    if (!(c->prompt = arena_calloc(&c->arena, 1, sizeof *c->prompt))) return ST_NOMEM;
    if ((st = messages_check(c, e))) return st;
    if (c->ask.truncate == -2 && !c->ask.drops_oldest && !encode_text_fits(c->model, c->prompt_bytes))
        return encode_too_long(c, c->prompt_bytes, e);
    return tools_read(c, e);
}

static void set_reasoning(struct call *c)
{
    const struct family *f = c->model->family;
    enum family_thinking k = family_thinking(f, text_of(&c->rendered), c->rendered.n);
    c->reasons = k == FAMILY_THINKS;
    c->may_reason = k == FAMILY_NO_THOUGHT && calls_thinks(&f->calls) && !c->ask.continue_final;
}

enum status chat_prompt_prepare(struct call *c, struct api_error *e)
{
    enum status st = messages_render(c, e);
    if (st) return st;
    if (c->ask.truncate == -2 && !encode_text_fits(c->model, c->rendered.n))
        return encode_too_long(c, c->rendered.n, e);
    if (c->model->family) set_reasoning(c);
    st = encode_prompt(c, text_of(&c->rendered), c->rendered.n, c->add_special ? TOK_ADD_SPECIAL : 0, &c->prompt[0], e);
    if (st) return st;
    if (c->guard.marked && c->rendered.data) c->rendered.n = guard_strip(c->rendered.data, c->rendered.n);
    if (c->return_prompt_text) {
        c->prompt[0].text = text_of(&c->rendered);
        c->prompt[0].n_text = c->rendered.n;
    } else {
        buf_free(&c->rendered);
    }
    return ST_OK;
}

enum status chat_prompt_count(struct call *c, struct buf *out, struct api_error *e)
{
    struct tok_ids ids = { 0 };
    enum status    st = messages_render(c, e);
    if (!st) st = guard_encode(&c->guard, text_of(&c->rendered), c->rendered.n, 0, COUNT_IDS_MAX, &c->arena, &ids);
    if (st == ST_TOO_LARGE && !e->http && c->dialect->too_long) return c->dialect->too_long(c, COUNT_IDS_MAX, e);
    if (st == ST_TOO_LARGE && !e->http)
        st = api_fail_code(e, 400, c->dialect->prompt_param, "context_length_exceeded",
                           "the prompt has more than the %d tokens that are counted", COUNT_IDS_MAX);
    if (st == ST_INVALID && !e->http) api_fail(e, 400, c->dialect->prompt_param, "the prompt cannot be tokenised");
    if (st && !e->http) api_fail(e, 503, "", "out of memory");
    if (st) return st;
    buf_puts(out, "\"input_tokens\":");
    json_put_int(out, (int64_t)ids.n);
    return ST_OK;
}
