#include "api/callform.h"
#include "api/calls/calls_row.h"
#include "api/callform_row.h"
#include "api/callschema.h"
#include "api/calltext.h"
#include "api/markup.h"
#include "api/pointer.h"
#include "api/schema/schema.h"
#include "base/check.h"
#include <stdio.h>
#include <string.h>

enum { SYMBOLS_MAX = 64, TEXT_MAX = 1 << 10, NUMBER_DIGITS_MAX = 4 };

/* One tool at a time. */
struct build {
    struct gr_rules           *r;
    const struct callform     *f;
    const struct callform_row *row;
    const struct calls_tool   *tool;
    const json_t              *schema; /* of its arguments; NULL: it has none */
    char                      *err;
};

static enum status fail(struct build *b, const char *why)
{
    snprintf(b->err, CALLFORM_ERR, "%s", why);
    return ST_INVALID;
}

/* ---------------------------------------------------------------- texts of a row */

/* What is put into the places of a text. */
struct fill {
    const char *name;
    size_t      n_name;
    uint32_t    args, value;
};

/* A sequence in the making: text that is not a symbol yet stands in `text`. */
struct sequence {
    uint32_t symbol[SYMBOLS_MAX], n;
    char     text[TEXT_MAX];
    size_t   n_text;
};

static void put_symbol(struct sequence *s, uint32_t symbol)
{
    CHECK(s->n < SYMBOLS_MAX);
    s->symbol[s->n++] = symbol;
}

static void end_text(struct build *b, struct sequence *s)
{
    if (s->n_text) put_symbol(s, markup_text(b->r, s->text, s->n_text));
    s->n_text = 0;
}

static void put_text(struct sequence *s, const char *text, size_t n)
{
    CHECK(s->n_text + n <= TEXT_MAX);
    memcpy(s->text + s->n_text, text, n);
    s->n_text += n;
}

/* The longest marker that is a token and stands here; NULL: none. */
static const char *token_at(const struct calls_model *m, const char *at)
{
    const char *found = NULL;
    uint32_t    n = 0;
    for (uint32_t i = 0; i < m->n_mark; i++) {
        if (m->mark[i].id == UINT32_MAX || m->mark[i].n <= n || strncmp(at, m->mark[i].text, m->mark[i].n) != 0)
            continue;
        found = m->mark[i].text;
        n = m->mark[i].n;
    }
    return found;
}

static uint32_t number_symbol(struct gr_rules *r)
{
    struct rx      *x = gr_rx(r);
    struct rx_class first = { { 0 } }, any = { { 0 } };
    rx_class_add(&first, '1', '9');
    rx_class_add(&any, '0', '9');
    uint32_t more = rx_repeat(x, rx_of_class(x, &any), 0, NUMBER_DIGITS_MAX - 1);
    return gr_terminal(r, rx_or2(x, rx_of_byte(x, '0'), rx_cat(x, rx_of_class(x, &first), more)));
}

static uint32_t line_symbol(struct gr_rules *r)
{
    return gr_terminal(r, rx_repeat(gr_rx(r), rx_of_byte(gr_rx(r), '\n'), 0, 1));
}

/* As api/schema writes it. */
static uint32_t space_symbol(struct gr_rules *r)
{
    enum { BLANKS_MAX = 32, TABS_MAX = 8 };
    struct rx *x = gr_rx(r);
    uint32_t   blanks = rx_repeat(x, rx_of_byte(x, ' '), 0, BLANKS_MAX);
    uint32_t   tabs = rx_repeat(x, rx_of_byte(x, '\t'), 0, TABS_MAX);
    uint32_t   line = rx_cat(x, rx_of_byte(x, '\n'), rx_or2(x, blanks, tabs));
    return gr_terminal(r, rx_or2(x, rx_repeat(x, rx_of_byte(x, ' '), 0, 1), line));
}

