#include "api/family.h"
#include "api/calls/calls_row.h"
#include <stdio.h>
#include <string.h>

/* ---------------------------------------------------------------- the row */

/* Where a text must be for a row to be chosen. */
enum where { IN_TEMPLATE = 1, A_TOKEN = 2, EITHER = 3 };
struct sign {
    enum where  where;
    const char *text;
};

/* The first row of which all signs are there. What a family has alone stands before what several have. */
static const struct pick {
    const char *row;
    struct sign sign[3];
} picks[] = {
    { "harmony", { { EITHER, "<|channel|>" }, { EITHER, "<|message|>" }, { EITHER, "<|call|>" } } },
    { "gemma4", { { EITHER, "<|tool_call>" }, { EITHER, "<tool_call|>" } } },
    { "functiongemma", { { EITHER, "<start_function_call>" } } },
    { "kimi_k2", { { EITHER, "<|tool_calls_section_begin|>" } } },
    { "deepseek_v32",
      { { IN_TEMPLATE, "\xef\xbd\x9c"
                       "DSML\xef\xbd\x9c" } } },
    { "deepseek_v3",
      { { IN_TEMPLATE, "tool\xe2\x96\x81"
                       "call\xe2\x96\x81"
                       "begin" },
        { IN_TEMPLATE, "```json" } } },
    { "deepseek_v31",
      { { IN_TEMPLATE, "tool\xe2\x96\x81"
                       "call\xe2\x96\x81"
                       "begin" } } },
    { "step3", { { IN_TEMPLATE, "<steptml:invoke" } } },
    { "minimax_m2", { { IN_TEMPLATE, "minimax:tool_call" } } },
    { "seed_oss", { { IN_TEMPLATE, "<seed:tool_call>" } } },
    { "qwen_xml", { { IN_TEMPLATE, "<function=" }, { IN_TEMPLATE, "<parameter=" } } },
    { "hy_v3", { { IN_TEMPLATE, "<tool_sep>" }, { IN_TEMPLATE, "<arg_key>" } } },
    { "glm", { { IN_TEMPLATE, "<arg_key>" } } },
    { "mistral", { { A_TOKEN, "[TOOL_CALLS]" }, { A_TOKEN, "[ARGS]" } } },
    { "mistral_old", { { EITHER, "[TOOL_CALLS]" } } },
    { "cohere", { { EITHER, "<|START_ACTION|>" } } },
    { "lfm2", { { EITHER, "<|tool_call_start|>" } } },
    { "solar_open", { { EITHER, "<|tool_call:args|>" } } },
    { "olmo3", { { IN_TEMPLATE, "<function_calls>" } } },
    { "pythonic", { { EITHER, "<|python_start|>" } } },
    { "llama_json", { { EITHER, "<|python_tag|>" } } },
    { "granite", { { IN_TEMPLATE, "<response>" }, { EITHER, "<|tool_call|>" } } },
    { "list_json", { { IN_TEMPLATE, "<TOOLCALL>" } } },
    { "list_json", { { IN_TEMPLATE, "functools" } } },
    { "list_json", { { EITHER, "<|tool_call|>" } } },
    { "hunyuan", { { IN_TEMPLATE, "<tool_calls>" }, { IN_TEMPLATE, "<answer>" } } },
    { "list_json", { { IN_TEMPLATE, "<tool_calls>" } } },
    { "ernie", { { IN_TEMPLATE, "<response>" }, { EITHER, "<tool_call>" } } },
    { "hermes", { { IN_TEMPLATE, "<tool_call>" } } },
    { "pythonic", { { IN_TEMPLATE, "[func_name1(" } } },
    { "llama_json", { { IN_TEMPLATE, "{\"name\": function name, \"parameters\":" } } },
};

static bool is_there(const struct sign *s, const struct tmpl *t, const struct tok *tok)
{
    uint32_t id;
    bool token = s->where & A_TOKEN && tok && tok_id_of(tok, s->text, strlen(s->text), &id) && tok_is_added(tok, id);
    return token || (s->where & IN_TEMPLATE && tmpl_has_text(t, s->text));
}

static const struct calls_row *pick_row(const struct tmpl *t, const struct tok *tok)
{
    for (size_t i = 0; i < sizeof picks / sizeof *picks; i++) {
        bool all = true;
        for (size_t k = 0; k < 3 && picks[i].sign[k].text; k++) all = all && is_there(&picks[i].sign[k], t, tok);
        if (all) return calls_row_find(picks[i].row);
    }
    return NULL;
}

