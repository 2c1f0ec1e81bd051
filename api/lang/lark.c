#include "api/lang/lark.h"
#include "api/lang/lark_impl.h"
#include "api/schema/schema.h"
#include "base/json_scan.h"
#include <string.h>

/* ---------------------------------------------------------------- atoms */

static uint32_t parse_choices(struct lark *l);

static uint32_t parse_group(struct lark *l, const char *close)
{
    struct ebnf *e = &l->e;
    size_t       from = e->at++;
    if (l->nested == EBNF_NESTED_MAX) return ebnf_fail(e, from, "groups are nested deeper than %d", EBNF_NESTED_MAX);
    l->nested++;
    uint32_t node = parse_choices(l);
    l->nested--;
    if (!reader_take(e, close)) return ebnf_fail(e, from, "'%s' is missing", close);
    return *close == ']' ? ebnf_repeat(e, node, 0, 1) : node;
}

/* "text", "text"i, "a".."z" */
static uint32_t parse_string(struct lark *l)
{
    struct ebnf *e = &l->e;
    size_t       from = e->at, end;
    uint32_t     low, high;
    uint32_t     r = reader_string(e, false);
    end = e->at;
    if (reader_is(e, "i") && reader_name(e, end, false) == 1) {
        e->at = from;
        r = reader_string(e, true);
        e->at++;
    } else if (reader_is(e, "..\"")) {
        e->at = from;
        low = reader_one_char(e);
        e->at = end + 2;
        high = reader_one_char(e);
        if (high < low) return ebnf_fail(e, from, "a range runs backwards");
        r = chars_range_rx(e->x, low, high, e->json);
    }
    return ebnf_rx(e, r);
}

/* /expression/flags */
static uint32_t parse_regex(struct lark *l)
{
    struct ebnf *e = &l->e;
    size_t       from = e->at++, n = 0;
    char         flags[8] = "";
    while (reader_peek(e, n) != '/') {
        if (reader_peek(e, n) < 0 || reader_peek(e, n) == '\n')
            return ebnf_fail(e, from, "the expression does not end on its line");
        n += reader_peek(e, n) == '\\' ? 2 : 1;
    }
    e->at += n + 1;
    for (size_t k = 0; reader_peek(e, 0) > 0 && strchr("imslux", reader_peek(e, 0)); e->at++) {
        if (reader_peek(e, 0) == 'm' || reader_peek(e, 0) == 'x')
            return ebnf_fail(e, e->at, "the flag '%c' is not supported", reader_peek(e, 0));
        if (k + 1 < sizeof flags) flags[k++] = (char)reader_peek(e, 0);
    }
    return ebnf_rx(e, lark_regex(l, e->text + from + 1, n, flags, from));
}

/* %json {..}: the end of the object is found by its brackets. */
static uint32_t parse_json(struct lark *l)
{
    struct ebnf      *e = &l->e;
    size_t            from, n = 0;
    int               depth = 0;
    bool              quoted = false;
    struct json_error why;
    char              err[SCHEMA_ERR];
    uint32_t          symbol = 0;
    reader_skip(e, false);
    from = e->at;
    if (e->json) return ebnf_fail(e, from, "%%json is not supported where the text stands in a JSON string");
    if (reader_peek(e, 0) != '{') return ebnf_fail(e, from, "a JSON schema is needed behind %%json");
    for (;; n++) {
        int c = reader_peek(e, n);
        if (c < 0) return ebnf_fail(e, from, "the JSON schema does not end");
        if (quoted) {
            if (c == '\\') n++;
            quoted = c != '"';
            continue;
        }
        quoted = c == '"';
        depth += c == '{' || c == '[';
        depth -= c == '}' || c == ']';
        if (depth == 0) break;
    }
    json_t *schema = json_parse(e->text + from, n + 1, 0, &why);
    if (!schema) return ebnf_fail(e, from + why.offset, "%s", why.text);
    json_t     *big = json_big_numbers(e->text + from, n + 1);
    enum status st = schema_rules(e->r, schema, (struct schema_form){ .big = big }, &symbol, err);
    json_decref(big);
    json_decref(schema);
    if (st) return ebnf_fail(e, from, "the JSON schema %.120s", err);
    e->at += n + 1;
    return ebnf_symbol(e, symbol);
}

