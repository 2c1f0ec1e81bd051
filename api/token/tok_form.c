#include "api/token/tok_decompose.h"
#include "api/token/tok_norm.h"
#include "api/token/tok_unicode.h"
#include <string.h>

/* A region is a character that nothing joins from the left, and all that join it: normal forms are made region by
 * region. */
enum { FEW = 16 };

struct region {
    struct tok_work *w;
    uint32_t        *cp; /* in w->bpe */
    size_t           n;
    bool             compatible, compose;
};

static bool room(struct region *r, size_t more)
{
    struct tok_out o = { r->w, &r->w->bpe, r->n * sizeof *r->cp };
    if (!tok_out_room(&o, more * sizeof *r->cp)) return false;
    r->cp = (uint32_t *)(void *)r->w->bpe.p;
    return true;
}

/* Stable sort of n marks by combining class; the n cells behind them are free. */
static void sort_marks(uint32_t *cp, uint32_t *tmp, size_t n)
{
    if (n <= FEW) {
        for (size_t i = 1; i < n; i++) {
            uint32_t v = cp[i];
            size_t   j = i;
            for (; j && tok_mark_rank(cp[j - 1]) > tok_mark_rank(v); j--) cp[j] = cp[j - 1];
            cp[j] = v;
        }
        return;
    }
    size_t at[257] = { 0 };
    for (size_t i = 0; i < n; i++) at[tok_mark_rank(cp[i]) + 1]++;
    for (int i = 1; i < 257; i++) at[i] += at[i - 1];
    for (size_t i = 0; i < n; i++) tmp[at[tok_mark_rank(cp[i])]++] = cp[i];
    memcpy(cp, tmp, n * sizeof *cp);
}

/* What n sorted code points compose to, in their place; returns how many. The Unicode Standard, section 3.11, D117. */
static size_t compose(uint32_t *cp, size_t n)
{
    size_t   k = 0, starter = SIZE_MAX;
    uint32_t last = 0, whole; /* last: rank of what stands behind the starter */
    for (size_t i = 0; i < n; i++) {
        uint32_t rank = tok_mark_rank(cp[i]);
        bool     reaches = starter != SIZE_MAX && (k == starter + 1 || last < rank);
        if (reaches && (whole = tok_compose_pair(cp[starter], cp[i]))) {
            cp[starter] = whole;
            continue;
        }
        if (!rank) starter = k;
        last = rank;
        cp[k++] = cp[i];
    }
    return k;
}

static enum status flush(struct region *r, struct tok_out *out)
{
    if (!r->n) return ST_OK;
    if (!room(r, r->n)) return ST_TOO_LARGE;
    for (size_t i = 0, end; i < r->n; i = end) {
        for (end = i; end < r->n && tok_mark_rank(r->cp[end]); end++) {}
        if (end > i + 1) sort_marks(r->cp + i, r->cp + r->n, end - i);
        if (end == i) end++;
    }
    size_t n = r->n;
    if (r->compose && n > 1) n = compose(r->cp, n);
    if (n > SIZE_MAX / 8 || !tok_out_room(out, 4 * n)) return ST_TOO_LARGE;
    for (size_t i = 0; i < n; i++) out->n += tok_utf8_put(out->at->p + out->n, r->cp[i]);
    r->n = 0;
    return ST_OK;
}

static enum status put(struct region *r, struct tok_out *out, uint32_t cp)
{
    uint32_t d[TOK_DECOMPOSED_MAX];
    size_t   k = tok_decompose(cp, r->compatible, d);
    if (!(tok_class[d[0]] & TOK_CLASS_JOINS)) {
        enum status st = flush(r, out);
        if (st) return st;
    }
    if (!room(r, k)) return ST_TOO_LARGE;
    memcpy(r->cp + r->n, d, k * sizeof *d);
    r->n += k;
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
    struct region r = { .w = w };
    r.compatible = form == FORM_KC || form == FORM_KD;
    r.compose = form == FORM_C || form == FORM_KC;
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
    if (!st) {
        t->p = out.at->p ? out.at->p : "";
        t->n = out.n;
    }
    return st;
}
