#include "api/tok_norm.h"
#include "api/tok_unicode.h"
#include <string.h>
#include <utf8proc.h>

/* A region is a character that nothing joins from the left, and all that join it: normal forms are made region by region.
 * utf8proc decomposes and composes; the reordering of marks is done here, because its own is quadratic in the marks that pile up. */
enum { DECOMPOSED_MAX = 32, FEW = 16 };

struct region {
    struct tok_work *w;
    int32_t         *cp; /* in w->bpe */
    size_t           n;
    int              options;
    bool             compose;
};

static bool room(struct region *r, size_t more)
{
    struct tok_out o = { r->w, &r->w->bpe, r->n * sizeof *r->cp };
    if (!tok_out_room(&o, more * sizeof *r->cp)) return false;
    r->cp = (int32_t *)(void *)r->w->bpe.p;
    return true;
}

static uint32_t rank_of(int32_t cp) { return (uint32_t)utf8proc_get_property(cp)->combining_class; }

/* Stable sort of n marks by combining class; the n cells behind them are free. */
static void sort_marks(int32_t *cp, int32_t *tmp, size_t n)
{
    if (n <= FEW) {
        for (size_t i = 1; i < n; i++) {
            int32_t v = cp[i];
            size_t  j = i;
            for (; j && rank_of(cp[j - 1]) > rank_of(v); j--) cp[j] = cp[j - 1];
            cp[j] = v;
        }
        return;
    }
    size_t at[257] = { 0 };
    for (size_t i = 0; i < n; i++) at[rank_of(cp[i]) + 1]++;
    for (int i = 1; i < 257; i++) at[i] += at[i - 1];
    for (size_t i = 0; i < n; i++) tmp[at[rank_of(cp[i])]++] = cp[i];
    memcpy(cp, tmp, n * sizeof *cp);
}

static enum status flush(struct region *r, struct tok_out *out)
{
    if (!r->n) return ST_OK;
    if (!room(r, r->n)) return ST_TOO_LARGE;
    for (size_t i = 0, end; i < r->n; i = end) {
        for (end = i; end < r->n && rank_of(r->cp[end]); end++) {}
        if (end > i + 1) sort_marks(r->cp + i, r->cp + r->n, end - i);
        if (end == i) end++;
    }
    size_t n = r->n;
    if (r->compose && n > 1) {
        utf8proc_ssize_t k = utf8proc_normalize_utf32(r->cp, (utf8proc_ssize_t)n, UTF8PROC_COMPOSE | UTF8PROC_STABLE);
        if (k < 0) return ST_TOO_LARGE;
        n = (size_t)k;
    }
    if (n > SIZE_MAX / 8 || !tok_out_room(out, 4 * n)) return ST_TOO_LARGE;
    for (size_t i = 0; i < n; i++) out->n += tok_utf8_put(out->at->p + out->n, (uint32_t)r->cp[i]);
    r->n = 0;
    return ST_OK;
}

static enum status put(struct region *r, struct tok_out *out, uint32_t cp)
{
    utf8proc_int32_t d[DECOMPOSED_MAX];
    int              bound = 0;
    utf8proc_ssize_t k = utf8proc_decompose_char((utf8proc_int32_t)cp, d, DECOMPOSED_MAX, (utf8proc_option_t)r->options, &bound);
    if (k < 1 || k > DECOMPOSED_MAX) d[0] = (utf8proc_int32_t)cp, k = 1;
    if (!(tok_class[d[0]] & TOK_CLASS_JOINS)) {
        enum status st = flush(r, out);
        if (st) return st;
    }
    if (!room(r, (size_t)k)) return ST_TOO_LARGE;
    memcpy(r->cp + r->n, d, (size_t)k * sizeof *d);
    r->n += (size_t)k;
    return ST_OK;
}

/* Up to which byte nothing changes, if what follows does not join; *last: where the last character before it begins. */
static size_t clean(enum tok_form form, const struct tok_text *t, size_t i, size_t *last)
{
    *last = i;
    for (size_t next = i; i < t->n; i = next) {
        uint32_t cp = tok_next(t->p, &next);
        if (form == FORM_C ? tok_class[cp] & (TOK_CLASS_JOINS | TOK_CLASS_CHANGES) : cp >= 0x80) break;
        *last = i;
    }
    return i;
}

enum status tok_form_run(enum tok_form form, struct tok_work *w, int to, struct tok_text *t)
{
    struct region r = { .w = w, .compose = form == FORM_C || form == FORM_KC };
    r.options = UTF8PROC_DECOMPOSE | UTF8PROC_STABLE | (form == FORM_KC || form == FORM_KD ? UTF8PROC_COMPAT : 0);
    struct tok_out out = { w, &w->norm[to], 0 };
    enum status    st = ST_OK;
    size_t         last, i = clean(form, t, 0, &last);
    if (i == t->n) return ST_OK;
    for (i = 0; i < t->n && !st;) {
        size_t end = clean(form, t, i, &last);
        if (end > i && !(st = flush(&r, &out))) {
            size_t copy = (end < t->n ? last : end) - i; /* the last may be the base of what follows */
            char  *at = tok_out_room(&out, copy);
            if (!at) return ST_TOO_LARGE;
            memcpy(at, t->p + i, copy);
            out.n += copy;
            i += copy;
        }
        if (!st && i < t->n) st = put(&r, &out, tok_next(t->p, &i));
    }
    if (!st) st = flush(&r, &out);
    if (!st) t->p = out.at->p ? out.at->p : "", t->n = out.n;
    return st;
}