/* Does a statement begin at this name: `name:`, `name.5:`, `name{..}:`, `name[..]:`? */
static bool begins_statement(const struct ebnf *e, size_t n_name)
{
    size_t at = e->at + n_name;
    if (at < e->n_text && e->text[at] == '.') {
        at++;
        while (at < e->n_text && ((e->text[at] >= '0' && e->text[at] <= '9') || e->text[at] == '-')) at++;
    } else if (at < e->n_text && (e->text[at] == '{' || e->text[at] == '[')) {
        char close = e->text[at] == '{' ? '}' : ']';
        while (at < e->n_text && e->text[at] != close && e->text[at] != '\n') at++;
        at++;
    }
    while (at < e->n_text && (e->text[at] == ' ' || e->text[at] == '\t')) at++;
    return at < e->n_text && e->text[at] == ':';
}

static bool is_end(const struct lark *l)
{
    const struct ebnf *e = &l->e;
    size_t             mark = reader_is(e, "?") || reader_is(e, "!") ? 1 : 0;
    struct ebnf        behind = *e;
    behind.at += mark;
    size_t n = reader_name(&behind, behind.at, false);
    return n > 0 && begins_statement(&behind, n);
}

/* 0 without a failure: nothing more stands in this row. */
static uint32_t parse_atom(struct lark *l)
{
    struct ebnf *e = &l->e;
    size_t       from = e->at, n = reader_name(e, from, false);
    if (is_end(l)) return 0;
    switch (reader_peek(e, 0)) {
    case '"': return parse_string(l);
    case '/': return parse_regex(l);
    case '(': return parse_group(l, ")");
    case '[': return parse_group(l, "]");
    case '<': return ebnf_symbol(e, reader_token(e, l->tokens));
    case '@': return ebnf_fail(e, from, "other grammars cannot be named");
    default: break;
    }
    if (reader_take(e, "%json")) return parse_json(l);
    if (reader_is(e, "%regex") || reader_is(e, "%lark"))
        return ebnf_fail(e, from, "%%regex and %%lark are not supported");
    if (n == 0) return 0;
    e->at += n;
    return ebnf_ref(e, e->text + from, n, from);
}

/* ---------------------------------------------------------------- structure */

/* `~ 3`, `~ 2..4` */
static void parse_tilde(struct ebnf *e, uint32_t *min, uint32_t *max)
{
    size_t from = e->at;
    reader_skip(e, true);
    if (!reader_number(e, min)) ebnf_fail(e, from, "a count is needed");
    *max = *min;
    if (reader_take(e, "..") && !reader_number(e, max)) ebnf_fail(e, from, "a count is needed");
    if (*max > 65536) ebnf_fail(e, from, "a repetition of more than 65536");
    if (*min > *max) ebnf_fail(e, from, "a repetition from more to less");
}

static uint32_t parse_repeated(struct lark *l)
{
    struct ebnf *e = &l->e;
    uint32_t     node = parse_atom(l);
    while (node && reader_more(e)) {
        uint32_t min = 0, max = RX_MANY;
        size_t   was = e->at;
        int      next = reader_peek(e, 1);
        if (reader_is(e, "?") && !((next >= 'a' && next <= 'z') || next == '_')) {
            e->at++;
            max = 1;
        } else if (reader_take(e, "+")) {
            min = 1;
        } else if (reader_is(e, "{") && next != ' ' && next != ',' && (next < '0' || next > '9')) {
            return ebnf_fail(e, was, "templates are not supported");
        } else if (reader_take(e, "{")) {
            reader_counts(e, &min, &max);
        } else if (!reader_take(e, "*")) {
            reader_skip(e, true);
            if (!reader_take(e, "~")) {
                e->at = was;
                break;
            }
            parse_tilde(e, &min, &max);
        }
        node = ebnf_repeat(e, node, min, max);
    }
    return node;
}

static uint32_t parse_row(struct lark *l)
{
    struct ebnf     *e = &l->e;
    struct ebnf_list list = { 0, 0, 0 };
    for (;;) {
        reader_skip(e, true);
        uint32_t node = parse_repeated(l);
        if (!node) break;
        ebnf_push(e, &list, node);
    }
    if (reader_take(e, "->")) {
        reader_skip(e, true);
        size_t n = reader_name(e, e->at, false);
        if (n == 0) ebnf_fail(e, e->at, "a name is needed behind '->'");
        e->at += n;
        reader_skip(e, true);
    }
    return ebnf_cat(e, &list);
}

