/* tmpl_parse: the recursive descent over statements. */
#include "api/jinja/tmpl_ast.h"
#include "api/jinja/tmpl_eval.h"
#include <stdio.h>
#include <string.h>

/* ---------------------------------------------------------------- statements */

/* Until {% one of ends (NULL-terminated; which in *end) %}; that tag's name is eaten, not its rest. ends NULL: until
 * the end of the template. */
static struct tmpl_node *parse_body(struct tmpl_parser *p, const char *const *ends, int *end);
static void              skip_same_name(struct tmpl_parser *p, const struct tmpl_tok *name) /* the same name again */
{
    const struct tmpl_tok *k = tmpl_cur(p);
    if (k->type == T_NAME && k->n == name->n && !memcmp(k->s, name->s, k->n)) tmpl_next(p);
}
static struct tmpl_node *parse_until(struct tmpl_parser *p, const char *end)
{
    const char       *ends[] = { end, NULL };
    int               which;
    struct tmpl_node *n = parse_body(p, ends, &which);
    return n && tmpl_expect_end(p) ? n : NULL;
}

static struct tmpl_node *parse_if(struct tmpl_parser *p, uint32_t line)
{
    static const char *const ends[] = { "endif", "else", "elif", NULL };
    struct tmpl_node        *n = tmpl_node_new(p, N_IF, line);
    struct tmpl_node_list    l = { 0 };
    int                      which = 2;
    if (!n) return NULL;
    while (which == 2) {
        if (!tmpl_node_add(p, &l, tmpl_parse_tuple(p, false, false)) || !tmpl_expect_end(p)) return NULL;
        if (!tmpl_node_add(p, &l, parse_body(p, ends, &which))) return NULL;
    }
    if (!tmpl_expect_end(p) || (which == 1 && !(n->c = parse_until(p, "endif")))) return NULL;
    return tmpl_node_done(p, n, &l);
}

/* Jinja's detection of the "openai" content format, as vLLM does it: a loop over message.content, message['content'] or
 * a variable of the name content. */
static bool is_content(const struct tmpl_parser *p, const struct tmpl_node *n)
{
    while (n && (n->type == N_FILTER || n->type == N_SLICE)) n = n->a;
    if (!n) return false;
    if (n->type == N_NAME || n->type == N_ATTR)
        return p->t->sym[n->sym].n == 7 && !memcmp(p->t->sym[n->sym].s, "content", 7);
    return n->type == N_ITEM && n->b->type == N_CONST && tv_str_is(&n->b->val, "content");
}

static struct tmpl_node *parse_for(struct tmpl_parser *p, uint32_t line)
{
    static const char *const ends[] = { "endfor", "else", NULL };
    struct tmpl_node        *n = tmpl_node_new(p, N_FOR, line);
    struct tmpl_node_list    l = { 0 };
    int                      which;
    if (!n || !(n->a = tmpl_parse_target(p, false))) return NULL;
    if (!tmpl_skip_name(p, "in")) return tmpl_unexpected(p, "'in'");
    if (!(n->b = tmpl_parse_tuple(p, false, false))) return NULL;
    if (tmpl_skip_name(p, "if") && !(n->d = tmpl_parse_expr(p))) return NULL;
    if (tmpl_skip_name(p, "recursive")) n->flags = F_RECURSIVE;
    if (!tmpl_expect_end(p)) return NULL;
    p->loops++;
    n->c = parse_body(p, ends, &which);
    p->loops--;
    if (!n->c || !tmpl_expect_end(p)) return NULL;
    if (which == 1 && !tmpl_node_add(p, &l, parse_until(p, "endfor"))) return NULL;
    p->t->wants_parts = p->t->wants_parts || is_content(p, n->b);
    return tmpl_node_done(p, n, &l);
}

