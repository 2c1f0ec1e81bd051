/* Over 500 lines: the recursive descent over expressions; its functions call one another. */
#include "api/jinja/tmpl_ast.h"
#include "api/jinja/tmpl_big.h"
#include "api/jinja/tmpl_eval.h"
#include <stdlib.h>
#include <string.h>

/* Recursive descent over Jinja's grammar. Every level of brackets, unary operators and inline ifs passes tmpl_enter;
 * runs of one operator become one node with a list, so neither parser nor evaluator recurses over them. */

static struct tmpl_node *parse_or(struct tmpl_parser *p);
static struct tmpl_node *parse_unary(struct tmpl_parser *p, bool with_filter);

static struct tmpl_node *unary_node(struct tmpl_parser *p, enum tmpl_node_type type, uint32_t line, struct tmpl_node *a)
{
    struct tmpl_node *n = a ? tmpl_node_new(p, type, line) : NULL;
    if (!n) return NULL;
    n->a = a;
    return tmpl_node_done(p, n, NULL);
}

struct tmpl_node *tmpl_parse_expr(struct tmpl_parser *p)
{
    if (!tmpl_enter(p)) return NULL;
    uint32_t          line = tmpl_cur(p)->line, n_called = p->n_called;
    struct tmpl_node *a = parse_or(p);
    while (a && tmpl_skip_name(p, "if")) {
        struct tmpl_node *n = tmpl_node_new(p, N_COND, line);
        if (!n) return NULL;
        n->a = a;
        if (!(n->b = parse_or(p))) return NULL;
        if (tmpl_skip_name(p, "else") && !(n->c = tmpl_parse_expr(p))) return NULL;
        a = tmpl_node_done(p, n, NULL);
        p->n_called = n_called;
    }
    tmpl_leave(p);
    return a;
}

static bool is_tuple_end(const struct tmpl_tok *k)
{
    return k->type == T_OUT_END || k->type == T_BLOCK_END || (k->type == T_OP && k->op == OP_RPAREN) ||
           tmpl_tok_is(k, "in");
}

struct tmpl_node *tmpl_parse_tuple(struct tmpl_parser *p, bool with_cond, bool parens)
{
    struct tmpl_node_list l = { 0 };
    uint32_t              line = tmpl_cur(p)->line;
    bool                  comma = false;
    while (!is_tuple_end(tmpl_cur(p))) {
        if (!tmpl_node_add(p, &l, with_cond ? tmpl_parse_expr(p) : parse_or(p))) return NULL;
        if (!tmpl_skip_op(p, OP_COMMA)) break;
        comma = true;
    }
    if (!comma && l.n) return l.v[0];
    if (!l.n && !parens) return tmpl_parse_fail(p, line, "an expression is missing");
    struct tmpl_node *n = tmpl_node_new(p, N_TUPLE, line);
    return n ? tmpl_node_done(p, n, &l) : NULL;
}

/* list of operands separated by a word: "and", "or" */
static struct tmpl_node *word_list(struct tmpl_parser *p, const char *word, enum tmpl_node_type type,
                                   struct tmpl_node *(*operand)(struct tmpl_parser *))
{
    struct tmpl_node_list l = { 0 };
    uint32_t              line = tmpl_cur(p)->line, n_called = p->n_called;
    do {
        if (!tmpl_node_add(p, &l, operand(p))) return NULL;
        if (l.n == 1) n_called = p->n_called;
    } while (tmpl_skip_name(p, word));
    p->n_called = n_called;
    if (l.n == 1) return l.v[0];
    struct tmpl_node *n = tmpl_node_new(p, type, line);
    return n ? tmpl_node_done(p, n, &l) : NULL;
}

