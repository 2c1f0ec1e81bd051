#include "api/lang/tags.h"
#include "api/lang/gbnf.h"
#include "api/lang/lark.h"
#include "api/pointer.h"
#include "api/schema/regex.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { PIECES_MAX = 16, TOKEN_BYTES_MAX = 64 };

struct tags {
    struct gr_rules          *r;
    struct rx                *x;
    const struct ebnf_tokens *tokens;
    struct schema_form        form;
    struct pointer            at; /* the node that is looked at */
    uint32_t                  depth;
    bool                      failed;
    char                     *err;
};

static uint32_t fail(struct tags *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static uint32_t fail(struct tags *t, const char *fmt, ...)
{
    char    what[TAGS_ERR - POINTER_BYTES - 20];
    va_list args;
    if (t->failed) return 0;
    t->failed = true;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    snprintf(t->err, TAGS_ERR, "at '%s': %s", t->at.text, what);
    return 0;
}

static uint32_t node(struct tags *t, const json_t *v, const json_t *ends);

static uint32_t member(struct tags *t, const json_t *v, const char *key, const json_t *ends)
{
    size_t   n = pointer_key(&t->at, key);
    uint32_t symbol = node(t, json_object_get(v, key), ends);
    pointer_leave(&t->at, n);
    return symbol;
}

/* ---------------------------------------------------------------- texts */

static bool is_number(const char *s, size_t n)
{
    for (size_t i = 1; i + 1 < n; i++)
        if (s[i] < '0' || s[i] > '9') return false;
    return n > 2 && s[0] == '[';
}

/* The longest special token that is spelled here; 0: none. */
static size_t token_at(const struct tags *t, const char *s, size_t n, uint32_t *id_out)
{
    for (size_t k = n < TOKEN_BYTES_MAX ? n : TOKEN_BYTES_MAX; k > 0; k--)
        if (t->tokens && !is_number(s, k) && t->tokens->find(t->tokens->self, s, k, id_out)) return k;
    return 0;
}

static uint32_t bytes_symbol(struct tags *t, const char *s, size_t n)
{
    return gr_terminal(t->r, rx_of_bytes(t->x, s, n));
}

/* A text as symbols: special tokens as such, and what stands between them as bytes. Returns their number; *n_token_out:
 * how many are tokens. */
static uint32_t pieces_of(struct tags *t, const char *s, size_t n, uint32_t *symbol, uint32_t *n_token_out)
{
    uint32_t count = 0, id;
    size_t   from = 0, at = 0;
    *n_token_out = 0;
    while (at < n && count + 2 < PIECES_MAX) {
        size_t k = token_at(t, s + at, n - at, &id);
        if (!k) {
            at++;
            continue;
        }
        if (at > from) symbol[count++] = bytes_symbol(t, s + from, at - from);
        symbol[count++] = gr_token(t->r, id);
        ++*n_token_out;
        from = at += k;
    }
    if (n > from) symbol[count++] = bytes_symbol(t, s + from, n - from);
    return count;
}

static const char *text_of(struct tags *t, const json_t *v, const char *what, size_t *n_out)
{
    *n_out = json_string_length(v);
    if (!json_is_string(v) || *n_out > TAGS_TEXT_MAX) {
        fail(t, "'%s' must be a string of at most %d bytes", what, TAGS_TEXT_MAX);
        *n_out = 0;
        return "";
    }
    return json_string_value(v);
}

/* A text by its bytes, or with the special tokens that it names. */
static uint32_t literal(struct tags *t, const char *s, size_t n)
{
    uint32_t rule = gr_rule(t->r), symbol[PIECES_MAX], n_token, count = pieces_of(t, s, n, symbol, &n_token);
    gr_alt(t->r, rule, symbol, count);
    if (!n_token) return rule;
    symbol[0] = bytes_symbol(t, s, n);
    gr_alt(t->r, rule, symbol, 1);
    return rule;
}

/* ---------------------------------------------------------------- free text */

/* Strings that a free text may not hold: of up to three lists, or one string. */
struct stops {
    const json_t *list[3];
};

static const json_t *stop_at(const struct stops *s, size_t *i)
{
    for (size_t k = 0; k < 3; k++) {
        size_t n = json_is_string(s->list[k]) ? 1 : json_array_size(s->list[k]);
        if (*i < n) return json_is_string(s->list[k]) ? s->list[k] : json_array_get(s->list[k], *i);
        *i -= n;
    }
    return NULL;
}

/* Any text that ends with one of them; of the texts that hold one: those in which it is followed by more. */
static uint32_t texts_with(struct tags *t, const struct stops *s, uint32_t before, uint32_t behind)
{
    uint32_t      any = RX_NONE;
    const json_t *one;
    for (size_t i = 0, at = 0; (one = stop_at(s, &at)); at = ++i) {
        if (!json_string_length(one)) continue;
        any = rx_or2(t->x, any, rx_of_bytes(t->x, json_string_value(one), json_string_length(one)));
    }
    return rx_cat(t->x, before, rx_cat(t->x, any, behind));
}

static uint32_t free_rx(struct tags *t, const struct stops *s)
{
    return rx_not(t->x, texts_with(t, s, RX_ALL, RX_ALL));
}

/* Free text up to the end of `text`, which is the first of the stops in it. */
static uint32_t until_rx(struct tags *t, const struct stops *s, const char *text, size_t n)
{
    struct rx_class any = { { 0 } };
    rx_class_add(&any, 0, 255);
    uint32_t more = rx_cat(t->x, rx_of_class(t->x, &any), RX_ALL);
    uint32_t early = texts_with(t, s, RX_ALL, more);
    return rx_and2(t->x, rx_cat(t->x, RX_ALL, rx_of_bytes(t->x, text, n)), rx_not(t->x, early));
}

static const json_t *list_of(struct tags *t, const json_t *v, const char *key, bool needed)
{
    const json_t *list = json_object_get(v, key);
    if (!list && !needed) return NULL;
    if (!json_is_array(list) || json_array_size(list) > TAGS_LIST_MAX || (needed && !json_array_size(list))) {
        fail(t, "'%s' must be a list of at most %d", key, TAGS_LIST_MAX);
        return NULL;
    }
    return list;
}

static const json_t *strings_of(struct tags *t, const json_t *v, const char *key, bool needed)
{
    const json_t *list = list_of(t, v, key, needed);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *s = json_array_get(list, i);
        if (!json_string_length(s) || json_string_length(s) > TAGS_TEXT_MAX)
            fail(t, "'%s' must be a list of strings of 1 to %d bytes", key, TAGS_TEXT_MAX);
    }
    return list;
}