static struct tmpl_node *parse_set(struct tmpl_parser *p, uint32_t line)
{
    struct tmpl_node *n = tmpl_node_new(p, N_SET, line);
    if (!n || !(n->a = tmpl_parse_target(p, true))) return NULL;
    if (tmpl_skip_op(p, OP_ASSIGN)) {
        if (!(n->b = tmpl_parse_tuple(p, true, false)) || !tmpl_expect_end(p)) return NULL;
        return tmpl_node_done(p, n, NULL);
    }
    n->type = N_SET_BLOCK;
    if (tmpl_cur(p)->type == T_OP && tmpl_cur(p)->op == OP_PIPE && !(n->b = tmpl_parse_filters(p, NULL, false)))
        return NULL;
    if (!tmpl_expect_end(p) || !(n->c = parse_until(p, "endset"))) return NULL;
    return tmpl_node_done(p, n, NULL);
}

/* ( a, b=1 ) of a macro or call block */
/* own_out: which special names are parameters. needs_caller_out: caller is one, without a default. */
static bool parse_signature(struct tmpl_parser *p, struct tmpl_node *n, uint8_t *own_out, bool *needs_caller_out)
{
    struct tmpl_node_list l = { 0 };
    uint32_t              cap = 0, at_caller = 0;
    uint8_t               own = 0;
    if (!tmpl_expect_op(p, OP_LPAREN)) return false;
    for (bool first = true; !tmpl_skip_op(p, OP_RPAREN); first = false) {
        if (!first && !tmpl_expect_op(p, OP_COMMA)) return false;
        const struct tmpl_tok *k = tmpl_cur(p);
        if (k->type != T_NAME) {
            tmpl_unexpected(p, "a parameter's name");
            return false;
        }
        if (l.n == cap) {
            uint32_t more = cap ? cap * 2 : 4, *v = arena_alloc(&p->t->arena, more * sizeof *v);
            if (!v) {
                tmpl_parse_fail(p, k->line, "template is too large");
                return false;
            }
            if (l.n) memcpy(v, n->u.param, l.n * sizeof *v);
            n->u.param = v;
            cap = more;
        }
        if (!tmpl_intern(p, k, &n->u.param[l.n])) return false;
        p->t->sym[n->u.param[l.n]].assigned = true;
        own |= tmpl_special_name(k);
        if (tmpl_special_name(k) == F_CALLER) at_caller = l.n;
        tmpl_next(p);
        struct tmpl_node *none = NULL;
        if (tmpl_skip_op(p, OP_ASSIGN)) {
            if (!(none = tmpl_parse_expr(p))) return false;
        } else if (l.n && l.v[l.n - 1]->type != N_BODY) {
            tmpl_parse_fail(p, k->line, "a parameter without default after one with");
            return false;
        } else if (!(none = tmpl_node_new(p, N_BODY, k->line))) { /* no default */
            return false;
        }
        if (!tmpl_node_add(p, &l, none)) return false;
    }
    n->list = l.v;
    n->n = l.n;
    *own_out = own;
    *needs_caller_out = (own & F_CALLER) && l.v[at_caller]->type == N_BODY;
    return true;
}

/* The body of a macro or call block, up to the tag end, and which of the special names it reads. */
static bool parse_macro_body(struct tmpl_parser *p, struct tmpl_node *n, const char *end, uint8_t own,
                             bool needs_caller)
{
    uint32_t loops = p->loops;
    uint8_t  reads = p->reads, sets = p->sets;
    p->loops = 0;
    p->reads = p->sets = 0;
    if (!(n->c = parse_until(p, end))) return false;
    if ((p->reads & F_CALLER) && needs_caller) {
        tmpl_parse_fail(p, n->line, "the parameter 'caller' needs a default");
        return false;
    }
    n->flags = p->reads & (uint8_t)~own;
    if (p->reads & own & F_CALLER) n->flags |= F_OWN_CALLER;
    p->loops = loops;
    p->reads |= reads;
    p->sets = sets;
    return true;
}

