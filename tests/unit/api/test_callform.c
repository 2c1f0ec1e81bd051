#include "test.h"
#include "size.h"
#include "api/callform.h"
#include "api/calls/calls_row.h"
#include "api/gate.h"
#include "api/markup.h"
#include "engine/guide.h"
#include "api/lang/form.h"
#include "tests/unit/api/grammar_world.h"
#include "tests/unit/api/schema_check.h"
#include "tests/unit/api/tiny_model.h"

/* Random answers under the grammar of calls, for each family, with its markers as tokens and as bytes: the reader of
 * answers must find calls alone, of allowed tools, with arguments that their schemas accept. (Over 500 lines: all tests
 * need a family with its tools, its tokens and its gate.) */

enum { WALKS = 24, TOKENS_MAX = 1500, N_MORE = 34, BYTES = 256, END = BYTES, MARK_0 = BYTES + 1, MARKS_MAX = 32 };

static const char tools_text[] =
    "[{\"function\":{\"name\":\"w\",\"parameters\":{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\","
    "\"minLength\":1,\"maxLength\":6},\"unit\":{\"enum\":[\"C\",\"F\"]},\"days\":{\"type\":\"integer\",\"minimum\":0,"
    "\"maximum\":12}},\"required\":[\"city\"]}}},"
    "{\"function\":{\"name\":\"now\",\"parameters\":{\"type\":\"object\",\"properties\":{}}}},"
    "{\"function\":{\"name\":\"s-1\",\"parameters\":{\"type\":\"object\",\"properties\":{\"q\":{\"type\":\"string\"},"
    "\"f\":{\"type\":[\"string\",\"null\"]},\"o\":{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},"
    "\"b\":{\"type\":\"string\"}},\"required\":[\"a\"]},\"l\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/n\"},"
    "\"maxItems\":3},\"b\":{\"type\":\"boolean\"},\"e\":{\"enum\":[1,\"x\",null,\"null\"]},\"u\":{\"anyOf\":[{\"type\":"
    "\"integer\",\"minimum\":10},{\"type\":\"string\",\"maxLength\":4}]}},\"required\":[\"q\",\"u\"],\"$defs\":{\"n\":{"
    "\"type\":\"number\"}}}}},"
    "{\"function\":{\"name\":\"edit\",\"parameters\":{\"type\":\"object\",\"properties\":{\"input\":{\"type\":\"string\"}},"
    "\"required\":[\"input\"]}}},"
    "{\"function\":{\"name\":\"say\",\"parameters\":{\"type\":\"object\",\"properties\":{\"input\":{\"type\":\"string\"}},"
    "\"required\":[\"input\"]}}}]";

/* Of the last two tools, which take text: characters that JSON spells otherwise are in it. */
static const struct {
    const char *grammar;
    bool        regex;
} text_of_tool[] = {
    [3] = { "start: line~1..3\nline: (\"+\" | SIGN) /[^\\n]{0,4}/ LF\nSIGN: \"\\\"\"..\"#\"\n%import common.LF",
            false },
    [4] = { "(\\\\|[a-c\"\\t\\u00e9]|\\u0001){1,6}", true },
};

struct family_under_test {
    struct calls_model  calls;
    struct tok         *tok; /* NULL: markers are bytes */
    struct gr_vocab    *vocab;
    struct gate_model   gate;
    struct calls_tools *tools;
    json_t             *shown;
    struct arena        arena;
    uint32_t            n_token, across; /* across: tokens from here on are "xy" and each of the markers */
};

