#include "api/calls/calls_impl.h"
#include <string.h>

/* call:NAME{key:value,..}: keys are bare, strings stand between quotes of the row's own, the rest is JSON's words,
 * {..} and [..]. */

enum at {
    AT_START = 0, /* blank, then "call:" */
    AT_NAME,
    AT_KEY, /* the name of a member, or the object's end */
    AT_VALUE,
    AT_QUOTE, /* in the quote before a string */
    AT_STRING,
    AT_WORD,
    AT_AFTER,
};

static bool put(struct calls *p, const char *s) { return calls_arg(p, s, strlen(s)); }
static bool in_object(const struct calls_machine *m) { return m->kinds >> (m->depth - 1) & 1; }

static bool push(struct calls *p, char c)
{
    struct calls_machine *m = &p->m;
    if (m->depth >= CALLS_DEPTH_MAX) return false;
    uint64_t bit = (uint64_t)1 << m->depth;
    m->kinds = c == '{' ? m->kinds | bit : m->kinds & ~bit;
    m->depth++;
    m->at = c == '{' ? AT_KEY : AT_VALUE;
    m->dict_key = true; /* it may end here */
    m->n_text = 0;
    return calls_arg(p, &c, 1);
}

static enum calls_verdict pop(struct calls *p, char c)
{
    struct calls_machine *m = &p->m;
    if ((c == '}') != in_object(m) || !calls_arg(p, &c, 1)) return CALLS_WRONG;
    m->at = AT_AFTER;
    if (--m->depth) return CALLS_MORE;
    calls_close(p);
    return CALLS_READY;
}

static enum calls_verdict after(struct calls *p, char c)
{
    struct calls_machine *m = &p->m;
    if (calls_blank(c)) return CALLS_MORE;
    if (c == '}' || c == ']') return pop(p, c);
    m->at = in_object(m) ? AT_KEY : AT_VALUE;
    m->dict_key = false;
    m->n_text = 0;
    return c == ',' && put(p, ",") ? CALLS_MORE : CALLS_WRONG;
}

/* A bare word, which the schema of nobody quotes, is a string where it is not JSON. */
static enum calls_verdict end_word(struct calls *p, char c)
{
    struct calls_machine *m = &p->m;
    while (m->n_text && calls_blank(m->text[m->n_text - 1])) m->n_text--;
    bool fits = true;
    if (calls_word_good(m->text, m->n_text)) {
        fits = calls_arg(p, m->text, m->n_text);
    } else {
        fits = put(p, "\"");
        for (uint32_t i = 0; fits && i < m->n_text; i++) fits = calls_arg_char(p, m->text[i]);
        fits = fits && put(p, "\"");
    }
    m->at = AT_AFTER;
    return fits ? after(p, c) : CALLS_WRONG;
}

static enum calls_verdict key_byte(struct calls *p, char c)
{
    struct calls_machine *m = &p->m;
    if (!m->n_text && calls_blank(c)) return CALLS_MORE;
    if (!m->n_text && c == '}' && m->dict_key) return pop(p, c);
    if (c != ':') {
        if (m->n_text >= CALLS_NAME_MAX) return CALLS_WRONG;
        m->text[m->n_text++] = c;
        return CALLS_MORE;
    }
    bool fits = put(p, "\"");
    for (uint32_t i = 0; fits && i < m->n_text; i++) fits = calls_arg_char(p, m->text[i]);
    m->at = AT_VALUE;
    m->dict_key = false;
    m->n_text = 0;
    return fits && put(p, "\":") ? CALLS_MORE : CALLS_WRONG;
}

static enum calls_verdict value_byte(struct calls *p, char c)
{
    struct calls_machine *m = &p->m;
    if (calls_blank(c)) return CALLS_MORE;
    if (c == '{' || c == '[') return push(p, c) ? CALLS_MORE : CALLS_WRONG;
    if (c == ']' && m->dict_key) return pop(p, c);
    m->dict_key = false;
    m->n_text = 1;
    m->text[0] = c;
    m->at = c == *p->cfg.model->row->quote ? AT_QUOTE : AT_WORD;
    return strchr("}],:", c) ? CALLS_WRONG : CALLS_MORE;
}

/* The quote before a string, or behind it: its bytes are held until it is whole. */
static enum calls_verdict string_byte(struct calls *p, char c)
{
    struct calls_machine *m = &p->m;
    const char           *quote = p->cfg.model->row->quote;
    size_t                n = strlen(quote);
    bool                  fits = true;
    m->text[m->n_text++] = c;
    if (m->at == AT_QUOTE) {
        if (memcmp(m->text, quote, m->n_text)) return CALLS_WRONG;
        if (m->n_text < n) return CALLS_MORE;
        m->at = AT_STRING;
        m->n_text = 0;
        return put(p, "\"") ? CALLS_MORE : CALLS_WRONG;
    }
    while (fits && m->n_text && memcmp(m->text, quote, m->n_text) != 0) {
        fits = calls_arg_char(p, m->text[0]);
        memmove(m->text, m->text + 1, --m->n_text);
    }
    if (m->n_text == n) {
        fits = put(p, "\"");
        m->at = AT_AFTER;
        m->n_text = 0;
    }
    return fits ? CALLS_MORE : CALLS_WRONG;
}

enum calls_verdict calls_gemma_byte(struct calls *p, char c)
{
    static const char     head[] = "call:";
    struct calls_machine *m = &p->m;
    switch (m->at) {
    case AT_START:
        if (!m->n_text && calls_blank(c)) return CALLS_MORE;
        if (c != head[m->n_text]) return CALLS_WRONG;
        if (++m->n_text == sizeof head - 1) {
            m->at = AT_NAME;
            p->n_name = 0;
        }
        return CALLS_MORE;
    case AT_NAME:
        if (c == '{') return calls_open(p) && push(p, c) ? CALLS_MORE : CALLS_WRONG;
        if (p->n_name >= CALLS_NAME_MAX) return CALLS_WRONG;
        p->name[p->n_name++] = c;
        return CALLS_MORE;
    case AT_KEY: return key_byte(p, c);
    case AT_VALUE: return value_byte(p, c);
    case AT_QUOTE:
    case AT_STRING: return string_byte(p, c);
    case AT_WORD:
        if (c == ',' || c == '}' || c == ']') return end_word(p, c);
        if (m->n_text >= CALLS_NAME_MAX) return CALLS_WRONG;
        m->text[m->n_text++] = c;
        return CALLS_MORE;
    default: return after(p, c);
    }
}