static struct tmpl_node *parse_macro(struct tmpl_parser *p, uint32_t line)
{
    struct tmpl_node      *n = tmpl_node_new(p, N_MACRO, line);
    const struct tmpl_tok *k = tmpl_cur(p);
    if (!n) return NULL;
    if (k->type != T_NAME) return tmpl_unexpected(p, "a macro's name");
    if (!tmpl_intern(p, k, &n->sym)) return NULL;
    p->t->sym[n->sym].assigned = true;
    tmpl_next(p);
    uint8_t own = 0;
    bool    needs_caller = false;
    if (!parse_signature(p, n, &own, &needs_caller) || !tmpl_expect_end(p)) return NULL;
    if (!parse_macro_body(p, n, "endmacro", own, needs_caller)) return NULL;
    return tmpl_node_done(p, n, NULL);
}

static struct tmpl_node *parse_call_block(struct tmpl_parser *p, uint32_t line)
{
    static const struct tmpl_tok caller = { .type = T_NAME, .n = 6, .s = "caller" };
    struct tmpl_node            *n = tmpl_node_new(p, N_CALL_BLOCK, line), *m = tmpl_node_new(p, N_MACRO, line);
    uint8_t                      own = 0;
    bool                         needs_caller = false;
    if (!n || !m || !tmpl_intern(p, &caller, &m->sym)) return NULL;
    if (tmpl_cur(p)->type == T_OP && tmpl_cur(p)->op == OP_LPAREN && !parse_signature(p, m, &own, &needs_caller))
        return NULL;
    if (!(n->a = tmpl_parse_postfix_call(p)) || !tmpl_expect_end(p)) return NULL;
    if (!parse_macro_body(p, m, "endcall", own, needs_caller)) return NULL;
    n->d = tmpl_node_done(p, m, NULL);
    return n->d ? tmpl_node_done(p, n, NULL) : NULL;
}

static struct tmpl_node *parse_with(struct tmpl_parser *p, uint32_t line)
{
    struct tmpl_node     *n = tmpl_node_new(p, N_WITH, line);
    struct tmpl_node_list l = { 0 };
    if (!n) return NULL;
    while (tmpl_cur(p)->type != T_BLOCK_END) {
        if (l.n && !tmpl_expect_op(p, OP_COMMA)) return NULL;
        if (!tmpl_node_add(p, &l, tmpl_parse_target(p, false)) || !tmpl_expect_op(p, OP_ASSIGN)) return NULL;
        if (!tmpl_node_add(p, &l, tmpl_parse_expr(p))) return NULL;
    }
    tmpl_next(p);
    return (n->c = parse_until(p, "endwith")) ? tmpl_node_done(p, n, &l) : NULL;
}

static struct tmpl_node *parse_filter_block(struct tmpl_parser *p, uint32_t line)
{
    struct tmpl_node *n = tmpl_node_new(p, N_FILTER_BLOCK, line);
    if (!n || !(n->b = tmpl_parse_filters(p, NULL, true)) || !tmpl_expect_end(p) ||
        !(n->c = parse_until(p, "endfilter")))
        return NULL;
    return tmpl_node_done(p, n, NULL);
}

/* Without a parent template a block is rendered where it stands. */
static struct tmpl_node *parse_block(struct tmpl_parser *p, uint32_t line)
{
    struct tmpl_node        *n = tmpl_node_new(p, N_BLOCK, line);
    const struct tmpl_tok   *k = tmpl_cur(p);
    static const char *const ends[] = { "endblock", NULL };
    int                      which;
    if (!n) return NULL;
    if (k->type != T_NAME) return tmpl_unexpected(p, "a block's name");
    if (!tmpl_intern(p, k, &n->sym)) return NULL;
    for (uint32_t i = 0; i < p->t->n_block; i++)
        if (p->t->block[i]->sym == n->sym)
            return tmpl_parse_fail(p, line, "a second block '%.*s'", (int)(k->n < 40 ? k->n : 40), k->s);
    if (p->t->n_block == TMPL_BLOCKS_MAX) return tmpl_parse_fail(p, line, "more than %d blocks", TMPL_BLOCKS_MAX);
    p->t->block[p->t->n_block++] = n;
    tmpl_next(p);
    if (tmpl_skip_name(p, "scoped")) n->flags |= F_SCOPED;
    if (tmpl_skip_name(p, "required")) n->flags |= F_REQUIRED;
    if (!tmpl_expect_end(p)) return NULL;
    uint32_t loops = p->loops;
    p->loops = 0;
    if (!(n->c = parse_body(p, ends, &which))) return NULL;
    p->loops = loops;
    skip_same_name(p, k);
    return tmpl_expect_end(p) ? tmpl_node_done(p, n, NULL) : NULL;
}

