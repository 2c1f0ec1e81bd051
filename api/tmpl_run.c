#include "api/tmpl_eval.h"
#include <stdio.h>
#include <string.h>

/* ---------------------------------------------------------------- assignment */

static bool assign(struct tmpl_eval *e, const struct tmpl_node *to, struct tv v)
{
    if (to->type == N_NAME) return tmpl_set(e, to->sym, v);
    if (to->type == N_NS_ATTR) {
        const struct tv       *ns = tmpl_get(e, to->a->sym);
        const struct tmpl_sym *s = &e->t->sym[to->sym];
        if (!ns || ns->kind != TV_NS) return tmpl_fail(e, "cannot assign attribute on non-namespace object");
        return tv_dict_set(e, ns->u.dict, tv_str(s->s, s->n), v);
    }
    struct tv_seq *q;
    if (!tv_iter(e, &v, &q)) return false;
    if (q->n != to->n)
        return tmpl_fail(e, "%s values to unpack (expected %u, got %u)", q->n < to->n ? "not enough" : "too many", to->n, q->n);
    for (uint32_t i = 0; i < to->n; i++)
        if (!assign(e, to->list[i], q->v[i])) return false;
    return true;
}

/* Runs a body in a scope of its own and takes what it printed. */
static bool capture(struct tmpl_eval *e, const struct tmpl_node *body, struct tv *out)
{
    size_t             mark = tmpl_mark(e);
    struct tmpl_scope *scope = e->scope;
    bool               ok = tmpl_scope_push(e) && tmpl_run(e, body) == TMPL_NEXT && tmpl_take(e, mark, out);
    e->scope = scope;
    return ok || tmpl_fail(e, "'break' or 'continue' out of a block that is captured");
}

static bool through_filters(struct tmpl_eval *e, const struct tmpl_node *filters, struct tv *v)
{
    struct tv before = e->input;
    e->input = *v;
    bool ok = tmpl_value(e, filters, v);
    e->input = before;
    return ok;
}

/* ---------------------------------------------------------------- loops */

static bool filtered(struct tmpl_eval *e, const struct tmpl_node *n, struct tv_seq *in, struct tv_seq **out)
{
    struct tv_seq *q = tv_seq_new(e, SEQ_LIST, in->n);
    struct tv      yes;
    if (!q || !tmpl_scope_push(e)) return false;
    for (uint32_t i = 0; i < in->n; i++) {
        struct tv v = in->v[i];
        if (!tmpl_steps(e, 1) || !assign(e, n->a, v) || !tmpl_value(e, n->d, &yes)) return false;
        if (tv_truth(&yes)) q->v[q->n++] = v;
    }
    e->scope = e->scope->up;
    return *out = q, true;
}

static enum tmpl_flow run_loop(struct tmpl_eval *e, const struct tmpl_node *n, const struct tv_seq *items, uint32_t loop_sym)
{
    struct tmpl_scope *up = e->scope;
    struct tv_loop    *l = tmpl_alloc(e, sizeof *l);
    if (!l || !tmpl_scope_push(e)) return TMPL_FAIL;
    *l = (struct tv_loop){ .items = items };
    for (; l->i < items->n; l->i++) {
        if (e->scope->kept) { /* a macro of the last round still looks at its variables */
            e->scope = up;
            struct tv_loop *own = tmpl_alloc(e, sizeof *own);
            if (!own || !tmpl_scope_push(e)) return TMPL_FAIL;
            *own = *l;
            l = own;
        }
        e->scope->n = 0;
        if (!tmpl_steps(e, 1) || !assign(e, n->a, items->v[l->i])) return TMPL_FAIL;
        if (loop_sym != UINT32_MAX && !tmpl_set(e, loop_sym, (struct tv){ .kind = TV_LOOP, .u.loop = l })) return TMPL_FAIL;
        enum tmpl_flow f = tmpl_run(e, n->c);
        if (f == TMPL_FAIL) return f;
        if (f == TMPL_BREAK) break;
    }
    return TMPL_NEXT;
}