/* operands and the operators between them */
static struct tmpl_node *op_chain(struct tmpl_parser *p, enum tmpl_node_type type,
                                  uint8_t (*take)(struct tmpl_parser *),
                                  struct tmpl_node *(*operand)(struct tmpl_parser *))
{
    struct tmpl_node_list l = { 0 };
    uint32_t              line = tmpl_cur(p)->line, cap = 0, n_op = 0;
    uint8_t              *ops = NULL, op = OP_NONE;
    do {
        if (op) {
            if (n_op == cap) {
                uint32_t more = cap ? cap * 2 : 8;
                uint8_t *v = arena_alloc(&p->t->arena, more);
                if (!v) return tmpl_parse_fail(p, line, "template is too large");
                if (n_op) memcpy(v, ops, n_op);
                ops = v;
                cap = more;
            }
            ops[n_op++] = op;
        }
        if (!tmpl_node_add(p, &l, operand(p))) return NULL;
    } while ((op = take(p)));
    if (l.n == 1) return l.v[0];
    struct tmpl_node *n = tmpl_node_new(p, type, line);
    if (!n) return NULL;
    n->u.ops = ops;
    return tmpl_node_done(p, n, &l);
}

static uint8_t take_if(struct tmpl_parser *p, uint8_t lo, uint8_t hi)
{
    const struct tmpl_tok *k = tmpl_cur(p);
    if (k->type != T_OP || k->op < lo || k->op > hi) return OP_NONE;
    tmpl_next(p);
    return k->op;
}
static uint8_t take_pow(struct tmpl_parser *p) { return take_if(p, OP_POW, OP_POW); }
static uint8_t take_mul(struct tmpl_parser *p) { return take_if(p, OP_MUL, OP_MOD); }
static uint8_t take_tilde(struct tmpl_parser *p) { return take_if(p, OP_TILDE, OP_TILDE); }
static uint8_t take_add(struct tmpl_parser *p) { return take_if(p, OP_ADD, OP_SUB); }
static uint8_t take_compare(struct tmpl_parser *p)
{
    uint8_t op = take_if(p, OP_EQ, OP_GE);
    if (op) return op;
    if (tmpl_skip_name(p, "in")) return OP_IN;
    if (tmpl_tok_is(tmpl_cur(p), "not") && tmpl_tok_is(tmpl_ahead(p), "in")) {
        tmpl_next(p);
        tmpl_next(p);
        return OP_NOT_IN;
    }
    return OP_NONE;
}

static struct tmpl_node *parse_operand(struct tmpl_parser *p) { return parse_unary(p, true); }
static struct tmpl_node *parse_pow(struct tmpl_parser *p) { return op_chain(p, N_CHAIN, take_pow, parse_operand); }
static struct tmpl_node *parse_mul(struct tmpl_parser *p) { return op_chain(p, N_CHAIN, take_mul, parse_pow); }
static struct tmpl_node *parse_concat(struct tmpl_parser *p) { return op_chain(p, N_CONCAT, take_tilde, parse_mul); }
static struct tmpl_node *parse_add(struct tmpl_parser *p) { return op_chain(p, N_CHAIN, take_add, parse_concat); }
static struct tmpl_node *parse_compare(struct tmpl_parser *p)
{
    return op_chain(p, N_COMPARE, take_compare, parse_add);
}

static struct tmpl_node *parse_not(struct tmpl_parser *p)
{
    uint32_t line = tmpl_cur(p)->line, n_not = 0;
    while (tmpl_skip_name(p, "not")) n_not++;
    struct tmpl_node *a = parse_compare(p);
    if (n_not > 2) n_not = 2 - n_not % 2; /* not not not x is not x */
    while (a && n_not--) a = unary_node(p, N_NOT, line, a);
    return a;
}
static struct tmpl_node *parse_and(struct tmpl_parser *p) { return word_list(p, "and", N_AND, parse_not); }
static struct tmpl_node *parse_or(struct tmpl_parser *p) { return word_list(p, "or", N_OR, parse_and); }

/* ---------------------------------------------------------------- primary */

static struct tmpl_node *const_node(struct tmpl_parser *p, uint32_t line, struct tv v)
{
    struct tmpl_node *n = tmpl_node_new(p, N_CONST, line);
    if (n) n->val = v;
    return n;
}

