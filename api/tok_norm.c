#include "api/tok_norm.h"
#include "api/tok_unicode.h"
#include "api/tok_vocab.h"
#include <string.h>
#include <utf8proc.h>

static bool is_space(uint32_t cp) { return tok_class_in(tok_class[cp], CATS_SPACE); }

static enum status prepend(const struct tok_step *x, struct tok_work *w, int to, struct tok_text *t)
{
    if (!t->n) return ST_OK;
    char *p = tok_scratch(w, &w->norm[to], t->n + x->n_text);
    if (!p) return ST_TOO_LARGE;
    memcpy(p, x->text, x->n_text);
    memcpy(p + x->n_text, t->p, t->n);
    t->p = p, t->n += x->n_text;
    return ST_OK;
}

/* The first walk counts and the second one writes: what is taken is what is needed. */
static enum status replace(const struct tok_step *x, struct tok_work *w, int to, struct tok_text *t)
{
    size_t n = t->n, k = 0, at = 0;
    bool   any = false, found;
    for (int write = 0; write < 2; write++) {
        struct tok_matches m = tok_matches_of(&x->pattern, t->p, t->n);
        char              *p = write ? tok_scratch(w, &w->norm[to], n + 1) : NULL;
        if (write && !p) return ST_TOO_LARGE;
        for (enum status st; !(st = tok_matches_next(&m, w, &found)) && found; any = true) {
            if (!write) {
                n = n - (m.end - m.begin) + x->n_text;
                if (n > SIZE_MAX / 4) return ST_TOO_LARGE;
                continue;
            }
            memcpy(p + k, t->p + at, m.begin - at), k += m.begin - at;
            memcpy(p + k, x->text, x->n_text), k += x->n_text;
            if (!m.begin && m.end && !x->n_text) t->at_start = false;
            at = m.end;
        }
        if (found) return ST_TOO_LARGE; /* the pattern ran over its limit */
        if (!any) return ST_OK;
        if (write) {
            memcpy(p + k, t->p + at, t->n - at), k += t->n - at;
            t->p = p, t->n = k;
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
    t->p += i, t->n = end - i;
}

/* ---- character by character: what becomes of one, NULL: it goes */

static const char *gone_or(bool goes, const char *kept) { return goes ? NULL : kept; }

static const char *nmt(uint32_t cp, const char *same)
{
    if ((cp >= 1 && cp <= 8) || cp == 0x0b || (cp >= 0x0e && cp <= 0x1f) || cp == 0x7f || cp == 0x8f || cp == 0x9f) return NULL;
    bool space = cp == 9 || cp == 10 || cp == 12 || cp == 13 || cp == 0x1680 || (cp >= 0x200b && cp <= 0x200f) || cp == 0x2028 ||
                 cp == 0x2029 || cp == 0x2581 || cp == 0xfeff || cp == 0xfffd;
    return space ? " " : same;
}

static const char *bert_clean(uint32_t cp, const char *same)
{
    if (cp == '\t' || cp == '\n' || cp == '\r') return " ";
    bool other = tok_class_in(tok_class[cp], CAT_BIT(CAT_CC) | CAT_BIT(CAT_CF) | CAT_BIT(CAT_CN) | CAT_BIT(CAT_CO) | CAT_BIT(CAT_CC_SPACE));
    return gone_or(!cp || cp == 0xfffd || other, is_space(cp) ? " " : same);
}

static bool is_han(uint32_t cp)
{
    return (cp >= 0x4e00 && cp <= 0x9fff) || (cp >= 0x3400 && cp <= 0x4dbf) || (cp >= 0x20000 && cp <= 0x2a6df) ||
           (cp >= 0x2a700 && cp <= 0x2b81f) || (cp >= 0x2b920 && cp <= 0x2ceaf) || (cp >= 0xf900 && cp <= 0xfaff) ||
           (cp >= 0x2f800 && cp <= 0x2fa1f);
}

static enum status by_chars(const struct tok_step *x, struct tok_work *w, int to, struct tok_text *t)
{
    char  *p = t->n < SIZE_MAX / 4 ? tok_scratch(w, &w->norm[to], 2 * t->n + 8) : NULL; /* no character more than doubles */
    size_t k = 0;
    if (!p) return ST_TOO_LARGE;
    for (size_t i = 0; i < t->n;) {
        char        one[8];
        size_t      at = i;
        uint32_t    cp = tok_next(t->p, &i);
        const char *is = one;
        memcpy(one, t->p + at, i - at), one[i - at] = 0;
        switch (x->kind) {
        case NORM_LOWER:
            if (cp == 0x130)
                is = "i\xcc\x87"; /* the only one whose lower case is two characters */
            else
                one[tok_utf8_put(one, (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp))] = 0;
            break;
        case NORM_STRIP_ACCENTS: is = gone_or(tok_class_in(tok_class[cp], x->mask), one); break;
        case NORM_NMT: is = nmt(cp, one); break;
        case NORM_BERT_CLEAN: is = bert_clean(cp, one); break;
        default: break;
        }
        if (!is) {
            if (!at) t->at_start = false;
            continue;
        }
        bool   han = x->kind == NORM_BERT_HAN && is_han(cp);
        size_t n = is == one && !one[0] ? 1 : strlen(is); /* U+0000 is a character too */
        if (han) p[k++] = ' ';
        memcpy(p + k, is, n), k += n;
        if (han) p[k++] = ' ';
    }
    t->p = p, t->n = k;
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
        case NORM_BYTE_LEVEL: st = byte_level(w, to, t); break;
        default: st = by_chars(s, w, to, t); break;
        }
        if (t->p != before) to = !to;
    }
    return st;
}