/* A tokenizer of bytes, and of the markers as special tokens. */
static struct tok *tok_of_marks(const struct calls_row *row, const struct calls_think *think)
{
    struct buf  b;
    char        err[300];
    unsigned    n_hidden = 0, n = 0;
    struct tok *t;
    const char *text[20] = { think ? think->start : "<s>", think ? think->stop : "</s>" };
    for (n = 2; n - 2 < 16 && row->mark[n - 2]; n++) text[n] = row->mark[n - 2];
    buf_init(&b, 1 << 20);
    buf_puts(&b, "{\"version\":\"1.0\",\"added_tokens\":[{\"id\":256,\"content\":\"<|end of it|>\",\"special\":true}");
    for (unsigned i = 0; i < n; i++) {
        if (strlen(text[i]) < 4) continue; /* newlines and brackets are tokens of no family */
        buf_printf(&b, ",{\"id\":%u,\"special\":true,\"content\":", MARK_0 + i);
        json_put_str(&b, text[i], strlen(text[i]));
        buf_putc(&b, '}');
    }
    buf_puts(&b, "],\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
                 "\"trim_offsets\":true,\"use_regex\":true},\"decoder\":{\"type\":\"ByteLevel\",\"add_prefix_space\":"
                 "false,\"trim_offsets\":true,\"use_regex\":true},\"model\":{\"type\":\"BPE\",\"vocab\":{");
    for (unsigned i = 0; i < BYTES; i++) {
        uint32_t cp = byte_char(i, &n_hidden);
        char     utf8[3] = { (char)cp };
        size_t   k = 1;
        if (cp >= 0x80) {
            utf8[0] = (char)(0xc0 | cp >> 6);
            utf8[k++] = (char)(0x80 | (cp & 0x3f));
        }
        if (i) buf_putc(&b, ',');
        json_put_str(&b, utf8, k);
        buf_printf(&b, ":%u", i);
    }
    buf_puts(&b, "},\"merges\":[]}}");
    if (tok_load(b.data, b.n, "{}", 2, &t, err, sizeof err)) die(err);
    buf_free(&b);
    return t;
}

static void tools_open(struct family_under_test *k)
{
    struct json_error je;
    arena_init(&k->arena, 1 << 20);
    k->shown = json_parse(tools_text, sizeof tools_text - 1, 0, &je);
    if (!k->shown) die(je.text);
    k->tools = arena_calloc(&k->arena, 1, sizeof *k->tools);
    k->tools->n = (uint32_t)json_array_size(k->shown);
    k->tools->tool = arena_calloc(&k->arena, k->tools->n, sizeof *k->tools->tool);
    for (uint32_t i = 0; i < k->tools->n; i++) {
        const json_t      *f = json_object_get(json_array_get(k->shown, i), "function");
        struct calls_tool *t = &k->tools->tool[i];
        t->name = json_string_value(json_object_get(f, "name"));
        t->n = strlen(t->name);
        t->allowed = t->strict = true;
        if (i < ARRAY_N(text_of_tool) && text_of_tool[i].grammar) {
            t->custom = true;
            t->grammar = text_of_tool[i].grammar;
            t->n_grammar = strlen(t->grammar);
            t->regex = text_of_tool[i].regex;
        }
        json_t *named = json_object_get(json_object_get(f, "parameters"), "properties");
        if (k->calls.row->quote) json_object_del(named, "o"); /* this notation has no objects within arguments */
        assert_int_equal(calls_tool_props(t, json_object_get(f, "parameters"), &k->arena), ST_OK);
    }
    k->tools->limited = true;
}

static void vocab_open(struct family_under_test *k)
{
    static char              one[BYTES];
    static const char *const more[N_MORE] = { "\"}",   "\": ", "{\"",    "\", \"", "</",      "null", "true",
                                              "false", "12",   "é",      "\n\n",   "ame",     "<par", "ter>",
                                              "True",  "None", "\">\n",  "0.5",    "}}",      "city", "q\"",
                                              " a",    "])",   "</x>\n", "\":{\"", "rs\": {", "(q",   "()",
                                              "w(u",   "})",   "}; ",    ", s-1(", "l>\n",    ">\n<" };
    static char              across[MARKS_MAX][CALLS_MARK_BYTES + 8];
    struct token_bytes       b[BYTES + 64 + MARKS_MAX] = { { 0 } };
    uint32_t                 n = MARK_0 + 20;
    for (uint32_t i = 0; i < BYTES; i++) {
        one[i] = (char)i;
        b[i] = (struct token_bytes){ (const unsigned char *)&one[i], 1 };
    }
    for (uint32_t i = 0; i < N_MORE; i++)
        b[n++] = (struct token_bytes){ (const unsigned char *)more[i], (uint32_t)strlen(more[i]) };
    k->across = n;
    for (uint32_t i = 0; i < k->calls.n_mark; i++) { /* text and a whole marker in one token */
        int len = snprintf(across[i], sizeof across[i], "xy%s", k->calls.mark[i].text);
        b[n++] = (struct token_bytes){ (const unsigned char *)across[i], (uint32_t)len };
    }
    k->n_token = n;
    assert_int_equal(gr_vocab_create(b, n, &k->vocab), ST_OK);
    k->gate = (struct gate_model){ .calls = &k->calls, .tok = k->tok ? k->tok : world.tok, .vocab = k->vocab };
    assert_int_equal(gate_model_scan(&k->gate), ST_OK);
}