/* The digits of a number without its underscores; NULL: no memory. */
static char *number_text(struct tmpl_parser *p, const struct tmpl_tok *k, size_t *n_out)
{
    char  *text = arena_alloc(&p->scratch, (size_t)k->n + 1);
    size_t n = 0;
    if (!text) return tmpl_parse_fail(p, k->line, "template is too large");
    for (uint32_t i = 0; i < k->n; i++)
        if (k->s[i] != '_') text[n++] = k->s[i];
    text[n] = 0;
    *n_out = n;
    return text;
}

static struct tmpl_node *parse_number(struct tmpl_parser *p)
{
    const struct tmpl_tok *k = tmpl_cur(p);
    size_t                 n = 0, skip = 0;
    uint32_t               base = 10;
    struct tv              v;
    char                  *text = number_text(p, k, &n);
    if (!text) return NULL;
    tmpl_next(p);
    if (k->type == T_FLOAT) return const_node(p, k->line, tv_float(strtod(text, NULL)));
    char sign = n > 1 && text[0] == '0' ? (char)(text[1] | 0x20) : 0;
    if (sign == 'x' || sign == 'o' || sign == 'b') {
        base = 2;
        if (sign == 'x') base = 16;
        if (sign == 'o') base = 8;
        skip = 2;
    }
    if (!big_parse(&p->t->arena, text + skip, n - skip, base, false, &v))
        return tmpl_parse_fail(p, k->line, "an integer that is too large: at most %d bits, %d digits", BIG_BITS_MAX,
                               BIG_DIGITS_MAX);
    return const_node(p, k->line, v);
}

/* Neighbouring literals are one string. */
static struct tmpl_node *parse_string(struct tmpl_parser *p)
{
    uint32_t    line = tmpl_cur(p)->line, n = 0;
    const char *s = NULL;
    bool        first = true;
    for (; tmpl_cur(p)->type == T_STR; tmpl_next(p)) {
        const char *part;
        uint32_t    n_part;
        if (!tmpl_unescape(&p->t->arena, tmpl_cur(p)->s, tmpl_cur(p)->n, &part, &n_part))
            return tmpl_parse_fail(p, tmpl_cur(p)->line, "a bad escape in a string");
        if (first) {
            s = part;
            n = n_part;
            first = false;
            continue;
        }
        char *both = arena_alloc(&p->t->arena, (size_t)n + n_part);
        if (!both) return tmpl_parse_fail(p, line, "template is too large");
        memcpy(both, s, n);
        memcpy(both + n, part, n_part);
        s = both;
        n += n_part;
    }
    return const_node(p, line, tv_str(s, n));
}

static struct tmpl_node *parse_items(struct tmpl_parser *p, enum tmpl_node_type type, enum tmpl_op close)
{
    struct tmpl_node_list l = { 0 };
    uint32_t              line = tmpl_cur(p)->line;
    tmpl_next(p);
    while (!(tmpl_cur(p)->type == T_OP && tmpl_cur(p)->op == close)) {
        if (l.n && !tmpl_expect_op(p, OP_COMMA)) return NULL;
        if (tmpl_cur(p)->type == T_OP && tmpl_cur(p)->op == close) break;
        if (!tmpl_node_add(p, &l, tmpl_parse_expr(p))) return NULL;
        if (type == N_DICT && (!tmpl_expect_op(p, OP_COLON) || !tmpl_node_add(p, &l, tmpl_parse_expr(p)))) return NULL;
    }
    tmpl_next(p);
    struct tmpl_node *n = tmpl_node_new(p, type, line);
    return n ? tmpl_node_done(p, n, &l) : NULL;
}

uint8_t tmpl_special_name(const struct tmpl_tok *k)
{
    if (tmpl_tok_is(k, "caller")) return F_CALLER;
    if (tmpl_tok_is(k, "kwargs")) return F_KWARGS;
    return tmpl_tok_is(k, "varargs") ? F_VARARGS : 0;
}

