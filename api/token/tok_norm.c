#include "api/token/tok_charsmap.h"
#include "api/token/tok_decompose.h"
#include "api/token/tok_unicode.h"
#include "api/token/tok_vocab.h"
#include <string.h>

static bool is_space(uint32_t cp) { return tok_is(cp, TRAIT_SPACE); }

static enum status prepend(const struct tok_step *x, struct tok_work *w, int to, struct tok_text *t)
{
    if (!t->n) return ST_OK;
    char *p = tok_scratch(w, &w->norm[to], t->n + x->n_text);
    if (!p) return ST_TOO_LARGE;
    memcpy(p, x->text, x->n_text);
    memcpy(p + x->n_text, t->p, t->n);
    t->p = p;
    t->n += x->n_text;
    return ST_OK;
}

/* The first walk counts and the second one writes: what is taken is what is needed. */
static enum status replace(const struct tok_step *x, struct tok_work *w, int to, struct tok_text *t)
{
    size_t n = t->n, k = 0, at = 0;
    bool   any = false, found;
    for (int write = 0; write < 2; write++) {
        struct tok_matches m;
        enum status        st = tok_matches_of(&x->pattern, w, &w->atoms[TOK_STAGES_MAX], t->p, t->n, &m);
        if (st) return st;
        char *p = write ? tok_scratch(w, &w->norm[to], n + 1) : NULL;
        if (write && !p) return ST_TOO_LARGE;
        for (; !(st = tok_matches_next(&m, w, &found)) && found; any = true) {
            if (!write) {
                n = n - (m.end - m.begin) + x->n_text;
                if (n > SIZE_MAX / 4) return ST_TOO_LARGE;
                continue;
            }
            memcpy(p + k, t->p + at, m.begin - at);
            k += m.begin - at;
            memcpy(p + k, x->text, x->n_text);
            k += x->n_text;
            if (!m.begin && m.end && !x->n_text) t->at_start = false;
            at = m.end;
        }
        if (st) return st; /* the pattern ran over its limit */
        if (!any) return ST_OK;
        if (write) {
            memcpy(p + k, t->p + at, t->n - at);
            k += t->n - at;
            t->p = p;
            t->n = k;
        }
    }
    return ST_OK;
}

static void strip(const struct tok_step *x, struct tok_text *t)
{
    size_t i = 0, end = t->n;
    for (size_t next = 0; x->left && i < t->n && is_space(tok_next(t->p, &next)); i = next) {}
    for (size_t prev = end; x->right && end > i && is_space(tok_prev(t->p, &prev)); end = prev) {}
    if (i) t->at_start = false;
    t->p += i;
    t->n = end - i;
}

/* ---- character by character */

/* What becomes of cp, into to[TOK_DECOMPOSED_MAX]; returns how many code points, 0: it goes. */
static size_t one_char(const struct tok_step *x, uint32_t cp, uint32_t *to)
{
    size_t n = 0;
    switch (x->kind) {
    case NORM_LOWER: return tok_lower_case(cp, to);
    case NORM_STRIP_ACCENTS: to[0] = cp; return tok_is(cp, x->trait) ? 0 : 1;
    case NORM_NMT: to[0] = tok_is(cp, TRAIT_NMT_SPACE) ? ' ' : cp; return tok_is(cp, TRAIT_NMT_GONE) ? 0 : 1;
    case NORM_BERT_CLEAN: to[0] = tok_is(cp, TRAIT_CLEAN_SPACE) ? ' ' : cp; return tok_is(cp, TRAIT_CLEAN_GONE) ? 0 : 1;
    case NORM_BERT_HAN:
        if (!tok_is(cp, TRAIT_HAN)) break;
        to[n++] = ' ';
        to[n++] = cp;
        to[n++] = ' ';
        return n;
    default: break;
    }
    to[0] = cp;
    return 1;
}

static enum status by_chars(const struct tok_step *x, struct tok_work *w, int to, struct tok_text *t)
{
    char *p =
        t->n < SIZE_MAX / 4 ? tok_scratch(w, &w->norm[to], 2 * t->n + 8) : NULL; /* no character more than doubles */
    size_t k = 0;
    if (!p) return ST_TOO_LARGE;
    for (size_t i = 0; i < t->n;) {
        uint32_t is[TOK_DECOMPOSED_MAX];
        size_t   at = i, n = one_char(x, tok_next(t->p, &i), is);
        if (!n && !at) t->at_start = false;
        for (size_t j = 0; j < n; j++) k += tok_utf8_put(p + k, is[j]);
    }
    t->p = p;
    t->n = k;
    return ST_OK;
}

static enum status byte_level(struct tok_work *w, int to, struct tok_text *t)
{
    char *p = t->n < SIZE_MAX / 4 ? tok_scratch(w, &w->norm[to], 2 * t->n + 1) : NULL;
    if (!p) return ST_TOO_LARGE;
    t->n = tok_byte_level_encode(t->p, t->n, p);
    t->p = p;
    return ST_OK;
}

enum status tok_norm_run(const struct tok_norm *x, struct tok_work *w, struct tok_text *t)
{
    enum status st = ST_OK;
    int         to = 0;
    for (uint32_t i = 0; i < x->n && !st; i++) {
        const struct tok_step *s = &x->step[i];
        const char            *before = t->p;
        switch (s->kind) {
        case NORM_FORM: st = tok_form_run(s->form, w, to, t); break;
        case NORM_STRIP: strip(s, t); continue; /* it stays where it is */
        case NORM_PREPEND: st = prepend(s, w, to, t); break;
        case NORM_REPLACE: st = replace(s, w, to, t); break;
        case NORM_CHARSMAP: st = tok_charsmap_run(s->charsmap, w, to, t); break;
        case NORM_BYTE_LEVEL: st = byte_level(w, to, t); break;
        default: st = by_chars(s, w, to, t); break;
        }
        if (t->p != before) to = !to;
    }
    return st;
}
