#include "api/calls/calls_impl.h"
#include "base/utf8.h"
#include "base/hex.h"
#include <string.h>

/* Machines for calls that are JSON: the object of the arguments alone, or an object with a name and arguments, or a
 * list of those. Arguments go out as the model wrote them; where they end is a matter of braces outside strings. */

enum at {
    AT_START = 0, /* blank up to the object, or the list */
    AT_OBJECT,    /* blank up to an object of the list, or its end */
    AT_KEY,       /* blank, a key, or the object's end */
    AT_IN_KEY,
    AT_COLON,
    AT_VALUE, /* blank before a value */
    AT_NAME,  /* in the name */
    AT_ARGS,  /* in the arguments */
    AT_TEXT,  /* in arguments that are a string which holds the object */
    AT_SKIP,  /* in a value that does not count: string, object, array */
    AT_WORD,  /* in a number or a literal that does not count */
    AT_NEXT,  /* behind a value */
    AT_LIST,  /* behind an object of the list */
};
enum key { KEY_OTHER, KEY_NAME, KEY_ARGS };

/* ---------------------------------------------------------------- one value by its braces */

/* True: c ends the value (object, array or string) that the machine is in. *deep_out: it is too deep. */
static bool value_ends(struct calls_machine *m, char c, bool *deep_out)
{
    *deep_out = false;
    if (m->string) {
        bool ends = !m->escape && c == '"';
        m->escape = !m->escape && c == '\\';
        m->string = !ends;
        return ends && !m->depth;
    }
    if (c == '"') m->string = true;
    if (c == '{' || c == '[') *deep_out = ++m->depth > CALLS_DEPTH_MAX;
    return (c == '}' || c == ']') && --m->depth == 0;
}

enum calls_verdict calls_json_byte(struct calls *p, char c)
{
    struct calls_machine *m = &p->m;
    bool                  deep;
    if (m->at == AT_START) {
        if (calls_blank(c)) return CALLS_MORE;
        if (c != '{') return CALLS_WRONG;
        m->at = AT_ARGS;
    }
    bool ends = value_ends(m, c, &deep);
    if (deep || !calls_arg(p, &c, 1)) return CALLS_WRONG;
    if (!ends) return CALLS_MORE;
    calls_close(p);
    return CALLS_READY;
}

/* ---------------------------------------------------------------- {"name":..,"arguments":..} */

static bool text_is(const struct calls_machine *m, const char *word)
{
    return m->n_text == strlen(word) && !memcmp(m->text, word, m->n_text);
}

static enum key key_of(const struct calls_machine *m)
{
    if (text_is(m, "name") || text_is(m, "tool_name")) return KEY_NAME;
    return text_is(m, "arguments") || text_is(m, "parameters") ? KEY_ARGS : KEY_OTHER;
}

/* Behind the name, or where the arguments begin. */
static bool may_open(struct calls *p)
{
    struct calls_machine *m = &p->m;
    if (p->opened || !m->has_name) return true;
    if (p->cfg.model->row->needs_arguments && !m->has_args) return true;
    const struct calls_tool *t = calls_tool_find(p->cfg.tools, p->name, p->n_name);
    if (m->bare && !t) return false;
    /* arguments before the name were bound by nothing */
    if (m->at == AT_NEXT && m->has_args && t && (t->strict || t->grammar)) return false;
    return calls_open(p);
}

static enum calls_verdict begin_value(struct calls *p, char c)
{
    struct calls_machine *m = &p->m;
    m->depth = 0;
    m->escape = false;
    m->string = false;
    if (m->key == KEY_NAME && !m->has_name) {
        p->n_name = 0;
        m->at = AT_NAME;
        return c == '"' ? CALLS_MORE : CALLS_WRONG;
    }
    if (m->key == KEY_ARGS && !m->has_args && c != 'n') { /* null is none */
        bool deep;
        m->has_args = true;
        if (!may_open(p)) return CALLS_WRONG;
        m->at = c == '"' ? AT_TEXT : AT_ARGS;
        m->n_esc = 0;
        m->high = 0;
        if (c == '"') return CALLS_MORE;
        value_ends(m, c, &deep);
        return c == '{' && calls_arg(p, &c, 1) ? CALLS_MORE : CALLS_WRONG;
    }
    bool deep, word = !strchr("{[\"", c);
    m->at = word ? AT_WORD : AT_SKIP;
    if (!word) value_ends(m, c, &deep);
    return strchr("}],:", c) ? CALLS_WRONG : CALLS_MORE;
}