static struct tmpl_node *parse_name(struct tmpl_parser *p)
{
    static const struct {
        const char *name;
        struct tv   v;
    } words[] = {
        { "true", { .kind = TV_BOOL, .u.b = true } },
        { "True", { .kind = TV_BOOL, .u.b = true } },
        { "false", { .kind = TV_BOOL, .u.b = false } },
        { "False", { .kind = TV_BOOL, .u.b = false } },
        { "none", { .kind = TV_NONE } },
        { "None", { .kind = TV_NONE } },
    };
    const struct tmpl_tok *k = tmpl_cur(p);
    tmpl_next(p);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (tmpl_tok_is(k, words[i].name)) return const_node(p, k->line, words[i].v);
    struct tmpl_node *n = tmpl_node_new(p, N_NAME, k->line);
    if (!n || !tmpl_intern(p, k, &n->sym)) return NULL;
    p->t->sym[n->sym].read = true;
    p->reads |= tmpl_special_name(k) & (uint8_t)~p->sets;
    return n;
}

static struct tmpl_node *parse_primary(struct tmpl_parser *p)
{
    const struct tmpl_tok *k = tmpl_cur(p);
    switch (k->type) {
    case T_NAME: return parse_name(p);
    case T_INT:
    case T_FLOAT: return parse_number(p);
    case T_STR: return parse_string(p);
    case T_OP: break;
    default: return tmpl_parse_fail(p, k->line, "an expression is missing");
    }
    if (k->op == OP_LBRACKET) return parse_items(p, N_LIST, OP_RBRACKET);
    if (k->op == OP_LBRACE) return parse_items(p, N_DICT, OP_RBRACE);
    if (k->op != OP_LPAREN) return tmpl_parse_fail(p, k->line, "unexpected '%.*s'", (int)k->n, k->s);
    tmpl_next(p);
    struct tmpl_node *n = tmpl_parse_tuple(p, true, true);
    return n && tmpl_expect_op(p, OP_RPAREN) ? n : NULL;
}

/* ---------------------------------------------------------------- what follows a primary */

/* Names of Python's insides are in no chat template; a template that has one wants out. */
static bool name_allowed(struct tmpl_parser *p, uint32_t line, const char *s, uint32_t n)
{
    if (n < 2 || s[0] != '_' || s[1] != '_') return true;
    tmpl_parse_fail(p, line, "no attribute '%.*s'", (int)(n < 40 ? n : 40), s);
    return false;
}

static struct tmpl_node *parse_subscript(struct tmpl_parser *p, struct tmpl_node *a)
{
    uint32_t               line = tmpl_cur(p)->line;
    const struct tmpl_tok *k = tmpl_ahead(p);
    struct tmpl_node      *n, *part[3] = { 0 };
    if (tmpl_skip_op(p, OP_DOT)) {
        if (k->type == T_NAME) {
            if (!name_allowed(p, line, k->s, k->n) || !(n = tmpl_node_new(p, N_ATTR, line)) ||
                !tmpl_intern(p, k, &n->sym))
                return NULL;
            tmpl_next(p);
        } else if (k->type == T_INT) {
            if (!(n = tmpl_node_new(p, N_ITEM, line)) || !(n->b = parse_number(p))) return NULL;
        } else {
            return tmpl_parse_fail(p, line, "a name must follow '.'");
        }
        n->a = a;
        return tmpl_node_done(p, n, NULL);
    }
    tmpl_next(p); /* [ */
    bool     slice = false;
    uint32_t i = 0;
    for (; i < 3; i++) {
        k = tmpl_cur(p);
        bool empty = k->type == T_OP && (k->op == OP_COLON || k->op == OP_RBRACKET);
        if (!empty && !(part[i] = tmpl_parse_expr(p))) return NULL;
        if (!tmpl_skip_op(p, OP_COLON)) break;
        slice = true;
    }
    if (!tmpl_expect_op(p, OP_RBRACKET)) return NULL;
    if (!slice && !part[0]) return tmpl_parse_fail(p, line, "an expression is missing");
    if (!(n = tmpl_node_new(p, slice ? N_SLICE : N_ITEM, line))) return NULL;
    n->a = a;
    n->b = part[0];
    n->c = part[1];
    n->d = part[2];
    if (!slice && part[0]->type == N_CONST && part[0]->val.kind == TV_STR &&
        !name_allowed(p, line, part[0]->val.u.s, part[0]->val.n))
        return NULL;
    return tmpl_node_done(p, n, NULL);
}