/* The text that the token which ends a call may hold behind the call: any that begins no further one. */
static uint32_t behind_symbol(struct gr_rules *r, const struct calls_model *m)
{
    struct rx *x = gr_rx(r);
    uint32_t   text = RX_ALL;
    for (uint32_t i = 0; i < m->n_mark; i++) {
        if (!calls_mark_begins(m, i)) continue;
        uint32_t mark = rx_of_bytes(x, m->mark[i].text, m->mark[i].n);
        text = rx_and2(x, text, rx_not(x, rx_cat(x, RX_ALL, rx_cat(x, mark, RX_ALL))));
    }
    return gr_terminal(r, text);
}

static uint32_t place_symbol(struct gr_rules *r, char place)
{
    if (place == *CF_NUMBER) return number_symbol(r);
    return place == *CF_LINE ? line_symbol(r) : space_symbol(r);
}

/* Adds a text of the row, with its places filled in, to a rule as an alternative. */
static void add_text(struct build *b, uint32_t rule, const char *text, const struct fill *fill)
{
    struct sequence s = { .n = 0 };
    while (*text) {
        const char *token = token_at(b->f->calls, text);
        if (token) {
            end_text(b, &s);
            put_symbol(&s, markup_mark(b->r, b->f->calls, token, b->f->again));
            text += strlen(token);
            continue;
        }
        char c = *text++;
        if (c == *CF_NAME || c == *CF_KEY) {
            put_text(&s, fill->name, fill->n_name);
        } else if (c == *CF_ARGS || c == *CF_VALUE) {
            end_text(b, &s);
            put_symbol(&s, c == *CF_ARGS ? fill->args : fill->value);
        } else if (c == *CF_NUMBER || c == *CF_LINE || c == *CF_SPACE) {
            end_text(b, &s);
            put_symbol(&s, place_symbol(b->r, c));
        } else {
            put_text(&s, &c, 1);
        }
    }
    end_text(b, &s);
    gr_alt(b->r, rule, s.symbol, s.n);
}

static uint32_t text_rule(struct build *b, const char *text)
{
    uint32_t rule = gr_rule(b->r);
    add_text(b, rule, text, NULL);
    return rule;
}

/* ---------------------------------------------------------------- arguments */

static enum status json_args(struct build *b, uint32_t *symbol_out)
{
    struct schema_form form = { .big = b->f->big };
    bool               bound = b->tool->strict || !b->f->again; /* else it is here for the sake of others that are */
    if (!b->schema && b->tool->strict) {
        *symbol_out = markup_text(b->r, "{}", 2);
        return ST_OK;
    }
    if (!b->schema || !bound || callschema_says_nothing(b->schema)) {
        *symbol_out = schema_any_object(b->r, form);
        return ST_OK;
    }
    enum status st = callschema_is_of_objects(b->schema) ? schema_rules(b->r, b->schema, form, symbol_out, b->err)
                                                         : fail(b, "a schema of objects alone is needed");
    if (st != ST_INVALID || !b->f->lenient || b->tool->strict) return st;
    *symbol_out = schema_any_object(b->r, form);
    return ST_OK;
}

/* ---------------------------------------------------------------- arguments that stand by themselves */

/* Keywords of the whole that say no more than the arguments' own. */
static bool is_enforced(const char *key)
{
    static const char *const known[] = { "type",    "properties",  "required", "additionalProperties", "$defs",   "$id",
                                         "$schema", "definitions", "title",    "description",          "$comment" };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(key, known[i])) return true;
    return !strncmp(key, "x-", 2);
}

static bool is_word(const char *s, bool dashes)
{
    size_t n = 0;
    for (; s[n]; n++) {
        bool letter = (s[n] >= 'a' && s[n] <= 'z') || (s[n] >= 'A' && s[n] <= 'Z') || s[n] == '_';
        bool later = (s[n] >= '0' && s[n] <= '9') || (dashes && (s[n] == '-' || s[n] == '.'));
        if (!letter && !(n && later)) return false;
    }
    return n > 0 && n < CALLS_NAME_MAX;
}

static bool key_fits(const struct build *b, const char *key)
{
    size_t n = strlen(key);
    if (b->row->values == CF_PYTHON) return is_word(key, false);
    return n && n < CALLS_NAME_MAX && !strpbrk(key, "<>\"{}:,= \t\r\n");
}

