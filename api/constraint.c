#include "api/constraint.h"
#include "api/callform.h"
#include "api/family.h"
#include "api/markup.h"
#include "api/schema/regex.h"
#include "api/schema/grammars.h"
#include <stdio.h>
#include <string.h>

enum { CHOICES_MAX = 8192 };

/* What is asked: one form, and the field that asks. */
struct constraint {
    struct form form;
    const char *param;
    json_t     *parsed, *big; /* form.value, where it was given as text, and its large numbers */
    bool        strict;       /* a keyword that cannot be enforced is refused */
};

_Static_assert(sizeof((struct call *)0)->schema_ignored == SCHEMA_IGNORED, "schema.h and call.h agree");

/* ---------------------------------------------------------------- which one */

static enum status set(struct constraint *k, enum form_kind kind, const char *param, const json_t *value,
                       struct api_error *e)
{
    if (k->form.kind && kind)
        return api_fail(e, 400, param, "'%s' and '%s' both ask for a form of the answer; give one", k->param, param);
    if (!kind) return ST_OK;
    k->form.kind = kind;
    k->form.value = value;
    k->param = param;
    return ST_OK;
}

/* A form's JSON, which may be given as its text. */
static enum status read_json(struct constraint *k, const char *param, const json_t **v, struct api_error *e)
{
    struct json_error why;
    if (!json_is_string(*v) || k->form.kind) return ST_OK; /* another form is given already: set says so */
    k->parsed = json_parse(json_string_value(*v), json_string_length(*v), 0, &why);
    if (!k->parsed) return api_fail(e, 400, param, "'%s' is not JSON: %s at byte %zu", param, why.text, why.offset);
    k->big = json_big_numbers(json_string_value(*v), json_string_length(*v));
    k->form.schema.big = k->big;
    *v = k->parsed;
    return ST_OK;
}

static enum status set_schema(struct constraint *k, const char *param, const json_t *v, struct api_error *e)
{
    enum status st = read_json(k, param, &v, e);
    if (st || k->form.kind) return st ? st : set(k, FORM_SCHEMA, param, v, e);
    if (!json_is_object(v) && !json_is_boolean(v)) return api_fail(e, 400, param, "'%s' must be a JSON schema", param);
    return set(k, FORM_SCHEMA, param, v, e);
}

static enum status set_tags(struct constraint *k, const char *param, const json_t *v, struct api_error *e)
{
    enum status st = read_json(k, param, &v, e);
    return st ? st : set(k, FORM_TAGS, param, v, e);
}

static enum status read_format(struct constraint *k, const json_t *v, struct api_error *e)
{
    const json_t *type = json_object_get(v, "type"), *named = json_object_get(v, "json_schema");
    if (json_str_is(type, "json_object")) return set(k, FORM_OBJECT, "response_format", v, e);
    if (json_str_is(type, "structural_tag")) return set_tags(k, "response_format", v, e);
    if (!json_str_is(type, "json_schema")) return ST_OK; /* text: check_format has seen to the rest */
    const json_t *name = json_object_get(named, "name"), *schema = json_object_get(named, "schema");
    const char   *text = json_string_value(name);
    if (!json_is_object(named))
        return api_fail(e, 400, "response_format",
                        "'response_format.json_schema' must be an object with 'name' and 'schema'");
    if (!text || !*text || strlen(text) > 64 ||
        strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != strlen(text))
        return api_fail(e, 400, "response_format",
                        "'response_format.json_schema.name' must be 1 to 64 of a-z, A-Z, 0-9, '_' and '-'");
    const json_t *strict = json_object_get(named, "strict");
    if (strict && !json_is_null(strict) && !json_is_boolean(strict))
        return api_fail(e, 400, "response_format", "'response_format.json_schema.strict' must be true or false");
    k->strict = json_is_true(strict);
    if (!schema || json_is_null(schema)) return set(k, FORM_OBJECT, "response_format", v, e);
    return set_schema(k, "response_format", schema, e);
}

static enum status read_regex(struct constraint *k, const char *param, const json_t *v, struct api_error *e)
{
    if (!json_is_string(v)) return api_fail(e, 400, param, "'%s' must be a string", param);
    return set(k, FORM_REGEX, param, v, e);
}

static enum status read_grammar(struct constraint *k, const char *param, const json_t *v, struct api_error *e)
{
    if (!json_is_string(v)) return api_fail(e, 400, param, "'%s' must be the text of a grammar", param);
    return set(k, FORM_GRAMMAR, param, v, e);
}

static enum status read_choice(struct constraint *k, const char *param, const json_t *v, struct api_error *e)
{
    size_t n = json_array_size(v);
    if (!json_is_array(v) || n == 0 || n > CHOICES_MAX)
        return api_fail(e, 400, param, "'%s' must be a list of 1 to %d strings", param, CHOICES_MAX);
    for (size_t i = 0; i < n; i++)
        if (!json_string_length(json_array_get(v, i)))
            return api_fail(e, 400, param, "'%s[%zu]' must be a string that is not empty", param, i);
    return set(k, FORM_CHOICE, param, v, e);
}