/* The end of reasoning is the sign: some templates leave its beginning to the model. Others begin it in the prompt, and
 * show nothing of the end that the model writes. */
static const struct calls_think *pick_think(const struct tmpl *t)
{
    const struct calls_think *k;
    for (size_t i = 0; (k = calls_think_at(i)); i++)
        if (tmpl_has_text(t, k->sign ? k->sign : k->stop)) return k;
    for (size_t i = 0; (k = calls_think_at(i)); i++)
        if (!k->sign && tmpl_has_text(t, k->start)) return k;
    return NULL;
}

/* Texts of families whose models always think, and of whose templates some say no more of it than that they cut it out
 * of the history: DeepSeek's R1 and the first Kimi. Other templates that only cut (LFM2.5, Mellum 2) or that spell the
 * beginning with an escape (Gemma 4) are of models that may answer at once, and that write the beginning themselves. */
static const char *const always_think[] = { "<\xef\xbd\x9c"
                                            "Assistant\xef\xbd\x9c>",
                                            "\xe2\x97\x81/think\xe2\x96\xb7" };

static bool thinks_first(const struct tmpl *t, const struct calls_think *think)
{
    bool always = false;
    if (!think || !tmpl_has_text(t, think->stop) || tmpl_has_text(t, think->start)) return false;
    for (size_t i = 0; i < sizeof always_think / sizeof *always_think; i++)
        always = always || tmpl_has_text(t, always_think[i]);
    return always;
}

/* ---------------------------------------------------------------- small conversations */

enum { PROBE_OUT_MAX = 1 << 20 };

static json_t *content_of(const struct tmpl *t, const char *text)
{
    return tmpl_wants_parts(t) ? json_pack("[{s:s,s:s}]", "type", "text", "text", text) : json_string(text);
}

static json_t *probe_call(const char *name, bool args_text)
{
    json_t *args =
        args_text ? json_string("{\"probe_key\": \"probe_value\"}") : json_pack("{s:s}", "probe_key", "probe_value");
    return json_pack("{s:s,s:s,s:{s:s,s:o}}", "id", "abcdefgh1", "type", "function", "function", "name", name,
                     "arguments", args);
}

/* A user's question, n_call calls for it, and a result. */
static json_t *talk_with_calls(const struct tmpl *t, unsigned n_call, bool args_text, bool null_content)
{
    json_t *calls = json_array(), *list = json_array();
    for (unsigned i = 0; i < n_call; i++)
        json_array_append_new(calls, probe_call(i ? "probe_second" : "probe_first", args_text));
    json_array_append_new(list, json_pack("{s:s,s:o}", "role", "user", "content", content_of(t, "probe_user")));
    json_array_append_new(list, json_pack("{s:s,s:o,s:o}", "role", "assistant", "content",
                                          null_content ? json_null() : json_string(""), "tool_calls", calls));
    for (unsigned i = 0; i < n_call; i++)
        json_array_append_new(list, json_pack("{s:s,s:s,s:s,s:s}", "role", "tool", "tool_call_id", "abcdefgh1", "name",
                                              i ? "probe_second" : "probe_first", "content", "probe_result"));
    return list;
}

static json_t *talk_of_user(const struct tmpl *t)
{
    return json_pack("[{s:s,s:o}]", "role", "user", "content", content_of(t, "probe_user"));
}

static json_t *probe_tools(void)
{
    return json_pack("[{s:s,s:{s:s,s:s,s:{s:s,s:{s:{s:s}},s:[]}}}]", "type", "function", "function", "name",
                     "probe_tool", "description", "d", "parameters", "type", "object", "properties", "probe_key",
                     "type", "string", "required");
}

/* Takes messages and tools. False: the template refuses them, or does not show them. */
static bool render(const struct tmpl *t, const struct tok *tok, json_t *messages, json_t *tools, bool add,
                   struct buf *out)
{
    const char *name, *text;
    char        err[256];
    json_t     *vars = json_object();
    buf_clear(out);
    for (uint32_t i = 0; tok && tok_special_at(tok, i, &name, &text); i++)
        json_object_set_new(vars, name, json_string(text));
    json_object_set_new(vars, "messages", messages);
    json_object_set_new(vars, "tools", tools ? tools : json_null());
    json_object_set_new(vars, "documents", json_null());
    json_object_set_new(vars, "add_generation_prompt", json_boolean(add));
    enum status st = tmpl_render(t, vars, NULL, 0, out, err, sizeof err);
    json_decref(vars);
    buf_cstr(out);
    return !st && !out->failed;
}

