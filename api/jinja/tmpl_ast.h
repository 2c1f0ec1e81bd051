/* tmpl_ast: a parsed template.   Thread: the parser's, then const and shared.
 * TMPL_NEST_MAX bounds the height of each tree, so recursion over a tree is bounded too. */
#pragma once
#include "api/jinja/tmpl_value.h"
#include "base/arena.h"

enum {
    TMPL_NEST_MAX = 128,     /* parentheses, brackets and blocks inside each other */
    TMPL_SYMS_MAX = 4096,    /* different names */
    TMPL_TEXT_MAX = 4 << 20, /* bytes of a template */
    TMPL_BLOCKS_MAX = 64,    /* {% block %} */
};

enum tmpl_op {
    OP_NONE,
    OP_ADD,
    OP_SUB,
    OP_MUL,
    OP_DIV,
    OP_FLOORDIV,
    OP_MOD,
    OP_POW,
    OP_EQ,
    OP_NE,
    OP_LT,
    OP_LE,
    OP_GT,
    OP_GE,
    OP_IN,
    OP_NOT_IN,
    OP_TILDE,
    OP_ASSIGN,
    OP_DOT,
    OP_COLON,
    OP_PIPE,
    OP_COMMA,
    OP_SEMI,
    OP_LPAREN,
    OP_RPAREN,
    OP_LBRACKET,
    OP_RBRACKET,
    OP_LBRACE,
    OP_RBRACE,
};

enum tmpl_node_type {
    /* expressions */
    N_CONST,   /* val */
    N_NAME,    /* sym */
    N_LIST,    /* list: elements */
    N_TUPLE,   /* list: elements */
    N_DICT,    /* list: key, value, key, value */
    N_ATTR,    /* a . sym */
    N_ITEM,    /* a [ b ] */
    N_SLICE,   /* a [ b : c : d ], each of b, c, d may be NULL */
    N_CALL,    /* a ( list, kw, *c, **d ); c and d may be NULL */
    N_FILTER,  /* a | fn(list, kw, *c, **d); a NULL: the input is e->input */
    N_TEST,    /* a is fn(list, kw, *c, **d) */
    N_NOT,     /* a */
    N_NEG,     /* a */
    N_POS,     /* a */
    N_CHAIN,   /* list[0] ops[0] list[1] ops[1] ...: from left to right, operators of one precedence */
    N_COMPARE, /* the same fields; a chain of comparisons as in Python */
    N_CONCAT,  /* list */
    N_AND,     /* list */
    N_OR,      /* list */
    N_COND,    /* a if b else c; c may be NULL */
    /* statements */
    N_BODY,      /* list */
    N_DATA,      /* val: text */
    N_OUT,       /* {{ a }} */
    N_IF,        /* list: test, body, test, body, ...; c: else or NULL */
    N_FOR,       /* for a in b if d: c; else: list[0] if n; d may be NULL; F_RECURSIVE */
    N_SET,       /* a = b */
    N_SET_BLOCK, /* a = the output of body c after the filters b (may be NULL) */
    N_MACRO, /* sym; list: defaults of param[n], N_BODY: none; c: body; F_CALLER, F_KWARGS, F_VARARGS, F_OWN_CALLER */
    N_FILTER_BLOCK, /* the output of body c after the filters b */
    N_CALL_BLOCK,   /* call a (an N_CALL); d (an N_MACRO) is its caller() */
    N_WITH,         /* list: target, value, ...; c: body */
    N_BLOCK,        /* sym; c: body; F_SCOPED, F_REQUIRED */
    N_BREAK,
    N_CONTINUE,
    /* Targets of set and for are N_NAME, N_TUPLE of targets, and: */
    N_NS_ATTR, /* namespace a (N_NAME) . sym */
};

enum tmpl_flag {
    F_RECURSIVE = 1,
    F_CALLER = 2,      /* the macro's body reads caller, which is no parameter */
    F_KWARGS = 4,      /* the body reads kwargs, which takes the arguments of unknown names */
    F_VARARGS = 8,     /* the body reads varargs, which takes the surplus arguments */
    F_OWN_CALLER = 16, /* the body reads caller, which is one of the parameters */
    F_SCOPED = 32,
    F_REQUIRED = 64,
};
struct tmpl_kw {
    const char       *name;
    uint32_t          n;
    struct tmpl_node *value;
};
struct tmpl_node {
    uint8_t            type, flags; /* flags: enum tmpl_flag */
    uint16_t           height;
    uint32_t           line, sym, n, n_kw;
    struct tmpl_node  *a, *b, *c, *d;
    struct tmpl_node **list;
    union {
        uint8_t                *ops;
        uint32_t               *param;
        const struct tmpl_func *fn;
    } u;
    struct tmpl_kw *kw;
    struct tv       val;
};

struct tmpl_sym {
    const char *s;
    uint32_t    n;
    bool        read, assigned;
    bool        asked; /* the template tests it with "is defined": it may be missing */
};
struct tmpl {
    struct arena      arena;
    char             *text; /* [n_text] the source, line ends as \n */
    size_t            n_text;
    struct tmpl_sym  *sym;
    uint32_t          n_sym;
    struct tmpl_node *body;
    uint32_t          sym_loop, sym_caller, sym_kwargs, sym_varargs; /* UINT32_MAX: the template does not name it */
    struct tmpl_node *block[TMPL_BLOCKS_MAX];
    uint32_t          n_block;
    bool              wants_parts;
};

