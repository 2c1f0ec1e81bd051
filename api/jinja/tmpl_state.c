/* tmpl_state: the state of one rendering: its failure, its memory, the strings it makes and its variables. */
#include "api/jinja/tmpl_eval.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool tmpl_fail(struct tmpl_eval *e, const char *fmt, ...)
{
    if (e->st) return false;
    e->st = ST_INVALID;
    int n = snprintf(e->err, e->err_bytes, "line %u: ", e->line);
    if (n < 0 || (size_t)n >= e->err_bytes) return false;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(e->err + n, e->err_bytes - (size_t)n, fmt, ap);
    va_end(ap);
    return false;
}

bool tmpl_over(struct tmpl_eval *e, const char *what)
{
    if (e->st) return false;
    e->st = ST_TOO_LARGE;
    snprintf(e->err, e->err_bytes, "line %u: the chat template needs %s", e->line, what);
    return false;
}

void *tmpl_alloc(struct tmpl_eval *e, size_t bytes)
{
    void *p = arena_alloc(&e->arena, bytes);
    if (!p) tmpl_over(e, "too much memory");
    return p;
}

/* ---------------------------------------------------------------- strings */

enum { AREA_MIN = 4096 };

static char *area_room(struct tmpl_eval *e, size_t n)
{
    if (!e->area || e->area_cap - e->area_n < n) {
        size_t cap = n > UINT32_MAX / 4 ? n : 2 * n;
        if (cap < AREA_MIN) cap = AREA_MIN;
        char *p = arena_alloc(&e->arena, cap);
        if (!p && !(p = tmpl_alloc(e, cap = n))) return NULL;
        e->area = p;
        e->area_n = 0;
        e->area_cap = cap;
    }
    return e->area + e->area_n;
}

bool tmpl_take(struct tmpl_eval *e, size_t mark, struct tv *out)
{
    if (e->out->failed) return tmpl_over(e, "too much output");
    size_t n = e->out->n - mark;
    char  *p = n <= UINT32_MAX / 4 ? area_room(e, n) : NULL;
    if (!p) return tmpl_over(e, "too much memory");
    if (n) memcpy(p, e->out->data + mark, n);
    e->area_n += n;
    e->out->n = mark;
    *out = tv_str(p, n);
    return tmpl_bytes(e, n);
}

bool tmpl_concat(struct tmpl_eval *e, const struct tv *a, const struct tv *b, struct tv *out)
{
    size_t n = (size_t)a->n + b->n;
    if (n > UINT32_MAX / 4) return tmpl_over(e, "too much memory");
    if (!tmpl_bytes(e, b->n)) return false;
    if (!a->n || !b->n) {
        *out = a->n ? *a : *b;
        return true;
    }
    if (e->area && a->u.s + a->n == e->area + e->area_n &&
        e->area_cap - e->area_n >= b->n) { /* nobody else sees what follows a */
        memcpy(e->area + e->area_n, b->u.s, b->n);
        e->area_n += b->n;
        *out = tv_str(a->u.s, n);
        return true;
    }
    char *p = area_room(e, n);
    if (!p || !tmpl_bytes(e, a->n)) return false;
    memcpy(p, a->u.s, a->n);
    memcpy(p + a->n, b->u.s, b->n);
    e->area_n += n;
    *out = tv_str(p, n);
    return true;
}

/* ---------------------------------------------------------------- variables */

bool tmpl_scope_push(struct tmpl_eval *e)
{
    struct tmpl_scope *s = tmpl_alloc(e, sizeof *s);
    if (!s) return false;
    *s = (struct tmpl_scope){ .up = e->scope };
    e->scope = s;
    return true;
}

bool tmpl_set(struct tmpl_eval *e, uint32_t sym, struct tv v)
{
    struct tmpl_scope *s = e->scope;
    for (uint32_t i = 0; i < s->n; i++)
        if (s->var[i].sym == sym) {
            s->var[i].v = v;
            return true;
        }
    if (s->n == s->cap) {
        uint32_t         cap = s->cap ? s->cap * 2 : 4;
        struct tmpl_var *w = tmpl_alloc(e, cap * sizeof *w);
        if (!w) return false;
        if (s->n) memcpy(w, s->var, s->n * sizeof *w);
        s->var = w;
        s->cap = cap;
    }
    s->var[s->n++] = (struct tmpl_var){ sym, v };
    return true;
}

const struct tv *tmpl_get(const struct tmpl_eval *e, uint32_t sym)
{
    for (const struct tmpl_scope *s = e->scope; s; s = s->up)
        for (uint32_t i = 0; i < s->n; i++)
            if (s->var[i].sym == sym) return &s->var[i].v;
    return e->given[sym].kind == TV_ABSENT ? NULL : &e->given[sym];
}