static bool has(const struct buf *b, const char *text) { return b->n && memmem(b->data, b->n, text, strlen(text)); }

/* Whether a call with arguments in this form shows as it should: not left out, and not in Python's own notation. Some
 * templates show calls only where there is text beside them or only where there is none: one of the two is enough. */
static bool form_shows(const struct tmpl *t, const struct tok *tok, bool args_text, struct buf *b)
{
    for (int null = 0; null < 2; null++) {
        bool done = render(t, tok, talk_with_calls(t, 1, args_text, null), probe_tools(), true, b);
        if (done && has(b, "probe_value") && !has(b, "'probe_key'")) return true;
    }
    return false;
}

/* Whether a message with a call and reasoning is taken, with a text beside them or without. */
static bool thought_fits(const struct family *f, const struct tmpl *t, const struct tok *tok, bool text, struct buf *b)
{
    json_t *list = talk_with_calls(t, 1, f->args_text, false), *msg = json_array_get(list, 1);
    json_object_set_new(msg, "reasoning_content", json_string("probe_thought"));
    json_object_set_new(msg, "thinking", json_string("probe_thought"));
    bool as_text = f->content[FAMILY_ASSISTANT] & FAMILY_TEXT;
    if (text) json_object_set_new(msg, "content", as_text ? json_string("probe_text") : content_of(t, "probe_text"));
    return render(t, tok, list, probe_tools(), true, b);
}

/* One message with this content, between messages of users, whose contents are parts if parts_of_user. */
static json_t *talk_with(enum family_role role, json_t *content, bool parts_of_user, const struct tmpl *t)
{
    static const char *const names[] = { "user", "system", "assistant" };
    json_t *list = json_array(), *one = json_pack("{s:s,s:o}", "role", names[role], "content", content);
    json_t *user = parts_of_user ? content_of(t, "probe_user") : json_string("probe_user");
    if (role == FAMILY_ASSISTANT) json_array_append_new(list, json_pack("{s:s,s:O}", "role", "user", "content", user));
    json_array_append_new(list, one);
    if (role != FAMILY_USER) json_array_append_new(list, json_pack("{s:s,s:O}", "role", "user", "content", user));
    json_decref(user);
    return list;
}

/* Templates that show parts do so for some roles only: others get a list printed in Python's notation, or refuse it. */
static void probe_content(struct family *f, const struct tmpl *t, const struct tok *tok, struct buf *b)
{
    for (enum family_role r = 0; r < FAMILY_ROLES && tmpl_wants_parts(t); r++)
        for (int parts = 0; parts < 2; parts++) {
            json_t *content = parts ? content_of(t, "probe_content") : json_string("probe_content");
            bool    done =
                render(t, tok, talk_with(r, content, !(f->content[FAMILY_USER] & FAMILY_TEXT), t), NULL, true, b);
            if (done && has(b, "probe_content") && !has(b, "'probe_content'") && !has(b, "\"probe_content\""))
                f->content[r] |= parts ? FAMILY_PARTS : FAMILY_TEXT;
        }
}

static void probe_calls(struct family *f, const struct tmpl *t, const struct tok *tok, struct buf *b)
{
    f->args_text = !form_shows(t, tok, false, b) && form_shows(t, tok, true, b);
    bool null = render(t, tok, talk_with_calls(t, 1, f->args_text, true), probe_tools(), true, b);
    f->null_content = null && !has(b, "None") && has(b, "probe_value");
    bool two = render(t, tok, talk_with_calls(t, 2, f->args_text, false), probe_tools(), true, b);
    bool one =
        render(t, tok, talk_with_calls(t, 1, f->args_text, false), probe_tools(), true, b) && has(b, "probe_first");
    if (two)
        two = render(t, tok, talk_with_calls(t, 2, f->args_text, false), probe_tools(), true, b) &&
              has(b, "probe_second");
    f->one_call = one && !two;
    f->text_or_thought = thought_fits(f, t, tok, false, b) && !thought_fits(f, t, tok, true, b);
}