static uint32_t any_text(struct tags *t, const json_t *v, const json_t *ends)
{
    const struct stops stops = { { strings_of(t, v, "excludes", false), ends } };
    if (json_object_get(v, "max_tokens") || json_object_get(v, "max_chars"))
        return fail(t, "bounds of a free text are not supported");
    return gr_terminal(t->r, free_rx(t, &stops));
}

/* ---------------------------------------------------------------- tags */

static void check_tag(struct tags *t, const json_t *v)
{
    const json_t *end = json_object_get(v, "end");
    size_t        n = json_is_array(end) ? json_array_size(end) : 1;
    if (!json_is_object(v)) fail(t, "a tag must be an object with 'begin', 'content' and 'end'");
    if (n == 0 || n > TAGS_LIST_MAX) fail(t, "'end' must be a string or a list of strings");
    for (size_t i = 0; i < n; i++) text_of(t, json_is_array(end) ? json_array_get(end, i) : end, "end", &(size_t){ 0 });
}

/* What stands behind the beginning: content, and one of the ends. */
static uint32_t behind_begin(struct tags *t, const json_t *v)
{
    const json_t *end = json_object_get(v, "end");
    uint32_t      close = gr_rule(t->r), rule = gr_rule(t->r);
    check_tag(t, v);
    for (size_t i = 0; !t->failed && i < (json_is_array(end) ? json_array_size(end) : 1); i++) {
        const json_t *one = json_is_array(end) ? json_array_get(end, i) : end;
        uint32_t      symbol = literal(t, json_string_value(one), json_string_length(one));
        gr_alt(t->r, close, &symbol, 1);
    }
    uint32_t content = member(t, v, "content", end);
    gr_alt(t->r, rule, (uint32_t[]){ content, close }, 2);
    return rule;
}