static uint32_t parse_choices(struct lark *l)
{
    struct ebnf_list list = { 0, 0, 0 };
    do ebnf_push(&l->e, &list, parse_row(l));
    while (reader_take(&l->e, "|"));
    return ebnf_or(&l->e, &list);
}

static bool is_terminal(const char *name, size_t n)
{
    while (n > 1 && *name == '_') {
        name++;
        n--;
    }
    return *name >= 'A' && *name <= 'Z';
}

static void parse_definition(struct lark *l)
{
    struct ebnf *e = &l->e;
    uint32_t     priority = 0;
    if (!reader_take(e, "?")) reader_take(e, "!");
    size_t from = e->at, n = reader_name(e, from, false);
    if (n == 0) {
        ebnf_fail(e, from, "a rule, a terminal or a %%statement is needed");
        return;
    }
    e->at += n;
    if (reader_is(e, "{")) ebnf_fail(e, e->at, "templates are not supported");
    if (reader_is(e, "[")) ebnf_fail(e, e->at, "attributes of rules are not supported");
    if (reader_take(e, ".") && (!reader_number(e, &priority) || priority))
        ebnf_fail(e, e->at, "priorities are not supported");
    reader_skip(e, true);
    if (!reader_take(e, ":"))
        ebnf_fail(e, e->at, "':' is needed behind '%.*s'", (int)(n < 60 ? n : 60), e->text + from);
    bool     terminal = is_terminal(e->text + from, n);
    uint32_t node = parse_choices(l);
    ebnf_define(e, e->text + from, n, from, node, terminal);
}

static void parse_ignore(struct lark *l)
{
    struct ebnf *e = &l->e;
    size_t       from = e->at;
    uint32_t     node = parse_choices(l);
    if (e->failed) return;
    if (l->n_ignore == LARK_IGNORES) {
        ebnf_fail(e, from, "more than %d %%ignore", LARK_IGNORES);
        return;
    }
    l->ignore[l->n_ignore] = node;
    l->ignore_at[l->n_ignore++] = from;
}

static void parse_statement(struct lark *l)
{
    struct ebnf *e = &l->e;
    size_t       from = e->at;
    if (reader_take(e, "%ignore")) {
        parse_ignore(l);
    } else if (reader_take(e, "%import")) {
        lark_import(l);
    } else if (reader_take(e, "%llguidance")) {
        reader_skip(e, true);
        while (reader_more(e) && reader_peek(e, 0) != '\n') e->at++; /* settings of that engine's own */
    } else {
        size_t n = reader_name(e, from + 1, false);
        ebnf_fail(e, from, "%%%.*s is not supported; %%ignore, %%import and %%json are", (int)(n < 40 ? n : 40),
                  e->text + from + 1);
    }
}

/* All that may be ignored, as one terminal, so that there is one reading of it. */
static void make_ignore(struct lark *l)
{
    uint32_t any = RX_NONE;
    for (uint32_t i = 0; i < l->n_ignore; i++)
        any = rx_or2(l->e.x, any, ebnf_terminal_rx(&l->e, l->ignore[i], l->ignore_at[i]));
    if (!l->e.failed && l->n_ignore) l->e.ignore = ebnf_terminal(&l->e, rx_repeat(l->e.x, any, 0, RX_MANY));
}

/* Behind ebnf_init. */
static enum status translate(struct lark *l, uint32_t *symbol_out)
{
    for (reader_skip(&l->e, true); reader_more(&l->e); reader_skip(&l->e, true)) {
        if (reader_is(&l->e, "%"))
            parse_statement(l);
        else
            parse_definition(l);
    }
    make_ignore(l);
    enum status st = ebnf_rules(&l->e, "start", symbol_out);
    ebnf_free(&l->e);
    return st;
}

enum status lark_rules(struct gr_rules *r, const char *text, size_t n, const struct ebnf_tokens *tokens,
                       uint32_t *symbol_out, char err[EBNF_ERR])
{
    struct lark l = { .tokens = tokens };
    enum status st = ebnf_init(&l.e, r, text, n, err);
    return st ? st : translate(&l, symbol_out);
}

enum status lark_rules_inside(struct gr_rules *r, const char *text, size_t n, bool json, uint32_t within,
                              uint32_t *symbol_out, char err[EBNF_ERR])
{
    struct lark l = { .tokens = NULL };
    enum status st = ebnf_init(&l.e, r, text, n, err);
    l.e.json = json;
    l.e.within = within;
    return st ? st : translate(&l, symbol_out);
}