static enum tmpl_flow run_for(struct tmpl_eval *e, const struct tmpl_node *n)
{
    struct tv      v;
    struct tv_seq *q, items;
    if (!tmpl_value(e, n->b, &v)) return TMPL_FAIL;
    e->line = n->line;
    if (!tv_iter(e, &v, &q) || (n->d && !filtered(e, n, q, &q))) return TMPL_FAIL;
    items = *q; /* a list that grows inside the loop does not make it longer */
    struct tv_seq *own = tmpl_alloc(e, sizeof *own);
    if (!own) return TMPL_FAIL;
    *own = items;
    if (!own->n && n->n) return tmpl_run(e, n->list[0]);
    struct tmpl_scope *scope = e->scope;
    enum tmpl_flow     f = run_loop(e, n, own, e->t->sym_loop);
    e->scope = scope;
    return f;
}

/* ---------------------------------------------------------------- macros */

static struct tv_macro *make_macro(struct tmpl_eval *e, const struct tmpl_node *n)
{
    struct tv_macro *m = tmpl_alloc(e, sizeof *m);
    if (!m) return NULL;
    *m = (struct tv_macro){ .node = n, .scope = e->scope };
    for (struct tmpl_scope *s = e->scope; s && !s->kept; s = s->up) s->kept = true;
    return m;
}

static bool bind_params(struct tmpl_eval *e, const struct tmpl_node *n, const struct tmpl_args *a)
{
    const struct tmpl_sym *name = &e->t->sym[n->sym];
    if (a->n > n->n) return tmpl_fail(e, "macro '%.*s' takes not more than %u arguments", (int)name->n, name->s, n->n);
    for (uint32_t i = 0; i < n->n; i++) {
        const struct tv *v = i < a->n ? &a->pos[i] : NULL;
        for (uint32_t k = 0; k < a->n_kw; k++) {
            if (a->kw[k].sym != n->u.param[i]) continue;
            if (v) return tmpl_fail(e, "macro '%.*s' got two values for '%.*s'", (int)name->n, name->s, (int)a->kw[k].n, a->kw[k].name);
            v = &a->kw_val[k];
        }
        const struct tmpl_sym *s = &e->t->sym[n->u.param[i]];
        struct tv              w = tv_undef(s->s, s->n);
        if (v)
            w = *v;
        else if (n->list[i]->type != N_BODY && !tmpl_value(e, n->list[i], &w))
            return false;
        if (!tmpl_set(e, n->u.param[i], w)) return false;
    }
    for (uint32_t k = 0; k < a->n_kw; k++) {
        uint32_t i = 0;
        while (i < n->n && n->u.param[i] != a->kw[k].sym) i++;
        if (i == n->n) return tmpl_fail(e, "macro '%.*s' takes no argument '%.*s'", (int)name->n, name->s, (int)a->kw[k].n, a->kw[k].name);
    }
    return true;
}

bool tmpl_call_macro(struct tmpl_eval *e, const struct tv_macro *m, const struct tmpl_args *a, struct tv *out)
{
    if (e->calls >= e->lim.depth_max) return tmpl_over(e, "too much depth");
    if (!tmpl_steps(e, 1)) return false;
    struct tmpl_scope *scope = e->scope;
    size_t             mark = tmpl_mark(e);
    e->calls++;
    e->scope = m->scope;
    bool ok = tmpl_scope_push(e) && bind_params(e, m->node, a);
    if (ok && m->caller && e->t->sym_caller != UINT32_MAX) ok = tmpl_set(e, e->t->sym_caller, *m->caller);
    ok = ok && tmpl_run(e, m->node->c) == TMPL_NEXT && tmpl_take(e, mark, out);
    e->scope = scope;
    e->calls--;
    return ok;
}

static bool run_call_block(struct tmpl_eval *e, const struct tmpl_node *n)
{
    struct tv        f, *body = tmpl_alloc(e, sizeof *body), v;
    struct tv_macro *caller = make_macro(e, n->d), *with = tmpl_alloc(e, sizeof *with);
    if (!body || !caller || !with || !tmpl_value(e, n->a->a, &f)) return false;
    if (f.kind != TV_MACRO) return tmpl_fail(e, "a call block calls a macro, not a %s", tv_type_name(&f));
    *body = (struct tv){ .kind = TV_MACRO, .u.macro = caller };
    *with = *f.u.macro;
    with->caller = body;
    struct tmpl_node call = *n->a, self = { .type = N_CONST, .line = n->line, .val = { .kind = TV_MACRO, .u.macro = with } };
    call.a = &self;
    return tmpl_value(e, &call, &v) && tv_print(e, &v);
}