static enum status read_space(struct constraint *k, const char *param, const json_t *v, struct api_error *e)
{
    char        why[REGEX_ERR] = "";
    const char *text = json_string_value(v);
    if (!text) return api_fail(e, 400, param, "'%s' must have a regular expression as whitespace pattern", param);
    if (k->form.schema.space) return api_fail(e, 400, param, "the pattern of white space is given twice");
    enum status st = regex_is_blank(text, json_string_length(v), why);
    if (st == ST_INVALID)
        return api_fail(e, 400, param, "'%s' cannot be served: the pattern of white space, %s", param, why);
    k->form.schema.space = text;
    return st;
}

/* A member of structured_outputs that is true or false. */
static enum status read_flag(const char *key, const json_t *v, bool *out, struct api_error *e)
{
    if (!json_is_boolean(v))
        return api_fail(e, 400, "structured_outputs", "'structured_outputs.%s' must be true or false", key);
    *out = json_is_true(v);
    return ST_OK;
}

static enum status read_any_object(struct constraint *k, const char *param, const json_t *v, struct api_error *e)
{
    bool        wanted = false;
    enum status st = read_flag("json_object", v, &wanted, e);
    return st || !wanted ? st : set(k, FORM_OBJECT, param, v, e);
}

static enum status read_structured(struct constraint *k, const json_t *v, struct api_error *e)
{
    static const char field[] = "structured_outputs";
    const char       *key;
    json_t           *value;
    enum status       st = ST_OK;
    json_object_foreach((json_t *)(uintptr_t)v, key, value)
    {
        if (st || json_is_null(value)) continue;
        if (!strcmp(key, "json"))
            st = set_schema(k, field, value, e);
        else if (!strcmp(key, "regex"))
            st = read_regex(k, field, value, e);
        else if (!strcmp(key, "choice") || !strcmp(key, "choices"))
            st = read_choice(k, field, value, e);
        else if (!strcmp(key, "grammar"))
            st = read_grammar(k, field, value, e);
        else if (!strcmp(key, "structural_tag"))
            st = set_tags(k, field, value, e);
        else if (!strcmp(key, "json_object"))
            st = read_any_object(k, field, value, e);
        else if (!strcmp(key, "whitespace_pattern"))
            st = read_space(k, field, value, e);
        else if (!strcmp(key, "disable_any_whitespace"))
            st = read_flag(key, value, &k->form.schema.compact, e);
        else if (!strcmp(key, "disable_additional_properties"))
            st = read_flag(key, value, &k->form.schema.closed, e);
        else if (key[0] != '_') /* vLLM's own, of a client that sends its whole object */
            st = api_fail(
                e, 400, field,
                "'structured_outputs.%.40s' is not supported, allowed are json, regex, choice, grammar, json_object and "
                "structural_tag",
                key);
    }
    if (!st && !k->form.kind)
        return api_fail(e, 400, field,
                        "'structured_outputs' needs one of json, regex, choice, grammar, json_object and "
                        "structural_tag");
    return st;
}

static enum status read_all(const struct call *c, struct constraint *k, struct api_error *e)
{
    const struct call_ask *a = &c->ask;
    enum status            st = ST_OK;
    if (a->response_format) st = read_format(k, a->response_format, e);
    if (!st && a->structured) st = read_structured(k, a->structured, e);
    if (!st && a->guided_json) st = set_schema(k, "guided_json", a->guided_json, e);
    if (!st && a->guided_regex) st = read_regex(k, "guided_regex", a->guided_regex, e);
    if (!st && a->guided_choice) st = read_choice(k, "guided_choice", a->guided_choice, e);
    if (!st && a->guided_grammar) st = read_grammar(k, "guided_grammar", a->guided_grammar, e);
    if (!st && a->guided_space) st = read_space(k, "guided_whitespace_pattern", a->guided_space, e);
    bool other = k->form.kind == FORM_REGEX || k->form.kind == FORM_CHOICE || k->form.kind == FORM_GRAMMAR;
    if (!st && k->form.schema.space && other)
        return api_fail(e, 400, k->param, "'%s' asks for no JSON, so that a pattern of white space has no meaning",
                        k->param);
    return st;
}

/* ---------------------------------------------------------------- as a grammar */

static enum markup_start start_of(const struct call *c)
{
    if (c->reasons) return MARKUP_INSIDE;
    return c->may_reason ? MARKUP_BEFORE : MARKUP_PLAIN;
}

/* A call is demanded, and then the answer is nothing else. */
static bool calls_alone(const struct call *c) { return c->tools && c->tools_mode != TOOLS_FREE; }