static uint32_t tag(struct tags *t, const json_t *v)
{
    size_t      n;
    const char *begin = text_of(t, json_object_get(v, "begin"), "begin", &n);
    uint32_t    rule = gr_rule(t->r), open = literal(t, begin, n), rest = behind_begin(t, v);
    gr_alt(t->r, rule, (uint32_t[]){ open, rest }, 2);
    return rule;
}

/* The trigger that a tag begins with: exactly one. */
static const json_t *trigger_of(struct tags *t, const json_t *triggers, const char *begin, size_t n)
{
    const json_t *found = NULL;
    for (size_t i = 0; i < json_array_size(triggers); i++) {
        const json_t *one = json_array_get(triggers, i);
        size_t        len = json_string_length(one);
        if (len > n || memcmp(begin, json_string_value(one), len) != 0) continue;
        if (found) fail(t, "'begin' begins with two of the triggers");
        found = one;
    }
    if (!found) fail(t, "'begin' begins with none of the triggers");
    return found;
}

/* Free text and the tag behind it, as alternatives of `rule`. */
static void add_triggered(struct tags *t, uint32_t rule, const json_t *v, const struct stops *stops)
{
    size_t        n;
    const char   *begin = text_of(t, json_object_get(v, "begin"), "begin", &n);
    const json_t *trigger = t->failed ? NULL : trigger_of(t, stops->list[0], begin, n);
    uint32_t      rest = behind_begin(t, v), symbol[PIECES_MAX + 2], n_token;
    if (t->failed) return;
    size_t   n_trigger = json_string_length(trigger);
    uint32_t first = gr_terminal(t->r, until_rx(t, stops, begin, n_trigger));
    uint32_t second = literal(t, begin + n_trigger, n - n_trigger);
    gr_alt(t->r, rule, (uint32_t[]){ first, second, rest }, 3);
    uint32_t count = pieces_of(t, begin, n, symbol + 1, &n_token);
    if (!n_token) return;
    symbol[0] = gr_terminal(t->r, free_rx(t, stops));
    symbol[1 + count] = rest;
    gr_alt(t->r, rule, symbol, count + 2);
}

/* The older spelling calls the content a schema. */
static const json_t *as_tag(struct tags *t, const json_t *v, json_t **made_out)
{
    const json_t *schema = json_object_get(v, "schema");
    *made_out = NULL;
    if (!schema || json_object_get(v, "content")) return v;
    *made_out = json_pack("{s:O,s:O,s:{s:s,s:O}}", "begin", json_object_get(v, "begin"), "end",
                          json_object_get(v, "end"), "content", "type", "json_schema", "json_schema", schema);
    if (!*made_out) fail(t, "'begin' and 'end' must be strings");
    return *made_out;
}

static uint32_t triggered_tags(struct tags *t, const json_t *v, const char *key, const json_t *ends)
{
    const json_t *triggers = strings_of(t, v, "triggers", true), *list = list_of(t, v, key, true);
    struct stops  stops = { { triggers, strings_of(t, v, "excludes", false), ends } };
    uint32_t      one = gr_rule(t->r), rule = gr_rule(t->r), many = gr_rule(t->r);
    bool          least = json_is_true(json_object_get(v, "at_least_one"));
    for (size_t i = 0; !t->failed && i < json_array_size(list); i++) {
        json_t *made;
        size_t  n = pointer_key(&t->at, key), k = pointer_index(&t->at, i);
        add_triggered(t, one, as_tag(t, json_array_get(list, i), &made), &stops);
        json_decref(made);
        pointer_leave(&t->at, k);
        pointer_leave(&t->at, n);
    }
    if (t->failed) return 0;
    uint32_t text = gr_terminal(t->r, free_rx(t, &stops));
    if (json_is_true(json_object_get(v, "stop_after_first"))) {
        gr_alt(t->r, rule, &one, 1);
        if (!least) gr_alt(t->r, rule, &text, 1);
        return rule;
    }
    gr_alt(t->r, many, NULL, 0);
    gr_alt(t->r, many, (uint32_t[]){ many, one }, 2);
    if (least)
        gr_alt(t->r, rule, (uint32_t[]){ many, one, text }, 3);
    else
        gr_alt(t->r, rule, (uint32_t[]){ many, text }, 2);
    return rule;
}

