#include "api/openai/embed_prompt.h"
#include "api/encode.h"
#include <string.h>

enum status check_prompt_name(struct call *c, const struct param *p, const json_t *v, struct api_error *e)
{
    static const struct model_prompts none;
    const struct model_prompts       *all = c->model->prompts ? c->model->prompts : &none;
    char                              show[200], names[300];
    c->prompt_named = model_prompt_find(all, json_string_value(v), json_string_length(v));
    if (c->prompt_named) return ST_OK;
    api_excerpt(show, sizeof show, json_string_value(v), json_string_length(v));
    if (!all->n) return api_fail(e, 400, p->name, "'%s' is '%s', but this model has no prompts", p->name, show);
    return api_fail(e, 400, p->name, "'%s' is '%s', which is no prompt of this model; allowed are %s", p->name, show,
                    model_prompt_names(all, names, sizeof names));
}

const struct model_prompt *embed_prompt_of(const struct call *c, enum prompt_role role)
{
    if (c->prompt_named) return c->prompt_named;
    return c->model->prompts ? c->model->prompts->of[role] : NULL;
}

enum status embed_prompt_place(struct call *c, struct call_prompt *p, uint32_t n, enum prompt_role role,
                               struct api_error *e)
{
    const struct model_prompt *before = embed_prompt_of(c, role);
    for (uint32_t i = 0; i < n; i++) {
        if (!p[i].text && c->prompt_named)
            return api_fail(e, 400, "prompt_name",
                            "'prompt_name' is for texts, and '%s' has token ids: the prompt's are to be among them",
                            c->dialect->prompt_param);
        if (p[i].text && before && before->n_text) p[i].before = before;
    }
    return ST_OK;
}

/* As sentence-transformers counts: the prompt is tokenized alone, and a special token at its end is not counted, as it
 * will stand behind the text. */
enum status embed_prompt_count(struct call *c, const struct call_prompt *p, struct embed_before *b, struct api_error *e)
{
    const struct model_prompt *of = p->before;
    struct call_prompt         own = { .n_id = 0 }, whole = { .n_id = 0 };
    if (!of || (c->ask.truncate == -2 && !c->model->skips_prompt)) {
        *b = (struct embed_before){ .own = 0 };
        return ST_OK;
    }
    if (b->of == of) return ST_OK;
    enum status st = encode_prompt(c, of->text, of->n_text, 0, &own, e);
    if (!st) st = encode_prompt(c, of->text, of->n_text, c->add_special ? TOK_ADD_SPECIAL : 0, &whole, e);
    if (st) return st;
    *b = (struct embed_before){ .of = of, .own = own.n_id };
    if (!c->model->skips_prompt) return ST_OK;
    b->skipped = whole.n_id;
    if (whole.n_id && tok_is_special(c->model->tok, whole.id[whole.n_id - 1])) b->skipped--;
    return ST_OK;
}

const char *embed_prompt_text(struct call *c, const struct call_prompt *p, size_t *n_out)
{
    struct buf *b = &c->rendered;
    *n_out = p->n_text;
    if (!p->before) return p->text;
    buf_clear(b);
    buf_put(b, p->before->text, p->before->n_text);
    buf_put(b, p->text, p->n_text);
    *n_out = b->n;
    return b->failed ? NULL : text_of(b);
}
