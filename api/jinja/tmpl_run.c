#include "api/jinja/tmpl_eval.h"
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
        if (s->s[0] == '_') return tmpl_fail(e, "a namespace holds no name that begins with an underscore");
        return tv_dict_set(e, ns->u.dict, tv_str(s->s, s->n), v);
    }
    struct tv_seq *q;
    if (!tv_iter(e, &v, &q)) return false;
    if (q->n != to->n)
        return tmpl_fail(e, "%s values to unpack (expected %u, got %u)", q->n < to->n ? "not enough" : "too many",
                         to->n, q->n);
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
    *out = q;
    return true;
}

/* from: the loop as it is before its first round. */
static enum tmpl_flow run_loop(struct tmpl_eval *e, const struct tmpl_node *n, const struct tv_loop *from)
{
    struct tmpl_scope   *up = e->scope;
    const struct tv_seq *items = from->items;
    uint32_t             loop_sym = e->t->sym_loop;
    struct tv_loop      *l = tmpl_alloc(e, sizeof *l);
    if (!l || !tmpl_scope_push(e)) return TMPL_FAIL;
    *l = *from;
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
        if (loop_sym != UINT32_MAX && !tmpl_set(e, loop_sym, (struct tv){ .kind = TV_LOOP, .u.loop = l }))
            return TMPL_FAIL;
        enum tmpl_flow f = tmpl_run(e, n->c);
        if (f == TMPL_FAIL) return f;
        if (f == TMPL_BREAK) break;
    }
    return TMPL_NEXT;
}

static enum tmpl_flow loop_over(struct tmpl_eval *e, const struct tmpl_node *n, const struct tv *v, uint32_t depth)
{
    struct tv_seq *q;
    e->line = n->line;
    if (!tv_iter(e, v, &q) || (n->d && !filtered(e, n, q, &q))) return TMPL_FAIL;
    struct tv_seq *own = tmpl_alloc(e, sizeof *own); /* a list that grows inside the loop does not make it longer */
    if (!own) return TMPL_FAIL;
    *own = *q;
    if (!own->n && n->n) return tmpl_run(e, n->list[0]);
    struct tmpl_scope *scope = e->scope;
    struct tv_loop     from = {
            .items = own, .depth = depth, .recursive = n->flags & F_RECURSIVE ? n : NULL, .scope = scope
    };
    enum tmpl_flow f = run_loop(e, n, &from);
    e->scope = scope;
    return f;
}

static enum tmpl_flow run_for(struct tmpl_eval *e, const struct tmpl_node *n)
{
    struct tv v;
    return tmpl_value(e, n->b, &v) ? loop_over(e, n, &v, 0) : TMPL_FAIL;
}