/* Only calls are bound, where the model makes one: a tool is strict. */
static bool calls_again(const struct call *c, const struct constraint *k)
{
    bool strict = false;
    for (uint32_t i = 0; c->tools && i < c->tools->n; i++)
        strict = strict || (c->tools->tool[i].strict && c->tools->tool[i].allowed);
    return strict && !k->form.kind && !calls_alone(c);
}

static enum status rules_of_calls(const struct call *c, bool again, struct gr_rules *r, uint32_t *symbol_out,
                                  struct api_error *e)
{
    const struct callform f = { .calls = &c->model->family->calls,
                                .tmpl = c->model->tmpl,
                                .tools = c->tools,
                                .shown = c->ask.tools,
                                .big = json_object_get(c->body, JSON_BIG),
                                .one = c->one_call || c->tools_mode == TOOLS_NAMED,
                                .again = again,
                                .lenient = !calls_alone(c) };
    char                  why[CALLFORM_ERR] = "", field[80] = "tools";
    uint32_t              tool;
    enum status           st = callform_rules(r, &f, symbol_out, &tool, why);
    if (st != ST_INVALID) return st;
    if (tool != UINT32_MAX)
        snprintf(field, sizeof field, "tools[%u].%s", tool,
                 c->tools->tool[tool].grammar ? "custom.format" : "function.parameters");
    return api_fail(e, 400, field, "'%s' cannot be enforced: %s", field, why);
}

/* The answer as a whole: reasoning, then the form or calls. */
static enum status rules_of_answer(const struct call *c, const struct constraint *k, struct gr_rules *r,
                                   uint32_t *symbol_out, struct api_error *e)
{
    char        why[FORM_ERR] = "";
    uint32_t    text = MARKUP_NONE, calls = MARKUP_NONE;
    enum status st = ST_OK;
    if (calls_again(c, k)) return rules_of_calls(c, true, r, symbol_out, e);
    if (!calls_alone(c)) st = grammars_rules(c->model->grammars, &k->form, r, &text, why);
    if (st == ST_INVALID || st == ST_TOO_LARGE)
        return api_fail(e, 400, k->param, "'%s' cannot be served: %s", k->param, why);
    if (!st && c->tools) st = rules_of_calls(c, false, r, &calls, e);
    if (!st) *symbol_out = markup_answer(r, &c->model->family->calls, text, calls, start_of(c));
    return st;
}

static enum status compile_answer(const struct call *c, const struct constraint *k, const char *param,
                                  struct grammar **g_out, struct api_error *e)
{
    struct gr_rules *r = gr_rules_create(&gr_limits_default);
    uint32_t         symbol = 0;
    char             why[GR_ERR] = "";
    if (!r) return ST_NOMEM;
    enum status st = rules_of_answer(c, k, r, &symbol, e);
    if (st) {
        gr_rules_free(r);
        return st;
    }
    st = gr_build(r, symbol, g_out, why);
    return st && st != ST_NOMEM ? api_fail(e, 400, param, "'%s' cannot be served: %s", param, why) : st;
}

/* What compiles an answer that is not in the cache. */
struct compiling {
    const struct call       *c;
    const struct constraint *k;
    const char              *param;
    struct api_error        *e;
};

static enum status compile_miss(void *arg, struct grammar **g_out, char *ignored, char err[FORM_ERR])
{
    const struct compiling *p = arg;
    struct constraint       k = *p->k;
    *err = 0; /* the error is the request's own, with its field */
    if (k.form.schema.ignored) k.form.schema.ignored = ignored;
    return compile_answer(p->c, &k, p->param, g_out, p->e);
}

/* All that the rules of an answer depend on, beside the model. */
static bool answer_key(const struct call *c, const struct constraint *k, struct buf *key)
{
    buf_printf(key, "answer %d %d %d %d ", (int)start_of(c), (int)c->tools_mode, c->one_call, calls_alone(c));
    for (uint32_t i = 0; c->tools && i < c->tools->n; i++) { /* what templates are not shown */
        const struct calls_tool *t = &c->tools->tool[i];
        buf_printf(key, "%u %d %d %zu ", i, t->strict, t->regex, t->n_grammar);
        if (t->grammar) buf_put(key, t->grammar, t->n_grammar);
    }
    return form_key_json(json_object_get(c->body, JSON_BIG), key) &&
           form_key_json(c->tools ? c->ask.tools : NULL, key) && form_key_json(c->ask.tool_choice, key) &&
           form_key(&k->form, key);
}

