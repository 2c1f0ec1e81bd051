#include "api/tok_pattern.h"
#include "api/tok_unicode.h"
#include <stdlib.h>
#include <string.h>

enum status tok_pattern_load(struct tok_pattern *p, const json_t *component, const char *field, const struct tok_err *e)
{
    const json_t   *o = json_object_get(component, "pattern");
    struct tok_span s = { json_string_value(o), json_string_length(o) }, regex = { NULL, 0 };
    enum status     st;
    if (json_is_object(o)) {
        if ((st = tok_want_str(e, field, o, "String", &s)) || (st = tok_want_str(e, field, o, "Regex", &regex))) return st;
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

static enum status find(struct tok_matches *m, struct tok_work *w)
{
    const struct tok_pattern *p = m->p;
    if (p->regex) return tok_regex_find(p->regex, w, m->s, m->n, m->at, &m->begin, &m->end);
    if (p->match) {
        for (m->begin = m->at; m->begin < m->n; tok_next(m->s, &m->begin))
            if ((m->end = p->match(m->s, m->n, m->begin)) > m->begin) return ST_OK;
        m->begin = m->end = m->n + 1;
        return ST_OK;
    }
    const char *hit = p->n_text ? memmem(m->s + m->at, m->n - m->at, p->text, p->n_text) : m->s + m->at; /* "" is found everywhere */
    m->begin = hit ? (size_t)(hit - m->s) : m->n + 1;
    m->end = m->begin + (hit ? p->n_text : 0);
    return ST_OK;
}

enum status tok_matches_next(struct tok_matches *m, struct tok_work *w, bool *found)
{
    size_t last = m->end;
    *found = false;
    while (m->at <= m->n) {
        enum status st = find(m, w);
        if (st) return st;
        if (m->begin > m->n) break;
        m->at = m->end;
        if (m->begin < m->end || !m->any || m->end != last) {
            m->any = *found = true;
            return ST_OK;
        }
        if (m->at < m->n) /* empty, right behind the last one: on by a character */
            tok_next(m->s, &m->at);
        else
            m->at++;
    }
    m->at = m->n + 1;
    return ST_OK;
}
