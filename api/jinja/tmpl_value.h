/* tmpl_value: the values of a template: those of Python that chat templates use.   Thread: the renderer's.
 * A value has 16 bytes and points into the render's arena, the template, or the caller's JSON. No value is freed
 * alone. */
#pragma once
#include "base/arena.h"
#include "base/buf.h"
#include "base/status.h"
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tmpl_eval; /* tmpl_eval.h */

enum tv_kind {
    TV_ABSENT = 0, /* the argument was not given; a template never sees this value */
    TV_UNDEF,      /* s: the name that is missing */
    TV_NONE,
    TV_BOOL,
    TV_INT,
    TV_FLOAT,
    TV_STR,
    TV_SEQ,
    TV_DICT,
    TV_NS, /* namespace(): dict */
    TV_MACRO,
    TV_FUNC,   /* a global function */
    TV_METHOD, /* bound: "x".strip */
    TV_LOOP,
    TV_BIG, /* a whole number beyond 64 bits (tmpl_big.h) */
    TV_CYCLER,
    TV_JOINER,
    TV_SELF,  /* the template's blocks by name */
    TV_BLOCK, /* one block of TV_SELF */
};
enum tv_seq_type {
    SEQ_LIST,
    SEQ_TUPLE,
    SEQ_RANGE,
    SEQ_GEN /* iterable once, always true, no length */,
    SEQ_KEYS,
    SEQ_VALUES,
    SEQ_ITEMS
};
enum { TV_SAFE = 1 /* string marked by |safe or |escape: + escapes the other side */ };

struct tv {
    uint8_t  kind, flag;
    uint32_t n; /* bytes of s */
    union {
        bool                    b;
        int64_t                 i;
        double                  f;
        const char             *s;
        struct tv_seq          *seq;
        struct tv_dict         *dict;
        struct tv_macro        *macro;
        const struct tmpl_func *func;
        struct tv_bound        *bound;
        struct tv_loop         *loop;
        const struct tv_big    *big;
        struct tv_cycler       *cycler;
        struct tv_joiner       *joiner;
        const struct tmpl_node *block;
    } u;
};
struct tv_seq {
    uint8_t    type;
    bool       given; /* it came with the request and must not be changed */
    bool       group; /* a pair of groupby: .grouper and .list */
    uint32_t   n, cap;
    struct tv *v;
};
struct tv_pair {
    struct tv k, v;
};
struct tv_dict {
    bool            given;
    uint32_t        n, cap;
    struct tv_pair *v; /* in the order of insertion */
};
struct tv_bound {
    struct tv               self;
    const struct tmpl_func *func;
};
struct tmpl_node;
struct tmpl_scope;
struct tv_loop {
    const struct tv_seq    *items;
    uint32_t                i, depth;  /* depth: levels of a recursive loop, 0 outermost */
    const struct tmpl_node *recursive; /* the statement that loop(..) runs again, in scope; NULL: not recursive */
    struct tmpl_scope      *scope;
    struct tv_seq          *changed; /* arguments of the last loop.changed call; NULL: there was none */
};
struct tv_cycler {
    struct tv_seq *items;
    uint32_t       pos;
};
struct tv_joiner {
    struct tv sep;
    bool      used;
};

#define TV_LIT(text) ((struct tv){ .kind = TV_STR, .n = sizeof(text) - 1, .u.s = (text) })
/* A value of each kind. Text, list and dict are not copied: they must live as long as the value: */
static inline struct tv tv_none(void) { return (struct tv){ .kind = TV_NONE }; }
static inline struct tv tv_bool(bool b) { return (struct tv){ .kind = TV_BOOL, .u.b = b }; }
static inline struct tv tv_int(int64_t i) { return (struct tv){ .kind = TV_INT, .u.i = i }; }
static inline struct tv tv_float(double f) { return (struct tv){ .kind = TV_FLOAT, .u.f = f }; }
static inline struct tv tv_str(const char *s, size_t n)
{
    return (struct tv){ .kind = TV_STR, .n = (uint32_t)n, .u.s = s };
}
static inline struct tv tv_undef(const char *s, size_t n)
{
    return (struct tv){ .kind = TV_UNDEF, .n = (uint32_t)n, .u.s = s };
}
static inline struct tv tv_seq(struct tv_seq *q) { return (struct tv){ .kind = TV_SEQ, .u.seq = q }; }
static inline struct tv tv_dict(struct tv_dict *d) { return (struct tv){ .kind = TV_DICT, .u.dict = d }; }
bool                    tv_str_is(const struct tv *v, const char *s);
const char             *tv_type_name(const struct tv *v); /* Python's name of its type: "str", "dict", ... */
/* A bool, int or float as a double; infinite if a TV_BIG is larger than every double. False: v is no number. */
bool tv_number(const struct tv *v, double *out);
bool tv_integer(const struct tv *v, int64_t *out); /* int and bool within 64 bits */
bool tv_whole(const struct tv *v);                 /* int of any size, or bool */

/* A function below that takes e returns false or NULL after an error, which tmpl_fail or tmpl_over has recorded.
 * Without an error tv_equal returns false for different values, and tv_dict_get NULL for a missing key. */
struct tv_seq  *tv_seq_new(struct tmpl_eval *e, enum tv_seq_type type, uint32_t cap);
bool            tv_seq_add(struct tmpl_eval *e, struct tv_seq *q, struct tv v);
struct tv_dict *tv_dict_new(struct tmpl_eval *e, uint32_t cap);
bool            tv_dict_set(struct tmpl_eval *e, struct tv_dict *d, struct tv k, struct tv v);
/* The value of a key, in the dict itself: valid until the next tv_dict_set. tv_dict_find: of a key that is a string. */
struct tv *tv_dict_get(struct tmpl_eval *e, const struct tv_dict *d, const struct tv *k);
struct tv *tv_dict_find(const struct tv_dict *d, const char *k, size_t n);

/* bool(v), and a == b, as Python has them. */
bool tv_truth(const struct tv *v);
bool tv_equal(struct tmpl_eval *e, const struct tv *a, const struct tv *b);
/* Writes -1, 0 or 1; a type error if Python has no order for the two. */
bool tv_compare(struct tmpl_eval *e, const struct tv *a, const struct tv *b, int *out);
bool tv_contains(struct tmpl_eval *e, const struct tv *box, const struct tv *v, bool *out);
/* The elements for a loop: of a list itself, of a string its characters, of a dict its keys, of undefined none. */
bool tv_iter(struct tmpl_eval *e, const struct tv *v, struct tv_seq **out);
bool tv_length(struct tmpl_eval *e, const struct tv *v, uint32_t *out);

/* str(v) and repr(v) as Python prints them, appended to the output. */
bool tv_print(struct tmpl_eval *e, const struct tv *v);
bool tv_repr(struct tmpl_eval *e, const struct tv *v);
bool tv_to_str(struct tmpl_eval *e, const struct tv *v, struct tv *out);
void tv_print_float(struct buf *b, double f);

/* The value of a tree of JSON. Strings are borrowed from the tree; lists and dicts are made in the memory of e. */
bool tv_from_json(struct tmpl_eval *e, const json_t *j, struct tv *out);
struct tv_json_style {
    bool      ascii, sort_keys;
    int32_t   indent; /* -1: one line */
    struct tv indent_text, item_sep, key_sep;
};
bool tv_to_json(struct tmpl_eval *e, const struct tv *v,
                const struct tv_json_style *style); /* appended to the output */
