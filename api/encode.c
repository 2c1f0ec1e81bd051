#include "api/encode.h"
#include "api/dialect.h"

enum { COUNTED_CONTEXTS = 4 }; /* where the error tells how long the prompt is, it is counted up to so many contexts */

bool encode_text_fits(const struct api_model *m, size_t bytes)
{
    size_t longest = tok_longest_bytes(m->tok), most;
    return __builtin_mul_overflow((size_t)m->context, longest ? longest : 1, &most) || bytes <= most;
}

enum status encode_too_long(const struct call *c, size_t bytes, struct api_error *e)
{
    size_t longest = tok_longest_bytes(c->model->tok); /* a token has no more bytes, so the text has at least so many */
    if (c->dialect->too_long) return c->dialect->too_long(c, bytes / (longest ? longest : 1), e);
    return api_fail_code(
        e, 400, "input_text", "context_length_exceeded",
        "This model's maximum context length is %u tokens. The text of the request cannot fit into that.",
        c->model->context);
}

enum status encode_prompt(struct call *c, const char *text, size_t n, unsigned flags, struct call_prompt *p,
                          struct api_error *e)
{
    struct tok_ids ids = { 0 };
    bool           cut = c->ask.truncate != -2; /* the request asked for truncation, which comes after this */
    bool           counts = c->dialect->too_long != NULL;
    size_t         max = (size_t)c->model->context * (counts ? COUNTED_CONTEXTS : 1) + 1;
    if (cut) max = n + 16;
    enum status st = guard_encode(&c->guard, text, n, flags, max, &c->arena, &ids);
    if (counts && !cut && (st == ST_TOO_LARGE || (!st && ids.n > c->model->context)))
        return c->dialect->too_long(c, st ? max : ids.n, e);
    if (st == ST_TOO_LARGE && !cut)
        return api_fail_code(
            e, 400, "input_tokens", "context_length_exceeded",
            "This model's maximum context length is %u tokens. However, your prompt contains more than that. "
            "Please reduce the length of the input prompt.",
            c->model->context);
    if (st == ST_TOO_LARGE) return encode_too_long(c, n, e);
    if (st) return api_fail(e, 400, c->dialect->prompt_param, "the prompt cannot be tokenised");
    p->id = ids.id;
    p->n_id = (uint32_t)ids.n;
    return ST_OK;
}