static bool put_code(struct calls *p, uint32_t cp)
{
    char b[4];
    return calls_arg(p, b, utf8_encode(cp, b));
}

/* A byte of arguments that are a JSON string: what the string holds goes out. */
static enum calls_verdict text_byte(struct calls *p, char c)
{
    enum { HEX = 2, LAST = 5, HIGH = 0xd800, LOW = 0xdc00, END = 0xe000, BAD = 0xfffd, BASE = 0x10000 };
    static const char     from[] = "bfnrt", to[] = "\b\f\n\r\t";
    struct calls_machine *m = &p->m;
    if (!m->n_esc) {
        if (c == '\\') {
            m->n_esc = 1;
            return CALLS_MORE;
        }
        bool fits = !m->high || put_code(p, BAD);
        m->high = 0;
        if (c == '"') {
            m->at = AT_NEXT;
            return fits ? CALLS_MORE : CALLS_WRONG;
        }
        return fits && calls_arg(p, &c, 1) ? CALLS_MORE : CALLS_WRONG;
    }
    if (m->n_esc == 1 && c == 'u') {
        m->n_esc = HEX;
        m->cp = 0;
        return CALLS_MORE;
    }
    if (m->n_esc == 1) {
        const char *at = strchr(from, c);
        bool        fits = !m->high || put_code(p, BAD);
        m->high = 0;
        m->n_esc = 0;
        if (at && c) c = to[at - from];
        return fits && calls_arg(p, &c, 1) ? CALLS_MORE : CALLS_WRONG;
    }
    if (hex_value(c) < 0) return CALLS_WRONG;
    m->cp = m->cp << 4 | (uint32_t)hex_value(c);
    if (m->n_esc++ < LAST) return CALLS_MORE;
    m->n_esc = 0;
    bool low = m->cp >= LOW && m->cp < END, high = m->cp >= HIGH && m->cp < LOW, fits = true;
    if (m->high && low) {
        fits = put_code(p, BASE + ((m->high - HIGH) << 10) + (m->cp - LOW));
        m->high = 0;
        return fits ? CALLS_MORE : CALLS_WRONG;
    }
    if (m->high) fits = put_code(p, BAD);
    m->high = high ? m->cp : 0;
    if (!high) fits = fits && put_code(p, low ? BAD : m->cp);
    return fits ? CALLS_MORE : CALLS_WRONG;
}

static enum calls_verdict end_object(struct calls *p)
{
    struct calls_machine *m = &p->m;
    bool                  needs = p->cfg.model->row->needs_arguments;
    if (!m->has_name || (needs && !m->has_args)) return CALLS_WRONG;
    if (!p->opened && !may_open(p)) return CALLS_WRONG;
    calls_close(p);
    m->at = AT_LIST;
    return m->list ? CALLS_MORE : CALLS_READY;
}

static void begin_object(struct calls_machine *m)
{
    m->at = AT_KEY;
    m->has_name = m->has_args = false;
    m->dict_key = true; /* no key was read yet */
}

/* Text that stands alone is a call only if it begins like one: other JSON is not held back. */
static bool key_good(struct calls_machine *m)
{
    bool first = m->dict_key;
    m->dict_key = false;
    if (!m->bare || !first) return true;
    return m->key != KEY_OTHER || text_is(m, "type") || text_is(m, "id") || text_is(m, "function");
}

static enum calls_verdict key_byte(struct calls_machine *m, char c)
{
    if (!m->escape && c == '"') {
        m->key = (uint8_t)key_of(m);
        m->at = AT_COLON;
        return key_good(m) ? CALLS_MORE : CALLS_WRONG;
    }
    m->escape = !m->escape && c == '\\';
    if (m->n_text < CALLS_NAME_MAX) m->text[m->n_text++] = c; /* a longer one is none that counts */
    return CALLS_MORE;
}

static enum calls_verdict name_byte(struct calls *p, char c)
{
    if (c == '"') {
        p->m.has_name = true;
        p->m.at = AT_NEXT;
        if (!calls_name_good(p->name, p->n_name, CALLS_NAME_MAX)) return CALLS_WRONG;
        return may_open(p) ? CALLS_MORE : CALLS_WRONG;
    }
    if (p->n_name >= CALLS_NAME_MAX || c == '\\') return CALLS_WRONG;
    p->name[p->n_name++] = c;
    return CALLS_MORE;
}

