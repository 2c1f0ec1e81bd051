/* tmpl_eval: the state of one rendering: variables, budgets, output.   Thread: one, during tmpl_render. */
#pragma once
#include "api/jinja/template.h"
#include "api/jinja/tmpl_ast.h"
#include "api/jinja/tmpl_value.h"

enum {
    TMPL_FRAMES_PER_CALL = 8,  /* the C recursion of expressions and statements is at most depth_max times this */
    TMPL_DATA_DEPTH_MAX = 100, /* nesting of lists and dicts that are printed or compared */
};

struct tmpl_scope {
    struct tmpl_scope *up;
    uint32_t           n, cap;
    bool               kept; /* a macro was defined in it and reads its variables later */
    struct tmpl_var {
        uint32_t  sym;
        struct tv v;
    } * var;
};
struct tv_macro {
    const struct tmpl_node *node;
    struct tmpl_scope      *scope; /* the scope of its definition, where its free names are looked up when it runs */
};

struct tmpl_eval {
    const struct tmpl *t;
    struct tmpl_limits lim;
    struct arena       arena;
    struct buf        *out;
    struct tmpl_scope *scope, *root; /* innermost scope; scope of the template itself, which a block sees */
    const struct tv   *given;        /* [n_sym] the caller's variables and the globals; TV_ABSENT: neither */
    struct tv          input;        /* the text that a filter block or block set passes to its filters */
    uint64_t           steps;        /* left */
    uint32_t           frames, calls, data_depth;
    uint32_t           line; /* for error messages */
    int64_t            now_s;
    char              *area; /* memory for strings; the last one grows in place when another is appended */
    size_t             area_n, area_cap;
    enum status        st;
    char              *err;
    size_t             err_bytes;
};

/* Record a failure, with the line: tmpl_fail ST_INVALID, tmpl_over ST_TOO_LARGE. The first failure stays. Both return
 * false. */