static enum status compile_cached(const struct call *c, const struct constraint *k, const char *param,
                                  struct grammar **g_out, struct api_error *e)
{
    struct compiling p = { c, k, param, e };
    struct buf       key;
    char             why[FORM_ERR];
    buf_init(&key, 64 << 20);
    enum status st = ST_NOMEM;
    if (answer_key(c, k, &key))
        st = grammars_get(c->model->grammars, &key, compile_miss, &p, g_out, k->form.schema.ignored, why);
    buf_free(&key);
    return st;
}

static enum status compile(const struct call *c, const struct constraint *k, const char *param, struct grammar **g_out,
                           struct api_error *e)
{
    char        why[FORM_ERR] = "";
    enum status st;
    if (c->tools || start_of(c) != MARKUP_PLAIN) {
        st = compile_cached(c, k, param, g_out, e);
    } else {
        st = grammars_compile(c->model->grammars, &k->form, g_out, why);
        if (st == ST_INVALID || st == ST_TOO_LARGE) api_fail(e, 400, param, "'%s' cannot be served: %s", param, why);
    }
    if (st == ST_AGAIN) return api_fail(e, 503, "", "the grammars of other requests take all memory for such");
    return st == ST_NOMEM ? api_fail(e, 503, "", "out of memory") : st;
}

/* What a choice's tokens are bound by. */
struct binding {
    bool form;  /* the answer, behind its reasoning */
    bool again; /* its calls alone */
    bool time;  /* the length of its reasoning */
};

static enum gate_kind gate_of(const struct call *c, struct binding b)
{
    if (b.again) return calls_have_marks(&c->model->family->calls) ? GATE_CALLS : GATE_ARGS;
    if (!b.form) return GATE_NONE;
    return c->reasons ? GATE_INSIDE : GATE_BEFORE;
}

static enum status make_guides(struct call *c, struct binding b, const char *param, struct api_error *e)
{
    const struct grammars_text text = { .gated = !b.form || start_of(c) != MARKUP_PLAIN,
                                        .kind = gate_of(c, b),
                                        .reasoning = c->reasons,
                                        .budget = b.time ? (uint32_t)c->ask.thinking_budget : GATE_UNBOUNDED,
                                        .tools = c->tools };
    struct guide              *first = NULL;
    if (!grammars_hold(c->model->grammars, c->n_choice))
        return api_fail(e, 503, "", "the forms of other requests' answers take all memory for such");
    c->n_guide = c->n_choice;
    enum status st = grammars_guide(c->model->grammars, c->grammar, &text, &first);
    if (st == ST_NOMEM) return api_fail(e, 503, "", "out of memory");
    if (st == ST_INVALID)
        return api_fail(e, 400, param, "'%s' cannot be served: no token of this model begins such a text", param);
    if (st) return api_fail(e, 400, param, "'%s' cannot be served: its first step is too costly", param);
    c->choice[0].eng.guide = first;
    for (uint32_t i = 1; i < c->n_choice; i++) {
        c->choice[i].eng.guide = guide_fork(first);
        if (!c->choice[i].eng.guide) return api_fail(e, 503, "", "out of memory");
    }
    return ST_OK;
}

enum status constraint_prepare(struct call *c, struct api_error *e)
{
    struct constraint k = { .form.schema = { .big = json_object_get(c->body, JSON_BIG),
                                             .open = c->model->open_schemas } };
    enum status       st = read_all(c, &k, e);
    struct binding    b = { .form = k.form.kind || calls_alone(c),
                            .again = !st && calls_again(c, &k),
                            .time = c->ask.thinking_budget >= 0 };
    const char       *param = calls_alone(c) ? "tool_choice" : k.param;
    if (!k.strict) k.form.schema.ignored = c->schema_ignored;
    if (b.again) param = "tools";
    if (!st && b.time && !(c->model->family && c->model->family->calls.think))
        st =
            api_fail(e, 400, "thinking_token_budget",
                     "'thinking_token_budget' needs a model whose reasoning ends with a marker, and this one has none");
    if (!st && b.again && !callform_binds_again(&c->model->family->calls))
        st = api_fail(
            e, 400, "tools",
            "'strict': true and a custom tool's grammar are not supported where 'tool_choice' is \"auto\": nothing "
            "in this model's calls tells them from text");
    if (!st && (b.form || b.again)) st = compile(c, &k, param, &c->grammar, e);
    if (!param) param = "thinking_token_budget";
    if (!st && (b.form || b.again || b.time)) st = make_guides(c, b, param, e);
    if (!st && b.form) { /* the grammar says where the text may end */
        c->s.min_tokens = 0;
        c->s.ignore_eos = false;
    }
    json_decref(k.parsed);
    json_decref(k.big);
    return st;
}

void constraint_free(struct call *c)
{
    for (uint32_t i = 0; c->choice && i < c->n_choice; i++) guide_drop(c->choice[i].eng.guide);
    gr_free(c->grammar);
    if (c->n_guide) grammars_give(c->model->grammars, c->n_guide);
    c->n_guide = 0;
}