/* ---------------------------------------------------------------- statements */

static enum tmpl_flow run_if(struct tmpl_eval *e, const struct tmpl_node *n)
{
    struct tv v;
    for (uint32_t i = 0; i + 1 < n->n; i += 2) {
        if (!tmpl_value(e, n->list[i], &v)) return TMPL_FAIL;
        if (tv_truth(&v)) return tmpl_run(e, n->list[i + 1]);
    }
    return n->c ? tmpl_run(e, n->c) : TMPL_NEXT;
}

static enum tmpl_flow run_with(struct tmpl_eval *e, const struct tmpl_node *n)
{
    struct tmpl_scope *scope = e->scope;
    struct tv         *v = tmpl_alloc(e, (n->n / 2 + 1) * sizeof *v);
    if (!v) return TMPL_FAIL;
    for (uint32_t i = 0; i + 1 < n->n; i += 2) /* all values belong to the outer scope */
        if (!tmpl_value(e, n->list[i + 1], &v[i / 2])) return TMPL_FAIL;
    if (!tmpl_scope_push(e)) return TMPL_FAIL;
    for (uint32_t i = 0; i + 1 < n->n; i += 2)
        if (!assign(e, n->list[i], v[i / 2])) return TMPL_FAIL;
    enum tmpl_flow f = tmpl_run(e, n->c);
    e->scope = scope;
    return f;
}

static bool run_simple(struct tmpl_eval *e, const struct tmpl_node *n)
{
    struct tv        v;
    struct tv_macro *m;
    switch (n->type) {
    case N_DATA: return tv_print(e, &n->val);
    case N_OUT: return tmpl_value(e, n->a, &v) && tv_print(e, &v);
    case N_SET: return tmpl_value(e, n->b, &v) && assign(e, n->a, v);
    case N_SET_BLOCK: return capture(e, n->c, &v) && (!n->b || through_filters(e, n->b, &v)) && assign(e, n->a, v);
    case N_FILTER_BLOCK: return capture(e, n->c, &v) && through_filters(e, n->b, &v) && tv_print(e, &v);
    case N_CALL_BLOCK: return run_call_block(e, n);
    case N_MACRO: return (m = make_macro(e, n)) && tmpl_set(e, n->sym, (struct tv){ .kind = TV_MACRO, .u.macro = m });
    default: return tmpl_fail(e, "not a statement");
    }
}

static enum tmpl_flow run_body(struct tmpl_eval *e, const struct tmpl_node *n)
{
    for (uint32_t i = 0; i < n->n; i++) {
        enum tmpl_flow f = tmpl_run(e, n->list[i]);
        if (f != TMPL_NEXT) return f;
    }
    return TMPL_NEXT;
}

enum tmpl_flow tmpl_run(struct tmpl_eval *e, const struct tmpl_node *n)
{
    if (e->frames >= e->lim.depth_max * TMPL_FRAMES_PER_CALL) return tmpl_over(e, "too much depth"), TMPL_FAIL;
    if (n->type != N_BODY && !tmpl_steps(e, 1)) return TMPL_FAIL;
    enum tmpl_flow f;
    e->line = n->line;
    e->frames++;
    switch (n->type) {
    case N_BODY: f = run_body(e, n); break;
    case N_IF: f = run_if(e, n); break;
    case N_FOR: f = run_for(e, n); break;
    case N_WITH: f = run_with(e, n); break;
    case N_BREAK: f = TMPL_BREAK; break;
    case N_CONTINUE: f = TMPL_CONTINUE; break;
    default: f = run_simple(e, n) ? TMPL_NEXT : TMPL_FAIL; break;
    }
    e->frames--;
    return e->st ? TMPL_FAIL : f;
}
