/* tmpl_node: the parser's tools: nodes of the tree, names, the token it stands at, and its errors. */
#include "api/jinja/tmpl_ast.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    HEIGHT_MAX = 4 * TMPL_NEST_MAX
}; /* of the tree: chains such as a.b.c.d grow it without recursion of the parser */

void *tmpl_parse_fail(struct tmpl_parser *p, uint32_t line, const char *fmt, ...)
{
    if (p->failed) return NULL;
    p->failed = true;
    int n = snprintf(p->err, p->err_bytes, "line %u: ", line);
    if (n < 0 || (size_t)n >= p->err_bytes) return NULL;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(p->err + n, p->err_bytes - (size_t)n, fmt, ap);
    va_end(ap);
    for (char *c = p->err; *c; c++) /* names from the template may hold anything */
        if ((unsigned char)*c < 0x20 || *c == 0x7f) *c = '?';
    return NULL;
}

struct tmpl_node *tmpl_node_new(struct tmpl_parser *p, enum tmpl_node_type type, uint32_t line)
{
    struct tmpl_node *n = arena_calloc(&p->t->arena, 1, sizeof *n);
    if (!n) return tmpl_parse_fail(p, line, "template is too large");
    n->type = (uint8_t)type;
    n->line = line;
    n->height = 1;
    return n;
}

bool tmpl_node_add(struct tmpl_parser *p, struct tmpl_node_list *l, struct tmpl_node *n)
{
    if (!n) return false;
    if (l->n == l->cap) {
        uint32_t           cap = l->cap ? l->cap * 2 : 4;
        struct tmpl_node **v = arena_alloc(&p->t->arena, cap * sizeof *v);
        if (!v) {
            tmpl_parse_fail(p, n->line, "template is too large");
            return false;
        }
        if (l->n) memcpy(v, l->v, l->n * sizeof *v);
        l->v = v;
        l->cap = cap;
    }
    l->v[l->n++] = n;
    return true;
}

struct tmpl_node *tmpl_node_done(struct tmpl_parser *p, struct tmpl_node *n, const struct tmpl_node_list *l)
{
    if (l) {
        n->list = l->v;
        n->n = l->n;
    }
    uint32_t          h = 0;
    struct tmpl_node *kid[] = { n->a, n->b, n->c, n->d };
    for (size_t i = 0; i < 4; i++)
        if (kid[i] && kid[i]->height > h) h = kid[i]->height;
    for (uint32_t i = 0; i < n->n; i++)
        if (n->list && n->list[i] && n->list[i]->height > h) h = n->list[i]->height;
    for (uint32_t i = 0; i < n->n_kw; i++)
        if (n->kw[i].value && n->kw[i].value->height > h) h = n->kw[i].value->height;
    if (h >= HEIGHT_MAX) return tmpl_parse_fail(p, n->line, "nested too deeply");
    n->height = (uint16_t)(h + 1);
    return n;
}

bool tmpl_intern(struct tmpl_parser *p, const struct tmpl_tok *name, uint32_t *sym_out)
{
    struct tmpl *t = p->t;
    for (uint32_t i = 0; i < t->n_sym; i++)
        if (t->sym[i].n == name->n && !memcmp(t->sym[i].s, name->s, name->n)) {
            *sym_out = i;
            return true;
        }
    if (t->n_sym == TMPL_SYMS_MAX) {
        tmpl_parse_fail(p, name->line, "too many names");
        return false;
    }
    t->sym[t->n_sym] = (struct tmpl_sym){ .s = name->s, .n = name->n };
    *sym_out = t->n_sym++;
    return true;
}

bool tmpl_enter(struct tmpl_parser *p)
{
    if (p->depth >= 2 * TMPL_NEST_MAX) {
        tmpl_parse_fail(p, tmpl_cur(p)->line, "nested too deeply");
        return false;
    }
    p->depth++; /* an expression in brackets is two levels: expression and operand */
    return true;
}

bool tmpl_tok_is(const struct tmpl_tok *k, const char *name)
{
    return k->type == T_NAME && k->n == strlen(name) && !memcmp(k->s, name, k->n);
}

bool tmpl_skip_name(struct tmpl_parser *p, const char *name)
{
    if (!tmpl_tok_is(tmpl_cur(p), name)) return false;
    tmpl_next(p);
    return true;
}

bool tmpl_skip_op(struct tmpl_parser *p, enum tmpl_op op)
{
    if (tmpl_cur(p)->type != T_OP || tmpl_cur(p)->op != op) return false;
    tmpl_next(p);
    return true;
}

static const char *tok_text(const struct tmpl_tok *k, int *n)
{
    *n = k->n < 40 ? (int)k->n : 40;
    if (k->type == T_OP || k->type == T_NAME || k->type == T_INT || k->type == T_FLOAT) return k->s;
    const char *s = "end of tag";
    if (k->type == T_EOF) s = "end of template";
    if (k->type == T_STR) s = "a string";
    if (k->type == T_DATA) s = "text";
    *n = (int)strlen(s);
    return s;
}

void *tmpl_unexpected(struct tmpl_parser *p, const char *wanted)
{
    int         n;
    const char *s = tok_text(tmpl_cur(p), &n);
    return tmpl_parse_fail(p, tmpl_cur(p)->line, "%s expected, got '%.*s'", wanted, n, s);
}

bool tmpl_expect_op(struct tmpl_parser *p, enum tmpl_op op)
{
    static const char *const names[] = {
        [OP_COLON] = "':'",    [OP_COMMA] = "','",  [OP_LPAREN] = "'('", [OP_RPAREN] = "')'",
        [OP_RBRACKET] = "']'", [OP_RBRACE] = "'}'", [OP_ASSIGN] = "'='"
    };
    if (tmpl_skip_op(p, op)) return true;
    tmpl_unexpected(p, names[op] ? names[op] : "an operator");
    return false;
}

bool tmpl_expect_end(struct tmpl_parser *p)
{
    if (tmpl_cur(p)->type != T_BLOCK_END) {
        tmpl_unexpected(p, "'%}'");
        return false;
    }
    tmpl_next(p);
    return true;
}