/* "*list" or "**dict" among the arguments of n: each once, and nothing but names behind the first. */
static bool parse_star(struct tmpl_parser *p, struct tmpl_node *n, struct tmpl_node **to)
{
    uint32_t line = tmpl_cur(p)->line;
    if (*to || n->d) {
        tmpl_parse_fail(p, line, "a second '*' or '**' among the arguments");
        return false;
    }
    tmpl_next(p);
    return (*to = tmpl_parse_expr(p)) != NULL;
}

/* ( ... ) */
static bool parse_args(struct tmpl_parser *p, struct tmpl_node *n)
{
    struct tmpl_node_list l = { 0 };
    uint32_t              cap = 0;
    if (!tmpl_expect_op(p, OP_LPAREN)) return false;
    for (bool first = true; !tmpl_skip_op(p, OP_RPAREN); first = false) {
        if (!first) {
            if (!tmpl_expect_op(p, OP_COMMA)) return false;
            if (tmpl_skip_op(p, OP_RPAREN)) break;
        }
        const struct tmpl_tok *k = tmpl_cur(p), *after = tmpl_ahead(p);
        if (k->type == T_OP && (k->op == OP_MUL || k->op == OP_POW)) {
            if (!parse_star(p, n, k->op == OP_MUL ? &n->c : &n->d)) return false;
            continue;
        }
        if (n->d) {
            tmpl_parse_fail(p, k->line, "an argument after '**'");
            return false;
        }
        if (k->type != T_NAME || after->type != T_OP || after->op != OP_ASSIGN) {
            if (n->c) {
                tmpl_parse_fail(p, k->line, "a positional argument after '*'");
                return false;
            }
            if (n->n_kw) {
                tmpl_parse_fail(p, k->line, "a positional argument after one by name");
                return false;
            }
            if (!tmpl_node_add(p, &l, tmpl_parse_expr(p))) return false;
            continue;
        }
        if (n->n_kw == cap) {
            uint32_t        more = cap ? cap * 2 : 4;
            struct tmpl_kw *v = arena_alloc(&p->t->arena, more * sizeof *v);
            if (!v) {
                tmpl_parse_fail(p, k->line, "template is too large");
                return false;
            }
            if (cap) memcpy(v, n->kw, cap * sizeof *v);
            n->kw = v;
            cap = more;
        }
        struct tmpl_kw *kw = &n->kw[n->n_kw];
        *kw = (struct tmpl_kw){ .name = k->s, .n = k->n };
        if (!name_allowed(p, k->line, k->s, k->n)) return false;
        tmpl_next(p);
        tmpl_next(p);
        if (!(kw->value = tmpl_parse_expr(p))) return false;
        n->n_kw++;
    }
    return tmpl_node_done(p, n, &l) != NULL;
}

static struct tmpl_node *parse_call(struct tmpl_parser *p, struct tmpl_node *a)
{
    struct tmpl_node *n = tmpl_node_new(p, N_CALL, tmpl_cur(p)->line);
    if (!n) return NULL;
    n->a = a;
    if (!parse_args(p, n)) return NULL;
    if (a->type != N_NAME) return n;
    if (p->n_called == p->cap_called) {
        uint32_t           cap = p->cap_called ? p->cap_called * 2 : 32;
        struct tmpl_node **v = arena_alloc(&p->scratch, cap * sizeof *v);
        if (!v) return tmpl_parse_fail(p, n->line, "template is too large");
        if (p->n_called) memcpy(v, p->called, p->n_called * sizeof *v);
        p->called = v;
        p->cap_called = cap;
    }
    p->called[p->n_called++] = n;
    return n;
}

static struct tmpl_node *parse_postfix(struct tmpl_parser *p, struct tmpl_node *a)
{
    while (a) {
        const struct tmpl_tok *k = tmpl_cur(p);
        if (k->type != T_OP) break;
        if (k->op == OP_DOT || k->op == OP_LBRACKET)
            a = parse_subscript(p, a);
        else if (k->op == OP_LPAREN)
            a = parse_call(p, a);
        else
            break;
    }
    return a;
}