bool  tmpl_fail(struct tmpl_eval *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
bool  tmpl_over(struct tmpl_eval *e, const char *what);
void *tmpl_alloc(struct tmpl_eval *e, size_t bytes);
/* Charge n steps; charge a pass over n bytes. False: the steps are used up, which tmpl_over has recorded. */
static inline bool tmpl_steps(struct tmpl_eval *e, uint64_t n)
{
    if (n > e->steps) {
        e->steps = 0;
        return tmpl_over(e, "too many steps");
    }
    e->steps -= n;
    return true;
}
static inline bool tmpl_bytes(struct tmpl_eval *e, size_t n) { return n < 256 || tmpl_steps(e, n / 256); }

/* To build a string: tmpl_mark, append to e->out, tmpl_take, which removes the text from e->out. This can be nested. */
static inline size_t tmpl_mark(const struct tmpl_eval *e) { return e->out->n; }
bool                 tmpl_take(struct tmpl_eval *e, size_t mark, struct tv *out);
bool                 tmpl_concat(struct tmpl_eval *e, const struct tv *a, const struct tv *b, struct tv *out);

/* Arguments of a filter, test, function or method. For a function with a signature pos has them all, in its order;
 * TV_ABSENT: not given. */
struct tmpl_args {
    const struct tv      *pos; /* [n] */
    uint32_t              n;
    const struct tmpl_kw *kw;     /* [n_kw] names */
    const struct tv      *kw_val; /* [n_kw] values */
    uint32_t              n_kw;
};
typedef bool tmpl_fn(struct tmpl_eval *e, const struct tv *self, const struct tmpl_args *a, struct tv *out);
enum { TMPL_ARGS_MAX = 8 };
struct tmpl_func {
    const char *name;
    tmpl_fn    *fn;
    const char *sig;  /* parameters, "old,new,count"; "": none; NULL: fn reads struct tmpl_args itself */
    uint8_t     need; /* number of parameters, from the first, that must be given */
    uint32_t    on;   /* methods: bits 1 << kind of self */
};
extern const struct tmpl_func tmpl_filters[], tmpl_filters_text[], tmpl_filters_layout[], tmpl_filters_html[],
    tmpl_tests[], tmpl_globals[]; /* a NULL name ends each table */
/* Look a function up: in one table, in all tables of filters, and among the methods of self's type. NULL: there is
 * none. */
const struct tmpl_func *tmpl_find(const struct tmpl_func *table, const char *name, size_t n);
const struct tmpl_func *tmpl_find_filter(const char *name, size_t n);
const struct tmpl_func *tmpl_find_method(const struct tv *self, const char *name, size_t n);
/* Calls f with the arguments a; self is what a filter, test or method works on. Writes *out; false: an error was
 * recorded. */
bool tmpl_apply(struct tmpl_eval *e, const struct tmpl_func *f, const struct tv *self, const struct tmpl_args *a,
                struct tv *out);

bool tmpl_value(struct tmpl_eval *e, const struct tmpl_node *n, struct tv *out); /* n: an expression */
bool tmpl_get_attr(struct tmpl_eval *e, const struct tv *v, const char *name, size_t n, struct tv *out); /* v.name */
bool tmpl_get_item(struct tmpl_eval *e, const struct tv *v, const struct tv *key, struct tv *out);       /* v[key] */
/* v[from:to:step]; each bound may be TV_NONE. */
bool tmpl_slice(struct tmpl_eval *e, const struct tv *v, const struct tv *from, const struct tv *to,
                const struct tv *step, struct tv *out);
/* a op b, of arithmetic and of comparison. False: an error was recorded, of a type for example. */
bool tmpl_binary(struct tmpl_eval *e, uint8_t op, const struct tv *a, const struct tv *b, struct tv *out);
bool tmpl_compare(struct tmpl_eval *e, uint8_t op, const struct tv *a, const struct tv *b, bool *out);
/* f(a), whatever f is; a value that cannot be called is an error. tmpl_call_macro: the text of the macro's body. */
bool tmpl_call(struct tmpl_eval *e, const struct tv *f, const struct tmpl_args *a, struct tv *out);
bool tmpl_call_macro(struct tmpl_eval *e, const struct tv_macro *m, const struct tmpl_args *a, struct tv *out);
/* loop(items): runs a recursive loop one level deeper; *out is its output. */
bool tmpl_call_loop(struct tmpl_eval *e, const struct tv_loop *l, const struct tv *items, struct tv *out);
bool tmpl_call_block(struct tmpl_eval *e, const struct tmpl_node *block, struct tv *out);
/* An attribute of a macro. False: there is no such attribute, or e has failed. */
bool tmpl_macro_attr(struct tmpl_eval *e, const struct tv_macro *m, const char *name, size_t n, struct tv *out);
/* Evaluates the arguments of an N_CALL, N_FILTER or N_TEST. */
bool tmpl_arguments(struct tmpl_eval *e, const struct tmpl_node *n, struct tmpl_args *a);

enum tmpl_flow { TMPL_NEXT, TMPL_BREAK, TMPL_CONTINUE, TMPL_FAIL };
enum tmpl_flow   tmpl_run(struct tmpl_eval *e, const struct tmpl_node *n); /* n: a statement */
bool             tmpl_set(struct tmpl_eval *e, uint32_t sym, struct tv v); /* in the innermost scope */
const struct tv *tmpl_get(const struct tmpl_eval *e, uint32_t sym);        /* NULL: there is no such variable */
/* Opens a scope within the one at hand. The caller saves e->scope before, and puts it back after. False: no memory
 * is left. */
bool tmpl_scope_push(struct tmpl_eval *e);

/* Python's % operator on a string. */
bool tmpl_percent(struct tmpl_eval *e, const struct tv *fmt, const struct tv *args, uint32_t n_arg, struct tv *out);