static enum status check_whole(struct build *b)
{
    const char   *key;
    json_t       *value;
    const json_t *named = json_object_get(b->schema, "properties"), *required = json_object_get(b->schema, "required");
    json_object_foreach((json_t *)(uintptr_t)b->schema, key, value)
    {
        (void)value;
        if (is_enforced(key)) continue;
        struct pointer at = { .text = "" };
        pointer_key(&at, key);
        snprintf(b->err, CALLFORM_ERR, "at '%s': it cannot be enforced in this notation of calls", at.text);
        return ST_INVALID;
    }
    for (size_t i = 0; i < json_array_size(required); i++) {
        const char *name = json_string_value(json_array_get(required, i));
        if (name && json_object_get(named, name)) continue;
        snprintf(b->err, CALLFORM_ERR, "at '/required': '%.60s' is not one of 'properties'", name ? name : "");
        return ST_INVALID;
    }
    return ST_OK;
}

static struct callvalue_form value_form(const struct build *b)
{
    struct callvalue_form     f = { .big = b->f->big,
                                    .quoted = b->row->values == CF_PYTHON,
                                    .typed = b->row->values == CF_TYPED,
                                    .flat = b->row->values == CF_BARE };
    const struct calls_model *m = b->f->calls;
    if (b->row->stop) f.stop[f.n_stop++] = b->row->stop;
    for (uint32_t i = 0; f.typed && i < m->n_step && f.n_stop < CALLVALUE_STOPS; i++)
        if (m->step[i].from == CS_VALUE) f.stop[f.n_stop++] = m->mark[m->step[i].mark].text;
    return f;
}

/* One argument: a rule with its spellings. */
static enum status value_rule(struct build *b, const json_t *root, const char *key, uint32_t *rule_out)
{
    const struct callvalue_form form = value_form(b);
    struct fill                 fill = { .name = key, .n_name = strlen(key) };
    struct callvalue            v;
    uint8_t                     kinds = calls_tool_kinds(b->tool, key, strlen(key));
    if (!key_fits(b, key)) {
        snprintf(b->err, CALLFORM_ERR, "at '/properties': the name '%.60s' cannot be said in this notation of calls",
                 key);
        return ST_INVALID;
    }
    if (b->row->data && form.typed && kinds != CALLS_STRING) kinds = CALLS_ANY; /* the marker says which it is */
    struct callvalue_form own = form;
    own.typed = form.typed && !b->row->data;
    enum status st = callvalue_rules(b->r, root, key, kinds, &own, &v, b->err);
    if (st) return st;
    *rule_out = gr_rule(b->r);
    fill.value = v.text;
    if (v.text != UINT32_MAX) add_text(b, *rule_out, b->row->value, &fill);
    fill.value = v.data;
    if (v.data != UINT32_MAX) add_text(b, *rule_out, b->row->data ? b->row->data : b->row->value, &fill);
    return ST_OK;
}

static bool is_required(const json_t *schema, const char *key)
{
    const json_t *list = json_object_get(schema, "required");
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_str_is(json_array_get(list, i), key)) return true;
    return false;
}

/* The arguments in the order of their properties, from the last to the first: `first` has none before it, `later` has
 * some. */
static enum status add_args(struct build *b, const json_t *root, const char *const *key, size_t n, uint32_t *symbol_out)
{
    uint32_t first = gr_rule(b->r), later = first, join = text_rule(b, b->row->join ? b->row->join : "");
    gr_alt(b->r, first, NULL, 0);
    while (n-- > 0) {
        uint32_t    value, all = gr_rule(b->r), behind = gr_rule(b->r);
        enum status st = value_rule(b, root, key[n], &value);
        if (st) return st;
        gr_alt(b->r, all, (uint32_t[]){ value, later }, 2);
        gr_alt(b->r, behind, (uint32_t[]){ join, value, later }, 3);
        if (!is_required(b->schema, key[n])) {
            gr_alt(b->r, all, &first, 1);
            gr_alt(b->r, behind, &later, 1);
        }
        first = all;
        later = behind;
    }
    *symbol_out = first;
    return ST_OK;
}

