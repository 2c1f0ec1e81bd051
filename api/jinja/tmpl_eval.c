#include "api/jinja/tmpl_big.h"
#include "api/jinja/tmpl_eval.h"
#include <stdio.h>
#include <string.h>

/* ---------------------------------------------------------------- expressions */

static bool value_list(struct tmpl_eval *e, const struct tmpl_node *n, struct tv *out)
{
    struct tv_seq *q = tv_seq_new(e, n->type == N_TUPLE ? SEQ_TUPLE : SEQ_LIST, n->n);
    if (!q) return false;
    for (uint32_t i = 0; i < n->n; i++)
        if (!tmpl_value(e, n->list[i], &q->v[q->n++])) return false;
    *out = tv_seq(q);
    return true;
}

static bool value_dict(struct tmpl_eval *e, const struct tmpl_node *n, struct tv *out)
{
    struct tv_dict *d = tv_dict_new(e, n->n / 2);
    struct tv       k, v;
    if (!d) return false;
    for (uint32_t i = 0; i + 1 < n->n; i += 2)
        if (!tmpl_value(e, n->list[i], &k) || !tmpl_value(e, n->list[i + 1], &v) || !tv_dict_set(e, d, k, v))
            return false;
    *out = tv_dict(d);
    return true;
}

static bool value_slice(struct tmpl_eval *e, const struct tmpl_node *n, struct tv *out)
{
    struct tv         v, part[3];
    struct tmpl_node *from[3] = { n->b, n->c, n->d };
    if (!tmpl_value(e, n->a, &v)) return false;
    for (int i = 0; i < 3; i++) {
        part[i] = tv_none();
        if (from[i] && !tmpl_value(e, from[i], &part[i])) return false;
    }
    return tmpl_slice(e, &v, &part[0], &part[1], &part[2], out);
}

/* What "**" gives, behind the arguments by name. */
static bool more_by_name(struct tmpl_eval *e, const struct tv *v, struct tmpl_args *a)
{
    if (v->kind != TV_DICT) return tmpl_fail(e, "argument after ** must be a mapping, not %s", tv_type_name(v));
    uint32_t        n = a->n_kw + v->u.dict->n;
    struct tmpl_kw *kw = tmpl_alloc(e, (size_t)n * sizeof *kw + 1);
    struct tv      *val = tmpl_alloc(e, (size_t)n * sizeof *val + 1);
    if (!kw || !val || !tmpl_steps(e, n / 16)) return false;
    if (a->n_kw) {
        memcpy(kw, a->kw, a->n_kw * sizeof *kw);
        memcpy(val, a->kw_val, a->n_kw * sizeof *val);
    }
    for (uint32_t i = 0; i < v->u.dict->n; i++) {
        const struct tv *k = &v->u.dict->v[i].k;
        if (k->kind != TV_STR) return tmpl_fail(e, "keywords must be strings");
        for (uint32_t j = 0; j < a->n_kw; j++)
            if (a->kw[j].n == k->n && !memcmp(a->kw[j].name, k->u.s, k->n))
                return tmpl_fail(e, "got two values for the argument '%.*s'", (int)(k->n < 40 ? k->n : 40), k->u.s);
        kw[a->n_kw + i] = (struct tmpl_kw){ .name = k->u.s, .n = k->n };
        val[a->n_kw + i] = v->u.dict->v[i].v;
    }
    a->kw = kw;
    a->kw_val = val;
    a->n_kw = n;
    return true;
}

bool tmpl_arguments(struct tmpl_eval *e, const struct tmpl_node *n, struct tmpl_args *a)
{
    struct tv_seq *more = NULL;
    struct tv      star;
    *a = (struct tmpl_args){ .n = n->n, .kw = n->kw, .n_kw = n->n_kw };
    if (n->c && (!tmpl_value(e, n->c, &star) || !tv_iter(e, &star, &more))) return false;
    uint32_t n_more = more ? more->n : 0;
    if (!(n->n + n_more + n->n_kw) && !n->d) return true;
    struct tv *v = tmpl_alloc(e, ((size_t)n->n + n_more + n->n_kw) * sizeof *v + 1);
    if (!v || !tmpl_steps(e, n_more / 16)) return false;
    for (uint32_t i = 0; i < n->n; i++)
        if (!tmpl_value(e, n->list[i], &v[i])) return false;
    if (n_more) memcpy(v + n->n, more->v, n_more * sizeof *v);
    a->n += n_more;
    for (uint32_t i = 0; i < n->n_kw; i++)
        if (!tmpl_value(e, n->kw[i].value, &v[a->n + i])) return false;
    a->pos = v;
    a->kw_val = v + a->n;
    return !n->d || (tmpl_value(e, n->d, &star) && more_by_name(e, &star, a));
}

static bool value_call(struct tmpl_eval *e, const struct tmpl_node *n, struct tv *out)
{
    struct tv        f;
    struct tmpl_args a;
    if (!tmpl_value(e, n->a, &f) || !tmpl_arguments(e, n, &a)) return false;
    e->line = n->line;
    return tmpl_call(e, &f, &a, out);
}