static uint32_t tags_with_separator(struct tags *t, const json_t *v)
{
    const json_t *list = list_of(t, v, "tags", true);
    size_t        n_text;
    const char   *text = text_of(t, json_object_get(v, "separator"), "separator", &n_text);
    uint32_t      one = gr_rule(t->r), many = gr_rule(t->r), rule = gr_rule(t->r);
    for (size_t i = 0; !t->failed && i < json_array_size(list); i++) {
        size_t   n = pointer_key(&t->at, "tags"), k = pointer_index(&t->at, i);
        uint32_t symbol = tag(t, json_array_get(list, i));
        gr_alt(t->r, one, &symbol, 1);
        pointer_leave(&t->at, k);
        pointer_leave(&t->at, n);
    }
    if (t->failed) return 0;
    gr_alt(t->r, many, &one, 1);
    if (!json_is_true(json_object_get(v, "stop_after_first")))
        gr_alt(t->r, many, (uint32_t[]){ many, literal(t, text, n_text), one }, 3);
    gr_alt(t->r, rule, &many, 1);
    if (!json_is_true(json_object_get(v, "at_least_one"))) gr_alt(t->r, rule, NULL, 0);
    return rule;
}

/* ---------------------------------------------------------------- the other kinds */

static uint32_t elements(struct tags *t, const json_t *v, bool all)
{
    const json_t *list = list_of(t, v, "elements", true);
    uint32_t      rule = gr_rule(t->r), row = gr_rule(t->r);
    gr_alt(t->r, row, NULL, 0);
    for (size_t i = 0; !t->failed && i < json_array_size(list); i++) {
        size_t   n = pointer_key(&t->at, "elements"), k = pointer_index(&t->at, i);
        uint32_t symbol = node(t, json_array_get(list, i), NULL);
        pointer_leave(&t->at, k);
        pointer_leave(&t->at, n);
        if (!all) {
            gr_alt(t->r, rule, &symbol, 1);
            continue;
        }
        uint32_t longer = gr_rule(t->r);
        gr_alt(t->r, longer, (uint32_t[]){ row, symbol }, 2);
        row = longer;
    }
    return all ? row : rule;
}

/* min to max times; max RX_MANY: any number. */
static uint32_t repeated(struct tags *t, const json_t *v, uint32_t min, uint32_t max)
{
    uint32_t of = member(t, v, "content", NULL), row = gr_rule(t->r), rule = gr_rule(t->r);
    gr_alt(t->r, row, NULL, 0);
    if (t->failed) return 0;
    for (uint32_t i = 0; i < (max == RX_MANY ? min : max); i++) {
        if (i >= min) gr_alt(t->r, rule, &row, 1);
        uint32_t longer = gr_rule(t->r);
        gr_alt(t->r, longer, (uint32_t[]){ row, of }, 2);
        row = longer;
    }
    gr_alt(t->r, rule, &row, 1);
    if (max == RX_MANY) gr_alt(t->r, rule, (uint32_t[]){ rule, of }, 2);
    return rule;
}

static uint32_t repeat(struct tags *t, const json_t *v)
{
    const json_t *min = json_object_get(v, "min"), *max = json_object_get(v, "max");
    json_int_t    from = json_integer_value(min), to = json_integer_value(max);
    if (!json_is_integer(min) || !json_is_integer(max) || from < 0 || from > TAGS_REPEAT_MAX || to > TAGS_REPEAT_MAX ||
        to < -1 || (to >= 0 && to < from))
        return fail(t, "'min' and 'max' must be counts up to %d, or -1 as 'max'", TAGS_REPEAT_MAX);
    return repeated(t, v, (uint32_t)from, to < 0 ? RX_MANY : (uint32_t)to);
}

