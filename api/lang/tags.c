#include "api/lang/tags_impl.h"
#include "api/lang/gbnf.h"
#include "api/lang/lark.h"
#include "api/schema/chars.h"
#include "api/schema/regex.h"
#include <stdio.h>
#include <string.h>

static uint32_t node(struct tags *t, const json_t *v, const json_t *ends);
static uint32_t schema_of(struct tags *t, const json_t *v, const char *key, struct schema_form form);

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
    uint32_t                text = tags_free_rx(t, &stops), max;
    if (tags_count(t, v, "max_chars", TAGS_CHARS_MAX, &max))
        text = rx_and2(t->x, text, rx_repeat(t->x, chars_any(t->x, false), 0, max));
    return gr_terminal(t->r, text);
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

/* What stands behind the beginning: content, which the older spelling calls a schema, and one of the ends. */
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
    uint32_t content = json_object_get(v, "schema") ? schema_of(t, v, "schema", t->form) : member(t, v, "content", end);
    gr_alt(t->r, rule, (uint32_t[]){ content, close }, 2);
    return rule;
}

static const char *const tag_members[] = { "begin", "content", "end", NULL };

static uint32_t tag(struct tags *t, const json_t *v, const json_t *ends)
{
    (void)ends;
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

/* An element of a list of tags, whose type goes without saying. */
static void check_element(struct tags *t, const json_t *v, const char *const *members)
{
    const json_t *type = json_object_get(v, "type");
    if (type && !json_str_is(type, "tag")) tags_fail(t, "a 'tag' is needed here");
    tags_only(t, v, members);
}

/* key: where its tags are, which have these members. */
static uint32_t triggered(struct tags *t, const json_t *v, const char *key, const char *const *members,
                          const json_t *ends)
{
    const json_t     *triggers = tags_strings(t, v, "triggers", true), *list = tags_list(t, v, key, true);
    struct tags_stops stops = { { triggers, tags_strings(t, v, "excludes", false), ends } };
    uint32_t          one = gr_rule(t->r), rule = gr_rule(t->r), many = gr_rule(t->r);
    bool              least = tags_flag(t, v, "at_least_one"), once = tags_flag(t, v, "stop_after_first");
    for (size_t i = 0; !t->failed && i < json_array_size(list); i++) {
        size_t n = pointer_key(&t->at, key), k = pointer_index(&t->at, i);
        check_element(t, json_array_get(list, i), members);
        add_triggered(t, one, json_array_get(list, i), &stops);
        pointer_leave(&t->at, k);
        pointer_leave(&t->at, n);
    }
    if (t->failed) return 0;
    uint32_t text = gr_terminal(t->r, tags_free_rx(t, &stops));
    if (once) {
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

static uint32_t triggered_tags(struct tags *t, const json_t *v, const json_t *ends)
{
    return triggered(t, v, "tags", tag_members, ends);
}

static uint32_t tags_with_separator(struct tags *t, const json_t *v, const json_t *ends)
{
    (void)ends;
    bool          least = tags_flag(t, v, "at_least_one"), once = tags_flag(t, v, "stop_after_first");
    const json_t *list = tags_list(t, v, "tags", true);
    size_t        n_text;
    const char   *text = tags_text_of(t, json_object_get(v, "separator"), "separator", &n_text);
    uint32_t      one = gr_rule(t->r), many = gr_rule(t->r), rule = gr_rule(t->r);
    for (size_t i = 0; !t->failed && i < json_array_size(list); i++) {
        size_t n = pointer_key(&t->at, "tags"), k = pointer_index(&t->at, i);
        check_element(t, json_array_get(list, i), tag_members);
        uint32_t symbol = tag(t, json_array_get(list, i), NULL);
        gr_alt(t->r, one, &symbol, 1);
        pointer_leave(&t->at, k);
        pointer_leave(&t->at, n);
    }
    if (t->failed) return 0;
    gr_alt(t->r, many, &one, 1);
    if (!once) gr_alt(t->r, many, (uint32_t[]){ many, tags_literal(t, text, n_text), one }, 3);
    gr_alt(t->r, rule, &many, 1);
    if (!least) gr_alt(t->r, rule, NULL, 0);
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

static uint32_t repeat(struct tags *t, const json_t *v, const json_t *ends)
{
    (void)ends;
    const json_t *min = json_object_get(v, "min"), *max = json_object_get(v, "max");
    json_int_t    from = json_integer_value(min), to = json_integer_value(max);
    if (!json_is_integer(min) || !json_is_integer(max) || from < 0 || from > TAGS_REPEAT_MAX || to > TAGS_REPEAT_MAX ||
        to < -1 || (to >= 0 && to < from))
        return tags_fail(t, "'min' and 'max' must be counts up to %d, or -1 as 'max'", TAGS_REPEAT_MAX);
    return repeated(t, v, (uint32_t)from, to < 0 ? RX_MANY : (uint32_t)to);
}

/* Forms that have a compiler of their own, whose error stands behind the place. */
static uint32_t schema_of(struct tags *t, const json_t *v, const char *key, struct schema_form form)
{
    const json_t  *schema = json_object_get(v, key);
    struct pointer at = t->at;
    char           err[SCHEMA_ERR] = "";
    uint32_t       symbol = 0;
    if (t->failed) return 0;
    if (!json_is_object(schema) && !json_is_boolean(schema)) return tags_fail(t, "'%s' must be a JSON schema", key);
    pointer_key(&at, key);
    form.at = at.text;
    if (!schema_rules(t->r, schema, form, &symbol, err)) return symbol;
    t->failed = true;
    snprintf(t->err, TAGS_ERR, "%s", err);
    return 0;
}

/* White space as everywhere (docs/design/grammar.md), but never more than so many characters of it. */
static void bound_space(struct tags *t, struct schema_form *form, uint32_t max, char *space, size_t room)
{
    enum { BLANKS = 32, TABS = 8 };
    if (form->space) {
        tags_fail(t, "'max_whitespace_cnt' does not go with a pattern of white space");
    } else if (max == 0) {
        form->compact = true;
    } else if (max == 1) {
        form->space = "[ \\n]?";
    } else if (max <= BLANKS) {
        snprintf(space, room, "( |\\n( {0,%u}|\\t{1,%u}))?", max - 1, max - 1 < TABS ? max - 1 : TABS);
        form->space = space;
    }
}

static uint32_t schema_node(struct tags *t, const json_t *v, const json_t *ends)
{
    (void)ends;
    const json_t      *style = json_object_get(v, "style");
    struct schema_form form = t->form;
    char               space[64];
    uint32_t           max;
    if (style && !json_str_is(style, "json")) return tags_fail_at(t, "style", "of styles, \"json\" alone is supported");
    if (tags_flag(t, v, "any_order"))
        return tags_fail_at(t, "any_order",
                            "members come in the order of 'properties', so that none is missing or repeated");
    if (json_array_size(tags_strings(t, v, "excludes", false)))
        return tags_fail_at(t, "excludes",
                            "strings that a schema's values may not hold are not supported: use 'pattern'");
    if (tags_count(t, v, "max_whitespace_cnt", UINT32_MAX, &max)) bound_space(t, &form, max, space, sizeof space);
    return schema_of(t, v, "json_schema", form);
}

static uint32_t grammar_node(struct tags *t, const json_t *v, const json_t *ends)
{
    (void)ends;
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

static uint32_t regex_node(struct tags *t, const json_t *v, const json_t *ends)
{
    (void)ends;
    const json_t           *pattern = json_object_get(v, "pattern");
    const struct regex_form whole = { .search = false };
    char                    err[REGEX_ERR] = "";
    uint32_t                rx;
    if (!json_is_string(pattern)) return tags_fail(t, "'pattern' must be a regular expression");
    if (regex_rx(t->x, json_string_value(pattern), json_string_length(pattern), whole, &rx, err))
        return tags_fail(t, "%s", err);
    return gr_terminal(t->r, rx);
}

static uint32_t const_string(struct tags *t, const json_t *v, const json_t *ends)
{
    (void)ends;
    size_t      n;
    const char *text = tags_text_of(t, json_object_get(v, "value"), "value", &n);
    return tags_literal(t, text, n);
}

static uint32_t sequence(struct tags *t, const json_t *v, const json_t *ends)
{
    (void)ends;
    return elements(t, v, true);
}

static uint32_t either(struct tags *t, const json_t *v, const json_t *ends)
{
    (void)ends;
    return elements(t, v, false);
}

static uint32_t optional(struct tags *t, const json_t *v, const json_t *ends)
{
    (void)ends;
    return repeated(t, v, 0, 1);
}

static uint32_t star(struct tags *t, const json_t *v, const json_t *ends)
{
    (void)ends;
    return repeated(t, v, 0, RX_MANY);
}

static uint32_t plus(struct tags *t, const json_t *v, const json_t *ends)
{
    (void)ends;
    return repeated(t, v, 1, RX_MANY);
}

/* A kind of node, what makes its symbol, and the members that it may have beside its type. ends: the strings that end
 * the tag around it, or NULL. */
static const struct kind {
    const char *type;
    uint32_t (*make)(struct tags *t, const json_t *v, const json_t *ends);
    const char *members[6];
} kinds[] = {
    { "const_string", const_string, { "value" } },
    { "json_schema", schema_node, { "json_schema", "style", "any_order", "max_whitespace_cnt", "excludes" } },
    { "grammar", grammar_node, { "grammar" } },
    { "regex", regex_node, { "pattern" } },
    { "any_text", any_text, { "excludes", "max_chars" } },
    { "sequence", sequence, { "elements" } },
    { "or", either, { "elements" } },
    { "optional", optional, { "content" } },
    { "star", star, { "content" } },
    { "plus", plus, { "content" } },
    { "repeat", repeat, { "min", "max", "content" } },
    { "tag", tag, { "begin", "content", "end" } },
    { "triggered_tags", triggered_tags, { "triggers", "tags", "at_least_one", "stop_after_first", "excludes" } },
    { "tags_with_separator", tags_with_separator, { "tags", "separator", "at_least_one", "stop_after_first" } },
};

static uint32_t node(struct tags *t, const json_t *v, const json_t *ends)
{
    const char        *type = json_string_value(json_object_get(v, "type"));
    const struct kind *kind = NULL;
    if (t->failed) return 0;
    if (!type) return tags_fail(t, "an object with a 'type' is needed");
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(type, kinds[i].type)) kind = &kinds[i];
    if (!kind) return tags_fail(t, "'%.40s' is no 'type' that is supported", type);
    if (++t->depth > TAGS_DEPTH_MAX) return tags_fail(t, "it is nested deeper than %d", TAGS_DEPTH_MAX);
    tags_only(t, v, kind->members);
    uint32_t symbol = kind->make(t, v, ends);
    t->depth--;
    return symbol;
}

enum status tags_rules(struct gr_rules *r, const json_t *value, const struct ebnf_tokens *tokens,
                       struct schema_form form, uint32_t *symbol_out, char err[TAGS_ERR])
{
    static const char *const whole[] = { "format", NULL }, *const old[] = { "structures", "triggers", NULL };
    static const char *const structure[] = { "begin", "schema", "end", NULL };
    struct tags              t = { .r = r, .x = gr_rx(r), .tokens = tokens, .form = form, .err = err };
    uint32_t                 symbol;
    if (json_object_get(value, "structures")) {
        tags_only(&t, value, old);
        symbol = triggered(&t, value, "structures", structure, NULL);
    } else {
        tags_only(&t, value, whole);
        symbol = member(&t, value, "format", NULL);
    }
    if (t.failed) return ST_INVALID;
    *symbol_out = symbol;
    return ST_OK;
}
