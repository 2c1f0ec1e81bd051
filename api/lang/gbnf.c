#include "api/lang/gbnf.h"
#include "api/lang/reader.h"

struct gbnf {
    struct ebnf               e;
    const struct ebnf_tokens *tokens;
    uint32_t                  nested;
};

/* Does a rule begin here, after the name? */
static bool begins_rule(const struct ebnf *e, size_t n_name)
{
    size_t at = e->at + n_name;
    while (at < e->n_text && (e->text[at] == ' ' || e->text[at] == '\t')) at++;
    return e->n_text - at >= 3 && e->text[at] == ':' && e->text[at + 1] == ':' && e->text[at + 2] == '=';
}

static uint32_t parse_choices(struct gbnf *g);

static uint32_t parse_group(struct gbnf *g)
{
    struct ebnf *e = &g->e;
    size_t       from = e->at++;
    if (reader_is(e, "=") || reader_is(e, "!")) return ebnf_fail(e, from, "look-ahead is not supported");
    if (g->nested == EBNF_NESTED_MAX) return ebnf_fail(e, from, "groups are nested deeper than %d", EBNF_NESTED_MAX);
    g->nested++;
    uint32_t node = parse_choices(g);
    g->nested--;
    if (!reader_take(e, ")")) return ebnf_fail(e, e->failed ? e->at : from, "')' is missing");
    return node;
}

/* 0 without a failure: nothing more stands in this row. */
static uint32_t parse_atom(struct gbnf *g)
{
    struct ebnf *e = &g->e;
    struct chars all = { .n = 0 };
    size_t       from = e->at, n = reader_name(e, from, true);
    switch (reader_peek(e, 0)) {
    case '"': return ebnf_rx(e, reader_string(e, false));
    case '[': return ebnf_rx(e, reader_class(e));
    case '(': return parse_group(g);
    case '<': return ebnf_symbol(e, reader_token(e, g->tokens));
    case '.':
        e->at++;
        chars_add(&all, 0, RX_CODE_POINT_MAX);
        return ebnf_rx(e, chars_rx(e->x, &all, false));
    default: break;
    }
    if (n == 0 || begins_rule(e, n)) return 0;
    e->at += n;
    return ebnf_ref(e, e->text + from, n, from);
}

static uint32_t parse_repeated(struct gbnf *g)
{
    struct ebnf *e = &g->e;
    uint32_t     node = parse_atom(g);
    while (node && reader_more(e)) {
        uint32_t min = 0, max = RX_MANY;
        if (reader_take(e, "?"))
            max = 1;
        else if (reader_take(e, "+"))
            min = 1;
        else if (reader_take(e, "{"))
            reader_counts(e, &min, &max);
        else if (!reader_take(e, "*"))
            break;
        node = ebnf_repeat(e, node, min, max);
    }
    return node;
}

static uint32_t parse_row(struct gbnf *g)
{
    struct ebnf_list list = { 0, 0, 0 };
    for (;;) {
        reader_skip(&g->e, false);
        uint32_t node = parse_repeated(g);
        if (!node) break;
        ebnf_push(&g->e, &list, node);
    }
    return ebnf_cat(&g->e, &list);
}

static uint32_t parse_choices(struct gbnf *g)
{
    struct ebnf_list list = { 0, 0, 0 };
    do ebnf_push(&g->e, &list, parse_row(g));
    while (reader_take(&g->e, "|"));
    return ebnf_or(&g->e, &list);
}

static void parse_rule(struct gbnf *g)
{
    struct ebnf *e = &g->e;
    size_t       from = e->at, n = reader_name(e, from, true);
    if (n == 0) {
        ebnf_fail(e, from, "a rule is needed: name ::= ...");
        return;
    }
    e->at += n;
    reader_skip(e, false);
    if (!reader_take(e, "::=")) {
        ebnf_fail(e, e->at, "'::=' is needed behind '%.*s'", (int)(n < 60 ? n : 60), e->text + from);
        return;
    }
    uint32_t node = parse_choices(g);
    if (reader_is(e, ")")) ebnf_fail(e, e->at, "')' without '('");
    ebnf_define(e, e->text + from, n, from, node, false);
}

enum status gbnf_rules(struct gr_rules *r, const char *text, size_t n, const struct ebnf_tokens *tokens,
                       uint32_t *symbol_out, char err[EBNF_ERR])
{
    struct gbnf g = { .tokens = tokens };
    enum status st = ebnf_init(&g.e, r, text, n, err);
    if (st) return st;
    reader_skip(&g.e, false);
    while (reader_more(&g.e)) {
        parse_rule(&g);
        reader_skip(&g.e, false);
    }
    st = ebnf_rules(&g.e, "root", symbol_out);
    ebnf_free(&g.e);
    return st;
}

bool gbnf_is(const char *text, size_t n)
{
    char quote = 0;
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        if (c == '\n') {
            quote = 0;
        } else if (quote) {
            if (c == '\\') i++;
            if (c == quote) quote = 0;
        } else if (c == '"' || c == '\'') {
            quote = c;
        } else if (c == '#' || (c == '/' && i + 1 < n && text[i + 1] == '/')) {
            while (i + 1 < n && text[i + 1] != '\n') i++;
        } else if (c == ':' && n - i >= 3 && text[i + 1] == ':' && text[i + 2] == '=') {
            return true;
        }
    }
    return false;
}