/* Forms that have a compiler of their own, whose error stands behind the place. */
static uint32_t schema_node(struct tags *t, const json_t *v)
{
    const json_t *schema = json_object_get(v, "json_schema"), *style = json_object_get(v, "style");
    char          err[SCHEMA_ERR] = "";
    uint32_t      symbol = 0;
    if (style && !json_str_is(style, "json")) return fail(t, "of styles, \"json\" alone is supported");
    if (!json_is_object(schema) && !json_is_boolean(schema)) return fail(t, "'json_schema' must be a JSON schema");
    struct schema_form form = t->form;
    struct pointer     at = t->at;
    pointer_key(&at, "json_schema");
    form.at = at.text;
    if (!schema_rules(t->r, schema, form, &symbol, err)) return symbol;
    t->failed = true;
    snprintf(t->err, TAGS_ERR, "%s", err);
    return 0;
}

static uint32_t grammar_node(struct tags *t, const json_t *v)
{
    const json_t *text = json_object_get(v, "grammar");
    const char   *s = json_string_value(text);
    size_t        n = json_string_length(text);
    char          err[EBNF_ERR] = "";
    uint32_t      symbol = 0;
    if (!s) return fail(t, "'grammar' must be the text of a grammar");
    enum status st = gbnf_is(s, n) ? gbnf_rules(t->r, s, n, t->tokens, &symbol, err)
                                   : lark_rules(t->r, s, n, t->tokens, &symbol, err);
    return st ? fail(t, "%s", err) : symbol;
}

static uint32_t regex_node(struct tags *t, const json_t *v)
{
    const json_t           *pattern = json_object_get(v, "pattern");
    const struct regex_form whole = { .search = false };
    char                    err[REGEX_ERR] = "";
    uint32_t                rx;
    if (!json_is_string(pattern)) return fail(t, "'pattern' must be a regular expression");
    if (regex_rx(t->x, json_string_value(pattern), json_string_length(pattern), whole, &rx, err))
        return fail(t, "%s", err);
    return gr_terminal(t->r, rx);
}

static uint32_t const_string(struct tags *t, const json_t *v)
{
    size_t      n;
    const char *text = text_of(t, json_object_get(v, "value"), "value", &n);
    return literal(t, text, n);
}

static uint32_t node_of_type(struct tags *t, const json_t *v, const char *type, const json_t *ends)
{
    if (!strcmp(type, "const_string")) return const_string(t, v);
    if (!strcmp(type, "json_schema")) return schema_node(t, v);
    if (!strcmp(type, "grammar")) return grammar_node(t, v);
    if (!strcmp(type, "regex")) return regex_node(t, v);
    if (!strcmp(type, "any_text")) return any_text(t, v, ends);
    if (!strcmp(type, "sequence")) return elements(t, v, true);
    if (!strcmp(type, "or")) return elements(t, v, false);
    if (!strcmp(type, "optional")) return repeated(t, v, 0, 1);
    if (!strcmp(type, "star")) return repeated(t, v, 0, RX_MANY);
    if (!strcmp(type, "plus")) return repeated(t, v, 1, RX_MANY);
    if (!strcmp(type, "repeat")) return repeat(t, v);
    if (!strcmp(type, "tag")) return tag(t, v);
    if (!strcmp(type, "triggered_tags")) return triggered_tags(t, v, "tags", ends);
    if (!strcmp(type, "tags_with_separator")) return tags_with_separator(t, v);
    return fail(t, "'%.40s' is no 'type' that is supported", type);
}

/* ends: the strings that end the tag around it, or NULL. */
static uint32_t node(struct tags *t, const json_t *v, const json_t *ends)
{
    const char *type = json_string_value(json_object_get(v, "type"));
    if (t->failed) return 0;
    if (!type) return fail(t, "an object with a 'type' is needed");
    if (++t->depth > TAGS_DEPTH_MAX) return fail(t, "it is nested deeper than %d", TAGS_DEPTH_MAX);
    uint32_t symbol = node_of_type(t, v, type, ends);
    t->depth--;
    return symbol;
}

enum status tags_rules(struct gr_rules *r, const json_t *value, const struct ebnf_tokens *tokens,
                       struct schema_form form, uint32_t *symbol_out, char err[TAGS_ERR])
{
    struct tags t = { .r = r, .x = gr_rx(r), .tokens = tokens, .form = form, .err = err };
    uint32_t    symbol = json_object_get(value, "structures") ? triggered_tags(&t, value, "structures", NULL)
                                                              : member(&t, value, "format", NULL);
    if (t.failed) return ST_INVALID;
    *symbol_out = symbol;
    return ST_OK;
}