bool tmpl_call_loop(struct tmpl_eval *e, const struct tv_loop *l, const struct tv *items, struct tv *out)
{
    if (!l->recursive) return tmpl_fail(e, "the loop must be marked 'recursive' to be called");
    if (e->calls >= e->lim.depth_max) return tmpl_over(e, "too much depth");
    struct tmpl_scope *scope = e->scope;
    size_t             mark = tmpl_mark(e);
    e->calls++;
    e->scope = l->scope;
    bool ok = loop_over(e, l->recursive, items, l->depth + 1) == TMPL_NEXT && tmpl_take(e, mark, out);
    e->scope = scope;
    e->calls--;
    return ok;
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

static int cut(uint32_t n) { return n < 40 ? (int)n : 40; }

static bool kw_is(const struct tmpl_eval *e, const struct tmpl_kw *kw, uint32_t sym)
{
    return kw->n == e->t->sym[sym].n && !memcmp(kw->name, e->t->sym[sym].s, kw->n);
}

static bool is_param(const struct tmpl_eval *e, const struct tmpl_node *n, const struct tmpl_kw *kw)
{
    for (uint32_t i = 0; i < n->n; i++)
        if (kw_is(e, kw, n->u.param[i])) return true;
    return false;
}

/* The arguments that no parameter took: caller, kwargs and varargs where the body reads them, an error where it does
 * not. */
static bool bind_rest(struct tmpl_eval *e, const struct tmpl_node *n, const struct tmpl_args *a)
{
    const struct tmpl_sym *name = &e->t->sym[n->sym];
    struct tv              caller = tv_undef("caller", 6);
    struct tv_dict        *by_name = n->flags & F_KWARGS ? tv_dict_new(e, a->n_kw) : NULL;
    uint32_t               n_rest = a->n > n->n ? a->n - n->n : 0;
    struct tv_seq         *rest = n->flags & F_VARARGS ? tv_seq_new(e, SEQ_TUPLE, n_rest) : NULL;
    if (e->st) return false;
    for (uint32_t k = 0; k < a->n_kw; k++) {
        const struct tmpl_kw *kw = &a->kw[k];
        if (is_param(e, n, kw)) continue;
        if ((n->flags & F_CALLER) && kw_is(e, kw, e->t->sym_caller)) {
            caller = a->kw_val[k];
        } else if (!by_name) {
            return tmpl_fail(e, "macro '%.*s' takes no argument '%.*s'", cut(name->n), name->s, cut(kw->n), kw->name);
        } else if (!tv_dict_set(e, by_name, tv_str(kw->name, kw->n), a->kw_val[k])) {
            return false;
        }
    }
    if (a->n > n->n && !rest)
        return tmpl_fail(e, "macro '%.*s' takes not more than %u arguments", cut(name->n), name->s, n->n);
    for (uint32_t i = n->n; rest && i < a->n; i++) rest->v[rest->n++] = a->pos[i];
    if ((n->flags & F_CALLER) && !tmpl_set(e, e->t->sym_caller, caller)) return false;
    if (by_name && !tmpl_set(e, e->t->sym_kwargs, tv_dict(by_name))) return false;
    return !rest || tmpl_set(e, e->t->sym_varargs, tv_seq(rest));
}

static bool bind_params(struct tmpl_eval *e, const struct tmpl_node *n, const struct tmpl_args *a)
{
    const struct tmpl_sym *name = &e->t->sym[n->sym];
    if (!tmpl_steps(e, ((uint64_t)a->n_kw * n->n + a->n) / 16)) return false;
    for (uint32_t i = 0; i < n->n; i++) {
        const struct tv *v = i < a->n ? &a->pos[i] : NULL;
        for (uint32_t k = 0; k < a->n_kw; k++) {
            if (!kw_is(e, &a->kw[k], n->u.param[i])) continue;
            if (v)
                return tmpl_fail(e, "macro '%.*s' got two values for '%.*s'", cut(name->n), name->s, cut(a->kw[k].n),
                                 a->kw[k].name);
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
    return bind_rest(e, n, a);
}

bool tmpl_call_macro(struct tmpl_eval *e, const struct tv_macro *m, const struct tmpl_args *a, struct tv *out)
{
    if (e->calls >= e->lim.depth_max) return tmpl_over(e, "too much depth");
    if (!tmpl_steps(e, 1)) return false;
    struct tmpl_scope *scope = e->scope;
    size_t             mark = tmpl_mark(e);
    e->calls++;
    e->scope = m->scope;
    bool ok = tmpl_scope_push(e) && bind_params(e, m->node, a) && tmpl_run(e, m->node->c) == TMPL_NEXT &&
              tmpl_take(e, mark, out);
    e->scope = scope;
    e->calls--;
    return ok;
}

static bool macro_params(struct tmpl_eval *e, const struct tmpl_node *n, struct tv *out)
{
    struct tv_seq *q = tv_seq_new(e, SEQ_TUPLE, n->n);
    if (!q) return false;
    for (uint32_t i = 0; i < n->n; i++) q->v[q->n++] = tv_str(e->t->sym[n->u.param[i]].s, e->t->sym[n->u.param[i]].n);
    *out = tv_seq(q);
    return true;
}

bool tmpl_macro_attr(struct tmpl_eval *e, const struct tv_macro *m, const char *name, size_t n, struct tv *out)
{
    const struct tmpl_node *node = m->node;
    struct tv               key = tv_str(name, n);
    if (tv_str_is(&key, "name")) {
        *out = tv_str(e->t->sym[node->sym].s, e->t->sym[node->sym].n);
        return true;
    }
    if (tv_str_is(&key, "arguments")) return macro_params(e, node, out);
    if (tv_str_is(&key, "catch_kwargs")) {
        *out = tv_bool(node->flags & F_KWARGS);
        return true;
    }
    if (tv_str_is(&key, "catch_varargs")) {
        *out = tv_bool(node->flags & F_VARARGS);
        return true;
    }
    if (tv_str_is(&key, "caller")) {
        *out = tv_bool(node->flags & (F_CALLER | F_OWN_CALLER));
        return true;
    }
    return false;
}

/* The body of the block is one more argument by name: caller. */
static bool run_call_block(struct tmpl_eval *e, const struct tmpl_node *n)
{
    struct tv        f, v;
    struct tmpl_args a;
    struct tv_macro *caller = make_macro(e, n->d);
    if (!caller || !tmpl_value(e, n->a->a, &f) || !tmpl_arguments(e, n->a, &a)) return false;
    struct tmpl_kw *kw = tmpl_alloc(e, ((size_t)a.n_kw + 1) * sizeof *kw);
    struct tv      *val = tmpl_alloc(e, ((size_t)a.n_kw + 1) * sizeof *val);
    if (!kw || !val) return false;
    for (uint32_t i = 0; i < a.n_kw; i++) {
        kw[i] = a.kw[i];
        val[i] = a.kw_val[i];
    }
    kw[a.n_kw] = (struct tmpl_kw){ .name = "caller", .n = 6 };
    val[a.n_kw] = (struct tv){ .kind = TV_MACRO, .u.macro = caller };
    a.kw = kw;
    a.kw_val = val;
    a.n_kw++;
    e->line = n->line;
    return tmpl_call(e, &f, &a, &v) && tv_print(e, &v);
}

/* ---------------------------------------------------------------- blocks */

/* In a scope of its own: above it lie the template's own variables alone, or all where it is scoped. */
static enum tmpl_flow run_block(struct tmpl_eval *e, const struct tmpl_node *n)
{
    struct tmpl_scope *scope = e->scope;
    if (n->flags & F_REQUIRED) {
        tmpl_fail(e, "a required block that no template fills");
        return TMPL_FAIL;
    }
    if (!(n->flags & F_SCOPED)) e->scope = e->root;
    enum tmpl_flow f = tmpl_scope_push(e) ? tmpl_run(e, n->c) : TMPL_FAIL;
    e->scope = scope;
    return f;
}

bool tmpl_call_block(struct tmpl_eval *e, const struct tmpl_node *block, struct tv *out)
{
    struct tmpl_scope *scope = e->scope;
    size_t             mark = tmpl_mark(e);
    if (e->calls >= e->lim.depth_max) return tmpl_over(e, "too much depth");
    e->calls++;
    e->scope = e->root;
    bool ok = run_block(e, block) == TMPL_NEXT && tmpl_take(e, mark, out);
    e->scope = scope;
    e->calls--;
    return ok;
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
    if (e->frames >= e->lim.depth_max * TMPL_FRAMES_PER_CALL) {
        tmpl_over(e, "too much depth");
        return TMPL_FAIL;
    }
    if (n->type != N_BODY && !tmpl_steps(e, 1)) return TMPL_FAIL;
    enum tmpl_flow f;
    e->line = n->line;
    e->frames++;
    switch (n->type) {
    case N_BODY: f = run_body(e, n); break;
    case N_IF: f = run_if(e, n); break;
    case N_FOR: f = run_for(e, n); break;
    case N_WITH: f = run_with(e, n); break;
    case N_BLOCK: f = run_block(e, n); break;
    case N_BREAK: f = TMPL_BREAK; break;
    case N_CONTINUE: f = TMPL_CONTINUE; break;
    default: f = run_simple(e, n) ? TMPL_NEXT : TMPL_FAIL; break;
    }
    e->frames--;
    return e->st ? TMPL_FAIL : f;
}
