#include "api/lang/tags_impl.h"
#include "api/lang/gbnf.h"
#include "api/lang/lark.h"
#include "api/schema/regex.h"
#include <stdio.h>
#include <string.h>

static uint32_t node(struct tags *t, const json_t *v, const json_t *ends);

static uint32_t member(struct tags *t, const json_t *v, const char *key, const json_t *ends)
{
    size_t   n = pointer_key(&t->at, key);
    uint32_t symbol = node(t, json_object_get(v, key), ends);
    pointer_leave(&t->at, n);
    return symbol;
}

static uint32_t any_text(struct tags *t, const json_t *v, const json_t *ends)
{
    const struct tags_stops stops = { { tags_strings(t, v, "excludes", false), ends } };
    if (json_object_get(v, "max_tokens") || json_object_get(v, "max_chars"))
        return tags_fail(t, "bounds of a free text are not supported");
    return gr_terminal(t->r, tags_free_rx(t, &stops));
}

/* ---------------------------------------------------------------- tags */

static void check_tag(struct tags *t, const json_t *v)
{
    const json_t *end = json_object_get(v, "end");
    size_t        n = json_is_array(end) ? json_array_size(end) : 1;
    if (!json_is_object(v)) tags_fail(t, "a tag must be an object with 'begin', 'content' and 'end'");
    if (n == 0 || n > TAGS_LIST_MAX) tags_fail(t, "'end' must be a string or a list of strings");
    for (size_t i = 0; i < n; i++)
        tags_text_of(t, json_is_array(end) ? json_array_get(end, i) : end, "end", &(size_t){ 0 });
}

/* What stands behind the beginning: content, and one of the ends. */
static uint32_t behind_begin(struct tags *t, const json_t *v)
{
    const json_t *end = json_object_get(v, "end");
    uint32_t      close = gr_rule(t->r), rule = gr_rule(t->r);
    check_tag(t, v);
    for (size_t i = 0; !t->failed && i < (json_is_array(end) ? json_array_size(end) : 1); i++) {
        const json_t *one = json_is_array(end) ? json_array_get(end, i) : end;
        uint32_t      symbol = tags_literal(t, json_string_value(one), json_string_length(one));
        gr_alt(t->r, close, &symbol, 1);
    }
    uint32_t content = member(t, v, "content", end);
    gr_alt(t->r, rule, (uint32_t[]){ content, close }, 2);
    return rule;
}

static uint32_t tag(struct tags *t, const json_t *v)
{
    size_t      n;
    const char *begin = tags_text_of(t, json_object_get(v, "begin"), "begin", &n);
    uint32_t    rule = gr_rule(t->r), open = tags_literal(t, begin, n), rest = behind_begin(t, v);
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
        if (found) tags_fail(t, "'begin' begins with two of the triggers");
        found = one;
    }
    if (!found) tags_fail(t, "'begin' begins with none of the triggers");
    return found;
}

/* Free text and the tag behind it, as alternatives of `rule`. */
static void add_triggered(struct tags *t, uint32_t rule, const json_t *v, const struct tags_stops *stops)
{
    size_t        n;
    const char   *begin = tags_text_of(t, json_object_get(v, "begin"), "begin", &n);
    const json_t *trigger = t->failed ? NULL : trigger_of(t, stops->list[0], begin, n);
    uint32_t      rest = behind_begin(t, v), symbol[TAGS_PIECES_MAX + 2], n_token;
    if (t->failed) return;
    size_t   n_trigger = json_string_length(trigger);
    uint32_t first = gr_terminal(t->r, tags_until_rx(t, stops, begin, n_trigger));
    uint32_t second = tags_literal(t, begin + n_trigger, n - n_trigger);
    gr_alt(t->r, rule, (uint32_t[]){ first, second, rest }, 3);
    uint32_t count = tags_pieces(t, begin, n, symbol + 1, &n_token);
    if (!n_token) return;
    symbol[0] = gr_terminal(t->r, tags_free_rx(t, stops));
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
    if (!*made_out) tags_fail(t, "'begin' and 'end' must be strings");
    return *made_out;
}