/* Lexer. */
enum tmpl_tok_type {
    T_EOF,
    T_DATA,
    T_OUT_BEGIN,
    T_OUT_END,
    T_BLOCK_BEGIN,
    T_BLOCK_END,
    T_NAME,
    T_INT,
    T_FLOAT,
    T_STR,
    T_OP
};
struct tmpl_tok {
    uint8_t     type, op;
    uint32_t    line, n;
    const char *s;
};
struct tmpl_toks {
    struct tmpl_tok *v;
    uint32_t         n, cap;
};
/* text: line ends are \n, and there is none at the end. The tokens point into text. False: err has the reason. */
bool tmpl_lex(struct arena *a, const char *text, size_t n, struct tmpl_toks *out, char *err, size_t err_bytes);
/* Replaces the escapes in the inside of a string literal; the result lies in the arena. */
bool tmpl_unescape(struct arena *a, const char *s, size_t n, const char **s_out, uint32_t *n_out);

/* Parser: tmpl_parse.c has the statements, tmpl_expr.c the expressions, tmpl_node.c the functions of both. A result of
 * NULL or false is an error, and err has the reason. */
struct tmpl_parser {
    struct tmpl     *t;
    struct arena     scratch;
    struct tmpl_toks toks;
    uint32_t         pos, depth, loops;
    uint8_t reads, sets; /* F_CALLER, F_KWARGS, F_VARARGS: names that the macro's body reads; that it sets first */
    struct tmpl_node **called; /* [n_called] N_CALL of bare names that every rendering meets, checked at the end */
    uint32_t           n_called, cap_called;
    bool               failed;
    char              *err;
    size_t             err_bytes;
};
bool tmpl_parse_text(struct tmpl *t, char *err, size_t err_bytes); /* parses t->text into t->body */

struct tmpl_node_list {
    struct tmpl_node **v;
    uint32_t           n, cap;
};
void *tmpl_parse_fail(struct tmpl_parser *p, uint32_t line, const char *fmt, ...)
    __attribute__((format(printf, 3, 4))); /* writes err; returns NULL */
/* A node without children, in the arena of the template. NULL: the template is too large, which err says. */
struct tmpl_node *tmpl_node_new(struct tmpl_parser *p, enum tmpl_node_type type, uint32_t line);
bool tmpl_node_add(struct tmpl_parser *p, struct tmpl_node_list *l, struct tmpl_node *n); /* n NULL: returns false */
struct tmpl_node *tmpl_node_done(struct tmpl_parser *p, struct tmpl_node *n,
                                 const struct tmpl_node_list *l); /* sets list and height */
/* The number of a name; the same name has the same number. False: the template has too many names, which err says. */
bool tmpl_intern(struct tmpl_parser *p, const struct tmpl_tok *name, uint32_t *sym_out);
bool tmpl_enter(struct tmpl_parser *p); /* one level deeper; tmpl_leave ends it */
/* tmpl_leave ends tmpl_enter. Then: the token at hand, the token behind it, and the step to that one. The last token
 * is T_EOF, which is never passed: */
static inline void                   tmpl_leave(struct tmpl_parser *p) { p->depth--; }
static inline const struct tmpl_tok *tmpl_cur(const struct tmpl_parser *p) { return &p->toks.v[p->pos]; }
static inline const struct tmpl_tok *tmpl_ahead(const struct tmpl_parser *p)
{
    return &p->toks.v[p->pos + (p->toks.v[p->pos].type != T_EOF)];
}
static inline void tmpl_next(struct tmpl_parser *p) { p->pos += p->toks.v[p->pos].type != T_EOF; }
bool               tmpl_tok_is(const struct tmpl_tok *k, const char *name); /* whether k is this name */
uint8_t            tmpl_special_name(const struct tmpl_tok *k);             /* F_CALLER, F_KWARGS, F_VARARGS, or 0 */
/* Pass the token at hand if it is this name or this operator. The first two: false, and nothing has moved, if it is
 * another one. tmpl_expect_op: that is an error, which err says: */
bool  tmpl_skip_name(struct tmpl_parser *p, const char *name);
bool  tmpl_skip_op(struct tmpl_parser *p, enum tmpl_op op);
bool  tmpl_expect_op(struct tmpl_parser *p, enum tmpl_op op);
bool  tmpl_expect_end(struct tmpl_parser *p);                     /* end of a tag */
void *tmpl_unexpected(struct tmpl_parser *p, const char *wanted); /* error at this token; returns NULL */

struct tmpl_node *tmpl_parse_expr(struct tmpl_parser *p); /* an expression, the inline if included */
/* a, b, c or a single expression. */
struct tmpl_node *tmpl_parse_tuple(struct tmpl_parser *p, bool with_cond, bool parens);
struct tmpl_node *tmpl_parse_target(struct tmpl_parser *p, bool with_ns);
struct tmpl_node *tmpl_parse_filters(struct tmpl_parser *p, struct tmpl_node *in, bool begun);
struct tmpl_node *tmpl_parse_postfix_call(struct tmpl_parser *p); /* an expression that must be a call */
