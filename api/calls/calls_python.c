#include "api/calls/calls_impl.h"
#include "base/hex.h"
#include <string.h>

/* [f(a=1, b="x", c=[..], d={..}), g()]: Python's calls with keyword arguments whose values are literals, in a list or,
 * where the row says so, each on a line. A call is one as soon as its first value begins like a literal, or its brackets
 * are empty; positional arguments, calls inside calls and names of variables make text of it. JSON's true, false and
 * null are taken too. */

enum at {
    AT_START = 0, /* blank up to the list */
    AT_NAME,      /* the name of a function */
    AT_ARG,       /* blank, the name of an argument, or the call's end */
    AT_IN_ARG,
    AT_EQUALS,
    AT_VALUE, /* blank before a value */
    AT_STRING,
    AT_ESCAPE,
    AT_CODE, /* in the digits of an escape */
    AT_WORD, /* a number, True, False, None */
    AT_AFTER,
    AT_NEXT, /* behind a call */
};
enum { WORD_MAX = 64 };

static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool in_name(char c) { return is_letter(c) || is_digit(c) || c == '.' || c == '-'; }

static enum calls_verdict put(struct calls *p, const char *s)
{
    return calls_arg(p, s, strlen(s)) ? CALLS_MORE : CALLS_WRONG;
}

static bool in_dict(const struct calls_machine *m) { return m->depth && m->kinds >> (m->depth - 1) & 1; }

/* ---------------------------------------------------------------- values */

static bool push(struct calls_machine *m, bool dict)
{
    if (m->depth >= CALLS_DEPTH_MAX) return false;
    uint64_t bit = (uint64_t)1 << m->depth;
    m->kinds = dict ? m->kinds | bit : m->kinds & ~bit;
    m->depth++;
    m->dict_key = dict;
    m->at = AT_VALUE;
    m->n_text = 1; /* nothing in it yet: it may end here */
    return true;
}

static enum calls_verdict pop(struct calls *p, char c)
{
    struct calls_machine *m = &p->m;
    if (!m->depth || (c == '}') != in_dict(m)) return CALLS_WRONG;
    m->depth--;
    m->dict_key = false;
    m->at = AT_AFTER;
    return put(p, c == '}' ? "}" : "]");
}

static enum calls_verdict begin_value(struct calls *p, char c)
{
    struct calls_machine *m = &p->m;
    bool                  fresh = m->n_text == 1, literal = is_digit(c) || strchr("-TFNtfn", c);
    if (calls_blank(c)) return CALLS_MORE;
    if (m->depth && fresh && (c == ']' || c == '}')) return pop(p, c);
    if (m->dict_key && c != '"' && c != '\'') return CALLS_WRONG;
    m->n_text = 0;
    if (c == '"' || c == '\'') {
        m->quote = c;
        m->at = AT_STRING;
        return calls_open(p) ? put(p, "\"") : CALLS_WRONG;
    }
    if (c == '[' || c == '{') {
        const char *open = c == '{' ? "{" : "[";
        return calls_open(p) && push(m, c == '{') ? put(p, open) : CALLS_WRONG;
    }
    if (!literal) return CALLS_WRONG;
    m->at = AT_WORD;
    m->text[m->n_text++] = c;
    return CALLS_MORE;
}

static enum calls_verdict after_value(struct calls *p, char c)
{
    struct calls_machine *m = &p->m;
    if (calls_blank(c)) return CALLS_MORE;
    if (!m->depth) {
        m->at = AT_ARG;
        if (c == ',') return CALLS_MORE;
        if (c != ')') return CALLS_WRONG;
        if (put(p, "}") != CALLS_MORE) return CALLS_WRONG;
        calls_close(p);
        m->at = AT_NEXT;
        return CALLS_MORE;
    }
    if (c == ':' && m->dict_key) {
        m->dict_key = false;
        m->at = AT_VALUE;
        m->n_text = 0;
        return put(p, ":");
    }
    if (m->dict_key) return CALLS_WRONG;
    if (c == ']' || c == '}') return pop(p, c);
    if (c != ',') return CALLS_WRONG;
    m->dict_key = in_dict(m);
    m->at = AT_VALUE;
    m->n_text = 0;
    return put(p, ",");
}

