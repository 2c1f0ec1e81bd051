/* tmpl_eval: one rendering of a template: its variables, its budgets, its output.   Thread: one, during tmpl_render. */
#pragma once
#include "api/jinja/template.h"
#include "api/jinja/tmpl_ast.h"
#include "api/jinja/tmpl_value.h"

enum {
    TMPL_FRAMES_PER_CALL = 8,  /* C recursion allowed: depth_max times this, whatever macros and expressions nest */
    TMPL_DATA_DEPTH_MAX = 100, /* of lists and dicts that are printed or compared */
};

struct tmpl_scope {
    struct tmpl_scope *up;
    uint32_t           n, cap;
    bool               kept; /* a macro defined here still looks at it */
    struct tmpl_var {
        uint32_t  sym;
        struct tv v;
    } * var;
};
struct tv_macro {
    const struct tmpl_node *node;
    struct tmpl_scope      *scope; /* where it was defined: free names are looked up there, when it runs */
};

struct tmpl_eval {
    const struct tmpl *t;
    struct tmpl_limits lim;
    struct arena       arena;
    struct buf        *out;
    struct tmpl_scope *scope, *root; /* root: the template's own variables, which are what a block sees */
    const struct tv   *given;        /* [n_sym]: the caller's variables and the globals; ABSENT where none */
    struct tv          input;        /* what a filter block or a block set put through its filters */
    uint64_t           steps;
    uint32_t           frames, calls, data_depth;
    uint32_t           line;
    int64_t            now_s;
    char              *area; /* concatenations grow here: the last one in place */
    size_t             area_n, area_cap;
    enum status        st;
    char              *err;
    size_t             err_bytes;
};

/* The first failure stays. Both return false. */
bool  tmpl_fail(struct tmpl_eval *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
bool  tmpl_over(struct tmpl_eval *e, const char *what);
void *tmpl_alloc(struct tmpl_eval *e, size_t bytes);
/* Work done: n steps, or a pass over so many bytes. */
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

/* Building a string: mark, append to e->out, take. Nests. */
static inline size_t tmpl_mark(const struct tmpl_eval *e) { return e->out->n; }
bool                 tmpl_take(struct tmpl_eval *e, size_t mark, struct tv *out);
bool                 tmpl_concat(struct tmpl_eval *e, const struct tv *a, const struct tv *b, struct tv *out);

/* Arguments of a filter, test, function or method. With a signature they are in pos[], in its order, ABSENT where not
 * given. */
struct tmpl_args {
    const struct tv      *pos;
    uint32_t              n;
    const struct tmpl_kw *kw; /* names */
    const struct tv      *kw_val;
    uint32_t              n_kw;
};
typedef bool tmpl_fn(struct tmpl_eval *e, const struct tv *self, const struct tmpl_args *a, struct tv *out);
enum { TMPL_ARGS_MAX = 8 };
struct tmpl_func {
    const char *name;
    tmpl_fn    *fn;
    const char *sig;  /* "old,new,count"; "" none; NULL: takes arguments as they come */
    uint8_t     need; /* how many of sig must be given */
    uint32_t    on;   /* methods: bits 1 << kind of self */
};
extern const struct tmpl_func tmpl_filters[], tmpl_filters_text[], tmpl_filters_layout[], tmpl_filters_html[],
    tmpl_tests[], tmpl_globals[]; /* name NULL ends */
const struct tmpl_func *tmpl_find(const struct tmpl_func *table, const char *name, size_t n);
const struct tmpl_func *tmpl_find_filter(const char *name, size_t n);
const struct tmpl_func *tmpl_find_method(const struct tv *self, const char *name, size_t n);
bool tmpl_apply(struct tmpl_eval *e, const struct tmpl_func *f, const struct tv *self, const struct tmpl_args *a,
                struct tv *out);

bool tmpl_value(struct tmpl_eval *e, const struct tmpl_node *n, struct tv *out); /* expression */
bool tmpl_get_attr(struct tmpl_eval *e, const struct tv *v, const char *name, size_t n, struct tv *out); /* v.name */
bool tmpl_get_item(struct tmpl_eval *e, const struct tv *v, const struct tv *key, struct tv *out);       /* v[key] */
bool tmpl_slice(struct tmpl_eval *e, const struct tv *v, const struct tv *from, const struct tv *to,
                const struct tv *step, struct tv *out);
bool tmpl_binary(struct tmpl_eval *e, uint8_t op, const struct tv *a, const struct tv *b, struct tv *out);
bool tmpl_compare(struct tmpl_eval *e, uint8_t op, const struct tv *a, const struct tv *b, bool *out);
bool tmpl_call(struct tmpl_eval *e, const struct tv *f, const struct tmpl_args *a, struct tv *out);
bool tmpl_call_macro(struct tmpl_eval *e, const struct tv_macro *m, const struct tmpl_args *a, struct tv *out);
bool tmpl_call_loop(struct tmpl_eval *e, const struct tv_loop *l, const struct tv *items,
                    struct tv *out); /* one turn deeper */
bool tmpl_call_block(struct tmpl_eval *e, const struct tmpl_node *block, struct tv *out);
bool tmpl_macro_attr(struct tmpl_eval *e, const struct tv_macro *m, const char *name, size_t n,
                     struct tv *out); /* false: no such, or failed */
bool tmpl_arguments(struct tmpl_eval *e, const struct tmpl_node *n,
                    struct tmpl_args *a); /* of an N_CALL and the like */

enum tmpl_flow { TMPL_NEXT, TMPL_BREAK, TMPL_CONTINUE, TMPL_FAIL };
enum tmpl_flow   tmpl_run(struct tmpl_eval *e, const struct tmpl_node *n); /* statement */
bool             tmpl_set(struct tmpl_eval *e, uint32_t sym, struct tv v); /* in the innermost scope */
const struct tv *tmpl_get(const struct tmpl_eval *e, uint32_t sym);
bool             tmpl_scope_push(struct tmpl_eval *e);

/* printf of Python's % operator. */
bool tmpl_percent(struct tmpl_eval *e, const struct tv *fmt, const struct tv *args, uint32_t n_arg, struct tv *out);