/* select('name'), map('name'): the name may be checked now. */
static bool check_named(struct tmpl_parser *p, const struct tmpl_node *n)
{
    const char *f = n->u.fn->name;
    bool        attr = !strcmp(f, "selectattr") || !strcmp(f, "rejectattr"),
         plain = !strcmp(f, "select") || !strcmp(f, "reject");
    uint32_t at = attr ? 1 : 0;
    if ((!attr && !plain && strcmp(f, "map")) || n->n <= at || n->list[at]->type != N_CONST) return true;
    const struct tv *v = &n->list[at]->val;
    bool             test = attr || plain;
    if (v->kind != TV_STR || (test ? tmpl_find(tmpl_tests, v->u.s, v->n) : tmpl_find_filter(v->u.s, v->n))) return true;
    tmpl_parse_fail(p, n->line, "no %s named '%.*s'", test ? "test" : "filter", (int)(v->n < 40 ? v->n : 40), v->u.s);
    return false;
}

struct tmpl_node *tmpl_parse_filters(struct tmpl_parser *p, struct tmpl_node *in, bool begun)
{
    while (begun || tmpl_skip_op(p, OP_PIPE)) {
        begun = false;
        const struct tmpl_tok *k = tmpl_cur(p);
        struct tmpl_node      *n = tmpl_node_new(p, N_FILTER, k->line);
        if (!n) return NULL;
        if (k->type != T_NAME) return tmpl_parse_fail(p, k->line, "a filter's name must follow '|'");
        if (!(n->u.fn = tmpl_find_filter(k->s, k->n)))
            return tmpl_parse_fail(p, k->line, "no filter named '%.*s'", (int)(k->n < 40 ? k->n : 40), k->s);
        tmpl_next(p);
        n->a = in;
        if (tmpl_cur(p)->type == T_OP && tmpl_cur(p)->op == OP_LPAREN) {
            if (!parse_args(p, n)) return NULL;
        } else if (!tmpl_node_done(p, n, NULL)) {
            return NULL;
        }
        if (!check_named(p, n)) return NULL;
        in = n;
    }
    return in;
}

static struct tmpl_node *parse_test(struct tmpl_parser *p, struct tmpl_node *a)
{
    bool                   negated = tmpl_skip_name(p, "not");
    const struct tmpl_tok *k = tmpl_cur(p);
    struct tmpl_node      *n = tmpl_node_new(p, N_TEST, k->line);
    struct tmpl_node_list  l = { 0 };
    if (!n) return NULL;
    if (k->type != T_NAME) return tmpl_parse_fail(p, k->line, "a test's name must follow 'is'");
    if (!(n->u.fn = tmpl_find(tmpl_tests, k->s, k->n)))
        return tmpl_parse_fail(p, k->line, "no test named '%.*s'", (int)(k->n < 40 ? k->n : 40), k->s);
    tmpl_next(p);
    n->a = a;
    bool about_being = !strcmp(n->u.fn->name, "defined") || !strcmp(n->u.fn->name, "undefined");
    if (about_being && a->type == N_NAME) p->t->sym[a->sym].asked = true;
    const struct tmpl_tok *v = tmpl_cur(p);
    bool                   starts = v->type == T_STR || v->type == T_INT || v->type == T_FLOAT ||
                  (v->type == T_OP && (v->op == OP_LBRACKET || v->op == OP_LBRACE)) ||
                  (v->type == T_NAME && !tmpl_tok_is(v, "else") && !tmpl_tok_is(v, "or") && !tmpl_tok_is(v, "and") &&
                   !tmpl_tok_is(v, "if"));
    if (v->type == T_OP && v->op == OP_LPAREN) {
        if (!parse_args(p, n)) return NULL;
    } else if (starts) {
        if (tmpl_tok_is(v, "is")) return tmpl_parse_fail(p, v->line, "tests cannot be chained with 'is'");
        struct tmpl_node *arg = parse_primary(p);
        if (!tmpl_node_add(p, &l, arg ? parse_postfix(p, arg) : NULL) || !tmpl_node_done(p, n, &l)) return NULL;
    } else if (!tmpl_node_done(p, n, NULL)) {
        return NULL;
    }
    return negated ? unary_node(p, N_NOT, k->line, n) : n;
}