/* The output of a chat template is never escaped, so only what says so is taken. */
static struct tmpl_node *parse_autoescape(struct tmpl_parser *p, uint32_t line)
{
    struct tmpl_node *n = tmpl_node_new(p, N_WITH, line);
    if (!n || !(n->a = tmpl_parse_expr(p)) || !tmpl_expect_end(p)) return NULL;
    if (n->a->type != N_CONST || tv_truth(&n->a->val))
        return tmpl_parse_fail(p, line, "'autoescape' can only be false");
    n->a = NULL;
    return (n->c = parse_until(p, "endautoescape")) ? tmpl_node_done(p, n, NULL) : NULL;
}

static struct tmpl_node *parse_generation(struct tmpl_parser *p, uint32_t line)
{
    struct tmpl_node *n = tmpl_node_new(p, N_WITH, line); /* a scope and nothing more */
    if (!n || !tmpl_expect_end(p) || !(n->c = parse_until(p, "endgeneration"))) return NULL;
    return tmpl_node_done(p, n, NULL);
}

static struct tmpl_node *parse_jump(struct tmpl_parser *p, uint32_t line, enum tmpl_node_type type)
{
    if (!p->loops) return tmpl_parse_fail(p, line, "'%s' outside of a loop", type == N_BREAK ? "break" : "continue");
    return tmpl_expect_end(p) ? tmpl_node_new(p, type, line) : NULL;
}
static struct tmpl_node *parse_break(struct tmpl_parser *p, uint32_t line) { return parse_jump(p, line, N_BREAK); }
static struct tmpl_node *parse_continue(struct tmpl_parser *p, uint32_t line)
{
    return parse_jump(p, line, N_CONTINUE);
}

static const struct {
    const char *name;
    struct tmpl_node *(*parse)(struct tmpl_parser *p, uint32_t line);
} tags[] = {
    { "if", parse_if },
    { "for", parse_for },
    { "set", parse_set },
    { "macro", parse_macro },
    { "break", parse_break },
    { "with", parse_with },
    { "filter", parse_filter_block },
    { "call", parse_call_block },
    { "generation", parse_generation },
    { "block", parse_block },
    { "autoescape", parse_autoescape },
    { "continue", parse_continue },
};

static struct tmpl_node *parse_tag(struct tmpl_parser *p)
{
    const struct tmpl_tok *k = tmpl_cur(p);
    if (k->type != T_NAME) return tmpl_unexpected(p, "a tag's name");
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++) {
        if (!tmpl_tok_is(k, tags[i].name)) continue;
        tmpl_next(p);
        if (!tmpl_enter(p)) return NULL;
        struct tmpl_node *n = tags[i].parse(p, k->line);
        tmpl_leave(p);
        return n;
    }
    return tmpl_parse_fail(p, k->line, "no tag named '%.*s' here", (int)(k->n < 40 ? k->n : 40), k->s);
}