static uint32_t triggered_tags(struct tags *t, const json_t *v, const char *key, const json_t *ends)
{
    const json_t     *triggers = tags_strings(t, v, "triggers", true), *list = tags_list(t, v, key, true);
    struct tags_stops stops = { { triggers, tags_strings(t, v, "excludes", false), ends } };
    uint32_t          one = gr_rule(t->r), rule = gr_rule(t->r), many = gr_rule(t->r);
    bool              least = json_is_true(json_object_get(v, "at_least_one"));
    for (size_t i = 0; !t->failed && i < json_array_size(list); i++) {
        json_t *made;
        size_t  n = pointer_key(&t->at, key), k = pointer_index(&t->at, i);
        add_triggered(t, one, as_tag(t, json_array_get(list, i), &made), &stops);
        json_decref(made);
        pointer_leave(&t->at, k);
        pointer_leave(&t->at, n);
    }
    if (t->failed) return 0;
    uint32_t text = gr_terminal(t->r, tags_free_rx(t, &stops));
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
    const json_t *list = tags_list(t, v, "tags", true);
    size_t        n_text;
    const char   *text = tags_text_of(t, json_object_get(v, "separator"), "separator", &n_text);
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
        gr_alt(t->r, many, (uint32_t[]){ many, tags_literal(t, text, n_text), one }, 3);
    gr_alt(t->r, rule, &many, 1);
    if (!json_is_true(json_object_get(v, "at_least_one"))) gr_alt(t->r, rule, NULL, 0);
    return rule;
}

/* ---------------------------------------------------------------- the other kinds */

static uint32_t elements(struct tags *t, const json_t *v, bool all)
{
    const json_t *list = tags_list(t, v, "elements", true);
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
        return tags_fail(t, "'min' and 'max' must be counts up to %d, or -1 as 'max'", TAGS_REPEAT_MAX);
    return repeated(t, v, (uint32_t)from, to < 0 ? RX_MANY : (uint32_t)to);
}

/* Forms that have a compiler of their own, whose error stands behind the place. */
static uint32_t schema_node(struct tags *t, const json_t *v)
{
    const json_t *schema = json_object_get(v, "json_schema"), *style = json_object_get(v, "style");
    char          err[SCHEMA_ERR] = "";
    uint32_t      symbol = 0;
    if (style && !json_str_is(style, "json")) return tags_fail(t, "of styles, \"json\" alone is supported");
    if (!json_is_object(schema) && !json_is_boolean(schema)) return tags_fail(t, "'json_schema' must be a JSON schema");
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
    if (!s) return tags_fail(t, "'grammar' must be the text of a grammar");
    enum status st = gbnf_is(s, n) ? gbnf_rules(t->r, s, n, t->tokens, &symbol, err)
                                   : lark_rules(t->r, s, n, t->tokens, &symbol, err);
    return st ? tags_fail(t, "%s", err) : symbol;
}

static uint32_t regex_node(struct tags *t, const json_t *v)
{
    const json_t           *pattern = json_object_get(v, "pattern");
    const struct regex_form whole = { .search = false };
    char                    err[REGEX_ERR] = "";
    uint32_t                rx;
    if (!json_is_string(pattern)) return tags_fail(t, "'pattern' must be a regular expression");
    if (regex_rx(t->x, json_string_value(pattern), json_string_length(pattern), whole, &rx, err))
        return tags_fail(t, "%s", err);
    return gr_terminal(t->r, rx);
}

static uint32_t const_string(struct tags *t, const json_t *v)
{
    size_t      n;
    const char *text = tags_text_of(t, json_object_get(v, "value"), "value", &n);
    return tags_literal(t, text, n);
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
    return tags_fail(t, "'%.40s' is no 'type' that is supported", type);
}

/* ends: the strings that end the tag around it, or NULL. */
static uint32_t node(struct tags *t, const json_t *v, const json_t *ends)
{
    const char *type = json_string_value(json_object_get(v, "type"));
    if (t->failed) return 0;
    if (!type) return tags_fail(t, "an object with a 'type' is needed");
    if (++t->depth > TAGS_DEPTH_MAX) return tags_fail(t, "it is nested deeper than %d", TAGS_DEPTH_MAX);
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