static enum status single_args(struct build *b, uint32_t *symbol_out)
{
    const char *key[CALLS_PROPS_MAX];
    size_t      n = 0;
    json_t     *named = json_object_get(b->schema, "properties"), *value;
    const char *name;
    enum status st = check_whole(b);
    if (st) return st;
    if (json_object_size(named) > CALLS_PROPS_MAX) return fail(b, "at '/properties': there are too many");
    json_object_foreach(named, name, value)
    {
        (void)value;
        key[n++] = name;
    }
    json_t *root = callvalue_root(b->schema ? b->schema : named);
    st = n && !root ? ST_NOMEM : add_args(b, root, key, n, symbol_out);
    json_decref(root);
    return st;
}

/* ---------------------------------------------------------------- text of a custom tool */

/* {"input": "..."}, with or without blanks */
static uint32_t in_object(struct build *b, uint32_t text)
{
    struct rx *x = gr_rx(b->r);
    uint32_t   blank = rx_repeat(x, rx_of_byte(x, ' '), 0, 1), open = RX_EMPTY, rule = gr_rule(b->r);
    /* from the last part to the first, so that they are nested to the right */
    for (const char *const *part = (const char *const[]){ "\"", ":", "\"input\"", "{", NULL }; *part; part++) {
        uint32_t one = rx_of_bytes(x, *part, strlen(*part));
        open = open == RX_EMPTY ? one : rx_cat(x, one, rx_cat(x, blank, open));
    }
    uint32_t close = rx_cat(x, rx_of_byte(x, '"'), rx_cat(x, blank, rx_of_byte(x, '}')));
    gr_alt(b->r, rule, (uint32_t[]){ gr_terminal(b->r, open), text, gr_terminal(b->r, close) }, 3);
    return rule;
}

/* The arguments of a tool whose one argument is bound to a grammar. */
static enum status text_args(struct build *b, uint32_t *symbol_out)
{
    static const char     name[] = "input"; /* as api/tools.c shows it to templates */
    struct callvalue_form form = value_form(b);
    struct fill           fill = { .name = name, .n_name = sizeof name - 1 };
    uint32_t              text = 0;
    if (b->row->values == CF_JSON) form.quoted = true;
    enum status st = calltext_rules(b->r, b->tool, &form, &text, b->err);
    if (st) return st;
    if (b->row->values == CF_JSON) {
        *symbol_out = in_object(b, text);
        return ST_OK;
    }
    fill.value = text;
    if (form.quoted) {
        uint32_t quote = markup_text(b->r, "\"", 1);
        fill.value = gr_rule(b->r);
        gr_alt(b->r, fill.value, (uint32_t[]){ quote, text, quote }, 3);
    }
    *symbol_out = gr_rule(b->r);
    add_text(b, *symbol_out, b->row->value, &fill);
    return ST_OK;
}

/* ---------------------------------------------------------------- calls */

static enum status args_of(struct build *b, uint32_t *symbol_out)
{
    if (b->tool->grammar) return text_args(b, symbol_out);
    return b->row->values == CF_JSON ? json_args(b, symbol_out) : single_args(b, symbol_out);
}

bool callform_binds(const struct calls_model *m, const struct calls_tool *t)
{
    const struct callform_row *row = m->row ? callform_row_of(m->row->name, 0) : NULL;
    return row && row->rest && t->allowed && (t->strict || t->grammar || row->values == CF_JSON);
}

bool callform_binds_again(const struct calls_model *m)
{
    const struct callform_row *row = m->row ? callform_row_of(m->row->name, 0) : NULL;
    if (calls_have_marks(m)) return true;
    for (uint32_t i = 0; i < m->n_step; i++) /* a header that is spelled may go on in the token that ends it */
        if (m->step[i].act & CA_HEADER && m->mark[m->step[i].mark].id == UINT32_MAX) return false;
    return row && row->rest;
}