static enum calls_verdict word_byte(struct calls *p, char c)
{
    static const struct {
        const char *python, *json;
    } words[] = { { "True", "true" }, { "False", "false" }, { "None", "null" },
                  { "true", "true" }, { "false", "false" }, { "null", "null" } };
    struct calls_machine *m = &p->m;
    const char           *json = NULL;
    if (is_letter(c) || is_digit(c) || strchr("+-.", c)) {
        if (!c || m->n_text >= WORD_MAX) return CALLS_WRONG;
        m->text[m->n_text++] = c;
        return CALLS_MORE;
    }
    m->text[m->n_text] = 0;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strcmp(m->text, words[i].python)) json = words[i].json;
    if (!json && calls_number_good(m->text, m->n_text, false)) json = m->text;
    if (!json || !calls_open(p) || put(p, json) != CALLS_MORE) return CALLS_WRONG;
    m->at = AT_AFTER;
    return after_value(p, c);
}

/* ---------------------------------------------------------------- strings */

static enum calls_verdict escape_byte(struct calls *p, char c)
{
    static const char     from[] = "nrtbfav0\\'\"", to[] = "\n\r\t\b\f\a\v\0\\'\"";
    struct calls_machine *m = &p->m;
    const char           *at = c ? strchr(from, c) : NULL;
    m->at = AT_STRING;
    if (c == '\n') return CALLS_MORE; /* the line goes on */
    if (at) return calls_arg_char(p, to[at - from]) ? CALLS_MORE : CALLS_WRONG;
    if (c == 'x' || c == 'u' || c == 'U') {
        m->at = AT_CODE;
        m->n_esc = 8;
        if (c == 'x') m->n_esc = 2;
        if (c == 'u') m->n_esc = 4;
        m->cp = 0;
        return CALLS_MORE;
    }
    return calls_arg_char(p, '\\') && calls_arg_char(p, c) ? CALLS_MORE : CALLS_WRONG;
}

static enum calls_verdict code_byte(struct calls *p, char c)
{
    enum { SURROGATES = 0xd800, SURROGATES_END = 0xe000, LAST = 0x10ffff };
    struct calls_machine *m = &p->m;
    int                   v = hex_value(c);
    if (v < 0) return CALLS_WRONG;
    m->cp = m->cp << 4 | (uint32_t)v;
    if (--m->n_esc) return CALLS_MORE;
    m->at = AT_STRING;
    if (m->cp > LAST || (m->cp >= SURROGATES && m->cp < SURROGATES_END)) return CALLS_WRONG;
    return calls_arg_code(p, m->cp) ? CALLS_MORE : CALLS_WRONG;
}

static enum calls_verdict string_byte(struct calls *p, char c)
{
    struct calls_machine *m = &p->m;
    if (c == '\\') {
        m->at = AT_ESCAPE;
        return CALLS_MORE;
    }
    if (c != m->quote) return calls_arg_char(p, c) ? CALLS_MORE : CALLS_WRONG;
    m->at = AT_AFTER;
    return put(p, "\"");
}

/* ---------------------------------------------------------------- calls */

static enum calls_verdict name_byte(struct calls *p, char c)
{
    struct calls_machine *m = &p->m;
    if (!p->n_name && calls_blank(c)) return CALLS_MORE;
    if (c == '(' && p->n_name) {
        m->at = AT_ARG;
        m->has_args = false;
        return CALLS_MORE;
    }
    bool good = p->n_name ? in_name(c) : is_letter(c);
    if (!good || p->n_name >= CALLS_NAME_MAX) return CALLS_WRONG;
    p->name[p->n_name++] = c;
    return CALLS_MORE;
}

static enum calls_verdict arg_byte(struct calls *p, char c)
{
    struct calls_machine *m = &p->m;
    if (calls_blank(c)) return CALLS_MORE;
    if (c == ')') { /* empty, or behind a last comma */
        if (!calls_open(p)) return CALLS_WRONG;
        if (m->has_args && put(p, "}") != CALLS_MORE) return CALLS_WRONG;
        calls_close(p);
        m->at = AT_NEXT;
        return CALLS_MORE;
    }
    m->at = AT_IN_ARG;
    m->n_text = 1;
    m->text[0] = c;
    return is_letter(c) ? CALLS_MORE : CALLS_WRONG;
}