static struct tmpl_node *parse_body(struct tmpl_parser *p, const char *const *ends, int *end)
{
    struct tmpl_node *body = tmpl_node_new(p, N_BODY, p->pos ? p->toks.v[p->pos - 1].line : 1),
                     *n; /* where its tag ends */
    struct tmpl_node_list l = { 0 };
    uint32_t              n_called = p->n_called;
    if (!body || !tmpl_enter(p)) return NULL;
    for (;;) {
        const struct tmpl_tok *k = tmpl_cur(p);
        tmpl_next(p);
        switch (k->type) {
        case T_EOF:
            tmpl_leave(p);
            if (ends)
                return tmpl_parse_fail(p, body->line, "a block that begins here is not ended: '%s' is missing",
                                       ends[0]);
            return tmpl_node_done(p, body, &l);
        case T_DATA:
            if (!(n = tmpl_node_new(p, N_DATA, k->line))) return NULL;
            n->val = tv_str(k->s, k->n);
            break;
        case T_OUT_BEGIN:
            if (!(n = tmpl_node_new(p, N_OUT, k->line)) || !(n->a = tmpl_parse_tuple(p, true, false))) return NULL;
            if (tmpl_cur(p)->type != T_OUT_END) return tmpl_unexpected(p, "'}}'");
            tmpl_next(p);
            if (!tmpl_node_done(p, n, NULL)) return NULL;
            break;
        default: /* T_BLOCK_BEGIN */
            for (int i = 0; ends && ends[i]; i++) {
                if (!tmpl_skip_name(p, ends[i])) continue;
                *end = i;
                p->n_called = n_called;
                tmpl_leave(p);
                return tmpl_node_done(p, body, &l);
            }
            n = parse_tag(p);
        }
        if (!tmpl_node_add(p, &l, n)) return NULL;
    }
}

/* A function that nobody defines and nobody gives is told at load if every rendering calls it. A call within a block or
 * under a condition may never be met: some templates of published models have one for content of a strange type. Where
 * the template asks whether it is defined, it knows what to do without. */
static bool is_bound(const struct tmpl_sym *s)
{
    return (s->n == 6 && !memcmp(s->s, "caller", 6)) ||
           (s->n == 4 && (!memcmp(s->s, "loop", 4) || !memcmp(s->s, "self", 4)));
}
static bool check_called(struct tmpl_parser *p)
{
    for (uint32_t i = 0; i < p->n_called; i++) {
        const struct tmpl_sym *s = &p->t->sym[p->called[i]->a->sym];
        if (s->assigned || s->asked || tmpl_find(tmpl_globals, s->s, s->n) || is_bound(s)) continue;
        tmpl_parse_fail(p, p->called[i]->line, "no function named '%.*s'", (int)(s->n < 40 ? s->n : 40), s->s);
        return false;
    }
    return true;
}

static bool parse_all(struct tmpl_parser *p)
{
    struct tmpl *t = p->t;
    if (!(t->sym = arena_alloc(&t->arena, TMPL_SYMS_MAX * sizeof *t->sym))) {
        tmpl_parse_fail(p, 1, "out of memory");
        return false;
    }
    if (!tmpl_lex(&p->scratch, t->text, t->n_text, &p->toks, p->err, p->err_bytes)) return false;
    return (t->body = parse_body(p, NULL, NULL)) && check_called(p);
}

static uint32_t find_sym(const struct tmpl *t, const char *name)
{
    for (uint32_t i = 0; i < t->n_sym; i++)
        if (t->sym[i].n == strlen(name) && !memcmp(t->sym[i].s, name, t->sym[i].n)) return i;
    return UINT32_MAX;
}

bool tmpl_parse_text(struct tmpl *t, char *err, size_t err_bytes)
{
    struct tmpl_parser p = { .t = t, .err = err, .err_bytes = err_bytes };
    arena_init(&p.scratch, 256u << 20);
    bool ok = parse_all(&p);
    t->sym_loop = find_sym(t, "loop");
    t->sym_caller = find_sym(t, "caller");
    t->sym_kwargs = find_sym(t, "kwargs");
    t->sym_varargs = find_sym(t, "varargs");
    arena_free(&p.scratch);
    return ok;
}