static void family_close(struct family_under_test *k)
{
    json_decref(k->shown);
    arena_free(&k->arena);
    gr_vocab_free(k->vocab);
    free((void *)(uintptr_t)k->gate.odd);
    tok_free(k->tok);
}

static void family_open(struct family_under_test *k, const struct calls_row *row, bool tokens)
{
    const struct calls_think *think = row->thinks ? NULL : calls_think_find("think");
    *k = (struct family_under_test){ .tok = tokens ? tok_of_marks(row, think) : NULL };
    calls_model_init(&k->calls, row, think, k->tok);
    tools_open(k);
    vocab_open(k);
}

/* ---------------------------------------------------------------- one answer */

/* What the grammar binds. */
enum bound { PLAIN, BEFORE, INSIDE, AGAIN };

static struct guide *guide_of(struct family_under_test *k, bool one, enum bound how)
{
    static const enum markup_start start[] = { MARKUP_PLAIN, MARKUP_BEFORE, MARKUP_INSIDE, MARKUP_PLAIN };
    const enum gate_kind           kind[] = { GATE_BEFORE, GATE_BEFORE, GATE_INSIDE,
                                    calls_have_marks(&k->calls) ? GATE_CALLS : GATE_ARGS };
    const struct callform          f = {
                 .calls = &k->calls, .tools = k->tools, .shown = k->shown, .one = one, .again = how == AGAIN
    };
    struct gr_rules *r = gr_rules_create(&gr_limits_default);
    struct grammar  *g = NULL;
    struct guide    *u = NULL;
    struct gate     *gate = NULL;
    char             err[CALLFORM_ERR], why[GR_ERR];
    uint32_t         calls, tool;
    if (callform_rules(r, &f, &calls, &tool, err)) fail_msg("%s: %s", k->calls.row->name, err);
    uint32_t all = markup_answer(r, &k->calls, MARKUP_NONE, calls, start[how]);
    if (gr_build(r, all, &g, why)) fail_msg("%s: %s", k->calls.row->name, why);
    if (how != PLAIN) gate = gate_create(&k->gate, k->tools, kind[how], how == INSIDE, GATE_UNBOUNDED);
    assert_int_equal(guide_create(g, k->vocab, (uint32_t[]){ END }, 1, gate, &u), ST_OK);
    gr_free(g);
    return u;
}

struct told {
    struct buf text;
    json_t    *calls; /* of [name, arguments as text] */
    struct buf args;
};

static void tell(void *ctx, const struct calls_event *ev)
{
    struct told *t = ctx;
    switch (ev->kind) {
    case CALLS_TEXT: buf_put(&t->text, ev->text, ev->n); break;
    case CALLS_OPEN:
        json_array_append_new(t->calls, json_pack("[s%]", ev->text, ev->n));
        buf_clear(&t->args);
        break;
    case CALLS_ARG: buf_put(&t->args, ev->text, ev->n); break;
    case CALLS_CLOSE:
        json_array_append_new(json_array_get(t->calls, json_array_size(t->calls) - 1),
                              json_stringn_nocheck(t->args.data ? t->args.data : "", t->args.n));
        break;
    default: break;
    }
}