static enum calls_verdict equals_byte(struct calls *p, char c)
{
    struct calls_machine *m = &p->m;
    if (calls_blank(c)) {
        m->at = AT_EQUALS;
        return CALLS_MORE;
    }
    if (c != '=') return CALLS_WRONG;
    bool fits = put(p, m->has_args ? ",\"" : "{\"") == CALLS_MORE && calls_arg(p, m->text, m->n_text);
    m->has_args = true;
    m->at = AT_VALUE;
    m->n_text = 0;
    m->depth = 0;
    m->dict_key = false;
    return fits ? put(p, "\":") : CALLS_WRONG;
}

static enum calls_verdict next_byte(struct calls *p, char c)
{
    bool lines = p->cfg.model->row->lines;
    if (calls_blank(c)) return CALLS_MORE;
    if (c == ']' && !lines) return CALLS_READY;
    if (lines && !is_letter(c)) return CALLS_OVER;
    if (c != ',' && !lines) return CALLS_WRONG;
    calls_hold(p);
    buf_put(&p->raw, &c, 1);
    p->m.at = AT_NAME;
    return lines ? name_byte(p, c) : CALLS_MORE;
}

/* ---------------------------------------------------------------- where arguments begin */

const struct calls_tool *calls_python_begins(const struct calls *p)
{
    if (p->m.at != AT_ARG || p->m.has_args || p->opened) return NULL;
    return calls_tool_find(p->cfg.tools, p->name, p->n_name);
}

uint32_t calls_python_leads(const struct calls *p, struct calls_lead *out)
{
    const struct calls_tools *tools = p->cfg.tools;
    uint32_t                  n = 0;
    for (uint32_t i = 0; p->m.at == AT_NAME && i < tools->n && n < CALLS_LEADS_MAX; i++) {
        const struct calls_tool *t = &tools->tool[i];
        if (!t->allowed || p->n_name > t->n || memcmp(t->name, p->name, p->n_name) != 0) continue;
        out[n++] = (struct calls_lead){ .tool = t, .begun = p->n_name };
    }
    return n;
}

/* A name with something before it and something behind its bracket: what is only behind it is below a lead. */
bool calls_python_passes(const char *s, size_t n)
{
    for (size_t i = 1; i + 1 < n; i++) {
        size_t from = i;
        if (s[i] != '(') continue;
        while (from > 0 && in_name(s[from - 1])) from--;
        if (from < i && from > 0 && (s[from - 1] == '[' || s[from - 1] == ',' || calls_blank(s[from - 1]))) return true;
    }
    return false;
}

/* ---------------------------------------------------------------- bytes */

enum calls_verdict calls_python_byte(struct calls *p, char c)
{
    struct calls_machine *m = &p->m;
    switch (m->at) {
    case AT_START:
        if (calls_blank(c)) return CALLS_MORE;
        m->at = AT_NAME;
        if (p->cfg.model->row->lines) return name_byte(p, c);
        return c == '[' ? CALLS_MORE : CALLS_WRONG;
    case AT_NAME: return name_byte(p, c);
    case AT_ARG: return arg_byte(p, c);
    case AT_IN_ARG:
        if (!is_letter(c) && !is_digit(c)) return equals_byte(p, c);
        if (m->n_text >= CALLS_NAME_MAX) return CALLS_WRONG;
        m->text[m->n_text++] = c;
        return CALLS_MORE;
    case AT_EQUALS: return equals_byte(p, c);
    case AT_VALUE: return begin_value(p, c);
    case AT_STRING: return string_byte(p, c);
    case AT_ESCAPE: return escape_byte(p, c);
    case AT_CODE: return code_byte(p, c);
    case AT_WORD: return word_byte(p, c);
    case AT_AFTER: return after_value(p, c);
    default: return next_byte(p, c);
    }
}