static enum calls_verdict next_byte(struct calls *p, char c)
{
    if (calls_blank(c)) return CALLS_MORE;
    if (c == '}') return end_object(p);
    p->m.at = AT_KEY;
    return c == ',' ? CALLS_MORE : CALLS_WRONG;
}

/* ---------------------------------------------------------------- where arguments begin */

/* The name has come, and the arguments have not. */
static const struct calls_tool *named_tool(const struct calls *p)
{
    if (p->opened || !p->m.has_name || p->m.has_args) return NULL;
    const struct calls_tool *t = calls_tool_find(p->cfg.tools, p->name, p->n_name);
    return t && t->allowed ? t : NULL;
}

const struct calls_tool *calls_object_begins(const struct calls *p)
{
    return p->m.at == AT_COLON && p->m.key == KEY_ARGS ? named_tool(p) : NULL;
}

static const char *const args_keys[] = { "\"parameters\"", "\"arguments\"" };

uint32_t calls_object_leads(const struct calls *p, struct calls_lead *out)
{
    const struct calls_machine *m = &p->m;
    const struct calls_tool    *t = m->at == AT_IN_KEY && !m->escape ? named_tool(p) : NULL;
    uint32_t                    n = 0;
    for (size_t i = 0; t && i < sizeof args_keys / sizeof *args_keys; i++) {
        const char *text = args_keys[i] + 1;
        uint32_t    len = (uint32_t)strlen(text);
        if (m->n_text >= len || memcmp(m->text, text, m->n_text) != 0) continue;
        out[n++] = (struct calls_lead){ .tool = t, .text = text, .n = len, .begun = m->n_text };
    }
    return n;
}

bool calls_object_passes(const char *s, size_t n)
{
    for (size_t i = 0; n && i < sizeof args_keys / sizeof *args_keys; i++) {
        size_t      len = strlen(args_keys[i]);
        const char *at = memmem(s, n, args_keys[i], len);
        if (at && at + len < s + n) return true;
    }
    return false;
}

/* ---------------------------------------------------------------- bytes */

enum calls_verdict calls_object_byte(struct calls *p, char c)
{
    struct calls_machine *m = &p->m;
    bool                  deep, ends, blank = calls_blank(c);
    switch (m->at) {
    case AT_START:
        if (blank) return CALLS_MORE;
        if (m->list && c == '[') {
            m->at = AT_OBJECT;
            return CALLS_MORE;
        }
        m->list = false; /* one object without its list */
        begin_object(m);
        return c == '{' ? CALLS_MORE : CALLS_WRONG;
    case AT_OBJECT:
        if (blank) return CALLS_MORE;
        if (c == ']') return p->n_call ? CALLS_READY : CALLS_WRONG;
        begin_object(m);
        return c == '{' ? CALLS_MORE : CALLS_WRONG;
    case AT_KEY:
        if (blank) return CALLS_MORE;
        if (c == '}') return end_object(p);
        m->n_text = 0;
        m->escape = false;
        m->at = AT_IN_KEY;
        return c == '"' ? CALLS_MORE : CALLS_WRONG;
    case AT_IN_KEY: return key_byte(m, c);
    case AT_COLON:
        if (blank) return CALLS_MORE;
        m->at = AT_VALUE;
        return c == ':' ? CALLS_MORE : CALLS_WRONG;
    case AT_VALUE: return blank ? CALLS_MORE : begin_value(p, c);
    case AT_NAME: return name_byte(p, c);
    case AT_ARGS:
    case AT_SKIP:
        ends = value_ends(m, c, &deep);
        if (deep || (m->at == AT_ARGS && !calls_arg(p, &c, 1))) return CALLS_WRONG;
        if (ends) m->at = AT_NEXT;
        return CALLS_MORE;
    case AT_TEXT: return text_byte(p, c);
    case AT_WORD: return strchr(",} \n\r\t", c) && c ? next_byte(p, c) : CALLS_MORE;
    case AT_NEXT: return next_byte(p, c);
    default: break;
    }
    if (blank) return CALLS_MORE;
    if (c == ']') return CALLS_READY;
    if (c != ',') return CALLS_WRONG;
    calls_hold(p);
    buf_put(&p->raw, &c, 1);
    m->at = AT_OBJECT;
    return CALLS_MORE;
}