/* What stands in the prompt only where an answer is asked for. */
static void probe_header(struct family *f, const struct tmpl *t, const struct tok *tok, struct buf *b)
{
    const struct calls_think *think = f->calls.think;
    struct buf                with;
    buf_init(&with, PROBE_OUT_MAX);
    bool   both = render(t, tok, talk_of_user(t), NULL, true, &with) && render(t, tok, talk_of_user(t), NULL, false, b);
    size_t n = 0;
    if (both && with.n > b->n && (!b->n || !memcmp(with.data, b->data, b->n))) n = with.n - b->n;
    const char *from = n ? with.data + b->n : NULL;
    const char *ends[] = { think ? think->start : NULL, think ? think->stop : NULL };
    for (size_t i = 0; n && i < 2; i++) {
        const char *at = ends[i] ? memmem(from, n, ends[i], strlen(ends[i])) : NULL;
        if (at) n = (size_t)(at - from);
    }
    if (n && n < sizeof f->header) {
        memcpy(f->header, from, n);
        f->n_header = (uint32_t)n;
    }
    buf_free(&with);
}

/* ---------------------------------------------------------------- the face */

bool family_row_known(const char *name)
{
    return !strcmp(name, "auto") || !strcmp(name, "none") || calls_row_find(name);
}

bool family_think_known(const char *name)
{
    return !strcmp(name, "auto") || !strcmp(name, "none") || calls_think_find(name);
}

const char *family_names(bool rows, char *dst, size_t dst_bytes)
{
    size_t n = 0;
    for (size_t i = 0; rows ? calls_row_at(i) != NULL : calls_think_at(i) != NULL; i++) {
        const char *name = rows ? calls_row_at(i)->name : calls_think_at(i)->name;
        int         k = snprintf(dst + n, dst_bytes - n, "%s%s", i ? ", " : "", name);
        if (k < 0 || (size_t)k >= dst_bytes - n) break;
        n += (size_t)k;
    }
    return dst;
}

void family_init(struct family *f, const struct tmpl *t, const struct tok *tok, const char *row, const char *think)
{
    struct buf b;
    *f = (struct family){ .tools = false };
    bool                      by_name = strcmp(row, "none") != 0 && strcmp(row, "auto") != 0;
    const struct calls_row   *r = by_name ? calls_row_find(row) : NULL;
    const struct calls_think *k = calls_think_find(think);
    if (t && !strcmp(row, "auto")) r = pick_row(t, tok);
    if (t && !strcmp(think, "auto")) k = pick_think(t);
    calls_model_init(&f->calls, r, k, tok);
    if (!t) return;
    f->calls.thinks_first = thinks_first(t, f->calls.think);
    buf_init(&b, PROBE_OUT_MAX);
    f->tools =
        tmpl_mentions(t, "tools") && render(t, tok, talk_of_user(t), probe_tools(), true, &b) && has(&b, "probe_tool");
    probe_content(f, t, tok, &b);
    probe_calls(f, t, tok, &b);
    probe_header(f, t, tok, &b);
    buf_free(&b);
}

/* Where `word` is for the last time; n: nowhere. */
static size_t last_of(const char *s, size_t n, const char *word, size_t n_word)
{
    size_t at = n;
    for (const char *p = s; n_word && p && (p = memmem(p, n - (size_t)(p - s), word, n_word)); p++)
        at = (size_t)(p - s);
    return at;
}

enum family_thinking family_thinking(const struct family *f, const char *prompt, size_t n)
{
    const struct calls_think *think = f->calls.think;
    if (!think || !n) return FAMILY_NO_THOUGHT;
    size_t from = last_of(prompt, n, f->header, f->n_header);
    if (from == n) { /* no header is known: the end of the prompt decides */
        while (n && strchr(" \t\r\n", prompt[n - 1])) n--;
        size_t k = strlen(think->start), c = strlen(think->stop);
        if (n >= c && !memcmp(prompt + n - c, think->stop, c)) return FAMILY_THOUGHT;
        return n >= k && !memcmp(prompt + n - k, think->start, k) ? FAMILY_THINKS : FAMILY_NO_THOUGHT;
    }
    from += f->n_header;
    const char *tail = prompt + from;
    size_t      n_tail = n - from, start = last_of(tail, n_tail, think->start, strlen(think->start));
    size_t      stop = last_of(tail, n_tail, think->stop, strlen(think->stop));
    if (start == n_tail && stop == n_tail) return f->calls.thinks_first ? FAMILY_THINKS : FAMILY_NO_THOUGHT;
    return start != n_tail && (stop == n_tail || stop < start) ? FAMILY_THINKS : FAMILY_THOUGHT;
}