static uint32_t next(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

/* An allowed token: any, but mostly one that brings the answer nearer to its end. */
static uint32_t draw(const struct family_under_test *k, const struct guide *u, uint32_t *seed)
{
    static const char likely[] = "\"\"}}]),>>\n</think>";
    uint32_t          n_word, n_refused;
    const uint32_t   *mask = guide_mask(u, &n_word), *refused = guide_refused(u, &n_refused);
    for (;;) {
        uint32_t t = next(seed) % k->n_token, how = next(seed) % 4;
        if (how == 0) t = (unsigned char)likely[next(seed) % (sizeof likely - 1)];
        if (how == 1) t = END + next(seed) % 20;
        bool free = t != END || (guide_may_end(u) && next(seed) % 16 == 0);
        for (uint32_t i = 0; i < n_refused; i++) free = free && t != refused[i];
        if (n_word ? t / 32 < n_word && mask[t / 32] >> t % 32 & 1 : free) return t;
    }
}

/* Whether the text of a custom tool's call is one of its grammar, which is read as that of a whole answer. */
static bool text_fits(const struct calls_tool *tool, const json_t *v)
{
    static struct grammar *made[ARRAY_N(text_of_tool)];
    const json_t          *input = json_object_get(v, "input");
    char                   err[FORM_ERR];
    struct grammar       **g = NULL;
    for (size_t i = 0; i < ARRAY_N(text_of_tool); i++)
        if (text_of_tool[i].grammar == tool->grammar) g = &made[i];
    struct form f = { .kind = tool->regex ? FORM_REGEX : FORM_GRAMMAR, .value = json_string(tool->grammar) };
    if (!*g && form_compile(&f, NULL, g, err)) fail_msg("%s", err);
    json_decref((json_t *)(uintptr_t)f.value);
    struct gr_match *m = gr_match_create(*g, no_vocab()); /* a text may hold zeros */
    bool fits = json_is_string(input) && !gr_accept_bytes(m, json_string_value(input), json_string_length(input)) &&
                gr_is_end(m);
    gr_match_free(m);
    return fits;
}

static void check_calls(const struct family_under_test *k, const struct told *t, uint32_t seed, bool one, bool alone)
{
    const char *row = k->calls.row->name;
    size_t      n = json_array_size(t->calls);
    if (alone && (n == 0 || (one && n > 1))) fail_msg("%s, seed %u: %zu calls", row, seed, n);
    for (size_t i = 0; alone && i < t->text.n; i++)
        if (!strchr(" \n", t->text.data[i]))
            fail_msg("%s, seed %u: text '%.*s'", row, seed, (int)t->text.n, t->text.data);
    for (size_t i = 0; i < n; i++) {
        const json_t            *one_call = json_array_get(t->calls, i), *args = json_array_get(one_call, 1);
        const char              *name = json_string_value(json_array_get(one_call, 0)), *text = json_string_value(args);
        const struct calls_tool *tool = calls_tool_find(k->tools, name, strlen(name));
        struct json_error        je;
        json_t                  *v = text ? json_parse(text, json_string_length(args), 0, &je) : NULL;
        if (!tool || !tool->allowed || !v) fail_msg("%s, seed %u: %s(%s)", row, seed, name, text);
        const json_t *f = json_object_get(json_array_get(k->shown, (size_t)(tool - k->tools->tool)), "function");
        const json_t *schema = json_object_get(f, "parameters");
        if (!schema_check(schema, schema, v)) fail_msg("%s, seed %u: %s(%s)", row, seed, name, text);
        if (tool->grammar && !text_fits(tool, v)) fail_msg("%s, seed %u: %s(%s)", row, seed, name, text);
        json_decref(v);
    }
}

/* What a free text of a family without markers holds, that a call begins: %s is the tool. */
static const struct {
    const char *row, *text;
} begins[] = {
    { "llama_json", "\n{\"name\": \"%s\", \"parameters\": " },
    { "llama_json", "\n{ \"type\": \"function\", \"name\": \"%s\",\n\"arguments\"" },
    { "llama_json", "\n{\"arguments\": {\"city\": 5}, \"name\": \"%s\"}" },
    { "llama_json", "<|python_tag|>{\"name\": \"%s\", \"parameters\":" },
    { "llama_json", "{\"a\": 1}" },
    { "pythonic", "[%s(" },
    { "pythonic", ", %s(" },
    { "pythonic", "<|python_start|>[ %s(" },
    { "harmony", "<|start|>assistant<|channel|>commentary to=functions.%s <|constrain|>json<|message|>" },
    { "harmony",
      "<|channel|>analysis<|message|>x<|end|><|start|>assistant to=functions.%s<|channel|>commentary<|message|>" },
};

struct script {
    char     text[120];
    uint32_t at, n;
};

/* The whole of it, or all but its end: then the call begins in a token that is drawn. */
static void script_begin(struct script *s, const struct family_under_test *k, uint32_t *seed)
{
    uint32_t    i = next(seed) % ARRAY_N(begins);
    const char *name = k->tools->tool[next(seed) % k->tools->n].name;
    while (strcmp(begins[i].row, k->calls.row->name) != 0) i = (i + 1) % ARRAY_N(begins);
    s->n = (uint32_t)snprintf(s->text, sizeof s->text, begins[i].text, name);
    s->at = 0;
    if (strcmp(k->calls.row->name, "harmony") != 0) s->n -= next(seed) % 4;
}

/* Its next token; false: the mask has another opinion, or the script is over. */
static bool script_next(struct script *s, const struct family_under_test *k, const struct guide *u, uint32_t *token_out)
{
    uint32_t        n_word, n = 1;
    const uint32_t *mask = guide_mask(u, &n_word);
    if (s->at >= s->n) return false;
    *token_out = (unsigned char)s->text[s->at];
    for (uint32_t i = 0; i < k->calls.n_mark; i++) {
        if (k->calls.mark[i].id == UINT32_MAX ||
            strncmp(s->text + s->at, k->calls.mark[i].text, k->calls.mark[i].n) != 0)
            continue;
        *token_out = k->calls.mark[i].id;
        n = k->calls.mark[i].n;
    }
    s->at += n;
    if (!n_word || mask[*token_out / 32] >> *token_out % 32 & 1) return true;
    s->n = 0;
    return false;
}

/* true: the answer came to its end. *n_call_out grows by the calls that a free text holds. */
static bool walk(struct family_under_test *k, struct guides *g, uint32_t seed, size_t *n_call_out)
{
    enum bound how = (enum bound)(seed / 2 % 4);
    bool       one = seed % 2, ended = false;
    if (k->calls.row->thinks && how != AGAIN) how = BEFORE;
    for (uint32_t i = 0; i < k->tools->n; i++) k->tools->tool[i].allowed = seed % 4 == 0 || seed / 4 % 5 == i;
    struct told            t = { .calls = json_array() };
    const struct calls_cfg cfg = { .model = &k->calls, .tools = k->tools, .hidden = true, .sink = tell, .ctx = &t };
    struct guide          *u = guide_of(k, one, how);
    struct calls           p;
    struct script          script = { .n = 0 };
    uint32_t               dice = seed, n_word;
    bool                   late = how == AGAIN && !calls_have_marks(&k->calls);
    buf_init(&t.text, 1 << 20);
    buf_init(&t.args, 1 << 20);
    calls_init(&p, &cfg, how == INSIDE);
    for (int i = 0; i < TOKENS_MAX && !ended; i++) {
        if (guide_state(u) != GUIDE_READY) fail_msg("%s, seed %u: no token", k->calls.row->name, seed);
        uint32_t token;
        bool     is_free = guide_may_end(u) && (guide_mask(u, &n_word), n_word == 0);
        if (late && is_free && script.at >= script.n && next(&dice) % 3 == 0) script_begin(&script, k, &dice);
        if (!is_free && script.at >= script.n) script.n = 0;
        if (!script_next(&script, k, u, &token)) token = draw(k, u, &dice);
        struct token_bytes b = gr_vocab_token(k->vocab, token);
        ended = token == END;
        if (ended) break;
        if (calls_mark_of(&k->calls, token) >= 0)
            calls_mark(&p, calls_mark_of(&k->calls, token));
        else
            calls_text(&p, (const char *)b.p, b.n);
        guide_post(g, u, token);
    }
    calls_end(&p);
    if (ended) check_calls(k, &t, seed, one, how != AGAIN);
    if (how == AGAIN) *n_call_out += json_array_size(t.calls);
    calls_free(&p);
    guide_drop(u);
    buf_free(&t.text);
    buf_free(&t.args);
    json_decref(t.calls);
    return ended;
}

static void every_answer_of_every_family_is_calls_that_the_schemas_accept(void **state)
{
    (void)state;
    struct guides *g = NULL;
    struct ring    wake;
    assert_int_equal(ring_init(&wake, 4), ST_OK);
    assert_int_equal(guides_create(0, 4, &wake, &g), ST_OK);
    uint32_t n_walk = (uint32_t)test_size(6 * WALKS, WALKS / 3);
    for (size_t i = 0; calls_row_at(i); i++) {
        for (int tokens = calls_row_at(i)->thinks; tokens < 2; tokens++) { /* a header of bytes has too many tokens */
            struct family_under_test k;
            uint32_t                 n_ended = 0;
            size_t                   n_call = 0;
            family_open(&k, calls_row_at(i), tokens);
            uint32_t n = calls_have_marks(&k.calls) ? n_walk : 8 * n_walk;
            /* a text that nothing drives holds a call by chance alone */
            for (uint32_t seed = 0; seed < n || (tokens && !n_call && seed < 8 * n); seed++)
                n_ended += walk(&k, g, seed, &n_call);
            if (n_ended < n / 4) fail_msg("%s: %u of %u ended", k.calls.row->name, n_ended, n);
            if (tokens && !n_call) fail_msg("%s: no call in a text", k.calls.row->name);
            family_close(&k);
        }
    }
    guides_free(g);
    ring_free(&wake);
}

/* The token of these bytes. */
static uint32_t token_of(const struct family_under_test *k, const char *bytes)
{
    for (uint32_t t = 0; t < k->n_token; t++) {
        struct token_bytes b = gr_vocab_token(k->vocab, t);
        if (b.n == strlen(bytes) && memcmp(b.p, bytes, b.n) == 0) return t;
    }
    fail_msg("no token is '%s'", bytes);
    return 0;
}

static bool may_come(const struct guide *u, uint32_t token)
{
    uint32_t        n_word;
    const uint32_t *mask = guide_mask(u, &n_word);
    return !n_word || mask[token / 32] >> token % 32 & 1;
}

/* Byte by byte; each must be allowed. */
static void write_bytes(struct guides *g, struct guide *u, const char *text)
{
    for (const char *c = text; *c; c++) {
        assert_int_equal(guide_state(u), GUIDE_READY);
        if (!may_come(u, (unsigned char)*c)) fail_msg("'%c' of '%s' is refused at '%s'", *c, text, c);
        guide_post(g, u, (unsigned char)*c);
    }
}

/* Where a model is free to call, the text behind a call is free as well, in the token that ends the call too. The
 * beginning of the next call may be in it, and that call is bound. */
static void a_token_may_end_a_call_and_begin_the_text_behind_it(void **state)
{
    (void)state;
    static const struct {
        const char *row, *call, *next, *behind, *wrong;
    } rows[] = {
        { "hermes", "<tool_call>\n{\"name\": \"edit\", \"arguments\": {\"input\": \"+ab\\n\"}}\n</tool_call",
          "tool_call>\n{\"name\": \"say\", \"arguments\": {\"input\": \"a", "b", "z" },
        { "qwen_xml", "<tool_call>\n<function=edit>\n<parameter=input>\n+ab\n\n</parameter>\n</function>\n</tool_call",
          "tool_call>\n<function=say>\n<parameter=input>\na", "b", "z" },
    };
    struct guides *g = NULL;
    struct ring    wake;
    assert_int_equal(ring_init(&wake, 4), ST_OK);
    assert_int_equal(guides_create(0, 4, &wake, &g), ST_OK);
    for (size_t i = 0; i < ARRAY_N(rows); i++) {
        struct family_under_test k;
        family_open(&k, calls_row_find(rows[i].row), false);
        struct guide *u = guide_of(&k, false, AGAIN);
        uint32_t      across = token_of(&k, ">\n<");
        write_bytes(g, u, "Hello, ");
        write_bytes(g, u, rows[i].call);
        if (!may_come(u, across)) fail_msg("%s: the token across the end is refused", rows[i].row);
        guide_post(g, u, across);
        write_bytes(g, u, rows[i].next);
        assert_true(may_come(u, (unsigned char)*rows[i].behind));
        assert_false(may_come(u, (unsigned char)*rows[i].wrong));
        guide_drop(u);
        /* what begins there may be text as well */
        u = guide_of(&k, false, AGAIN);
        write_bytes(g, u, rows[i].call);
        guide_post(g, u, across);
        write_bytes(g, u, "b>bold</b>");
        assert_true(guide_may_end(u));
        guide_drop(u);
        family_close(&k);
    }
    guides_free(g);
    ring_free(&wake);
}

/* A token may hold the end of a text and the whole marker that begins a call. What the token holds before it is text, and
 * the call is bound; where the grammar begins with another of the family's markers, the token does not come. */
static void a_token_may_end_a_text_and_begin_a_call(void **state)
{
    (void)state;
    struct guides *g = NULL;
    struct ring    wake;
    unsigned       n_row = 0;
    assert_int_equal(ring_init(&wake, 4), ST_OK);
    assert_int_equal(guides_create(0, 4, &wake, &g), ST_OK);
    for (size_t i = 0; calls_row_at(i); i++) {
        struct family_under_test k;
        unsigned                 n_begun = 0;
        family_open(&k, calls_row_at(i), false);
        bool marks = calls_have_marks(&k.calls);
        for (uint32_t m = 0; m < k.calls.n_mark && marks; m++) {
            const char   *name = k.calls.row->name, *text = k.calls.mark[m].text;
            struct guide *u = guide_of(&k, false, AGAIN);
            uint32_t      n_word;
            if (calls_mark_begins(&k.calls, m) && may_come(u, k.across + m)) {
                write_bytes(g, u, "a < b ");
                if (!may_come(u, k.across + m)) fail_msg("%s: '%s' behind a text", name, text);
                guide_post(g, u, k.across + m);
                if (guide_state(u) != GUIDE_READY) fail_msg("%s: '%s' has ended the request", name, text);
                (void)guide_mask(u, &n_word);
                if (!n_word || may_come(u, '!')) fail_msg("%s: '%s' has begun no call", name, text);
                n_begun++;
            }
            guide_drop(u);
        }
        if (marks && !n_begun) fail_msg("%s: no such token begins a call", k.calls.row->name);
        n_row += marks;
        family_close(&k);
    }
    assert_in_range(n_row, 15, 100);
    guides_free(g);
    ring_free(&wake);
}

/* Families that put an answer into tags: what stands behind the last one is a call, or the tag was text. */
static void a_call_may_follow_the_tag_that_ends_an_answer(void **state)
{
    (void)state;
    static const char *const cases[][3] = {
        { "ernie", "<response>a < b</response>\n", "<tool_call>" },
        { "hunyuan", "<answer>\na</answer>", "<tool_calls>" },
    };
    struct guides *g = NULL;
    struct ring    wake;
    assert_int_equal(ring_init(&wake, 4), ST_OK);
    assert_int_equal(guides_create(0, 4, &wake, &g), ST_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct family_under_test k;
        uint32_t                 n_word;
        family_open(&k, calls_row_find(cases[i][0]), false);
        struct guide *u = guide_of(&k, false, AGAIN);
        write_bytes(g, u, cases[i][1]);
        assert_true(may_come(u, '!'));
        write_bytes(g, u, cases[i][2]);
        (void)guide_mask(u, &n_word);
        if (!n_word || may_come(u, '!')) fail_msg("%s: no call has begun", cases[i][0]);
        guide_drop(u);
        u = guide_of(&k, false, AGAIN);
        write_bytes(g, u, cases[i][1]);
        write_bytes(g, u, "more <b");
        assert_true(may_come(u, '!'));
        guide_drop(u);
        family_close(&k);
    }
    guides_free(g);
    ring_free(&wake);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_token_may_end_a_text_and_begin_a_call),
        cmocka_unit_test(a_call_may_follow_the_tag_that_ends_an_answer),
        cmocka_unit_test(a_token_may_end_a_call_and_begin_the_text_behind_it),
        cmocka_unit_test(every_answer_of_every_family_is_calls_that_the_schemas_accept),
    };
    return cmocka_run_group_tests(tests, world_open, world_close);
}