static struct tmpl_node *parse_unary(struct tmpl_parser *p, bool with_filter)
{
    if (!tmpl_enter(p)) return NULL;
    uint32_t          line = tmpl_cur(p)->line;
    struct tmpl_node *n;
    if (tmpl_skip_op(p, OP_SUB))
        n = unary_node(p, N_NEG, line, parse_unary(p, false));
    else if (tmpl_skip_op(p, OP_ADD))
        n = unary_node(p, N_POS, line, parse_unary(p, false));
    else
        n = parse_primary(p);
    n = n ? parse_postfix(p, n) : NULL;
    while (n && with_filter) {
        const struct tmpl_tok *k = tmpl_cur(p);
        if (k->type == T_OP && k->op == OP_PIPE)
            n = tmpl_parse_filters(p, n, false);
        else if (tmpl_skip_name(p, "is"))
            n = parse_test(p, n);
        else if (k->type == T_OP && k->op == OP_LPAREN)
            n = parse_call(p, n);
        else
            break;
    }
    tmpl_leave(p);
    return n;
}

struct tmpl_node *tmpl_parse_postfix_call(struct tmpl_parser *p)
{
    struct tmpl_node *n = parse_unary(p, false);
    if (n && n->type != N_CALL) return tmpl_parse_fail(p, n->line, "a call must follow 'call'");
    return n;
}

/* ---------------------------------------------------------------- targets of set and for */

static struct tmpl_node *parse_one_target(struct tmpl_parser *p, bool with_ns)
{
    const struct tmpl_tok *k = tmpl_cur(p);
    if (tmpl_skip_op(p, OP_LPAREN)) {
        if (!tmpl_enter(p)) return NULL;
        struct tmpl_node *n = tmpl_parse_target(p, with_ns);
        tmpl_leave(p);
        return n && tmpl_expect_op(p, OP_RPAREN) ? n : NULL;
    }
    if (k->type != T_NAME) return tmpl_parse_fail(p, k->line, "a name to assign to is missing");
    struct tmpl_node *n = tmpl_node_new(p, N_NAME, k->line);
    if (!n || !tmpl_intern(p, k, &n->sym)) return NULL;
    tmpl_next(p);
    if (!with_ns || !tmpl_skip_op(p, OP_DOT)) {
        p->t->sym[n->sym].assigned = true;
        p->sets |= tmpl_special_name(k);
        return n;
    }
    p->t->sym[n->sym].read = true;
    const struct tmpl_tok *attr = tmpl_cur(p);
    struct tmpl_node      *ns = tmpl_node_new(p, N_NS_ATTR, k->line);
    if (attr->type != T_NAME) return tmpl_parse_fail(p, k->line, "a name must follow '.'");
    if (!name_allowed(p, attr->line, attr->s, attr->n) || !ns || !tmpl_intern(p, attr, &ns->sym)) return NULL;
    tmpl_next(p);
    ns->a = n;
    return tmpl_node_done(p, ns, NULL);
}

struct tmpl_node *tmpl_parse_target(struct tmpl_parser *p, bool with_ns)
{
    struct tmpl_node_list l = { 0 };
    uint32_t              line = tmpl_cur(p)->line;
    bool                  comma = false;
    do {
        const struct tmpl_tok *k = tmpl_cur(p);
        if (comma && k->type != T_NAME && !(k->type == T_OP && k->op == OP_LPAREN)) break;
        if (!tmpl_node_add(p, &l, parse_one_target(p, with_ns))) return NULL;
    } while (tmpl_skip_op(p, OP_COMMA) && (comma = true));
    if (!comma) return l.v[0];
    struct tmpl_node *n = tmpl_node_new(p, N_TUPLE, line);
    return n ? tmpl_node_done(p, n, &l) : NULL;
}
