#include "api/token/tok_pattern.h"
#include "api/token/tok_unicode.h"
#include <stdlib.h>
#include <string.h>

enum status tok_pattern_load(struct tok_pattern *p, const json_t *component, const char *field, const struct tok_err *e)
{
    const json_t   *o = json_object_get(component, "pattern");
    struct tok_span s = { json_string_value(o), json_string_length(o) }, regex = { NULL, 0 };
    enum status     st;
    if (json_is_object(o)) {
        if ((st = tok_want_str(e, field, o, "String", &s)) || (st = tok_want_str(e, field, o, "Regex", &regex)))
            return st;
    }
    if (!s.p == !regex.p) return tok_fail(e, "%s.pattern: must be {\"String\": ..} or {\"Regex\": ..}", field);
    if (regex.p) {
        p->match = tok_match_find(regex.p, regex.n);
        return p->match ? ST_OK : tok_regex_new(&p->regex, regex.p, regex.n, field, e);
    }
    p->text = malloc(s.n + 1);
    if (!p->text) return tok_fail(e, "%s: out of memory", field);
    memcpy(p->text, s.p, s.n);
    p->n_text = s.n;
    return ST_OK;
}

void tok_pattern_free(struct tok_pattern *p)
{
    free(p->text);
    tok_regex_free(p->regex);
    *p = (struct tok_pattern){ 0 };
}

enum status tok_matches_of(const struct tok_pattern *p, struct tok_work *w, struct tok_scratch *scratch, const char *s,
                           size_t n, struct tok_matches *m_out)
{
    *m_out = (struct tok_matches){ .p = p, .s = s, .n = n, .n_unit = n };
    if (!p->regex) return ST_OK;
    enum status st = tok_regex_subject(p->regex, w, scratch, s, n, &m_out->subject);
    m_out->n_unit = m_out->subject.n_atom;
    return st;
}

/* The first match from m->at on, [*begin, *end); *begin > m->n_unit: none. */
static enum status find(struct tok_matches *m, struct tok_work *w, size_t *begin, size_t *end)
{
    const struct tok_pattern *p = m->p;
    if (p->regex) return tok_regex_find(p->regex, w, &m->subject, m->at, begin, end);
    if (p->match) {
        for (*begin = m->at; *begin < m->n; tok_next(m->s, begin))
            if ((*end = p->match(m->s, m->n, *begin)) > *begin) return ST_OK;
        *begin = *end = m->n + 1;
        return ST_OK;
    }
    const char *hit =
        p->n_text ? memmem(m->s + m->at, m->n - m->at, p->text, p->n_text) : m->s + m->at; /* "" is found everywhere */
    *begin = hit ? (size_t)(hit - m->s) : m->n + 1;
    *end = *begin + (hit ? p->n_text : 0);
    return ST_OK;
}

static void give(struct tok_matches *m, size_t begin, size_t end)
{
    m->begin = m->p->regex ? tok_subject_byte(&m->subject, begin) : begin;
    m->end = m->p->regex ? tok_subject_byte(&m->subject, end) : end;
}

enum status tok_matches_next(struct tok_matches *m, struct tok_work *w, bool *found)
{
    *found = false;
    while (m->at <= m->n_unit) {
        size_t      begin, end;
        enum status st = find(m, w, &begin, &end);
        if (st) return st;
        if (begin > m->n_unit) break;
        m->at = end;
        if (begin < end || !m->any || end != m->last) {
            m->any = *found = true;
            m->last = end;
            give(m, begin, end);
            return ST_OK;
        }
        if (m->at < m->n_unit && !m->p->regex) /* empty, right behind the last one: on by a character */
            tok_next(m->s, &m->at);
        else
            m->at++;
    }
    m->at = m->n_unit + 1;
    return ST_OK;
}