static bool value_applied(struct tmpl_eval *e, const struct tmpl_node *n, struct tv *out)
{
    struct tv        v = e->input;
    struct tmpl_args a;
    if ((n->a && !tmpl_value(e, n->a, &v)) || !tmpl_arguments(e, n, &a)) return false;
    e->line = n->line;
    return tmpl_apply(e, n->u.fn, &v, &a, out);
}

static bool value_chain(struct tmpl_eval *e, const struct tmpl_node *n, struct tv *out)
{
    struct tv v, w;
    if (!tmpl_value(e, n->list[0], &v)) return false;
    for (uint32_t i = 1; i < n->n; i++) {
        if (!tmpl_value(e, n->list[i], &w)) return false;
        e->line = n->line;
        if (!tmpl_binary(e, n->u.ops[i - 1], &v, &w, &v)) return false;
    }
    *out = v;
    return true;
}

static bool value_compare(struct tmpl_eval *e, const struct tmpl_node *n, struct tv *out)
{
    struct tv v, w;
    bool      yes = true;
    if (!tmpl_value(e, n->list[0], &v)) return false;
    for (uint32_t i = 1; i < n->n && yes; i++) {
        if (!tmpl_value(e, n->list[i], &w)) return false;
        e->line = n->line;
        if (!tmpl_compare(e, n->u.ops[i - 1], &v, &w, &yes)) return false;
        v = w;
    }
    *out = tv_bool(yes);
    return true;
}

static bool value_concat(struct tmpl_eval *e, const struct tmpl_node *n, struct tv *out)
{
    struct tv v = tv_str("", 0), w;
    for (uint32_t i = 0; i < n->n; i++)
        if (!tmpl_value(e, n->list[i], &w) || !tv_to_str(e, &w, &w) || !tmpl_concat(e, &v, &w, &v)) return false;
    v.flag = 0;
    *out = v;
    return true;
}

static bool value_logic(struct tmpl_eval *e, const struct tmpl_node *n, struct tv *out)
{
    for (uint32_t i = 0; i < n->n; i++) {
        if (!tmpl_value(e, n->list[i], out)) return false;
        if (tv_truth(out) == (n->type == N_OR)) break;
    }
    return true;
}

static bool value_cond(struct tmpl_eval *e, const struct tmpl_node *n, struct tv *out)
{
    struct tv test;
    if (!tmpl_value(e, n->b, &test)) return false;
    if (tv_truth(&test)) return tmpl_value(e, n->a, out);
    if (n->c) return tmpl_value(e, n->c, out);
    static const char none[] = "the inline if without else";
    *out = tv_undef(none, sizeof none - 1);
    return true;
}

static bool value_sign(struct tmpl_eval *e, const struct tmpl_node *n, struct tv *out)
{
    int64_t i;
    if (!tmpl_value(e, n->a, out)) return false;
    if (out->kind == TV_FLOAT) {
        out->u.f = n->type == N_NEG ? -out->u.f : out->u.f;
        return true;
    }
    if (!tv_whole(out)) return tmpl_fail(e, "bad operand type for a sign: '%s'", tv_type_name(out));
    if (n->type == N_NEG) return big_negate(e, out, out);
    if (tv_integer(out, &i)) *out = tv_int(i); /* +true is 1 */
    return true;
}

static bool value_of(struct tmpl_eval *e, const struct tmpl_node *n, struct tv *out)
{
    const struct tmpl_sym *s;
    const struct tv       *p;
    struct tv              v, w;
    switch (n->type) {
    case N_NAME:
        s = &e->t->sym[n->sym];
        p = tmpl_get(e, n->sym);
        *out = p ? *p : tv_undef(s->s, s->n);
        return true;
    case N_ATTR:
        s = &e->t->sym[n->sym];
        if (!tmpl_value(e, n->a, &v)) return false;
        e->line = n->line;
        return tmpl_get_attr(e, &v, s->s, s->n, out);
    case N_ITEM:
        if (!tmpl_value(e, n->a, &v) || !tmpl_value(e, n->b, &w)) return false;
        e->line = n->line;
        return tmpl_get_item(e, &v, &w, out);
    case N_LIST:
    case N_TUPLE: return value_list(e, n, out);
    case N_DICT: return value_dict(e, n, out);
    case N_SLICE: return value_slice(e, n, out);
    case N_CALL: return value_call(e, n, out);
    case N_FILTER:
    case N_TEST: return value_applied(e, n, out);
    case N_NOT:
        if (!tmpl_value(e, n->a, &v)) return false;
        *out = tv_bool(!tv_truth(&v));
        return true;
    case N_NEG:
    case N_POS: return value_sign(e, n, out);
    case N_CHAIN: return value_chain(e, n, out);
    case N_COMPARE: return value_compare(e, n, out);
    case N_CONCAT: return value_concat(e, n, out);
    case N_AND:
    case N_OR: return value_logic(e, n, out);
    case N_COND: return value_cond(e, n, out);
    default: return tmpl_fail(e, "not an expression");
    }
}

bool tmpl_value(struct tmpl_eval *e, const struct tmpl_node *n, struct tv *out)
{
    if (n->type == N_CONST) {
        *out = n->val;
        return true;
    }
    if (e->frames >= e->lim.depth_max * TMPL_FRAMES_PER_CALL) return tmpl_over(e, "too much depth");
    e->frames++;
    bool ok = value_of(e, n, out);
    e->frames--;
    return ok && !e->st;
}