/* The rest of a call whose arguments are about to begin. */
static enum status add_rest(struct build *b, uint32_t rule)
{
    struct fill fill = { .name = b->tool->name, .n_name = b->tool->n };
    uint32_t    key = gr_rule(b->r), rest = gr_rule(b->r), behind = gr_rule(b->r);
    if (!callform_binds(b->f->calls, b->tool)) return ST_OK;
    enum status st = args_of(b, &fill.args);
    if (st) return st;
    add_text(b, key, CF_NAME "(", &fill);
    add_text(b, rest, b->row->rest, &fill);
    gr_alt(b->r, behind, NULL, 0);
    for (size_t i = 0; i < sizeof b->row->behind / sizeof *b->row->behind && b->row->behind[i]; i++)
        add_text(b, behind, b->row->behind[i], &fill);
    gr_alt(b->r, rule, (uint32_t[]){ key, rest, behind }, 3);
    return ST_OK;
}

static enum status add_call(struct build *b, uint32_t rule)
{
    struct fill fill = { .name = b->tool->name, .n_name = b->tool->n };
    if (b->row->values == CF_PYTHON && !is_word(b->tool->name, true))
        return fail(b, "the tool's name cannot be said in this notation of calls");
    enum status st = args_of(b, &fill.args);
    if (!st) add_text(b, rule, b->row->call, &fill);
    return st;
}

/* One call and up to as many more as the reader of answers takes. */
static uint32_t several(struct build *b, uint32_t call)
{
    uint32_t between = text_rule(b, b->row->between), rest = gr_rule(b->r);
    gr_alt(b->r, rest, NULL, 0);
    for (int i = 2; i < CALLS_MAX; i++) {
        uint32_t more = gr_rule(b->r);
        gr_alt(b->r, more, NULL, 0);
        gr_alt(b->r, more, (uint32_t[]){ between, call, rest }, 3);
        rest = more;
    }
    uint32_t all = gr_rule(b->r);
    gr_alt(b->r, all, (uint32_t[]){ call, rest }, 2);
    return all;
}

static const struct callform_row *pick(const struct callform *f)
{
    const struct callform_row *row;
    for (size_t i = 0; (row = callform_row_of(f->calls->row->name, i)); i++) {
        bool there = !row->sign || (f->tmpl && tmpl_has_text(f->tmpl, row->sign));
        for (uint32_t k = 0; row->sign && k < f->calls->n_mark; k++)
            there = there || (f->calls->mark[k].id != UINT32_MAX && !strcmp(f->calls->mark[k].text, row->sign));
        if (there) return row;
    }
    return NULL;
}

enum status callform_rules(struct gr_rules *r, const struct callform *f, uint32_t *symbol_out, uint32_t *tool_out,
                           char err[CALLFORM_ERR])
{
    struct build b = { .r = r, .f = f, .row = pick(f), .err = err };
    *tool_out = UINT32_MAX;
    if (!b.row) {
        snprintf(err, CALLFORM_ERR, "calls in the notation of %s cannot be enforced", f->calls->row->name);
        return ST_INVALID;
    }
    uint32_t call = gr_rule(r);
    bool     late = f->again && !calls_have_marks(f->calls);
    for (uint32_t i = 0; i < f->tools->n; i++) {
        b.tool = &f->tools->tool[i];
        if (!b.tool->allowed) continue;
        b.schema = json_object_get(json_object_get(json_array_get(f->shown, i), "function"), "parameters");
        if (json_is_null(b.schema)) b.schema = NULL;
        enum status st = late ? add_rest(&b, call) : add_call(&b, call);
        if (st) {
            *tool_out = i;
            return st;
        }
    }
    *symbol_out = call;
    if (late) return ST_OK;
    bool     one = f->one || b.row->one || (f->again && !*b.row->end);
    uint32_t all = one ? call : several(&b, call), rule = gr_rule(r);
    uint32_t part[] = { text_rule(&b, b.row->begin), all, text_rule(&b, b.row->end), behind_symbol(r, f->calls) };
    gr_alt(r, rule, part, f->again ? 4 : 3);
    *symbol_out = rule;
    return ST_OK;
}
