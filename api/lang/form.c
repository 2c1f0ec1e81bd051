#include "api/lang/form.h"
#include "api/lang/gbnf.h"
#include "api/lang/lark.h"
#include "api/lang/tags.h"
#include "api/schema/regex.h"
#include "engine/grammar/rx_texts.h"

static uint32_t of_choices(struct rx *x, const json_t *list)
{
    struct rx_texts t;
    rx_texts_init(&t, x);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *s = json_array_get(list, i);
        rx_texts_bytes(&t, json_string_value(s), json_string_length(s));
        rx_texts_end(&t);
    }
    uint32_t r = rx_texts_any(&t);
    rx_texts_free(&t);
    return r;
}

static enum status of_grammar(struct gr_rules *r, const json_t *text, const struct ebnf_tokens *tokens,
                              uint32_t *symbol_out, char *err)
{
    const char *s = json_string_value(text);
    size_t      n = json_string_length(text);
    return gbnf_is(s, n) ? gbnf_rules(r, s, n, tokens, symbol_out, err) : lark_rules(r, s, n, tokens, symbol_out, err);
}

enum status form_rules(const struct form *f, const struct ebnf_tokens *tokens, struct gr_rules *r, uint32_t *symbol_out,
                       char err[FORM_ERR])
{
    uint32_t    rx = RX_NONE;
    enum status st = ST_OK;
    switch (f->kind) {
    case FORM_SCHEMA: return schema_rules(r, f->value, f->schema, symbol_out, err);
    case FORM_GRAMMAR: return of_grammar(r, f->value, tokens, symbol_out, err);
    case FORM_TAGS: return tags_rules(r, f->value, tokens, f->schema, symbol_out, err);
    case FORM_OBJECT: *symbol_out = schema_any_object(r, f->schema); return ST_OK;
    case FORM_REGEX:
        st = regex_rx(gr_rx(r), json_string_value(f->value), json_string_length(f->value),
                      (struct regex_form){ false, false }, &rx, err);
        break;
    default: rx = of_choices(gr_rx(r), f->value); break;
    }
    if (!st) *symbol_out = gr_terminal(r, rx);
    return st;
}

enum status form_compile(const struct form *f, const struct ebnf_tokens *tokens, struct grammar **g_out,
                         char err[FORM_ERR])
{
    struct gr_rules *r = gr_rules_create(&gr_limits_default);
    uint32_t         symbol = 0;
    *err = 0;
    if (!r) return ST_NOMEM;
    enum status st = form_rules(f, tokens, r, &symbol, err);
    if (!st) return gr_build(r, symbol, g_out, err);
    gr_rules_free(r);
    return st;
}
